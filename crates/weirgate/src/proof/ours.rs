//! Our config in the proof: read as `weir run` reads it, and staged on its tree.

use anyhow::{Result, bail};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weir_gateway::config::{Loaded, Node, Source, Value};
use weir_gateway::explain::Arriving;
use weir_gateway::snapshot::Snapshot;
use weir_import::Place;
use weir_import::proof::callers::{Caller, HASH, users_file};
use weir_import::proof::patterns::{Front, Line, Origin, Patterns, Site, unix_in_workspace};
use weir_import::proof::{Ask, OurRoute, Stage, WORKSPACE};

/// Our config.
pub(crate) struct Ours {
    folder: PathBuf,
    loaded: Loaded,
    snapshot: Option<std::sync::Arc<Snapshot>>,
}

/// The folder of the workspace that holds no files.
pub(super) const NO_FILES: &str = "no-files";

/// Deepest nesting that is looked at. Configs nest less.
const MAX_DEPTH: usize = 60;

/// Longest text that may be a path.
const MAX_PATH: usize = 1024;

/// Filters that depend on time.
const TIMED: &[&str] = &["concurrency", "rate_limit"];

impl Ours {
    /// Reads the config at `main`, with the values of secrets from `secrets`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn read(main: &Path, secrets: &[(String, String)]) -> Result<Self> {
        let source = source(main, secrets);
        let mut ours = Self::read_from(main, &source)?;
        ours.snapshot = weir_gateway::check(&source, &[]).compiled.map(|(_, snapshot)| snapshot.into());
        Ok(ours)
    }

    /// The same for a config that only gives witnesses, so it is not compiled.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn read_for_witnesses(main: &Path, secrets: &[(String, String)]) -> Result<Self> {
        Self::read_from(main, &source(main, secrets))
    }

    fn read_from(main: &Path, source: &Source) -> Result<Self> {
        let loaded = match weir_gateway::config::load(source) {
            Ok(loaded) => loaded,
            Err(unreadable) => bail!("{}", unreadable.diagnostics.to_text().trim_end()),
        };
        Ok(Self { folder: super::folder_of(&main.to_string_lossy()), loaded, snapshot: None })
    }

    /// The folder that it is in.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The config for the world of the proof, as JSON: listeners on loopback, its own certificates, no logs, one
    /// worker. Without `limits`, no filter that depends on time.
    pub(super) fn staged(&self, limits: bool) -> String {
        let mut config = self.to_json(&self.loaded.tree);
        if let Some(top) = config.as_object_mut() {
            for gone in ["access_log", "include", "source", "state", "tracing", "zone"] {
                top.remove(gone);
            }
            top.insert("admin".to_owned(), json!({ "address": "off" }));
            top.insert("workers".to_owned(), json!(1));
            top.insert("watch".to_owned(), json!(false));
            for listener in entries(top, "listeners") {
                stage_listener(listener);
            }
            for upstream in entries(top, "upstreams") {
                stage_upstream(upstream);
            }
            for route in entries(top, "routes") {
                self.stage_files(route);
            }
            for store in entries(top, "stores") {
                store.remove("disk"); // nothing can be written in there
            }
            for consumer in entries(top, "consumers") {
                stage_consumer(consumer);
            }
        }
        self.stage_users(&mut config, &mut Vec::new(), 0);
        self.stage_pages(&mut config, 0);
        if !limits {
            without_timed(&mut config, 0);
        }
        config.to_string()
    }

    /// Puts an empty folder in the place of one that this machine lacks: Weir would not start, while the old program
    /// finds no file there. So neither finds one.
    fn stage_files(&self, route: &mut Map<String, Json>) {
        for target in ["files", "fastcgi"] {
            let root = match route.get_mut(target) {
                Some(Json::Object(settings)) => settings.get_mut("root"),
                // `files: /srv/www`; of `fastcgi`, a text is no folder.
                other => other.filter(|_| target == "files"),
            };
            if let Some(Json::String(root)) = root
                && !self.folder.join(root.replace("$$", "$")).is_dir()
            {
                *root = format!("{WORKSPACE}/{NO_FILES}");
            }
        }
    }

    /// Files of users with the password that the proof knows, by path below the workspace.
    pub(super) fn users_files(&self) -> Vec<(String, String)> {
        let mut files = Vec::new();
        self.stage_users(&mut self.to_json(&self.loaded.tree), &mut files, 0);
        files
    }

    /// Puts such files in the place of those that `basic_auth` names.
    fn stage_users(&self, value: &mut Json, files: &mut Vec<(String, String)>, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        let children: Vec<&mut Json> = match value {
            Json::Array(elements) => elements.iter_mut().collect(),
            Json::Object(map) => {
                if let Some(Json::String(path)) =
                    map.get_mut("basic_auth").and_then(|auth| auth.get_mut("file"))
                    && let Ok(text) = std::fs::read_to_string(self.folder.join(path.replace("$$", "$")))
                {
                    let name = format!("weir-users-{}", files.len());
                    *path = format!("{WORKSPACE}/{name}");
                    files.push((name, users_file(&text, HASH).0));
                }
                map.values_mut().collect()
            }
            _ => Vec::new(),
        };
        children.into_iter().for_each(|child| self.stage_users(child, files, depth + 1));
    }

    /// Takes error pages out whose files this machine lacks: Weir would not start, while the old program sends a page of
    /// its own.
    fn stage_pages(&self, value: &mut Json, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match value {
            Json::Array(elements) => {
                elements.iter_mut().for_each(|element| self.stage_pages(element, depth + 1));
                elements.retain(|element| match element.get("errors") {
                    Some(Json::Object(pages)) => pages.keys().any(|key| key != "upstream"),
                    _ => true,
                });
            }
            Json::Object(map) => {
                if let Some(Json::Object(pages)) = map.get_mut("errors") {
                    pages.retain(|_, page| match page.get("file").and_then(Json::as_str) {
                        Some(path) => self.folder.join(path.replace("$$", "$")).is_file(),
                        None => true,
                    });
                }
                map.values_mut().for_each(|element| self.stage_pages(element, depth + 1));
            }
            _ => {}
        }
    }

    /// Its tree as JSON that reads as the same tree. Variables have their values. A path relative to the file that
    /// names it, such as one in `routes/`, becomes relative to the folder.
    fn to_json(&self, node: &Node) -> Json {
        json_of(node, &|node, text| {
            let is_path = text.len() < MAX_PATH && !text.contains(['\n', ' ', '"', '{']);
            let from = node.at.file.parent().filter(|parent| is_path && *parent != self.folder);
            let from = from.map(|parent| parent.join(text)).filter(|path| path.is_file());
            let moved = from.filter(|_| !self.folder.join(text).exists());
            let moved = moved.and_then(|path| path.canonicalize().ok());
            match moved.as_deref().and_then(|path| path.strip_prefix(&self.folder).ok()) {
                Some(path) => path.display().to_string().replace('$', "$$"),
                None => text.replace('$', "$$"),
            }
        })
    }

    /// The values of keys that its filters read, as a report could show them.
    pub(crate) fn keys(&self) -> Vec<String> {
        let routes = self.routes();
        let callers = routes.iter().flat_map(|route| &route.callers).filter(|(_, caller)| !caller.is_user);
        let mut keys: Vec<String> = callers.flat_map(|(_, caller)| Caller::shown(caller)).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    /// A stage for a gateway whose config nobody reads line by line: one site with all that this config has.
    pub(crate) fn stage(&self, file: &str) -> Stage {
        let line = Line { place: Place::new(file, 1), text: "the whole config".to_owned() };
        let site = Site { line, hosts: Vec::new(), fronts: self.fronts(), paths: Vec::new() };
        let groups = self.section("upstreams").map(|(_, upstream)| addresses(upstream)).collect();
        let patterns = Patterns { sites: vec![site], origins: self.origins(), groups, ..Patterns::default() };
        Stage { patterns, ..Stage::default() }
    }

    /// Where clients reach it in the world of the proof.
    fn fronts(&self) -> Vec<Front> {
        let mut fronts = Vec::new();
        for (_, listener) in self.section("listeners") {
            let Some(address) = listener.get("address").and_then(Node::as_text) else { continue };
            let Some((host, port)) = address.rsplit_once(':') else { continue };
            let ip = match host.parse::<std::net::Ipv4Addr>() {
                Ok(ip) if !ip.is_unspecified() => ip.to_string(),
                _ => "127.0.0.1".to_owned(),
            };
            let Ok(port) = port.parse() else { continue };
            fronts.push(Front { ip, port, tls: listener.get("tls").is_some_and(Node::is_set) });
        }
        fronts
    }

    /// The addresses of its upstreams.
    pub(super) fn origins(&self) -> Vec<Origin> {
        let mut origins = Vec::new();
        for (_, upstream) in self.section("upstreams") {
            let tls = upstream.get("tls").is_some_and(Node::is_set);
            origins.extend(addresses(upstream).into_iter().map(|address| Origin { address, tls }));
        }
        origins
    }

    /// Its routes, for witnesses.
    pub(super) fn routes(&self) -> Vec<OurRoute> {
        weir_import::proof::ours::routes(&as_is(&self.loaded.tree))
    }

    /// Endpoints that stand for one another: those of one upstream, and of upstreams that share a route by weight. And
    /// those of which a hash chooses one.
    pub(super) fn groups(&self) -> (Vec<Vec<String>>, Vec<String>) {
        let mut groups: Vec<Vec<String>> = Vec::new();
        let mut hashed = Vec::new();
        let upstreams: BTreeMap<&str, &Node> = self.section("upstreams").collect();
        for upstream in upstreams.values() {
            let all = addresses(upstream);
            let by_hash = upstream.get("balancer").is_some_and(|balancer| balancer.get("hash").is_some());
            if by_hash || upstream.get("sticky").is_some() {
                hashed.extend(all.iter().cloned());
            }
            if all.len() > 1 {
                groups.push(all);
            }
        }
        for (_, route) in self.section("routes") {
            let shares = route.get("upstream").map(Node::entries).unwrap_or_default();
            let all = shares.iter().filter_map(|(name, _)| upstreams.get(&*name.text));
            let all: Vec<String> = all.flat_map(|upstream| addresses(upstream)).collect();
            if all.len() > 1 {
                groups.push(all);
            }
        }
        (groups, hashed)
    }

    /// The key of our config that takes a request, with its place.
    pub(super) fn key_for(&self, ask: &Ask) -> Option<String> {
        let snapshot = self.snapshot.as_ref()?;
        let scheme = if ask.front.tls { "https" } else { "http" };
        let host = ask.host.as_deref().unwrap_or(&ask.front.ip);
        let name = host.split(':').next().unwrap_or(host);
        let url = format!("{scheme}://{name}:{}{}", ask.front.port, ask.target);
        let client = ask.client.as_deref().and_then(|client| client.parse().ok());
        let arriving = Arriving { listener: None, client };
        let winner = weir_gateway::explain::winner(snapshot, arriving, &ask.method, &url, &ask.fields);
        let winner = match winner {
            Ok(Some(winner)) => winner,
            Ok(None) => return Some("no route".to_owned()),
            Err(why) => return Some(why),
        };
        let key = format!("routes.{winner}");
        let node = self.section("routes").find(|(name, _)| *name == winner).map(|(_, node)| node);
        Some(match node {
            Some(node) => format!("{key} ({}:{})", node.at.file.display(), node.at.line),
            None => key,
        })
    }

    fn section(&self, name: &str) -> impl Iterator<Item = (&str, &Node)> {
        let entries = self.loaded.tree.get(name).map(Node::entries).unwrap_or_default();
        entries.iter().map(|(key, node)| (&*key.text, node))
    }
}

