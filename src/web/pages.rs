//! The pages as data. Which sentence stands where is the templates' matter, how it is worded that of `language`; what a page
//! needs to know is here.

use std::time::Duration;

use askama::Template;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LANGUAGE, RETRY_AFTER, VARY};
use axum::response::{Html, IntoResponse, Response};

use crate::error::Error;
use crate::order::values::Key;
use crate::order::{Method, Order, PaymentStatus, Status};

use super::language::texts::Text;
use super::language::{self, filters};
use super::notice::Notice;
use super::said::Said;
use super::words::{Fault, Moment, Price, money};

/// Renders a page, in the language of its visitor.
pub fn page(status: StatusCode, template: &impl Template) -> Response {
    match template.render() {
        Ok(html) => {
            let said = [(CONTENT_LANGUAGE, language::current().tag()), (VARY, "Accept-Language, Cookie")];
            (status, said, Html(html)).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "a template failed");
            (StatusCode::INTERNAL_SERVER_ERROR, Html("<!doctype html><title>Error</title>Error 500")).into_response()
        }
    }
}

/// Adds `Retry-After`, in whole seconds, at least one.
pub fn retry_after(after: Duration, response: Response) -> Response {
    ([(RETRY_AFTER, after.as_secs().max(1).to_string())], response).into_response()
}

/// One product of the form.
pub struct Row {
    /// The field's name.
    pub field: String,
    /// What it is called.
    pub name: String,
    /// Price of one; none for what is not in the catalogue (any more, or just now).
    pub price: Option<Price>,
    /// How many are left.
    pub stock: i64,
    /// What was typed.
    pub typed: String,
    /// What is wrong with it.
    pub fault: Option<Fault>,
}

/// One line of the error summary.
pub struct Complaint {
    /// The field's name, or `goods` for what concerns no single one.
    pub target: String,
    /// The field as the buyer knows it.
    pub label: String,
    /// What is wrong.
    pub fault: Fault,
}

impl Complaint {
    fn text(&self) -> Text {
        let text = Text::new("complaint").with("url", format!("#{}", self.target));
        text.with("field", self.label.clone()).with("fault", self.fault.to_string())
    }
}

/// The order form, fresh or come back.
#[derive(Template)]
#[template(path = "form.html")]
pub struct FormPage {
    /// What there is to say.
    pub notice: Notice,
    /// What is wrong, field by field.
    pub complaints: Vec<Complaint>,
    /// The products.
    pub rows: Vec<Row>,
    /// What is wrong with the goods as a whole.
    pub goods_fault: Option<Fault>,
    /// The chosen way to pay.
    pub payment: String,
    /// What is wrong with it.
    pub payment_fault: Option<Fault>,
    /// Whether card payment is offered.
    pub card: bool,
    /// The visitor's balance, if it could be had.
    pub balance: Option<String>,
    /// The total of an empty form; the page's script adds to it.
    pub total: Price,
    /// The note.
    pub note: String,
    /// What is wrong with it.
    pub note_fault: Option<Fault>,
    /// The hidden token; empty where none could be had.
    pub token: String,
    /// The hidden key.
    pub key: String,
    /// Whether the form confirms that the same may be ordered once more.
    pub again: bool,
}

impl IntoResponse for FormPage {
    fn into_response(self) -> Response {
        let response = page(self.notice.status(), &self);
        match self.notice {
            Notice::Unavailable { retry_after: after } => retry_after(after, response),
            _ => response,
        }
    }
}

/// A submission is under way.
#[derive(Template)]
#[template(path = "waiting.html")]
pub struct WaitingPage;

impl IntoResponse for WaitingPage {
    fn into_response(self) -> Response {
        page(StatusCode::OK, &self)
    }
}

/// One order.
#[derive(Template)]
#[template(path = "order.html")]
pub struct OrderPage {
    /// The order.
    pub order: Order,
    /// What happened to it, or what it waits for.
    pub said: Option<Said>,
    /// The form to call it off, where the state allows it.
    pub cancel: Option<Hidden>,
    /// The form to pay it, where the state allows it.
    pub pay: Option<PayForm>,
}

