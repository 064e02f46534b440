use proptest::prelude::*;
use time::Duration;
use uuid::Uuid;

use super::*;
use crate::order::Wanted;
use crate::order::fingerprint;
use crate::order::values::Quantity;

const NOW: OffsetDateTime = time::macros::datetime!(2026-11-29 12:00 UTC);

fn sku(text: &str) -> Sku {
    Sku::parse(text).expect("fits")
}

fn account(n: u8) -> AccountId {
    AccountId(Uuid::from_u128(n.into()))
}

fn product(name: &str, unit_price: Cents, currency: &str, stock: i64) -> Product {
    let currency = Currency::parse(currency).expect("a code");
    Product { sku: sku(name), name: format!("The {name}"), unit_price, currency, stock }
}

/// Tea and cups in euros, a hat in dollars, gold at 10^9, air for nothing; account 1 has 1000, account 2 nothing.
fn shop() -> Shop {
    let products = [
        product("AIR", 0, "EUR", 100),
        product("CUP", 300, "EUR", 3),
        product("GOLD", 1_000_000_000, "EUR", 20_000),
        product("HAT", 10, "USD", 5),
        product("TEA", 100, "EUR", 5),
    ];
    Shop {
        products: products.into_iter().map(|p| (p.sku.clone(), p)).collect(),
        balances: HashMap::from([(account(1), 1000), (account(2), 0)]),
        standing: Vec::new(),
        now: NOW,
    }
}

fn request(lines: &[(&str, u32)], method: Method, reference: Option<&str>) -> NewOrder {
    let wanted = |(name, n): &(&str, u32)| Wanted { sku: sku(name), quantity: Quantity::new(*n).expect("fits") };
    NewOrder {
        lines: lines.iter().map(wanted).collect(),
        method,
        payment_method: None,
        reference: reference.map(|r| Reference::parse(r).expect("fits")),
        note: None,
    }
}

fn asked(id: u8, account_no: u8, key: &str, request: NewOrder) -> Asked {
    Asked {
        id: OrderId(Uuid::from_u128(id.into())),
        account: account(account_no),
        key: Key::parse(key).expect("fits"),
        fingerprint: fingerprint::place_order(&request),
        request,
        repeat_notice: None,
    }
}

fn buys(id: u8, key: &str, lines: &[(&str, u32)]) -> Asked {
    asked(id, 1, key, request(lines, Method::Balance, None))
}

fn standing(asked: &Asked, created_at: OffsetDateTime) -> Standing {
    Standing {
        id: asked.id,
        account: asked.account,
        key: asked.key.clone(),
        reference: asked.request.reference.clone(),
        fingerprint: asked.fingerprint.clone(),
        created_at,
    }
}

fn refused(decisions: &[Decision]) -> Vec<Option<&Refusal>> {
    decisions.iter().map(|d| if let Decision::Refused(refusal) = d { Some(refusal) } else { None }).collect()
}

#[test]
fn an_order_by_balance_is_placed_paid_and_takes_stock_and_funds() {
    let mut shop = shop();
    let decisions = decide(&[buys(7, "k", &[("CUP", 2), ("TEA", 4)])], &mut shop);
    let Decision::Placed(order) = &decisions[0] else { panic!("{decisions:?}") };
    assert_eq!((order.status, order.payment, order.total), (Status::Paid, PaymentStatus::Captured, 1000));
    assert_eq!((order.currency.as_str(), order.created_at, order.lines[0].name.as_str()), ("EUR", NOW, "The CUP"));
    assert_eq!((shop.products[&sku("CUP")].stock, shop.products[&sku("TEA")].stock), (1, 1));
    assert_eq!(shop.balances[&account(1)], 0);
}

#[test]
fn an_order_by_card_is_placed_pending_and_needs_no_funds() {
    let mut shop = shop();
    let decisions = decide(&[asked(7, 2, "k", request(&[("TEA", 5)], Method::Card, None))], &mut shop);
    let Decision::Placed(order) = &decisions[0] else { panic!("{decisions:?}") };
    assert_eq!((order.status, order.payment, order.method), (Status::Pending, PaymentStatus::Started, Method::Card));
    assert_eq!((shop.products[&sku("TEA")].stock, shop.balances[&account(2)]), (0, 0));
}

#[test]
fn free_goods_need_no_funds_and_no_provider() {
    for method in [Method::Balance, Method::Card] {
        let decisions = decide(&[asked(7, 2, "k", request(&[("AIR", 3)], method, None))], &mut shop());
        let Decision::Placed(order) = &decisions[0] else { panic!("{decisions:?}") };
        assert_eq!((order.total, order.status, order.payment), (0, Status::Paid, PaymentStatus::Captured));
        assert_eq!(order.method, method);
    }
}

