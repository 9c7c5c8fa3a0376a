//! Sites of a Caddyfile as servers: addresses, TLS, redirects to TLS, pages for errors, logs.

use super::adapt::Adapter;
use super::address::Address;
use super::errors;
use super::file::{Caddyfile, each};
use super::listeners::{Plan, Tls};
use super::matchers::Named;
use super::model::{Answer, Handler, Kind, Listen, Matcher, Route, Server, Set};
use super::options::Options;
use super::syntax::Segment;
use crate::config::Config;
use crate::ledger::{Ledger, Piece};
use crate::shared::units;
use crate::yaml::{Map, VARIABLE_BEGIN, VARIABLE_END};
use std::collections::BTreeMap;

/// What a Caddyfile says, as servers.
pub(super) struct Adapted {
    pub(super) servers: Vec<Server>,
    /// Pages for errors, by hosts.
    pub(super) pages: Vec<(Vec<String>, Map)>,
    pub(super) plan: Plan,
}

/// A site with the address that it is reached at.
struct Bound {
    listens: Vec<Listen>,
    sets: Vec<Set>,
    hosts: Vec<String>,
    routes: Vec<Route>,
    piece: Piece,
}

/// Adapts a Caddyfile.
pub(super) fn adapt(
    file: &Caddyfile,
    options: &Options,
    config: &mut Config,
    ledger: &mut Ledger,
) -> Adapted {
    let mut plan = Plan {
        timeouts: options.timeouts.clone(),
        proxy_protocol: options.proxy_protocol,
        ..Plan::default()
    };
    let (mut bounds, mut pages): (Vec<Bound>, Vec<(Vec<String>, Map)>) = (Vec::new(), Vec::new());
    let mut adapter = Adapter { ledger, order: &options.order, named: &file.named, groups: 0, depth: 0 };
    for site in &file.sites {
        let addresses: Vec<Address> =
            site.addresses.iter().map(|text| Address::read(&resolved(text))).collect();
        let binds = binds(&site.body, options, adapter.ledger);
        let has_tls = site.body.iter().any(|segment| segment.name() == "tls");
        let mut tls =
            Tls { email: options.email.clone(), directory: options.directory.clone(), ..Tls::default() };
        tls.is_internal = options.local_certs;
        for segment in site.body.iter().filter(|segment| segment.name() == "tls") {
            super::listeners::read_tls(segment, &mut tls, adapter.ledger);
        }
        for segment in site.body.iter().filter(|segment| segment.name() == "log") {
            log(segment, config, adapter.ledger);
        }
        let hosts: Vec<String> =
            addresses.iter().map(|address| address.host.clone()).filter(|host| !host.is_empty()).collect();
        let root = site.body.iter().find(|segment| segment.name() == "root").and_then(|segment| {
            let args = segment.args();
            args.last()
                .filter(|_| args.len() == 1 || args.first() == Some(&"*"))
                .map(|root| (*root).to_owned())
        });
        let mut own_pages = Map::new();
        for segment in site.body.iter().filter(|segment| segment.name() == "handle_errors") {
            errors::add(&mut own_pages, &errors::read(segment, root.as_deref(), &mut adapter));
        }
        if !own_pages.is_empty() {
            // A site for any host has the pages for all that no other site has.
            pages.push((hosts.clone(), own_pages));
        }
        let routes = adapter.routes(&site.body, &Named::new(), false);
        // Addresses of one site that are reached at the same listeners belong together.
        let mut groups: Vec<(Vec<Listen>, Vec<&Address>)> = Vec::new();
        let mut by_host: Vec<(&Address, Vec<Listen>)> = Vec::new();
        for address in &addresses {
            let listens = listens(address, &binds, options, has_tls);
            for listen in listens.iter().filter(|listen| listen.tls) {
                plan.add(listen, address, &tls, site.piece, adapter.ledger);
            }
            match by_host
                .iter_mut()
                .find(|(known, _)| known.host == address.host && known.path == address.path)
            {
                Some((_, known)) => known.extend(listens),
                None => by_host.push((address, listens)),
            }
        }
        for (address, mut listens) in by_host {
            listens.sort();
            listens.dedup();
            match groups.iter_mut().find(|(known, _)| *known == listens) {
                Some((_, members)) => members.push(address),
                None => groups.push((listens, vec![address])),
            }
        }
        for (listens, members) in groups {
            let mut sets: Vec<Set> = Vec::new();
            let plain: Vec<String> = members
                .iter()
                .filter(|address| address.path.is_empty())
                .map(|address| address.host.clone())
                .collect();
            if plain.iter().any(String::is_empty) {
                sets.clear();
            } else {
                if !plain.is_empty() {
                    sets.push(vec![Matcher::Host(plain.clone())]);
                }
                for address in members.iter().filter(|address| !address.path.is_empty()) {
                    let mut set = Set::new();
                    if !address.host.is_empty() {
                        set.push(Matcher::Host(vec![address.host.clone()]));
                    }
                    set.push(Matcher::Path(vec![address.path.clone()]));
                    sets.push(set);
                }
            }
            let hosts = members.iter().map(|address| address.host.clone()).collect();
            bounds.push(Bound { listens, sets, hosts, routes: routes.clone(), piece: site.piece });
        }
    }
    let hosts = bounds.iter().flat_map(|bound| bound.hosts.iter().map(move |host| (bound, host)));
    for (bound, host) in hosts.filter(|(_, host)| host.starts_with("*.")) {
        let note = format!("Caddy's {host} takes one label before the name, Weir's one or more");
        ledger.changed(bound.piece, note.clone());
        ledger.note(note);
    }
    if options.redirects {
        redirects(&mut bounds, &plan, options);
    }
    Adapted { servers: servers(bounds), pages, plan }
}

