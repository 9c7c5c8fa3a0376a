//! The directives of a Caddyfile as routes with matchers and handlers.

mod answer;
mod proxy;

use super::matchers::{Named, define, token};
use super::model::{Answer, Handler, Kind, Matcher, Ops, Rewrite, Route, Set, Table};
use super::order::{Item, Order};
use super::syntax::Segment;
use super::values::{decoded, op, op_refusal, size_of, withheld};
use super::verdicts::Judged;
use crate::config::Filter;
use crate::ledger::Ledger;
use crate::shared::units;
use crate::yaml::Map;
use std::collections::BTreeMap;

/// Directives that belong to a site and not to its routes.
pub(super) const OF_SITES: &[&str] = &["bind", "handle_errors", "log", "tls"];
/// Directives of Caddy 1, which Caddy 2 refuses.
const VERSION_1: &[&str] = &[
    "browse",
    "errors",
    "ext",
    "fastcgi",
    "gzip",
    "hidden",
    "internal",
    "limits",
    "markdown",
    "mime",
    "on",
    "pprof",
    "proxy",
    "realip",
    "shutdown",
    "startup",
    "status",
    "timeouts",
    "websocket",
];

/// What directives of one config share.
pub(super) struct Adapter<'a> {
    pub(super) ledger: &'a mut Ledger,
    pub(super) order: &'a Order,
    pub(super) named: &'a BTreeMap<String, Segment>,
    /// Numbers groups.
    pub(super) groups: usize,
    /// How deep named routes call one another.
    pub(super) depth: usize,
}

