//! What answers at the end of a way: files, proxies and scripts.

use super::flow::{Flow, List, Out, Todo, is_filter, push};
use super::model::{FileTest, Files, Kind, Proxy, Route};
use super::path::Holds;
use super::text::has_placeholder;
use super::world::{What, World};
use crate::config::Filter;
use crate::ledger::Piece;
use crate::yaml::Map;

impl<'a> Flow<'a> {
    /// The name of an upstream, made if no equal one is there.
    pub(super) fn upstream(&mut self, proxy: &Proxy) -> String {
        if let Some((_, name)) = self.upstreams.iter().find(|(known, _)| *known == proxy.upstream) {
            return name.clone();
        }
        let wish = if proxy.name.is_empty() { "upstream" } else { &proxy.name };
        let name = self.config.upstreams.add(wish, proxy.upstream.clone());
        self.upstreams.push((proxy.upstream.clone(), name.clone()));
        name
    }

    pub(super) fn try_files(&mut self, route: &Route, tries: &[String], world: &mut World, _todo: &List<'a>) {
        for piece in &route.pieces {
            self.ledger.same(*piece);
        }
        world.tries = Some(tries.to_vec());
    }

    pub(super) fn root(&mut self, world: &World, own: Option<&str>) -> Result<String, String> {
        let root = own.or(world.root.as_deref()).unwrap_or(".");
        let root = match &*world.hosts {
            [host] if !host.contains('*') => {
                root.replace("{host}", host).replace("{http.request.host}", host)
            }
            _ => root.to_owned(),
        };
        if has_placeholder(&root) {
            return Err(format!("the folder `{root}` depends on the request"));
        }
        Ok(root)
    }

    pub(super) fn files(
        &mut self,
        files: &Files,
        world: &mut World,
        todo: &mut List<'a>,
        piece: Piece,
    ) -> bool {
        self.ledger.same(piece);
        let map = match self.files_map(files, world, piece) {
            Ok(map) => map,
            Err(why) => {
                self.ledger.refused(piece, why.clone(), "a route for each folder");
                return self.closed(world, &why, piece);
            }
        };
        if files.passes_on && todo.0.is_some() {
            let mut exists = world.clone();
            let test = FileTest { tries: vec!["{path}".to_owned()], ..Default::default() };
            exists.file = Some((test.clone(), true));
            self.end(exists, Out::Files(map), Some(piece));
            world.file = Some((test, false));
            return false;
        }
        self.end(world.clone(), Out::Files(map), Some(piece));
        true
    }

    /// The settings of `files`, with what `try_files` said.
    pub(super) fn files_map(&mut self, files: &Files, world: &World, piece: Piece) -> Result<Map, String> {
        let root = self.root(world, files.root.as_deref())?;
        let mut map = Map::new().with("root", root);
        for (key, value) in files.settings.iter() {
            map.set(key, value.clone());
        }
        if map.get("index").is_none() {
            // Caddy's default.
            map.set("index", vec!["index.html", "index.txt"]);
        }
        let mut others = Vec::new();
        for tried in world.tries.iter().flatten() {
            let tried = tried.replace("{http.request.uri.path}", "{path}");
            if matches!(&*tried, "{path}" | "{path}/" | "=404" | "{path}/index.html" | "{file}") {
                continue;
            }
            others.push(tried);
        }
        if others.len() > 1
            || others.first().is_some_and(|other| has_placeholder(other) || other.starts_with('='))
        {
            let why = format!(
                "Weir looks for the file of the path and for one other, not for `{}`",
                others.join("`, `")
            );
            self.ledger.refused(piece, why, "`files.fallback`");
            others.retain(|other| !has_placeholder(other) && !other.starts_with('='));
        }
        if let Some(other) = others.pop() {
            map.set("fallback", format!("/{}", other.trim_start_matches('/')));
            let why =
                "the fallback does not answer for paths that end like a script, a style sheet or a picture";
            self.ledger.changed(piece, why);
        }
        Ok(map)
    }

