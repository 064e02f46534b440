//! `token`: a bearer token for the API, signed with the secret of the service on the same settings.

use clap::Args;
use secrecy::ExposeSecret;

use super::{Failure, say};
use crate::api::bearer;
use crate::config::{self, JwtKey, Settings, name};
use crate::order::values::Subject;

/// What the token shall say.
#[derive(Args)]
pub(super) struct Wanted {
    /// Who the caller is
    #[arg(long, value_name = "NAME")]
    sub: String,
    /// What the caller may do beyond its own account
    #[arg(long, value_parser = ["operator"])]
    role: Option<String>,
    /// How long it is valid
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    ttl: String,
}

/// Prints the token, alone on its line.
pub(super) fn print(settings: &Settings, wanted: &Wanted) -> Result<(), Failure> {
    let Wanted { sub, role, ttl } = wanted;
    let bad = |flag, given: &str, allowed| Failure::Usage(format!("--{flag} is {given:?}; allowed: {allowed}"));
    if Subject::parse(&format!("client:{sub}")).is_none() {
        return Err(bad("sub", sub, "1 to 248 characters, none of them a control character"));
    }
    let ttl = config::duration(ttl)
        .filter(|d| (1..=config::LONGEST.as_secs()).contains(&d.as_secs()))
        .ok_or_else(|| bad("ttl", ttl, "a duration such as 30s, 5m or 24h, from 1s to 87600h"))?;
    let JwtKey::Secret(secret) = JwtKey::read(settings, &config::database(settings)?)? else {
        let only = format!("{} is set: it verifies tokens and cannot sign them", name::JWT_PUBLIC_KEY);
        return Err(Failure::Usage(format!("{only}; allowed: {}", name::JWT_SECRET)));
    };
    let token = bearer::issue(secret.expose_secret(), sub, role.as_deref(), ttl);
    say(&token.map_err(|e| Failure::Failed(format!("cannot sign the token: {e}")))?);
    Ok(())
}
