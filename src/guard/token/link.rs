//! The line to Redis: one shared connection, short time-outs, one guarded second attempt, and a circuit that keeps a
//! lost Redis from costing every request the whole time-out.
//!
//! The connection is kept here and not in the library's manager, because the manager opens a new one only after an I/O error:
//! after a silent fail-over (no reset ever arrives), `READONLY` from a demoted master or `LOADING` at start it would stay where
//! it is. Here any failure drops the connection, and the next question goes to whoever the address names by then.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::cluster::ClusterClientBuilder;
use ::redis::cluster_async::ClusterConnection;
use ::redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult, ScriptInvocation, Value, cmd};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, timeout_at};

use crate::config::{RedactedUrl, Redis};

/// One reply. Redis answers within a millisecond; what takes this long is lost or stalled.
const ANSWER: Duration = Duration::from_millis(300);
/// One connection, with its greeting.
const CONNECT: Duration = Duration::from_millis(300);
/// One question with all it takes. A buyer waits this long, once, when Redis stalls.
const WHOLE: Duration = Duration::from_millis(600);
/// How long a silent Redis is left alone; then one caller tries.
const PAUSE: Duration = Duration::from_secs(1);
/// Commands that may wait on the connection. The library's 50 would make the reply time-out include a queue.
const WAITING: usize = 4096;
/// Redirections that the cluster client follows (it counts them as retries).
const REDIRECTIONS: u32 = 3;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Redis is there and out of memory.
    Full,
    /// No answer in time, or none that makes sense. What was asked may have been done.
    Silent,
}

/// The line.
pub(super) struct Link {
    target: Redis,
    slot: AsyncMutex<Slot>,
    circuit: Circuit,
}

#[derive(Default)]
struct Slot {
    connection: Option<Connection>,
    /// Counts connections, so that who failed on an old one leaves the new one alone.
    generation: u64,
}

#[derive(Clone)]
enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Link {
    pub(super) fn new(target: Redis) -> Self {
        // The client panics on rediss:// where nobody chose a provider. `main` has chosen; another program may not have.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        Self { target, slot: AsyncMutex::default(), circuit: Circuit::default() }
    }

    /// Runs a script that may run twice. Its reply is `{echo, number, number}`; the echo proves that the reply belongs to this
    /// question and not to a neighbour's on the shared connection.
    pub(super) async fn ask(&self, call: &ScriptInvocation<'_>, echo: &str) -> Result<(i64, i64), Failure> {
        if !self.circuit.admits() {
            return Err(Failure::Silent);
        }
        match self.converse(call, echo).await {
            Ok(answer) => {
                self.circuit.close(&self.target);
                Ok(answer)
            }
            Err(error) if is_full(&error) => {
                self.circuit.close(&self.target);
                Err(Failure::Full)
            }
            Err(error) => {
                self.circuit.open(&self.target, &error);
                Err(Failure::Silent)
            }
        }
    }

    /// A connection that broke, perhaps long ago while idle, is replaced and the question asked once more. One that
    /// cannot be made ends it.
    async fn converse(&self, call: &ScriptInvocation<'_>, echo: &str) -> RedisResult<(i64, i64)> {
        let deadline = Instant::now() + WHOLE;
        let mut attempts = 2;
        loop {
            attempts -= 1;
            let (generation, connection) = self.connection(deadline).await?;
            let reply = connection.run(call, echo, deadline).await;
            match reply {
                Err(error) if !is_full(&error) => {
                    self.drop_connection(generation).await;
                    if attempts == 0 {
                        return Err(error);
                    }
                }
                reply => return reply,
            }
        }
    }

    /// The shared connection, made if need be.
    async fn connection(&self, deadline: Instant) -> RedisResult<(u64, Connection)> {
        let mut slot = timeout_at(deadline, self.slot.lock()).await.map_err(|_| silent())?;
        if slot.connection.is_none() {
            let until = deadline.min(Instant::now() + CONNECT);
            let opened = timeout_at(until, Connection::open(&self.target)).await.unwrap_or_else(|_| Err(silent()))?;
            slot.generation += 1;
            slot.connection = Some(opened);
        }
        let generation = slot.generation;
        slot.connection.clone().map(|connection| (generation, connection)).ok_or_else(silent)
    }

    async fn drop_connection(&self, generation: u64) {
        let mut slot = self.slot.lock().await;
        if slot.generation == generation {
            slot.connection = None;
        }
    }

    /// All our names have a life, so every policy but `noeviction` may throw out live tokens.
    pub(super) async fn warn_of_eviction(&self) {
        let deadline = Instant::now() + WHOLE;
        let Ok((_, connection)) = self.connection(deadline).await else { return };
        match timeout_at(deadline, connection.eviction_policy()).await {
            Ok(Ok(policy)) if policy != "noeviction" => tracing::warn!(
                policy,
                "Redis may evict live tokens when memory runs short: set maxmemory-policy noeviction for this instance"
            ),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "Redis does not tell its eviction policy"),
            Err(_) => tracing::debug!("Redis does not tell its eviction policy in time"),
        }
    }
}

