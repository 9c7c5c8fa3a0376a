//! `return`, `rewrite`, `if` and `set`, in the order in which nginx runs them.

use super::context::{Cx, Scope};
use super::fields::fields_of_if;
use super::location::{Kind, Location, NewPath, search, search_all};
use super::proxy::without_query;
use super::read::Directive;
use super::site::{Site, groups};
use super::text::{condition, template};
use super::variables::{answered_field, choose, chooses_by_path, chosen, set, variable_of};
use crate::config::Filter;
use crate::ledger::{Piece, Verdict};
use crate::shared::expression::Expression;
use crate::shared::filters::{closed, redirect, redirect_to_https, respond, when};
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
    /// Requests that need a route of their own: their answer needs groups of another pattern, or another location
    /// takes them.
    pub(super) apart: Vec<Apart>,
    /// Guards that could not be translated: the route must stay closed.
    pub(super) closed: Vec<String>,
    /// The conditions of each `if` that adds fields to answers: those of the location are not added then.
    pub(super) own_fields: Vec<Expression>,
    /// Patterns of paths that `filters` change.
    changed: Vec<Searching>,
    /// Whether a `rewrite … break` took every request: nginx runs no directive of this kind behind it.
    stopped: bool,
}

/// An answer without an upstream.
#[derive(Clone)]
pub(super) enum Answer {
    Redirect(Filter),
    Respond(Map),
    /// What another location does.
    Search(Search),
}

/// A route of its own.
#[derive(Clone)]
pub(super) struct Apart {
    /// The paths that it takes; none for all of its location.
    pub(super) pattern: Option<Searching>,
    /// What else must be true.
    pub(super) when: Option<Expression>,
    /// What stands before it, and so comes first.
    pub(super) before: Vec<Filter>,
    pub(super) does: Answer,
    /// The `rewrite`.
    pub(super) piece: Piece,
}

/// `rewrite … last`: nginx searches for a location anew, with another path.
#[derive(Clone)]
pub(super) struct Search {
    /// What changes the path and the query.
    pub(super) filters: Vec<Filter>,
    /// What is known of the new path.
    pub(super) path: NewPath,
}

impl Answer {
    pub(super) fn to_filter(&self) -> Filter {
        match self {
            Self::Redirect(filter) => filter.clone(),
            Self::Respond(map) => Filter::new("respond", map.clone()),
            // It needs a route: see `one_if`.
            Self::Search(_) => Filter::new("respond", Map::new().with("status", 503_u16)),
        }
    }
}