impl Adapter<'_> {
    /// The routes of a block. `as_written`: of `route`, which keeps the order of the file.
    pub(super) fn routes(&mut self, segments: &[Segment], named: &Named, as_written: bool) -> Vec<Route> {
        let mut named = named.clone();
        for segment in segments.iter().filter(|segment| segment.name().starts_with('@')) {
            define(segment, &mut named, self.ledger);
        }
        let mut items = Vec::new();
        for segment in segments {
            let name = segment.name();
            if name.starts_with('@') || OF_SITES.contains(&name) {
                continue;
            }
            let directive = match name {
                "handle_path" => "handle",
                name => name,
            };
            for route in self.directive(segment, &named) {
                items.push(Item { directive: directive.to_owned(), route });
            }
        }
        let items = if as_written { items } else { self.order.sort(items) };
        self.groups += 1;
        let group = self.groups;
        items
            .into_iter()
            .map(|Item { directive, mut route }| {
                if matches!(&*directive, "handle" | "rewrite" | "root") && !as_written
                    || directive == "handle"
                {
                    route.group.get_or_insert_with(|| format!("{directive} {group}"));
                }
                route
            })
            .collect()
    }

    fn directive(&mut self, segment: &Segment, named: &Named) -> Vec<Route> {
        let piece = segment.piece;
        let name = segment.name();
        let mut args = segment.args();
        // With one word, it is what the directive needs; newer versions of Caddy see it so too.
        let keeps_only_word = matches!(name, "root" | "rewrite") && args.len() == 1 && args[0] != "*";
        let takes_matcher = name != "try_files" && !keeps_only_word;
        let mut sets: Vec<Set> = Vec::new();
        if takes_matcher && let Some(first) = args.first().filter(|_| !segment.words[1].is_quoted) {
            match token(first, named) {
                Some(Ok(set)) => {
                    sets.extend(set);
                    args.remove(0);
                }
                Some(Err(why)) => {
                    self.ledger.refused(piece, why.clone(), "define it, or take the line out");
                    sets.push(vec![Matcher::Unknown(why)]);
                    args.remove(0);
                }
                None => {}
            }
        }
        if name == "try_files" {
            return self.try_files(segment, &args);
        }
        let kinds = self.kinds(segment, &args, named);
        let mut routes = Vec::new();
        for kind in kinds {
            let handler = Handler { kind, piece };
            routes.push(Route {
                sets: sets.clone(),
                group: None,
                is_terminal: false,
                handlers: vec![handler],
                pieces: vec![piece],
            });
        }
        if name == "handle_path" {
            for route in &mut routes {
                let strip = route.sets.first().and_then(|set| match set.first() {
                    Some(Matcher::Path(paths)) => paths.first(),
                    _ => None,
                });
                let prefix = strip.map(|path| path.trim_end_matches('*').trim_end_matches('/').to_owned());
                if let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) {
                    let kind = Kind::Rewrite(Rewrite::StripPrefix(prefix));
                    route.handlers.insert(0, Handler { kind, piece });
                }
            }
        }
        routes
    }

    /// What a directive does, most as one handler.
    fn kinds(&mut self, segment: &Segment, args: &[&str], named: &Named) -> Vec<Kind> {
        let piece = segment.piece;
        let text = |at: usize| args.get(at).map_or_else(String::new, |arg| (*arg).to_owned());
        let one = |kind: Kind| vec![kind];
        match segment.name() {
            "handle" | "handle_path" => one(Kind::Subroute(self.routes(segment.inner(), named, false))),
            "route" => one(Kind::Subroute(self.routes(segment.inner(), named, true))),
            "invoke" => self.invoke(segment, args),
            "root" => one(Kind::Vars(vec![("root".to_owned(), text(0))])),
            "vars" => {
                let mut vars: Vec<(String, String)> = Vec::new();
                if let [name, value] = args {
                    vars.push(((*name).to_owned(), (*value).to_owned()));
                }
                for line in segment.inner() {
                    self.ledger.same(line.piece);
                    vars.push((
                        line.name().to_owned(),
                        line.args().first().copied().unwrap_or_default().to_owned(),
                    ));
                }
                one(Kind::Vars(vars))
            }
            "map" => one(self.map(segment, args)),
            "header" => self.header(segment, args),
            "request_header" => {
                let ops = Ops { request: op(args).into_iter().collect(), ..Ops::default() };
                match op_refusal(args) {
                    Some(why) => {
                        self.ledger.refused(piece, why, "`headers.request.set` with an expression");
                        let request = withheld(args).into_iter().collect();
                        one(Kind::Headers(Ops { request, ..Ops::default() }))
                    }
                    None => one(Kind::Headers(ops)),
                }
            }
            "request_body" => self.request_body(segment),
            "redir" => one(self.redir(segment, args)),
            "method" => one(Kind::Rewrite(Rewrite::Method(text(0)))),
            "rewrite" => one(Kind::Rewrite(Rewrite::Uri(text(0)))),
            "uri" => one(Kind::Rewrite(match args {
                ["strip_prefix", prefix] => Rewrite::StripPrefix(format!("/{}", prefix.trim_matches('/'))),
                ["path_regexp", pattern, with] => Rewrite::Replace((*pattern).to_owned(), (*with).to_owned()),
                _ => Rewrite::Other(args.first().copied().unwrap_or_default().to_owned()),
            })),
            "basicauth" | "basic_auth" => one(self.users(segment, args)),
            "forward_auth" => one(self.forward_auth(segment, args)),
            "encode" => one(self.encode(segment, args)),
            "respond" => one(self.respond(segment, args)),
            "error" => {
                let is_status = |word: &str| word.len() == 3 && word.bytes().all(|b| b.is_ascii_digit());
                let status = args.iter().rev().find(|arg| is_status(arg)).copied().unwrap_or("500");
                segment.inner().iter().for_each(|line| self.ledger.same(line.piece));
                one(Kind::Error { status: status.to_owned() })
            }
            "abort" => one(Kind::Abort),
            "reverse_proxy" => one(self.proxy(segment, args)),
            "php_fastcgi" => one(self.php(segment, args)),
            "file_server" => one(self.files(segment, args)),
            "metrics" => {
                let nearest = "`/metrics` of the admin listener";
                self.ledger.refused(piece, "Weir has its metrics at another address", nearest);
                closed_answer("metrics are at the admin listener")
            }
            "acme_server" => {
                self.below(segment, |_, _| Judged::Same);
                let why = "Weir is no certificate authority";
                self.ledger.refused(piece, why, "an authority beside it, such as step-ca");
                closed_answer(why)
            }
            "templates" => {
                self.below(segment, |_, _| Judged::Same);
                let why = "Weir executes no templates: files are sent as they are";
                self.ledger.refused(piece, why, "a server for these pages, as an upstream");
                one(Kind::Closed(why.to_owned()))
            }
            "skip_log" | "log_skip" | "log_append" | "log_name" => {
                let why = "Weir has one access log for all routes";
                self.ledger
                    .changed(piece, format!("{why}: `access_log.when` chooses lines, `fields` adds to them"));
                one(Kind::Nothing)
            }
            "tracing" => {
                self.below(segment, |_, _| Judged::left_out("Weir names spans after routes"));
                self.ledger.refused(piece, "Weir must be told where traces go", "`tracing: { otlp: … }`");
                one(Kind::Nothing)
            }
            "push" => {
                self.below(segment, |_, _| Judged::left_out("browsers have dropped HTTP/2 push"));
                self.ledger.left_out(piece, "browsers have dropped HTTP/2 push");
                one(Kind::Nothing)
            }
            "intercept" => {
                self.refuse_below(segment);
                let why = "Weir does not change answers of upstreams by routes of their own";
                self.ledger.refused(piece, why, "the filter `errors` with `upstream`");
                one(Kind::Nothing)
            }
            "fs" | "copy_response" | "copy_response_headers" => {
                self.refuse_below(segment);
                let why = format!("Weir has nothing like `{}`", segment.name());
                self.ledger.refused(piece, why.clone(), "`files`, or an upstream");
                one(Kind::Closed(why))
            }
            name => {
                self.refuse_below(segment);
                let why = if VERSION_1.contains(&name) {
                    format!("`{name}` is of Caddy 1; Caddy 2 refuses it")
                } else if name.contains(crate::yaml::VARIABLE_BEGIN) {
                    "the environment decides what stands here".to_owned()
                } else if self.order.knows(name) {
                    format!("`{name}` is of a plugin that Weir does not know")
                } else {
                    format!("Weir knows no directive `{name}`")
                };
                if !VERSION_1.contains(&name) {
                    conceal(segment, self.ledger);
                }
                self.ledger.refused(piece, why.clone(), "docs/reference/filters.md");
                one(Kind::Closed(why))
            }
        }
    }

    /// Judges the lines of a block.
    fn below(&mut self, segment: &Segment, mut judge: impl FnMut(&str, &[String]) -> Judged) {
        for line in segment.inner() {
            let args: Vec<String> = line.args().iter().map(|arg| (*arg).to_owned()).collect();
            judge(line.name(), &args).enter(line.piece, self.ledger);
            self.refuse_below(line);
        }
    }

    /// Refuses the lines of a block that nobody understands.
    fn refuse_below(&mut self, segment: &Segment) {
        for line in segment.inner() {
            self.ledger.refused(line.piece, "it belongs to a line that Weir refuses", "");
            self.refuse_below(line);
        }
    }

    fn invoke(&mut self, segment: &Segment, args: &[&str]) -> Vec<Kind> {
        let known = self.named;
        let route = args.first().and_then(|name| known.get(*name));
        match route.filter(|_| self.depth < 10) {
            Some(route) => {
                self.depth += 1;
                let routes = self.routes(route.inner(), &Named::new(), false);
                self.depth -= 1;
                vec![Kind::Subroute(routes)]
            }
            None => {
                let why = format!("no route is called `{}`", args.first().copied().unwrap_or_default());
                self.ledger.refused(segment.piece, why.clone(), "define it with &(name)");
                vec![Kind::Closed(why)]
            }
        }
    }

    fn map(&mut self, segment: &Segment, args: &[&str]) -> Kind {
        let name = |arg: &str| arg.trim_matches(['{', '}']).to_owned();
        let mut table = Table {
            source: args.first().copied().unwrap_or_default().to_owned(),
            destinations: args.iter().skip(1).map(|arg| name(arg)).collect(),
            ..Table::default()
        };
        for line in segment.inner() {
            let values: Vec<String> = line.args().iter().map(|arg| (*arg).to_owned()).collect();
            self.ledger.same(line.piece);
            match line.name() {
                "default" => table.defaults = values,
                key => table.rows.push((key.to_owned(), values)),
            }
        }
        Kind::Map(table)
    }

    fn request_body(&mut self, segment: &Segment) -> Vec<Kind> {
        let mut kinds = Vec::new();
        for line in segment.inner() {
            let args = line.args();
            match (line.name(), &*args) {
                ("max_size", [size]) => match size_of(size) {
                    Some(bytes) => {
                        self.ledger.same(line.piece);
                        let max = Map::new().with("max", units::size(bytes));
                        kinds.push(Kind::Filter(Filter::new("body_limit", max)));
                    }
                    None => self.ledger.refused(line.piece, "no size", "a size such as 10MB"),
                },
                (name, _) => {
                    let why = format!("Weir knows no `{name}` of request_body");
                    self.ledger.refused(line.piece, why, "`listeners.NAME.timeouts`, or the filter `buffer`");
                }
            }
        }
        if kinds.is_empty() {
            kinds.push(Kind::Nothing);
        }
        kinds
    }

    fn users(&mut self, segment: &Segment, args: &[&str]) -> Kind {
        let algorithm = args.first().copied().unwrap_or("bcrypt");
        if !matches!(algorithm, "bcrypt" | "argon2id") {
            let why = format!("Weir reads no hashes of {algorithm}");
            self.ledger.refused(segment.piece, why.clone(), "new hashes by `weir hash --user USER`");
            self.refuse_below(segment);
            return Kind::Closed(why);
        }
        let mut users = Vec::new();
        for line in segment.inner() {
            let hash = line.args().first().copied().unwrap_or_default().to_owned();
            self.ledger.conceal(line.piece);
            self.ledger.same(line.piece);
            users.push((line.name().to_owned(), decoded(&hash)));
        }
        Kind::Users { users, realm: args.get(1).map(|realm| (*realm).to_owned()) }
    }
}

/// A closed handler that would have answered: nothing behind it may take its requests once it is opened.
fn closed_answer(why: &str) -> Vec<Kind> {
    let not_found = Answer { status: "404".to_owned(), ..Answer::default() };
    vec![Kind::Closed(why.to_owned()), Kind::Respond(not_found)]
}

/// Hides the arguments of unknown directives, because they may be secrets.
fn conceal(segment: &Segment, ledger: &mut Ledger) {
    if segment.words.len() > 1 {
        ledger.conceal(segment.piece);
    }
    segment.inner().iter().for_each(|line| conceal(line, ledger));
}
