//! Visitors' sessions. `save` never inserts, so a session that was deleted meanwhile stays dead.

use time::OffsetDateTime;

use super::errors::column;
use super::pools::Pools;
use crate::store::Result;

statements! {
    CREATE = "INSERT INTO sessions (id, data, expires_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING id";
    SAVE = "UPDATE sessions SET data = $2, expires_at = $3 WHERE id = $1";
    LOAD = "SELECT data FROM sessions WHERE id = $1 AND expires_at > now()";
    DELETE = "DELETE FROM sessions WHERE id = $1";
}

/// A repeat after a lost reply finds its own row and answers `false`: the caller takes another id.
pub(super) async fn create(pools: &Pools, id: &str, data: &[u8], expires_at: OffsetDateTime) -> Result<bool> {
    let row = pools.query_one(|| sqlx::query(CREATE).bind(id.to_owned()).bind(data.to_vec()).bind(expires_at));
    Ok(row.await?.is_some())
}

pub(super) async fn save(pools: &Pools, id: &str, data: &[u8], expires_at: OffsetDateTime) -> Result<()> {
    pools.query(|| sqlx::query(SAVE).bind(id.to_owned()).bind(data.to_vec()).bind(expires_at)).await.map(drop)
}

pub(super) async fn load(pools: &Pools, id: &str) -> Result<Option<Vec<u8>>> {
    let row = pools.query_one(|| sqlx::query(LOAD).bind(id.to_owned())).await?;
    row.map(|row| column(&row, "data")).transpose()
}

pub(super) async fn delete(pools: &Pools, id: &str) -> Result<()> {
    pools.query(|| sqlx::query(DELETE).bind(id.to_owned())).await.map(drop)
}
