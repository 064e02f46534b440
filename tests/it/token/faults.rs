//! What Redis and the way to it do wrong: nothing of it may cost a buyer more than a moment, or accept a token twice.

use std::time::{Duration, Instant};

use oncegate::config::RedactedUrl;
use oncegate::guard::token::{LIVE_PER_SUBJECT, Spend, Tokens};
use redis::AsyncCommands;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;

use super::{TTL, binding, of, spend, visitor};
use crate::harness::log::Log;
use crate::harness::proxy::{Fault, Proxy};
use crate::harness::redis::{self as server, Server, eventually};

/// The room's own limit of 600 ms, and a busy machine.
pub(super) const BOUND: Duration = Duration::from_millis(1500);

struct Behind {
    proxy: Proxy,
    tokens: Tokens,
}

/// Tokens whose scripts are loaded, on a connection that goes through a proxy.
async fn behind_proxy() -> Option<Behind> {
    let url = server::shared()?;
    let proxy = Proxy::start(server::address(&url)).await;
    let tokens = Tokens::connect(&server::single(&server::through(&url, proxy.addr())), TTL).await;
    let warm = binding();
    let token = tokens.issue(&warm).await;
    assert_eq!(spend(&tokens, &token, &warm).await, Spend::Accepted);
    Some(Behind { proxy, tokens })
}

#[tokio::test]
async fn a_spend_whose_reply_is_lost_is_asked_again_and_accepted() {
    let Some(Behind { proxy, tokens }) = behind_proxy().await else { return };
    let binding = binding();
    let token = tokens.issue(&binding).await;
    proxy.set(Fault::LoseReply);
    assert_eq!(spend(&tokens, &token, &binding).await, Spend::Accepted);
    assert_eq!((proxy.lost(), proxy.accepted()), (1, 2));
    assert!(matches!(spend(&tokens, &token, &binding).await, Spend::Spent { .. }));
}

#[tokio::test]
async fn a_spend_that_was_bypassed_although_it_was_done_is_accepted_for_the_same_request() {
    let Some(Behind { proxy, tokens }) = behind_proxy().await else { return };
    let (binding, request) = (binding(), Uuid::new_v4());
    let token = tokens.issue(&binding).await;
    proxy.set(Fault::Swallow);
    assert_eq!(tokens.spend(&token, &binding, request).await, Spend::Bypassed);
    assert!(proxy.lost() > 0, "Redis was asked");
    proxy.set(Fault::None);
    eventually("Redis is back", async || tokens.healthy().await).await;
    assert!(tokens.spent_ago(&binding).await.is_some(), "the lost spend was done");
    assert!(matches!(spend(&tokens, &token, &binding).await, Spend::Spent { .. }));
    assert_eq!(tokens.spend(&token, &binding, request).await, Spend::Accepted);
}

#[tokio::test]
async fn a_stalled_redis_is_bypassed_in_time_and_back_by_itself() {
    let Some(Behind { proxy, tokens }) = behind_proxy().await else { return };
    let (stalled, later) = (binding(), binding());
    let (token, live) = (tokens.issue(&stalled).await, tokens.issue(&later).await);
    proxy.set(Fault::Stall);

    let begun = Instant::now();
    assert_eq!(spend(&tokens, &token, &stalled).await, Spend::Bypassed);
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());

    let begun = Instant::now();
    for _ in 0..100 {
        assert_eq!(spend(&tokens, &token, &stalled).await, Spend::Bypassed);
        assert_eq!(tokens.spent_ago(&stalled).await, None);
        assert!(!tokens.issue(&stalled).await.is_empty());
    }
    assert!(begun.elapsed() < BOUND + BOUND, "a lost Redis costs a time-out now and then: {:?}", begun.elapsed());

    proxy.set(Fault::None);
    eventually("Redis is back", async || tokens.healthy().await).await;
    assert_eq!(spend(&tokens, &live, &later).await, Spend::Accepted);
}

