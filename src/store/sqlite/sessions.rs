//! Sessions of browsers, as opaque bytes. Quick commits: a visitor whose order is durable is so too.

use time::OffsetDateTime;

use super::row::to_millis;
use super::{Commit, Result, Sqlite, fault, now};

pub(super) async fn create(store: &Sqlite, id: &str, data: &[u8], expires_at: OffsetDateTime) -> Result<bool> {
    let sql = "INSERT INTO sessions (id, data, expires_at) VALUES ($1, $2, $3) ON CONFLICT (id) DO NOTHING";
    write(store, sql, id, data, expires_at).await
}

pub(super) async fn save(store: &Sqlite, id: &str, data: &[u8], expires_at: OffsetDateTime) -> Result<()> {
    write(store, "UPDATE sessions SET data = $2, expires_at = $3 WHERE id = $1", id, data, expires_at).await?;
    Ok(())
}

async fn write(store: &Sqlite, sql: &'static str, id: &str, data: &[u8], expires_at: OffsetDateTime) -> Result<bool> {
    let mut tx = store.begin(Commit::Quick).await?;
    let written =
        sqlx::query(sql).bind(id).bind(data).bind(to_millis(expires_at)).execute(&mut *tx).await.map_err(fault)?;
    tx.commit().await.map_err(fault)?;
    Ok(written.rows_affected() == 1)
}

pub(super) async fn load(store: &Sqlite, id: &str) -> Result<Option<Vec<u8>>> {
    sqlx::query_scalar(concat!("SELECT data FROM sessions WHERE id = $1 AND expires_at > ", now!()))
        .bind(id)
        .fetch_optional(&store.readers)
        .await
        .map_err(fault)
}

pub(super) async fn delete(store: &Sqlite, id: &str) -> Result<()> {
    let mut tx = store.begin(Commit::Quick).await?;
    sqlx::query("DELETE FROM sessions WHERE id = $1").bind(id).execute(&mut *tx).await.map_err(fault)?;
    tx.commit().await.map_err(fault)
}
