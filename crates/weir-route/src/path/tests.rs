//! Cases and properties of the canonical path.

use super::*;

fn form(raw: &str, slashes: Slashes) -> Result<String, PathError> {
    let mut out = Vec::new();
    let which = canonical(raw.as_bytes(), slashes, &mut out)?;
    Ok(String::from_utf8(which.choose(raw.as_bytes(), &out).to_vec()).unwrap())
}

#[test]
fn gives_the_canonical_form() {
    let cases = [
        ("/", "/"),
        ("/a/b", "/a/b"),
        ("/a/b/", "/a/b/"),
        ("/.well-known/acme", "/.well-known/acme"),
        ("/a..b/...", "/a..b/..."),
        ("/..a/.b", "/..a/.b"),
        ("/%61%7Eb", "/a~b"),
        ("/%7e", "/~"),
        ("/a%2fb", "/a%2Fb"),
        ("/a%2Fb/../c", "/c"),
        ("/a%20b%c3%a9", "/a%20b%C3%A9"),
        ("/a/./b", "/a/b"),
        ("/a/.", "/a/"),
        ("/a/b/..", "/a/"),
        ("/a/b/../", "/a/"),
        ("/a/..", "/"),
        ("/a/../b", "/b"),
        ("/a/%2e%2E/b", "/b"),
        ("/a/%2E./b", "/b"),
        ("/a/.%2e", "/"),
        ("/%2e/a", "/a"),
        ("//", "/"),
        ("//a///b//", "/a/b/"),
        ("/a//../b", "/b"),
        ("/%252e%252e/a", "/%252e%252e/a"),
        ("/%252E%252e%2Fa", "/%252E%252e%2Fa"),
        ("/%25%32%65", "/%252e"),
        ("/a%2F.%2Fb", "/a%2F.%2Fb"),
        ("/a%2F...", "/a%2F..."),
        ("/a|b{c}\"<>^`", "/a%7Cb%7Bc%7D%22%3C%3E%5E%60"),
        ("/a:b@c!$&'()*+,;=", "/a:b@c!$&'()*+,;="),
        ("/%3f%23%25", "/%3F%23%25"),
        ("/a;b=c/d;e", "/a;b=c/d;e"),
        ("/...;/a", "/...;/a"),
        ("/a..;/.b;", "/a..;/.b;"),
        ("/a%3bb", "/a%3Bb"),
        ("/x;/../a", "/a"),
    ];
    for (raw, want) in cases {
        assert_eq!(form(raw, Slashes::Merge).as_deref(), Ok(want), "{raw}");
    }
    let kept =
        [("//a//b/", "//a//b/"), ("/a//../b", "/a/b"), ("/a/.//b", "/a//b"), ("//..", "/"), ("/.//", "//")];
    for (raw, want) in kept {
        assert_eq!(form(raw, Slashes::Keep).as_deref(), Ok(want), "{raw}");
    }
}

#[test]
fn refuses_what_is_ambiguous_or_illegal() {
    use PathError::*;
    let cases = [
        ("", NotAbsolute),
        ("*", NotAbsolute),
        ("a/b", NotAbsolute),
        ("/..", AboveRoot),
        ("/../a", AboveRoot),
        ("/a/../../b", AboveRoot),
        ("/%2e%2e", AboveRoot),
        ("/.%2E/a", AboveRoot),
        ("/..%2f", EncodedDotDot),
        ("/..%2fa", EncodedDotDot),
        ("/a/%2f..", EncodedDotDot),
        ("/a%2F..%2Fb", EncodedDotDot),
        ("/a%2f%2e%2E%2fb", EncodedDotDot),
        ("/a/b%2F..", EncodedDotDot),
        ("/..;", DotParameters),
        ("/..;/a", DotParameters),
        ("/a/..;x=1/b", DotParameters),
        ("/a/.;/b", DotParameters),
        ("/%2e%2e;/a", DotParameters),
        ("/..%3b/a", DotParameters),
        ("/.%3B", DotParameters),
        ("/a%2F..;x%2Fb", DotParameters),
        ("/..;a%2Fb", DotParameters),
        ("/a\\b", Backslash),
        ("/a%5cb", Backslash),
        ("/..%5C..", Backslash),
        ("/a%", BadEscape),
        ("/a%2", BadEscape),
        ("/a%2/", BadEscape),
        ("/a%zz", BadEscape),
        ("/a%2%35", BadEscape),
        ("/a\0", Control),
        ("/a%00", Control),
        ("/a%0d%0a", Control),
        ("/a%7F", Control),
        ("/a\x7f", Control),
        ("/a\t", Control),
        ("/a#b", Fragment),
        ("/a?b", Query),
        ("/a b", Space),
        ("/é", NonAscii),
    ];
    for (raw, want) in cases {
        assert_eq!(form(raw, Slashes::Merge), Err(want), "{raw:?}");
        assert_eq!(form(raw, Slashes::Keep), Err(want), "{raw:?}");
        assert!(!want.to_string().is_empty());
    }
}

