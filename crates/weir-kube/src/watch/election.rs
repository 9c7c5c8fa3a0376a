//! The election of the replica that writes: one Lease, taken and renewed.
//!
//! ```text
//!            ┌── held by another ◄──┐
//!            ▼                      │
//!   wait ─► read the Lease ─► free, ours, or unchanged for its whole duration ─► write our name ─► lead
//!            ▲                                                                      │ conflict       │
//!            ├──────────────────────────────────────────────────────────────────────┘                │
//!            └── no renewal for 10 s, or another holder ◄── renew every 2 s ◄─────────────────────────┘
//! ```
//!
//! A leader stops writing 10 s after it sent its last successful renewal; others wait 15 s from when *they* saw that
//! renewal. Neither reads a wall clock, so a clock that jumps changes nothing. A process that was suspended may still
//! send one write too many: it names the object's version, and the API server refuses it if the new leader has written
//! since.

use super::Time;
use crate::api::ApiError;
use std::time::Duration;
use weir_fleet::chance::{Chance, backoff};

/// How long others wait for a renewal before they take the Lease. As in Kubernetes' own controllers.
pub const DURATION: Duration = Duration::from_secs(15);

/// How long the holder leads after it sent a renewal that succeeded.
pub const LEADS: Duration = Duration::from_secs(10);

/// How often the holder renews and others look: a random time between these.
pub const LOOK_FROM: Duration = Duration::from_millis(1600);
/// See [`LOOK_FROM`].
pub const LOOK_TO: Duration = Duration::from_millis(2400);

/// How long a request may take before it counts as failed. A renewal thus has two attempts before [`LEADS`] is over.
pub const PATIENCE: Duration = Duration::from_secs(4);

/// The durations that we believe of a Lease that somebody else wrote.
const BELIEVED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// When to ask again for what we may not do.
const REFUSED: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(20));

/// The Lease at one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The version.
    pub version: String,
    /// Who holds it; empty if it was released.
    pub holder: String,
    /// How long it is valid without a renewal.
    pub duration: Duration,
    /// How often the holder has changed.
    pub transitions: u64,
}

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// The process ends.
    Leave,
    /// The result of the [`Action::Read`] with this number; `None` if there is no Lease.
    Read(u64, Result<Option<Seen>, ApiError>),
    /// Time has passed, or the process starts.
    Tick,
    /// The result of the [`Action::Write`] with this number.
    Wrote(u64, Result<Seen, ApiError>),
}

/// An action to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// This replica leads from now on.
    Lead,
    /// Read the Lease. The result carries this number.
    Read(u64),
    /// Write to the log that a permission is missing: the verb, with the server's sentence.
    Refused(&'static str, String),
    /// Write the Lease. The result carries this number.
    Write {
        /// The number.
        number: u64,
        /// The version to replace; `None` creates the Lease.
        version: Option<String>,
        /// What the write means.
        what: What,
        /// How often the holder has changed, this time included.
        transitions: u64,
    },
    /// This replica must not write any more.
    Yield,
}

/// What a write of the Lease means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// We become the holder.
    Acquire,
    /// Nobody holds it.
    Release,
    /// We stay the holder.
    Renew,
}

/// One replica's view of the election.
#[derive(Clone, Debug)]
pub struct Election {
    me: String,
    chance: Chance,
    number: u64,
    asking: Option<Asking>,
    /// When to ask next.
    at: Time,
    /// The Lease as last seen, and when it was first seen so.
    seen: Option<(Seen, Time)>,
    /// Until when this replica leads.
    until: Option<Time>,
    failures: u32,
    /// The permission that was reported as missing.
    refused: Option<&'static str>,
    has_left: bool,
}

#[derive(Clone, Copy, Debug)]
struct Asking {
    number: u64,
    at: Time,
    verb: &'static str,
}

impl Election {
    /// A replica with this unique name. Its first [`Event::Tick`] starts it. `seed` seeds its random numbers.
    pub fn new(me: &str, seed: u64) -> Self {
        Self {
            me: me.to_owned(),
            chance: Chance::new(seed),
            number: 0,
            asking: None,
            at: Time::ZERO,
            seen: None,
            until: None,
            failures: 0,
            refused: None,
            has_left: false,
        }
    }

    /// Whether this replica may write now.
    pub fn leads(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// The verb on the Lease that this replica may not use.
    pub const fn refused(&self) -> Option<&'static str> {
        self.refused
    }

    /// When [`Event::Tick`] is due.
    pub fn next(&self) -> Time {
        if self.has_left {
            return Time::MAX;
        }
        let ask = self.asking.map_or(self.at, |asking| asking.at + PATIENCE);
        self.until.map_or(ask, |until| ask.min(until))
    }

    /// Processes an event; returns the actions to carry out.
    pub fn on(&mut self, now: Time, event: Event) -> Vec<Action> {
        let mut todo = Vec::new();
        if self.until.is_some_and(|until| now >= until) {
            self.yield_lead(&mut todo);
        }
        match event {
            _ if self.has_left => {}
            Event::Leave => self.leave(&mut todo),
            Event::Tick => self.on_tick(now, &mut todo),
            Event::Read(number, result) if self.is_asking(number) => self.on_read(now, result, &mut todo),
            Event::Wrote(number, result) if self.is_asking(number) => self.on_write(now, result, &mut todo),
            Event::Read(..) | Event::Wrote(..) => {} // too late
        }
        todo
    }

