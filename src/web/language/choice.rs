//! What a browser asks for: `Accept-Language` (RFC 9110, section 12.5.4).

use axum::http::HeaderMap;
use axum::http::header::ACCEPT_LANGUAGE;
use unic_langid::LanguageIdentifier;

use super::Language;

/// The language of a tag, whatever its script and region: somebody from Taiwan reads our Chinese rather than English.
#[must_use]
pub fn parse(tag: &str) -> Option<Language> {
    let tag: LanguageIdentifier = tag.parse().ok()?;
    match tag.language.as_str() {
        "en" => Some(Language::English),
        "zh" => Some(Language::Chinese),
        _ => None,
    }
}

/// The one that is wanted most; of equals the first. `*` wants none in particular.
#[must_use]
pub fn preferred(headers: &HeaderMap) -> Option<Language> {
    let lists = headers.get_all(ACCEPT_LANGUAGE).iter().filter_map(|value| value.to_str().ok());
    // Range by range: the library sorts what it is given, and a quality of NaN leaves it without an order.
    let ranges = lists.flat_map(|list| list.split(',')).flat_map(accept_language::parse_with_quality);
    let wanted = ranges.filter(|(_, quality)| *quality > 0.0 && *quality <= 1.0);
    let known = wanted.filter_map(|(tag, quality)| Some((parse(&tag)?, quality)));
    known.reduce(|best, other| if other.1 > best.1 { other } else { best }).map(|(language, _)| language)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(header: &str) -> Option<Language> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_LANGUAGE, header.parse().unwrap());
        preferred(&headers)
    }

    #[test]
    fn the_highest_quality_wins_and_of_equals_the_first() {
        for header in
            ["zh", "zh-CN,zh;q=0.9,en;q=0.8", "en;q=0.1, zh-Hant-TW;q=0.2", "fr, ZH-sg ;q=0.3", "zh,en", "*,zh"]
        {
            assert_eq!(asks(header), Some(Language::Chinese), "{header}");
        }
        for header in ["en-GB,zh;q=0.9", "zh;q=0.5,en;q=0.6", "en,zh", "zh;q=0,en;q=0.001", "de,en;q=0.1"] {
            assert_eq!(asks(header), Some(Language::English), "{header}");
        }
    }

    #[test]
    fn what_is_none_or_no_language_of_ours_asks_for_nothing() {
        for header in ["", "*", "de", ",;,", "zh;q=0", "zh;q=nan", "zh;q=2", "zh;q=-1", "zh;q=", "chinese"] {
            assert_eq!(asks(header), None, "{header}");
        }
        let long = vec!["zh;q=nan,en;q=0.1"; 1000].join(",");
        assert_eq!(asks(&long), Some(Language::English));
    }

    #[test]
    fn several_lines_are_one_list() {
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT_LANGUAGE, "en;q=0.2".parse().unwrap());
        headers.append(ACCEPT_LANGUAGE, "zh;q=0.3".parse().unwrap());
        assert_eq!(preferred(&headers), Some(Language::Chinese));
    }
}
