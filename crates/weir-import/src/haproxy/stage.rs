//! HAProxy's config for a world of its own: the sections that were read, written as one file with other addresses.
//!
//! Clients' addresses move to loopback, certificates become those of the proof, and checks, logs and statistics go.
//! Addresses of servers stay: in the world of the proof every address and name leads to the echo.

mod scan;

use super::context::read_beside;
use super::model::{Model, Proxy};
use super::read::{Line, Section, has_variable, read_all};
use super::sample::COUNTERS;
use crate::ledger::Ledger;
use crate::proof::patterns::{Front, Line as Shown, Stage, unix_in_workspace};
use crate::proof::program::{PAIR, Program, Reads, number_after};
use crate::shared::families::any_ipv6_port;
use crate::source::{Place, SourceTree, Unreadable};
use std::collections::{HashMap, HashSet};

/// HAProxy, as its packages install it.
pub(crate) static PROGRAM: Program = Program {
    system: "haproxy",
    title: "HAProxy",
    binary: "haproxy",
    suffix: ".cfg",
    stage,
    version: &["-v"],
    check: |config| ["-c", "-f", config].map(str::to_owned).to_vec(),
    reads: Reads::Checks,
    run: |config| ["-db", "-f", config].map(str::to_owned).to_vec(),
    environment: &[],
    folders: &[],
    refusal,
    own_pages: &[
        "A request was made of a resource using a request method not supported",
        "An internal server error occurred.",
        "No server is available to handle this request.",
        "Request forbidden by administrative rules.",
        "The request entity exceeds the maximum allowed.",
        "The resource could not be found.",
        "The resource is no longer available",
        "The server didn't respond in time.",
        "The server returned an invalid or incomplete response.",
        "You have sent too many requests in a given amount of time.",
        "You need a valid user and password to access this content.",
        "Your browser sent an invalid request.",
    ],
};

/// What HAProxy says of a config that it refuses: `[ALERT] … parsing [FILE.cfg:12] : words`.
fn refusal(said: &str) -> (Option<usize>, String) {
    let mut alerts = said.lines().filter(|line| line.contains("[ALERT]"));
    let line = alerts.next().unwrap_or(said);
    let words = line.split_once("] : ").map_or(line, |(_, rest)| rest);
    let words = words.rsplit_once("] : ").map_or(words, |(_, rest)| rest);
    (number_after(line, ".cfg:"), words.trim().trim_start_matches("config : ").to_owned())
}

/// Keywords of proxies that are dropped: they write, check, or belong to the machine.
const DROPPED: &[&str] = &[
    "bind",
    "cookie",
    "dynamic-cookie-key",
    "email-alert",
    "external-check",
    "http-check",
    "id",
    "load-server-state-from-file",
    "log",
    "log-tag",
    "mode-tcp",
    "server-state-file-name",
    "source",
    "stats",
    "tcp-check",
];
/// Options that are dropped: checks of servers.
const DROPPED_OPTIONS: &[&str] = &[
    "external-check",
    "httpchk",
    "ldap-check",
    "mysql-check",
    "pgsql-check",
    "redis-check",
    "smtpchk",
    "ssl-hello-chk",
    "tcp-check",
];
/// Options of servers that stay, with how many words follow.
const SERVER_WORDS: &[(&str, usize)] =
    &[("backup", 0), ("disabled", 0), ("maxconn", 1), ("minconn", 1), ("sni", 1), ("ssl", 0), ("weight", 1)];
