//! What only a file can do: several processes on it, a lock from outside, a full disk. What both databases must do is
//! in the shared list, `tests/it/store`.

mod processes;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::order::decide::{Asked, Decision};
use crate::order::values::{Currency, Fingerprint, Quantity};
use crate::order::{Method, NewOrder, Wanted};
use crate::store::RecordState;

const LEASE: Duration = Duration::from_secs(300);
const KEY_TTL: Duration = Duration::from_secs(86_400);
/// How long the stores of these tests wait for a lock.
const PATIENCE: Duration = Duration::from_millis(300);

// --- arranging ---

struct Shop {
    store: Sqlite,
    buyer: AccountId,
    folder: TempDir,
}

impl Shop {
    /// One product (`tea`, 100 each, 50 left) and one account that can pay for all of it.
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = connect(&file_in(&folder)).await;
        store.migrate().await.unwrap();
        let tea = Product {
            sku: Sku::parse("tea").unwrap(),
            name: "Tea".into(),
            unit_price: 100,
            currency: Currency::parse("EUR").unwrap(),
            stock: 50,
        };
        store.import_products(&[tea]).await.unwrap();
        let buyer = store.open_account(&Subject::visitor(Uuid::new_v4()), 5_000).await.unwrap();
        Self { store, buyer, folder }
    }

    fn asked(&self, key: &str, quantity: u32) -> Asked {
        Asked {
            id: OrderId::new(),
            account: self.buyer,
            key: Key::parse(key).unwrap(),
            fingerprint: Fingerprint::of(1, [&quantity.to_be_bytes()[..]]),
            request: NewOrder {
                lines: vec![Wanted { sku: Sku::parse("tea").unwrap(), quantity: Quantity::new(quantity).unwrap() }],
                method: Method::Balance,
                payment_method: None,
                reference: None,
                note: None,
            },
            repeat_notice: None,
        }
    }

    async fn claimed(&self, asked: Asked) -> Placing {
        match self.store.claim(&[claim_of(&asked)], LEASE).await.unwrap()[..] {
            [ClaimResult::Won { epoch, .. }] => Placing { asked, epoch },
            ref lost => panic!("not won: {lost:?}"),
        }
    }

    async fn orders(&self) -> usize {
        self.store.orders(self.buyer, None, 100).await.unwrap().len()
    }

    /// A connection of somebody else's that holds the write lock until it is told to let go.
    async fn lock_from_outside(&self) -> SqliteConnection {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file_in(&self.folder));
        let mut other = options.connect().await.unwrap();
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
        other
    }

    async fn pragma(&self, sql: &'static str) {
        let mut writer = self.store.writer.acquire().await.unwrap();
        sqlx::raw_sql(sql).execute(&mut *writer).await.unwrap();
    }
}

fn file_in(folder: &TempDir) -> PathBuf {
    folder.path().join("shop.db")
}

async fn connect(path: &Path) -> Sqlite {
    Sqlite::connect(path, Options { busy_timeout: PATIENCE, readers: 2 }).await.unwrap()
}

fn claim_of(asked: &Asked) -> ClaimRequest {
    let id = RecordId { account: asked.account, operation: "place_order", key: asked.key.clone() };
    ClaimRequest { id, fingerprint: asked.fingerprint.clone() }
}

fn rules() -> SettleRules {
    SettleRules { key_ttl: KEY_TTL, lock_wait: PATIENCE, first_check: PATIENCE, render }
}

/// As the API does it: other content is refused, whatever stands.
fn render(decision: &Decision, standing: Option<&Order>) -> Answer {
    let (status, body) = match decision {
        Decision::Placed(order) => (201, format!("order {}", order.id)),
        Decision::Stands { same: true, .. } => (201, format!("order {}", standing.unwrap().id)),
        other => (422, format!("{other:?}")),
    };
    Answer { status, content_type: "application/json", location: None, body: Bytes::from(body), order: None }
}

// --- opening ---

