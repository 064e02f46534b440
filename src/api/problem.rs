//! The one table of everything the API can say no with. The problem pages, the description and the tests go through
//! it, so that a name cannot be answered without being explained.

use axum::http::StatusCode;

/// Makes the enum and its table from one list: variant, name, status, retryable, title, explanation.
macro_rules! problems {
    ($($variant:ident $name:literal $status:ident $retryable:literal $title:literal $explanation:literal)*) => {
        /// What kind of problem it is; the last part of `type` (RFC 9457). The explanations say when each is met.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Problem {
            $(#[doc = $title] $variant,)*
        }

        impl Problem {
            /// Every problem there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name in `/problems/NAME`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The HTTP status it goes with, always.
            #[must_use]
            pub fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status,)* }
            }

            /// Whether the same request with the same key may succeed later without anything else being changed.
            #[must_use]
            pub fn retryable(self) -> bool {
                match self { $(Self::$variant => $retryable,)* }
            }

            /// What it is, in a few words that never change.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// What happened and what a client does about it.
            #[must_use]
            pub fn explanation(self) -> &'static str {
                match self { $(Self::$variant => $explanation,)* }
            }
        }
    };
}

problems! {
    Unauthenticated "unauthenticated" UNAUTHORIZED false
        "A valid bearer token is needed"
        "The Authorization header is missing, is not \"Bearer TOKEN\", or its token is expired, damaged or signed with another key. Get a new token, then send the same request with the same Idempotency-Key."
    Forbidden "forbidden" FORBIDDEN false
        "The token does not permit this"
        "The token is valid, but its role is not the one this request needs."
    NotFound "not-found" NOT_FOUND false
        "There is no such thing here"
        "No such path, or nothing by this id that belongs to the account of the token. What belongs to another account looks the same as what does not exist."
    MethodNotAllowed "method-not-allowed" METHOD_NOT_ALLOWED false
        "This path does not take this method"
        "The path exists. The Allow header names the methods it takes."
    KeyMissing "idempotency-key-missing" BAD_REQUEST false
        "An Idempotency-Key is needed"
        "Requests that change something carry an Idempotency-Key header: one new key, best a UUID, for each thing you want done, and the same key for every retry of it. Nothing was done."
    KeyMalformed "idempotency-key-malformed" BAD_REQUEST false
        "The Idempotency-Key cannot be read"
        "Exactly one header line with 1 to 255 visible ASCII characters, bare or as a quoted string without parameters; a bare key has no quote, comma, semicolon or backslash. Nothing was done."
    KeyReused "idempotency-key-reused" UNPROCESSABLE_ENTITY false
        "The key was used for another request"
        "An earlier request with this Idempotency-Key had other content. Nothing was done. A key stands for one thing you want done: repeat the earlier request as it was, or take a new key for a new wish."
    UnsupportedMediaType "unsupported-media-type" UNSUPPORTED_MEDIA_TYPE false
        "The body is not declared as JSON"
        "Send one Content-Type header, application/json. A charset may only be utf-8, and the body must not be compressed."
    TooLarge "too-large" PAYLOAD_TOO_LARGE false
        "The body is too large"
        "A body may have up to 64 KiB. Nothing was done."
    Malformed "malformed-request" BAD_REQUEST false
        "The body cannot be read"
        "The body did not arrive whole and in time, is not UTF-8, is not JSON, or names a member twice. Nothing was done and the key is unused."
    Invalid "validation-failed" UNPROCESSABLE_ENTITY false
        "The request breaks a limit"
        "The member errors names each wrong field (a JSON Pointer into the body, or the name of a query parameter) and what is wrong with it. Nothing was done and the key is unused: correct the request and send it with the same key."
    InProgress "request-in-progress" CONFLICT true
        "The same request is being worked on"
        "An earlier request with this key and content has no answer yet, or another payment of the same order is under way. Wait as long as Retry-After says and send the same request with the same key."
    ReferenceTaken "reference-taken" CONFLICT false
        "The reference names another order"
        "Your account has an order with this reference under another key. The member order and the Location header name it. Nothing new was ordered; this answer is kept for the key."
    OutOfStock "out-of-stock" CONFLICT false
        "Not enough in stock"
        "The member skus names what there is too little of. Nothing was ordered; this answer is kept for the key. To try again, take a new key."
    InsufficientFunds "insufficient-funds" PAYMENT_REQUIRED false
        "The balance does not cover the total"
        "Nothing was ordered or paid; this answer is kept for the key. To try again, take a new key."
    PaymentDeclined "payment-declined" PAYMENT_REQUIRED false
        "The card was declined"
        "Nothing was taken. The order stands and waits to be paid, with another card or from the balance, under a new key. The member order and the Location header name it. This answer is kept for the key."
    UnknownSku "unknown-sku" UNPROCESSABLE_ENTITY false
        "Not in the catalogue"
        "The member skus names what the catalogue does not have. Nothing was ordered; this answer is kept for the key."
    IllegalTransition "illegal-transition" CONFLICT false
        "The order's state does not allow this"
        "Nothing was changed. Where the request has a key, this answer is kept for it."
    SignatureInvalid "signature-invalid" BAD_REQUEST false
        "The signature is not ours"
        "The Stripe-Signature header is missing, cannot be read, is of another body or secret, or is older than five minutes. Nothing was done."
    Repeat "repeat" CONFLICT false
        "The same was ordered a moment ago"
        "Only the order form asks this: the account placed an order of the same content a moment ago. The member order names it. Nothing new was ordered."
    TooManyRequests "too-many-requests" TOO_MANY_REQUESTS true
        "Too many requests"
        "Wait as long as Retry-After says and send the same request with the same key."
    Internal "internal" INTERNAL_SERVER_ERROR true
        "Something broke on our side"
        "It has been logged. The same request with the same key is safe to send again: it is done once at most."
    Unavailable "unavailable" SERVICE_UNAVAILABLE true
        "Not available at the moment"
        "Too much is waiting, or something the service depends on is silent. Wait as long as Retry-After says and send the same request with the same key: it is done once at most, also where this request did reach its end."
}

