//! What is done, and what may be answered: never a 500, never something that makes a buyer order again, never another
//! order for the same intent. Who meets a process that is killed gets no answer, and knows nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::plan::{Ask, Forgery, Pay, Step};
use super::world::World;
use crate::harness::client::{Pair, Seen};
use crate::harness::till::Callback;

/// In seconds, as the shop is set.
const LEASE: u64 = 2;
/// What is refused for good, and kept as the answer.
const REFUSALS: [&str; 4] = ["out-of-stock", "insufficient-funds", "payment-declined", "reference-taken"];

type Answer = reqwest::Result<Seen>;
type Done = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What somebody wishes of an order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    Pay(Pay),
    Cancel,
}

impl World {
    /// Does it, to its end.
    pub fn take(self: Arc<Self>, step: &Step) -> Done {
        let step = step.clone();
        Box::pin(async move {
            match step {
                Step::Place(ask) => self.place(ask).await,
                Step::Repeat { intent, other } => self.repeat(intent, other).await,
                Step::Pay { intent, pay, again } => self.wish(intent, Wish::Pay(pay), again).await,
                Step::Cancel { intent, again } => self.wish(intent, Wish::Cancel, again).await,
                Step::Ship { intent } => self.ship(intent).await,
                Step::Lose(losing) => self.lose(losing),
                Step::Tell { callback, copies } => self.tell(callback, copies).await,
                Step::Forge { callback, how } => self.forge(callback, how).await,
                Step::Forget => self.forget().await,
                Step::WindowOver => {
                    let sql = &self.shop.site.under.sql;
                    // Only of those that can still be cancelled for it: what is told of an order never changes its time.
                    let hour_ago = sql.moment(-3600);
                    sql.run(&format!("UPDATE orders SET created_at = {hour_ago} WHERE status = 'pending'")).await;
                }
                Step::Sweep => self.shop.site.sweep().await,
                Step::Leave(millis, deed) => {
                    let _ = tokio::time::timeout(Duration::from_millis(millis.into()), self.take(&deed)).await;
                }
                Step::AtOnce(deeds) => self.at_once(&deeds).await,
                Step::Killed(millis, deeds) => {
                    let killed = async {
                        tokio::time::sleep(Duration::from_millis(millis.into())).await;
                        self.kill_one().await;
                    };
                    tokio::join!(self.clone().at_once(&deeds), killed);
                }
            }
        })
    }

    async fn at_once(self: Arc<Self>, deeds: &[Step]) {
        let mut running = tokio::task::JoinSet::new();
        for deed in deeds {
            running.spawn(self.clone().take(deed));
        }
        while let Some(done) = running.join_next().await {
            if let Err(broken) = done {
                std::panic::resume_unwind(broken.into_panic());
            }
        }
    }

    async fn place(&self, ask: Ask) {
        let (key, token) = if ask.form {
            let Ok(page) = self.buyer.try_get(self.front(), "/orders/new").await else { return };
            if page.status != 200 {
                return self.unavailable(&page);
            }
            let pair = Pair::of(&page);
            (pair.key, pair.token)
        } else {
            (uuid::Uuid::new_v4().to_string(), String::new())
        };
        let intent = self.intend(&key, &token, ask);
        self.send(intent, ask).await;
    }

    async fn repeat(&self, n: u8, other: bool) {
        let Some((at, intent)) = self.intent(n) else { return };
        let ask = if other { intent.content().other() } else { intent.content() };
        self.send(at, ask).await;
    }

    /// Orders; answers whether it is over, which it is not while it is under way or nothing can be said.
    pub async fn send(&self, at: usize, ask: Ask) -> bool {
        let intent = self.intents.lock().unwrap()[at].clone();
        if ask.form {
            let Ok(seen) = self.submit(&intent.key, &intent.token, ask).await else { return false };
            return self.judge_page(at, ask, &seen);
        }
        let Ok(seen) = self.anna.try_order(self.at(), &intent.key, &ask.json()).await else { return false };
        self.judge_answer(at, ask, &seen)
    }

    async fn submit(&self, key: &str, token: &str, ask: Ask) -> Answer {
        let (field, quantity) = (format!("quantity[{}]", ask.sku), ask.quantity.to_string());
        let fields = [
            ("form_token", token),
            ("idempotency_key", key),
            (&field, &quantity),
            ("payment", ask.pay.words().0),
            ("note", ""),
        ];
        self.buyer.try_post(self.front(), "/orders", &fields).await
    }

    fn judge_answer(&self, at: usize, ask: Ask, seen: &Seen) -> bool {
        let known = self.intents.lock().unwrap()[at].clone();
        if seen.is_in_progress(LEASE) || seen.is_unavailable() {
            return false;
        }
        if seen.status == 422 && seen.problem() == "idempotency-key-reused" {
            let same = known.became.is_some_and(|(_, became)| became == ask);
            assert!(!same, "the same content is no other: {seen:?}");
            return true;
        }
        let refused = seen.status != 201;
        assert!(!refused || REFUSALS.contains(&seen.problem().as_str()), "{ask:?}: {seen:?}");
        let ordered = !refused || seen.problem() == "payment-declined";
        assert!(ordered || known.became.is_none(), "{known:?} was refused: {seen:?}");
        if ordered {
            self.became(at, &seen.order().unwrap(), ask);
        }
        self.told(format!("order {} {ask:?}", known.key), seen);
        true
    }

