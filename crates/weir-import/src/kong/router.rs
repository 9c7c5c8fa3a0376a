//! Routes, one for each of their paths, in Kong's order of precedence.
//!
//! Kong 3 (`traditional_compatible`) sorts by: kinds of condition present, hosts all plain, number of fields, regex,
//! `regex_priority`, length of the prefix. A route with several paths counts as several. [`order`] keeps that order.

use super::consumers::Known;
use super::plugins::Plugins;
use super::services::{self, Service};
use super::{Kind, Kong};
use crate::config::{Case, Config, Filter, Match, Route, Target, name_of};
use crate::ledger::{Ledger, Piece};
use crate::shared::expression::Expression;
use crate::shared::filters;
use crate::shared::order::{self, Candidate, Host, Path};
use crate::shared::path;
use crate::shared::ranked;
use crate::shared::regex::{Searching, Subject, sure_start};
use crate::shared::template::Template;
use crate::shared::tree::Fields;
use crate::yaml::Map;
use std::cmp::Reverse;

/// With more services, all routes are in one file.
const MAX_FILES: usize = 50;
/// A capture of what follows the match of a regex.
const REST: &str = "after_match";

/// A path of a route.
struct Part {
    /// The route, by Kong's index.
    route: usize,
    rank: (usize, bool, usize, bool, u64, usize),
    candidate: Candidate,
    /// The path as Weir writes it.
    written: Option<String>,
    /// What is removed before the request goes on.
    strip: Strip,
    pieces: Vec<Piece>,
}

#[derive(Clone)]
enum Strip {
    Nothing,
    Prefix(String),
    /// What the regex matched; false if nothing can follow.
    Match(bool),
}

/// What a field of the request must be.
enum Field {
    Present,
    /// One of its values must match this pattern.
    Matches(String),
}

/// A route apart from its paths.
struct Body {
    title: String,
    service: Option<usize>,
    filters: Vec<Filter>,
    preserve: bool,
    /// The file of the route.
    file: String,
    /// Why it is closed: a part of it was refused. Then it matches at least what the route does.
    closed: Option<String>,
}

pub(super) fn translate(
    kong: &mut Kong<'_>,
    plugins: &Plugins<'_>,
    known: &Known,
    config: &mut Config,
    ledger: &mut Ledger,
) {
    let mut services = services::read(kong, ledger);
    let mut parts: Vec<Part> = Vec::new();
    let mut bodies: Vec<Option<Body>> = Vec::new();
    for at in 0..kong.of(Kind::Route).len() {
        let object = &kong.of(Kind::Route)[at];
        let service = object.of.get(&Kind::Service).copied();
        let mut title = object.title.clone();
        if title.is_empty() {
            title = service
                .map_or_else(|| "route".to_owned(), |service| kong.of(Kind::Service)[service].title.clone());
        }
        let is_lost = object.is_lost;
        let has_tilde = kong.has_tilde;
        let fields = kong.take(Kind::Route, at);
        let body = route(fields, at, title, service, has_tilde, &mut parts, ledger);
        let file = match service {
            Some(service) if services.len() <= MAX_FILES => name_of(&kong.of(Kind::Service)[service].title),
            _ => "routes".to_owned(),
        };
        bodies.push(body.map(|mut body| {
            body.file = file;
            if is_lost {
                body.closed.get_or_insert_with(|| "its service is not in the file".to_owned());
            }
            let own = plugins.filters(at, service, known, config, ledger);
            body.filters.splice(0..0, body.closed.as_deref().map(filters::closed));
            body.filters.extend(own);
            body
        }));
    }
    parts.retain(|part| bodies.get(part.route).is_some_and(Option::is_some));
    // The greater rank first; of equal ones the first in the file.
    parts.sort_by_key(|part| Reverse(part.rank));
    let ties: Vec<bool> = parts.windows(2).map(|pair| pair[0].rank == pair[1].rank).collect();
    let candidates: Vec<Candidate> = parts.iter().map(|part| part.candidate.clone()).collect();
    let kept = order::keep(&candidates);
    let mut names: Vec<Option<String>> = vec![None; parts.len()];
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|at| parts[*at].route);
    for at in order {
        let part = &parts[at];
        let Some(body) = bodies.get(part.route).and_then(Option::as_ref) else { continue };
        let kept = &kept[at];
        let name = |other: usize| bodies[parts[other].route].as_ref().map_or("", |body| body.title.as_str());
        if let Some(by) = kept.covered_by {
            let why = format!(
                "not written, because Kong never uses it: route `{}` takes all its requests",
                name(by)
            );
            part.pieces.iter().for_each(|piece| ledger.changed(*piece, why.clone()));
            continue;
        }
        if let Some(by) = kept.unsolved {
            let why = ranked::unsolved("Kong", name(by));
            part.pieces
                .iter()
                .for_each(|piece| ledger.refused(*piece, why.clone(), "priority, or match.when"));
        }
        if kept.priority > 0 && ties.get(at).is_some_and(|tie| *tie) {
            part.pieces.iter().for_each(|piece| {
                ledger.changed(
                    *piece,
                    "Kong decides between equal routes by their age; here the first in the file wins",
                );
            });
        }
        let mut written = build(part, body, &mut services, config, ledger);
        for not in &kept.nots {
            written.comment.push(format!("Kong prefers `{}`, so its requests are left to it.", name(*not)));
        }
        written.priority = kept.priority;
        written.matches.when = order::when(&candidates, kept, at);
        if let Some(by) = kept.unsolved {
            ranked::shut(&mut written, &ranked::unsolved("Kong", name(by)));
        }
        names[at] = Some(config.add_route(&body.title, written, part.pieces.clone()));
    }
    for case in order::cases(&candidates) {
        let (case, winner) = case;
        let route = winner.map(|at| names[at].clone());
        if route != Some(None) {
            config.tests.push(Case { route: route.flatten(), ..case });
        }
    }
}

