//! `POST /orders/{id}/cancel` and `/pay`: what a buyer wishes of an order that stands. By the token table, as placing is;
//! always back to the order, which says what happened.

use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Redirect, Response};
use bytes::Bytes;
use tokio::time::Instant;
use tower_sessions::Session;
use uuid::Uuid;

use crate::app::App;
use crate::checkout::change::{self, What, Wish};
use crate::checkout::place::Stands;
use crate::error::{Error, Result};
use crate::guard::activity::{About, Who};
use crate::guard::token::Binding;
use crate::order::values::{OrderId, Subject};
use crate::order::{fingerprint, request};

use super::draft::Draft;
use super::form::{by, glance};
use super::pages::Message;
use super::said::{SAID, Said};
use super::session;
use super::walk::{self, Step, walk};

/// `{id}` of the path, as axum has read it.
type Id = std::result::Result<Path<Uuid>, PathRejection>;
/// The body, as axum has read it.
type Body = std::result::Result<Bytes, BytesRejection>;

/// `POST /orders/{id}/cancel`.
///
/// # Errors
/// When there is no such order of this visitor, or what was sent is no form.
pub async fn cancel(
    State(app): State<App>,
    session: Session,
    id: Id,
    headers: HeaderMap,
    body: Body,
) -> std::result::Result<Response, Message> {
    let draft = Draft::read(&headers, body)?;
    act(&app, &session, id, &draft, Ok(What::Cancel)).await
}

/// `POST /orders/{id}/pay`.
///
/// # Errors
/// When there is no such order of this visitor, or what was sent is no form.
pub async fn pay(
    State(app): State<App>,
    session: Session,
    id: Id,
    headers: HeaderMap,
    body: Body,
) -> std::result::Result<Response, Message> {
    let draft = Draft::read(&headers, body)?;
    let method = request::pay_from_form(draft.fields(), app.config.gateway.is_some());
    let what = method.map(|method| What::Pay { method, token: None }).map_err(Error::Invalid);
    act(&app, &session, id, &draft, what).await
}

async fn act(
    app: &App,
    session: &Session,
    id: Id,
    draft: &Draft,
    what: Result<What>,
) -> std::result::Result<Response, Message> {
    let order = OrderId(id.map_err(|_| Message::NotFound)?.0);
    let deadline = Instant::now() + app.config.work_deadline() - glance(app);
    let subject = by(deadline, session::known(session)).await?.ok_or(Message::NotFound)?;
    let work = app.spawn(wished(app.clone(), subject, order, draft.clone(), what));
    let outcome = async { work.await.unwrap_or_else(|lost| Err(Error::Internal(lost.to_string()))) };
    let said = by(deadline, outcome).await.or_else(Said::of_error)?;
    Ok(Redirect::to(&format!("/orders/{order}?{SAID}={}", said.word())).into_response())
}

/// Spends the token and does what the table says. To be run in a task of its own.
async fn wished(app: App, subject: Subject, order: OrderId, draft: Draft, what: Result<What>) -> Result<Said> {
    let account = app.find_account(&subject).await?.ok_or(Error::NotFound)?;
    app.store.order(account, order).await?.ok_or(Error::NotFound)?;
    // Invalid: the token is not spent, as with an order form.
    let what = what?;
    let Some(key) = draft.key() else {
        walk::unknown(|| About { who: Who::Subject(subject), operation: what.operation(), key: None });
        return Ok(Said::Expired);
    };
    let binding = Binding { subject, form: what.operation(), key: key.clone() };
    let fingerprint = match &what {
        What::Cancel => fingerprint::cancel_order(order),
        What::Pay { method, token } => fingerprint::pay_order(order, *method, token.as_ref()),
    };
    let wish = Wish { account, key, order, fingerprint, what };
    // Below the deadline, so that "under way" is told as such and not as a failure.
    let wait = app.config.form_wait.min(app.config.work_deadline() / 2);
    let began = Instant::now();
    Ok(match walk(&app, draft.token(), &binding, Uuid::new_v4(), wait, || change::look(&app, &wish)).await? {
        Step::Do => {
            let reply = change::fulfil(&app, wish.clone(), wait.saturating_sub(began.elapsed())).await?;
            Said::of_answer(&wish.what, &reply.answer)
        }
        Step::Tell(Stands::Done(answer)) => Said::of_answer(&wish.what, &answer),
        Step::Tell(_) => Said::Used,
        Step::Wait => Said::UnderWay,
        Step::Interrupted | Step::Expired => Said::Expired,
    })
}
