//! Form or JSON in, [`NewOrder`] and its [`Fingerprint`] out, or every error by its field.
//!
//! The two faces differ in how fields are spelled and named (one room each); what a field may hold is said here,
//! once. Deliberately absent: whatever only the catalogue shows (see [`super::decide`]).

mod form;
mod json;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use super::values::{Fingerprint, MAX_LINES, MAX_NOTE, MAX_QUANTITY, MAX_TOTAL, Note, Quantity, Sku};
use super::{Method, NewOrder, Wanted, fingerprint};

pub use form::{from_form, pay_from_form};
pub use json::{cancel_from_json, from_json, pay_from_json};

/// The most errors told at once: enough to mend a request, and a bound on what a stranger makes us write.
pub const MAX_ERRORS: usize = 100;

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
    /// No way to pay.
    Method {
        /// Whether a card would be one.
        card: bool,
    },
    /// More different products than an order may have.
    TooMany,
    /// Worth more than an order may be.
    TooDear,
    /// Not a note: too long, or with control characters.
    Note,
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
            Self::Method { card: true } => f.write_str("must be balance or card"),
            Self::Method { card: false } => f.write_str("must be balance"),
            Self::TooMany => write!(f, "must be of at most {MAX_LINES} different products"),
            Self::TooDear => write!(f, "must be worth at most {MAX_TOTAL} minor units in total"),
            Self::Note => write!(
                f,
                "must be at most {MAX_NOTE} characters long, with no control characters but tabs and line breaks"
            ),
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

impl Parsed {
    fn of(order: NewOrder) -> Self {
        let fingerprint = fingerprint::place_order(&order);
        Self { order, fingerprint }
    }
}

/// The errors found so far.
#[derive(Default)]
struct Errors(Vec<FieldError>);

impl Errors {
    /// Adds one, unless the very same is there or there are enough.
    fn push(&mut self, field: impl Into<String>, wrong: Wrong) {
        let error = FieldError { field: field.into(), wrong };
        if self.0.len() < MAX_ERRORS && !self.0.contains(&error) {
            self.0.push(error);
        }
    }

    /// The value, or `None` and one error more.
    fn keep<T>(&mut self, field: impl Into<String>, read: Result<T, Wrong>) -> Option<T> {
        read.map_err(|wrong| self.push(field, wrong)).ok()
    }
}

/// What is wanted so far: each SKU once, added up, in SKU order.
#[derive(Default)]
struct Basket(BTreeMap<Sku, Quantity>);

impl Basket {
    fn add(&mut self, sku: Sku, quantity: Quantity) -> Result<(), Wrong> {
        let before = self.0.get(&sku).map_or(0, |q| q.get());
        let sum = Quantity::new(before.saturating_add(quantity.get())).ok_or(QUANTITY_RANGE)?;
        self.0.insert(sku, sum);
        Ok(())
    }

    fn into_lines(self) -> Vec<Wanted> {
        self.0.into_iter().map(|(sku, quantity)| Wanted { sku, quantity }).collect()
    }
}

const QUANTITY_RANGE: Wrong = Wrong::Range { min: 1, max: MAX_QUANTITY as i64 };

/// The payment method of this word, if the shop offers it.
fn method(word: &str, card: bool) -> Result<Method, Wrong> {
    match Method::parse(word) {
        Some(Method::Card) if !card => Err(Wrong::NotOffered),
        Some(method) => Ok(method),
        None => Err(Wrong::Method { card }),
    }
}

/// The note with its line breaks as `\n`, whichever the platform sent; an empty one is none.
fn note(text: &str) -> Result<Option<Note>, Wrong> {
    let text =
        if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n").into() } else { Cow::from(text) };
    if text.is_empty() { Ok(None) } else { Note::parse(&text).map(Some).ok_or(Wrong::Note) }
}

#[cfg(test)]
mod tests;
