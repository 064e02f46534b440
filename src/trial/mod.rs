//! `/try`: plays every class of retry against the running service, and shows which layer stopped it and what is stored.
//!
//! Nothing is simulated: a play sends real requests to this service's own listener, as a browser or an API client of
//! its own (`sender`), so everything on the way is what everybody meets. A play touches only what belongs to the
//! account that it was given for itself, and orders one piece.
//!
//! The room stands above the faces, for it uses them; nothing that serves buyers knows of it. One play at a time in a
//! process (`plays`): nobody can make the service busy with itself. Deliberately absent: anything that a visitor could
//! choose but the class, and JavaScript.

mod class;
mod page;
mod play;
mod plays;
mod scenes;
mod sender;
mod stored;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use secrecy::ExposeSecret;
use tokio::time::timeout;
use uuid::Uuid;

use crate::api::bearer;
use crate::app::App;
use crate::config::JwtKey;
use crate::error::Result;
use crate::order::Product;
use crate::web::pages::Message;
use crate::web::{dress, origin};
use crate::worker::Again;

use class::{Class, Sender};
use page::{BusyPage, Offer, PlayedPage, PlayingPage, TryPage};
use play::{Played, play};
use plays::{Begin, Found, Plays};
use sender::{Broken, Browser, Client};

/// The largest body that is read: a button's form has one short field.
const BODY_LIMIT: usize = 1024;
/// How long the page of a play waits for its end, before it says that it is under way.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a play may keep others from playing.
const PLAY_WITHIN: Duration = Duration::from_secs(60);
/// How long one of a play's requests may take beyond the service's own deadline.
const SLACK: Duration = Duration::from_secs(5);
/// How long the token of a play's client is good.
const TOKEN_TTL: Duration = Duration::from_secs(10 * 60);

/// What plays need.
#[derive(Clone)]
pub(crate) struct Trial {
    app: App,
    /// Where this service listens.
    at: SocketAddr,
    queue: Again,
    plays: Arc<Plays>,
}

/// The pages of `/try`, for a service that listens there.
pub fn router(app: App, listening: SocketAddr, queue: Again) -> Router {
    let trial = Trial { app: app.clone(), at: sender::reach(listening), queue, plays: Arc::new(Plays::new()) };
    Router::new()
        .route("/try", get(show))
        .route("/try/{class}", post(press))
        .route("/try/plays/{id}", get(result))
        .method_not_allowed_fallback(|| async { Message::MethodNotAllowed })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(from_fn_with_state(app, origin::check))
        .layer(from_fn(dress))
        .with_state(trial)
}

/// `GET /try`.
async fn show(State(trial): State<Trial>) -> std::result::Result<TryPage, Message> {
    let product = trial.product().await?;
    let offers = Class::ALL.map(|class| Offer::of(class, trial.obstacle(class, product.as_ref())));
    Ok(TryPage { product: product.map(|product| product.name), offers: offers.into() })
}

/// `POST /try/{class}`: plays it, unless this very press has been played.
async fn press(
    State(trial): State<Trial>,
    Path(word): Path<String>,
    body: Bytes,
) -> std::result::Result<Response, Message> {
    let class = Class::parse(&word).ok_or(Message::NotFound)?;
    let named = form_urlencoded::parse(&body).find(|(name, _)| name == "play");
    let id = named.and_then(|(_, id)| Uuid::try_parse(&id).ok()).unwrap_or_else(Uuid::new_v4);
    let product = trial.product().await?;
    if trial.obstacle(class, product.as_ref()).is_some() {
        return Ok(Redirect::to("/try").into_response()); // where it says why not
    }
    match trial.plays.begin(id, class) {
        Begin::Yours(turn) => {
            let playing = trial.clone();
            // In a task of its own: a visitor who reloads finds what came of it.
            let done = trial.app.spawn(async move {
                let played = timeout(PLAY_WITHIN, play(&playing, class)).await;
                turn.end(played.unwrap_or_else(|_| Played::cut_short(class, "it took too long".to_owned())));
            });
            let _ = done.await;
        }
        Begin::Known => {}
        Begin::Busy => return Ok(BusyPage.into_response()),
    }
    Ok(Redirect::to(&format!("/try/plays/{id}")).into_response())
}

/// `GET /try/plays/{id}`.
async fn result(State(trial): State<Trial>, Path(id): Path<String>) -> std::result::Result<Response, Message> {
    let id = Uuid::try_parse(&id).map_err(|_| Message::NotFound)?;
    match trial.plays.find(id, PATIENCE).await {
        Found::Over(played) => Ok(PlayedPage { again: Offer::of(played.class, None), played }.into_response()),
        Found::UnderWay(class) => Ok(PlayingPage { class }.into_response()),
        Found::Nothing => Err(Message::NotFound),
    }
}

impl Trial {
    /// What is ordered: of what a fresh account can pay, that of which there is most.
    async fn product(&self) -> Result<Option<Product>> {
        let catalogue = self.app.catalogue().await?;
        let payable = catalogue.iter().filter(|product| product.unit_price <= self.app.config.opening_balance);
        Ok(payable.filter(|product| product.stock > 0).max_by_key(|product| product.stock).cloned())
    }

    /// Its SKU.
    async fn goods(&self) -> std::result::Result<Option<String>, Broken> {
        let product = self.product().await.map_err(|error| Broken::Otherwise(error.to_string()))?;
        Ok(product.map(|product| product.sku.to_string()))
    }

    /// Why a class cannot be played here, if it cannot.
    fn obstacle(&self, class: Class, product: Option<&Product>) -> Option<&'static str> {
        let config = &self.app.config;
        let cannot_sign = matches!(config.jwt, JwtKey::PublicPem(_));
        match class.sender() {
            _ if product.is_none() => Some(
                "There is nothing in stock that a fresh account could pay: fill the stock, or set ONCEGATE_OPENING_BALANCE.",
            ),
            Sender::Client | Sender::CardClient if cannot_sign => {
                Some("It needs a bearer token, and this service can only verify them: ONCEGATE_JWT_PUBLIC_KEY is set.")
            }
            Sender::CardClient if config.gateway.is_none() => Some(
                "No payment provider is set (ONCEGATE_GATEWAY_URL and the other two): nobody would call back. “oncegate gateway” stands in for one.",
            ),
            _ => None,
        }
    }

    fn http(&self) -> std::result::Result<reqwest::Client, Broken> {
        let config = &self.app.config;
        sender::http(config.work_deadline() + config.api_wait.max(config.form_wait) + SLACK)
    }

    /// A browser that was never here.
    fn browser(&self) -> std::result::Result<Browser, Broken> {
        Ok(Browser::new(self.http()?, self.at))
    }

    /// A client that was never here.
    fn client(&self) -> std::result::Result<Client, Broken> {
        let unable = || Broken::Otherwise("this service cannot sign bearer tokens".to_owned());
        let JwtKey::Secret(secret) = &self.app.config.jwt else { return Err(unable()) };
        let token = bearer::issue(secret.expose_secret(), &play::fresh_name(), None, TOKEN_TTL);
        Ok(Client::new(self.http()?, self.at, token.map_err(|_| unable())?))
    }
}
