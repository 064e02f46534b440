//! The sentences: one file a language in `locales/`, carried in the binary (Project Fluent).

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use askama::filters::{Escaper, Html};
use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::{FluentArgs, FluentResource, FluentValue};

use super::{Language, current};

/// The file of a language.
pub(super) fn source(language: Language) -> &'static str {
    match language {
        Language::English => include_str!("../../../locales/en.ftl"),
        Language::Chinese => include_str!("../../../locales/zh.ftl"),
    }
}

static ENGLISH: LazyLock<FluentBundle<FluentResource>> = LazyLock::new(|| open(Language::English));
static CHINESE: LazyLock<FluentBundle<FluentResource>> = LazyLock::new(|| open(Language::Chinese));

/// What can be read of the file; a test holds that it is all of it.
fn open(language: Language) -> FluentBundle<FluentResource> {
    let locale = language.tag().parse().unwrap_or_default();
    let mut bundle = FluentBundle::new_concurrent(vec![locale]);
    // No marks around what is put in: these languages are all written from left to right.
    bundle.set_use_isolating(false);
    let resource = FluentResource::try_new(source(language).to_owned()).unwrap_or_else(|(readable, _)| readable);
    bundle.add_resource_overriding(resource);
    bundle
}

/// A message of the files and what is put into it. Becomes letters, in the visitor's language, where it is displayed.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    message: &'static str,
    args: Vec<(&'static str, FluentValue<'static>)>,
}

impl Text {
    /// The message of this name.
    #[must_use]
    pub fn new(message: &'static str) -> Self {
        Self { message, args: Vec::new() }
    }

    /// Puts something in.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<FluentValue<'static>>) -> Self {
        self.args.push((name, value.into()));
        self
    }

    /// The text as HTML: its own markup stays, what is put in is escaped.
    #[must_use]
    pub fn markup(mut self) -> String {
        for (_, value) in &mut self.args {
            if let FluentValue::String(text) = value {
                let mut escaped = String::new();
                // Writing to a string does not fail.
                _ = Html.write_escaped_str(&mut escaped, text);
                *text = Cow::Owned(escaped);
            }
        }
        self.to_string()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bundle = match current() {
            Language::English => &ENGLISH,
            Language::Chinese => &CHINESE,
        };
        let Some(pattern) = bundle.get_message(self.message).and_then(|message| message.value()) else {
            return f.write_str(self.message);
        };
        let args: FluentArgs<'_> = self.args.iter().map(|(name, value)| (*name, value.clone())).collect();
        let mut errors = Vec::new();
        f.write_str(&bundle.format_pattern(pattern, Some(&args), &mut errors))?;
        if !errors.is_empty() {
            tracing::error!(message = self.message, ?errors, "a text could not be written");
        }
        Ok(())
    }
}
