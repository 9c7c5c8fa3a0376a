//! A reflector keeps our copy of one resource equal to the API server's.
//!
//! ```text
//!   Begin ─► list, page by page ─► replace our copy ─► watch from the list's version ─► put, delete, bookmark
//!               ▲      ▲                                  ▲                                   │
//!               │      └── 410: the version is too old ───┼───────────────────────────────────┤
//!               │                                         └── ended, silent, broken ◄─────────┤
//!               └── no permission to watch: list again after a while ◄────────────────────────┘
//! ```
//!
//! Our copy never shrinks because the server is away: only a complete list, or a deletion that the watch reports,
//! removes an object.

use super::Time;
use crate::api::{ApiError, Object, Page, Presence, Resource, Told};
use crate::objects::Name;
use std::time::Duration;
use weir_fleet::chance::{Chance, backoff};

/// Objects in a page.
pub const PAGE_OBJECTS: u32 = 500;

/// Most objects of one resource. A cluster that etcd still holds has fewer.
pub const MOST_OBJECTS: usize = 200_000;

/// How long the server should keep a watch open: a random time between these, so that watches do not end together.
pub const WATCH_FROM: Duration = Duration::from_secs(300);
/// See [`WATCH_FROM`].
pub const WATCH_TO: Duration = Duration::from_secs(600);

/// We reopen a watch that has been silent for this long. The server sends a bookmark about once a minute, so a silent
/// watch has probably died without closing its connection.
pub const SILENCE: Duration = Duration::from_secs(150);

/// How long a request may take before it counts as failed: longer than the client waits.
pub const PATIENCE: Duration = Duration::from_secs(75);

/// When to ask again for what we may not read, or for a resource that is not installed. Without permission to watch,
/// lists follow each other this fast.
pub const REFUSED_FROM: Duration = Duration::from_secs(10);
/// See [`REFUSED_FROM`].
pub const REFUSED_TO: Duration = Duration::from_secs(20);

/// After this many consecutive 404 a custom resource counts as not installed, and its objects as gone. A server that
/// has just started answers 404 until it has read the definitions.
const ABSENCES: u32 = 3;

/// How long to wait between those answers while the process starts.
const ABSENT_AGAIN: Duration = Duration::from_millis(500);

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// The result of the [`Action::List`] with this number.
    Listed(u64, Result<Page, ApiError>),
    /// Time has passed, or the process starts.
    Tick,
    /// A message from the watch with this number.
    Watch(u64, WatchEvent),
}

/// A message from a watch.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// The server has ended it.
    Ended,
    /// It could not be opened.
    Failed(ApiError),
    /// It is open.
    Opened,
    /// A line.
    Told(Told),
}

/// An action to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Remove this object from our copy.
    Delete(Name),
    /// Request a page: the first one, or the one that this token names. The result carries this number.
    List {
        /// The number.
        number: u64,
        /// Most objects in it.
        limit: u32,
        /// The token.
        next: Option<String>,
    },
    /// Put this object into our copy.
    Put(Object),
    /// Make these objects our copy.
    Replace(Vec<Object>),
    /// Write to the log.
    Say(Note),
    /// End the watch.
    Unwatch,
    /// Watch from this version, for this long. Replaces any earlier watch. Its messages carry this number.
    Watch {
        /// The number.
        number: u64,
        /// The version.
        from: String,
        /// How long.
        time: Duration,
    },
}

/// A message for operators. Each is sent once until things change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The API server does not answer, with the reason.
    Away(String),
    /// The resource can be read and watched again.
    Back,
    /// The service account may not do this: the verb, with the server's sentence.
    Forbidden(&'static str, String),
    /// The resource is not installed.
    Missing,
    /// There are more objects than [`MOST_OBJECTS`], so none of the new ones are read.
    TooMany,
    /// An object is longer than the client's limit in bytes.
    TooLong(usize),
}

/// What we know about one resource.
#[derive(Clone, Debug)]
pub struct Reflector {
    presence: Presence,
    chance: Chance,
    number: u64,
    phase: Phase,
    /// Consecutive failures.
    failures: u32,
    /// The version that a new watch continues from.
    version: Option<String>,
    limit: u32,
    is_synced: bool,
    /// Consecutive answers that the server does not know the resource.
    absences: u32,
    trouble: Option<Note>,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Nothing is under way until this time.
    Waiting(Time),
    /// A page was requested at this time; these have come before it.
    Listing(u64, Time, Vec<Object>),
    /// A watch was requested at this time.
    Opening(u64, Time),
    /// The watch is open; its last message came at this time.
    Watching(u64, Time),
}

