//! Turns a request's path into the name of a file below the root.

use percent_encoding::percent_encode;
use weir_filter::template::RESERVED;

/// Longest name, in bytes: Linux's limit (PATH_MAX).
const NAME_BYTES: usize = 4096;

/// A name below the root. No segment is empty, `.` or `..`, or contains a slash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    /// The segments with `/` between them; empty for the root itself.
    pub(crate) bytes: Vec<u8>,
    /// Whether the path ended in a slash, so that it can only mean a folder.
    pub(crate) folder: bool,
}

/// Why a path names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// One of its segments begins with a dot.
    Hidden,
    /// No file can have that name: it contains an escaped slash, `..`, or a zero byte.
    Impossible,
}

impl Name {
    /// Reads a path as the route's filters left it. Each segment is decoded once and must then be a plain name, which
    /// cannot lead up or into another folder.
    pub(crate) fn of(path: &[u8], hidden: bool) -> Result<Self, Unnamed> {
        let mut bytes = Vec::with_capacity(path.len());
        for segment in path.split(|&b| b == b'/').filter(|segment| !segment.is_empty()) {
            let first = bytes.is_empty();
            if !first {
                bytes.push(b'/');
            }
            let at = bytes.len();
            decode(segment, &mut bytes)?;
            let name = bytes.get(at..).unwrap_or_default();
            if matches!(name, b"" | b"." | b"..") || name.iter().any(|&b| b == b'/' || b == 0) {
                return Err(Unnamed::Impossible);
            }
            // RFC 8615: `.well-known` is public, the only dot name that is.
            if !hidden && name.starts_with(b".") && !(first && name == b".well-known") {
                return Err(Unnamed::Hidden);
            }
        }
        if bytes.len() > NAME_BYTES {
            return Err(Unnamed::Impossible);
        }
        Ok(Self { folder: path.ends_with(b"/") || bytes.is_empty(), bytes })
    }

    /// A name within this folder.
    pub(crate) fn join(&self, name: &str) -> Vec<u8> {
        let mut joined = self.bytes.clone();
        if !joined.is_empty() {
            joined.push(b'/');
        }
        joined.extend_from_slice(name.as_bytes());
        joined
    }
}

fn decode(segment: &[u8], out: &mut Vec<u8>) -> Result<(), Unnamed> {
    let mut rest = segment;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let [high, low, tail @ ..] = rest else { return Err(Unnamed::Impossible) };
        let (Some(high), Some(low)) = (digit(*high), digit(*low)) else { return Err(Unnamed::Impossible) };
        out.push(high << 4 | low);
        rest = tail;
    }
    Ok(())
}

const fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// A name as a URL segment: everything but unreserved characters (RFC 3986 §2.3) is escaped.
pub(crate) fn escape(name: &[u8], out: &mut String) {
    out.extend(percent_encode(name, &RESERVED));
}

/// The redirect from a folder's name to the same name with a slash. It is relative, so it cannot lead to another host
/// and needs neither scheme nor prefix (RFC 3986 §4.2: `./` keeps a colon in the name from ending a scheme).
pub(crate) fn with_slash(path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
    let last = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
    let mut location = b"./".to_vec();
    location.extend_from_slice(last); // canonical, so already escaped
    location.push(b'/');
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    location
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (path, name, folder) in [
            ("/", "", true),
            ("", "", true),
            ("/a.css", "a.css", false),
            ("/a/b/", "a/b", true),
            ("//a///b", "a/b", false),
            ("/a%20b", "a b", false),
            ("/%C3%A4.txt", "ä.txt", false),
            ("/a%252e", "a%2e", false),
            ("/.well-known/security.txt", ".well-known/security.txt", false),
            ("/...", "...", false),
        ] {
            let expected = Name { bytes: name.as_bytes().to_vec(), folder };
            assert_eq!(Name::of(path.as_bytes(), path == "/..."), Ok(expected), "{path}");
        }
    }

    #[test]
    fn no_path_leaves_the_root() {
        for path in [
            "/..",
            "/../etc/passwd",
            "/a/../../b",
            "/%2e%2e/etc/passwd",
            "/%2E%2E/",
            "/.%2e/a",
            "/a/%2e%2e/%2e%2e/b",
            "/..%2fetc",
            "/a%2Fb",
            "/%2f..%2f",
            "/a%00.css",
            "/%",
            "/%2",
            "/%zz",
            "/a/.",
            "/%2e",
            "..",
            "../a",
        ] {
            assert_eq!(Name::of(path.as_bytes(), true), Err(Unnamed::Impossible), "{path}");
        }
        // Encoded twice, it is an ordinary name and is not decoded again.
        assert_eq!(Name::of(b"/%252e%252e/a", true).unwrap().bytes, b"%2e%2e/a");
        assert_eq!(Name::of(&[b'a'; NAME_BYTES + 1], true), Err(Unnamed::Impossible));
    }

    #[test]
    fn dots_hide() {
        for path in
            ["/.git/config", "/a/.env", "/%2egit", "/a/.well-known", "/.well-known/.env", "/.well-knownx"]
        {
            assert_eq!(Name::of(path.as_bytes(), false), Err(Unnamed::Hidden), "{path}");
            assert!(Name::of(path.as_bytes(), true).is_ok(), "{path}");
        }
    }

    #[test]
    fn redirects_stay_on_the_host() {
        for (path, query, expected) in [
            ("/a/b", None, "./b/"),
            ("/b", Some("x=1"), "./b/?x=1"),
            ("//evil.example", None, "./evil.example/"),
            ("/javascript:alert(1)", None, "./javascript:alert(1)/"),
        ] {
            assert_eq!(with_slash(path.as_bytes(), query.map(str::as_bytes)), expected.as_bytes(), "{path}");
        }
    }

    #[test]
    fn escaped_names() {
        let mut out = String::new();
        escape("a b/<ä>.txt".as_bytes(), &mut out);
        assert_eq!(out, "a%20b%2F%3C%C3%A4%3E.txt");
    }
}