/// Stages the files of `tree`; `around` is the folder of the first, for relative paths.
///
/// # Errors
/// If they cannot be read.
fn stage(tree: &mut SourceTree<'_>, around: &str) -> Result<Stage, Unreadable> {
    let mut ledger = Ledger::default();
    let sections = read_all(tree, &mut ledger)?;
    let model = Model::new(&sections, &mut ledger);
    let mut stage = Stage::default();
    for line in ledger.lines().iter().filter(|line| line.text.starts_with(".if")) {
        let shown = Shown { place: line.place.clone(), text: line.text.clone() };
        stage.patterns.obstacles.push((shown, "weir import does not read what depends on `.if`".to_owned()));
    }
    let mut writer = Writer::new(tree, around, false);
    writer.whole(&sections, &model);
    let (text, places, files) = (writer.text, writer.places, writer.files);
    let (obstacles, unprovable, timed) = (writer.obstacles, writer.unprovable, writer.dropped_limits);
    let users = writer.users;
    if timed {
        let mut limited = Writer::new(tree, around, true);
        limited.whole(&sections, &model);
        stage.limited = Some(limited.text);
    }
    let serves = model.proxies.iter().any(|proxy| proxy.is_front() && proxy.mode() == "http");
    if let Some(section) = sections.first().filter(|_| !serves) {
        let why = "no frontend of it speaks HTTP, and the proof speaks nothing else".to_owned();
        stage.patterns.obstacles.push((shown(&section.head), why));
    }
    let mut patterns = scan::patterns(&model, tree, &mut ledger);
    patterns.obstacles.append(&mut stage.patterns.obstacles);
    patterns.obstacles.extend(obstacles);
    patterns.unprovable.extend(unprovable);
    patterns.users = users;
    (stage.text, stage.places, stage.files, stage.patterns) = (text, places, files, patterns);
    Ok(stage)
}

/// A line for the report.
pub(super) fn shown(line: &Line) -> Shown {
    Shown { place: line.place.clone(), text: super::words(line) }
}

/// Where clients reach a proxy, in the world of the proof.
pub(super) fn fronts(model: &Model<'_>, proxy: &Proxy<'_>) -> Vec<(Front, String)> {
    let mut found: Vec<(Front, String)> = Vec::new();
    let others = model.proxies.iter().filter(|other| other.is_front() && other.name != proxy.name);
    let ipv4: Vec<u16> = others.flat_map(super::families::ipv4_ports).collect();
    for bind in super::bind::binds(proxy) {
        for address in &bind.addresses {
            // The witnesses use IPv4, and the kernel gives IPv4 clients to the other frontend.
            if any_ipv6_port(address).is_some_and(|port| ipv4.contains(&port)) {
                continue;
            }
            let Some((host, port)) = address.rsplit_once(':').filter(|_| !address.starts_with("unix:"))
            else {
                continue;
            };
            let Ok(port) = port.parse() else { continue };
            let ip = match host.parse::<std::net::Ipv4Addr>() {
                Ok(ip) if !ip.is_unspecified() => host.to_owned(),
                Ok(_) => "127.0.0.1".to_owned(),
                // An address of IPv6 is reached by its twin, or not at all.
                Err(_) if host == "[::]" => "127.0.0.1".to_owned(),
                Err(_) => continue,
            };
            let front = Front { ip, port, tls: bind.is_tls };
            if !found.iter().any(|(known, _)| known.ip == front.ip && known.port == front.port) {
                let alpn = bind.line.after(2, "alpn").unwrap_or_default();
                found.push((front, alpn.to_owned()));
            }
        }
    }
    found
}

/// The staged text as it grows.
struct Writer<'t, 's> {
    tree: &'t mut SourceTree<'s>,
    around: &'t str,
    keeps_limits: bool,
    text: String,
    /// For each line of the text where it came from.
    places: Vec<Option<Place>>,
    files: Vec<(String, String)>,
    /// Files by the path that the config names.
    copies: HashMap<String, String>,
    obstacles: Vec<(Shown, String)>,
    unprovable: Vec<(Shown, String)>,
    /// Whether a rule that depends on a counter was dropped.
    dropped_limits: bool,
    /// Names of users.
    users: Vec<String>,
}

impl<'t, 's> Writer<'t, 's> {
    fn new(tree: &'t mut SourceTree<'s>, around: &'t str, keeps_limits: bool) -> Self {
        Self {
            tree,
            around,
            keeps_limits,
            text: String::new(),
            places: Vec::new(),
            files: Vec::new(),
            copies: HashMap::new(),
            obstacles: Vec::new(),
            unprovable: Vec::new(),
            dropped_limits: false,
            users: Vec::new(),
        }
    }

    fn line(&mut self, words: &[String], indent: &str, place: Option<&Place>) {
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        self.text.push_str(&format!("{indent}{}\n", words.join(" ")));
        self.places.push(place.cloned());
    }

