//! The driver's process, and with it the browser's.

use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// How often it may lose the race for its port: it takes a free one on IPv6, and then wants the same on IPv4.
const STARTS: usize = 10;
/// How long the end of all its processes is waited for, so that none writes into a folder that is being removed.
const END_WITHIN: Duration = Duration::from_secs(2);

/// A running chromedriver; it and the browsers it started are killed when this is dropped.
pub struct Chromedriver {
    child: Child,
    port: u16,
    _stdout: Lines<BufReader<ChildStdout>>,
}

impl Chromedriver {
    pub async fn start() -> Self {
        for _ in 0..STARTS {
            if let Some(started) = Self::launch().await {
                return started;
            }
        }
        panic!("chromedriver does not start");
    }

    async fn launch() -> Option<Self> {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Its browsers stay in its group: one signal ends them all, also after a panic.
        let mut child = command.process_group(0).spawn().expect("chromedriver must be installed (chromium-driver)");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some((_, port)) = line.split_once("successfully on port ") {
                let port = port.trim_end_matches('.').parse().unwrap();
                return Some(Self { child, port, _stdout: lines });
            }
        }
        None
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Chromedriver {
    fn drop(&mut self) {
        let Some(id) = self.child.id() else { return };
        let group = Pid::from_raw(i32::try_from(id).unwrap());
        let _ = killpg(group, Signal::SIGKILL);
        let begun = Instant::now();
        while killpg(group, None).is_ok() && begun.elapsed() < END_WITHIN {
            let _ = self.child.try_wait();
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
