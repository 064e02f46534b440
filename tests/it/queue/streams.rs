//! The queue in Redis. Every test has a server of its own, because the stream has one name.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use oncegate::config::{RedactedUrl, Redis};
use oncegate::store::Message;
use oncegate::worker::queue::{self, Delivery, Depth, Queue};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, cmd};
use uuid::Uuid;

use super::{IDLE, LONG, NOW, told_of};
use crate::harness::redis::{self as server, Server, eventually};

const STREAM: &str = "oncegate:outbox";
const PARKED: &str = "oncegate:outbox:parked";

struct Own {
    server: Server,
    redis: Redis,
}

impl Own {
    /// `None` in the run on memory alone.
    async fn start() -> Option<Self> {
        std::env::var_os("TEST_REDIS_URL")?;
        let server = Server::start(&[]).await;
        let redis = server::single(&server.url());
        Some(Self { server, redis })
    }

    fn reader(&self) -> Arc<dyn Queue> {
        queue::open(&self.redis, IDLE)
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> T {
        let mut connection: MultiplexedConnection = server::connect(&self.server.url()).await;
        command.query_async(&mut connection).await.unwrap()
    }

    async fn length(&self, stream: &str) -> u64 {
        self.ask(cmd("XLEN").arg(stream)).await
    }

    async fn pending(&self) -> u64 {
        let (pending, ..): (u64, redis::Value, redis::Value, redis::Value) =
            self.ask(cmd("XPENDING").arg(STREAM).arg("coupons")).await;
        pending
    }
}

fn some(n: usize) -> Vec<Message> {
    (0..n).map(|_| told_of(Uuid::now_v7())).collect()
}

fn messages(deliveries: &[Delivery]) -> Vec<Message> {
    deliveries.iter().map(|delivery| delivery.message.clone().unwrap()).collect()
}

fn entries(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|delivery| delivery.entry.clone()).collect()
}

/// What it gets, in the end.
async fn in_the_end(reader: &Arc<dyn Queue>) -> Vec<Delivery> {
    let mut got = Vec::new();
    eventually("entries come", async || {
        got = reader.receive(100, Duration::from_millis(50)).await.unwrap_or_default();
        !got.is_empty()
    })
    .await;
    got
}

#[tokio::test]
async fn entries_are_shared_by_readers_and_gone_once_acknowledged() {
    let Some(own) = Own::start().await else { return };
    let (one, other) = (own.reader(), own.reader());
    let told = some(5);
    one.publish(&told).await.unwrap();
    let first = one.receive(3, NOW).await.unwrap();
    let rest = other.receive(3, NOW).await.unwrap();
    assert_eq!(messages(&[first.clone(), rest.clone()].concat()), told);
    assert!(first.iter().all(|delivery| delivery.deliveries == 1));
    one.acknowledge(&entries(&first)).await.unwrap();
    other.acknowledge(&entries(&rest)).await.unwrap();
    tokio::time::sleep(IDLE + IDLE).await;
    assert_eq!(one.receive(3, NOW).await.unwrap(), []);
    assert_eq!(own.pending().await, 0);
}

#[tokio::test]
async fn what_a_dead_reader_held_goes_to_another_after_its_time_and_tells_how_often_it_came() {
    let Some(own) = Own::start().await else { return };
    let dead = own.reader();
    let told = some(2);
    dead.publish(&told).await.unwrap();
    assert_eq!(dead.receive(10, NOW).await.unwrap().len(), 2);
    drop(dead);
    let heir = own.reader();
    assert_eq!(heir.receive(10, NOW).await.unwrap(), [], "its time is not over");
    let inherited = in_the_end(&heir).await;
    assert_eq!(messages(&inherited), told);
    assert!(inherited.iter().all(|delivery| delivery.deliveries == 2));
    let again = in_the_end(&own.reader()).await;
    assert!(again.iter().all(|delivery| delivery.deliveries == 3));
}

#[tokio::test]
async fn a_quiet_read_is_no_failure_and_what_comes_during_it_is_not_lost() {
    let Some(own) = Own::start().await else { return };
    let (reader, writer) = (own.reader(), own.reader());
    // Longer than the half second after which the client gives up by default.
    assert_eq!(reader.receive(10, Duration::from_millis(1200)).await.unwrap(), []);
    let told = some(1);
    let (got, ()) = tokio::join!(reader.receive(10, LONG), async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        writer.publish(&told).await.unwrap();
    });
    assert_eq!(messages(&got.unwrap()), told);
}

