//! Buyers with a browser: the order form is fetched and then sent, and both together count as one.

use std::io::Write as _;

use anyhow::Result;

use crate::clients::{Client, Shared};
use crate::http::{Answer, Connection};
use crate::orders::wrong;
use crate::shop::sku;
use crate::tally::Outcome;

const SESSION: &[u8] = b"oncegate_session=";

/// A client with many visitors, each with a cookie of its own: orders of one visitor within minutes would be taken for
/// repeats, and no visitor orders a thousand times.
pub struct Form {
    /// One for each visitor; empty until its first visit.
    jar: Vec<Vec<u8>>,
    products: u32,
    sent: u64,
    request: Vec<u8>,
}

impl Form {
    /// A client with so many visitors, in a shop of so many products.
    pub fn new(visitors: usize, products: u32) -> Self {
        Self { jar: vec![Vec::new(); visitors.max(1)], products, sent: 0, request: Vec::new() }
    }

    fn write(&mut self, line: &str, visitor: usize, body: &[u8]) {
        let request = &mut self.request;
        request.clear();
        let _ = write!(request, "{line} HTTP/1.1\r\nHost: bench\r\nSec-Fetch-Site: same-origin\r\n");
        if !self.jar[visitor].is_empty() {
            request.extend_from_slice(b"Cookie: ");
            request.extend_from_slice(&self.jar[visitor]);
            request.extend_from_slice(b"\r\n");
        }
        if !body.is_empty() {
            let kind = "application/x-www-form-urlencoded";
            let _ = write!(request, "Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
        }
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(body);
    }

    /// What the buyer sends back: the hidden fields, one product, and a note that no other order has (the same content
    /// twice is asked about).
    fn filled_in(&self, page: &[u8]) -> Option<Vec<u8>> {
        let (token, key) = (hidden(page, b"form_token")?, hidden(page, b"idempotency_key")?);
        let product = sku(fastrand::u32(1..=self.products));
        let mut body = Vec::with_capacity(256);
        body.extend_from_slice(b"form_token=");
        body.extend_from_slice(token);
        body.extend_from_slice(b"&idempotency_key=");
        body.extend_from_slice(key);
        let _ = write!(body, "&quantity%5B{product}%5D=1&payment=balance&note=order+{}", self.sent);
        Some(body)
    }
}

/// The value of a hidden field.
fn hidden<'a>(page: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    const BEFORE: &[u8] = b"<input type=\"hidden\" name=\"";
    const BETWEEN: &[u8] = b"\" value=\"";
    // Both fields stand before the goods, so a large page is not searched to its end.
    let start = page
        .windows(BEFORE.len() + name.len())
        .position(|part| part.strip_prefix(BEFORE).is_some_and(|rest| rest == name))?;
    let value = page[start + BEFORE.len() + name.len()..].strip_prefix(BETWEEN)?;
    Some(&value[..value.iter().position(|byte| *byte == b'"')?])
}

/// The id in the answer that sends the buyer to a new order.
fn ordered<'a>(answer: &Answer<'a>) -> Option<&'a [u8]> {
    let id = answer.location.strip_prefix(b"/orders/")?;
    (answer.status == 303 && id.len() == 36).then_some(id)
}

impl Client for Form {
    async fn work(&mut self, connection: &mut Connection, tally: &Shared) -> Result<Outcome> {
        let visitor = fastrand::usize(..self.jar.len());
        self.sent += 1;
        self.write("GET /orders/new", visitor, b"");
        let page = connection.exchange(&self.request).await?;
        if page.cookie.starts_with(SESSION) {
            self.jar[visitor] = page.cookie.to_vec();
        }
        let filled_in = if page.status == 200 { self.filled_in(page.body) } else { None };
        let Some(body) = filled_in else { return Ok(wrong(&page)) };
        self.write("POST /orders", visitor, &body);
        let answer = connection.exchange(&self.request).await?;
        let Some(id) = ordered(&answer) else { return Ok(wrong(&answer)) };
        tally.borrow_mut().note(id);
        Ok(Outcome::Right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_field_is_found_by_its_name() {
        let page = br#"<form><input type="hidden" name="form_token" value="T" autocomplete="off">
            <input type="hidden" name="idempotency_key" value="K-1" autocomplete="off">"#;
        assert_eq!(hidden(page, b"form_token"), Some(&b"T"[..]));
        assert_eq!(hidden(page, b"idempotency_key"), Some(&b"K-1"[..]));
        assert_eq!(hidden(page, b"again"), None);
    }
}
