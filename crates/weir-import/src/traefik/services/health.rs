//! Health checks of a load balancer, active and passive.

use super::super::cx::{Cx, milliseconds, nothing_else};
use crate::shared::tree::{Fields, Node};
use crate::shared::units;
use crate::yaml::{Map, Value};

pub(super) fn health(cx: &mut Cx<'_, '_>, node: &Node, scheme: &str, more: &mut Map) {
    let mut fields = Fields::in_any_case(node);
    let mut probe = Map::new();
    let path = fields.text("path", cx.ledger);
    match fields.text("mode", cx.ledger) {
        Some((mode, piece)) if mode == "grpc" => {
            probe.set("kind", "grpc");
            cx.ledger.same(piece);
        }
        Some((_, piece)) => cx.ledger.same(piece),
        None => {}
    }
    if let Some((path, piece)) = path {
        cx.ledger.same(piece);
        if probe.get("kind").is_none() {
            probe.set("path", path);
        }
    }
    if let Some((status, piece)) = fields.number("status", cx.ledger) {
        cx.ledger.same(piece);
        if status > 0 {
            probe.set("expect", vec![Value::Number(i64::try_from(status).unwrap_or(200))]);
        }
    } else if probe.get("kind").is_none() {
        probe.set("expect", vec![Value::from("200-399")]);
    }
    let (mut interval, mut timeout) = (30_000, 5_000);
    if let Some((ms, piece)) = milliseconds(&mut fields, "interval", cx.ledger) {
        interval = ms;
        cx.ledger.same(piece);
    }
    if let Some((ms, piece)) = milliseconds(&mut fields, "timeout", cx.ledger) {
        timeout = ms;
        cx.ledger.same(piece);
    }
    probe.set("interval", units::duration(interval));
    probe.set("timeout", units::duration(timeout));
    // In Traefik a single answer changes the state.
    probe.set("healthy", 1_i64);
    probe.set("unhealthy", 1_i64);
    if let Some((host, piece)) = fields.text("hostname", cx.ledger) {
        probe.set("host", host);
        cx.ledger.same(piece);
    }
    if let Some((text, piece)) = fields.text("scheme", cx.ledger) {
        match text == scheme || text == "http" && scheme == "h2c" {
            true => cx.ledger.same(piece),
            false => cx.ledger.refused(piece, "probes speak what requests speak", "health.probe.tls"),
        }
    }
    if let Some((method, piece)) = fields.text("method", cx.ledger) {
        match method.eq_ignore_ascii_case("get") {
            true => cx.ledger.same(piece),
            false => cx.ledger.changed(piece, "a probe is a GET"),
        }
    }
    if let Some((follows, piece)) = fields.flag("followRedirects", cx.ledger) {
        match follows {
            true => cx.ledger.changed(piece, "a redirect counts as healthy and is not followed"),
            false => cx.ledger.same(piece),
        }
    }
    if let Some(entry) = fields.entry("unhealthyInterval") {
        cx.ledger.changed(entry.piece, "one interval for all endpoints");
    }
    for key in ["port", "headers"] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| {
                cx.ledger.refused(
                    piece,
                    "a probe goes to the endpoint's own port, without fields of yours",
                    "health.probe: { path, host }",
                );
            });
        }
    }
    nothing_else(fields, "a health check", cx.ledger);
    more.set("health", Map::new().with("probe", probe));
}

pub(super) fn passive(cx: &mut Cx<'_, '_>, node: &Node, more: &mut Map) {
    let mut fields = Fields::in_any_case(node);
    let mut outlier = Map::new();
    if let Some((count, piece)) = fields.number("maxFailedAttempts", cx.ledger) {
        outlier.set("errors", i64::try_from(count.max(1)).unwrap_or(1));
        cx.ledger.changed(piece, "answers of 500 and more count too, not only failed connections");
    }
    if let Some((ms, piece)) = milliseconds(&mut fields, "failureWindow", cx.ledger) {
        outlier.set("window", units::duration(ms));
        outlier.set("eject", units::duration(ms));
        cx.ledger.same(piece);
    }
    nothing_else(fields, "a passive health check", cx.ledger);
    more.map_mut("health").set("outlier", outlier);
}
