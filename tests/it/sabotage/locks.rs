//! A row that is locked from outside, for longer than anybody should wait: one bad order never fails its neighbours.

use std::time::{Duration, Instant};

use super::{retry, send};
use crate::harness::client::want;
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
    for service in &services {
        assert_eq!(
            client.order(service.main, &format!("warm-{}", service.main), &want(&[("POT", 1)])).await.status,
            201
        );
        let opened = neighbour.order(service.main, &format!("warm-{}", service.main), &want(&[("POT", 1)])).await;
        assert_eq!(opened.status, 201);
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

/// More orders of the held goods than there are lanes to wait in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_orders_of_a_held_row_do_not_hold_up_the_others_and_each_comes_to_its_end() {
    let Some(site) = Site::on_postgres(&[("ONCEGATE_LEASE", "9s")]).await else { return };
    let (client, neighbour) = (site.client("a").await, site.client("b").await);
    let service = site.start().await;
    assert_eq!(neighbour.order(service.main, "warm", &want(&[("POT", 1)])).await.status, 201);
    let hold = site.under.sql.hold("TEA").await;
    let held: Vec<_> = (0..30).map(|n| send(&client, service.main, &format!("k{n}"), &want(&[("TEA", 1)]))).collect();
    site.wait_for_processing(30).await;
    let mut slowest = Duration::ZERO;
    for n in 0..10 {
        let begun = Instant::now();
        let placed = neighbour.order(service.main, &format!("n{n}"), &want(&[("POT", 1)])).await;
        assert_eq!(placed.status, 201, "{placed:?}");
        slowest = slowest.max(begun.elapsed());
    }
    assert!(slowest < SOON, "{slowest:?}");
    hold.release().await;
    for (n, answer) in held.into_iter().enumerate() {
        let answer = answer.await.unwrap().unwrap();
        assert!(answer.status == 201 || answer.is_unavailable(), "{answer:?}");
        let (placed, _) = retry(&client, service.main, &format!("k{n}"), &want(&[("TEA", 1)]), SOON).await;
        assert!(answer.status != 201 || placed.same_as(&answer));
    }
    assert_eq!(site.orders().await, 41);
    site.holds().await;
}

/// Both pairs: the lock is never let go. It is told in time, and the claim given up, so that a retry need not wait for a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_cannot_be_settled_in_time_is_told_so_and_its_key_is_free_again() {
    let site = Site::open(&[("ONCEGATE_LEASE", "6s")]).await;
    let (client, order) = (site.client("a").await, want(&[("TEA", 1)]));
    let service = site.start().await;
    assert_eq!(client.order(service.main, "warm", &want(&[("POT", 1)])).await.status, 201);
    let hold = site.under.sql.hold("TEA").await;
    let begun = Instant::now();
    let answer = client.order(service.main, "k", &order).await;
    assert!(answer.is_unavailable(), "{answer:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "two thirds of the lease: {:?}", begun.elapsed());
    hold.release().await;
    let live = if std::env::var_os("TEST_DATABASE_URL").is_some() {
        "SELECT count(*) FROM idempotency_records WHERE status = 'processing' AND lease_expires_at > clock_timestamp()"
    } else {
        "SELECT count(*) FROM idempotency_records WHERE status = 'processing' AND lease_expires_at > unixepoch('subsec') * 1000"
    };
    eventually("the claim is given up", async || site.under.sql.int(live).await == 0).await;
    let placed = client.order(service.main, "k", &order).await;
    assert!(placed.status == 201 && !placed.replayed(), "a 503 is not replayed: {placed:?}");
    assert_eq!(site.orders().await, 2);
    site.holds().await;
}
