//! What the stand-in keeps: intents, refunds, and the first answer to every idempotency key.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

/// Form fields as they were sent.
pub type Fields = Vec<(String, String)>;

/// An answer of the stand-in.
#[derive(Clone, Debug)]
pub struct Said {
    /// HTTP status.
    pub status: u16,
    /// JSON body.
    pub body: Value,
}

/// One payment intent.
#[derive(Clone, Debug)]
pub struct Intent {
    /// `pi_…`
    pub id: String,
    /// Minor units.
    pub amount: i64,
    /// Small letters.
    pub currency: String,
    /// Stripe's word: `succeeded`, `processing`, `requires_payment_method`, `requires_confirmation`.
    pub status: &'static str,
    /// As sent.
    pub metadata: HashMap<String, String>,
    payment_method: Option<String>,
    key: Option<String>,
    refunded: bool,
    created: i64,
}

/// A line of `GET /log`: a charge that was made or a refund.
#[derive(Clone, Debug, Serialize)]
pub struct LogLine {
    id: String,
    order_id: Option<String>,
    attempt: Option<String>,
    amount: i64,
    currency: String,
    idempotency_key: Option<String>,
    status: &'static str,
}

/// What is known of an idempotency key.
enum Keyed {
    /// Its first request is under way.
    UnderWay(Fields),
    /// Its first answer.
    Done(Fields, Said),
}

/// What a key lets its request do.
pub enum Admission {
    /// The first: do the work, then [`Ledger::keep`] the answer.
    First,
    /// Answer this.
    Answer(Said),
    /// Answer the first answer again.
    Replay(Said),
}

/// Everything the stand-in remembers.
#[derive(Default)]
pub struct Ledger {
    intents: HashMap<String, Intent>,
    keys: HashMap<String, Keyed>,
    log: Vec<LogLine>,
    /// How many charges were made: for `--lose-answer`.
    pub charges: u64,
}

/// Stripe's error object.
pub fn failure(status: u16, kind: &str, message: &str) -> Said {
    Said { status, body: json!({ "error": { "type": kind, "message": message } }) }
}

fn field<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
}

impl Ledger {
    /// Whether a request may run: same key and same parameters, same answer; other parameters, an error.
    pub fn admit(&mut self, key: Option<&str>, fields: &Fields) -> Admission {
        let Some(key) = key else { return Admission::First };
        match self.keys.get(key) {
            None => {
                self.keys.insert(key.into(), Keyed::UnderWay(fields.clone()));
                Admission::First
            }
            Some(Keyed::UnderWay(first) | Keyed::Done(first, _)) if first != fields => Admission::Answer(failure(
                400,
                "idempotency_error",
                "Keys for idempotent requests can only be used with the same parameters they were first used with.",
            )),
            Some(Keyed::UnderWay(_)) => Admission::Answer(failure(
                409,
                "idempotency_error",
                "There is currently another in-progress request using this idempotency key.",
            )),
            Some(Keyed::Done(_, said)) => Admission::Replay(said.clone()),
        }
    }

    /// Keeps the first answer to a key.
    pub fn keep(&mut self, key: Option<&str>, fields: Fields, said: &Said) {
        if let Some(key) = key {
            self.keys.insert(key.into(), Keyed::Done(fields, said.clone()));
        }
    }

    /// Makes an intent, and charges it when it is confirmed.
    ///
    /// # Errors
    /// What the caller is to be told when the parameters do not do.
    pub fn create(&mut self, fields: &Fields, key: Option<&str>, declined: &[i64], now: i64) -> Result<Intent, Said> {
        let invalid = |message: &str| failure(400, "invalid_request_error", message);
        let amount: i64 = field(fields, "amount")
            .and_then(|amount| amount.parse().ok())
            .filter(|amount| *amount > 0)
            .ok_or_else(|| invalid("amount must be a positive integer"))?;
        let currency = field(fields, "currency")
            .filter(|c| c.len() == 3 && c.bytes().all(|b| b.is_ascii_alphabetic()))
            .ok_or_else(|| invalid("currency must be a three-letter code"))?;
        let payment_method = field(fields, "payment_method").map(str::to_owned);
        let metadata = fields
            .iter()
            .filter_map(|(name, value)| {
                let name = name.strip_prefix("metadata[")?.strip_suffix(']')?;
                Some((name.to_owned(), value.clone()))
            })
            .collect();
        let confirmed = field(fields, "confirm") == Some("true");
        let intent = Intent {
            id: format!("pi_{}", Uuid::new_v4().simple()),
            amount,
            currency: currency.to_ascii_lowercase(),
            status: status_of(confirmed, payment_method.as_deref(), declined.contains(&amount)),
            metadata,
            payment_method,
            key: key.map(str::to_owned),
            refunded: false,
            created: now,
        };
        self.intents.insert(intent.id.clone(), intent.clone());
        if intent.status == "succeeded" {
            self.log_charge(&intent);
        }
        Ok(intent)
    }

