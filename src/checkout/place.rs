//! Placing an order: both faces meet here.

use std::time::{Duration, Instant};

use crate::app::App;
pub use crate::app::Reply;
use crate::error::{Earlier, Error, Result};
use crate::guard::key::Claim;
use crate::guard::unique;
use crate::order::Status;
use crate::order::decide::{Asked, Decision, Unpriced, price};
use crate::order::request::Parsed;
use crate::order::values::{AccountId, Fingerprint, Key, OrderId, Sku, Subject};
use crate::store::{Answer, RecordId, RecordState};

pub use super::settled::PLACE;
use super::settled::{answer_of, earlier};

/// How often a duplicate looks whether the first is through.
const LOOK_AGAIN: Duration = Duration::from_millis(25);
/// What a caller is told to wait when every seat at the desk is taken: the desk empties in far less.
const FULL_DESK: Duration = Duration::from_secs(1);

/// A valid request under its key.
#[derive(Clone, Debug)]
pub struct Intent {
    /// Who orders.
    pub account: AccountId,
    /// Under which idempotency key.
    pub key: Key,
    /// What.
    pub request: Parsed,
    /// Whether a second order of the same content within the repeat notice is asked about first (forms without
    /// `again=yes`).
    pub ask_before_repeat: bool,
}

/// What stands of an intent, for a form whose token does not permit to place.
#[derive(Clone, Debug)]
pub enum Stands {
    /// Neither a record nor an order.
    Nothing,
    /// Under way, same content.
    Processing {
        /// Zero when the lease is over: it may be taken over by [`place`].
        lease_left: Duration,
    },
    /// Finished, same content: an order or a refusal.
    Done(Answer),
    /// An order stands without a record, same content.
    Order(OrderId),
    /// Something stands with other content.
    Other(Earlier),
}

impl Intent {
    fn record(&self) -> RecordId {
        RecordId { account: self.account, operation: PLACE, key: self.key.clone() }
    }
}

/// Places the order or answers what stands: the first answer, a replay, or why not. Waits up to `wait` for the same
/// request that is under way. Work once begun goes on when the caller leaves; a caller whose work takes longer than
/// `Config::work_deadline` is told `Unavailable`, and may come again with the same key.
///
/// # Errors
/// `Invalid` (limits that only the catalogue shows; nothing kept), `InProgress`, `KeyReused`, `Unavailable`, `Internal`.
pub async fn place(app: &App, intent: Intent, wait: Duration) -> Result<Reply> {
    let now = Instant::now();
    let (deadline, patience) = (now + app.config.work_deadline(), now + wait);
    loop {
        match ask_desk(app, &intent, deadline).await {
            Err(Error::InProgress { .. }) if Instant::now() < patience => {
                let seen = wait_for_outcome(app, &intent.record(), &intent.request.fingerprint, patience).await?;
                if seen.is_none() {
                    // It runs in another process, which has written nothing yet.
                    tokio::time::sleep_until((Instant::now() + LOOK_AGAIN).min(patience).into()).await;
                }
            }
            Err(Error::KeyReused(Earlier::Processing)) => return behind_other_content(app, &intent).await,
            outcome => return outcome,
        }
    }
}

/// A request with other content is under way. Where the record was lost or had expired before that one came, the order may
/// stand all the same: then that one will be refused, and this one is a repeat.
async fn behind_other_content(app: &App, intent: &Intent) -> Result<Reply> {
    let order = match standing(app, intent.account, &intent.key, &intent.request.fingerprint).await? {
        Some(order) => app.store.order(intent.account, order).await?,
        None => None,
    };
    match order {
        None => Err(Error::KeyReused(Earlier::Processing)),
        // Its record will be free in a moment, and whoever claims it then brings the provider's word.
        Some(order) if order.status == Status::Pending => Err(Error::InProgress { lease_left: app.config.lease }),
        Some(order) => {
            let stands = Decision::Stands { order: order.id, same: true };
            unique::count(&stands, false, &intent.record());
            Ok(Reply { answer: (app.answers.placed)(&stands, Some(&order)), replayed: true })
        }
    }
}

/// The order of this very content under the key.
async fn standing(app: &App, account: AccountId, key: &Key, content: &Fingerprint) -> Result<Option<OrderId>> {
    let order = app.store.order_by_key(account, key).await?.filter(|order| order.fingerprint == *content);
    Ok(order.map(|order| order.id))
}

