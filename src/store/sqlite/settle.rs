//! Settling a batch: one transaction, decided in pure Rust between its reads and its writes. A dozen statements, however
//! many orders: each is a message to the driver's thread and back, which costs more than the row that it writes.
//!
//! The write lock is held from the first read on, so there is nothing to undo: a fence that holds when it is looked
//! at holds at the commit, and a standing order that was not there cannot come in between. The fences and constraints
//! are written against all the same; one that speaks here means a bug, and rolls the whole batch back.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::row::{span, to_millis};
use super::{Commit, Result, Sqlite, StoreError, Tx, accounts, catalogue, fault, fences, orders, placing, shop};
use crate::order::decide::{Asked, Decision, Shop, decide};
use crate::order::values::{AccountId, Cents, OrderId, Sku};
use crate::order::{Method, Order, Status};
use crate::store::{Answer, Fence, Placing, RecordId, SettleRules, Settled};

pub(super) async fn settle(store: &Sqlite, batch: &[Placing], rules: &SettleRules) -> Result<Vec<Settled>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let mut tx = store.begin_within(Commit::Durable, rules.lock_wait).await?;
    let claims: Vec<Fence> = batch.iter().map(fence).collect();
    let (now, held) = fences::held(&mut tx, &claims).await?;
    let places: Vec<usize> = (0..batch.len()).filter(|&place| held[place]).collect();
    let asked: Vec<Asked> = places.iter().map(|&place| batch[place].asked.clone()).collect();

    let mut shop = shop::load(&mut tx, &asked, now).await?;
    let before = Means::of(&shop);
    let decisions = decide(&asked, &mut shop);
    let mut outcomes = Vec::with_capacity(places.len());
    for (&place, decision) in places.iter().zip(decisions) {
        outcomes.push(Outcome::of(&mut tx, &batch[place], &claims[place], decision, rules).await?);
    }

    before.write_changes(&mut tx, &shop).await?;
    write_orders(&mut tx, &outcomes, rules, now).await?;
    write_records(&mut tx, &outcomes, rules, now).await?;
    tx.commit().await.map_err(fault)?;

    let mut settled = vec![Settled::Fenced; batch.len()];
    for (place, outcome) in places.into_iter().zip(outcomes) {
        settled[place] = outcome.settled(rules, now);
    }
    Ok(settled)
}

fn fence(placing: &Placing) -> Fence {
    let id = RecordId { account: placing.asked.account, operation: "place_order", key: placing.asked.key.clone() };
    Fence { id, epoch: placing.epoch }
}

// --- what was decided ---

/// One order of the batch, decided and with its answer.
struct Outcome<'a> {
    placing: &'a Placing,
    fence: &'a Fence,
    decision: Decision,
    /// With [`Decision::Stands`]: the order.
    standing: Option<Order>,
    answer: Answer,
}

impl<'a> Outcome<'a> {
    /// Renders the answer that belongs to the record. A standing order's record speaks of the order, also where other
    /// content was asked for now: whoever repeats the original request must be given the order, not this caller's
    /// refusal.
    async fn of(
        tx: &mut Tx,
        placing: &'a Placing,
        fence: &'a Fence,
        decision: Decision,
        rules: &SettleRules,
    ) -> Result<Self> {
        let (standing, answer) = match &decision {
            // Rare, so one by one.
            Decision::Stands { order, .. } => {
                let missing = || StoreError::Broken(format!("order {order} stands and cannot be read"));
                let standing = orders::load(&mut **tx, placing.asked.account, *order).await?.ok_or_else(missing)?;
                let said = Decision::Stands { order: *order, same: true };
                let answer = (rules.render)(&said, Some(&standing));
                (Some(standing), answer)
            }
            other => (None, (rules.render)(other, None)),
        };
        Ok(Self { placing, fence, decision, standing, answer })
    }

    fn placed(&self) -> Option<&Order> {
        match &self.decision {
            Decision::Placed(order) => Some(order),
            _ => None,
        }
    }

