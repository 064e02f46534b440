//! Placing outright: what nothing stands for, in one transaction without a claim; and answers to repeats from what stands.

use std::time::Duration;

use tokio::sync::mpsc;

use super::settling::Settling;
use super::{Claimed, Waiting, claim_request, next_batch};
use crate::app::Ticket;
use crate::checkout::settled::answer_of;
use crate::order::decide::{Asked, Decision};
use crate::store::{Outright, PATIENCE, Record, RecordState, Settled, StoreError};

/// The loop of one writer.
pub(super) async fn work(settling: Settling, waiting: Waiting<Ticket>, undone: mpsc::UnboundedSender<Ticket>) {
    loop {
        let batch = next_batch(&mut *waiting.lock().await).await;
        if batch.is_empty() {
            return;
        }
        // Goods that somebody holds are waited for aside.
        let (aside, batch): (Vec<_>, Vec<_>) = batch.into_iter().partition(|ticket| settling.held.stops(&ticket.asked));
        aside.into_iter().for_each(|ticket| drop(undone.send(ticket)));
        if !batch.is_empty() {
            place(&settling, batch, &undone).await;
        }
    }
}

async fn place(settling: &Settling, batch: Vec<Ticket>, undone: &mpsc::UnboundedSender<Ticket>) {
    let app = &settling.app;
    let asked: Vec<&Asked> = batch.iter().map(|ticket| &ticket.asked).collect();
    let came = match app.store.place(&asked, app.config.lease, &settling.rules(PATIENCE)).await {
        Ok(came) => came,
        Err(error) => {
            let orders = batch.len();
            match &error {
                // The claims may do better, but it has to be looked at.
                StoreError::Broken(_) => tracing::warn!(orders, %error, "a batch could not be placed outright"),
                _ => tracing::debug!(orders, %error, "a batch goes the way of the claims"),
            }
            vec![Outright::Undone; batch.len()]
        }
    };
    for (mut ticket, came) in batch.into_iter().zip(came) {
        let stands = stands(&came, &ticket, app.config.lease);
        if let (Some(entered), Some(record)) = (ticket.entered.take_if(|_| stands.is_some()), stands) {
            entered.tell(record);
        }
        match came {
            Outright::Settled(settled) => {
                let won = app.keys.won(&claim_request(&ticket).id);
                settling.give(Claimed { ticket, won }, settled);
            }
            Outright::Stands(record) => {
                let claim = app.keys.lost(&claim_request(&ticket), record);
                ticket.answer(answer_of(claim));
            }
            Outright::Undone => drop(undone.send(ticket)),
        }
    }
}

/// The record that stands since, for those who came with the same key meanwhile.
fn stands(came: &Outright, ticket: &Ticket, lease: Duration) -> Option<Record> {
    let state = match came {
        Outright::Stands(record) => return Some(record.clone()),
        Outright::Settled(Settled::Decided {
            decision: Decision::Placed(_) | Decision::Refused(_), answer, ..
        }) => RecordState::Done(answer.clone()),
        Outright::Settled(Settled::Unpaid(_)) => RecordState::Processing { lease_left: lease },
        Outright::Settled(_) | Outright::Undone => return None,
    };
    Some(Record { fingerprint: ticket.asked.fingerprint.clone(), epoch: 1, state })
}
