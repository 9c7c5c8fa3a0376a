//! Decides which settings a caller without write access may see. `disclosure.txt` declares them; a setting not
//! declared there is secret.
//!
//! [`mark_secrets`] marks a tree once. All output obeys the marks: views, diffs, diagnostics, explanations.

use super::deprecated::DEPRECATED;
use super::mask::{MASK, secret_ranges, without_secrets};
use super::node::{Node, Value};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::LazyLock;
use weir_expr::template::may_hold_secret;

/// The reviewed list.
const DECLARED: &str = include_str!("disclosure.txt");

/// The declared rule of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Shown.
    Public,
    /// Hidden, and no message repeats it.
    Credential,
    /// Hidden, but messages to its author may repeat it.
    Secret,
    /// Shown without user, password and query.
    Url,
    /// A list of filters, each with its own rules.
    Filters,
}

/// The rules of a setting and of the settings below it.
#[derive(Default)]
pub(super) struct Shape {
    rule: Option<Rule>,
    below: HashMap<&'static str, Self>,
}

struct Shapes {
    root: Shape,
    filters: Shape,
}

static SHAPES: LazyLock<Shapes> = LazyLock::new(|| {
    let mut shapes = Shapes { root: Shape::default(), filters: Shape::default() };
    for (path, rule) in declared() {
        let (root, path) = match path.strip_prefix("filter.") {
            Some(path) => (&mut shapes.filters, path),
            None => (&mut shapes.root, path),
        };
        path.split('.').fold(root, |shape, key| shape.below.entry(key).or_default()).rule = Some(rule);
    }
    shapes
});

/// Each declared setting, such as `listeners.*.address` or `filter.jwt.secret`, with its rule.
pub fn declared() -> impl Iterator<Item = (&'static str, Rule)> {
    static PATHS: LazyLock<Vec<(String, Rule)>> = LazyLock::new(|| {
        let rule = |mark| match mark {
            Some('!') => Rule::Credential,
            Some('~') => Rule::Secret,
            Some('@') => Rule::Url,
            Some('#') => Rule::Filters,
            _ => Rule::Public,
        };
        let mut all: Vec<_> = listed(DECLARED, "!~@#").map(|(path, mark)| (path, rule(mark))).collect();
        with_deprecated(&mut all);
        all
    });
    PATHS.iter().map(|(path, rule)| (path.as_str(), *rule))
}

/// The settings named in a list such as `disclosure.txt`, each with the mark after its key if that is one of `marks`.
pub fn listed(list: &'static str, marks: &str) -> impl Iterator<Item = (String, Option<char>)> {
    let mut parent = "";
    let lines = list.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.flat_map(move |line| {
        let keys = match line.split_once(": ") {
            Some((name, keys)) if !line.starts_with(' ') => {
                parent = name;
                keys
            }
            _ => line,
        };
        keys.split_whitespace().map(move |key| {
            let mark = key.chars().next_back().filter(|last| marks.contains(*last));
            let key = mark.and_then(|mark| key.strip_suffix(mark)).unwrap_or(key);
            (if parent == "." { key.to_owned() } else { format!("{parent}.{key}") }, mark)
        })
    })
}

/// Adds the old names of settings, with the rules of the new ones: views show configs as written.
fn with_deprecated(all: &mut Vec<(String, Rule)>) {
    for entry in DEPRECATED {
        let within = if entry.within.is_empty() { String::new() } else { format!("{}.", entry.within) };
        let (old, new) = (format!("{within}{}", entry.key), format!("{within}{}", entry.successor));
        let below = |(path, rule): &(String, Rule)| {
            let rest = path.strip_prefix(&new)?;
            (rest.is_empty() || rest.starts_with('.')).then(|| (format!("{old}{rest}"), *rule))
        };
        let more: Vec<_> = all.iter().filter_map(below).collect();
        all.extend(more);
    }
}

/// The shape of a whole config.
pub(super) fn root() -> &'static Shape {
    &SHAPES.root
}

