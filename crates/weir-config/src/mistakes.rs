//! Why a config was refused: diagnostics with at least one error, so that no refusal is silent.

use std::fmt;
use std::ops::Deref;

use super::diagnostic::{Diagnostic, Diagnostics};
use super::node::Place;

/// Why a config was refused.
///
/// Invariant: at least one of the diagnostics is an error. Every function that refuses a config returns this type.
#[derive(Clone, Debug)]
pub struct Mistakes(Diagnostics);

impl Mistakes {
    /// The code of the error added if a refusal has none. It means that a check refused without a reason.
    pub const SILENT: &'static str = "refused-silently";

    /// Refuses because of these diagnostics. If none is an error, adds one that reports the bug in Weir; `at` is its
    /// place, such as the start of the config.
    pub fn new(mut found: Diagnostics, at: Option<&Place>) -> Self {
        if found.errors() == 0 {
            let message = "Weir refused this config without recording why; this is a bug in Weir";
            let mut silent = Diagnostic::error(Self::SILENT, message)
                .hint("report it with this config, and undo the last change until then");
            silent.place = at.cloned();
            found.push(silent);
        }
        Self(found)
    }

    /// The diagnostics, warnings included.
    pub fn into_diagnostics(self) -> Diagnostics {
        self.0
    }
}

impl From<Diagnostics> for Mistakes {
    fn from(found: Diagnostics) -> Self {
        Self::new(found, None)
    }
}

impl From<Diagnostic> for Mistakes {
    fn from(only: Diagnostic) -> Self {
        let mut found = Diagnostics::default();
        found.push(only);
        found.into()
    }
}

impl Deref for Mistakes {
    type Target = Diagnostics;

    fn deref(&self) -> &Diagnostics {
        &self.0
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_text().trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_an_error() {
        let mut warned = Diagnostics::default();
        warned.push(Diagnostic::warning("unused", "it is not used"));
        for found in [Diagnostics::default(), warned] {
            let refused = Mistakes::from(found);
            assert_eq!(refused.errors(), 1);
            assert!(refused.iter().any(|d| d.code == Mistakes::SILENT), "{refused}");
        }
        let told = Mistakes::from(Diagnostic::error("bad-value", "no"));
        assert!(told.errors() == 1 && told.iter().all(|d| d.code == "bad-value"), "{told}");
    }
}
