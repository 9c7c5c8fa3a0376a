//! What a location does: its filters in nginx's order, and its target.

use super::access::{guards, is_internal};
use super::bodies::{mirror, replace};
use super::cache::cache;
use super::context::{Cx, Scope};
use super::cookies::cookies;
use super::errors::errors;
use super::fields::response_fields;
use super::files::{Folder, Last, Tried, folder, scripts, tried};
use super::location::{Location, find, named};
use super::proxy::proxied;
use super::read::Directive;
use super::rewrite::{Answer, Apart, Rewritten, Search, run};
use super::site::Site;
use super::variables::auth_request_set;
use crate::config::{Filter, Target};
use crate::shared::expression::Expression;
use crate::shared::filters::{body_limit, when};
use crate::shared::units::{read_size, size};
use crate::yaml::{Map, Value};

/// nginx's own limit of request bodies.
const BODY: u64 = 1 << 20;

/// Who comes to a location.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Reached {
    ByClients,
    /// Requests that a `rewrite … last` sends there, to internal ones too.
    ByRewrite,
}

/// What a location does.
#[derive(Default)]
pub(super) struct Action {
    /// In the order in which they run.
    pub(super) filters: Vec<Filter>,
    pub(super) target: Option<Target>,
    /// Routes beside this one.
    pub(super) apart: Vec<Apart>,
    /// The place of a changed path among the filters, for routes beside this one.
    pub(super) rewrite_at: usize,
    /// Guards that could not be translated: requests must not pass.
    pub(super) closed: Vec<String>,
    /// Most bytes of a request body, where it goes to an upstream.
    pub(super) body: Option<u64>,
    pub(super) comment: Vec<String>,
    /// Where all its requests go instead, and what stands before.
    pub(super) search: Option<(Search, Vec<Filter>)>,
}

/// Translates a location.
pub(super) fn action<'a>(
    cx: &mut Cx<'a, '_>,
    site: &Site<'_, 'a>,
    location: &Location<'a>,
    reached: Reached,
) -> Action {
    let mut scope = site.scope(location);
    let mut action = Action::default();
    if let Some(why) = &location.closed {
        action.closed.push(why.clone());
        return action;
    }
    if is_internal(cx, &scope, &location.kind) && reached == Reached::ByClients {
        action.comment.push("internal: no client reaches it".to_owned());
        action.filters.extend(errors(cx, site, &scope, Some(404)));
        action.target = Some(Target::Respond(Map::new().with("status", 404_u16)));
        // What nginx does there is judged where something leads to it.
        return action;
    }
    // The server's own rewrites stand before all of its locations: see translate.rs.
    let mut rewritten = Default::default();
    if location.directive.is_some() {
        let own = scope.block.all().to_vec();
        rewritten = run(cx, site, &mut scope, &own, Some(location));
    }
    let Rewritten { filters: early, answer, apart, closed, own_fields, .. } = rewritten;
    action.closed.extend(closed);
    action.apart = apart;
    if let Some(Answer::Search(search)) = answer {
        action.search = Some((search, early));
        return action;
    }
    if let Some(answer) = answer {
        // nginx runs `return` before guards and limits. If it has a text, no error page replaces that.
        let status = match &answer {
            Answer::Respond(map) if map.get("body").is_none() => match map.get("status") {
                Some(Value::Number(status)) => u16::try_from(*status).ok(),
                _ => None,
            },
            _ => None,
        };
        if status.is_some_and(|status| status >= 400) {
            action.filters.extend(errors(cx, site, &scope, status));
        }
        action.filters.extend(unless(&own_fields, response_fields(cx, &scope, false)));
        action.filters.extend(early);
        never_reached(cx, &scope);
        logging(cx, &scope);
        match answer {
            Answer::Redirect(filter) => action.filters.push(filter),
            Answer::Respond(map) => action.target = Some(Target::Respond(map)),
            Answer::Search(_) => {}
        }
        return action;
    }
    auth_request_set(cx, &mut scope);
    let (answers, early) = before_guards(early);
    let is_proxied = content(cx, site, &mut scope, &mut action, early);
    let guards = guards(cx, site, &scope);
    action.closed.extend(guards.closed);
    if guards.is_denied {
        action.filters = errors(cx, site, &scope, Some(403)).into_iter().collect();
        action.target = Some(Target::Respond(Map::new().with("status", 403_u16)));
        action.filters.extend(unless(&own_fields, response_fields(cx, &scope, false)));
        action.filters.extend(answers);
        action.rewrite_at = action.filters.len();
        action.body = None;
        return action;
    }
    let mut first: Vec<Filter> = Vec::new();
    first.extend(errors(cx, site, &scope, None));
    first.extend(unless(&own_fields, response_fields(cx, &scope, is_proxied)));
    first.extend(compress(cx, &scope));
    first.extend(answers);
    first.extend(guards.filters);
    if is_proxied {
        first.extend(cookies(cx, &scope));
        first.extend(mirror(cx, site, &scope));
        first.extend(cache(cx, &scope));
        first.extend(replace(cx, &scope));
    }
    action.rewrite_at += first.len();
    action.filters.splice(0..0, first);
    logging(cx, &scope);
    action
}

