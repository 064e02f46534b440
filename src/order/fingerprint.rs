//! What makes two requests the same: one encoding for each operation, never changed, only followed by a higher version.
//!
//! The parts of a request are laid out so that they can be read back in one way only: a list is led by its length, an
//! optional value by a mark that says whether it is there. Together with the length before each part
//! ([`Fingerprint::of`]) no two different requests have the same bytes.

use std::borrow::Cow;

use super::values::{Fingerprint, OrderId, PaymentToken};
use super::{Method, NewOrder};

/// Raised when the layout changes: a stored fingerprint then differs by its first characters, not by chance.
const VERSION: u32 = 1;
const ABSENT: &str = "-";
const PRESENT: &str = "+";

/// The parts, in the order they are digested.
#[derive(Default)]
struct Parts<'a>(Vec<Cow<'a, str>>);

impl<'a> Parts<'a> {
    fn of(operation: &'static str) -> Self {
        Self(vec![operation.into()])
    }

    fn with(mut self, part: impl Into<Cow<'a, str>>) -> Self {
        self.0.push(part.into());
        self
    }

    fn with_optional(self, part: Option<&'a str>) -> Self {
        match part {
            Some(part) => self.with(PRESENT).with(part),
            None => self.with(ABSENT),
        }
    }

    fn digest(&self) -> Fingerprint {
        Fingerprint::of(VERSION, self.0.iter().map(|part| part.as_bytes()))
    }
}

/// Of an order to be placed. The lines are merged and in SKU order already, so their spelling does not show.
#[must_use]
pub fn place_order(order: &NewOrder) -> Fingerprint {
    let mut parts = Parts::of("place_order").with(order.lines.len().to_string());
    for line in &order.lines {
        parts = parts.with(line.sku.as_str()).with(line.quantity.get().to_string());
    }
    parts
        .with(order.method.as_str())
        .with_optional(order.payment_method.as_ref().map(PaymentToken::as_str))
        .with_optional(order.reference.as_ref().map(super::Reference::as_str))
        .with_optional(order.note.as_ref().map(super::Note::as_str))
        .digest()
}

/// Of the wish to cancel an order.
#[must_use]
pub fn cancel_order(order: OrderId) -> Fingerprint {
    Parts::of("cancel_order").with(order.to_string()).digest()
}

/// Of the wish to pay an order, in this way where one was named.
#[must_use]
pub fn pay_order(order: OrderId, method: Option<Method>, payment_method: Option<&PaymentToken>) -> Fingerprint {
    Parts::of("pay_order")
        .with(order.to_string())
        .with_optional(method.map(Method::as_str))
        .with_optional(payment_method.map(PaymentToken::as_str))
        .digest()
}
