//! The gathering desk, where orders of both faces meet.
//!
//! Whatever waits is taken at once, up to [`BATCH`], without ever waiting for more: idle, that is a batch of one; under
//! load, one disk flush and one row lock per product serve dozens of orders. (Duplicates of what runs here already do not get this far:
//! see [`Keys::enter`](crate::guard::key::Keys::enter).)
//!
//! There are two ways from there:
//!
//! 1. *outright*: what nothing stands for is placed together with its record, in one transaction without a claim. Nearly
//!    everything goes this way. Repeats of what is finished are answered on it. It waits for nothing long and is never
//!    sure of more than it wrote: what it leaves undone (a row that is held, a claim that is to be taken over, something that
//!    changed meanwhile) goes
//! 2. the way of the claims: the *claimer* claims all keys in one statement and answers those that somebody else holds; the
//!    *writers* settle what was won, each batch in one transaction, and one by one when it fails as a whole, so that one
//!    bad order never fails its neighbours.
//!
//! The work belongs to the desk: a caller that leaves cannot cut it in half.

mod claims;
mod held;
mod outright;
mod settling;

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Mutex, mpsc};

use crate::app::{App, Inbox, Ticket};
use crate::guard::key::Won;
use crate::store::{ClaimRequest, RecordId};

use super::settled::PLACE;
use held::Held;
use settling::Settling;

/// The most orders that are placed, claimed or settled at once: past that a batch saves little and its first waits longer.
pub const BATCH: usize = 64;

/// A ticket whose key was won.
struct Claimed {
    ticket: Ticket,
    won: Won,
}

/// What waits for several workers.
type Waiting<T> = Arc<Mutex<mpsc::UnboundedReceiver<T>>>;

/// Opens the desk, which runs as long as the app. `writers`: how many batches are written at once on either way (2 on PostgreSQL,
/// so that one is prepared while another waits for the disk; 1 on SQLite).
pub fn open(app: &App, inbox: Inbox, writers: usize) {
    // Unbounded, yet bounded: every ticket holds one of the app's seats until it is answered.
    let (undone, to_claim) = mpsc::unbounded_channel();
    let (claimed, to_settle) = mpsc::unbounded_channel();
    let (to_place, to_settle): (Waiting<_>, Waiting<_>) =
        (Arc::new(Mutex::new(inbox)), Arc::new(Mutex::new(to_settle)));
    let settling = Settling::new(app, Arc::new(Held::default()));
    for _ in 0..writers {
        tokio::spawn(outright::work(settling.clone(), to_place.clone(), undone.clone()));
        tokio::spawn(settling.clone().work(to_settle.clone()));
    }
    tokio::spawn(claims::work(app.clone(), to_claim, claimed));
}

/// What has come in by now: as much as one batch takes, without those whose callers have given up. Empty: nothing ever will.
async fn next_batch(waiting: &mut Inbox) -> Vec<Ticket> {
    let mut batch = Vec::with_capacity(BATCH);
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        batch.retain(|ticket| ticket.deadline > Instant::now());
        if !batch.is_empty() {
            break;
        }
    }
    batch
}

fn claim_request(ticket: &Ticket) -> ClaimRequest {
    let asked = &ticket.asked;
    let id = RecordId { account: asked.account, operation: PLACE, key: asked.key.clone() };
    ClaimRequest { id, fingerprint: asked.fingerprint.clone() }
}
