//! An alternative of a rule as what one route of Weir matches. What `match` cannot say goes into `match.when`.

use super::rule::{Literal, Syntax};
use crate::config::Match;
use crate::shared::expression::Expression;
use crate::shared::networks::network;
use crate::shared::order::{Candidate, Host, Path};
use crate::shared::path;
use crate::shared::regex::{Searching, Subject, literal};

/// What a route matches, with its path as Weir writes it.
pub(super) struct Matched {
    pub(super) candidate: Candidate,
    pub(super) written: Option<String>,
    /// What differs from Traefik.
    pub(super) changed: Vec<String>,
}

impl Matched {
    /// Whether it matches every request.
    pub(super) fn is_everything(&self) -> bool {
        let Candidate { hosts, path, matches } = &self.candidate;
        hosts.is_empty() && matches!(path, Path::Prefix(path) if path == "/") && *matches == Match::default()
    }
}

/// The parts of a match that are known so far.
#[derive(Default)]
struct Builder {
    hosts: Option<Vec<Host>>,
    matches: Match,
    when: Option<Expression>,
    changed: Vec<String>,
}

/// Translates an alternative.
///
/// # Errors
/// What Weir cannot say.
pub(super) fn matched(branch: &[Literal], syntax: Syntax) -> Result<Vec<Matched>, String> {
    let mut builder = Builder::default();
    // Paths last, the most exact first: one of them becomes the route's path.
    let rank = |literal: &&Literal| match literal.name.as_str() {
        _ if literal.is_negated => 0,
        "Path" => 1,
        "PathRegexp" => 2,
        "PathPrefix" => 3,
        _ => 0,
    };
    let mut literals: Vec<&Literal> = branch.iter().collect();
    literals.sort_by_key(rank);
    let mut several: Vec<Vec<String>> = Vec::new();
    let mut path_name = String::new();
    for one in literals {
        if let Some(argument) = one.values.iter().flatten().find(|argument| argument.contains("${")) {
            return Err(format!("`{argument}`: weir import has no value for the variable"));
        }
        if let Some(argument) = one.values.iter().flatten().find(|argument| argument.contains("{{")) {
            return Err(format!("`{argument}` is a template of Go; write what it comes to"));
        }
        let is_template = |argument: &&String| argument.contains('{') && argument.contains('}');
        if syntax == Syntax::V3
            && matches!(one.name.as_str(), "Path" | "PathPrefix" | "Host" | "HostHeader")
            && let Some(argument) = one.values.iter().flatten().find(is_template)
        {
            return Err(format!(
                "`{argument}` has the braces of v2, which v3 takes as text: say ruleSyntax: v2"
            ));
        }
        match one.name.as_str() {
            _ if one.is_negated => builder.and(condition(one, syntax)?.not()),
            "Path" | "PathPrefix" | "PathRegexp" if path_name.is_empty() => {
                path_name.clone_from(&one.name);
                several.clone_from(&one.values);
            }
            _ => builder.positive(one, syntax)?,
        }
    }
    if path_name.is_empty() {
        return Ok(vec![builder.finish((Path::Prefix("/".to_owned()), None), None)]);
    }
    several
        .iter()
        .map(|value| {
            let (path, only) = read_path(&path_name, value, syntax)?;
            Ok(builder.clone_with(path, only))
        })
        .collect()
}

/// What matches at least the requests of an alternative: conditions that Weir cannot say are left out.
pub(super) fn widest(branch: &[Literal]) -> Vec<Matched> {
    // Values of v2, with their `{name:regex}`, are read as such; a literal `{` of v3 is read wider.
    let syntax = Syntax::V2;
    let can_say = |one: &&Literal| matched(std::slice::from_ref(*one), syntax).is_ok();
    let known: Vec<Literal> = branch.iter().filter(can_say).cloned().collect();
    let all = || Builder::default().finish((Path::Prefix("/".to_owned()), None), None);
    matched(&known, syntax).unwrap_or_else(|_| vec![all()])
}

