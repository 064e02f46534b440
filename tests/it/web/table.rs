//! The table of contract section 4, row by row: token and record in, answer out.

use std::time::{Duration, Instant};

use super::shop::{Buyer, CUP, Fields, Page, Pair, Shop, TEA, without_redis};
use crate::harness::goods::until_all_cost;

/// Buys four cups of three.
const TOO_MANY: Fields = &[("quantity[CUP]", "4"), ("payment", "balance")];

/// The pair with a token of each kind, for a key that was submitted with it: spent, unknown, accepted.
async fn each_token(buyer: &Buyer, pair: &Pair) -> [Pair; 3] {
    [pair.clone(), pair.forged(), buyer.fresh_token(pair).await]
}

/// A form that came back with the values, and this key or another, and that can be sent.
async fn comes_back(buyer: &mut Buyer, page: &Page, sent: &Pair, same_key: bool) {
    let pair = page.pair();
    assert_ne!(pair.token, sent.token, "the token is fresh");
    assert_eq!(pair.key == sent.key, same_key, "{pair:?} {sent:?}");
    assert_eq!(page.value("quantity[TEA]"), "2", "what was typed is kept");
    buyer.order(&pair, &[("quantity[TEA]", "7"), ("payment", "balance")]).await.order();
}

#[tokio::test]
async fn an_accepted_token_and_no_record_place_the_order_and_redirect_to_it() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let order = buyer.order(&pair, TEA).await.order();
    buyer.get(&format!("/orders/{order}")).await.says(200, "25.00");
    assert_eq!(shop.orders().await, 1);
}

#[tokio::test]
async fn the_same_submission_again_leads_to_its_order_whatever_the_token() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let order = buyer.order(&pair, TEA).await.order();
    for pair in each_token(&buyer, &pair).await {
        assert_eq!(buyer.order(&pair, TEA).await.order(), order);
    }
    assert_eq!(shop.orders().await, 1);
}

#[tokio::test]
async fn an_order_whose_record_is_gone_is_found_all_the_same() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let order = buyer.order(&pair, TEA).await.order();
    for pair in each_token(&buyer, &pair).await {
        shop.kept.sql.run("DELETE FROM idempotency_records").await;
        assert_eq!(buyer.order(&pair, TEA).await.order(), order);
    }
    shop.kept.sql.run("DELETE FROM idempotency_records").await;
    buyer.order(&pair, CUP).await.says(409, &format!("/orders/{order}"));
    assert_eq!(shop.orders().await, 1);
}

#[tokio::test]
async fn other_content_under_a_used_key_names_the_order_it_became_and_orders_nothing() {
    for nth in 0..3 {
        let shop = Shop::open().await;
        let mut buyer = shop.buyer();
        let pair = buyer.form().await;
        let order = buyer.order(&pair, CUP).await.order();
        let sent = &each_token(&buyer, &pair).await[nth];
        let page = buyer.order(sent, TEA).await;
        page.says(409, &format!("href=\"/orders/{order}\"")).says(409, "nothing new was ordered");
        assert_eq!(shop.orders().await, 1);
        comes_back(&mut buyer, &page, sent, false).await;
    }
}

#[tokio::test]
async fn a_refused_submission_is_refused_again_in_the_same_words_whatever_the_token() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let first = buyer.order(&pair, TOO_MANY).await;
    first.says(409, "The CUP").says(409, "not in stock");
    shop.kept.sql.run("UPDATE products SET stock = 100").await;
    for sent in each_token(&buyer, &pair).await {
        let page = buyer.order(&sent, TOO_MANY).await;
        page.says(409, "not in stock");
        assert_ne!(page.pair().key, pair.key, "the form that comes back is a new intent");
    }
    assert_eq!(shop.orders().await, 0);
    buyer.order(&first.pair(), TOO_MANY).await.order();
}

#[tokio::test]
async fn other_content_after_a_refusal_is_not_ordered_and_comes_back_with_a_new_key() {
    for nth in 0..3 {
        let shop = Shop::open().await;
        let mut buyer = shop.buyer();
        let pair = buyer.form().await;
        buyer.order(&pair, TOO_MANY).await.says(409, "not in stock");
        let sent = &each_token(&buyer, &pair).await[nth];
        let page = buyer.order(sent, TEA).await;
        page.says(409, "was refused").says(409, "Nothing was ordered");
        assert_eq!(shop.orders().await, 0);
        comes_back(&mut buyer, &page, sent, false).await;
    }
}

#[tokio::test]
async fn the_same_submission_under_way_is_waited_for_and_then_watched() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    buyer.under_way(&pair, TEA).await;
    let forged = pair.forged();
    for sent in [pair, forged] {
        let begun = Instant::now();
        let page = buyer.order(&sent, TEA).await;
        assert_eq!(page.status, 303);
        assert_eq!(page.location(), format!("/orders/attempts/{}", sent.key));
        assert!(begun.elapsed() >= shop.app.config.form_wait, "it waited");
    }
    assert_eq!(shop.orders().await, 0);
}

