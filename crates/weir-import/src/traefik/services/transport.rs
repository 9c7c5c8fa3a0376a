//! A serversTransport as TLS settings and timeouts of an upstream.

use super::super::cx::{Cx, Kind, Thing, list, milliseconds, nothing_else};
use crate::config::Upstream;
use crate::shared::tree::{Fields, Node};
use crate::shared::units;
use crate::yaml::Map;

/// The serversTransport of a load balancer, or the static default.
pub(super) fn transport(
    cx: &mut Cx<'_, '_>,
    fields: &mut Fields<'_>,
    thing: &Thing<'_>,
    scheme: &str,
    upstream: &mut Upstream,
    timeouts: &mut Map,
) -> Result<(), String> {
    let named = fields.text("serversTransport", cx.ledger);
    let mut tls = Map::new();
    let mut done = Ok(());
    if let Some((name, piece)) = named {
        match cx.find(Kind::Transport, &name, thing.provider) {
            Ok(at) => {
                let transport = cx.things.of(Kind::Transport)[at].clone();
                cx.ledger.same(piece);
                cx.ledger.same(transport.piece);
                settings(cx, transport.node, scheme, &mut tls, timeouts, upstream);
            }
            Err(why) => {
                cx.ledger.refused(piece, why.clone(), "upstreams.NAME.tls and timeouts");
                done = Err(why);
            }
        }
    } else if let Some(node) = cx.default_transport {
        settings(cx, node, scheme, &mut tls, timeouts, upstream);
    }
    if scheme == "https" {
        upstream.more.set("tls", tls);
    }
    done
}

/// The settings of a serversTransport.
fn settings(
    cx: &mut Cx<'_, '_>,
    node: &Node,
    scheme: &str,
    tls: &mut Map,
    timeouts: &mut Map,
    upstream: &mut Upstream,
) {
    let mut fields = Fields::in_any_case(node);
    if let Some((skips, piece)) = fields.flag("insecureSkipVerify", cx.ledger) {
        cx.ledger.same(piece);
        if skips && scheme == "https" {
            tls.set("verify", false);
            upstream
                .comment
                .push("insecureSkipVerify: remove `verify: false` once the certificate passes.".to_owned());
        }
    }
    if let Some((name, piece)) = fields.text("serverName", cx.ledger) {
        tls.set("server_name", name);
        cx.ledger.same(piece);
    }
    if let Some((files, piece)) = list(&mut fields, "rootCAs", cx.ledger) {
        match &*files {
            [one] => {
                tls.set("ca", one.clone());
                cx.ledger.same(piece);
            }
            _ => cx.ledger.refused(piece, "`ca` names one file", "put all authorities into one PEM file"),
        }
    }
    if let Some((pairs, piece)) = fields.list("certificates", cx.ledger) {
        match pairs {
            [pair] => {
                cx.ledger.same(piece);
                let mut fields = Fields::in_any_case(pair);
                for (key, ours) in [("certFile", "client_cert"), ("keyFile", "client_key")] {
                    if let Some((file, piece)) = fields.text(key, cx.ledger) {
                        tls.set(ours, file);
                        cx.ledger.same(piece);
                    }
                }
                nothing_else(fields, "a certificate", cx.ledger);
            }
            _ => cx.ledger.refused(
                piece,
                "one certificate for each upstream",
                "tls: { client_cert, client_key }",
            ),
        }
    }
    if let Some((node, piece)) = fields.map("forwardingTimeouts", cx.ledger) {
        cx.ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        for (key, ours) in [("dialTimeout", "connect"), ("responseHeaderTimeout", "response")] {
            if let Some((ms, piece)) = milliseconds(&mut fields, key, cx.ledger) {
                timeouts.set(ours, units::duration(ms));
                cx.ledger.same(piece);
            }
        }
        if let Some((ms, piece)) = milliseconds(&mut fields, "idleConnTimeout", cx.ledger) {
            upstream.more.set("keepalive", units::duration(ms));
            cx.ledger.same(piece);
        }
        for key in ["readIdleTimeout", "pingTimeout"] {
            if let Some(entry) = fields.entry(key) {
                cx.ledger.left_out(entry.piece, "Weir does not ping connections of HTTP/2");
            }
        }
        nothing_else(fields, "forwardingTimeouts", cx.ledger);
    }
    if let Some(entry) = fields.entry("maxIdleConnsPerHost") {
        cx.ledger.left_out(entry.piece, "idle connections have a lifetime (`keepalive`), not a number");
    }
    if let Some((true, piece)) =
        fields.flag("disableHTTP2", cx.ledger).inspect(|(_, piece)| cx.ledger.same(*piece))
    {
        cx.ledger.same(piece);
        upstream.more.set("protocol", "http1");
    }
    for key in ["peerCertURI", "spiffe", "cipherSuites", "minVersion", "maxVersion"] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| {
                cx.ledger.refused(
                    piece,
                    "Weir's TLS towards endpoints has no such setting",
                    "tls: { ca, server_name }",
                );
            });
        }
    }
    nothing_else(fields, "a serversTransport", cx.ledger);
}
