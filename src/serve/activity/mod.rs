//! `GET /activity`, for operators: what the layers decided in this process, as pictures and in numbers.
//!
//! The page runs no script and loads nothing but the style sheet. It reloads itself only where it was asked to
//! (`?refresh=on`): whoever reads it by a screen reader, or copies from it, must not lose their place.

mod chart;

use askama::Template;
use axum::extract::RawQuery;
use axum::http::header::{
    CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, REFRESH, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use crate::guard::activity::{self, About, Counts, Event, Minute, Snapshot, Who};
use crate::guard::decided::{Decided, Layer};
use crate::web::pages::page;

use chart::Panel;

/// The query that makes the page reload itself.
const REFRESHING: &str = "refresh=on";
/// How often it then does, in seconds.
const REFRESH_EVERY: &str = "10";
/// Texts up to this length are shown whole.
const SHOWN_WHOLE: usize = 12;
/// How much is shown of longer ones: enough to find one's own again, too little to be used.
const SHOWN: usize = 8;

/// Nothing but our style sheet and icon: no script, no form, no frame.
const HEADERS: [(HeaderName, HeaderValue); 4] = [
    (
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
        ),
    ),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
];

/// `GET /activity`.
pub(super) async fn show(RawQuery(query): RawQuery) -> Response {
    let refreshing = query.as_deref() == Some(REFRESHING);
    let page = (HEADERS, page(StatusCode::OK, &ActivityPage::of(activity::snapshot(), refreshing)));
    if refreshing {
        ([(REFRESH, HeaderValue::from_static(REFRESH_EVERY))], page).into_response()
    } else {
        page.into_response()
    }
}

#[derive(Template)]
#[template(path = "activity.html")]
struct ActivityPage {
    since: OffsetDateTime,
    now: OffsetDateTime,
    refreshing: bool,
    panels: Vec<Panel>,
    totals: Vec<Total>,
    minutes: Vec<Row>,
    events: Vec<Told>,
}

/// One decision in numbers.
struct Total {
    decided: Decided,
    hour: u64,
    all: u64,
    /// The first of its layer spans the layer's rows.
    spans: Option<usize>,
}

/// One minute in numbers: what each layer decided, in words.
struct Row {
    at: OffsetDateTime,
    layers: Vec<String>,
}

/// One event in words.
struct Told {
    at: OffsetDateTime,
    decided: Decided,
    operation: &'static str,
    who: String,
    key: String,
}

impl ActivityPage {
    fn of(snapshot: Snapshot, refreshing: bool) -> Self {
        let Snapshot { since, totals, minutes, events } = snapshot;
        let hour = Decided::ALL.map(|decided| minutes.iter().map(|minute| minute.counts[decided.index()]).sum());
        Self {
            since,
            now: OffsetDateTime::now_utc(),
            refreshing,
            panels: Panel::all(&totals, &minutes),
            totals: Decided::ALL.into_iter().map(|decided| Total::of(decided, &hour, &totals)).collect(),
            minutes: minutes.iter().rev().filter(|minute| minute.counts != [0; _]).map(Row::of).collect(),
            events: events.into_iter().map(Told::of).collect(),
        }
    }
}

impl Total {
    fn of(decided: Decided, hour: &Counts, totals: &Counts) -> Self {
        let mut its_layer = of_layer(decided.layer());
        let rows = its_layer.clone().count();
        let spans = (its_layer.next() == Some(decided)).then_some(rows);
        Self { decided, hour: hour[decided.index()], all: totals[decided.index()], spans }
    }
}

impl Row {
    fn of(minute: &Minute) -> Self {
        Self { at: minute.at, layers: Layer::ALL.map(|layer| in_words(&minute.counts, layer)).into() }
    }
}

impl Told {
    fn of(event: Event) -> Self {
        let Event { at, decided, about: About { who, operation, key } } = event;
        let who = match who {
            Who::Subject(subject) => match subject.as_str().split_once(':') {
                Some((kind, name)) => format!("{kind} {}", short(name)),
                None => short(subject.as_str()),
            },
            // By its end: ids of one hour begin alike.
            Who::Account(account) => {
                let id = account.0.simple().to_string();
                format!("account …{}", &id[id.len() - SHOWN..])
            }
            Who::Nobody => "nobody known".to_owned(),
        };
        let key = key.map_or_else(|| "none".to_owned(), |key| short(key.as_str()));
        Self { at, decided, operation, who, key }
    }
}

/// The decisions of one layer.
fn of_layer(layer: Layer) -> impl Iterator<Item = Decided> + Clone {
    Decided::ALL.into_iter().filter(move |decided| decided.layer() == layer)
}

/// What a layer decided: `accepted 2, spent 1`; nothing is `–`.
fn in_words(counts: &Counts, layer: Layer) -> String {
    let told = of_layer(layer).filter(|decided| counts[decided.index()] > 0);
    let told: Vec<_> = told.map(|decided| format!("{} {}", decided.as_str(), counts[decided.index()])).collect();
    if told.is_empty() { "–".to_owned() } else { told.join(", ") }
}

/// A text, or how it begins.
fn short(text: &str) -> String {
    if text.chars().count() <= SHOWN_WHOLE {
        return text.to_owned();
    }
    text.chars().take(SHOWN).chain(['…']).collect()
}

/// `14:05`.
fn clock(at: &OffsetDateTime) -> String {
    at.format(format_description!("[hour]:[minute]")).unwrap_or_default()
}

/// `14:05:59`.
fn second(at: &OffsetDateTime) -> String {
    at.format(format_description!("[hour]:[minute]:[second]")).unwrap_or_default()
}

/// `29 November 2026, 14:05`.
fn day(at: &OffsetDateTime) -> String {
    at.format(format_description!("[day padding:none] [month repr:long] [year], [hour]:[minute]")).unwrap_or_default()
}

/// For `datetime`.
fn rfc3339(at: &OffsetDateTime) -> String {
    at.replace_nanosecond(0).unwrap_or(*at).format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::values::{Key, Subject};
    use uuid::Uuid;

    #[test]
    fn a_long_key_is_shown_by_its_beginning_only() {
        assert_eq!(short("order-17"), "order-17");
        assert_eq!(short("7f3e9a10-0000-4000-8000-000000000000"), "7f3e9a10…");
    }

    #[test]
    fn a_page_says_who_was_stopped_and_lets_no_markup_through() {
        let key = Key::parse("<b>&\"'").unwrap();
        let who = |who| {
            Told::of(Event {
                at: OffsetDateTime::UNIX_EPOCH,
                decided: Decided::Spent,
                about: About { who, operation: "place_order", key: Some(key.clone()) },
            })
        };
        let visitor = Subject::visitor(Uuid::max());
        assert_eq!(who(Who::Subject(visitor)).who, "visitor ffffffff…");
        assert_eq!(who(Who::Subject(Subject::parse("client:shop-7").unwrap())).who, "client shop-7");
        let mut snapshot = activity::snapshot();
        snapshot.events = vec![Event {
            at: OffsetDateTime::UNIX_EPOCH,
            decided: Decided::Spent,
            about: About { who: Who::Nobody, operation: "place_order", key: Some(key) },
        }];
        let html = ActivityPage::of(snapshot, false).render().unwrap();
        assert!(!html.contains("<b>&") && html.contains("&#60;b&#62;"), "{html}");
    }
}
