//! The same shop in Chinese: asked for by the browser, or chosen on the page, also without the script.

use serde_json::json;

use crate::browser::Browser;
use crate::eyes::look;
use crate::scene::{CUP, Scene, TEA};

const TO_CHINESE: &str = "a[hreflang='zh-Hans']";
const TO_ENGLISH: &str = "a[hreflang='en']";

#[tokio::test]
async fn the_switch_changes_the_language_of_the_page_and_of_all_that_follow() {
    for scripts in [true, false] {
        let (scene, browser) = tokio::join!(Scene::open(), Browser::start_with(scripts));
        browser.open(&scene.form()).await;
        browser.sees("Place order").await;
        browser.click(TO_CHINESE).await;
        browser.sees("提交订单").await;
        assert_eq!(browser.at("/orders/new").await, "/orders/new");
        browser.want(TEA, "2").await;
        browser.press().await;
        browser.sees("已付款").await;
        let order = browser.ask("return location.pathname", &[]).await;
        browser.click(TO_ENGLISH).await;
        assert_eq!(browser.at_order().await, order);
        assert_eq!(scene.orders().await, 1, "scripts: {scripts}");
    }
}

#[tokio::test]
async fn the_switch_of_an_answer_to_a_form_orders_nothing_and_leads_to_the_form() {
    for scripts in [true, false] {
        let (scene, browser) = tokio::join!(Scene::open(), Browser::start_with(scripts));
        browser.open(&scene.form()).await;
        browser.want(TEA, "two").await;
        browser.press().await;
        browser.sees("Something needs to be corrected").await;
        browser.click(TO_CHINESE).await;
        browser.sees("提交订单").await;
        assert_eq!(browser.at("/orders/new").await, "/orders/new");
        assert_eq!(scene.orders().await, 0, "scripts: {scripts}");
    }
}

#[tokio::test]
async fn a_browser_set_to_chinese_gets_chinese_pages_that_are_as_accessible() {
    let (scene, browser) = tokio::join!(Scene::open(), Browser::start());
    browser.devtools("Network.enable", json!({})).await;
    let set = json!({ "headers": { "Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8" } });
    browser.devtools("Network.setExtraHTTPHeaders", set).await;
    browser.open(&scene.form()).await;
    browser.want(TEA, "2").await;
    browser.want(CUP, "one").await;
    browser.press().await;
    browser.sees("有几处需要修改").await;
    look(&browser, "form-to-correct-chinese").await;
    browser.want(CUP, "1").await;
    let hold = scene.hold().await;
    browser.press().await;
    browser.sees("正在提交订单").await;
    hold.release().await;
    browser.sees("已付款").await;
    look(&browser, "order-chinese").await;
    browser.open(&scene.url("/orders")).await;
    browser.sees("我的订单").await;
    look(&browser, "list-chinese").await;
    assert_eq!(scene.orders().await, 1);
}
