//! Repeats of finished intents: every answer must be a replayed 201 whose body is, byte for byte, the first one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};

use crate::clients::{Client, Shared};
use crate::http::Connection;
use crate::orders::wrong;
use crate::shop::{Fill, Intent, Shop};
use crate::tally::Outcome;

/// The intents that `seed` placed, with the first answer to each.
pub struct Firsts(Vec<(Intent, Vec<u8>)>);

impl Firsts {
    /// Reads what `seed` wrote.
    ///
    /// # Errors
    /// When the file cannot be read, or has none.
    pub fn read(file: &Path, shop: &Shop) -> Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let line = |line: &str| {
            let (n, body) = line.split_once(' ').context("not a number and a body")?;
            Ok((Intent::seeded(shop, n.parse()?), body.as_bytes().to_vec()))
        };
        let firsts = text.lines().map(line).collect::<Result<Vec<_>>>()?;
        ensure!(!firsts.is_empty(), "no first answers in {}", file.display());
        Ok(Self(firsts))
    }

    /// The first `limit` of them.
    pub fn limited_to(mut self, limit: usize) -> Self {
        self.0.truncate(limit);
        self
    }

    /// Any of them.
    pub fn any(&self) -> (&Intent, &[u8]) {
        let (intent, body) = &self.0[fastrand::usize(..self.0.len())];
        (intent, body)
    }
}

/// Sends an intent once more and looks at the answer.
///
/// # Errors
/// When the connection breaks.
pub async fn replay(
    shop: &Shop,
    connection: &mut Connection,
    request: &mut Vec<u8>,
    intent: &Intent,
    first: &[u8],
    tally: &Shared,
) -> Result<Outcome> {
    shop.order(request, intent.account, &intent.key, &[(&intent.sku, 1)]);
    let answer = connection.exchange(request).await?;
    if answer.status == 201 && answer.replayed && answer.body == first {
        tally.borrow_mut().replayed += 1;
        return Ok(Outcome::Right);
    }
    Ok(wrong(&answer))
}

/// Repeats any of the seeded intents.
pub struct Replay {
    shop: Arc<Shop>,
    firsts: Arc<Firsts>,
    request: Vec<u8>,
}

impl Replay {
    /// A client.
    pub fn new(shop: &Arc<Shop>, firsts: &Arc<Firsts>) -> Self {
        Self { shop: shop.clone(), firsts: firsts.clone(), request: Vec::new() }
    }
}

impl Client for Replay {
    async fn work(&mut self, connection: &mut Connection, tally: &Shared) -> Result<Outcome> {
        let (intent, first) = self.firsts.any();
        replay(&self.shop, connection, &mut self.request, intent, first, tally).await
    }
}

/// Intents of which each is repeated once.
pub trait Source {
    /// The one at this place, counted from 0; `None`: there are no more.
    ///
    /// # Errors
    /// When it cannot be made.
    fn at(&self, shop: &Shop, place: u64) -> Result<Option<(Intent, Vec<u8>)>>;
}

impl Source for Firsts {
    fn at(&self, _shop: &Shop, place: u64) -> Result<Option<(Intent, Vec<u8>)>> {
        Ok(self.0.get(usize::try_from(place)?).cloned())
    }
}

impl Source for Fill {
    /// All over the table, as retries come. A prime that divides no number of orders in use, so that none comes twice.
    fn at(&self, shop: &Shop, place: u64) -> Result<Option<(Intent, Vec<u8>)>> {
        const STRIDE: u64 = 2_654_435_761;
        if place >= self.orders {
            return Ok(None);
        }
        let n = u64::try_from(u128::from(place) * u128::from(STRIDE) % u128::from(self.orders))? + 1;
        self.order(shop, n).map(Some)
    }
}

/// Repeats each intent of the source once, the clients together.
pub struct Once<S> {
    shop: Arc<Shop>,
    source: Arc<S>,
    next: Arc<AtomicU64>,
    current: Option<(Intent, Vec<u8>)>,
    request: Vec<u8>,
}

impl<S: Source> Once<S> {
    /// A client; `next` is shared by all.
    pub fn new(shop: &Arc<Shop>, source: &Arc<S>, next: &Arc<AtomicU64>) -> Self {
        let (source, next) = (source.clone(), next.clone());
        Self { shop: shop.clone(), source, next, current: None, request: Vec::new() }
    }
}

impl<S: Source> Client for Once<S> {
    fn next(&mut self) -> bool {
        self.current = self.source.at(&self.shop, self.next.fetch_add(1, Ordering::Relaxed)).ok().flatten();
        self.current.is_some()
    }

    async fn work(&mut self, connection: &mut Connection, tally: &Shared) -> Result<Outcome> {
        let (intent, first) = self.current.as_ref().context("nothing is due")?;
        replay(&self.shop, connection, &mut self.request, intent, first, tally).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_filled_order_is_repeated_once() {
        let tokens = std::env::temp_dir().join(format!("oncegate-load-{}", std::process::id()));
        std::fs::write(&tokens, "poor\n1\n2\n3\n").unwrap();
        let shop = Shop::read(&tokens, 7).unwrap();
        std::fs::remove_file(&tokens).unwrap();
        let fill = Fill { orders: 1000 };
        let keys: std::collections::BTreeSet<String> =
            (0..1000).map(|place| fill.at(&shop, place).unwrap().unwrap().0.key).collect();
        assert_eq!(keys.len(), 1000);
        assert!(fill.at(&shop, 1000).unwrap().is_none());
    }
}
