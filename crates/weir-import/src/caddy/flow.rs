//! Follows Caddy's routes for all requests at once, and finds each way that one can take through them.
//!
//! Caddy runs handlers one after another until one answers; a matcher before each says whether it runs. Weir takes one
//! route for a request. So each way to an answer becomes a route: its conditions are those of the matchers on the way,
//! its filters the handlers on the way. The ways are listed so that of two that match one request, the first is right.

use super::model::{Answer, Handler, Kind, Matcher, Op, Rewrite, Route};
use super::path::{Holds, Pattern};
use super::text::has_placeholder;
use super::world::{Now, Step, What, World};
use crate::config::{Config, Filter, Upstream};
use crate::ledger::{Ledger, Piece};
use crate::shared::expression::Expression;
use crate::shared::filters::{Headers, respond};
use crate::shared::path::canonical;
use crate::shared::template::{Part, Template};
use crate::yaml::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Most ways of one server. A person could not read more.
const MAX_BRANCHES: usize = 20_000;

/// A way to an answer.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    pub(super) world: World,
    pub(super) out: Out,
    /// The statement that answers.
    pub(super) piece: Option<Piece>,
}

/// What answers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Out {
    /// Nothing does: 200 without a body.
    Nothing,
    Respond(Answer),
    /// `error` with its status.
    Error(String),
    Abort,
    /// The name of the upstream, with the changes to the answer that the proxy makes.
    Upstream {
        name: String,
        response: Vec<Op>,
    },
    Files(Map),
    /// As [`crate::config::Target::FastCgi`], with changes to the answer.
    FastCgi {
        name: String,
        fastcgi: Map,
        files: Option<Map>,
        response: Vec<Op>,
    },
    /// 503, because something could not be translated.
    Closed(String),
}

/// What is left to do.
#[derive(Clone)]
pub(super) enum Todo<'a> {
    Route(&'a Route),
    Handler(&'a Handler),
}

/// A list that many worlds share.
#[derive(Clone, Default)]
pub(super) struct List<'a>(pub(super) Option<Rc<(Todo<'a>, Self)>>);

impl Drop for List<'_> {
    /// One link after the other: a long list that drops itself link within link would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(link) = next {
            next = Rc::try_unwrap(link).ok().and_then(|(_, mut rest)| rest.0.take());
        }
    }
}

impl<'a> List<'a> {
    pub(super) fn pop(&mut self) -> Option<Todo<'a>> {
        let node = self.0.take()?;
        *self = node.1.clone();
        Some(node.0.clone())
    }

    pub(super) fn before(self, all: impl DoubleEndedIterator<Item = Todo<'a>>) -> Self {
        all.rev().fold(self, |list, todo| Self(Some(Rc::new((todo, list)))))
    }
}

/// Follows the routes of one server.
pub(super) struct Flow<'a> {
    pub(super) ledger: &'a mut Ledger,
    pub(super) config: &'a mut Config,
    pub(super) branches: Vec<Branch>,
    /// Names of upstreams that were made, to share equal ones.
    pub(super) upstreams: &'a mut Vec<(Upstream, String)>,
    /// Names of consumers by user and hash.
    pub(super) users: &'a mut BTreeMap<(String, String), String>,
    /// Statements that some request reaches.
    pub(super) visited: &'a mut BTreeSet<Piece>,
    pub(super) overflows: bool,
}

impl<'a> Flow<'a> {
    /// Finds all ways of requests of `world` through `routes`.
    pub(super) fn follow(&mut self, routes: &'a [Route], world: World) {
        let todo = List::default().before(routes.iter().map(Todo::Route));
        self.run(todo, world, 0);
    }

