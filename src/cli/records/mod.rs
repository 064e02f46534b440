//! `records`: what became of a key, and freeing one that is stuck. For operators, at any hour: what is printed says what is
//! the case and what there is to do about it.

mod text;

use std::env;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Failure, database, say};
use crate::config::{self, Database, Settings};
use crate::order::life::Life;
use crate::order::values::{AccountId, Key, Subject};
use crate::store::{RecordFilter, RecordStatus, RecordStory, Store, StoreError};

/// What is asked of the records.
#[derive(Subcommand)]
pub(super) enum Wanted {
    /// List records, those that expire first first
    List(List),
    /// Tell all about the records under a key
    Show(Show),
    /// End the lease of what is stuck under a key, so that the next retry takes over
    Release(Release),
}

#[derive(Args)]
pub(super) struct List {
    /// Only those that are this far
    #[arg(long, value_parser = ["processing", "done"])]
    status: Option<String>,
    /// Only those that began longer ago than this, such as 1m
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    older_than: String,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// As a JSON list, members named as the columns
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(super) struct Show {
    /// The idempotency key
    #[arg(value_name = "KEY")]
    key: String,
    /// Whose, such as client:shop-7 or visitor:UUID; without it, everybody's (slow on a large table)
    #[arg(long, value_name = "SUBJECT")]
    account: Option<String>,
    /// As a JSON list, members named as the columns
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(super) struct Release {
    /// The idempotency key
    #[arg(value_name = "KEY")]
    key: String,
    /// Whose, such as client:shop-7 or visitor:UUID
    #[arg(long, value_name = "SUBJECT")]
    account: String,
    /// As a JSON list, members named as the columns
    #[arg(long)]
    json: bool,
}

/// The database of a command, told of in its failures.
struct Open {
    database: Database,
    store: Arc<dyn Store>,
}

/// Runs what is wanted, and closes the database whatever came of it.
pub(super) async fn run(settings: &Settings, wanted: Wanted) -> Result<(), Failure> {
    let older_than = match &wanted {
        Wanted::List(list) => {
            let given = &list.older_than;
            let bad =
                || Failure::Usage(format!("--older-than is {given:?}; allowed: a duration such as 30s, 1m or 2h"));
            config::duration(given).ok_or_else(bad)?
        }
        _ => Duration::ZERO,
    };
    let (database, store) = database::open_for_command(settings).await?;
    let open = Open { database, store };
    let done = match wanted {
        Wanted::List(list) => open.list(&list, older_than).await,
        Wanted::Show(show) => open.show(&show).await,
        Wanted::Release(release) => open.release(&release).await,
    };
    open.store.close().await;
    done
}

impl Open {
    fn failed(&self, error: &StoreError) -> Failure {
        database::failure(&self.database, error)
    }

    async fn list(&self, wanted: &List, older_than: Duration) -> Result<(), Failure> {
        let status = wanted.status.as_deref().and_then(RecordStatus::parse);
        let filter = RecordFilter { status, older_than, limit: wanted.limit };
        let records = self.store.list_records(filter).await.map_err(|e| self.failed(&e))?;
        if wanted.json {
            say_json(&records);
        } else {
            say(&text::table(&records));
        }
        Ok(())
    }

    async fn show(&self, wanted: &Show) -> Result<(), Failure> {
        let key = key(&wanted.key)?;
        let account = match &wanted.account {
            Some(subject) => Some(self.account(subject).await?),
            None => None,
        };
        let records = self.store.find_records(&key, account).await.map_err(|e| self.failed(&e))?;
        if wanted.json {
            say_json(&records);
        } else {
            for record in &records {
                say(&text::story(record, self.order_of(record).await?.as_ref()));
            }
        }
        if !records.is_empty() {
            return Ok(());
        }
        let Some(account) = account else { return Err(unknown(&key)) };
        // The record may be swept; the order stands for ever.
        match self.store.order_by_key(account, &key).await.map_err(|e| self.failed(&e))? {
            Some(order) => Err(Failure::Failed(format!(
                "there is no record of key {key} (any more), but order {} stands under it: a retry is answered with it",
                order.id
            ))),
            None => Err(unknown(&key)),
        }
    }

    async fn release(&self, wanted: &Release) -> Result<(), Failure> {
        let key = key(&wanted.key)?;
        let account = self.account(&wanted.account).await?;
        let freed = self.store.free_records(account, &key).await.map_err(|e| self.failed(&e))?;
        if freed.is_empty() {
            let there = self.store.find_records(&key, Some(account)).await.map_err(|e| self.failed(&e))?;
            return Err(match there.is_empty() {
                true => unknown(&key),
                false => Failure::Failed(format!("key {key} is done: there is nothing to release")),
            });
        }
        let by = ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(|name| env::var(name).ok());
        let by = by.unwrap_or_else(|| "unknown".to_owned());
        for record in &freed {
            let RecordStory { operation, epoch, .. } = record;
            // A warning, so that it is in the log also where that is short.
            tracing::warn!(target: "oncegate::audit", by, account = wanted.account, operation, %key, epoch,
                "a record was released by hand");
        }
        if wanted.json {
            say_json(&freed);
        } else {
            for record in &freed {
                say(&text::released(record));
            }
        }
        Ok(())
    }

    async fn account(&self, subject: &str) -> Result<AccountId, Failure> {
        let unknown = || Failure::Failed(format!("there is no account {subject:?}"));
        let subject = Subject::parse(subject).ok_or_else(unknown)?;
        self.store.find_account(&subject).await.map_err(|e| self.failed(&e))?.ok_or_else(unknown)
    }

    /// The order that a record speaks of, or that stands under its key though the record does not say so yet.
    async fn order_of(&self, record: &RecordStory) -> Result<Option<Life>, Failure> {
        let order = match (record.order, Key::parse(&record.key)) {
            (Some(order), _) => Some(order),
            (None, Some(key)) if record.operation == "place_order" => {
                let found = self.store.order_by_key(record.account, &key).await.map_err(|e| self.failed(&e))?;
                found.map(|order| order.id)
            }
            (None, _) => None,
        };
        match order {
            Some(order) => self.store.life(order).await.map_err(|e| self.failed(&e)),
            None => Ok(None),
        }
    }
}

fn key(text: &str) -> Result<Key, Failure> {
    Key::parse(text)
        .ok_or_else(|| Failure::Usage(format!("KEY is {text:?}; allowed: 1 to 255 visible ASCII characters")))
}

fn unknown(key: &Key) -> Failure {
    Failure::Failed(format!("there is no record of key {key}"))
}

fn say_json(records: &[RecordStory]) {
    say(&Value::Array(records.iter().map(columns).collect()).to_string());
}

/// The columns of the table, and whose account it is.
fn columns(record: &RecordStory) -> Value {
    let body = record.response_body.as_ref().map(|body| String::from_utf8_lossy(body).into_owned());
    json!({
        "account_id": record.account.to_string(),
        "subject": record.subject,
        "operation": record.operation,
        "key": record.key,
        "fingerprint": record.fingerprint,
        "status": record.status.as_str(),
        "epoch": record.epoch,
        "lease_expires_at": moment(record.lease_expires_at),
        "response_status": record.response_status,
        "response_content_type": record.response_content_type,
        "response_location": record.response_location,
        "response_body": body,
        "order_id": record.order.map(|order| order.to_string()),
        "created_at": moment(record.created_at),
        "completed_at": record.completed_at.map(moment),
        "expires_at": moment(record.expires_at),
    })
}

fn moment(at: OffsetDateTime) -> String {
    at.format(&Rfc3339).unwrap_or_else(|_| at.to_string())
}
