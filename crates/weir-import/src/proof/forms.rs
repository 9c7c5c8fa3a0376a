//! Texts of witnesses: hosts, paths in the forms that programs read differently, and values of conditions.

use super::ours::near;
use super::patterns::{Condition, PathKind, PathPattern, Site, Subject};
use super::sample::edges;
use super::samples;
use super::witness::{Ask, UNKNOWN_HOST};
use std::net::Ipv4Addr;

/// Most values of a condition, and of those that are varied.
const MAX_VALUES: usize = 64;

/// A host of the site; one that no config names if it has none.
pub(super) fn host_of(site: &Site) -> Option<String> {
    let named = site.hosts.iter().find_map(|(name, _)| host_samples(name).into_iter().next());
    named.or_else(|| Some(UNKNOWN_HOST.to_owned()))
}

/// Hosts that a name takes.
pub(super) fn host_samples(name: &str) -> Vec<String> {
    let lower = name.to_ascii_lowercase();
    if let Some(rest) = lower.strip_prefix("*.") {
        return vec![format!("w.{rest}"), format!("v.w.{rest}")];
    }
    if let Some(rest) = lower.strip_prefix('.') {
        return vec![rest.to_owned(), format!("w.{rest}")];
    }
    if let Some(rest) = lower.strip_suffix(".*") {
        return vec![format!("{rest}.test"), format!("{rest}.w.test")];
    }
    if let Some(pattern) = name.strip_prefix('~') {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let found = samples(pattern.trim_start_matches('*'));
        return found
            .into_iter()
            .map(|host| host.trim_matches('.').to_owned())
            .filter(|host| !host.is_empty() && host.chars().all(fits))
            .collect();
    }
    if lower.contains('$') || lower.is_empty() { Vec::new() } else { vec![lower] }
}

/// Paths that a pattern takes, decoded.
pub(super) fn path_samples(path: &PathPattern) -> Vec<String> {
    let found = match path.kind {
        PathKind::Exact | PathKind::Prefix => vec![path.text.clone()],
        PathKind::Regex { .. } => samples(&path.text),
    };
    found.into_iter().map(rooted).map(|text| escaped(&text)).collect()
}

/// Paths at the edges of a regular expression.
pub(super) fn path_edges(path: &PathPattern) -> Vec<String> {
    match path.kind {
        PathKind::Exact | PathKind::Prefix => Vec::new(),
        PathKind::Regex { .. } => plain_paths(edges(&path.text)),
    }
}

/// Paths at the edges of a regular expression of ours.
pub(super) fn our_edges(path: &str) -> Vec<String> {
    plain_paths(path.strip_prefix('~').map(edges).unwrap_or_default())
}

fn plain_paths(found: Vec<String>) -> Vec<String> {
    found.into_iter().filter(|text| is_plain(text)).map(|text| escaped(&rooted(text))).collect()
}

/// Whether a path has no sign that programs read in ways of their own. Paths with such signs are asked once for each
/// pattern, and not at its edges: they would tell the same difference again and again.
fn is_plain(path: &str) -> bool {
    path.chars().all(|c| c.is_ascii_alphanumeric() || "-._~/!$&'()*+,=:@".contains(c))
}

fn rooted(text: String) -> String {
    if text.starts_with('/') { text } else { format!("/w{text}") }
}

/// Paths that a pattern of ours takes.
pub(super) fn our_samples(path: &str) -> Vec<String> {
    let found = match path.strip_prefix('~') {
        Some(pattern) => samples(pattern),
        None => {
            let mut text = String::new();
            let mut depth = 0;
            for c in path.chars() {
                match c {
                    '{' => depth += 1,
                    '}' => {
                        depth -= 1;
                        text.push('w');
                    }
                    '*' if depth == 0 => {}
                    c if depth == 0 => text.push(c),
                    _ => {}
                }
            }
            vec![text]
        }
    };
    found.into_iter().filter(|text| text.starts_with('/')).map(|text| escaped(&text)).collect()
}