impl Builder {
    fn and(&mut self, condition: Expression) {
        self.when = Some(match self.when.take() {
            None => condition,
            Some(when) => when.and(condition),
        });
    }

    fn clone_with(&self, path: (Path, Option<String>), only: Option<Expression>) -> Matched {
        let copy = Self {
            hosts: self.hosts.clone(),
            matches: self.matches.clone(),
            when: self.when.clone(),
            changed: self.changed.clone(),
        };
        copy.finish(path, only)
    }

    fn finish(mut self, path: (Path, Option<String>), only: Option<Expression>) -> Matched {
        if let Some(only) = only {
            self.and(only);
        }
        let when = self.when.filter(|when| when.as_constant() != Some(true));
        self.matches.when = when.map(|when| when.as_str().to_owned());
        let candidate =
            Candidate { hosts: self.hosts.unwrap_or_default(), path: path.0, matches: self.matches };
        Matched { candidate, written: path.1, changed: self.changed }
    }

    fn positive(&mut self, one: &Literal, syntax: Syntax) -> Result<(), String> {
        let first = one.values.first().map(Vec::as_slice).unwrap_or_default();
        match (one.name.as_str(), first) {
            ("Host" | "HostHeader", [_]) if self.hosts.is_none() => {
                let names: Vec<String> = one.values.iter().flatten().map(|name| host_name(name)).collect();
                if names.iter().any(|name| name.contains('*')) {
                    let [name] = &*names else { return Err("several hosts with `*`".to_owned()) };
                    self.hosts = Some(vec![Host::Suffix(wildcard(name)?)]);
                    self.and(condition(one, syntax)?);
                    return Ok(());
                }
                self.hosts = Some(names.into_iter().map(Host::Exact).collect());
            }
            ("HostRegexp", [pattern]) if one.values.len() == 1 => {
                let read = host_regex(pattern, syntax)?;
                if matches_all(&read) {
                    return Ok(());
                }
                match suffix(&read) {
                    Some((ending, is_all)) if self.hosts.is_none() => {
                        self.hosts = Some(vec![Host::Suffix(ending)]);
                        if !is_all {
                            self.and(condition(one, syntax)?);
                        }
                    }
                    _ => self.and(condition(one, syntax)?),
                }
            }
            ("Method", [_]) if self.matches.methods.is_empty() => {
                self.matches.methods = one.values.iter().flatten().map(|m| m.to_ascii_uppercase()).collect();
            }
            ("Query", [key]) if syntax == Syntax::V3 && !self.has_query(key) => {
                self.matches.query.push((key.clone(), "*".to_owned()));
            }
            _ => self.and(condition(one, syntax)?),
        }
        Ok(())
    }

    fn has_query(&self, name: &str) -> bool {
        self.matches.query.iter().any(|(known, _)| known == name)
    }
}

/// Any condition as an expression.
fn condition(one: &Literal, syntax: Syntax) -> Result<Expression, String> {
    let mut any = Expression::constant(false);
    for value in &one.values {
        any = any.or(single(&one.name, value, syntax)?);
    }
    if matches!(one.name.as_str(), "Host" | "ClientIP" | "Method") && one.values.len() > 1 {
        let texts: Vec<String> = one.values.iter().flatten().cloned().collect();
        return match one.name.as_str() {
            "Host" if texts.iter().all(|name| !name.contains('*')) => {
                let names: Vec<String> = texts.iter().map(|name| host_name(name)).collect();
                Ok(Expression::raw("request.host").is_in(names.iter().map(String::as_str)))
            }
            "ClientIP" => {
                let networks: Vec<String> =
                    texts.iter().map(|text| network(text)).collect::<Result<_, String>>()?;
                Ok(Expression::raw("client.ip").is_in(networks.iter().map(String::as_str)))
            }
            _ => Ok(any),
        };
    }
    Ok(any)
}

