//! `GET /activity`, against the real binary: the same numbers as `/metrics`, in bounds, for operators, and no secret.

use uuid::Uuid;

use crate::harness::client::{Pair, want};
use crate::harness::service::Service;
use crate::harness::site::Site;

const LAYERS: [(&str, &[&str]); 3] = [
    ("token", &["accepted", "spent", "unknown", "bypassed"]),
    ("key", &["claimed", "replayed", "in_progress", "mismatched", "taken_over", "lease_lost"]),
    ("constraint", &["inserted", "key_exists", "reference_exists"]),
];

async fn page(service: &Service) -> String {
    let answer = service.get_ops("/activity").await;
    assert_eq!(answer.status(), 200);
    answer.text().await.unwrap()
}

/// What stands between these two, each time.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    text.split(from).skip(1).map(|rest| rest.split(to).next().unwrap()).collect()
}

/// The part under a heading.
fn part<'a>(page: &'a str, id: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("<h2 id=\"{id}\">")).unwrap_or_else(|| panic!("no {id}: {page}"));
    rest.split("<h2").next().unwrap()
}

/// A row of the table of totals: in the last hour, and since the start.
fn totals(page: &str, decision: &str) -> (u64, u64) {
    let rows = between(part(page, "totals"), "<tr>", "</tr>");
    let row = rows.into_iter().find(|row| row.contains(&format!("<code>{decision}</code>"))).unwrap();
    let numbers: Vec<u64> = between(row, "<td class=\"number\">", "<").iter().map(|n| n.parse().unwrap()).collect();
    (numbers[0], numbers[1])
}

/// What the minutes say of a decision, added up: a minute may end while the test runs.
fn by_the_minute(page: &str, decision: &str) -> u64 {
    let told = between(part(page, "minutes"), "<td>", "</td>");
    let words = told.iter().flat_map(|cell| cell.split(", "));
    words.filter_map(|word| word.strip_prefix(decision)?.strip_prefix(' ')?.parse::<u64>().ok()).sum()
}

