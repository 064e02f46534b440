//! The stand-in's HTTP face.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use time::OffsetDateTime;
use tokio::net::TcpListener;

use super::Options;
use super::callbacks::Sender;
use super::intents::{Admission, Fields, Ledger, Said, failure};

/// The largest body that is read.
const BODY: usize = 64 * 1024;

/// The running stand-in.
#[derive(Clone)]
pub struct Standin {
    options: Arc<Options>,
    ledger: Arc<Mutex<Ledger>>,
    callbacks: Sender,
}

/// Marks an answer whose connection is to be closed instead.
#[derive(Clone)]
struct Lost;

impl Standin {
    /// As the options say.
    ///
    /// # Errors
    /// When the client for callbacks cannot be made.
    pub fn new(options: Options) -> Result<Self, reqwest::Error> {
        let callbacks = Sender::new(&options)?;
        Ok(Self { options: Arc::new(options), ledger: Arc::default(), callbacks })
    }

    /// Serves until `stop` is done.
    ///
    /// # Errors
    /// When the listener fails for good.
    pub async fn serve(self, listener: TcpListener, stop: impl Future<Output = ()>) -> io::Result<()> {
        let router = Router::new()
            .route("/v1/payment_intents", post(create))
            .route("/v1/payment_intents/{id}", get(retrieve))
            .route("/v1/refunds", post(refund))
            .route("/log", get(log))
            .fallback(|| async { answer(failure(404, "invalid_request_error", "Unrecognized request URL")) })
            .with_state(self);
        tokio::pin!(stop);
        loop {
            let stream = tokio::select! {
                () = &mut stop => return Ok(()),
                accepted = listener.accept() => accepted?.0,
            };
            let service = tower::ServiceBuilder::new().map_result(lose_marked).service(router.clone());
            let service = hyper_util::service::TowerToHyperService::new(service);
            tokio::spawn(async move {
                let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allowed(&self, headers: &HeaderMap) -> Result<(), Said> {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        match given.and_then(|value| value.strip_prefix("Bearer ")) {
            Some(key) if key == self.options.key => Ok(()),
            _ => Err(failure(401, "invalid_request_error", "Invalid API Key provided")),
        }
    }
}

/// An error from the service makes hyper close the connection without an answer.
fn lose_marked(answered: Result<Response, Infallible>) -> Result<Response, tower::BoxError> {
    let Ok(response) = answered;
    if response.extensions().get::<Lost>().is_some() { Err("lost on purpose".into()) } else { Ok(response) }
}

fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

fn answer(said: Said) -> Response {
    (StatusCode::from_u16(said.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), Json(said.body)).into_response()
}

fn replay(said: Said) -> Response {
    ([("idempotent-replayed", "true")], answer(said)).into_response()
}

async fn fields(body: Body) -> Result<Fields, Said> {
    let body = axum::body::to_bytes(body, BODY)
        .await
        .map_err(|_| failure(400, "invalid_request_error", "the body cannot be read"))?;
    Ok(form_urlencoded::parse(&body).into_owned().collect())
}

fn key_of(headers: &HeaderMap) -> Option<String> {
    headers.get("idempotency-key").and_then(|value| value.to_str().ok()).map(str::to_owned)
}

async fn create(State(standin): State<Standin>, request: Request) -> Response {
    // In a task of its own: a caller that leaves does not undo a charge.
    tokio::spawn(async move {
        match create_whole(&standin, request).await {
            Ok(response) => response,
            Err(said) => answer(said),
        }
    })
    .await
    .unwrap_or_else(|_| answer(failure(500, "api_error", "the stand-in broke")))
}

async fn create_whole(standin: &Standin, request: Request) -> Result<Response, Said> {
    let (parts, body) = request.into_parts();
    standin.allowed(&parts.headers)?;
    let (key, fields) = (key_of(&parts.headers), fields(body).await?);
    match standin.ledger().admit(key.as_deref(), &fields) {
        Admission::First => {}
        Admission::Answer(said) => return Err(said),
        Admission::Replay(said) => return Ok(replay(said)),
    }
    let (made, charges) = {
        let mut ledger = standin.ledger();
        let before = ledger.charges;
        let made = ledger.create(&fields, key.as_deref(), &standin.options.decline_amounts, now());
        (made, (ledger.charges > before).then_some(ledger.charges))
    };
    let intent = match made {
        Ok(intent) => intent,
        Err(said) => {
            standin.ledger().keep(key.as_deref(), fields, &said);
            return Err(said);
        }
    };
    let tell = async {
        if let Some(kind) = intent.event_kind() {
            standin.callbacks.tell(kind, intent.json()).await;
        }
    };
    if standin.options.callbacks == super::Callbacks::Early {
        tell.await;
        tokio::time::sleep(standin.options.latency).await;
    } else {
        tokio::time::sleep(standin.options.latency).await;
        tell.await;
    }
    let said = intent.said();
    standin.ledger().keep(key.as_deref(), fields, &said);
    if intent.status == "processing" {
        later(standin.clone(), intent.id.clone());
    }
    let mut response = answer(said);
    if let (Some(every), Some(charges)) = (standin.options.lose_answer, charges)
        && charges.is_multiple_of(every)
    {
        response.extensions_mut().insert(Lost);
    }
    Ok(response)
}

/// A slow payment comes through by and by, and is told of then.
fn later(standin: Standin, id: String) {
    tokio::spawn(async move {
        tokio::time::sleep(standin.options.callback_delay.max(std::time::Duration::from_millis(500))).await;
        let through = standin.ledger().come_through(&id);
        if let Some(intent) = through {
            standin.callbacks.tell("payment_intent.succeeded", intent.json()).await;
        }
    });
}

async fn retrieve(State(standin): State<Standin>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    tokio::time::sleep(standin.options.latency).await;
    if let Err(said) = standin.allowed(&headers) {
        return answer(said);
    }
    let body = standin.ledger().intent(&id).map(super::intents::Intent::json);
    match body {
        Some(body) => answer(Said { status: 200, body }),
        None => answer(failure(404, "invalid_request_error", "No such payment_intent")),
    }
}

async fn refund(State(standin): State<Standin>, request: Request) -> Response {
    refund_whole(&standin, request).await.unwrap_or_else(answer)
}

async fn refund_whole(standin: &Standin, request: Request) -> Result<Response, Said> {
    let (parts, body) = request.into_parts();
    standin.allowed(&parts.headers)?;
    let (key, fields) = (key_of(&parts.headers), fields(body).await?);
    match standin.ledger().admit(key.as_deref(), &fields) {
        Admission::First => {}
        Admission::Answer(said) => return Err(said),
        Admission::Replay(said) => return Ok(replay(said)),
    }
    let done = standin.ledger().refund(&fields, key.as_deref(), now());
    let said = match &done {
        Ok((body, _)) => Said { status: 200, body: body.clone() },
        Err(said) => said.clone(),
    };
    standin.ledger().keep(key.as_deref(), fields, &said);
    if let Ok((_, intent)) = done {
        standin.callbacks.tell("charge.refunded", intent.refunded_charge()).await;
    }
    tokio::time::sleep(standin.options.latency).await;
    Ok(answer(said))
}

async fn log(State(standin): State<Standin>) -> Response {
    let lines = standin.ledger().log().to_vec();
    Json(lines).into_response()
}