fn single(name: &str, value: &[String], syntax: Syntax) -> Result<Expression, String> {
    let host = || Expression::raw("request.host");
    let path = || Expression::raw("request.path");
    let pattern = |text: &str| Searching::read(text, false, Subject::Text).map(|read| read.searching());
    Ok(match (name, value) {
        ("Host" | "HostHeader", [name]) => {
            let name = host_name(name);
            match name.contains('*') {
                true => host().matches(&format!("^[^.]+{}$", literal(&wildcard(&name)?))),
                false => host().equals(Expression::text(&name)),
            }
        }
        ("HostRegexp", [pattern]) => {
            let read = host_regex(pattern, syntax)?;
            if matches_all(&read) { Expression::constant(true) } else { host().matches(&read.searching()) }
        }
        ("Method", [method]) => {
            Expression::raw("request.method").equals(Expression::text(&method.to_ascii_uppercase()))
        }
        ("Path" | "PathPrefix" | "PathRegexp", [_]) => {
            let ((known, _), only) = read_path(name, value, syntax)?;
            let is = match known {
                Path::Exact(exact) => path().equals(Expression::text(&exact)),
                Path::Prefix(prefix) if prefix == "/" => Expression::constant(true),
                Path::Prefix(prefix) => path().starts_with(&prefix),
                Path::Regex { whole, .. } => path().matches(&format!("^(?:{whole})$")),
            };
            // A prefix of an expression is raw, so it needs nothing else.
            match only {
                Some(_) | None => is,
            }
        }
        ("Header" | "Headers", [key, value]) => {
            let all =
                format!("{}.all()", Expression::of("request.headers", &key.to_ascii_lowercase()).as_str());
            Expression::raw(format!("({} in {all})", Expression::text(value).as_str()))
        }
        ("HeaderRegexp" | "HeadersRegexp", [key, value]) => {
            any_value("request.headers", &key.to_ascii_lowercase(), &pattern(value)?)
        }
        ("Query", [key]) => Expression::raw(format!("has({})", Expression::of("request.args", key).as_str())),
        ("Query", [key, value]) => {
            let all = format!("{}.all()", Expression::of("request.args", key).as_str());
            Expression::raw(format!("({} in {all})", Expression::text(value).as_str()))
        }
        ("QueryRegexp", [key, value]) => any_value("request.args", key, &pattern(value)?),
        ("ClientIP", [text]) => Expression::raw("client.ip").is_in([network(text)?.as_str()]),
        (
            "Host" | "HostHeader" | "HostRegexp" | "Method" | "Path" | "PathPrefix" | "PathRegexp" | "Header"
            | "Headers" | "HeaderRegexp" | "HeadersRegexp" | "Query" | "QueryRegexp" | "ClientIP",
            _,
        ) => return Err(format!("`{name}` with {} arguments", value.len())),
        _ => return Err(format!("weir import does not know the matcher `{name}`")),
    })
}

fn host_name(name: &str) -> String {
    name.trim().trim_end_matches('.').to_ascii_lowercase()
}

/// `*.example.com` as `.example.com`.
fn wildcard(name: &str) -> Result<String, String> {
    match name.strip_prefix('*') {
        Some(ending) if ending.starts_with('.') && !ending.contains('*') => Ok(ending.to_owned()),
        _ => Err(format!("`{name}` is no host")),
    }
}

