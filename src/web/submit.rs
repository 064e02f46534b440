//! What becomes of a submitted order form.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::app::{App, Reply};
use crate::checkout::place::{self, Intent, PLACE, Stands};
use crate::error::{Earlier, Error, Result};
use crate::guard::activity::{About, Who};
use crate::guard::token::Binding;
use crate::order::request::Parsed;
use crate::order::values::{Key, OrderId, Subject};
use crate::store::Answer;

use super::walk::{self, Step, walk};

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
    /// The order stands; its page says how far its payment is.
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

/// Spends the token and does what the table says. Waits up to `wait` for the same submission that is under way. Nothing is burnt
/// when there is no answer: the token is given back. To be run in a task of its own: from the token on it must come to
/// its end.
///
/// # Errors
/// `Invalid`, `Unavailable`, `Internal`: the key is free to try again.
pub async fn submit(app: App, submission: Submission, wait: Duration) -> Result<Outcome> {
    let (Some(subject), Some(key)) = (submission.subject.clone(), submission.key.clone()) else {
        // A token is bound to a visitor and a key: without either it is nobody's, and there is nothing to look up.
        let Submission { subject, key, .. } = submission;
        walk::unknown(|| About { who: subject.map_or(Who::Nobody, Who::Subject), operation: PLACE, key });
        return Ok(Outcome::Expired);
    };
    let (token, request) = (submission.token.clone(), Uuid::new_v4());
    let binding = Binding { subject, form: PLACE, key };
    let outcome = spend_and_act(&app, submission, &binding, request, wait).await;
    if let (Err(Error::Unavailable { .. } | Error::Internal(_)), Some(token)) = (&outcome, &token) {
        app.tokens.give_back(token, &binding, request).await;
    }
    outcome
}

async fn spend_and_act(
    app: &App,
    submission: Submission,
    binding: &Binding,
    request: Uuid,
    wait: Duration,
) -> Result<Outcome> {
    let Submission { token, request: wanted, again, .. } = submission;
    let (began, subject, key) = (Instant::now(), &binding.subject, &binding.key);
    let look = || stands(app, subject, key, &wanted);
    let outcome = match walk(app, token.as_deref(), binding, request, wait, look).await? {
        Step::Do => {
            let account = app.account(subject).await?;
            let intent = Intent { account, key: key.clone(), request: wanted, ask_before_repeat: !again };
            told(place::place(app, intent, wait.saturating_sub(began.elapsed())).await)?
        }
        Step::Wait => Outcome::UnderWay,
        Step::Tell(stands) => tell(stands),
        Step::Interrupted => Outcome::Interrupted,
        Step::Expired => Outcome::Expired,
    };
    match outcome {
        Outcome::UnderWay => Ok(standing(app, subject, key).await?.map_or(Outcome::UnderWay, Outcome::Ordered)),
        outcome => Ok(outcome),
    }
}

/// What stands of the key. An account that was never opened has nothing.
async fn stands(app: &App, subject: &Subject, key: &Key, request: &Parsed) -> Result<Stands> {
    match app.find_account(subject).await? {
        Some(account) => place::look(app, account, key, Some(&request.fingerprint)).await,
        None => Ok(Stands::Nothing),
    }
}

/// The order of a submission under way: one that waits for the payment provider stands already, and its page says so.
pub(super) async fn standing(app: &App, subject: &Subject, key: &Key) -> Result<Option<OrderId>> {
    let Some(account) = app.find_account(subject).await? else { return Ok(None) };
    Ok(app.store.order_by_key(account, key).await?.map(|order| order.id))
}

fn tell(stands: Stands) -> Outcome {
    match stands {
        Stands::Order(order) | Stands::Done(Answer { order: Some(order), .. }) => Outcome::Ordered(order),
        Stands::Done(refusal) => Outcome::Refused(refusal),
        Stands::Other(earlier) => Outcome::Used(earlier),
        // The table tells neither of these two: it waits, takes over, or says what the token says.
        Stands::Processing { .. } | Stands::Nothing => Outcome::UnderWay,
    }
}

fn told(reply: Result<Reply>) -> Result<Outcome> {
    match reply {
        Ok(reply) => Ok(tell(Stands::Done(reply.answer))),
        Err(Error::NoOutcome { order }) => Ok(Outcome::Ordered(order)),
        Err(Error::InProgress { .. }) => Ok(Outcome::UnderWay),
        Err(Error::KeyReused(earlier)) => Ok(Outcome::Used(earlier)),
        Err(error) => Err(error),
    }
}
