//! `return`: a response of its own, or a redirect.

use super::super::context::{Cx, Scope};
use super::super::proxy::without_query;
use super::super::read::Directive;
use super::super::text::template;
use super::Answer;
use crate::config::Filter;
use crate::ledger::Piece;
use crate::shared::filters::{redirect, redirect_to_https, respond};
use crate::shared::template::{Part, Template};
use crate::yaml::Map;

/// `return CODE [TEXT]`, `return CODE URL`, `return URL`.
pub(super) fn answer(
    cx: &mut Cx<'_, '_>,
    scope: &Scope<'_>,
    directive: &Directive,
) -> Result<Answer, String> {
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
pub(in crate::nginx) fn to_url(
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

pub(super) fn redirect_to(
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
    // A loop in nginx as well, if the server has TLS. Not behind a trusted proxy: if that says that the client used
    // TLS, `https: true` lets the request pass, and no route answers it. nginx redirects it too.
    let trusts_proxies = cx.config.more.get("trusted_proxies").is_some();
    if setting == "https://{host}{path}" && keeps_query && scope.scheme == Some("http") && !trusts_proxies {
        return Ok(redirect_to_https(status));
    }
    Ok(redirect(&setting, status, keeps_query))
}

/// Whether this beginning of a URL reaches into its path.
fn is_in_path(text: &str) -> bool {
    match text.split_once("://") {
        Some((_, rest)) => rest.contains(['/', '?', '#']),
        None => text.starts_with('/'),
    }
}