    pub(super) fn proxy(
        &mut self,
        proxy: &Proxy,
        world: &mut World,
        todo: &mut List<'a>,
        piece: Piece,
    ) -> bool {
        if let Some(why) = &proxy.closed {
            if proxy.upstream.endpoints.is_empty() {
                return self.closed(world, why, piece);
            }
            self.close(world, why);
        }
        self.ledger.same(piece);
        if world.tries.is_some() && !proxy.fastcgi.as_ref().is_some_and(|fastcgi| fastcgi.is_idiom) {
            let why = "`try_files` before a proxy changes the path by files that exist";
            self.ledger.refused(piece, why, "`files` with `missing`");
            self.close(world, why);
        }
        for filter in &proxy.filters {
            push(world, What::Filters(vec![filter.clone()]));
        }
        if let Some(uri) = &proxy.rewrite {
            self.rewrite_uri(uri, world, piece);
        }
        self.request_fields(&proxy.request, world, piece);
        if let Some(host) = &proxy.host {
            match world.text(host) {
                Ok(template) => {
                    let rewrite = Map::new().with("host", template.to_setting());
                    push(world, What::Filters(vec![Filter::new("rewrite", rewrite)]));
                }
                Err(placeholder) => {
                    self.lacks(piece, &placeholder);
                    self.close(world, "the Host of the upstream is not known");
                }
            }
        }
        let name = self.upstream(proxy);
        let response = proxy.response.clone();
        let Some(fastcgi) = &proxy.fastcgi else {
            self.end(world.clone(), Out::Upstream { name, response }, Some(piece));
            return true;
        };
        let mut files = None;
        if fastcgi.is_idiom {
            files = self.behind(world, todo.clone());
            match &files {
                Some(_) => {}
                None => self.ledger.changed(
                    piece,
                    "files that are no scripts go to the script too, for lack of a file_server",
                ),
            }
        }
        let files = match files {
            Some((own, at)) => match self.files_map(&own, world, at) {
                Ok(map) => Some(map),
                Err(why) => return self.closed(world, &why, piece),
            },
            None => None,
        };
        let seen = match self.root(world, fastcgi.root.as_deref()) {
            Ok(root) => root,
            Err(why) => {
                self.ledger.refused(piece, why.clone(), "a route for each folder");
                return self.closed(world, &why, piece);
            }
        };
        let mut map = Map::new().with("root", seen.clone());
        if fastcgi.root.is_some() && fastcgi.root != world.root {
            map.set("root_remote", true);
            self.ledger.changed(piece, "Weir cannot see the scripts there, so it runs what the path names");
        }
        if let Some(index) = fastcgi.index.as_ref().filter(|index| *index != "index.php") {
            map.set("index", if index == "off" { "index.php".to_owned() } else { index.clone() });
            if index == "off" {
                self.ledger.changed(piece, "Weir runs index.php for a folder and for paths without a script");
            }
        }
        map.set_some("split", fastcgi.split.clone().filter(|split| split != ".php"));
        if !fastcgi.env.is_empty() {
            let mut params = Map::new();
            fastcgi.env.iter().for_each(|(name, value)| params.set(name.clone(), value.clone()));
            map.set("params", params);
        }
        if let Some(tries) = &fastcgi.tries {
            let usual = |tried: &String| {
                matches!(&**tried, "{path}" | "{path}/index.php" | "index.php" | "/index.php")
            };
            if !tries.iter().all(usual) {
                let why = format!(
                    "Weir looks for the script of the path, then for the index: not for `{}`",
                    tries.join(" ")
                );
                self.ledger.refused(piece, why, "`fastcgi.index`");
            }
        }
        // Its own `missing` is the upstream, so a fallback has no place.
        let files = files.map(|mut files| {
            files.remove("fallback");
            files
        });
        self.end(world.clone(), Out::FastCgi { name, fastcgi: map, files, response }, Some(piece));
        true
    }

    /// The file server that takes what `php_fastcgi` leaves, if the next terminal handler is one.
    pub(super) fn behind(&mut self, world: &World, mut todo: List<'a>) -> Option<(Files, Piece)> {
        while let Some(next) = todo.pop() {
            match next {
                Todo::Route(route) => match world.any(&route.sets, &world.now) {
                    Holds::Always => {
                        self.visited.extend(route.pieces.iter().copied());
                        todo = todo.before(route.handlers.iter().map(Todo::Handler));
                    }
                    Holds::Never => {}
                    Holds::Maybe => return None,
                },
                Todo::Handler(handler) => match &handler.kind {
                    Kind::Files(files) => {
                        self.visited.insert(handler.piece);
                        self.ledger.same(handler.piece);
                        return Some((files.clone(), handler.piece));
                    }
                    Kind::Subroute(routes) => todo = todo.before(routes.iter().map(Todo::Route)),
                    kind if is_filter(kind) => {}
                    _ => return None,
                },
            }
        }
        None
    }
}
