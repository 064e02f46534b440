//! The bodies of `POST /api/orders` and of the wishes about an order that stands.

use std::borrow::Cow;

use super::{Basket, Errors, JsonError, MAX_LINES, Parsed, QUANTITY_RANGE, Wrong, method, note};
use crate::order::json::{Json, step, whole};
use crate::order::values::{PaymentToken, Quantity, Reference, Sku};
use crate::order::{Method, NewOrder, Wanted};

/// Reads `POST /api/orders`. `card` tells whether card payment is offered.
///
/// # Errors
/// Says what is malformed, or every member that is wrong (at most [`super::MAX_ERRORS`]), by its JSON Pointer.
pub fn from_json(body: &[u8], card: bool) -> Result<Parsed, JsonError> {
    let tree = Json::parse(body).map_err(|fault| JsonError::Malformed(fault.0))?;
    let mut errors = Errors::default();
    match order(tree, card, &mut errors) {
        Some(order) if errors.0.is_empty() => Ok(Parsed::of(order)),
        _ => Err(JsonError::Invalid(errors.0)),
    }
}

/// Reads the body of `POST /api/orders/{id}/pay`: how, and with which card, each where it is said. An empty body says neither.
///
/// # Errors
/// As [`from_json`].
pub fn pay_from_json(body: &[u8], card: bool) -> Result<(Option<Method>, Option<PaymentToken>), JsonError> {
    wish(body, |members, errors| {
        let word = members.take("payment").map(|value| string(value).and_then(|word| method(&word, card))).transpose();
        let method = errors.keep("/payment", word);
        let token = errors.keep("/payment_method", members.optional("payment_method", payment_token));
        method.zip(token)
    })
}

/// Reads the body of `POST /api/orders/{id}/cancel`, which has nothing to say.
///
/// # Errors
/// As [`from_json`].
pub fn cancel_from_json(body: &[u8]) -> Result<(), JsonError> {
    wish(body, |_, _| Some(()))
}

/// An object all of whose members may be missing, or nothing at all.
fn wish<T>(body: &[u8], read: impl FnOnce(&mut Members<'_>, &mut Errors) -> Option<T>) -> Result<T, JsonError> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    let tree = Json::parse(body).map_err(|fault| JsonError::Malformed(fault.0))?;
    let mut errors = Errors::default();
    let wish = Members::open(tree, "", &mut errors).and_then(|mut members| {
        let wish = read(&mut members, &mut errors);
        members.close(&mut errors);
        wish
    });
    wish.filter(|_| errors.0.is_empty()).ok_or(JsonError::Invalid(errors.0))
}

fn order(tree: Json<'_>, card: bool, errors: &mut Errors) -> Option<NewOrder> {
    let mut body = Members::open(tree, "", errors)?;
    let wanted = errors.keep("/lines", body.required("lines").and_then(array));
    let lines = wanted.map(|items| lines(items, errors));
    let method =
        errors.keep("/payment", body.required("payment").and_then(string).and_then(|word| method(&word, card)));
    let payment_method = errors.keep("/payment_method", body.optional("payment_method", payment_token));
    let reference = errors.keep("/reference", body.optional("reference", reference));
    let note = errors.keep("/note", body.optional("note", note));
    body.close(errors);
    Some(NewOrder {
        lines: lines?,
        method: method?,
        payment_method: payment_method?,
        reference: reference?,
        note: note?,
    })
}

/// The lines added up. Of too many only the first are looked at: the rest would be counted, not mended.
fn lines(items: Vec<Json<'_>>, errors: &mut Errors) -> Vec<Wanted> {
    match items.len() {
        0 => errors.push("/lines", Wrong::Nothing),
        1..=MAX_LINES => {}
        _ => errors.push("/lines", Wrong::Form("1 to 50 lines")),
    }
    let mut basket = Basket::default();
    for (i, item) in items.into_iter().take(MAX_LINES).enumerate() {
        let at = format!("/lines/{i}");
        let Some(mut line) = Members::open(item, &at, errors) else { continue };
        let sku = errors.keep(format!("{at}/sku"), line.required("sku").and_then(string).and_then(|text| sku(&text)));
        let quantity =
            errors.keep(format!("{at}/quantity"), line.required("quantity").and_then(|value| quantity(&value)));
        line.close(errors);
        if let (Some(sku), Some(quantity)) = (sku, quantity) {
            errors.keep(format!("{at}/quantity"), basket.add(sku, quantity));
        }
    }
    basket.into_lines()
}

fn sku(text: &str) -> Result<Sku, Wrong> {
    Sku::parse(text).ok_or(Wrong::Form("1 to 40 of the characters A-Z a-z 0-9 . _ -"))
}

fn quantity(value: &Json<'_>) -> Result<Quantity, Wrong> {
    let Json::Number(text) = value else { return Err(Wrong::Type("a number")) };
    let whole = whole(text).ok_or(Wrong::NotWhole)?;
    u32::try_from(whole).ok().and_then(Quantity::new).ok_or(QUANTITY_RANGE)
}

fn payment_token(text: &str) -> Result<Option<PaymentToken>, Wrong> {
    PaymentToken::parse(text).map(Some).ok_or(Wrong::Form("1 to 255 visible ASCII characters"))
}

fn reference(text: &str) -> Result<Option<Reference>, Wrong> {
    if text.is_empty() {
        return Ok(None);
    }
    Reference::parse(text).map(Some).ok_or(Wrong::Form("1 to 64 visible ASCII characters"))
}

fn array(value: Json<'_>) -> Result<Vec<Json<'_>>, Wrong> {
    if let Json::Array(items) = value { Ok(items) } else { Err(Wrong::Type("an array")) }
}

fn string(value: Json<'_>) -> Result<Cow<'_, str>, Wrong> {
    if let Json::String(text) = value { Ok(text) } else { Err(Wrong::Type("a string")) }
}

/// The members of one object that nobody has asked for yet.
struct Members<'a> {
    at: String,
    left: Vec<(Cow<'a, str>, Json<'a>)>,
}

impl<'a> Members<'a> {
    fn open(value: Json<'a>, at: &str, errors: &mut Errors) -> Option<Self> {
        let Json::Object(left) = value else {
            errors.push(at, Wrong::Type("an object"));
            return None;
        };
        Some(Self { at: at.into(), left })
    }

    /// Takes a member out; one that is `null` is not there.
    fn take(&mut self, name: &str) -> Option<Json<'a>> {
        let place = self.left.iter().position(|(n, _)| n == name)?;
        Some(self.left.remove(place).1).filter(|value| *value != Json::Null)
    }

    fn required(&mut self, name: &str) -> Result<Json<'a>, Wrong> {
        self.take(name).ok_or(Wrong::Missing)
    }

    fn optional<T>(&mut self, name: &str, read: fn(&str) -> Result<Option<T>, Wrong>) -> Result<Option<T>, Wrong> {
        self.take(name).map_or(Ok(None), |value| string(value).and_then(|text| read(&text)))
    }

    /// What is still there has a name that means nothing here, be its value `null` or not.
    fn close(self, errors: &mut Errors) {
        for (name, _) in &self.left {
            errors.push(format!("{}{}", self.at, step(name)), Wrong::Unknown);
        }
    }
}
