//! `Stripe-Signature`: `t=SECONDS,v1=HEX`, HMAC-SHA256 over `SECONDS.BODY` (docs.stripe.com/webhooks/signature).

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thiserror::Error;

/// How far a signature's time may be from ours, both ways: Stripe's own default.
pub const TOLERANCE: Duration = Duration::from_secs(300);

/// Why a signature is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Invalid {
    /// The header is not of the form `t=…,v1=…`.
    #[error("the signature header cannot be read")]
    Malformed,
    /// None of its signatures is of this body under our secret.
    #[error("the signature does not match")]
    Mismatch,
    /// Made too long ago, or in the future.
    #[error("the signature is not of the last five minutes")]
    Stale,
}

/// Signs a body as of `now` (seconds since 1970).
#[must_use]
pub fn sign(secret: &str, body: &[u8], now: i64) -> String {
    format!("t={now},v1={}", hex::encode(mac(secret, body, &now.to_string()).finalize().into_bytes()))
}

/// Checks a header against the body as it was received, in constant time.
///
/// # Errors
/// See [`Invalid`]. The time is looked at last, so that a forger learns nothing from it.
pub fn verify(secret: &str, header: &str, body: &[u8], now: i64) -> Result<(), Invalid> {
    let fields = || header.split(',').filter_map(|field| field.trim().split_once('='));
    let time = fields().find(|(name, _)| *name == "t").map(|(_, value)| value).ok_or(Invalid::Malformed)?;
    let seconds: i64 = time.parse().map_err(|_| Invalid::Malformed)?;
    let mut signatures =
        fields().filter(|(name, _)| *name == "v1").filter_map(|(_, hex)| hex::decode(hex).ok()).peekable();
    signatures.peek().ok_or(Invalid::Malformed)?;
    let expected = mac(secret, body, time);
    if !signatures.any(|signature| expected.clone().verify_slice(&signature).is_ok()) {
        return Err(Invalid::Mismatch);
    }
    if now.abs_diff(seconds) > TOLERANCE.as_secs() {
        return Err(Invalid::Stale);
    }
    Ok(())
}

fn mac(secret: &str, body: &[u8], time: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(time.as_bytes());
    mac.update(b".");
    mac.update(body);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_test";
    const NOW: i64 = 1_790_000_000;

    #[test]
    fn a_signature_of_ours_is_taken_within_five_minutes() {
        let header = sign(SECRET, b"{}", NOW);
        for late in [-300, 0, 300] {
            assert_eq!(verify(SECRET, &header, b"{}", NOW + late), Ok(()), "{late}");
        }
        for late in [-301, 301] {
            assert_eq!(verify(SECRET, &header, b"{}", NOW + late), Err(Invalid::Stale), "{late}");
        }
    }

    #[test]
    fn another_body_secret_or_time_does_not_match() {
        let header = sign(SECRET, b"{}", NOW);
        assert_eq!(verify(SECRET, &header, b"{ }", NOW), Err(Invalid::Mismatch));
        assert_eq!(verify("other", &header, b"{}", NOW), Err(Invalid::Mismatch));
        let moved = header.replace(&NOW.to_string(), &(NOW + 1).to_string());
        assert_eq!(verify(SECRET, &moved, b"{}", NOW), Err(Invalid::Mismatch));
    }

    #[test]
    fn one_good_signature_among_several_suffices_as_while_a_secret_is_rolled() {
        let good = sign(SECRET, b"{}", NOW);
        let header = good.replace("v1=", &format!("v1={},v0=00,v1=", "0".repeat(64)));
        assert_eq!(verify(SECRET, &header, b"{}", NOW), Ok(()));
    }

    #[test]
    fn what_is_no_signature_header_is_malformed() {
        for header in ["", "t=", "v1=00", "t=1", "t=x,v1=00", "t=1,v1=zz", "t=1;v1=00", "t=99999999999999999999,v1=00"]
        {
            assert_eq!(verify(SECRET, header, b"", NOW), Err(Invalid::Malformed), "{header}");
        }
    }
}
