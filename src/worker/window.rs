//! The payment window: orders that nobody paid in time are cancelled and their stock goes back, unless an attempt is in
//! flight (then the reconciler brings its outcome first).

use std::time::Duration;

use super::sweep::Rules;
use crate::error::{Error, Result};
use crate::order::life::{Happening, Verdict};
use crate::store::{Change, ChangeRules, Changed, Conclusion, Store};

/// How many orders are read at once.
const BATCH: u32 = 100;

/// Cancels what is overdue, counting in `cancelled`. One order that cannot be changed does not keep the others from it.
///
/// # Errors
/// The first failure, after all was tried; what was cancelled stays so.
pub async fn run_once(store: &dyn Store, rules: &Rules, cancelled: &mut u64) -> Result<()> {
    // Neither a claim nor a payment is touched, so nothing is stored and nothing is to be looked at later.
    let change_rules = ChangeRules {
        key_ttl: Duration::ZERO,
        lock_wait: rules.lock_wait,
        first_check: Duration::ZERO,
        conclude: |_, _, _| Conclusion::Keep,
    };
    let mut failure: Option<Error> = None;
    loop {
        let overdue = store.overdue_orders(rules.payment_window, BATCH).await?;
        let before = *cancelled;
        for order in overdue {
            let change = Change { order, account: None, happening: Happening::WindowOver, event: None, claim: None };
            match store.change(&change, &change_rules).await {
                Ok(Changed::Met { verdict: Verdict::Done, .. }) => *cancelled += 1,
                // Another instance, the buyer or a callback was first.
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%order, %error, "an order that was not paid in time could not be cancelled");
                    failure.get_or_insert(error.into());
                }
            }
        }
        if *cancelled == before {
            return failure.map_or(Ok(()), Err);
        }
    }
}
