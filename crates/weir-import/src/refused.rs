//! Closes what `weir check` refuses of an import, so that every config that an import writes can run.
//!
//! A translation that Weir refuses is a mistake of weir import. The route, map or consumer that it concerns is closed
//! or left out, and its source line is refused with the words of `weir check`. The rest of the config stays. The crate
//! weirgate checks, calls [`Import::close`] for each error, and checks again.

use super::config::{Config, Match, Route};
use super::ledger::Piece;
use super::output::{MAIN, route_text};
use super::shared::filters::closed;
use super::shared::ranked;
use super::source::Place;
use super::system::Import;
use super::yaml::{Map, Value};

/// Priority of a closed route that matches more than the rule it was made for.
const WIDER: i64 = 1_000_000;

/// What the refused line can become.
const NEAREST: &str = "write it by hand: docs/reference/config.md and filters.md";

impl Import {
    /// Closes what has this `path` in the config, such as `routes.NAME.filters[0].acl.is`. `said` is what `weir check`
    /// says about it. False if nothing of it can be closed.
    pub fn close(&mut self, path: &str, said: &str) -> bool {
        let said = self.masked(said);
        let said = said.as_str();
        let why = format!("weir check refuses what was written for it ({path}: {said})");
        let (section, rest) = path.split_once(['.', '[']).unwrap_or((path, ""));
        let done = match section {
            "routes" => self.close_route(rest, said),
            "filters" => {
                let is_closed = self.config.filters.iter().any(|filter| filter.name == "respond");
                self.config.filters = vec![closed(&plain(said))];
                (!is_closed).then(Vec::new)
            }
            "maps" => leave_out(&mut self.config, rest, said, |config, name| {
                config.maps.remove(name);
                mentions(config, &format!("maps.{name}"))
            }),
            "upstreams" => leave_out(&mut self.config, rest, said, |config, name| {
                config.upstreams.remove(name);
                mentions(config, name)
            }),
            "stores" => leave_out(&mut self.config, rest, said, |config, name| {
                config.stores.remove(name);
                mentions(config, name)
            }),
            "consumers" => leave_out(&mut self.config, rest, said, |config, name| {
                config.consumers.remove(name);
                Vec::new()
            }),
            "listeners" => leave_out(&mut self.config, rest, said, |config, name| {
                config.listeners.remove(name);
                without_listener(config, name)
            }),
            key => self.config.more.remove(key).map(|_| Vec::new()),
        };
        let Some(mut pieces) = done else { return false };
        if pieces.is_empty() {
            pieces.push(self.ledger.enter(Place::new(MAIN, 1), &format!("{section}: …")));
        }
        for piece in pieces {
            self.ledger.refused(piece, format!("{why}. It is closed or left out"), NEAREST);
        }
        true
    }

    /// A text for a report without the secrets of the config.
    #[must_use]
    pub fn masked(&self, text: &str) -> String {
        self.mask(&[])(text)
    }

    /// The same for many texts, and without `more` secrets.
    pub fn mask(&self, more: &[String]) -> impl Fn(&str) -> String + use<> {
        super::shared::protect::masked(&self.config, more)
    }

    /// The statements that a route was made from.
    fn close_route(&mut self, rest: &str, said: &str) -> Option<Vec<Piece>> {
        let name = longest(rest, self.config.routes.iter().map(|(name, _)| name))?;
        let setting = rest[name.len()..].trim_start_matches('.').to_owned();
        let route = self.config.routes.get_mut(&name)?;
        let is_new = shut(route, said);
        let part = setting.strip_prefix("match").map(|part| part.trim_start_matches('.'));
        let is_wider = part.is_some_and(|part| widen(&mut route.matches, part));
        if is_wider {
            route.priority = WIDER;
        }
        // A second mistake of the same check, in what the first one took away.
        let is_gone =
            ["filters", "upstream", "files", "fastcgi", "respond"].iter().any(|key| setting.starts_with(key));
        if !is_new && !is_wider && !is_gone {
            // Closed before, and Weir still refuses it: what it matches is the mistake.
            if route.matches == Match::default() {
                return None;
            }
            let listeners = std::mem::take(&mut route.matches.listeners);
            route.matches = Match { listeners, ..Match::default() };
            route.priority = WIDER;
        }
        Some(self.config.origins.get(&name).cloned().unwrap_or_default())
    }
}

