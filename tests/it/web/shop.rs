//! A shop with the real router on a private database, and buyers who press its buttons.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, Request, Response, StatusCode};
use oncegate::app::App;
use oncegate::checkout::desk;
use oncegate::config::{Config, RedactedUrl, Redis, Settings};
use oncegate::guard::token::{Binding, Tokens};
use oncegate::order::Product;
use oncegate::order::request;
use oncegate::order::values::{AccountId, Subject};
use oncegate::store::{ClaimRequest, ClaimResult, Fence};
use sha2::{Digest, Sha256};
use tower::ServiceExt;
use uuid::Uuid;

use crate::harness::goods::{PLACE, key, product, record_id};
use crate::harness::{self, TestStore};

/// What a test wants different.
pub type Tweak = fn(&mut Config);

pub struct Shop {
    pub app: App,
    pub kept: TestStore,
    router: Router,
}

/// TEA (12.50, plenty), CUP (8.00, three left), GOLD (dear).
fn catalogue() -> Vec<Product> {
    vec![product("CUP", 800, 3), product("GOLD", 5_000_000, 10), product("TEA", 1250, 1000)]
}

impl Shop {
    pub async fn open() -> Self {
        Self::open_with(|_| ()).await
    }

    pub async fn open_with(tweak: Tweak) -> Self {
        Self::on(TestStore::new().await, tweak).await
    }

    /// On what is kept already: the service, started again.
    pub async fn on(kept: TestStore, tweak: Tweak) -> Self {
        kept.store.add_missing_products(&catalogue()).await.unwrap();
        let secret = Some("a secret of the tests, long enough to be one".into());
        let settings = Settings {
            database_url: Some(kept.database.url().into()),
            redis_url: harness::redis::shared().map(Into::into),
            cookie_secret: secret.clone(),
            jwt_secret: secret,
            opening_balance: Some("100000".into()),
            form_wait: Some("200ms".into()),
            ..Settings::default()
        };
        let mut config = Config::read(&settings).unwrap();
        tweak(&mut config);
        let tokens = Tokens::connect(&config.redis, config.form_token_ttl).await;
        let (app, inbox) = App::new(Arc::new(config), kept.store.clone(), tokens, None, oncegate::api::ANSWERS);
        desk::open(&app, inbox, 1);
        Self { router: oncegate::web::router(app.clone()), app, kept }
    }

    pub fn buyer(&self) -> Buyer {
        Buyer { app: self.app.clone(), router: self.router.clone(), cookie: None }
    }

    pub async fn orders(&self) -> i64 {
        self.kept.sql.int("SELECT CAST(count(*) AS bigint) FROM orders").await
    }

    pub async fn records(&self) -> i64 {
        self.kept.sql.int("SELECT CAST(count(*) AS bigint) FROM idempotency_records").await
    }
}

/// Nobody answers there: layer 1 is bypassed.
pub fn without_redis(config: &mut Config) {
    config.redis = Redis::Single(RedactedUrl::new("redis://127.0.0.1:1".into()));
}

/// One browser: it keeps its cookie.
#[derive(Clone)]
pub struct Buyer {
    app: App,
    router: Router,
    cookie: Option<String>,
}

/// What a form holds: names and values.
pub type Fields<'a> = &'a [(&'a str, &'a str)];

/// Two packets of tea.
pub const TEA: Fields = &[("quantity[TEA]", "2"), ("payment", "balance"), ("note", "")];
/// Something else.
pub const CUP: Fields = &[("quantity[CUP]", "1"), ("payment", "balance"), ("note", "")];

impl Buyer {
    pub async fn send(&mut self, request: Request<Body>) -> Page {
        let response = self.router.clone().oneshot(request).await.unwrap();
        for cookie in response.headers().get_all(SET_COOKIE) {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            self.cookie = Some(pair.to_owned());
        }
        Page::of(response).await
    }

    pub fn cookie(&self) -> &str {
        self.cookie.as_deref().unwrap()
    }

    pub fn set_cookie(&mut self, cookie: &str) {
        self.cookie = Some(cookie.to_owned());
    }

    /// The session's id: what stands behind the signature.
    pub fn session_id(&self) -> &str {
        &self.cookie()[self.cookie().len() - 22..]
    }

    /// The same browser at another process of the service.
    pub fn at(&self, shop: &Shop) -> Self {
        Self { cookie: self.cookie.clone(), ..shop.buyer() }
    }

    pub fn request(&self, method: &str, path: &str) -> axum::http::request::Builder {
        let request = Request::builder().method(method).uri(path).header("host", "shop.example");
        match &self.cookie {
            Some(cookie) => request.header(COOKIE, cookie),
            None => request,
        }
    }

