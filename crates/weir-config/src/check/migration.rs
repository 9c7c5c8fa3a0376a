//! Warns of spellings from other gateways that are valid here but mean something else. All may be intended.

use super::Checker;
use super::spot::Spot;
use crate::node::Node;
use crate::schema::{FilterNode, Match, Route, Written};

/// Variables of nginx with our placeholder for each; none if we have no such placeholder.
const VARIABLES: &[(&str, Option<&str>)] = &[
    ("args", Some("{query}")),
    ("host", Some("{host}")),
    ("http_host", Some("{authority}")),
    ("is_args", None),
    ("proxy_add_x_forwarded_for", None),
    ("query_string", Some("{query}")),
    ("remote_addr", Some("{client}")),
    ("remote_user", Some("{consumer}")),
    ("request_id", Some("{request_id}")),
    ("request_method", Some("{method}")),
    ("request_uri", Some("{path}")),
    ("scheme", Some("{scheme}")),
    ("server_name", Some("{host}")),
    ("ssl_client_s_dn", Some("{tls_client_subject}")),
    ("uri", Some("{path}")),
];

/// Filters with templates, and the keys or maps of templates in their settings.
const TEMPLATES: &[(&str, &[&str])] = &[
    ("headers", &["request.set", "request.add", "response.set", "response.add"]),
    ("redirect", &["to"]),
    ("rewrite", &["path", "host", "query.set", "query.add"]),
];

/// Header fields whose values contain more than the word that people match.
const LONG_FIELDS: &[&str] = &["accept", "cookie", "referer", "user-agent"];

/// Statuses that deny access.
const DENIALS: &[u16] = &[401, 403, 404, 410];

