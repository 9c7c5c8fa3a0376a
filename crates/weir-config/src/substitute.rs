//! Fills in `${VAR}`, `${VAR:-default}`, `${VAR:?message}` and `${file:PATH}` in the scalars of a tree; `$$` is a dollar
//! sign. Keys stay unchanged.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::diagnostic::{Diagnostic, Diagnostics};
use super::node::{Node, Value};

/// Largest file that may supply a value.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Fills in variables everywhere below `node`.
pub(super) fn substitute(
    node: &mut Node,
    variables: &dyn Fn(&str) -> Option<String>,
    files: &mut Vec<PathBuf>,
    diagnostics: &mut Diagnostics,
) {
    let asked = &RefCell::default();
    fill_below(
        node,
        &mut Filler { variables, files, diagnostics, path: String::new(), reach: Reach::Disk, asked },
    );
}

/// Like [`substitute`], and returns every variable that had a value: its name, or `file:PATH`, and the value.
/// Without `disk`, files are variables too, and none is read.
pub(super) fn substitute_recorded(
    node: &mut Node,
    variables: &dyn Fn(&str) -> Option<String>,
    reach: Reach,
    diagnostics: &mut Diagnostics,
) -> Vec<(String, String)> {
    let (asked, files) = (&RefCell::default(), &mut Vec::new());
    fill_below(node, &mut Filler { variables, files, diagnostics, path: String::new(), reach, asked });
    asked.take()
}

/// Where `${file:PATH}` comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The file system.
    Disk,
    /// The variables, by the name `file:PATH`: nothing of this machine is read.
    Variables,
}

/// Whether the text holds a variable: a `${` whose dollar sign is not escaped as `$$`.
pub(super) fn variable_in(text: &str) -> bool {
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        let tail = rest.get(dollar + 1..).unwrap_or_default();
        if tail.starts_with('{') {
            return true;
        }
        rest = tail.strip_prefix('$').unwrap_or(tail);
    }
    false
}

/// The source of values, and the destinations of mistakes and files read.
struct Filler<'a> {
    variables: &'a dyn Fn(&str) -> Option<String>,
    files: &'a mut Vec<PathBuf>,
    diagnostics: &'a mut Diagnostics,
    path: String,
    reach: Reach,
    /// The variables that had a value.
    asked: &'a RefCell<Vec<(String, String)>>,
}

/// The parser bounds the depth.
fn fill_below(node: &mut Node, filler: &mut Filler<'_>) {
    let length = filler.path.len();
    match &mut node.value {
        Value::Seq(elements) => {
            for (index, element) in elements.iter_mut().enumerate() {
                // Writing to a string cannot fail.
                let _ = write!(filler.path, "[{index}]");
                fill_below(element, filler);
                filler.path.truncate(length);
            }
        }
        Value::Map(entries) => {
            for (key, value) in entries {
                if length > 0 {
                    filler.path.push('.');
                }
                filler.path.push_str(&key.text);
                fill_below(value, filler);
                filler.path.truncate(length);
            }
        }
        Value::Str(text) if text.contains('$') => match filler.fill(text, node.at.file.parent()) {
            Ok(filled) => {
                node.substituted = filled.substituted;
                if filled.substituted {
                    node.set_outside(filled.outside, filled.written, filled.empty);
                }
                // If the value is empty, the written text is the only sign of the variable behind it.
                let raw = if filled.text.is_empty() { node.raw().to_owned() } else { filled.text.clone() };
                node.value = match Value::plain(&filled.text) {
                    // `workers: ${N}` is a number, but a text that reads `null` stays text.
                    typed @ (Value::Bool(_) | Value::Int(_) | Value::Float(_)) if filled.whole => typed,
                    _ => Value::Str(filled.text.into()),
                };
                node.set_raw(&raw);
            }
            Err(diagnostic) => {
                let mut diagnostic = diagnostic.at(node.at.clone());
                filler.path.clone_into(&mut diagnostic.path);
                filler.diagnostics.push(diagnostic);
                node.broken = true;
            }
        },
        _ => {}
    }
}

