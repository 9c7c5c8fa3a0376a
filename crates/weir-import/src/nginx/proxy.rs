//! `proxy_pass` and what belongs to it: upstreams, the path and the fields that they see.

use super::context::{Cx, Scope};
use super::read::Directive;
use super::server::absolute;
use super::text::template;
use crate::config::{Endpoint, Filter, Upstream};
use crate::ledger::Piece;
use crate::shared::filters::Headers;
use crate::shared::template::{Part, Template};
use crate::shared::units::{duration, read_duration};
use crate::yaml::{Map, Value};

/// Where requests go, and what is changed before.
pub(super) struct Proxied {
    pub(super) upstream: String,
    pub(super) filters: Vec<Filter>,
}

/// The parts of `proxy_pass SCHEME://HOST URI`.
struct Address {
    scheme: String,
    /// `host:port`, `unix:/path` or the name of a block `upstream`.
    host: String,
    uri: Option<Template>,
    /// Whether variables made it.
    has_variables: bool,
}

/// Translates `proxy_pass` or `grpc_pass`.
pub(super) fn proxied<'a>(
    cx: &mut Cx<'a, '_>,
    scope: &Scope<'a>,
    pass: &'a Directive,
) -> Result<Proxied, String> {
    let address = read_address(cx, scope, pass)?;
    let mut filters = Vec::new();
    let host = request_fields(cx, scope, &address, &mut filters)?;
    if let Some(rewrite) = path_sent(cx, scope, pass, &address)? {
        filters.push(rewrite);
    }
    let upstream = upstream(cx, scope, &address, host.as_deref())?;
    if !cx.ledger.is_judged(pass.piece) {
        cx.ledger.same(pass.piece);
    }
    Ok(Proxied { upstream, filters })
}

fn read_address(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, pass: &Directive) -> Result<Address, String> {
    let text = pass.first();
    let has_variables = text.contains('$');
    let whole = template(cx, scope, text)?;
    // Scheme and host must be fixed: their end is the first slash behind them.
    let mut fixed = String::new();
    let mut parts = whole.parts().iter();
    let mut uri = Template::default();
    let mut has_uri = false;
    for part in parts.by_ref() {
        match part {
            Part::Text(text) => fixed.push_str(text),
            part => {
                uri.push(part.clone());
                has_uri = true;
                break;
            }
        }
    }
    parts.for_each(|part| uri.push(part.clone()));
    let (scheme, rest) = match fixed.split_once("://") {
        Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest.to_owned()),
        None if pass.name == "grpc_pass" && !fixed.is_empty() => ("grpc".to_owned(), fixed),
        None => {
            return Err(
                "the address is known only when a request comes: the client might choose it".to_owned()
            );
        }
    };
    if !["http", "https", "grpc", "grpcs"].contains(&&*scheme) {
        return Err(format!("`{scheme}` is no scheme that Weir speaks to upstreams"));
    }
    let (host, start) = match rest.strip_prefix("unix:") {
        Some(path) => match path.split_once(':') {
            Some((path, uri)) => (format!("unix:{path}"), uri.to_owned()),
            None => (format!("unix:{path}"), String::new()),
        },
        None => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            (rest[..end].to_owned(), rest[end..].to_owned())
        }
    };
    // A value directly behind the host is the path as it came, or would be a part of the host.
    let begins_with_path = matches!(
        uri.parts().first(),
        Some(Part::Placeholder(name)) if name == "path"
    ) || matches!(
        uri.parts().first(),
        Some(Part::Value(value)) if value.as_str().contains("request.path")
    );
    if host.is_empty() || (has_uri && start.is_empty() && !begins_with_path) {
        return Err("the address is known only when a request comes: the client might choose it".to_owned());
    }
    let mut all = Template::text(&start);
    all.append(uri);
    let uri = (!all.is_empty()).then_some(all);
    Ok(Address { scheme, host, uri, has_variables })
}

