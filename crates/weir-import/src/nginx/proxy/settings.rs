//! What directives of a location set for its upstream: TLS, timeouts, retries.

use super::super::context::{Cx, Scope};
use super::super::server::absolute;
use super::super::text::template;
use super::Address;
use crate::config::Upstream;
use crate::shared::units::{duration, read_duration};
use crate::yaml::{Map, Value};

pub(super) fn tls(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, address: &Address, is_group: bool) -> Map {
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

pub(super) fn timeouts(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, prefix: &str, made: &mut Upstream) {
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

pub(super) fn retry(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, prefix: &str, made: &mut Upstream) {
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
