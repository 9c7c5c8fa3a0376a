//! The patterns of one host entry that compare less than whole segments, or letters without case: `/users/{id}.json`,
//! `/beta*`, and the paths of routes that ignore case.
//!
//! They have a trie of their own, so that a host without them pays nothing. Which of them come before which plain
//! patterns varies from place to place, so each shape of the host gets a number when the table is built, its rank. A
//! lookup collects what fits from both tries and sorts it by rank.
//!
//! Cost of a lookup, besides the plain trie's: per segment and node, one hash lookup for each distinct pair of
//! lengths before and after a capture, and for each distinct length of a raw prefix.

use smallvec::{SmallVec, smallvec};

use super::super::pattern::{Case, Pattern, Segment, Shape, Tail, between};
use super::super::request::RouteId;
use super::{Candidate, Cursor, INLINE_NODES, Leaf, Map, NOBODY, Name, Paths, higher};

/// Paths up to this length are put into lower case without touching the heap.
const INLINE_PATH: usize = 256;

/// Routes of one shape that fit a path, by rank.
type Ranked = SmallVec<[Ending; INLINE_NODES]>;

#[derive(Debug)]
pub(super) struct Partial {
    /// The first is the path before its first slash.
    nodes: Vec<Node>,
    /// The ranks of the shapes in the plain trie, by the first route of each.
    plain: Map<RouteId, u32>,
    ignores_case: bool,
}

/// Where a shape ends.
#[derive(Clone, Copy, Debug)]
struct Ending {
    rank: u32,
    leaf: Leaf,
}

#[derive(Debug, Default)]
struct Node {
    exact: Option<Ending>,
    prefix: Option<Ending>,
    raw: Vec<Raws>,
    capture: Option<u32>,
    literals: Map<Name, u32>,
    /// In lower case.
    folded: Map<Name, u32>,
    parts: Vec<Parts>,
}

/// Part-literals with as many bytes before and after their captures, by both texts in one.
#[derive(Debug)]
struct Parts {
    before: usize,
    after: usize,
    case: Case,
    children: Map<Name, u32>,
}

/// Raw prefixes of one length.
#[derive(Debug)]
struct Raws {
    length: usize,
    case: Case,
    endings: Map<Name, Ending>,
}

/// A path, and the same in lower case if a route ignores case.
struct Cased<'p> {
    path: &'p [u8],
    lower: SmallVec<[u8; INLINE_PATH]>,
}

// === impl Paths ===

impl Paths {
    /// Like [`find`](Self::find), after the literals, for a host with partial patterns.
    #[inline(never)]
    pub(super) fn find_ranked(
        &self,
        partial: &Partial,
        path: &[u8],
        accept: &mut impl FnMut(Candidate) -> bool,
    ) -> Option<Candidate> {
        let (mut exact, mut prefixes) = (Ranked::new(), Ranked::new());
        let root = Cursor { place: self.root, step: 0 };
        let mut visited: SmallVec<[Cursor; INLINE_NODES]> = smallvec![root];
        let mut levels: SmallVec<[u32; INLINE_NODES]> = smallvec![0];
        if self.walk(path, &mut visited, &mut levels) {
            let last = levels.last().map_or(0, |&start| start as usize);
            let ends = visited.get(last..).unwrap_or_default();
            exact.extend(ends.iter().filter_map(|&at| partial.rank(self.leaf_at(at, true))));
        }
        prefixes.extend(visited.iter().filter_map(|&at| partial.rank(self.leaf_at(at, false))));
        partial.collect(path, &mut exact, &mut prefixes);
        exact.sort_unstable_by_key(|ending| ending.rank);
        if let Some(won) = exact.iter().find_map(|ending| self.first(ending.leaf, accept)) {
            return Some(won);
        }
        let regex = (!self.regexes.is_empty()).then(|| self.find_regex(path, accept)).flatten();
        if regex.is_some() && self.rivals.is_none() {
            return regex;
        }
        prefixes.sort_unstable_by_key(|ending| ending.rank);
        let prefix = prefixes.iter().find_map(|ending| self.first(ending.leaf, accept));
        match (regex, &self.rivals) {
            (Some(regex), Some(rivals)) => Some(higher(rivals, regex, prefix)),
            (regex, _) => regex.or(prefix),
        }
    }
}

// === impl Partial ===

impl Partial {
    /// Builds from all shapes of a host entry that are not whole literals: those of the plain trie by their first
    /// routes, and those that belong here.
    pub(super) fn build(plain: Vec<(&Pattern, RouteId)>, partial: Vec<(&Pattern, Leaf)>) -> Self {
        let plain = plain.into_iter().map(|(pattern, route)| (pattern, Err(route)));
        let partial = partial.into_iter().map(|(pattern, leaf)| (pattern, Ok(leaf)));
        let mut all: Vec<(&Pattern, Result<Leaf, RouteId>)> = plain.chain(partial).collect();
        all.sort_by(|(a, _), (b, _)| a.compare(b).0);
        let mut built = Self { nodes: vec![Node::default()], plain: Map::default(), ignores_case: false };
        for (rank, (pattern, owner)) in (0..).zip(all) {
            match owner {
                Ok(leaf) => built.insert(pattern, Ending { rank, leaf }),
                Err(route) => drop(built.plain.insert(route, rank)),
            }
        }
        built
    }

