//! `error_page`: files, redirects and pages that an upstream makes, as the filter `errors`.

use super::context::{Cx, Scope};
use super::files::folder;
use super::location::{Location, find, named};
use super::proxy::{path_behind, proxied};
use super::read::Directive;
use super::rewrite::{Answer, run, to_url};
use super::site::Site;
use crate::config::Filter;
use crate::ledger::Verdict;
use crate::shared::path;
use crate::yaml::{Map, Value};

/// What Weir has for it.
const NEAREST: &str = "errors: { 404: { file } }, or { redirect }, or { upstream, path }";

/// Why a page is refused that changes the status.
const OTHER_STATUS: &str = "a page with another status than the error's";

/// The filter `errors` for a location. `answered` is the status with which Weir's route itself answers, if it does: an
/// answer of `respond` is none of the gateway's own errors, which are all that the filter replaces by default.
pub(super) fn errors<'a>(
    cx: &mut Cx<'a, '_>,
    site: &Site<'_, 'a>,
    scope: &Scope<'a>,
    answered: Option<u16>,
) -> Option<Filter> {
    let mut map = Map::new();
    let mut statuses: Vec<u16> = Vec::new();
    for page in scope.block.nearest("error_page") {
        // The target of the route does it: files with `missing`.
        let is_own = || scope.block.own("error_page").iter().any(|own| own.piece == page.piece);
        let is_done = matches!(cx.ledger.verdict(page.piece), Some(Verdict::Same | Verdict::Changed));
        if is_done && is_own() && page.args.get(1).is_some_and(|sign| sign == "=") {
            continue;
        }
        let Some((target, words)) = page.args.split_last() else { continue };
        let (codes, status) = match words.split_last() {
            Some((last, codes)) if last.starts_with('=') => (codes, Some(last.trim_start_matches('='))),
            _ => (words, None),
        };
        let made = match instead(cx, site, scope, page, (codes, status, target)) {
            Ok(made) => made,
            Err(why) => {
                cx.ledger.refused(page.piece, why, nearest(codes, status));
                continue;
            }
        };
        cx.ledger.same(page.piece);
        for code in codes {
            map.set(code.clone(), made.clone());
            statuses.extend(code.parse::<u16>());
        }
    }
    if map.is_empty() {
        return None;
    }
    let intercept =
        scope.block.one("proxy_intercept_errors").or_else(|| scope.block.one("fastcgi_intercept_errors"));
    if let Some(intercept) = intercept {
        cx.ledger.same(intercept.piece);
    }
    let is_on = intercept.is_some_and(|intercept| intercept.first() == "on");
    statuses.retain(|status| is_on || answered == Some(*status));
    statuses.dedup();
    if !statuses.is_empty() {
        let list = statuses.into_iter().map(|status| Value::Number(status.into())).collect();
        map.set("upstream", Value::List(list));
    }
    Some(Filter::new("errors", map))
}

/// The way out that a person is told of.
fn nearest(codes: &[String], status: Option<&str>) -> &'static str {
    let has = |wanted: &[&str]| codes.iter().any(|code| wanted.contains(&&**code));
    match status {
        // The status is that of the page: a login, an application behind files, another server.
        Some(_) if has(&["401", "403"]) => {
            "errors: { 401: { redirect: \"/login?rd={= request.url }\" } }, or the filter oidc"
        }
        Some(_) if has(&["404"]) => {
            "files: { root, missing: UPSTREAM } for files; for another upstream, a route"
        }
        Some(_) if has(&["502", "503", "504"]) => {
            "a second endpoint in the upstream, { address, priority: 1 }, which is used when the first fails"
        }
        _ => NEAREST,
    }
}

