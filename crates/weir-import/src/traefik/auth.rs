//! The middlewares that say who may pass: basicAuth, forwardAuth, ipAllowList, passTLSClientCert.

use super::cx::{Cx, Kind, Thing, list, nothing_else};
use super::services::split_url;
use crate::config::{Endpoint, Filter, Upstream, name_of};
use crate::shared::filters::{self, Headers, closed};
use crate::shared::networks::network;
use crate::shared::tree::{Entry, Fields, Node};
use crate::yaml::{Map, Value};

pub(super) fn basic(
    cx: &mut Cx<'_, '_>,
    thing: &Thing<'_>,
    entry: &Entry,
    fields: &mut Fields<'_>,
) -> Vec<Filter> {
    cx.ledger.changed(entry.piece, "users are consumers, in consumers.yaml");
    // Consumers of all lists would pass if there were several.
    let lists = |thing: &&Thing<'_>| {
        let map = thing.node.as_map().unwrap_or_default();
        map.iter().any(|entry| entry.key.eq_ignore_ascii_case("basicAuth"))
    };
    let several = cx.things.of(Kind::Middleware).iter().filter(lists).count() > 1;
    let group = several.then(|| name_of(&thing.name));
    let mut has_users = false;
    let mut file = None;
    if let Some((users, piece)) = list(fields, "users", cx.ledger) {
        has_users = true;
        cx.users.add(&users, group.as_deref(), piece, cx.config, cx.ledger);
    }
    if let Some((path, piece)) = fields.text("usersFile", cx.ledger) {
        let base = path.rsplit('/').next().unwrap_or(&path);
        match cx.user_files.get(base).cloned() {
            Some(users) => {
                has_users = true;
                cx.users.add(&users, group.as_deref(), piece, cx.config, cx.ledger);
            }
            // The filter reads it itself, and follows it.
            None if path.starts_with('/') && !has_users => {
                file = Some(path);
                cx.ledger
                    .changed(piece, "Weir takes hashes of bcrypt and argon2id: `weir check` names others");
            }
            None => cx.ledger.refused(
                piece,
                format!("the file `{base}` is not given, so none of its users may pass"),
                format!("give it too: weir import traefik FILE… {base}"),
            ),
        }
    }
    let mut map = Map::new();
    match fields.text("realm", cx.ledger) {
        Some((realm, piece)) => {
            map.set("realm", realm);
            cx.ledger.same(piece);
        }
        None => map.set("realm", "traefik"),
    }
    let removes = fields.flag("removeHeader", cx.ledger);
    removes.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
    if !removes.is_some_and(|(flag, _)| flag) {
        map.set("hide", false);
    }
    if let Some((name, piece)) = fields.text("headerField", cx.ledger) {
        map.set("consumer_header", name.to_ascii_lowercase());
        cx.ledger.same(piece);
    }
    if let Some(file) = file {
        map.set("file", file);
        return vec![Filter::new("basic_auth", map)];
    }
    if !has_users {
        return vec![closed(&format!(
            "the middleware {} has no users that weir import could read",
            thing.name
        ))];
    }
    let mut out = vec![Filter::new("basic_auth", map)];
    if let Some(group) = group {
        out.push(Filter::new("acl", Map::new().with("allow", vec![format!("group:{group}")])));
    }
    out
}

