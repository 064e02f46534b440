//! A running shop on a private database, with a wire to it that can be cut and a lock that makes it slow.

use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::browser::PATIENCE;
use crate::harness::hold::Hold;
use crate::harness::proxy::{Fault, Proxy};
use crate::harness::service::{SECRET, Service};
use crate::harness::{Database, Sql, redis};

/// What everybody buys: 12.90 EUR.
pub const TEA: &str = "TEA-SENCHA";
/// What else there is: 14.50 EUR.
pub const CUP: &str = "CUP-STONE";

/// The shop, and what stands around it.
pub struct Scene {
    /// Between the browser and the service.
    pub wire: Proxy,
    /// Beside the service.
    pub sql: Sql,
    service: Option<Service>,
    settings: Vec<(String, String)>,
    folder: TempDir,
    database: Database,
}

impl Scene {
    pub async fn open() -> Self {
        Self::open_with(&[]).await
    }

    /// With settings of the test's own.
    pub async fn open_with(own: &[(&str, &str)]) -> Self {
        let (database, folder) = (Database::create().await, TempDir::new().unwrap());
        let redis = redis::shared().unwrap_or_default();
        let usual = [
            ("DATABASE_URL", database.url()),
            ("REDIS_URL", redis.as_str()),
            ("ONCEGATE_COOKIE_SECRET", SECRET),
            ("ONCEGATE_JWT_SECRET", SECRET),
            ("ONCEGATE_DEMO", "true"),
            ("ONCEGATE_OPENING_BALANCE", "100000"),
        ];
        let settings: Vec<_> = usual.iter().chain(own).map(|&(name, value)| (name.into(), value.into())).collect();
        let service = start(&folder, &settings).await;
        let wire = Proxy::start(service.main).await;
        let sql = Sql::open(database.url()).await;
        Self { wire, sql, service: Some(service), settings, folder, database }
    }

    /// An address of the shop.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.wire.addr())
    }

    /// An address that is for operators.
    pub fn ops_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.service.as_ref().expect("it runs").ops)
    }

    /// The address of its form.
    pub fn form(&self) -> String {
        self.url("/orders/new")
    }

    pub async fn orders(&self) -> i64 {
        self.sql.int("SELECT CAST(count(*) AS bigint) FROM orders").await
    }

    /// Waits until there are so many orders; one more or one less never becomes right.
    pub async fn until_orders(&self, count: i64) {
        eventually("the order is placed", async || self.orders().await == count).await;
    }

    /// How many claims are honoured.
    pub async fn leases(&self) -> i64 {
        let now = if self.on_sqlite() { "CAST(unixepoch('subsec') * 1000 AS integer)" } else { "now()" };
        let leases = "SELECT CAST(count(*) AS bigint) FROM idempotency_records WHERE lease_expires_at >";
        self.sql.int(&format!("{leases} {now}")).await
    }

    /// Waits until the order that is held up is claimed: not on SQLite, where the lock keeps the claim out, too.
    pub async fn until_claimed(&self) {
        let claims = i64::from(!self.on_sqlite());
        eventually("the order is claimed", async || self.leases().await == claims).await;
    }

    fn on_sqlite(&self) -> bool {
        self.database.url().starts_with("sqlite:")
    }

    /// How often a layer decided so.
    pub async fn decided(&self, layer: &str, decision: &str) -> u64 {
        let line = format!("oncegate_layer_decisions_total{{layer=\"{layer}\",decision=\"{decision}\"}} ");
        self.count(&line).await
    }

    /// Waits until a layer has decided so at least so often.
    pub async fn until_decided(&self, layer: &str, decision: &str, times: u64) {
        eventually(decision, async || self.decided(layer, decision).await >= times).await;
    }

    /// How often the form was asked for.
    pub async fn forms_shown(&self) -> u64 {
        self.count("oncegate_http_requests_total{route=\"/orders/new\",method=\"GET\",status=\"200\"} ").await
    }

    async fn count(&self, line: &str) -> u64 {
        let numbers = self.service.as_ref().unwrap().get_ops("/metrics").await.text().await.unwrap();
        numbers.lines().find_map(|l| l.strip_prefix(line)).map_or(0, |count| count.parse().unwrap())
    }

    /// Makes the shop slow for whoever buys tea, until the lock is released.
    pub async fn hold(&self) -> Hold {
        self.sql.hold(TEA).await
    }

    /// Makes every answer take a while: else a second press may find the page that the first one led to.
    pub fn slow_down(&self) {
        self.wire.set(Fault::Delay(Duration::from_millis(400)));
    }

    /// Ends the service by a signal, then lets go of what held it up, and waits for the end.
    pub async fn end_service(&mut self, signal: Signal, hold: Hold) {
        let service = self.service.take().unwrap();
        service.signal(signal);
        hold.release().await;
        service.end().await;
    }

    /// Puts somebody in between who answers everything the same, until the wire is led back.
    pub async fn lead_to_stranger(&self, status: u16, text: &'static str) {
        let status = StatusCode::from_u16(status).unwrap();
        let stranger = Router::new().fallback(move || async move { (status, text) });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.wire.lead_to(listener.local_addr().unwrap());
        self.wire.cut();
        tokio::spawn(async move { axum::serve(listener, stranger).await });
    }

    /// Leads the wire to the service again.
    pub fn lead_back(&self) {
        self.wire.lead_to(self.service.as_ref().unwrap().main);
        self.wire.cut();
    }

    /// Starts it again where the wire leads to.
    pub async fn start_service(&mut self) {
        let service = start(&self.folder, &self.settings).await;
        self.wire.lead_to(service.main);
        self.service = Some(service);
    }
}

async fn start(folder: &TempDir, settings: &[(String, String)]) -> Service {
    let settings: Vec<_> = settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    Service::start(folder.path(), &settings).await
}

/// Waits for a condition.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
