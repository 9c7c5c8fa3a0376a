//! Follows Caddy's routes for all requests at once, and finds each way that one can take through them.
//!
//! Caddy runs handlers one after another until one answers; a matcher before each says whether it runs. Weir takes one
//! route for a request. So each way to an answer becomes a route: its conditions are those of the matchers on the way,
//! its filters the handlers on the way. The ways are listed so that of two that match one request, the first is right.

mod handle;

use super::model::{Answer, Handler, Kind, Matcher, Op, Rewrite, Route};
use super::path::{Holds, Pattern};
use super::world::{Now, Step, What, World};
use crate::config::{Config, Filter, Upstream};
use crate::ledger::{Ledger, Piece};
use crate::shared::filters::respond;
use crate::yaml::Map;
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
        // A condition that cannot be expressed is refused here, before a filter relies on it.
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
