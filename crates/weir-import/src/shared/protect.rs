//! Moves the secrets of a source out of the files that anybody may read.
//!
//! Every importer calls [`Config::secret`] for credentials that it knows as such. This pass looks at the whole config
//! once more, for secrets at other places: passwords and tokens in URLs, fields such as Authorization, variables of
//! scripts. They become variables, too. Where Weir takes no variable (keys of maps, conditions), the text is kept in
//! [`Config::private`], and every file that holds it is written with mode 0600.

use crate::config::{Config, Filter, Target};
use crate::redact::{is_literal, is_random, is_secret_name, within_random as within};
use crate::yaml::{Map, VARIABLE_BEGIN, Value, escaped};
use aho_corasick::{AhoCorasick, MatchKind};
use std::collections::BTreeSet;

/// Filters whose `headers` have names of claims as values.
const CLAIMS: &[&str] = &["jwt", "mtls_auth", "oidc"];

/// Moves all secrets of a config.
pub(crate) fn protect(config: &mut Config) {
    let mut found = Finder::default();
    let known: BTreeSet<String> = config.secrets.iter().map(|(name, _)| name.clone()).collect();
    let mut routes = std::mem::take(&mut config.routes);
    for (_, route) in routes.iter_mut() {
        for (name, value) in route.matches.headers.iter().chain(&route.matches.query) {
            if is_secret_name(name) && is_literal(value) {
                found.private.push(value.trim_start_matches('~').to_owned());
            }
        }
        found.condition(route.matches.when.as_deref().unwrap_or_default());
        for path in route.matches.path.iter().chain(&route.matches.more_paths) {
            found.texts(path);
        }
        match route.matches.more.get("path") {
            Some(Value::List(paths)) => paths.iter().for_each(|path| {
                if let Value::Text(path) = path {
                    found.texts(path);
                }
            }),
            Some(Value::Text(path)) => found.texts(path),
            _ => {}
        }
        found.filters(&mut route.filters, config);
        found.map(&mut route.more, config);
        match &mut route.target {
            Some(Target::Respond(map) | Target::Files(map)) => found.map(map, config),
            Some(Target::FastCgi { fastcgi, files, .. }) => {
                found.map(fastcgi, config);
                if let Some(files) = files {
                    found.map(files, config);
                }
            }
            Some(Target::Upstream(_) | Target::Split(_)) | None => {}
        }
    }
    config.routes = routes;
    let mut filters = std::mem::take(&mut config.filters);
    found.filters(&mut filters, config);
    config.filters = filters;
    let mut more = std::mem::take(&mut config.more);
    found.map(&mut more, config);
    config.more = more;
    let mut upstreams = std::mem::take(&mut config.upstreams);
    for (_, upstream) in upstreams.iter_mut() {
        for endpoint in &upstream.endpoints {
            found.texts(&endpoint.address);
        }
        found.map(&mut upstream.more, config);
    }
    config.upstreams = upstreams;
    let mut listeners = std::mem::take(&mut config.listeners);
    listeners.iter_mut().for_each(|(_, listener)| found.map(&mut listener.more, config));
    config.listeners = listeners;
    let mut stores = std::mem::take(&mut config.stores);
    stores.iter_mut().for_each(|(_, store)| found.map(store, config));
    config.stores = stores;
    let mut consumers = std::mem::take(&mut config.consumers);
    consumers.iter_mut().for_each(|(_, consumer)| found.map(consumer, config));
    config.consumers = consumers;
    for (name, map) in config.maps.iter() {
        found.table(map);
        if found.asked.contains(name) {
            found.values(map);
        }
    }
    for text in config.files.values() {
        found.texts(text);
    }
    for case in &config.tests {
        found.texts(&case.url);
        for (name, value) in &case.headers {
            if is_secret_name(name) && is_literal(value) {
                found.private.push(value.clone());
            }
        }
    }
    // What became a variable here may stand elsewhere as well, for instance in a test.
    let moved = config.secrets.iter().filter(|(name, _)| !known.contains(name));
    config.private.extend(moved.map(|(_, value)| value.clone()));
    config.private.extend(found.private);
}

/// Shortest secret that a report is searched for: shorter ones are parts of many words.
const SHORTEST: usize = 4;

