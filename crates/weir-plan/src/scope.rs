//! The values of one user. Names became slots when the plan was read, so nothing is looked up by name.

use crate::data::DataSet;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;
use weir_expr as expr;

/// Where a kept value lives, and thereby how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// Until the iteration ends: kept in `steps`.
    Iteration(u16),
    /// The whole run, the same for all users: kept in `setup`.
    Setup(u16),
    /// As long as the user: kept in `start` or `end`.
    User(u16),
}

/// A kept value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Value {
    /// Nothing was kept.
    #[default]
    Absent,
    /// A whole number: a status, a count, or what the filter `int` made.
    Int(i64),
    /// A number, truth value, list or object of JSON.
    Json(serde_json::Value),
    /// Text.
    Text(Vec<u8>),
}

/// What a placeholder or an expression names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operand {
    /// A column of the row that a data set gave.
    Cell { set: u16, column: u16 },
    /// A value of `values:`.
    Constant(u16),
    /// The number of the request, over all users.
    Counter,
    /// The round of the innermost `repeat`.
    Index,
    /// The number of the iteration of this user.
    Iteration,
    /// Kept by a step: the first of these that has a value.
    Kept([Option<Slot>; 3]),
    /// The number of the user.
    User,
}

/// What all users of a plan share.
#[derive(Debug, Default)]
pub struct Shared {
    /// The data sets, in the order written.
    pub data: Vec<DataSet>,
    /// The values of `values:`.
    pub(crate) constants: Vec<Value>,
}

/// The values of one user in one scenario.
#[derive(Clone, Debug)]
pub struct Scope {
    shared: Arc<Shared>,
    /// Writable only while `setup` runs, when nobody shares it.
    setup: Arc<[Value]>,
    user: Box<[Value]>,
    iteration: Box<[Value]>,
    /// For each data set, the row.
    rows: Box<[Option<u32>]>,
    /// Rounds of the `repeat` steps that are open, the innermost last.
    rounds: Vec<u32>,
    user_number: u64,
    iteration_number: u64,
    counter: u64,
    /// Since the Unix epoch.
    now: Duration,
}

