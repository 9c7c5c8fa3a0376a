//! Services as upstreams, with the annotations about them.

use super::objects::{Backend, Ingress};
use super::settings::{header_map, seconds};
use super::{Cx, flag, is_on};
use crate::config::{Endpoint, Filter, Target, Upstream, name_of};
use crate::shared::units;
use crate::yaml::{Map, Value};

/// What the annotations of an Ingress say of its upstreams.
#[derive(Clone, Default)]
pub(super) struct Settings {
    /// Settings of each upstream.
    pub(super) more: Map,
    pub(super) comment: Vec<String>,
    /// Why routes must be closed.
    pub(super) closed: Vec<String>,
    /// Whether requests go to the address of the Service even if those of its Pods are known.
    pub(super) uses_service: bool,
}

/// Reads the annotations about upstreams.
pub(super) fn read(cx: &mut Cx<'_, '_>, ingress: &mut Ingress<'_>) -> Settings {
    let mut settings = Settings::default();
    let own = &mut ingress.annotations;
    protocol(cx, own, &ingress.namespace, &mut settings);
    if let Some((vhost, piece)) = own.take("upstream-vhost") {
        match vhost.contains('$') {
            true => cx.ledger.refused(piece, "a Host with variables", "rewrite: { host }"),
            false => {
                settings.more.set("host", vhost);
                cx.ledger.same(piece);
            }
        }
    }
    balancer(cx, own, &mut settings.more);
    sticky(cx, own, &mut settings.more);
    let mut times = cx.defaults.timeouts;
    for (at, name) in ["proxy-connect-timeout", "proxy-send-timeout", "proxy-read-timeout"].iter().enumerate()
    {
        if let Some((text, piece)) = own.take(name) {
            seconds(&text, piece, &mut times[at], cx.ledger);
            if at == 1 {
                cx.ledger.changed(
                    piece,
                    "Weir has no limit for sending to an endpoint; the client's `body` counts",
                );
            }
        }
    }
    settings.more.set(
        "timeouts",
        Map::new()
            .with("connect", units::duration(times[0]))
            .with("response", units::duration(times[2]))
            .with("body", units::duration(times[2])),
    );
    retry(cx, own, &mut settings.more);
    settings.uses_service =
        flag(own.take("service-upstream"), cx.ledger).unwrap_or(cx.defaults.service_upstream);
    for key in ["proxy-buffering", "proxy-request-buffering"] {
        if let Some((text, piece)) = own.take(key) {
            match is_on(&text) {
                false => cx.ledger.same(piece),
                true => cx.ledger.changed(piece, "Weir streams; the filter buffer holds bodies"),
            }
        }
    }
    for key in [
        "proxy-buffer-size",
        "proxy-buffers-number",
        "proxy-busy-buffers-size",
        "proxy-max-temp-file-size",
        "client-body-buffer-size",
        "enable-rewrite-log",
        "proxy-http-version",
    ] {
        if let Some((text, piece)) = own.take(key) {
            match (key, text.as_str()) {
                ("proxy-http-version", "1.1") => cx.ledger.same(piece),
                ("proxy-http-version", _) => cx.ledger.changed(piece, "Weir speaks HTTP/1.1"),
                _ => cx.ledger.left_out(piece, "buffers and logs of nginx"),
            }
        }
    }
    settings
}

