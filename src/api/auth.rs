//! Who calls: the bearer token, checked before anything else is looked at.
//!
//! The algorithm follows from the configured key, never from the token. A token that names an audience (`aud`) is
//! refused, as RFC 7519 asks of whoever does not identify itself with one; there is no setting for it yet. Deliberately
//! absent: any look-up. A token is valid by itself, so a silent database does not turn into a 401.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use jsonwebtoken::crypto::CryptoProvider;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use secrecy::ExposeSecret;
use serde::Deserialize;

use super::failure::Failure;
use crate::config::JwtKey;
use crate::order::values::Subject;

/// How much the clock of whoever issues tokens may differ from ours, in seconds.
const LEEWAY: u64 = 60;
/// What we ask for when nothing was sent (RFC 6750).
const CHALLENGE: &str = r#"Bearer realm="oncegate""#;
/// What we say when a token is no good.
const INVALID_TOKEN: &str = r#"Bearer realm="oncegate", error="invalid_token""#;
/// Length of an uncompressed point of P-256, the curve of ES256.
const P256_POINT: usize = 65;

/// What a token says; `exp` is judged by the rules.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    #[serde(default)]
    role: Option<String>,
}

/// What a caller may do beyond its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nothing: also who names a role that means nothing here.
    Client,
    /// Ships orders.
    Operator,
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// `client:SUB`.
    pub subject: Subject,
    /// From the claim `role`.
    pub role: Role,
}

/// Checks tokens; made once, as reading a key is dear.
pub struct Verifier {
    key: DecodingKey,
    rules: Validation,
}

impl Verifier {
    /// Reads the key; `None` when it cannot be used, or no cryptographic backend was built in: said at the start rather
    /// than by a panic at the first token.
    #[must_use]
    pub fn new(key: &JwtKey) -> Option<Self> {
        CryptoProvider::try_get_default()?;
        let (key, algorithm) = match key {
            JwtKey::Secret(secret) => (DecodingKey::from_secret(secret.expose_secret()).ok()?, Algorithm::HS256),
            JwtKey::PublicPem(pem) => public_key(pem.as_bytes())?,
        };
        let mut rules = Validation::new(algorithm);
        rules.set_required_spec_claims(&["exp", "sub"]);
        rules.validate_nbf = true;
        rules.leeway = LEEWAY;
        Some(Self { key, rules })
    }

    /// Who sent these headers.
    ///
    /// # Errors
    /// `unauthenticated`, when there is no token or none that is valid.
    pub fn caller(&self, headers: &HeaderMap) -> Result<Caller, Failure> {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        let missing = || Failure::unauthenticated("Send one header: Authorization: Bearer TOKEN.", CHALLENGE);
        let invalid = || Failure::unauthenticated("The bearer token is not valid here, or has expired.", INVALID_TOKEN);
        let (Some(line), None) = (lines.next(), lines.next()) else { return Err(missing()) };
        let token = line.to_str().ok().and_then(bearer).ok_or_else(missing)?;
        let claims = jsonwebtoken::decode::<Claims>(token, &self.key, &self.rules).map_err(|_| invalid())?.claims;
        let subject = Subject::parse(&format!("client:{}", claims.sub)).ok_or_else(invalid)?;
        let role = if claims.role.as_deref() == Some("operator") { Role::Operator } else { Role::Client };
        Ok(Caller { subject, role })
    }
}

/// The key and the one algorithm that goes with it.
fn public_key(pem: &[u8]) -> Option<(DecodingKey, Algorithm)> {
    if let Ok(key) = DecodingKey::from_rsa_pem(pem) {
        return Some((key, Algorithm::RS256));
    }
    if let Ok(key) = DecodingKey::from_ed_pem(pem) {
        return Some((key, Algorithm::EdDSA));
    }
    let key = DecodingKey::from_ec_pem(pem).ok()?;
    let p256 = key.try_get_as_bytes().is_ok_and(|point| point.len() == P256_POINT);
    p256.then_some((key, Algorithm::ES256))
}

/// The token behind the scheme, whose case does not matter (RFC 9110).
fn bearer(line: &str) -> Option<&str> {
    let (scheme, token) = line.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains(' ')).then_some(token)
}

