//! What was read last of products and clock, to decide by without asking. It need not be right: the statement that writes holds
//! it against what is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quick_cache::sync::Cache;
use time::OffsetDateTime;

use crate::order::Product;
use crate::order::decide::{Asked, Shop};
use crate::order::values::Sku;

/// How many products are remembered.
const PRODUCTS: usize = 10_000;
/// How long the database's clock is reckoned from one reading: neither clock drifts by a millisecond in that time.
const RECKONED: Duration = Duration::from_secs(10);
/// More of everything than can be taken: whether there is enough is for the database to say.
const PLENTY: i64 = i64::MAX / 4;

/// One for each process.
pub(in super::super) struct Lately {
    products: Cache<Sku, Product>,
    /// The database's clock at a moment of ours.
    clock: Mutex<Option<(Instant, OffsetDateTime)>>,
    /// Whether the batch before could have been placed as a whole. Among repeats and refusals a guess is wasted.
    hopeful: AtomicBool,
}

impl Default for Lately {
    fn default() -> Self {
        Self { products: Cache::new(PRODUCTS), clock: Mutex::default(), hopeful: AtomicBool::new(true) }
    }
}

impl Lately {
    /// What a decision about this batch will probably find.
    pub(super) fn guess(&self, batch: &[&Asked]) -> Option<Shop> {
        if !self.hopeful.load(Ordering::Relaxed) {
            return None;
        }
        let now = self.now()?;
        let skus = batch.iter().flat_map(|asked| &asked.request.lines).map(|line| &line.sku);
        let known = |sku: &Sku| Some((sku.clone(), Product { stock: PLENTY, ..self.products.get(sku)? }));
        let products = skus.map(known).collect::<Option<_>>()?;
        let balances = batch.iter().map(|asked| (asked.account, PLENTY)).collect();
        Some(Shop { products, balances, standing: Vec::new(), now })
    }

    /// Whole milliseconds, as the database tells them.
    fn now(&self) -> Option<OffsetDateTime> {
        let (at, then) = (*self.clock.lock().unwrap_or_else(PoisonError::into_inner))?;
        let since = at.elapsed();
        (since < RECKONED).then(|| then + Duration::from_millis(u64::try_from(since.as_millis()).unwrap_or(0)))
    }

    /// The database has told its clock.
    pub(super) fn told(&self, now: OffsetDateTime) {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), now));
    }

    /// What was read.
    pub(super) fn saw(&self, shop: &Shop) {
        self.told(shop.now);
        for product in shop.products.values() {
            self.products.insert(product.sku.clone(), product.clone());
        }
    }

    /// Whether the next batch is likely to be placed as a whole.
    pub(super) fn expects(&self, hopeful: bool) {
        self.hopeful.store(hopeful, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use time::UtcOffset;

    use super::*;
    use crate::order::values::{AccountId, Currency, Fingerprint, Key, OrderId, Quantity};
    use crate::order::{Method, NewOrder, Wanted};

    fn asked(sku: &str) -> Asked {
        let lines = vec![Wanted { sku: Sku::parse(sku).unwrap(), quantity: Quantity::new(1).unwrap() }];
        Asked {
            id: OrderId::new(),
            account: AccountId::new(),
            key: Key::parse("k").unwrap(),
            fingerprint: Fingerprint::stored("f"),
            request: NewOrder { lines, method: Method::Balance, payment_method: None, reference: None, note: None },
            repeat_notice: None,
        }
    }

    fn shop(sku: &str, now: OffsetDateTime) -> Shop {
        let sku = Sku::parse(sku).unwrap();
        let currency = Currency::parse("EUR").unwrap();
        let product = Product { sku: sku.clone(), name: "Tea".into(), unit_price: 100, currency, stock: 0 };
        Shop { products: BTreeMap::from([(sku, product)]), balances: HashMap::new(), standing: Vec::new(), now }
    }

    #[test]
    fn what_was_read_is_guessed_with_plenty_of_it_and_what_was_not_is_not_guessed() {
        let (lately, tea, pot) = (Lately::default(), asked("TEA"), asked("POT"));
        assert!(lately.guess(&[&tea]).is_none(), "nothing was read");
        let now = OffsetDateTime::UNIX_EPOCH.to_offset(UtcOffset::UTC);
        lately.saw(&shop("TEA", now));
        let guess = lately.guess(&[&tea]).unwrap();
        let product = guess.products.values().next().unwrap();
        assert_eq!((product.unit_price, product.stock, guess.balances[&tea.account]), (100, PLENTY, PLENTY));
        assert!(guess.now >= now && guess.now < now + RECKONED, "reckoned from the database's clock, not from ours");
        assert!(lately.guess(&[&tea, &pot]).is_none());
        lately.expects(false);
        assert!(lately.guess(&[&tea]).is_none());
        lately.expects(true);
        assert!(lately.guess(&[&tea]).is_some());
    }
}