fn protocol(
    cx: &mut Cx<'_, '_>,
    own: &mut super::objects::Settings<'_>,
    namespace: &str,
    settings: &mut Settings,
) {
    let mut is_tls = false;
    if let Some((text, piece)) = own.take("backend-protocol") {
        cx.ledger.same(piece);
        match text.to_ascii_uppercase().as_str() {
            "HTTP" | "AUTO_HTTP" => {}
            "HTTPS" => is_tls = true,
            "GRPC" => settings.more.set("protocol", "h2c"),
            "GRPCS" => {
                settings.more.set("protocol", "h2");
                is_tls = true;
            }
            other => {
                cx.ledger.refused(
                    piece,
                    format!("{other}: FastCGI needs the folder of the scripts"),
                    "docs/guide/php.md",
                );
                settings.closed.push(format!("backend-protocol {other}"));
            }
        }
    }
    let mut tls = Map::new();
    let verify = own.take("proxy-ssl-verify");
    let verifies = verify.as_ref().is_some_and(|(text, _)| is_on(text));
    verify.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
    if !verifies {
        tls.set("verify", false);
    }
    if let Some((name, piece)) = own.take("proxy-ssl-name") {
        tls.set("server_name", name);
        cx.ledger.same(piece);
    }
    if let Some((secret, piece)) = own.take("proxy-ssl-secret") {
        let (space, name) = secret.split_once('/').unwrap_or((namespace, &secret));
        let file = name_of(&format!("{space}-{name}"));
        let data = cx.objects.secrets.get(&(space.to_owned(), name.to_owned()));
        match data {
            Some(data) => {
                cx.ledger.same(piece);
                for (of, ours, ending) in [
                    ("ca.crt", "ca", "ca.pem"),
                    ("tls.crt", "client_cert", "pem"),
                    ("tls.key", "client_key", "key"),
                ] {
                    let Some((text, piece)) = data.get(of) else { continue };
                    cx.ledger.same(*piece);
                    let path = format!("certs/{file}.{ending}");
                    match ours {
                        "client_key" => _ = cx.config.secret_files.insert(path.clone(), text.clone()),
                        _ => _ = cx.config.files.insert(path.clone(), text.clone()),
                    }
                    tls.set(ours, path);
                }
            }
            None => {
                let path = format!("/etc/weir/certs/{file}");
                tls.set("ca", format!("{path}.ca.pem"));
                tls.set("client_cert", format!("{path}.pem"));
                tls.set("client_key", format!("{path}.key"));
                cx.ledger.changed(piece, format!("the Secret is not in the files: mount it below {path}"));
            }
        }
    }
    for key in ["proxy-ssl-verify-depth", "proxy-ssl-protocols", "proxy-ssl-ciphers", "proxy-ssl-server-name"]
    {
        if let Some((_, piece)) = own.take(key) {
            cx.ledger.changed(piece, "Weir asks for the name (SNI), and has the suites of rustls");
        }
    }
    if is_tls {
        if !verifies {
            settings.comment.push(
                "The controller does not verify certificates of Services unless told to. Remove `verify: false` once \
                 it passes."
                    .to_owned(),
            );
        }
        settings.more.set("tls", tls);
    }
}

fn balancer(cx: &mut Cx<'_, '_>, own: &mut super::objects::Settings<'_>, more: &mut Map) {
    let mut balancer: Value = cx.defaults.balancer.clone().into();
    if let Some((text, piece)) = own.take("load-balance") {
        match text.as_str() {
            "round_robin" | "ewma" => {
                balancer = text.into();
                cx.ledger.same(piece);
            }
            _ => cx.ledger.refused(piece, format!("`{text}` is no balancer"), "balancer"),
        }
    }
    if let Some((text, piece)) = own.take("upstream-hash-by") {
        let name = text.trim_start_matches("${").trim_start_matches('$').trim_end_matches('}');
        let by = match name {
            "remote_addr" | "binary_remote_addr" => Some("address".to_owned()),
            "uri" => Some("path".to_owned()),
            "request_uri" => Some("{path}{query}".to_owned()),
            "host" => Some("{host}".to_owned()),
            name => [("http_", "header:"), ("cookie_", "cookie:"), ("arg_", "query:")]
                .iter()
                .find_map(|(start, kind)| Some((name.strip_prefix(start)?, kind)))
                .map(|(name, kind)| {
                    let name = if *kind == "header:" { name.replace('_', "-") } else { name.to_owned() };
                    format!("{kind}{name}")
                }),
        };
        match by.filter(|by| !by.contains(['$', ' '])) {
            Some(by) => {
                balancer = Map::new().with("hash", Map::new().with("by", by)).into();
                cx.ledger.changed(piece, "a key has another endpoint than before, once");
            }
            None => cx.ledger.refused(piece, format!("`{text}`"), "balancer: { hash: { by } }"),
        }
    }
    for key in ["upstream-hash-by-subset", "upstream-hash-by-subset-size"] {
        if let Some((_, piece)) = own.take(key) {
            cx.ledger.changed(piece, "a key has one endpoint, and `bounded` limits its load");
        }
    }
    more.set("balancer", balancer);
}

