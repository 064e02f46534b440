//! The stand-in's callbacks: signed, repeated until they are taken, and as unpunctual as asked for.

use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value, json};
use time::OffsetDateTime;
use uuid::Uuid;

use super::Options;
use crate::payment::signature;

/// Which callbacks are sent, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callbacks {
    /// Each event once, after the answer.
    Normal,
    /// Each event twice at the same time.
    Twice,
    /// After ten times the delay.
    Late,
    /// "processing" and "succeeded" of an intent in the wrong order.
    Shuffled,
    /// Before the answer to the call that caused it.
    Early,
    /// None at all.
    None,
}

impl FromStr for Callbacks {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Ok(match word {
            "normal" => Self::Normal,
            "twice" => Self::Twice,
            "late" => Self::Late,
            "shuffled" => Self::Shuffled,
            "early" => Self::Early,
            "none" => Self::None,
            _ => return Err("must be normal, twice, late, shuffled, early or none".into()),
        })
    }
}

/// How often a callback that is not taken is sent.
const TRIES: u32 = 12;
/// The pause after the first failure; each further one is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long the receiver may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How many delays `late` waits.
const LATE: u32 = 10;

/// Sends callbacks.
#[derive(Clone)]
pub struct Sender {
    http: reqwest::Client,
    url: Option<String>,
    secret: String,
    mode: Callbacks,
    delay: Duration,
}

fn event(kind: &str, object: &Value) -> Value {
    json!({
        "id": format!("evt_{}", Uuid::new_v4().simple()), "object": "event", "type": kind, "livemode": false,
        "created": OffsetDateTime::now_utc().unix_timestamp(), "data": { "object": object },
    })
}

impl Sender {
    /// As the options say.
    pub fn new(options: &Options) -> Result<Self, reqwest::Error> {
        Ok(Self {
            http: reqwest::Client::builder().timeout(ANSWER_TIMEOUT).build()?,
            url: options.callback_url.clone(),
            secret: options.webhook_secret.clone(),
            mode: options.callbacks,
            delay: options.callback_delay,
        })
    }

    /// Tells of something, before the answer when that is the mode (then this waits until it was taken once), else later.
    pub async fn tell(&self, kind: &'static str, object: Value) {
        if self.url.is_none() || self.mode == Callbacks::None {
            return;
        }
        let first = event(kind, &object);
        if self.mode == Callbacks::Early {
            tokio::time::sleep(self.delay).await;
            if !self.deliver(&first).await {
                self.repeat(first, self.delay);
            }
            return;
        }
        let mut events = vec![first];
        match self.mode {
            Callbacks::Twice => events.push(events[0].clone()),
            Callbacks::Shuffled if kind == "payment_intent.succeeded" => {
                events.push(event("payment_intent.processing", &object));
            }
            _ => {}
        }
        let wait = if self.mode == Callbacks::Late { self.delay * LATE } else { self.delay };
        let apart = if self.mode == Callbacks::Shuffled { self.delay } else { Duration::ZERO };
        for (n, event) in (0_u32..).zip(events) {
            self.repeat(event, wait + apart * n);
        }
    }

    /// Sends an event after a pause, again and again until it is taken.
    fn repeat(&self, event: Value, wait: Duration) {
        let this = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let mut pause = FIRST_PAUSE;
            for _ in 0..TRIES {
                if this.deliver(&event).await {
                    return;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            tracing::warn!(id = %event["id"], "a callback was never taken");
        });
    }

    /// Sends an event once; `true`: it was taken.
    async fn deliver(&self, event: &Value) -> bool {
        let Some(url) = &self.url else { return true };
        let body = event.to_string();
        let header = signature::sign(&self.secret, body.as_bytes(), OffsetDateTime::now_utc().unix_timestamp());
        let request = self.http.post(url).header("content-type", "application/json").header("stripe-signature", header);
        matches!(request.body(body).send().await, Ok(answer) if answer.status().is_success())
    }
}
