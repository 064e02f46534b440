//! What the embedded pair is measured against: the same rows of the same schema by plain SQLite statements, prepared
//! once, in a loop with one commit per order. Durable in the same way (WAL, `synchronous=FULL`), with the settings of
//! the service's writer (`store/sqlite/connect.rs`). Left out, to the loop's advantage: any reading of what stands, and the
//! coupons that follow.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use uuid::Uuid;

use crate::clients::Run;
use crate::shop::sku;
use crate::tally::{Outcome, Tally};

const FUNDS: i64 = 1_000_000_000_000;
const DAY: i64 = 24 * 60 * 60 * 1000;

/// Places orders until the window is over. The file has the service's schema and its products.
///
/// # Errors
/// When a statement fails, or an order is not there afterwards.
pub fn run(file: &Path, accounts: u32, products: u32, window: Duration) -> Result<Run> {
    let mut database = open(file)?;
    open_accounts(&mut database, accounts)?;
    let before = orders(&database)?;
    let mut tally = Tally::new()?;
    let begun = Instant::now();
    while begun.elapsed() < window {
        let started = Instant::now();
        place(&mut database, fastrand::u32(1..=accounts), fastrand::u32(1..=products))?;
        tally.count(Outcome::Right, started.elapsed(), true);
    }
    let window = begun.elapsed();
    ensure!(orders(&database)? - before == i64::try_from(tally.right)?, "an order is missing");
    Ok(Run { tally, window })
}

fn open(file: &Path) -> Result<Connection> {
    let database = Connection::open(file).with_context(|| file.display().to_string())?;
    database.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -16384;
         PRAGMA wal_autocheckpoint = 2000; PRAGMA journal_size_limit = 33554432; PRAGMA temp_store = MEMORY;",
    )?;
    database.set_prepared_statement_cache_capacity(64);
    Ok(database)
}

/// Runs statements on the file.
///
/// # Errors
/// When one of them fails.
pub fn execute(file: &Path, statements: &str) -> Result<()> {
    Ok(open(file)?.execute_batch(statements)?)
}

fn orders(database: &Connection) -> Result<i64> {
    Ok(database.query_row("SELECT count(*) FROM orders", [], |row| row.get(0))?)
}

fn account_id(n: u32) -> String {
    format!("00000000-0000-7000-8000-{n:012}")
}

fn open_accounts(database: &mut Connection, accounts: u32) -> Result<()> {
    let tx = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for n in 1..=accounts {
        let id = account_id(n);
        let new = tx
            .prepare_cached("INSERT OR IGNORE INTO accounts (id, subject, balance) VALUES (?1, ?2, ?3)")?
            .execute(params![id, format!("client:bench-{n}"), FUNDS])?;
        if new == 1 {
            tx.prepare_cached("INSERT INTO account_entries (account_id, kind, amount) VALUES (?1, 'opening', ?2)")?
                .execute(params![id, FUNDS])?;
        }
    }
    Ok(tx.commit()?)
}

fn place(database: &mut Connection, account: u32, product: u32) -> Result<()> {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    let (order, account) = (Uuid::now_v7().to_string(), account_id(account));
    let tx = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let (sku, name, price, currency): (String, String, i64, String) = tx
        .prepare_cached(
            "UPDATE products SET stock = stock - 1 WHERE sku = ?1 AND stock >= 1
             RETURNING sku, name, unit_price, currency",
        )?
        .query_row([sku(product)], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    let paid = tx
        .prepare_cached("UPDATE accounts SET balance = balance - ?2 WHERE id = ?1 AND balance >= ?2")?
        .execute(params![account, price])?;
    ensure!(paid == 1, "no funds");
    let goods = Goods { sku: &sku, name: &name, price, currency: &currency };
    write(&tx, &order, &account, &goods, now)?;
    Ok(tx.commit()?)
}

struct Goods<'a> {
    sku: &'a str,
    name: &'a str,
    price: i64,
    currency: &'a str,
}

fn write(tx: &Transaction<'_>, order: &str, account: &str, goods: &Goods<'_>, now: i64) -> Result<()> {
    let Goods { sku, name, price, currency } = goods;
    // As long as those of the service.
    let key = order;
    let fingerprint = format!("1:{}", "0123456789abcdef".repeat(4));
    tx.prepare_cached(
        "INSERT INTO orders (id, account_id, idempotency_key, fingerprint, status, total, currency, payment_method,
             created_at, updated_at)
         VALUES (?1, ?2, ?3, ?4, 'paid', ?5, ?6, 'balance', ?7, ?7)",
    )?
    .execute(params![order, account, key, fingerprint, price, currency, now])?;
    tx.prepare_cached(
        "INSERT INTO order_lines (order_id, line_no, sku, name, quantity, unit_price) VALUES (?1, 1, ?2, ?3, 1, ?4)",
    )?
    .execute(params![order, sku, name, price])?;
    tx.prepare_cached(
        "INSERT INTO payments (order_id, attempt, method, amount, status, created_at, updated_at, next_check_at)
         VALUES (?1, 1, 'balance', ?2, 'captured', ?3, ?3, ?3)",
    )?
    .execute(params![order, price, now])?;
    tx.prepare_cached(
        "INSERT INTO account_entries (account_id, order_id, kind, amount, created_at) VALUES (?1, ?2, 'charge', ?3, ?4)",
    )?
    .execute(params![account, order, -price, now])?;
    tx.prepare_cached(
        "INSERT INTO outbox (id, topic, payload, created_at, due_at) VALUES (?1, 'order.paid', ?2, ?3, ?3)",
    )?
    .execute(params![
        Uuid::now_v7().to_string(),
        format!("{{\"order_id\":\"{order}\",\"account_id\":\"{account}\"}}"),
        now
    ])?;
    let body = format!(
        "{{\"id\":\"{order}\",\"status\":\"paid\",\"lines\":[{{\"sku\":\"{sku}\",\"name\":\"{name}\",\"quantity\":1,\
         \"unit_price\":{price}}}],\"total\":{price},\"currency\":\"{currency}\",\"payment\":{{\"method\":\"balance\",\
         \"status\":\"captured\"}},\"reference\":null,\"note\":null,\"coupon\":null,\
         \"created_at\":\"2026-01-01T00:00:00.000Z\"}}"
    );
    tx.prepare_cached(
        "INSERT INTO idempotency_records (account_id, operation, key, fingerprint, status, epoch, lease_expires_at,
             response_status, response_content_type, response_location, response_body, order_id, created_at,
             completed_at, expires_at)
         VALUES (?1, 'place_order', ?2, ?3, 'done', 1, ?4, 201, 'application/json', ?5, ?6, ?7, ?8, ?8, ?9)",
    )?
    .execute(params![
        account,
        key,
        fingerprint,
        now + 30_000,
        format!("/api/orders/{order}"),
        body.as_bytes(),
        order,
        now,
        now + DAY
    ])?;
    Ok(())
}
