//! `/api/openapi.json`: the description (OpenAPI 3.1), put together from one table of operations, the structs of `view`
//! and the table of problems. The integration tests hold every answer they see against it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Value, json};
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, KnownFormat, ObjectBuilder, Ref, Required, Response, ResponseBuilder, SchemaFormat,
    Type,
};
use utoipa::{OpenApi, ToSchema};

use super::failure::{Failure, FieldProblem, PROBLEM_JSON, ProblemBody};
use super::problem::Problem;
use super::view::{AccountBody, OrderBody, OrderListBody, ProductBody, methods, words};

/// Name of the one way to say who calls.
const BEARER: &str = "bearer";

const ABOUT: &str = "\
Places orders once, however often a request is sent.

**Retries.** Every request that changes something carries an `Idempotency-Key`: one new key, best a UUID, for each \
thing you want done. When no answer came, or one whose `retryable` is true, send *the same request with the same key* \
again, after the seconds of `Retry-After` if there are any, until there is a definite answer. A new key is a new wish: \
never change the key because a request failed. What was done is answered again byte for byte for 24 hours, with \
`Idempotent-Replayed: true`; after that an order that stands is shown as it is then. Definite refusals \
(`out-of-stock`, `insufficient-funds`, `payment-declined`, `unknown-sku`, `reference-taken`, `illegal-transition`) are \
kept under the key like a success: to try again, take a new key. Anything else that is refused leaves the key unused. \
A `reference` of your own is unique for ever and catches even a changed key.

**Same request** means the same content: the order of members, spaces and the spelling of numbers do not matter.

**Errors** are `application/problem+json` (RFC 9457). `type` names the problem and is a page that explains it. When \
several things are wrong, the first of these is answered: 401, 403, 404, 405, a bad key 400, 415, 413, a bad body 400, \
422, what stands under the key. Clients should also be ready for 429 with `Retry-After`, to be handled like 503.

**Amounts** are whole numbers in the minor unit of the currency. **Times** are RFC 3339 in UTC. A member that is \
`null` is the same as none; an unknown member is an error.";

/// `POST /api/orders`, as `order::request` reads it.
#[derive(ToSchema)]
#[schema(as = NewOrder)]
#[allow(dead_code, reason = "only described: reading is done by order::request")]
struct NewOrderBody {
    /// What, and how many; the same SKU twice is added up.
    #[schema(min_items = 1, max_items = 50)]
    lines: Vec<NewLineBody>,
    /// Where the money comes from. `card` only where the shop offers it.
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
#[derive(ToSchema)]
#[schema(as = NewOrderLine)]
#[allow(dead_code, reason = "only described: reading is done by order::request")]
struct NewLineBody {
    /// From the catalogue.
    #[schema(pattern = "^[A-Za-z0-9._-]{1,40}$", example = "tea-green")]
    sku: String,
    /// As sent and added up.
    #[schema(minimum = 1, maximum = 10_000, example = 2)]
    quantity: u32,
}

#[derive(OpenApi)]
#[openapi(components(schemas(
    AccountBody,
    FieldProblem,
    NewOrderBody,
    OrderBody,
    OrderListBody,
    ProblemBody,
    ProductBody
)))]
struct Schemas;

/// What is told of one operation.
struct Described {
    method: HttpMethod,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    about: &'static str,
    parameters: Vec<Parameter>,
    body: Option<RequestBody>,
    success: (u16, Response),
    problems: &'static [Problem],
}

/// What every operation may answer.
const COMMON: [Problem; 3] = [Problem::Unauthenticated, Problem::Internal, Problem::Unavailable];

fn operations() -> Vec<Described> {
    vec![place_order(), list_orders(), get_order(), list_products(), get_account()]
}