/// What changes the path. None if it is sent as it came.
fn path_sent(
    cx: &mut Cx<'_, '_>,
    scope: &Scope<'_>,
    pass: &Directive,
    address: &Address,
) -> Result<Option<Filter>, String> {
    let Some(uri) = &address.uri else { return Ok(None) };
    if let Some(to) = uri.as_literal().filter(|_| !address.has_variables || scope.path.is_some()) {
        if address.has_variables && to != "/" {
            // With a variable the value is the whole target, whatever the location took away.
            cx.ledger.changed(
                pass.piece,
                "with a variable, nginx sends this path for every request of the location",
            );
            return Ok(Some(rewrite("path", &literal_path(&to))));
        }
        if address.has_variables {
            return Ok(Some(rewrite("path", "/")));
        }
        let Some(from) = scope.path.as_deref() else {
            return Err("nginx itself refuses a path in `proxy_pass` here".to_owned());
        };
        return replace_prefix(cx, pass.piece, from, &to, scope.is_exact).map_err(str::to_owned);
    }
    let (path, keeps_query) = without_query(uri);
    let is_whole = matches!(path.parts(), [Part::Placeholder(name)] if name == "path");
    if is_whole {
        return Ok(None);
    }
    if path.parts().iter().any(|part| matches!(part, Part::Value(_))) {
        return Err("the path is made of variables that Weir cannot put into a path".to_owned());
    }
    if !keeps_query {
        cx.ledger.changed(pass.piece, "Weir keeps the query, which nginx drops here");
    }
    Ok(Some(rewrite("path", &path.to_setting())))
}

/// A path and whether the client's query follows it: `$is_args$args` and `?$args` at its end.
pub(super) fn without_query(uri: &Template) -> (Template, bool) {
    let mut parts = uri.parts().to_vec();
    let mut keeps = false;
    let is_query = |part: &Part| matches!(part, Part::Placeholder(name) if name == "query");
    if parts.last().is_some_and(is_query) {
        keeps = true;
        parts.pop();
        match parts.last_mut() {
            Some(Part::Text(text)) if text.ends_with('?') => {
                text.pop();
            }
            Some(Part::Value(value)) if value.as_str().contains("\"?\"") => _ = parts.pop(),
            _ => {}
        }
    } else if let Some(Part::Value(value)) = parts.last()
        && value.as_str().contains("request.path + \"?\"")
    {
        // `$request_uri` is both.
        keeps = true;
        parts.pop();
        parts.push(Part::Placeholder("path".to_owned()));
    }
    let mut template = Template::default();
    parts.into_iter().for_each(|part| template.push(part));
    (template, keeps)
}

fn literal_path(path: &str) -> String {
    Template::text(path).to_setting()
}

fn rewrite(key: &str, value: &str) -> Filter {
    Filter::new("rewrite", Map::new().with(key, value))
}

/// nginx puts `to` in the place of `from`, the location's prefix.
fn replace_prefix(
    cx: &mut Cx<'_, '_>,
    piece: Piece,
    from: &str,
    to: &str,
    is_exact: bool,
) -> Result<Option<Filter>, &'static str> {
    if to.contains('?') {
        return Err("the path in `proxy_pass` has a query");
    }
    if is_exact {
        return Ok((from != to).then(|| rewrite("path", &literal_path(to))));
    }
    if from == to {
        return Ok(None);
    }
    let (from_slash, to_slash) = (from.ends_with('/'), to.ends_with('/'));
    let strip = from.trim_end_matches('/');
    let add = to.trim_end_matches('/');
    let mut map = Map::new();
    if !strip.is_empty() {
        map.set("strip_prefix", strip);
    }
    if !add.is_empty() {
        map.set("add_prefix", add);
    }
    match (from_slash, to_slash) {
        (true, true) => {
            if !strip.is_empty() {
                cx.ledger.changed(piece, crate::shared::path::TELLS_PREFIX);
            }
        }
        (false, true) => {
            let why = format!(
                "nginx sends `{to}/x` for `{from}/x`, and `{to}x` for `{from}x`; Weir sends `{to}x` for the first, \
                 and leaves the second unchanged"
            );
            cx.ledger.changed(piece, why);
        }
        (false, false) => {
            let why = format!(
                "for `{from}` itself nginx sends `{to}`, Weir `{to}/`; and Weir replaces whole segments only, so \
                 `{from}x` is not changed to `{to}x`"
            );
            cx.ledger.changed(piece, why);
        }
        (true, false) => {
            return Err(
                "the path in `proxy_pass` has no slash at its end but the location has: `/a/x` becomes `/bx`",
            );
        }
    }
    Ok(Some(Filter::new("rewrite", map)))
}

