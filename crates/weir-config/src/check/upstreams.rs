//! Checks of upstreams.

use super::Checker;
use super::spot::Spot;
use crate::schema::{
    EndpointAddress, EndpointScheme, Hedge, ListenAddress, Listener, Retry, RetryMethods, RetryOn, Route,
    SourceAddress, Upstream, UpstreamProtocol, UpstreamTimeouts,
};
use crate::units::Duration;
use crate::{Node, Value};

impl Checker<'_> {
    pub(super) fn upstreams(&mut self) {
        let config = self.config;
        for (name, upstream) in config.upstreams.iter() {
            let path = format!("upstreams.{name}");
            self.who_lists_endpoints(&path, upstream);
            self.endpoints(&path, upstream);
            self.balancing(&path, upstream);
            self.not_ourselves(&path, upstream);
            self.upstream_tls(&path, upstream);
            self.protocol(&path, upstream);
            self.policies(&path, upstream);
            self.upstream_timeouts(&path, upstream);
            self.sending(&path, upstream);
            self.fastcgi_upstream(&path, upstream);
            if let Some(connections) = upstream.limits.connections {
                self.must_be_within(
                    &format!("{path}.limits.connections"),
                    connections.into(),
                    1,
                    u32::MAX.into(),
                );
            }
        }
    }

    fn endpoints(&mut self, upstream_path: &str, upstream: &Upstream) {
        let list = format!("{upstream_path}.endpoints");
        let is_empty = |node: &Node| matches!(&node.value, Value::Seq(items) if items.is_empty());
        if self.find(&list).is_some_and(is_empty) {
            let message = "the list is empty; expected at least one endpoint";
            self.error_hint(&list, "empty", message, "add an address such as 127.0.0.1:8000");
        }
        if !self.is_whole(&list, upstream.endpoints.len()) {
            return;
        }
        self.schemes(&list, upstream);
        for (index, endpoint) in upstream.endpoints.iter().enumerate() {
            if let EndpointAddress::Unix(file) = &endpoint.address {
                self.check_unix_path(&format!("{list}[{index}]"), file);
            }
            let port = match &endpoint.address {
                EndpointAddress::Name { port, .. } => Some(*port),
                EndpointAddress::Tcp(address) => Some(address.port()),
                EndpointAddress::Unix(_) => None,
            };
            if let Some(port @ (443 | 8443)) = port
                && upstream.tls.is_none()
                && endpoint.scheme.is_none()
            {
                let message = format!("servers speak TLS on port {port}, and this upstream has no `tls`");
                let hint = "add `tls: {}` beside the endpoints";
                self.warn(&format!("{list}[{index}]"), "no-tls", message, hint);
            }
            if upstream.endpoints[..index].iter().any(|earlier| earlier.address == endpoint.address) {
                let message = format!("the endpoint {} is listed twice", endpoint.address);
                let hint = "give it a weight instead: { address: …, weight: 2 }";
                self.warn(&format!("{list}[{index}]"), "endpoint-twice", message, hint);
            }
        }
    }

    /// Schemes of endpoints that contradict one another or the upstream: TLS is for all of an upstream.
    fn schemes(&mut self, list: &str, upstream: &Upstream) {
        let has_https = upstream.endpoints.iter().any(|e| e.scheme == Some(EndpointScheme::Https));
        let upstream_path = list.strip_suffix(".endpoints").unwrap_or(list);
        let writes_tls = self.is_written(&format!("{upstream_path}.tls"));
        for (index, endpoint) in upstream.endpoints.iter().enumerate() {
            let address = &endpoint.address;
            let (message, hint) = match endpoint.scheme {
                Some(EndpointScheme::Http) if writes_tls => (
                    format!("{address} is http, and this upstream has `tls`"),
                    "write https://, or remove `tls`",
                ),
                Some(EndpointScheme::Http) if has_https => (
                    format!("{address} is http, and another endpoint of this upstream is https"),
                    "write one scheme, or two upstreams and a split by weight on the route",
                ),
                None if has_https && !writes_tls => (
                    format!("{address} has no scheme, and another endpoint of this upstream is https"),
                    "write https:// before each, or `tls: {}` beside the endpoints",
                ),
                Some(EndpointScheme::Https) if upstream.protocol == UpstreamProtocol::H2c => (
                    format!("{address} is https, and `protocol: h2c` is HTTP/2 in cleartext"),
                    "write `protocol: h2`, or http://",
                ),
                Some(EndpointScheme::Https) if upstream.protocol == UpstreamProtocol::Fastcgi => {
                    (format!("{address} is https, and FastCGI has no TLS"), "leave out the scheme")
                }
                _ => continue,
            };
            self.error_hint(&format!("{list}[{index}]"), "endpoint-scheme", message, hint);
        }
    }

    /// A warning for an endpoint that is one of our listeners, because requests sent there come back.
    fn not_ourselves(&mut self, upstream_path: &str, upstream: &Upstream) {
        let list = format!("{upstream_path}.endpoints");
        if !self.is_whole(&list, upstream.endpoints.len()) {
            return;
        }
        let config = self.config;
        for (index, endpoint) in upstream.endpoints.iter().enumerate() {
            let is_own =
                |own: &Listener| own.address.as_ref().is_some_and(|at| leads_to(&endpoint.address, at));
            let own = config.listeners.iter().find(|(_, own)| is_own(own));
            if let Some((listener, _)) = own {
                let message = format!(
                    "{} is our own listener `{listener}`: its requests would loop forever",
                    endpoint.address
                );
                let hint = "write the address of the service";
                self.warn(&format!("{list}[{index}]"), "own-listener", message, hint);
            }
        }
    }

    fn upstream_tls(&mut self, upstream_path: &str, upstream: &Upstream) {
        let Some(tls) = &upstream.tls else { return };
        let path = format!("{upstream_path}.tls");
        for (key, file) in
            [("ca", &tls.ca), ("client_cert", &tls.client_cert), ("client_key", &tls.client_key)]
        {
            if let Some(file) = file {
                let path = format!("{path}.{key}");
                if key == "client_key" {
                    self.must_be_key(&path, &file.0);
                } else {
                    self.must_be_file(&path, &file.0);
                }
            }
        }
        let pair = ["client_cert", "client_key"];
        for (there, absent) in [(pair[0], pair[1]), (pair[1], pair[0])] {
            if self.is_written(&format!("{path}.{there}")) && !self.is_written(&format!("{path}.{absent}")) {
                let message = format!("`{there}` needs `{absent}` beside it");
                self.error(&format!("{path}.{there}"), "missing-key", message);
            }
        }
        if !tls.verify && !tls.names.is_empty() {
            let message = "without `verify`, no name is looked at";
            let hint = "remove `verify: false`, or `names`";
            self.error_hint(&format!("{path}.names"), "no-effect", message, hint);
        }
        if !tls.verify {
            let message = "the endpoints' certificates are not verified: anyone on the network path can read and change the traffic";
            let hint = "name the authority with `ca` instead";
            self.warn(&format!("{path}.verify"), "unverified-tls", message, hint);
        }
    }

    /// HTTP/2 over TLS and in cleartext have separate names, so that neither is mistaken for the other.
    fn protocol(&mut self, path: &str, upstream: &Upstream) {
        let at = format!("{path}.protocol");
        match (upstream.protocol, &upstream.tls) {
            (UpstreamProtocol::H2, None) => {
                let hint = "add `tls: {}`, or write h2c for HTTP/2 in cleartext";
                self.error_hint(
                    &at,
                    "h2-without-tls",
                    "`h2` is HTTP/2 over TLS, and this upstream has no `tls`",
                    hint,
                );
            }
            (UpstreamProtocol::H2c, Some(_)) if self.is_written(&format!("{path}.tls")) => {
                let hint = "write h2, or remove `tls`";
                self.error_hint(
                    &at,
                    "h2c-with-tls",
                    "`h2c` is HTTP/2 in cleartext, and this upstream has `tls`",
                    hint,
                );
            }
            _ => {}
        }
        let least = upstream.least_connections(self.config.workers);
        if let Some(limit) = upstream.limits.connections.filter(|limit| *limit < least) {
            let message = format!(
                "{limit} is less than the {least} workers: with HTTP/2 every worker needs its own connection"
            );
            let hint = format!("write {least}, or lower `workers`");
            self.warn(&format!("{path}.limits.connections"), "fewer-than-workers", message, hint);
        }
    }

    /// Retries, and the policies for unhealthy endpoints.
    fn policies(&mut self, path: &str, upstream: &Upstream) {
        if let Some(retry) = &upstream.retry {
            self.retry(path, retry, &upstream.timeouts);
        }
        if let Some(health) = &upstream.health {
            self.health(path, upstream, health);
        }
    }

    fn retry(&mut self, path: &str, retry: &Retry, timeouts: &UpstreamTimeouts) {
        self.must_be_within(&format!("{path}.retry.attempts"), retry.attempts.into(), 1, 10);
        if let Some(per_try) = retry.per_try {
            self.must_last(&format!("{path}.retry.per_try"), per_try);
        }
        self.retried_calls(&format!("{path}.retry"), retry);
        let Some((all, said)) = all_attempts(retry, timeouts.response) else { return };
        if let Some(exchange) = timeouts.exchange.filter(|exchange| exchange.get() < all) {
            let message = format!("{said} take longer than the {exchange} of `timeouts.exchange`");
            let hint =
                "the last attempts would be cut short: lower `retry.per_try`, or raise `timeouts.exchange`";
            let key = if retry.per_try.is_some() { "per_try" } else { "attempts" };
            let written = format!("{path}.retry.{key}");
            let at = if self.is_written(&written) { written } else { format!("{path}.timeouts.exchange") };
            self.warn_with(&at, &[path], "beyond-deadline", message, hint);
        }
    }

    /// Warns of a gRPC status in `on` if no call may be repeated, because calls are POSTs. The filters `connect` and
    /// `grpc_json` also make calls of GETs, which may be repeated.
    fn retried_calls(&mut self, path: &str, retry: &Retry) {
        let has_gets = || self.filters().any(|f| matches!(f.name.as_str(), "connect" | "grpc_json"));
        if retry.methods == RetryMethods::All || has_gets() {
            return;
        }
        if let Some(index) = retry.on.iter().position(|on| matches!(on, RetryOn::Grpc(_))) {
            let list = format!("{path}.on");
            let at = if self.is_whole(&list, retry.on.len()) { format!("{list}[{index}]") } else { list };
            let message = "gRPC calls are POSTs, which `methods: idempotent` does not repeat";
            let hint = "add `methods: all` if the calls are idempotent, or remove this status";
            self.warn(&at, "never-retried", message, hint);
        }
    }

    /// What we send to endpoints, and from which address.
    fn sending(&mut self, path: &str, upstream: &Upstream) {
        if upstream.proxy_protocol.is_some() && upstream.may_speak_http2() {
            let message = "a PROXY header describes one client, but clients share an HTTP/2 connection";
            let hint = "write `protocol: http1`, or pass the client's address in X-Forwarded-For";
            self.error_hint(&format!("{path}.proxy_protocol"), "proxy-over-h2", message, hint);
        }
        if let Some(hedge) = &upstream.hedge {
            self.hedge(path, upstream, hedge);
        }
        let Some(SourceAddress(source)) = upstream.source else { return };
        let list = format!("{path}.endpoints");
        if !self.is_whole(&list, upstream.endpoints.len()) {
            return;
        }
        for (index, endpoint) in upstream.endpoints.iter().enumerate() {
            if let EndpointAddress::Tcp(to) = &endpoint.address
                && to.is_ipv4() != source.is_ipv4()
            {
                let message =
                    format!("{to} cannot be reached from `source`, {source}: it is of the other family");
                self.error(&format!("{list}[{index}]"), "other-family", message);
            }
        }
    }

    /// A warning if a deadline ends no later than a connect to the upstream. Otherwise an unresponsive endpoint costs
    /// requests all or half of their time until it leaves the rotation.
    pub(super) fn connect_before(&mut self, path: &str, deadline: Duration, name: &str, upstream: &Upstream) {
        let connect = upstream.timeouts.connect;
        if deadline.is_zero() || connect.get() < deadline.get() {
            return;
        }
        let message =
            format!("connecting to upstream `{name}` may take {connect}, but this ends after {deadline}");
        let hint = format!(
            "lower `timeouts.connect` under upstreams.{name}: until it expires, an endpoint that accepts no connections stays in rotation"
        );
        self.warn_with(path, &[&format!("upstreams.{name}.timeouts")], "beyond-deadline", message, hint);
    }

    /// A warning if a route's own deadline ends before a connect, or before all attempts that its upstream allows.
    pub(super) fn deadline_of_route(&mut self, at: &Spot<'_, '_>, route: &Route) {
        let Some(exchange) = route.timeouts.exchange.filter(|exchange| !exchange.is_zero()) else { return };
        let config = self.config;
        let path = at.key("timeouts").key("exchange").path();
        for share in route.shares() {
            let Some(upstream) = config.upstreams.get(&share.upstream) else { continue };
            self.connect_before(&path, exchange, &share.upstream, upstream);
            let response = route.timeouts.response.unwrap_or(upstream.timeouts.response);
            let all = upstream.retry.as_ref().and_then(|retry| all_attempts(retry, response));
            let Some((_, said)) = all.filter(|(all, _)| *all > exchange.get()) else { continue };
            let message =
                format!("{said} of upstream `{}` take longer than this route's {exchange}", share.upstream);
            let hint = "the last attempts would be cut short: lower `retry.per_try` of the upstream, or raise `exchange`";
            let response = at.key("timeouts").key("response").path();
            let others = [&*response, &*format!("upstreams.{}", share.upstream)];
            self.warn_with(&path, &others, "beyond-deadline", message, hint);
        }
    }

    fn hedge(&mut self, path: &str, upstream: &Upstream, hedge: &Hedge) {
        let at = format!("{path}.hedge.after");
        self.must_last(&at, hedge.after);
        let per_try = upstream.retry.as_ref().and_then(|retry| retry.per_try);
        let limits = [
            ("retry.per_try", per_try),
            ("timeouts.response", Some(upstream.timeouts.response)),
            ("timeouts.exchange", upstream.timeouts.exchange),
        ];
        let limits = limits.iter().filter_map(|(key, limit)| Some((key, (*limit)?)));
        let over =
            limits.filter(|(_, limit)| !limit.is_zero()).find(|(_, limit)| limit.get() <= hedge.after.get());
        if let Some((key, limit)) = over {
            let message = format!(
                "{} is not before the {limit} of `{key}`, so there is never a second attempt",
                hedge.after
            );
            let hint = "write a shorter time, such as the p95 of the service";
            self.warn_with(&at, &[path], "never-hedged", message, hint);
        }
        if upstream.retry.as_ref().is_some_and(|retry| retry.attempts < 2) {
            let message = "`retry.attempts` is 1, so there is never a second attempt";
            self.warn(
                &format!("{path}.hedge"),
                "never-hedged",
                message,
                "raise `retry.attempts` to 2 or more, or remove `hedge`",
            );
        }
        if hedge.budget.ratio() <= 0.0 {
            let message = "a budget of 0% allows no second attempt";
            self.warn(
                &format!("{path}.hedge.budget"),
                "never-hedged",
                message,
                "write 5%, or remove `hedge`",
            );
        }
    }

    fn upstream_timeouts(&mut self, upstream_path: &str, upstream: &Upstream) {
        let path = format!("{upstream_path}.timeouts");
        let times = &upstream.timeouts;
        self.must_last(&format!("{path}.connect"), times.connect);
        if let Some(age) = upstream.max_age {
            self.must_last(&format!("{upstream_path}.max_age"), age);
        }
        self.must_fit(&path, ("connect", times.connect), ("response", times.response));
        let Some(exchange) = times.exchange else { return };
        self.must_last(&format!("{path}.exchange"), exchange);
        let name = upstream_path.strip_prefix("upstreams.").unwrap_or(upstream_path);
        self.connect_before(&format!("{path}.exchange"), exchange, name, upstream);
        self.must_fit(&path, ("response", times.response), ("exchange", exchange));
        // Nobody wrote the 60 s default, so a shorter exchange does not contradict it.
        if self.is_written(&format!("{path}.body")) {
            self.must_fit(&path, ("body", times.body), ("exchange", exchange));
        }
    }
}

