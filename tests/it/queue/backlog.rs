//! A backlog is swept while buyers order. `scripts/bench-sweep` measures it on the running service, with a million rows and a
//! database that waits for its disk; here the limit on the time is one that a starved machine keeps.

use std::time::{Duration, Instant};

use oncegate::worker::sweep::{self, Rules};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::harness::goods::{account, asked, place_one, product};
use crate::harness::{Sql, TestStore};

/// Orders per second while it is measured.
const RATE: u32 = 50;
/// Longer than this nobody waits for an order, whatever else the machine does.
const LONGEST: Duration = Duration::from_secs(1);

/// How many rows: few enough for every run of the tests.
const BACKLOG: u64 = 100_000;
/// How long to look at orders without a sweep.
const CALM: Duration = Duration::from_secs(2);

async fn fill(t: &TestStore, rows: u64) {
    let account = Uuid::new_v4();
    let past = t.sql.moment(-3600);
    let (numbers, empty) = match &t.sql {
        Sql::Postgres(_) => (format!("generate_series(1, {rows})"), "'\\x7b7d'::bytea"),
        Sql::Sqlite(_) => (
            format!(
                "(WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows}) SELECT n FROM s)"
            ),
            "x'7b7d'",
        ),
    };
    let statement = format!(
        "INSERT INTO idempotency_records (account_id, operation, key, fingerprint, status, epoch, lease_expires_at,
            response_status, response_body, created_at, completed_at, expires_at)
        SELECT '{account}', 'place_order', 'old-' || n, 'f', 'done', 1, {past}, 201, {empty}, {past}, {past}, {past}
        FROM {numbers} AS numbers (n)"
    );
    let statement = match &t.sql {
        Sql::Postgres(_) => statement,
        Sql::Sqlite(_) => statement.replace(" AS numbers (n)", ""),
    };
    t.sql.run(&statement).await;
    if let Sql::Postgres(_) = &t.sql {
        t.sql.run("ANALYZE idempotency_records").await;
    }
}

/// Places orders at the rate until `enough`; how long each took, sorted.
async fn order_while(t: &TestStore, mut enough: impl FnMut(Instant) -> bool) -> Vec<Duration> {
    let buyer = account(&t.store, 1_000_000_000).await;
    let mut times = Vec::new();
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / RATE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !enough(begun) {
        ticks.tick().await;
        let ordered = Instant::now();
        place_one(&t.store, asked(buyer, &Uuid::new_v4().to_string(), &[("A", 1)])).await;
        times.push(ordered.elapsed());
    }
    times.sort_unstable();
    times
}

fn percentile(times: &[Duration], of: usize) -> Duration {
    times[(times.len() * of / 100).min(times.len() - 1)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_are_placed_as_ever_while_two_sweepers_take_a_backlog_away() {
    let t = TestStore::new().await;
    t.store.import_products(&[product("A", 1, 1_000_000)]).await.unwrap();
    fill(&t, BACKLOG).await;
    let before = order_while(&t, |begun| begun.elapsed() > CALM).await;

    let rules = Rules { payment_window: Duration::from_secs(3600), lock_wait: Duration::from_secs(1) };
    let sweeper = |store: std::sync::Arc<dyn oncegate::store::Store>| {
        tokio::spawn(async move { sweep::run_once(&*store, &rules, &CancellationToken::new()).await.unwrap() })
    };
    let begun = Instant::now();
    let sweepers = [sweeper(t.store.clone()), sweeper(t.second().await)];
    let during = order_while(&t, |_| sweepers.iter().all(tokio::task::JoinHandle::is_finished)).await;
    let took = begun.elapsed();
    let mut swept = Vec::new();
    for sweeper in sweepers {
        swept.push(sweeper.await.unwrap().records);
    }
    println!(
        "{BACKLOG} rows in {took:.1?} by {swept:?}; placing p50 and p99 before {:?} {:?}, during {:?} {:?} ({} orders)",
        percentile(&before, 50),
        percentile(&before, 99),
        percentile(&during, 50),
        percentile(&during, 99),
        during.len()
    );
    assert_eq!(swept.iter().sum::<u64>(), BACKLOG);
    assert!(swept.iter().all(|rows| *rows > 0), "{swept:?}: one did all the work");
    assert!(percentile(&during, 99) < LONGEST, "{:?}", percentile(&during, 99));
}
