//! Every setting: name, default, reason, cross-checks. Secrets cannot be printed.

use std::net::SocketAddr;
use std::time::Duration;

use secrecy::SecretBox;

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

/// A URL whose password is left out when it is printed.
#[derive(Clone, PartialEq, Eq)]
pub struct RedactedUrl(String);

impl RedactedUrl {
    /// Keeps the URL.
    #[must_use]
    pub fn new(url: String) -> Self {
        Self(url)
    }

    /// The whole URL, for the client that connects.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for RedactedUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0.find("://"), self.0.rfind('@')) {
            (Some(scheme), Some(at)) if scheme < at => {
                write!(f, "{}://***@{}", &self.0[..scheme], &self.0[at + 1..])
            }
            _ => f.write_str(&self.0),
        }
    }
}

impl std::fmt::Debug for RedactedUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
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