/// The time that all attempts may take, with its description. `None` if a slow attempt is not repeated.
pub(super) fn all_attempts(retry: &Retry, response: Duration) -> Option<(std::time::Duration, String)> {
    // A count out of range is reported at its own place; it may be a value from outside that must not be shown.
    if !(1..=10).contains(&retry.attempts) {
        return None;
    }
    let after_timeout = retry.on.contains(&RetryOn::Timeout);
    let each = retry.per_try.or_else(|| after_timeout.then_some(response)).filter(|each| !each.is_zero())?;
    let all = each.get().saturating_mul(retry.attempts);
    Some((all, format!("{} attempts of {each}", retry.attempts)))
}

/// Whether a connection to the endpoint would reach the listener. The only name recognised is `localhost`.
fn leads_to(endpoint: &EndpointAddress, listener: &ListenAddress) -> bool {
    match (endpoint, listener) {
        (EndpointAddress::Tcp(to), ListenAddress::Tcp(at)) => {
            let everywhere = at.ip().is_unspecified() && to.ip().is_loopback();
            to.port() == at.port() && (to.ip() == at.ip() || everywhere || to.ip().is_unspecified())
        }
        (EndpointAddress::Name { host, port }, ListenAddress::Tcp(at)) => {
            host == "localhost" && *port == at.port() && (at.ip().is_loopback() || at.ip().is_unspecified())
        }
        (EndpointAddress::Unix(to), ListenAddress::Unix(at)) => to == at,
        _ => false,
    }
}
