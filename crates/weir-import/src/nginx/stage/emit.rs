//! Writes the staged config.

use super::super::read::Directive;
use super::{fronts, line_of};
use crate::proof::WORKSPACE;
use crate::proof::patterns::{Line, unix_in_workspace};
use crate::source::{Place, join};
use std::collections::BTreeMap;

/// Directives that are dropped wherever they stand: they write, or belong to the operating system.
const DROPPED: &[&str] = &[
    "access_log",
    "aio",
    "client_body_temp_path",
    "daemon",
    "directio",
    "error_log",
    "fastcgi_temp_path",
    "listen",
    "open_log_file_cache",
    "pid",
    "proxy_bind",
    "proxy_temp_path",
    "quic_gso",
    "quic_host_key",
    "scgi_temp_path",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_dhparam",
    "ssl_ocsp",
    "ssl_ocsp_responder",
    "ssl_password_file",
    "ssl_session_ticket_key",
    "ssl_stapling",
    "ssl_stapling_file",
    "ssl_stapling_responder",
    "ssl_stapling_verify",
    "uwsgi_temp_path",
];
/// Directives without which the staged config judges too well; their lines are not provable.
const NOT_PROVABLE: &[(&str, &str)] = &[
    ("fastcgi_store", "it writes files"),
    ("limit_conn", "it depends on time"),
    ("limit_rate", "it depends on time"),
    ("limit_rate_after", "it depends on time"),
    ("proxy_ssl_certificate", "the proof has certificates of its own"),
    ("proxy_ssl_certificate_key", "the proof has certificates of its own"),
    ("proxy_ssl_crl", "the proof has certificates of its own"),
    ("proxy_ssl_trusted_certificate", "the proof has certificates of its own"),
    ("proxy_ssl_verify", "the proof has certificates of its own"),
    ("proxy_store", "it writes files"),
    ("ssl_client_certificate", "the proof has certificates of its own"),
    ("ssl_crl", "the proof has certificates of its own"),
    ("ssl_trusted_certificate", "the proof has certificates of its own"),
    ("ssl_verify_client", "the proof has certificates of its own"),
    ("ssl_verify_depth", "the proof has certificates of its own"),
];
/// Directives that stay, and that the proof does not judge, or not wholly.
const NOT_JUDGED: &[(&str, &str)] = &[
    ("keepalive_requests", "each request of the proof has a connection of its own"),
    ("keepalive_time", "each request of the proof has a connection of its own"),
    (
        "limit_req_zone",
        "how fast it refills depends on time; how many pass at once, and who is counted, is proved",
    ),
    ("proxy_cache_valid", "when an answer expires depends on time"),
    ("set_real_ip_from", "the proof sends no addresses of clients in fields"),
];
/// Why a directive whose name ends in `_timeout` is not judged.
const WAITS: &str = "it is a delay, and the proof does not wait";
/// Words of `listen` that stay.
const LISTEN_WORDS: &[&str] = &["ssl", "http2", "default_server", "default", "proxy_protocol"];

/// The staged text as it grows.
pub(super) struct Writer<'a> {
    pub(super) text: String,
    /// For each line of the text where it came from.
    pub(super) places: Vec<Option<Place>>,
    pub(super) obstacles: Vec<(Line, String)>,
    pub(super) unprovable: Vec<(Line, String)>,
    /// Whether `limit_req` was dropped.
    pub(super) dropped_limits: bool,
    keeps_limits: bool,
    around: &'a str,
    /// Files of users by the path in the config, as paths of the workspace.
    users: &'a BTreeMap<String, String>,
    caches: usize,
}

impl<'a> Writer<'a> {
    pub(super) const fn new(
        around: &'a str,
        users: &'a BTreeMap<String, String>,
        keeps_limits: bool,
    ) -> Self {
        Self {
            text: String::new(),
            places: Vec::new(),
            obstacles: Vec::new(),
            unprovable: Vec::new(),
            dropped_limits: false,
            keeps_limits,
            around,
            users,
            caches: 0,
        }
    }

    pub(super) fn whole(&mut self, main: &[&Directive], http: &[Directive]) {
        for directive in main {
            self.directive(directive, 0);
        }
        for line in [
            "daemon off;".to_owned(),
            "user root root;".to_owned(),
            "worker_processes 1;".to_owned(),
            "error_log stderr warn;".to_owned(),
            format!("pid {WORKSPACE}/nginx.pid;"),
            "events { worker_connections 512; }".to_owned(),
            "http {".to_owned(),
            "access_log off;".to_owned(),
            format!("client_body_temp_path {WORKSPACE}/t1;"),
            format!("proxy_temp_path {WORKSPACE}/t2;"),
            format!("fastcgi_temp_path {WORKSPACE}/t3;"),
            format!("uwsgi_temp_path {WORKSPACE}/t4;"),
            format!("scgi_temp_path {WORKSPACE}/t5;"),
            format!("ssl_certificate {WORKSPACE}/cert.pem;"),
            format!("ssl_certificate_key {WORKSPACE}/key.pem;"),
        ] {
            self.line(&line, None);
        }
        // What is not said is relative to the workspace here, and to the folder of nginx's package there.
        if !http.iter().any(|directive| directive.name == "root") {
            self.line("root /usr/share/nginx/html;", None);
        }
        for directive in http {
            self.directive(directive, 1);
        }
        self.line("}", None);
    }

