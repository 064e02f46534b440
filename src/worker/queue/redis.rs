//! The queue in Redis (7 and newer), one node or Cluster: a stream with one consumer group that every instance reads in.
//!
//! | name | type | holds |
//! | --- | --- | --- |
//! | `oncegate:outbox` | stream | what is to be consumed: `id` (of the outbox row), `topic`, `payload` |
//! | `oncegate:outbox:parked` | stream | what was given up: the same fields, and `entry`, `deliveries`, `reason` |
//!
//! The stream and its group belong to this service alone. Each operation is one command or script on one name, hence on one
//! hash slot. Another group in the same stream would see all entries but not hold back their removal.

use std::collections::HashMap;
use std::time::Duration;

use ::redis::streams::StreamReadReply;
use ::redis::{Cmd, RedisError, RedisResult, Script, Value, cmd, from_redis_value};
use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::link::{Ask, Link};
use super::{Delivery, Depth, Fault, Queue};
use crate::config::Redis;
use crate::store::Message;

const STREAM: &str = "oncegate:outbox";
const PARKED: &str = "oncegate:outbox:parked";
const GROUP: &str = "coupons";
/// The most entries: some 30 MB of a Redis that has tokens to keep. The rest waits in the outbox.
const MOST: u64 = 100_000;
/// The most parked entries, about; beyond it the oldest go (they are in the log, and in the outbox).
const MOST_PARKED: u64 = 10_000;
/// One answer to a command. Redis answers within milliseconds; what takes this long is lost or stalled.
const ANSWER: Duration = Duration::from_secs(2);
/// The longest that one read blocks, whatever the caller would wait.
const BLOCK: Duration = Duration::from_secs(5);
/// A reader that has not asked for so many idle times (an hour, by default) and holds nothing is forgotten: each process reads
/// under a new name.
const FORGOTTEN: u32 = 360;

/// Takes entries over whose reader must have died, with how often each was delivered by then. The question and the taking are
/// one step, so no two readers get the same. What is pending and no longer in the stream (somebody trimmed it) is let go and
/// counted. `ARGV`: group, reader, idle milliseconds, limit.
const CLAIM: &str = "
    local late = redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[3], '-', '+', ARGV[4])
    local claimed, gone = {}, 0
    for _, p in ipairs(late) do
        local got = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], p[1])
        if got[1] then
            claimed[#claimed + 1] = {got[1][1], got[1][2], p[4] + 1}
        else
            redis.call('XACK', KEYS[1], ARGV[1], p[1])
            gone = gone + 1
        end
    end
    return {claimed, gone}";

/// Removes what is older than the oldest entry that is not acknowledged: that is the oldest pending one, or when there is none
/// whatever was not delivered yet. Forgets readers that are long gone and hold nothing (one that holds something would take it
/// with it). `ARGV`: group, idle milliseconds.
const TIDY: &str = "
    local pending = redis.call('XPENDING', KEYS[1], ARGV[1])
    local floor = pending[2]
    if pending[1] == 0 then
        for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
            local of = {}
            for i = 1, #group, 2 do of[group[i]] = group[i + 1] end
            if of['name'] == ARGV[1] then floor = of['last-delivered-id'] end
        end
    end
    redis.call('XTRIM', KEYS[1], 'MINID', floor)
    for _, reader in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
        local of = {}
        for i = 1, #reader, 2 do of[reader[i]] = reader[i + 1] end
        if of['pending'] == 0 and of['idle'] > tonumber(ARGV[2]) then
            redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], of['name'])
        end
    end
    return redis.call('XLEN', KEYS[1])";

/// A reader of the stream.
pub(super) struct Streams {
    /// Under which the group knows it; another for each process, so that no two are taken for one.
    reader: String,
    idle: Duration,
    commands: Link,
    reads: Link,
    claims: Mutex<Option<Instant>>,
    claim: Script,
    tidy: Script,
}

impl Streams {
    pub(super) fn new(target: Redis, idle: Duration) -> Self {
        Self {
            reader: Uuid::now_v7().to_string(),
            idle,
            commands: Link::new(target.clone(), ANSWER),
            reads: Link::new(target, BLOCK + ANSWER),
            claims: Mutex::default(),
            claim: Script::new(CLAIM),
            tidy: Script::new(TIDY),
        }
    }

    /// What dead readers left, looked for a few times within the idle time.
    async fn abandoned(&self, limit: usize) -> RedisResult<Vec<Delivery>> {
        let mut next = self.claims.lock().await;
        if next.is_some_and(|next| Instant::now() < next) {
            return Ok(Vec::new());
        }
        let mut call = self.claim.key(STREAM);
        call.arg(GROUP).arg(&self.reader).arg(millis(self.idle)).arg(limit);
        let (claimed, gone): (Vec<(String, Vec<Value>, u64)>, u64) = self.commands.ask(Ask::Script(&call)).await?;
        if gone > 0 {
            tracing::warn!(
                gone,
                "entries vanished from the queue before they were consumed; the outbox tells them again"
            );
        }
        // A full haul: there may be more.
        if claimed.len() < limit {
            *next = Some(Instant::now() + self.idle / 4);
        }
        Ok(claimed.into_iter().map(|(entry, fields, deliveries)| delivery(entry, &pairs(fields), deliveries)).collect())
    }