    fn judge_page(&self, at: usize, ask: Ask, seen: &Seen) -> bool {
        let known = self.intents.lock().unwrap()[at].clone();
        if seen.is_unavailable() {
            return false;
        }
        if seen.status == 303 {
            let Some(order) = seen.order() else {
                assert!(seen.is_attempt(), "{seen:?}");
                return false;
            };
            self.became(at, &order, ask);
            return true;
        }
        assert!(matches!(seen.status, 402 | 409), "{ask:?}: {} {}", seen.status, seen.text());
        let same = known.became.as_ref().is_some_and(|(_, became)| *became == ask);
        assert!(!same, "{known:?} was refused: {}", seen.text());
        let pair = Pair::of(seen);
        if pair.key != known.key {
            return true;
        }
        // Nothing was ordered: the form has a new token, and may be sent again.
        self.intents.lock().unwrap()[at].token = pair.token;
        false
    }

    async fn wish(&self, n: u8, wish: Wish, again: bool) {
        let Some((at, intent)) = self.intent(n) else { return };
        let Some((order, _)) = intent.became.clone() else { return };
        if intent.ask.form {
            return self.wish_by_form(&order, wish).await;
        }
        let kind = usize::from(wish == Wish::Cancel);
        let number = {
            let count = &mut self.intents.lock().unwrap()[at].wishes[kind];
            *count += u32::from(!again || *count == 0);
            *count
        };
        let (what, body) = match wish {
            Wish::Cancel => ("cancel", None),
            Wish::Pay(pay) => {
                let (payment, method) = pay.words();
                ("pay", Some(json!({"payment": payment, "payment_method": method})))
            }
        };
        let (key, path) = (format!("{what}-{at}-{number}"), format!("/api/orders/{order}/{what}"));
        let Ok(seen) = self.anna.try_post(self.at(), &path, Some(&key), body.as_ref()).await else { return };
        self.judge_wish(&format!("{path} {key} {body:?}"), &seen);
    }

    fn judge_wish(&self, asked: &str, seen: &Seen) {
        if seen.is_unavailable() || seen.is_in_progress(LEASE) {
            return;
        }
        let problem = if seen.status == 200 { String::new() } else { seen.problem() };
        // Under one key another way to pay was wished before.
        if problem == "idempotency-key-reused" {
            return;
        }
        let known = ["", "illegal-transition", "payment-declined", "insufficient-funds"];
        assert!(known.contains(&problem.as_str()), "{asked}: {seen:?}");
        self.told(asked.to_owned(), seen);
    }

    async fn wish_by_form(&self, order: &str, wish: Wish) {
        let Ok(page) = self.buyer.try_get(self.front(), &format!("/orders/{order}")).await else { return };
        if page.status != 200 {
            return self.unavailable(&page);
        }
        let what = if wish == Wish::Cancel { "cancel" } else { "pay" };
        let Some(pair) = super::super::pages::pair(&page, what) else { return };
        let mut fields = vec![("form_token", pair.token.as_str()), ("idempotency_key", &pair.key)];
        if let Wish::Pay(pay) = wish {
            fields.push(("payment", pay.words().0));
        }
        let path = format!("/orders/{order}/{what}");
        let Ok(seen) = self.buyer.try_post(self.front(), &path, &fields).await else { return };
        assert!(seen.status == 303 || seen.is_unavailable(), "{} {}", seen.status, seen.text());
        assert!(seen.header("location").starts_with(&format!("/orders/{order}")) || seen.status == 503, "{seen:?}");
    }

    async fn ship(&self, n: u8) {
        let Some((_, intent)) = self.intent(n) else { return };
        let Some((order, _)) = intent.became else { return };
        let path = format!("/api/orders/{order}/ship");
        let Ok(seen) = self.operator.try_post(self.at(), &path, None, None).await else { return };
        let illegal = || seen.status == 409 && seen.problem() == "illegal-transition";
        assert!(seen.status == 200 || seen.is_unavailable() || illegal(), "{seen:?}");
    }

    async fn tell(&self, n: u8, copies: u8) {
        let bag = self.shop.till.courier.bag();
        let Some(at) = usize::from(n).checked_rem(bag.len()) else { return };
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..copies {
            let (callback, at) = (bag[at].clone(), self.at());
            running.spawn(async move { callback.try_deliver(at).await });
        }
        while let Some(told) = running.join_next().await {
            let Ok(answer) = told.unwrap() else { continue };
            assert!(matches!(answer.status().as_u16(), 200 | 503), "{answer:?}");
        }
    }

    /// Whatever it says, it is taken and changes nothing.
    async fn forge(&self, n: u8, how: Forgery) {
        let bag = self.shop.till.courier.of_kind("payment_intent.succeeded");
        let Some(at) = usize::from(n).checked_rem(bag.len()) else { return };
        let mut object = bag[at].object();
        let kind = match how {
            Forgery::Amount => {
                object["amount"] = json!(object["amount"].as_i64().unwrap() + 1);
                "payment_intent.succeeded"
            }
            Forgery::Currency => {
                object["currency"] = json!("usd");
                "payment_intent.succeeded"
            }
            Forgery::LateFailure if self.has_heard_of(&object).await => "payment_intent.payment_failed",
            // Then it would be true for all that the shop knows.
            Forgery::LateFailure => return,
        };
        let Ok(answer) = Callback::about(kind, &object).try_deliver(self.at()).await else { return };
        assert!(matches!(answer.status().as_u16(), 200 | 503), "{answer:?}");
    }

    async fn has_heard_of(&self, intent: &Value) -> bool {
        let id = intent["id"].as_str().unwrap();
        let paid = "status IN ('captured', 'refund_due', 'refunded')";
        self.shop.count(&format!("FROM payments WHERE provider_id = '{id}' AND {paid}")).await == 1
    }

    fn unavailable(&self, seen: &Seen) {
        assert!(seen.is_unavailable(), "{} {}", seen.status, seen.text());
    }
}
