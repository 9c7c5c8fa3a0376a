//! What is known of the pattern of a `rewrite` before any request arrives.

use crate::shared::regex::Searching;
use crate::shared::template::{Part, Template};

/// Whether the new path ends like the old one: `^/old/(.*)$ /new/$1`.
pub(super) fn keeps_end(pattern: &Searching, written: &str, replacement: &str) -> bool {
    let ends = ["/(.*)$", "/(.*)", "/(.+)$"].iter().any(|end| written.ends_with(end));
    let is_one = written.starts_with('^') && !pattern.whole().starts_with(".*(?:");
    let last = pattern.compiled().map_or(0, |regex| regex.captures_len() - 1);
    ends && is_one && replacement.ends_with(&format!("/${last}"))
}

/// Whether two patterns may match one path.
pub(super) fn may_both(a: &Searching, b: &Searching) -> bool {
    let (a, b) = (a.literal_start(), b.literal_start());
    a.starts_with(&*b) || b.starts_with(&*a)
}

/// The match of a pattern on a path that is known at import.
pub(super) struct Fixed {
    groups: Vec<(String, String)>,
}

impl Fixed {
    pub(super) fn of(pattern: &regex::bytes::Regex, path: &str) -> Option<Self> {
        let found = pattern.captures(path.as_bytes())?;
        let text = |at: usize| {
            let bytes = found.get(at).map(|group| group.as_bytes()).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        let groups = pattern
            .capture_names()
            .enumerate()
            .map(|(at, name)| (name.map_or_else(|| at.to_string(), str::to_owned), text(at)))
            .collect();
        Some(Self { groups })
    }

    pub(super) fn fill(&self, target: &Template) -> Template {
        let mut filled = Template::default();
        for part in target.parts() {
            match part {
                Part::Placeholder(name) => match self.groups.iter().find(|(known, _)| known == name) {
                    Some((_, text)) => filled.push(Part::Text(text.clone())),
                    None => filled.push(part.clone()),
                },
                part => filled.push(part.clone()),
            }
        }
        filled
    }
}

/// Patterns that match every path, by what their group holds.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Whole {
    /// `^(.*)$`: the path.
    Path,
    /// `^/(.*)$`: the path behind its slash.
    BehindSlash,
    /// `^`: there is no group.
    None,
}

pub(super) fn whole_path(pattern: &str) -> Option<Whole> {
    match pattern {
        "^(.*)$" | "^(.*)" | "(.*)" | "(.*)$" | "^(/.*)$" | "^(/.*)" | "^(.+)$" => Some(Whole::Path),
        "^/(.*)$" | "^/(.*)" | "^/?(.*)$" | "/(.*)" => Some(Whole::BehindSlash),
        "^" | "^.*$" | "^.*" | ".*" | "^/" | "/" | "." | ".+" | "^.+$" | "^/.*$" | "^/.*" => {
            Some(Whole::None)
        }
        _ => None,
    }
}

/// The prefix that a `rewrite` takes away in a location of that prefix: `^/p/(.*)$ /$1`.
pub(super) fn strips(pattern: &str, replacement: &str, location: &str) -> Option<String> {
    let prefix = location.trim_end_matches('/');
    let rest = pattern.strip_prefix('^')?;
    let rest =
        rest.strip_prefix(&crate::shared::regex::literal(prefix)).or_else(|| rest.strip_prefix(prefix))?;
    let is_rest = matches!(
        (rest, replacement),
        ("/(.*)$" | "/(.*)" | "/?(.*)$" | "/?(.*)", "/$1" | "/${1}")
            | ("(/.*)$" | "(/.*)", "$1")
            | ("(.*)$" | "(.*)", "$1")
    );
    is_rest.then(|| prefix.to_owned())
}