fn place_order() -> Described {
    let location = HeaderBuilder::new().schema(Some(text())).description(Some("Where the order is found."));
    let replayed = HeaderBuilder::new()
        .schema(Some(words(["true"])))
        .description(Some("There when the answer was given before; absent on a first answer."));
    let order = shown("Placed, now or by an earlier request with this key.", Ref::from_schema_name("Order"))
        .header("Location", location.build())
        .header("Idempotent-Replayed", replayed.build());
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
        problems: &[
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
        problems: &[Problem::Invalid],
    }
}

fn get_order() -> Described {
    let id = text().format(Some(SchemaFormat::KnownFormat(KnownFormat::Uuid)));
    Described {
        method: HttpMethod::Get,
        path: "/api/orders/{id}",
        id: "getOrder",
        summary: "Look at one of your orders",
        about: "Another account's order is not found.",
        parameters: vec![parameter("id", ParameterIn::Path, "The order's id.", id)],
        body: None,
        success: (200, shown("The order as it is now.", Ref::from_schema_name("Order")).build()),
        problems: &[Problem::NotFound],
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
        problems: &[],
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
        problems: &[],
    }
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn parameter(name: &str, place: ParameterIn, about: &str, schema: ObjectBuilder) -> Parameter {
    let required = if place == ParameterIn::Path { Required::True } else { Required::False };
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .description(Some(about))
        .schema(Some(schema))
        .build()
}

fn key() -> Parameter {
    let schema = text().min_length(Some(1)).max_length(Some(257)).pattern(Some("^[!-~]+$"));
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::True)
        .description(Some(
            "One new key for each order, the same for its retries. 1 to 255 visible ASCII characters, bare (then \
             without quote, comma, semicolon, backslash) or as a quoted string (RFC 8941); both spellings are one key.",
        ))
        .schema(Some(schema))
        .example(Some(json!("8e03978e-40d5-43dd-bc93-6894a57f9324")))
        .build()
}

fn shown(about: &str, schema: impl Into<utoipa::openapi::RefOr<utoipa::openapi::Schema>>) -> ResponseBuilder {
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new().description(about).content("application/json", content)
}

/// All problems of one status are one response: the names in its text, one example each.
fn refusal(problems: &[Problem]) -> Response {
    let about: Vec<_> = problems.iter().map(|p| format!("`{}`: {}", p.name(), p.explanation())).collect();
    let examples = problems.iter().map(|problem| (problem.name(), example(*problem)));
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).examples_from_iter(examples);
    let mut response = ResponseBuilder::new().description(about.join("\n\n")).content(PROBLEM_JSON, content.build());
    for (name, (about, kind)) in headers(problems) {
        let schema = ObjectBuilder::new().schema_type(kind);
        response = response.header(name, HeaderBuilder::new().schema(Some(schema)).description(Some(about)).build());
    }
    response.build()
}

/// The headers that come with these problems.
fn headers(problems: &[Problem]) -> BTreeMap<&'static str, (&'static str, Type)> {
    let mut headers = BTreeMap::new();
    for problem in problems {
        match problem {
            Problem::Unauthenticated => {
                headers.insert("WWW-Authenticate", ("`Bearer`, and what is wrong with the token.", Type::String));
            }
            Problem::InProgress | Problem::Unavailable | Problem::TooManyRequests => {
                headers
                    .insert("Retry-After", ("Seconds to wait before the same request is sent again.", Type::Integer));
            }
            Problem::ReferenceTaken | Problem::PaymentDeclined => {
                headers.insert("Location", ("With member `order`: where that order is found.", Type::String));
            }
            _ => {}
        }
    }
    headers
}

fn example(problem: Problem) -> utoipa::openapi::example::Example {
    let mut failure = Failure::new(problem, problem.explanation());
    "/api/orders".clone_into(&mut failure.body.instance);
    let value = serde_json::to_value(&failure.body).ok();
    utoipa::openapi::example::ExampleBuilder::new().summary(problem.title()).value(value).build()
}

