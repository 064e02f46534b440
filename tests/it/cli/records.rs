//! What operators do with records, and the sweep by hand. Nothing but the database is set: no secret is needed for it.

use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::TestStore;
use crate::harness::goods::{account, asked, claimed};
use crate::harness::life::{by_balance, by_card, shop};
use crate::harness::service::{run, stderr, stdout};

struct Desk {
    t: TestStore,
    folder: TempDir,
}

impl Desk {
    async fn open() -> Self {
        Self { t: shop().await, folder: tempfile::tempdir().unwrap() }
    }

    async fn run(&self, args: &[&str]) -> Output {
        let env = [("DATABASE_URL", self.t.database.url()), ("ONCEGATE_PAYMENT_WINDOW", "1h"), ("USER", "night-shift")];
        run(self.folder.path(), args, &env).await
    }

    async fn says(&self, args: &[&str]) -> String {
        let output = self.run(args).await;
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stdout(&output)
    }

    async fn list(&self, args: &[&str]) -> Vec<Value> {
        let said = self.says(args).await;
        serde_json::from_str::<Value>(&said).unwrap().as_array().unwrap().clone()
    }

    /// Ends with 1 and one line on stderr that has these words.
    async fn refuses(&self, args: &[&str], words: &str) -> Output {
        let output = self.run(args).await;
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.lines().count() == 1 && said.contains(words), "{args:?}: {words:?} in {said}");
        output
    }

    async fn subject(&self, account: oncegate::order::values::AccountId) -> String {
        self.t.sql.text(&format!("SELECT subject FROM accounts WHERE id = '{account}'")).await
    }
}

#[tokio::test]
async fn a_sweep_by_hand_says_what_it_did_in_numbers() {
    let desk = Desk::open().await;
    let nothing = "{\"records\":0,\"sessions\":0,\"rows\":0,\"orders\":0}\n";
    assert_eq!(desk.says(&["sweep"]).await, nothing);
    let buyer = account(&desk.t.store, 1_000).await;
    by_balance(&desk.t.store, buyer, "paid").await;
    by_card(&desk.t.store, buyer, "in-flight").await;
    let declined = by_card(&desk.t.store, buyer, "declined").await;
    let sql = &desk.t.sql;
    let (hours, days) = (sql.moment(-7_200), sql.moment(-40 * 86_400));
    for statement in [
        format!("UPDATE payments SET status = 'declined' WHERE order_id = '{declined}'"),
        format!("UPDATE orders SET created_at = {hours}"),
        format!("UPDATE idempotency_records SET expires_at = {hours} WHERE key = 'paid'"),
        format!("UPDATE outbox SET published_at = {days}, consumed_at = {days}"),
        format!("INSERT INTO consumed_messages VALUES ('coupons', 'old', {days})"),
    ] {
        sql.run(&statement).await;
    }
    let now = time::OffsetDateTime::now_utc();
    desk.t.store.create_session("old", b"x", now - std::time::Duration::from_secs(60)).await.unwrap();
    assert_eq!(desk.says(&["sweep"]).await, "{\"records\":1,\"sessions\":1,\"rows\":2,\"orders\":1}\n");
    assert_eq!(desk.says(&["sweep"]).await, nothing);
    let left = "SELECT count(*) FROM orders WHERE status = 'cancelled'";
    assert_eq!((sql.int("SELECT count(*) FROM orders").await, sql.int(left).await), (3, 1));
    assert_eq!(sql.int("SELECT stock FROM products WHERE sku = 'A'").await, 10 - 4, "what was cancelled is back");
}

#[tokio::test]
async fn records_are_listed_as_a_table_or_as_json_with_members_named_as_the_columns() {
    let desk = Desk::open().await;
    let buyer = account(&desk.t.store, 1_000).await;
    assert_eq!(desk.says(&["records", "list"]).await, "no such records\n");
    assert_eq!(desk.list(&["records", "list", "--json"]).await, Vec::<Value>::new());
    let order = by_balance(&desk.t.store, buyer, "k-done").await;
    claimed(&desk.t.store, vec![asked(buyer, "k-stuck", &[("A", 1)])]).await;

    let table = desk.says(&["records", "list"]).await;
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.starts_with("STATUS") && table.contains("k-done") && table.contains("place_order"), "{table}");
    let stuck = desk.list(&["records", "list", "--status", "processing", "--json"]).await;
    assert_eq!((stuck.len(), &stuck[0]["key"], &stuck[0]["status"]), (1, &json!("k-stuck"), &json!("processing")));
    assert_eq!((&stuck[0]["response_status"], &stuck[0]["completed_at"]), (&json!(null), &json!(null)));
    let all = desk.list(&["records", "list", "--json"]).await;
    let done = all.iter().find(|record| record["key"] == "k-done").unwrap();
    for column in [
        "account_id",
        "operation",
        "key",
        "fingerprint",
        "status",
        "epoch",
        "lease_expires_at",
        "response_status",
        "response_body",
        "created_at",
        "completed_at",
        "expires_at",
    ] {
        assert!(!done[column].is_null(), "{column}: {done}");
    }
    assert_eq!((&done["epoch"], &done["order_id"]), (&json!(1), &json!(order.to_string())));
    assert!(done["expires_at"].as_str().unwrap().ends_with('Z'), "{done}");

    assert_eq!(desk.list(&["records", "list", "--older-than", "1m", "--json"]).await.len(), 0);
    let older = desk.t.sql.moment(-90);
    desk.t.sql.run(&format!("UPDATE idempotency_records SET created_at = {older} WHERE key = 'k-stuck'")).await;
    assert_eq!(
        desk.list(&["records", "list", "--status", "processing", "--older-than", "1m", "--json"]).await.len(),
        1
    );
    let bad = desk.run(&["records", "list", "--older-than", "yesterday"]).await;
    assert_eq!((bad.status.code(), stderr(&bad).contains("--older-than")), (Some(2), true));
    assert_eq!(desk.run(&["records", "list", "--status", "lost"]).await.status.code(), Some(2));
}

