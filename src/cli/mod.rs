//! The command line: what is asked for, the runtime it runs on, and the exit code.
//!
//! | exit code | means |
//! | --- | --- |
//! | 0 | done; of `serve`: stopped by a signal, what was claimed is finished |
//! | 1 | it could not be done: one line on stderr says why |
//! | 2 | it was asked for wrongly (a setting, a flag, a subcommand): one line names it |
//!
//! `serve` logs to stdout, since its log is all it prints; the others print their result there and log to stderr.

mod catalogue;
mod database;
mod gateway;
mod log;
mod records;
mod serve;
mod sweep;
mod token;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::config::{ConfigError, Settings};

/// What is left running after a command is not waited for longer than this.
const LINGER: Duration = Duration::from_secs(1);

/// One intent, one order, one charge
#[derive(Parser)]
#[command(name = "oncegate", version, about, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the pages and the API (also when no command is given)
    Serve,
    /// Bring the schema of the database up to date
    Migrate,
    /// Print a bearer token for the API
    Token(token::Wanted),
    /// The catalogue
    #[command(subcommand)]
    Products(Products),
    /// What is in stock
    #[command(subcommand)]
    Stock(Stock),
    /// Take away once what is over, and cancel what was not paid in time
    Sweep,
    /// What became of idempotency keys
    #[command(subcommand)]
    Records(records::Wanted),
    /// Stand in for the payment provider, in tests and trials
    Gateway(gateway::Wanted),
}

#[derive(Subcommand)]
enum Products {
    /// Add or update products: all of the file, or nothing when a line is bad
    Import {
        /// With the header line sku,name,unit_price,currency,stock
        #[arg(value_name = "FILE.csv")]
        file: PathBuf,
    },
}

#[derive(Subcommand)]
enum Stock {
    /// Set how many of a product are in stock
    Set {
        /// Of which product
        #[arg(value_name = "SKU")]
        sku: String,
        /// How many
        #[arg(value_name = "N")]
        stock: String,
    },
}

/// Why a command ended without success. `Display` is one line.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// Asked for wrongly: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Could not be done: exit code 1.
    #[error("{0}")]
    Failed(String),
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Bad { .. } => Self::Usage(error.to_string()),
            ConfigError::Io(_) => Self::Failed(error.to_string()),
        }
    }
}

/// Runs what the command line asks for.
#[must_use]
pub fn main() -> ExitCode {
    // `rediss://` takes the provider that the process has installed; another crate may have been first, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cli = Cli::parse();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let line = failure.to_string().replace(['\n', '\r'], " ");
            // Nobody is left to be told when stderr is closed.
            let _ = writeln!(io::stderr(), "oncegate: {line}");
            ExitCode::from(if matches!(failure, Failure::Usage(_)) { 2 } else { 1 })
        }
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    let Cli { command, settings } = cli;
    let command = command.unwrap_or(Command::Serve);
    log::start(&settings, matches!(command, Command::Serve))?;
    if let Command::Token(wanted) = &command {
        return token::print(&settings, wanted);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::Failed(format!("cannot start: {e}")))?;
    let outcome = runtime.block_on(async {
        match command {
            Command::Serve | Command::Token(_) => serve::run(&settings).await,
            Command::Migrate => database::migrate(&settings).await,
            Command::Products(Products::Import { file }) => catalogue::import(&settings, &file).await,
            Command::Stock(Stock::Set { sku, stock }) => catalogue::set_stock(&settings, &sku, &stock).await,
            Command::Sweep => sweep::run(&settings).await,
            Command::Records(wanted) => records::run(&settings, wanted).await,
            Command::Gateway(wanted) => gateway::run(wanted).await,
        }
    });
    runtime.shutdown_timeout(LINGER);
    outcome
}

/// Prints a command's result. A reader that has left (`| head`) is no failure.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}
