//! How templates name a text: `{{ "form-title"|t }}`, with something put in `{{ "form-stock"|t|with("count", n) }}`, and
//! with markup of its own `{{ "became-order"|t|with("url", url)|html }}`.

use askama::filters::Safe;
use askama::{Result, Values};
use fluent_bundle::FluentValue;

use super::texts::Text;

/// The message of this name.
#[askama::filter_fn]
pub fn t(message: &'static str, _: &dyn Values) -> Result<Text> {
    Ok(Text::new(message))
}

/// Puts something into it.
#[askama::filter_fn]
pub fn with<V: Into<FluentValue<'static>>>(text: Text, _: &dyn Values, name: &'static str, value: V) -> Result<Text> {
    Ok(text.with(name, value))
}

/// Keeps its markup.
#[askama::filter_fn]
pub fn html(text: Text, _: &dyn Values) -> Result<Safe<String>> {
    Ok(Safe(text.markup()))
}
