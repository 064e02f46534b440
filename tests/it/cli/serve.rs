//! The running service: how it starts, what operators see, how it stops.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::proxy::{Fault, Proxy};
use crate::harness::service::{SECRET, Service, run, stderr, stdout};
use crate::harness::{Database, http};

/// All decisions of the contract's section 9.
const DECISIONS: [(&str, &[&str]); 3] = [
    ("token", &["accepted", "spent", "unknown", "bypassed"]),
    ("key", &["claimed", "replayed", "in_progress", "mismatched", "taken_over", "lease_lost"]),
    ("constraint", &["inserted", "key_exists", "reference_exists"]),
];

#[tokio::test]
async fn the_first_log_line_says_that_this_is_the_embedded_default_and_what_production_sets() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), &[]).await;
    for word in ["embedded default", "DATABASE_URL", "REDIS_URL", "ONCEGATE_COOKIE_SECRET", "ONCEGATE_JWT_SECRET"] {
        assert!(service.log[0].contains(word), "{word}: {}", service.log[0]);
    }
    assert!(!service.log.concat().contains('\u{1b}'), "colours are for terminals");
}

#[tokio::test]
async fn a_setting_that_is_empty_is_not_set() {
    let folder = tempfile::tempdir().unwrap();
    let empty = [
        "DATABASE_URL",
        "REDIS_URL",
        "ONCEGATE_PUBLIC_URL",
        "ONCEGATE_LEASE",
        "ONCEGATE_QUEUE",
        "ONCEGATE_DEMO",
        "ONCEGATE_COOKIE_SECRET",
        "ONCEGATE_JWT_SECRET",
        "ONCEGATE_JWT_PUBLIC_KEY",
        "ONCEGATE_GATEWAY_URL",
        "ONCEGATE_GATEWAY_KEY",
        "ONCEGATE_LOG",
        "ONCEGATE_LOG_FORMAT",
    ];
    let service = Service::start(folder.path(), &empty.map(|name| (name, ""))).await;
    assert_eq!(service.get("/healthz").await.status(), 200);
    assert!(folder.path().join("data/oncegate.db").exists());
}

#[tokio::test]
async fn the_log_can_be_json_and_a_misspelt_setting_is_named_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let env = [("ONCEGATE_LOG_FORMAT", "json"), ("ONCEGATE_LOG", "warn,oncegate=info"), ("ONCEGATE_LEESE", "1s")];
    let service = Service::start(folder.path(), &env).await;
    let lines: Vec<Value> = service.log.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["message"].as_str().unwrap().contains("embedded default"));
    assert!(lines.iter().any(|l| l["level"] == "WARN" && l["message"].as_str().unwrap().contains("ONCEGATE_LEESE")));
}

#[tokio::test]
async fn both_listeners_tell_health_and_only_the_operators_one_tells_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), &[]).await;
    for answer in [service.get("/readyz").await, service.get_ops("/readyz").await] {
        assert_eq!((answer.status().as_u16(), &answer.headers()["cache-control"]), (200, &"no-store".parse().unwrap()));
        assert_eq!(answer.text().await.unwrap(), r#"{"database":"ok","tokens":"ok"}"#);
    }
    assert_eq!(service.get("/healthz").await.status(), 200);
    assert_eq!(service.get_ops("/healthz").await.status(), 200);
    assert_eq!(service.get("/metrics").await.status(), 404);
    assert_eq!(service.get_ops("/orders/new").await.status(), 404);

    let numbers = service.get_ops("/metrics").await;
    assert!(numbers.headers()["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4"));
    let numbers = numbers.text().await.unwrap();
    for (layer, decisions) in DECISIONS {
        for decision in decisions {
            let line = format!("oncegate_layer_decisions_total{{layer=\"{layer}\",decision=\"{decision}\"}} 0\n");
            assert!(numbers.contains(&line), "{line}{numbers}");
        }
    }
    let counted = "oncegate_http_requests_total{route=\"/readyz\",method=\"GET\",status=\"200\"} 2\n";
    assert!(numbers.contains(counted), "{numbers}");
    assert!(!numbers.contains("/orders/new"), "a path that is no route adds no line: {numbers}");
}