/// Runs the rewrite directives of one block: of a location, or of the server.
pub(super) fn run<'a>(
    cx: &mut Cx<'a, '_>,
    site: &Site<'_, 'a>,
    scope: &mut Scope<'a>,
    directives: &[&'a Directive],
    own: Option<&Location<'a>>,
) -> Rewritten {
    let mut done = Rewritten::default();
    let place = Where { site, own, block: directives };
    for directive in directives {
        if done.answer.is_some() || done.stopped {
            if matches!(&*directive.name, "return" | "rewrite" | "if" | "set" | "break") {
                let why = match done.stopped {
                    true => "no request comes so far: a `break` stands before it",
                    false => "no request comes so far: what stands before it answers",
                };
                leave_out(cx, directive, why);
            }
            continue;
        }
        match &*directive.name {
            "set" => set(cx, scope, directive),
            // It is empty here: see `auth_request_set`.
            "auth_request_set" => {
                scope.set.entry(variable_of(directive).to_owned()).or_default();
                if directive.args.get(1).is_some_and(|value| answered_field(value).is_some()) {
                    cx.ledger.same(directive.piece);
                }
            }
            "break" => cx.ledger.by_itself(directive.piece, "nothing stands behind it"),
            "return" => match answer(cx, scope, directive) {
                Ok(answer) => done.answer = Some(answer),
                Err(why) => {
                    cx.ledger.refused(directive.piece, why.clone(), "redirect, respond");
                    done.closed.push(why);
                }
            },
            "if" => {
                one_if(cx, &place, scope, directive, &mut done);
                // The old value would be wrong for some requests: nothing behind may read it.
                if cx.ledger.verdict(directive.piece) == Some(Verdict::Refused) {
                    for inner in directive.block.iter().flatten().filter(|inner| inner.name == "set") {
                        scope.set.remove(variable_of(inner));
                    }
                }
                if directive.block.iter().flatten().any(|inner| inner.name == "rewrite") {
                    scope.set.retain(|_, value| !chooses_by_path(value));
                }
            }
            "rewrite" => {
                let before = done.filters.len();
                rewrite(cx, &place, scope, directive, &mut done);
                if done.filters.len() > before {
                    scope.set.retain(|_, value| !chooses_by_path(value));
                }
            }
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
pub(super) fn to_url(
    cx: &mut Cx<'_, '_>,
    scope: &Scope<'_>,
    text: &str,
    status: u16,
    piece: Piece,
) -> Result<Filter, String> {
    let whole = template(cx, scope, text)?;
    // Behind a `?`, `$request_uri` is a part of the value.
    let is_in_query = text.split_once('?').is_some_and(|(_, query)| query.contains("request_uri"));
    let (target, keeps_query) = if is_in_query { (whole, false) } else { without_query(&whole) };
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

fn one_if<'a>(
    cx: &mut Cx<'a, '_>,
    place: &Where<'_, 'a>,
    scope: &mut Scope<'a>,
    directive: &'a Directive,
    done: &mut Rewritten,
) {
    let inner: Vec<&Directive> = directive.block.iter().flatten().collect();
    // A status of 400 and more is a guard: without it the route would be open.
    let is_guard =
        inner.iter().any(|d| d.name == "return" && d.first().starts_with(['4', '5']) || d.name == "deny");
    let leads_away = inner.iter().any(|d| matches!(&*d.name, "deny" | "return" | "rewrite"));
    let nearest = "the filter when, or match.when of a second route";
    // Where the condition is known, requests that do not meet it pass.
    let refuse = |cx: &mut Cx<'a, '_>, done: &mut Rewritten, why: String, is: Option<&Expression>| {
        for line in &inner {
            if !cx.ledger.is_judged(line.piece) {
                cx.ledger.refused(line.piece, "its `if` is refused", "");
            }
        }
        cx.ledger.refused(directive.piece, why.clone(), nearest);
        let why = format!("`if` at {}: {why}", directive.place);
        match is {
            Some(is) if leads_away => done.filters.extend(when(is, vec![closed(&why)], Vec::new())),
            None if is_guard => done.closed.push(why),
            _ => {}
        }
    };
    let is = match condition(cx, scope, &directive.args) {
        Ok(is) => is,
        Err(why) => return refuse(cx, done, why, None),
    };
    let mut inner_scope = scope.clone();
    let mut filters = Vec::new();
    let mut apart = Vec::new();
    let (mut variables, mut fields) = (Vec::new(), Vec::new());
    let mut ended = false;
    for line in &inner {
        if ended {
            leave_out(cx, line, "no request comes so far: the `rewrite` before it takes all");
            continue;
        }
        match &*line.name {
            "return" => match answer(cx, &inner_scope, line) {
                Ok(answer) => filters.push(answer.to_filter()),
                Err(why) => return refuse(cx, done, why, Some(&is)),
            },
            "rewrite" => {
                let mut nested = Rewritten { changed: done.changed.clone(), ..Rewritten::default() };
                rewrite(cx, place, &mut inner_scope, line, &mut nested);
                done.closed.append(&mut nested.closed);
                let is_refused = cx.ledger.verdict(line.piece) == Some(Verdict::Refused);
                if is_refused {
                    return refuse(cx, done, "its `rewrite` is refused".to_owned(), Some(&is));
                }
                let before: Vec<Filter> = done.filters.iter().chain(&filters).cloned().collect();
                match nested.answer {
                    Some(Answer::Search(search)) => {
                        let does = Answer::Search(search);
                        apart.push(Apart {
                            pattern: None,
                            when: Some(is.clone()),
                            before,
                            does,
                            piece: line.piece,
                        });
                        ended = true;
                    }
                    Some(answer) => filters.push(answer.to_filter()),
                    None => {}
                }
                for one in nested.apart {
                    if matches!(one.does, Answer::Redirect(_) | Answer::Respond(_)) {
                        return refuse(
                            cx,
                            done,
                            "a `rewrite` with groups to another host in an `if`".to_owned(),
                            Some(&is),
                        );
                    }
                    let before = done.filters.iter().chain(&filters).cloned().collect();
                    apart.push(Apart { when: Some(is.clone()), before, ..one });
                }
                filters.extend(nested.filters);
                done.changed = nested.changed;
            }
            "break" => cx.ledger.by_itself(line.piece, "nothing stands behind it"),
            "access_log" if line.first() == "off" => {
                cx.ledger.changed(line.piece, "use access_log.when to choose what is logged");
            }
            "set" => {
                set(cx, &mut inner_scope, line);
                if let Err(why) = choose(&is, scope, &inner_scope, line) {
                    cx.ledger.refused(line.piece, why.clone(), "maps");
                    return refuse(cx, done, why, Some(&is));
                }
                if !variables.contains(&variable_of(line)) {
                    variables.push(variable_of(line));
                }
            }
            "add_header" if place.own.is_some() => fields.push(*line),
            other => {
                let why = format!("`{other}` in an `if`");
                return refuse(cx, done, why, Some(&is));
            }
        }
    }
    cx.ledger.same(directive.piece);
    for name in variables {
        if let Some(value) = inner_scope.set.get(name) {
            let value = chosen(&is, scope, name, value);
            scope.set.insert(name.to_owned(), value);
        }
    }
    done.apart.extend(apart);
    if !fields.is_empty() {
        let returned = inner.iter().find(|line| line.name == "return");
        let status = returned.and_then(|line| line.first().parse().ok());
        filters.splice(0..0, fields_of_if(cx, &inner_scope, &fields, status));
        done.own_fields.push(is.clone());
    }
    if !filters.is_empty() {
        done.filters.extend(when(&is, filters, Vec::new()));
    }
}

/// Where rewrite directives stand.
pub(super) struct Where<'s, 'a> {
    pub(super) site: &'s Site<'s, 'a>,
    /// The location; none for the server itself.
    pub(super) own: Option<&'s Location<'a>>,
    /// The directives of the block.
    pub(super) block: &'s [&'a Directive],
}

const NEAREST: &str = "rewrite: { replace } of a route with the upstream of the new path";

fn rewrite<'a>(
    cx: &mut Cx<'a, '_>,
    place: &Where<'_, 'a>,
    scope: &mut Scope<'a>,
    directive: &Directive,
    done: &mut Rewritten,
) {
    let (pattern, replacement, flag) = match &*directive.args {
        [pattern, replacement] => (pattern, replacement, ""),
        [pattern, replacement, flag] => (pattern, replacement, &**flag),
        _ => return refuse(cx, directive, "`rewrite` takes a pattern and a path".to_owned(), None, done),
    };
    let read = Searching::read(pattern, false, Subject::Path).and_then(|read| Ok((read.compiled()?, read)));
    let (compiled, read) = match read {
        Ok(read) => read,
        Err(why) => return refuse(cx, directive, why, None, done),
    };
    // The path of an exact location is known, and so is what the pattern finds in it.
    let fixed = match place.own.map(|own| &own.kind) {
        Some(Kind::Exact(path)) => match Fixed::of(&compiled, &crate::shared::path::canonical(path)) {
            Some(fixed) => Some(fixed),
            None => {
                let why = "its pattern does not match the path of the location";
                return cx.ledger.left_out(directive.piece, why);
            }
        },
        _ => None,
    };
    let is_redirect = matches!(flag, "redirect" | "permanent")
        || ["http://", "https://", "$scheme"].iter().any(|start| replacement.starts_with(start));
    // What takes every path needs no groups: they are the path.
    let whole = whole_path(pattern).filter(|_| fixed.is_none());
    let is_own =
        place.own.is_some_and(|own| matches!(&own.kind, Kind::Regex { pattern, .. } if *pattern == read));
    let mut inner = scope.clone();
    if is_own || whole.is_none() {
        inner.captures = groups(&compiled);
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
        Err(why) => return refuse(cx, directive, why, Some(&read), done),
    };
    let target = fixed.as_ref().map_or_else(|| target.clone(), |fixed| fixed.fill(&target));
    let one = One {
        uses_groups: target
            .parts()
            .iter()
            .any(|part| matches!(part, Part::Placeholder(name) if inner.captures.contains(name) && !is_own)),
        always: whole.is_some() || is_own || fixed.is_some(),
        piece: directive.piece,
        pattern: read,
        target,
        drops_query,
    };
    if is_redirect {
        let status = if flag == "permanent" { 301 } else { 302 };
        return one.redirect(cx, scope, status, directive, done);
    }
    let read = one.pattern.clone();
    done.stopped = one.always && flag == "break" && place.own.is_some();
    if let Err(why) = one.search(cx, place, scope, (pattern, replacement, flag), done) {
        refuse(cx, directive, why, Some(&read), done);
    }
}

/// Refuses a `rewrite`, and closes its requests: without it they would go on to an upstream that nginx sends them away
/// from, perhaps past a guard. Where the pattern is not understood, that is the whole block.
fn refuse(
    cx: &mut Cx<'_, '_>,
    directive: &Directive,
    why: String,
    pattern: Option<&Searching>,
    done: &mut Rewritten,
) {
    let said = format!("`rewrite` at {}: {why}", directive.place);
    cx.ledger.refused(directive.piece, why, NEAREST);
    match pattern {
        Some(pattern) => {
            let is = Expression::raw("request.path").matches(&pattern.searching());
            done.filters.extend(when(&is, vec![closed(&said)], Vec::new()));
        }
        None => done.closed.push(said),
    }
}

/// One `rewrite`, read.
struct One {
    piece: Piece,
    pattern: Searching,
    target: Template,
    /// Whether the new path has groups of the pattern.
    uses_groups: bool,
    /// Whether every request of its block is rewritten.
    always: bool,
    drops_query: bool,
}

impl One {
    fn redirect(
        self,
        cx: &mut Cx<'_, '_>,
        scope: &Scope<'_>,
        status: u16,
        directive: &Directive,
        done: &mut Rewritten,
    ) {
        let (path, _) = without_query(&self.target);
        match redirect_to(cx, scope, &path, !self.drops_query, status, self.piece) {
            Ok(filter) if self.always => done.answer = Some(Answer::Redirect(filter)),
            Ok(filter) if self.uses_groups => self.apart(done, Answer::Redirect(filter)),
            Ok(filter) => {
                let is = Expression::raw("request.path").matches(&self.pattern.searching());
                done.filters.extend(when(&is, vec![filter], Vec::new()));
            }
            Err(why) => refuse(cx, directive, why, Some(&self.pattern), done),
        }
    }

    fn apart(self, done: &mut Rewritten, does: Answer) {
        let before = done.filters.clone();
        done.apart.push(Apart { pattern: Some(self.pattern), when: None, before, does, piece: self.piece });
    }

    /// A new path on the same host: with `break` the location stays, else nginx searches for one.
    fn search<'a>(
        self,
        cx: &mut Cx<'a, '_>,
        place: &Where<'_, 'a>,
        scope: &Scope<'a>,
        (pattern, replacement, flag): (&str, &str, &str),
        done: &mut Rewritten,
    ) -> Result<(), String> {
        if done.changed.iter().any(|other| may_both(other, &self.pattern)) {
            return Err("a `rewrite` before it may have changed the path already".to_owned());
        }
        let (path, query) = split_query(&self.target)?;
        if path.parts().iter().any(|part| matches!(part, Part::Value(_))) {
            return Err("the path is made of variables that Weir cannot put into a path".to_owned());
        }
        let changed = "the new path is canonical, and characters that a URL must escape are escaped";
        let mut new = NewPath::of(&path, keeps_end(&self.pattern, pattern, replacement));
        new.changes_query = self.drops_query || !query.is_empty();
        // A server's `break` ends its rewrites, and then a location is searched as with `last`.
        let stays = flag == "break" && place.own.is_some();
        if flag.is_empty() {
            may_go_on(place, self.piece, &new)?;
        }
        if stays && !self.always && behind(place.block, self.piece).any(|line| line.name == "return") {
            return Err("with `break` requests pass the `return` behind it, and others do not".to_owned());
        }
        if stays
            && query.is_empty()
            && let Some(prefix) = scope.path.as_deref().and_then(|at| strips(pattern, replacement, at))
        {
            cx.ledger.changed(self.piece, crate::shared::path::TELLS_PREFIX);
            if !prefix.is_empty() {
                done.filters.push(Filter::new("rewrite", Map::new().with("strip_prefix", prefix)));
            }
            return Ok(());
        }
        let is_same = path.parts() == [Part::Placeholder("path".to_owned())];
        let mut filters = Vec::new();
        if !is_same {
            filters.push(match self.always {
                true => Filter::new("rewrite", Map::new().with("path", path.to_setting())),
                false => {
                    let with = Map::new().with(self.pattern.whole_from_first(), path.to_setting());
                    Filter::new("rewrite", Map::new().with("replace", with))
                }
            });
        }
        let has_query = !query.is_empty();
        if has_query {
            // With `add` a client's parameter of the name would stand first.
            filters.push(Filter::new("rewrite", Map::new().with("query", Map::new().with("set", query))));
        }
        let taker = match (stays, place.own) {
            (true, _) | (_, None) => None,
            (false, Some(own)) => {
                let taker = taker(place.site, &new, Some(own))?;
                (!std::ptr::eq(taker, own)).then_some(taker)
            }
        };
        let in_place = stays || taker.is_none() && place.own.is_some();
        if in_place && !self.always {
            if has_query {
                return Err("a `rewrite` of some paths that adds to the query".to_owned());
            }
            if stays && place.block.iter().any(|line| line.name == "proxy_pass" && has_path(line.first())) {
                let why = "nginx sends the new path as it is, and replaces the prefix of other paths";
                return Err(why.to_owned());
            }
        }
        cx.ledger.changed(self.piece, changed);
        if has_query {
            let why =
                "a parameter of the same name that the client sent is dropped, and the new ones stand last";
            cx.ledger.changed(self.piece, why);
        }
        if self.drops_query {
            cx.ledger.changed(self.piece, "Weir keeps the query, which nginx drops here");
        }
        if in_place {
            done.filters.extend(filters);
            done.changed.push(self.pattern);
            return Ok(());
        }
        let does = Answer::Search(Search { filters, path: new });
        if self.always && place.own.is_some() || whole_path(pattern).is_some() {
            done.answer = Some(does);
        } else {
            self.apart(done, does);
        }
        Ok(())
    }
}