/// What a location answers in an `if`, with everything that stands before it: nginx does so before it asks guards and
/// limits. The rest follows. A change of the path stays with the rest, because the target must know its place.
fn before_guards(mut early: Vec<Filter>) -> (Vec<Filter>, Vec<Filter>) {
    let is_answer = |name: &str, _: &Value| matches!(name, "redirect" | "respond");
    let last = early.iter().rposition(|filter| holds(filter.name, &filter.settings, &is_answer));
    let change = early.iter().position(|filter| holds(filter.name, &filter.settings, &is_new_path));
    let rest = early.split_off(last.map_or(0, |last| last + 1).min(change.unwrap_or(early.len())));
    (early, rest)
}

/// Whether a filter is such a one, or a `when` with one inside.
fn holds(name: &str, settings: &Value, is_such: &dyn Fn(&str, &Value) -> bool) -> bool {
    let Value::Map(map) = settings else { return is_such(name, settings) };
    if name != "when" {
        return is_such(name, settings);
    }
    let of = |filter: &Value| match filter {
        Value::Map(filter) => filter.iter().any(|(name, settings)| holds(name, settings, is_such)),
        _ => false,
    };
    ["filters", "otherwise"].iter().any(|key| match map.get(key) {
        Some(Value::List(filters)) => filters.iter().any(of),
        _ => false,
    })
}

