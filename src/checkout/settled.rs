//! What the use cases share: what a claim that was not won means, writing with patience, and answering a worker that was
//! overtaken.

use std::time::{Duration, Instant};

use crate::app::{App, Reply};
use crate::error::{Earlier, Error, Result};
use crate::guard::key::{Claim, Won};
use crate::order::values::Fingerprint;
use crate::store::{Answer, Change, ChangeRules, Changed, ClaimRequest, RecordId, RecordState, StoreError};

/// The operation's name in `idempotency_records`.
pub const PLACE: &str = "place_order";

/// How often a change is tried again after the connection broke. Fence, event row and state make that safe.
const RECONNECTS: u32 = 3;
/// The pause before that, growing.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// How often an overtaken worker looks for the other's answer.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Lets something happen to one order, tried again when the connection breaks.
///
/// # Errors
/// When the database gives no answer.
pub async fn persist(app: &App, change: &Change, rules: &ChangeRules) -> Result<Changed> {
    let mut tries = 0;
    loop {
        match app.store.change(change, rules).await {
            Err(StoreError::Unreachable(reason)) if tries < RECONNECTS => {
                tries += 1;
                tracing::warn!(%reason, tries, "a change is tried again after its connection broke");
                tokio::time::sleep(RECONNECT_PAUSE * tries).await;
            }
            result => return Ok(result?),
        }
    }
}

/// Claims one key, or says what stands.
///
/// # Errors
/// `InProgress`, `KeyReused`, `Unavailable`; an answer that was given before is the `Ok(Err(reply))`.
pub async fn claim_one(app: &App, id: RecordId, fingerprint: Fingerprint) -> Result<std::result::Result<Won, Reply>> {
    let request = ClaimRequest { id, fingerprint };
    match app.keys.claim(std::slice::from_ref(&request)).await?.pop() {
        Some(Claim::Claimed(won)) => Ok(Ok(won)),
        Some(stands) => answer_of(stands).map(Err),
        None => Err(Error::Internal("a claim without an answer".into())),
    }
}

/// A worker that lost its lease answers what the one that took over answered, or 503.
///
/// # Errors
/// `Unavailable` when there is no such answer by `deadline`.
pub async fn overtaken(app: &App, id: &RecordId, deadline: Instant) -> Result<Reply> {
    loop {
        match app.store.record(id).await?.map(|record| record.state) {
            Some(RecordState::Done(answer)) => return Ok(Reply { answer, replayed: true }),
            Some(RecordState::Processing { .. }) if Instant::now() < deadline => {
                tokio::time::sleep_until((Instant::now() + LOOK_AGAIN).min(deadline).into()).await;
            }
            Some(RecordState::Processing { .. }) | None => {
                return Err(Error::unavailable("the lease was lost to another worker"));
            }
        }
    }
}

/// What a claim that was not won means for its caller.
pub(super) fn answer_of(claim: Claim) -> Result<Reply> {
    match claim {
        Claim::Replay(answer) => Ok(Reply { answer, replayed: true }),
        Claim::InProgress { lease_left } => Err(Error::InProgress { lease_left }),
        Claim::Mismatch(state) => Err(Error::KeyReused(earlier(&state))),
        Claim::Claimed(_) => Err(Error::Internal("a won claim was not worked on".into())),
    }
}

/// What the earlier request under a key became.
pub(super) fn earlier(state: &RecordState) -> Earlier {
    match state {
        RecordState::Processing { .. } => Earlier::Processing,
        RecordState::Done(Answer { order: Some(order), .. }) => Earlier::Order(*order),
        RecordState::Done(_) => Earlier::Refused,
    }
}
