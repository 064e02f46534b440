//! What SQLite's errors mean to callers.

use std::path::Path;

use super::StoreError;

/// The low byte of an extended result code is the primary one (<https://www.sqlite.org/rescode.html>).
const PRIMARY: i32 = 0xff;
const PERM: i32 = 3;
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const IOERR: i32 = 10;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;

/// Translates an error of the driver.
pub(super) fn fault(error: sqlx::Error) -> StoreError {
    let text = error.to_string();
    match (code(&error), error) {
        (Some(BUSY | LOCKED), _) | (_, sqlx::Error::PoolTimedOut) => StoreError::Busy(text),
        // Not a bug, and over when somebody has looked after the disk: the same request may come again.
        (Some(FULL | READONLY | PERM | CANTOPEN | IOERR), _)
        | (_, sqlx::Error::Io(_) | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed) => {
            StoreError::Unreachable(text)
        }
        _ => StoreError::Broken(text),
    }
}

/// Whether another connection was in the way.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(code(error), Some(BUSY | LOCKED))
}

fn code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & PRIMARY)
}

impl StoreError {
    /// Names the file that the error is about.
    pub(super) fn about(self, path: &Path) -> Self {
        let told = |text| format!("{}: {text}", path.display());
        match self {
            Self::Unreachable(text) => Self::Unreachable(told(text)),
            Self::Busy(text) => Self::Busy(told(text)),
            Self::Broken(text) => Self::Broken(told(text)),
        }
    }
}
