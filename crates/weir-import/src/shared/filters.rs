//! The filters that every system has.

use super::expression::Expression;
use crate::config::Filter;
use crate::yaml::{Map, Value};

/// `redirect: { to, status }`. `keep_query` is written only where it is not the default.
#[must_use]
pub fn redirect(to: &str, status: u16, keep_query: bool) -> Filter {
    let mut map = Map::new().with("to", to);
    if status != 308 {
        map.set("status", status);
    }
    if !keep_query {
        map.set("keep_query", false);
    }
    Filter::new("redirect", map)
}

/// `redirect: { https: true }`.
#[must_use]
pub fn redirect_to_https(status: u16) -> Filter {
    let mut map = Map::new().with("https", true);
    if status != 308 {
        map.set("status", status);
    }
    Filter::new("redirect", map)
}

/// `respond`, with what it needs.
#[must_use]
pub fn respond(status: u16, body: Option<String>, content_type: Option<&str>) -> Map {
    let mut map = Map::new().with("status", status);
    map.set_some("body", body.filter(|body| !body.is_empty()));
    if let Some(content_type) = content_type {
        map.set("headers", Map::new().with("content-type", content_type));
    }
    map
}

/// `when: { is, filters, otherwise }`, or the list that always runs if the expression is a constant.
#[must_use]
pub fn when(is: &Expression, filters: Vec<Filter>, otherwise: Vec<Filter>) -> Vec<Filter> {
    match is.as_constant() {
        Some(true) => return filters,
        Some(false) => return otherwise,
        None => {}
    }
    let list = |filters: &[Filter]| Value::List(filters.iter().map(Filter::to_value).collect());
    let mut map = Map::new().with("is", is.as_str());
    if !filters.is_empty() {
        map.set("filters", list(&filters));
    }
    if !otherwise.is_empty() {
        map.set("otherwise", list(&otherwise));
    }
    vec![Filter::new("when", map)]
}

/// `body_limit: { max }`; none for no limit.
#[must_use]
pub fn body_limit(bytes: u64) -> Option<Filter> {
    (bytes > 0).then(|| Filter::new("body_limit", Map::new().with("max", super::units::size(bytes))))
}

/// Changes to fields: `headers: { request, response }`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Headers {
    /// Names and values, `set` of the request.
    pub request_set: Vec<(String, Value)>,
    /// Names and values, `add` of the request.
    pub request_add: Vec<(String, Value)>,
    /// Names, `remove` of the request.
    pub request_remove: Vec<String>,
    /// Names and values, `set` of the response.
    pub response_set: Vec<(String, Value)>,
    /// Names and values, `add` of the response.
    pub response_add: Vec<(String, Value)>,
    /// Names, `remove` of the response.
    pub response_remove: Vec<String>,
}

impl Headers {
    /// Keeps the client's own value of a request field from the upstream, where the source overwrites it with a value
    /// that Weir lacks. The gateway removes `x_user` with `x-user`.
    pub fn withhold(&mut self, name: &str) {
        /// Fields that the gateway writes itself: it drops what clients claim in them.
        const OWN: &[&str] = &[
            "connection",
            "content-length",
            "expect",
            "forwarded",
            "host",
            "keep-alive",
            "proxy-connection",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
        ];
        let name = name.to_ascii_lowercase().replace('_', "-");
        if !OWN.contains(&&*name) && !self.request_remove.contains(&name) {
            self.request_remove.push(name);
        }
    }

    /// The filter, if there is a change.
    #[must_use]
    pub fn filter(&self) -> Option<Filter> {
        let one = |set: &[(String, Value)], add: &[(String, Value)], remove: &[String]| {
            let mut map = Map::new();
            for (key, pairs) in [("set", set), ("add", add)] {
                if !pairs.is_empty() {
                    let mut inner = Map::new();
                    pairs
                        .iter()
                        .for_each(|(name, value)| inner.set(name.to_ascii_lowercase(), value.clone()));
                    map.set(key, inner);
                }
            }
            if !remove.is_empty() {
                map.set("remove", remove.iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>());
            }
            map
        };
        let request = one(&self.request_set, &self.request_add, &self.request_remove);
        let response = one(&self.response_set, &self.response_add, &self.response_remove);
        let mut map = Map::new();
        if !request.is_empty() {
            map.set("request", request);
        }
        if !response.is_empty() {
            map.set("response", response);
        }
        (!map.is_empty()).then(|| Filter::new("headers", map))
    }
}

/// Answers nobody, until a person has decided about something that may be what protects a route.
#[must_use]
pub fn closed(why: &str) -> Filter {
    let body = "This route is closed until its import is finished.\n".to_owned();
    Filter::new("respond", respond(503, Some(body), None))
        .because(format!("CLOSED by weir import: {why}. Decide, then remove this."))
}

/// Whether a filter is one of [`closed`].
pub(crate) fn closes(filter: &Filter) -> bool {
    filter.name == "respond" && filter.comment.iter().any(|line| line.starts_with("CLOSED by weir import"))
}

/// Whether a filter answers every request that reaches it. A [`closed`] filter does not count: a person removes it
/// later, and then needs what is behind it.
#[must_use]
pub fn answers(filter: &Filter) -> bool {
    let has = |key: &str| matches!(&filter.settings, Value::Map(map) if map.get(key).is_some());
    (filter.name == "respond" || filter.name == "redirect" && has("to")) && !closes(filter)
}

/// Closes routes whose callers nobody could be, because no consumer has such a credential. Weir refuses such filters.
pub fn close_without_consumers(config: &mut crate::config::Config) {
    let has = |key: &str| config.consumers.iter().any(|(_, consumer)| consumer.get(key).is_some());
    let missing: Vec<&str> = ["key_auth", "basic_auth"].into_iter().filter(|key| !has(key)).collect();
    // The users of a file need no consumers.
    let has_file = |settings: &Value| matches!(settings, Value::Map(map) if map.get("file").is_some());
    let is_missing = |value: &Value| match value {
        Value::Map(map) => missing.iter().any(|key| map.get(key).is_some_and(|settings| !has_file(settings))),
        _ => false,
    };
    for (_, route) in config.routes.iter_mut() {
        for filter in &mut route.filters {
            if let ("any", Value::List(members)) = (filter.name, &mut filter.settings) {
                members.retain(|member| !is_missing(member));
            }
            let is_empty = matches!(&filter.settings, Value::List(members) if members.is_empty());
            let is_unused = missing.contains(&filter.name) && !has_file(&filter.settings);
            if is_unused || filter.name == "any" && is_empty {
                let body = "This route is closed: no consumer could call it.\n".to_owned();
                let why = format!("Closed: no consumer has what {} asks for.", filter.name);
                *filter = Filter::new("respond", respond(503, Some(body), None)).because(why);
            }
        }
    }
}

/// Clients by address: `ip: { allow, deny }`.
#[must_use]
pub fn ip(allow: &[String], deny: &[String]) -> Filter {
    let mut map = Map::new();
    if !allow.is_empty() {
        map.set("allow", allow.to_vec());
    }
    if !deny.is_empty() {
        map.set("deny", deny.to_vec());
    }
    Filter::new("ip", map)
}