    async fn fresh(&self, limit: usize, wait: Duration) -> RedisResult<Vec<Delivery>> {
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(GROUP).arg(&self.reader).arg("COUNT").arg(limit);
        // BLOCK 0 would be for ever.
        read.arg("BLOCK").arg(millis(wait.min(BLOCK)).max(1)).arg("STREAMS").arg(STREAM).arg(">");
        let reply: Option<StreamReadReply> = self.reads.ask(Ask::Command(&read)).await?;
        let entries = reply.into_iter().flat_map(|reply| reply.keys).flat_map(|key| key.ids);
        Ok(entries.map(|entry| delivery(entry.id, &entry.map, 1)).collect())
    }

    /// From the first entry on: what stands in a stream whose group was lost is delivered again rather than not at all.
    async fn make_group(&self) -> RedisResult<()> {
        let mut create = cmd("XGROUP");
        create.arg("CREATE").arg(STREAM).arg(GROUP).arg("0").arg("MKSTREAM");
        match self.commands.ask::<Value>(Ask::Command(&create)).await {
            Err(error) if error.code() != Some("BUSYGROUP") => Err(error),
            _ => Ok(()),
        }
    }

    async fn received(&self, limit: usize, wait: Duration) -> RedisResult<Vec<Delivery>> {
        let abandoned = self.abandoned(limit).await?;
        if abandoned.is_empty() { self.fresh(limit, wait).await } else { Ok(abandoned) }
    }

    async fn tidied(&self) -> RedisResult<u64> {
        let mut call = self.tidy.key(STREAM);
        call.arg(GROUP).arg(millis(self.idle * FORGOTTEN));
        self.commands.ask(Ask::Script(&call)).await
    }
}

#[async_trait]
impl Queue for Streams {
    async fn publish(&self, messages: &[Message]) -> Result<(), Fault> {
        let length: u64 = self.commands.ask(Ask::Command(cmd("XLEN").arg(STREAM))).await?;
        if length + as_u64(messages.len()) > MOST {
            return Err(Fault::Full);
        }
        let mut pipeline = ::redis::pipe();
        for message in messages {
            pipeline.add_command(add(STREAM, message)).ignore();
        }
        Ok(self.commands.ask(Ask::Pipeline(&pipeline)).await?)
    }

    async fn receive(&self, limit: usize, wait: Duration) -> Result<Vec<Delivery>, Fault> {
        match self.received(limit, wait).await {
            Err(error) if lacks_group(&error) => {
                tracing::info!("the queue has no consumer group: it is new, or Redis has lost it; it is made");
                self.make_group().await?;
                Ok(self.received(limit, wait).await?)
            }
            received => Ok(received?),
        }
    }

    async fn acknowledge(&self, entries: &[String]) -> Result<(), Fault> {
        if entries.is_empty() {
            return Ok(());
        }
        Ok(self.commands.ask::<u64>(Ask::Command(cmd("XACK").arg(STREAM).arg(GROUP).arg(entries))).await.map(drop)?)
    }

    /// Two steps, as the two names may be on two nodes: after a crash in between it is parked twice rather than lost.
    async fn park(&self, delivery: &Delivery, reason: &str) -> Result<(), Fault> {
        let mut range = cmd("XRANGE");
        range.arg(STREAM).arg(&delivery.entry).arg(&delivery.entry);
        let found: Vec<(String, Vec<Value>)> = self.commands.ask(Ask::Command(&range)).await?;
        let mut park = cmd("XADD");
        park.arg(PARKED).arg("MAXLEN").arg("~").arg(MOST_PARKED).arg("*");
        park.arg("entry").arg(&delivery.entry).arg("deliveries").arg(delivery.deliveries).arg("reason").arg(reason);
        for (name, value) in found.into_iter().flat_map(|(_, fields)| pairs(fields)) {
            park.arg(name).arg(from_redis_value::<Vec<u8>>(value).unwrap_or_default());
        }
        self.commands.ask::<Value>(Ask::Command(&park)).await?;
        self.acknowledge(std::slice::from_ref(&delivery.entry)).await
    }

    async fn tidy(&self) -> Result<Depth, Fault> {
        let entries = match self.tidied().await {
            Err(error) if lacks_group(&error) => 0,
            entries => entries?,
        };
        let parked = self.commands.ask(Ask::Command(cmd("XLEN").arg(PARKED))).await?;
        Ok(Depth { entries, parked })
    }
}

fn add(to: &str, message: &Message) -> Cmd {
    let mut add = cmd("XADD");
    add.arg(to).arg("*").arg("id").arg(message.id.hyphenated().to_string());
    add.arg("topic").arg(&message.topic).arg("payload").arg(&message.payload);
    add
}

fn delivery(entry: String, fields: &HashMap<String, Value>, deliveries: u64) -> Delivery {
    let text = |name: &str| {
        let value = fields.get(name).ok_or_else(|| format!("there is no field {name}"))?;
        from_redis_value::<String>(value.clone()).map_err(|_| format!("field {name} is no text"))
    };
    let message = || {
        let id = text("id")?;
        let id = Uuid::parse_str(&id).map_err(|_| format!("field id is {id:?}, which is no UUID"))?;
        Ok(Message { id, topic: text("topic")?, payload: text("payload")? })
    };
    Delivery { message: message(), entry, deliveries }
}

/// Names and values, as Redis lists them in turn.
fn pairs(fields: Vec<Value>) -> HashMap<String, Value> {
    let mut fields = fields.into_iter();
    let mut pairs = HashMap::new();
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        if let Ok(name) = from_redis_value(name) {
            pairs.insert(name, value);
        }
    }
    pairs
}

/// Redis 6 wraps the code of a script's error into its text.
fn lacks_group(error: &RedisError) -> bool {
    error.code() == Some("NOGROUP") || error.to_string().contains("NOGROUP")
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn as_u64(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
