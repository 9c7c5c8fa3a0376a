//! What a config of ours distinguishes, so that witnesses can test it. It is read from the config's tree, whatever
//! system the config came from.
//!
//! A proof reads two configs this way: the one in the folder, and the one that the importer would write now. If a value
//! was changed by hand, one of them has the new value and the other the original, so there are witnesses for both.
//!
//! Expressions are not parsed. Their words are enough to know which values are worth asking.

use super::address::edges_of_network;
use super::callers::{Caller, MAX_CALLERS};
use super::patterns::Subject;
use super::sample::edges;
use crate::shared::units::{read_duration, read_size};
use serde_json::{Map, Value};

/// Deepest nesting that is looked at.
const MAX_DEPTH: usize = 40;
/// Most values of one condition.
const MAX_VALUES: usize = 200;

/// Most expressions of one route that look at several things.
const MAX_TOGETHER: usize = 50;

/// A route of our config, as far as witnesses need it.
#[derive(Clone, Debug, Default)]
pub struct OurRoute {
    /// Its name.
    pub name: String,
    /// Its hosts.
    pub hosts: Vec<String>,
    /// Its paths.
    pub paths: Vec<String>,
    /// Its methods.
    pub methods: Vec<String>,
    /// The ports of its listeners, and whether they speak TLS; empty for any.
    pub listeners: Vec<(u16, bool)>,
    /// What else it looks at, with the values worth asking.
    pub conditions: Vec<(Subject, Vec<String>)>,
    /// Those of its match alone.
    pub own: Vec<(Subject, Vec<String>)>,
    /// The same for each expression, with those of the match: one may matter only while the others hold.
    pub together: Vec<Vec<(Subject, Vec<String>)>>,
    /// Largest bodies.
    pub body_limits: Vec<u64>,
    /// Limits of requests over time.
    pub limits: Vec<Limit>,
    /// Whether requests are copied to a further upstream.
    pub mirrors: bool,
    /// The credentials that its filters read, each with the name of its consumer.
    pub callers: Vec<(String, Caller)>,
    /// Whether it takes the users of a file.
    pub reads_users: bool,
}

/// A limit of requests over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// How many requests pass at once.
    pub passes: u32,
    /// How many pass per second afterwards.
    pub rate: f64,
    /// What requests are counted by.
    pub by: Vec<Subject>,
}

/// The routes of a config, with what stands before all of them in the first.
#[must_use]
pub fn routes(config: &Value) -> Vec<OurRoute> {
    let section = |name: &str| config.get(name).and_then(Value::as_object);
    let sections =
        Sections { maps: section("maps"), listeners: section("listeners"), consumers: section("consumers") };
    let written = section("routes").into_iter().flatten();
    let mut all: Vec<OurRoute> = written.map(|(name, route)| one(name, route, sections)).collect();
    if let (Some(filters), Some(first)) = (config.get("filters"), all.first_mut()) {
        Reader { sections, route: first }.value(filters, "filters", 0);
    }
    all
}

/// Sections of a config that routes name.
#[derive(Clone, Copy)]
struct Sections<'a> {
    maps: Option<&'a Map<String, Value>>,
    listeners: Option<&'a Map<String, Value>>,
    consumers: Option<&'a Map<String, Value>>,
}

fn one(name: &str, value: &Value, sections: Sections<'_>) -> OurRoute {
    let matches = value.get("match");
    let of = |keys: &[&str]| {
        keys.iter().flat_map(|key| texts(matches.and_then(|node| node.get(key)))).collect::<Vec<_>>()
    };
    let mut route = OurRoute {
        name: name.to_owned(),
        hosts: of(&["host", "hosts"]),
        paths: of(&["path", "paths"]),
        methods: of(&["method", "methods"]),
        listeners: of(&["listeners"])
            .iter()
            .filter_map(|name| listener(sections.listeners?.get(name)?))
            .collect(),
        ..OurRoute::default()
    };
    let mut reader = Reader { sections, route: &mut route };
    matches.into_iter().for_each(|matches| reader.value(matches, "match", 0));
    reader.route.own = reader.route.conditions.clone();
    for (key, entry) in value.as_object().into_iter().flatten().filter(|(key, _)| *key != "match") {
        reader.value(entry, key, 0);
    }
    route
}