    /// The order that was asked for, where the provider has yet to say what became of its payment: its record stays
    /// `processing`, and whoever writes down the provider's word concludes it.
    fn unpaid(&self) -> Option<OrderId> {
        let asked_for = match &self.decision {
            Decision::Placed(order) => Some(order),
            Decision::Stands { same: true, .. } => self.standing.as_ref(),
            _ => None,
        };
        asked_for.filter(|order| awaits_provider(order)).map(|order| order.id)
    }

    /// Whether nothing of the claim is kept: an invalid request never had the key; and the record of an order that is
    /// not paid yet belongs to whoever asks for that order, not to somebody with other content.
    fn forgotten(&self) -> bool {
        match &self.decision {
            Decision::Invalid(_) => true,
            Decision::Stands { same: false, .. } => self.standing.as_ref().is_some_and(awaits_provider),
            _ => false,
        }
    }

    fn settled(self, rules: &SettleRules, now: i64) -> Settled {
        if let Some(unpaid) = self.unpaid() {
            return Settled::Unpaid(unpaid);
        }
        // A record younger than the answer's life was missing: layer 2 let this through.
        let young = |order: &Order| now - to_millis(order.created_at) < span(rules.key_ttl);
        let leaked = self.placing.epoch == 1 && self.standing.as_ref().is_some_and(young);
        Settled::Decided { decision: self.decision, answer: self.answer, leaked }
    }
}

fn awaits_provider(order: &Order) -> bool {
    order.status == Status::Pending && order.method == Method::Card
}

// --- writing ---

/// Stock and funds as they were before the decisions used them up.
struct Means {
    stock: BTreeMap<Sku, i64>,
    balances: HashMap<AccountId, Cents>,
}

impl Means {
    fn of(shop: &Shop) -> Self {
        let stock = shop.products.iter().map(|(sku, product)| (sku.clone(), product.stock)).collect();
        Self { stock, balances: shop.balances.clone() }
    }

    /// Once for each row, however many orders shared it.
    async fn write_changes(&self, tx: &mut Tx, shop: &Shop) -> Result<()> {
        let changed = shop.products.iter().filter(|(sku, product)| self.stock.get(*sku) != Some(&product.stock));
        let stock: Vec<(&str, i64)> = changed.map(|(sku, product)| (sku.as_str(), product.stock)).collect();
        if !stock.is_empty() {
            catalogue::write_stock(tx, &stock).await?;
        }
        let changed = shop.balances.iter().filter(|(account, balance)| self.balances.get(*account) != Some(*balance));
        let balances: Vec<(Uuid, Cents)> = changed.map(|(account, balance)| (account.0, *balance)).collect();
        if !balances.is_empty() {
            accounts::write_balances(tx, &balances).await?;
        }
        Ok(())
    }
}

async fn write_orders(tx: &mut Tx, outcomes: &[Outcome<'_>], rules: &SettleRules, now: i64) -> Result<()> {
    let placed = outcomes.iter().filter_map(|outcome| Some((&outcome.placing.asked, outcome.placed()?)));
    placing::insert(tx, &placed.collect::<Vec<_>>(), now, span(rules.first_check)).await
}

/// What the decisions mean for the records of their keys.
async fn write_records(tx: &mut Tx, outcomes: &[Outcome<'_>], rules: &SettleRules, now: i64) -> Result<()> {
    let (mut answered, mut named, mut forgotten) = (Vec::new(), Vec::new(), Vec::new());
    for outcome in outcomes {
        let fence = outcome.fence;
        if outcome.forgotten() {
            forgotten.push(fence);
        } else if let Some(order) = outcome.unpaid() {
            named.push((fence, order));
        } else {
            // A record that was lost and came back is healed: it speaks of the order's content, not of what was asked
            // now.
            let content = outcome.standing.as_ref().map(|order| &order.fingerprint);
            answered.push(fences::Kept { fence, content, answer: &outcome.answer });
        }
    }
    let mut held = 0;
    if !answered.is_empty() {
        held += fences::answer(tx, &answered, now, rules.key_ttl).await?;
    }
    if !named.is_empty() {
        held += fences::name(tx, &named).await?;
    }
    if !forgotten.is_empty() {
        held += fences::forget(tx, &forgotten).await?;
    }
    let moved = || StoreError::Broken("a fence moved under the lock".into());
    if held == outcomes.len() { Ok(()) } else { Err(moved()) }
}