impl Reflector {
    /// A reflector that has not started: its first [`Event::Tick`] starts it. `seed` seeds its random numbers.
    pub const fn new(resource: &Resource, seed: u64) -> Self {
        Self {
            presence: resource.presence,
            chance: Chance::new(seed),
            number: 0,
            phase: Phase::Waiting(Time::ZERO),
            failures: 0,
            version: None,
            limit: PAGE_OBJECTS,
            is_synced: false,
            absences: 0,
            trouble: None,
        }
    }

    /// Whether our copy has been complete once: the server has sent all objects, or does not know the resource.
    pub const fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// What is wrong now.
    pub const fn trouble(&self) -> Option<&Note> {
        self.trouble.as_ref()
    }

    /// When [`Event::Tick`] is due.
    pub const fn next(&self) -> Time {
        match self.phase {
            Phase::Waiting(at) => at,
            Phase::Listing(_, asked, _) | Phase::Opening(_, asked) => asked.saturating_add(PATIENCE),
            Phase::Watching(_, heard) => heard.saturating_add(SILENCE),
        }
    }

    /// Processes an event; returns the actions to carry out.
    pub fn on(&mut self, now: Time, event: Event) -> Vec<Action> {
        let mut todo = Vec::new();
        match event {
            Event::Listed(number, result) => self.on_page(now, number, result, &mut todo),
            Event::Watch(number, told) => self.on_watch(now, number, told, &mut todo),
            Event::Tick => {}
        }
        if now >= self.next() {
            match self.phase {
                Phase::Waiting(_) => self.begin(now, &mut todo),
                Phase::Listing(..) | Phase::Opening(..) => {
                    self.fail(now, "list", ApiError::Away("no answer in time".to_owned(), None), &mut todo);
                }
                Phase::Watching(..) => {
                    todo.push(Action::Unwatch);
                    self.begin(now, &mut todo);
                }
            }
        }
        todo
    }

    /// Watches if we know from where, or lists.
    fn begin(&mut self, now: Time, todo: &mut Vec<Action>) {
        self.number += 1;
        let number = self.number;
        match self.version.clone() {
            Some(from) => {
                self.phase = Phase::Opening(number, now);
                let time = self.chance.between(WATCH_FROM, WATCH_TO);
                todo.push(Action::Watch { number, from, time });
            }
            None => {
                self.phase = Phase::Listing(number, now, Vec::new());
                todo.push(Action::List { number, limit: self.limit, next: None });
            }
        }
    }

    fn on_page(&mut self, now: Time, number: u64, result: Result<Page, ApiError>, todo: &mut Vec<Action>) {
        let Phase::Listing(asked, _, read) = &mut self.phase else { return };
        if *asked != number {
            return; // from an abandoned list
        }
        let page = match result {
            Ok(page) => page,
            Err(e) => return self.fail(now, "list", e, todo),
        };
        let mut read = std::mem::take(read);
        read.extend(page.items);
        if read.len() > MOST_OBJECTS {
            return self.wait_refused(now, Note::TooMany, todo);
        }
        if let Some(next) = page.next {
            self.number += 1;
            let number = self.number;
            self.phase = Phase::Listing(number, now, read);
            return todo.push(Action::List { number, limit: self.limit, next: Some(next) });
        }
        self.is_synced = true;
        self.absences = 0;
        self.limit = PAGE_OBJECTS;
        self.version = Some(page.version);
        todo.push(Action::Replace(read));
        self.begin(now, todo);
    }

