//! Annotations that say who may pass.

use super::objects::Ingress;
use super::settings::networks;
use super::{Cx, flag, parts};
use crate::config::{Endpoint, Filter, Upstream, name_of};
use crate::ledger::Verdict;
use crate::shared::filters::{self, closed};
use crate::shared::template::Template;
use crate::yaml::{Map, Value};

/// What may be said of a refused annotation, and whether the route stays closed.
const REFUSED: &[(&str, &str, &str, bool)] = &[
    ("auth-snippet", "directives of nginx", "forward_auth", true),
    ("auth-tls-match-cn", "a pattern for the subject", "acl: { is: 'client.cert.subject.matches(…)' }", true),
    ("modsecurity-snippet", "rules of ModSecurity", "the filter ext_proc", true),
    ("enable-modsecurity", "a firewall for applications", "the filter ext_proc", true),
    ("enable-owasp-core-rules", "a firewall for applications", "the filter ext_proc", true),
    ("modsecurity-transaction-id", "a firewall for applications", "the filter ext_proc", false),
    ("enable-global-auth", "", "forward_auth", false),
];

/// The filters that decide who may pass, in the order of nginx.
pub(super) fn read(cx: &mut Cx<'_, '_>, ingress: &mut Ingress<'_>) -> Vec<Filter> {
    let mut out = Vec::new();
    let satisfy = ingress.annotations.take("satisfy");
    satisfy.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
    let mut allow = cx.defaults.allow.clone();
    for key in ["whitelist-source-range", "allowlist-source-range"] {
        if let Some((text, piece)) = ingress.annotations.take(key) {
            allow = networks(&text, piece, cx.ledger);
            if allow.is_empty() {
                out.push(closed("the list of addresses cannot be read"));
            }
        }
    }
    let mut deny = Vec::new();
    if let Some((text, piece)) = ingress.annotations.take("denylist-source-range") {
        deny = networks(&text, piece, cx.ledger);
        if cx.ledger.verdict(piece) == Some(Verdict::Refused) {
            out.push(closed("a part of the list of refused addresses cannot be read"));
        }
    }

    if !allow.is_empty() || !deny.is_empty() {
        out.push(filters::ip(&allow, &deny));
    }
    let addresses = out.len();
    out.extend(basic(cx, ingress));
    if let Some((_, piece)) = satisfy.filter(|(text, _)| text == "any") {
        either(cx, &mut out, addresses, ingress.annotations.peek("auth-url").is_some(), piece);
    }
    out.extend(forward(cx, ingress));
    for (key, what, nearest, closes) in REFUSED {
        let Some((text, piece)) = ingress.annotations.take(key) else { continue };
        if text == "false" || *key == "enable-global-auth" {
            cx.ledger.same(piece);
            continue;
        }
        cx.ledger.refused(piece, format!("{what}: by hand"), *nearest);
        if *closes {
            out.push(closed(&format!("the annotation {key}")));
        }
    }
    out
}

fn basic(cx: &mut Cx<'_, '_>, ingress: &mut Ingress<'_>) -> Vec<Filter> {
    let own = &mut ingress.annotations;
    let kind = own.take("auth-type");
    let secret = own.take("auth-secret");
    let is_map = own.take("auth-secret-type").is_some_and(|(text, piece)| {
        cx.ledger.same(piece);
        text == "auth-map"
    });
    let realm = own.take("auth-realm");
    realm.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
    let Some((kind, piece)) = kind else {
        secret.iter().for_each(|(_, piece)| cx.ledger.left_out(*piece, "without auth-type it is not used"));
        return Vec::new();
    };
    if kind != "basic" {
        cx.ledger.refused(piece, format!("{kind} authentication"), "basic_auth over TLS");
        secret.iter().for_each(|(_, piece)| cx.ledger.refused(*piece, "of a refused auth-type", ""));
        return vec![closed(&format!("auth-type {kind}"))];
    }
    cx.ledger.changed(piece, "users are consumers, in consumers.yaml");
    let Some((name, piece)) = secret else { return vec![closed("auth-type without auth-secret")] };
    let (namespace, own) = name.split_once('/').unwrap_or((&ingress.namespace, &name));
    let data = cx.objects.secrets.get(&(namespace.to_owned(), own.to_owned()));
    let Some(data) = data.filter(|data| is_map || data.contains_key("auth")) else {
        cx.ledger.refused(
            piece,
            format!("the Secret `{name}` with the users is not in the files, so nobody may pass"),
            "give it too: kubectl get secret -o yaml",
        );
        return vec![closed(&format!("the users of the Secret {name} are not known"))];
    };
    let group = cx.has_groups.then(|| name_of(&name));
    let mut lines: Vec<(String, crate::ledger::Piece)> = Vec::new();
    match is_map {
        true => {
            let mut all: Vec<_> = data.iter().collect();
            all.sort();
            lines.extend(
                all.into_iter().map(|(user, (hash, piece))| (format!("{user}:{}", hash.trim()), *piece)),
            );
        }
        false => {
            let file = data.get("auth").into_iter();
            lines.extend(file.flat_map(|(text, piece)| {
                let lines =
                    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
                lines.map(|line| (line.to_owned(), *piece)).collect::<Vec<_>>()
            }));
        }
    }
    for (line, piece) in lines {
        cx.users.add(&[line], group.as_deref(), piece, cx.config, cx.ledger);
    }
    cx.ledger.same(piece);
    let mut map = Map::new();
    map.set_some("realm", realm.map(|(realm, _)| realm));
    map.set("hide", false);
    let mut out = vec![Filter::new("basic_auth", map)];
    if let Some(group) = group {
        out.push(Filter::new("acl", Map::new().with("allow", vec![format!("group:{group}")])));
    }
    out
}