    fn whole(&mut self, sections: &[Section], model: &Model<'_>) {
        self.line(&["global".to_owned()], "", None);
        self.line(&["maxconn", "500"].map(str::to_owned), "  ", None);
        for line in &model.global {
            match line.key() {
                key if key.starts_with("lua-") => {
                    self.obstacles.push((shown(line), "its Lua is not read".to_owned()));
                }
                "setenv" | "presetenv" | "set-var" => self.kept(line),
                _ => {}
            }
        }
        let mut proxies = model.proxies.iter();
        for section in sections {
            match &*section.kind {
                "defaults" | "userlist" | "http-errors" | "cache" | "fcgi-app" => {
                    self.section(section, model, None)
                }
                "resolvers" => {
                    self.line(&section.head.words, "", Some(&section.head.place));
                    self.line(&["nameserver", "w", "127.0.0.1:53"].map(str::to_owned), "  ", None);
                }
                "frontend" | "backend" | "listen" => {
                    let Some(proxy) = proxies.next() else { continue };
                    if proxy.mode() != "http" {
                        let why = "the proof speaks HTTP only".to_owned();
                        self.unprovable.push((shown(&section.head), why));
                    } else if !super::is_statistics(proxy) {
                        self.section(section, model, Some(proxy));
                    }
                }
                _ => {}
            }
        }
    }

    fn section(&mut self, section: &Section, model: &Model<'_>, proxy: Option<&Proxy<'_>>) {
        self.line(&section.head.words, "", Some(&section.head.place));
        if let Some(proxy) = proxy.filter(|proxy| proxy.is_front()) {
            for (front, alpn) in fronts(model, proxy) {
                let mut words = vec!["bind".to_owned(), format!("{}:{}", front.ip, front.port)];
                if front.tls {
                    words.extend(["ssl", "crt", PAIR].map(str::to_owned));
                }
                if front.tls && !alpn.is_empty() {
                    words.extend(["alpn".to_owned(), alpn]);
                }
                self.line(&words, "  ", Some(&section.head.place));
            }
        }
        let counted = counted_acls(proxy.map_or(&[], |proxy| &proxy.lines));
        let is_last =
            |line: &Line| proxy.is_none_or(|proxy| proxy.lines.iter().any(|own| own.piece == line.piece));
        for line in section.lines.iter().filter(|line| is_last(line)) {
            self.of_proxy(line, &counted);
        }
    }

    fn of_proxy(&mut self, line: &Line, counted: &HashSet<&str>) {
        let key = line.key();
        if key == "timeout" {
            self.unprovable.push((shown(line), "it is a delay, and the proof does not wait".to_owned()));
        }
        match key {
            "bind" if line.has(2, "accept-proxy") || line.has(2, "verify") => {
                let why = "the proof has certificates of its own, and sends no PROXY header";
                return self.unprovable.push((shown(line), why.to_owned()));
            }
            "cookie" => {
                let why = "each program makes the cookie's value itself";
                return self.unprovable.push((shown(line), why.to_owned()));
            }
            "option" if DROPPED_OPTIONS.contains(&line.word(1)) => return,
            "mode" if line.word(1) == "tcp" => {
                return self.kept_as(line, &["mode", "http"].map(str::to_owned));
            }
            // HAProxy waits as long, up to 1 s, before it tries a dead server again; on loopback connects take no time.
            "timeout" if line.word(1) == "connect" => {
                return self.kept_as(line, &["timeout", "connect", "100ms"].map(str::to_owned));
            }
            "user" => return self.user(line),
            "server" | "server-template" => return self.server(line),
            "default-server" => {
                let words = [vec!["default-server".to_owned()], self.options(line, 1)].concat();
                if words.len() > 1 {
                    self.kept_as(line, &words);
                }
                return;
            }
            "filter"
                if matches!(line.word(1), "spoe" | "opentracing" | "lua")
                    || line.word(1).starts_with("lua.") =>
            {
                return self.obstacles.push((shown(line), "a program beside HAProxy".to_owned()));
            }
            "errorfile" => return self.error_file(line),
            "stick-table" => {
                let at = line.words.iter().position(|word| word == "peers");
                let mut words = line.words.clone();
                if let Some(at) = at {
                    words.drain(at..(at + 2).min(words.len()));
                }
                let why = "how long it counts depends on time; how many pass at once is proved";
                self.unprovable.push((shown(line), why.to_owned()));
                return self.kept_as(line, &words);
            }
            _ if DROPPED.contains(&key) => return,
            _ => {}
        }
        if line.words.iter().any(|word| word.starts_with("lua.")) {
            return self.obstacles.push((shown(line), "its Lua is not read".to_owned()));
        }
        if is_timed(line, counted) && !self.keeps_limits {
            self.dropped_limits = true;
            return;
        }
        self.kept(line);
    }