/// A path: exact, a prefix or a regex, and what a route of Weir must leave out.
#[allow(clippy::type_complexity, reason = "a path, how it is written, and its condition")]
fn read_path(
    name: &str,
    value: &[String],
    syntax: Syntax,
) -> Result<((Path, Option<String>), Option<Expression>), String> {
    let [text] = value else { return Err(format!("`{name}` with {} arguments", value.len())) };
    let is_prefix = name == "PathPrefix";
    if name == "PathRegexp" || syntax == Syntax::V2 && text.contains('{') {
        let pattern = if name == "PathRegexp" { text.clone() } else { templated(text, "[^/]+", is_prefix)? };
        let read = Searching::read(&pattern, false, Subject::Path)?;
        read.compiled()?;
        let (whole, start) = (read.whole(), read.literal_start());
        let start = if start.is_empty() { "/".to_owned() } else { start };
        let written = Some(format!("~{whole}"));
        return Ok(((Path::Regex { whole, start }, written), None));
    }
    if is_prefix && text == "/" {
        return Ok(((Path::Prefix("/".to_owned()), None), None));
    }
    if let Some(why) = path::never_matches(text) {
        return Err(format!("`{text}`: {why}"));
    }
    let canonical = path::canonical(text);
    if !is_prefix {
        return Ok(((Path::Exact(canonical), Some(path::exact(text))), None));
    }
    let only = path::takes_its_folder(text)
        .map(|folder| Expression::raw("request.path").differs(Expression::text(&path::canonical(folder))));
    Ok(((Path::Prefix(canonical), Some(path::prefix(text))), only))
}

/// `{name:regex}` and `{name}` of v2 as a regular expression.
fn templated(text: &str, any: &str, is_prefix: bool) -> Result<String, String> {
    let mut out = String::from("^");
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        out.push_str(&literal(&rest[..open]));
        let inner = &rest[open + 1..];
        let mut depth = 1;
        let close = inner.char_indices().find(|(_, c)| {
            depth += match c {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            depth == 0
        });
        let (close, _) = close.ok_or_else(|| format!("`{text}`: a `}}` is missing"))?;
        let pattern = inner[..close].split_once(':').map_or(any, |(_, pattern)| pattern);
        out.push_str(&format!("(?:{pattern})"));
        rest = &inner[close + 1..];
    }
    out.push_str(&literal(rest));
    if !is_prefix {
        out.push('$');
    }
    Ok(out)
}

fn host_regex(pattern: &str, syntax: Syntax) -> Result<Searching, String> {
    let pattern = match syntax {
        Syntax::V2 => templated(pattern, "[^.]+", false)?,
        Syntax::V3 => pattern.to_owned(),
    };
    // Weir and Traefik both compare the host in lower case.
    let read = Searching::read(&pattern, false, Subject::Text)?;
    read.compiled()?;
    Ok(read)
}

fn matches_all(read: &Searching) -> bool {
    matches!(
        read.searching().as_str(),
        ".+" | ".*" | "^.+$" | "^.*$" | "^.+" | "^.*" | "^(?:.+)$" | "^(?:.*)$" | ""
    )
}

/// `.example.com` if every match ends so, and whether every such name matches.
fn suffix(read: &Searching) -> Option<(String, bool)> {
    let text = read.searching();
    let inner = text.strip_prefix('^')?.strip_suffix('$')?;
    let at = inner.find("\\.").filter(|_| !inner.contains('|'))?;
    // The last part that has no syntax but escaped dots.
    let mut start = at;
    for (found, _) in inner.match_indices("\\.") {
        let is_plain =
            |text: &str| text.replace("\\.", "").chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if is_plain(&inner[found..]) {
            start = found;
            break;
        }
        start = inner.len();
    }
    let ending = inner.get(start..).filter(|ending| !ending.is_empty())?.replace("\\.", ".");
    let before = &inner[..start];
    // A group that reaches over the dot, or a quantifier behind it, makes the ending no part of every match.
    let (opened, closed) = (before.matches('(').count(), before.matches(')').count());
    let is_whole = opened == closed && !before.ends_with('\\');
    let is_all = matches!(before, ".+" | "(.+)" | "(?:.+)");
    is_whole.then_some((ending, is_all))
}

/// Whether the pattern finds one of the values of a field or parameter that may be repeated.
fn any_value(variable: &str, key: &str, pattern: &str) -> Expression {
    let is = Expression::raw("v").matches(pattern);
    Expression::raw(format!("{}.all().exists(v, {})", Expression::of(variable, key).as_str(), is.as_str()))
}

