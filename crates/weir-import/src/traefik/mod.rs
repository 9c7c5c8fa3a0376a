//! Traefik: the static config and dynamic ones in YAML and TOML, and labels of Docker Compose files.
//!
//! [`fixed`] reads the static config, [`compose`] and [`labels`] the labels. [`rule`] and [`matches`] make matches of
//! rules, [`middlewares`] filters, [`services`] upstreams, [`listeners`] listeners of entry points; [`routers`] puts
//! them together in Traefik's order.

mod auth;
mod compose;
mod cx;
mod fixed;
mod headers;
mod labels;
mod listeners;
mod matches;
mod middlewares;
mod pages;
mod paths;
mod routers;
mod rule;
mod services;
mod tcp;
mod traffic;

use crate::config::{Config, name_of};
use crate::ledger::Ledger;
use crate::shared::tree::{self, Node};
use crate::shared::users::Users;
use crate::shared::{filters, toml};
use crate::source::{Place, SourceFile, SourceTree, Unreadable, folder, join};
use crate::system::System;
use crate::yaml::Map;
use compose::Container;
use cx::{Cx, Things};
use fixed::Fixed;
use std::collections::{HashMap, HashSet};

/// Traefik 2 and 3.
pub(crate) static SYSTEM: System = System {
    name: "traefik",
    title: "Traefik",
    files: "traefik.yml, dynamic configs (YAML, TOML), compose files with labels, files of users",
    import,
};

/// All files, read.
#[derive(Default)]
struct Files {
    /// Static configs.
    fixed: Vec<Node>,
    /// Dynamic configs.
    dynamic: Vec<Node>,
    containers: Vec<Container>,
    /// Lines of files with users, by base name.
    users: HashMap<String, Vec<String>>,
    read: HashSet<String>,
}

fn import(tree: &mut SourceTree<'_>, ledger: &mut Ledger) -> Result<Config, Unreadable> {
    let mut files = Files::default();
    for path in tree.given().to_vec() {
        files.read(&path, tree, ledger)?;
    }
    let mut config = Config::default();
    config.more.set("admin", Map::new().with("address", "127.0.0.1:9180"));
    let mut fixed = Fixed::default();
    let roots = std::mem::take(&mut files.fixed);
    for root in &roots {
        fixed::read(root, &mut fixed, &mut config, ledger);
    }
    follow(&fixed, &mut files, tree, ledger)?;
    let mut things = Things::default();
    for root in &files.dynamic {
        things.read(root, "file", None, ledger);
    }
    for container in &files.containers {
        if container.is_enabled == Some(false) {
            container.tree.each_piece(&mut |piece| ledger.left_out(piece, "traefik.enable=false"));
            continue;
        }
        if fixed.hides_containers && container.is_enabled.is_none() {
            let why = "exposedByDefault is false and traefik.enable is not set, so Traefik ignores it";
            container.tree.each_piece(&mut |piece| ledger.left_out(piece, why));
            continue;
        }
        things.read(&container.tree, "docker", Some(container), ledger);
    }
    notes(&files, ledger);
    let default_syntax = fixed.syntax();
    let mut cx = Cx {
        things: &things,
        config: &mut config,
        ledger,
        users: Users::default(),
        user_files: &files.users,
        default_transport: fixed.transport,
        default_syntax,
        used: HashSet::new(),
        served: HashMap::new(),
    };
    let routers = routers::read(&mut cx, &fixed);
    listeners::complete(&mut cx, &mut fixed, &routers);
    let tcp = tcp::read(&mut cx, &fixed);
    let listeners = listeners::write(&mut cx, &mut fixed, &routers, &tcp);
    routers::write(&mut cx, &fixed, &listeners, &routers);
    tcp::write(&mut cx, &fixed, &listeners, &tcp);
    for point in &fixed.points {
        if let Some(piece) = point.piece.filter(|_| cx.config.listeners.get(&name_of(&point.name)).is_none())
        {
            cx.ledger.changed(piece, "no router is on it, so it is no listener");
        }
    }
    if let Some(transport) = fixed.transport.filter(|_| cx.config.upstreams.is_empty()) {
        transport.each_piece(&mut |piece| cx.ledger.left_out(piece, "there is no service"));
    }
    cx.close();
    filters::close_without_consumers(&mut config);
    Ok(config)
}

/// What Traefik does by default and Weir does not.
fn notes(files: &Files, ledger: &mut Ledger) {
    for note in [
        "X-Forwarded-For: Traefik and Weir replace it unless the client is trusted; Weir sends no X-Real-IP, \
         X-Forwarded-Port and X-Forwarded-Server",
        "timeouts: Traefik waits for an answer without limit, so `response: 0s` is written; Weir's default is 30s",
        "retries: without the middleware Traefik has none; Weir repeats what did not reach the endpoint",
        "no route: both answer 404; Weir's text is another (the filter errors sets it)",
        "paths: Weir refuses paths that two servers could read differently, such as `/a%2F..`: \
         docs/reference/routing.md",
    ] {
        ledger.note(note);
    }
    if !files.containers.is_empty() {
        ledger.note(
            "containers: reached by the names of their services, which Docker's DNS knows in their networks; \
             upstreams.NAME.discover.docker follows containers that come and go",
        );
    }
}