pub(super) fn forward(
    cx: &mut Cx<'_, '_>,
    thing: &Thing<'_>,
    entry: &Entry,
    fields: &mut Fields<'_>,
) -> Vec<Filter> {
    cx.ledger.changed(
        entry.piece,
        "an answer that refuses passes with its usual fields and a body of up to 64 KiB; no answer is 503",
    );
    let mut map = Map::new();
    let mut upstream = Upstream::default();
    let address = fields.text("address", cx.ledger);
    let Some((scheme, endpoint, path)) = address.as_ref().and_then(|(url, _)| split_url(url)) else {
        address.iter().for_each(|(_, piece)| {
            cx.ledger.refused(*piece, "not a URL", "forward_auth: { upstream, path }")
        });
        return vec![closed(&format!("the address of {} cannot be read", thing.name))];
    };
    address.iter().for_each(|(_, piece)| cx.ledger.same(*piece));
    upstream.endpoints.push(Endpoint { address: endpoint, ..Endpoint::default() });
    upstream.more.set("host", "endpoint");
    let mut tls = Map::new();
    if let Some((node, piece)) = fields.map("tls", cx.ledger) {
        cx.ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        for (key, ours) in [("ca", "ca"), ("cert", "client_cert"), ("key", "client_key")] {
            if let Some((file, piece)) = fields.text(key, cx.ledger) {
                tls.set(ours, file);
                cx.ledger.same(piece);
            }
        }
        if let Some((skips, piece)) = fields.flag("insecureSkipVerify", cx.ledger) {
            cx.ledger.same(piece);
            if skips {
                tls.set("verify", false);
            }
        }
        if let Some(entry) = fields.entry("caOptional") {
            cx.ledger.left_out(entry.piece, "Traefik ignores it too");
        }
        nothing_else(fields, "tls of forwardAuth", cx.ledger);
    }
    if scheme == "https" {
        upstream.more.set("tls", tls);
    }
    let name = format!("{}-service", thing.name);
    let name = match cx.config.upstreams.get(&name_of(&name)) {
        Some(known) if *known == upstream => name_of(&name),
        _ => cx.config.upstreams.add(&name, upstream),
    };
    map.set("upstream", name);
    if !path.is_empty() && path != "/" {
        map.set("path", path);
    }
    let lower = |names: Vec<String>| names.iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>();
    match list(fields, "authRequestHeaders", cx.ledger) {
        Some((names, piece)) => {
            map.set("copy_request", lower(names));
            cx.ledger.same(piece);
        }
        // Traefik sends all of them.
        None => map.set("copy_request", "all"),
    }
    if let Some((names, piece)) = list(fields, "authResponseHeaders", cx.ledger) {
        map.set("copy", lower(names));
        cx.ledger.same(piece);
    }
    let mut out = Vec::new();
    if let Some((pattern, piece)) = fields.text("authResponseHeadersRegex", cx.ledger) {
        cx.ledger.refused(
            piece,
            format!("`{pattern}`: Weir copies fields by name, and could not remove the client's own"),
            "forward_auth: { copy: [ x-user, x-groups ] }",
        );
        out.push(closed("authResponseHeadersRegex of forwardAuth names fields that clients could forge"));
    }
    if let Some((trusts, piece)) = fields.flag("trustForwardHeader", cx.ledger) {
        match trusts {
            false => cx.ledger.same(piece),
            true => cx.ledger.changed(piece, "X-Forwarded-* of clients in `trusted_proxies` alone"),
        }
    }
    if let Some((names, piece)) = list(fields, "addAuthCookiesToResponse", cx.ledger) {
        map.set("copy_response", vec!["set-cookie"]);
        cx.ledger.changed(piece, format!("all cookies of the service, not only {}", names.join(", ")));
    }
    let max = fields.entry("maxBodySize");
    if let Some((sends, piece)) = fields.flag("forwardBody", cx.ledger) {
        cx.ledger.same(piece);
        if sends {
            let bytes = max.and_then(|entry| entry.node.as_u64()).filter(|bytes| *bytes > 0);
            map.set("body", crate::shared::units::size(bytes.unwrap_or(1 << 20)));
            if bytes.is_none() {
                cx.ledger.changed(piece, "a body of up to 1 MiB; a longer one gets 413");
            }
        }
    }
    max.iter().for_each(|entry| cx.ledger.same(entry.piece));
    if let Some((name, piece)) = fields.text("headerField", cx.ledger) {
        cx.ledger.refused(
            piece,
            format!("the field {name} of the answer names the user"),
            "forward_auth: { copy }",
        );
    }
    if let Some((keeps, piece)) = fields.flag("preserveRequestMethod", cx.ledger) {
        match keeps {
            false => cx.ledger.same(piece),
            true => {
                cx.ledger.changed(piece, "the service is asked with GET; X-Forwarded-Method has the method")
            }
        }
    }
    if let Some(entry) = fields.entry("preserveLocationHeader") {
        cx.ledger.by_itself(entry.piece, "Location passes as the service wrote it");
    }
    if let Some(entry) = fields.entry("maxResponseBodySize") {
        cx.ledger.changed(entry.piece, "64 KiB");
    }
    out.push(Filter::new("forward_auth", map));
    out
}

