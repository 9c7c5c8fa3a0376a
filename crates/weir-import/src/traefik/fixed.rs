//! The static config: entry points, resolvers of certificates, logs, and the rest.

use super::cx::{list, milliseconds, nothing_else};
use super::rule::Syntax;
use crate::config::Config;
use crate::ledger::{Ledger, Piece};
use crate::shared::networks::network;
use crate::shared::tree::{Entry, Fields, Node};
use crate::shared::units;
use crate::yaml::{Map, Value};

/// What the static config says that routers need.
#[derive(Default)]
pub(super) struct Fixed<'t> {
    pub(super) points: Vec<EntryPoint>,
    pub(super) resolvers: Vec<Resolver>,
    pub(super) transport: Option<&'t Node>,
    pub(super) is_v2: bool,
    /// Whether containers without `traefik.enable` are served.
    pub(super) hides_containers: bool,
    /// The rule of containers without one.
    pub(super) default_rule: Option<(String, Piece)>,
    /// Files and folders of the provider `file`.
    pub(super) files: Vec<(String, bool, Piece)>,
}

/// An address of Traefik.
#[derive(Default)]
pub(super) struct EntryPoint {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) piece: Option<Piece>,
    /// Whether its routers have TLS unless they say otherwise, with what `http.tls` says.
    pub(super) tls: Option<Tls>,
    pub(super) middlewares: Vec<(String, Piece)>,
    pub(super) redirect: Option<Redirect>,
    pub(super) is_default: bool,
    /// Settings of the listener.
    pub(super) more: Map,
}

/// `tls` of a router, or `http.tls` of an entry point.
#[derive(Clone, Default)]
pub(super) struct Tls {
    pub(super) resolver: Option<(String, Piece)>,
    pub(super) options: Option<(String, Piece)>,
    pub(super) domains: Vec<String>,
    pub(super) passthrough: bool,
}

/// A redirection of all requests of an entry point.
pub(super) struct Redirect {
    pub(super) to: String,
    pub(super) scheme: String,
    pub(super) is_permanent: bool,
    pub(super) priority: Option<i64>,
    pub(super) piece: Piece,
}

/// A certificatesResolver.
pub(super) struct Resolver {
    pub(super) name: String,
    pub(super) acme: Map,
    pub(super) piece: Piece,
    pub(super) is_used: bool,
}

impl Fixed<'_> {
    pub(super) fn syntax(&self) -> Syntax {
        if self.is_v2 { Syntax::V2 } else { Syntax::V3 }
    }
}

/// Reads a static config.
pub(super) fn read<'t>(root: &'t Node, fixed: &mut Fixed<'t>, config: &mut Config, ledger: &mut Ledger) {
    let mut fields = Fields::in_any_case(root);
    if let Some((node, piece)) = fields.map("entryPoints", ledger) {
        ledger.same(piece);
        for entry in node.as_map().unwrap_or_default() {
            let point = entry_point(entry, config, ledger);
            fixed.points.extend(point);
        }
    }
    if let Some((node, piece)) = fields.map("certificatesResolvers", ledger) {
        ledger.same(piece);
        for entry in node.as_map().unwrap_or_default() {
            resolver(entry, fixed, config, ledger);
        }
    }
    if let Some((node, piece)) = fields.map("serversTransport", ledger) {
        ledger.same(piece);
        fixed.transport = Some(node);
    }
    if let Some(entry) = fields.entry("providers") {
        ledger.same(entry.piece);
        providers(entry, fixed, ledger);
    }
    if let Some((node, piece)) = fields.map("core", ledger) {
        ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        if let Some((syntax, piece)) = fields.text("defaultRuleSyntax", ledger) {
            fixed.is_v2 = syntax == "v2";
            ledger.same(piece);
        }
        nothing_else(fields, "core", ledger);
    }
    if let Some(entry) = fields.entry("accessLog") {
        access_log(entry, config, ledger);
    }
    if let Some(entry) = fields.entry("log") {
        log(entry, config, ledger);
    }
    if let Some(entry) = fields.entry("tracing") {
        tracing(entry, config, ledger);
    }
    for (key, why) in [
        ("api", "Weir has its console and API on the admin listener, 127.0.0.1:9180"),
        ("ping", "/healthz and /readyz of the admin listener"),
        ("global", "Weir looks for no updates and sends nothing home"),
    ] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| ledger.by_itself(piece, why));
        }
    }
    if let Some(entry) = fields.entry("metrics") {
        let is_scraped = entry.node.as_map().unwrap_or_default().iter();
        let others: Vec<&Entry> =
            is_scraped.filter(|entry| !entry.key.eq_ignore_ascii_case("prometheus")).collect();
        entry.each_piece(&mut |piece| {
            ledger.by_itself(piece, "/metrics of the admin listener, with Weir's names and buckets")
        });
        for other in others {
            other.each_piece(&mut |piece| {
                ledger.refused(
                    piece,
                    "Weir is scraped and pushes no metrics",
                    "/metrics of the admin listener",
                )
            });
        }
    }
    for (key, why, nearest) in [
        ("experimental", "plugins are programs for Traefik", "expressions, or the filter ext_proc"),
        ("pilot", "a service that ended", ""),
        ("hostResolver", "Weir does not follow aliases (CNAME) of hosts", "match.hosts"),
        ("spiffe", "Weir takes certificates from files", "upstreams.NAME.tls"),
        ("tcpServersTransport", "Weir has one timeout for connects", "listeners.NAME.tcp.connect"),
        ("ocsp", "Weir staples nothing", ""),
    ] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| ledger.refused(piece, why, nearest));
        }
    }
    nothing_else(fields, "a static config", ledger);
}

