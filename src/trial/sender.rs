//! Who sends: a browser with a cookie of its own, and an API client with a token of its own, each over HTTP to this
//! very service's listener. Nothing here knows how a request is worked on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{RequestBuilder, Response};
use serde_json::Value;
use thiserror::Error;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::order::values::{Key, OrderId};
use crate::store::StoreError;
use crate::web::pages::short;
use crate::web::session;

/// Why a play could not be brought to its end.
#[derive(Debug, Error)]
pub(super) enum Broken {
    /// A request got no answer.
    #[error("a request got no answer ({0})")]
    Silent(String),
    /// The database gave none.
    #[error("what is stored could not be read")]
    Store(#[from] StoreError),
    /// Something else than a play needs: what, in words.
    #[error("{0}")]
    Otherwise(String),
}

impl From<reqwest::Error> for Broken {
    fn from(error: reqwest::Error) -> Self {
        Self::Silent(error.without_url().to_string())
    }
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Silent(error.to_string())
    }
}

/// Where the service is reached from inside its own machine.
pub(super) fn reach(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}

/// An HTTP client that follows no redirect, tries nothing again, and asks no proxy.
pub(super) fn http(patience: Duration) -> Result<reqwest::Client, Broken> {
    Ok(reqwest::Client::builder().no_proxy().redirect(Policy::none()).timeout(patience).build()?)
}

/// An answer.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) status: u16,
    pub(super) replayed: bool,
    /// Where it sends to.
    pub(super) location: Option<String>,
    /// The order that it tells of.
    pub(super) order: Option<OrderId>,
    /// The problem's name, where it is one.
    pub(super) problem: Option<String>,
    pub(super) body: String,
}

impl Seen {
    async fn read(answer: Response) -> Result<Self, Broken> {
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let location = text(LOCATION.as_str());
        let json = text(CONTENT_TYPE.as_str()).is_some_and(|kind| kind.contains("json"));
        let body = answer.text().await?;
        let told: Value = if json { serde_json::from_str(&body).unwrap_or_default() } else { Value::Null };
        let problem = told["type"].as_str().and_then(|kind| kind.strip_prefix("/problems/")).map(str::to_owned);
        let order = location.as_deref().and_then(|path| path.rsplit('/').next()?.split('?').next());
        let order = order.and_then(|id| Uuid::try_parse(id).ok()).map(OrderId);
        let waited_for = location.as_deref().is_some_and(|path| path.starts_with("/orders/attempts/"));
        let replayed = text("idempotent-replayed").as_deref() == Some("true");
        Ok(Self { status, replayed, order: order.filter(|_| !waited_for), location, problem, body })
    }

    /// Whether the first is still under way.
    pub(super) fn in_progress(&self) -> bool {
        self.problem.as_deref() == Some("request-in-progress")
    }

    /// In words.
    pub(super) fn told(&self) -> String {
        let mut words = vec![self.status.to_string()];
        words.extend(self.problem.clone());
        words.extend(self.notice().map(|title| format!("“{title}”")));
        match (&self.order, &self.location) {
            (Some(order), _) => words.push(format!("order {}", short(order))),
            (None, Some(_)) => words.push("to where it is waited for".to_owned()),
            (None, None) => {}
        }
        if self.replayed {
            words.push("the first answer again".to_owned());
        }
        words.join(", ")
    }

    /// What the page has to say first, where it is a page that does.
    fn notice(&self) -> Option<&str> {
        let (_, rest) = self.body.split_once("id=\"notice-title\">")?;
        rest.split('<').next().map(str::trim)
    }

    /// The value of a hidden field of the page's form.
    fn hidden(&self, name: &str) -> Option<String> {
        let (_, rest) = self.body.split_once(&format!("name=\"{name}\""))?;
        Some(rest.split_once("value=\"")?.1.split('"').next()?.to_owned())
    }
}

/// A browser.
#[derive(Clone)]
pub(super) struct Browser {
    http: reqwest::Client,
    base: String,
    cookie: Option<String>,
}

/// The hidden fields of a rendered form.
#[derive(Clone)]
pub(super) struct Pair {
    pub(super) token: String,
    pub(super) key: Key,
}

