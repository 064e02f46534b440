//! Orders that are paid by card, called off and shipped: the real binary and the real stand-in, two processes that speak over
//! the wire. After every test the invariants hold, and the provider's log agrees with the tables.

mod callbacks;
mod chance;
mod charging;
mod crashes;
mod leaving;
mod life;
mod pages;
mod patience;
mod standin;
mod waiting;

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::harness::client::{Client, Seen};
use crate::harness::service::Service;
use crate::harness::site::{Site, eventually};
use crate::harness::till::{KEY, Till, WEBHOOK_SECRET};

/// A site with a till.
struct Shop {
    site: Site,
    till: Till,
}

/// Never over, and the reconciler never due, within a test that does not wait for them.
const PATIENT: &[(&str, &str)] = &[("ONCEGATE_LEASE", "60s")];
/// Everything is due soon: for tests of what happens by itself.
const HASTY: &[(&str, &str)] = &[("ONCEGATE_LEASE", "4s")];

impl Shop {
    /// With these flags of the stand-in, and these settings of the service.
    async fn open(flags: &[&str], settings: &[(&'static str, &str)]) -> Self {
        let till = Till::open(flags).await;
        Self { site: site_at(till.at, settings).await, till }
    }

    /// A process, which gets the callbacks from now on.
    async fn start(&self) -> Service {
        let service = self.site.start().await;
        self.till.courier.bring_to(service.main);
        service
    }

    /// Waits until the provider has no more to say.
    async fn settles(&self) {
        let open = "SELECT count(*) FROM payments WHERE status IN ('started', 'unknown', 'processing', 'refund_due')";
        eventually("every payment has its outcome", async || self.site.under.sql.int(open).await == 0).await;
    }

    /// The status of each attempt of an order.
    async fn attempts(&self, order: &str) -> Vec<String> {
        let mut statuses = Vec::new();
        for attempt in 1..=self.count(&format!("FROM payments WHERE {}", of(order))).await {
            let one = format!("SELECT status FROM payments WHERE {} AND attempt = {attempt}", of(order));
            statuses.push(self.site.under.sql.text(&one).await);
        }
        statuses
    }

    async fn count(&self, from: &str) -> i64 {
        self.site.under.sql.int(&format!("SELECT CAST(count(*) AS bigint) {from}")).await
    }

    async fn stock(&self, sku: &str) -> i64 {
        self.site.under.sql.int(&format!("SELECT stock FROM products WHERE sku = '{sku}'")).await
    }

    /// Asserts the invariants, and, once nothing is to be paid back any more, that the provider's log is what the tables
    /// say.
    async fn holds(&self) {
        self.site.holds_with_cards().await;
        let due = "FROM payments WHERE status = 'refund_due'";
        eventually("what is due is paid back", async || self.count(due).await == 0).await;
        let log = self.till.log().await;
        for (paid, status, refund) in
            [(true, "'captured', 'refund_due', 'refunded'", false), (false, "'refunded'", true)]
        {
            let charged = log.iter().filter(|line| line.refund == refund).count();
            let rows = format!("FROM payments WHERE method = 'card' AND status IN ({status})");
            assert_eq!(i64::try_from(charged).unwrap(), self.count(&rows).await, "paid {paid}: {log:?}");
        }
        for line in log.iter().filter(|line| !line.refund) {
            let own = format!("FROM payments WHERE {} AND amount = {}", of(&line.order), line.amount);
            assert!(self.count(&own).await > 0, "{line:?} belongs to an order");
        }
    }
}

/// A site whose provider is there, whether anybody listens or not.
async fn site_at(provider: SocketAddr, settings: &[(&'static str, &str)]) -> Site {
    let url = format!("http://{provider}");
    let mut all = vec![
        ("ONCEGATE_GATEWAY_URL", url.as_str()),
        ("ONCEGATE_GATEWAY_KEY", KEY),
        ("ONCEGATE_GATEWAY_WEBHOOK_SECRET", WEBHOOK_SECRET),
    ];
    all.extend(settings);
    Site::open(&all).await
}

/// The condition that a row is this order's.
fn of(order: &str) -> String {
    format!("CAST(order_id AS text) = '{order}'")
}

/// So many cups, by card.
fn cups(quantity: u32) -> Value {
    json!({"lines": [{"sku": "CUP", "quantity": quantity}], "payment": "card"})
}

/// The same with a card of this name.
fn cups_with(quantity: u32, card: &str) -> Value {
    json!({"lines": [{"sku": "CUP", "quantity": quantity}], "payment": "card", "payment_method": card})
}

/// A card that is declined.
const BAD: &str = "pm_card_chargeDeclined";
/// A way to pay that takes a while.
const SLOW: &str = "pm_usBankAccount";

/// Where a placed order stands, how it is paid and how far that is.
fn shown(seen: &Seen) -> (u16, String, String, String) {
    let order = seen.json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let payment = &order["payment"];
    (seen.status, text(&order["status"]), text(&payment["method"]), text(&payment["status"]))
}

/// What [`shown`] is to be.
fn is(status: u16, order: &str, method: &str, payment: &str) -> (u16, String, String, String) {
    (status, order.into(), method.into(), payment.into())
}

/// Places an order that must come to be paid at once; its id.
async fn paid(client: &Client, at: SocketAddr, key: &str, body: &Value) -> String {
    let seen = client.order(at, key, body).await;
    assert_eq!(shown(&seen).1, "paid", "{seen:?}");
    seen.order().unwrap()
}

/// An order as it is now.
async fn now(client: &Client, at: SocketAddr, order: &str) -> (u16, String, String, String) {
    shown(&client.get(at, &format!("/api/orders/{order}")).await)
}

/// Waits until an order is as it should be.
async fn becomes(client: &Client, at: SocketAddr, order: &str, status: &str, payment: &str) {
    let what = format!("{order} is {status} and its payment {payment}");
    eventually(&what, async || {
        let (_, is, _, paid) = now(client, at, order).await;
        (is.as_str(), paid.as_str()) == (status, payment)
    })
    .await;
}
