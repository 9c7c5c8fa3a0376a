//! `json`: the whole report with raw histograms, and the figures computed from it. `weir report` reads it.
//!
//! Its schema is docs/reference/load-report.schema.json; see `published`.

use super::format::Format;
use crate::report::Figures;
use crate::report::Report;
use schemars::JsonSchema;
use serde::Serialize;

pub(super) static FORMAT: Format = Format {
    name: "json",
    about: "everything, with raw histograms and a published schema",
    differs: "",
    print,
};

fn print(report: &Report) -> String {
    // All maps have string keys, so serialization cannot fail.
    let mut text = serde_json::to_string(&Saved::of(report)).unwrap_or_default();
    text.push('\n');
    text
}

/// A report in saved form.
#[derive(Serialize, JsonSchema)]
struct Saved<'a> {
    #[serde(flatten)]
    report: &'a Report,
    /// Computed from everything else, for readers that do not compute; `weir report --verify` recomputes them.
    figures: Figures,
}

impl<'a> Saved<'a> {
    fn of(report: &'a Report) -> Self {
        Self { report, figures: Figures::of(report) }
    }
}

/// The JSON Schema of the `json` layout.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Saved<'_>).to_value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_beside_what_they_were_computed_from() {
        let mut report = Report { duration_ns: 2_000_000_000, ..Report::default() };
        report.counts.responses = 4;
        let saved: serde_json::Value = serde_json::from_str(&print(&report)).unwrap();
        assert_eq!(
            (&saved["figures"]["responses_per_s"], &saved["counts"]["responses"]),
            (&2.0.into(), &4.into())
        );
    }
}
