//! Tokens in Redis, one node or Cluster. Each operation is one script over names of one hash slot:
//!
//! | name | type | holds | lives |
//! | --- | --- | --- | --- |
//! | `oncegate:{SUBJECT}:live` | sorted set | digests of the subject's live tokens, by the microsecond each expires | until the last expires |
//! | `oncegate:{SUBJECT}:spent:INTENT` | string | `MILLISECOND REQUEST` of the last spend for a form and key | as [`Life::mark`] |
//!
//! SUBJECT and INTENT are digests. Times are the server's own. Every script may run twice: the client gives up on a reply that
//! is late, and the cluster client sends again what it has no reply for.
//!
//! A full Redis (`noeviction`) refuses commands that need memory, but not to a script that has called another writing command
//! before. So `SPEND` first removes: it works on a full Redis. `ISSUE` first adds: it is refused.

use std::time::Duration;

use ::redis::Script;
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use uuid::Uuid;

use super::link::{Failure, Link};
use super::{Backend, Digest, LIVE_PER_SUBJECT, Life, Place, Rarely, Slip, Spend};
use crate::config::Redis;

/// Stores a token. KEYS: live. ARGV: token, its life in ms, tokens per subject.
///
/// What has expired is not looked for: it is the oldest and goes first by the cap, or with the whole list.
/// Microseconds, so that two tokens issued one after the other keep their order under the cap.
const ISSUE: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2] * 1000), ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, -1 - ARGV[3])
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', math.ceil(last / 1000)))
return {ARGV[1], 1, 0}
";

/// Spends a token. KEYS: live, spent. ARGV: request, token, the mark's life in ms.
/// 0 unknown, 1 accepted (now, or before by this very request), 2 spent by another, with the age of that in ms.
const SPEND: &str = r"
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local expires = redis.call('ZSCORE', KEYS[1], ARGV[2])
if expires and redis.call('ZREM', KEYS[1], ARGV[2]) and tonumber(expires) > now then
    local at = string.format('%.0f', math.floor(now / 1000))
    redis.call('SET', KEYS[2], at .. ' ' .. ARGV[1], 'PX', ARGV[3])
    return {ARGV[1], 1, 0}
end
local mark = redis.call('GET', KEYS[2])
if not mark then return {ARGV[1], 0, 0} end
local at, by = string.match(mark, '^(%d+) (.*)$')
if by == ARGV[1] then return {ARGV[1], 1, 0} end
return {ARGV[1], 2, math.max(0, math.floor(now / 1000) - at)}
";

/// Gives a token back. KEYS: live, spent. ARGV: request, token, its life in ms. Run twice, the second finds no mark.
const GIVE_BACK: &str = r"
local mark = redis.call('GET', KEYS[2])
if mark and string.match(mark, ' (.*)$') == ARGV[1] then
    local t = redis.call('TIME')
    local until_ms = t[1] * 1000 + math.floor(t[2] / 1000) + ARGV[3]
    redis.call('DEL', KEYS[2])
    redis.call('ZADD', KEYS[1], string.format('%.0f', until_ms * 1000), ARGV[2])
    redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', until_ms))
end
return {ARGV[1], 1, 0}
";

/// Reads a mark. KEYS: spent. ARGV: intent. 0 none, 2 spent, with the age of that in ms.
const SPENT_AGO: &str = r"
local mark = redis.call('GET', KEYS[1])
if not mark then return {ARGV[1], 0, 0} end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
return {ARGV[1], 2, math.max(0, now - string.match(mark, '^%d+'))}
";

/// Whether a token could be stored: a write, because a full Redis and a replica answer PING too.
const PROBE: &str = r"
redis.call('SET', KEYS[1], ARGV[1], 'PX', 10000)
return {ARGV[1], 1, 0}
";
const PROBE_NAME: &str = "oncegate:{probe}";

const UNKNOWN: i64 = 0;
const ACCEPTED: i64 = 1;
const SPENT: i64 = 2;

