//! Writes a tree as readable YAML that parses back to the same tree.

use super::{Node, Value};
use std::fmt::Write;

/// The comment at the top of the managed file, for anyone who opens it.
const HEAD: &str = "# Written by the admin API of Weir (admin.writes). Changes made here by hand count, but comments are lost at the next change.\n";

/// The file for this tree, including its head.
pub(super) fn file(tree: &Node) -> String {
    let mut out = HEAD.to_owned();
    match &tree.value {
        Value::Map(entries) if !entries.is_empty() => push_map(tree, 0, &mut out),
        _ => out.push_str("{}\n"),
    }
    out
}

/// The lines of a tree, without the head.
pub(super) fn lines(tree: &Node) -> String {
    let mut out = String::new();
    push_map(tree, 0, &mut out);
    out
}

/// The lines of a map, each indented.
fn push_map(node: &Node, indent: usize, out: &mut String) {
    for (key, value) in node.entries() {
        let _ = write!(out, "{:indent$}", "");
        push_text(&key.text, out);
        out.push(':');
        push_value(value, indent, out);
    }
}

/// Writes the value after a key or a dash, including the line end.
fn push_value(node: &Node, indent: usize, out: &mut String) {
    match &node.value {
        Value::Map(entries) if !entries.is_empty() => {
            out.push('\n');
            push_map(node, indent + 2, out);
        }
        Value::Seq(elements) if !elements.is_empty() => {
            out.push('\n');
            for element in elements {
                let _ = write!(out, "{:indent$}-", "", indent = indent + 2);
                push_value(element, indent + 2, out);
            }
        }
        Value::Map(_) => out.push_str(" {}\n"),
        Value::Seq(_) => out.push_str(" []\n"),
        Value::Str(text) => {
            out.push(' ');
            push_text(text, out);
            out.push('\n');
        }
        // Readers treat an empty value and `null` differently.
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            let raw = node.raw();
            let _ = writeln!(out, "{}{raw}", if raw.is_empty() { "" } else { " " });
        }
    }
}

/// Writes a text without quotes if no YAML reader could read it as another type; otherwise quotes it as JSON does.
fn push_text(text: &str, out: &mut String) {
    if is_plain(text) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            // Characters that YAML does not print (§5.1) or treats as a line break.
            c if c.is_control()
                || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}') =>
            {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn is_plain(text: &str) -> bool {
    // YAML 1.1 reads these as booleans.
    const WORDS: &[&str] = &["y", "n", "yes", "no", "on", "off"];
    let inner = |c: char| c.is_ascii_alphanumeric() || "_./:*-".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/')
        && text.chars().all(inner)
        && !text.ends_with(':')
        && matches!(Value::plain(text), Value::Str(_))
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
        // Other readers parse 0x10, 0o17, 1_000 and dates as another type.
        && (!text.starts_with(|c: char| c.is_ascii_digit()) || text.contains(['.', '/', '*']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Diagnostics, parse::parse};
    use std::path::Path;

    fn read(text: &str) -> Node {
        let mut diagnostics = Diagnostics::default();
        parse(text, Path::new("t"), &mut diagnostics)
            .unwrap_or_else(|| panic!("{}\n{text}", diagnostics.to_text()))
    }

    #[test]
    fn what_is_written_reads_to_the_same_tree() {
        for text in [
            "{}",
            "a: { b: [x, 1, 1.20, true, ~, null, \"null\", \"\", \"1\"] }",
            "a: { b: , c: [[], {}, [[1], { x: [ { y: [] } ] }]] }",
            "a: [[[1, 2], [3]], { b: { c: d } }]",
            "{\"a\": \"x: y\", \"b\": \"- z\", \"c\": \"# no\", \"d\": \"a\\nb\\u0000\\u0007\\u0085\\u2028\\ufeff\\ud83d\\ude00\"}",
            "a: \"*alias\"\nb: \"&anchor\"\nc: \"!tag\"\nd: \"%x\"\ne: \"@x\"\nf: \"`x\"\ng: \"a #b\"\nh: \"a: b\"\ni: \"a:\"\n",
            "\"y\": \"yes\"\n\"~\": \"~\"\n\"1\": \"0x10\"\n\"a b\": \"2026-01-01\"\n\"<\": \"=\"\n",
            "a: 127.0.0.1:8000\nb: /orders/*\nc: 3s\nd: \"/a/{id}\"\ne: '{\"json\": [1]}'\nf: \" lead\"\ng: \"trail \"\n",
            "a: |\n  two\n  lines\nb: >-\n  folded\n",
            "a: 12345678901234567890\nb: -1\nc: 1e3\nd: '010'\n",
        ] {
            let tree = read(text);
            let written = file(&tree);
            assert_eq!(read(&written), tree, "{text}\n{written}");
            // Writing twice gives the same file, so saving without a change leaves it as it is.
            assert_eq!(file(&read(&written)), written);
        }
    }
}
