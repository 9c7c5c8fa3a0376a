//! The routes of one host entry, found by path in the order of precedence.
//!
//! ```text
//!   whole literal ── one hash lookup ─▶ leaf
//!   trie by segment ─ level by level ─▶ leaves of the last level   (`/users/{id}`)
//!   regexes ── of the first segment and loose ones, merged by rank
//!   trie again ── levels from the deepest up ─▶ leaves of prefixes (`/beta/*`)
//! ```
//!
//! Where some prefix has a higher priority than some regex, the best of each is found, and the higher priority wins.
//! Elsewhere a regex that matches ends the search.
//!
//! A host with a pattern that compares a part of a segment, or ignores case, has a second trie beside it (`partial.rs`).
//!
//! Cost of a lookup: one hash of the path unless it is longer than the longest literal, and one hash per segment as
//! deep as the patterns go. In addition, one run of each regex whose literal prefix fits, and the conditions of each
//! candidate with a matching path. A longer path costs no more, and neither do routes with other paths. If patterns
//! mix `{name}` and literals in one place, a level holds every node that fits: at most as many as there are such
//! patterns.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;

use foldhash::fast::RandomState;
use smallvec::{SmallVec, smallvec};

use super::pattern::{Class, PathRegex, Pattern, Segment, Shape, Tail};
use super::request::RouteId;

mod partial;
use self::partial::Partial;

type Map<K, V> = HashMap<K, V, RandomState>;

/// A segment as a table's key. A short one is stored inline.
type Name = SmallVec<[u8; 16]>;

/// Trie nodes that one lookup may visit without touching the heap.
const INLINE_NODES: usize = 32;

/// A route in a leaf, with one bit for whether it has conditions. The usual route has none, and its conditions need
/// not be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate(u32);

const CONDITIONAL: u32 = 1 << 31;
const NOBODY: Candidate = Candidate(u32::MAX);

impl Candidate {
    pub(super) fn new(route: RouteId, conditional: bool) -> Self {
        Self(route.0 | if conditional { CONDITIONAL } else { 0 })
    }

    #[inline]
    pub(super) fn route(self) -> RouteId {
        RouteId(self.0 & !CONDITIONAL)
    }

    #[inline]
    pub(super) fn is_conditional(self) -> bool {
        self.0 & CONDITIONAL != 0
    }
}

/// Routes with one shape, best first. The first is stored inline, because most leaves have only one.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    first: Candidate,
    /// The index of the others in [`Paths::others`]; 0 if there are none.
    others: u32,
}

impl Default for Leaf {
    fn default() -> Self {
        Self { first: NOBODY, others: 0 }
    }
}

/// A point in the trie where shapes diverge, or where one ends on the way to another.
#[derive(Debug, Default)]
struct Node {
    /// Exact templates that end here.
    exact: Leaf,
    /// Prefixes that end here.
    prefix: Leaf,
    capture: Option<Place>,
    literals: Children,
}

/// Most nodes have at most one literal child and need no table.
#[derive(Debug, Default)]
enum Children {
    Many(Map<Name, Place>),
    #[default]
    None,
    One(Name, Place),
}

/// Where a step leads: to a node or, if only one route continues, to the rest of its path.
///
/// Among 10,000 routes the next one requested is not in the cache, and each cache line costs 100 ns. So a route has a
/// single line here: the entry in a table of children with its name and this. With every route requested in turn, a
/// lookup costs 0.2 µs more among 10,000 than among 10; with a node per segment it was 0.6 (suite routes).
#[derive(Clone, Copy, Debug)]
enum Place {
    Node(u32),
    Rest { rest: NonZeroU32, route: Candidate },
}

const _: () = assert!(size_of::<(Name, Place)>() == 32);

/// The rest that a path must have to match. Each is stored once, however many routes end alike, so that it stays in
/// the cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rest {
    /// Whole segments; `None` is a `{name}`.
    parts: Box<[Option<Name>]>,
    /// Whether the path must end after them.
    exact: bool,
}

/// The progress of a lookup: a place, and the number of segments into its rest.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    place: Place,
    step: u32,
}

