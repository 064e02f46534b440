//! The program itself as a child process: run to its end, or running as a service.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Longer than anything that is waited for takes, also on a starved machine.
const PATIENCE: Duration = Duration::from_secs(40);
/// Long enough to be a secret.
pub const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// The program, in a folder and with an environment of the test's own.
pub fn program(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncegate"));
    command.env_clear().envs(env.iter().copied()).args(args).current_dir(folder);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs the program to its end.
pub async fn run(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    let output = program(folder, args, env).output();
    timeout(PATIENCE, output).await.expect("it ends").unwrap()
}

/// Its result.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What it says about a failure.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A running service; killed when dropped.
pub struct Service {
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
    /// The lines of its log so far.
    pub log: Vec<String>,
    /// Where buyers and clients come in.
    pub main: SocketAddr,
    /// Where operators come in.
    pub ops: SocketAddr,
}

impl Service {
    /// Starts it on free ports, and waits until it listens.
    pub async fn start(folder: &Path, env: &[(&str, &str)]) -> Self {
        let ports = ["--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"];
        let mut child = program(folder, &ports, env).stdout(Stdio::piped()).spawn().unwrap();
        let lines = follow(child.stdout.take().unwrap());
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut service = Self { child, lines, log: Vec::new(), main: nowhere, ops: nowhere };
        service.main = service.wait_for("listening on http://").await.parse().unwrap();
        service.ops = service.wait_for("ops on http://").await.parse().unwrap();
        service
    }

    /// Reads the log up to a line with these words; answers what follows them, up to a quotation mark.
    pub async fn wait_for(&mut self, words: &str) -> String {
        loop {
            let line = timeout(PATIENCE, self.lines.recv()).await.expect("it says so in time");
            let line = line.unwrap_or_else(|| panic!("it ended without saying {words:?}: {:#?}", self.log));
            self.log.push(line.clone());
            if let Some((_, rest)) = line.split_once(words) {
                return rest.split('"').next().unwrap().to_owned();
            }
        }
    }

    /// Whether it has logged a line with these words so far.
    pub fn has_said(&mut self, words: &str) -> bool {
        while let Ok(line) = self.lines.try_recv() {
            self.log.push(line);
        }
        self.log.iter().any(|line| line.contains(words))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id().expect("it still runs")).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    /// Reads its log to the end and waits for its exit code.
    pub async fn end(mut self) -> (Option<i32>, Vec<String>) {
        while let Some(line) = timeout(PATIENCE, self.lines.recv()).await.expect("it ends") {
            self.log.push(line);
        }
        let status = timeout(PATIENCE, self.child.wait()).await.expect("it ends").unwrap();
        (status.code(), self.log)
    }

    /// What an operator reads off one counter of the contract's section 9.
    pub async fn counted(&self, layer: &str, decision: &str) -> u64 {
        let numbers = self.get_ops("/metrics").await.text().await.unwrap();
        let name = format!("oncegate_layer_decisions_total{{layer=\"{layer}\",decision=\"{decision}\"}} ");
        numbers.lines().find_map(|line| line.strip_prefix(&name)).expect("it is counted").parse().unwrap()
    }

    /// `GET` on the main listener.
    pub async fn get(&self, path: &str) -> reqwest::Response {
        super::http().build().unwrap().get(format!("http://{}{path}", self.main)).send().await.unwrap()
    }

    /// `GET` on the operators' listener.
    pub async fn get_ops(&self, path: &str) -> reqwest::Response {
        super::http().build().unwrap().get(format!("http://{}{path}", self.ops)).send().await.unwrap()
    }
}

/// Reads on all the time: a service that logs much must not wait for a test that reads little.
fn follow(stdout: ChildStdout) -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut lines = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let _ = sender.send(line);
        }
    });
    receiver
}
