//! What nothing stands for is placed together with its record, in one transaction without a claim: killed, repeated and held up
//! while it does. (The way of the claims is in [`super::kill`] and [`super::locks`].)

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use oncegate::order::request::from_json;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{retry, send};
use crate::harness::client::{Pair, Seen, want};
use crate::harness::hold::{Gate, Place};
use crate::harness::service::Service;
use crate::harness::site::{Site, eventually, in_turn};

/// The lease by default, in seconds: much longer than any test here waits.
const LEASE: u64 = 30;
/// Without a lease to wait for, on a starved machine.
const SOON: Duration = Duration::from_secs(10);
/// A tenth of a second for the held row, a claim and a look at it, there.
const SHORTLY: Duration = Duration::from_secs(3);

/// When a gate is opened under a request whose process was killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opened {
    /// While its statement may still go on by itself, on PostgreSQL.
    AtOnce,
    /// When the server has ended that statement.
    AtLast,
}

/// How many statements the server runs for the service. They go on when its processes are killed.
async fn running(site: &Site) -> i64 {
    let active = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'oncegate' AND state <> 'idle'";
    site.under.sql.int(active).await
}

/// Kills it, and waits until its database has done with it.
async fn kill(site: &Site, service: Service, gate: Gate, opened: Opened) {
    service.signal(Signal::SIGKILL);
    let mut gate = Some(gate);
    if opened == Opened::AtOnce || !site.shares_a_server() {
        gate.take().unwrap().open(&site.under).await;
    }
    assert_eq!(service.end().await.0, None, "it was killed");
    if site.shares_a_server() {
        eventually("its statement has ended", async || running(site).await == 0).await;
    }
    if let Some(gate) = gate {
        gate.open(&site.under).await;
    }
}

async fn kill_at(place: Place, opened: Opened) {
    let site = Site::open(&[]).await;
    let (client, order) = (site.client("a").await, want(&[("TEA", 3)]));
    let [first, second] = site.start_two().await;
    site.warm_up(&client, &[&first, &second]).await;
    let gate = Gate::close(&site.under, place).await;
    let lost = send(&client, first.main, "k", &order);
    eventually("the work has come to the gate", async || gate.is_reached(&site.under).await).await;
    kill(&site, first, gate, opened).await;
    assert!(lost.await.unwrap().is_none(), "the first gave no answer");

    let whole = site.orders().await;
    let records = site.under.sql.int("SELECT count(*) FROM idempotency_records WHERE key = 'k'").await;
    assert_eq!((records, site.processing().await), (whole, 0), "all or nothing, and no claim");
    assert!(whole == 0 || (opened == Opened::AtOnce && site.shares_a_server()), "nobody went on with it");
    site.holds().await;

    let (placed, meanwhile) = retry(&client, second.main, "k", &order, SOON).await;
    assert!(meanwhile.is_empty(), "there is no lease to wait for: {meanwhile:?}");
    assert_eq!(placed.replayed(), whole == 1, "{placed:?}");
    assert!(client.order(second.main, "k", &order).await.same_as(&placed));
    assert_eq!((site.orders().await, second.counted("key", "taken_over").await), (1, 0));
    site.holds().await;
}

#[tokio::test]
async fn killed_before_its_record_is_there_it_leaves_nothing_or_all_and_a_retry_need_not_wait() {
    kill_at(Place::Claim, Opened::AtOnce).await;
}

#[tokio::test]
async fn killed_before_its_order_is_there_it_leaves_nothing_or_all_and_a_retry_need_not_wait() {
    kill_at(Place::Order, Opened::AtOnce).await;
}

/// PostgreSQL only: where the statement cannot go on, the server takes it back before long.
#[tokio::test]
async fn killed_while_it_is_held_up_it_leaves_nothing_and_a_retry_need_not_wait() {
    if std::env::var_os("TEST_DATABASE_URL").is_none() {
        return;
    }
    kill_at(Place::Order, Opened::AtLast).await;
}

