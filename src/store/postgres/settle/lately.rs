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
