//! The block `stream`: bytes without HTTP.

use super::block::Block;
use super::context::Cx;
use super::proxy::{group, named};
use super::read::Directive;
use super::server::absolute;
use crate::config::{Endpoint, Listener, Upstream};
use crate::shared::units::{duration, read_duration};
use crate::yaml::{Map, Value};
use std::collections::HashMap;

/// Translates all blocks `stream`.
pub(super) fn translate<'a>(cx: &mut Cx<'a, '_>, directives: &'a [Directive]) {
    let streams: Vec<&Directive> = directives.iter().filter(|directive| directive.name == "stream").collect();
    if streams.is_empty() {
        return;
    }
    streams.iter().for_each(|stream| cx.ledger.same(stream.piece));
    let stream = Block::new(streams.iter().flat_map(|stream| stream.block.iter().flatten()), None);
    let upstreams: HashMap<&str, &Directive> =
        stream.own("upstream").iter().map(|upstream| (upstream.first(), *upstream)).collect();
    for directive in stream.own("server") {
        let block = Block::new(directive.block.iter().flatten(), Some(std::rc::Rc::clone(&stream)));
        if let Err(why) = server(cx, directive, &block, &stream, &upstreams) {
            cx.ledger.refused(directive.piece, why, "listeners.NAME.tcp or listeners.NAME.sni");
        }
    }
}

fn server<'a>(
    cx: &mut Cx<'a, '_>,
    directive: &'a Directive,
    block: &Block<'a>,
    stream: &Block<'a>,
    upstreams: &HashMap<&str, &'a Directive>,
) -> Result<(), String> {
    let Some(pass) = block.one("proxy_pass") else { return Err("a server without proxy_pass".to_owned()) };
    let mut settings = Map::new();
    let idle = time(cx, block, "proxy_timeout", 600_000);
    let connect = time(cx, block, "proxy_connect_timeout", 60_000);
    settings.set("idle", duration(idle));
    settings.set("connect", duration(connect));
    let is_preread = block.is_on("ssl_preread");
    let mut listener = Listener::default();
    match pass.first().strip_prefix('$') {
        None => {
            let upstream = upstream(cx, block, pass.first(), upstreams)?;
            cx.ledger.same(pass.piece);
            let mut tcp = Map::new().with("upstream", upstream);
            settings.iter().for_each(|(key, value)| tcp.set(key, value.clone()));
            listener.more.set("tcp", tcp);
        }
        Some(variable) => {
            let table = stream
                .own("map")
                .iter()
                .find(|map| map.args.last().is_some_and(|last| last.trim_start_matches('$') == variable));
            let Some(table) = table.filter(|map| map.first() == "$ssl_preread_server_name" && is_preread)
            else {
                return Err("the upstream is chosen by a variable other than the name (SNI)".to_owned());
            };
            cx.ledger.same(table.piece);
            cx.ledger.same(pass.piece);
            let mut sni = Map::new();
            let mut otherwise = None;
            for line in table.block.iter().flatten() {
                let key = match &*line.name {
                    "hostnames" => {
                        cx.ledger.same(line.piece);
                        continue;
                    }
                    key if key.starts_with('~') || key.ends_with(".*") => {
                        cx.ledger.refused(
                            line.piece,
                            "names under `sni` are exact or `*.x`",
                            "listeners.NAME.sni",
                        );
                        continue;
                    }
                    key => key,
                };
                let upstream = match upstream(cx, block, line.first(), upstreams) {
                    Ok(upstream) => upstream,
                    Err(why) => {
                        cx.ledger.refused(line.piece, why, "listeners.NAME.sni");
                        continue;
                    }
                };
                cx.ledger.same(line.piece);
                let mut to = Map::new().with("upstream", upstream);
                settings.iter().for_each(|(key, value)| to.set(key, value.clone()));
                match key {
                    "default" => otherwise = Some(to),
                    key if key.starts_with('.') => {
                        sni.set(key.trim_start_matches('.'), to.clone());
                        sni.set(format!("*{key}"), to);
                    }
                    key => sni.set(key, to),
                }
            }
            listener.more.set("sni", sni);
            listener.more.set_some("otherwise", otherwise);
        }
    }
    if let Some(preread) = block.one("ssl_preread") {
        cx.ledger.same(preread.piece);
    }
    ip(cx, block, &mut listener)?;
    for listen in block.own("listen") {
        let mut made = listener.clone();
        let words: Vec<&str> = listen.args.iter().skip(1).map(String::as_str).collect();
        if words.contains(&"udp") {
            cx.ledger.refused(listen.piece, "Weir passes on TCP only", "listeners.NAME.tcp");
            continue;
        }
        let address = listen.first();
        let address = match address.parse::<u16>() {
            Ok(port) => format!("0.0.0.0:{port}"),
            Err(_) => address.replace("*:", "0.0.0.0:").replace("localhost:", "127.0.0.1:"),
        };
        cx.ledger.same(listen.piece);
        if words.contains(&"ssl") {
            let (cert, key) = (block.one("ssl_certificate"), block.one("ssl_certificate_key"));
            let (Some(cert), Some(key)) = (cert, key) else {
                return Err("TLS without a certificate".to_owned());
            };
            cx.ledger.same(cert.piece);
            cx.ledger.same(key.piece);
            let pair = Map::new().with("cert", absolute(cert.first())).with("key", absolute(key.first()));
            made.more.set("tls", Map::new().with("certificates", Value::List(vec![pair.into()])));
        }
        if words.contains(&"proxy_protocol") {
            made.more.set("proxy_protocol", true);
        }
        let name = format!("tcp-{}", address.rsplit(':').next().unwrap_or("stream"));
        made.address = Some(address);
        cx.config.listeners.add(&name, made);
    }
    cx.ledger.same(directive.piece);
    Ok(())
}

