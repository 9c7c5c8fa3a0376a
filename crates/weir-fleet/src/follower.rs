//! A follower: makes one gateway run what the pointer says. A state machine without I/O; its driver carries out the
//! actions and reports the results.
//!
//! ```text
//!   Begin ─► read the pointer ─► watch from the next revision ─► notified of a change ─┐
//!               ▲     ▲                     │ ended, compacted, silent                 │
//!               │     └── after a while ◄───┘                                          ▼
//!               └── every 30 to 60 s, whatever happens                another bundle than the running one?
//!                                                                                      │ yes, and not refused before
//!   Kept ◄─ keep on disk ◄─ Ran ◄─ run ◄─ Fetched ◄─ fetch ◄─ wait 0 to 300 ms ◄───────┘
//! ```
//!
//! It never gives up the running bundle because the source is unavailable, empty or wrong. It never retries a bundle
//! that does not compile, and ignores a pointer to the bundle that already runs.

use crate::Time;
use crate::chance::{Chance, backoff};
use crate::digest::Digest;
use crate::pointer::{Labels, Pointer, place};
use crate::report::{NodeReport, Reason, shortened};
use std::collections::VecDeque;
use std::time::Duration;

/// How often we read the pointer, even if the watch is quiet: a watch may have died silently.
pub const READ_FROM: Duration = Duration::from_secs(30);
/// See [`READ_FROM`].
pub const READ_TO: Duration = Duration::from_secs(60);

/// We reopen a watch that has been silent for this long. With progress notifications, the server sends something
/// every ten minutes; asking again costs one request.
pub const SILENCE: Duration = Duration::from_secs(300);

/// How long a request may take before it counts as failed.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// The minimum spread of reads of a bundle, so that not all nodes ask for it at the same time.
pub const SPREAD: Duration = Duration::from_millis(300);

/// Most reads of a bundle per second. A fleet too large for [`SPREAD`] spreads its reads further, but no node waits
/// longer than `LONGEST`.
const READS: u64 = 2_500;
const LONGEST: Duration = Duration::from_secs(8);

/// Most bytes of trouble in a report.
const TROUBLE: usize = 1024;

/// When to retry after a bundle could not be written to disk.
const KEEP_AGAIN: Duration = Duration::from_secs(30);

/// Most refused bundles that we remember.
const REFUSED: usize = 16;

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// The process starts, and runs this bundle from its disk.
    Begin(Option<Digest>),
    /// The result of the [`Action::Read`] with this number.
    Read(u64, Result<Seen, String>),
    /// A message from the watch with this number.
    Watch(u64, WatchEvent),
    /// The result of [`Action::Fetch`].
    Fetched(Digest, Result<(), String>),
    /// The result of [`Action::Run`].
    Ran(Digest, Outcome),
    /// The result of [`Action::Keep`].
    Kept(Digest, bool),
    /// Time has passed.
    Tick,
}

/// A message from a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent {
    /// The pointer has changed; the watch has missed nothing since it was opened.
    Changed(Seen),
    /// The watch has ended, or could not be opened.
    Ended(String),
    /// The watch is open, and nothing has changed.
    Nothing,
}

/// The pointer at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The revision of the source at which this is valid.
    pub revision: u64,
    /// The revision of the pointer's last write; 0 if there is none.
    pub modified: u64,
    /// The content.
    pub pointer: Found,
}

/// The content of the pointer's key.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A pointer.
    Pointer(Box<Pointer>),
    /// Something that cannot be followed.
    Unreadable(String),
}

/// The result of running a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A local problem, such as a full disk: will be retried.
    Failed(String),
    /// It does not compile on this node, and never will.
    Refused(String),
    /// It runs.
    Running,
}

/// An action to carry out.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Read the pointer. The result carries this number.
    Read(u64),
    /// Watch the pointer from this revision. Replaces any earlier watch. Its messages carry this number.
    Watch(u64, u64),
    /// End the watch.
    Unwatch,
    /// Fetch a bundle, and verify its digest.
    Fetch(Digest),
    /// Compile and run the fetched bundle.
    Run(Digest),
    /// Write the running bundle to disk.
    Keep(Digest),
    /// Something in the report has changed.
    Report,
    /// Write to the log.
    Say(Note),
}

