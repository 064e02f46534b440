//! What the curious and the operators see: `/try` pressed button by button, and `/activity` afterwards, shown to `eyes`.

use crate::browser::Browser;
use crate::eyes::look;
use crate::scene::Scene;

const ON: &[(&str, &str)] = &[("ONCEGATE_TRY_PAGE", "true")];

#[tokio::test]
async fn a_button_of_try_pressed_twice_plays_once_and_activity_shows_what_was_stopped() {
    let (scene, browser) = tokio::join!(Scene::open_with(ON), Browser::start());
    browser.open(&scene.url("/try")).await;
    browser.sees("Not possible here: No payment provider is set").await;
    look(&browser, "try").await;
    browser.press_quickly_on("[action='/try/ten-at-once'] button", 2).await;
    browser.sees("1 order, 1 charge, 1 coupon").await;
    browser.sees("Stopped by: Layer 2, the idempotency key").await;
    look(&browser, "tried").await;
    browser.reload().await;
    browser.sees("1 order, 1 charge, 1 coupon").await;
    assert_eq!(scene.orders().await, 1);

    browser.open(&scene.ops_url("/activity")).await;
    browser.sees("place_order").await;
    look(&browser, "activity").await;
}

#[tokio::test]
async fn try_works_without_a_script() {
    let (scene, browser) = tokio::join!(Scene::open_with(ON), Browser::start_with(false));
    browser.open(&scene.url("/try")).await;
    browser.click("[action='/try/double-click'] button").await;
    browser.sees("Stopped by: Layer 1, the form token").await;
    assert_eq!(scene.orders().await, 1);
}