fn forward(cx: &mut Cx<'_, '_>, ingress: &mut Ingress<'_>) -> Vec<Filter> {
    let own = &mut ingress.annotations;
    let mut judge = |key: &str, why: &'static str| {
        if let Some((_, piece)) = own.take(key) {
            cx.ledger.changed(piece, why);
        }
    };
    for key in
        ["auth-keepalive", "auth-keepalive-requests", "auth-keepalive-timeout", "auth-keepalive-share-vars"]
    {
        judge(key, "connections are kept for 60 s");
    }
    judge("auth-always-set-cookie", "a cookie of the service is added to every answer");
    judge("auth-proxy-set-headers", "not taken: `forward_auth.set` sets fields of the question");
    judge("auth-cache-key", "Weir's key is what the service sees: forward_auth.cache");
    judge("auth-cache-duration", "Weir asks each time; forward_auth.cache remembers");
    let mut text = |key: &str| {
        let found = own.take(key);
        found.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
        found.map(|(text, _)| text)
    };
    let method = text("auth-method");
    let redirected = text("auth-request-redirect");
    let parameter = text("auth-signin-redirect-param").unwrap_or_else(|| "rd".to_owned());
    let headers = own.take("auth-response-headers");
    let signin = own.take("auth-signin");
    let Some((url, piece)) = own.take("auth-url") else {
        for (_, piece) in headers.iter().chain(&signin) {
            cx.ledger.left_out(*piece, "without auth-url it is not used");
        }
        return Vec::new();
    };
    let plain = url.replace("$http_host", "$host");
    let parsed = plain.split_once("://").and_then(|(scheme, rest)| {
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let port = if scheme == "https" { 443 } else { 80 };
        let address = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
        (!authority.is_empty()).then(|| (scheme.to_owned(), address, path.to_owned()))
    });
    let Some((scheme, mut address, path)) = parsed.filter(|(.., path)| !path.contains('$')) else {
        cx.ledger.refused(
            piece,
            format!("`{url}` has variables in its path"),
            "forward_auth: { upstream, path }",
        );
        return vec![closed("auth-url cannot be read")];
    };
    let mut upstream = Upstream::default();
    if address.contains("$host") {
        // The host itself: its own route to the service answers, on this machine.
        let host = ingress.rules.first().map(|rule| rule.host.clone()).unwrap_or_default();
        address = address.replace("$host", &host);
    }
    if address.contains('$') || address.starts_with(':') {
        cx.ledger.refused(piece, format!("`{url}` has variables"), "forward_auth: { upstream, path }");
        return vec![closed("auth-url cannot be read")];
    }
    let host = address.split(':').next().unwrap_or_default().to_owned();
    upstream.endpoints.push(Endpoint { address, ..Endpoint::default() });
    upstream.more.set("host", "endpoint");
    if scheme == "https" {
        upstream.more.set("tls", Map::new());
    }
    let known =
        cx.config.upstreams.iter().find(|(_, known)| **known == upstream).map(|(name, _)| name.to_owned());
    let name = known.unwrap_or_else(|| cx.config.upstreams.add(&format!("auth-{host}"), upstream));
    cx.ledger.same(piece);
    let mut map = Map::new().with("upstream", name);
    if !path.is_empty() && path != "/" {
        map.set("path", path);
    }
    map.set_some("method", method.filter(|method| method != "GET"));
    map.set("copy_request", "all");
    // The fields that the controller tells the service.
    let asked = format!("{{= {PATH_AND_QUERY} }}");
    let redirected = match redirected.as_deref() {
        None | Some("$request_uri") => asked,
        Some(text) if !text.contains('$') => Template::text(text).to_setting(),
        Some(_) => {
            cx.ledger.note(
                "auth-request-redirect has variables: X-Auth-Request-Redirect is what the client asked for",
            );
            asked
        }
    };
    let set = Map::new()
        .with("x-original-url", "{= request.url }")
        .with("x-original-method", "{method}")
        .with("x-real-ip", "{client}")
        .with("x-sent-from", "nginx-ingress-controller")
        .with("x-auth-request-redirect", redirected);
    map.set("set", set);
    map.set("answers", "nginx");
    if let Some((names, piece)) = headers {
        cx.ledger.same(piece);
        let names: Vec<String> = parts(&names).iter().map(|name| name.to_ascii_lowercase()).collect();
        map.set("copy", names);
    }
    map.set("copy_response", vec!["set-cookie"]);
    let mut out = Vec::new();
    if let Some((url, piece)) = signin {
        match sign_in(&url, &parameter) {
            Some(filter) => {
                out.push(filter);
                cx.ledger.same(piece);
            }
            None => {
                let why = format!("`{url}` has variables that Weir does not");
                cx.ledger.refused(
                    piece,
                    why,
                    "errors: { 401: { redirect: \"https://login.example/?rd={= request.url }\" } }",
                );
            }
        }
    }
    out.push(Filter::new("forward_auth", map));
    out
}

