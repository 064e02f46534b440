//! The load of `scripts/bench`: clients that send, wait, and look at every answer, because a figure made of errors is
//! worse than none. Prints one line, `RESULT name=value …`, and before it `WRONG ANSWER …` with the first that was.
//!
//! A piece of work (an order, a replay, a form fetched and sent) is counted once and timed as a whole. What is under
//! way when the window ends is finished and counted in `right`, but not in `rate`; so whatever the database then
//! holds was acknowledged.

mod clients;
mod forms;
mod http;
mod mix;
mod orders;
mod plain;
mod replays;
mod shop;
mod tally;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

use clients::{Crowd, Run};
use orders::Keys;
use replays::{Firsts, Once, Replay};
use shop::{Fill, Shop};

#[derive(Parser)]
#[command(about, max_term_width = 100)]
struct Command {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Args)]
struct Common {
    /// Where the service listens
    #[arg(global = true, long, default_value = "127.0.0.1:3000")]
    address: SocketAddr,
    /// How many clients at once, each with a connection
    #[arg(global = true, long, default_value_t = 32)]
    clients: usize,
    /// How many threads they share
    #[arg(global = true, long, default_value_t = 1)]
    threads: usize,
    /// The window
    #[arg(global = true, long, default_value_t = 5.0)]
    seconds: f64,
    /// Pieces of work a second in all, begun at even times whatever the answers take, and timed from when they were due;
    /// without it a client begins when it has its answer
    #[arg(global = true, long)]
    rate: Option<u32>,
    /// Ends as soon as standard input does, even within the window
    #[arg(global = true, long)]
    while_input: bool,
    /// Bearer tokens, one a line: first that of an account without funds, then those of the others
    #[arg(global = true, long, default_value = "tokens")]
    tokens: PathBuf,
    /// How many products to choose from
    #[arg(global = true, long, default_value_t = 1000)]
    products: u32,
    /// Where to write the ids of acknowledged orders, or for `seed` the first answers
    #[arg(global = true, long)]
    out: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Mode {
    /// New orders by the API, each a new 201
    First {
        /// Different for each run: part of the keys
        #[arg(long)]
        run: String,
        /// Lines of an order
        #[arg(long, default_value_t = 1)]
        lines: usize,
    },
    /// Places the intents that are repeated later, each once, however long it takes
    Seed {
        #[arg(long)]
        intents: u32,
    },
    /// Repeats any of the seeded intents
    Replay {
        /// What `seed` wrote
        #[arg(long)]
        firsts: PathBuf,
        /// Only so many of them
        #[arg(long)]
        limit: Option<usize>,
    },
    /// Repeats each of the seeded intents once
    Compare {
        /// What `seed` wrote
        #[arg(long)]
        firsts: PathBuf,
    },
    /// Repeats each of the orders that sql/fill.sql wrote once, until the window is over
    Filled {
        /// How many it wrote
        #[arg(long)]
        orders: u64,
    },
    /// The order form fetched and sent by visitors with cookies
    Form {
        /// Visitors of all clients together
        #[arg(long, default_value_t = 2000)]
        visitors: usize,
    },
    /// 70 % first, 20 % replays, 5 % duplicates in flight, 5 % refusals
    Mix {
        /// What `seed` wrote
        #[arg(long)]
        firsts: PathBuf,
        /// Different for each run: part of the keys
        #[arg(long)]
        run: String,
    },
    /// Reads of an account
    Account,
    /// No service: plain SQLite statements in a loop, one commit per order
    Plain {
        /// A file with the service's schema and products
        #[arg(long)]
        database: PathBuf,
        /// How many accounts to choose from; they are opened
        #[arg(long)]
        accounts: u32,
    },
    /// No service: runs SQL statements on an SQLite file
    Sql {
        /// The file
        #[arg(long)]
        database: PathBuf,
        /// The statements
        statements: String,
    },
}

fn main() -> ExitCode {
    match run(Command::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("FAILED {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(Command { common, mode }: Command) -> Result<()> {
    if let Mode::Sql { database, statements } = mode {
        return plain::execute(&database, &statements);
    }
    let out = common.out.clone();
    let Run { tally, window } = load(&common, mode)?;
    if let Some(out) = out {
        tally.write_lines(&out)?;
    }
    tally.print(window);
    Ok(())
}

fn load(common: &Common, mode: Mode) -> Result<Run> {
    let window = Duration::try_from_secs_f64(common.seconds).context("--seconds")?;
    if let Mode::Plain { database, accounts } = mode {
        return plain::run(&database, accounts, common.products, window);
    }
    let shop = Arc::new(Shop::read(&common.tokens, common.products)?);
    let (clients, threads) = (common.clients.max(1), common.threads.max(1));
    let stop = Arc::new(AtomicBool::new(false));
    if common.while_input {
        let stop = stop.clone();
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            stop.store(true, Ordering::Relaxed);
        });
    }
    let crowd = Crowd { address: common.address, clients, threads, window, rate: common.rate, stop };
    let next = Arc::new(AtomicU64::new(0));
    match mode {
        Mode::First { run, lines } => crowd.run(|n| orders::First::new(&shop, Keys::new(&run, n), lines)),
        Mode::Seed { intents } => {
            let count = u32::try_from(clients)?;
            let client = |n| orders::Seed::new(&shop, u32::try_from(n).unwrap_or(u32::MAX), count, intents);
            Crowd { window: UNHURRIED, ..crowd }.run(client)
        }
        Mode::Replay { firsts, limit } => {
            let firsts = Arc::new(Firsts::read(&firsts, &shop)?.limited_to(limit.unwrap_or(usize::MAX)));
            crowd.run(|_| Replay::new(&shop, &firsts))
        }
        Mode::Compare { firsts } => {
            let firsts = Arc::new(Firsts::read(&firsts, &shop)?);
            Crowd { window: UNHURRIED, ..crowd }.run(|_| Once::new(&shop, &firsts, &next))
        }
        Mode::Filled { orders } => crowd.run(|_| Once::new(&shop, &Arc::new(Fill { orders }), &next)),
        Mode::Form { visitors } => crowd.run(|_| forms::Form::new(visitors / clients, common.products)),
        Mode::Mix { firsts, run } => {
            let firsts = Arc::new(Firsts::read(&firsts, &shop)?);
            crowd.run(|n| mix::Mix::new(&shop, &firsts, Keys::new(&run, n)))
        }
        Mode::Account => crowd.run(|_| orders::Account::new(&shop)),
        Mode::Plain { .. } | Mode::Sql { .. } => unreachable!("above"),
    }
}

/// For what ends by itself.
const UNHURRIED: Duration = Duration::from_secs(600);