/// The shape of a setting, such as `upstreams.*.tls` or `filter.ip`; empty for the top level.
pub(super) fn shape_of(path: &str) -> Option<&'static Shape> {
    let (shape, path) = match path.strip_prefix("filter.") {
        Some(path) => (&SHAPES.filters, path),
        None => (&SHAPES.root, path),
    };
    path.split('.').filter(|key| !key.is_empty()).try_fold(shape, |shape, key| shape.below.get(key))
}

impl Shape {
    pub(super) fn key(&self, key: &str) -> Option<&Self> {
        match self.rule {
            Some(Rule::Filters) => SHAPES.filters.below.get(key),
            _ => {
                let found = self.below.get(key).or_else(|| self.below.get("*"));
                found.or((self.rule == Some(Rule::Credential)).then_some(self))
            }
        }
    }
}

/// Whether a setting has this name. Such a word reveals nothing.
pub(super) fn is_setting(word: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> =
        LazyLock::new(|| declared().flat_map(|(path, _)| path.split('.')).collect());
    WORDS.contains(word)
}

/// Whether a built-in filter has this name.
pub(super) fn is_filter(word: &str) -> bool {
    SHAPES.filters.below.contains_key(word)
}

/// Marks the secrets in the tree of a config.
pub fn mark_secrets(tree: &mut Node) {
    mark(tree, Some(&SHAPES.root));
}

/// The parser bounds the depth.
fn mark(node: &mut Node, shape: Option<&Shape>) {
    let scalar = match &mut node.value {
        Value::Map(entries) => {
            for (key, child) in entries {
                mark(child, shape.and_then(|shape| shape.key(&key.text)));
            }
            false
        }
        Value::Seq(elements) => {
            elements.iter_mut().for_each(|element| mark(element, shape));
            false
        }
        Value::Null => false,
        Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Str(_) => true,
    };
    match shape {
        None => (node.secret, node.quotable) = (true, true),
        Some(shape) if shape.rule == Some(Rule::Credential) => node.secret = true,
        Some(shape) if scalar => {
            let text = node.as_text().unwrap_or_default();
            let (secret, partly) = match shape.rule {
                None | Some(Rule::Credential | Rule::Secret) => (true, false),
                Some(Rule::Url) if text.trim_start().starts_with('{') => (true, false),
                Some(Rule::Url) => {
                    let partly = secret_ranges(text, true).next().is_some();
                    (partly, partly)
                }
                Some(Rule::Public | Rule::Filters) if may_hold_secret(text) => (true, false),
                Some(Rule::Public | Rule::Filters) => {
                    let partly = secret_ranges(text, false).next().is_some();
                    (partly, partly)
                }
            };
            let is_expression = matches!(shape.rule, Some(Rule::Public | Rule::Filters)) && secret && !partly;
            node.quotable = is_expression || matches!(shape.rule, None | Some(Rule::Secret));
            (node.secret, node.partly_secret) = (secret, partly);
        }
        Some(_) => {}
    }
}

/// Unmarks the values from this file, for a caller who may change the file.
pub fn unmark_file(node: &mut Node, file: &Path) {
    if node.at.file.as_path() == file {
        (node.secret, node.partly_secret, node.quotable) = (false, false, false);
    }
    match &mut node.value {
        Value::Map(entries) => entries.iter_mut().for_each(|(_, child)| unmark_file(child, file)),
        Value::Seq(elements) => elements.iter_mut().for_each(|element| unmark_file(element, file)),
        _ => {}
    }
}

/// Removes the refused parts from a config's tree, because a misplaced secret may be among them. Values from the file
/// `own` stay.
pub fn hide_refused<'p>(tree: &mut Node, paths: impl Iterator<Item = &'p str>, own: Option<&Path>) {
    let mut paths: Vec<&str> = paths.collect();
    // Hide inner values before outer ones, so that their paths still resolve.
    paths.sort_unstable_by_key(|path| std::cmp::Reverse(path.len()));
    paths.dedup();
    for path in paths {
        hide(tree, path, own);
    }
}

