//! Calls to the provider. None is made inside a database transaction, and each has a deadline.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::{Charge, Outcome, Word, is_id};

/// The provider, by its HTTP API.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    key: SecretString,
    timeout: Duration,
}

#[derive(Deserialize)]
struct Intent {
    id: String,
    status: String,
}

#[derive(Deserialize)]
struct Failure {
    error: FailureDetail,
}

#[derive(Deserialize)]
struct FailureDetail {
    #[serde(rename = "type")]
    kind: Option<String>,
    code: Option<String>,
    payment_intent: Option<Intent>,
}

impl Client {
    /// A client of the provider at `url` (no slash at the end), whose every call ends within `timeout`.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(url: String, key: SecretString, timeout: Duration) -> Result<Self, reqwest::Error> {
        // No redirects and no retries of its own: what is sent again is decided by whoever holds the claim.
        let http = reqwest::Client::builder()
            .timeout(timeout)
            .connect_timeout(timeout / 2)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self { http, url, key, timeout })
    }

    /// The longest a call takes.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Charges the card: once, however often it is called with the same `provider_key`.
    pub async fn charge(&self, charge: &Charge) -> Word {
        let mut form = vec![
            ("amount", charge.amount.to_string()),
            ("currency", charge.currency.to_ascii_lowercase()),
            ("confirm", "true".into()),
            ("metadata[order_id]", charge.order.to_string()),
            ("metadata[attempt]", charge.attempt.to_string()),
        ];
        if let Some(method) = &charge.payment_method {
            form.push(("payment_method", method.clone()));
        }
        let request = self.http.post(self.path("payment_intents")).header("idempotency-key", &charge.provider_key);
        self.word(request.form(&form)).await
    }

    /// What became of an intent.
    pub async fn look_up(&self, provider_id: &str) -> Word {
        let id = percent_encoding::utf8_percent_encode(provider_id, percent_encoding::NON_ALPHANUMERIC);
        self.word(self.http.get(self.path(&format!("payment_intents/{id}")))).await
    }

    /// Pays an intent back: once, however often it is called with the same key. `false`: no word that it was done.
    pub async fn refund(&self, provider_id: &str, refund_key: &str) -> bool {
        let request = self.http.post(self.path("refunds")).header("idempotency-key", refund_key);
        let sent = request.form(&[("payment_intent", provider_id)]).bearer_auth(self.key.expose_secret()).send().await;
        match sent {
            Ok(answer) if answer.status().is_success() => true,
            Ok(answer) => {
                let status = answer.status().as_u16();
                let failure: Option<Failure> = answer.json().await.ok();
                // The answer to an earlier call was lost, and its key has been forgotten since.
                let done = failure.is_some_and(|f| f.error.code.as_deref() == Some("charge_already_refunded"));
                if !done {
                    tracing::warn!(status, provider_id, "the provider did not refund");
                }
                done
            }
            Err(error) => {
                tracing::warn!(%error, provider_id, "the provider gave no answer to a refund");
                false
            }
        }
    }

    fn path(&self, of: &str) -> String {
        format!("{}/v1/{of}", self.url)
    }

    async fn word(&self, request: reqwest::RequestBuilder) -> Word {
        match self.ask(request).await {
            Ok(word) => word,
            Err(error) => {
                tracing::warn!(error = %error.without_url(), "the provider gave no outcome");
                Word::NONE
            }
        }
    }

    async fn ask(&self, request: reqwest::RequestBuilder) -> Result<Word, reqwest::Error> {
        let answer = request.bearer_auth(self.key.expose_secret()).send().await?;
        let status = answer.status();
        if status.is_success() {
            let intent: Intent = answer.json().await?;
            return Ok(Word { outcome: outcome(&intent.status), provider_id: Some(intent.id).filter(|id| is_id(id)) });
        }
        if status == reqwest::StatusCode::PAYMENT_REQUIRED {
            let failure: Option<Failure> = answer.json().await.ok();
            let detail = failure.map(|failure| failure.error);
            let card =
                detail.as_ref().is_none_or(|detail| detail.kind.as_deref().is_none_or(|kind| kind == "card_error"));
            let provider_id = detail.and_then(|detail| detail.payment_intent).map(|intent| intent.id);
            let provider_id = provider_id.filter(|id| is_id(id));
            let outcome = if card { Outcome::Declined } else { Outcome::Unknown };
            return Ok(Word { outcome, provider_id });
        }
        tracing::warn!(status = status.as_u16(), "the provider answered with no outcome");
        Ok(Word::NONE)
    }
}

fn outcome(status: &str) -> Outcome {
    match status {
        "succeeded" => Outcome::Captured,
        "processing" => Outcome::Processing,
        "requires_payment_method" => Outcome::Declined,
        _ => Outcome::Unknown,
    }
}
