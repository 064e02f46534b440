//! Small questions that many callers ask at once, asked together: the first goes at once, and what comes while its statement
//! runs shares the next one. A page waits for a few of these look-ups, and a round trip costs far more than a row.
//!
//! Deliberately absent: waiting for company. A caller that is alone is asked for alone.

use std::future::Future;

use sqlx::postgres::PgRow;
use tokio::sync::{mpsc, oneshot};

use super::errors::{broken, column};
use crate::store::Result;

/// The most questions of one statement.
const MOST: usize = 64;

/// Where to ask questions of one kind.
pub(super) struct Gather<Q, A>(mpsc::UnboundedSender<Waiting<Q, A>>);

struct Waiting<Q, A> {
    question: Q,
    answer: oneshot::Sender<Result<A>>,
}

impl<Q: Send + 'static, A: Send + 'static> Gather<Q, A> {
    /// `ask` answers questions in their order, all or none. Its task ends when nobody can ask any more. Must be called within
    /// a runtime.
    pub(super) fn new<F>(ask: impl Fn(Vec<Q>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<Vec<A>>> + Send,
    {
        let (sender, mut inbox) = mpsc::unbounded_channel::<Waiting<Q, A>>();
        tokio::spawn(async move {
            let mut waiting = Vec::new();
            while inbox.recv_many(&mut waiting, MOST).await > 0 {
                let asked = waiting.drain(..).filter(|one| !one.answer.is_closed());
                let (questions, callers): (Vec<Q>, Vec<_>) = asked.map(|one| (one.question, one.answer)).unzip();
                if questions.is_empty() {
                    continue;
                }
                // A caller that has gone meanwhile is none that must be told.
                match ask(questions).await {
                    Ok(answers) => callers.into_iter().zip(answers).for_each(|(to, answer)| drop(to.send(Ok(answer)))),
                    Err(error) => callers.into_iter().for_each(|to| drop(to.send(Err(error.clone())))),
                }
            }
        });
        Self(sender)
    }

    pub(super) async fn ask(&self, question: Q) -> Result<A> {
        let (answer, outcome) = oneshot::channel();
        let gone = || broken("a question was dropped before it was answered");
        self.0.send(Waiting { question, answer }).map_err(|_| gone())?;
        outcome.await.map_err(|_| gone())?
    }
}

/// Whose answer a row of `WITH ORDINALITY` is.
pub(super) fn place<'a, A>(row: &PgRow, answers: &'a mut [A]) -> Result<&'a mut A> {
    let n: i64 = column(row, "n")?; // counted from 1
    usize::try_from(n - 1).ok().and_then(|n| answers.get_mut(n)).ok_or_else(|| broken("a stray row"))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn what_comes_while_a_statement_runs_shares_the_next_one_and_each_gets_its_own_answer() {
        let (go, sizes) = (Arc::new(Notify::new()), Arc::new(Mutex::new(Vec::new())));
        let (wait, seen) = (go.clone(), sizes.clone());
        let gather = Arc::new(Gather::new(move |questions: Vec<u32>| {
            let (wait, seen) = (wait.clone(), seen.clone());
            async move {
                seen.lock().unwrap().push(questions.len());
                wait.notified().await;
                Ok(questions.into_iter().map(|question| question * 2).collect())
            }
        }));
        let asked: Vec<_> = (0..5)
            .map(|n| {
                let gather = gather.clone();
                tokio::spawn(async move { gather.ask(n).await.unwrap() })
            })
            .collect();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        go.notify_one();
        tokio::task::yield_now().await;
        go.notify_one();
        for (n, answer) in asked.into_iter().enumerate() {
            assert_eq!(answer.await.unwrap() as usize, 2 * n);
            go.notify_one();
        }
        let sizes = sizes.lock().unwrap();
        assert_eq!(sizes.iter().sum::<usize>(), 5);
        assert!(sizes.len() <= 2, "{sizes:?}");
    }

    #[tokio::test]
    async fn a_statement_that_fails_tells_everybody_why() {
        let gather = Gather::new(|_: Vec<u32>| async { Err::<Vec<u32>, _>(broken("torn")) });
        assert_eq!(gather.ask(1).await.unwrap_err().to_string(), broken("torn").to_string());
        assert!(gather.ask(2).await.is_err(), "and goes on to be asked");
    }
}