#[tokio::test]
async fn a_record_tells_its_whole_story_and_what_there_is_to_do() {
    let desk = Desk::open().await;
    let buyer = account(&desk.t.store, 1_000).await;
    let subject = desk.subject(buyer).await;
    let order = by_balance(&desk.t.store, buyer, "k-done").await;
    claimed(&desk.t.store, vec![asked(buyer, "k-stuck", &[("A", 1)])]).await;

    let done = desk.says(&["records", "show", "k-done", "--account", &subject]).await;
    for words in [
        "k-done",
        &subject,
        "place_order",
        "done",
        "claim 1",
        "201",
        &order.to_string(),
        "paid",
        "captured",
        "decisions about key=k-done",
    ] {
        assert!(done.contains(words), "{words:?} in {done}");
    }
    let runs = desk.says(&["records", "show", "k-stuck"]).await;
    assert!(runs.contains("runs until") && runs.contains("wait: somebody works on it"), "{runs}");
    desk.t.end_leases().await;
    let over = desk.says(&["records", "show", "k-stuck"]).await;
    assert!(over.contains("over since") && over.contains("none stands under this key"), "{over}");
    assert_eq!(desk.list(&["records", "show", "k-stuck", "--json"]).await[0]["key"], "k-stuck");

    desk.t.sql.run("DELETE FROM idempotency_records WHERE key = 'k-done'").await;
    desk.refuses(&["records", "show", "k-done"], "no record").await;
    desk.refuses(&["records", "show", "k-done", "--account", &subject], &order.to_string()).await;
    let none = desk.refuses(&["records", "show", "k-other", "--json"], "no record").await;
    assert_eq!(stdout(&none), "[]\n");
    desk.refuses(&["records", "show", "k-done", "--account", "client:nobody"], "no account").await;
    assert_eq!(desk.run(&["records", "show", "two words"]).await.status.code(), Some(2));
}

#[tokio::test]
async fn a_stuck_record_is_released_with_an_audit_line_and_nothing_else_is() {
    let desk = Desk::open().await;
    let buyer = account(&desk.t.store, 1_000).await;
    let subject = desk.subject(buyer).await;
    by_balance(&desk.t.store, buyer, "k-done").await;
    let batch = claimed(&desk.t.store, vec![asked(buyer, "k-stuck", &[("A", 1)])]).await;
    desk.refuses(&["records", "release", "k-done", "--account", &subject], "done").await;
    desk.refuses(&["records", "release", "k-none", "--account", &subject], "no record").await;
    desk.refuses(&["records", "release", "k-stuck", "--account", "client:nobody"], "no account").await;
    assert_eq!(desk.run(&["records", "release", "k-stuck"]).await.status.code(), Some(2), "whose has to be said");

    let output = desk.run(&["records", "release", "k-stuck", "--account", &subject]).await;
    let (said, logged) = (stdout(&output), stderr(&output));
    assert!(output.status.success() && said.contains("released") && said.contains("claim 2"), "{said} {logged}");
    for words in ["audit", "released by hand", "night-shift", &subject, "k-stuck"] {
        assert!(logged.contains(words), "{words:?} in {logged}");
    }
    let request = [crate::harness::goods::claim_request(&batch[0].asked)];
    let retry = desk.t.store.claim(&request, crate::harness::goods::LEASE).await.unwrap();
    assert_eq!(retry, [oncegate::store::ClaimResult::Won { epoch: 2, taken_over: true }]);
    let again = desk.list(&["records", "release", "k-stuck", "--account", &subject, "--json"]).await;
    assert_eq!((again.len(), &again[0]["epoch"]), (1, &json!(2)));
}
