//! Which plugins run for a route, in which order, and with which settings.
//!
//! Of several instances of a plugin one runs: that for the most of consumer, consumer group, route and service, in an
//! order that Kong fixes. Settings are never merged. All that run do so by the plugin's number, not by the file.

use super::auth;
use super::consumers::Known;
use super::{Kind, Kong, refuse_rest, traffic, transform};
use crate::config::{Config, Filter};
use crate::ledger::{Ledger, Piece, Verdict};
use crate::shared::expression::Expression;
use crate::shared::filters;
use crate::shared::tree::{Fields, Node};
use crate::yaml::Map;
use std::cell::Cell;
use std::collections::BTreeMap;

/// Plugins that are translated, with their numbers: the greater runs first.
const NUMBERS: &[(&str, i64)] = &[
    ("correlation-id", 100_001),
    ("bot-detection", 2500),
    ("cors", 2000),
    ("jwt", 1450),
    ("key-auth", 1250),
    ("basic-auth", 1100),
    ("grpc-gateway", 998),
    ("ip-restriction", 990),
    ("request-size-limiting", 951),
    ("acl", 950),
    ("rate-limiting", 910),
    ("request-transformer", 801),
    ("response-transformer", 800),
    ("redirect", 779),
    ("proxy-cache", 100),
    ("opentelemetry", 14),
    ("prometheus", 13),
    ("file-log", 9),
    ("grpc-web", 3),
    ("request-termination", 2),
];

/// Plugins that are refused, with the nearest thing of Weir.
const NEAREST: &[(&str, &str)] = &[
    ("ai-", "nothing yet"),
    ("aws-lambda", "a service of its own behind an upstream"),
    ("azure-functions", "a service of its own behind an upstream"),
    ("canary", "`upstream: { NAME: 95, NEXT: 5 }` of a route"),
    ("datadog", "/metrics of the admin listener"),
    ("forward-proxy", "nothing: Weir is a reverse proxy"),
    ("hmac-auth", "the filter signature_auth (RFC 9421)"),
    ("http-log", "access_log.otlp, or access_log with an agent that reads it"),
    ("jwt-signer", "the filter jwt, and the filter sign"),
    ("ldap-auth", "the filter oidc, or forward_auth with a service that asks LDAP"),
    ("loggly", "access_log.syslog or access_log.otlp"),
    ("mocking", "`respond` of a route"),
    ("mtls-auth", "the filter mtls_auth, with client_auth of the listener"),
    ("oauth2", "the filter oidc or jwt, with an identity provider"),
    ("openid-connect", "the filter oidc for browsers, jwt for tokens"),
    ("post-function", "expressions: the filters when, headers and transform; ext_proc for programs"),
    ("pre-function", "expressions: the filters when, headers and transform; ext_proc for programs"),
    ("proxy-mirror", "the filter mirror"),
    ("rate-limiting-advanced", "the filter rate_limit"),
    ("request-validator", "the filter validate"),
    ("response-ratelimiting", "the filter rate_limit with cost: header:NAME"),
    ("route-by-header", "match.headers of routes"),
    ("session", "the filter oidc"),
    ("statsd", "/metrics of the admin listener"),
    ("syslog", "access_log.syslog"),
    ("tcp-log", "access_log.otlp"),
    ("udp-log", "access_log.syslog"),
    ("upstream-timeout", "timeouts of a route"),
    ("zipkin", "`tracing`, by OTLP"),
];

/// An instance of a plugin.
pub(super) struct Instance<'t> {
    pub(super) name: String,
    pub(super) config: Option<&'t Node>,
    pieces: Vec<Piece>,
    name_piece: Option<Piece>,
    service: Option<usize>,
    route: Option<usize>,
    consumer: Option<usize>,
    group: Option<usize>,
    /// Whether a route used it.
    used: Cell<bool>,
    /// How many routes use it, for limits that they share in Kong.
    pub(super) routes: Cell<usize>,
}

