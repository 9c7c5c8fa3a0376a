//! Our config as files: small ones by concern, as a person would lay them out.

use super::config::{Case, Config, Endpoint, Filter, Listener, Match, Named, Route, Target, Upstream};
use super::system::Import;
use super::yaml::{Map, Value};
use std::collections::BTreeMap;

/// The main file.
pub const MAIN: &str = "weir.yaml";
/// The file with the values of secrets. Only its owner may read it.
pub const SECRETS: &str = "secrets.env";
/// The file with requests and the routes that must take them.
pub const TESTS: &str = "tests.yaml";

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its path below the folder.
    pub path: String,
    /// Its content.
    pub text: String,
    /// Whether only its owner may read it (mode 0600).
    pub is_secret: bool,
}

impl Import {
    /// The files of our config, sorted by path.
    #[must_use]
    pub fn written(&self) -> Vec<Written> {
        let config = &self.config;
        let mut files = BTreeMap::new();
        files.insert(MAIN.to_owned(), main(self));
        let mut section = |file: &str, key: &str, about: &str, things: Map| {
            if !things.is_empty() {
                let mut map = Map::new();
                map.comment(about);
                map.set(key, things);
                files.insert(file.to_owned(), map.to_yaml());
            }
        };
        section(
            "listeners.yaml",
            "listeners",
            "The addresses that clients connect to.",
            each(&config.listeners, listener),
        );
        section("upstreams.yaml", "upstreams", "The services behind us.", each(&config.upstreams, upstream));
        section("consumers.yaml", "consumers", "Who calls.", each(&config.consumers, Map::clone));
        section("maps.yaml", "maps", "Tables that expressions read.", each(&config.maps, Map::clone));
        for (file, routes) in by_file(config) {
            files.insert(format!("routes/{file}.yaml"), Map::new().with("routes", routes).to_yaml());
        }
        if !config.tests.is_empty() {
            files.insert(TESTS.to_owned(), tests(&config.tests));
        }
        files.extend(config.files.iter().map(|(path, text)| (path.clone(), text.clone())));
        let mut written: Vec<Written> = files
            .into_iter()
            .map(|(path, text)| Written { is_secret: holds(&text, config), path, text })
            .collect();
        if !config.secrets.is_empty() {
            written.push(secrets(config));
        }
        written.extend(config.secret_files.iter().map(|(path, text)| Written {
            path: path.clone(),
            text: text.clone(),
            is_secret: true,
        }));
        written.sort_by(|a, b| a.path.cmp(&b.path));
        written
    }
}

/// Whether a file holds a secret, however YAML quotes it there.
fn holds(text: &str, config: &Config) -> bool {
    let plain = |text: &str| text.replace(['\\', '"', '\'', '$', '\n', ' '], "");
    let text = plain(text);
    // A text of one or two characters occurs in every file and is no secret.
    let mut secrets = config.private.iter().map(|secret| plain(secret)).filter(|secret| secret.len() > 2);
    secrets.any(|secret| text.contains(&*secret))
}

