//! Caddy's JSON, as `caddy adapt` prints it: servers with routes, in the order in which they run.

mod handler;
mod proxy;
mod server;

use super::listeners::{Plan, Tls};
use super::model::{FileTest, Handler, Kind, Matcher, Route, Set};
use super::site::Adapted;
use super::verdicts::Judged;
use crate::config::Config;
use crate::ledger::{Ledger, Piece};
use crate::shared::tree::{self, Entry, Node};
use crate::source::{SourceFile, Unreadable};

/// Reads a config.
///
/// # Errors
/// If it is no JSON.
pub(super) fn adapt(
    file: &SourceFile,
    config: &mut Config,
    ledger: &mut Ledger,
) -> Result<Adapted, Unreadable> {
    let root = tree::read(file, ledger)?;
    if root.as_map().is_none() {
        return Err(Unreadable::anywhere(format!("{}: a config of Caddy is an object", file.name)));
    }
    let mut reader = Reader { ledger, config, tls: Vec::new() };
    let mut adapted = Adapted { servers: Vec::new(), pages: Vec::new(), plan: Plan::default() };
    let apps = root.get("apps");
    if let Some(tls) = apps.and_then(|apps| apps.get("tls")) {
        reader.tls_app(tls);
    }
    for entry in root.as_map().unwrap_or_default() {
        match &*entry.key {
            "apps" => {
                reader.ledger.same(entry.piece);
                for app in entry.node.as_map().unwrap_or_default() {
                    match &*app.key {
                        "http" => reader.http(app, &mut adapted),
                        "tls" => reader.ledger.same(app.piece),
                        _ => reader.refuse(app, "Weir has nothing for this app", "docs/reference/config.md"),
                    }
                }
            }
            "admin" | "logging" | "storage" => {
                reader.all(
                    entry,
                    &Judged::changed("Weir has `admin`, `log`, `access_log` and `tls.acme.storage`"),
                );
            }
            _ => reader.refuse(entry, "Weir has nothing for it", "docs/reference/config.md"),
        }
    }
    Ok(adapted)
}

struct Reader<'a> {
    ledger: &'a mut Ledger,
    config: &'a mut Config,
    /// The policies of certificate automation, with their names; no names: for all.
    tls: Vec<(Vec<String>, Tls)>,
}

