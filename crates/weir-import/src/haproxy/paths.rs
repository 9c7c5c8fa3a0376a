//! `replace-path`: the regular expressions that Weir's rewrite can say.

use super::sample::unescaped;
use crate::config::Filter;
use crate::shared::expression::Expression;
use crate::shared::path;
use crate::shared::regex::{Searching, Subject};
use crate::shared::template::{Part, Template};
use crate::yaml::Map;

/// What a `replace-path` comes to.
pub(super) struct Replaced {
    /// Which paths it changes.
    pub(super) is: Expression,
    pub(super) filter: Filter,
    /// What differs.
    pub(super) why: Option<String>,
}

/// Ends of patterns that stand for the rest of the path, and the number of their group.
const RESTS: &[(&str, &str)] = &[
    ("/?(.*)", "1"),
    ("[/]?(.*)", "1"),
    ("(/|$)(.*)", "2"),
    ("(/)?(.*)", "2"),
    ("(/.*)?", "1"),
    ("(/.*)", "1"),
    ("(.*)", "1"),
    ("(.+)", "1"),
];

/// Reads a pattern and its replacement. `with_query`: of path and query.
///
/// # Errors
/// Why Weir has no such rewrite.
pub(super) fn replace(pattern: &str, to: &str, with_query: bool) -> Result<Replaced, String> {
    if to.contains('?') {
        return Err("path and query in one".to_owned());
    }
    let made = prefix(pattern, to);
    if with_query {
        // The pattern would see the query, which Weir's does not.
        return made;
    }
    made.or_else(|why| by_regex(pattern, to).map_err(|lacks| lacks.unwrap_or(why)))
}

/// Any pattern: HAProxy puts the replacement in the place of the whole path, wherever the pattern matches in it.
fn by_regex(pattern: &str, to: &str) -> Result<Replaced, Option<String>> {
    if pattern.contains(super::read::MARK) || to.contains(super::read::MARK) || to.contains("%[") {
        return Err(Some("the replacement is not fixed".to_owned()));
    }
    if !to.starts_with('/') && !to.starts_with("\\") {
        return Err(None);
    }
    let regex = Searching::read(pattern, false, Subject::Path).map_err(Some)?;
    let mut with = String::new();
    let mut chars = to.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some(digit) if digit.is_ascii_digit() => with.push_str(&format!("${digit}")),
                Some(other) => with.push(other),
                None => return Err(None),
            },
            ('$' | '{' | '}', _) => return Err(Some(format!("`{c}` in the new path"))),
            _ => with.push(c),
        }
    }
    let pattern = match regex.searching().strip_prefix('^') {
        Some(rest) if !rest.contains('|') => format!("^{rest}"),
        _ => format!("^.*?(?:{})", regex.searching()),
    };
    let pattern = match pattern.ends_with('$') && !pattern.ends_with("\\$") {
        true => pattern,
        false => format!("{pattern}.*$"),
    };
    let filter = Filter::new("rewrite", Map::new().with("replace", Map::new().with(pattern, with)));
    Ok(Replaced { is: Expression::constant(true), filter, why: None })
}

/// A path that begins with a value, as Weir writes it: the slash is literal.
pub(super) fn setting(text: &Template) -> String {
    let mut parts = text.parts().to_vec();
    if let Some(Part::Value(first)) = parts.first_mut() {
        *first = Expression::raw(format!("({}).substring(1)", first.as_str()));
        let mut all = Template::text("/");
        parts.into_iter().for_each(|part| all.push(part));
        return all.to_setting();
    }
    text.to_setting()
}