/// What the client asked for, without scheme and host.
const PATH_AND_QUERY: &str = r#"request.query == "" ? request.path : request.path + "?" + request.query"#;

/// Schemes and hosts of URLs of the controller's own sites.
const SCHEMES: &[&str] = &["https://", "http://", "$scheme://", "$pass_access_scheme://"];
const HOSTS: &[&str] = &["$http_host", "$host", "$best_http_host"];

/// A redirect to the sign-in for clients that the service does not know. None if its URL cannot be translated.
fn sign_in(url: &str, parameter: &str) -> Option<Filter> {
    // The host of the request is the same host: its own path says so, and no client can choose another.
    let own = SCHEMES.iter().find_map(|scheme| {
        let rest = url.strip_prefix(scheme)?;
        HOSTS.iter().find_map(|host| rest.strip_prefix(host))
    });
    let url = match own {
        Some("") => "/",
        Some(path) if path.starts_with('/') => path,
        Some(_) => return None,
        None => url,
    };
    let (own_asked, whole) = ("\u{1}", "\u{2}");
    let mut marked = url.replace("$escaped_request_uri", own_asked).replace("$request_uri", own_asked);
    for scheme in SCHEMES {
        for host in HOSTS {
            marked = marked.replace(&format!("{scheme}{host}{own_asked}"), whole);
        }
    }
    if marked.contains('$') {
        return None;
    }
    let has_parameter =
        marked.contains(&format!("?{parameter}=")) || marked.contains(&format!("&{parameter}="));
    let marked = match (has_parameter, marked.contains('?')) {
        (true, _) => marked,
        (false, true) => format!("{marked}&{parameter}={whole}"),
        (false, false) => format!("{marked}?{parameter}={whole}"),
    };
    let target = Template::text(&marked)
        .to_setting()
        .replace(own_asked, &format!("{{= {PATH_AND_QUERY} }}"))
        .replace(whole, "{= request.url }");
    Some(Filter::new("errors", Map::new().with("401", Map::new().with("redirect", target))))
}

/// `satisfy: any`: an address that is allowed, or a password.
fn either(cx: &mut Cx<'_, '_>, out: &mut Vec<Filter>, at: usize, asks: bool, piece: crate::ledger::Piece) {
    let only_allows = |filter: &Filter| match &filter.settings {
        Value::Map(map) => filter.name == "ip" && map.len() == 1 && map.get("allow").is_some(),
        _ => false,
    };
    match (&out[..at.min(out.len())], &out[at.min(out.len())..]) {
        // Without one of the two there is nothing to choose from.
        ([], _) | (_, []) if !asks => {}
        ([ip], [basic]) if !asks && only_allows(ip) && basic.name == "basic_auth" => {
            let members = vec![basic.to_value(), ip.to_value()];
            *out = vec![Filter::new("any", Value::List(members))];
        }
        _ => cx.ledger.refused(
            piece,
            "an address or a password is not translated here, so both are required",
            "any: [ { basic_auth: {} }, { ip: { allow: […] } } ]",
        ),
    }
}

