//! `reverse_proxy`: upstreams, balancing, health and transport, as a Caddyfile and JSON both set them.

use super::model::{FastCgi, Op, Proxy};
use super::verdicts::Judged;
use crate::config::{Endpoint, Filter};
use crate::shared::units;
use crate::yaml::{Map, VARIABLE_BEGIN, VARIABLE_END, Value};

/// A proxy that is being put together.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) proxy: Proxy,
    endpoints: Vec<Endpoint>,
    policy: Option<Policy>,
    /// The settings of `tls`, if the upstream speaks it.
    tls: Option<Map>,
    timeouts: Map,
    probe: Map,
    outlier: Map,
    limits: Map,
    retry: Map,
    more: Map,
    response_timeout: bool,
    /// Whether an address was refused, so that a proxy without one is no mistake of its own.
    lacks: bool,
}

/// How an upstream is chosen.
#[derive(Debug)]
enum Policy {
    Named(&'static str),
    Hash(String),
    Sticky(Map),
    First,
}

/// The variable with the key of cookies that choose an upstream.
pub(super) const STICKY_KEY: &str = "STICKY_KEY";

/// How addresses of upstreams look that Weir cannot use.
const DYNAMIC: &str = "`discover`, or a route for each value of the placeholder (`match.when`)";

impl Draft {
    /// An address as `reverse_proxy` writes it.
    pub(super) fn upstream(&mut self, text: &str) -> Judged {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme, rest),
            None => ("", text),
        };
        if rest.contains('{') || scheme.contains('{') {
            return self.lack(format!("`{text}` is known only when a request comes"), DYNAMIC);
        }
        if scheme.starts_with("srv") {
            return self.lack(format!("`{text}` asks the DNS for SRV records"), "`discover: { srv: … }`");
        }
        if let Some(path) = text.strip_prefix("unix/").map(|path| path.trim_start_matches('/')) {
            let path = path.strip_prefix("/").unwrap_or(path);
            self.endpoints.push(endpoint(format!("unix:/{path}")));
            return Judged::Same;
        }
        if let Some(path) = rest.strip_prefix("unix/") {
            self.endpoints.push(endpoint(format!("unix:/{}", path.trim_start_matches('/'))));
            return Judged::Same;
        }
        if rest.contains('/') && scheme.is_empty() {
            return self
                .lack(format!("`{text}` is no address that Weir knows"), "`HOST:PORT`, or `unix:/path`");
        }
        let rest = rest.trim_end_matches('/');
        if rest.contains('/') {
            return self.lack(format!("an upstream has no path: `{text}`"), "`rewrite: { add_prefix }`");
        }
        let port = match scheme {
            "https" => "443",
            _ => "80",
        };
        match scheme {
            "https" => _ = self.tls.get_or_insert_with(Map::new),
            "h2c" => self.more.set("protocol", "h2c"),
            "" | "http" => {}
            _ => return self.lack(format!("Weir knows no scheme `{scheme}`"), "`http`, `https` or `h2c`"),
        }
        let has_port = rest.rsplit_once(':').is_some_and(|(host, port)| {
            !host.ends_with(':')
                && (port.parse::<u32>().is_ok() || port.contains('-') || port.contains(VARIABLE_BEGIN))
        });
        let address = match rest.strip_prefix(':') {
            Some(port) => format!("localhost:{port}"),
            None if has_port || rest.starts_with(VARIABLE_BEGIN) => rest.to_owned(),
            None => format!("{rest}:{port}"),
        };
        // A range of ports is one upstream for each.
        if let Some((host, range)) = address.rsplit_once(':')
            && let Some((from, to)) = range.split_once('-')
            && let (Ok(from), Ok(to)) = (from.parse::<u16>(), to.parse::<u16>())
        {
            if to < from || to - from > 1000 {
                return self.lack(format!("`{text}` has too many ports"), "`endpoints`, one by one");
            }
            self.endpoints.extend((from..=to).map(|port| endpoint(format!("{host}:{port}"))));
            return Judged::Same;
        }
        self.endpoints.push(endpoint(address));
        Judged::Same
    }

    fn lack(&mut self, why: String, nearest: &'static str) -> Judged {
        self.lacks = true;
        self.proxy.closed.get_or_insert_with(|| why.clone());
        Judged::refused(why, nearest)
    }

    /// Something that decides where requests go and cannot be translated.
    pub(super) fn close(&mut self, why: &str, nearest: &'static str) -> Judged {
        self.lack(why.to_owned(), nearest)
    }

    /// `lb_policy`.
    pub(super) fn policy(&mut self, name: &str, args: &[String]) -> Judged {
        let first = args.first().map(String::as_str);
        self.policy = Some(match (name, first) {
            ("random", _) => Policy::Named("random"),
            ("random_choose", _) => Policy::Named("p2c"),
            ("round_robin", _) => Policy::Named("round_robin"),
            ("least_conn", _) => Policy::Named("least_requests"),
            ("first", _) => Policy::First,
            ("ip_hash" | "client_ip_hash", _) => Policy::Hash("address".to_owned()),
            ("uri_hash", _) => Policy::Hash("= request.path + \"?\" + request.query".to_owned()),
            ("header", Some(name)) => Policy::Hash(format!("header:{}", name.to_ascii_lowercase())),
            ("query", Some(name)) => Policy::Hash(format!("query:{name}")),
            ("cookie", name) => {
                let key = format!("{VARIABLE_BEGIN}{STICKY_KEY}{VARIABLE_END}");
                let map = Map::new().with("cookie", name.unwrap_or("lb")).with("key", key);
                self.policy = Some(Policy::Sticky(map));
                return Judged::changed("the cookie has another value: clients get another upstream once");
            }
            ("weighted_round_robin", Some(_)) => {
                let weights: Vec<u32> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
                for (endpoint, weight) in self.endpoints.iter_mut().zip(weights) {
                    endpoint.weight = (weight != 1).then_some(weight);
                }
                Policy::Named("round_robin")
            }
            _ => {
                let why = format!("Weir has no policy `{name}`");
                return Judged::refused(why, "`balancer`, which is p2c now");
            }
        });
        match name {
            "ip_hash" | "client_ip_hash" | "uri_hash" | "header" | "query" => Judged::changed(
                "the same key goes to another upstream than with Caddy, but always to the same",
            ),
            "random_choose" => Judged::changed("Weir compares two"),
            _ => Judged::Same,
        }
    }

    /// A setting of health checks, retries and the like, by its name in a Caddyfile.
    pub(super) fn setting(&mut self, name: &str, args: &[String]) -> Judged {
        let first = args.first().map_or("", String::as_str);
        let time = || units::read_duration(first, 1).map(units::duration);
        let number = || first.parse::<u32>().ok();
        match name {
            "flush_interval" => Judged::by_itself("Weir passes on what the upstream sends as it comes"),
            "lb_try_duration" => {
                self.retry.set("attempts", 3_u32);
                Judged::changed("Weir counts attempts: 3, at other upstreams first (`retry`)")
            }
            "lb_retries" => match number() {
                Some(retries) if retries < 10 => {
                    self.retry.set("attempts", retries + 1);
                    Judged::Same
                }
                _ => Judged::changed("Weir makes at most 10 attempts"),
            },
            "lb_try_interval" => Judged::left_out("Weir asks another upstream at once (`retry.backoff`)"),
            "lb_retry_match" => {
                Judged::refused("Weir retries by what failed, not by the request", "`retry: { on, methods }`")
            }
            "health_uri" | "health_path" => {
                self.probe
                    .set("path", if first.starts_with('/') { first.to_owned() } else { format!("/{first}") });
                Judged::Same
            }
            "health_port" | "health_upstream" => Judged::refused(
                "Weir asks the port that requests go to",
                "`health.probe` with `kind: tcp`, or a path of the service",
            ),
            "health_interval" | "health_timeout" => match time() {
                Some(time) => {
                    self.probe.set(name.trim_start_matches("health_"), time);
                    Judged::Same
                }
                None => Judged::refused("no duration", "a duration such as 5s"),
            },
            "health_status" => {
                let expect = match first.as_bytes() {
                    [class @ b'1'..=b'5', b'x', b'x'] => {
                        format!("{0}00-{0}99", char::from(*class))
                    }
                    _ => first.to_owned(),
                };
                self.probe.set("expect", vec![number_or_text(&expect)]);
                Judged::Same
            }
            "health_body" => {
                let is_literal = !first.contains(['\\', '.', '*', '+', '?', '(', '[', '^', '$', '|']);
                if is_literal {
                    self.probe.set("body", first);
                    return Judged::Same;
                }
                Judged::refused("Weir looks for a text in the body, not for a regex", "`health.probe.body`")
            }
            "health_headers" => Judged::refused("probes send no fields of their own", "`health.probe.host`"),
            "health_follow_redirects" => Judged::refused("probes follow no redirects", "`expect: [200-399]`"),
            "health_passes" | "health_fails" => match number() {
                Some(count) => {
                    self.probe.set(if name == "health_passes" { "healthy" } else { "unhealthy" }, count);
                    Judged::Same
                }
                None => Judged::refused("no number", "a number"),
            },
            "fail_duration" => match time() {
                Some(time) => {
                    self.outlier.set("window", time.clone());
                    self.outlier.set("eject", time);
                    Judged::changed("Weir also ejects for answers of 500 and more, and for longer each time")
                }
                None => Judged::refused("no duration", "a duration such as 30s"),
            },
            "max_fails" => match number() {
                Some(count) => {
                    self.outlier.set("errors", count);
                    Judged::Same
                }
                None => Judged::refused("no number", "a number"),
            },
            "unhealthy_status" => Judged::changed("Weir counts 500 and more as errors (`health.outlier`)"),
            "unhealthy_latency" => Judged::refused(
                "Weir ejects no upstream for being slow",
                "`balancer: ewma` prefers fast ones",
            ),
            "unhealthy_request_count" | "max_requests" => Judged::refused(
                "Weir limits the connections of an upstream as a whole",
                "`limits: { connections }` of the upstream",
            ),
            "request_buffers" | "response_buffers" | "buffer_requests" | "buffer_responses"
            | "max_buffer_size" => {
                let side = if name.contains("response") { "response" } else { "request" };
                let size =
                    units::read_size(&first.to_ascii_lowercase()).unwrap_or(1 << 20).clamp(1, 64 << 20);
                if name != "max_buffer_size" {
                    let known = self.proxy.filters.iter_mut().find(|filter| filter.name == "buffer");
                    match known.map(|filter| &mut filter.settings) {
                        Some(Value::Map(map)) => map.set(side, units::size(size)),
                        _ => self
                            .proxy
                            .filters
                            .push(Filter::new("buffer", Map::new().with(side, units::size(size)))),
                    }
                }
                Judged::changed("Weir refuses longer bodies with `buffer`; Caddy streams what does not fit")
            }
            "trusted_proxies" => Judged::Same,
            "stream_timeout" => match time() {
                Some(time) => {
                    self.timeouts.set("tunnel", time);
                    Judged::changed("Weir counts silence, not the age of a stream")
                }
                None => Judged::Same,
            },
            "stream_close_delay" => Judged::by_itself("a reload closes no tunnel of a route that stays"),
            "verbose_logs" => Judged::left_out("`weir why` tells what happened"),
            _ => Judged::refused(format!("Weir knows no `{name}` of a proxy"), "`upstreams.NAME`"),
        }
    }

    /// A setting of `transport http`.
    pub(super) fn transport(&mut self, name: &str, args: &[String]) -> Judged {
        let first = args.first().map_or("", String::as_str);
        let time = || units::read_duration(first, 1).map(units::duration);
        let mut tls = |key: &str, value: Value| {
            self.tls.get_or_insert_with(Map::new).set(key, value);
            Judged::Same
        };
        match (name, args) {
            ("tls", _) => {
                self.tls.get_or_insert_with(Map::new);
                Judged::Same
            }
            ("tls_insecure_skip_verify", _) => tls("verify", false.into()),
            ("tls_server_name", [name]) if !name.contains('{') => tls("server_name", (&**name).into()),
            ("tls_trusted_ca_certs", [file]) => tls("ca", (&**file).into()),
            ("tls_trust_pool", [kind, file]) if kind == "file" => tls("ca", (&**file).into()),
            ("tls_client_auth", [cert, key]) => {
                tls("client_cert", (&**cert).into());
                self.tls.get_or_insert_with(Map::new).set("client_key", &**key);
                Judged::Same
            }
            ("tls_timeout", _) => Judged::changed("`timeouts.connect` includes TLS"),
            ("tls_renegotiation" | "tls_except_ports" | "tls_curves", _) => {
                Judged::refused("Weir has no such setting", "`upstreams.NAME.tls`")
            }
            ("dial_timeout", _) => match time() {
                Some(time) => {
                    self.timeouts.set("connect", time);
                    Judged::Same
                }
                None => Judged::refused("no duration", "a duration such as 3s"),
            },
            ("response_header_timeout", _) => match time() {
                Some(time) => {
                    self.response_timeout = true;
                    self.timeouts.set("response", time);
                    Judged::Same
                }
                None => Judged::refused("no duration", "a duration such as 30s"),
            },
            ("read_timeout", _) => match time() {
                Some(time) => {
                    self.timeouts.set("body", time);
                    Judged::Same
                }
                None => Judged::refused("no duration", "a duration such as 60s"),
            },
            ("write_timeout" | "expect_continue_timeout" | "dial_fallback_delay", _) => {
                Judged::left_out("Weir has one limit for the answer (`timeouts.response`)")
            }
            ("versions", versions) => {
                let has = |wanted: &str| versions.iter().any(|version| version == wanted);
                let protocol = match () {
                    () if has("h2c") => "h2c",
                    () if has("3") => {
                        return Judged::refused("Weir speaks no HTTP/3 to upstreams", "`protocol: h2`");
                    }
                    () if has("2") && !has("1.1") => "h2",
                    () if has("2") => "auto",
                    () => "http1",
                };
                if protocol != "http1" {
                    self.more.set("protocol", protocol);
                }
                if protocol == "h2c" && versions.len() > 1 {
                    return Judged::changed("Weir speaks HTTP/2 only: `protocol: h2c`");
                }
                Judged::Same
            }
            ("keepalive", [value]) if value == "off" => {
                self.more.set("keepalive", "0s");
                Judged::Same
            }
            ("keepalive", _) => match time() {
                Some(time) => {
                    self.more.set("keepalive", time);
                    Judged::Same
                }
                None => Judged::refused("no duration", "a duration such as 60s"),
            },
            ("keepalive_interval" | "keepalive_idle_conns" | "keepalive_idle_conns_per_host", _) => {
                Judged::left_out("Weir keeps as many idle connections as it needs, for `keepalive`")
            }
            ("max_conns_per_host", [count]) if count.parse::<u32>().is_ok() => {
                self.limits.set("connections", count.parse::<u32>().unwrap_or_default());
                match self.endpoints.len() {
                    0 | 1 => Judged::Same,
                    _ => Judged::changed("Weir counts the connections of all endpoints together"),
                }
            }
            ("proxy_protocol", [version]) => {
                self.more.set("proxy_protocol", &**version);
                Judged::Same
            }
            ("local_address", [address]) => {
                self.more.set("source", &**address);
                Judged::Same
            }
            ("compression", _) => Judged::by_itself("Weir asks no upstream to compress unless a client does"),
            ("read_buffer" | "write_buffer" | "max_response_header", _) => {
                Judged::left_out("`limits` has Weir's own limits")
            }
            ("resolvers", _) => {
                Judged::refused("Weir has one resolver for all names", "`dns` at the top level")
            }
            ("forward_proxy_url" | "network_proxy", _) => self.close(
                "Weir reaches upstreams directly, not through a proxy",
                "an endpoint that is reached so",
            ),
            _ => Judged::refused(format!("Weir knows no `{name}` of a transport"), "`upstreams.NAME`"),
        }
    }

    /// A setting of `transport fastcgi` and of `php_fastcgi`.
    pub(super) fn fastcgi(&mut self, name: &str, args: &[String]) -> Judged {
        let first = args.first().map_or("", String::as_str);
        let fastcgi = self.proxy.fastcgi.get_or_insert_with(FastCgi::default);
        match (name, args) {
            ("root", [root]) => fastcgi.root = Some(root.clone()),
            ("split", [split]) => fastcgi.split = Some(split.clone()),
            ("index", [index]) => fastcgi.index = Some(index.clone()),
            ("try_files", tries) => fastcgi.tries = Some(tries.to_vec()),
            ("env", [name, value]) if !value.contains('{') => fastcgi.env.push((name.clone(), value.clone())),
            ("env", [_, value]) => {
                let why = format!("a parameter has a fixed value, `{value}` has none");
                return Judged::refused(why, "a header field that the script reads (`headers.request`)");
            }
            ("resolve_root_symlink", _) => {
                return Judged::changed("Weir resolves links below the root, not the root itself");
            }
            ("dial_timeout" | "read_timeout", _) => match units::read_duration(first, 1).map(units::duration)
            {
                Some(time) => {
                    let key = if name == "dial_timeout" { "connect" } else { "response" };
                    self.response_timeout |= key == "response";
                    self.timeouts.set(key, time);
                }
                None => return Judged::refused("no duration", "a duration such as 3s"),
            },
            ("write_timeout", _) => return Judged::left_out("Weir has one limit for the answer"),
            ("capture_stderr", _) => return Judged::left_out("Weir logs what a script writes to stderr"),
            _ => {
                return Judged::refused(
                    format!("Weir knows no `{name}` of FastCGI"),
                    "`routes.NAME.fastcgi`",
                );
            }
        }
        Judged::Same
    }

    /// A field of the request: Host is a setting of the upstream.
    pub(super) fn header_up(&mut self, op: Op) -> Judged {
        match &op {
            Op::Set(name, value) if name.eq_ignore_ascii_case("host") => {
                let value = value.trim();
                let is_endpoint = [
                    "{upstream_hostport}",
                    "{http.reverse_proxy.upstream.hostport}",
                    "{http.reverse_proxy.upstream.host}",
                    "{rp.upstream_hostport}",
                ];
                let is_client = ["{host}", "{hostport}", "{http.request.host}", "{http.request.hostport}"];
                if is_endpoint.contains(&value) {
                    self.more.set("host", "endpoint");
                    return Judged::Same;
                }
                if is_client.contains(&value) {
                    return Judged::by_itself("Weir passes the client's Host on");
                }
                if !value.contains('{') {
                    self.more.set("host", value);
                    return Judged::Same;
                }
                self.proxy.host = Some(value.to_owned());
                Judged::Same
            }
            Op::Set(name, value) | Op::Add(name, value) => {
                let lower = name.to_ascii_lowercase();
                if lower.starts_with("x-forwarded-") {
                    let own = [
                        "{host}",
                        "{scheme}",
                        "{remote_host}",
                        "{hostport}",
                        "{http.request.remote.host}",
                        "{http.request.scheme}",
                        "{http.request.host}",
                        "{remote}",
                        "{client_ip}",
                    ];
                    if lower == "x-forwarded-host" && matches!(&**value, "{host}" | "{http.request.host}") {
                        return Judged::changed("Weir sends it itself, with the port");
                    }
                    if own.contains(&&**value) {
                        return Judged::by_itself("Weir sends it itself");
                    }
                    if value.contains("{http.request.header.") || value.contains("{header.") {
                        return Judged::changed(
                            "Weir believes only `trusted_proxies`, and sends its own value for others",
                        );
                    }
                }
                self.proxy.request.push(op);
                Judged::Same
            }
            Op::Delete(name) => {
                let lower = name.to_ascii_lowercase();
                let bare = lower.replace('*', "");
                let own = ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];
                if bare != lower && own.iter().any(|field| field.contains(&*bare)) {
                    self.proxy.request.push(op);
                    return Judged::changed("Weir sends X-Forwarded-For, -Proto and -Host after it");
                }
                if lower.starts_with("x-forwarded-") {
                    self.proxy.request.push(op);
                    return Judged::changed("Weir may add it again on its way to the upstream");
                }
                self.proxy.request.push(op);
                Judged::Same
            }
        }
    }

    /// The proxy with its upstream.
    pub(super) fn finish(mut self) -> Proxy {
        let upstream = &mut self.proxy.upstream;
        if self.endpoints.is_empty() && !self.lacks {
            self.proxy.closed = Some("it has no upstream".to_owned());
        }
        let count = self.endpoints.len();
        if let Some(Policy::First) = self.policy {
            for (at, endpoint) in self.endpoints.iter_mut().enumerate() {
                endpoint.priority = u32::try_from(at.min(255)).ok().filter(|priority| *priority > 0);
            }
        }
        self.proxy.name = self.endpoints.first().map_or_else(String::new, |first| named(&first.address));
        upstream.endpoints = self.endpoints;
        if self.proxy.fastcgi.is_some() {
            upstream.more.set("protocol", "fastcgi");
        }
        for (key, value) in self.more.iter() {
            upstream.more.set(key, value.clone());
        }
        upstream.more.set_some("tls", self.tls);
        match self.policy {
            Some(Policy::Sticky(map)) => upstream.more.set("sticky", map),
            Some(Policy::Hash(by)) if count > 1 => {
                upstream.more.set("balancer", Map::new().with("hash", Map::new().with("by", by)));
            }
            Some(Policy::Named(name)) if count > 1 => upstream.more.set("balancer", name),
            // Caddy's default.
            None if count > 1 => upstream.more.set("balancer", "random"),
            _ => {}
        }
        if !self.response_timeout {
            // Caddy waits as long as the upstream takes.
            self.timeouts.set("response", "0s");
        }
        upstream.more.set("timeouts", self.timeouts);
        let mut health = Map::new();
        if !self.probe.is_empty() {
            if self.probe.get("interval").is_none() {
                self.probe.set("interval", "30s");
            }
            if self.probe.get("timeout").is_none() {
                self.probe.set("timeout", "5s");
            }
            if self.probe.get("healthy").is_none() {
                self.probe.set("healthy", 1_u32);
                self.probe.set("unhealthy", 1_u32);
            }
            health.set("probe", self.probe);
        }
        if self.outlier.get("window").is_some() {
            if self.outlier.get("errors").is_none() {
                self.outlier.set("errors", 1_u32);
            }
            health.set("outlier", self.outlier);
        }
        if !health.is_empty() {
            upstream.more.set("health", health);
        }
        if !self.retry.is_empty() {
            upstream.more.set("retry", self.retry);
        }
        if !self.limits.is_empty() {
            upstream.more.set("limits", self.limits);
        }
        self.proxy
    }
}

fn endpoint(address: String) -> Endpoint {
    Endpoint { address, weight: None, priority: None }
}

fn number_or_text(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| text.into(), Into::into)
}

/// A name for the upstream: its host, with the port where that says more.
fn named(address: &str) -> String {
    if let Some(path) = address.strip_prefix("unix:") {
        let name = path.rsplit('/').next().unwrap_or_default();
        return name.split('.').next().unwrap_or_default().to_owned();
    }
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let is_address =
        host == "localhost" || host.parse::<std::net::Ipv4Addr>().is_ok() || host.starts_with('[');
    let name = if is_address { format!("local-{port}") } else { host.to_owned() };
    name.replace([VARIABLE_BEGIN, VARIABLE_END], "").to_ascii_lowercase()
}
