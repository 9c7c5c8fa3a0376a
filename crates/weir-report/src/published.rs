//! The JSON Schemas in docs/ of everything printed as JSON: generated from the types, and checked by a test.

use schemars::schema_for;

/// File names in docs/ and the JSON Schemas of everything printed as JSON.
pub fn schemas() -> [(&'static str, serde_json::Value); 6] {
    [
        ("load-report.schema.json", crate::layout::schema()),
        ("load-baseline.schema.json", schema_for!(crate::comparison::baseline::Baseline).to_value()),
        ("load-bench.schema.json", schema_for!(crate::bench::Bench).to_value()),
        ("load-compare.schema.json", schema_for!(crate::comparison::Comparison).to_value()),
        ("load-compare-set.schema.json", schema_for!(crate::comparison::ComparisonSet).to_value()),
        ("load-knee.schema.json", schema_for!(crate::knee::Knee).to_value()),
    ]
}

#[cfg(test)]
mod tests {
    use super::schemas;

    /// `WEIR_BLESS=1` regenerates them.
    #[test]
    fn the_published_schemas_are_those_of_the_models() {
        for (name, schema) in schemas() {
            let path = format!("{}/../../docs/reference/{name}", env!("CARGO_MANIFEST_DIR"));
            let want = format!("{schema:#}\n");
            if std::env::var_os("WEIR_BLESS").is_some() {
                std::fs::write(&path, &want).unwrap();
            }
            assert!(
                std::fs::read_to_string(path).unwrap_or_default() == want,
                "{name}: run it with WEIR_BLESS=1"
            );
        }
    }
}
