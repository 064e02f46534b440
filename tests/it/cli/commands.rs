//! The commands that end by themselves.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use oncegate::store::Store;
use oncegate::store::sqlite::{Options, Sqlite};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::harness::service::{SECRET, run, stderr, stdout};

const HEAD: &str = "sku,name,unit_price,currency,stock";

/// SKU, price and stock of everything in the embedded database of this folder.
async fn products(folder: &Path) -> Vec<(String, i64, i64)> {
    let store = Sqlite::connect(&folder.join("data/oncegate.db"), Options::default()).await.unwrap();
    let products = store.products().await.unwrap();
    store.close().await;
    products.into_iter().map(|p| (p.sku.to_string(), p.unit_price, p.stock)).collect()
}

/// One line, and this exit code.
fn check(output: &std::process::Output, code: i32, words: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.lines().count() == 1 && said.contains(words), "{words:?} in: {said}");
    assert_eq!(stdout(output), "");
}

fn claims(token: &str, secret: &str) -> Value {
    let mut rules = Validation::new(Algorithm::HS256);
    rules.leeway = 0;
    jsonwebtoken::decode(token, &DecodingKey::from_secret(secret.as_bytes()).unwrap(), &rules).unwrap().claims
}

#[tokio::test]
async fn a_token_is_printed_alone_and_says_who_until_when_and_in_which_role() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["token", "--sub", "shop-7", "--role", "operator", "--ttl", "5m"];
    let output = run(folder.path(), &args, &[("ONCEGATE_JWT_SECRET", SECRET)]).await;
    let printed = stdout(&output);
    assert!(printed.ends_with('\n') && printed.lines().count() == 1 && output.stderr.is_empty(), "{printed}");
    let claims = claims(printed.trim_end(), SECRET);
    assert_eq!((&claims["sub"], &claims["role"]), (&"shop-7".into(), &"operator".into()));
    assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 300);
    assert!(!folder.path().join("data").exists(), "a secret that is set is not kept");
}

#[tokio::test]
async fn the_embedded_default_makes_its_secret_once_and_for_the_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let first = stdout(&run(folder.path(), &["token", "--sub", "a"], &[]).await);
    let kept = folder.path().join("data/oncegate.db.jwt-secret");
    let secret = fs::read_to_string(&kept).unwrap();
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    let second = stdout(&run(folder.path(), &["token", "--sub", "b"], &[]).await);
    assert_eq!(fs::read_to_string(&kept).unwrap(), secret);
    assert_eq!(claims(first.trim_end(), secret.trim_end())["sub"], "a");
    let claims = claims(second.trim_end(), secret.trim_end());
    assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 24 * 3600);
    assert!(claims.get("role").is_none());
}

#[tokio::test]
async fn a_token_that_could_not_be_used_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let secret = ("ONCEGATE_JWT_SECRET", SECRET);
    check(&run(folder.path(), &["token", "--sub", ""], &[secret]).await, 2, "--sub");
    check(&run(folder.path(), &["token", "--sub", "a\tb"], &[secret]).await, 2, "--sub");
    check(&run(folder.path(), &["token", "--sub", "a", "--ttl", "0s"], &[secret]).await, 2, "--ttl");
    check(&run(folder.path(), &["token", "--sub", "a", "--ttl", "tomorrow"], &[secret]).await, 2, "--ttl");
    let postgres = ("DATABASE_URL", "postgres://127.0.0.1:1/shop");
    check(&run(folder.path(), &["token", "--sub", "a"], &[postgres]).await, 2, "ONCEGATE_JWT_SECRET");
}

