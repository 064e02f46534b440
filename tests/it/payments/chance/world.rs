//! The shop of one history, and what its buyers remember of it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::super::Shop;
use super::plan::{Ask, Plan};
use crate::harness::client::{Buyer, Client, Seen};
use crate::harness::service::Service;

/// Short, so that what was left lying is soon taken up; the sweepers come often.
const SETTINGS: &[(&str, &str)] = &[
    ("ONCEGATE_LEASE", "2s"),
    ("ONCEGATE_SWEEP_INTERVAL", "300ms"),
    ("ONCEGATE_PAYMENT_WINDOW", "10m"),
    ("ONCEGATE_FORM_WAIT", "200ms"),
    ("ONCEGATE_LOG", "info,oncegate=debug"),
];

/// Everything.
pub struct World {
    pub shop: Shop,
    pub anna: Client,
    pub buyer: Buyer,
    pub operator: Client,
    services: tokio::sync::Mutex<Vec<Service>>,
    at: Mutex<Vec<SocketAddr>>,
    turn: AtomicUsize,
    losing: AtomicBool,
    pub intents: Mutex<Vec<Intent>>,
    /// The definite answers to requests of the API, by what was asked: they are replayed byte for byte.
    told: Mutex<HashMap<String, Seen>>,
    story: Mutex<Vec<String>>,
}

/// A wish to order, and what is known of it.
#[derive(Clone, Debug)]
pub struct Intent {
    pub key: String,
    /// As it was first sent.
    pub ask: Ask,
    /// Of its form.
    pub token: String,
    /// The order it became, and with which content.
    pub became: Option<(String, Ask)>,
    /// How often it was wished to pay it, and to call it off.
    pub wishes: [u32; 2],
}

impl Intent {
    /// What a repeat sends.
    pub fn content(&self) -> Ask {
        self.became.as_ref().map_or(self.ask, |(_, ask)| *ask)
    }
}

impl World {
    pub async fn open(plan: &Plan) -> Self {
        let flags = plan.provider.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let shop = Shop::open(&flags, SETTINGS).await;
        let mut services = vec![shop.start().await];
        if plan.two {
            services.push(shop.site.start().await);
        }
        let at = services.iter().map(|service| service.main).collect();
        let (anna, operator) = tokio::join!(shop.site.client("anna"), shop.site.operator());
        // Two tabs that a browser opens before it has a cookie are two visitors.
        let buyer = shop.site.buyer();
        buyer.form(services[0].main).await;
        Self {
            anna,
            operator,
            buyer,
            shop,
            services: services.into(),
            at: Mutex::new(at),
            turn: AtomicUsize::new(0),
            losing: AtomicBool::new(false),
            intents: Mutex::default(),
            told: Mutex::default(),
            story: Mutex::default(),
        }
    }

    /// One process after the other.
    pub fn at(&self) -> SocketAddr {
        let at = self.at.lock().unwrap();
        at[self.turn.fetch_add(1, Ordering::Relaxed) % at.len()]
    }

    /// The process that browsers meet: always the same where processes do not share their tokens.
    pub fn front(&self) -> SocketAddr {
        if self.shop.site.shares_tokens() { self.at() } else { self.at.lock().unwrap()[0] }
    }

    /// `kill -9`, and another takes its place.
    pub async fn kill_one(&self) {
        let mut services = self.services.lock().await;
        let killed = services.remove(0);
        killed.signal(Signal::SIGKILL);
        let (_, log) = killed.end().await;
        self.story.lock().unwrap().extend(log);
        self.says("--- killed".to_owned());
        let new = self.shop.site.start().await;
        services.push(new);
        *self.at.lock().unwrap() = services.iter().map(|service| service.main).collect();
        self.lose(self.losing.load(Ordering::Relaxed));
    }

    /// Whether callbacks are lost from now on.
    pub fn lose(&self, losing: bool) {
        self.losing.store(losing, Ordering::Relaxed);
        if losing {
            self.shop.till.courier.hold();
        } else {
            self.shop.till.courier.bring_to(self.at());
        }
    }

    /// One of the intents.
    pub fn intent(&self, n: u8) -> Option<(usize, Intent)> {
        let intents = self.intents.lock().unwrap();
        let at = usize::from(n).checked_rem(intents.len())?;
        Some((at, intents[at].clone()))
    }

    /// The intent under this key, be it a new one: a form that is opened while another is under way has that one's key.
    pub fn intend(&self, key: &str, token: &str, ask: Ask) -> usize {
        let mut intents = self.intents.lock().unwrap();
        if let Some(known) = intents.iter().position(|intent| intent.ask.form == ask.form && intent.key == key) {
            return known;
        }
        intents.push(Intent { key: key.into(), ask, token: token.into(), became: None, wishes: [0; 2] });
        intents.len() - 1
    }

    /// An order was named as what this intent has become, asked for like this.
    pub fn became(&self, at: usize, order: &str, ask: Ask) {
        let mut intents = self.intents.lock().unwrap();
        let now = (order.to_owned(), ask);
        let known = intents[at].became.get_or_insert_with(|| now.clone());
        assert_eq!(*known, now, "one intent, one order");
    }

    /// A definite answer: the same as the last time.
    pub fn told(&self, asked: String, seen: &Seen) {
        let mut told = self.told.lock().unwrap();
        let first = told.entry(asked).or_insert_with_key(|_| seen.clone());
        assert!(seen.same_as(first), "another answer: {seen:?}\nthe first was {first:?}");
    }

    /// Every answer that was kept expires.
    pub async fn forget(&self) {
        let sql = &self.shop.site.under.sql;
        let over = sql.moment(-1);
        sql.run(&format!("UPDATE idempotency_records SET expires_at = {over} WHERE status = 'done'")).await;
        // For so long a process may go on giving an answer that it has given a moment ago.
        tokio::time::sleep(Duration::from_millis(250)).await;
        self.told.lock().unwrap().clear();
    }

    pub fn says(&self, line: String) {
        self.story.lock().unwrap().push(line);
    }

    /// Everything that was said, for whoever has to find out what went wrong.
    pub async fn story(&self) -> String {
        for service in self.services.lock().await.iter_mut() {
            service.has_said("-");
            self.says(format!("--- log of {}", service.main));
            self.story.lock().unwrap().append(&mut service.log);
        }
        let log = self.shop.till.log().await;
        format!("{}\n{:#?}\n{log:#?}", self.story.lock().unwrap().join("\n"), self.intents.lock().unwrap())
    }
}
