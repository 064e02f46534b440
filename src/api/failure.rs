//! One occurrence of a [`Problem`], and the document (RFC 9457) that tells it.
//!
//! A handler returns a [`Failure`] without knowing the request's path; [`describe`], the outermost layer of the API, writes
//! the document, because `instance` is that path.

use std::time::Duration;

use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::problem::Problem;
use crate::error::{Earlier, Error};
use crate::order::request::{FieldError, JsonError, Wrong};
use crate::order::values::OrderId;

/// The media type of every error.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// An error, as RFC 9457 has it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// `/problems/NAME`: which problem, and the page that explains it.
    #[serde(rename = "type")]
    pub kind: String,
    /// The problem in a few words that never change.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// What happened this time, for people.
    pub detail: String,
    /// The path that was asked for.
    pub instance: String,
    /// Whether the same request with the same key may succeed later.
    pub retryable: bool,
    /// With `validation-failed` and `unknown-sku`: what is wrong, by field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub errors: Vec<FieldProblem>,
    /// With `out-of-stock` and `unknown-sku`: which.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub skus: Vec<String>,
    /// With `reference-taken` and `payment-declined`: the order it speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Uuid, required = false)]
    pub order: Option<Uuid>,
    /// With `repeat`: how long ago that order was placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub seconds: Option<u64>,
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = FieldProblem)]
pub struct FieldProblem {
    /// JSON Pointer (RFC 6901) into the body, or the name of a query parameter.
    #[schema(example = "/lines/0/quantity")]
    pub field: String,
    /// What is wrong with it, for people.
    #[schema(example = "must be between 1 and 10000")]
    pub message: String,
}

impl From<FieldError> for FieldProblem {
    fn from(error: FieldError) -> Self {
        Self { message: error.wrong.to_string(), field: error.field }
    }
}

/// One occurrence of a problem: an answer that lacks only the path.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The document; `instance` is empty until it is known.
    pub body: Box<ProblemBody>,
    /// Headers that go with it.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl Failure {
    /// This problem, with what is to be said about this occurrence.
    #[must_use]
    pub fn new(problem: Problem, detail: impl Into<String>) -> Self {
        let body = Box::new(ProblemBody {
            kind: problem.uri(),
            title: problem.title(),
            status: problem.status().as_u16(),
            detail: detail.into(),
            instance: String::new(),
            retryable: problem.retryable(),
            errors: Vec::new(),
            skus: Vec::new(),
            order: None,
            seconds: None,
        });
        Self { body, headers: Vec::new() }
    }

    /// Adds a header.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    /// Names the order it speaks of, in the document and as `Location`.
    #[must_use]
    pub fn about(mut self, order: OrderId) -> Self {
        self.body.order = Some(order.0);
        self.with(LOCATION, &super::view::location(order))
    }

    /// No such path, or nothing of this account by this id.
    #[must_use]
    pub fn not_found() -> Self {
        Self::new(Problem::NotFound, "There is nothing here for you by this path.")
    }

    /// The order's state does not allow it.
    #[must_use]
    pub fn illegal() -> Self {
        Self::new(Problem::IllegalTransition, "The order's state does not allow this; nothing was changed.")
    }

    /// The token is missing or no good; says which of the two, never why exactly.
    #[must_use]
    pub fn unauthenticated(detail: &str, challenge: &str) -> Self {
        Self::new(Problem::Unauthenticated, detail).with(WWW_AUTHENTICATE, challenge)
    }

    /// Fields that are wrong.
    #[must_use]
    pub fn invalid(errors: Vec<FieldError>) -> Self {
        let mut failure = Self::new(Problem::Invalid, "The request was not taken; see errors.");
        failure.body.errors = errors.into_iter().map(FieldProblem::from).collect();
        failure
    }

    /// One field or query parameter that is wrong.
    #[must_use]
    pub fn field(field: &str, wrong: Wrong) -> Self {
        Self::invalid(vec![FieldError { field: field.to_owned(), wrong }])
    }

    /// Says what went wrong in a use case. `lease` is the longest that a client is told to wait for work under way.
    /// What is ours to mend is logged here and told to nobody else.
    #[must_use]
    pub fn of(error: Error, lease: Duration) -> Self {
        match error {
            Error::Invalid(errors) => Self::invalid(errors),
            Error::InProgress { lease_left } => {
                let wait = seconds(lease_left).min(lease.as_secs()).max(1);
                Self::new(
                    Problem::InProgress,
                    "The first request with this key, or another payment of the same order, is still being worked on. Send it \
                     again, with the same key, later.",
                )
                .with(RETRY_AFTER, &wait.to_string())
            }
            Error::KeyReused(earlier) => Self::new(Problem::KeyReused, told(&earlier)),
            Error::Illegal => Self::illegal(),
            Error::NoOutcome { .. } => Self::new(
                Problem::Unavailable,
                "The payment provider has not said what became of the payment. Send the same request, with the same key, \
                 again; without it the order is finished all the same.",
            )
            .with(RETRY_AFTER, &seconds(crate::error::RETRY_AFTER).to_string()),
            Error::NotFound => Self::not_found(),
            Error::Unavailable { retry_after, reason } => {
                tracing::warn!(%reason, "answered 503");
                Self::new(
                    Problem::Unavailable,
                    "This could not be finished now. Send the same request, with the same key, again.",
                )
                .with(RETRY_AFTER, &seconds(retry_after).to_string())
            }
            Error::Internal(reason) => Self::internal(&reason),
        }
    }

    /// Logs the reason, and tells nothing of it.
    #[must_use]
    pub fn internal(reason: &str) -> Self {
        tracing::error!(%reason, "answered 500");
        Self::new(Problem::Internal, "An unexpected error; it has been logged.")
    }

    /// The document as bytes.
    #[must_use]
    pub fn document(&self) -> Vec<u8> {
        serde_json::to_vec(&self.body).expect("strings and numbers always serialise")
    }
}

