//! One request has many spellings and one fingerprint; two requests never share one.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::sample::Index;

use super::{form, json};
use crate::order::request::{Parsed, from_form, from_json};
use crate::order::values::{Note, PaymentToken, Quantity, Reference, Sku};
use crate::order::{Method, NewOrder, Wanted, fingerprint};

// C9
#[test]
fn the_spelling_of_a_request_does_not_show_in_its_fingerprint() {
    let plain = json(
        r#"{"lines":[{"sku":"A","quantity":1},{"sku":"B","quantity":1000}],"payment":"balance","note":"für\tdich"}"#,
    )
    .expect("valid");
    for other in [
        r#"{"note":"für\tdich","payment":"balance","lines":[{"quantity":1000,"sku":"B"},{"quantity":1,"sku":"A"}]}"#,
        "\n{ \"lines\" :\t[ {\"sku\":\"A\", \"quantity\": 1 } ,\r\n{\"sku\":\"B\",\"quantity\":1000}], \"payment\":\"balance\",\"note\":\"für\\tdich\"} ",
        r#"{"lines":[{"sku":"A","quantity":1.0},{"sku":"B","quantity":1e3}],"payment":"balance","note":"für\tdich"}"#,
        r#"{"lines":[{"sku":"A","quantity":10e-1},{"sku":"B","quantity":999},{"sku":"B","quantity":1}],"payment":"balance","note":"für\tdich"}"#,
        r#"{"\u006cines":[{"sku":"\u0041","quantity":1},{"sku":"B","quantity":1000}],"payment":"balance","note":"f\u00fcr\u0009dich"}"#,
        r#"{"lines":[{"sku":"A","quantity":1},{"sku":"B","quantity":1000}],"payment":"balance","note":"für\tdich","reference":null,"payment_method":null}"#,
    ] {
        assert_eq!(json(other).as_ref(), Ok(&plain), "{other}");
    }
    let fields = [
        ("note", "für\tdich"),
        ("quantity[B]", "01000"),
        ("quantity[C]", "0"),
        ("payment", "balance"),
        ("quantity[A]", "1"),
    ];
    assert_eq!(form(&fields), Ok(plain));
}

#[test]
fn fingerprints_are_the_same_in_every_release() {
    let full = br#"{"lines":[{"sku":"TEA","quantity":2},{"sku":"CUP","quantity":1}],"payment":"card","payment_method":"pm_card_visa",
        "reference":"A-1","note":"ring\ntwice"}"#;
    let full = from_json(full, true).expect("valid").fingerprint;
    assert_eq!(full.as_str(), "1:d85a0af81571aecc97c8799158a0f217a8f8c666a010c2956a96b0ae8c836745");
    let bare = form(&[("quantity[TEA]", "2"), ("payment", "balance")]).expect("valid").fingerprint;
    assert_eq!(bare.as_str(), "1:6aae3e9205fb440815e05e9bf5d0fef6f2385486b7e99b99b275235b6db25b8f");
}

fn an_order() -> impl Strategy<Value = NewOrder> {
    let sku = proptest::string::string_regex("[A-Za-z0-9._-]{1,6}").expect("a pattern");
    let quantity = prop_oneof![4 => 1..=20_u32, 1 => 1..=10_000_u32];
    let note = prop_oneof![Just(String::new()), "[ -~\n\t]{0,20}", "\\PC{0,20}"];
    (
        proptest::collection::btree_map(sku, quantity, 1..6),
        any::<bool>(),
        proptest::option::of("[!-~]{1,12}"),
        proptest::option::of("[!-~]{1,12}"),
        note,
    )
        .prop_map(|(lines, card, token, reference, note)| NewOrder {
            lines: lines.into_iter().map(|(sku, quantity)| wanted(&sku, quantity)).collect(),
            method: if card { Method::Card } else { Method::Balance },
            payment_method: token.and_then(|t| PaymentToken::parse(&t)),
            reference: reference.and_then(|t| Reference::parse(&t)),
            note: Note::parse(&note),
        })
}