/// The target. Returns whether an upstream answers.
fn content<'a>(
    cx: &mut Cx<'a, '_>,
    site: &Site<'_, 'a>,
    scope: &mut Scope<'a>,
    action: &mut Action,
    early: Vec<Filter>,
) -> bool {
    let block = std::rc::Rc::clone(&scope.block);
    // Handlers are not inherited.
    let own = |name: &str| block.own(name).last().copied();
    // A field with `$request_uri` has the path as the client sent it.
    let reads_sent = scope
        .block
        .nearest("proxy_set_header")
        .iter()
        .any(|field| field.args.get(1).is_some_and(|value| value.contains("$request_uri")));
    let (late, early): (Vec<Filter>, Vec<Filter>) =
        early.into_iter().partition(|filter| reads_sent && changes_path(filter));
    action.filters.extend(early);
    action.rewrite_at = action.filters.len();
    if let Some(pass) = own("proxy_pass").or_else(|| own("grpc_pass")) {
        // What `rewrite` made is sent instead of the location's path.
        match proxied(cx, scope, pass) {
            Ok(sent) => {
                let is_changed = action.filters.iter().chain(&late).any(changes_path);
                let (paths, others): (Vec<Filter>, Vec<Filter>) =
                    sent.filters.into_iter().partition(changes_path);
                action.filters.extend(others);
                action.rewrite_at = if reads_sent { action.filters.len() } else { action.rewrite_at };
                action.filters.extend(late);
                action.filters.extend(paths.into_iter().filter(|_| !is_changed));
                action.target = Some(Target::Upstream(sent.upstream));
                body(cx, scope, action);
                return true;
            }
            Err(why) => {
                let nearest = "a route for each upstream, chosen by match.when; or discover";
                cx.ledger.refused(pass.piece, why.clone(), nearest);
                action.closed.push(format!("`{}` at {}: {why}", pass.name, pass.place));
                return true;
            }
        }
    }
    action.filters.extend(late);
    if let Some(pass) = own("fastcgi_pass") {
        match scripts(cx, scope, pass) {
            Ok(made) => {
                if let Some(try_files) = own("try_files") {
                    cx.ledger.by_itself(try_files.piece, "a script that does not exist is not run");
                }
                body(cx, scope, action);
                action.filters.extend(made.filters);
                action.target =
                    Some(Target::FastCgi { upstream: made.upstream, fastcgi: made.settings, files: None });
                return true;
            }
            Err(why) => {
                cx.ledger.refused(pass.piece, why.clone(), "protocol: fastcgi of an upstream");
                action.closed.push(format!("`{}` at {}: {why}", pass.name, pass.place));
                return true;
            }
        }
    }
    for name in [
        "uwsgi_pass",
        "scgi_pass",
        "memcached_pass",
        "content_by_lua_block",
        "content_by_lua_file",
        "js_content",
        "stub_status",
        "perl",
    ] {
        if let Some(handler) = own(name) {
            let why = format!("`{name}` at {}", handler.place);
            action.closed.push(why);
            return false;
        }
    }
    if let Some(empty) = own("empty_gif") {
        cx.ledger.changed(empty.piece, "Weir answers 204 instead of a picture");
        action.target = Some(Target::Respond(Map::new().with("status", 204_u16)));
        return false;
    }
    // nginx does not inherit it: that of a server counts only where no location takes the path.
    let try_files = own("try_files");
    let found = match folder(cx, scope) {
        Ok(found) => found,
        Err(why) => {
            action.closed.push(format!("files: {why}"));
            return false;
        }
    };
    if let (None, Some((page, name))) = (try_files, page_of_missing(scope)) {
        let tried = Tried { files: true, folders: true, last: Last::Named(name) };
        let before = (action.closed.len(), action.filters.clone());
        let again = folder(cx, scope);
        if let Ok(found) = again {
            let is_proxied = try_all(cx, site, scope, action, found, (page, Ok(tried)));
            if action.closed.len() == before.0 {
                let why = "the named location gets requests with other methods than GET and HEAD too, which nginx \
                           answers 405, and folders without an index, 403";
                cx.ledger.changed(page.piece, why);
                return is_proxied;
            }
        }
        // Then missing files are what they are, and the page is refused.
        action.closed.truncate(before.0);
        action.filters = before.1;
    }
    match try_files {
        None => {
            // A location that holds nothing but others has no files of its own that anybody would miss.
            action.filters.extend(found.filters);
            action.target = Some(Target::Files(found.settings));
            false
        }
        Some(try_files) => try_all(cx, site, scope, action, found, (try_files, tried(try_files))),
    }
}

fn changes_path(filter: &Filter) -> bool {
    is_new_path(filter.name, &filter.settings)
}

fn is_new_path(name: &str, settings: &Value) -> bool {
    matches!(settings, Value::Map(map) if name == "rewrite"
        && ["path", "strip_prefix", "add_prefix", "replace"].iter().any(|key| map.get(key).is_some()))
}

/// `error_page 404 = @app` of a location with files: the named location answers for what is no file.
fn page_of_missing<'a>(scope: &Scope<'a>) -> Option<(&'a Directive, String)> {
    scope.block.own("error_page").iter().copied().find_map(|page| match &*page.args {
        [code, sign, target] if code == "404" && sign == "=" => {
            Some((page, target.strip_prefix('@')?.to_owned()))
        }
        _ => None,
    })
}

