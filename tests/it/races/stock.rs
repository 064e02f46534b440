//! Many buyers, few goods, little money.

use std::time::Duration;

use super::at_once;
use crate::harness::client::want;
use crate::harness::proxy::Fault;
use crate::harness::site::{Site, in_turn};

#[tokio::test]
async fn of_a_hundred_buyers_of_the_last_ten_exactly_ten_are_served_and_the_others_are_told_why() {
    let site = Site::open(&[]).await;
    let services = site.start_two().await;
    let mut clients = Vec::new();
    for n in 0..10 {
        clients.push(site.client(&format!("buyer-{n}")).await);
    }
    let answers = at_once(100, |n| {
        let (client, at) = (clients[n / 10].clone(), in_turn(&services, n));
        async move { client.order(at, &format!("k{n}"), &want(&[("CUP", 1)])).await }
    })
    .await;
    let placed = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!((placed, site.orders().await), (10, 10));
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        assert_eq!((answer.status, answer.problem().as_str()), (409, "out-of-stock"), "{answer:?}");
    }
    assert_eq!(site.under.sql.int("SELECT stock FROM products WHERE sku = 'CUP'").await, 0);
    site.holds().await;
}

/// Between the look at the stock and what is written lie whole round trips: nobody else gets in between.
#[tokio::test]
async fn of_forty_buyers_of_the_last_ten_ten_are_served_also_where_the_database_is_far_away() {
    let Some(site) = Site::on_postgres(&[]).await else { return };
    let (proxy, url) = site.database_proxy().await;
    let far = [("DATABASE_URL", url.as_str())];
    let (one, other) = tokio::join!(site.start_with(&far), site.start_with(&far));
    let (services, client) = ([one, other], site.client("a").await);
    site.warm_up(&client, &[&services[0], &services[1]]).await;
    proxy.set(Fault::Delay(Duration::from_millis(100)));
    let answers = at_once(40, |n| {
        let (client, at) = (client.clone(), in_turn(&services, n));
        async move { client.order(at, &format!("k{n}"), &want(&[("CUP", 1)])).await }
    })
    .await;
    let placed = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!((placed, site.orders().await), (10, 10));
    let refused = answers.iter().filter(|answer| answer.status == 409 && answer.problem() == "out-of-stock").count();
    assert_eq!(refused, 30);
    site.holds().await;
}

#[tokio::test]
async fn of_two_who_want_six_of_ten_one_is_served() {
    let site = Site::open(&[]).await;
    let services = site.start_two().await;
    let clients = [site.client("a").await, site.client("b").await];
    let answers = at_once(2, |n| {
        let (client, at) = (clients[n].clone(), in_turn(&services, n));
        async move { client.order(at, "k", &want(&[("CUP", 6)])).await.status }
    })
    .await;
    assert_eq!(answers.iter().sum::<u16>(), 201 + 409, "{answers:?}");
    site.holds().await;
}

#[tokio::test]
async fn a_balance_is_spent_once_however_many_orders_reach_for_it() {
    let site = Site::open(&[("ONCEGATE_OPENING_BALANCE", "1000")]).await;
    let services = site.start_two().await;
    let client = site.client("a").await;
    let answers = at_once(40, |n| {
        let (client, at) = (client.clone(), in_turn(&services, n));
        async move { client.order(at, &format!("k{n}"), &want(&[("TEA", 1)])).await }
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 10);
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        assert_eq!((answer.status, answer.problem().as_str()), (402, "insufficient-funds"), "{answer:?}");
    }
    site.holds().await;
}

/// Two processes lock the same rows from both ends (F1, F2).
#[tokio::test]
async fn orders_of_the_same_goods_in_opposite_order_never_fail_each_other() {
    let site = Site::open(&[]).await;
    let services = site.start_two().await;
    let clients = [site.client("a").await, site.client("b").await];
    for round in 0..5 {
        let answers = at_once(40, |n| {
            let (client, at) = (clients[n / 2 % 2].clone(), in_turn(&services, n));
            let body = if n % 2 == 0 { want(&[("TEA", 1), ("POT", 1)]) } else { want(&[("POT", 1), ("TEA", 1)]) };
            async move { client.order(at, &format!("{round}-{n}"), &body).await }
        })
        .await;
        assert!(answers.iter().all(|answer| answer.status == 201), "{answers:?}");
    }
    assert_eq!(site.orders().await, 200);
    site.holds().await;
}