struct Filled {
    text: String,
    /// Whether a part came from the environment or a file.
    substituted: bool,
    /// The parts that came from there.
    outside: Vec<String>,
    /// The text with `${VAR}` in place of those parts.
    written: String,
    /// The first variable that is empty.
    empty: Option<String>,
    /// Whether the scalar is exactly one variable.
    whole: bool,
}

impl Filler<'_> {
    fn fill(&mut self, text: &str, folder: Option<&Path>) -> Result<Filled, Box<Diagnostic>> {
        let mut out = String::new();
        let mut substituted = false;
        let mut outside = Vec::new();
        let (mut written, mut empty) = (String::new(), None);
        let mut whole = false;
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            out.push_str(&rest[..dollar]);
            written.push_str(&rest[..dollar]);
            let tail = &rest[dollar + 1..];
            if let Some(tail) = tail.strip_prefix('$') {
                out.push('$');
                written.push('$');
                rest = tail;
            } else if let Some(inner) = tail.strip_prefix('{') {
                let Some((name, after)) = inner.split_once('}') else {
                    let unclosed = Diagnostic::error("bad-variable", "`${` without a closing `}`");
                    return Err(Box::new(unclosed.hint("write $$ for a dollar sign")));
                };
                whole = dollar == 0 && rest.len() == text.len() && after.is_empty();
                substituted = true;
                let value = self.value_of(name, folder)?;
                out.push_str(&value);
                let variable = format!("${{{}}}", split_name(name).0);
                written.push_str(&variable);
                if value.is_empty() {
                    empty.get_or_insert(variable);
                } else {
                    outside.push(value);
                }
                rest = after;
            } else {
                out.push('$');
                written.push('$');
                rest = tail;
            }
        }
        out.push_str(rest);
        written.push_str(rest);
        Ok(Filled { text: out, substituted, outside, written, empty, whole })
    }

    fn value_of(&mut self, name: &str, folder: Option<&Path>) -> Result<String, Box<Diagnostic>> {
        if self.reach == Reach::Variables && name.starts_with("file:") {
            return (self.variables)(name).ok_or_else(|| {
                Box::new(Diagnostic::error("file-unreadable", format!("`${{{name}}}` was not sent along")))
            });
        }
        if let Some(path) = name.strip_prefix("file:") {
            let path = folder.map_or_else(|| PathBuf::from(path), |folder| folder.join(path));
            let content = read_value(&path);
            self.files.push(path.clone());
            if let Ok(content) = &content {
                self.asked.borrow_mut().push((name.to_owned(), content.clone()));
            }
            return content.map_err(|error| {
                Box::new(Diagnostic::error(
                    "file-unreadable",
                    format!("cannot read {}: {error}", path.display()),
                ))
            });
        }
        let (name, absent) = split_name(name);
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !is_name {
            let message = format!(
                "`${{{name}}}` is not a variable; expected ${{VAR}}, ${{VAR:-default}}, \
                 ${{VAR:?message}} or ${{file:PATH}}"
            );
            let wrong = Diagnostic::error("bad-variable", message);
            return Err(Box::new(wrong.hint("write $$ for a dollar sign")));
        }
        // As in a shell, `:-` and `:?` treat an empty variable like one that is not set.
        let value = (self.variables)(name);
        if let Some(value) = &value {
            self.asked.borrow_mut().push((name.to_owned(), value.clone()));
        }
        match (value, absent) {
            (Some(value), Absent::Mistake) => Ok(value),
            (Some(value), _) if !value.is_empty() => Ok(value),
            (_, Absent::Default(default)) => Ok(default.to_owned()),
            (value, Absent::Message(message)) => {
                let state = if value.is_some() { "empty" } else { "not set" };
                let message = if message.is_empty() { "it is required" } else { message };
                let missing = format!("the variable {name} is {state}: {message}");
                Err(Box::new(Diagnostic::error("missing-variable", missing).hint(format!("set {name}"))))
            }
            (None, Absent::Mistake) => {
                let unset = Diagnostic::error("missing-variable", format!("the variable {name} is not set"));
                Err(Box::new(unset.hint(format!("set it, or write ${{{name}:-default}}"))))
            }
        }
    }
}

