//! What runs in this process, also while the table knows nothing of it yet: a duplicate beside its first is told so without a
//! question to the table, and however long the first takes. Between processes the table alone decides.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::order::values::{AccountId, Fingerprint, Key};
use crate::store::RecordId;

/// By account, of which each has few.
#[derive(Clone, Debug, Default)]
pub(super) struct Running(Arc<Mutex<HashMap<AccountId, Vec<Runs>>>>);

/// What runs under a key.
#[derive(Clone, Debug)]
pub(super) struct Runs {
    id: RecordId,
    /// The content.
    pub(super) content: Fingerprint,
    /// Cancelled when it runs no longer.
    pub(super) left: CancellationToken,
}

/// The right to work under a key in this process; nobody else gets it until this is dropped.
#[derive(Debug)]
pub struct Entered {
    running: Running,
    id: RecordId,
}

impl Running {
    /// `Err`: what runs under this key.
    pub(super) fn enter(&self, id: &RecordId, content: &Fingerprint) -> Result<Entered, Runs> {
        let mut all = self.all();
        let own = all.entry(id.account).or_default();
        if let Some(runs) = own.iter().find(|runs| runs.id == *id) {
            return Err(runs.clone());
        }
        own.push(Runs { id: id.clone(), content: content.clone(), left: CancellationToken::new() });
        Ok(Entered { running: self.clone(), id: id.clone() })
    }

    /// The content that runs under this key.
    pub(super) fn content(&self, id: &RecordId) -> Option<Fingerprint> {
        let all = self.all();
        all.get(&id.account)?.iter().find(|runs| runs.id == *id).map(|runs| runs.content.clone())
    }

    /// The youngest key of this account.
    pub(super) fn key_of(&self, account: AccountId) -> Option<Key> {
        self.all().get(&account)?.last().map(|runs| runs.id.key.clone())
    }

    fn all(&self) -> MutexGuard<'_, HashMap<AccountId, Vec<Runs>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut all = self.running.all();
        let Entry::Occupied(mut own) = all.entry(self.id.account) else { return };
        for runs in own.get_mut().extract_if(.., |runs| runs.id == self.id) {
            runs.left.cancel();
        }
        if own.get().is_empty() {
            own.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(account: AccountId, key: &str) -> RecordId {
        RecordId { account, operation: "place_order", key: Key::parse(key).unwrap() }
    }

    #[test]
    fn one_at_a_time_works_under_a_key_and_the_next_comes_in_when_it_has_left() {
        let (running, account) = (Running::default(), AccountId::new());
        let content = |text| Fingerprint::stored(text);
        let first = running.enter(&id(account, "a"), &content("1")).unwrap();
        let other = running.enter(&id(account, "b"), &content("2")).unwrap();
        let strangers = running.enter(&id(AccountId::new(), "a"), &content("3")).unwrap();
        let runs = running.enter(&id(account, "a"), &content("4")).err().unwrap();
        assert!(runs.content == content("1") && !runs.left.is_cancelled());
        assert_eq!(running.content(&id(account, "b")), Some(content("2")));
        assert_eq!(running.key_of(account), Some(Key::parse("b").unwrap()), "the youngest");
        drop(first);
        assert!(runs.left.is_cancelled());
        let again = running.enter(&id(account, "a"), &content("4")).unwrap();
        drop((other, strangers, again));
        assert!(running.all().is_empty(), "nothing is left behind");
    }
}
