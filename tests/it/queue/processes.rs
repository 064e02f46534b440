//! The program itself, killed at the worst moments, on whichever pair this run has. A short lease makes the others take over
//! within seconds.

use std::time::Duration;

use nix::sys::signal::Signal;
use redis::cmd;
use serde_json::json;
use uuid::Uuid;

use crate::harness::Sql;
use crate::harness::client::{Client, want};
use crate::harness::proxy::{Fault, Proxy};
use crate::harness::redis::{self as server, Server};
use crate::harness::service::Service;
use crate::harness::site::Site;

/// Longer than the times that follow from the lease, on a starved machine.
const PATIENCE: Duration = Duration::from_secs(60);
const SETTINGS: [(&str, &str); 3] =
    [("ONCEGATE_LEASE", "3s"), ("ONCEGATE_OPENING_BALANCE", "100000000"), ("ONCEGATE_LOG", "warn,oncegate=info")];

/// A site whose queue is its own.
struct Queued {
    site: Site,
    redis: Option<(Server, String)>,
    client: Client,
}

impl Queued {
    async fn open() -> Self {
        Self::with(&[]).await
    }

    async fn with(settings: &[(&'static str, &str)]) -> Self {
        let site = Site::open(&[&SETTINGS, settings].concat()).await;
        let redis = match std::env::var_os("TEST_REDIS_URL") {
            None => None,
            Some(_) => {
                let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
                let server = Server::start(&["--bind", "127.0.0.1", "--port", &port.to_string()]).await;
                Some((server, format!("redis://127.0.0.1:{port}")))
            }
        };
        let client = site.client("shop-7").await;
        Self { site, redis, client }
    }

    /// For what only row locks and a queue outside can show; `None` in the run on the embedded pair.
    async fn with_servers() -> Option<Self> {
        std::env::var_os("TEST_DATABASE_URL").and(std::env::var_os("TEST_REDIS_URL"))?;
        Some(Self::open().await)
    }

    fn sql(&self) -> &Sql {
        &self.site.under.sql
    }

    fn redis_url(&self) -> &str {
        self.redis.as_ref().map_or("memory://", |(_, url)| url)
    }

    async fn start(&self) -> Service {
        self.site.start_with(&[("REDIS_URL", self.redis_url())]).await
    }

    /// One whose way to Redis is through this proxy.
    async fn start_behind(&self, proxy: &Proxy) -> Service {
        self.site.start_with(&[("REDIS_URL", &server::through(self.redis_url(), proxy.addr()))]).await
    }

    /// Places an order through this instance; its id.
    async fn order(&self, at: &Service) -> String {
        let answer = self.client.order(at.main, &Uuid::new_v4().to_string(), &want(&[("TEA", 1)])).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.order().unwrap()
    }

    async fn coupons(&self) -> i64 {
        self.sql().int("SELECT count(*) FROM coupons WHERE campaign = 'welcome-back'").await
    }

    async fn consumed(&self) -> i64 {
        self.sql().int("SELECT count(*) FROM outbox WHERE consumed_at IS NOT NULL AND published_at IS NOT NULL").await
    }

    /// Every paid order has one in the end, and no order has two.
    async fn every_order_has_one(&self, orders: usize) {
        let orders = i64::try_from(orders).unwrap();
        in_time("every order has its coupon", async || {
            let without = "SELECT count(*) FROM orders o WHERE NOT EXISTS
                (SELECT 1 FROM coupons c WHERE c.order_id = o.id AND c.campaign = 'welcome-back')";
            self.sql().int(without).await == 0 && self.consumed().await == orders
        })
        .await;
        assert_eq!((self.sql().int("SELECT count(*) FROM orders").await, self.coupons().await), (orders, orders));
    }

    /// How many statements with these words wait for a lock.
    async fn waiting(&self, words: &str) -> i64 {
        let waiting = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
                AND query LIKE '%{words}%'"
        );
        self.sql().int(&waiting).await
    }

    /// One number of this instance.
    async fn number(&self, of: &Service, name: &str) -> f64 {
        let numbers = of.get_ops("/metrics").await.text().await.unwrap();
        let line = numbers.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("no {name} in {numbers}"))
    }
}

