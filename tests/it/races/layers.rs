//! Each layer alone: with the outer ones taken away, the next one stops the repeat.

use std::collections::BTreeSet;

use super::at_once;
use crate::harness::client::{Buyer, Pair, Seen, want};
use crate::harness::redis;
use crate::harness::service::Service;
use crate::harness::site::Site;

/// An order that was placed by a form, and what it takes to send that form again.
struct Ordered {
    site: Site,
    service: Service,
    buyer: Buyer,
    pair: Pair,
    order: String,
}

impl Ordered {
    async fn place() -> Self {
        let site = Site::open(&[]).await;
        let service = site.start().await;
        let buyer = site.buyer();
        let pair = buyer.form(service.main).await;
        let first = buyer.submit(service.main, &pair, "TEA", 2).await;
        let order = first.order().unwrap_or_else(|| panic!("{}", first.text()));
        assert_eq!(service.counted("token", "accepted").await, 1);
        Self { site, service, buyer, pair, order }
    }

    /// Takes layer 1 away: a process that knows no tokens takes the place of the first.
    async fn forget_tokens(&mut self) {
        self.service = self.site.start_with(&[("REDIS_URL", "memory://")]).await;
    }

    /// Takes layer 2 away.
    async fn delete_records(&self) {
        assert!(self.site.under.sql.run("DELETE FROM idempotency_records").await > 0);
    }

    /// The same form again: alone, and twenty at once. Everybody is sent to the order.
    async fn assert_a_repeat_leads_to_the_order(&self) {
        let alone = self.buyer.submit(self.service.main, &self.pair, "TEA", 2).await;
        assert_eq!(alone.order().as_deref(), Some(self.order.as_str()), "{}", alone.text());
        let answers = at_once(20, |_| {
            let (buyer, pair, at) = (self.buyer.clone(), self.pair.clone(), self.service.main);
            async move { buyer.submit(at, &pair, "TEA", 2).await }
        })
        .await;
        for answer in answers {
            assert_eq!(
                (answer.status, answer.order().as_deref()),
                (303, Some(self.order.as_str())),
                "{}",
                answer.text()
            );
        }
        self.assert_one_order().await;
    }

    /// The form with other content: told that it became an order, and nothing is placed.
    async fn assert_other_content_is_refused(&self) {
        let other = self.buyer.submit(self.service.main, &self.pair, "TEA", 3).await;
        assert_eq!(other.status, 409, "{}", other.text());
        assert!(other.text().contains(&format!("/orders/{}", self.order)), "{}", other.text());
        assert_ne!(Pair::of(&other).key, self.pair.key, "it is a new intent");
        self.assert_one_order().await;
    }

    async fn assert_one_order(&self) {
        assert_eq!(self.site.orders().await, 1);
        self.site.holds().await;
    }
}

#[tokio::test]
async fn a_form_whose_token_is_spent_leads_to_its_order() {
    let ordered = Ordered::place().await;
    ordered.assert_a_repeat_leads_to_the_order().await;
    ordered.assert_other_content_is_refused().await;
    assert_eq!(ordered.service.counted("token", "spent").await, 22);
}

#[tokio::test]
async fn without_tokens_the_key_stops_a_form_that_comes_again() {
    let mut ordered = Ordered::place().await;
    ordered.forget_tokens().await;
    ordered.assert_a_repeat_leads_to_the_order().await;
    ordered.assert_other_content_is_refused().await;
    assert_eq!(ordered.service.counted("token", "unknown").await, 22);
}

#[tokio::test]
async fn without_records_the_standing_order_stops_a_form_that_comes_again() {
    let ordered = Ordered::place().await;
    ordered.delete_records().await;
    ordered.assert_a_repeat_leads_to_the_order().await;
    ordered.assert_other_content_is_refused().await;
}

#[tokio::test]
async fn without_tokens_and_records_the_standing_order_stops_a_form_that_comes_again() {
    let mut ordered = Ordered::place().await;
    ordered.forget_tokens().await;
    ordered.delete_records().await;
    ordered.assert_a_repeat_leads_to_the_order().await;
    ordered.assert_other_content_is_refused().await;
}

/// The same with a Redis that lost everything under the running service.
#[tokio::test]
async fn a_redis_that_is_emptied_costs_nobody_an_order_and_nobody_a_second_one() {
    if redis::shared().is_none() {
        return; // Redis only
    }
    let (site, own) = (Site::open(&[]).await, redis::Server::on_a_port().await);
    let service = site.start_with(&[("REDIS_URL", &own.url())]).await;
    let buyer = site.buyer();
    let (sent, unsent) = (buyer.form(service.main).await, buyer.form(service.main).await);
    let order = buyer.submit(service.main, &sent, "TEA", 1).await.order().unwrap();
    let () = ::redis::cmd("FLUSHALL").query_async(&mut redis::connect(&own.url()).await).await.unwrap();

    let again = buyer.submit(service.main, &sent, "TEA", 1).await;
    assert_eq!(again.order().as_deref(), Some(order.as_str()), "{}", again.text());
    let expired = buyer.submit(service.main, &unsent, "POT", 1).await;
    assert_eq!(expired.status, 409, "{}", expired.text());
    let fresh = Pair::of(&expired);
    assert_eq!(fresh.key, unsent.key, "it is the same intent");
    assert!(buyer.submit(service.main, &fresh, "POT", 1).await.order().is_some());
    assert_eq!(site.orders().await, 2);
    site.holds().await;
}

