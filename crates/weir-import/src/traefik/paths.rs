//! The middlewares that change paths and redirect.
//!
//! Captures belong to the path of a route. So a middleware with a pattern gives its router a second route, for the
//! paths that the pattern finds: [`Apart`].

use super::cx::{Cx, list};
use super::middlewares::{About, Chain};
use crate::config::Filter;
use crate::shared::expression::Expression;
use crate::shared::filters::{self, Headers, redirect, redirect_to_https};
use crate::shared::regex::{Searching, Subject};
use crate::shared::template::Template;
use crate::shared::tree::{Entry, Fields};
use crate::yaml::Map;

/// What stands behind the match of a pattern, and before it.
const AFTER: &str = "after_match";
const BEFORE: &str = "before_match";

/// A second route of a router.
#[derive(Clone)]
pub(super) struct Apart {
    /// How many of the router's filters come before.
    pub(super) at: usize,
    /// Its path: a regex that matches the whole.
    pub(super) path: String,
    /// The literal text that every match begins with.
    pub(super) start: String,
    /// What it does there.
    pub(super) filters: Vec<Filter>,
}

impl Apart {
    /// Whether the pattern finds a path.
    pub(super) fn finds(&self, path: &str) -> bool {
        regex::bytes::RegexBuilder::new(&format!("^(?:{})$", self.path))
            .unicode(false)
            .build()
            .is_ok_and(|regex| regex.is_match(path.as_bytes()))
    }
}

impl Chain {
    /// Sets the second route.
    ///
    /// # Errors
    /// If there is one, or if the path has been changed before.
    fn set_apart(&mut self, apart: Apart) -> Result<(), String> {
        if self.apart.is_some() {
            return Err("a second pattern for one router".to_owned());
        }
        if self.filters.iter().any(|filter| matches!(filter.name, "rewrite" | "when")) {
            return Err("the path may have been changed before".to_owned());
        }
        self.apart = Some(apart);
        Ok(())
    }
}

/// A pattern that searches, as one for whole paths that keeps what stands around its match.
struct Regexed {
    whole: String,
    start: String,
    /// Names of its groups, by number; none for those without.
    groups: Vec<Option<String>>,
    has_before: bool,
    has_after: bool,
}

impl Regexed {
    fn read(pattern: &str) -> Result<Self, String> {
        let read = Searching::read(pattern, false, Subject::Path)?;
        let compiled = read.compiled()?;
        let groups: Vec<Option<String>> =
            compiled.capture_names().map(|name| name.map(str::to_owned)).collect();
        let text = read.searching();
        let inner = text.strip_prefix('^').unwrap_or(&text);
        let has_before = inner.len() == text.len();
        let ends = inner.ends_with("(.*)") || inner.ends_with(".*") && !inner.ends_with("\\.*");
        let (inner, has_after) = match inner.strip_suffix('$').filter(|rest| !rest.ends_with('\\')) {
            Some(inner) => (inner, false),
            None => (inner, !ends),
        };
        let before = if has_before { format!("(?<{BEFORE}>.*?)") } else { String::new() };
        let after = if has_after { format!("(?<{AFTER}>.*)") } else { String::new() };
        let start = read.literal_start();
        let start = if start.is_empty() { "/".to_owned() } else { start };
        let inner = if inner.contains('|') { format!("(?:{inner})") } else { inner.to_owned() };
        Ok(Self { whole: format!("{before}{inner}{after}"), start, groups, has_before, has_after })
    }

    /// A replacement of Go (`$1`, `${name}`) with Weir's captures.
    fn filled_in(&self, replacement: &str, skipped: usize) -> Result<String, String> {
        let mut out = String::new();
        let mut rest = replacement;
        while let Some(at) = rest.find('$') {
            out.push_str(&Template::text(&rest[..at]).to_setting());
            rest = &rest[at + 1..];
            if let Some(behind) = rest.strip_prefix('$') {
                out.push('$');
                rest = behind;
                continue;
            }
            let (name, behind) = match rest.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
                Some(found) => found,
                None => {
                    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                    rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()))
                }
            };
            rest = behind;
            let number = match name.parse::<usize>() {
                Ok(number) => number.checked_sub(skipped),
                Err(_) => self.groups.iter().position(|group| group.as_deref() == Some(name)),
            };
            match number.and_then(|number| Some((number, self.groups.get(number)?))) {
                Some((0, _)) | None => return Err(format!("`${name}` names no group of the pattern")),
                Some((_, Some(name))) => out.push_str(&format!("{{{name}}}")),
                Some((number, None)) => out.push_str(&format!("{{{number}}}")),
            }
        }
        out.push_str(&Template::text(rest).to_setting());
        let before = if self.has_before { format!("{{{BEFORE}}}") } else { String::new() };
        let after = if self.has_after { format!("{{{AFTER}}}") } else { String::new() };
        Ok(format!("{before}{out}{after}"))
    }
}

