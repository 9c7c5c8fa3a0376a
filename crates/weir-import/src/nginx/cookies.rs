//! `proxy_cookie_flags`, `proxy_cookie_path` and `proxy_cookie_domain`: the filter `cookies`.

use super::context::{Cx, Scope};
use super::read::Directive;
use super::text::template;
use crate::config::Filter;
use crate::yaml::Map;

/// What one cookie gets.
#[derive(Clone, Default)]
struct Flags {
    secure: Option<bool>,
    http_only: Option<bool>,
    same_site: Option<&'static str>,
}

/// The flags by the cookie's name, in the order of the file; `*` for all.
type Named = Vec<(String, Flags)>;

const NEAREST: &str = "the filter cookies";

/// The filter for the cookies of an upstream.
pub(super) fn cookies(cx: &mut Cx<'_, '_>, scope: &Scope<'_>) -> Option<Filter> {
    let mut all = Flags::default();
    let paths = paths(cx, scope, &mut all);
    let domains = domains(cx, scope);
    let mut named = flags(cx, scope);
    let has_all = named.iter().any(|(name, _)| name == "*");
    if !has_all && (!paths.is_empty() || !domains.is_empty() || !all.is_empty()) {
        named.push(("*".to_owned(), Flags::default()));
    }
    let mut map = Map::new();
    for (name, own) in named {
        let mut rule = Map::new();
        rule.set_some("secure", own.secure.or(all.secure));
        rule.set_some("http_only", own.http_only.or(all.http_only));
        rule.set_some("same_site", own.same_site.or(all.same_site));
        for (key, pairs) in [("path", &paths), ("domain", &domains)] {
            if !pairs.is_empty() {
                let mut replaced = Map::new();
                pairs.iter().for_each(|(from, to)| replaced.set(from.clone(), to.clone()));
                rule.set(key, replaced);
            }
        }
        if !rule.is_empty() {
            map.set(name, rule);
        }
    }
    (!map.is_empty()).then(|| Filter::new("cookies", map))
}

impl Flags {
    const fn is_empty(&self) -> bool {
        self.secure.is_none() && self.http_only.is_none() && self.same_site.is_none()
    }

    /// Takes a word; false if it is none.
    fn take(&mut self, word: &str) -> bool {
        match &*word.to_ascii_lowercase() {
            "secure" => self.secure = Some(true),
            "nosecure" => self.secure = Some(false),
            "httponly" => self.http_only = Some(true),
            "nohttponly" => self.http_only = Some(false),
            "samesite=lax" => self.same_site = Some("lax"),
            "samesite=none" => self.same_site = Some("none"),
            "samesite=strict" => self.same_site = Some("strict"),
            "nosamesite" => self.same_site = Some("remove"),
            _ => return false,
        }
        true
    }

    /// Whether browsers would drop the cookie, so that Weir refuses the rule.
    fn is_dropped(&self) -> bool {
        self.same_site == Some("none") && self.secure != Some(true)
    }
}

fn flags(cx: &mut Cx<'_, '_>, scope: &Scope<'_>) -> Named {
    let mut named = Named::new();
    for line in scope.block.nearest("proxy_cookie_flags") {
        let (name, words) = (line.first(), line.args.get(1..).unwrap_or_default());
        if name == "off" {
            cx.ledger.same(line.piece);
            continue;
        }
        let name = match name.strip_prefix('~') {
            Some("" | "." | ".*" | "^" | "^.*$") => "*",
            Some(_) => {
                let why = "a cookie by a regular expression";
                cx.ledger.refused(line.piece, why, "the filter cookies, with a pattern such as session_*");
                continue;
            }
            None => name,
        };
        if named.iter().any(|(known, _)| known == "*" || known.eq_ignore_ascii_case(name)) {
            cx.ledger.left_out(line.piece, "a directive before it takes these cookies");
            continue;
        }
        let mut own = Flags::default();
        let wrong = words.iter().find(|word| !own.take(word));
        match wrong {
            Some(word) => cx.ledger.refused(line.piece, format!("`{word}` is no flag of a cookie"), NEAREST),
            None if own.is_dropped() => {
                let why = "browsers drop a cookie with SameSite=None that is not Secure";
                cx.ledger.refused(line.piece, why, "secure: true beside same_site: none");
            }
            None => {
                cx.ledger.same(line.piece);
                named.push((name.to_owned(), own));
            }
        }
    }
    named
}

/// Prefixes of paths with what replaces them, without those behind a shorter one, which takes their cookies first.
/// What stands behind a `;` in a replacement are flags: an old way to set them.
fn paths(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, all: &mut Flags) -> Vec<(String, String)> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for line in scope.block.nearest("proxy_cookie_path") {
        let Some((from, to)) = pair(cx, scope, line) else { continue };
        let mut parts = to.split(';').map(str::trim);
        let path = parts.next().unwrap_or_default().to_owned();
        let mut own = all.clone();
        if let Some(word) = parts.filter(|word| !word.is_empty()).find(|word| !own.take(word)) {
            cx.ledger.refused(line.piece, format!("`{word}` is no flag of a cookie"), NEAREST);
            continue;
        }
        if !from.starts_with('/') || !path.starts_with('/') || own.is_dropped() {
            cx.ledger.refused(line.piece, "browsers would drop such a cookie", NEAREST);
            continue;
        }
        if to.contains(';') && from != "/" {
            let why = "flags for cookies with some paths alone";
            cx.ledger.refused(line.piece, why, "the filter cookies, by names");
            continue;
        }
        if pairs.iter().any(|(known, _)| from.starts_with(&**known)) {
            cx.ledger.left_out(line.piece, "a directive before it takes these cookies");
            continue;
        }
        *all = own;
        cx.ledger.same(line.piece);
        if from != path {
            pairs.push((from, path));
        }
    }
    pairs
}

fn domains(cx: &mut Cx<'_, '_>, scope: &Scope<'_>) -> Vec<(String, String)> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for line in scope.block.nearest("proxy_cookie_domain") {
        let Some((from, to)) = pair(cx, scope, line) else { continue };
        cx.ledger.same(line.piece);
        if !pairs.iter().any(|(known, _)| *known == from) {
            pairs.push((from, to));
        }
    }
    pairs
}

/// The two texts of a directive. One that is `off`, or that Weir cannot take, is judged here.
fn pair(cx: &mut Cx<'_, '_>, scope: &Scope<'_>, line: &Directive) -> Option<(String, String)> {
    let [from, to] = &*line.args else {
        match line.first() {
            "off" => cx.ledger.same(line.piece),
            _ => cx.ledger.refused(line.piece, "it takes a text and what replaces it", NEAREST),
        }
        return None;
    };
    if from.starts_with('~') {
        cx.ledger.refused(line.piece, "a regular expression", NEAREST);
        return None;
    }
    let both = [from, to].map(|text| template(cx, scope, text).ok().and_then(|text| text.as_literal()));
    let [Some(from), Some(to)] = both else {
        let why = "Weir translates the upstream's own host and a removed prefix by itself, and fixed texts";
        cx.ledger.refused(line.piece, why, "links: rewrite of the upstream, or the filter cookies");
        return None;
    };
    Some((from, to))
}
