//! The gathering desk, where orders of both faces meet.
//!
//! Whatever waits is taken at once, up to [`BATCH`], without ever waiting for more: idle, that is a batch of one; under
//! load, one disk flush and one row lock per product serve dozens of orders. Two stages, so that a repeat is answered at
//! once even while the first of its key waits for a row lock:
//!
//! 1. the *claimer* claims all keys in one statement and answers those that somebody else holds or has finished;
//! 2. the *writers* settle what was won, each batch in one transaction.
//!
//! The work belongs to the desk: a caller that leaves cannot cut it in half. A batch that fails as a whole is settled
//! one by one, so that one bad order never fails its neighbours.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Semaphore, mpsc};

use crate::app::{App, Inbox, Reply, Ticket};
use crate::error::{Error, Result};
use crate::guard::key::{Claim, Won};
use crate::guard::{key, unique};
use crate::order::decide::Decision;
use crate::order::values::OrderId;
use crate::store::{Answer, ClaimRequest, Placing, RecordId, SettleRules, Settled, StoreError};

use super::charge::{Charging, charge};
use super::held::{Held, goods};
use super::settled::{PLACE, answer_of, overtaken};

/// The most orders that are claimed or settled at once: past that a batch saves little and its first waits longer.
pub const BATCH: usize = 64;
/// How long a batch waits for row locks before its orders are tried one by one.
const BATCH_LOCK_WAIT: Duration = Duration::from_millis(1000);
/// How long an order of a failed batch waits for row locks before it moves to the slow lane: its neighbours wait behind it.
const SINGLE_LOCK_WAIT: Duration = Duration::from_millis(50);
/// How many orders may wait for a held row at once, each with a connection, beside the writers.
const SLOW_LANES: usize = 2;
/// How long an order waits in a slow lane for one row, before it lets go of the others that it wants (their buyers wait
/// behind it) and makes room for the next order aside. With all lanes below [`SINGLE_LOCK_WAIT`].
const LANE_LOCK_WAIT: Duration = Duration::from_millis(20);
/// How often a batch is settled again after the connection broke. The fence makes an unknown commit safe to repeat.
const RECONNECTS: u32 = 3;
/// The pause before that: a restarting database needs a moment.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// A ticket whose key was won.
struct Claimed {
    ticket: Ticket,
    won: Won,
}

/// What a writer works with.
#[derive(Clone)]
struct Settling {
    app: App,
    slow_lanes: Arc<Semaphore>,
    held: Arc<Held>,
}

/// Opens the desk: one claimer and `writers` writers (2 on PostgreSQL, 1 on SQLite), which run as long as the app.
pub fn open(app: &App, mut inbox: Inbox, writers: usize) {
    // Unbounded, yet bounded: every ticket holds one of the app's seats until it is answered.
    let (claimed, waiting) = mpsc::unbounded_channel();
    let waiting = Arc::new(Mutex::new(waiting));
    let settling =
        Settling { app: app.clone(), slow_lanes: Arc::new(Semaphore::new(SLOW_LANES)), held: Arc::default() };
    for _ in 0..writers {
        tokio::spawn(settling.clone().write(waiting.clone()));
    }
    let app = app.clone();
    tokio::spawn(async move {
        loop {
            let mut batch = Vec::with_capacity(BATCH);
            if inbox.recv_many(&mut batch, BATCH).await == 0 {
                return;
            }
            batch.retain(|ticket| ticket.deadline > Instant::now());
            claim(&app, batch, &claimed).await;
        }
    });
}

/// Claims a batch; one key whose row is held must not fail its neighbours, so then each is claimed for itself.
async fn claim(app: &App, batch: Vec<Ticket>, claimed: &mpsc::UnboundedSender<Claimed>) {
    let Some((batch, error)) = claim_together(app, batch, claimed).await else { return };
    if !matches!(error, StoreError::Busy(_)) {
        return refuse(batch, &error);
    }
    let alone = batch.len() == 1;
    let error = Arc::new(error);
    for ticket in batch {
        let (app, claimed, error) = (app.clone(), claimed.clone(), error.clone());
        tokio::spawn(async move {
            let Some(ticket) = tell_what_stands(&app, ticket).await else { return };
            if alone {
                refuse(vec![ticket], &error);
            } else if let Some((ticket, error)) = claim_together(&app, vec![ticket], &claimed).await {
                refuse(ticket, &error);
            }
        });
    }
}