impl Files {
    /// Reads a file, and finds out what it is by its keys.
    fn read(&mut self, path: &str, tree: &mut SourceTree<'_>, ledger: &mut Ledger) -> Result<(), Unreadable> {
        if !self.read.insert(path.to_owned()) {
            return Ok(());
        }
        let file = tree.read(path)?;
        let base = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
        let is_config = [".yml", ".yaml", ".toml", ".json"].iter().any(|ending| base.ends_with(ending));
        if !is_config && base != ".env" {
            let lines = file.text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
            let lines: Vec<String> = lines.map(str::to_owned).collect();
            if lines.iter().all(|line| line.contains(':') && !line.contains([' ', '{', '='])) {
                let name = path.rsplit('/').next().unwrap_or(path).to_owned();
                self.users.insert(name, lines);
                return Ok(());
            }
        }
        if base == ".env" {
            return Ok(());
        }
        let mut scratch = Ledger::default();
        let root = parse(&file, &mut scratch)?;
        if compose::is_one(&root) {
            let compose = compose::read(&file, tree, ledger)?;
            self.containers.extend(compose.containers);
            self.fixed.extend(compose.fixed);
            return Ok(());
        }
        let has = |names: &[&str]| {
            root.as_map()
                .unwrap_or_default()
                .iter()
                .any(|entry| names.iter().any(|name| entry.key.eq_ignore_ascii_case(name)))
        };
        let is_dynamic = has(&["http", "tcp", "udp", "tls"]);
        let is_static = has(&[
            "entryPoints",
            "providers",
            "certificatesResolvers",
            "api",
            "log",
            "accessLog",
            "global",
            "metrics",
            "tracing",
            "ping",
            "serversTransport",
            "experimental",
            "core",
            "hostResolver",
            "pilot",
        ]);
        match (is_dynamic, is_static) {
            (true, false) => self.dynamic.push(parse(&file, ledger)?),
            (false, true) => self.fixed.push(parse(&file, ledger)?),
            (true, true) => {
                // Traefik reads one or the other; a file for both is split by its keys.
                ledger.note(format!("{path} has static and dynamic keys; Traefik needs a file for each"));
                let root = parse(&file, ledger)?;
                let (mut one, mut other) = (Vec::new(), Vec::new());
                for entry in root.as_map().unwrap_or_default() {
                    let is_dynamic =
                        ["http", "tcp", "udp", "tls"].iter().any(|name| entry.key.eq_ignore_ascii_case(name));
                    if is_dynamic { one.push(entry.clone()) } else { other.push(entry.clone()) }
                }
                self.dynamic.push(Node { line: 1, value: tree::Value::Map(one) });
                self.fixed.push(Node { line: 1, value: tree::Value::Map(other) });
            }
            (false, false) => {
                let message =
                    "neither a static nor a dynamic config of Traefik, nor a compose file with labels";
                return Err(Unreadable::anywhere(format!("{path}: {message}")));
            }
        }
        Ok(())
    }
}

/// Reads YAML, JSON or TOML.
fn parse(file: &SourceFile, ledger: &mut Ledger) -> Result<Node, Unreadable> {
    let is_toml = file.name.to_ascii_lowercase().ends_with(".toml");
    let read = if is_toml { toml::read(file, ledger) } else { tree::read(file, ledger) };
    read.map_err(|unreadable| {
        let template = file.text.lines().position(|line| line.contains("{{"));
        match template {
            None => unreadable,
            Some(line) => Unreadable::at(
                &Place::new(&file.name, u32::try_from(line + 1).unwrap_or(u32::MAX)),
                "a template of Go, which only Traefik renders: write what it comes to, and import again",
            ),
        }
    })
}

/// Reads the files of the provider `file`, where they are beside the static config.
fn follow(
    fixed: &Fixed<'_>,
    files: &mut Files,
    tree: &mut SourceTree<'_>,
    ledger: &mut Ledger,
) -> Result<(), Unreadable> {
    for (path, is_folder, piece) in &fixed.files {
        let from = ledger.place(*piece).map(|place| place.file.to_string()).unwrap_or_default();
        let here = folder(&from).to_owned();
        let base = path.trim_end_matches('/').rsplit('/').next().unwrap_or(path).to_owned();
        // A path in a container, such as /etc/traefik/dynamic: the same name beside the static config.
        let candidates = [join(&here, path), join(&here, &base)];
        let mut found: Vec<String> = Vec::new();
        for candidate in candidates {
            let wanted: Vec<String> = match is_folder {
                false => {
                    let siblings = join(folder(&candidate), "*");
                    tree.glob(&siblings).into_iter().filter(|path| *path == candidate).collect()
                }
                true => ["yml", "yaml", "toml"]
                    .iter()
                    .flat_map(|ending| tree.glob(&format!("{candidate}/*.{ending}")))
                    .collect(),
            };
            found = wanted;
            if !found.is_empty() {
                break;
            }
        }
        if found.is_empty() && files.dynamic.is_empty() {
            ledger.refused(*piece, format!("`{path}` is not here"), "give the dynamic config too");
            continue;
        }
        ledger.same(*piece);
        for path in found {
            files.read(&path, tree, ledger)?;
        }
    }
    Ok(())
}