    fn insert(&mut self, pattern: &Pattern, ending: Ending) {
        let Shape::Segments { segments, tail } = &pattern.shape else { return };
        self.ignores_case |= pattern.ignores_case();
        let mut at = 0;
        for segment in segments {
            at = self.child(at, segment);
        }
        let Some(node) = self.nodes.get_mut(at) else { return };
        match tail {
            Tail::Exact => node.exact = Some(ending),
            Tail::Raw(raw) => {
                let same = |raws: &Raws| raws.length == raw.text.len() && raws.case == raw.case;
                let group = node.raw.iter().position(same).unwrap_or_else(|| {
                    node.raw.push(Raws { length: raw.text.len(), case: raw.case, endings: Map::default() });
                    node.raw.len() - 1
                });
                node.raw[group].endings.insert(key(&[&raw.text], raw.case), ending);
            }
            Tail::Rest(_) => node.prefix = Some(ending),
        }
    }

    /// The node behind a segment.
    fn child(&mut self, at: usize, segment: &Segment) -> usize {
        let next = self.nodes.len() as u32; // a table holds fewer than 2^31 segments
        let node = &mut self.nodes[at];
        let child = match segment {
            Segment::Capture(_) => *node.capture.get_or_insert(next),
            Segment::Folded(text) => *node.folded.entry(key(&[text], Case::Insensitive)).or_insert(next),
            Segment::Literal(text) => *node.literals.entry(key(&[text], Case::Sensitive)).or_insert(next),
            Segment::Part(part) => {
                let (before, after, case) = (part.before.len(), part.after.len(), part.case);
                let same = |parts: &Parts| (parts.before, parts.after, parts.case) == (before, after, case);
                let group = node.parts.iter().position(same).unwrap_or_else(|| {
                    node.parts.push(Parts { before, after, case, children: Map::default() });
                    node.parts.len() - 1
                });
                *node.parts[group].children.entry(key(&[&part.before, &part.after], case)).or_insert(next)
            }
        };
        if child == next {
            self.nodes.push(Node::default());
        }
        child as usize
    }

    /// A leaf of the plain trie with its rank; `None` if it is empty.
    fn rank(&self, leaf: Leaf) -> Option<Ending> {
        if leaf.first == NOBODY {
            return None;
        }
        Some(Ending { rank: *self.plain.get(&leaf.first.route())?, leaf })
    }

    /// Adds what fits the path, in no order.
    fn collect(&self, path: &[u8], exact: &mut Ranked, prefixes: &mut Ranked) {
        let cased = Cased::new(path, self.ignores_case);
        let mut level: SmallVec<[u32; INLINE_NODES]> = smallvec![0];
        let mut next = SmallVec::new();
        let mut at = 0; // of the next slash, or the end
        while path.get(at) == Some(&b'/') {
            let start = at + 1;
            let rest = path.get(start..).unwrap_or_default();
            let end = start + memchr::memchr(b'/', rest).unwrap_or(rest.len());
            for node in level.iter().filter_map(|&node| self.nodes.get(node as usize)) {
                node.step(&cased, start, end, &mut next, prefixes);
            }
            std::mem::swap(&mut level, &mut next);
            next.clear();
            let reached = level.iter().filter_map(|&node| self.nodes.get(node as usize));
            prefixes.extend(reached.filter_map(|node| node.prefix));
            at = end;
            if level.is_empty() {
                return;
            }
        }
        if at == path.len() {
            let reached = level.iter().filter_map(|&node| self.nodes.get(node as usize));
            exact.extend(reached.filter_map(|node| node.exact));
        }
    }
}

// === impl Node ===

impl Node {
    /// Where the segment from `start` to `end` leads, and the raw prefixes that end in it.
    fn step(
        &self,
        cased: &Cased<'_>,
        start: usize,
        end: usize,
        next: &mut SmallVec<[u32; INLINE_NODES]>,
        prefixes: &mut Ranked,
    ) {
        let segment = cased.get(Case::Sensitive, start, end);
        for raws in self.raw.iter().filter(|raws| raws.length <= segment.len()) {
            prefixes.extend(raws.endings.get(cased.get(raws.case, start, start + raws.length)).copied());
        }
        if !self.literals.is_empty() {
            next.extend(self.literals.get(segment).copied());
        }
        if !self.folded.is_empty() {
            next.extend(self.folded.get(cased.get(Case::Insensitive, start, end)).copied());
        }
        for parts in &self.parts {
            let Some(captured) = between(segment, parts.before, parts.after) else { continue };
            let before = cased.get(parts.case, start, start + captured.start);
            let after = cased.get(parts.case, start + captured.end, end);
            let child = match (before, after) {
                (before, b"") => parts.children.get(before),
                (b"", after) => parts.children.get(after),
                (before, after) => parts.children.get(&*key(&[before, after], Case::Sensitive)),
            };
            next.extend(child.copied());
        }
        if !segment.is_empty() {
            next.extend(self.capture);
        }
    }
}

// === impl Cased ===

impl<'p> Cased<'p> {
    fn new(path: &'p [u8], ignores_case: bool) -> Self {
        let lower =
            if ignores_case { path.iter().map(u8::to_ascii_lowercase).collect() } else { SmallVec::new() };
        Self { path, lower }
    }

    fn get(&self, case: Case, start: usize, end: usize) -> &[u8] {
        let path = match case {
            Case::Insensitive => &*self.lower,
            Case::Sensitive => self.path,
        };
        path.get(start..end).unwrap_or_default()
    }
}

fn key(texts: &[&[u8]], case: Case) -> Name {
    let bytes = texts.iter().flat_map(|text| text.iter());
    match case {
        Case::Insensitive => bytes.map(u8::to_ascii_lowercase).collect(),
        Case::Sensitive => bytes.copied().collect(),
    }
}
