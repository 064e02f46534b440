//! The provider's callbacks: Stripe's events, as far as they concern orders.

use serde::Deserialize;
use serde::de::Error;

use super::{Outcome, is_id};

/// A callback as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The provider's id of the event: the same for every copy.
    pub id: String,
    /// Its type.
    pub kind: String,
    /// What it says.
    pub said: Said,
}

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// What became of a payment intent.
    Intent(IntentSaid),
    /// A charge was paid back, for the intent with this id.
    Refunded {
        /// The provider's id of the intent.
        provider_id: String,
    },
    /// Nothing that concerns orders.
    Other,
}

/// What became of an intent, and which order it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntentSaid {
    /// What became of it.
    pub outcome: Outcome,
    /// The provider's id of the intent.
    pub provider_id: String,
    /// Minor units.
    pub amount: i64,
    /// ISO 4217, in capital letters.
    pub currency: String,
    /// `metadata.order_id`, whatever it is.
    pub order: Option<String>,
    /// `metadata.attempt`, whatever it is.
    pub attempt: Option<String>,
}

#[derive(Deserialize)]
struct RawEvent {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    data: RawData,
}

#[derive(Deserialize)]
struct RawData {
    object: serde_json::Value,
}

#[derive(Deserialize)]
struct RawIntent {
    id: String,
    amount: i64,
    currency: String,
    #[serde(default)]
    metadata: std::collections::HashMap<String, String>,
}

#[derive(Deserialize)]
struct RawCharge {
    payment_intent: Option<String>,
}

/// Reads an event.
///
/// # Errors
/// Says what does not fit; the sender is to be told 400.
pub fn read(body: &[u8]) -> Result<Event, serde_json::Error> {
    let RawEvent { id, kind, data: RawData { object } } = serde_json::from_slice(body)?;
    let outcome = match kind.as_str() {
        "payment_intent.succeeded" => Some(Outcome::Captured),
        "payment_intent.processing" => Some(Outcome::Processing),
        "payment_intent.payment_failed" => Some(Outcome::Declined),
        _ => None,
    };
    let said = match (outcome, kind.as_str()) {
        (Some(outcome), _) => {
            let mut intent: RawIntent = serde_json::from_value(object)?;
            Said::Intent(IntentSaid {
                outcome,
                provider_id: intent.id,
                amount: intent.amount,
                currency: intent.currency.to_ascii_uppercase(),
                order: intent.metadata.remove("order_id"),
                attempt: intent.metadata.remove("attempt"),
            })
        }
        (None, "charge.refunded") => match serde_json::from_value::<RawCharge>(object)?.payment_intent {
            Some(provider_id) => Said::Refunded { provider_id },
            None => Said::Other,
        },
        (None, _) => Said::Other,
    };
    let provider_id = match &said {
        Said::Intent(IntentSaid { provider_id, .. }) | Said::Refunded { provider_id } => Some(provider_id),
        Said::Other => None,
    };
    if ![Some(&id), Some(&kind), provider_id].into_iter().flatten().all(|name| is_id(name)) {
        return Err(serde_json::Error::custom("an id or a type that is none"));
    }
    Ok(Event { id, kind, said })
}
