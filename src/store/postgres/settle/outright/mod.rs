//! Placing what nothing stands for yet, in one round trip: a statement that writes record, order and all the rest, if everything
//! still is as the decision had it; it is its own transaction. The decision goes by what was read last ([`Lately`]), and where that
//! does not fit (too little in stock, a record that stands), the statement tells how it is instead, for a decision that does.
//!
//! What was read without locks may change before it is written. So stock and balances are written as differences, under the
//! condition that they cover what is taken, and every row that must be new is a plain insert: where another transaction got
//! in between, the statement fails as a whole, and the batch takes the way of the claims, which decides under lock. A refusal
//! needs no such care: what it was refused for was true when it was read.
//!
//! Locks are taken in the order of the room (products, accounts, records), and held for one statement and its commit.

pub(in super::super) mod read;
pub(in super::super) mod write;

use std::time::Duration;

use sqlx::{Executor, PgConnection};
use time::OffsetDateTime;

use super::super::errors::{Stop, column};
use super::super::lately::Lately;
use super::super::pools::Pools;
use super::{NEW_RECORD, Outcome};
use crate::order::Method;
use crate::order::decide::{Asked, Decision, Shop, decide};
use crate::store::{Outright, Result, SettleRules};
use read::{question, read};
use write::{Written, write};

/// See [`Store::place`](crate::store::Store::place).
pub(in super::super) async fn place(
    pools: &Pools,
    batch: &[&Asked],
    lease: Duration,
    rules: &SettleRules,
) -> Result<Vec<Outright>> {
    pools.on_outright(async |connection| attempt(connection, &pools.lately, batch, lease, rules).await).await
}

async fn attempt(
    connection: &mut PgConnection,
    lately: &Lately,
    batch: &[&Asked],
    lease: Duration,
    rules: &SettleRules,
) -> std::result::Result<Vec<Outright>, Stop> {
    let mut came = vec![Outright::Undone; batch.len()];
    let rows = match guess(lately, batch, rules) {
        None => connection.fetch_all(question(batch)).await?,
        Some((now, outcomes)) => match write(connection, &outcomes, now, lease, rules).await? {
            Written::All(row) => {
                lately.told(column(&row, "now")?);
                lately.met(true);
                return Ok(outcomes.into_iter().map(|one| Outright::Settled(one.settled())).collect());
            }
            Written::Nothing(rows) => rows,
            Written::Outdated => return Ok(came),
        },
    };
    let (mut shop, open) = read(&rows, batch, &mut came)?;
    lately.saw(&shop);
    let open: Vec<usize> = open.into_iter().filter(|n| is_sure(batch[*n], &shop)).collect();
    let decisions = decide(open.iter().map(|n| batch[*n]), &mut shop);
    lately.met(open.len() == batch.len() && decisions.iter().all(|one| matches!(one, Decision::Placed(_))));
    let decided = open.into_iter().zip(decisions).filter(|(_, decision)| !matches!(decision, Decision::Stands { .. }));
    let (places, outcomes): (Vec<usize>, Vec<Outcome<'_>>) =
        decided.map(|(n, decision)| (n, outcome(batch[n], decision, rules))).unzip();
    let written = outcomes.iter().all(Outcome::forgotten)
        || matches!(write(connection, &outcomes, shop.now, lease, rules).await?, Written::All(_));
    if written {
        places.into_iter().zip(outcomes).for_each(|(n, one)| came[n] = Outright::Settled(one.settled()));
    }
    Ok(came)
}

/// The batch as it will be decided if nothing has changed since somebody looked last and there is enough of everything.
fn guess<'a>(lately: &Lately, batch: &[&'a Asked], rules: &SettleRules) -> Option<(OffsetDateTime, Vec<Outcome<'a>>)> {
    let mut shop = lately.guess(batch)?;
    let decisions = decide(batch.iter().copied(), &mut shop);
    let fit =
        |(asked, decision): (&&Asked, &Decision)| matches!(decision, Decision::Placed(_)) && is_sure(asked, &shop);
    batch.iter().zip(&decisions).all(fit).then(|| {
        (shop.now, batch.iter().zip(decisions).map(|(asked, decision)| outcome(asked, decision, rules)).collect())
    })
}

/// Whether what is read without a lock can be held against what stands when it is written. Two orders of the same content at the
/// same time give themselves away only by the balance that both take from.
fn is_sure(asked: &Asked, shop: &Shop) -> bool {
    shop.balances.contains_key(&asked.account)
        && (asked.repeat_notice.is_none() || asked.request.method == Method::Balance)
}

fn outcome<'a>(asked: &'a Asked, decision: Decision, rules: &SettleRules) -> Outcome<'a> {
    let answer = (rules.render)(&decision, None);
    Outcome { asked, epoch: NEW_RECORD, decision, answer, standing: None, leaked: false }
}
