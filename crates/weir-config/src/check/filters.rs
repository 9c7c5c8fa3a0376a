//! Checks of lists of filters: what one filter needs of those before it. Settings are checked by each filter for itself.

use super::Checker;
use crate::node::Node;
use crate::schema::{FilterNode, Listener};

/// Filters of which a second in the same list does nothing that the first has not done.
const ONCE: &[&str] = &["body_limit", "cors", "key_auth", "request_id", "security_headers"];

/// Filters beside those called `…_auth` that let nothing pass without credentials.
const ASK: &[&str] = &["acl", "any", "jwt", "oidc"];

/// Filters beside those that say by something else than credentials who may pass.
const DECIDE: &[&str] = &["acl", "ip"];

/// Filters that make calls of gRPC of requests, which go by HTTP/2 only.
const CALL_GRPC: &[&str] = &["connect", "grpc_json", "grpc_web"];

/// Whether a filter turns away whoever brings no credentials.
fn asks_for_credentials(filter: &FilterNode) -> bool {
    let optional = |node: &Node| node.get("optional").and_then(Node::as_text) == Some("true");
    let optional = optional(&filter.node)
        || filter.node.elements().iter().flat_map(Node::entries).any(|(_, n)| optional(n));
    (filter.name.ends_with("_auth") || ASK.contains(&filter.name.as_str())) && !optional
}

/// Settings of filters that are secrets of this gateway's own.
const SECRETS: &[(&str, &str)] = &[("jwt", "secret"), ("oidc", "client_secret"), ("sign", "key")];

impl<'a> Checker<'a> {
    pub(super) fn filter_lists(&mut self) {
        let config = self.config;
        let plans = config.plans.iter().flat_map(|(_, plan)| &plan.filters);
        let of_routes = config.routes.iter().flat_map(|(_, route)| &route.filters);
        for filter in config.filters.iter().chain(plans).chain(of_routes) {
            self.secrets(&filter.name, &filter.node, &filter.path);
        }
        self.filter_list(&[], &config.filters);
        for (_, plan) in config.plans.iter() {
            self.twice(&[], &plan.filters);
            for cors in plan.filters.iter().filter(|filter| filter.name == "cors") {
                let message =
                    "a plan's filters run once the consumer is known, and no preflight tells who calls";
                self.error_hint(
                    &cors.path,
                    "cors-behind-auth",
                    message,
                    "put it first among the filters of the route",
                );
            }
        }
        for (_, route) in config.routes.iter().filter(|(_, route)| !route.filters.is_empty()) {
            self.filter_list(&config.filters, &route.filters);
        }
        self.callers_of_grpc();
    }

    /// Warns of filters of a route that would call its upstream by gRPC where that speaks HTTP/1.1 only.
    fn callers_of_grpc(&mut self) {
        let config = self.config;
        for (_, route) in config.routes.iter() {
            for filter in route.filters.iter().filter(|filter| CALL_GRPC.contains(&filter.name.as_str())) {
                for share in route.upstream.iter().flat_map(|split| &split.0) {
                    let Some(upstream) = config.upstreams.get(&share.upstream) else { continue };
                    if upstream.may_speak_http2() {
                        continue;
                    }
                    let message = format!(
                        "`{}` calls the upstream `{}` by gRPC, which needs HTTP/2, but it speaks HTTP/1.1 only",
                        filter.name, share.upstream
                    );
                    let protocol = if upstream.tls.is_some() { "h2" } else { "h2c" };
                    let hint = format!("write `protocol: {protocol}` under upstreams.{}", share.upstream);
                    self.warn(&filter.path, "grpc-over-http1", message, hint);
                }
            }
        }
    }

    /// Warns of secrets that stand in the file. Messages never repeat them.
    fn secrets(&mut self, name: &str, settings: &Node, path: &str) {
        for (_, key) in SECRETS.iter().filter(|(filter, _)| *filter == name) {
            let literal = settings.get(key).is_some_and(|node| node.as_text().is_some() && !node.substituted);
            if literal {
                let hint = "write \"${VAR}\" or \"${file:PATH}\"";
                let path = format!("{path}.{key}");
                self.warn(&path, "literal-credential", "the secret stands readable in this file", hint);
            }
        }
        if name == "any" {
            for (index, member) in settings.elements().iter().enumerate() {
                for (name, settings) in member.entries() {
                    self.secrets(&name.text, settings, &format!("{path}[{index}].{}", name.text));
                }
            }
        }
    }