    fn line(&mut self, line: &str, place: Option<&Place>) {
        self.text.push_str(line);
        self.text.push('\n');
        self.places.push(place.cloned());
    }

    fn directive(&mut self, directive: &Directive, depth: usize) {
        let name = &*directive.name;
        if DROPPED.contains(&name) {
            return;
        }
        if let Some((_, why)) = NOT_PROVABLE.iter().find(|(known, _)| *known == name) {
            self.unprovable.push((line_of(directive), (*why).to_owned()));
            return;
        }
        let noted = NOT_JUDGED.iter().find(|(known, _)| *known == name).map(|(_, why)| *why);
        if let Some(why) = noted.or_else(|| name.ends_with("_timeout").then_some(WAITS)) {
            self.unprovable.push((line_of(directive), why.to_owned()));
        }
        if name == "limit_req" && !self.keeps_limits {
            self.dropped_limits = true;
            return;
        }
        if name.ends_with("_by_lua_block") || name.ends_with("_by_lua") || name.ends_with("_by_lua_file") {
            self.obstacles.push((line_of(directive), "its Lua is not read".to_owned()));
            return;
        }
        let args = self.args(directive);
        let mut head = "  ".repeat(depth);
        head.push_str(&quoted(name));
        for arg in &args {
            head.push(' ');
            head.push_str(&quoted(arg));
        }
        match &directive.block {
            None => {
                head.push(';');
                self.line(&head, Some(&directive.place));
            }
            Some(block) => {
                head.push_str(" {");
                self.line(&head, Some(&directive.place));
                if name == "server" && depth == 1 {
                    self.listens(directive);
                }
                for inner in block {
                    self.directive(inner, depth + 1);
                }
                self.line(&format!("{}}}", "  ".repeat(depth)), Some(&directive.place));
            }
        }
    }

    fn listens(&mut self, server: &Directive) {
        for (front, words) in fronts(server) {
            let mut line = format!("    listen {}:{}", front.ip, front.port);
            let mut kept: Vec<&str> = words.iter().map(String::as_str).collect();
            kept.retain(|word| LISTEN_WORDS.contains(word));
            kept.sort_unstable();
            kept.dedup();
            if kept.contains(&"default_server") {
                kept.retain(|word| *word != "default");
            }
            for word in kept {
                line.push(' ');
                line.push_str(word);
            }
            line.push(';');
            self.line(&line, Some(&server.place));
        }
    }

    /// The arguments in the world of the proof.
    fn args(&mut self, directive: &Directive) -> Vec<String> {
        let mut args = directive.args.clone();
        let name = &*directive.name;
        match name {
            "resolver" => args = vec!["127.0.0.1".to_owned(), "ipv6=off".to_owned()],
            "proxy_cache_path" | "fastcgi_cache_path" | "uwsgi_cache_path" | "scgi_cache_path" => {
                self.caches += 1;
                if let Some(path) = args.first_mut() {
                    *path = format!("{WORKSPACE}/cache{}", self.caches);
                }
                args.retain(|word| !word.starts_with("use_temp_path"));
            }
            "auth_basic_user_file" => {
                if let Some(path) = args.first_mut() {
                    match self.users.get(path) {
                        Some(staged) => path.clone_from(staged),
                        None if !path.starts_with(['/', '$']) => *path = join(self.around, path),
                        None => {}
                    }
                }
            }
            "listen" | "set_real_ip_from" => {}
            _ => {
                let sends = name == "server" || name.ends_with("_pass");
                for arg in &mut args {
                    let Some(at) = arg.find("unix:") else { continue };
                    if sends {
                        let path = &arg[at + 5..];
                        let (path, rest) = path.split_at(path.find(':').unwrap_or(path.len()));
                        *arg = format!("{}unix:{}{rest}", &arg[..at], unix_in_workspace(path));
                    } else if !matches!(name, "return" | "add_header" | "sub_filter") {
                        let why = "it may reach a socket of this machine".to_owned();
                        self.obstacles.push((line_of(directive), why));
                    }
                }
            }
        }
        args
    }
}

/// A word as nginx reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=$@^~*+!<>,%&?()|[]".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let mut text = String::with_capacity(word.len() + 2);
    text.push('"');
    for c in word.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}
