//! One person, several tabs: each form is an intent of its own.

use crate::browser::Browser;
use crate::scene::{CUP, Scene, TEA};

/// Two tabs with a form each, the same person's; the second in front.
async fn two_tabs(scripts: bool) -> (Scene, Browser, fantoccini::wd::WindowHandle) {
    let (scene, browser) = tokio::join!(Scene::open(), Browser::start_with(scripts));
    browser.open(&scene.form()).await;
    browser.want(TEA, "1").await;
    let first = browser.new_tab().await;
    browser.open(&scene.form()).await;
    (scene, browser, first)
}

#[tokio::test]
async fn two_tabs_with_different_goods_make_two_orders_the_older_one_last() {
    for scripts in [true, false] {
        let (scene, browser, first) = two_tabs(scripts).await;
        browser.want(CUP, "1").await;
        browser.press().await;
        let one = browser.at_order().await;
        browser.turn_to(first).await;
        browser.press().await;
        assert_ne!(browser.at_order().await, one);
        assert_eq!(scene.orders().await, 2, "scripts: {scripts}");
    }
}

#[tokio::test]
async fn two_tabs_with_the_same_goods_make_one_order_and_a_question() {
    for scripts in [true, false] {
        let (scene, browser, first) = two_tabs(scripts).await;
        browser.want(TEA, "1").await;
        browser.press().await;
        browser.at_order().await;
        browser.turn_to(first).await;
        browser.press().await;
        browser.sees("Order the same again?").await;
        assert_eq!(scene.orders().await, 1, "scripts: {scripts}");
    }
}

#[tokio::test]
async fn the_same_goods_from_two_tabs_at_once_make_one_order_and_a_question() {
    for scripts in [true, false] {
        let (scene, browser, first) = two_tabs(scripts).await;
        browser.want(TEA, "1").await;
        let hold = scene.hold().await;
        browser.press().await;
        scene.until_decided("token", "accepted", 1).await;
        let second = browser.turn_to(first).await;
        browser.press().await;
        scene.until_decided("token", "accepted", 2).await;
        hold.release().await;
        // Both waited for the same goods, and either may come first.
        let mut told = vec![browser.outcome().await];
        browser.turn_to(second).await;
        told.push(browser.outcome().await);
        told.sort();
        assert_eq!(told, ["Order the same again?", "Paid"], "scripts: {scripts}");
        assert_eq!(scene.orders().await, 1, "scripts: {scripts}");
    }
}
