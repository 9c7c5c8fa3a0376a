//! `return`, `rewrite`, `if` and `set`, in the order in which nginx runs them.

use super::context::{Cx, Scope};
use super::proxy::without_query;
use super::read::Directive;
use super::site::groups;
use super::text::{condition, template};
use crate::config::Filter;
use crate::ledger::Piece;
use crate::shared::expression::Expression;
use crate::shared::filters::{redirect, redirect_to_https, respond, when};
use crate::shared::regex::{Searching, Subject};
use crate::shared::template::{Part, Template};
use crate::yaml::Map;

/// What a block's rewrite directives come to.
#[derive(Default)]
pub(super) struct Rewritten {
    /// Conditions that may answer, and changes of the path.
    pub(super) filters: Vec<Filter>,
    /// The answer that every request gets which comes so far.
    pub(super) answer: Option<Answer>,
    /// Requests that need a route of their own, because their answer needs groups of another pattern.
    pub(super) apart: Vec<Apart>,
    /// Guards that could not be translated: the route must stay closed.
    pub(super) closed: Vec<String>,
}

/// An answer without an upstream.
#[derive(Clone)]
pub(super) enum Answer {
    Redirect(Filter),
    Respond(Map),
}

/// A route of its own for the paths of a pattern.
pub(super) struct Apart {
    pub(super) pattern: Searching,
    /// What stands before it, and so comes first.
    pub(super) before: Vec<Filter>,
    pub(super) does: Does,
}

/// What a route of its own does.
pub(super) enum Does {
    Answer(Answer),
    /// As the location does, with this path.
    Rewrite(Filter),
}

impl Answer {
    pub(super) fn to_filter(&self) -> Filter {
        match self {
            Self::Redirect(filter) => filter.clone(),
            Self::Respond(map) => Filter::new("respond", map.clone()),
        }
    }
}

/// Runs the rewrite directives of one block.
pub(super) fn run<'a>(
    cx: &mut Cx<'a, '_>,
    scope: &mut Scope<'a>,
    directives: &[&'a Directive],
    location_pattern: Option<&Searching>,
) -> Rewritten {
    let mut done = Rewritten::default();
    for directive in directives {
        if done.answer.is_some() {
            if matches!(&*directive.name, "return" | "rewrite" | "if" | "set" | "break") {
                leave_out(cx, directive, "no request comes so far: what stands before it answers");
            }
            continue;
        }
        match &*directive.name {
            "set" => set(cx, scope, directive),
            "auth_request_set" => auth_request_set(cx, scope, directive),
            "break" => cx.ledger.by_itself(directive.piece, "nothing stands behind it"),
            "return" => match answer(cx, scope, directive) {
                Ok(answer) => done.answer = Some(answer),
                Err(why) => {
                    cx.ledger.refused(directive.piece, why.clone(), "redirect, respond");
                    done.closed.push(why);
                }
            },
            "if" => one_if(cx, scope, directive, &mut done),
            "rewrite" => rewrite(cx, scope, directive, location_pattern, &mut done),
            _ => {}
        }
    }
    done
}

fn leave_out(cx: &mut Cx<'_, '_>, directive: &Directive, why: &'static str) {
    cx.ledger.left_out(directive.piece, why);
    for inner in directive.block.iter().flatten() {
        leave_out(cx, inner, why);
    }
}

fn set<'a>(cx: &mut Cx<'a, '_>, scope: &mut Scope<'a>, directive: &Directive) {
    let [name, value] = &*directive.args else {
        return cx.ledger.refused(directive.piece, "`set` takes a variable and a value", "maps");
    };
    match template(cx, scope, value) {
        Ok(value) => {
            cx.ledger.same(directive.piece);
            scope.set.insert(name.trim_start_matches('$').to_owned(), value);
        }
        Err(why) => cx.ledger.refused(directive.piece, why, "maps"),
    }
}

/// `auth_request_set $user $upstream_http_x_user`: the field of the answer becomes one of the request.
fn auth_request_set<'a>(cx: &mut Cx<'a, '_>, scope: &mut Scope<'a>, directive: &Directive) {
    let (name, value) = match &*directive.args {
        [name, value] => (name.trim_start_matches('$'), value.trim_start_matches('$')),
        _ => return,
    };
    match value.strip_prefix("upstream_http_") {
        Some(field) => {
            let field = field.replace('_', "-");
            let mut template = Template::default();
            template.push(Part::Value(Expression::of("request.headers", &field)));
            cx.ledger.same(directive.piece);
            scope.set.insert(name.to_owned(), template);
        }
        None => {
            let why = "of the answer of the authorization service, Weir keeps fields";
            cx.ledger.refused(directive.piece, why, "forward_auth: { copy }");
        }
    }
}

