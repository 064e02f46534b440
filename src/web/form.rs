//! The order form: shown, submitted, given back.
//!
//! Every way a submission can end is an [`Outcome`] of `submit`; here it becomes a redirect or the form again, with what
//! was typed and the pair of token and key that the contract (section 4) asks for.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use bytes::Bytes;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::{Instant, timeout, timeout_at};
use tower_sessions::Session;

use crate::app::App;
use crate::checkout::place::{self, PLACE};
use crate::error::{Error, RETRY_AFTER};
use crate::guard::token::Binding;
use crate::order::values::{Key, OrderId};

use super::draft::Draft;
use super::notice::Notice;
use super::pages::{Message, attempt_path, retry_after};
use super::session;
use super::shelf::{Pair, Shelf, render};
use super::submit::{Outcome, Submission, submit};

/// `GET /orders/new`.
///
/// # Errors
/// When the database gives no answer.
pub async fn show(State(app): State<App>, session: Session, method: Method) -> Result<Response, Message> {
    let (draft, notice) = (Draft::default(), Notice::None);
    if method == Method::HEAD {
        return Ok(render(&app, &Shelf::load(&app, None).await?, None, &draft, notice, Pair::None).await);
    }
    let known = session::known(&session).await?;
    let mut shelf = Shelf::load(&app, known.as_ref()).await?;
    let subject = match known {
        Some(subject) => subject,
        None => session::begin(&session).await?,
    };
    let key = shelf.under_way.take().unwrap_or_else(Key::fresh);
    Ok(render(&app, &shelf, Some(&subject), &draft, notice, Pair::Fresh(key)).await)
}

/// `POST /orders`.
pub async fn post(
    State(app): State<App>,
    session: Session,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let draft = match Draft::read(&headers, body) {
        Ok(draft) => draft,
        Err(message) => return message.into_response(),
    };
    match attempt(&app, &session, &draft).await {
        // A form of somebody's, sent without a cookie (a restored tab does that): a new session would put its owner's out of
        // the browser. It comes back as it was, and finds its order once it is sent with the cookie.
        Ok(Outcome::Expired) if draft.token().is_some() && !session::cookie_sent(&headers) => {
            give_back(&app, &session, &draft, Notice::Expired, Pair::Sent).await
        }
        Ok(outcome) => told(&app, &session, &draft, outcome).await,
        Err((error, pair)) => give_back(&app, &session, &draft, notice_of(error), pair).await,
    }
}

/// Tries to place what was sent. On an error also says which pair the form comes back with: the token is only known to be
/// unspent as long as nobody was asked about it.
async fn attempt(app: &App, session: &Session, draft: &Draft) -> Result<Outcome, (Error, Pair)> {
    let deadline = Instant::now() + app.config.work_deadline() - glance(app);
    let unspent = |error| (error, Pair::Sent);
    let request = draft.parse(app.config.gateway.is_some()).map_err(|wrong| unspent(Error::Invalid(wrong)))?;
    let subject = by(deadline, session::known(session)).await.map_err(unspent)?;
    let (token, key, again) = (draft.token().map(str::to_owned), draft.key(), draft.again());
    by(deadline, place::check_prices(app, subject.as_ref(), key.as_ref(), &request)).await.map_err(unspent)?;
    let submission = Submission { subject, token, key, request, again };
    // Below the deadline, so that "still being placed" is told as such and not as a failure.
    let wait = app.config.form_wait.min(app.config.work_deadline() / 2);
    let work = app.spawn(submit(app.clone(), submission, wait));
    let outcome = async { work.await.unwrap_or_else(|lost| Err(Error::Internal(lost.to_string()))) };
    by(deadline, outcome).await.map_err(|error| (error, fresh(draft)))
}

/// Answers an outcome.
async fn told(app: &App, session: &Session, draft: &Draft, outcome: Outcome) -> Response {
    let (notice, pair) = match outcome {
        Outcome::Ordered(order) => return to_order(order),
        Outcome::UnderWay => {
            return Redirect::to(&attempt_path(&draft.key().unwrap_or_else(Key::fresh))).into_response();
        }
        Outcome::Refused(refusal) => (Notice::of_refusal(&refusal), Pair::Fresh(Key::fresh())),
        Outcome::Used(earlier) => {
            let key = draft.key().unwrap_or_else(Key::fresh);
            (Notice::of_earlier(&earlier, key), Pair::Fresh(Key::fresh()))
        }
        Outcome::Interrupted => (Notice::Interrupted, fresh(draft)),
        Outcome::Expired => (Notice::Expired, fresh(draft)),
    };
    give_back(app, session, draft, notice, pair).await
}