fn wanted(sku: &str, quantity: u32) -> Wanted {
    Wanted { sku: Sku::parse(sku).expect("fits"), quantity: Quantity::new(quantity).expect("fits") }
}

/// Spells an order as JSON, each choice made by the next of the given numbers.
struct Speller<'a> {
    choices: &'a [u8],
    next: Cell<usize>,
}

impl Speller<'_> {
    fn choose(&self, n: usize) -> usize {
        let i = self.next.replace(self.next.get() + 1);
        usize::from(self.choices[i % self.choices.len()]).wrapping_add(i / self.choices.len()) % n
    }

    fn space(&self) -> &'static str {
        ["", "", " ", "\n", "\t\r "][self.choose(5)]
    }

    fn string(&self, text: &str) -> String {
        let spell = |c: char| match (c, self.choose(4)) {
            ('"' | '\\', 0) => format!("\\{c}"),
            ('\n', 0) => "\\n".into(),
            ('/', 0) => "\\/".into(),
            ('"' | '\\' | '\0'..='\u{1f}', _) | (_, 1) => {
                c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04X}")).collect()
            }
            _ => c.to_string(),
        };
        format!("\"{}\"", text.chars().map(spell).collect::<String>())
    }

    fn number(&self, n: u32) -> String {
        match self.choose(7) {
            0 => format!("{n}.0"),
            1 => format!("{n}e0"),
            2 => format!("{n}0e-1"),
            3 => format!("{n}.000E+00"),
            4 => format!("0.{n:05}e5"),
            5 if n.is_multiple_of(10) => format!("{}e1", n / 10),
            _ => n.to_string(),
        }
    }

    fn object(&self, mut members: Vec<(&str, String)>) -> String {
        for i in (1..members.len()).rev() {
            members.swap(i, self.choose(i + 1));
        }
        let member = |(name, value): (&str, String)| {
            format!("{0}{1}{0}:{2}{value}{2}", self.space(), self.string(name), self.space())
        };
        format!("{{{}}}", members.into_iter().map(member).collect::<Vec<_>>().join(","))
    }

    fn order(&self, order: &NewOrder) -> String {
        let mut lines = Vec::new();
        for line in &order.lines {
            let mut left = line.quantity.get();
            while left > 1 && lines.len() < 30 && self.choose(3) == 0 {
                lines.push((line.sku.as_str(), 1));
                left -= 1;
            }
            lines.insert(self.choose(lines.len() + 1), (line.sku.as_str(), left));
        }
        let line = |(sku, n)| self.object(vec![("sku", self.string(sku)), ("quantity", self.number(n))]);
        let lines: Vec<_> = lines.into_iter().map(line).collect();
        let mut members =
            vec![("lines", format!("[{}]", lines.join(","))), ("payment", self.string(order.method.as_str()))];
        let optional = [
            ("payment_method", order.payment_method.as_ref().map(PaymentToken::as_str)),
            ("reference", order.reference.as_ref().map(Reference::as_str)),
            ("note", order.note.as_ref().map(Note::as_str)),
        ];
        for (name, value) in optional {
            match value {
                Some(value) => members.push((name, self.string(value))),
                None if self.choose(2) == 0 => members.push((name, "null".into())),
                None => {}
            }
        }
        self.object(members)
    }
}

/// The order with one field changed to something else.
fn changed(mut order: NewOrder, field: usize, line: Index) -> NewOrder {
    let line = line.index(order.lines.len());
    match field {
        0 => order.lines[line].quantity = wanted("A", order.lines[line].quantity.get() % 10_000 + 1).quantity,
        1 => order.lines[line].sku = wanted("longer-than-any", 1).sku,
        2 => order.lines.push(wanted("longer-than-any", 1)),
        3 => order.method = if order.method == Method::Card { Method::Balance } else { Method::Card },
        4 => {
            let token = text(order.payment_method.as_ref().map(PaymentToken::as_str));
            order.payment_method = PaymentToken::parse(&format!("{token}x"));
        }
        5 => order.reference = Reference::parse(&format!("{}x", text(order.reference.as_ref().map(Reference::as_str)))),
        6 => order.note = Note::parse(&format!("{}x", text(order.note.as_ref().map(Note::as_str)))),
        7 if order.reference.is_some() != order.payment_method.is_some() => {
            let token = order.reference.as_ref().and_then(|r| PaymentToken::parse(r.as_str()));
            order.reference = order.payment_method.as_ref().and_then(|t| Reference::parse(t.as_str()));
            order.payment_method = token;
        }
        _ => order.lines.insert(0, wanted("-", 10_000)),
    }
    order
}

