//! A mistake in options, conditions or checks: its place and a hint.

use std::fmt;

/// Input that cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The option with its value.
    pub place: String,
    /// What is wrong, or what was expected.
    pub hint: String,
}

impl Mistake {
    /// A mistake at this place, with this hint.
    pub fn new(place: &str, hint: &str) -> Self {
        Self { place: place.to_owned(), hint: hint.to_owned() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.hint)
    }
}
