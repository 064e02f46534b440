//! The outbox on its way to the queue, and the effect of its messages.

use std::collections::HashSet;
use std::time::Duration;

use oncegate::order::life::Happening;
use oncegate::order::values::OrderId;
use oncegate::store::{Grant, Granted, Message, ORDER_PAID, Republish, Store};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::harness::goods::{LEASE, account, asked, place};
use crate::harness::life::{by_balance, happens, shop};
use crate::harness::{Sql, TestStore};

const NOW: Duration = Duration::ZERO;
const NEVER: Republish = Republish { first: LEASE, longest: LEASE };
const AT_ONCE: Republish = Republish { first: NOW, longest: NOW };
const CAMPAIGN: &str = "welcome-back";

fn grant(message: Uuid, order: OrderId) -> Grant {
    Grant { message, order, code: Uuid::new_v4().to_string() }
}

async fn grant_one(store: &dyn Store, message: Uuid, order: OrderId) -> Granted {
    store.grant_coupons("coupons", CAMPAIGN, &[grant(message, order)]).await.unwrap().remove(0)
}

async fn coupons_of(t: &TestStore, order: OrderId) -> i64 {
    t.sql.int(&format!("SELECT count(*) FROM coupons WHERE order_id = '{order}' AND campaign = '{CAMPAIGN}'")).await
}

/// Which message tells of which order.
fn order_of(message: &Message) -> (Uuid, OrderId) {
    let told: serde_json::Value = serde_json::from_str(&message.payload).unwrap();
    (message.id, OrderId(told["order_id"].as_str().unwrap().parse().unwrap()))
}