#[test]
fn a_refusal_names_all_that_is_short_or_unknown_and_takes_nothing() {
    let mut shop = shop();
    let batch = [
        buys(1, "a", &[("NIX", 1), ("TEA", 1), ("ZIP", 1)]),
        buys(2, "b", &[("AIR", 1), ("CUP", 4), ("TEA", 6)]),
        buys(3, "c", &[("CUP", 3), ("TEA", 2)]),
    ];
    let decisions = decide(&batch, &mut shop);
    let expected = [
        Refusal::UnknownSku(vec![sku("NIX"), sku("ZIP")]),
        Refusal::OutOfStock(vec![sku("CUP"), sku("TEA")]),
        Refusal::InsufficientFunds,
    ];
    assert_eq!(refused(&decisions), expected.iter().map(Some).collect::<Vec<_>>());
    assert_eq!((shop.balances[&account(1)], shop.products[&sku("TEA")].stock, shop.standing.len()), (1000, 5, 0));
}

#[test]
fn what_only_the_catalogue_shows_to_be_invalid_is_told_at_the_lines() {
    let mut shop = shop();
    shop.products.insert(sku("MAX"), product("MAX", i64::MAX, "EUR", 9));
    let too_much = Wrong::TooDear;
    for (lines, wrong) in [
        (&[("HAT", 1), ("TEA", 1)][..], Wrong::MixedCurrency),
        (&[("GOLD", 1000), ("TEA", 1)], too_much.clone()),
        (&[("MAX", 2)], too_much.clone()),
        (&[("MAX", 1), ("TEA", 1)], too_much),
    ] {
        let expected = Decision::Invalid(vec![FieldError { field: "/lines".into(), wrong }]);
        assert_eq!(decide(&[buys(1, "k", lines)], &mut shop), [expected]);
    }
    let most = price(&request(&[("GOLD", 1000)], Method::Balance, None), |sku| shop.products.get(sku));
    assert_eq!(most.expect("just fits").total, MAX_TOTAL);
}

#[test]
fn a_key_that_stands_is_answered_with_its_order_before_anything_else() {
    let mut shop = shop();
    let first = buys(1, "k", &[("TEA", 1)]);
    let other = asked(3, 1, "k", request(&[("NIX", 1)], Method::Balance, None));
    let neighbour = asked(4, 2, "k", request(&[("AIR", 1)], Method::Balance, None));
    let decisions = decide(&[first.clone(), buys(2, "k", &[("TEA", 1)]), other, neighbour], &mut shop);
    assert!(matches!((&decisions[0], &decisions[3]), (Decision::Placed(_), Decision::Placed(_))), "{decisions:?}");
    assert_eq!(decisions[1], Decision::Stands { order: first.id, same: true });
    assert_eq!(decisions[2], Decision::Stands { order: first.id, same: false });
    assert_eq!(shop.products[&sku("TEA")].stock, 4);
}

#[test]
fn a_reference_names_one_order_of_an_account_for_ever() {
    let named = |id, account, key| asked(id, account, key, request(&[("AIR", 1)], Method::Balance, Some("R")));
    let mut shop = shop();
    shop.standing.push(standing(&named(9, 2, "old"), NOW - Duration::weeks(99)));
    let mut again = named(2, 1, "b");
    again.repeat_notice = Some(120);
    let decisions = decide(&[named(1, 1, "a"), again, named(3, 2, "c")], &mut shop);
    let taken = |id: u8| Refusal::ReferenceTaken(OrderId(Uuid::from_u128(id.into())));
    assert_eq!(refused(&decisions), [None, Some(&taken(1)), Some(&taken(9))]);
}

#[test]
fn the_same_content_a_moment_ago_is_asked_about_once() {
    let earlier = buys(9, "old", &[("TEA", 1)]);
    for (age, notice, repeat) in [
        (Duration::milliseconds(119_999), Some(120), Some(119)),
        (Duration::seconds(-5), Some(120), Some(0)),
        (Duration::seconds(120), Some(120), None),
        (Duration::ZERO, Some(0), None),
        (Duration::ZERO, None, None),
    ] {
        let mut shop = shop();
        shop.standing.push(standing(&earlier, NOW - Duration::days(1)));
        shop.standing.push(standing(&earlier, NOW - age));
        let again = Asked { repeat_notice: notice, ..buys(1, "new", &[("TEA", 1)]) };
        let expected = repeat.map(|seconds| Refusal::Repeat { order: earlier.id, seconds });
        assert_eq!(refused(&decide(&[again], &mut shop)), [expected.as_ref()], "{age} {notice:?}");
    }
    let again = Asked { repeat_notice: Some(120), ..buys(2, "b", &[("TEA", 1)]) };
    let decisions = decide(&[buys(1, "a", &[("TEA", 1)]), again], &mut shop());
    let expected = Refusal::Repeat { order: OrderId(Uuid::from_u128(1)), seconds: 0 };
    assert_eq!(refused(&decisions), [None, Some(&expected)]);
}

