//! Every page in every state, in Chinese: no word of English is left.

use std::time::Duration;

use askama::Template;
use time::macros::datetime;
use uuid::Uuid;

use crate::order::request::{FieldError, Wrong};
use crate::order::values::{AccountId, Currency, Fingerprint, Key, Note, OrderId, Quantity, Sku};
use crate::order::{Line, Method, Order, PaymentStatus, Status};
use crate::web::language::{Language, speaking};
use crate::web::notice::Notice;
use crate::web::pages::{Complaint, FormPage, Hidden, Message, OrderPage, OrdersPage, PayForm, Row, WaitingPage};
use crate::web::said::Said;
use crate::web::words::{Fault, Price, label};

/// Letters that are the same in every language: the shop's name, a currency, a time zone, part of an address.
const SAME: [&str; 4] = ["Oncegate", "EUR", "UTC", "cursor"];
/// Attributes that are read out or shown.
const READ: [&str; 7] =
    ["aria-label=", "title=", "placeholder=", "data-sending=", "data-trying=", "data-stopped=", "data-failed="];

/// The English words that a visitor of the page would meet, but for those marked as English.
fn english_in(html: &str) -> Vec<String> {
    let mut found = String::new();
    for piece in html.split('<') {
        let (tag, text) = piece.split_once('>').unwrap_or(("", piece));
        let attributes: Vec<_> = tag.split('"').collect();
        for pair in attributes.chunks(2).filter(|pair| READ.iter().any(|name| pair[0].ends_with(name))) {
            found += &format!(" {} ", pair.get(1).copied().unwrap_or_default());
        }
        if !tag.contains("lang=\"en\"") {
            found += &format!(" {text} ");
        }
    }
    let words = found.split(|letter: char| !letter.is_ascii_alphabetic()).filter(|word| word.len() > 1);
    words.filter(|word| !SAME.contains(word)).map(str::to_owned).collect()
}

fn euro() -> Currency {
    Currency::parse("EUR").unwrap()
}

fn form(notice: Notice, fault: Option<Fault>, card: bool) -> FormPage {
    let price = |stock| Some((Price { amount: 1250, currency: euro() }, stock));
    let rows = [price(3), price(0), None].map(|offer| {
        let (price, stock) = offer.map_or((None, 0), |(price, stock)| (Some(price), stock));
        Row { field: "1".into(), name: "茶".into(), price, stock, typed: String::new(), fault: fault.clone() }
    });
    let named = |field: &str| if field.starts_with("quantity[") { "茶".into() } else { label(field) };
    let complaint = |(field, fault): (String, Fault)| Complaint { target: "1".into(), label: named(&field), fault };
    FormPage {
        complaints: notice.faults().into_iter().map(complaint).collect(),
        notice,
        rows: if fault.is_none() && card { Vec::new() } else { rows.into() },
        goods_fault: fault.clone(),
        payment: "balance".into(),
        payment_fault: fault.clone(),
        card,
        balance: Some("1".into()),
        total: Price { amount: 0, currency: euro() },
        note: String::new(),
        note_fault: fault,
        token: String::new(),
        key: String::new(),
        again: true,
    }
}

fn faults() -> Vec<Fault> {
    let wrong = [
        Wrong::Missing,
        Wrong::Repeated,
        Wrong::Unknown,
        Wrong::NotWhole,
        Wrong::Range { min: 0, max: 1 },
        Wrong::Method { card: true },
        Wrong::Method { card: false },
        Wrong::TooMany,
        Wrong::TooDear,
        Wrong::Note,
        Wrong::Nothing,
        Wrong::NotOffered,
        Wrong::MixedCurrency,
        Wrong::Form("must be in English"),
    ];
    wrong.into_iter().map(Fault::Wrong).chain([Fault::OutOfStock, Fault::NotSold]).collect()
}