/// Answers a repeat from what stands, which waits for no lock. A ticket that nothing stands for comes back.
async fn tell_what_stands(app: &App, ticket: Ticket) -> Option<Ticket> {
    let request = claim_request(&ticket);
    match app.keys.look(&request.id, &request.fingerprint).await {
        Ok(Some(Claim::InProgress { lease_left })) if lease_left.is_zero() => Some(ticket),
        Ok(Some(stands)) => {
            ticket.answer(answer_of(stands));
            None
        }
        Ok(None) | Err(_) => Some(ticket),
    }
}

/// One claim for all: what was won goes on to the writers, everybody else is answered. On an error the batch comes back.
async fn claim_together(
    app: &App,
    batch: Vec<Ticket>,
    claimed: &mpsc::UnboundedSender<Claimed>,
) -> Option<(Vec<Ticket>, StoreError)> {
    let requests: Vec<ClaimRequest> = batch.iter().map(claim_request).collect();
    let claims = match app.keys.claim(&requests).await {
        Ok(claims) => claims,
        Err(error) => return Some((batch, error)),
    };
    for (ticket, claim) in batch.into_iter().zip(claims) {
        match claim {
            Claim::Claimed(won) => drop(claimed.send(Claimed { ticket, won })),
            stands => ticket.answer(answer_of(stands)),
        }
    }
    None
}

fn refuse(batch: Vec<Ticket>, error: &StoreError) {
    tracing::warn!(orders = batch.len(), %error, "orders could not be claimed");
    for ticket in batch {
        ticket.answer(Err(Error::unavailable(&error.to_string())));
    }
}

fn claim_request(ticket: &Ticket) -> ClaimRequest {
    let asked = &ticket.asked;
    let id = RecordId { account: asked.account, operation: PLACE, key: asked.key.clone() };
    ClaimRequest { id, fingerprint: asked.fingerprint.clone() }
}

impl Settling {
    /// The loop of one writer.
    async fn write(self, waiting: Arc<Mutex<mpsc::UnboundedReceiver<Claimed>>>) {
        loop {
            let mut batch = Vec::with_capacity(BATCH);
            if waiting.lock().await.recv_many(&mut batch, BATCH).await == 0 {
                return;
            }
            self.batch(batch).await;
        }
    }

