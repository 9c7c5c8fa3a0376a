//! nginx's config for a world of its own: the parsed tree, written as one file with other addresses and paths.
//!
//! Listeners move to loopback, and everything that would be written (logs, the pid, caches, bodies in files) to the
//! workspace. Addresses of upstreams stay: in the world of the proof every address and name leads to the echo.

mod emit;
mod scan;

use super::read::{Directive, read_all};
use crate::ledger::Ledger;
use crate::proof::patterns::{Front, Line, Stage};
use crate::proof::program::{Program, Reads, number_after};
use crate::proof::{WORKSPACE, callers};
use crate::source::{SourceTree, Unreadable};
use emit::Writer;
use std::collections::BTreeMap;

/// nginx, as its packages install it.
pub(crate) static PROGRAM: Program = Program {
    system: "nginx",
    title: "nginx",
    binary: "nginx",
    suffix: ".conf",
    stage,
    version: &["-v"],
    check: |config| {
        [&["-t"], arguments(config).as_slice()].concat().iter().map(ToString::to_string).collect()
    },
    reads: Reads::Files(
        |config| ["-T", "-e", "stderr", "-c", config].map(str::to_owned).to_vec(),
        "# configuration file ",
    ),
    run: |config| arguments(config).iter().map(ToString::to_string).collect(),
    environment: &[],
    folders: &[],
    refusal: |said| (number_after(said, ".conf:"), without_place(said)),
    own_pages: &["<center>nginx"],
};

/// Directives of the outermost level, which a fragment may have beside its servers.
const MAIN: &[&str] = &[
    "daemon",
    "debug_points",
    "env",
    "error_log",
    "events",
    "load_module",
    "lock_file",
    "mail",
    "master_process",
    "pcre_jit",
    "pid",
    "ssl_engine",
    "stream",
    "thread_pool",
    "timer_resolution",
    "user",
    "worker_cpu_affinity",
    "worker_priority",
    "worker_processes",
    "worker_rlimit_core",
    "worker_rlimit_nofile",
    "worker_shutdown_timeout",
    "working_directory",
];

const fn arguments(config: &str) -> [&str; 6] {
    ["-p", WORKSPACE, "-e", "stderr", "-c", config]
}

/// A message of nginx without the place in the staged config.
fn without_place(said: &str) -> String {
    let line = said.lines().find(|line| line.contains("[emerg]")).unwrap_or(said);
    let line = line.split_once("[emerg] ").map_or(line, |(_, rest)| rest);
    let line = line.split_once(": ").filter(|(pid, _)| pid.contains('#')).map_or(line, |(_, rest)| rest);
    line.split(" in /run/").next().unwrap_or(line).trim().to_owned()
}

/// Stages the files of `tree`; `around` is the folder of the first, for relative paths.
///
/// # Errors
/// If they cannot be read.
fn stage(tree: &mut SourceTree<'_>, around: &str) -> Result<Stage, Unreadable> {
    let mut ledger = Ledger::default();
    let all = read_all(tree, &mut ledger)?;
    let http = http_of(&all);
    let mut stage = Stage { patterns: scan::patterns(&http), ..Stage::default() };
    for directive in all.iter().filter(|directive| matches!(&*directive.name, "mail" | "stream")) {
        let why = "the proof speaks HTTP only".to_owned();
        stage.patterns.unprovable.push((line_of(directive), why));
    }
    let modules = all.iter().filter(|directive| matches!(&*directive.name, "load_module" | "env"));
    let modules: Vec<&Directive> = modules.collect();
    let users = users(tree, &http, &mut stage);
    let mut writer = Writer::new(around, &users, false);
    writer.whole(&modules, &http);
    stage.patterns.obstacles = writer.obstacles;
    stage.patterns.unprovable.extend(writer.unprovable);
    if writer.dropped_limits {
        let mut limited = Writer::new(around, &users, true);
        limited.whole(&modules, &http);
        stage.limited = Some(limited.text);
    }
    (stage.text, stage.places) = (writer.text, writer.places);
    Ok(stage)
}

