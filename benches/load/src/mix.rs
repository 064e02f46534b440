//! A day's traffic in small: 70 % first requests, 20 % replays, 5 % duplicates in flight, 5 % refusals.

use std::sync::Arc;

use anyhow::{Context, Result};

use crate::clients::{Client, Shared};
use crate::http::{Answer, Connection};
use crate::orders::{Keys, first_answer, wrong};
use crate::replays::{Firsts, replay};
use crate::shop::{SOLD_OUT, Shop, sku};
use crate::tally::Outcome;

/// A client. Duplicates need a second connection, which is opened for the first of them.
pub struct Mix {
    shop: Arc<Shop>,
    firsts: Arc<Firsts>,
    keys: Keys,
    request: Vec<u8>,
    twin: Option<Connection>,
}

impl Mix {
    /// A client.
    pub fn new(shop: &Arc<Shop>, firsts: &Arc<Firsts>, keys: Keys) -> Self {
        Self { shop: shop.clone(), firsts: firsts.clone(), keys, request: Vec::new(), twin: None }
    }

    fn order(&mut self, account: u32, sku: &str) {
        self.shop.order(&mut self.request, account, &self.keys.next(), &[(sku, 1)]);
    }

    async fn first(&mut self, connection: &mut Connection, tally: &Shared) -> Result<Outcome> {
        self.order(self.shop.any_account(), &sku(self.shop.any_product()));
        let answer = connection.exchange(&self.request).await?;
        let Some(id) = first_answer(&answer) else { return Ok(wrong(&answer)) };
        tally.borrow_mut().note(id);
        Ok(Outcome::Right)
    }

    /// The same new request on two connections at once: one is answered first, the other is told so, or to wait.
    async fn duplicate(&mut self, connection: &mut Connection, tally: &Shared) -> Result<Outcome> {
        if self.twin.is_none() {
            self.twin = Some(connection.another().await?);
        }
        self.order(self.shop.any_account(), &sku(self.shop.any_product()));
        // Taken out, so that one that breaks is not used again.
        let mut twin = self.twin.take().context("no second connection")?;
        let (one, other) = tokio::join!(connection.exchange(&self.request), twin.exchange(&self.request));
        let (one, other) = (one?, other?);
        let (first, second) = if first_answer(&one).is_some() { (one, other) } else { (other, one) };
        let Some(id) = first_answer(&first) else { return Ok(wrong(&first)) };
        let outcome = judge_second(&second, first.body, tally);
        tally.borrow_mut().note(id);
        self.twin = Some(twin);
        Ok(outcome)
    }

    /// Goods that are sold out, or a buyer without funds.
    async fn refusal(&mut self, connection: &mut Connection, tally: &Shared) -> Result<Outcome> {
        let (status, problem) = if fastrand::bool() {
            self.order(self.shop.any_account(), SOLD_OUT);
            (409, "{\"type\":\"/problems/out-of-stock\"")
        } else {
            self.order(0, &sku(self.shop.any_product()));
            (402, "{\"type\":\"/problems/insufficient-funds\"")
        };
        let answer = connection.exchange(&self.request).await?;
        if answer.status != status || answer.replayed || !answer.body.starts_with(problem.as_bytes()) {
            return Ok(wrong(&answer));
        }
        tally.borrow_mut().refused += 1;
        Ok(Outcome::Right)
    }
}

fn judge_second(answer: &Answer<'_>, first: &[u8], tally: &Shared) -> Outcome {
    let mut tally = tally.borrow_mut();
    if answer.status == 201 && answer.replayed && answer.body == first {
        tally.replayed += 1;
        return Outcome::Right;
    }
    if answer.status == 409 && answer.body.starts_with(b"{\"type\":\"/problems/request-in-progress\"") {
        tally.in_progress += 1;
        return Outcome::Right;
    }
    wrong(answer)
}

impl Client for Mix {
    async fn work(&mut self, connection: &mut Connection, tally: &Shared) -> Result<Outcome> {
        match fastrand::u32(..100) {
            0..70 => self.first(connection, tally).await,
            70..90 => {
                let (intent, first) = self.firsts.any();
                replay(&self.shop, connection, &mut self.request, intent, first, tally).await
            }
            90..95 => self.duplicate(connection, tally).await,
            _ => self.refusal(connection, tally).await,
        }
    }
}
