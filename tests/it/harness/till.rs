//! The payment provider as a process of its own: the stand-in of the real binary. Its callbacks go through a courier in
//! the test, who can hold them back, and hands them on to whichever process of the service is running.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use oncegate::payment::signature;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Child;
use uuid::Uuid;

use super::http;
use super::service::program;

/// What the shop is known by.
pub const KEY: &str = "sk_test_of_the_tests";
/// What callbacks are signed with.
pub const WEBHOOK_SECRET: &str = "whsec_of_the_tests";
/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The running stand-in; killed when dropped.
pub struct Till {
    child: Child,
    http: reqwest::Client,
    /// Where it listens.
    pub at: SocketAddr,
    /// Who brings its callbacks.
    pub courier: Courier,
    _folder: TempDir,
}

impl Till {
    /// Starts it with these flags beside those that make it known to the shop.
    pub async fn open(flags: &[&str]) -> Self {
        let (folder, courier) = (tempfile::tempdir().unwrap(), Courier::start().await);
        let url = format!("http://{}/", courier.at);
        let ours = ["gateway", "--listen", "127.0.0.1:0", "--key", KEY, "--webhook-secret", WEBHOOK_SECRET];
        let args: Vec<_> = ours.iter().chain(&["--callback-url", &url]).chain(flags).copied().collect();
        let mut child = program(folder.path(), &args, &[]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().expect("it says where it listens");
        let at = line.strip_prefix("listening on http://").unwrap().parse().unwrap();
        Self { child, http: http().timeout(PATIENCE).build().unwrap(), at, courier, _folder: folder }
    }

    /// What it charged and paid back so far.
    pub async fn log(&self) -> Vec<Line> {
        let log = self.http.get(format!("http://{}/log", self.at)).send().await.unwrap();
        log.json::<Vec<Value>>().await.unwrap().iter().map(Line::read).collect()
    }

    /// How many charges it made so far.
    pub async fn charges(&self) -> usize {
        self.log().await.iter().filter(|line| !line.refund).count()
    }

    /// Charges past the shop: a payment that nobody there asked for.
    pub async fn charge(&self, order: &str, attempt: i32, amount: i64, key: &str) -> Value {
        let fields = [
            ("amount", amount.to_string()),
            ("currency", "eur".into()),
            ("confirm", "true".into()),
            ("metadata[order_id]", order.into()),
            ("metadata[attempt]", attempt.to_string()),
        ];
        let request = self.http.post(format!("http://{}/v1/payment_intents", self.at)).bearer_auth(KEY);
        let answer = request.header("idempotency-key", key).form(&fields).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.json().await.unwrap()
    }

    /// It takes calls, and does and says nothing about them.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// It goes on, with everything that was asked meanwhile.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Ends it as an operator does, and tells its exit code.
    pub async fn end(mut self) -> Option<i32> {
        self.signal(Signal::SIGTERM);
        self.child.wait().await.unwrap().code()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()), signal).unwrap();
    }
}

/// One line of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub order: String,
    pub attempt: String,
    pub amount: i64,
    /// The key of its request.
    pub key: String,
    /// Whether it was paid back, else charged.
    pub refund: bool,
}

impl Line {
    fn read(line: &Value) -> Self {
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let refund = text("status") == "refunded";
        let amount = line["amount"].as_i64().unwrap();
        Self { order: text("order_id"), attempt: text("attempt"), amount, key: text("idempotency_key"), refund }
    }
}

/// A callback as it was sent.
#[derive(Clone, Debug)]
pub struct Callback {
    pub signature: String,
    pub body: Bytes,
}

impl Callback {
    /// Of the test's own making: signed as of now.
    pub fn signed(body: impl Into<Bytes>) -> Self {
        Self::signed_as_of(body, 0)
    }

    /// Signed so many seconds from now.
    pub fn signed_as_of(body: impl Into<Bytes>, seconds: i64) -> Self {
        let (body, now) = (body.into(), time::OffsetDateTime::now_utc().unix_timestamp() + seconds);
        Self { signature: signature::sign(WEBHOOK_SECRET, &body, now), body }
    }

    /// A new event of this kind about this object.
    pub fn about(kind: &str, object: &Value) -> Self {
        let id = format!("evt_{}", Uuid::new_v4().simple());
        Self::signed(json!({"id": id, "type": kind, "data": {"object": object}}).to_string())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn kind(&self) -> String {
        self.json()["type"].as_str().unwrap().to_owned()
    }

    /// What it is about.
    pub fn object(&self) -> Value {
        self.json()["data"]["object"].clone()
    }

    /// Hands it in; answers the status.
    pub async fn deliver(&self, at: SocketAddr) -> u16 {
        self.try_deliver(at).await.unwrap().status().as_u16()
    }

    /// Hands it in; an error when there is no answer.
    pub async fn try_deliver(&self, at: SocketAddr) -> reqwest::Result<reqwest::Response> {
        let request = http().timeout(PATIENCE).build()?.post(format!("http://{at}/api/payments/callback"));
        let request = request.header("content-type", "application/json").header("stripe-signature", &self.signature);
        request.body(self.body.clone()).send().await
    }
}

/// Takes the callbacks of a till, and hands them on where it is told to.
#[derive(Clone)]
pub struct Courier {
    at: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    bag: Mutex<Vec<Callback>>,
    to: Mutex<Option<SocketAddr>>,
    failed: Mutex<Vec<u16>>,
}

impl Courier {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let courier = Self { at: listener.local_addr().unwrap(), shared: Arc::default() };
        let router = Router::new().route("/", post(bring)).with_state(courier.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        courier
    }

    /// From now on callbacks go there.
    pub fn bring_to(&self, service: SocketAddr) {
        *self.shared.to.lock().unwrap() = Some(service);
    }

    /// From now on callbacks stay in the bag; the till is told that they were taken.
    pub fn hold(&self) {
        *self.shared.to.lock().unwrap() = None;
    }

    /// Everything that came so far.
    pub fn bag(&self) -> Vec<Callback> {
        self.shared.bag.lock().unwrap().clone()
    }

    /// What of this kind came so far.
    pub fn of_kind(&self, kind: &str) -> Vec<Callback> {
        self.bag().into_iter().filter(|callback| callback.kind() == kind).collect()
    }

    /// Statuses with which the service refused callbacks.
    pub fn refused(&self) -> Vec<u16> {
        self.shared.failed.lock().unwrap().clone()
    }
}

async fn bring(State(courier): State<Courier>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let signature = headers["stripe-signature"].to_str().unwrap().to_owned();
    let callback = Callback { signature, body };
    courier.shared.bag.lock().unwrap().push(callback.clone());
    let Some(to) = *courier.shared.to.lock().unwrap() else { return StatusCode::OK };
    match callback.try_deliver(to).await {
        Ok(answer) if answer.status().is_success() => StatusCode::OK,
        Ok(answer) => {
            courier.shared.failed.lock().unwrap().push(answer.status().as_u16());
            answer.status()
        }
        Err(_) => StatusCode::BAD_GATEWAY,
    }
}
