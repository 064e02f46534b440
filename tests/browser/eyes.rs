//! What looks at a page: axe-core, and a camera whose pictures are kept in `target/screenshots`, in four lights.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use crate::browser::Browser;

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
pub async fn look(browser: &Browser, name: &str) {
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