/// The port of a listener, and whether it speaks TLS.
fn listener(written: &Value) -> Option<(u16, bool)> {
    let (_, port) = written.get("address")?.as_str()?.rsplit_once(':')?;
    Some((port.parse().ok()?, written.get("tls").is_some()))
}

/// A text, or a list of them.
fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// Reads what a route tells apart.
struct Reader<'a> {
    sections: Sections<'a>,
    route: &'a mut OurRoute,
}

impl Reader<'_> {
    fn value(&mut self, value: &Value, key: &str, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match (key, value) {
            ("headers" | "cookies" | "query", Value::Object(fields)) => self.fields(key, fields),
            ("allow" | "deny" | "clients", list) => {
                let values = texts(Some(list)).iter().flat_map(|network| edges_of_network(network)).collect();
                self.add(Subject::Client, values);
            }
            ("body_limit", Value::Object(settings)) => {
                let size = settings.get("max").and_then(bytes);
                self.route.body_limits.extend(size);
            }
            ("rate_limit", Value::Object(settings)) => self.limit(settings),
            ("mirror", _) => self.route.mirrors = true,
            ("basic_auth" | "key_auth", settings) => self.callers(key, settings.as_object()),
            ("any" | "filters" | "otherwise", Value::Array(filters)) => {
                let bare = filters.iter().filter_map(Value::as_str);
                bare.for_each(|name| self.callers(name, None));
            }
            (_, Value::String(text)) => self.expression(text),
            _ => {}
        }
        match value {
            Value::Array(elements) => elements.iter().for_each(|element| self.value(element, key, depth + 1)),
            Value::Object(entries) => {
                entries.iter().for_each(|(key, element)| self.value(element, key, depth + 1));
            }
            _ => {}
        }
    }

    /// `match.headers` and its like: texts, `~regex`, `*`, and `!` before any of them.
    fn fields(&mut self, key: &str, fields: &Map<String, Value>) {
        for (name, value) in fields {
            let Value::String(value) = value else { continue };
            let of = match key {
                "headers" => Subject::Field(name.clone()),
                "cookies" => Subject::Cookie(name.clone()),
                _ => Subject::Argument(name.clone()),
            };
            let value = value.trim_start_matches('!');
            let values = match value.strip_prefix('~') {
                Some(pattern) => edges(pattern),
                None if matches!(value, "*" | "") => vec!["w".to_owned()],
                None => near(value),
            };
            self.add(of, values);
        }
    }

    /// The credentials that a filter reads.
    fn callers(&mut self, filter: &str, settings: Option<&Map<String, Value>>) {
        let text = |key: &str| settings.and_then(|settings| settings.get(key)).and_then(Value::as_str);
        if filter == "basic_auth" && text("file").is_some() {
            self.route.reads_users = true;
            return;
        }
        for (name, consumer) in self.sections.consumers.into_iter().flatten() {
            for credential in texts(consumer.get(filter)) {
                let caller = match filter {
                    "basic_auth" => credential.split_once(':').map(|(user, _)| Caller::user(user)),
                    // Of a hash, nobody knows the key.
                    "key_auth" if !credential.contains(':') && !credential.starts_with('$') => {
                        let of = Subject::Field(text("header").unwrap_or("x-api-key").to_ascii_lowercase());
                        let value = match text("scheme") {
                            Some(scheme) => format!("{scheme} {credential}"),
                            None => credential,
                        };
                        Some(Caller::key(of, value))
                    }
                    _ => None,
                };
                let known = &mut self.route.callers;
                if let Some(caller) = caller
                    && known.len() < MAX_CALLERS
                    && !known.iter().any(|(_, known)| *known == caller)
                {
                    known.push((name.clone(), caller));
                }
            }
        }
    }

    fn limit(&mut self, settings: &Map<String, Value>) {
        let number =
            |key: &str| settings.get(key).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
        let Some(requests) = number("requests") else { return };
        let per = settings.get("per").and_then(Value::as_str).and_then(|text| read_duration(text, 0));
        let per = per.filter(|ms| *ms > 0).map_or(1.0, |ms| ms as f64 / 1000.0);
        let mut by = Vec::new();
        for text in texts(settings.get("by")) {
            match text.split_once(':') {
                Some(("header", name)) => by.push(Subject::Field(name.to_owned())),
                Some(("cookie", name)) => by.push(Subject::Cookie(name.to_owned())),
                Some(("query", name)) => by.push(Subject::Argument(name.to_owned())),
                _ if text == "address" => by.push(Subject::Client),
                _ => by.extend(words(&text, self.sections.maps).into_iter().map(|(of, _)| of)),
            }
        }
        let passes = number("burst").unwrap_or(requests);
        self.route.limits.push(Limit { passes, rate: f64::from(requests) / per, by });
    }

    fn expression(&mut self, text: &str) {
        if !["request.", "client.", "maps."].iter().any(|word| text.contains(word)) {
            return;
        }
        let words = words(text, self.sections.maps);
        if words.len() > 1
            && self.route.together.len() < MAX_TOGETHER
            && !self.route.together.contains(&words)
        {
            self.route.together.push(words.clone());
        }
        for (of, values) in words {
            self.add(of, values);
        }
    }

    fn add(&mut self, of: Subject, values: Vec<String>) {
        let conditions = &mut self.route.conditions;
        let at = conditions.iter().position(|(known, _)| *known == of).unwrap_or(conditions.len());
        if at == conditions.len() {
            conditions.push((of, Vec::new()));
        }
        let all = &mut conditions[at].1;
        for value in values {
            if all.len() < MAX_VALUES && !all.contains(&value) {
                all.push(value);
            }
        }
    }
}

