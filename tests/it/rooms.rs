//! The import rule of the crate head, held by reading the source: which room may know which, and which outside crate
//! belongs where.
//!
//! Read are tokens, so that a path in a comment or a text is none. Tests inside `src/` may know everybody.

use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

/// From the top. A room knows only rows below its own: not those above, and not its neighbours.
const ROWS: [&[&str]; 10] = [
    &["main"],
    &["cli"],
    &["serve"],
    // Uses the faces as everybody does; were it beside them, it could not, and in them it would be in their way.
    &["trial"],
    &["web", "api", "worker"],
    &["checkout"],
    &["app"],
    &["guard", "error"],
    &["config", "payment", "store", "catalogue"],
    &["order"],
];

/// What is less widely known than the rows would allow, and by whom (or by which part of a room).
const ONLY: [(&str, &[&str]); 9] = [
    // Which database it is, is decided once.
    ("crate::store::postgres", &["cli", "store"]),
    ("crate::store::sqlite", &["cli", "store"]),
    // The layers protect any form, also one that nothing is paid with.
    ("crate::payment", &["cli", "serve", "trial", "web", "api", "worker", "checkout", "app", "payment"]),
    // HTTP and HTML stay with the faces.
    ("axum", &["serve", "trial", "web", "api", "worker", "payment::standin"]),
    ("askama", &["web", "api", "trial", "serve::activity"]),
    ("tower_sessions", &["web"]),
    ("sqlx", &["store"]),
    ("redis", &["guard::token", "worker::queue"]),
    // The domain is pure: no I/O, no clock, nothing to wait for.
    ("tokio", &["cli", "serve", "trial", "web", "api", "worker", "checkout", "app", "guard", "payment", "store"]),
];

/// A source file: its module (`guard::token::redis`), and the paths it names (`crate::…`, or from an outside crate).
struct Source {
    module: Vec<String>,
    paths: Vec<String>,
}

impl Source {
    fn read(root: &Path, file: &Path) -> Self {
        let stem = file.strip_prefix(root).unwrap().with_extension("");
        let mut module: Vec<String> = stem.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        module.pop_if(|last| last == "mod");
        let text = fs::read_to_string(file).unwrap();
        let paths = paths(&module, &text);
        Self { module, paths }
    }

    fn name(&self) -> String {
        self.module.join("::")
    }

    fn rooms_it_knows(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().filter_map(|path| path.strip_prefix("crate::")?.split("::").next())
    }
}

fn row(room: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&room))
}

fn is_within(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Every path a text names, those into this crate from its root.
fn paths(module: &[String], text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    flatten(text.parse().unwrap(), &mut tokens);
    let mut tokens = without_tests(&tokens).into_iter().peekable();
    let mut found = Vec::new();
    while let Some(first) = tokens.next() {
        if is_name(&first) && tokens.peek().is_some_and(|next| next == "::") {
            found.extend(branches(first, &mut tokens).iter().filter_map(|path| from_root(module, path)));
        }
    }
    found
}

/// Text without its layout: names, `::`, brackets, and whatever else is not looked at.
fn flatten(stream: TokenStream, out: &mut Vec<String>) {
    let mut joint = false;
    for token in stream {
        let second_colon = joint && token.to_string() == ":";
        joint = false;
        match token {
            _ if second_colon => out.push("::".to_owned()),
            TokenTree::Punct(colon) if colon.as_char() == ':' && colon.spacing() == Spacing::Joint => joint = true,
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Parenthesis | Delimiter::Bracket | Delimiter::None => ("(", ")"),
                };
                out.push(open.to_owned());
                flatten(group.stream(), out);
                out.push(close.to_owned());
            }
            TokenTree::Literal(_) => out.push("literal".to_owned()),
            other => out.push(other.to_string()),
        }
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_') && token != "use"
}

/// Leaves out every item under `#[cfg(test)]`.
fn without_tests(tokens: &[String]) -> Vec<String> {
    const MARK: [&str; 7] = ["#", "(", "cfg", "(", "test", ")", ")"];
    let mut kept = Vec::with_capacity(tokens.len());
    let mut rest = tokens;
    while let Some((first, after)) = rest.split_first() {
        if rest.len() < MARK.len() || rest.iter().zip(MARK).any(|(token, mark)| token != mark) {
            kept.push(first.clone());
            rest = after;
            continue;
        }
        let mut depth = 0;
        let end = rest.iter().skip(MARK.len()).position(|token| {
            depth += match token.as_str() {
                "{" => 1,
                "}" => -1,
                _ => 0,
            };
            depth == 0 && matches!(token.as_str(), "}" | ";")
        });
        rest = &rest[end.map_or(rest.len(), |end| MARK.len() + end + 1)..];
    }
    kept
}