fn entry_point(entry: &Entry, config: &mut Config, ledger: &mut Ledger) -> Option<EntryPoint> {
    let mut fields = Fields::in_any_case(&entry.node);
    let mut point = EntryPoint { name: entry.key.to_string(), ..EntryPoint::default() };
    ledger.same(entry.piece);
    point.piece = Some(entry.piece);
    if let Some((address, piece)) = fields.text("address", ledger) {
        let (plain, protocol) = address.split_once('/').unwrap_or((&address, "tcp"));
        if protocol == "udp" {
            ledger.refused(piece, "Weir does not pass datagrams on", "keep Traefik for this port");
            entry.node.each_piece(&mut |piece| {
                if !ledger.is_judged(piece) {
                    ledger.refused(piece, "of an entry point for datagrams", "keep Traefik for this port");
                }
            });
            return None;
        }
        point.address = match plain.strip_prefix(':') {
            Some(port) => {
                ledger.changed(piece, format!("IPv4 only; `[::]:{port}` is for both IPv6 and IPv4"));
                format!("0.0.0.0:{port}")
            }
            None => {
                ledger.same(piece);
                plain.to_owned()
            }
        };
    }
    if let Some((flag, piece)) = fields.flag("asDefault", ledger) {
        point.is_default = flag;
        ledger.same(piece);
    }
    let mut timeouts = Map::new();
    if let Some((node, piece)) = fields.map("transport", ledger) {
        ledger.same(piece);
        transport(node, &mut timeouts, config, ledger);
    }
    if !timeouts.is_empty() {
        point.more.set("timeouts", timeouts);
    }
    for (key, kind) in [("forwardedHeaders", "X-Forwarded-*"), ("proxyProtocol", "the PROXY header")] {
        let Some((node, piece)) = fields.map(key, ledger) else { continue };
        ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        if let Some((networks, piece)) = list(&mut fields, "trustedIPs", ledger) {
            trust(&networks, piece, config, ledger);
        }
        if let Some((insecure, piece)) = fields.flag("insecure", ledger) {
            match insecure {
                false => ledger.same(piece),
                true => ledger.refused(
                    piece,
                    format!("any client could forge {kind}"),
                    "trusted_proxies: the networks of your load balancers",
                ),
            }
        }
        for key in ["connection", "notAppendXForwardedFor"] {
            if let Some(entry) = fields.entry(key) {
                ledger.changed(entry.piece, "Connection never removes a forwarding field in Weir");
            }
        }
        nothing_else(fields, key, ledger);
        if key == "proxyProtocol" && config.more.get("trusted_proxies").is_some() {
            point.more.set("proxy_protocol", true);
            ledger
                .changed(piece, "every connection must begin with the header; in Traefik it may be missing");
        }
    }
    if let Some((node, piece)) = fields.map("http", ledger) {
        ledger.same(piece);
        http(node, &mut point, config, ledger);
    }
    if let Some((node, piece)) = fields.map("http2", ledger) {
        ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        if let Some((streams, piece)) = fields.number("maxConcurrentStreams", ledger) {
            let streams = i64::try_from(streams).unwrap_or(128);
            config.more.map_mut("limits").set("h2", Map::new().with("streams", streams));
            ledger.changed(piece, "for all listeners together");
        }
        nothing_else(fields, "http2", ledger);
    }
    if let Some(entry) = fields.entry("http3") {
        entry.each_piece(&mut |piece| {
            ledger.refused(piece, "Weir does not speak HTTP/3 yet", "clients use HTTP/2 meanwhile");
        });
    }
    for key in ["reusePort", "observability", "allowACMEByPass"] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| match key {
                "reusePort" => ledger.by_itself(piece, "each core has its own socket"),
                "observability" => {
                    ledger.changed(piece, "logs and traces are for all listeners: access_log.when")
                }
                _ => ledger.by_itself(piece, "challenges are answered before routes"),
            });
        }
    }
    nothing_else(fields, "an entry point", ledger);
    Some(point)
}

