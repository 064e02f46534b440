//! The one transition table of an order's life.
//!
//! Whoever changes an order asks [`step`] and writes what it says, as an `UPDATE` that names the state it was asked
//! about. Deliberately absent: who may ask, and what money moves where.

use super::Method;

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

/// What happens to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The buyer pays: at once from the balance, or begins another attempt with the provider.
    Pay(Method),
    /// The buyer calls it off.
    Cancel,
    /// The payment window is over.
    WindowOver,
    /// An operator sends it off.
    Ship,
    /// The provider says that the attempt was paid.
    ProviderPaid,
    /// The provider says that the attempt was not paid.
    ProviderFailed,
}

/// What an event does to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It changes this, in one transaction.
    To(Change),
    /// It has happened before: the same answer, and nothing changes.
    Already,
    /// Not while a payment attempt is in flight: ask again when its outcome is known. Nothing changes.
    InFlight,
    /// The table has no such row: refused, and nothing changes.
    Illegal,
}

/// What is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The order's status afterwards, which may be the one it had.
    pub status: Status,
    /// What becomes of the attempt's payment; `None`: nothing.
    pub payment: Option<PaymentStatus>,
    /// Whether the order's units go back into stock.
    pub stock_back: bool,
}

/// The table. `attempt` is how far the payment attempt is that the event speaks of: for the provider's word the one it
/// names, for a cancelled paid order the captured one, else the latest. `method` is how that attempt is paid.
#[must_use]
pub fn step(status: Status, attempt: PaymentStatus, method: Method, event: Event) -> Step {
    use Event::{Cancel, Pay, ProviderFailed, ProviderPaid, Ship, WindowOver};
    use PaymentStatus::{Captured, Declined, RefundDue, Refunded, Started};
    use Status::{Cancelled, Paid, Pending, Shipped};
    let to = |status, payment| Step::To(Change { status, payment, stock_back: false });
    let call_off = |payment| Step::To(Change { status: Cancelled, payment, stock_back: true });
    match (status, event) {
        (Pending, Pay(_) | WindowOver) if attempt.in_flight() => Step::InFlight,
        (Pending, Pay(Method::Balance)) => to(Paid, Some(Captured)),
        (Pending, Pay(Method::Card)) => to(Pending, Some(Started)),
        (Pending, Cancel | WindowOver) => call_off(None),
        (Paid, Cancel) if method == Method::Balance => call_off(Some(Refunded)),
        (Paid, Cancel) => call_off(Some(RefundDue)),
        (Paid, Ship) => to(Shipped, None),
        (_, ProviderPaid | ProviderFailed) if attempt.paid() => Step::Already,
        (Pending, ProviderPaid) => to(Paid, Some(Captured)),
        (Paid | Shipped | Cancelled, ProviderPaid) => to(status, Some(RefundDue)),
        (_, ProviderFailed) if attempt == Declined => Step::Already,
        (_, ProviderFailed) => to(status, Some(Declined)),
        (Paid | Shipped, Pay(_)) | (Shipped, Ship) | (Cancelled, Cancel | WindowOver) => Step::Already,
        (Pending | Cancelled, Ship) | (Cancelled, Pay(_)) | (Shipped, Cancel) | (Paid | Shipped, WindowOver) => {
            Step::Illegal
        }
    }
}

impl PaymentStatus {
    /// Whether the attempt was made and its outcome is not known yet.
    #[must_use]
    pub fn in_flight(self) -> bool {
        matches!(self, Self::Started | Self::Unknown | Self::Processing)
    }