#[tokio::test]
async fn many_at_once_wait_for_a_stalled_redis_no_longer_than_one() {
    let Some(Behind { proxy, tokens }) = behind_proxy().await else { return };
    proxy.set(Fault::Stall);
    let begun = Instant::now();
    let mut spends = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let tokens = tokens.clone();
        spends.spawn(async move { spend(&tokens, "any", &binding()).await });
    }
    assert!(spends.join_all().await.iter().all(|outcome| *outcome == Spend::Bypassed));
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_slow_redis_is_waited_for() {
    let Some(Behind { proxy, tokens }) = behind_proxy().await else { return };
    let binding = binding();
    let token = tokens.issue(&binding).await;
    proxy.set(Fault::Delay(Duration::from_millis(100)));
    assert_eq!(spend(&tokens, &token, &binding).await, Spend::Accepted);
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_is_invisible() {
    let Some(Behind { proxy, tokens }) = behind_proxy().await else { return };
    let binding = binding();
    let token = tokens.issue(&binding).await;
    proxy.cut();
    assert_eq!(spend(&tokens, &token, &binding).await, Spend::Accepted);
    assert_eq!(proxy.accepted(), 2);
}

#[tokio::test]
async fn a_connection_that_went_silent_is_left_for_a_new_one() {
    let Some(Behind { proxy, tokens }) = behind_proxy().await else { return };
    let binding = binding();
    let token = tokens.issue(&binding).await;
    proxy.silence();
    assert_eq!(spend(&tokens, &token, &binding).await, Spend::Accepted);
    assert_eq!((proxy.lost(), proxy.accepted()), (1, 2));
}

#[tokio::test]
async fn a_killed_client_is_invisible() {
    let Some(url) = server::shared() else { return };
    let tokens = Tokens::connect(&server::single(&url), TTL).await;
    let mut own = server::connect(&url).await;
    let me: i64 = redis::cmd("CLIENT").arg("ID").query_async(&mut own).await.unwrap();
    let database = format!("db={}", url.rsplit('/').next().unwrap());
    for _ in 0..5 {
        let binding = binding();
        let token = tokens.issue(&binding).await;
        let clients: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut own).await.unwrap();
        let ids = clients.lines().filter_map(|line| {
            let id = line.split(' ').next()?.strip_prefix("id=")?.parse::<i64>().ok()?;
            (id != me && line.split(' ').any(|field| field == database)).then_some(id)
        });
        let mut killed = 0;
        for id in ids {
            killed += redis::cmd("CLIENT").arg(&["KILL", "ID"]).arg(id).query_async::<i64>(&mut own).await.unwrap();
        }
        assert!(killed > 0, "{clients}");
        assert_eq!(spend(&tokens, &token, &binding).await, Spend::Accepted);
    }
}

#[tokio::test]
async fn every_name_begins_with_oncegate_has_a_life_and_tells_no_token() {
    if server::shared().is_none() {
        return;
    }
    let mut alone = Server::start(&[]).await;
    let tokens = Tokens::connect(&server::single(&alone.url()), TTL).await;
    let binding = binding();
    let spent = tokens.issue(&binding).await;
    let live = tokens.issue(&binding).await;
    assert_eq!(spend(&tokens, &spent, &binding).await, Spend::Accepted);

    let mut own = server::connect(&alone.url()).await;
    let names: Vec<String> = own.keys("*").await.unwrap();
    assert_eq!(names.len(), 3, "live, spent and probe: {names:?}");
    let mut kept = String::new();
    for name in &names {
        assert!(name.starts_with("oncegate:"), "{name}");
        assert!(name.len() < 128, "{name}");
        let life: i64 = own.pttl(name).await.unwrap();
        assert!((1..=3_600_000).contains(&life), "{name} lives {life} ms");
        let kind: String = own.key_type(name).await.unwrap();
        match kind.as_str() {
            "zset" => kept.push_str(&own.zrange::<_, Vec<String>>(name, 0, -1).await.unwrap().concat()),
            _ => kept.push_str(&own.get::<_, String>(name).await.unwrap()),
        }
    }
    let all = names.concat() + &kept;
    for secret in [spent.as_str(), &live, binding.subject.as_str(), binding.key.as_str()] {
        assert!(!all.contains(secret));
    }
    alone.kill().await;
}

#[tokio::test]
async fn one_subjects_names_share_a_slot_and_a_cap() {
    if server::shared().is_none() {
        return;
    }
    let mut alone = Server::start(&[]).await;
    let tokens = Tokens::connect(&server::single(&alone.url()), TTL).await;
    let visitor = visitor();
    for _ in 0..150 {
        tokens.issue(&of(&visitor)).await;
    }
    let binding = of(&visitor);
    let token = tokens.issue(&binding).await;
    spend(&tokens, &token, &binding).await;
    let mut own = server::connect(&alone.url()).await;
    let names: Vec<String> = own.keys("oncegate:*").await.unwrap();
    let (slot, _) = names.iter().find_map(|name| name.split_once(":spent:")).expect("a mark");
    assert!(slot.starts_with("oncegate:{") && slot.ends_with('}'), "{slot}");
    let count: usize = own.zcard(format!("{slot}:live")).await.unwrap();
    assert_eq!(count, LIVE_PER_SUBJECT - 1, "as many as may live, and one of them was spent");
    alone.kill().await;
}

#[tokio::test]
async fn an_unreachable_redis_is_no_error_and_comes_back() {
    if server::shared().is_none() {
        return;
    }
    let log = Log::start();
    let mut own = Server::start(&[]).await;
    own.kill().await;
    let begun = Instant::now();
    let tokens = Tokens::connect(&server::single(&own.url()), TTL).await;
    let binding = binding();
    let lost = tokens.issue(&binding).await;
    assert_eq!(spend(&tokens, &lost, &binding).await, Spend::Bypassed);
    assert!(!tokens.healthy().await);
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    assert_eq!(log.count("WARN"), 1, "once, however many ask: {}", log.text());

    own.restart().await;
    eventually("Redis is back", async || tokens.healthy().await).await;
    assert_eq!((log.count("WARN"), log.count("answers again")), (1, 1), "{}", log.text());
    assert_eq!(spend(&tokens, &lost, &binding).await, Spend::Unknown, "it never was stored");
    let token = tokens.issue(&binding).await;
    assert_eq!(spend(&tokens, &token, &binding).await, Spend::Accepted);
    own.kill().await;
}

