//! The settings that are URLs, and how one is printed without what must stay secret in it.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use url::Url;

use super::{Database, Redis};

/// What `DATABASE_URL` may be.
pub(super) const DATABASE_FORMS: &str = "sqlite://PATH (a file: one in memory is not shared by the connections and \
    forgets orders) or postgres://USER:PASSWORD@HOST/DATABASE";
/// What `REDIS_URL` may be.
pub(super) const REDIS_FORMS: &str = "memory://, redis://HOST:PORT/N, rediss://HOST:PORT/N, or for Redis Cluster \
    redis://HOST:PORT,HOST:PORT?cluster=true";
/// What `ONCEGATE_PUBLIC_URL` may be.
pub(super) const ORIGIN_FORMS: &str = "an origin such as https://shop.example, with nothing behind the host and port";
/// What `ONCEGATE_GATEWAY_URL` may be.
pub(super) const GATEWAY_FORMS: &str = "an http:// or https:// URL without user, query or fragment";

/// A URL whose user, password and query are left out when it is printed.
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

impl fmt::Display for RedactedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact(&self.0))
    }
}

impl fmt::Debug for RedactedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The text without user, password and query. It also meets text that is no URL, and a password may hold any
/// character: where it is not plain which part is the password, only the scheme is left.
pub(super) fn redact(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://").filter(|(s, _)| is_scheme(s)) else {
        return if text.contains([':', '@', '?']) { "***".to_owned() } else { text.to_owned() };
    };
    let (place, query) = rest.split_once(['?', '#']).map_or((rest, ""), |(place, _)| (place, "?***"));
    match (rest.matches('@').count(), place.split_once('@')) {
        (0, _) if has_plain_port(place) => format!("{scheme}://{place}{query}"),
        (1, Some((_, place))) => format!("{scheme}://***@{place}{query}"),
        _ => format!("{scheme}://***"),
    }
}