fn time(cx: &mut Cx<'_, '_>, block: &Block<'_>, name: &str, default: u64) -> u64 {
    let Some(directive) = block.one(name) else { return default };
    match read_duration(directive.first(), 1000) {
        Some(ms) => {
            cx.ledger.same(directive.piece);
            ms
        }
        None => {
            cx.ledger.refused(directive.piece, "the time cannot be read", "listeners.NAME.tcp");
            default
        }
    }
}

fn upstream<'a>(
    cx: &mut Cx<'a, '_>,
    block: &Block<'a>,
    address: &str,
    upstreams: &HashMap<&str, &'a Directive>,
) -> Result<String, String> {
    let mut made = Upstream::default();
    match upstreams.get(address).copied() {
        Some(found) => group(cx, found, 0, &mut made)?,
        None if address.contains('$') => return Err("an upstream that is chosen by a variable".to_owned()),
        None => made.endpoints.push(Endpoint { address: address.to_owned(), ..Endpoint::default() }),
    }
    if block.is_on("proxy_protocol") {
        made.more.set("proxy_protocol", "v1");
    }
    if let Some(protocol) = block.one("proxy_protocol") {
        cx.ledger.same(protocol.piece);
    }
    if block.is_on("proxy_ssl") {
        let mut tls = Map::new();
        if !block.is_on("proxy_ssl_verify") {
            tls.comment("nginx verifies no certificate of an upstream unless told to. Take this out if yours is valid.");
            tls.set("verify", false);
        }
        made.more.set("tls", tls);
    }
    if let Some(ssl) = block.one("proxy_ssl") {
        cx.ledger.same(ssl.piece);
    }
    Ok(named(cx, address, made))
}

/// `allow` and `deny` of a server: both lists in order.
fn ip<'a>(cx: &mut Cx<'a, '_>, block: &Block<'a>, listener: &mut Listener) -> Result<(), String> {
    let rules: Vec<&Directive> =
        block.all().iter().filter(|rule| matches!(&*rule.name, "allow" | "deny")).copied().collect();
    let (mut allow, mut deny) = (Vec::new(), Vec::new());
    let mut is_closed = false;
    for rule in &rules {
        match (&*rule.name, rule.first()) {
            ("deny", "all") => is_closed = true,
            ("allow", "all") => {}
            ("allow", network) => allow.push(crate::shared::networks::network(network)?),
            (_, _) if !allow.is_empty() => return Err("a `deny` behind an `allow`".to_owned()),
            (_, network) => deny.push(crate::shared::networks::network(network)?),
        }
    }
    if is_closed && allow.is_empty() {
        return Err("nobody may pass".to_owned());
    }
    rules.iter().for_each(|rule| cx.ledger.same(rule.piece));
    let mut map = Map::new();
    if is_closed {
        map.set("allow", allow);
    }
    if !deny.is_empty() {
        map.set("deny", deny);
    }
    if !map.is_empty() {
        listener.more.set("ip", map);
    }
    Ok(())
}
