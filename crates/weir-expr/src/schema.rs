//! What an expression may name: the variables of the host, their types and the phase from which each is known.

use std::fmt;
use std::sync::Arc;

/// The type of a value, known when the expression is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// An IP address.
    Address,
    /// True or false.
    Bool,
    /// Bytes. Taken wherever text is.
    Bytes,
    /// A number with a fraction.
    Double,
    /// A length of time.
    Duration,
    /// A whole number.
    Int,
    /// Any kind of value, known at run time only: JSON. Has members and items; without a value, it equals nothing.
    Json,
    /// A list of values of one type.
    List(Box<Self>),
    /// A map: the types of keys and values.
    Map(Box<(Self, Self)>),
    /// Null.
    Null,
    /// Text. Without a value, it is empty.
    Text,
    /// A moment.
    Timestamp,
    /// A whole number without a sign.
    Uint,
}

impl Type {
    /// A list of `items`.
    pub fn list(items: Self) -> Self {
        Self::List(Box::new(items))
    }

    pub(crate) fn map(keys: Self, values: Self) -> Self {
        Self::Map(Box::new((keys, values)))
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Self::Double | Self::Int | Self::Uint)
    }

    /// Text or bytes, which are always there and may be empty.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self, Self::Bytes | Self::Text)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => write!(f, "address"),
            Self::Bool => write!(f, "bool"),
            Self::Bytes => write!(f, "bytes"),
            Self::Double => write!(f, "double"),
            Self::Duration => write!(f, "duration"),
            Self::Int => write!(f, "int"),
            Self::Json => write!(f, "json"),
            Self::List(items) => write!(f, "list of {items}"),
            Self::Map(types) => write!(f, "map from {} to {}", types.0, types.1),
            Self::Null => write!(f, "null"),
            Self::Text => write!(f, "text"),
            Self::Timestamp => write!(f, "timestamp"),
            Self::Uint => write!(f, "uint"),
        }
    }
}

/// A stage of the exchange: its position in the list that [`Schema::new`] was given. Later ones know what earlier ones do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Phase(pub u8);

/// The number by which the host knows a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Var(pub u16);

/// A variable of the host.
#[derive(Clone, Debug)]
pub struct Variable {
    pub(crate) name: String,
    pub(crate) var: Var,
    pub(crate) phase: Phase,
    pub(crate) ty: Type,
    pub(crate) keys: Option<Keys>,
    pub(crate) is_optional: bool,
    pub(crate) longest: u64,
    pub(crate) cost: u64,
    pub(crate) elsewhere: Option<&'static str>,
    about: &'static str,
}

/// Which keys a variable such as `request.headers["x"]` has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    /// Keys are lower-cased: names of header fields.
    pub(crate) are_folded: bool,
    /// All there are, if they are known.
    pub(crate) known: Option<Vec<String>>,
    /// `all()` gives the values of a field that is repeated, at most this many.
    pub(crate) repeated: Option<u32>,
}

impl Variable {
    /// A variable that always has a value from `phase` on. Text may also have none, which counts as empty.
    pub fn new(name: impl Into<String>, var: Var, phase: Phase, ty: Type) -> Self {
        let longest = if matches!(ty, Type::List(_)) { 128 } else { crate::limits::TEXT_BYTES };
        Self {
            name: name.into(),
            var,
            phase,
            ty,
            keys: None,
            is_optional: false,
            longest,
            cost: 1,
            elsewhere: None,
            about: "",
        }
    }

    /// The variable may have no value, so an expression has to say what holds then: `upstream.port ?? 0`.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }

    /// The longest text or list that it may be. Counts in the cost of an expression; default [`TEXT_BYTES`] for text, 128
    /// items for a list.
    ///
    /// [`TEXT_BYTES`]: crate::limits::TEXT_BYTES
    #[must_use]
    pub fn longest(mut self, longest: u64) -> Self {
        self.longest = longest;
        self
    }

    /// The most steps that it takes to find its value. Default 1.
    #[must_use]
    pub fn cost(mut self, steps: u64) -> Self {
        self.cost = steps.max(1);
        self
    }

    /// What to do where it is not known yet, for the hint.
    #[must_use]
    pub fn elsewhere(mut self, hint: &'static str) -> Self {
        self.elsewhere = Some(hint);
        self
    }

