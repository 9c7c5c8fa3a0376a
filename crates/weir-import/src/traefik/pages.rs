//! The middleware `errors`: pages that a service makes, in the place of errors.

use super::cx::{Cx, Thing, list};
use super::services::served;
use crate::config::{Filter, Target};
use crate::shared::template::Template;
use crate::shared::tree::{Entry, Fields};
use crate::yaml::{Map, Value};

/// Most statuses of a range that are written one by one.
const MAX_STATUSES: usize = 40;
/// What Weir has for it.
const NEAREST: &str = "errors: { 5xx: { upstream: pages, path: /5xx.html }, upstream: [5xx] }";

pub(super) fn translate(
    cx: &mut Cx<'_, '_>,
    thing: &Thing<'_>,
    entry: &Entry,
    fields: &mut Fields<'_>,
) -> Vec<Filter> {
    cx.ledger.changed(
        entry.piece,
        "of the page's own fields only its type and coding pass; an error whose page cannot be fetched stays as it is",
    );
    let statuses = list(fields, "status", cx.ledger);
    let service = fields.text("service", cx.ledger);
    let query = fields.text("query", cx.ledger);
    let mut refuse = |piece, why: String| {
        cx.ledger.refused(piece, why, NEAREST);
        Vec::new()
    };
    let Some((statuses, piece)) = statuses else {
        return refuse(entry.piece, "it names no status".to_owned());
    };
    let Some(keys) = keys(&statuses) else {
        return refuse(piece, format!("{} are no statuses of errors", statuses.join(", ")));
    };
    let path = match &query {
        Some((text, piece)) => match path(text) {
            Some(path) => path,
            None => return refuse(*piece, format!("`{text}` has a placeholder that Weir does not")),
        },
        None => "/".to_owned(),
    };
    let Some((name, at)) = service else { return refuse(entry.piece, "it names no service".to_owned()) };
    let upstream = match served(cx, &name, thing.provider, None, 0) {
        Ok(served) => match served.target {
            Target::Upstream(upstream) if served.filters.is_empty() => upstream,
            _ => {
                cx.ledger.refused(at, "its service is more than one group of servers", NEAREST);
                return Vec::new();
            }
        },
        Err(why) => {
            cx.ledger.refused(at, why, NEAREST);
            return Vec::new();
        }
    };
    for piece in [Some(piece), Some(at), query.map(|(_, piece)| piece)].into_iter().flatten() {
        cx.ledger.same(piece);
    }
    let mut map = Map::new();
    for key in &keys {
        map.set(key.clone(), Map::new().with("upstream", upstream.clone()).with("path", path.clone()));
    }
    let replaced = keys.iter().map(|key| match key.parse::<i64>() {
        Ok(status) => Value::Number(status),
        Err(_) => Value::from(key.as_str()),
    });
    map.set("upstream", Value::List(replaced.collect()));
    vec![Filter::new("errors", map)]
}

/// `500-599` as `5xx`, `404` and others as they are.
fn keys(statuses: &[String]) -> Option<Vec<String>> {
    let mut keys: Vec<String> = Vec::new();
    for text in statuses.iter().flat_map(|text| text.split(',')) {
        let (from, to) = text.trim().split_once('-').unwrap_or((text.trim(), text.trim()));
        let (from, to): (u16, u16) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        if !(400..600).contains(&from) || !(from..600).contains(&to) {
            return None;
        }
        let mut status = from;
        while status <= to {
            let is_class = status % 100 == 0 && to >= status + 99;
            keys.push(if is_class { format!("{}xx", status / 100) } else { status.to_string() });
            status += if is_class { 100 } else { 1 };
        }
    }
    keys.dedup();
    (!keys.is_empty() && keys.len() <= MAX_STATUSES).then_some(keys)
}

/// The path of the page with Weir's placeholders: `{status}`, and `{url}` escaped.
fn path(query: &str) -> Option<String> {
    let mark = |text: &str| text.replace("{status}", "\u{1}").replace("{url}", "\u{2}");
    let marked = mark(query);
    if marked.contains(['{', '}']) || !marked.starts_with('/') {
        return None;
    }
    let text = Template::text(&marked).to_setting();
    Some(text.replace('\u{1}', "{status}").replace('\u{2}', "{= url.encode(request.url) }"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_statuses_become_classes() {
        let of = |texts: &[&str]| {
            keys(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()).map(|keys| keys.join(" "))
        };
        assert_eq!(of(&["404", "500-599"]).as_deref(), Some("404 5xx"));
        assert_eq!(of(&["400-599"]).as_deref(), Some("4xx 5xx"));
        assert_eq!(of(&["501,503-505"]).as_deref(), Some("501 503 504 505"));
        for wrong in ["200-299", "x", "500-400", "401-498"] {
            assert_eq!(of(&[wrong]), None, "{wrong}");
        }
    }
}
