//! Clients that leave (D1): whatever they sent is done wholly or not at all, and their retry finds out which.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::retry;
use crate::harness::client::{Client, want};
use crate::harness::site::{Site, eventually};

const SOON: Duration = Duration::from_secs(10);

/// How much of its order a client has sent before it leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    Half,
    Whole,
}

/// Sends so much of an order, reads for so long, and is gone.
async fn leave(client: &Client, at: SocketAddr, key: &str, body: &Value, sent: Sent, reads: Duration) {
    let body = body.to_string();
    let request = format!(
        "POST /api/orders HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        client.token(),
        body.len()
    );
    let mut connection = TcpStream::connect(at).await.unwrap();
    let sent = if sent == Sent::Half { request.len() - body.len() / 2 } else { request.len() };
    connection.write_all(&request.as_bytes()[..sent]).await.unwrap();
    let _ = timeout(reads, connection.read_u8()).await;
}

/// The same numbers in every run, spread over 0..1: multiples of the golden ratio.
fn spread(n: u32) -> f64 {
    (f64::from(n) * 0.618_033_988_749_895).fract()
}

#[tokio::test]
async fn a_hundred_clients_that_leave_at_any_time_get_one_order_each_by_asking_once_more() {
    let site = Site::open(&[]).await;
    let services = site.start_two().await;
    let (client, order) = (site.client("a").await, want(&[("TEA", 1), ("POT", 1)]));
    for n in 0..100_u32 {
        let at = services[n as usize % 2].main;
        // Every fourth leaves before it has said all; the others within the time that an order takes.
        let sent = if n % 4 == 0 { Sent::Half } else { Sent::Whole };
        leave(&client, at, &format!("k{n}"), &order, sent, Duration::from_secs_f64(spread(n) * 0.02)).await;
    }
    for n in 0..100_usize {
        let (placed, meanwhile) = retry(&client, services[n / 2 % 2].main, &format!("k{n}"), &order, SOON).await;
        assert!(meanwhile.iter().all(|seen| seen.is_in_progress(30)), "{meanwhile:?}");
        assert!(client.order(services[n % 2].main, &format!("k{n}"), &order).await.same_as(&placed));
    }
    assert_eq!((site.orders().await, site.processing().await), (100, 0));
    if std::env::var_os("TEST_DATABASE_URL").is_some() {
        let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND application_name = 'oncegate' AND state LIKE 'idle in transaction%'";
        eventually("no connection is left in a transaction", async || site.under.sql.int(open).await == 0).await;
    }
    site.holds().await;
}

/// All of them are gone before the work can go on, and nobody ever asks again: it is done all the same.
#[tokio::test]
async fn what_clients_asked_for_is_done_although_all_of_them_have_left() {
    let site = Site::open(&[]).await;
    let service = site.start().await;
    let (client, order) = (site.client("a").await, want(&[("TEA", 1)]));
    site.warm_up(&client, &[&service]).await;
    let hold = site.under.sql.hold("TEA").await;
    for n in 0..20 {
        leave(&client, service.main, &format!("k{n}"), &order, Sent::Whole, Duration::from_millis(20)).await;
    }
    hold.release().await;
    eventually("all are placed", async || site.orders().await == 20).await;
    site.holds().await;
}

/// A browser's Stop button, and the same form once more.
#[tokio::test]
async fn a_form_whose_browser_was_stopped_leads_to_its_order_when_it_is_sent_again() {
    let site = Site::open(&[]).await;
    let service = site.start().await;
    let buyer = site.buyer();
    for round in 0..10 {
        let pair = buyer.form(service.main).await;
        let stopped = buyer.try_submit(service.main, &pair, "TEA", 1);
        let _ = timeout(Duration::from_secs_f64(spread(round) * 0.02), stopped).await;
        let again = buyer.submit(service.main, &pair, "TEA", 1).await;
        assert!(again.order().is_some(), "{}", again.text());
        assert_eq!(site.orders().await, i64::from(round) + 1);
    }
    site.holds().await;
}