    /// A user with the password that the proof knows.
    fn user(&mut self, line: &Line) {
        let mut words = line.words.clone();
        let at = words.iter().position(|word| matches!(&**word, "password" | "insecure-password"));
        if let Some(at) = at.filter(|at| at + 1 < words.len()) {
            "insecure-password".clone_into(&mut words[at]);
            crate::proof::callers::PASSWORD.clone_into(&mut words[at + 1]);
            let name = line.word(1).to_owned();
            if !self.users.contains(&name) {
                self.users.push(name);
            }
        }
        self.kept_as(line, &words);
    }

    fn kept(&mut self, line: &Line) {
        let words = line.words.clone();
        self.kept_as(line, &words);
    }

    /// Writes a line, with copies of the files that it names.
    fn kept_as(&mut self, line: &Line, words: &[String]) {
        let mut out: Vec<String> = Vec::with_capacity(words.len());
        let mut is_path = false;
        for word in words {
            if has_variable(word) {
                return self.obstacles.push((shown(line), "a value stands in the environment".to_owned()));
            }
            let next = matches!(&**word, "-f" | "file" | "lf-file");
            let path = if is_path { Some(word.clone()) } else { path_of_map(word) };
            is_path = next && line.key() != "errorfile";
            let Some(path) = path else {
                out.push(word.clone());
                continue;
            };
            match self.copy(&path) {
                Ok(name) => out.push(word.replacen(&path, &name, 1)),
                Err(why) => return self.obstacles.push((shown(line), why)),
            }
        }
        self.line(&out, "  ", Some(&line.place));
    }

    /// A file that a line names, as one of the workspace.
    fn copy(&mut self, path: &str) -> Result<String, String> {
        if let Some(known) = self.copies.get(path) {
            return Ok(known.clone());
        }
        let text = read_beside(self.tree, self.around, path)?;
        let name = format!("file-{}", self.copies.len());
        self.files.push((name.clone(), text));
        let name = format!("{}/{name}", crate::proof::WORKSPACE);
        self.copies.insert(path.to_owned(), name.clone());
        Ok(name)
    }

    fn error_file(&mut self, line: &Line) {
        match self.copy(line.word(2)) {
            Ok(path) => self.kept_as(line, &["errorfile".to_owned(), line.word(1).to_owned(), path]),
            Err(why) => self.unprovable.push((shown(line), format!("its page is not there: {why}"))),
        }
    }

    fn server(&mut self, line: &Line) {
        let at = if line.key() == "server" { 2 } else { 3 };
        let address = line.word(at);
        let address =
            match address.strip_prefix("unix@").or_else(|| address.starts_with('/').then_some(address)) {
                Some(path) => format!("unix@{}", unix_in_workspace(path)),
                None => address.to_owned(),
            };
        let mut words = vec!["server".to_owned(), line.word(1).to_owned(), address];
        words.extend(self.options(line, at + 1));
        self.kept_as(line, &words);
    }

    /// The options of a server that stay.
    fn options(&mut self, line: &Line, from: usize) -> Vec<String> {
        let mut words = Vec::new();
        for (at, word) in line.words.iter().enumerate().skip(from) {
            if let Some((_, more)) = SERVER_WORDS.iter().find(|(known, _)| known == word) {
                words.extend(line.words.iter().skip(at).take(1 + more).cloned());
            }
            match &**word {
                "ssl" => words.extend(["verify", "none"].map(str::to_owned)),
                "verify" | "crt" if line.word(at + 1) != "none" => {
                    self.unprovable.push((shown(line), "the proof has certificates of its own".to_owned()));
                }
                "send-proxy" | "send-proxy-v2" => {
                    self.unprovable.push((shown(line), "the echo takes no PROXY header".to_owned()));
                }
                _ => {}
            }
        }
        words
    }
}

