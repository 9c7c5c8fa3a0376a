//! Filters of Weir that a route names in an `ExtensionRef` to a WeirFilters.
//!
//! A tenant writes them, so only those are allowed that reach nothing outside the exchange: no URL, no file, no socket,
//! no store, no consumer, and no upstream. Both the filters and their settings are listed, so a setting that a later
//! version of Weir gets is refused until somebody has looked at it.

use super::attach::Findings;
use super::{Cx, is_kind, unsupported};
use crate::objects::{CertificateRef, Kind, Name, shown};
use crate::status::Problem;
use serde_json::Value;

/// Most filters of one WeirFilters.
const MAX_FILTERS: usize = 16;
/// Most bytes of the settings of one filter.
const MAX_SETTINGS: usize = 64 * 1024;
/// Most bytes of all of them: each match of each rule has a copy.
const MAX_TOTAL: usize = 64 * 1024;
/// Deepest nesting of settings; the config as a whole has 64 levels.
const MAX_LEVELS: usize = 16;
/// Longest key; the reader of YAML takes at most 1024 characters.
const MAX_KEY: usize = 256;

/// The filters that tenants may use, with their settings.
const ALLOWED: &[(&str, &[&str])] = &[
    ("body_limit", &["max"]),
    ("compress", &["algorithms", "minimum", "types", "levels"]),
    ("concurrency", &["requests", "by", "queue", "wait"]),
    ("headers", &["request", "response"]),
    ("ip", &["allow", "deny"]),
    ("rate_limit", &["requests", "per", "by", "burst"]),
    ("request_id", &["header"]),
    ("respond", &["status", "body", "headers"]),
    ("security_headers", &[]),
    ("timeout", &["exchange"]),
];

/// The filters of a WeirFilters in the route's own namespace.
///
/// # Errors
/// Why the rule cannot be served. A filter must not be skipped.
pub(super) fn filters(
    cx: &Cx<'_>,
    namespace: &str,
    reference: &CertificateRef,
    findings: &mut Findings,
) -> Result<Vec<Value>, Problem> {
    if !is_kind(reference.group.as_deref(), reference.kind.as_deref(), Kind::Service, Kind::WeirFilters) {
        let message = format!(
            "an ExtensionRef to the kind {} is not supported",
            shown(reference.kind.as_deref().unwrap_or_default())
        );
        findings.unresolved(Problem::new("InvalidKind", message.clone()));
        return Err(unsupported(message));
    }
    let name = Name::new(namespace, &reference.name);
    let Some(object) = cx.lookups.filters(&name) else {
        let message = format!("there is no WeirFilters {}", shown(&name.to_string()));
        findings.unresolved(Problem::new("BackendNotFound", message.clone()));
        return Err(unsupported(message));
    };
    let all = &object.spec.filters;
    let wrong = |why: String| unsupported(format!("WeirFilters {name}: {why}"));
    if all.len() > MAX_FILTERS {
        return Err(wrong(format!("more than {MAX_FILTERS} filters")));
    }
    if all.iter().map(|filter| filter.to_string().len()).sum::<usize>() > MAX_TOTAL {
        return Err(wrong(format!("its filters are longer than {MAX_TOTAL} bytes")));
    }
    all.iter().map(|filter| allowed(filter).map_err(wrong)).collect()
}

/// The filters that annotations may become besides those of [`ALLOWED`].
const OF_ANNOTATIONS: &[(&str, &[&str])] = &[
    ("cookies", &["*"]),
    ("cors", &["credentials", "expose", "headers", "max_age", "methods", "origins"]),
    ("redirect", &["https", "keep_query", "status", "to"]),
    ("rewrite", &["path"]),
];