/// `a::{b, c::d}` as `a::b` and `a::c::d`.
fn branches(first: String, tokens: &mut Peekable<IntoIter<String>>) -> Vec<String> {
    if tokens.next_if(|token| token == "::").is_none() {
        return vec![first];
    }
    let mut ends = Vec::new();
    match tokens.next() {
        Some(open) if open == "{" => {
            while let Some(token) = tokens.next().filter(|token| token != "}") {
                if token == "as" {
                    tokens.next();
                } else if is_name(&token) {
                    ends.extend(branches(token, tokens));
                }
            }
        }
        Some(name) if is_name(&name) => ends = branches(name, tokens),
        _ => return vec![first],
    }
    ends.iter().map(|end| format!("{first}::{end}")).collect()
}

/// A path as seen from the root of the crate, or of the crate it leads into; `None` where it stays in its own file.
fn from_root(module: &[String], path: &str) -> Option<String> {
    if !path.starts_with("super::") {
        return (!path.starts_with("self::") && !path.starts_with("Self::")).then(|| path.to_owned());
    }
    let names: Vec<&str> = path.split("::").collect();
    let supers = names.iter().take_while(|name| **name == "super").count();
    let above = module.iter().take(module.len().saturating_sub(supers)).map(String::as_str);
    Some(std::iter::once("crate").chain(above).chain(names[supers..].iter().copied()).collect::<Vec<_>>().join("::"))
}

/// Every file of `src` but the crate head and the tests.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut files) = (vec![root.clone()], Vec::<PathBuf>::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.file_stem().is_some_and(|name| name == "tests") => {}
                None if path.is_dir() => folders.push(path),
                Some(rs) if rs == "rs" && path != root.join("lib.rs") => files.push(path),
                _ => {}
            }
        }
    }
    files.iter().map(|file| Source::read(&root, file)).collect()
}

#[test]
fn a_room_knows_only_rooms_of_the_rows_below() {
    let mut wrong = Vec::new();
    for source in sources() {
        let room = source.module[0].as_str();
        let own = row(room).unwrap_or_else(|| panic!("src/{room} has no row: give it one here and in src/lib.rs"));
        let knows = source.rooms_it_knows().filter(|known| *known != room);
        wrong.extend(
            knows
                .filter(|known| row(known).is_none_or(|row| row <= own))
                .map(|known| format!("{} knows {known}", source.name())),
        );
    }
    assert!(wrong.is_empty(), "against the import rule: {wrong:#?}");
}

#[test]
fn what_belongs_to_one_place_is_named_nowhere_else() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (what, places) in ONLY {
            let allowed = places.iter().any(|place| is_within(&source.name(), place));
            let named = source.paths.iter().find(|path| is_within(path, what));
            wrong.extend(named.filter(|_| !allowed).map(|path| format!("{} names {path}", source.name())));
        }
    }
    assert!(wrong.is_empty(), "against the import rule: {wrong:#?}");
}

#[test]
fn the_map_of_the_crate_head_names_every_room() {
    let head = include_str!("../../src/lib.rs");
    for source in sources().iter().filter(|source| source.module[0] != "main") {
        let room = &source.module[0];
        assert!(head.contains(&format!("| [`{room}`]")) || head.contains(&format!("· [`{room}`]")), "{room}");
    }
}

#[test]
fn paths_are_read_however_they_are_spelled() {
    let module = ["guard", "token", "redis"].map(str::to_owned);
    let text = r#"
        //! Not crate::comment::x.
        use crate::{app::App, order::{self, values::{Key as K, Sku}}};
        use super::super::unique; use ::redis::Client; use super::Life;
        fn f(x: crate::error::Error) { tracing::info!("crate::text::x {}", crate::config::name()); Self::g(&self.redis) }
        #[cfg(test)]
        mod tests { use crate::web::x; }
        fn g() { sqlx::query(1) }
        #[cfg(test)] mod elsewhere;
        fn h() { crate::last::x() }
    "#;
    let expected = [
        "crate::app::App",
        "crate::order::self",
        "crate::order::values::Key",
        "crate::order::values::Sku",
        "crate::guard::unique",
        "redis::Client",
        "crate::guard::token::Life",
        "crate::error::Error",
        "tracing::info",
        "crate::config::name",
        "sqlx::query",
        "crate::last::x",
    ];
    assert_eq!(paths(&module, text), expected);
}
