//! From settings as given to settings that fit, or the one line that says which does not.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use secrecy::SecretBox;

use super::settings::{Settings, name};
use super::{Config, ConfigError, Database, Gateway, secrets, url};

/// The longest duration that is taken: ten years. It keeps sums with a clock far from any type's end.
pub const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// The longest a duplicate may be made to wait; proxies give up about then.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The shortest lease: half a second more or less between two machines must not matter.
const SHORTEST_LEASE: Duration = Duration::from_secs(1);
/// The shortest time to live.
const SHORTEST_TTL: Duration = Duration::from_millis(1);
/// The most orders that may be allowed to wait (each takes a few kilobytes).
const LONGEST_QUEUE: u64 = 1_000_000;
/// The largest opening balance, as large as the largest total.
const LARGEST_BALANCE: u64 = 1_000_000_000_000;
/// The most characters of a bad value that are shown.
const LONGEST_SHOWN: usize = 200;
/// What a new account gets in the embedded default, so that a newcomer can order at once.
const DEMO_BALANCE: u64 = 100_000;

/// A setting that does not fit.
pub(super) fn bad(name: &'static str, given: &str, allowed: &str) -> ConfigError {
    ConfigError::Bad { name, given: given.to_owned(), allowed: allowed.to_owned() }
}

/// A setting that is needed here.
pub(super) fn missing(name: &'static str, allowed: &str) -> ConfigError {
    bad(name, "is not set", allowed)
}

/// The text of a setting; one that is empty is not set.
pub(super) fn text<'a>(name: &'static str, given: Option<&'a OsString>) -> Result<Option<&'a str>, ConfigError> {
    let Some(given) = given.filter(|g| !g.is_empty()) else { return Ok(None) };
    let Some(text) = given.to_str() else { return Err(bad(name, "is not UTF-8 (not shown)", "UTF-8 text")) };
    Ok(Some(text))
}

/// A setting read by `read`, which answers `None` when it does not fit.
fn value<T>(
    name: &'static str,
    given: Option<&OsString>,
    allowed: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, ConfigError> {
    let Some(given) = text(name, given)? else { return Ok(None) };
    let shown: String = given.chars().take(LONGEST_SHOWN).collect();
    read(given).map(Some).ok_or_else(|| bad(name, &format!("is {shown:?}"), allowed))
}

/// A setting that is a URL: shown without user, password and query.
fn url_value<T>(
    name: &'static str,
    given: Option<&OsString>,
    allowed: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, ConfigError> {
    let Some(given) = text(name, given)? else { return Ok(None) };
    read(given).map(Some).ok_or_else(|| bad(name, &format!("is {:?}", url::redact(given)), allowed))
}

/// Digits and one of the units `ms`, `s`, `m`, `h`: humantime takes more forms ("1h 30min", "2 months"), which would
/// be a promise.
pub fn duration(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let usable = unit.len() < text.len() && matches!(unit, "ms" | "s" | "m" | "h");
    humantime::parse_duration(text).ok().filter(|_| usable)
}

fn duration_between(
    name: &'static str,
    given: Option<&OsString>,
    range: std::ops::RangeInclusive<Duration>,
    default: Duration,
) -> Result<Duration, ConfigError> {
    let allowed = format!(
        "a duration such as 250ms, 30s, 5m or 24h, from {} to {}",
        humantime::format_duration(*range.start()),
        if *range.end() == LONGEST {
            "87600h".to_owned()
        } else {
            humantime::format_duration(*range.end()).to_string()
        },
    );
    let read = value(name, given, &allowed, |text| duration(text).filter(|d| range.contains(d)))?;
    Ok(read.unwrap_or(default))
}

/// A whole number in digits only (Rust's own parser would take a plus sign).
fn number(text: &str, range: std::ops::RangeInclusive<u64>) -> Option<u64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|n| digits && range.contains(n))
}