/// One turn at the desk, which what was replayed a moment ago does not need. When every seat is taken, a repeat is still answered from what stands: it needs no seat.
async fn ask_desk(app: &App, intent: &Intent, deadline: Instant) -> Result<Reply> {
    if let Some(replay) = app.keys.replayed_lately(&intent.record(), &intent.request.fingerprint) {
        return answer_of(replay);
    }
    let record = intent.record();
    let entering = app.keys.enter(&record, &intent.request.fingerprint);
    let entered = match tokio::time::timeout_at(deadline.into(), entering).await {
        Ok(Ok(entered)) => entered,
        Ok(Err(runs)) => return answer_of(runs),
        Err(_) => return Err(Error::unavailable("other content under this key was not settled in time")),
    };
    let notice =
        (intent.ask_before_repeat && !app.config.repeat_notice.is_zero()).then(|| app.config.repeat_notice.as_secs());
    let asked = Asked {
        id: OrderId::new(),
        account: intent.account,
        key: intent.key.clone(),
        fingerprint: intent.request.fingerprint.clone(),
        request: intent.request.order.clone(),
        repeat_notice: notice,
    };
    let Some(outcome) = app.queue(asked, entered, deadline) else {
        return match app.keys.look(&intent.record(), &intent.request.fingerprint).await? {
            Some(Claim::InProgress { lease_left }) if lease_left.is_zero() => Err(full_desk()),
            Some(claim) => answer_of(claim),
            None => Err(full_desk()),
        };
    };
    match tokio::time::timeout_at(deadline.into(), outcome).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err(Error::unavailable("the desk dropped the order before it was begun")),
        Err(_) => Err(Error::unavailable("the order was not settled in time; it may still be")),
    }
}

fn full_desk() -> Error {
    Error::Unavailable { retry_after: FULL_DESK, reason: "every seat at the desk is taken".into() }
}

/// Looks until the record is no longer under way under a live lease, or `until` has come; answers what it saw last.
pub(super) async fn wait_for_outcome(
    app: &App,
    id: &RecordId,
    content: &Fingerprint,
    until: Instant,
) -> Result<Option<Claim>> {
    loop {
        let seen = app.keys.look(id, content).await?;
        match seen {
            Some(Claim::InProgress { lease_left }) if !lease_left.is_zero() && Instant::now() < until => {
                tokio::time::sleep_until((Instant::now() + LOOK_AGAIN).min(until).into()).await;
            }
            _ => return Ok(seen),
        }
    }
}

/// What stands of a key, compared with this content; with `None` whatever the content.
///
/// # Errors
/// When the database gives no answer.
pub async fn look(app: &App, account: AccountId, key: &Key, content: Option<&Fingerprint>) -> Result<Stands> {
    let id = RecordId { account, operation: PLACE, key: key.clone() };
    let differs = |found: &Fingerprint| content.is_some_and(|content| content != found);
    if let Some((record, _)) = app.keys.record(&id).await? {
        return Ok(match record.state {
            state if differs(&record.fingerprint) => behind(app, account, key, content, &state).await?,
            RecordState::Processing { lease_left } => Stands::Processing { lease_left },
            RecordState::Done(answer) => Stands::Done(answer),
        });
    }
    Ok(match app.store.order_by_key(account, key).await? {
        None => Stands::Nothing,
        Some(order) if differs(&order.fingerprint) => Stands::Other(Earlier::Order(order.id)),
        Some(order) => Stands::Order(order.id),
    })
}

/// A record of other content stands before what is asked for, unless that is an order that stood before it, see
/// [`behind_other_content`].
async fn behind(
    app: &App,
    account: AccountId,
    key: &Key,
    content: Option<&Fingerprint>,
    state: &RecordState,
) -> Result<Stands> {
    let order = match (state, content) {
        (RecordState::Processing { .. }, Some(content)) => standing(app, account, key, content).await?,
        _ => None,
    };
    Ok(order.map_or_else(|| Stands::Other(earlier(state)), Stands::Order))
}

/// Refuses what only the catalogue shows to be invalid (total over the limit, several currencies), before a token is
/// spent or a key is claimed. The desk looks again, under lock. Where something stands under the key it is let through,
/// to be answered from there: the catalogue may have changed since, and a repeat gets the first answer.
///
/// # Errors
/// `Invalid`, or `Unavailable` when the catalogue cannot be had.
pub async fn check_prices(app: &App, subject: Option<&Subject>, key: Option<&Key>, request: &Parsed) -> Result<()> {
    let catalogue = app.catalogue().await?;
    let find = |sku: &Sku| catalogue.binary_search_by(|product| product.sku.cmp(sku)).ok().map(|at| &catalogue[at]);
    let Err(Unpriced::Invalid(errors)) = price(&request.order, find) else { return Ok(()) };
    if let (Some(subject), Some(key)) = (subject, key)
        && let Some(account) = app.find_account(subject).await?
        && !matches!(look(app, account, key, None).await?, Stands::Nothing)
    {
        return Ok(());
    }
    Err(Error::Invalid(errors))
}