    /// A `processing` intent comes through.
    pub fn come_through(&mut self, id: &str) -> Option<Intent> {
        let intent = self.intents.get_mut(id).filter(|intent| intent.status == "processing")?;
        intent.status = "succeeded";
        let intent = intent.clone();
        self.log_charge(&intent);
        Some(intent)
    }

    /// An intent as it is.
    pub fn intent(&self, id: &str) -> Option<&Intent> {
        self.intents.get(id)
    }

    /// Pays an intent back, whole, once.
    pub fn refund(&mut self, fields: &Fields, key: Option<&str>, now: i64) -> Result<(Value, Intent), Said> {
        let invalid = |message: &str| failure(400, "invalid_request_error", message);
        let id = field(fields, "payment_intent").ok_or_else(|| invalid("payment_intent is missing"))?;
        let intent =
            self.intents.get_mut(id).ok_or_else(|| failure(404, "invalid_request_error", "No such payment_intent"))?;
        if intent.status != "succeeded" {
            return Err(invalid("This payment_intent has no successful charge to refund."));
        }
        if intent.refunded {
            let mut said = invalid("Charge has already been refunded.");
            said.body["error"]["code"] = "charge_already_refunded".into();
            return Err(said);
        }
        intent.refunded = true;
        let refund = format!("re_{}", Uuid::new_v4().simple());
        self.log.push(LogLine { id: refund.clone(), status: "refunded", ..log_line(intent, key.map(str::to_owned)) });
        let body = json!({
            "id": refund, "object": "refund", "amount": intent.amount, "currency": intent.currency, "created": now,
            "payment_intent": intent.id, "charge": charge_id(&intent.id), "status": "succeeded", "metadata": {},
        });
        Ok((body, intent.clone()))
    }

    /// What was charged and refunded, in order.
    pub fn log(&self) -> &[LogLine] {
        &self.log
    }

    fn log_charge(&mut self, intent: &Intent) {
        self.charges += 1;
        self.log.push(log_line(intent, intent.key.clone()));
    }
}

/// Stripe's test payment methods decide as they do there: `…chargeDeclined…` declines, a bank account is slow.
fn status_of(confirmed: bool, payment_method: Option<&str>, declined_amount: bool) -> &'static str {
    let method = payment_method.unwrap_or_default();
    if !confirmed {
        "requires_confirmation"
    } else if declined_amount || method.contains("chargeDeclined") {
        "requires_payment_method"
    } else if method == "pm_usBankAccount" {
        "processing"
    } else {
        "succeeded"
    }
}

fn log_line(intent: &Intent, idempotency_key: Option<String>) -> LogLine {
    LogLine {
        id: intent.id.clone(),
        order_id: intent.metadata.get("order_id").cloned(),
        attempt: intent.metadata.get("attempt").cloned(),
        amount: intent.amount,
        currency: intent.currency.clone(),
        idempotency_key,
        status: "succeeded",
    }
}

/// The one charge of an intent.
fn charge_id(intent: &str) -> String {
    intent.replacen("pi_", "ch_", 1)
}

impl Intent {
    /// As Stripe shows it.
    pub fn json(&self) -> Value {
        let declined = self.status == "requires_payment_method";
        let paid = self.status == "succeeded";
        json!({
            "id": self.id, "object": "payment_intent", "amount": self.amount, "currency": self.currency,
            "amount_received": if paid { self.amount } else { 0 }, "status": self.status, "metadata": self.metadata,
            "payment_method": if declined { None } else { self.payment_method.as_deref() },
            "latest_charge": paid.then(|| charge_id(&self.id)), "created": self.created, "livemode": false,
            "client_secret": format!("{}_secret_test", self.id), "capture_method": "automatic",
            "last_payment_error": declined.then(|| json!({
                "type": "card_error", "code": "card_declined", "message": "Your card was declined." })),
        })
    }

    /// The answer to whoever created it.
    pub fn said(&self) -> Said {
        if self.status != "requires_payment_method" {
            return Said { status: 200, body: self.json() };
        }
        Said {
            status: 402,
            body: json!({ "error": {
                "type": "card_error", "code": "card_declined", "decline_code": "generic_decline",
                "message": "Your card was declined.", "payment_intent": self.json(),
            } }),
        }
    }

    /// The type of the event that tells of it, if one does.
    pub fn event_kind(&self) -> Option<&'static str> {
        match self.status {
            "succeeded" => Some("payment_intent.succeeded"),
            "processing" => Some("payment_intent.processing"),
            "requires_payment_method" => Some("payment_intent.payment_failed"),
            _ => None,
        }
    }

    /// Its charge as `charge.refunded` shows it.
    pub fn refunded_charge(&self) -> Value {
        json!({
            "id": charge_id(&self.id), "object": "charge", "amount": self.amount, "amount_refunded": self.amount,
            "currency": self.currency, "payment_intent": self.id, "refunded": true, "metadata": self.metadata,
        })
    }
}
