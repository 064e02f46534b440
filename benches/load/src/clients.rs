//! Clients that each wait for their answer before they go on, spread over few threads, all for one window of time: as
//! fast as they can, or at a given rate.

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tokio::task::LocalSet;
use tokio::time::{sleep_until, timeout_at};

use crate::http::Connection;
use crate::tally::{Outcome, Tally};

/// An answer that takes longer than this after the window counts as broken.
const PATIENCE: Duration = Duration::from_secs(20);
/// A client whose connections break so often gives up.
const MOST_BROKEN: u32 = 20;

/// The tally of a thread: its clients take turns, and none holds it while it waits.
pub type Shared = Rc<RefCell<Tally>>;

/// What a client does, over and over.
pub trait Client {
    /// Makes the next piece of work ready; `false`: there is nothing left to do.
    fn next(&mut self) -> bool {
        true
    }

    /// One piece of work, timed as a whole.
    fn work(&mut self, connection: &mut Connection, tally: &Shared) -> impl Future<Output = Result<Outcome>>;
}

/// How many, where to, how long.
pub struct Crowd {
    /// Where the service listens.
    pub address: SocketAddr,
    /// Clients, each with a connection.
    pub clients: usize,
    /// Threads they share.
    pub threads: usize,
    /// The window. Work under way at its end is finished and counted, but not in the rate.
    pub window: Duration,
    /// Pieces of work a second in all, begun at even times whatever the answers take, and each timed from when it was
    /// due. Without it a client begins when it has its answer.
    pub rate: Option<u32>,
    /// Ends the window early once it is set.
    pub stop: Arc<AtomicBool>,
}

/// What all clients together came to, and the time it took: the window, or less when nothing was left to do.
pub struct Run {
    /// The counts.
    pub tally: Tally,
    /// The time that the rate is of.
    pub window: Duration,
}

impl Crowd {
    /// Lets the clients that `make` makes (given their number) work until the window is over.
    ///
    /// # Errors
    /// When a connection cannot be opened to begin with.
    pub fn run<C: Client + 'static>(&self, make: impl Fn(usize) -> C + Sync) -> Result<Run> {
        let gate = Barrier::new(self.threads);
        let all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let (gate, make) = (&gate, &make);
                    scope.spawn(move || self.thread(thread, gate, make))
                })
                .collect();
            threads.into_iter().map(|t| t.join().map_err(|_| anyhow!("a thread died"))).collect::<Result<Vec<_>>>()
        })?;
        let mut run = Run { tally: Tally::new()?, window: Duration::ZERO };
        for one in all {
            let one = one?;
            run.tally.add(one.tally)?;
            run.window = run.window.max(one.window);
        }
        Ok(run)
    }

    fn thread<C: Client + 'static>(
        &self,
        thread: usize,
        gate: &Barrier,
        make: &(impl Fn(usize) -> C + Sync),
    ) -> Result<Run> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let connections = runtime.block_on(self.connect(thread));
        // Also when there are none: the other threads wait here.
        gate.wait();
        let tally: Shared = Rc::new(RefCell::new(Tally::new()?));
        let (begun, local) = (Instant::now(), LocalSet::new());
        let end = begun + self.window;
        for (number, connection) in connections? {
            let pace = self.pace(number, begun);
            let time = Time { end, stop: self.stop.clone(), pace };
            local.spawn_local(client(make(number), connection, time, tally.clone()));
        }
        let patience = (end + PATIENCE).into();
        let finished = runtime.block_on(async { timeout_at(patience, local).await.is_ok() });
        let window = begun.elapsed().min(self.window);
        let mut tally = tally.replace(Tally::new()?);
        if !finished {
            tally.count_broken(&anyhow!("no answer within {PATIENCE:?}"));
        }
        Ok(Run { tally, window })
    }

    /// The clients take turns, evenly spread.
    fn pace(&self, client: usize, begun: Instant) -> Option<Pace> {
        let rate = self.rate?;
        let seconds = |n: usize| Duration::from_secs(u64::try_from(n).unwrap_or(u64::MAX));
        Some(Pace { next: begun + seconds(client) / rate, every: seconds(self.clients) / rate })
    }

    async fn connect(&self, thread: usize) -> Result<Vec<(usize, Connection)>> {
        let mut connections = Vec::new();
        for number in (thread..self.clients).step_by(self.threads) {
            let connection = Connection::open(self.address).await;
            connections.push((number, connection.with_context(|| format!("connecting to {}", self.address))?));
        }
        Ok(connections)
    }
}

/// When a client begins its work, and until when.
struct Time {
    end: Instant,
    stop: Arc<AtomicBool>,
    pace: Option<Pace>,
}

struct Pace {
    next: Instant,
    every: Duration,
}

impl Time {
    /// Waits for the next piece of work to be due, and says since when it is; `None`: time is up.
    async fn due(&mut self) -> Option<Instant> {
        let due = match &mut self.pace {
            Some(pace) => {
                let due = pace.next;
                pace.next += pace.every;
                sleep_until(due.min(self.end).into()).await;
                due
            }
            None => Instant::now(),
        };
        (due < self.end && !self.stop.load(Ordering::Relaxed)).then_some(due)
    }
}

async fn client(mut client: impl Client, mut connection: Connection, mut time: Time, tally: Shared) {
    let mut broken = 0;
    while broken < MOST_BROKEN && client.next() {
        let Some(due) = time.due().await else { break };
        let worked = client.work(&mut connection, &tally).await;
        let now = Instant::now();
        match worked {
            Ok(outcome) => tally.borrow_mut().count(outcome, now - due, now < time.end),
            Err(why) => {
                tally.borrow_mut().count_broken(&why);
                broken += 1;
                match connection.another().await {
                    Ok(another) => connection = another,
                    Err(_) => break,
                }
            }
        }
    }
}
