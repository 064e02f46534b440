//! `sweep`: one pass by hand, or by a timer of the machine's own.

use tokio_util::sync::CancellationToken;

use super::{Failure, database, say};
use crate::config::{self, Settings};
use crate::worker::sweep::{self, Rules};

/// Sweeps once and prints what was done as JSON. Stopped half-way it has done what it has done.
pub(super) async fn run(settings: &Settings) -> Result<(), Failure> {
    let rules = Rules { payment_window: config::payment_window(settings)?, lock_wait: database::PATIENCE };
    let (database, store) = database::open_for_command(settings).await?;
    let swept = sweep::run_once(&*store, &rules, &CancellationToken::new()).await;
    store.close().await;
    let swept = swept.map_err(|e| Failure::Failed(format!("{database}: {e}; what was swept before stays so")))?;
    let line = serde_json::to_string(&swept).map_err(|e| Failure::Failed(e.to_string()))?;
    say(&line);
    Ok(())
}
