//! Entry points as listeners.

use super::super::cx::{list, milliseconds, nothing_else};
use super::{EntryPoint, Redirect, Tls};
use crate::config::Config;
use crate::ledger::{Ledger, Piece};
use crate::shared::families::takes_both;
use crate::shared::networks::network;
use crate::shared::tree::{Entry, Fields, Node};
use crate::shared::units;
use crate::yaml::{Map, Value};

pub(super) fn entry_point(entry: &Entry, config: &mut Config, ledger: &mut Ledger) -> Option<EntryPoint> {
    let mut fields = Fields::in_any_case(&entry.node);
    let mut point = EntryPoint { name: entry.key.to_string(), ..EntryPoint::default() };
    ledger.same(entry.piece);
    point.piece = Some(entry.piece);
    if let Some((address, piece)) = fields.text("address", ledger) {
        let (plain, protocol) = address.split_once('/').unwrap_or((&address, "tcp"));
        if protocol == "udp" {
            ledger.refused(piece, "Weir does not pass datagrams on", "keep Traefik for this port");
            entry.node.each_piece(&mut |piece| {
                if !ledger.is_judged(piece) {
                    ledger.refused(piece, "of an entry point for datagrams", "keep Traefik for this port");
                }
            });
            return None;
        }
        // Go, and therefore Traefik, listens on IPv6 and IPv4 for an empty host and for `0.0.0.0`.
        let port = plain.strip_prefix(':').or_else(|| plain.strip_prefix("0.0.0.0:"));
        point.address = port.map_or_else(|| plain.to_owned(), |port| format!("[::]:{port}"));
        if port.is_some() {
            ledger.note(takes_both(super::super::listeners::BOTH_FAMILIES));
        }
        ledger.same(piece);
    }
    if let Some((flag, piece)) = fields.flag("asDefault", ledger) {
        point.is_default = flag;
        ledger.same(piece);
    }
    let mut timeouts = Map::new();
    if let Some((node, piece)) = fields.map("transport", ledger) {
        ledger.same(piece);
        transport(node, &mut timeouts, config, ledger);
    }
    if !timeouts.is_empty() {
        point.more.set("timeouts", timeouts);
    }
    for (key, kind) in [("forwardedHeaders", "X-Forwarded-*"), ("proxyProtocol", "the PROXY header")] {
        let Some((node, piece)) = fields.map(key, ledger) else { continue };
        ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        if let Some((networks, piece)) = list(&mut fields, "trustedIPs", ledger) {
            trust(&networks, piece, config, ledger);
        }
        if let Some((insecure, piece)) = fields.flag("insecure", ledger) {
            match insecure {
                false => ledger.same(piece),
                true => ledger.refused(
                    piece,
                    format!("any client could forge {kind}"),
                    "trusted_proxies: the networks of your load balancers",
                ),
            }
        }
        for key in ["connection", "notAppendXForwardedFor"] {
            if let Some(entry) = fields.entry(key) {
                ledger.changed(entry.piece, "Connection never removes a forwarding field in Weir");
            }
        }
        nothing_else(fields, key, ledger);
        if key == "proxyProtocol" && config.more.get("trusted_proxies").is_some() {
            point.more.set("proxy_protocol", true);
            ledger
                .changed(piece, "every connection must begin with the header; in Traefik it may be missing");
        }
    }
    if let Some((node, piece)) = fields.map("http", ledger) {
        ledger.same(piece);
        http(node, &mut point, config, ledger);
    }
    if let Some((node, piece)) = fields.map("http2", ledger) {
        ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        if let Some((streams, piece)) = fields.number("maxConcurrentStreams", ledger) {
            let streams = i64::try_from(streams).unwrap_or(128);
            config.more.map_mut("limits").set("h2", Map::new().with("streams", streams));
            ledger.changed(piece, "for all listeners together");
        }
        nothing_else(fields, "http2", ledger);
    }
    if let Some(entry) = fields.entry("http3") {
        entry.each_piece(&mut |piece| {
            ledger.refused(
                piece,
                "weir import writes no HTTP/3",
                "protocols: [h3, h2, http1] of the listener",
            );
        });
    }
    for key in ["reusePort", "observability", "allowACMEByPass"] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| match key {
                "reusePort" => ledger.by_itself(piece, "each core has its own socket"),
                "observability" => {
                    ledger.changed(piece, "logs and traces are for all listeners: access_log.when")
                }
                _ => ledger.by_itself(piece, "challenges are answered before routes"),
            });
        }
    }
    nothing_else(fields, "an entry point", ledger);
    Some(point)
}

fn trust(networks: &[String], piece: Piece, config: &mut Config, ledger: &mut Ledger) {
    let mut known = match config.more.get("trusted_proxies") {
        Some(Value::List(known)) => known.clone(),
        _ => Vec::new(),
    };
    for text in networks {
        match network(text) {
            Ok(network) if known.contains(&network.as_str().into()) => {}
            Ok(network) => known.push(network.into()),
            Err(why) => ledger.refused(piece, why, "trusted_proxies: [ 10.0.0.0/8 ]"),
        }
    }
    config.more.set("trusted_proxies", Value::List(known));
    ledger.changed(piece, "trusted on all listeners");
}

