//! Conversations with the reflector: lists, watches, and what ends them.

use super::*;
use crate::api::watched;
use serde_json::json;

const SECOND: Duration = Duration::from_secs(1);

fn object(name: &str, version: u64) -> Object {
    let metadata =
        json!({ "namespace": "n", "name": name, "uid": name, "resourceVersion": version.to_string() });
    Object::new(watched("HTTPRoute").unwrap(), json!({ "metadata": metadata })).unwrap()
}

fn page(version: u64, next: Option<&str>, items: Vec<Object>) -> Result<Page, ApiError> {
    Ok(Page { version: version.to_string(), next: next.map(str::to_owned), items })
}

/// A reflector of routes and its clock.
struct Run(Reflector, Time);

impl Run {
    fn new(kind: &str) -> Self {
        Self(Reflector::new(watched(kind).unwrap(), 1), Time::ZERO)
    }

    /// Lets time pass until the reflector acts by itself.
    fn wake(&mut self) -> Vec<Action> {
        self.1 = self.1.max(self.0.next());
        self.0.on(self.1, Event::Tick)
    }

    fn listed(&mut self, number: u64, result: Result<Page, ApiError>) -> Vec<Action> {
        self.0.on(self.1, Event::Listed(number, result))
    }

    fn told(&mut self, number: u64, told: WatchEvent) -> Vec<Action> {
        self.0.on(self.1, Event::Watch(number, told))
    }

    /// Lists nothing at version 5 and opens a watch, whose number it returns.
    fn open(&mut self) -> u64 {
        let number = list_number(&self.wake());
        let number = watch_of(&self.listed(number, page(5, None, Vec::new()))).0;
        assert_eq!(self.told(number, WatchEvent::Opened), []);
        number
    }
}

fn list_number(actions: &[Action]) -> u64 {
    let list = actions.iter().find_map(|action| match action {
        Action::List { number, .. } => Some(*number),
        _ => None,
    });
    list.unwrap_or_else(|| panic!("no list in {actions:?}"))
}

fn watch_of(actions: &[Action]) -> (u64, String) {
    let watch = actions.iter().find_map(|action| match action {
        Action::Watch { number, from, .. } => Some((*number, from.clone())),
        _ => None,
    });
    watch.unwrap_or_else(|| panic!("no watch in {actions:?}"))
}

#[test]
fn pages_become_one_copy_and_then_a_watch() {
    let mut run = Run::new("Service");
    let first = run.wake();
    assert_eq!(first, [Action::List { number: 1, limit: PAGE_OBJECTS, next: None }]);
    let second = run.listed(1, page(5, Some("more"), vec![object("a", 1)]));
    assert_eq!(second, [Action::List { number: 2, limit: PAGE_OBJECTS, next: Some("more".to_owned()) }]);
    assert!(!run.0.is_synced(), "half a list is no copy");
    let third = run.listed(2, page(5, None, vec![object("b", 2)]));
    assert_eq!(third[0], Action::Replace(vec![object("a", 1), object("b", 2)]));
    assert_eq!(watch_of(&third), (3, "5".to_owned()));
    assert!(run.0.is_synced());
}

#[test]
fn a_watch_continues_where_it_ended() {
    let mut run = Run::new("Service");
    let number = run.open();
    assert_eq!(run.told(number, WatchEvent::Told(Told::Put(object("a", 7)))), [Action::Put(object("a", 7))]);
    run.told(number, WatchEvent::Told(Told::Bookmark("9".to_owned())));
    run.told(number, WatchEvent::Ended);
    let (next, from) = watch_of(&run.wake());
    assert_eq!(from, "9");
    assert_eq!(
        run.told(number, WatchEvent::Told(Told::Put(object("b", 8)))),
        [],
        "the old watch speaks no more"
    );
    let gone = Told::Deleted(object("a", 10));
    assert_eq!(run.told(next, WatchEvent::Told(gone)), [Action::Delete(Name::new("n", "a"))]);
}

#[test]
fn an_old_version_means_a_new_list() {
    for error in [WatchEvent::Failed(ApiError::Expired), WatchEvent::Told(Told::Failed(ApiError::Expired))] {
        let mut run = Run::new("Service");
        let number = run.open();
        let number = list_number(&run.told(number, error.clone()));
        // The list's own token may be too old as well: then from its first page, after a while.
        assert_eq!(run.listed(number, Err(ApiError::Expired)), []);
        assert!(run.0.next() > run.1);
        assert!(matches!(&run.wake()[..], [Action::List { next: None, .. }]));
    }
}

