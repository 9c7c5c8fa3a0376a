//! Paths in the form that Weir's router compares: docs/reference/routing.md#the-canonical-path.

use super::regex::literal;
use std::fmt::Write;

/// What the setting `strip_prefix` of the filter `rewrite` changes beside the path.
pub const TELLS_PREFIX: &str = "Weir also tells the upstream the prefix that it removed (X-Forwarded-Prefix), and \
                                puts it before the paths of its redirects and cookies (`links`)";

/// The canonical form of a decoded path: characters that no URI may hold raw are escaped.
#[must_use]
pub fn canonical(decoded: &str) -> String {
    let mut out = String::with_capacity(decoded.len());
    for byte in decoded.bytes() {
        let raw = byte.is_ascii_graphic()
            && !matches!(
                byte,
                b'"' | b'<' | b'>' | b'^' | b'{' | b'|' | b'}' | b'`' | b'%' | b'?' | b'#' | b'\\'
            );
        if raw {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}"); // into a String
        }
    }
    out
}

/// Why a path cannot be one of Weir's, if so: no request can have it.
#[must_use]
pub fn never_matches(decoded: &str) -> Option<&'static str> {
    if !decoded.starts_with('/') {
        return Some("a path begins with a slash");
    }
    if decoded.contains("//") {
        return Some("Weir makes `//` one slash before routes are matched, so no path has it");
    }
    let is_dotted = decoded.split('/').any(|segment| segment == "." || segment == "..");
    if is_dotted {
        return Some("dot segments are resolved before routes are matched, so no path has them");
    }
    if decoded.contains('\\') || decoded.chars().any(char::is_control) {
        return Some("Weir refuses paths with a backslash or a control byte");
    }
    None
}

/// A route's `path` for exactly this decoded path.
#[must_use]
pub fn exact(decoded: &str) -> String {
    let path = canonical(decoded);
    if has_syntax(&path) { format!("~{}", literal(&path)) } else { path }
}

/// A route's `path` for every path that begins with this decoded text. `/p/` gives `/p/*`, which takes `/p` as well;
/// [`takes_its_folder`] says so.
#[must_use]
pub fn prefix(decoded: &str) -> String {
    let path = canonical(decoded);
    if has_syntax(&path) { format!("~{}.*", literal(&path)) } else { format!("{path}*") }
}

/// The path without its last slash, if [`prefix`] takes that as well.
#[must_use]
pub fn takes_its_folder(decoded: &str) -> Option<&str> {
    let folder = decoded.strip_suffix('/').filter(|folder| !folder.is_empty())?;
    (!has_syntax(&canonical(decoded))).then_some(folder)
}

/// Whether Weir would read a part of a path as a name or a wildcard.
#[must_use]
pub fn has_syntax(path: &str) -> bool {
    path.contains(['*', '{', '}']) || path.starts_with('~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_canonical() {
        let cases = [
            ("/a b", "/a%20b", "/a%20b*"),
            ("/p/", "/p/", "/p/*"),
            ("/a*b", "~/a\\*b", "~/a\\*b.*"),
            ("/ü", "/%C3%BC", "/%C3%BC*"),
        ];
        for (decoded, is_exact, is_prefix) in cases {
            assert_eq!((exact(decoded).as_str(), prefix(decoded).as_str()), (is_exact, is_prefix));
        }
        assert_eq!(takes_its_folder("/p/"), Some("/p"));
        assert_eq!((takes_its_folder("/"), takes_its_folder("/p")), (None, None));
    }
}
