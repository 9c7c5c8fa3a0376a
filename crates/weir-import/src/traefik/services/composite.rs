//! Services that consist of other services: weighted, mirroring, failover.

use super::super::cx::{Cx, Kind, Thing, nothing_else};
use super::balancer::balanced;
use super::{Retry, Served, prefix, served};
use crate::config::{Filter, Target, Upstream};
use crate::ledger::Piece;
use crate::shared::tree::{Fields, Node};
use crate::shared::units;
use crate::yaml::{Map, Value};

pub(super) fn weighted(
    cx: &mut Cx<'_, '_>,
    node: &Node,
    thing: &Thing<'_>,
    retry: Option<&Retry>,
    depth: usize,
) -> Result<Served, String> {
    let mut fields = Fields::in_any_case(node);
    let mut shares: Vec<(String, u32)> = Vec::new();
    let mut filters: Option<Vec<Filter>> = None;
    if let Some((services, piece)) = fields.list("services", cx.ledger) {
        cx.ledger.same(piece);
        for service in services {
            let mut fields = Fields::in_any_case(service);
            let name = fields.text("name", cx.ledger);
            let weight = fields.number("weight", cx.ledger);
            nothing_else(fields, "a weighted service", cx.ledger);
            let Some((name, piece)) = name else {
                return Err("a weighted service without a name".to_owned());
            };
            weight.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
            let weight = weight.map_or(1, |(weight, _)| weight);
            if weight == 0 {
                cx.ledger.by_itself(piece, "a weight of 0 gets no requests");
                continue;
            }
            let one = served(cx, &name, thing.provider, retry, depth + 1)
                .inspect_err(|why| cx.ledger.refused(piece, why.clone(), "correct the source"))?;
            cx.ledger.same(piece);
            if filters.as_ref().is_some_and(|known| *known != one.filters) {
                let why = "its parts differ in more than their servers";
                cx.ledger.refused(piece, why, "a route for each, with match.when");
                return Err(why.to_owned());
            }
            filters = Some(one.filters);
            match one.target {
                Target::Upstream(name) => {
                    add_share(&mut shares, name, u32::try_from(weight).unwrap_or(u32::MAX));
                }
                Target::Split(inner) => {
                    // The inner shares divide this weight. The others are scaled, so that all stay whole numbers.
                    let total: u32 = inner.iter().map(|(_, share)| *share).sum();
                    shares.iter_mut().for_each(|(_, share)| *share = share.saturating_mul(total));
                    let weight = u32::try_from(weight).unwrap_or(u32::MAX);
                    for (name, share) in inner {
                        add_share(&mut shares, name, share.saturating_mul(weight));
                    }
                }
                _ => return Err("a weighted service of services without servers".to_owned()),
            }
        }
    }
    if let Some(entry) = fields.entry("sticky") {
        entry.each_piece(&mut |piece| {
            cx.ledger.refused(
                piece,
                "Weir chooses anew for each request which part of a split gets it",
                "one upstream with weights and `sticky`",
            );
        });
    }
    if let Some(entry) = fields.entry("healthCheck") {
        entry.each_piece(&mut |piece| {
            cx.ledger.by_itself(piece, "it hands the health of its parts on; Weir asks the endpoints of each")
        });
    }
    nothing_else(fields, "a weighted service", cx.ledger);
    let filters = filters.unwrap_or_default();
    match shares.len() {
        0 => Err(format!("service `{}` has no parts", thing.name)),
        1 => Ok(Served { target: Target::Upstream(shares.remove(0).0), filters }),
        _ => Ok(Served { target: Target::Split(shares), filters }),
    }
}

fn add_share(shares: &mut Vec<(String, u32)>, name: String, share: u32) {
    match shares.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) => *known = known.saturating_add(share),
        None => shares.push((name, share)),
    }
}

