//! Backends as upstreams: servers, balancing, health, retries, timeouts.

use super::checks;
use super::context::Cx;
use super::model::Proxy;
use super::read::{Line, has_variable};
use crate::config::{Endpoint, Upstream};
use crate::shared::units::{duration, read_duration};
use crate::source::join;
use crate::yaml::{Map, Value};
use std::collections::HashMap;

/// Most endpoints of an upstream.
const MAX_SERVERS: usize = 10_000;

/// What the servers of a backend say alike.
#[derive(Clone, Debug, Default, PartialEq)]
struct Common {
    tls: Option<Map>,
    proxy: Option<&'static str>,
    h2: Option<bool>,
    source: Option<String>,
}

/// The upstream of a backend; none if it has no server that Weir can use.
pub(super) fn upstream(cx: &mut Cx<'_, '_, '_>, proxy: &Proxy<'_>) -> Option<Upstream> {
    let is_http = proxy.mode() == "http";
    let mut upstream = Upstream::default();
    let defaults: Vec<&Line> = proxy.all("default-server").collect();
    let mut settings: HashMap<&str, String> = HashMap::new();
    for line in &defaults {
        if options(cx, line, 1, &mut settings) {
            cx.ledger.same(line.piece);
        }
    }
    let mut common: Option<Common> = None;
    let mut limit: Option<i64> = None;
    let mut checked = None;
    for line in proxy.lines.iter().copied().filter(|line| matches!(line.key(), "server" | "server-template"))
    {
        if cx.refuses_variable(line) {
            continue;
        }
        let mut own = settings.clone();
        let at = if line.key() == "server" { 3 } else { 4 };
        let before = cx.ledger.verdict(line.piece);
        options(cx, line, at, &mut own);
        let is_refused = cx.ledger.verdict(line.piece) != before;
        let name = line.word(1);
        if own.contains_key("disabled") {
            upstream.comment.push(format!("{name} ({}) is `disabled` in the source.", line.word(at - 1)));
            cx.ledger.left_out(line.piece, "the server is disabled; a comment names it");
            continue;
        }
        let address = match address(line.word(at - 1)) {
            Ok(address) => address,
            Err(why) => {
                cx.ledger.refused(line.piece, why, "endpoints: [ HOST:PORT ]");
                continue;
            }
        };
        let made = of_server(cx, line, &own);
        match &common {
            None => common = Some(made),
            Some(known) if *known != made => {
                let why = "its TLS, PROXY header or source differs from that of the servers before it";
                cx.ledger.refused(line.piece, why, "an upstream for each, and a split: { a: 1, b: 1 }");
                continue;
            }
            Some(_) => {}
        }
        let weight = own.get("weight").and_then(|weight| weight.parse::<u32>().ok());
        if weight == Some(0) {
            upstream.comment.push(format!("{name} ({address}) has weight 0 in the source: no new requests."));
            cx.ledger.left_out(line.piece, "weight 0: the server gets no new requests; a comment names it");
            continue;
        }
        if let Some(maximum) =
            own.get("maxconn").and_then(|maximum| maximum.parse::<i64>().ok()).filter(|n| *n > 0)
        {
            limit = Some(limit.unwrap_or(0) + maximum);
        }
        if own.contains_key("check") {
            checked.get_or_insert((line, own.clone()));
        }
        upstream.endpoints.push(Endpoint {
            address,
            weight: weight.filter(|weight| *weight != 1),
            priority: own.contains_key("backup").then_some(1),
        });
        if is_refused {
            continue;
        }
        match line.key() {
            "server-template" => {
                let why =
                    "each address that the name gives is an endpoint; it is asked for again as its TTL says";
                cx.ledger.changed(line.piece, why);
            }
            _ if own.contains_key("backup") => {
                cx.ledger.changed(line.piece, "a backup shares load as soon as the others cannot carry it");
            }
            _ if own.contains_key("maxconn") => {
                cx.ledger.changed(line.piece, "Weir limits the connections to all endpoints together");
            }
            _ => cx.ledger.same(line.piece),
        }
        if upstream.endpoints.len() >= MAX_SERVERS {
            break;
        }
    }
    if upstream.endpoints.is_empty() {
        return None;
    }
    // Equal weights need no words.
    let first = upstream.endpoints.first().and_then(|endpoint| endpoint.weight);
    if upstream.endpoints.iter().all(|endpoint| endpoint.weight == first) {
        upstream.endpoints.iter_mut().for_each(|endpoint| endpoint.weight = None);
    } else if upstream.endpoints.iter().any(|endpoint| endpoint.weight.is_some_and(|weight| weight > 256)) {
        upstream
            .endpoints
            .iter_mut()
            .for_each(|endpoint| endpoint.weight = endpoint.weight.map(|w| w.min(256)));
    }
    let common = common.unwrap_or_default();
    if let Some(h2) = common.h2 {
        upstream.more.set("protocol", if common.tls.is_some() && h2 { "h2" } else { "h2c" });
    }
    upstream.more.set_some("tls", common.tls);
    upstream.more.set_some("proxy_protocol", common.proxy);
    upstream.more.set_some("source", common.source);
    balance(cx, proxy, &mut upstream);
    if is_http {
        // HAProxy passes Location and cookies on as they are.
        upstream.more.set("links", "keep");
    }
    timeouts(cx, proxy, &mut upstream, is_http);
    retries(cx, proxy, &mut upstream, is_http);
    checks::probe(cx, proxy, checked.as_ref().map(|(_, own)| own), &mut upstream);
    if let Some(connections) = limit {
        let mut limits = Map::new().with("connections", connections);
        limits.set("pending", 1024_i64);
        upstream.more.set("limits", limits);
    }
    sticky(cx, proxy, &mut upstream);
    Some(upstream)
}

