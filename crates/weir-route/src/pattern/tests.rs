//! Patterns: what they match and capture, and the mistakes they report.

use std::cmp::Ordering;

use super::super::testing::{Pairs, Random};
use super::*;

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text, Case::Sensitive).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[track_caller]
fn expect_matches(pattern: &Pattern, text: &str, hits: &[&str], misses: &[&str]) {
    for path in hits {
        assert!(pattern.matches(path.as_bytes()), "{text} should match {path}");
    }
    for path in misses {
        assert!(!pattern.matches(path.as_bytes()), "{text} should not match {path}");
        assert!(pattern.captures(path.as_bytes()).is_none(), "{text} should capture nothing in {path}");
    }
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
        expect_matches(&pattern(text), text, hits, misses);
    }
}

#[test]
fn a_raw_prefix_and_a_part_match_what_they_say() {
    let cases: [(&str, Case, &[&str], &[&str]); 16] = [
        (
            "/foo*",
            Case::Sensitive,
            &["/foo", "/foobar", "/foo/x", "/foo/", "/foo..", "/foo%2Fx"],
            &["/fo", "/Foo", "/", "/a/foo", "foo", ""],
        ),
        ("/a/b*", Case::Sensitive, &["/a/b", "/a/bc/d"], &["/a", "/a/", "/a/c", "/ab"]),
        ("/{a}/b*", Case::Sensitive, &["/x/b", "/x/bc/d"], &["/b", "//b"]),
        ("/.*", Case::Sensitive, &["/.git", "/.well-known/x"], &["/", "/a"]),
        ("/a%2F*", Case::Sensitive, &["/a%2F", "/a%2Fx"], &["/a", "/a/"]),
        (
            "/f/{n}.json",
            Case::Sensitive,
            &["/f/a.json", "/f/a.json.json", "/f/.json.json", "/f/%2F.json", "/f/....json"],
            &["/f/.json", "/f/a", "/f/a.JSON", "/f/a.json/", "/f/a.jsonx", "/f/..json", "/f/...json"],
        ),
        ("/v{n}/x", Case::Sensitive, &["/v1/x", "/vv/x"], &["/v/x", "/1/x", "/v./x", "/v../x", "/V1/x"]),
        ("/a-{n}-z/*", Case::Sensitive, &["/a-b-z", "/a---z", "/a-b-z/x"], &["/a--z", "/a-z", "/a-b-zz"]),
        ("/{n}F", Case::Sensitive, &["/aF", "/a%2FF"], &["/a%2F", "/%2F", "/F"]),
        ("/{n}2F", Case::Sensitive, &["/a2F"], &["/a%2F"]),
        ("/{n}%2F", Case::Sensitive, &["/a%2F", "/%2F%2F"], &["/%2F", "/aF"]),
        ("/%2F{n}", Case::Sensitive, &["/%2Fa", "/%2F%2F"], &["/%2F", "/a"]),
        ("/foo", Case::Insensitive, &["/foo", "/FOO", "/fOo"], &["/foo/", "/fooo"]),
        ("/Foo/{x}/b*", Case::Insensitive, &["/foo/A/B", "/FOO/a/bar/x"], &["/foo//b", "/foo/a/c"]),
        ("/V{n}.Json", Case::Insensitive, &["/vA.JSON", "/V1.json"], &["/v.json", "/1.json"]),
        ("/a%2Fb/*", Case::Insensitive, &["/A%2FB/x"], &["/a/b/x"]),
    ];
    for (text, case, hits, misses) in cases {
        let pattern = Pattern::parse(text, case).unwrap_or_else(|error| panic!("{text}: {error}"));
        expect_matches(&pattern, text, hits, misses);
    }
}