/// What takes the place of an error. `words` are the statuses, the word behind `=`, and the target.
fn instead<'a>(
    cx: &mut Cx<'a, '_>,
    site: &Site<'_, 'a>,
    scope: &Scope<'a>,
    page: &'a Directive,
    words: (&[String], Option<&str>, &str),
) -> Result<Map, String> {
    let (codes, status, target) = words;
    if target.contains("://") || target.starts_with("$scheme") {
        let status = match status {
            None | Some("") => 302,
            Some(status) => status.parse().map_err(|_| format!("`={status}` is no status"))?,
        };
        let filter = to_url(cx, scope, target, status, page.piece)?;
        return redirected(&filter);
    }
    if target.contains('$') {
        return Err("the page is chosen by the request".to_owned());
    }
    let location = match target.strip_prefix('@') {
        Some(name) => named(&site.locations, name),
        None if target.starts_with('/') => find(&site.locations, target),
        None => None,
    };
    let location = location.ok_or("no location makes the page")?;
    let mut inner = site.scope(location);
    inner.set.extend(scope.set.clone());
    let own = location.block.all().to_vec();
    let done = match location.directive {
        Some(_) => run(cx, site, &mut inner, &own, Some(location)),
        None => Default::default(),
    };
    if let (Some(Answer::Redirect(filter)), true) = (&done.answer, done.filters.is_empty()) {
        return redirected(filter);
    }
    if let (Some(Answer::Respond(map)), true) =
        (&done.answer, done.filters.is_empty() && done.apart.is_empty())
    {
        return answered(codes, status, map);
    }
    if done.answer.is_some() || !done.filters.is_empty() || !done.apart.is_empty() || !done.closed.is_empty()
    {
        return Err("the page's location answers by itself, or changes the path".to_owned());
    }
    if status.is_some() {
        return Err(OTHER_STATUS.to_owned());
    }
    let pass = ["proxy_pass", "grpc_pass"].iter().find_map(|name| location.block.own(name).last().copied());
    match pass {
        Some(pass) if pass.name == "proxy_pass" => from_upstream(cx, &inner, page, target, pass),
        Some(_) => Err("the page comes from an upstream that speaks gRPC".to_owned()),
        None => from_file(cx, location, &inner, target),
    }
}

/// The text of a `return` in place of an error. nginx keeps the error's status unless there is a `=`.
fn answered(codes: &[String], status: Option<&str>, answer: &Map) -> Result<Map, String> {
    let own = match answer.get("status") {
        Some(Value::Number(status)) => status.to_string(),
        _ => "200".to_owned(),
    };
    let body = answer.get("body").ok_or("its location answers without a text")?;
    let sent = match status {
        None => None,
        Some("") => Some(&*own),
        Some(status) => Some(status),
    };
    if sent.is_some_and(|sent| codes.iter().any(|code| code != sent)) {
        return Err(OTHER_STATUS.to_owned());
    }
    let mut map = Map::new().with("body", body.clone());
    if let Some(Value::Map(fields)) = answer.get("headers") {
        map.set_some("type", fields.get("content-type").cloned());
    }
    Ok(map)
}

/// A redirect in place of an error.
fn redirected(filter: &Filter) -> Result<Map, String> {
    let Value::Map(settings) = &filter.settings else { return Err("no redirect".to_owned()) };
    let Some(Value::Text(to)) = settings.get("to") else {
        return Err("a redirect to https in place of an error".to_owned());
    };
    if settings.get("keep_query").is_none() {
        return Err("on an error Weir redirects without the query".to_owned());
    }
    let status = match settings.get("status") {
        Some(Value::Number(status)) => *status,
        _ => 308,
    };
    if ![302, 303, 307].contains(&status) {
        return Err(format!(
            "an error is answered with a redirect of status {status}: Weir sends 302, 303 or 307"
        ));
    }
    let mut map = Map::new().with("redirect", to.as_str());
    if status != 302 {
        map.set("status", status);
    }
    Ok(map)
}

/// The page of an upstream: nginx sends it the request, Weir asks for a page.
fn from_upstream<'a>(
    cx: &mut Cx<'a, '_>,
    scope: &Scope<'a>,
    page: &Directive,
    target: &str,
    pass: &'a Directive,
) -> Result<Map, String> {
    let sent = proxied(cx, scope, pass)?;
    // A named location sends the path of the request.
    let path = if target.starts_with('@') { "{path}".to_owned() } else { path::canonical(target) };
    let asked = path_behind(scope, pass, &sent.filters, path);
    let why = "Weir asks for the page with GET, without the query and most fields of the client, and takes it if its \
               status is 200; nginx sends the whole request";
    cx.ledger.changed(page.piece, why);
    Ok(Map::new().with("upstream", sent.upstream).with("path", asked))
}

fn from_file<'a>(
    cx: &mut Cx<'a, '_>,
    location: &Location<'a>,
    scope: &Scope<'a>,
    target: &str,
) -> Result<Map, String> {
    let block = &location.block;
    if target.starts_with('@') {
        return Err("a named location with files".to_owned());
    }
    // `try_files $uri …` finds the page if it is there.
    let searches = |search: &&Directive| !search.first().starts_with("$uri");
    if ["fastcgi_pass", "uwsgi_pass", "scgi_pass"].iter().any(|name| !block.own(name).is_empty())
        || block.own("try_files").iter().any(searches)
    {
        return Err("the page is made by a script, or searched".to_owned());
    }
    if !block.own("alias").is_empty() {
        return Err("the page has an alias".to_owned());
    }
    let folder = folder(cx, scope).map_err(|why| format!("the page has no folder: {why}"))?;
    Ok(Map::new().with("file", format!("{}{target}", folder.root)))
}
