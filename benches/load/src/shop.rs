//! What the database holds for a run (see benches/sql): accounts with their bearer tokens, products, finished orders; and
//! the requests of the API that speak of them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Bytes of a UUID as text.
const ID: usize = 36;
const BEFORE_ID: &[u8] = b"{\"id\":\"";
const AFTER_ID: &[u8] = b"\",\"status\":\"paid\"";

/// The accounts and products. The token at place 0 is that of an account without funds.
pub struct Shop {
    tokens: Vec<String>,
    /// How many accounts have funds: those at 1, 2, …
    pub accounts: u32,
    /// How many products are in stock: those at 1, 2, …
    pub products: u32,
}

/// A product of an order: its SKU and how many.
pub type Line<'a> = (&'a str, u32);

/// The SKU of a product that is in stock.
pub fn sku(product: u32) -> String {
    format!("sku-{product:05}")
}

/// The SKU that is never in stock.
pub const SOLD_OUT: &str = "sold-out";

impl Shop {
    /// Reads the tokens, one a line.
    ///
    /// # Errors
    /// When the file cannot be read, or has no account with funds.
    pub fn read(tokens: &Path, products: u32) -> Result<Self> {
        let text = std::fs::read_to_string(tokens).with_context(|| tokens.display().to_string())?;
        let tokens: Vec<String> = text.lines().map(str::to_owned).collect();
        let accounts = u32::try_from(tokens.len().saturating_sub(1))?;
        ensure!(accounts > 0 && products > 0, "no accounts, or no products");
        Ok(Self { tokens, accounts, products })
    }

    /// Any account that has funds.
    pub fn any_account(&self) -> u32 {
        fastrand::u32(1..=self.accounts)
    }

    /// Any product that is in stock.
    pub fn any_product(&self) -> u32 {
        fastrand::u32(1..=self.products)
    }

    /// Writes the request to order `lines`, in place of what `request` holds.
    pub fn order(&self, request: &mut Vec<u8>, account: u32, key: &str, lines: &[Line<'_>]) {
        let mut body = String::from("{\"lines\":[");
        for (n, (sku, quantity)) in lines.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            let _ = write!(body, "{comma}{{\"sku\":\"{sku}\",\"quantity\":{quantity}}}");
        }
        body.push_str("],\"payment\":\"balance\"}");
        request.clear();
        let _ = write!(
            request,
            "POST /api/orders HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n\
             Authorization: Bearer {}\r\nIdempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
            self.tokens[account as usize],
            body.len(),
        );
    }

    /// Writes the request to read an account, in place of what `request` holds.
    pub fn account(&self, request: &mut Vec<u8>, account: u32) {
        request.clear();
        let _ = write!(
            request,
            "GET /api/account HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {}\r\n\r\n",
            self.tokens[account as usize],
        );
    }
}

/// The id of a paid order as the API shows it; `None`: this is no such thing.
pub fn paid_order(body: &[u8]) -> Option<&[u8]> {
    let (id, rest) = body.strip_prefix(BEFORE_ID)?.split_at_checked(ID)?;
    rest.starts_with(AFTER_ID).then_some(id)
}

/// An intent that is placed once and then repeated.
#[derive(Clone)]
pub struct Intent {
    /// Who.
    pub account: u32,
    /// The key.
    pub key: String,
    /// The one product it is about.
    pub sku: String,
}

impl Intent {
    /// One of those that `seed` places. Its key is known to pgbench/lookup.sql as well.
    pub fn seeded(shop: &Shop, n: u32) -> Self {
        let account = (n - 1) % shop.accounts + 1;
        Self { account, key: format!("replayed-{n:027}"), sku: sku((n - 1) % shop.products + 1) }
    }
}

/// The orders that sql/fill.sql writes: so many in all, equally many for each account.
#[derive(Clone, Copy)]
pub struct Fill {
    /// How many.
    pub orders: u64,
}

impl Fill {
    /// The intent of one of them, and the answer that is stored for it.
    ///
    /// # Errors
    /// When there are more accounts or products than 32 bits can count.
    pub fn order(self, shop: &Shop, n: u64) -> Result<(Intent, Vec<u8>)> {
        let each = self.orders.div_ceil(u64::from(shop.accounts));
        let account = u32::try_from((n - 1) / each + 1)?;
        let product = u32::try_from((n - 1) % u64::from(shop.products) + 1)?;
        let price = 100 + product;
        let body = format!(
            "{{\"id\":\"01900000-0000-7000-8000-{n:012}\",\"status\":\"paid\",\"lines\":[{{\"sku\":\"sku-{product:05}\",\
             \"name\":\"Product {product}\",\"quantity\":1,\"unit_price\":{price}}}],\"total\":{price},\
             \"currency\":\"EUR\",\"payment\":{{\"method\":\"balance\",\"status\":\"captured\"}},\"reference\":null,\
             \"note\":null,\"coupon\":null,\"created_at\":\"2026-01-01T00:00:00.000Z\"}}"
        );
        Ok((Intent { account, key: format!("filled-{n:029}"), sku: sku(product) }, body.into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_paid_order_has_an_id_to_be_kept() {
        let body = |status: &str| format!("{{\"id\":\"{}\",\"status\":\"{status}\",\"lines\":[]}}", "0".repeat(ID));
        assert_eq!(paid_order(body("paid").as_bytes()), Some("0".repeat(ID).as_bytes()));
        assert_eq!(paid_order(body("pending").as_bytes()), None);
        assert_eq!(paid_order(b"{\"id\":\"short\"}"), None);
    }

    #[test]
    fn a_request_has_the_length_it_declares() {
        let shop = Shop { tokens: vec!["poor".into(), "rich".into()], accounts: 1, products: 2 };
        let mut request = b"an older one".to_vec();
        shop.order(&mut request, 1, "key", &[("a", 1), ("b", 2)]);
        let request = String::from_utf8(request).unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let body_is = r#"{"lines":[{"sku":"a","quantity":1},{"sku":"b","quantity":2}],"payment":"balance"}"#;
        assert_eq!(body, body_is);
        assert!(head.starts_with("POST /api/orders HTTP/1.1\r\n"), "{head}");
        assert!(
            head.contains("Bearer rich\r\n") && head.contains(&format!("Content-Length: {}", body.len())),
            "{head}"
        );
    }
}
