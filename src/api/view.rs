//! What the API shows, each thing by one struct that is both what is serialised and what is described.

use serde::Serialize;
use time::OffsetDateTime;
use time::macros::format_description;
use utoipa::ToSchema;
use utoipa::openapi::{Object, ObjectBuilder, Type};
use uuid::Uuid;

use crate::order::values::OrderId;
use crate::order::{self, Method, Order, PaymentStatus, Status};
use crate::store;

/// Where an order is found.
#[must_use]
pub fn location(order: OrderId) -> String {
    format!("/api/orders/{order}")
}

/// RFC 3339, UTC, always three digits of fraction: the database keeps milliseconds, and equal lengths sort as text.
fn rfc3339(time: OffsetDateTime) -> String {
    time.to_utc()
        .format(format_description!(version = 2, "[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z"))
        .unwrap_or_default()
}

/// Describes a member that is one of these words.
#[must_use]
pub fn words(about: &str, words: impl IntoIterator<Item = &'static str>) -> Object {
    ObjectBuilder::new().schema_type(Type::String).description(Some(about)).enum_values(Some(words)).build()
}

fn statuses() -> Object {
    words(
        "Where it is in its life.",
        [Status::Pending, Status::Paid, Status::Shipped, Status::Cancelled].map(Status::as_str),
    )
}

/// How an order may be paid.
#[must_use]
pub fn methods() -> Object {
    words("How it is paid; `card` only where the shop offers it.", [Method::Balance, Method::Card].map(Method::as_str))
}

fn payment_statuses() -> Object {
    words("How far the latest attempt to pay is.", PaymentStatus::ALL.map(PaymentStatus::as_str))
}

/// An order as it stands.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Order)]
pub struct OrderBody<'a> {
    /// UUID version 7.
    pub id: Uuid,
    /// Where it is in its life.
    #[schema(schema_with = statuses)]
    pub status: &'static str,
    /// In SKU order, each SKU once.
    pub lines: Vec<LineBody<'a>>,
    /// Sum of the lines, in minor units.
    #[schema(example = 3000)]
    pub total: i64,
    /// Of the total and all prices (ISO 4217).
    #[schema(example = "EUR")]
    pub currency: &'a str,
    /// How it is paid, and how far that is.
    pub payment: PaymentBody,
    /// Your own name for it, if you gave one.
    #[schema(required = true)]
    pub reference: Option<&'a str>,
    /// Your note, if you gave one; line breaks as `\n`.
    #[schema(required = true)]
    pub note: Option<&'a str>,
    /// Code of the coupon that was granted for it, once it is.
    #[schema(required = true)]
    pub coupon: Option<&'a str>,
    /// When it was placed (RFC 3339, UTC).
    #[schema(format = DateTime, example = "2026-11-29T17:47:03.250Z")]
    pub created_at: String,
}

/// One line of an order, at the price and name of that moment.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = OrderLine)]
pub struct LineBody<'a> {
    /// What.
    #[schema(example = "tea-green")]
    pub sku: &'a str,
    /// Its name when it was ordered.
    #[schema(example = "Green tea")]
    pub name: &'a str,
    /// How many.
    #[schema(example = 2)]
    pub quantity: u32,
    /// Price of one when it was ordered, in minor units.
    #[schema(example = 1500)]
    pub unit_price: i64,
}

/// How an order is paid.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[schema(as = OrderPayment)]
pub struct PaymentBody {
    /// `balance` or `card`.
    #[schema(schema_with = methods)]
    pub method: &'static str,
    /// How far the latest attempt is.
    #[schema(schema_with = payment_statuses)]
    pub status: &'static str,
}

impl<'a> OrderBody<'a> {
    /// Shows this order.
    #[must_use]
    pub fn of(order: &'a Order) -> Self {
        Self {
            id: order.id.0,
            status: order.status.as_str(),
            lines: order.lines.iter().map(LineBody::of).collect(),
            total: order.total,
            currency: order.currency.as_str(),
            payment: PaymentBody { method: order.method.as_str(), status: order.payment.as_str() },
            reference: order.reference.as_ref().map(|r| r.as_str()),
            note: order.note.as_ref().map(|n| n.as_str()),
            coupon: order.coupon.as_deref(),
            created_at: rfc3339(order.created_at),
        }
    }
}

impl<'a> LineBody<'a> {
    fn of(line: &'a order::Line) -> Self {
        Self { sku: line.sku.as_str(), name: &line.name, quantity: line.quantity.get(), unit_price: line.unit_price }
    }
}

/// One page of the account's orders.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = OrderList)]
pub struct OrderListBody<'a> {
    /// Newest first.
    pub orders: Vec<OrderBody<'a>>,
    /// What to send as `cursor` for the next page; null on the last one.
    #[schema(required = true)]
    pub next_cursor: Option<String>,
}

/// One product of the catalogue.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Product)]
pub struct ProductBody<'a> {
    /// What to order it by.
    #[schema(example = "tea-green")]
    pub sku: &'a str,
    /// What it is called.
    #[schema(example = "Green tea")]
    pub name: &'a str,
    /// Price of one, in minor units.
    #[schema(example = 1500)]
    pub unit_price: i64,
    /// Of the price (ISO 4217).
    #[schema(example = "EUR")]
    pub currency: &'a str,
    /// How many are left; may be one second old.
    #[schema(minimum = 0, example = 120)]
    pub in_stock: i64,
}

impl<'a> ProductBody<'a> {
    /// Shows this product.
    #[must_use]
    pub fn of(product: &'a order::Product) -> Self {
        Self {
            sku: product.sku.as_str(),
            name: &product.name,
            unit_price: product.unit_price,
            currency: product.currency.as_str(),
            in_stock: product.stock,
        }
    }
}

/// The account of the token.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Account)]
pub struct AccountBody<'a> {
    /// What it may spend, in minor units.
    #[schema(minimum = 0, example = 97_000)]
    pub balance: i64,
    /// Of the balance (ISO 4217).
    #[schema(example = "EUR")]
    pub currency: &'a str,
    /// Newest first.
    pub coupons: Vec<CouponBody<'a>>,
}

/// A coupon that was granted for an order.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Coupon)]
pub struct CouponBody<'a> {
    /// Its code.
    pub code: &'a str,
    /// Why it was granted.
    #[schema(example = "welcome-back")]
    pub campaign: &'a str,
    /// For which order.
    pub order_id: Uuid,
    /// When (RFC 3339, UTC).
    #[schema(format = DateTime, example = "2026-11-29T17:47:04.113Z")]
    pub granted_at: String,
}

impl<'a> CouponBody<'a> {
    /// Shows this coupon.
    #[must_use]
    pub fn of(coupon: &'a store::Coupon) -> Self {
        Self {
            code: &coupon.code,
            campaign: &coupon.campaign,
            order_id: coupon.order.0,
            granted_at: rfc3339(coupon.granted_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::rfc3339;

    #[test]
    fn times_are_utc_with_three_digits_of_fraction() {
        assert_eq!(rfc3339(datetime!(2026-11-29 00:00:00 +02:00)), "2026-11-28T22:00:00.000Z");
        assert_eq!(rfc3339(datetime!(2026-11-29 12:30:01.52 UTC)), "2026-11-29T12:30:01.520Z");
    }
}