#[tokio::test]
async fn without_its_token_store_the_service_starts_degraded_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), &[("REDIS_URL", "redis://:hunter2@127.0.0.1:1")]).await;
    let answer = service.get("/readyz").await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.text().await.unwrap(), r#"{"database":"ok","tokens":"degraded"}"#);
    assert!(service.log.iter().any(|line| line.contains("WARN")), "{:#?}", service.log);
    assert!(!service.log.concat().contains("hunter2"));
}

#[tokio::test]
async fn a_taken_port_ends_the_start_with_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let taken_by = TcpListener::bind(&taken).await.unwrap();
    for (flag, other, setting) in
        [("--listen", "--ops-listen", "ONCEGATE_LISTEN"), ("--ops-listen", "--listen", "ONCEGATE_OPS_LISTEN")]
    {
        let output = run(folder.path(), &["serve", flag, &taken, other, "127.0.0.1:0"], &[]).await;
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.lines().count() == 1 && said.contains(setting) && said.contains(&taken), "{said}");
        assert!(!stdout(&output).contains("listening"));
    }
    drop(taken_by);
}

#[tokio::test]
async fn both_signals_end_it_with_exit_code_0_and_it_starts_again_on_the_same_file_with_the_same_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| fs::read(folder.path().join("data").join(name)).unwrap();
    let mut kept = Vec::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let service = Service::start(folder.path(), &[]).await;
        let token = stdout(&run(folder.path(), &["token", "--sub", "a"], &[]).await);
        let asked = http().build().unwrap().get(format!("http://{}/api/products", service.main));
        let products = asked.bearer_auth(token.trim_end()).send().await.unwrap();
        assert_eq!(products.status(), 200, "a token made beside the service is good");
        assert_eq!(products.json::<Value>().await.unwrap().as_array().unwrap().len(), 8);
        service.signal(signal);
        let (code, log) = service.end().await;
        assert_eq!(code, Some(0), "{log:#?}");
        kept.push((file("oncegate.db.cookie-secret"), file("oncegate.db.jwt-secret")));
    }
    assert_eq!(kept[0], kept[1]);
    let mut left: Vec<_> = fs::read_dir(folder.path().join("data")).unwrap().map(|f| f.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["oncegate.db", "oncegate.db.cookie-secret", "oncegate.db.jwt-secret"]);
}

#[tokio::test]
async fn a_request_under_way_is_answered_before_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = Service::start(folder.path(), &[]).await;
    let token = stdout(&run(folder.path(), &["token", "--sub", "a"], &[]).await);
    let body = r#"{"lines":[{"sku":"CUP-STONE","quantity":1}],"payment":"balance"}"#;
    let head = format!(
        "POST /api/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nIdempotency-Key: k\r\nContent-Type: \
         application/json\r\nContent-Length: {}\r\n\r\n",
        token.trim_end(),
        body.len()
    );
    let mut client = TcpStream::connect(service.main).await.unwrap();
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&body.as_bytes()[..10]).await.unwrap();
    // Answered on another connection, so the first has been taken off the queue.
    assert_eq!(service.get("/healthz").await.status(), 200);
    service.signal(Signal::SIGTERM);
    service.wait_for("stopping").await;
    client.write_all(&body.as_bytes()[10..]).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert!(answer.contains("\"status\":\"paid\""), "{answer}");
    assert_eq!(service.end().await.0, Some(0));
}

