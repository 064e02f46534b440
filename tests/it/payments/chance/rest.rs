//! When nobody does anything any more: everything that was begun ends by itself, whoever asks again is told how it ended,
//! and the tables, the provider and the buyers agree.

use std::time::{Duration, Instant};

use super::world::World;

/// Longer than a few leases with the pauses of the reconciler between them take.
const PATIENCE: Duration = Duration::from_secs(40);

/// What is still under way: nothing, at rest.
const UNDER_WAY: [(&str, &str); 3] = [
    ("payments without an outcome", "FROM payments WHERE status IN ('started', 'unknown', 'processing', 'refund_due')"),
    (
        "orders without their coupon",
        "FROM orders o WHERE status IN ('paid', 'shipped') AND NOT EXISTS
            (SELECT 1 FROM coupons c WHERE c.order_id = o.id AND c.campaign = 'welcome-back')",
    ),
    ("messages that had no effect", "FROM outbox WHERE consumed_at IS NULL"),
];

/// What must not be in the end.
const WRONG: [(&str, &str); 2] = [
    (
        "two coupons for an order",
        "FROM (SELECT 1 FROM coupons GROUP BY order_id, campaign HAVING count(*) > 1) AS twice",
    ),
    (
        "coupons for orders of another account",
        "FROM coupons c JOIN orders o ON o.id = c.order_id WHERE o.account_id <> c.account_id",
    ),
];

impl World {
    /// Waits until nothing is under way, asks once more for everything, and looks.
    pub async fn comes_to_rest(&self) {
        self.quiet().await;
        let intents = self.intents.lock().unwrap().clone();
        for (at, intent) in intents.iter().enumerate() {
            let begun = Instant::now();
            // What came under the key meanwhile is told also to whoever asks for something else.
            while !self.send(at, intent.content()).await {
                assert!(begun.elapsed() < PATIENCE, "no definite answer for {intent:?}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        self.quiet().await;
        self.shop.holds().await;
        for (what, from) in WRONG {
            assert_eq!(self.shop.count(from).await, 0, "{what}");
        }
        self.money_is_where_it_belongs().await;
    }

    async fn quiet(&self) {
        let begun = Instant::now();
        for (what, from) in UNDER_WAY {
            while self.shop.count(from).await > 0 {
                assert!(begun.elapsed() < PATIENCE, "does not come to rest: {what}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// Of each order that is paid by card the provider has its total, once; of all others nothing.
    async fn money_is_where_it_belongs(&self) {
        let log = self.shop.till.log().await;
        let mut orders: Vec<&str> = log.iter().map(|line| line.order.as_str()).collect();
        orders.sort_unstable();
        orders.dedup();
        for order in orders {
            let net: i64 = log
                .iter()
                .filter(|line| line.order == order)
                .map(|line| if line.refund { -line.amount } else { line.amount })
                .sum();
            let due = format!(
                "SELECT CAST(coalesce(sum(o.total), 0) AS bigint) FROM orders o JOIN payments p ON p.order_id = o.id
                WHERE CAST(o.id AS text) = '{order}' AND o.status IN ('paid', 'shipped')
                    AND p.method = 'card' AND p.status = 'captured'"
            );
            let due = self.shop.site.under.sql.int(&due).await;
            assert_eq!(net, due, "what the provider has of {order}: {log:#?}");
        }
        let unheard = "SELECT count(*) FROM orders o JOIN payments p ON p.order_id = o.id
            WHERE p.method = 'card' AND p.status = 'captured' AND o.total > 0";
        let charged = log.iter().filter(|line| !line.refund).count() - log.iter().filter(|line| line.refund).count();
        assert_eq!(self.shop.site.under.sql.int(unheard).await, i64::try_from(charged).unwrap(), "{log:#?}");
    }
}
