//! Every setting as it is given: a flag, or the environment variable it is named after. Still text here, because an
//! empty one counts as not set, and because the message about a bad one is ours: one line, without secrets.

use std::ffi::OsString;

use clap::{Args, Command};

macro_rules! settings {
    ($($(#[doc = $help:literal])+ $field:ident: $name:ident = $env:literal ($value:literal $(, $attribute:ident = $set:expr)*);)+) => {
        /// The environment names of the settings; messages use them too.
        pub mod name {
            $(#[doc = concat!("`", $env, "`")] pub const $name: &str = $env;)+
        }

        /// The settings as given, unchecked.
        #[derive(Args, Default)]
        #[command(next_help_heading = "Settings")]
        pub struct Settings {
            $(
                $(#[doc = $help])+
                #[arg(long, env = $env, hide_env_values = true, global = true, value_name = $value $(, $attribute = $set)*)]
                pub $field: Option<OsString>,
            )+
            /// Forbid changes of the schema: it has to be up to date
            #[arg(long, global = true)]
            pub no_migrate: bool,
        }
    };
}

settings! {
    /// sqlite://PATH or postgres://… [default: sqlite://data/oncegate.db]
    database_url: DATABASE_URL = "DATABASE_URL" ("URL");
    /// memory://, redis://… or rediss://…; several nodes with ?cluster=true: Redis Cluster [default: memory://]
    redis_url: REDIS_URL = "REDIS_URL" ("URL");
    /// Where buyers and API clients come in; port 0 picks a free one [default: 127.0.0.1:3000]
    listen: LISTEN = "ONCEGATE_LISTEN" ("ADDR");
    /// Where operators come in, for /metrics [default: 127.0.0.1:3001]
    ops_listen: OPS_LISTEN = "ONCEGATE_OPS_LISTEN" ("ADDR");
    /// Own origin behind a proxy; https makes cookies Secure [default: none]
    public_url: PUBLIC_URL = "ONCEGATE_PUBLIC_URL" ("ORIGIN");
    /// Life of a form token [default: 30m]
    form_token_ttl: FORM_TOKEN_TTL = "ONCEGATE_FORM_TOKEN_TTL" ("DURATION");
    /// How long an answer is replayed [default: 24h]
    key_ttl: KEY_TTL = "ONCEGATE_KEY_TTL" ("DURATION");
    /// How long a claim is honoured without an outcome, at least 1s [default: 30s]
    lease: LEASE = "ONCEGATE_LEASE" ("DURATION");
    /// How long a second submission of a form waits for the first [default: 2s]
    form_wait: FORM_WAIT = "ONCEGATE_FORM_WAIT" ("DURATION");
    /// How long a second API request waits for the first [default: 0s]
    api_wait: API_WAIT = "ONCEGATE_API_WAIT" ("DURATION");
    /// How long after an order the same content again is asked about; 0s is off [default: 2m]
    repeat_notice: REPEAT_NOTICE = "ONCEGATE_REPEAT_NOTICE" ("DURATION");
    /// Orders that may wait to be placed; one more is answered 503 [default: 1024]
    queue: QUEUE = "ONCEGATE_QUEUE" ("N");
    /// Pause between sweeps; 0s: none in this process [default: 5m]
    sweep_interval: SWEEP_INTERVAL = "ONCEGATE_SWEEP_INTERVAL" ("DURATION");
    /// An order still pending after this is cancelled [default: 30m]
    payment_window: PAYMENT_WINDOW = "ONCEGATE_PAYMENT_WINDOW" ("DURATION");
    /// Minor units given to a new account [default: 100000 with SQLite, else 0]
    opening_balance: OPENING_BALANCE = "ONCEGATE_OPENING_BALANCE" ("N");
    /// Put the demo catalogue in where products are missing [default: true with SQLite, else false]
    demo: DEMO = "ONCEGATE_DEMO" ("BOOL", num_args = 0..=1, default_missing_value = "true");
    /// The page /try, which plays retries against the running service [default: true with SQLite, else false]
    try_page: TRY_PAGE = "ONCEGATE_TRY_PAGE" ("BOOL", num_args = 0..=1, default_missing_value = "true");
    /// Signs the session cookie, at least 32 bytes [default: made once with SQLite; PostgreSQL requires it]
    cookie_secret: COOKIE_SECRET = "ONCEGATE_COOKIE_SECRET" ("SECRET");
    /// Signs and verifies bearer tokens (HS256), at least 32 bytes [default: made once with SQLite; PostgreSQL
    /// requires it or the public key]
    jwt_secret: JWT_SECRET = "ONCEGATE_JWT_SECRET" ("SECRET");
    /// Verifies bearer tokens (RS256, ES256, EdDSA): PEM text, or a path to it [default: none]
    jwt_public_key: JWT_PUBLIC_KEY = "ONCEGATE_JWT_PUBLIC_KEY" ("PEM");
    /// The payment provider; without it card payment is not offered [default: none]
    gateway_url: GATEWAY_URL = "ONCEGATE_GATEWAY_URL" ("URL");
    /// What it knows this shop by [default: none]
    gateway_key: GATEWAY_KEY = "ONCEGATE_GATEWAY_KEY" ("SECRET");
    /// What it signs its callbacks with [default: none]
    gateway_webhook_secret: GATEWAY_WEBHOOK_SECRET = "ONCEGATE_GATEWAY_WEBHOOK_SECRET" ("SECRET");
    /// A level, or a list such as info,oncegate=debug [default: info]
    log: LOG = "ONCEGATE_LOG" ("FILTER");
    /// text or json [default: text]
    log_format: LOG_FORMAT = "ONCEGATE_LOG_FORMAT" ("FORMAT");
}

/// The names among these that look like settings of ours and are none: a misspelt setting would otherwise be
/// passed over in silence.
pub fn misspelt(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let command = Settings::augment_args(Command::new("settings"));
    let known: Vec<_> = command.get_arguments().filter_map(|a| a.get_env()).collect();
    names
        .filter(|n| !known.contains(&n.as_os_str()))
        .filter_map(|n| n.into_string().ok().filter(|n| n.starts_with("ONCEGATE_")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_setting_is_found_and_a_foreign_one_is_not() {
        let given = ["ONCEGATE_LEESE", "ONCEGATE_LEASE", "DATABASE_URL", "PATH"].map(OsString::from);
        assert_eq!(misspelt(given.into_iter()), ["ONCEGATE_LEESE"]);
    }
}
