//! A shop as an operator runs it: one database, one token store, and as many processes of the real binary as a test
//! starts. Who asks is in [`super::client`], what must hold afterwards in [`super::invariants`].

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use oncegate::order::request::from_json;
use oncegate::order::values::Subject;
use oncegate::store::{ClaimRequest, ClaimResult, Fence};
use serde_json::Value;
use tempfile::TempDir;

use super::TestStore;
use super::client::{Buyer, Client, Ledger, want};
use super::goods::{LEASE, product, record_id};
use super::proxy::Proxy;
use super::redis;
use super::service::{SECRET, Service, run, stderr, stdout};

/// What everybody has to spend, in minor units: at the price of 1.00 apiece, a thousand pieces.
pub const OPENING: i64 = 100_000;
/// What is in the shop at the start: SKU and stock.
pub const PUT_IN: [(&str, i64); 3] = [("CUP", 10), ("POT", 1_000_000), ("TEA", 1_000_000)];

/// The surroundings of the processes under test.
pub struct Site {
    folder: TempDir,
    settings: Vec<(&'static str, String)>,
    /// Order ids that somebody was told.
    pub ledger: Ledger,
    /// Dropped last.
    pub under: TestStore,
}

impl Site {
    /// On the pair that the environment chooses, with these settings beside it. No repeat notice, which is tested elsewhere.
    pub async fn open(settings: &[(&'static str, &str)]) -> Self {
        let under = TestStore::new().await;
        let goods = PUT_IN.map(|(sku, stock)| product(sku, 100, stock));
        under.store.import_products(&goods).await.unwrap();
        let mut all = vec![
            ("DATABASE_URL", under.database.url().to_owned()),
            ("REDIS_URL", redis::shared().unwrap_or_default()),
            ("ONCEGATE_COOKIE_SECRET", SECRET.to_owned()),
            ("ONCEGATE_JWT_SECRET", SECRET.to_owned()),
            ("ONCEGATE_OPENING_BALANCE", OPENING.to_string()),
            ("ONCEGATE_DEMO", "false".to_owned()),
            ("ONCEGATE_REPEAT_NOTICE", "0s".to_owned()),
        ];
        all.extend(settings.iter().map(|(name, value)| (*name, (*value).to_owned())));
        Self { folder: tempfile::tempdir().unwrap(), settings: all, ledger: Arc::new(Mutex::default()), under }
    }

    /// For what only PostgreSQL can show; `None` in the run on the embedded pair.
    pub async fn on_postgres(settings: &[(&'static str, &str)]) -> Option<Self> {
        std::env::var_os("TEST_DATABASE_URL")?;
        Some(Self::open(settings).await)
    }

    /// Whether the database is a server, which can go away.
    pub fn shares_a_server(&self) -> bool {
        std::env::var_os("TEST_DATABASE_URL").is_some()
    }

    /// Whether tokens are shared by the processes.
    pub fn shares_tokens(&self) -> bool {
        std::env::var_os("TEST_REDIS_URL").is_some()
    }

    /// Another process.
    pub async fn start(&self) -> Service {
        self.start_with(&[]).await
    }

    /// Another process, with settings of its own.
    pub async fn start_with(&self, settings: &[(&str, &str)]) -> Service {
        let ours = self.settings.iter().map(|(name, value)| (*name, value.as_str()));
        let all: Vec<_> = ours.chain(settings.iter().copied()).collect();
        Service::start(self.folder.path(), &all).await
    }

    /// Two processes.
    pub async fn start_two(&self) -> [Service; 2] {
        let (first, second) = tokio::join!(self.start(), self.start());
        [first, second]
    }

    /// A proxy in front of the PostgreSQL server, and what `DATABASE_URL` is through it.
    pub async fn database_proxy(&self) -> (Proxy, String) {
        let mut url: reqwest::Url = self.under.database.url().parse().unwrap();
        let proxy = Proxy::start(url.socket_addrs(|| Some(5432)).unwrap()[0]).await;
        url.set_ip_host(proxy.addr().ip()).unwrap();
        url.set_port(Some(proxy.addr().port())).unwrap();
        (proxy, url.into())
    }

    /// Somebody with a bearer token, made by the program itself.
    pub async fn client(&self, sub: &str) -> Client {
        self.token(&["token", "--sub", sub]).await
    }

    /// Somebody who may ship orders.
    pub async fn operator(&self) -> Client {
        self.token(&["token", "--sub", "operator", "--role", "operator"]).await
    }

    /// A sweep by hand; another process is doing the same for all that anybody knows.
    pub async fn sweep(&self) {
        let env: Vec<_> = self.settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let swept = run(self.folder.path(), &["sweep"], &env).await;
        assert!(swept.status.success(), "{}", stderr(&swept));
    }

    async fn token(&self, args: &[&str]) -> Client {
        let env: Vec<_> = self.settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let made = run(self.folder.path(), args, &env).await;
        Client::new(stdout(&made).trim_end(), self.ledger.clone())
    }

    /// A browser that has not been here before.
    pub fn buyer(&self) -> Buyer {
        Buyer::new(self.ledger.clone())
    }

    /// Leaves a claim of this request as a worker does that dies with it: its lease is over, its epoch is 1. Whoever asks next
    /// takes it over, and so goes the way of the claims; what nothing stands for is placed without one. `subject` has an account.
    pub async fn abandon(&self, subject: &str, key: &str, body: &Value) {
        let store = &self.under.store;
        let account = store.find_account(&Subject::parse(subject).unwrap()).await.unwrap().unwrap();
        let fingerprint = from_json(body.to_string().as_bytes(), false).unwrap().fingerprint;
        let request = ClaimRequest { id: record_id(account, key), fingerprint };
        let fence = Fence { id: request.id.clone(), epoch: 1 };
        let claimed = store.claim(&[request], LEASE).await.unwrap();
        assert!(matches!(claimed[0], ClaimResult::Won { epoch: 1, taken_over: false }), "{claimed:?}");
        store.release(&[fence]).await.unwrap();
    }

    /// Who the only buyer is that has an account.
    pub async fn visitor(&self) -> String {
        self.under.sql.text("SELECT subject FROM accounts WHERE subject LIKE 'visitor:%'").await
    }

    /// Opens the client's account, and the connections of each process, by an order that [`Self::orders`] does not count:
    /// what is measured afterwards is the work itself.
    pub async fn warm_up(&self, client: &Client, services: &[&Service]) {
        for service in services {
            let (at, key) = (service.main, format!("warm-{}", service.main));
            eventually("it is warm", async || client.order(at, &key, &want(&[("POT", 1)])).await.status == 201).await;
        }
    }

    /// How many orders stand, but for those of the warm-up.
    pub async fn orders(&self) -> i64 {
        let count = "SELECT CAST(count(*) AS bigint) FROM orders WHERE idempotency_key NOT LIKE 'warm-%'";
        self.under.sql.int(count).await
    }

    /// How many records are under way (their lease over or not).
    pub async fn processing(&self) -> i64 {
        self.under.sql.int("SELECT CAST(count(*) AS bigint) FROM idempotency_records WHERE status = 'processing'").await
    }

    /// Waits until so many claims are under way.
    pub async fn wait_for_processing(&self, claims: i64) {
        eventually("the claims stand", async || self.processing().await == claims).await;
    }
}

/// Waits for a condition, for up to twenty seconds.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The n-th of two processes, in turn.
pub fn in_turn(services: &[Service; 2], n: usize) -> SocketAddr {
    services[n % 2].main
}