fn sticky(cx: &mut Cx<'_, '_>, own: &mut super::objects::Settings<'_>, more: &mut Map) {
    let affinity = own.take("affinity");
    let is_on = affinity.as_ref().is_some_and(|(text, _)| text == "cookie");
    affinity.iter().for_each(|(_, piece)| {
        cx.ledger.changed(
            *piece,
            "the cookie's value is an HMAC by a key of your own (STICKY_KEY in secrets.env: write a random text): \
             clients are assigned anew, once",
        );
    });
    let mut map = Map::new();
    match own.take("session-cookie-name") {
        Some((name, piece)) => {
            map.set("cookie", name);
            cx.ledger.same(piece);
        }
        None => map.set("cookie", "INGRESSCOOKIE"),
    }
    for key in ["session-cookie-expires", "session-cookie-max-age"] {
        if let Some((text, piece)) = own.take(key) {
            let mut ms = 0;
            seconds(&text, piece, &mut ms, cx.ledger);
            if ms > 0 {
                map.set("ttl", units::duration(ms));
            }
        }
    }
    for key in [
        "session-cookie-path",
        "session-cookie-domain",
        "session-cookie-samesite",
        "session-cookie-secure",
        "session-cookie-conditional-samesite-none",
        "session-cookie-change-on-failure",
        "affinity-mode",
        "affinity-canary-behavior",
        "session-cookie-hash",
    ] {
        if let Some((_, piece)) = own.take(key) {
            cx.ledger.changed(
                piece,
                "the cookie is `Path=/; HttpOnly; SameSite=Lax`, and `Secure` over TLS; it is followed \
                 while its endpoint is well",
            );
        }
    }
    if is_on {
        map.set("key", cx.config.missing_secret("sticky_key", "replace-this-by-a-random-text-of-your-own"));
        more.set("sticky", map);
    }
}

fn retry(cx: &mut Cx<'_, '_>, own: &mut super::objects::Settings<'_>, more: &mut Map) {
    let mut when = cx.defaults.next_upstream.clone();
    if let Some((text, piece)) = own.take("proxy-next-upstream") {
        cx.ledger.same(piece);
        when = text;
    }
    let mut tries = cx.defaults.tries;
    if let Some((text, piece)) = own.take("proxy-next-upstream-tries") {
        cx.ledger.same(piece);
        tries = text.parse().unwrap_or(3);
    }
    if let Some((_, piece)) = own.take("proxy-next-upstream-timeout") {
        cx.ledger.changed(piece, "retries end with the timeouts of the upstream and its `budget`");
    }
    let mut on: Vec<Value> = Vec::new();
    let mut methods = None;
    for word in when.split_whitespace() {
        match word {
            "error" => on.extend(["connect".into(), "reset".into()]),
            "timeout" => on.push("timeout".into()),
            "non_idempotent" => methods = Some("all"),
            "off" => tries = 1,
            word => {
                let status = word.strip_prefix("http_").and_then(|status| status.parse::<i64>().ok());
                on.extend(
                    status.filter(|status| *status == 429 || (500..600).contains(status)).map(Value::Number),
                );
            }
        }
    }
    // 0 is without limit.
    let tries = if tries == 0 { 10 } else { tries.min(10) };
    let mut map = Map::new().with("attempts", i64::try_from(tries).unwrap_or(3));
    if !on.is_empty() {
        map.set("on", Value::List(on));
    }
    map.set_some("methods", methods);
    more.set("retry", map);
}