pub(super) struct Plugins<'t> {
    all: Vec<Instance<'t>>,
}

/// What a plugin is translated for.
pub(super) struct Use<'u, 't> {
    pub(super) ledger: &'u mut Ledger,
    pub(super) config: &'u mut Config,
    pub(super) instance: &'u Instance<'t>,
}

impl<'t> Plugins<'t> {
    pub(super) fn read(kong: &mut Kong<'t>, ledger: &mut Ledger) -> Self {
        let mut all = Vec::new();
        for at in 0..kong.of(Kind::Plugin).len() {
            let object = &kong.of(Kind::Plugin)[at];
            let (of, is_lost) = (object.of.clone(), object.is_lost);
            let (name, name_piece) = kong.plugin_names[at].clone();
            let mut fields = kong.take(Kind::Plugin, at);
            let mut pieces = Vec::new();
            let mut is_off = false;
            if let Some((enabled, piece)) = fields.flag("enabled", ledger) {
                is_off = !enabled;
                pieces.push(piece);
            }
            let config = fields.entry("config");
            pieces.extend(config.map(|entry| entry.piece));
            if let Some(entry) = fields.entry("protocols") {
                ledger.by_itself(entry.piece, "all that the route has");
            }
            if let Some(entry) = fields.entry("ordering") {
                entry.each_piece(&mut |piece| {
                    ledger.refused(piece, "an order of its own", "write the filters in that order")
                });
            }
            refuse_rest(
                fields,
                "weir import does not know this key of a plugin",
                "docs/reference/filters.md",
                ledger,
            );
            if is_off || is_lost {
                let mut judge = |piece: Piece| match is_off {
                    true => ledger.left_out(piece, "the plugin is off"),
                    false => ledger.refused(
                        piece,
                        "it belongs to something that is not in the file",
                        "correct the source",
                    ),
                };
                pieces.iter().copied().chain(name_piece).for_each(&mut judge);
                config.iter().for_each(|entry| entry.node.each_piece(&mut judge));
                continue;
            }
            all.push(Instance {
                name,
                config: config.map(|entry| &entry.node),
                pieces,
                name_piece,
                service: of.get(&Kind::Service).copied().filter(|_| !of.contains_key(&Kind::Route)),
                route: of.get(&Kind::Route).copied(),
                consumer: of.get(&Kind::Consumer).copied(),
                group: of.get(&Kind::Group).copied(),
                used: Cell::new(false),
                routes: Cell::new(0),
            });
        }
        Self { all }
    }

    /// The instances that may run for a route: by name, the one without a consumer, and those for consumers or groups
    /// in Kong's order.
    fn of_route(
        &self,
        route: usize,
        service: Option<usize>,
    ) -> BTreeMap<&str, (Option<&Instance<'t>>, Vec<&Instance<'t>>)> {
        let mut found: BTreeMap<&str, (Option<&Instance<'t>>, Vec<&Instance<'t>>)> = BTreeMap::new();
        for instance in &self.all {
            let fits = instance.route.is_none_or(|named| named == route)
                && instance.service.is_none_or(|named| Some(named) == service);
            if !fits {
                continue;
            }
            let (base, scoped) = found.entry(&instance.name).or_default();
            let weight = |instance: &Instance<'_>| instance.weight();
            if instance.consumer.is_none() && instance.group.is_none() {
                if base.is_none_or(|base| weight(base) < weight(instance)) {
                    *base = Some(instance);
                }
            } else {
                scoped.push(instance);
            }
        }
        for (_, scoped) in found.values_mut() {
            scoped.sort_by_key(|instance| std::cmp::Reverse(instance.weight()));
        }
        found
    }

