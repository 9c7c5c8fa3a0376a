//! The generated tables of `docs/reference/metrics.md` and `docs/reference/access-log.md`.
//!
//! The metrics come from a page of a process that has done one of everything; fields of the access log and values of
//! labels from the texts of their enums. `WEIR_BLESS=1` writes the tables. Figures of filters are no part of this
//! crate: `weirgate/tests/tidy/` makes theirs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use weir_telemetry::access_log::Field;
use weir_telemetry::series::Closed;
use weir_telemetry::{Attempt, Exposition};

use crate::exposition::sample;
use crate::generated::generated;

/// The tables of metrics, and the first label of their families. The last takes all others.
const TABLES: &[(&str, &str)] = &[
    ("requests", "route"),
    ("consumers", "consumer"),
    ("listeners", "listener"),
    ("upstreams", "upstream"),
    ("gateway", ""),
];

#[test]
fn the_metrics_are_documented() {
    let page = sample().expose(Exposition::Text);
    let mut tables: BTreeMap<&str, String> = BTreeMap::new();
    // What there is of the process depends on the system.
    for family in page.split("# HELP ").skip(1).filter(|family| !family.starts_with("process_")) {
        let (head, rest) = family.split_once('\n').unwrap();
        let (name, help) = head.split_once(' ').unwrap();
        let (kind, samples) = rest.split_once('\n').unwrap();
        let kind = if name.ends_with("_info") { "info" } else { kind.rsplit_once(' ').unwrap().1 };
        let sample = samples.lines().next().unwrap_or_else(|| panic!("{name} has no sample"));
        let labels = sample.split_once('{').map_or("", |(_, labels)| labels);
        let labels: Vec<&str> = labels
            .split("\",")
            .filter_map(|pair| Some(pair.split_once('=')?.0))
            .filter(|label| *label != "le")
            .collect();
        let belongs = |by: &str| by.is_empty() || labels.first().is_some_and(|label| *label == by);
        let (table, _) = TABLES.iter().find(|(_, by)| belongs(by)).unwrap();
        let rows = tables
            .entry(table)
            .or_insert_with(|| "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned());
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(rows, "| `{name}` | {kind} | {labels} | {} |", help.trim_end_matches('.'));
    }
    for (table, _) in TABLES {
        generated("docs/reference/metrics.md", table, &tables[table]);
    }
}

/// The text of each variant of an enum, without the full stop.
fn texts(source: &str, name: &str) -> BTreeMap<String, String> {
    let (_, variants) = source.split_once(&format!("\npub enum {name} {{\n")).unwrap();
    let mut texts = BTreeMap::new();
    let mut text = String::new();
    for line in variants.split("\n}\n").next().unwrap().lines().map(str::trim) {
        match line.strip_prefix("/// ") {
            Some(more) => text.extend([more, " "]),
            None => {
                let variant = line.trim_end_matches(',').to_owned();
                texts.insert(variant, text.trim().trim_end_matches('.').to_owned());
                text.clear();
            }
        }
    }
    texts
}

#[test]
fn the_values_of_labels_are_documented() {
    let source = include_str!("../../src/series.rs");
    let (closed, attempt) = (texts(source, "Closed"), texts(source, "Attempt"));
    let closed = Closed::ALL.map(|reason| (reason.name(), &closed[&format!("{reason:?}")]));
    let attempt = Attempt::ALL.map(|outcome| (outcome.name(), &attempt[&format!("{outcome:?}")]));
    for (part, label, rows) in [("reasons", "reason", &closed[..]), ("outcomes", "outcome", &attempt[..])] {
        let mut table = format!("| `{label}` | meaning |\n|---|---|\n");
        rows.iter().for_each(|(name, text)| {
            let _ = writeln!(table, "| `{name}` | {text} |");
        });
        generated("docs/reference/metrics.md", part, &table);
    }
}

#[test]
fn the_fields_of_the_access_log_are_documented() {
    let texts = texts(include_str!("../../src/access_log/entry.rs"), "Field");
    let mut table = "| field | unit or form | meaning |\n|---|---|---|\n".to_owned();
    for (field, name) in Field::ALL {
        let (form, meaning) = texts[&format!("{field:?}")].split_once(": ").unwrap();
        let _ = writeln!(table, "| `{name}` | {form} | {} |", meaning);
    }
    generated("docs/reference/access-log.md", "fields", &table);
}