/// A path in the forms that programs read differently.
pub(super) fn forms(path: &str, all: bool) -> Vec<(String, &'static str)> {
    let bare = path.trim_end_matches('/');
    let folder = path.len() > bare.len();
    let mut found = vec![(path.to_owned(), "as written")];
    if folder && !bare.is_empty() {
        found.push((bare.to_owned(), "without its slash"));
    } else if !folder {
        found.push((format!("{path}/"), "with a slash"));
    }
    found.push((format!("{path}x"), "longer"));
    found.push((format!("{bare}/w/v"), "below it"));
    if !all {
        return found;
    }
    if bare.len() > 1 && bare.is_char_boundary(bare.len() - 1) && !bare.ends_with(['%', '/']) {
        let shorter = &bare[..bare.len() - 1];
        // Half an escape is no path.
        let cuts =
            shorter.ends_with('%') || shorter.get(..shorter.len() - 1).is_some_and(|s| s.ends_with('%'));
        if !cuts {
            found.push((shorter.to_owned(), "shorter"));
        }
    }
    found.push((format!("{path}?a=1&b=%2F"), "with a query"));
    found.push((format!("/w{path}"), "below another folder"));
    let upper = path.to_ascii_uppercase();
    if upper != path {
        found.push((upper, "in upper case"));
    }
    if let Some(at) = path.find(|c: char| c.is_ascii_alphabetic()).filter(|_| !path.contains('%')) {
        let letter = path.as_bytes()[at];
        let text = format!("{}%{letter:02X}{}", &path[..at], &path[at + 1..]);
        found.push((text, "with a letter escaped"));
    }
    if let Some(at) = path.find(|c: char| "!$&'()*+,:=@".contains(c)) {
        let sign = path.as_bytes()[at];
        found.push((format!("{}%{sign:02X}{}", &path[..at], &path[at + 1..]), "with a sign escaped"));
    }
    if !bare.is_empty() {
        found.push((format!("{bare}%2Fw"), "with %2F"));
        found.push((format!("{bare}/w%2Fv"), "with %2F below it"));
    }
    found.push((format!("/{path}"), "with two slashes"));
    found.push((format!("{bare}//w"), "with two slashes inside"));
    found.push((format!("/w/..{path}"), "with dot segments"));
    found.push((format!("{bare}/./w"), "with a dot segment"));
    found.push((format!("{bare}/w/../v"), "with dot segments inside"));
    found
}

/// A request with a condition on, each value once.
pub(super) fn conditional(ask: &Ask, condition: &Condition) -> Vec<Ask> {
    condition.values.iter().take(MAX_VALUES).filter_map(|value| with(ask, &condition.of, value)).collect()
}

/// The same with values that differ a little: what a comparison does with them tells a start, an end and a part apart.
pub(super) fn varied(ask: &Ask, condition: &Condition) -> Vec<Ask> {
    if matches!(condition.of, Subject::Client | Subject::Method) {
        return Vec::new();
    }
    let values = condition.values.iter().take(MAX_VALUES).flat_map(|value| near(value).into_iter().skip(1));
    values.filter_map(|value| with(ask, &condition.of, &value)).collect()
}

/// Requests with everything that an expression looks at. Each subject in turn takes all of its values. Meanwhile each of
/// the others has a value that it is compared with, and then one beside it, which a `!=` lets pass.
pub(super) fn together(base: &Ask, expression: &[(Subject, Vec<String>)]) -> Vec<Ask> {
    /// Most subjects of which each has both values beside all of the others.
    const MAX_FREE: usize = 4;
    let ways = 1_u32 << expression.len().min(MAX_FREE);
    let mut found = Vec::new();
    for way in 0..ways {
        for (varied, (_, values)) in expression.iter().enumerate() {
            // The bit of the subject itself tells no two ways apart.
            if way & (1 << varied.min(MAX_FREE)) != 0 && varied < MAX_FREE {
                continue;
            }
            for value in values.iter().take(MAX_VALUES) {
                let others = |at: usize| 1 + usize::from(way & (1 << (at % MAX_FREE)) != 0);
                let chosen = |at: usize, of: &Subject, known: &[String]| match at == varied {
                    true => Some(value.clone()),
                    false => nth(base, of, known, others(at)),
                };
                let all = expression.iter().enumerate();
                found.extend(with_all(
                    base,
                    all.map(|(at, (of, known))| (of, chosen(at, of, known))).collect(),
                ));
            }
        }
    }
    found
}

