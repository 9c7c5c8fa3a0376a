//! `replace` of `rewrite`: regular expressions over the path, and what takes the place of what they match.

use super::super::prelude::*;
use regex::bytes::{Regex, RegexBuilder};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use std::borrow::Cow;
use std::fmt;
use weir_filter::template::{Escape, Template, Values, Var};

/// Most expressions of one filter.
const MOST: usize = 64;

/// Largest compiled expression, in bytes, as in routes.
const REGEX_BYTES: usize = 1 << 20;

/// Expressions and replacements, in the order written.
#[derive(Debug, Default)]
pub(super) struct Replacements(Vec<(String, String)>);

/// The compiled expressions. The first that matches changes the path.
pub(super) struct Replace {
    rules: Vec<Rule>,
}

struct Rule {
    pattern: Regex,
    with: Template,
    /// The groups that the replacement may name, and their numbers.
    groups: Vec<(Var, usize)>,
    /// How many dot segments the replacement itself writes.
    dots: usize,
}

// === impl Replacements ===

impl Replacements {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn compile(&self, build: &mut Build<'_>) -> Replace {
        if self.0.len() > MOST {
            build.refuse("replace", format!("holds {} expressions; at most {MOST}", self.0.len()), None);
        }
        let rules = self.0.iter().filter_map(|(pattern, with)| Rule::compile(pattern, with, build));
        Replace { rules: rules.collect() }
    }
}

impl<'de> Deserialize<'de> for Replacements {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Replacements;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("regular expressions and replacements, such as { \"^/a/(.*)$\": \"/b/$1\" }")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Replacements, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Replacements(pairs))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Replacements, A::Error> {
                let mut pairs = Vec::new();
                while let Some(Replacements(more)) = list.next_element()? {
                    pairs.extend(more);
                }
                Ok(Replacements(pairs))
            }
        }

        deserializer.deserialize_any(Pairs)
    }
}

/// A list, because a JSON object does not keep the order.
impl Serialize for Replacements {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Pair<'a>(&'a str, &'a str);

        impl Serialize for Pair<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry(self.0, self.1)?;
                map.end()
            }
        }

        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for (pattern, with) in &self.0 {
            list.serialize_element(&Pair(pattern, with))?;
        }
        list.end()
    }
}

impl JsonSchema for Replacements {
    fn schema_name() -> Cow<'static, str> {
        "Replacements".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let map = json_schema!({ "type": "object", "additionalProperties": { "type": "string" } });
        json_schema!({ "anyOf": [map, { "type": "array", "items": map }] })
    }
}

// === impl Rule ===

impl Rule {
    fn compile(text: &str, with: &str, build: &mut Build<'_>) -> Option<Self> {
        let field = format!("replace.{text}");
        let built = RegexBuilder::new(text)
            .unicode(false)
            .size_limit(REGEX_BYTES)
            .dfa_size_limit(REGEX_BYTES)
            .build();
        let pattern = match built {
            Ok(pattern) => pattern,
            Err(e) => {
                let told = e.to_string();
                let reason = told.lines().last().unwrap_or_default().trim_start_matches("error: ");
                let message = format!("the regular expression is malformed: {reason}");
                let hint = "syntax: https://docs.rs/regex/#syntax, on bytes, at most 1 MiB compiled";
                build.refuse(&field, message, Some(hint.into()));
                return None;
            }
        };
        let with = match braced(with, pattern.captures_len()) {
            Ok(with) => with,
            Err((message, hint)) => {
                build.refuse(&field, message, Some(hint.into()));
                return None;
            }
        };
        let mut groups = Vec::new();
        for (number, name) in pattern.capture_names().enumerate() {
            let names = std::iter::once(number.to_string()).chain(name.map(str::to_owned));
            groups.extend(names.map(|name| (Var::Capture(name), number)));
        }
        let mut captures = build.names().captures.unwrap_or_default().to_vec();
        captures.extend(groups.iter().filter_map(|(var, _)| match var {
            Var::Capture(name) => Some(name.clone()),
            _ => None,
        }));
        let names = build.names().with_captures(&captures);
        let with = build.text_with(&field, &with, &names)?;
        if with.vars().any(|var| *var == Var::Query) || with.sample("").contains(&b'?') {
            build.refuse(&field, "holds a query", Some("the query stays as it is; use query.set".into()));
        }
        let begins = with.beginning().first() == Some(&b'/') || with.beginning().is_empty();
        if text.starts_with('^') && !begins {
            build.refuse(&field, "the path would not begin with `/`", Some("begin with `/`".into()));
        }
        let dots = super::dot_segments(&with.sample("x"));
        Some(Self { pattern, with, groups, dots })
    }
}