/// `rewrite: { replace }`, for a pattern that finds at most one place: Traefik replaces every match, Weir the first.
fn in_place(pattern: &str, replacement: &str) -> Result<Filter, String> {
    let is_once = (pattern.starts_with('^') || pattern.ends_with('$')) && !pattern.contains('|');
    if !is_once {
        return Err("Weir replaces the first match of a pattern, Traefik every one".to_owned());
    }
    let regex = Searching::read(pattern, false, Subject::Path)?;
    let compiled = regex.compiled()?;
    let mut with = String::new();
    let mut rest = replacement;
    while let Some(at) = rest.find(['$', '{', '}']) {
        with.push_str(&rest[..at]);
        let behind = rest[at..].strip_prefix('$').ok_or("a brace in the replacement")?;
        let (name, behind) = match behind.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some(found) => found,
            None => {
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                behind.split_at(behind.find(|c| !is_name(c)).unwrap_or(behind.len()))
            }
        };
        let by_name = || compiled.capture_names().position(|group| group == Some(name));
        let number = name.parse::<usize>().ok().or_else(by_name);
        let number = number.filter(|number| (1..10).contains(number) && *number < compiled.captures_len());
        // A digit behind `$1` would be read as a part of the number.
        let number = number.filter(|_| !behind.starts_with(|c: char| c.is_ascii_digit()));
        with.push_str(&format!(
            "${}",
            number.ok_or_else(|| format!("`${name}` names no group of the pattern"))?
        ));
        rest = behind;
    }
    with.push_str(rest);
    if with.contains(['?', '#']) {
        return Err("the replacement is more than a path".to_owned());
    }
    Ok(rewrite(Map::new().with("replace", Map::new().with(regex.searching(), with))))
}

/// Keeps the path as it came, as Traefik does with X-Replaced-Path.
fn keep_old() -> Vec<Filter> {
    let headers =
        Headers { request_set: vec![("x-replaced-path".to_owned(), "{path}".into())], ..Headers::default() };
    headers.filter().into_iter().collect()
}

fn rewrite(map: Map) -> Filter {
    Filter::new("rewrite", map)
}

pub(super) fn add_prefix(cx: &mut Cx<'_, '_>, entry: &Entry, fields: &mut Fields<'_>) -> Vec<Filter> {
    cx.ledger.same(entry.piece);
    let Some((prefix, piece)) = fields.text("prefix", cx.ledger) else { return Vec::new() };
    let prefix = prefix.trim_end_matches('/').to_owned();
    cx.ledger.same(piece);
    if prefix.is_empty() {
        return Vec::new();
    }
    let prefix = if prefix.starts_with('/') { prefix } else { format!("/{prefix}") };
    vec![rewrite(Map::new().with("add_prefix", Template::text(&prefix).to_setting()))]
}

/// The first prefix that the path begins with is removed.
pub(super) fn strip_prefix(cx: &mut Cx<'_, '_>, entry: &Entry, fields: &mut Fields<'_>) -> Vec<Filter> {
    cx.ledger.same(entry.piece);
    if let Some(entry) = fields.entry("forceSlash") {
        cx.ledger.by_itself(entry.piece, "what is left always begins with a slash");
    }
    let Some((prefixes, piece)) = list(fields, "prefixes", cx.ledger) else { return Vec::new() };
    let mut chosen: Vec<Filter> = Vec::new();
    let several = prefixes.len() > 1;
    for prefix in prefixes.iter().rev() {
        let plain = prefix.trim_end_matches('/');
        if plain.is_empty() {
            cx.ledger.by_itself(piece, "`/` leaves the path as it is");
            continue;
        }
        let plain = if plain.starts_with('/') { plain.to_owned() } else { format!("/{plain}") };
        let strip = rewrite(Map::new().with("strip_prefix", plain.clone()));
        match several {
            false => chosen = vec![strip],
            true => {
                let path = || Expression::raw("request.path");
                let is = path().equals(Expression::text(&plain)).or(path().starts_with(&format!("{plain}/")));
                chosen = filters::when(&is, vec![strip], chosen);
            }
        }
        if prefix == &plain {
            cx.ledger.changed(piece, format!("`{plain}x` goes on as it is; Traefik sends `/x`"));
        } else {
            cx.ledger.same(piece);
        }
    }
    chosen
}

