//! Filters of rules and of backends, as filters of Weir.
//!
//! What cannot be done as written makes the rule answer 500: a filter that is left out could be the one that protects.

use super::attach::{Findings, Place};
use super::backends::{Backend, Manner, resolve};
use super::{Cx, extension, unsupported};
use crate::objects::{Cors, Filter, HeaderModifier, Kind, Meta, Mirror, PathModifier, Redirect, shown};
use crate::status::Problem;
use crate::text;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Filters of Weir, and what they do to the rest of the rule.
#[derive(Default)]
pub(super) struct Translated {
    pub(super) filters: Vec<Value>,
    /// Whether they answer every request.
    pub(super) answers: bool,
}

/// Weir's longest duration, in seconds.
const MAX_AGE: u32 = 3650 * 86_400;

/// Where filters stand.
pub(super) struct Around<'a> {
    pub(super) kind: Kind,
    pub(super) meta: &'a Meta,
    pub(super) place: &'a Place,
    /// The prefix that the match has, for `ReplacePrefixMatch`.
    pub(super) prefix: Option<&'a str>,
}

/// Translates a list of filters.
///
/// # Errors
/// Why the rule cannot be served as written.
pub(super) fn translate(
    cx: &mut Cx<'_>,
    around: &Around<'_>,
    written: &[Filter],
    findings: &mut Findings,
) -> Result<Translated, Problem> {
    let mut out = Translated::default();
    // Browsers ask before the rest may refuse them.
    for filter in written.iter().filter(|filter| filter.kind == "CORS") {
        let cors = filter.cors.as_ref().ok_or_else(|| empty(filter))?;
        // Without an origin, no page of another may call, which is so without the filter.
        if !cors.allow_origins.is_empty() {
            out.filters.push(self::cors(cors)?);
        }
    }
    for filter in written.iter().filter(|filter| filter.kind != "CORS") {
        match filter.kind.as_str() {
            "RequestHeaderModifier" => {
                let edit = edit(filter.request_header_modifier.as_ref().ok_or_else(|| empty(filter))?)?;
                out.filters.extend(edit.map(|edit| json!({ "headers": { "request": edit } })));
            }
            "ResponseHeaderModifier" => {
                let edit = edit(filter.response_header_modifier.as_ref().ok_or_else(|| empty(filter))?)?;
                out.filters.extend(edit.map(|edit| json!({ "headers": { "response": edit } })));
            }
            "RequestMirror" => {
                let mirror = filter.request_mirror.as_ref().ok_or_else(|| empty(filter))?;
                out.filters.extend(copies(cx, around, mirror, findings)?);
            }
            "RequestRedirect" => {
                let written = filter.request_redirect.as_ref().ok_or_else(|| empty(filter))?;
                redirect(around, written, &mut out.filters)?;
                out.answers = true;
            }
            "URLRewrite" => {
                let written = filter.url_rewrite.as_ref().ok_or_else(|| empty(filter))?;
                if let Some(path) = &written.path {
                    out.filters.push(json!({ "rewrite": path_edit(around, path)? }));
                }
                if let Some(host) = &written.hostname {
                    out.filters.push(json!({ "rewrite": { "host": fixed_host(host)? } }));
                }
            }
            "ExtensionRef" => {
                let reference = filter.extension_ref.as_ref().ok_or_else(|| empty(filter))?;
                out.filters.extend(extension::filters(cx, &around.meta.namespace, reference, findings)?);
            }
            other => {
                return Err(unsupported(format!("the filter {} is not supported", shown(other))));
            }
        }
    }
    Ok(out)
}

fn empty(filter: &Filter) -> Problem {
    unsupported(format!("the filter {} has no settings", shown(&filter.kind)))
}

/// `set`, `add` and `remove` of the filter `headers`.
fn edit(written: &HeaderModifier) -> Result<Option<Value>, Problem> {
    let mut out = Map::new();
    let mut seen = BTreeSet::new();
    for (key, fields) in [("set", &written.set), ("add", &written.add)] {
        let mut all = Map::new();
        for field in fields {
            let name = field_name(&field.name)?;
            let Some(value) = text::header_value(&field.value) else {
                return Err(unsupported(format!(
                    "the value of {name} has characters that a header field cannot have"
                )));
            };
            // The first of several entries of one name counts.
            if seen.insert((key, name.clone())) {
                all.insert(name, json!(text::literal(value)));
            }
        }
        if !all.is_empty() {
            out.insert(key.to_owned(), Value::Object(all));
        }
    }
    let removed: Vec<String> =
        written.remove.iter().map(|name| field_name(name)).collect::<Result<_, _>>()?;
    if !removed.is_empty() {
        out.insert("remove".to_owned(), json!(removed));
    }
    Ok((!out.is_empty()).then_some(Value::Object(out)))
}