/// The API has no tokens: with its record gone only the constraint is left (A10).
#[tokio::test]
async fn without_its_record_a_key_still_names_its_order_alone_and_twenty_at_once() {
    let site = Site::open(&[]).await;
    let services = site.start_two().await;
    let client = site.client("a").await;
    let first = client.order(services[0].main, "k", &want(&[("TEA", 2)])).await;
    assert_eq!(first.status, 201, "{first:?}");
    for count in [1, 20] {
        assert_eq!(site.under.sql.run("DELETE FROM idempotency_records").await, 1);
        let answers = at_once(count, |n| {
            let (client, at) = (client.clone(), services[n % 2].main);
            async move { client.order(at, "k", &want(&[("TEA", 2)])).await }
        })
        .await;
        let told: BTreeSet<_> = answers.iter().filter_map(Seen::order).collect();
        assert_eq!(told, BTreeSet::from([first.order().unwrap()]));
        for answer in answers {
            let stands = answer.status == 201 && answer.replayed() && but_for_coupon(&answer) == but_for_coupon(&first);
            assert!(stands || answer.is_in_progress(30), "{answer:?}");
        }
    }
    assert!(services[0].counted("constraint", "key_exists").await >= 1);
    site.under.sql.run("DELETE FROM idempotency_records").await;
    let other = client.order(services[1].main, "k", &want(&[("TEA", 3)])).await;
    assert_eq!((other.status, other.problem().as_str()), (422, "idempotency-key-reused"));
    let again = client.order(services[1].main, "k", &want(&[("TEA", 2)])).await;
    assert!(again.status == 201 && again.order() == first.order(), "the record was healed: {again:?}");
    assert_eq!(site.orders().await, 1);
    site.holds().await;
}

/// The record is gone, and a request with other content has claimed its key and died: the order stands all the same, and is
/// what its own content is answered with.
#[tokio::test]
async fn a_claim_of_other_content_does_not_hide_the_order_that_stands_under_its_key() {
    let site = Site::open(&[]).await;
    let (service, client, buyer) = (site.start().await, site.client("a").await, site.buyer());
    let first = client.order(service.main, "k", &want(&[("TEA", 2)])).await;
    let pair = buyer.form(service.main).await;
    let form = buyer.submit(service.main, &pair, "TEA", 2).await;
    let sql = &site.under.sql;
    let lives = sql.moment(60);
    sql.run(&format!(
        "UPDATE idempotency_records SET status = 'processing', fingerprint = 'of other content', lease_expires_at = {lives},
            response_status = NULL, response_body = NULL, order_id = NULL, completed_at = NULL"
    ))
    .await;
    let again = client.order(service.main, "k", &want(&[("TEA", 2)])).await;
    assert!((again.status, again.order(), again.replayed()) == (201, first.order(), true), "{again:?}");
    assert_eq!(client.order(service.main, "k", &want(&[("TEA", 3)])).await.problem(), "idempotency-key-reused");
    let again = buyer.submit(service.main, &pair, "TEA", 2).await;
    assert_eq!((again.status, again.order()), (303, form.order()), "{}", again.text());
    assert_eq!(buyer.submit(service.main, &pair, "TEA", 3).await.status, 409);
    assert_eq!(site.orders().await, 2);
}

/// Neither account learns of the other (C11).
#[tokio::test]
async fn the_same_key_of_two_accounts_is_two_intents() {
    let site = Site::open(&[]).await;
    let services = site.start_two().await;
    let clients = [site.client("a").await, site.client("b").await];
    let answers = at_once(20, |n| {
        let (client, at) = (clients[n / 2 % 2].clone(), services[n % 2].main);
        async move { client.order(at, "k", &want(&[("TEA", 1)])).await }
    })
    .await;
    let told: BTreeSet<_> = answers.iter().filter_map(Seen::order).collect();
    assert_eq!((told.len(), site.orders().await), (2, 2), "{answers:?}");
    site.holds().await;
}

/// An order as it is now: its coupon may have been granted since.
fn but_for_coupon(seen: &Seen) -> serde_json::Value {
    let mut order = seen.json();
    order["coupon"] = serde_json::Value::Null;
    order
}
