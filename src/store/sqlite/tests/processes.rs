//! Several processes on one file.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::*;

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
                .arg("store::sqlite::tests::processes::of_processes_that_start_at_once_on_a_new_file_all_come_up_and_one_wins_a_key")
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
