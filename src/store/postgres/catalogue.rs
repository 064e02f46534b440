//! Products. Rows are written in SKU order, the order in which settling locks them.

use std::collections::BTreeMap;

use sqlx::postgres::PgRow;

use super::errors::{column, stored};
use super::pools::{Pools, Statement};
use crate::order::Product;
use crate::order::values::{Currency, Sku};
use crate::store::Result;

statements! {
    PRODUCTS = "SELECT sku, name, unit_price, currency, stock FROM products ORDER BY sku";

    IMPORT = "
        INSERT INTO products (sku, name, unit_price, currency, stock)
        SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[]) AS new (sku)
        ORDER BY sku COLLATE \"C\"
        ON CONFLICT (sku) DO UPDATE SET name = excluded.name, unit_price = excluded.unit_price,
            currency = excluded.currency, stock = excluded.stock";

    ADD_MISSING = "
        INSERT INTO products (sku, name, unit_price, currency, stock)
        SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[]) AS new (sku)
        ORDER BY sku COLLATE \"C\"
        ON CONFLICT (sku) DO NOTHING";

    SET_STOCK = "UPDATE products SET stock = $2 WHERE sku = $1 RETURNING sku";
}

pub(super) fn product(row: &PgRow) -> Result<Product> {
    Ok(Product {
        sku: stored(row, "sku", Sku::parse)?,
        name: column(row, "name")?,
        unit_price: column(row, "unit_price")?,
        currency: stored(row, "currency", Currency::parse)?,
        stock: column(row, "stock")?,
    })
}

pub(super) async fn products(pools: &Pools) -> Result<Vec<Product>> {
    pools.query(|| sqlx::query(PRODUCTS)).await?.iter().map(product).collect()
}

pub(super) async fn import(pools: &Pools, rows: &[Product]) -> Result<()> {
    // One statement cannot update a row twice; row by row, the last would count.
    let last: BTreeMap<&Sku, &Product> = rows.iter().map(|row| (&row.sku, row)).collect();
    let rows: Vec<&Product> = last.into_values().collect();
    pools.query(|| of_all(IMPORT, &rows)).await.map(drop)
}

pub(super) async fn add_missing(pools: &Pools, rows: &[Product]) -> Result<()> {
    let rows: Vec<&Product> = rows.iter().collect();
    pools.query(|| of_all(ADD_MISSING, &rows)).await.map(drop)
}

fn of_all(sql: &'static str, rows: &[&Product]) -> Statement {
    sqlx::query(sql)
        .bind(rows.iter().map(|p| p.sku.to_string()).collect::<Vec<_>>())
        .bind(rows.iter().map(|p| p.name.clone()).collect::<Vec<_>>())
        .bind(rows.iter().map(|p| p.unit_price).collect::<Vec<_>>())
        .bind(rows.iter().map(|p| p.currency.to_string()).collect::<Vec<_>>())
        .bind(rows.iter().map(|p| p.stock).collect::<Vec<_>>())
}

pub(super) async fn set_stock(pools: &Pools, sku: &Sku, stock: i64) -> Result<bool> {
    let row = pools.query_one(|| sqlx::query(SET_STOCK).bind(sku.to_string()).bind(stock));
    Ok(row.await?.is_some())
}
