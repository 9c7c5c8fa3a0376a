//! Conversations of a jar: what servers set, and what is sent back.

use super::*;
use crate::origin::Url;
use weir_h1::FieldName;

const NOW: Duration = Duration::from_secs(1_000_000_000);

fn set(jar: &mut CookieJar, url: &str, cookies: &[&str]) {
    let url = Url::parse(url).unwrap();
    let mut fields = Fields::default();
    for cookie in cookies {
        fields.append(&FieldName::new("set-cookie").unwrap(), cookie.as_bytes()).unwrap();
    }
    jar.store(&url.origin, &url.path, &fields, NOW);
}

fn sent(jar: &CookieJar, url: &str, now: Duration) -> String {
    let url = Url::parse(url).unwrap();
    let mut out = Vec::new();
    let any = jar.write(&url.origin, &url.path, now, &mut out);
    assert_eq!(any, !out.is_empty());
    String::from_utf8(out).unwrap()
}

#[test]
fn cookies_go_where_they_belong() {
    for (from, cookie, to, want) in [
        ("http://a.b/", "x=1", "http://a.b/c", "x=1"),
        ("http://a.b/", "x=1", "http://c.a.b/", ""),
        ("http://a.b/", "x=1", "http://a.b:81/", "x=1"),
        ("http://c.a.b/", "x=1; Domain=a.b", "http://a.b/", "x=1"),
        ("http://c.a.b/", "x=1; Domain=.a.b", "http://d.a.b/", "x=1"),
        ("http://c.a.b/", "x=1; Domain=a.b", "http://ba.b/", ""),
        // Another's domain, and one without a dot.
        ("http://a.b/", "x=1; Domain=c.d", "http://c.d/", ""),
        ("http://a.b/", "x=1; Domain=b", "http://c.b/", ""),
        ("http://a.b/", "x=1; Domain=c.a.b", "http://c.a.b/", ""),
        ("http://localhost/", "x=1; Domain=localhost", "http://localhost/", "x=1"),
        ("http://1.2.3.4/", "x=1; Domain=3.4", "http://9.9.3.4/", ""),
        ("http://1.2.3.4/", "x=1", "http://1.2.3.4/", "x=1"),
        ("http://a.b/c/d", "x=1", "http://a.b/c", "x=1"),
        ("http://a.b/c/d", "x=1", "http://a.b/cd", ""),
        ("http://a.b/c/d", "x=1", "http://a.b/", ""),
        ("http://a.b/c?d/e", "x=1", "http://a.b/z", "x=1"),
        ("http://a.b/", "x=1; Path=/c", "http://a.b/c/d?e", "x=1"),
        ("http://a.b/", "x=1; Path=/c/", "http://a.b/c", ""),
        ("http://a.b/", "x=1; Path=c", "http://a.b/z", "x=1"),
        ("https://a.b/", "x=1; Secure", "http://a.b/", ""),
        ("https://a.b/", "x=1; Secure", "https://a.b/", "x=1"),
        ("http://a.b/", "x=1; Secure", "https://a.b/", ""),
        ("https://a.b/", "__Host-x=1; Secure; Path=/", "https://a.b/", "__Host-x=1"),
        ("https://a.b/", "__Host-x=1; Secure; Path=/; Domain=a.b", "https://a.b/", ""),
        ("https://a.b/", "__Secure-x=1", "https://a.b/", ""),
        ("http://a.b/", "x=a=b; HttpOnly; SameSite=Lax", "http://a.b/", "x=a=b"),
        ("http://a.b/", "  x = \"1 2\" ;", "http://a.b/", "x=\"1 2\""),
        ("http://a.b/", "=1", "http://a.b/", ""),
        ("http://a.b/", "x", "http://a.b/", ""),
    ] {
        let mut jar = CookieJar::default();
        set(&mut jar, from, &[cookie]);
        assert_eq!(sent(&jar, to, NOW), want, "{cookie} of {from} to {to}");
    }
}

#[test]
fn cookies_expire() {
    let later = |seconds| NOW + Duration::from_secs(seconds);
    for (cookie, at, want) in [
        ("x=1; Max-Age=10", later(9), "x=1"),
        ("x=1; Max-Age=10", later(10), ""),
        ("x=1; Max-Age=0", NOW, ""),
        ("x=1; Max-Age=-5", NOW, ""),
        ("x=1; Max-Age=99999999999999999999", later(1 << 40), "x=1"),
        ("x=1; Max-Age=ten", later(1 << 40), "x=1"),
        ("x=1; Expires=Sun, 09 Sep 2001 01:46:50 GMT", later(9), "x=1"),
        ("x=1; Expires=Sun, 09 Sep 2001 01:46:50 GMT", later(10), ""),
        ("x=1; Max-Age=20; Expires=Sun, 09 Sep 2001 01:46:50 GMT", later(15), "x=1"),
    ] {
        let mut jar = CookieJar::default();
        set(&mut jar, "http://a.b/", &[cookie]);
        assert_eq!(sent(&jar, "http://a.b/", at), want, "{cookie}");
    }
    let mut jar = CookieJar::default();
    set(&mut jar, "http://a.b/", &["x=1", "y=2"]);
    set(&mut jar, "http://a.b/", &["x=; Expires=Thu, 01 Jan 1970 00:00:00 GMT"]);
    assert_eq!((sent(&jar, "http://a.b/", NOW), jar.len()), ("y=2".to_owned(), 1));
}

#[test]
fn the_longest_path_comes_first_and_a_new_value_replaces_the_old() {
    let mut jar = CookieJar::default();
    set(&mut jar, "http://a.b/", &["x=1", "y=2", "z=3; Path=/c"]);
    set(&mut jar, "http://a.b/", &["x=4"]);
    assert_eq!(sent(&jar, "http://a.b/c", NOW), "z=3; x=4; y=2");
}

#[test]
fn a_jar_is_bounded() {
    let mut jar = CookieJar::default();
    for n in 0..COOKIES + 3 {
        set(&mut jar, "http://a.b/", &[&format!("n{n}=1")]);
    }
    assert_eq!((jar.len(), jar.dropped()), (COOKIES, 3));
    assert!(sent(&jar, "http://a.b/", NOW).starts_with("n3=1; "));
    set(&mut jar, "http://a.b/", &[&format!("long={}", "x".repeat(COOKIE_BYTES))]);
    set(&mut jar, "http://a.b/", &[&format!("long=1; Path=/{}", "x".repeat(COOKIE_BYTES))]);
    assert_eq!((jar.len(), jar.dropped()), (COOKIES, 5));
}
