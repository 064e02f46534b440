//! `products import` and `stock set`.

use std::path::Path;

use super::{Failure, database, say};
use crate::catalogue::{self, MAX_STOCK, parse_units};
use crate::config::Settings;
use crate::order::values::Sku;

/// Adds or updates the products of a file, all or none.
pub(super) async fn import(settings: &Settings, file: &Path) -> Result<(), Failure> {
    let failed = |what: &dyn std::fmt::Display| Failure::Failed(format!("{}: {what}", file.display()));
    let content = std::fs::read(file).map_err(|e| failed(&e))?;
    let products = catalogue::read(&content).map_err(|e| failed(&format!("{e}; nothing was changed")))?;
    let (database, store) = database::open_for_command(settings).await?;
    let outcome = store.import_products(&products).await;
    store.close().await;
    outcome.map_err(|e| database::failure(&database, &e))?;
    say(&format!("imported: {}", products.len()));
    Ok(())
}

/// Sets what is in stock of one product.
pub(super) async fn set_stock(settings: &Settings, sku: &str, stock: &str) -> Result<(), Failure> {
    let stock = parse_units(stock, MAX_STOCK)
        .ok_or_else(|| Failure::Usage(format!("N is {stock:?}; allowed: a whole number from 0 to {MAX_STOCK}")))?;
    let unknown = || Failure::Failed(format!("there is no product {sku:?}"));
    let known = Sku::parse(sku).ok_or_else(unknown)?;
    let (database, store) = database::open_for_command(settings).await?;
    let outcome = store.set_stock(&known, stock).await;
    store.close().await;
    if !outcome.map_err(|e| database::failure(&database, &e))? {
        return Err(unknown());
    }
    say(&format!("{known}: {stock}"));
    Ok(())
}
