//! The log: where to, how much, in which form.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use super::Failure;
use crate::config::{Settings, name};

const FILTERS: &str =
    "a level (error, warn, info, debug, trace, off), or a list of them and TARGET=LEVEL such as info,oncegate=debug";

/// Starts the log, on stdout or stderr.
pub(super) fn start(settings: &Settings, on_stdout: bool) -> Result<(), Failure> {
    let filter = settings.log_filter()?.unwrap_or("info");
    let usable = filter.split(',').all(is_directive).then(|| EnvFilter::builder().parse(filter).ok()).flatten();
    let bad = || Failure::Usage(format!("{} is {filter:?}; allowed: {FILTERS}", name::LOG));
    let filter = usable.ok_or_else(bad)?;
    let json = settings.log_is_json()?;
    let terminal = if on_stdout { io::stdout().is_terminal() } else { io::stderr().is_terminal() };
    let writer = if on_stdout { BoxMakeWriter::new(io::stdout) } else { BoxMakeWriter::new(io::stderr) };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(terminal && !json).with_writer(writer);
    // It fails only where a log is set already, by tests that run in one process.
    let _ = if json { log.json().flatten_event(true).try_init() } else { log.try_init() };
    std::panic::set_hook(Box::new(|panic| tracing::error!("{}", panic.to_string().replace('\n', " "))));
    Ok(())
}

/// Whether this part of a filter says what it seems to. A bare word that is no level would be taken for a target at full
/// detail, and silence everything else: a mistake, most likely (`verbose`).
fn is_directive(part: &str) -> bool {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    part.contains(['=', '[']) || LEVELS.iter().any(|level| part.trim().eq_ignore_ascii_case(level))
}
