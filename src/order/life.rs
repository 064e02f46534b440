//! What happens to one order: the transition table of [`state`](super::state), applied to an order and its payment
//! attempts, as the writes that have to happen together. Pure; the storage adapters load the rows under lock, call
//! [`Life::meet`] and write what it says.

use std::time::Duration;

use super::state::{Change, Event, PaymentStatus, Status, Step, step};
use super::values::{Cents, PaymentToken};
use super::{Method, Order};

/// One payment attempt of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// From 1.
    pub number: i32,
    /// How it is paid.
    pub method: Method,
    /// The provider's `Idempotency-Key`; a payment that came unasked has none.
    pub provider_key: Option<String>,
    /// The provider's id of the intent, once it was told.
    pub provider_id: Option<String>,
    /// The provider's name for the card, if the buyer gave one.
    pub token: Option<PaymentToken>,
    /// Minor units.
    pub amount: Cents,
    /// How far it is.
    pub status: PaymentStatus,
    /// How long ago it was made, by the database's clock. Past the provider's retention of keys it is looked up
    /// before it is ever sent again.
    pub age: Duration,
}

/// An order, its attempts in their order, and the balance of its account, as loaded under lock.
#[derive(Clone, Debug)]
pub struct Life {
    /// The order.
    pub order: Order,
    /// Its attempts; at least one.
    pub attempts: Vec<Attempt>,
    /// Of its account.
    pub balance: Cents,
}

/// What happens to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// The buyer pays a pending order.
    Pay {
        /// How.
        method: Method,
        /// With which card.
        token: Option<PaymentToken>,
        /// The key of a new attempt, if there is to be one. An attempt that has it already is this request's own.
        provider_key: String,
        /// Whether an attempt in flight may be this very request's, begun by a worker that did not finish.
        resume: bool,
    },
    /// The buyer calls it off.
    Cancel,
    /// It was not paid in time.
    WindowOver,
    /// An operator sends it off.
    Ship,
    /// The provider's word on an attempt, by whichever way it came.
    Word(Word),
    /// The provider has paid an attempt back.
    Refunded {
        /// The provider's id of the intent.
        provider_id: String,
    },
}

/// The provider's word on an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The attempt it speaks of, where it says so.
    pub attempt: Option<i32>,
    /// The provider's id of the intent, where it says so.
    pub provider_id: Option<String>,
    /// `Captured`, `Processing`, `Declined` or `Unknown`.
    pub said: PaymentStatus,
    /// Minor units and currency, where the word carries them: they have to fit.
    pub money: Option<(Cents, String)>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Something changed.
    Done,
    /// It has happened before; nothing changed.
    Already,
    /// A new or unfinished attempt has to be sent to the provider.
    Charge,
    /// Another attempt is in flight; nothing changed.
    InFlight,
    /// The state does not allow it; nothing changed.
    Illegal,
    /// The balance does not cover it; nothing changed.
    InsufficientFunds,
    /// No such attempt; nothing changed.
    NoAttempt,
    /// Amount or currency are not the attempt's; nothing changed.
    Mismatch,
}

impl Verdict {
    /// The word that is kept with the provider's event as its outcome. Of an event come `applied`, `already` and
    /// `mismatch`; the others have one so that the word is total.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "applied",
            Self::Already => "already",
            Self::Charge => "charge",
            Self::InFlight => "in_flight",
            Self::Illegal => "illegal",
            Self::InsufficientFunds => "insufficient_funds",
            Self::NoAttempt => "no_attempt",
            Self::Mismatch => "mismatch",
        }
    }
}

/// What has to be written, all together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// The order's new status; what it was before is the condition of the update.
    pub status: Option<Status>,
    /// Attempts that changed: number, new status, the provider's id.
    pub attempts: Vec<(i32, PaymentStatus, Option<String>)>,
    /// An attempt that is new.
    pub new_attempt: Option<Attempt>,
    /// Whether the order's units go back into stock.
    pub stock_back: bool,
    /// What the account's balance changes by: a charge is negative, a refund positive; 0: not at all.
    pub entry: Cents,
    /// Whether the order has become paid, which the outbox tells.
    pub became_paid: bool,
}

impl Life {
    /// Applies what happens: answers what came of it and what to write, and brings itself up to date.
    #[must_use]
    pub fn meet(&mut self, happening: &Happening) -> (Verdict, Writes) {
        let (verdict, writes) = self.judge(happening);
        self.apply(&writes);
        (verdict, writes)
    }

    /// The attempt that the order shows: the one that was paid, else the latest.
    #[must_use]
    pub fn shown(&self) -> Option<&Attempt> {
        let captured = self.attempts.iter().find(|attempt| attempt.status == PaymentStatus::Captured);
        captured.or_else(|| self.attempts.last())
    }

