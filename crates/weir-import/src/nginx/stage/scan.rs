//! What the lines of nginx's config tell apart.

use super::super::read::Directive;
use super::{fronts, line_of};
use crate::proof::patterns::{
    Condition, Effect, Origin, PathKind, PathPattern, Patterns, Setting, Site, Subject,
};
use crate::proof::witness::MAX_AT_LIMIT;
use crate::proof::{edges, edges_of_network, samples};
use crate::shared::units::read_size;
use std::collections::{BTreeMap, BTreeSet};

/// The largest body that nginx takes without `client_max_body_size`.
const BODY_LIMIT: u64 = 1 << 20;

/// Most values of a map.
const MAX_VALUES: usize = 64;

struct Scan<'a> {
    patterns: Patterns,
    /// Addresses of blocks `upstream`.
    upstreams: BTreeMap<&'a str, Vec<String>>,
    /// Blocks `map` by their variable.
    maps: BTreeMap<&'a str, &'a Directive>,
    origins: BTreeSet<Origin>,
}

pub(super) fn patterns(http: &[Directive]) -> Patterns {
    let mut scan = Scan {
        patterns: Patterns { reads_one_field: true, ..Patterns::default() },
        upstreams: BTreeMap::new(),
        maps: BTreeMap::new(),
        origins: BTreeSet::new(),
    };
    for directive in http {
        match &*directive.name {
            "upstream" => {
                let servers = directive.block.iter().flatten().filter(|inner| inner.name == "server");
                let addresses: Vec<String> = servers.map(|server| with_port(server.first(), 80)).collect();
                scan.origins.extend(addresses.iter().map(|a| Origin { address: a.clone(), tls: false }));
                if addresses.len() > 1 {
                    scan.patterns.groups.push(addresses.clone());
                }
                let by_hash = |inner: &&Directive| matches!(&*inner.name, "hash" | "ip_hash" | "sticky");
                if directive.block.iter().flatten().any(|inner| by_hash(&inner)) {
                    scan.patterns.hashed.extend(addresses.iter().cloned());
                }
                scan.upstreams.insert(directive.first(), addresses);
            }
            "map" | "geo" | "split_clients" => {
                if let Some(variable) = directive.args.last() {
                    scan.maps.insert(variable, directive);
                }
            }
            _ => {}
        }
    }
    for server in http.iter().filter(|directive| directive.name == "server") {
        scan.site(server, http);
    }
    scan.patterns.origins = scan.origins.into_iter().collect();
    scan.patterns
}

impl<'a> Scan<'a> {
    fn site(&mut self, server: &'a Directive, http: &'a [Directive]) {
        let block = server.block.as_deref().unwrap_or_default();
        let mut site = Site {
            line: line_of(server),
            hosts: Vec::new(),
            fronts: fronts(server).into_iter().map(|(front, _)| front).collect(),
            paths: Vec::new(),
        };
        for names in block.iter().filter(|directive| directive.name == "server_name") {
            let taken = names.args.iter().filter(|name| !matches!(&***name, "_" | "" | "localhost_"));
            site.hosts.extend(taken.map(|name| (name.clone(), line_of(names))));
        }
        self.locations(&mut site, &[block, http]);
        // What the server does where no location takes a path.
        let chain = [block, http];
        let whole = self.pattern(server, PathKind::Prefix, "/", &chain);
        if !site.paths.iter().any(|path| path.kind == PathKind::Prefix && path.text == "/") {
            site.paths.push(whole);
        }
        self.patterns.sites.push(site);
    }

