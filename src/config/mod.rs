//! Every setting: name, default, reason, cross-checks. Secrets cannot be printed.
//!
//! [`Settings`] is what was given, [`Config`] what a service runs with. A setting that is empty counts as not set.

mod read;
mod secrets;
mod settings;
mod url;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use secrecy::SecretBox;
use thiserror::Error;

pub use read::{LONGEST, database, duration, payment_window};
pub use secrets::SHORTEST_SECRET;
pub use settings::{Settings, misspelt, name};
pub use url::RedactedUrl;

/// Why there is no [`Config`].
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A setting does not fit: which, what was given (never a secret), what is allowed. One line.
    #[error("{name} {given}; allowed: {allowed}")]
    Bad {
        /// Its environment name.
        name: &'static str,
        /// What was given, as the rest of a sentence.
        given: String,
        /// What would fit.
        allowed: String,
    },
    /// The settings fit, but a file of theirs cannot be had.
    #[error("{0}")]
    Io(String),
}

/// The settings of a running service, all checked.
#[derive(Debug)]
pub struct Config {
    /// `DATABASE_URL`.
    pub database: Database,
    /// `REDIS_URL`.
    pub redis: Redis,
    /// `ONCEGATE_LISTEN`.
    pub listen: SocketAddr,
    /// `ONCEGATE_OPS_LISTEN`.
    pub ops_listen: SocketAddr,
    /// `ONCEGATE_PUBLIC_URL` as an origin: scheme, host and port, nothing behind.
    pub public_origin: Option<String>,
    /// `ONCEGATE_FORM_TOKEN_TTL`.
    pub form_token_ttl: Duration,
    /// `ONCEGATE_KEY_TTL`.
    pub key_ttl: Duration,
    /// `ONCEGATE_LEASE`.
    pub lease: Duration,
    /// `ONCEGATE_FORM_WAIT`.
    pub form_wait: Duration,
    /// `ONCEGATE_API_WAIT`.
    pub api_wait: Duration,
    /// `ONCEGATE_REPEAT_NOTICE`; zero is off.
    pub repeat_notice: Duration,
    /// `ONCEGATE_QUEUE`.
    pub queue: usize,
    /// `ONCEGATE_SWEEP_INTERVAL`; zero: no sweeper in this process.
    pub sweep_interval: Duration,
    /// `ONCEGATE_PAYMENT_WINDOW`.
    pub payment_window: Duration,
    /// `ONCEGATE_OPENING_BALANCE`, minor units.
    pub opening_balance: i64,
    /// `ONCEGATE_DEMO`.
    pub demo: bool,
    /// `ONCEGATE_TRY_PAGE`.
    pub try_page: bool,
    /// `--no-migrate` absent.
    pub migrate: bool,
    /// `ONCEGATE_COOKIE_SECRET`: signs the session cookie.
    pub cookie_secret: SecretBox<Vec<u8>>,
    /// What bearer tokens are checked with.
    pub jwt: JwtKey,
    /// The payment provider, when card payment is offered.
    pub gateway: Option<Gateway>,
}

/// Where the data is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// `sqlite://PATH`.
    Sqlite(std::path::PathBuf),
    /// `postgres://…` (may hold a password: never printed whole).
    Postgres(RedactedUrl),
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "SQLite in {}", path.display()),
            Self::Postgres(url) => write!(f, "{url}"),
        }
    }
}

/// Where the tokens and the queue are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redis {
    /// `memory://`: in this process.
    Memory,
    /// One node.
    Single(RedactedUrl),
    /// Redis Cluster, by some of its nodes.
    Cluster(Vec<RedactedUrl>),
}

impl fmt::Display for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("tokens and queue in this process"),
            Self::Single(url) => write!(f, "{url}"),
            Self::Cluster(nodes) => {
                let nodes: Vec<_> = nodes.iter().map(RedactedUrl::to_string).collect();
                write!(f, "Redis Cluster at {}", nodes.join(", "))
            }
        }
    }
}

/// What bearer tokens are verified with.
#[derive(Debug)]
pub enum JwtKey {
    /// HS256 with these bytes as they are, at least 32.
    Secret(SecretBox<Vec<u8>>),
    /// RS256, ES256 or EdDSA by PEM text: this process can verify, not issue.
    PublicPem(String),
}

impl JwtKey {
    /// Reads the key alone, for a command that needs nothing else.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn read(settings: &Settings, database: &Database) -> Result<Self, ConfigError> {
        secrets::jwt(settings, database)
    }
}

/// How the payment provider is reached.
#[derive(Debug)]
pub struct Gateway {
    /// `ONCEGATE_GATEWAY_URL`, without a slash at the end.
    pub url: String,
    /// `ONCEGATE_GATEWAY_KEY`.
    pub key: SecretBox<String>,
    /// `ONCEGATE_GATEWAY_WEBHOOK_SECRET`.
    pub webhook_secret: SecretBox<String>,
}

/// The longest a caller waits for a silent dependency, whatever the lease.
const LONGEST_WORK: Duration = Duration::from_secs(10);

impl Config {
    /// Reads all settings. With SQLite, secrets that are not set are made and kept beside the database file.
    ///
    /// # Errors
    /// The first setting that does not fit, or that a secret cannot be kept.
    pub fn read(settings: &Settings) -> Result<Self, ConfigError> {
        read::config(settings)
    }
    /// How long a caller waits for its work before it is answered 503: 10 s or two thirds of the lease,
    /// whichever is less. The work itself goes on.
    #[must_use]
    pub fn work_deadline(&self) -> Duration {
        LONGEST_WORK.min(self.lease * 2 / 3)
    }

    /// How long the database lets one statement run or wait for a lock: below the work's deadline, so that the
    /// database gives up before the caller does, and the claim is released in time.
    #[must_use]
    pub fn statement_timeout(&self) -> Duration {
        self.work_deadline() * 3 / 4
    }

    /// Whether cookies are only for TLS.
    #[must_use]
    pub fn secure_cookies(&self) -> bool {
        self.public_origin.as_deref().is_some_and(|o| o.starts_with("https://"))
    }
}
