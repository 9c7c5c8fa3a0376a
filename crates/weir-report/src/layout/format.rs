//! A layout: a name, its purpose, and a function of the report.

use crate::report::Report;

/// A way to print a report.
#[derive(Debug)]
pub struct Format {
    /// Its name for `--format`.
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
    /// How it differs from what that tool prints; empty if it does not, or if it is our own.
    pub differs: &'static str,
    /// Prints it, ending with a newline.
    pub print: fn(&Report) -> String,
}
