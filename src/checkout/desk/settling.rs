//! Settling what was claimed, each batch in one transaction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use super::held::{Held, goods};
use super::{BATCH, Claimed, Waiting, claim_request};
use crate::app::{App, Reply, Ticket};
use crate::checkout::charge::{Charging, charge};
use crate::checkout::settled::overtaken;
use crate::error::{Error, Result};
use crate::guard::{key, unique};
use crate::order::decide::Decision;
use crate::order::values::OrderId;
use crate::store::{Answer, Placing, SettleRules, Settled, StoreError};

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

/// What a writer works with.
#[derive(Clone)]
pub(super) struct Settling {
    pub(super) app: App,
    pub(super) held: Arc<Held>,
    slow_lanes: Arc<Semaphore>,
}

impl Settling {
    pub(super) fn new(app: &App, held: Arc<Held>) -> Self {
        Self { app: app.clone(), held, slow_lanes: Arc::new(Semaphore::new(SLOW_LANES)) }
    }

    /// The loop of one writer.
    pub(super) async fn work(self, waiting: Waiting<Claimed>) {
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
            Ok(settled) => self.hand_out(batch, settled),
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
                Ok(settled) => self.hand_out(one.into(), settled),
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
                Ok(settled) => this.hand_out(one.into(), settled),
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
        let rules = self.rules(lock_wait);
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

    pub(super) fn rules(&self, lock_wait: Duration) -> SettleRules {
        let config = &self.app.config;
        SettleRules { key_ttl: config.key_ttl, lock_wait, first_check: config.lease, render: self.app.answers.placed }
    }

    /// Gives each caller its own outcome.
    fn hand_out(&self, batch: Vec<Claimed>, settled: Vec<Settled>) {
        batch.into_iter().zip(settled).for_each(|(claimed, settled)| self.give(claimed, settled));
    }

    /// Gives a caller its outcome.
    pub(super) fn give(&self, claimed: Claimed, settled: Settled) {
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
