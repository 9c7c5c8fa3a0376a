//! What was written and cannot be run: the place and a hint. Whatever reads options, conditions or checks yields these.

use std::fmt;

/// Something that was written and can not be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where: the option with its value.
    pub place: String,
    /// What is wrong with it, or what was expected.
    pub hint: String,
}

impl Mistake {
    /// At this place, with this hint.
    pub fn new(place: &str, hint: &str) -> Self {
        Self { place: place.to_owned(), hint: hint.to_owned() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.hint)
    }
}
