//! Finds logins that nobody could finish, by asking the table which route the provider sends browsers back to.

use super::Compiler;
use weir_config::{Diagnostic, Node, schema::FilterNode};
use weir_filter::filter::Url;
use weir_route::{NoTrace, RouteId, Table};

impl Compiler<'_> {
    /// Warns of each filter `oidc` whose `redirect` or `logout` leads to a route without it.
    pub(super) fn lost_logins(&mut self, table: &Table) {
        let config = self.config;
        for (index, (_, route)) in config.routes.iter().enumerate() {
            let Ok(index) = u32::try_from(index) else { return };
            for (path, oidc) in logins(config.filters.iter().chain(route.all_filters())) {
                let text = |key: &str| oidc.get(key).and_then(Node::as_text);
                let Some(Ok(redirect)) = text("redirect").map(str::parse::<Url>) else { continue };
                let host = redirect.host();
                let asked = [("redirect", Some(redirect.target())), ("logout", text("logout"))];
                for (key, target) in asked.into_iter().filter_map(|(key, target)| Some((key, target?))) {
                    if self.has_login(table, RouteId(index), (host, target), oidc) {
                        continue;
                    }
                    let message =
                        format!("no route takes `{target}` with this filter, so the browser would get a 404");
                    let hint = "let the path lead to a route that has the same `oidc`";
                    let path = format!("{path}.{key}");
                    self.found
                        .push(Diagnostic::warning("lost-login", message).on(self.tree, &path).hint(hint));
                }
            }
        }
    }

    /// Whether a GET of this goes to a route with the same login. Yes if it cannot be known.
    fn has_login(&self, table: &Table, id: RouteId, (host, path): (&str, &str), oidc: &Node) -> bool {
        let Some(mut request) = table.sample(id) else { return true };
        (request.host, request.path) = (host.to_owned(), path.to_owned());
        "GET".clone_into(&mut request.method);
        let Some(found) = table.find(&request.request(), &mut NoTrace) else { return false };
        let Some((_, route)) = self.config.routes.iter().nth(found.index()) else { return true };
        let is_same = |other: &Node| {
            ["issuer", "client_id", "cookie"]
                .iter()
                .all(|key| oidc.get(key).and_then(Node::as_text) == other.get(key).and_then(Node::as_text))
        };
        logins(self.config.filters.iter().chain(route.all_filters())).any(|(_, other)| is_same(other))
    }
}

/// The `oidc` filters among these, including members of `any`, with their paths.
fn logins<'a>(filters: impl Iterator<Item = &'a FilterNode>) -> impl Iterator<Item = (String, &'a Node)> {
    filters.flat_map(|filter| match filter.name.as_str() {
        "oidc" => vec![(filter.path.clone(), &filter.node)],
        "any" => members(filter),
        _ => Vec::new(),
    })
}

fn members(any: &FilterNode) -> Vec<(String, &Node)> {
    let all = any.node.elements().iter().enumerate();
    all.filter_map(|(at, member)| Some((format!("{}[{at}].oidc", any.path), member.get("oidc")?))).collect()
}
