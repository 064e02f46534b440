//! The catalogue as a file of comma-separated values (RFC 4180), and the demo catalogue, which is one.
//!
//! A file is taken whole or not at all: the first bad line is named. A byte order mark and `\r\n` are what spreadsheets
//! write, so both are accepted. Deliberately absent: other columns, other orders of them, guesses.

use std::collections::HashSet;

use csv::{ErrorKind, ReaderBuilder, StringRecord};
use thiserror::Error;

use crate::order::Product;
use crate::order::values::{Currency, MAX_TOTAL, Sku};

/// The header line, exactly.
pub const HEADER: [&str; 5] = ["sku", "name", "unit_price", "currency", "stock"];
/// The longest name of a product, in code points: it has to fit a line of a page.
const MAX_NAME: usize = 200;
/// The most units of a product in stock.
pub const MAX_STOCK: i64 = 1_000_000_000_000;

const DEMO: &str = include_str!("demo.csv");

/// The first line that cannot be taken.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("line {line}: {what}")]
pub struct BadLine {
    /// Its number, from 1 (the header).
    pub line: u64,
    /// What is wrong with it.
    pub what: String,
}

/// The products of the embedded default: something to order for whoever tries the service.
#[must_use]
pub fn demo() -> Vec<Product> {
    read(DEMO.as_bytes()).expect("the demo catalogue is part of the program, and a test reads it")
}

/// Reads a catalogue.
///
/// # Errors
/// The first bad line; nothing of the file is to be used then.
pub fn read(file: &[u8]) -> Result<Vec<Product>, BadLine> {
    let file = file.strip_prefix(b"\xef\xbb\xbf").unwrap_or(file);
    let mut lines = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(file).into_records();
    match lines.next().transpose().map_err(|e| unreadable(&e))? {
        Some(header) if header == *HEADER.as_slice() => {}
        _ => return Err(BadLine { line: 1, what: format!("the header has to be {}", HEADER.join(",")) }),
    }
    let mut seen = HashSet::new();
    let mut products = Vec::new();
    for record in lines {
        let record = record.map_err(|e| unreadable(&e))?;
        let bad = |what| BadLine { line: record.position().map_or(0, csv::Position::line), what };
        let product = product(&record).map_err(bad)?;
        if !seen.insert(product.sku.clone()) {
            return Err(bad(format!("sku {} is there twice", product.sku)));
        }
        products.push(product);
    }
    Ok(products)
}

fn unreadable(error: &csv::Error) -> BadLine {
    let what = match error.kind() {
        ErrorKind::Utf8 { .. } => "is not UTF-8".to_owned(),
        _ => error.to_string(),
    };
    BadLine { line: error.position().map_or(0, csv::Position::line), what }
}

fn product(record: &StringRecord) -> Result<Product, String> {
    let fields: Vec<&str> = record.iter().collect();
    let [sku, name, unit_price, currency, stock] = fields[..] else {
        return Err(format!("has {} fields instead of {}", fields.len(), HEADER.len()));
    };
    let wrong = |field: &str, given: &str, allowed: &str| format!("{field} is {given:?}; allowed: {allowed}");
    let number = |field: &str, given: &str, max: i64| {
        parse_units(given, max).ok_or_else(|| wrong(field, given, &format!("a whole number from 0 to {max}")))
    };
    Ok(Product {
        sku: Sku::parse(sku).ok_or_else(|| wrong("sku", sku, "1 to 40 of A-Z a-z 0-9 . _ -"))?,
        name: is_name(name)
            .then(|| name.to_owned())
            .ok_or_else(|| wrong("name", name, "1 to 200 characters, none of them a control character"))?,
        unit_price: number("unit_price", unit_price, MAX_TOTAL)?,
        currency: Currency::parse(currency).ok_or_else(|| wrong("currency", currency, "three capital letters"))?,
        stock: number("stock", stock, MAX_STOCK)?,
    })
}

fn is_name(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().count() <= MAX_NAME && !text.chars().any(char::is_control)
}

/// A whole number from 0 to `max`, in digits only.
#[must_use]
pub fn parse_units(text: &str, max: i64) -> Option<i64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|n| digits && (0..=max).contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "sku,name,unit_price,currency,stock\n";

    fn bad_line(body: &str) -> (u64, String) {
        let bad = read(format!("{HEAD}{body}").as_bytes()).unwrap_err();
        (bad.line, bad.what)
    }

    #[test]
    fn the_demo_catalogue_is_one_currency_and_has_something_scarce() {
        let demo = demo();
        assert_eq!(demo.len(), 8);
        assert!(demo.iter().all(|p| p.currency.as_str() == "EUR" && p.unit_price > 0 && p.stock > 0));
        assert!(demo.iter().any(|p| p.stock < 10));
    }

    #[test]
    fn what_a_spreadsheet_writes_is_taken() {
        let file = "\u{feff}sku,name,unit_price,currency,stock\r\nA-1,\"Cup, \"\"blue\"\"\",0,EUR,7\r\n\r\n";
        let products = read(file.as_bytes()).unwrap();
        assert_eq!(products.len(), 1);
        assert_eq!((products[0].name.as_str(), products[0].unit_price, products[0].stock), ("Cup, \"blue\"", 0, 7));
        assert_eq!(read(HEAD.as_bytes()), Ok(vec![]));
    }

    #[test]
    fn every_bad_value_is_named_with_its_line() {
        for (line, what) in [
            ("A,Cup,100,EUR,1\nB,Cup,-1,EUR,1", "unit_price"),
            ("A,Cup,100,EUR,1\nB,Cup,1.5,EUR,1", "unit_price"),
            ("A,Cup,100,EUR,1\nB,Cup,+1,EUR,1", "unit_price"),
            ("A,Cup,100,EUR,1\nB,Cup,1000000000001,EUR,1", "unit_price"),
            ("A,Cup,100,EUR,1\nB,Cup,1,eur,1", "currency"),
            ("A,Cup,100,EUR,1\nB,Cup,1,EUR,", "stock"),
            ("A,Cup,100,EUR,1\nB,Cup,1,EUR,99999999999999999999", "stock"),
            ("A,Cup,100,EUR,1\nB, ,1,EUR,1", "name"),
            ("A,Cup,100,EUR,1\nB,\"a\nb\",1,EUR,1", "name"),
            ("A,Cup,100,EUR,1\n,Cup,1,EUR,1", "sku"),
            ("A,Cup,100,EUR,1\nB b,Cup,1,EUR,1", "sku"),
            ("A,Cup,100,EUR,1\nB,Cup,1,EUR", "4 fields"),
            ("A,Cup,100,EUR,1\nB,Cup,1,EUR,1,", "6 fields"),
            ("A,Cup,100,EUR,1\nA,Cup,1,EUR,1", "twice"),
        ] {
            let (number, said) = bad_line(line);
            assert_eq!(number, 3, "{line:?}: {said}");
            assert!(said.contains(what), "{line:?}: {said}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_named_with_their_line() {
        let file = [HEAD.as_bytes(), b"A,C\xffp,1,EUR,1\n"].concat();
        assert_eq!(read(&file), Err(BadLine { line: 2, what: "is not UTF-8".to_owned() }));
    }

    #[test]
    fn the_header_is_exact() {
        for header in [
            "",
            "sku,name,unit_price,currency\n",
            "name,sku,unit_price,currency,stock\n",
            "SKU,name,unit_price,currency,stock\n",
            "A,Cup,100,EUR,1\n",
        ] {
            assert_eq!(read(header.as_bytes()).unwrap_err().line, 1, "{header:?}");
        }
    }
}
