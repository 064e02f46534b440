//! What becomes of a claim's record when something has happened to its order: the answer that is stored and replayed, or
//! none yet. Called inside the storage adapter's transaction, like `render`.

use super::answer::{ORDERS, placed, refusal, render, shown};
use super::failure::Failure;
use super::problem::Problem;
use super::view::location;
use crate::app::Answers;
use crate::order::life::{Attempt, Happening, Life, Verdict};
use crate::order::{PaymentStatus, Status};
use crate::store::{Answer, Conclusion};

/// This face's answers, for the use cases of both.
pub const ANSWERS: Answers = Answers { placed: render, charged, paid, cancelled };

/// Of `place_order`, once the provider has spoken: the order stands, be it paid, called off meanwhile or still pending.
fn charged(_: Verdict, happening: &Happening, life: &Life) -> Conclusion {
    if life.order.status != Status::Pending {
        return Conclusion::Answer(placed(&life.order));
    }
    spoken(attempt_of(happening, life), life, placed(&life.order), ORDERS)
}

/// Of `pay_order`: when the attempt is made, and once more when the provider has spoken.
fn paid(verdict: Verdict, happening: &Happening, life: &Life) -> Conclusion {
    let path = format!("{}/pay", location(life.order.id));
    match (verdict, life.order.status) {
        (Verdict::Charge, _) => Conclusion::Keep,
        (Verdict::InFlight, _) => Conclusion::Release,
        (Verdict::InsufficientFunds, _) => {
            let detail = "The account's balance is below the order's total; nothing was paid.";
            Conclusion::Answer(refusal(Failure::new(Problem::InsufficientFunds, detail), &path))
        }
        (_, Status::Paid | Status::Shipped) => Conclusion::Answer(shown(&life.order)),
        // Called off before, or while the provider was asked: what it may have taken goes back.
        (_, Status::Cancelled) => Conclusion::Answer(illegal(&path)),
        (_, Status::Pending) => spoken(attempt_of(happening, life), life, shown(&life.order), &path),
    }
}

/// Of `cancel_order`.
fn cancelled(_: Verdict, _: &Happening, life: &Life) -> Conclusion {
    Conclusion::Answer(match life.order.status {
        Status::Cancelled => shown(&life.order),
        Status::Pending | Status::Paid | Status::Shipped => illegal(&format!("{}/cancel", location(life.order.id))),
    })
}

/// Of an order that is not paid, by its attempt: only a definite word of the provider's is an answer.
fn spoken(attempt: Option<&Attempt>, life: &Life, processing: Answer, path: &str) -> Conclusion {
    match attempt.map(|attempt| attempt.status) {
        Some(PaymentStatus::Processing) => Conclusion::Answer(processing),
        Some(PaymentStatus::Declined) => Conclusion::Answer(declined(life, path)),
        _ => Conclusion::Release,
    }
}

/// The attempt that it was about: the one that was spoken of, or made, else the latest.
fn attempt_of<'a>(happening: &Happening, life: &'a Life) -> Option<&'a Attempt> {
    let about = |attempt: &&Attempt| match happening {
        Happening::Word(word) => word.attempt == Some(attempt.number),
        Happening::Pay { provider_key, .. } => attempt.provider_key.as_ref() == Some(provider_key),
        _ => false,
    };
    life.attempts.iter().find(about).or_else(|| life.attempts.last())
}

fn declined(life: &Life, path: &str) -> Answer {
    let order = life.order.id;
    let detail = format!("The card was declined. The order {order} stands and can be paid again.");
    Answer { order: Some(order), ..refusal(Failure::new(Problem::PaymentDeclined, detail).about(order), path) }
}

fn illegal(path: &str) -> Answer {
    refusal(Failure::illegal(), path)
}