fn main(import: &Import) -> String {
    let config = &import.config;
    let mut map = Map::new();
    let from: Vec<&str> = import.files.iter().map(String::as_str).take(3).collect();
    let more = import.files.len().saturating_sub(from.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    map.comment(format!("From {} ({}{more}) by `weir import`.", import.system.title, from.join(", ")));
    config.comments.iter().for_each(|line| map.comment(line));
    if !config.secrets.is_empty() {
        let names: Vec<&str> = config.secrets.iter().map(|(name, _)| &**name).collect();
        let example = names.first().map_or("", |name| name);
        map.comment(format!(
            "`${{{example}}}` and the like come from the environment: {SECRETS} has the values that the source had. With \
             systemd: EnvironmentFile=."
        ));
    }
    let sections: [(&str, bool); 4] = [
        ("listeners.yaml", !config.listeners.is_empty()),
        ("upstreams.yaml", !config.upstreams.is_empty()),
        ("consumers.yaml", !config.consumers.is_empty()),
        ("maps.yaml", !config.maps.is_empty()),
    ];
    let mut include: Vec<&str> = sections.iter().filter(|(_, used)| *used).map(|(file, _)| *file).collect();
    if !config.routes.is_empty() {
        include.push("routes/*.yaml");
    }
    if !include.is_empty() {
        map.set("include", include);
    }
    for (key, value) in config.more.iter() {
        map.set(key, value.clone());
    }
    if !config.stores.is_empty() {
        // An included file may not have them.
        map.set("stores", each(&config.stores, Map::clone));
    }
    if !config.filters.is_empty() {
        map.comment("For every route, before its own filters.");
        map.set("filters", filters(&config.filters));
    }
    map.to_yaml()
}

fn each<T>(things: &Named<T>, map: impl Fn(&T) -> Map) -> Map
where
    T: Commented,
{
    let mut all = Map::new();
    for (name, thing) in things.iter() {
        thing.comments().iter().for_each(|line| all.comment(line));
        all.push(name, map(thing));
    }
    all
}

/// A thing with comments above its name.
trait Commented {
    fn comments(&self) -> &[String];
}

impl Commented for Listener {
    fn comments(&self) -> &[String] {
        &self.comment
    }
}

impl Commented for Upstream {
    fn comments(&self) -> &[String] {
        &self.comment
    }
}

impl Commented for Map {
    fn comments(&self) -> &[String] {
        &[]
    }
}

fn by_file(config: &Config) -> BTreeMap<&str, Map> {
    let mut files: BTreeMap<&str, Map> = BTreeMap::new();
    for (name, written) in config.routes.iter() {
        let routes = files.entry(&written.file).or_default();
        written.comment.iter().for_each(|line| routes.comment(line));
        let mut route = route(written);
        from_routes(&mut route, config);
        routes.push(name, route);
    }
    files
}

/// Paths of our own files, as a file in `routes/` names them: relative to itself.
fn from_routes(map: &mut Map, config: &Config) {
    fn value_from_routes(value: &mut Value, config: &Config) {
        match value {
            Value::Map(map) => from_routes(map, config),
            Value::List(list) => list.iter_mut().for_each(|value| value_from_routes(value, config)),
            Value::Text(path)
                if config.files.contains_key(path) || config.secret_files.contains_key(path) =>
            {
                path.insert_str(0, "../");
            }
            _ => {}
        }
    }
    map.iter_mut().for_each(|(_, value)| value_from_routes(value, config));
}

fn listener(listener: &Listener) -> Map {
    let mut map = Map::new();
    map.set_some("address", listener.address.clone());
    extend(&mut map, &listener.more);
    map
}

fn upstream(upstream: &Upstream) -> Map {
    let mut map = Map::new();
    if !upstream.endpoints.is_empty() {
        map.set("endpoints", Value::List(upstream.endpoints.iter().map(endpoint).collect()));
    }
    extend(&mut map, &upstream.more);
    map
}

fn endpoint(endpoint: &Endpoint) -> Value {
    if endpoint.weight.is_none() && endpoint.priority.is_none() {
        return endpoint.address.clone().into();
    }
    let mut map = Map::new().with("address", endpoint.address.clone());
    map.set_some("weight", endpoint.weight);
    map.set_some("priority", endpoint.priority);
    map.into()
}

fn route(route: &Route) -> Map {
    let mut map = Map::new();
    let matches = matches(&route.matches);
    if !matches.is_empty() {
        map.set("match", matches);
    }
    if route.priority != 0 {
        map.set("priority", route.priority);
    }
    extend(&mut map, &route.more);
    if !route.filters.is_empty() {
        map.set("filters", filters(&route.filters));
    }
    match &route.target {
        None => {}
        Some(Target::Upstream(name)) => map.set("upstream", name.clone()),
        Some(Target::Split(shares)) => {
            let mut split = Map::new();
            shares.iter().for_each(|(name, share)| split.set(name.clone(), *share));
            map.set("upstream", split);
        }
        Some(Target::Respond(respond)) => map.set("respond", respond.clone()),
        Some(Target::Files(files)) => map.set("files", files.clone()),
        Some(Target::FastCgi { upstream, fastcgi, files }) => {
            match files {
                Some(files) => map.set("files", files.clone()),
                None => map.set("upstream", upstream.clone()),
            }
            map.set("fastcgi", fastcgi.clone());
        }
    }
    map
}

/// A route as text, to find what it names.
pub(crate) fn route_text(written: &Route) -> String {
    Map::new().with("route", route(written)).to_yaml()
}

fn matches(matches: &Match) -> Map {
    let mut map = Map::new();
    let mut list = |key: &str, items: &[String]| {
        if !items.is_empty() {
            map.set(key, items.to_vec());
        }
    };
    list("hosts", &matches.hosts);
    match &matches.path {
        Some(path) if matches.more_paths.is_empty() => map.set("path", path.clone()),
        Some(path) => {
            let all = std::iter::once(path).chain(&matches.more_paths);
            map.set("path", all.cloned().collect::<Vec<_>>());
        }
        None => {}
    }
    extend(&mut map, &matches.more);
    if !matches.methods.is_empty() {
        map.set("methods", matches.methods.clone());
    }
    for (key, pairs) in [("headers", &matches.headers), ("query", &matches.query)] {
        if !pairs.is_empty() {
            let mut inner = Map::new();
            pairs.iter().for_each(|(name, value)| inner.set(name.clone(), value.clone()));
            map.set(key, inner);
        }
    }
    if !matches.listeners.is_empty() {
        map.set("listeners", matches.listeners.clone());
    }
    map.set_some("when", matches.when.clone());
    map
}

fn filters(filters: &[Filter]) -> Value {
    Value::List(filters.iter().map(Filter::to_value).collect())
}

fn extend(map: &mut Map, more: &Map) {
    more.iter().for_each(|(key, value)| map.set(key, value.clone()));
}

fn tests(cases: &[Case]) -> String {
    let mut list = Vec::new();
    for case in cases {
        let mut map = Map::new().with("request", format!("{} {}", case.method, case.url));
        if !case.headers.is_empty() {
            let mut headers = Map::new();
            case.headers.iter().for_each(|(name, value)| headers.set(name.clone(), value.clone()));
            map.set("headers", headers);
        }
        map.set_some("listener", case.listener.clone());
        match &case.route {
            Some(route) => map.set("route", route.clone()),
            None => map.set("route", Value::WithVariables("none".to_owned())),
        }
        list.push(map);
    }
    let mut map = Map::new();
    map.comment("Requests and the routes that must take them, as the imported config decides.");
    map.comment("Ask all: weir test -c weir.yaml. Ask one by hand: weir explain -c weir.yaml GET URL");
    map.set("tests", list);
    map.to_yaml()
}

/// A line that sets a variable.
pub(crate) fn variable_line(name: &str, value: &str) -> String {
    // systemd and shells both read a text in double quotes; neither can hold a line break in it safely.
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$").replace('`', "\\`");
    format!("{name}=\"{}\"\n", value.replace(['\n', '\r'], " "))
}

/// The values of variables. A variable whose value the source does not have is a comment. A placeholder would replace
/// the real value, because neither a shell nor systemd has a line that sets a variable only if it is not set.
fn secrets(config: &Config) -> Written {
    let mut text =
        String::from("# Values of ${…} in the config. Keep it private, and out of version control.\n");
    let is_placeholder = |(name, _): &&(String, String)| config.placeholders.contains(name);
    for (name, value) in config.secrets.iter().filter(|pair| !is_placeholder(pair)) {
        text.push_str(&variable_line(name, value));
    }
    if !config.placeholders.is_empty() {
        text.push_str(
            "\n# The source does not have these values: set them in the environment, or here without the `#`. Until then\n\
             # Weir does not start. As comments they replace no value that the environment has.\n",
        );
    }
    for (name, value) in config.secrets.iter().filter(is_placeholder) {
        text.push_str(&format!("#{}", variable_line(name, value)));
    }
    Written { path: SECRETS.to_owned(), text, is_secret: true }
}
