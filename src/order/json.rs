//! JSON as it was sent: a tree that keeps what `serde_json::Value` loses.
//!
//! A number stays its text, so that nothing is rounded and no exponent overflows; a member that comes twice and a
//! lone surrogate are refused wherever they are, so that no two readers can take one body for two requests.
//! Deliberately absent: what the members mean (see [`super::request`]).

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// How deep arrays and objects may nest. No request needs more than three; each level is one more pass over what
/// it holds, and one more frame on the stack.
const MAX_DEPTH: usize = 32;

/// One JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json<'a> {
    /// `null`.
    Null,
    /// `true` or `false`: no request has a use for which.
    Bool,
    /// A number, by its text.
    Number(&'a str),
    /// A string, unescaped.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Self>),
    /// An object: members in the order they were sent, each name once.
    Object(Vec<(Cow<'a, str>, Self)>),
}

impl<'a> Json<'a> {
    /// Reads a whole body (RFC 8259).
    ///
    /// # Errors
    /// Says what breaks the syntax or encoding, or which member comes twice, and where.
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let text =
            std::str::from_utf8(body).map_err(|e| Malformed(format!("not UTF-8 from byte {} on", e.valid_up_to())))?;
        if text.trim_ascii().is_empty() {
            return Err(Malformed("the body is empty".into()));
        }
        let raw = serde_json::from_str(text).map_err(|e| Malformed(e.to_string()))?;
        read(raw, 0).map_err(|fault| Malformed(fault.to_string()))
    }
}

/// What breaks the syntax or encoding, in a sentence without its full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

/// One step of a JSON Pointer: `/` and the member's name, escaped (RFC 6901).
#[must_use]
pub fn step(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The value of a JSON number that is whole, whatever its spelling (`1.0`, `1e3`, `10e-1`); `None` when it is not.
/// What an `i64` cannot hold comes out as its nearest.
#[must_use]
pub fn whole(number: &str) -> Option<i64> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or((1, mantissa), |rest| (-1, rest));
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{integer}{fraction}");
    let significant = digits.trim_end_matches('0');
    let dropped = digits.len() - significant.len();
    let significant = significant.trim_start_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    // A power of ten beyond these bounds only ever means "not whole" or "too large": saturating keeps that.
    let length = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let power = saturating(exponent).saturating_sub(length(fraction.len())).saturating_add(length(dropped));
    let power = u32::try_from(power.min(i64::from(u32::MAX))).ok()?;
    let magnitude = 10_i64.checked_pow(power).and_then(|p| significant.parse::<i64>().ok()?.checked_mul(p));
    Some(magnitude.unwrap_or(i64::MAX).saturating_mul(sign))
}

/// An exponent of any length, held to what an `i64` can take.
fn saturating(exponent: &str) -> i64 {
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, exponent.strip_prefix('+').unwrap_or(exponent)),
    };
    digits.bytes().fold(0_i64, |n, b| n.saturating_mul(10).saturating_add(i64::from(b - b'0'))) * sign
}

/// A fault inside a body whose syntax is right, and the JSON Pointer of where it is.
struct Fault {
    what: &'static str,
    at: String,
}

impl Fault {
    fn here(what: &'static str) -> Self {
        Self { what, at: String::new() }
    }

    fn under(mut self, name: &str) -> Self {
        self.at.insert_str(0, &step(name));
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at \"{}\"", self.what, self.at)
    }
}

/// A string that borrows from the body where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// An object's members as they were sent; serde's own maps would keep one of two.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((Text(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

fn read(raw: &RawValue, depth: usize) -> Result<Json<'_>, Fault> {
    // The syntax was checked when the whole body became a `RawValue`; what can still be wrong in a string is an
    // escape that names half a character.
    const HALF: &str = "a string with a lone surrogate";
    let text = raw.get();
    Ok(match text.as_bytes().first() {
        Some(b'{' | b'[') if depth == MAX_DEPTH => return Err(Fault::here("nested too deeply")),
        Some(b'{') => {
            let Members(members) = serde_json::from_str(text).map_err(|_| Fault::here(HALF))?;
            Json::Object(object(members, depth)?)
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text).map_err(|_| Fault::here(HALF))?;
            let read = |(i, item): (usize, _)| read(item, depth + 1).map_err(|f| f.under(&i.to_string()));
            Json::Array(items.into_iter().enumerate().map(read).collect::<Result<_, _>>()?)
        }
        Some(b'"') => Json::String(serde_json::from_str::<Text<'_>>(text).map_err(|_| Fault::here(HALF))?.0),
        Some(b't' | b'f') => Json::Bool,
        Some(b'n') => Json::Null,
        _ => Json::Number(text),
    })
}

