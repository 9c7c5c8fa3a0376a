//! A follower: what one gateway does to run what the pointer says. A state machine without I/O; whoever drives it carries out its actions and
//! tells it what came of them.
//!
//! ```text
//!   Begin ─► read the pointer ─► watch from the revision after it ─► told of a change ─┐
//!               ▲     ▲                     │ ended, compacted, silent                 │
//!               │     └── after a while ◄───┘                                          ▼
//!               └── every 30 to 60 s, whatever happens                     another bundle than runs?
//!                                                                                      │ yes, and not refused before
//!   Kept ◄─ keep on the disk ◄─ Ran ◄─ run ◄─ Fetched ◄─ fetch ◄─ wait 0 to 300 ms ◄───┘
//! ```
//!
//! What it never does: give up what runs because the source is away, empty or wrong; try a bundle again that does not compile; act on a
//! pointer that says what runs already.

use crate::Time;
use crate::chance::{Chance, backoff};
use crate::digest::Digest;
use crate::pointer::{Labels, Pointer, place};
use crate::report::{NodeReport, Reason, shortened};
use std::collections::VecDeque;
use std::time::Duration;

/// The pointer is read this often, whatever the watch says: a watch may have died in silence.
pub const READ_FROM: Duration = Duration::from_secs(30);
/// See [`READ_FROM`].
pub const READ_TO: Duration = Duration::from_secs(60);

/// A watch that has said nothing for so long is opened anew. It says something every ten minutes where the server is told to tell of its
/// progress; asking again costs one request.
pub const SILENCE: Duration = Duration::from_secs(300);

/// How long a question may take before it counts as failed.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// How far the reads of one bundle are spread, so that not all nodes ask for it at one moment: at least.
pub const SPREAD: Duration = Duration::from_millis(300);

/// So many reads of a bundle there are in a second, in a fleet so large that [`SPREAD`] would mean more, and the longest that one waits for its turn.
const READS: u64 = 2_500;
const LONGEST: Duration = Duration::from_secs(8);

/// Most bytes of what a report tells of trouble.
const TROUBLE: usize = 1024;

/// How soon what could not be put on the disk is tried again.
const KEEP_AGAIN: Duration = Duration::from_secs(30);

/// Most refused bundles that are remembered.
const REFUSED: usize = 16;

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The process begins, and runs this bundle from its disk.
    Begin(Option<Digest>),
    /// What the [`Action::Read`] of this number found.
    Read(u64, Result<Seen, String>),
    /// What the watch of this number says.
    Watch(u64, Told),
    /// What became of [`Action::Fetch`].
    Fetched(Digest, Result<(), String>),
    /// What became of [`Action::Run`].
    Ran(Digest, Outcome),
    /// What became of [`Action::Keep`].
    Kept(Digest, bool),
    /// Time has passed.
    Tick,
}

/// What a watch says.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// The pointer has changed; nothing was left out since the watch was opened.
    Changed(Seen),
    /// It is over, or could not be opened.
    Ended(String),
    /// It stands, and nothing has changed.
    Nothing,
}

/// The pointer at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The revision of the source that this is true at.
    pub revision: u64,
    /// The revision that it was written at; 0 where there is none.
    pub modified: u64,
    /// What it holds.
    pub pointer: Found,
}

/// What stands where the pointer should.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A pointer.
    Pointer(Box<Pointer>),
    /// Something that cannot be followed.
    Unreadable(String),
}

/// What became of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Something of this machine stood in the way, such as a full disk: it is tried again.
    Failed(String),
    /// It does not compile, and never will here.
    Refused(String),
    /// It runs.
    Running,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Read the pointer. The answer bears this number.
    Read(u64),
    /// Watch it, from this revision on. There is at most one watch: this ends the one before. What it says bears this number.
    Watch(u64, u64),
    /// End the watch.
    Unwatch,
    /// Get a bundle, and check that it is what its name says.
    Fetch(Digest),
    /// Compile what was fetched, and run it.
    Run(Digest),
    /// Put what runs on the disk.
    Keep(Digest),
    /// Something that the report tells has changed.
    Report,
    /// Write to the log.
    Say(Note),
}