    /// What it is, in one phrase: for documentation and editors.
    #[must_use]
    pub fn about(mut self, what: &'static str) -> Self {
        self.about = what;
        self
    }

    /// The variable has a value for each key, `name["key"]` or `name.key`. A key may have none.
    #[must_use]
    pub fn keyed(mut self) -> Self {
        self.keys.get_or_insert_default();
        self
    }

    /// Keyed, and upper and lower case of a key are the same: the host is asked for it in lower case.
    #[must_use]
    pub fn folded(mut self) -> Self {
        self.keys.get_or_insert_default().are_folded = true;
        self
    }

    /// Keyed by exactly these: any other key is a mistake.
    #[must_use]
    pub fn keys(mut self, known: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.keys.get_or_insert_default().known = Some(known.into_iter().map(Into::into).collect());
        self
    }

    /// Keyed, and a key may have several values: `name["key"].all()` gives the list, which has at most `most` items.
    #[must_use]
    pub fn repeated(mut self, most: u32) -> Self {
        self.keys.get_or_insert_default().repeated = Some(most);
        self
    }

    /// The dotted name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number by which the host knows it.
    pub fn var(&self) -> Var {
        self.var
    }

    /// The phase from which it is known.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// What it is, in one phrase; empty if nobody said.
    pub fn what(&self) -> &'static str {
        self.about
    }

    /// The type of its value, or of the value of a key.
    pub fn ty(&self) -> &Type {
        &self.ty
    }

    /// Whether it has a value for each key.
    pub fn is_keyed(&self) -> bool {
        self.keys.is_some()
    }
}

/// All variables that expressions of one place may name.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    phases: Vec<String>,
    variables: Vec<Variable>,
    /// What it knows besides its own.
    base: Option<Arc<Self>>,
}

impl Schema {
    /// A schema without variables. `phases` are the names of the stages in their order.
    pub fn new(phases: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { phases: phases.into_iter().map(Into::into).collect(), variables: Vec::new(), base: None }
    }

    /// A schema that knows what `base` knows, which has no base itself. So schemas that differ in a few variables share
    /// the rest.
    pub fn over(base: Arc<Self>) -> Self {
        Self { phases: base.phases.clone(), variables: Vec::new(), base: Some(base) }
    }

    /// Adds a variable. A later one hides an earlier one of its name.
    #[must_use]
    pub fn with(mut self, variable: Variable) -> Self {
        self.add(variable);
        self
    }

    /// Adds a variable. A later one hides an earlier one of its name.
    pub fn add(&mut self, variable: Variable) {
        self.variables.retain(|known| known.name != variable.name);
        self.variables.push(variable);
    }

    /// All variables, as they were added, those of the base last: for documentation and editors.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> + Clone {
        let base = self.base.as_ref().map_or(&[][..], |base| &base.variables);
        let shown = |known: &&Variable| !self.variables.iter().any(|own| own.name == known.name);
        self.variables.iter().chain(base.iter().filter(shown))
    }

    /// The name of a phase.
    pub fn phase_name(&self, phase: Phase) -> &str {
        self.phases.get(usize::from(phase.0)).map_or("later", String::as_str)
    }

    /// The variable with the longest name that these words begin with, and how many words it takes.
    pub(crate) fn find(&self, words: &[&str]) -> Option<(&Variable, usize)> {
        (1..=words.len()).rev().find_map(|taken| {
            let name = words[..taken].join(".");
            let base = self.base.as_ref().map_or(&[][..], |base| &base.variables);
            let found = self.variables.iter().chain(base).find(|known| known.name == name);
            found.map(|known| (known, taken))
        })
    }

    /// The first words of all names that are known in this phase, each once.
    pub(crate) fn groups(&self, phase: Phase) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        for known in self.variables().filter(|known| known.phase <= phase) {
            let group = known.name.split('.').next().unwrap_or_default();
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }

    /// The names that begin with `group` and a dot.
    pub(crate) fn members<'s>(&'s self, group: &'s str) -> impl Iterator<Item = &'s str> {
        let inside = move |name: &&str| name.strip_prefix(group).is_some_and(|rest| rest.starts_with('.'));
        self.variables().map(|known| known.name.as_str()).filter(inside)
    }
}
