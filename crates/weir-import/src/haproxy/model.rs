//! Proxies with what they inherit: a section `defaults` is that of `from`, or the nearest before.

use super::read::{Line, Section};
use crate::ledger::Ledger;
use std::collections::{BTreeMap, HashMap};

/// Deepest chain of `defaults … from …`.
const MAX_DEPTH: usize = 20;

/// A frontend, a backend, or both (`listen`).
#[derive(Clone, Debug)]
pub(super) struct Proxy<'a> {
    pub(super) kind: &'a str,
    pub(super) name: &'a str,
    pub(super) section: &'a Section,
    /// Its lines, and before them those that it inherits.
    pub(super) lines: Vec<&'a Line>,
    /// How many of them are inherited.
    pub(super) inherited: usize,
}

/// All of a config.
#[derive(Debug, Default)]
pub(super) struct Model<'a> {
    pub(super) global: Vec<&'a Line>,
    pub(super) proxies: Vec<Proxy<'a>>,
    backends: HashMap<&'a str, usize>,
    pub(super) userlists: BTreeMap<&'a str, &'a Section>,
    pub(super) others: Vec<&'a Section>,
}

impl<'a> Proxy<'a> {
    /// The line that counts: the last with one of these words, a line of its own before an inherited one. `no option x`
    /// takes it back.
    pub(super) fn one(&self, key: &[&str]) -> Option<&'a Line> {
        let fits = |line: &&&Line| {
            key.iter().enumerate().all(|(at, word)| line.word(at) == *word)
                || (matches!(line.key(), "no" | "default")
                    && key.iter().enumerate().all(|(at, word)| line.word(at + 1) == *word))
        };
        self.lines.iter().rev().find(fits).copied().filter(|line| !matches!(line.key(), "no" | "default"))
    }

    /// All lines with this first word, in order.
    pub(super) fn all(&self, key: &str) -> impl Iterator<Item = &'a Line> {
        self.lines.iter().copied().filter(move |line| line.key() == key)
    }

    /// Its mode: `http`, `tcp` and others. HAProxy's own default is tcp.
    pub(super) fn mode(&self) -> &'a str {
        self.one(&["mode"]).map_or("tcp", |line| line.word(1))
    }

    pub(super) const fn is_front(&self) -> bool {
        matches!(self.kind.as_bytes(), b"frontend" | b"listen")
    }

    pub(super) const fn is_back(&self) -> bool {
        matches!(self.kind.as_bytes(), b"backend" | b"listen")
    }
}

impl<'a> Model<'a> {
    pub(super) fn new(sections: &'a [Section], ledger: &mut Ledger) -> Self {
        let mut model = Self::default();
        // All sections `defaults`, each with what it inherits itself.
        let mut defaults: Vec<(&'a str, Vec<&'a Line>)> = Vec::new();
        for section in sections {
            let from = section.head.after(1, "from");
            let parent = |defaults: &[(&'a str, Vec<&'a Line>)]| match from {
                Some(name) => {
                    defaults.iter().rev().find(|(known, _)| *known == name).map(|(_, lines)| lines.clone())
                }
                None => defaults.last().map(|(_, lines)| lines.clone()),
            };
            if let Some(name) = from
                && parent(&defaults).is_none()
            {
                let why = format!("no section `defaults {name}` stands before it");
                ledger.refused(section.head.piece, why, "correct the source");
            }
            match &*section.kind {
                "global" => {
                    ledger.same(section.head.piece);
                    model.global.extend(&section.lines);
                }
                "defaults" => {
                    ledger.same(section.head.piece);
                    let mut lines = match from {
                        Some(_) if defaults.len() < MAX_DEPTH => parent(&defaults).unwrap_or_default(),
                        _ => Vec::new(),
                    };
                    lines.extend(&section.lines);
                    defaults.push((&section.name, lines));
                }
                "frontend" | "backend" | "listen" => {
                    let mut lines = parent(&defaults).unwrap_or_default();
                    let inherited = lines.len();
                    lines.extend(&section.lines);
                    if section.kind != "frontend" {
                        model.backends.entry(&section.name).or_insert(model.proxies.len());
                    }
                    let (kind, name) = (&*section.kind, &*section.name);
                    model.proxies.push(Proxy { kind, name, section, lines, inherited });
                }
                "userlist" => {
                    model.userlists.insert(&section.name, section);
                }
                _ => model.others.push(section),
            }
        }
        model
    }

    /// The backend or `listen` with this name.
    pub(super) fn backend(&self, name: &str) -> Option<&Proxy<'a>> {
        self.backends.get(name).and_then(|at| self.proxies.get(*at))
    }
}
