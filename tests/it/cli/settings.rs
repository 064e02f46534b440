//! Settings that do not fit end the start with one line.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use crate::harness::service::{SECRET, program, run, stderr, stdout};

/// The environment name, a value that does not fit, and words of what is allowed.
const BAD: &[(&str, &str, &str)] = &[
    ("DATABASE_URL", "mysql://shop:hunter2@db/shop", "postgres://"),
    ("DATABASE_URL", "sqlite::memory:", "a file"),
    ("DATABASE_URL", "sqlite://", "sqlite://PATH"),
    ("DATABASE_URL", "postgres://shop:hunter2@db:port/shop", "postgres://"),
    ("REDIS_URL", "http://:hunter2@redis", "rediss://"),
    ("REDIS_URL", "redis://:hunter2@a:1,b:2", "?cluster=true"),
    ("ONCEGATE_LISTEN", "localhost", "127.0.0.1:3000"),
    ("ONCEGATE_LISTEN", "127.0.0.1:65536", "127.0.0.1:3000"),
    ("ONCEGATE_OPS_LISTEN", ":3001", "127.0.0.1:3000"),
    ("ONCEGATE_OPS_LISTEN", "127.0.0.1:3000", "another"),
    ("ONCEGATE_PUBLIC_URL", "https://shop.example/path", "origin"),
    ("ONCEGATE_PUBLIC_URL", "https://me:hunter2@shop.example", "origin"),
    ("ONCEGATE_FORM_TOKEN_TTL", "0s", "30s"),
    ("ONCEGATE_KEY_TTL", "1 day", "24h"),
    ("ONCEGATE_KEY_TTL", "0s", "from 1ms"),
    ("ONCEGATE_LEASE", "999ms", "from 1s"),
    ("ONCEGATE_LEASE", "30", "30s"),
    ("ONCEGATE_FORM_WAIT", "61s", "to 1m"),
    ("ONCEGATE_API_WAIT", "-1s", "from 0s"),
    ("ONCEGATE_REPEAT_NOTICE", "soon\nor later", "30s"),
    ("ONCEGATE_QUEUE", "0", "from 1"),
    ("ONCEGATE_QUEUE", "many", "whole number"),
    ("ONCEGATE_SWEEP_INTERVAL", "5min", "5m"),
    ("ONCEGATE_PAYMENT_WINDOW", "1e3s", "30s"),
    ("ONCEGATE_OPENING_BALANCE", "-1", "whole number"),
    ("ONCEGATE_OPENING_BALANCE", "1000000000001", "whole number"),
    ("ONCEGATE_DEMO", "maybe", "true or false"),
    ("ONCEGATE_TRY_PAGE", "1", "true or false"),
    ("ONCEGATE_COOKIE_SECRET", "hunter2", "32 bytes"),
    ("ONCEGATE_JWT_SECRET", "hunter2-hunter2-hunter2", "32 bytes"),
    ("ONCEGATE_JWT_PUBLIC_KEY", "no-such-file.pem", "path"),
    ("ONCEGATE_JWT_PUBLIC_KEY", "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----", "public key"),
    ("ONCEGATE_LOG", "verbose", "debug"),
    ("ONCEGATE_LOG", "oncegate=loud", "debug"),
    ("ONCEGATE_LOG_FORMAT", "xml", "text or json"),
];

/// One line that names the setting and what is allowed, and no secret.
fn check(output: &std::process::Output, setting: &str, allowed: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{setting}: {said}");
    assert!(said.ends_with('\n') && said.lines().count() == 1, "{setting}: {said}");
    assert!(said.contains(setting) && said.contains(allowed), "{setting}: {said}");
    assert!(!said.contains("hunter2"), "{setting}: {said}");
    assert_eq!(stdout(output), "", "{setting}");
}

#[tokio::test]
async fn a_bad_setting_ends_the_start_with_one_line_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    for (setting, value, allowed) in BAD {
        let output = run(folder.path(), &[], &[(setting, value)]).await;
        check(&output, setting, allowed);
        assert!(!folder.path().join("data").join("oncegate.db").exists());
    }
}

#[tokio::test]
async fn a_flag_is_named_and_checked_like_its_variable_and_wins_over_it() {
    let folder = tempfile::tempdir().unwrap();
    for (setting, value, allowed) in BAD {
        let flag = setting.trim_start_matches("ONCEGATE_").to_lowercase().replace('_', "-");
        let output = run(folder.path(), &["serve", &format!("--{flag}={value}")], &[(setting, "")]).await;
        check(&output, setting, allowed);
    }
}