    /// The filters of a route in Kong's order.
    pub(super) fn filters(
        &self,
        route: usize,
        service: Option<usize>,
        known: &Known,
        config: &mut Config,
        ledger: &mut Ledger,
    ) -> Vec<Filter> {
        let found = self.of_route(route, service);
        let base: Vec<&Instance<'t>> = found.values().filter_map(|(base, _)| *base).collect();
        let scoped: Vec<&Instance<'t>> = found.values().flat_map(|(_, scoped)| scoped.clone()).collect();
        let mut order: Vec<(&str, i64)> = found
            .keys()
            .map(|name| {
                (*name, NUMBERS.iter().find(|(known, _)| known == name).map_or(0, |(_, number)| *number))
            })
            .collect();
        order.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
        let mut out = Vec::new();
        let mut has_auth = false;
        for (name, _) in order {
            let Some((one, some)) = found.get(name) else { continue };
            if auth::kind(name).is_some() {
                // All that identify callers are one thing, because `anonymous` makes them alternatives.
                if !has_auth {
                    has_auth = true;
                    out.extend(auth::filters(&base, &scoped, known, ledger));
                }
                continue;
            }
            let mut translate = |instance: &Instance<'t>, ledger: &mut Ledger| {
                let of = Use { ledger, config, instance };
                self.translate(of)
            };
            let mut made = one.map(|one| translate(one, ledger)).unwrap_or_default();
            // A termination for the anonymous consumer says that callers must be known: the filters above do.
            // Without a plugin that names consumers there is none.
            let callers: &[&Instance<'t>] =
                if base.iter().any(|base| auth::kind(&base.name).is_some()) { some } else { &[] };
            for instance in callers.iter().rev() {
                if auth::is_for_anonymous(instance, &base, known) && instance.name == "request-termination" {
                    continue;
                }
                let condition = instance.condition(&base, known);
                let own = translate(instance, ledger);
                made = match own == made {
                    true => made,
                    false => filters::when(&condition, own, made),
                };
            }
            out.extend(made);
        }
        out
    }

    fn translate(&self, mut of: Use<'_, 't>) -> Vec<Filter> {
        let instance = of.instance;
        instance.used.set(true);
        instance.routes.set(instance.routes.get() + 1);
        let empty = Node { line: 0, value: crate::shared::tree::Value::Null };
        let mut fields = Fields::of(instance.config.unwrap_or(&empty));
        let made =
            traffic::translate(&mut of, &mut fields).or_else(|| transform::translate(&mut of, &mut fields));
        let Some(made) = made else {
            let nearest = NEAREST.iter().find(|(name, _)| instance.name.starts_with(name));
            let closes = auth::must_close(&instance.name, nearest.is_some());
            let nearest = nearest
                .map_or("see docs/reference/filters.md; ext_proc runs programs", |(_, nearest)| nearest);
            let why = format!("Weir has no plugin `{}`", instance.name);
            instance.judge(|piece| of.ledger.refused(piece, why.clone(), nearest));
            return closes.then(|| filters::closed(&why)).into_iter().collect();
        };
        instance.finish(fields, of.ledger);
        made
    }

    /// Judges the instances that no route used.
    pub(super) fn close(self, ledger: &mut Ledger) {
        for instance in &self.all {
            if instance.used.get() {
                continue;
            }
            instance.judge(|piece| {
                ledger.left_out(piece, "no route of the file uses this plugin");
            });
        }
    }
}

