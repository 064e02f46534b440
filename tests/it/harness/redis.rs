//! The Redis that tests share, and throw-away ones for tests that must be alone.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use oncegate::config::{RedactedUrl, Redis};
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

/// The shared server, in a database of the test's own; `None` when this run is on memory alone.
///
/// Two tests may draw the same number: look only for what the test itself wrote.
pub fn shared() -> Option<String> {
    let url = std::env::var("TEST_REDIS_URL").ok()?;
    let random = u16::from_be_bytes(*uuid::Uuid::new_v4().as_bytes().first_chunk().unwrap());
    Some(format!("{}/{}", url.trim_end_matches('/'), random % 4096))
}

/// A cluster's nodes; `None` when this run has none.
pub fn cluster() -> Option<Redis> {
    let url = std::env::var("TEST_REDIS_CLUSTER_URL").ok()?;
    let nodes = url.split('?').next().unwrap().split(',');
    Some(Redis::Cluster(nodes.map(|node| RedactedUrl::new(node.trim_end_matches('/').to_owned())).collect()))
}

/// Host and port of a URL.
pub fn address(url: &str) -> SocketAddr {
    let rest = url.split("://").nth(1).unwrap();
    rest.split('/').next().unwrap().parse().unwrap()
}

/// The same URL with another host and port (a proxy's).
pub fn through(url: &str, addr: SocketAddr) -> String {
    url.replace(&address(url).to_string(), &addr.to_string())
}

/// As the setting.
pub fn single(url: &str) -> Redis {
    Redis::Single(RedactedUrl::new(url.to_owned()))
}

/// A connection of the test's own, to look behind the service's back.
pub async fn connect(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// A server of the test's own, on a Unix socket: no port to be taken by others. On a port too where the service itself has
/// to reach it, which knows no sockets.
pub struct Server {
    child: Child,
    dir: TempDir,
    options: Vec<String>,
    port: Option<u16>,
}

impl Server {
    /// Starts and waits until it answers.
    pub async fn start(options: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let child = Self::launch(&dir, &options);
        let server = Self { child, dir, options, port: None };
        server.ready().await;
        server
    }

    /// The same on a free port of 127.0.0.1. Whoever is faster gets the port, and then another is tried.
    pub async fn on_a_port() -> Self {
        for _ in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
            let dir = TempDir::new().unwrap();
            // The last of two options counts.
            let options = ["--bind", "127.0.0.1", "--port", &port.to_string()].map(str::to_owned).to_vec();
            let child = Self::launch(&dir, &options);
            let mut server = Self { child, dir, options, port: Some(port) };
            let client = redis::Client::open(format!("unix://{}/socket", server.dir.path().display())).unwrap();
            while server.child.try_wait().unwrap().is_none() {
                if client.get_multiplexed_async_connection().await.is_ok() {
                    return server;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        panic!("no free port");
    }

    /// How it is reached.
    pub fn url(&self) -> String {
        match self.port {
            Some(port) => format!("redis://127.0.0.1:{port}/"),
            None => format!("unix://{}/socket", self.dir.path().display()),
        }
    }

    /// Stops it, or lets it go on.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id().expect("it still runs")).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    /// Kills it; what it held is gone.
    pub async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Starts it again, empty, at the same place.
    pub async fn restart(&mut self) {
        self.child = Self::launch(&self.dir, &self.options);
        self.ready().await;
    }

    fn launch(dir: &TempDir, options: &[String]) -> Child {
        Command::new("redis-server")
            .args(["--port", "0", "--unixsocket", "socket", "--save", "", "--appendonly", "no", "--dir"])
            .arg(dir.path())
            .args(options)
            .current_dir(dir.path())
            .stdout(std::process::Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("redis-server must be installed")
    }

    async fn ready(&self) {
        let client = redis::Client::open(self.url()).unwrap();
        eventually("redis-server answers", async || client.get_multiplexed_async_connection().await.is_ok()).await;
    }
}

/// Waits for a condition, for up to ten seconds.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < Duration::from_secs(10), "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