/// Whether an address of `proxy_pass` has a path.
fn has_path(address: &str) -> bool {
    address.split_once("://").is_some_and(|(_, rest)| rest.contains('/'))
}

/// The directives of a block behind one of them.
fn behind<'s, 'a>(block: &'s [&'a Directive], piece: Piece) -> impl Iterator<Item = &'a Directive> + 's {
    block.iter().skip_while(move |line| line.piece != piece).skip(1).copied()
}

/// Without a flag, nginx goes on with the new path. Err if what follows may change it again.
fn may_go_on(place: &Where<'_, '_>, piece: Piece, new: &NewPath) -> Result<(), String> {
    for line in behind(place.block, piece) {
        let reads_path = line.args.iter().any(|arg| arg.contains("$uri") || arg.contains("$document_uri"));
        if line.name == "if" && (reads_path || line.block.iter().flatten().any(|d| d.name == "rewrite")) {
            return Err(
                "without a flag, nginx goes on with the new path, which an `if` behind it reads".to_owned()
            );
        }
        if line.name == "rewrite" && may_rewrite(line, new) {
            return Err("without a flag, nginx goes on with the new path, and the next `rewrite` changes it"
                .to_owned());
        }
        if line.name == "return" && place.own.is_none() {
            return Err("without a flag, nginx goes on, and the `return` behind it answers".to_owned());
        }
    }
    Ok(())
}