/// Tokens and marks in Redis.
pub(super) struct RedisStore {
    link: Link,
    life: Life,
    full: Rarely,
    issue: Script,
    spend: Script,
    give_back: Script,
    spent_ago: Script,
    probe: Script,
}

impl RedisStore {
    /// Says in the log what is wrong with the server, if anything, and never fails.
    pub(super) async fn connect(target: Redis, life: Life) -> Self {
        let store = Self {
            link: Link::new(target),
            life,
            full: Rarely::default(),
            issue: Script::new(ISSUE),
            spend: Script::new(SPEND),
            give_back: Script::new(GIVE_BACK),
            spent_ago: Script::new(SPENT_AGO),
            probe: Script::new(PROBE),
        };
        if store.healthy().await {
            store.link.warn_of_eviction().await;
        }
        store
    }

    /// A silent Redis is logged by the link.
    fn note_room(&self, outcome: Result<(i64, i64), Failure>) -> bool {
        if outcome == Err(Failure::Full) && self.full.now() {
            tracing::warn!("Redis is full: new forms get tokens that will be unknown; tokens out there still work");
        }
        outcome.is_ok()
    }
}

#[async_trait]
impl Backend for RedisStore {
    async fn issue(&self, slip: &Slip) {
        let token = text(&slip.token);
        let mut call = self.issue.key(live(&slip.place));
        call.arg(&token).arg(milliseconds(self.life.token)).arg(LIVE_PER_SUBJECT);
        self.note_room(self.link.ask(&call, &token).await);
    }

    async fn spend(&self, slip: &Slip, request: Uuid) -> Spend {
        let request = request.hyphenated().to_string();
        let mut call = self.spend.key(live(&slip.place));
        call.key(spent(&slip.place)).arg(&request).arg(text(&slip.token)).arg(milliseconds(self.life.mark));
        match self.link.ask(&call, &request).await {
            Ok((ACCEPTED, _)) => Spend::Accepted,
            Ok((SPENT, ago)) => Spend::Spent { ago: age(ago) },
            Ok((UNKNOWN, _)) => Spend::Unknown,
            Ok(_) | Err(_) => Spend::Bypassed,
        }
    }

    async fn give_back(&self, slip: &Slip, request: Uuid) {
        let request = request.hyphenated().to_string();
        let mut call = self.give_back.key(live(&slip.place));
        call.key(spent(&slip.place)).arg(&request).arg(text(&slip.token)).arg(milliseconds(self.life.token));
        // Without an answer the token stays spent, and the page has a fresh one where it can be had.
        let _ = self.link.ask(&call, &request).await;
    }

    async fn spent_ago(&self, place: &Place) -> Option<Duration> {
        let intent = text(&place.intent);
        let mut call = self.spent_ago.key(spent(place));
        call.arg(&intent);
        match self.link.ask(&call, &intent).await {
            Ok((SPENT, ago)) => Some(age(ago)),
            Ok(_) | Err(_) => None,
        }
    }

    async fn healthy(&self) -> bool {
        let once = Uuid::new_v4().hyphenated().to_string();
        let mut call = self.probe.key(PROBE_NAME);
        call.arg(&once);
        self.note_room(self.link.ask(&call, &once).await)
    }
}

fn text(digest: &Digest) -> String {
    URL_SAFE_NO_PAD.encode(digest)
}

fn live(place: &Place) -> String {
    format!("oncegate:{{{}}}:live", text(&place.subject))
}

fn spent(place: &Place) -> String {
    format!("oncegate:{{{}}}:spent:{}", text(&place.subject), text(&place.intent))
}

/// At least one: Redis takes a life of zero for an error.
fn milliseconds(life: Duration) -> u64 {
    u64::try_from(life.as_millis()).unwrap_or(u64::MAX).max(1)
}

fn age(milliseconds: i64) -> Duration {
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
}