#[tokio::test]
async fn a_setting_that_is_no_text_is_named_without_being_shown() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = program(folder.path(), &[], &[]);
    let output = program.env("ONCEGATE_COOKIE_SECRET", OsStr::from_bytes(b"hunter2\xff")).output().await.unwrap();
    check(&output, "ONCEGATE_COOKIE_SECRET", "UTF-8");
}

#[tokio::test]
async fn production_must_name_its_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let postgres = ("DATABASE_URL", "postgres://shop:hunter2@127.0.0.1:1/shop");
    let cookie = ("ONCEGATE_COOKIE_SECRET", SECRET);
    check(&run(folder.path(), &[], &[postgres]).await, "ONCEGATE_COOKIE_SECRET", "32 bytes");
    check(&run(folder.path(), &[], &[postgres, cookie]).await, "ONCEGATE_JWT_SECRET", "32 bytes");
    let jwt = ("ONCEGATE_JWT_SECRET", SECRET);
    let both = run(folder.path(), &[], &[postgres, cookie, jwt, ("ONCEGATE_JWT_PUBLIC_KEY", "x.pem")]).await;
    check(&both, "ONCEGATE_JWT_PUBLIC_KEY", "one of the two");
}

#[tokio::test]
async fn the_provider_is_set_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let all = [
        ("ONCEGATE_GATEWAY_URL", "http://127.0.0.1:1"),
        ("ONCEGATE_GATEWAY_KEY", "hunter2"),
        ("ONCEGATE_GATEWAY_WEBHOOK_SECRET", "hunter2"),
    ];
    for absent in 0..all.len() {
        let given: Vec<_> = all.iter().enumerate().filter(|(i, _)| *i != absent).map(|(_, s)| *s).collect();
        check(&run(folder.path(), &[], &given).await, all[absent].0, "none of them");
    }
    for key in ["hunter2\n", "hunter 2", "hunterž"] {
        let given = [all[0], (all[1].0, key), all[2]];
        check(&run(folder.path(), &[], &given).await, all[1].0, "visible ASCII");
    }
}

#[tokio::test]
async fn a_public_key_is_taken_as_text_and_as_a_file_and_only_for_an_algorithm_that_is_offered() {
    const KEYS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/keys");
    let folder = tempfile::tempdir().unwrap();
    // A key that is taken verifies and cannot sign, which `token` says.
    for (file, taken) in
        [("rsa.pub", true), ("p256.pub", true), ("ed25519.pub", true), ("p384.pub", false), ("rsa.pem", false)]
    {
        let path = format!("{KEYS}/{file}");
        let text = fs::read_to_string(&path).unwrap();
        for key in [path, text] {
            let output = run(folder.path(), &["token", "--sub", "x"], &[("ONCEGATE_JWT_PUBLIC_KEY", &key)]).await;
            check(&output, "ONCEGATE_JWT_PUBLIC_KEY", if taken { "ONCEGATE_JWT_SECRET" } else { "ES256" });
            assert!(!stderr(&output).contains("-----"), "{}", stderr(&output));
        }
    }
}

#[tokio::test]
async fn the_help_names_every_setting_and_shows_no_value() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["--help"], &[("ONCEGATE_COOKIE_SECRET", "hunter2")]).await;
    let help = stdout(&output);
    assert!(output.status.success() && !help.contains("hunter2"), "{help}");
    for (setting, ..) in BAD {
        let flag = setting.trim_start_matches("ONCEGATE_").to_lowercase().replace('_', "-");
        assert!(help.contains(&format!("[env: {setting}]")) && help.contains(&format!("--{flag}")), "{setting}");
    }
    for word in ["--no-migrate", "--gateway-webhook-secret", "serve", "migrate", "token", "products", "stock"] {
        assert!(help.contains(word), "{word}");
    }
}

#[tokio::test]
async fn what_is_no_command_and_no_flag_is_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    for args in [&["sell"][..], &["--sell"], &["serve", "now"], &["products"], &["stock", "set", "A"], &["token"]] {
        let output = run(folder.path(), args, &[]).await;
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{args:?}");
    }
}
