//! `maps:` named tables from a value to a value, which expressions read as `maps.NAME`.
//!
//! ```text
//!   MapsBuilder ── key() ──▶ the type of `of` ── entries() ──▶ table.rs ── build() ──▶ Maps, declared in a schema
//! ```
//!
//! A map is known from the phase of its `of` on, whatever that reads: also through another map.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use weir_expr::{Expression, Mistake, Networks, Phase, Read, Schema, Type, Values, Var, Variable};

mod table;

use self::table::Table;
pub use self::table::{EntryError, Keys, REGEXES};

/// The number of the first map's variable. All below belong to the request.
const FIRST: u16 = 1_024;

/// Most maps of a config.
pub const MAPS: usize = 1_000;

/// All maps of a config, compiled.
#[derive(Debug, Default)]
pub struct Maps(Vec<Map>);

#[derive(Debug)]
struct Map {
    /// `None` for one with mistakes.
    of: Option<Expression>,
    table: Table,
    /// What `of` reads, and what the maps in it read, each once.
    reads: Vec<Read>,
    /// Its values may not be shown.
    conceals: bool,
}

// === impl Maps ===

impl Maps {
    fn map(&self, var: Var) -> Option<&Map> {
        self.0.get(usize::from(var.0.checked_sub(FIRST)?))
    }

    /// The value of a map, for what the request's values make of its `of`. `None` if `var` is no map, and if the map has
    /// no value for this request.
    pub fn text<'a>(&'a self, var: Var, values: &'a dyn Values) -> Option<Cow<'a, [u8]>> {
        let map = self.map(var)?;
        map.table.find(&map.of.as_ref()?.value(values)).map(Cow::Borrowed)
    }

    /// These reads, each map followed by what it reads itself.
    pub fn with_sources<'a>(&'a self, reads: &'a [Read]) -> impl Iterator<Item = Read> + 'a {
        reads.iter().flat_map(|read| {
            let sources = self.map(read.var).map_or(&[][..], |map| &map.reads).iter();
            let within = sources.map(|source| Read { range: read.range.clone(), ..source.clone() });
            std::iter::once(read.clone()).chain(within)
        })
    }

    /// These reads, with what each map reads in its place.
    pub fn sources<'a>(&'a self, reads: &'a [Read]) -> impl Iterator<Item = Read> + 'a {
        self.with_sources(reads).filter(|read| self.map(read.var).is_none())
    }

    /// Whether what `var` comes to may not be shown.
    pub fn conceals(&self, var: Var) -> bool {
        self.map(var).is_some_and(|map| map.conceals)
    }
}

/// The index of a map that another reads, and where that stands in its `of`.
type MapRead = (usize, Range<usize>);

/// Compiles the maps of a config.
#[derive(Debug)]
pub struct MapsBuilder {
    names: Vec<Box<str>>,
    /// What there is without maps.
    own: Schema,
    /// The last phase, in which all is known.
    last: Phase,
    /// Knows every map, as a text that is known at once.
    provisional: Schema,
    written: Vec<Written>,
}

#[derive(Debug, Default)]
struct Written {
    source: Box<str>,
    /// Compiled against the provisional schema.
    of: Option<Expression>,
    table: Table,
    conceals: bool,
}

/// What is wrong with a map's `of` beside the expression itself.
#[derive(Debug)]
pub struct MapMistake {
    /// The index of the map.
    pub map: usize,
    /// What and where.
    pub mistake: Mistake,
}

// === impl MapsBuilder ===

