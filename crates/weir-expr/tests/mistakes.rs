//! Every mistake, as people see it: `mistakes.golden` has a source behind `> ` and what is said of it. `match.when` runs in
//! phase `request`, so that is the phase here. WEIR_BLESS=1 writes the answers anew.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

mod shared;

use shared::{REQUEST, schema};
use std::fmt::Write;
use weir_expr::Condition;

#[test]
fn mistakes_are_told_with_place_and_hint() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mistakes.golden");
    let golden = std::fs::read_to_string(path).unwrap();
    let mut told = String::new();
    for block in golden.split("\n\n").map(str::trim_end).filter(|block| !block.is_empty()) {
        let lines: Vec<&str> = block.lines().filter_map(|line| line.strip_prefix("> ")).collect();
        let source = lines.join("\n");
        let mistakes = Condition::compile(&source, &schema(), REQUEST).err().unwrap_or_default();
        assert!(!mistakes.is_empty(), "no mistake in {source}");
        for line in lines {
            let _ = writeln!(told, "> {line}");
        }
        for mistake in mistakes {
            assert!(source.get(mistake.range.clone()).is_some(), "{mistake:?}");
            let _ = writeln!(told, "{}", mistake.render(&source));
        }
        told.push('\n');
    }
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(path, &told).unwrap();
        return;
    }
    assert_eq!(told, golden, "WEIR_BLESS=1 writes it anew");
}