/// The config at a path, with values for its variables.
fn source(main: &Path, secrets: &[(String, String)]) -> Source {
    let kinds = weir_gateway::filters::KINDS.iter().map(|kind| kind.name);
    let readers = kinds.filter(|name| name.ends_with("_auth") || ["jwt", "oidc"].contains(name));
    let mut source = Source::file(main).with_credentials(readers);
    for (name, value) in secrets {
        source = source.with_variable(name, value);
    }
    source
}

/// The addresses of an upstream's endpoints.
fn addresses(upstream: &Node) -> Vec<String> {
    let endpoints = upstream.get("endpoints").map(Node::elements).unwrap_or_default();
    let text = |endpoint: &Node| {
        let address = endpoint.as_text().or_else(|| endpoint.get("address").and_then(Node::as_text))?;
        Some(address.split_once("://").map_or(address, |(_, rest)| rest).trim_end_matches('/').to_owned())
    };
    endpoints.iter().filter_map(text).collect()
}

/// The entries of a section that are maps.
fn entries<'a>(
    top: &'a mut Map<String, Json>,
    section: &str,
) -> impl Iterator<Item = &'a mut Map<String, Json>> {
    let section = top.get_mut(section).and_then(Json::as_object_mut);
    section.into_iter().flat_map(|section| section.values_mut()).filter_map(Json::as_object_mut)
}