impl MapsBuilder {
    /// A builder of the maps with these names. They may read what `own` knows by the phase `last`.
    pub(super) fn new<'n>(own: Schema, last: Phase, names: impl IntoIterator<Item = &'n str>) -> Self {
        let names: Vec<Box<str>> = names.into_iter().take(MAPS).map(Into::into).collect();
        let mut provisional = own.clone();
        for (index, name) in names.iter().enumerate() {
            provisional.add(variable(name, index, Phase::default()));
        }
        let written = names.iter().map(|_| Written::default()).collect();
        Self { names, own, last, provisional, written }
    }

    /// Whether this text is an expression that a map may look up.
    pub fn is_sound(&self, source: &str) -> bool {
        Expression::compile(source, &self.provisional, self.last).is_ok()
    }

    /// Compiles what a map looks up, and returns what its keys are.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn key(&mut self, map: usize, source: &str) -> Result<Keys, Vec<Mistake>> {
        let of = Expression::compile(source, &self.provisional, self.last)?;
        let keys = match of.ty() {
            Type::Address => Keys::Addresses,
            Type::Bool | Type::Bytes | Type::Double | Type::Int | Type::Json | Type::Text | Type::Uint => {
                Keys::Texts
            }
            other => {
                let message =
                    format!("expected a text, a number, true or false, or an address, found {other}");
                let hint = "a map looks up one value: write such as `request.headers[\"x-tenant\"]`";
                return Err(vec![Mistake::new(0..source.len(), message).hint(hint)]);
            }
        };
        if let Some(written) = self.written.get_mut(map) {
            written.source = source.into();
            written.of = Some(of);
        }
        Ok(keys)
    }

    /// Compiles the entries of a map: keys, and the values to which they lead. `conceals` if a value may not be shown.
    ///
    /// # Errors
    /// Every mistake in them.
    pub fn entries(
        &mut self,
        map: usize,
        keys: Keys,
        entries: &[(&str, &str)],
        default: Option<&str>,
        conceals: bool,
    ) -> Result<(), Vec<EntryError>> {
        let table = Table::build(keys, entries, default)?;
        if let Some(written) = self.written.get_mut(map) {
            (written.table, written.conceals) = (table, conceals);
        }
        Ok(())
    }

    /// The maps, and what expressions may name with them. Those with mistakes have no values.
    pub(super) fn build(mut self) -> (Maps, Schema, Vec<MapMistake>) {
        let mut mistakes = Vec::new();
        let mut schema = std::mem::take(&mut self.own);
        let mut built: BTreeMap<usize, Map> = BTreeMap::new();
        for map in self.order(&mut mistakes) {
            let Some(written) = self.written.get_mut(map) else { continue };
            let (source, table) = (std::mem::take(&mut written.source), std::mem::take(&mut written.table));
            // Again, now that the maps within have their phases and costs.
            let of = written.of.take().and_then(|_| match Expression::compile(&source, &schema, self.last) {
                Ok(of) => Some(of),
                Err(wrong) => {
                    mistakes.extend(wrong.into_iter().map(|mistake| MapMistake { map, mistake }));
                    None
                }
            });
            let name = self.names.get(map).map_or("", |name| name);
            let (phase, cost, longest) =
                of.as_ref().map_or((Phase::default(), 0, 0), |of| (of.phase(), of.cost(), of.longest()));
            let declared = variable(name, map, phase).longest(table.longest());
            schema.add(declared.cost(cost.saturating_add(table.cost(longest))));
            let reads = of.as_ref().map_or(&[][..], Expression::reads);
            let within = |read: &Read| built.get(&index_of(read.var)?).map(|map| map.reads.clone());
            let all = reads
                .iter()
                .flat_map(|read| std::iter::once(read.clone()).chain(within(read).unwrap_or_default()));
            let mut seen = HashSet::new();
            let reads =
                all.filter(|read| seen.insert((read.var, read.key.clone(), read.is_computed))).collect();
            built.insert(map, Map { of, table, reads, conceals: written.conceals });
        }
        (Maps(built.into_values().collect()), schema, mistakes)
    }

    /// The maps, each behind those that it reads. Of those that read one another, one is emptied and reported.
    fn order(&mut self, mistakes: &mut Vec<MapMistake>) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.written.len());
        let mut is_done = vec![false; self.written.len()];
        for first in 0..self.written.len() {
            // Maps that wait for what they read, with the reads yet to be followed.
            let mut path: Vec<(usize, Vec<MapRead>)> = Vec::new();
            if !is_done[first] {
                path.push((first, self.reads_of(first)));
            }
            while let Some((map, reads)) = path.last_mut() {
                let map = *map;
                let Some((next, range)) = reads.pop() else {
                    is_done[map] = true;
                    order.push(map);
                    path.pop();
                    continue;
                };
                if let Some(begin) = path.iter().position(|(map, _)| *map == next) {
                    let circle = path.iter().skip(begin).map(|(map, _)| *map).chain([next]);
                    let names: Vec<String> = circle.map(|map| format!("maps.{}", self.names[map])).collect();
                    let message = format!("this map reads itself: {}", names.join(" reads "));
                    let mistake =
                        Mistake::new(range, message).hint("let one of them read a variable of the request");
                    mistakes.push(MapMistake { map, mistake });
                    self.written[map].of = None;
                    if let Some((_, reads)) = path.last_mut() {
                        reads.clear();
                    }
                } else if !is_done[next] {
                    let reads = self.reads_of(next);
                    path.push((next, reads));
                }
            }
        }
        order
    }

    /// The maps that a map reads, and where.
    fn reads_of(&self, map: usize) -> Vec<MapRead> {
        let of = self.written.get(map).and_then(|written| written.of.as_ref());
        let reads = of.map_or(&[][..], Expression::reads).iter();
        reads.filter_map(|read| Some((index_of(read.var)?, read.range.clone()))).collect()
    }
}

fn variable(name: &str, index: usize, phase: Phase) -> Variable {
    let var = Var(FIRST.saturating_add(index as u16)); // at most `MAPS`
    Variable::new(format!("maps.{name}"), var, phase, Type::Text)
}

/// Whether a text is an address or a network.
pub fn is_network(text: &str) -> bool {
    Networks::range(text).is_some()
}

fn index_of(var: Var) -> Option<usize> {
    var.0.checked_sub(FIRST).map(usize::from)
}

#[cfg(test)]
mod tests;