/// Whether a `rewrite` may match a path.
fn may_rewrite(line: &Directive, new: &NewPath) -> bool {
    match Searching::read(line.first(), false, Subject::Path) {
        Ok(read) => new.may_match(&read),
        Err(_) => true,
    }
}

/// The location that nginx finds with the new path, if it is one for all of them and leaves the path alone.
fn taker<'s, 'a>(
    site: &'s Site<'_, 'a>,
    new: &NewPath,
    own: Option<&Location<'_>>,
) -> Result<&'s Location<'a>, String> {
    let taker = search(&site.locations, new, own)?;
    is_left_alone(taker, new)?;
    Ok(taker)
}

/// Err if a location changes a path that comes to it.
fn is_left_alone(taker: &Location<'_>, new: &NewPath) -> Result<(), String> {
    let block = taker.block.all();
    let inner = block.iter().filter(|line| line.name == "if").flat_map(|line| line.block.iter().flatten());
    if block.iter().copied().chain(inner).any(|line| line.name == "rewrite" && may_rewrite(line, new)) {
        return Err("the location of the new path rewrites it again".to_owned());
    }
    Ok(())
}

/// Whether the new path ends as the old one: `^/old/(.*)$ /new/$1`.
fn keeps_end(pattern: &Searching, written: &str, replacement: &str) -> bool {
    let ends = ["/(.*)$", "/(.*)", "/(.+)$"].iter().any(|end| written.ends_with(end));
    let is_one = written.starts_with('^') && !pattern.whole().starts_with(".*(?:");
    let last = pattern.compiled().map_or(0, |regex| regex.captures_len() - 1);
    ends && is_one && replacement.ends_with(&format!("/${last}"))
}