/// A text, and variants of it that tell `==`, `startsWith`, `endsWith` and `contains` apart.
#[must_use]
pub fn near(text: &str) -> Vec<String> {
    let mut found = vec![text.to_owned(), format!("{text}x"), format!("x{text}"), format!("x{text}x")];
    found.extend(text.char_indices().next_back().map(|(at, _)| text[..at].to_owned()));
    found.push(super::sample::swapped(text));
    found.retain(|value| !value.is_empty());
    found.dedup();
    found
}

/// The same for what a request has. A method has no small letters.
fn near_of(of: &Subject, text: &str) -> Vec<String> {
    match of {
        Subject::Method => {
            let mut found: Vec<String> = near(text).iter().map(|text| text.to_ascii_uppercase()).collect();
            found.dedup();
            found
        }
        _ => near(text),
    }
}

/// What an expression looks at, each with the values that it is compared with.
fn words(text: &str, maps: Option<&Map<String, Value>>) -> Vec<(Subject, Vec<String>)> {
    let mut found: Vec<(Subject, Vec<String>)> = Vec::new();
    let mut add = |of: &Subject, values: Vec<String>| match found.iter_mut().find(|(known, _)| known == of) {
        Some((_, all)) => all.extend(values),
        None => found.push((of.clone(), values)),
    };
    let (mut of, mut method) = (None, "");
    // Literals before what they are looked for in: `"x" in request.headers["y"].all()`.
    let mut waiting = Vec::new();
    for token in tokens(text) {
        match token {
            Token::Variable(name, key) => {
                let subject = match (name, key) {
                    ("request.headers", Some(key)) => Subject::Field(key),
                    ("request.cookies", Some(key)) => Subject::Cookie(key),
                    ("request.args", Some(key)) => Subject::Argument(key),
                    ("request.method", _) => Subject::Method,
                    ("request.host", _) => Subject::Host,
                    ("request.path", _) => Subject::Path,
                    ("client.ip", _) => Subject::Client,
                    ("maps", Some(key)) => {
                        for (of, values) in of_map(maps, &key) {
                            add(&of, values);
                        }
                        (of, method) = (None, "");
                        continue;
                    }
                    _ => {
                        (of, method) = (None, "");
                        continue;
                    }
                };
                add(&subject, vec!["w".to_owned()]);
                let before = std::mem::take(&mut waiting);
                add(&subject, before.iter().flat_map(|text: &String| near_of(&subject, text)).collect());
                (of, method) = (Some(subject), "");
            }
            Token::Method(name) => method = name,
            Token::Next => (of, method) = (None, ""),
            Token::Literal(text) => match &of {
                None => waiting = vec![text],
                Some(Subject::Client) => add(&Subject::Client, edges_of_network(&text)),
                Some(Subject::Method) if method == "matches" => {
                    let upper = edges(&text).iter().map(|text| text.to_ascii_uppercase()).collect();
                    add(&Subject::Method, upper);
                }
                Some(of) if method == "matches" => add(of, edges(&text)),
                Some(of) => add(of, near_of(of, &text)),
            },
            Token::Number(number) => {
                if let Some(of) = &of {
                    // Those on either side first: see `together`.
                    add(of, [number + 1, number - 1, number].map(|n| n.to_string()).to_vec());
                }
            }
        }
    }
    found
}