/// Many orders of one B each.
async fn many(t: &TestStore, n: usize) {
    let buyer = account(&t.store, 1_000_000).await;
    for chunk in (0..n).collect::<Vec<_>>().chunks(50) {
        place(&t.store, chunk.iter().map(|k| asked(buyer, &format!("k{k}"), &[("B", 1)])).collect()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paid_order_has_one_message_that_one_relay_gets_until_its_lease_is_over() {
    let t = shop().await;
    let buyer = account(&t.store, 1_000).await;
    assert_eq!(t.store.take_messages(10, NEVER).await.unwrap(), []);
    assert_eq!(t.store.publishing_lag().await.unwrap(), NOW);
    let order = by_balance(&t.store, buyer, "k").await;
    t.sql.run(&format!("UPDATE outbox SET created_at = {}", t.sql.moment(-60))).await;
    assert!(t.store.publishing_lag().await.unwrap() >= Duration::from_secs(60));
    let taken = t.store.take_messages(10, AT_ONCE).await.unwrap();
    let [Message { topic, payload, .. }] = &taken[..] else { panic!("{taken:?}") };
    let told: serde_json::Value = serde_json::from_str(payload).unwrap();
    assert_eq!(
        (topic.as_str(), told["order_id"].as_str(), told["account_id"].as_str()),
        (ORDER_PAID, Some(order.to_string().as_str()), Some(buyer.to_string().as_str()))
    );
    assert_eq!(t.store.publishing_lag().await.unwrap(), NOW, "a relay has it");
    assert_eq!(t.sql.int("SELECT count(*) FROM outbox WHERE published_at IS NULL").await, 1, "who knows");
    assert_eq!(t.store.take_messages(10, NEVER).await.unwrap(), taken, "the relay that had it has died");
    assert_eq!(t.store.take_messages(10, NEVER).await.unwrap(), [], "this one lives");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_relay_could_not_publish_is_there_at_once_and_was_never_published() {
    let t = shop().await;
    let buyer = account(&t.store, 1_000).await;
    by_balance(&t.store, buyer, "k").await;
    let taken = t.store.take_messages(10, NEVER).await.unwrap();
    t.store.give_messages_back(&[taken[0].id]).await.unwrap();
    t.sql.run(&format!("UPDATE outbox SET created_at = {}", t.sql.moment(-60))).await;
    assert!(t.store.publishing_lag().await.unwrap() >= Duration::from_secs(60), "it waits");
    assert_eq!(t.store.take_messages(10, NEVER).await.unwrap(), taken);
    assert_eq!(t.sql.int("SELECT count(*) FROM outbox WHERE published_at IS NULL AND publishings = 1").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_message_of_an_order_is_found_once_it_had_its_effect_and_for_as_long_as_is_asked() {
    let t = shop().await;
    let buyer = account(&t.store, 1_000).await;
    let (order, other) = (by_balance(&t.store, buyer, "k").await, by_balance(&t.store, buyer, "other").await);
    let minute = Duration::from_secs(60);
    assert_eq!(t.store.consumed_message(order, minute).await.unwrap(), None, "nobody has heard it yet");
    let told = |message: &Message, order: OrderId| message.payload.contains(&order.to_string());
    for message in t.store.take_messages(10, NEVER).await.unwrap() {
        let of = if told(&message, order) { order } else { other };
        assert_eq!(grant_one(&*t.store, message.id, of).await, Granted::New);
    }
    let found = t.store.consumed_message(order, minute).await.unwrap().unwrap();
    assert!(found.topic == ORDER_PAID && told(&found, order), "{found:?}");
    assert_eq!(grant_one(&*t.store, found.id, order).await, Granted::Duplicate);
    t.sql.run(&format!("UPDATE outbox SET consumed_at = {}", t.sql.moment(-120))).await;
    assert_eq!(t.store.consumed_message(order, minute).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_share_the_messages_and_none_is_given_to_two() {
    let t = shop().await;
    let second = t.second().await;
    many(&t, 120).await;
    let mut relays = JoinSet::new();
    for n in 0..6 {
        let store = if n % 2 == 0 { t.store.clone() } else { second.clone() };
        relays.spawn(async move {
            let mut got = Vec::new();
            loop {
                let taken = store.take_messages(7, NEVER).await.unwrap();
                if taken.is_empty() {
                    return got;
                }
                got.extend(taken.into_iter().map(|message| message.id));
            }
        });
    }
    let got = relays.join_all().await.concat();
    // A relay may pass by what another holds just then: the rest is there for the next look.
    let rest = t.store.take_messages(200, NEVER).await.unwrap();
    let all: HashSet<Uuid> = got.iter().copied().chain(rest.iter().map(|message| message.id)).collect();
    assert_eq!((all.len(), got.len() + rest.len()), (120, 120));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_passes_by_what_another_is_taking_and_does_not_wait_for_it() {
    if TestStore::on_postgres().await.is_none() {
        return;
    }
    let t = shop().await;
    many(&t, 3).await;
    let taking = t.sql.keep_open("SELECT id FROM outbox ORDER BY due_at LIMIT 1 FOR UPDATE").await;
    assert_eq!(t.store.take_messages(10, NEVER).await.unwrap().len(), 2);
    drop(taking);
    assert_eq!(t.store.take_messages(10, NEVER).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_published_message_is_told_again_until_its_effect_shows_and_at_ever_longer_intervals() {
    let t = shop().await;
    let buyer = account(&t.store, 1_000).await;
    let order = by_balance(&t.store, buyer, "k").await;
    let id = t.store.take_messages(1, AT_ONCE).await.unwrap()[0].id;
    assert_eq!(t.store.take_messages(1, AT_ONCE).await.unwrap()[0].id, id);
    let published = format!("SELECT {} FROM outbox", t.sql.millis("published_at"));
    let first = t.sql.int(&published).await;

    let hour = Duration::from_secs(3600);
    let doubling = Republish { first: hour, longest: hour * 10 };
    for hours in [4, 8, 10, 10] {
        assert_eq!(t.store.take_messages(1, doubling).await.unwrap()[0].id, id);
        let wait = t.sql.int(&format!("SELECT {} FROM outbox", t.sql.millis("due_at"))).await - t.sql.clock().await;
        assert!((hours * 3_600_000 - 60_000..=hours * 3_600_000).contains(&wait), "{wait} for {hours} h");
        assert_eq!(t.store.take_messages(1, doubling).await.unwrap(), [], "not before");
        t.sql.run(&format!("UPDATE outbox SET due_at = {}", t.sql.moment(-1))).await;
    }
    assert_eq!(t.sql.int(&published).await, first);

    assert_eq!(grant_one(&*t.store, id, order).await, Granted::New);
    assert_eq!(t.store.take_messages(1, NEVER).await.unwrap(), [], "its effect is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coupon_is_granted_once_whatever_tells_of_the_order_and_how_often() {
    let t = shop().await;
    let buyer = account(&t.store, 1_000).await;
    let order = by_balance(&t.store, buyer, "k").await;
    let id = t.store.take_messages(1, NEVER).await.unwrap()[0].id;
    let (other, third) = (Uuid::now_v7(), Uuid::now_v7());
    let grants = [grant(id, order), grant(other, order), grant(third, OrderId::new())];
    let granted = t.store.grant_coupons("coupons", CAMPAIGN, &grants).await.unwrap();
    let new = granted[..2].iter().filter(|granted| **granted == Granted::New).count();
    assert_eq!((new, granted[2]), (1, Granted::Unknown), "{granted:?}");
    assert_eq!(grant_one(&*t.store, id, order).await, Granted::Duplicate);
    assert_eq!(grant_one(&*t.store, Uuid::now_v7(), order).await, Granted::Duplicate);

    let coupon = t.store.coupons(buyer).await.unwrap();
    assert_eq!((coupon.len(), coupon[0].order, coupon[0].campaign.as_str()), (1, order, CAMPAIGN));
    assert!(grants[..2].iter().any(|grant| grant.code == coupon[0].code));
    let marks = "SELECT count(*) FROM consumed_messages WHERE consumer = 'coupons'";
    assert_eq!(t.sql.int(marks).await, 3, "every message but that of the unknown order");
    let told = "SELECT count(*) FROM outbox WHERE consumed_at IS NOT NULL AND published_at IS NOT NULL";
    assert_eq!(
        t.sql.int(told).await,
        1,
        "what had its effect was published, whether or not the relay lived to mark it"
    );
    assert_eq!(t.store.grant_coupons("coupons", CAMPAIGN, &[]).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_was_cancelled_before_the_grant_gets_none_and_one_cancelled_later_keeps_it() {
    let t = shop().await;
    let buyer = account(&t.store, 1_000).await;
    let (before, after) = (by_balance(&t.store, buyer, "b").await, by_balance(&t.store, buyer, "a").await);
    happens(&t.store, before, Happening::Cancel).await;
    let message = Uuid::now_v7();
    assert_eq!(grant_one(&*t.store, message, before).await, Granted::NotDue);
    assert_eq!(grant_one(&*t.store, message, before).await, Granted::Duplicate);
    assert_eq!(grant_one(&*t.store, Uuid::now_v7(), after).await, Granted::New);
    happens(&t.store, after, Happening::Cancel).await;
    assert_eq!((coupons_of(&t, before).await, coupons_of(&t, after).await), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_waits_for_a_cancellation_that_is_under_way_and_then_grants_nothing() {
    let t = shop().await;
    let buyer = account(&t.store, 1_000).await;
    let order = by_balance(&t.store, buyer, "k").await;
    let cancelling = t.sql.keep_open(&format!("UPDATE orders SET status = 'cancelled' WHERE id = '{order}'")).await;
    let store = t.store.clone();
    let granting = tokio::spawn(async move { grant_one(&*store, Uuid::now_v7(), order).await });
    // Whether it has come to the lock by then or not, it must not be answered from before.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!granting.is_finished());
    cancelling.commit().await;
    assert_eq!((granting.await.unwrap(), coupons_of(&t, order).await), (Granted::NotDue, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_consumers_at_once_grant_each_order_one_coupon() {
    let t = shop().await;
    let second = t.second().await;
    many(&t, 40).await;
    let told = t.store.take_messages(100, NEVER).await.unwrap();
    let orders: Vec<_> = told.iter().map(order_of).collect();
    let mut consumers = JoinSet::new();
    for n in 0..50 {
        let store = if n % 2 == 0 { t.store.clone() } else { second.clone() };
        let mut grants: Vec<Grant> = orders.iter().map(|(message, order)| grant(*message, *order)).collect();
        if n % 3 == 0 {
            grants.iter_mut().for_each(|grant| grant.message = Uuid::now_v7());
        }
        // As a consumer does it: by message.
        grants.sort_by_key(|grant| grant.message);
        consumers.spawn(async move { store.grant_coupons("coupons", CAMPAIGN, &grants).await });
    }
    let mut new = 0;
    for granted in consumers.join_all().await {
        new += granted.unwrap().iter().filter(|granted| **granted == Granted::New).count();
    }
    assert_eq!((new, t.sql.int("SELECT count(*) FROM coupons").await), (40, 40));
    assert_eq!(t.sql.int("SELECT count(*) FROM outbox WHERE consumed_at IS NULL").await, 0);
    if let Sql::Postgres(_) = t.sql {
        let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        assert_eq!(t.sql.int(deadlocks).await, 0, "no two of them waited for each other");
    }
}