fn stage_listener(listener: &mut Map<String, Json>) {
    if let Some(Json::String(address)) = listener.get_mut("address") {
        if let Some(path) = address.strip_prefix("unix:") {
            *address = format!("unix:{}-listener", unix_in_workspace(path));
        } else if let Some((host, port)) = address.rsplit_once(':') {
            let loopback = match host {
                // `[::]` serves both families, and the witnesses come by IPv4.
                "" | "*" | "0.0.0.0" | "[::]" => "127.0.0.1",
                _ if host.starts_with('[') => "[::1]",
                _ => host,
            };
            *address = format!("{loopback}:{port}");
        }
    }
    // The proof sends no PROXY header.
    listener.remove("proxy_protocol");
    if let Some(Json::Object(tls)) = listener.get_mut("tls") {
        for gone in ["acme", "client_auth"] {
            tls.remove(gone);
        }
        let pair =
            json!([{ "cert": format!("{WORKSPACE}/cert.pem"), "key": format!("{WORKSPACE}/key.pem") }]);
        tls.insert("certificates".to_owned(), pair);
    }
}

fn stage_upstream(upstream: &mut Map<String, Json>) {
    if let Some(Json::Object(health)) = upstream.get_mut("health") {
        // The echo would count probes as requests.
        health.remove("probe");
    }
    // The echo takes no PROXY header, and each program makes the value of its cookie itself.
    for gone in ["proxy_protocol", "sticky"] {
        upstream.remove(gone);
    }
    if let Some(Json::Object(tls)) = upstream.get_mut("tls") {
        for gone in ["ca", "client_cert", "client_key"] {
            tls.remove(gone);
        }
    }
    for endpoint in upstream.get_mut("endpoints").and_then(Json::as_array_mut).into_iter().flatten() {
        let address = match endpoint {
            Json::Object(endpoint) => endpoint.get_mut("address"),
            other => Some(other),
        };
        if let Some(Json::String(address)) = address
            && let Some(path) = address.strip_prefix("unix:")
        {
            *address = format!("unix:{}", unix_in_workspace(path));
        }
    }
}