/// A message for operators.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// The source does not answer, with the reason. Sent once until it answers again.
    Away(String),
    /// The source answers again.
    Back,
    /// The source holds no pointer. Sent once until it does.
    Empty,
    /// The pointer cannot be followed.
    Unreadable(String),
    /// A bundle runs.
    Runs(Digest),
    /// A bundle was refused.
    Refused(Digest, String),
    /// A bundle cannot be fetched or run now: will be retried.
    Trouble(Digest, String),
    /// The running bundle could not be written to disk, so a restart would find the previous one. Will be retried.
    /// Sent once per bundle.
    NotKept(Digest),
}

/// The identity and settings of a follower.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node's name.
    pub node: String,
    /// Its labels.
    pub labels: Labels,
    /// The spread of reads of a bundle.
    pub spread: Duration,
}

/// One gateway's view of the fleet.
#[derive(Clone, Debug)]
pub struct Follower {
    settings: Settings,
    chance: Chance,
    /// The bundle on disk when the process started, and the revision of the source's first answer.
    began: (Option<Digest>, Option<u64>),
    running: Option<Digest>,
    kept: Option<Digest>,
    /// When to retry writing the running bundle to disk, and whether the failure was reported.
    keep_at: Time,
    not_kept: bool,
    refused: VecDeque<Reason>,
    pointer: Option<Box<Pointer>>,
    revision: u64,
    modified: u64,
    /// Numbers reads and watches, so that late results are recognized.
    number: u64,
    /// The watch reported a change while a read was in progress, whose result may be older.
    told: bool,
    reading: Option<(u64, Time)>,
    read_at: Time,
    watch: Watch,
    watch_failures: u32,
    read_failures: u32,
    work: Work,
    work_failures: u32,
    trouble: String,
    contact: Option<Time>,
    is_away: bool,
    is_empty: bool,
    unreadable: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Watch {
    /// No watch; one may be opened after the pointer has been read.
    Closed,
    /// Requested at this time.
    Opening(u64, Time),
    /// Open; its last message came at this time.
    Open(u64, Time),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    None,
    /// Waits until this time.
    Waiting(Digest, Time),
    Fetching(Digest),
    /// Compiling has no timeout, and always ends.
    Running(Digest),
}

impl Watch {
    fn is(self, number: u64) -> bool {
        matches!(self, Self::Opening(known, _) | Self::Open(known, _) if known == number)
    }
}

impl Follower {
    /// A follower that has not started. `seed` seeds its random numbers.
    pub fn new(settings: Settings, seed: u64) -> Self {
        Self {
            settings,
            chance: Chance::new(seed),
            began: (None, None),
            running: None,
            kept: None,
            keep_at: Time::MAX,
            not_kept: false,
            refused: VecDeque::new(),
            pointer: None,
            revision: 0,
            modified: 0,
            number: 0,
            told: false,
            reading: None,
            read_at: Time::ZERO,
            watch: Watch::Closed,
            watch_failures: 0,
            read_failures: 0,
            work: Work::None,
            work_failures: 0,
            trouble: String::new(),
            contact: None,
            is_away: false,
            is_empty: false,
            unreadable: String::new(),
        }
    }

    /// Processes an event; returns the actions to carry out.
    pub fn on(&mut self, now: Time, event: Event) -> Vec<Action> {
        let mut todo = Vec::new();
        match event {
            Event::Begin(running) => {
                (self.running, self.kept, self.read_at) = (running, running, now);
                self.began.0 = running;
            }
            Event::Read(number, result) if self.reading.is_some_and(|(asked, _)| asked == number) => {
                match result {
                    Ok(seen) => self.on_read(now, seen, &mut todo),
                    Err(why) => self.on_read_failure(now, why, &mut todo),
                }
            }
            Event::Watch(number, told) if self.watch.is(number) => match told {
                WatchEvent::Changed(seen) => {
                    self.on_watch_alive(now, number, &mut todo);
                    // A message sent before a newer read result contains no news.
                    if seen.revision > self.revision {
                        self.told = true;
                        self.adopt(seen, &mut todo);
                    }
                }
                WatchEvent::Ended(_) => self.end_watch(now),
                WatchEvent::Nothing => self.on_watch_alive(now, number, &mut todo),
            },
            // From an abandoned read or watch.
            Event::Read(..) | Event::Watch(..) => {}
            Event::Fetched(digest, result) => self.on_fetched(now, digest, result, &mut todo),
            Event::Ran(digest, outcome) => self.on_run(now, digest, outcome, &mut todo),
            Event::Kept(digest, done) => {
                if done {
                    self.kept = Some(digest);
                    self.not_kept = false;
                } else if !std::mem::replace(&mut self.not_kept, true) {
                    todo.push(Action::Say(Note::NotKept(digest)));
                }
                // A full disk may have room later. Until then, a restart would find the previous bundle.
                self.keep_at = if self.is_kept() { Time::MAX } else { now + KEEP_AGAIN };
                todo.push(Action::Report);
            }
            Event::Tick => {}
        }
        self.advance(now, &mut todo);
        todo
    }

