//! The fields that `proxy_pass` sends, and the Host among them.

use super::super::context::{Cx, Scope};
use super::super::read::Directive;
use super::super::text::template;
use super::Address;
use crate::config::Filter;
use crate::shared::filters::Headers;
use crate::shared::template::Template;
use crate::yaml::{Map, Value};

/// The fields that the upstream sees. Returns the `host` of the upstream.
pub(super) fn request_fields<'a>(
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
fn secret_or(cx: &mut Cx<'_, '_>, field: &Directive, name: &str, text: &Template) -> Value {
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
pub(super) fn own_host(cx: &Cx<'_, '_>, address: &Address) -> String {
    if address.host.starts_with("unix:") {
        return "localhost".to_owned();
    }
    if cx.upstreams.contains_key(&*address.host) {
        return address.host.clone();
    }
    let usual = if address.scheme.ends_with('s') { ":443" } else { ":80" };
    address.host.strip_suffix(usual).unwrap_or(&address.host).to_owned()
}
