//! F5, Back, restored tabs, pages fetched beforehand: a form that is shown or sent once more.

use serde_json::json;

use crate::browser::Browser;
use crate::harness::proxy::Fault;
use crate::scene::{CUP, Scene, TEA};

/// Somebody who has ordered a packet of tea and looks at the order; its path.
async fn ordered(wire: Fault, scripts: bool) -> (Scene, Browser, String) {
    let (scene, browser) = tokio::join!(Scene::open(), Browser::start_with(scripts));
    scene.wire.set(wire);
    browser.open(&scene.form()).await;
    browser.want(TEA, "1").await;
    browser.press().await;
    let order = browser.at_order().await;
    (scene, browser, order)
}

#[tokio::test]
async fn f5_on_the_order_shows_the_order() {
    for scripts in [true, false] {
        let (scene, browser, order) = ordered(Fault::None, scripts).await;
        browser.reload().await;
        assert_eq!(browser.at_order().await, order);
        assert_eq!(scene.orders().await, 1, "scripts: {scripts}");
    }
}

#[tokio::test]
async fn f5_on_an_answer_that_is_a_form_orders_nothing() {
    for scripts in [true, false] {
        let (scene, browser) = tokio::join!(Scene::open(), Browser::start_with(scripts));
        browser.open(&scene.form()).await;
        browser.want(TEA, "two").await;
        browser.press().await;
        browser.sees("Something needs to be corrected").await;
        browser.reload().await;
        if scripts {
            // The address was the empty form's all the time.
            assert_eq!(browser.value(&format!("quantity[{TEA}]")).await, "");
        } else {
            browser.sees("Something needs to be corrected").await;
        }
        browser.want(TEA, "2").await;
        assert_eq!(scene.orders().await, 0, "scripts: {scripts}");
        browser.press().await;
        browser.at_order().await;
        assert_eq!(scene.orders().await, 1, "scripts: {scripts}");
    }
}

// With the script, a page that Back leads to is made fit for another order, whether Chromium asks the shop for it once
// more or has kept it; without, Chromium keeps it.

#[tokio::test]
async fn back_and_the_same_again_is_asked_about_and_ordered_only_when_confirmed() {
    let (scene, browser, order) = ordered(Fault::None, true).await;
    back_to_another_form(&scene, &browser).await;
    browser.want(TEA, "1").await;
    browser.press().await;
    browser.sees("Order the same again?").await;
    browser.finds(&format!("a[href=\"{order}\"]")).await;
    assert_eq!(scene.orders().await, 1);
    browser.press().await;
    assert_ne!(browser.at_order().await, order);
    assert_eq!(scene.orders().await, 2);
}

#[tokio::test]
async fn back_and_something_else_is_another_order() {
    let (scene, browser, order) = ordered(Fault::None, true).await;
    back_to_another_form(&scene, &browser).await;
    browser.want(CUP, "1").await;
    browser.press().await;
    assert_ne!(browser.at_order().await, order);
    assert_eq!(scene.orders().await, 2);
}

/// Back, until the form has another key than the one it was sent with.
async fn back_to_another_form(scene: &Scene, browser: &Browser) {
    let key = scene.sql.text("SELECT idempotency_key FROM orders").await;
    browser.back().await;
    let renewed = "return document.querySelector('[name=idempotency_key]').value != arguments[0]";
    browser.until("the form has another key", renewed, &[&key]).await;
}

#[tokio::test]
async fn a_used_form_out_of_the_back_forward_cache_leads_to_its_order_or_says_what_became_of_it() {
    for wire in [Fault::None, Fault::Keep] {
        let (scene, browser, order) = ordered(wire, false).await;
        browser.back().await;
        assert_eq!(browser.value(&format!("quantity[{TEA}]")).await, "1", "the page is the one that was left");
        browser.press().await;
        assert_eq!(browser.at_order().await, order);
        assert_eq!(scene.orders().await, 1);

        browser.back().await;
        browser.want(TEA, "3").await;
        browser.press().await;
        browser.sees("This form was already used").await;
        browser.sees("nothing new was ordered").await;
        browser.finds(&format!("a[href=\"{order}\"]")).await;
        assert_eq!(browser.value(&format!("quantity[{TEA}]")).await, "3");
        assert_eq!(scene.orders().await, 1);
        browser.press().await;
        assert_ne!(browser.at_order().await, order);
        assert_eq!(scene.orders().await, 2);
    }
}

#[tokio::test]
async fn the_script_makes_a_form_out_of_the_back_forward_cache_fit_for_another_order() {
    let (scene, browser, order) = ordered(Fault::Keep, true).await;
    back_to_another_form(&scene, &browser).await;
    assert_eq!(browser.value(&format!("quantity[{TEA}]")).await, "1", "the page is the one that was left");
    let ready = "return !document.querySelector('form.order [type=submit]').disabled \
                 && document.querySelector('.progress').textContent == ''";
    browser.until("the form is as if nobody had sent it", ready, &[]).await;

    browser.press().await;
    browser.sees("Order the same again?").await;
    assert_eq!(scene.orders().await, 1);
    browser.want(TEA, "3").await;
    browser.press().await;
    assert_ne!(browser.at_order().await, order);
    assert_eq!(scene.orders().await, 2);
}

