//! `handle_errors`: pages for errors, as the filter `errors`.

use super::adapt::Adapter;
use super::matchers::Named;
use super::model::{Answer, Handler, Kind, Matcher, Rewrite, Route};
use super::syntax::Segment;
use super::text::{self, Scope};
use crate::ledger::Ledger;
use crate::yaml::Map;

/// What Weir has for what cannot be translated.
const NEAREST: &str = "the filter `errors`, with a page for each status";

const FIELDS: &str = "the page has the fields of the route's own answers";

/// The pages of a site.
pub(super) fn read(segment: &Segment, root: Option<&str>, adapter: &mut Adapter<'_>) -> Map {
    adapter.ledger.same(segment.piece);
    let args = segment.args();
    let keys = match &*args {
        [] => vec!["4xx".to_owned(), "5xx".to_owned()],
        args => args.iter().map(|arg| (*arg).to_owned()).collect(),
    };
    let routes = adapter.routes(segment.inner(), &Named::new(), false);
    pages(&routes, root, &keys, adapter.ledger)
}

/// Adds the pages of a block behind others, which take the statuses that they name.
pub(super) fn add(known: &mut Map, more: &Map) {
    for (key, page) in more.iter() {
        let class = key.get(..1).map(|first| format!("{first}xx")).unwrap_or_default();
        if known.get(key).is_none() && known.get(&class).is_none() {
            known.set(key.to_owned(), page.clone());
        }
    }
}

/// The pages that routes of errors send.
pub(super) fn pages(routes: &[Route], root: Option<&str>, keys: &[String], ledger: &mut Ledger) -> Map {
    let mut page = Pages { map: Map::new(), ledger };
    let state = State { keys: keys.to_vec(), root: root.map(str::to_owned), path: None };
    page.routes(routes, state);
    page.map
}

#[derive(Clone)]
struct State {
    keys: Vec<String>,
    root: Option<String>,
    /// What the path was rewritten to.
    path: Option<String>,
}

struct Pages<'a> {
    map: Map,
    ledger: &'a mut Ledger,
}

