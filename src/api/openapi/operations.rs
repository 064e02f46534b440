//! The table of operations: what each takes and what it may answer.

use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::path::{HttpMethod, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::{
    ContentBuilder, KnownFormat, ObjectBuilder, Ref, RefOr, Required, Response, ResponseBuilder, Schema, SchemaFormat,
    Type,
};

use super::wishes;
use crate::api::problem::Problem;
use crate::api::view::{methods, words};

/// What to order. A member that is not named here is an error.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewOrder)]
#[allow(dead_code, reason = "only described: reading is done by order::request")]
pub(super) struct NewOrderBody {
    /// What, and how many; the same SKU twice is added up.
    #[schema(min_items = 1, max_items = 50)]
    lines: Vec<NewLineBody>,
    /// Where the money comes from.
    #[schema(schema_with = methods)]
    payment: String,
    /// With `card`: the provider's name for it.
    #[schema(max_length = 255)]
    payment_method: Option<String>,
    /// Your own name for this order, unique for ever in your account.
    #[schema(max_length = 64, pattern = "^[!-~]*$", example = "PO-2026-118")]
    reference: Option<String>,
    /// A note to the shop; a line break counts one.
    #[schema(max_length = 500)]
    note: Option<String>,
}

/// One wanted line.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewOrderLine)]
#[allow(dead_code, reason = "only described: reading is done by order::request")]
pub(super) struct NewLineBody {
    /// From the catalogue.
    #[schema(pattern = "^[A-Za-z0-9._-]{1,40}$", example = "tea-green")]
    sku: String,
    /// As sent and added up.
    #[schema(minimum = 1, maximum = 10_000, example = 2)]
    quantity: u32,
}

/// What is told of one operation.
pub(super) struct Described {
    pub(super) method: HttpMethod,
    pub(super) path: &'static str,
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) about: &'static str,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<RequestBody>,
    pub(super) success: (u16, Response),
    pub(super) problems: Vec<Problem>,
    /// Whether it is for whoever has no bearer token.
    pub(super) open: bool,
}

/// What every operation may answer.
const COMMON: [Problem; 2] = [Problem::Internal, Problem::Unavailable];

impl Described {
    /// Everything it may answer instead of its success.
    pub(super) fn all_problems(&self) -> Vec<Problem> {
        let token = (!self.open).then_some(Problem::Unauthenticated);
        self.problems.iter().copied().chain(COMMON).chain(token).collect()
    }
}

pub(super) fn operations() -> Vec<Described> {
    vec![
        place_order(),
        list_orders(),
        get_order(),
        wishes::cancel_order(),
        wishes::pay_order(),
        wishes::ship_order(),
        list_products(),
        get_account(),
        wishes::take_callback(),
    ]
}

fn place_order() -> Described {
    let location = HeaderBuilder::new().schema(Some(text())).description(Some("Where the order is found."));
    let order = shown("Placed, now or by an earlier request with this key.", Ref::from_schema_name("Order"))
        .header("Location", location.build())
        .header("Idempotent-Replayed", replayed());
    Described {
        method: HttpMethod::Post,
        path: "/api/orders",
        id: "placeOrder",
        summary: "Place an order",
        about: "Prices come from the catalogue. Refusals are definite and kept under the key, see Retries.",
        parameters: vec![key()],
        body: Some(
            RequestBodyBuilder::new()
                .description(Some("At most 64 KiB of UTF-8, not compressed."))
                .required(Some(Required::True))
                .content(
                    "application/json",
                    ContentBuilder::new()
                        .schema(Some(Ref::from_schema_name("NewOrder")))
                        .example(Some(json!({
                            "lines": [{"sku": "tea-green", "quantity": 2}],
                            "payment": "balance",
                            "reference": "PO-2026-118",
                        })))
                        .build(),
                )
                .build(),
        ),
        success: (201, order.build()),
        problems: vec![
            Problem::KeyMissing,
            Problem::KeyMalformed,
            Problem::UnsupportedMediaType,
            Problem::TooLarge,
            Problem::Malformed,
            Problem::Invalid,
            Problem::KeyReused,
            Problem::InProgress,
            Problem::OutOfStock,
            Problem::InsufficientFunds,
            Problem::PaymentDeclined,
            Problem::UnknownSku,
            Problem::ReferenceTaken,
        ],
        open: false,
    }
}

