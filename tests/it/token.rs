//! Layer 1: one list of tests for every token store, then what only a server can do wrong (`faults`).

mod cluster;
mod faults;

use std::time::Duration;

use oncegate::config::Redis;
use oncegate::guard::token::{Binding, LIVE_PER_SUBJECT, Spend, Tokens};
use oncegate::order::values::{Key, Subject};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::harness::redis;

const TTL: Duration = Duration::from_secs(60);

fn visitor() -> Subject {
    Subject::visitor(Uuid::new_v4())
}

fn binding() -> Binding {
    of(&visitor())
}

fn of(subject: &Subject) -> Binding {
    Binding { subject: subject.clone(), form: "place_order", key: Key::fresh() }
}

async fn spend(tokens: &Tokens, token: &str, binding: &Binding) -> Spend {
    tokens.spend(token, binding, Uuid::new_v4()).await
}

/// Runs each test on memory, and on Redis and Cluster where this run has them.
macro_rules! on_every_store {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test] async fn $name() {
                super::$name(&super::Tokens::connect(&super::Redis::Memory, super::TTL).await).await;
            })*
        }
        mod redis_single {
            $(#[tokio::test] async fn $name() {
                let Some(url) = super::redis::shared() else { return };
                super::$name(&super::Tokens::connect(&super::redis::single(&url), super::TTL).await).await;
            })*
        }
        mod redis_cluster {
            $(#[tokio::test] async fn $name() {
                let Some(cluster) = super::redis::cluster() else { return };
                super::$name(&super::Tokens::connect(&cluster, super::TTL).await).await;
            })*
        }
    };
}

on_every_store!(
    a_token_is_accepted_once_and_then_spent,
    the_same_request_may_ask_again,
    a_token_is_given_back_only_by_the_request_that_spent_it,
    of_fifty_parallel_spends_one_is_accepted,
    a_token_with_another_key_form_or_subject_is_unknown_and_stays_unspent,
    any_text_may_be_handed_in,
    every_tab_has_a_token_of_its_own,
    a_fresh_token_for_a_spent_key_is_accepted_and_renews_the_mark,
    a_mark_is_found_by_its_own_form_and_key_only,
    the_oldest_of_too_many_tokens_go,
    other_subjects_push_nothing_out,
    a_store_that_answers_is_healthy,
);

async fn a_token_is_accepted_once_and_then_spent(tokens: &Tokens) {
    let binding = binding();
    let token = tokens.issue(&binding).await;
    assert!(token.len() >= 22 && token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)), "{token}");
    assert_ne!(token, tokens.issue(&binding).await);

    assert_eq!(spend(tokens, &token, &binding).await, Spend::Accepted);
    for _ in 0..3 {
        match spend(tokens, &token, &binding).await {
            Spend::Spent { ago } => assert!(ago < TTL, "{ago:?}"),
            other => panic!("{other:?}"),
        }
    }
}

async fn the_same_request_may_ask_again(tokens: &Tokens) {
    let (binding, request) = (binding(), Uuid::new_v4());
    let token = tokens.issue(&binding).await;
    for _ in 0..3 {
        assert_eq!(tokens.spend(&token, &binding, request).await, Spend::Accepted);
    }
    assert!(matches!(spend(tokens, &token, &binding).await, Spend::Spent { .. }));
}

async fn a_token_is_given_back_only_by_the_request_that_spent_it(tokens: &Tokens) {
    let (binding, request) = (binding(), Uuid::new_v4());
    let token = tokens.issue(&binding).await;
    tokens.give_back(&token, &binding, request).await;
    assert_eq!(tokens.spend(&token, &binding, request).await, Spend::Accepted, "a live token stays as it is");
    tokens.give_back(&token, &binding, Uuid::new_v4()).await;
    assert!(matches!(spend(tokens, &token, &binding).await, Spend::Spent { .. }));
    for _ in 0..2 {
        tokens.give_back(&token, &binding, request).await;
    }
    assert_eq!(tokens.spent_ago(&binding).await, None);
    assert_eq!(spend(tokens, &token, &binding).await, Spend::Accepted);
    assert!(matches!(spend(tokens, &token, &binding).await, Spend::Spent { .. }));
}

async fn of_fifty_parallel_spends_one_is_accepted(tokens: &Tokens) {
    let binding = binding();
    let token = tokens.issue(&binding).await;
    let mut spends = JoinSet::new();
    for _ in 0..50 {
        let (tokens, token, binding) = (tokens.clone(), token.clone(), binding.clone());
        spends.spawn(async move { spend(&tokens, &token, &binding).await });
    }
    let outcomes = spends.join_all().await;
    assert_eq!(outcomes.iter().filter(|o| **o == Spend::Accepted).count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|o| matches!(o, Spend::Spent { .. })).count(), 49, "{outcomes:?}");
}

async fn a_token_with_another_key_form_or_subject_is_unknown_and_stays_unspent(tokens: &Tokens) {
    let own = binding();
    let token = tokens.issue(&own).await;
    let strangers = [
        Binding { key: Key::fresh(), ..own.clone() },
        Binding { form: "cancel_order", ..own.clone() },
        Binding { subject: visitor(), ..own.clone() },
    ];
    for stranger in &strangers {
        assert_eq!(spend(tokens, &token, stranger).await, Spend::Unknown);
        assert_eq!(tokens.spent_ago(stranger).await, None);
    }
    assert_eq!(spend(tokens, &token, &own).await, Spend::Accepted);
}

