//! Several files, one tree: resolves `include` and merges trees.

use super::diagnostic::{Diagnostic, Diagnostics};
use super::node::{Key, NAMED, Node, Place, Value};
use super::parse::parse_shared;
use super::spelling::nearest_name;
use super::texts::Text;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum number of files that `include` may add.
const MAX_INCLUDES: usize = 1000;

/// Reads the files that `include` names, and merges their named entries into `tree`.
pub(super) fn include(
    tree: &mut Node,
    files: &mut Vec<PathBuf>,
    diagnostics: &mut Diagnostics,
    texts: &mut Vec<Text>,
) {
    let Some(list) = tree.get("include").cloned() else { return };
    for (index, pattern) in list.elements().iter().enumerate() {
        let path = format!("include[{index}]");
        let Some(text) = pattern.as_text() else { continue };
        let folder = pattern.at.file.parent().unwrap_or(Path::new(""));
        let found = match expand(&folder.join(text), files) {
            Ok(found) => found,
            Err(message) => {
                diagnostics.push(Diagnostic::error("bad-include", message).on(tree, &path));
                continue;
            }
        };
        if found.is_empty() {
            let message = format!("no file matches `{text}`");
            diagnostics.push(Diagnostic::warning("empty-include", message).on(tree, &path));
        }
        for file in found {
            if files.len() > MAX_INCLUDES {
                let message = format!("more than {MAX_INCLUDES} included files");
                diagnostics.push(Diagnostic::error("bad-include", message).on(tree, &path));
                return;
            }
            files.push(file.clone());
            match Text::read(&file) {
                Ok(text) => {
                    let text = Arc::from(text);
                    if let Some(included) = parse_shared(&text, &file, diagnostics) {
                        merge(tree, included, diagnostics);
                    }
                    texts.push(Text { path: file, text });
                }
                Err(error) => {
                    let message = format!("cannot read {}: {error}", file.display());
                    diagnostics.push(Diagnostic::error("file-unreadable", message).on(tree, &path));
                }
            }
        }
    }
}

/// The files that match a pattern, sorted. `*` matches any part of the last path segment.
fn expand(pattern: &Path, files: &mut Vec<PathBuf>) -> Result<Vec<PathBuf>, String> {
    let folder = pattern.parent().unwrap_or(Path::new(""));
    if folder.to_string_lossy().contains('*') {
        return Err("`*` is only allowed in file names, not in folders".to_owned());
    }
    let Some(name) = pattern.file_name().map(|name| name.to_string_lossy().into_owned()) else {
        return Err(format!("{} names no file", pattern.display()));
    };
    if !name.contains('*') {
        return Ok(vec![pattern.to_owned()]);
    }
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    files.push(folder.to_owned());
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        // A folder that does not exist yet matches nothing; the warning for that is enough.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(format!("cannot read {}: {e}", folder.display())),
    };
    let mut found: Vec<_> = entries
        .filter_map(Result::ok)
        .filter(|entry| {
            let entry_name = entry.file_name();
            let entry_name = entry_name.to_string_lossy();
            // As in a shell, `*` does not match the leading dot of a hidden file.
            matches(&name, &entry_name) && (!entry_name.starts_with('.') || name.starts_with('.'))
        })
        .map(|entry| pattern.with_file_name(entry.file_name()))
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    Ok(found)
}

/// Whether `name` matches a pattern with `*`: the pieces between stars occur in order.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return name.ends_with(piece);
        }
        let Some(at) = name.find(piece) else { return false };
        name = &name[at + piece.len()..];
    }
    true
}