/// Names of ACLs that read a counter.
fn counted_acls<'a>(lines: &[&'a Line]) -> HashSet<&'a str> {
    let is_counter = |line: &&&Line| COUNTERS.iter().any(|start| line.word(2).starts_with(start));
    lines.iter().filter(|line| line.key() == "acl").filter(is_counter).map(|line| line.word(1)).collect()
}

/// Whether a rule refuses by a counter.
pub(super) fn is_timed(line: &Line, counted: &HashSet<&str>) -> bool {
    matches!(line.key(), "http-request" | "tcp-request")
        && line.words.iter().any(|word| {
            counted.contains(word.trim_start_matches('!'))
                || COUNTERS.iter().any(|start| word.starts_with(start))
        })
}

/// The file in `…,map_str(FILE,default)`.
fn path_of_map(word: &str) -> Option<String> {
    let at = word.find("map(").or_else(|| word.find("map_"))?;
    let (_, rest) = word.get(at..)?.split_once('(')?;
    let path = rest.split([',', ')']).next()?.trim_matches(['"', '\'']);
    (!path.is_empty()).then(|| path.to_owned())
}

/// A word as HAProxy reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@^*+!<>,%&?()|[]{}$".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    let mut out = String::from("'");
    for c in word.chars() {
        match c {
            '\'' => out.push_str("'\\''"),
            '\n' => out.push_str("'\\n'"),
            '\r' => out.push_str("'\\r'"),
            '\t' => out.push_str("'\\t'"),
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Memory;

    #[test]
    fn refusals_name_their_line() {
        let said = "[NOTICE]   (7) : haproxy version is 2.6.12\n[WARNING]  (7) : config : parsing [/x/old.cfg:3] : odd\n\
                    [ALERT]    (7) : config : parsing [/run/weir-proof/old.cfg:12] : unknown keyword 'x' in 'frontend' section\n";
        assert_eq!(refusal(said), (Some(12), "unknown keyword 'x' in 'frontend' section".to_owned()));
    }

    #[test]
    fn nothing_of_the_machine_stays() {
        let source = "global\n  stats socket /run/x.sock\n  chroot /var/lib\n  user root\ndefaults\n  mode http\n  log /dev/log local0\n\
            frontend f\n  bind 10.0.0.1:80,:8080\n  bind :443 ssl crt /etc/x.pem ca-file /c verify required\n  acl a path -f list\n\
            http-request deny if { sc_http_req_rate(0) gt 5 }\n  use_backend %[path,map(routes.map)]\n\
            backend b\n  cookie S insert\n  option httpchk\n  server s unix@/run/app.sock check ssl verify required crt /k weight 3\n";
        let files = Memory::of(&[("haproxy.cfg", source), ("list", "/a\n"), ("routes.map", "/a b\n")]);
        let mut tree = SourceTree::open(&files, &["haproxy.cfg".to_owned()]).unwrap();
        let stage = stage(&mut tree, "").unwrap();
        for gone in [
            "/run/x.sock",
            "/var/lib",
            "user",
            "/dev/log",
            "/etc/x.pem",
            "/c",
            "verify required",
            "cookie",
            "check",
            "sc_http",
            "/k",
        ] {
            assert!(!stage.text.contains(gone), "{gone}\n{}", stage.text);
        }
        for kept in [
            "bind 10.0.0.1:80\n",
            "bind 127.0.0.1:8080\n",
            "bind 127.0.0.1:443 ssl crt /run/weir-proof/pair.pem\n",
            "acl a path -f /run/weir-proof/file-0\n",
            "map(/run/weir-proof/file-1)",
            "ssl verify none weight 3\n",
        ] {
            assert!(stage.text.contains(kept), "{kept}\n{}", stage.text);
        }
        assert!(stage.limited.is_some_and(|text| text.contains("sc_http_req_rate(0)")));
        assert_eq!(stage.files.len(), 2);
        assert_eq!(stage.text.lines().count(), stage.places.len());
    }
}