/// Gives a consumer's users the password that the proof knows.
fn stage_consumer(consumer: &mut Map<String, Json>) {
    for credential in consumer.get_mut("basic_auth").and_then(Json::as_array_mut).into_iter().flatten() {
        if let Json::String(text) = credential
            && let Some((user, _)) = text.split_once(':')
        {
            *text = format!("{user}:{}", HASH.replace('$', "$$"));
        }
    }
}

/// Takes filters that depend on time out of all lists.
fn without_timed(value: &mut Json, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Json::Array(elements) => {
            let is_timed = |element: &Json| {
                element
                    .as_object()
                    .is_some_and(|map| map.len() == 1 && map.keys().all(|key| TIMED.contains(&&**key)))
            };
            elements.retain(|element| !is_timed(element));
            elements.iter_mut().for_each(|element| without_timed(element, depth + 1));
            elements.retain(|element| !is_empty_when(element));
        }
        Json::Object(map) => map.values_mut().for_each(|element| without_timed(element, depth + 1)),
        _ => {}
    }
}

/// Whether it is a `when` that has no filters left to choose from.
fn is_empty_when(element: &Json) -> bool {
    let Some(when) = element.get("when") else { return false };
    ["filters", "otherwise"]
        .iter()
        .all(|key| when.get(key).is_none_or(|list| list.as_array().is_some_and(Vec::is_empty)))
}

/// A tree as JSON with its texts as they are.
fn as_is(node: &Node) -> Json {
    json_of(node, &|_, text| text.to_owned())
}

fn json_of(node: &Node, written: &dyn Fn(&Node, &str) -> String) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::Float(value) => json!(value),
        Value::Str(text) => json!(written(node, text.as_str())),
        Value::Seq(elements) => elements.iter().map(|element| json_of(element, written)).collect(),
        Value::Map(entries) => {
            let pairs = entries.iter().map(|(key, value)| (key.text.to_string(), json_of(value, written)));
            pairs.collect()
        }
    }
}
