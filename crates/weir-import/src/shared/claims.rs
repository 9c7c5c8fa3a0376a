//! Conditions on what a proxy says of the client: `X-Real-IP`, `X-Forwarded-For` and their like.
//!
//! Weir drops these fields of clients that `trusted_proxies` does not name, because anybody can send them. So a
//! translated condition on one never holds, and a guard would not act. Its line is refused, and its requests get 503
//! until somebody sets `trusted_proxies`. Lines with other conditions are reported as changed.

use super::filters::closed;
use crate::config::{Config, Filter, Match, Route, Target};
use crate::ledger::{Ledger, Piece};
use crate::yaml::{Map, Value};
use std::collections::BTreeMap;

/// Fields that Weir takes from trusted proxies only.
const CLAIMS: &[&str] = &[
    "forwarded",
    "front-end-https",
    "x-envoy-external-address",
    "x-envoy-internal",
    "x-envoy-original-host",
    "x-envoy-original-path",
    "x-forwarded-by",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-original-url",
    "x-real-ip",
    "x-rewrite-url",
    "x-scheme",
    "x-url-scheme",
];

/// What is told of a line that reads such a field.
fn why(claim: &str) -> String {
    format!(
        "Weir drops `{claim}` of clients that trusted_proxies does not name, so here the field is never there: name the \
         proxy before Weir"
    )
}

const NEAREST: &str = "trusted_proxies: [the networks of the proxies before Weir]; then remove the filter `respond` \
                       that closes it";

/// Judges the lines that read such fields, and closes the guards among them. Does nothing if the config already has
/// `trusted_proxies`.
pub(crate) fn judge(config: &mut Config, ledger: &mut Ledger) {
    if config.more.get("trusted_proxies").is_some() {
        return;
    }
    let reader = Reader { of_maps: of_maps(config) };
    let mut found: Vec<(Option<String>, &'static str, bool)> = Vec::new();
    reader.filters(&mut config.filters, |claim, is_guard| found.push((None, claim, is_guard)));
    // Routes that only refuse, by the file of their site.
    let mut guards: BTreeMap<String, (String, &'static str)> = BTreeMap::new();
    for (name, route) in config.routes.iter_mut() {
        reader.filters(&mut route.filters, |claim, is_guard| {
            found.push((Some(name.to_owned()), claim, is_guard));
        });
        if let Some(claim) = reader.matches(&route.matches) {
            let is_guard = refuses(route);
            found.push((Some(name.to_owned()), claim, is_guard));
            if is_guard {
                guards.insert(route.file.clone(), (name.to_owned(), claim));
            }
        }
    }
    // Without its condition, what such a route refuses goes to the others of its site.
    for (_, route) in config.routes.iter_mut() {
        if let Some((guard, claim)) = guards.get(&route.file).filter(|_| !refuses(route)) {
            let why = format!("the route {guard} asks for {claim}, which only trusted_proxies may send");
            route.filters.insert(0, closed(&why));
        }
    }
    for (route, claim, is_guard) in found {
        let own = route.and_then(|route| config.origins.get(&route)).map_or(&[][..], Vec::as_slice);
        let mut pieces = ledger.pieces(Some(own), |text| reads(text, claim));
        if pieces.is_empty() {
            pieces = ledger.pieces(None, |text| reads(text, claim));
        }
        if pieces.is_empty() {
            pieces.extend(own.first());
        }
        let why = why(claim);
        if pieces.is_empty() {
            ledger.note(why);
        } else {
            tell(ledger, &pieces, &why, is_guard);
        }
    }
}

fn tell(ledger: &mut Ledger, pieces: &[Piece], why: &str, is_guard: bool) {
    for piece in pieces {
        if is_guard {
            ledger.refused(*piece, format!("{why}. Until then its requests get 503"), NEAREST);
        } else {
            ledger.changed(*piece, why.to_owned());
        }
    }
}

/// The maps that look at such a field.
fn of_maps(config: &Config) -> BTreeMap<String, &'static str> {
    let of = |map: &Map| match map.get("of") {
        Some(Value::Text(of)) => of_text(of),
        _ => None,
    };
    config.maps.iter().filter_map(|(name, map)| Some((name.to_owned(), of(map)?))).collect()
}

/// The field that an expression looks at.
fn of_text(text: &str) -> Option<&'static str> {
    let text = text.replace('\\', "").replace('\'', "\"");
    CLAIMS.iter().find(|claim| text.contains(&format!("request.headers[\"{claim}\"]"))).copied()
}

struct Reader {
    of_maps: BTreeMap<String, &'static str>,
}

