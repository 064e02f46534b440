//! Sabotage of the real binary: killed, frozen, cut off, stopped, with its database or its Redis gone, its clock wrong.
//! Whatever is done to it, a client that sends the same request again gets to one final answer, and money moves once.

mod clients;
mod clock;
mod database;
mod freeze;
mod kill;
mod locks;
mod outright;
mod stop;
mod tokens;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::task::JoinHandle;

use crate::harness::client::{Client, Seen};

/// Sends an order without waiting for its answer, which may never come.
fn send(client: &Client, at: SocketAddr, key: &str, body: &Value) -> JoinHandle<Option<Seen>> {
    let (client, key, body) = (client.clone(), key.to_owned(), body.clone());
    tokio::spawn(async move { client.try_order(at, &key, &body).await.ok() })
}

/// Sends the same every 100 ms until it is placed, for at most so long. What is answered meanwhile comes back too.
async fn retry(client: &Client, at: SocketAddr, key: &str, body: &Value, within: Duration) -> (Seen, Vec<Seen>) {
    let begun = Instant::now();
    let mut meanwhile = Vec::new();
    loop {
        match client.try_order(at, key, body).await {
            Ok(seen) if seen.status == 201 => return (seen, meanwhile),
            Ok(seen) => meanwhile.push(seen),
            Err(error) => println!("no answer: {error}"),
        }
        assert!(begun.elapsed() < within, "{key} is not placed within {within:?}: {meanwhile:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