impl Scope {
    /// A scope with so many slots of a user and of an iteration. `Plan` knows how many: `Plan::scope` and its like.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        setup: Arc<[Value]>,
        user: usize,
        iteration: usize,
        number: u64,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            setup,
            user: vec![Value::Absent; user].into(),
            iteration: vec![Value::Absent; iteration].into(),
            rows: vec![None; shared.data.len()].into(),
            rounds: Vec::new(),
            user_number: number,
            iteration_number: 0,
            counter: 0,
            now: Duration::ZERO,
        }
    }

    /// What the steps of `setup` kept, to share with all users.
    pub fn into_setup(self) -> Arc<[Value]> {
        self.setup
    }

    /// Forgets what the last iteration kept. `number` counts the iterations of this user, from 0.
    pub fn begin_iteration(&mut self, number: u64) {
        self.iteration.fill(Value::Absent);
        self.rounds.clear();
        self.iteration_number = number;
    }

    /// Gives the user a row of a data set, counted from 0.
    pub fn set_row(&mut self, set: usize, row: u32) {
        if let Some(place) = self.rows.get_mut(set) {
            *place = Some(row);
        }
    }

    /// Sets the number that `{{counter}}` writes: of the request, over all users.
    pub fn set_counter(&mut self, number: u64) {
        self.counter = number;
    }

    /// Sets the time that `{{now}}` writes, since the Unix epoch.
    pub fn set_now(&mut self, now: Duration) {
        self.now = now;
    }

    /// Enters a `repeat`; its round is 0.
    pub fn enter_repeat(&mut self) {
        self.rounds.push(0);
    }

    /// Begins the next round of the innermost `repeat`.
    pub fn next_round(&mut self) {
        if let Some(round) = self.rounds.last_mut() {
            *round = round.saturating_add(1);
        }
    }

    /// Leaves the innermost `repeat`.
    pub fn leave_repeat(&mut self) {
        self.rounds.pop();
    }

    /// Sets a kept value. Slots of `setup` can be set only while `setup` runs.
    pub fn set(&mut self, slot: Slot, value: Value) {
        let place = match slot {
            Slot::Iteration(at) => self.iteration.get_mut(usize::from(at)),
            Slot::User(at) => self.user.get_mut(usize::from(at)),
            Slot::Setup(at) => Arc::get_mut(&mut self.setup).and_then(|all| all.get_mut(usize::from(at))),
        };
        if let Some(place) = place {
            *place = value;
        }
    }

    /// A kept value.
    pub fn get(&self, slot: Slot) -> &Value {
        let value = match slot {
            Slot::Iteration(at) => self.iteration.get(usize::from(at)),
            Slot::User(at) => self.user.get(usize::from(at)),
            Slot::Setup(at) => self.setup.get(usize::from(at)),
        };
        value.unwrap_or(&Value::Absent)
    }

    /// The time that [`Scope::set_now`] set.
    pub(crate) const fn now(&self) -> Duration {
        self.now
    }

    /// The first of the slots that has a value.
    pub(crate) fn kept(&self, chain: &[Option<Slot>; 3]) -> &Value {
        let mut values = chain.iter().flatten().map(|slot| self.get(*slot));
        values.find(|value| !matches!(value, Value::Absent)).unwrap_or(&Value::Absent)
    }

    pub(crate) fn constant(&self, at: u16) -> &Value {
        self.shared.constants.get(usize::from(at)).unwrap_or(&Value::Absent)
    }

    pub(crate) fn cell(&self, set: u16, column: u16) -> Option<&[u8]> {
        let row = self.rows.get(usize::from(set)).copied().flatten()?;
        self.shared.data.get(usize::from(set))?.cell(row, usize::from(column))
    }

    /// The value, if it is text.
    pub(crate) fn text(&self, operand: Operand) -> Option<&[u8]> {
        let value = match operand {
            Operand::Cell { set, column } => return self.cell(set, column),
            Operand::Constant(at) => self.constant(at),
            Operand::Kept(chain) => self.kept(&chain),
            Operand::Counter | Operand::Index | Operand::Iteration | Operand::User => return None,
        };
        if let Value::Text(text) = value { Some(text) } else { None }
    }

    /// The value of a number that the engine counts.
    pub(crate) fn number(&self, operand: Operand) -> Option<u64> {
        match operand {
            Operand::Counter => Some(self.counter),
            Operand::Index => Some(self.rounds.last().copied().unwrap_or(0).into()),
            Operand::Iteration => Some(self.iteration_number),
            Operand::User => Some(self.user_number),
            _ => None,
        }
    }

    /// The value for an expression.
    pub(crate) fn for_expression(&self, operand: Operand) -> expr::Value<'_> {
        match operand {
            Operand::Cell { set, column } => {
                self.cell(set, column).map_or(expr::Value::Absent, expr::Value::text)
            }
            Operand::Constant(at) => self.constant(at).for_expression(),
            Operand::Kept(chain) => self.kept(&chain).for_expression(),
            number => self
                .number(number)
                .map_or(expr::Value::Absent, |n| expr::Value::Int(i64::try_from(n).unwrap_or(i64::MAX))),
        }
    }
}

impl Value {
    /// Appends the value as text: JSON for lists and objects, nothing if there is none.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Absent => {}
            // Writing to a Vec cannot fail, here and below.
            Self::Int(number) => drop(write!(out, "{number}")),
            Self::Json(serde_json::Value::String(text)) => out.extend_from_slice(text.as_bytes()),
            Self::Json(json) => drop(write!(out, "{json}")),
            Self::Text(text) => out.extend_from_slice(text),
        }
    }

    fn for_expression(&self) -> expr::Value<'_> {
        match self {
            Self::Absent => expr::Value::Absent,
            Self::Int(number) => expr::Value::Int(*number),
            Self::Json(json) => expr::Value::json(json),
            Self::Text(text) => expr::Value::text(text),
        }
    }

    /// Whether a lone name in `if` counts as true: there is a value, and it is not empty, `false` or `null`.
    pub(crate) fn is_something(&self) -> bool {
        match self {
            Self::Absent | Self::Json(serde_json::Value::Null | serde_json::Value::Bool(false)) => false,
            Self::Int(_) => true,
            Self::Json(json) => !expr::Value::json(json).is_empty(),
            Self::Text(text) => !text.is_empty(),
        }
    }
}
