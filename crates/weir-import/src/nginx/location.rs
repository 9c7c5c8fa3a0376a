//! Locations: the flat list of a server, and nginx's rule which of them takes a path.
//!
//! nginx takes the exact one, else finds the longest prefix; that wins if it is `^~`; else the first regex as
//! written; else the prefix. In Weir the best prefix and the best regex are found first, and the higher `priority`
//! wins; equal, the regex. So the translation is exact: prefixes have 0, `^~` a priority above all regexes of the
//! server, regexes descending ones in file order, and those nested in a prefix higher ones still.

use super::block::Block;
use super::context::Cx;
use super::read::Directive;
use crate::shared::path;
use crate::shared::regex::{Searching, Subject};
use crate::shared::template::{Part, Template};
use regex::bytes::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A location.
pub(super) struct Location<'a> {
    /// None for what a server does where no location takes a path.
    pub(super) directive: Option<&'a Directive>,
    pub(super) block: Rc<Block<'a>>,
    pub(super) kind: Kind,
    /// For the names of routes.
    pub(super) slug: String,
}

/// Which paths a location takes.
pub(super) enum Kind {
    /// `= /path`
    Exact(String),
    /// `/path`; with `^~` regexes are not asked.
    Prefix { path: String, stops: bool },
    /// `~ regex`, possibly nested in a prefix.
    Regex {
        pattern: Searching,
        compiled: Regex,
        /// The prefix around it, and longer prefixes beside it whose paths are not its own.
        within: Option<(String, Vec<String>)>,
        priority: i64,
    },
    /// `@name`
    Named(String),
}

/// Priority of `^~`.
const STOPS: i64 = 10_000;
/// Priority of a regex in a prefix, at least.
const NESTED: i64 = 20_000;

/// The locations of a server, in the order of the file, those in others after them.
pub(super) fn flatten<'a>(cx: &mut Cx<'a, '_>, server: &Rc<Block<'a>>) -> Vec<Location<'a>> {
    let mut flat = Vec::new();
    collect(cx, server, None, false, &mut flat);
    let has_root =
        flat.iter().any(|location| matches!(&location.kind, Kind::Prefix { path, .. } if path == "/"));
    if !has_root {
        let kind = Kind::Prefix { path: "/".to_owned(), stops: false };
        flat.push(Location { directive: None, block: Rc::clone(server), kind, slug: "root".to_owned() });
    }
    rank(&mut flat);
    flat
}

fn collect<'a>(
    cx: &mut Cx<'a, '_>,
    block: &Rc<Block<'a>>,
    outer: Option<&str>,
    outer_stops: bool,
    flat: &mut Vec<Location<'a>>,
) {
    for directive in block.own("location").to_vec() {
        let inner = Block::new(directive.block.iter().flatten(), Some(Rc::clone(block)));
        let Some((kind, slug)) = read(cx, directive, outer, outer_stops) else {
            refuse_all(cx, directive);
            continue;
        };
        cx.ledger.same(directive.piece);
        let (path, stops) = match &kind {
            Kind::Prefix { path, stops } => (Some(path.clone()), *stops),
            _ => (None, false),
        };
        flat.push(Location { directive: Some(directive), block: Rc::clone(&inner), kind, slug });
        match path {
            Some(path) => collect(cx, &inner, Some(&path), stops, flat),
            None => {
                for nested in inner.own("location").to_vec() {
                    let why = "a location in a regex or an exact one: both would have to match";
                    cx.ledger.refused(nested.piece, why, "two routes, one with `match.when`");
                    refuse_all(cx, nested);
                }
            }
        }
    }
}

/// What a refused block holds is refused with it.
pub(super) fn refuse_all(cx: &mut Cx<'_, '_>, directive: &Directive) {
    for inner in directive.block.iter().flatten() {
        if !cx.ledger.is_judged(inner.piece) {
            cx.ledger.refused(inner.piece, "it stands in a block that is refused", "");
        }
        refuse_all(cx, inner);
    }
}

fn read<'a>(
    cx: &mut Cx<'a, '_>,
    directive: &'a Directive,
    outer: Option<&str>,
    outer_stops: bool,
) -> Option<(Kind, String)> {
    let (modifier, text) = match &*directive.args {
        [text] => {
            let found = ["^~", "~*", "=", "~"].iter().find_map(|m| Some((*m, text.strip_prefix(m)?)));
            found.unwrap_or(("", text))
        }
        [modifier, text] => (&**modifier, &**text),
        _ => {
            cx.ledger.refused(
                directive.piece,
                "a location has a path, and one word before it at most",
                "match.path",
            );
            return None;
        }
    };
    if let Some(name) = text.strip_prefix('@').filter(|_| modifier.is_empty()) {
        return Some((Kind::Named(name.to_owned()), name.to_owned()));
    }
    match modifier {
        "~" | "~*" => {
            let made = Searching::read(text, modifier == "~*", Subject::Path)
                .and_then(|pattern| Ok((pattern.compiled()?, pattern)));
            match made {
                Ok((compiled, pattern)) => {
                    let within = outer.map(|outer| (outer.to_owned(), Vec::new()));
                    Some((Kind::Regex { pattern, compiled, within, priority: 0 }, slug(text)))
                }
                Err(why) => {
                    let nearest = "several routes with plain paths, which beat regexes";
                    cx.ledger.refused(directive.piece, why, nearest);
                    None
                }
            }
        }
        "=" | "" | "^~" => {
            if let Some(why) = path::never_matches(text) {
                cx.ledger.refused(directive.piece, why, "match.path");
                return None;
            }
            let kind = match modifier {
                "=" => Kind::Exact(text.to_owned()),
                _ => Kind::Prefix { path: text.to_owned(), stops: modifier == "^~" || outer_stops },
            };
            Some((kind, slug(text)))
        }
        other => {
            cx.ledger.refused(directive.piece, format!("`{other}` is no word of a location"), "match.path");
            None
        }
    }
}