fn trust(networks: &[String], piece: Piece, config: &mut Config, ledger: &mut Ledger) {
    let mut known = match config.more.get("trusted_proxies") {
        Some(Value::List(known)) => known.clone(),
        _ => Vec::new(),
    };
    for text in networks {
        match network(text) {
            Ok(network) if known.contains(&network.as_str().into()) => {}
            Ok(network) => known.push(network.into()),
            Err(why) => ledger.refused(piece, why, "trusted_proxies: [ 10.0.0.0/8 ]"),
        }
    }
    config.more.set("trusted_proxies", Value::List(known));
    ledger.changed(piece, "trusted on all listeners");
}

fn transport(node: &Node, timeouts: &mut Map, config: &mut Config, ledger: &mut Ledger) {
    let mut fields = Fields::in_any_case(node);
    if let Some((node, piece)) = fields.map("respondingTimeouts", ledger) {
        ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        if let Some((ms, piece)) = milliseconds(&mut fields, "readTimeout", ledger) {
            timeouts.set("body", units::duration(ms));
            ledger.changed(piece, "the longest pause of a body; Traefik limits the whole request");
        }
        if let Some((ms, piece)) = milliseconds(&mut fields, "idleTimeout", ledger) {
            timeouts.set("keepalive", units::duration(ms));
            ledger.same(piece);
        }
        if let Some((ms, piece)) = milliseconds(&mut fields, "writeTimeout", ledger) {
            match ms {
                0 => ledger.by_itself(piece, "no limit for an answer that goes on"),
                _ => ledger.changed(piece, "a client that reads nothing for 60 s is disconnected"),
            }
        }
        nothing_else(fields, "respondingTimeouts", ledger);
    }
    if let Some((node, piece)) = fields.map("lifeCycle", ledger) {
        ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        for (key, ours) in [("requestAcceptGraceTimeout", "delay"), ("graceTimeOut", "drain")] {
            if let Some((ms, piece)) = milliseconds(&mut fields, key, ledger) {
                config.more.map_mut("shutdown").set(ours, units::duration(ms));
                ledger.changed(piece, "for all listeners together");
            }
        }
        nothing_else(fields, "lifeCycle", ledger);
    }
    for key in ["keepAliveMaxRequests", "keepAliveMaxTime"] {
        if let Some(entry) = fields.entry(key) {
            ledger.left_out(entry.piece, "Weir does not end connections of clients by number or age");
        }
    }
    nothing_else(fields, "transport", ledger);
}