/// `return CODE [TEXT]`, `return CODE URL`, `return URL`.
fn answer(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, directive: &Directive) -> Result<Answer, String> {
    let (status, text) = match &*directive.args {
        [one] => match one.parse::<u16>() {
            Ok(status) => (status, None),
            Err(_) => (302, Some(&**one)),
        },
        [status, text] => match status.parse::<u16>() {
            Ok(status) => (status, Some(&**text)),
            Err(_) => return Err(format!("`{status}` is no status")),
        },
        _ => return Err("`return` takes a status and a text".to_owned()),
    };
    if matches!(status, 301 | 302 | 303 | 307 | 308) {
        let text = text.ok_or("a redirect without a target")?;
        let filter = to_url(cx, scope, text, status, directive.piece)?;
        return Ok(Answer::Redirect(filter));
    }
    if status == 444 {
        cx.ledger.changed(directive.piece, "nginx closes the connection without an answer; Weir answers 403");
        return Ok(Answer::Respond(Map::new().with("status", 403_u16)));
    }
    if !(200..=599).contains(&status) {
        return Err(format!("Weir sends no status {status}"));
    }
    let body = match text {
        Some(text) => Some(template(cx, scope, text)?.to_body()),
        None => None,
    };
    let has_own_type = scope
        .block
        .nearest("add_header")
        .iter()
        .any(|field| field.first().eq_ignore_ascii_case("content-type"));
    let kind = scope.block.one("default_type");
    let content_type = match (&body, kind) {
        (Some(body), _) if body.is_empty() || has_own_type => None,
        (None, _) => None,
        (Some(_), Some(kind)) => {
            cx.ledger.same(kind.piece);
            Some(kind.first())
        }
        (Some(_), None) => Some("text/plain"),
    };
    cx.ledger.same(directive.piece);
    if body.is_none() && status >= 400 {
        cx.ledger
            .note("the bodies of Weir's own errors differ from nginx's; the filter `errors` changes them");
    }
    Ok(Answer::Respond(respond(status, body, content_type)))
}

/// A redirect to a text with variables.
fn to_url(
    cx: &mut Cx<'_, '_>,
    scope: &Scope<'_>,
    text: &str,
    status: u16,
    piece: Piece,
) -> Result<Filter, String> {
    let (target, keeps_query) = without_query(&template(cx, scope, text)?);
    redirect_to(cx, scope, &target, keeps_query, status, piece)
}

fn redirect_to(
    cx: &mut Cx<'_, '_>,
    scope: &Scope<'_>,
    target: &Template,
    keeps_query: bool,
    status: u16,
    piece: Piece,
) -> Result<Filter, String> {
    let mut before_path = String::new();
    for part in target.parts() {
        if is_in_path(&before_path) {
            break;
        }
        match part {
            Part::Text(text) => before_path.push_str(text),
            Part::Placeholder(name) if matches!(&**name, "host" | "authority" | "scheme") => {
                before_path.push_str(name);
            }
            Part::Placeholder(name) if name == "path" => before_path.push('/'),
            _ => {
                return Err(
                    "the host of the redirect comes from the request: a client could choose it".to_owned()
                );
            }
        }
    }
    let setting = target.to_setting();
    if setting.is_empty() {
        return Err("a redirect without a target".to_owned());
    }
    if !setting.starts_with('/') && !setting.contains("://") && !setting.starts_with("{path}") {
        return Err(format!("`{setting}` is no URL and no path"));
    }
    if setting.starts_with('/') {
        cx.ledger.changed(piece, "Location is the path alone; nginx adds scheme and host");
    } else {
        cx.ledger.same(piece);
    }
    // A loop in nginx as well, if the server has TLS.
    if setting == "https://{host}{path}" && keeps_query && scope.scheme == Some("http") {
        return Ok(redirect_to_https(status));
    }
    Ok(redirect(&setting, status, keeps_query))
}

/// Whether a URL has come to its path.
fn is_in_path(text: &str) -> bool {
    match text.split_once("://") {
        Some((_, rest)) => rest.contains(['/', '?', '#']),
        None => text.starts_with('/'),
    }
}