fn build(
    part: &Part,
    body: &Body,
    services: &mut [Option<Service>],
    config: &mut Config,
    ledger: &mut Ledger,
) -> Route {
    let service = body.service.and_then(|at| services.get_mut(at)).and_then(Option::as_mut);
    let mut filters = body.filters.clone();
    // Filters that answer every request need no service.
    let answers = filters.iter().any(filters::answers);
    let target = match service {
        _ if answers => None,
        Some(service) => {
            filters.extend(rewrite(part, &service.path, ledger));
            Some(Target::Upstream(service.upstream(body.preserve, config)))
        }
        None => {
            let json = Some("{\"message\":\"no Service found with those values\"}".to_owned());
            Some(Target::Respond(filters::respond(503, json, Some("application/json"))))
        }
    };
    let mut matches = part.candidate.matches.clone();
    matches.hosts = part.candidate.hosts.iter().map(ToString::to_string).collect();
    matches.path = part.written.clone();
    Route { file: body.file.clone(), matches, filters, target, ..Route::default() }
}

/// What Kong sends instead of the path: the service's path and what is left of the client's.
fn rewrite(part: &Part, base: &str, ledger: &mut Ledger) -> Vec<Filter> {
    let literal = Template::text(base).to_setting();
    match &part.strip {
        Strip::Nothing if base.is_empty() => Vec::new(),
        Strip::Nothing => vec![Filter::new("rewrite", Map::new().with("add_prefix", base))],
        Strip::Prefix(prefix) => {
            let is_folder = prefix.ends_with('/');
            let prefix = prefix.trim_end_matches('/');
            if prefix.is_empty() {
                let add =
                    (!base.is_empty()).then(|| Filter::new("rewrite", Map::new().with("add_prefix", base)));
                return add.into_iter().collect();
            }
            let mut map = Map::new().with("strip_prefix", prefix);
            let mut why = format!("`{prefix}x` goes on as it is; Kong sends `/x`");
            if !base.is_empty() {
                map.set("add_prefix", base);
                why.push_str(&format!(". `{prefix}` goes on as `{base}/`; Kong sends `{base}`"));
            }
            if !is_folder {
                part.pieces.iter().for_each(|piece| ledger.changed(*piece, why.clone()));
            }
            vec![Filter::new("rewrite", map)]
        }
        Strip::Match(false) => {
            let path = if base.is_empty() { "/".to_owned() } else { literal };
            vec![Filter::new("rewrite", Map::new().with("path", path))]
        }
        Strip::Match(true) => {
            vec![Filter::new("rewrite", Map::new().with("path", format!("{literal}/{{{REST}}}")))]
        }
    }
}

