//! Layer 2: the idempotency key. One atomic claim per key; whoever does not win it is told what stands.
//!
//! Lease and retention are two times: a claim without an outcome is honoured for one *lease*, an answer is replayed for
//! the *key TTL*. Only the database's clock judges either. Every take-over raises the *epoch*, the fence number
//! under which results are written; work done under an older epoch hits no row (fencing as in Kleppmann, "How to do
//! distributed locking", 2016). The key's meaning follows draft-ietf-httpapi-idempotency-key-header.
//!
//! What is replayed all the time is given from memory for a moment (`recent`); everything else is the table's to say.
//!
//! Nothing here knows what the work is: a claim is taken, the work is done by whoever holds it, and then completed
//! or released.

mod recent;
mod running;

use std::sync::Arc;
use std::time::Duration;

use super::decided::Decided;
use crate::order::values::{AccountId, Fingerprint};
use crate::store::{Answer, Buyer, ClaimRequest, ClaimResult, Fence, Record, RecordId, RecordState, Result, Store};
use recent::Recent;
pub use running::Entered;
use running::Running;

/// What became of a claim.
#[derive(Clone, Debug)]
pub enum Claim {
    /// The work is ours: do it, then [`Keys::complete`] or [`Keys::release`].
    Claimed(Won),
    /// The same content was answered before.
    Replay(Answer),
    /// The same content is under way.
    InProgress {
        /// What is left of its lease.
        lease_left: Duration,
    },
    /// The key was used for other content; this is how far that is.
    Mismatch(RecordState),
}

/// A claim that was won.
#[derive(Clone, Debug)]
pub struct Won {
    /// What results are written under.
    pub fence: Fence,
    /// Whether it was taken over from a worker that did not finish in its lease.
    pub taken_over: bool,
}

/// The layer, over one store.
#[derive(Clone)]
pub struct Keys {
    store: Arc<dyn Store>,
    lease: Duration,
    key_ttl: Duration,
    recent: Recent,
    running: Running,
}