/// Certificates of clients: Weir asks for them on the whole listener. nginx asks for them on all paths of a host.
pub(super) fn certificate(cx: &mut Cx<'_, '_>, ingress: &mut Ingress<'_>) -> Vec<Filter> {
    let own = &mut ingress.annotations;
    let secret = own.take("auth-tls-secret");
    let mode = own.take("auth-tls-verify-client");
    for key in ["auth-tls-verify-depth", "auth-tls-error-page"] {
        if let Some((_, piece)) = own.take(key) {
            cx.ledger.changed(
                piece,
                "a client without a good certificate is refused in the handshake, or with 401",
            );
        }
    }
    let pass = own.take("auth-tls-pass-certificate-to-upstream");
    let pass_piece = pass.as_ref().map(|(_, piece)| *piece);
    let passes = flag(pass, cx.ledger).unwrap_or(false);
    let Some((name, piece)) = secret else {
        mode.iter()
            .for_each(|(_, piece)| cx.ledger.left_out(*piece, "without auth-tls-secret it is not used"));
        return Vec::new();
    };
    let (namespace, own) = name.split_once('/').unwrap_or((&ingress.namespace, &name));
    let kind = mode.as_ref().map_or("on", |(text, _)| text.as_str());
    mode.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
    let file = name_of(&format!("{namespace}-{own}"));
    let ca = match cx
        .objects
        .secrets
        .get(&(namespace.to_owned(), own.to_owned()))
        .and_then(|data| data.get("ca.crt"))
    {
        Some((text, piece)) => {
            cx.ledger.same(*piece);
            let path = format!("certs/{file}-ca.pem");
            cx.config.files.insert(path.clone(), text.clone());
            path
        }
        None => format!("/etc/weir/certs/{file}-ca.pem"),
    };
    let wanted = Map::new().with("ca", ca).with("mode", "optional");
    let Some(listener) = cx.config.listeners.get_mut("https") else {
        cx.ledger.refused(piece, "there is no listener with TLS", "tls.client_auth");
        return vec![closed("certificates of clients without TLS")];
    };
    let tls = listener.more.map_mut("tls");
    let is_free = tls.get("client_auth").is_none_or(|known| *known == Value::Map(wanted.clone()));
    if !is_free || kind == "optional_no_ca" {
        cx.ledger.refused(
            piece,
            "a listener has one authority for its clients, and verifies every certificate",
            "a listener for the host: listeners.NAME.sni",
        );
        return vec![closed("its clients need a certificate of another authority")];
    }
    tls.set("client_auth", wanted);
    cx.ledger
        .changed(piece, "the listener asks all clients for a certificate; the route refuses those without");
    let mut out = Vec::new();
    if kind == "on" {
        let is = crate::shared::expression::Expression::raw("client.cert.subject == \"\"");
        let refuse = Filter::new("respond", filters::respond(400, None, None));
        out.extend(filters::when(&is, vec![refuse], Vec::new()));
    }
    // The controller writes these for each request of such a host: no client may claim them.
    let verified = "{= client.cert.subject == \"\" ? \"NONE\" : \"SUCCESS\" }";
    let fields = filters::Headers {
        request_set: vec![
            ("ssl-client-verify".to_owned(), verified.into()),
            ("ssl-client-subject-dn".to_owned(), "{tls_client_subject}".into()),
        ],
        request_remove: vec!["ssl-client-cert".to_owned(), "ssl-client-issuer-dn".to_owned()],
        ..filters::Headers::default()
    };
    out.extend(fields.filter());
    cx.ledger.note(
        "certificates of clients: Services get ssl-client-verify and ssl-client-subject-dn as from the controller, \
         not ssl-client-issuer-dn",
    );
    if let Some(piece) = pass_piece.filter(|_| passes) {
        cx.ledger.refused(
            piece,
            "Weir sends no ssl-client-cert: it sends certificates of its consumers as Client-Cert (RFC 9440)",
            "mtls_auth: { forward: true } with consumers.NAME.mtls_auth",
        );
    }
    out
}
