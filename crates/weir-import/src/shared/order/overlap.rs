//! Whether two candidates may match one request, and whether one covers the other.

use super::super::expression::Expression;
use super::{Candidate, Host, Path};

/// Whether one request may be matched by both; in doubt yes.
pub(in crate::shared) fn overlap(one: &Candidate, other: &Candidate) -> bool {
    paths_overlap(&one.path, &other.path)
        && all_hosts_overlap(&one.hosts, &other.hosts)
        && {
            let (a, b) = (&one.matches.methods, &other.matches.methods);
            a.is_empty() || b.is_empty() || a.iter().any(|method| b.contains(method))
        }
        && {
            let (a, b) = (&one.matches.listeners, &other.matches.listeners);
            a.is_empty() || b.is_empty() || a.iter().any(|listener| b.contains(listener))
        }
        && !leaves_path(one, &other.path)
        && !leaves_path(other, &one.path)
        && !excludes(&one.matches.headers, &other.matches.headers)
        && !excludes(&one.matches.query, &other.matches.query)
}

/// Whether the expression of a route excludes all paths of another: `!request.path.startsWith("/admin")`.
fn leaves_path(route: &Candidate, path: &Path) -> bool {
    let Some(when) = route.matches.when.as_deref().filter(|when| !when.contains(" || ")) else {
        return false;
    };
    let start = beginning(path);
    let excluded = |prefix: &str| {
        let term = Expression::raw("request.path").starts_with(prefix).not();
        when.split(" && ").any(|own| own == term.as_str())
    };
    start.char_indices().any(|(at, c)| excluded(&start[..at + c.len_utf8()]))
}

/// Whether both require literals of one name that differ.
fn excludes(one: &[(String, String)], other: &[(String, String)]) -> bool {
    let is_literal = |pattern: &str| pattern != "*" && !pattern.starts_with('~');
    one.iter().any(|(name, pattern)| {
        is_literal(pattern)
            && other.iter().any(|(key, value)| key == name && is_literal(value) && value != pattern)
    })
}

fn all_hosts_overlap(one: &[Host], other: &[Host]) -> bool {
    one.is_empty()
        || other.is_empty()
        || one.iter().any(|a| other.iter().any(|b| hosts_overlap(Some(a), Some(b))))
}

pub(super) fn hosts_overlap(one: Option<&Host>, other: Option<&Host>) -> bool {
    match (one, other) {
        (None, _) | (_, None) => true,
        (Some(Host::Exact(a)), Some(Host::Exact(b))) => a == b,
        (Some(Host::Exact(name)), Some(Host::Suffix(ending)))
        | (Some(Host::Suffix(ending)), Some(Host::Exact(name))) => name.ends_with(ending.as_str()),
        (Some(Host::Suffix(a)), Some(Host::Suffix(b))) => a.ends_with(b.as_str()) || b.ends_with(a.as_str()),
    }
}

fn paths_overlap(one: &Path, other: &Path) -> bool {
    let (a, b) = (beginning(one), beginning(other));
    match (one, other) {
        (Path::Exact(a), Path::Exact(b)) => a == b,
        (Path::Exact(exact), _) => exact.starts_with(b),
        (_, Path::Exact(exact)) => exact.starts_with(a),
        _ => a.starts_with(b) || b.starts_with(a),
    }
}

pub(super) fn beginning(path: &Path) -> &str {
    match path {
        Path::Exact(text) | Path::Prefix(text) => text,
        Path::Regex { start, .. } => start,
    }
}

/// Whether every request of `other` is one of `one`.
pub(super) fn covers(one: &Candidate, other: &Candidate) -> bool {
    let within = |a: &[(String, String)], b: &[(String, String)]| a.iter().all(|pair| b.contains(pair));
    path_covers(&one.path, &other.path)
        && hosts_cover(&one.hosts, &other.hosts)
        && (one.matches.methods.is_empty()
            || !other.matches.methods.is_empty()
                && other.matches.methods.iter().all(|method| one.matches.methods.contains(method)))
        && (one.matches.listeners.is_empty()
            || !other.matches.listeners.is_empty()
                && other.matches.listeners.iter().all(|listener| one.matches.listeners.contains(listener)))
        && within(&one.matches.headers, &other.matches.headers)
        && within(&one.matches.query, &other.matches.query)
        && (one.matches.when.is_none() || one.matches.when == other.matches.when)
}

pub(super) fn path_covers(one: &Path, other: &Path) -> bool {
    match (one, other) {
        (Path::Prefix(prefix), _) => beginning(other).starts_with(prefix.as_str()),
        (Path::Exact(a), Path::Exact(b)) => a == b,
        (Path::Regex { whole: a, .. }, Path::Regex { whole: b, .. }) => a == b,
        _ => false,
    }
}

pub(super) fn hosts_cover(one: &[Host], other: &[Host]) -> bool {
    let covered = |host: &Host| {
        one.iter().any(|by| match (by, host) {
            (Host::Exact(a), Host::Exact(b)) => a == b,
            (Host::Suffix(a), Host::Exact(b) | Host::Suffix(b)) => b.ends_with(a.as_str()),
            (Host::Exact(_), Host::Suffix(_)) => false,
        })
    };
    one.is_empty() || !other.is_empty() && other.iter().all(covered)
}
