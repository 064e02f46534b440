//! Claiming: the way of whatever cannot be placed outright. All keys in one statement; who loses is told what stands.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Claimed, claim_request, next_batch};
use crate::app::{App, Inbox, Ticket};
use crate::checkout::settled::answer_of;
use crate::error::Error;
use crate::guard::key::Claim;
use crate::store::{ClaimRequest, StoreError};

/// The loop of the claimer.
pub(super) async fn work(app: App, mut waiting: Inbox, claimed: mpsc::UnboundedSender<Claimed>) {
    loop {
        let batch = next_batch(&mut waiting).await;
        if batch.is_empty() {
            return;
        }
        claim(&app, batch, &claimed).await;
    }
}

/// Claims a batch; one key whose row is held must not fail its neighbours, so then each is claimed for itself.
async fn claim(app: &App, batch: Vec<Ticket>, claimed: &mpsc::UnboundedSender<Claimed>) {
    let Some((batch, error)) = claim_together(app, batch, claimed).await else { return };
    if !matches!(error, StoreError::Busy(_)) {
        return refuse(batch, &error);
    }
    let alone = batch.len() == 1;
    let error = Arc::new(error);
    for ticket in batch {
        let (app, claimed, error) = (app.clone(), claimed.clone(), error.clone());
        tokio::spawn(async move {
            let Some(ticket) = tell_what_stands(&app, ticket).await else { return };
            if alone {
                refuse(vec![ticket], &error);
            } else if let Some((ticket, error)) = claim_together(&app, vec![ticket], &claimed).await {
                refuse(ticket, &error);
            }
        });
    }
}

/// Answers a repeat from what stands, which waits for no lock. What nothing stands for comes back.
async fn tell_what_stands(app: &App, ticket: Ticket) -> Option<Ticket> {
    let request = claim_request(&ticket);
    // By the table alone: in this process it is the ticket itself that runs.
    let Ok(Some(record)) = app.store.record(&request.id).await else { return Some(ticket) };
    match app.keys.lost(&request, record) {
        Claim::InProgress { lease_left } if lease_left.is_zero() => Some(ticket),
        stands => {
            ticket.answer(answer_of(stands));
            None
        }
    }
}

/// One claim for all: what was won goes on to the writers, everybody else is answered. On an error the batch comes back.
async fn claim_together(
    app: &App,
    batch: Vec<Ticket>,
    claimed: &mpsc::UnboundedSender<Claimed>,
) -> Option<(Vec<Ticket>, StoreError)> {
    let requests: Vec<ClaimRequest> = batch.iter().map(claim_request).collect();
    let claims = match app.keys.claim(&requests).await {
        Ok(claims) => claims,
        Err(error) => return Some((batch, error)),
    };
    for (mut ticket, claim) in batch.into_iter().zip(claims) {
        match claim {
            Claim::Claimed(won) => {
                ticket.entered = None; // the table says so now
                drop(claimed.send(Claimed { ticket, won }));
            }
            stands => ticket.answer(answer_of(stands)),
        }
    }
    None
}

fn refuse(batch: Vec<Ticket>, error: &StoreError) {
    tracing::warn!(orders = batch.len(), %error, "orders could not be claimed");
    for ticket in batch {
        ticket.answer(Err(Error::unavailable(&error.to_string())));
    }
}
