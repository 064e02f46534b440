//! Relay, queue and consumer together, on whichever pair this run has. Whatever happens on the way, each paid order ends
//! with exactly one coupon.

use std::sync::Arc;
use std::time::Duration;

use oncegate::config::Redis;
use oncegate::order::life::Happening;
use oncegate::order::values::{AccountId, OrderId};
use oncegate::store::{Grant, Republish};
use oncegate::worker::Next;
use oncegate::worker::coupons::{CAMPAIGN, CONSUMER, Consumer};
use oncegate::worker::queue::{self, Queue};
use oncegate::worker::relay::Relay;
use redis::cmd;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{IDLE, NOW, told_of};
use crate::harness::TestStore;
use crate::harness::goods::{account, asked, place};
use crate::harness::life::{happens, shop};
use crate::harness::log::Log;
use crate::harness::redis::{self as server, Server, eventually};

/// As in the service, but all of it within a second.
const REPUBLISH: Republish = Republish { first: IDLE, longest: Duration::from_secs(3600) };

/// A shop with a queue: in Redis in a run with Redis, else in this process.
struct Line {
    t: TestStore,
    redis: Redis,
    server: Option<Server>,
    /// The one queue of the process; in Redis each reader has its own view.
    memory: Option<Arc<dyn Queue>>,
    buyer: AccountId,
}

impl Line {
    async fn open() -> Self {
        let t = shop().await;
        let buyer = account(&t.store, 1_000_000).await;
        if std::env::var_os("TEST_REDIS_URL").is_none() {
            let memory = Some(queue::open(&Redis::Memory, IDLE));
            return Self { t, redis: Redis::Memory, server: None, memory, buyer };
        }
        let server = Server::start(&[]).await;
        let redis = server::single(&server.url());
        Self { t, redis, server: Some(server), memory: None, buyer }
    }

    fn queue(&self) -> Arc<dyn Queue> {
        self.memory.clone().unwrap_or_else(|| queue::open(&self.redis, IDLE))
    }

    fn relay(&self) -> Relay {
        Relay::new(self.t.store.clone(), self.queue(), REPUBLISH)
    }

    fn consumer(&self) -> Consumer {
        Consumer::new(self.t.store.clone(), self.queue())
    }

    /// Orders of one B each.
    async fn order(&self, n: usize) -> Vec<OrderId> {
        let batch: Vec<_> = (0..n).map(|_| asked(self.buyer, &Uuid::new_v4().to_string(), &[("B", 1)])).collect();
        let ids = batch.iter().map(|asked| asked.id).collect();
        place(&self.t.store, batch).await;
        ids
    }

    async fn unrewarded(&self) -> i64 {
        let question = "SELECT count(*) FROM orders o WHERE status IN ('paid', 'shipped') AND 1 <>
            (SELECT count(*) FROM coupons c WHERE c.order_id = o.id AND c.campaign = 'welcome-back')";
        self.t.sql.int(question).await
    }

    /// Runs one relay and one consumer until everybody has a coupon.
    async fn run_until_all_have_one(&self) {
        let (relay, consumer) = (self.relay(), self.consumer());
        eventually("every paid order has its coupon", async || {
            let _ = relay.run_once().await;
            let _ = step(&consumer).await;
            self.unrewarded().await == 0
        })
        .await;
        self.assert_exactly_one().await;
    }

    async fn assert_exactly_one(&self) {
        assert_eq!(self.unrewarded().await, 0);
        let wrong = "SELECT count(*) FROM (SELECT order_id FROM coupons GROUP BY order_id HAVING count(*) > 1) twice";
        assert_eq!(self.t.sql.int(wrong).await, 0);
    }
}

