//! One `rewrite` directive: a redirect, or a new path on the same host.

use super::super::context::{Cx, Scope};
use super::super::location::{Kind, NewPath};
use super::super::proxy::without_query;
use super::super::read::Directive;
use super::super::site::groups;
use super::super::text::template;
use super::answer::redirect_to;
use super::next_location::{behind, may_go_on, taker};
use super::pattern::{Fixed, Whole, keeps_end, may_both, strips, whole_path};
use super::{Answer, Apart, Rewritten, Search, Where};
use crate::config::Filter;
use crate::ledger::Piece;
use crate::shared::expression::Expression;
use crate::shared::filters::{closed, when};
use crate::shared::regex::{Searching, Subject};
use crate::shared::template::{Part, Template};
use crate::yaml::Map;

const NEAREST: &str = "rewrite: { replace } of a route with the upstream of the new path";

pub(super) fn rewrite<'a>(
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
    // A pattern that matches every path needs no groups: its group is the path.
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

/// Refuses a `rewrite` and answers its requests with 503: otherwise they would reach an upstream that nginx keeps them
/// from, perhaps past a guard. If the pattern is not understood, closes the whole block.
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
            // `add` would keep a client's parameter of the same name, in front of this one.
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
