//! Hides the secrets in a config's text, so that someone who may not read them can edit it; and restores them.
//!
//! The secrets are numbered in order: `"***1"`. A mask restores its secret only below the same keys, so nobody can
//! move a secret to where it is shown; to move it, write it again. Numbers belong to one text, identified by its
//! digest.

use std::ops::Range;
use std::path::Path;
use weir_config::managed;
use weir_config::mask::MASK;
use weir_config::node::{Place, Value};
use weir_config::parse::parse;
use weir_config::secrecy::{mark_secrets, masked};
use weir_config::{Diagnostics, Node, digest, value_of};

/// A text without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Masked {
    pub(crate) text: String,
    pub(crate) hidden: Vec<Hidden>,
}

/// A secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hidden {
    /// The keys that lead to it, without list positions.
    path: String,
    /// The mask in its place.
    mask: String,
    /// Its source text.
    source: String,
}

/// A hidden scalar before it is numbered.
struct Found<'n> {
    path: String,
    node: &'n Node,
    shown: String,
}

/// Hides the secrets of a text. Invalid YAML is hidden whole.
pub(crate) fn mask(text: &str, path: &Path) -> Masked {
    let nothing = || Masked { text: text.to_owned(), hidden: Vec::new() };
    if text.is_empty() {
        return nothing();
    }
    let Some(tree) = marked(text, path) else { return Masked { text: String::new(), hidden: Vec::new() } };
    let mut found = Vec::new();
    walk("", &tree, &mut found);
    if found.is_empty() {
        return nothing();
    }
    let masks: Vec<String> =
        (1..).zip(&found).map(|(n, found)| found.shown.replace(MASK, &format!("{MASK}{n}"))).collect();
    let lines = Lines::of(text);
    let spans: Option<Vec<Range<usize>>> = found.iter().map(|found| lines.span(found.node)).collect();
    let expected = with_masks(&tree, &found, &masks);
    if let Some(spans) = spans {
        let quoted = |mask: &String| format!("\"{mask}\"");
        let shown = replace(text, spans.iter().cloned().zip(masks.iter().map(quoted)));
        // Parse the result again. If it hides anything but the secrets, show nothing.
        if parse(&shown, path, &mut Diagnostics::default()).as_ref() == Some(&expected) {
            let source = |span: &Range<usize>| text.get(span.clone()).unwrap_or_default().to_owned();
            let hidden = found.iter().zip(&masks).zip(&spans);
            let hidden = hidden.map(|((found, mask), span)| Hidden {
                path: found.path.clone(),
                mask: mask.clone(),
                source: source(span),
            });
            return Masked { text: shown, hidden: hidden.collect() };
        }
    }
    // The text cannot be split, for example because a value spans several lines. Show the tree as we would write it.
    let hidden = found.iter().zip(&masks).map(|(found, mask)| Hidden {
        path: found.path.clone(),
        mask: mask.clone(),
        source: written(found.node),
    });
    let hidden = hidden.collect();
    let text = managed::write(expected, path.to_owned()).map(|managed| managed.text.text.to_string());
    Masked { text: text.unwrap_or_default(), hidden }
}

/// A text for readers without write access: without secrets, and without comments, which may contain old ones.
/// Invalid YAML is hidden whole.
pub(crate) fn for_readers(text: &str, path: &Path) -> Masked {
    let masked = mask(text, path);
    let Some(tree) = parse(&masked.text, path, &mut Diagnostics::default()) else {
        return Masked { text: String::new(), ..masked };
    };
    let text = managed::write(tree, path.to_owned()).map(|managed| managed.text.text.to_string());
    Masked { text: text.unwrap_or_default(), ..masked }
}