#[test]
fn what_needs_no_change_is_not_written() {
    let mut out = b"untouched".to_vec();
    for raw in ["/", "/a/b.html", "/.well-known/x", "/a/..b"] {
        assert_eq!(canonical(raw.as_bytes(), Slashes::Merge, &mut out), Ok(Canonical::AsIs));
    }
    // Escapes need the careful path, but a canonical path is still reported as such.
    assert_eq!(canonical(b"/a%20b", Slashes::Merge, &mut out), Ok(Canonical::AsIs));
}

#[test]
fn tells_what_may_be_read_otherwise() {
    let told = |raw: &str| examine(raw.as_bytes(), Slashes::Merge, &mut Vec::new()).map(|(_, told)| told);
    for (raw, slash, semicolon, sign) in [
        ("/a/b", false, false, false),
        ("/a%20b", false, false, false),
        ("/a%252Fb", false, false, false),
        ("/a%2fb", true, false, false),
        ("/a;b", false, true, false),
        ("/a%3bb", false, true, false),
        ("/a%253Bb", false, false, false),
        ("/a;b%2Fc", true, true, false),
        ("/a@b", false, false, false),
        ("/a%40b%2f", true, false, true),
        ("/%3a", false, false, true),
    ] {
        assert_eq!(told(raw), Ok(Ambiguity { slash, semicolon, sign }), "{raw}");
    }
}

#[test]
fn is_idempotent_and_leaves_nothing_to_climb() {
    const PIECES: [&str; 28] = [
        "/", "/", "/", "//", ".", "..", "...", "%2e", "%2E", "%2f", "%2F", "%252e", "%25", "%", "a", "B",
        "%61", "%c3%a9", "|", "%7c", "~", "%5c", "%00", ":", ";", "é", "%3F", "\u{1}",
    ];
    let mut random = crate::testing::Random::new(7);
    let (mut accepted, mut again) = (0, Vec::new());
    for _ in 0..200_000 {
        let mut raw = b"/".to_vec();
        for _ in 0..random.below(12) {
            // Mostly pieces of canonical paths, so that many inputs are valid.
            let among = if random.below(8) == 0 { PIECES.len() } else { 22 };
            raw.extend_from_slice(PIECES[random.below(among)].as_bytes());
        }
        if random.below(50) == 0 {
            let byte = random.below(256) as u8;
            let at = random.below(raw.len());
            raw[at] = byte;
        }
        for slashes in [Slashes::Merge, Slashes::Keep] {
            let mut out = Vec::new();
            let Ok(which) = canonical(&raw, slashes, &mut out) else { continue };
            accepted += 1;
            let once = which.choose(&raw, &out);
            assert_eq!(which == Canonical::AsIs, once == raw, "{}", raw.escape_ascii());
            assert_eq!(canonical(once, slashes, &mut again), Ok(Canonical::AsIs), "{}", raw.escape_ascii());
            let decoded = String::from_utf8_lossy(once).replace("%2F", "/");
            assert!(decoded.starts_with('/') && !decoded.split('/').any(|s| s == ".."), "{decoded}");
            assert!(slashes == Slashes::Keep || memchr::memmem::find(once, b"//").is_none());
        }
    }
    assert!(accepted > 50_000, "{accepted} inputs had a canonical form");
}

#[test]
fn never_panics() {
    let mut random = crate::testing::Random::new(11);
    let mut out = Vec::new();
    for _ in 0..100_000 {
        let raw: Vec<u8> = (0..random.below(24)).map(|_| random.below(256) as u8).collect();
        let _ = canonical(&raw, Slashes::Merge, &mut out);
        let _ = canonical(&raw, Slashes::Keep, &mut out);
    }
}
