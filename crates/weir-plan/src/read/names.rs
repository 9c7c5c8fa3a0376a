//! The names that the steps of a plan may use, and which of them are used.

use crate::data::{DataSet, Pick};
use crate::plan::Part;
use crate::scope::{Operand, Slot, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use weir_expr::Type;
use weir_expr::spelling::nearest_name;

/// Longest name.
const NAME_BYTES: usize = 64;

/// Names that placeholders have a meaning for, and words of expressions.
const TAKEN: &[&str] = &[
    "base64",
    "counter",
    "data",
    "false",
    "has",
    "hmac_sha256",
    "in",
    "index",
    "iteration",
    "now",
    "null",
    "random",
    "true",
    "user",
    "uuid",
];

/// Everything that can be named, and what has been named so far.
pub(super) struct Names<'p> {
    data: &'p [DataSet],
    values: Vec<String>,
    constants: &'p [Value],
    setup: BTreeMap<String, Known>,
    user: BTreeMap<String, Known>,
    iteration: BTreeMap<String, Known>,
    slots: Slots,
    part: Part,
    /// `repeat` steps that are open.
    rounds: usize,
    /// Data sets that the scenario uses, and whether for the life of a user.
    sets: BTreeMap<usize, bool>,
    all_sets: BTreeSet<usize>,
    scenario: usize,
    /// Names kept, where, and whether they were used since: for each scenario and slot.
    kept: HashMap<(usize, Slot), Uses>,
}

#[derive(Default)]
struct Uses {
    is_used: bool,
    places: Vec<(String, String)>,
}

#[derive(Default)]
struct Slots {
    setup: BTreeMap<String, u16>,
    user: BTreeMap<String, u16>,
    iteration: BTreeMap<String, u16>,
}

/// A kept name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Known {
    slot: Slot,
    pub(super) ty: Type,
    /// `optional`: without a value, it writes nothing.
    pub(super) is_optional: bool,
    /// A step that may not have run keeps it.
    pub(super) may_miss: bool,
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) operand: Operand,
    pub(super) ty: Type,
    pub(super) is_optional: bool,
    pub(super) may_miss: bool,
}

/// The names that were visible at some point.
#[derive(Clone)]
pub(super) struct Visible {
    setup: BTreeMap<String, Known>,
    user: BTreeMap<String, Known>,
    iteration: BTreeMap<String, Known>,
}

impl Visible {
    /// These names, and those of another list of steps that ran at the same time.
    pub(super) fn with(mut self, other: Self) -> Self {
        for (ours, theirs) in [
            (&mut self.setup, other.setup),
            (&mut self.user, other.user),
            (&mut self.iteration, other.iteration),
        ] {
            ours.extend(theirs);
        }
        self
    }
}

impl<'p> Names<'p> {
    pub(super) fn new(data: &'p [DataSet], values: Vec<String>, constants: &'p [Value]) -> Self {
        Self {
            data,
            values,
            constants,
            setup: BTreeMap::new(),
            user: BTreeMap::new(),
            iteration: BTreeMap::new(),
            slots: Slots::default(),
            part: Part::Setup,
            rounds: 0,
            sets: BTreeMap::new(),
            all_sets: BTreeSet::new(),
            scenario: usize::MAX,
            kept: HashMap::new(),
        }
    }

    /// Enters a scenario: only what `setup` kept is known.
    pub(super) fn enter_scenario(&mut self, at: usize) {
        self.scenario = at;
        self.user.clear();
        self.iteration.clear();
        self.slots.user.clear();
        self.slots.iteration.clear();
        self.sets.clear();
    }

    /// Enters a part of the scenario or plan: what the last part kept for an iteration is forgotten.
    pub(super) fn enter(&mut self, part: Part) {
        self.part = part;
        self.iteration.clear();
    }

    /// Slots of the scenario: of a user and of an iteration. For the plan, of `setup`.
    pub(super) fn slots(&self) -> (usize, usize, usize) {
        (self.slots.setup.len(), self.slots.user.len(), self.slots.iteration.len())
    }

    /// The data sets that the scenario uses, and whether a user has one row for its life.
    pub(super) fn sets(&self) -> impl Iterator<Item = (usize, bool)> {
        self.sets.iter().map(|(set, is_of_user)| (*set, *is_of_user))
    }

    /// The data sets that nothing uses.
    pub(super) fn unused_sets(&self) -> impl Iterator<Item = &str> {
        let unused = self.data.iter().enumerate().filter(|(at, _)| !self.all_sets.contains(at));
        unused.map(|(_, set)| set.name.as_str())
    }

    /// The keeps whose names nothing uses: name and place.
    pub(super) fn unused(&self) -> Vec<(String, String)> {
        let unused = self.kept.values().filter(|uses| !uses.is_used);
        let mut all: Vec<_> = unused.flat_map(|uses| uses.places.clone()).collect();
        all.sort();
        all
    }