async fn any_text_may_be_handed_in(tokens: &Tokens) {
    let long = "a".repeat(1_000_000);
    let nuls = "\0".repeat(128);
    for text in ["", " ", "x", "\r\n*1\r\n$4\r\nPING\r\n", "{}:live", "ü☃💥", "-inf", &nuls, &long] {
        assert_eq!(spend(tokens, text, &binding()).await, Spend::Unknown);
    }
}

async fn every_tab_has_a_token_of_its_own(tokens: &Tokens) {
    let visitor = visitor();
    let mut tabs = Vec::new();
    for _ in 0..5 {
        let binding = of(&visitor);
        tabs.push((tokens.issue(&binding).await, binding));
    }
    for (token, binding) in &tabs {
        assert_eq!(spend(tokens, token, binding).await, Spend::Accepted);
    }
}

async fn a_fresh_token_for_a_spent_key_is_accepted_and_renews_the_mark(tokens: &Tokens) {
    let binding = binding();
    let first = tokens.issue(&binding).await;
    assert_eq!(spend(tokens, &first, &binding).await, Spend::Accepted);
    let second = tokens.issue(&binding).await;
    assert!(matches!(spend(tokens, &first, &binding).await, Spend::Spent { .. }));
    let request = Uuid::new_v4();
    assert_eq!(tokens.spend(&second, &binding, request).await, Spend::Accepted);
    assert_eq!(tokens.spend(&second, &binding, request).await, Spend::Accepted, "the mark is now this request's");
    assert!(matches!(spend(tokens, &first, &binding).await, Spend::Spent { .. }));
}

async fn a_mark_is_found_by_its_own_form_and_key_only(tokens: &Tokens) {
    let binding = binding();
    assert_eq!(tokens.spent_ago(&binding).await, None);
    let token = tokens.issue(&binding).await;
    assert_eq!(tokens.spent_ago(&binding).await, None, "issued is not spent");
    spend(tokens, &token, &binding).await;
    assert!(tokens.spent_ago(&binding).await.is_some_and(|ago| ago < TTL));
    assert_eq!(tokens.spent_ago(&Binding { key: Key::fresh(), ..binding.clone() }).await, None);
    assert_eq!(tokens.spent_ago(&Binding { form: "cancel_order", ..binding }).await, None);
}

async fn the_oldest_of_too_many_tokens_go(tokens: &Tokens) {
    let visitor = visitor();
    let mut issued = Vec::new();
    for _ in 0..LIVE_PER_SUBJECT + 2 {
        let binding = of(&visitor);
        issued.push((tokens.issue(&binding).await, binding));
    }
    for (at, (token, binding)) in issued.iter().enumerate() {
        let expected = if at < 2 { Spend::Unknown } else { Spend::Accepted };
        assert_eq!(spend(tokens, token, binding).await, expected, "token {at}");
    }
}

async fn other_subjects_push_nothing_out(tokens: &Tokens) {
    let binding = binding();
    let token = tokens.issue(&binding).await;
    let mut crowd = JoinSet::new();
    for _ in 0..20 {
        let tokens = tokens.clone();
        crowd.spawn(async move {
            for _ in 0..500 {
                tokens.issue(&self::binding()).await;
            }
        });
    }
    crowd.join_all().await;
    assert_eq!(spend(tokens, &token, &binding).await, Spend::Accepted);
}

async fn a_store_that_answers_is_healthy(tokens: &Tokens) {
    assert!(tokens.healthy().await);
}

#[tokio::test(start_paused = true)]
async fn in_memory_a_token_lives_exactly_as_long_as_it_should() {
    let tokens = Tokens::connect(&Redis::Memory, TTL).await;
    let (early, late) = (binding(), binding());
    let in_time = tokens.issue(&early).await;
    let too_late = tokens.issue(&late).await;
    tokio::time::advance(TTL - Duration::from_millis(1)).await;
    assert_eq!(spend(&tokens, &in_time, &early).await, Spend::Accepted);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(spend(&tokens, &too_late, &late).await, Spend::Unknown);
    assert_eq!(spend(&tokens, &in_time, &early).await, Spend::Spent { ago: Duration::from_millis(1) });
}

#[tokio::test]
async fn in_redis_a_token_expires() {
    let Some(url) = redis::shared() else { return };
    let tokens = Tokens::connect(&redis::single(&url), Duration::from_secs(1)).await;
    let visitor = visitor();
    let (first, second, third) = (of(&visitor), of(&visitor), of(&visitor));
    let expired = tokens.issue(&first).await;
    let purged = tokens.issue(&second).await;
    tokio::time::sleep(Duration::from_millis(900)).await;
    let fresh = tokens.issue(&third).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(spend(&tokens, &expired, &first).await, Spend::Unknown, "although its neighbour still lives");
    assert_eq!(spend(&tokens, &fresh, &third).await, Spend::Accepted);
    tokens.issue(&third).await;
    assert_eq!(spend(&tokens, &purged, &second).await, Spend::Unknown);
}

#[tokio::test]
async fn each_spend_counts_one_decision() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _local = metrics::set_default_local_recorder(&recorder);
    let tokens = Tokens::connect(&Redis::Memory, TTL).await;
    let binding = binding();
    let token = tokens.issue(&binding).await;
    spend(&tokens, &token, &binding).await;
    spend(&tokens, &token, &binding).await;
    spend(&tokens, &token, &binding).await;
    spend(&tokens, &"x".repeat(1000), &binding).await;
    let text = handle.render();
    for (decision, times) in [("accepted", 1), ("spent", 2), ("unknown", 1)] {
        let line = format!("oncegate_layer_decisions_total{{layer=\"token\",decision=\"{decision}\"}} {times}");
        assert!(text.contains(&line), "{line} in\n{text}");
    }
}
