//! APISIX: `apisix.yaml` of the standalone mode, and dumps of the Admin API in JSON (versions 2 and 3).
//!
//! [`router`] keeps the order of `radixtree_host_uri`: host, exact uri, longest prefix, `priority`. [`plugins`]
//! merges
//! plugins by whole plugin: consumer, route, plugin config, service.

mod consumers;
mod plugins;
mod router;
mod upstreams;
mod vars;

use crate::config::{Config, Listener};
use crate::ledger::{Ledger, Piece};
use crate::shared::tree::{self, Fields, Node};
use crate::source::{SourceTree, Unreadable};
use crate::system::System;
use crate::yaml::{Map, Value};
use std::collections::BTreeMap;

/// APISIX, with the plugins that come with it.
pub(crate) static SYSTEM: System =
    System { name: "apisix", title: "APISIX", files: "apisix.yaml, or JSON of the Admin API", import };

/// Things of a file by kind, each with its id.
#[derive(Default)]
struct Apisix<'t> {
    all: BTreeMap<String, Vec<(String, &'t Node)>>,
}

/// Kinds that are refused, with the nearest.
const REFUSED: &[(&str, &str)] = &[
    ("protos", "`proto` of the filter grpc_json"),
    ("plugin_metadata", "the settings of each filter"),
    ("plugins", "docs/reference/filters.md"),
    ("secrets", "`${NAME}` from the environment or `${file:PATH}`"),
    ("stream_routes", "listeners.NAME.tcp or .sni"),
];
const KINDS: &[&str] = &[
    "routes",
    "services",
    "upstreams",
    "consumers",
    "consumer_groups",
    "plugin_configs",
    "global_rules",
    "ssls",
];

fn import(tree: &mut SourceTree<'_>, ledger: &mut Ledger) -> Result<Config, Unreadable> {
    let mut roots = Vec::new();
    for path in tree.given().to_vec() {
        let file = tree.read(&path)?;
        let is_yaml = !file.text.trim_start().starts_with('{');
        if is_yaml && !file.text.lines().any(|line| line.trim() == "#END") {
            ledger.note(format!("{path} does not end with `#END`: APISIX itself ignores such a file"));
        }
        if file.text.contains("${{") {
            ledger.note(format!(
                "{path} has `${{{{NAME}}}}`: APISIX fills it in from the environment; outside of \
                secrets it is taken literally"
            ));
        }
        roots.push((path, tree::read(&file, ledger)?));
    }
    let mut apisix = Apisix::default();
    for (path, root) in &roots {
        if !apisix.top(root, ledger) {
            return Err(Unreadable::anywhere(format!(
                "{path}: neither the standalone file of APISIX nor an answer of its Admin API"
            )));
        }
    }
    for note in [
        "listeners: config.yaml says where APISIX listens, not this file; Weir listens on 0.0.0.0:9080, and on \
            :9443 if there is a certificate",
        "order: that of the router radixtree_host_uri, the default since APISIX 3; config.yaml may name another",
        "paths: APISIX decodes `%2F` before it matches; Weir does not, and refuses paths that two servers could \
            read differently",
        "X-Forwarded-For: APISIX appends to what any client sent; Weir replaces it unless the client is in \
            `trusted_proxies`",
        "WebSocket: APISIX refuses upgrades unless enable_websocket is set; Weir lets them pass",
        "no route: APISIX answers 404 in JSON; Weir's text is another (the filter errors sets it)",
    ] {
        ledger.note(note);
    }
    let mut config = Config::default();
    config
        .listeners
        .add("http", Listener { address: Some("0.0.0.0:9080".to_owned()), ..Listener::default() });
    config.more.set("admin", Map::new().with("address", "127.0.0.1:9180"));
    certificates(&apisix, &mut config, ledger);
    let known = consumers::consumers(&apisix, &mut config, ledger);
    router::translate(&apisix, &known, &mut config, ledger);
    crate::shared::filters::close_without_consumers(&mut config);
    Ok(config)
}

impl<'t> Apisix<'t> {
    fn of(&self, kind: &str) -> &[(String, &'t Node)] {
        self.all.get(kind).map_or(&[], Vec::as_slice)
    }

    fn find(&self, kind: &str, id: &str) -> Option<&'t Node> {
        self.of(kind).iter().find(|(known, _)| known == id).map(|(_, node)| *node)
    }

    /// Reads a file; false if it is none of APISIX.
    fn top(&mut self, root: &'t Node, ledger: &mut Ledger) -> bool {
        let is_dump = ["list", "node", "value"].iter().any(|key| root.get(key).is_some());
        if is_dump {
            return self.dump(root, ledger);
        }
        let mut fields = Fields::of(root);
        let mut is_known = false;
        for kind in KINDS {
            let Some((items, piece)) = fields.list(kind, ledger) else { continue };
            is_known = true;
            ledger.same(piece);
            for item in items {
                self.add(kind, None, item);
            }
        }
        for entry in fields.rest() {
            let nearest = REFUSED.iter().find(|(key, _)| *key == &*entry.key);
            is_known |= nearest.is_some();
            let nearest = nearest.map_or("docs/reference/config.md", |(_, nearest)| nearest);
            entry.each_piece(&mut |piece| ledger.refused(piece, "Weir has nothing like these", nearest));
        }
        is_known
    }

