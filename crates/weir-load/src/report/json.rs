//! `json`: the whole report, raw histograms included. What `weir report` reads.

use super::{Format, Report};

pub(super) static FORMAT: Format =
    Format { name: "json", about: "everything, with raw histograms and a published schema", print };

fn print(report: &Report) -> String {
    // Maps with string keys and numbers: nothing in the model can fail to be written.
    let mut text = serde_json::to_string(report).unwrap_or_default();
    text.push('\n');
    text
}