/// Fields that frame messages or speak of connections, which no filter may change.
const FRAMING: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

fn field_name(written: &str) -> Result<String, Problem> {
    let name = written.to_ascii_lowercase();
    // Weir drops fields with `_`, which servers read as `-`.
    match text::is_token(&name) && !name.contains('_') && !FRAMING.contains(&name.as_str()) {
        true => Ok(name),
        false => Err(unsupported(format!("the header field `{}` cannot be changed", shown(written)))),
    }
}

fn cors(written: &Cors) -> Result<Value, Problem> {
    let is_origin = |origin: &str| {
        origin == "*"
            || origin.split_once("://").is_some_and(|(scheme, rest)| {
                let (host, port) =
                    rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port)));
                let is_port = |port: &str| port == "*" || port.parse::<u16>().is_ok();
                matches!(scheme, "http" | "https") && text::host(host).is_some() && port.is_none_or(is_port)
            })
    };
    if let Some(bad) = written.allow_origins.iter().find(|origin| !is_origin(origin)) {
        return Err(unsupported(format!("the origin `{}` is not supported", shown(bad))));
    }
    let names = [&written.allow_methods, &written.allow_headers, &written.expose_headers];
    if let Some(bad) = names.iter().flat_map(|all| all.iter()).find(|name| !text::is_token(name)) {
        return Err(unsupported(format!("`{}` of CORS is no name", shown(bad))));
    }
    let credentials = written.allow_credentials.unwrap_or_default();
    if credentials && written.expose_headers.iter().any(|name| name == "*") {
        return Err(unsupported("CORS with credentials cannot expose all headers"));
    }
    // Without a list, the methods that need no preflight.
    let methods = match &written.allow_methods[..] {
        [] => ["GET", "HEAD", "POST"].map(str::to_owned).to_vec(),
        methods => methods.to_vec(),
    };
    // The API lets every page send credentials, and wants its own origin in the answer.
    let any = written.allow_origins.iter().any(|origin| origin == "*");
    let origins = if any { vec!["*".to_owned()] } else { written.allow_origins.clone() };
    let mut cors = json!({
        "origins": origins,
        "methods": methods,
        "headers": written.allow_headers,
        "expose": written.expose_headers,
        "credentials": credentials,
        "max_age": format!("{}s", written.max_age.unwrap_or(5).min(MAX_AGE)),
    });
    if any && credentials {
        cors["reflect"] = json!(true);
    }
    Ok(json!({ "cors": cors }))
}

fn copies(
    cx: &mut Cx<'_>,
    around: &Around<'_>,
    mirror: &Mirror,
    findings: &mut Findings,
) -> Result<Option<Value>, Problem> {
    let share = match (&mirror.percent, &mirror.fraction) {
        (None, None) => 100.0,
        (Some(percent), None) => f64::from(*percent),
        (None, Some(fraction)) => {
            f64::from(fraction.numerator) * 100.0 / f64::from(fraction.denominator.unwrap_or(100).max(1))
        }
        (Some(_), Some(_)) => return Err(unsupported("a mirror has a percent or a fraction, not both")),
    };
    if share == 0.0 {
        return Ok(None);
    }
    if share > 100.0 {
        return Err(unsupported("a mirror copies at most 100 percent"));
    }
    let identity = cx.identities.get(&around.place.gateway).cloned();
    let manner = Manner { is_grpc: around.kind == Kind::GrpcRoute, identity, ..Manner::default() };
    let gateways = BTreeSet::from([around.place.gateway.clone()]);
    match resolve(cx, (around.kind, around.meta), &mirror.backend_ref, &manner, &gateways) {
        Ok(Backend::Upstream(name)) => {
            Ok(Some(json!({ "mirror": { "upstream": name, "share": format!("{share}%") } })))
        }
        Ok(Backend::Empty) => Ok(None),
        // Copies that go nowhere disturb no request.
        Err(problem) => {
            findings.unresolved(problem);
            Ok(None)
        }
    }
}

