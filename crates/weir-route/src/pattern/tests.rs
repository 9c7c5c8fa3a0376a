//! Patterns: what they match and capture, and the mistakes they report.

use super::super::testing::Pairs;
use super::*;

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn matches_what_it_says() {
    let cases: [(&str, &[&str], &[&str]); 14] = [
        ("/", &["/"], &["/a", ""]),
        ("/hello", &["/hello"], &["/hello/", "/hell", "/helloo", "/"]),
        ("/a/", &["/a/"], &["/a", "/a/b"]),
        ("/*", &["/", "/a", "/a/b/", "*"], &[]),
        ("/beta/*", &["/beta", "/beta/", "/beta/x", "/beta/x/y/"], &["/betax", "/bet", "/", "/betax/y"]),
        ("/spot/{rest*}", &["/spot", "/spot/", "/spot/a/b"], &["/spots"]),
        ("/{rest*}", &["/", "/a/b"], &[]),
        ("/u/{id}", &["/u/7", "/u/%2F"], &["/u", "/u/", "/u/7/", "/u/7/x"]),
        ("/u/{id}/", &["/u/7/"], &["/u/7", "/u//"]),
        ("/{a}/x/{b}/*", &["/1/x/2", "/1/x/2/3"], &["/1/x", "/1/x/", "/1/y/2"]),
        ("~/v[0-9]+/.*", &["/v1/", "/v22/a/b"], &["/v/", "/v1", "x/v1/"]),
        ("~^/a|/b$", &["/a", "/b"], &["/ab", "/a/b", "/a\n"]),
        ("~(?i)/Ab", &["/ab", "/AB"], &["/abc"]),
        ("~.*", &["/", "/x/y"], &[]),
    ];
    for (text, hits, misses) in cases {
        let pattern = pattern(text);
        for path in hits {
            assert!(pattern.matches(path.as_bytes()), "{text} should match {path}");
        }
        for path in misses {
            assert!(!pattern.matches(path.as_bytes()), "{text} should not match {path}");
            assert!(pattern.captures(path.as_bytes()).is_none(), "{text} should capture nothing in {path}");
        }
    }
}

#[test]
fn captures_by_name() {
    let cases: [(&str, &str, Pairs<'_>); 7] = [
        ("/spot/{rest*}", "/spot", &[("rest", "")]),
        ("/spot/{rest*}", "/spot/", &[("rest", "")]),
        ("/spot/{rest*}", "/spot/a/b", &[("rest", "a/b")]),
        ("/{rest*}", "/", &[("rest", "")]),
        ("/u/{id}/{rest*}", "/u/7/x/", &[("id", "7"), ("rest", "x/")]),
        ("~/v(?<major>[0-9]+)/(?P<rest>.*)", "/v2/x/y", &[("major", "2"), ("rest", "x/y")]),
        ("~/a(?<b>b)?", "/a", &[]),
    ];
    for (text, path, want) in cases {
        let pattern = pattern(text);
        let captures = pattern.captures(path.as_bytes()).unwrap();
        let got: Vec<_> = captures.iter().map(|(n, v)| (n, std::str::from_utf8(v).unwrap())).collect();
        assert_eq!(got, want, "{text} on {path}");
        for (name, value) in want {
            assert_eq!(captures.get(name), Some(value.as_bytes()));
        }
        assert_eq!(captures.get("absent"), None);
    }
    assert_eq!(pattern("/a/{b}/{c*}").capture_names(), ["b", "c"]);
}

#[test]
fn says_what_it_expected() {
    let cases = [
        ("", "empty"),
        ("hello", "begin with `/`"),
        ("*", "begin with `/`"),
        ("/a//b", "slashes: keep"),
        ("//", "slashes: keep"),
        ("/a/*/b", "`{name}`"),
        ("/a/{rest*}/b", "`{name}`"),
        ("/a*", "`/beta/*`"),
        ("/a/*.html", "~regex"),
        ("/f/{name}.json", "whole segment"),
        ("/f/{a}{b}", "whole segment"),
        ("/f/{", "whole segment"),
        ("/f/{}", "letter"),
        ("/f/{1a}", "letter"),
        ("/f/{a-b}", "letter"),
        ("/{a}/{a}", "twice"),
        ("/%61bc", "write `/abc`"),
        ("/a/../b", "write `/b`"),
        ("/a%2fb", "write `/a%2Fb`"),
        ("/a|b", "write `/a%7Cb`"),
        ("/{x}/%61", "canonical"),
        ("/..", "climbs"),
        ("/a b", "write `/a%20b`"),
        ("/é", "write `/%C3%A9`"),
        ("/a?b=1", "`?`"),
        ("/a%zz", "hex digits"),
        ("~/a(", "malformed: unclosed group"),
        ("~users/.*", "begins with `/`"),
        ("~", "begins with `/`"),
        (r"~/\p{Greek}", "malformed"),
        ("~/(a{1000}){1000}", "1 MiB"),
    ];
    for (text, want) in cases {
        let error = Pattern::parse(text).expect_err(text).to_string();
        assert!(error.contains(want), "{text}: {error}");
    }
}

#[test]
fn regexes_with_different_prefixes_exclude_each_other() {
    let excludes = |a: &str, b: &str| {
        let (Shape::Regex(a), Shape::Regex(b)) = (pattern(a).shape, pattern(b).shape) else { unreachable!() };
        a.excludes(&b) && b.excludes(&a)
    };
    assert!(excludes("~/a/[0-9]+", "~/b/[0-9]+"));
    assert!(excludes("~/(a|b)/x", "~/(c|d)/x"));
    assert!(!excludes("~/a/[0-9]+", "~/a/[a-z]+"));
    assert!(!excludes("~/a.*", "~/ab"));
    assert!(!excludes("~.*", "~/b"));
}