fn one_if<'a>(cx: &mut Cx<'a, '_>, scope: &Scope<'a>, directive: &'a Directive, done: &mut Rewritten) {
    let inner: Vec<&Directive> = directive.block.iter().flatten().collect();
    // A status of 400 and more is a guard: without it the route would be open.
    let is_guard =
        inner.iter().any(|d| d.name == "return" && d.first().starts_with(['4', '5']) || d.name == "deny");
    let nearest = "the filter when, or match.when of a second route";
    let refuse = |cx: &mut Cx<'a, '_>, done: &mut Rewritten, why: String| {
        for line in &inner {
            if !cx.ledger.is_judged(line.piece) {
                cx.ledger.refused(line.piece, "its `if` is refused", "");
            }
        }
        cx.ledger.refused(directive.piece, why.clone(), nearest);
        if is_guard {
            done.closed.push(format!("`if` at {}: {why}", directive.place));
        }
    };
    let is = match condition(cx, scope, &directive.args) {
        Ok(is) => is,
        Err(why) => return refuse(cx, done, why),
    };
    let mut inner_scope = scope.clone();
    let mut filters = Vec::new();
    for line in &inner {
        match &*line.name {
            "return" => match answer(cx, &inner_scope, line) {
                Ok(answer) => filters.push(answer.to_filter()),
                Err(why) => return refuse(cx, done, why),
            },
            "rewrite" => {
                let mut nested = Rewritten::default();
                rewrite(cx, &mut inner_scope, line, None, &mut nested);
                if !nested.apart.is_empty() || nested.filters.is_empty() && nested.answer.is_none() {
                    return refuse(cx, done, "a `rewrite` with groups in an `if`".to_owned());
                }
                filters.extend(nested.answer.map(|answer| answer.to_filter()));
                filters.extend(nested.filters);
            }
            "break" => cx.ledger.by_itself(line.piece, "nothing stands behind it"),
            "access_log" if line.first() == "off" => {
                cx.ledger.changed(line.piece, "use access_log.when to choose what is logged");
            }
            "set" => return refuse(cx, done, "a variable that is set in an `if`".to_owned()),
            other => {
                let why = format!("`{other}` in an `if`");
                return refuse(cx, done, why);
            }
        }
    }
    cx.ledger.same(directive.piece);
    if !filters.is_empty() {
        done.filters.extend(when(&is, filters, Vec::new()));
    }
}