/// `try_files`: files, and who answers for what is none.
fn try_all<'a>(
    cx: &mut Cx<'a, '_>,
    site: &Site<'_, 'a>,
    scope: &Scope<'a>,
    action: &mut Action,
    found: Folder,
    (try_files, tried): (&'a Directive, Result<Tried, String>),
) -> bool {
    let nearest = "files: { root, fallback } or files: { root, missing }";
    let refuse = |cx: &mut Cx<'a, '_>, action: &mut Action, why: String| {
        cx.ledger.refused(try_files.piece, why.clone(), nearest);
        action.closed.push(format!("`{}` at {}: {why}", try_files.name, try_files.place));
        false
    };
    let tried = match tried {
        Ok(tried) => tried,
        Err(why) => return refuse(cx, action, why),
    };
    let mut settings = found.settings;
    if !tried.folders {
        settings.set("index", Vec::<String>::new());
        settings.remove("browse");
    }
    let target = match &tried.last {
        Last::Status(404) if tried.files => {
            cx.ledger.same(try_files.piece);
            action.filters.extend(found.filters);
            action.target = Some(Target::Files(settings));
            return false;
        }
        Last::Status(status) => {
            if tried.files {
                cx.ledger.changed(try_files.piece, format!("missing files are 404, not {status}"));
                action.filters.extend(found.filters);
                action.target = Some(Target::Files(settings));
            } else {
                cx.ledger.same(try_files.piece);
                action.target = Some(Target::Respond(Map::new().with("status", *status)));
            }
            return false;
        }
        Last::Named(name) => named(&site.locations, name),
        Last::Path(path) => {
            let (page, below) = bare(path);
            find(&site.locations, &format!("{page}{}", if below { "/" } else { "" }))
        }
    };
    let Some(target) = target else {
        return refuse(cx, action, "no location takes what it asks for last".to_owned());
    };
    let mut inner = site.scope(target);
    for (name, value) in &scope.set {
        inner.set.entry(name.clone()).or_insert_with(|| value.clone());
    }
    let own = target.block.all().to_vec();
    let passes =
        ["proxy_pass", "fastcgi_pass", "grpc_pass"].iter().any(|name| !target.block.own(name).is_empty());
    match &tried.last {
        // A page of the site: files again.
        Last::Path(path) if !passes => {
            let (bare, below) = bare(path);
            if below {
                return refuse(cx, action, "the last file is made of the request".to_owned());
            }
            if folder(cx, &inner).map(|folder| folder.root) != Ok(found.root) {
                return refuse(cx, action, "the last file is in another folder".to_owned());
            }
            let why =
                "paths that end like a script, a style sheet or a picture get 404 from Weir, not the page";
            cx.ledger.changed(try_files.piece, why);
            settings.set("fallback", bare);
            action.filters.extend(found.filters);
            action.target = Some(Target::Files(settings));
            return false;
        }
        _ if !passes => return refuse(cx, action, "the named location has no upstream".to_owned()),
        _ => {}
    }
    let done = run(cx, site, &mut inner, &own, Some(target));
    if done.answer.is_some() || !done.apart.is_empty() || !done.closed.is_empty() {
        return refuse(cx, action, "the location that it leads to has rewrites".to_owned());
    }
    action.filters.extend(done.filters);
    auth_request_set(cx, &mut inner);
    if let Some(pass) = target.block.own("fastcgi_pass").last() {
        match scripts(cx, &inner, pass) {
            Ok(made) => {
                // The front controller of the folder answers what is no file.
                let script = match &tried.last {
                    Last::Path(path) => bare(path).0.trim_start_matches('/').to_owned(),
                    _ => "index.php".to_owned(),
                };
                let mut fastcgi = made.settings;
                if script != "index.php" {
                    fastcgi.set("index", script);
                }
                let why = "the front controller sees the path in REQUEST_URI and the query of the client";
                cx.ledger.changed(try_files.piece, why);
                body(cx, scope, action);
                action.filters.extend(made.filters);
                let files = tried.files.then(|| settings.with("missing", made.upstream.clone()));
                action.target = Some(Target::FastCgi { upstream: made.upstream, fastcgi, files });
            }
            Err(why) => return refuse(cx, action, why),
        }
        return true;
    }
    let pass = ["proxy_pass", "grpc_pass"].iter().find_map(|name| target.block.own(name).last().copied());
    let Some(pass) = pass else { return refuse(cx, action, "the location has no upstream".to_owned()) };
    match proxied(cx, &inner, pass) {
        Ok(sent) => {
            if !found.filters.is_empty() && tried.files {
                return refuse(
                    cx,
                    action,
                    "an alias before an upstream: it would see the shortened path".to_owned(),
                );
            }
            action.filters.extend(sent.filters);
            body(cx, scope, action);
            cx.ledger.same(try_files.piece);
            action.target = Some(match tried.files {
                true => Target::Files(settings.with("missing", sent.upstream)),
                false => Target::Upstream(sent.upstream),
            });
            true
        }
        Err(why) => refuse(cx, action, why),
    }
}

