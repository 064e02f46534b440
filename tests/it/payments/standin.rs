//! The stand-in by itself: how it is started and ended, and that it is honest about keys.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::http;
use crate::harness::service::{program, run, stderr, stdout};
use crate::harness::till::{KEY, Till};

#[tokio::test]
async fn it_prints_where_it_listens_and_a_signal_ends_it_with_exit_code_0() {
    let till = Till::open(&["--latency", "10ms", "--callbacks", "late", "--callback-delay", "1s"]).await;
    assert!(till.at.port() != 0);
    assert_eq!(till.log().await, []);
    assert_eq!(till.end().await, Some(0));
}

/// `--listen` is a setting of the service too.
#[tokio::test]
async fn its_address_is_its_own_whatever_the_service_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let env = [("ONCEGATE_LISTEN", "127.0.0.1:1"), ("ONCEGATE_LEASE", "nonsense")];
    for args in [["gateway", "--listen", "127.0.0.1:0"], ["--log=warn", "gateway", "--listen=127.0.0.1:0"]] {
        let mut child = program(folder.path(), &args, &env).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(child.stdout.take().unwrap()));
        let line = lines.next_line().await.unwrap().unwrap();
        assert!(line.starts_with("listening on http://127.0.0.1:") && !line.ends_with(":1"), "{line}");
        child.kill().await.unwrap();
    }
    let missing = run(folder.path(), &["gateway"], &env).await;
    assert!(missing.status.code() == Some(2) && stderr(&missing).contains("--listen"), "{}", stderr(&missing));
}

#[tokio::test]
async fn what_it_cannot_be_told_ends_it_with_2_and_a_taken_port_with_1() {
    let folder = tempfile::tempdir().unwrap();
    for wrong in [
        ["--listen", "nowhere"],
        ["--latency", "fast"],
        ["--latency", "1 s"],
        ["--callbacks", "sometimes"],
        ["--lose-answer", "0"],
        ["--decline-amount", "x"],
    ] {
        let free = ["gateway", "--listen", "127.0.0.1:0"];
        let args: Vec<_> =
            if wrong[0] == "--listen" { vec!["gateway", wrong[0], wrong[1]] } else { [&free[..], &wrong].concat() };
        let output = run(folder.path(), &args, &[]).await;
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(wrong[0]) && stdout(&output).is_empty(), "{}", stderr(&output));
    }
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(folder.path(), &["gateway", "--listen", &address], &[]).await;
    assert!(output.status.code() == Some(1) && stderr(&output).contains(&address), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1);
}

/// Asks for a charge; status and body.
async fn charge(till: &Till, secret: &str, key: &str, fields: &[(&str, &str)]) -> (u16, Value) {
    let request = http().build().unwrap().post(format!("http://{}/v1/payment_intents", till.at)).bearer_auth(secret);
    let answer = request.header("idempotency-key", key).form(fields).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test]
async fn the_same_key_is_the_same_intent_and_with_other_parameters_an_error() {
    let till = Till::open(&["--decline-amount", "666"]).await;
    let fields = [("amount", "500"), ("currency", "eur"), ("confirm", "true"), ("metadata[order_id]", "o")];
    let first = charge(&till, KEY, "k", &fields).await;
    assert_eq!((first.0, &first.1["status"], &first.1["object"]), (200, &json!("succeeded"), &json!("payment_intent")));
    assert_eq!(charge(&till, KEY, "k", &fields).await, first);
    let other = charge(&till, KEY, "k", &[("amount", "501"), ("currency", "eur"), ("confirm", "true")]).await;
    assert_eq!((other.0, &other.1["error"]["type"]), (400, &json!("idempotency_error")));
    let declined = [("amount", "666"), ("currency", "eur"), ("confirm", "true")];
    let no = charge(&till, KEY, "d", &declined).await;
    assert_eq!(
        (no.0, &no.1["error"]["type"], &no.1["error"]["code"]),
        (402, &json!("card_error"), &json!("card_declined"))
    );
    assert_eq!(charge(&till, KEY, "d", &declined).await, no, "a decline is replayed like anything else");
    assert_eq!(charge(&till, "another", "x", &fields).await.0, 401);
    assert_eq!(till.charges().await, 1);
}

#[tokio::test]
async fn a_refund_is_made_once_and_logged() {
    let till = Till::open(&[]).await;
    let intent = till.charge("an-order", 1, 250, "k").await;
    let refund = async |key: &str, intent: &str| {
        let request = http().build().unwrap().post(format!("http://{}/v1/refunds", till.at)).bearer_auth(KEY);
        let answer = request.header("idempotency-key", key).form(&[("payment_intent", intent)]).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let id = intent["id"].as_str().unwrap();
    let first = refund("r", id).await;
    assert_eq!((first.0, &first.1["status"], &first.1["amount"]), (200, &json!("succeeded"), &json!(250)));
    assert_eq!(refund("r", id).await, first);
    let again = refund("r-2", id).await;
    assert_eq!((again.0, &again.1["error"]["code"]), (400, &json!("charge_already_refunded")));
    assert_eq!(refund("r-3", "pi_unknown").await.0, 404);
    let log = till.log().await;
    assert_eq!(log.iter().map(|line| (line.refund, line.amount)).collect::<Vec<_>>(), [(false, 250), (true, 250)]);
}
