//! Requests, products and claims, as short as a test wants them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use oncegate::order::decide::{Asked, Decision};
use oncegate::order::values::{
    AccountId, Cents, Currency, Fingerprint, Key, OrderId, Quantity, Reference, Sku, Subject,
};
use oncegate::order::{Method, NewOrder, Order, Product, Wanted};
use oncegate::store::{Answer, ClaimRequest, ClaimResult, Fence, Placing, RecordId, SettleRules, Settled, Store};
use uuid::Uuid;

/// Never over within a test.
pub const LEASE: Duration = Duration::from_secs(300);
/// Nor this.
pub const KEY_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Nor this: whatever is due within a test was made so.
pub const FIRST_CHECK: Duration = Duration::from_secs(300);
/// What placing is claimed under.
pub const PLACE: &str = "place_order";

pub fn rules() -> SettleRules {
    SettleRules { key_ttl: KEY_TTL, lock_wait: Duration::from_secs(5), first_check: FIRST_CHECK, render }
}

/// Says in the body what was decided, so that a test can compare what was stored.
pub fn render(decision: &Decision, standing: Option<&Order>) -> Answer {
    let (status, order, body) = match decision {
        Decision::Placed(order) => (201, Some(order.id), format!("placed {} for {}", order.id, order.total)),
        Decision::Refused(refusal) => (409, None, format!("refused: {refusal:?}")),
        Decision::Stands { order, same } => {
            let standing = standing.expect("a standing order is loaded");
            (if *same { 201 } else { 422 }, Some(*order), format!("stands {} for {}", standing.id, standing.total))
        }
        Decision::Invalid(errors) => (422, None, format!("invalid: {errors:?}")),
    };
    answer(status, order, body)
}

pub fn answer(status: u16, order: Option<OrderId>, body: String) -> Answer {
    let location = order.map(|id| format!("/api/orders/{id}"));
    Answer { status, content_type: "application/json", location, body: Bytes::from(body), order }
}

pub fn sku(text: &str) -> Sku {
    Sku::parse(text).unwrap()
}

pub fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

pub fn reference(text: &str) -> Reference {
    Reference::parse(text).unwrap()
}

pub fn product(name: &str, unit_price: Cents, stock: i64) -> Product {
    let currency = Currency::parse("EUR").unwrap();
    Product { sku: sku(name), name: format!("The {name}"), unit_price, currency, stock }
}

/// One account with this balance.
pub async fn account(store: &Arc<dyn Store>, balance: Cents) -> AccountId {
    store.open_account(&Subject::visitor(Uuid::new_v4()), balance).await.unwrap()
}

/// A request for these, in the given order.
pub fn asked(account: AccountId, under: &str, wanted: &[(&str, u32)]) -> Asked {
    let lines: Vec<_> =
        wanted.iter().map(|(s, n)| Wanted { sku: sku(s), quantity: Quantity::new(*n).unwrap() }).collect();
    let content = format!("{wanted:?}");
    Asked {
        id: OrderId::new(),
        account,
        key: key(under),
        fingerprint: Fingerprint::of(1, [content.as_bytes()]),
        request: NewOrder { lines, method: Method::Balance, payment_method: None, reference: None, note: None },
        repeat_notice: None,
    }
}

pub fn record_id(account: AccountId, under: &str) -> RecordId {
    RecordId { account, operation: PLACE, key: key(under) }
}

pub fn claim_request(asked: &Asked) -> ClaimRequest {
    let id = RecordId { account: asked.account, operation: PLACE, key: asked.key.clone() };
    ClaimRequest { id, fingerprint: asked.fingerprint.clone() }
}

pub fn fence(placing: &Placing) -> Fence {
    Fence { id: claim_request(&placing.asked).id, epoch: placing.epoch }
}

/// Claims them all, which must succeed.
pub async fn claimed(store: &Arc<dyn Store>, batch: Vec<Asked>) -> Vec<Placing> {
    let requests: Vec<_> = batch.iter().map(claim_request).collect();
    let results = store.claim(&requests, LEASE).await.unwrap();
    batch
        .into_iter()
        .zip(results)
        .map(|(asked, result)| match result {
            ClaimResult::Won { epoch, .. } => Placing { asked, epoch },
            ClaimResult::Lost(record) => panic!("{} was lost to {record:?}", asked.key),
        })
        .collect()
}

/// Claims and settles a batch.
pub async fn place(store: &Arc<dyn Store>, batch: Vec<Asked>) -> Vec<Settled> {
    let batch = claimed(store, batch).await;
    store.settle(&batch, &rules()).await.unwrap()
}

/// Claims and settles one, and takes what was decided.
pub async fn place_one(store: &Arc<dyn Store>, asked: Asked) -> (Decision, Answer) {
    match place(store, vec![asked]).await.remove(0) {
        Settled::Decided { decision, answer, .. } => (decision, answer),
        other => panic!("nobody else works on it: {other:?}"),
    }
}

/// The order that a decision placed.
pub fn placed(decision: &Decision) -> &Order {
    match decision {
        Decision::Placed(order) => order,
        other => panic!("not placed: {other:?}"),
    }
}

/// Waits until the service sees every product at this price: what it shows may be a second old.
pub async fn until_all_cost(app: &oncegate::app::App, unit_price: Cents) {
    while app.catalogue().await.unwrap().iter().any(|product| product.unit_price != unit_price) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
