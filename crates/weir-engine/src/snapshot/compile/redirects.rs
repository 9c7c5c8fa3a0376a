//! Finds redirects that lead a client back to itself, by asking the table where the next request would go.

use super::Compiler;
use weir_config::{Diagnostic, schema};
use weir_route::{NoTrace, RouteId, Table};

impl Compiler<'_> {
    /// Warns of each route whose `redirect` leads back to itself.
    pub(super) fn endless_redirects(&mut self, table: &Table) {
        let config = self.config;
        for (index, (_, route)) in config.routes.iter().enumerate() {
            let Some(filter) = route.filters.iter().find(|f| f.name == "redirect") else { continue };
            let Some(to) = filter.node.get("to").and_then(|node| node.as_text()) else { continue };
            let Ok(index) = u32::try_from(index) else { return };
            if self.comes_back(table, RouteId(index), route, to) {
                let message = "the redirect leads back to this route: a client would loop until it gives up";
                let path = format!("{}.to", filter.path);
                let hint = "redirect to a path, host or scheme that another route takes";
                self.found
                    .push(Diagnostic::warning("endless-redirect", message).on(self.tree, &path).hint(hint));
            }
        }
    }

    /// Whether a client sent `to` certainly reaches the same route again. No if it cannot be known, as with a host
    /// that no route names.
    fn comes_back(&self, table: &Table, id: RouteId, route: &schema::Route, to: &str) -> bool {
        let Some(mut next) = table.sample(id) else { return false };
        let to = to.replace("{path}", &next.path).replace("{host}", &next.host);
        if to.contains('{') {
            return false;
        }
        let path_and_query = match to.split_once("://") {
            None => &*to,
            Some((scheme, rest)) => {
                let (host, _) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                if !host.eq_ignore_ascii_case(&next.host) || !self.all_speak(route, scheme) {
                    return false;
                }
                &rest[host.len()..]
            }
        };
        if !path_and_query.is_empty() && !path_and_query.starts_with('/') {
            return false;
        }
        let path = path_and_query.split(['?', '#']).next().unwrap_or_default();
        next.path = if path.is_empty() { "/".to_owned() } else { path.to_owned() };
        // By default the method stays. Another status may turn it into GET, which most routes accept anyway.
        table.find(&next.request(), &mut NoTrace) == Some(id)
    }

    /// Whether the route is reached by this scheme only, so that a redirect to it does not change the scheme.
    fn all_speak(&self, route: &schema::Route, scheme: &str) -> bool {
        let of_route = |name: &str| {
            let listeners = &route.matches.listeners;
            listeners.is_empty() || listeners.iter().any(|listener| listener == name)
        };
        let mut listeners = self.config.listeners.iter().filter(|(name, _)| of_route(name));
        listeners.all(|(_, listener)| scheme == if listener.tls.is_some() { "https" } else { "http" })
    }
}
