//! `GET /orders/attempts/{key}`: where a buyer waits for the outcome of a submission, and finds it later.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use tower_sessions::Session;

use crate::app::App;
use crate::checkout::place::{self, PLACE, Stands};
use crate::error::Error;
use crate::guard::token::Binding;
use crate::order::values::{Key, OrderId, Subject};
use crate::store::Answer;

use super::form::{empty_form, to_order};
use super::notice::Notice;
use super::pages::{Message, WaitingPage};
use super::session;
use super::submit::standing;

/// How far a submission is, for somebody who asks by its key alone.
enum Attempt {
    UnderWay,
    Ordered(OrderId),
    Refused(Answer),
    /// Its lease is over and there is no order.
    NothingCameOfIt,
    /// This account never submitted it.
    None,
}

/// The page of one submission.
///
/// # Errors
/// When this account has no such submission, or the database gives no answer.
pub async fn show(
    State(app): State<App>,
    session: Session,
    method: Method,
    key: Result<Path<String>, PathRejection>,
) -> Result<Response, Message> {
    let key = key.ok().and_then(|Path(key)| Key::parse(&key)).ok_or(Message::NotFound)?;
    let subject = session::known(&session).await?.ok_or(Message::NotFound)?;
    let mint = method != Method::HEAD;
    Ok(match look(&app, subject, &key).await? {
        Attempt::UnderWay => WaitingPage.into_response(),
        Attempt::Ordered(order) => to_order(order),
        Attempt::Refused(refusal) => empty_form(&app, &session, Notice::of_refusal(&refusal), Key::fresh(), mint).await,
        Attempt::NothingCameOfIt => empty_form(&app, &session, Notice::NothingCameOfIt, key, mint).await,
        Attempt::None => return Err(Message::NotFound),
    })
}

async fn look(app: &App, subject: Subject, key: &Key) -> Result<Attempt, Error> {
    let stands = match app.find_account(&subject).await? {
        Some(account) => place::look(app, account, key, None).await?,
        None => Stands::Nothing,
    };
    Ok(match stands {
        Stands::Order(order) | Stands::Done(Answer { order: Some(order), .. }) => Attempt::Ordered(order),
        Stands::Done(refusal) => Attempt::Refused(refusal),
        Stands::Processing { lease_left } => match standing(app, &subject, key).await? {
            Some(order) => Attempt::Ordered(order),
            None if lease_left.is_zero() => Attempt::NothingCameOfIt,
            None => Attempt::UnderWay,
        },
        // Not answered where no content is compared.
        Stands::Other(_) => Attempt::UnderWay,
        Stands::Nothing => {
            let binding = Binding { subject, form: PLACE, key: key.clone() };
            match app.tokens.spent_ago(&binding).await {
                Some(ago) if ago < app.config.lease => Attempt::UnderWay,
                Some(_) => Attempt::NothingCameOfIt,
                None => Attempt::None,
            }
        }
    })
}