/// Letters and digits of a path, for the name of a route.
fn slug(text: &str) -> String {
    let kept: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let words: Vec<&str> = kept.split('-').filter(|word| !word.is_empty()).take(6).collect();
    match words.is_empty() {
        true if text == "/" => "root".to_owned(),
        true => "pattern".to_owned(),
        false => words.join("-"),
    }
}

/// Gives regexes their priorities, and finds the longer prefixes beside nested ones.
fn rank(flat: &mut [Location<'_>]) {
    let prefixes: Vec<String> = flat
        .iter()
        .filter_map(|location| match &location.kind {
            Kind::Prefix { path, .. } => Some(path.clone()),
            _ => None,
        })
        .collect();
    // Room for the routes of each regex's own rewrites: between that regex and the one before it.
    let room = |location: &Location<'_>| 1 + i64::try_from(location.rewrites()).unwrap_or(0);
    let is_regex = |location: &&Location<'_>| matches!(location.kind, Kind::Regex { .. });
    let mut left: i64 = flat.iter().filter(is_regex).map(room).sum();
    // A prefix that stands in the block of the nested regex's own prefix lets it win; one beside that block does not.
    let address = |directive: &Directive| std::ptr::from_ref(directive) as usize;
    let mut own_paths: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
    let paths_of: BTreeMap<usize, String> = flat
        .iter()
        .filter_map(|location| match (&location.kind, location.directive) {
            (Kind::Prefix { path, .. }, Some(directive)) => Some((address(directive), path.clone())),
            _ => None,
        })
        .collect();
    let mut all_holes: Vec<Vec<String>> = Vec::new();
    for location in flat.iter() {
        let Kind::Regex { within: Some((outer, _)), .. } = &location.kind else { continue };
        let around = location.block.outward().nth(1);
        let own = around.map(|block| {
            own_paths.entry(std::ptr::from_ref(block) as usize).or_insert_with(|| {
                let inner = block.own("location").iter();
                inner.filter_map(|directive| paths_of.get(&address(directive))).map(String::as_str).collect()
            })
        });
        let holes = prefixes.iter().filter(|path| {
            path.len() > outer.len()
                && path.starts_with(&**outer)
                && !own.as_ref().is_some_and(|own| own.contains(path.as_str()))
        });
        all_holes.push(holes.cloned().collect());
    }
    let mut all_holes = all_holes.into_iter();
    for location in flat.iter_mut() {
        let rewrites = i64::try_from(location.rewrites()).unwrap_or(0);
        if let Kind::Regex { within, priority, .. } = &mut location.kind {
            *priority = left - rewrites;
            left -= 1 + rewrites;
            if let Some((outer, holes)) = within {
                // Deeper ones are asked first.
                *priority += NESTED + 1000 * i64::try_from(outer.matches('/').count()).unwrap_or(0);
                *holes = all_holes.next().unwrap_or_default();
            }
        }
    }
}

impl Location<'_> {
    /// How many routes of their own its rewrites may need.
    fn rewrites(&self) -> usize {
        match self.directive {
            Some(_) => {
                let inner = self.block.own("if").iter().flat_map(|line| line.block.iter().flatten());
                self.block.own("rewrite").len() + inner.filter(|line| line.name == "rewrite").count()
            }
            None => 0,
        }
    }

    /// The priority of its route. Without regexes none is needed.
    pub(super) fn priority(&self, all: &[Location<'_>]) -> i64 {
        match &self.kind {
            Kind::Regex { priority, .. } => *priority,
            Kind::Prefix { stops: true, .. } => {
                let any = all.iter().any(|other| matches!(other.kind, Kind::Regex { .. }));
                if any { STOPS } else { 0 }
            }
            _ => 0,
        }
    }
}

/// The location that takes a path, by nginx's rule.
pub(super) fn find<'l, 'a>(all: &'l [Location<'a>], path: &str) -> Option<&'l Location<'a>> {
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
pub(super) struct NewPath {
    /// Its beginning, decoded.
    start: String,
    /// Whether that is all of it.
    is_whole: bool,
    /// Whether the last segments are those of the old path, so that a pattern for the end of a path matches both or
    /// none.
    keeps_end: bool,
}

impl NewPath {
    pub(super) fn of(path: &Template, keeps_end: bool) -> Self {
        let mut start = String::new();
        for part in path.parts() {
            match part {
                Part::Text(text) => start.push_str(text),
                part => {
                    // The old path begins with a slash; a group might not.
                    if start.is_empty() || *part == Part::Placeholder("path".to_owned()) {
                        start.push('/');
                    }
                    return Self { start, is_whole: false, keeps_end };
                }
            }
        }
        Self { start, is_whole: true, keeps_end: false }
    }

    /// Whether a pattern may match it.
    pub(super) fn may_match(&self, pattern: &Searching) -> bool {
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
pub(super) fn search<'l, 'a>(
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
pub(super) fn search_all<'l, 'a>(
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

/// The named location.
pub(super) fn named<'l, 'a>(all: &'l [Location<'a>], name: &str) -> Option<&'l Location<'a>> {
    all.iter().find(|location| matches!(&location.kind, Kind::Named(known) if known == name))
}
