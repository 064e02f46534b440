//! The cluster client on its own would send a command again after a lost reply, and wait for a stalled node for ever.

use std::net::{SocketAddr, TcpListener};
use std::time::Instant;

use oncegate::config::{RedactedUrl, Redis};
use oncegate::guard::token::{Spend, Tokens};
use uuid::Uuid;

use super::faults::BOUND;
use super::{TTL, binding, spend};
use crate::harness::proxy::{Fault, Proxy};
use crate::harness::redis::{self as server, Server, eventually};

/// A cluster of one node that tells its clients the proxy's address for its own.
async fn behind_proxy() -> (Server, Proxy, Tokens) {
    let (node, bus) = (free_port(), free_port());
    let proxy = Proxy::start(node).await;
    let options = format!(
        "--port {} --cluster-port {} --bind 127.0.0.1 --cluster-enabled yes --cluster-announce-ip 127.0.0.1 \
         --cluster-announce-port {}",
        node.port(),
        bus.port(),
        proxy.addr().port()
    );
    let server = Server::start(&options.split_whitespace().collect::<Vec<_>>()).await;
    let mut direct = server::connect(&server.url()).await;
    redis::cmd("CLUSTER").arg(&["ADDSLOTSRANGE", "0", "16383"]).exec_async(&mut direct).await.unwrap();
    eventually("the cluster serves", async || {
        let info: String = redis::cmd("CLUSTER").arg("INFO").query_async(&mut direct).await.unwrap();
        info.contains("cluster_state:ok")
    })
    .await;
    let nodes = Redis::Cluster(vec![RedactedUrl::new(format!("redis://{}", proxy.addr()))]);
    let tokens = Tokens::connect(&nodes, TTL).await;
    let warm = binding();
    let token = tokens.issue(&warm).await;
    assert_eq!(spend(&tokens, &token, &warm).await, Spend::Accepted);
    (server, proxy, tokens)
}

fn free_port() -> SocketAddr {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn a_spend_whose_reply_a_cluster_lost_is_accepted() {
    if server::cluster().is_none() {
        return;
    }
    let (mut own, proxy, tokens) = behind_proxy().await;
    let binding = binding();
    let token = tokens.issue(&binding).await;
    proxy.set(Fault::LoseReply);
    assert_eq!(spend(&tokens, &token, &binding).await, Spend::Accepted);
    assert_eq!(proxy.lost(), 1);
    assert!(matches!(spend(&tokens, &token, &binding).await, Spend::Spent { .. }));
    own.kill().await;
}

#[tokio::test]
async fn a_stalled_cluster_is_bypassed_in_time_and_back_by_itself() {
    if server::cluster().is_none() {
        return;
    }
    let (mut own, proxy, tokens) = behind_proxy().await;
    let (binding, request) = (binding(), Uuid::new_v4());
    let token = tokens.issue(&binding).await;
    proxy.set(Fault::Swallow);
    let begun = Instant::now();
    assert_eq!(tokens.spend(&token, &binding, request).await, Spend::Bypassed);
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    proxy.set(Fault::None);
    eventually("the cluster is back", async || tokens.healthy().await).await;
    assert_eq!(tokens.spend(&token, &binding, request).await, Spend::Accepted);
    assert!(matches!(spend(&tokens, &token, &binding).await, Spend::Spent { .. }));
    own.kill().await;
}
