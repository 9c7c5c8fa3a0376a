//! Texts of JMeter: variables and functions, extractors and assertions in the words of plans.

use super::{Importer, TEXT_BYTES, keep, property};
use crate::ledger::Piece;
use crate::plan::model::Keep;
use crate::plan::text::{self, Span};
use regex::Regex;
use std::collections::BTreeSet;
use weir_report::xml::Element;

/// Deepest variables within the values of variables.
const DEPTH: usize = 10;

impl Importer<'_, '_> {
    /// A text of the plan: variables become names, functions placeholders.
    pub(super) fn text(&mut self, source: &str, piece: Piece) -> String {
        self.text_at(source, piece, 0)
    }

    fn text_at(&mut self, source: &str, piece: Piece, depth: usize) -> String {
        let mut out = String::new();
        if self.left == 0 {
            return out;
        }
        let mut rest = source;
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(&self.cx.vault.literal("secret", before));
            let Some(end) = end_of(after) else {
                out.push_str("${");
                rest = after;
                continue;
            };
            let name = after.get(..end).unwrap_or_default();
            let made = self.variable(name, piece, depth);
            if made.starts_with("{{") && text::joins(&out) {
                // In JSON a blank changes nothing.
                out.push(' ');
            }
            out.push_str(&made);
            rest = after.get(end + 1..).unwrap_or_default();
        }
        out.push_str(&self.cx.vault.literal("secret", rest));
        match self.left.checked_sub(out.len()) {
            Some(left) => self.left = left,
            None => {
                let why =
                    format!("the variables of the test plan make more than {} MiB of text", TEXT_BYTES >> 20);
                self.cx.ledger.refused(piece, why, "a data set");
                self.left = 0;
                return String::new();
            }
        }
        out
    }

    fn variable(&mut self, name: &str, piece: Piece, depth: usize) -> String {
        if let Some(function) = name.strip_prefix("__") {
            let (function, arguments) = function.split_once('(').unwrap_or((function, ""));
            let arguments: Vec<&str> = arguments.trim_end_matches(')').split(',').map(str::trim).collect();
            let placeholder = |name: &str| text::placeholder(name);
            return match (function, &arguments[..]) {
                ("UUID", _) => placeholder("uuid"),
                ("time", [""]) => placeholder("now:ms"),
                ("threadNum", _) => placeholder("user"),
                ("counter", _) => placeholder("counter"),
                ("Random", [low, high, ..]) if low.parse::<i64>().is_ok() && high.parse::<i64>().is_ok() => {
                    placeholder(&format!("random:{low}:{high}"))
                }
                ("P" | "property" | "env", [name, rest @ ..]) => {
                    let default = rest.last().copied().unwrap_or_default();
                    if default.is_empty() { self.cx.vault.variable(name) } else { text::literal(default) }
                }
                _ => {
                    self.cx.ledger.refused(
                        piece,
                        format!("the function `__{function}` is not one of plans"),
                        "`{{uuid}}`, `{{random:1:9}}`, `{{now}}`, a data set, or `exec:`",
                    );
                    String::new()
                }
            };
        }
        if let Some(column) = self.columns.get(name) {
            return text::placeholder(column);
        }
        match self.variables.get(name).cloned() {
            Some(value)
                if depth < DEPTH
                    && crate::plan::vault::is_secret(name)
                    && !value.contains("${")
                    && !value.is_empty() =>
            {
                self.cx.vault.hide(name, &value)
            }
            Some(value) if depth < DEPTH => self.text_at(&value, piece, depth + 1),
            _ if self.kept.contains(&text::name(name)) => text::placeholder(&text::name(name)),
            _ => self.cx.vault.variable(name),
        }
    }

    /// The names that extractors keep anywhere in the test plan.
    pub(super) fn collect_kept(element: &Element, kept: &mut BTreeSet<String>) {
        for child in &element.children {
            if let Ok(keeps) = extractor(child) {
                kept.extend(keeps.into_iter().map(|keep| keep.name));
            }
            Self::collect_kept(child, kept);
        }
    }
}

