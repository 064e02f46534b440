//! What came back: counted, timed, and said in one line for scripts/bench.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

/// The longest time that is told apart, in microseconds.
const LONGEST: u64 = 60_000_000;

/// What one piece of work came to.
pub enum Outcome {
    /// Every answer was what it must be.
    Right,
    /// One was not; says what came instead.
    Wrong(String),
}

/// The counts of a thread, or of all.
pub struct Tally {
    /// Pieces of work with nothing but right answers, those after the end of the window included.
    pub right: u64,
    /// Those of them that were done within the window.
    pub in_time: u64,
    /// Replays among the answers.
    pub replayed: u64,
    /// Refusals among the answers.
    pub refused: u64,
    /// Answers that said "in progress".
    pub in_progress: u64,
    /// Pieces of work with a wrong answer.
    pub wrong: u64,
    /// Connections that broke, answers that could not be read or did not come.
    pub broken: u64,
    /// Lines to be written down: ids of acknowledged orders, or first answers.
    pub lines: Vec<u8>,
    example: String,
    times: Histogram<u64>,
}

impl Tally {
    /// Nothing yet.
    ///
    /// # Errors
    /// Never: the bounds are sound.
    pub fn new() -> Result<Self> {
        let times = Histogram::new_with_bounds(1, LONGEST, 3).context("a histogram")?;
        Ok(Self {
            right: 0,
            in_time: 0,
            replayed: 0,
            refused: 0,
            in_progress: 0,
            wrong: 0,
            broken: 0,
            lines: Vec::new(),
            example: String::new(),
            times,
        })
    }

    /// Counts a piece of work that took so long.
    pub fn count(&mut self, outcome: Outcome, took: Duration, in_time: bool) {
        match outcome {
            Outcome::Right => {
                self.right += 1;
                self.in_time += u64::from(in_time);
                self.times.saturating_record(u64::try_from(took.as_micros()).unwrap_or(LONGEST));
            }
            Outcome::Wrong(what) => {
                self.wrong += 1;
                self.show(what);
            }
        }
    }

    /// Counts a connection that broke.
    pub fn count_broken(&mut self, why: &anyhow::Error) {
        self.broken += 1;
        self.show(format!("{why:#}"));
    }

    fn show(&mut self, example: String) {
        if self.example.is_empty() {
            self.example = example;
        }
    }

    /// Notes a line for the file.
    pub fn note(&mut self, line: &[u8]) {
        self.lines.extend_from_slice(line);
        self.lines.push(b'\n');
    }

    /// Adds another thread's.
    ///
    /// # Errors
    /// Never: all histograms have the same bounds.
    pub fn add(&mut self, other: Self) -> Result<()> {
        self.right += other.right;
        self.in_time += other.in_time;
        self.replayed += other.replayed;
        self.refused += other.refused;
        self.in_progress += other.in_progress;
        self.wrong += other.wrong;
        self.broken += other.broken;
        self.lines.extend_from_slice(&other.lines);
        self.show(other.example);
        self.times.add(&other.times).context("a histogram")
    }

    /// Writes the noted lines down.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_lines(&self, path: &Path) -> Result<()> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        let mut file = BufWriter::new(file);
        file.write_all(&self.lines)?;
        Ok(file.flush()?)
    }

    /// Prints the one line, and before it an example of what was wrong.
    pub fn print(&self, window: Duration) {
        if !self.example.is_empty() {
            println!("WRONG ANSWER {}", self.example.split_ascii_whitespace().collect::<Vec<_>>().join(" "));
        }
        let millis = |micros: u64| Duration::from_micros(micros).as_secs_f64() * 1e3;
        let seconds = window.as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "a rate")]
        let (rate, each) = (self.in_time as f64 / seconds, 1e6 / self.right.max(1) as f64);
        let (user, kernel) = own_cpu();
        println!(
            "RESULT right={} replayed={} refused={} in_progress={} wrong={} broken={} seconds={seconds:.3} \
             rate={rate:.1} p50={:.3} p99={:.3} max={:.3} own_us={:.1} kernel_us={:.1}",
            self.right,
            self.replayed,
            self.refused,
            self.in_progress,
            self.wrong,
            self.broken,
            millis(self.times.value_at_quantile(0.5)),
            millis(self.times.value_at_quantile(0.99)),
            millis(self.times.max()),
            user * each,
            kernel * each,
        );
    }
}

/// CPU seconds of this process so far, its own and those the kernel took for it, to a hundredth; 0 where nobody tells.
fn own_cpu() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name, which may hold anything; utime and stime are the 14th and 15th field.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().skip(11);
    let mut seconds = || fields.next().and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0) / 100.0;
    (seconds(), seconds())
}