/// Makes every kind of decision that can be had without breaking anything.
async fn mix(site: &Site, service: &Service) {
    let (client, buyer, at) = (site.client("ann").await, site.buyer(), service.main);
    let mut wanted = want(&[("TEA", 1)]);
    wanted["reference"] = "number-1".into();
    for (key, wanted, status) in [
        ("first", &wanted, 201),
        ("first", &wanted, 201),
        ("first", &want(&[("TEA", 2)]), 422),
        ("second", &wanted, 409),
    ] {
        assert_eq!(client.order(at, key, wanted).await.status, status);
    }
    site.under.sql.run("DELETE FROM idempotency_records WHERE key = 'first'").await;
    assert!(client.order(at, "first", &wanted).await.replayed());
    let pair = buyer.form(at).await;
    for _ in 0..3 {
        assert_eq!(buyer.submit(at, &pair, "POT", 1).await.status, 303);
    }
    let forged = Pair { token: "forged".into(), ..buyer.form(at).await };
    assert_eq!(buyer.submit(at, &forged, "POT", 1).await.status, 409);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_tables_and_charts_say_what_metrics_says() {
    let site = Site::open(&[]).await;
    let service = site.start().await;
    let empty = page(&service).await;
    assert!(empty.contains("None so far.") && empty.contains("Nothing was decided in the last hour."), "{empty}");
    mix(&site, &service).await;
    let page = page(&service).await;
    for (layer, decisions) in LAYERS {
        let chart = between(&page, &format!("<desc id=\"{layer}-bars-desc\">"), "<")[0].to_owned();
        for decision in decisions {
            let counted = service.counted(layer, decision).await;
            assert_eq!(totals(&page, decision), (counted, counted), "{layer} {decision}");
            assert_eq!(by_the_minute(&page, decision), counted, "{layer} {decision}");
            let told = chart.split(", ").any(|told| told == format!("{decision} {counted}"));
            assert_eq!(told, counted > 0, "{layer} {decision}: {chart}");
        }
    }
    let made = ["accepted", "spent", "unknown", "claimed", "replayed", "mismatched", "key_exists", "reference_exists"];
    for decision in made {
        assert!(totals(&page, decision).1 > 0, "{decision} was made");
    }
    site.holds().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_events_name_what_was_stopped_and_hold_neither_token_nor_whole_key() {
    let site = Site::open(&[]).await;
    let service = site.start().await;
    let (client, buyer, key) = (site.client("shop-7").await, site.buyer(), Uuid::new_v4().to_string());
    for _ in 0..2 {
        assert_eq!(client.order(service.main, &key, &want(&[("TEA", 1)])).await.status, 201);
    }
    let pair = buyer.form(service.main).await;
    for _ in 0..2 {
        buyer.submit(service.main, &pair, "POT", 1).await;
    }
    let page = page(&service).await;
    for secret in [key.as_str(), &pair.key, &pair.token, client.token()] {
        assert!(!page.contains(secret) && !page.contains(&secret[..12]), "{page}");
    }
    let rows = between(part(&page, "events"), "<tr><th scope=\"row\">", "</tr>");
    let told = |words: &[&str]| rows.iter().filter(|row| words.iter().all(|word| row.contains(word))).count();
    assert_eq!(told(&["<td>key</td>", "replayed", "place_order", "account …", &key[..8]]), 1, "{rows:#?}");
    assert_eq!(told(&["<td>token</td>", "spent", "place_order", "visitor ", &pair.key[..8]]), 1, "{rows:#?}");
    assert_eq!(told(&["accepted"]) + told(&["claimed"]) + told(&["inserted"]), 0, "what goes through is no event");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_many_are_stopped_a_hundred_events_are_kept_and_all_are_counted() {
    let site = Site::open(&[]).await;
    let service = site.start().await;
    let client = site.client("ann").await;
    for _ in 0..=130 {
        assert_eq!(client.order(service.main, "one", &want(&[("TEA", 1)])).await.status, 201);
    }
    let page = page(&service).await;
    assert_eq!(between(part(&page, "events"), "<tr><th scope=\"row\">", "</tr>").len(), 100);
    assert_eq!(totals(&page, "replayed").1, 130);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_for_operators_only_and_runs_and_loads_nothing() {
    let site = Site::open(&[]).await;
    let service = site.start().await;
    assert_eq!(service.get("/activity").await.status(), 404);
    let answer = service.get_ops("/activity").await;
    let header = |name: &str| answer.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    let policy = header("content-security-policy");
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe") && !policy.contains("script"));
    assert_eq!((header("cache-control"), header("refresh")), ("no-store".into(), String::new()));
    let page = answer.text().await.unwrap();
    for forbidden in ["<script", " style=", "<style", "javascript:", "://"] {
        assert!(!page.contains(forbidden), "{forbidden}: {page}");
    }
    assert!(page.contains("href=\"/metrics\"") && page.contains("this instance"));
    for file in between(&page, "rel=\"stylesheet\" href=\"", "\"") {
        let style = service.get_ops(file).await;
        assert_eq!((style.status().as_u16(), &style.headers()["content-type"]), (200, &"text/css".parse().unwrap()));
    }
    let refreshing = service.get_ops("/activity?refresh=on").await;
    assert_eq!(refreshing.headers()["refresh"], "10");
    assert!(refreshing.text().await.unwrap().contains("Stop that"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_chart_has_a_title_and_a_text_and_every_table_its_headers() {
    let site = Site::open(&[]).await;
    let service = site.start().await;
    mix(&site, &service).await;
    let page = page(&service).await;
    let charts = between(&page, "<svg ", "</svg>");
    assert_eq!(charts.len(), 6);
    for chart in charts {
        let labels = between(chart, "aria-labelledby=\"", "\"")[0];
        assert!(chart.contains("role=\"img\""));
        for id in labels.split(' ') {
            assert!(chart.contains(&format!("id=\"{id}\"")), "{id}: {chart}");
        }
    }
    for table in between(&page, "<table", "</table>") {
        assert!(table.contains("<caption") && !table.contains("<th>"), "{table}");
    }
    let ids = between(&page, " id=\"", "\"");
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(ids.len(), distinct.len(), "{ids:?}");
}
