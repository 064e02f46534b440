//! One connection to Redis, made when it is needed and dropped after any failure. The queue has two of them, apart from the
//! token layer's: blocking reads would hold up whatever shares their connection, and need a longer time-out than a
//! command (the client's own, half a second, would give up on each quiet read and lose what comes then).

use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::cluster::ClusterClientBuilder;
use ::redis::cluster_async::ClusterConnection;
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, ScriptInvocation,
};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::Fault;
use crate::config::{RedactedUrl, Redis};

/// One connection, with its greeting. Nobody waits for a worker, so it may take its time.
const CONNECT: Duration = Duration::from_secs(1);
/// Redirections that the cluster client follows (it counts them as retries).
const REDIRECTIONS: u32 = 3;

pub(super) struct Link {
    target: Redis,
    /// How long one answer may take.
    answer: Duration,
    connection: Mutex<Option<Connection>>,
}

#[derive(Clone)]
enum Connection {
    Single(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// What is asked.
pub(super) enum Ask<'a> {
    Command(&'a Cmd),
    Pipeline(&'a Pipeline),
    Script(&'a ScriptInvocation<'a>),
}

impl Link {
    pub(super) fn new(target: Redis, answer: Duration) -> Self {
        // The client panics on rediss:// where nobody chose a provider. `main` has chosen; another program may not have.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        Self { target, answer, connection: Mutex::default() }
    }

    /// Asks once. After a failure the next question goes to whoever the address names by then.
    pub(super) async fn ask<T: FromRedisValue>(&self, what: Ask<'_>) -> RedisResult<T> {
        let mut slot = self.connection.lock().await;
        let connection = match slot.take() {
            Some(connection) => connection,
            None => timeout(CONNECT, self.open()).await.unwrap_or_else(|_| Err(silent()))?,
        };
        let answer = timeout(self.answer, connection.clone().run(what)).await.unwrap_or_else(|_| Err(silent()));
        if answer.is_ok() {
            *slot = Some(connection);
        }
        answer
    }

    async fn open(&self) -> RedisResult<Connection> {
        match &self.target {
            Redis::Memory => Err((ErrorKind::InvalidClientConfig, "memory:// is no server").into()),
            Redis::Single(url) => {
                let config = AsyncConnectionConfig::new()
                    .set_connection_timeout(Some(CONNECT))
                    .set_response_timeout(Some(self.answer));
                let client = Client::open(url.expose())?;
                Ok(Connection::Single(client.get_multiplexed_async_connection_with_config(&config).await?))
            }
            Redis::Cluster(nodes) => {
                // Without these the cluster client waits for ever, and sends again whatever it is.
                let client = ClusterClientBuilder::new(nodes.iter().map(RedactedUrl::expose))
                    .connection_timeout(CONNECT)
                    .response_timeout(self.answer)
                    .retries(REDIRECTIONS)
                    .build()?;
                Ok(Connection::Cluster(client.get_async_connection().await?))
            }
        }
    }
}

impl Connection {
    async fn run<T: FromRedisValue>(self, what: Ask<'_>) -> RedisResult<T> {
        match (self, what) {
            (Self::Single(mut to), Ask::Command(command)) => command.query_async(&mut to).await,
            (Self::Single(mut to), Ask::Pipeline(pipeline)) => pipeline.query_async(&mut to).await,
            (Self::Single(mut to), Ask::Script(script)) => script.invoke_async(&mut to).await,
            (Self::Cluster(mut to), Ask::Command(command)) => command.query_async(&mut to).await,
            (Self::Cluster(mut to), Ask::Pipeline(pipeline)) => pipeline.query_async(&mut to).await,
            (Self::Cluster(mut to), Ask::Script(script)) => script.invoke_async(&mut to).await,
        }
    }
}

fn silent() -> RedisError {
    (ErrorKind::Io, "no answer in time").into()
}

impl From<RedisError> for Fault {
    fn from(error: RedisError) -> Self {
        Self::Silent(error.to_string())
    }
}