fn transport(node: &Node, timeouts: &mut Map, config: &mut Config, ledger: &mut Ledger) {
    let mut fields = Fields::in_any_case(node);
    if let Some((node, piece)) = fields.map("respondingTimeouts", ledger) {
        ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        if let Some((ms, piece)) = milliseconds(&mut fields, "readTimeout", ledger) {
            timeouts.set("body", units::duration(ms));
            ledger.changed(piece, "the longest pause of a body; Traefik limits the whole request");
        }
        if let Some((ms, piece)) = milliseconds(&mut fields, "idleTimeout", ledger) {
            timeouts.set("keepalive", units::duration(ms));
            ledger.same(piece);
        }
        if let Some((ms, piece)) = milliseconds(&mut fields, "writeTimeout", ledger) {
            match ms {
                0 => ledger.by_itself(piece, "no limit for an answer that goes on"),
                _ => ledger.changed(piece, "a client that reads nothing for 60 s is disconnected"),
            }
        }
        nothing_else(fields, "respondingTimeouts", ledger);
    }
    if let Some((node, piece)) = fields.map("lifeCycle", ledger) {
        ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        for (key, ours) in [("requestAcceptGraceTimeout", "delay"), ("graceTimeOut", "drain")] {
            if let Some((ms, piece)) = milliseconds(&mut fields, key, ledger) {
                config.more.map_mut("shutdown").set(ours, units::duration(ms));
                ledger.changed(piece, "for all listeners together");
            }
        }
        nothing_else(fields, "lifeCycle", ledger);
    }
    for key in ["keepAliveMaxRequests", "keepAliveMaxTime"] {
        if let Some(entry) = fields.entry(key) {
            ledger.left_out(entry.piece, "Weir does not end connections of clients by number or age");
        }
    }
    nothing_else(fields, "transport", ledger);
}

fn http(node: &Node, point: &mut EntryPoint, config: &mut Config, ledger: &mut Ledger) {
    let mut fields = Fields::in_any_case(node);
    if let Some((names, piece)) = list(&mut fields, "middlewares", ledger) {
        ledger.same(piece);
        point.middlewares = names.into_iter().map(|name| (name, piece)).collect();
    }
    if let Some(entry) = fields.entry("tls") {
        point.tls = tls(entry, ledger);
    }
    if let Some((node, piece)) = fields.map("redirections", ledger) {
        ledger.same(piece);
        let mut outer = Fields::in_any_case(node);
        if let Some((node, piece)) = outer.map("entryPoint", ledger) {
            ledger.same(piece);
            let mut fields = Fields::in_any_case(node);
            let to = fields.text("to", ledger);
            let scheme = fields.text("scheme", ledger);
            let permanent = fields.flag("permanent", ledger);
            let priority = fields.entry("priority");
            let pieces = [&to, &scheme].into_iter().flatten().map(|(_, piece)| *piece);
            pieces.chain(permanent.map(|(_, piece)| piece)).for_each(|piece| ledger.same(piece));
            priority.iter().for_each(|entry| ledger.same(entry.piece));
            nothing_else(fields, "a redirection", ledger);
            if let Some((to, piece)) = to {
                point.redirect = Some(Redirect {
                    to,
                    scheme: scheme.map_or_else(|| "https".to_owned(), |(scheme, _)| scheme),
                    is_permanent: permanent.is_none_or(|(flag, _)| flag),
                    priority: priority
                        .and_then(|entry| entry.node.as_text()?.parse().ok())
                        .filter(|n| *n != 0),
                    piece,
                });
            }
        }
        nothing_else(outer, "redirections", ledger);
    }
    if let Some((bytes, piece)) = fields.number("maxHeaderBytes", ledger) {
        let bytes = bytes.clamp(1 << 10, 1 << 20);
        config.more.map_mut("limits").set("header_bytes", units::size(bytes));
        ledger.changed(piece, "for all listeners together; from 1 KiB to 1 MiB");
    }
    for key in ["encodeQuerySemicolons", "sanitizePath", "encodedCharacters"] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| {
                ledger.changed(piece, "Weir's rules for paths are stricter: docs/reference/routing.md")
            });
        }
    }
    nothing_else(fields, "http of an entry point", ledger);
}

/// `tls` of a router or an entry point. None if it is turned off.
pub(in crate::traefik) fn tls(entry: &Entry, ledger: &mut Ledger) -> Option<Tls> {
    if entry.node.as_bool() == Some(false) {
        ledger.same(entry.piece);
        return None;
    }
    ledger.same(entry.piece);
    let mut fields = Fields::in_any_case(&entry.node);
    let mut tls = Tls { resolver: fields.text("certResolver", ledger), ..Tls::default() };
    tls.resolver.iter().for_each(|(_, piece)| ledger.same(*piece));
    tls.options = fields.text("options", ledger);
    if let Some((domains, piece)) = fields.list("domains", ledger) {
        ledger.same(piece);
        for domain in domains {
            let mut fields = Fields::in_any_case(domain);
            let main = fields.text("main", ledger);
            let sans = list(&mut fields, "sans", ledger);
            nothing_else(fields, "domains", ledger);
            if let Some((main, piece)) = main {
                ledger.same(piece);
                tls.domains.push(main);
            }
            if let Some((sans, piece)) = sans {
                ledger.changed(piece, "each name has a certificate of its own");
                tls.domains.extend(sans);
            }
        }
    }
    if let Some((flag, piece)) = fields.flag("passthrough", ledger) {
        tls.passthrough = flag;
        ledger.same(piece);
    }
    nothing_else(fields, "tls", ledger);
    Some(tls)
}
