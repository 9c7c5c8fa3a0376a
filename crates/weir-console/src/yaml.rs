//! Values as readable YAML, and line-by-line differences between two values.

use crate::html::{Html, each};
use crate::view::Difference;
use serde_json::Value;

/// Most lines per side for a line-by-line comparison. Longer values appear one after the other.
const LINES: usize = 400;

/// A value as lines of YAML.
pub(crate) fn lines(value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    push(value, 0, String::new(), &mut out);
    out
}

/// `lead` precedes the value on its first line: a key or a dash.
fn push(value: &Value, indent: usize, lead: String, out: &mut Vec<String>) {
    let pad = "  ".repeat(indent);
    match value {
        Value::Object(map) if !map.is_empty() => {
            // A map in a list begins on the line of the dash.
            let mut first = (lead == "- ").then_some(lead.as_str());
            if first.is_none() && !lead.is_empty() {
                out.push(format!("{}{lead}", "  ".repeat(indent.saturating_sub(1))).trim_end().to_owned());
            }
            for (key, value) in map {
                let dash = first.take();
                let at = out.len();
                push(value, indent + 1, format!("{}: ", scalar(&Value::from(key.as_str()))), out);
                if let (Some(dash), Some(line)) = (dash, out.get_mut(at)) {
                    let from = line.len().min(2 * indent.saturating_sub(1));
                    *line = format!(
                        "{}{dash}{}",
                        "  ".repeat(indent.saturating_sub(1)),
                        line.get(from..).unwrap_or_default().trim_start()
                    );
                }
            }
        }
        Value::Array(list) if !list.is_empty() && !list.iter().all(is_plain) => {
            if !lead.is_empty() {
                out.push(format!("{}{}", "  ".repeat(indent.saturating_sub(1)), lead.trim_end()));
            }
            for value in list {
                push(value, indent + 1, "- ".to_owned(), out);
            }
        }
        _ => out.push(format!(
            "{}{lead}{}",
            if lead.is_empty() { pad } else { "  ".repeat(indent.saturating_sub(1)) },
            scalar(value)
        )),
    }
}