    /// When [`Event::Tick`] is due.
    pub fn next(&self) -> Time {
        let read = self.reading.map_or(self.read_at, |(_, asked)| asked + PATIENCE);
        let watch = match self.watch {
            Watch::Closed => Time::MAX,
            Watch::Opening(_, asked) => asked + PATIENCE,
            Watch::Open(_, heard) => heard + SILENCE,
        };
        let work = match self.work {
            Work::Waiting(_, at) => at,
            _ => Time::MAX,
        };
        read.min(watch).min(work).min(self.keep_at)
    }

    // === its state ===

    /// The running bundle.
    pub const fn running(&self) -> Option<Digest> {
        self.running
    }

    /// Whether the running bundle is on disk.
    pub fn is_kept(&self) -> bool {
        self.kept == self.running
    }

    /// The last seen pointer.
    pub fn pointer(&self) -> Option<&Pointer> {
        self.pointer.as_deref()
    }

    /// The revision of its last write.
    pub const fn modified(&self) -> u64 {
        self.modified
    }

    /// Whether the source does not answer.
    pub const fn is_away(&self) -> bool {
        self.is_away
    }

    /// When the source last answered.
    pub const fn contact(&self) -> Option<Time> {
        self.contact
    }

    /// The bundle to run, if it was refused.
    pub fn refused(&self) -> Option<&Reason> {
        let to = self.wanted()?;
        self.refused.iter().find(|reason| reason.bundle == to)
    }

    /// What prevents it from following; empty if nothing does.
    pub fn trouble(&self) -> &str {
        if self.unreadable.is_empty() { &self.trouble } else { &self.unreadable }
    }

    /// The bundle that this node should run, as far as it knows.
    pub fn wanted(&self) -> Option<Digest> {
        self.pointer.as_ref()?.wanted(&self.settings.node, &self.settings.labels)
    }

    /// The node's report, as far as the follower knows its content.
    pub fn report(&self) -> NodeReport {
        let (began, began_at) = self.began;
        NodeReport {
            node: self.settings.node.clone(),
            labels: self.settings.labels.clone(),
            began,
            began_at: began_at.unwrap_or_default(),
            running: self.running,
            generation: self.pointer.as_ref().map_or(0, |pointer| pointer.generation),
            tries: if self.is_early() { self.modified } else { 0 },
            refused: self.refused().cloned(),
            trouble: shortened(self.trouble(), TROUBLE),
            cached: self.is_kept(),
            ..NodeReport::default()
        }
    }

    /// Whether it should try a bundle that other nodes do not get yet.
    fn is_early(&self) -> bool {
        self.pointer.as_ref().is_some_and(|pointer| {
            pointer.is_tried() && pointer.is_open_to(&self.settings.node, &self.settings.labels)
        })
    }

    // === reading and watching ===

    fn on_read(&mut self, now: Time, seen: Seen, todo: &mut Vec<Action>) {
        let late = self.told && seen.revision < self.revision;
        (self.reading, self.read_failures) = (None, 0);
        self.began.1.get_or_insert(seen.revision);
        self.note_contact(now, todo);
        if late {
            // The read started before the watch reported a newer pointer. The next read returns the current one.
            self.told = false;
            self.read_at = now;
            return;
        }
        self.read_at = now + self.chance.between(READ_FROM, READ_TO);
        // A source that went back was restored or replaced: its watch would report nothing until its revisions catch
        // up. If the source has a change that the watch did not report, the watch is dead.
        let went_back = seen.revision < self.revision;
        let differs = self.differs(&seen.pointer);
        let from = seen.revision.saturating_add(1);
        self.adopt(seen, todo);
        match self.watch {
            Watch::Closed => self.open_watch(now, from, todo),
            _ if went_back || differs => self.open_watch(now, from, todo),
            _ => {}
        }
    }

