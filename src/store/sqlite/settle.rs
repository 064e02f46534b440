//! Settling a batch: one transaction, decided in pure Rust between its reads and its writes.
//!
//! The write lock is held from the first read on, so there is nothing to undo: a fence that holds when it is looked
//! at holds at the commit, and a standing order that was not there cannot come in between. The fences and constraints
//! are written against all the same; one that speaks here means a bug, and rolls the whole batch back.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::row::{from_millis, span, to_millis};
use super::{Commit, Result, Sqlite, StoreError, Tx, accounts, catalogue, clock, fault, orders, placing, records};
use crate::order::decide::{Asked, Decision, Shop, Standing, decide};
use crate::order::values::{AccountId, Cents, OrderId, Sku};
use crate::order::{Method, Order, Status};
use crate::store::{Answer, Fence, Placing, RecordId, SettleRules, Settled};

pub(super) async fn settle(store: &Sqlite, batch: &[Placing], rules: &SettleRules) -> Result<Vec<Settled>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let mut tx = store.begin_within(Commit::Durable, rules.lock_wait).await?;
    let now = clock(&mut tx).await?;
    let mut settled = vec![Settled::Fenced; batch.len()];
    let mut ours = Vec::with_capacity(batch.len());
    for (place, placing) in batch.iter().enumerate() {
        if records::holds(&mut tx, &fence(placing)).await? {
            ours.push(place);
        }
    }
    let asked: Vec<Asked> = ours.iter().map(|&place| batch[place].asked.clone()).collect();
    let mut shop = load(&mut tx, &asked, now).await?;
    let (stock, balances) = (stock(&shop), shop.balances.clone());
    let decisions = decide(&asked, &mut shop);
    write_stock_and_funds(&mut tx, &shop, &stock, &balances).await?;
    for (place, decision) in ours.into_iter().zip(decisions) {
        let writing = Writing { tx: &mut tx, placing: &batch[place], rules, now };
        settled[place] = writing.write(decision).await?;
    }
    tx.commit().await.map_err(fault)?;
    Ok(settled)
}

fn fence(placing: &Placing) -> Fence {
    let id = RecordId { account: placing.asked.account, operation: "place_order", key: placing.asked.key.clone() };
    Fence { id, epoch: placing.epoch }
}

// --- reading ---

async fn load(tx: &mut Tx, asked: &[Asked], now: i64) -> Result<Shop> {
    let skus: BTreeSet<&Sku> = asked.iter().flat_map(|a| a.request.lines.iter().map(|line| &line.sku)).collect();
    let mut products = BTreeMap::new();
    for sku in skus {
        if let Some(product) = catalogue::one(tx, sku).await? {
            products.insert(sku.clone(), product);
        }
    }
    let mut balances = HashMap::new();
    for account in asked.iter().map(|a| a.account).collect::<BTreeSet<_>>() {
        balances.insert(account, accounts::balance_of(&mut **tx, account).await?);
    }
    let mut standing: BTreeMap<OrderId, Standing> = BTreeMap::new();
    for one in asked {
        standing.extend(orders::standing(tx, one, now).await?.into_iter().map(|order| (order.id, order)));
    }
    let now = from_millis(now).ok_or_else(|| StoreError::Broken("the clock is out of range".into()))?;
    Ok(Shop { products, balances, standing: standing.into_values().collect(), now })
}

fn stock(shop: &Shop) -> BTreeMap<Sku, i64> {
    shop.products.iter().map(|(sku, product)| (sku.clone(), product.stock)).collect()
}

// --- writing ---

/// Writes what the decisions have used up, once for each row however many orders shared it.
async fn write_stock_and_funds(
    tx: &mut Tx,
    shop: &Shop,
    stock: &BTreeMap<Sku, i64>,
    balances: &HashMap<AccountId, Cents>,
) -> Result<()> {
    for (sku, product) in &shop.products {
        if stock.get(sku) != Some(&product.stock) {
            catalogue::write_stock(tx, sku, product.stock).await?;
        }
    }
    for (account, balance) in &shop.balances {
        if balances.get(account) != Some(balance) {
            accounts::write_balance(tx, *account, *balance).await?;
        }
    }
    Ok(())
}

