//! Networks that go away, shops that are restarted, answers that never come.

use nix::sys::signal::Signal;

use crate::browser::Browser;
use crate::harness::proxy::Fault;
use crate::scene::{Scene, TEA, eventually};

const STOP: &str = ".stop";
const TRYING: &str = "Still trying";
/// Whether the browser shows its own page instead of one of the shop's.
const NO_PAGE: &str = "return location.protocol == 'chrome-error:'";

/// A form with a packet of tea.
async fn about_to_order(settings: &[(&str, &str)], scripts: bool) -> (Scene, Browser) {
    let (scene, browser) = tokio::join!(Scene::open_with(settings), Browser::start_with(scripts));
    browser.open(&scene.form()).await;
    browser.want(TEA, "1").await;
    (scene, browser)
}

#[tokio::test]
async fn a_network_that_goes_away_and_comes_back_costs_nothing_but_time() {
    let (scene, browser) = about_to_order(&[], true).await;
    scene.wire.set(Fault::Refuse);
    browser.press().await;
    browser.sees(TRYING).await;
    browser.finds(STOP).await;
    assert_eq!(scene.orders().await, 0);
    scene.wire.set(Fault::None);
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn without_the_script_f5_after_the_network_has_come_back_sends_the_form() {
    let (scene, browser) = about_to_order(&[], false).await;
    scene.wire.set(Fault::Refuse);
    browser.press().await;
    browser.until("no page", NO_PAGE, &[]).await;
    scene.wire.set(Fault::None);
    browser.reload().await;
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn an_answer_that_is_lost_is_asked_for_again_with_the_same_key() {
    let (scene, browser) = about_to_order(&[], true).await;
    scene.wire.set(Fault::Swallow);
    browser.press().await;
    scene.until_orders(1).await;
    scene.wire.set(Fault::Refuse);
    browser.sees(TRYING).await;
    scene.wire.set(Fault::None);
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn an_answer_that_never_comes_is_given_up_after_a_while_and_asked_for_again() {
    let (scene, browser) = about_to_order(&[], true).await;
    scene.wire.set(Fault::Swallow);
    browser.press().await;
    scene.until_orders(1).await;
    browser.sees("Your order is being placed").await;
    // Nothing is closed: only the script's own patience ends this.
    browser.sees(TRYING).await;
    scene.wire.cut();
    scene.wire.set(Fault::None);
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn whoever_stops_trying_keeps_the_form_and_may_send_it_again() {
    let (scene, browser) = about_to_order(&[], true).await;
    scene.wire.set(Fault::Refuse);
    browser.press().await;
    browser.sees(TRYING).await;
    browser.click(STOP).await;
    browser.sees("Stopped.").await;
    let focused = "return document.activeElement.type == 'submit' && !document.activeElement.disabled";
    browser.until("the button can be pressed, and has the focus", focused, &[]).await;
    scene.wire.set(Fault::None);
    assert_eq!(browser.value(&format!("quantity[{TEA}]")).await, "1");
    browser.press().await;
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn the_script_gives_up_in_the_end_and_says_so() {
    let (scene, browser) = about_to_order(&[], true).await;
    scene.wire.set(Fault::Refuse);
    browser.press().await;
    // Each time the device says that it has a network again, the next try is made at once.
    let given_up = "dispatchEvent(new Event('online')); \
                    return document.querySelector('.progress').dataset.state == 'failed'";
    browser.until("it gives up", given_up, &[]).await;
    browser.sees("There is no connection to the shop").await;
    assert_eq!(scene.orders().await, 0);
    scene.wire.set(Fault::None);
    browser.press().await;
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn somebody_in_between_who_says_that_all_is_well_is_not_taken_for_the_shop() {
    let (scene, browser) = about_to_order(&[], true).await;
    scene.lead_to_stranger(200, "Welcome to the hotel. Please log in.").await;
    browser.press().await;
    browser.sees(TRYING).await;
    scene.lead_back();
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn an_answer_that_is_no_page_of_the_shop_is_shown_as_it_is() {
    let (scene, browser) = about_to_order(&[], true).await;
    scene.lead_to_stranger(403, "Not in this house.").await;
    browser.press().await;
    browser.sees("Not in this house.").await;
    assert_eq!(scene.orders().await, 0);
    scene.lead_back();
    browser.reload().await;
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn a_reload_while_the_network_is_away_finds_the_order_afterwards() {
    let (scene, browser) = about_to_order(&[], true).await;
    scene.wire.set(Fault::Swallow);
    browser.press().await;
    scene.until_orders(1).await;
    scene.wire.cut();
    scene.wire.set(Fault::None);
    browser.open(&scene.form()).await;
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn a_shop_that_asks_to_come_back_later_is_obeyed_in_view() {
    // Its deadlines follow from the lease: it gives up on the lock after one and a half seconds.
    let (scene, browser) = about_to_order(&[("ONCEGATE_LEASE", "3s")], true).await;
    let hold = scene.hold().await;
    browser.press().await;
    browser.sees(TRYING).await;
    hold.release().await;
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn without_the_script_a_shop_that_is_busy_gives_the_form_back_to_be_sent_again() {
    let (scene, browser) = about_to_order(&[("ONCEGATE_LEASE", "3s")], false).await;
    let hold = scene.hold().await;
    browser.press().await;
    browser.sees("The shop is not answering just now").await;
    assert_eq!(browser.value(&format!("quantity[{TEA}]")).await, "1");
    assert_eq!(scene.orders().await, 0);
    hold.release().await;
    browser.press().await;
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn a_shop_that_is_stopped_in_the_middle_finishes_first() {
    for scripts in [true, false] {
        let (mut scene, browser) = about_to_order(&[], scripts).await;
        let hold = scene.hold().await;
        browser.press().await;
        scene.until_decided("token", "accepted", 1).await;
        scene.end_service(Signal::SIGTERM, hold).await;
        assert_eq!(scene.orders().await, 1);
        if !scripts {
            browser.until("no page", NO_PAGE, &[]).await;
        }
        scene.start_service().await;
        if !scripts {
            browser.reload().await;
        }
        browser.at_order().await;
        assert_eq!(scene.orders().await, 1, "scripts: {scripts}");
    }
}

#[tokio::test]
async fn a_shop_that_is_killed_in_the_middle_and_started_again_takes_the_order_once() {
    for scripts in [true, false] {
        let (mut scene, browser) = about_to_order(&[("ONCEGATE_LEASE", "2s")], scripts).await;
        let hold = scene.hold().await;
        browser.press().await;
        scene.until_decided("token", "accepted", 1).await;
        scene.until_claimed().await;
        scene.end_service(Signal::SIGKILL, hold).await;
        match scripts {
            true => browser.sees(TRYING).await,
            false => browser.until("no page", NO_PAGE, &[]).await,
        }
        assert_eq!(scene.orders().await, 0);
        eventually("the lease is over", async || scene.leases().await == 0).await;
        scene.start_service().await;
        if !scripts {
            browser.reload().await;
        }
        // Tokens that were in the process are gone with it: then the form comes back, and is sent by hand.
        let outcome = "return /Paid|This form had expired/.test(document.body.innerText)";
        browser.until("the order, or the form", outcome, &[]).await;
        if browser.ask("return document.title", &[]).await.starts_with("Not ordered") {
            assert_eq!(browser.value(&format!("quantity[{TEA}]")).await, "1");
            browser.press().await;
        }
        browser.at_order().await;
        assert_eq!(scene.orders().await, 1, "scripts: {scripts}");
    }
}