    fn run(&mut self, mut todo: List<'a>, mut world: World, depth: usize) {
        loop {
            if self.branches.len() >= MAX_BRANCHES || depth > 200 {
                self.overflows = true;
                return;
            }
            match todo.pop() {
                None => return self.end(world, Out::Nothing, None),
                Some(Todo::Handler(handler)) => {
                    self.visit(&mut world, handler.piece);
                    if let Kind::Subroute(routes) = &handler.kind {
                        self.ledger.same(handler.piece);
                        todo = todo.before(routes.iter().map(Todo::Route));
                    } else if let Kind::Rewrite(Rewrite::StripPrefix(prefix)) = &handler.kind {
                        let Some(next) = self.strip(prefix, world, &todo, handler.piece, depth) else {
                            return;
                        };
                        world = next;
                    } else if self.handle(handler, &mut world, &mut todo) {
                        return;
                    }
                }
                Some(Todo::Route(route)) => {
                    if route.group.as_ref().is_some_and(|group| world.groups.contains(group)) {
                        continue;
                    }
                    match world.any(&route.sets, &world.now.clone()) {
                        Holds::Never => {
                            self.visited.extend(route.pieces.iter().copied());
                        }
                        Holds::Always => todo = self.enter(route, &mut world, todo),
                        Holds::Maybe => {
                            if let Some(tries) = tries(route) {
                                // `try_files` decides by files alone: the file server does so too.
                                self.visit_all(&mut world, &route.pieces);
                                self.try_files(route, tries, &mut world, &todo);
                                continue;
                            }
                            if route.group.is_none()
                                && route.handlers.iter().all(|handler| is_filter(&handler.kind))
                            {
                                self.conditional(route, &mut world);
                                continue;
                            }
                            if self.fork(route, &mut world, &todo, depth) {
                                return;
                            }
                        }
                    }
                }
            }
        }
    }

    fn visit(&mut self, world: &mut World, piece: Piece) {
        self.visited.insert(piece);
        if !world.pieces.contains(&piece) {
            world.pieces.push(piece);
        }
    }

    fn visit_all(&mut self, world: &mut World, pieces: &[Piece]) {
        pieces.iter().for_each(|piece| self.visit(world, *piece));
    }

