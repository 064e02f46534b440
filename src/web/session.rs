//! Who a visitor is: a signed cookie, and its record in the *database*, so that neither a restart nor a Redis outage
//! forgets anybody.
//!
//! A session holds a visitor's UUID and the day it was last seen, nothing else: whole-record writes of two requests at once
//! then lose nothing. The day makes one request a day change the session, which is what renews it (tower-sessions
//! writes only what changed). Deliberately absent: log-in and log-out.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::http::HeaderMap;
use axum::http::header::COOKIE as COOKIE_HEADER;
use cookie::Cookie;
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256, Sha512};
use time::OffsetDateTime;
use tokio::time::timeout;
use tower_sessions::cookie::{Key, SameSite};
use tower_sessions::service::SignedCookie;
use tower_sessions::session::{Id, Record};
use tower_sessions::session_store::{Error as SessionError, Result as SessionResult};
use tower_sessions::{Expiry, Session, SessionManagerLayer, SessionStore};
use uuid::Uuid;

use crate::app::App;
use crate::error::{Error, Result};
use crate::order::values::Subject;
use crate::store::{Store, StoreError};

/// The cookie's name.
pub const COOKIE: &str = "oncegate_session";
/// How long a visitor who stays away is remembered.
const INACTIVITY: time::Duration = time::Duration::days(30);
/// Ids are 128 random bits: a second collision in a row means that something else is wrong.
const TRIES: usize = 3;
const VISITOR: &str = "visitor";
const SEEN: &str = "seen";
const SECONDS_A_DAY: i64 = 24 * 60 * 60;

/// The layer that reads and writes the cookie.
#[must_use]
pub fn layer(app: &App) -> SessionManagerLayer<Sessions, SignedCookie> {
    let store = Sessions { store: app.store.clone(), patience: app.config.statement_timeout() };
    SessionManagerLayer::new(store)
        .with_name(COOKIE)
        .with_http_only(true)
        .with_same_site(SameSite::Lax)
        .with_path("/")
        .with_secure(app.config.secure_cookies())
        .with_expiry(Expiry::OnInactivity(INACTIVITY))
        .with_signed(signing_key(app.config.cookie_secret.expose_secret()))
}

/// The cookie's key: exactly the 64 bytes it needs, from a secret of any length, for this purpose alone.
fn signing_key(secret: &[u8]) -> Key {
    Key::from(Sha512::new().chain_update(b"oncegate session cookie\0").chain_update(secret).finalize().as_slice())
}

/// Whether the request came with a session cookie, be it a good one or not.
#[must_use]
pub fn cookie_sent(headers: &HeaderMap) -> bool {
    let texts = headers.get_all(COOKIE_HEADER).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(Cookie::split_parse).flatten().any(|cookie| cookie.name() == COOKIE)
}

/// Who the session belongs to, if it is a known one.
///
/// # Errors
/// `Unavailable` when the database gives no answer: then nobody knows who this is.
pub async fn known(session: &Session) -> Result<Option<Subject>> {
    let Some(visitor) = session.get::<Uuid>(VISITOR).await.map_err(unreadable)? else { return Ok(None) };
    see(session).await?;
    Ok(Some(Subject::visitor(visitor)))
}

/// Who the session belongs to; a new visitor where it is no known one.
///
/// # Errors
/// `Unavailable` when the database gives no answer.
pub async fn known_or_new(session: &Session) -> Result<Subject> {
    match known(session).await? {
        Some(subject) => Ok(subject),
        None => begin(session).await,
    }
}

/// A new visitor, for a session that is no known one.
///
/// # Errors
/// `Unavailable` when the database gives no answer.
pub async fn begin(session: &Session) -> Result<Subject> {
    let visitor = Uuid::new_v4();
    session.insert(VISITOR, visitor).await.map_err(unreadable)?;
    see(session).await?;
    Ok(Subject::visitor(visitor))
}

async fn see(session: &Session) -> Result<()> {
    session.insert(SEEN, OffsetDateTime::now_utc().unix_timestamp() / SECONDS_A_DAY).await.map_err(unreadable)
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreadable(error: tower_sessions::session::Error) -> Error {
    Error::unavailable(&error.to_string())
}

/// tower-sessions' records behind the storage seam. A row's id is the SHA-256 of the session's: a copy of the database
/// holds no session that could be used.
#[derive(Clone)]
pub struct Sessions {
    store: Arc<dyn Store>,
    patience: Duration,
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sessions")
    }
}

impl Sessions {
    async fn bounded<T>(&self, work: impl Future<Output = std::result::Result<T, StoreError>>) -> SessionResult<T> {
        match timeout(self.patience, work).await {
            Ok(outcome) => outcome.map_err(|error| SessionError::Backend(error.to_string())),
            Err(_) => Err(SessionError::Backend("the database is silent".into())),
        }
    }
}

fn row_id(id: &Id) -> String {
    hex::encode(Sha256::digest(id.to_string()))
}

fn encode(record: &Record) -> SessionResult<Vec<u8>> {
    serde_json::to_vec(&record.data).map_err(|error| SessionError::Encode(error.to_string()))
}

#[async_trait]
impl SessionStore for Sessions {
    async fn create(&self, record: &mut Record) -> SessionResult<()> {
        let data = encode(record)?;
        for _ in 0..TRIES {
            if self.bounded(self.store.create_session(&row_id(&record.id), &data, record.expiry_date)).await? {
                return Ok(());
            }
            record.id = Id::default();
        }
        Err(SessionError::Backend("every fresh session id was taken".into()))
    }

    async fn save(&self, record: &Record) -> SessionResult<()> {
        let data = encode(record)?;
        self.bounded(self.store.save_session(&row_id(&record.id), &data, record.expiry_date)).await
    }

    async fn load(&self, id: &Id) -> SessionResult<Option<Record>> {
        let Some(data) = self.bounded(self.store.load_session(&row_id(id))).await? else { return Ok(None) };
        let Ok(data) = serde_json::from_slice(&data) else {
            tracing::warn!("a session's row is damaged; its visitor begins anew");
            return Ok(None);
        };
        // The row's own expiry was judged by the database; tower-sessions sets this one anew before it saves.
        Ok(Some(Record { id: *id, data, expiry_date: OffsetDateTime::now_utc() }))
    }

    async fn delete(&self, id: &Id) -> SessionResult<()> {
        self.bounded(self.store.delete_session(&row_id(id))).await
    }
}
