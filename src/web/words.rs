//! What pages say of values: amounts, times, and what is wrong with a field. The sentences are in `locales/`.

use std::fmt;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::order::request::Wrong;
use crate::order::values::{Cents, Currency, MAX_LINES, MAX_NOTE, MAX_TOTAL};

use super::language::texts::Text;

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
        let time = self.0.to_offset(time::UtcOffset::UTC);
        let text = Text::new("moment").with("year", time.year()).with("month", u8::from(time.month()));
        let text = text.with("day", time.day()).with("hour", format!("{:02}", time.hour()));
        text.with("minute", format!("{:02}", time.minute())).fmt(f)
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

impl Fault {
    fn text(&self) -> Text {
        let wrong = match self {
            Self::Wrong(wrong) => wrong,
            Self::OutOfStock => return Text::new("fault-out-of-stock"),
            Self::NotSold => return Text::new("fault-not-sold"),
        };
        match wrong {
            Wrong::Missing => Text::new("fault-missing"),
            Wrong::Repeated => Text::new("fault-repeated"),
            Wrong::Unknown => Text::new("fault-unknown"),
            Wrong::NotWhole => Text::new("fault-not-whole"),
            Wrong::Range { min, max } => Text::new("fault-range").with("min", *min).with("max", *max),
            Wrong::Method { card: true } => Text::new("fault-balance-or-card"),
            Wrong::Method { card: false } => Text::new("fault-balance"),
            Wrong::TooMany => Text::new("fault-products").with("max", MAX_LINES),
            Wrong::TooDear => Text::new("fault-total").with("max", MAX_TOTAL),
            Wrong::Note => Text::new("fault-note").with("max", MAX_NOTE),
            Wrong::Nothing => Text::new("fault-nothing"),
            Wrong::NotOffered => Text::new("fault-not-offered"),
            Wrong::MixedCurrency => Text::new("fault-mixed-currency"),
            // Of JSON alone; the fields of a form are text.
            Wrong::Type(_) | Wrong::Form(_) => Text::new("fault-unreadable"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text().fmt(f)
    }
}

/// What a field is called on the page; its own name where it has no label.
#[must_use]
pub fn label(field: &str) -> String {
    let text = match field {
        "payment" => "field-payment",
        "note" => "field-note",
        // What concerns the goods as a whole: the form's name for it, and the desk's.
        "quantity" | "/lines" => "field-goods",
        _ => return field.to_owned(),
    };
    Text::new(text).to_string()
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