async fn in_time(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_order_gets_its_coupon_from_the_running_service_and_its_numbers_tell() {
    let site = Queued::open().await;
    let service = site.start().await;
    let order = site.order(&service).await;
    site.every_order_has_one(1).await;
    let code = site.client.get(service.main, &format!("/api/orders/{order}")).await.json()["coupon"].clone();
    let account = site.client.get(service.main, "/api/account").await.json();
    assert_eq!(account["coupons"].as_array().unwrap().len(), 1);
    let coupon = &account["coupons"][0];
    assert_eq!(
        (&coupon["code"], &coupon["campaign"], &coupon["order_id"]),
        (&code, &json!("welcome-back"), &json!(order))
    );
    for (event, times) in [("published", 1.0), ("granted", 1.0), ("duplicate", 0.0), ("parked", 0.0)] {
        let name = format!("oncegate_messages_total{{event=\"{event}\"}}");
        assert!(site.number(&service, &name).await >= times, "{event}");
    }
    in_time("the lag is told", async || {
        let numbers = service.get_ops("/metrics").await.text().await.unwrap();
        numbers.contains("oncegate_outbox_lag_seconds ") && numbers.contains("oncegate_queue_entries ")
    })
    .await;
}

#[tokio::test]
async fn a_process_that_is_killed_at_any_moment_costs_no_coupon() {
    let site = Queued::open().await;
    let mut orders = 0;
    for round in 0..4_u64 {
        let service = site.start().await;
        for _ in 0..5 {
            site.order(&service).await;
            orders += 1;
        }
        // Each round at another moment of the relay's and the consumer's work.
        tokio::time::sleep(Duration::from_millis(round * 70)).await;
        service.signal(Signal::SIGKILL);
        service.end().await;
    }
    let last = site.start().await;
    site.every_order_has_one(orders).await;
    drop(last);
}

#[tokio::test]
async fn two_instances_go_on_while_redis_is_flushed_and_restarted_and_one_of_them_is_killed() {
    let mut site = Queued::open().await;
    let (one, other) = (site.start().await, site.start().await);
    let mut orders = 0;
    for round in 0..3 {
        for instance in [&one, &other, &one, &other] {
            site.order(instance).await;
            orders += 1;
        }
        if let Some((server, _)) = &mut site.redis {
            if round == 0 {
                let mut direct = server::connect(&server.url()).await;
                let _: String = cmd("FLUSHALL").query_async(&mut direct).await.unwrap();
            } else {
                server.kill().await;
            }
        }
        site.order(&one).await;
        orders += 1;
        if let Some((server, _)) = &mut site.redis
            && round > 0
        {
            server.restart().await;
        }
    }
    other.signal(Signal::SIGKILL);
    other.end().await;
    site.every_order_has_one(orders).await;
    assert_eq!(site.number(&one, "oncegate_messages_total{event=\"parked\"}").await, 0.0);
}

#[tokio::test]
async fn a_consumer_killed_before_its_commit_leaves_the_grant_to_another() {
    let Some(site) = Queued::with_servers().await else { return };
    let doomed = site.start().await;
    let coupons = site.sql().keep_open("LOCK TABLE coupons IN EXCLUSIVE MODE").await;
    site.order(&doomed).await;
    in_time("the grant is under way", async || site.waiting("INSERT INTO coupons").await > 0).await;
    doomed.signal(Signal::SIGKILL);
    doomed.end().await;
    // What was sent is done or given up without its client: here the server's limit ends it.
    in_time("the grant is given up", async || site.waiting("INSERT INTO coupons").await == 0).await;
    assert_eq!(site.coupons().await, 0);
    drop(coupons);
    let heir = site.start().await;
    site.every_order_has_one(1).await;
    drop(heir);
}

#[tokio::test]
async fn a_consumer_killed_after_its_commit_and_before_the_acknowledgement_is_repeated_without_effect() {
    let Some(site) = Queued::with_servers().await else { return };
    let proxy = Proxy::start(server::address(site.redis_url())).await;
    let doomed = site.start_behind(&proxy).await;
    let coupons = site.sql().keep_open("LOCK TABLE coupons IN EXCLUSIVE MODE").await;
    site.order(&doomed).await;
    in_time("the grant is under way", async || site.waiting("INSERT INTO coupons").await > 0).await;
    proxy.set(Fault::Stall);
    drop(coupons);
    in_time("it is committed", async || site.coupons().await == 1).await;
    doomed.signal(Signal::SIGKILL);
    doomed.end().await;
    let mut direct = server::connect(site.redis_url()).await;
    let heir = site.start().await;
    in_time("the entry is acknowledged", async || {
        let (pending, ..): (u64, redis::Value, redis::Value, redis::Value) =
            cmd("XPENDING").arg("oncegate:outbox").arg("coupons").query_async(&mut direct).await.unwrap();
        pending == 0
    })
    .await;
    in_time("as a duplicate", async || site.number(&heir, "oncegate_messages_total{event=\"duplicate\"}").await >= 1.0)
        .await;
    assert_eq!(site.number(&heir, "oncegate_messages_total{event=\"granted\"}").await, 0.0);
    site.every_order_has_one(1).await;
}

#[tokio::test]
async fn a_relay_killed_before_it_published_what_it_had_taken_is_repeated_by_another() {
    let Some(site) = Queued::with_servers().await else { return };
    let proxy = Proxy::start(server::address(site.redis_url())).await;
    let doomed = site.start_behind(&proxy).await;
    proxy.set(Fault::Stall);
    site.order(&doomed).await;
    let taken = "SELECT count(*) FROM outbox WHERE publishings = 1";
    in_time("the relay has taken the message", async || site.sql().int(taken).await == 1).await;
    doomed.signal(Signal::SIGKILL);
    doomed.end().await;
    let mut direct = server::connect(site.redis_url()).await;
    let length: u64 = cmd("XLEN").arg("oncegate:outbox").query_async(&mut direct).await.unwrap();
    assert_eq!((length, site.coupons().await), (0, 0), "it was not published");
    let heir = site.start().await;
    site.every_order_has_one(1).await;
    drop(heir);
}

#[tokio::test]
async fn the_sweeper_goes_on_after_the_database_was_away_and_tells_when_it_last_succeeded() {
    let site = Queued::with(&[("ONCEGATE_SWEEP_INTERVAL", "100ms")]).await;
    let (proxy, mut service) = if site.site.shares_a_server() {
        let (proxy, url) = site.site.database_proxy().await;
        (Some(proxy), site.site.start_with(&[("DATABASE_URL", &url)]).await)
    } else {
        (None, site.start().await)
    };
    let last = "oncegate_sweep_last_success_timestamp_seconds";
    in_time("it has swept", async || {
        service.get_ops("/metrics").await.text().await.unwrap().contains(&format!("\n{last} "))
    })
    .await;
    let before = site.number(&service, last).await;
    let expired = |id: &str| {
        format!(
            "INSERT INTO sessions (id, data, expires_at) VALUES ('{id}', CAST('x' AS {}), {})",
            if proxy.is_some() { "bytea" } else { "BLOB" },
            site.sql().moment(-60)
        )
    };
    if let Some(proxy) = &proxy {
        proxy.set(Fault::Refuse);
        service.wait_for("a worker has failed and goes on trying worker=\"sweeper\"").await;
        let during = site.number(&service, last).await;
        site.sql().run(&expired("during")).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(site.number(&service, last).await, during, "a sweep that failed is no success");
        proxy.set(Fault::None);
    }
    site.sql().run(&expired("after")).await;
    in_time("what expired is swept", async || site.sql().int("SELECT count(*) FROM sessions").await == 0).await;
    in_time("the success is told", async || site.number(&service, last).await > before).await;
    let swept = site.number(&service, "oncegate_swept_total{kind=\"sessions\"}").await;
    assert_eq!(swept, if proxy.is_some() { 2.0 } else { 1.0 });
}
