//! The answer that is stored under a key and replayed byte for byte.
//!
//! It is made by [`render`] while the order is being settled (and by [`conclude`](super::conclude) when something happens to
//! it later), inside the storage adapter's transaction; hence a plain function without I/O, handed down as a pointer. `web` reads the same answers: it redirects where `order` is set, and
//! tells a refusal by the document's `type`.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;

use super::failure::{Failure, FieldProblem, PROBLEM_JSON};
use super::problem::Problem;
use super::view::{OrderBody, location};
use crate::app::Reply;
use crate::order::Order;
use crate::order::decide::{Decision, Refusal};
use crate::order::values::{OrderId, Sku};
use crate::store::Answer;

/// Says that the answer was given before.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// `instance` of a stored refusal: it is told to whoever repeats the request.
pub(super) const ORDERS: &str = "/api/orders";

/// Makes the stored answer of a decision; `order` is the standing order of [`Decision::Stands`], as it is now.
#[must_use]
pub fn render(decision: &Decision, order: Option<&Order>) -> Answer {
    match (decision, order) {
        (Decision::Placed(order), _) | (Decision::Stands { same: true, .. }, Some(order)) => placed(order),
        (Decision::Refused(refusal), _) => refused(refusal),
        (Decision::Stands { order, same: false }, _) => refusal(
            Failure::of(
                crate::error::Error::KeyReused(crate::error::Earlier::Order(*order)),
                std::time::Duration::ZERO,
            ),
            ORDERS,
        ),
        (Decision::Stands { order, same: true }, None) => {
            refusal(Failure::internal(&format!("order {order} stands, but was not handed over to be shown")), ORDERS)
        }
        (Decision::Invalid(errors), _) => refusal(Failure::invalid(errors.clone()), ORDERS),
    }
}

/// The order under its own address, for whoever placed it.
pub(super) fn placed(order: &Order) -> Answer {
    Answer { status: StatusCode::CREATED.as_u16(), location: Some(location(order.id)), ..shown(order) }
}

/// The order as it is now.
pub(super) fn shown(order: &Order) -> Answer {
    Answer {
        status: StatusCode::OK.as_u16(),
        content_type: "application/json",
        location: None,
        body: serde_json::to_vec(&OrderBody::of(order)).expect("strings and numbers always serialise").into(),
        order: Some(order.id),
    }
}

fn refused(why: &Refusal) -> Answer {
    let failure = match why {
        Refusal::OutOfStock(skus) => {
            let mut failure = Failure::new(Problem::OutOfStock, format!("There is not enough of {}.", list(skus)));
            failure.body.skus = names(skus);
            failure
        }
        Refusal::InsufficientFunds => {
            Failure::new(Problem::InsufficientFunds, "The account's balance is below the order's total.")
        }
        Refusal::UnknownSku(skus) => {
            let detail = format!("The catalogue does not have {}.", list(skus));
            let mut failure = Failure::new(Problem::UnknownSku, detail.clone());
            failure.body.errors = vec![FieldProblem { field: "/lines".to_owned(), message: detail }];
            failure.body.skus = names(skus);
            failure
        }
        Refusal::ReferenceTaken(order) => {
            let detail = format!("Your reference names the order {order} already; nothing new was ordered.");
            Failure::new(Problem::ReferenceTaken, detail).about(*order)
        }
        Refusal::Repeat { order, seconds } => {
            let detail = format!("You ordered exactly this {seconds} seconds ago; nothing new was ordered.");
            let mut failure = Failure::new(Problem::Repeat, detail).about(*order);
            failure.body.seconds = Some(*seconds);
            failure
        }
    };
    refusal(failure, ORDERS)
}

/// A definite refusal, to be stored; `instance` is the path that was asked for, because whoever repeats the request is told it.
pub(super) fn refusal(mut failure: Failure, instance: &str) -> Answer {
    instance.clone_into(&mut failure.body.instance);
    Answer {
        status: failure.body.status,
        content_type: PROBLEM_JSON,
        location: failure.body.order.map(|id| location(OrderId(id))),
        body: failure.document().into(),
        order: None,
    }
}

fn names(skus: &[Sku]) -> Vec<String> {
    skus.iter().map(|sku| sku.as_str().to_owned()).collect()
}

fn list(skus: &[Sku]) -> String {
    names(skus).join(", ")
}

