//! Form or JSON in, [`NewOrder`] and its [`Fingerprint`] out, or every error by its field.

use std::fmt;

use super::NewOrder;
use super::values::Fingerprint;

/// What is wrong with one field. `Display` says it in English; the pages may say it in another language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It has to be there.
    Missing,
    /// It is there more than once.
    Repeated,
    /// No such field.
    Unknown,
    /// Another type is needed; says which, with its article ("an object").
    Type(&'static str),
    /// Not a whole number.
    NotWhole,
    /// Below or above what is allowed.
    Range {
        /// Smallest allowed.
        min: i64,
        /// Largest allowed.
        max: i64,
    },
    /// Characters or length do not fit; says what is allowed.
    Form(&'static str),
    /// None of the allowed words; says which are.
    Choice(&'static str),
    /// Nothing is wanted at all.
    Nothing,
    /// The payment method is not offered by this shop.
    NotOffered,
    /// Goods of several currencies in one order.
    MixedCurrency,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("is missing"),
            Self::Repeated => f.write_str("was sent more than once"),
            Self::Unknown => f.write_str("is not a known field"),
            Self::Type(wanted) => write!(f, "must be {wanted}"),
            Self::NotWhole => f.write_str("must be a whole number, digits only"),
            Self::Range { min, max } => write!(f, "must be between {min} and {max}"),
            Self::Form(allowed) => write!(f, "must be {allowed}"),
            Self::Choice(words) => write!(f, "must be {words}"),
            Self::Nothing => f.write_str("choose at least one product"),
            Self::NotOffered => f.write_str("is not offered here"),
            Self::MixedCurrency => f.write_str("cannot mix goods of several currencies in one order"),
        }
    }
}

/// One field and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// JSON Pointer (RFC 6901) for JSON, the field's name for a form.
    pub field: String,
    /// What is wrong.
    pub wrong: Wrong,
}

/// A request that could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// What is asked for.
    pub order: NewOrder,
    /// Its content, for comparison with an earlier one.
    pub fingerprint: Fingerprint,
}

/// Why a JSON body could not be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonError {
    /// Broken syntax or encoding, or a member twice: 400. Says what and where.
    Malformed(String),
    /// Well-formed, but not a valid request: 422.
    Invalid(Vec<FieldError>),
}

/// Reads `POST /api/orders`. `card` tells whether card payment is offered.
///
/// # Errors
/// Says what is malformed, or every field that is wrong.
pub fn from_json(_body: &[u8], _card: bool) -> Result<Parsed, JsonError> {
    todo!("order room")
}

/// Reads the fields of the order form, already percent-decoded, in the order they were sent; fields that are
/// not of the order (`form_token`, `idempotency_key`, `again`, unknown ones) are ignored, unless they begin
/// with `quantity[`.
///
/// # Errors
/// Every field that is wrong.
pub fn from_form(_fields: &[(String, String)], _card: bool) -> Result<Parsed, Vec<FieldError>> {
    todo!("order room")
}
