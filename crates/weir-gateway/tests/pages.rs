//! `weir check` accepts the syntax of every config fragment on the pages in `docs`. A fragment may omit what it refers
//! to, such as an upstream, a consumer or a file.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_gateway::config::Source;

/// Diagnostics about syntax, as opposed to missing definitions.
const WRITTEN: [&str; 5] = ["[bad-expression]", "[bad-type]", "[bad-value]", "[syntax]", "[unknown-key]"];

/// Pages with the YAML of other programs under keys that a config has too.
const OTHERS: [&str; 2] = ["explain/kubernetes.md", "guide/from-kong.md"];

#[test]
fn parts_of_configs_on_pages_are_written_as_check_reads_them() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let schema = weir_gateway::schema();
    let (mut checked, mut mistakes) = (0, String::new());
    for page in pages(&docs) {
        let name = page.strip_prefix(&docs).unwrap().display().to_string();
        if OTHERS.contains(&name.as_str()) {
            continue;
        }
        for block in blocks(&fs::read_to_string(&page).unwrap()) {
            let Some(config) = completed(&block, &schema["properties"]) else { continue };
            checked += 1;
            let text = weir_gateway::check(&source(&config), &[]).diagnostics.to_text();
            for line in text.lines().filter(|line| WRITTEN.iter().any(|code| line.ends_with(code))) {
                mistakes.push_str(&format!("{name}: {line}\n{block}\n"));
            }
        }
    }
    assert!(mistakes.is_empty(), "{mistakes}");
    assert!(checked > 60, "only {checked} parts of configs found");
}

fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            pages.extend(self::pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages
}

/// The YAML blocks of a page, without the indentation of a list around them.
fn blocks(page: &str) -> Vec<String> {
    let (mut blocks, mut lines) = (Vec::new(), page.lines());
    while let Some(line) = lines.next() {
        let Some(indent) = line.strip_suffix("```yaml").filter(|indent| indent.trim().is_empty()) else {
            continue;
        };
        let block: Vec<&str> = lines
            .by_ref()
            .take_while(|line| line.trim() != "```")
            .map(|line| line.strip_prefix(indent).unwrap_or_default())
            .collect();
        blocks.push(block.join("\n"));
    }
    blocks
}

/// The block, completed with the sections that `check` requires. `None` if it is not a config fragment, or contains an
/// ellipsis (`…`).
fn completed(block: &str, sections: &Value) -> Option<String> {
    let keys: Vec<&str> = block
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with([' ', '#']))
        .map(|line| line.split(':').next().unwrap_or_default())
        .collect();
    let is_part = !keys.is_empty() && keys.iter().all(|key| sections.get(key).is_some());
    if !is_part || block.contains('…') {
        return None;
    }
    let mut config = block.to_owned();
    if !keys.contains(&"listeners") && !keys.contains(&"source") {
        config.push_str("\nlisteners: { unused: { address: 127.0.0.1:0 } }\n");
    }
    if !keys.contains(&"routes") && !keys.contains(&"source") {
        config.push_str("\nroutes: { unused: { match: { path: /unused }, respond: {} } }\n");
    }
    Some(config)
}

/// The config, with a value for each `${VAR}`.
fn source(config: &str) -> Source {
    let names = config.split("${").skip(1).filter_map(|rest| rest.split(['}', ':']).next());
    let value = "0123456789abcdef0123456789abcdef";
    names.fold(Source::text("weir.yaml", config), |source, name| source.with_variable(name, value))
}
