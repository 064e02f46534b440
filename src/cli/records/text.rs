//! Records in words. Every span is by the database's clock, which alone judges leases.

use std::time::Duration;

use time::OffsetDateTime;
use time::macros::format_description;

use crate::order::life::Life;
use crate::order::{PaymentStatus, Status};
use crate::store::{RecordStatus, RecordStory};

/// One line each, for a first look.
pub(super) fn table(records: &[RecordStory]) -> String {
    if records.is_empty() {
        return "no such records".to_owned();
    }
    let head = ["STATUS", "AGE", "LEASE", "EPOCH", "OPERATION", "ACCOUNT", "ANSWER", "KEY"].map(str::to_owned);
    let rows: Vec<[String; 8]> = std::iter::once(head).chain(records.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..8).map(width).collect();
    let line = |row: &[String; 8]| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn row(record: &RecordStory) -> [String; 8] {
    let lease = match record.status {
        RecordStatus::Processing if record.lease_expires_at > record.seen_at => {
            format!("{} left", span(record.seen_at, record.lease_expires_at))
        }
        RecordStatus::Processing => format!("over for {}", span(record.lease_expires_at, record.seen_at)),
        RecordStatus::Done => "-".to_owned(),
    };
    [
        record.status.as_str().to_owned(),
        span(record.created_at, record.seen_at),
        lease,
        record.epoch.to_string(),
        record.operation.clone(),
        account(record),
        record.response_status.map_or_else(|| "-".to_owned(), |status| status.to_string()),
        record.key.clone(),
    ]
}

/// All about one record.
pub(super) fn story(record: &RecordStory, order: Option<&Life>) -> String {
    let mut lines = vec![
        fact("key", &record.key),
        fact("account", &account(record)),
        fact("operation", &record.operation),
        fact("content", &record.fingerprint),
        fact("status", &status(record)),
        fact("claimed", &format!("{}; {}", ago(record.created_at, record), claims(record.epoch))),
        fact("lease", &lease(record)),
        fact("answer", &answer(record)),
        fact("expires", &expiry(record)),
    ];
    lines.extend(order_lines(record, order));
    lines.push(fact("repeats", &repeats(record)));
    lines.push(fact("to do", advice(record, order)));
    lines.join("\n") + "\n"
}

/// What a release has done.
pub(super) fn released(record: &RecordStory) -> String {
    format!(
        "{} {} of {}: released; the next retry takes over as claim {}. A worker that still holds claim {} may finish first: \
         only one of them can.",
        record.operation,
        record.key,
        account(record),
        record.epoch + 1,
        record.epoch
    )
}

fn fact(name: &str, value: &str) -> String {
    format!("{name:<10} {value}")
}

fn account(record: &RecordStory) -> String {
    record.subject.clone().unwrap_or_else(|| format!("{} (gone)", record.account))
}

fn status(record: &RecordStory) -> String {
    let expired = if record.expires_at <= record.seen_at { ", expired" } else { "" };
    format!("{}{expired}", record.status.as_str())
}

fn claims(epoch: i64) -> String {
    match epoch {
        1 => "claim 1, the first".to_owned(),
        n => format!("claim {n}: the earlier ones were given up or their leases ran out"),
    }
}

fn lease(record: &RecordStory) -> String {
    let until = clock(record.lease_expires_at);
    if record.status == RecordStatus::Done {
        "none: it is done".to_owned()
    } else if record.lease_expires_at > record.seen_at {
        format!("runs until {until}, for another {}", span(record.seen_at, record.lease_expires_at))
    } else {
        format!("over since {until}, for {}", span(record.lease_expires_at, record.seen_at))
    }
}

fn answer(record: &RecordStory) -> String {
    let Some(status) = record.response_status else { return "none yet".to_owned() };
    let location = record.response_location.as_deref().map(|to| format!(", Location {to}")).unwrap_or_default();
    let size = record.response_body.as_ref().map_or(0, |body| body.len());
    let at = record.completed_at.map(|at| format!(", {}", ago(at, record))).unwrap_or_default();
    format!("{status}{location}, {size} bytes{at}")
}

fn expiry(record: &RecordStory) -> String {
    let at = clock(record.expires_at);
    if record.expires_at > record.seen_at {
        format!("{at}, in {}", span(record.seen_at, record.expires_at))
    } else {
        format!("{at}, {} ago: the next sweep takes it away", span(record.expires_at, record.seen_at))
    }
}

fn order_lines(record: &RecordStory, order: Option<&Life>) -> Vec<String> {
    let Some(life) = order else {
        let none = if record.operation == "place_order" { "none stands under this key" } else { "none is named" };
        return vec![fact("order", none)];
    };
    let order = &life.order;
    let mut lines = vec![
        fact("order", &format!("{}, {}", order.id, order.status.as_str())),
        fact("total", &format!("{} {} (minor units)", order.total, order.currency)),
    ];
    for attempt in &life.attempts {
        let provider = attempt.provider_id.as_deref().map(|id| format!(", {id} at the provider")).unwrap_or_default();
        let (method, status) = (attempt.method.as_str(), attempt.status.as_str());
        lines.push(fact("payment", &format!("attempt {}, {method}: {status}{provider}", attempt.number)));
    }
    lines.push(fact("coupon", order.coupon.as_deref().unwrap_or("none")));
    lines
}

/// Where it is told what stopped each of them: to keep it here, a repeat would have to write.
fn repeats(record: &RecordStory) -> String {
    format!(
        "in the log of a process with ONCEGATE_LOG=info,oncegate::guard=debug, as decisions about key={}",
        record.key
    )
}

fn advice(record: &RecordStory, order: Option<&Life>) -> &'static str {
    let in_doubt = |life: &Life| {
        life.order.status == Status::Pending
            && life
                .attempts
                .iter()
                .any(|attempt| attempt.status.in_flight() || attempt.status == PaymentStatus::Started)
    };
    match (record.status, order) {
        (RecordStatus::Done, _) if record.expires_at <= record.seen_at => {
            "nothing. A retry is answered from the order, if one stands"
        }
        (RecordStatus::Done, _) => "nothing. A retry with the same content gets this answer again",
        (RecordStatus::Processing, _) if record.lease_expires_at > record.seen_at => {
            "wait: somebody works on it. If that process is known to be dead, `records release` spares the wait"
        }
        (RecordStatus::Processing, Some(life)) if in_doubt(life) => {
            "wait: the reconciler keeps asking the provider, and a retry takes over"
        }
        (RecordStatus::Processing, Some(_)) => "nothing. A retry takes over and is answered with the order",
        (RecordStatus::Processing, None) => "nothing was done under this key. A retry takes over and does it",
    }
}

fn ago(at: OffsetDateTime, record: &RecordStory) -> String {
    format!("{}, {} ago", clock(at), span(at, record.seen_at))
}

fn clock(at: OffsetDateTime) -> String {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]Z");
    at.format(format).unwrap_or_else(|_| at.to_string())
}

/// In whole seconds; nothing under one.
fn span(from: OffsetDateTime, to: OffsetDateTime) -> String {
    let seconds = u64::try_from((to - from).whole_seconds()).unwrap_or(0);
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}