#[test]
fn a_silent_watch_is_opened_again() {
    let mut run = Run::new("Service");
    let number = run.open();
    run.1 += SILENCE - SECOND;
    assert_eq!(run.0.on(run.1, Event::Tick), []);
    run.told(number, WatchEvent::Told(Told::Bookmark("6".to_owned())));
    assert_eq!(run.0.next(), run.1 + SILENCE);
    let actions = run.wake();
    assert_eq!(actions[0], Action::Unwatch);
    assert_eq!(watch_of(&actions).1, "6");
}

#[test]
fn our_copy_survives_an_hour_without_a_server() {
    let mut run = Run::new("HTTPRoute");
    let number = run.open();
    let mut said = run.told(number, WatchEvent::Told(Told::Failed(ApiError::Away("reset".to_owned(), None))));
    let (hour, mut tries) = (Duration::from_secs(3_600), 0);
    while run.1 < hour {
        let (number, _) = watch_of(&run.wake());
        said.extend(run.told(number, WatchEvent::Failed(ApiError::Away("refused".to_owned(), None))));
        tries += 1;
    }
    let notes: Vec<&Action> = said.iter().filter(|action| **action != Action::Unwatch).collect();
    assert_eq!(notes, [&Action::Say(Note::Away("refused".to_owned()))], "one line in the log");
    assert!((600..2_000).contains(&tries), "{tries} attempts in an hour");
    let (number, from) = watch_of(&run.wake());
    assert_eq!((from.as_str(), run.told(number, WatchEvent::Opened)), ("5", vec![Action::Say(Note::Back)]));
}

#[test]
fn without_permission_to_watch_it_lists() {
    let mut run = Run::new("Service");
    let number = list_number(&run.wake());
    let (number, _) = watch_of(&run.listed(number, page(5, None, Vec::new())));
    let note = Action::Say(Note::Forbidden("watch", "no".to_owned()));
    assert_eq!(run.told(number, WatchEvent::Failed(ApiError::Forbidden("no".to_owned()))), [note]);
    let waited = run.0.next() - run.1;
    assert!((REFUSED_FROM..=REFUSED_TO).contains(&waited), "{waited:?}");
    let number = list_number(&run.wake());
    let again = run.listed(number, page(8, None, vec![object("a", 7)]));
    assert_eq!(again[0], Action::Replace(vec![object("a", 7)]));
    let (number, _) = watch_of(&again);
    assert_eq!(run.told(number, WatchEvent::Failed(ApiError::Forbidden("no".to_owned()))), [], "said once");
}

#[test]
fn only_repeated_absence_removes_objects() {
    let mut run = Run::new("HTTPRoute");
    let number = list_number(&run.wake());
    let (number, _) = watch_of(&run.listed(number, page(5, None, vec![object("a", 1)])));
    assert_eq!(run.told(number, WatchEvent::Failed(ApiError::NotFound)), []);
    let number = list_number(&run.wake());
    assert_eq!(run.listed(number, Err(ApiError::NotFound)), [], "a server that has just started");
    let number = list_number(&run.wake());
    let gone = run.listed(number, Err(ApiError::NotFound));
    assert_eq!(gone, [Action::Replace(Vec::new()), Action::Say(Note::Missing)]);

    // What belongs to Kubernetes itself is never absent.
    let mut run = Run::new("Service");
    for _ in 0..10 {
        let number = list_number(&run.wake());
        assert!(!run.listed(number, Err(ApiError::NotFound)).contains(&Action::Replace(Vec::new())));
    }
    assert!(!run.0.is_synced());
}

#[test]
fn a_page_that_is_too_long_is_requested_in_parts() {
    let mut run = Run::new("Secret");
    let (mut number, mut limits) = (list_number(&run.wake()), Vec::new());
    loop {
        let actions = run.listed(number, Err(ApiError::TooLong(9)));
        match &actions[..] {
            [Action::List { number: next, limit, next: None }] => {
                number = *next;
                limits.push(*limit);
            }
            [Action::Say(Note::TooLong(9))] => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(limits, [125, 31, 7, 1]);
}

#[test]
fn an_answer_that_never_comes_is_given_up() {
    let mut run = Run::new("Service");
    let number = list_number(&run.wake());
    assert_eq!(run.0.next(), PATIENCE);
    assert_eq!(run.wake(), []);
    assert_eq!(run.listed(number, page(5, None, Vec::new())), [], "it comes too late");
    assert_ne!(list_number(&run.wake()), number);
}

#[test]
fn a_server_says_how_long_to_wait() {
    let mut run = Run::new("Service");
    let number = list_number(&run.wake());
    let busy = ApiError::Away("it answers 429".to_owned(), Some(20 * SECOND));
    assert_eq!(run.listed(number, Err(busy)), []);
    assert_eq!(run.0.next(), 20 * SECOND);
}
