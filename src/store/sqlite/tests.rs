//! What only a file can do: several processes on it, a lock from outside, a full disk. What both databases must do is
//! in the shared list, `tests/it/store`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use sqlx::{ConnectOptions, SqliteConnection};
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

// --- several processes ---

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn stores_that_start_at_once_on_a_new_file_all_come_up() {
    for _ in 0..10 {
        let folder = tempfile::tempdir().unwrap();
        let mut starting = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let path = file_in(&folder);
            starting.spawn(async move {
                let patient = Options { busy_timeout: Duration::from_secs(20), readers: 1 };
                let store = Sqlite::connect(&path, patient).await?;
                store.migrate().await?;
                store.products().await
            });
        }
        for started in starting.join_all().await {
            assert_eq!(started.unwrap(), []);
        }
    }
}

/// Names the file for the processes that the next test starts: itself, again.
const CHILD: &str = "ONCEGATE_TEST_SQLITE_CHILD";

#[tokio::test(flavor = "multi_thread")]
async fn of_processes_that_start_at_once_on_a_new_file_all_come_up_and_one_wins_a_key() {
    if let Some(path) = std::env::var_os(CHILD) {
        return be_a_child(Path::new(&path)).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let children: Vec<_> = (0..6)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "--nocapture"])
                .arg("store::sqlite::tests::of_processes_that_start_at_once_on_a_new_file_all_come_up_and_one_wins_a_key")
                .env(CHILD, file_in(&folder))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let said: Vec<_> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    assert!(said.iter().all(|child| child.status.success()), "{said:?}");
    let count = |word: &str| said.iter().filter(|child| String::from_utf8_lossy(&child.stdout).contains(word)).count();
    assert_eq!((count("<won>"), count("<lost>")), (1, 5));
}

async fn be_a_child(path: &Path) {
    let options = Options { busy_timeout: Duration::from_secs(20), readers: 1 };
    let store = Sqlite::connect(path, options).await.unwrap();
    store.migrate().await.unwrap();
    let subject = Subject::parse("client:the one").unwrap();
    let account = store.open_account(&subject, 100).await.unwrap();
    let id = RecordId { account, operation: "place_order", key: Key::parse("k").unwrap() };
    let request = ClaimRequest { id, fingerprint: Fingerprint::of(1, []) };
    match store.claim(&[request], LEASE).await.unwrap()[..] {
        [ClaimResult::Won { .. }] => println!("<won>"),
        _ => println!("<lost>"),
    }
    assert_eq!(store.balance(account).await.unwrap(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_held_from_outside_is_busy_in_time_writes_nothing_and_is_forgotten_afterwards() {
    let shop = Shop::open().await;
    let placing = shop.claimed(shop.asked("k", 1)).await;
    let next = shop.asked("next", 1);
    let other = shop.lock_from_outside().await;

    let begun = Instant::now();
    let settled = shop.store.settle(std::slice::from_ref(&placing), &rules()).await;
    assert!(matches!(settled, Err(StoreError::Busy(_))), "{settled:?}");
    let claimed = shop.store.claim(&[claim_of(&next)], LEASE).await;
    assert!(matches!(claimed, Err(StoreError::Busy(_))), "{claimed:?}");
    assert!(begun.elapsed() >= PATIENCE && begun.elapsed() < 10 * PATIENCE, "{:?}", begun.elapsed());
    assert_eq!(shop.orders().await, 0, "readers go on");

    drop(other);
    assert_eq!(shop.store.record(&claim_of(&next).id).await.unwrap(), None, "a claim that was given up on never came");
    let settled = shop.store.settle(&[placing], &rules()).await.unwrap();
    assert!(matches!(settled[0], Settled::Decided { decision: Decision::Placed(_), .. }), "{settled:?}");
    assert_eq!(shop.orders().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_waits_as_long_as_it_says_also_after_one_that_waited_less() {
    let shop = Shop::open().await;
    let other = shop.lock_from_outside().await;
    for wait in [Duration::from_millis(50), Duration::from_millis(400), Duration::from_millis(50)] {
        let begun = Instant::now();
        assert!(matches!(shop.store.begin_within(Commit::Quick, wait).await, Err(StoreError::Busy(_))));
        assert!(begun.elapsed() >= wait && begun.elapsed() < wait + PATIENCE, "{wait:?}: {:?}", begun.elapsed());
    }
    drop(other);
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
        let whole = shop.orders().await == 1;
        let balance = shop.store.balance(shop.buyer).await.unwrap();
        assert_eq!(balance, if whole { 4_900 } else { 5_000 }, "half a transaction");
        assert!(whole || outcome.is_err());
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
        orders::STANDING,
        orders::BY_ID,
        orders::FIRST_PAGE,
        orders::NEXT_PAGE,
        orders::LIFE,
        orders::OVERDUE,
        payments::DUE,
        payments::ORDER_OF,
    ] {
        let plan = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
        let steps: Vec<(i64, i64, i64, String)> = sqlx::query_as(plan).fetch_all(&shop.store.readers).await.unwrap();
        let whole = |step: &str| {
            step.strip_prefix("SCAN ").is_some_and(|of| !["clock", "CONSTANT ROW"].contains(&of))
                || step == "USE TEMP B-TREE FOR ORDER BY"
        };
        let slow: Vec<_> = steps.iter().filter(|(.., step)| whole(step)).collect();
        assert!(slow.is_empty(), "{slow:?} in {sql}");
    }
}