/// Reads the options of a server. False if one was refused.
fn options<'a>(
    cx: &mut Cx<'_, '_, '_>,
    line: &'a Line,
    at: usize,
    settings: &mut HashMap<&'a str, String>,
) -> bool {
    let mut is_fine = true;
    let mut words = line.from(at).iter();
    while let Some(word) = words.next() {
        let name = word.as_str();
        match name {
            "check"
            | "disabled"
            | "backup"
            | "ssl"
            | "send-proxy"
            | "send-proxy-v2"
            | "send-proxy-v2-ssl"
            | "send-proxy-v2-ssl-cn"
            | "check-ssl" => {
                settings.insert(name, String::new());
            }
            "no-check" | "no-backup" | "no-ssl" | "no-disabled" | "no-send-proxy" | "no-send-proxy-v2"
            | "enabled" => {
                let of = if name == "enabled" { "disabled" } else { name.trim_start_matches("no-") };
                settings.remove(of);
            }
            "weight" | "maxconn" | "inter" | "fastinter" | "downinter" | "rise" | "fall" | "port"
            | "verify" | "ca-file" | "crt" | "sni" | "cookie" | "alpn" | "proto" | "source" | "check-sni"
            | "verifyhost" | "slowstart" | "maxqueue" => {
                settings.insert(name, words.next().cloned().unwrap_or_default());
            }
            // Words with a value that need nothing.
            "id" | "resolvers" | "resolve-prefer" | "resolve-opts" | "resolve-net" | "init-addr"
            | "pool-max-conn" | "pool-low-conn" | "pool-purge-delay" | "max-reuse" | "minconn"
            | "error-limit" | "log-proto" | "ssl-min-ver" | "ssl-max-ver" | "ciphers" | "ciphersuites"
            | "crl-file" | "check-alpn" | "check-proto" | "proxy-v2-options" | "tcp-ut" | "force-tlsv"
            | "npn" => {
                words.next();
                if name == "crl-file" {
                    is_fine = false;
                    cx.ledger.refused(
                        line.piece,
                        "a list of revoked certificates",
                        "tls: { ca } of the upstream",
                    );
                }
            }
            "check-send-proxy" | "check-via-socks4" | "no-ssl-reuse" | "no-tls-tickets" | "no-sslv3"
            | "no-tlsv10" | "no-tlsv11" | "no-tlsv12" | "ssl-reuse" | "tfo" | "force-tlsv12"
            | "force-tlsv13" | "non-stick" | "stick" | "no-verifyhost" | "allow-0rtt" => {}
            "observe"
            | "on-error"
            | "on-marked-down"
            | "on-marked-up"
            | "agent-check"
            | "agent-inter"
            | "agent-addr"
            | "agent-port"
            | "agent-send"
            | "addr"
            | "track"
            | "redir"
            | "socks4"
            | "namespace"
            | "init-state"
            | "set-proxy-v2-tlv-fmt"
            | "ws" => {
                if name != "agent-check" {
                    words.next();
                }
                is_fine = false;
                let nearest = match name {
                    "observe" | "on-error" => "health: { outlier }",
                    "agent-check" | "agent-inter" | "agent-addr" | "agent-port" | "agent-send" | "track"
                    | "addr" => "health: { probe }",
                    "redir" => "a route with the filter redirect",
                    _ => "docs/reference/config.md#upstreamsname",
                };
                cx.ledger.refused(line.piece, format!("Weir has no `{name}`"), nearest);
            }
            _ => {
                is_fine = false;
                let nearest = "docs/reference/config.md#upstreamsname";
                cx.ledger.refused(
                    line.piece,
                    format!("weir import does not know the option `{name}`"),
                    nearest,
                );
            }
        }
    }
    is_fine
}

