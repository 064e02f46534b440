//! Work that nobody waits for: each worker is a `run_once` that returns what it did, and one loop that knows when to
//! pause. A worker that fails is logged and goes on; it stops between two runs when the service stops.

pub mod reconcile;
pub mod window;

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::error::Result;

/// The longest pause of the reconciler; with a short lease it looks more often.
const RECONCILE_PAUSE: Duration = Duration::from_secs(5);

/// Starts the workers that every process has, and the sweeper where it is wanted. They end when `stop` is cancelled, and
/// a shutdown that waits for `App::tasks` waits for the run that is under way.
pub fn start(app: &App, stop: &CancellationToken) {
    let pause = RECONCILE_PAUSE.min(app.config.lease / 4);
    if app.provider.is_some() {
        repeat(app, stop, "reconciler", pause, |app| async move { reconcile::run_once(&app).await });
    }
    if !app.config.sweep_interval.is_zero() {
        let pause = app.config.sweep_interval;
        repeat(app, stop, "payment window", pause, |app| async move { window::run_once(&app).await });
    }
}

fn repeat<W, F, C>(app: &App, stop: &CancellationToken, name: &'static str, pause: Duration, work: W)
where
    W: Fn(App) -> F + Send + Sync + 'static,
    F: Future<Output = Result<C>> + Send,
    C: Debug + Default + PartialEq + Send,
{
    let (app_, stop) = (app.clone(), stop.clone());
    app.spawn(async move {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            match work(app_.clone()).await {
                Ok(done) if done == C::default() => {}
                Ok(done) => tracing::info!(worker = name, ?done, "a worker has run"),
                Err(error) => tracing::warn!(worker = name, %error, "a worker has failed and will run again"),
            }
        }
    });
}
