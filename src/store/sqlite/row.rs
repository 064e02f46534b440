//! Columns into values and back. A value that does not fit its type is a damaged row, never a panic.

use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, Type};
use time::OffsetDateTime;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::{Result, StoreError, fault};

/// A century: longer is taken for this, so that no sum with a time leaves the range.
const LONGEST_MS: i64 = 100 * 366 * 24 * 60 * 60 * 1000;

/// A column as its type.
pub(super) fn get<'r, T>(row: &'r SqliteRow, column: &str) -> Result<T>
where
    T: sqlx::Decode<'r, Sqlite> + Type<Sqlite>,
{
    row.try_get(column).map_err(fault)
}

/// A uuid column.
pub(super) fn uuid(row: &SqliteRow, column: &str) -> Result<Uuid> {
    get::<Hyphenated>(row, column).map(Hyphenated::into_uuid)
}

/// A text column that has to fit a type of the domain.
pub(super) fn parsed<T>(row: &SqliteRow, column: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
    parse(get(row, column)?).ok_or_else(|| damaged(column))
}

/// The same where the column may be null.
pub(super) fn parsed_or_null<T>(row: &SqliteRow, column: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
    get::<Option<&str>>(row, column)?.map(|text| parse(text).ok_or_else(|| damaged(column))).transpose()
}

/// A time column.
pub(super) fn time(row: &SqliteRow, column: &str) -> Result<OffsetDateTime> {
    from_millis(get(row, column)?).ok_or_else(|| damaged(column))
}

/// A time out of milliseconds since 1970.
pub(super) fn from_millis(millis: i64) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(millis) * 1_000_000).ok()
}

/// Milliseconds since 1970.
pub(super) fn to_millis(time: OffsetDateTime) -> i64 {
    let millis = time.unix_timestamp_nanos().div_euclid(1_000_000);
    i64::try_from(millis).unwrap_or(if millis < 0 { i64::MIN } else { i64::MAX })
}

/// A span in milliseconds.
pub(super) fn span(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(LONGEST_MS).min(LONGEST_MS)
}

/// The error of a value that does not fit.
pub(super) fn damaged(column: &str) -> StoreError {
    StoreError::Broken(format!("damaged value in column {column}"))
}