fn is_plain(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

/// A value on one line.
pub(crate) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if is_word(text) => text.clone(),
        Value::Array(list) if !list.is_empty() => {
            format!("[{}]", list.iter().map(scalar).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) if !map.is_empty() => {
            let pairs: Vec<String> =
                map.iter().map(|(key, value)| format!("{key}: {}", scalar(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}

/// Whether a text needs no quotes, because YAML cannot read it as anything else.
fn is_word(text: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "_./-*$:@+%".contains(c);
    let begins = text.starts_with(|c: char| c.is_alphanumeric() || "/_.".contains(c));
    let other = text.parse::<f64>().is_ok()
        || matches!(text, "true" | "false" | "null" | "yes" | "no" | "on" | "off");
    begins && text.chars().all(plain) && !text.ends_with(':') && !other
}

/// A value, for reading.
pub(crate) fn shown(value: &Value) -> Html {
    let lines = each(lines(value), |line| html!("{}\n", line));
    html!("<pre class=\"code\" tabindex=\"0\">{}</pre>", lines)
}

/// The differences, one block per setting.
pub(crate) fn differences(differences: &[Difference], more: usize) -> Html {
    let blocks = each(differences, |difference| {
        let (sign, word) = match (&difference.before, &difference.after) {
            (None, Some(_)) => ("+", "added"),
            (Some(_), None) => ("−", "removed"),
            _ => ("~", "changed"),
        };
        let side = |value: &Option<Value>| value.as_ref().map(lines).unwrap_or_default();
        let body = each(compare(&side(&difference.before), &side(&difference.after)), |(kind, line)| {
            let (class, sign) = match kind {
                Kind::Gone => ("gone", "−"),
                Kind::New => ("new", "+"),
                Kind::Same => ("same", " "),
            };
            html!("<span class=\"{}\">{} {}\n</span>", class, sign, line)
        });
        html!(
            "<li class=\"{}\"><h3><span class=\"sign\" aria-hidden=\"true\">{}</span> <code>{}</code> <small>{}</small></h3><pre class=\"code\" \
             tabindex=\"0\">{}</pre>",
            word,
            sign,
            difference.path,
            word,
            body
        )
    });
    let more = (more > 0).then(|| html!("<li class=\"more\">… and {} more", more));
    html!("<ul class=\"diff\">{}{}</ul>", blocks, more)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Gone,
    New,
    Same,
}

/// The lines of both sides, with common lines once: by the longest common subsequence.
fn compare(before: &[String], after: &[String]) -> Vec<(Kind, String)> {
    let tell = |kind, line: &String| (kind, line.clone());
    if before.len() > LINES || after.len() > LINES {
        let gone = before.iter().map(|line| tell(Kind::Gone, line));
        return gone.chain(after.iter().map(|line| tell(Kind::New, line))).collect();
    }
    let width = after.len() + 1;
    let mut longest = vec![0_u32; (before.len() + 1) * width];
    let at = |i: usize, j: usize| i * width + j;
    for i in (0..before.len()).rev() {
        for j in (0..after.len()).rev() {
            longest[at(i, j)] = if before[i] == after[j] {
                longest[at(i + 1, j + 1)] + 1
            } else {
                longest[at(i + 1, j)].max(longest[at(i, j + 1)])
            };
        }
    }
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    while i < before.len() || j < after.len() {
        if i < before.len() && j < after.len() && before[i] == after[j] {
            out.push(tell(Kind::Same, &before[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == after.len() || (i < before.len() && longest[at(i + 1, j)] >= longest[at(i, j + 1)]) {
            out.push(tell(Kind::Gone, &before[i]));
            i += 1;
        } else {
            out.push(tell(Kind::New, &after[j]));
            j += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_written_as_people_write_them() {
        let value = json!({
            "match": { "path": "/orders/*", "methods": ["GET", "POST"] },
            "filters": [ { "key_auth": { "header": "apikey" } }, { "rate_limit": { "requests": 100, "per": "1s" } }, "cors" ],
            "upstream": { "orders": 95, "orders_next": 5 }, "at": ["127.0.0.1:80", "1.20", "on"],
            "respond": {}, "note": "a: b", "none": null, "empty": []
        });
        let expected = "match:\n  path: /orders/*\n  methods: [GET, POST]\nfilters:\n  - key_auth:\n      header: apikey\n  - rate_limit:\n      \
                        requests: 100\n      per: 1s\n  - cors\nupstream:\n  orders: 95\n  orders_next: 5\nat: [127.0.0.1:80, \"1.20\", \"on\"]\nrespond: {}\nnote: \"a: b\"\nnone: null\nempty: []";
        assert_eq!(lines(&value).join("\n"), expected);
        assert_eq!(lines(&json!("x")), ["x"]);
        assert_eq!(lines(&json!([1, 2])), ["[1, 2]"]);
        assert_eq!(lines(&json!([{ "a": 1, "b": { "c": 2 } }])), ["- a: 1", "  b:", "    c: 2"]);
    }

    #[test]
    fn lines_are_compared() {
        let side = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let told: Vec<String> = compare(&side("a b c d"), &side("a x c d e"))
            .into_iter()
            .map(|(kind, line)| {
                format!(
                    "{}{line}",
                    match kind {
                        Kind::Gone => '-',
                        Kind::New => '+',
                        Kind::Same => ' ',
                    }
                )
            })
            .collect();
        assert_eq!(told, [" a", "-b", "+x", " c", " d", "+e"]);
        let long: Vec<String> = (0..=LINES).map(|n| n.to_string()).collect();
        assert_eq!(compare(&long, &long).len(), 2 * long.len());
    }

    #[test]
    fn what_differs_is_escaped() {
        let difference = Difference {
            path: "<i>".to_owned(),
            before: Some(json!("<b>")),
            after: Some(json!({ "<u>": "<s>" })),
        };
        let text = differences(&[difference], 3).into_string();
        assert!(
            !text.contains("<i>") && !text.contains("<b>") && !text.contains("<u>") && !text.contains("<s>"),
            "{text}"
        );
        assert!(text.contains("and 3 more"));
    }
}
