//! The operations on an order that stands, and the provider's callback.

use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;
use utoipa::openapi::path::{HttpMethod, ParameterIn};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::{ContentBuilder, ObjectBuilder, Ref, RefOr, Required, Schema};

use super::operations::{Described, key, order_id, parameter, replayed, shown, text};
use crate::api::callback::SIGNATURE;
use crate::api::problem::Problem;
use crate::api::view::methods;

/// How to pay. A member that is not named here is an error.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Pay)]
#[allow(dead_code, reason = "only described: reading is done by order::request")]
pub(super) struct PayBody {
    /// Where the money comes from; as the order was to be paid, if it is not there.
    #[schema(schema_with = methods, required = false)]
    payment: String,
    /// With `card`: the provider's name for it.
    #[schema(max_length = 255)]
    payment_method: Option<String>,
}

pub(super) fn cancel_order() -> Described {
    Described {
        path: "/api/orders/{id}/cancel",
        id: "cancelOrder",
        summary: "Call an order off",
        about: "Until it is shipped. Its goods go back into stock, and what was paid goes back to where it came from. An \
                order that is cancelled already is shown as it is.",
        body: Some(body("Nothing, or an empty object.", ObjectBuilder::new(), json!({}))),
        ..changed(&[])
    }
}

pub(super) fn pay_order() -> Described {
    Described {
        path: "/api/orders/{id}/pay",
        id: "payOrder",
        summary: "Pay an order that waits for it",
        about: "With another card after a declined one, or from the balance. While another payment of the order is under \
                way the answer is `request-in-progress`. An order that is paid already is shown as it is, and nothing is \
                charged.",
        body: Some(body("Nothing, or how to pay.", Ref::from_schema_name("Pay"), json!({"payment": "card"}))),
        ..changed(&[Problem::InsufficientFunds, Problem::PaymentDeclined])
    }
}

/// What a wish of the buyer's takes and may answer; `problems`: besides those of each.
fn changed(problems: &'static [Problem]) -> Described {
    const EACH: &[Problem] = &[
        Problem::NotFound,
        Problem::KeyMissing,
        Problem::KeyMalformed,
        Problem::UnsupportedMediaType,
        Problem::TooLarge,
        Problem::Malformed,
        Problem::Invalid,
        Problem::KeyReused,
        Problem::InProgress,
        Problem::IllegalTransition,
    ];
    let order = shown("The order, as it was when this was done.", Ref::from_schema_name("Order"));
    Described {
        method: HttpMethod::Post,
        path: "",
        id: "",
        summary: "",
        about: "",
        parameters: vec![order_id(), key()],
        body: None,
        success: (200, order.header("Idempotent-Replayed", replayed()).build()),
        problems: [EACH, problems].concat(),
        open: false,
    }
}

pub(super) fn ship_order() -> Described {
    Described {
        method: HttpMethod::Post,
        path: "/api/orders/{id}/ship",
        id: "shipOrder",
        summary: "Send an order off",
        about: "For tokens with the role `operator`, whosever the order is. Needs no key: an order that is shipped already is \
                shown as it is.",
        parameters: vec![order_id()],
        body: None,
        success: (200, shown("The order as it is now.", Ref::from_schema_name("Order")).build()),
        problems: vec![Problem::Forbidden, Problem::NotFound, Problem::IllegalTransition],
        open: false,
    }
}

pub(super) fn take_callback() -> Described {
    let signature = parameter(SIGNATURE, ParameterIn::Header, "`t=SECONDS,v1=HEX`, of the body as it is.", text());
    let event = ObjectBuilder::new().description(Some("A Stripe event."));
    Described {
        method: HttpMethod::Post,
        path: "/api/payments/callback",
        id: "takeCallback",
        summary: "The payment provider's word",
        about: "For the provider, known by its signature. Copies and unknown kinds of events are taken and change nothing; \
                one for an order that is not known here is not found, so that it comes again.",
        parameters: vec![signature],
        body: Some(body("The event.", event, json!({"id": "evt_1", "type": "payment_intent.succeeded"}))),
        success: (200, shown("Taken.", Ref::from_schema_name("Received")).build()),
        problems: vec![Problem::SignatureInvalid, Problem::Malformed, Problem::TooLarge, Problem::NotFound],
        open: true,
    }
}

fn body(about: &str, schema: impl Into<RefOr<Schema>>, example: serde_json::Value) -> RequestBody {
    let content = ContentBuilder::new().schema(Some(schema)).example(Some(example)).build();
    RequestBodyBuilder::new()
        .description(Some(about))
        .required(Some(Required::False))
        .content("application/json", content)
        .build()
}
