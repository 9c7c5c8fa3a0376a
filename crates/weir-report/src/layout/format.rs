//! What a layout is: a name, what it is for, and a function of the report.

use crate::report::Report;

/// One way to print a report.
#[derive(Debug)]
pub struct Format {
    /// What `--format` calls it.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Prints it, with a line end at the end.
    pub print: fn(&Report) -> String,
}
