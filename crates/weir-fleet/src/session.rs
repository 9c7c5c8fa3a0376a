//! A session: the lease under a node's report, so that the report of a dead node disappears. A state machine without
//! I/O.

use crate::Time;
use crate::chance::{Chance, backoff};
use std::time::Duration;

/// How long a node may be silent before its report disappears.
pub const TTL: Duration = Duration::from_secs(15);

/// How often the lease is kept alive.
const KEEP: Duration = Duration::from_secs(5);

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A lease.
pub type Lease = i64;

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// The new content of the report.
    Say(Vec<u8>),
    /// The result of [`Action::Grant`].
    Granted(Result<Lease, String>),
    /// The result of [`Action::Keep`]: whether the lease lives.
    Kept(Result<bool, String>),
    /// The result of [`Action::Put`].
    Done(Result<(), String>),
    /// Time has passed.
    Tick,
}

/// An action to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Request a lease of [`TTL`].
    Grant,
    /// Renew the lease.
    Keep(Lease),
    /// Write the report under the lease.
    Put(Lease, Vec<u8>),
}

/// A node's membership among the live nodes.
#[derive(Clone, Debug)]
pub struct Session {
    chance: Chance,
    lease: Option<Lease>,
    said: Option<Vec<u8>>,
    put: Option<Vec<u8>>,
    asked: Option<(Asked, Time)>,
    /// When to renew the lease next.
    keep_at: Time,
    /// No request before this time, after a failure.
    not_before: Time,
    failures: u32,
}

#[derive(Clone, Debug, PartialEq)]
enum Asked {
    Grant,
    Keep,
    Put(Vec<u8>),
}

impl Session {
    /// A session without a lease.
    pub fn new(seed: u64) -> Self {
        Self {
            chance: Chance::new(seed),
            lease: None,
            said: None,
            put: None,
            asked: None,
            keep_at: Time::ZERO,
            not_before: Time::ZERO,
            failures: 0,
        }
    }

    /// The lease, while it lives as far as we know.
    pub const fn lease(&self) -> Option<Lease> {
        self.lease
    }

    /// When [`Event::Tick`] is due.
    pub fn next(&self) -> Time {
        match &self.asked {
            None if self.said.is_none() => Time::MAX,
            Some((_, asked)) => *asked + PATIENCE,
            None if self.lease.is_none() || self.said != self.put => self.not_before,
            None => self.keep_at.max(self.not_before),
        }
    }

    /// Processes an event; returns the actions to carry out.
    pub fn on(&mut self, now: Time, event: Event) -> Vec<Action> {
        let asked = self.asked.clone().map(|(asked, _)| asked);
        match (event, asked) {
            (Event::Say(report), _) => self.said = Some(report),
            (Event::Granted(Ok(lease)), Some(Asked::Grant)) => {
                (self.lease, self.put, self.keep_at) = (Some(lease), None, now + KEEP);
                self.succeeds();
            }
            (Event::Kept(Ok(true)), Some(Asked::Keep)) => {
                self.keep_at = now + KEEP;
                self.succeeds();
            }
            (Event::Kept(Ok(false)), Some(Asked::Keep)) => {
                (self.lease, self.put) = (None, None);
                self.succeeds();
            }
            (Event::Done(Ok(())), Some(Asked::Put(report))) => {
                self.put = Some(report);
                self.succeeds();
            }
            // Either the lease is gone or nothing answers. In both cases we request a new lease, and the old one
            // expires.
            (Event::Granted(Err(_)), Some(Asked::Grant))
            | (Event::Kept(Err(_)), Some(Asked::Keep))
            | (Event::Done(Err(_)), Some(Asked::Put(_))) => self.fails(now),
            _ => {} // too late, or only a tick
        }
        if self.asked.as_ref().is_some_and(|(_, asked)| now >= *asked + PATIENCE) {
            self.fails(now);
        }
        self.goes_on(now).into_iter().collect()
    }

    fn succeeds(&mut self) {
        (self.asked, self.failures) = (None, 0);
    }

    fn fails(&mut self, now: Time) {
        (self.asked, self.lease, self.put) = (None, None, None);
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + backoff(self.failures, &mut self.chance);
    }

    fn goes_on(&mut self, now: Time) -> Option<Action> {
        if self.asked.is_some() || now < self.not_before {
            return None;
        }
        let said = self.said.clone()?;
        let (asked, action) = match self.lease {
            None => (Asked::Grant, Action::Grant),
            // Before any news: a node with much to report must not lose its lease over it.
            Some(lease) if now >= self.keep_at => (Asked::Keep, Action::Keep(lease)),
            Some(lease) if self.put.as_ref() != Some(&said) => {
                (Asked::Put(said.clone()), Action::Put(lease, said))
            }
            Some(_) => return None,
        };
        self.asked = Some((asked, now));
        Some(action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Time {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_report_stands_under_a_lease() {
        let mut session = Session::new(1);
        assert_eq!(session.on(at(0), Event::Tick), []);
        assert_eq!(session.on(at(0), Event::Say(b"a".to_vec())), [Action::Grant]);
        assert_eq!(session.on(at(5), Event::Granted(Ok(7))), [Action::Put(7, b"a".to_vec())]);
        // Content that changed meanwhile follows.
        assert_eq!(session.on(at(6), Event::Say(b"b".to_vec())), []);
        assert_eq!(session.on(at(9), Event::Done(Ok(()))), [Action::Put(7, b"b".to_vec())]);
        assert_eq!(session.on(at(10), Event::Done(Ok(()))), []);
        assert_eq!(session.on(at(5_004), Event::Tick), []);
        assert_eq!(session.next(), at(5_005));
        assert_eq!(session.on(session.next(), Event::Tick), [Action::Keep(7)]);
        assert_eq!(session.on(at(5_020), Event::Kept(Ok(true))), []);
        assert_eq!(session.on(at(5_021), Event::Say(b"c".to_vec())), [Action::Put(7, b"c".to_vec())]);
    }

    #[test]
    fn a_lost_lease_is_asked_for_anew() {
        let mut session = Session::new(1);
        session.on(at(0), Event::Say(b"a".to_vec()));
        session.on(at(0), Event::Granted(Ok(7)));
        session.on(at(0), Event::Done(Ok(())));
        assert_eq!(session.on(session.next(), Event::Tick), [Action::Keep(7)]);
        assert_eq!(session.on(at(5_001), Event::Kept(Ok(false))), [Action::Grant]);
        assert_eq!(session.lease(), None);
        // Nothing answers.
        assert_eq!(session.on(at(15_000), Event::Tick), []);
        assert_eq!(session.on(at(15_001), Event::Tick), []);
        let again = session.next();
        assert!(again > at(15_001) && again <= at(15_251), "{again:?}");
        assert_eq!(session.on(again, Event::Tick), [Action::Grant]);
        // The late response to the first request is as good as the second's.
        assert_eq!(session.on(again, Event::Granted(Ok(8))), [Action::Put(8, b"a".to_vec())]);
        assert_eq!(session.on(again, Event::Done(Err("lease not found".into()))), []);
        assert_eq!(session.lease(), None);
    }
}