/// Reads a route: its parts, and the rest of it. None if a condition of it cannot be said.
fn route(
    mut fields: Fields<'_>,
    at: usize,
    title: String,
    service: Option<usize>,
    has_tilde: bool,
    parts: &mut Vec<Part>,
    ledger: &mut Ledger,
) -> Option<Body> {
    let mut body =
        Body { title, service, filters: Vec::new(), preserve: false, file: String::new(), closed: None };
    let mut is_whole = true;
    let mut matches = Match::default();
    let (mut hosts, mut pieces) = (Vec::new(), Vec::new());
    let mut extra = Expression::constant(true);
    let mut weight = 0;
    let mut plain_hosts = false;
    if let Some((listed, piece)) = fields.texts("hosts", ledger).filter(|(listed, _)| !listed.is_empty()) {
        weight += 1;
        plain_hosts = listed.iter().all(|host| !host.contains('*'));
        pieces.push(piece);
        ledger.same(piece);
        let mut beginnings = Expression::constant(false);
        let mut is_any_host = false;
        for host in listed {
            let host = host.to_ascii_lowercase();
            match (host.strip_prefix('*'), host.strip_suffix('*')) {
                _ if host.trim_matches(['[', ']']).contains(':') => {
                    is_whole = false;
                    let name = host.rsplit_once(':').map_or("", |(name, _)| name);
                    hosts.push(Host::Exact(name.to_owned()));
                    ledger.refused(
                        piece,
                        format!("the port in `{host}`: Weir compares hosts without it"),
                        "match.listeners: a listener for the port",
                    );
                }
                (Some(ending), _) if ending.starts_with('.') => hosts.push(Host::Suffix(ending.to_owned())),
                (_, Some(beginning)) if beginning.ends_with('.') && !beginning.contains('*') => {
                    let starts = Expression::raw("request.host").starts_with(beginning);
                    beginnings = beginnings.or(starts);
                }
                (None, None) => hosts.push(Host::Exact(host)),
                _ => {
                    is_whole = false;
                    is_any_host = true;
                    ledger.refused(piece, format!("`{host}` is no host"), "match.hosts");
                }
            }
        }
        if beginnings.as_constant().is_none() {
            if !hosts.is_empty() {
                is_whole = false;
                is_any_host = true;
                ledger.refused(piece, "names and `NAME.*` in one list", "two routes, one with match.when");
            } else {
                extra = extra.and(Expression::raw(format!("({})", beginnings.as_str())));
            }
        }
        if is_any_host {
            hosts.clear();
            extra = Expression::constant(true);
        }
    }
    if let Some((methods, piece)) = fields.texts("methods", ledger).filter(|(methods, _)| !methods.is_empty())
    {
        weight += 1;
        ledger.same(piece);
        matches.methods = methods;
    }
    let mut header_count = 0;
    if let Some((node, piece)) =
        fields.map("headers", ledger).filter(|(node, _)| node.as_map().is_some_and(|map| !map.is_empty()))
    {
        weight += 1;
        ledger.same(piece);
        for entry in node.as_map().unwrap_or_default() {
            header_count += 1;
            match entry.node.as_texts().map(|values| field(&values)) {
                Some(Ok(Field::Present)) => {
                    matches.headers.push((entry.key.to_ascii_lowercase(), "*".to_owned()));
                    ledger.same(entry.piece);
                }
                Some(Ok(Field::Matches(pattern))) => {
                    // Kong takes a repeated field too, if one of its values fits.
                    let values = Expression::of("request.headers", &entry.key.to_ascii_lowercase());
                    let is = Expression::raw("v").matches(&pattern);
                    extra = extra.and(Expression::raw(format!(
                        "{}.all().exists(v, {})",
                        values.as_str(),
                        is.as_str()
                    )));
                    ledger.same(entry.piece);
                }
                other => {
                    is_whole = false;
                    let why =
                        other.and_then(Result::err).unwrap_or_else(|| "expected a list of texts".to_owned());
                    ledger.refused(entry.piece, why, "match.headers, or match.when");
                }
            }
        }
    }
    for key in ["snis", "sources", "destinations", "expression"] {
        if let Some(entry) =
            fields.entry(key).filter(|entry| entry.node.as_list().is_none_or(|list| !list.is_empty()))
        {
            is_whole = false;
            // The language of expressions has an order of its own, which nobody knows here.
            weight += if key == "expression" { 100 } else { 1 };
            let nearest = match key {
                "snis" => "match.hosts: the name of the request",
                "expression" => "match.when, and priority",
                _ => "listeners.NAME.tcp, or match.when with client.ip",
            };
            entry.each_piece(&mut |piece| ledger.refused(piece, "Weir does not match by this", nearest));
        }
    }
    let strips = fields.flag("strip_path", ledger);
    strips.iter().for_each(|(_, piece)| ledger.same(*piece));
    let protocols = fields.texts("protocols", ledger);
    let is_grpc =
        protocols.as_ref().is_some_and(|(list, _)| list.iter().any(|protocol| protocol.starts_with("grpc")));
    let strips = strips.map_or(!is_grpc, |(strips, _)| strips);
    if let Some((preserve, piece)) = fields.flag("preserve_host", ledger) {
        body.preserve = preserve;
        ledger.same(piece);
    }
    let regex_priority = fields.number("regex_priority", ledger).map_or(0, |(number, piece)| {
        ledger.same(piece);
        number
    });
    rest(&mut fields, protocols, &mut body, &mut is_whole, ledger);
    let paths = fields.texts("paths", ledger).filter(|(paths, _)| !paths.is_empty());
    super::refuse_rest(
        fields,
        "weir import does not know this key of a route",
        "docs/reference/config.md#routesname",
        ledger,
    );
    if weight == 0 && paths.is_none() {
        is_whole = false;
        ledger.note(format!("route `{}` has no condition: Kong refuses it", body.title));
    }
    let of = |strip, rank, path: Path, written, extra: Expression, pieces: Vec<Piece>| {
        let mut matches = matches.clone();
        matches.when = (extra.as_constant() != Some(true)).then(|| extra.as_str().to_owned());
        Part {
            route: at,
            rank,
            candidate: Candidate { hosts: hosts.clone(), path, matches },
            written,
            strip,
            pieces,
        }
    };
    if !is_whole {
        let why = "the route answers 503, because a part of it is refused: see there";
        pieces
            .iter()
            .copied()
            .chain(paths.iter().map(|(_, piece)| *piece))
            .for_each(|piece| ledger.refused(piece, why, "correct that part, or write the route by hand"));
        body.closed = Some("a part of the route was refused".to_owned());
    }
    let Some((listed, piece)) = paths else {
        let rank = (weight, plain_hosts, header_count, false, 0, 0);
        parts.push(of(Strip::Nothing, rank, Path::Prefix("/".to_owned()), None, extra, pieces));
        return Some(body);
    };
    ledger.same(piece);
    weight += 1;
    for text in listed {
        let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "._-~/%".contains(c));
        let regex = match text.strip_prefix('~') {
            Some(regex) => Some(regex.to_owned()),
            None if !has_tilde && !is_plain(&text) => Some(text.clone()),
            None => None,
        };
        let read = match &regex {
            Some(regex) => read_regex(regex, strips, body.service.is_some()),
            None => read_prefix(&text, strips),
        };
        match read {
            Ok((path, written, strip, only)) => {
                let (is_regex, length) = (regex.is_some(), if regex.is_some() { 0 } else { text.len() });
                let priority = if is_regex { regex_priority } else { 0 };
                let rank = (weight, plain_hosts, header_count, is_regex, priority, length);
                parts.push(of(strip, rank, path, written, extra.clone().and(only), vec![piece]));
            }
            Err(why) => {
                let nearest = "match.path: docs/reference/routing.md#paths";
                let Some(regex) = &regex else {
                    // Kong matches nothing by such a text.
                    ledger.refused(piece, format!("`{text}`: {why}"), nearest);
                    continue;
                };
                let start = sure_start(regex);
                ledger.refused(
                    piece,
                    format!(
                        "`{text}`: {why}. The route answers 503 below `{start}`, which holds all its paths"
                    ),
                    nearest,
                );
                body.closed = Some(format!("the path {text} was not understood"));
                let rank = (weight, plain_hosts, header_count, true, regex_priority, 0);
                let written = (start != "/").then(|| path::prefix(&start));
                let path = Path::Prefix(start);
                parts.push(of(Strip::Nothing, rank, path, written, extra.clone(), vec![piece]));
            }
        }
    }
    Some(body)
}