fn number_between(
    name: &'static str,
    given: Option<&OsString>,
    range: std::ops::RangeInclusive<u64>,
    default: u64,
) -> Result<u64, ConfigError> {
    let allowed = format!("a whole number from {} to {}", range.start(), range.end());
    Ok(value(name, given, &allowed, |text| number(text, range.clone()))?.unwrap_or(default))
}

fn truth(name: &'static str, given: Option<&OsString>, default: bool) -> Result<bool, ConfigError> {
    Ok(value(name, given, "true or false", |text| text.parse().ok())?.unwrap_or(default))
}

fn address(name: &'static str, given: Option<&OsString>, default_port: u16) -> Result<SocketAddr, ConfigError> {
    const ALLOWED: &str = "an IP address and a port such as 127.0.0.1:3000, 0.0.0.0:3000 or [::1]:3000";
    let default = SocketAddr::from(([127, 0, 0, 1], default_port));
    Ok(value(name, given, ALLOWED, |text| text.parse().ok())?.unwrap_or(default))
}

/// The database alone, for commands that need nothing else.
///
/// # Errors
/// When `DATABASE_URL` does not fit.
pub fn database(settings: &Settings) -> Result<Database, ConfigError> {
    let read = url_value(name::DATABASE_URL, settings.database_url.as_ref(), url::DATABASE_FORMS, url::database)?;
    Ok(read.unwrap_or_else(|| Database::Sqlite("data/oncegate.db".into())))
}

/// `ONCEGATE_PAYMENT_WINDOW` alone, for a sweep by hand.
///
/// # Errors
/// When it does not fit.
pub fn payment_window(settings: &Settings) -> Result<Duration, ConfigError> {
    let half_an_hour = Duration::from_secs(30 * 60);
    duration_between(name::PAYMENT_WINDOW, settings.payment_window.as_ref(), SHORTEST_TTL..=LONGEST, half_an_hour)
}

fn gateway(settings: &Settings) -> Result<Option<Gateway>, ConfigError> {
    let address = url_value(name::GATEWAY_URL, settings.gateway_url.as_ref(), url::GATEWAY_FORMS, url::gateway)?;
    let key = text(name::GATEWAY_KEY, settings.gateway_key.as_ref())?;
    // It is sent in a header: with anything else in it no request could ever be made.
    if key.is_some_and(|key| !key.bytes().all(|b| b.is_ascii_graphic())) {
        return Err(bad(name::GATEWAY_KEY, "has other characters (not shown)", "visible ASCII, without a line break"));
    }
    let webhook_secret = text(name::GATEWAY_WEBHOOK_SECRET, settings.gateway_webhook_secret.as_ref())?;
    let absent = match (address, key, webhook_secret) {
        (None, None, None) => return Ok(None),
        (Some(url), Some(key), Some(webhook_secret)) => {
            let secret = |text: &str| SecretBox::new(Box::new(text.to_owned()));
            return Ok(Some(Gateway { url, key: secret(key), webhook_secret: secret(webhook_secret) }));
        }
        (None, ..) => name::GATEWAY_URL,
        (_, None, _) => name::GATEWAY_KEY,
        (.., None) => name::GATEWAY_WEBHOOK_SECRET,
    };
    Err(missing(absent, "the three ONCEGATE_GATEWAY_… settings together, or none of them"))
}

impl Settings {
    /// `ONCEGATE_LOG`, unchecked.
    ///
    /// # Errors
    /// When it is not UTF-8.
    pub fn log_filter(&self) -> Result<Option<&str>, ConfigError> {
        text(name::LOG, self.log.as_ref())
    }

    /// Whether `ONCEGATE_LOG_FORMAT` is `json`.
    ///
    /// # Errors
    /// When it is neither `json` nor `text`.
    pub fn log_is_json(&self) -> Result<bool, ConfigError> {
        let read = |format: &str| matches!(format, "text" | "json").then_some(format == "json");
        Ok(value(name::LOG_FORMAT, self.log_format.as_ref(), "text or json", read)?.unwrap_or(false))
    }
}

