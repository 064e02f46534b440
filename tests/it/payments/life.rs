//! An order's life over the wire: what each state allows, and who wins when two things happen at once (E14, F3).

mod contests;
mod wrongs;

use serde_json::{Value, json};

use super::{BAD, PATIENT, SLOW, Shop, becomes, is, now, paid, shown};
use crate::harness::client::{Client, Seen, want};
use crate::harness::service::Service;

/// One tea, by card.
fn tea(card: Option<&str>) -> Value {
    json!({"lines": [{"sku": "TEA", "quantity": 1}], "payment": "card", "payment_method": card})
}

/// A buyer, an operator, and a service that knows them.
struct Cast {
    shop: Shop,
    service: Service,
    anna: Client,
    operator: Client,
}

impl Cast {
    async fn open(flags: &[&str], settings: &[(&'static str, &str)]) -> Self {
        let shop = Shop::open(flags, settings).await;
        let (service, anna, operator) =
            (shop.start().await, shop.site.client("anna").await, shop.site.operator().await);
        Self { shop, service, anna, operator }
    }

    /// A new order of one tea in this state.
    async fn order_that_is(&self, state: &str, key: &str) -> String {
        let at = self.service.main;
        match state {
            "pending" => self.anna.order(at, key, &tea(Some(BAD))).await.order().unwrap(),
            "processing" => self.anna.order(at, key, &tea(Some(SLOW))).await.order().unwrap(),
            "paid by card" => paid(&self.anna, at, key, &tea(None)).await,
            "paid by balance" => paid(&self.anna, at, key, &want(&[("TEA", 1)])).await,
            "shipped" => {
                let order = paid(&self.anna, at, key, &tea(None)).await;
                assert_eq!(self.operator.ship(at, &order).await.status, 200);
                order
            }
            "cancelled" => {
                let order = paid(&self.anna, at, key, &want(&[("TEA", 1)])).await;
                assert_eq!(self.anna.wish(at, &order, "cancel", key, None).await.status, 200);
                order
            }
            other => panic!("{other}"),
        }
    }

    async fn act(&self, order: &str, action: &str, key: &str) -> Seen {
        let at = self.service.main;
        let pay = |method: &str| json!({"payment": method});
        match action {
            "pay by card" => self.anna.wish(at, order, "pay", key, Some(&pay("card"))).await,
            "pay by balance" => self.anna.wish(at, order, "pay", key, Some(&pay("balance"))).await,
            "cancel" => self.anna.wish(at, order, "cancel", key, None).await,
            _ => self.operator.ship(at, order).await,
        }
    }
}

#[tokio::test]
async fn every_state_answers_every_action_as_the_table_says_and_again_the_same() {
    // Slow payments come through after the test.
    let cast = Cast::open(&["--callback-delay", "120s"], PATIENT).await;
    const ACTIONS: [&str; 4] = ["pay by card", "pay by balance", "cancel", "ship"];
    /// State, and for each action the status and how the order is afterwards.
    const TABLE: [(&str, [(u16, &str); 4]); 6] = [
        (
            "pending",
            [(200, "paid captured"), (200, "paid captured"), (200, "cancelled declined"), (409, "pending declined")],
        ),
        (
            "processing",
            [
                (409, "pending processing"),
                (409, "pending processing"),
                (200, "cancelled processing"),
                (409, "pending processing"),
            ],
        ),
        (
            "paid by card",
            [(200, "paid captured"), (200, "paid captured"), (200, "cancelled refunded"), (200, "shipped captured")],
        ),
        (
            "paid by balance",
            [(200, "paid captured"), (200, "paid captured"), (200, "cancelled refunded"), (200, "shipped captured")],
        ),
        (
            "shipped",
            [
                (200, "shipped captured"),
                (200, "shipped captured"),
                (409, "shipped captured"),
                (200, "shipped captured"),
            ],
        ),
        (
            "cancelled",
            [
                (409, "cancelled refunded"),
                (409, "cancelled refunded"),
                (200, "cancelled refunded"),
                (409, "cancelled refunded"),
            ],
        ),
    ];
    for (state, row) in TABLE {
        for (action, (status, after)) in ACTIONS.into_iter().zip(row) {
            let key = format!("{state}-{action}").replace(' ', "-");
            let order = cast.order_that_is(state, &key).await;
            let key = format!("{key}-act");
            let seen = cast.act(&order, action, &key).await;
            let what = format!("{action} when {state}: {seen:?}");
            assert_eq!(seen.status, status, "{what}");
            let again = cast.act(&order, action, &key).await;
            if status == 409 {
                let busy = state == "processing" && action.starts_with("pay");
                assert_eq!(seen.problem(), if busy { "request-in-progress" } else { "illegal-transition" }, "{what}");
                assert_eq!(seen.json()["instance"], seen_at(&order, action), "{what}");
            }
            assert_eq!(again.status, status, "{what}");
            assert_eq!(again.json()["status"], seen.json()["status"], "{what}");
            let (status, payment) = after.split_once(' ').unwrap();
            becomes(&cast.anna, cast.service.main, &order, status, payment).await;
        }
    }
    cast.shop.holds().await;
}

fn seen_at(order: &str, action: &str) -> String {
    format!("/api/orders/{order}/{}", action.split(' ').next().unwrap())
}

#[tokio::test]
async fn a_key_stands_for_one_wish_about_one_order() {
    let cast = Cast::open(&[], PATIENT).await;
    let at = cast.service.main;
    let (first, second) =
        (cast.order_that_is("paid by card", "a").await, cast.order_that_is("paid by card", "b").await);
    let cancelled = cast.anna.wish(at, &first, "cancel", "a", None).await;
    assert_eq!(cancelled.status, 200, "the key of another operation is another: {cancelled:?}");
    let reused = cast.anna.wish(at, &second, "cancel", "a", None).await;
    assert_eq!((reused.status, reused.problem().as_str()), (422, "idempotency-key-reused"));
    assert_eq!(now(&cast.anna, at, &second).await, is(200, "paid", "card", "captured"));
    let again = cast.anna.wish(at, &first, "cancel", "a", Some(&json!({}))).await;
    assert!(again.same_as(&cancelled) && again.replayed());
    let pay = async |body: Value| cast.anna.wish(at, &second, "pay", "p", Some(&body)).await;
    assert_eq!(pay(json!({"payment": "card"})).await.status, 200);
    assert_eq!(pay(json!({"payment_method": null, "payment": "card"})).await.status, 200);
    assert_eq!(pay(json!({"payment": "balance"})).await.problem(), "idempotency-key-reused");
    // An illegal wish is kept too.
    assert_eq!(cast.operator.ship(at, &second).await.status, 200);
    let illegal = cast.anna.wish(at, &second, "cancel", "c", None).await;
    let again = cast.anna.wish(at, &second, "cancel", "c", None).await;
    assert!(illegal.status == 409 && again.same_as(&illegal) && again.replayed(), "{again:?}");
    cast.shop.holds().await;
}

#[tokio::test]
async fn a_balance_is_paid_back_with_the_cancelling() {
    let cast = Cast::open(&[], PATIENT).await;
    let at = cast.service.main;
    let before = cast.anna.get(at, "/api/account").await.json()["balance"].clone();
    let order = paid(&cast.anna, at, "k", &want(&[("CUP", 3), ("TEA", 2)])).await;
    assert_ne!(cast.anna.get(at, "/api/account").await.json()["balance"], before);
    let cancelled = cast.anna.wish(at, &order, "cancel", "c", None).await;
    assert_eq!(shown(&cancelled), is(200, "cancelled", "balance", "refunded"));
    assert_eq!(cast.anna.get(at, "/api/account").await.json()["balance"], before);
    assert_eq!((cast.shop.stock("CUP").await, cast.shop.stock("TEA").await), (10, 1_000_000));
    cast.shop.holds().await;
}
