//! The payment reconciler: asks the provider about attempts without an outcome, and carries out refunds that are due.
//! Bounded, backing off, and safe on several instances at once: the store hands each payment to one of them.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::app::App;
use crate::checkout::charge;
use crate::error::Result;
use crate::order::life::{Happening, Verdict};
use crate::order::state::PaymentStatus;
use crate::store::{Change, Changed, Conclusion, Due};

/// How many payments one run looks at, all at the same time.
const AT_ONCE: u32 = 32;
/// The longest pause between two looks at one payment.
const LONGEST_PAUSE: Duration = Duration::from_secs(15 * 60);

/// What one run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Payments whose outcome is known now.
    pub settled: u32,
    /// Payments paid back.
    pub refunded: u32,
    /// Payments that are as unknown as before.
    pub open: u32,
}

/// Looks at the payments whose time has come.
///
/// # Errors
/// When the database gives no answer.
pub async fn run_once(app: &App) -> Result<Reconciled> {
    let due = app.store.due_payments(AT_ONCE, app.config.lease, LONGEST_PAUSE).await?;
    let mut looks = JoinSet::new();
    for due in due {
        let app = app.clone();
        looks.spawn(async move { (due, look_at(&app, due).await) });
    }
    let mut done = Reconciled::default();
    while let Some(looked) = looks.join_next().await {
        match looked {
            Ok((_, Ok(Some(PaymentStatus::Refunded)))) => done.refunded += 1,
            Ok((_, Ok(Some(status)))) if !status.in_flight() => done.settled += 1,
            Ok((_, Ok(_))) => done.open += 1,
            Ok((due, Err(error))) => {
                done.open += 1;
                tracing::warn!(order = %due.order, attempt = due.attempt, %error, "a payment could not be looked at");
            }
            Err(error) => tracing::error!(%error, "a look at a payment broke off"),
        }
    }
    Ok(done)
}

/// Looks at one payment; answers how far it is afterwards.
async fn look_at(app: &App, due: Due) -> Result<Option<PaymentStatus>> {
    let (Some(provider), Some(life)) = (&app.provider, app.store.life(due.order).await?) else { return Ok(None) };
    let Some(attempt) = life.attempts.iter().find(|attempt| attempt.number == due.attempt) else { return Ok(None) };
    let happening = match (attempt.status, &attempt.provider_id) {
        (PaymentStatus::RefundDue, Some(id)) => {
            // Of its own, and the same at every try: paid back once.
            let key = format!("refund-{}-{}", due.order, due.attempt);
            if !provider.refund(id, &key).await {
                return Ok(Some(PaymentStatus::RefundDue));
            }
            Happening::Refunded { provider_id: id.clone() }
        }
        (status, _) if status.in_flight() => {
            Happening::Word(charge::word_on(attempt, charge::ask(app, &life, attempt).await))
        }
        (status, _) => return Ok(Some(status)),
    };
    let change = Change { order: due.order, account: None, happening, event: None, claim: None };
    let changed = app.store.change(&change, &charge::rules(app, |_, _, _| Conclusion::Keep)).await?;
    let Changed::Met { life, verdict, .. } = changed else { return Ok(None) };
    if verdict == Verdict::Mismatch {
        tracing::warn!(order = %due.order, attempt = due.attempt, "the provider's word does not fit its payment");
    }
    Ok(life.attempts.iter().find(|attempt| attempt.number == due.attempt).map(|attempt| attempt.status))
}
