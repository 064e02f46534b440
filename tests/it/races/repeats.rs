//! One form and one key, sent fifty times at once.

use std::collections::BTreeSet;

use super::at_once;
use crate::harness::client::{Seen, want};
use crate::harness::site::{Site, eventually, in_turn};

const ROUNDS: usize = 20;
const AT_ONCE: usize = 50;
/// The lease by default, in seconds: the most that `Retry-After` may say.
const LEASE: u64 = 30;

#[tokio::test]
async fn fifty_submissions_of_one_form_at_once_become_one_order_and_each_leads_to_it() {
    let site = Site::open(&[]).await;
    let services = site.start_two().await;
    let buyer = site.buyer();
    for round in 0..ROUNDS / 2 {
        let pair = buyer.form(services[0].main).await;
        // Tokens in memory are known to the process that issued them.
        let places = [services[0].main, if site.shares_tokens() { services[1].main } else { services[0].main }];
        let answers = at_once(AT_ONCE, |n| {
            let (buyer, pair) = (buyer.clone(), pair.clone());
            async move { buyer.submit(places[n % 2], &pair, "TEA", 1).await }
        })
        .await;
        let mut orders = BTreeSet::new();
        for answer in answers {
            assert_eq!(answer.status, 303, "{}", answer.text());
            match answer.order() {
                Some(order) => drop(orders.insert(order)),
                None => {
                    assert_eq!(answer.header("location"), format!("/orders/attempts/{}", pair.key));
                    let attempt = buyer.get(places[0], answer.header("location")).await;
                    assert!([200, 303].contains(&attempt.status), "{}", attempt.text());
                }
            }
        }
        assert!(orders.len() <= 1, "{orders:?}");
        eventually("the attempt leads to the order", async || {
            let attempt = buyer.get(places[1], &format!("/orders/attempts/{}", pair.key)).await;
            attempt.order().is_some_and(|order| orders.is_empty() || orders.contains(&order))
        })
        .await;
        assert_eq!(site.orders().await, round as i64 + 1);
    }
    site.holds().await;
}

#[tokio::test]
async fn fifty_posts_of_one_key_at_once_over_two_processes_become_one_order() {
    let site = Site::open(&[]).await;
    let services = site.start_two().await;
    let client = site.client("a").await;
    for round in 0..ROUNDS {
        let key = format!("round-{round}");
        let answers = at_once(AT_ONCE, |n| {
            let (client, key, at) = (client.clone(), key.clone(), in_turn(&services, n));
            async move { client.order(at, &key, &want(&[("TEA", 1), ("POT", 1)])).await }
        })
        .await;
        assert_one_first_and_its_repeats(&answers);
        assert_eq!(site.orders().await, round as i64 + 1);
    }
    assert_eq!(
        services[0].counted("constraint", "inserted").await + services[1].counted("constraint", "inserted").await,
        20
    );
    site.holds().await;
}

/// Exactly one was worked on; the others are its replays, or say that it is under way.
fn assert_one_first_and_its_repeats(answers: &[Seen]) {
    let placed: Vec<_> = answers.iter().filter(|answer| answer.status == 201).collect();
    let firsts: Vec<_> = placed.iter().filter(|answer| !answer.replayed()).collect();
    assert_eq!(firsts.len(), 1, "{answers:?}");
    for answer in answers {
        let repeats = answer.status == 201 && answer.same_as(firsts[0]);
        assert!(repeats || answer.is_in_progress(LEASE), "{answer:?}");
    }
}

/// The content is compared before the state: whoever comes second with another body is told so, also while the first is
/// under way.
#[tokio::test]
async fn two_contents_that_race_for_one_key_become_one_order_and_the_other_is_always_told_so() {
    let site = Site::open(&[]).await;
    let services = site.start_two().await;
    let client = site.client("a").await;
    for round in 0..ROUNDS / 2 {
        let key = format!("round-{round}");
        let answers = at_once(AT_ONCE, |n| {
            let (client, key, at) = (client.clone(), key.clone(), in_turn(&services, n));
            async move { client.order(at, &key, &want(&[(["TEA", "POT"][n / 2 % 2], 1)])).await }
        })
        .await;
        let of = |parity: usize| (0..AT_ONCE).filter(move |n| n / 2 % 2 == parity).map(|n| answers[n].clone());
        let won = usize::from(!of(0).any(|answer| answer.status == 201));
        assert_one_first_and_its_repeats(&of(won).collect::<Vec<_>>());
        for answer in of(1 - won) {
            assert_eq!((answer.status, answer.problem().as_str()), (422, "idempotency-key-reused"), "{answer:?}");
        }
        assert_eq!(site.orders().await, round as i64 + 1);
    }
    site.holds().await;
}

