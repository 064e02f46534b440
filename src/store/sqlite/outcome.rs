//! What a batch was decided to come to, whichever way it went, and what of it is the same on both: stock, funds, orders.

use std::collections::{BTreeMap, HashMap};

use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;

use super::placing::{self, Left};
use super::row::{span, to_millis};
use super::{Result, StoreError, Tx, orders};
use crate::order::decide::{Asked, Decision, Shop};
use crate::order::values::{AccountId, Cents, OrderId, Sku};
use crate::order::{Method, Order, Status};
use crate::store::{Answer, SettleRules, Settled};

/// The epoch of a record that was not there before.
pub(super) const NEW_RECORD: i64 = 1;

/// One order of a batch, decided and with its answer.
pub(super) struct Outcome<'a> {
    pub(super) asked: &'a Asked,
    /// Of its record.
    pub(super) epoch: i64,
    pub(super) decision: Decision,
    /// With [`Decision::Stands`]: the order.
    pub(super) standing: Option<Order>,
    pub(super) answer: Answer,
}

impl<'a> Outcome<'a> {
    /// Renders the answer that belongs to the record.
    pub(super) fn new(asked: &'a Asked, epoch: i64, decision: Decision, rules: &SettleRules) -> Self {
        let answer = (rules.render)(&decision, None);
        Self { asked, epoch, decision, standing: None, answer }
    }

    /// The same where an order stands. Its record speaks of the order, also where other content was asked for now: whoever
    /// repeats the original request must be given the order, not this caller's refusal.
    pub(super) async fn of(
        tx: &mut Tx,
        asked: &'a Asked,
        epoch: i64,
        decision: Decision,
        rules: &SettleRules,
    ) -> Result<Self> {
        let Decision::Stands { order, .. } = decision else { return Ok(Self::new(asked, epoch, decision, rules)) };
        // Rare, so one by one.
        let missing = || StoreError::Broken(format!("order {order} stands and cannot be read"));
        let standing = orders::load(&mut **tx, asked.account, order).await?.ok_or_else(missing)?;
        let answer = (rules.render)(&Decision::Stands { order, same: true }, Some(&standing));
        Ok(Self { asked, epoch, decision, standing: Some(standing), answer })
    }

    fn placed(&self) -> Option<&Order> {
        match &self.decision {
            Decision::Placed(order) => Some(order),
            _ => None,
        }
    }

    /// The order that was asked for, where the provider has yet to say what became of its payment: its record stays
    /// `processing`, and whoever writes down the provider's word concludes it.
    pub(super) fn unpaid(&self) -> Option<OrderId> {
        let asked_for = match &self.decision {
            Decision::Placed(order) => Some(order),
            Decision::Stands { same: true, .. } => self.standing.as_ref(),
            _ => None,
        };
        asked_for.filter(|order| awaits_provider(order)).map(|order| order.id)
    }

    /// Whether no record is kept: an invalid request never had the key; and the record of an order that is not paid yet
    /// belongs to whoever asks for that order, not to somebody with other content.
    pub(super) fn forgotten(&self) -> bool {
        match &self.decision {
            Decision::Invalid(_) => true,
            Decision::Stands { same: false, .. } => self.standing.as_ref().is_some_and(awaits_provider),
            _ => false,
        }
    }

    pub(super) fn settled(self, rules: &SettleRules, now: i64) -> Settled {
        if let Some(unpaid) = self.unpaid() {
            return Settled::Unpaid(unpaid);
        }
        // A record younger than the answer's life was missing: layer 2 let this through.
        let young = |order: &Order| now - to_millis(order.created_at) < span(rules.key_ttl);
        let leaked = self.epoch == NEW_RECORD && self.standing.as_ref().is_some_and(young);
        Settled::Decided { decision: self.decision, answer: self.answer, leaked }
    }
}

fn awaits_provider(order: &Order) -> bool {
    order.status == Status::Pending && order.method == Method::Card
}

/// Stock and funds as they were before the decisions used them up.
pub(super) struct Means {
    stock: BTreeMap<Sku, i64>,
    balances: HashMap<AccountId, Cents>,
}

impl Means {
    pub(super) fn of(shop: &Shop) -> Self {
        let stock = shop.products.iter().map(|(sku, product)| (sku.clone(), product.stock)).collect();
        Self { stock, balances: shop.balances.clone() }
    }

    /// What is left in the `shop` of what was taken from, once for each row, however many orders shared it.
    fn left<'s>(&self, shop: &'s Shop) -> Left<'s> {
        let stock = shop.products.iter().filter(|(sku, product)| self.stock.get(*sku) != Some(&product.stock));
        let balances = shop.balances.iter().filter(|(account, balance)| self.balances.get(*account) != Some(*balance));
        Left {
            stock: stock.map(|(sku, product)| (sku.as_str(), product.stock)).collect(),
            balances: balances.map(|(account, balance)| (account.0, *balance)).collect(),
        }
    }

    /// The statements that write what was taken from the `shop`, and the orders that took it; see [`placing::statements`].
    pub(super) fn statements<'q>(
        &self,
        sql: &'static str,
        shop: &Shop,
        outcomes: &[Outcome<'_>],
        rules: &SettleRules,
        now: i64,
    ) -> Query<'q, sqlx::Sqlite, SqliteArguments> {
        let placed = outcomes.iter().filter_map(|outcome| Some((outcome.asked, outcome.placed()?)));
        placing::statements(sql, self.left(shop), &placed.collect::<Vec<_>>(), now, span(rules.first_check))
    }
}