/// Lets a route answer 503. False if it does so already.
fn shut(route: &mut Route, said: &str) -> bool {
    let is_shut = route.target.is_none()
        && matches!(&*route.filters, [only] if only.name == "respond")
        && route.more.is_empty();
    if !is_shut {
        ranked::shut(route, &plain(said));
    }
    !is_shut
}

/// Takes the refused part of a match away, so that it matches more. False if nothing was there.
fn widen(matches: &mut Match, part: &str) -> bool {
    let before = matches.clone();
    match part.split(['.', '[']).next().unwrap_or_default() {
        "when" => matches.when = None,
        "path" => {
            matches.path = None;
            matches.more_paths.clear();
            matches.more.remove("path");
        }
        "hosts" => matches.hosts.clear(),
        "headers" => matches.headers.clear(),
        "query" => matches.query.clear(),
        "methods" => matches.methods.clear(),
        key => _ = matches.more.remove(key),
    }
    *matches != before
}

/// Leaves out a thing of a section, and closes the routes that `users` says need it.
fn leave_out(
    config: &mut Config,
    rest: &str,
    said: &str,
    users: impl Fn(&mut Config, &str) -> Vec<String>,
) -> Option<Vec<Piece>> {
    let names: Vec<String> = [
        config.maps.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>(),
        config.upstreams.iter().map(|(name, _)| name.to_owned()).collect(),
        config.stores.iter().map(|(name, _)| name.to_owned()).collect(),
        config.consumers.iter().map(|(name, _)| name.to_owned()).collect(),
        config.listeners.iter().map(|(name, _)| name.to_owned()).collect(),
    ]
    .concat();
    let name = longest(rest, names.iter().map(String::as_str))?;
    let mut pieces = Vec::new();
    for user in users(config, &name) {
        if let Some(route) = config.routes.get_mut(&user) {
            // A condition that cannot be asked is no condition.
            if route.matches.when.as_ref().is_some_and(|when| when.contains(&*name)) {
                route.matches.when = None;
                route.priority = WIDER;
            }
            shut(route, said);
            pieces.extend(config.origins.get(&user).into_iter().flatten().copied());
        }
    }
    Some(pieces)
}

/// The routes whose text has this name. What all routes share is closed if it has it.
fn mentions(config: &mut Config, name: &str) -> Vec<String> {
    let is_word = |text: &str| {
        text.match_indices(name).any(|(at, _)| {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            !text[..at].chars().next_back().is_some_and(is_part)
                && !text[at + name.len()..].chars().next().is_some_and(is_part)
        })
    };
    let shared: Value = Value::List(config.filters.iter().map(super::config::Filter::to_value).collect());
    if is_word(&Map::new().with("filters", shared).to_yaml()) {
        config.filters = vec![closed("what all routes share needs a part that was left out")];
    }
    config
        .routes
        .iter()
        .filter(|(_, route)| is_word(&route_text(route)))
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Takes a listener away from the routes that name it. Routes of no other listener go with it: nobody can ask them.
fn without_listener(config: &mut Config, name: &str) -> Vec<String> {
    let mut gone = Vec::new();
    for (route, written) in config.routes.iter_mut() {
        let listeners = &mut written.matches.listeners;
        let before = listeners.len();
        listeners.retain(|listener| listener != name);
        if before > 0 && listeners.is_empty() {
            gone.push(route.to_owned());
        }
    }
    for route in &gone {
        config.routes.remove(route);
        config.tests.retain(|case| case.route.as_ref() != Some(route));
    }
    config.tests.retain(|case| case.listener.as_deref() != Some(name));
    Vec::new()
}

/// The longest of the names that a path begins with.
fn longest<'n>(rest: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let fits = |name: &&str| {
        rest.strip_prefix(name).is_some_and(|after| after.is_empty() || after.starts_with(['.', '[']))
    };
    names.filter(fits).max_by_key(|name| name.len()).map(str::to_owned)
}

