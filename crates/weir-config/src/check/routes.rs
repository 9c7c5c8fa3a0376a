//! Checks of single routes. Conflicts between routes are found in `route`.

use super::spot::Spot;
use super::{Checker, is_field_value, is_token};
use crate::aliases;
use crate::node::{Node, Value};
use crate::schema::{
    EscapedSlashes, Exclusions, Files, FilesByHeader, Listener, Pairs, Paths, Respond, Route, Serves, Split,
    Written,
};
use crate::secrecy;
use crate::spelling::nearest_name;
use crate::units::Duration;

/// Methods with a defined meaning, the usual ones first. Source: IANA's registry of HTTP methods; caches accept PURGE
/// and BAN.
const METHODS: &[&str] = &[
    "GET",
    "POST",
    "PUT",
    "DELETE",
    "PATCH",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "QUERY",
    "PURGE",
    "BAN",
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "ORDERPATCH",
    "PRI",
    "PROPFIND",
    "PROPPATCH",
    "REBIND",
    "REPORT",
    "SEARCH",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
];

/// What answers a route's requests after its filters: exactly one of these.
pub const TARGETS: &[&str] = &["upstream", "respond", "files"];

/// Whether an unknown key of a route was meant as its target or a filter. The route then has no other mistake.
pub fn is_for_target(key: &str) -> bool {
    const EXPECTED: &[&str] = &["match", "filters", "upstream", "respond", "files"];
    let meant = match aliases::key(key, EXPECTED) {
        Some((meant, _)) => meant.or(secrecy::is_filter(key).then_some("filters")),
        None => nearest_name(key, TARGETS.iter().copied()),
    };
    meant.is_some_and(|meant| meant == "filters" || TARGETS.contains(&meant))
}

/// Whether an unknown key of a route, or of its `match`, was meant as a key of `match`.
pub fn is_for_match(key: &str, within: bool) -> bool {
    let expected: &[&str] = if within { &["hosts", "path"] } else { &["match"] };
    aliases::key(key, expected).is_some() || nearest_name(key, expected.iter().copied()).is_some()
}

