//! Runs the conformance tests of CEL's specification as far as the grammar is taken (`cel.cases`). `cel.left_out` lists the
//! tests whose result differs here, each group with its reason; it may name no test that passes.
//!
//! Where CEL has an error, an expression here is refused by the check, or has no value.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use std::collections::BTreeMap;
use weir_expr::{Expression, Phase, Schema, Value, Values, Var};

struct Nothing;

impl Values for Nothing {
    fn value(&self, _: Var, _: &[u8]) -> Value<'_> {
        Value::Absent
    }
}

#[test]
fn cel_conformance() {
    let mut reasons: BTreeMap<&str, &str> = BTreeMap::new();
    let mut reason = "";
    for line in include_str!("cel.left_out").lines() {
        match line.strip_prefix("# ") {
            Some(text) => reason = text,
            None if line.is_empty() => {}
            None => assert!(reasons.insert(line, reason).is_none(), "{line} stands twice"),
        }
    }
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("cel.cases").lines().filter(|line| !line.starts_with('#')) {
        count += 1;
        let [name, source, expected] = line.splitn(3, '\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let source: String = serde_json::from_str(source).unwrap();
        let found = outcome(&source);
        let is_fine = matches(&found, expected);
        if is_fine == reasons.remove(name).is_some() {
            let verdict = if is_fine { "passes: take it out of cel.left_out" } else { "differs" };
            wrong.push(format!(
                "{name}: {verdict}\n    {source}\n    expected {expected}\n    found    {found}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(reasons.is_empty(), "no such tests: {reasons:?}");
}

fn matches(found: &str, expected: &str) -> bool {
    if expected == "error" {
        return found.starts_with("refused") || found == "absent";
    }
    found == numbers(expected)
}

/// With each double as Rust writes it.
fn numbers(text: &str) -> String {
    let mut parts = text.split("double ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find([' ', ';', ']']).unwrap_or(part.len());
        let number: f64 = part[..end].parse().unwrap();
        out += &format!("double {number:?}{}", &part[end..]);
    }
    out
}

fn outcome(source: &str) -> String {
    match Expression::compile(source, &Schema::new(["always"]), Phase(0)) {
        Err(mistakes) => format!("refused: {}", mistakes[0].message),
        Ok(expression) => show(&expression.value(&Nothing)),
    }
}

fn show(value: &Value<'_>) -> String {
    match value {
        Value::Absent => "absent".to_owned(),
        Value::Bool(is) => format!("bool {is}"),
        Value::Bytes(bytes) if bytes.is_empty() => "bytes -".to_owned(),
        Value::Bytes(bytes) => {
            format!("bytes {}", bytes.iter().map(|b| format!("{b:02x}")).collect::<String>())
        }
        Value::Double(n) => format!("double {n:?}"),
        Value::Int(n) => format!("int {n}"),
        Value::List(items) => format!("list [{}]", items.iter().map(show).collect::<Vec<_>>().join("; ")),
        Value::Map(entries) => {
            let entries = entries.iter().map(|(key, value)| format!("{} => {}", show(key), show(value)));
            // CEL's maps have no order.
            let mut entries: Vec<String> = entries.collect();
            entries.sort_unstable();
            format!("map [{}]", entries.join("; "))
        }
        Value::Null => "null".to_owned(),
        Value::Text(text) => {
            format!("text {}", serde_json::to_string(&String::from_utf8_lossy(text)).unwrap())
        }
        Value::Uint(n) => format!("uint {n}"),
        other => format!("{other:?}"),
    }
}
