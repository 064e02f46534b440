//! The files against each other and against those who name their messages; the switch.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use fluent_bundle::FluentResource;

use super::texts::{Text, source};
use super::*;

mod pages;

/// The messages of a file in its order, each with its text.
fn messages(language: Language) -> Vec<(&'static str, String)> {
    let mut messages: Vec<(&str, String)> = Vec::new();
    for line in source(language).lines().filter(|line| !line.starts_with('#')) {
        match line.split_once(" = ") {
            Some((name, text)) if !line.starts_with(' ') => messages.push((name, text.to_owned())),
            _ => {
                if let Some((_, text)) = messages.last_mut() {
                    text.push_str(line);
                }
            }
        }
    }
    messages
}

/// How often each thing is in a text that another language must have as well: what is put in, and markup.
fn fixed(text: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let names = text.split('$').skip(1).map(|rest| rest.split([' ', '}']).next().unwrap_or_default().to_owned());
    let tags = text.split('<').skip(1).map(|rest| rest.split('>').next().unwrap_or_default().to_owned());
    // A number may be named once more to choose a word by it.
    names.collect::<BTreeSet<_>>().into_iter().chain(tags).for_each(|thing| *found.entry(thing).or_default() += 1);
    found
}

#[test]
fn every_file_is_read_whole() {
    for language in Language::ALL {
        let resource = FluentResource::try_new(source(language).to_owned());
        assert!(resource.is_ok(), "{language:?}: {:?}", resource.err());
        let messages = messages(language);
        for (name, _) in &messages {
            assert_ne!(speaking(language, || Text::new(name).to_string()), *name, "{language:?}");
            assert_eq!(messages.iter().filter(|(other, _)| other == name).count(), 1, "{name} in {language:?}");
        }
    }
}

#[test]
fn every_language_has_the_same_messages_with_the_same_places_to_put_something_in() {
    let english = messages(Language::English);
    for language in Language::ALL {
        let other = messages(language);
        let names = |messages: &[(&'static str, String)]| messages.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        assert_eq!(names(&other), names(&english), "{language:?}");
        for ((name, ours), (_, theirs)) in english.iter().zip(&other) {
            assert_eq!(fixed(ours), fixed(theirs), "{name} in {language:?}");
            assert!(!theirs.trim().is_empty(), "{name} in {language:?}");
        }
    }
}

/// All of `templates/` and of this face's own source but its tests.
fn users() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["templates", "src/web"].map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.map(|file| fs::read_to_string(file).unwrap()).collect()
}

#[test]
fn every_message_is_used_and_every_one_used_is_there() {
    let (users, names) = (users(), messages(Language::English).into_iter().map(|(name, _)| name));
    let names: BTreeSet<_> = names.collect();
    for name in &names {
        assert!(users.contains(&format!("\"{name}\"")), "nobody says {name}");
    }
    let in_templates = users.split("\"|t").filter_map(|before| before.rsplit_once("{{ \"").map(|(_, name)| name));
    let in_source = users.split("Text::new(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let asked: Vec<_> = in_templates.filter(|name| !name.contains('"')).chain(in_source).collect();
    assert!(asked.len() > names.len() / 2, "this test reads the templates wrongly");
    for name in asked {
        assert!(names.contains(name), "there is no {name}");
    }
}

#[test]
fn a_text_is_written_in_the_language_of_its_visitor() {
    let text = Text::new("form-stock").with("count", 3_i64);
    assert_eq!(text.to_string(), "3 in stock", "English outside of a request");
    assert_eq!(speaking(Language::Chinese, || text.to_string()), "库存 3 件");
    assert_eq!(Text::new("no-such-message").to_string(), "no-such-message");
}

#[test]
fn what_is_put_in_cannot_bring_markup_along() {
    let text = Text::new("complaint").with("url", "#\"><script>").with("field", "<b>").with("fault", "&");
    assert_eq!(text.markup(), "<a href=\"#&#34;&#62;&#60;script&#62;\">&#60;b&#62;</a>: &#38;");
}

fn uri(address: &str) -> Uri {
    address.parse().unwrap()
}

#[test]
fn the_switch_comes_back_to_the_page_it_was_on_and_to_no_other_host() {
    for (address, from, there) in [
        ("/orders?lang=zh-Hans", "http://shop.example/orders?cursor=1&x=%26", "/orders?cursor=1&x=%26"),
        ("/orders?lang=zh-Hans", "http://shop.example/orders?lang=fr", "/orders"),
        ("/orders/new?lang=zh-Hans", "http://shop.example/orders?cursor=1", "/orders/new"),
        ("/orders?cursor=1&lang=en&x=%26", "", "/orders?cursor=1&x=%26"),
        ("/?lang=zh", "not an address", "/"),
        ("//elsewhere.example/?lang=zh", "https://elsewhere.example//elsewhere.example/?x", "/elsewhere.example/?x"),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(REFERER, from.parse().unwrap());
        assert_eq!(back(&uri(address), &headers), there, "{address} from {from}");
        assert!(asked(&uri(address)).is_some(), "{address}");
    }
    for address in ["/orders", "/orders?lang=", "/orders?lang=fr", "/orders?language=zh", "/orders?x=lang=zh"] {
        assert_eq!(asked(&uri(address)), None, "{address}");
    }
}
