//! `proxy_pass` and what belongs to it: upstreams, the path and the fields that they see.

mod group;
mod path;
mod request_fields;
mod settings;

pub(super) use group::group;
pub(super) use path::without_query;

use super::context::{Cx, Scope};
use super::read::Directive;
use super::text::template;
use crate::config::{Endpoint, Filter, Upstream};
use crate::shared::template::{Part, Template};
use crate::yaml::Value;
use path::path_sent;
use request_fields::{own_host, request_fields};
use settings::{retry, timeouts, tls};

/// Where requests go, and how they are changed first.
pub(super) struct Proxied {
    pub(super) upstream: String,
    pub(super) filters: Vec<Filter>,
}

/// The path that the upstream gets if the request has `path` and passes these filters, which `pass` became. For a named
/// location, `path` is the placeholder `{path}`, from which no prefix can be removed.
pub(super) fn path_behind(scope: &Scope<'_>, pass: &Directive, filters: &[Filter], path: String) -> String {
    if let Some(path) = replaced(scope, pass, &path) {
        return path;
    }
    let mut sent = path;
    for filter in filters.iter().filter(|filter| filter.name == "rewrite") {
        let Value::Map(settings) = &filter.settings else { continue };
        let text = |key: &str| match settings.get(key) {
            Some(Value::Text(text)) => Some(text.as_str()),
            _ => None,
        };
        if let Some(path) = text("path") {
            path.clone_into(&mut sent);
        }
        if let Some(rest) = text("strip_prefix").and_then(|prefix| sent.strip_prefix(prefix)) {
            sent = rest.to_owned();
        }
        if let Some(prefix) = text("add_prefix") {
            sent.insert_str(0, prefix);
        }
    }
    sent
}

/// The path where nginx puts that of `proxy_pass` in the place of the location's prefix, letter by letter: `/verify/`
/// for `/auth` itself, where the filters of a route, which replace whole segments, send `/verify`. `None` where the
/// filters know the path: with variables, in an exact location, and where a slash would meet a slash.
fn replaced(scope: &Scope<'_>, pass: &Directive, path: &str) -> Option<String> {
    let (_, rest) = pass.first().split_once("://")?;
    let to = &rest[rest.find('/')?..];
    let is_literal = !pass.first().contains('$') && !to.contains(['?', '{', '}']);
    if scope.is_exact || !is_literal || rest.starts_with("unix:") {
        return None;
    }
    let behind = path.strip_prefix(scope.path.as_deref()?)?;
    let doubles = to.ends_with('/') && behind.starts_with('/');
    (!doubles).then(|| format!("{to}{behind}"))
}

/// The parts of `proxy_pass SCHEME://HOST URI`.
struct Address {
    scheme: String,
    /// `host:port`, `unix:/path` or the name of a block `upstream`.
    host: String,
    uri: Option<Template>,
    /// Whether it has variables.
    has_variables: bool,
}

/// Translates `proxy_pass` or `grpc_pass`.
pub(super) fn proxied<'a>(
    cx: &mut Cx<'a, '_>,
    scope: &Scope<'a>,
    pass: &'a Directive,
) -> Result<Proxied, String> {
    let address = read_address(cx, scope, pass)?;
    let mut filters = Vec::new();
    let host = request_fields(cx, scope, &address, &mut filters)?;
    if let Some(rewrite) = path_sent(cx, scope, pass, &address)? {
        filters.push(rewrite);
    }
    let upstream = upstream(cx, scope, &address, host.as_deref())?;
    if !cx.ledger.is_judged(pass.piece) {
        cx.ledger.same(pass.piece);
    }
    Ok(Proxied { upstream, filters })
}

