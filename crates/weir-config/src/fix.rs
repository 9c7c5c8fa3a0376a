//! Rewrites deprecated keys in the text of a config's file: what `weir check --fix` writes.
//!
//! Only the keys change, where they stand: comments, order, quotes, line ends and everything else stay. The new text is
//! read again and compared with what was meant, so that a doubtful case (an alias under two settings, say) is left as it
//! is and reported, never guessed.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::deprecated::{DEPRECATED, Deprecated};
use super::diagnostic::Diagnostics;
use super::mask::MASK;
use super::node::{Node, Place, Value};
use super::parse::{Token, parse, tokens};
use super::rename::{rename_of, uses};
use super::secrecy::mark_secrets;
use super::texts::{Text, Texts};

/// What can be rewritten in the files of a config.
#[derive(Clone, Debug, Default)]
pub struct Fixes {
    /// The files with a change.
    pub files: Vec<Fix>,
    /// The keys that stay as they are.
    pub left: Vec<Left>,
}

/// The new text of one file.
#[derive(Clone, Debug)]
pub struct Fix {
    /// The file as given on the command line or by `include`.
    pub path: PathBuf,
    /// Its text when the config was read. Another text on the disk must not be overwritten.
    pub before: Arc<str>,
    /// Its new text.
    pub after: String,
    /// How many keys are rewritten.
    pub keys: usize,
    /// The texts that a diff may show: secrets are masked.
    shown: (String, String),
}

/// A deprecated key that is not rewritten.
#[derive(Clone, Debug)]
pub struct Left {
    /// Where it is.
    pub place: Place,
    /// The key.
    pub what: &'static Deprecated,
    /// Why, and what to do.
    pub why: &'static str,
}

/// Finds what can be rewritten.
pub fn fixes(texts: &Texts) -> Fixes {
    fixes_by(DEPRECATED, texts)
}

fn fixes_by(table: &'static [Deprecated], texts: &Texts) -> Fixes {
    let mut fixes = Fixes::default();
    let (own, foreign) = match &texts.bootstrap {
        Some(bootstrap) => (std::slice::from_ref(bootstrap), texts.written.as_slice()),
        None => (texts.written.as_slice(), &[][..]),
    };
    own.iter().for_each(|text| fixes.add(table, text));
    let bundle = "it comes from the source of this node: fix it there, and publish it again";
    foreign.iter().for_each(|text| fixes.leave(table, text, bundle));
    let managed = "the admin API owns this file: send the entry again, by `weir apply`, with the new name";
    texts.managed.iter().for_each(|text| fixes.leave(table, text, managed));
    fixes
}

/// A replacement of a part of a text.
struct Edit<'a> {
    bytes: Range<usize>,
    text: std::borrow::Cow<'a, str>,
}

// === impl Fixes ===

impl Fixes {
    fn leave(&mut self, table: &'static [Deprecated], text: &Text, why: &'static str) {
        let Some(tree) = parse(&text.text, &text.path, &mut Diagnostics::default()) else { return };
        let places = uses(table, &tree).into_iter().map(|one| (one.at, one.what));
        let once: BTreeMap<Place, _> = places.collect();
        self.left.extend(once.into_iter().map(|(place, what)| Left { place, what, why }));
    }

    fn add(&mut self, table: &'static [Deprecated], text: &Text) {
        let mut known = Diagnostics::default();
        let Some(tree) = parse(&text.text, &text.path, &mut known) else { return };
        let (mut wanted, mut left) = (BTreeMap::new(), BTreeMap::new());
        for one in uses(table, &tree) {
            if one.twice {
                left.insert(one.at, (one.what, "the new name is written, too: remove one of them"));
            } else {
                wanted.insert(one.at, one.what);
            }
        }
        wanted.retain(|place, _| !left.contains_key(place));
        if wanted.is_empty() && left.is_empty() {
            return;
        }
        let body = text.text.strip_prefix('\u{feff}').unwrap_or(&text.text);
        let mark = text.text.len() - body.len();
        let all = tokens(body);
        let by_place: BTreeMap<(u32, u32), &Token> = all.iter().map(|token| (token.at, token)).collect();
        let mut edits = Vec::new();
        for (place, what) in &wanted {
            let found = by_place.get(&(place.line, place.column)).copied();
            // An alias as a key has no token of its own here.
            let quotes = found.and_then(|token| token.quotes);
            let (Some(token), Some(quotes)) = (found, quotes) else {
                left.insert(place.clone(), (*what, "it is written in a form that must be changed by hand"));
                continue;
            };
            let text = format!("{quotes}{}{quotes}", what.successor).into();
            edits.push(Edit { bytes: token.bytes.clone(), text });
        }
        wanted.retain(|place, _| !left.contains_key(place));
        let after = edited(body, &edits);
        let mut meant = tree;
        rename_of(table, &mut meant, &|place| wanted.contains_key(place), &mut Diagnostics::default());
        let mut found = Diagnostics::default();
        let read = after.as_deref().and_then(|after| parse(after, &text.path, &mut found));
        let is_meant = read.as_ref() == Some(&meant) && found.errors() == known.errors();
        match after.filter(|_| is_meant) {
            Some(after) if !edits.is_empty() => {
                let shown = shown(meant, body, &all, &edits);
                self.files.push(Fix {
                    path: text.path.clone(),
                    before: Arc::clone(&text.text),
                    after: format!("{}{after}", &text.text[..mark]),
                    keys: edits.len(),
                    shown,
                });
            }
            Some(_) => {}
            None => {
                let why = "an alias repeats it under another setting: change it by hand";
                left.extend(wanted.into_iter().map(|(place, what)| (place, (what, why))));
            }
        }
        self.left.extend(left.into_iter().map(|(place, (what, why))| Left { place, what, why }));
    }
}

