//! Processes whose clocks disagree by five minutes (C25): only the database's clock judges.

use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::process::Command;

use super::{retry, send};
use crate::harness::client::want;
use crate::harness::hold::{Gate, Place};
use crate::harness::site::{Site, eventually};

const LEASE: u64 = 3;

/// The library that turns the clock: `faketime` knows where it is.
async fn library() -> String {
    let told = Command::new("faketime").args(["-f", "+0", "sh", "-c", "echo $LD_PRELOAD"]).output().await;
    let told = told.expect("faketime must be installed");
    String::from_utf8(told.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn a_lease_is_judged_alike_by_processes_whose_clocks_are_five_minutes_off() {
    let Some(site) = Site::on_postgres(&[("ONCEGATE_LEASE", "3s")]).await else { return };
    let library = library().await;
    let turned = |by: &'static str| [("LD_PRELOAD", library.clone()), ("FAKETIME", by.to_owned())];
    let (client, order) = (site.client("a").await, want(&[("TEA", 1)]));
    for (n, offset) in ["+300s", "-300s"].into_iter().enumerate() {
        let env = turned(offset);
        let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
        let (wrong, right) = tokio::join!(site.start_with(&env), site.start());
        site.warm_up(&client, &[&wrong, &right]).await;
        let date = |answer: &crate::harness::client::Seen| answer.header("date").to_owned();
        let [theirs, ours] = [&wrong, &right].map(|service| client.get(service.main, "/api/products"));
        assert_ne!(date(&theirs.await)[..22], date(&ours.await)[..22], "its clock is wrong");

        let key = format!("k{n}");
        site.abandon("client:a", &key, &order).await;
        let gate = Gate::close(&site.under, Place::Order).await;
        let lost = send(&client, wrong.main, &key, &order);
        eventually("the work has come to the gate", async || gate.is_reached(&site.under).await).await;
        let live = client.order(right.main, &key, &order).await;
        assert!(live.is_in_progress(LEASE), "{live:?}");
        wrong.signal(Signal::SIGKILL);
        gate.open(&site.under).await;
        assert!(lost.await.unwrap().is_none());
        let (placed, meanwhile) = retry(&client, right.main, &key, &order, Duration::from_secs(LEASE + 8)).await;
        assert!(!meanwhile.is_empty() && meanwhile.iter().all(|seen| seen.is_in_progress(LEASE)), "{meanwhile:?}");
        assert!(!placed.replayed());
        assert_eq!(right.counted("key", "taken_over").await, 1);
    }
    assert_eq!(site.orders().await, 2);
    site.holds().await;
}