/// One run that does not wait long where nothing is.
async fn step(consumer: &Consumer) -> oncegate::error::Result<Next> {
    let stop = CancellationToken::new();
    let run = consumer.run_once(&stop);
    tokio::pin!(run);
    tokio::select! {
        done = &mut run => done,
        () = tokio::time::sleep(Duration::from_millis(50)) => { stop.cancel(); run.await }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paid_order_gets_its_coupon_and_it_shows_at_order_and_account() {
    let line = Line::open().await;
    let order = line.order(1).await[0];
    assert_eq!(line.relay().run_once().await.unwrap(), Next::Later);
    step(&line.consumer()).await.unwrap();
    line.assert_exactly_one().await;
    let coupon = line.t.store.order(line.buyer, order).await.unwrap().unwrap().coupon.unwrap();
    assert_eq!(line.t.store.coupons(line.buyer).await.unwrap()[0].code, coupon);
    let marked = "SELECT count(*) FROM outbox WHERE published_at IS NOT NULL AND consumed_at IS NOT NULL";
    assert_eq!(line.t.sql.int(marked).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicates_in_the_queue_grant_nothing_more() {
    let line = Line::open().await;
    let orders = line.order(20).await;
    let queue = line.queue();
    let told = line.t.store.take_messages(100, REPUBLISH).await.unwrap();
    queue.publish(&told).await.unwrap();
    queue.publish(&told).await.unwrap();
    // Under other names too.
    queue.publish(&orders.iter().map(|order| told_of(order.0)).collect::<Vec<_>>()).await.unwrap();
    line.run_until_all_have_one().await;
    for _ in 0..5 {
        step(&line.consumer()).await.unwrap();
    }
    line.assert_exactly_one().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_relay_took_and_died_with_is_taken_by_another_whether_or_not_it_was_published() {
    let line = Line::open().await;
    line.order(5).await;
    let told = line.t.store.take_messages(100, REPUBLISH).await.unwrap();
    line.queue().publish(&told[..3]).await.unwrap();
    // Here it dies.
    let relay = line.relay();
    relay.run_once().await.unwrap();
    assert_eq!(line.t.sql.int("SELECT count(*) FROM outbox WHERE publishings > 1").await, 0);
    eventually("another publishes them", async || {
        relay.run_once().await.unwrap();
        line.t.sql.int("SELECT count(*) FROM outbox WHERE publishings > 1").await == 5
    })
    .await;
    line.run_until_all_have_one().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_dies_before_or_after_its_commit_is_repeated_by_another() {
    let line = Line::open().await;
    let orders = line.order(6).await;
    line.relay().run_once().await.unwrap();
    let dead = line.queue();
    let held = dead.receive(100, NOW).await.unwrap();
    assert_eq!(held.len(), 6);
    // It has committed the first three, and acknowledged none.
    let grants: Vec<Grant> = held[..3]
        .iter()
        .map(|delivery| {
            let message = delivery.message.as_ref().unwrap();
            let told: serde_json::Value = serde_json::from_str(&message.payload).unwrap();
            let order = OrderId(told["order_id"].as_str().unwrap().parse().unwrap());
            Grant { message: message.id, order, code: format!("first {order}") }
        })
        .collect();
    line.t.store.grant_coupons(CONSUMER, CAMPAIGN, &grants).await.unwrap();
    line.run_until_all_have_one().await;
    assert_eq!(line.t.sql.int("SELECT count(*) FROM coupons WHERE code LIKE 'first %'").await, 3);
    assert_eq!(line.t.sql.int("SELECT count(*) FROM coupons").await, i64::try_from(orders.len()).unwrap());
}

/// All of them work on the same entries at the same time (F8).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_is_slower_than_the_queue_is_patient_is_overtaken_and_each_order_has_one_coupon() {
    let line = Line::open().await;
    line.order(6).await;
    line.relay().run_once().await.unwrap();
    let held = line.t.sql.keep_open("UPDATE orders SET note = note").await;
    let mut slow = JoinSet::new();
    for _ in 0..3 {
        let queue = line.queue();
        let mut entries = Vec::new();
        eventually("the entries come again", async || {
            entries.extend(queue.receive(100, NOW).await.unwrap());
            entries.len() >= 6
        })
        .await;
        let consumer = Consumer::new(line.t.store.clone(), queue);
        slow.spawn(async move { consumer.consume(&entries).await });
    }
    assert!(slow.try_join_next().is_none(), "none of them is through");
    held.commit().await;
    while let Some(done) = slow.join_next().await {
        done.unwrap().unwrap();
    }
    line.assert_exactly_one().await;
    assert_eq!(line.t.sql.int("SELECT count(*) FROM coupons").await, 6);
}

/// What an operator is told to run when outbox rows were lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_statement_of_the_readme_tells_again_of_orders_whose_messages_are_gone() {
    if std::env::var_os("TEST_DATABASE_URL").is_none() {
        return;
    }
    let line = Line::open().await;
    line.order(2).await;
    line.run_until_all_have_one().await;
    line.order(3).await;
    assert_eq!(line.t.sql.run("DELETE FROM outbox WHERE consumed_at IS NULL").await, 3);
    let readme = include_str!("../../../README.md");
    let (_, statement) = readme.split_once("```sql\nINSERT INTO outbox").unwrap();
    let statement = format!("INSERT INTO outbox{}", statement.split("```").next().unwrap());
    assert_eq!(line.t.sql.run(&statement).await, 3);
    line.run_until_all_have_one().await;
    assert_eq!(line.t.sql.run(&statement).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_everything_under_load_and_a_cancellation_in_between() {
    let line = Arc::new(Line::open().await);
    let stop = CancellationToken::new();
    let mut workers = JoinSet::new();
    for _ in 0..2 {
        let second = line.t.second().await;
        let (relay, consumer) =
            (Relay::new(second.clone(), line.queue(), REPUBLISH), Consumer::new(second, line.queue()));
        let (stopped, stopped_too) = (stop.clone(), stop.clone());
        workers.spawn(async move {
            while !stopped.is_cancelled() {
                relay.run_once().await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        workers.spawn(async move {
            while !stopped_too.is_cancelled() {
                consumer.run_once(&stopped_too).await.unwrap();
            }
        });
    }
    let mut cancelled = Vec::new();
    for _ in 0..10 {
        let orders = line.order(20).await;
        line.queue().publish(&[told_of(orders[1].0), told_of(orders[2].0)]).await.unwrap();
        happens(&line.t.store, orders[0], Happening::Cancel).await;
        cancelled.push(orders[0]);
    }
    eventually("every paid order has its coupon", async || line.unrewarded().await == 0).await;
    stop.cancel();
    workers.join_all().await;
    line.assert_exactly_one().await;
    for order in cancelled {
        let coupons = line.t.sql.int(&format!("SELECT count(*) FROM coupons WHERE order_id = '{order}'")).await;
        assert!(coupons <= 1, "one that was granted before the cancellation may stay");
    }
}

#[tokio::test]
async fn a_poison_message_is_parked_in_the_end_and_holds_nobody_up() {
    let log = Log::start();
    let line = Line::open().await;
    line.order(3).await;
    let mut broken = told_of(Uuid::now_v7());
    broken.payload = "not even JSON".into();
    line.queue().publish(&[broken, told_of(Uuid::now_v7())]).await.unwrap();
    line.run_until_all_have_one().await;
    let (queue, consumer) = (line.queue(), line.consumer());
    eventually("both are parked", async || {
        step(&consumer).await.unwrap();
        queue.tidy().await.unwrap().parked == 2
    })
    .await;
    assert_eq!((log.count("parked"), log.count("no such order")), (2, 1 + 4), "{}", log.text());
    tokio::time::sleep(IDLE + IDLE).await;
    assert_eq!(queue.receive(10, NOW).await.unwrap(), [], "it does not come again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_database_parks_nothing() {
    let line = Line::open().await;
    line.order(2).await;
    line.relay().run_once().await.unwrap();
    // Away for more deliveries than a poison message gets.
    let gone = line.t.second().await;
    gone.close().await;
    let consumer = Consumer::new(gone, line.queue());
    for _ in 0..8 {
        let _ = step(&consumer).await;
        tokio::time::sleep(IDLE).await;
    }
    assert_eq!(line.queue().tidy().await.unwrap().parked, 0);
    line.run_until_all_have_one().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_redis_loses_on_the_way_is_told_again() {
    let mut line = Line::open().await;
    let Some(mut server) = line.server.take() else { return };
    let mut direct = server::connect(&server.url()).await;
    line.order(5).await;
    line.relay().run_once().await.unwrap();
    let _: String = cmd("FLUSHALL").query_async(&mut direct).await.unwrap();
    line.order(5).await;
    line.run_until_all_have_one().await;

    line.order(5).await;
    line.relay().run_once().await.unwrap();
    assert_eq!(line.queue().receive(3, NOW).await.unwrap().len(), 3, "some are in the hands of a reader");
    server.kill().await;
    line.order(5).await;
    assert!(line.relay().run_once().await.is_err());
    server.restart().await;
    line.run_until_all_have_one().await;
    assert_eq!(line.t.sql.int("SELECT count(*) FROM coupons").await, 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destroyed_group_and_a_trimmed_stream_lose_no_coupon() {
    let mut line = Line::open().await;
    let Some(server) = line.server.take() else { return };
    let mut direct = server::connect(&server.url()).await;
    line.order(6).await;
    line.relay().run_once().await.unwrap();
    assert_eq!(line.queue().receive(3, NOW).await.unwrap().len(), 3);
    let _: u64 =
        cmd("XGROUP").arg("DESTROY").arg("oncegate:outbox").arg("coupons").query_async(&mut direct).await.unwrap();
    line.run_until_all_have_one().await;

    line.order(6).await;
    line.relay().run_once().await.unwrap();
    assert_eq!(line.queue().receive(3, NOW).await.unwrap().len(), 3);
    let _: u64 = cmd("XTRIM").arg("oncegate:outbox").arg("MAXLEN").arg(1).query_async(&mut direct).await.unwrap();
    line.run_until_all_have_one().await;
}
