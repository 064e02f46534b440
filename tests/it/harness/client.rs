//! Who asks the service over the wire: API clients with a token, and browsers with a cookie.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{HeaderMap, LOCATION};
use reqwest::redirect::Policy;
use serde_json::{Value, json};
use uuid::Uuid;

/// Longer than any answer takes: the service's own bound is 10 s.
const PATIENCE: Duration = Duration::from_secs(30);

/// The ids of all orders that anybody was told: they must exist (invariant 5).
pub type Ledger = Arc<Mutex<BTreeSet<String>>>;

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Seen {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Seen {
    async fn read(response: reqwest::Response, ledger: &Ledger) -> reqwest::Result<Self> {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let seen = Self { status, headers, body: response.bytes().await? };
        if let (201 | 303, Some(order)) = (status, seen.order()) {
            ledger.lock().unwrap().insert(order);
        }
        Ok(seen)
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The order that `Location` names.
    pub fn order(&self) -> Option<String> {
        let id = self.headers.get(LOCATION)?.to_str().ok()?.rsplit('/').next()?.split('?').next()?;
        Uuid::parse_str(id).is_ok_and(|_| !self.is_attempt()).then(|| id.to_owned())
    }

    /// Whether it sends to the page where a submission is waited for.
    pub fn is_attempt(&self) -> bool {
        self.header("location").starts_with("/orders/attempts/")
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The name of a problem.
    pub fn problem(&self) -> String {
        let kind = self.json()["type"].as_str().unwrap_or_default().to_owned();
        kind.trim_start_matches("/problems/").to_owned()
    }

    pub fn replayed(&self) -> bool {
        self.header("idempotent-replayed") == "true"
    }

    /// Seconds to wait.
    pub fn retry_after(&self) -> u64 {
        self.header("retry-after").parse().unwrap_or_else(|_| panic!("no Retry-After: {self:?}"))
    }

    /// Said to whoever repeats a request that is under way.
    pub fn is_in_progress(&self, lease: u64) -> bool {
        self.status == 409
            && self.problem() == "request-in-progress"
            && self.json()["retryable"] == true
            && (1..=lease).contains(&self.retry_after())
    }

    /// Said when a dependency is away: the same may come again.
    pub fn is_unavailable(&self) -> bool {
        self.status == 503
            && self.retry_after() >= 1
            && (self.header("content-type").starts_with("text/html") || self.problem() == "unavailable")
    }

    /// What a repeat must have in common with the first answer.
    pub fn same_as(&self, first: &Self) -> bool {
        let kept = |seen: &Self| ["content-type", "location"].map(|name| seen.header(name).to_owned());
        (self.status, &self.body, kept(self)) == (first.status, &first.body, kept(first))
    }
}

/// So many pieces of each of these.
pub fn want(lines: &[(&str, u32)]) -> Value {
    let lines: Vec<_> = lines.iter().map(|(sku, quantity)| json!({"sku": sku, "quantity": quantity})).collect();
    json!({"lines": lines, "payment": "balance"})
}

/// An API client.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    token: String,
    ledger: Ledger,
}

impl Client {
    pub fn new(token: &str, ledger: Ledger) -> Self {
        let http = super::http().timeout(PATIENCE).build().unwrap();
        Self { http, token: token.to_owned(), ledger }
    }

    /// Its bearer token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Orders under this key; an error when there is no answer.
    pub async fn try_order(&self, at: SocketAddr, key: &str, body: &Value) -> reqwest::Result<Seen> {
        let request = self.http.post(format!("http://{at}/api/orders")).bearer_auth(&self.token);
        let response = request.header("idempotency-key", key).json(body).send().await?;
        Seen::read(response, &self.ledger).await
    }

    /// Orders under this key.
    pub async fn order(&self, at: SocketAddr, key: &str, body: &Value) -> Seen {
        self.try_order(at, key, body).await.unwrap()
    }

    /// Orders under this key as a client is told to: again and again until the answer is definite. For tests with a
    /// short lease, where a busy machine may make the provider seem silent.
    pub async fn order_to_the_end(&self, at: SocketAddr, key: &str, body: &Value) -> Seen {
        let begun = std::time::Instant::now();
        loop {
            let seen = self.order(at, key, body).await;
            if !seen.is_unavailable() && !seen.is_in_progress(u64::MAX) {
                return seen;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "no definite answer: {seen:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Posts what may need a key, and may have a body; an error when there is no answer.
    pub async fn try_post(
        &self,
        at: SocketAddr,
        path: &str,
        key: Option<&str>,
        body: Option<&Value>,
    ) -> reqwest::Result<Seen> {
        let mut request = self.http.post(format!("http://{at}{path}")).bearer_auth(&self.token);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        Seen::read(request.send().await?, &self.ledger).await
    }

    /// Wishes this of an order under this key.
    pub async fn wish(&self, at: SocketAddr, order: &str, what: &str, key: &str, body: Option<&Value>) -> Seen {
        self.try_post(at, &format!("/api/orders/{order}/{what}"), Some(key), body).await.unwrap()
    }

    /// Ships it.
    pub async fn ship(&self, at: SocketAddr, order: &str) -> Seen {
        self.try_post(at, &format!("/api/orders/{order}/ship"), None, None).await.unwrap()
    }

    pub async fn get(&self, at: SocketAddr, path: &str) -> Seen {
        let request = self.http.get(format!("http://{at}{path}")).bearer_auth(&self.token);
        Seen::read(request.send().await.unwrap(), &self.ledger).await.unwrap()
    }
}

/// The hidden fields of one rendered form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub token: String,
    pub key: String,
}

/// A browser: it keeps its cookie, for every process of the service alike.
#[derive(Clone)]
pub struct Buyer {
    http: reqwest::Client,
    ledger: Ledger,
}

impl Buyer {
    pub fn new(ledger: Ledger) -> Self {
        let http = super::http().timeout(PATIENCE).cookie_store(true).redirect(Policy::none());
        Self { http: http.build().unwrap(), ledger }
    }

    pub async fn get(&self, at: SocketAddr, path: &str) -> Seen {
        self.try_get(at, path).await.unwrap()
    }

    /// Looks at a page; an error when there is no answer.
    pub async fn try_get(&self, at: SocketAddr, path: &str) -> reqwest::Result<Seen> {
        Seen::read(self.http.get(format!("http://{at}{path}")).send().await?, &self.ledger).await
    }

    /// Opens the form.
    pub async fn form(&self, at: SocketAddr) -> Pair {
        let page = self.get(at, "/orders/new").await;
        assert_eq!(page.status, 200, "{}", page.text());
        Pair::of(&page)
    }

    /// Posts these fields as browsers post forms.
    pub async fn post(&self, at: SocketAddr, path: &str, fields: &[(&str, &str)]) -> Seen {
        self.try_post(at, path, fields).await.unwrap()
    }

    /// The same; an error when there is no answer.
    pub async fn try_post(&self, at: SocketAddr, path: &str, fields: &[(&str, &str)]) -> reqwest::Result<Seen> {
        let request = self.http.post(format!("http://{at}{path}")).form(fields);
        Seen::read(request.send().await?, &self.ledger).await
    }

    /// Sends the form; an error when there is no answer.
    pub async fn try_submit(&self, at: SocketAddr, pair: &Pair, sku: &str, quantity: u32) -> reqwest::Result<Seen> {
        let (field, quantity) = (format!("quantity[{sku}]"), quantity.to_string());
        let fields = [
            ("form_token", pair.token.as_str()),
            ("idempotency_key", &pair.key),
            (&field, &quantity),
            ("payment", "balance"),
            ("note", ""),
        ];
        let request = self.http.post(format!("http://{at}/orders")).form(&fields);
        Seen::read(request.send().await?, &self.ledger).await
    }

    /// Sends the form.
    pub async fn submit(&self, at: SocketAddr, pair: &Pair, sku: &str, quantity: u32) -> Seen {
        self.try_submit(at, pair, sku, quantity).await.unwrap()
    }
}

impl Pair {
    /// What a page's form holds.
    pub fn of(page: &Seen) -> Self {
        let text = page.text();
        let value = |name: &str| {
            let (_, rest) = text.split_once(&format!("name=\"{name}\"")).unwrap_or_else(|| panic!("no {name}: {text}"));
            let (_, rest) = rest.split_once("value=\"").unwrap();
            rest.split('"').next().unwrap().to_owned()
        };
        Self { token: value("form_token"), key: value("idempotency_key") }
    }
}