/// The fields that the upstream sees. Returns the `host` of the upstream.
fn request_fields<'a>(
    cx: &mut Cx<'a, '_>,
    scope: &Scope<'a>,
    address: &Address,
    filters: &mut Vec<Filter>,
) -> Result<Option<String>, String> {
    let own_host = own_host(cx, address);
    let mut host = Some(own_host.clone());
    let mut headers = Headers::default();
    let name = if address.scheme.starts_with("grpc") { "grpc_set_header" } else { "proxy_set_header" };
    let fields = scope.block.nearest(name);
    let mut tells_client = false;
    for field in fields {
        let [name, value] = &*field.args else {
            cx.ledger.refused(field.piece, "a field has a name and a value", "headers: { request: { set } }");
            continue;
        };
        let lower = name.to_ascii_lowercase();
        tells_client |= lower.starts_with("x-forwarded");
        match &*lower {
            "host" => {
                host = match &**value {
                    "$http_host" | "$host:$server_port" => {
                        cx.ledger.same(field.piece);
                        None
                    }
                    "$host" => {
                        cx.ledger.changed(
                            field.piece,
                            "Weir sends host and port as the client asked, nginx the host",
                        );
                        None
                    }
                    "$proxy_host" => {
                        cx.ledger.same(field.piece);
                        Some(own_host.clone())
                    }
                    value => match template(cx, scope, value) {
                        Ok(text) => match text.as_literal() {
                            Some(text) => {
                                cx.ledger.same(field.piece);
                                Some(text)
                            }
                            None => {
                                cx.ledger.same(field.piece);
                                let setting = text.to_setting();
                                filters.push(Filter::new("rewrite", Map::new().with("host", setting)));
                                None
                            }
                        },
                        Err(why) => {
                            cx.ledger.refused(field.piece, why, "host of the upstream");
                            None
                        }
                    },
                };
            }
            "connection" | "upgrade" | "proxy-connection" | "keep-alive" | "te" => {
                cx.ledger
                    .by_itself(field.piece, "Weir passes upgrades (WebSocket) on, and keeps connections");
            }
            "content-length" | "transfer-encoding" | "expect" | "trailer" => {
                cx.ledger.left_out(field.piece, "Weir alone says where a message ends");
            }
            "x-forwarded-for" => {
                let why = "Weir sends the client's address, and what a proxy before it said only if trusted_proxies \
                           names that proxy; nginx passes on what any client claims";
                match &**value {
                    "$remote_addr" => cx.ledger.by_itself(field.piece, "Weir sends it"),
                    _ => cx.ledger.changed(field.piece, why),
                }
            }
            "x-forwarded-proto" | "x-forwarded-scheme" if value == "$scheme" && lower.ends_with("proto") => {
                cx.ledger.by_itself(field.piece, "Weir sends it");
            }
            "x-forwarded-proto" => {
                let why = "Weir sends the scheme of the client's connection, and what a proxy before it said only if \
                           trusted_proxies names that proxy";
                cx.ledger.changed(field.piece, why);
            }
            "x-forwarded-host" => match &**value {
                "$http_host" | "$host:$server_port" => cx.ledger.by_itself(field.piece, "Weir sends it"),
                _ => cx.ledger.changed(field.piece, "Weir sends the host and port that the client asked for"),
            },
            "forwarded" => cx.ledger.changed(field.piece, "Weir writes Forwarded itself"),
            _ => match template(cx, scope, value) {
                _ if lower.contains('_') => {
                    let why = "fields with `_` are dropped, because servers read `_` as `-`";
                    cx.ledger.refused(field.piece, why, "the same name with `-`");
                    headers.withhold(&lower);
                }
                Ok(text) if text.is_empty() => {
                    cx.ledger.same(field.piece);
                    headers.request_remove.push(lower);
                }
                Ok(text) => {
                    judge_client_claims(cx, field, value);
                    let setting = secret_or(cx, field, &lower, &text);
                    headers.request_set.retain(|(known, _)| *known != lower);
                    headers.request_set.push((lower, setting));
                }
                // nginx overwrites what the client sent, so the client's value must not pass either.
                Err(why) => {
                    cx.ledger.refused(field.piece, why, "headers: { request: { set } }");
                    headers.withhold(&lower);
                }
            },
        }
    }
    if !tells_client {
        cx.ledger.note(
            "Weir tells upstreams about the client in X-Forwarded-For, -Proto, -Host and Forwarded; this config did \
             not everywhere",
        );
    }
    filters.extend(headers.filter());
    Ok(host)
}

