//! What the lines of HAProxy's config tell apart.

use super::super::acl::{Condition, Facet, PathOf, Term, acls, condition};
use super::super::context::Cx;
use super::super::model::{Model, Proxy};
use super::super::read::Line;
use super::super::sample::{Scope, call};
use super::{counted_acls, fronts, is_timed, shown};
use crate::ledger::Ledger;
use crate::proof::patterns::{
    Condition as Told, Effect, Line as Shown, Origin, PathKind, PathPattern, Patterns, Setting, Site, Subject,
};
use crate::proof::witness::MAX_AT_LIMIT;
use crate::proof::{edges, edges_of_network, samples};
use crate::source::SourceTree;

/// Most sites of a frontend: one for each rule with hosts.
const MAX_SITES: usize = 400;
/// Most patterns of one criterion.
const MAX_PATTERNS: usize = 50;

pub(super) fn patterns(model: &Model<'_>, tree: &mut SourceTree<'_>, ledger: &mut Ledger) -> Patterns {
    let mut cx = Cx::new(ledger, tree, model);
    let mut patterns = Patterns::default();
    for proxy in model.proxies.iter().filter(|proxy| proxy.mode() == "http") {
        let (addresses, tls) = addresses(proxy);
        patterns.origins.extend(addresses.iter().map(|address| Origin { address: address.clone(), tls }));
        if addresses.len() > 1 {
            const BY_HASH: &[&str] = &["source", "uri", "url_param", "hdr", "rdp-cookie", "hash"];
            let balance = proxy.one(&["balance"]).map_or("", |line| line.word(1));
            if BY_HASH.iter().any(|name| balance.split('(').next() == Some(name)) {
                patterns.hashed.extend(addresses.iter().cloned());
            }
            patterns.groups.push(addresses);
        }
    }
    patterns.origins.sort();
    patterns.origins.dedup();
    for proxy in model.proxies.iter().filter(|proxy| proxy.mode() == "http" && proxy.is_front()) {
        if !super::super::is_statistics(proxy) && proxy.one(&["disabled"]).is_none() {
            frontend(&mut cx, proxy, &mut patterns);
        }
    }
    patterns
}

/// The addresses of a backend, as our config writes them, and whether they speak TLS.
fn addresses(proxy: &Proxy<'_>) -> (Vec<String>, bool) {
    let (mut found, mut tls) = (Vec::new(), proxy.all("default-server").any(|line| line.has(1, "ssl")));
    for line in proxy.lines.iter().filter(|line| matches!(line.key(), "server" | "server-template")) {
        let at = if line.key() == "server" { 2 } else { 3 };
        let text = line.word(at).trim_start_matches("ipv4@");
        let address = match text.strip_prefix("unix@").or_else(|| text.starts_with('/').then_some(text)) {
            Some(path) => format!("unix:{path}"),
            None => text.to_owned(),
        };
        if line.has(at + 1, "disabled") {
            continue;
        }
        tls |= line.has(at + 1, "ssl");
        if !found.contains(&address) {
            found.push(address);
        }
    }
    (found, tls)
}

