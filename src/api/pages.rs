//! `/problems/NAME`: the pages that `type` of a problem document points at. For people, hence HTML; no token needed.

use askama::Template;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};

use super::problem::Problem;

#[derive(Template)]
#[template(
    ext = "html",
    source = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<main>
<h1>{{ title }}</h1>
{% if let Some(problem) = problem %}<p>{{ problem.explanation() }}</p>
<dl>
<dt>type</dt><dd>{{ problem.uri() }}</dd>
<dt>status</dt><dd>{{ problem.status() }}</dd>
<dt>retryable</dt><dd>{{ problem.retryable() }}</dd>
</dl>
{% else %}<p>The API has no problem by this name. Those it has:</p>
{% endif %}<ul>
{% for other in Problem::ALL %}<li><a href="{{ other.uri() }}">{{ other.name() }}</a>: {{ other.title() }}</li>
{% endfor %}</ul>
</main>
</html>
"#
)]
struct Page {
    title: &'static str,
    problem: Option<Problem>,
}

/// `GET /problems/{name}`.
pub async fn problem(name: Result<Path<String>, PathRejection>) -> Response {
    let problem = name.ok().and_then(|Path(name)| Problem::parse(&name));
    let (status, title) = match problem {
        Some(problem) => (StatusCode::OK, problem.title()),
        None => (StatusCode::NOT_FOUND, "No such problem"),
    };
    match (Page { title, problem }).render() {
        Ok(page) => (status, Html(page)).into_response(),
        Err(error) => {
            tracing::error!(%error, "a problem page could not be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