fn http(node: &Node, point: &mut EntryPoint, config: &mut Config, ledger: &mut Ledger) {
    let mut fields = Fields::in_any_case(node);
    if let Some((names, piece)) = list(&mut fields, "middlewares", ledger) {
        ledger.same(piece);
        point.middlewares = names.into_iter().map(|name| (name, piece)).collect();
    }
    if let Some(entry) = fields.entry("tls") {
        point.tls = tls(entry, ledger);
    }
    if let Some((node, piece)) = fields.map("redirections", ledger) {
        ledger.same(piece);
        let mut outer = Fields::in_any_case(node);
        if let Some((node, piece)) = outer.map("entryPoint", ledger) {
            ledger.same(piece);
            let mut fields = Fields::in_any_case(node);
            let to = fields.text("to", ledger);
            let scheme = fields.text("scheme", ledger);
            let permanent = fields.flag("permanent", ledger);
            let priority = fields.entry("priority");
            let pieces = [&to, &scheme].into_iter().flatten().map(|(_, piece)| *piece);
            pieces.chain(permanent.map(|(_, piece)| piece)).for_each(|piece| ledger.same(piece));
            priority.iter().for_each(|entry| ledger.same(entry.piece));
            nothing_else(fields, "a redirection", ledger);
            if let Some((to, piece)) = to {
                point.redirect = Some(Redirect {
                    to,
                    scheme: scheme.map_or_else(|| "https".to_owned(), |(scheme, _)| scheme),
                    is_permanent: permanent.is_none_or(|(flag, _)| flag),
                    priority: priority
                        .and_then(|entry| entry.node.as_text()?.parse().ok())
                        .filter(|n| *n != 0),
                    piece,
                });
            }
        }
        nothing_else(outer, "redirections", ledger);
    }
    if let Some((bytes, piece)) = fields.number("maxHeaderBytes", ledger) {
        let bytes = bytes.clamp(1 << 10, 1 << 20);
        config.more.map_mut("limits").set("header_bytes", units::size(bytes));
        ledger.changed(piece, "for all listeners together; from 1 KiB to 1 MiB");
    }
    for key in ["encodeQuerySemicolons", "sanitizePath", "encodedCharacters"] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| {
                ledger.changed(piece, "Weir's rules for paths are stricter: docs/reference/routing.md")
            });
        }
    }
    nothing_else(fields, "http of an entry point", ledger);
}

/// `tls` of a router or an entry point. None if it is turned off.
pub(super) fn tls(entry: &Entry, ledger: &mut Ledger) -> Option<Tls> {
    if entry.node.as_bool() == Some(false) {
        ledger.same(entry.piece);
        return None;
    }
    ledger.same(entry.piece);
    let mut fields = Fields::in_any_case(&entry.node);
    let mut tls = Tls { resolver: fields.text("certResolver", ledger), ..Tls::default() };
    tls.resolver.iter().for_each(|(_, piece)| ledger.same(*piece));
    tls.options = fields.text("options", ledger);
    if let Some((domains, piece)) = fields.list("domains", ledger) {
        ledger.same(piece);
        for domain in domains {
            let mut fields = Fields::in_any_case(domain);
            let main = fields.text("main", ledger);
            let sans = list(&mut fields, "sans", ledger);
            nothing_else(fields, "domains", ledger);
            if let Some((main, piece)) = main {
                ledger.same(piece);
                tls.domains.push(main);
            }
            if let Some((sans, piece)) = sans {
                ledger.changed(piece, "each name has a certificate of its own");
                tls.domains.extend(sans);
            }
        }
    }
    if let Some((flag, piece)) = fields.flag("passthrough", ledger) {
        tls.passthrough = flag;
        ledger.same(piece);
    }
    nothing_else(fields, "tls", ledger);
    Some(tls)
}

