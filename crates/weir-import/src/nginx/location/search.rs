//! Which location takes a path: nginx's rule, and what is known of it for a path that a rewrite makes.

use super::{Kind, Location};
use crate::shared::path;
use crate::shared::regex::Searching;
use crate::shared::template::{Part, Template};

/// The location that takes a path, by nginx's rule.
pub(in crate::nginx) fn find<'l, 'a>(all: &'l [Location<'a>], path: &str) -> Option<&'l Location<'a>> {
    let exact = all.iter().find(|location| matches!(&location.kind, Kind::Exact(exact) if exact == path));
    if exact.is_some() {
        return exact;
    }
    let prefix = find_prefix(all, path);
    let stops = prefix.is_some_and(|location| matches!(location.kind, Kind::Prefix { stops: true, .. }));
    let regex = all
        .iter()
        .filter_map(|location| match &location.kind {
            Kind::Regex { compiled, within, priority, .. } if compiled.is_match(path.as_bytes()) => {
                match within {
                    None if stops => None,
                    None => Some((*priority, location)),
                    Some((outer, holes)) => {
                        let is_in =
                            path.starts_with(&**outer) && !holes.iter().any(|hole| path.starts_with(&**hole));
                        is_in.then_some((*priority, location))
                    }
                }
            }
            _ => None,
        })
        .max_by_key(|(priority, _)| *priority)
        .map(|(_, location)| location);
    regex.or(prefix)
}

/// What is known of a path that a `rewrite` makes.
#[derive(Clone, Debug)]
pub(in crate::nginx) struct NewPath {
    /// Its beginning, decoded.
    start: String,
    /// Whether that is all of it.
    is_whole: bool,
    /// Whether the last segments are those of the old path, so that a pattern for the end of a path matches both or
    /// none.
    keeps_end: bool,
    /// Whether the query changes too.
    pub(in crate::nginx) changes_query: bool,
}

impl NewPath {
    pub(in crate::nginx) fn of(path: &Template, keeps_end: bool) -> Self {
        let mut start = String::new();
        for part in path.parts() {
            match part {
                Part::Text(text) => start.push_str(text),
                part => {
                    // The old path begins with a slash; a group might not.
                    if start.is_empty() || *part == Part::Placeholder("path".to_owned()) {
                        start.push('/');
                    }
                    return Self { start, is_whole: false, keeps_end, changes_query: false };
                }
            }
        }
        Self { start, is_whole: true, keeps_end: false, changes_query: false }
    }

    /// Whether a pattern may match it.
    pub(in crate::nginx) fn may_match(&self, pattern: &Searching) -> bool {
        let own = path::canonical(&self.start);
        if self.is_whole {
            return pattern.compiled().is_ok_and(|regex| regex.is_match(own.as_bytes()));
        }
        let (own, start) = match pattern.ignores_case() {
            true => (own.to_ascii_lowercase(), pattern.literal_start().to_ascii_lowercase()),
            false => (own, pattern.literal_start()),
        };
        own.starts_with(&start) || start.starts_with(&own)
    }

    /// Whether a pattern matches it, whatever follows its beginning.
    fn must_match(&self, pattern: &Searching) -> bool {
        let own = path::canonical(&self.start);
        pattern.is_only_a_start() && !pattern.ignores_case() && own.starts_with(&pattern.literal_start())
    }
}

/// The location that takes all paths of which this is known, by nginx's rule. `own` is the one that the old path is in.
///
/// # Errors
/// Which locations may take some of them.
pub(in crate::nginx) fn search<'l, 'a>(
    all: &'l [Location<'a>],
    new: &NewPath,
    own: Option<&Location<'_>>,
) -> Result<&'l Location<'a>, String> {
    let (mut regexes, found) = candidates(all, new)?;
    if own.is_some_and(|own| matches!(own.kind, Kind::Prefix { stops: false, .. })) {
        // A regex for the end of the new path would have taken the old path before its prefix did.
        regexes.retain(|regex| !regex.decides_by_end(new));
    }
    match regexes.into_iter().next() {
        Some(regex) => regex.takes_all(new),
        None => Ok(found),
    }
}

