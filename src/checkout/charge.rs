//! Asking the provider about a card attempt. The attempt was committed before, its key is fixed, no transaction is open
//! and no connection held while the provider thinks. What it says is written under the claim; a worker that lost its claim
//! writes it without: the provider's word is a fact, whoever hears it.
//!
//! After a crash at any point the order's state is the recovery point: a retry that takes the claim over comes back
//! here, and so does the reconciler, with the same key.

use std::time::{Duration, Instant};

use crate::app::{App, Conclude, Reply};
use crate::error::{Error, Result};
use crate::guard::key;
use crate::order::life::{Attempt, Happening, Life, Verdict, Word};
use crate::order::state::PaymentStatus;
use crate::order::values::OrderId;
use crate::payment::{self, Charge, Outcome};
use crate::store::{Change, ChangeRules, Changed, Conclusion, Fence};

use super::settled::{overtaken, persist};

/// How long the provider is known to keep its idempotency keys (docs.stripe.com/api/idempotent_requests: at least 24
/// hours). An older attempt is looked up, never sent again; an hour is left for clocks and queues.
pub const KEY_RETENTION: Duration = Duration::from_secs(23 * 60 * 60);

/// A claim whose work is to charge an order.
#[derive(Clone)]
pub struct Charging {
    /// The claim.
    pub claim: Fence,
    /// The order, pending.
    pub order: OrderId,
    /// How its record is concluded.
    pub conclude: Conclude,
    /// When its caller is answered 503.
    pub deadline: Instant,
}

/// Charges the order's attempt and concludes the claim's record by what the provider said.
///
/// # Errors
/// `NoOutcome` when the provider gave none (the claim is released), `Unavailable` when the database gave no answer or the claim was lost.
pub async fn charge(app: &App, charging: Charging) -> Result<Reply> {
    let Some(life) = app.store.life(charging.order).await? else { return Err(Error::NotFound) };
    let Some(attempt) = unsettled(&life) else { return conclude_as_it_stands(app, &charging, &life).await };
    let word = ask(app, &life, attempt).await;
    let happening = Happening::Word(word_on(attempt, word));
    let mut change =
        Change { order: charging.order, account: None, happening, event: None, claim: Some(charging.claim.clone()) };
    let rules = rules(app, charging.conclude);
    match persist(app, &change, &rules).await? {
        Changed::Met { conclusion, .. } => concluded(&charging, conclusion),
        Changed::Fenced => {
            key::lease_lost(&charging.claim.id);
            change.claim = None;
            persist(app, &change, &rules).await?;
            overtaken(app, &charging.claim.id, charging.deadline).await
        }
        Changed::NotFound | Changed::Known => {
            Err(Error::Internal(format!("order {} vanished while it was charged", charging.order)))
        }
    }
}

/// The attempt that the provider has to be asked about.
fn unsettled(life: &Life) -> Option<&Attempt> {
    life.in_flight().filter(|attempt| attempt.status != PaymentStatus::Processing)
}

/// The provider's word on an attempt: by looking it up where it is known there, by sending it (again) where its key is
/// still good, and none at all where neither can be.
pub async fn ask(app: &App, life: &Life, attempt: &Attempt) -> payment::Word {
    let Some(provider) = &app.provider else { return payment::Word::NONE };
    match (&attempt.provider_id, &attempt.provider_key) {
        (Some(id), _) => provider.look_up(id).await,
        (None, Some(key)) if attempt.age < KEY_RETENTION => {
            let charge = Charge {
                provider_key: key.clone(),
                amount: attempt.amount,
                currency: life.order.currency.to_string(),
                payment_method: attempt.token.as_ref().map(ToString::to_string),
                order: life.order.id,
                attempt: attempt.number,
            };
            provider.charge(&charge).await
        }
        (None, _) => {
            tracing::warn!(order = %life.order.id, attempt = attempt.number,
                "a payment without an outcome is too old to be sent again and the provider never told its id: look for it at the provider");
            payment::Word::NONE
        }
    }
}

/// The provider's word as what happens to the order.
#[must_use]
pub fn word_on(attempt: &Attempt, word: payment::Word) -> Word {
    let said = match word.outcome {
        Outcome::Captured => PaymentStatus::Captured,
        Outcome::Processing => PaymentStatus::Processing,
        Outcome::Declined => PaymentStatus::Declined,
        Outcome::Unknown => PaymentStatus::Unknown,
    };
    Word { attempt: Some(attempt.number), provider_id: word.provider_id, said, money: None }
}

/// The rules of a change by this app.
#[must_use]
pub fn rules(app: &App, conclude: Conclude) -> ChangeRules {
    ChangeRules {
        key_ttl: app.config.key_ttl,
        lock_wait: app.config.statement_timeout(),
        first_check: app.config.lease,
        conclude,
    }
}

/// Somebody else (a callback, the reconciler) has brought the outcome already.
async fn conclude_as_it_stands(app: &App, charging: &Charging, life: &Life) -> Result<Reply> {
    let seen = Happening::Word(Word { attempt: None, provider_id: None, said: PaymentStatus::Unknown, money: None });
    let conclusion = (charging.conclude)(Verdict::Already, &seen, life);
    match &conclusion {
        Conclusion::Answer(answer) if !app.keys.complete(&charging.claim, answer).await? => {
            return overtaken(app, &charging.claim.id, charging.deadline).await;
        }
        Conclusion::Answer(_) => {}
        Conclusion::Release | Conclusion::Keep => app.keys.release(std::slice::from_ref(&charging.claim)).await?,
    }
    concluded(charging, conclusion)
}

fn concluded(charging: &Charging, conclusion: Conclusion) -> Result<Reply> {
    match conclusion {
        Conclusion::Answer(answer) => Ok(Reply { answer, replayed: false }),
        Conclusion::Release | Conclusion::Keep => Err(Error::NoOutcome { order: charging.order }),
    }
}