fn resolver(entry: &Entry, fixed: &mut Fixed<'_>, config: &mut Config, ledger: &mut Ledger) {
    let mut outer = Fields::in_any_case(&entry.node);
    ledger.same(entry.piece);
    let node = outer.map("acme", ledger);
    if let Some(other) = outer.entry("tailscale") {
        other.each_piece(&mut |piece| {
            ledger.refused(piece, "Weir does not ask Tailscale", "tls.certificates")
        });
    }
    nothing_else(outer, "a certificatesResolver", ledger);
    let Some((node, piece)) = node else { return };
    ledger.same(piece);
    let mut fields = Fields::in_any_case(node);
    let mut acme = Map::new();
    for (key, ours) in [("email", "email"), ("caServer", "directory"), ("profile", "profile")] {
        if let Some((text, piece)) = fields.text(key, ledger) {
            acme.set(ours, text);
            ledger.same(piece);
        }
    }
    if let Some((files, piece)) = list(&mut fields, "caCertificates", ledger) {
        match &*files {
            [one] => {
                acme.set("ca", one.clone());
                ledger.same(piece);
            }
            _ => ledger.refused(piece, "`ca` names one file", "put all authorities into one PEM file"),
        }
    }
    if let Some((_, piece)) = fields.text("storage", ledger) {
        ledger.changed(
            piece,
            "a folder of Weir's own, /var/lib/weir/acme: certificates are ordered anew, so mind the authority's limits",
        );
    }
    if let Some(entry) = fields.entry("keyType") {
        ledger.changed(entry.piece, "keys are P-256");
    }
    if let Some(entry) = fields.entry("tlsChallenge") {
        entry.each_piece(&mut |piece| ledger.same(piece));
    }
    if let Some(entry) = fields.entry("httpChallenge") {
        acme.set("challenge", "http-01");
        entry.each_piece(&mut |piece| {
            ledger.by_itself(piece, "answered on every listener without TLS; port 80 must reach one")
        });
    }
    if let Some(entry) = fields.entry("dnsChallenge") {
        let provider = entry.node.get("provider").and_then(Node::as_text).unwrap_or_default();
        acme.set("challenge", "dns-01");
        let program = format!("/etc/weir/dns-{}", crate::config::name_of(&provider));
        acme.comment("A program of yours that writes the TXT record: docs/guide/tls.md.");
        acme.set("dns", Map::new().with("exec", vec![program.clone()]));
        entry.each_piece(&mut |piece| {
            ledger.refused(
                piece,
                format!("Weir has no client for the DNS of `{provider}`; it runs a program of yours"),
                format!("acme: {{ dns: {{ exec: [{program}] }} }}"),
            );
        });
    }
    if let Some((node, piece)) = fields.map("eab", ledger) {
        ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        let mut map = Map::new();
        if let Some((kid, piece)) = fields.text("kid", ledger) {
            map.set("key_id", kid);
            ledger.same(piece);
        }
        if let Some((secret, piece)) = fields.text("hmacEncoded", ledger) {
            ledger.conceal(piece);
            map.set("secret", config.secret("acme_eab", &secret));
            ledger.same(piece);
        }
        nothing_else(fields, "eab", ledger);
        acme.set("external_account", map);
    }
    for key in [
        "preferredChain",
        "certificatesDuration",
        "clientTimeout",
        "clientResponseHeaderTimeout",
        "disableCommonName",
        "emailAddresses",
        "certificateTimeout",
    ] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| {
                ledger.left_out(piece, "Weir orders by what the authority says itself")
            });
        }
    }
    nothing_else(fields, "acme", ledger);
    let name = entry.key.to_string();
    fixed.resolvers.push(Resolver { name, acme, piece: entry.piece, is_used: false });
}

fn providers(entry: &Entry, fixed: &mut Fixed<'_>, ledger: &mut Ledger) {
    let mut fields = Fields::in_any_case(&entry.node);
    if let Some((node, piece)) = fields.map("file", ledger) {
        ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        for (key, is_folder) in [("filename", false), ("directory", true)] {
            if let Some((path, piece)) = fields.text(key, ledger) {
                fixed.files.push((path, is_folder, piece));
            }
        }
        for key in ["watch", "debugLogGeneratedTemplate"] {
            if let Some(entry) = fields.entry(key) {
                ledger.by_itself(entry.piece, "Weir watches its files (`watch`)");
            }
        }
        nothing_else(fields, "the provider file", ledger);
    }
    for key in ["docker", "swarm"] {
        let Some(entry) = fields.entry(key) else { continue };
        ledger.same(entry.piece);
        let mut fields = Fields::in_any_case(&entry.node);
        if let Some((flag, piece)) = fields.flag("exposedByDefault", ledger) {
            fixed.hides_containers = !flag;
            ledger.same(piece);
        }
        fixed.default_rule = fields.text("defaultRule", ledger);
        if let Some((_, piece)) = &fixed.default_rule {
            ledger.same(*piece);
        }
        for entry in fields.rest() {
            entry.each_piece(&mut |piece| {
                ledger.left_out(
                    piece,
                    "Weir does not follow containers by itself, but by upstreams.NAME.discover.docker or DNS",
                );
            });
        }
    }
    if let Some(entry) = fields.entry("providersThrottleDuration") {
        ledger.left_out(entry.piece, "Weir reloads half a second after the last change");
    }
    for entry in fields.rest() {
        let why = format!("what the provider {} says is in no file here", entry.key);
        entry.each_piece(&mut |piece| {
            ledger.refused(piece, why.clone(), "Ingress of Kubernetes: `weir import ingress-nginx`");
        });
    }
}

