//! Checks of filter lists: what one filter needs of those before it. Each filter checks its own settings.

use std::collections::HashSet;

use super::Checker;
use super::upstreams::all_attempts;
use crate::node::Node;
use crate::schema::{FilterNode, Listener, Route, Share};
use crate::units::Duration;

/// Filters for which a second instance in the same list has no effect.
const ONCE: &[&str] = &["body_limit", "cors", "key_auth", "request_id", "security_headers"];

/// Filters besides `…_auth` that let nothing pass without credentials.
const ASK: &[&str] = &["acl", "any", "jwt", "oidc"];

/// Further filters that decide who may pass, by other means than credentials.
const DECIDE: &[&str] = &["acl", "ip"];

/// Filters that turn requests into gRPC calls, which need HTTP/2.
const CALL_GRPC: &[&str] = &["connect", "grpc_json", "grpc_web"];

/// Whether a filter rejects requests without credentials.
pub(super) fn asks_for_credentials(filter: &FilterNode) -> bool {
    let optional = |node: &Node| node.get("optional").and_then(Node::as_text) == Some("true");
    let optional = optional(&filter.node)
        || filter.node.elements().iter().flat_map(Node::entries).any(|(_, n)| optional(n));
    (filter.name.ends_with("_auth") || ASK.contains(&filter.name.as_str())) && !optional
}

/// The name of the first filter that decides who may pass, in this one or the lists it chooses from.
fn decider(filter: &FilterNode) -> Option<&String> {
    let decides = |one: &&FilterNode| asks_for_credentials(one) || DECIDE.contains(&one.name.as_str());
    filter.all().find(decides).map(|one| &one.shown)
}

/// Settings of filters that are this gateway's own secrets.
const SECRETS: &[(&str, &str)] = &[("jwt", "secret"), ("oidc", "client_secret"), ("sign", "key")];

impl<'a> Checker<'a> {
    pub(super) fn filter_lists(&mut self) {
        let config = self.config;
        for filter in self.filters() {
            self.each(&filter.name, &filter.node, &filter.path);
        }
        self.twice(&[], &config.filters);
        self.filter_list(&[], &config.filters);
        let global: Vec<&FilterNode> = config.filters.iter().collect();
        for (_, plan) in config.plans.iter() {
            self.twice(&[], &plan.filters);
            for cors in plan.filters.iter().filter(|filter| filter.name == "cors") {
                let message =
                    "a plan's filters run after the consumer is known, and a preflight names no consumer";
                self.error_hint(
                    &cors.path,
                    "cors-behind-auth",
                    message,
                    "put it first among the filters of the route",
                );
            }
        }
        for (_, route) in config.routes.iter() {
            if !route.filters.is_empty() {
                self.twice(&global, &route.filters);
                self.filter_list(&global, &route.filters);
            }
            let arms = route.upstream.iter().flat_map(|split| &split.0);
            self.preflights_of_arms(arms.clone());
            for arm in arms.filter(|arm| !arm.filters().is_empty()) {
                let before: Vec<&FilterNode> = global.iter().copied().chain(&route.filters).collect();
                self.twice(&global, arm.filters());
                self.filter_list(&before, arm.filters());
            }
        }
        self.callers_of_grpc();
        self.filters_that_call_scripts();
        self.deadlines_of_filters();
    }

    /// A preflight draws its own arm, so it may not be the arm of the request that follows.
    fn preflights_of_arms(&mut self, arms: impl Iterator<Item = &'a Share>) {
        let of = |arm: &'a Share| arm.filters().iter().find(|filter| filter.name == "cors");
        let drawn: Vec<Option<&FilterNode>> = arms.filter(|arm| arm.weight > 0).map(of).collect();
        let Some(cors) = drawn.iter().copied().flatten().next() else { return };
        if !drawn.iter().all(|other| other.is_some_and(|other| other.node == cors.node)) {
            let message =
                "a preflight draws an arm by itself, so it may get the answer of an arm without this `cors`";
            let hint = "write `cors` among the filters of the route";
            self.warn(&cors.path, "cors-in-arm", message, hint);
        }
    }

    /// Checks one filter and its members.
    fn each(&mut self, name: &str, settings: &'a Node, path: &str) {
        self.secrets(name, settings, path);
        match name {
            "any" => {
                for (index, member) in settings.elements().iter().enumerate() {
                    for (name, settings) in member.entries() {
                        self.each(&name.text, settings, &format!("{path}[{index}].{}", name.text));
                    }
                }
            }
            "concurrency" => self.wait_without_queue(settings, path),
            "ext_proc" => self.processor(settings, path),
            "cors" => {
                let methods = settings.get("methods").map_or(&[][..], Node::elements);
                for (index, method) in methods.iter().enumerate() {
                    // The filter reports a text that is not a method.
                    let method = method.as_text().filter(|method| super::is_token(method));
                    if let Some(method) = method.filter(|m| !m.contains(|c: char| c.is_ascii_lowercase())) {
                        self.must_be_known(|| format!("{path}.methods[{index}]"), method);
                    }
                }
            }
            "jwt" => self.token_of_nobody(settings, path),
            "rate_limit" => self.limits_of_no_effect(settings, path),
            _ => {}
        }
    }

