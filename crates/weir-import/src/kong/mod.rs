//! Kong: declarative files of the formats 1.1, 2.1 and 3.0, nested and flat.
//!
//! [`gather`](Kong::gather) makes lists of entities of both layouts, with references as indexes. [`services`] makes
//! upstreams, [`consumers`] consumers, [`plugins`] the filters of a route in Kong's order, and [`router`] routes in
//! Kong's order of precedence.

mod auth;
mod consumers;
mod lua;
mod plugins;
mod router;
mod services;
mod traffic;
mod transform;

use crate::config::{Config, Listener};
use crate::ledger::{Ledger, Piece};
use crate::shared::tree::{self, Entry, Fields, Node};
use crate::source::{SourceTree, Unreadable};
use crate::system::System;
use crate::yaml::Map;
use std::collections::HashMap;

/// Kong, with the plugins that come with it.
pub(crate) static SYSTEM: System =
    System { name: "kong", title: "Kong", files: "kong.yaml, of format 1.1, 2.1 or 3.0", import };

/// A kind of entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Acl,
    BasicAuth,
    Certificate,
    Consumer,
    Group,
    JwtSecret,
    KeyAuth,
    Membership,
    Plugin,
    Route,
    Service,
    Sni,
    Target,
    Upstream,
}

/// The keys under which entities are listed, at the top or in their parent. Of equal routes those of a service count
/// as
/// the older.
const LISTS: &[(&str, Kind)] = &[
    ("acls", Kind::Acl),
    ("basicauth_credentials", Kind::BasicAuth),
    ("certificates", Kind::Certificate),
    ("consumer_group_consumers", Kind::Membership),
    ("consumer_groups", Kind::Group),
    ("consumers", Kind::Consumer),
    ("jwt_secrets", Kind::JwtSecret),
    ("keyauth_credentials", Kind::KeyAuth),
    ("plugins", Kind::Plugin),
    ("services", Kind::Service),
    ("routes", Kind::Route),
    ("snis", Kind::Sni),
    ("targets", Kind::Target),
    ("upstreams", Kind::Upstream),
];

/// Lists that Weir has nothing like, with the nearest.
const REFUSED: &[(&str, &str)] = &[
    ("asymmetric_jwks", "the filter jwt reads keys from a URL or a file"),
    ("ca_certificates", "upstreams.NAME.tls.ca and listeners.NAME.tls.client_auth name files"),
    ("hmacauth_credentials", "the filter signature_auth (RFC 9421) with consumers.NAME.signature_auth"),
    ("key_sets", "the filter jwt reads keys from a URL or a file"),
    ("keys", "the filter jwt reads keys from a URL or a file"),
    ("mtls_auth_credentials", "the filter mtls_auth with consumers.NAME.mtls_auth"),
    ("oauth2_credentials", "the filter oidc or jwt, with an identity provider"),
    ("parameters", "`${NAME}` in the config"),
    ("vaults", "`${NAME}` from the environment or `${file:PATH}`"),
];

/// An entity.
struct Object<'t> {
    /// Its id and its name, by which others refer to it.
    names: Vec<String>,
    /// Its name for people.
    title: String,
    /// What nobody has read of it yet.
    fields: Fields<'t>,
    /// The entities that it belongs to.
    of: HashMap<Kind, usize>,
    /// A reference that leads nowhere, so that the entity must not be used.
    is_lost: bool,
}

/// All entities.
struct Kong<'t> {
    all: HashMap<Kind, Vec<Object<'t>>>,
    /// References of flat files: kind and index of an entity, the kind that it names, the name, and the key.
    references: Vec<(Kind, usize, Kind, String, &'t Entry)>,
    /// Whether a regex begins with `~` (3.0). Before, a path with characters of a regex was one.
    has_tilde: bool,
    /// Whether passwords are hashed already.
    is_hashed: bool,
    /// The `name` of each plugin, with its piece.
    plugin_names: Vec<(String, Option<Piece>)>,
}