fn access_log(entry: &Entry, config: &mut Config, ledger: &mut Ledger) {
    ledger.same(entry.piece);
    if entry.node.as_bool() == Some(false) {
        return;
    }
    let mut fields = Fields::in_any_case(&entry.node);
    let mut map = Map::new();
    match fields.text("filePath", ledger) {
        Some((path, piece)) => {
            map.set("output", path);
            ledger.same(piece);
        }
        None => map.set("output", "stdout"),
    }
    match fields.text("format", ledger) {
        Some((format, piece)) if format == "json" => {
            map.set("format", "json");
            ledger.changed(piece, "the fields have Weir's names: docs/reference/access-log.md");
        }
        Some((_, piece)) => {
            map.set("format", "combined");
            ledger.changed(piece, "without the router, the server and the time that Traefik adds to a line");
        }
        None => {
            map.set("format", "combined");
            ledger.changed(
                entry.piece,
                "lines in the combined format, without the router, the server and the time that Traefik adds",
            );
        }
    }
    if let Some(entry) = fields.entry("bufferingSize") {
        ledger.by_itself(entry.piece, "a thread of its own writes");
    }
    if let Some((node, piece)) = fields.map("filters", ledger) {
        ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        let mut when: Vec<String> = Vec::new();
        if let Some((codes, piece)) = list(&mut fields, "statusCodes", ledger) {
            ledger.same(piece);
            for code in codes {
                let (low, high) = code.split_once('-').unwrap_or((&code, &code));
                match (low.trim().parse::<u16>(), high.trim().parse::<u16>()) {
                    (Ok(low), Ok(high)) if low == high => when.push(format!("status == {low}")),
                    (Ok(low), Ok(high)) => when.push(format!("(status >= {low} and status <= {high})")),
                    _ => ledger.refused(piece, format!("`{code}` is no status"), "access_log.when"),
                }
            }
        }
        if let Some((ms, piece)) = milliseconds(&mut fields, "minDuration", ledger) {
            when.push(format!("total >= {}", units::duration(ms)));
            ledger.same(piece);
        }
        if let Some((true, piece)) =
            fields.flag("retryAttempts", ledger).inspect(|(_, piece)| ledger.same(*piece))
        {
            when.push("attempts > 1".to_owned());
            ledger.same(piece);
        }
        nothing_else(fields, "filters of the access log", ledger);
        if !when.is_empty() {
            map.set("when", when.join(" or "));
        }
    }
    if let Some(entry) = fields.entry("fields") {
        entry.each_piece(&mut |piece| {
            ledger.changed(
                piece,
                "Weir logs its own fields; fields of requests by `fields`, hidden by `redact`",
            )
        });
    }
    for key in ["addInternals", "timezone"] {
        if let Some(entry) = fields.entry(key) {
            ledger.left_out(entry.piece, "times are UTC, and Weir has no routes of its own");
        }
    }
    if let Some(entry) = fields.entry("otlp") {
        entry.each_piece(&mut |piece| ledger.refused(piece, "by hand", "access_log.otlp"));
    }
    nothing_else(fields, "the access log", ledger);
    config.more.set("access_log", map);
}

