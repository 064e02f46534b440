//! A batch of requests against stock and funds: who is placed, who is refused, and what to write.
//!
//! Pure and in order of arrival, so that property tests can hold it against the invariants. The storage
//! adapters load the rows under lock, call [`decide`], and write what it says.

use std::collections::{BTreeMap, HashMap};

use time::OffsetDateTime;

use super::request::{FieldError, Wrong};
use super::values::{AccountId, Cents, Currency, Fingerprint, Key, MAX_TOTAL, OrderId, Reference, Sku};
use super::{Line, Method, NewOrder, Order, PaymentStatus, Product, Status};

/// One request as the decision sees it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The id the order will have if it is placed.
    pub id: OrderId,
    /// Who asks.
    pub account: AccountId,
    /// The idempotency key of the intent.
    pub key: Key,
    /// What is asked for.
    pub fingerprint: Fingerprint,
    /// The request itself.
    pub request: NewOrder,
    /// Seconds within which an order of the same content under another key makes the answer a
    /// [`Refusal::Repeat`]; `None`: never (API clients, and buyers who said "again").
    pub repeat_notice: Option<u64>,
}

/// An order that stands already and bears on the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its id.
    pub id: OrderId,
    /// Its account.
    pub account: AccountId,
    /// Its key.
    pub key: Key,
    /// Its reference.
    pub reference: Option<Reference>,
    /// Its content.
    pub fingerprint: Fingerprint,
    /// When it was placed.
    pub created_at: OffsetDateTime,
}

/// The rows that a decision needs, loaded under lock; `decide` uses them up as it goes.
#[derive(Clone, Debug)]
pub struct Shop {
    /// The products asked for, as far as they exist.
    pub products: BTreeMap<Sku, Product>,
    /// The balances of the accounts that ask.
    pub balances: HashMap<AccountId, Cents>,
    /// Orders of the same accounts with a key, reference or (if recent) content of the batch.
    pub standing: Vec<Standing>,
    /// The database's clock, in whole milliseconds.
    pub now: OffsetDateTime,
}

/// Why a valid request is refused. A refusal is definite: it is stored under the key and replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not enough in stock of these.
    OutOfStock(Vec<Sku>),
    /// The balance does not cover the total.
    InsufficientFunds,
    /// These are not in the catalogue.
    UnknownSku(Vec<Sku>),
    /// The account has used this reference for that order.
    ReferenceTaken(OrderId),
    /// The account ordered exactly this a moment ago (forms only).
    Repeat {
        /// The earlier order.
        order: OrderId,
        /// How many seconds ago.
        seconds: u64,
    },
}

/// What becomes of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "short-lived, and the large variant is the usual one")]
pub enum Decision {
    /// It is placed: paid already when paid by balance, or when there is nothing to pay.
    Placed(Order),
    /// It is refused, for good.
    Refused(Refusal),
    /// An order of this (account, key) stands already; `same`: with the same content.
    Stands {
        /// The order that stands.
        order: OrderId,
        /// Whether its content is what was asked for.
        same: bool,
    },
    /// It breaks a limit that only the catalogue shows (total, currency): never stored.
    Invalid(Vec<FieldError>),
}

/// What an order costs by the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priced {
    /// The lines at the names and prices of now.
    pub lines: Vec<Line>,
    /// Their sum in minor units, 0 to [`MAX_TOTAL`].
    pub total: Cents,
    /// Of all prices.
    pub currency: Currency,
}

/// Why an order has no price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unpriced {
    /// All those that are not in the catalogue.
    UnknownSku(Vec<Sku>),
    /// Limits that only the catalogue shows: several currencies, a total too large. Told at `/lines`.
    Invalid(Vec<FieldError>),
}

/// Prices an order by the catalogue that `find` looks into. Stock does not matter here.
///
/// # Errors
/// See [`Unpriced`]; nothing is told about the total while a SKU is unknown.
pub fn price<'p>(order: &NewOrder, find: impl Fn(&Sku) -> Option<&'p Product>) -> Result<Priced, Unpriced> {
    let invalid = |wrong| Unpriced::Invalid(vec![FieldError { field: "/lines".into(), wrong }]);
    let found: Vec<_> = order.lines.iter().map(|wanted| (wanted, find(&wanted.sku))).collect();
    let unknown: Vec<_> = found.iter().filter(|(_, p)| p.is_none()).map(|(wanted, _)| wanted.sku.clone()).collect();
    if !unknown.is_empty() {
        return Err(Unpriced::UnknownSku(unknown));
    }
    let (mut lines, mut total, mut currency) = (Vec::with_capacity(found.len()), Some(0_i64), None);
    for (wanted, product) in found.into_iter().filter_map(|(wanted, product)| Some((wanted, product?))) {
        if *currency.get_or_insert(&product.currency) != &product.currency {
            return Err(invalid(Wrong::MixedCurrency));
        }
        let sum = product.unit_price.checked_mul(i64::from(wanted.quantity.get()));
        total = total.zip(sum).and_then(|(total, sum)| total.checked_add(sum));
        lines.push(Line {
            sku: wanted.sku.clone(),
            name: product.name.clone(),
            quantity: wanted.quantity,
            unit_price: product.unit_price,
        });
    }
    let currency = currency.cloned().ok_or_else(|| invalid(Wrong::Nothing))?;
    match total {
        Some(total @ 0..=MAX_TOTAL) => Ok(Priced { lines, total, currency }),
        _ => Err(invalid(Wrong::TooDear)),
    }
}