    fn on_watch(&mut self, now: Time, number: u64, told: WatchEvent, todo: &mut Vec<Action>) {
        match self.phase {
            Phase::Opening(known, _) | Phase::Watching(known, _) if known == number => {}
            _ => return, // from an abandoned watch
        }
        let told = match told {
            WatchEvent::Opened => return self.heard(now, number, todo),
            WatchEvent::Failed(e) => return self.fail(now, "watch", e, todo),
            WatchEvent::Ended => {
                // A server that opens watches only to end them is asked more and more rarely.
                self.failures += 1;
                self.phase = Phase::Waiting(now + self.pause());
                return;
            }
            WatchEvent::Told(told) => told,
        };
        match told {
            Told::Failed(e) => {
                todo.push(Action::Unwatch);
                return self.fail(now, "watch", e, todo);
            }
            Told::Bookmark(version) => self.version = Some(version),
            Told::Put(object) => {
                self.version = Some(object.version.to_string());
                todo.push(Action::Put(object));
            }
            Told::Deleted(object) => {
                self.version = Some(object.version.to_string());
                todo.push(Action::Delete(object.key));
            }
        }
        self.failures = 0;
        self.heard(now, number, todo);
    }

    /// The watch is alive.
    fn heard(&mut self, now: Time, number: u64, todo: &mut Vec<Action>) {
        self.phase = Phase::Watching(number, now);
        if self.trouble.take().is_some() {
            todo.push(Action::Say(Note::Back));
        }
    }

    fn fail(&mut self, now: Time, verb: &'static str, e: ApiError, todo: &mut Vec<Action>) {
        let listing = verb == "list";
        match e {
            ApiError::Expired => {
                // Compacted: only a new list says what happened. The first one is immediate.
                self.version = None;
                self.failures += 1;
                let wait = if self.failures > 1 { self.pause() } else { Duration::ZERO };
                self.phase = Phase::Waiting(now + wait);
                if wait.is_zero() {
                    self.begin(now, todo);
                }
            }
            ApiError::Forbidden(why) => {
                if !listing {
                    self.version = None; // list instead
                }
                self.wait_refused(now, Note::Forbidden(verb, why), todo);
            }
            ApiError::NotFound if self.presence == Presence::Custom => self.on_absence(now, todo),
            ApiError::TooLong(_) if listing && self.limit > 1 => {
                self.limit = (self.limit / 4).max(1);
                self.begin(now, todo);
            }
            ApiError::TooLong(limit) => {
                self.version = None;
                self.wait_refused(now, Note::TooLong(limit), todo);
            }
            ApiError::Away(why, wait) => self.wait_away(now, why, wait, todo),
            e => self.wait_away(now, e.to_string(), None, todo),
        }
    }

    /// The server does not know the resource. A server that has just started may not know it yet.
    fn on_absence(&mut self, now: Time, todo: &mut Vec<Action>) {
        self.version = None;
        self.absences += 1;
        if self.absences < ABSENCES {
            let wait =
                if self.is_synced { self.chance.between(REFUSED_FROM, REFUSED_TO) } else { ABSENT_AGAIN };
            self.phase = Phase::Waiting(now + wait);
            return;
        }
        self.is_synced = true;
        if self.absences == ABSENCES {
            todo.push(Action::Replace(Vec::new()));
        }
        self.wait_refused(now, Note::Missing, todo);
    }

    fn wait_away(&mut self, now: Time, why: String, wait: Option<Duration>, todo: &mut Vec<Action>) {
        self.failures += 1;
        let pause = self.pause();
        self.phase = Phase::Waiting(now + wait.unwrap_or_default().max(pause));
        // One failure is ordinary: a server that restarts, or a connection that a balancer closed.
        if self.failures > 1 {
            self.say(Note::Away(why), todo);
        }
    }

    fn wait_refused(&mut self, now: Time, note: Note, todo: &mut Vec<Action>) {
        self.phase = Phase::Waiting(now + self.chance.between(REFUSED_FROM, REFUSED_TO));
        self.say(note, todo);
    }

    fn pause(&mut self) -> Duration {
        backoff(self.failures, &mut self.chance)
    }

    /// Sends a note unless the last one was of its kind.
    fn say(&mut self, note: Note, todo: &mut Vec<Action>) {
        let same = |known: &Note| match (known, &note) {
            (Note::Forbidden(before, _), Note::Forbidden(now, _)) => before == now,
            (before, now) => std::mem::discriminant(before) == std::mem::discriminant(now),
        };
        if !self.trouble.as_ref().is_some_and(same) {
            todo.push(Action::Say(note.clone()));
        }
        self.trouble = Some(note);
    }
}

#[cfg(test)]
mod tests;
