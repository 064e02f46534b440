//! A process that is frozen past its lease, and wakes up when others have done its work (C2, C24).

use std::time::Duration;

use nix::sys::signal::Signal;

use super::{retry, send};
use crate::harness::client::want;
use crate::harness::hold::{Gate, Place};
use crate::harness::site::{Site, eventually};

const LEASE: u64 = 3;
const SETTINGS: [(&str, &str); 1] = [("ONCEGATE_LEASE", "3s")];
const IN_THE_END: Duration = Duration::from_secs(LEASE + 8);

/// How an order is placed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// In one transaction.
    Outright,
    /// Under a claim, as there is one to be taken over.
    Claims,
}

/// The claim is won in the database and the process frozen before it hears of it: when it wakes up it goes to work on a
/// claim that is no longer its own. Two such, one after the other.
#[tokio::test]
async fn two_that_wake_up_after_their_lease_write_nothing_and_answer_what_the_third_did() {
    let Some(site) = Site::on_postgres(&SETTINGS).await else { return };
    let (client, order) = (site.client("a").await, want(&[("TEA", 3)]));
    let ([mut first, mut second], third) = tokio::join!(site.start_two(), site.start());
    site.warm_up(&client, &[&first, &second, &third]).await;
    site.abandon("client:a", "k", &order).await;
    let mut frozen = Vec::new();
    for service in [&first, &second] {
        let gate = Gate::close(&site.under, Place::Claim).await;
        let answer = send(&client, service.main, "k", &order);
        eventually("the claim is at the gate", async || gate.is_reached(&site.under).await).await;
        service.signal(Signal::SIGSTOP);
        gate.open(&site.under).await;
        let live = "SELECT count(*) FROM idempotency_records WHERE status = 'processing' AND lease_expires_at > clock_timestamp()";
        eventually("the claim stands", async || site.under.sql.int(live).await == 1).await;
        frozen.push(answer);
        if frozen.len() == 1 {
            eventually("its lease is over", async || site.under.sql.int(live).await == 0).await;
        }
    }
    let (placed, meanwhile) = retry(&client, third.main, "k", &order, IN_THE_END).await;
    assert!(!meanwhile.is_empty() && meanwhile.iter().all(|seen| seen.is_in_progress(LEASE)), "{meanwhile:?}");
    assert_eq!(site.under.sql.int("SELECT epoch FROM idempotency_records WHERE key = 'k'").await, 4);

    for service in [&first, &second] {
        service.signal(Signal::SIGCONT);
    }
    for answer in frozen {
        let answer = answer.await.unwrap().expect("it answers after all");
        assert!(answer.same_as(&placed) || answer.is_unavailable(), "{answer:?}");
    }
    for service in [&mut first, &mut second] {
        // On a starved machine it may not even get to write.
        eventually("its late writes are refused", async || {
            service.counted("key", "lease_lost").await == 1 || service.has_said("orders could not be")
        })
        .await;
        assert!(client.order(service.main, "k", &order).await.same_as(&placed), "it serves on");
    }
    assert_eq!(site.orders().await, 1);
    site.holds().await;
}

/// Frozen in the middle of its transaction, with rows locked: the server ends that transaction in time for whoever comes next.
#[tokio::test]
async fn one_that_is_frozen_with_rows_locked_holds_nobody_up_beyond_its_lease() {
    freeze_with_rows_locked(Way::Claims).await;
}

#[tokio::test]
async fn one_that_is_frozen_while_it_places_without_a_claim_holds_nobody_up() {
    freeze_with_rows_locked(Way::Outright).await;
}

async fn freeze_with_rows_locked(way: Way) {
    let Some(site) = Site::on_postgres(&SETTINGS).await else { return };
    let (client, order) = (site.client("a").await, want(&[("TEA", 3)]));
    let [first, second] = site.start_two().await;
    site.warm_up(&client, &[&first, &second]).await;
    if way == Way::Claims {
        site.abandon("client:a", "k", &order).await;
    }
    let gate = Gate::close(&site.under, Place::Order).await;
    let frozen = send(&client, first.main, "k", &order);
    eventually("the order is at the gate", async || gate.is_reached(&site.under).await).await;
    first.signal(Signal::SIGSTOP);
    gate.open(&site.under).await;

    let neighbour = retry(&client, second.main, "another", &order, Duration::from_secs(LEASE)).await;
    let (placed, meanwhile) = retry(&client, second.main, "k", &order, IN_THE_END).await;
    assert!(meanwhile.iter().all(|seen| seen.is_in_progress(LEASE)), "{meanwhile:?}");
    assert!(meanwhile.is_empty() || way == Way::Claims, "there is no lease to wait for: {meanwhile:?}");
    assert_ne!(neighbour.0.order(), placed.order());
    first.signal(Signal::SIGCONT);
    let answer = frozen.await.unwrap().expect("it answers after all");
    assert!(answer.same_as(&placed) || answer.is_unavailable(), "{answer:?}");
    assert!(client.order(first.main, "k", &order).await.same_as(&placed), "it serves on");
    assert_eq!(site.orders().await, 2);
    site.holds().await;
}

/// SQLite has one write lock, and whoever is frozen with it keeps it: nobody can take over, so nothing can be done twice. The
/// others say "in progress" or "not now" in time, and go on once it is gone.
#[tokio::test]
async fn on_sqlite_one_that_is_frozen_in_its_write_makes_the_others_say_not_now_until_it_is_gone() {
    freeze_with_the_file_locked(Way::Claims).await;
}

#[tokio::test]
async fn on_sqlite_one_that_is_frozen_while_it_places_without_a_claim_leaves_nothing_once_it_is_gone() {
    freeze_with_the_file_locked(Way::Outright).await;
}

async fn freeze_with_the_file_locked(way: Way) {
    if std::env::var_os("TEST_DATABASE_URL").is_some() {
        return; // SQLite only
    }
    let site = Site::open(&SETTINGS).await;
    let (client, order) = (site.client("a").await, want(&[("TEA", 3)]));
    let [first, second] = site.start_two().await;
    site.warm_up(&client, &[&first, &second]).await;
    if way == Way::Claims {
        site.abandon("client:a", "k", &order).await;
    }
    let gate = Gate::close(&site.under, Place::Order).await;
    let frozen = send(&client, first.main, "k", &order);
    eventually("the order is at the gate", async || gate.is_reached(&site.under).await).await;
    first.signal(Signal::SIGSTOP);

    let repeat = client.order(second.main, "k", &order).await;
    match way {
        Way::Claims => assert!(repeat.is_in_progress(LEASE), "reading needs no lock: {repeat:?}"),
        Way::Outright => assert!(repeat.is_unavailable(), "nothing can be read of it: {repeat:?}"),
    }
    let neighbour = client.order(second.main, Gate::PASSES, &order).await;
    assert!(neighbour.is_unavailable(), "{neighbour:?}");
    assert_eq!(client.get(second.main, "/api/products").await.status, 200, "reading goes on");

    first.signal(Signal::SIGKILL);
    assert_eq!(first.end().await.0, None);
    gate.open(&site.under).await;
    assert!(frozen.await.unwrap().is_none());
    retry(&client, second.main, Gate::PASSES, &order, IN_THE_END).await;
    let (_, meanwhile) = retry(&client, second.main, "k", &order, IN_THE_END).await;
    assert!(meanwhile.is_empty() || way == Way::Claims, "there is no lease to wait for: {meanwhile:?}");
    assert_eq!(site.orders().await, 2);
    site.holds().await;
}
