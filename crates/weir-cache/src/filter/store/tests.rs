//! Eviction, purging, and that nothing grows without limit.

use super::super::freshness::{Defaults, Freshness};
use super::super::object::{Meta, Received, Stored};
use super::super::storable::{SetCookie, storable};
use super::super::testing::fields;
use super::*;
use crate::trace::Trace;
use bytes::Bytes;
use std::time::{Duration, SystemTime};

fn object(
    pages: &Pages,
    url: &str,
    bytes: usize,
    answer: &[(&str, &str)],
    asked: &[(&str, &str)],
) -> Arc<Object> {
    let mut lines = vec![("Cache-Control", "max-age=60")];
    lines.extend(answer);
    let (answer, asked) = (fields(&lines), fields(asked));
    let freshness = Freshness::of(200, &answer, Default::default());
    let settings = (&Defaults::default(), SetCookie::Refuse);
    let found = storable(&freshness, &answer, &asked.into(), settings, SystemTime::UNIX_EPOCH).unwrap();
    let received = Received { at: pages.began, time: SystemTime::UNIX_EPOCH, took: Duration::ZERO };
    let meta = Meta::new(freshness, &answer, found, SetCookie::Refuse, received);
    let body = Stored::new(&[Bytes::from(vec![0; bytes])], &pages.account);
    Arc::new(Object::new(key(url), Arc::new(meta), body, pages.began))
}

fn key(url: &str) -> Key {
    Key::test(&format!("r\0{url}"), "")
}

fn has(pages: &Pages, url: &str) -> bool {
    pages.find(&key(url), &Fields::default()).is_some()
}

#[test]
fn a_scan_throws_out_only_itself() {
    let pages = Pages::new(200_000, None);
    for n in 0..20 {
        pages.put(object(&pages, &format!("http://a/hot{n}"), 1000, &[], &[]));
    }
    for _ in 0..3 {
        (0..20).for_each(|n| assert!(has(&pages, &format!("http://a/hot{n}"))));
    }
    for n in 0..10_000 {
        pages.put(object(&pages, &format!("http://a/scan{n}"), 1000, &[], &[]));
    }
    assert!((0..20).all(|n| has(&pages, &format!("http://a/hot{n}"))));
    let (bytes, objects) = pages.held();
    assert!(bytes <= 200_000 && objects > 100, "{bytes} bytes, {objects} objects");
    let queues = pages.queues();
    let (places, ghosts) = queues.held();
    assert!(places <= 2 * objects + 128 && ghosts <= objects.max(64));
    drop(queues);
    assert!(pages.account.used() <= 200_000, "{}", pages.account.used());
}

/// As many as with the policy alone: the store around it costs no hits.
#[test]
fn hits_are_those_of_the_policy() {
    const ROOM: u64 = 500;
    let name = |n: u64| format!("http://a/{n:08}");
    let weight = object(&Pages::new(1 << 20, None), &name(0), 10, &[], &[]).weight();
    let pages = Pages::new(ROOM * weight, None);
    let meta = object(&pages, &name(0), 10, &[], &[]).meta();
    let mut hits = 0;
    for wanted in Trace::SMALL.wanted() {
        if has(&pages, &name(wanted)) {
            hits += 1;
            continue;
        }
        let body = Stored::new(&[Bytes::from_static(b"0123456789")], &pages.account);
        pages.put(Arc::new(Object::new(key(&name(wanted)), Arc::clone(&meta), body, pages.began)));
    }
    assert!(pages.held().1 as u64 <= ROOM);
    assert!(hits * 100 > Trace::SMALL.requests * 45, "{hits}");
}

#[test]
fn replacing_one_object_for_ever_takes_no_memory() {
    let pages = Pages::new(1_000_000, None);
    for _ in 0..10_000 {
        pages.put(object(&pages, "http://a/", 1000, &[], &[]));
    }
    assert_eq!(pages.held().1, 1);
    assert_eq!(pages.account.used(), 1000);
    assert!(pages.queues().held().0 <= 128);
}

#[test]
fn one_url_has_so_many_variants_and_no_more() {
    let pages = Pages::new(10_000_000, None);
    let asked: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    pages.put(object(&pages, "http://a/", 10, &[("Vary", "x")], &[("x", "used")]));
    let used = fields(&[("x", "used")]);
    assert!(pages.find(&key("http://a/"), &used).is_some());
    for value in &asked {
        pages.put(object(&pages, "http://a/", 10, &[("Vary", "x")], &[("x", value)]));
    }
    assert_eq!(pages.held().1, MOST_VARIANTS);
    assert!(pages.find(&key("http://a/"), &used).is_some(), "what is used stays");
    assert!(pages.find(&key("http://a/"), &fields(&[("x", "999")])).is_some());
    assert!(pages.find(&key("http://a/"), &fields(&[("x", "none")])).is_none());
}

#[test]
fn purges() {
    let pages = Pages::new(10_000_000, None);
    for (url, tags) in [
        ("http://a/x", ("Surrogate-Key", "one two")),
        ("http://a/x?1", ("Cache-Tag", "two,three")),
        ("https://a/x", ("Cache-Tag", "three")),
        ("http://b/y", ("Other", "one")),
    ] {
        pages.put(object(&pages, url, 10, &[tags, ("Vary", "v")], &[]));
        pages.put(object(&pages, url, 10, &[tags, ("Vary", "v")], &[("v", "1")]));
    }
    assert_eq!(pages.purge(&[Purge::Url("http://a/".to_owned())]), 0);
    assert_eq!(pages.purge(&[Purge::Tag("o".to_owned())]), 0);
    assert_eq!(pages.purge(&[Purge::Url("http://a/x".to_owned())]), 2);
    assert!(!has(&pages, "http://a/x") && has(&pages, "http://a/x?1"));
    assert_eq!(pages.purge(&[Purge::Tag("three".to_owned())]), 4);
    assert_eq!(pages.purge(&[Purge::Prefix("http://b/".to_owned())]), 2);
    assert_eq!(pages.purge(&[Purge::All]), 0);
    assert_eq!((pages.held(), pages.account.used()), ((0, 0), 0));
}

#[test]
fn a_url_is_forgotten_with_all_that_is_added_to_its_key() {
    let pages = Pages::new(10_000_000, None);
    for extra in ["", "\0ca", "\0cb"] {
        let mut made = Arc::into_inner(object(&pages, "http://a/x", 10, &[], &[])).unwrap();
        made.key = Key::test("r\0http://a/x", extra);
        pages.put(Arc::new(made));
    }
    assert!(pages.find(&Key::test("r\0http://a/x", "\0cb"), &Fields::default()).is_some());
    assert!(pages.find(&Key::test("r\0http://a/x", "\0cc"), &Fields::default()).is_none());
    assert_eq!(pages.forget(b"r\0http://a/x"), 3);
    assert_eq!(pages.held(), (0, 0));
}

#[test]
fn what_nobody_can_share_is_remembered_for_a_while() {
    let pages = Pages::new(1000, None);
    let (now, later) = (pages.began, pages.began + Duration::from_secs(UNSHARED_SECONDS));
    assert!(!pages.is_unshared(&key("http://a/"), now));
    pages.note_unshared(&key("http://a/"), now);
    assert!(pages.is_unshared(&key("http://a/"), now) && !pages.is_unshared(&key("http://b/"), now));
    assert!(!pages.is_unshared(&key("http://a/"), later));
}