/// The upstream of a backend.
///
/// # Errors
/// Why there is none.
pub(super) fn upstream(
    cx: &mut Cx<'_, '_>,
    namespace: &str,
    backend: &Backend,
    settings: &Settings,
) -> Result<String, String> {
    let key = (namespace.to_owned(), backend.service.clone());
    let service = cx.objects.services.get(&key);
    let by_name = |name: &str| {
        let known = service.and_then(|service| service.ports.iter().find(|(known, _)| known == name));
        known.map(|(_, number)| *number)
    };
    let mut upstream = Upstream { comment: settings.comment.clone(), ..Upstream::default() };
    let port = match backend.port.parse::<u64>() {
        Ok(number) => number,
        Err(_) => by_name(&backend.port).ok_or_else(|| {
            format!(
                "the port `{}` of the Service `{}` is a name: give the Service too",
                backend.port, backend.service
            )
        })?,
    };
    let port_name = service.and_then(|service| service.ports.iter().find(|(_, number)| *number == port));
    let port_name = port_name.map_or(backend.port.as_str(), |(name, _)| name.as_str());
    let endpoints = cx.objects.endpoints.get(&key).filter(|_| !settings.uses_service).and_then(|all| {
        let named = all.iter().filter(|one| one.port_name == port_name);
        let all: Vec<String> = named
            .flat_map(|one| {
                one.addresses.iter().map(|address| match address.contains(':') {
                    true => format!("[{address}]:{}", one.port),
                    false => format!("{address}:{}", one.port),
                })
            })
            .collect();
        (!all.is_empty()).then_some(all)
    });
    let address = match (service.and_then(|service| service.external.as_ref()), endpoints) {
        (Some(name), _) => vec![format!("{name}:{port}")],
        (None, Some(all)) => {
            upstream.comment.push(
                "Addresses of Pods at the time of the import; the DNS name of the Service would follow them."
                    .to_owned(),
            );
            all
        }
        (None, None) => vec![format!("{}.{namespace}.svc.cluster.local:{port}", backend.service)],
    };
    upstream.endpoints =
        address.into_iter().map(|address| Endpoint { address, ..Endpoint::default() }).collect();
    upstream.more = settings.more.clone();
    if let Some((name, _)) = cx.config.upstreams.iter().find(|(_, known)| **known == upstream) {
        return Ok(name.to_owned());
    }
    Ok(cx.config.upstreams.add(&format!("{namespace}-{}-{}", backend.service, backend.port), upstream))
}

/// A split of two backends.
pub(super) fn split(main: &str, canary: &str, weight: u64, total: u64) -> Target {
    let total = total.max(1);
    let weight = weight.min(total);
    let share = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    match weight {
        0 => Target::Upstream(main.to_owned()),
        weight if weight == total || main == canary => Target::Upstream(canary.to_owned()),
        weight => {
            Target::Split(vec![(main.to_owned(), share(total - weight)), (canary.to_owned(), share(weight))])
        }
    }
}

/// Fields of a ConfigMap that an annotation names.
pub(super) fn custom_headers(cx: &mut Cx<'_, '_>, ingress: &mut Ingress<'_>) -> Vec<Filter> {
    let Some((name, piece)) = ingress.annotations.take("custom-headers") else { return Vec::new() };
    let (namespace, own) = name.split_once('/').unwrap_or((&ingress.namespace, &name));
    let found = cx.objects.config_maps.get(&(namespace.to_owned(), own.to_owned()));
    match found {
        Some(data) => {
            cx.ledger.same(piece);
            let set = header_map(data, cx.ledger);
            let headers = crate::shared::filters::Headers { response_set: set, ..Default::default() };
            headers.filter().into_iter().collect()
        }
        None => {
            cx.ledger.refused(piece, format!("the ConfigMap `{name}` is not in the files"), "give it too");
            Vec::new()
        }
    }
}
