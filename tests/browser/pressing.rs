//! Pressing twice: with the script, which takes one press for a submission, and without it, where the browser sends each
//! and shows the answer to the last.

use serde_json::json;

use crate::browser::{BUTTON, Browser};
use crate::scene::{Scene, TEA};

/// A form with two packets of tea, in front of somebody who has scripts or has not.
async fn about_to_order(scripts: bool) -> (Scene, Browser) {
    let (scene, browser) = tokio::join!(Scene::open(), Browser::start_with(scripts));
    browser.open(&scene.form()).await;
    browser.want(TEA, "2").await;
    (scene, browser)
}

#[tokio::test]
async fn a_double_click_makes_one_order() {
    for scripts in [true, false] {
        let (scene, browser) = about_to_order(scripts).await;
        let hold = scene.hold().await; // else the second click may find the order's page already
        browser.press_quickly(2).await;
        scene.until_decided("token", "accepted", 1).await;
        hold.release().await;
        browser.at_order().await;
        browser.sees("25.80 EUR").await;
        assert_eq!(scene.orders().await, 1, "scripts: {scripts}");
    }
}

#[tokio::test]
async fn enter_and_a_click_make_one_order() {
    for scripts in [true, false] {
        let (scene, browser) = about_to_order(scripts).await;
        let hold = scene.hold().await;
        browser.enter_and_press(&format!("quantity[{TEA}]")).await;
        scene.until_decided("token", "accepted", 1).await;
        hold.release().await;
        browser.at_order().await;
        assert_eq!(scene.orders().await, 1, "scripts: {scripts}");
    }
}

#[tokio::test]
async fn ten_presses_make_one_order() {
    for scripts in [true, false] {
        let (scene, browser) = about_to_order(scripts).await;
        let hold = scene.hold().await;
        browser.press_quickly(10).await;
        scene.until_decided("token", "accepted", 1).await;
        hold.release().await;
        browser.at_order().await;
        assert_eq!(scene.orders().await, 1, "scripts: {scripts}");
    }
}

#[tokio::test]
async fn a_double_click_on_a_slow_shop_shows_the_second_request_the_order_of_the_first() {
    let (scene, browser) = about_to_order(false).await;
    let hold = scene.hold().await;
    browser.press_quickly(2).await;
    scene.until_decided("token", "spent", 1).await;
    assert_eq!(scene.decided("token", "accepted").await, 1);
    hold.release().await;
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn a_double_click_on_a_very_slow_shop_shows_that_the_order_is_being_placed_and_then_the_order() {
    let (scene, browser) = about_to_order(false).await;
    let hold = scene.hold().await;
    browser.press_quickly(2).await;
    browser.at("/orders/attempts/").await;
    browser.sees("Your order is being placed").await;
    assert_eq!(scene.orders().await, 0);
    hold.release().await;
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn with_the_script_a_slow_shop_is_waited_for_in_view_and_the_second_press_sends_nothing() {
    let (scene, browser) = about_to_order(true).await;
    let hold = scene.hold().await;
    browser.press_quickly(2).await;
    scene.until_decided("token", "accepted", 1).await;
    browser.sees("Your order is being placed").await;
    let disabled = format!("return document.querySelector('{BUTTON}').disabled");
    browser.until("the button is disabled", &disabled, &[]).await;
    hold.release().await;
    browser.at_order().await;
    assert_eq!(scene.decided("token", "spent").await, 0);
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn stopping_the_browser_and_pressing_again_makes_one_order() {
    let (scene, browser) = about_to_order(false).await;
    let hold = scene.hold().await;
    browser.press().await;
    scene.until_decided("token", "accepted", 1).await;
    browser.devtools("Page.stopLoading", json!({})).await;
    browser.press().await;
    scene.until_decided("token", "spent", 1).await;
    hold.release().await;
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}