/// An address as Weir writes it.
fn address(text: &str) -> Result<String, String> {
    if has_variable(text) {
        return Err("its address stands in the environment".to_owned());
    }
    let text = text.strip_prefix("ipv4@").or_else(|| text.strip_prefix("ipv6@")).unwrap_or(text);
    if let Some(path) = text.strip_prefix("unix@").or_else(|| text.starts_with('/').then_some(text)) {
        return Ok(format!("unix:{path}"));
    }
    if text.contains('@') {
        return Err(format!("`{text}` is no address of Weir"));
    }
    let port = |text: &str| text.parse::<u16>().is_ok_and(|port| port > 0);
    match text.rsplit_once(':') {
        Some((host, number)) if port(number) => {
            let host = if host.contains(':') && !host.starts_with('[') {
                format!("[{host}]")
            } else {
                host.to_owned()
            };
            if host.is_empty() || host == "*" || host == "0.0.0.0" {
                return Err("an address of the client's choice (transparent)".to_owned());
            }
            Ok(format!("{host}:{number}"))
        }
        _ => Err("a server without a port of its own gets the one that the client asked for".to_owned()),
    }
}

fn of_server(cx: &mut Cx<'_, '_, '_>, line: &Line, own: &HashMap<&str, String>) -> Common {
    let mut common = Common::default();
    if own.contains_key("ssl") {
        let mut tls = Map::new();
        match own.get("verify").map(String::as_str) {
            Some("none") => {
                tls.comment(
                    "HAProxy does not verify it (`verify none`). Take this out if the certificate is valid.",
                );
                tls.set("verify", false);
            }
            _ => {
                if let Some(ca) = own.get("ca-file").filter(|ca| !ca.starts_with('@')) {
                    tls.set("ca", absolute(&cx.ca_base, ca));
                }
            }
        }
        let name = own.get("sni").map(|sni| super::sample::call(sni));
        match name {
            Some(("str", args)) => tls.set_some("server_name", args.first().cloned()),
            Some(_) => {
                let why = "Weir asks for one name, that of the endpoint or `server_name`; here it comes from the request";
                cx.ledger.refused(line.piece, why, "tls: { server_name } of the upstream");
            }
            None => tls.set_some("server_name", own.get("verifyhost").cloned()),
        }
        if let Some(pem) = own.get("crt") {
            let path = absolute(&cx.crt_base, pem);
            tls.set("client_cert", path.clone());
            tls.set("client_key", path);
        }
        common.tls = Some(tls);
    }
    if ["send-proxy-v2", "send-proxy-v2-ssl", "send-proxy-v2-ssl-cn"]
        .iter()
        .any(|name| own.contains_key(name))
    {
        common.proxy = Some("v2");
    } else if own.contains_key("send-proxy") {
        common.proxy = Some("v1");
    }
    let alpn = own.get("alpn").map_or("", String::as_str);
    if own.get("proto").is_some_and(|proto| proto == "h2") || alpn == "h2" || alpn.starts_with("h2,") {
        common.h2 = Some(true);
    }
    common.source = own.get("source").map(|source| source.trim_end_matches(":0").to_owned());
    common
}

