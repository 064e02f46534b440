//! The fields of the order form, and of the form that pays an order.

use std::collections::HashSet;

use super::{Basket, Errors, FieldError, MAX_LINES, MAX_QUANTITY, Parsed, Wrong, method, note};
use crate::order::values::{Quantity, Sku};
use crate::order::{Method, NewOrder};

const PAYMENT: &str = "payment";
const NOTE: &str = "note";
/// Where an error is told that concerns all quantities together.
const QUANTITY: &str = "quantity";
const QUANTITY_OF: &str = "quantity[";

/// Reads the fields of the order form, already percent-decoded, in the order they were sent; fields that are
/// not of the order (`form_token`, `idempotency_key`, `again`, unknown ones) are ignored, unless they begin
/// with `quantity[`.
///
/// # Errors
/// Every field that is wrong (at most [`super::MAX_ERRORS`]), by its name.
pub fn from_form(fields: &[(String, String)], card: bool) -> Result<Parsed, Vec<FieldError>> {
    let mut errors = Errors::default();
    let (mut basket, mut payment, mut remark) = (Basket::default(), None, None);
    let mut seen = HashSet::new();
    for (name, value) in fields {
        let (name, value) = (name.as_str(), value.as_str());
        if !matches!(name, PAYMENT | NOTE) && !name.starts_with(QUANTITY_OF) {
            continue;
        }
        if !seen.insert(name) {
            errors.push(name, Wrong::Repeated);
            continue;
        }
        match name {
            PAYMENT => payment = Some(value),
            NOTE => remark = Some(value),
            _ => _ = errors.keep(name, want(&mut basket, name, value)),
        }
    }
    if basket.0.len() > MAX_LINES {
        errors.push(QUANTITY, Wrong::TooMany);
    } else if basket.0.is_empty() && !errors.0.iter().any(|e| e.field.starts_with(QUANTITY_OF)) {
        errors.push(QUANTITY, Wrong::Nothing);
    }
    let word = payment.filter(|word| !word.is_empty()).ok_or(Wrong::Missing);
    let method = errors.keep(PAYMENT, word.and_then(|word| method(word, card)));
    let note = errors.keep(NOTE, note(remark.unwrap_or_default()));
    match (method, note) {
        (Some(method), Some(note)) if errors.0.is_empty() => {
            Ok(Parsed::of(NewOrder { lines: basket.into_lines(), method, payment_method: None, reference: None, note }))
        }
        _ => Err(errors.0),
    }
}

/// Reads the fields of the form with which an order that stands is paid: how, where it says so.
///
/// # Errors
/// When `payment` is there twice, or is no way to pay that the shop offers.
pub fn pay_from_form(fields: &[(String, String)], card: bool) -> Result<Option<Method>, Vec<FieldError>> {
    let mut words = fields.iter().filter(|(name, _)| name == PAYMENT).map(|(_, word)| word.as_str());
    let read = match (words.next(), words.next()) {
        (None | Some(""), None) => Ok(None),
        (Some(word), None) => method(word, card).map(Some),
        (_, Some(_)) => Err(Wrong::Repeated),
    };
    read.map_err(|wrong| vec![FieldError { field: PAYMENT.to_owned(), wrong }])
}

/// Puts what one quantity field says into the basket; 0 and empty say nothing.
fn want(basket: &mut Basket, name: &str, value: &str) -> Result<(), Wrong> {
    let sku = name.strip_prefix(QUANTITY_OF).and_then(|rest| rest.strip_suffix(']')).and_then(Sku::parse);
    let sku = sku.ok_or(Wrong::Unknown)?;
    match digits(value)? {
        Some(quantity) => basket.add(sku, quantity),
        None => Ok(()),
    }
}

/// A quantity in ASCII digits; leading zeros do not matter, however many.
fn digits(value: &str) -> Result<Option<Quantity>, Wrong> {
    if !value.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Wrong::NotWhole);
    }
    let significant = value.trim_start_matches('0');
    if significant.is_empty() {
        return Ok(None);
    }
    let quantity = significant.parse().ok().and_then(Quantity::new);
    quantity.map(Some).ok_or(Wrong::Range { min: 0, max: i64::from(MAX_QUANTITY) })
}