fn forms() -> Vec<FormPage> {
    let fields = ["payment", "note", "quantity", "/lines"].map(|field| (field.to_owned(), Wrong::Missing));
    let errors = fields.map(|(field, wrong)| FieldError { field, wrong });
    let order = OrderId(Uuid::nil());
    let notices = [
        Notice::None,
        Notice::Invalid(errors.into()),
        Notice::Expired,
        Notice::Interrupted,
        Notice::NothingCameOfIt,
        Notice::BecameOrder(order),
        Notice::WasRefused,
        Notice::BeingPlaced(Key::fresh()),
        Notice::Repeat { order, seconds: 1 },
        Notice::OutOfStock(vec!["1".into()]),
        Notice::UnknownSku(vec!["1".into()]),
        Notice::InsufficientFunds,
        Notice::Refused { status: 409, detail: "In the words of the API.".into() },
        Notice::Unavailable { retry_after: Duration::ZERO },
        Notice::Failed,
    ];
    let noticed = notices.into_iter().flat_map(|notice| [false, true].map(|card| form(notice.clone(), None, card)));
    noticed.chain(faults().into_iter().map(|fault| form(Notice::None, Some(fault), true))).collect()
}

fn order(status: Status, payment: PaymentStatus, method: Method) -> Order {
    Order {
        id: OrderId(Uuid::nil()),
        account: AccountId(Uuid::nil()),
        key: Key::fresh(),
        fingerprint: Fingerprint::of(1, []),
        status,
        lines: vec![Line {
            sku: Sku::parse("1").unwrap(),
            name: "茶".into(),
            quantity: Quantity::new(2).unwrap(),
            unit_price: 1250,
        }],
        total: 2500,
        currency: euro(),
        method,
        payment,
        reference: None,
        note: Note::parse("谢谢"),
        coupon: Some("1".into()),
        created_at: datetime!(2026-11-29 09:05 UTC),
    }
}

fn orders() -> Vec<OrderPage> {
    use PaymentStatus::{Captured, Declined, Processing, RefundDue, Refunded, Started, Unknown};
    let hidden = || Hidden { token: String::new(), key: String::new() };
    let page = |order, said| OrderPage {
        order,
        said,
        cancel: Some(hidden()),
        pay: Some(PayForm { hidden: hidden(), card: true, balance: "1".into() }),
    };
    let states = [Status::Pending, Status::Paid, Status::Shipped, Status::Cancelled];
    let by_state = states.map(|status| page(order(status, Captured, Method::Balance), None));
    let payments = [Started, Unknown, Processing, Declined, Captured, RefundDue, Refunded];
    let cancelled = |payment| page(order(Status::Cancelled, payment, Method::Card), Some(Said::Cancelled));
    let said = Said::ALL.iter().map(|said| page(order(Status::Paid, Captured, Method::Card), Some(*said)));
    by_state.into_iter().chain(payments.map(cancelled)).chain(said).collect()
}

fn lists() -> Vec<OrdersPage> {
    let full = || vec![order(Status::Paid, PaymentStatus::Captured, Method::Balance)];
    let both = [false, true];
    both.into_iter()
        .flat_map(|later| [Vec::new(), full()].map(|orders| OrdersPage { orders, next: Some("1".into()), later }))
        .collect()
}

fn messages() -> [Message; 9] {
    [
        Message::NotFound,
        Message::MethodNotAllowed,
        Message::ForeignOrigin,
        Message::NotAForm,
        Message::TooLarge,
        Message::Broken,
        Message::BadCursor,
        Message::Unavailable(Duration::ZERO),
        Message::Internal,
    ]
}

/// Every page in every state, for a visitor of this language.
fn pages(language: Language) -> Vec<String> {
    fn all(pages: impl IntoIterator<Item = impl Template>) -> impl Iterator<Item = String> {
        pages.into_iter().map(|page| page.render().unwrap())
    }
    speaking(language, || {
        let few = all([WaitingPage]).chain(all(messages())).chain(all(lists()));
        few.chain(all(orders())).chain(all(forms())).collect()
    })
}

#[test]
fn a_chinese_page_has_no_word_of_english() {
    for page in pages(Language::Chinese) {
        assert_eq!(english_in(&page), Vec::<String>::new(), "{page}");
        assert!(page.contains("<html lang=\"zh-Hans\">"), "{page}");
    }
}

#[test]
fn the_english_pages_have_words_that_this_test_would_find() {
    for page in pages(Language::English) {
        assert!(english_in(&page).len() > 10, "{page}");
        assert!(page.contains("<html lang=\"en\">"), "{page}");
    }
}

#[test]
fn no_message_stands_on_a_page_by_its_name() {
    for page in pages(Language::English).into_iter().chain(pages(Language::Chinese)) {
        for (name, _) in super::messages(Language::English).into_iter().filter(|(name, _)| name.contains('-')) {
            assert!(!page.contains(&format!(">{name}<")), "{name} in {page}");
        }
    }
}
