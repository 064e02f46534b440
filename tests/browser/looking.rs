//! How the pages look: each shown once to `eyes`. Those of orders that wait for their payment are in `paying`.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::eyes::look;
use crate::harness::proxy::Fault;
use crate::scene::{CUP, Scene, TEA};

async fn at_the_form() -> (Scene, Browser) {
    let (scene, browser) = tokio::join!(Scene::open(), Browser::start());
    browser.open(&scene.form()).await;
    (scene, browser)
}

#[tokio::test]
async fn the_form_empty_filled_and_to_be_corrected() {
    let (scene, browser) = at_the_form().await;
    look(&browser, "form").await;
    browser.want(TEA, "2").await;
    browser.want(CUP, "1").await;
    browser.fill("note", "Please leave it with the neighbours.").await;
    look(&browser, "form-filled").await;
    browser.want(CUP, "one").await;
    browser.press().await;
    browser.sees("Something needs to be corrected").await;
    look(&browser, "form-to-correct").await;
    assert_eq!(scene.orders().await, 0);
}

#[tokio::test]
async fn the_form_while_it_is_sent_tried_again_and_stopped() {
    let (scene, browser) = at_the_form().await;
    browser.want(TEA, "2").await;
    scene.wire.set(Fault::Swallow);
    browser.press().await;
    browser.sees("Your order is being placed").await;
    look(&browser, "form-sending").await;
    scene.wire.set(Fault::Refuse);
    browser.sees("Still trying").await;
    look(&browser, "form-trying").await;
    browser.click(".stop").await;
    browser.sees("Stopped").await;
    look(&browser, "form-stopped").await;
    browser.press().await;
    let given_up = "dispatchEvent(new Event('online')); \
                    return document.querySelector('.progress').dataset.state == 'failed'";
    browser.until("it gives up", given_up, &[]).await;
    look(&browser, "form-failed").await;
    scene.until_orders(1).await;
}

#[tokio::test]
async fn an_order_the_list_and_the_pages_of_a_form_that_was_used() {
    let (scene, browser) = at_the_form().await;
    browser.open(&scene.url("/orders")).await;
    browser.sees("You have not ordered anything yet").await;
    look(&browser, "list-empty").await;
    browser.open(&scene.form()).await;
    browser.want(TEA, "2").await;
    browser.want(CUP, "1").await;
    browser.fill("note", "Please leave it with the neighbours.\nThank you.").await;
    let take = "return document.querySelector('[name=idempotency_key]').value";
    let key = browser.ask(take, &[]).await;
    browser.press().await;
    browser.at_order().await;
    look(&browser, "order").await;

    browser.open(&scene.form()).await;
    browser.want(TEA, "2").await;
    browser.want(CUP, "1").await;
    browser.fill("note", "Please leave it with the neighbours.\nThank you.").await;
    browser.press().await;
    browser.sees("Order the same again?").await;
    look(&browser, "form-asked").await;
    browser.press().await;
    browser.at_order().await;

    send_as(&scene, &browser, &key, TEA).await;
    browser.sees("This form was already used").await;
    look(&browser, "form-used").await;
    browser.open(&scene.url("/orders")).await;
    look(&browser, "list").await;
    assert_eq!(scene.orders().await, 2);
}

/// Sends one of these under a key of the test's choosing.
async fn send_as(scene: &Scene, browser: &Browser, key: &str, sku: &str) {
    browser.open(&scene.form()).await;
    browser.want(sku, "1").await;
    browser.ask("document.querySelector('[name=idempotency_key]').value = arguments[0]", &[key]).await;
    browser.press().await;
}