#[tokio::test]
async fn the_form_read_anew_while_the_first_is_under_way_finds_it_by_the_script() {
    let (scene, browser) = tokio::join!(Scene::open(), Browser::start());
    browser.open(&scene.form()).await;
    browser.want(TEA, "1").await;
    let hold = scene.hold().await;
    browser.press().await;
    scene.until_decided("token", "accepted", 1).await;
    browser.reload().await;
    browser.at("/orders/attempts/").await;
    browser.sees("Your order is being placed").await;
    assert_eq!(scene.orders().await, 0);
    hold.release().await;
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn the_form_read_anew_while_the_first_is_under_way_and_sent_again_makes_one_order() {
    let (scene, browser) = tokio::join!(Scene::open(), Browser::start_with(false));
    browser.open(&scene.form()).await;
    browser.want(TEA, "1").await;
    let hold = scene.hold().await;
    browser.press().await;
    scene.until_decided("token", "accepted", 1).await;
    browser.open(&scene.form()).await;
    browser.want(TEA, "1").await;
    browser.press().await;
    scene.until_decided("token", "accepted", 2).await;
    hold.release().await;
    // The key of the first where its claim is written, which the lock on SQLite prevents; then it is a question.
    browser.until("an answer", "return !/orders.new$/.test(location.pathname)", &[]).await;
    let asked =
        "return document.body.innerText.includes('Order the same again?') || /Paid/.test(document.body.innerText)";
    browser.until("the order, or a question", asked, &[]).await;
    assert_eq!(scene.orders().await, 1);
}

/// Somebody whose answer was lost: the order stands, the network is away, and the tab shows that there is no page.
async fn answer_lost() -> (Scene, Browser) {
    let (scene, browser) = tokio::join!(Scene::open(), Browser::start_with(false));
    browser.open(&scene.form()).await;
    browser.want(TEA, "1").await;
    scene.wire.set(Fault::Swallow);
    browser.press().await;
    scene.until_orders(1).await;
    scene.wire.set(Fault::Refuse);
    browser.until("no page", "return location.protocol == 'chrome-error:'", &[]).await;
    (scene, browser)
}

#[tokio::test]
async fn a_tab_that_sends_its_post_once_more_shows_the_order() {
    let (scene, browser) = answer_lost().await;
    scene.wire.set(Fault::None);
    browser.reload().await;
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn a_tab_that_sends_its_post_once_more_without_cookies_shows_no_order_and_makes_none() {
    let (scene, browser) = answer_lost().await;
    browser.devtools("Network.clearBrowserCookies", json!({})).await;
    scene.wire.set(Fault::None);
    browser.reload().await;
    browser.sees("This form had expired").await;
    browser.sees("Nothing was ordered").await;
    let links = browser.ask("return [...document.links].map(link => link.pathname).join(' ')", &[]).await;
    assert!(!links.contains(&order_id(&scene).await), "{links}");
    assert_eq!(scene.orders().await, 1);
}

async fn order_id(scene: &Scene) -> String {
    scene.sql.text("SELECT CAST(id AS text) FROM orders").await
}

#[tokio::test]
async fn a_form_fetched_or_rendered_before_anybody_looks_at_it_makes_one_order() {
    for kind in ["prefetch", "prerender"] {
        let (scene, browser) = tokio::join!(Scene::open(), Browser::start());
        browser.open(&scene.url("/orders")).await;
        // The pages' own policy allows no such rules; a proxy or an extension may add them all the same.
        browser.devtools("Page.setBypassCSP", json!({ "enabled": true })).await;
        browser.reload().await;
        let rules = "const rules = document.createElement('script'); rules.type = 'speculationrules'; rules.textContent = \
                     JSON.stringify({ [arguments[0]]: [{ urls: ['/orders/new'], eagerness: 'immediate' }] }); \
                     document.body.append(rules)";
        browser.ask(rules, &[kind]).await;
        crate::scene::eventually("the form is fetched", async || scene.forms_shown().await == 1).await;
        browser.click("nav a[href='/orders/new']").await;
        browser.at("/orders/new").await;
        let used = "return performance.getEntriesByType('navigation')[0].deliveryType";
        assert_eq!(browser.ask(used, &[]).await, "navigational-prefetch", "{kind}");
        browser.want(TEA, "1").await;
        scene.slow_down();
        browser.press_quickly(2).await;
        browser.at_order().await;
        assert_eq!((scene.orders().await, scene.forms_shown().await), (1, 1), "{kind}");
    }
}

#[tokio::test]
async fn without_the_script_a_form_fetched_beforehand_makes_one_order() {
    let (scene, browser) = tokio::join!(Scene::open(), Browser::start_with(false));
    browser.open(&scene.url("/orders")).await;
    browser.devtools("Page.setBypassCSP", json!({ "enabled": true })).await;
    browser.reload().await;
    let link = "const link = document.createElement('link'); link.rel = 'prefetch'; link.href = '/orders/new'; \
                document.head.append(link)";
    browser.ask(link, &[]).await;
    crate::scene::eventually("the form is fetched", async || scene.forms_shown().await == 1).await;
    browser.click("nav a[href='/orders/new']").await;
    browser.at("/orders/new").await;
    browser.want(TEA, "1").await;
    scene.slow_down();
    browser.press_quickly(2).await;
    browser.at_order().await;
    assert_eq!(scene.orders().await, 1);
}