fn text(value: Option<&str>) -> &str {
    value.unwrap_or_default()
}

proptest! {
    #[test]
    fn any_spelling_of_an_order_is_read_as_that_order(order in an_order(), choices in proptest::collection::vec(any::<u8>(), 1..200)) {
        let body = Speller { choices: &choices, next: Cell::new(0) }.order(&order);
        let parsed = from_json(body.as_bytes(), true);
        prop_assert_eq!(parsed, Ok(Parsed { fingerprint: fingerprint::place_order(&order), order }), "{}", body);
    }

    #[test]
    fn a_form_and_a_body_of_the_same_content_are_the_same(order in an_order(), rotate in any::<Index>()) {
        let order = NewOrder { payment_method: None, reference: None, ..order };
        let note = text(order.note.as_ref().map(Note::as_str)).replace('\n', "\r\n");
        let mut fields = vec![("payment".to_string(), order.method.as_str().to_string()), ("note".into(), note)];
        fields.extend(order.lines.iter().map(|l| (format!("quantity[{}]", l.sku), l.quantity.get().to_string())));
        let n = rotate.index(fields.len());
        fields.rotate_left(n);
        prop_assert_eq!(from_form(&fields, true), Ok(Parsed { fingerprint: fingerprint::place_order(&order), order }));
    }

    #[test]
    fn any_change_of_one_field_is_another_request(order in an_order(), field in 0..9_usize, line in any::<Index>()) {
        let other = changed(order.clone(), field, line);
        prop_assert_ne!(&order, &other);
        prop_assert_ne!(fingerprint::place_order(&order), fingerprint::place_order(&other));
    }

    #[test]
    fn no_bytes_make_the_json_reader_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = from_json(&body, true);
    }

    #[test]
    fn no_text_like_json_makes_the_json_reader_panic(
        parts in proptest::collection::vec(prop_oneof![
            Just("{"), Just("}"), Just("["), Just("]"), Just(","), Just(":"), Just("\"lines\":["), Just("\"payment\":"), Just("\"sku\""),
            Just("\"quantity\":"), Just("\"balance\""), Just("\"\\ud800\""), Just("\"\\u00"), Just("null"), Just("-"), Just("0"), Just("1e"),
            Just("9.5e-99999999999999999999"), Just("\"note\":"), Just("\"\u{1f600}\""), Just(" "),
        ], 0..40),
    ) {
        let _ = from_json(parts.concat().as_bytes(), true);
    }

    #[test]
    fn what_is_read_from_a_damaged_body_is_within_the_limits(order in an_order(), at in any::<Index>(), byte in any::<u8>()) {
        let mut body = Speller { choices: &[0], next: Cell::new(0) }.order(&order).into_bytes();
        let at = at.index(body.len());
        body[at] = byte;
        if let Ok(Parsed { order, .. }) = from_json(&body, true) {
            prop_assert!((1..=50).contains(&order.lines.len()));
            prop_assert!(order.lines.is_sorted_by(|a, b| a.sku < b.sku));
        }
    }

    #[test]
    fn no_fields_make_the_form_reader_panic(fields in proptest::collection::vec(
        (prop_oneof!["\\PC{0,12}", "quantity\\[[A-Z.\\]\\[é\0]{0,4}\\]?", Just("payment".to_string()), Just("note".into())], "\\PC{0,12}|[0-9]{0,30}|.{0,4}"),
        0..12,
    )) {
        if let Ok(parsed) = from_form(&fields, true) {
            prop_assert!(!parsed.order.lines.is_empty());
        }
    }
}