    /// Settles a batch, without those whose goods are known to be held; when it fails as a whole, one by one.
    async fn batch(&self, batch: Vec<Claimed>) {
        let (stopped, batch): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|claimed| self.held.stops(&claimed.ticket.asked));
        stopped.into_iter().for_each(|claimed| self.to_slow_lane(claimed));
        if batch.is_empty() {
            return;
        }
        let patience = BATCH_LOCK_WAIT.min(self.app.config.statement_timeout() / 2);
        match self.settle(&batch, patience).await {
            Ok(settled) => self.hand_out(batch, settled).await,
            Err(error) if batch.len() > 1 && !matches!(error, StoreError::Unreachable(_)) => {
                tracing::debug!(orders = batch.len(), %error, "a batch is settled one by one");
                self.one_by_one(batch).await;
            }
            Err(StoreError::Busy(_)) => batch.into_iter().for_each(|claimed| self.to_slow_lane(claimed)),
            Err(error) => self.give_up(batch, &error).await,
        }
    }

    /// Each order for itself. The first that meets a held row sends all that want the same goods to the slow lane.
    async fn one_by_one(&self, batch: Vec<Claimed>) {
        for claimed in batch {
            if self.held.stops(&claimed.ticket.asked) {
                self.to_slow_lane(claimed);
                continue;
            }
            let one = [claimed];
            match self.settle(&one, SINGLE_LOCK_WAIT).await {
                Ok(settled) => self.hand_out(one.into(), settled).await,
                Err(StoreError::Busy(_)) => one.into_iter().for_each(|claimed| self.to_slow_lane(claimed)),
                Err(error) => self.give_up(one.into(), &error).await,
            }
        }
    }

    /// Waits for a held row in a task of its own, as long as its caller waits.
    fn to_slow_lane(&self, claimed: Claimed) {
        let (this, goods) = (self.clone(), goods(&claimed.ticket.asked));
        self.held.waits(goods.clone());
        tokio::spawn(async move {
            let one = [claimed];
            let result = this.settle_aside(&one).await;
            this.held.leaves(&goods, result.is_ok());
            match result {
                Ok(settled) => this.hand_out(one.into(), settled).await,
                Err(error) => this.give_up(one.into(), &error).await,
            }
        });
    }

    /// Tries again and again, in turn with all others that wait aside.
    async fn settle_aside(&self, one: &[Claimed; 1]) -> std::result::Result<Vec<Settled>, StoreError> {
        let deadline = one[0].ticket.deadline;
        loop {
            let lane = tokio::time::timeout_at(deadline.into(), self.slow_lanes.acquire()).await;
            let patience = deadline.saturating_duration_since(Instant::now()).min(LANE_LOCK_WAIT);
            if lane.is_err() || patience.is_zero() {
                return Err(StoreError::Busy("the rows of this order are held by somebody else".into()));
            }
            match self.settle(one, patience).await {
                Err(StoreError::Busy(_)) => {}
                result => return result,
            }
        }
    }

    /// One transaction, tried again when the connection breaks: after an unknown commit the fence tells what stands.
    async fn settle(&self, batch: &[Claimed], lock_wait: Duration) -> std::result::Result<Vec<Settled>, StoreError> {
        let orders: Vec<Placing> = batch
            .iter()
            .map(|claimed| Placing { asked: claimed.ticket.asked.clone(), epoch: claimed.won.fence.epoch })
            .collect();
        let config = &self.app.config;
        let rules = SettleRules {
            key_ttl: config.key_ttl,
            lock_wait,
            first_check: config.lease,
            render: self.app.answers.placed,
        };
        let mut tries = 0;
        loop {
            match self.app.store.settle(&orders, &rules).await {
                Err(StoreError::Unreachable(reason)) if tries < RECONNECTS && awaited(batch) => {
                    tries += 1;
                    tracing::warn!(%reason, tries, "a batch is settled again after its connection broke");
                    tokio::time::sleep(RECONNECT_PAUSE * tries).await;
                }
                result => return result,
            }
        }
    }

    /// Gives each caller its own outcome.
    async fn hand_out(&self, batch: Vec<Claimed>, settled: Vec<Settled>) {
        for (claimed, settled) in batch.into_iter().zip(settled) {
            match settled {
                Settled::Decided { decision, answer, leaked } => {
                    unique::count(&decision, leaked, &claimed.won.fence.id);
                    claimed.ticket.answer(outcome_of(decision, answer));
                }
                Settled::Unpaid(order) => {
                    unique::count_unpaid(order == claimed.ticket.asked.id, &claimed.won.fence.id);
                    self.charge(claimed, order);
                }
                Settled::Fenced => self.overtaken(claimed.ticket),
            }
        }
    }

    /// The order stands and waits for the provider's word: in a task of its own, so that the desk goes on meanwhile.
    fn charge(&self, claimed: Claimed, order: OrderId) {
        let app = self.app.clone();
        tokio::spawn(async move {
            let Claimed { ticket, won } = claimed;
            let charging =
                Charging { claim: won.fence, order, conclude: app.answers.charged, deadline: ticket.deadline };
            let outcome = charge(&app, charging).await;
            ticket.answer(outcome);
        });
    }

    /// A worker that lost its lease answers what the one that took over answered, or 503.
    fn overtaken(&self, ticket: Ticket) {
        let (app, id) = (self.app.clone(), claim_request(&ticket).id);
        key::lease_lost(&id);
        tokio::spawn(async move {
            let outcome = overtaken(&app, &id, ticket.deadline).await;
            ticket.answer(outcome);
        });
    }

    /// Nothing was written: releases the claims, so that a retry runs at once, and says so.
    async fn give_up(&self, batch: Vec<Claimed>, error: &StoreError) {
        tracing::warn!(orders = batch.len(), %error, "orders could not be settled");
        let fences: Vec<_> = batch.iter().map(|claimed| claimed.won.fence.clone()).collect();
        if let Err(error) = self.app.keys.release(&fences).await {
            tracing::warn!(%error, "claims could not be released; their leases run out by themselves");
        }
        for claimed in batch {
            if matches!(error, StoreError::Broken(_)) {
                self.app.forget_account(claimed.ticket.asked.account);
            }
            claimed.ticket.answer(Err(Error::unavailable(&error.to_string())));
        }
    }
}

/// Whether anybody still waits for an outcome.
fn awaited(batch: &[Claimed]) -> bool {
    batch.iter().any(|claimed| claimed.ticket.deadline > Instant::now())
}

fn outcome_of(decision: Decision, answer: Answer) -> Result<Reply> {
    match decision {
        Decision::Placed(_) | Decision::Refused(_) => Ok(Reply { answer, replayed: false }),
        Decision::Stands { same: true, .. } => Ok(Reply { answer, replayed: true }),
        Decision::Stands { order, same: false } => Err(Error::KeyReused(crate::error::Earlier::Order(order))),
        Decision::Invalid(errors) => Err(Error::Invalid(errors)),
    }
}
