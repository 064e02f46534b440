//! First answers: each request is a new intent, or one that is to be repeated later.

use std::sync::Arc;

use anyhow::Result;

use crate::clients::{Client, Shared};
use crate::http::{Answer, Connection};
use crate::shop::{Intent, Shop, paid_order, sku};
use crate::tally::Outcome;

/// What came, as far as it helps to see what was wrong.
pub fn wrong(answer: &Answer<'_>) -> Outcome {
    let body = String::from_utf8_lossy(&answer.body[..answer.body.len().min(300)]);
    Outcome::Wrong(format!("{}, replayed: {}, {body}", answer.status, answer.replayed))
}

/// The id in an answer that is the first of a new intent.
pub fn first_answer<'a>(answer: &Answer<'a>) -> Option<&'a [u8]> {
    if answer.status == 201 && !answer.replayed { paid_order(answer.body) } else { None }
}

/// Keys that nobody else uses: those of one client of one run.
pub struct Keys {
    run: String,
    client: usize,
    sent: u64,
}

impl Keys {
    /// Those of this client of this run.
    pub fn new(run: &str, client: usize) -> Self {
        Self { run: run.to_owned(), client, sent: 0 }
    }

    /// The next, 36 characters like a UUID.
    pub fn next(&mut self) -> String {
        self.sent += 1;
        format!("{:_<8}-{:05}-{:021}", self.run, self.client, self.sent)
    }
}

/// A random account buys one of each of so many random products: always a new 201, whose id is noted.
pub struct First {
    shop: Arc<Shop>,
    keys: Keys,
    lines: usize,
    request: Vec<u8>,
}

impl First {
    /// The client of this number.
    pub fn new(shop: &Arc<Shop>, keys: Keys, lines: usize) -> Self {
        Self { shop: shop.clone(), keys, lines, request: Vec::new() }
    }
}

impl Client for First {
    async fn work(&mut self, connection: &mut Connection, tally: &Shared) -> Result<Outcome> {
        let skus: Vec<String> = (0..self.lines).map(|_| sku(self.shop.any_product())).collect();
        let lines: Vec<_> = skus.iter().map(|sku| (sku.as_str(), 1)).collect();
        self.shop.order(&mut self.request, self.shop.any_account(), &self.keys.next(), &lines);
        let answer = connection.exchange(&self.request).await?;
        let Some(id) = first_answer(&answer) else { return Ok(wrong(&answer)) };
        tally.borrow_mut().note(id);
        Ok(Outcome::Right)
    }
}

/// Places intents that are repeated later, each once. Notes number and body of each answer.
pub struct Seed {
    shop: Arc<Shop>,
    /// Every how many-th number is this client's.
    step: u32,
    next: u32,
    last: u32,
    request: Vec<u8>,
}

impl Seed {
    /// The client of this number among `clients`; `intents` are shared between them.
    pub fn new(shop: &Arc<Shop>, client: u32, clients: u32, intents: u32) -> Self {
        Self { shop: shop.clone(), step: clients, next: client + 1, last: intents, request: Vec::new() }
    }
}

impl Client for Seed {
    fn next(&mut self) -> bool {
        self.next <= self.last
    }

    async fn work(&mut self, connection: &mut Connection, tally: &Shared) -> Result<Outcome> {
        let n = self.next;
        self.next += self.step;
        let Intent { account, key, sku } = Intent::seeded(&self.shop, n);
        self.shop.order(&mut self.request, account, &key, &[(&sku, 1)]);
        let answer = connection.exchange(&self.request).await?;
        if first_answer(&answer).is_none() {
            return Ok(wrong(&answer));
        }
        let mut line = format!("{n} ").into_bytes();
        line.extend_from_slice(answer.body);
        tally.borrow_mut().note(&line);
        Ok(Outcome::Right)
    }
}

/// Reads an account: as good as nothing, but through the service and its database.
pub struct Account {
    shop: Arc<Shop>,
    request: Vec<u8>,
}

impl Account {
    /// A client.
    pub fn new(shop: &Arc<Shop>) -> Self {
        Self { shop: shop.clone(), request: Vec::new() }
    }
}

impl Client for Account {
    async fn work(&mut self, connection: &mut Connection, _tally: &Shared) -> Result<Outcome> {
        self.shop.account(&mut self.request, self.shop.any_account());
        let answer = connection.exchange(&self.request).await?;
        let read = answer.status == 200 && answer.body.starts_with(b"{\"balance\":");
        Ok(if read { Outcome::Right } else { wrong(&answer) })
    }
}