/// Decides the batch in its order. Stock and funds of what is placed are taken from `shop`, and it is added to the
/// orders that stand, so that a later request, of this batch or the next, meets what the earlier ones left. Answers
/// one decision per request, in the same order.
#[must_use]
pub fn decide<'a>(batch: impl IntoIterator<Item = &'a Asked>, shop: &mut Shop) -> Vec<Decision> {
    batch.into_iter().map(|asked| shop.decide(asked)).collect()
}

impl Shop {
    fn decide(&mut self, asked: &Asked) -> Decision {
        if let Some(earlier) = self.stands(asked) {
            return earlier;
        }
        let priced = match price(&asked.request, |sku| self.products.get(sku)) {
            Ok(priced) => priced,
            Err(Unpriced::UnknownSku(skus)) => return Decision::Refused(Refusal::UnknownSku(skus)),
            Err(Unpriced::Invalid(errors)) => return Decision::Invalid(errors),
        };
        match self.take(asked, &priced) {
            Ok(()) => Decision::Placed(self.place(asked, priced)),
            Err(refusal) => Decision::Refused(refusal),
        }
    }

    /// What an order of the same account that stands already says to this request.
    fn stands(&self, asked: &Asked) -> Option<Decision> {
        let own = || self.standing.iter().filter(|order| order.account == asked.account);
        if let Some(order) = own().find(|order| order.key == asked.key) {
            return Some(Decision::Stands { order: order.id, same: order.fingerprint == asked.fingerprint });
        }
        let taken = |order: &&Standing| asked.request.reference.is_some() && order.reference == asked.request.reference;
        if let Some(order) = own().find(taken) {
            return Some(Decision::Refused(Refusal::ReferenceTaken(order.id)));
        }
        let (order, seconds) = own()
            .filter(|order| order.fingerprint == asked.fingerprint)
            .map(|order| (order.id, (self.now - order.created_at).whole_seconds().max(0).unsigned_abs()))
            .min_by_key(|(_, seconds)| *seconds)?;
        let recent = asked.repeat_notice.is_some_and(|notice| seconds < notice);
        recent.then_some(Decision::Refused(Refusal::Repeat { order, seconds }))
    }

    /// Takes stock, and funds when they pay; all of it or nothing.
    fn take(&mut self, asked: &Asked, priced: &Priced) -> Result<(), Refusal> {
        let stock = |sku| self.products.get(sku).map_or(0, |product| product.stock);
        let short = priced.lines.iter().filter(|line| stock(&line.sku) < i64::from(line.quantity.get()));
        let short: Vec<_> = short.map(|line| line.sku.clone()).collect();
        if !short.is_empty() {
            return Err(Refusal::OutOfStock(short));
        }
        if asked.request.method == Method::Balance {
            let funds = self.balances.get(&asked.account).copied().unwrap_or(0);
            let left = funds.saturating_sub(priced.total);
            if left < 0 {
                return Err(Refusal::InsufficientFunds);
            }
            self.balances.insert(asked.account, left);
        }
        for line in &priced.lines {
            if let Some(product) = self.products.get_mut(&line.sku) {
                product.stock -= i64::from(line.quantity.get());
            }
        }
        Ok(())
    }

    fn place(&mut self, asked: &Asked, Priced { lines, total, currency }: Priced) -> Order {
        // Where there is nothing to charge, no provider is asked.
        let (status, payment) = match asked.request.method {
            Method::Card if total > 0 => (Status::Pending, PaymentStatus::Started),
            Method::Balance | Method::Card => (Status::Paid, PaymentStatus::Captured),
        };
        let reference = asked.request.reference.clone();
        self.standing.push(Standing {
            id: asked.id,
            account: asked.account,
            key: asked.key.clone(),
            reference: reference.clone(),
            fingerprint: asked.fingerprint.clone(),
            created_at: self.now,
        });
        Order {
            id: asked.id,
            account: asked.account,
            key: asked.key.clone(),
            fingerprint: asked.fingerprint.clone(),
            status,
            lines,
            total,
            currency,
            method: asked.request.method,
            payment,
            reference,
            note: asked.request.note.clone(),
            coupon: None,
            created_at: self.now,
        }
    }
}

#[cfg(test)]
mod tests;