/// A value that the client may have sent itself.
fn judge_client_claims(cx: &mut Cx<'_, '_>, field: &Directive, value: &str) {
    let claims = ["$http_x_forwarded", "$proxy_add_x_forwarded_for", "$http_x_real_ip"];
    if claims.iter().any(|claim| value.contains(claim)) {
        let why = "Weir drops these fields of a client unless trusted_proxies names it";
        cx.ledger.changed(field.piece, why);
    } else {
        cx.ledger.same(field.piece);
    }
}

/// The value of a field, or a variable if it looks like a secret.
pub(super) fn secret_or(cx: &mut Cx<'_, '_>, field: &Directive, name: &str, text: &Template) -> Value {
    let words = ["authorization", "token", "secret", "api-key", "apikey", "password", "credential"];
    let is_secret = words.iter().any(|word| name.contains(word));
    match text.as_literal() {
        Some(literal) if is_secret && !literal.is_empty() => {
            cx.ledger.conceal(field.piece);
            cx.config.secret(name, &literal)
        }
        _ => text.to_setting().into(),
    }
}

/// nginx's `$proxy_host`.
fn own_host(cx: &Cx<'_, '_>, address: &Address) -> String {
    if address.host.starts_with("unix:") {
        return "localhost".to_owned();
    }
    if cx.upstreams.contains_key(&*address.host) {
        return address.host.clone();
    }
    let usual = if address.scheme.ends_with('s') { ":443" } else { ":80" };
    address.host.strip_suffix(usual).unwrap_or(&address.host).to_owned()
}

/// Our upstream for an address with the settings that apply here.
fn upstream<'a>(
    cx: &mut Cx<'a, '_>,
    scope: &Scope<'a>,
    address: &Address,
    host: Option<&str>,
) -> Result<String, String> {
    let mut made = Upstream::default();
    let is_tls = address.scheme.ends_with('s');
    let port = if is_tls { 443 } else { 80 };
    let block = cx.upstreams.get(&*address.host).copied();
    match block {
        Some(block) => group(cx, block, port, &mut made)?,
        None => {
            made.endpoints.push(Endpoint { address: with_port(&address.host, port), ..Endpoint::default() })
        }
    }
    if address.scheme.starts_with("grpc") {
        made.more.set("protocol", if is_tls { "h2" } else { "h2c" });
    }
    if is_tls {
        let tls = tls(cx, scope, address, block.is_some());
        made.more.set("tls", tls);
    }
    if let Some(host) = host {
        let own = made.endpoints.first().map(|endpoint| endpoint.address.clone()).unwrap_or_default();
        let is_endpoint = made.endpoints.len() == 1
            && own_host(
                cx,
                &Address { host: own, scheme: address.scheme.clone(), uri: None, has_variables: false },
            ) == host;
        made.more.set("host", if is_endpoint { "endpoint" } else { host });
    }
    let prefix = if address.scheme.starts_with("grpc") { "grpc" } else { "proxy" };
    timeouts(cx, scope, prefix, &mut made);
    retry(cx, scope, prefix, &mut made);
    redirects(cx, scope, &mut made);
    Ok(named(cx, &address.host, made))
}