/// Routes with one shape while the trie is built.
struct Same<'p> {
    segments: &'p [Segment],
    exact: bool,
    candidates: Vec<Candidate>,
    /// Of any of them.
    pattern: &'p Pattern,
}

/// The routes of one host entry.
#[derive(Debug)]
pub(super) struct Paths {
    literals: Map<Box<[u8]>, Leaf>,
    longest_literal: usize,
    /// The path before its first slash.
    root: Place,
    nodes: Vec<Node>,
    /// By number; 0 is none.
    rests: Vec<Rest>,
    /// By rank.
    regexes: Vec<(Candidate, PathRegex)>,
    /// Ranks of the regexes that begin with exactly this segment.
    regexes_by_segment: Map<Box<[u8]>, Vec<u32>>,
    /// Ranks of the other regexes.
    loose_regexes: Vec<u32>,
    /// All but the first route of each leaf with several; 0 belongs to none.
    others: Vec<Box<[Candidate]>>,
    /// Of most hosts there is none.
    partial: Option<Box<Partial>>,
    /// The priorities of regexes and prefixes, if a prefix may beat a regex.
    rivals: Option<Box<Map<RouteId, i32>>>,
}

// === impl Paths ===

impl Paths {
    /// Builds from routes in the order of their rank: more conditions first, then higher priority.
    pub(super) fn build<'p>(ranked: impl Iterator<Item = (Candidate, i32, &'p Pattern)>) -> Self {
        let mut paths = Self {
            literals: Map::default(),
            longest_literal: 0,
            root: Place::Node(0),
            nodes: Vec::new(),
            rests: vec![Rest::new(&[], false)],
            regexes: Vec::new(),
            regexes_by_segment: Map::default(),
            loose_regexes: Vec::new(),
            others: vec![Box::default()],
            partial: None,
            rivals: None,
        };
        let mut literals: Map<Box<[u8]>, Vec<Candidate>> = Map::default();
        let mut shapes: BTreeMap<Rest, Same<'p>> = BTreeMap::new();
        let mut partial: BTreeMap<String, (&'p Pattern, Vec<Candidate>)> = BTreeMap::new();
        let mut rivals = Vec::new();
        for (candidate, priority, pattern) in ranked {
            if pattern.class() != Class::Exact {
                rivals.push((candidate.route(), priority, pattern.class()));
            }
            match &pattern.shape {
                _ if pattern.is_partial() => {
                    partial.entry(pattern.shape_key()).or_insert((pattern, Vec::new())).1.push(candidate);
                }
                Shape::Regex(regex) => paths.add_regex(candidate, regex),
                Shape::Segments { segments, tail } => match whole_literal(segments, tail) {
                    Some(literal) => literals.entry(literal).or_default().push(candidate),
                    None => {
                        let exact = *tail == Tail::Exact;
                        let same = shapes.entry(Rest::new(segments, exact));
                        let same =
                            same.or_insert_with(|| Same { segments, exact, candidates: Vec::new(), pattern });
                        same.candidates.push(candidate);
                    }
                },
            }
        }
        for (literal, candidates) in literals {
            paths.longest_literal = paths.longest_literal.max(literal.len());
            let leaf = paths.leaf(&candidates);
            paths.literals.insert(literal, leaf);
        }
        if !partial.is_empty() {
            let first = |same: &Same<'p>| Some((same.pattern, same.candidates.first()?.route()));
            let plain = shapes.values().filter_map(first).collect();
            let leaves =
                partial.into_values().map(|(pattern, routes)| (pattern, paths.leaf(&routes))).collect();
            paths.partial = Some(Box::new(Partial::build(plain, leaves)));
        }
        paths.grow(shapes.into_values().collect());
        let of =
            |class| rivals.iter().filter(move |(.., own)| *own == class).map(|(_, priority, _)| *priority);
        if of(Class::Prefix).max() > of(Class::Regex).min() && !paths.regexes.is_empty() {
            paths.rivals = Some(Box::new(rivals.into_iter().map(|(route, own, _)| (route, own)).collect()));
        }
        paths
    }

    /// The first candidate for `path`, in the order of precedence, that `accept` takes.
    pub(super) fn find(&self, path: &[u8], accept: &mut impl FnMut(Candidate) -> bool) -> Option<Candidate> {
        if path.len() <= self.longest_literal
            && let Some(leaf) = self.literals.get(path)
            && let Some(won) = self.first(*leaf, accept)
        {
            return Some(won);
        }
        if let Some(partial) = &self.partial {
            return self.find_ranked(partial, path, accept);
        }
        let root = Cursor { place: self.root, step: 0 };
        // A host with only `/*` and literals needs no walk (9 ns became 5 ns for a single `/*`, route_bench).
        if self.regexes.is_empty() && self.is_end(root) {
            return self.first(self.leaf_at(root, false), accept);
        }
        let mut visited: SmallVec<[Cursor; INLINE_NODES]> = smallvec![root];
        let mut levels: SmallVec<[u32; INLINE_NODES]> = smallvec![0];
        if self.walk(path, &mut visited, &mut levels) {
            let last = levels.last().map_or(0, |&start| start as usize);
            for &at in visited.get(last..).unwrap_or_default() {
                if let Some(won) = self.first(self.leaf_at(at, true), accept) {
                    return Some(won);
                }
            }
        }
        if !self.regexes.is_empty()
            && let Some(won) = self.find_regex(path, accept)
        {
            return Some(match &self.rivals {
                Some(rivals) => higher(rivals, won, self.find_prefix(&visited, levels, accept)),
                None => won,
            });
        }
        self.find_prefix(&visited, levels, accept)
    }

    /// The best prefix among the nodes that a walk visited.
    #[inline]
    fn find_prefix(
        &self,
        visited: &[Cursor],
        mut levels: SmallVec<[u32; INLINE_NODES]>,
        accept: &mut impl FnMut(Candidate) -> bool,
    ) -> Option<Candidate> {
        // The longest prefix is at the deepest level; within a level the nodes are in order.
        let mut end = visited.len();
        while let Some(start) = levels.pop() {
            for &at in visited.get(start as usize..end).unwrap_or_default() {
                if let Some(won) = self.first(self.leaf_at(at, false), accept) {
                    return Some(won);
                }
            }
            end = start as usize;
        }
        None
    }

    /// Walks down the trie along the segments of `path`, all nodes of a level together, a literal before a `{name}`.
    /// So each level is in the order of precedence. Returns true at the end of the path, false when no node fits any
    /// more.
    #[inline]
    fn walk(
        &self,
        path: &[u8],
        visited: &mut SmallVec<[Cursor; INLINE_NODES]>,
        levels: &mut SmallVec<[u32; INLINE_NODES]>,
    ) -> bool {
        let Some((b'/', mut rest)) = path.split_first() else { return false };
        let mut level = 0..1;
        loop {
            let cut = if level.len() == 1 && visited.get(level.start).is_none_or(|&at| self.is_end(at)) {
                // Nothing is below: the usual end of a prefix, found without searching for the next slash.
                return false;
            } else {
                memchr::memchr(b'/', rest)
            };
            let segment = rest.get(..cut.unwrap_or(rest.len())).unwrap_or_default();
            for at in level.clone() {
                let Some(&at) = visited.get(at) else { continue };
                self.step(at, segment, visited);
            }
            level = level.end..visited.len();
            if level.is_empty() {
                return false;
            }
            levels.push(level.start as u32);
            match cut {
                None => return true,
                Some(cut) => rest = rest.get(cut + 1..).unwrap_or_default(),
            }
        }
    }

    /// Adds to `visited` where one more segment leads.
    #[inline]
    fn step(&self, from: Cursor, segment: &[u8], visited: &mut SmallVec<[Cursor; INLINE_NODES]>) {
        let start = |place| Cursor { place, step: 0 };
        match from.place {
            Place::Node(node) => {
                let Some(node) = self.nodes.get(node as usize) else { return };
                if let Some(place) = node.literals.get(segment) {
                    visited.push(start(place));
                }
                if let Some(place) = node.capture.filter(|_| !segment.is_empty()) {
                    visited.push(start(place));
                }
            }
            Place::Rest { rest, .. } => {
                let fits = self.part(rest, from.step).is_some_and(|part| match part {
                    Some(name) => **name == *segment,
                    None => !segment.is_empty(),
                });
                if fits {
                    visited.push(Cursor { step: from.step + 1, ..from });
                }
            }
        }
    }

    #[inline]
    fn part(&self, rest: NonZeroU32, step: u32) -> Option<&Option<Name>> {
        self.rests.get(rest.get() as usize)?.parts.get(step as usize)
    }

    /// Whether no segment leads further.
    #[inline]
    fn is_end(&self, at: Cursor) -> bool {
        match at.place {
            Place::Node(node) => self.nodes.get(node as usize).is_none_or(Node::is_end),
            Place::Rest { rest, .. } => self.part(rest, at.step).is_none(),
        }
    }

    /// The routes that end here: exact templates, or prefixes.
    #[inline]
    fn leaf_at(&self, at: Cursor, exact: bool) -> Leaf {
        let leaf = match at.place {
            Place::Node(node) => {
                self.nodes.get(node as usize).map(|node| if exact { node.exact } else { node.prefix })
            }
            Place::Rest { rest, route } => {
                let rest = self.rests.get(rest.get() as usize);
                let rest = rest.filter(|rest| rest.exact == exact && rest.parts.len() == at.step as usize);
                rest.map(|_| Leaf { first: route, others: 0 })
            }
        };
        leaf.unwrap_or_default()
    }

    fn first(&self, leaf: Leaf, accept: &mut impl FnMut(Candidate) -> bool) -> Option<Candidate> {
        if leaf.first == NOBODY {
            return None;
        }
        if accept(leaf.first) {
            return Some(leaf.first);
        }
        self.others.get(leaf.others as usize)?.iter().copied().find(|&candidate| accept(candidate))
    }

    /// Merges by rank the regexes of the path's first segment with the loose ones, and takes the first that matches.
    fn find_regex(&self, path: &[u8], accept: &mut impl FnMut(Candidate) -> bool) -> Option<Candidate> {
        let mut bound = self.regexes_by_segment.get(first_segment(path)?).map_or(&[][..], Vec::as_slice);
        let mut loose = self.loose_regexes.as_slice();
        loop {
            let next = match (bound.split_first(), loose.split_first()) {
                (Some((rank, rest)), other) if other.is_none_or(|(other, _)| rank < other) => {
                    bound = rest;
                    *rank
                }
                (_, Some((rank, rest))) => {
                    loose = rest;
                    *rank
                }
                (_, None) => return None,
            };
            let (candidate, regex) = self.regexes.get(next as usize)?;
            if regex.matches(path) && accept(*candidate) {
                return Some(*candidate);
            }
        }
    }

    fn add_regex(&mut self, candidate: Candidate, regex: &PathRegex) {
        let rank = number(self.regexes.len());
        self.regexes.push((candidate, regex.clone()));
        // Only a prefix with a second slash contains the whole first segment.
        let whole = regex.prefix.get(1..).and_then(|inner| Some(&inner[..memchr::memchr(b'/', inner)?]));
        match whole {
            Some(segment) => self.regexes_by_segment.entry(segment.into()).or_default().push(rank),
            None => self.loose_regexes.push(rank),
        }
    }

    /// Builds the trie.
    fn grow(&mut self, shapes: Vec<Same<'_>>) {
        let mut numbers = BTreeMap::new();
        let mut open = Vec::new();
        self.root = self.place(shapes, 0, &mut numbers, &mut open);
        while let Some((at, depth, shapes)) = open.pop() {
            let mut node = Node::default();
            let mut literals: BTreeMap<&[u8], Vec<Same<'_>>> = BTreeMap::new();
            let mut captured = Vec::new();
            for shape in shapes {
                match shape.segments.get(depth) {
                    Some(Segment::Literal(literal)) => literals.entry(literal).or_default().push(shape),
                    Some(Segment::Capture(_) | Segment::Folded(_) | Segment::Part(_)) => captured.push(shape),
                    None if shape.exact => node.exact = self.leaf(&shape.candidates),
                    None => node.prefix = self.leaf(&shape.candidates),
                }
            }
            let mut below = |shapes| self.place(shapes, depth + 1, &mut numbers, &mut open);
            node.capture = (!captured.is_empty()).then(|| below(captured));
            node.literals =
                literals.into_iter().map(|(name, shapes)| (Name::from(name), below(shapes))).collect();
            self.nodes[at as usize] = node;
        }
    }

    /// Where shapes with this many common segments continue. A new node for them is left `open`.
    fn place<'p>(
        &mut self,
        shapes: Vec<Same<'p>>,
        depth: usize,
        numbers: &mut BTreeMap<Rest, NonZeroU32>,
        open: &mut Vec<(u32, usize, Vec<Same<'p>>)>,
    ) -> Place {
        if let [Same { segments, exact, candidates, .. }] = &shapes[..]
            && let [route] = candidates[..]
        {
            let rest = Rest::new(segments.get(depth..).unwrap_or_default(), *exact);
            let rest = *numbers.entry(rest).or_insert_with_key(|rest| {
                self.rests.push(rest.clone());
                NonZeroU32::new(number(self.rests.len() - 1)).expect("number 0 is none")
            });
            return Place::Rest { rest, route };
        }
        let node = number(self.nodes.len());
        self.nodes.push(Node::default());
        open.push((node, depth, shapes));
        Place::Node(node)
    }

    fn leaf(&mut self, candidates: &[Candidate]) -> Leaf {
        let Some((&first, others)) = candidates.split_first() else { return Leaf::default() };
        if others.is_empty() {
            return Leaf { first, others: 0 };
        }
        self.others.push(others.into());
        Leaf { first, others: number(self.others.len() - 1) }
    }
}