/// What happens if a variable is not set.
enum Absent<'t> {
    /// `${VAR:-default}`
    Default(&'t str),
    /// `${VAR:?message}`
    Message(&'t str),
    /// `${VAR}`
    Mistake,
}

/// The name of a variable, and what follows it between the braces.
fn split_name(text: &str) -> (&str, Absent<'_>) {
    let Some((name, after)) = text.split_once(':') else { return (text, Absent::Mistake) };
    match (after.strip_prefix('-'), after.strip_prefix('?')) {
        (Some(default), _) => (name, Absent::Default(default)),
        (_, Some(message)) => (name, Absent::Message(message)),
        _ => (text, Absent::Mistake),
    }
}

/// The value of a text in a file of this folder, if it uses no environment variable. `${file:PATH}` gives the content
/// of that file.
///
/// # Errors
/// If the file cannot be read.
pub fn value_of(text: &str, folder: &Path) -> std::io::Result<Option<String>> {
    let file = text.strip_prefix("${file:").and_then(|rest| rest.strip_suffix('}'));
    match file {
        Some(file) if !file.contains(['}', '$']) => read_value(&folder.join(file)).map(Some),
        _ if variable_in(text) => Ok(None),
        _ => Ok(Some(text.replace("$$", "$"))),
    }
}

/// Reads the value of a `${file:PATH}`.
fn read_value(path: &Path) -> std::io::Result<String> {
    let mut content = String::new();
    let read = std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(&mut content)?;
    if read as u64 > MAX_FILE_BYTES {
        return Err(std::io::Error::other("it is larger than 1 MiB"));
    }
    // Some editors begin every file with a byte order mark; it is not part of a key.
    let content = content.strip_prefix('\u{feff}').unwrap_or(&content);
    let trimmed = content.strip_suffix('\n').map(|c| c.strip_suffix('\r').unwrap_or(c));
    Ok(trimmed.unwrap_or(content).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn filled(text: &str) -> (Node, Diagnostics) {
        let mut diagnostics = Diagnostics::default();
        let mut tree = parse(text, Path::new("t"), &mut diagnostics).unwrap();
        let variables = |name: &str| match name {
            "N" => Some("4".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        substitute(&mut tree, &variables, &mut Vec::new(), &mut diagnostics);
        (tree, diagnostics)
    }

    #[test]
    fn variables_are_filled_in() {
        for (text, value) in [
            ("a: ${N}", Value::Int(4)),
            ("a: x${N}y", Value::Str("x4y".into())),
            ("a: ${NO:-7}", Value::Int(7)),
            ("a: ${EMPTY:-true}", Value::Bool(true)),
            ("a: \"${EMPTY}\"", Value::Str("".into())),
            ("a: ${N:?say how many}", Value::Int(4)),
            ("a: ${NO:-a:?b}", Value::Str("a:?b".into())),
            ("a: $$5 and $6", Value::Str("$5 and $6".into())),
            ("a: $${N}", Value::Str("${N}".into())),
            ("a: ~^/x$", Value::Str("~^/x$".into())),
        ] {
            let (tree, diagnostics) = filled(text);
            assert!(diagnostics.is_empty(), "{}", diagnostics.to_text());
            assert_eq!(tree.get("a").map(|n| &n.value), Some(&value), "{text}");
        }
    }

    #[test]
    fn what_is_missing_is_told() {
        for text in ["a: ${NO}", "a: ${N", "a: ${a-b}", "a: ${file:/no/such}"] {
            let (tree, diagnostics) = filled(text);
            assert_eq!(diagnostics.errors(), 1, "{text}");
            assert!(tree.get("a").is_some_and(|n| n.broken), "{text}");
        }
        for (text, told) in [
            ("a: \"${NO:?say: how many}\"", "the variable NO is not set: say: how many"),
            ("a: ${EMPTY:?say how many}", "the variable EMPTY is empty: say how many"),
            ("a: ${NO:?}", "the variable NO is not set: it is required"),
            ("a: ${NO:=7}", "${VAR:?message}"),
        ] {
            let (_, diagnostics) = filled(text);
            assert!(diagnostics.to_text().contains(told), "{text}: {}", diagnostics.to_text());
        }
    }
}
