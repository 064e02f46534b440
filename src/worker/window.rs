//! The payment window: orders that nobody paid in time are cancelled and their stock goes back, unless an attempt is in
//! flight (then the reconciler brings its outcome first).

use crate::app::App;
use crate::checkout::charge;
use crate::error::Result;
use crate::order::life::{Happening, Verdict};
use crate::store::{Change, Changed, Conclusion};

/// How many orders are read at once.
const BATCH: u32 = 100;

/// Cancels what is overdue; answers how many orders that were.
///
/// # Errors
/// When the database gives no answer; what was cancelled before stays so.
pub async fn run_once(app: &App) -> Result<u64> {
    let mut cancelled = 0;
    loop {
        let overdue = app.store.overdue_orders(app.config.payment_window, BATCH).await?;
        let before = cancelled;
        for order in overdue {
            let change = Change { order, account: None, happening: Happening::WindowOver, event: None, claim: None };
            let changed = app.store.change(&change, &charge::rules(app, |_, _, _| Conclusion::Keep)).await?;
            // Another instance, the buyer or a callback may have been first.
            if matches!(changed, Changed::Met { verdict: Verdict::Done, .. }) {
                cancelled += 1;
            }
        }
        if cancelled == before {
            return Ok(cancelled);
        }
    }
}