#[cfg(test)]
mod tests {
    use super::super::rule::branches;
    use super::*;

    fn shown(rule: &str, syntax: Syntax) -> String {
        let all = branches(rule, syntax).and_then(|all| {
            all.iter().map(|branch| matched(branch, syntax)).collect::<Result<Vec<_>, String>>()
        });
        match all {
            Err(why) => why,
            Ok(all) => all
                .iter()
                .flatten()
                .map(|matched| {
                    let matches = &matched.candidate.matches;
                    let when = matches.when.as_deref().unwrap_or("-");
                    let path = matched.written.as_deref().unwrap_or("*");
                    format!("{:?} {path} {when}", matched.candidate.hosts)
                })
                .collect::<Vec<_>>()
                .join("; "),
        }
    }

    #[test]
    fn rules_become_matches() {
        let v3 = [
            ("Host(`A.test`) && PathPrefix(`/x`)", "[Exact(\"a.test\")] /x* -"),
            ("PathPrefix(`/x/`)", "[] /x/* request.path != \"/x\""),
            ("HostRegexp(`^.+\\.a\\.test$`)", "[Suffix(\".a.test\")] * -"),
            (
                "HostRegexp(`^[a-z]+\\.a\\.test$`)",
                "[Suffix(\".a.test\")] * request.host.matches(\"^[a-z]+\\\\.a\\\\.test$\")",
            ),
            ("HostRegexp(`^(a\\.)?b$`)", "[] * request.host.matches(\"^(a\\\\.)?b$\")"),
            ("Host(`*.a.test`)", "[Suffix(\".a.test\")] * request.host.matches(\"^[^.]+\\\\.a\\\\.test$\")"),
            ("Path(`/a`) && !ClientIP(`10.0.0.0/8`)", "[] /a !(client.ip in [\"10.0.0.0/8\"])"),
            (
                "ClientIP(`10.0.0.1`) || ClientIP(`10.0.0.2`)",
                "[] * client.ip in [\"10.0.0.1\", \"10.0.0.2\"]",
            ),
            ("PathRegexp(`\\.php$`)", "[] ~.*\\.php -"),
            ("!PathPrefix(`/x/`)", "[] * !request.path.startsWith(\"/x/\")"),
            (
                "HeaderRegexp(`X`, `^a|b$`)",
                "[] * request.headers[\"x\"].all().exists(v, v.matches(\"^a|b$\"))",
            ),
            ("Path(`a`)", "`a`: a path begins with a slash"),
            ("Header(`X`, `a`)", "[] * (\"a\" in request.headers[\"x\"].all())"),
            ("Query(`q`, `a`)", "[] * (\"a\" in request.args[\"q\"].all())"),
            ("Path(`/{id}`)", "`/{id}` has the braces of v2, which v3 takes as text: say ruleSyntax: v2"),
            ("Frob(`a`)", "weir import does not know the matcher `Frob`"),
            ("Host(`a`, `b`)", "`Host` with 2 arguments"),
        ];
        v3.iter().for_each(|(rule, said)| assert_eq!(shown(rule, Syntax::V3), *said, "{rule}"));
        let v2 = [
            ("Host(`a`, `b`) && Path(`/u/{id:[0-9]+}`)", "[Exact(\"a\"), Exact(\"b\")] ~/u/(?:[0-9]+) -"),
            (
                "HostRegexp(`{sub:[a-z]+}.a.test`)",
                "[Suffix(\".a.test\")] * request.host.matches(\"^(?:[a-z]+)\\\\.a\\\\.test$\")",
            ),
            ("Path(`/x`, `/y`)", "[] /x -; [] /y -"),
        ];
        v2.iter().for_each(|(rule, said)| assert_eq!(shown(rule, Syntax::V2), *said, "{rule}"));
    }
}
