//! What becomes of a submitted form: the table of the contract, section 4, and the walk through it.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::app::App;
use crate::checkout::place::{self, Intent, PLACE, Stands};
use crate::error::{Earlier, Error, Result};
use crate::guard;
use crate::guard::token::{Binding, Spend};
use crate::order::request::Parsed;
use crate::order::values::{Key, OrderId, Subject};
use crate::store::Answer;

/// How often a duplicate whose token does not permit to place looks whether the first is through.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A valid submission.
pub struct Submission {
    /// Whose session it came with, if with one that is known.
    pub subject: Option<Subject>,
    /// The form token, if one was sent.
    pub token: Option<String>,
    /// The idempotency key, if one was sent and is one.
    pub key: Option<Key>,
    /// What is asked for.
    pub request: Parsed,
    /// Whether the buyer confirmed that the same may be ordered once more.
    pub again: bool,
}

/// What a buyer is answered.
#[derive(Debug)]
pub enum Outcome {
    /// The order stands.
    Ordered(OrderId),
    /// Definitely not: the stored refusal.
    Refused(Answer),
    /// Still being placed.
    UnderWay,
    /// The key was used for other content.
    Used(Earlier),
    /// The token was spent, and nothing came of it.
    Interrupted,
    /// The token is not one of this form any more.
    Expired,
}

/// What a row of the table says to do.
#[derive(Debug)]
enum Step {
    /// Place it, take it over, or answer what stands: layers 2 and 3 decide, atomically.
    Place,
    /// Look again a little later.
    Wait,
    /// There is an answer.
    Tell(Outcome),
}

/// The table: token and what stands of the key in, what to do out. What an accepted or bypassed token finds is seen by
/// [`place::place`], which looks and claims in one step.
fn row(token: Spend, stands: Stands, lease: Duration) -> Step {
    use Outcome::{Expired, Interrupted, Ordered, Refused, Used};
    match (token, stands) {
        (Spend::Accepted | Spend::Bypassed, _) => Step::Place,
        (_, Stands::Order(order) | Stands::Done(Answer { order: Some(order), .. })) => Step::Tell(Ordered(order)),
        (_, Stands::Done(refusal)) => Step::Tell(Refused(refusal)),
        (_, Stands::Other(earlier)) => Step::Tell(Used(earlier)),
        (_, Stands::Processing { lease_left }) if lease_left.is_zero() => Step::Place,
        (_, Stands::Processing { .. }) => Step::Wait,
        (Spend::Spent { ago }, Stands::Nothing) if ago < lease => Step::Wait,
        (Spend::Spent { .. }, Stands::Nothing) => Step::Tell(Interrupted),
        (Spend::Unknown, Stands::Nothing) => Step::Tell(Expired),
    }
}

/// Spends the token and does what the table says. Waits up to `wait` for the same submission that is under way.
/// To be run in a task of its own: from the token on it must come to its end.
///
/// # Errors
/// `Invalid`, `Unavailable`, `Internal`: the key is free to try again, the token may be spent.
pub async fn submit(app: App, submission: Submission, wait: Duration) -> Result<Outcome> {
    let Submission { subject: Some(subject), token, key: Some(key), request, again } = submission else {
        // A token is bound to a visitor and a key: without either it is nobody's, and there is nothing to look up.
        guard::count("token", "unknown");
        return Ok(Outcome::Expired);
    };
    let (began, lease) = (Instant::now(), app.config.lease);
    let spend = hand_in(&app, token.as_deref(), &subject, &key).await;
    loop {
        let stands = match spend {
            Spend::Accepted | Spend::Bypassed => Stands::Nothing,
            Spend::Spent { .. } | Spend::Unknown => stands(&app, &subject, &key, &request).await?,
        };
        match row(later(spend, began.elapsed()), stands, lease) {
            Step::Tell(outcome) => return Ok(outcome),
            Step::Place => {
                let account = app.account(&subject).await?;
                let intent = Intent { account, key, request, ask_before_repeat: !again };
                return told(place::place(&app, intent, wait.saturating_sub(began.elapsed())).await);
            }
            Step::Wait if began.elapsed() >= wait => return Ok(Outcome::UnderWay),
            Step::Wait => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

/// Spends the token; a form without one is like a form with an unknown one.
async fn hand_in(app: &App, token: Option<&str>, subject: &Subject, key: &Key) -> Spend {
    let Some(token) = token else {
        guard::count("token", "unknown");
        return Spend::Unknown;
    };
    let binding = Binding { subject: subject.clone(), form: PLACE, key: key.clone() };
    app.tokens.spend(token, &binding, Uuid::new_v4()).await
}

/// What stands of the key. An account that was never opened has nothing.
async fn stands(app: &App, subject: &Subject, key: &Key, request: &Parsed) -> Result<Stands> {
    match app.find_account(subject).await? {
        Some(account) => place::look(app, account, key, Some(&request.fingerprint)).await,
        None => Ok(Stands::Nothing),
    }
}

fn later(spend: Spend, elapsed: Duration) -> Spend {
    match spend {
        Spend::Spent { ago } => Spend::Spent { ago: ago + elapsed },
        spend => spend,
    }
}

fn told(reply: Result<crate::app::Reply>) -> Result<Outcome> {
    match reply {
        Ok(reply) => Ok(match reply.answer.order {
            Some(order) => Outcome::Ordered(order),
            None => Outcome::Refused(reply.answer),
        }),
        Err(Error::InProgress { .. }) => Ok(Outcome::UnderWay),
        Err(Error::KeyReused(earlier)) => Ok(Outcome::Used(earlier)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);
    const LIVE: Stands = Stands::Processing { lease_left: Duration::from_secs(1) };
    const OVER: Stands = Stands::Processing { lease_left: Duration::ZERO };
    const YOUNG: Spend = Spend::Spent { ago: Duration::from_secs(29) };
    const OLD: Spend = Spend::Spent { ago: LEASE };

    #[test]
    fn an_accepted_or_bypassed_token_leaves_everything_to_the_inner_layers() {
        for token in [Spend::Accepted, Spend::Bypassed] {
            assert!(matches!(row(token, Stands::Nothing, LEASE), Step::Place));
            assert!(matches!(row(token, LIVE, LEASE), Step::Place));
        }
    }

    #[test]
    fn a_live_claim_is_waited_for_and_a_dead_one_taken_over_whatever_the_token() {
        for token in [YOUNG, OLD, Spend::Unknown] {
            assert!(matches!(row(token, LIVE, LEASE), Step::Wait));
            assert!(matches!(row(token, OVER, LEASE), Step::Place));
        }
    }

    #[test]
    fn where_nothing_stands_the_token_decides() {
        assert!(matches!(row(YOUNG, Stands::Nothing, LEASE), Step::Wait));
        assert!(matches!(row(OLD, Stands::Nothing, LEASE), Step::Tell(Outcome::Interrupted)));
        assert!(matches!(row(Spend::Unknown, Stands::Nothing, LEASE), Step::Tell(Outcome::Expired)));
    }

    #[test]
    fn what_stands_is_told_whatever_the_token() {
        let order = OrderId::new();
        for token in [YOUNG, OLD, Spend::Unknown] {
            assert!(matches!(row(token, Stands::Order(order), LEASE), Step::Tell(Outcome::Ordered(o)) if o == order));
            for earlier in [Earlier::Processing, Earlier::Order(order), Earlier::Refused] {
                let told = row(token, Stands::Other(earlier.clone()), LEASE);
                assert!(matches!(told, Step::Tell(Outcome::Used(e)) if e == earlier));
            }
        }
    }
}