    pub async fn get(&mut self, path: &str) -> Page {
        let request = self.request("GET", path).body(Body::empty()).unwrap();
        self.send(request).await
    }

    /// Posts a body as browsers post forms.
    pub async fn post(&mut self, path: &str, body: String) -> Page {
        let request = self.request("POST", path).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let request = request.body(body.into()).unwrap();
        self.send(request).await
    }

    pub async fn form(&mut self) -> Pair {
        self.get("/orders/new").await.pair()
    }

    /// Sends a form with this pair.
    pub async fn order(&mut self, pair: &Pair, fields: Fields<'_>) -> Page {
        self.post("/orders", pair.body(fields)).await
    }

    /// Whom the shop takes this browser for, as its database has it.
    pub async fn subject(&self) -> Subject {
        let row = hex::encode(Sha256::digest(self.session_id()));
        let data = self.app.store.load_session(&row).await.unwrap().expect("the session is kept under its hash");
        let data: serde_json::Value = serde_json::from_slice(&data).unwrap();
        Subject::visitor(Uuid::parse_str(data["visitor"].as_str().unwrap()).unwrap())
    }

    pub async fn account(&self) -> AccountId {
        self.app.account(&self.subject().await).await.unwrap()
    }

    /// Another live token for the same key: what a form has that came back.
    pub async fn fresh_token(&self, pair: &Pair) -> Pair {
        let token = self.app.tokens.issue(&self.binding(pair).await).await;
        Pair { token, key: pair.key.clone() }
    }

    pub async fn binding(&self, pair: &Pair) -> Binding {
        Binding { subject: self.subject().await, form: PLACE, key: key(&pair.key) }
    }

    /// Hands the token in and leaves it at that: the process died before it claimed the key.
    pub async fn spend(&self, pair: &Pair) {
        self.app.tokens.spend(&pair.token, &self.binding(pair).await, Uuid::new_v4()).await;
    }

    /// Claims the key as if these fields were being placed by somebody slow.
    pub async fn under_way(&self, pair: &Pair, fields: Fields<'_>) -> Fence {
        self.under_way_for(pair, fields, self.app.config.lease).await
    }

    pub async fn under_way_for(&self, pair: &Pair, fields: Fields<'_>, lease: Duration) -> Fence {
        let fields: Vec<_> = fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let parsed = request::from_form(&fields, false).unwrap();
        let id = record_id(self.account().await, &pair.key);
        let claim = ClaimRequest { id: id.clone(), fingerprint: parsed.fingerprint };
        match self.app.store.claim(&[claim], lease).await.unwrap().remove(0) {
            ClaimResult::Won { epoch, .. } => Fence { id, epoch },
            ClaimResult::Lost(record) => panic!("lost to {record:?}"),
        }
    }
}

/// The hidden fields of one rendering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    pub token: String,
    pub key: String,
}

impl Pair {
    pub fn body(&self, fields: Fields<'_>) -> String {
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.append_pair("form_token", &self.token).append_pair("idempotency_key", &self.key);
        body.extend_pairs(fields).finish()
    }

    /// The same key with a token that was never issued.
    pub fn forged(&self) -> Self {
        Self { token: "forged".into(), key: self.key.clone() }
    }
}

/// An answer.
pub struct Page {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Page {
    async fn of(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        Self { status: head.status, headers: head.headers, text: String::from_utf8(body.to_vec()).unwrap() }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn location(&self) -> &str {
        self.header(LOCATION.as_str())
    }

    /// Where a placed order stands.
    pub fn order(&self) -> String {
        assert_eq!(self.status, StatusCode::SEE_OTHER, "{}", self.text);
        let id = self.location().strip_prefix("/orders/").unwrap();
        Uuid::parse_str(id).unwrap_or_else(|_| panic!("not an order: {id}")).to_string()
    }

    /// What stands in the input of this name.
    pub fn value(&self, name: &str) -> String {
        let at = self.text.find(&format!("name=\"{name}\"")).unwrap_or_else(|| panic!("no {name} in {}", self.text));
        let rest = &self.text[at..];
        let from = rest.find("value=\"").unwrap() + "value=\"".len();
        rest[from..].split('"').next().unwrap().to_owned()
    }

    pub fn has_field(&self, name: &str) -> bool {
        self.text.contains(&format!("name=\"{name}\""))
    }

    pub fn pair(&self) -> Pair {
        Pair { token: self.value("form_token"), key: self.value("idempotency_key") }
    }

    /// The fields that the page complains of, as it names them.
    pub fn faults(&self) -> Vec<&str> {
        self.text.split("data-field=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
    }

    #[track_caller]
    pub fn says(&self, status: u16, words: &str) -> &Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        assert!(self.text.contains(words), "no «{words}» in {}", self.text);
        self
    }
}
