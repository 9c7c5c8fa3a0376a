//! Sets that replace each other while a config is compiled and adopted.

use super::cache::{self, Confirmation};
use super::{Asking, Directory, Origin, Rules, Source, State};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_config::Diagnostics;
use weir_upstream::fetch::{Trust, Url};

/// The URL in these tests. Nobody asks it.
fn url() -> Url {
    "http://crm.test/".parse().unwrap()
}

fn asking(stale: Option<Duration>) -> Arc<Asking> {
    Arc::new(Asking {
        trust: Trust::default(),
        every: Duration::from_secs(10),
        timeout: Duration::from_secs(10),
        stale,
        token: None,
        cache: None,
    })
}

/// A config with these plans.
fn rules(plans: &[&str]) -> Rules {
    Rules::new(&Arc::from([]), plans.iter().map(|plan| (*plan).to_owned()), &[], true)
}

fn directory(sources: &[&Arc<Source>], plans: &[&str]) -> Directory {
    let sources = sources.iter().map(|source| (Arc::clone(source), Some(asking(None)))).collect();
    Directory::new(sources, rules(plans), |_, misfit| panic!("{misfit:?}"))
}

fn source(name: &str) -> Arc<Source> {
    Arc::new(Source::new(name, Origin::Http(url()), &[]))
}

/// Takes a set that the server sent just now. Returns its generation.
fn take(source: &Source, document: &str) -> u64 {
    let generation = Source::next_generation();
    source.take(document, Path::new("crm"), generation, Some(Confirmation::now())).unwrap();
    generation
}

fn names(source: &Source) -> Vec<String> {
    let roster = source.current();
    roster.iter().flat_map(|roster| roster.consumers()).map(|consumer| consumer.name.clone()).collect()
}

#[test]
fn a_set_that_no_longer_fits_is_not_replaced_by_an_older_one() {
    let crm = source("crm");
    directory(&[&crm], &["gold"]).adopt();
    let older = take(&crm, "consumers: { ann: {}, bob: {} }");
    // A config without the plan is checked; then the server removes bob and gives ann that plan.
    let next = directory(&[&crm], &[]);
    let newer = take(&crm, "consumers: { ann: { plan: gold } }");
    next.adopt();
    assert_eq!(names(&crm), [""; 0], "bob was removed before");
    let status = crm.status();
    assert_eq!((status.state, status.consumers), (State::Absent, 0));
    assert_eq!(status.error.as_deref(), Some("consumers.ann.plan: there is no plan `gold`"));
    // The server says that nothing has changed since: since then none of both is in use.
    assert!(!crm.confirmed(newer, Confirmation::now()) && !crm.confirmed(older, Confirmation::now()));
    assert_eq!(crm.status().state, State::Absent);
    take(&crm, "consumers: { ann: {} }");
    assert_eq!((names(&crm), crm.status().state), (vec!["ann".to_owned()], State::Current));
}

#[test]
fn a_set_that_came_after_the_check_must_fit_too() {
    let crm = source("crm");
    directory(&[&crm], &["gold"]).adopt();
    let next = directory(&[&crm], &[]); // it has no set yet
    take(&crm, "consumers: { ann: { plan: gold } }");
    next.adopt();
    assert_eq!((names(&crm), crm.status().state), (vec![], State::Absent));
    // One that fits stays, and so does the one that was checked.
    let next = directory(&[&crm], &["gold"]);
    take(&crm, "consumers: { ann: {} }");
    next.adopt();
    directory(&[&crm], &[]).adopt();
    assert_eq!((names(&crm), crm.status().state), (vec!["ann".to_owned()], State::Current));
}

#[test]
fn an_older_set_never_replaces_a_newer_one() {
    let crm = source("crm");
    directory(&[&crm], &[]).adopt();
    let (early, late) = (Source::next_generation(), Source::next_generation());
    let take = |document, generation| {
        crm.take(document, Path::new("crm"), generation, Some(Confirmation::now())).unwrap();
    };
    take("consumers: { ann: {} }", late);
    take("consumers: { bob: {} }", early);
    assert_eq!(names(&crm), ["ann"]);
    assert!(crm.confirmed(late, Confirmation::now()) && !crm.confirmed(early, Confirmation::now()));
}

