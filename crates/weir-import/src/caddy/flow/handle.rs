//! What each handler does to a branch.

use super::super::model::{Handler, Kind, Op, Rewrite};
use super::super::path::{Holds, Pattern};
use super::super::text::has_placeholder;
use super::super::world::{Now, What, World};
use super::{Flow, List, Out, closed_filter, push};
use crate::config::Filter;
use crate::ledger::Piece;
use crate::shared::expression::Expression;
use crate::shared::filters::Headers;
use crate::shared::path::canonical;
use crate::shared::template::{Part, Template};
use crate::yaml::{Map, Value};

impl<'a> Flow<'a> {
    /// Does what a handler does. Whether it answers.
    pub(super) fn handle(&mut self, handler: &'a Handler, world: &mut World, todo: &mut List<'a>) -> bool {
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

    pub(in crate::caddy) fn lacks(&mut self, piece: Piece, placeholder: &str) {
        let why = format!("Weir has nothing for {placeholder}");
        self.ledger.refused(piece, why, "docs/reference/filters.md#placeholders");
    }

    pub(in crate::caddy) fn request_fields(&mut self, ops: &[Op], world: &mut World, piece: Piece) {
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
    pub(super) fn strip(
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
            Rewrite::Replace(pattern, with) => match super::super::path::replace(pattern, with) {
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

    pub(in crate::caddy) fn rewrite_uri(&mut self, uri: &str, world: &mut World, piece: Piece) {
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

    fn ask(&mut self, ask: &super::super::model::Ask, world: &mut World, piece: Piece) {
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

    fn map(&mut self, table: &super::super::model::Table, world: &mut World, piece: Piece) {
        let source = match world.text(&table.source) {
            Ok(template) => template,
            Err(placeholder) => return self.lacks(piece, &placeholder),
        };
        let of = source.parts().iter().map(|part| match part {
            Part::Text(text) => Some(Expression::text(text)),
            Part::Value(expression) => Some(expression.clone()),
            Part::Placeholder(name) => super::super::text::expression(name, &world.scope()),
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
