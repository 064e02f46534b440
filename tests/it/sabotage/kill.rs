//! `kill -9` at every boundary of the way of the claims (C1, C19). What is placed without a claim is in [`super::outright`].

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::task::JoinSet;

use super::{retry, send};
use crate::harness::client::want;
use crate::harness::hold::{Gate, Place};
use crate::harness::site::{Site, eventually};

/// In seconds, and long enough for a starved machine to tell "under way" before it is over.
const LEASE: u64 = 3;
const SETTINGS: [(&str, &str); 1] = [("ONCEGATE_LEASE", "3s")];
/// The lease, the work itself, and a starved machine.
const IN_THE_END: Duration = Duration::from_secs(LEASE + 8);

/// What a retry finds after a kill at this place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// The claim that was to be taken over, as it was: its lease is over.
    Abandoned,
    /// A claim of its own that is honoured for its lease and then taken over.
    Claim,
    /// The order and its answer.
    Order,
}

async fn kill_at(place: Place, left: Left) {
    let site = Site::open(&SETTINGS).await;
    let (client, order) = (site.client("a").await, want(&[("TEA", 3)]));
    let [first, second] = site.start_two().await;
    site.warm_up(&client, &[&first, &second]).await;
    site.abandon("client:a", "k", &order).await;
    let gate = Gate::close(&site.under, place).await;
    let begun = Instant::now();
    let lost = send(&client, first.main, "k", &order);
    eventually("the work has come to the gate", async || gate.is_reached(&site.under).await).await;
    first.signal(Signal::SIGKILL);
    gate.open(&site.under).await;
    assert_eq!(first.end().await.0, None, "it was killed");
    assert!(lost.await.unwrap().is_none(), "the first gave no answer");
    let epoch = async || site.under.sql.int("SELECT epoch FROM idempotency_records WHERE key = 'k'").await;
    if left == Left::Claim {
        // On PostgreSQL the statement goes on by itself; a retry that came before it would be the first.
        eventually("the claim stands", async || epoch().await == 2).await;
    }

    let (placed, meanwhile) = retry(&client, second.main, "k", &order, IN_THE_END).await;
    assert!(meanwhile.iter().all(|seen| seen.is_in_progress(LEASE)), "{meanwhile:?}");
    assert_eq!(placed.replayed(), left == Left::Order, "{placed:?}");
    let taken_over = second.counted("key", "taken_over").await;
    assert_eq!(taken_over, u64::from(left != Left::Order));
    assert_eq!(epoch().await, if left == Left::Claim { 3 } else { 2 });
    match left {
        Left::Abandoned => assert!(meanwhile.is_empty(), "there was no lease to wait for: {meanwhile:?}"),
        Left::Claim => assert!(begun.elapsed() >= Duration::from_secs(LEASE), "the lease was not honoured"),
        Left::Order => {}
    }
    assert!(client.order(second.main, "k", &order).await.same_as(&placed));
    assert_eq!(site.orders().await, 1);
    site.holds().await;
}

/// On PostgreSQL the statement goes on without its client: the claim stands.
#[tokio::test]
async fn killed_while_it_takes_a_claim_over_it_leaves_at_most_a_claim() {
    let on_postgres = std::env::var_os("TEST_DATABASE_URL").is_some();
    kill_at(Place::Claim, if on_postgres { Left::Claim } else { Left::Abandoned }).await;
}

#[tokio::test]
async fn killed_while_it_writes_the_order_it_leaves_a_claim_that_is_taken_over_after_its_lease() {
    kill_at(Place::Order, Left::Claim).await;
}

#[tokio::test]
async fn killed_while_it_stores_the_answer_it_leaves_no_order_and_a_claim_that_is_taken_over() {
    kill_at(Place::Answer, Left::Claim).await;
}

/// The commit was under way and comes to its end in the server: its answer is there for whoever asks again.
#[tokio::test]
async fn killed_in_its_commit_it_leaves_the_order_and_its_answer() {
    if std::env::var_os("TEST_DATABASE_URL").is_none() {
        return; // PostgreSQL only: SQLite's commit is a part of the process
    }
    kill_at(Place::Commit, Left::Order).await;
}