fn read_address(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, pass: &Directive) -> Result<Address, String> {
    let text = pass.first();
    let has_variables = text.contains('$');
    let whole = template(cx, scope, text)?;
    // Scheme and host must be fixed: their end is the first slash behind them.
    let mut fixed = String::new();
    let mut parts = whole.parts().iter();
    let mut uri = Template::default();
    let mut has_uri = false;
    for part in parts.by_ref() {
        match part {
            Part::Text(text) => fixed.push_str(text),
            part => {
                uri.push(part.clone());
                has_uri = true;
                break;
            }
        }
    }
    parts.for_each(|part| uri.push(part.clone()));
    let (scheme, rest) = match fixed.split_once("://") {
        Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest.to_owned()),
        None if pass.name == "grpc_pass" && !fixed.is_empty() => ("grpc".to_owned(), fixed),
        None => {
            return Err(
                "the address is known only when a request comes: the client might choose it".to_owned()
            );
        }
    };
    if !["http", "https", "grpc", "grpcs"].contains(&&*scheme) {
        return Err(format!("`{scheme}` is no scheme that Weir speaks to upstreams"));
    }
    let (host, start) = match rest.strip_prefix("unix:") {
        Some(path) => match path.split_once(':') {
            Some((path, uri)) => (format!("unix:{path}"), uri.to_owned()),
            None => (format!("unix:{path}"), String::new()),
        },
        None => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            (rest[..end].to_owned(), rest[end..].to_owned())
        }
    };
    // A value directly behind the host is the path as it came, or would be a part of the host.
    let begins_with_path = matches!(
        uri.parts().first(),
        Some(Part::Placeholder(name)) if name == "path"
    ) || matches!(
        uri.parts().first(),
        Some(Part::Value(value)) if value.as_str().contains("request.path")
    );
    if host.is_empty() || (has_uri && start.is_empty() && !begins_with_path) {
        return Err("the address is known only when a request comes: the client might choose it".to_owned());
    }
    let mut all = Template::text(&start);
    all.append(uri);
    let uri = (!all.is_empty()).then_some(all);
    Ok(Address { scheme, host, uri, has_variables })
}

/// Our upstream for an address with the settings that apply here.
fn upstream<'a>(
    cx: &mut Cx<'a, '_>,
    scope: &Scope<'a>,
    address: &Address,
    host: Option<&str>,
) -> Result<String, String> {
    let mut made = Upstream::default();
    let is_tls = address.scheme.ends_with('s');
    let port = if is_tls { 443 } else { 80 };
    let block = cx.upstreams.get(&*address.host).copied();
    match block {
        Some(block) => group(cx, block, port, &mut made)?,
        None => {
            made.endpoints.push(Endpoint { address: with_port(&address.host, port), ..Endpoint::default() })
        }
    }
    if address.scheme.starts_with("grpc") {
        made.more.set("protocol", if is_tls { "h2" } else { "h2c" });
    }
    if is_tls {
        let tls = tls(cx, scope, address, block.is_some());
        made.more.set("tls", tls);
    }
    if let Some(host) = host {
        let own = made.endpoints.first().map(|endpoint| endpoint.address.clone()).unwrap_or_default();
        let is_endpoint = made.endpoints.len() == 1
            && own_host(
                cx,
                &Address { host: own, scheme: address.scheme.clone(), uri: None, has_variables: false },
            ) == host;
        made.more.set("host", if is_endpoint { "endpoint" } else { host });
    }
    let prefix = if address.scheme.starts_with("grpc") { "grpc" } else { "proxy" };
    timeouts(cx, scope, prefix, &mut made);
    retry(cx, scope, prefix, &mut made);
    redirects(cx, scope, &mut made);
    Ok(named(cx, &address.host, made))
}

/// The name of an upstream with these settings: one that exists, or a new one.
pub(super) fn named(cx: &mut Cx<'_, '_>, wish: &str, made: Upstream) -> String {
    let key = format!("{:?} {:?}", made.endpoints, made.more);
    if let Some(name) = cx.made_upstreams.get(&key) {
        return name.clone();
    }
    let wish = match wish.strip_prefix("unix:") {
        Some(path) => path.rsplit('/').next().unwrap_or(path).trim_end_matches(".sock").to_owned(),
        None => wish.to_owned(),
    };
    let name = cx.config.upstreams.add(&wish, made);
    cx.made_upstreams.insert(key, name.clone());
    name
}

fn with_port(host: &str, port: u16) -> String {
    let has_port = match host.rsplit_once(':') {
        Some((_, digits)) => {
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && !host.ends_with(']')
        }
        None => false,
    };
    if host.starts_with("unix:") || has_port { host.to_owned() } else { format!("{host}:{port}") }
}

fn redirects(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, made: &mut Upstream) {
    for redirect in scope.block.nearest("proxy_redirect") {
        match redirect.first() {
            "off" => {
                cx.ledger.same(redirect.piece);
                made.more.set("links", "keep");
            }
            "default" => cx.ledger.same(redirect.piece),
            _ => {
                let why = "Weir rewrites Location where it names the endpoint or a removed prefix, and nothing else";
                cx.ledger.refused(redirect.piece, why, "links: rewrite of the upstream");
            }
        }
    }
}
