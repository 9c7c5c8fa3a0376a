//! What docs/reference/versions.md calls public has a list here, in `public/`:
//!
//! - config keys and filter settings, with their types and defaults;
//! - commands, options and exit codes;
//! - metrics with their labels, fields of the access log, causes with their status;
//! - calls of the admin API with their roles, and the fields that it answers with. Of the latter, the tests are
//!   `every_documented_field_is_listed` in e2e/admin.rs, and for `/status` `fields_of_status` in `openapi.rs` of
//!   weir-admin;
//! - fields of saved reports and plans.
//!
//! The lists are taken from the reference pages, which other tests compare with the code. `golden_list` of weir-testkit
//! says how a list changes.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use weir_testkit::{fields_of, golden_list};

/// A row of a table in a page.
struct Row {
    /// The heading above the table, without backticks.
    heading: String,
    /// The first cells of the table's head, such as `metric`.
    head: String,
    cells: Vec<String>,
}

/// The names of a list, from the rows of its page; none for rows of other tables.
type Name = fn(&Row) -> Vec<String>;

#[test]
fn access_log_fields() {
    compare("access-log", "access-log", |row| match &*row.head {
        "field" => vec![format!("{}: {}", row.name(), row.cells[1])],
        _ => vec![],
    });
}

#[test]
fn admin_calls() {
    compare("admin-api", "admin-api", |row| match (&*row.head, row.cells.len()) {
        ("call", 4) => vec![
            format!("{} by {} ? {}", row.name(), row.plain(1), row.plain(2))
                .trim_end_matches(" ? ")
                .to_owned(),
        ],
        ("call", _) => vec![format!("{} by {}", row.name(), row.plain(1))],
        _ => vec![],
    });
}

#[test]
fn causes() {
    compare("causes", "causes", |row| match &*row.head {
        "cause" => vec![format!("{} {}", row.name(), row.cells[1])],
        _ => vec![],
    });
}

#[test]
fn commands_and_options() {
    compare("cli", "cli", |row| match &*row.head {
        "command" if row.cells.len() == 3 => vec![row.link_text(0)],
        "option" => {
            // All names of an option; a value is written behind the longest.
            let names = row.cells[0].split("`, `").map(|name| name.trim_matches('`').to_owned());
            names.map(|name| format!("{}: {name}", row.heading)).collect()
        }
        _ => vec![],
    });
}

#[test]
fn config_keys() {
    compare("config", "config", |row| match &*row.head {
        "Key" => vec![row.key()],
        _ => vec![],
    });
}

/// A config that does not name a key changes its meaning with the default.
#[test]
fn defaults_of_config_keys() {
    compare("config", "config-defaults", |row| match default_of(row.cells.last().unwrap()) {
        Some(default) if row.head == "Key" => vec![format!("{}: {default}", row.key())],
        _ => vec![],
    });
}

/// The page on sizing repeats some defaults, with their reasons.
#[test]
fn defaults_in_sizing_are_those_of_the_config() {
    let page = |name: &str| fs::read_to_string(root().join(format!("docs/reference/{name}.md"))).unwrap();
    let (config, sizing) = (rows(&page("config")), rows(&page("sizing")));
    let defaults: BTreeMap<String, Option<String>> =
        config.iter().map(|row| (row.key(), default_of(row.cells.last().unwrap()))).collect();
    let repeated: Vec<&Row> = sizing.iter().filter(|row| row.head == "key").collect();
    assert!(repeated.len() > 20, "sizing.md has only {} defaults: did its form change?", repeated.len());
    for row in repeated {
        assert_eq!(defaults.get(&row.name()), Some(&Some(row.plain(1))), "{}", row.name());
    }
}

#[test]
fn defaults_of_filter_settings() {
    compare("filters", "filter-defaults", |row| match &*row.head {
        "setting" => vec![format!("{}.{}: {}", row.heading, row.name(), row.plain(2))],
        _ => vec![],
    });
}

