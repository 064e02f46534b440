//! The database goes away and comes back (C4, D12).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::retry;
use crate::harness::client::{Pair, want};
use crate::harness::proxy::Fault;
use crate::harness::site::{Site, eventually};

const SOON: Duration = Duration::from_secs(10);

/// Both pairs: away for the first try, back for the second with the same key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_meets_no_database_is_503_and_placed_by_the_same_key_once_it_is_back() {
    let site = Site::open(&[("ONCEGATE_LEASE", "3s")]).await;
    let (client, order, buyer) = (site.client("a").await, want(&[("TEA", 1)]), site.buyer());
    let proxy = match site.shares_a_server() {
        true => Some(site.database_proxy().await),
        false => None,
    };
    let service = match &proxy {
        Some((_, url)) => site.start_with(&[("DATABASE_URL", url)]).await,
        None => site.start().await,
    };
    let pair = buyer.form(service.main).await;
    let mut hold = None;
    match &proxy {
        Some((proxy, _)) => proxy.set(Fault::Refuse),
        None => hold = Some(site.under.sql.hold("TEA").await),
    }
    let begun = Instant::now();
    let (api, page) =
        tokio::join!(client.order(service.main, "k", &order), buyer.submit(service.main, &pair, "POT", 1));
    assert!(api.is_unavailable() && page.is_unavailable(), "{api:?} {page:?}");
    assert!(begun.elapsed() < Duration::from_secs(3), "two thirds of the lease: {:?}", begun.elapsed());
    assert_eq!(Pair::of(&page).key, pair.key, "the form keeps its key");
    let words = page.text();
    assert!(words.contains("quantity[POT]"), "and what was typed: {words}");

    match (&proxy, hold) {
        (Some((proxy, _)), _) => proxy.set(Fault::None),
        (None, hold) => hold.unwrap().release().await,
    }
    eventually("the service is ready again", async || service.get("/readyz").await.status() == 200).await;
    let placed = client.order(service.main, "k", &order).await;
    assert!(placed.status == 201 && !placed.replayed(), "a 503 is not replayed: {placed:?}");
    let back = Pair::of(&page);
    let retried = if back.token.is_empty() { &pair } else { &back };
    let ordered = buyer.submit(service.main, retried, "POT", 1).await;
    assert!(ordered.order().is_some(), "{}", ordered.text());
    assert_eq!(site.orders().await, 2);
    site.holds().await;
}

/// Connections cut in the middle of everything, then a second without any, under load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_under_load_cost_a_503_at_most_and_no_restart() {
    // Enough for a fast machine, which places more than a thousand orders meanwhile.
    let settings = [("ONCEGATE_LEASE", "3s"), ("ONCEGATE_OPENING_BALANCE", "100000000")];
    let Some(site) = Site::on_postgres(&settings).await else { return };
    let (proxy, url) = site.database_proxy().await;
    let service = site.start_with(&[("DATABASE_URL", &url)]).await;
    let client = site.client("a").await;
    let (goes_on, at) = (Arc::new(AtomicBool::new(true)), service.main);
    let mut load = JoinSet::new();
    for worker in 0..8 {
        let (client, goes_on) = (client.clone(), goes_on.clone());
        load.spawn(async move {
            let mut answers = Vec::new();
            while goes_on.load(Ordering::SeqCst) {
                let key = format!("{worker}-{}", answers.len());
                answers.push((key.clone(), client.order(at, &key, &want(&[("TEA", 1)])).await));
            }
            answers
        });
    }
    let more = async |orders: i64| {
        let before = site.orders().await;
        eventually("orders are placed again", async || site.orders().await >= before + orders).await;
    };
    let terminate = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'oncegate'";
    for _ in 0..5 {
        more(10).await;
        proxy.cut();
        more(10).await;
        site.under.sql.int(terminate).await;
    }
    proxy.set(Fault::Refuse);
    let unready = async || service.get("/readyz").await.status() == 503;
    eventually("it says that it is not ready", unready).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    proxy.set(Fault::None);
    more(20).await;
    goes_on.store(false, Ordering::SeqCst);
    let answers: Vec<_> = load.join_all().await.into_iter().flatten().collect();
    for (key, answer) in &answers {
        assert!(answer.status == 201 || answer.is_unavailable(), "{key}: {answer:?}");
    }
    assert!(answers.iter().any(|(_, answer)| answer.status == 503), "the second without a database was felt");
    for (key, answer) in &answers {
        let (placed, meanwhile) = retry(&client, at, key, &want(&[("TEA", 1)]), SOON).await;
        assert!(answer.status != 201 || placed.same_as(answer), "{key}: {answer:?} {placed:?}");
        assert!(meanwhile.iter().all(|seen| seen.is_in_progress(3)), "{meanwhile:?}");
    }
    assert_eq!(site.orders().await, i64::try_from(answers.len()).unwrap());
    site.holds().await;
}