impl Checker<'_> {
    /// Warns of texts that other gateways read differently.
    pub(super) fn migrations(&mut self) {
        let config = self.config;
        let section = Spot::section(self.tree, "routes");
        for Written { name, thing: route, node } in config.routes.written(section.node()) {
            let at = section.thing(name, node);
            let at_match = at.key("match");
            let at_path = at_match.key("path");
            for (index, path) in route.matches.path.iter().enumerate() {
                match route.matches.path.is_list() {
                    true => self.path_of_another(&at_path.index(index), path),
                    false => self.path_of_another(&at_path, path),
                }
            }
            for (index, host) in route.matches.hosts.iter().enumerate() {
                self.host_of_another(&at_match.key("hosts").index(index), host);
            }
            for (key, values) in [("headers", &route.matches.headers), ("query", &route.matches.query)] {
                let at = at_match.key(key);
                for (name, value) in &values.0 {
                    self.value_of_another(&at.key(name), name, value);
                }
            }
            if let Some(body) = at.key("respond").key("body").node() {
                self.variable(&at.key("respond").key("body").path(), body, false);
            }
            self.outranked(&at, name, route);
        }
        for filter in self.filters() {
            self.variables(filter);
        }
    }

    fn path_of_another(&mut self, at: &Spot<'_, '_>, path: &str) {
        if at.node().is_none_or(|node| node.substituted) {
            return;
        }
        if let Some(regex) = path.strip_prefix('~') {
            // No path begins with `.`, so nothing would match.
            if regex.starts_with("\\.") {
                let message = format!(
                    "no path begins so, and a regular expression matches the whole path: {path} takes none"
                );
                self.warn(&at.path(), "whole-path", message, format!("write ~.*{regex}"));
                return;
            }
            // `^` is not needed here; people who write it expect a regular expression to match a part.
            let open = regex.starts_with('^') && !regex.ends_with('$') && !ends_open(regex);
            let balanced = |open, close| regex.matches(open).count() == regex.matches(close).count();
            // For a malformed one, report only where it breaks.
            if open && balanced('[', ']') && balanced('(', ')') {
                let message =
                    "a regular expression must match the whole path, and this one allows nothing after it";
                let hint =
                    format!("write {path}.* for everything that begins so, or {path}$ for exactly this");
                self.warn(&at.path(), "whole-path", message, hint);
            }
            return;
        }
        if let Some((at_key, query)) = path.split_once('?').filter(|(path, _)| path.starts_with('/')) {
            let hint = match query.split_once('=') {
                Some((name, value)) => {
                    format!("write path: {at_key}, and query: {{ {name}: \"{value}\" }} beside it")
                }
                None => format!("write path: {at_key}, and query: {{ NAME: \"*\" }} beside it"),
            };
            let message = "a path holds no query: no request takes this route";
            self.warn(&at.path(), "query-in-path", message, hint);
            return;
        }
        for segment in path.split('/') {
            let named = |open: char, close: &str| segment.strip_prefix(open)?.strip_suffix(close);
            let name = named(':', "").or_else(|| named('<', ">")).or_else(|| named('[', "]"));
            let name =
                name.map(|name| name.rsplit(':').next().unwrap_or(name).trim_end_matches(['?', '*', '+']));
            let is_name = |name: &&str| {
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            };
            if let Some(name) = name.filter(is_name) {
                let message = format!("`{segment}` is literal text here, and matches no other segment");
                let hint = format!("write {{{name}}} for any segment");
                self.warn(&at.path(), "literal-parameter", message, hint);
            }
        }
    }

    /// Warns of a regular expression that was meant to match a part of the host, as in nginx.
    fn host_of_another(&mut self, at: &Spot<'_, '_>, host: &str) {
        let Some(regex) = host.strip_prefix('~') else { return };
        if at.node().is_none_or(|node| node.substituted) {
            return;
        }
        let begins = regex.starts_with('^') && !regex.ends_with('$') && !ends_open(regex);
        let ends =
            !regex.starts_with(['^', '.', '(', '[']) && regex.ends_with('$') || regex.starts_with("\\.");
        if begins || ends {
            let message =
                "a regular expression must match the whole host, and this one allows no other text around it";
            let hint = match begins {
                true => format!("write {host}.* for every host that begins so, or {host}$ for exactly this"),
                false => {
                    format!("write ~.*{regex} for every host that ends so, or ~^{regex} for exactly this")
                }
            };
            self.warn(&at.path(), "whole-host", message, hint);
        }
    }

    /// Checks a condition on a header field or a query parameter.
    fn value_of_another(&mut self, at: &Spot<'_, '_>, name: &str, value: &str) {
        if at.node().is_none_or(|node| node.substituted) {
            return;
        }
        let negated = ["!~", "!=", "~!"].iter().any(|sign| value.starts_with(sign)) || value == "!*";
        if negated {
            let message = format!("this is no negation: {name} must equal `{value}` literally");
            let key = if at.path().contains(".match.query.") { "query" } else { "headers" };
            let plain = match value.trim_start_matches(['!', '=', '~']) {
                regex if value.contains('~') && key == "headers" => format!("~{regex}"),
                plain => plain.to_owned(),
            };
            let hint = format!("write not: {{ {key}: {{ {name}: \"{plain}\" }} }} beside it");
            self.warn(&at.path(), "no-negation", message, hint);
            return;
        }
        let Some(regex) = value.strip_prefix('~') else { return };
        let plain = regex.bytes().all(|b| b.is_ascii_alphanumeric() || b"|()-_ /".contains(&b));
        let a_word = LONG_FIELDS.contains(&name.to_ascii_lowercase().as_str()) && plain;
        let begins = regex.starts_with('^') && !regex.ends_with('$') && !ends_open(regex);
        let ends = regex.ends_with('$') && !regex.starts_with('^') && !regex.starts_with(".*");
        if a_word || begins || ends {
            let message = "a regular expression must match the whole value, and this one allows no other text around it";
            let core = regex.trim_start_matches('^').trim_end_matches('$');
            let form = match (begins, ends) {
                (true, _) => format!("~{core}.*"),
                (_, true) => format!("~.*{core}"),
                _ => format!("~.*({core}).*"),
            };
            let exact = if core.contains('|') { format!("~^({core})$") } else { format!("~^{core}$") };
            let hint = format!("write \"{form}\", or \"{exact}\" for exactly this");
            self.warn(&at.path(), "whole-value", message, hint);
        }
    }

    fn variables(&mut self, filter: &FilterNode) {
        let Some((_, keys)) = TEMPLATES.iter().find(|(name, _)| *name == filter.name) else { return };
        for key in *keys {
            let Some(node) = filter.node.find(key) else { continue };
            let path = format!("{}.{key}", filter.path);
            if node.as_text().is_some() {
                self.variable(&path, node, true);
            }
            for (name, value) in node.entries() {
                self.variable(&format!("{path}.{}", name.text), value, false);
            }
        }
    }

    /// Warns of a text in which nginx would fill in a variable. `numbered` says that `$1` has no other meaning here,
    /// such as an amount.
    fn variable(&mut self, path: &str, node: &Node, numbered: bool) {
        let Some(text) = node.as_text().filter(|_| !node.substituted && (!node.secret || node.quotable))
        else {
            return;
        };
        for (at, _) in text.match_indices('$') {
            let rest = &text[at + 1..];
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let name = &rest[..end];
            let (meant, hint) = match VARIABLES.iter().find(|(known, _)| *known == name) {
                Some((_, Some(_))) => (true, format!("write {}", translated(text))),
                Some((_, None)) => (true, "leave it out: the gateway sets it".to_owned()),
                None if name.starts_with("http_")
                    || name.starts_with("arg_")
                    || name.starts_with("cookie_") =>
                {
                    (true, "no placeholder holds a field, a parameter or a cookie of the request".to_owned())
                }
                None => {
                    let hint = "name the part in the path of the route, such as /api/{rest*}, and write {rest}; or \
                                rewrite: { replace: { \"^/a/(.*)$\": \"/b/$1\" } }";
                    (numbered && matches!(name.as_bytes(), [b'0'..=b'9']), hint.to_owned())
                }
            };
            if meant {
                let message = format!("`${name}` is not a placeholder and is sent literally");
                self.warn(path, "literal-variable", message, hint);
                return;
            }
        }
    }

    /// Warns of a route that denies access on any host, if a route with a host takes the same paths: the host is
    /// compared first.
    fn outranked(&mut self, at: &Spot<'_, '_>, name: &str, route: &Route) {
        let denies = route.respond.as_ref().is_some_and(|respond| DENIALS.contains(&respond.status));
        let is_open = !denies || !route.matches.hosts.is_empty();
        let paths = route.matches.path.iter().filter(|path| path.starts_with('/') && literal(path) != "/");
        for own in paths.filter(|_| !is_open) {
            self.outranked_path(at, (name, own), route);
        }
    }

    fn outranked_path(&mut self, at: &Spot<'_, '_>, (name, own): (&str, &str), route: &Route) {
        let takes = |path: &str| path.ends_with('*') || path.ends_with("*}");
        let covers = |m: &Match| {
            let own = literal(own);
            let is_plain = m.headers.0.is_empty() && m.query.0.is_empty() && m.methods.is_empty();
            let is_open = is_plain && m.cookies.0.is_empty() && m.clients.is_empty() && m.not.all.is_empty();
            let holds = |path: &str| path.starts_with('/') && takes(path) && own.starts_with(literal(path));
            !m.hosts.is_empty() && is_open && m.path.iter().any(holds)
        };
        let same = |host: &str| {
            let mut all = self.config.routes.iter();
            all.any(|(other, r)| {
                other != name
                    && r.matches.path == route.matches.path
                    && r.matches.hosts.iter().any(|h| h == host)
            })
        };
        let others = self.config.routes.iter().filter(|(_, other)| covers(&other.matches));
        let hole = others.flat_map(|(other, r)| r.matches.hosts.iter().map(move |host| (other, host)));
        if let Some((other, host)) = hole.into_iter().find(|(_, host)| !same(host)) {
            let message = format!(
                "route `{other}` matches these requests on {host}, because a route with a host beats one without: they are not refused there"
            );
            let hint = format!("write it once more with hosts: [ {host} ]");
            let hosts = format!("routes.{other}.match.hosts");
            self.warn_with(&at.key("match").path(), &[&hosts], "outranked-by-host", message, hint);
        }
    }
}

/// A text with our placeholders in place of nginx's variables, if it has any.
fn translated(text: &str) -> String {
    let mut out = text.to_owned();
    // The longest first: `$host` is not part of `$http_host`, but `$uri` might be part of another.
    let mut known: Vec<_> = VARIABLES.iter().filter_map(|(name, to)| Some((name, (*to)?))).collect();
    known.sort_unstable_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    for (name, to) in known {
        out = out.replace(&format!("${name}"), to);
    }
    out
}

/// Whether a regular expression ends so that more text may follow.
fn ends_open(regex: &str) -> bool {
    [".*", ".+", ".*)", ".+)", ".*)?", ".+)?", ".*?", "]*", "]+"].iter().any(|end| regex.ends_with(end))
}

/// The part of a path before its first placeholder or `*`.
fn literal(path: &str) -> &str {
    &path[..path.find(['{', '*']).unwrap_or(path.len())]
}
