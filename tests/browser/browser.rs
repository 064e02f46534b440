//! A person at a browser: real clicks and keys, and eyes that wait until something is there.
//!
//! Pages are not waited for by the driver (`pageLoadStrategy: none`), because many tests look at what is seen while an
//! answer is still under way. What a script asks here is asked through the driver, which works with scripts switched off.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use axum::http::Method;
use fantoccini::actions::{InputSource, KeyAction, KeyActions, MOUSE_BUTTON_LEFT, MouseActions, PointerAction};
use fantoccini::elements::Element;
use fantoccini::error::CmdError;
use fantoccini::key::Key;
use fantoccini::wd::{WebDriverCompatibleCommand, WindowHandle};
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use crate::chromedriver::Chromedriver;

/// Longer than anything that is waited for takes, also on a starved machine.
pub const PATIENCE: Duration = Duration::from_secs(45);
/// Pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Between the two clicks of a double click: a quick hand, and long enough for the browser to have sent the first.
const BETWEEN_CLICKS: Duration = Duration::from_millis(100);

const ARGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--lang=en-US",
    "--window-size=1280,900",
];

/// The form's button.
pub const BUTTON: &str = "form.order [type=submit]";

/// One browser with a profile of its own.
pub struct Browser {
    client: Client,
    _driver: Chromedriver,
    _profile: TempDir,
}

impl Browser {
    pub async fn start() -> Self {
        Self::start_with(true).await
    }

    /// With scripts switched off in the browser's settings, unless `scripts`.
    pub async fn start_with(scripts: bool) -> Self {
        let (driver, profile) = (Chromedriver::start().await, TempDir::new().unwrap());
        let mut args: Vec<_> = ARGS.iter().map(|&arg| arg.to_owned()).collect();
        args.push(format!("--user-data-dir={}", profile.path().display()));
        let allowed = if scripts { 1 } else { 2 };
        let prefs = json!({ "profile.default_content_setting_values.javascript": allowed });
        let Value::Object(wanted) =
            json!({ "pageLoadStrategy": "none", "goog:chromeOptions": { "args": args, "prefs": prefs } })
        else {
            unreachable!("an object")
        };
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let client = builder.capabilities(wanted).connect(&driver.url()).await.expect("chromium starts");
        Self { client, _driver: driver, _profile: profile }
    }

    // --- going somewhere ---

    /// Types an address.
    pub async fn open(&self, url: &str) {
        self.leave(self.client.goto(url)).await;
    }

    /// F5.
    pub async fn reload(&self) {
        self.leave(self.client.refresh()).await;
    }

    /// The Back button.
    pub async fn back(&self) {
        self.leave(self.client.back()).await;
    }

    /// Waits until another document, or this one read anew, is complete.
    async fn leave(&self, going: impl Future<Output = Result<(), CmdError>>) {
        let mark = Uuid::new_v4().to_string();
        self.run("window.left = arguments[0]", &[&mark]).await;
        going.await.unwrap();
        let arrived = "return document.readyState == 'complete' && window.left != arguments[0]";
        self.until("the page is there", arrived, &[&mark]).await;
    }

    /// Opens another tab and turns to it; answers the one before.
    pub async fn new_tab(&self) -> WindowHandle {
        let tab = self.client.new_window(true).await.unwrap();
        self.turn_to(tab.handle).await
    }

    /// Turns to a tab; answers the one that was in front.
    pub async fn turn_to(&self, tab: WindowHandle) -> WindowHandle {
        let before = self.client.window().await.unwrap();
        self.client.switch_to_window(tab).await.unwrap();
        before
    }

    // --- hands ---