/// One order of a batch on its way into the tables.
struct Writing<'a> {
    tx: &'a mut Tx,
    placing: &'a Placing,
    rules: &'a SettleRules,
    now: i64,
}

impl Writing<'_> {
    async fn write(mut self, decision: Decision) -> Result<Settled> {
        let standing = match &decision {
            Decision::Placed(order) => {
                let first_check = span(self.rules.first_check);
                placing::insert(self.tx, &self.placing.asked, order, self.now, first_check).await?;
                None
            }
            Decision::Stands { order, .. } => Some(self.standing(*order).await?),
            Decision::Refused(_) | Decision::Invalid(_) => None,
        };
        if let Some(unpaid) = unpaid(&decision, standing.as_ref()) {
            let held = records::name_order(self.tx, &fence(self.placing), unpaid).await?;
            return self.held(held).map(|()| Settled::Unpaid(unpaid));
        }
        let answer = self.render(&decision, standing.as_ref());
        self.settle_record(&decision, standing.as_ref(), &answer).await?;
        let leaked = standing.is_some_and(|order| self.leaked(&order));
        Ok(Settled::Decided { decision, answer, leaked })
    }

    async fn standing(&mut self, id: OrderId) -> Result<Order> {
        let order = orders::load(&mut **self.tx, self.placing.asked.account, id).await?;
        order.ok_or_else(|| StoreError::Broken(format!("order {id} stands and cannot be read")))
    }

    /// The answer that belongs to the record. A standing order's record speaks of the order, also where other content
    /// was asked for now: whoever repeats the original request must be given the order, not this caller's refusal.
    fn render(&self, decision: &Decision, standing: Option<&Order>) -> Answer {
        match (decision, standing) {
            (Decision::Stands { order, .. }, Some(_)) => {
                (self.rules.render)(&Decision::Stands { order: *order, same: true }, standing)
            }
            _ => (self.rules.render)(decision, standing),
        }
    }

    /// What the decision means for the record of the key.
    async fn settle_record(&mut self, decision: &Decision, standing: Option<&Order>, answer: &Answer) -> Result<()> {
        let fence = fence(self.placing);
        // An invalid request never had the key; and the record of an order that is not paid yet belongs to whoever asks
        // for that order, not to somebody with other content.
        if matches!(decision, Decision::Invalid(_)) || standing.is_some_and(awaits_provider) {
            return records::forget(self.tx, &fence).await;
        }
        // A record that was lost and came back is healed: it speaks of the order's content, not of what was asked now.
        let content = standing.map(|order| &order.fingerprint);
        let held = records::store_answer(self.tx, &fence, content, answer, self.now, self.rules.key_ttl).await?;
        self.held(held)
    }

    fn held(&self, held: bool) -> Result<()> {
        let moved = || StoreError::Broken(format!("a fence moved under the lock: {:?}", fence(self.placing).id));
        if held { Ok(()) } else { Err(moved()) }
    }

    /// Whether a record younger than the answer's life was missing: layer 2 let this through.
    fn leaked(&self, order: &Order) -> bool {
        let age = self.now - to_millis(order.created_at);
        self.placing.epoch == 1 && age < span(self.rules.key_ttl)
    }
}

/// The order that was asked for, where the provider has yet to say what became of its payment: its record stays
/// `processing`, and whoever writes down the provider's word concludes it.
fn unpaid(decision: &Decision, standing: Option<&Order>) -> Option<OrderId> {
    let asked_for = match decision {
        Decision::Placed(order) => Some(order),
        Decision::Stands { same: true, .. } => standing,
        _ => None,
    };
    asked_for.filter(|order| awaits_provider(order)).map(|order| order.id)
}

fn awaits_provider(order: &Order) -> bool {
    order.status == Status::Pending && order.method == Method::Card
}