/// Hides the value at a path, and its key unless that is a setting or the name of an entry.
fn hide(node: &mut Node, path: &str, own: Option<&Path>) {
    let path = path.strip_prefix('.').unwrap_or(path);
    if path.is_empty() {
        if own != Some(node.at.file.as_path()) {
            *node = Node::new(node.at.clone(), Value::Str(MASK.into()), MASK);
        }
        return;
    }
    if let Some((index, rest)) = path.strip_prefix('[').and_then(|path| path.split_once(']')) {
        if let Value::Seq(elements) = &mut node.value
            && let Some(element) = index.parse::<usize>().ok().and_then(|index| elements.get_mut(index))
        {
            hide(element, rest, own);
        }
        return;
    }
    if node.as_text().is_some() {
        // A filter's name written alone in its list.
        return hide(node, "", own);
    }
    let Value::Map(entries) = &mut node.value else { return };
    let fits =
        |key: &str| path.strip_prefix(key).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    let fitting = entries.iter_mut().filter(|(key, _)| fits(&key.text).is_some());
    let Some((key, value)) = fitting.max_by_key(|(key, _)| key.text.len()) else { return };
    let rest = fits(&key.text).unwrap_or_default();
    hide(value, rest, own);
    if rest.is_empty() && !is_setting(&key.text) && own != Some(key.at.file.as_path()) {
        key.text = MASK.into();
    }
}

/// Secrets of other settings that a message about one setting must not reveal.
#[derive(Debug, Default)]
pub(super) struct Elsewhere<'n> {
    /// Values from the environment or a file, and credentials.
    pub(super) concealed: HashSet<&'n str>,
    /// Other secrets, shown only to their author.
    pub(super) quotable: HashSet<&'n str>,
    /// The nodes of credentials.
    pub(super) credentials: Vec<&'n Node>,
    /// Values that also stand openly elsewhere. Concealing those would remove names from messages and hide nothing.
    open: HashSet<&'n str>,
}

/// Collects them from a tree.
pub(super) fn elsewhere(tree: &Node) -> Elsewhere<'_> {
    let mut found = Elsewhere::default();
    collect(tree, &mut found);
    let Elsewhere { concealed, quotable, open, .. } = &mut found;
    quotable.retain(|text| !open.contains(text));
    let mut outside = HashSet::new();
    add_outside(tree, &mut outside);
    concealed.retain(|text| !open.contains(text) || outside.contains(text));
    found
}

fn collect<'n>(node: &'n Node, found: &mut Elsewhere<'n>) {
    found.concealed.extend(node.outside().iter().map(String::as_str));
    node.elements().iter().for_each(|element| collect(element, found));
    for (key, child) in node.entries() {
        found.open.insert(&key.text);
        collect(child, found);
    }
    match node.as_text() {
        Some(_) if node.is_credential() => {
            found.concealed.extend(node.secret_texts());
            found.credentials.push(node);
        }
        Some(_) if node.secret => found.quotable.extend(node.secret_texts()),
        Some(text) => {
            found.open.insert(text);
        }
        None => {}
    }
}

fn add_outside<'n>(node: &'n Node, out: &mut HashSet<&'n str>) {
    out.extend(node.outside().iter().map(String::as_str));
    node.elements().iter().for_each(|element| add_outside(element, out));
    node.entries().iter().for_each(|(_, child)| add_outside(child, out));
}

// === texts ===

/// Whether a line belongs to a section with secrets, or names a secret. We guess from the text, because a file that
/// cannot be parsed has no tree. If everything is on one line, as in JSON, we cannot tell.
pub(super) fn may_hold_secrets(text: &str, index: usize) -> bool {
    const SECTIONS: &[&str] = &["consumers", "admin"];
    const WORDS: &[&str] = &["token", "secret", "password", "credential", "hmac"];
    /// Sections in which `key` is a secret.
    const KEYED: &[&str] = &["sign:", "sticky:"];
    let is_top = |line: &&str| line.starts_with(|c: char| c.is_ascii_alphabetic() || "\"'{[".contains(c));
    let lines: Vec<_> = text.lines().take(index + 1).collect();
    let line = lines.last().copied().unwrap_or("").to_ascii_lowercase();
    let top = lines.iter().rev().copied().find(is_top).unwrap_or("");
    top.starts_with(['{', '['])
        || SECTIONS.iter().any(|section| top.trim_start_matches(['"', '\'']).starts_with(section))
        || WORDS.iter().any(|word| line.contains(word))
        || line.contains("key:") && KEYED.iter().any(|word| line.contains(word))
}

