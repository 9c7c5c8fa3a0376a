//! The order of directives, which has meaning in Caddy: docs "Directive order" and "Sorting algorithm".

use super::model::{Matcher, Route};

/// The order of the standard directives. Names that one version calls so and another so stand beside each other.
const ORDER: &[&str] = &[
    "tracing",
    "map",
    "vars",
    "fs",
    "root",
    "log_append",
    "skip_log",
    "log_skip",
    "log_name",
    "header",
    "copy_response_headers",
    "request_body",
    "redir",
    "method",
    "rewrite",
    "uri",
    "try_files",
    "basicauth",
    "basic_auth",
    "forward_auth",
    "request_header",
    "encode",
    "push",
    "intercept",
    "templates",
    "invoke",
    "handle",
    "route",
    "abort",
    "error",
    "copy_response",
    "respond",
    "metrics",
    "reverse_proxy",
    "php_fastcgi",
    "file_server",
    "acme_server",
];

/// The order of a config: the standard one, changed by the global option `order`.
#[derive(Clone, Debug)]
pub(super) struct Order(Vec<String>);

/// A route with the directive that it came from.
pub(super) struct Item {
    pub(super) directive: String,
    pub(super) route: Route,
}

impl Default for Order {
    fn default() -> Self {
        Self(ORDER.iter().map(|name| (*name).to_owned()).collect())
    }
}

impl Order {
    /// `order NAME first|last`, `order NAME before|after OTHER`. Whether it could be understood.
    pub(super) fn change(&mut self, args: &[&str]) -> bool {
        let (name, at) = match args {
            [name, "first"] => (name, Some(0)),
            [name, "last"] => (name, Some(usize::MAX)),
            [name, place @ ("before" | "after"), other] => {
                let at = self.0.iter().filter(|known| *known != name).position(|known| known == other);
                (name, at.map(|at| at + usize::from(*place == "after")))
            }
            _ => return false,
        };
        let Some(at) = at else { return false };
        self.0.retain(|known| known != name);
        self.0.insert(at.min(self.0.len()), (*name).to_owned());
        true
    }

    /// Whether a directive has a place of its own.
    pub(super) fn knows(&self, directive: &str) -> bool {
        self.0.iter().any(|known| known == directive)
    }

    /// Sorts as Caddy does: by directive, then by path, then as written. The comparison is not transitive, so it has
    /// to be made as Caddy makes it, by insertion.
    pub(super) fn sort(&self, items: Vec<Item>) -> Vec<Item> {
        let mut sorted: Vec<Item> = Vec::with_capacity(items.len());
        for item in items {
            let mut at = sorted.len();
            while at > 0 && self.is_before(&item, &sorted[at - 1]) {
                at -= 1;
            }
            sorted.insert(at, item);
        }
        sorted
    }

    fn is_before(&self, one: &Item, other: &Item) -> bool {
        // One without a place may guard what others do, so it comes first.
        let place = |item: &Item| self.0.iter().position(|known| *known == item.directive);
        let (a, b) = (place(one), place(other));
        if one.directive != other.directive && a != b {
            return a < b;
        }
        let (first, second) = (&one.route.sets, &other.route.sets);
        let ordered = |first: &[Vec<Matcher>], second: &[Vec<Matcher>]| match (length(first), length(second))
        {
            (Some(a), Some(b)) => a > b,
            // What has no matcher comes last; of any other two the order of the file counts.
            _ => !first.is_empty() && second.is_empty(),
        };
        if one.directive == "vars" { ordered(second, first) } else { ordered(first, second) }
    }
}

/// The length of the only path of the only set.
fn length(sets: &[Vec<Matcher>]) -> Option<usize> {
    let [set] = sets else { return None };
    set.iter().find_map(|matcher| match matcher {
        Matcher::Path(paths) if paths.len() == 1 => Some(paths[0].len()),
        _ => None,
    })
}
