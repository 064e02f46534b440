mod spelling;

use super::*;

const BODY: &str = r#"{"lines":[{"sku":"TEA","quantity":2}],"payment":"balance"}"#;

fn json(body: &str) -> Result<Parsed, JsonError> {
    from_json(body.as_bytes(), false)
}

fn form(fields: &[(&str, &str)]) -> Result<Parsed, Vec<FieldError>> {
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    from_form(&fields, false)
}

/// The errors of a body that is well-formed but not valid.
fn wrong(body: &str) -> Vec<(String, Wrong)> {
    match json(body) {
        Err(JsonError::Invalid(errors)) => errors.into_iter().map(|e| (e.field, e.wrong)).collect(),
        other => panic!("{body}: {other:?}"),
    }
}

fn one(field: &str, wrong: Wrong) -> Vec<(String, Wrong)> {
    vec![(field.to_string(), wrong)]
}

fn with_quantity(value: &str) -> String {
    format!(r#"{{"lines":[{{"sku":"TEA","quantity":{value}}}],"payment":"balance"}}"#)
}

fn with_member(member: &str) -> String {
    format!(r#"{{"lines":[{{"sku":"TEA","quantity":2}}],"payment":"balance",{member}}}"#)
}

fn note_of(parsed: &Parsed) -> Option<&str> {
    parsed.order.note.as_ref().map(Note::as_str)
}

#[test]
fn a_body_is_read_whole() {
    let body = r#"{"lines":[{"sku":"TEA","quantity":2},{"quantity":1,"sku":"CUP"},{"sku":"TEA","quantity":3}],
        "payment":"card","payment_method":"pm_card_visa","reference":"A-1","note":"ring\r\ntwice"}"#;
    let order = from_json(body.as_bytes(), true).expect("valid").order;
    let lines: Vec<_> = order.lines.iter().map(|l| (l.sku.as_str(), l.quantity.get())).collect();
    assert_eq!(lines, [("CUP", 1), ("TEA", 5)]);
    assert_eq!(order.method, Method::Card);
    assert_eq!(order.payment_method.expect("sent").as_str(), "pm_card_visa");
    assert_eq!(order.reference.expect("sent").as_str(), "A-1");
    assert_eq!(order.note.expect("sent").as_str(), "ring\ntwice");
}

// G1
#[test]
fn a_json_quantity_that_is_no_whole_number_in_range_is_refused_by_its_pointer() {
    let huge = "9".repeat(10_000);
    for (value, expected) in [
        ("-1", QUANTITY_RANGE),
        ("0", QUANTITY_RANGE),
        ("-0.0", QUANTITY_RANGE),
        ("10001", QUANTITY_RANGE),
        ("1e400", QUANTITY_RANGE),
        ("-1e400", QUANTITY_RANGE),
        ("4294967297", QUANTITY_RANGE),
        ("18446744073709551617", QUANTITY_RANGE),
        (&huge, QUANTITY_RANGE),
        ("1.5", Wrong::NotWhole),
        ("1e-3", Wrong::NotWhole),
        ("1.0000000000000000001", Wrong::NotWhole),
        ("\"1\"", Wrong::Type("a number")),
        ("\"\"", Wrong::Type("a number")),
        ("\"１\"", Wrong::Type("a number")),
        ("true", Wrong::Type("a number")),
        ("[1]", Wrong::Type("a number")),
        ("{}", Wrong::Type("a number")),
        ("null", Wrong::Missing),
    ] {
        assert_eq!(wrong(&with_quantity(value)), one("/lines/0/quantity", expected), "{value}");
    }
}

// G1
#[test]
fn a_json_quantity_that_json_does_not_know_is_malformed() {
    for value in ["+1", "0x10", "NaN", "Infinity", "１", "٣", "01", "1.", ".5", "", "1 2", "-"] {
        assert!(matches!(json(&with_quantity(value)), Err(JsonError::Malformed(_))), "{value}");
    }
}

// G1
#[test]
fn a_form_quantity_is_ascii_digits_in_range() {
    let (huge, padded) = ("9".repeat(10_000), format!("{}7", "0".repeat(10_000)));
    let range = || Wrong::Range { min: 0, max: 10_000 };
    for (value, expected) in [
        ("-1", Wrong::NotWhole),
        ("−1", Wrong::NotWhole),
        (" 1", Wrong::NotWhole),
        ("1 ", Wrong::NotWhole),
        ("+1", Wrong::NotWhole),
        ("1.5", Wrong::NotWhole),
        ("1.0", Wrong::NotWhole),
        ("1e3", Wrong::NotWhole),
        ("0x10", Wrong::NotWhole),
        ("１", Wrong::NotWhole),
        ("٣", Wrong::NotWhole),
        ("NaN", Wrong::NotWhole),
        ("1\0", Wrong::NotWhole),
        ("10001", range()),
        ("4294967297", range()),
        (&huge, range()),
    ] {
        let expected = Err(vec![FieldError { field: "quantity[TEA]".into(), wrong: expected }]);
        assert_eq!(form(&[("quantity[TEA]", value), ("payment", "balance")]), expected, "{value}");
    }
    for (value, expected) in [("1", 1), ("007", 7), ("10000", 10_000), (&padded, 7)] {
        let parsed = form(&[("quantity[TEA]", value), ("payment", "balance")]).expect(value);
        assert_eq!(parsed.order.lines[0].quantity.get(), expected);
    }
}

// G1
#[test]
fn a_form_that_wants_nothing_says_so_at_quantity() {
    let nothing = Err(vec![FieldError { field: "quantity".into(), wrong: Wrong::Nothing }]);
    assert_eq!(form(&[("payment", "balance")]), nothing);
    assert_eq!(form(&[("quantity[TEA]", "0"), ("quantity[CUP]", ""), ("payment", "balance")]), nothing);
    let parsed =
        form(&[("quantity[TEA]", "0"), ("quantity[CUP]", "1"), ("payment", "balance")]).expect("one is wanted");
    assert_eq!(parsed.order.lines.len(), 1);
}

// G5
#[test]
fn a_price_or_state_from_outside_is_refused_in_json_and_ignored_in_a_form() {
    for name in ["price", "unit_price", "total", "status", "order_id", "user_id", "account_id", "Payment", ""] {
        let unknown = wrong(&with_member(&format!("\"{name}\":\"paid\"")));
        assert_eq!(unknown, one(&format!("/{name}"), Wrong::Unknown));
        let in_line = format!(r#"{{"lines":[{{"sku":"TEA","quantity":1,"{name}":1}}],"payment":"balance"}}"#);
        assert_eq!(wrong(&in_line), one(&format!("/lines/0/{name}"), Wrong::Unknown));
        let plain = form(&[("quantity[TEA]", "1"), ("payment", "balance")]).expect("valid");
        let extra = form(&[(name, "1"), ("quantity[TEA]", "1"), (name, "2"), ("payment", "balance")]);
        assert_eq!(extra.expect("ignored"), plain);
    }
}

#[test]
fn every_error_of_a_body_is_told_at_once() {
    let body = r#"{"lines":[{"quantity":0,"a/b~c":1},7,{"sku":"no blanks","quantity":"3"},null],"payment":"cheque",
        "payment_method":"","reference":"über","note":["x"],"price":null}"#;
    let fields: Vec<_> = wrong(body).into_iter().map(|(field, _)| field).collect();
    assert_eq!(
        fields,
        [
            "/lines/0/sku",
            "/lines/0/quantity",
            "/lines/0/a~1b~0c",
            "/lines/1",
            "/lines/2/sku",
            "/lines/2/quantity",
            "/lines/3",
            "/payment",
            "/payment_method",
            "/reference",
            "/note",
            "/price"
        ]
    );
    assert_eq!(wrong("{}"), [one("/lines", Wrong::Missing), one("/payment", Wrong::Missing)].concat());
    let many: Vec<_> = (0..5000).map(|i| format!("\"{i}\":0")).collect();
    assert_eq!(wrong(&format!("{{{}}}", many.join(","))).len(), MAX_ERRORS);
}

#[test]
fn a_body_that_is_no_object_is_wrong_as_a_whole() {
    for body in ["[]", "7", "\"x\"", "null", " true ", "1e999"] {
        assert_eq!(wrong(body), one("", Wrong::Type("an object")), "{body}");
    }
}

#[test]
fn what_breaks_syntax_or_encoding_is_malformed() {
    let twice = [
        with_member(r#""payment":"balance""#),
        with_member(r#""note":null,"note":"x""#),
        with_member(r#""note":"a","\u006eote":"b""#),
        with_member(r#""odd":{"deep":[{"a":1,"a":1}]}"#),
        r#"{"lines":[{"sku":"TEA","sku":"TEA","quantity":1}],"payment":"balance"}"#.into(),
        with_member(r#""note":"\ud83d""#),
        with_member(&format!("\"odd\":{}{}", "[".repeat(20_000), "]".repeat(20_000))),
        format!("{BODY} {BODY}"),
        format!("{BODY},"),
        BODY[..BODY.len() - 1].into(),
        String::new(),
        "quantity[TEA]=1".into(),
    ];
    for body in twice {
        assert!(matches!(json(&body), Err(JsonError::Malformed(_))), "{body:.200}");
    }
    let latin = [BODY.as_bytes(), b"\xe9"].concat();
    assert!(matches!(from_json(&latin, false), Err(JsonError::Malformed(_))));
}

#[test]
fn lines_are_counted_as_sent_and_quantities_as_added_up() {
    let lines = |n: usize, quantity: u32| {
        let line = format!(r#"{{"sku":"TEA","quantity":{quantity}}}"#);
        format!(r#"{{"lines":[{}],"payment":"balance"}}"#, vec![line; n].join(","))
    };
    assert_eq!(json(&lines(50, 200)).expect("valid").order.lines[0].quantity.get(), 10_000);
    assert_eq!(wrong(&lines(0, 1)), one("/lines", Wrong::Nothing));
    assert_eq!(wrong(&lines(51, 1)), one("/lines", Wrong::Form("1 to 50 lines")));
    assert_eq!(wrong(&lines(2, 5001)), one("/lines/1/quantity", QUANTITY_RANGE));
    let fields: Vec<_> = (0..51).map(|i| (format!("quantity[{i}]"), "1".to_string())).collect();
    let payment = [("payment".to_string(), "balance".to_string())];
    assert!(from_form(&[&fields[..50], &payment].concat(), false).is_ok());
    let errors = from_form(&[&fields[..], &payment].concat(), false).expect_err("too many");
    assert_eq!(errors.iter().map(|e| e.field.as_str()).collect::<Vec<_>>(), ["quantity"]);
}

#[test]
fn texts_have_limits_and_null_or_empty_is_none() {
    let text = |member: &str, n: usize| with_member(&format!("\"{member}\":\"{}\"", "x".repeat(n)));
    for (member, max) in [("reference", 64), ("note", 500), ("payment_method", 255)] {
        assert!(json(&text(member, max)).is_ok(), "{member}");
        assert_eq!(wrong(&text(member, max + 1))[0].0, format!("/{member}"));
        for value in ["7", "true", "{}"] {
            let body = with_member(&format!("\"{member}\":{value}"));
            assert_eq!(wrong(&body), one(&format!("/{member}"), Wrong::Type("a string")));
        }
        assert_eq!(json(&with_member(&format!("\"{member}\":null"))), json(BODY));
    }
    for member in ["reference", "note"] {
        assert_eq!(json(&text(member, 0)), json(BODY), "{member}");
    }
    assert_eq!(wrong(&text("payment_method", 0)).len(), 1);
    for sku in ["", "a b", "T\u{c9}A", "a/b", &"x".repeat(41)] {
        let body = format!(r#"{{"lines":[{{"sku":"{sku}","quantity":1}}],"payment":"balance"}}"#);
        assert_eq!(wrong(&body)[0].0, "/lines/0/sku", "{sku}");
    }
}

#[test]
fn a_note_counts_line_breaks_as_one_and_has_no_other_controls() {
    let long = "ü\r\n".repeat(250);
    for (sent, kept) in
        [("a\r\nb\rc\nd\n\r\te", "a\nb\nc\nd\n\n\te"), (&long, &"ü\n".repeat(250)), ("\r", "\n"), (" ", " ")]
    {
        let parsed = form(&[("quantity[TEA]", "2"), ("payment", "balance"), ("note", sent)]).expect(sent);
        assert_eq!(note_of(&parsed), Some(kept));
        assert_eq!(json(&with_member(&format!("\"note\":{}", serde_json::json!(sent)))), Ok(parsed));
    }
    for sent in ["\0", "a\u{1b}[2Jb", "\u{b}", "\u{7f}", "\u{85}", &"\r\n".repeat(501)] {
        let errors = form(&[("quantity[TEA]", "2"), ("payment", "balance"), ("note", sent)]).expect_err("refused");
        assert_eq!(errors[0].field, "note");
        assert_eq!(wrong(&with_member(&format!("\"note\":{}", serde_json::json!(sent))))[0].0, "/note");
    }
}

#[test]
fn the_payment_is_a_known_word_that_is_offered() {
    let body = |word: &str| format!(r#"{{"lines":[{{"sku":"TEA","quantity":2}}],"payment":{word}}}"#);
    assert!(from_json(body("\"card\"").as_bytes(), true).is_ok());
    assert_eq!(wrong(&body("\"card\"")), one("/payment", Wrong::NotOffered));
    assert_eq!(wrong(&body("\"Balance\"")), one("/payment", Wrong::Method { card: false }));
    assert_eq!(wrong(&body("\"\"")), one("/payment", Wrong::Method { card: false }));
    assert_eq!(wrong(&body("null")), one("/payment", Wrong::Missing));
    assert_eq!(wrong(&body("1")), one("/payment", Wrong::Type("a string")));
    for (word, expected) in [
        ("card", Wrong::NotOffered),
        ("", Wrong::Missing),
        ("bal\0ance", Wrong::Method { card: false }),
        (" balance", Wrong::Method { card: false }),
    ] {
        let errors = form(&[("quantity[TEA]", "2"), ("payment", word)]);
        assert_eq!(errors, Err(vec![FieldError { field: "payment".into(), wrong: expected }]), "{word}");
    }
}

#[test]
fn a_form_field_sent_twice_or_misnamed_is_refused_by_its_name() {
    for (name, expected) in [
        ("payment", Wrong::Repeated),
        ("note", Wrong::Repeated),
        ("quantity[TEA]", Wrong::Repeated),
        ("quantity[CUP]", Wrong::Repeated),
    ] {
        let fields =
            [("quantity[TEA]", "2"), ("payment", "balance"), ("note", ""), ("quantity[CUP]", "0"), (name, "balance")];
        assert_eq!(form(&fields), Err(vec![FieldError { field: name.into(), wrong: expected }]));
    }
    for name in [
        "quantity[TEA",
        "quantity[]",
        "quantity[a b]",
        "quantity[TEA]x",
        "quantity[[TEA]]",
        "quantity[",
        "quantity[\0]",
    ] {
        let expected = Err(vec![FieldError { field: name.into(), wrong: Wrong::Unknown }]);
        assert_eq!(form(&[("quantity[TEA]", "2"), ("payment", "balance"), (name, "0")]), expected, "{name}");
    }
    let ignored = [
        ("quantity", "x"),
        ("Quantity[TEA]", "x"),
        ("form_token", "1"),
        ("form_token", "2"),
        ("again", "yes"),
        ("reference", "R"),
    ];
    let fields = [&[("quantity[TEA]", "2"), ("payment", "balance")][..], &ignored].concat();
    assert_eq!(form(&fields), Ok(json(BODY).expect("valid")));
}