pub(super) fn mirroring(
    cx: &mut Cx<'_, '_>,
    node: &Node,
    thing: &Thing<'_>,
    retry: Option<&Retry>,
    depth: usize,
) -> Result<Served, String> {
    let mut fields = Fields::in_any_case(node);
    let Some((main, piece)) = fields.text("service", cx.ledger) else {
        return Err(format!("service `{}` mirrors nothing", thing.name));
    };
    let mut all = served(cx, &main, thing.provider, retry, depth + 1)
        .inspect_err(|why| cx.ledger.refused(piece, why.clone(), "correct the source"))?;
    cx.ledger.same(piece);
    let body = fields.number("maxBodySize", cx.ledger);
    let with_body = fields.flag("mirrorBody", cx.ledger);
    if let Some((flag, piece)) = with_body {
        match flag {
            true => cx.ledger.same(piece),
            false => cx.ledger.changed(piece, "Weir's copies have the body too"),
        }
    }
    if let Some((mirrors, piece)) = fields.list("mirrors", cx.ledger) {
        cx.ledger.same(piece);
        for mirror in mirrors {
            let mut fields = Fields::in_any_case(mirror);
            let (name, percent) = (fields.text("name", cx.ledger), fields.number("percent", cx.ledger));
            nothing_else(fields, "a mirror", cx.ledger);
            let Some((name, piece)) = name else { continue };
            percent.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
            let copy = served(cx, &name, thing.provider, None, depth + 1);
            match copy {
                Ok(Served { target: Target::Upstream(upstream), filters }) if filters.is_empty() => {
                    let share = percent.map_or(0, |(percent, _)| percent);
                    if share == 0 {
                        cx.ledger.by_itself(piece, "0 percent: no copies");
                        continue;
                    }
                    let mut map = Map::new().with("upstream", upstream);
                    if share < 100 {
                        map.set("share", format!("{share}%"));
                    }
                    if let Some((bytes, _)) = body.filter(|(bytes, _)| *bytes > 0) {
                        map.set("body", units::size(bytes));
                    }
                    cx.ledger.changed(
                        piece,
                        "copies of bodies up to 1 MiB, or maxBodySize; at most 100 under way, marked x-weir-mirror",
                    );
                    all.filters.push(Filter::new("mirror", map));
                }
                Ok(_) => cx.ledger.refused(
                    piece,
                    "a copy goes to one upstream, unchanged",
                    "mirror: { upstream, share }",
                ),
                Err(why) => cx.ledger.refused(piece, why, "mirror: { upstream, share }"),
            }
        }
    }
    body.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
    if let Some(entry) = fields.entry("healthCheck") {
        entry.each_piece(&mut |piece| cx.ledger.by_itself(piece, "Weir asks the endpoints themselves"));
    }
    nothing_else(fields, "a mirroring service", cx.ledger);
    Ok(all)
}

/// Two load balancers as one upstream whose second tier is the fallback.
pub(super) fn failover(
    cx: &mut Cx<'_, '_>,
    node: &Node,
    piece: Piece,
    thing: &Thing<'_>,
    retry: Option<&Retry>,
) -> Result<Served, String> {
    let mut fields = Fields::in_any_case(node);
    let mut parts = Vec::new();
    for key in ["service", "fallback"] {
        let Some((name, piece)) = fields.text(key, cx.ledger) else {
            return Err(format!("service `{}` has no {key}", thing.name));
        };
        let at = cx.find(Kind::Service, &name, thing.provider);
        let part = at.and_then(|at| {
            let part = cx.things.of(Kind::Service)[at].clone();
            cx.ledger.same(part.piece);
            balanced(cx, &part, retry)
        });
        match part {
            Ok(part) => parts.push(part),
            Err(why) => {
                cx.ledger.refused(piece, why.clone(), "endpoints with `priority: 1`");
                return Err(why);
            }
        }
        cx.ledger.changed(piece, "one upstream: its second tier is used while the first is unwell");
    }
    for key in ["healthCheck", "errors"] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| match key {
                "healthCheck" => cx.ledger.by_itself(piece, "Weir asks the endpoints themselves"),
                _ => cx.ledger.refused(
                    piece,
                    "Weir fails over by health, not by the status of an answer",
                    "health: { outlier: { errors } }, or retry: { on: [503] }",
                ),
            });
        }
    }
    nothing_else(fields, "a failover service", cx.ledger);
    let (fallback, mut main) = (parts.pop(), parts.pop());
    let (Some(main), Some(fallback)) = (main.as_mut(), fallback) else { return Err("no parts".to_owned()) };
    let settings = |upstream: &Upstream| {
        [upstream.more.get("tls"), upstream.more.get("protocol"), upstream.more.get("host")]
            .map(Option::<&Value>::cloned)
    };
    if main.prefix != fallback.prefix || settings(&main.upstream) != settings(&fallback.upstream) {
        let why = "service and fallback differ in more than their servers (TLS, Host or path)";
        cx.ledger.refused(piece, why, "endpoints with `priority: 1` in one upstream");
        return Err(why.to_owned());
    }
    if main.upstream.more.get("health").is_none() {
        main.upstream.comment.push(
            "The fallback is used while nothing connects; a `health: { probe }` would notice more."
                .to_owned(),
        );
    }
    for mut endpoint in fallback.upstream.endpoints {
        endpoint.priority = Some(1);
        main.upstream.endpoints.push(endpoint);
    }
    let name = cx.config.upstreams.add(&thing.name, main.upstream.clone());
    Ok(Served { target: Target::Upstream(name), filters: prefix(&main.prefix) })
}