impl Keys {
    /// `lease`: how long a claim is honoured without an outcome. `key_ttl`: how long an answer is replayed.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, lease: Duration, key_ttl: Duration) -> Self {
        Self { store, lease, key_ttl, recent: Recent::new(), running: Running::default() }
    }

    /// Claims each key, all in one statement; one answer per request, in their order. The same key twice in one
    /// call is claimed by the first of them, and the others are told that it is under way.
    ///
    /// # Errors
    /// When the database gives no answer; then nothing is known to be claimed, and what was is free again when its lease ends.
    pub async fn claim(&self, requests: &[ClaimRequest]) -> Result<Vec<Claim>> {
        let mut leaders: Vec<ClaimRequest> = Vec::with_capacity(requests.len());
        let mut leader_of = Vec::with_capacity(requests.len());
        let mut seen = std::collections::HashMap::with_capacity(requests.len());
        for request in requests {
            let leader = *seen.entry(&request.id).or_insert_with(|| {
                leaders.push(request.clone());
                leaders.len() - 1
            });
            leader_of.push(leader);
        }
        let results = self.store.claim(&leaders, self.lease).await?;
        let mut taken = vec![false; leaders.len()];
        let claims = requests.iter().zip(leader_of).map(|(request, leader)| match &results[leader] {
            ClaimResult::Won { epoch, taken_over } if !std::mem::replace(&mut taken[leader], true) => {
                let fence = Fence { id: request.id.clone(), epoch: *epoch };
                Claim::Claimed(Won { fence, taken_over: *taken_over })
            }
            ClaimResult::Won { epoch, .. } => judge(
                Record {
                    fingerprint: leaders[leader].fingerprint.clone(),
                    epoch: *epoch,
                    state: RecordState::Processing { lease_left: self.lease },
                },
                &request.fingerprint,
            ),
            ClaimResult::Lost(record) => {
                self.recent.saw(&request.id, record);
                judge(record.clone(), &request.fingerprint)
            }
        });
        Ok(claims.zip(requests).map(|(claim, request)| count(claim, &request.id)).collect())
    }

    /// Comes in with a key; or waits for whoever of this process is in with it, and is told what stands since.
    ///
    /// # Errors
    /// What stands.
    pub async fn enter(&self, id: &RecordId, content: &Fingerprint) -> std::result::Result<Entered, Claim> {
        self.running.enter(id, content).await.map_err(|record| count(judge(record, content), id))
    }

    /// What stands under the key of a request that was not claimed.
    #[must_use]
    pub fn lost(&self, request: &ClaimRequest, record: Record) -> Claim {
        self.recent.saw(&request.id, &record);
        count(judge(record, &request.fingerprint), &request.id)
    }

    /// A claim that was written together with its outcome, as the first of its key.
    #[must_use]
    pub fn won(&self, id: &RecordId) -> Won {
        super::count(Decided::Claimed, || id.into());
        Won { fence: Fence { id: id.clone(), epoch: 1 }, taken_over: false }
    }

    /// The answer to what was replayed again and again a moment ago; `None`: the table has to be asked.
    #[must_use]
    pub fn replayed_lately(&self, id: &RecordId, content: &Fingerprint) -> Option<Claim> {
        Some(count(Claim::Replay(self.recent.answer(id, content)?), id))
    }

    /// What stands under a key for this content, without claiming it; `None`: no record. Counts nothing.
    ///
    /// # Errors
    /// When the database gives no answer.
    pub async fn look(&self, id: &RecordId, content: &Fingerprint) -> Result<Option<Claim>> {
        // Other content that runs may still lose to this one.
        let stands = self.record(id).await?.map(|(record, known)| (judge(record, content), known));
        Ok(stands.filter(|(claim, known)| *known || matches!(claim, Claim::InProgress { .. })).map(|(claim, _)| claim))
    }

    /// The record of this key as the table knows it (`true`), or as it will be if what runs in this process comes to its end.
    ///
    /// # Errors
    /// When the database gives no answer.
    pub async fn record(&self, id: &RecordId) -> Result<Option<(Record, bool)>> {
        let runs = self.running.content(id); // before the table: what has left since is in there
        let stands = self.store.record(id).await?.map(|record| (record, true));
        let state = RecordState::Processing { lease_left: self.lease };
        Ok(stands.or_else(|| Some((Record { fingerprint: runs?, epoch: 1, state }, false))))
    }

    /// The account as a form needs it; under way is the youngest of its keys in the table, or what runs in this process and is not in
    /// the table yet.
    ///
    /// # Errors
    /// When the database gives no answer.
    pub async fn buyer(&self, account: AccountId) -> Result<Buyer> {
        let runs = self.running.of(account); // before the table: what has left since is in there
        let mut buyer = self.store.buyer(account).await?;
        if let (None, Some(id)) = (&buyer.under_way, runs)
            && self.store.record(&id).await?.is_none()
        {
            // A repeat of what is finished runs as well, for a moment; this is none.
            buyer.under_way = Some(id.key);
        }
        Ok(buyer)
    }

    /// Stores the answer under a claim; `false`: the claim was taken over meanwhile and nothing was stored.
    ///
    /// # Errors
    /// When the database gives no answer; whether it was stored is then unknown, and a retry finds out.
    pub async fn complete(&self, fence: &Fence, answer: &Answer) -> Result<bool> {
        let kept = self.store.complete(fence, answer, self.key_ttl).await?;
        if !kept {
            lease_lost(&fence.id);
        }
        Ok(kept)
    }

    /// Gives claims up, so that a retry runs at once instead of after the lease. Harmless when they were taken over.
    ///
    /// # Errors
    /// When the database gives no answer; the leases then run out by themselves.
    pub async fn release(&self, fences: &[Fence]) -> Result<()> {
        self.store.release(fences).await
    }
}

/// Compares the content before the state: another body is told so even while the first is under way, or its client
/// would wait in vain.
fn judge(record: Record, content: &Fingerprint) -> Claim {
    if record.fingerprint != *content {
        return Claim::Mismatch(record.state);
    }
    match record.state {
        RecordState::Done(answer) => Claim::Replay(answer),
        RecordState::Processing { lease_left } => Claim::InProgress { lease_left },
    }
}

/// Counts what became of a claim, and hands it on.
fn count(claim: Claim, id: &RecordId) -> Claim {
    let decided = match &claim {
        Claim::Claimed(Won { taken_over: false, .. }) => Decided::Claimed,
        Claim::Claimed(Won { taken_over: true, .. }) => Decided::TakenOver,
        Claim::Replay(_) => Decided::Replayed,
        Claim::InProgress { .. } => Decided::InProgress,
        Claim::Mismatch(_) => Decided::Mismatched,
    };
    super::count(decided, || id.into());
    claim
}

/// Counts a result that hit no row because its claim was taken over.
pub fn lease_lost(id: &RecordId) {
    super::count(Decided::LeaseLost, || id.into());
}