/// Gives a stored answer, as it was stored.
///
/// # Errors
/// `internal`, when what was stored cannot be sent.
pub fn give(reply: Reply) -> Result<Response, Failure> {
    let Answer { status, content_type, location, body, .. } = reply.answer;
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).map_err(|e| Failure::internal(&e.to_string()))?;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Some(location) = location {
        let value = HeaderValue::try_from(location).map_err(|e| Failure::internal(&e.to_string()))?;
        headers.insert(LOCATION, value);
    }
    if reply.replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use time::macros::datetime;
    use uuid::uuid;

    use super::*;
    use crate::order::request::{FieldError, Wrong};
    use crate::order::values::{AccountId, Currency, Fingerprint, Key, Note, Quantity, Reference};
    use crate::order::{Line, Method, PaymentStatus, Status};

    const ID: OrderId = OrderId(uuid!("0198c0de-0000-7000-8000-000000000001"));
    const WHERE: &str = "/api/orders/0198c0de-0000-7000-8000-000000000001";

    fn order() -> Order {
        Order {
            id: ID,
            account: AccountId(uuid!("0198c0de-0000-7000-8000-00000000000a")),
            key: Key::parse("k").unwrap(),
            fingerprint: Fingerprint::stored("1:00"),
            status: Status::Paid,
            lines: vec![Line {
                sku: Sku::parse("tea").unwrap(),
                name: "Tea \"green\"".into(),
                quantity: Quantity::new(2).unwrap(),
                unit_price: 1500,
            }],
            total: 3000,
            currency: Currency::parse("EUR").unwrap(),
            method: Method::Balance,
            payment: PaymentStatus::Captured,
            reference: Reference::parse("PO-1"),
            note: Note::parse("ring\ntwice"),
            coupon: None,
            created_at: datetime!(2026-11-29 17:47:03.25 UTC),
        }
    }

    fn json_of(answer: &Answer) -> Value {
        serde_json::from_slice(&answer.body).unwrap()
    }

    #[test]
    fn a_placed_order_is_shown_member_for_member_in_the_order_of_the_contract() {
        let answer = render(&Decision::Placed(order()), None);
        assert_eq!((answer.status, answer.content_type), (201, "application/json"));
        assert_eq!((answer.location.as_deref(), answer.order), (Some(WHERE), Some(ID)));
        let shown = concat!(
            r#"{"id":"0198c0de-0000-7000-8000-000000000001","status":"paid","#,
            r#""lines":[{"sku":"tea","name":"Tea \"green\"","quantity":2,"unit_price":1500}],"#,
            r#""total":3000,"currency":"EUR","payment":{"method":"balance","status":"captured"},"#,
            r#""reference":"PO-1","note":"ring\ntwice","coupon":null,"created_at":"2026-11-29T17:47:03.250Z"}"#
        );
        assert_eq!(std::str::from_utf8(&answer.body).unwrap(), shown);
    }

    #[test]
    fn an_order_that_stands_is_shown_as_it_is_now() {
        let now = Order { status: Status::Cancelled, coupon: Some("C-1".into()), ..order() };
        let answer = render(&Decision::Stands { order: ID, same: true }, Some(&now));
        assert_eq!((answer.status, answer.location.as_deref()), (201, Some(WHERE)));
        assert_eq!((&json_of(&answer)["status"], &json_of(&answer)["coupon"]), (&json!("cancelled"), &json!("C-1")));
    }

    #[test]
    fn each_refusal_has_its_status_its_name_and_what_it_speaks_of() {
        let skus = || vec![Sku::parse("tea").unwrap(), Sku::parse("cup").unwrap()];
        let speaks_of_order = (Some(WHERE), json!(ID.to_string()));
        let speaks_of_none = (None, Value::Null);
        for (refusal, status, name, (location, order)) in [
            (Refusal::OutOfStock(skus()), 409, "out-of-stock", speaks_of_none.clone()),
            (Refusal::InsufficientFunds, 402, "insufficient-funds", speaks_of_none.clone()),
            (Refusal::UnknownSku(skus()), 422, "unknown-sku", speaks_of_none.clone()),
            (Refusal::ReferenceTaken(ID), 409, "reference-taken", speaks_of_order.clone()),
            (Refusal::Repeat { order: ID, seconds: 9 }, 409, "repeat", speaks_of_order.clone()),
        ] {
            let answer = render(&Decision::Refused(refusal), None);
            let document = json_of(&answer);
            assert_eq!((answer.status, answer.content_type), (status, "application/problem+json"), "{name}");
            assert_eq!(document["type"], format!("/problems/{name}"));
            assert_eq!((&document["status"], &document["instance"]), (&json!(status), &json!("/api/orders")), "{name}");
            assert_eq!(document["retryable"], false, "{name}");
            assert_eq!((answer.location.as_deref(), document["order"].clone()), (location, order), "{name}");
            assert_eq!(answer.order, None, "{name}");
        }
    }

    #[test]
    fn the_skus_that_are_short_or_unknown_are_named() {
        let skus = || vec![Sku::parse("tea").unwrap(), Sku::parse("cup").unwrap()];
        let short = json_of(&render(&Decision::Refused(Refusal::OutOfStock(skus())), None));
        assert_eq!(short["skus"], json!(["tea", "cup"]));
        let unknown = json_of(&render(&Decision::Refused(Refusal::UnknownSku(skus())), None));
        assert_eq!(unknown["skus"], json!(["tea", "cup"]));
        assert_eq!(unknown["errors"][0]["field"], "/lines");
    }

    #[test]
    fn a_repeat_says_how_long_ago() {
        let answer = render(&Decision::Refused(Refusal::Repeat { order: ID, seconds: 9 }), None);
        assert_eq!(json_of(&answer)["seconds"], 9);
    }

    #[test]
    fn what_is_invalid_in_the_catalogue_is_told_by_field() {
        let wrong = FieldError { field: "/lines".into(), wrong: Wrong::MixedCurrency };
        let answer = render(&Decision::Invalid(vec![wrong]), None);
        assert_eq!((answer.status, &json_of(&answer)["errors"][0]["field"]), (422, &json!("/lines")));
    }

    #[test]
    fn an_order_that_stands_with_other_content_is_a_reused_key() {
        let answer = render(&Decision::Stands { order: ID, same: false }, Some(&order()));
        assert_eq!((answer.status, &json_of(&answer)["type"]), (422, &json!("/problems/idempotency-key-reused")));
    }

    #[test]
    fn a_stored_answer_is_given_as_it_is_and_only_a_replay_says_so() {
        for replayed in [false, true] {
            let stored = render(&Decision::Refused(Refusal::ReferenceTaken(ID)), None);
            let response = give(Reply { answer: stored, replayed }).unwrap();
            assert_eq!(response.status(), 409);
            assert_eq!(response.headers()[LOCATION], WHERE);
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
            assert_eq!(response.headers().get(REPLAYED).is_some_and(|v| v == "true"), replayed);
        }
    }
}