#[tokio::test]
async fn a_duplicate_that_waits_is_answered_as_soon_as_the_first_is_through() {
    for forge in [false, true] {
        let shop = Shop::open_with(|config| config.form_wait = Duration::from_secs(60)).await;
        let mut buyer = shop.buyer();
        let pair = buyer.form().await;
        let fence = buyer.under_way(&pair, TEA).await;
        let sent = if forge { pair.forged() } else { pair };
        let give_up = async {
            tokio::time::sleep(Duration::from_millis(150)).await;
            shop.app.store.release(&[fence]).await.unwrap();
        };
        let (page, ()) = tokio::join!(buyer.order(&sent, TEA), give_up);
        page.order();
        assert_eq!(shop.orders().await, 1);
    }
}

#[tokio::test]
async fn other_content_while_the_first_is_under_way_is_not_sent_and_shows_where_to_watch() {
    for over in [false, true] {
        for nth in 0..3 {
            let shop = Shop::open().await;
            let mut buyer = shop.buyer();
            let pair = buyer.form().await;
            buyer.under_way(&pair, CUP).await;
            if over {
                shop.kept.end_leases().await;
            }
            if nth == 0 {
                buyer.spend(&pair).await;
            }
            let sent = &each_token(&buyer, &pair).await[nth];
            let page = buyer.order(sent, TEA).await;
            page.says(409, &format!("/orders/attempts/{}", pair.key)).says(409, "was not ordered");
            assert_eq!(shop.orders().await, 0);
            comes_back(&mut buyer, &page, sent, false).await;
        }
    }
}

#[tokio::test]
async fn a_submission_whose_lease_is_over_is_taken_over_and_finished_whatever_the_token() {
    for nth in 0..3 {
        let shop = Shop::open().await;
        let mut buyer = shop.buyer();
        let pair = buyer.form().await;
        buyer.under_way(&pair, TEA).await;
        buyer.spend(&pair).await;
        shop.kept.end_leases().await;
        let sent = &each_token(&buyer, &pair).await[nth];
        buyer.order(sent, TEA).await.order();
        assert_eq!(shop.orders().await, 1);
    }
}

#[tokio::test]
async fn a_token_spent_a_moment_ago_is_taken_for_a_submission_under_way() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    buyer.spend(&pair).await;
    let page = buyer.order(&pair, TEA).await;
    assert_eq!(page.location(), format!("/orders/attempts/{}", pair.key));
    buyer.get(page.location()).await.says(200, "being placed");
    assert_eq!(shop.records().await, 0);
}

#[tokio::test]
async fn a_token_spent_a_lease_ago_without_an_order_gives_the_form_back_under_the_same_key() {
    let shop = Shop::open_with(|config| config.lease = Duration::from_secs(1)).await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    buyer.spend(&pair).await;
    let binding = buyer.binding(&pair).await;
    while shop.app.tokens.spent_ago(&binding).await.unwrap() < shop.app.config.lease {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let page = buyer.order(&pair, TEA).await;
    page.says(409, "nothing was ordered");
    assert_eq!(shop.records().await, 0);
    comes_back(&mut buyer, &page, &pair, true).await;
}

#[tokio::test]
async fn an_expired_or_forged_form_orders_nothing_and_comes_back_under_the_same_key() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let sent = buyer.form().await.forged();
    let page = buyer.order(&sent, TEA).await;
    page.says(409, "had expired").says(409, "Nothing was ordered");
    assert_eq!((shop.orders().await, shop.records().await), (0, 0));
    assert_eq!(buyer.order(&sent, TEA).await.status, 409, "again and again");
    comes_back(&mut buyer, &page, &sent, true).await;
}

#[tokio::test]
async fn a_form_without_token_or_key_is_expired_and_a_missing_or_malformed_key_is_made_anew() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let without_token = format!("idempotency_key={}&quantity[TEA]=2&payment=balance", pair.key);
    let page = buyer.post("/orders", without_token).await;
    page.says(409, "had expired");
    assert_eq!(page.pair().key, pair.key);
    for key in ["", "&idempotency_key=", "&idempotency_key=%00", "&idempotency_key=a+b", "&idempotency_key=.."] {
        let body = format!("form_token={}&quantity[TEA]=2&payment=balance{key}", pair.token);
        let page = buyer.post("/orders", body).await;
        page.says(409, "had expired");
        assert!(uuid::Uuid::parse_str(&page.pair().key).is_ok(), "{key}: {:?}", page.pair());
        assert_ne!(page.pair().key, pair.key);
    }
    assert_eq!(shop.records().await, 0);
    buyer.order(&pair, TEA).await.order();
}