/// A form that is rendered while the submission of another is being placed in the same process, of which the table knows nothing
/// yet, carries its key; and when the process is killed, either of them leads to the one order.
#[tokio::test]
async fn a_form_rendered_while_its_submission_is_placed_carries_the_key_and_orders_nothing_else_after_a_kill() {
    let site = Site::open(&[("ONCEGATE_LEASE", "3s"), ("ONCEGATE_FORM_WAIT", "300ms")]).await;
    let [first, second] = site.start_two().await;
    let buyer = site.buyer();
    let earlier = buyer.form(first.main).await;
    assert!(buyer.submit(first.main, &earlier, "POT", 1).await.order().is_some(), "now it has an account");
    let pair = buyer.form(first.main).await;
    assert_ne!(pair.key, earlier.key);

    let gate = Gate::close(&site.under, Place::Claim).await;
    let lost = {
        let (buyer, pair, at) = (buyer.clone(), pair.clone(), first.main);
        tokio::spawn(async move { buyer.try_submit(at, &pair, "TEA", 1).await.is_ok() })
    };
    eventually("the work has come to the gate", async || gate.is_reached(&site.under).await).await;
    let reloaded = buyer.form(first.main).await;
    assert_eq!(reloaded.key, pair.key);
    let again = buyer.submit(first.main, &pair, "TEA", 1).await;
    assert!(again.is_attempt(), "{again:?}");
    let waiting = buyer.get(first.main, again.header("location")).await;
    assert!(waiting.status == 200 && waiting.text().contains("being placed"), "{}", waiting.text());
    assert_eq!(site.processing().await, 0, "the table knows nothing of it");
    kill(&site, first, gate, Opened::AtOnce).await;
    assert!(!lost.await.unwrap());

    // Where tokens are not shared, the second process knows neither form, and gives it back with a token of its own.
    let mut sent = reloaded;
    let mut order = None;
    eventually("it is placed", async || {
        let answer = buyer.submit(second.main, &sent, "TEA", 1).await;
        if answer.status == 409 {
            sent = Pair::of(&answer);
            assert_eq!(sent.key, pair.key);
        }
        order = answer.order();
        order.is_some()
    })
    .await;
    assert_eq!(buyer.submit(second.main, &pair, "TEA", 1).await.order(), order);
    assert_eq!(site.orders().await, 2);
    site.holds().await;
}

/// Both pairs. Where a claim can be written, it is before long, and all others are told so; where nothing can, they wait for what
/// comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_six_at_once_over_two_processes_whose_goods_are_held_one_is_placed_and_the_others_are_told_in_time() {
    let site = Site::open(&[]).await;
    let (client, order) = (site.client("a").await, want(&[("TEA", 1)]));
    let services = site.start_two().await;
    site.warm_up(&client, &[&services[0], &services[1]]).await;
    let hold = site.under.sql.hold("TEA").await;
    let begun = Instant::now();
    let mut sent = JoinSet::new();
    for n in 0..6 {
        let (client, order, at) = (client.clone(), order.clone(), in_turn(&services, n));
        sent.spawn(async move { client.order(at, "k", &order).await });
    }
    if site.shares_a_server() {
        for _ in 0..5 {
            let told = sent.join_next().await.unwrap().unwrap();
            assert!(told.is_in_progress(LEASE), "{told:?}");
        }
        assert!(begun.elapsed() < SHORTLY, "{:?}", begun.elapsed());
        assert_eq!(site.processing().await, 1);
    } else {
        tokio::time::sleep(Duration::from_millis(300)).await; // nothing shows: all wait for the file's lock
        assert!(sent.try_join_next().is_none(), "nobody knows what will come of it");
    }
    hold.release().await;
    become_one(&site, &services, &sent.join_all().await, "k", &order).await;
}

