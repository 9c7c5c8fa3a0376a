//! What the parts of the translation share: the things of all files by kind, and what was made of them so far.

use super::compose::Container;
use super::services::Served;
use crate::config::Config;
use crate::ledger::{Ledger, Piece};
use crate::shared::tree::{Entry, Fields, Node, Value};
use crate::shared::units;
use crate::shared::users::Users;
use std::collections::{HashMap, HashSet};

/// Kinds of things that have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    Middleware,
    Options,
    Router,
    Service,
    Store,
    TcpMiddleware,
    TcpRouter,
    TcpService,
    TcpTransport,
    Transport,
}

/// Where the things of each kind stand in a dynamic config.
pub(super) const KINDS: &[(&str, &str, Kind)] = &[
    ("http", "routers", Kind::Router),
    ("http", "services", Kind::Service),
    ("http", "middlewares", Kind::Middleware),
    ("http", "serversTransports", Kind::Transport),
    ("tcp", "routers", Kind::TcpRouter),
    ("tcp", "services", Kind::TcpService),
    ("tcp", "middlewares", Kind::TcpMiddleware),
    ("tcp", "serversTransports", Kind::TcpTransport),
    ("tls", "options", Kind::Options),
    ("tls", "stores", Kind::Store),
];

/// A thing with a name.
#[derive(Clone)]
pub(super) struct Thing<'t> {
    /// Its provider: `file` or `docker`.
    pub(super) provider: &'static str,
    pub(super) name: String,
    pub(super) piece: Piece,
    pub(super) node: &'t Node,
    /// The container whose labels name it.
    pub(super) container: Option<&'t Container>,
}

/// All things, and the certificates of the files.
#[derive(Default)]
pub(super) struct Things<'t> {
    all: HashMap<Kind, Vec<Thing<'t>>>,
    pub(super) certificates: Vec<&'t Node>,
    /// The providers that were read.
    pub(super) providers: HashSet<&'static str>,
}

/// The translation.
pub(super) struct Cx<'t, 'c> {
    pub(super) things: &'c Things<'t>,
    pub(super) config: &'c mut Config,
    pub(super) ledger: &'c mut Ledger,
    pub(super) users: Users,
    /// Files with users, by their base names.
    pub(super) user_files: &'c HashMap<String, Vec<String>>,
    /// The static `serversTransport`.
    pub(super) default_transport: Option<&'c Node>,
    pub(super) default_syntax: super::rule::Syntax,
    pub(super) used: HashSet<(Kind, usize)>,
    pub(super) served: HashMap<(usize, String), Result<Served, String>>,
}

impl<'t> Things<'t> {
    pub(super) fn of(&self, kind: Kind) -> &[Thing<'t>] {
        self.all.get(&kind).map_or(&[], Vec::as_slice)
    }

    /// Reads a dynamic config.
    pub(super) fn read(
        &mut self,
        root: &'t Node,
        provider: &'static str,
        container: Option<&'t Container>,
        ledger: &mut Ledger,
    ) {
        self.providers.insert(provider);
        let mut top = Fields::in_any_case(root);
        for section in ["http", "tcp", "tls"] {
            let Some((node, piece)) = top.map(section, ledger) else { continue };
            ledger.same(piece);
            let mut fields = Fields::in_any_case(node);
            if section == "tls"
                && let Some((list, piece)) = fields.list("certificates", ledger)
            {
                ledger.same(piece);
                self.certificates.extend(list);
            }
            for (_, key, kind) in KINDS.iter().filter(|(of, ..)| *of == section) {
                let Some((node, piece)) = fields.map(key, ledger) else { continue };
                ledger.same(piece);
                for entry in node.as_map().unwrap_or_default() {
                    self.add(*kind, entry, provider, container, ledger);
                }
            }
            nothing_else(fields, "a dynamic config", ledger);
        }
        if let Some(entry) = top.entry("udp") {
            entry.each_piece(&mut |piece| {
                ledger.refused(piece, "Weir does not pass datagrams on", "keep Traefik for this port");
            });
        }
        nothing_else(top, "a dynamic config", ledger);
    }