/// What a pattern finds is removed, if the path begins with it.
pub(super) fn strip_prefix_regex(
    cx: &mut Cx<'_, '_>,
    entry: &Entry,
    fields: &mut Fields<'_>,
    chain: &mut Chain,
) -> Vec<Filter> {
    cx.ledger.same(entry.piece);
    let Some((patterns, piece)) = list(fields, "regex", cx.ledger) else { return Vec::new() };
    let [pattern] = &*patterns else { return strip_several(cx, &patterns, piece) };
    let inner = pattern.trim_start_matches('^');
    let inner = if inner.contains('|') { format!("(?:{inner})") } else { inner.to_owned() };
    // A slash behind the match would be doubled.
    let anchored = format!("^{}/?", inner.trim_end_matches('/'));
    let made = Regexed::read(&anchored).map(|regexed| Apart {
        at: chain.filters.len(),
        path: regexed.whole,
        start: regexed.start,
        filters: vec![rewrite(Map::new().with("path", format!("/{{{AFTER}}}")))],
    });
    match made.and_then(|apart| chain.set_apart(apart)) {
        Ok(()) => {
            cx.ledger.changed(piece, "a route of its own for the pattern; X-Forwarded-Prefix is not sent")
        }
        Err(_) => return strip_several(cx, &patterns, piece),
    }
    Vec::new()
}

/// Patterns in the order written: the first that the path begins with is removed.
fn strip_several(cx: &mut Cx<'_, '_>, patterns: &[String], piece: crate::ledger::Piece) -> Vec<Filter> {
    let mut rules = Map::new();
    for pattern in patterns {
        let inner = pattern.trim_start_matches('^').trim_end_matches('/');
        match Searching::read(&format!("^(?:{inner})/?"), false, Subject::Path) {
            Ok(regex) => rules.set(regex.searching(), "/"),
            Err(why) => {
                cx.ledger.refused(piece, format!("`{pattern}`: {why}"), "rewrite: { replace }");
                return vec![filters::closed("its path would be another with Traefik")];
            }
        }
    }
    cx.ledger.changed(piece, "X-Forwarded-Prefix is not sent");
    vec![rewrite(Map::new().with("replace", rules))]
}

pub(super) fn replace(cx: &mut Cx<'_, '_>, entry: &Entry, fields: &mut Fields<'_>) -> Vec<Filter> {
    cx.ledger.same(entry.piece);
    let Some((path, piece)) = fields.text("path", cx.ledger) else { return Vec::new() };
    if !path.starts_with('/') || path.contains(['?', '#']) {
        cx.ledger.refused(piece, "not a path alone", "rewrite: { path, query }");
        return vec![filters::closed("its path would be another with Traefik")];
    }
    cx.ledger.same(piece);
    let mut out = keep_old();
    out.push(rewrite(Map::new().with("path", Template::text(&path).to_setting())));
    out
}

pub(super) fn replace_regex(
    cx: &mut Cx<'_, '_>,
    entry: &Entry,
    fields: &mut Fields<'_>,
    chain: &mut Chain,
) -> Vec<Filter> {
    cx.ledger.same(entry.piece);
    let regex = fields.text("regex", cx.ledger);
    let replacement = fields.text("replacement", cx.ledger);
    // Requests that the redirect led away would reach the service: in plain text, for instance.
    let instead = || vec![filters::closed(&format!("requests that {} redirects would pass", entry.key))];
    let (Some((pattern, piece)), Some((replacement, other))) = (regex, replacement) else {
        return instead();
    };
    let made = Regexed::read(&pattern).and_then(|regexed| {
        let path = regexed.filled_in(&replacement, 0)?;
        if path.contains(['?', '#']) {
            return Err("the replacement is more than a path".to_owned());
        }
        let path = if path.starts_with(['/', '{']) { path } else { format!("/{path}") };
        let mut filters = keep_old();
        filters.push(rewrite(Map::new().with("path", path)));
        Ok(Apart { at: chain.filters.len(), path: regexed.whole, start: regexed.start, filters })
    });
    match made.and_then(|apart| chain.set_apart(apart)) {
        Ok(()) => {
            cx.ledger.changed(piece, "a route of its own for the pattern, which sees the canonical path");
            cx.ledger.same(other);
        }
        Err(_) => match in_place(&pattern, &replacement) {
            Ok(filter) => {
                cx.ledger.changed(piece, "X-Replaced-Path is not sent");
                cx.ledger.same(other);
                return vec![filter];
            }
            Err(why) => {
                for piece in [piece, other] {
                    cx.ledger.refused(piece, why.clone(), "rewrite: { replace }");
                }
                return vec![filters::closed("its path would be another with Traefik")];
            }
        },
    }
    Vec::new()
}