    pub(super) fn enter_loop(&mut self) {
        self.rounds += 1;
    }

    pub(super) fn leave_loop(&mut self) {
        self.rounds -= 1;
    }

    pub(super) fn part(&self) -> Part {
        self.part
    }

    pub(super) fn visible(&self) -> Visible {
        Visible { setup: self.setup.clone(), user: self.user.clone(), iteration: self.iteration.clone() }
    }

    pub(super) fn restore(&mut self, visible: Visible) {
        Visible { setup: self.setup, user: self.user, iteration: self.iteration } = visible;
    }

    /// After one of two lists of steps has run: what either kept may be there, what both kept is.
    pub(super) fn join(&mut self, other: Visible) {
        let join = |ours: &mut BTreeMap<String, Known>, theirs: BTreeMap<String, Known>| {
            for (name, known) in ours.iter_mut() {
                known.may_miss |= theirs.get(name).is_none_or(|known| known.may_miss);
            }
            for (name, mut known) in theirs {
                known.may_miss = true;
                ours.entry(name).or_insert(known);
            }
        };
        join(&mut self.setup, other.setup);
        join(&mut self.user, other.user);
        join(&mut self.iteration, other.iteration);
    }

    /// Makes a name known. `path` is the place of the keep; none if it is only announced by a loop around it.
    pub(super) fn keep(&mut self, name: &str, ty: Type, is_optional: bool, path: Option<&str>) -> Slot {
        let (slots, known) = match self.part {
            Part::Setup => (&mut self.slots.setup, &mut self.setup),
            Part::Start | Part::End => (&mut self.slots.user, &mut self.user),
            Part::Steps | Part::Teardown => (&mut self.slots.iteration, &mut self.iteration),
        };
        let next = u16::try_from(slots.len()).unwrap_or(u16::MAX);
        let at = *slots.entry(name.to_owned()).or_insert(next);
        let slot = match self.part {
            Part::Setup => Slot::Setup(at),
            Part::Start | Part::End => Slot::User(at),
            Part::Steps | Part::Teardown => Slot::Iteration(at),
        };
        let (mut ty, mut is_optional) = (ty, is_optional);
        if let Some(before) = known.get(name) {
            if before.ty != ty {
                ty = Type::Json;
            }
            is_optional |= before.is_optional;
        }
        known.insert(name.to_owned(), Known { slot, ty, is_optional, may_miss: path.is_none() });
        let scenario = if self.part == Part::Setup { usize::MAX } else { self.scenario };
        let uses = self.kept.entry((scenario, slot)).or_default();
        uses.places.extend(path.map(|path| (name.to_owned(), path.to_owned())));
        slot
    }

    /// Whether a step may have kept the name.
    pub(super) fn is_known(&self, name: &str) -> bool {
        [&self.iteration, &self.user, &self.setup].into_iter().any(|names| names.contains_key(name))
    }

    /// A data set: its name, rows, and how they are picked.
    pub(super) fn set(&self, at: usize) -> Option<(String, u32, Pick)> {
        self.data.get(at).map(|set| (set.name.clone(), set.rows(), set.pick))
    }

    /// Resolves a name and marks it as used. The error says what is wrong and what was meant.
    pub(super) fn find(&mut self, name: &str) -> Result<Found, (String, Option<String>)> {
        let found = self.look(name)?;
        match found.operand {
            Operand::Kept(chain) => {
                for slot in chain.iter().flatten() {
                    let scenario = if matches!(slot, Slot::Setup(_)) { usize::MAX } else { self.scenario };
                    self.kept.entry((scenario, *slot)).or_default().is_used = true;
                }
            }
            Operand::Cell { set, .. } => {
                let set = usize::from(set);
                let is_per_user = self.data.get(set).is_some_and(|set| set.pick == Pick::PerUser);
                *self.sets.entry(set).or_default() |=
                    is_per_user || matches!(self.part, Part::Start | Part::End);
                self.all_sets.insert(set);
            }
            _ => {}
        }
        Ok(found)
    }

