//! The service without its listeners: an app on a private database, with its desk open.

use std::sync::Arc;
use std::time::Duration;

use oncegate::api;
use oncegate::app::App;
use oncegate::checkout::desk;
use oncegate::config::{Config, Database, JwtKey, Redis};
use oncegate::guard::token::Tokens;
use oncegate::order::Product;
use oncegate::payment::client::Client;
use secrecy::{ExposeSecret, SecretBox};

use super::TestStore;

/// What bearer tokens are signed with.
pub const JWT_SECRET: &[u8] = b"a secret for tests of 32 bytes!!";
/// What an account is opened with, in minor units.
pub const OPENING: i64 = 100_000;

/// An app, and the database under it.
pub struct Shop {
    /// What is tested.
    pub app: App,
    /// Beside it; dropped last.
    pub under: TestStore,
}

impl Shop {
    /// With the settings of the contract and these products.
    pub async fn open(products: &[Product]) -> Self {
        Self::with(products, |_| {}).await
    }

    /// With settings of the test's own.
    pub async fn with(products: &[Product], change: impl FnOnce(&mut Config)) -> Self {
        let under = TestStore::new().await;
        under.store.import_products(products).await.unwrap();
        let mut config = settings();
        change(&mut config);
        let tokens = Tokens::connect(&config.redis, config.form_token_ttl).await;
        let timeout = config.work_deadline() * 3 / 4;
        let provider = config.gateway.as_ref().map(|gateway| {
            let key = gateway.key.expose_secret().clone().into();
            Client::new(gateway.url.clone(), key, timeout).unwrap()
        });
        let (app, inbox) = App::new(Arc::new(config), under.store.clone(), tokens, provider, api::ANSWERS);
        let writers = if under.database.url().starts_with("sqlite:") { 1 } else { 2 };
        desk::open(&app, inbox, writers);
        Self { app, under }
    }
}

fn settings() -> Config {
    let secret = || SecretBox::new(Box::new(JWT_SECRET.to_vec()));
    Config {
        database: Database::Sqlite("unused".into()),
        redis: Redis::Memory,
        listen: ([127, 0, 0, 1], 0).into(),
        ops_listen: ([127, 0, 0, 1], 0).into(),
        public_origin: None,
        form_token_ttl: Duration::from_secs(1800),
        key_ttl: Duration::from_secs(86_400),
        lease: Duration::from_secs(30),
        form_wait: Duration::from_secs(2),
        api_wait: Duration::ZERO,
        repeat_notice: Duration::from_secs(120),
        queue: 1024,
        sweep_interval: Duration::ZERO,
        payment_window: Duration::from_secs(1800),
        opening_balance: OPENING,
        demo: false,
        try_page: false,
        migrate: true,
        cookie_secret: secret(),
        jwt: JwtKey::Secret(secret()),
        gateway: None,
    }
}
