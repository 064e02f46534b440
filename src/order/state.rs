//! The one transition table of an order's life.

/// Where an order is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Placed, not paid.
    Pending,
    /// Paid.
    Paid,
    /// On its way.
    Shipped,
    /// Called off.
    Cancelled,
}

impl Status {
    /// The word used on the wire and in the tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Paid => "paid",
            Self::Shipped => "shipped",
            Self::Cancelled => "cancelled",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Pending, Self::Paid, Self::Shipped, Self::Cancelled].into_iter().find(|s| s.as_str() == word)
    }
}

/// How far a payment attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PaymentStatus {
    /// Committed before the provider was called.
    Started,
    /// The provider gave no outcome.
    Unknown,
    /// The provider said "processing".
    Processing,
    /// Definitely not paid.
    Declined,
    /// Paid.
    Captured,
    /// Paid, and to be paid back.
    RefundDue,
    /// Paid back.
    Refunded,
}

impl PaymentStatus {
    /// Every status, in the order of the contract.
    pub const ALL: [Self; 7] = [
        Self::Started,
        Self::Unknown,
        Self::Processing,
        Self::Declined,
        Self::Captured,
        Self::RefundDue,
        Self::Refunded,
    ];

    /// The word used on the wire and in the tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Unknown => "unknown",
            Self::Processing => "processing",
            Self::Declined => "declined",
            Self::Captured => "captured",
            Self::RefundDue => "refund_due",
            Self::Refunded => "refunded",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }
}