impl Checker<'_> {
    pub(super) fn routes(&mut self) {
        let config = self.config;
        let section = Spot::section(self.tree, "routes");
        for Written { name, thing: route, node } in config.routes.written(section.node()) {
            let at = section.thing(name, node);
            self.answer(&at, route);
            self.matcher(&at.key("match"), route);
            if let (Some(response), Some(exchange)) = (route.timeouts.response, route.timeouts.exchange) {
                let base = at.key("timeouts").path();
                self.must_fit(&base, ("response", response), ("exchange", exchange));
            }
            if route.client_gone.is_some() && route.shares().next().is_none() {
                let message = "the route has no upstream whose work could be canceled or finished";
                self.warn(&at.key("client_gone").path(), "no-effect", message, "remove `client_gone`");
            }
            self.deadline_of_route(&at, route);
            self.limiter_above_pool(route);
            self.escaped_slash(&at, route);
            self.route_early_data(&at, route);
        }
    }

    /// A path written with `%2F` matches only if escapes are kept; decoded it is another path.
    fn escaped_slash(&mut self, at: &Spot<'_, '_>, route: &Route) {
        let m = &route.matches;
        let on = |listener: &str| m.listeners.is_empty() || m.listeners.iter().any(|l| l == listener);
        let keep = EscapedSlashes::Keep;
        let kept = match route.escaped_slashes {
            Some(setting) => setting == keep,
            None => self.config.listeners.iter().any(|(name, l)| on(name) && l.escaped_slashes == keep),
        };
        let is_escaped = |path: &&str| path.starts_with('/') && path.contains("%2F");
        if let Some(path) = m.path.iter().find(is_escaped).filter(|_| !kept) {
            let message =
                format!("no request can match `{path}`: an escaped slash is refused or decoded first");
            let hint = "write `escaped_slashes: keep` on the route, if its upstream does not decode %2F";
            self.error_hint(&at.key("match").key("path").path(), "unreachable-route", message, hint);
        }
    }

    /// Early data comes by listeners that accept it, in requests with safe methods.
    fn route_early_data(&mut self, at: &Spot<'_, '_>, route: &Route) {
        if !route.early_data {
            return;
        }
        let path = at.key("early_data").path();
        let m = &route.matches;
        let on = |listener: &str| m.listeners.is_empty() || m.listeners.iter().any(|l| l == listener);
        let accepts =
            |listener: &Listener| listener.has_h3() && listener.http3.is_some_and(|http3| http3.early_data);
        if !self.config.listeners.iter().any(|(name, listener)| on(name) && accepts(listener)) {
            let message = "no listener of this route accepts early data";
            let hint = "add http3: { early_data: true } to a listener with h3, or remove `early_data`";
            self.warn(&path, "no-effect", message, hint);
        }
        let is_safe = |method: &String| matches!(&**method, "GET" | "HEAD" | "OPTIONS");
        if !m.methods.is_empty() && !m.methods.iter().any(is_safe) {
            let message = "no method of this route runs early; GET, HEAD and OPTIONS do";
            self.warn(&path, "no-effect", message, "remove `early_data`");
        }
    }

    fn answer(&mut self, at: &Spot<'_, '_>, route: &Route) {
        let answers: Vec<&str> = TARGETS.iter().copied().filter(|key| at.key(key).is_written()).collect();
        match answers[..] {
            // Whether the filters answer every request is known once they are built: see `unanswered` in the engine.
            [] | [_] => {}
            [first, second, ..] => {
                let message = format!("the route has both `{first}` and `{second}`; expected one of them");
                self.error(&at.key(second).path(), "two-answers", message);
            }
        }
        if let Some(split) = &route.upstream {
            self.split(&at.key("upstream"), split);
        }
        if let Some(files) = &route.files {
            self.missing_files(&at.key("files"), files);
        }
        self.scripts(at, route);
        if let Some(by_header) = &route.files_by_header {
            self.files_by_header(&at.key("files_by_header"), route, by_header);
        }
        if let Some(respond) = &route.respond {
            self.respond(&at.key("respond"), respond);
        }
    }

    fn split(&mut self, at: &Spot<'_, '_>, split: &Split) {
        let is_map = at.node().is_some_and(|node| matches!(node.value, Value::Map(_)));
        for share in &split.0 {
            // Whether its filters answer every request is known once they are built: see `arms` in the engine.
            if share.may_answer() && !self.config.upstreams.contains(&share.upstream) {
                continue;
            }
            let path = || match &share.arm {
                Some(arm) if arm.names_upstream => at.key(&arm.name).key("upstream").path(),
                _ if is_map => at.key(share.name()).path(),
                _ => at.path(),
            };
            self.must_exist(path, "upstreams", "unknown-upstream", &share.upstream);
        }
        let whole = at.node().is_some_and(|node| node.entries().len() == split.0.len());
        if is_map && whole && split.0.iter().all(|share| share.weight == 0) {
            let message = "no upstream has a share; expected at least one above zero";
            self.error(&at.path(), "no-share", message);
        }
    }

    fn files_by_header(&mut self, at: &Spot<'_, '_>, route: &Route, written: &FilesByHeader) {
        let missing = route.files.as_ref().and_then(|files| files.missing.as_ref());
        if route.upstream.is_none() && missing.is_none() {
            let message = "the route has no upstream whose responses could name a file";
            self.error_hint(&at.path(), "no-upstream", message, "add `upstream: NAME`, or remove it");
        }
        if written.iter().len() == 0 {
            let hint = "write { x-accel-redirect: { /downloads/: ./private } }";
            self.error_hint(&at.path(), "empty", "names no header field", hint);
        }
        for (name, folders) in written.iter() {
            let at = at.key(name);
            if !is_token(name) || !name.get(..2).is_some_and(|x| x.eq_ignore_ascii_case("x-")) {
                let message = format!("`{name}` is not such a field; expected a name that begins with `x-`");
                let hint = "write x-accel-redirect, or x-sendfile";
                self.error_hint(&at.path(), "bad-value", message, hint);
            }
            if folders.is_empty() {
                let hint = "write { /downloads/: ./private }";
                self.error_hint(&at.path(), "empty", "names no folder", hint);
            }
            for prefix in folders.keys() {
                if !prefix.starts_with('/') || !prefix.ends_with('/') || prefix.contains(['?', '\0']) {
                    let message = format!("`{prefix}` is no beginning of a path; expected e.g. /downloads/");
                    let hint = "begin and end with `/`";
                    self.error_hint(&at.key(prefix).path(), "bad-value", message, hint);
                }
            }
        }
    }

    fn missing_files(&mut self, at: &Spot<'_, '_>, files: &Files) {
        let Some(split) = &files.missing else { return };
        let at_missing = at.key("missing");
        self.split(&at_missing, split);
        for share in split.0.iter().filter(|share| !share.filters().is_empty()) {
            let message =
                "what is no file is passed on after all filters, so an arm here has none of its own";
            let hint = "move the filters to the route, or the arm to `upstream` of another route";
            self.error_hint(&at_missing.key(share.name()).key("filters").path(), "bad-value", message, hint);
        }
        if files.fallback.is_some() {
            let message = "`missing` passes on what is no file, so nothing is left for `fallback`";
            self.error_hint(&at.key("fallback").path(), "two-answers", message, "remove one of the two");
        }
    }

    fn respond(&mut self, at: &Spot<'_, '_>, respond: &Respond) {
        self.answered(at, respond.status, &respond.body, &respond.headers);
        let mix = at.key("mix");
        let mut shares = 0.0;
        for (index, mixed) in respond.mix.iter().enumerate() {
            self.answered(&mix.index(index), mixed.status, &mixed.body, &mixed.headers);
            shares += mixed.share.ratio();
        }
        if shares > 1.0 + 1e-9 {
            let together = (shares * 1e6).round() / 1e4;
            let message = format!("the shares are {together}% together; expected at most 100%");
            self.error(&mix.path(), "bad-value", message);
        }
    }

    fn answered(&mut self, at: &Spot<'_, '_>, status: u16, body: &str, headers: &Pairs) {
        if matches!(status, 204 | 205 | 304) && !body.is_empty() {
            let message = format!("a response of status {status} has no body");
            self.error(&at.key("body").path(), "bad-value", message);
        }
        let at = at.key("headers");
        self.fields(&at, headers);
        for (name, _) in &headers.0 {
            let framing = ["content-length", "transfer-encoding", "connection", "upgrade", "trailer", "te"];
            if framing.contains(&name.to_ascii_lowercase().as_str()) {
                let message = format!("`{name}` is the gateway's to set");
                self.error(&at.key(name).path(), "reserved-header", message);
            }
        }
    }

    fn matcher(&mut self, at: &Spot<'_, '_>, route: &Route) {
        let matches = &route.matches;
        for (index, host) in matches.hosts.iter().enumerate() {
            self.host(&at.key("hosts").index(index), host);
        }
        let keys = ["hosts", "methods", "listeners", "clients"];
        self.not_empty(at, &keys, "the list is empty, so nothing matches; leave it out to match any");
        self.paths(&at.key("path"), &matches.path);
        self.methods(&at.key("methods"), &matches.methods);
        self.named_listeners(&at.key("listeners"), &matches.listeners);
        self.fields(&at.key("headers"), &matches.headers);
        self.exclusions(at, &matches.not);
    }

    fn exclusions(&mut self, at: &Spot<'_, '_>, not: &Exclusions) {
        if not.is_list {
            self.not_empty(at, &["not"], "the list is empty, so nothing is excluded");
        }
        for (index, excluded) in not.all.iter().enumerate() {
            let place = at.key("not");
            let place = if not.is_list { place.index(index) } else { place };
            for (index, host) in excluded.hosts.iter().enumerate() {
                self.host(&place.key("hosts").index(index), host);
            }
            let keys = ["hosts", "methods", "listeners", "clients"];
            self.not_empty(&place, &keys, "the list is empty, so nothing is excluded; leave it out for any");
            excluded.path.iter().for_each(|paths| self.paths(&place.key("path"), paths));
            self.methods(&place.key("methods"), &excluded.methods);
            self.named_listeners(&place.key("listeners"), &excluded.listeners);
            self.fields(&place.key("headers"), &excluded.headers);
        }
    }

    fn not_empty(&mut self, at: &Spot<'_, '_>, keys: &[&str], message: &'static str) {
        for key in keys {
            let list = at.key(key);
            if list.node().is_some_and(|node| node.value == Value::Seq(Vec::new())) {
                self.error(&list.path(), "empty", message);
            }
        }
    }

    fn paths(&mut self, at: &Spot<'_, '_>, paths: &Paths) {
        for (index, path) in paths.iter().enumerate() {
            match paths.is_list() {
                true => self.path(&at.index(index), path),
                false => self.path(at, path),
            }
        }
    }

    fn path(&mut self, at: &Spot<'_, '_>, path: &str) {
        if path.starts_with(['/', '~']) {
            return;
        }
        let message =
            format!("`{path}` is not a path; expected one that begins with /, or ~ and a regular expression");
        let hint = if path.contains(['“', '”', '‘', '’']) {
            "write plain quotes, \" or ', in place of the typographic ones".to_owned()
        } else {
            format!("write /{}", path.trim_start_matches("./"))
        };
        self.error_hint(&at.path(), "bad-value", message, hint);
    }

    fn methods(&mut self, at: &Spot<'_, '_>, methods: &[String]) {
        for (index, method) in methods.iter().enumerate() {
            let path = || at.index(index).path();
            let upper = method.to_ascii_uppercase();
            if !is_token(method) {
                self.error(&path(), "bad-value", format!("`{method}` is not a method; expected e.g. GET"));
            } else if method == "CONNECT" {
                let message = "CONNECT is refused by the gateway and never reaches a route";
                self.error(&path(), "bad-value", message);
            } else if *method != upper {
                let message = format!("`{method}` is not a method: write methods in capitals");
                self.error_hint(&path(), "bad-value", message, format!("write {upper}"));
            } else {
                self.must_be_known(path, method);
            }
        }
    }

    fn named_listeners(&mut self, at: &Spot<'_, '_>, listeners: &[String]) {
        for (index, listener) in listeners.iter().enumerate() {
            let path = || at.index(index).path();
            self.must_exist(path, "listeners", "unknown-listener", listener);
            let serves = self.config.listeners.get(listener).map(Listener::serves);
            if serves.is_some_and(|serves| serves != Serves::Http) {
                let message = format!("listener `{listener}` speaks no HTTP, so no request comes by it");
                let hint = if serves == Some(Serves::Sni) {
                    "name the listener that its `sni` or `otherwise` leads to"
                } else {
                    "name a listener without `tcp`"
                };
                self.error_hint(&path(), "no-requests", message, hint);
            }
        }
    }

    /// A warning for a method that is not registered. `*` is not a method.
    pub(super) fn must_be_known(&mut self, path: impl FnOnce() -> String, method: &str) {
        if METHODS.contains(&method) || method == "*" {
            return;
        }
        let message = format!("`{method}` is not a standard method");
        let near = nearest_name(method, METHODS.iter().copied());
        let hint = near.map_or_else(
            || "the usual ones are GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS".to_owned(),
            |near| format!("did you mean {near}?"),
        );
        self.warn(&path(), "unknown-method", message, hint);
    }

    fn fields(&mut self, at: &Spot<'_, '_>, fields: &Pairs) {
        for (name, value) in &fields.0 {
            let path = || at.key(name).path();
            if !is_token(name) {
                self.error(&path(), "bad-value", format!("`{name}` is not a header name"));
            }
            if !is_field_value(value) {
                let message = "the value is not valid in a header field; expected no control characters and no space around it";
                self.error(&path(), "bad-value", message);
            }
        }
    }

    fn host(&mut self, at: &Spot<'_, '_>, host: &str) {
        const EXPECTED: &str = "expected e.g. api.example.com, *.example.com or www.*";
        // The table reports what is wrong with a regular expression.
        if is_host(host) || host.starts_with('~') {
            return;
        }
        let path = &at.path();
        let message = format!("`{host}` is not a host name; {EXPECTED}");
        if host.is_empty() {
            let hint = "leave `hosts` out to match any host";
            return self.error_hint(path, "bad-value", format!("the host is empty; {EXPECTED}"), hint);
        }
        if let Some((_, rest)) = host.split_once("://") {
            let bare = rest.split(['/', ':']).next().unwrap_or(rest);
            return self.error_hint(path, "bad-value", message, format!("write {bare}"));
        }
        if host == "*" {
            let message = "`*` is not a host name: a wildcard replaces the first or the last labels, such as *.example.com";
            return self.error_hint(path, "bad-value", message, "for any host leave `hosts` out");
        }
        if let Some((name, port)) = host.split_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()) {
            let hint = format!("write {name}: requests are matched without the port {port}");
            return self.error_hint(path, "bad-value", message, hint);
        }
        if without_wildcard(host).contains('*') {
            let hint = "`*` replaces the first or the last labels, as in *.example.com and www.*; for other names write ~ and a regular expression";
            return self.error_hint(path, "bad-value", message, hint);
        }
        match host.is_ascii() {
            true => self.error(path, "bad-value", message),
            false => self.error_hint(path, "bad-value", message, "write it in Punycode, xn--…"),
        }
    }

    /// Warns of a limiter that passes more requests a second than the upstream can take, because it protects nothing.
    fn limiter_above_pool(&mut self, route: &Route) {
        let limits = route.filters.iter().filter(|filter| filter.name == "rate_limit").flat_map(|filter| {
            let several = filter.node.get("limits").map(Node::elements).unwrap_or_default();
            std::iter::once(&filter.node).chain(several).map(|limit| (&filter.path, limit))
        });
        for (path, limit) in limits {
            let requests = limit.get("requests").and_then(|node| node.as_text()?.parse::<f64>().ok());
            // A quota of a day or month has no rate.
            let per = limit.get("per").and_then(|node| node.as_text()?.parse::<Duration>().ok());
            let (Some(requests), Some(per)) = (requests, per) else { continue };
            let rate = requests / per.get().as_secs_f64().max(f64::MIN_POSITIVE);
            let shares = route.shares();
            for share in shares {
                let Some(upstream) = self.config.upstreams.get(&share.upstream) else { continue };
                let limits = &upstream.limits;
                let Some(connections) = limits.connections else { continue };
                let room = u64::from(connections) + u64::from(limits.pending);
                if rate > room as f64 {
                    let message = format!(
                        "{rate:.0} requests a second are let through, but the upstream has room for {room} at once"
                    );
                    let hint = format!("lower it, or raise upstreams.{}.limits.connections", share.upstream);
                    self.warn(path, "limiter-above-pool", message, hint);
                }
            }
        }
    }
}

/// Whether a host is a name of labels, the first of which may be `*`, or an IPv6 address in brackets.
/// The labels of a host beside a `*` for the first ones or the last ones.
fn without_wildcard(host: &str) -> &str {
    host.strip_prefix("*.").or_else(|| host.strip_suffix(".*")).unwrap_or(host)
}

fn is_host(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    if address.is_some_and(|address| address.parse::<std::net::Ipv6Addr>().is_ok()) {
        return true;
    }
    let labels = without_wildcard(host);
    let is_label = |label: &str| {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(fits)
    };
    labels.strip_suffix('.').unwrap_or(labels).split('.').all(is_label)
}
