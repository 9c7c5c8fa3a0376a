//! The compiled form: two typed trees, one of truth values and one of all others.
//!
//! Conditions are mostly comparisons with constants, so [`Test`] has a node for each common one: it compares the bytes
//! of the exchange with a constant and builds no [`Value`]. Receipt: `benches/condition.rs`.

use crate::ast::Op;
use crate::networks::Networks;
use crate::schema::Var;
use crate::signatures::Func;
use crate::value::Value;
use memchr::memmem::Finder;
use regex::bytes::Regex;
use std::cmp::Ordering;

/// A variable, or the value of one of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) var: Var,
    /// Empty for a variable without keys.
    pub(crate) key: Box<[u8]>,
}

/// Something that is true or false.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    All(Box<[Self]>),
    Any(Box<[Self]>),
    Always(bool),
    /// A text begins with this.
    Begins(Node, Box<[u8]>),
    Compare(Relation, Box<(Node, Node)>),
    Contains(Node, Box<Finder<'static>>),
    Ends(Node, Box<[u8]>),
    /// A number of the host against a constant.
    Counts(Relation, Place, i64),
    /// The left is in the right, a list or a map.
    In(Box<(Node, Node)>),
    /// A text of the host is this.
    Is(Place, Box<[u8]>),
    Matches(Node, Box<Regex>),
    Not(Box<Self>),
    /// A text of the host is one of these, which are sorted.
    OneOf(Place, Box<[Box<[u8]>]>),
    /// A variable of the host has a value.
    There(Place),
    /// Any other; no value counts as false, which the check rules out.
    Value(Box<Node>),
    /// There is a value.
    Valued(Box<Node>),
    /// An address lies in these.
    Within(Node, Box<Networks>),
}

/// How two values compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
    NotEqual,
}

impl Relation {
    pub(crate) fn of(op: Op) -> Option<Self> {
        match op {
            Op::Equal => Some(Self::Equal),
            Op::Less => Some(Self::Less),
            Op::LessOrEqual => Some(Self::LessOrEqual),
            Op::More => Some(Self::More),
            Op::MoreOrEqual => Some(Self::MoreOrEqual),
            Op::NotEqual => Some(Self::NotEqual),
            _ => None,
        }
    }

    /// The same relation with the operands swapped.
    pub(crate) fn swapped(self) -> Self {
        match self {
            Self::Less => Self::More,
            Self::LessOrEqual => Self::MoreOrEqual,
            Self::More => Self::Less,
            Self::MoreOrEqual => Self::LessOrEqual,
            Self::Equal | Self::NotEqual => self,
        }
    }

    pub(crate) fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Self::Equal => order == Some(Ordering::Equal),
            Self::Less => order == Some(Ordering::Less),
            Self::LessOrEqual => order.is_some_and(Ordering::is_le),
            Self::More => order == Some(Ordering::Greater),
            Self::MoreOrEqual => order.is_some_and(Ordering::is_ge),
            Self::NotEqual => order != Some(Ordering::Equal),
        }
    }
}

/// Something that has a value, or [`Value::Absent`].
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// The list of the values of a repeated field.
    All(Place),
    Arithmetic(Op, Box<(Self, Self)>),
    /// As text: none is empty.
    AsText(Box<Self>),
    /// The item of a list, the entry of a map, the member of JSON.
    At(Box<(Self, Self)>),
    Call(Func, Box<[Self]>),
    Constant(Value<'static>),
    /// The first unless it is empty.
    Default(Box<(Self, Self)>),
    If(Box<(Test, Self, Self)>),
    /// The value of a key that is known at run time only.
    Keyed(Box<Keyed>),
    List(Box<[Self]>),
    Local(u16),
    Loop(Box<Loop>),
    Map(Box<[(Self, Self)]>),
    Negate(Box<Self>),
    /// `<` and its like where a side is JSON: no value unless both are of one kind.
    Order(Relation, Box<(Self, Self)>),
    Test(Box<Test>),
    /// A text of the host; none is empty.
    Text(Place),
    Variable(Place),
}

#[derive(Clone, Debug)]
pub(crate) struct Keyed {
    pub(crate) var: Var,
    pub(crate) is_folded: bool,
    pub(crate) is_text: bool,
    pub(crate) key: Node,
}

/// A macro that walks through a list.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) kind: LoopKind,
    pub(crate) list: Node,
    pub(crate) test: Test,
    /// What `map` makes of an item.
    pub(crate) each: Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopKind {
    All,
    Exists,
    ExistsOne,
    Filter,
    Map,
}