#[test]
fn another_setting_keeps_the_consumers() {
    let crm = source("crm");
    directory(&[&crm], &[]).adopt();
    take(&crm, "consumers: { ann: {} }");
    let with = |stale| {
        Directory::new(vec![(Arc::clone(&crm), Some(asking(Some(stale))))], rules(&[]), |_, wrong| {
            panic!("{wrong:?}")
        })
        .adopt();
    };
    with(Duration::from_secs(3600));
    let usable = crm.usable_for().unwrap();
    assert!(usable > Duration::from_secs(3600) && usable <= Duration::from_secs(3610), "{usable:?}");
    crm.expire();
    assert_eq!(names(&crm), ["ann"]);
}

#[test]
fn of_two_sources_with_one_name_neither_takes_it_from_the_other() {
    let (crm, other) = (source("crm"), source("other"));
    directory(&[&crm, &other], &[]).adopt();
    take(&crm, "consumers: { ann: {} }");
    let told = other.take("consumers: { ann: {} }", Path::new("other"), Source::next_generation(), None);
    assert!(told.unwrap_err().contains("the source `crm` has a consumer `ann` too"));
    let mut found = Diagnostics::default();
    source("third").begin(&rules(&[]), Some(&asking(None)), &mut found);
    assert_eq!(found.errors(), 0);
}

/// A restart while the server is away uses the cache no longer than the process before would have used the consumers.
#[test]
fn a_restart_does_not_begin_their_time_anew() {
    const HOUR: Duration = Duration::from_secs(3600);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("crm.cache");
    let now = SystemTime::now();
    let begun = |at: SystemTime, stale: Option<Duration>, from: &str| {
        let origin = cache::origin_of(&from.parse().unwrap());
        let _ = std::fs::remove_file(&path);
        cache::write(&path, origin, at, b"consumers: { ann: {} }", || true).unwrap();
        let crm = source("crm");
        let asking = Asking { cache: Some(path.clone()), ..Arc::into_inner(asking(stale)).unwrap() };
        let asking = Arc::new(asking);
        let mut found = Diagnostics::default();
        crm.begin(&rules(&[]), Some(&asking), &mut found);
        assert_eq!(found.errors(), 0, "a cache never stops the start");
        Directory::new(vec![(Arc::clone(&crm), Some(asking))], rules(&[]), |_, wrong| panic!("{wrong:?}"))
            .adopt();
        (crm.status().state, crm.usable_for())
    };
    let here = "http://crm.test/";
    let (state, usable) = begun(now - HOUR, Some(HOUR * 2), here);
    assert_eq!(state, State::Cached);
    assert!(usable.unwrap() <= HOUR + Duration::from_secs(10), "{usable:?}");
    assert_eq!(begun(now - HOUR, Some(HOUR / 2), here), (State::Absent, None), "too old");
    assert_eq!(begun(now - HOUR, None, here), (State::Cached, None), "of any age");
    assert_eq!(begun(now + HOUR, Some(HOUR * 2), here), (State::Absent, None), "the clock was set back");
    assert_eq!(begun(now + HOUR, None, here), (State::Cached, None), "of any age");
    assert_eq!(begun(now, Some(HOUR), "http://old.test/"), (State::Absent, None), "of another server");
}

/// What another source refused because of a name or a credential may fit now, so it reads its document again.
#[tokio::test]
async fn a_source_that_has_changed_wakes_the_others() {
    let (crm, other) = (source("crm"), source("other"));
    let directory = directory(&[&crm, &other], &[]);
    directory.adopt();
    let is_woken =
        async |source: &Source| tokio::time::timeout(Duration::ZERO, source.wanted.notified()).await.is_ok();
    assert!(is_woken(&crm).await && is_woken(&other).await, "by the config");
    take(&crm, "consumers: { ann: {} }");
    assert!(is_woken(&other).await && !is_woken(&crm).await);
    other.take("consumers: { ann: {} }", Path::new("other"), Source::next_generation(), None).unwrap_err();
    assert!(!is_woken(&crm).await, "nothing has changed");
}
