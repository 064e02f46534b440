//! Races against the real binary, in one process and in two: whatever comes at once, each intent becomes one order, and
//! nobody who repeats is told anything that makes him order again.

mod layers;
mod repeats;
mod stock;

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// Runs so many pieces of work and lets them all begin at the same moment; their results in the order of `n`.
pub(crate) async fn at_once<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
    count: usize,
    work: impl Fn(usize) -> W,
) -> Vec<T> {
    let start = Arc::new(Barrier::new(count));
    let mut running = JoinSet::new();
    for n in 0..count {
        let (start, work) = (start.clone(), work(n));
        running.spawn(async move {
            start.wait().await;
            (n, work.await)
        });
    }
    let mut done = running.join_all().await;
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}