fn import(tree: &mut SourceTree<'_>, ledger: &mut Ledger) -> Result<Config, Unreadable> {
    let mut roots = Vec::new();
    for path in tree.given().to_vec() {
        let file = tree.read(&path)?;
        let root = tree::read(&file, ledger)?;
        if root.get("_format_version").is_none() {
            let message = "no `_format_version`, so this is no declarative config of Kong (`deck gateway dump` \
                makes one)";
            return Err(Unreadable::anywhere(format!("{path}: {message}")));
        }
        roots.push(root);
    }
    let mut kong = Kong {
        all: HashMap::new(),
        references: Vec::new(),
        has_tilde: true,
        is_hashed: false,
        plugin_names: Vec::new(),
    };
    for root in &roots {
        kong.top(root, ledger);
    }
    kong.resolve(ledger);
    let mut config = Config::default();
    notes(ledger);
    services::certificates(&mut kong, &mut config, ledger);
    config
        .listeners
        .add("http", Listener { address: Some("0.0.0.0:8000".to_owned()), ..Listener::default() });
    config.more.set("admin", Map::new().with("address", "127.0.0.1:9180"));
    let known = consumers::translate(&mut kong, &mut config, ledger);
    let plugins = plugins::Plugins::read(&mut kong, ledger);
    router::translate(&mut kong, &plugins, &known, &mut config, ledger);
    crate::shared::filters::close_without_consumers(&mut config);
    plugins.close(ledger);
    kong.close(ledger);
    Ok(config)
}

/// What Kong does by default and Weir does not.
fn notes(ledger: &mut Ledger) {
    for note in [
        "listeners: kong.conf says where Kong listens, not this file; Weir listens on 0.0.0.0:8000, and on :8443 \
            if there is a certificate",
        "X-Forwarded-For: Kong appends to what any client sent; Weir replaces it unless the client is in \
            `trusted_proxies` (trusted_ips of kong.conf)",
        "X-Forwarded-Path and X-Real-IP: Weir does not send them",
        "bodies: Kong reads requests whole before it asks a service; Weir streams them (the filter buffer reads \
            them first)",
        "no route: Kong answers 404 with `no Route matched with those values` in JSON; Weir's text is another \
            (the filter errors sets it)",
        "Location: Kong passes it on; Weir rewrites one that names the endpoint itself (`links: keep` of an \
            upstream turns that off)",
        "paths: Weir refuses paths that two servers could read differently, such as `/a%2F..`: \
            docs/reference/routing.md",
    ] {
        ledger.note(note);
    }
}

impl<'t> Kong<'t> {
    fn of(&self, kind: Kind) -> &[Object<'t>] {
        self.all.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// The fields of an entity that nobody has read yet; they are read once.
    fn take(&mut self, kind: Kind, at: usize) -> Fields<'t> {
        let object = self.all.get_mut(&kind).and_then(|all| all.get_mut(at));
        object.map(|object| std::mem::take(&mut object.fields)).unwrap_or_default()
    }

    fn find(&self, kind: Kind, name: &str) -> Option<usize> {
        self.of(kind).iter().position(|object| object.names.iter().any(|known| known == name))
    }

    /// The keys of a file.
    fn top(&mut self, root: &'t Node, ledger: &mut Ledger) {
        let mut fields = Fields::of(root);
        if let Some((version, piece)) = fields.text("_format_version", ledger) {
            match version.as_str() {
                "1.1" | "2.1" | "1.2" | "2.0" => self.has_tilde = false,
                "3.0" => {}
                _ => ledger.refused(
                    piece,
                    "weir import knows the formats 1.1, 2.1 and 3.0",
                    "`deck file convert`",
                ),
            }
            if !ledger.is_judged(piece) {
                ledger.by_itself(piece, "says how paths are read");
            }
        }
        if let Some((transform, piece)) = fields.flag("_transform", ledger) {
            self.is_hashed = !transform;
            ledger.by_itself(piece, "says whether passwords are hashed");
        }
        for key in ["_comment", "_ignore", "_info", "_workspace", "_konnect", "_plugin_configs"] {
            if let Some(entry) = fields.entry(key) {
                let why = "a note that Kong ignores too";
                match key {
                    "_plugin_configs" => entry.each_piece(&mut |piece| {
                        ledger.refused(
                            piece,
                            "settings that plugins share by name",
                            "render the file with `deck file render`",
                        );
                    }),
                    _ => entry.each_piece(&mut |piece| ledger.left_out(piece, why)),
                }
            }
        }
        self.lists(&mut fields, &HashMap::new(), ledger);
        for entry in fields.rest() {
            let known = REFUSED.iter().find(|(key, _)| *key == &*entry.key);
            let nearest = known.map_or("see docs/reference/config.md", |(_, nearest)| nearest);
            entry.each_piece(&mut |piece| ledger.refused(piece, "Weir has nothing like these", nearest));
        }
    }