/// Token and key of a rendered form.
pub struct Hidden {
    /// The token.
    pub token: String,
    /// The key.
    pub key: String,
}

/// The form to pay an order.
pub struct PayForm {
    /// Its hidden fields.
    pub hidden: Hidden,
    /// Whether card payment is offered.
    pub card: bool,
    /// The visitor's balance.
    pub balance: String,
}

impl OrderPage {
    fn amount(&self, amount: &i64) -> String {
        money(*amount, &self.order.currency)
    }

    fn sum(&self, line: &crate::order::Line) -> String {
        money(line.unit_price.saturating_mul(i64::from(line.quantity.get())), &self.order.currency)
    }

    /// How it is paid, and how far that is.
    fn payment(&self) -> Text {
        let payment = match self.order.payment {
            PaymentStatus::Started => "payment-started",
            PaymentStatus::Unknown => "payment-unknown",
            PaymentStatus::Processing => "payment-processing",
            PaymentStatus::Declined => "payment-declined",
            PaymentStatus::Captured => "payment-captured",
            PaymentStatus::RefundDue => "payment-refund-due",
            PaymentStatus::Refunded => "payment-refunded",
        };
        let method = match self.order.method {
            Method::Balance => "method-balance",
            Method::Card => "method-card",
        };
        Text::new(method).with("payment", Text::new(payment).to_string())
    }
}

impl IntoResponse for OrderPage {
    fn into_response(self) -> Response {
        page(StatusCode::OK, &self)
    }
}

/// The account's orders, newest first.
#[derive(Template)]
#[template(path = "orders.html")]
pub struct OrdersPage {
    /// Those of this page.
    pub orders: Vec<Order>,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
    /// Whether this is not the first page.
    pub later: bool,
}

impl OrdersPage {
    fn total(order: &Order) -> String {
        money(order.total, &order.currency)
    }
}

impl IntoResponse for OrdersPage {
    fn into_response(self) -> Response {
        page(StatusCode::OK, &self)
    }
}

/// A page that only says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Template)]
#[template(path = "message.html")]
pub enum Message {
    /// No such page, or not for this visitor: never told apart.
    NotFound,
    /// The page is there, but not for this method.
    MethodNotAllowed,
    /// The POST came from a page of another site.
    ForeignOrigin,
    /// The body is not a form.
    NotAForm,
    /// The body is larger than any form of ours.
    TooLarge,
    /// The body cannot be read.
    Broken,
    /// The query's `cursor` is none of ours.
    BadCursor,
    /// A dependency is silent.
    Unavailable(Duration),
    /// A bug of ours.
    Internal,
}

impl Message {
    fn status(self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::ForeignOrigin => StatusCode::FORBIDDEN,
            Self::NotAForm => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Broken => StatusCode::BAD_REQUEST,
            Self::BadCursor => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for Message {
    fn into_response(self) -> Response {
        let response = page(self.status(), &self);
        match self {
            Self::Unavailable(after) => retry_after(after, response),
            _ => response,
        }
    }
}

impl From<Error> for Message {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound => Self::NotFound,
            Error::Unavailable { retry_after, reason } => {
                tracing::warn!(reason, "a page could not be had");
                Self::Unavailable(retry_after)
            }
            // None but the last comes of reading, which is all that pages without a form do.
            Error::Invalid(_)
            | Error::InProgress { .. }
            | Error::KeyReused(_)
            | Error::Illegal
            | Error::NoOutcome { .. }
            | Error::Internal(_) => {
                tracing::error!(%error, "a page failed");
                Self::Internal
            }
        }
    }
}

/// The address of a submission's outcome. A key may hold any visible ASCII character.
#[must_use]
pub fn attempt_path(key: &Key) -> String {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    format!("/orders/attempts/{}", utf8_percent_encode(key.as_str(), UNRESERVED))
}

/// The address of an order's page.
fn order_path(order: &crate::order::values::OrderId) -> String {
    format!("/orders/{order}")
}

/// An order's name in running text: the end of its id, which is the random part.
pub fn short(order: &crate::order::values::OrderId) -> String {
    let id = order.0.simple().to_string();
    id[id.len() - 8..].to_uppercase()
}