/// Where the `}` is that closes a variable.
fn end_of(text: &str) -> Option<usize> {
    let mut open = 0usize;
    for (at, c) in text.char_indices().take(500) {
        match c {
            '{' => open += 1,
            '}' if open == 0 => return Some(at),
            '}' => open -= 1,
            _ => {}
        }
    }
    None
}

/// What an extractor keeps.
pub(super) fn extractor(element: &Element) -> Result<Vec<Keep>, String> {
    if !matches!(&*property(element, "Sample.scope"), "" | "parent" | "all") {
        return Err("it reads a variable or a part of the page, and not the answer".to_owned());
    }
    match &*element.name {
        "RegexExtractor" => {
            let (name, pattern) =
                (property(element, "RegexExtractor.refname"), property(element, "RegexExtractor.regex"));
            let template = property(element, "RegexExtractor.template");
            let group: usize = template.trim_matches('$').parse().unwrap_or(1);
            let field = property(element, "RegexExtractor.useHeaders");
            if !matches!(&*field, "" | "false") {
                return Err("a regular expression over header fields is not one of plans".to_owned());
            }
            let compiled = Regex::new(&pattern)
                .map_err(|_| "its regular expression is not one of linear time".to_owned())?;
            if group != 1 || compiled.captures_len() < 2 {
                return Err("it takes another group than the first".to_owned());
            }
            Ok(vec![keep(
                &name,
                format!(
                    "body~{pattern}{}",
                    pick(
                        &property(element, "RegexExtractor.match_number"),
                        &property(element, "RegexExtractor.default")
                    )?
                ),
            )])
        }
        "BoundaryExtractor" => {
            let (left, right) = (
                property(element, "BoundaryExtractor.lboundary"),
                property(element, "BoundaryExtractor.rboundary"),
            );
            let name = property(element, "BoundaryExtractor.refname");
            if left.is_empty() || right.is_empty() {
                return Err("one of its boundaries is empty".to_owned());
            }
            let pattern = format!("{}(.*?){}", regex::escape(&left), regex::escape(&right));
            Ok(vec![keep(
                &name,
                format!(
                    "body~{pattern}{}",
                    pick(
                        &property(element, "BoundaryExtractor.match_number"),
                        &property(element, "BoundaryExtractor.default")
                    )?
                ),
            )])
        }
        "JSONPostProcessor" => {
            let list = |name: &str| {
                property(element, name).split(';').map(|part| part.trim().to_owned()).collect::<Vec<_>>()
            };
            let (names, paths) =
                (list("JSONPostProcessor.referenceNames"), list("JSONPostProcessor.jsonPathExprs"));
            let (numbers, defaults) =
                (list("JSONPostProcessor.match_numbers"), list("JSONPostProcessor.defaultValues"));
            if names.len() != paths.len() {
                return Err("it has another number of names than of paths".to_owned());
            }
            let mut all = Vec::new();
            for (at, (name, path)) in names.iter().zip(&paths).enumerate() {
                if !is_path(path) {
                    return Err(format!(
                        "the path `{}` is not one of plans",
                        path.chars().take(60).collect::<String>()
                    ));
                }
                let empty = String::new();
                let number = numbers.get(at).unwrap_or(&empty);
                let is_plural = path.contains('*') || path.contains("..");
                let pick = match pick(number, defaults.get(at).unwrap_or(&empty))? {
                    pick if pick.is_empty() && is_plural => "|first".to_owned(),
                    pick => pick,
                };
                all.push(keep(name, format!("json:{path}{pick}")));
            }
            Ok(all)
        }
        _ => Err("no extractor".to_owned()),
    }
}

/// The filters for the number of a match, and for a default.
fn pick(number: &str, default: &str) -> Result<String, String> {
    let picked = match number {
        "" | "1" => "",
        "0" => "|random",
        _ => return Err(format!("the match number {number} is neither the first nor a random one")),
    };
    let default: String = default.chars().filter(|c| !c.is_control() && !"|{}".contains(*c)).collect();
    Ok(if default.is_empty() { picked.to_owned() } else { format!("{picked}|default:{default}") })
}

