//! The requests of each class. They are real ones, over HTTP to this service's own listener; only what is no request is
//! done past it: the sweep, and the second delivery of a message.

use std::time::Duration;

use secrecy::ExposeSecret;
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use super::Trial;
use super::class::{Class, Sender, Stopper};
use super::play::Notes;
use super::sender::{Broken, Browser, Client, Pair, Seen};
use super::stored::coupons;
use crate::checkout::callback::PROVIDER;
use crate::checkout::place::PLACE;
use crate::order::PaymentStatus;
use crate::order::life::Attempt;
use crate::order::values::{Key, OrderId};
use crate::payment::signature;
use crate::store::{Granted, ProviderEvent, RecordId, Sweep};

/// How many requests "ten at once" are.
const AT_ONCE: usize = 10;
/// How long a client that heard nothing waits before it tries again.
const RETRY_AFTER: Duration = Duration::from_millis(300);
/// How often it tries again while the first is under way.
const RETRIES: usize = 20;
/// Rows that one sweep takes.
const SWEPT_AT_ONCE: u32 = 250;
/// How many sweeps may be needed, where others' records are over too.
const SWEEPS: usize = 100;
/// A message of a play is younger than this.
const YOUNG: Duration = Duration::from_secs(5 * 60);
/// How long the second delivery may take.
const DELIVERED_WITHIN: Duration = Duration::from_secs(8);

/// Plays a class.
pub(super) async fn run(trial: &Trial, class: Class, notes: &mut Notes) -> Result<(), Broken> {
    let sku = trial.goods().await?.ok_or_else(|| Broken::Otherwise("there is nothing to order".to_owned()))?;
    let mut scene = Scene { trial, notes, sku };
    match class.sender() {
        Sender::Browser => {
            let mut browser = trial.browser()?;
            let pair = browser.open().await?;
            scene.notes.keys.push(pair.key.clone());
            scene.notes.step("opens the order form", "200, with a token and a key");
            scene.browser(class, browser, pair).await
        }
        Sender::Client | Sender::CardClient => {
            let client = trial.client()?;
            scene.client(class, &client).await
        }
    }
}

struct Scene<'a> {
    trial: &'a Trial,
    notes: &'a mut Notes,
    sku: String,
}