/// The commit is done and its reply lost: the answer is found, not made again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_are_lost_lead_to_one_order_each() {
    let Some(site) = Site::on_postgres(&[("ONCEGATE_LEASE", "2s")]).await else { return };
    let (proxy, url) = site.database_proxy().await;
    let service = site.start_with(&[("DATABASE_URL", &url)]).await;
    let client = site.client("a").await;
    site.warm_up(&client, &[&service]).await;
    // A settling has a handful of replies; each of them is lost once or more.
    for n in 0_u64..12 {
        let key = format!("k{n}");
        let sending = super::send(&client, service.main, &key, &want(&[("TEA", 1)]));
        tokio::time::sleep(Duration::from_micros(n * 600)).await;
        proxy.set(Fault::LoseReply);
        let answer = sending.await.unwrap().expect("it answers");
        proxy.set(Fault::None);
        assert!(answer.status == 201 || answer.is_unavailable(), "{answer:?}");
        let (placed, meanwhile) = retry(&client, service.main, &key, &want(&[("TEA", 1)]), SOON).await;
        assert!(answer.status != 201 || placed.same_as(&answer));
        assert!(meanwhile.iter().all(|seen| seen.is_in_progress(2)), "{meanwhile:?}");
    }
    assert!(proxy.lost() > 0);
    assert_eq!(site.orders().await, 12);
    site.holds().await;
}

/// Silent instead of away: no connection is refused, none is closed, nothing comes back. Everybody is answered in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_database_is_answered_503_in_time_by_every_face() {
    let Some(site) = Site::on_postgres(&[("ONCEGATE_LEASE", "6s")]).await else { return };
    let (proxy, url) = site.database_proxy().await;
    let service = site.start_with(&[("DATABASE_URL", &url)]).await;
    let (client, buyer, order) = (site.client("a").await, site.buyer(), want(&[("TEA", 1)]));
    site.warm_up(&client, &[&service]).await;
    let pair = buyer.form(service.main).await;
    proxy.set(Fault::Stall);
    let begun = Instant::now();
    let (api, page, list, form) = tokio::join!(
        client.order(service.main, "k", &order),
        buyer.submit(service.main, &pair, "POT", 1),
        client.get(service.main, "/api/orders"),
        buyer.get(service.main, "/orders/new")
    );
    for answer in [&api, &page, &list, &form] {
        assert!(answer.is_unavailable(), "{answer:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "two thirds of the lease: {:?}", begun.elapsed());
    proxy.set(Fault::None);
    let (placed, _) = retry(&client, service.main, "k", &order, SOON).await;
    assert_eq!(placed.status, 201);
    eventually("the form is placed", async || buyer.submit(service.main, &pair, "POT", 1).await.order().is_some())
        .await;
    assert_eq!(site.orders().await, 2);
    site.holds().await;
}

/// What a fail-over leaves behind a firewall: connections that never answer and are never closed, while new ones work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_fell_silent_are_given_up_and_replaced_without_a_restart() {
    let Some(site) = Site::on_postgres(&[("ONCEGATE_LEASE", "3s")]).await else { return };
    let (proxy, url) = site.database_proxy().await;
    let service = site.start_with(&[("DATABASE_URL", &url)]).await;
    let client = site.client("a").await;
    site.warm_up(&client, &[&service]).await;
    for round in 0..2 {
        let sending: Vec<_> = (0..20)
            .map(|n| super::send(&client, service.main, &format!("{round}-{n}"), &want(&[("TEA", 1)])))
            .collect();
        tokio::time::sleep(Duration::from_millis(5 * round)).await;
        proxy.silence();
        for answer in sending {
            let answer = answer.await.unwrap().expect("it answers");
            assert!(answer.status == 201 || answer.is_unavailable(), "{answer:?}");
        }
        for n in 0..20 {
            retry(&client, service.main, &format!("{round}-{n}"), &want(&[("TEA", 1)]), 2 * SOON).await;
        }
        eventually("it is ready", async || service.get("/readyz").await.status() == 200).await;
    }
    assert_eq!(site.orders().await, 40);
    site.holds().await;
}
