//! Which plays there are: one at a time, and what came of the last ones.
//!
//! A press of a button names its play, as a form names its order: pressed twice, reloaded, or sent again, it leads to
//! the same play.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use uuid::Uuid;

use super::class::Class;
use super::play::Played;

/// How many plays are remembered.
const REMEMBERED: usize = 20;

/// What came of a play; `None` while it is under way.
type Outcome = Option<Arc<Played>>;

/// The plays of this process.
pub(super) struct Plays {
    stage: Arc<Semaphore>,
    known: Mutex<VecDeque<Known>>,
}

struct Known {
    id: Uuid,
    class: Class,
    outcome: watch::Receiver<Outcome>,
}

/// Whether a play may begin.
pub(super) enum Begin {
    /// It may; nobody else may until this is dropped.
    Yours(Turn),
    /// It has begun before.
    Known,
    /// Another one is under way.
    Busy,
}

/// The one play under way.
pub(super) struct Turn {
    outcome: watch::Sender<Outcome>,
    _stage: OwnedSemaphorePermit,
}

impl Turn {
    /// Says what came of it.
    pub(super) fn end(self, played: Played) {
        self.outcome.send_replace(Some(Arc::new(played)));
    }
}

/// What is known of a play.
pub(super) enum Found {
    /// It is over.
    Over(Arc<Played>),
    /// It is under way.
    UnderWay(Class),
    /// It was not played here, or is long forgotten.
    Nothing,
}

impl Plays {
    pub(super) fn new() -> Self {
        Self { stage: Arc::new(Semaphore::new(1)), known: Mutex::default() }
    }

    /// No step below can panic half way, so what a poisoned lock guards is whole.
    fn known(&self) -> MutexGuard<'_, VecDeque<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self, id: Uuid, class: Class) -> Begin {
        let mut known = self.known();
        if known.iter().any(|play| play.id == id) {
            return Begin::Known;
        }
        let Ok(stage) = self.stage.clone().try_acquire_owned() else { return Begin::Busy };
        let (sender, outcome) = watch::channel(None);
        if known.len() == REMEMBERED {
            known.pop_front();
        }
        known.push_back(Known { id, class, outcome });
        Begin::Yours(Turn { outcome: sender, _stage: stage })
    }

    /// What is known of a play, waiting a little for one that is under way.
    pub(super) async fn find(&self, id: Uuid, patience: Duration) -> Found {
        let found = self.known().iter().find(|play| play.id == id).map(|play| (play.class, play.outcome.clone()));
        let Some((class, mut outcome)) = found else { return Found::Nothing };
        match tokio::time::timeout(patience, outcome.wait_for(Option::is_some)).await {
            Ok(Ok(played)) => played.clone().map_or(Found::Nothing, Found::Over),
            // Its task died: there is nothing to wait for.
            Ok(Err(_)) => Found::Nothing,
            Err(_) => Found::UnderWay(class),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::play::Played;

    const NOW: Duration = Duration::ZERO;

    #[tokio::test(start_paused = true)]
    async fn one_play_at_a_time_and_a_second_press_leads_to_the_first() {
        let plays = Plays::new();
        let (one, two) = (Uuid::new_v4(), Uuid::new_v4());
        let Begin::Yours(turn) = plays.begin(one, Class::Reload) else { panic!("nobody else plays") };
        assert!(matches!(plays.begin(one, Class::Reload), Begin::Known));
        assert!(matches!(plays.begin(two, Class::Reload), Begin::Busy));
        assert!(matches!(plays.find(one, NOW).await, Found::UnderWay(Class::Reload)));
        turn.end(Played::cut_short(Class::Reload, "x".into()));
        assert!(matches!(plays.find(one, NOW).await, Found::Over(_)));
        assert!(matches!(plays.begin(one, Class::Reload), Begin::Known), "reloaded, it is not played again");
        assert!(matches!(plays.begin(two, Class::Reload), Begin::Yours(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_are_forgotten() {
        let plays = Plays::new();
        let ids: Vec<Uuid> = (0..=REMEMBERED).map(|_| Uuid::new_v4()).collect();
        for id in &ids {
            let Begin::Yours(turn) = plays.begin(*id, Class::Reload) else { panic!("nobody else plays") };
            turn.end(Played::cut_short(Class::Reload, "x".into()));
        }
        assert!(matches!(plays.find(ids[0], NOW).await, Found::Nothing));
        assert!(matches!(plays.find(ids[1], NOW).await, Found::Over(_)));
        assert_eq!(plays.known().len(), REMEMBERED);
    }
}
