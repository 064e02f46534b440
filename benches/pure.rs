//! What a request costs apart from all waiting: reading its key and body, the decision, the stored answer, the pages.
//!
//! `cargo bench --bench pure`; with `-- --quick` in a few seconds. Compares with the run before.

use std::collections::BTreeMap;
use std::hint::black_box;

use askama::Template;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use oncegate::api::answer::render;
use oncegate::api::extract::read_key;
use oncegate::order::decide::{Asked, Decision, Shop, decide};
use oncegate::order::fingerprint::place_order;
use oncegate::order::request::from_json;
use oncegate::order::values::{AccountId, Currency, Fingerprint, Key, OrderId, Quantity, Sku};
use oncegate::order::{Line, Method, NewOrder, Order, PaymentStatus, Product, Status, Wanted};
use oncegate::web::notice::Notice;
use oncegate::web::pages::{FormPage, Hidden, OrderPage, Row};
use oncegate::web::words::{Price, money};
use time::macros::datetime;

const UUID: &str = "9f8c2c1e-7a56-4c0b-9d53-0c1e7e1b6a11";

fn sku(n: usize) -> Sku {
    Sku::parse(&format!("sku-{n:05}")).expect("a SKU")
}

fn euro() -> Currency {
    Currency::parse("EUR").expect("a currency")
}

fn product(n: usize) -> Product {
    Product { sku: sku(n), name: format!("Product {n}"), unit_price: 1250, currency: euro(), stock: 1_000_000 }
}

/// An order of so many lines, the first of the given product.
fn wish(first: usize, lines: usize) -> NewOrder {
    let quantity = Quantity::new(2).expect("a quantity");
    let lines = (first..first + lines).map(|n| Wanted { sku: sku(n), quantity }).collect();
    NewOrder { lines, method: Method::Balance, payment_method: None, reference: None, note: None }
}

fn asked(n: usize, products: usize) -> Asked {
    let request = wish(n % products, 1);
    Asked {
        id: OrderId::new(),
        account: AccountId::new(),
        key: Key::fresh(),
        fingerprint: place_order(&request),
        request,
        repeat_notice: None,
    }
}

/// The rows that a batch needs, as a store would load them.
fn shop(batch: &[Asked]) -> Shop {
    let skus = batch.iter().flat_map(|asked| &asked.request.lines).map(|line| line.sku.clone());
    let products: BTreeMap<_, _> =
        skus.enumerate().map(|(n, sku)| (sku.clone(), Product { sku, ..product(n) })).collect();
    let balances = batch.iter().map(|asked| (asked.account, 1_000_000)).collect();
    Shop { products, balances, standing: Vec::new(), now: datetime!(2026-01-01 0:00 UTC) }
}

fn decisions(c: &mut Criterion) {
    let mut group = c.benchmark_group("decide");
    for size in [1, 16, 64] {
        group.throughput(Throughput::Elements(size as u64));
        for (name, products) in [("each its product", size), ("one product for all", 1)] {
            let batch: Vec<_> = (0..size).map(|n| asked(n, products)).collect();
            let shop = shop(&batch);
            group.bench_function(BenchmarkId::new(name, size), |b| {
                b.iter_batched(|| shop.clone(), |mut shop| decide(&batch, &mut shop), BatchSize::SmallInput);
            });
        }
    }
    group.finish();
}

fn requests(c: &mut Criterion) {
    let mut group = c.benchmark_group("request");
    group.bench_function("key, bare", |b| b.iter(|| read_key(black_box(UUID.as_bytes()))));
    let quoted = format!("\"{UUID}\"");
    group.bench_function("key, quoted", |b| b.iter(|| read_key(black_box(quoted.as_bytes()))));
    for lines in [1, 50] {
        let order = wish(0, lines);
        group.bench_function(BenchmarkId::new("fingerprint, lines", lines), |b| {
            b.iter(|| place_order(black_box(&order)));
        });
        let line = |wanted: &Wanted| format!(r#"{{"sku":"{}","quantity":{}}}"#, wanted.sku, wanted.quantity.get());
        let lines_of: Vec<_> = order.lines.iter().map(line).collect();
        let body = format!(r#"{{"lines":[{}],"payment":"balance"}}"#, lines_of.join(","));
        group.bench_function(BenchmarkId::new("body and fingerprint, lines", lines), |b| {
            b.iter(|| from_json(black_box(body.as_bytes()), false));
        });
    }
    group.finish();
}

fn placed() -> Order {
    let quantity = Quantity::new(2).expect("a quantity");
    let line = |n| Line { sku: sku(n), name: format!("Product {n}"), quantity, unit_price: 1250 };
    Order {
        id: OrderId::new(),
        account: AccountId::new(),
        key: Key::fresh(),
        fingerprint: Fingerprint::stored("1:00"),
        status: Status::Paid,
        lines: (0..3).map(line).collect(),
        total: 7500,
        currency: euro(),
        method: Method::Balance,
        payment: PaymentStatus::Captured,
        reference: None,
        note: None,
        coupon: Some("WB0123-4567-89AB-CDEF".to_owned()),
        created_at: datetime!(2026-01-01 0:00 UTC),
    }
}

fn form(products: usize) -> FormPage {
    let row = |n| Row {
        field: format!("quantity[{}]", sku(n)),
        name: format!("Product {n}"),
        price: Some(Price { amount: 1250, currency: euro() }),
        stock: 100,
        typed: String::new(),
        fault: None,
    };
    FormPage {
        notice: Notice::None,
        complaints: Vec::new(),
        rows: (0..products).map(row).collect(),
        goods_fault: None,
        payment: String::new(),
        payment_fault: None,
        card: true,
        balance: Some(money(100_000, &euro())),
        total: Price { amount: 0, currency: euro() },
        note: String::new(),
        note_fault: None,
        token: "c2l4dGVlbiByYW5kb20gYnl0ZXM".to_owned(),
        key: UUID.to_owned(),
        again: false,
    }
}

fn answers(c: &mut Criterion) {
    let mut group = c.benchmark_group("answer");
    let decision = Decision::Placed(placed());
    group.bench_function("stored answer", |b| b.iter(|| render(black_box(&decision), None)));
    for products in [10, 1000] {
        let page = form(products);
        group.bench_function(BenchmarkId::new("form page, products", products), |b| {
            b.iter(|| black_box(&page).render());
        });
    }
    let hidden = Hidden { token: "c2l4dGVlbiByYW5kb20gYnl0ZXM".to_owned(), key: UUID.to_owned() };
    let page = OrderPage { order: placed(), said: None, cancel: Some(hidden), pay: None };
    group.bench_function("order page", |b| b.iter(|| black_box(&page).render()));
    group.finish();
}

criterion_group!(pure, requests, decisions, answers);
criterion_main!(pure);
