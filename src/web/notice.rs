//! Why a form is on the page: nothing has happened yet, or what came of an earlier one.

use std::time::Duration;

use axum::http::StatusCode;
use serde::Deserialize;
use uuid::Uuid;

use crate::error::Earlier;
use crate::order::request::FieldError;
use crate::order::values::{Key, OrderId};
use crate::store::Answer;

use super::words::Fault;

/// The name of the problem that a stored refusal tells.
pub(super) fn problem_of(refusal: &Answer) -> Option<String> {
    let problem: Problem = serde_json::from_slice(&refusal.body).ok()?;
    Some(problem.kind.rsplit('/').next().unwrap_or_default().to_owned())
}

/// What the head of a page with a form says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Nothing: a form that nobody has sent.
    None,
    /// Fields are wrong.
    Invalid(Vec<FieldError>),
    /// The form had expired; nothing was ordered.
    Expired,
    /// An earlier submission of this form came to nothing.
    Interrupted,
    /// The same, found where somebody looks for that submission's outcome.
    NothingCameOfIt,
    /// This form became an order; what was sent now is something else.
    BecameOrder(OrderId),
    /// This form was refused; what was sent now is something else.
    WasRefused,
    /// This form is being placed with other content.
    BeingPlaced(Key),
    /// The same was ordered a moment ago.
    Repeat {
        /// The earlier order.
        order: OrderId,
        /// How many seconds ago.
        seconds: u64,
    },
    /// Not enough of these SKUs.
    OutOfStock(Vec<String>),
    /// These SKUs are not in the catalogue.
    UnknownSku(Vec<String>),
    /// The balance does not cover the total.
    InsufficientFunds,
    /// Any other refusal, in the words it was stored with.
    Refused {
        /// HTTP status.
        status: u16,
        /// One sentence.
        detail: String,
    },
    /// A full desk or a silent dependency; nothing is lost.
    Unavailable {
        /// When to come again.
        retry_after: Duration,
    },
    /// A bug of ours; the key is kept, so trying again is safe.
    Failed,
}

/// What a stored refusal holds that a page can use (RFC 9457, with the members of `api/problem`).
#[derive(Deserialize)]
struct Problem {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    title: String,
    detail: Option<String>,
    #[serde(default)]
    skus: Vec<String>,
    order: Option<Uuid>,
    seconds: Option<u64>,
}

impl Notice {
    /// What a stored refusal says.
    #[must_use]
    pub fn of_refusal(refusal: &Answer) -> Self {
        let Ok(problem) = serde_json::from_slice::<Problem>(&refusal.body) else {
            return Self::Refused { status: refusal.status, detail: String::new() };
        };
        match (problem.kind.rsplit('/').next().unwrap_or_default(), problem.order, problem.seconds) {
            ("out-of-stock", ..) => Self::OutOfStock(problem.skus),
            ("unknown-sku", ..) => Self::UnknownSku(problem.skus),
            ("insufficient-funds", ..) => Self::InsufficientFunds,
            ("repeat", Some(order), Some(seconds)) => Self::Repeat { order: OrderId(order), seconds },
            _ => Self::Refused { status: refusal.status, detail: problem.detail.unwrap_or(problem.title) },
        }
    }

    /// What an earlier use of the key says.
    #[must_use]
    pub fn of_earlier(earlier: &Earlier, key: Key) -> Self {
        match earlier {
            Earlier::Processing => Self::BeingPlaced(key),
            Earlier::Order(order) => Self::BecameOrder(*order),
            Earlier::Refused => Self::WasRefused,
        }
    }

    /// The HTTP status of its page.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::None | Self::NothingCameOfIt => StatusCode::OK,
            Self::Invalid(_) | Self::UnknownSku(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::InsufficientFunds => StatusCode::PAYMENT_REQUIRED,
            Self::Refused { status, .. } => StatusCode::from_u16(*status).unwrap_or(StatusCode::CONFLICT),
            Self::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Expired
            | Self::Interrupted
            | Self::BecameOrder(_)
            | Self::WasRefused
            | Self::BeingPlaced(_)
            | Self::Repeat { .. }
            | Self::OutOfStock(_) => StatusCode::CONFLICT,
        }
    }

    /// Whether it asks instead of telling that something did not happen.
    #[must_use]
    pub fn is_question(&self) -> bool {
        matches!(self, Self::Repeat { .. })
    }

    /// Whether there is anything to say.
    #[must_use]
    pub fn is_some(&self) -> bool {
        *self != Self::None
    }

    /// The fields it complains of, each with its fault.
    #[must_use]
    pub fn faults(&self) -> Vec<(String, Fault)> {
        let each = |skus: &[String], fault: &Fault| {
            skus.iter().map(|sku| (format!("quantity[{sku}]"), fault.clone())).collect()
        };
        match self {
            Self::Invalid(errors) => errors.iter().map(|e| (e.field.clone(), Fault::Wrong(e.wrong.clone()))).collect(),
            Self::OutOfStock(skus) => each(skus, &Fault::OutOfStock),
            Self::UnknownSku(skus) => each(skus, &Fault::NotSold),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, body: &str) -> Notice {
        Notice::of_refusal(&Answer {
            status,
            content_type: "application/problem+json",
            location: None,
            body: body.to_owned().into(),
            order: None,
        })
    }

    #[test]
    fn a_stored_refusal_is_understood_by_its_type() {
        let notice = refusal(409, r#"{"type":"/problems/out-of-stock","title":"t","status":409,"skus":["TEA"]}"#);
        assert_eq!(notice, Notice::OutOfStock(vec!["TEA".into()]));
        let order = Uuid::now_v7();
        let body = format!(r#"{{"type":"/problems/repeat","title":"t","order":"{order}","seconds":7}}"#);
        assert_eq!(refusal(409, &body), Notice::Repeat { order: OrderId(order), seconds: 7 });
    }

    #[test]
    fn one_that_is_not_understood_keeps_its_status_and_words() {
        let notice = refusal(402, r#"{"type":"/problems/new","title":"Title","detail":"Detail."}"#);
        assert_eq!(notice, Notice::Refused { status: 402, detail: "Detail.".into() });
        assert_eq!(notice.status(), StatusCode::PAYMENT_REQUIRED);
        assert_eq!(refusal(9, "not json").status(), StatusCode::CONFLICT);
    }
}
