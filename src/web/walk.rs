//! The token table of the contract (section 4): what a form's token, and what stands of its key, permit to do. The same for
//! every form that does something once, whatever it does.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::app::App;
use crate::checkout::place::Stands;
use crate::error::Result;
use crate::guard;
use crate::guard::activity::About;
use crate::guard::decided::Decided;
use crate::guard::token::{Binding, Spend};

/// How often a duplicate whose token does not permit to act looks whether the first is through.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a row of the table says to do.
#[derive(Debug)]
pub enum Step {
    /// Do it, take it over, or answer what stands: layers 2 and 3 decide, atomically.
    Do,
    /// It is under way: look again a little later.
    Wait,
    /// Tell what stands: something finished, or other content.
    Tell(Stands),
    /// The token was spent, and nothing came of it.
    Interrupted,
    /// The token is not one of this form any more.
    Expired,
}

/// The table: token and what stands of the key in, what to do out. What an accepted or bypassed token finds is seen by
/// whoever does the work, which looks and claims in one step.
fn row(token: Spend, stands: Stands, lease: Duration) -> Step {
    match (token, stands) {
        (Spend::Accepted | Spend::Bypassed, _) => Step::Do,
        (_, stands @ (Stands::Order(_) | Stands::Done(_) | Stands::Other(_))) => Step::Tell(stands),
        (_, Stands::Processing { lease_left }) if lease_left.is_zero() => Step::Do,
        (_, Stands::Processing { .. }) => Step::Wait,
        (Spend::Spent { ago }, Stands::Nothing) if ago < lease => Step::Wait,
        (Spend::Spent { .. }, Stands::Nothing) => Step::Interrupted,
        (Spend::Unknown, Stands::Nothing) => Step::Expired,
    }
}

/// Spends the token and walks the table, for up to `wait`: what is under way even then is a [`Step::Wait`]. A form without a
/// token is like one with an unknown token. `request` names this submission, `look` tells what stands of the key.
///
/// # Errors
/// Those of `look`.
pub async fn walk<F>(
    app: &App,
    token: Option<&str>,
    binding: &Binding,
    request: Uuid,
    wait: Duration,
    look: impl Fn() -> F,
) -> Result<Step>
where
    F: Future<Output = Result<Stands>>,
{
    let (began, lease) = (Instant::now(), app.config.lease);
    let spend = match token {
        Some(token) => app.tokens.spend(token, binding, request).await,
        None => unknown(|| binding.into()),
    };
    loop {
        let stands = match spend {
            Spend::Accepted | Spend::Bypassed => Stands::Nothing,
            Spend::Spent { .. } | Spend::Unknown => look().await?,
        };
        match row(later(spend, began.elapsed()), stands, lease) {
            Step::Wait if began.elapsed() < wait => tokio::time::sleep(LOOK_AGAIN).await,
            step => {
                count(&step, binding);
                return Ok(step);
            }
        }
    }
}

/// Counts what the inner layers had to say to a form whose token did not let it through to them.
fn count(step: &Step, binding: &Binding) {
    let decided = match step {
        Step::Tell(Stands::Done(_)) => Decided::Replayed,
        Step::Tell(Stands::Other(_)) => Decided::Mismatched,
        Step::Tell(Stands::Order(_)) => Decided::KeyExists,
        Step::Wait => Decided::InProgress,
        Step::Tell(_) | Step::Do | Step::Interrupted | Step::Expired => return,
    };
    guard::count(decided, || binding.into());
}

/// Counts a form that had no token which could be looked up.
pub fn unknown(about: impl FnOnce() -> About) -> Spend {
    guard::count(Decided::Unknown, about);
    Spend::Unknown
}

fn later(spend: Spend, elapsed: Duration) -> Spend {
    match spend {
        Spend::Spent { ago } => Spend::Spent { ago: ago + elapsed },
        spend => spend,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Earlier;
    use crate::order::values::OrderId;

    const LEASE: Duration = Duration::from_secs(30);
    const LIVE: Stands = Stands::Processing { lease_left: Duration::from_secs(1) };
    const OVER: Stands = Stands::Processing { lease_left: Duration::ZERO };
    const YOUNG: Spend = Spend::Spent { ago: Duration::from_secs(29) };
    const OLD: Spend = Spend::Spent { ago: LEASE };

    #[test]
    fn an_accepted_or_bypassed_token_leaves_everything_to_the_inner_layers() {
        for token in [Spend::Accepted, Spend::Bypassed] {
            assert!(matches!(row(token, Stands::Nothing, LEASE), Step::Do));
            assert!(matches!(row(token, LIVE, LEASE), Step::Do));
        }
    }

    #[test]
    fn a_live_claim_is_waited_for_and_a_dead_one_taken_over_whatever_the_token() {
        for token in [YOUNG, OLD, Spend::Unknown] {
            assert!(matches!(row(token, LIVE, LEASE), Step::Wait));
            assert!(matches!(row(token, OVER, LEASE), Step::Do));
        }
    }

    #[test]
    fn where_nothing_stands_the_token_decides() {
        assert!(matches!(row(YOUNG, Stands::Nothing, LEASE), Step::Wait));
        assert!(matches!(row(OLD, Stands::Nothing, LEASE), Step::Interrupted));
        assert!(matches!(row(Spend::Unknown, Stands::Nothing, LEASE), Step::Expired));
    }

    #[test]
    fn what_stands_is_told_whatever_the_token() {
        let order = OrderId::new();
        for token in [YOUNG, OLD, Spend::Unknown] {
            let told = row(token, Stands::Order(order), LEASE);
            assert!(matches!(told, Step::Tell(Stands::Order(o)) if o == order));
            for earlier in [Earlier::Processing, Earlier::Order(order), Earlier::Refused] {
                let told = row(token, Stands::Other(earlier.clone()), LEASE);
                assert!(matches!(told, Step::Tell(Stands::Other(e)) if e == earlier));
            }
        }
    }
}
