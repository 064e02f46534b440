//! Visitors' sessions. `save` never inserts, so a session that was deleted meanwhile stays dead.

use std::sync::Arc;

use time::OffsetDateTime;

use super::errors::column;
use super::gather::{Gather, place};
use super::pools::Pools;
use crate::store::Result;

statements! {
    /// The same id twice is created by the first of them.
    CREATE = concat!("
        WITH asked AS MATERIALIZED (
            SELECT * FROM unnest($1::text[], $2::bytea[], $3::timestamptz[])
                WITH ORDINALITY AS asked (id, data, expires_at, n)
        ), created AS (
            INSERT INTO sessions (id, data, expires_at) SELECT id, data, expires_at FROM asked ORDER BY id, n
            ON CONFLICT DO NOTHING RETURNING id
        )
        SELECT min(asked.n) AS n, ", unhurried!(), " FROM created JOIN asked USING (id) GROUP BY created.id");
    SAVE = "UPDATE sessions SET data = $2, expires_at = $3 WHERE id = $1";
    /// The expiry is looked at outside of what finds the row: a plan that was made while the table was empty would as soon
    /// read all sessions by it.
    LOAD = "
        SELECT asked.n, s.data FROM unnest($1::text[]) WITH ORDINALITY AS asked (id, n)
        CROSS JOIN LATERAL (SELECT data, expires_at FROM sessions WHERE id = asked.id LIMIT 1) s
        WHERE s.expires_at > now()";
    DELETE = "DELETE FROM sessions WHERE id = $1";
}

/// A session to be kept.
struct Fresh {
    id: String,
    data: Vec<u8>,
    expires_at: OffsetDateTime,
}

/// The sessions of all visitors: each request begins with one.
pub(super) struct Sessions {
    pools: Arc<Pools>,
    create: Gather<Fresh, bool>,
    load: Gather<String, Option<Vec<u8>>>,
}

impl Sessions {
    pub(super) fn new(pools: &Arc<Pools>) -> Self {
        let (creating, loading) = (pools.clone(), pools.clone());
        Self {
            pools: pools.clone(),
            create: Gather::new(move |fresh| create_all(creating.clone(), fresh)),
            load: Gather::new(move |ids| load_all(loading.clone(), ids)),
        }
    }

    /// A repeat after a lost reply finds its own row and answers `false`: the caller takes another id.
    pub(super) async fn create(&self, id: &str, data: &[u8], expires_at: OffsetDateTime) -> Result<bool> {
        self.create.ask(Fresh { id: id.to_owned(), data: data.to_vec(), expires_at }).await
    }

    pub(super) async fn save(&self, id: &str, data: &[u8], expires_at: OffsetDateTime) -> Result<()> {
        let statement = || sqlx::query(SAVE).bind(id.to_owned()).bind(data.to_vec()).bind(expires_at);
        self.pools.query(statement).await.map(drop)
    }

    pub(super) async fn load(&self, id: &str) -> Result<Option<Vec<u8>>> {
        self.load.ask(id.to_owned()).await
    }

    pub(super) async fn delete(&self, id: &str) -> Result<()> {
        self.pools.query(|| sqlx::query(DELETE).bind(id.to_owned())).await.map(drop)
    }
}

async fn create_all(pools: Arc<Pools>, fresh: Vec<Fresh>) -> Result<Vec<bool>> {
    let mut created = vec![false; fresh.len()];
    let statement = || {
        sqlx::query(CREATE)
            .bind(fresh.iter().map(|one| one.id.clone()).collect::<Vec<_>>())
            .bind(fresh.iter().map(|one| one.data.clone()).collect::<Vec<_>>())
            .bind(fresh.iter().map(|one| one.expires_at).collect::<Vec<_>>())
    };
    for row in pools.query(statement).await? {
        *place(&row, &mut created)? = true;
    }
    Ok(created)
}

async fn load_all(pools: Arc<Pools>, ids: Vec<String>) -> Result<Vec<Option<Vec<u8>>>> {
    let mut loaded = vec![None; ids.len()];
    for row in pools.query(|| sqlx::query(LOAD).bind(ids.clone())).await? {
        *place(&row, &mut loaded)? = Some(column(&row, "data")?);
    }
    Ok(loaded)
}