/// The locations that take the paths of which this is known, each with the pattern that the old path must match; the
/// first that does counts.
///
/// # Errors
/// Which locations may take some of them.
pub(in crate::nginx) fn search_all<'l, 'a>(
    all: &'l [Location<'a>],
    new: &NewPath,
) -> Result<Vec<(Option<&'l Searching>, &'l Location<'a>)>, String> {
    let (regexes, found) = candidates(all, new)?;
    let mut takers = Vec::new();
    for regex in regexes {
        if !regex.decides_by_end(new) {
            takers.push((None, regex.takes_all(new)?));
            return Ok(takers);
        }
        takers.push((Some(regex.pattern), regex.location));
    }
    takers.push((None, found));
    Ok(takers)
}

/// A regex location that may take a new path.
struct MayTake<'l, 'a> {
    priority: i64,
    pattern: &'l Searching,
    location: &'l Location<'a>,
}

impl<'l, 'a> MayTake<'l, 'a> {
    /// Whether the old path tells if it takes the new one.
    fn decides_by_end(&self, new: &NewPath) -> bool {
        let is_everywhere = matches!(&self.location.kind, Kind::Regex { within: None, .. });
        is_everywhere && new.keeps_end && self.pattern.is_about_the_end()
    }

    fn takes_all(&self, new: &NewPath) -> Result<&'l Location<'a>, String> {
        let text = self.location.directive.map_or_else(String::new, |directive| directive.args.join(" "));
        if new.must_match(self.pattern) { Ok(self.location) } else { Err(several(&text)) }
    }
}

fn several(what: &str) -> String {
    format!("of the new paths `{what}` may take some, and others the rest")
}

/// The regex locations that may take a new path, the first before the others, and the location of its prefix.
fn candidates<'l, 'a>(
    all: &'l [Location<'a>],
    new: &NewPath,
) -> Result<(Vec<MayTake<'l, 'a>>, &'l Location<'a>), String> {
    let start = &*new.start;
    let none = || "no location takes the new path".to_owned();
    if new.is_whole {
        return Ok((Vec::new(), find(all, start).ok_or_else(none)?));
    }
    for location in all {
        match &location.kind {
            Kind::Exact(path) if path.starts_with(start) => return Err(several(&format!("= {path}"))),
            Kind::Prefix { path, .. } if path.len() > start.len() && path.starts_with(start) => {
                return Err(several(path));
            }
            _ => {}
        }
    }
    let found = find_prefix(all, start).ok_or_else(none)?;
    let stops = matches!(found.kind, Kind::Prefix { stops: true, .. });
    let mut regexes = Vec::new();
    for location in all {
        let Kind::Regex { pattern, within, priority, .. } = &location.kind else { continue };
        let is_asked = match within {
            None => !stops,
            Some((outer, holes)) => {
                start.starts_with(&**outer) && !holes.iter().any(|hole| start.starts_with(&**hole))
            }
        };
        if is_asked && new.may_match(pattern) {
            regexes.push(MayTake { priority: *priority, pattern, location });
        }
    }
    regexes.sort_by_key(|regex| std::cmp::Reverse(regex.priority));
    Ok((regexes, found))
}

/// The longest prefix of a path.
fn find_prefix<'l, 'a>(all: &'l [Location<'a>], path: &str) -> Option<&'l Location<'a>> {
    all.iter()
        .filter(
            |location| matches!(&location.kind, Kind::Prefix { path: prefix, .. } if path.starts_with(&**prefix)),
        )
        .max_by_key(|location| match &location.kind {
            Kind::Prefix { path, .. } => path.len(),
            _ => 0,
        })
}
