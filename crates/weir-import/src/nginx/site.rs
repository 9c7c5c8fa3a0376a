//! A server with its locations, and the scope that a location's texts have.

use super::block::Block;
use super::context::Scope;
use super::location::{Kind, Location};
use super::server::Server;
use std::collections::{BTreeMap, BTreeSet};

/// A server that is being translated.
pub(super) struct Site<'s, 'a> {
    pub(super) server: &'s Server<'a>,
    pub(super) locations: Vec<Location<'a>>,
    /// `set` at the level of the server.
    pub(super) set: BTreeMap<String, crate::shared::template::Template>,
}

impl<'a> Site<'_, 'a> {
    /// What the texts of a location may name.
    pub(super) fn scope(&self, location: &Location<'a>) -> Scope<'a> {
        let (path, is_exact) = match &location.kind {
            Kind::Exact(path) => (Some(path.clone()), true),
            Kind::Prefix { path, .. } => (Some(path.clone()), false),
            _ => (None, false),
        };
        let mut scope = Scope { path, is_exact, ..self.outer(&location.block) };
        if let Kind::Regex { compiled, .. } = &location.kind {
            scope.captures.extend(groups(compiled));
        }
        scope
    }

    /// The scope of the server itself.
    pub(super) fn outer(&self, block: &std::rc::Rc<Block<'a>>) -> Scope<'a> {
        Scope {
            block: std::rc::Rc::clone(block),
            set: self.set.clone(),
            captures: self.server.captures(),
            server_name: self.server.first_name.clone(),
            server_port: self.server.port(),
            scheme: self.server.scheme(),
            path: None,
            is_exact: false,
        }
    }
}

/// The groups of a pattern that a template may name: a named one by its name, else by its number.
pub(super) fn groups(pattern: &regex::bytes::Regex) -> BTreeSet<String> {
    pattern
        .capture_names()
        .enumerate()
        .skip(1)
        .map(|(at, name)| name.map_or_else(|| at.to_string(), str::to_owned))
        .collect()
}
