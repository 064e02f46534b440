//! Telling the queue what has happened, and what comes of it: at least once on the way, once in effect.
//!
//! The outbox row is the truth. It is written in the transaction that makes an order paid, and is *consumed* in the
//! transaction of its effect; until then it is published again and again, so nothing that the queue loses is lost.

use std::time::Duration;

use uuid::Uuid;

use crate::order::values::OrderId;

/// The topic of an order that became paid; the payload is `{"order_id":…,"account_id":…}`.
pub const ORDER_PAID: &str = "order.paid";

/// What the queue is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The outbox row; every copy of the message carries it.
    pub id: Uuid,
    /// What kind of thing has happened.
    pub topic: String,
    /// JSON.
    pub payload: String,
}

/// When a message whose effect does not show is published again: after `first`, then after twice as long
/// each time, up to `longest`.
#[derive(Clone, Copy, Debug)]
pub struct Republish {
    /// Longer than a consumer that is not behind takes.
    pub first: Duration,
    /// Keeps a message that can never have its effect from being a burden.
    pub longest: Duration,
}

/// A coupon to be granted for a paid order.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The message that told of the order.
    pub message: Uuid,
    /// The order.
    pub order: OrderId,
    /// The code, if it is granted: random, so that nobody can guess another's.
    pub code: String,
}

/// What came of a [`Grant`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// The coupon is there now.
    New,
    /// The message has had its effect, or the order has its coupon from another one.
    Duplicate,
    /// The order is neither paid nor shipped (it was cancelled before): it gets none, by this message.
    NotDue,
    /// There is no such order; nothing was written.
    Unknown,
}
