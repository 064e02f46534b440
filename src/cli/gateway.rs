//! `gateway`: the stand-in payment provider, as a process of its own.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use tokio::net::TcpListener;

use super::{Failure, say, serve};
use crate::config;
use crate::payment::standin::{Callbacks, Options, Standin};

/// What is asked for.
#[derive(Args)]
pub(super) struct Wanted {
    /// Where the shop reaches it; port 0 picks a free one
    // The name and type of the setting that it takes the place of here: clap hands on global values by name.
    #[arg(id = "listen", long = "listen", value_name = "ADDR", required = true)]
    address: Option<OsString>,
    /// What the shop is known by: its ONCEGATE_GATEWAY_KEY
    #[arg(long, value_name = "KEY", default_value = "sk_test_standin")]
    key: String,
    /// Signs the callbacks: the shop's ONCEGATE_GATEWAY_WEBHOOK_SECRET
    #[arg(long, value_name = "SECRET", default_value = "whsec_standin")]
    webhook_secret: String,
    /// Where callbacks go: the shop's /api/payments/callback; without it none are sent
    #[arg(long, value_name = "URL")]
    callback_url: Option<String>,
    /// Pause before each answer
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    latency: Duration,
    /// A total (minor units) that is declined; repeatable
    #[arg(long = "decline-amount", value_name = "N")]
    decline_amounts: Vec<i64>,
    /// Every Nth charge is made, but its connection is closed without an answer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    lose_answer: Option<u64>,
    /// normal, twice, late, shuffled, early or none
    #[arg(long, value_name = "WHICH", default_value = "normal")]
    callbacks: Callbacks,
    /// How long after the answer (with early: before it) a callback is sent
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    callback_delay: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    config::duration(text).ok_or_else(|| "must be a duration such as 250ms, 30s or 5m".to_owned())
}

/// Serves until it is told to stop.
pub(super) async fn run(wanted: Wanted) -> Result<(), Failure> {
    let stop = serve::stop_on_signal()?;
    let given = wanted.address.unwrap_or_default();
    let listen: SocketAddr = given.to_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
        Failure::Usage(format!("--listen is {given:?}; allowed: an IP address and a port such as 127.0.0.1:3002"))
    })?;
    let unable = |error: &dyn std::fmt::Display| Failure::Failed(format!("cannot stand in on {listen}: {error}"));
    let listener = TcpListener::bind(listen).await.map_err(|e| unable(&e))?;
    let address = listener.local_addr().map_err(|e| unable(&e))?;
    let standin = Standin::new(Options {
        key: wanted.key,
        webhook_secret: wanted.webhook_secret,
        callback_url: wanted.callback_url,
        latency: wanted.latency,
        decline_amounts: wanted.decline_amounts,
        lose_answer: wanted.lose_answer,
        callbacks: wanted.callbacks,
        callback_delay: wanted.callback_delay,
    });
    say(&format!("listening on http://{address}"));
    standin.map_err(|e| unable(&e))?.serve(listener, stop.cancelled_owned()).await.map_err(|e| unable(&e))
}