#[tokio::test]
async fn an_import_adds_and_updates_and_a_bad_line_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("goods.csv");
    let import = ["products", "import", "goods.csv"];
    fs::write(&file, format!("\u{feff}{HEAD}\r\nB,Bowl,200,EUR,2\r\nA,\"Ash, cup\",100,EUR,1\r\n")).unwrap();
    let output = run(folder.path(), &import, &[]).await;
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "imported: 2\n"), "{}", stderr(&output));
    let both = [("A".to_owned(), 100, 1), ("B".to_owned(), 200, 2)];
    assert_eq!(products(folder.path()).await, both);

    for (body, line) in
        [("A,Cup,999,EUR,9\nC,Cup,1.5,EUR,9", "line 3"), ("A,x,9,EUR,9\nA,x,9,EUR,9", "line 3"), ("A", "line 2")]
    {
        fs::write(&file, format!("{HEAD}\n{body}\n")).unwrap();
        check(&run(folder.path(), &import, &[]).await, 1, line);
        assert_eq!(products(folder.path()).await, both);
    }
    fs::write(&file, "sku;name;unit_price;currency;stock\nC;Cup;1;EUR;9\n").unwrap();
    check(&run(folder.path(), &import, &[]).await, 1, HEAD);
    check(&run(folder.path(), &["products", "import", "nowhere.csv"], &[]).await, 1, "nowhere.csv");

    fs::write(&file, format!("{HEAD}\nA,Cup,150,EUR,7\nC,Cup,300,EUR,0\n")).unwrap();
    assert!(run(folder.path(), &import, &[]).await.status.success());
    let [_, b] = both;
    assert_eq!(products(folder.path()).await, [("A".to_owned(), 150, 7), b, ("C".to_owned(), 300, 0)]);
}

#[tokio::test]
async fn stock_is_set_of_a_product_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("goods.csv"), format!("{HEAD}\nA,Cup,100,EUR,1\n")).unwrap();
    assert!(run(folder.path(), &["products", "import", "goods.csv"], &[]).await.status.success());
    assert!(run(folder.path(), &["stock", "set", "A", "12"], &[]).await.status.success());
    check(&run(folder.path(), &["stock", "set", "B", "5"], &[]).await, 1, "\"B\"");
    check(&run(folder.path(), &["stock", "set", "no such", "5"], &[]).await, 1, "\"no such\"");
    check(&run(folder.path(), &["stock", "set", "A", "1.5"], &[]).await, 2, "whole number");
    assert_eq!(run(folder.path(), &["stock", "set", "A", "-1"], &[]).await.status.code(), Some(2));
    assert_eq!(products(folder.path()).await, [("A".to_owned(), 100, 12)]);
}

#[tokio::test]
async fn migrating_twice_is_migrating_once_and_may_be_forbidden() {
    let folder = tempfile::tempdir().unwrap();
    check(&run(folder.path(), &["migrate", "--no-migrate"], &[]).await, 2, "--no-migrate");
    check(&run(folder.path(), &["--no-migrate", "stock", "set", "A", "1"], &[]).await, 1, "products");
    for _ in 0..2 {
        let output = run(folder.path(), &["migrate"], &[]).await;
        assert!(output.status.success() && stdout(&output).contains("up to date"), "{}", stderr(&output));
    }
    check(&run(folder.path(), &["--no-migrate", "stock", "set", "A", "1"], &[]).await, 1, "no product");
}

#[tokio::test]
async fn a_database_that_cannot_be_reached_ends_every_command_within_15_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("postgres://shop:hunter2@{}/shop", silent.local_addr().unwrap());
    fs::write(folder.path().join("file"), "").unwrap();
    let ports = ["--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0"];
    let tried = |url: String, command: &'static [&str]| {
        let (folder, args) = (folder.path(), command.iter().chain(&ports).copied().collect::<Vec<_>>());
        async move {
            let begun = Instant::now();
            let secrets = [("ONCEGATE_COOKIE_SECRET", SECRET), ("ONCEGATE_JWT_SECRET", SECRET)];
            let output = run(folder, &args, &[secrets[0], secrets[1], ("DATABASE_URL", &url)]).await;
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{url} {args:?}: {said}");
            assert!(said.lines().count() == 1 && said.contains("database"), "{url} {args:?}: {said}");
            assert!(!(said + &stdout(&output)).contains("hunter2"));
            assert!(begun.elapsed() < Duration::from_secs(15), "{url} {args:?}");
        }
    };
    for url in ["postgres://shop:hunter2@127.0.0.1:1/shop", "sqlite://file/shop.db"] {
        tried(url.to_owned(), &["migrate"]).await;
        tried(url.to_owned(), &["stock", "set", "A", "1"]).await;
        tried(url.to_owned(), &["serve"]).await;
    }
    tokio::join!(tried(silent.clone(), &["migrate"]), tried(silent.clone(), &["serve"]));
}