    /// Whether the buyer's money was taken, be it given back since or not.
    #[must_use]
    pub fn paid(self) -> bool {
        matches!(self, Self::Captured | Self::RefundDue | Self::Refunded)
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use Event::{Cancel, Pay, ProviderFailed, ProviderPaid, Ship, WindowOver};
    use PaymentStatus::{Captured, Declined, Processing, RefundDue, Refunded, Started, Unknown};
    use Status::{Cancelled, Paid, Pending, Shipped};

    const EVENTS: [Event; 7] =
        [Pay(Method::Balance), Pay(Method::Card), Cancel, WindowOver, Ship, ProviderPaid, ProviderFailed];

    /// One row of the matrix in short: `+` gives stock back, `=` already, `~` in flight, `x` illegal.
    fn row(status: Status, attempt: PaymentStatus, method: Method) -> String {
        let short = |event| match step(status, attempt, method, event) {
            Step::To(to) => {
                let payment = to.payment.map_or("", PaymentStatus::as_str);
                format!("{}{}{payment}", to.status.as_str(), if to.stock_back { "+" } else { ":" })
            }
            Step::Already => "=".into(),
            Step::InFlight => "~".into(),
            Step::Illegal => "x".into(),
        };
        EVENTS.map(short).join(" ")
    }

    #[test]
    fn the_whole_matrix_is_as_the_table_says() {
        let in_flight: &[_] = &[Started, Unknown, Processing];
        let over: &[_] = &[Captured, RefundDue, Refunded];
        for (status, attempts, expected) in [
            //                        pay balance    pay card        cancel      window     ship     provider paid     provider failed
            (Pending, in_flight, "~ ~ cancelled+ ~ x paid:captured pending:declined"),
            (Pending, &[Declined], "paid:captured pending:started cancelled+ cancelled+ x paid:captured ="),
            (Paid, in_flight, "= = cancelled+refund_due x shipped: paid:refund_due paid:declined"),
            (Paid, &[Declined], "= = cancelled+refund_due x shipped: paid:refund_due ="),
            (Paid, over, "= = cancelled+refund_due x shipped: = ="),
            (Shipped, in_flight, "= = x x = shipped:refund_due shipped:declined"),
            (Shipped, &[Declined], "= = x x = shipped:refund_due ="),
            (Shipped, over, "= = x x = = ="),
            (Cancelled, in_flight, "x x = = x cancelled:refund_due cancelled:declined"),
            (Cancelled, &[Declined], "x x = = x cancelled:refund_due ="),
            (Cancelled, over, "x x = = x = ="),
        ] {
            for attempt in attempts {
                assert_eq!(row(status, *attempt, Method::Card), expected, "{status:?} {attempt:?}");
            }
        }
    }

    #[test]
    fn a_cancelled_order_paid_by_balance_is_refunded_in_the_same_step() {
        let refunded = Change { status: Cancelled, payment: Some(Refunded), stock_back: true };
        assert_eq!(step(Paid, Captured, Method::Balance, Cancel), Step::To(refunded));
    }

    #[test]
    fn stock_comes_back_exactly_once() {
        let (mut back, mut kept) = (0, 0);
        for status in [Pending, Paid, Shipped, Cancelled] {
            for (attempt, event) in PaymentStatus::ALL.into_iter().flat_map(|a| EVENTS.map(|e| (a, e))) {
                for method in [Method::Balance, Method::Card] {
                    let Step::To(to) = step(status, attempt, method, event) else { continue };
                    assert_eq!(
                        to.stock_back,
                        to.status == Cancelled && status != Cancelled,
                        "{status:?} {attempt:?} {event:?}"
                    );
                    assert!(status != Cancelled || to.status == Cancelled, "{event:?} revives a cancelled order");
                    if to.stock_back { back += 1 } else { kept += 1 }
                }
            }
        }
        assert!(back > 0 && kept > 0);
    }

    #[test]
    fn every_word_is_read_back() {
        for status in [Pending, Paid, Shipped, Cancelled] {
            assert_eq!(Status::parse(status.as_str()), Some(status));
        }
        for status in PaymentStatus::ALL {
            assert_eq!(PaymentStatus::parse(status.as_str()), Some(status));
        }
        assert_eq!((Status::parse("Paid"), PaymentStatus::parse("")), (None, None));
    }
}