fn object<'a>(
    members: Vec<(Cow<'a, str>, &'a RawValue)>,
    depth: usize,
) -> Result<Vec<(Cow<'a, str>, Json<'a>)>, Fault> {
    let mut names = HashSet::with_capacity(members.len());
    if let Some((name, _)) = members.iter().find(|(name, _)| !names.insert(name.as_ref())) {
        return Err(Fault::here("a member twice").under(name));
    }
    drop(names);
    let read = |(name, raw): (Cow<'a, str>, &'a RawValue)| match read(raw, depth + 1) {
        Ok(value) => Ok((name, value)),
        Err(fault) => Err(fault.under(&name)),
    };
    members.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(body: &str) -> String {
        Json::parse(body.as_bytes()).expect_err(body).0
    }

    #[test]
    fn a_value_keeps_its_text_and_order() {
        let tree = Json::parse(b" {\"b\" : [ 1.50 , true ] , \"a\\u0062\":\"\\ud83d\\ude00\", \"n\":null} \n")
            .expect("well-formed");
        let expected = Json::Object(vec![
            ("b".into(), Json::Array(vec![Json::Number("1.50"), Json::Bool])),
            ("ab".into(), Json::String("\u{1f600}".into())),
            ("n".into(), Json::Null),
        ]);
        assert_eq!(tree, expected);
    }

    #[test]
    fn a_whole_number_is_known_by_its_value_and_never_rounded() {
        let zeros = "0".repeat(60_000);
        let many =
            [format!("1{zeros}e-60000"), format!("0.{zeros}1e60001"), format!("2{zeros}"), format!("1e{zeros}2")];
        for (text, value) in [
            ("1", Some(1)),
            ("1.0", Some(1)),
            ("1e3", Some(1000)),
            ("1E+3", Some(1000)),
            ("10e-1", Some(1)),
            ("0.5e1", Some(5)),
            ("-0", Some(0)),
            ("0e999999999999999999999999", Some(0)),
            ("0.0", Some(0)),
            ("-12", Some(-12)),
            ("1.5", None),
            ("15e-1", None),
            ("1.0000000000000000001", None),
            ("1e-400", None),
            ("1e-99999999999999999999999", None),
            ("1e400", Some(i64::MAX)),
            ("-1e400", Some(-i64::MAX)),
            ("1e99999999999999999999999", Some(i64::MAX)),
            ("9007199254740993", Some(9_007_199_254_740_993)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", Some(i64::MAX)),
            (&many[0], Some(1)),
            (&many[1], Some(1)),
            (&many[2], Some(i64::MAX)),
            (&many[3], Some(100)),
        ] {
            assert_eq!(whole(text), value, "{text}");
        }
    }

    #[test]
    fn what_is_no_single_value_is_malformed() {
        for body in [
            "",
            " \n",
            "{",
            "{\"a\":1,}",
            "{} {}",
            "{}x",
            "[1",
            "01",
            "+1",
            "1.",
            "NaN",
            "'a'",
            "{a:1}",
            "\u{feff}{}",
            "\"\n\"",
        ] {
            fault(body);
        }
        assert!(Json::parse(b"{\"a\":\"\xff\"}").is_err());
    }

    #[test]
    fn a_fault_deep_inside_is_named_with_its_place() {
        assert_eq!(fault(r#"{"a":1,"b":2,"\u0061":3}"#), "a member twice at \"/a\"");
        assert_eq!(fault(r#"{"x":[{},{"a/~":1,"a/~":1}]}"#), "a member twice at \"/x/1/a~1~0\"");
        assert_eq!(fault(r#"{"note":"\ud800"}"#), "a string with a lone surrogate at \"/note\"");
        assert_eq!(fault(r#"{"x":{"\udc00":1}}"#), "a string with a lone surrogate at \"/x\"");
    }

    #[test]
    fn deep_nesting_is_refused_before_it_can_overflow_the_stack() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let nested = |n: usize| format!("{}0{}", open.repeat(n), close.repeat(n));
            assert!(Json::parse(nested(MAX_DEPTH).as_bytes()).is_ok());
            assert!(fault(&nested(MAX_DEPTH + 1)).starts_with("nested too deeply"));
            assert!(fault(&nested(10_000)).starts_with("nested too deeply"));
            assert!(Json::parse(open.repeat(60_000).as_bytes()).is_err());
        }
    }
}