impl From<JsonError> for Failure {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Malformed(what) => Self::new(Problem::Malformed, format!("The body is not valid JSON: {what}.")),
            JsonError::Invalid(errors) => Self::invalid(errors),
        }
    }
}

/// Whole seconds, rounded up: who waits that long has waited long enough. At least 1.
fn seconds(time: Duration) -> u64 {
    (time.as_secs() + u64::from(time.subsec_nanos() > 0)).max(1)
}

fn told(earlier: &Earlier) -> String {
    let became = match earlier {
        Earlier::Processing => "is still being worked on".to_owned(),
        Earlier::Order(id) => format!("became the order {id}"),
        Earlier::Refused => "was refused, nothing was ordered".to_owned(),
    };
    format!("This key was used for a request with other content, which {became}. Nothing was done this time.")
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = axum::http::StatusCode::from_u16(self.body.status).unwrap_or_default();
        let mut response = status.into_response();
        response.headers_mut().extend(self.headers.iter().cloned());
        response.extensions_mut().insert(self);
        response
    }
}

/// The outermost layer: writes the document of whatever failed inside, with the request's path as `instance`.
pub async fn describe(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    let Some(mut failure) = response.extensions_mut().remove::<Failure>() else { return response };
    failure.body.instance = path;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    *response.body_mut() = failure.document().into();
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn wait(failure: &Failure) -> Option<&str> {
        let (_, value) = failure.headers.iter().find(|(name, _)| name == RETRY_AFTER)?;
        value.to_str().ok()
    }

    fn in_progress(left: Duration, lease: Duration) -> Failure {
        Failure::of(Error::InProgress { lease_left: left }, lease)
    }

    #[test]
    fn retry_after_is_the_rest_of_the_lease_rounded_up_and_never_zero_nor_more_than_the_lease() {
        let second = Duration::from_secs(1);
        for (left, lease, told) in [
            (Duration::ZERO, LEASE, "1"),
            (Duration::from_nanos(1), LEASE, "1"),
            (second, LEASE, "1"),
            (Duration::from_millis(1001), LEASE, "2"),
            (Duration::from_millis(29_001), LEASE, "30"),
            (LEASE, LEASE, "30"),
            (Duration::from_secs(31), LEASE, "30"),
            (Duration::from_millis(1400), Duration::from_millis(1500), "1"),
        ] {
            let failure = in_progress(left, lease);
            assert_eq!(wait(&failure), Some(told), "{left:?} of {lease:?}");
            assert_eq!(failure.body.status, 409);
        }
    }

    #[test]
    fn an_internal_reason_is_told_to_nobody() {
        let failure = Failure::of(Error::Internal("relation \"orders\" does not exist".into()), LEASE);
        assert_eq!(failure.body.status, 500);
        assert!(!String::from_utf8(failure.document()).unwrap().contains("relation"));
    }

    #[test]
    fn an_unavailable_dependency_is_503_with_retry_after_and_without_the_reason() {
        let retry_after = Duration::from_millis(1500);
        let failure = Failure::of(Error::Unavailable { retry_after, reason: "pool timed out".into() }, LEASE);
        assert_eq!((failure.body.status, wait(&failure)), (503, Some("2")));
        assert!(failure.body.retryable);
        assert!(!String::from_utf8(failure.document()).unwrap().contains("pool"));
    }

    #[test]
    fn members_that_say_nothing_are_left_out_of_the_document() {
        let document: serde_json::Value = serde_json::from_slice(&Failure::not_found().document()).unwrap();
        let members: Vec<_> = document.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(members, ["detail", "instance", "retryable", "status", "title", "type"]);
    }

    #[test]
    fn each_wrong_field_is_named_with_its_message() {
        let failure = Failure::field("/lines/0/quantity", Wrong::Range { min: 1, max: 10_000 });
        assert_eq!(failure.body.status, 422);
        assert_eq!(
            failure.body.errors,
            [FieldProblem { field: "/lines/0/quantity".into(), message: "must be between 1 and 10000".into() }]
        );
    }
}
