//! A TCP proxy in front of a server, to play what a network does: `cut` ends every connection and refuses new ones,
//! and a delay keeps every answer on its way for a while, so that a test can step in between.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};

/// Forwards until it is cut.
pub struct Proxy {
    /// Where it listens; the same address after [`Proxy::heal`].
    pub address: SocketAddr,
    upstream: SocketAddr,
    delay: Duration,
    listening: Mutex<Option<JoinHandle<()>>>,
}

impl Proxy {
    /// In front of this server, whose answers take so much longer.
    pub async fn before(upstream: SocketAddr, delay: Duration) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listening = Mutex::new(Some(tokio::spawn(forward(listener, upstream, delay))));
        Arc::new(Self { address, upstream, delay, listening })
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
        *self.listening.lock().await = Some(tokio::spawn(forward(listener, self.upstream, self.delay)));
    }
}

/// The connections live in here: when this task ends, so do they.
async fn forward(listener: TcpListener, upstream: SocketAddr, delay: Duration) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        connections.spawn(connection(near, upstream, delay));
    }
}

async fn connection(near: TcpStream, upstream: SocketAddr, delay: Duration) -> std::io::Result<()> {
    let (mut from_client, mut to_client) = near.into_split();
    let (mut from_server, mut to_server) = TcpStream::connect(upstream).await?.into_split();
    let requests = tokio::io::copy(&mut from_client, &mut to_server);
    let answers = async {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = from_server.read(&mut buffer).await?;
            if read == 0 {
                return Ok(());
            }
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            to_client.write_all(&buffer[..read]).await?;
        }
    };
    tokio::select! {
        ended = requests => ended.map(drop),
        ended = answers => ended,
    }
}