impl Browser {
    pub(super) fn new(http: reqwest::Client, at: SocketAddr) -> Self {
        Self { http, base: format!("http://{at}"), cookie: None }
    }

    /// Opens the order form.
    pub(super) async fn open(&mut self) -> Result<Pair, Broken> {
        let answer = self.get("/orders/new").send().await?;
        let cookies = answer.headers().get_all(SET_COOKIE).iter().filter_map(|cookie| cookie.to_str().ok());
        let mut pairs = cookies.filter_map(|cookie| cookie.split(';').next());
        if let Some(cookie) = pairs.find(|pair| pair.starts_with(session::COOKIE)) {
            self.cookie = Some(cookie.to_owned());
        }
        let page = Seen::read(answer).await?;
        self.pair(&page)
    }

    /// The fields of a form on this page.
    pub(super) fn pair(&self, page: &Seen) -> Result<Pair, Broken> {
        let key = page.hidden("idempotency_key").and_then(|key| Key::parse(&key));
        match (page.hidden("form_token"), key) {
            (Some(token), Some(key)) => Ok(Pair { token, key }),
            _ => Err(Broken::Otherwise(format!("there was no order form on a page (status {})", page.status))),
        }
    }

    /// Sends the form: one of `sku`, paid from the balance.
    pub(super) async fn submit(&self, pair: &Pair, sku: &str) -> Result<Seen, Broken> {
        let quantity = format!("quantity[{sku}]");
        let fields = [
            ("form_token", pair.token.as_str()),
            ("idempotency_key", pair.key.as_str()),
            (&quantity, "1"),
            ("payment", "balance"),
            ("note", ""),
        ];
        let request = self.with_cookie(self.http.post(format!("{}/orders", self.base)));
        Seen::read(request.form(&fields).send().await?).await
    }

    /// Goes where an answer sends.
    pub(super) async fn follow(&self, path: &str) -> Result<Seen, Broken> {
        Seen::read(self.get(path).send().await?).await
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.with_cookie(self.http.get(format!("{}{path}", self.base)))
    }

    fn with_cookie(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.cookie {
            Some(cookie) => request.header(COOKIE, cookie),
            None => request,
        }
    }
}

/// An API client.
#[derive(Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    at: SocketAddr,
    token: String,
}

impl Client {
    pub(super) fn new(http: reqwest::Client, at: SocketAddr, token: String) -> Self {
        Self { http, at, token }
    }

    /// Orders under this key.
    pub(super) async fn order(&self, key: &Key, wanted: &Value) -> Result<Seen, Broken> {
        let request = self.http.post(format!("http://{}/api/orders", self.at)).bearer_auth(&self.token);
        Seen::read(request.header("idempotency-key", key.as_str()).json(wanted).send().await?).await
    }

    /// Sends an order, and hangs up without reading the answer.
    pub(super) async fn order_and_hang_up(&self, key: &Key, wanted: &Value) -> Result<(), Broken> {
        let (body, at, token) = (wanted.to_string(), self.at, &self.token);
        let head = format!(
            "POST /api/orders HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {token}\r\nIdempotency-Key: {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let mut connection = TcpStream::connect(at).await?;
        connection.write_all(format!("{head}{body}").as_bytes()).await?;
        connection.shutdown().await?;
        Ok(())
    }

    /// Hands in what the payment provider would.
    pub(super) async fn callback(&self, body: &str, signature: &str) -> Result<Seen, Broken> {
        let request = self.http.post(format!("http://{}/api/payments/callback", self.at));
        let request = request.header(CONTENT_TYPE, "application/json").header("stripe-signature", signature);
        Seen::read(request.body(body.to_owned()).send().await?).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_every_address_is_reached_by_the_machines_own() {
        for (listening, reached) in [
            ("0.0.0.0:3000", "127.0.0.1:3000"),
            ("[::]:3000", "[::1]:3000"),
            ("192.0.2.7:80", "192.0.2.7:80"),
            ("127.0.0.1:3000", "127.0.0.1:3000"),
        ] {
            assert_eq!(reach(listening.parse().unwrap()), reached.parse().unwrap());
        }
    }
}