fn frontend(cx: &mut Cx<'_, '_, '_>, proxy: &Proxy<'_>, patterns: &mut Patterns) {
    let scope = Scope { acls: acls(&proxy.lines), proxy: proxy.name.to_owned(), ..Scope::default() };
    let fronts: Vec<_> = fronts(cx.model, proxy).into_iter().map(|(front, _)| front).collect();
    if fronts.is_empty() {
        return;
    }
    let head = shown(&proxy.section.head);
    let model = cx.model;
    let default = proxy.one(&["default_backend"]);
    let fallback = match default {
        Some(line) => model.backend(line.word(1)),
        None if proxy.kind == "listen" => Some(proxy),
        None => None,
    };
    let mut conditions = Vec::new();
    told(&proxy.lines, &mut conditions);
    let burst = burst(cx, &scope, proxy).filter(|(passes, line)| {
        let is_small = *passes < MAX_AT_LIMIT;
        if !is_small {
            let why = format!("the proof sends {MAX_AT_LIMIT} requests to a limit at most");
            patterns.unprovable.push((line.clone(), why));
        }
        is_small
    });
    let own = settings(&proxy.lines);
    let path = |line: &Shown, kind: PathKind, text: &str, to: Option<&Proxy<'_>>, rule: Option<&Line>| {
        let mut all = Vec::new();
        if let Some(rule) = rule {
            all.push(Setting { effect: Effect::Who, line: shown(rule) });
        }
        let mut conditions = conditions.clone();
        if let Some(to) = to.filter(|to| to.kind == "backend") {
            all.extend(settings(&to.lines));
            told(&to.lines, &mut conditions);
        }
        all.extend(own.iter().cloned());
        PathPattern {
            line: line.clone(),
            kind,
            text: text.to_owned(),
            settings: all,
            conditions,
            body_limit: None,
            burst: burst.clone(),
            endpoints: to.map(|to| addresses(to).0).unwrap_or_default(),
            mirrors: false,
        }
    };
    // Paths that rules for all hosts tell apart.
    let mut common =
        vec![path(&default.map_or_else(|| head.clone(), shown), PathKind::Prefix, "/", fallback, default)];
    for line in &proxy.lines {
        for (kind, text) in criteria(line) {
            common.push(path(&shown(line), kind, &text, fallback, None));
        }
    }
    if let Some(backend) = fallback.filter(|backend| backend.kind == "backend") {
        for line in &backend.lines {
            for (kind, text) in criteria(line) {
                common.push(path(&shown(line), kind, &text, fallback, None));
            }
        }
    }
    let mut sites = Vec::new();
    for line in proxy.all("use_backend") {
        let to = model.backend(line.word(1));
        let found = condition(cx, &scope, line, 2);
        let shown_line = shown(line);
        for (hosts, paths) in alternatives(&found) {
            let mut all: Vec<PathPattern> = paths
                .iter()
                .map(|of| match of {
                    PathOf::Exact(text) => path(&shown_line, PathKind::Exact, text, to, Some(line)),
                    PathOf::Prefix(text) => path(&shown_line, PathKind::Prefix, text, to, Some(line)),
                })
                .collect();
            if let Some(backend) = to.filter(|backend| backend.kind == "backend") {
                for inner in &backend.lines {
                    let inside = criteria(inner).into_iter();
                    all.extend(inside.map(|(kind, text)| path(&shown(inner), kind, &text, to, Some(line))));
                }
            }
            if hosts.is_empty() {
                common.extend(all);
            } else if sites.len() < MAX_SITES {
                if paths.is_empty() {
                    all.push(path(&shown_line, PathKind::Prefix, "/", to, Some(line)));
                }
                sites.push((shown_line.clone(), hosts, all));
            }
        }
    }
    for (line, hosts) in mapped_hosts(cx, proxy) {
        let all = vec![path(&line, PathKind::Prefix, "/", None, None)];
        sites.push((line, hosts, all));
    }
    // Hosts of other rules.
    for line in &proxy.lines {
        let hosts = hosts_of(line);
        if !hosts.is_empty() && line.key() != "acl" {
            sites.push((shown(line), hosts, Vec::new()));
        }
    }
    patterns.sites.push(Site {
        line: head,
        hosts: Vec::new(),
        fronts: fronts.clone(),
        paths: common.clone(),
    });
    for (line, hosts, mut paths) in sites {
        if paths.is_empty() {
            paths.extend(common.first().cloned());
        }
        // What other rules tell apart for these hosts, too.
        paths.extend(common.iter().skip(1).take(20).cloned());
        let hosts = hosts.into_iter().map(|host| (host, line.clone())).collect();
        patterns.sites.push(Site { line, hosts, fronts: fronts.clone(), paths });
    }
}

/// The hosts and paths of each alternative.
fn alternatives(found: &Condition) -> Vec<(Vec<String>, Vec<PathOf>)> {
    let mut all = Vec::new();
    for terms in &found.any {
        let (mut hosts, mut paths) = (Vec::new(), Vec::new());
        for term in terms {
            match term {
                Term::Is(_, Some(Facet::Hosts(names))) => hosts.extend(names.clone()),
                Term::Is(_, Some(Facet::Paths(of))) => paths.extend(of.clone()),
                _ => {}
            }
        }
        hosts.truncate(MAX_PATTERNS);
        all.push((hosts, paths));
    }
    all
}