fn list_orders() -> Described {
    let limit =
        ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(100)).default(Some(json!(20)));
    Described {
        method: HttpMethod::Get,
        path: "/api/orders",
        id: "listOrders",
        summary: "List your orders",
        about: "Newest first. Unknown query parameters are ignored.",
        parameters: vec![
            parameter("limit", ParameterIn::Query, "How many at most.", limit),
            parameter("cursor", ParameterIn::Query, "The `next_cursor` of the page before, as it was.", text()),
        ],
        body: None,
        success: (200, shown("One page.", Ref::from_schema_name("OrderList")).build()),
        problems: vec![Problem::Invalid],
        open: false,
    }
}

fn get_order() -> Described {
    Described {
        method: HttpMethod::Get,
        path: "/api/orders/{id}",
        id: "getOrder",
        summary: "Look at one of your orders",
        about: "Another account's order is not found.",
        parameters: vec![order_id()],
        body: None,
        success: (200, shown("The order as it is now.", Ref::from_schema_name("Order")).build()),
        problems: vec![Problem::NotFound],
        open: false,
    }
}

fn list_products() -> Described {
    let products = Ref::from_schema_name("Product").to_array_builder();
    Described {
        method: HttpMethod::Get,
        path: "/api/products",
        id: "listProducts",
        summary: "Look at the catalogue",
        about: "In SKU order.",
        parameters: vec![],
        body: None,
        success: (200, shown("All products.", products).build()),
        problems: vec![],
        open: false,
    }
}

fn get_account() -> Described {
    Described {
        method: HttpMethod::Get,
        path: "/api/account",
        id: "getAccount",
        summary: "Look at your account",
        about: "Opens it, if this is its first use.",
        parameters: vec![],
        body: None,
        success: (200, shown("Balance and coupons.", Ref::from_schema_name("Account")).build()),
        problems: vec![],
        open: false,
    }
}

/// The header that a repeat has and a first answer lacks.
pub(super) fn replayed() -> Header {
    let about = "There when the answer was given before; absent on a first answer.";
    HeaderBuilder::new().schema(Some(words("Always this.", ["true"]))).description(Some(about)).build()
}

/// `{id}` of an order's path.
pub(super) fn order_id() -> Parameter {
    let id = text().format(Some(SchemaFormat::KnownFormat(KnownFormat::Uuid)));
    parameter("id", ParameterIn::Path, "The order's id.", id)
}

/// A string.
pub(super) fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

pub(super) fn parameter(name: &str, place: ParameterIn, about: &str, schema: ObjectBuilder) -> Parameter {
    let required = if place == ParameterIn::Path { Required::True } else { Required::False };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .description(Some(about))
        .schema(Some(schema))
        .build()
}

pub(super) fn key() -> Parameter {
    let schema = text().min_length(Some(1)).max_length(Some(257)).pattern(Some("^[!-~]+$"));
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::True)
        .description(Some(
            "One new key for each thing you want done, the same for its retries. 1 to 255 visible ASCII characters, bare (then \
             without quote, comma, semicolon, backslash) or as a quoted string (RFC 8941); both spellings are one key.",
        ))
        .schema(Some(schema))
        .example(Some(json!("8e03978e-40d5-43dd-bc93-6894a57f9324")))
        .build()
}

pub(super) fn shown(about: &str, schema: impl Into<RefOr<Schema>>) -> ResponseBuilder {
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new().description(about).content("application/json", content)
}
