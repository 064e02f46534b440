//! What is stored of a play's order, read from the database.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::play::Notes;
use super::sender::Broken;
use crate::app::App;
use crate::order::values::{Currency, OrderId};
use crate::order::{PaymentStatus, Status};
use crate::web::words::money;

/// How long a coupon is waited for: the queue usually takes a fraction of a second.
const COUPON_WITHIN: Duration = Duration::from_secs(5);
/// How often it is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// More orders than a play could place, if everything failed.
const MANY: u32 = 50;

/// What there is.
#[derive(Debug)]
pub(super) struct Stored {
    /// Of the play's account.
    pub(super) orders: usize,
    pub(super) order: OrderId,
    pub(super) status: Status,
    /// Payments of the order that went through, and what they come to.
    pub(super) charges: usize,
    pub(super) charged: String,
    /// Of the play's account.
    pub(super) coupons: usize,
    /// The records under the play's keys, in words.
    pub(super) records: Vec<String>,
}

impl Stored {
    /// One order, charged once at most, with one coupon at most: exactly one of each where it is paid.
    pub(super) fn is_one(&self) -> bool {
        let due = usize::from(self.status == Status::Paid);
        (self.orders, self.charges, self.coupons) == (1, due, due)
    }

    /// Reads it, waiting a while for the coupon of a paid order.
    pub(super) async fn read(app: &App, notes: &Notes) -> Result<Self, Broken> {
        let order = notes.order()?;
        let life = app.store.life(order).await?;
        let life = life.ok_or_else(|| Broken::Otherwise("the order that was told of is not there".to_owned()))?;
        let account = life.order.account;
        let paid = life.order.status == Status::Paid;
        let coupons = if paid { coupons(app, order).await? } else { app.store.coupons(account).await?.len() };
        let captured = life.attempts.iter().filter(|attempt| attempt.status == PaymentStatus::Captured);
        let amounts: Vec<i64> = captured.map(|attempt| attempt.amount).collect();
        let mut records = Vec::new();
        for key in &notes.keys {
            for record in app.store.find_records(key, Some(account)).await? {
                let answer = record.response_status.map_or_else(String::new, |status| format!(", answer {status}"));
                let claims = if record.epoch == 1 {
                    "claimed once".to_owned()
                } else {
                    format!("claimed {} times", record.epoch)
                };
                records.push(format!(
                    "{} {}…: {}, {claims}{answer}",
                    record.operation,
                    prefix(&record.key),
                    record.status.as_str()
                ));
            }
        }
        Ok(Self {
            orders: app.store.orders(account, None, MANY).await?.len(),
            order,
            status: life.order.status,
            charges: amounts.len(),
            charged: told(amounts.iter().sum(), &life.order.currency),
            coupons,
            records,
        })
    }
}

fn told(amount: i64, currency: &Currency) -> String {
    money(amount, currency)
}

/// The beginning of a key.
fn prefix(key: &str) -> String {
    key.chars().take(8).collect()
}

/// How many coupons the account of this order has, once it has one.
pub(super) async fn coupons(app: &App, order: OrderId) -> Result<usize, Broken> {
    let Some(life) = app.store.life(order).await? else { return Ok(0) };
    let begun = Instant::now();
    loop {
        let coupons = app.store.coupons(life.order.account).await?.len();
        if coupons > 0 || begun.elapsed() > COUPON_WITHIN {
            return Ok(coupons);
        }
        sleep(LOOK_AGAIN).await;
    }
}