pub(super) fn addresses(cx: &mut Cx<'_, '_>, entry: &Entry, fields: &mut Fields<'_>) -> Vec<Filter> {
    cx.ledger.same(entry.piece);
    let mut allow = Vec::new();
    let mut out = Vec::new();
    if let Some((texts, piece)) = list(fields, "sourceRange", cx.ledger) {
        cx.ledger.same(piece);
        for text in texts {
            match network(&text) {
                Ok(network) => allow.push(network),
                Err(why) => cx.ledger.refused(piece, why, "ip: { allow: [ 10.0.0.0/8 ] }"),
            }
        }
    }
    if let Some(strategy) = fields.entry("ipStrategy") {
        strategy.each_piece(&mut |piece| {
            cx.ledger.refused(
                piece,
                "Weir takes the nearest address that is not of `trusted_proxies`, for all routes alike",
                "trusted_proxies: the networks of your load balancers",
            );
        });
        out.push(closed("which address of X-Forwarded-For counts is to be said by `trusted_proxies`"));
    }
    let mut status = 403;
    if let Some((number, piece)) = fields.number("rejectStatusCode", cx.ledger) {
        cx.ledger.same(piece);
        status = u16::try_from(number).unwrap_or(403);
    }
    if allow.is_empty() {
        out.push(closed("the list of addresses is empty or cannot be read"));
        return out;
    }
    if status == 403 || !(200..600).contains(&status) {
        out.push(filters::ip(&allow, &[]));
        return out;
    }
    let is = crate::shared::expression::Expression::raw("client.ip").is_in(allow.iter().map(String::as_str));
    let refuse = Filter::new("respond", filters::respond(status, None, None));
    out.extend(filters::when(&is.not(), vec![refuse], Vec::new()));
    out
}

/// Weir has other fields for the client's certificate. The client's own fields of Traefik's names are removed.
pub(super) fn client_certificate(cx: &mut Cx<'_, '_>, entry: &Entry, fields: &mut Fields<'_>) -> Vec<Filter> {
    let names = ["x-forwarded-tls-client-cert", "x-forwarded-tls-client-cert-info"];
    *fields = Fields::default();
    let set = |key: &str| {
        let value = entry.node.as_map()?.iter().find(|entry| entry.key.eq_ignore_ascii_case(key))?;
        Some(value)
    };
    let mut headers = Headers {
        request_remove: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Headers::default()
    };
    if let Some(info) = set("info") {
        headers.request_set.push((names[1].to_owned(), "{tls_client_subject}".into()));
        info.each_piece(&mut |piece| {
            cx.ledger.changed(piece, "the whole subject as RFC 4514 writes it: CN=shop,O=Example")
        });
    }
    if let Some(pem) = set("pem") {
        cx.ledger.refused(
            pem.piece,
            "Weir sends certificates as Client-Cert (RFC 9440)",
            "mtls_auth: { forward: true, optional: true }",
        );
    }
    cx.ledger.same(entry.piece);
    entry.each_piece(&mut |piece| {
        if !cx.ledger.is_judged(piece) {
            cx.ledger.refused(piece, "weir import does not know this key of passTLSClientCert", "mtls_auth");
        }
    });
    headers.filter().into_iter().collect()
}

/// Texts of a map of names to texts.
pub(super) fn pairs(node: &Node) -> Vec<(&Entry, String)> {
    let entries = node.as_map().unwrap_or_default().iter();
    entries.map(|entry| (entry, entry.node.as_text().unwrap_or_default())).collect()
}

/// A value that may be secret, as a variable where it looks like one.
pub(super) fn value(name: &str, text: &str, is_secret: bool, cx: &mut Cx<'_, '_>) -> Value {
    let literal = crate::shared::template::Template::text(text).to_setting();
    if is_secret { cx.config.secret(name, text) } else { literal.into() }
}