impl Reader<'_> {
    fn all(&mut self, entry: &Entry, judged: &Judged) {
        entry.each_piece(&mut |piece| judged.clone().enter(piece, self.ledger));
    }

    fn same(&mut self, entry: &Entry) {
        self.all(entry, &Judged::Same);
    }

    fn refuse(&mut self, entry: &Entry, why: &'static str, nearest: &'static str) {
        self.all(entry, &Judged::refused(why, nearest));
    }

    fn routes(&mut self, node: &Node) -> Vec<Route> {
        let routes: Vec<Route> =
            node.as_list().unwrap_or_default().iter().map(|node| self.route(node)).collect();
        php_idiom(routes)
    }

    fn route(&mut self, node: &Node) -> Route {
        let mut route = Route {
            sets: Vec::new(),
            group: None,
            is_terminal: false,
            handlers: Vec::new(),
            pieces: Vec::new(),
        };
        for entry in node.as_map().unwrap_or_default() {
            self.ledger.same(entry.piece);
            match &*entry.key {
                "match" if entry.node.as_list().is_none() => {
                    let why = "a list of matchers is expected";
                    self.refuse(entry, why, "correct the source");
                    route.sets.push(vec![Matcher::Unknown(why.to_owned())]);
                    route.pieces.push(entry.piece);
                }
                "handle" if entry.node.as_list().is_none() => {
                    let why = "a list of handlers is expected";
                    self.refuse(entry, why, "correct the source");
                    route.handlers.push(Handler { kind: Kind::Closed(why.to_owned()), piece: entry.piece });
                    route.pieces.push(entry.piece);
                }
                "match" => {
                    for set in entry.node.as_list().unwrap_or_default() {
                        let set = self.set(set);
                        route.sets.push(set);
                    }
                    route.pieces.push(entry.piece);
                }
                "group" => route.group = entry.node.as_text(),
                "terminal" => route.is_terminal = entry.node.as_bool() == Some(true),
                "handle" => {
                    for handler in entry.node.as_list().unwrap_or_default() {
                        route.handlers.extend(self.handler(handler, entry.piece));
                    }
                    route.pieces.push(entry.piece);
                }
                _ => self.refuse(entry, "Weir has nothing for it", "docs/reference/config.md"),
            }
        }
        route
    }

    fn set(&mut self, node: &Node) -> Set {
        let mut set = Set::new();
        for entry in node.as_map().unwrap_or_default() {
            self.same(entry);
            let matcher = self.matcher(entry);
            super::matchers::tell_query(std::slice::from_ref(&matcher), entry.piece, self.ledger);
            set.push(matcher);
        }
        set
    }

    fn matcher(&mut self, entry: &Entry) -> Matcher {
        let node = &entry.node;
        let is_right = super::matchers::is_of_its_type(&entry.key, node);
        if !is_right {
            let why = format!("the value of the matcher `{}` is of another type", entry.key);
            self.all(entry, &Judged::refused(why.clone(), "correct the source"));
            return Matcher::Unknown(why);
        }
        let texts = || node.as_texts().unwrap_or_default();
        let text = |key: &str| node.get(key).and_then(Node::as_text).unwrap_or_default();
        match &*entry.key {
            "host" => Matcher::Host(texts().iter().map(|host| host.to_ascii_lowercase()).collect()),
            "path" => match super::matchers::paths(texts()) {
                Matcher::Unknown(why) => {
                    self.all(
                        entry,
                        &Judged::refused(why.clone(), "match.path, or an expression in `match.when`"),
                    );
                    Matcher::Unknown(why)
                }
                known => known,
            },
            "path_regexp" => Matcher::PathRegexp { name: text("name"), pattern: text("pattern") },
            "method" => Matcher::Method(texts()),
            "query" => Matcher::Query(
                pairs(node).map(|(name, value)| (name, value.as_texts().unwrap_or_default())).collect(),
            ),
            "header" => Matcher::Header(
                pairs(node).map(|(name, value)| (name.to_ascii_lowercase(), value.as_texts())).collect(),
            ),
            "header_regexp" => Matcher::HeaderRegexp(
                pairs(node)
                    .map(|(name, value)| {
                        let pattern = value.get("pattern").and_then(Node::as_text).unwrap_or_default();
                        (name.to_ascii_lowercase(), pattern)
                    })
                    .collect(),
            ),
            "remote_ip" | "client_ip" => {
                Matcher::Client(node.get("ranges").and_then(Node::as_texts).unwrap_or_default())
            }
            "protocol" => Matcher::Protocol(node.as_text().unwrap_or_default()),
            "expression" => match node.as_text().or_else(|| node.get("expr").and_then(Node::as_text)) {
                Some(text) => Matcher::Expression(text),
                None => Matcher::Unknown("an expression without a text".to_owned()),
            },
            "not" => {
                let sets = node.as_list().unwrap_or_default().iter().map(|node| self.set(node)).collect();
                Matcher::Not(sets)
            }
            "file" => {
                let list = |key: &str| node.get(key).and_then(Node::as_texts);
                Matcher::File(FileTest {
                    root: node.get("root").and_then(Node::as_text),
                    tries: list("try_files").unwrap_or_else(|| vec!["{path}".to_owned()]),
                    splits: list("split_path").is_some(),
                })
            }
            other => {
                let why = format!("Weir knows no matcher `{other}`");
                self.all(entry, &Judged::refused(why.clone(), "an expression in `match.when`"));
                Matcher::Unknown(why)
            }
        }
    }
}

fn pairs(node: &Node) -> impl Iterator<Item = (String, &Node)> {
    node.as_map().unwrap_or_default().iter().map(|entry| (entry.key.to_string(), &entry.node))
}

/// A text, or each text of a list.
fn texts(node: &Node) -> Vec<String> {
    node.as_texts().or_else(|| node.as_text().map(|text| vec![text])).unwrap_or_default()
}

/// A duration as a Caddyfile writes it; JSON may count nanoseconds.
fn time_text(node: &Node) -> String {
    match node.as_u64() {
        Some(nanoseconds) => format!("{}ms", nanoseconds / 1_000_000),
        None => node.as_text().unwrap_or_default(),
    }
}

/// The routes that `php_fastcgi` becomes, as one handler again: a redirect to a folder, a rewrite to a script, and the
/// proxy for scripts.
fn php_idiom(routes: Vec<Route>) -> Vec<Route> {
    let is_split = |matcher: &Matcher| match matcher {
        Matcher::File(test) => test.splits,
        _ => false,
    };
    let is_index = |matcher: &Matcher| match matcher {
        Matcher::File(test) => test.tries.iter().any(|tried| tried.ends_with("/index.php")),
        _ => false,
    };
    let splits = |route: &Route| {
        let [set] = &*route.sets else { return false };
        set.len() == 1 && set.iter().all(is_split)
    };
    let redirects = |route: &Route| {
        matches!(&*route.sets, [set] if set.len() == 2 && set.iter().any(is_index))
            && matches!(&*route.handlers, [handler] if matches!(&handler.kind, Kind::Respond(_)))
    };
    if !routes.iter().any(splits) {
        return routes;
    }
    let mut kept: Vec<Route> = Vec::new();
    let mut pieces: Vec<Piece> = Vec::new();
    for mut route in routes {
        if splits(&route) || redirects(&route) {
            pieces.extend(route.pieces);
            continue;
        }
        for handler in &mut route.handlers {
            if let Kind::Proxy(proxy) = &mut handler.kind
                && let Some(fastcgi) = &mut proxy.fastcgi
            {
                fastcgi.is_idiom = true;
                route.sets.clear();
                route.pieces.append(&mut pieces);
            }
        }
        kept.push(route);
    }
    kept
}