#[test]
fn exit_codes() {
    let mut codes = BTreeSet::new();
    for page in ["cli", "compare", "load"] {
        let text = fs::read_to_string(root().join(format!("docs/reference/{page}.md"))).unwrap();
        codes.extend(rows(&text).iter().filter(|row| row.head == "code").map(|row| match &*row.cells {
            [code, cause, k6, split] => format!("{page}: {cause}: {code}, k6 {k6}, split {split}"),
            _ => format!("{page}: {}", row.name()),
        }));
    }
    golden_list("exit-codes", "\"Exit codes\" in docs/reference", &codes);
}

#[test]
fn fields_of_saved_reports_and_plans() {
    let reference = root().join("docs/reference");
    let mut fields = BTreeSet::new();
    for entry in fs::read_dir(reference).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(".schema.json") {
            let schema = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            fields.extend(fields_of(&schema));
        }
    }
    golden_list("schemas", "docs/reference/*.schema.json", &fields);
}

#[test]
fn filter_settings() {
    compare("filters", "filters", |row| match &*row.head {
        "setting" => vec![format!("{}.{}", row.heading, row.name())],
        "placeholder" => vec![row.name()],
        _ => vec![],
    });
}

#[test]
fn metrics() {
    compare("metrics", "metrics", |row| match &*row.head {
        "metric" => {
            vec![format!("{} {} {}", row.name(), row.plain(1), row.plain(2)).trim_end().to_owned()]
        }
        _ => vec![],
    });
}

#[test]
fn types_of_config_keys() {
    compare("config", "config-types", |row| match &*row.head {
        "Key" => vec![format!("{}: {}", row.key(), row.plain(1))],
        _ => vec![],
    });
}

#[test]
fn types_of_filter_settings() {
    compare("filters", "filter-types", |row| match &*row.head {
        "setting" => vec![format!("{}.{}: {}", row.heading, row.name(), row.plain(1))],
        _ => vec![],
    });
}

// === Helpers ===

impl Row {
    /// The whole key of a row in config.md.
    fn key(&self) -> String {
        match &*self.heading {
            "The top level" => self.name(),
            section => format!("{section}.{}", self.name()),
        }
    }

    /// The first cell without backticks.
    fn name(&self) -> String {
        self.plain(0)
    }

    fn plain(&self, cell: usize) -> String {
        self.cells[cell].replace('`', "")
    }

    /// `weir run` of a cell ``[`weir run`](#weir-run)``.
    fn link_text(&self, cell: usize) -> String {
        let text = self.plain(cell);
        text.trim_start_matches('[').split(']').next().unwrap_or_default().to_owned()
    }
}

/// Compares the names in a reference page with a list.
#[track_caller]
fn compare(page: &str, list: &str, name: Name) {
    let text = fs::read_to_string(root().join(format!("docs/reference/{page}.md"))).unwrap();
    let names = rows(&text).iter().flat_map(name).collect();
    golden_list(list, &format!("docs/reference/{page}.md"), &names);
}

/// What the meaning of a key says behind `Default`, up to the end of the phrase.
fn default_of(meaning: &str) -> Option<String> {
    let rest = meaning.split("Default ").nth(1)?;
    let ends = [". ", ", ", "; ", ": "].into_iter().filter_map(|end| rest.find(end));
    let phrase = ends.min().map_or(rest.trim_end_matches('.'), |end| &rest[..end]);
    Some(phrase.replace('`', ""))
}

/// The rows of all tables in a page.
fn rows(page: &str) -> Vec<Row> {
    let (mut heading, mut head) = (String::new(), None::<String>);
    let mut found = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix('#') {
            heading = title.trim_start_matches('#').trim().replace('`', "");
        }
        if !line.starts_with('|') {
            head = None;
        } else if lines.peek().is_some_and(|next| next.starts_with("|---")) {
            head = cells(line).into_iter().next();
        } else if let Some(head) = head.clone().filter(|_| !line.starts_with("|---")) {
            found.push(Row { heading: heading.clone(), head, cells: cells(line) });
        }
    }
    found
}

/// The cells of a row; `\|` is a bar within one.
fn cells(line: &str) -> Vec<String> {
    let hidden = line.trim().trim_start_matches('|').replace("\\|", "\0");
    let hidden = hidden.strip_suffix('|').unwrap_or(&hidden);
    hidden.split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