impl Instance<'_> {
    /// How specific it is: Kong's order of combinations.
    fn weight(&self) -> u8 {
        let (route, service) = (self.route.is_some(), self.service.is_some());
        match (self.consumer.is_some(), self.group.is_some()) {
            (true, _) if route && service => 12,
            (_, true) if route && service => 11,
            (true, _) if route => 10,
            (_, true) if route => 9,
            (true, _) if service => 8,
            (_, true) if service => 7,
            (true, _) => 5,
            (_, true) => 4,
            _ if route && service => 6,
            _ if route => 3,
            _ if service => 2,
            _ => 1,
        }
    }

    /// The consumer for whom it is.
    pub(super) const fn consumer(&self) -> Option<usize> {
        self.consumer
    }

    /// Whether it is for several routes.
    pub(super) fn is_shared(&self) -> bool {
        self.route.is_none() && self.routes.get() > 1
    }

    /// Calls `judge` for all its keys.
    pub(super) fn judge(&self, mut judge: impl FnMut(Piece)) {
        self.used.set(true);
        self.pieces.iter().copied().chain(self.name_piece).for_each(&mut judge);
        self.config.iter().for_each(|node| node.each_piece(&mut judge));
    }

    /// The condition under which it runs.
    fn condition(&self, base: &[&Self], known: &Known) -> Expression {
        let name = || Expression::raw("consumer.name");
        if auth::is_for_anonymous(self, base, known) {
            return name().equals(Expression::text(""));
        }
        match (self.consumer, self.group) {
            (Some(at), _) => name().equals(Expression::text(known.names.get(at).map_or("", String::as_str))),
            (_, Some(at)) => {
                let group = known.groups.get(at).map_or("", String::as_str);
                Expression::raw(format!("{} in consumer.groups", Expression::text(group).as_str()))
            }
            _ => Expression::constant(true),
        }
    }

    /// The plugin as a whole is done otherwise.
    pub(super) fn changed(&self, ledger: &mut Ledger, why: &str) {
        self.name_piece.iter().for_each(|piece| ledger.changed(*piece, why.to_owned()));
    }

    /// The plugin as a whole is refused.
    pub(super) fn refused(&self, ledger: &mut Ledger, why: &str, nearest: &str) {
        self.name_piece.iter().for_each(|piece| ledger.refused(*piece, why.to_owned(), nearest.to_owned()));
    }

    /// Judges what is left: defaults that are written out are taken, all else is refused.
    pub(super) fn finish(&self, fields: Fields<'_>, ledger: &mut Ledger) {
        self.used.set(true);
        self.pieces.iter().chain(&self.name_piece).for_each(|piece| ledger.same(*piece));
        for entry in fields.rest() {
            let said = entry.node.as_text();
            let is_nothing = entry.node.as_list().is_some_and(<[Node]>::is_empty)
                || matches!(said.as_deref(), Some("false" | ""))
                || DEFAULTS.iter().any(|(plugin, key, value)| {
                    *plugin == self.name && *key == &*entry.key && said.as_deref() == Some(*value)
                });
            let is_default_map = entry.node.as_map().is_some_and(|map| !map.is_empty())
                && entry.node.get("port").is_some()
                && entry.node.get("host").is_none_or(|host| host.as_text().as_deref() == Some("127.0.0.1"));
            entry.each_piece(&mut |piece| {
                if is_nothing {
                    ledger.by_itself(piece, "Kong's default, which changes nothing");
                } else if is_default_map && (entry.key.starts_with("redis") || &*entry.key == "memory") {
                    ledger.left_out(piece, "not used with this policy");
                } else if ledger.verdict(piece) != Some(Verdict::Same) {
                    let why = format!("weir import does not know this setting of the plugin {}", self.name);
                    ledger.refused(piece, why, "docs/reference/filters.md");
                }
            });
        }
    }
}

/// Settings that dumps write out although they are Kong's defaults and have no effect.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("rate-limiting", "sync_rate", "-1"),
    ("rate-limiting", "redis_port", "6379"),
    ("rate-limiting", "redis_timeout", "2000"),
    ("rate-limiting", "redis_database", "0"),
    ("key-auth", "run_on_preflight", "true"),
    ("jwt", "run_on_preflight", "true"),
    ("basic-auth", "realm", "service"),
    ("key-auth", "realm", "service"),
    ("proxy-cache", "cache_control", "false"),
    ("proxy-cache", "strategy", "memory"),
];

/// An empty map as settings.
pub(super) fn empty() -> Map {
    Map::new()
}