fn rewrite<'a>(
    cx: &mut Cx<'a, '_>,
    scope: &mut Scope<'a>,
    directive: &Directive,
    location_pattern: Option<&Searching>,
    done: &mut Rewritten,
) {
    let nearest = "rewrite: { path } of a route with a pattern";
    let (pattern, replacement, flag) = match &*directive.args {
        [pattern, replacement] => (pattern, replacement, ""),
        [pattern, replacement, flag] => (pattern, replacement, &**flag),
        _ => return cx.ledger.refused(directive.piece, "`rewrite` takes a pattern and a path", nearest),
    };
    let read =
        Searching::read(pattern, false, Subject::Path).and_then(|read| Ok((groups(&read.compiled()?), read)));
    let (names, read) = match read {
        Ok(read) => read,
        Err(why) => return cx.ledger.refused(directive.piece, why, nearest),
    };
    let is_redirect = matches!(flag, "redirect" | "permanent")
        || ["http://", "https://", "$scheme"].iter().any(|start| replacement.starts_with(start));
    let status = if flag == "permanent" { 301 } else { 302 };
    // What takes every path needs no groups: they are the path.
    let whole = whole_path(pattern);
    let is_own = location_pattern.is_some_and(|own| *own == read);
    let mut inner = scope.clone();
    if is_own || whole.is_none() {
        inner.captures = names;
    }
    let spelled = match whole {
        Some(Whole::Path) if !is_own => replacement.replace("$1", "${uri}"),
        Some(Whole::BehindSlash) if !is_own => replacement.replace("/$1", "${uri}"),
        _ => replacement.clone(),
    };
    // The old query follows unless the replacement ends with `?`.
    let (spelled, drops_query) = match spelled.strip_suffix('?') {
        Some(rest) => (rest.to_owned(), true),
        None => (spelled, false),
    };
    let target = match template(cx, &inner, &spelled) {
        Ok(target) => target,
        Err(why) => return cx.ledger.refused(directive.piece, why, nearest),
    };
    let (path, _) = without_query(&target);
    let uses_groups = path
        .parts()
        .iter()
        .any(|part| matches!(part, Part::Placeholder(name) if inner.captures.contains(name) && !is_own));
    let always = whole.is_some() || is_own;
    if is_redirect {
        let keeps_query = !drops_query;
        match redirect_to(cx, scope, &path, keeps_query, status, directive.piece) {
            Ok(filter) if always => done.answer = Some(Answer::Redirect(filter)),
            Ok(filter) if uses_groups => {
                let does = Does::Answer(Answer::Redirect(filter));
                done.apart.push(Apart { pattern: read, before: done.filters.clone(), does });
            }
            Ok(filter) => {
                let is = Expression::raw("request.path").matches(&read.searching());
                done.filters.extend(when(&is, vec![filter], Vec::new()));
            }
            Err(why) => cx.ledger.refused(directive.piece, why, "the filter redirect"),
        }
        return;
    }
    if path.parts().iter().any(|part| matches!(part, Part::Value(_))) {
        let why = "the path is made of variables that Weir cannot put into a path";
        return cx.ledger.refused(directive.piece, why, nearest);
    }
    if spelled.contains('?') {
        let why = "a `rewrite` that adds to the query";
        return cx.ledger.refused(directive.piece, why, "rewrite: { query: { add } }");
    }
    // `break` keeps the location. `last` searches anew.
    if flag != "break" {
        let why = "nginx searches for another location with the new path; Weir routes once";
        let nearest = "a route for the old path with `rewrite` and the upstream of the new one";
        return cx.ledger.refused(directive.piece, why, nearest);
    }
    let changed = "the new path is canonical, and characters that a URL must escape are escaped";
    let stripped = scope.path.as_deref().and_then(|location| strips(pattern, replacement, location));
    match stripped {
        Some(prefix) => {
            let why = "Weir also tells the upstream the prefix that it removed: X-Forwarded-Prefix";
            cx.ledger.changed(directive.piece, why);
            if !prefix.is_empty() {
                done.filters.push(Filter::new("rewrite", Map::new().with("strip_prefix", prefix)));
            }
        }
        None if always || !uses_groups && scope.is_exact => {
            cx.ledger.changed(directive.piece, changed);
            let is_same = path.parts() == [Part::Placeholder("path".to_owned())];
            if !is_same {
                done.filters.push(Filter::new("rewrite", Map::new().with("path", path.to_setting())));
            }
        }
        None => {
            cx.ledger.changed(directive.piece, changed);
            let filter = Filter::new("rewrite", Map::new().with("path", path.to_setting()));
            done.apart.push(Apart {
                pattern: read,
                before: done.filters.clone(),
                does: Does::Rewrite(filter),
            });
        }
    }
}

/// Patterns that take every path, by what their group is.
#[derive(Clone, Copy, PartialEq)]
enum Whole {
    /// `^(.*)$`: the path.
    Path,
    /// `^/(.*)$`: the path behind its slash.
    BehindSlash,
    /// `^`: there is no group.
    None,
}

fn whole_path(pattern: &str) -> Option<Whole> {
    match pattern {
        "^(.*)$" | "^(.*)" | "(.*)" | "(.*)$" | "^(/.*)$" | "^(/.*)" | "^(.+)$" => Some(Whole::Path),
        "^/(.*)$" | "^/(.*)" | "^/?(.*)$" | "/(.*)" => Some(Whole::BehindSlash),
        "^" | "^.*$" | "^.*" | ".*" | "^/" | "/" | "." | ".+" | "^.+$" | "^/.*$" | "^/.*" => {
            Some(Whole::None)
        }
        _ => None,
    }
}

/// The prefix that a `rewrite` takes away in a location of that prefix: `^/p/(.*)$ /$1`.
fn strips(pattern: &str, replacement: &str, location: &str) -> Option<String> {
    let prefix = location.trim_end_matches('/');
    let rest = pattern.strip_prefix('^')?;
    let rest =
        rest.strip_prefix(&crate::shared::regex::literal(prefix)).or_else(|| rest.strip_prefix(prefix))?;
    let is_rest = matches!(
        (rest, replacement),
        ("/(.*)$" | "/(.*)" | "/?(.*)$" | "/?(.*)", "/$1" | "/${1}")
            | ("(/.*)$" | "(/.*)", "$1")
            | ("(.*)$" | "(.*)", "$1")
    );
    is_rest.then(|| prefix.to_owned())
}