/// What a map looks at, with its keys as values.
fn of_map(maps: Option<&Map<String, Value>>, name: &str) -> Vec<(Subject, Vec<String>)> {
    let Some(map) = maps.and_then(|maps| maps.get(name)) else { return Vec::new() };
    let of = map.get("of").and_then(Value::as_str).unwrap_or_default();
    // A map of a map is not followed: it would be a loop.
    let Some((subject, _)) = words(of, None).into_iter().next() else { return Vec::new() };
    let mut values = Vec::new();
    for key in map.get("values").and_then(Value::as_object).into_iter().flat_map(Map::keys) {
        match (&subject, key.strip_prefix('~')) {
            (Subject::Client, _) => values.extend(edges_of_network(key)),
            (_, Some(pattern)) => values.extend(edges(pattern)),
            (_, None) => values.extend(near(key.trim_end_matches('*'))),
        }
        values.truncate(MAX_VALUES);
    }
    vec![(subject, values)]
}

/// A word of an expression.
enum Token<'a> {
    /// A variable, and the key behind it.
    Variable(&'a str, Option<String>),
    /// A method or an operator with a name.
    Method(&'a str),
    Literal(String),
    Number(i64),
    /// `&&` or `||`.
    Next,
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if c == '"' || c == '\'' {
            let (literal, behind) = literal(rest);
            rest = behind;
            found.push(Token::Literal(literal));
            continue;
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        if end == 0 {
            rest = &rest[c.len_utf8()..];
            if matches!(c, '&' | '|') {
                found.push(Token::Next);
            }
            continue;
        }
        let (word, behind) = rest.split_at(end);
        rest = behind;
        if let Ok(number) = word.parse::<f64>() {
            // Far numbers are no values of requests.
            if number.abs() < 1e9 {
                found.push(Token::Number(number as i64)); // cut to whole numbers on purpose
            }
        } else if let Some(name) = word.strip_prefix("maps.") {
            found.push(Token::Variable("maps", Some(name.split('.').next().unwrap_or(name).to_owned())));
        } else if word.starts_with("request.") || word.starts_with("client.") {
            let mut parts = word.splitn(3, '.');
            let length = parts.next().map_or(0, str::len) + 1 + parts.next().map_or(0, str::len);
            let (name, method) = word.split_at(length);
            let mut key = None;
            if let Some(inside) = rest.strip_prefix('[').filter(|inside| inside.starts_with(['"', '\''])) {
                let (text, behind) = literal(inside);
                (key, rest) = (Some(text), behind);
            }
            found.push(Token::Variable(name, key));
            found.push(Token::Method(last(method)));
        } else {
            found.push(Token::Method(last(word)));
        }
    }
    found
}

/// The last name of a chain of methods.
fn last(word: &str) -> &str {
    word.rsplit('.').next().unwrap_or(word)
}

/// A literal at the start of a text, and what is behind it.
fn literal(text: &str) -> (String, &str) {
    let mut chars = text.char_indices();
    let quote = chars.next().map_or('"', |(_, c)| c);
    let mut out = String::new();
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return (out, &text[at + c.len_utf8()..]),
            '\\' => out.extend(chars.next().map(|(_, c)| c)),
            c => out.push(c),
        }
    }
    (out, "")
}

