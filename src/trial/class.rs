//! The classes of retry that can be played, and what each is about.

use crate::guard::decided::Layer;

/// What stops the repeat of a class, where everything works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopper {
    /// One of the three layers.
    Layer(Layer),
    /// Beside them: what the consumer of messages keeps.
    MessageMark,
    /// Beside them: what is kept of the provider's events.
    EventRow,
}

impl Stopper {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Layer(layer) => layer.name(),
            Self::MessageMark => "The consumer's mark of the message",
            Self::EventRow => "The row of the provider's event",
        }
    }
}

/// Who sends a class's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// A browser: cookie and form.
    Browser,
    /// An API client: bearer token and JSON.
    Client,
    /// An API client that pays by card.
    CardClient,
}

macro_rules! classes {
    ($($name:ident $word:literal $sender:ident by $stopper:expr, $title:literal: $story:literal;)+) => {
        /// A class of retry.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Class {
            $($name,)+
        }

        impl Class {
            pub(super) const ALL: [Self; [$($word),+].len()] = [$(Self::$name),+];

            /// In the address.
            pub(super) fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }

            pub(super) fn parse(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$name),)+ _ => None }
            }

            pub(super) fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)+ }
            }

            /// What happens, for people.
            pub(super) fn story(self) -> &'static str {
                match self { $(Self::$name => $story,)+ }
            }

            pub(super) fn sender(self) -> Sender {
                match self { $(Self::$name => Sender::$sender,)+ }
            }

            /// What is to stop the repeat.
            pub(super) fn stopper(self) -> Stopper {
                match self { $(Self::$name => $stopper,)+ }
            }
        }
    };
}

classes! {
    DoubleClick "double-click" Browser by Stopper::Layer(Layer::Token), "Double click":
        "A buyer presses “Place order” twice. The browser sends the same form twice at the same time.";
    Reload "reload" Browser by Stopper::Layer(Layer::Token), "F5 on the answer":
        "A buyer reloads the answer, or a browser restores the tab, and the form is sent again as it was.";
    TenAtOnce "ten-at-once" Client by Stopper::Layer(Layer::Key), "Ten at once":
        "A client's threads, or a queue of its own, send one request ten times at the same time, under one key.";
    LostAnswer "lost-answer" Client by Stopper::Layer(Layer::Key), "Lost answer and retry":
        "The connection breaks once the request is sent. The client never reads the answer, and sends again with the same key.";
    NewToken "new-token" Browser by Stopper::Layer(Layer::Key), "New token, same key":
        "One form is open twice, each with a token of its own for the same key, and both are sent: to the first layer each is a first.";
    OtherBody "other-body" Client by Stopper::Layer(Layer::Key), "Same key, other body":
        "A client uses the key of one order for another. That is its mistake, and it is told so.";
    RecordSwept "record-swept" Client by Stopper::Layer(Layer::Constraint), "Record swept":
        "The retry comes when the record of its key is gone, as it is a day later. Only this play's own record is let expire, and the real sweep takes it. The log warns of the gap, as it would of any.";
    SameReference "same-reference" Client by Stopper::Layer(Layer::Constraint), "Same reference, new key":
        "A client that makes a new key for every try keeps its own order number as the reference.";
    MessageTwice "message-twice" Client by Stopper::MessageMark, "Message twice":
        "The order's message, for which the buyer gets a coupon, is delivered once more through the real queue.";
    CallbackTwice "callback-twice" CardClient by Stopper::EventRow, "Callback twice":
        "The payment provider tells of a payment twice, with the same signed event. The event says what the provider itself had said of the payment, and nothing else.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_found_by_its_word_and_nothing_else_is() {
        for class in Class::ALL {
            assert_eq!(Class::parse(class.word()), Some(class));
        }
        assert_eq!(Class::parse("plays"), None, "the address of results");
        assert_eq!(Class::parse(""), None);
    }
}
