//! What a buyer typed: the body of `POST /orders` as fields, kept as they came so that every page can give them back.

use std::collections::BTreeMap;

use axum::extract::rejection::BytesRejection;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use percent_encoding::percent_decode;

use crate::order::request::{self, FieldError, Parsed, Wrong};
use crate::order::values::{Key, MAX_LINES, Sku};

use super::pages::Message;

/// Name of the hidden field that holds the form token.
pub const TOKEN: &str = "form_token";
/// Name of the hidden field that holds the idempotency key.
pub const KEY: &str = "idempotency_key";
/// Name of the hidden field with which a buyer confirms a second order of the same content.
pub const AGAIN: &str = "again";

/// The fields of a submitted form in their order; none of an empty one.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    fields: Vec<(String, String)>,
    first: BTreeMap<String, String>,
}

impl Draft {
    /// Takes the body of a form.
    ///
    /// # Errors
    /// The page that says why it is none: 415, 413, or 400.
    pub fn read(headers: &HeaderMap, body: Result<Bytes, BytesRejection>) -> Result<Self, Message> {
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let essence = kind.split(';').next().unwrap_or_default().trim();
        if !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(Message::NotAForm);
        }
        let body = body.map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Message::TooLarge,
            _ => Message::Broken,
        })?;
        let fields = decode(&body).ok_or(Message::Broken)?;
        let mut first = BTreeMap::new();
        for (name, value) in &fields {
            first.entry(name.clone()).or_insert_with(|| value.clone());
        }
        Ok(Self { fields, first })
    }

    /// What is asked for, or every field that is wrong, those among them that may be there only once. `card`: whether
    /// card payment is offered.
    ///
    /// # Errors
    /// Every field that is wrong.
    pub fn parse(&self, card: bool) -> Result<Parsed, Vec<FieldError>> {
        let repeated = [TOKEN, KEY, AGAIN]
            .into_iter()
            .filter(|name| self.fields.iter().filter(|(n, _)| n == name).nth(1).is_some())
            .map(|name| FieldError { field: name.to_owned(), wrong: Wrong::Repeated });
        let mut wrong: Vec<FieldError> = repeated.collect();
        match request::from_form(&self.fields, card) {
            Ok(parsed) if wrong.is_empty() => Ok(parsed),
            Ok(_) => Err(wrong),
            Err(more) => {
                wrong.extend(more);
                Err(wrong)
            }
        }
    }

    /// All fields in their order, as they came.
    #[must_use]
    pub fn fields(&self) -> &[(String, String)] {
        &self.fields
    }

    /// What was typed into a field, as it came; empty where the field was not sent.
    #[must_use]
    pub fn typed(&self, field: &str) -> &str {
        self.first.get(field).map_or("", String::as_str)
    }

    /// The form token that was sent, if one was.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.first.get(TOKEN).map(String::as_str).filter(|token| !token.is_empty())
    }

    /// The key that was sent, if it is one. `.` and `..` are none here: browsers take them out of an address, so no page
    /// could be found under them.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        Key::parse(self.typed(KEY)).filter(|key| !matches!(key.as_str(), "." | ".."))
    }

    /// Whether the buyer confirmed that the same may be ordered once more.
    #[must_use]
    pub fn again(&self) -> bool {
        self.typed(AGAIN) == "yes"
    }

    /// What was wanted, as far as it can be a product: SKU and the number as typed. At most as many as an order may
    /// have lines.
    pub fn wanted(&self) -> impl Iterator<Item = (Sku, &str)> {
        self.first
            .range("quantity[".to_owned()..)
            .map_while(|(name, typed)| Some((name.strip_prefix("quantity[")?, typed.as_str())))
            .filter(|(_, typed)| !matches!(*typed, "" | "0"))
            .filter_map(|(rest, typed)| Some((Sku::parse(rest.strip_suffix(']')?)?, typed)))
            .take(MAX_LINES)
    }
}

/// Splits and decodes a form's body (WHATWG URL standard, section 5.1); `None` where a percent sequence is not UTF-8,
/// which the usual decoders replace silently.
fn decode(body: &[u8]) -> Option<Vec<(String, String)>> {
    let text = |part: &[u8]| {
        let spaced: Vec<u8> = part.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
        String::from_utf8(percent_decode(&spaced).collect()).ok()
    };
    body.split(|byte| *byte == b'&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let mut halves = pair.splitn(2, |byte| *byte == b'=');
            Some((text(halves.next()?)?, text(halves.next().unwrap_or_default())?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: &str, body: &'static [u8]) -> Result<Draft, Message> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, kind.parse().unwrap());
        Draft::read(&headers, Ok(Bytes::from_static(body)))
    }

    const FORM: &str = "application/x-www-form-urlencoded";

    #[test]
    fn plus_percent_and_bare_names_are_read_as_browsers_write_them() {
        let draft =
            read("Application/X-WWW-Form-Urlencoded; charset=UTF-8", b"note=a+b%2Bc%20%C3%A4&&quantity%5BTEA%5D=2&x")
                .unwrap();
        assert_eq!(draft.typed("note"), "a b+c ä");
        assert_eq!(draft.typed("quantity[TEA]"), "2");
        assert_eq!(draft.typed("x"), "");
        assert_eq!(draft.fields.len(), 3);
    }

    #[test]
    fn what_is_no_form_or_not_utf8_is_said_so() {
        assert!(matches!(read("application/json", b"{}"), Err(Message::NotAForm)));
        assert!(matches!(read(FORM, b"note=%FF"), Err(Message::Broken)));
        assert!(matches!(read(FORM, b"note=\xff"), Err(Message::Broken)));
        assert_eq!(read(FORM, b"note=%zz%").unwrap().typed("note"), "%zz%", "as browsers do");
    }

    #[test]
    fn a_key_that_no_address_can_hold_is_none() {
        for key in ["", ".", "..", "%00", "a%20b", "%C3%A4"] {
            let body: &'static [u8] = Box::leak(format!("idempotency_key={key}").into_bytes().into_boxed_slice());
            assert_eq!(read(FORM, body).unwrap().key(), None, "{key}");
        }
        assert_eq!(read(FORM, b"idempotency_key=%2F%25%22").unwrap().key().unwrap().as_str(), "/%\"");
    }

    #[test]
    fn only_what_can_be_a_product_comes_back_as_wanted() {
        let draft =
            read(FORM, b"quantity[B]=2&quantity[A]=x&quantity[C]=0&quantity[D]=&quantity[a b]=1&quantity[E=1&note=n")
                .unwrap();
        let wanted: Vec<_> = draft.wanted().map(|(sku, typed)| format!("{sku}={typed}")).collect();
        assert_eq!(wanted, ["A=x", "B=2"]);
    }
}
