//! `bind` lines as listeners.

use super::acl::{Facet, Term, condition};
use super::context::Cx;
use super::model::Proxy;
use super::read::Line;
use super::sample::Scope;
use super::servers::{absolute, timeout};
use crate::config::{Filter, Listener};
use crate::shared::expression::Expression;
use crate::shared::filters::when;
use crate::shared::tls as policy;
use crate::shared::units::{duration, read_duration};
use crate::yaml::{Map, Value};

/// Most ports of a range.
const MAX_PORTS: u16 = 100;

/// What a `bind` line says.
#[derive(Debug)]
pub(super) struct Bind<'a> {
    pub(super) line: &'a Line,
    /// Addresses as Weir writes them; none for those that it has not.
    pub(super) addresses: Vec<String>,
    pub(super) is_tls: bool,
    pub(super) accepts_proxy: bool,
    refused: Option<String>,
}

/// All `bind` lines of a proxy. Nothing is judged.
pub(super) fn binds<'a>(proxy: &Proxy<'a>) -> Vec<Bind<'a>> {
    proxy
        .all("bind")
        .map(|line| {
            let (mut addresses, mut refused) = (Vec::new(), None);
            for text in line.word(1).split(',') {
                match self::addresses(text) {
                    Ok(found) => addresses.extend(found),
                    Err(why) => refused = Some(why),
                }
            }
            let (is_tls, accepts_proxy) = (line.has(2, "ssl"), line.has(2, "accept-proxy"));
            Bind { line, addresses, is_tls, accepts_proxy, refused }
        })
        .collect()
}

/// A listener without its final name, and the `bind` line that it comes from.
pub(super) struct Made<'a> {
    wish: String,
    pub(super) listener: Listener,
    pub(super) line: &'a Line,
}

/// Words that restrict clients' certificates and that Weir lacks: without them, more clients would pass.
const CHECKS: &[&str] = &["crl-file", "ca-verify-file"];

/// Settings of `global` for all `bind` lines, and the words that a line may have itself.
const DEFAULTS: &[(&str, &[&str])] = &[
    ("ssl-default-bind-ciphers", &["ciphers"]),
    ("ssl-default-bind-ciphersuites", &["ciphersuites"]),
    ("ssl-default-bind-curves", &["curves", "ecdhe"]),
];

/// A list of ciphers or curves.
fn choose(name: &str, list: &str, tls: &mut Map, line: &Line, cx: &mut Cx<'_, '_, '_>) {
    let names = list.split([':', ',']);
    match name {
        "ciphers" => policy::ciphers(names, policy::Of::Tls12, tls, line.piece, cx.ledger),
        "ciphersuites" => policy::ciphers(names, policy::Of::Tls13, tls, line.piece, cx.ledger),
        _ => policy::curves(names, tls, line.piece, cx.ledger),
    }
}