/// The replacement with `{1}` in place of `$1`.
fn braced(text: &str, groups: usize) -> Result<String, (String, &'static str)> {
    if text.starts_with("= ") || text.contains("{=") {
        return Ok(text.to_owned()); // a dollar may belong to an expression
    }
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let next = after.chars().next();
        match next.and_then(|next| next.to_digit(10)) {
            Some(number) if (number as usize) < groups => {
                out.push_str(&format!("{{{number}}}"));
                rest = after.get(1..).unwrap_or_default();
            }
            Some(number) => {
                let message = format!("has `${number}`, and the expression has {} groups", groups - 1);
                return Err((
                    message,
                    "groups stand in parentheses and count from 1; $0 is all that matched",
                ));
            }
            None if next.is_some_and(|next| next.is_ascii_alphabetic() || next == '_') => {
                let name: String =
                    after.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                let hint = "write {name} for a group (?<name>…) or a placeholder, and %24 for a dollar";
                return Err((format!("has `${name}`, which is no group"), hint));
            }
            None => {
                out.push('$');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

// === impl Replace ===

impl Replace {
    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        self.rules.iter().map(|rule| &rule.with)
    }

    /// The new path, if an expression matches; with the number of dot segments that the config writes.
    pub(super) fn apply(&self, head: &RequestHead, cx: &Cx) -> Option<(Vec<u8>, usize)> {
        let path = head.path();
        self.rules.iter().find_map(|rule| {
            let found = rule.pattern.captures(path)?;
            let whole = found.get(0)?;
            let (vars, values): (Vec<Var>, Vec<Vec<u8>>) = rule
                .groups
                .iter()
                .map(|(var, number)| {
                    let text = found.get(*number).map(|group| group.as_bytes().to_vec());
                    (var.clone(), text.unwrap_or_default())
                })
                .unzip();
            let mut new = path.get(..whole.start()).unwrap_or_default().to_vec();
            rule.with.render(&Values::of(head, cx).with(&vars, &values), Escape::Url, &mut new);
            new.extend_from_slice(path.get(whole.end()..).unwrap_or_default());
            Some((new, rule.dots))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{Stand, run};
    use super::super::KIND;
    use serde_json::json;
    use weir_filter::error::BAD_PATH;

    #[tokio::test]
    async fn the_first_that_matches_changes_the_path() {
        let settings = json!({ "replace": [
            { "^/a/(.*)$": "/b/$1" },
            { "^/u/(?<id>[0-9]+)/([a-z]*)": "/users/{id}-$2" },
            { "old": "new" },
            { "(?i)^/CASE": "/case/$0" },
            { "^/price": "/5$-{method}" },
            { "^/b/": "/never/" },
        ] });
        for (path, new) in [
            ("/a/x/y?q=1", "/b/x/y?q=1"),
            ("/a/", "/b/"),
            ("/a", "/a"),
            ("/u/17/abc/more", "/users/17-abc/more"),
            ("/u/17/", "/users/17-"),
            ("/is/old/and/old", "/is/new/and/old"),
            ("/Case", "/case/Case"),
            ("/price", "/5$-GET"),
            ("/a/%C3%A9%2Fx%3F", "/b/%C3%A9%2Fx%3F"),
        ] {
            let mut exchange = run(&KIND, settings.clone(), &format!("GET {path}")).await;
            exchange.expect_continue().expect_target(new);
        }
    }

    /// No path leads out of the folder that the config writes, however a request is put together.
    #[tokio::test]
    async fn nothing_climbs_out() {
        for (pattern, with, path) in [
            ("^/a(.*)$", "/b/$1", "/a."),
            ("^/a(.*)$", "/b/$1", "/a.."),
            ("^/a(.*)/(.*)$", "/b/$1$2", "/a./."),
            ("^/x-(.*)$", "/b/.$1", "/x-."),
            ("x", "", "/.x./secret"),
            ("^/", "", "/a"),
            ("^/a(.*)$", "/b/%2$1", "/aF"),
        ] {
            let settings = json!({ "replace": { pattern: with } });
            let mut exchange = run(&KIND, settings, &format!("GET {path}")).await;
            match path {
                "/aF" => exchange.expect_continue().expect_target("/b/%2F"),
                _ => exchange.expect_cause(&BAD_PATH),
            };
        }
        let kept = json!({ "replace": { "^/a(.*)$": "/b/c/../d$1" } });
        run(&KIND, kept, "GET /a/x").await.expect_continue().expect_target("/b/d/x");
    }

    /// Patterns that take other engines exponential time.
    #[tokio::test]
    async fn time_is_linear() {
        let path = format!("/{}", "a".repeat(7_000));
        let settings = json!({ "replace": { "^/(a+)+$x": "/x", "^/(a|a)*b$": "/y", "(a*)*c": "/z" } });
        let begin = std::time::Instant::now();
        run(&KIND, settings, &format!("GET {path}")).await.expect_continue().expect_target(&path);
        assert!(begin.elapsed() < std::time::Duration::from_secs(2), "{:?}", begin.elapsed());
    }

    #[tokio::test]
    async fn captures_of_the_route_too() {
        let settings = json!({ "replace": { "/([0-9]+)$": "/{team}/$1" } });
        let mut stand = Stand::new(&KIND, settings).path("/t/{team}/{rest*}");
        stand.build().request("GET /t/red/7").await.expect_target("/t/red/red/7");
    }

    #[test]
    fn mistakes() {
        let long = "(?:a{1000}){1000}";
        for (settings, expected) in [
            (json!({ "replace": { "(": "/" } }), "malformed: unclosed group"),
            (json!({ "replace": { long: "/" } }), "malformed"),
            (json!({ "replace": { "(a)\\1": "/" } }), "malformed: backreferences are not supported"),
            (json!({ "replace": { "^/(a)": "/$2" } }), "has `$2`, and the expression has 1 groups"),
            (json!({ "replace": { "^/a": "$uri" } }), "has `$uri`, which is no group"),
            (json!({ "replace": { "^/a": "b" } }), "would not begin with `/`"),
            (json!({ "replace": { "^/a": "/b?c=1" } }), "use query.set"),
            (json!({ "replace": { "^/a": "/{b}" } }), "not a placeholder"),
            (json!({ "replace": { "^/a": "/b" }, "path": "/c" }), "cannot be combined"),
            (json!({ "replace": { "^/a": "/b" }, "strip_prefix": "/c" }), "cannot be combined"),
            (json!({ "replace": "x" }), "regular expressions and replacements"),
        ] {
            let mistakes = Stand::new(&KIND, settings.clone()).mistakes();
            assert!(mistakes.iter().any(|m| m.contains(expected)), "{settings}: {mistakes:#?}");
        }
    }
}