#[tokio::test]
async fn a_group_that_was_destroyed_is_made_again_and_nothing_unacknowledged_is_lost() {
    let Some(own) = Own::start().await else { return };
    let reader = own.reader();
    let told = some(3);
    reader.publish(&told).await.unwrap();
    let got = reader.receive(2, NOW).await.unwrap();
    reader.acknowledge(&entries(&got[..1])).await.unwrap();
    let _: u64 = own.ask(cmd("XGROUP").arg("DESTROY").arg(STREAM).arg("coupons")).await;
    assert_eq!(
        reader.tidy().await.unwrap(),
        Depth::default(),
        "nothing is removed while nobody knows what is acknowledged"
    );
    assert_eq!(messages(&in_the_end(&reader).await), told, "also what was acknowledged, which does no harm");
}

#[tokio::test]
async fn a_redis_that_was_flushed_or_restarted_empty_is_used_again_without_a_restart() {
    let Some(mut own) = Own::start().await else { return };
    let reader = own.reader();
    for restart in [false, true] {
        reader.publish(&some(2)).await.unwrap();
        assert_eq!(in_the_end(&reader).await.len(), 2);
        if restart {
            own.server.kill().await;
            assert!(reader.receive(10, NOW).await.is_err());
            assert!(reader.publish(&some(1)).await.is_err());
            own.server.restart().await;
        } else {
            let _: String = own.ask(&cmd("FLUSHALL")).await;
        }
        let told = some(1);
        eventually("it takes messages again", async || reader.publish(&told).await.is_ok()).await;
        let got = in_the_end(&reader).await;
        assert_eq!(got[0].message, Ok(told[0].clone()), "restart: {restart}");
        reader.acknowledge(&entries(&got)).await.unwrap();
    }
}