/// The first is held up where its order is written, which nobody else sees. Whoever repeats it waits for it, and if that takes
/// too long goes first at another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_is_held_up_and_its_duplicates_in_either_process_become_one() {
    let Some(site) = Site::on_postgres(&[]).await else { return };
    let (client, order) = (site.client("a").await, want(&[("TEA", 1)]));
    let services = site.start_two().await;
    site.warm_up(&client, &[&services[0], &services[1]]).await;
    for (n, held_for) in [0, 50, 150, 1500].into_iter().enumerate() {
        let key = format!("k{n}");
        let gate = Gate::close(&site.under, Place::Order).await;
        let first = send(&client, services[0].main, &key, &order);
        eventually("the work has come to the gate", async || gate.is_reached(&site.under).await).await;
        let duplicates = [0, 1].map(|at| send(&client, services[at].main, &key, &order));
        tokio::time::sleep(Duration::from_millis(held_for)).await;
        gate.open(&site.under).await;
        let mut answers = vec![first.await.unwrap().unwrap()];
        for duplicate in duplicates {
            answers.push(duplicate.await.unwrap().unwrap());
        }
        assert_eq!(site.orders().await, i64::try_from(n).unwrap() + 1);
        become_one(&site, &services, &answers, &key, &order).await;
    }
}

/// One of them was worked on, the others are its replays or were told that it is under way; whoever asks again is told the same.
async fn become_one(site: &Site, services: &[Service; 2], answers: &[Seen], key: &str, order: &Value) {
    let client = site.client("a").await;
    let firsts: Vec<_> = answers.iter().filter(|answer| answer.status == 201 && !answer.replayed()).collect();
    assert_eq!(firsts.len(), 1, "{answers:?}");
    assert!(answers.iter().all(|answer| answer.same_as(firsts[0]) || answer.is_in_progress(LEASE)), "{answers:?}");
    for service in services {
        let again = client.order(service.main, key, order).await;
        assert!(again.same_as(firsts[0]) && again.replayed(), "{again:?}");
    }
    let count = format!("SELECT count(*) FROM orders WHERE idempotency_key = '{key}'");
    assert_eq!(site.under.sql.int(&count).await, 1);
    site.holds().await;
}

/// A request runs in one process, and loses to other content that comes by another: whoever asks for that content in the first
/// process meanwhile is not told that the key was used for what is never placed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_loses_to_other_content_elsewhere_does_not_speak_for_the_key_while_it_runs() {
    let Some(site) = Site::on_postgres(&[]).await else { return };
    let (client, loses, wins) = (site.client("a").await, want(&[("TEA", 1)]), want(&[("POT", 1)]));
    let [first, second] = site.start_two().await;
    site.warm_up(&client, &[&first, &second]).await;
    let held = from_json(loses.to_string().as_bytes(), false).unwrap().fingerprint;
    let gate = Gate::close_to(&site.under, Place::Claim, &format!("NEW.fingerprint = '{}'", held.as_str())).await;
    let lost = send(&client, first.main, "k", &loses);
    eventually("it has come to the gate", async || gate.is_reached(&site.under).await).await;
    let mut waits = send(&client, first.main, "k", &wins);
    assert!(timeout(Duration::from_millis(300), &mut waits).await.is_err(), "it waits for what runs");
    let (placed, _) = retry(&client, second.main, "k", &wins, SOON).await;
    assert!(!placed.replayed());

    gate.open(&site.under).await;
    let lost = lost.await.unwrap().unwrap();
    assert_eq!((lost.status, lost.problem().as_str()), (422, "idempotency-key-reused"), "{lost:?}");
    let waited = waits.await.unwrap().unwrap();
    assert!(waited.same_as(&placed) && waited.replayed(), "{waited:?}");
    let again = client.order(first.main, "k", &wins).await;
    assert!(again.same_as(&placed) && again.replayed(), "{again:?}");
    assert_eq!(site.orders().await, 1);
    site.holds().await;
}
