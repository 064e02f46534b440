//! A TCP proxy that misbehaves on demand, to stand between the service and PostgreSQL or Redis.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What happens to traffic, from now on and on every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is wrong.
    None,
    /// Each reply comes this much later.
    Delay(Duration),
    /// Nothing moves, in either direction, until the fault is over; then all of it goes on.
    Stall,
    /// Requests arrive, replies vanish; connections stay open.
    Swallow,
    /// The next reply vanishes and its connection is closed; then nothing is wrong.
    LoseReply,
    /// Connections are closed, those that are open and each new one.
    Refuse,
    /// Replies lose their `no-store`: as for a browser that keeps such pages in its back/forward cache all the same.
    Keep,
}

/// The proxy; ends when dropped.
pub struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    upstream: watch::Sender<SocketAddr>,
    fault: watch::Sender<Fault>,
    cuts: watch::Sender<u64>,
    accepted: AtomicUsize,
    silent: AtomicUsize,
    lost: AtomicUsize,
}

impl Proxy {
    /// Listens on a free port in front of `upstream`.
    pub async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            upstream: watch::Sender::new(upstream),
            fault: watch::Sender::new(Fault::None),
            cuts: watch::Sender::new(0),
            accepted: AtomicUsize::new(0),
            silent: AtomicUsize::new(0),
            lost: AtomicUsize::new(0),
        });
        let task = tokio::spawn(accept(listener, shared.clone()));
        Self { addr, shared, task }
    }

    /// Where clients connect instead of to the upstream.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Changes what is wrong.
    pub fn set(&self, fault: Fault) {
        self.shared.fault.send_replace(fault);
    }

    /// Leads new connections elsewhere: to the service that was started anew.
    pub fn lead_to(&self, upstream: SocketAddr) {
        self.shared.upstream.send_replace(upstream);
    }

    /// Closes the connections that are open now.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// From now on the connections that are open stay so and never answer, as after a fail-over without a farewell. New ones work.
    pub fn silence(&self) {
        self.shared.silent.store(self.accepted(), Ordering::SeqCst);
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Replies thrown away so far.
    pub fn lost(&self) -> usize {
        self.shared.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let number = shared.accepted.fetch_add(1, Ordering::SeqCst);
        connections.spawn(carry(number, client, shared.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// One connection: ends, closing both sides, with whichever direction ends first.
async fn carry(number: usize, client: TcpStream, shared: Arc<Shared>) {
    let upstream = *shared.upstream.borrow();
    let mut fault = shared.fault.subscribe();
    let mut cuts = shared.cuts.subscribe();
    if *fault.borrow() == Fault::Refuse {
        return;
    }
    let Ok(server) = TcpStream::connect(upstream).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        () = requests(from_client, to_server, shared.fault.subscribe()) => {}
        () = replies(number, from_server, to_client, &shared) => {}
        _ = fault.wait_for(|fault| *fault == Fault::Refuse) => {}
        _ = cuts.changed() => {}
    }
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut fault: watch::Receiver<Fault>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let _ = fault.wait_for(|fault| *fault != Fault::Stall).await;
        if to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

async fn replies(number: usize, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared) {
    let mut fault = shared.fault.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let now = fault.wait_for(|fault| *fault != Fault::Stall).await.map(|fault| *fault).unwrap_or(Fault::None);
        if number < shared.silent.load(Ordering::SeqCst) {
            shared.lost.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        match now {
            Fault::None | Fault::Stall | Fault::Refuse => {}
            Fault::Keep => make_keepable(&mut buffer[..n]),
            Fault::Delay(time) => tokio::time::sleep(time).await,
            Fault::Swallow => {
                shared.lost.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            Fault::LoseReply => {
                let mine = shared.fault.send_if_modified(|fault| {
                    let mine = *fault == Fault::LoseReply;
                    if mine {
                        *fault = Fault::None;
                    }
                    mine
                });
                if mine {
                    shared.lost.fetch_add(1, Ordering::SeqCst);
                    return;
                }
            }
        }
        if to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

/// The two words have the same length, so nothing else of the reply changes.
fn make_keepable(reply: &mut [u8]) {
    const FROM: &[u8] = b"no-store";
    let found: Vec<_> = (0..reply.len()).filter(|at| reply[*at..].starts_with(FROM)).collect();
    for at in found {
        reply[at..at + FROM.len()].copy_from_slice(b"no-cache");
    }
}