/// The same request with the conditions of a route on, in two ways.
pub(super) fn all_on(base: &Ask, own: &[(Subject, Vec<String>)]) -> Vec<Ask> {
    if own.is_empty() {
        return Vec::new();
    }
    // The witness already varies the path.
    let own = || own.iter().filter(|(of, _)| *of != Subject::Path);
    let on = |others| with_all(base, own().map(|(of, known)| (of, nth(base, of, known, others))).collect());
    [1, 2].into_iter().filter_map(on).collect()
}

/// The n-th value that a request can have, or the last. The very first value is in no comparison.
fn nth(base: &Ask, of: &Subject, known: &[String], n: usize) -> Option<String> {
    let can = |value: &&String| with(base, of, value).is_some();
    known.iter().skip(n).find(can).or_else(|| known.iter().rev().find(can)).cloned()
}

fn with_all(base: &Ask, mut all: Vec<(&Subject, Option<String>)>) -> Option<Ask> {
    // A path takes the place of the whole target, and parameters are added to it.
    all.sort_by_key(|(of, _)| **of != Subject::Path);
    all.into_iter().try_fold(base.clone(), |ask, (of, value)| with(&ask, of, &value?))
}

/// A request with a value that a condition looks at. None if no request can have it.
pub(super) fn with(ask: &Ask, of: &Subject, value: &str) -> Option<Ask> {
    if value.is_empty() || !value.bytes().all(|b| (b' '..=b'~').contains(&b)) || value.trim() != value {
        return None;
    }
    let mut ask = ask.clone();
    match of {
        Subject::Argument(name) => {
            let joined = if ask.target.contains('?') { '&' } else { '?' };
            // What separates parameters is escaped; the rest of the escapes of a path is enough.
            let value = escaped(value).replace('&', "%26").replace('+', "%2B").replace('=', "%3D");
            ask.target = format!("{}{joined}{name}={value}", ask.target);
        }
        Subject::Client => ask.client = Some(value.parse::<Ipv4Addr>().ok()?.to_string()),
        Subject::Cookie(name) => {
            let fits = !value.contains([';', ',', '"', ' ']);
            ask.fields.push(fits.then(|| ("cookie".to_owned(), format!("{name}={value}")))?);
        }
        Subject::Field(name) => ask.fields.push((name.clone(), value.to_owned())),
        Subject::Host => {
            let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            let is_host = value.chars().all(fits) && value.split('.').all(|label| !label.is_empty());
            ask.host = Some(is_host.then(|| value.to_owned())?);
        }
        Subject::Method => {
            if value.len() > 20 || !value.bytes().all(|b| b.is_ascii_uppercase()) {
                return None;
            }
            ask.method = value.to_owned();
        }
        Subject::Path if is_plain(value) => ask.target = escaped(&rooted(value.to_owned())),
        Subject::Path => return None,
    }
    Some(ask)
}

/// The same with the field twice, once with another value, in both orders: a guard that looks at one of them is passed
/// by the other. Fields that must be alone are left out: programs refuse two.
pub(super) fn twice(ask: &Ask, name: &str) -> Vec<Ask> {
    const SINGLE: &[&str] =
        &["authorization", "content-length", "content-type", "cookie", "expect", "host", "transfer-encoding"];
    if SINGLE.contains(&&*name.to_ascii_lowercase()) {
        return Vec::new();
    }
    let other = (name.to_owned(), "weir-other".to_owned());
    let (mut before, mut behind) = (ask.clone(), ask.clone());
    before.fields.insert(0, other.clone());
    behind.fields.push(other);
    vec![before, behind]
}

/// A decoded path as a target.
pub(super) fn escaped(path: &str) -> String {
    let mut text = String::new();
    for byte in path.bytes() {
        match byte {
            b'!'
            | b'$'..=b'/'
            | b'0'..=b'9'
            | b':'
            | b';'
            | b'='
            | b'@'
            | b'A'..=b'Z'
            | b'_'
            | b'a'..=b'z'
            | b'~' => {
                text.push(char::from(byte));
            }
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}