    /// The lists of entities among some fields.
    fn lists(&mut self, fields: &mut Fields<'t>, of: &HashMap<Kind, usize>, ledger: &mut Ledger) {
        for (key, kind) in LISTS {
            if let Some(entry) = fields.entry(key) {
                self.gather(*kind, entry, of, ledger);
            }
        }
    }

    fn gather(&mut self, kind: Kind, entry: &'t Entry, of: &HashMap<Kind, usize>, ledger: &mut Ledger) {
        let Some(items) = entry.node.as_list() else {
            entry.each_piece(&mut |piece| ledger.refused(piece, "expected a list", "correct the source"));
            return;
        };
        ledger.same(entry.piece);
        for item in items {
            if item.as_map().is_none() {
                let name = item.as_text().unwrap_or_default();
                match (kind, of.get(&Kind::Group)) {
                    (Kind::Sni, _) | (Kind::Consumer, Some(_)) if !name.is_empty() => {}
                    _ => {
                        ledger.refused(entry.piece, "expected a list of maps", "correct the source");
                        continue;
                    }
                }
            }
            self.entity(kind, item, of, entry, ledger);
        }
    }

    fn entity(
        &mut self,
        kind: Kind,
        item: &'t Node,
        of: &HashMap<Kind, usize>,
        list: &'t Entry,
        ledger: &mut Ledger,
    ) {
        let mut fields = Fields::of(item);
        // In a consumer group, consumers are named only; in a consumer, its groups are.
        let in_group = kind == Kind::Consumer && of.contains_key(&Kind::Group);
        let in_consumer = kind == Kind::Group && of.contains_key(&Kind::Consumer);
        let kind = if in_group || in_consumer { Kind::Membership } else { kind };
        let mut names: Vec<String> = item.as_text().into_iter().collect();
        if let Some((id, piece)) = fields.text("id", ledger) {
            names.push(id);
            ledger.by_itself(piece, "Weir refers to things by name");
        }
        let mut name_piece = None;
        for key in ["name", "username", "instance_name"] {
            if key == "name" && kind == Kind::Sni {
                names.extend(fields.text(key, ledger).map(|(name, piece)| {
                    ledger.same(piece);
                    name
                }));
                continue;
            }
            if let Some((name, piece)) = fields.text(key, ledger) {
                if kind != Kind::Plugin {
                    names.insert(0, name);
                    ledger.same(piece);
                } else if key == "name" {
                    names.insert(0, name);
                    name_piece = Some(piece);
                } else {
                    ledger.left_out(piece, "a name for people");
                }
            }
        }
        for key in ["created_at", "updated_at"] {
            if let Some(entry) = fields.entry(key) {
                ledger.left_out(entry.piece, "the database's own record");
            }
        }
        for key in ["_comment", "_ignore"] {
            if let Some(entry) = fields.entry(key) {
                entry.each_piece(&mut |piece| ledger.left_out(piece, "a note that Kong ignores too"));
            }
        }
        if let Some(entry) = fields.entry("tags") {
            ledger.left_out(entry.piece, "a label for tools");
        }
        let at = self.of(kind).len();
        let title = names.first().cloned().unwrap_or_default();
        let mut inner = of.clone();
        let references: &[(&str, Kind)] = &[
            ("service", Kind::Service),
            ("route", Kind::Route),
            ("consumer", Kind::Consumer),
            ("consumer_group", Kind::Group),
            ("upstream", Kind::Upstream),
            ("certificate", Kind::Certificate),
        ];
        for (key, named) in references {
            let applies = match kind {
                Kind::Plugin => !matches!(named, Kind::Upstream | Kind::Certificate),
                Kind::Route => *named == Kind::Service,
                Kind::Target => *named == Kind::Upstream,
                Kind::Sni => *named == Kind::Certificate,
                Kind::Acl | Kind::BasicAuth | Kind::JwtSecret | Kind::KeyAuth => *named == Kind::Consumer,
                Kind::Membership => matches!(named, Kind::Consumer | Kind::Group),
                _ => false,
            };
            if !applies {
                continue;
            }
            if let Some(entry) = fields.entry(key) {
                let parts = ["name", "username", "id"];
                let name = entry
                    .node
                    .as_text()
                    .or_else(|| parts.iter().find_map(|part| entry.node.get(part).and_then(Node::as_text)));
                self.references.push((kind, at, *named, name.unwrap_or_default(), entry));
            }
        }
        if in_group || in_consumer {
            let named = if in_group { Kind::Consumer } else { Kind::Group };
            self.references.push((kind, at, named, title.clone(), list));
        }
        inner.insert(kind, at);
        if kind == Kind::Plugin {
            self.plugin_names.push((title.clone(), name_piece));
        }
        let mut own = Object { names, title, fields: Fields::default(), of: of.clone(), is_lost: false };
        // Reserve the place before children are gathered.
        self.all.entry(kind).or_default().push(Object {
            names: own.names.clone(),
            title: own.title.clone(),
            fields: Fields::default(),
            of: HashMap::new(),
            is_lost: false,
        });
        if matches!(
            kind,
            Kind::Service | Kind::Route | Kind::Consumer | Kind::Group | Kind::Upstream | Kind::Certificate
        ) {
            // A consumer's `groups` are memberships too.
            if kind == Kind::Consumer
                && let Some(entry) = fields.entry("groups")
            {
                self.gather(Kind::Group, entry, &inner, ledger);
            }
            let scope: HashMap<Kind, usize> =
                if kind == Kind::Route { inner.clone() } else { HashMap::from([(kind, at)]) };
            self.lists(&mut fields, &scope, ledger);
        }
        own.fields = fields;
        if let Some(place) = self.all.get_mut(&kind).and_then(|all| all.get_mut(at)) {
            *place = own;
        }
    }