/// Prefixes of whole segments, and single paths.
fn prefix(pattern: &str, to: &str) -> Result<Replaced, String> {
    let why = || {
        "Weir replaces prefixes of whole segments, or a path by groups of the route's own pattern".to_owned()
    };
    let (is_anchored, rest) = pattern.strip_prefix('^').map_or((false, pattern), |rest| (true, rest));
    let path = || Expression::raw("request.path");
    if let Some(whole) =
        rest.strip_suffix('$').and_then(unescaped).filter(|_| is_anchored && !to.contains('\\'))
    {
        let filter = Filter::new("rewrite", Map::new().with("path", Template::text(to).to_setting()));
        return Ok(Replaced { is: path().equals(Expression::text(&whole)), filter, why: None });
    }
    let rest =
        rest.strip_suffix('$').filter(|rest| !rest.ends_with('\\') && !rest.ends_with("(/|")).unwrap_or(rest);
    let (prefix, end, group) = RESTS
        .iter()
        .find_map(|(end, group)| Some((unescaped(rest.strip_suffix(end)?)?, *end, *group)))
        .ok_or_else(why)?;
    let add = to.strip_suffix(&format!("\\{group}")).filter(|add| !add.contains('\\')).ok_or_else(why)?;
    if !add.is_empty() && !add.starts_with('/') {
        return Err("the new path would not begin with a slash".to_owned());
    }
    let mut changes = Vec::new();
    if !is_anchored && !prefix.is_empty() {
        changes.push(format!("Weir replaces `{prefix}` at the start of the path only"));
    }
    let strip = prefix.trim_end_matches('/');
    let has_slash =
        prefix.ends_with('/') || end.starts_with('/') || end.starts_with("[/]") || end.starts_with("(/");
    let add_trimmed = add.trim_end_matches('/');
    let keeps_slash = matches!(end, "(/.*)" | "(/.*)?");
    // Both sides must come to whole segments: `/a/` + rest to `/b/` + rest, or `/a` + `/rest` to `/b` + `/rest`.
    match (has_slash && !keeps_slash, add.ends_with('/')) {
        _ if prefix.is_empty() && !has_slash => {
            if add.ends_with('/') {
                return Err("the new path would begin with two slashes".to_owned());
            }
        }
        (true, true) | (false, false) if has_slash => {}
        (true, false) if add.is_empty() || end == "(/|$)(.*)" => return Err(why()),
        (false, false) => changes.push(format!(
            "Weir replaces whole segments: `{strip}x` is left alone, which HAProxy would make `{add}x`"
        )),
        _ => return Err(why()),
    }
    if !strip.is_empty() {
        changes.push(path::TELLS_PREFIX.to_owned());
    }
    let mut map = Map::new();
    if !strip.is_empty() {
        map.set("strip_prefix", strip);
    }
    if !add_trimmed.is_empty() {
        map.set("add_prefix", add_trimmed);
    }
    if map.is_empty() {
        return Err("it changes nothing".to_owned());
    }
    let is = match (strip.is_empty(), prefix.ends_with('/') || end == "(/.*)") {
        (true, _) => Expression::constant(true),
        (false, true) => path().starts_with(&format!("{strip}/")),
        // strip_prefix leaves paths alone that have it not as whole segments.
        (false, false) => Expression::constant(true),
    };
    let why = (!changes.is_empty()).then(|| changes.join("; "));
    Ok(Replaced { is, filter: Filter::new("rewrite", map), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_seen_in_regular_expressions() {
        let cases = [
            ("^/api/(.*)", "/\\1", r#"when request.path.startsWith("/api/"): strip_prefix: /api"#),
            ("^/api(/.*)?$", "\\1", "strip_prefix: /api"),
            ("^/api/?(.*)", "/\\1", "strip_prefix: /api"),
            (
                "/foo/(.*)",
                "/bar/\\1",
                r#"when request.path.startsWith("/foo/"): strip_prefix: /foo, add_prefix: /bar"#,
            ),
            ("(.*)", "/foo\\1", "add_prefix: /foo"),
            ("^/old$", "/new", r#"when request.path == "/old": path: /new"#),
            ("^/api(.*)", "\\1", "strip_prefix: /api"),
            ("^/(a|b)/(.*)", "/\\2", r#"replace: { "^.*?(?:^/(a|b)/(.*)).*$": "/$$2" }"#),
            ("^/a/(.*)", "/b\\1", r#"replace: { "^/a/(.*).*$": "/b$$1" }"#),
            ("x([0-9]+)$", "/n/\\1/\\1", r#"replace: { "^.*?(?:x([0-9]+)$).*$": "/n/$$1/$$1" }"#),
            ("^/a/(.*)", "b/\\1", "none"),
            ("^/(?=a)(.*)", "/b/\\1", "none"),
        ];
        for (pattern, to, expected) in cases {
            let told = match replace(pattern, to, false) {
                Ok(made) => {
                    let mut map = Map::new();
                    map.set("r", made.filter.settings);
                    let text = map.to_yaml();
                    let text = text.trim().replace("r:\n  ", "").replace("\n  ", ", ");
                    match made.is.as_constant() {
                        Some(true) => text,
                        _ => format!("when {}: {text}", made.is.as_str()),
                    }
                }
                Err(_) => "none".to_owned(),
            };
            assert_eq!(told, expected, "{pattern} {to}");
        }
    }
}
