//! An order's life over the wire: what each state allows, and who wins when two things happen at once (E14, F3).

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{BAD, HASTY, PATIENT, SLOW, Shop, becomes, cups, cups_with, is, now, paid, shown};
use crate::harness::client::{Client, Seen, want};
use crate::harness::service::Service;
use crate::harness::site::{Site, eventually, in_turn};
use crate::races::at_once;

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
    // Slow payments come through after the test, and refunds are not carried out within it.
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
            [(200, "paid captured"), (200, "paid captured"), (200, "cancelled refund_due"), (200, "shipped captured")],
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
            let (_, is, _, payment) = now(&cast.anna, cast.service.main, &order).await;
            assert_eq!(format!("{is} {payment}"), after, "{what}");
        }
    }
    cast.shop.holds().await;
}

fn seen_at(order: &str, action: &str) -> String {
    format!("/api/orders/{order}/{}", action.split(' ').next().unwrap())
}

#[tokio::test]
async fn only_an_operator_ships_and_only_its_owner_cancels_or_pays() {
    let cast = Cast::open(&[], PATIENT).await;
    let (at, ben) = (cast.service.main, cast.shop.site.client("ben").await);
    let order = paid(&cast.anna, at, "k", &cups(1)).await;
    for client in [&cast.anna, &ben] {
        let seen = client.ship(at, &order).await;
        assert_eq!((seen.status, seen.problem().as_str()), (403, "forbidden"), "{seen:?}");
    }
    for what in ["cancel", "pay"] {
        let seen = ben.wish(at, &order, what, "k", None).await;
        assert_eq!((seen.status, seen.problem().as_str()), (404, "not-found"), "{seen:?}");
        let unknown = cast.anna.wish(at, &uuid::Uuid::now_v7().to_string(), what, "k", None).await;
        assert_eq!(unknown.status, 404);
    }
    assert_eq!(cast.operator.ship(at, &uuid::Uuid::now_v7().to_string()).await.status, 404);
    assert_eq!(now(&cast.anna, at, &order).await, is(200, "paid", "card", "captured"));
    let shipped = cast.operator.ship(at, &order).await;
    assert_eq!(shown(&shipped), is(200, "shipped", "card", "captured"), "{shipped:?}");
    cast.shop.holds().await;
}