    /// An answer of the Admin API: one thing, or a list of things.
    fn dump(&mut self, root: &'t Node, ledger: &mut Ledger) -> bool {
        let mut fields = Fields::of(root);
        let about = "the Admin API's own record";
        for key in ["total", "count", "action", "createdIndex", "modifiedIndex", "dir"] {
            if let Some(entry) = fields.entry(key) {
                ledger.by_itself(entry.piece, about);
            }
        }
        if let Some((node, piece)) = fields.map("node", ledger) {
            ledger.same(piece);
            return self.dump(node, ledger);
        }
        let key = fields.text("key", ledger);
        key.iter().for_each(|(_, piece)| ledger.by_itself(*piece, about));
        if let (Some((key, _)), Some((value, piece))) = (&key, fields.map("value", ledger)) {
            ledger.same(piece);
            let mut parts = key.trim_start_matches('/').split('/').skip(1);
            let (kind, id) = (parts.next().unwrap_or_default(), parts.next().map(str::to_owned));
            match KINDS.contains(&kind) {
                true => self.add(kind, id, value),
                false => {
                    let nearest =
                        REFUSED.iter().find(|(key, _)| *key == kind).map_or("", |(_, nearest)| nearest);
                    value.each_piece(&mut |piece| {
                        ledger.refused(piece, "Weir has nothing like these", nearest)
                    });
                }
            }
            return true;
        }
        let mut is_known = false;
        for key in ["list", "nodes"] {
            let Some((items, piece)) = fields.list(key, ledger) else { continue };
            ledger.same(piece);
            is_known = true;
            for item in items {
                self.dump(item, ledger);
            }
        }
        is_known
    }

    fn add(&mut self, kind: &str, id: Option<String>, node: &'t Node) {
        let own = ["id", "username"].iter().find_map(|key| node.get(key).and_then(Node::as_text));
        let id = own.or(id).unwrap_or_default();
        self.all.entry(kind.to_owned()).or_default().push((id, node));
    }
}

/// The keys that everything has and that mean nothing to requests.
fn common(fields: &mut Fields<'_>, ledger: &mut Ledger) -> Option<String> {
    for key in ["id", "create_time", "update_time", "desc", "labels", "validity_start", "validity_end"] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| match key {
                "id" => ledger.by_itself(piece, "Weir refers to things by name"),
                _ => ledger.left_out(piece, "a note for people and tools"),
            });
        }
    }
    fields.text("name", ledger).map(|(name, piece)| {
        ledger.same(piece);
        name
    })
}

fn refuse_rest(fields: Fields<'_>, what: &str, ledger: &mut Ledger) {
    for entry in fields.rest() {
        let why = format!("weir import does not know this key of {what}");
        entry.each_piece(&mut |piece| ledger.refused(piece, why.clone(), "docs/reference/config.md"));
    }
}

/// Certificates for the listener `https`.
fn certificates(apisix: &Apisix<'_>, config: &mut Config, ledger: &mut Ledger) {
    let mut list = Vec::new();
    for (at, (_, node)) in apisix.of("ssls").iter().enumerate() {
        let mut fields = Fields::of(node);
        common(&mut fields, ledger);
        let mut names: Vec<(Vec<String>, Piece)> = fields.texts("snis", ledger).into_iter().collect();
        names.extend(fields.text("sni", ledger).map(|(name, piece)| (vec![name], piece)));
        names
            .iter()
            .for_each(|(_, piece)| ledger.by_itself(*piece, "Weir chooses by the names in each certificate"));
        let first = names.first().and_then(|(names, _)| names.first().cloned());
        let name = crate::config::name_of(&first.unwrap_or_else(|| format!("certificate-{}", at + 1)));
        let mut paths = Map::new();
        for (key, ending) in [("cert", "pem"), ("key", "key")] {
            let Some((text, piece)) = fields.text(key, ledger) else { continue };
            ledger.conceal(piece);
            let path = format!("certs/{name}.{ending}");
            match (text.contains("BEGIN"), key) {
                (true, "key") => _ = config.secret_files.insert(path.clone(), text),
                (true, _) => _ = config.files.insert(path.clone(), text),
                (false, _) => ledger.refused(
                    piece,
                    "not PEM: APISIX encrypts keys it stores",
                    format!("put it to {path}"),
                ),
            }
            if !ledger.is_judged(piece) {
                ledger.same(piece);
            }
            paths.set(key, path);
        }
        if let Some((status, piece)) = fields.number("status", ledger) {
            ledger.same(piece);
            if status == 0 {
                continue;
            }
        }
        list.push(Value::Map(paths));
        refuse_rest(fields, "an ssl (clients' certificates: listeners.NAME.tls.client_auth)", ledger);
    }
    if !list.is_empty() {
        let more = Map::new().with("tls", Map::new().with("certificates", Value::List(list)));
        let address = Some("0.0.0.0:9443".to_owned());
        config.listeners.add("https", Listener { address, more, ..Listener::default() });
    }
}