/// Whether a path is one that plans have: names, positions, `*` and `..`.
fn is_path(path: &str) -> bool {
    path.starts_with('$') && !path.contains(['?', '(', '@', ':', '|']) && path.len() <= 500
}

/// Checks of an assertion.
pub(super) fn assertion(element: &Element) -> Result<Vec<String>, String> {
    if !matches!(&*property(element, "Assertion.scope"), "" | "parent" | "all") {
        return Err("it looks at a variable, and not at the answer".to_owned());
    }
    match &*element.name {
        "DurationAssertion" => {
            let ms = property(element, "DurationAssertion.duration").parse::<u64>().ok().filter(|ms| *ms > 0);
            ms.map(|ms| vec![format!("p-max<{ms}ms")])
                .ok_or_else(|| "its duration is not a number that is known".to_owned())
        }
        "JSONPathAssertion" => {
            let path = property(element, "JSON_PATH");
            let value = property(element, "EXPECTED_VALUE");
            let is = |name: &str| property(element, name) == "true";
            if !is_path(&path)
                || is("INVERT")
                || is("EXPECT_NULL")
                || is("JSONVALIDATION") && is("ISREGEX")
                || value.contains("${")
            {
                return Err("this assertion about JSON is not one of plans".to_owned());
            }
            Ok(vec![match is("JSONVALIDATION") {
                true => format!("json:{path}={value}"),
                false => format!("json:{path}"),
            }])
        }
        "ResponseAssertion" => {
            let kind = property(element, "Assertion.test_type").parse::<u32>().unwrap_or(0);
            let list = element
                .children
                .iter()
                .find(|c| c.attribute("name").is_some_and(|n| n.ends_with("test_strings")));
            let texts: Vec<String> = list
                .map(|l| l.children.as_slice())
                .unwrap_or_default()
                .iter()
                .map(|c| c.text.trim().to_owned())
                .collect();
            if kind & 4 != 0
                || kind & 32 != 0 && texts.len() > 1
                || texts.is_empty()
                || texts.iter().any(|text| text.contains("${"))
            {
                return Err(
                    "an assertion that something is not there, or that depends on a variable".to_owned()
                );
            }
            let is_plain = |text: &String| !text.contains(['\\', '*', '+', '?', '[', '(', '^', '$', '|']);
            match &*property(element, "Assertion.test_field") {
                "Assertion.response_code"
                    if texts.iter().all(|t| t.parse::<u16>().is_ok_and(|s| (100..600).contains(&s))) =>
                {
                    Ok(vec![format!("status={}", texts.join(","))])
                }
                // 16 is a part as it is, 2 a regular expression.
                "Assertion.response_data"
                    if kind & 16 != 0 || kind & 2 != 0 && texts.iter().all(is_plain) =>
                {
                    Ok(texts.iter().map(|text| format!("body~{text}")).collect())
                }
                field => Err(format!(
                    "an assertion about {} of this kind is not one of plans",
                    field.trim_start_matches("Assertion.")
                )),
            }
        }
        _ => Err("no assertion".to_owned()),
    }
}

/// A value in a URL; placeholders stay.
pub(super) fn url(value: &str) -> String {
    text::map_literals(value, text::percent_encoded)
}

/// Path and query, or a value that is encoded already; values stay as they are, as in JMeter.
pub(super) fn url_path(value: &str) -> String {
    let mut out = String::new();
    for span in text::spans(value) {
        match span {
            Span::Literal(own) => out.push_str(&text::url_literal(&own)),
            Span::Placeholder(inner) => out.push_str(&text::placeholder(&raw(inner))),
        }
    }
    out
}

/// A placeholder whose value a URL takes as it is.
fn raw(inner: &str) -> String {
    let is_made_up =
        ["uuid", "user", "iteration", "index", "counter"].contains(&inner) || inner.contains(':');
    if is_made_up { inner.to_owned() } else { format!("{inner}|raw") }
}