/// Reads all settings. With SQLite, secrets that are not set are made and kept beside the database file.
///
/// # Errors
/// The first setting that does not fit, or that the secrets cannot be kept.
pub fn config(settings: &Settings) -> Result<Config, ConfigError> {
    let s = settings;
    let database = database(s)?;
    let embedded = matches!(database, Database::Sqlite(_));
    let ttl = SHORTEST_TTL..=LONGEST;
    let from_zero = Duration::ZERO..=LONGEST;
    let wait = Duration::ZERO..=LONGEST_WAIT;
    let minutes = |n: u64| Duration::from_secs(n * 60);
    let balance = if embedded { DEMO_BALANCE } else { 0 };
    let (listen, ops_listen) = addresses(s)?;
    Ok(Config {
        redis: url_value(name::REDIS_URL, s.redis_url.as_ref(), url::REDIS_FORMS, url::redis)?
            .unwrap_or(super::Redis::Memory),
        listen,
        ops_listen,
        public_origin: url_value(name::PUBLIC_URL, s.public_url.as_ref(), url::ORIGIN_FORMS, url::origin)?,
        form_token_ttl: duration_between(name::FORM_TOKEN_TTL, s.form_token_ttl.as_ref(), ttl.clone(), minutes(30))?,
        key_ttl: duration_between(name::KEY_TTL, s.key_ttl.as_ref(), ttl, minutes(24 * 60))?,
        lease: duration_between(name::LEASE, s.lease.as_ref(), SHORTEST_LEASE..=LONGEST, Duration::from_secs(30))?,
        form_wait: duration_between(name::FORM_WAIT, s.form_wait.as_ref(), wait.clone(), Duration::from_secs(2))?,
        api_wait: duration_between(name::API_WAIT, s.api_wait.as_ref(), wait, Duration::ZERO)?,
        repeat_notice: duration_between(name::REPEAT_NOTICE, s.repeat_notice.as_ref(), from_zero.clone(), minutes(2))?,
        queue: usize::try_from(number_between(name::QUEUE, s.queue.as_ref(), 1..=LONGEST_QUEUE, 1024)?)
            .expect("within a million"),
        sweep_interval: duration_between(name::SWEEP_INTERVAL, s.sweep_interval.as_ref(), from_zero, minutes(5))?,
        payment_window: payment_window(s)?,
        opening_balance: number_between(
            name::OPENING_BALANCE,
            s.opening_balance.as_ref(),
            0..=LARGEST_BALANCE,
            balance,
        )?
        .try_into()
        .expect("within 10^12"),
        demo: truth(name::DEMO, s.demo.as_ref(), embedded)?,
        try_page: truth(name::TRY_PAGE, s.try_page.as_ref(), embedded)?,
        migrate: !s.no_migrate,
        gateway: gateway(s)?,
        // Last, because these may make files: settings that do not fit leave nothing behind.
        cookie_secret: secrets::cookie(s, &database)?,
        jwt: secrets::jwt(s, &database)?,
        database,
    })
}

fn addresses(s: &Settings) -> Result<(SocketAddr, SocketAddr), ConfigError> {
    let listen = address(name::LISTEN, s.listen.as_ref(), 3000)?;
    let ops = address(name::OPS_LISTEN, s.ops_listen.as_ref(), 3001)?;
    if ops == listen && ops.port() != 0 {
        return Err(bad(name::OPS_LISTEN, &format!("is \"{ops}\", as ONCEGATE_LISTEN"), "another address or port"));
    }
    Ok((listen, ops))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_digits_and_one_unit() {
        for (text, millis) in [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("24h", 86_400_000), ("0s", 0)] {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "s", "1h 30m", "1.5h", "-1s", "+1s", "5 s", " 5s", "1d", "5M", "99999999999999999999h"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn a_number_is_digits_within_its_limits() {
        assert_eq!(number("1024", 1..=2000), Some(1024));
        for text in ["", "+5", "-5", "5.0", "1e3", "0", "2001", " 5", "٣"] {
            assert_eq!(number(text, 1..=2000), None, "{text}");
        }
    }
}
