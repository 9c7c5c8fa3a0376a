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
use regex::bytes::Regex;
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
    let is_regex = |location: &&mut Location<'_>| matches!(location.kind, Kind::Regex { .. });
    let count = i64::try_from(flat.iter_mut().filter(is_regex).count()).unwrap_or(i64::MAX);
    let mut left = count;
    // A prefix that stands in the block of the nested regex's own prefix lets it win; one beside that block does not.
    let nested_paths: Vec<(String, usize)> = flat
        .iter()
        .filter_map(|location| match (&location.kind, location.directive) {
            (Kind::Prefix { path, .. }, Some(directive)) => {
                Some((path.clone(), std::ptr::from_ref(directive) as usize))
            }
            _ => None,
        })
        .collect();
    let mut inside: Vec<(usize, Vec<String>)> = Vec::new();
    for location in flat.iter() {
        let Kind::Regex { within: Some((outer, _)), .. } = &location.kind else { continue };
        let own = location.block.outward().nth(1).map(|block| {
            nested_paths
                .iter()
                .filter(|(_, at)| {
                    block.own("location").iter().any(|d| std::ptr::from_ref(*d) as usize == *at)
                })
                .map(|(path, _)| path.clone())
                .collect::<Vec<_>>()
        });
        let own = own.unwrap_or_default();
        let holes = prefixes
            .iter()
            .filter(|path| path.len() > outer.len() && path.starts_with(&**outer) && !own.contains(path))
            .cloned()
            .collect();
        inside.push((std::ptr::from_ref(location) as usize, holes));
    }
    for location in flat.iter_mut() {
        let at = std::ptr::from_ref(location) as usize;
        if let Kind::Regex { within, priority, .. } = &mut location.kind {
            *priority = left;
            left -= 1;
            if let Some((outer, holes)) = within {
                // Deeper ones are asked first.
                *priority += NESTED + 1000 * i64::try_from(outer.matches('/').count()).unwrap_or(0);
                *holes = inside.iter().find(|(known, _)| *known == at).map_or(Vec::new(), |(_, h)| h.clone());
            }
        }
    }
}

impl Location<'_> {
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
    let prefix = all
        .iter()
        .filter(|location| matches!(&location.kind, Kind::Prefix { path: prefix, .. } if path.starts_with(&**prefix)))
        .max_by_key(|location| match &location.kind {
            Kind::Prefix { path, .. } => path.len(),
            _ => 0,
        });
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

/// The named location.
pub(super) fn named<'l, 'a>(all: &'l [Location<'a>], name: &str) -> Option<&'l Location<'a>> {
    all.iter().find(|location| matches!(&location.kind, Kind::Named(known) if known == name))
}
