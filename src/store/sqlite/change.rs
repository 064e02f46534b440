//! Changing one order: one transaction, judged in pure Rust between its reads and its writes.
//!
//! The write lock is held from the first read on, so what is judged is what is written over. The updates name the
//! status they expect all the same, and their counts are looked at; one that speaks here means a bug, and everything is
//! rolled back.

use std::time::Duration;

use super::accounts::{self, Kind};
use super::row::span;
use super::{Commit, Result, Sqlite, StoreError, Tx, catalogue, clock, fault, fences, orders, outbox, payments};
use crate::order::life::{Life, Verdict, Writes};
use crate::store::{Change, ChangeRules, Changed, Conclusion};

pub(super) async fn change(store: &Sqlite, change: &Change, rules: &ChangeRules) -> Result<Changed> {
    let mut tx = store.begin_within(Commit::Durable, rules.lock_wait).await?;
    let now = clock(&mut tx).await?;
    let (changed, wrote) = within(&mut tx, change, rules, now).await?;
    if wrote {
        tx.commit().await.map_err(fault)?;
    }
    Ok(changed)
}

/// What came of it, and whether anything was written that is to be kept.
async fn within(tx: &mut Tx, change: &Change, rules: &ChangeRules, now: i64) -> Result<(Changed, bool)> {
    if let Some(event) = &change.event {
        // Its outcome is not known yet.
        let new = payments::insert_event(tx, event, Some(change.order), Verdict::Done.as_str(), now).await?;
        if !new {
            return Ok((Changed::Known, false));
        }
    }
    let life = orders::life(&mut **tx, change.order).await?;
    let theirs = |life: &Life| change.account.is_none_or(|account| account == life.order.account);
    let Some(mut life) = life.filter(theirs) else { return Ok((Changed::NotFound, false)) };
    let before = life.clone();
    let (verdict, writes) = life.meet(&change.happening);
    if verdict == Verdict::NoAttempt && change.event.is_some() {
        return Ok((Changed::Met { verdict, life, conclusion: Conclusion::Keep }, false));
    }
    let mut wrote = writes != Writes::default();
    if wrote {
        Writing { tx, before: &before, after: &life, now, first_check: rules.first_check }.write(&writes).await?;
    }
    if let Some(event) = change.event.as_ref().filter(|_| verdict != Verdict::Done) {
        payments::write_outcome(tx, event, verdict.as_str()).await?;
    }
    let mut conclusion = Conclusion::Keep;
    if let Some(fence) = &change.claim {
        conclusion = (rules.conclude)(verdict, &change.happening, &life);
        if !fences::conclude(tx, fence, &conclusion, now, rules.key_ttl).await? {
            return Ok((Changed::Fenced, false));
        }
    }
    wrote |= change.event.is_some() || conclusion != Conclusion::Keep;
    Ok((Changed::Met { verdict, life, conclusion }, wrote))
}

/// What turned an order from `before` to `after`, on its way into the tables.
struct Writing<'a> {
    tx: &'a mut Tx,
    before: &'a Life,
    after: &'a Life,
    now: i64,
    first_check: Duration,
}

impl Writing<'_> {
    async fn write(mut self, writes: &Writes) -> Result<()> {
        self.order().await?;
        self.attempts(writes).await?;
        if writes.stock_back {
            for line in &self.after.order.lines {
                // A product that left the catalogue takes nothing back.
                catalogue::add_stock(self.tx, &line.sku, line.quantity).await?;
            }
        }
        if writes.entry != 0 {
            let (order, kind) = (&self.after.order, if writes.entry < 0 { Kind::Charge } else { Kind::Refund });
            accounts::write_balance(self.tx, order.account, self.after.balance).await?;
            accounts::insert_entry(self.tx, order, writes.entry, kind, self.now).await?;
        }
        if writes.became_paid {
            outbox::tell_paid(self.tx, &self.after.order, self.now).await?;
        }
        Ok(())
    }

    async fn order(&mut self) -> Result<()> {
        let (before, after) = (&self.before.order, &self.after.order);
        let written = sqlx::query(
            "UPDATE orders SET status = $3, payment_method = $4, updated_at = $5 WHERE id = $1 AND status = $2",
        )
        .bind(after.id.0.hyphenated())
        .bind(before.status.as_str())
        .bind(after.status.as_str())
        .bind(after.method.as_str())
        .bind(self.now)
        .execute(&mut **self.tx)
        .await
        .map_err(fault)?;
        self.expect(written.rows_affected() == 1)
    }

    async fn attempts(&mut self, writes: &Writes) -> Result<()> {
        let (id, now, first_check) = (self.after.order.id, self.now, span(self.first_check));
        for (number, status, provider_id) in &writes.attempts {
            let was = self.before.attempts.iter().find(|attempt| attempt.number == *number);
            let held = match was {
                Some(was) => payments::update(self.tx, id, was, (*status, provider_id.as_deref()), now).await?,
                None => false,
            };
            self.expect(held)?;
        }
        match &writes.new_attempt {
            Some(attempt) => payments::insert(self.tx, id, attempt, now, first_check).await,
            None => Ok(()),
        }
    }

    fn expect(&self, held: bool) -> Result<()> {
        let moved = || StoreError::Broken(format!("order {} moved under the lock", self.after.order.id));
        if held { Ok(()) } else { Err(moved()) }
    }
}