// === impl Fix ===

impl Fix {
    /// The changed lines as a unified diff without context. Secrets are masked.
    pub fn diff(&self) -> String {
        let path = self.path.display();
        let mut out = format!("--- {path}\n+++ {path}\n");
        let (before, after) = (self.shown.0.split_inclusive('\n'), self.shown.1.split_inclusive('\n'));
        let mut hunk: Option<(usize, Vec<(&str, &str)>)> = None;
        for (index, (old, new)) in before.zip(after).enumerate() {
            match &mut hunk {
                Some((_, lines)) if old != new => lines.push((old, new)),
                None if old != new => hunk = Some((index + 1, vec![(old, new)])),
                Some(_) => hunk.take().iter().for_each(|hunk| write_hunk(hunk, &mut out)),
                None => {}
            }
        }
        hunk.iter().for_each(|hunk| write_hunk(hunk, &mut out));
        out
    }
}

/// No line is added or removed, because a key has one line.
fn write_hunk((first, lines): &(usize, Vec<(&str, &str)>), out: &mut String) {
    let count = lines.len();
    let _ = writeln!(out, "@@ -{first},{count} +{first},{count} @@"); // a String takes all
    let mut write = |sign: char, line: &str| {
        let _ = write!(out, "{sign}{line}");
        if !line.ends_with('\n') {
            out.push_str("\n\\ No newline at end of file\n");
        }
    };
    lines.iter().for_each(|(old, _)| write('-', old));
    lines.iter().for_each(|(_, new)| write('+', new));
}

/// The text with its edits, which do not overlap; `None` if they do.
fn edited(text: &str, edits: &[Edit<'_>]) -> Option<String> {
    let mut sorted: Vec<&Edit<'_>> = edits.iter().collect();
    sorted.sort_unstable_by_key(|edit| edit.bytes.start);
    let (mut out, mut at) = (String::with_capacity(text.len() + 16 * edits.len()), 0);
    for edit in sorted {
        out.push_str(text.get(at..edit.bytes.start)?);
        out.push_str(&edit.text);
        at = edit.bytes.end;
    }
    out.push_str(text.get(at..)?);
    Some(out)
}

/// The old and the new text with secrets masked.
fn shown(mut tree: Node, text: &str, all: &[Token], edits: &[Edit<'_>]) -> (String, String) {
    mark_secrets(&mut tree);
    let mut secrets = HashSet::new();
    collect_secrets(&tree, &mut secrets);
    let masks = all.iter().filter(|token| secrets.contains(&token.at)).map(|token| {
        let lines = text.get(token.bytes.clone()).unwrap_or_default().matches('\n').count();
        Edit { bytes: token.bytes.clone(), text: format!("{MASK}{}", "\n".repeat(lines)).into() }
    });
    let masks: Vec<Edit<'_>> = masks.collect();
    let before = edited(text, &masks);
    let after = edited(text, &masks.iter().chain(edits).map(Edit::borrowed).collect::<Vec<_>>());
    before.zip(after).unwrap_or_default()
}

impl Edit<'_> {
    fn borrowed(&self) -> Edit<'_> {
        Edit { bytes: self.bytes.clone(), text: (&*self.text).into() }
    }
}