/// A client that makes a new key for every try is caught by its reference (A11).
#[tokio::test]
async fn fifty_keys_with_one_reference_at_once_become_one_order_that_all_are_told() {
    let site = Site::open(&[]).await;
    let services = site.start_two().await;
    let client = site.client("a").await;
    for round in 0..ROUNDS / 2 {
        let mut body = want(&[("TEA", 1)]);
        body["reference"] = format!("cart-{round}").into();
        let answers = at_once(AT_ONCE, |n| {
            let (client, body, at) = (client.clone(), body.clone(), in_turn(&services, n));
            async move { client.order(at, &format!("{round}-{n}"), &body).await }
        })
        .await;
        let placed: Vec<_> = answers.iter().filter(|answer| answer.status == 201).collect();
        assert_eq!(placed.len(), 1, "{answers:?}");
        let order = placed[0].order().unwrap();
        for answer in answers.iter().filter(|answer| answer.status != 201) {
            assert_eq!((answer.status, answer.problem().as_str()), (409, "reference-taken"), "{answer:?}");
            assert_eq!(answer.json()["order"], order.as_str());
            assert_eq!(answer.header("location"), format!("/api/orders/{order}"));
        }
        assert_eq!(site.orders().await, round as i64 + 1);
    }
    site.holds().await;
}

/// Records that vanish once they are done, in the middle of the race (A6): what is left is the constraint.
#[tokio::test]
async fn records_that_vanish_during_the_race_change_nothing_for_anybody() {
    let site = Site::open(&[]).await;
    let services = site.start_two().await;
    let client = site.client("a").await;
    let race = async {
        for round in 0..ROUNDS / 2 {
            let key = format!("round-{round}");
            let answers = at_once(AT_ONCE, |n| {
                let (client, key, at) = (client.clone(), key.clone(), in_turn(&services, n));
                async move { client.order(at, &key, &want(&[("TEA", 1)])).await }
            })
            .await;
            let placed: BTreeSet<_> = answers.iter().filter_map(Seen::order).collect();
            assert_eq!(placed.len(), 1, "{answers:?}");
            assert!(answers.iter().all(|a| a.status == 201 || a.is_in_progress(LEASE)), "{answers:?}");
            assert_eq!(site.orders().await, round as i64 + 1);
        }
    };
    let vanish = async {
        loop {
            site.under.sql.run("DELETE FROM idempotency_records WHERE status = 'done'").await;
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        () = race => {}
        () = vanish => {}
    }
    let stopped =
        services[0].counted("constraint", "key_exists").await + services[1].counted("constraint", "key_exists").await;
    assert!(stopped > 0, "the constraint had nothing to do");
    site.holds().await;
}

/// Two tabs with two keys, the same goods, in the same moment: the second is asked whether it is meant.
#[tokio::test]
async fn of_two_forms_with_the_same_content_at_once_one_is_placed_and_the_other_asks_first() {
    let site = Site::open(&[("ONCEGATE_REPEAT_NOTICE", "2m")]).await;
    let services = site.start_two().await;
    let places = [services[0].main, if site.shares_tokens() { services[1].main } else { services[0].main }];
    let buyer = site.buyer();
    for round in 1..=5_u32 {
        let pairs = [buyer.form(places[0]).await, buyer.form(places[1]).await];
        assert_ne!(pairs[0].key, pairs[1].key);
        let answers = at_once(2, |n| {
            let (buyer, pair) = (buyer.clone(), pairs[n].clone());
            async move { buyer.submit(places[n], &pair, "TEA", round).await }
        })
        .await;
        let placed: Vec<_> = answers.iter().filter_map(Seen::order).collect();
        assert_eq!(placed.len(), 1, "{answers:?}");
        let asked = answers.iter().find(|answer| answer.status == 409).unwrap_or_else(|| panic!("{answers:?}"));
        assert!(asked.text().contains(&format!("/orders/{}", placed[0])) && asked.text().contains("name=\"again\""));
        assert_eq!(site.orders().await, i64::from(round));
    }
    site.holds().await;
}
