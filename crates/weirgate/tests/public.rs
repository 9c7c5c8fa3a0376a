//! What docs/reference/versions.md calls public has a list here, in `public/`: config keys, commands and options, metrics
//! with their labels, fields of the access log, causes with their status, and calls of the admin API with their roles.
//!
//! The lists are taken from the reference pages, which other tests compare with the code. A new name is added by
//! `WEIR_BLESS=1`. A name that is gone or changed is a break for users, so that takes an edit of the list by hand: the
//! reviewer sees a removed line, beside the one in CHANGELOG.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

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
    compare("config", "config", |row| match (&*row.head, &*row.heading) {
        ("Key", "The top level") => vec![row.name()],
        ("Key", section) => vec![format!("{section}.{}", row.name())],
        _ => vec![],
    });
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
fn a_removed_name_is_no_matter_of_blessing() {
    let (kept, wrong) = change(&["a", "b"].map(str::to_owned).into(), &["b", "c"].map(str::to_owned).into());
    assert_eq!(kept.into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(wrong, ["- a", "+ c"]);
}

// === Helpers ===

impl Row {
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

/// Compares the names in a reference page with a list, which `WEIR_BLESS=1` completes.
#[track_caller]
fn compare(page: &str, list: &str, name: Name) {
    let text = fs::read_to_string(root().join(format!("docs/reference/{page}.md"))).unwrap();
    let now: BTreeSet<String> = rows(&text).iter().flat_map(name).collect();
    assert!(now.len() > 10, "{page}.md has only {} names: did its tables change?", now.len());
    let path = root().join(format!("crates/weirgate/tests/public/{list}.txt"));
    let listed: BTreeSet<String> =
        fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect();
    let (all, wrong) = change(&listed, &now);
    if std::env::var_os("WEIR_BLESS").is_some_and(|bless| !bless.is_empty()) {
        fs::write(&path, all.into_iter().map(|name| name + "\n").collect::<String>()).unwrap();
    }
    let is_gone = wrong.iter().any(|line| line.starts_with('-'));
    let blessed = !is_gone && std::env::var_os("WEIR_BLESS").is_some();
    assert!(
        wrong.is_empty() || blessed,
        "public/{list}.txt and docs/reference/{page}.md differ:\n  {}\n\
         `+`: WEIR_BLESS=1 adds it. `-`: somebody may use it, see \"How a key is deprecated\" in versions.md; if it must \
         go or change, remove its line from the list by hand and write it into CHANGELOG.md.",
        wrong.join("\n  ")
    );
}

/// The list with new names added and none removed, and the differences.
fn change(listed: &BTreeSet<String>, now: &BTreeSet<String>) -> (BTreeSet<String>, Vec<String>) {
    let gone = listed.difference(now).map(|name| format!("- {name}"));
    let new = now.difference(listed).map(|name| format!("+ {name}"));
    (listed.union(now).cloned().collect(), gone.chain(new).collect())
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