/// What an operator wants to know.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// The source does not answer, for this reason. Once until it does again.
    Away(String),
    /// The source answers again.
    Back,
    /// The source holds no pointer. Once until it does.
    Empty,
    /// The pointer cannot be followed.
    Unreadable(String),
    /// A bundle runs.
    Runs(Digest),
    /// A bundle was refused.
    Refused(Digest, String),
    /// A bundle cannot be got or run now: it is tried again.
    Trouble(Digest, String),
    /// What runs could not be put on the disk: a restart would find the bundle before it. It is tried again. Once for a bundle.
    NotKept(Digest),
}

/// What a follower is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node's name.
    pub node: String,
    /// Its labels.
    pub labels: Labels,
    /// How far reads of a bundle are spread.
    pub spread: Duration,
}

/// One gateway's view of the fleet.
#[derive(Clone, Debug)]
pub struct Follower {
    settings: Settings,
    chance: Chance,
    /// What was on the disk when the process began, and the revision that the source answered with first.
    began: (Option<Digest>, Option<u64>),
    running: Option<Digest>,
    kept: Option<Digest>,
    /// When what runs is put on the disk again, where that failed; and whether that was said.
    keep_at: Time,
    not_kept: bool,
    refused: VecDeque<Reason>,
    pointer: Option<Box<Pointer>>,
    revision: u64,
    modified: u64,
    /// Reads and watches are counted, so that an answer that comes late is known.
    number: u64,
    /// A change was told while a read was under way: its answer may be older.
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
    /// None; one may be opened once the pointer has been read.
    Closed,
    /// Asked for at this time.
    Opening(u64, Time),
    /// It stands, and said something last at this time.
    Open(u64, Time),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    None,
    /// Until the time has come.
    Waiting(Digest, Time),
    Fetching(Digest),
    /// Compiling takes as long as it takes, and always ends.
    Running(Digest),
}

impl Watch {
    fn is(self, number: u64) -> bool {
        matches!(self, Self::Opening(known, _) | Self::Open(known, _) if known == number)
    }
}

impl Follower {
    /// A follower that has not begun. `seed`: where its random numbers come from.
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