/// Hosts in a map by which the backend is chosen.
fn mapped_hosts(cx: &mut Cx<'_, '_, '_>, proxy: &Proxy<'_>) -> Vec<(Shown, Vec<String>)> {
    let mut found = Vec::new();
    for line in
        proxy.all("use_backend").filter(|line| line.word(1).contains("hdr(") && line.word(1).contains("map"))
    {
        let Some(path) = super::path_of_map(line.word(1)) else { continue };
        if let Ok(entries) = cx.entries(&path) {
            let hosts = super::super::context::pairs(&entries).into_iter().take(MAX_PATTERNS);
            found.extend(hosts.map(|(host, _)| (shown(line), vec![host.to_owned()])));
        }
    }
    found
}

/// Criteria within a line, each with its patterns: `path_beg -i /a /b`.
fn each_criterion(line: &Line) -> Vec<(String, Vec<String>, Vec<String>)> {
    let mut groups: Vec<&[String]> = Vec::new();
    if line.key() == "acl" {
        groups.push(line.from(2));
    } else {
        let words = &line.words;
        let mut open = None;
        for (at, word) in words.iter().enumerate() {
            match &**word {
                "{" | "!{" => open = Some(at + 1),
                "}" => {
                    if let Some(from) = open.take() {
                        groups.push(words.get(from..at).unwrap_or_default());
                    }
                }
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    for words in groups {
        let Some(first) = words.first() else { continue };
        let base = first.split(',').next().unwrap_or(first);
        let (name, args) = call(base);
        let mut name = name.to_owned();
        let mut patterns = Vec::new();
        let mut rest = words.iter().skip(1);
        while let Some(word) = rest.next() {
            match &**word {
                "-i" | "-n" | "--" => {}
                "-m" => name = format!("{name}_{}", rest.next().map_or("", String::as_str)),
                "-f" | "-M" | "-u" => _ = rest.next(),
                word => patterns.push(word.to_owned()),
            }
        }
        patterns.truncate(MAX_PATTERNS);
        found.push((name, args, patterns));
    }
    found
}

/// Paths that a line tells apart.
fn criteria(line: &Line) -> Vec<(PathKind, String)> {
    let mut found = Vec::new();
    let regex = PathKind::Regex { ignores_case: false };
    for (name, _, patterns) in each_criterion(line) {
        for pattern in patterns {
            let text = regex::escape(&pattern);
            match &*name {
                "path" | "path_str" => found.push((PathKind::Exact, pattern)),
                "path_beg" => found.push((PathKind::Prefix, pattern)),
                "path_end" => found.push((regex, format!("/w{text}$"))),
                "path_sub" => found.push((regex, format!("/w{text}w"))),
                "path_dir" => found.push((regex, format!("/w/{}/v", text.trim_matches('/')))),
                "path_reg" => found.push((regex, pattern)),
                _ => {}
            }
        }
    }
    if line.word(1) == "replace-path" {
        found.push((regex, line.word(2).to_owned()));
    }
    if line.key() == "monitor-uri" {
        found.push((PathKind::Exact, line.word(1).to_owned()));
    }
    found
}

/// Hosts that a line tells apart.
fn hosts_of(line: &Line) -> Vec<String> {
    let mut found = Vec::new();
    for (name, args, patterns) in each_criterion(line) {
        let is_host = args.first().is_some_and(|name| name.eq_ignore_ascii_case("host"));
        let is_name =
            |text: &String| text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
        for pattern in patterns.into_iter().filter(|pattern| is_host && is_name(pattern)) {
            match name.rsplit(['_', '.']).next().unwrap_or_default() {
                "beg" => found.push(format!("{pattern}w.test")),
                "end" => found.push(format!("w{pattern}")),
                "reg" => {}
                _ => found.push(pattern),
            }
        }
    }
    found
}

/// Requests that lines tell apart by something else.
fn told(lines: &[&Line], conditions: &mut Vec<Told>) {
    for line in lines {
        for (name, args, patterns) in each_criterion(line) {
            let argument = args.first().cloned().unwrap_or_default();
            let base = name.split('_').next().unwrap_or(&name);
            let (of, mut values) = match base {
                "hdr" | "req.hdr" | "req.fhdr"
                    if !argument.eq_ignore_ascii_case("host") && !argument.is_empty() =>
                {
                    (Subject::Field(argument.to_ascii_lowercase()), patterns)
                }
                "cook" | "req.cook" => (Subject::Cookie(argument), patterns),
                "urlp" => (Subject::Argument(argument), patterns),
                "url" if name.starts_with("url_param") => (Subject::Argument(argument), patterns),
                "method" => (Subject::Method, patterns),
                "src" => {
                    (Subject::Client, patterns.iter().flat_map(|network| edges_of_network(network)).collect())
                }
                _ => continue,
            };
            if of == Subject::Client {
                conditions.push(Told { line: shown(line), of, values });
                continue;
            }
            if name.ends_with("_found") || values.is_empty() {
                values = vec!["w".to_owned()];
            }
            if name.ends_with("_reg") {
                values =
                    values.iter().flat_map(|pattern| [samples(pattern), edges(pattern)].concat()).collect();
            }
            if name.ends_with("_sub") {
                values = values.into_iter().flat_map(|value| [format!("w{value}w"), value]).collect();
            }
            conditions.push(Told { line: shown(line), of, values });
        }
        let methods: Vec<String> = line
            .words
            .iter()
            .filter_map(|word| word.trim_start_matches('!').strip_prefix("METH_"))
            .map(str::to_owned)
            .collect();
        if !methods.is_empty() {
            let values = methods.into_iter().chain(["PUT".to_owned(), "POST".to_owned()]).collect();
            conditions.push(Told { line: shown(line), of: Subject::Method, values });
        }
    }
}

/// How many requests a counter lets pass at once.
fn burst(cx: &mut Cx<'_, '_, '_>, scope: &Scope<'_>, proxy: &Proxy<'_>) -> Option<(u32, Shown)> {
    let counted = counted_acls(&proxy.lines);
    let line = proxy.all("http-request").find(|line| is_timed(line, &counted) && line.word(1) == "deny")?;
    let found = condition(cx, scope, line, 2);
    found.any.iter().find_map(|all| match all.as_slice() {
        [Term::Rate(rate)] => Some((u32::try_from(rate.passes).ok()?, shown(line))),
        _ => None,
    })
}

/// What lines do to requests and answers.
fn settings(lines: &[&Line]) -> Vec<Setting> {
    let mut found = Vec::new();
    for line in lines {
        let mut add = |effect| found.push(Setting { effect, line: shown(line) });
        match (line.key(), line.word(1)) {
            ("http-request", "set-header" | "add-header" | "del-header") => {
                add(Effect::UpstreamField(line.word(2).to_ascii_lowercase()));
            }
            ("http-response" | "http-after-response", "set-header" | "add-header" | "del-header") => {
                add(Effect::AnswerField(line.word(2).to_ascii_lowercase()));
            }
            ("http-request", "deny" | "tarpit" | "auth" | "reject" | "silent-drop") => {
                add(Effect::Status(vec![401, 403, 405, 429, 500, 503, 0]));
            }
            ("http-request", "return") => {
                add(Effect::Status(Vec::new()));
                add(Effect::Body);
            }
            ("http-request", "redirect") | ("redirect", _) => {
                add(Effect::Redirect);
                add(Effect::Status(vec![301, 302, 303, 307, 308]));
            }
            ("http-request", "set-path" | "replace-path" | "set-uri" | "set-query") => add(Effect::Target),
            ("option", "forwardfor") => add(Effect::UpstreamField("x-forwarded-for".to_owned())),
            ("compression", _) => add(Effect::AnswerField("vary".to_owned())),
            ("errorfile" | "http-error", _) => add(Effect::Body),
            _ => {}
        }
    }
    found
}
