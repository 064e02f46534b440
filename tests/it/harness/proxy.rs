//! A TCP proxy in front of a server, to play its outage: `cut` ends every connection and refuses new ones.

use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};

/// Forwards until it is cut.
pub struct Proxy {
    /// Where it listens; the same address after [`Proxy::heal`].
    pub address: std::net::SocketAddr,
    upstream: String,
    listening: Mutex<Option<JoinHandle<()>>>,
}

impl Proxy {
    /// In front of `HOST:PORT`.
    pub async fn before(upstream: &str) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self {
            address: listener.local_addr().unwrap(),
            upstream: upstream.to_owned(),
            listening: Mutex::new(Some(tokio::spawn(forward(listener, upstream.to_owned())))),
        };
        Arc::new(proxy)
    }

    /// The server goes away: connections end, new ones are refused.
    pub async fn cut(&self) {
        if let Some(task) = self.listening.lock().await.take() {
            task.abort();
            let _ = task.await;
        }
    }

    /// It is back.
    pub async fn heal(&self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        *self.listening.lock().await = Some(tokio::spawn(forward(listener, self.upstream.clone())));
    }
}

/// The connections live in here: when this task ends, so do they.
async fn forward(listener: TcpListener, upstream: String) {
    let mut connections = JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        let upstream = upstream.clone();
        connections.spawn(async move {
            let mut far = TcpStream::connect(upstream).await?;
            tokio::io::copy_bidirectional(&mut near, &mut far).await
        });
    }
}
