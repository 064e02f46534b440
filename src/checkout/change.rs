//! Paying and cancelling under an idempotency key, shipping without one: one change to one order.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::app::{App, Conclude, Reply};
use crate::error::{Error, Result};
use crate::guard::key::{self, Claim, Won};
use crate::order::life::{Happening, Life, Verdict};
use crate::order::request::{FieldError, Wrong};
use crate::order::values::{AccountId, Fingerprint, Key, OrderId, PaymentToken};
use crate::order::{Method, Order, Status};
use crate::store::{Change, Changed, Conclusion, Fence, RecordId};

use super::charge::{Charging, charge, rules};
use super::place::{Stands, wait_for_outcome};
use super::settled::{claim_one, earlier, overtaken, persist};

/// The operations' names in `idempotency_records`.
pub const CANCEL: &str = "cancel_order";
/// See [`CANCEL`].
pub const PAY: &str = "pay_order";

/// A wish of the buyer's about an order that stands.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Who wishes.
    pub account: AccountId,
    /// Under which idempotency key.
    pub key: Key,
    /// About which order.
    pub order: OrderId,
    /// The content, for comparison with an earlier request under the key.
    pub fingerprint: Fingerprint,
    /// What.
    pub what: What,
}

/// What the buyer wishes.
#[derive(Clone, Debug)]
pub enum What {
    /// To pay; `None`: as the order was to be paid.
    Pay {
        /// How.
        method: Option<Method>,
        /// With which card.
        token: Option<PaymentToken>,
    },
    /// To call it off.
    Cancel,
}

impl What {
    /// The operation's name.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        match self {
            Self::Pay { .. } => PAY,
            Self::Cancel => CANCEL,
        }
    }
}

impl Wish {
    fn record(&self) -> RecordId {
        RecordId { account: self.account, operation: self.what.operation(), key: self.key.clone() }
    }
}

/// Does what the buyer wishes, once, or answers what it came to before. Waits up to `wait` for the same wish that is under
/// way. Work once begun goes on when the caller leaves.
///
/// # Errors
/// `NotFound` and `Invalid` (nothing claimed), `InProgress` (the same wish, or another attempt to pay), `KeyReused`, `NoOutcome`,
/// `Unavailable`.
pub async fn fulfil(app: &App, wish: Wish, wait: Duration) -> Result<Reply> {
    let patience = Instant::now() + wait;
    let (app_, deadline) = (app.clone(), patience + app.config.work_deadline());
    let work = app.spawn(async move { fulfil_to_the_end(&app_, wish, patience).await });
    match tokio::time::timeout_at(deadline.into(), work).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(Error::Internal("the work on a change broke off".into())),
        Err(_) => Err(Error::unavailable("the change was not made in time; it may still be")),
    }
}

async fn fulfil_to_the_end(app: &App, wish: Wish, patience: Instant) -> Result<Reply> {
    let Some(order) = app.store.order(wish.account, wish.order).await? else { return Err(Error::NotFound) };
    let method = method_of(app, &wish.what, &order)?;
    let won = match claim(app, &wish, patience).await? {
        Ok(won) => won,
        Err(reply) => return Ok(reply),
    };
    let (happening, conclude) = match wish.what {
        What::Cancel => (Happening::Cancel, app.answers.cancelled),
        What::Pay { token, .. } => {
            let provider_key = Uuid::new_v4().to_string();
            (Happening::Pay { method, token, provider_key, resume: won.taken_over }, app.answers.paid)
        }
    };
    let (claim, deadline) = (won.fence, Instant::now() + app.config.work_deadline());
    let change =
        Change { order: wish.order, account: Some(wish.account), happening, event: None, claim: Some(claim.clone()) };
    match persist(app, &change, &rules(app, conclude)).await {
        Ok(Changed::Met { verdict, conclusion, .. }) => {
            conclude_wish(app, Charging { claim, order: wish.order, conclude, deadline }, verdict, conclusion).await
        }
        Ok(Changed::Fenced) => {
            key::lease_lost(&claim.id);
            overtaken(app, &claim.id, deadline).await
        }
        Ok(Changed::NotFound | Changed::Known) => give_back(app, &claim, Error::NotFound).await,
        Err(error) => give_back(app, &claim, error).await,
    }
}

/// How the order is to be paid. A card that no provider would be asked about is refused before anything is claimed: its
/// attempt would stay without an outcome for ever.
fn method_of(app: &App, what: &What, order: &Order) -> Result<Method> {
    let What::Pay { method, .. } = what else { return Ok(order.method) };
    match method.unwrap_or(order.method) {
        Method::Card if app.provider.is_none() && order.status == Status::Pending => {
            Err(Error::Invalid(vec![FieldError { field: "/payment".into(), wrong: Wrong::NotOffered }]))
        }
        method => Ok(method),
    }
}

/// Claims the wish's key, waiting for the same wish that is under way; the inner `Err` is an answer that was given before.
async fn claim(app: &App, wish: &Wish, patience: Instant) -> Result<std::result::Result<Won, Reply>> {
    loop {
        match claim_one(app, wish.record(), wish.fingerprint.clone()).await {
            Err(Error::InProgress { .. }) if Instant::now() < patience => {
                wait_for_outcome(app, &wish.record(), &wish.fingerprint, patience).await?;
            }
            outcome => return outcome,
        }
    }
}

/// What stands of a wish, for a form whose token does not permit to do it.
///
/// # Errors
/// When the database gives no answer.
pub async fn look(app: &App, wish: &Wish) -> Result<Stands> {
    Ok(match app.keys.look(&wish.record(), &wish.fingerprint).await? {
        None | Some(Claim::Claimed(_)) => Stands::Nothing,
        Some(Claim::Replay(answer)) => Stands::Done(answer),
        Some(Claim::InProgress { lease_left }) => Stands::Processing { lease_left },
        Some(Claim::Mismatch(state)) => Stands::Other(earlier(&state)),
    })
}

async fn conclude_wish(app: &App, charging: Charging, verdict: Verdict, conclusion: Conclusion) -> Result<Reply> {
    match (conclusion, verdict) {
        (Conclusion::Answer(answer), _) => Ok(Reply { answer, replayed: false }),
        (Conclusion::Keep, _) => charge(app, charging).await,
        (Conclusion::Release, Verdict::InFlight) => Err(Error::InProgress { lease_left: app.config.lease }),
        (Conclusion::Release, _) => Err(Error::NoOutcome { order: charging.order }),
    }
}

/// Nothing was done: the claim is released, so that a retry runs at once.
async fn give_back(app: &App, claim: &Fence, error: Error) -> Result<Reply> {
    if let Err(error) = app.keys.release(std::slice::from_ref(claim)).await {
        tracing::warn!(%error, "a claim could not be released; its lease runs out by itself");
    }
    Err(error)
}

/// Sends an order off; needs and looks at no key, because what happened already answers the same.
///
/// # Errors
/// `NotFound`, `Illegal`, `Unavailable`.
pub async fn ship(app: &App, order: OrderId) -> Result<Life> {
    let keep: Conclude = |_, _, _| Conclusion::Keep;
    let change = Change { order, account: None, happening: Happening::Ship, event: None, claim: None };
    match persist(app, &change, &rules(app, keep)).await? {
        Changed::Met { verdict: Verdict::Done | Verdict::Already, life, .. } => Ok(life),
        Changed::Met { .. } => Err(Error::Illegal),
        Changed::NotFound | Changed::Known | Changed::Fenced => Err(Error::NotFound),
    }
}
