//! `serve`: from the settings to the running service, and what is said on the way.

use std::sync::Arc;

use secrecy::ExposeSecret;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{Failure, database};
use crate::app::App;
use crate::catalogue;
use crate::checkout::desk;
use crate::config::{self, Config, Database, Gateway, Redis, Settings};
use crate::guard::token::Tokens;
use crate::payment::client::Client;
use crate::serve::{self, Listeners};

/// Runs the service until it is told to stop.
pub(super) async fn run(settings: &Settings) -> Result<(), Failure> {
    let stop = stop_on_signal()?;
    let config = Config::read(settings)?;
    introduce(&config);
    // Addresses first: a second service on the same machine ends before it has touched the database.
    let listeners = Listeners::bind(&config).await.map_err(|e| Failure::Failed(e.to_string()))?;
    let app = tokio::select! {
        app = assemble(config) => app?,
        () = stop.cancelled() => return Ok(()),
    };
    serve::run(listeners, app, stop).await;
    Ok(())
}

/// Connects what the service stands on.
async fn assemble(config: Config) -> Result<App, Failure> {
    let store = database::open(&config.database, config.migrate, config.statement_timeout()).await?;
    if config.demo {
        let added = store.add_missing_products(&catalogue::demo()).await;
        added.map_err(|e| database::failure(&config.database, &e))?;
    }
    let tokens = Tokens::connect(&config.redis, config.form_token_ttl).await;
    let writers = match config.database {
        Database::Sqlite(_) => 1,
        Database::Postgres(_) => 2,
    };
    let provider = provider(&config)?;
    let (app, inbox) = App::new(Arc::new(config), store, tokens, provider, crate::api::ANSWERS);
    desk::open(&app, inbox, writers);
    Ok(app)
}

/// The payment provider, if one is set. It gives up before the caller is answered 503, so that its silence is told as such.
fn provider(config: &Config) -> Result<Option<Client>, Failure> {
    let client = |gateway: &Gateway| {
        let key = gateway.key.expose_secret().clone().into();
        Client::new(gateway.url.clone(), key, config.work_deadline() * 3 / 4)
    };
    config.gateway.as_ref().map(client).transpose().map_err(|e| Failure::Failed(format!("cannot speak TLS: {e}")))
}

/// The first line of the log: on what it runs, and what a newcomer has to know about that.
fn introduce(config: &Config) {
    let version = env!("CARGO_PKG_VERSION");
    let (database, redis) = (&config.database, &config.redis);
    match (database, redis) {
        (Database::Sqlite(_), _) => tracing::info!(
            "oncegate {version} on the embedded default: {database}, {redis}; for production set DATABASE_URL \
             (postgres://…), REDIS_URL (redis://…), ONCEGATE_COOKIE_SECRET, ONCEGATE_JWT_SECRET or \
             ONCEGATE_JWT_PUBLIC_KEY, and ONCEGATE_PUBLIC_URL"
        ),
        (Database::Postgres(_), Redis::Memory) => tracing::info!(
            "oncegate {version} on {database}, {redis}: form tokens are known to this process only; for several of \
             them set REDIS_URL"
        ),
        (Database::Postgres(_), _) => tracing::info!("oncegate {version} on {database}, {redis}"),
    }
    for unknown in config::misspelt(std::env::vars_os().map(|(name, _)| name)) {
        tracing::warn!("{unknown} is set, but there is no such setting");
    }
}

/// Cancelled by the first SIGTERM or SIGINT; the second ends the process at once.
pub(super) fn stop_on_signal() -> Result<CancellationToken, Failure> {
    let listen = |kind| signal(kind).map_err(|e| Failure::Failed(format!("cannot listen for signals: {e}")));
    let mut signals = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        let name = either(&mut signals).await.1;
        tracing::info!("{name}: stopping; what was begun is finished first");
        stopped.cancel();
        let (number, name) = either(&mut signals).await;
        tracing::warn!("{name} again: ending at once");
        std::process::exit(128 + number);
    });
    Ok(stop)
}

async fn either((terminate, interrupt): &mut (Signal, Signal)) -> (i32, &'static str) {
    tokio::select! {
        _ = terminate.recv() => (SignalKind::terminate().as_raw_value(), "SIGTERM"),
        _ = interrupt.recv() => (SignalKind::interrupt().as_raw_value(), "SIGINT"),
    }
}