    fn wait_without_queue(&mut self, settings: &Node, path: &str) {
        let queue = settings.get("queue").and_then(Node::as_text);
        if settings.get("wait").is_some() && queue.is_none_or(|queue| queue == "0") {
            let message =
                "`wait` has no effect without a `queue`: requests over the limit are refused immediately";
            self.warn(
                &format!("{path}.wait"),
                "no-effect",
                message,
                "set the length of the queue: queue: 50",
            );
        }
    }

    /// Warns if consumers have values for tokens but the filter does not name the claim to find them by.
    fn token_of_nobody(&mut self, settings: &Node, path: &str) {
        let mut credentials = self.config.consumers.iter().flat_map(|(_, consumer)| &consumer.credentials);
        if settings.get("consumer").is_none() && credentials.any(|credentials| credentials.filter == "jwt") {
            let message = "consumers have `jwt` values, and this filter does not say which claim names the consumer: \
                           whoever calls stays unnamed";
            self.warn(path, "no-consumer", message, "write the claim: consumer: sub");
        }
    }

    /// Warns of a limit beside a stricter one that refuses everything it would refuse.
    fn limits_of_no_effect(&mut self, settings: &Node, path: &str) {
        let limits: Vec<Option<Limit<'_>>> = match settings.get("limits") {
            Some(limits) => limits.elements().iter().map(Limit::of).collect(),
            None => return,
        };
        for (index, limit) in limits.iter().enumerate() {
            let Some(limit) = limit else { continue };
            let stricter = limits.iter().enumerate().find_map(|(at, other)| {
                // If two are equal, the second is reported.
                let other =
                    other.as_ref().filter(|other| at != index && (at < index || !limit.covers(other)))?;
                other.covers(limit).then_some(other)
            });
            if let Some(other) = stricter {
                let message =
                    format!("the limit of {limit} never refuses a request: {other}, beside it, is stricter");
                let at = format!("{path}.limits[{index}]");
                self.warn_with(&at, &[&format!("{path}.limits")], "no-effect", message, "remove one of them");
            }
        }
    }

    /// Warns of a filter `timeout` that ends an exchange before a connect, or before all attempts that its upstream
    /// allows.
    fn deadlines_of_filters(&mut self) {
        let config = self.config;
        let mut told = HashSet::new();
        for (_, route) in config.routes.iter() {
            let filters = config.filters.iter().chain(&route.filters);
            for filter in filters.filter(|filter| filter.name == "timeout") {
                let Some(exchange) = time(&filter.node, "exchange") else { continue };
                for share in route.shares() {
                    if told.insert((&filter.path, &share.upstream)) {
                        self.deadline_of_filter(filter, exchange, route, &share.upstream);
                    }
                }
            }
        }
    }

    fn deadline_of_filter(&mut self, filter: &FilterNode, exchange: Duration, route: &Route, upstream: &str) {
        let Some(written) = self.config.upstreams.get(upstream) else { return };
        self.connect_before(&format!("{}.exchange", filter.path), exchange, upstream, written);
        let response = route.timeouts.response.unwrap_or(written.timeouts.response);
        let shorter = |own: &Duration| response.is_zero() || *own < response;
        let response = time(&filter.node, "response").filter(shorter).unwrap_or(response);
        let all = written.retry.as_ref().and_then(|retry| all_attempts(retry, response));
        let Some((_, said)) = all.filter(|(all, _)| *all > exchange.get()) else { return };
        let message = format!("{said} of upstream `{upstream}` take longer than this {exchange}");
        let hint = "the last attempts would be cut short: lower `retry.per_try` of the upstream, or raise `exchange`";
        self.warn(&format!("{}.exchange", filter.path), "beyond-deadline", message, hint);
    }

    /// Warns of gRPC filters on a route whose upstream speaks HTTP/1.1 only.
    fn callers_of_grpc(&mut self) {
        let config = self.config;
        for (_, route) in config.routes.iter() {
            for filter in route.all_filters().filter(|filter| CALL_GRPC.contains(&filter.name.as_str())) {
                for share in route.shares() {
                    let Some(upstream) = config.upstreams.get(&share.upstream) else { continue };
                    if upstream.may_speak_http2() {
                        continue;
                    }
                    let message = format!(
                        "`{}` calls the upstream `{}` by gRPC, which needs HTTP/2, but it speaks HTTP/1.1 only",
                        filter.shown, share.upstream
                    );
                    let protocol = if upstream.tls.is_some() { "h2" } else { "h2c" };
                    let hint = format!("write `protocol: {protocol}` under upstreams.{}", share.upstream);
                    self.warn(&filter.path, "grpc-over-http1", message, hint);
                }
            }
        }
    }

    /// A processor is called by gRPC.
    fn processor(&mut self, settings: &'a Node, path: &str) {
        let Some(name) = settings.get("upstream").and_then(Node::as_text) else { return };
        let Some(upstream) = self.config.upstreams.get(name).filter(|up| !up.may_speak_http2()) else {
            return;
        };
        let protocol = if upstream.tls.is_some() { "h2" } else { "h2c" };
        let message = format!(
            "the processor `{name}` is called by gRPC, which needs HTTP/2, but it speaks HTTP/1.1 only"
        );
        let hint = format!("write `protocol: {protocol}` under upstreams.{name}");
        self.error_hint(&format!("{path}.upstream"), "grpc-over-http1", message, hint);
    }

    /// Warns of secrets in the file. Messages never repeat them.
    fn secrets(&mut self, name: &str, settings: &Node, path: &str) {
        for (_, key) in SECRETS.iter().filter(|(filter, _)| *filter == name) {
            let literal = settings.get(key).is_some_and(|node| node.as_text().is_some() && !node.substituted);
            if literal {
                let hint = "write \"${VAR}\" or \"${file:PATH}\"";
                let path = format!("{path}.{key}");
                self.warn(
                    &path,
                    "literal-credential",
                    "the secret is written in plain text in this file",
                    hint,
                );
            }
        }
    }

    /// Checks filters of a route or of an arm, which run after the others: the global ones, or also the route's.
    fn filter_list(&mut self, global: &[&'a FilterNode], own: &'a [FilterNode]) {
        self.preflights(global, own);
        for filter in own.iter().filter(|filter| filter.name == "mtls_auth") {
            let asks = |l: &Listener| l.tls.as_ref().is_some_and(|tls| tls.client_auth.is_some());
            if !self.config.listeners.iter().any(|(_, listener)| asks(listener)) {
                let message = "no listener asks clients for a certificate, so none is ever shown";
                let hint =
                    "write `client_auth: { ca: clients.pem, mode: required }` under `tls` of a listener";
                self.warn(&filter.path, "no-client-auth", message, hint);
            }
        }
        let readers = self.credentials;
        let names = |f: &FilterNode| f.all().any(|f| readers.contains(&f.name.as_str()) || f.name == "any");
        self.caches(global, own);
        // An `acl` of an expression alone may ask about anything.
        let lists = |acl: &FilterNode| {
            acl.node.get("is").is_none() || ["allow", "deny"].iter().any(|key| acl.node.get(key).is_some())
        };
        let acls = own.iter().enumerate().filter(|(_, filter)| filter.name == "acl" && lists(filter));
        for (index, acl) in acls {
            if !global.iter().copied().chain(&own[..index]).any(names) {
                let message = "no filter before this one names a consumer, so every caller is anonymous";
                let hint = format!("put {} before it", self.credentials.join(" or "));
                self.warn(&acl.path, "no-consumer", message, hint);
            }
        }
        let counts = |filter: &FilterNode| matches!(filter.name.as_str(), "concurrency" | "rate_limit");
        for (index, filter) in own.iter().enumerate().filter(|(_, filter)| counts(filter)) {
            let by = filter.node.get("by").and_then(|node| node.as_text());
            if by != Some("consumer") || global.iter().copied().chain(&own[..index]).any(names) {
                continue;
            }
            let known = self.credentials.join(" or ");
            let (message, hint) = if own[index..].iter().any(names) {
                let message = "no consumer is known yet when this filter runs, so it counts by address";
                (message, format!("put {known} before it"))
            } else {
                let message = "no filter before this one names a consumer, so it counts by address";
                (message, format!("put {known} before it, or write `by: address`"))
            };
            self.warn(&format!("{}.by", filter.path), "no-consumer", message, hint);
        }
    }

    /// Warns of a `cache` that answers before a filter has checked access.
    fn caches(&mut self, global: &[&'a FilterNode], own: &'a [FilterNode]) {
        for (index, cache) in global.iter().copied().chain(own).enumerate().filter(|(_, f)| f.name == "cache")
        {
            // Global filters after it were reported when those were checked.
            let mut behind = own.iter().skip((index + 1).saturating_sub(global.len()));
            let Some(filter) = behind.find_map(decider) else { continue };
            let message =
                format!("`{filter}` runs after it: the cache serves clients that `{filter}` would reject");
            self.warn(&cache.path, "cache-before-auth", message, "put the cache after it");
        }
    }

    /// Refuses a `cors` that no preflight request would reach.
    fn preflights(&mut self, global: &[&'a FilterNode], own: &'a [FilterNode]) {
        for (index, cors) in own.iter().enumerate().filter(|(_, filter)| filter.name == "cors") {
            let mut before = global.iter().copied().chain(&own[..index]);
            if let Some(asks) = before.clone().find(|filter| asks_for_credentials(filter)) {
                let message = format!(
                    "`{}` runs before it and rejects every preflight: browsers send preflights without credentials",
                    asks.shown
                );
                let hint = if global.iter().any(|filter| std::ptr::eq(*filter, asks)) {
                    "put cors first among the filters of all routes (`filters`)"
                } else {
                    "put cors first"
                };
                self.error_hint(&cors.path, "cors-behind-auth", message, hint);
            } else if before.any(|filter| filter.name == "cors") && index == 0 {
                let message = "the cors of all routes answers every preflight before this one";
                self.warn(&cors.path, "filter-twice", message, "keep one of them");
            }
        }
    }

    /// Warns of a filter repeated with the same settings, or of a second instance if one is enough.
    fn twice(&mut self, global: &[&'a FilterNode], own: &'a [FilterNode]) {
        for (index, filter) in own.iter().enumerate() {
            let before = &own[..index];
            let once = ONCE.contains(&filter.name.as_str());
            let same = |f: &&FilterNode| f.name == filter.name && f.node == filter.node;
            let twin = before.iter().find(|f| same(f) || once && f.name == filter.name);
            let message = match (twin, global.iter().copied().find(same)) {
                (Some(_), _) => format!("the filter `{}` is listed twice", filter.shown),
                (None, Some(_)) => {
                    format!("the filter `{}` with these settings runs for every route already", filter.shown)
                }
                (None, None) => continue,
            };
            self.warn(&filter.path, "filter-twice", message, "remove one of them");
        }
    }
}

/// A duration among settings, if it is set.
fn time(settings: &Node, key: &str) -> Option<Duration> {
    settings.get(key)?.as_text()?.parse().ok().filter(|time: &Duration| !time.is_zero())
}

/// One limit of a filter `rate_limit`.
struct Limit<'a> {
    requests: u64,
    per: &'a str,
    span: Span,
}

enum Span {
    /// At least this many calendar days; a count starts with its day.
    Days(u32),
    /// `burst` requests may come at the same time.
    Time { seconds: f64, burst: u64 },
}

/// The number of days in the shortest month and in the longest.
const SHORTEST_MONTH: u32 = 28;
const LONGEST_MONTH: u32 = 31;

impl<'a> Limit<'a> {
    fn of(node: &'a Node) -> Option<Self> {
        let number = |key: &str| node.get(key)?.as_text()?.parse::<u64>().ok();
        let requests = number("requests")?;
        let per = node.get("per")?.as_text()?;
        let span = match per {
            "day" => Span::Days(1),
            "month" => Span::Days(SHORTEST_MONTH),
            time => Span::Time {
                seconds: time.parse::<Duration>().ok().filter(|time| !time.is_zero())?.get().as_secs_f64(),
                burst: number("burst").unwrap_or(requests),
            },
        };
        Some(Self { requests, per, span })
    }

    /// Whether it refuses everything that the other would refuse.
    fn covers(&self, other: &Self) -> bool {
        let (own, others) = (self.requests as f64, other.requests as f64);
        match (&self.span, &other.span) {
            (Span::Time { seconds, burst }, Span::Time { seconds: longer, burst: more }) => {
                own / seconds <= others / longer && burst <= more
            }
            (Span::Time { seconds, burst }, Span::Days(days)) => {
                let days = if *days == 1 { 1 } else { LONGEST_MONTH };
                *burst as f64 + own / seconds * 86_400.0 * f64::from(days) <= others
            }
            (Span::Days(1), Span::Days(SHORTEST_MONTH)) => own * f64::from(LONGEST_MONTH) <= others,
            (Span::Days(_), Span::Days(_)) => own <= others,
            (Span::Days(_), Span::Time { .. }) => false, // midnight comes between
        }
    }
}

impl std::fmt::Display for Limit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} in {}{}",
            self.requests,
            if matches!(self.span, Span::Days(_)) { "a " } else { "" },
            self.per
        )
    }
}