/// The layer that lets only callers with a valid token through, and tells the handlers who calls.
pub async fn authenticate(State(verifier): State<Arc<Verifier>>, mut request: Request, next: Next) -> Response {
    match verifier.caller(request.headers()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(failure) => failure.into_response(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use axum::http::HeaderValue;
    use jsonwebtoken::{EncodingKey, Header};
    use secrecy::SecretBox;
    use serde_json::{Value, json};

    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

    pub(in crate::api) fn secret() -> JwtKey {
        JwtKey::Secret(SecretBox::new(Box::new(SECRET.to_vec())))
    }

    fn in_seconds(offset: i64) -> i64 {
        time::OffsetDateTime::now_utc().unix_timestamp() + offset
    }

    fn signed(algorithm: Algorithm, key: &EncodingKey, claims: &Value) -> String {
        jsonwebtoken::encode(&Header::new(algorithm), claims, key).unwrap()
    }

    fn hs256(claims: &Value) -> String {
        signed(Algorithm::HS256, &EncodingKey::from_secret(SECRET).unwrap(), claims)
    }

    /// A token that is valid for the next minute.
    pub(in crate::api) fn token(sub: &str) -> String {
        hs256(&json!({"sub": sub, "exp": in_seconds(60)}))
    }

    fn asks(key: &JwtKey, authorization: &str) -> Result<Caller, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(authorization).unwrap());
        Verifier::new(key).unwrap().caller(&headers)
    }

    fn refused(outcome: Result<Caller, Failure>) -> String {
        let failure = outcome.expect_err("this must not pass");
        assert_eq!(failure.body.status, 401);
        let (name, challenge) = &failure.headers[0];
        assert_eq!(name, "www-authenticate");
        challenge.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_valid_token_names_the_caller() {
        let token = hs256(&json!({"sub": "shop-7", "exp": in_seconds(60)}));
        for scheme in ["Bearer", "bearer", "BEARER"] {
            let caller = asks(&secret(), &format!("{scheme} {token}")).unwrap();
            assert_eq!(caller.subject.as_str(), "client:shop-7");
            assert_eq!(caller.role, Role::Client);
        }
    }

    #[test]
    fn only_the_role_operator_means_something() {
        for (role, expected) in [("operator", Role::Operator), ("Operator", Role::Client), ("admin", Role::Client)] {
            let token = hs256(&json!({"sub": "ops", "exp": in_seconds(60), "role": role}));
            assert_eq!(asks(&secret(), &format!("Bearer {token}")).unwrap().role, expected);
        }
    }

    #[test]
    fn a_header_that_is_no_bearer_token_is_asked_for_one() {
        for line in ["", "Bearer", "Bearer ", "Basic dTpw", "Token abc", "Bearer a b"] {
            assert_eq!(refused(asks(&secret(), line)), CHALLENGE, "{line:?}");
        }
        assert_eq!(refused(Verifier::new(&secret()).unwrap().caller(&HeaderMap::new())), CHALLENGE);
    }

    #[test]
    fn two_authorization_headers_are_refused() {
        let token = format!("Bearer {}", hs256(&json!({"sub": "a", "exp": in_seconds(60)})));
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, HeaderValue::from_str(&token).unwrap());
        headers.append(AUTHORIZATION, HeaderValue::from_str(&token).unwrap());
        refused(Verifier::new(&secret()).unwrap().caller(&headers));
    }

    #[test]
    fn a_token_that_is_expired_unbounded_or_nobodys_is_refused() {
        let long = "x".repeat(249);
        for claims in [
            json!({"sub": "a"}),
            json!({"sub": "a", "exp": in_seconds(-61)}),
            json!({"sub": "a", "exp": "tomorrow"}),
            json!({"sub": "a", "exp": null}),
            json!({"exp": in_seconds(60)}),
            json!({"sub": "", "exp": in_seconds(60)}),
            json!({"sub": 7, "exp": in_seconds(60)}),
            json!({"sub": "line\nbreak", "exp": in_seconds(60)}),
            json!({"sub": long, "exp": in_seconds(60)}),
            json!({"sub": "a", "exp": in_seconds(60), "nbf": in_seconds(120)}),
            json!({"sub": "a", "exp": in_seconds(60), "aud": "another service"}),
            json!({"sub": "a", "exp": in_seconds(60), "role": 1}),
        ] {
            let token = hs256(&claims);
            assert_eq!(refused(asks(&secret(), &format!("Bearer {token}"))), INVALID_TOKEN, "{claims}");
        }
    }

    #[test]
    fn a_minute_of_leeway_is_given_to_clocks() {
        let token = hs256(&json!({"sub": "a", "exp": in_seconds(-50)}));
        assert!(asks(&secret(), &format!("Bearer {token}")).is_ok());
    }

    #[test]
    fn only_the_algorithm_of_the_configured_key_is_taken() {
        let claims = json!({"sub": "a", "exp": in_seconds(60)});
        let key = EncodingKey::from_secret(SECRET).unwrap();
        let other = EncodingKey::from_secret(b"another secret of thirty-two bytes").unwrap();
        let unsigned = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIiwiZXhwIjo5OTk5OTk5OTk5fQ.";
        for token in [
            signed(Algorithm::HS384, &key, &claims),
            signed(Algorithm::HS512, &key, &claims),
            signed(Algorithm::HS256, &other, &claims),
            unsigned.to_owned(),
            "a.b.c".to_owned(),
        ] {
            refused(asks(&secret(), &format!("Bearer {token}")));
        }
    }

    #[test]
    fn each_kind_of_public_key_takes_its_own_algorithm_and_no_other() {
        let claims = json!({"sub": "a", "exp": in_seconds(60)});
        let pairs = [
            (Algorithm::RS256, EncodingKey::from_rsa_pem(keys::RSA).unwrap(), keys::RSA_PUBLIC),
            (Algorithm::ES256, EncodingKey::from_ec_pem(keys::P256).unwrap(), keys::P256_PUBLIC),
            (Algorithm::EdDSA, EncodingKey::from_ed_pem(keys::ED).unwrap(), keys::ED_PUBLIC),
        ];
        for (algorithm, private, public) in &pairs {
            let public = JwtKey::PublicPem((*public).to_owned());
            let token = signed(*algorithm, private, &claims);
            assert!(asks(&public, &format!("Bearer {token}")).is_ok(), "{algorithm:?}");
            for (other, private, _) in pairs.iter().filter(|(other, ..)| other != algorithm) {
                let token = signed(*other, private, &claims);
                refused(asks(&public, &format!("Bearer {token}")));
            }
        }
        let rs512 = signed(Algorithm::RS512, &pairs[0].1, &claims);
        refused(asks(&JwtKey::PublicPem(keys::RSA_PUBLIC.to_owned()), &format!("Bearer {rs512}")));
    }

    #[test]
    fn the_text_of_a_public_key_is_no_secret_to_sign_with() {
        let claims = json!({"sub": "a", "exp": in_seconds(60)});
        let forged = signed(Algorithm::HS256, &EncodingKey::from_secret(keys::RSA_PUBLIC.as_bytes()).unwrap(), &claims);
        refused(asks(&JwtKey::PublicPem(keys::RSA_PUBLIC.to_owned()), &format!("Bearer {forged}")));
    }

    #[test]
    fn what_is_no_public_key_is_told_at_the_start() {
        for pem in ["", "secret", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", keys::P384_PUBLIC] {
            assert!(Verifier::new(&JwtKey::PublicPem(pem.to_owned())).is_none(), "{pem:?}");
        }
    }

    /// Made with openssl for these tests; they guard nothing.
    mod keys {
        pub const RSA: &[u8] = include_bytes!("../../tests/keys/rsa.pem");
        pub const RSA_PUBLIC: &str = include_str!("../../tests/keys/rsa.pub");
        pub const P256: &[u8] = include_bytes!("../../tests/keys/p256.pem");
        pub const P256_PUBLIC: &str = include_str!("../../tests/keys/p256.pub");
        pub const P384_PUBLIC: &str = include_str!("../../tests/keys/p384.pub");
        pub const ED: &[u8] = include_bytes!("../../tests/keys/ed25519.pem");
        pub const ED_PUBLIC: &str = include_str!("../../tests/keys/ed25519.pub");
    }
}