    /// The rest where a route matches.
    fn enter(&mut self, route: &'a Route, world: &mut World, todo: List<'a>) -> List<'a> {
        self.visit_all(world, &route.pieces);
        world.groups.extend(route.group.clone());
        let rest = if route.is_terminal { List::default() } else { todo };
        rest.before(route.handlers.iter().map(Todo::Handler))
    }

    /// A world for each way in which a route can match; `world` is left for requests that it does not match.
    fn fork(&mut self, route: &'a Route, world: &mut World, todo: &List<'a>, depth: usize) -> bool {
        self.folders(route, world, todo, depth);
        for set in &route.sets {
            if world.any(std::slice::from_ref(set), &world.now.clone()) == Holds::Never {
                continue;
            }
            match world.with(set) {
                Ok(worlds) => {
                    for mut inner in worlds {
                        let rest = self.enter(route, &mut inner, todo.clone());
                        self.run(rest, inner, depth + 1);
                    }
                }
                Err(why) => {
                    self.visit_all(world, &route.pieces);
                    for piece in &route.pieces {
                        self.ledger.refused(*piece, why.clone(), "`match.when`, an expression");
                    }
                    // Nobody can tell which requests go on here, so none does until a person has decided.
                    self.close(world, &why);
                    return false;
                }
            }
        }
        world.without(&route.sets);
        false
    }

    /// `/x/*` does not take `/x`; Weir's does. So `/x` gets a way of its own.
    fn folders(&mut self, route: &Route, world: &mut World, todo: &List<'a>, depth: usize) {
        let mut folders: Vec<String> = Vec::new();
        for set in &route.sets {
            for matcher in set {
                let Matcher::Path(paths) = matcher else { continue };
                for path in paths {
                    let pattern = match &world.now {
                        Now::Same => Pattern::read(path),
                        Now::Below(prefix) => Pattern::read(path).below(prefix),
                        _ => continue,
                    };
                    if let Pattern::Prefix(start) = pattern
                        && let Some(folder) = start.strip_suffix('/').filter(|folder| !folder.is_empty())
                    {
                        folders.push(folder.to_owned());
                    }
                }
            }
        }
        for folder in folders {
            let exact = Pattern::Exact(folder.clone());
            let is_taken = world.any(&route.sets, &world.now.clone()) == Holds::Always;
            if is_taken || world.path.holds(&exact) == Holds::Never || world.folders.contains(&folder) {
                continue;
            }
            world.folders.insert(folder);
            let mut inner = world.clone();
            let (path, asked) = world.path.and(&exact);
            inner.path = path;
            inner.when.extend(asked);
            // The route may still match by another of its paths.
            let todo = match inner.any(&route.sets, &inner.now.clone()) {
                Holds::Never => todo.clone(),
                _ => continue,
            };
            self.run(todo, inner, depth + 1);
        }
    }

    /// Filters that run under a condition.
    fn conditional(&mut self, route: &'a Route, world: &mut World) {
        self.visit_all(world, &route.pieces);
        let now = world.now.clone();
        // What cannot be said is refused here, before anybody relies on it.
        if let Err(why) = world.expression(&route.sets, &now, true) {
            let guards = route
                .handlers
                .iter()
                .any(|handler| matches!(handler.kind, Kind::Users { .. } | Kind::Ask(_) | Kind::Closed(_)));
            for piece in &route.pieces {
                self.ledger.refused(*piece, why.clone(), "an expression in the filter `when`");
            }
            if guards {
                push(world, What::Filters(vec![closed_filter(&why)]));
            }
            return;
        }
        let mut inner = world.clone();
        inner.steps.clear();
        for handler in &route.handlers {
            self.visit(world, handler.piece);
            let count = self.branches.len();
            if self.handle(handler, &mut inner, &mut List::default()) {
                // It cannot be translated: what it guards is closed, and nothing else.
                self.branches.truncate(count);
                push(
                    &mut inner,
                    What::Filters(vec![closed_filter("a line before this one was not imported.")]),
                );
            }
        }
        for mut step in inner.steps {
            step.sets.clone_from(&route.sets);
            world.steps.push(step);
        }
    }

    pub(super) fn end(&mut self, world: World, out: Out, piece: Option<Piece>) {
        self.branches.push(Branch { world, out, piece });
    }

    /// Ends a way where nothing is known of what answers.
    pub(super) fn closed(&mut self, world: &World, why: &str, piece: Piece) -> bool {
        self.end(world.clone(), Out::Closed(why.to_owned()), Some(piece));
        true
    }

    /// Closes a way where a guard is missing. What stands behind it is kept for the person who takes the filter out.
    pub(super) fn close(&mut self, world: &mut World, why: &str) {
        push(world, What::Filters(vec![closed_filter(why)]));
    }

    /// Does what a handler does. Whether it answers.
    fn handle(&mut self, handler: &'a Handler, world: &mut World, todo: &mut List<'a>) -> bool {
        let piece = handler.piece;
        match &handler.kind {
            Kind::Subroute(_) | Kind::Nothing => self.ledger.same(piece),
            Kind::Headers(ops) => {
                let ops = ops.clone();
                self.request_fields(&ops.request, world, piece);
                if !ops.response.is_empty() {
                    push(world, What::Answer(ops));
                }
                self.ledger.same(piece);
            }
            Kind::Rewrite(rewrite) => self.rewrite(rewrite, world, piece),
            Kind::Respond(answer) => {
                self.ledger.same(piece);
                self.end(world.clone(), Out::Respond(answer.clone()), Some(piece));
                return true;
            }
            Kind::Error { status } => {
                self.ledger.same(piece);
                self.end(world.clone(), Out::Error(status.clone()), Some(piece));
                return true;
            }
            Kind::Abort => {
                self.ledger.changed(piece, "Caddy closes the connection without an answer; Weir answers 403");
                self.end(world.clone(), Out::Abort, Some(piece));
                return true;
            }
            Kind::Closed(why) => self.close(world, why),
            Kind::Vars(vars) => {
                for (name, value) in vars {
                    if name == "root" {
                        world.root = Some(value.clone());
                        self.ledger.same(piece);
                        continue;
                    }
                    match world.text(value) {
                        Ok(template) => {
                            for name in [format!("http.vars.{name}"), format!("vars.{name}")] {
                                world.vars.insert(name, template.clone());
                            }
                            self.ledger.same(piece);
                        }
                        Err(name) => self.lacks(piece, &name),
                    }
                }
            }
            Kind::Filter(filter) => {
                push(world, What::Filters(vec![filter.clone()]));
                match filter.name {
                    "compress" => self.ledger.changed(
                        piece,
                        "Weir asks the upstream for a coding only if the client does, and chooses by media type",
                    ),
                    _ => self.ledger.same(piece),
                }
            }
            Kind::Users { users, realm } => self.users(users, realm.as_deref(), world, piece),
            Kind::Ask(ask) => self.ask(ask, world, piece),
            Kind::Map(table) => self.map(table, world, piece),
            Kind::Files(files) => return self.files(files, world, todo, piece),
            Kind::Proxy(proxy) => return self.proxy(proxy, world, todo, piece),
        }
        false
    }

    pub(super) fn lacks(&mut self, piece: Piece, placeholder: &str) {
        let why = format!("Weir has nothing for {placeholder}");
        self.ledger.refused(piece, why, "docs/reference/filters.md#placeholders");
    }

    pub(super) fn request_fields(&mut self, ops: &[Op], world: &mut World, piece: Piece) {
        let mut headers = Headers::default();
        for op in ops {
            match op {
                Op::Delete(name) => headers.request_remove.push(name.clone()),
                Op::Set(name, value) | Op::Add(name, value) => match world.text(value) {
                    Ok(template) => {
                        let pair = (name.clone(), Value::from(template.to_setting()));
                        match op {
                            Op::Set(..) => headers.request_set.push(pair),
                            _ => headers.request_add.push(pair),
                        }
                    }
                    Err(placeholder) => {
                        self.lacks(piece, &placeholder);
                        // Caddy overwrites what the client sent, so the client's value must not pass either.
                        if matches!(op, Op::Set(..)) {
                            headers.withhold(name);
                        }
                    }
                },
            }
        }
        if let Some(filter) = headers.filter() {
            push(world, What::Filters(vec![filter]));
        }
    }

    /// Without a prefix: only where the path has it. None if no request goes on without it.
    fn strip(
        &mut self,
        prefix: &str,
        mut world: World,
        todo: &List<'a>,
        piece: Piece,
        depth: usize,
    ) -> Option<World> {
        self.ledger.same(piece);
        let prefix = prefix.trim_end_matches('/').to_lowercase();
        if prefix.is_empty() {
            return Some(world);
        }
        let below = match &world.now {
            Now::Same => prefix.clone(),
            Now::Below(outer) => format!("{outer}{prefix}"),
            Now::Is(path) => {
                if let Some(rest) = path.strip_prefix(&prefix).map(str::to_owned) {
                    self.rewrite(
                        &Rewrite::Uri(format!("/{}", rest.trim_start_matches('/'))),
                        &mut world,
                        piece,
                    );
                }
                return Some(world);
            }
            Now::Lost => {
                push(&mut world, What::Path(Filter::new("rewrite", Map::new().with("strip_prefix", prefix))));
                return Some(world);
            }
        };
        let cut = |mut world: World| {
            let rewrite = Map::new().with("strip_prefix", canonical(&prefix));
            push(&mut world, What::Path(Filter::new("rewrite", rewrite)));
            world.now = Now::Below(below.clone());
            world
        };
        match world.path.holds(&Pattern::Prefix(format!("{below}/"))) {
            Holds::Always => Some(cut(world)),
            _ if world.path.holds(&Pattern::Exact(below.clone())) == Holds::Always => {
                self.rewrite(&Rewrite::Uri("/".to_owned()), &mut world, piece);
                Some(world)
            }
            Holds::Never => Some(world),
            Holds::Maybe => {
                if world.path.holds(&Pattern::Prefix(below.clone())) != Holds::Never {
                    let why = "Weir takes whole segments off: `/ax` stays where `/a` is stripped";
                    self.ledger.changed(piece, why);
                }
                let mut exact = world.clone();
                let (path, asked) = world.path.and(&Pattern::Exact(below.clone()));
                exact.path = path;
                exact.when.extend(asked);
                self.rewrite(&Rewrite::Uri("/".to_owned()), &mut exact, piece);
                self.run(todo.clone(), exact, depth + 1);
                let mut within = world.clone();
                let (path, asked) = world.path.and(&Pattern::Prefix(format!("{below}/")));
                within.path = path;
                within.when.extend(asked);
                self.run(todo.clone(), cut(within), depth + 1);
                world.folders.insert(below);
                Some(world)
            }
        }
    }

    fn rewrite(&mut self, rewrite: &Rewrite, world: &mut World, piece: Piece) {
        match rewrite {
            Rewrite::Uri(uri) if uri.contains("{http.matchers.file.relative}") => {
                self.ledger.same(piece);
            }
            Rewrite::Uri(uri) => self.rewrite_uri(uri, world, piece),
            Rewrite::StripPrefix(_) => {}
            Rewrite::Replace(pattern, with) => match super::path::replace(pattern, with) {
                Ok(None) => {
                    self.ledger.by_itself(piece, "Weir merges slashes, unless `slashes: keep` is set")
                }
                Ok(Some(filter)) => {
                    self.ledger.same(piece);
                    world.now = Now::Lost;
                    push(world, What::Path(filter));
                }
                Err(why) => {
                    self.ledger.refused(piece, why, "`rewrite: { replace }`");
                    world.now = Now::Lost;
                    push(world, What::Filters(vec![closed_filter("its path would be another with Caddy.")]));
                }
            },
            Rewrite::Method(_) => {
                let why = "Weir changes no methods";
                self.ledger.refused(piece, why, "an upstream that takes the client's method");
            }
            Rewrite::Other(what) => {
                let why = format!("Weir rewrites no part of a path (`{what}`)");
                self.ledger.refused(piece, why, "a route with a capture, and `rewrite: { path }`");
                world.now = Now::Lost;
                push(world, What::Filters(vec![closed_filter("its path would be another with Caddy.")]));
            }
        }
    }

    pub(super) fn rewrite_uri(&mut self, uri: &str, world: &mut World, piece: Piece) {
        let (path, query) = match uri.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (uri, None),
        };
        let mut settings = Map::new();
        self.ledger.same(piece);
        let ends = ["{uri}", "{path}", "{http.request.uri}", "{http.request.uri.path}"];
        let end = ends.iter().find(|end| path.ends_with(**end)).copied();
        let start = end.map_or(path, |end| &path[..path.len() - end.len()]);
        if path.is_empty() {
            // The query alone.
        } else if !has_placeholder(start) && start.starts_with('/') || start.is_empty() && end.is_some() {
            match end {
                Some(_) if start.trim_end_matches('/').is_empty() => {}
                Some(_) => {
                    settings.set("add_prefix", canonical(start.trim_end_matches('/')));
                    world.now = Now::Lost;
                }
                None => {
                    settings.set("path", canonical(start).replace('{', "{{").replace('}', "}}"));
                    world.now = Now::Is(start.to_lowercase());
                }
            }
        } else {
            match world.text(path) {
                Ok(template) => {
                    settings.set("path", template.to_setting());
                    world.now = Now::Lost;
                }
                Err(placeholder) => {
                    self.lacks(piece, &placeholder);
                    world.now = Now::Lost;
                    push(world, What::Filters(vec![closed_filter("its path would be another with Caddy.")]));
                    return;
                }
            }
        }
        if let Some(query) = query {
            let keeps = ["{query}", "{http.request.uri.query}"];
            let mut set = Map::new();
            let mut kept = false;
            for pair in query.split('&').filter(|pair| !pair.is_empty()) {
                if keeps.contains(&pair) {
                    kept = true;
                    continue;
                }
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                match world.text(value) {
                    Ok(template) if !has_placeholder(name) => set.set(name, template.to_setting()),
                    Ok(_) => self.lacks(piece, name),
                    Err(placeholder) => self.lacks(piece, &placeholder),
                }
            }
            if !kept {
                let why = "Caddy drops the client's query; Weir keeps its other parameters (`rewrite.query.remove`)";
                self.ledger.changed(piece, why);
            }
            if !set.is_empty() {
                settings.set("query", Map::new().with("set", set));
            }
        }
        if !settings.is_empty() {
            push(world, What::Path(Filter::new("rewrite", settings)));
        }
    }

    fn users(&mut self, users: &[(String, String)], realm: Option<&str>, world: &mut World, piece: Piece) {
        let mut names = Vec::new();
        for (user, hash) in users {
            let is_known = ["$2a$", "$2b$", "$2y$", "$argon2id$"].iter().any(|start| hash.starts_with(start))
                || hash.contains(crate::yaml::VARIABLE_BEGIN);
            let twice = self.users.keys().any(|(known, other)| known == user && other != hash);
            if !is_known || twice {
                let why = match is_known {
                    true => format!("{user} has another password at another place"),
                    false => format!("the hash of {user} is neither bcrypt nor argon2id"),
                };
                self.ledger.refused(piece, why.clone(), "`weir hash --user USER` makes a hash");
                return self.close(world, &why);
            }
            let key = (user.clone(), hash.clone());
            if let Some(name) = self.users.get(&key) {
                names.push(name.clone());
                continue;
            }
            let secret = if hash.contains(crate::yaml::VARIABLE_BEGIN) {
                Value::from(format!("{user}:{hash}"))
            } else {
                self.config.secret(&format!("basic_auth_{user}"), &format!("{user}:{hash}"))
            };
            let name = self.config.consumers.add(user, Map::new().with("basic_auth", vec![secret]));
            self.users.insert(key, name.clone());
            names.push(name);
        }
        if names.is_empty() {
            return self.close(world, "nobody may pass");
        }
        let settings = Map::new().with("realm", realm.unwrap_or("restricted")).with("hide", false);
        let filters =
            vec![Filter::new("basic_auth", settings), Filter::new("acl", Map::new().with("allow", names))];
        push(world, What::Filters(filters));
        self.ledger.same(piece);
    }

    fn ask(&mut self, ask: &super::model::Ask, world: &mut World, piece: Piece) {
        if let Some(why) = &ask.proxy.closed {
            return self.close(world, why);
        }
        if has_placeholder(&ask.uri) || !ask.uri.starts_with('/') && !ask.uri.is_empty() {
            let why = format!("the path of the question, `{}`, is not fixed", ask.uri);
            self.ledger.refused(piece, why.clone(), "`forward_auth.path`");
            return self.close(world, &why);
        }
        let upstream = self.upstream(&ask.proxy);
        let mut settings = Map::new().with("upstream", upstream);
        settings.set_some("path", Some(ask.uri.clone()).filter(|uri| !uri.is_empty()));
        let names: Vec<String> = ask.copy.iter().map(|(from, _)| from.clone()).collect();
        if !names.is_empty() {
            settings.set("copy", names);
        }
        settings.set("copy_request", "all");
        let mut set = Map::new();
        for op in &ask.proxy.request {
            match op {
                // Weir tells the service the same in these fields.
                Op::Set(name, _) | Op::Add(name, _)
                    if ["x-forwarded-method", "x-forwarded-uri"].contains(&&*name.to_ascii_lowercase()) => {}
                Op::Set(name, value) | Op::Add(name, value) => match world.text(value) {
                    Ok(template) => set.set(name.to_ascii_lowercase(), template.to_setting()),
                    Err(placeholder) => self.lacks(piece, &placeholder),
                },
                Op::Delete(name) => {
                    let why = format!("the question has all fields of the request, `{name}` too");
                    self.ledger.refused(piece, why.clone(), "`forward_auth.copy_request`: a list of fields");
                    return self.close(world, &why);
                }
            }
        }
        if !set.is_empty() {
            settings.set("set", set);
        }
        let mut filters = vec![Filter::new("forward_auth", settings)];
        let mut headers = Headers::default();
        for (from, to) in ask.copy.iter().filter(|(from, to)| from != to) {
            let value = Expression::of("request.headers", from);
            headers.request_set.push((to.clone(), format!("{{= {} }}", value.as_str()).into()));
        }
        filters.extend(headers.filter());
        push(world, What::Filters(filters));
        let why = "of a refusal Weir passes on the body and the fields that matter, not all fields";
        self.ledger.changed(piece, why);
    }

    fn map(&mut self, table: &super::model::Table, world: &mut World, piece: Piece) {
        let source = match world.text(&table.source) {
            Ok(template) => template,
            Err(placeholder) => return self.lacks(piece, &placeholder),
        };
        let of = source.parts().iter().map(|part| match part {
            Part::Text(text) => Some(Expression::text(text)),
            Part::Value(expression) => Some(expression.clone()),
            Part::Placeholder(name) => super::text::expression(name, &world.scope()),
        });
        let of: Option<Vec<Expression>> = of.collect();
        let Some(of) = of.and_then(|parts| parts.into_iter().reduce(Expression::plus)) else {
            return self.lacks(piece, &table.source);
        };
        self.ledger.same(piece);
        for (at, destination) in table.destinations.iter().enumerate() {
            let mut values = Map::new();
            for (key, outputs) in &table.rows {
                let Some(output) = outputs.get(at).filter(|output| *output != "-") else { continue };
                if output.contains("${") || has_placeholder(output) {
                    let why = format!("a value of a map is a fixed text, not `{output}`");
                    self.ledger.refused(piece, why, "an expression where the value is used");
                    continue;
                }
                let key = match key.strip_prefix('~') {
                    // Caddy compares the whole text; for Weir, a `*` at the end means any rest.
                    None if key.ends_with('*') => format!("~{}", crate::shared::regex::literal(key)),
                    None => key.clone(),
                    Some(pattern) => {
                        use crate::shared::regex::{Searching, Subject};
                        match Searching::read(pattern, false, Subject::Text) {
                            Ok(regex) => format!("~{}", regex.whole()),
                            Err(why) => {
                                self.ledger.refused(piece, why, "`maps.NAME.values`");
                                continue;
                            }
                        }
                    }
                };
                values.set(key, output.clone());
            }
            let mut map = Map::new().with("of", of.as_str()).with("values", values);
            map.set_some("default", table.defaults.get(at).filter(|default| *default != "-").cloned());
            let known =
                self.config.maps.iter().find(|(_, known)| **known == map).map(|(name, _)| name.to_owned());
            let name = known.unwrap_or_else(|| {
                // A name that expressions may write.
                let wish: String =
                    destination.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
                let numbered = (2..).map(|number| format!("{wish}_{number}"));
                let free = std::iter::once(wish.clone())
                    .chain(numbered)
                    .find(|name| self.config.maps.get(name).is_none());
                self.config.maps.add(&free.unwrap_or(wish), map)
            });
            let mut template = Template::default();
            template.push(Part::Value(Expression::raw(format!("maps.{name}"))));
            world.vars.insert(destination.clone(), template);
        }
    }
}

