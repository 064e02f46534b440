//! What happened to an order, told on its page. It travels in the address as one of a closed list of words, and is told only
//! where the order agrees: a link with a word of somebody else's choosing says nothing that is not so.

use crate::checkout::change::What;
use crate::error::{Error, Result};
use crate::order::{Order, PaymentStatus, Status};
use crate::store::Answer;

use super::notice::problem_of;

/// The query parameter it travels in.
pub const SAID: &str = "said";

macro_rules! said {
    ($($(#[$doc:meta])* $variant:ident $word:literal)*) => {
        /// What happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Said {
            $($(#[$doc])* $variant,)*
        }

        impl Said {
            /// All of them.
            #[cfg(test)]
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The word in the address.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Reads the word; any other says nothing.
            #[must_use]
            pub fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

said! {
    /// It is paid.
    Paid "paid"
    /// It is cancelled.
    Cancelled "cancelled"
    /// The card was declined.
    Declined "declined"
    /// The balance does not cover it.
    Funds "funds"
    /// The state does not allow it.
    Illegal "illegal"
    /// The provider has not said what became of the payment.
    Asking "asking"
    /// The same, or another payment, is under way.
    UnderWay "under-way"
    /// The form was used for something else.
    Used "used"
    /// The form had expired, or its first submission came to nothing.
    Expired "expired"
    /// A field of the form is wrong.
    Wrong "wrong"
    /// No answer in time.
    Silent "silent"
}

impl Said {
    /// What a finished wish says.
    #[must_use]
    pub fn of_answer(what: &What, answer: &Answer) -> Self {
        if (200..300).contains(&answer.status) {
            return match what {
                What::Pay { .. } => Self::Paid,
                What::Cancel => Self::Cancelled,
            };
        }
        match problem_of(answer).as_deref() {
            Some("payment-declined") => Self::Declined,
            Some("insufficient-funds") => Self::Funds,
            _ => Self::Illegal,
        }
    }

    /// What a wish says that has no answer.
    ///
    /// # Errors
    /// `NotFound` stays one: there is no order to say it on.
    pub fn of_error(error: Error) -> Result<Self> {
        Ok(match error {
            Error::NotFound => return Err(error),
            Error::NoOutcome { .. } => Self::Asking,
            Error::InProgress { .. } => Self::UnderWay,
            Error::KeyReused(_) => Self::Used,
            Error::Illegal => Self::Illegal,
            Error::Invalid(_) => Self::Wrong,
            Error::Unavailable { .. } => {
                tracing::warn!(%error, "a wish about an order was not answered in time");
                Self::Silent
            }
            Error::Internal(_) => {
                tracing::error!(%error, "a wish about an order failed");
                Self::Silent
            }
        })
    }

    /// Whether it is (still) so, as far as the order shows.
    #[must_use]
    pub fn fits(self, order: &Order) -> bool {
        match self {
            Self::Paid => matches!(order.status, Status::Paid | Status::Shipped),
            Self::Cancelled => order.status == Status::Cancelled,
            Self::Declined => order.status == Status::Pending && order.payment == PaymentStatus::Declined,
            Self::Asking => order.status == Status::Pending && order.payment.in_flight(),
            Self::Funds => order.status == Status::Pending,
            Self::Illegal | Self::UnderWay | Self::Used | Self::Expired | Self::Wrong | Self::Silent => true,
        }
    }

    /// What the state says by itself to whoever looks at an order that waits for its payment.
    #[must_use]
    pub fn of_state(order: &Order) -> Option<Self> {
        match order.payment {
            _ if order.status != Status::Pending => None,
            PaymentStatus::Declined => Some(Self::Declined),
            payment if payment.in_flight() => Some(Self::Asking),
            _ => None,
        }
    }

    /// Whether it tells of something that went well.
    #[must_use]
    pub fn good(self) -> bool {
        matches!(self, Self::Paid | Self::Cancelled)
    }

    /// Whether it asks for nothing but patience.
    #[must_use]
    pub fn calm(self) -> bool {
        matches!(self, Self::Asking | Self::UnderWay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        let body = body.to_owned().into();
        Answer { status, content_type: "application/problem+json", location: None, body, order: None }
    }

    #[test]
    fn a_word_of_the_list_is_read_back_and_any_other_says_nothing() {
        for said in [Said::Paid, Said::UnderWay, Said::Silent] {
            assert_eq!(Said::parse(said.word()), Some(said));
        }
        for word in ["", "Paid", "<script>", "under_way"] {
            assert_eq!(Said::parse(word), None, "{word}");
        }
    }

    #[test]
    fn a_stored_answer_says_the_same_each_time() {
        let pay = What::Pay { method: None, token: None };
        for (what, status, kind, said) in [
            (&pay, 200, "", Said::Paid),
            (&What::Cancel, 200, "", Said::Cancelled),
            (&pay, 402, "payment-declined", Said::Declined),
            (&pay, 402, "insufficient-funds", Said::Funds),
            (&What::Cancel, 409, "illegal-transition", Said::Illegal),
        ] {
            let body = format!(r#"{{"type":"/problems/{kind}"}}"#);
            assert_eq!(Said::of_answer(what, &answer(status, &body)), said, "{status} {kind}");
        }
    }
}
