//! The catalogue: what can be bought, and how much of it is left.

use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;

use super::row::{get, parsed};
use super::{Commit, Result, Sqlite, Tx, fault};
use crate::order::Product;
use crate::order::values::{Currency, Quantity, Sku};

pub(super) async fn all(store: &Sqlite) -> Result<Vec<Product>> {
    sqlx::query("SELECT sku, name, unit_price, currency, stock FROM products ORDER BY sku")
        .fetch_all(&store.readers)
        .await
        .map_err(fault)?
        .iter()
        .map(product)
        .collect()
}

fn product(row: &SqliteRow) -> Result<Product> {
    Ok(Product {
        sku: parsed(row, "sku", Sku::parse)?,
        name: get(row, "name")?,
        unit_price: get(row, "unit_price")?,
        currency: parsed(row, "currency", Currency::parse)?,
        stock: get(row, "stock")?,
    })
}

pub(super) async fn import(store: &Sqlite, rows: &[Product]) -> Result<()> {
    let sql = "INSERT INTO products (sku, name, unit_price, currency, stock) VALUES ($1, $2, $3, $4, $5)
               ON CONFLICT (sku) DO UPDATE SET name = excluded.name, unit_price = excluded.unit_price,
                   currency = excluded.currency, stock = excluded.stock";
    write_all(store, sql, rows).await
}

pub(super) async fn add_missing(store: &Sqlite, rows: &[Product]) -> Result<()> {
    let sql = "INSERT INTO products (sku, name, unit_price, currency, stock) VALUES ($1, $2, $3, $4, $5)
               ON CONFLICT (sku) DO NOTHING";
    write_all(store, sql, rows).await
}

async fn write_all(store: &Sqlite, sql: &'static str, rows: &[Product]) -> Result<()> {
    let mut tx = store.begin(Commit::Durable).await?;
    for product in rows {
        sqlx::query(sql)
            .bind(product.sku.as_str())
            .bind(&product.name)
            .bind(product.unit_price)
            .bind(product.currency.as_str())
            .bind(product.stock)
            .execute(&mut *tx)
            .await
            .map_err(fault)?;
    }
    tx.commit().await.map_err(fault)
}

pub(super) async fn set_stock(store: &Sqlite, sku: &Sku, stock: i64) -> Result<bool> {
    let mut tx = store.begin(Commit::Durable).await?;
    let left = Json([(sku.as_str(), stock)]);
    let written = sqlx::query(WRITE_STOCK).bind(left).execute(&mut *tx).await.map_err(fault)?;
    tx.commit().await.map_err(fault)?;
    Ok(written.rows_affected() == 1)
}

/// Puts units back; a product that is not there any more takes none.
pub(super) async fn add_stock(tx: &mut Tx, sku: &Sku, quantity: Quantity) -> Result<()> {
    sqlx::query("UPDATE products SET stock = stock + $2 WHERE sku = $1")
        .bind(sku.as_str())
        .bind(quantity.get())
        .execute(&mut **tx)
        .await
        .map_err(fault)?;
    Ok(())
}

/// Writes what is left of products; the parameter: SKUs with their stock.
macro_rules! write_stock {
    ($left:literal) => {
        concat!(
            "UPDATE products AS p SET stock = rest.value ->> 1 FROM json_each(",
            $left,
            ") AS rest WHERE p.sku = rest.value ->> 0"
        )
    };
}
pub(super) use write_stock;

pub(super) const WRITE_STOCK: &str = write_stock!("$1");
