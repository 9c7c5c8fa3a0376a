//! `upstream` blocks: their servers, weights and balancing.

use super::super::context::Cx;
use super::super::read::Directive;
use super::with_port;
use crate::config::{Endpoint, Upstream};
use crate::shared::units::{duration, read_duration};
use crate::yaml::{Map, Value};

/// The servers of a block `upstream`.
pub(in crate::nginx) fn group<'a>(
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