    /// Takes note of what happened, and says what is to be done about it.
    pub fn on(&mut self, now: Time, event: Event) -> Vec<Action> {
        let mut todo = Vec::new();
        match event {
            Event::Begin(running) => {
                (self.running, self.kept, self.read_at) = (running, running, now);
                self.began.0 = running;
            }
            Event::Read(number, result) if self.reading.is_some_and(|(asked, _)| asked == number) => {
                match result {
                    Ok(seen) => self.has_read(now, seen, &mut todo),
                    Err(why) => self.has_not_read(now, why, &mut todo),
                }
            }
            Event::Watch(number, told) if self.watch.is(number) => match told {
                Told::Changed(seen) => {
                    self.hears(now, number, &mut todo);
                    // A word that was on its way when a read found something newer says nothing new.
                    if seen.revision > self.revision {
                        self.told = true;
                        self.sees(seen, &mut todo);
                    }
                }
                Told::Ended(_) => self.ends_watch(now),
                Told::Nothing => self.hears(now, number, &mut todo),
            },
            // Of a question or a watch that was given up.
            Event::Read(..) | Event::Watch(..) => {}
            Event::Fetched(digest, result) => self.has_fetched(now, digest, result, &mut todo),
            Event::Ran(digest, outcome) => self.has_run(now, digest, outcome, &mut todo),
            Event::Kept(digest, done) => {
                if done {
                    self.kept = Some(digest);
                    self.not_kept = false;
                } else if !std::mem::replace(&mut self.not_kept, true) {
                    todo.push(Action::Say(Note::NotKept(digest)));
                }
                // A disk that is full now may have room later, and a restart would find the bundle before.
                self.keep_at = if self.is_kept() { Time::MAX } else { now + KEEP_AGAIN };
                todo.push(Action::Report);
            }
            Event::Tick => {}
        }
        self.goes_on(now, &mut todo);
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

    // === what is asked of it ===

    /// What runs.
    pub const fn running(&self) -> Option<Digest> {
        self.running
    }

    /// Whether what runs is on the disk.
    pub fn is_kept(&self) -> bool {
        self.kept == self.running
    }

    /// The pointer as it was seen last.
    pub fn pointer(&self) -> Option<&Pointer> {
        self.pointer.as_deref()
    }

    /// The revision that it was written at.
    pub const fn modified(&self) -> u64 {
        self.modified
    }

    /// Whether the source does not answer.
    pub const fn is_away(&self) -> bool {
        self.is_away
    }

    /// When the source answered last.
    pub const fn contact(&self) -> Option<Time> {
        self.contact
    }

    /// What is to run and was refused.
    pub fn refused(&self) -> Option<&Reason> {
        let to = self.wanted()?;
        self.refused.iter().find(|reason| reason.bundle == to)
    }

    /// What keeps it from following now; empty where nothing does.
    pub fn trouble(&self) -> &str {
        if self.unreadable.is_empty() { &self.trouble } else { &self.unreadable }
    }

    /// What it is to run, as far as it knows.
    pub fn wanted(&self) -> Option<Digest> {
        self.pointer.as_ref()?.wanted(&self.settings.node, &self.settings.labels)
    }

    /// What the node says of itself, as far as the follower knows it.
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

    /// Whether it is to try a bundle that others are kept from still.
    fn is_early(&self) -> bool {
        self.pointer.as_ref().is_some_and(|pointer| {
            pointer.is_tried() && pointer.is_open_to(&self.settings.node, &self.settings.labels)
        })
    }

    // === reading and watching ===

    fn has_read(&mut self, now: Time, seen: Seen, todo: &mut Vec<Action>) {
        let late = self.told && seen.revision < self.revision;
        (self.reading, self.read_failures) = (None, 0);
        self.began.1.get_or_insert(seen.revision);
        self.answers(now, todo);
        if late {
            // It was on its way when the watch told of something newer. What is true now the next one says.
            self.told = false;
            self.read_at = now;
            return;
        }
        self.read_at = now + self.chance.between(READ_FROM, READ_TO);
        // A source that has gone back was restored or replaced: its watch would tell of nothing until it has caught up. One that knows of a
        // change that the watch has not told of is deaf.
        let went_back = seen.revision < self.revision;
        let differs = self.differs(&seen.pointer);
        let from = seen.revision.saturating_add(1);
        self.sees(seen, todo);
        match self.watch {
            Watch::Closed => self.opens(now, from, todo),
            _ if went_back || differs => self.opens(now, from, todo),
            _ => {}
        }
    }

    fn opens(&mut self, now: Time, from: u64, todo: &mut Vec<Action>) {
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

    fn has_not_read(&mut self, now: Time, why: String, todo: &mut Vec<Action>) {
        self.reading = None;
        self.read_failures = self.read_failures.saturating_add(1);
        self.read_at = now + backoff(self.read_failures, &mut self.chance) + self.turn();
        if !self.is_away {
            self.is_away = true;
            todo.push(Action::Say(Note::Away(why)));
        }
        // Whoever does not answer a question does not tell of changes either.
        if self.watch != Watch::Closed {
            self.watch = Watch::Closed;
            todo.push(Action::Unwatch);
        }
    }

    fn hears(&mut self, now: Time, number: u64, todo: &mut Vec<Action>) {
        self.watch = Watch::Open(number, now);
        self.watch_failures = 0;
        self.answers(now, todo);
    }

    fn answers(&mut self, now: Time, todo: &mut Vec<Action>) {
        self.contact = Some(now);
        if std::mem::take(&mut self.is_away) {
            todo.push(Action::Say(Note::Back));
            todo.push(Action::Report);
        }
    }

    /// The pointer is read again, and only then watched: what happened in between is lost otherwise.
    fn ends_watch(&mut self, now: Time) {
        self.watch = Watch::Closed;
        self.watch_failures = self.watch_failures.saturating_add(1);
        let wait = backoff(self.watch_failures, &mut self.chance) + self.turn();
        self.read_at = self.read_at.min(now + wait);
    }

    fn sees(&mut self, seen: Seen, todo: &mut Vec<Action>) {
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
                // What it said before holds on.
                self.unreadable = format!("the pointer cannot be followed: {why}");
            }
        }
    }

