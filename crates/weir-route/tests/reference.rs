//! The variables and functions of docs/reference/expressions.md are those that there are, and what it leaves out of CEL
//! is what the conformance tests leave out. `WEIR_BLESS=1` writes them.

use std::fmt::Write;

use weir_expr::FUNCTIONS;
use weir_route::variables::{Bounds, Vocabulary};

#[allow(dead_code, clippy::unwrap_used, reason = "test code that other crates share")]
#[path = "../../weir-testkit/src/generated.rs"]
mod generated;

const PAGE: &str = "docs/reference/expressions.md";

#[test]
fn variables() {
    let schema = Vocabulary::without_maps(Bounds { head_bytes: 32 * 1024, fields: 100 }).schema(None);
    let mut rows: Vec<String> = schema
        .variables()
        .map(|variable| {
            let name = variable.name();
            let name = if variable.is_keyed() { format!("{name}[…]") } else { name.to_owned() };
            let what = variable.what();
            assert!(!what.is_empty(), "{name} says nothing about itself");
            format!("| `{name}` | {} | {} | {what} |", variable.ty(), schema.phase_name(variable.phase()))
        })
        .collect();
    rows.sort();
    let table = format!("| variable | type | known from | |\n|---|---|---|---|\n{}", rows.join("\n"));
    generated::generated(PAGE, "variables", &table);
}

#[test]
fn functions() {
    let mut table = "| function | result | |\n|---|---|---|\n".to_owned();
    for function in FUNCTIONS {
        let default = if function.may_fail { "; may have no value" } else { "" };
        let what = function.what.replace('|', "\\|");
        let _ = writeln!(table, "| `{}` | {} | {what}{default} |", function.call(), function.gives);
    }
    generated::generated(PAGE, "functions", &table);
}

#[test]
fn left_out_of_cel() {
    let cases = include_str!("../../weir-expr/tests/cel.cases").lines().filter(|line| !line.starts_with('#'));
    let mut groups: Vec<(&str, usize)> = Vec::new();
    for line in include_str!("../../weir-expr/tests/cel.left_out").lines().filter(|line| !line.is_empty()) {
        match (line.strip_prefix("# "), groups.last_mut()) {
            (Some(reason), _) => groups.push((reason, 0)),
            (None, Some((_, count))) => *count += 1,
            (None, None) => panic!("{line} has no reason"),
        }
    }
    let all: usize = groups.iter().map(|(_, count)| count).sum();
    let cases = cases.count();
    let mut table = format!(
        "Of {cases} conformance tests, {} give the same result. The others:\n\n| what differs | tests |\n|---|---|\n",
        cases - all
    );
    groups.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (reason, count) in groups {
        let _ = writeln!(table, "| {} | {count} |", reason.trim_end_matches('.').replace('|', "\\|"));
    }
    generated::generated(PAGE, "cel", table.trim_end());
}
