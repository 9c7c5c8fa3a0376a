//! Filters: what they leave to the engine, their figures, and their registry.

use super::{check, code_below, generated, name, read, root, sources};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where filters are.
const FILTERS: &[&str] = &[
    "crates/weir-cache/src/filter/",
    "crates/weir-filters/src/",
    "crates/weir-identity/src/",
    "crates/weir-rpc/src/",
];

/// The methods of weir-filter that are for the engine which runs filters, and not for filters.
const OF_ENGINE: &[&str] =
    &["continues_in_background", "into_replaced", "renumber", "take_background", "take_hold", "take_ready"];

/// The fields of `Cx` that filters may use; the others belong to the engine.
const OF_FILTERS: &[&str] = &["certificate", "client", "request_id", "tls"];

#[test]
fn filters_leave_to_the_engine_what_is_the_engines() {
    check("add a method to `Cx` for what filters need; see OF_ENGINE and OF_FILTERS", |broken| {
        for (place, line) in FILTERS.iter().flat_map(|folder| code_below(folder)) {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let named = |at: usize| line[at..].split(|c| !is_word(c)).next().unwrap_or_default();
            let is_field = |name: &str, at: usize| {
                let rest = &line[at + name.len()..];
                !name.is_empty() && !rest.starts_with(['(', ':']) && !OF_FILTERS.contains(&name)
            };
            let mut fields = line.match_indices("cx.").filter(|(at, _)| !line[..*at].ends_with(is_word));
            let mut calls = line.match_indices('.').map(|(at, _)| named(at + 1));
            if fields.any(|(at, _)| is_field(named(at + 3), at + 3))
                || calls.any(|name| OF_ENGINE.contains(&name))
            {
                broken.push(format!("{place}: {}", line.trim()));
            }
        }
    });
}

#[test]
fn every_figure_of_a_filter_is_documented() {
    let mut rows = BTreeMap::new();
    // Sources of consumers and splits report like filters.
    let places = || {
        FILTERS
            .iter()
            .chain(&["crates/weir-engine/src/arms.rs", "crates/weir-engine/src/snapshot/sources.rs"])
    };
    let reports = |file: &PathBuf| places().any(|place| name(file).starts_with(place));
    for file in sources().into_iter().filter(reports) {
        let text = read(&file);
        for (kind, suffix) in [("counter", "_total"), ("gauge", "")] {
            for call in text.split(&format!("Figure::{kind}(")).skip(1) {
                let end = call
                    .find([';', ']'])
                    .map_or(call.len(), |end| end.min(call.find("Figure::").unwrap_or(end)));
                let words: Vec<&str> = call[..end].split('"').skip(1).step_by(2).collect();
                let [_, family, help, of @ ..] = &words[..] else { panic!("{}: {call}", name(&file)) };
                let label = of.first().map_or_else(String::new, |label| format!(", `{label}`"));
                let help = help.trim_end_matches('.');
                let row = format!("| `{family}{suffix}` | {kind} | `place`{label} | {help} |\n");
                rows.insert(format!("{family}{suffix}"), row);
            }
        }
    }
    assert!(rows.len() > 20, "the figures were not found");
    let rows: String = rows.into_values().collect();
    let table = format!("| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}");
    generated::generated("docs/reference/metrics.md", "filters", &table);
}

#[test]
fn every_filter_is_registered() {
    let registry = read(&root().join("crates/weir-filters/src/lib.rs"));
    check("add `mod x;` to lib.rs of its crate and `&x::KIND` to lib.rs of weir-filters, sorted", |broken| {
        for folder in FILTERS {
            let folder = root().join(folder);
            let Ok(crate_root) = fs::read_to_string(folder.join("lib.rs")) else {
                continue; // weir-cache has one filter
            };
            let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
            for file in entries.filter(|path| is_filter(path)) {
                let file = file.file_stem().unwrap().to_string_lossy().into_owned();
                let module = crate_root.lines().any(|line| line.trim().ends_with(&format!("mod {file};")));
                if !module || !registry.contains(&format!("{file}::KIND,")) {
                    broken.push(file);
                }
            }
        }
    });
}

/// A filter declares its kind in its file, or in its folder's first file; other modules are shared by filters.
fn is_filter(path: &Path) -> bool {
    let file = if path.is_dir() { path.join("mod.rs") } else { path.to_owned() };
    fs::read_to_string(file).is_ok_and(|text| text.contains("static KIND: FilterKind"))
}
