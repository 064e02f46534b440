//! A row that is locked from outside, for longer than anybody should wait: one bad order never fails its neighbours.

use std::time::{Duration, Instant};

use super::send;
use crate::harness::client::{Pair, want};
use crate::harness::site::{Site, eventually};

/// What "at once" means on a busy machine.
const AT_ONCE: Duration = Duration::from_millis(300);
/// A batch waits a second for the row before its orders are tried one by one.
const SOON: Duration = Duration::from_millis(2500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_row_is_held_its_duplicate_is_told_at_once_and_neighbours_are_placed() {
    let Some(site) = Site::on_postgres(&[]).await else { return };
    let (client, cups) = (site.client("a").await, want(&[("CUP", 1)]));
    let neighbour = site.client("b").await;
    let services = site.start_two().await;
    for who in [&client, &neighbour] {
        site.warm_up(who, &[&services[0], &services[1]]).await;
    }
    let hold = site.under.sql.hold("CUP").await;
    let first = send(&client, services[0].main, "k", &cups);
    site.wait_for_processing(1).await;

    for round in 0..3 {
        for (n, service) in services.iter().enumerate() {
            let begun = Instant::now();
            let duplicate = client.order(service.main, "k", &cups).await;
            assert!(duplicate.is_in_progress(30), "{duplicate:?}");
            assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
            let other = client.order(service.main, "k", &want(&[("CUP", 2)])).await;
            assert_eq!((other.status, other.problem().as_str()), (422, "idempotency-key-reused"));

            let begun = Instant::now();
            let placed = neighbour.order(service.main, &format!("{round}-{n}"), &want(&[("TEA", 1)])).await;
            assert_eq!(placed.status, 201, "{placed:?}");
            assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        }
    }
    assert!(!first.is_finished(), "the first still waits");
    hold.release().await;
    let first = first.await.unwrap().unwrap();
    assert!(first.status == 201 && !first.replayed(), "{first:?}");
    assert!(client.order(services[1].main, "k", &cups).await.same_as(&first));
    site.holds().await;
}

/// More orders of the held goods than there are lanes to wait in, some with goods that others want too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_orders_of_a_held_row_do_not_hold_up_the_others_and_each_comes_to_its_end() {
    let Some(site) = Site::on_postgres(&[("ONCEGATE_LEASE", "9s")]).await else { return };
    let (client, neighbour) = (site.client("a").await, site.client("b").await);
    let service = site.start().await;
    for who in [&client, &neighbour] {
        site.warm_up(who, &[&service]).await;
    }
    let hold = site.under.sql.hold("TEA").await;
    let content = |n: usize| if n % 4 == 3 { want(&[("POT", 1), ("TEA", 1)]) } else { want(&[("TEA", 1)]) };
    let held: Vec<_> = (0..40).map(|n| send(&client, service.main, &format!("k{n}"), &content(n))).collect();
    site.wait_for_processing(40).await;
    let mut took = Vec::new();
    for n in 0..10 {
        let begun = Instant::now();
        let placed = neighbour.order(service.main, &format!("n{n}"), &want(&[("POT", 1)])).await;
        assert_eq!(placed.status, 201, "{placed:?}");
        took.push(begun.elapsed());
    }
    assert!(took.iter().all(|took| *took < SOON), "{took:?}");
    assert!(held.iter().all(|answer| !answer.is_finished()), "they still wait");
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'oncegate'";
    assert!(site.under.sql.int(sessions).await <= 12, "waiting takes no more connections than the pools have");
    hold.release().await;
    for (n, answer) in held.into_iter().enumerate() {
        let answer = answer.await.unwrap().unwrap();
        assert!(answer.status == 201 && !answer.replayed(), "{n}: {answer:?}");
        assert!(client.order(service.main, &format!("k{n}"), &content(n)).await.same_as(&answer));
    }
    assert_eq!(site.orders().await, 50);
    site.holds().await;
}

/// Both pairs: the lock is never let go. It is told in time, and the claim given up, so that a retry need not wait for a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_cannot_be_settled_in_time_is_told_so_and_its_key_is_free_again() {
    let site = Site::open(&[("ONCEGATE_LEASE", "6s")]).await;
    let (client, order) = (site.client("a").await, want(&[("TEA", 1)]));
    let service = site.start().await;
    site.warm_up(&client, &[&service]).await;
    let hold = site.under.sql.hold("TEA").await;
    let begun = Instant::now();
    let answer = client.order(service.main, "k", &order).await;
    assert!(answer.is_unavailable(), "{answer:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "two thirds of the lease: {:?}", begun.elapsed());
    let live = if std::env::var_os("TEST_DATABASE_URL").is_some() {
        "SELECT count(*) FROM idempotency_records WHERE status = 'processing' AND lease_expires_at > clock_timestamp()"
    } else {
        "SELECT count(*) FROM idempotency_records WHERE status = 'processing' AND lease_expires_at > unixepoch('subsec') * 1000"
    };
    eventually("the claim is given up", async || site.under.sql.int(live).await == 0).await;
    assert!(begun.elapsed() < Duration::from_secs(6), "sooner than its lease ends: {:?}", begun.elapsed());
    hold.release().await;
    let placed = client.order(service.main, "k", &order).await;
    assert!(placed.status == 201 && !placed.replayed(), "a 503 is not replayed: {placed:?}");
    assert_eq!(site.orders().await, 1);
    site.holds().await;
}

/// The desk is full of orders that wait: one more is told so at once, a repeat is still told what stands, nothing is burnt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_desk_turns_new_orders_away_and_still_answers_repeats() {
    let Some(site) = Site::on_postgres(&[("ONCEGATE_QUEUE", "4")]).await else { return };
    let (client, buyer, order) = (site.client("a").await, site.buyer(), want(&[("TEA", 1)]));
    let service = site.start().await;
    site.warm_up(&client, &[&service]).await;
    let pair = buyer.form(service.main).await;
    let hold = site.under.sql.hold("TEA").await;
    let held: Vec<_> = (0..4).map(|n| send(&client, service.main, &format!("k{n}"), &order)).collect();
    site.wait_for_processing(4).await;

    let begun = Instant::now();
    let api = client.order(service.main, "one-more", &want(&[("POT", 1)])).await;
    let page = buyer.submit(service.main, &pair, "POT", 1).await;
    let repeat = client.order(service.main, "k0", &order).await;
    assert!(api.is_unavailable() && page.is_unavailable(), "{api:?} {page:?}");
    assert!(repeat.is_in_progress(30), "{repeat:?}");
    assert!(begun.elapsed() < 3 * AT_ONCE, "{:?}", begun.elapsed());
    hold.release().await;
    for answer in held {
        assert_eq!(answer.await.unwrap().unwrap().status, 201);
    }
    assert_eq!(client.order(service.main, "one-more", &want(&[("POT", 1)])).await.status, 201);
    let back = Pair::of(&page);
    assert_eq!(back.key, pair.key);
    assert!(buyer.submit(service.main, &back, "POT", 1).await.order().is_some());
    assert_eq!(site.orders().await, 6);
    site.holds().await;
}
