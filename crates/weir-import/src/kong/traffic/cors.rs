//! The plugin `cors`.

use super::super::plugins::Use;
use super::same;
use crate::config::Filter;
use crate::shared::tree::Fields;
use crate::shared::units;
use crate::yaml::Map;

pub(super) fn cors(of: &mut Use<'_, '_>, fields: &mut Fields<'_>) -> Vec<Filter> {
    let mut map = Map::new();
    let mut origins = Vec::new();
    let credentials = fields.flag("credentials", of.ledger);
    let with_credentials = credentials.is_some_and(|(flag, _)| flag);
    match fields.texts("origins", of.ledger) {
        Some((listed, piece)) => {
            for origin in listed {
                let is_plain = origin == "*" || origin == "null" || {
                    origin.contains("://")
                        && origin.chars().all(|c| c.is_ascii_alphanumeric() || ":/.-_[]".contains(c))
                };
                // The usual pattern for subdomains.
                let subdomains = origin
                    .trim_start_matches('^')
                    .trim_end_matches('$')
                    .replace("\\.", ".")
                    .replace(".*.", "*.")
                    .replace(".+.", "*.")
                    .replace("(.*).", "*.");
                match is_plain {
                    true => origins.push(origin.trim_end_matches('/').to_owned()),
                    false
                        if subdomains.split("://*.").nth(1).is_some_and(|rest| {
                            rest.chars().all(|c| c.is_ascii_alphanumeric() || ".-:".contains(c))
                        }) =>
                    {
                        of.ledger.changed(piece, "the pattern is written as `*.`: subdomains only");
                        origins.push(subdomains);
                    }
                    false => of.ledger.refused(
                        piece,
                        format!("the pattern `{origin}` of an origin"),
                        "cors: { origins: [ \"https://*.example.com\" ] }",
                    ),
                }
            }
            of.ledger.same(piece);
        }
        None => origins.push("*".to_owned()),
    }
    if let Some((flag, piece)) = credentials {
        match flag && origins.iter().any(|origin| origin == "*" || origin == "null") {
            true => of.ledger.refused(
                piece,
                "with every origin, any page could read what a user may read",
                "name the origins in cors: { origins, credentials: true }",
            ),
            false => of.ledger.same(piece),
        }
    }
    let everyone = origins.iter().any(|origin| origin == "*" || origin == "null");
    if origins.is_empty() {
        origins.push("https://origin.invalid".to_owned());
    }
    map.set("origins", origins);
    if with_credentials && !everyone {
        map.set("credentials", true);
    }
    match fields.texts("methods", of.ledger) {
        Some((methods, piece)) => {
            map.set("methods", methods);
            of.ledger.same(piece);
        }
        None => map.set(
            "methods",
            vec!["GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS", "TRACE", "CONNECT"],
        ),
    }
    let headers = same(fields.texts("headers", of.ledger), of.ledger).filter(|headers| !headers.is_empty());
    map.set(
        "headers",
        headers
            .unwrap_or_else(|| vec!["*".to_owned()])
            .iter()
            .map(|name| name.to_ascii_lowercase())
            .collect::<Vec<_>>(),
    );
    if let Some(expose) =
        same(fields.texts("exposed_headers", of.ledger), of.ledger).filter(|expose| !expose.is_empty())
    {
        map.set("expose", expose.iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>());
    }
    if let Some(seconds) = same(fields.number("max_age", of.ledger), of.ledger) {
        map.set("max_age", units::duration(seconds.saturating_mul(1000)));
    }
    if let Some((true, piece)) = fields.flag("preflight_continue", of.ledger) {
        of.ledger.refused(
            piece,
            "Weir always answers preflights itself",
            "leave the filter cors out: the service answers",
        );
    }
    if let Some(true) = same(fields.flag("private_network", of.ledger), of.ledger) {
        map.set("private_network", true);
    }
    if let Some((_, piece)) = fields.flag("allow_origin_absent", of.ledger) {
        of.ledger.by_itself(piece, "a request without Origin passes");
    }
    vec![Filter::new("cors", map)]
}