/// A text for a report without the secrets of a config, and without `more` of them.
pub(crate) fn masked(config: &Config, more: &[String]) -> impl Fn(&str) -> String + use<> {
    let known = config.secrets.iter().filter(|(name, _)| !config.placeholders.contains(name));
    let mut secrets: Vec<String> =
        known.map(|(_, value)| value).chain(&config.private).chain(more).cloned().collect();
    // A credential is a user and a password.
    let parts: Vec<String> =
        secrets.iter().filter_map(|secret| Some(secret.split_once(':')?.1.to_owned())).collect();
    secrets.extend(parts);
    secrets.retain(|secret| secret.len() >= SHORTEST && !secret.starts_with('/'));
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.dedup();
    let found = (!secrets.is_empty())
        .then(|| AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&secrets));
    let found = found.and_then(Result::ok);
    move |text: &str| {
        let Some(found) = &found else { return text.to_owned() };
        let mut out = String::new();
        let mut end = 0;
        let is_part = |c: char| c.is_ascii_alphanumeric();
        for one in found.find_iter(text) {
            let within = text[..one.start()].chars().next_back().is_some_and(is_part)
                || text[one.end()..].chars().next().is_some_and(is_part);
            if !within {
                out.push_str(&text[end..one.start()]);
                out.push_str("***");
                end = one.end();
            }
        }
        out.push_str(&text[end..]);
        out
    }
}

#[derive(Default)]
struct Finder {
    /// Secrets that stay where they are.
    private: Vec<String>,
    /// Names of maps whose values are secrets, because a secret is set to them.
    asked: BTreeSet<String>,
}

impl Finder {
    fn filters(&mut self, filters: &mut [Filter], config: &mut Config) {
        for filter in filters {
            let mut one =
                Map::new().with(filter.name, std::mem::replace(&mut filter.settings, Value::Bool(true)));
            self.map(&mut one, config);
            if let Some(settings) = one.get(filter.name) {
                filter.settings = settings.clone();
            }
        }
    }

    fn map(&mut self, map: &mut Map, config: &mut Config) {
        for (key, value) in map.iter_mut() {
            match value {
                Value::Map(claims) if CLAIMS.contains(&key) => {
                    for (key, value) in claims.iter_mut().filter(|(key, _)| *key != "headers") {
                        self.value(key, value, config);
                    }
                }
                value => self.value(key, value, config),
            }
        }
    }

    /// The value of a key.
    fn value(&mut self, key: &str, value: &mut Value, config: &mut Config) {
        match value {
            Value::Map(map) => self.map(map, config),
            Value::List(list) => list.iter_mut().for_each(|value| self.value(key, value, config)),
            Value::Block(text) | Value::Literal(text) | Value::LiteralBlock(text) => self.texts(text),
            Value::Text(text) if (is_secret_name(key) || is_random(text)) && is_whole(text) => {
                *value = config.secret(key, text);
            }
            Value::Text(text) => {
                self.condition(text);
                if is_secret_name(key) {
                    self.asked.extend(maps_of(text));
                }
                match moved(text, config) {
                    Some(moved) => *value = moved,
                    None => self.texts(text),
                }
            }
            Value::WithVariables(text) => self.texts(text),
            Value::Number(_) | Value::Bool(_) | Value::Plain(_) => {}
        }
    }

    /// Secrets of a text in which nothing is moved.
    fn texts(&mut self, text: &str) {
        self.private.extend(within(text).into_iter().map(|found| text[found.range].to_owned()));
    }

    /// A condition that compares with a secret: `request.headers["x-api-key"] == "abc"`.
    fn condition(&mut self, text: &str) {
        let literals = literals(text);
        let by_form = |literal: &&String| is_random(literal) || !within(literal).is_empty();
        self.private.extend(literals.iter().filter(by_form).cloned());
        // The same condition may ask for a host or a path.
        for clause in clauses(text) {
            let literals = literals_of(clause);
            // A parameter is also looked for in the query as it came: `"&sig="`.
            let name = |literal: &str, is_key: bool| match literal.strip_prefix('&') {
                Some(parameter) => parameter.strip_suffix('=').is_some_and(is_secret_name),
                None => is_key && is_secret_name(literal),
            };
            if literals.iter().any(|(literal, is_key)| name(literal, *is_key)) {
                let is_value =
                    |literal: &str, is_key: bool| !is_key && is_literal(literal) && !literal.starts_with('&');
                let values = literals.into_iter().filter(|(literal, is_key)| is_value(literal, *is_key));
                self.private.extend(values.map(|(literal, _)| literal));
            }
        }
    }

