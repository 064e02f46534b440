//! Mistakes, second thoughts, slow hands.

use std::time::Duration;

use crate::browser::{BUTTON, Browser};
use crate::scene::{CUP, Scene, TEA};

#[tokio::test]
async fn a_mistake_is_shown_at_its_field_and_the_corrected_form_is_ordered() {
    for scripts in [true, false] {
        let (scene, browser) = tokio::join!(Scene::open(), Browser::start_with(scripts));
        browser.open(&scene.form()).await;
        browser.want(TEA, "two").await;
        browser.fill("note", "a line\nand another").await;
        browser.press().await;
        browser.sees("Something needs to be corrected").await;
        browser.until("the summary has the focus", "return document.activeElement.id == 'notice'", &[]).await;
        browser.click("#notice a").await;
        let at_field = "return document.activeElement.getAttribute('aria-invalid') == 'true'";
        browser.until("the summary leads to the field", at_field, &[]).await;
        assert_eq!(browser.value(&format!("quantity[{TEA}]")).await, "two");
        assert_eq!(scene.orders().await, 0);
        browser.want(TEA, "2").await;
        browser.press().await;
        browser.at_order().await;
        browser.sees("a line and another").await;
        assert_eq!(scene.orders().await, 1, "scripts: {scripts}");
    }
}

#[tokio::test]
async fn a_form_that_expires_while_somebody_types_comes_back_with_what_was_typed() {
    const LIFE: Duration = Duration::from_secs(8); // the form that comes back must be sent within it
    for scripts in [true, false] {
        let settings = [("ONCEGATE_FORM_TOKEN_TTL", &*format!("{}s", LIFE.as_secs()))];
        let (scene, browser) = tokio::join!(Scene::open_with(&settings), Browser::start_with(scripts));
        browser.open(&scene.form()).await;
        browser.want(TEA, "2").await;
        tokio::time::sleep(LIFE).await; // that is what this is about
        browser.press().await;
        browser.sees("This form had expired").await;
        assert_eq!(browser.value(&format!("quantity[{TEA}]")).await, "2");
        assert_eq!(scene.orders().await, 0);
        browser.press().await;
        browser.at_order().await;
        assert_eq!(scene.orders().await, 1, "scripts: {scripts}");
    }
}

#[tokio::test]
async fn the_total_follows_what_is_typed_and_stays_away_without_the_script() {
    let (scene, browser) = tokio::join!(Scene::open(), Browser::start());
    browser.open(&scene.form()).await;
    browser.sees("Total 0.00 EUR").await;
    browser.want(TEA, "2").await;
    browser.sees("Total 25.80 EUR").await;
    browser.want(CUP, "1").await;
    browser.sees("Total 40.30 EUR").await;
    browser.want(TEA, "no").await;
    browser.sees("Total 14.50 EUR").await;
    browser.press().await;
    browser.sees("Something needs to be corrected").await;
    browser.sees("Total 14.50 EUR").await;
    assert_eq!(scene.orders().await, 0);

    let browser = Browser::start_with(false).await;
    browser.open(&scene.form()).await;
    let shown = browser.ask("return document.body.innerText", &[]).await;
    assert!(shown.contains("12.90") && !shown.contains("Total"), "{shown}");
}

#[tokio::test]
async fn everything_can_be_done_with_the_keyboard() {
    for scripts in [true, false] {
        let (scene, browser) = tokio::join!(Scene::open(), Browser::start_with(scripts));
        browser.open(&scene.form()).await;
        browser.tab_to(&format!("[name=\"quantity[{TEA}]\"]")).await;
        browser.type_keys("1").await;
        browser.tab_to(BUTTON).await;
        browser.type_keys("\u{E00D}").await; // space
        browser.at_order().await;
        assert_eq!(scene.orders().await, 1, "scripts: {scripts}");
    }
}
