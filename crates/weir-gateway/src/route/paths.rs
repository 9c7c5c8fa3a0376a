//! All routes of one host entry, found by path in the order of precedence.
//!
//! ```text
//!   whole literal ── one hash lookup ─▶ leaf
//!   trie by segment ─ level by level ─▶ leaves of the last level   (`/users/{id}`)
//!   regexes ── of the first segment and loose ones, merged by rank
//!   trie again ── levels from the deepest up ─▶ leaves of prefixes (`/beta/*`)
//! ```
//!
//! Cost of a lookup: one hash of the path where it is no longer than the longest literal, one hash of each segment as deep
//! as the patterns go, one run of each regex whose literal prefix fits, and the conditions of each candidate that has the
//! path. A longer path costs nothing more; neither does a route that does not have the path. With patterns that mix
//! `{name}` and literals in one place, a level holds every node that fits: at most as many as there are such patterns.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use smallvec::{SmallVec, smallvec};

use super::RouteId;
use super::pattern::{PathRegex, Pattern, Segment, Shape, Tail};

type Map<K, V> = HashMap<K, V, RandomState>;

/// Trie nodes that one lookup may visit without touching the heap.
const INLINE_NODES: usize = 32;

/// A route in a leaf, with one bit that says whether it has conditions, so that the usual route that has none costs no
/// look at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate(u32);

const CONDITIONAL: u32 = 1 << 31;
const NOBODY: Candidate = Candidate(u32::MAX);

impl Candidate {
    pub(super) fn new(route: RouteId, conditional: bool) -> Self {
        Self(route.0 | if conditional { CONDITIONAL } else { 0 })
    }

    pub(super) fn route(self) -> RouteId {
        RouteId(self.0 & !CONDITIONAL)
    }

    pub(super) fn is_conditional(self) -> bool {
        self.0 & CONDITIONAL != 0
    }
}

/// Routes of one shape, best first. The first stands in the leaf itself: most leaves have one.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    first: Candidate,
    /// Where the others stand in [`Paths::others`].
    from: u32,
    to: u32,
}

impl Default for Leaf {
    fn default() -> Self {
        Self { first: NOBODY, from: 0, to: 0 }
    }
}

#[derive(Debug, Default)]
struct Node {
    /// Exact templates that end here.
    exact: Leaf,
    /// Prefixes that end here.
    prefix: Leaf,
    capture: Option<u32>,
    literals: Children,
}

/// Most nodes have one literal child or none; those need no table.
#[derive(Debug, Default)]
enum Children {
    Many(Map<Box<[u8]>, u32>),
    #[default]
    None,
    One(Box<[u8]>, u32),
}

/// The routes of one host entry.
#[derive(Debug, Default)]
pub(super) struct Paths {
    literals: Map<Box<[u8]>, Leaf>,
    longest_literal: usize,
    /// Node 0 is the root: the path before its first slash.
    nodes: Vec<Node>,
    /// By rank.
    regexes: Vec<(Candidate, PathRegex)>,
    /// Ranks of the regexes that begin with this whole segment.
    regexes_by_segment: Map<Box<[u8]>, Vec<u32>>,
    /// Ranks of the others.
    loose_regexes: Vec<u32>,
    others: Vec<Candidate>,
}

// === impl Paths ===