    fn open_watch(&mut self, now: Time, from: u64, todo: &mut Vec<Action>) {
        self.number += 1;
        self.watch = Watch::Opening(self.number, now);
        todo.push(Action::Watch(self.number, from));
    }

    fn differs(&self, found: &Found) -> bool {
        match (found, &self.pointer) {
            (Found::Pointer(new), Some(old)) => new != old,
            (Found::Nothing, None) => false,
            (Found::Unreadable(why), _) => *why != self.unreadable,
            _ => true,
        }
    }

    fn on_read_failure(&mut self, now: Time, why: String, todo: &mut Vec<Action>) {
        self.reading = None;
        self.read_failures = self.read_failures.saturating_add(1);
        self.read_at = now + backoff(self.read_failures, &mut self.chance) + self.extra_wait();
        if !self.is_away {
            self.is_away = true;
            todo.push(Action::Say(Note::Away(why)));
        }
        // A source that does not answer requests does not report changes either.
        if self.watch != Watch::Closed {
            self.watch = Watch::Closed;
            todo.push(Action::Unwatch);
        }
    }

    fn on_watch_alive(&mut self, now: Time, number: u64, todo: &mut Vec<Action>) {
        self.watch = Watch::Open(number, now);
        self.watch_failures = 0;
        self.note_contact(now, todo);
    }

    fn note_contact(&mut self, now: Time, todo: &mut Vec<Action>) {
        self.contact = Some(now);
        if std::mem::take(&mut self.is_away) {
            todo.push(Action::Say(Note::Back));
            todo.push(Action::Report);
        }
    }

    /// Ends the watch, reads the pointer again, and only then opens a new watch: otherwise changes in between would
    /// be lost.
    fn end_watch(&mut self, now: Time) {
        self.watch = Watch::Closed;
        self.watch_failures = self.watch_failures.saturating_add(1);
        let wait = backoff(self.watch_failures, &mut self.chance) + self.extra_wait();
        self.read_at = self.read_at.min(now + wait);
    }

    fn adopt(&mut self, seen: Seen, todo: &mut Vec<Action>) {
        (self.revision, self.modified) = (seen.revision, seen.modified);
        let (was_empty, was_unreadable) = (self.is_empty, std::mem::take(&mut self.unreadable));
        self.is_empty = false;
        match seen.pointer {
            Found::Nothing => {
                self.is_empty = true;
                if !was_empty {
                    todo.push(Action::Say(Note::Empty));
                    todo.push(Action::Report);
                }
                self.pointer = None;
            }
            Found::Pointer(pointer) => {
                if self.pointer.as_ref() != Some(&pointer) {
                    self.pointer = Some(pointer);
                    todo.push(Action::Report);
                }
            }
            Found::Unreadable(why) => {
                if why != was_unreadable {
                    todo.push(Action::Say(Note::Unreadable(why.clone())));
                    todo.push(Action::Report);
                }
                // The previous content stays in force.
                self.unreadable = format!("the pointer cannot be followed: {why}");
            }
        }
    }

    // === getting a bundle to run ===

    fn on_fetched(&mut self, now: Time, digest: Digest, result: Result<(), String>, todo: &mut Vec<Action>) {
        if self.work != Work::Fetching(digest) {
            return;
        }
        match result {
            Ok(()) if self.due() == Some(digest) => {
                self.work = Work::Running(digest);
                todo.push(Action::Run(digest));
            }
            Ok(()) => self.work = Work::None, // another bundle should run by now
            Err(why) => self.retry_later(now, digest, why, todo),
        }
    }