#[tokio::test]
async fn of_several_wrongs_of_a_wish_the_first_in_the_order_of_the_contract_is_answered() {
    let cast = Cast::open(&[], PATIENT).await;
    let at = cast.service.main;
    let order = cast.order_that_is("pending", "k").await;
    let http = crate::harness::http().build().unwrap();
    let stranger = uuid::Uuid::now_v7().to_string();
    let json_type = Some("application/json");
    let mut checked = 0;
    for what in ["cancel", "pay"] {
        for (status, name, id, token, key, media, body) in [
            (401, "unauthenticated", &stranger, false, None, None, "{"),
            (404, "not-found", &stranger, true, None, None, "{"),
            (400, "idempotency-key-missing", &order, true, None, Some("text/plain"), "{"),
            (400, "idempotency-key-malformed", &order, true, Some("a b"), Some("text/plain"), "{"),
            (415, "unsupported-media-type", &order, true, Some("a"), Some("text/plain"), "{"),
            (415, "unsupported-media-type", &order, true, Some("a"), None, "{"),
            (415, "unsupported-media-type", &order, true, Some("a"), None, r#"{"payment":"card"}"#),
            (415, "unsupported-media-type", &order, true, Some("a"), Some("text/plain"), "{}"),
            (400, "malformed-request", &order, true, Some("a"), json_type, "{"),
            (400, "malformed-request", &order, true, Some("a"), json_type, r#"{"x":1,"x":1}"#),
            (422, "validation-failed", &order, true, Some("a"), json_type, "[]"),
            (422, "validation-failed", &order, true, Some("a"), json_type, "null"),
            (422, "validation-failed", &order, true, Some("a"), json_type, r#"{"note":"x"}"#),
            (422, "validation-failed", &order, true, Some("a"), json_type, r#"{"payment":7}"#),
            (422, "validation-failed", &order, true, Some("a"), json_type, r#"{"payment":"gold"}"#),
        ] {
            let mut request = http.post(format!("http://{at}/api/orders/{id}/{what}")).body(body);
            if token {
                request = request.bearer_auth(cast.anna.token());
            }
            for (header, value) in [("idempotency-key", key), ("content-type", media)] {
                if let Some(value) = value {
                    request = request.header(header, value);
                }
            }
            let answer = request.send().await.unwrap();
            let (seen, problem) = (answer.status(), answer.json::<Value>().await.unwrap());
            assert_eq!(
                (seen.as_u16(), &problem["type"]),
                (status, &json!(format!("/problems/{name}"))),
                "{what} {body}"
            );
            checked += 1;
        }
    }
    assert_eq!((checked, cast.shop.count("FROM idempotency_records WHERE operation <> 'place_order'").await), (30, 0));
    let large = http.post(format!("http://{at}/api/orders/{order}/cancel")).bearer_auth(cast.anna.token());
    let large =
        large.header("idempotency-key", "a").header("content-type", "application/json").body(vec![b' '; 70_000]);
    assert_eq!(large.send().await.unwrap().status(), 413);
    for (method, path, client, status) in [
        ("GET", format!("{order}/cancel"), &cast.anna, 405),
        ("PUT", format!("{order}/pay"), &cast.anna, 405),
        ("GET", format!("{stranger}/pay"), &cast.anna, 404),
        ("GET", format!("{order}/ship"), &cast.anna, 403),
        ("GET", format!("{order}/ship"), &cast.operator, 405),
        ("GET", format!("{stranger}/ship"), &cast.operator, 404),
        ("POST", format!("{order}/burn"), &cast.anna, 404),
    ] {
        let request = http.request(method.parse().unwrap(), format!("http://{at}/api/orders/{path}"));
        assert_eq!(request.bearer_auth(client.token()).send().await.unwrap().status(), status, "{method} {path}");
    }
    // An empty body needs no media type, whatever a client adds by itself; nor does an empty object.
    for (n, (media, body)) in
        [(None, ""), (None, "{}"), (None, " {} "), (Some("application/x-www-form-urlencoded"), ""), (json_type, "")]
            .into_iter()
            .enumerate()
    {
        let mut request = http.post(format!("http://{at}/api/orders/{order}/cancel")).bearer_auth(cast.anna.token());
        request = request.header("idempotency-key", format!("c{n}")).body(body);
        if let Some(media) = media {
            request = request.header("content-type", media);
        }
        assert_eq!(request.send().await.unwrap().status(), 200, "{media:?} {body:?}");
    }
    cast.shop.holds().await;
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
async fn a_cancelled_card_order_is_paid_back_by_the_provider_once() {
    let cast = Cast::open(&[], HASTY).await;
    let second = cast.shop.site.start().await;
    let order = cast.order_that_is("paid by card", "k").await;
    let answers = at_once(20, |n| {
        let (anna, order, at) = (cast.anna.clone(), order.clone(), [cast.service.main, second.main][n % 2]);
        // Ten times under one key, and ten times under another each.
        async move { anna.wish(at, &order, "cancel", &format!("c{}", n.saturating_sub(10)), None).await }
    })
    .await;
    for seen in &answers {
        assert!(seen.status == 200 || seen.is_in_progress(4), "{seen:?}");
    }
    assert!(answers.iter().any(|seen| seen.status == 200));
    assert_eq!(cast.shop.stock("TEA").await, 1_000_000);
    becomes(&cast.anna, second.main, &order, "cancelled", "refunded").await;
    assert_eq!(cast.shop.till.log().await.iter().filter(|line| line.refund).count(), 1);
    assert_eq!(cast.shop.stock("TEA").await, 1_000_000);
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

/// How often two things race, in so many lanes beside each other.
const ROUNDS: usize = 200;
const LANES: usize = 4;

/// Everybody who takes part in a race.
#[derive(Clone)]
struct Race {
    anna: Client,
    operator: Client,
    at: [SocketAddr; 2],
}

impl Race {
    /// Runs a round so often: `work` gets its number, and the two processes in an order that changes.
    async fn run<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
        cast: &Cast,
        second: &Service,
        work: impl Fn(Self, usize) -> W + Clone + Send + Sync + 'static,
    ) -> Vec<T> {
        let race =
            Self { anna: cast.anna.clone(), operator: cast.operator.clone(), at: [cast.service.main, second.main] };
        let lanes = at_once(LANES, move |lane| {
            let (race, work) = (race.clone(), work.clone());
            async move {
                let mut done = Vec::new();
                for round in (lane..ROUNDS).step_by(LANES) {
                    let mut race = race.clone();
                    race.at.rotate_left(round % 2);
                    done.push(work(race, round).await);
                }
                done
            }
        })
        .await;
        lanes.into_iter().flatten().collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_cancelling_and_shipping_at_once_one_wins() {
    let cast = Cast::open(&[], PATIENT).await;
    let second = cast.shop.site.start().await;
    let won = Race::run(&cast, &second, |race, round| async move {
        let Race { anna, operator, at: [one, other] } = race;
        let order = paid(&anna, one, &format!("k{round}"), &want(&[("TEA", 1)])).await;
        let key = format!("c{round}");
        let (cancel, ship) = tokio::join!(anna.wish(one, &order, "cancel", &key, None), operator.ship(other, &order));
        let (won, lost) = match (cancel.status, ship.status) {
            (200, 409) => ("cancelled", ship),
            (409, 200) => ("shipped", cancel),
            _ => panic!("both or neither: {cancel:?} {ship:?}"),
        };
        assert_eq!(lost.problem(), "illegal-transition");
        (order, won)
    })
    .await;
    assert_eq!(won.len(), ROUNDS);
    for (order, won) in won {
        let status = format!("SELECT status FROM orders WHERE CAST(id AS text) = '{order}'");
        assert_eq!(cast.shop.site.under.sql.text(&status).await, won);
    }
    cast.shop.holds().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_cancelling_and_paying_at_once_the_order_is_cancelled_and_what_was_taken_is_given_back() {
    let cast = Cast::open(&["--callbacks", "none"], PATIENT).await;
    let second = cast.shop.site.start().await;
    Race::run(&cast, &second, |race, round| async move {
        let Race { anna, at: [one, other], .. } = race;
        let order = anna.order(one, &format!("k{round}"), &tea(Some(BAD))).await.order().unwrap();
        let how = json!({"payment": if round % 3 == 0 { "balance" } else { "card" }});
        let (c, p) = (format!("c{round}"), format!("p{round}"));
        let (cancel, pay) =
            tokio::join!(anna.wish(one, &order, "cancel", &c, None), anna.wish(other, &order, "pay", &p, Some(&how)));
        assert_eq!(cancel.status, 200, "a pending or paid order can be cancelled: {cancel:?}");
        let refused = pay.status == 409 && pay.problem() == "illegal-transition";
        assert!(pay.status == 200 || refused, "it was paid before, or not at all: {pay:?}");
    })
    .await;
    assert_eq!(cast.shop.count("FROM orders WHERE status = 'cancelled'").await, 200);
    assert_eq!(cast.shop.count("FROM payments WHERE status = 'captured'").await, 0);
    cast.shop.holds().await;
}

/// Settings under which an unpaid order is soon overdue.
const SOON: [(&str, &str); 3] =
    [("ONCEGATE_PAYMENT_WINDOW", "3s"), ("ONCEGATE_SWEEP_INTERVAL", "200ms"), ("ONCEGATE_LEASE", "60s")];

#[tokio::test]
async fn an_order_that_nobody_pays_is_cancelled_after_its_window_and_its_goods_go_back() {
    let cast = Cast::open(&["--callback-delay", "8s"], &SOON).await;
    let at = cast.service.main;
    let unpaid = cast.order_that_is("pending", "unpaid").await;
    let in_flight = cast.order_that_is("processing", "in-flight").await;
    let settled = cast.order_that_is("paid by card", "paid").await;
    becomes(&cast.anna, at, &unpaid, "cancelled", "declined").await;
    assert_eq!(
        now(&cast.anna, at, &in_flight).await,
        is(200, "pending", "card", "processing"),
        "its outcome comes first"
    );
    assert_eq!(cast.shop.stock("TEA").await, 999_998);
    let late = cast.anna.wish(at, &unpaid, "pay", "p", None).await;
    assert_eq!((late.status, late.problem().as_str()), (409, "illegal-transition"));
    becomes(&cast.anna, at, &in_flight, "paid", "captured").await;
    assert_eq!(now(&cast.anna, at, &settled).await, is(200, "paid", "card", "captured"));
    cast.shop.holds().await;
}

#[tokio::test]
async fn without_a_sweeper_an_unpaid_order_stays() {
    let settings = [("ONCEGATE_PAYMENT_WINDOW", "1ms"), ("ONCEGATE_SWEEP_INTERVAL", "0s")];
    let cast = Cast::open(&[], &settings).await;
    let order = cast.order_that_is("pending", "k").await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(now(&cast.anna, cast.service.main, &order).await, is(200, "pending", "card", "declined"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_twenty_times_and_swept_by_two_processes_the_goods_go_back_once() {
    let shop = Shop::open(&[], &SOON).await;
    let services = shop.site.start_two().await;
    shop.till.courier.bring_to(services[0].main);
    let anna = shop.site.client("anna").await;
    let mut orders = Vec::new();
    for n in 0..5 {
        orders.push(anna.order(services[0].main, &format!("k{n}"), &cups_with(2, BAD)).await.order().unwrap());
    }
    assert_eq!(shop.stock("CUP").await, 0);
    // About when the window ends.
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    for (n, order) in orders.iter().enumerate() {
        let answers = at_once(20, |m| {
            let (anna, order, at) = (anna.clone(), order.clone(), in_turn(&services, m));
            async move { anna.wish(at, &order, "cancel", &format!("c{n}-{m}"), None).await.status }
        })
        .await;
        assert_eq!(answers, [200; 20]);
    }
    eventually("they are cancelled", async || shop.count("FROM orders WHERE status = 'cancelled'").await == 5).await;
    assert_eq!(shop.stock("CUP").await, 10);
    shop.holds().await;
}

/// Stock comes back also where nothing but the balance was ever offered.
#[tokio::test]
async fn cancelled_by_twenty_requests_at_once_an_order_gives_its_goods_back_once() {
    let site = Site::open(PATIENT).await;
    let services = site.start_two().await;
    let anna = site.client("anna").await;
    let order = paid(&anna, services[0].main, "k", &want(&[("CUP", 4)])).await;
    let answers = at_once(20, |n| {
        let (anna, order, at) = (anna.clone(), order.clone(), in_turn(&services, n));
        async move { anna.wish(at, &order, "cancel", &format!("c{n}"), None).await.status }
    })
    .await;
    assert_eq!(answers, [200; 20]);
    assert_eq!(site.under.sql.int("SELECT stock FROM products WHERE sku = 'CUP'").await, 10);
    assert_eq!(site.under.sql.int("SELECT count(*) FROM account_entries WHERE kind = 'refund'").await, 1);
    site.holds_with_cards().await;
}