fn collect_secrets(node: &Node, found: &mut HashSet<(u32, u32)>) {
    match &node.value {
        Value::Map(entries) => entries.iter().for_each(|(_, child)| collect_secrets(child, found)),
        Value::Seq(elements) => elements.iter().for_each(|element| collect_secrets(element, found)),
        _ if node.secret => {
            found.insert((node.at.line, node.at.column));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deprecated::INVENTED;

    fn fixes_of(files: &[(&str, &str)]) -> Fixes {
        let written = files.iter().map(|(path, text)| Text { path: path.into(), text: (*text).into() });
        fixes_by(INVENTED, &Texts { written: written.collect(), ..Texts::default() })
    }

    fn fixed(text: &str) -> (Option<String>, Vec<String>) {
        let fixes = fixes_of(&[("weir.yaml", text)]);
        let left = fixes.left.iter().map(|left| format!("{}:{}", left.place.line, left.place.column));
        (fixes.files.into_iter().next().map(|fix| fix.after), left.collect())
    }

    #[test]
    fn only_the_key_changes() {
        for (before, after) in [
            ("# a\nthreads:   2   # why\n\n", "# a\nworkers:   2   # why\n\n"),
            ("threads: 2\r\nlog: {}\r\n", "workers: 2\r\nlog: {}\r\n"),
            ("\u{feff}threads: 2", "\u{feff}workers: 2"),
            ("\u{feff}é: 1\n'threads' : 2", "\u{feff}é: 1\n'workers' : 2"),
            ("\"threads\": 2", "\"workers\": 2"),
            ("threads: 2\nlog: {}\nlog: {}\n", "workers: 2\nlog: {}\nlog: {}\n"), // with another mistake
            ("\"thre\\u0061ds\": 2", "\"workers\": 2"),
            ("? threads\n: 2\n", "? workers\n: 2\n"),
            ("&x threads: 2\n", "&x workers: 2\n"),
            ("{\"log\":{\"level\":\"info\"},\"threads\":2}", "{\"log\":{\"level\":\"info\"},\"workers\":2}"),
            ("{ threads: 2, log: {} } # flow", "{ workers: 2, log: {} } # flow"),
            (
                "labels: { ü: \"日本\" } # ü\nupstreams: { é: { lb: random }, b: {lb: p2c} }",
                "labels: { ü: \"日本\" } # ü\nupstreams: { é: { balancer: random }, b: {balancer: p2c} }",
            ),
            (
                "upstreams:\n  a: &a\n    lb: random\n  b: *a\n",
                "upstreams:\n  a: &a\n    balancer: random\n  b: *a\n",
            ),
            (
                "routes:\n  lb: { filters: [ ip: { block: [ x ] } ] }\n",
                "routes:\n  lb: { filters: [ ip: { deny: [ x ] } ] }\n",
            ),
            (
                "upstreams:\n  a:\n    lb: |\n      lb: x\n",
                "upstreams:\n  a:\n    balancer: |\n      lb: x\n",
            ),
        ] {
            assert_eq!(fixed(before), (Some(after.to_owned()), Vec::new()), "{before}");
        }
    }

    #[test]
    fn nothing_to_do_changes_nothing() {
        for text in ["workers: 2", "labels: { threads: x }", "threads: [", ""] {
            assert_eq!(fixed(text), (None, Vec::new()), "{text}");
        }
    }

    #[test]
    fn what_is_in_doubt_is_left_and_told() {
        for (text, places) in [
            // Both names.
            ("threads: 2\nworkers: 3\n", &["1:1"][..]),
            // The anchored map is also where the key means something else.
            ("upstreams: { a: &a { lb: random } }\nlabels: *a\n", &["1:22"]),
            // A key that is an alias.
            ("labels: { a: &k threads }\n*k : 2\n", &["2:1"]),
        ] {
            assert_eq!(fixed(text), (None, places.iter().map(|&at| at.to_owned()).collect()), "{text}");
        }
        let (after, left) = fixed("threads: 2\nupstreams: { a: { lb: x, balancer: y } }\n");
        assert_eq!(after.as_deref(), Some("workers: 2\nupstreams: { a: { lb: x, balancer: y } }\n"));
        assert_eq!(left, ["2:19"]);
    }

    #[test]
    fn included_files_are_fixed_and_others_are_left() {
        let files = [
            ("weir.yaml", "include: [ \"*.yaml\" ]\n"),
            ("a.yaml", "upstreams: { a: { lb: x } }"),
            ("b.yaml", "threads: 2"),
        ];
        let text = |path: &str, text: &str| Text { path: path.into(), text: text.into() };
        let mut texts = Texts {
            written: files.iter().map(|(path, content)| text(path, content)).collect(),
            managed: Some(text("managed.yaml", "upstreams: { b: { lb: y } }")),
            ..Texts::default()
        };
        let fixes = fixes_by(INVENTED, &texts);
        let paths: Vec<_> = fixes.files.iter().map(|fix| fix.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["a.yaml", "b.yaml"]);
        assert_eq!(fixes.left[0].place.to_string(), "managed.yaml:1:19");
        // On a node of a fleet, everything but its own file comes from the source.
        texts.bootstrap = Some(text("node.yaml", "threads: 2\nsource: {}\n"));
        let fixes = fixes_by(INVENTED, &texts);
        assert_eq!(fixes.files.len(), 1);
        assert_eq!(fixes.files[0].after, "workers: 2\nsource: {}\n");
        assert_eq!(fixes.left.len(), 3);
    }

    #[test]
    fn a_diff_shows_the_changed_lines_and_no_secret() {
        let text = "threads: 2 # two\nlog: {}\n\
                    consumers: { shop: { key_auth: [ hunter2, \"long\n  er\" ] } }\n\
                    upstreams: { a: { lb: random, sticky: { key: hunter3 } } }";
        let fixes = fixes_of(&[("weir.yaml", text)]);
        assert_eq!(
            fixes.files[0].diff(),
            "--- weir.yaml\n+++ weir.yaml\n\
             @@ -1,1 +1,1 @@\n-threads: 2 # two\n+workers: 2 # two\n\
             @@ -5,1 +5,1 @@\n\
             -upstreams: { a: { lb: random, sticky: { key: *** } } }\n\\ No newline at end of file\n\
             +upstreams: { a: { balancer: random, sticky: { key: *** } } }\n\\ No newline at end of file\n"
        );
    }
}
