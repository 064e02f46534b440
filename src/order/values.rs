//! Values of the shop: parsed once at the edge, trusted ever after.
//!
//! Each type here can only be made from input that fits its limits, so no later code looks again.

use std::fmt;

use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The largest total an order may have, in minor units (10^12).
pub const MAX_TOTAL: i64 = 1_000_000_000_000;
/// The largest quantity of one SKU, as sent and added up over the lines of an order.
pub const MAX_QUANTITY: u32 = 10_000;
/// The most lines a request may carry, as sent.
pub const MAX_LINES: usize = 50;
/// The longest idempotency key, in characters. 255 is what Stripe documents, and fits every index.
pub const MAX_KEY: usize = 255;
/// The longest SKU, in characters.
pub const MAX_SKU: usize = 40;
/// The longest client reference, in characters.
pub const MAX_REFERENCE: usize = 64;
/// The longest note, in code points; a line break counts one.
pub const MAX_NOTE: usize = 500;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A fresh id (UUID version 7: sorts by time of making).
            #[must_use]
            #[allow(clippy::new_without_default, reason = "a default would hide that each call makes another id")]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }
    };
}

id!(
    /// Names one order.
    OrderId
);
id!(
    /// Names one account.
    AccountId
);

/// Minor units of a currency (cents). Signed, because entries of an account may be negative.
pub type Cents = i64;

fn visible_ascii(text: &str) -> bool {
    text.bytes().all(|b| (0x21..=0x7e).contains(&b))
}

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $accept:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// Takes the text if it fits the limits of this type.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                let accept: fn(&str) -> bool = $accept;
                accept(text).then(|| Self(text.into()))
            }

            /// The text as it was given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text!(
    /// A stock keeping unit: `[A-Za-z0-9._-]{1,40}`.
    Sku,
    |t| (1..=MAX_SKU).contains(&t.len()) && t.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
);
text!(
    /// An idempotency key after unquoting: 1–255 visible ASCII characters
    /// (draft-ietf-httpapi-idempotency-key-header). The header's own syntax is read in `api/extract`.
    Key,
    |t| (1..=MAX_KEY).contains(&t.len()) && visible_ascii(t)
);
text!(
    /// The client's own name for an order, unique per account for ever: 1–64 visible ASCII characters.
    Reference,
    |t| (1..=MAX_REFERENCE).contains(&t.len()) && visible_ascii(t)
);
text!(
    /// What the provider calls a way to pay (`pm_card_visa`): 1–255 visible ASCII characters.
    PaymentToken,
    |t| (1..=255).contains(&t.len()) && visible_ascii(t)
);
text!(
    /// A buyer's note, line breaks as `\n`, at most 500 code points. No control character but line break and tab:
    /// PostgreSQL text cannot hold NUL, HTML has no way to write most others, and the escape character would command
    /// the terminal of whoever reads the note in a log.
    Note,
    |t| !t.is_empty() && t.chars().count() <= MAX_NOTE && !t.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t'))
);
text!(
    /// An ISO 4217 code: three capital letters.
    Currency,
    |t| t.len() == 3 && t.bytes().all(|b| b.is_ascii_uppercase())
);
text!(
    /// Who orders, before an account is looked up: `visitor:UUID` (known by the session) or `client:SUB`
    /// (from the bearer token's `sub`); at most 255 characters in all, none of them a control character.
    Subject,
    |t| t.len() <= 255
        && !t.chars().any(char::is_control)
        && (t.strip_prefix("visitor:").is_some_and(|v| Uuid::try_parse(v).is_ok())
            || t.strip_prefix("client:").is_some_and(|c| !c.is_empty()))
);

impl Key {
    /// A fresh key for a rendered form (UUID version 4: a key is guessable by nobody else).
    #[must_use]
    pub fn fresh() -> Self {
        Self(Uuid::new_v4().hyphenated().to_string().into())
    }
}

impl Subject {
    /// The subject of a browser visitor.
    #[must_use]
    pub fn visitor(id: Uuid) -> Self {
        Self(format!("visitor:{}", id.hyphenated()).into())
    }
}

/// How many of one SKU: 1–10,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(u32);

impl Quantity {
    /// Takes a number within the limits.
    #[must_use]
    pub fn new(n: u32) -> Option<Self> {
        (1..=MAX_QUANTITY).contains(&n).then_some(Self(n))
    }

    /// The number itself.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

/// Digest of a parsed request: SHA-256 over a versioned, length-prefixed encoding, so that two requests have
/// the same fingerprint exactly when they ask for the same, whatever their spelling on the wire.
///
/// Stored as text, `VERSION:HEX`, so that an operator can compare two at a glance and a later encoding can
/// be told from this one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(Box<str>);

impl Fingerprint {
    /// Digests the parts in their order. Each is prefixed with its length, hence no two lists of parts
    /// can run together to the same bytes.
    #[must_use]
    pub fn of<'a>(version: u32, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        Self(format!("{version}:{}", hex::encode(digest.finalize())).into())
    }

    /// As it came out of the database.
    #[must_use]
    pub fn stored(text: &str) -> Self {
        Self(text.into())
    }

    /// The text that is stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
