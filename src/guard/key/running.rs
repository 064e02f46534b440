//! What is being worked on in this process, while the table may know nothing of it yet. Whoever comes with the same key meanwhile
//! waits for what comes of it and is told that, without a question of its own: a crowd of duplicates is one piece of work.
//! Between processes the table alone decides.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::order::values::{AccountId, Fingerprint};
use crate::store::{Record, RecordId};

/// By account, of which each has few.
#[derive(Clone, Debug, Default)]
pub(super) struct Running(Arc<Mutex<HashMap<AccountId, Vec<Runs>>>>);

#[derive(Debug)]
struct Runs {
    id: RecordId,
    content: Fingerprint,
    came: watch::Receiver<Option<Record>>,
}

/// The right to work under a key in this process; nobody else gets it until this is gone.
#[derive(Debug)]
pub struct Entered {
    running: Running,
    id: RecordId,
    came: watch::Sender<Option<Record>>,
}

impl Running {
    /// Comes in, or waits for whoever is in: `Err` is the record that stands since.
    pub(super) async fn enter(&self, id: &RecordId, content: &Fingerprint) -> Result<Entered, Record> {
        loop {
            let mut came = match self.try_enter(id, content) {
                Ok(entered) => return Ok(entered),
                Err(came) => came,
            };
            // An error: it left without a word.
            if let Ok(Some(record)) = came.wait_for(Option::is_some).await.as_deref() {
                return Err(record.clone());
            }
        }
    }

    fn try_enter(&self, id: &RecordId, content: &Fingerprint) -> Result<Entered, watch::Receiver<Option<Record>>> {
        let mut all = self.all();
        let own = all.entry(id.account).or_default();
        if let Some(runs) = own.iter().find(|runs| runs.id == *id) {
            return Err(runs.came.clone());
        }
        let (sender, came) = watch::channel(None);
        own.push(Runs { id: id.clone(), content: content.clone(), came });
        Ok(Entered { running: self.clone(), id: id.clone(), came: sender })
    }

    /// The content that is worked on under this key.
    pub(super) fn content(&self, id: &RecordId) -> Option<Fingerprint> {
        let all = self.all();
        all.get(&id.account)?.iter().find(|runs| runs.id == *id).map(|runs| runs.content.clone())
    }

    /// The key of this account that came in last.
    pub(super) fn of(&self, account: AccountId) -> Option<RecordId> {
        self.all().get(&account)?.last().map(|runs| runs.id.clone())
    }

    fn all(&self) -> MutexGuard<'_, HashMap<AccountId, Vec<Runs>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entered {
    /// Leaves, and tells whoever waits what stands under the key now. Dropped without this, the next one comes in.
    pub fn tell(self, record: Record) {
        self.came.send_replace(Some(record));
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut all = self.running.all();
        let Entry::Occupied(mut own) = all.entry(self.id.account) else { return };
        own.get_mut().retain(|runs| runs.id != self.id);
        if own.get().is_empty() {
            own.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::order::values::Key;
    use crate::store::RecordState;

    fn id(account: AccountId, key: &str) -> RecordId {
        RecordId { account, operation: "place_order", key: Key::parse(key).unwrap() }
    }

    fn content(text: &str) -> Fingerprint {
        Fingerprint::stored(text)
    }

    #[test]
    fn one_at_a_time_works_under_a_key_and_the_next_comes_in_when_it_has_left() {
        let (running, account) = (Running::default(), AccountId::new());
        let enter = |account, key, of| running.try_enter(&id(account, key), &content(of)).ok();
        let first = enter(account, "a", "1").unwrap();
        let other = enter(account, "b", "2").unwrap();
        let strangers = enter(AccountId::new(), "a", "3").unwrap();
        assert!(enter(account, "a", "1").is_none());
        assert_eq!(running.content(&id(account, "b")), Some(content("2")));
        assert_eq!(running.of(account), Some(id(account, "b")), "the last");
        drop(first);
        let again = enter(account, "a", "4").unwrap();
        drop((other, strangers, again));
        assert!(running.all().is_empty(), "nothing is left behind");
    }

    /// What two that come while one is in are told.
    async fn told(leave: impl FnOnce(Entered)) -> Vec<Result<(), Record>> {
        let (running, id) = (Running::default(), id(AccountId::new(), "a"));
        let first = running.try_enter(&id, &content("1")).unwrap();
        let waiting = ["1", "2"].map(|of| {
            let (running, id) = (running.clone(), id.clone());
            tokio::spawn(async move { running.enter(&id, &content(of)).await.map(drop) })
        });
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|one| !one.is_finished()));
        leave(first);
        let mut told = Vec::new();
        for one in waiting {
            told.push(one.await.unwrap());
        }
        told
    }

    #[tokio::test]
    async fn whoever_waits_is_told_what_came_of_it_and_comes_in_itself_when_nothing_did() {
        let state = RecordState::Processing { lease_left: Duration::from_secs(1) };
        let record = Record { fingerprint: content("1"), epoch: 1, state };
        let stands = record.clone();
        assert_eq!(told(|first| first.tell(stands)).await, [Err(record.clone()), Err(record)]);
        assert_eq!(told(drop).await, [Ok(()), Ok(())]);
    }
}
