//! The provider's callbacks: event row and transition in one transaction, so that a copy changes nothing and a failure
//! forgets nothing. Whatever order they come in, and however often, the order ends in the same state.

use crate::app::App;
use crate::error::{Error, Result};
use crate::order::life::{Happening, Verdict, Word};
use crate::order::state::PaymentStatus;
use crate::order::values::OrderId;
use crate::payment::Outcome;
use crate::payment::event::{Event, IntentSaid, Said};
use crate::store::{Change, Changed, Conclusion, ProviderEvent};

use super::charge::rules;
use super::settled::persist;

/// The provider's name in `payment_events`.
pub const PROVIDER: &str = "stripe";

/// What was done with a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Its news were written.
    Applied,
    /// It had no news: a copy, or known by another way, or of no concern.
    NoNews,
    /// It does not fit the payment it speaks of: kept, and nothing changed.
    Mismatch,
}

/// Takes a callback whose signature was checked.
///
/// # Errors
/// `NotFound` when order or attempt are unknown (it has to come again), `Unavailable` when the database gave no answer.
pub async fn take(app: &App, event: Event) -> Result<Taken> {
    let row = ProviderEvent { provider: PROVIDER, id: event.id, kind: event.kind };
    let (order, happening) = match event.said {
        Said::Other => {
            app.store.keep_event(&row, "ignored").await?;
            return Ok(Taken::NoNews);
        }
        Said::Intent(said) => {
            let (told, known) = (said.order.clone(), app.store.order_of_payment(&said.provider_id).await?);
            if told.is_some() && known.is_some_and(|known| Some(known.to_string()) != told) {
                app.store.keep_event(&row, "mismatch").await?;
                return Ok(mismatch(&row));
            }
            (known.or_else(|| told.as_deref().and_then(order_told)), Happening::Word(word_of(said)))
        }
        Said::Refunded { provider_id } => {
            (app.store.order_of_payment(&provider_id).await?, Happening::Refunded { provider_id })
        }
    };
    let Some(order) = order else { return Err(Error::NotFound) };
    let change = Change { order, account: None, happening, event: Some(row), claim: None };
    match persist(app, &change, &rules(app, |_, _, _| Conclusion::Keep)).await? {
        Changed::Known | Changed::Fenced => Ok(Taken::NoNews),
        Changed::NotFound | Changed::Met { verdict: Verdict::NoAttempt, .. } => Err(Error::NotFound),
        Changed::Met { verdict: Verdict::Mismatch, .. } => Ok(change.event.as_ref().map_or(Taken::Mismatch, mismatch)),
        Changed::Met { verdict: Verdict::Done, .. } => Ok(Taken::Applied),
        Changed::Met { .. } => Ok(Taken::NoNews),
    }
}

/// The order that the metadata names, which we sent along.
fn order_told(told: &str) -> Option<OrderId> {
    uuid::Uuid::try_parse(told).ok().map(OrderId)
}

fn mismatch(event: &ProviderEvent) -> Taken {
    tracing::warn!(event = %event.id, kind = %event.kind, "a callback does not fit its payment; nothing was changed");
    metrics::counter!("oncegate_callback_mismatches_total").increment(1);
    Taken::Mismatch
}

fn word_of(said: IntentSaid) -> Word {
    Word {
        attempt: said.attempt.and_then(|attempt| attempt.parse().ok()),
        provider_id: Some(said.provider_id),
        said: match said.outcome {
            Outcome::Captured => PaymentStatus::Captured,
            Outcome::Processing => PaymentStatus::Processing,
            Outcome::Declined => PaymentStatus::Declined,
            Outcome::Unknown => PaymentStatus::Unknown,
        },
        money: Some((said.amount, said.currency)),
    }
}