fn bytes(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => {
            let lower = text.to_ascii_lowercase();
            let (digits, unit) =
                lower.split_at(lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len()));
            let number: u64 = digits.parse().ok()?;
            let factor = match unit {
                "" | "b" => 1,
                "kib" => 1 << 10,
                "mib" => 1 << 20,
                "gib" => 1 << 30,
                "kb" => 1000,
                "mb" => 1_000_000,
                "gb" => 1_000_000_000,
                _ => return read_size(text),
            };
            number.checked_mul(factor)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(config: &Value) -> OurRoute {
        routes(config).into_iter().next().unwrap()
    }

    fn values(route: &OurRoute, of: &Subject) -> Vec<String> {
        route.conditions.iter().find(|(known, _)| known == of).map(|(_, all)| all.clone()).unwrap_or_default()
    }

    #[test]
    fn conditions_are_found_wherever_they_stand() {
        let route = read(&json!({
            "maps": { "tier": { "of": "request.headers[\"x-tier\"]", "values": { "gold": "1", "silv*": "2", "~^b[a-c]$": "3" } } },
            "routes": { "a": {
                "match": { "host": "a.example", "path": "/*", "headers": { "x-env": "~^blue$" }, "query": { "v": "2" },
                           "clients": ["10.0.0.0/8"] },
                "filters": [
                    { "when": { "is": "request.headers[\"x-bot\"].lowerAscii().startsWith(\"yes\") || maps.tier == \"1\"",
                                "filters": [ { "ip": { "deny": ["192.0.2.7"] } } ] } },
                    { "when": { "is": "!(\"k\" in request.headers[\"x-keys\"].all()) && double(request.args[\"n\"]) > 2.0" } },
                    { "body_limit": { "max": "1MiB" } },
                    { "rate_limit": { "requests": 10, "per": "1m", "burst": 5, "by": "header:x-user" } },
                    { "mirror": { "upstream": "copy" } },
                ],
            } },
        }));
        let has = |of: Subject, value: &str| {
            let all = values(&route, &of);
            assert!(all.iter().any(|known| known == value), "{of:?}: {value}: {all:?}");
        };
        let field = |name: &str| Subject::Field(name.to_owned());
        has(field("x-bot"), "yes");
        has(field("x-bot"), "xyes");
        has(field("x-env"), "BLUE");
        has(field("x-tier"), "gold");
        has(field("x-tier"), "silvx");
        has(field("x-tier"), "bd");
        has(field("x-keys"), "k");
        has(Subject::Argument("v".to_owned()), "2x");
        has(Subject::Argument("n".to_owned()), "3");
        has(Subject::Client, "10.255.255.255");
        has(Subject::Client, "11.0.0.0");
        has(Subject::Client, "192.0.2.6");
        assert_eq!(route.body_limits, [1 << 20]);
        assert!(route.mirrors);
        let by = vec![field("x-user")];
        assert_eq!(route.limits, [Limit { passes: 5, rate: 10.0 / 60.0, by }]);
    }

    #[test]
    fn callers_are_those_that_the_filters_read() {
        let config = json!({
            "consumers": {
                "shop": { "key_auth": ["a-key", "sha256:00"], "basic_auth": ["ana:$2b$04$x"] },
                "bank": { "key_auth": ["b-key"] },
            },
            "routes": {
                "a": { "filters": [ { "any": [ "key_auth", { "basic_auth": { "realm": "x" } } ] } ] },
                "b": { "filters": [ { "key_auth": { "header": "Authorization", "scheme": "Bearer" } } ] },
                "c": { "filters": [ { "basic_auth": { "file": "/etc/users" } } ] },
            },
        });
        let all = routes(&config);
        let shown = |route: &OurRoute| -> Vec<String> {
            let of = |of: &Subject| match of {
                Subject::Field(name) => name.clone(),
                other => format!("{other:?}"),
            };
            route.callers.iter().map(|(name, c)| format!("{name} {}: {}", of(&c.of), c.value)).collect()
        };
        assert_eq!(
            shown(&all[0]),
            [
                "shop x-api-key: a-key",
                "bank x-api-key: b-key",
                "shop authorization: Basic YW5hOndlaXItd2l0bmVzcw=="
            ]
        );
        assert_eq!(shown(&all[1]), ["shop authorization: Bearer a-key", "bank authorization: Bearer b-key"]);
        assert!(all[2].reads_users && all[2].callers.is_empty() && !all[0].reads_users);
    }

    #[test]
    fn odd_expressions_are_read_somehow() {
        for text in
            ["request.", "request.headers[\"", "\"\\", "client.ip in [", "maps.", "request.é == \"é\"", "'"]
        {
            read(&json!({ "routes": { "a": { "filters": [ { "when": { "is": text } } ] } } }));
        }
    }
}