fn is_scheme(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

/// Whether all that follows a colon in the hosts is a port, not the password of somebody who forgot the host.
fn has_plain_port(place: &str) -> bool {
    let hosts = place.split('/').next().unwrap_or_default();
    hosts.split(',').all(|host| {
        let host = host.strip_prefix('[').and_then(|h| h.split_once(']')).map_or(host, |(_, behind)| behind);
        host.split_once(':').is_none_or(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Reads `DATABASE_URL`.
pub(super) fn database(text: &str) -> Option<Database> {
    if let Some(path) = text.strip_prefix("sqlite://") {
        // sqlx needs this query to make the file; we always make it.
        let path = percent_decode_str(path.strip_suffix("?mode=rwc").unwrap_or(path)).decode_utf8().ok()?;
        let is_file = !path.is_empty() && !path.starts_with(':') && !path.ends_with('/') && !path.contains(['?', '\0']);
        return is_file.then(|| Database::Sqlite(PathBuf::from(path.into_owned())));
    }
    let url = Url::parse(text).ok()?;
    matches!(url.scheme(), "postgres" | "postgresql").then(|| Database::Postgres(RedactedUrl::new(text.to_owned())))
}

/// Reads `REDIS_URL`.
pub(super) fn redis(text: &str) -> Option<Redis> {
    if matches!(text, "memory://" | "memory:") {
        return Some(Redis::Memory);
    }
    let mut cluster = false;
    let mut nodes: Vec<Url> = Vec::new();
    for part in text.split(',') {
        let mut node = match nodes.first() {
            // The nodes of a cluster share scheme, user and password, so only the first has to name them.
            Some(first) if !part.contains("://") => like(first, part)?,
            _ => Url::parse(part).ok()?,
        };
        let usable = matches!(node.scheme(), "redis" | "rediss") && node.has_host() && node.fragment().is_none();
        let number = node.path().trim_start_matches('/');
        if !usable || !(number.is_empty() || number.parse::<u16>().is_ok()) {
            return None;
        }
        cluster |= take_cluster(&mut node)?;
        nodes.push(node);
    }
    if !cluster {
        let [node] = nodes.as_slice() else { return None };
        return Some(Redis::Single(RedactedUrl::new(node.to_string())));
    }
    // A cluster has one numbered database, 0.
    let one_database = nodes.iter().all(|n| matches!(n.path(), "" | "/" | "/0"));
    one_database.then(|| Redis::Cluster(nodes.into_iter().map(|n| RedactedUrl::new(n.into())).collect()))
}

fn like(first: &Url, host: &str) -> Option<Url> {
    let mut node = Url::parse(&format!("{}://{host}", first.scheme())).ok()?;
    if node.username().is_empty() && node.password().is_none() {
        node.set_username(first.username()).ok()?;
        node.set_password(first.password()).ok()?;
    }
    Some(node)
}

/// Takes `cluster=…`, which is ours, out of the query; the client sees the rest.
fn take_cluster(node: &mut Url) -> Option<bool> {
    let (ours, rest): (Vec<_>, Vec<_>) = node.query_pairs().into_owned().partition(|(name, _)| name == "cluster");
    node.set_query(None);
    if !rest.is_empty() {
        node.query_pairs_mut().extend_pairs(rest);
    }
    match ours.as_slice() {
        [] => Some(false),
        [(_, value)] => value.parse().ok(),
        _ => None,
    }
}

/// Reads `ONCEGATE_PUBLIC_URL` as browsers write an `Origin`: small letters, no default port.
pub(super) fn origin(text: &str) -> Option<String> {
    let url = web(text)?;
    (url.path() == "/").then(|| url.origin().ascii_serialization())
}

/// Reads `ONCEGATE_GATEWAY_URL`, to which paths are added.
pub(super) fn gateway(text: &str) -> Option<String> {
    web(text).map(|url| url.as_str().trim_end_matches('/').to_owned())
}

fn web(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
        && url.has_host();
    (matches!(url.scheme(), "http" | "https") && plain).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_of_a_url_prints_its_password() {
        for url in [
            "postgres://shop:hunter2@db/shop",
            "postgres://shop:hun@ter2@db/shop",
            "postgres://shop:hunter2?@db/shop",
            "postgres://shop:hunter2/x@db/shop",
            "postgres://shop:hunter2",
            "postgres://db/shop?password=hunter2",
            "postgres://shop@db/shop?password=x@hunter2",
            "postgres://db/shop?password=x@hunter2",
            "postgres:shop:hunter2@db",
            "shop:hunter2@db",
            "redis://:hunter2@db:6379,db2:6379?cluster=true",
            "rediss://h:1?password=hunter2",
            "://x:hunter2@y",
        ] {
            let shown = redact(url);
            assert!(!shown.contains("unter2") && !shown.contains("ter2"), "{url} is shown as {shown}");
        }
    }

    #[test]
    fn a_url_without_a_secret_is_printed_whole() {
        for url in ["postgres://db:5432/shop", "redis://[::1]:6379/0", "redis://a:1,b:2", "memory://", "hello"] {
            assert_eq!(redact(url), url);
        }
        assert_eq!(redact("postgres://shop:x@db:5432/shop"), "postgres://***@db:5432/shop");
    }

    #[test]
    fn a_database_is_a_file_or_postgresql() {
        assert_eq!(database("sqlite://data/x.db"), Some(Database::Sqlite("data/x.db".into())));
        assert_eq!(database("sqlite:///var/x.db?mode=rwc"), Some(Database::Sqlite("/var/x.db".into())));
        assert_eq!(database("sqlite://a%20b.db"), Some(Database::Sqlite("a b.db".into())));
        for url in ["postgres://db/x", "postgresql://u:p@db:5432/x?sslmode=require"] {
            assert_eq!(database(url), Some(Database::Postgres(RedactedUrl::new(url.to_owned()))));
        }
        for url in [
            "sqlite::memory:",
            "sqlite://:memory:",
            "sqlite://",
            "sqlite://dir/",
            "sqlite://x?mode=memory",
            "mysql://db/x",
            "postgres//db",
            "postgres://db:port/x",
            "data/x.db",
        ] {
            assert_eq!(database(url), None, "{url}");
        }
    }

    #[test]
    fn a_redis_is_memory_one_node_or_a_cluster() {
        let url = |u: &str| RedactedUrl::new(u.to_owned());
        assert_eq!(redis("memory://"), Some(Redis::Memory));
        assert_eq!(redis("redis://a:1/3"), Some(Redis::Single(url("redis://a:1/3"))));
        assert_eq!(redis("rediss://u:p@a:1?cluster=false"), Some(Redis::Single(url("rediss://u:p@a:1"))));
        assert_eq!(redis("redis://a:1/?cluster=true"), Some(Redis::Cluster(vec![url("redis://a:1/")])));
        let both = Some(Redis::Cluster(vec![url("redis://u:p@a:1"), url("redis://u:p@b:2")]));
        assert_eq!(redis("redis://u:p@a:1,b:2?cluster=true"), both);
        assert_eq!(redis("redis://u:p@a:1,redis://u:p@b:2?cluster=true"), both);
        for bad in ["redis://a,b", "redis://", "redis://a/x", "redis://a/1?cluster=true", "http://a", "a:6379", ""] {
            assert_eq!(redis(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_origin_has_nothing_behind_its_port() {
        assert_eq!(origin("https://Shop.Example:443/").as_deref(), Some("https://shop.example"));
        assert_eq!(origin("http://127.0.0.1:3000").as_deref(), Some("http://127.0.0.1:3000"));
        for bad in ["https://shop.example/x", "https://u@shop.example", "https://shop.example?x", "ftp://x", "shop"] {
            assert_eq!(origin(bad), None, "{bad}");
        }
    }
}
