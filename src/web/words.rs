//! The words of the pages that are not in a template: amounts, times, and what is wrong with a field.
//!
//! Everything a buyer reads is here or in `templates/` (and [`Wrong`]'s own words), so that another language has one
//! place to go.

use std::fmt;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;

use crate::order::request::Wrong;
use crate::order::values::{Cents, Currency};

/// How many digits of an amount in minor units stand behind the point: ISO 4217, where it is not 2.
const EXPONENTS: [(usize, &[&str]); 3] = [
    (
        0,
        &[
            "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF",
            "XOF", "XPF",
        ],
    ),
    (3, &["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"]),
    (4, &["CLF", "UYW"]),
];

/// How many digits of an amount in this currency stand behind the point.
#[must_use]
pub fn digits(currency: &Currency) -> usize {
    let code = currency.as_str();
    EXPONENTS.iter().find(|(_, codes)| codes.contains(&code)).map_or(2, |(exponent, _)| *exponent)
}

/// An amount as a buyer reads it: `12.50 EUR`, the space one that does not break.
#[must_use]
pub fn money(amount: Cents, currency: &Currency) -> String {
    let (code, exponent) = (currency.as_str(), digits(currency));
    let sign = if amount < 0 { "\u{2212}" } else { "" };
    let digits = format!("{:0>width$}", amount.unsigned_abs(), width = exponent + 1);
    let (whole, part) = digits.split_at(digits.len() - exponent);
    let point = if part.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{part}\u{a0}{code}")
}

/// An amount that a page shows and its script can add up.
pub struct Price {
    /// In minor units.
    pub amount: Cents,
    /// Of what.
    pub currency: Currency,
}

impl Price {
    /// For `data-digits`.
    #[must_use]
    pub fn digits(&self) -> usize {
        digits(&self.currency)
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&money(self.amount, &self.currency))
    }
}

/// A time for `<time>`: what a buyer reads, and what a program reads.
pub struct Moment<'a>(pub &'a OffsetDateTime);

impl Moment<'_> {
    /// RFC 3339, for `datetime`.
    #[must_use]
    pub fn rfc3339(&self) -> String {
        self.0.format(&Rfc3339).unwrap_or_default()
    }
}

impl fmt::Display for Moment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = format_description!("[day padding:none] [month repr:short] [year], [hour]:[minute] UTC");
        f.write_str(&self.0.to_offset(time::UtcOffset::UTC).format(form).unwrap_or_default())
    }
}

/// What is wrong with one field, as a buyer is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It could not be read, or breaks a limit.
    Wrong(Wrong),
    /// There is not that much of it.
    OutOfStock,
    /// It is not, or no longer, in the catalogue.
    NotSold,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(wrong) => wrong.fmt(f),
            Self::OutOfStock => f.write_str("is not in stock in this quantity"),
            Self::NotSold => f.write_str("is not sold here (any more)"),
        }
    }
}

/// What a field is called on the page; its own name where it has no label.
#[must_use]
pub fn label(field: &str) -> &str {
    match field {
        "payment" => "Payment",
        "note" => "Note",
        // What concerns the goods as a whole: the form's name for it, and the desk's.
        "quantity" | "/lines" => "Goods",
        _ => field,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn amounts_have_the_digits_of_their_currency() {
        let shown = |amount, code| money(amount, &Currency::parse(code).unwrap()).replace('\u{a0}', " ");
        assert_eq!(shown(1250, "EUR"), "12.50 EUR");
        assert_eq!(shown(5, "EUR"), "0.05 EUR");
        assert_eq!(shown(-5, "EUR"), "\u{2212}0.05 EUR");
        assert_eq!(shown(0, "JPY"), "0 JPY");
        assert_eq!(shown(1250, "JPY"), "1250 JPY");
        assert_eq!(shown(1250, "KWD"), "1.250 KWD");
        assert_eq!(shown(i64::MIN, "EUR"), "\u{2212}92233720368547758.08 EUR");
    }

    #[test]
    fn times_are_read_in_utc() {
        let time = datetime!(2026-03-01 00:30 +01:00);
        let moment = Moment(&time);
        assert_eq!(moment.to_string(), "28 Feb 2026, 23:30 UTC");
        assert_eq!(moment.rfc3339(), "2026-03-01T00:30:00+01:00");
    }
}