/// A small world, so that keys, references, stock and funds collide often.
fn a_batch() -> impl Strategy<Value = Vec<Asked>> {
    let lines = proptest::sample::subsequence(vec!["AIR", "CUP", "HAT", "NIX", "TEA"], 1..=3);
    let one = (
        1..=2_u8,
        proptest::sample::select(vec!["a", "b", "c", "d", "e", "f", "g", "h"]),
        (lines, proptest::collection::vec(1..=2_u32, 3)),
        any::<bool>(),
        proptest::option::weighted(0.3, proptest::sample::select(vec!["R", "S"])),
        proptest::option::weighted(0.3, Just(120_u64)),
    );
    let one = one.prop_map(|(account, key, (skus, counts), card, reference, repeat_notice)| {
        let lines: Vec<_> = skus.into_iter().zip(counts).collect();
        let method = if card { Method::Card } else { Method::Balance };
        Asked { repeat_notice, ..asked(0, account, key, request(&lines, method, reference)) }
    });
    proptest::collection::vec(one, 0..20).prop_map(|mut batch| {
        for (asked, id) in batch.iter_mut().zip(1..) {
            asked.id = OrderId(Uuid::from_u128(id));
        }
        batch
    })
}

fn placed(decisions: &[Decision]) -> impl Iterator<Item = &Order> {
    decisions.iter().filter_map(|d| if let Decision::Placed(order) = d { Some(order) } else { None })
}

proptest! {
    #[test]
    fn nothing_is_oversold_or_overdrawn_and_the_books_balance(batch in a_batch(), funds in 0..2000_i64) {
        let mut before = shop();
        before.balances.insert(account(2), funds);
        let mut after = before.clone();
        let decisions = decide(&batch, &mut after);
        prop_assert_eq!(decisions.len(), batch.len());
        for (name, product) in &before.products {
            let lines = placed(&decisions).flat_map(|order| &order.lines).filter(|line| line.sku == *name);
            let sold: i64 = lines.map(|line| i64::from(line.quantity.get())).sum();
            let left = after.products[name].stock;
            prop_assert!(left >= 0);
            prop_assert_eq!(left + sold, product.stock);
        }
        for (account, start) in &before.balances {
            let charged = placed(&decisions).filter(|order| order.account == *account && order.method == Method::Balance);
            let left = after.balances[account];
            prop_assert!(left >= 0);
            prop_assert_eq!(left, start - charged.map(|order| order.total).sum::<Cents>());
        }
        for order in placed(&decisions) {
            let sum: Cents = order.lines.iter().map(|line| line.unit_price * i64::from(line.quantity.get())).sum();
            prop_assert_eq!(order.total, sum);
        }
    }

    #[test]
    fn one_intent_and_one_reference_give_one_order(batch in a_batch()) {
        let decisions = decide(&batch, &mut shop());
        let mut seen = std::collections::HashSet::new();
        for order in placed(&decisions) {
            prop_assert!(seen.insert((order.account, order.key.as_str())), "key {} twice", order.key);
            if let Some(reference) = &order.reference {
                prop_assert!(seen.insert((order.account, reference.as_str())), "reference {} twice", reference);
            }
        }
    }

    #[test]
    fn how_a_batch_is_cut_does_not_matter(batch in a_batch(), cut in proptest::collection::vec(1..6_usize, 1..20)) {
        let mut whole = shop();
        let at_once = decide(&batch, &mut whole);
        let (mut rest, mut piecewise) = (&batch[..], Vec::new());
        let mut stock = shop();
        for n in cut.into_iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (some, others) = rest.split_at(n.min(rest.len()));
            // As the database would tell it to the next batch: from what was placed.
            let decisions = decide(some, &mut stock);
            stock.standing = Vec::new();
            piecewise.extend(decisions);
            let stands = |asked: &&Asked| placed(&piecewise).any(|order| order.id == asked.id);
            stock.standing.extend(batch.iter().filter(stands).map(|asked| standing(asked, NOW)));
            rest = others;
        }
        prop_assert_eq!(at_once, piecewise);
        prop_assert_eq!(whole.balances, stock.balances);
        prop_assert_eq!(whole.products, stock.products);
    }
}
