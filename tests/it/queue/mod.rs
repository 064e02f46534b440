//! From a paid order to its coupon: the queue in Redis, the workers around it, and what goes wrong on the way.

mod backlog;
mod flow;
mod processes;
mod streams;

use std::time::Duration;

use oncegate::store::{Message, ORDER_PAID};
use serde_json::json;
use uuid::Uuid;

/// Short enough that a test can wait for it, long enough that a busy machine does not pass it by accident.
const IDLE: Duration = Duration::from_millis(300);
/// Take what is there.
const NOW: Duration = Duration::ZERO;
/// Longer than a wait takes that is ended by what it waits for.
const LONG: Duration = Duration::from_secs(5);

/// A message that tells of this order.
fn told_of(order: Uuid) -> Message {
    let payload = json!({"order_id": order.to_string(), "account_id": Uuid::nil().to_string()}).to_string();
    Message { id: Uuid::now_v7(), topic: ORDER_PAID.into(), payload }
}
