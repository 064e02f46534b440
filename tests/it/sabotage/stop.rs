//! SIGTERM in the middle of slow work (D7): what was claimed is finished or given up cleanly, and the end comes in time.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{retry, send};
use crate::harness::client::want;
use crate::harness::proxy::Fault;
use crate::harness::site::Site;

/// The contract's own bound.
const IN_TIME: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(5);

/// Sends ten orders that a lock holds up, and a SIGTERM; answers what the clients were told once the lock is let go, after
/// `held`, and checks the rest.
async fn stop_under_way(settings: &[(&'static str, &str)], clients_stay: bool, held: Option<Duration>) {
    let site = Site::open(settings).await;
    let (client, order) = (site.client("a").await, want(&[("TEA", 1)]));
    let mut first = site.start().await;
    site.warm_up(&client, &[&first]).await;
    let hold = site.under.sql.hold("TEA").await;
    let mut answers: Vec<_> = (0..10).map(|n| send(&client, first.main, &format!("k{n}"), &order)).collect();
    if site.under.database.url().starts_with("postgres") {
        site.wait_for_processing(10).await;
    } else {
        tokio::time::sleep(Duration::from_millis(200)).await; // nothing shows: they all wait for the file's lock
    }
    if !clients_stay {
        answers.drain(..).for_each(|answer| answer.abort());
    }
    let begun = Instant::now();
    first.signal(Signal::SIGTERM);
    first.wait_for("stopping").await;
    let mut hold = Some(hold);
    if let Some(held) = held {
        tokio::time::sleep(held).await;
        hold.take().unwrap().release().await;
    }
    let (code, log) = first.end().await;
    assert_eq!(code, Some(0), "{log:#?}");
    assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
    let mut placed = 0;
    for answer in answers {
        let answer = answer.await.unwrap().expect("a request that was taken is answered");
        assert!(answer.status == 201 || (held.is_none() && answer.is_unavailable()), "{answer:?}");
        placed += i64::from(answer.status == 201);
    }
    if let Some(hold) = hold {
        hold.release().await;
    } else {
        assert_eq!(site.orders().await, 10, "what was claimed was finished");
    }
    assert!(site.orders().await >= placed);

    let second = site.start().await;
    for n in 0..10 {
        // Sooner than the lease: what was not finished was given up.
        let (_, meanwhile) = retry(&client, second.main, &format!("k{n}"), &order, SOON).await;
        assert!(meanwhile.is_empty(), "{meanwhile:?}");
    }
    assert_eq!(site.orders().await, 10);
    site.holds().await;
}

#[tokio::test]
async fn orders_under_way_are_finished_and_answered_before_the_end() {
    stop_under_way(&[], true, Some(Duration::from_millis(300))).await;
}

#[tokio::test]
async fn orders_under_way_are_finished_before_the_end_although_their_clients_have_left() {
    // Longer than a stop waits for the database alone.
    stop_under_way(&[], false, Some(Duration::from_secs(4))).await;
}

#[tokio::test]
async fn orders_that_cannot_be_finished_are_given_up_before_the_end_and_free_for_the_next_process() {
    stop_under_way(&[("ONCEGATE_LEASE", "6s")], true, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_fell_silent_does_not_hold_the_end_up() {
    let Some(site) = Site::on_postgres(&[("ONCEGATE_LEASE", "3s")]).await else { return };
    let (proxy, url) = site.database_proxy().await;
    let mut service = site.start_with(&[("DATABASE_URL", &url)]).await;
    let (client, order) = (site.client("a").await, want(&[("TEA", 1)]));
    site.warm_up(&client, &[&service]).await;
    proxy.set(Fault::Swallow);
    let answer = send(&client, service.main, "k", &order);
    let begun = Instant::now();
    service.signal(Signal::SIGTERM);
    service.wait_for("stopping").await;
    let (code, log) = service.end().await;
    assert_eq!(code, Some(0), "{log:#?}");
    assert!(begun.elapsed() < IN_TIME, "{:?}", begun.elapsed());
    assert!(answer.await.unwrap().is_none_or(|answer| answer.is_unavailable()));

    let second = site.start().await;
    retry(&client, second.main, "k", &order, 2 * SOON).await;
    assert_eq!(site.orders().await, 1);
    site.holds().await;
}