    /// The attempt whose outcome is not known, if there is one.
    #[must_use]
    pub fn in_flight(&self) -> Option<&Attempt> {
        self.attempts.iter().rfind(|attempt| attempt.status.in_flight())
    }

    fn judge(&self, happening: &Happening) -> (Verdict, Writes) {
        match happening {
            Happening::Pay { method, token, provider_key, resume } => {
                self.pay(*method, token.as_ref(), provider_key, *resume)
            }
            Happening::Cancel => self.buyer_or_time(Event::Cancel),
            Happening::WindowOver => self.buyer_or_time(Event::WindowOver),
            Happening::Ship => self.buyer_or_time(Event::Ship),
            Happening::Word(word) => self.word(word),
            Happening::Refunded { provider_id } => self.refunded(provider_id),
        }
    }

    fn pay(&self, method: Method, token: Option<&PaymentToken>, key: &str, resume: bool) -> (Verdict, Writes) {
        let own = self.attempts.iter().any(|attempt| attempt.provider_key.as_deref() == Some(key));
        let latest = self.in_flight().or_else(|| self.attempts.last());
        let (state, by) = latest.map_or((PaymentStatus::Declined, method), |a| (a.status, a.method));
        // Where there is nothing to charge, no provider is asked.
        let at_once = method == Method::Balance || self.order.total == 0;
        let event = Event::Pay(if at_once { Method::Balance } else { method });
        // An attempt with another card cannot be this request's, and its outcome must not be told as this one's.
        let resumed = resume && latest.is_some_and(|a| a.method == method && a.token.as_ref() == token);
        let change = match step(self.order.status, state, by, event) {
            Step::InFlight if (own || resumed) && matches!(state, PaymentStatus::Started | PaymentStatus::Unknown) => {
                return (Verdict::Charge, Writes::default());
            }
            Step::InFlight if own || resumed => return (Verdict::Already, Writes::default()),
            Step::To(_) if own => return (Verdict::Already, Writes::default()),
            Step::To(change) => change,
            other => return nothing(other),
        };
        if method == Method::Balance && self.balance < self.order.total {
            return (Verdict::InsufficientFunds, Writes::default());
        }
        let mut attempt = Attempt {
            number: self.attempts.last().map_or(1, |last| last.number + 1),
            method,
            provider_key: None,
            provider_id: None,
            token: token.cloned(),
            amount: self.order.total,
            status: change.payment.unwrap_or(PaymentStatus::Started),
            age: Duration::ZERO,
        };
        let mut writes = self.writes(&change);
        if at_once {
            writes.entry = -self.order.total;
        } else {
            attempt.provider_key = Some(key.to_owned());
        }
        writes.new_attempt = Some(attempt);
        (if at_once { Verdict::Done } else { Verdict::Charge }, writes)
    }

    fn buyer_or_time(&self, event: Event) -> (Verdict, Writes) {
        let attempt = match event {
            Event::WindowOver => self.in_flight().or_else(|| self.attempts.last()),
            _ => self.shown(),
        };
        let (state, method) = attempt.map_or((PaymentStatus::Declined, self.order.method), |a| (a.status, a.method));
        let change = match step(self.order.status, state, method, event) {
            Step::To(change) => change,
            other => return nothing(other),
        };
        let mut writes = self.writes(&change);
        let captured = attempt.filter(|attempt| attempt.status == PaymentStatus::Captured);
        if let (Some(attempt), Some(status)) = (captured, change.payment) {
            // Where nothing was charged, no provider has anything to pay back.
            let status = if attempt.amount == 0 { PaymentStatus::Refunded } else { status };
            writes.attempts.push((attempt.number, status, None));
            if status == PaymentStatus::Refunded {
                writes.entry = attempt.amount;
            }
        }
        (Verdict::Done, writes)
    }