/// The path of what `try_files` asks for last, without its query and its variables, and whether the request's own path
/// follows it: `/index.php$request_uri`.
fn bare(path: &str) -> (&str, bool) {
    let path = path.split('?').next().unwrap_or(path);
    let (page, variables) = path.split_at(path.find('$').unwrap_or(path.len()));
    (page, ["$request_uri", "$uri"].iter().any(|own| variables.starts_with(own)))
}

/// The limit of request bodies.
fn body(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, action: &mut Action) {
    let limit = scope.block.one("client_max_body_size");
    let bytes = match limit {
        None => Some(BODY),
        Some(limit) => match read_size(limit.first()) {
            Some(bytes) => {
                cx.ledger.same(limit.piece);
                Some(bytes)
            }
            None => {
                cx.ledger.refused(limit.piece, "the size cannot be read", "body_limit: { max }");
                Some(BODY)
            }
        },
    };
    action.body = bytes.filter(|bytes| *bytes > 0);
}

/// The filter for a limit that does not hold everywhere.
pub(super) fn limit_of(bytes: u64) -> Option<Filter> {
    body_limit(bytes)
}

/// `gzip`.
fn compress(cx: &mut Cx<'_, '_>, scope: &Scope<'_>) -> Option<Filter> {
    let gzip = scope.block.one("gzip")?;
    cx.ledger.same(gzip.piece);
    if gzip.first() != "on" {
        return None;
    }
    let mut map = Map::new().with("algorithms", vec!["gzip"]);
    let mut types = vec!["text/html".to_owned()];
    if let Some(list) = scope.block.one("gzip_types") {
        cx.ledger.same(list.piece);
        types.extend(list.args.iter().filter(|kind| *kind != "text/html" && kind.contains('/')).cloned());
        if list.args.iter().any(|kind| kind == "*") {
            types = vec!["*/*".to_owned()];
            cx.ledger.changed(list.piece, "all types");
        }
    }
    types.dedup();
    map.set("types", types);
    let minimum = scope.block.one("gzip_min_length");
    let bytes = minimum.and_then(|minimum| read_size(minimum.first())).unwrap_or(20);
    minimum.iter().for_each(|minimum| cx.ledger.same(minimum.piece));
    map.set("minimum", size(bytes));
    if let Some(level) = scope.block.one("gzip_comp_level") {
        cx.ledger.same(level.piece);
        if let Ok(level) = level.first().parse::<i64>() {
            map.set("levels", Map::new().with("gzip", level.clamp(1, 9)));
        }
    } else {
        map.set("levels", Map::new().with("gzip", 1_i64));
    }
    Some(Filter::new("compress", map))
}

/// The fields of a location, but for requests of an `if` that has fields of its own.
fn unless(own_fields: &[Expression], filter: Option<Filter>) -> Vec<Filter> {
    let none = own_fields.iter().cloned().fold(Expression::constant(false), Expression::or).not();
    when(&none, filter.into_iter().collect(), Vec::new())
}

/// What stands in a location whose `return` answers every request.
fn never_reached(cx: &mut Cx<'_, '_>, scope: &Scope<'_>) {
    const BEHIND: &[&str] = &[
        "allow",
        "auth_basic",
        "auth_basic_user_file",
        "auth_request",
        "deny",
        "limit_conn",
        "limit_req",
        "proxy_pass",
        "satisfy",
        "try_files",
    ];
    for name in BEHIND {
        for line in scope.block.own(name) {
            let why = "nginx never comes to it: `return` answers every request of the location before";
            cx.ledger.left_out(line.piece, why);
        }
    }
}

/// `access_log off` of a location. The log itself is the gateway's: see translate.rs.
fn logging(cx: &mut Cx<'_, '_>, scope: &Scope<'_>) {
    for log in scope.block.own("access_log") {
        match log.first() {
            "off" => cx.ledger.changed(log.piece, "use access_log.when to choose what is logged"),
            _ => {
                cx.ledger.changed(log.piece, "Weir has one access log for all routes; a line names its route")
            }
        }
    }
}
