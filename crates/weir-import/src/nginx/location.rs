//! Locations: the flat list of a server, and nginx's rule which of them takes a path.
//!
//! nginx takes the exact one, else finds the longest prefix; that wins if it is `^~`; else the first regex as
//! written; else the prefix. In Weir the best prefix and the best regex are found first, and the higher `priority`
//! wins; equal, the regex. So the translation is exact: prefixes have 0, `^~` a priority above all regexes of the
//! server, regexes descending ones in file order, and those nested in a prefix higher ones still.

mod search;

pub(super) use search::{NewPath, find, search, search_all};

use super::block::Block;
use super::context::Cx;
use super::read::Directive;
use super::translate::leave_all;
use crate::shared::path;
use crate::shared::regex::{Searching, Subject};
use regex::bytes::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

/// A location.
pub(super) struct Location<'a> {
    /// None for what a server does where no location takes a path.
    pub(super) directive: Option<&'a Directive>,
    pub(super) block: Rc<Block<'a>>,
    pub(super) kind: Kind,
    /// For the names of routes.
    pub(super) slug: String,
    /// Why nobody may reach it: its pattern was not understood, and something in it keeps people out.
    pub(super) closed: Option<String>,
}

/// Which paths a location takes.
pub(super) enum Kind {
    /// `= /path`
    Exact(String),
    /// `/path`. Where it stops, the server's regexes are not asked: it, or the outermost location around it, is `^~`.
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
    collect(cx, server, None, &[], &mut flat);
    let has_root =
        flat.iter().any(|location| matches!(&location.kind, Kind::Prefix { path, .. } if path == "/"));
    if !has_root {
        let kind = Kind::Prefix { path: "/".to_owned(), stops: false };
        let slug = "root".to_owned();
        flat.push(Location { directive: None, block: Rc::clone(server), kind, slug, closed: None });
    }
    rank(&mut flat);
    flat
}

/// What surrounds a location.
#[derive(Clone, Copy)]
struct Outer<'o> {
    /// The prefix of the location around it.
    path: &'o str,
    /// Whether the outermost location around it is `^~`: nginx looks at that alone before it asks the server's regexes.
    stops: bool,
}