impl Reader {
    fn text(&self, text: &str) -> Option<&'static str> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let asks = |name: &str| {
            let word = format!("maps.{name}");
            text.match_indices(&word).any(|(at, _)| !text[at + word.len()..].starts_with(is_part))
        };
        of_text(text).or_else(|| self.of_maps.iter().find(|(name, _)| asks(name)).map(|(_, claim)| *claim))
    }

    /// The fields that values of settings are made of.
    fn values(&self, text: &str) -> Vec<&'static str> {
        let text = text.replace('\\', "").replace('\'', "\"");
        let reads = |claim: &&&str| {
            text.contains(&format!("request.headers[\"{claim}\"]"))
                || text.contains(&format!("header:{claim}"))
        };
        CLAIMS.iter().filter(|claim| reads(claim)).copied().collect()
    }

    /// Finds conditions among filters, and puts a filter that closes the route before each guard.
    fn filters(&self, filters: &mut Vec<Filter>, mut found: impl FnMut(&'static str, bool)) {
        let mut at = 0;
        while let Some(filter) = filters.get(at) {
            at += 1;
            let text = Map::new().with("f", filter.settings.clone()).to_yaml();
            let condition = match (filter.name, &filter.settings) {
                ("when" | "acl", Value::Map(map)) => map.get("is").cloned(),
                // A value, or what requests are counted by.
                _ => {
                    self.values(&text).into_iter().for_each(|claim| found(claim, false));
                    None
                }
            };
            let Some(Value::Text(is)) = condition else { continue };
            let Some(claim) = self.text(&is) else { continue };
            let is_guard = filter.name == "acl"
                || text.contains("acl:")
                || has_refusal(&text)
                || text.contains("redirect:") && loops(claim, &is);
            found(claim, is_guard);
            if is_guard {
                let why =
                    format!("the guard behind it asks for {claim}, which only trusted_proxies may send");
                filters.insert(at - 1, closed(&why));
                at += 1;
            }
        }
    }

    fn matches(&self, matches: &Match) -> Option<&'static str> {
        let named = |name: &String| CLAIMS.iter().find(|claim| name.eq_ignore_ascii_case(claim)).copied();
        let of_field = matches.headers.iter().find_map(|(name, _)| named(name));
        of_field.or_else(|| self.text(matches.when.as_deref()?))
    }
}

/// Whether a redirect under this condition never ends: it applies until the field says `https`, which no client may.
fn loops(claim: &str, is: &str) -> bool {
    const OF_SCHEME: &[&str] =
        &["front-end-https", "x-forwarded-proto", "x-forwarded-scheme", "x-forwarded-ssl", "x-scheme"];
    OF_SCHEME.contains(&claim) && is.contains('!')
}

/// Whether settings answer with 4xx or 5xx.
fn has_refusal(text: &str) -> bool {
    text.contains("respond:") && ["status: 4", "status: 5"].iter().any(|status| text.contains(status))
}

/// Whether a route only refuses.
fn refuses(route: &Route) -> bool {
    let is_error = |map: &Map| matches!(map.get("status"), Some(Value::Number(400..=599)));
    match &route.target {
        Some(Target::Respond(map)) => is_error(map),
        None => route.filters.iter().any(|filter| {
            filter.name == "respond" && matches!(&filter.settings, Value::Map(map) if is_error(map))
        }),
        _ => false,
    }
}

/// Whether a statement reads a field, and does not only set it for the upstream.
fn reads(text: &str, claim: &str) -> bool {
    const SETS: &[&str] =
        &["fastcgi-param", "grpc-set-header", "header-up", "proxy-set-header", "http-request set-header"];
    let text = text.to_ascii_lowercase().replace('_', "-");
    text.contains(&format!("http-{claim}"))
        || (text.contains(claim) && !SETS.iter().any(|start| text.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reads_a_field_is_told_from_what_sets_it() {
        for (text, is) in [
            ("if ($http_x_real_ip = 10.0.0.1)", true),
            ("map $http_x_real_ip $bad", true),
            ("proxy_set_header X-Real-IP $remote_addr", false),
            ("proxy_set_header X-Y $http_x_real_ip", true),
            ("acl bad hdr_ip(X-Real-IP) 10.1.0.0/16", true),
            ("@bad header X-Real-IP 10.0.0.1", true),
            ("header_up X-Real-IP {remote_host}", false),
            ("if ($http_x_real = 1)", false),
        ] {
            assert_eq!(reads(text, "x-real-ip"), is, "{text}");
        }
        assert_eq!(of_text("ip(request.headers['x-real-ip']) in [\"10.0.0.0/8\"]"), Some("x-real-ip"));
        assert_eq!(of_text("request.headers[\"x-real-ip-2\"] == \"\""), None);
    }
}