    /// Checks filters that run behind those of all routes.
    fn filter_list(&mut self, global: &'a [FilterNode], own: &'a [FilterNode]) {
        self.twice(global, own);
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
        let names = |f: &FilterNode| readers.contains(&f.name.as_str()) || f.name == "any";
        self.caches(global, own);
        for (index, acl) in own.iter().enumerate().filter(|(_, filter)| filter.name == "acl") {
            if !global.iter().chain(&own[..index]).any(names) {
                let message = "no filter before this one names a consumer: whoever calls is anonymous";
                let hint = format!("put {} before it", self.credentials.join(" or "));
                self.warn(&acl.path, "no-consumer", message, hint);
            }
        }
        let counts = |filter: &FilterNode| matches!(filter.name.as_str(), "concurrency" | "rate_limit");
        for (index, filter) in own.iter().enumerate().filter(|(_, filter)| counts(filter)) {
            let by = filter.node.get("by").and_then(|node| node.as_text());
            if by != Some("consumer") || global.iter().chain(&own[..index]).any(names) {
                continue;
            }
            let known = self.credentials.join(" or ");
            let (message, hint) = if own[index..].iter().any(names) {
                let message =
                    "nobody has named a consumer yet when this filter runs, so it counts by address";
                (message, format!("put {known} before it"))
            } else {
                let message = "no filter before this one names a consumer, so it counts by address";
                (message, format!("put {known} before it, or write `by: address`"))
            };
            self.warn(&format!("{}.by", filter.path), "no-consumer", message, hint);
        }
    }

    /// Warns of a `cache` that answers before a filter has said who may pass.
    fn caches(&mut self, global: &'a [FilterNode], own: &'a [FilterNode]) {
        let decides =
            |filter: &&FilterNode| asks_for_credentials(filter) || DECIDE.contains(&filter.name.as_str());
        for (index, cache) in global.iter().chain(own).enumerate().filter(|(_, f)| f.name == "cache") {
            // What stands behind it among the filters of all routes was told when these were looked at.
            let mut behind = own.iter().skip((index + 1).saturating_sub(global.len()));
            let Some(filter) = behind.find(decides) else { continue };
            let message = format!(
                "`{}` runs behind it: what the cache has is served to clients that it would turn away",
                filter.name
            );
            self.warn(&cache.path, "cache-before-auth", message, "put the cache behind it");
        }
    }

    /// Refuses a `cors` that no preflight would reach.
    fn preflights(&mut self, global: &'a [FilterNode], own: &'a [FilterNode]) {
        for (index, cors) in own.iter().enumerate().filter(|(_, filter)| filter.name == "cors") {
            let mut before = global.iter().chain(&own[..index]);
            if let Some(asks) = before.clone().find(|filter| asks_for_credentials(filter)) {
                let message = format!(
                    "`{}` runs before it and turns every preflight away: browsers send no credentials with one",
                    asks.name
                );
                let hint = if global.iter().any(|filter| std::ptr::eq(filter, asks)) {
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

    /// Warns of a filter that is written again with the same settings, or of which one is enough.
    fn twice(&mut self, global: &'a [FilterNode], own: &'a [FilterNode]) {
        for (index, filter) in own.iter().enumerate() {
            let before = &own[..index];
            let once = ONCE.contains(&filter.name.as_str());
            let same = |f: &&FilterNode| f.name == filter.name && f.node == filter.node;
            let twin = before.iter().find(|f| same(f) || once && f.name == filter.name);
            let message = match (twin, global.iter().find(same)) {
                (Some(_), _) => format!("the filter `{}` stands twice in this list", filter.name),
                (None, Some(_)) => {
                    format!("the filter `{}` with these settings runs for every route already", filter.name)
                }
                (None, None) => continue,
            };
            self.warn(&filter.path, "filter-twice", message, "remove one of them");
        }
    }
}