#[tokio::test(flavor = "multi_thread")]
async fn folder_and_file_are_made_and_the_file_is_in_wal_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/deep/shop.db");
    let store = connect(&path).await;
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&store.readers).await.unwrap();
    assert_eq!((path.is_file(), mode.as_str()), (true, "wal"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_cannot_be_made_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("taken"), "").unwrap();
    let path = folder.path().join("taken/shop.db");
    let error = Sqlite::connect(&path, Options::default()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unreachable(text) if text.contains("taken")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_is_no_database_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let error = Sqlite::connect(folder.path(), Options::default()).await.unwrap_err();
    let name = folder.path().file_name().unwrap().to_str().unwrap();
    assert!(matches!(&error, StoreError::Unreachable(text) if text.contains(name)), "{error}");

    let path = folder.path().join("letter.txt");
    std::fs::write(&path, "Dear Sir or Madam, ".repeat(100)).unwrap();
    let error = Sqlite::connect(&path, Options::default()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Broken(text) if text.contains("letter.txt")), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_cannot_write() {
    let shop = Shop::open().await;
    let error = sqlx::query("DELETE FROM products").execute(&shop.store.readers).await.unwrap_err();
    assert!(error.to_string().contains("readonly"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_closed_is_there_when_it_is_opened_again() {
    let shop = Shop::open().await;
    let placing = shop.claimed(shop.asked("k", 1)).await;
    shop.store.settle(&[placing], &rules()).await.unwrap();
    shop.store.close().await;
    assert!(!shop.folder.path().join("shop.db-wal").exists(), "the last to close folds the WAL back");
    assert!(matches!(shop.store.ping().await, Err(StoreError::Unreachable(_))));
    let again = connect(&file_in(&shop.folder)).await;
    again.migrate().await.unwrap();
    assert_eq!(again.orders(shop.buyer, None, 10).await.unwrap().len(), 1);
}

// --- faults ---

#[tokio::test(flavor = "multi_thread")]
async fn only_what_must_last_waits_for_the_disk() {
    let shop = Shop::open().await;
    for (commit, level) in [(Commit::Durable, 2), (Commit::Quick, 1), (Commit::Durable, 2)] {
        let mut tx = shop.store.begin(commit).await.unwrap();
        let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut *tx).await.unwrap();
        assert_eq!(synchronous, level);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_future_leaves_nothing_behind() {
    let shop = Shop::open().await;
    let placing = shop.claimed(shop.asked("k", 1)).await;
    for after in 0..40 {
        let rules = rules();
        let settling = shop.store.settle(std::slice::from_ref(&placing), &rules);
        let outcome = tokio::time::timeout(Duration::from_micros(100 * after), settling).await;
        // Both in one statement: a commit that was on its way may still come, but whole.
        let (orders, balance): (i64, i64) =
            sqlx::query_as("SELECT (SELECT count(*) FROM orders), (SELECT balance FROM accounts)")
                .fetch_one(&shop.store.readers)
                .await
                .unwrap();
        assert_eq!(balance, 5_000 - 100 * orders, "half a transaction");
        // On a starved machine the lock may not come within its time either, which acknowledges nothing.
        assert!(orders == 1 || !matches!(outcome, Ok(Ok(_))), "acknowledged, and not there: {outcome:?}");
    }
    let settled = shop.store.settle(&[placing], &rules()).await.unwrap();
    let done = matches!(settled[0], Settled::Fenced | Settled::Decided { decision: Decision::Placed(_), .. });
    assert!(done && shop.orders().await == 1, "{settled:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_fails_clearly_writes_nothing_and_is_forgotten_when_there_is_room_again() {
    let shop = Shop::open().await;
    let batch = [shop.claimed(shop.asked("k", 1)).await];
    shop.pragma("PRAGMA max_page_count = 1").await; // SQLite takes this for "no larger than it is"
    let mut answers = Vec::new();
    while !matches!(answers.last(), Some(Err(_))) {
        let session = answers.len().to_string();
        let far = OffsetDateTime::now_utc() + LEASE;
        answers.push(shop.store.create_session(&session, &[0; 5_000], far).await);
        assert!(answers.len() < 1_000, "the disk is never full");
    }
    assert!(matches!(answers.last(), Some(Err(StoreError::Unreachable(text))) if text.contains("full")), "{answers:?}");
    shop.pragma("PRAGMA max_page_count = 100000").await;
    let settled = shop.store.settle(&batch, &rules()).await.unwrap();
    assert!(matches!(settled[0], Settled::Decided { decision: Decision::Placed(_), .. }), "{settled:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_sqlite_has_ended_by_itself_does_not_block_the_next() {
    let shop = Shop::open().await;
    let mut tx = shop.store.begin(Commit::Quick).await.unwrap();
    sqlx::raw_sql("ROLLBACK").execute(&mut *tx).await.unwrap();
    drop(tx);
    shop.claimed(shop.asked("k", 1)).await;
}

// --- placing outright ---

impl Shop {
    async fn outright(&self, ask: &Asked) -> Result<Outright> {
        Ok(self.store.place(&[ask], LEASE, &rules()).await?.remove(0))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeats_are_told_what_stands_while_somebody_holds_the_lock_and_new_orders_do_not_wait_long() {
    let shop = Shop::open().await;
    let first = shop.asked("k", 1);
    shop.outright(&first).await.unwrap();
    let other = shop.lock_from_outside().await;
    let stands = shop.outright(&first).await;
    assert!(matches!(stands, Ok(Outright::Stands(_))), "{stands:?}");
    let busy = shop.outright(&shop.asked("new", 1)).await;
    assert!(matches!(busy, Err(StoreError::Busy(_))), "{busy:?}");
    other.close().await.unwrap();
    let placed = shop.outright(&shop.asked("new", 1)).await;
    assert!(matches!(placed, Ok(Outright::Settled(_))), "{placed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_came_between_the_look_and_the_lock_keeps_its_key() {
    let shop = Shop::open().await;
    let ask = shop.asked("k", 1);
    let mut tx = shop.store.begin(Commit::Quick).await.unwrap();
    let mut placing = Box::pin(shop.outright(&ask));
    // Long enough for the look; were it not, the claim would be seen by it, which is right as well.
    let waits = timeout(PATIENCE / 10, &mut placing).await;
    assert!(waits.is_err(), "{waits:?}");
    sqlx::query(
        "INSERT INTO idempotency_records (account_id, operation, key, fingerprint, status, epoch, lease_expires_at, expires_at)
         VALUES ($1, 'place_order', 'k', $2, 'processing', 1, 9e15, 9e15)",
    )
    .bind(ask.account.0.hyphenated())
    .bind(ask.fingerprint.as_str())
    .execute(&mut *tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
    let came = placing.await;
    assert!(matches!(came, Ok(Outright::Undone | Outright::Stands(_))), "{came:?}");
    assert_eq!(shop.orders().await, 0);
}

// --- deciding and healing ---

#[tokio::test(flavor = "multi_thread")]
async fn a_healed_record_gives_the_original_content_its_order_whoever_healed_it() {
    let shop = Shop::open().await;
    let placing = shop.claimed(shop.asked("k", 1)).await;
    let first = placing.asked.clone();
    shop.store.settle(&[placing], &rules()).await.unwrap();
    shop.pragma("DELETE FROM idempotency_records").await;

    let other = shop.claimed(shop.asked("k", 2)).await;
    let settled = shop.store.settle(&[other], &rules()).await.unwrap();
    let same = false;
    assert!(
        matches!(&settled[0], Settled::Decided { decision, leaked: true, .. }
            if *decision == Decision::Stands { order: first.id, same }),
        "{settled:?}"
    );
    let record = shop.store.record(&claim_of(&first).id).await.unwrap().unwrap();
    let RecordState::Done(answer) = record.state else { panic!("{record:?}") };
    assert_eq!(record.fingerprint, first.fingerprint);
    assert_eq!((answer.status, answer.body), (201, Bytes::from(format!("order {}", first.id))));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_question_of_the_busy_paths_reads_a_whole_table() {
    let shop = Shop::open().await;
    for sql in [
        records::READ,
        shop::SHOP,
        catalogue::WRITE_STOCK,
        accounts::WRITE_BALANCES,
        fences::HELD,
        fences::ANSWER,
        fences::NAME,
        fences::GIVE_UP,
        fences::FORGET,
        orders::BY_ID,
        orders::FIRST_PAGE,
        orders::NEXT_PAGE,
        orders::LIFE,
        orders::OVERDUE,
        payments::DUE,
        payments::ORDER_OF,
        outbox::DUE,
        outbox::TAKE,
        outbox::GIVE_BACK,
        outbox::LAG,
        grants::STAND,
        grants::HEARD,
        sweep::RECORDS,
        sweep::SESSIONS,
        sweep::OUTBOX,
        sweep::CONSUMED,
        sweep::EVENTS,
    ] {
        let plan = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
        let steps: Vec<(i64, i64, i64, String)> = sqlx::query_as(plan).fetch_all(&shop.store.readers).await.unwrap();
        // A batch, or what comes out of one; a table is named by its index.
        let small = |of: &str| {
            of.contains("VIRTUAL TABLE")
                || of.starts_with("(subquery")
                || ["clock", "CONSTANT ROW", "asked"].contains(&of)
        };
        let whole = |step: &str| {
            step.strip_prefix("SCAN ").is_some_and(|of| !small(of)) || step == "USE TEMP B-TREE FOR ORDER BY"
        };
        let slow: Vec<_> = steps.iter().filter(|(.., step)| whole(step)).collect();
        assert!(slow.is_empty(), "{slow:?} in {sql}");
    }
}