#[tokio::test]
async fn a_client_that_never_finishes_its_request_does_not_hold_the_end_for_long() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path(), &[]).await;
    let mut head = TcpStream::connect(service.main).await.unwrap();
    head.write_all(b"GET / HTTP/1.1\r\nHo").await.unwrap();
    let mut body = TcpStream::connect(service.main).await.unwrap();
    body.write_all(b"POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nquant").await.unwrap();
    assert_eq!(service.get("/healthz").await.status(), 200);
    let begun = Instant::now();
    service.signal(Signal::SIGTERM);
    assert_eq!(service.end().await.0, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(25));
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = Service::start(folder.path(), &[]).await;
    let mut held = TcpStream::connect(service.main).await.unwrap();
    held.write_all(b"GET / HTTP/1.1\r\nHo").await.unwrap();
    assert_eq!(service.get("/healthz").await.status(), 200);
    service.signal(Signal::SIGINT);
    service.wait_for("stopping").await;
    let begun = Instant::now();
    service.signal(Signal::SIGINT);
    assert_eq!(service.end().await.0, Some(130));
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn two_services_that_start_at_once_on_a_new_file_both_serve() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = tokio::join!(Service::start(folder.path(), &[]), Service::start(folder.path(), &[]));
    let token = stdout(&run(folder.path(), &["token", "--sub", "a"], &[]).await);
    for service in [&first, &second] {
        let asked = http().build().unwrap().get(format!("http://{}/api/account", service.main));
        assert_eq!(asked.bearer_auth(token.trim_end()).send().await.unwrap().status(), 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgresql_it_wants_a_schema_gives_nothing_away_and_tells_when_the_database_is_gone() {
    if std::env::var_os("TEST_DATABASE_URL").is_none() {
        return; // PostgreSQL only
    }
    let (folder, database) = (tempfile::tempdir().unwrap(), Database::create().await);
    let mut url: reqwest::Url = database.url().parse().unwrap();
    let proxy = Proxy::start(url.socket_addrs(|| Some(5432)).unwrap()[0]).await;
    url.set_port(Some(proxy.addr().port())).unwrap();
    let redis = std::env::var("TEST_REDIS_URL").unwrap_or_default();
    let env = [
        ("DATABASE_URL", url.as_str()),
        ("REDIS_URL", &redis),
        ("ONCEGATE_COOKIE_SECRET", SECRET),
        ("ONCEGATE_JWT_SECRET", SECRET),
    ];
    let unready = run(folder.path(), &["--no-migrate", "--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0"], &env).await;
    assert!(unready.status.code() == Some(1) && stderr(&unready).contains("oncegate migrate"), "{}", stderr(&unready));

    let service = Service::start(folder.path(), &env).await;
    assert!(!service.log[0].contains("embedded default"), "{}", service.log[0]);
    assert_eq!(service.get("/readyz").await.text().await.unwrap(), r#"{"database":"ok","tokens":"ok"}"#);
    let token = stdout(&run(folder.path(), &["token", "--sub", "a"], &env).await);
    for (path, expected) in [("products", "[]"), ("account", r#"{"balance":0,"currency":"EUR","coupons":[]}"#)] {
        let asked = http().build().unwrap().get(format!("http://{}/api/{path}", service.main));
        assert_eq!(asked.bearer_auth(token.trim_end()).send().await.unwrap().text().await.unwrap(), expected);
    }
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing is kept in files");

    proxy.set(Fault::Refuse);
    let answer = service.get("/readyz").await;
    assert!(answer.status() == 503 && answer.headers().contains_key("retry-after"));
    assert_eq!(answer.text().await.unwrap(), r#"{"database":"unreachable","tokens":"ok"}"#);
    assert_eq!(service.get("/healthz").await.status(), 200);
    proxy.set(Fault::Stall);
    let begun = Instant::now();
    assert_eq!(service.get_ops("/readyz").await.status(), 503);
    assert!(begun.elapsed() < Duration::from_secs(5));
    proxy.set(Fault::None);
    while service.get("/readyz").await.status() != 200 {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not come back");
        tokio::task::yield_now().await;
    }
    service.signal(Signal::SIGTERM);
    assert_eq!(service.end().await.0, Some(0));
}