/// The name of an upstream with these settings: one that exists, or a new one.
pub(super) fn named(cx: &mut Cx<'_, '_>, wish: &str, made: Upstream) -> String {
    let key = format!("{:?} {:?}", made.endpoints, made.more);
    if let Some(name) = cx.made_upstreams.get(&key) {
        return name.clone();
    }
    let wish = match wish.strip_prefix("unix:") {
        Some(path) => path.rsplit('/').next().unwrap_or(path).trim_end_matches(".sock").to_owned(),
        None => wish.to_owned(),
    };
    let name = cx.config.upstreams.add(&wish, made);
    cx.made_upstreams.insert(key, name.clone());
    name
}

fn with_port(host: &str, port: u16) -> String {
    let has_port = match host.rsplit_once(':') {
        Some((_, digits)) => {
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && !host.ends_with(']')
        }
        None => false,
    };
    if host.starts_with("unix:") || has_port { host.to_owned() } else { format!("{host}:{port}") }
}

/// The servers of a block `upstream`.
pub(super) fn group<'a>(
    cx: &mut Cx<'a, '_>,
    block: &'a Directive,
    port: u16,
    made: &mut Upstream,
) -> Result<(), String> {
    cx.ledger.same(block.piece);
    let mut balancer: Option<Value> = Some("round_robin".into());
    let mut outlier = None;
    for line in block.block.iter().flatten() {
        match &*line.name {
            "server" => {
                let mut endpoint = Endpoint { address: with_port(line.first(), port), ..Endpoint::default() };
                let mut is_down = false;
                cx.ledger.same(line.piece);
                for word in line.args.iter().skip(1) {
                    let (key, value) = word.split_once('=').unwrap_or((word, ""));
                    match key {
                        "weight" => endpoint.weight = value.parse().ok().filter(|weight| *weight != 1),
                        "backup" => endpoint.priority = Some(1),
                        "down" => is_down = true,
                        "max_fails" if value == "0" => {}
                        "max_fails" | "fail_timeout" => {
                            let map = outlier.get_or_insert_with(Map::new);
                            match (key, value.parse::<i64>(), read_duration(value, 1000)) {
                                ("max_fails", Ok(errors), _) => map.set("errors", errors),
                                (_, _, Some(ms)) => {
                                    map.set("window", duration(ms));
                                    map.set("eject", duration(ms));
                                }
                                _ => {}
                            }
                            let why = "Weir's `outlier` counts answers of 500 and above too, for all servers of the \
                                       group alike";
                            cx.ledger.changed(line.piece, why);
                        }
                        "resolve" => cx
                            .ledger
                            .by_itself(line.piece, "names are resolved again when their time is over"),
                        "max_conns" => {
                            let why = "Weir limits the connections of a whole upstream, not of one server";
                            cx.ledger.refused(line.piece, why, "upstreams.NAME.limits.connections");
                        }
                        "slow_start" => {
                            if let Some(ms) = read_duration(value, 1000) {
                                made.more.set("slow_start", duration(ms));
                            }
                        }
                        other => {
                            let why = format!("`{other}` is unknown to weir import");
                            cx.ledger.refused(line.piece, why, "upstreams.NAME.endpoints[]");
                        }
                    }
                }
                if is_down {
                    made.comment.push(format!("{} is marked `down`, so it is left out.", endpoint.address));
                    cx.ledger.changed(
                        line.piece,
                        "a server that is `down` is left out; weir endpoint takes one out",
                    );
                } else {
                    made.endpoints.push(endpoint);
                }
            }
            "least_conn" => {
                cx.ledger.same(line.piece);
                balancer = Some("least_requests".into());
            }
            "random" => {
                cx.ledger.same(line.piece);
                balancer = if line.args.is_empty() { Some("random".into()) } else { None };
            }
            "least_time" => {
                cx.ledger.changed(line.piece, "Weir prefers servers with lower recent latency");
                balancer = Some("ewma".into());
            }
            "ip_hash" => {
                cx.ledger
                    .changed(line.piece, "nginx counts the first three bytes of an IPv4 address, Weir all");
                balancer = Some(hash("address"));
            }
            "hash" => match hash_key(line.first()) {
                Some(by) => {
                    cx.ledger.changed(line.piece, "other hashes: clients move to other servers once");
                    balancer = Some(hash(&by));
                }
                None => {
                    let why = "Weir hashes by one field, cookie or parameter, the address or the path";
                    cx.ledger.refused(line.piece, why, "balancer: { hash: { by } }");
                }
            },
            "keepalive" | "keepalive_requests" | "zone" | "keepalive_time" | "queue" => {
                cx.ledger.by_itself(line.piece, "Weir keeps connections and shares what it knows of servers");
            }
            "keepalive_timeout" => {
                cx.ledger.same(line.piece);
                if let Some(ms) = read_duration(line.first(), 1000).filter(|ms| *ms != 60_000) {
                    made.more.set("keepalive", duration(ms));
                }
            }
            "sticky" => {
                let why = "a cookie of Weir needs a key";
                cx.ledger.refused(line.piece, why, "upstreams.NAME.sticky: { cookie, key }");
            }
            _ => {}
        }
    }
    if made.endpoints.is_empty() {
        return Err(format!("the upstream `{}` has no server that is not `down`", block.first()));
    }
    if made.endpoints.len() > 1 {
        made.more.set_some("balancer", balancer);
    }
    if let Some(outlier) = outlier.filter(|_| made.endpoints.len() > 1) {
        made.more.map_mut("health").set("outlier", outlier);
    }
    Ok(())
}

