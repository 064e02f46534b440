//! What must hold after whatever was done to the service: the invariants 1 to 5 of the contract's section 7, by SQL.

use super::site::{PUT_IN, Site};

/// How many rows break it, and what they break. For shops where everything is paid from the balance.
const BROKEN: [(&str, &str); 9] = [
    (
        "at most one order per account and key",
        "SELECT count(*) FROM (SELECT 1 FROM orders GROUP BY account_id, idempotency_key HAVING count(*) > 1) AS twice",
    ),
    (
        "at most one captured payment per order, of its total; exactly one where it is paid",
        "SELECT count(*) FROM (
            SELECT 1 FROM orders o LEFT JOIN payments p ON p.order_id = o.id AND p.status = 'captured'
            GROUP BY o.id, o.status, o.total
            HAVING count(p.order_id) > 1 OR max(p.amount) <> o.total
                OR count(p.order_id) = 0 AND o.status IN ('paid', 'shipped')) AS broken",
    ),
    ("stock is not negative", "SELECT count(*) FROM products WHERE stock < 0"),
    (
        "a balance is the sum of its entries and not negative",
        "SELECT count(*) FROM accounts a WHERE balance < 0
            OR balance <> coalesce((SELECT sum(amount) FROM account_entries e WHERE e.account_id = a.id), 0)",
    ),
    (
        "an order is charged once, its total",
        "SELECT count(*) FROM orders o WHERE
            (SELECT count(*) FROM account_entries e WHERE e.order_id = o.id AND kind = 'charge') <> 1
            OR (SELECT sum(amount) FROM account_entries e WHERE e.order_id = o.id AND kind = 'charge') <> -total",
    ),
    (
        "an order costs the sum of its lines",
        "SELECT count(*) FROM orders o WHERE total <>
            coalesce((SELECT sum(quantity * unit_price) FROM order_lines l WHERE l.order_id = o.id), -1)",
    ),
    (
        "an order has one message for the queue",
        "SELECT abs((SELECT count(*) FROM outbox WHERE topic = 'order.paid') - (SELECT count(*) FROM orders))",
    ),
    (
        "a record that tells of an order tells of the one under its key",
        "SELECT count(*) FROM idempotency_records r WHERE status = 'done' AND order_id IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = r.order_id AND o.account_id = r.account_id
                AND (o.idempotency_key = r.key OR r.response_status = 409))",
    ),
    (
        "nothing is written for a key that is refused",
        "SELECT count(*) FROM idempotency_records r JOIN orders o
            ON o.account_id = r.account_id AND o.idempotency_key = r.key WHERE r.response_status >= 400",
    ),
];

/// The same where orders are also paid by card, called off and shipped.
const BROKEN_WITH_CARDS: [(&str, &str); 8] = [
    BROKEN[0],
    (
        "one captured payment of its total where an order is paid or shipped, else none",
        "SELECT count(*) FROM (
            SELECT 1 FROM orders o LEFT JOIN payments p ON p.order_id = o.id AND p.status = 'captured'
            GROUP BY o.id, o.status, o.total
            HAVING max(p.amount) <> o.total
                OR count(p.order_id) <> CASE WHEN o.status IN ('paid', 'shipped') THEN 1 ELSE 0 END) AS broken",
    ),
    BROKEN[2],
    BROKEN[3],
    (
        "what a balance was charged for an order is what its payment from the balance says",
        "SELECT count(*) FROM orders o WHERE
            coalesce((SELECT sum(amount) FROM account_entries e WHERE e.order_id = o.id), 0) <>
            -coalesce((SELECT sum(amount) FROM payments p
                WHERE p.order_id = o.id AND p.method = 'balance' AND p.status = 'captured'), 0)",
    ),
    BROKEN[5],
    (
        "an order has one message for the queue where it is or was paid, and none where it never was",
        "SELECT count(*) FROM orders o WHERE
            (SELECT count(*) FROM outbox b WHERE topic = 'order.paid' AND CAST(b.payload AS text) LIKE '%' || CAST(o.id AS text) || '%')
            NOT BETWEEN CASE WHEN o.status IN ('paid', 'shipped') THEN 1 ELSE 0 END
                AND CASE WHEN o.status = 'pending' THEN 0 ELSE 1 END",
    ),
    (
        "a record of an order that was placed tells of the one under its key",
        "SELECT count(*) FROM idempotency_records r WHERE operation = 'place_order' AND status = 'done' AND order_id IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = r.order_id AND o.account_id = r.account_id
                AND (o.idempotency_key = r.key OR r.response_status = 409))",
    ),
];

impl Site {
    /// Asserts all of them.
    pub async fn holds(&self) {
        self.hold_true(&BROKEN).await;
    }

    /// Asserts all of them, of a shop where orders are also paid by card, called off and shipped.
    pub async fn holds_with_cards(&self) {
        self.hold_true(&BROKEN_WITH_CARDS).await;
    }

    async fn hold_true(&self, broken: &[(&str, &str)]) {
        let sql = &self.under.sql;
        for (what, query) in broken {
            assert_eq!(sql.int(&format!("SELECT CAST(({query}) AS bigint)")).await, 0, "{what}");
        }
        for (sku, put_in) in PUT_IN {
            let sold = format!(
                "SELECT sum(quantity) FROM order_lines l JOIN orders o ON o.id = l.order_id
                WHERE l.sku = '{sku}' AND o.status <> 'cancelled'"
            );
            let query =
                format!("SELECT CAST(stock + coalesce(({sold}), 0) AS bigint) FROM products WHERE sku = '{sku}'");
            assert_eq!(sql.int(&query).await, put_in, "stock and ordered units of {sku} are what was put in");
        }
        let told: Vec<_> = self.ledger.lock().unwrap().iter().map(|id| format!("'{id}'")).collect();
        let found = format!("SELECT count(*) FROM orders WHERE CAST(id AS text) IN ({})", told.join(", "));
        if !told.is_empty() {
            let found = usize::try_from(sql.int(&found).await).unwrap();
            assert_eq!(found, told.len(), "every order that was acknowledged exists");
        }
    }
}