/// `shadows` are prefixes beside the locations around these, which nginx takes instead, as they are longer.
fn collect<'a>(
    cx: &mut Cx<'a, '_>,
    block: &Rc<Block<'a>>,
    outer: Option<Outer<'_>>,
    shadows: &[&'a str],
    flat: &mut Vec<Location<'a>>,
) {
    let directives = block.own("location").to_vec();
    // Sorted, so that a prefix finds the longer ones at once: a server may have thousands.
    let prefixes: BTreeSet<&'a str> =
        directives.iter().copied().filter(|directive| !is_exact(directive)).filter_map(path_of).collect();
    for directive in &directives {
        let directive = *directive;
        let inner = Block::new(directive.block.iter().flatten(), Some(Rc::clone(block)));
        if let Some(by) = path_of(directive).and_then(|path| shadows.iter().find(|by| path.starts_with(**by)))
        {
            let why = format!(
                "nginx never looks for it: `location {by}` beside the location around it takes its paths"
            );
            cx.ledger.left_out(directive.piece, why);
            leave_all(cx, directive, "it stands in a location that nginx never looks for");
            continue;
        }
        let Some((kind, slug)) = read(cx, directive, outer) else {
            refuse_all(cx, directive);
            if let Some(kind) = wider(directive, outer) {
                let closed = Some(format!("`location {}` at {}", directive.args.join(" "), directive.place));
                flat.push(Location {
                    directive: Some(directive),
                    block: inner,
                    kind,
                    slug: slug(&directive.args.join(" ")),
                    closed,
                });
            }
            continue;
        };
        cx.ledger.same(directive.piece);
        let (path, stops) = match &kind {
            Kind::Prefix { path, stops } => (Some(path.clone()), *stops),
            _ => (None, false),
        };
        flat.push(Location {
            directive: Some(directive),
            block: Rc::clone(&inner),
            kind,
            slug,
            closed: None,
        });
        match path {
            Some(path) => {
                let beside = prefixes
                    .range::<str, _>((Bound::Included(&*path), Bound::Unbounded))
                    .take_while(|other| other.starts_with(&*path));
                let longer = beside.copied().filter(|other| other.len() > path.len());
                let shadows: Vec<&str> = shadows.iter().copied().chain(longer).collect();
                collect(cx, &inner, Some(Outer { path: &path, stops }), &shadows, flat);
            }
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

/// The modifier and the text of a location.
fn words(directive: &Directive) -> Option<(&str, &str)> {
    match &*directive.args {
        [text] => {
            let found = ["^~", "~*", "=", "~"].iter().find_map(|m| Some((*m, text.strip_prefix(m)?)));
            Some(found.unwrap_or(("", &**text)))
        }
        [modifier, text] => Some((&**modifier, &**text)),
        _ => None,
    }
}

/// The path of a location with a prefix or an exact path.
fn path_of(directive: &Directive) -> Option<&str> {
    let (modifier, text) = words(directive)?;
    (matches!(modifier, "=" | "" | "^~") && text.starts_with('/')).then_some(text)
}

fn is_exact(directive: &Directive) -> bool {
    words(directive).is_some_and(|(modifier, _)| modifier == "=")
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
    outer: Option<Outer<'_>>,
) -> Option<(Kind, String)> {
    let Some((modifier, text)) = words(directive) else {
        let why = "a location has a path, and one word before it at most";
        cx.ledger.refused(directive.piece, why, "match.path");
        return None;
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
                    let within = outer.map(|outer| (outer.path.to_owned(), Vec::new()));
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
                _ => {
                    let stops = outer.map_or(modifier == "^~", |outer| outer.stops);
                    Kind::Prefix { path: text.to_owned(), stops }
                }
            };
            Some((kind, slug(text)))
        }
        other => {
            cx.ledger.refused(directive.piece, format!("`{other}` is no word of a location"), "match.path");
            None
        }
    }
}

/// Stands in for a regex location that was not understood and keeps people out: a pattern that takes at least its
/// paths, without what is around them (`(?!x)`). None for others, whose paths nginx gave to everybody too.
fn wider(directive: &Directive, outer: Option<Outer<'_>>) -> Option<Kind> {
    let (modifier, text) = words(directive).filter(|(modifier, _)| modifier.starts_with('~'))?;
    if !keeps_out(directive) {
        return None;
    }
    let read = |text: &str| {
        let pattern = Searching::read(text, modifier == "~*", Subject::Path).ok()?;
        Some((pattern.compiled().ok()?, pattern))
    };
    let (compiled, pattern) = without_looks(text).and_then(|text| read(&text)).or_else(|| read("^/"))?;
    let within = outer.map(|outer| (outer.path.to_owned(), Vec::new()));
    Some(Kind::Regex { pattern, compiled, within, priority: 0 })
}

/// Whether something in a block keeps people out.
fn keeps_out(directive: &Directive) -> bool {
    directive.block.iter().flatten().any(|line| {
        let is_guard = match &*line.name {
            "auth_basic" | "auth_request" | "satisfy" => line.first() != "off",
            "allow" | "auth_jwt" | "deny" | "internal" | "limit_except" => true,
            "return" => line.first().starts_with(['4', '5']),
            name => super::block::may_guard(name),
        };
        is_guard || keeps_out(line)
    })
}

/// A pattern without its look-arounds, which only narrow it. None if it has something else that cannot be cut out.
fn without_looks(pattern: &str) -> Option<String> {
    let mut out = String::new();
    let mut rest = pattern;
    while let Some(at) = ["(?!", "(?=", "(?<!", "(?<="].iter().filter_map(|look| rest.find(look)).min() {
        out.push_str(&rest[..at]);
        let (mut depth, mut end, mut is_escaped) = (0_usize, None, false);
        for (at, c) in rest[at..].char_indices() {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '[' => return None,
                '(' => depth += 1,
                ')' => {
                    depth -= 1;
                    if depth == 0 {
                        end = Some(at + 1);
                        break;
                    }
                }
                _ => {}
            }
        }
        rest = &rest[at + end?..];
    }
    out.push_str(rest);
    Some(out)
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
    let stride = left + 1;
    // A prefix that stands in the block of the nested regex's own prefix lets it win, unless it is `^~`, and so do
    // those in it; one beside that block does not.
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
                let mut open: Vec<&Directive> = block.own("location").to_vec();
                open.retain(|directive| words(directive).is_none_or(|(modifier, _)| modifier != "^~"));
                let mut own = BTreeSet::new();
                while let Some(directive) = open.pop() {
                    own.extend(paths_of.get(&address(directive)).map(String::as_str));
                    open.extend(directive.block.iter().flatten().filter(|inner| inner.name == "location"));
                }
                own
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
            if let Some((_, holes)) = within {
                // Deeper ones are asked first.
                let level = location.block.outward().skip(1).count();
                *priority += NESTED + stride * i64::try_from(level).unwrap_or(0);
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

    /// The `^~` prefix that takes every path which this regex could match, if there is one. A longer prefix without
    /// `^~` inside it gives regexes a chance again.
    pub(super) fn is_never_asked<'l>(&self, all: &'l [Location<'_>]) -> Option<&'l str> {
        let Kind::Regex { pattern, within: None, .. } = &self.kind else { return None };
        if pattern.ignores_case() {
            return None;
        }
        // Every path begins with a slash.
        let start =
            Some(pattern.literal_start()).filter(|start| !start.is_empty()).unwrap_or_else(|| "/".to_owned());
        let prefixes = || {
            all.iter().filter_map(|other| match &other.kind {
                Kind::Prefix { path, stops } => Some((&**path, *stops)),
                _ => None,
            })
        };
        // The best prefix for each path that begins so: the longest that the beginning has, or a longer one.
        let (best, stops) =
            prefixes().filter(|(path, _)| start.starts_with(path)).max_by_key(|(path, _)| path.len())?;
        let longer =
            prefixes().any(|(path, stops)| !stops && path.len() > start.len() && path.starts_with(&start));
        (stops && !longer).then_some(best)
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

/// The named location.
pub(super) fn named<'l, 'a>(all: &'l [Location<'a>], name: &str) -> Option<&'l Location<'a>> {
    all.iter().find(|location| matches!(&location.kind, Kind::Named(known) if known == name))
}
