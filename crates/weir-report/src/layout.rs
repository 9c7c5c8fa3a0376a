//! Prints a report in our layouts and in those of other tools; reads saved reports, and verifies them.
//!
//! *Layout.* Each file is a layout with a `FORMAT` in [`FORMATS`]. `saved` reads the output of `json`, `verify`
//! recomputes it.

mod ab;
mod baseline;
mod cases;
mod csv;
mod format;
mod ghz;
mod github;
mod gitlab;
mod html;
mod json;
mod junit;
mod k6;
mod markdown;
mod oha_json;
mod saved;
mod summary_csv;
mod text;
mod verify;
mod wrk;
mod wrk2;

pub use format::Format;
pub use json::schema;
pub use saved::{read, within};
pub(crate) use text::measured;
pub use text::verdict as verdict_text;
pub use verify::{Difference, contradictions, verify};

use crate::report::Report;

/// The layouts, sorted by name. To add one, create a file in `layout/` and add two lines here: `mod x;` and
/// `&x::FORMAT`.
pub static FORMATS: &[&Format] = &[
    &ab::FORMAT,
    &csv::FORMAT,
    &summary_csv::FORMAT,
    &ghz::FORMAT,
    &github::FORMAT,
    &gitlab::FORMAT,
    &html::FORMAT,
    &json::FORMAT,
    &junit::FORMAT,
    &k6::FORMAT,
    &k6::FULL,
    &k6::EXPORT,
    &markdown::FORMAT,
    &oha_json::FORMAT,
    &text::FORMAT,
    &wrk::FORMAT,
    &wrk2::FORMAT,
];

impl Format {
    /// The layout with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|f| f.name == name).copied()
    }
}

impl std::str::FromStr for &'static Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Format::named(name).ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// An unknown layout name; the error lists the known ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat(String);

impl std::fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "there is no report format `{}`; there are:", self.0)?;
        FORMATS.iter().try_for_each(|format| write!(f, "\n  {:<11} {}", format.name, format.about))
    }
}

impl std::error::Error for UnknownFormat {}

/// Renders a report in a layout, ending with a newline.
pub fn render(report: &Report, format: &Format) -> String {
    (format.print)(report)
}
