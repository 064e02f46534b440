//! A record of layer 2 as an operator sees it: whole, also where it has expired, and by the database's clock.

use std::time::Duration;

use bytes::Bytes;
use time::OffsetDateTime;

use crate::order::values::{AccountId, OrderId};

/// How far a record is, as its column says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordStatus {
    /// Claimed, no answer yet.
    Processing,
    /// Answered.
    Done,
}

impl RecordStatus {
    /// As the column holds it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Processing => "processing",
            Self::Done => "done",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Processing, Self::Done].into_iter().find(|status| status.as_str() == text)
    }
}

/// Which records are listed.
#[derive(Clone, Copy, Debug)]
pub struct RecordFilter {
    /// Only those that are this far.
    pub status: Option<RecordStatus>,
    /// Only those that began longer ago than this.
    pub older_than: Duration,
    /// At most so many.
    pub limit: u32,
}

/// One record with all its columns. Its texts are not parsed: an operator must see also what is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordStory {
    /// Whose it is.
    pub account: AccountId,
    /// The account's subject; `None`: the account is gone.
    pub subject: Option<String>,
    /// Of what.
    pub operation: String,
    /// The idempotency key.
    pub key: String,
    /// The content.
    pub fingerprint: String,
    /// How far it is.
    pub status: RecordStatus,
    /// How often it was claimed.
    pub epoch: i64,
    /// Until when the claim is honoured.
    pub lease_expires_at: OffsetDateTime,
    /// The answer's HTTP status.
    pub response_status: Option<u16>,
    /// The answer's `Content-Type`.
    pub response_content_type: Option<String>,
    /// The answer's `Location`.
    pub response_location: Option<String>,
    /// The answer's body.
    pub response_body: Option<Bytes>,
    /// The order it speaks of.
    pub order: Option<OrderId>,
    /// When it was claimed first (since it last expired).
    pub created_at: OffsetDateTime,
    /// When it was answered.
    pub completed_at: Option<OffsetDateTime>,
    /// Until when the answer is replayed, or an unfinished record is kept.
    pub expires_at: OffsetDateTime,
    /// The database's clock when it was read: what all these times are to be compared with.
    pub seen_at: OffsetDateTime,
}