/// Moves the named entries of an included file into the tree.
pub(super) fn merge(tree: &mut Node, included: Node, diagnostics: &mut Diagnostics) {
    let Value::Map(sections) = included.value else {
        let message = format!("{} is not a map; expected named things such as routes", included.kind());
        diagnostics.push(Diagnostic::error("bad-include", message).at(included.at));
        return;
    };
    for (key, section) in sections {
        if !NAMED.contains(&&*key.text) {
            let mut diagnostic = match &*key.text {
                "include" => Diagnostic::error("bad-include", "an included file cannot include others")
                    .hint("name them in the main file"),
                other => {
                    Diagnostic::error("bad-include", format!("`{other}` is not allowed in an included file"))
                        .hint(match nearest_name(other, NAMED.iter().copied()) {
                            Some(near) => format!("did you mean {near}?"),
                            None => "put it into the main file; included files hold named things".to_owned(),
                        })
                }
            };
            diagnostic.path = key.text.to_string();
            diagnostics.push(diagnostic.at(key.at).refusing_key(&key.text));
            continue;
        }
        merge_section(tree, key, section, diagnostics);
    }
}

fn merge_section(tree: &mut Node, key: Key, section: Node, diagnostics: &mut Diagnostics) {
    let Value::Map(sections) = &mut tree.value else { return };
    let Some((_, existing)) = sections.iter_mut().find(|(k, _)| k.text == key.text) else {
        sections.push((key, section));
        return;
    };
    if existing.value == Value::Null {
        *existing = section;
        return;
    }
    let (Value::Map(there), Value::Map(new)) = (&mut existing.value, section.value) else {
        let message = format!("`{}` is not a map of names here", key.text);
        diagnostics.push(Diagnostic::error("bad-include", message).at(key.at));
        return;
    };
    let mut seen: HashMap<Arc<str>, Place> =
        there.iter().map(|(k, _)| (k.text.clone(), k.at.clone())).collect();
    for (name, thing) in new {
        if let Some(first) = seen.get(&name.text) {
            let mut diagnostic =
                Diagnostic::error("duplicate-key", format!("`{}` is written twice", name.text))
                    .hint(format!("the first is at {first}; keep one"));
            diagnostic.path = format!("{}.{}", key.text, name.text);
            diagnostics.push(diagnostic.at(name.at));
        } else {
            seen.insert(name.text.clone(), name.at.clone());
            there.push((name, thing));
        }
    }
}

/// The tree of several texts: the main file, then the included ones.
pub(super) fn join(written: &[Text], diagnostics: &mut Diagnostics) -> Option<Node> {
    let (main, included) = written.split_first()?;
    let mut tree = parse_shared(&main.text, &main.path, diagnostics)?;
    for text in included {
        if let Some(included) = parse_shared(&text.text, &text.path, diagnostics) {
            merge(&mut tree, included, diagnostics);
        }
    }
    Some(tree)
}

/// Puts a node's own keys over those from its source.
pub(super) fn put_over(tree: &mut Node, own: Node) {
    let (Value::Map(all), Value::Map(own)) = (&mut tree.value, own.value) else { return };
    // A version in the bundle that this binary cannot read must be reported, whatever the node's own file says.
    let unreadable = all.iter().any(|(key, node)| &*key.text == "version" && node.as_text() != Some("1"));
    for (key, value) in own {
        if unreadable && &*key.text == "version" {
            continue;
        }
        match all.iter_mut().find(|(known, _)| known.text == key.text) {
            Some(there) => *there = (key, value),
            None => all.push((key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::tests::tree;

    #[test]
    fn a_node_does_not_hide_the_version_of_a_bundle() {
        for (bundle, own, version) in [
            ("version: 2", "version: 1", "2"),
            ("version: 1", "version: 2", "2"),
            ("log: {}", "version: 1", "1"),
        ] {
            let mut merged = tree(bundle);
            put_over(&mut merged, tree(own));
            assert_eq!(merged.get("version").and_then(Node::as_text), Some(version), "{bundle} {own}");
        }
    }

    #[test]
    fn stars_match() {
        for (pattern, name, fits) in [
            ("*.yaml", "a.yaml", true),
            ("*.yaml", "a.yml", false),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c", false),
            ("*", "x", true),
            ("a", "a", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }
}
