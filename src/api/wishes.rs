//! What is done to an order that stands: cancelled or paid by whose it is, shipped by an operator.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, Request, State};
use axum::response::{IntoResponse, Response};

use super::auth::{Caller, Role};
use super::extract::{self, Submission};
use super::failure::Failure;
use super::orders::{find, read_id};
use super::problem::Problem;
use super::view::OrderBody;
use super::{Api, answer, method_not_allowed};
use crate::checkout::change::{self, What, Wish};
use crate::error::Error;
use crate::order::values::Key;
use crate::order::{Order, fingerprint, request};

/// `{id}` of the path, as axum has read it.
type Id = Result<Path<String>, PathRejection>;

/// `POST /api/orders/{id}/cancel`.
///
/// # Errors
/// Whatever is wrong with the request, or why there is no answer; a refusal is an answer.
pub async fn cancel(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    id: Id,
    request: Request,
) -> Result<Response, Failure> {
    let order = find(&api, caller, id).await?;
    let Submission { key, body } = extract::wish(request).await?;
    request::cancel_from_json(&body)?;
    fulfil(&api, &order, key, What::Cancel).await
}

/// `POST /api/orders/{id}/pay`.
///
/// # Errors
/// Whatever is wrong with the request, or why there is no answer; a refusal is an answer.
pub async fn pay(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    id: Id,
    request: Request,
) -> Result<Response, Failure> {
    let order = find(&api, caller, id).await?;
    let Submission { key, body } = extract::wish(request).await?;
    let (method, token) = request::pay_from_json(&body, api.app.config.gateway.is_some())?;
    fulfil(&api, &order, key, What::Pay { method, token }).await
}

async fn fulfil(api: &Api, order: &Order, key: Key, what: What) -> Result<Response, Failure> {
    let fingerprint = match &what {
        What::Cancel => fingerprint::cancel_order(order.id),
        What::Pay { method, token } => fingerprint::pay_order(order.id, *method, token.as_ref()),
    };
    let wish = Wish { account: order.account, key, order: order.id, fingerprint, what };
    let (app, wait) = (api.app.clone(), api.app.config.api_wait);
    answer::give(api.run(wait, async move { change::fulfil(&app, wish, wait).await }).await?)
}

/// `POST /api/orders/{id}/ship`. Needs and looks at neither key nor body: what has happened already answers the same.
///
/// # Errors
/// `forbidden`, `not-found`, `illegal-transition`, or why there is no answer.
pub async fn ship(State(api): State<Api>, Extension(caller): Extension<Caller>, id: Id) -> Result<Response, Failure> {
    operator(&caller)?;
    let (app, id) = (api.app.clone(), read_id(id)?);
    let life = api.read(async move { change::ship(&app, id).await }).await?;
    Ok(Json(OrderBody::of(&life.order)).into_response())
}

/// Any other method on [`ship`]'s path: who may not, and what is not there, is said first.
///
/// # Errors
/// Always.
pub async fn ship_otherwise(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    id: Id,
) -> Result<Response, Failure> {
    operator(&caller)?;
    let (app, id) = (api.app.clone(), read_id(id)?);
    api.read(async move { app.store.life(id).await?.ok_or(Error::NotFound) }).await?;
    Err(method_not_allowed().await)
}

fn operator(caller: &Caller) -> Result<(), Failure> {
    match caller.role {
        Role::Operator => Ok(()),
        Role::Client => Err(Failure::new(Problem::Forbidden, "Only a token with the role operator may do this.")),
    }
}
