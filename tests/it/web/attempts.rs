//! `GET /orders/attempts/{key}`.

use std::time::Duration;

use super::shop::{Fields, Shop, TEA};

fn path(key: &str) -> String {
    format!("/orders/attempts/{key}")
}

#[tokio::test]
async fn an_attempt_under_way_reloads_itself_until_the_order_stands() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let fence = buyer.under_way(&pair, TEA).await;
    let page = buyer.get(&path(&pair.key)).await;
    page.says(200, "<meta http-equiv=\"refresh\" content=\"1\">").says(200, "being placed");
    shop.app.store.release(&[fence]).await.unwrap();
    let order = buyer.order(&pair, TEA).await.order();
    assert_eq!(buyer.get(&path(&pair.key)).await.order(), order);
    shop.kept.sql.run("DELETE FROM idempotency_records").await;
    assert_eq!(buyer.get(&path(&pair.key)).await.order(), order, "also when the record is gone");
}

#[tokio::test]
async fn an_attempt_that_was_refused_shows_the_refusal_and_a_form_of_its_own() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    let too_many: Fields = &[("quantity[CUP]", "4"), ("payment", "balance")];
    buyer.order(&pair, too_many).await;
    let page = buyer.get(&path(&pair.key)).await;
    page.says(409, "The CUP").says(409, "not in stock");
    assert_ne!(page.pair().key, pair.key);
    buyer.order(&page.pair(), TEA).await.order();
}

#[tokio::test]
async fn an_attempt_whose_lease_is_over_says_that_nothing_was_ordered_and_offers_its_key() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    buyer.under_way(&pair, TEA).await;
    shop.kept.end_leases().await;
    let page = buyer.get(&path(&pair.key)).await;
    page.says(200, "Nothing was ordered");
    assert_eq!(page.pair().key, pair.key);
    assert_eq!(page.value("quantity[TEA]"), "");
    buyer.order(&page.pair(), TEA).await.order();
}

#[tokio::test]
async fn an_attempt_of_which_only_the_spent_token_is_known_is_under_way_for_a_lease() {
    let shop = Shop::open_with(|config| config.lease = Duration::from_secs(1)).await;
    let mut buyer = shop.buyer();
    let pair = buyer.form().await;
    buyer.spend(&pair).await;
    buyer.get(&path(&pair.key)).await.says(200, "being placed");
    let binding = buyer.binding(&pair).await;
    while shop.app.tokens.spent_ago(&binding).await.unwrap() < shop.app.config.lease {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let page = buyer.get(&path(&pair.key)).await;
    page.says(200, "Nothing was ordered");
    assert_eq!(page.pair().key, pair.key);
}

#[tokio::test]
async fn nobody_finds_an_attempt_that_was_never_made_or_is_anothers() {
    let shop = Shop::open().await;
    let (mut one, mut two) = (shop.buyer(), shop.buyer());
    let pair = one.form().await;
    one.get(&path(&pair.key)).await.says(404, "Not found");
    one.order(&pair, TEA).await.order();
    two.form().await;
    let (anothers, nobodys) = (two.get(&path(&pair.key)).await, two.get(&path("never-made")).await);
    assert_eq!(anothers.says(404, "Not found").text, nobodys.text);
    assert_eq!(shop.buyer().get(&path(&pair.key)).await.text, nobodys.text);
    two.get(&path("%FF")).await.says(404, "Not found");
}

#[tokio::test]
async fn a_key_of_any_visible_characters_has_an_address_of_its_own() {
    let shop = Shop::open().await;
    let mut buyer = shop.buyer();
    let mut pair = buyer.form().await;
    pair.key = r##"a/b?c#d%2F"<&'+;"##.to_owned();
    let pair = buyer.fresh_token(&pair).await;
    let fence = buyer.under_way(&pair, TEA).await;
    let watched = buyer.order(&pair, TEA).await;
    assert_eq!(watched.location(), path("a%2Fb%3Fc%23d%252F%22%3C%26%27%2B%3B"));
    buyer.get(watched.location()).await.says(200, "being placed");
    shop.app.store.release(&[fence]).await.unwrap();
    let order = buyer.order(&pair, TEA).await.order();
    assert_eq!(buyer.get(watched.location()).await.order(), order);
}
