//! Paths and wildcards of included files, as texts.

use std::path::{Component, Path};

/// Joins a path that a file names with the folder it is relative to, without `.` and `..`.
#[must_use]
pub fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let both =
        if path.starts_with('/') || folder.is_empty() { path.to_owned() } else { format!("{folder}/{path}") };
    let is_absolute = both.starts_with('/');
    for part in Path::new(&both).components() {
        match part {
            Component::ParentDir if parts.last().is_some_and(|last| *last != "..") => _ = parts.pop(),
            Component::ParentDir if is_absolute => {}
            Component::ParentDir => parts.push(".."),
            Component::Normal(name) => parts.push(name.to_str().unwrap_or_default()),
            _ => {}
        }
    }
    let joined = parts.join("/");
    if is_absolute { format!("/{joined}") } else { joined }
}

/// The folder of a file.
#[must_use]
pub fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Whether a path is a pattern of [`SourceTree::glob`](super::SourceTree::glob).
#[must_use]
pub fn has_wildcard(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// Whether a name fits a pattern of the shell. Linear: only the last `*` is ever tried again.
pub(super) fn fits_wildcard(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n, mut retry) = (0, 0, None);
    while n < name.len() {
        let next = match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, n));
                p += 1;
                continue;
            }
            Some('?') => Some(p + 1),
            Some('[') => fits_class(&pattern, p, name[n]),
            Some(c) if *c == name[n] => Some(p + 1),
            _ => None,
        };
        match (next, retry) {
            (Some(next), _) => (p, n) = (next, n + 1),
            (None, Some((after, at))) => {
                retry = Some((after, at + 1));
                (p, n) = (after, at + 1);
            }
            (None, None) => return false,
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
}

/// Where the pattern goes on after the class at `open`, if `c` is in it.
fn fits_class(pattern: &[char], open: usize, c: char) -> Option<usize> {
    let close = (open + 2..pattern.len()).find(|at| pattern[*at] == ']')?;
    let inner = &pattern[open + 1..close];
    let (negated, inner) = match inner.first() {
        Some('!' | '^') => (true, &inner[1..]),
        _ => (false, inner),
    };
    let mut at = 0;
    let mut found = false;
    while at < inner.len() {
        if inner.get(at + 1) == Some(&'-') && at + 2 < inner.len() {
            found |= inner[at] <= c && c <= inner[at + 2];
            at += 3;
        } else {
            found |= inner[at] == c;
            at += 1;
        }
    }
    (found != negated).then_some(close + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_fit_names() {
        let cases = [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf.bak", false),
            ("a*b*c", "axxbxxc", true),
            ("a*b*c", "axxbxx", false),
            ("[a-c]?.conf", "b1.conf", true),
            ("[!a-c]*", "b", false),
            ("[", "[", false),
        ];
        for (pattern, name, fits) in cases {
            assert_eq!(fits_wildcard(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn paths_are_joined() {
        let cases = [
            ("etc", "a.conf", "etc/a.conf"),
            ("etc/x", "../a", "etc/a"),
            ("", "a", "a"),
            ("a", "/b/../c", "/c"),
        ];
        for (folder, path, joined) in cases {
            assert_eq!(join(folder, path).trim_start_matches("./"), joined, "{folder} {path}");
        }
    }
}
