//! The reference page and the schema of plans are those of the code, and the examples are plans.

use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use weir_plan::{Disk, Source};

#[path = "../../weir-testkit/src/generated.rs"]
#[allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]
mod generated;

const PAGE: &str = "docs/reference/load-plan.md";

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The keys of an object of the schema, as rows of a table.
fn table(schema: &Value) -> String {
    let mut out = "| key | meaning |\n|---|---|\n".to_owned();
    for (key, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let text = property.get("description").and_then(Value::as_str).unwrap_or_default();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
        let _ = writeln!(out, "| `{key}` | {} |", text.trim_end_matches('.'));
    }
    out
}

/// `WEIR_BLESS=1` regenerates them.
#[test]
fn the_page_has_every_key() {
    let schema = weir_plan::schema();
    generated::generated(PAGE, "plan", &table(&schema));
    for (part, name) in [
        ("defaults", "Defaults"),
        ("scenario", "Scenario"),
        ("step", "Step"),
        ("part", "MultipartPart"),
        ("data", "Data"),
    ] {
        let schema =
            schema.pointer(&format!("/$defs/{name}")).unwrap_or_else(|| panic!("no {name} in the schema"));
        let rows = table(schema);
        assert!(!rows.contains("|  |"), "a key without a meaning: {rows}");
        generated::generated(PAGE, part, &rows);
    }
}

/// `WEIR_BLESS=1` regenerates it.
#[test]
fn the_published_schema_is_that_of_the_code() {
    let path = root().join("docs/reference/load-plan.schema.json");
    let want = format!("{:#}\n", weir_plan::schema());
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, &want).unwrap();
    }
    assert!(std::fs::read_to_string(path).unwrap_or_default() == want, "run it with WEIR_BLESS=1");
}

#[test]
fn every_example_is_a_plan() {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join("examples/load")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ext| ext == "yaml") {
            let plan = weir_plan::read(&Source::file(&path), &Disk, &[])
                .unwrap_or_else(|mistakes| panic!("{mistakes}"));
            assert!(!plan.scenarios.is_empty() && !plan.thresholds.is_empty());
            found.extend(path.file_name().and_then(|name| name.to_str()).map(str::to_owned));
        }
    }
    found.sort();
    assert_eq!(found, ["basket.yaml", "login.yaml", "room.yaml"]);
}

#[test]
fn the_plan_on_the_page_is_one() {
    let page = std::fs::read_to_string(root().join(PAGE)).unwrap();
    let text = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    weir_plan::read(&Source::text("page", text), &Disk, &[]).unwrap_or_else(|mistakes| panic!("{mistakes}"));
}
