//! The domain: what an order is, what a request may ask, how a batch is decided. Pure: no I/O, no async.
//!
//! Deliberately absent: HTTP, SQL, clocks. Whoever calls brings the time and the rows along.

pub mod decide;
pub mod fingerprint;
pub mod json;
pub mod life;
pub mod request;
pub mod state;
pub mod values;

use time::OffsetDateTime;

use values::{AccountId, Cents, Currency, Fingerprint, Key, Note, OrderId, PaymentToken, Quantity, Reference, Sku};

pub use state::{PaymentStatus, Status};

/// How an order is paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// From the account's balance, in the transaction that places the order.
    Balance,
    /// By the payment provider.
    Card,
}

impl Method {
    /// The word used on the wire and in the tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Balance => "balance",
            Self::Card => "card",
        }
    }

    /// Reads the word used on the wire and in the tables.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "balance" => Some(Self::Balance),
            "card" => Some(Self::Card),
            _ => None,
        }
    }
}

/// A valid request to order: within every limit that can be judged without the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOrder {
    /// At least one; in SKU order, each SKU once.
    pub lines: Vec<Wanted>,
    /// How it shall be paid.
    pub method: Method,
    /// The provider's name for the card, if the client sent one.
    pub payment_method: Option<PaymentToken>,
    /// The client's own name for the order.
    pub reference: Option<Reference>,
    /// A note to the shop.
    pub note: Option<Note>,
}

/// One wanted line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What.
    pub sku: Sku,
    /// How many.
    pub quantity: Quantity,
}

/// One line of a placed order, at the price and name of that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What.
    pub sku: Sku,
    /// Its name when it was ordered.
    pub name: String,
    /// How many.
    pub quantity: Quantity,
    /// Price of one, in minor units, when it was ordered.
    pub unit_price: Cents,
}

/// An order as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its id.
    pub id: OrderId,
    /// Whose it is.
    pub account: AccountId,
    /// The idempotency key of its intent.
    pub key: Key,
    /// What was asked for.
    pub fingerprint: Fingerprint,
    /// Where it is in its life.
    pub status: Status,
    /// In SKU order.
    pub lines: Vec<Line>,
    /// Sum of the lines, in minor units.
    pub total: Cents,
    /// Of the total and all prices.
    pub currency: Currency,
    /// How it is paid.
    pub method: Method,
    /// How far the attempt is that it was paid by, else the latest one.
    pub payment: PaymentStatus,
    /// The client's own name for it.
    pub reference: Option<Reference>,
    /// The buyer's note.
    pub note: Option<Note>,
    /// Code of the coupon granted for it.
    pub coupon: Option<String>,
    /// When it was placed, by the database's clock, in whole milliseconds (what both databases can keep).
    pub created_at: OffsetDateTime,
}

/// One product of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    /// Its unit.
    pub sku: Sku,
    /// Its name.
    pub name: String,
    /// Price of one, in minor units.
    pub unit_price: Cents,
    /// Of the price.
    pub currency: Currency,
    /// How many are left, never below 0.
    pub stock: i64,
}