fn hash(by: &str) -> Value {
    Map::new().with("hash", Map::new().with("by", by)).into()
}

fn hash_key(text: &str) -> Option<String> {
    let field = |name: &str| name.replace('_', "-");
    Some(match text.trim_start_matches('$').trim_matches(['{', '}']) {
        "remote_addr" | "binary_remote_addr" => "address".to_owned(),
        "uri" | "request_uri" | "document_uri" => "path".to_owned(),
        name if text.matches('$').count() != 1 || !text.starts_with('$') || name.contains('$') => {
            return None;
        }
        name => {
            if let Some(name) = name.strip_prefix("http_") {
                format!("header:{}", field(name))
            } else if let Some(name) = name.strip_prefix("cookie_") {
                format!("cookie:{name}")
            } else {
                format!("query:{}", name.strip_prefix("arg_")?)
            }
        }
    })
}

fn tls(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, address: &Address, is_group: bool) -> Map {
    let mut tls = Map::new();
    let block = &scope.block;
    if let Some(ca) = block.one("proxy_ssl_trusted_certificate") {
        cx.ledger.same(ca.piece);
        tls.set("ca", absolute(ca.first()));
    }
    if let (Some(cert), Some(key)) =
        (block.one("proxy_ssl_certificate"), block.one("proxy_ssl_certificate_key"))
    {
        cx.ledger.same(cert.piece);
        cx.ledger.same(key.piece);
        tls.set("client_cert", absolute(cert.first()));
        tls.set("client_key", absolute(key.first()));
    }
    if let Some(name) = block.one("proxy_ssl_name") {
        match template(cx, scope, name.first()).ok().and_then(|text| text.as_literal()) {
            Some(text) => {
                cx.ledger.same(name.piece);
                tls.set("server_name", text);
            }
            None => cx.ledger.refused(name.piece, "the name must be fixed", "upstreams.NAME.tls.server_name"),
        }
    } else if is_group && block.is_on("proxy_ssl_verify") {
        tls.set("server_name", address.host.clone());
    }
    if let Some(sni) = block.one("proxy_ssl_server_name") {
        if sni.first() == "on" {
            cx.ledger.same(sni.piece);
        } else {
            cx.ledger.changed(sni.piece, "Weir sends the server's name (SNI)");
        }
    }
    if let Some(verify) = block.one("proxy_ssl_verify") {
        cx.ledger.same(verify.piece);
    }
    if !block.is_on("proxy_ssl_verify") {
        tls.comment(
            "nginx verifies no certificate of an upstream unless told to. Take this out if yours is valid.",
        );
        tls.set("verify", false);
    }
    tls
}