/// The way to an order: 303, the one redirect that makes a browser forget the POST.
pub(super) fn to_order(order: OrderId) -> Response {
    Redirect::to(&format!("/orders/{order}")).into_response()
}

/// An empty form under this key, for the pages of attempts. `mint`: not for HEAD.
pub(super) async fn empty_form(app: &App, session: &Session, notice: Notice, key: Key, mint: bool) -> Response {
    let pair = if mint { Pair::Fresh(key) } else { Pair::None };
    give_back(app, session, &Draft::default(), notice, pair).await
}

/// The form with what was typed. Nothing that cannot be had in a moment keeps it back: not the catalogue, not the balance.
async fn give_back(app: &App, session: &Session, draft: &Draft, notice: Notice, pair: Pair) -> Response {
    let moment = glance(app) / 2;
    let who = async {
        match pair {
            Pair::Fresh(_) => session::known_or_new(session).await.map(Some),
            Pair::Sent | Pair::None => session::known(session).await,
        }
    };
    let subject = timeout(moment, who).await.ok().and_then(Result::ok).flatten();
    let shelf = timeout(moment, Shelf::load(app, subject.as_ref())).await.ok().and_then(Result::ok);
    render(app, &shelf.unwrap_or_default(), subject.as_ref(), draft, notice, pair).await
}

/// `POST /form-tokens`: another pair for the page's own script.
pub async fn token(State(app): State<App>, session: Session) -> Response {
    let now = OffsetDateTime::now_utc();
    let expires_at = now.replace_millisecond(now.millisecond()).unwrap_or(now) + app.config.form_token_ttl;
    let pair = async {
        let Some(subject) = session::known(&session).await? else { return Ok(None) };
        let under_way = match app.find_account(&subject).await? {
            Some(account) => app.keys.buyer(account).await?.under_way,
            None => None,
        };
        let key = under_way.unwrap_or_else(Key::fresh);
        let binding = Binding { subject, form: PLACE, key };
        Ok(Some((app.tokens.issue(&binding).await, binding.key)))
    };
    match by(Instant::now() + app.config.work_deadline(), pair).await {
        Ok(Some((token, key))) => {
            let expires_at = expires_at.format(&Rfc3339).unwrap_or_default();
            let body = json!({ "form_token": token, "idempotency_key": key.as_str(), "expires_at": expires_at });
            (StatusCode::CREATED, Json(body)).into_response()
        }
        Ok(None) => problem(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            "Open the order form first: there is no session.",
            false,
        ),
        Err(error) => match Message::from(error) {
            Message::Unavailable(after) => retry_after(
                after,
                problem(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "unavailable",
                    "Nothing was changed. Try again in a moment.",
                    true,
                ),
            ),
            _ => problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Something broke on our side.", true),
        },
    }
}

fn problem(status: StatusCode, name: &str, detail: &str, retryable: bool) -> Response {
    let title = status.canonical_reason().unwrap_or_default();
    let kind = format!("/problems/{name}");
    let body = json!({
        "type": kind, "title": title, "status": status.as_u16(), "detail": detail, "instance": "/form-tokens",
        "retryable": retryable,
    });
    (status, [(CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
}

fn fresh(draft: &Draft) -> Pair {
    Pair::Fresh(draft.key().unwrap_or_else(Key::fresh))
}

fn notice_of(error: Error) -> Notice {
    match error {
        Error::Invalid(errors) => Notice::Invalid(errors),
        Error::Unavailable { retry_after, reason } => {
            tracing::warn!(reason, "an order could not be taken");
            Notice::Unavailable { retry_after }
        }
        Error::InProgress { .. }
        | Error::KeyReused(_)
        | Error::Illegal
        | Error::NoOutcome { .. }
        | Error::NotFound
        | Error::Internal(_) => {
            tracing::error!(%error, "an order failed");
            Notice::Failed
        }
    }
}

/// The outcome, or `Unavailable` once the deadline has come. What was spawned goes on.
pub(super) async fn by<T>(deadline: Instant, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match timeout_at(deadline, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Error::Unavailable { retry_after: RETRY_AFTER, reason: "no answer in time".into() }),
    }
}

/// How long a page that says "not now" may take to be made: it counts into the deadline of the whole answer.
pub(super) fn glance(app: &App) -> Duration {
    app.config.work_deadline() / 8
}