/// 503, because a guard or a path is missing.
pub(super) fn closed_filter(why: &str) -> Filter {
    let body = "This route is closed: a line of its old config was not imported.\n".to_owned();
    Filter::new("respond", respond(503, Some(body), None))
        .because("CLOSED until you have decided; then take out this filter:")
        .because(why.to_owned())
}

pub(super) fn push(world: &mut World, what: What) {
    let now = world.now.clone();
    world.steps.push(Step { sets: Vec::new(), now, what });
}

/// The files that `try_files` looks for, if the route is one.
fn tries(route: &Route) -> Option<&[String]> {
    let [set] = &*route.sets else { return None };
    let [Matcher::File(test)] = &**set else { return None };
    let rewrites = route.handlers.iter().all(|handler| {
        matches!(&handler.kind, Kind::Rewrite(Rewrite::Uri(uri)) if uri.contains("{http.matchers.file.relative}"))
    });
    (rewrites && !route.handlers.is_empty() && !test.splits).then_some(&test.tries)
}

/// Whether a handler never answers for good and changes no path, so that it can run under a condition.
pub(super) fn is_filter(kind: &Kind) -> bool {
    match kind {
        Kind::Headers(_) | Kind::Filter(_) | Kind::Users { .. } | Kind::Ask(_) | Kind::Nothing => true,
        Kind::Vars(vars) => vars.is_empty(),
        _ => false,
    }
}
