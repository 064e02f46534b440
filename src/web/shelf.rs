//! Makes the form's page: what the shop has, what was typed, what is wrong with it, and the pair of token and key.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};

use crate::app::App;
use crate::checkout::place::PLACE;
use crate::error::Result;
use crate::guard::token::Binding;
use crate::order::Product;
use crate::order::values::{Cents, Key, Subject};
use crate::store::{Buyer, shop_currency};

use super::draft::Draft;
use super::notice::Notice;
use super::pages::{Complaint, FormPage, Row};
use super::words::{Fault, Price, label, money};

/// Id of the part of the page that holds all goods: where complaints lead that concern no single field.
const GOODS: &str = "goods";

/// Token and key of one rendering.
pub enum Pair {
    /// As they were sent: the token is not spent.
    Sent,
    /// A fresh token for this key.
    Fresh(Key),
    /// None: the answer to HEAD.
    None,
}

/// What the form shows of the shop, and of its visitor.
#[derive(Default)]
pub struct Shelf {
    products: Arc<Vec<Product>>,
    balance: Option<Cents>,
    /// The key of the visitor's submission under way: a new rendering has it too, so that a form reloaded meanwhile cannot
    /// order twice.
    pub under_way: Option<Key>,
}

impl Shelf {
    /// The catalogue, and what the visitor has: the opening balance for one whose account was not opened yet.
    ///
    /// # Errors
    /// When the database gives no answer.
    pub async fn load(app: &App, subject: Option<&Subject>) -> Result<Self> {
        let products = app.catalogue().await?;
        let account = match subject {
            Some(subject) => app.find_account(subject).await?,
            None => None,
        };
        let buyer = match account {
            Some(account) => app.keys.buyer(account).await?,
            None => Buyer { balance: app.config.opening_balance, under_way: None },
        };
        Ok(Self { products, balance: Some(buyer.balance), under_way: buyer.under_way })
    }
}

/// The page. Mints a token, unless the pair is as it was sent, or there is nobody to mint it for.
pub async fn render(
    app: &App,
    shelf: &Shelf,
    subject: Option<&Subject>,
    draft: &Draft,
    notice: Notice,
    pair: Pair,
) -> Response {
    let (token, key) = hidden(app, subject, draft, pair).await;
    let faults = notice.faults();
    let rows = rows(shelf, draft, &faults);
    let complaints = complaints(&rows, &faults);
    let fault_of = |field: &str| faults.iter().find(|(name, _)| name == field).map(|(_, fault)| fault.clone());
    let currency = shop_currency(&shelf.products);
    let again = matches!(notice, Notice::Repeat { .. }) || (draft.again() && draft.typed(super::draft::KEY) == key);
    FormPage {
        goods_fault: complaints.iter().find(|c| c.target == GOODS).map(|c| c.fault.clone()),
        payment_fault: fault_of("payment"),
        note_fault: fault_of("note"),
        payment: draft.typed("payment").to_owned(),
        note: draft.typed("note").to_owned(),
        card: app.config.gateway.is_some(),
        balance: shelf.balance.map(|balance| money(balance, &currency)),
        total: Price { amount: 0, currency },
        notice,
        complaints,
        rows,
        token,
        key,
        again,
    }
    .into_response()
}

async fn hidden(app: &App, subject: Option<&Subject>, draft: &Draft, pair: Pair) -> (String, String) {
    let key = match (pair, draft.token(), draft.key()) {
        (Pair::None, ..) => return (String::new(), String::new()),
        (Pair::Sent, Some(token), Some(key)) => return (token.to_owned(), key.as_str().to_owned()),
        (Pair::Sent, _, key) => key.unwrap_or_else(Key::fresh),
        (Pair::Fresh(key), ..) => key,
    };
    let Some(subject) = subject.cloned() else { return (String::new(), key.as_str().to_owned()) };
    let binding = Binding { subject, form: PLACE, key };
    (app.tokens.issue(&binding).await, binding.key.as_str().to_owned())
}

/// One row for each product, and one for whatever else was wanted: nothing that was typed is lost when a product leaves
/// the catalogue, or the catalogue cannot be had.
fn rows(shelf: &Shelf, draft: &Draft, faults: &[(String, Fault)]) -> Vec<Row> {
    let fault_of = |field: &str| faults.iter().find(|(name, _)| name == field).map(|(_, fault)| fault.clone());
    let offered = shelf.products.iter().map(|product| {
        let field = format!("quantity[{}]", product.sku);
        Row {
            name: product.name.clone(),
            price: Some(Price { amount: product.unit_price, currency: product.currency.clone() }),
            stock: product.stock,
            typed: draft.typed(&field).to_owned(),
            fault: fault_of(&field),
            field,
        }
    });
    let gone = draft.wanted().filter(|(sku, _)| !shelf.products.iter().any(|p| p.sku == *sku)).map(|(sku, typed)| {
        let field = format!("quantity[{sku}]");
        let (name, typed) = (sku.as_str().to_owned(), typed.to_owned());
        Row { name, price: None, stock: 0, typed, fault: fault_of(&field), field }
    });
    offered.chain(gone).collect()
}

fn complaints(rows: &[Row], faults: &[(String, Fault)]) -> Vec<Complaint> {
    let complaint = |(field, fault): &(String, Fault)| {
        let row = rows.iter().find(|row| row.field == *field);
        let target = match (row, field.as_str()) {
            (Some(row), _) => &row.field,
            (None, "payment" | "note") => field,
            (None, _) => GOODS,
        };
        let label = row.map_or_else(|| label(field), |row| row.name.clone());
        Complaint { target: target.to_owned(), label, fault: fault.clone() }
    };
    faults.iter().map(complaint).collect()
}