#[tokio::test]
async fn a_token_with_another_key_is_unknown_and_stays_unspent() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let (one, two) = (buyer.form().await, buyer.form().await);
    let crossed = Pair { token: one.token.clone(), key: two.key.clone() };
    buyer.order(&crossed, TEA).await.says(409, "had expired");
    buyer.order(&one, TEA).await.order();
    buyer.order(&two, CUP).await.order();
}

#[tokio::test]
async fn another_visitors_form_is_unknown_and_stays_unspent() {
    let shop = Shop::open().await;
    let (mut one, mut two) = (shop.buyer(), shop.buyer());
    let pair = one.form().await;
    two.form().await;
    let page = two.order(&pair, TEA).await;
    page.says(409, "had expired");
    assert_eq!(shop.orders().await, 0);
    let order = one.order(&pair, TEA).await.order();
    let page = two.order(&pair, TEA).await;
    page.says(409, "had expired");
    assert!(!page.text.contains(&order), "nobody learns of another's order");
}

#[tokio::test]
async fn a_finished_post_sent_again_without_its_cookie_shows_no_order_and_makes_none() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let order = buyer.order(&pair, TEA).await.order();
    for _ in 0..2 {
        let page = shop.buyer().order(&pair, TEA).await;
        page.says(409, "had expired");
        assert!(!page.text.contains(&order));
        assert!(page.header("set-cookie").is_empty(), "it would put the buyer's own out of the browser");
        assert_eq!(buyer.order(&page.pair(), TEA).await.order(), order, "sent with the cookie it finds its order");
    }
    assert_eq!(shop.orders().await, 1);
}

#[tokio::test]
async fn an_order_is_found_again_although_the_catalogue_would_not_take_it_any_more() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let order = buyer.order(&pair, TEA).await.order();
    shop.kept.sql.run("UPDATE products SET unit_price = 1000000000000").await;
    until_all_cost(&shop.app, 1_000_000_000_000).await;
    assert_eq!(buyer.order(&pair, TEA).await.order(), order);
    let fresh = buyer.form().await;
    buyer.order(&fresh, TEA).await.says(422, "at most");
    assert_eq!(shop.orders().await, 1);
}

#[tokio::test]
async fn without_redis_the_inner_layers_decide_alone() {
    let shop = Shop::open_with(without_redis).await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let order = buyer.order(&pair, TEA).await.order();
    assert_eq!(buyer.order(&pair, TEA).await.order(), order);
    buyer.order(&pair, CUP).await.says(409, &order);
    assert_eq!(shop.orders().await, 1);
    assert_eq!(shop.buyer().order(&pair, CUP).await.status, 409, "nobody's form is nobody's, Redis or not");
    assert_eq!(shop.orders().await, 1);
}

#[tokio::test]
async fn a_full_desk_answers_503_with_the_values_a_fresh_token_and_the_same_key() {
    let shop = Shop::open_with(|config| config.queue = 0).await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let page = buyer.order(&pair, TEA).await;
    page.says(503, "not answering");
    assert!(page.header("retry-after").parse::<u32>().unwrap() >= 1);
    assert_eq!(page.value("quantity[TEA]"), "2");
    assert_eq!(page.pair().key, pair.key);
    assert_ne!(page.pair().token, pair.token);
    assert_eq!(shop.records().await, 0);
    let again = buyer.order(&page.pair(), TEA).await;
    assert_eq!(again.status, 503, "the fresh token is accepted, so it is the desk again that says no");
    let reload = buyer.order(&pair, TEA).await;
    assert_eq!(reload.status, 503, "and so is the first one: nothing was burnt");
}

#[tokio::test]
async fn a_lost_database_answers_503_with_the_values_and_the_unspent_pair() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let binding = buyer.binding(&pair).await;
    shop.app.store.close().await;
    let page = buyer.order(&pair, TEA).await;
    page.says(503, "not answering");
    assert!(page.header("retry-after").parse::<u32>().unwrap() >= 1);
    assert_eq!(page.value("quantity[TEA]"), "2");
    assert_eq!(page.pair(), pair);
    assert_eq!(shop.app.tokens.spent_ago(&binding).await, None);
    assert_eq!(buyer.get("/orders/new").await.header("retry-after"), "2");
    assert_eq!(shop.buyer().get("/orders/new").await.status, 503, "nor for a new visitor an empty 500");
}

#[tokio::test]
async fn fifty_submissions_of_one_form_at_once_make_one_order() {
    let shop = Shop::open_with(|config| config.form_wait = Duration::from_secs(10)).await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let presses: tokio::task::JoinSet<_> = (0..50)
        .map(|_| {
            let (mut tab, pair) = (buyer.clone(), pair.clone());
            async move { tab.order(&pair, TEA).await.location().to_owned() }
        })
        .collect();
    let answers = presses.join_all().await;
    let order = answers.iter().find(|a| !a.contains("attempts")).unwrap();
    for answer in &answers {
        assert!(answer == order || *answer == format!("/orders/attempts/{}", pair.key), "{answer}");
    }
    assert_eq!(shop.orders().await, 1);
}