    fn is_asking(&self, number: u64) -> bool {
        self.asking.is_some_and(|asking| asking.number == number)
    }

    fn on_tick(&mut self, now: Time, todo: &mut Vec<Action>) {
        if let Some(asking) = self.asking {
            if now >= asking.at + PATIENCE {
                self.on_failure(now, ApiError::Away("no answer in time".to_owned(), None), todo);
            }
        } else if now >= self.at {
            match &self.seen {
                Some((seen, _)) if self.until.is_some() && self.failures == 0 => {
                    let (version, transitions) = (seen.version.clone(), seen.transitions);
                    self.write(now, Some(version), What::Renew, transitions, todo);
                }
                _ => self.read(now, todo),
            }
        }
    }

    fn on_read(&mut self, now: Time, result: Result<Option<Seen>, ApiError>, todo: &mut Vec<Action>) {
        let seen = match result {
            Ok(Some(seen)) => seen,
            Ok(None) => {
                self.asking = None;
                return self.write(now, None, What::Acquire, 0, todo);
            }
            Err(e) => return self.on_failure(now, e, todo),
        };
        self.asking = None;
        if self.seen.as_ref().is_none_or(|(known, _)| known.version != seen.version) {
            self.seen = Some((seen.clone(), now));
        }
        let since = self.seen.as_ref().map_or(now, |(_, since)| *since);
        let (version, transitions) = (Some(seen.version), seen.transitions);
        if seen.holder == self.me {
            return self.write(now, version, What::Renew, transitions, todo);
        }
        if self.until.is_some() {
            self.yield_lead(todo);
        }
        let duration = seen.duration.clamp(BELIEVED.0, BELIEVED.1);
        if seen.holder.is_empty() || now >= since + duration {
            return self.write(now, version, What::Acquire, transitions.saturating_add(1), todo);
        }
        self.succeeded(now);
    }

    fn on_write(&mut self, now: Time, result: Result<Seen, ApiError>, todo: &mut Vec<Action>) {
        let asked = self.asking.map_or(now, |asking| asking.at);
        match result {
            Ok(seen) => {
                self.seen = Some((seen, now));
                self.succeeded(now);
                // Counted from before the request: the server may have stored it long before we heard of it.
                let until = asked + LEADS;
                if now >= until {
                    return;
                }
                if self.until.replace(until).is_none() {
                    todo.push(Action::Lead);
                }
            }
            // Somebody else was faster, or our own write of which we heard nothing.
            Err(ApiError::Conflict | ApiError::Exists | ApiError::NotFound) => {
                self.failures += 1;
                self.asking = None;
                self.at = now + backoff(self.failures, &mut self.chance);
            }
            Err(e) => self.on_failure(now, e, todo),
        }
    }

    fn on_failure(&mut self, now: Time, e: ApiError, todo: &mut Vec<Action>) {
        let verb = self.asking.take().map_or("get", |asking| asking.verb);
        self.failures += 1;
        self.at = now + backoff(self.failures, &mut self.chance);
        if let ApiError::Forbidden(why) = e {
            self.at = now + self.chance.between(REFUSED.0, REFUSED.1);
            if self.refused.replace(verb) != Some(verb) {
                todo.push(Action::Refused(verb, why));
            }
        }
    }

    fn succeeded(&mut self, now: Time) {
        self.asking = None;
        self.failures = 0;
        self.refused = None;
        self.at = now + self.chance.between(LOOK_FROM, LOOK_TO);
    }

    fn read(&mut self, now: Time, todo: &mut Vec<Action>) {
        let number = self.ask(now, "get");
        todo.push(Action::Read(number));
    }

    fn write(
        &mut self,
        now: Time,
        version: Option<String>,
        what: What,
        transitions: u64,
        todo: &mut Vec<Action>,
    ) {
        let number = self.ask(now, if version.is_some() { "update" } else { "create" });
        todo.push(Action::Write { number, version, what, transitions });
    }

    fn ask(&mut self, now: Time, verb: &'static str) -> u64 {
        self.number += 1;
        self.asking = Some(Asking { number: self.number, at: now, verb });
        self.number
    }

    fn yield_lead(&mut self, todo: &mut Vec<Action>) {
        self.until = None;
        todo.push(Action::Yield);
    }

    fn leave(&mut self, todo: &mut Vec<Action>) {
        self.has_left = true;
        self.asking = None;
        if self.until.is_none() {
            return;
        }
        self.yield_lead(todo);
        if let Some((seen, _)) = self.seen.clone() {
            self.number += 1;
            let (number, version) = (self.number, Some(seen.version));
            todo.push(Action::Write { number, version, what: What::Release, transitions: seen.transitions });
        }
    }
}

#[cfg(test)]
mod tests;