fn timeouts(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, prefix: &str, made: &mut Upstream) {
    let mut read = |name: &str, default: u64| -> u64 {
        match scope.block.one(&format!("{prefix}_{name}")) {
            None => default,
            Some(directive) => match read_duration(directive.first(), 1000) {
                Some(ms) => {
                    cx.ledger.same(directive.piece);
                    ms
                }
                None => {
                    cx.ledger.refused(directive.piece, "the time cannot be read", "upstreams.NAME.timeouts");
                    default
                }
            },
        }
    };
    let (connect, response) = (read("connect_timeout", 60_000), read("read_timeout", 60_000));
    if let Some(send) = scope.block.one(&format!("{prefix}_send_timeout")) {
        let why = "an upstream that takes no part of a request is ended by `timeouts.response`";
        cx.ledger.changed(send.piece, why);
    }
    let mut map = Map::new();
    if connect != 3_000 {
        map.set("connect", duration(connect));
    }
    if response != 30_000 {
        map.set("response", duration(response));
    }
    if response != 60_000 {
        map.set("body", duration(response));
    }
    // nginx's read timeout counts for upgraded connections too; ours is an hour.
    if response < 3_600_000 {
        cx.ledger.note(
            "a tunnel (WebSocket) may be silent for 1 h (`timeouts.tunnel`), in nginx for proxy_read_timeout",
        );
    } else if response > 3_600_000 {
        map.set("tunnel", duration(response));
    }
    if !map.is_empty() {
        made.more.set("timeouts", map);
    }
}

fn retry(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, prefix: &str, made: &mut Upstream) {
    let next = scope.block.one(&format!("{prefix}_next_upstream"));
    let tries = scope.block.one(&format!("{prefix}_next_upstream_tries"));
    let Some(next) = next else {
        if let Some(tries) = tries {
            cx.ledger.changed(tries.piece, "Weir tries twice at most, unless `retry.attempts` says more");
        }
        return;
    };
    let mut map = Map::new();
    let mut on: Vec<Value> = Vec::new();
    let mut is_off = false;
    for word in &next.args {
        match &**word {
            "error" => on.extend(["connect".into(), "reset".into(), "refused_stream".into()]),
            "timeout" => on.push("timeout".into()),
            "off" => is_off = true,
            "non_idempotent" => map.set("methods", "all"),
            "invalid_header" => on.push(Value::Number(502)),
            "http_403" | "http_404" => {
                cx.ledger.refused(next.piece, "Weir repeats no request for a 403 or 404", "retry.on");
            }
            status => {
                if let Some(status) = status.strip_prefix("http_").and_then(|s| s.parse::<i64>().ok()) {
                    on.push(Value::Number(status));
                }
            }
        }
    }
    if is_off {
        map.set("attempts", 1_i64);
        cx.ledger.same(next.piece);
    } else {
        let count = i64::try_from(made.endpoints.len()).unwrap_or(10);
        let tries = tries.and_then(|tries| {
            cx.ledger.same(tries.piece);
            tries.first().parse::<i64>().ok().filter(|tries| *tries > 0)
        });
        let attempts = tries.unwrap_or(count).clamp(1, 10);
        if attempts != 2 {
            map.set("attempts", attempts);
        }
        map.set("on", Value::List(on));
        cx.ledger.changed(next.piece, "Weir repeats within a budget: 20 % of the requests of each second");
    }
    made.more.set("retry", map);
}

fn redirects(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, made: &mut Upstream) {
    for redirect in scope.block.nearest("proxy_redirect") {
        match redirect.first() {
            "off" => {
                cx.ledger.same(redirect.piece);
                made.more.set("links", "keep");
            }
            "default" => cx.ledger.same(redirect.piece),
            _ => {
                let why = "Weir rewrites Location where it names the endpoint or a removed prefix, and nothing else";
                cx.ledger.refused(redirect.piece, why, "links: rewrite of the upstream");
            }
        }
    }
}
