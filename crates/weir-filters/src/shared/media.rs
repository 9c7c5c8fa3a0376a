//! Patterns of media types: `text/css`, `text/*`, `application/*+json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A media type, or a pattern with `*`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct MediaPattern(String);

impl MediaPattern {
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let expected =
            || format!("`{text}` is not a media type; expected e.g. text/css, text/*, application/*+json");
        let token = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+*".contains(&b))
        };
        let (kind, subtype) = text.split_once('/').ok_or_else(expected)?;
        let star = |part: &str| part.contains('*');
        let sound = token(kind)
            && token(subtype)
            && (!star(kind) || kind == "*" && subtype == "*")
            && (!star(subtype)
                || subtype == "*"
                || subtype.strip_prefix("*+").is_some_and(|suffix| !suffix.is_empty() && !star(suffix)));
        if sound { Ok(Self(text.to_ascii_lowercase())) } else { Err(expected()) }
    }

    /// Whether the pattern matches a value of Content-Type, which may have parameters.
    pub(crate) fn matches(&self, content_type: &[u8]) -> bool {
        let media = content_type.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
        let pattern = self.0.as_bytes();
        let Some(star) = pattern.iter().position(|&b| b == b'*') else {
            return media.eq_ignore_ascii_case(pattern);
        };
        if pattern == b"*/*" {
            return media.contains(&b'/');
        }
        let (before, after) =
            (pattern.get(..star).unwrap_or_default(), pattern.get(star + 1..).unwrap_or_default());
        let begins = media.get(..before.len()).is_some_and(|m| m.eq_ignore_ascii_case(before));
        let rest = media.get(before.len()..).unwrap_or_default();
        begins
            && rest.len() > after.len()
            && rest.get(rest.len() - after.len()..).is_some_and(|end| end.eq_ignore_ascii_case(after))
    }
}

impl<'de> Deserialize<'de> for MediaPattern {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_they_say() {
        for (pattern, media, expected) in [
            ("text/css", "text/css", true),
            ("text/css", "TEXT/CSS; charset=utf-8", true),
            ("text/css", "text/css2", false),
            ("Text/*", "text/html;a=b", true),
            ("text/*", "text/", false),
            ("text/*", "application/text/html", false),
            ("application/*+json", "application/problem+json", true),
            ("application/*+json", "application/+json", false),
            ("application/*+json", "application/json", false),
            ("application/*+json", "application/vnd.a+jsonx", false),
            ("*/*", "image/png", true),
            ("*/*", "", false),
        ] {
            assert_eq!(
                MediaPattern::new(pattern).unwrap().matches(media.as_bytes()),
                expected,
                "{pattern} {media}"
            );
        }
        for wrong in [
            "", "text", "text/", "/css", "*", "*/css", "text/c*", "text/*+", "text/*+*", "te xt/a", "a/b/c",
            "a/b;c",
        ] {
            assert!(MediaPattern::new(wrong).is_err(), "{wrong}");
        }
    }
}