/// Appends what redirects: the path is changed first, because a redirect reads it.
fn redirect(around: &Around<'_>, written: &Redirect, out: &mut Vec<Value>) -> Result<(), Problem> {
    if let Some(path) = &written.path {
        out.push(json!({ "rewrite": path_edit(around, path)? }));
    }
    let scheme = match written.scheme.as_deref() {
        None => around.place.scheme,
        Some(scheme @ ("http" | "https")) => scheme,
        Some(other) => return Err(unsupported(format!("a redirect to {} is not supported", shown(other)))),
    };
    let host = match &written.hostname {
        None => "{host}".to_owned(),
        Some(host) => fixed_host(host)?,
    };
    let well_known = if scheme == "https" { 443 } else { 80 };
    let port = written.port.unwrap_or(if written.scheme.is_some() { well_known } else { around.place.port });
    let port = if port == well_known { String::new() } else { format!(":{port}") };
    let status = written.status_code.unwrap_or(302);
    if ![301, 302, 303, 307, 308].contains(&status) {
        return Err(unsupported(format!("{status} is no status of a redirect")));
    }
    out.push(json!({ "redirect": { "to": format!("{scheme}://{host}{port}{{path}}"), "status": status } }));
    Ok(())
}

fn fixed_host(host: &str) -> Result<String, Problem> {
    let fixed = text::host(host).filter(|host| !host.starts_with('*'));
    fixed.ok_or_else(|| unsupported(format!("`{}` is not a host name", shown(host))))
}

/// The settings of `rewrite` for a change of the path.
fn path_edit(around: &Around<'_>, written: &PathModifier) -> Result<Value, Problem> {
    let path = |text: &str| {
        text::path(text)
            .ok_or_else(|| unsupported(format!("`{}` is not a path; expected e.g. /a/b", shown(text))))
    };
    match (written.kind.as_str(), &written.replace_full_path, &written.replace_prefix_match) {
        ("ReplaceFullPath", Some(full), _) => Ok(json!({ "path": path(full)? })),
        ("ReplacePrefixMatch", _, Some(new)) => {
            let Some(prefix) = around.prefix else {
                return Err(unsupported("ReplacePrefixMatch needs a match with a PathPrefix"));
            };
            let prefix = path(prefix)?;
            let prefix = text::quoted(prefix.strip_suffix('/').unwrap_or(&prefix));
            // It becomes a key, of which the reader of YAML takes at most 1024 characters.
            if prefix.len() > 900 {
                return Err(unsupported("ReplacePrefixMatch of so long a prefix is not supported"));
            }
            let new = if new.is_empty() { "/".to_owned() } else { path(new)? };
            // `$` is a group there.
            let new = new.strip_suffix('/').unwrap_or(&new).replace('$', "%24");
            // The prefix has matched by whole segments, so what is left is empty or begins with a slash.
            Ok(match new.is_empty() {
                true => json!({ "replace": { format!("^{prefix}/?(.*)$"): "/$1" } }),
                false => json!({ "replace": { format!("^{prefix}(.*)$"): format!("{new}$1") } }),
            })
        }
        (kind, ..) => Err(unsupported(format!("the change of the path {} is not supported", shown(kind)))),
    }
}

/// The setting `retry` of an upstream.
pub(super) fn retry(written: &crate::objects::Retry) -> Result<Value, Problem> {
    let attempts = written.attempts.unwrap_or(1);
    if !(0..=9).contains(&attempts) {
        return Err(unsupported("a request is retried between 0 and 9 times"));
    }
    let mut on = vec![json!("connect"), json!("reset"), json!("refused_stream")];
    for code in &written.codes {
        if !matches!(code, 429 | 500..600) {
            return Err(unsupported(format!("{code} is no status that may be retried")));
        }
        on.push(json!(code));
    }
    let mut retry = json!({ "attempts": attempts + 1, "on": on });
    if let Some(backoff) = &written.backoff {
        let backoff = text::duration(backoff);
        let backoff = backoff.ok_or_else(|| unsupported("retry.backoff is no duration"))?;
        retry["backoff"] = json!(format!("{}ms", backoff.as_millis()));
    }
    Ok(retry)
}