type Read = (Path, Option<String>, Strip, Expression);

fn read_prefix(text: &str, strips: bool) -> Result<Read, String> {
    let decoded = decode(text)?;
    if let Some(why) = path::never_matches(&decoded) {
        return Err(why.to_owned());
    }
    let canonical = path::canonical(&decoded);
    let strip = if strips { Strip::Prefix(canonical.clone()) } else { Strip::Nothing };
    if decoded == "/" {
        return Ok((Path::Prefix("/".to_owned()), None, strip, Expression::constant(true)));
    }
    let only = match path::takes_its_folder(&decoded) {
        Some(folder) => Expression::raw("request.path").differs(Expression::text(&path::canonical(folder))),
        None => Expression::constant(true),
    };
    Ok((Path::Prefix(canonical), Some(path::prefix(&decoded)), strip, only))
}

/// A regex of Kong is anchored at the start only.
fn read_regex(text: &str, strips: bool, has_service: bool) -> Result<Read, String> {
    let anchored = format!("^{}", text.trim_start_matches('^'));
    let read = Searching::read(&anchored, false, Subject::Path)?;
    read.compiled()?;
    let start = read.literal_start();
    let is_open = !anchored.ends_with('$') || anchored.ends_with("\\$");
    let whole = read.whole();
    if !strips || !has_service {
        return Ok((
            Path::Regex { whole: whole.clone(), start },
            Some(format!("~{whole}")),
            Strip::Nothing,
            Expression::constant(true),
        ));
    }
    let (whole, strip) = match is_open {
        // `whole` is the searching form with `.*` behind it; the rest is what follows Kong's own match.
        true => {
            let searching = read.searching();
            let inner = searching.strip_prefix('^').unwrap_or(&searching);
            let whole = format!("(?:{inner})/?(?<{REST}>.*)");
            if inner.contains(REST) {
                return Err("Weir cannot remove what the regex matched".to_owned());
            }
            (whole, Strip::Match(true))
        }
        false => (whole, Strip::Match(false)),
    };
    Ok((
        Path::Regex { whole: whole.clone(), start },
        Some(format!("~{whole}")),
        strip,
        Expression::constant(true),
    ))
}