/// Closes what is behind listeners whose clients Weir would check less strictly.
pub(super) fn close_unchecked(binds: &[Bind<'_>], filters: &mut Vec<Filter>) {
    let found = binds.iter().find_map(|bind| {
        let word = CHECKS.iter().find(|word| bind.line.has(2, word))?;
        Some((bind.line, *word))
    });
    let Some((line, word)) = found else { return };
    let why = format!("Weir has no `{word}`, so clients that it shuts out would pass");
    let is = match binds.iter().all(|bind| bind.is_tls) {
        true => Expression::constant(true),
        false => Expression::raw("request.scheme").equals(Expression::text("https")),
    };
    let closed = when(&is, vec![super::rules::closed(line, &why)], Vec::new());
    filters.splice(0..0, closed);
}

/// The port of an address; none for a socket.
pub(super) fn port(address: &str) -> Option<u16> {
    if address.starts_with("unix:") { None } else { address.rsplit(':').next()?.parse().ok() }
}

fn addresses(text: &str) -> Result<Vec<String>, String> {
    if super::read::has_variable(text) {
        return Err("its address stands in the environment, which weir import does not read".to_owned());
    }
    let is_v6 = text.starts_with("ipv6@");
    let text = text.strip_prefix("ipv4@").or_else(|| text.strip_prefix("ipv6@")).unwrap_or(text);
    if let Some(path) = text.strip_prefix("unix@").or_else(|| text.starts_with('/').then_some(text)) {
        return Ok(vec![format!("unix:{path}")]);
    }
    if text.contains('@') {
        return Err(format!("Weir does not listen on `{text}`"));
    }
    let (host, ports) = text.rsplit_once(':').ok_or("an address without a port")?;
    let host = match host {
        "" | "*" if is_v6 => "[::]".to_owned(),
        "" | "*" | "0.0.0.0" => "0.0.0.0".to_owned(),
        // `::0`, too: where it stands beside IPv4 must be seen.
        host if is_any_ipv6(host) => "[::]".to_owned(),
        host if host.starts_with('[') => host.to_owned(),
        "localhost" => "127.0.0.1".to_owned(),
        host if host.contains(':') => format!("[{host}]"),
        host if host.parse::<std::net::Ipv4Addr>().is_ok() => host.to_owned(),
        host => return Err(format!("`{host}` is a name: Weir listens on addresses")),
    };
    let number = |text: &str| text.parse::<u16>().map_err(|_| format!("`{text}` is no port"));
    let (from, to) = match ports.split_once('-') {
        Some((from, to)) => (number(from)?, number(to)?),
        None => (number(ports)?, number(ports)?),
    };
    if from == 0 || to < from || to - from >= MAX_PORTS {
        return Err(format!("`{ports}` is a range of more than {MAX_PORTS} ports"));
    }
    Ok((from..=to).map(|port| format!("{host}:{port}")).collect())
}

fn is_any_ipv6(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<std::net::Ipv6Addr>().is_ok_and(|address| address.is_unspecified())
}

/// The listeners of a proxy, by name. `is_http` says which settings they have.
pub(super) fn listeners(
    cx: &mut Cx<'_, '_, '_>,
    proxy: &Proxy<'_>,
    is_http: bool,
) -> Vec<(String, Listener)> {
    let mut made = Vec::new();
    for bind in binds(proxy) {
        if let Some(why) = &bind.refused {
            cx.ledger.refused(bind.line.piece, why.clone(), "listeners.NAME.address");
        }
        if bind.addresses.is_empty() {
            continue;
        }
        let mut more = Map::new();
        let is_fine = options(cx, &bind, &mut more, is_http);
        if !is_http && CHECKS.iter().any(|word| bind.line.has(2, word)) {
            // Bytes have no answer: nobody may connect until a person has decided.
            more.comment("CLOSED: Weir does not know which certificates were revoked.");
            more.set("ip", Map::new().with("deny", vec!["0.0.0.0/0", "::/0"]));
        }
        if is_http {
            times(cx, proxy, &mut more);
            more.comment(
                "As HAProxy, which compares and sends paths as they come. Take them out to have `//` merged.",
            );
            more.set("slashes", "keep");
            more.set("escaped_slashes", "keep");
        }
        if is_fine && bind.refused.is_none() {
            cx.ledger.same(bind.line.piece);
        }
        let several = bind.addresses.len() > 1;
        for address in &bind.addresses {
            let named = bind.line.after(2, "name");
            let wish = match (named, port(address)) {
                (Some(name), _) if !several => name.to_owned(),
                (_, Some(port)) if proxy.name.ends_with(&port.to_string()) => proxy.name.to_owned(),
                (_, Some(port)) => format!("{}-{port}", proxy.name),
                (_, None) => format!("{}-socket", proxy.name),
            };
            let listener =
                Listener { comment: Vec::new(), address: Some(address.clone()), more: more.clone() };
            made.push(Made { wish, listener, line: bind.line });
        }
    }
    super::families::join_listeners(cx, proxy, &mut made);
    made.into_iter().map(|made| (made.wish, made.listener)).collect()
}

/// Timeouts of clients.
fn times(cx: &mut Cx<'_, '_, '_>, proxy: &Proxy<'_>, more: &mut Map) {
    let client = timeout(cx, proxy, "client");
    let head = timeout(cx, proxy, "http-request");
    let keepalive = timeout(cx, proxy, "http-keep-alive").or(head).or(client);
    let mut map = Map::new();
    if let Some(ms) = head.or(client).filter(|ms| *ms > 0) {
        map.set("head", duration(ms));
    }
    match client.filter(|ms| *ms > 0) {
        Some(ms) => map.set("body", duration(ms)),
        None => {
            map.set("body", "0s");
            cx.ledger.note("where no `timeout client` is set, HAProxy waits without end; Weir waits 10 s for a head and 75 s for the next request");
        }
    }
    if let Some(ms) = keepalive.filter(|ms| *ms > 0) {
        map.set("keepalive", duration(ms));
    }
    more.set("timeouts", map);
}

/// The words behind the address. False if one was refused.
fn options(cx: &mut Cx<'_, '_, '_>, bind: &Bind<'_>, more: &mut Map, is_http: bool) -> bool {
    let line = bind.line;
    let mut is_fine = true;
    let mut tls = Map::new();
    let mut pems: Vec<String> = Vec::new();
    let mut words = line.from(2).iter();
    let mut changes: Vec<&str> = Vec::new();
    while let Some(word) = words.next() {
        let name = word.as_str();
        match name {
            "ssl" | "accept-proxy" | "transparent" if name != "transparent" => {}
            "crt" => pems.push(words.next().cloned().unwrap_or_default()),
            "crt-list" => {
                let path = words.next().cloned().unwrap_or_default();
                match cx.entries(&path) {
                    Ok(lines) => pems.extend(lines.iter().filter_map(|line| {
                        // A file, then options in brackets and names, which Weir reads from the certificate.
                        line.split([' ', '\t', '[']).next().map(str::to_owned)
                    })),
                    Err(why) => {
                        is_fine = false;
                        cx.ledger.refused(
                            line.piece,
                            format!("crt-list: {why}"),
                            "tls: { certificates: [ { cert, key } ] }",
                        );
                    }
                }
                changes.push("Weir chooses by the names in the certificates, not by those of the list");
            }
            "alpn" | "proto" => {
                let value = words.next().map_or("", String::as_str);
                let protocols: Vec<&str> = value
                    .split(',')
                    .filter_map(|name| match name {
                        "h2" => Some("h2"),
                        "http/1.1" | "http/1.0" => Some("http1"),
                        _ => None,
                    })
                    .collect();
                let mut known: Vec<&str> = Vec::new();
                protocols.into_iter().for_each(|name| {
                    if !known.contains(&name) {
                        known.push(name);
                    }
                });
                if is_http && !known.is_empty() && known != ["h2", "http1"] {
                    more.set("protocols", known);
                }
            }
            "ca-file" => {
                let ca = absolute(&cx.ca_base, words.next().map_or("", String::as_str));
                let mode = match line.after(2, "verify") {
                    Some("optional") => Some("optional"),
                    Some("none") => None,
                    _ => Some("required"),
                };
                if let Some(mode) = mode {
                    tls.set("client_auth", Map::new().with("ca", ca).with("mode", mode));
                }
            }
            "ssl-min-ver" => match words.next().map(String::as_str) {
                Some("TLSv1.3") => tls.set("min_version", "1.3"),
                Some("TLSv1.2") => {}
                _ => changes.push("Weir speaks TLS 1.2 and 1.3"),
            },
            "force-tlsv13" => tls.set("min_version", "1.3"),
            "maxconn" => {
                let number = words.next().and_then(|text| text.parse::<i64>().ok());
                if let Some(number) = number.filter(|number| *number > 0) {
                    more.set("limits", Map::new().with("connections", number));
                }
            }
            "verify" | "name" | "id" | "backlog" | "process" | "thread" | "shards" | "mss" | "tcp-ut"
            | "mode" | "user" | "uid" | "group" | "gid" | "level" | "npn" | "ssl-max-ver"
            | "tls-ticket-keys" | "severity-output" | "nice" => {
                words.next();
            }
            "ciphers" | "ciphersuites" | "curves" | "ecdhe" => {
                let list = words.next().map_or("", String::as_str);
                choose(name, list, &mut tls, line, cx);
            }
            "sigalgs" => {
                words.next();
                changes.push("Weir takes the signatures that its certificates allow");
            }
            "no-sslv3"
            | "no-tlsv10"
            | "no-tlsv11"
            | "no-tls-tickets"
            | "strict-sni"
            | "v4v6"
            | "v6only"
            | "tfo"
            | "defer-accept"
            | "generate-certificates"
            | "prefer-client-ciphers"
            | "force-tlsv12"
            | "allow-0rtt"
            | "no-alpn" => match name {
                "strict-sni" => {
                    changes.push("Weir shows the first certificate to clients whose name none has")
                }
                "no-tls-tickets" => {
                    policy::no_tickets(&mut tls, line.piece, cx.ledger);
                }
                "force-tlsv12" => changes.push("Weir speaks TLS 1.2 and 1.3"),
                _ => {}
            },
            "crl-file"
            | "ca-sign-file"
            | "ca-sign-pass"
            | "interface"
            | "transparent"
            | "namespace"
            | "ca-verify-file"
            | "crt-ignore-err"
            | "ca-ignore-err"
            | "accept-netscaler-cip"
            | "quic-force-retry"
            | "expose-fd" => {
                if !matches!(name, "transparent" | "quic-force-retry") {
                    words.next();
                }
                is_fine = false;
                cx.ledger.refused(
                    line.piece,
                    format!("Weir has no `{name}`"),
                    "listeners.NAME: docs/reference/config.md",
                );
            }
            _ => {
                is_fine = false;
                cx.ledger.refused(
                    line.piece,
                    format!("weir import does not know `{name}`"),
                    "listeners.NAME: docs/reference/config.md",
                );
            }
        }
    }
    if bind.is_tls {
        let model = cx.model;
        for (global, own) in DEFAULTS {
            let found = model.global.iter().rev().find(|line| line.key() == *global);
            if let Some(found) = found.filter(|_| !own.iter().any(|word| line.has(2, word))) {
                choose(own[0], found.word(1), &mut tls, found, cx);
            }
        }
        let options = model.global.iter().find(|line| line.key() == "ssl-default-bind-options");
        if let Some(options) = options.filter(|options| options.has(1, "no-tls-tickets")) {
            policy::no_tickets(&mut tls, options.piece, cx.ledger);
        }
        let mut pairs = Vec::new();
        for pem in &pems {
            let path = absolute(&cx.crt_base, pem);
            let last = path.rsplit('/').next().unwrap_or(&path);
            if path.ends_with('/') || !last.contains('.') {
                is_fine = false;
                let why = format!("`{pem}` looks like a folder of certificates: Weir names each file");
                cx.ledger.refused(
                    line.piece,
                    why,
                    "tls: { certificates: [ { cert, key } ] }, a pair for each file",
                );
            }
            // One file has both; Weir picks from each what it needs.
            pairs.push(Value::from(Map::new().with("cert", path.clone()).with("key", path)));
        }
        if pairs.is_empty() && is_fine {
            is_fine = false;
            cx.ledger.refused(
                line.piece,
                "TLS without a certificate",
                "tls: { certificates } or tls: { acme }",
            );
        }
        tls.set("certificates", Value::List(pairs));
        more.set("tls", tls);
        if is_http && !line.has(2, "alpn") {
            more.set("protocols", vec!["http1"]);
        }
    }
    if bind.accepts_proxy {
        more.set("proxy_protocol", true);
        let is_own =
            bind.addresses.iter().all(|address| address.starts_with("127.") || address.starts_with("unix:"));
        cx.trusted.extend(is_own.then(|| "127.0.0.0/8".to_owned()));
        if !is_own {
            is_fine = false;
            let why = "HAProxy takes a PROXY header from anybody; Weir closes connections from all but trusted_proxies";
            cx.ledger.refused(line.piece, why, "trusted_proxies: the addresses of the balancer before Weir");
            cx.trusted.push("127.0.0.0/8".to_owned());
        }
    }
    if !changes.is_empty() {
        is_fine = false;
        cx.ledger.changed(line.piece, changes.join("; "));
    }
    is_fine
}

/// `tcp-request connection expect-proxy layer4 if { src … }`: whose PROXY headers are believed.
pub(super) fn expect_proxy(cx: &mut Cx<'_, '_, '_>, scope: &Scope<'_>, line: &Line) {
    let found = condition(cx, scope, line, 4);
    let networks = match found.any.as_slice() {
        [all] => match all.as_slice() {
            [Term::Is(_, Some(Facet::Clients(networks, true)))] => networks.clone(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    if networks.is_empty() {
        let why = "a PROXY header from anybody";
        return cx.ledger.refused(line.piece, why, "listeners.NAME.proxy_protocol with trusted_proxies");
    }
    cx.trusted.extend(networks);
    let why = "Weir asks all clients of a listener for the PROXY header, or none: set proxy_protocol on a listener of its own";
    cx.ledger.refused(line.piece, why, "listeners.NAME.proxy_protocol; trusted_proxies is set");
}

/// A time of a line that is no timeout.
pub(super) fn time(text: &str) -> Option<u64> {
    read_duration(text, 1)
}
