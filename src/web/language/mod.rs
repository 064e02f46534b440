//! In which language a visitor reads the pages: what the switch on the page was set to, else what the browser asks for,
//! else English.
//!
//! The language belongs to the request, as its tracing span does: it is set around the handlers and asked for where a text
//! becomes letters ([`texts`]), so that nobody in between passes it on. Deliberately absent: the API and what is stored,
//! which are the same for everybody.

pub mod choice;
#[allow(missing_docs, clippy::missing_errors_doc, reason = "shaped by the macro of askama; none of them fails")]
pub mod filters;
pub mod texts;

use axum::extract::{Request, State};
use axum::http::header::{REFERER, SET_COOKIE};
use axum::http::{HeaderMap, Method, Uri};
use axum::middleware::Next;
use axum::response::{AppendHeaders, IntoResponse, Redirect, Response};
use cookie::time::Duration;
use cookie::{Cookie, SameSite};

use crate::app::App;

/// The cookie that the switch sets.
const COOKIE: &str = "oncegate_language";
/// How long the switch is remembered.
const REMEMBERED: Duration = Duration::days(365);
/// The query parameter of the switch.
const SWITCH: &str = "lang=";
/// How the switch begins: browsers put a query behind the path of the page they show.
const HERE: &str = "?";
/// The same on a page that answered a POST and cannot be asked for again.
const ELSEWHERE: &str = "/orders/new?";

/// A language that the pages are written in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// English.
    #[default]
    English,
    /// Chinese, in simplified characters.
    Chinese,
}

impl Language {
    /// All, in the order of the switch.
    pub const ALL: [Self; 2] = [Self::English, Self::Chinese];

    /// Its tag (BCP 47), for `lang`, `Content-Language`, the switch and its cookie.
    #[must_use]
    pub fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Chinese => "zh-Hans",
        }
    }

    /// What it calls itself.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::English => "English",
            Self::Chinese => "中文",
        }
    }
}

/// Who the page under way is written for.
#[derive(Clone, Debug, Default)]
struct Visit {
    language: Language,
    /// How the switch begins.
    switch: &'static str,
}

tokio::task_local! {
    static VISIT: Visit;
}

/// The language of the page under way; English outside of a request.
#[must_use]
pub fn current() -> Language {
    VISIT.try_with(|visit| visit.language).unwrap_or_default()
}

/// The other languages, each with the address that switches to it and comes back.
#[must_use]
pub fn others() -> Vec<(Language, String)> {
    let begin = VISIT.try_with(|visit| visit.switch).unwrap_or(ELSEWHERE);
    let others = Language::ALL.into_iter().filter(|language| *language != current());
    others.map(|language| (language, format!("{begin}{SWITCH}{}", language.tag()))).collect()
}

/// Does something as if for a visitor of this language.
#[cfg(test)]
pub fn speaking<T>(language: Language, work: impl FnOnce() -> T) -> T {
    VISIT.sync_scope(Visit { language, switch: ELSEWHERE }, work)
}

/// Sets the language around everything that writes pages, and obeys the switch.
pub async fn speak(State(app): State<App>, request: Request, next: Next) -> Response {
    let (uri, headers) = (request.uri(), request.headers());
    let reading = matches!(*request.method(), Method::GET | Method::HEAD);
    if let Some(language) = asked(uri).filter(|_| reading) {
        return turn(language, &back(uri, headers), app.config.secure_cookies());
    }
    let language = remembered(headers).or_else(|| choice::preferred(headers)).unwrap_or_default();
    let switch = if reading { HERE } else { ELSEWHERE };
    VISIT.scope(Visit { language, switch }, next.run(request)).await
}

/// Back to where the switch was, in the other language.
fn turn(language: Language, back: &str, secure: bool) -> Response {
    let cookie = Cookie::build((COOKIE, language.tag())).path("/").max_age(REMEMBERED);
    let cookie = cookie.same_site(SameSite::Lax).http_only(true).secure(secure);
    (AppendHeaders([(SET_COOKIE, cookie.to_string())]), Redirect::to(back)).into_response()
}

/// What the switch in this address says.
fn asked(uri: &Uri) -> Option<Language> {
    choice::parse(pairs(uri).find_map(|pair| pair.strip_prefix(SWITCH))?)
}

/// The page that the switch was on: this path, with the query of the page the browser comes from if that is the same. It
/// begins with exactly one slash: with two, or one that leans the other way, browsers would take what follows for the name
/// of another host.
fn back(uri: &Uri, headers: &HeaderMap) -> String {
    let from = headers.get(REFERER).and_then(|from| from.to_str().ok()?.parse::<Uri>().ok());
    let from = from.filter(|from| from.path() == uri.path());
    let query: Vec<_> = pairs(from.as_ref().unwrap_or(uri)).filter(|pair| !pair.starts_with(SWITCH)).collect();
    let path = format!("/{}", uri.path().trim_start_matches(['/', '\\']));
    if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
}

fn pairs(uri: &Uri) -> impl Iterator<Item = &str> {
    uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty())
}

/// What the switch was set to.
fn remembered(headers: &HeaderMap) -> Option<Language> {
    let texts = headers.get_all(axum::http::header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let cookies = texts.flat_map(Cookie::split_parse).flatten();
    cookies.filter(|cookie| cookie.name() == COOKIE).find_map(|cookie| choice::parse(cookie.value()))
}

#[cfg(test)]
mod tests;