/// Whether annotations may become this filter.
///
/// # Errors
/// Why not.
pub(super) fn allowed_of_annotation(filter: &Value) -> Result<(), String> {
    let Some((name, settings)) = entry(filter) else { return Err("it is no filter".to_owned()) };
    if name == "when" {
        // The condition is made of addresses.
        let lists = ["filters", "otherwise"].into_iter().filter_map(|key| settings.get(key)?.as_array());
        return lists.flatten().try_for_each(allowed_of_annotation);
    }
    match OF_ANNOTATIONS.iter().find(|(allowed, _)| allowed == name) {
        Some((_, keys)) => permitted(name, settings, keys),
        None => allowed(filter).map(drop),
    }
}

fn entry(filter: &Value) -> Option<(&String, &Value)> {
    filter.as_object().filter(|map| map.len() == 1).and_then(|map| map.iter().next())
}

/// A filter, if tenants may use it as it is written.
fn allowed(filter: &Value) -> Result<Value, String> {
    let Some((name, settings)) = entry(filter) else {
        return Err("a filter is a map of its name to its settings, such as { rate_limit: { … } }".to_owned());
    };
    let Some((_, keys)) = ALLOWED.iter().find(|(allowed, _)| allowed == name) else {
        let names: Vec<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
        return Err(format!("`{}` is not allowed here; these are: {}", shown(name), names.join(", ")));
    };
    permitted(name, settings, keys)?;
    Ok(filter.clone())
}

/// Whether settings have only these keys, and values that tenants may write.
fn permitted(name: &str, settings: &Value, keys: &[&str]) -> Result<(), String> {
    if settings.to_string().len() > MAX_SETTINGS {
        return Err(format!("the settings of {name} are longer than {MAX_SETTINGS} bytes"));
    }
    for key in settings.as_object().into_iter().flatten().map(|(key, _)| key) {
        if !keys.contains(&key.as_str()) {
            return Err(format!(
                "`{name}.{}` is not allowed here; these are: {}",
                shown(key),
                keys.join(", ")
            ));
        }
    }
    bounded(settings, MAX_LEVELS)
}

/// Whether the config can hold a value, and whether it speaks of the operator's maps or consumers.
fn bounded(value: &Value, levels: usize) -> Result<(), String> {
    let levels = levels.checked_sub(1).ok_or("its settings are nested too deeply")?;
    match value {
        Value::Array(all) => all.iter().try_for_each(|value| bounded(value, levels)),
        Value::Object(all) => {
            all.iter().try_for_each(|(key, value)| match key == "<<" || key.len() > MAX_KEY {
                true => Err(format!("`{}` is no key", shown(key))),
                false => bounded(value, levels),
            })
        }
        Value::String(text) if text.contains("{=") || text.starts_with('=') => {
            let foreign = ["maps", "consumer"].into_iter().find(|word| text.contains(*word));
            foreign.map_or(Ok(()), |word| Err(format!("an expression may not read {word}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_reaches_outside() {
        for (filter, is_allowed) in [
            (json!({ "rate_limit": { "requests": 1, "per": "1s" } }), true),
            (json!({ "security_headers": {} }), true),
            (json!({ "body_limit": { "max": "1MiB" } }), true),
            (json!({ "rate_limit": { "requests": 1, "per": "1s", "store": "shared" } }), false),
            (json!({ "ip": { "file": "/var/run/secrets/kubernetes.io/serviceaccount/token" } }), false),
            (json!({ "forward_auth": { "url": "http://169.254.169.254/" } }), false),
            (json!({ "jwt": { "keys": "file:/etc/passwd" } }), false),
            (json!({ "mirror": { "upstream": "svc_other_x_80" } }), false),
            (json!({ "errors": { "5xx": { "body": "${file:/etc/passwd}" } } }), false),
            (json!({ "ext_proc": { "upstream": "svc_other_x_80" } }), false),
            (json!({ "when": { "is": "true", "filters": [ { "jwt": {} } ] } }), false),
            (json!({ "headers": {}, "jwt": {} }), false),
            (json!("headers"), false),
        ] {
            assert_eq!(allowed(&filter).is_ok(), is_allowed, "{filter}");
        }
    }
}