/// The status of a redirect: Traefik answers GET with 301 or 302, and other methods with 308 or 307.
pub(super) const fn status(is_permanent: bool) -> u16 {
    if is_permanent { 308 } else { 307 }
}

/// What is said of that status.
pub(super) const STATUS: &str =
    "Traefik answers GET with 301 or 302, other methods with 308 or 307; Weir all with 308 or 307";

pub(super) fn redirect_scheme(
    cx: &mut Cx<'_, '_>,
    entry: &Entry,
    fields: &mut Fields<'_>,
    about: &About,
) -> Vec<Filter> {
    cx.ledger.changed(entry.piece, STATUS);
    let permanent = fields.flag("permanent", cx.ledger);
    permanent.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
    let status = status(permanent.is_some_and(|(flag, _)| flag));
    let port = fields.text("port", cx.ledger);
    port.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
    let port = port.map(|(port, _)| port).unwrap_or_default();
    if let Some(entry) = fields.entry("forcePermanentRedirect") {
        cx.ledger.by_itself(entry.piece, "308 for all methods");
    }
    let Some((scheme, piece)) = fields.text("scheme", cx.ledger) else { return Vec::new() };
    cx.ledger.same(piece);
    to_scheme(&scheme, &port, status, about.is_tls)
}

/// Redirects to a scheme and port, unless requests come by that scheme.
pub(super) fn to_scheme(scheme: &str, port: &str, status: u16, is_tls: bool) -> Vec<Filter> {
    match (scheme, is_tls) {
        ("https", true) | ("http", false) => Vec::new(),
        ("https", false) if port.is_empty() || port == "443" => vec![redirect_to_https(status)],
        (scheme, _) => {
            let port = match (scheme, port) {
                ("http", "80") | (_, "") => String::new(),
                (_, port) => format!(":{port}"),
            };
            vec![redirect(&format!("{scheme}://{{host}}{port}{{path}}"), status, true)]
        }
    }
}

/// A redirect by a pattern over the whole URL.
pub(super) fn redirect_regex(
    cx: &mut Cx<'_, '_>,
    entry: &Entry,
    fields: &mut Fields<'_>,
    about: &About,
    chain: &mut Chain,
) -> Vec<Filter> {
    cx.ledger.changed(entry.piece, STATUS);
    let permanent = fields.flag("permanent", cx.ledger);
    permanent.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
    let status = status(permanent.is_some_and(|(flag, _)| flag));
    let (regex, replacement) = (fields.text("regex", cx.ledger), fields.text("replacement", cx.ledger));
    // Requests that the redirect led away would reach the service: in plain text, for instance.
    let instead = || vec![filters::closed(&format!("requests that {} redirects would pass", entry.key))];
    let (Some((pattern, piece)), Some((replacement, other))) = (regex, replacement) else {
        return instead();
    };
    let made = by_host(&pattern, &replacement, status, about)
        .or_else(|_| by_path(&pattern, &replacement, status, about, chain).map(|()| Vec::new()));
    match made {
        Ok(filters) => {
            cx.ledger.same(piece);
            cx.ledger.same(other);
            filters
        }
        Err(why) => {
            for piece in [piece, other] {
                cx.ledger.refused(
                    piece,
                    why.clone(),
                    "redirect: { to } of a route whose path or host captures: docs/reference/routing.md#hosts",
                );
            }
            instead()
        }
    }
}

