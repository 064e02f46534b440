//! Orders that wait for their payment: paid, declined, called off, and pressed twice.

use crate::browser::Browser;
use crate::eyes::look;
use crate::harness::till::{KEY, Till, WEBHOOK_SECRET};
use crate::scene::{CUP, Scene, TEA};

/// What two cups cost: the amount that the provider declines.
const DECLINED: &str = "2900";
const PAY: &str = "form[action$='/pay'] button";
const CANCEL: &str = "form[action$='/cancel'] button";

/// A shop with a card provider that declines two cups, and somebody at its form.
async fn at_the_till(scripts: bool) -> (Till, Scene, Browser) {
    let till = Till::open(&["--decline-amount", DECLINED]).await;
    let url = format!("http://{}", till.at);
    let card = [
        ("ONCEGATE_GATEWAY_URL", url.as_str()),
        ("ONCEGATE_GATEWAY_KEY", KEY),
        ("ONCEGATE_GATEWAY_WEBHOOK_SECRET", WEBHOOK_SECRET),
    ];
    let (scene, browser) = tokio::join!(Scene::open_with(&card), Browser::start_with(scripts));
    browser.open(&scene.form()).await;
    (till, scene, browser)
}

/// Orders two cups by a card that is declined; answers the order's path.
async fn declined(browser: &Browser) -> String {
    browser.want(CUP, "2").await;
    browser.click("#payment-card").await;
    browser.press().await;
    browser.sees("The card was declined").await;
    browser.ask("return location.pathname", &[]).await
}

#[tokio::test]
async fn an_order_by_card_is_charged_once_however_often_the_button_is_pressed() {
    for scripts in [true, false] {
        let (till, scene, browser) = at_the_till(scripts).await;
        browser.want(TEA, "1").await;
        browser.click("#payment-card").await;
        browser.press_quickly(3).await;
        browser.at_order().await;
        browser.sees("by card: paid").await;
        assert_eq!((scene.orders().await, till.charges().await), (1, 1), "scripts: {scripts}");
    }
}

#[tokio::test]
async fn an_order_whose_card_is_declined_waits_and_is_paid_once_by_a_double_press() {
    for scripts in [true, false] {
        let (till, scene, browser) = at_the_till(scripts).await;
        declined(&browser).await;
        if scripts {
            look(&browser, "order-declined").await;
        }
        browser.click("#pay-balance").await;
        browser.press_quickly_on(PAY, 2).await;
        browser.sees("Your order is paid. Thank you.").await;
        if scripts {
            look(&browser, "order-paid").await;
        }
        browser.reload().await;
        browser.sees("Your order is paid. Thank you.").await;
        assert_eq!((scene.orders().await, till.charges().await), (1, 0), "scripts: {scripts}");
        assert_eq!(spent(&scene).await, 2900, "scripts: {scripts}");
    }
}

#[tokio::test]
async fn an_order_that_is_paid_is_cancelled_and_paid_back_once_by_a_double_press() {
    for scripts in [true, false] {
        let (_till, scene, browser) = at_the_till(scripts).await;
        browser.want(TEA, "1").await;
        browser.press().await;
        browser.at_order().await;
        browser.press_quickly_on(CANCEL, 2).await;
        browser.sees("Your order is cancelled.").await;
        if scripts {
            look(&browser, "order-cancelled").await;
        }
        browser.reload().await;
        browser.sees("Cancelled").await;
        assert_eq!(scene.orders().await, 1, "scripts: {scripts}");
        assert_eq!(spent(&scene).await, 0, "scripts: {scripts}");
        // Chromium gives up the first press for the second one, unless the script keeps the second back.
        let presses = scene.decided("token", "accepted").await + scene.decided("token", "spent").await;
        assert_eq!(presses, if scripts { 2 } else { 3 }, "with the order's own press");
    }
}

#[tokio::test]
async fn a_page_of_an_order_that_has_gone_on_says_how_it_stands() {
    for scripts in [true, false] {
        let (_till, scene, browser) = at_the_till(scripts).await;
        let order = declined(&browser).await;
        let first = browser.new_tab().await;
        browser.open(&scene.url(&order)).await;
        browser.click(CANCEL).await;
        browser.sees("Your order is cancelled.").await;
        browser.turn_to(first).await;
        browser.click("#pay-balance").await;
        browser.click(PAY).await;
        browser.sees("That is not possible any more").await;
        browser.sees("Cancelled").await;
        if scripts {
            look(&browser, "order-too-late").await;
        }
        assert_eq!(scene.orders().await, 1, "scripts: {scripts}");
        assert_eq!(spent(&scene).await, 0, "scripts: {scripts}");
    }
}

/// What the buyer has less than at the beginning, in minor units.
async fn spent(scene: &Scene) -> i64 {
    100_000 - scene.sql.int("SELECT balance FROM accounts").await
}
