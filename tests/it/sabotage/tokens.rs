//! Redis is gone, silent, or hangs up (C21, R1, R4): forms and API go on, and it comes back by itself.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::harness::client::{Buyer, Client, want};
use crate::harness::redis::{self, Server};
use crate::harness::service::Service;
use crate::harness::site::{Site, eventually};

/// What a form may take while Redis is silent, on a busy machine.
const BOUND: Duration = Duration::from_millis(2500);

struct Shop {
    site: Site,
    redis: Server,
    service: Service,
    buyer: Buyer,
    client: Client,
}

impl Shop {
    /// With a Redis of its own.
    async fn open() -> Option<Self> {
        redis::shared()?;
        let (site, redis) = (Site::open(&[]).await, Server::on_a_port().await);
        let service = site.start_with(&[("REDIS_URL", &redis.url())]).await;
        let (buyer, client) = (site.buyer(), site.client("a").await);
        Some(Self { site, redis, service, buyer, client })
    }

    /// One form and one API order, each sent twice: one order each. Then what stands altogether.
    async fn order_twice_each_way(&self, name: &str, orders: i64) {
        let at = self.service.main;
        let begun = Instant::now();
        let pair = self.buyer.form(at).await;
        assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
        let first = self.buyer.submit(at, &pair, "TEA", 1).await;
        assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
        assert!(first.order().is_some(), "{}", first.text());
        assert_eq!(self.buyer.submit(at, &pair, "TEA", 1).await.order(), first.order());

        let first = self.client.order(at, name, &want(&[("POT", 1)])).await;
        assert_eq!(first.status, 201, "{first:?}");
        let again = self.client.order(at, name, &want(&[("POT", 1)])).await;
        assert!(again.same_as(&first) && again.replayed());
        assert_eq!(self.site.orders().await, orders);
        self.site.holds().await;
    }

    async fn tokens(&self) -> String {
        self.service.get("/readyz").await.text().await.unwrap()
    }

    async fn assert_degraded(&self) {
        eventually("it says that tokens are degraded", async || self.tokens().await.contains("degraded")).await;
        assert_eq!(self.service.get("/readyz").await.status(), 200, "it serves on");
    }

    async fn assert_tokens_decide_again(&self, orders: i64) {
        eventually("tokens are well again", async || self.tokens().await.contains(r#""tokens":"ok""#)).await;
        let accepted = self.service.counted("token", "accepted").await;
        self.order_twice_each_way(&format!("after-{orders}"), orders).await;
        assert_eq!(self.service.counted("token", "accepted").await, accepted + 1);
    }
}

#[tokio::test]
async fn without_redis_forms_and_api_go_on_and_each_intent_becomes_one_order() {
    let Some(mut shop) = Shop::open().await else { return };
    let rendered = shop.buyer.form(shop.service.main).await;
    shop.redis.kill().await;
    let submitted = shop.buyer.submit(shop.service.main, &rendered, "TEA", 1).await;
    assert!(submitted.order().is_some(), "a form from before is taken: {}", submitted.text());
    shop.assert_degraded().await;
    shop.order_twice_each_way("without", 3).await;
    assert_eq!(shop.service.counted("token", "bypassed").await, 3);
    shop.redis.restart().await;
    shop.assert_tokens_decide_again(5).await;
    let after = shop.buyer.submit(shop.service.main, &rendered, "TEA", 1).await;
    assert_eq!(after.order(), submitted.order(), "a token that Redis forgot is stopped by the key");
}

#[tokio::test]
async fn a_silent_redis_costs_a_moment_and_no_order() {
    let Some(shop) = Shop::open().await else { return };
    let rendered = shop.buyer.form(shop.service.main).await;
    shop.redis.signal(Signal::SIGSTOP);
    let begun = Instant::now();
    let submitted = shop.buyer.submit(shop.service.main, &rendered, "TEA", 1).await;
    assert!(submitted.order().is_some(), "{}", submitted.text());
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    shop.assert_degraded().await;
    shop.order_twice_each_way("silent", 3).await;
    assert_eq!(shop.service.counted("token", "bypassed").await, 3);
    shop.redis.signal(Signal::SIGCONT);
    shop.assert_tokens_decide_again(5).await;
}

#[tokio::test]
async fn a_connection_that_redis_has_closed_costs_nothing() {
    let Some(shop) = Shop::open().await else { return };
    let mut beside = redis::connect(&shop.redis.url()).await;
    for orders in [2, 4] {
        let closed: i64 = ::redis::cmd("CLIENT")
            .arg("KILL")
            .arg("TYPE")
            .arg("normal")
            .arg("SKIPME")
            .arg("yes")
            .query_async(&mut beside)
            .await
            .unwrap();
        assert!(closed >= 1);
        shop.order_twice_each_way(&format!("k{orders}"), orders).await;
    }
    assert_eq!(shop.service.counted("token", "accepted").await, 2);
    assert_eq!(shop.service.counted("token", "bypassed").await, 0);
}
