//! What sqlx reports, in the words of the seam; and rows into values.

use sqlx::postgres::PgRow;
use sqlx::{Decode, Error, Postgres, Row, Type};

use crate::store::{Result, StoreError};

/// Anything that is a bug or a damaged row.
pub(super) fn broken(what: impl Into<String>) -> StoreError {
    StoreError::Broken(what.into())
}

/// Sorts an error by what a caller can do about it. SQLSTATE codes as in the appendix A of PostgreSQL's manual.
pub(super) fn map(error: &Error) -> StoreError {
    let text = error.to_string();
    match error {
        // A protocol error is what sqlx says of a connection that is accepted and closed at once, as by a proxy.
        Error::Io(_) | Error::Tls(_) | Error::Protocol(_) | Error::PoolClosed | Error::WorkerCrashed => {
            StoreError::Unreachable(text)
        }
        Error::PoolTimedOut => StoreError::Busy(text),
        Error::Database(database) => match database.code().as_deref().unwrap_or_default() {
            // A lock or a statement took too long, or the server ended a transaction that sat idle: rolled back.
            "55P03" | "57014" | "25P03" => StoreError::Busy(text),
            // Retried here before; what is left of it after the last attempt is a matter of load.
            "40001" | "40P01" => StoreError::Busy(text),
            // Shutting down, crashed, starting up; no more connections; a fail-over left us at a standby.
            "57P01" | "57P02" | "57P03" | "53300" | "25006" => StoreError::Unreachable(text),
            code if code.starts_with("08") => StoreError::Unreachable(text),
            code => StoreError::Broken(format!("{text} (SQLSTATE {code})")),
        },
        _ => StoreError::Broken(text),
    }
}

/// Whether the connection is gone, so that asking again on a new one may help.
pub(super) fn is_lost(error: &Error) -> bool {
    matches!(map(error), StoreError::Unreachable(_)) && !matches!(error, Error::PoolClosed)
}

/// Whether the transaction had to make way for another: a fresh one may pass.
pub(super) fn makes_way(error: &Error) -> bool {
    let code = error.as_database_error().and_then(|database| database.code());
    matches!(code.as_deref(), Some("40001" | "40P01"))
}

/// Whether a row could not go in because another has its place (a unique constraint).
pub(super) fn is_taken(error: &Error) -> bool {
    error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation)
}

/// Whether a statement that was to hold only as long as nothing had changed found something changed: it divided by zero, as it
/// does to say so, broke a constraint, or had to make way for another transaction.
pub(super) fn is_outdated(error: &Error) -> bool {
    let code = error.as_database_error().and_then(|database| database.code());
    code.is_some_and(|code| code == "22012" || code.starts_with("23")) || makes_way(error)
}

/// Why a piece of work of several statements stopped.
pub(super) enum Stop {
    /// It had to make way for another transaction (deadlock, serialization): a fresh one may pass.
    MakesWay(StoreError),
    /// Anything else.
    Failed(StoreError),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        if makes_way(&error) { Self::MakesWay(map(&error)) } else { Self::Failed(map(&error)) }
    }
}

impl From<Stop> for StoreError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::MakesWay(error) | Stop::Failed(error) => error,
        }
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// Whether a table was not there.
pub(super) fn lacks_schema(error: &StoreError) -> bool {
    matches!(error, StoreError::Broken(text) if text.contains("42P01"))
}

/// One column of a row.
pub(super) fn column<'r, T: Decode<'r, Postgres> + Type<Postgres>>(row: &'r PgRow, name: &str) -> Result<T> {
    row.try_get(name).map_err(|error| broken(error.to_string()))
}

/// A stored text as the value it was made from; one that does not fit is damage, named by its column.
pub(super) fn stored<T>(row: &PgRow, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
    parsed(name, column(row, name)?, parse)
}

/// The same for a text that was taken out already.
pub(super) fn parsed<T>(name: &str, text: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
    parse(text).ok_or_else(|| broken(format!("column {name} holds {text:?}")))
}

/// The same for a column that may be null.
pub(super) fn stored_option<T>(row: &PgRow, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
    let text: Option<&str> = column(row, name)?;
    text.map(|text| parsed(name, text, parse)).transpose()
}