fn log(entry: &Entry, config: &mut Config, ledger: &mut Ledger) {
    ledger.same(entry.piece);
    let mut fields = Fields::in_any_case(&entry.node);
    let mut map = Map::new();
    if let Some((level, piece)) = fields.text("level", ledger) {
        let level = level.to_ascii_lowercase();
        let ours = match level.as_str() {
            "trace" | "debug" => "debug",
            "info" => "info",
            "warn" => "warn",
            _ => "error",
        };
        match ours == level {
            true => ledger.same(piece),
            false => ledger.changed(piece, format!("written as {ours}")),
        }
        map.set("level", ours);
    }
    if let Some((format, piece)) = fields.text("format", ledger) {
        ledger.same(piece);
        if format == "json" {
            map.set("format", "json");
        }
    }
    if let Some((path, piece)) = fields.text("filePath", ledger) {
        map.set("output", path);
        ledger.same(piece);
    }
    for key in ["noColor", "maxSize", "maxAge", "maxBackups", "compress"] {
        if let Some(entry) = fields.entry(key) {
            ledger.left_out(entry.piece, "Weir reopens its log at SIGUSR1; logrotate rotates it");
        }
    }
    nothing_else(fields, "log", ledger);
    if !map.is_empty() {
        config.more.set("log", map);
    }
}

fn tracing(entry: &Entry, config: &mut Config, ledger: &mut Ledger) {
    ledger.same(entry.piece);
    let mut fields = Fields::in_any_case(&entry.node);
    let mut map = Map::new();
    if let Some((node, piece)) = fields.map("otlp", ledger) {
        ledger.same(piece);
        let mut otlp = Fields::in_any_case(node);
        for protocol in ["http", "grpc"] {
            let Some((node, piece)) = otlp.map(protocol, ledger) else { continue };
            ledger.same(piece);
            let mut fields = Fields::in_any_case(node);
            if let Some((url, piece)) = fields.text("endpoint", ledger) {
                let base = url.trim_end_matches('/').trim_end_matches("/v1/traces");
                let base = if base.contains("://") { base.to_owned() } else { format!("http://{base}") };
                map.set("otlp", base);
                map.set("protocol", protocol);
                ledger.changed(piece, "spans have Weir's names and attributes");
            }
            if let Some((true, piece)) = fields.flag("insecure", ledger).inspect(|(_, p)| ledger.same(*p)) {
                ledger.same(piece);
            }
            nothing_else(fields, "tracing", ledger);
        }
        nothing_else(otlp, "tracing", ledger);
    }
    if let Some((name, piece)) = fields.text("serviceName", ledger) {
        map.set("service", name);
        ledger.same(piece);
    }
    if let Some((rate, piece)) = fields.text("sampleRate", ledger) {
        match rate.parse::<f64>() {
            Ok(rate) if (0.0..=1.0).contains(&rate) => {
                map.set("share", format!("{}%", (rate * 10_000.0).round() / 100.0));
                ledger.same(piece);
            }
            _ => ledger.refused(piece, format!("`{rate}` is no share"), "tracing.share"),
        }
    }
    for key in ["resourceAttributes", "globalAttributes"] {
        let Some((node, piece)) = fields.map(key, ledger) else { continue };
        ledger.same(piece);
        let mut resource = Map::new();
        for entry in node.as_map().unwrap_or_default() {
            resource.set(&*entry.key, entry.node.as_text().unwrap_or_default());
            ledger.same(entry.piece);
        }
        map.set("resource", resource);
    }
    for key in ["addInternals", "capturedRequestHeaders", "capturedResponseHeaders", "safeQueryParams"] {
        if let Some(entry) = fields.entry(key) {
            ledger.left_out(entry.piece, "spans have Weir's attributes");
        }
    }
    for entry in fields.rest() {
        entry.each_piece(&mut |piece| {
            ledger.refused(
                piece,
                "Weir sends spans by OTLP only",
                "tracing: { otlp: \"http://collector:4318\" }",
            )
        });
    }
    if map.get("otlp").is_some() {
        config.more.set("tracing", map);
    } else {
        ledger.changed(entry.piece, "no collector is named, so Weir sends no spans");
    }
}