impl Pages<'_> {
    /// The state for what follows, or none if an answer was sent to all.
    fn routes(&mut self, routes: &[Route], mut state: State) -> Option<State> {
        let mut paths: Vec<(Vec<String>, String)> = Vec::new();
        for route in routes {
            let keys = match keys(route, &state.keys) {
                Ok(keys) => keys,
                Err(why) => {
                    for piece in &route.pieces {
                        self.ledger.refused(*piece, why.clone(), NEAREST);
                    }
                    self.below(&route.handlers);
                    continue;
                }
            };
            let is_all = keys == state.keys;
            let mut inner = State { keys, ..state.clone() };
            if let Some((_, path)) = paths.iter().find(|(known, _)| *known == inner.keys) {
                inner.path = Some(path.clone());
            }
            let mut answered = false;
            for handler in &route.handlers {
                self.ledger.same(handler.piece);
                match &handler.kind {
                    Kind::Subroute(routes) => match self.routes(routes, inner.clone()) {
                        Some(next) => inner = next,
                        None => answered = true,
                    },
                    Kind::Vars(vars) => {
                        if let Some((_, root)) = vars.iter().find(|(name, _)| name == "root") {
                            inner.root = Some(root.clone());
                        }
                    }
                    Kind::Rewrite(Rewrite::Uri(uri)) => inner.path = Some(uri.clone()),
                    Kind::Respond(answer) => {
                        self.respond(&inner.keys, answer, handler);
                        answered = true;
                    }
                    Kind::Files(files) => {
                        // A rewrite for some statuses, and a file server for all.
                        let own = paths.clone();
                        for (keys, path) in own {
                            self.file(
                                &keys,
                                files.root.as_ref().or(inner.root.as_ref()),
                                Some(&path),
                                handler,
                            );
                        }
                        if inner.path.is_some() || paths.is_empty() {
                            let root = files.root.as_ref().or(inner.root.as_ref());
                            self.file(&inner.keys, root, inner.path.as_ref(), handler);
                        }
                        answered = true;
                    }
                    Kind::Headers(_) | Kind::Filter(_) | Kind::Nothing => {
                        self.ledger.changed(handler.piece, FIELDS);
                    }
                    _ => {
                        let why = "Weir sends pages for errors, and runs no handlers for them";
                        self.ledger.refused(handler.piece, why, NEAREST);
                        answered = true;
                    }
                }
                if answered {
                    break;
                }
            }
            if is_all {
                if answered {
                    return None;
                }
                state = inner;
            } else if let Some(path) = inner.path.filter(|_| !answered) {
                paths.push((inner.keys, path));
            }
        }
        Some(state)
    }

    fn below(&mut self, handlers: &[Handler]) {
        for handler in handlers {
            if let Kind::Subroute(routes) = &handler.kind {
                for route in routes {
                    route
                        .pieces
                        .iter()
                        .for_each(|piece| self.ledger.refused(*piece, "it is not reached", NEAREST));
                    self.below(&route.handlers);
                }
            }
        }
    }

    fn respond(&mut self, keys: &[String], answer: &Answer, handler: &Handler) {
        let page = match answer.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("location")) {
            Some((_, to)) => {
                if to.split_once('?').is_some_and(|(_, query)| query.contains('{')) {
                    let why = "Weir escapes values in the query, so that what reads it gets each as a whole";
                    self.ledger.changed(handler.piece, why);
                }
                redirect(to, &answer.status)
            }
            None => self.body(keys, answer, handler),
        };
        match page {
            Ok(page) => {
                for key in keys {
                    if self.map.get(key).is_none() {
                        self.map.set(key.clone(), page.clone());
                    }
                }
            }
            Err(why) => self.ledger.refused(handler.piece, why, NEAREST),
        }
    }

    fn body(&mut self, keys: &[String], answer: &Answer, handler: &Handler) -> Result<Map, String> {
        // A page keeps the status of the error, as Caddy's does unless it names another.
        let own = answer.status.as_str();
        let keeps = own.is_empty()
            || ["{http.error.status_code}", "{err.status_code}"].contains(&own)
            || keys.iter().all(|key| key == own);
        if !keeps {
            if !own.starts_with(['4', '5']) {
                return Err(format!("a page is sent with the status of the error, not with {own}"));
            }
            let why = format!("the page is sent with the status of the error, not with {own}");
            self.ledger.changed(handler.piece, why);
        }
        let template = text::template(&answer.body, &scope()).map_err(|lacks| no_placeholder(&lacks))?;
        if !answer.headers.is_empty() {
            self.ledger.changed(handler.piece, FIELDS);
        }
        // An empty page is one too.
        Ok(Map::new().with("body", template.to_body()).with("type", "text/plain; charset=utf-8"))
    }

    fn file(&mut self, keys: &[String], root: Option<&String>, path: Option<&String>, handler: &Handler) {
        let Some(path) = path else {
            self.ledger.refused(handler.piece, "the page depends on the path of the request", NEAREST);
            return;
        };
        let status = ["{http.error.status_code}", "{err.status_code}"];
        let Some(name) = status.iter().find(|name| path.contains(**name)) else {
            if text::has_placeholder(path) {
                self.ledger.refused(
                    handler.piece,
                    format!("the page `{path}` depends on the request"),
                    NEAREST,
                );
                return;
            }
            let file = joined(root, path);
            for key in keys {
                if self.map.get(key).is_none() {
                    self.map.set(key.clone(), Map::new().with("file", file.clone()));
                }
            }
            return;
        };
        // One file for each status. Which ones there are is not known here.
        let exact: Vec<&String> =
            keys.iter().filter(|key| key.bytes().all(|byte| byte.is_ascii_digit())).collect();
        if exact.is_empty() {
            let why = "a page for each status: Weir must be told which there are";
            self.ledger.refused(handler.piece, why, "`errors: { 404: { file: … }, 500: { file: … } }`");
            return;
        }
        for key in exact {
            let file = joined(root, &path.replace(name, key));
            if self.map.get(key).is_none() {
                self.map.set(key.clone(), Map::new().with("file", file));
            }
        }
    }
}