impl Connection {
    async fn open(target: &Redis) -> RedisResult<Self> {
        match target {
            Redis::Memory => Err((ErrorKind::InvalidClientConfig, "memory:// is no server").into()),
            Redis::Single(url) => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(CONNECT))
                    .set_response_timeout(Some(ANSWER))
                    .set_pipeline_buffer_size(WAITING);
                let client = Client::open(url.expose())?;
                Ok(Self::Single(client.get_multiplexed_async_connection_with_config(&config).await?))
            }
            Redis::Cluster(nodes) => {
                // Without these the cluster client waits for ever, and sends again whatever it is.
                let client = ClusterClientBuilder::new(nodes.iter().map(RedactedUrl::expose))
                    .connection_timeout(CONNECT)
                    .response_timeout(ANSWER)
                    .retries(REDIRECTIONS)
                    .build()?;
                Ok(Self::Cluster(client.get_async_connection().await?))
            }
        }
    }

    async fn run(self, call: &ScriptInvocation<'_>, echo: &str, deadline: Instant) -> RedisResult<(i64, i64)> {
        let until = deadline.min(Instant::now() + ANSWER);
        let reply = async {
            match self {
                Self::Single(mut connection) => call.invoke_async(&mut connection).await,
                Self::Cluster(mut connection) => call.invoke_async(&mut connection).await,
            }
        };
        let (back, first, second): (String, i64, i64) = timeout_at(until, reply).await.map_err(|_| silent())??;
        if back == echo {
            Ok((first, second))
        } else {
            Err((ErrorKind::UnexpectedReturnType, "a reply to another question").into())
        }
    }

    /// Of any one node in a cluster.
    async fn eviction_policy(self) -> RedisResult<String> {
        let info = match self {
            Self::Single(mut connection) => cmd("INFO").arg("memory").query_async::<Value>(&mut connection).await?,
            Self::Cluster(mut connection) => cmd("INFO").arg("memory").query_async::<Value>(&mut connection).await?,
        };
        find_policy(&info).ok_or_else(|| (ErrorKind::UnexpectedReturnType, "no maxmemory_policy").into())
    }
}

/// A cluster answers with one text per node.
fn find_policy(info: &Value) -> Option<String> {
    match info {
        Value::Map(nodes) => nodes.iter().find_map(|(_, node)| find_policy(node)),
        Value::Array(nodes) => nodes.iter().find_map(find_policy),
        text => {
            let text: String = ::redis::from_redis_value(text.clone()).ok()?;
            text.lines().find_map(|line| line.strip_prefix("maxmemory_policy:")).map(|policy| policy.trim().to_owned())
        }
    }
}

fn silent() -> RedisError {
    (ErrorKind::Io, "no answer in time").into()
}

/// Redis 7 passes a script's error code on; 6 wraps it into the text.
fn is_full(error: &RedisError) -> bool {
    error.code() == Some("OOM") || error.detail().is_some_and(|detail| detail.contains("-OOM "))
}

/// Closed: questions go through. Open: nobody asks until the pause is over, then one caller per pause.
#[derive(Default)]
struct Circuit {
    open_until: Mutex<Option<Instant>>,
}

impl Circuit {
    fn admits(&self) -> bool {
        let now = Instant::now();
        let mut open_until = self.open_until();
        match *open_until {
            None => true,
            Some(until) if now < until => false,
            Some(_) => {
                *open_until = Some(now + PAUSE);
                true
            }
        }
    }

    fn open(&self, target: &Redis, error: &RedisError) {
        if self.open_until().replace(Instant::now() + PAUSE).is_none() {
            tracing::warn!(redis = ?target, %error, "Redis gives no answer: form tokens are bypassed, keys and constraints decide");
        }
    }

    fn close(&self, target: &Redis) {
        if self.open_until().take().is_some() {
            tracing::info!(redis = ?target, "Redis answers again: form tokens decide again");
        }
    }

    fn open_until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.open_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(circuit: &Circuit) {
        circuit.open(&Redis::Memory, &silent());
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_circuit_lets_one_caller_try_per_pause() {
        let circuit = Circuit::default();
        assert!(circuit.admits() && circuit.admits());
        failed(&circuit);
        assert!(!circuit.admits());
        tokio::time::advance(PAUSE).await;
        assert!(circuit.admits(), "the one that tries");
        assert!(!circuit.admits(), "another meanwhile");
        failed(&circuit);
        assert!(!circuit.admits());
        tokio::time::advance(PAUSE).await;
        assert!(circuit.admits());
        circuit.close(&Redis::Memory);
        assert!(circuit.admits() && circuit.admits());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_vanished_while_trying_does_not_keep_the_circuit_open() {
        let circuit = Circuit::default();
        failed(&circuit);
        tokio::time::advance(PAUSE).await;
        assert!(circuit.admits());
        tokio::time::advance(PAUSE).await;
        assert!(circuit.admits());
    }

    #[test]
    fn the_eviction_policy_is_found_in_one_node_or_many() {
        let one = Value::BulkString(b"maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\nx:y\r\n".to_vec());
        assert_eq!(find_policy(&one).as_deref(), Some("allkeys-lru"));
        let many = Value::Map(vec![(Value::SimpleString("127.0.0.1:1".into()), one)]);
        assert_eq!(find_policy(&many).as_deref(), Some("allkeys-lru"));
        assert_eq!(find_policy(&Value::Nil), None);
        assert_eq!(find_policy(&Value::Int(1)), None);
    }

    #[test]
    fn a_full_redis_6_is_told_from_other_errors_though_it_wraps_the_code() {
        let wrapped = "running script (call to f_1): @user_script:1: -OOM command not allowed".to_owned();
        assert!(is_full(&(ErrorKind::Extension, "ERR", wrapped).into()));
        assert!(!is_full(&silent()));
    }
}