    fn word(&self, word: &Word) -> (Verdict, Writes) {
        let by_id = |attempt: &&Attempt| word.provider_id.is_some() && attempt.provider_id == word.provider_id;
        let by_number = |attempt: &&Attempt| attempt.provider_key.is_some() && Some(attempt.number) == word.attempt;
        let Some(attempt) = self.attempts.iter().find(by_id).or_else(|| self.attempts.iter().find(by_number)) else {
            return (Verdict::NoAttempt, Writes::default());
        };
        let fits = |(amount, currency): &(Cents, String)| {
            *amount == attempt.amount && currency == self.order.currency.as_str()
        };
        if !word.money.as_ref().is_none_or(fits) {
            return (Verdict::Mismatch, Writes::default());
        }
        let another =
            attempt.provider_id.is_some() && word.provider_id.is_some() && attempt.provider_id != word.provider_id;
        if another {
            return self.unasked(attempt, word);
        }
        let event = match word.said {
            PaymentStatus::Captured => Event::ProviderPaid,
            PaymentStatus::Declined => Event::ProviderFailed,
            said => return no_outcome(attempt, said, word),
        };
        let change = match step(self.order.status, attempt.status, attempt.method, event) {
            Step::To(change) => change,
            Step::Already => return at_least_its_id(attempt, word),
            other => return nothing(other),
        };
        let mut writes = self.writes(&change);
        if let Some(status) = change.payment {
            writes.attempts.push((attempt.number, status, word.provider_id.clone()));
        }
        (Verdict::Done, writes)
    }

    /// A second payment for an attempt that has one: never dropped. It pays an order that is not paid yet, so that it
    /// does not matter which of the two comes first; else it is to be paid back.
    fn unasked(&self, attempt: &Attempt, word: &Word) -> (Verdict, Writes) {
        if word.said != PaymentStatus::Captured {
            return (Verdict::Already, Writes::default());
        }
        let change = match step(self.order.status, PaymentStatus::Unknown, attempt.method, Event::ProviderPaid) {
            Step::To(change) => change,
            other => return nothing(other),
        };
        let new = Attempt {
            number: self.attempts.last().map_or(1, |last| last.number + 1),
            provider_key: None,
            provider_id: word.provider_id.clone(),
            status: change.payment.unwrap_or(PaymentStatus::RefundDue),
            age: Duration::ZERO,
            ..attempt.clone()
        };
        (Verdict::Done, Writes { new_attempt: Some(new), ..self.writes(&change) })
    }

    fn refunded(&self, provider_id: &str) -> (Verdict, Writes) {
        let Some(attempt) = self.attempts.iter().find(|attempt| attempt.provider_id.as_deref() == Some(provider_id))
        else {
            return (Verdict::NoAttempt, Writes::default());
        };
        if attempt.status != PaymentStatus::RefundDue {
            return (Verdict::Already, Writes::default());
        }
        let attempts = vec![(attempt.number, PaymentStatus::Refunded, None)];
        (Verdict::Done, Writes { attempts, ..Writes::default() })
    }

    fn writes(&self, change: &Change) -> Writes {
        let moved = change.status != self.order.status;
        Writes {
            status: moved.then_some(change.status),
            stock_back: change.stock_back,
            became_paid: moved && change.status == Status::Paid,
            ..Writes::default()
        }
    }

    fn apply(&mut self, writes: &Writes) {
        if let Some(status) = writes.status {
            self.order.status = status;
        }
        for (number, status, provider_id) in &writes.attempts {
            if let Some(attempt) = self.attempts.iter_mut().find(|attempt| attempt.number == *number) {
                attempt.status = *status;
                attempt.provider_id = attempt.provider_id.take().or_else(|| provider_id.clone());
            }
        }
        self.attempts.extend(writes.new_attempt.clone());
        self.balance += writes.entry;
        if let Some((method, status)) = self.shown().map(|attempt| (attempt.method, attempt.status)) {
            self.order.method = method;
            self.order.payment = status;
        }
    }
}

/// "Processing", or no outcome at all: kept only while nothing better is known.
fn no_outcome(attempt: &Attempt, said: PaymentStatus, word: &Word) -> (Verdict, Writes) {
    use PaymentStatus::{Processing, Started, Unknown};
    if !matches!((attempt.status, said), (Started, Unknown) | (Started | Unknown, Processing)) {
        return at_least_its_id(attempt, word);
    }
    let attempts = vec![(attempt.number, said, word.provider_id.clone())];
    (Verdict::Done, Writes { attempts, ..Writes::default() })
}

/// The word brings nothing new, unless the provider's id, without which nothing can be looked up or paid back.
fn at_least_its_id(attempt: &Attempt, word: &Word) -> (Verdict, Writes) {
    if attempt.provider_id.is_some() || word.provider_id.is_none() {
        return (Verdict::Already, Writes::default());
    }
    let attempts = vec![(attempt.number, attempt.status, word.provider_id.clone())];
    (Verdict::Done, Writes { attempts, ..Writes::default() })
}

fn nothing(step: Step) -> (Verdict, Writes) {
    let verdict = match step {
        Step::Already => Verdict::Already,
        Step::InFlight => Verdict::InFlight,
        Step::Illegal | Step::To(_) => Verdict::Illegal,
    };
    (verdict, Writes::default())
}

#[cfg(test)]
mod tests;