// === impl Node ===

impl Node {
    #[inline]
    fn is_end(&self) -> bool {
        self.capture.is_none() && matches!(self.literals, Children::None)
    }
}

// === impl Children ===

impl Children {
    #[inline]
    fn get(&self, segment: &[u8]) -> Option<Place> {
        match self {
            Self::Many(children) => children.get(segment).copied(),
            Self::None => None,
            Self::One(name, place) => (**name == *segment).then_some(*place),
        }
    }
}

impl FromIterator<(Name, Place)> for Children {
    fn from_iter<T: IntoIterator<Item = (Name, Place)>>(children: T) -> Self {
        let mut children = children.into_iter();
        match (children.next(), children.next()) {
            (None, _) => Self::None,
            (Some((name, place)), None) => Self::One(name, place),
            (Some(first), Some(second)) => Self::Many([first, second].into_iter().chain(children).collect()),
        }
    }
}

// === impl Rest ===

impl Rest {
    fn new(segments: &[Segment], exact: bool) -> Self {
        let part = |segment: &Segment| match segment {
            Segment::Literal(literal) => Some(Name::from(&literal[..])),
            Segment::Capture(_) | Segment::Folded(_) | Segment::Part(_) => None,
        };
        Self { parts: segments.iter().map(part).collect(), exact }
    }
}

/// Of the best regex and the best prefix, the one with the higher priority; the regex if they are equal.
fn higher(rivals: &Map<RouteId, i32>, regex: Candidate, prefix: Option<Candidate>) -> Candidate {
    let priority = |candidate: Candidate| rivals.get(&candidate.route()).copied().unwrap_or_default();
    prefix.filter(|prefix| priority(*prefix) > priority(regex)).unwrap_or(regex)
}

/// The path of a pattern that is entirely literal.
fn whole_literal(segments: &[Segment], tail: &Tail) -> Option<Box<[u8]>> {
    if *tail != Tail::Exact {
        return None;
    }
    let mut path = Vec::new();
    for segment in segments {
        let Segment::Literal(literal) = segment else { return None };
        path.push(b'/');
        path.extend_from_slice(literal);
    }
    Some(path.into())
}

#[inline]
fn first_segment(path: &[u8]) -> Option<&[u8]> {
    let inner = path.get(1..)?;
    inner.get(..memchr::memchr(b'/', inner).unwrap_or(inner.len()))
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("a table holds fewer than 2^31 routes, segments and regexes")
}