/// What `weir check` says, for a comment in the config.
fn plain(said: &str) -> String {
    format!("weir check refused its translation ({said})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Filter, Target};
    use crate::ledger::{Ledger, Verdict};

    fn import() -> Import {
        let mut config = Config::default();
        let mut ledger = Ledger::default();
        let piece = ledger.enter(Place::new("a.conf", 3), "location /x");
        ledger.same(piece);
        let route = |path: &str, when: Option<&str>| Route {
            matches: Match {
                path: Some(path.to_owned()),
                when: when.map(str::to_owned),
                listeners: vec!["web".to_owned()],
                ..Match::default()
            },
            filters: vec![Filter::new("acl", Map::new().with("is", "frob"))],
            target: Some(Target::Upstream("up".to_owned())),
            ..Route::default()
        };
        config.routes.add("h.test.root", route("/x", Some("maps.deny == \"1\"")));
        config.routes.add("h.test", route("/y", None));
        config.origins.insert("h.test.root".to_owned(), vec![piece]);
        config.maps.add("deny", Map::new());
        config.listeners.add("web", crate::config::Listener::default());
        let system = crate::system("nginx").expect("nginx is a system");
        Import { system, config, ledger, files: Vec::new() }
    }

    #[test]
    fn a_refused_filter_closes_its_route() {
        let mut import = import();
        assert!(import.close("routes.h.test.root.filters[0].acl.is", "too many steps"));
        let route = import.config.routes.get("h.test.root").unwrap();
        assert!(route.target.is_none() && route.filters[0].name == "respond");
        assert_eq!(route.matches.path.as_deref(), Some("/x"));
        assert!(import.config.routes.get("h.test").unwrap().target.is_some());
        let line = &import.ledger.lines()[0];
        assert_eq!(line.verdict, Verdict::Refused);
        assert!(line.why[0].contains("too many steps"), "{:?}", line.why);
        // Refused again: then what it matches must be the mistake, and nothing is left to take away at last.
        assert!(import.close("routes.h.test.root", "two routes"));
        let matches = &import.config.routes.get("h.test.root").unwrap().matches;
        assert_eq!((matches.path.as_deref(), &*matches.listeners), (None, &["web".to_owned()][..]));
    }

    #[test]
    fn further_mistakes_of_a_closed_route_are_gone() {
        let mut import = import();
        for mistake in ["filters[0].acl.is", "filters[1].rewrite.path", "upstream"] {
            assert!(import.close(&format!("routes.h.test.{mistake}"), "a mistake"), "{mistake}");
        }
        let route = import.config.routes.get("h.test").unwrap();
        assert!(route.target.is_none() && route.filters[0].name == "respond");
        // It still takes its own path alone.
        assert_eq!(route.matches.path.as_deref(), Some("/y"));
    }

    #[test]
    fn a_refused_condition_matches_more_and_is_closed() {
        let mut import = import();
        assert!(import.close("routes.h.test.root.match.when", "no network"));
        let route = import.config.routes.get("h.test.root").unwrap();
        assert!(route.matches.when.is_none() && route.target.is_none() && route.priority == WIDER);
    }

    #[test]
    fn a_map_that_is_left_out_closes_what_asks_it() {
        let mut import = import();
        assert!(import.close("maps.deny", "this map has no entries"));
        let route = import.config.routes.get("h.test.root").unwrap();
        assert!(route.matches.when.is_none() && route.target.is_none(), "{route:?}");
        assert!(import.config.routes.get("h.test").unwrap().target.is_some());
        assert!(import.config.maps.is_empty());
    }

    #[test]
    fn a_listener_takes_its_routes_with_it() {
        let mut import = import();
        assert!(import.close("listeners.web.address", "no address"));
        assert!(import.config.routes.is_empty());
        assert_eq!(import.ledger.lines().last().map(|line| line.verdict), Some(Verdict::Refused));
        assert!(!import.close("routes.h.test", "it is gone"));
    }
}