impl Paths {
    /// Files the routes, which come in the order of their rank: more conditions first, then higher priority.
    pub(super) fn build<'p>(ranked: impl Iterator<Item = (Candidate, &'p Pattern)>) -> Self {
        let mut paths = Self { nodes: vec![Node::default()], ..Self::default() };
        let mut literals: Map<Box<[u8]>, Vec<Candidate>> = Map::default();
        let mut leaves: Map<(u32, bool), Vec<Candidate>> = Map::default();
        for (candidate, pattern) in ranked {
            match &pattern.shape {
                Shape::Regex(regex) => paths.add_regex(candidate, regex),
                Shape::Segments { segments, tail } => match whole_literal(segments, tail) {
                    Some(literal) => literals.entry(literal).or_default().push(candidate),
                    None => {
                        let node = paths.node(segments);
                        leaves.entry((node, *tail == Tail::Exact)).or_default().push(candidate);
                    }
                },
            }
        }
        for (literal, candidates) in literals {
            paths.longest_literal = paths.longest_literal.max(literal.len());
            let leaf = paths.leaf(&candidates);
            paths.literals.insert(literal, leaf);
        }
        for ((node, exact), candidates) in leaves {
            let leaf = paths.leaf(&candidates);
            let node = &mut paths.nodes[node as usize];
            *(if exact { &mut node.exact } else { &mut node.prefix }) = leaf;
        }
        paths
    }

    /// The first candidate for `path`, in the order of precedence, that `accept` takes.
    pub(super) fn find(&self, path: &[u8], accept: &mut impl FnMut(Candidate) -> bool) -> Option<Candidate> {
        if path.len() <= self.longest_literal
            && let Some(leaf) = self.literals.get(path)
            && let Some(won) = self.first(leaf, accept)
        {
            return Some(won);
        }
        // A host with nothing but `/*` and literals needs no walk (from 9 ns to 5 ns for a single `/*`, route_bench).
        if let [root] = &self.nodes[..]
            && self.regexes.is_empty()
        {
            return self.first(&root.prefix, accept);
        }
        let mut visited: SmallVec<[u32; INLINE_NODES]> = smallvec![0];
        let mut levels: SmallVec<[u32; INLINE_NODES]> = smallvec![0];
        if self.walk(path, &mut visited, &mut levels) {
            let last = levels.last().map_or(0, |&start| start as usize);
            for node in self.nodes_at(visited.get(last..)) {
                if let Some(won) = self.first(&node.exact, accept) {
                    return Some(won);
                }
            }
        }
        if !self.regexes.is_empty()
            && let Some(won) = self.find_regex(path, accept)
        {
            return Some(won);
        }
        // The longest prefix is the deepest level; within a level the nodes stand in order.
        let mut end = visited.len();
        while let Some(start) = levels.pop() {
            for node in self.nodes_at(visited.get(start as usize..end)) {
                if let Some(won) = self.first(&node.prefix, accept) {
                    return Some(won);
                }
            }
            end = start as usize;
        }
        None
    }

    /// Goes down the trie along the segments of `path`, all nodes of a level at once, a literal before a `{name}`: so
    /// each level is in the order of precedence. Ends where the path ends (true) or no node fits any more (false).
    fn walk(
        &self,
        path: &[u8],
        visited: &mut SmallVec<[u32; INLINE_NODES]>,
        levels: &mut SmallVec<[u32; INLINE_NODES]>,
    ) -> bool {
        let Some((b'/', mut rest)) = path.split_first() else { return false };
        let mut level = 0..1;
        loop {
            let cut = if level.len() == 1 && self.is_leaf(visited.get(level.start)) {
                // Nothing below: the usual end of a prefix, found without looking for the next slash.
                return false;
            } else {
                memchr::memchr(b'/', rest)
            };
            let segment = rest.get(..cut.unwrap_or(rest.len())).unwrap_or_default();
            for at in level.clone() {
                let Some(node) = visited.get(at).and_then(|&node| self.nodes.get(node as usize)) else {
                    continue;
                };
                visited.extend(node.literals.get(segment));
                visited.extend(node.capture.filter(|_| !segment.is_empty()));
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

    fn is_leaf(&self, node: Option<&u32>) -> bool {
        let node = node.and_then(|&node| self.nodes.get(node as usize));
        node.is_none_or(|node| node.capture.is_none() && matches!(node.literals, Children::None))
    }

    fn nodes_at<'a>(&'a self, numbers: Option<&'a [u32]>) -> impl Iterator<Item = &'a Node> {
        numbers.unwrap_or_default().iter().filter_map(|&node| self.nodes.get(node as usize))
    }

    fn first(&self, leaf: &Leaf, accept: &mut impl FnMut(Candidate) -> bool) -> Option<Candidate> {
        if leaf.first == NOBODY {
            return None;
        }
        if accept(leaf.first) {
            return Some(leaf.first);
        }
        let others = self.others.get(leaf.from as usize..leaf.to as usize)?;
        others.iter().copied().find(|&candidate| accept(candidate))
    }

    /// Merges the regexes of the path's first segment and the loose ones by rank and takes the first that matches.
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
        // Only a prefix with a second slash holds the whole first segment.
        let whole = regex.prefix.get(1..).and_then(|inner| Some(&inner[..memchr::memchr(b'/', inner)?]));
        match whole {
            Some(segment) => self.regexes_by_segment.entry(segment.into()).or_default().push(rank),
            None => self.loose_regexes.push(rank),
        }
    }

    /// The node that `segments` lead to, made where it is missing.
    fn node(&mut self, segments: &[Segment]) -> u32 {
        let mut at = 0_u32;
        for segment in segments {
            let new = number(self.nodes.len());
            let node = &mut self.nodes[at as usize];
            at = match segment {
                Segment::Capture(_) => *node.capture.get_or_insert(new),
                Segment::Literal(literal) => node.literals.get_or_insert(literal, new),
            };
            if at == new {
                self.nodes.push(Node::default());
            }
        }
        at
    }

    fn leaf(&mut self, candidates: &[Candidate]) -> Leaf {
        let Some((&first, others)) = candidates.split_first() else { return Leaf::default() };
        let from = number(self.others.len());
        self.others.extend_from_slice(others);
        Leaf { first, from, to: number(self.others.len()) }
    }
}

// === impl Children ===

impl Children {
    fn get(&self, segment: &[u8]) -> Option<u32> {
        match self {
            Self::Many(children) => children.get(segment).copied(),
            Self::None => None,
            Self::One(name, node) => (**name == *segment).then_some(*node),
        }
    }

    fn get_or_insert(&mut self, segment: &[u8], new: u32) -> u32 {
        if let Some(node) = self.get(segment) {
            return node;
        }
        *self = match std::mem::take(self) {
            Self::None => Self::One(segment.into(), new),
            Self::One(name, node) => Self::Many([(name, node), (segment.into(), new)].into_iter().collect()),
            Self::Many(mut children) => {
                children.insert(segment.into(), new);
                Self::Many(children)
            }
        };
        new
    }
}

/// The path of a pattern that is one literal from end to end.
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

fn first_segment(path: &[u8]) -> Option<&[u8]> {
    let inner = path.get(1..)?;
    inner.get(..memchr::memchr(b'/', inner).unwrap_or(inner.len()))
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("a table holds fewer than 2^31 routes, segments and regexes")
}
