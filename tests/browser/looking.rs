//! How the pages look, to eyes and to axe-core: each in three lights, kept as pictures in `target/screenshots`.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::harness::proxy::Fault;
use crate::scene::{CUP, Scene, TEA};

/// What a page is looked at with: name, width, height, device pixels for one of CSS, colour scheme.
const LIGHTS: [(&str, u32, u32, u32, &str); 4] = [
    ("desktop", 1280, 900, 1, "light"),
    ("dark", 1280, 900, 1, "dark"),
    ("phone", 390, 844, 2, "light"),
    ("phone-dark", 390, 844, 2, "dark"),
];

/// Axe with its usual rules; answers the broken ones and where.
const AXE: &str = "const done = arguments[arguments.length - 1]; \
    axe.run(document, { resultTypes: ['violations'] }).then(\
        (found) => done(found.violations.map((rule) => [rule.id, rule.help, ...rule.nodes.map((node) => node.html)])), \
        (error) => done(String(error)))";

fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target")
}

/// The checker's text: `AXE_CORE`, or what `scripts/test` has fetched before.
fn axe() -> String {
    let fetched = || {
        let folders = fs::read_dir(target()).unwrap().map(|entry| entry.unwrap().path());
        let mut files = folders.map(|folder| folder.join("axe.min.js"));
        files.find(|file| file.exists()).expect("scripts/test fetches axe-core")
    };
    fs::read_to_string(std::env::var_os("AXE_CORE").map_or_else(fetched, PathBuf::from)).unwrap()
}

/// Takes the pictures of what is shown now, and lets axe look at it.
async fn look(browser: &Browser, name: &str) {
    let pictures = target().join("screenshots");
    fs::create_dir_all(&pictures).unwrap();
    for (light, width, height, scale, scheme) in LIGHTS {
        let screen = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 500 });
        browser.devtools("Emulation.setDeviceMetricsOverride", screen).await;
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.devtools("Emulation.setEmulatedMedia", features).await;
        let wide = "return document.documentElement.clientWidth == arguments[0] * 1";
        browser.until("the screen has its size", wide, &[&width.to_string()]).await;
        let overflow = browser.ask("return document.documentElement.scrollWidth - innerWidth", &[]).await;
        assert!(overflow.parse::<i64>().unwrap() <= 0, "{name} on {light} is {overflow} pixels too wide");

        let whole = json!({ "format": "png", "captureBeyondViewport": true });
        let picture = browser.devtools("Page.captureScreenshot", whole).await;
        let picture = BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        fs::write(pictures.join(format!("{name}-{light}.png")), picture).unwrap();

        browser.ask(&format!("if (!window.axe) {{ {} }}", axe()), &[]).await;
        assert_eq!(browser.run_later(AXE).await, json!([]), "{name} on {light}");
    }
    browser.devtools("Emulation.clearDeviceMetricsOverride", json!({})).await;
    browser.devtools("Emulation.setEmulatedMedia", json!({ "features": [] })).await;
}

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
    scene.wire.set(Fault::Stall);
    browser.press().await;
    browser.sees("Your order is being placed").await;
    look(&browser, "form-sending").await;
    scene.wire.set(Fault::Refuse);
    browser.sees("Still trying").await;
    look(&browser, "form-trying").await;
    browser.click(".stop").await;
    browser.sees("Stopped").await;
    look(&browser, "form-stopped").await;
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

    browser.open(&scene.form()).await;
    browser.want(TEA, "1").await;
    browser.ask("document.querySelector('[name=idempotency_key]').value = arguments[0]", &[&key]).await;
    browser.press().await;
    browser.sees("This form was already used").await;
    look(&browser, "form-used").await;
    browser.open(&scene.url("/orders")).await;
    look(&browser, "list").await;
    assert_eq!(scene.orders().await, 2);

    scene.sql.run("UPDATE idempotency_records SET status = 'processing', lease_expires_at = expires_at").await;
    browser.open(&scene.url(&format!("/orders/attempts/{key}"))).await;
    browser.sees("Your order is being placed").await;
    look(&browser, "waiting").await;
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
    browser.devtools("Network.clearBrowserCookies", json!({})).await;
    browser.press().await;
    browser.sees("This form had expired").await;
    look(&browser, "form-expired").await;
    browser.open(&scene.url("/nowhere")).await;
    look(&browser, "not-found").await;
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