#[tokio::test]
async fn an_order_under_way_one_that_came_to_nothing_and_the_pages_of_their_forms() {
    let (scene, browser) = at_the_form().await;
    browser.want(TEA, "1").await;
    browser.press().await;
    browser.at_order().await;
    // As if a claim of the key `mine` had not come to its end yet.
    let under_way = "UPDATE idempotency_records SET key = 'mine', status = 'processing', order_id = NULL, \
                     lease_expires_at = expires_at";
    scene.sql.run(under_way).await;
    browser.open(&scene.url("/orders/attempts/mine")).await;
    browser.sees("Your order is being placed").await;
    look(&browser, "waiting").await;
    send_as(&scene, &browser, "mine", CUP).await;
    browser.sees("Your first order is still being placed").await;
    look(&browser, "form-of-one-under-way").await;
    scene.sql.run("UPDATE idempotency_records SET lease_expires_at = created_at").await;
    browser.open(&scene.url("/orders/attempts/mine")).await;
    browser.sees("Your order was interrupted").await;
    look(&browser, "form-interrupted").await;
    assert_eq!(scene.orders().await, 1);
}

#[tokio::test]
async fn pages_that_only_say_that_something_cannot_be_done() {
    let (scene, browser) = at_the_form().await;
    for (path, words, name) in [
        ("/nowhere", "Not found", "not-found"),
        ("/orders?cursor=x", "No such page", "no-such-page"),
        ("/orders/x/cancel", "This cannot be done here", "not-done-here"),
    ] {
        browser.open(&scene.url(path)).await;
        browser.sees(words).await;
        look(&browser, name).await;
    }
    // A page of nobody's, whose form would order in the visitor's name.
    let form = format!("<form method=post action={}><button>Win</button></form>", scene.url("/orders"));
    browser.open(&format!("data:text/html,{form}")).await;
    browser.click("button").await;
    browser.sees("Sent from another site").await;
    look(&browser, "foreign").await;
    assert_eq!(scene.orders().await, 0);
}

#[tokio::test]
async fn refusals_an_expired_form_a_shop_that_does_not_answer_and_a_page_that_is_not_there() {
    let (scene, browser) = at_the_form().await;
    browser.want("LAMP-LIMITED", "6").await;
    browser.press().await;
    browser.sees("Not everything is in stock").await;
    look(&browser, "form-out-of-stock").await;
    browser.want("LAMP-LIMITED", "5").await;
    browser.want("KETTLE-1L", "2").await;
    browser.press().await;
    browser.sees("Your balance is too low").await;
    look(&browser, "form-too-dear").await;
    // The catalogue may change while a form is open.
    browser.want("LAMP-LIMITED", "").await;
    browser.want("KETTLE-1L", "").await;
    browser.want(TEA, "1").await;
    let gone = "document.querySelector('[name=\"quantity[TEA-SENCHA]\"]').name = 'quantity[TEA-GONE]'";
    browser.ask(gone, &[]).await;
    browser.press().await;
    browser.sees("Not everything is sold here").await;
    look(&browser, "form-not-sold").await;
    browser.devtools("Network.clearBrowserCookies", json!({})).await;
    browser.press().await;
    browser.sees("This form had expired").await;
    look(&browser, "form-expired").await;
    assert_eq!(scene.orders().await, 0);

    // Its deadlines follow from the lease: it gives up on the lock after one and a half seconds.
    let slow = Scene::open_with(&[("ONCEGATE_LEASE", "3s")]).await;
    browser.open(&slow.form()).await;
    browser.want(TEA, "1").await;
    let hold = slow.hold().await;
    browser.ask("document.querySelector('form.order').submit()", &[]).await; // as without the script
    browser.sees("The shop is not answering just now").await;
    look(&browser, "form-later").await;
    hold.release().await;
    assert_eq!(slow.orders().await, 0);
}

#[tokio::test]
async fn all_that_a_page_needs_is_small() {
    const KILOBYTE: usize = 1024;
    let (scene, browser) = at_the_form().await;
    let sizes = "return performance.getEntries().filter((entry) => entry.decodedBodySize).map((entry) => entry.decodedBodySize)";
    browser.reload().await;
    let Value::Array(sizes) = serde_json::from_str(&browser.ask(sizes, &[]).await).unwrap() else { panic!("a list") };
    assert!(sizes.len() >= 3, "the page, its sheet, its script: {sizes:?}");
    let total: u64 = sizes.iter().map(|size| size.as_u64().unwrap()).sum();
    assert!(usize::try_from(total).unwrap() < 60 * KILOBYTE, "{sizes:?}");
    assert_eq!(scene.orders().await, 0);
}