    // === getting a bundle to run ===

    fn has_fetched(&mut self, now: Time, digest: Digest, result: Result<(), String>, todo: &mut Vec<Action>) {
        if self.work != Work::Fetching(digest) {
            return;
        }
        match result {
            Ok(()) if self.due() == Some(digest) => {
                self.work = Work::Running(digest);
                todo.push(Action::Run(digest));
            }
            Ok(()) => self.work = Work::None, // another one is to run by now
            Err(why) => self.fails(now, digest, why, todo),
        }
    }

    fn has_run(&mut self, now: Time, digest: Digest, outcome: Outcome, todo: &mut Vec<Action>) {
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
            Outcome::Failed(why) => self.fails(now, digest, why, todo),
        }
    }

    fn fails(&mut self, now: Time, digest: Digest, why: String, todo: &mut Vec<Action>) {
        self.work_failures = self.work_failures.saturating_add(1);
        self.work = Work::Waiting(digest, now + backoff(self.work_failures, &mut self.chance));
        if self.trouble != why {
            self.trouble.clone_from(&why);
            todo.extend([Action::Say(Note::Trouble(digest, why)), Action::Report]);
        }
    }

    /// What is to run, does not, and was not refused.
    fn due(&self) -> Option<Digest> {
        let wanted = self.wanted()?;
        let known = |reason: &Reason| reason.bundle == wanted;
        if self.running == Some(wanted) || self.refused.iter().any(known) { None } else { Some(wanted) }
    }

    /// How far the reads of a bundle are spread. Not at all where the source is no etcd.
    fn spread(&self) -> Duration {
        let nodes = self.pointer.as_ref().map_or(0, |pointer| pointer.nodes);
        let large = Duration::from_millis(u64::from(nodes) * 1000 / READS).min(LONGEST);
        if self.settings.spread.is_zero() { Duration::ZERO } else { self.settings.spread.max(large) }
    }

    /// How long to wait beside the pause after a failure, in a fleet so large that etcd would have too much to do at once when it is back: none up
    /// to 750 nodes.
    fn turn(&mut self) -> Duration {
        let spread = self.spread();
        if spread > self.settings.spread {
            self.chance.between(Duration::ZERO, spread)
        } else {
            Duration::ZERO
        }
    }

    /// Whatever is due by now.
    fn goes_on(&mut self, now: Time, todo: &mut Vec<Action>) {
        match self.watch {
            Watch::Opening(_, asked) if now >= asked + PATIENCE => self.gives_up_watch(now, todo),
            Watch::Open(_, heard) if now >= heard + SILENCE => self.gives_up_watch(now, todo),
            _ => {}
        }
        if self.reading.is_some_and(|(_, asked)| now >= asked + PATIENCE) {
            self.has_not_read(now, "no answer in time".to_owned(), todo);
        }
        if self.reading.is_none() && now >= self.read_at {
            self.number += 1;
            (self.reading, self.told) = (Some((self.number, now)), false);
            todo.push(Action::Read(self.number));
        }
        if let Some(digest) = self.running.filter(|_| now >= self.keep_at) {
            self.keep_at = Time::MAX; // until that is told of
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
                return self.goes_on(now, todo);
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

    fn gives_up_watch(&mut self, now: Time, todo: &mut Vec<Action>) {
        self.ends_watch(now);
        todo.push(Action::Unwatch);
    }
}

#[cfg(test)]
#[path = "follower/tests.rs"]
mod tests;