/// Stand-ins for the files of users, by the path in the config: the same users with a password that the proof knows. A
/// file that cannot be read stays as it is.
fn users(tree: &mut SourceTree<'_>, http: &[Directive], stage: &mut Stage) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (path, text) in super::users::texts(tree, http) {
        let (text, names) = callers::users_file(&text, &format!("{{PLAIN}}{}", callers::PASSWORD));
        let name = format!("users-{}", stage.files.len());
        found.insert(path, format!("{WORKSPACE}/{name}"));
        stage.files.push((name, text));
        names.into_iter().for_each(|name| stage.patterns.add_user(name));
    }
    found
}

/// What stands in `http`, also of fragments: bare servers, and bare locations, which belong to a server of their own.
fn http_of(all: &[Directive]) -> Vec<Directive> {
    let mut http: Vec<Directive> = Vec::new();
    let mut loose: Vec<Directive> = Vec::new();
    for directive in all {
        match &*directive.name {
            "http" => http.extend(directive.block.iter().flatten().cloned()),
            "location" => loose.push(directive.clone()),
            name if MAIN.contains(&name) => {}
            _ => http.push(directive.clone()),
        }
    }
    if let Some(first) = loose.first() {
        let server = Directive {
            name: "server".to_owned(),
            args: Vec::new(),
            piece: first.piece,
            place: first.place.clone(),
            block: Some(loose),
        };
        http.push(server);
    }
    http
}

pub(super) fn line_of(directive: &Directive) -> Line {
    let mut text = directive.name.clone();
    for arg in &directive.args {
        text.push(' ');
        text.push_str(arg);
    }
    if let Some((cut, _)) = text.char_indices().nth(100) {
        text.truncate(cut);
        text.push('…');
    }
    let text = text.replace(|c: char| c.is_control(), "?");
    Line { place: directive.place.clone(), text }
}

/// Where a server listens, in the world of the proof, each with the other words of its line.
pub(super) fn fronts(server: &Directive) -> Vec<(Front, Vec<String>)> {
    let mut found: Vec<(Front, Vec<String>)> = Vec::new();
    let inner = || server.block.iter().flatten();
    let all_tls = inner().any(|directive| directive.name == "ssl" && directive.first() == "on");
    let listens: Vec<&Directive> = inner().filter(|directive| directive.name == "listen").collect();
    for listen in &listens {
        let Some((ip, port)) = address(listen.first()) else { continue };
        let words: Vec<String> = listen.args.iter().skip(1).cloned().collect();
        if words.iter().any(|word| word == "quic") {
            continue;
        }
        let tls = all_tls || words.iter().any(|word| word == "ssl");
        match found.iter_mut().find(|(front, _)| front.ip == ip && front.port == port) {
            // An IPv6 twin of it: nginx keeps one, with the words of both.
            Some((front, known)) => {
                front.tls |= tls;
                known.extend(words);
            }
            None => found.push((Front { ip, port, tls }, words)),
        }
    }
    if listens.is_empty() {
        found.push((Front { ip: "127.0.0.1".to_owned(), port: 80, tls: all_tls }, Vec::new()));
    }
    found
}

/// An address of `listen` as loopback, or as it is if it is a single IPv4 address. None for sockets of files.
fn address(text: &str) -> Option<(String, u16)> {
    if text.starts_with("unix:") {
        return None;
    }
    let loopback = || "127.0.0.1".to_owned();
    if let Ok(port) = text.parse() {
        return Some((loopback(), port));
    }
    let (host, port) = match text.rfind(':') {
        Some(at) if !text[at..].contains(']') => (&text[..at], text[at + 1..].parse().ok()?),
        _ => (text, 80),
    };
    let ip = match host.parse::<std::net::Ipv4Addr>() {
        Ok(ip) if !ip.is_unspecified() => host.to_owned(),
        _ => loopback(),
    };
    Some((ip, port))
}

#[cfg(test)]
mod tests;