/// A buyer's form whose process died: waited for as under way, then finished, by the form itself or by a retry.
#[tokio::test]
async fn a_form_whose_process_was_killed_is_finished_by_sending_it_again() {
    let site = Site::open(&[("ONCEGATE_LEASE", "3s"), ("ONCEGATE_FORM_WAIT", "300ms")]).await;
    let [first, second] = site.start_two().await;
    let buyer = site.buyer();
    let earlier = buyer.form(first.main).await;
    assert!(buyer.submit(first.main, &earlier, "POT", 1).await.order().is_some(), "now it has an account");
    let pair = buyer.form(first.main).await;
    site.abandon(&site.visitor().await, &pair.key, &want(&[("TEA", 1)])).await;
    let gate = Gate::close(&site.under, Place::Order).await;
    let lost = {
        let (buyer, pair, at) = (buyer.clone(), pair.clone(), first.main);
        tokio::spawn(async move { buyer.try_submit(at, &pair, "TEA", 1).await.is_ok() })
    };
    eventually("the work has come to the gate", async || gate.is_reached(&site.under).await).await;
    first.signal(Signal::SIGKILL);
    gate.open(&site.under).await;
    assert_eq!(first.end().await.0, None);
    assert!(!lost.await.unwrap());

    let again = buyer.submit(second.main, &pair, "TEA", 1).await;
    assert!(again.is_attempt(), "{again:?}");
    let waiting = buyer.get(second.main, again.header("location")).await;
    assert_eq!(waiting.status, 200);
    let reloaded = buyer.form(second.main).await;
    assert_eq!(reloaded.key, pair.key, "a form rendered meanwhile carries the key under way");
    eventually("it is placed", async || buyer.submit(second.main, &pair, "TEA", 1).await.order().is_some()).await;
    let order = buyer.get(second.main, again.header("location")).await.order();
    assert!(order.is_some());
    assert_eq!(buyer.submit(second.main, &reloaded, "TEA", 1).await.order(), order);
    assert_eq!(second.counted("key", "taken_over").await, 1);
    assert_eq!(site.orders().await, 2);
    site.holds().await;
}

/// Ten orders of one batch, killed together; each is finished by its own retry.
#[tokio::test]
async fn a_batch_that_was_killed_is_finished_order_by_order() {
    let site = Site::open(&SETTINGS).await;
    let (client, order) = (site.client("a").await, want(&[("TEA", 1)]));
    let [first, second] = site.start_two().await;
    site.warm_up(&client, &[&first, &second]).await;
    for n in 0..10 {
        site.abandon("client:a", &format!("k{n}"), &order).await;
    }
    let gate = Gate::close(&site.under, Place::Answer).await;
    let lost: Vec<_> = (0..10).map(|n| send(&client, first.main, &format!("k{n}"), &order)).collect();
    eventually("the work has come to the gate", async || gate.is_reached(&site.under).await).await;
    first.signal(Signal::SIGKILL);
    gate.open(&site.under).await;
    assert_eq!(first.end().await.0, None);
    for answer in lost {
        assert!(answer.await.unwrap().is_none());
    }
    assert_eq!(site.orders().await, 0, "nothing of it was written");
    for n in 0..10 {
        retry(&client, second.main, &format!("k{n}"), &order, IN_THE_END).await;
    }
    assert_eq!(site.orders().await, 10);
    site.holds().await;
}

/// Everybody waits for the same moment: when the lease ends, one takes over.
#[tokio::test]
async fn of_thirty_retries_that_wait_for_the_end_of_the_lease_one_takes_over() {
    let site = Site::open(&SETTINGS).await;
    let (client, order) = (site.client("a").await, want(&[("TEA", 1)]));
    let ([first, second], third) = tokio::join!(site.start_two(), site.start());
    site.warm_up(&client, &[&first, &second, &third]).await;
    site.abandon("client:a", "k", &order).await;
    let gate = Gate::close(&site.under, Place::Order).await;
    let lost = send(&client, first.main, "k", &order);
    eventually("the work has come to the gate", async || gate.is_reached(&site.under).await).await;
    first.signal(Signal::SIGKILL);
    gate.open(&site.under).await;
    assert_eq!(first.end().await.0, None);
    assert!(lost.await.unwrap().is_none());
    let mut retries = JoinSet::new();
    for n in 0..30 {
        let (client, order, at) = (client.clone(), order.clone(), [second.main, third.main][n % 2]);
        retries.spawn(async move { retry(&client, at, "k", &order, IN_THE_END).await });
    }
    let placed = retries.join_all().await;
    let first = placed[0].0.clone();
    for (placed, meanwhile) in &placed {
        assert!(placed.same_as(&first), "{placed:?}");
        assert!(meanwhile.iter().all(|seen| seen.is_in_progress(LEASE)), "{meanwhile:?}");
    }
    assert_eq!(placed.iter().filter(|(placed, _)| !placed.replayed()).count(), 1);
    let taken_over = second.counted("key", "taken_over").await + third.counted("key", "taken_over").await;
    assert_eq!((taken_over, site.orders().await), (1, 1));
    site.holds().await;
}

#[tokio::test]
async fn a_service_that_was_killed_starts_again_and_knows_what_it_answered() {
    let site = Site::open(&[]).await;
    let (client, order, buyer) = (site.client("a").await, want(&[("TEA", 1)]), site.buyer());
    let first = site.start().await;
    let pair = buyer.form(first.main).await;
    let (api, form) = (client.order(first.main, "k", &order).await, buyer.submit(first.main, &pair, "POT", 1).await);
    first.signal(Signal::SIGKILL);
    assert_eq!(first.end().await.0, None);
    let second = site.start().await;
    let again = client.order(second.main, "k", &order).await;
    assert!(again.same_as(&api) && again.replayed(), "{again:?}");
    let again = buyer.submit(second.main, &pair, "POT", 1).await;
    assert!(form.order().is_some() && again.order() == form.order(), "the session is kept too: {again:?}");
    assert_eq!(site.orders().await, 2);
    site.holds().await;
}