    /// A map whose values are secrets.
    fn values(&mut self, map: &Map) {
        let values = match map.get("values") {
            Some(Value::Map(values)) => values.iter().map(|(_, value)| value.clone()).collect(),
            _ => Vec::new(),
        };
        for value in values.iter().chain(map.get("default")) {
            if let Value::Text(text) = value {
                self.private.push(text.clone());
            }
        }
    }

    /// A map that is asked for a secret.
    fn table(&mut self, map: &Map) {
        let asks = match map.get("of") {
            Some(Value::Text(of)) => literals(of).iter().any(|literal| is_secret_name(literal)),
            _ => false,
        };
        let Some(Value::Map(values)) = map.get("values") else { return };
        for (key, value) in values.iter() {
            if asks || is_random(key) || !within(key).is_empty() {
                self.private.push(key.trim_start_matches('~').trim_end_matches('*').to_owned());
            }
            if let Value::Text(text) = value {
                self.texts(text);
                if is_random(text) {
                    self.private.push(text.clone());
                }
            }
        }
    }
}

/// The maps that a text asks.
fn maps_of(text: &str) -> Vec<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let names = text.split("maps.").skip(1);
    names.map(|rest| rest.split(|c| !is_name(c)).next().unwrap_or_default().to_owned()).collect()
}

/// Whether a whole text can be a secret: one line, and no value of the request.
fn is_whole(text: &str) -> bool {
    is_literal(text) && !text.starts_with("= ") && !text.contains('{') && !text.contains(['\n', '\r'])
}

/// A text whose secrets are variables, if it has some.
fn moved(text: &str, config: &mut Config) -> Option<Value> {
    let found = within(text);
    if found.is_empty() || text.contains(VARIABLE_BEGIN) || text.starts_with("= ") || text.contains("{= ") {
        return None;
    }
    let (mut out, mut end) = (String::new(), 0);
    for one in found {
        out.push_str(&escaped(&text[end..one.range.start]));
        end = one.range.end;
        match config.secret(&one.name, &text[one.range.clone()]) {
            Value::WithVariables(variable) => out.push_str(&variable),
            _ => out.push_str(&escaped(&text[one.range])),
        }
    }
    out.push_str(&escaped(&text[end..]));
    Some(Value::WithVariables(out))
}

/// The parts of an expression between `&&`, `||`, `?` and `:`, which each compare one thing.
fn clauses(text: &str) -> Vec<&str> {
    let (mut all, mut from, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            // `a ?? b` is one value.
            '?' if text[at + 1..].starts_with('?') || text[..at].ends_with('?') => {}
            '&' | '|' | '?' | ':' if !is_quoted => {
                all.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    all.push(&text[from..]);
    all
}

/// The texts in quotes of an expression.
fn literals(text: &str) -> Vec<String> {
    literals_of(text).into_iter().map(|(literal, _)| literal).collect()
}

/// The same, with whether each is the key of something: `request.headers["x"]`, and not an element of a list.
fn literals_of(text: &str) -> Vec<(String, bool)> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('"') {
        let before = rest[..open].strip_suffix('[').and_then(|before| before.chars().next_back());
        let is_key = before.is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ']' | ')'));
        let (mut literal, mut close) = (String::new(), None);
        let mut chars = rest[open + 1..].char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => literal.extend(chars.next().map(|(_, c)| c)),
                '"' => {
                    close = Some(open + 1 + at + 1);
                    break;
                }
                c => literal.push(c),
            }
        }
        all.push((literal, is_key));
        match close {
            Some(close) => rest = &rest[close..],
            None => break,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_compared_with_a_secret_is_private() {
        for (condition, private) in [
            (r#"request.host == "app.test" && request.headers["x-api-key"] == "abc""#, vec!["abc"]),
            (
                r#"request.headers["x-token"] in ["abc", "de\"f"] || request.path == "/x""#,
                vec!["abc", "de\"f"],
            ),
            (r#""abc" == request.args["token"] ? request.host == "a.test" : true"#, vec!["abc"]),
            (r#"(request.headers["x-a"] ?? request.headers["x-token"]) == "abc""#, vec!["abc"]),
            (
                r#"!(("&" + request.query).substring(("&" + request.query).indexOf("&sig=") + 5) == "abc")"#,
                vec!["abc"],
            ),
            (r#"request.headers["x-a"] == "authorization" && request.host == "b.test""#, vec![]),
            (r#"request.cookies["session_token"].startsWith("a?b") && request.method == "GET""#, vec!["a?b"]),
        ] {
            let mut found = Finder::default();
            found.condition(condition);
            assert_eq!(found.private, private, "{condition}");
        }
    }
}