    fn add(
        &mut self,
        kind: Kind,
        entry: &'t Entry,
        provider: &'static str,
        container: Option<&'t Container>,
        ledger: &mut Ledger,
    ) {
        let all = self.all.entry(kind).or_default();
        let name = entry.key.to_string();
        if all.iter().any(|thing| thing.name == name && thing.provider == provider) {
            let why = format!("`{name}` is defined twice");
            entry.each_piece(&mut |piece| ledger.refused(piece, why.clone(), "keep one of them"));
            return;
        }
        all.push(Thing { provider, name, piece: entry.piece, node: &entry.node, container });
    }
}

impl Cx<'_, '_> {
    /// The thing that `name` or `name@provider` names, seen from `provider`. It counts as used.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn find(
        &mut self,
        kind: Kind,
        reference: &str,
        provider: &'static str,
    ) -> Result<usize, String> {
        let (name, wanted) = reference.split_once('@').unwrap_or((reference, provider));
        let wanted = if wanted == "swarm" { "docker" } else { wanted };
        let found =
            self.things.of(kind).iter().position(|thing| thing.name == name && thing.provider == wanted);
        match found {
            Some(at) => {
                self.used.insert((kind, at));
                Ok(at)
            }
            None if self.things.providers.contains(wanted) => {
                Err(format!("`{reference}` is not in the files"))
            }
            None => Err(format!("`{reference}` is of the provider `{wanted}`, whose file is not given")),
        }
    }

    /// Says of things that nobody names that they are not needed.
    pub(super) fn close(&mut self) {
        for (_, _, kind) in KINDS {
            if matches!(kind, Kind::Router | Kind::TcpRouter) {
                continue;
            }
            for (at, thing) in self.things.of(*kind).iter().enumerate() {
                if self.used.contains(&(*kind, at)) {
                    continue;
                }
                let why = "nothing uses it";
                let ledger = &mut *self.ledger;
                if thing.container.is_none() {
                    ledger.left_out(thing.piece, why);
                }
                thing.node.each_piece(&mut |piece| {
                    if !ledger.is_judged(piece) {
                        ledger.left_out(piece, why);
                    }
                });
            }
        }
    }
}

/// Refuses the keys that are left.
pub(super) fn nothing_else(fields: Fields<'_>, what: &str, ledger: &mut Ledger) {
    for entry in fields.rest() {
        let why = format!("weir import does not know this key of {what}");
        entry.each_piece(&mut |piece| ledger.refused(piece, why.clone(), "docs/reference/config.md"));
    }
}

/// A list of texts; labels write it as one text with commas.
pub(super) fn list(fields: &mut Fields<'_>, key: &str, ledger: &mut Ledger) -> Option<(Vec<String>, Piece)> {
    let entry = fields.entry(key)?;
    let texts = match &entry.node.value {
        Value::Text(text) => Some(text.split(',').map(|one| one.trim().to_owned()).collect()),
        Value::Number(text) => Some(vec![text.to_string()]),
        _ => entry.node.as_texts(),
    };
    match texts {
        Some(texts) => Some((texts, entry.piece)),
        None => {
            entry.each_piece(&mut |piece| {
                ledger.refused(piece, "expected a list of texts", "correct the source")
            });
            None
        }
    }
}

/// A duration of Go, or whole seconds, in milliseconds.
pub(super) fn milliseconds(fields: &mut Fields<'_>, key: &str, ledger: &mut Ledger) -> Option<(u64, Piece)> {
    let (text, piece) = fields.text(key, ledger)?;
    match units::read_duration(&text, 1000) {
        Some(ms) => Some((ms, piece)),
        None => {
            ledger.refused(piece, format!("`{text}` is no duration"), "10s, 250ms");
            None
        }
    }
}
