//! What happens to an order, as short as a test wants it.

use std::sync::Arc;
use std::time::Duration;

use oncegate::order::life::{Happening, Life, Verdict, Word};
use oncegate::order::values::{AccountId, OrderId, PaymentToken};
use oncegate::order::{Method, PaymentStatus};
use oncegate::store::{
    Change, ChangeRules, Changed, ClaimRequest, ClaimResult, Conclusion, Fence, ProviderEvent, RecordId, Settled, Store,
};
use uuid::Uuid;

use super::TestStore;
use super::goods::{FIRST_CHECK, KEY_TTL, LEASE, answer, asked, key, place, product};

pub use oncegate::order::PaymentStatus::{Captured, Declined, Processing, Unknown};

/// Price 100 each, for `by_card` and `by_balance` 2 of it.
pub const TOTAL: i64 = 200;

pub fn change_rules() -> ChangeRules {
    ChangeRules { key_ttl: KEY_TTL, lock_wait: Duration::from_secs(5), first_check: FIRST_CHECK, conclude }
}

/// Gives up where another attempt is in flight, goes on where the provider is to be asked, else tells what came of it.
fn conclude(verdict: Verdict, _: &Happening, life: &Life) -> Conclusion {
    match verdict {
        Verdict::InFlight => Conclusion::Release,
        Verdict::Charge => Conclusion::Keep,
        _ => {
            let body = format!("{} {}", verdict.as_str(), life.order.status.as_str());
            Conclusion::Answer(answer(200, Some(life.order.id), body))
        }
    }
}

/// Two products: A for 100, of which there are 10, and B for 7, of which there are 1,000.
pub async fn shop() -> TestStore {
    let t = TestStore::new().await;
    t.store.import_products(&[product("A", 100, 10), product("B", 7, 1_000)]).await.unwrap();
    t
}

/// Places a card order of two A: pending, and its attempt is not sent.
pub async fn by_card(store: &Arc<dyn Store>, account: AccountId, under: &str) -> OrderId {
    let mut ask = asked(account, under, &[("A", 2)]);
    ask.request.method = Method::Card;
    ask.request.payment_method = PaymentToken::parse("pm_card_visa");
    match place(store, vec![ask]).await.remove(0) {
        Settled::Unpaid(order) => order,
        other => panic!("{other:?}"),
    }
}

/// Places an order of two A that the balance pays.
pub async fn by_balance(store: &Arc<dyn Store>, account: AccountId, under: &str) -> OrderId {
    let ask = asked(account, under, &[("A", 2)]);
    let id = ask.id;
    place(store, vec![ask]).await;
    id
}

/// The whole amount, said of the first attempt.
pub fn word(provider_id: &str, said: PaymentStatus) -> Happening {
    word_of(1, provider_id, said)
}

pub fn word_of(attempt: i32, provider_id: &str, said: PaymentStatus) -> Happening {
    let (provider_id, money) = (Some(provider_id.to_owned()), Some((TOTAL, "EUR".to_owned())));
    Happening::Word(Word { attempt: Some(attempt), provider_id, said, money })
}

pub fn pay(method: Method) -> Happening {
    let provider_key = Uuid::new_v4().to_string();
    Happening::Pay { method, token: PaymentToken::parse("pm_other"), provider_key, resume: false }
}

pub fn of_anybody(order: OrderId, happening: Happening) -> Change {
    Change { order, account: None, happening, event: None, claim: None }
}

pub fn told_by(event: &str, order: OrderId, happening: Happening) -> Change {
    let event = ProviderEvent { provider: "standin", id: event.into(), kind: "some.kind".into() };
    Change { event: Some(event), ..of_anybody(order, happening) }
}

/// Lets it happen, whoever asks, and tells what came of it.
pub async fn happens(store: &Arc<dyn Store>, order: OrderId, happening: Happening) -> (Verdict, Life) {
    met(store.change(&of_anybody(order, happening), &change_rules()).await.unwrap())
}

pub fn met(changed: Changed) -> (Verdict, Life) {
    match changed {
        Changed::Met { verdict, life, .. } => (verdict, life),
        other => panic!("not judged: {other:?}"),
    }
}

/// Claims a key of `cancel_order`.
pub async fn claim_cancel(store: &Arc<dyn Store>, account: AccountId, under: &str) -> Fence {
    let id = RecordId { account, operation: "cancel_order", key: key(under) };
    let content = oncegate::order::values::Fingerprint::of(1, []);
    match &store.claim(&[ClaimRequest { id: id.clone(), fingerprint: content }], LEASE).await.unwrap()[0] {
        ClaimResult::Won { epoch, .. } => Fence { id, epoch: *epoch },
        lost => panic!("{lost:?}"),
    }
}

impl TestStore {
    /// The invariants of the contract that hold of products, accounts and payments, with so many A put in.
    pub async fn assert_sound(&self, put_in: i64) {
        let units = "SELECT CAST(coalesce(sum(l.quantity), 0) AS bigint) FROM order_lines l
            JOIN orders o ON o.id = l.order_id WHERE o.status <> 'cancelled' AND l.sku = 'A'";
        let left = self.sql.int("SELECT stock FROM products WHERE sku = 'A'").await;
        assert_eq!((left + self.sql.int(units).await, left >= 0), (put_in, true), "stock");
        for (what, wrong) in [
            (
                "balance",
                "SELECT count(*) FROM accounts a WHERE balance < 0 OR balance <>
                (SELECT CAST(coalesce(sum(amount), 0) AS bigint) FROM account_entries e WHERE e.account_id = a.id)",
            ),
            (
                "captured",
                "SELECT count(*) FROM orders o WHERE (status IN ('paid', 'shipped')) <>
                ((SELECT count(*) FROM payments p WHERE p.order_id = o.id AND p.status = 'captured'
                    AND p.amount = o.total) = 1)",
            ),
            (
                "money kept for nothing",
                "SELECT count(*) FROM payments p WHERE p.status = 'captured' AND EXISTS
                (SELECT 1 FROM orders o WHERE o.id = p.order_id AND o.status IN ('pending', 'cancelled'))",
            ),
            (
                "told once",
                "SELECT count(*) FROM orders o WHERE status IN ('paid', 'shipped') AND
                (SELECT count(*) FROM outbox b WHERE b.topic = 'order.paid'
                    AND b.payload LIKE '%' || CAST(o.id AS text) || '%') <> 1",
            ),
        ] {
            assert_eq!(self.sql.int(wrong).await, 0, "{what}");
        }
    }
}