    /// The locations of the innermost block of `chain`.
    fn locations(&mut self, site: &mut Site, chain: &[&'a [Directive]]) {
        let Some(block) = chain.first() else { return };
        for location in block.iter().filter(|directive| directive.name == "location") {
            let (kind, text) = match &*location.args {
                [kind, text] => match &**kind {
                    "=" => (PathKind::Exact, text.as_str()),
                    "~" => (PathKind::Regex { ignores_case: false }, text.as_str()),
                    "~*" => (PathKind::Regex { ignores_case: true }, text.as_str()),
                    _ => (PathKind::Prefix, text.as_str()),
                },
                [text] => match text.strip_prefix('=') {
                    Some(path) => (PathKind::Exact, path),
                    None => match text.strip_prefix("~*") {
                        Some(pattern) => (PathKind::Regex { ignores_case: true }, pattern),
                        None => match text.strip_prefix('~') {
                            Some(pattern) => (PathKind::Regex { ignores_case: false }, pattern),
                            None => (PathKind::Prefix, text.strip_prefix("^~").unwrap_or(text)),
                        },
                    },
                },
                _ => continue,
            };
            let inner = location.block.as_deref().unwrap_or_default();
            let mut inside: Vec<&[Directive]> = vec![inner];
            inside.extend(chain);
            let pattern = self.pattern(location, kind, text, &inside);
            // A named one is reached by others only.
            if !text.starts_with('@') {
                site.paths.push(pattern);
            }
            self.locations(site, &inside);
        }
    }

    fn pattern(
        &mut self,
        directive: &Directive,
        kind: PathKind,
        text: &str,
        chain: &[&'a [Directive]],
    ) -> PathPattern {
        let mut pattern = PathPattern {
            line: line_of(directive),
            kind,
            text: text.to_owned(),
            settings: Vec::new(),
            conditions: Vec::new(),
            body_limit: None,
            burst: None,
            endpoints: Vec::new(),
            mirrors: false,
        };
        let variables = literals(chain);
        for (depth, block) in chain.iter().enumerate() {
            // What stands in http reads fields for all; only its settings matter here.
            let is_http = depth + 1 == chain.len();
            self.block(block, is_http, &variables, &mut pattern);
        }
        if pattern.body_limit.is_none() {
            pattern.body_limit = Some((BODY_LIMIT, pattern.line.clone()));
        }
        if let Some((0, _)) = pattern.body_limit {
            pattern.body_limit = None;
        }
        pattern
    }

    fn block(
        &mut self,
        block: &'a [Directive],
        is_http: bool,
        variables: &BTreeMap<String, String>,
        pattern: &mut PathPattern,
    ) {
        // What stands in an `if` or `limit_except` acts before what stands beside it.
        for directive in block {
            if matches!(&*directive.name, "if" | "limit_except") {
                if directive.name == "if" {
                    self.condition(directive, pattern);
                } else {
                    let line = line_of(directive);
                    let values = directive.args.clone();
                    pattern.conditions.push(Condition { line, of: Subject::Method, values });
                }
                self.block(directive.block.as_deref().unwrap_or_default(), false, variables, pattern);
            }
        }
        for directive in block.iter().filter(|directive| directive.block.is_none()) {
            let line = line_of(directive);
            for effect in effects(directive) {
                pattern.settings.push(Setting { effect, line: line.clone() });
            }
            match &*directive.name {
                "client_max_body_size" if pattern.body_limit.is_none() => {
                    pattern.body_limit = read_size(directive.first()).map(|bytes| (bytes, line.clone()));
                }
                "limit_req" if pattern.burst.is_none() => {
                    let burst = directive.args.iter().find_map(|word| word.strip_prefix("burst="));
                    let is_now = directive.args.iter().any(|word| word == "nodelay");
                    let burst = burst.and_then(|burst| burst.parse().ok()).unwrap_or(0);
                    if burst >= MAX_AT_LIMIT {
                        let why = format!("the proof sends {MAX_AT_LIMIT} requests to a limit at most");
                        self.patterns.unprovable.push((line.clone(), why));
                    } else if is_now || burst == 0 {
                        pattern.burst = Some((burst, line.clone()));
                    } else {
                        let why = "it depends on time: requests wait".to_owned();
                        self.patterns.unprovable.push((line.clone(), why));
                    }
                }
                "mirror" => pattern.mirrors = directive.first() != "off",
                "allow" | "deny" => {
                    let values = edges_of_network(directive.first());
                    if !values.is_empty() {
                        add(pattern, Condition { line: line.clone(), of: Subject::Client, values });
                    } else if directive.first() != "all" {
                        let why = "the clients of the proof have IPv4 addresses".to_owned();
                        self.patterns.unprovable.push((line.clone(), why));
                    }
                }
                name if name.ends_with("_pass") => self.target(directive, variables, pattern),
                _ => {}
            }
            if !is_http {
                self.mentions(directive, pattern);
            }
        }
    }

    /// Where a `proxy_pass` leads.
    fn target(
        &mut self,
        directive: &Directive,
        variables: &BTreeMap<String, String>,
        pattern: &mut PathPattern,
    ) {
        let target = expand(directive.first(), variables);
        let (scheme, rest) = target.split_once("://").unwrap_or(("", &target));
        let tls = matches!(scheme, "https" | "grpcs");
        let authority = match rest.strip_prefix("unix:") {
            Some(path) => format!("unix:{}", path.split(':').next().unwrap_or(path)),
            None => rest.split('/').next().unwrap_or(rest).to_owned(),
        };
        if authority.is_empty() || authority.contains('$') {
            let why = "where it leads depends on the request".to_owned();
            self.patterns.unprovable.push((line_of(directive), why));
            return;
        }
        let endpoints = match self.upstreams.get(&*authority) {
            Some(addresses) => {
                if tls {
                    let origins = addresses.iter().map(|a| Origin { address: a.clone(), tls: true });
                    self.origins.extend(origins);
                }
                addresses.clone()
            }
            None => {
                let address = with_port(&authority, if tls { 443 } else { 80 });
                self.origins.insert(Origin { address: address.clone(), tls });
                vec![address]
            }
        };
        if pattern.endpoints.is_empty() {
            pattern.endpoints = endpoints;
        }
    }

    /// An `if`: the values that it tells apart.
    fn condition(&mut self, directive: &Directive, pattern: &mut PathPattern) {
        let words: Vec<String> =
            directive.args.iter().map(|word| word.trim_matches(['(', ')']).to_owned()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
        let Some(of) = words.first().and_then(|variable| subject(variable)) else {
            // Through a map.
            self.mentions(directive, pattern);
            return;
        };
        let values = match (words.get(1).copied(), words.get(2).copied()) {
            (Some("=" | "!="), Some(value)) => vec![value.to_owned()],
            (Some("~" | "!~" | "~*" | "!~*"), Some(value)) => both(value),
            _ => vec!["1".to_owned()],
        };
        add(pattern, Condition { line: line_of(directive), of, values });
    }

    /// Variables of requests in a line, also through maps.
    fn mentions(&mut self, directive: &Directive, pattern: &mut PathPattern) {
        for arg in &directive.args {
            for (at, _) in arg.match_indices('$') {
                let rest = arg[at + 1..].trim_start_matches('{');
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                let variable = format!("${}", &rest[..end]);
                if let Some(map) = self.maps.get(&*variable) {
                    let of = match map.args.len() {
                        1 if map.name == "geo" => Some(Subject::Client),
                        _ => subject(map.first()),
                    };
                    let Some(of) = of else { continue };
                    let mut values = Vec::new();
                    for entry in map.block.iter().flatten() {
                        match entry.name.strip_prefix('~') {
                            _ if of == Subject::Client => values.extend(edges_of_network(&entry.name)),
                            Some(regex) => values.extend(both(regex.trim_start_matches('*'))),
                            None if matches!(&*entry.name, "default" | "hostnames" | "volatile" | "") => {}
                            None => values.push(entry.name.clone()),
                        }
                    }
                    values.truncate(MAX_VALUES);
                    add(pattern, Condition { line: line_of(map), of, values });
                } else if let Some(of) = subject(&variable) {
                    let values = vec!["weir-witness".to_owned()];
                    add(pattern, Condition { line: line_of(directive), of, values });
                }
            }
        }
    }
}

/// Texts that a regular expression finds itself in, and those at its edges.
fn both(pattern: &str) -> Vec<String> {
    let mut found = samples(pattern);
    found.extend(edges(pattern));
    found
}

fn add(pattern: &mut PathPattern, condition: Condition) {
    if !pattern.conditions.iter().any(|known| known.of == condition.of && known.values == condition.values) {
        pattern.conditions.push(condition);
    }
}

/// What a variable is read from. None for those that every request has anyway.
fn subject(variable: &str) -> Option<Subject> {
    let name = variable.strip_prefix('$')?;
    if let Some(field) = name.strip_prefix("http_") {
        // Host is asked elsewhere.
        return (field != "host").then(|| Subject::Field(field.replace('_', "-")));
    }
    if let Some(cookie) = name.strip_prefix("cookie_") {
        return Some(Subject::Cookie(cookie.to_owned()));
    }
    if let Some(argument) = name.strip_prefix("arg_") {
        return Some(Subject::Argument(argument.to_owned()));
    }
    match name {
        "request_method" => Some(Subject::Method),
        "args" | "query_string" | "is_args" => Some(Subject::Argument("weir".to_owned())),
        "content_type" => Some(Subject::Field("content-type".to_owned())),
        "remote_addr" | "binary_remote_addr" => Some(Subject::Client),
        "proxy_add_x_forwarded_for" => Some(Subject::Field("x-forwarded-for".to_owned())),
        _ => None,
    }
}

/// What a line changes, most telling first.
fn effects(directive: &Directive) -> Vec<Effect> {
    let field = |at: usize| directive.args.get(at).map_or_else(String::new, |name| name.to_ascii_lowercase());
    let is_on = directive.first() != "off";
    let codes = || directive.args.iter().filter_map(|arg| arg.parse().ok()).collect::<Vec<u16>>();
    match &*directive.name {
        "return" => {
            let codes = if codes().is_empty() { vec![302] } else { codes() };
            vec![Effect::Redirect, Effect::Status(codes), Effect::Body]
        }
        "rewrite" => vec![Effect::Redirect, Effect::Status(vec![301, 302]), Effect::Target],
        "deny" | "allow" | "satisfy" => vec![Effect::Status(vec![403])],
        "internal" => vec![Effect::Status(vec![404])],
        "limit_req" => vec![Effect::Status(vec![429, 503])],
        "auth_basic" | "auth_basic_user_file" if is_on => vec![Effect::Status(vec![401, 403])],
        "auth_request" => vec![Effect::Status(vec![401, 403, 500]), Effect::Who],
        "auth_request_set" => Vec::new(),
        "client_max_body_size" => vec![Effect::Status(vec![413])],
        "error_page" | "proxy_intercept_errors" => {
            vec![Effect::Status(codes()), Effect::Body, Effect::Redirect]
        }
        "proxy_set_header" | "grpc_set_header" => vec![Effect::UpstreamField(field(0))],
        "proxy_set_body" => vec![Effect::Target],
        "add_header" | "proxy_hide_header" | "proxy_pass_header" | "more_set_headers" => {
            vec![Effect::AnswerField(field(0))]
        }
        "expires" => vec![Effect::AnswerField("expires".into()), Effect::AnswerField("cache-control".into())],
        "gzip" | "gzip_vary" | "gzip_types" => {
            vec![Effect::AnswerField("content-encoding".into()), Effect::AnswerField("vary".into())]
        }
        "proxy_cookie_path" | "proxy_cookie_domain" | "proxy_cookie_flags" => {
            vec![Effect::AnswerField("set-cookie".into())]
        }
        "default_type" => vec![Effect::AnswerField("content-type".into())],
        "proxy_redirect" => vec![Effect::Redirect],
        "root" | "alias" | "index" | "autoindex" | "sub_filter" => vec![Effect::Body],
        "try_files" => vec![Effect::Who, Effect::Status(vec![403, 404]), Effect::Body, Effect::Target],
        name if name.ends_with("_pass") => vec![Effect::Who, Effect::Target],
        _ => Vec::new(),
    }
}

/// `set` with texts that need no request, by variable.
fn literals(chain: &[&[Directive]]) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for block in chain.iter().rev() {
        for set in block.iter().filter(|directive| directive.name == "set") {
            if let [variable, value] = &*set.args {
                let value = expand(value, &found);
                found.insert(variable.trim_start_matches('$').to_owned(), value);
            }
        }
    }
    found
}

/// A text with those of its variables filled in that are known.
fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let braced = behind.starts_with('{');
        let name = behind.trim_start_matches('{');
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
        match variables.get(&name[..end]) {
            Some(value) => out.push_str(value),
            None if &name[..end] == "scheme" => out.push_str("http"),
            None => {
                out.push('$');
                out.push_str(&name[..end]);
            }
        }
        rest = &name[end..];
        if braced {
            rest = rest.strip_prefix('}').unwrap_or(rest);
        }
    }
    out.push_str(rest);
    out
}

fn with_port(authority: &str, port: u16) -> String {
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if authority.starts_with("unix:") || has_port {
        authority.to_owned()
    } else {
        format!("{authority}:{port}")
    }
}
