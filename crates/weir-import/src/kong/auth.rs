//! The plugins that say who calls: key-auth, basic-auth and jwt. Others are refused, and their routes stay closed.
//!
//! Several on one route must all pass. With `anonymous` they are alternatives: Weir's filter `any`.

use super::consumers::Known;
use super::plugins::Instance;
use crate::config::Filter;
use crate::ledger::Ledger;
use crate::shared::filters::{Headers, closed};
use crate::shared::tree::{Fields, Node, Value as Source};
use crate::yaml::{Map, Value};

/// The plugins that are translated, in Kong's order.
const KINDS: &[&str] = &["jwt", "key-auth", "basic-auth"];
/// Plugins that decide who may pass and that Weir does not have. A route with one of them answers nobody.
const CLOSED: &[&str] = &[
    "header-cert-auth",
    "hmac-auth",
    "jwt-signer",
    "key-auth-enc",
    "ldap-auth",
    "mtls-auth",
    "oauth2",
    "opa",
    "openid-connect",
    "pre-function",
    "saml",
    "vault-auth",
    "websocket-validator",
    "request-validator",
];
/// Most issuers of tokens on one route: each is a member of the filter `any`.
const MAX_ISSUERS: usize = 32;

/// Whether a plugin says who calls.
pub(super) fn kind(name: &str) -> Option<usize> {
    KINDS.iter().position(|known| *known == name)
}

/// Whether a route must stay closed because this plugin is refused: it, or a plugin that nobody knows, may be what
/// protects the route.
pub(super) fn must_close(name: &str, is_known: bool) -> bool {
    !is_known || CLOSED.iter().any(|closed| name.starts_with(closed))
}

/// Whether an instance is for the consumer that stands for callers without credentials.
pub(super) fn is_for_anonymous(instance: &Instance<'_>, base: &[&Instance<'_>], known: &Known) -> bool {
    let Some(aliases) = instance.consumer().and_then(|at| known.aliases.get(at)) else { return false };
    base.iter()
        .filter(|other| kind(&other.name).is_some())
        .filter_map(|other| other.config?.get("anonymous")?.as_text())
        .any(|anonymous| aliases.contains(&anonymous))
}