/// A path of a certificate.
pub(super) fn absolute(base: &str, path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        join(if base.is_empty() { "/etc/haproxy" } else { base }, path)
    }
}

fn balance(cx: &mut Cx<'_, '_, '_>, proxy: &Proxy<'_>, upstream: &mut Upstream) {
    let line = proxy.one(&["balance"]);
    let hash = |by: String| -> Value { Map::new().with("hash", Map::new().with("by", by)).into() };
    let several = upstream.endpoints.len() > 1;
    let Some(line) = line else {
        if several {
            upstream.more.set("balancer", "round_robin");
        }
        return;
    };
    let (name, args) = super::sample::call(line.word(1));
    let argument = args.first().cloned().unwrap_or_default();
    let same = "each of Weir's cores takes turns for itself";
    let hashed = "keys fall on other endpoints than HAProxy's hash gave them";
    let value: Value = match name {
        "roundrobin" | "static-rr" => {
            cx.ledger.by_itself(line.piece, same);
            "round_robin".into()
        }
        "leastconn" => {
            cx.ledger.same(line.piece);
            "least_requests".into()
        }
        "random" => {
            cx.ledger.by_itself(line.piece, "of two random endpoints the one with fewer requests");
            "p2c".into()
        }
        "first" => {
            let nearest = "endpoints: [ { address, priority } ]: each tier is used when those before it cannot carry the load";
            return cx.ledger.refused(line.piece, "Weir fills no endpoint before the next", nearest);
        }
        "source" => {
            cx.ledger.changed(line.piece, hashed);
            hash("address".to_owned())
        }
        "uri" => {
            cx.ledger.changed(line.piece, hashed);
            hash("path".to_owned())
        }
        "url_param" => {
            cx.ledger.changed(line.piece, hashed);
            hash(format!("query:{}", line.word(2)))
        }
        "hdr" if !argument.is_empty() => {
            cx.ledger.changed(line.piece, hashed);
            hash(format!("header:{}", argument.to_ascii_lowercase()))
        }
        _ => {
            return cx.ledger.refused(
                line.piece,
                format!("Weir has no balancer `{}`", line.word(1)),
                "balancer: p2c, or hash",
            );
        }
    };
    if several {
        upstream.more.set("balancer", value);
    }
}

/// A timeout in milliseconds; the line is judged the same.
pub(super) fn timeout(cx: &mut Cx<'_, '_, '_>, proxy: &Proxy<'_>, name: &str) -> Option<u64> {
    let line = proxy.one(&["timeout", name])?;
    match read_duration(line.word(2), 1).filter(|_| !has_variable(line.word(2))) {
        Some(ms) => {
            cx.ledger.same(line.piece);
            Some(ms)
        }
        None => {
            cx.ledger.refused(line.piece, "its time cannot be read", "timeouts: docs/reference/config.md");
            None
        }
    }
}

fn timeouts(cx: &mut Cx<'_, '_, '_>, proxy: &Proxy<'_>, upstream: &mut Upstream, is_http: bool) {
    let mut map = Map::new();
    match timeout(cx, proxy, "connect") {
        Some(ms) if ms > 0 => map.set("connect", duration(ms)),
        _ => cx.ledger.note(
            "where no `timeout connect` is set, HAProxy waits without end; Weir waits 3 s for a connection",
        ),
    }
    let server = timeout(cx, proxy, "server");
    if server.is_none() {
        cx.ledger.note(
            "where no `timeout server` is set, HAProxy waits without end; Weir is told to do so, too: `0s`",
        );
    }
    if is_http {
        let time = server.map_or_else(|| "0s".to_owned(), duration);
        map.set("response", time.clone());
        map.set("body", time);
    }
    let client = proxy.one(&["timeout", "client"]).and_then(|line| read_duration(line.word(2), 1));
    let tunnel = timeout(cx, proxy, "tunnel").or_else(|| match (client, server) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    });
    map.set("tunnel", tunnel.map_or_else(|| "0s".to_owned(), duration));
    if let Some(line) = proxy.one(&["timeout", "queue"]) {
        let why = "a request waits for a connection no longer than timeouts.connect";
        cx.ledger.changed(line.piece, why);
    }
    upstream.more.set("timeouts", map);
}