impl Problem {
    /// The problem of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|p| p.name() == name)
    }

    /// Whether it is a definite refusal: kept under the key, and the answer to every repeat.
    #[must_use]
    pub fn kept(self) -> bool {
        match self {
            Self::OutOfStock
            | Self::InsufficientFunds
            | Self::PaymentDeclined
            | Self::UnknownSku
            | Self::ReferenceTaken
            | Self::IllegalTransition
            | Self::Repeat => true,
            Self::Unauthenticated
            | Self::Forbidden
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::KeyMissing
            | Self::KeyMalformed
            | Self::KeyReused
            | Self::UnsupportedMediaType
            | Self::TooLarge
            | Self::Malformed
            | Self::SignatureInvalid
            | Self::Invalid
            | Self::InProgress
            | Self::TooManyRequests
            | Self::Internal
            | Self::Unavailable => false,
        }
    }

    /// `type` of the problem document.
    #[must_use]
    pub fn uri(self) -> String {
        format!("/problems/{}", self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Problem;

    #[test]
    fn every_problem_has_a_name_of_its_own_that_finds_it_again() {
        let names: HashSet<_> = Problem::ALL.iter().map(|p| p.name()).collect();
        assert_eq!(names.len(), Problem::ALL.len());
        for problem in Problem::ALL {
            assert_eq!(Problem::parse(problem.name()), Some(*problem));
        }
    }

    #[test]
    fn exactly_what_may_succeed_later_is_retryable() {
        let retryable: Vec<_> = Problem::ALL.iter().filter(|p| p.retryable()).map(|p| p.name()).collect();
        assert_eq!(retryable, ["request-in-progress", "too-many-requests", "internal", "unavailable"]);
    }

    #[test]
    fn no_problem_is_answered_with_408_because_browsers_resend_on_it() {
        assert!(Problem::ALL.iter().all(|p| p.status() != 408 && p.status().as_u16() >= 400));
    }
}