    fn on_run(&mut self, now: Time, digest: Digest, outcome: Outcome, todo: &mut Vec<Action>) {
        if self.work != Work::Running(digest) {
            return;
        }
        match outcome {
            Outcome::Running => {
                (self.work, self.work_failures) = (Work::None, 0);
                self.trouble.clear();
                self.running = Some(digest);
                (self.keep_at, self.not_kept) = (Time::MAX, false);
                todo.extend([Action::Say(Note::Runs(digest)), Action::Keep(digest), Action::Report]);
            }
            Outcome::Refused(why) => {
                (self.work, self.work_failures) = (Work::None, 0);
                self.trouble.clear();
                if self.refused.len() == REFUSED {
                    self.refused.pop_front();
                }
                self.refused.push_back(Reason::new(digest, &why));
                todo.extend([Action::Say(Note::Refused(digest, why)), Action::Report]);
            }
            Outcome::Failed(why) => self.retry_later(now, digest, why, todo),
        }
    }

    fn retry_later(&mut self, now: Time, digest: Digest, why: String, todo: &mut Vec<Action>) {
        self.work_failures = self.work_failures.saturating_add(1);
        self.work = Work::Waiting(digest, now + backoff(self.work_failures, &mut self.chance));
        if self.trouble != why {
            self.trouble.clone_from(&why);
            todo.extend([Action::Say(Note::Trouble(digest, why)), Action::Report]);
        }
    }

    /// The bundle that should run, does not, and was not refused.
    fn due(&self) -> Option<Digest> {
        let wanted = self.wanted()?;
        let known = |reason: &Reason| reason.bundle == wanted;
        if self.running == Some(wanted) || self.refused.iter().any(known) { None } else { Some(wanted) }
    }

    /// How far to spread the reads of a bundle. Zero if the source is not etcd.
    fn spread(&self) -> Duration {
        let nodes = self.pointer.as_ref().map_or(0, |pointer| pointer.nodes);
        let large = Duration::from_millis(u64::from(nodes) * 1000 / READS).min(LONGEST);
        if self.settings.spread.is_zero() { Duration::ZERO } else { self.settings.spread.max(large) }
    }

    /// An extra wait after a failure in a large fleet, to limit the load when etcd comes back. Zero up to 750 nodes.
    fn extra_wait(&mut self) -> Duration {
        let spread = self.spread();
        if spread > self.settings.spread {
            self.chance.between(Duration::ZERO, spread)
        } else {
            Duration::ZERO
        }
    }

    /// Does whatever is due.
    fn advance(&mut self, now: Time, todo: &mut Vec<Action>) {
        match self.watch {
            Watch::Opening(_, asked) if now >= asked + PATIENCE => self.abandon_watch(now, todo),
            Watch::Open(_, heard) if now >= heard + SILENCE => self.abandon_watch(now, todo),
            _ => {}
        }
        if self.reading.is_some_and(|(_, asked)| now >= asked + PATIENCE) {
            self.on_read_failure(now, "no answer in time".to_owned(), todo);
        }
        if self.reading.is_none() && now >= self.read_at {
            self.number += 1;
            (self.reading, self.told) = (Some((self.number, now)), false);
            todo.push(Action::Read(self.number));
        }
        if let Some(digest) = self.running.filter(|_| now >= self.keep_at) {
            self.keep_at = Time::MAX; // until the result is reported
            todo.push(Action::Keep(digest));
        }
        let due = self.due();
        match (self.work, due) {
            (Work::None, Some(digest)) => {
                self.work_failures = 0;
                let millis = u64::try_from(self.spread().as_millis()).unwrap_or(u64::MAX).max(1);
                let wait = Duration::from_millis(place(&self.settings.node, digest) % millis);
                self.work = Work::Waiting(digest, now + wait);
            }
            (Work::Waiting(digest, _), due) if due != Some(digest) => {
                self.work = Work::None;
                self.trouble.clear();
                todo.push(Action::Report);
                return self.advance(now, todo);
            }
            _ => {}
        }
        if let Work::Waiting(digest, at) = self.work
            && now >= at
        {
            self.work = Work::Fetching(digest);
            todo.push(Action::Fetch(digest));
        }
    }

    fn abandon_watch(&mut self, now: Time, todo: &mut Vec<Action>) {
        self.end_watch(now);
        todo.push(Action::Unwatch);
    }
}

#[cfg(test)]
#[path = "follower/tests.rs"]
mod tests;
