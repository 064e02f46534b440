//! What was read last of products and clock, to decide by without asking. It need not be right: the statement that writes holds
//! it against what is.

use std::sync::atomic::{AtomicU8, Ordering};
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
/// The most of what is hoped: a few failures in a row and nothing is guessed any more.
const HOPE: u8 = 3;
/// More of everything than can be taken: whether there is enough is for the database to say.
const PLENTY: i64 = i64::MAX / 4;

/// One for each process.
pub(super) struct Lately {
    products: Cache<Sku, Product>,
    /// The database's clock at a moment of ours.
    clock: Mutex<Option<(Instant, OffsetDateTime)>>,
    /// How many of the batches before could be placed as a whole, of late: one more for each, one less for each that could not. At
    /// 0, among repeats and refusals, a guess is wasted.
    hope: AtomicU8,
}

impl Default for Lately {
    fn default() -> Self {
        Self { products: Cache::new(PRODUCTS), clock: Mutex::default(), hope: AtomicU8::new(HOPE) }
    }
}

impl Lately {
    /// What a decision about this batch will probably find.
    pub(super) fn guess(&self, batch: &[&Asked]) -> Option<Shop> {
        if self.hope.load(Ordering::Relaxed) == 0 {
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

    /// Whether this batch could be placed as a whole: so will the next, probably. Two that say so at once may count as one.
    pub(super) fn met(&self, whole: bool) {
        let hope = self.hope.load(Ordering::Relaxed);
        self.hope.store(if whole { (hope + 1).min(HOPE) } else { hope.saturating_sub(1) }, Ordering::Relaxed);
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
        for _ in 0..=HOPE {
            assert!(lately.guess(&[&tea]).is_some() || lately.hope.load(Ordering::Relaxed) == 0);
            lately.met(false);
        }
        assert!(lately.guess(&[&tea]).is_none(), "nothing is hoped for any more");
        lately.met(true);
        assert!(lately.guess(&[&tea]).is_some());
    }
}