/// Where the new path of a `rewrite … last` leads, for routes of its own: each with the pattern that the old path must
/// match, the first that does counts.
///
/// # Errors
/// Why that is not known, or why a location reads the path in a way that a rewritten request would change.
pub(super) fn leads_to<'s, 'a>(
    site: &'s Site<'_, 'a>,
    new: &NewPath,
    own: Option<&Location<'_>>,
) -> Result<Vec<(Option<&'s Searching>, &'s Location<'a>)>, String> {
    let takers = match own {
        Some(_) => vec![(None, search(&site.locations, new, own)?)],
        None => search_all(&site.locations, new)?,
    };
    let reads = |line: &&Directive| {
        line.name != "try_files"
            && line.args.iter().any(|arg| {
                ["$uri", "${uri", "$document_uri", "$request_filename"].iter().any(|name| arg.contains(name))
            })
    };
    // Weir's rewrite comes behind what the location asks in an `if`, which sees the query of the client.
    let reads_query = |line: &&Directive| {
        new.changes_query
            && matches!(&*line.name, "if" | "return" | "rewrite" | "set")
            && line.args.iter().any(|arg| {
                ["$arg", "${arg", "$query_string", "$is_args"].iter().any(|name| arg.contains(name))
            })
    };
    for (_, taker) in &takers {
        is_left_alone(taker, new)?;
        let all = || taker.block.all().iter();
        let inner = all().flat_map(|line| line.block.iter().flatten());
        if let Some(line) = all().copied().find(reads_query) {
            return Err(format!(
                "`{}` of the location of the new path reads the query, which it changes",
                line.name
            ));
        }
        if let Some(line) = all().copied().chain(inner).find(reads) {
            return Err(format!("`{}` of the location of the new path reads that path", line.name));
        }
    }
    Ok(takers)
}