/// The text shown in place of a scalar; `None` if the scalar itself may be shown.
pub fn masked(node: &Node) -> Option<Cow<'_, str>> {
    match node.as_text() {
        _ if !node.secret => None,
        // A variable only names the place of the secret.
        Some(text) if is_variable(text) => None,
        Some(text) if node.partly_secret => Some(without_secrets(text)),
        _ => Some(MASK.into()),
    }
}

/// A public setting for a caller without write access: hidden if it is an expression with a literal that could be a
/// secret, as [`mark_secrets`] has it.
pub fn without_expression(text: &str) -> &str {
    if may_hold_secret(text) { MASK } else { text }
}

/// Whether a text is exactly one variable.
fn is_variable(text: &str) -> bool {
    let name = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(|name| !name.contains(['}', '$']) && !name.contains(":-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;
    use crate::{Diagnostic, Diagnostics};

    fn tree(text: &str) -> Node {
        let mut tree = parse(text, Path::new("t"), &mut Diagnostics::default()).unwrap();
        mark_secrets(&mut tree);
        tree
    }

    fn shown(text: &str, path: &str) -> String {
        let tree = tree(text);
        let node = tree.find(path).unwrap_or_else(|| panic!("{path}"));
        masked(node).map_or_else(|| node.as_text().unwrap_or_default().to_owned(), Cow::into_owned)
    }

    /// An expression is shown where its setting is, unless it compares with something that could be a secret.
    #[test]
    fn literals_of_expressions_are_secret_everywhere() {
        for path in [
            "upstreams.a.balancer.hash.by",
            "filters[0].rate_limit.by",
            "filters[0].concurrency.by",
            "filters[0].cache.key[0]",
            "filters[0].redirect.to",
            "filters[0].respond.body",
            "filters[0].rewrite.path",
            "filters[0].acl.is",
            "routes.a.match.when",
            "maps.a.of",
            "routes.a.respond.body",
        ] {
            let config = |value: &str| {
                let mut text = value.to_owned();
                for key in path.split('.').rev() {
                    text = match key.strip_suffix("[0]") {
                        Some(key) => format!("{{ {key}: [ {text} ] }}"),
                        None => format!("{{ {key}: {text} }}"),
                    };
                }
                text
            };
            let secret = "'= request.headers[\"x-key\"] == \"hunter2\" ? 1 : 2'";
            assert_eq!(shown(&config(secret), path), MASK, "{path}");
            let node = tree(&config(secret));
            assert!(
                !node.find(path).unwrap().is_credential(),
                "messages to its author may repeat it: {path}"
            );
            let is_hidden = ["is", "when", "of"].iter().any(|key| path.ends_with(&format!(".{key}")));
            let open = "= request.headers[\"x-user\"]";
            assert_eq!(shown(&config(&format!("'{open}'")), path) == open, !is_hidden, "{path}");
        }
    }

    #[test]
    fn settings_that_nobody_declared_are_secret() {
        for (text, path) in [
            ("unheard: { of: hunter2 }", "unheard.of"),
            ("routes: { a: { unheard_of: hunter2 } }", "routes.a.unheard_of"),
            ("routes: { a: { match: { path: { x: hunter2 } } } }", "routes.a.match.path.x"),
            ("filters: [ { of_somebody: { else: hunter2 } } ]", "filters[0].of_somebody.else"),
            ("consumers: { a: { of_somebody: [ hunter2, 7 ] } }", "consumers.a.of_somebody[1]"),
            ("consumers: { a: hunter2 }", "consumers.a"),
            ("filters: [ { any: [ { jwt: { secret: hunter2 } } ] } ]", "filters[0].any[0].jwt.secret"),
            ("plans: { p: { filters: [ { sign: { key: hunter2 } } ] } }", "plans.p.filters[0].sign.key"),
            (
                "routes: { a: { filters: { headers: { request: { set: { x: hunter2 } } } } } }",
                "routes.a.filters.headers.request.set.x",
            ),
            ("filters: [ { jwt: { keys: '{\"k\":\"hunter2\"}' } } ]", "filters[0].jwt.keys"),
        ] {
            assert_eq!(shown(text, path), MASK, "{text}");
        }
    }

    #[test]
    fn public_settings_are_shown() {
        for (text, path, expected) in [
            ("routes: { a: { match: { hosts: [ b.c ] } } }", "routes.a.match.hosts[0]", "b.c"),
            ("filters: [ request_id ]", "filters[0]", "request_id"),
            ("filters: [ { any: [ jwt ] } ]", "filters[0].any[0]", "jwt"),
            ("stores: { s: { redis: \"redis://u:p?/@w@h/0\" } }", "stores.s.redis", "redis://***@h/0"),
            ("tracing: { otlp: \"https://h/v1?token=x\" }", "tracing.otlp", "https://h/v1?***"),
            ("tracing: { otlp: \"https://u@h/v1?token=x\" }", "tracing.otlp", "https://***@h/v1?***"),
            (
                "filters: [ { redirect: { to: \"https://{host}/?a=b\" } } ]",
                "filters[0].redirect.to",
                "https://{host}/?a=b",
            ),
            (
                "filters: [ { redirect: { to: \"https://u:p@h/\" } } ]",
                "filters[0].redirect.to",
                "https://***@h/",
            ),
            (
                "routes: { a: { respond: { body: \"see https://a, mail b@c\" } } }",
                "routes.a.respond.body",
                "see https://a, mail b@c",
            ),
            ("admin: { token: \"${TOKEN}\" }", "admin.token", "${TOKEN}"),
            ("admin: { token: \"${file:a.key}\" }", "admin.token", "${file:a.key}"),
            ("admin: { token: \"${TOKEN:-hunter2}\" }", "admin.token", MASK),
            ("admin: { token: \"a${TOKEN}\" }", "admin.token", MASK),
        ] {
            assert_eq!(shown(text, path), expected, "{text}");
        }
    }

    #[test]
    fn what_was_refused_is_hidden() {
        let text = "routes:\n  a.b: { upstream: hunter2, match: { path: /x } }\n  c: { hunter2: hunter2, filters: [ cors, hunter2 ] }\n";
        let mut found = Diagnostics::default();
        for path in
            ["routes.a.b.upstream", "routes.c.hunter2", "routes.c.filters[1].hunter2", "routes.d.missing"]
        {
            found.push(Diagnostic::error("x", "y").on(&tree(text), path));
        }
        found.push(Diagnostic::warning("x", "y").on(&tree(text), "routes.a.b.match.path"));
        let mut hidden = tree(text);
        hide_refused(&mut hidden, found.refused_paths(), None);
        let route = hidden.find("routes.c").unwrap();
        assert_eq!((&*route.entries()[0].0.text, route.entries()[0].1.as_text()), (MASK, Some(MASK)));
        assert_eq!(hidden.find("routes.c.filters[1]").and_then(Node::as_text), Some(MASK));
        assert_eq!(hidden.find("routes.c.filters[0]").and_then(Node::as_text), Some("cors"));
        assert_eq!(hidden.find("routes.a.b.upstream").and_then(Node::as_text), Some(MASK));
        assert_eq!(hidden.find("routes.a.b.match.path").and_then(Node::as_text), Some("/x"));
        let mut own = tree(text);
        hide_refused(&mut own, found.refused_paths(), Some(Path::new("t")));
        assert_eq!(own, tree(text), "whoever may write it sees it");
    }

    #[test]
    fn whoever_may_change_a_file_sees_what_stands_in_it() {
        let mut tree = tree("admin: { token: hunter2 }");
        unmark_file(&mut tree, Path::new("other"));
        assert!(tree.find("admin.token").unwrap().secret);
        unmark_file(&mut tree, Path::new("t"));
        assert!(!tree.find("admin.token").unwrap().secret);
    }

    #[test]
    fn lines_with_secrets_are_not_shown() {
        let text = "listeners:\n  web: 1\nconsumers:\n  shop: { key_auth: [k] }\nadmin: { token: k }\nroutes:\n  a: 1\n";
        let hidden: Vec<_> = (0..7).filter(|i| may_hold_secrets(text, *i)).collect();
        assert_eq!(hidden, [2, 3, 4]);
        assert!(may_hold_secrets("{\"admin\": {\"token\": \"k\"}}", 0));
    }
}