#[tokio::test]
async fn a_redis_that_restarted_without_its_data_and_scripts_goes_on() {
    if server::shared().is_none() {
        return;
    }
    let mut own = Server::start(&[]).await;
    let tokens = Tokens::connect(&server::single(&own.url()), TTL).await;
    let before = binding();
    let forgotten = tokens.issue(&before).await;
    own.kill().await;
    own.restart().await;
    assert_eq!(spend(&tokens, &forgotten, &before).await, Spend::Unknown);
    let after = binding();
    let token = tokens.issue(&after).await;
    assert_eq!(spend(&tokens, &token, &after).await, Spend::Accepted);
    own.kill().await;
}

#[tokio::test]
async fn a_full_redis_takes_no_new_token_but_spends_the_old_ones() {
    if server::shared().is_none() {
        return;
    }
    let mut own = Server::start(&["--maxmemory-policy", "noeviction"]).await;
    let tokens = Tokens::connect(&server::single(&own.url()), TTL).await;
    let (before, during) = (binding(), binding());
    let live = tokens.issue(&before).await;
    let mut direct = server::connect(&own.url()).await;
    let limit = async |direct: &mut redis::aio::MultiplexedConnection, bytes: &str| {
        redis::cmd("CONFIG").arg(&["SET", "maxmemory", bytes]).exec_async(direct).await.unwrap();
    };
    let log = Log::start();
    limit(&mut direct, "1").await;

    let refused = tokens.issue(&during).await;
    assert!(!tokens.healthy().await, "degraded: no new tokens");
    assert_eq!(spend(&tokens, &refused, &during).await, Spend::Unknown);
    assert_eq!(spend(&tokens, &live, &before).await, Spend::Accepted);
    assert!(matches!(spend(&tokens, &live, &before).await, Spend::Spent { .. }));

    assert_eq!(log.count("WARN"), 1, "{}", log.text());

    limit(&mut direct, "0").await;
    assert!(tokens.healthy().await);
    let token = tokens.issue(&during).await;
    assert_eq!(spend(&tokens, &token, &during).await, Spend::Accepted);
    own.kill().await;
}

#[tokio::test]
async fn a_setting_that_leads_nowhere_is_bypassed() {
    for url in ["redis://127.0.0.1:1", "rediss://127.0.0.1:1", "redis://", "nonsense"] {
        let tokens = Tokens::connect(&server::single(url), TTL).await;
        assert_eq!(spend(&tokens, "any", &binding()).await, Spend::Bypassed, "{url}");
        let cluster = oncegate::config::Redis::Cluster(vec![RedactedUrl::new(url.to_owned())]);
        let tokens = Tokens::connect(&cluster, TTL).await;
        assert_eq!(spend(&tokens, "any", &binding()).await, Spend::Bypassed, "{url}");
    }
}

#[tokio::test]
async fn tls_to_a_server_without_it_is_bypassed() {
    let Some(url) = server::shared() else { return };
    let tokens = Tokens::connect(&server::single(&url.replace("redis://", "rediss://")), TTL).await;
    assert_eq!(spend(&tokens, "any", &binding()).await, Spend::Bypassed);
}

#[tokio::test]
async fn a_redis_that_may_evict_tokens_is_warned_of_at_start() {
    if server::shared().is_none() {
        return;
    }
    for (policy, warnings) in [("allkeys-lru", 1), ("volatile-ttl", 1), ("noeviction", 0)] {
        let mut own = Server::start(&["--maxmemory-policy", policy]).await;
        let log = Log::start();
        Tokens::connect(&server::single(&own.url()), TTL).await;
        assert_eq!(log.count("WARN"), warnings, "{policy}: {}", log.text());
        assert_eq!(log.count(policy), warnings, "{}", log.text());
        own.kill().await;
    }
}

/// Answers whatever it is asked with the same acceptance: somebody else's.
async fn confused_server() -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while let Ok(n @ 1..) = stream.read(&mut buffer).await {
                    let asked = String::from_utf8_lossy(&buffer[..n]).matches("\r\nSETINFO\r\n").count().max(1);
                    let reply = "*3\r\n$5\r\nother\r\n:1\r\n:0\r\n".repeat(asked);
                    if stream.write_all(reply.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    addr
}

#[tokio::test]
async fn a_reply_to_another_question_is_no_answer() {
    let log = Log::start();
    let tokens = Tokens::connect(&server::single(&format!("redis://{}", confused_server().await)), TTL).await;
    assert_eq!(spend(&tokens, "any", &binding()).await, Spend::Bypassed);
    assert_eq!(log.count("a reply to another question"), 1, "{}", log.text());
}