/// Asks the pattern for each of the router's hosts: it works if what follows the host passes through unchanged.
fn by_host(pattern: &str, replacement: &str, status: u16, about: &About) -> Result<Vec<Filter>, String> {
    if about.hosts.is_empty() {
        return Err("the router names no host".to_owned());
    }
    let regex = regex::RegexBuilder::new(pattern)
        .size_limit(1 << 20)
        .build()
        .map_err(|_| "Weir cannot read the pattern".to_owned())?;
    let scheme = if about.is_tls { "https" } else { "http" };
    let mut filters = Vec::new();
    let mut all: Option<String> = None;
    let mut matching = 0;
    for host in &about.hosts {
        let ask = |rest: &str| {
            let url = format!("{scheme}://{host}{rest}");
            if !regex.is_match(&url) {
                return None;
            }
            let new = regex.replace_all(&url, replacement).into_owned();
            (new != url).then_some(new)
        };
        let probes = ["/", "/q7z", "/q7z/w8x.y", "/q7z?k=v"];
        let answers: Vec<Option<String>> = probes.iter().map(|rest| ask(rest)).collect();
        if answers.iter().all(Option::is_none) {
            continue;
        }
        let answers: Vec<String> =
            answers.into_iter().collect::<Option<_>>().ok_or("the pattern finds some paths only")?;
        let (to, keeps) = match answers[1].strip_suffix("/q7z") {
            Some(start)
                if probes.iter().zip(&answers).all(|(rest, got)| *got == format!("{start}{rest}")) =>
            {
                (format!("{}{{path}}", Template::text(start).to_setting()), true)
            }
            _ if answers.iter().all(|got| *got == answers[0]) => {
                (Template::text(&answers[0]).to_setting(), false)
            }
            _ => return Err("the target changes the path".to_owned()),
        };
        if !to.contains("://") {
            return Err("the target is no URL".to_owned());
        }
        matching += 1;
        all = Some(to.clone()).filter(|to| all.as_ref().is_none_or(|all| all == to));
        let is = Expression::raw("request.host").equals(Expression::text(host));
        filters.extend(filters::when(&is, vec![redirect(&to, status, keeps)], Vec::new()));
        if matching == about.hosts.len() && about.hosts.len() == 1 {
            return Ok(vec![redirect(&to, status, keeps)]);
        }
    }
    if matching == 0 {
        return Err("the pattern finds none of the router's URLs as far as weir import can tell".to_owned());
    }
    Ok(filters)
}

/// A pattern for any host whose path has groups: a second route.
fn by_path(
    pattern: &str,
    replacement: &str,
    status: u16,
    about: &About,
    chain: &mut Chain,
) -> Result<(), String> {
    let cannot = || "Weir redirects by path, or by host: this pattern is about both".to_owned();
    let rest = pattern.trim_start_matches('^');
    let (scheme, rest) = rest.split_once("://").ok_or_else(cannot)?;
    let (is_scheme, groups_of_scheme) = match scheme {
        "https?" | ".*" | ".+" | "http[s]?" => (true, 0),
        "(https?)" | "(http|https)" | "(.*)" | "(.+)" => (true, 1),
        "http" => (!about.is_tls, 0),
        "https" => (about.is_tls, 0),
        _ => return Err(cannot()),
    };
    let mut in_class = false;
    let slash = rest.char_indices().find(|(_, c)| {
        in_class = *c == '[' || in_class && *c != ']';
        *c == '/' && !in_class
    });
    let (at, _) = slash.ok_or_else(cannot)?;
    let (host, path) = rest.split_at(at);
    let any = |host: &str| matches!(host, "[^/]+" | "[^/]*" | ".*" | ".+" | "[^/:]+");
    let (is_host, groups_of_host) = match host {
        host if any(host) => (true, 0),
        host if any(host.trim_start_matches('(').trim_end_matches(')')) => (true, 1),
        host => {
            let regex = regex::Regex::new(&format!("^(?:{host})$")).map_err(|_| cannot())?;
            let all = !about.hosts.is_empty() && about.hosts.iter().all(|own| regex.is_match(own));
            (all, regex.captures_len() - 1)
        }
    };
    if !is_scheme || !is_host || path.contains("\\?") {
        return Err(cannot());
    }
    let skipped = groups_of_scheme + groups_of_host;
    let regexed = Regexed::read(&format!("^{path}"))?;
    let to = regexed.filled_in(replacement, skipped)?;
    let starts = ["http://", "https://"].iter().find_map(|start| to.strip_prefix(start));
    if starts.is_none_or(|rest| rest.split('/').next().is_some_and(|host| host.contains('{'))) {
        return Err("the host of the target comes from the request".to_owned());
    }
    let filters = vec![redirect(&to, status, true)];
    chain.set_apart(Apart { at: chain.filters.len(), path: regexed.whole, start: regexed.start, filters })
}