    /// Types into a field in place of what is there.
    pub async fn fill(&self, field: &str, text: &str) {
        let field = self.find(&named(field)).await;
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    /// Types so many of a product.
    pub async fn want(&self, sku: &str, quantity: &str) {
        self.fill(&format!("quantity[{sku}]"), quantity).await;
    }

    /// Clicks on something.
    pub async fn click(&self, css: &str) {
        self.find(css).await.click().await.unwrap();
    }

    /// Presses the form's button.
    pub async fn press(&self) {
        self.click(BUTTON).await;
    }

    /// Presses it several times in a row, as fast as a hand can.
    pub async fn press_quickly(&self, times: usize) {
        self.press_quickly_on(BUTTON, times).await;
    }

    /// The same on another button.
    pub async fn press_quickly_on(&self, css: &str, times: usize) {
        let over = self.over(&self.find(css).await).await;
        let clicks = (0..times).fold(over, |mouse, _| click_of(mouse).pause(BETWEEN_CLICKS));
        self.client.perform_actions(clicks).await.unwrap();
    }

    /// Presses Enter in a field, and the button right after.
    pub async fn enter_and_press(&self, field: &str) {
        self.click(&named(field)).await;
        let (enter, tick) = (char::from(Key::Enter), Duration::ZERO);
        let mouse = self.over(&self.find(BUTTON).await).await.pause(tick).pause(BETWEEN_CLICKS);
        let keys = KeyActions::new("keys".into()).pause(tick);
        let keys = keys.then(KeyAction::Down { value: enter }).then(KeyAction::Up { value: enter });
        let both = fantoccini::actions::Actions::from(keys).and(click_of(mouse));
        self.client.perform_actions(both).await.unwrap();
    }

    /// Presses the Tab key until something has the focus.
    pub async fn tab_to(&self, css: &str) {
        const KEYS: usize = 50;
        for _ in 0..KEYS {
            self.type_keys("\u{E004}").await;
            if self.run("return document.activeElement.matches(arguments[0])", &[css]).await == Value::Bool(true) {
                return;
            }
        }
        panic!("{css} cannot be reached");
    }

    /// Types, wherever the focus is.
    pub async fn type_keys(&self, text: &str) {
        self.client.active_element().await.unwrap().send_keys(text).await.unwrap();
    }

    async fn over(&self, element: &Element) -> MouseActions {
        self.client.execute("arguments[0].scrollIntoView({ block: 'center' })", vec![json!(element)]).await.unwrap();
        let (element, duration) = (element.clone(), Some(Duration::ZERO));
        MouseActions::new("mouse".into()).then(PointerAction::MoveToElement { element, duration, x: 0.0, y: 0.0 })
    }

    // --- eyes ---

    /// Waits until these words are on the page, however they are spaced and broken into lines.
    pub async fn sees(&self, words: &str) {
        let there = "return document.body.innerText.replace(/\\s+/g, ' ').includes(arguments[0])";
        self.until(words, there, &[words]).await;
    }

    /// Waits until a page of this address has come, or of one that begins with it; answers its path.
    pub async fn at(&self, start: &str) -> String {
        let there = "return location.pathname.startsWith(arguments[0]) && document.readyState == 'complete'";
        self.until(start, there, &[start]).await;
        self.ask("return location.pathname", &[]).await
    }

    /// Waits until the page of an order has come, with what was ordered; answers its path.
    pub async fn at_order(&self) -> String {
        let there = "return /^.orders.[0-9a-f-]{36}$/.test(location.pathname) && document.readyState == 'complete'";
        self.until("the page of an order", there, &[]).await;
        self.sees("Paid").await;
        self.ask("return location.pathname", &[]).await
    }

    /// What became of a form: "Paid", or the question whether the same is wanted again.
    pub async fn outcome(&self) -> String {
        const TOLD: &str = "const told = document.body.innerText.match(/Paid|Order the same again\\?/)?.[0];";
        self.until("an order or a question", &format!("{TOLD} return !!told"), &[]).await;
        self.ask(&format!("{TOLD} return told"), &[]).await
    }

    /// Waits until something is there and shown.
    pub async fn finds(&self, css: &str) {
        self.until(css, "return !!document.querySelector(arguments[0])?.checkVisibility()", &[css]).await;
    }

    /// What is in a field.
    pub async fn value(&self, field: &str) -> String {
        self.find(&named(field)).await.prop("value").await.unwrap().unwrap_or_default()
    }

    /// What a script answers, as text.
    pub async fn ask(&self, script: &str, args: &[&str]) -> String {
        let answer = self.run(script, args).await;
        answer.as_str().map_or_else(|| answer.to_string(), str::to_owned)
    }

    /// Waits until a script answers true.
    pub async fn until(&self, what: &str, script: &str, args: &[&str]) {
        let begun = Instant::now();
        let args: Vec<Value> = args.iter().map(|&arg| arg.into()).collect();
        // An error is no answer: the document may be about to go.
        while self.client.execute(script, args.clone()).await.ok() != Some(Value::Bool(true)) {
            if begun.elapsed() > PATIENCE {
                let shown = self.client.execute("return location + '\\n' + document.body.innerText", vec![]).await;
                panic!("waited in vain: {what}; instead: {shown:?}");
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn find(&self, css: &str) -> Element {
        let wait = self.client.wait().at_most(PATIENCE).every(LOOK_AGAIN);
        wait.for_element(Locator::Css(css)).await.unwrap_or_else(|error| panic!("{css}: {error}"))
    }

    async fn run(&self, script: &str, args: &[&str]) -> Value {
        let args = args.iter().map(|&arg| arg.into()).collect();
        self.client.execute(script, args).await.unwrap()
    }

    /// Calls back with what an asynchronous script hands to its last argument.
    pub async fn run_later(&self, script: &str) -> Value {
        self.client.execute_async(script, vec![]).await.unwrap()
    }

    /// Chromium's own protocol, for what WebDriver does not know.
    pub async fn devtools(&self, command: &'static str, params: Value) -> Value {
        self.client.issue_cmd(Devtools { command, params }).await.unwrap()
    }
}

fn named(field: &str) -> String {
    format!("[name=\"{field}\"]")
}

fn click_of(mouse: MouseActions) -> MouseActions {
    mouse.then(PointerAction::Down { button: MOUSE_BUTTON_LEFT }).then(PointerAction::Up { button: MOUSE_BUTTON_LEFT })
}

#[derive(Debug)]
struct Devtools {
    command: &'static str,
    params: Value,
}

impl WebDriverCompatibleCommand for Devtools {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("/session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (Method, Option<String>) {
        (Method::POST, Some(json!({ "cmd": self.command, "params": self.params }).to_string()))
    }
}