/// An address with the default values of its variables, where these hold more than a host: listeners depend on them.
pub(super) fn resolved(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(VARIABLE_BEGIN) {
        let Some((inner, after)) = behind.split_once(VARIABLE_END) else { break };
        out.push_str(before);
        match inner.split_once(":-") {
            Some((_, default)) if default.contains([':', '/']) || before.ends_with(':') => {
                out.push_str(default)
            }
            _ => out.push_str(&format!("{VARIABLE_BEGIN}{inner}{VARIABLE_END}")),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Sites by the listeners that they share, the more specific first, as Caddy sorts them.
fn servers(mut bounds: Vec<Bound>) -> Vec<Server> {
    bounds.sort_by_key(|bound| {
        let any = bound.sets.is_empty();
        let wild = bound.hosts.iter().all(|host| host.contains('*') || host.is_empty());
        let path = bound.sets.iter().flatten().map(|matcher| match matcher {
            Matcher::Path(paths) => paths.iter().map(String::len).max().unwrap_or(0),
            _ => 0,
        });
        let longest = bound.hosts.iter().map(String::len).max().unwrap_or(0);
        let length = if wild { std::cmp::Reverse(longest) } else { std::cmp::Reverse(0) };
        (any, wild, length, std::cmp::Reverse(path.max().unwrap_or(0)))
    });
    let mut servers: Vec<Server> = Vec::new();
    for bound in bounds {
        let handler = Handler { kind: Kind::Subroute(bound.routes), piece: bound.piece };
        let route = Route {
            sets: bound.sets,
            group: None,
            is_terminal: true,
            handlers: vec![handler],
            pieces: vec![bound.piece],
        };
        match servers.iter_mut().find(|server| server.listens == bound.listens) {
            Some(server) => server.routes.push(route),
            None => servers.push(Server { listens: bound.listens, routes: vec![route] }),
        }
    }
    servers
}

/// Caddy sends clients without TLS to TLS, for each host that has it by itself.
fn redirects(bounds: &mut Vec<Bound>, plan: &Plan, options: &Options) {
    let listen = Listen { address: format!("[::]:{}", options.http_port), tls: false };
    let mut hosts: Vec<(String, Piece, bool)> = Vec::new();
    let mut ports: BTreeMap<String, String> = BTreeMap::new();
    for bound in bounds.iter() {
        let secure = bound.listens.iter().find(|listen| listen.tls);
        let has_own = bound
            .listens
            .iter()
            .any(|listen| !listen.tls && listen.address.ends_with(&format!(":{}", options.http_port)));
        let Some(secure) = secure.filter(|_| !has_own) else { continue };
        for host in &bound.hosts {
            let is_taken = bounds.iter().any(|other| {
                other.listens.contains(&listen)
                    && (other.hosts.contains(host) || other.sets.is_empty() && host.is_empty())
            });
            let is_known = hosts.iter().any(|(known, ..)| known == host);
            let usual = secure.address.ends_with(&format!(":{}", options.https_port));
            if !is_taken && !is_known && plan.has_automatic(secure, host) {
                hosts.push((host.clone(), bound.piece, usual));
                let port = secure.address.rsplit_once(':').map_or("443", |(_, port)| port);
                ports.insert(host.clone(), port.to_owned());
            }
        }
    }
    let has_any = bounds.iter().any(|bound| bound.listens.contains(&listen) && bound.sets.is_empty());
    // A host at another port is sent there. Every other, known or not, is sent to the usual one.
    let own: Vec<(String, Piece)> = hosts
        .iter()
        .filter(|(host, _, usual)| !usual && !host.is_empty())
        .map(|(host, piece, _)| (host.clone(), *piece))
        .collect();
    let mut add = |hosts: Vec<String>, piece: Piece, to: String| {
        let headers = vec![("Location".to_owned(), to)];
        let answer = Answer { status: "308".to_owned(), body: String::new(), headers };
        let sets = if hosts.is_empty() { Vec::new() } else { vec![vec![Matcher::Host(hosts.clone())]] };
        let handler = Handler { kind: Kind::Respond(answer), piece };
        let routes = vec![Route::always(handler)];
        bounds.push(Bound { listens: vec![listen.clone()], sets, hosts, routes, piece });
    };
    for (host, piece) in own {
        let to = format!("https://{{host}}:{}{{uri}}", ports.get(&host).map_or("443", String::as_str));
        add(vec![host], piece, to);
    }
    if let Some((_, piece, _)) = hosts.iter().find(|(_, _, usual)| *usual).filter(|_| !has_any) {
        add(Vec::new(), *piece, "https://{host}{uri}".to_owned());
    }
}

/// The addresses that a site's lines `bind` name.
fn binds(body: &[Segment], options: &Options, ledger: &mut Ledger) -> Vec<String> {
    let mut binds = options.default_bind.clone();
    for segment in body.iter().filter(|segment| segment.name() == "bind") {
        binds.clear();
        ledger.same(segment.piece);
        for line in segment.inner() {
            ledger.left_out(line.piece, "`listeners.NAME.protocols` says what Weir speaks");
        }
        for address in segment.args() {
            match address.split_once('/') {
                Some(("unix", path)) => binds.push(format!("unix:/{}", path.trim_start_matches('/'))),
                Some(_) => ledger.refused(
                    segment.piece,
                    format!("Weir listens to no `{address}`"),
                    "`listeners.NAME.address`",
                ),
                None => binds.push(address.to_owned()),
            }
        }
    }
    binds
}

/// Where a site is reached at one of its addresses.
fn listens(address: &Address, binds: &[String], options: &Options, has_tls: bool) -> Vec<Listen> {
    let port = match (&address.port, &*address.scheme) {
        (Some(port), _) => port.clone(),
        (None, "http") => options.http_port.clone(),
        (None, _) => options.https_port.clone(),
    };
    let tls = match &*address.scheme {
        "http" => false,
        _ if port == options.http_port => false,
        "https" => true,
        _ => has_tls || options.auto_https && (!address.host.is_empty() || port == options.https_port),
    };
    let any = ["[::]".to_owned()];
    let hosts = if binds.is_empty() { &any[..] } else { binds };
    let mut listens = Vec::new();
    for host in hosts {
        let listen = match host.starts_with("unix:") {
            true => Listen { address: host.clone(), tls },
            false => Listen { address: format!("{}:{port}", host_of(host)), tls },
        };
        if !listens.contains(&listen) {
            listens.push(listen);
        }
    }
    listens
}

/// Where a site is reached at an address, the first of its `bind`.
pub(super) fn listens_of(text: &str, body: &[Segment], options: &Options, has_tls: bool) -> Option<Listen> {
    let binds = binds(body, options, &mut Ledger::default());
    listens(&Address::read(&resolved(text)), &binds, options, has_tls).into_iter().next()
}

/// The host of a listener's address. Go, and therefore Caddy, listens on IPv6 and IPv4 for `0.0.0.0` too.
pub(super) fn host_of(host: &str) -> String {
    match host {
        "" | "0.0.0.0" => "[::]".to_owned(),
        "localhost" => "127.0.0.1".to_owned(),
        host if host.contains(':') && !host.starts_with('[') => format!("[{host}]"),
        host => host.to_owned(),
    }
}

/// `log` of a site. Weir has one access log.
fn log(segment: &Segment, config: &mut Config, ledger: &mut Ledger) {
    let mut map = Map::new();
    // Caddy's default.
    let mut output = "stderr".to_owned();
    ledger.changed(
        segment.piece,
        "Weir has one access log for all sites; `access_log.when` can choose by host",
    );
    for line in segment.inner() {
        let args = line.args();
        ledger.same(line.piece);
        match (line.name(), &*args) {
            ("output", ["file", path, ..]) => {
                (*path).clone_into(&mut output);
                let mut rotate = Map::new();
                for inner in line.inner() {
                    let first = inner.args().first().copied().unwrap_or_default().to_owned();
                    ledger.same(inner.piece);
                    match inner.name() {
                        "roll_size" => match super::values::size_of(&first) {
                            Some(bytes) => rotate.set("size", units::size(bytes)),
                            None => ledger.refused(inner.piece, "no size", "a size such as 100MiB"),
                        },
                        "roll_keep" => rotate.set_some("keep", first.parse::<i64>().ok()),
                        "roll_disabled" => {}
                        _ => ledger
                            .left_out(inner.piece, "`access_log.rotate` has what Weir does with old files"),
                    }
                }
                if !rotate.is_empty() {
                    map.set("rotate", rotate);
                }
            }
            ("output", ["stdout"]) => "stdout".clone_into(&mut output),
            ("output", ["stderr"]) => {}
            ("output", ["discard"]) => "off".clone_into(&mut output),
            ("output", _) => {
                ledger.refused(
                    line.piece,
                    "Weir writes lines to stdout, stderr, a file, syslog or OTLP",
                    "`access_log`",
                );
            }
            ("format", ["json" | "console", ..]) => {
                ledger.changed(
                    line.piece,
                    "Weir's lines are JSON with other names: docs/reference/access-log.md",
                );
            }
            ("format", _) => {
                ledger.changed(
                    line.piece,
                    "Weir's lines have Weir's form: `access_log.format`, `fields` and `redact`",
                );
            }
            ("level" | "include" | "exclude" | "hostnames" | "no_hostname" | "sampling", _) => {
                ledger.left_out(line.piece, "Weir writes a line for each exchange");
            }
            (name, _) => {
                ledger.refused(line.piece, format!("Weir has nothing for `{name}` of a log"), "`access_log`")
            }
        }
        if line.name() != "output" {
            line.inner().iter().for_each(|inner| {
                each(inner, &mut |inner| ledger.changed(inner.piece, "see `access_log.fields` and `redact`"));
            });
        }
    }
    let mut log = Map::new().with("output", output);
    map.iter().for_each(|(key, value)| log.set(key, value.clone()));
    if config.more.get("access_log").is_none() {
        config.more.set("access_log", log);
    }
}