fn retries(cx: &mut Cx<'_, '_, '_>, proxy: &Proxy<'_>, upstream: &mut Upstream, is_http: bool) {
    let retries = proxy.one(&["retries"]);
    let count = retries.and_then(|line| line.word(1).parse::<i64>().ok());
    if let Some(line) = retries {
        let why = "Weir tries every endpoint once when no connection is made, and the same one again only if there is no other";
        cx.ledger.changed(line.piece, why);
    }
    if let Some(line) = proxy.one(&["option", "redispatch"]) {
        cx.ledger.by_itself(line.piece, "Weir goes over to another endpoint by itself");
    }
    let Some(line) = proxy.one(&["retry-on"]).filter(|_| is_http) else {
        if is_http {
            cx.ledger.note("Weir repeats an idempotent request that was reset once, at another endpoint; HAProxy repeats connects only");
        }
        return;
    };
    let mut on: Vec<Value> = Vec::new();
    let mut unknown = Vec::new();
    for word in line.from(1) {
        let names: &[&str] = match &**word {
            "none" => &[],
            "conn-failure" => &["connect"],
            "empty-response" | "junk-response" => &["reset"],
            "response-timeout" => &["timeout"],
            "all-retryable-errors" => &["connect", "reset", "timeout", "500", "502", "503", "504"],
            "0rtt-rejected" => &[],
            status if status.len() == 3 && status.parse::<u16>().is_ok() => &[],
            other => {
                unknown.push(other);
                &[]
            }
        };
        let status = word.parse::<i64>().ok().map(Value::Number);
        let names =
            names.iter().map(|name| name.parse::<i64>().map_or_else(|_| (*name).into(), Value::Number));
        for value in names.chain(status) {
            if !on.contains(&value) {
                on.push(value);
            }
        }
    }
    if !unknown.is_empty() {
        return cx.ledger.refused(line.piece, format!("`{}`", unknown.join(" ")), "retry: { on }");
    }
    if on.is_empty() {
        return cx.ledger.changed(line.piece, "Weir repeats a failed connect in any case");
    }
    let mut retry = Map::new().with("attempts", (count.unwrap_or(3) + 1).clamp(1, 10));
    retry.set("on", Value::List(on));
    retry.set("methods", "all");
    upstream.more.set("retry", retry);
    cx.ledger.changed(line.piece, "retries are at most a fifth of the requests of a second (retry.budget)");
}

/// `cookie NAME insert …`.
fn sticky(cx: &mut Cx<'_, '_, '_>, proxy: &Proxy<'_>, upstream: &mut Upstream) {
    let Some(line) = proxy.one(&["cookie"]) else { return };
    if !line.has(2, "insert") {
        let why = "a cookie of the application's that HAProxy changes (prefix, rewrite)";
        return cx.ledger.refused(
            line.piece,
            why,
            "upstreams.NAME.sticky: { cookie, key }, a cookie of Weir's",
        );
    }
    let mut map = Map::new().with("cookie", line.word(1));
    if let Some(ms) = line.after(2, "maxlife").and_then(|text| read_duration(text, 1000)) {
        map.set("ttl", duration(ms));
    }
    map.comment("Put a random text into the environment; all gateways before these servers need the same.");
    map.set("key", cx.config.missing_secret("STICKY_KEY", "a-random-text-of-32-characters-.."));
    upstream.more.set("sticky", map);
    let why = "the cookie's value is another: clients that come with HAProxy's are balanced once more. \
               STICKY_KEY needs a value of yours in the environment";
    cx.ledger.changed(line.piece, why);
}