/// All filters that say who calls, for a route.
pub(super) fn filters(
    base: &[&Instance<'_>],
    scoped: &[&Instance<'_>],
    known: &Known,
    ledger: &mut Ledger,
) -> Vec<Filter> {
    let mut plugins: Vec<&&Instance<'_>> =
        base.iter().filter(|instance| kind(&instance.name).is_some()).collect();
    plugins.sort_by_key(|instance| kind(&instance.name));
    let terminated = scoped
        .iter()
        .find(|instance| instance.name == "request-termination" && is_for_anonymous(instance, base, known));
    if let Some(instance) = terminated {
        instance.judge(|piece| {
            ledger.changed(piece, "callers without credentials are refused by the filters above, with 401")
        });
    }
    let (mut required, mut choices) = (Vec::new(), Vec::new());
    let mut out = Vec::new();
    for instance in plugins {
        let (members, is_optional) = members(instance, known, ledger);
        match members.is_empty() {
            true => out.push(closed(&format!("the plugin {} identifies nobody", instance.name))),
            false if is_optional => choices.extend(members),
            false => required.push(members),
        }
    }
    if !required.is_empty() && !choices.is_empty() {
        let why = "beside a plugin without `anonymous` this one is not needed";
        base.iter()
            .filter(|instance| kind(&instance.name).is_some())
            .filter(|instance| instance.config.and_then(|config| config.get("anonymous")).is_some())
            .for_each(|instance| instance.changed(ledger, why));
        choices.clear();
    }
    for members in required {
        out.push(alternatives(members));
    }
    if !choices.is_empty() {
        if terminated.is_none()
            && let Some((_, settings)) = choices.last_mut()
        {
            settings.set("optional", true);
        }
        out.push(alternatives(choices));
    }
    let mut headers = Headers::default();
    let user = if known.has_usernames { "{= maps.usernames }" } else { "{consumer}" };
    headers.request_set.push(("x-consumer-username".to_owned(), user.into()));
    match known.has_custom_ids {
        true => headers.request_set.push(("x-consumer-custom-id".to_owned(), "{= maps.custom_ids }".into())),
        false => headers.request_remove.push("x-consumer-custom-id".to_owned()),
    }
    // Kong sets or clears these for every caller; no client may claim them.
    headers.request_remove.extend(
        ["x-consumer-id", "x-credential-identifier", "x-credential-username", "x-anonymous-consumer"]
            .map(str::to_owned),
    );
    out.extend(headers.filter());
    ledger.note(
        "consumers: services get X-Consumer-Username and X-Consumer-Custom-ID as from Kong, not \
        X-Consumer-ID, X-Credential-Identifier and X-Anonymous-Consumer",
    );
    out
}

/// One filter, or `any` of several.
fn alternatives(mut members: Vec<(&'static str, Map)>) -> Filter {
    match members.len() {
        1 => {
            let (name, settings) = members.remove(0);
            Filter::new(name, settings)
        }
        _ => {
            let list: Vec<Value> =
                members.into_iter().map(|(name, settings)| Filter::new(name, settings).to_value()).collect();
            Filter::new("any", Value::List(list))
        }
    }
}

/// The filters that do what a plugin does, each an alternative, and whether callers without credentials pass.
fn members(instance: &Instance<'_>, known: &Known, ledger: &mut Ledger) -> (Vec<(&'static str, Map)>, bool) {
    let empty = Node { line: 0, value: Source::Null };
    let mut fields = Fields::of(instance.config.unwrap_or(&empty));
    let anonymous = fields.text("anonymous", ledger).filter(|(text, _)| !text.is_empty());
    if let Some((_, piece)) = &anonymous {
        ledger.changed(
            *piece,
            "without credentials a caller has no name; wrong credentials are refused, which \
            Kong takes for anonymous too",
        );
    }
    let hide = fields.flag("hide_credentials", ledger);
    hide.iter().for_each(|(_, piece)| ledger.same(*piece));
    let hide = hide.is_some_and(|(hide, _)| hide);
    let members = match instance.name.as_str() {
        "key-auth" => keys(&mut fields, hide, ledger),
        "basic-auth" => {
            let mut map = Map::new();
            if let Some((realm, piece)) = fields.text("realm", ledger) {
                map.set("realm", realm);
                ledger.same(piece);
            }
            if !hide {
                map.set("hide", false);
            }
            vec![("basic_auth", map)]
        }
        _ => tokens(instance, &mut fields, known, ledger),
    };
    instance.finish(fields, ledger);
    (members, anonymous.is_some())
}

fn keys(fields: &mut Fields<'_>, hide: bool, ledger: &mut Ledger) -> Vec<(&'static str, Map)> {
    let mut flag = |key: &str, fields: &mut Fields<'_>, default: bool| match fields.flag(key, ledger) {
        Some((flag, piece)) => {
            match (key, flag) {
                ("key_in_body", true) => ledger.refused(
                    piece,
                    "Weir does not look for keys in bodies",
                    "key_auth: { header, query, cookie }",
                ),
                _ => ledger.same(piece),
            }
            flag
        }
        None => default,
    };
    let in_header = flag("key_in_header", fields, true);
    let in_query = flag("key_in_query", fields, true);
    flag("key_in_body", fields, false);
    let names = fields.texts("key_names", ledger);
    names.iter().for_each(|(_, piece)| ledger.same(*piece));
    let names = names.map_or_else(|| vec!["apikey".to_owned()], |(names, _)| names);
    let member = |name: String| {
        let mut map = Map::new();
        match in_header {
            true => map.set("header", name.to_ascii_lowercase()),
            // Weir always looks at a header: this one is no client's.
            false => map.set("header", "x-weir-no-key"),
        }
        if in_query {
            map.set("query", name);
        }
        if !hide {
            map.set("hide", false);
        }
        ("key_auth", map)
    };
    names.into_iter().map(member).collect()
}

fn tokens(
    instance: &Instance<'_>,
    fields: &mut Fields<'_>,
    known: &Known,
    ledger: &mut Ledger,
) -> Vec<(&'static str, Map)> {
    let claim = fields.text("key_claim_name", ledger);
    if let Some((name, piece)) = &claim {
        match name.as_str() {
            "iss" => ledger.same(*piece),
            _ => ledger.refused(
                *piece,
                "Weir names the key of a token by `iss` or `kid`",
                "jwt: { issuers } and consumers.NAME.jwt",
            ),
        }
    }
    let claims = fields.texts("claims_to_verify", ledger);
    let has_expiry = claims.as_ref().is_some_and(|(claims, _)| claims.iter().any(|claim| claim == "exp"));
    if let Some((_, piece)) = claims {
        match has_expiry {
            true => ledger.same(piece),
            false => ledger.changed(piece, "Weir always refuses a token whose `exp` has passed"),
        }
    } else {
        instance.changed(
            ledger,
            "Weir always refuses a token whose `exp` has passed; Kong does not look unless \
            `claims_to_verify` has it",
        );
    }
    let mut extra = Map::new();
    if let Some((names, piece)) = fields.texts("cookie_names", ledger) {
        match &*names {
            [] => ledger.same(piece),
            [name] => {
                extra.set("cookie", name.clone());
                ledger.same(piece);
            }
            _ => ledger.refused(piece, "Weir reads one cookie", "jwt: { cookie: NAME }"),
        }
    }
    if let Some((names, piece)) = fields.texts("header_names", ledger) {
        match &*names {
            [name] => {
                if !name.eq_ignore_ascii_case("authorization") {
                    extra.set("header", name.to_ascii_lowercase());
                    extra.set("scheme", "Bearer");
                }
                ledger.same(piece);
            }
            _ => ledger.refused(piece, "Weir reads one header", "jwt: { header: NAME }"),
        }
    }
    match fields.texts("uri_param_names", ledger) {
        Some((names, piece)) if names.is_empty() => ledger.same(piece),
        Some((_, piece)) => {
            ledger.changed(piece, "Weir does not read tokens from URLs, which end up in logs")
        }
        None => instance.changed(ledger, "Weir does not read tokens from `?jwt=`, which ends up in logs"),
    }
    if let Some((is_base64, piece)) = fields.flag("secret_is_base64", ledger) {
        match is_base64 {
            false => ledger.same(piece),
            true => ledger.refused(piece, "Weir takes secrets as text", "decode the secret, if it is text"),
        }
    }
    if let Some((seconds, piece)) = fields.number("maximum_expiration", ledger) {
        match seconds {
            0 => ledger.same(piece),
            _ => ledger.refused(
                piece,
                "Weir has no longest lifetime of tokens",
                "let the issuer sign shorter ones",
            ),
        }
    }
    if known.tokens.is_empty() {
        instance.refused(
            ledger,
            "no consumer has a key for tokens that Weir can use",
            "`keys` or `secret` of the filter jwt",
        );
        return Vec::new();
    }
    if known.tokens.len() > MAX_ISSUERS || claim.is_some_and(|(name, _)| name != "iss") {
        let why = format!("{} issuers with a key each", known.tokens.len());
        instance.refused(ledger, &why, "an identity provider with a JWKS: jwt: { keys: URL }");
        return Vec::new();
    }
    // Each key is bound to its issuer: with one set of keys, a holder of one could sign for another.
    let member = |token: &super::consumers::Token| {
        let mut map = Map::new().with(token.key.0, token.key.1.clone());
        map.set("algorithms", vec![token.algorithm.clone()]);
        map.set("issuers", vec![token.issuer.clone()]);
        map.set("consumer", "iss");
        if !has_expiry {
            map.set("allow_endless", true);
        }
        extra.iter().for_each(|(key, value)| map.set(key, value.clone()));
        ("jwt", map)
    };
    known.tokens.iter().map(member).collect()
}