fn operation(described: Described) -> (HttpMethod, &'static str, OperationBuilder) {
    let mut by_status: BTreeMap<u16, Vec<Problem>> = BTreeMap::new();
    for problem in described.problems.iter().chain(&COMMON) {
        by_status.entry(problem.status().as_u16()).or_default().push(*problem);
    }
    let (status, response) = described.success;
    let mut operation = OperationBuilder::new()
        .operation_id(Some(described.id))
        .summary(Some(described.summary))
        .description(Some(described.about))
        .request_body(described.body)
        .response(status.to_string(), response);
    for parameter in described.parameters {
        operation = operation.parameter(parameter);
    }
    for (status, problems) in by_status {
        operation = operation.response(status.to_string(), refusal(&problems));
    }
    (described.method, described.path, operation)
}

/// The description, made once.
pub fn description() -> &'static Value {
    static DESCRIPTION: LazyLock<Value> = LazyLock::new(describe);
    &DESCRIPTION
}

fn describe() -> Value {
    let mut api = Schemas::openapi();
    api.info = InfoBuilder::new().title("oncegate").version(env!("CARGO_PKG_VERSION")).description(Some(ABOUT)).build();
    for (method, path, operation) in operations().into_iter().map(operation) {
        let item = PathItem::new(method, operation);
        match api.paths.paths.get_mut(path) {
            Some(known) => known.merge_operations(item),
            None => {
                api.paths.paths.insert(path.to_owned(), item);
            }
        }
    }
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("JWT")
        .description(Some("A token with the claims `sub` (whose account) and `exp`."))
        .build();
    let components = api.components.get_or_insert_default();
    components.add_security_scheme(BEARER, SecurityScheme::Http(scheme));
    api.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], &str>(BEARER, [])]);
    serde_json::to_value(&api).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths that `router` serves to known callers, read from its source.
    fn routes() -> Vec<&'static str> {
        let source = include_str!("mod.rs").split("let open =").next().unwrap();
        let paths = source.lines().filter_map(|line| line.trim().strip_prefix(".route(\"")?.split('"').next());
        paths.filter(|path| !path.contains('*') && path.trim_end_matches('/') != "/api").collect()
    }

    #[test]
    fn every_route_is_described_and_nothing_else() {
        let mut routes = routes();
        routes.sort_unstable();
        assert!(routes.len() >= 4);
        let described: Vec<_> = description()["paths"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(described, routes);
    }

    #[test]
    fn every_operation_says_what_each_of_its_problems_means() {
        for described in operations() {
            let id = described.id;
            let problems: Vec<_> = described.problems.iter().chain(&COMMON).copied().collect();
            let (_, _, built) = operation(described);
            let built = serde_json::to_value(built.build()).unwrap();
            for problem in problems {
                let response = &built["responses"][problem.status().as_str()];
                let content = &response["content"]["application/problem+json"];
                assert_eq!(content["examples"][problem.name()]["value"]["type"], problem.uri(), "{id}");
                assert!(response["description"].as_str().unwrap().contains(problem.explanation()));
            }
        }
    }

    #[test]
    fn every_schema_that_is_named_is_there() {
        let text = description().to_string();
        let named = text.split("#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap());
        let mut count = 0;
        for name in named {
            assert!(description()["components"]["schemas"].get(name).is_some(), "{name}");
            count += 1;
        }
        assert!(count > 10);
    }

    #[test]
    fn it_is_openapi_3_1_with_the_bearer_scheme_and_the_rule_of_retries() {
        let api = description();
        assert!(api["openapi"].as_str().unwrap().starts_with("3.1"));
        assert_eq!(api["components"]["securitySchemes"]["bearer"]["scheme"], "bearer");
        assert!(api["info"]["description"].as_str().unwrap().contains("same request with the same key"));
        let place = &api["paths"]["/api/orders"]["post"];
        assert_eq!(place["parameters"][0]["required"], true);
        assert!(place["responses"]["409"]["headers"].get("Retry-After").is_some());
        assert!(place["responses"]["201"]["headers"].get("Idempotent-Replayed").is_some());
    }
}