/// Whether two patterns may match one path.
fn may_both(a: &Searching, b: &Searching) -> bool {
    let (a, b) = (a.literal_start(), b.literal_start());
    a.starts_with(&*b) || b.starts_with(&*a)
}

/// A new path and the parameters behind its `?`.
fn split_query(target: &Template) -> Result<(Template, Map), String> {
    let (mut path, mut query) = (Template::default(), Template::default());
    let mut in_query = false;
    for part in target.parts() {
        match part {
            Part::Text(text) if !in_query => match text.split_once('?') {
                Some((before, behind)) => {
                    in_query = true;
                    path.push(Part::Text(before.to_owned()));
                    query.push(Part::Text(behind.to_owned()));
                }
                None => path.push(part.clone()),
            },
            part if in_query => query.push(part.clone()),
            part => path.push(part.clone()),
        }
    }
    let mut map = Map::new();
    let mut name = String::new();
    let mut value: Option<Template> = None;
    let refused = "the query of the new path is no list of names and values";
    let mut end = |name: &mut String, value: &mut Option<Template>| -> Result<(), String> {
        match (std::mem::take(name), value.take()) {
            (name, None) if name.is_empty() => Ok(()),
            (name, Some(value)) if !name.is_empty() && map.get(&name).is_none() => {
                map.set(name, value.to_setting());
                Ok(())
            }
            _ => Err(refused.to_owned()),
        }
    };
    for part in query.parts() {
        match part {
            Part::Text(text) => {
                if text.contains(['%', '+', ';']) {
                    return Err("the query of the new path has escapes".to_owned());
                }
                for c in text.chars() {
                    match (c, &mut value) {
                        ('&', _) => end(&mut name, &mut value)?,
                        ('=', None) => value = Some(Template::default()),
                        (c, None) => name.push(c),
                        (c, Some(value)) => value.push(Part::Text(c.to_string())),
                    }
                }
            }
            part => match &mut value {
                // `$args` itself: the client's query follows anyway.
                _ if *part == Part::Placeholder("query".to_owned()) && name.is_empty() => {}
                Some(value) => value.push(part.clone()),
                None => return Err(refused.to_owned()),
            },
        }
    }
    end(&mut name, &mut value)?;
    Ok((path, map))
}

/// What a pattern finds in a path that is known.
struct Fixed {
    groups: Vec<(String, String)>,
}

impl Fixed {
    fn of(pattern: &regex::bytes::Regex, path: &str) -> Option<Self> {
        let found = pattern.captures(path.as_bytes())?;
        let text = |at: usize| {
            let bytes = found.get(at).map(|group| group.as_bytes()).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        let groups = pattern
            .capture_names()
            .enumerate()
            .map(|(at, name)| (name.map_or_else(|| at.to_string(), str::to_owned), text(at)))
            .collect();
        Some(Self { groups })
    }

    fn fill(&self, target: &Template) -> Template {
        let mut filled = Template::default();
        for part in target.parts() {
            match part {
                Part::Placeholder(name) => match self.groups.iter().find(|(known, _)| known == name) {
                    Some((_, text)) => filled.push(Part::Text(text.clone())),
                    None => filled.push(part.clone()),
                },
                part => filled.push(part.clone()),
            }
        }
        filled
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
