//! The pages of `/try` as data.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::http::StatusCode;
use axum::http::header::REFRESH;
use axum::response::{IntoResponse, Response};
use uuid::Uuid;

use super::class::{Class, Stopper};
use super::play::Played;
use super::stored::Stored;
use crate::guard::decided::Layer;
use crate::order::Status;
use crate::web::pages::{page, retry_after, short};

/// What a visitor is told to wait while another play is under way.
const BUSY_FOR: Duration = Duration::from_secs(2);

/// A button.
pub(super) struct Offer {
    pub(super) class: Class,
    /// The name of the play that it begins.
    pub(super) play: Uuid,
    /// Why it cannot be pressed, if it cannot.
    pub(super) obstacle: Option<&'static str>,
}

impl Offer {
    pub(super) fn of(class: Class, obstacle: Option<&'static str>) -> Self {
        Self { class, play: Uuid::new_v4(), obstacle }
    }
}

/// All there is to try.
#[derive(Template)]
#[template(path = "try.html")]
pub(super) struct TryPage {
    /// What is ordered.
    pub(super) product: Option<String>,
    pub(super) offers: Vec<Offer>,
}

impl TryPage {
    /// The buttons, by what stops the repeat.
    fn groups(&self) -> Vec<(&'static str, Vec<&Offer>)> {
        let layers = Layer::ALL.map(|layer| (layer.name(), Some(layer)));
        let groups = layers.into_iter().chain([("Beside the layers: messages and callbacks", None)]);
        let of = |wanted| {
            let fits = move |offer: &&Offer| match offer.class.stopper() {
                Stopper::Layer(layer) => Some(layer) == wanted,
                Stopper::MessageMark | Stopper::EventRow => wanted.is_none(),
            };
            self.offers.iter().filter(fits).collect()
        };
        groups.map(|(name, layer)| (name, of(layer))).collect()
    }
}

impl IntoResponse for TryPage {
    fn into_response(self) -> Response {
        page(StatusCode::OK, &self)
    }
}

/// What came of a play.
#[derive(Template)]
#[template(path = "tried.html")]
pub(super) struct PlayedPage {
    pub(super) played: Arc<Played>,
    pub(super) again: Offer,
}

impl IntoResponse for PlayedPage {
    fn into_response(self) -> Response {
        page(StatusCode::OK, &self)
    }
}

/// A play is under way.
#[derive(Template)]
#[template(path = "playing.html")]
pub(super) struct PlayingPage {
    pub(super) class: Class,
}

impl IntoResponse for PlayingPage {
    fn into_response(self) -> Response {
        ([(REFRESH, "1")], page(StatusCode::OK, &self)).into_response()
    }
}

/// Another play is under way.
#[derive(Template)]
#[template(path = "busy.html")]
pub(super) struct BusyPage;

impl IntoResponse for BusyPage {
    fn into_response(self) -> Response {
        retry_after(BUSY_FOR, page(StatusCode::SERVICE_UNAVAILABLE, &self))
    }
}

/// How far the order is, in words.
fn status(stored: &Stored) -> &'static str {
    match stored.status {
        Status::Pending => "waiting for its payment",
        Status::Paid => "paid",
        Status::Shipped => "shipped",
        Status::Cancelled => "cancelled",
    }
}