#[tokio::test]
async fn a_read_that_blocks_while_redis_is_flushed_does_not_hang() {
    let Some(own) = Own::start().await else { return };
    let (reader, writer) = (own.reader(), own.reader());
    writer.publish(&some(1)).await.unwrap();
    assert_eq!(reader.receive(10, NOW).await.unwrap().len(), 1);
    let blocked = tokio::spawn({
        let reader = reader.clone();
        async move { reader.receive(10, Duration::from_secs(1)).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let _: String = own.ask(&cmd("FLUSHALL")).await;
    let _ = blocked.await.unwrap();
    let told = some(1);
    writer.publish(&told).await.unwrap();
    assert_eq!(messages(&in_the_end(&reader).await), told);
}

#[tokio::test]
async fn only_what_is_below_the_oldest_unacknowledged_entry_is_removed() {
    let Some(own) = Own::start().await else { return };
    let (reader, slow) = (own.reader(), own.reader());
    reader.publish(&some(10)).await.unwrap();
    let fast = reader.receive(3, NOW).await.unwrap();
    let held = slow.receive(1, NOW).await.unwrap();
    let rest = reader.receive(4, NOW).await.unwrap();
    reader.acknowledge(&entries(&[fast, rest.clone()].concat())).await.unwrap();
    assert_eq!(
        reader.tidy().await.unwrap().entries,
        7,
        "the one that is held, what is behind it, and what nobody has read"
    );
    let first: Vec<(String, HashMap<String, String>)> =
        own.ask(cmd("XRANGE").arg(STREAM).arg("-").arg("+").arg("COUNT").arg(1)).await;
    assert_eq!(first[0].0, held[0].entry);
    slow.acknowledge(&entries(&held)).await.unwrap();
    assert_eq!(reader.tidy().await.unwrap().entries, 3, "the last that was read, and the unread");
    assert_eq!(reader.receive(10, NOW).await.unwrap().len(), 2);
}

#[tokio::test]
async fn entries_that_somebody_trimmed_away_are_let_go() {
    let Some(own) = Own::start().await else { return };
    let reader = own.reader();
    reader.publish(&some(3)).await.unwrap();
    assert_eq!(reader.receive(2, NOW).await.unwrap().len(), 2);
    let _: u64 = own.ask(cmd("XTRIM").arg(STREAM).arg("MAXLEN").arg(0)).await;
    let told = some(1);
    reader.publish(&told).await.unwrap();
    eventually("they are no longer pending", async || {
        let got = reader.receive(10, NOW).await.unwrap();
        reader.acknowledge(&entries(&got)).await.unwrap();
        own.pending().await == 0
    })
    .await;
    assert_eq!(reader.tidy().await.unwrap().entries, 1);
}

#[tokio::test]
async fn a_parked_entry_is_where_operators_see_it_with_all_it_had_and_the_reason() {
    let Some(own) = Own::start().await else { return };
    let reader = own.reader();
    let _: String = own.ask(cmd("XADD").arg(STREAM).arg("*").arg("id").arg("no uuid").arg("colour").arg("blue")).await;
    let got = reader.receive(10, NOW).await.unwrap();
    assert!(got[0].message.as_ref().is_err_and(|wrong| wrong.contains("no uuid")), "{got:?}");
    reader.park(&got[0], "cannot be read").await.unwrap();
    let parked: Vec<(String, HashMap<String, String>)> = own.ask(cmd("XRANGE").arg(PARKED).arg("-").arg("+")).await;
    let fields = &parked[0].1;
    let of = |name: &str| fields.get(name).map(String::as_str);
    assert_eq!((parked.len(), of("id"), of("colour")), (1, Some("no uuid"), Some("blue")));
    assert_eq!(
        (of("entry"), of("deliveries"), of("reason")),
        (Some(got[0].entry.as_str()), Some("1"), Some("cannot be read"))
    );
    assert_eq!((own.pending().await, own.length(PARKED).await), (0, 1));
    assert_eq!(reader.tidy().await.unwrap().parked, 1);
}

#[tokio::test]
async fn a_reader_that_is_long_gone_is_forgotten_only_if_it_holds_nothing() {
    let Some(own) = Own::start().await else { return };
    let open = || queue::open(&own.redis, Duration::from_millis(1));
    let (holds, free, tidies) = (open(), open(), own.reader());
    tidies.publish(&some(2)).await.unwrap();
    // First the one that holds nothing, which would else inherit.
    let got = free.receive(1, NOW).await.unwrap();
    free.acknowledge(&entries(&got)).await.unwrap();
    assert_eq!(holds.receive(1, NOW).await.unwrap().len(), 1);
    let command = cmd("XINFO").arg("CONSUMERS").arg(STREAM).arg("coupons").clone();
    let readers = async || own.ask::<Vec<redis::Value>>(&command).await.len();
    tidies.tidy().await.unwrap();
    assert_eq!(readers().await, 2, "they were here a moment ago");
    let tidies = open();
    eventually("the one that holds nothing is forgotten", async || {
        tidies.tidy().await.unwrap();
        readers().await == 1
    })
    .await;
    assert_eq!(own.pending().await, 1);
}

#[tokio::test]
async fn the_queue_works_on_a_cluster() {
    if server::cluster().is_none() {
        return;
    }
    let ports = [free_port(), free_port()];
    let options = format!(
        "--port {} --cluster-port {} --bind 127.0.0.1 --cluster-enabled yes --cluster-announce-ip 127.0.0.1",
        ports[0], ports[1]
    );
    let own = Server::start(&options.split_whitespace().collect::<Vec<_>>()).await;
    let mut direct = server::connect(&own.url()).await;
    cmd("CLUSTER").arg(&["ADDSLOTSRANGE", "0", "16383"]).exec_async(&mut direct).await.unwrap();
    eventually("the cluster serves", async || {
        let info: String = cmd("CLUSTER").arg("INFO").query_async(&mut direct).await.unwrap();
        info.contains("cluster_state:ok")
    })
    .await;
    let nodes = Redis::Cluster(vec![RedactedUrl::new(format!("redis://127.0.0.1:{}", ports[0]))]);
    let (one, other) = (queue::open(&nodes, IDLE), queue::open(&nodes, IDLE));
    let told = some(3);
    one.publish(&told).await.unwrap();
    assert_eq!(one.receive(10, Duration::from_millis(1200)).await.unwrap().len(), 3);
    let inherited = in_the_end(&other).await;
    assert_eq!((messages(&inherited), inherited[0].deliveries), (told, 2));
    other.park(&inherited[0], "why not").await.unwrap();
    other.acknowledge(&entries(&inherited[1..])).await.unwrap();
    assert_eq!(other.tidy().await.unwrap(), Depth { entries: 1, parked: 1 });
    assert_eq!(one.receive(10, Duration::from_millis(800)).await.unwrap(), []);
}

fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