/// The text of a config with `admin.token` replaced by its hash, and the token. A node that runs it recognizes its
/// callers but cannot act as one. `None` if there is no token, if it is already a hash, or if it is a variable, which
/// each node has itself.
///
/// # Errors
/// The token cannot be separated from the surrounding text, or cannot be read.
pub(crate) fn hash_token(text: &str, path: &Path) -> Result<Option<(String, String)>, String> {
    let Some(tree) = parse(text, path, &mut Diagnostics::default()) else { return Ok(None) };
    let Some(node) = tree.find("admin.token") else { return Ok(None) };
    let Some(written) = node.as_text().filter(|written| !written.starts_with("sha256:")) else {
        return Ok(None);
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let token = value_of(written, folder).map_err(|e| format!("admin.token cannot be read: {e}"))?;
    let Some(token) = token else { return Ok(None) };
    let hash = format!("sha256:{}", digest::of_token(&token));
    let spot = Lines::of(text).span(node);
    let hashed = spot.map(|span| replace(text, std::iter::once((span, format!("\"{hash}\"")))));
    let is_there = |text: &String| {
        let tree = parse(text, path, &mut Diagnostics::default());
        tree.is_some_and(|tree| tree.find("admin.token").and_then(Node::as_text) == Some(&hash))
    };
    let hashed = hashed.filter(is_there).ok_or_else(|| {
        format!("{}: a bundle holds no token, so write `admin.token` on one line", path.display())
    })?;
    Ok(Some((hashed, written.to_owned())))
}

/// Whether a text is a mask with a number, or a URL with one.
pub(crate) fn is_mask(text: &str) -> bool {
    let numbered = |text: &str| {
        text.strip_prefix(MASK).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let user = text.split_once("://").is_some_and(|(_, rest)| numbered(rest) && rest.contains('@'));
    numbered(text) || user || text.split_once('?').is_some_and(|(_, asked)| numbered(asked))
}

// === impl Masked ===

impl Masked {
    /// An edited text with its secrets restored where their masks are still below the same keys.
    pub(crate) fn unmask(&self, edited: &str, path: &Path) -> String {
        if self.hidden.is_empty() {
            return edited.to_owned();
        }
        let Some(tree) = parse(edited, path, &mut Diagnostics::default()) else { return edited.to_owned() };
        let lines = Lines::of(edited);
        let mut back = Vec::new();
        scalars("", &tree, &mut |path, node| {
            let is = |hidden: &&Hidden| matches!(&node.value, Value::Str(text) if *text == hidden.mask);
            let known = self.hidden.iter().find(|hidden| is(hidden) && hidden.path == path);
            if let Some((hidden, span)) = known.zip(lines.span(node)) {
                back.push((span, hidden.source.clone()));
            }
        });
        replace(edited, back.into_iter())
    }
}

fn marked(text: &str, path: &Path) -> Option<Node> {
    let mut tree = parse(text, path, &mut Diagnostics::default())?;
    mark_secrets(&mut tree);
    Some(tree)
}

/// Finds what to hide, in the order of the text.
fn walk<'n>(path: &str, node: &'n Node, found: &mut Vec<Found<'n>>) {
    match &node.value {
        Value::Map(entries) => {
            for (name, value) in entries {
                walk(&below(path, &name.text), value, found);
            }
        }
        Value::Seq(elements) => elements.iter().for_each(|element| walk(path, element, found)),
        Value::Null => {}
        _ => {
            if let Some(shown) = masked(node) {
                found.push(Found { path: path.to_owned(), node, shown: shown.into_owned() });
            }
        }
    }
}

fn scalars(path: &str, node: &Node, each: &mut impl FnMut(&str, &Node)) {
    match &node.value {
        Value::Map(entries) => {
            for (name, value) in entries {
                scalars(&below(path, &name.text), value, each);
            }
        }
        Value::Seq(elements) => elements.iter().for_each(|element| scalars(path, element, each)),
        _ => each(path, node),
    }
}

/// A path that is unique to its keys: names may contain dots.
fn below(path: &str, name: &str) -> String {
    format!("{path}\u{0}{name}")
}

/// The tree with masks in place of the secrets.
fn with_masks(tree: &Node, found: &[Found<'_>], masks: &[String]) -> Node {
    let mut copy = tree.clone();
    let mut left: Vec<(Place, &String)> =
        found.iter().zip(masks).map(|(found, mask)| (found.node.at.clone(), mask)).collect();
    left.reverse();
    put(&mut copy, &mut left);
    copy
}

fn put(node: &mut Node, left: &mut Vec<(Place, &String)>) {
    match &mut node.value {
        Value::Map(entries) => entries.iter_mut().for_each(|(_, value)| put(value, left)),
        Value::Seq(elements) => elements.iter_mut().for_each(|element| put(element, left)),
        _ => {
            if let Some((_, mask)) = left.pop_if(|(at, _)| *at == node.at) {
                *node = Node::new(node.at.clone(), Value::Str(mask.as_str().into()), mask);
            }
        }
    }
}

/// A scalar as JSON, which YAML reads as the same.
fn written(node: &Node) -> String {
    match &node.value {
        Value::Str(text) => serde_json::Value::from(text.as_str()).to_string(),
        _ => node.raw().to_owned(),
    }
}

/// Replaces pieces of the text, which are given in its order.
fn replace(text: &str, pieces: impl Iterator<Item = (Range<usize>, String)>) -> String {
    let (mut out, mut from) = (String::with_capacity(text.len()), 0);
    for (span, piece) in pieces {
        out.push_str(text.get(from..span.start).unwrap_or_default());
        out.push_str(&piece);
        from = span.end;
    }
    out.push_str(text.get(from..).unwrap_or_default());
    out
}

/// Where the lines of a text begin.
struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    fn of(text: &'t str) -> Self {
        let skipped = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let mut starts = vec![skipped];
        starts.extend(text.match_indices('\n').map(|(at, _)| at + 1));
        Self { text, starts }
    }

    /// The range of a single-line scalar, including its quotes.
    fn span(&self, node: &Node) -> Option<Range<usize>> {
        let line = usize::try_from(node.at.line).ok()?.checked_sub(1)?;
        let column = usize::try_from(node.at.column).ok()?.checked_sub(1)?;
        let rest = self.text.get(*self.starts.get(line)?..)?;
        let (offset, _) = rest.char_indices().nth(column)?;
        let start = *self.starts.get(line)? + offset;
        let rest = self.text.get(start..)?;
        let length = match rest.chars().next()? {
            '"' => quoted(rest, '"', '\\')?,
            '\'' => quoted(rest, '\'', '\'')?,
            _ => {
                let raw = node.raw();
                (!raw.is_empty() && !raw.contains('\n') && rest.starts_with(raw)).then_some(raw.len())?
            }
        };
        Some(start..start + length)
    }
}

/// The length of a quoted single-line scalar. In single quotes a quote is doubled; in double quotes a backslash
/// precedes it.
fn quoted(text: &str, quote: char, escape: char) -> Option<usize> {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\n' => return None,
            c if c == escape && (escape == '\\' || chars.peek().is_some_and(|(_, next)| *next == quote)) => {
                chars.next();
            }
            c if c == quote => return Some(at + c.len_utf8()),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "managed.yaml";

    fn hide(text: &str) -> Masked {
        mask(text, Path::new(PATH))
    }

    #[test]
    fn secrets_are_hidden_and_come_back() {
        for (text, shown) in [
            ("", ""),
            (
                "# a comment\nroutes:\n  a: { upstream: up } # another\n",
                "# a comment\nroutes:\n  a: { upstream: up } # another\n",
            ),
            (
                "consumers:\n  a: # who\n    key_auth: [ hunter2, 'it''s', \"q\\\"uo\", 7, \"${KEY}\" ]\n    plan: gold\n",
                "consumers:\n  a: # who\n    key_auth: [ \"***1\", \"***2\", \"***3\", \"***4\", \"${KEY}\" ]\n    plan: gold\n",
            ),
            (
                "stores: { s: { redis: \"redis://user:hunter2@h/0\" } } # ü\r\nroutes: {}\r\n",
                "stores: { s: { redis: \"redis://***1@h/0\" } } # ü\r\nroutes: {}\r\n",
            ),
            (
                "\u{feff}consumers: { ü: { key_auth: [ geheim ] } }\n",
                "\u{feff}consumers: { ü: { key_auth: [ \"***1\" ] } }\n",
            ),
        ] {
            let masked = hide(text);
            assert_eq!(masked.text, shown);
            assert_eq!(masked.unmask(&masked.text, Path::new(PATH)), text);
        }
    }

    #[test]
    fn what_cannot_be_taken_apart_is_hidden_nevertheless() {
        for text in [
            "consumers:\n  a:\n    key_auth:\n      - |\n        hunter2\n        hunter2\n",
            "consumers:\n  a:\n    key_auth:\n      - hunter2\n        hunter2\n",
            "consumers: { a: { key_auth: [ &x hunter2 ] } }\n",
            "consumers: { a: { key_auth: [ \"hunter2\n  hunter2\" ] } }\n",
        ] {
            let masked = hide(text);
            assert!(
                !masked.text.contains("hunter2") && masked.text.contains("***1"),
                "{text}: {}",
                masked.text
            );
            let back = masked.unmask(&masked.text, Path::new(PATH));
            let tree = |text: &str| parse(text, Path::new(PATH), &mut Diagnostics::default()).unwrap();
            assert_eq!(tree(&back), tree(text), "{back}");
        }
        assert_eq!(hide("consumers: { a: hunter2").text, "");
    }

    #[test]
    fn a_token_is_hashed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("t"), "secret\n").unwrap();
        let hash = "\"sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\"";
        let hashed = |text: &str| hash_token(text, &folder.path().join("weir.yaml"));
        for (written, token) in [("secret", "secret"), ("'secret'", "secret"), ("\"${file:t}\"", "${file:t}")]
        {
            let text = |token: &str| format!("# a\nadmin:\n  token: {token} # b\nroutes: {{}}\n");
            assert_eq!(hashed(&text(written)), Ok(Some((text(hash), token.to_owned()))), "{written}");
            assert_eq!(hashed(&text(hash)), Ok(None));
        }
        for text in ["routes: {}\n", "admin: { token: \"${T}\" }\n", "admin: { token: \"a${T}\" }\n", "a: ["]
        {
            assert_eq!(hashed(text), Ok(None), "{text}");
        }
        assert!(hashed("admin:\n  token: |-\n    secret\n").unwrap_err().contains("on one line"));
        assert!(hashed("admin: { token: \"${file:gone}\" }\n").unwrap_err().contains("cannot be read"));
    }

    #[test]
    fn a_mask_is_worth_nothing_elsewhere() {
        let masked =
            hide("consumers: { a: { key_auth: [ one, two ] } }\nroutes: { r: { respond: { body: x } } }\n");
        let back = |text: &str| masked.unmask(text, Path::new(PATH));
        // The first key is removed, the second keeps its secret.
        assert_eq!(
            back("consumers: { a: { key_auth: [ \"***2\" ] } }\n"),
            "consumers: { a: { key_auth: [ two ] } }\n"
        );
        for text in [
            "consumers: { b: { key_auth: [ \"***1\" ] } }\n",
            "routes: { r: { respond: { body: \"***1\" } } }\n",
            "consumers: { a: { basic_auth: [ \"***1\" ] } }\n",
            "consumers: { a: { key_auth: [ \"***3\" ] } }\n",
            "consumers: { a: [",
        ] {
            assert_eq!(back(text), text);
        }
        assert!(
            is_mask("***1")
                && is_mask("redis://***12@h")
                && !is_mask("*** and more")
                && !is_mask("http://a/***1")
        );
    }
}