    /// Resolves the references of flat files.
    fn resolve(&mut self, ledger: &mut Ledger) {
        for (kind, at, named, name, entry) in std::mem::take(&mut self.references) {
            let found = self.find(named, &name);
            let Some(object) = self.all.get_mut(&kind).and_then(|all| all.get_mut(at)) else { continue };
            match found {
                Some(found) => {
                    object.of.insert(named, found);
                    entry.each_piece(&mut |piece| ledger.same(piece));
                }
                None => {
                    object.is_lost = true;
                    let why = format!("`{name}` is not in the file");
                    entry.each_piece(&mut |piece| ledger.refused(piece, why.clone(), "correct the source"));
                }
            }
        }
    }

    /// Refuses what nobody has read of the entities.
    fn close(self, ledger: &mut Ledger) {
        for object in self.all.into_values().flatten() {
            for entry in object.fields.rest() {
                let why = match object.is_lost {
                    true => "it belongs to something that is not in the file",
                    false => "weir import does not know this key of Kong",
                };
                entry.each_piece(&mut |piece| {
                    if !ledger.is_judged(piece) {
                        ledger.refused(piece, why, "see docs/reference/config.md");
                    }
                });
            }
        }
    }
}

/// Refuses what is left of some fields.
fn refuse_rest(fields: Fields<'_>, why: &str, nearest: &str, ledger: &mut Ledger) {
    for entry in fields.rest() {
        entry.each_piece(&mut |piece| ledger.refused(piece, why.to_owned(), nearest.to_owned()));
    }
}