    /// Resolves a name, from the inside out.
    pub(super) fn look(&self, name: &str) -> Result<Found, (String, Option<String>)> {
        if let Some(found) = self.number(name)? {
            return Ok(found);
        }
        if let Some((set, column)) = name.split_once('.')
            && let Some(at) = self.data.iter().position(|known| known.name == set)
        {
            return self.cell(at, column);
        }
        let kept = [self.iteration.get(name), self.user.get(name), self.setup.get(name)]
            .map(Option::<&Known>::cloned);
        if let Some(first) = kept.iter().flatten().next().cloned() {
            let chain = kept.each_ref().map(|known| known.as_ref().map(|known| known.slot));
            // Several scopes: the inner value may have been forgotten, and the outer one is of another type.
            let is_one_type = kept.iter().flatten().all(|known| known.ty == first.ty);
            return Ok(Found {
                operand: Operand::Kept(chain),
                ty: if is_one_type { first.ty.clone() } else { Type::Json },
                is_optional: kept.iter().flatten().any(|known| known.is_optional),
                may_miss: kept.iter().flatten().all(|known| known.may_miss),
            });
        }
        if let Some(at) = self.values.iter().position(|known| known == name) {
            let operand = Operand::Constant(u16::try_from(at).unwrap_or(u16::MAX));
            return Ok(Found { operand, ty: Type::Text, is_optional: false, may_miss: false });
        }
        Err(self.unknown(name))
    }

    /// A constant of `values:`.
    pub(super) fn constant(&self, at: u16) -> &Value {
        self.constants.get(usize::from(at)).unwrap_or(&Value::Absent)
    }

    /// Every name that can be used here, for expressions.
    pub(super) fn all(&self) -> Vec<String> {
        let sets = self.data.iter().filter(|_| self.has_rows());
        let cells =
            sets.flat_map(|set| set.columns().iter().map(move |column| format!("{}.{column}", set.name)));
        let kept =
            [&self.iteration, &self.user, &self.setup].into_iter().flat_map(|names| names.keys().cloned());
        let mut all: Vec<String> = kept.chain(self.values.iter().cloned()).chain(cells).collect();
        if self.has_rows() {
            all.extend(["user".to_owned(), "iteration".to_owned()]);
        }
        all.extend((self.rounds > 0).then(|| "index".to_owned()));
        all.sort();
        all.dedup();
        all
    }

    fn has_rows(&self) -> bool {
        !matches!(self.part, Part::Setup | Part::Teardown)
    }

    fn number(&self, name: &str) -> Result<Option<Found>, (String, Option<String>)> {
        let wrong = |why: &str| Err((why.to_owned(), None));
        let operand = match name {
            "counter" => Operand::Counter,
            "index" if self.rounds == 0 => {
                return wrong("`index` counts the rounds of `repeat` or `while`; there is none around this");
            }
            "index" => Operand::Index,
            "iteration" | "user" if !self.has_rows() => {
                return wrong(&format!("`{name}` is of users; `setup` and `teardown` run without one"));
            }
            "iteration" => Operand::Iteration,
            "user" => Operand::User,
            _ => return Ok(None),
        };
        Ok(Some(Found { operand, ty: Type::Int, is_optional: false, may_miss: false }))
    }

    fn cell(&self, at: usize, column: &str) -> Result<Found, (String, Option<String>)> {
        let Some(set) = self.data.get(at) else { return Err(self.unknown(column)) };
        let Some(found) = set.columns().iter().position(|known| known == column) else {
            let hint = nearest_name(column, set.columns().iter().map(String::as_str));
            let columns = set.columns().join(", ");
            let hint = hint.map(|meant| format!("did you mean {}.{meant}?", set.name));
            return Err((
                format!("the data set `{}` has no column `{column}`; it has {columns}", set.name),
                hint,
            ));
        };
        if !self.has_rows() {
            let why = "`setup` and `teardown` run once, without a user, so they have no row of a data set";
            return Err((why.to_owned(), None));
        }
        let (set, column) = (u16::try_from(at).unwrap_or(u16::MAX), u16::try_from(found).unwrap_or(u16::MAX));
        Ok(Found {
            operand: Operand::Cell { set, column },
            ty: Type::Text,
            is_optional: false,
            may_miss: false,
        })
    }

    fn unknown(&self, name: &str) -> (String, Option<String>) {
        let all = self.all();
        let meant =
            nearest_name(name, all.iter().map(String::as_str)).map(|meant| format!("did you mean {meant}?"));
        let elsewhere = if self.is_kept_elsewhere(name) {
            "; steps that keep it run later or in another scope"
        } else {
            ""
        };
        (
            format!("no earlier step can have kept `{name}`, and it is no value and no data set{elsewhere}"),
            meant,
        )
    }

    fn is_kept_elsewhere(&self, name: &str) -> bool {
        let slots = &self.slots;
        [&slots.setup, &slots.user, &slots.iteration].into_iter().any(|slots| slots.contains_key(name))
    }
}

/// What is wrong with a name that a step keeps or `values` has.
pub(super) fn wrong_name(name: &str) -> Option<&'static str> {
    let is_word = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.len() <= NAME_BYTES;
    if !is_word {
        return Some("is not a name; expected letters, digits and `_`, a letter first, at most 64");
    }
    TAKEN
        .contains(&name)
        .then_some("has a meaning of its own in placeholders or expressions; choose another name")
}
