//! `/api/openapi.json`: the description (OpenAPI 3.1), put together from one table of operations, the structs of `view`
//! and the table of problems. The integration tests hold every answer they see against it.

mod operations;
mod wishes;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;
use utoipa::OpenApi;
use utoipa::openapi::example::{Example, ExampleBuilder};
use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::path::{HttpMethod, OperationBuilder, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, InfoBuilder, ObjectBuilder, Ref, Response, ResponseBuilder, Type};

use super::callback::ReceivedBody;
use super::failure::{Failure, FieldProblem, PROBLEM_JSON, ProblemBody};
use super::problem::Problem;
use super::view::{AccountBody, OrderBody, OrderListBody, ProductBody};
use operations::{Described, NewOrderBody, operations, replayed};
use wishes::PayBody;

/// Name of the one way to say who calls.
const BEARER: &str = "bearer";

const ABOUT: &str = "\
Places orders once, however often a request is sent.

**Retries.** Every request that changes something carries an `Idempotency-Key`: one new key, best a UUID, for each \
thing you want done. When no answer came, or one whose `retryable` is true, send *the same request with the same key* \
again, after the seconds of `Retry-After` if there are any, until there is a definite answer. A new key is a new wish: \
never change the key because a request failed. What was done is answered again byte for byte, with \
`Idempotent-Replayed: true`, for 24 hours (or what the shop has set); after that an order that stands is shown as it is then. Definite refusals \
(`out-of-stock`, `insufficient-funds`, `payment-declined`, `unknown-sku`, `reference-taken`, `illegal-transition`) are \
kept under the key like a success: to try again, take a new key. Anything else that is refused leaves the key unused. \
A `reference` of your own is unique for ever and catches even a changed key.

**Same request** means the same content: the order of members, spaces and the spelling of numbers do not matter.

**Errors** are `application/problem+json` (RFC 9457). `type` names the problem and is a page that explains it. When \
several things are wrong, the first of these is answered: 401, 403, 404, 405, a bad key 400, 415, 413, a bad body 400, \
422, what stands under the key. Clients should also be ready for 429 with `Retry-After`, to be handled like 503.

**Amounts** are whole numbers in the minor unit of the currency. **Times** are RFC 3339 in UTC. A member that is \
`null` is the same as none; an unknown member is an error.";

#[derive(OpenApi)]
#[openapi(components(schemas(
    AccountBody,
    FieldProblem,
    NewOrderBody,
    OrderBody,
    OrderListBody,
    PayBody,
    ProblemBody,
    ProductBody,
    ReceivedBody
)))]
struct Schemas;

/// All problems of one status are one response: the names in its text, one example each.
fn refusal(problems: &[Problem]) -> Response {
    let about: Vec<_> = problems.iter().map(|p| format!("`{}`: {}", p.name(), p.explanation())).collect();
    let examples = problems.iter().map(|problem| (problem.name(), example(*problem)));
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).examples_from_iter(examples);
    let mut response = ResponseBuilder::new().description(about.join("\n\n")).content(PROBLEM_JSON, content.build());
    for (name, header) in headers(problems) {
        response = response.header(name, header);
    }
    response.build()
}

/// The headers that come with these problems.
fn headers(problems: &[Problem]) -> BTreeMap<&'static str, Header> {
    let header = |kind, about| {
        let schema = ObjectBuilder::new().schema_type(kind);
        HeaderBuilder::new().schema(Some(schema)).description(Some(about)).build()
    };
    let mut headers = BTreeMap::new();
    for problem in problems {
        match problem {
            Problem::Unauthenticated => {
                let about = "`Bearer`, and what is wrong with the token.";
                headers.insert("WWW-Authenticate", header(Type::String, about));
            }
            Problem::InProgress | Problem::Unavailable | Problem::TooManyRequests => {
                let about = "Seconds to wait before the same request is sent again.";
                headers.insert("Retry-After", header(Type::Integer, about));
            }
            Problem::ReferenceTaken | Problem::PaymentDeclined => {
                headers.insert("Location", header(Type::String, "With member `order`: where that order is found."));
            }
            _ => {}
        }
        if problem.kept() {
            headers.insert("Idempotent-Replayed", replayed());
        }
    }
    headers
}

fn example(problem: Problem) -> Example {
    let mut failure = Failure::new(problem, problem.explanation());
    "/api/orders".clone_into(&mut failure.body.instance);
    let value = serde_json::to_value(&failure.body).ok();
    ExampleBuilder::new().summary(problem.title()).value(value).build()
}

fn operation(described: Described) -> (HttpMethod, &'static str, OperationBuilder) {
    let mut by_status: BTreeMap<u16, Vec<Problem>> = BTreeMap::new();
    for problem in described.all_problems() {
        by_status.entry(problem.status().as_u16()).or_default().push(problem);
    }
    let (status, response) = described.success;
    let mut operation = OperationBuilder::new()
        .operation_id(Some(described.id))
        .summary(Some(described.summary))
        .description(Some(described.about))
        .request_body(described.body)
        .response(status.to_string(), response);
    if described.open {
        operation = operation.security(SecurityRequirement::default());
    }
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
        let source = include_str!("../mod.rs").split("fn faced").next().unwrap();
        let paths = source.lines().filter_map(|line| line.trim().strip_prefix(".route(\"")?.split('"').next());
        paths.filter(|path| path.starts_with("/api/")).collect()
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
            let problems = described.all_problems();
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
