//! A position that a check examines: its node, and its path, which is built only to report a mistake.

use std::fmt::{self, Display, Formatter};

use crate::node::Node;

/// A step on the way from the top of the config to the values of one entry.
pub(super) struct Spot<'p, 'n> {
    above: Option<&'p Self>,
    step: Step<'p>,
    node: Option<&'n Node>,
}

enum Step<'p> {
    Index(usize),
    Key(&'p str),
}

impl<'n> Spot<'_, 'n> {
    /// A section of the config.
    pub(super) fn section<'p>(tree: &'n Node, name: &'p str) -> Spot<'p, 'n> {
        Spot { above: None, step: Step::Key(name), node: tree.get(name) }
    }

    /// An entry of this section that was read from `node`.
    pub(super) fn thing<'p>(&'p self, name: &'p str, node: Option<&'n Node>) -> Spot<'p, 'n> {
        Spot { above: Some(self), step: Step::Key(name), node }
    }

    /// The value under a key.
    pub(super) fn key<'p>(&'p self, key: &'p str) -> Spot<'p, 'n> {
        self.thing(key, self.node.and_then(|node| node.get(key)))
    }

    /// An element of a list.
    pub(super) fn index(&self, index: usize) -> Spot<'_, 'n> {
        let node = self.node.and_then(|node| node.elements().get(index));
        Spot { above: Some(self), step: Step::Index(index), node }
    }

    /// The node written there.
    pub(super) fn node(&self) -> Option<&'n Node> {
        self.node
    }

    /// Whether a value is written, valid or not.
    pub(super) fn is_written(&self) -> bool {
        self.node.is_some_and(Node::is_set)
    }

    /// The path, such as `routes.orders.match.hosts[0]`.
    pub(super) fn path(&self) -> String {
        self.to_string()
    }
}

impl Display for Spot<'_, '_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            write!(f, "{above}")?;
        }
        match self.step {
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) if self.above.is_none() => f.write_str(key),
            Step::Key(key) => write!(f, ".{key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::tests::tree;

    #[test]
    fn a_spot_knows_its_path_and_its_node() {
        let tree = tree("routes:\n  a.b: { match: { hosts: [x, y] }, upstream: ~, files: }\n");
        let section = Spot::section(&tree, "routes");
        let route = section.key("a.b");
        let (matches, missing) = (route.key("match"), route.key("respond"));
        let hosts = matches.key("hosts");
        assert_eq!(hosts.index(1).path(), "routes.a.b.match.hosts[1]");
        assert_eq!(hosts.index(1).node().and_then(Node::as_text), Some("y"));
        assert!(hosts.index(2).node().is_none() && missing.key("body").node().is_none());
        assert_eq!(missing.key("body").path(), "routes.a.b.respond.body");
        let written = ["match", "upstream", "files", "respond"].map(|key| route.key(key).is_written());
        assert_eq!(written, [true, false, true, false]);
    }
}