fn scope() -> Scope {
    Scope { is_error: true, ..Scope::default() }
}

fn no_placeholder(placeholder: &str) -> String {
    format!("Weir has nothing for {placeholder} in a page")
}

/// A redirect in place of an error.
fn redirect(to: &str, status: &str) -> Result<Map, String> {
    let status: u16 = status.parse().map_err(|_| format!("a redirect with the status `{status}`"))?;
    if ![302, 303, 307].contains(&status) {
        return Err(format!("an error is answered with a redirect of status 302, 303 or 307, not {status}"));
    }
    let target = text::template(to, &scope()).map_err(|lacks| no_placeholder(&lacks))?;
    let mut map = Map::new().with("redirect", target.to_setting());
    if status != 302 {
        map.set("status", status);
    }
    Ok(map)
}

fn joined(root: Option<&String>, path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default().trim_start_matches('/');
    format!("{}/{path}", root.map_or(".", |root| root.trim_end_matches('/')))
}

/// The statuses that a route is for.
fn keys(route: &Route, outer: &[String]) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    if route.sets.is_empty() {
        return Ok(outer.to_vec());
    }
    for set in &route.sets {
        match &**set {
            [Matcher::Expression(cel)] => found.extend(statuses(cel)?),
            [Matcher::Path(paths)] if paths.iter().all(|path| matches!(&**path, "*" | "/*")) => {
                found.extend(outer.iter().cloned());
            }
            _ => return Err("Weir chooses a page by status only".to_owned()),
        }
    }
    Ok(found)
}

/// `{err.status_code} == 404`, `… in [403, 404]`, `… >= 500 && … < 600`, joined by `||`.
fn statuses(cel: &str) -> Result<Vec<String>, String> {
    let fails = || format!("Weir chooses a page by status only, not by `{cel}`");
    let mut found = Vec::new();
    for part in cel.split("||") {
        let plain = part.replace("{http.error.status_code}", "S").replace("{err.status_code}", "S");
        let plain: String =
            plain.chars().filter(|c| !c.is_whitespace() && !matches!(c, '(' | ')' | '\'' | '"')).collect();
        let number = |text: &str| text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(status) = plain.strip_prefix("S==").filter(|status| number(status)) {
            found.push(status.to_owned());
        } else if let Some(list) = plain.strip_prefix("Sin[").and_then(|rest| rest.strip_suffix(']')) {
            let all: Vec<&str> = list.split(',').collect();
            if !all.iter().all(|status| number(status)) {
                return Err(fails());
            }
            found.extend(all.iter().map(|status| (*status).to_owned()));
        } else {
            match &*plain {
                "S>=500" | "S>=500&&S<600" | "S>499" | "S>=500&&S<=599" => found.push("5xx".to_owned()),
                "S>=400" => found.extend(["4xx".to_owned(), "5xx".to_owned()]),
                "S>=400&&S<500" | "S<500" | "S>=400&&S<=499" => found.push("4xx".to_owned()),
                _ => return Err(fails()),
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_read() {
        assert_eq!(statuses("{err.status_code} == 404").unwrap(), ["404"]);
        assert_eq!(statuses("{http.error.status_code} in [403, 404]").unwrap(), ["403", "404"]);
        assert_eq!(statuses("{err.status_code} >= 500 && {err.status_code} < 600").unwrap(), ["5xx"]);
        assert!(statuses("{http.error.message} == 'x'").is_err());
    }
}
