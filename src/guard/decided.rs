//! What the three layers can decide: the words of `oncegate_layer_decisions_total{layer,decision}`, and what each means.

/// One of the three layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// Layer 1: the form token.
    Token,
    /// Layer 2: the idempotency key.
    Key,
    /// Layer 3: the constraint.
    Constraint,
}

impl Layer {
    /// From the outermost.
    pub const ALL: [Self; 3] = [Self::Token, Self::Key, Self::Constraint];

    /// The word of the metric.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Key => "key",
            Self::Constraint => "constraint",
        }
    }

    /// As people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Token => "Layer 1, the form token",
            Self::Key => "Layer 2, the idempotency key",
            Self::Constraint => "Layer 3, the constraint",
        }
    }
}

/// What a decision did to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It goes on: the layer sees its intent for the first time.
    Passed,
    /// It goes no further: a repeat, or work that was overtaken.
    Stopped,
    /// It goes on though the layer has no first of its kind before it: it could not judge, or let a retry finish what
    /// another had begun.
    Aside,
}

macro_rules! decided {
    ($($layer:ident { $($(#[doc = $doc:literal])+ $name:ident $word:literal $effect:ident $means:literal;)+ })+) => {
        /// A decision of a layer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Decided {
            $($($(#[doc = $doc])+ $name,)+)+
        }

        impl Decided {
            /// All of them, layer by layer, in the order of their discriminants.
            pub const ALL: [Self; [$($(Self::$name,)+)+].len()] = [$($(Self::$name,)+)+];

            /// Whose decision it is.
            #[must_use]
            pub fn layer(self) -> Layer {
                match self { $($(Self::$name)|+ => Layer::$layer,)+ }
            }

            /// The word of the metric.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $($(Self::$name => $word,)+)+ }
            }

            /// What it did.
            #[must_use]
            pub fn effect(self) -> Effect {
                match self { $($(Self::$name => Effect::$effect,)+)+ }
            }

            /// What has happened, for people.
            #[must_use]
            pub fn means(self) -> &'static str {
                match self { $($(Self::$name => $means,)+)+ }
            }
        }
    };
}

decided! {
    Token {
        /// Live, and now spent.
        Accepted "accepted" Passed "first press of a form";
        /// Spent before, for the same form and key.
        Spent "spent" Stopped "the same form pressed again";
        /// Expired, forged, another's, or none.
        Unknown "unknown" Stopped "expired, forged or no token";
        /// The token store gave no answer.
        Bypassed "bypassed" Aside "the token store gave no answer: the key decides alone";
    }
    Key {
        /// The first request under its key.
        Claimed "claimed" Passed "first request under its key";
        /// Answered before: the first answer again.
        Replayed "replayed" Stopped "answered before: the first answer again";
        /// The first is under way.
        InProgress "in_progress" Stopped "the first is still under way";
        /// The key was used for other content.
        Mismatched "mismatched" Stopped "other content under a used key";
        /// The lease of an unfinished claim is over: a retry goes on with it.
        TakenOver "taken_over" Aside "a worker did not finish: a retry went on";
        /// The claim was taken over: this worker's result hits no row.
        LeaseLost "lease_lost" Stopped "an overtaken worker was kept from committing";
    }
    Constraint {
        /// An order.
        Inserted "inserted" Passed "an order was written";
        /// An order stands under the key.
        KeyExists "key_exists" Stopped "a repeat whose record was gone";
        /// An order stands under the reference.
        ReferenceExists "reference_exists" Stopped "a new key with an old reference";
    }
}

impl Decided {
    /// Its place in [`Decided::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_contract_and_each_has_its_own_place() {
        let words = |layer| -> Vec<_> {
            Decided::ALL.into_iter().filter(|d| d.layer() == layer).map(Decided::as_str).collect()
        };
        assert_eq!(words(Layer::Token), ["accepted", "spent", "unknown", "bypassed"]);
        assert_eq!(words(Layer::Key), ["claimed", "replayed", "in_progress", "mismatched", "taken_over", "lease_lost"]);
        assert_eq!(words(Layer::Constraint), ["inserted", "key_exists", "reference_exists"]);
        for (n, decided) in Decided::ALL.into_iter().enumerate() {
            assert_eq!(decided.index(), n);
        }
    }
}
