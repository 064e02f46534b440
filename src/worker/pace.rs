//! How patient the queue's workers are with one another. All of it follows from the lease, as every deadline does.

use std::time::Duration;

use crate::store::Republish;

/// The longest that an entry stays with a reader that has died.
const LONGEST_IDLE: Duration = Duration::from_secs(10);
/// The longest that a message whose effect does not show is left alone at first.
const LONGEST_FIRST: Duration = Duration::from_secs(30);
/// Later on a message that never has its effect is told once a day.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The times between relay, queue and consumer.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long a reader has an entry for itself.
    pub idle: Duration,
    /// When a message whose effect does not show is published again; also what a relay took and died with.
    pub republish: Republish,
}

impl Pace {
    /// With the default lease of 30 s: 10 s, 30 s.
    #[must_use]
    pub fn of(lease: Duration) -> Self {
        let idle = LONGEST_IDLE.min(lease / 3);
        Self { idle, republish: Republish { first: LONGEST_FIRST.min(lease), longest: LONGEST } }
    }
}