/// A path without its escapes.
fn decode(text: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte =
            digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or("`%` without two digits")?;
        if matches!(byte, b'/' | b'%' | b'?' | b'#' | b';') {
            return Err(format!("the escape %{byte:02X} has a meaning of its own"));
        }
        bytes.push(byte);
        rest = &behind[2..];
    }
    String::from_utf8(bytes).map_err(|_| "its escapes are no UTF-8".to_owned())
}

/// The values of a field, of which one must be there. Kong compares them without case.
fn field(values: &[String]) -> Result<Field, String> {
    if let [one] = values
        && let Some(pattern) = one.strip_prefix("~*")
    {
        let read = Searching::read(pattern, true, Subject::Text)?;
        read.compiled()?;
        return Ok(Field::Matches(read.searching()));
    }
    let quoted: Vec<String> = values.iter().map(|value| crate::shared::regex::literal(value)).collect();
    Ok(match values {
        [] => Field::Present,
        _ => Field::Matches(format!("(?i)^(?:{})$", quoted.join("|"))),
    })
}

/// Protocols, redirects and buffering.
fn rest(
    fields: &mut Fields<'_>,
    protocols: Option<(Vec<String>, Piece)>,
    body: &mut Body,
    is_whole: &mut bool,
    ledger: &mut Ledger,
) {
    let status = fields.number("https_redirect_status_code", ledger);
    status.iter().for_each(|(_, piece)| ledger.same(*piece));
    if let Some((list, piece)) = protocols {
        let has = |name: &str| list.iter().any(|protocol| protocol == name);
        let is_stream =
            list.iter().any(|protocol| ["tcp", "tls", "udp", "tls_passthrough"].contains(&protocol.as_str()));
        if is_stream {
            *is_whole = false;
            ledger.refused(piece, "Kong passes these on as bytes", "listeners.NAME.tcp or .sni");
        } else if (has("https") || has("grpcs") || has("wss")) && !has("http") && !has("grpc") && !has("ws") {
            ledger.same(piece);
            let plain = Expression::raw("request.scheme").equals(Expression::text("http"));
            let answer = match status.map_or(426, |(status, _)| status) {
                status @ (301 | 302 | 307 | 308) => {
                    filters::redirect_to_https(u16::try_from(status).unwrap_or(301))
                }
                _ => {
                    let mut respond = filters::respond(
                        426,
                        Some("{\"message\":\"Please use HTTPS protocol\"}".to_owned()),
                        None,
                    );
                    respond.set(
                        "headers",
                        Map::new()
                            .with("content-type", "application/json")
                            .with("upgrade", "TLS/1.2, HTTP/1.1"),
                    );
                    Filter::new("respond", respond)
                }
            };
            match answer.name {
                "redirect" => body.filters.push(answer),
                _ => body.filters.extend(filters::when(&plain, vec![answer], Vec::new())),
            }
        } else {
            ledger.same(piece);
        }
    }
    for key in ["request_buffering", "response_buffering"] {
        if let Some((flag, piece)) = fields.flag(key, ledger) {
            match flag {
                false => ledger.same(piece),
                true => ledger.changed(piece, "Weir streams; the filter buffer reads bodies first"),
            }
        }
    }
    if let Some((version, piece)) = fields.text("path_handling", ledger) {
        match version.as_str() {
            "v0" => ledger.same(piece),
            _ => ledger.refused(piece, "Weir joins paths as v0 does: with one slash", "rewrite: { path }"),
        }
    }
}
