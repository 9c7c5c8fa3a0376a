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

/// The JSON Schema of a saved report.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Report).to_value()
}

#[cfg(test)]
mod tests {
    /// `WEIR_BLESS=1` writes the page anew.
    #[test]
    fn the_published_schema_is_that_of_the_model() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/load-report.schema.json");
        let want = format!("{:#}\n", super::schema());
        if std::env::var_os("WEIR_BLESS").is_some() {
            std::fs::write(path, &want).unwrap();
        }
        assert!(std::fs::read_to_string(path).unwrap_or_default() == want, "run it with WEIR_BLESS=1");
    }
}