#[test]
fn captures_by_name() {
    let cases: [(&str, &str, Pairs<'_>); 11] = [
        ("/spot/{rest*}", "/spot", &[("rest", "")]),
        ("/spot/{rest*}", "/spot/", &[("rest", "")]),
        ("/spot/{rest*}", "/spot/a/b", &[("rest", "a/b")]),
        ("/{rest*}", "/", &[("rest", "")]),
        ("/u/{id}/{rest*}", "/u/7/x/", &[("id", "7"), ("rest", "x/")]),
        ("~/v(?<major>[0-9]+)/(?P<rest>.*)", "/v2/x/y", &[("major", "2"), ("rest", "x/y")]),
        ("~/a(?<b>b)?", "/a", &[]),
        (
            "~/v([0-9]+)/(?<name>[a-z]+)(?:/x)?/(.*)",
            "/v2/abc/x/y",
            &[("1", "2"), ("name", "abc"), ("3", "y")],
        ),
        ("~/(?:a(b)?|c(d))", "/cd", &[("2", "d")]),
        ("/u/{id}.json", "/u/a.b.json", &[("id", "a.b")]),
        ("/v{major}/a{x}b/{rest*}", "/v2/aabb/c/d", &[("major", "2"), ("x", "ab"), ("rest", "c/d")]),
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
    assert_eq!(pattern("/a/{b}/x{y}/{c*}").capture_names(), ["b", "y", "c"]);
    let cased = Pattern::parse("/U{Id}.Json/{B}", Case::Insensitive).unwrap();
    let captures = cased.captures(b"/uXy.JSON/Zz").unwrap();
    assert_eq!((captures.get("Id"), captures.get("B")), (Some(&b"Xy"[..]), Some(&b"Zz"[..])));
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
        ("/a*/b", "not the last segment"),
        ("/a**", "`/{name}.html`"),
        ("/a/*.html", "`/{name}.html`"),
        ("/a/*x*", "`/{name}.html`"),
        ("/f/{a}{b}", "two captures"),
        ("/f/{a}-{b}", "divided between them in several ways"),
        ("/f/{a}*", "`/{name}.html`"),
        ("/f/*{a}", "`/{name}.html`"),
        ("/f/x{rest*}", "stands alone"),
        ("/f/{rest*}.json", "stands alone"),
        ("/f/{x};v=1", "path parameters"),
        ("/f/{x}%3Bv", "path parameters"),
        ("/a%{x}", "hex digits"),
        ("/a%4{x}", "hex digits"),
        ("/%C{A3}", "hex digits"),
        ("/a%2*", "hex digits"),
        ("/f/{", "hold no name"),
        ("/f/}", "hold no name"),
        ("/f/a}b{c}", "hold no name"),
        ("/f/{a{b}}", "hold no name"),
        ("/f/{a}}", "too many"),
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
        let error = Pattern::parse(text, Case::Sensitive).expect_err(text).to_string();
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

#[test]
fn a_regex_has_its_own_way_to_ignore_case() {
    let error = Pattern::parse("~/a", Case::Insensitive).unwrap_err().to_string();
    assert!(error.contains("`(?i)`"), "{error}");
}

#[test]
fn the_case_of_no_letter_is_not_ignored() {
    for (text, ignores) in
        [("/1/%2F", false), ("/{id}", false), ("/1/*", false), ("/1/a", true), ("/%2Fa", true)]
    {
        let pattern = Pattern::parse(text, Case::Insensitive).unwrap();
        assert_eq!(pattern.ignores_case(), ignores, "{text}");
        let shared = pattern.shape_key() == self::pattern(text).shape_key();
        assert_eq!(shared, !ignores, "{text}");
    }
}

/// A pattern made of few pieces, so that many share paths.
fn random_pattern(random: &mut Random) -> Pattern {
    const SEGMENTS: [&str; 12] =
        ["a", "b", "A", "aa", "ab", "{p}", "a{p}", "{p}a", "{p}b", "a{p}b", "{p}aa", "B{p}"];
    let mut text = String::new();
    if random.below(12) == 0 {
        text.push_str(random.pick(&["~/a.*", "~/[ab]+", "~.*b"]));
    } else {
        for at in 0..random.below(4) {
            text.push('/');
            text.push_str(&random.pick(&SEGMENTS).replace('p', &format!("p{at}")));
        }
        match random.below(3) {
            0 => text.push_str(random.pick(&["/*", "/{rest*}", "/a*", "/ab*", "/B*"])),
            _ if text.is_empty() => text.push('/'),
            _ => {}
        }
    }
    let sensitive = text.starts_with('~') || random.below(3) > 0;
    Pattern::parse(&text, if sensitive { Case::Sensitive } else { Case::Insensitive }).unwrap()
}

fn random_path(random: &mut Random) -> String {
    const SEGMENTS: [&str; 10] = ["a", "b", "A", "aa", "ab", "Ab", "aab", "bba", "aabb", ""];
    (0..1 + random.below(3)).map(|_| format!("/{}", random.pick(&SEGMENTS))).collect()
}

#[test]
fn the_order_is_total() {
    let mut random = Random::new(11);
    let patterns: Vec<Pattern> = (0..80).map(|_| random_pattern(&mut random)).collect();
    let order = |a: &Pattern, b: &Pattern| a.compare(b).0;
    for a in &patterns {
        assert_eq!(a.compare(a), (Ordering::Equal, Step::Nothing), "{}", a.as_str());
        for b in &patterns {
            assert_eq!(order(a, b), order(b, a).reverse(), "{} {}", a.as_str(), b.as_str());
            for c in &patterns {
                // Also `Equal` is transitive, which a sort by rank relies on.
                if order(a, b).is_le() && order(b, c).is_le() {
                    let strict = order(a, b).is_lt() || order(b, c).is_lt();
                    let want = if strict { Ordering::Less } else { Ordering::Equal };
                    assert_eq!(order(a, c), want, "{} {} {}", a.as_str(), b.as_str(), c.as_str());
                }
            }
        }
    }
}

#[test]
fn equals_that_one_path_matches_have_one_shape() {
    let mut random = Random::new(13);
    let patterns: Vec<Pattern> = (0..300).map(|_| random_pattern(&mut random)).collect();
    let (mut equal, mut apart) = (0, 0);
    for _ in 0..60 {
        let path = random_path(&mut random);
        let (matching, others): (Vec<&Pattern>, Vec<&Pattern>) =
            patterns.iter().partition(|pattern| pattern.matches(path.as_bytes()));
        for a in &matching {
            for b in &matching {
                let same = a.shape_key() == b.shape_key();
                assert_eq!(a.compare(b).0.is_eq(), same, "{} {} on {path}", a.as_str(), b.as_str());
                equal += usize::from(same);
                apart += usize::from(!same);
            }
            let alike = |b: &&&Pattern| a.shape_key() == b.shape_key() && !a.as_str().starts_with('~');
            assert!(others.iter().find(alike).is_none(), "{} on {path}", a.as_str());
        }
    }
    assert!(equal > 1_000 && apart > 10_000, "{equal} {apart}");
}

#[test]
fn the_rank_is_the_one_of_the_manual() {
    use Case::{Insensitive, Sensitive};
    // Each is before the next.
    for chain in [
        &[
            ("/u/a.json", Sensitive),
            ("/u/a.json", Insensitive),
            ("/u/{x}.json", Sensitive),
            ("/u/{x}.json", Insensitive),
        ][..],
        &[
            ("/u/{x}.json", Insensitive),
            ("/u/a{x}", Sensitive),
            ("/u/{x}n", Sensitive),
            ("/u/{x}", Sensitive),
            ("/u/{x}", Insensitive),
        ],
        &[
            ("/u/{x}", Sensitive),
            ("~/u/.*", Sensitive),
            ("/u/*", Sensitive),
            ("/u/*", Insensitive),
            ("/uu*", Sensitive),
        ],
        &[
            ("/beta/*", Sensitive),
            ("/beta*", Sensitive),
            ("/beta*", Insensitive),
            ("/be*", Sensitive),
            ("/*", Sensitive),
        ],
        &[("/{a}/be*", Sensitive), ("/x/*", Sensitive), ("/{a}/*", Sensitive), ("/xxxxxxxx*", Sensitive)],
        &[("/a/me", Insensitive), ("/a/{id}", Sensitive), ("/{x}/me", Sensitive)],
    ] {
        let patterns: Vec<_> =
            chain.iter().map(|(text, case)| Pattern::parse(text, *case).unwrap()).collect();
        for pair in patterns.windows(2) {
            assert_eq!(
                pair[0].compare(&pair[1]).0,
                Ordering::Less,
                "{} {}",
                pair[0].as_str(),
                pair[1].as_str()
            );
        }
    }
}