impl Scene<'_> {
    async fn browser(&mut self, class: Class, browser: Browser, pair: Pair) -> Result<(), Broken> {
        match class {
            Class::DoubleClick => {
                let (first, second) = tokio::join!(browser.submit(&pair, &self.sku), browser.submit(&pair, &self.sku));
                self.arrive(&browser, "sends the form", first?).await?;
                self.arrive(&browser, "sends the form, at the same time", second?).await
            }
            Class::NewToken => self.new_token(&browser, &pair).await,
            _ => {
                let first = browser.submit(&pair, &self.sku).await?;
                self.arrive(&browser, "sends the form", first).await?;
                let second = browser.submit(&pair, &self.sku).await?;
                self.arrive(&browser, "sends the form again, as it was", second).await
            }
        }
    }

    /// The form comes back from a copy whose token nobody knows, as one does that had expired: with a fresh token, and
    /// the same key. Then both are sent.
    async fn new_token(&mut self, browser: &Browser, pair: &Pair) -> Result<(), Broken> {
        let expired = Pair { token: "expired".to_owned(), key: pair.key.clone() };
        let page = browser.submit(&expired, &self.sku).await?;
        self.notes.seen("sends a copy whose token has expired; the form comes back with a fresh one", &page);
        let fresh = browser.pair(&page)?;
        if fresh.key != pair.key {
            return Err(Broken::Otherwise("the form came back with another key".to_owned()));
        }
        self.notes.begun = OffsetDateTime::now_utc(); // that token was part of the way here; the repeat is yet to come
        let first = browser.submit(pair, &self.sku).await?;
        self.arrive(browser, "sends the form with the first token", first).await?;
        let second = browser.submit(&fresh, &self.sku).await?;
        self.arrive(browser, "sends the form with the fresh token", second).await
    }

    /// Notes an answer down; one that is waited for is followed to the order.
    async fn arrive(&mut self, browser: &Browser, what: &str, seen: Seen) -> Result<(), Broken> {
        self.notes.seen(what, &seen);
        let (mut at, mut tries) = (seen.location.filter(|_| seen.order.is_none()), 0);
        while let Some(path) = at.take_if(|_| tries < RETRIES) {
            tries += 1;
            sleep(RETRY_AFTER).await;
            let seen = browser.follow(&path).await?;
            if seen.order.is_some() {
                self.notes.seen("looks again", &seen);
            } else if seen.status == 200 {
                at = Some(path);
            }
        }
        Ok(())
    }

    async fn client(&mut self, class: Class, client: &Client) -> Result<(), Broken> {
        let (key, wanted) = (self.notes.key(), self.wanted(1));
        match class {
            Class::TenAtOnce => return self.ten_at_once(client, &key, &wanted).await,
            Class::LostAnswer => {
                client.order_and_hang_up(&key, &wanted).await?;
                self.notes.step("sends the order, and the connection breaks", "never read");
                sleep(RETRY_AFTER).await;
                return self.until_definite(client, "sends it again, with the same key", &key, &wanted).await;
            }
            Class::SameReference => {
                let mut wanted = wanted;
                wanted["reference"] = json!(format!("try-{}", key.as_str()));
                self.order(client, "sends the order, with a reference", &key, &wanted).await?;
                let other = self.notes.key();
                return self.order(client, "sends it again, under a new key", &other, &wanted).await;
            }
            Class::CallbackTwice => return self.callback_twice(client, &key, wanted).await,
            _ => self.order(client, "sends the order", &key, &wanted).await?,
        }
        match class {
            Class::OtherBody => {
                let other = self.wanted(2);
                self.order(client, "sends another order, of two, under the same key", &key, &other).await
            }
            Class::RecordSwept => {
                self.sweep(&key).await?;
                self.order(client, "sends it again, with the same key", &key, &wanted).await
            }
            _ => self.message_twice().await,
        }
    }

    fn wanted(&self, quantity: u32) -> Value {
        json!({ "lines": [{ "sku": self.sku, "quantity": quantity }], "payment": "balance" })
    }

    async fn order(&mut self, client: &Client, what: &str, key: &Key, wanted: &Value) -> Result<(), Broken> {
        let seen = client.order(key, wanted).await?;
        self.notes.seen(what, &seen);
        Ok(())
    }

    async fn until_definite(&mut self, client: &Client, what: &str, key: &Key, wanted: &Value) -> Result<(), Broken> {
        let mut seen = client.order(key, wanted).await?;
        for _ in 0..RETRIES {
            self.notes.seen(what, &seen);
            if !seen.in_progress() {
                break;
            }
            sleep(RETRY_AFTER).await;
            seen = client.order(key, wanted).await?;
        }
        Ok(())
    }

    async fn ten_at_once(&mut self, client: &Client, key: &Key, wanted: &Value) -> Result<(), Broken> {
        let mut requests = JoinSet::new();
        for _ in 0..AT_ONCE {
            let (client, key, wanted) = (client.clone(), key.clone(), wanted.clone());
            requests.spawn(async move { client.order(&key, &wanted).await });
        }
        let mut again = false;
        while let Some(answer) = requests.join_next().await {
            let seen = answer.map_err(|died| Broken::Otherwise(died.to_string()))??;
            again |= seen.in_progress();
            self.notes.seen("sends the order, one of ten at the same time", &seen);
        }
        if again {
            self.until_definite(client, "one that was told to wait sends it again", key, wanted).await?;
        }
        Ok(())
    }

    /// Lets the play's own record expire, and sweeps as the sweeper does.
    async fn sweep(&mut self, key: &Key) -> Result<(), Broken> {
        let store = &self.trial.app.store;
        let order = self.notes.order()?;
        let account = store.life(order).await?.map(|life| life.order.account);
        let account = account.ok_or_else(|| Broken::Otherwise("the order is not there".to_owned()))?;
        store.let_expire(&RecordId { account, operation: PLACE, key: key.clone() }).await?;
        for _ in 0..SWEEPS {
            store.sweep(Sweep::Records, SWEPT_AT_ONCE).await?;
            if store.find_records(key, Some(account)).await?.is_empty() {
                self.notes.step("a day goes by: its record expires, and the sweeper comes", "the record is gone");
                return Ok(());
            }
        }
        Err(Broken::Otherwise("the record was not swept: too many others are over".to_owned()))
    }

    async fn message_twice(&mut self) -> Result<(), Broken> {
        let (order, store) = (self.notes.order()?, &self.trial.app.store);
        if coupons(&self.trial.app, order).await? == 0 {
            return Err(Broken::Otherwise("the order has no coupon yet: the queue is behind".to_owned()));
        }
        self.notes.step("the queue delivers the order's message", "granted a coupon");
        let message = store.consumed_message(order, YOUNG).await?;
        let message = message.ok_or_else(|| Broken::Otherwise("the order's message is not there".to_owned()))?;
        let heard = self.trial.queue.deliver(&message, DELIVERED_WITHIN).await;
        let heard = heard.map_err(|error| Broken::Otherwise(error.to_string()))?;
        let answer = match heard {
            Some(Granted::Duplicate) => {
                self.notes.beside = Some(Stopper::MessageMark);
                "known: no effect"
            }
            Some(Granted::New) => "granted a coupon",
            Some(Granted::NotDue | Granted::Unknown) => "no effect",
            None => "taken by another instance, or still in the queue",
        };
        self.notes.step("the queue delivers the same message again", answer);
        Ok(())
    }

    async fn callback_twice(&mut self, client: &Client, key: &Key, mut wanted: Value) -> Result<(), Broken> {
        wanted["payment"] = json!("card");
        wanted["payment_method"] = json!("pm_card_visa");
        self.order(client, "sends the order, to be paid by card", key, &wanted).await?;
        let order = self.notes.order()?;
        let life = self.trial.app.store.life(order).await?;
        let attempt =
            life.as_ref().and_then(|life| life.attempts.last().map(|attempt| (attempt, &life.order.currency)));
        let event = attempt.and_then(|(attempt, currency)| event(order, attempt, currency.as_str()));
        let event =
            event.ok_or_else(|| Broken::Otherwise("the provider has not told of the payment yet".to_owned()))?;
        let Event { row, body } = event;
        let gateway = self.trial.app.config.gateway.as_ref();
        let gateway = gateway.ok_or_else(|| Broken::Otherwise("no payment provider is set".to_owned()))?;
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let signature = signature::sign(gateway.webhook_secret.expose_secret(), body.as_bytes(), now);
        for what in ["the provider's event is handed in, signed", "the same event is handed in again"] {
            let seen = client.callback(&body, &signature).await?;
            if seen.status != 200 {
                self.notes.seen(what, &seen);
                return Err(Broken::Otherwise("the event was not taken".to_owned()));
            }
            self.notes.step(what, "200, taken");
        }
        // One that is there is not kept again.
        if !self.trial.app.store.keep_event(&row, "ignored").await? {
            self.notes.beside = Some(Stopper::EventRow);
        }
        Ok(())
    }
}

/// The provider's event, as it is sent and as it is kept.
struct Event {
    row: ProviderEvent,
    body: String,
}

/// The provider's event about an attempt: what the provider has said of it, and nothing else. A play must not make
/// anything paid that was not.
fn event(order: OrderId, attempt: &Attempt, currency: &str) -> Option<Event> {
    let kind = match attempt.status {
        PaymentStatus::Captured => "payment_intent.succeeded",
        PaymentStatus::Processing => "payment_intent.processing",
        PaymentStatus::Declined => "payment_intent.payment_failed",
        PaymentStatus::Started | PaymentStatus::Unknown | PaymentStatus::RefundDue | PaymentStatus::Refunded => {
            return None;
        }
    };
    let object = json!({
        "id": attempt.provider_id.as_ref()?,
        "amount": attempt.amount,
        "currency": currency.to_ascii_lowercase(),
        "metadata": { "order_id": order.to_string(), "attempt": attempt.number.to_string() },
    });
    let id = format!("evt_try_{}", Uuid::new_v4().simple());
    let body = json!({ "id": id, "object": "event", "type": kind, "data": { "object": object } }).to_string();
    Some(Event { row: ProviderEvent { provider: PROVIDER, id, kind: kind.to_owned() }, body })
}
