//! Elects the node that keeps the ledger: the one that holds a key in etcd under a lease. A state machine without
//! I/O; every node that shares a limit has one.
//!
//! ```text
//!             another node holds the key            the connection ended
//!   Seeking ─────────────────────────► Following ─────────────────────► Seeking
//!      │ no node does: lease, claim
//!      └─────────────► Leading ── its lease ended, or may have ended ──► Seeking
//! ```
//! A leader grants only while it knows that its lease lives: until [`SAFE`] after it *sent* the last request that
//! renewed the lease. The time in etcd begins later, when that request arrives. So no other node can hold the key
//! earlier, even if clocks run at different speeds.

use crate::Time;
use crate::chance::{Chance, backoff};
use crate::session::Lease;
use std::time::Duration;

/// How long a leader may grant after it sent the request that renewed its lease. etcd keeps the lease for
/// [`TTL`](crate::session::TTL), 15 s.
pub const SAFE: Duration = Duration::from_secs(9);

/// How often the lease is renewed, and how soon a failed renewal is retried.
const KEEP: Duration = Duration::from_secs(3);
const AGAIN: Duration = Duration::from_millis(500);

/// How soon a node that lost its leader looks for the next one.
const SOON: Duration = Duration::from_millis(50);

/// Longest address and longest secret of a holder, in bytes.
const HOLDER_BYTES: usize = 512;

/// The holder of the key.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Holder {
    /// The name of the node.
    pub node: String,
    /// Its address for requests: an IP address and a port.
    pub address: String,
    /// A secret that both sides must know: new in each term.
    pub secret: String,
}

impl Holder {
    /// Parses a holder; `None` if it is invalid.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > HOLDER_BYTES { None } else { serde_json::from_slice(bytes).ok() }
    }

    /// The encoded form.
    pub fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default() // strings always serialize
    }
}

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// The result of [`Action::Read`]: the holder of the key.
    Read(Result<Option<Holder>, String>),
    /// The result of [`Action::Grant`].
    Granted(Result<Lease, String>),
    /// The result of [`Action::Claim`]: `None` if it is ours, else the holder.
    Claimed(Result<Option<Holder>, String>),
    /// The result of [`Action::Keep`]: whether the lease lives.
    Kept(Result<bool, String>),
    /// The followed holder has answered.
    Met,
    /// The followed holder is unreachable, or its connection ended.
    Lost,
    /// Time has passed.
    Tick,
}

/// An action to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read the holder of the key.
    Read,
    /// Request a lease.
    Grant,
    /// Claim the key under this lease, unless another node holds it.
    Claim(Lease),
    /// Renew the lease.
    Keep(Lease),
    /// Revoke the lease, which is not needed.
    Revoke(Lease),
    /// Send requests to this node from now on.
    Follow(Holder),
    /// Keep the ledger from now on: a new one.
    Lead,
    /// Stop granting.
    Resign,
}

/// One node's part in the election.
#[derive(Clone, Debug)]
pub struct Election {
    chance: Chance,
    state: State,
    failures: u32,
    /// The secret that this node would write; it identifies the node's own key.
    secret: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// No holder is known; the time of the next read, or a read is in progress.
    Seeking {
        at: Time,
        asked: bool,
    },
    /// A lease was requested at this time.
    Granting {
        sent: Time,
    },
    /// The key was claimed under a lease requested at this time.
    Claiming {
        lease: Lease,
        sent: Time,
    },
    Following,
    Leading {
        lease: Lease,
        safe: Time,
        keep: Time,
        asked: Option<Time>,
    },
}

impl Election {
    /// A node that knows no holder yet.
    pub fn new(secret: String, seed: u64) -> Self {
        let state = State::Seeking { at: Time::ZERO, asked: false };
        Self { chance: Chance::new(seed), state, failures: 0, secret }
    }

    /// Whether this node keeps the ledger.
    pub const fn leads(&self) -> bool {
        matches!(self.state, State::Leading { .. })
    }

    /// The lease that the key is or may be under.
    pub const fn lease(&self) -> Option<Lease> {
        match self.state {
            State::Leading { lease, .. } | State::Claiming { lease, .. } => Some(lease),
            _ => None,
        }
    }

    /// When [`Event::Tick`] is due.
    pub fn next(&self) -> Time {
        match self.state {
            State::Seeking { at, asked: false } => at,
            State::Leading { safe, keep, asked: None, .. } => safe.min(keep),
            State::Leading { safe, .. } => safe,
            _ => Time::MAX,
        }
    }

    /// Processes an event; returns the actions to carry out.
    pub fn on(&mut self, now: Time, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match (event, self.state.clone()) {
            (Event::Read(read), State::Seeking { asked: true, .. }) => match read {
                // This node's own key, whose claim got no response: it will expire.
                Ok(Some(holder)) if holder.secret == self.secret => self.fails(now),
                Ok(Some(holder)) => actions.extend(self.follows(holder)),
                Ok(None) => {
                    self.state = State::Granting { sent: now };
                    actions.push(Action::Grant);
                }
                Err(_) => self.fails(now),
            },
            (Event::Granted(granted), State::Granting { sent }) => match granted {
                Ok(lease) => {
                    self.state = State::Claiming { lease, sent };
                    actions.push(Action::Claim(lease));
                }
                Err(_) => self.fails(now),
            },
            (Event::Claimed(claimed), State::Claiming { lease, sent }) => match claimed {
                Ok(None) if now < sent + SAFE => {
                    self.failures = 0;
                    self.state = State::Leading { lease, safe: sent + SAFE, keep: sent + KEEP, asked: None };
                    actions.push(Action::Lead);
                }
                Ok(Some(holder)) if holder.secret != self.secret => {
                    actions.push(Action::Revoke(lease));
                    actions.extend(self.follows(holder));
                }
                // The key may be ours, but for an unknown time. Give it up.
                _ => {
                    self.fails(now);
                    actions.push(Action::Revoke(lease));
                }
            },
            (Event::Kept(kept), State::Leading { lease, safe, asked: Some(sent), .. }) => {
                let (safe, keep) = match kept {
                    Ok(true) => (sent + SAFE, sent + KEEP),
                    Ok(false) => (now, now),
                    Err(_) => (safe, now + AGAIN),
                };
                self.state = State::Leading { lease, safe, keep, asked: None };
            }
            (Event::Met, State::Following) => self.failures = 0,
            (Event::Lost, State::Following) => {
                self.failures += 1;
                // At the first failure, another node may have been elected already.
                let wait = match self.failures {
                    1 => self.chance.between(Duration::ZERO, SOON),
                    more => backoff(more - 1, &mut self.chance),
                };
                self.state = State::Seeking { at: now + wait, asked: false };
            }
            _ => {} // too late, or only a tick
        }
        actions.extend(self.goes_on(now));
        actions
    }

    fn follows(&mut self, holder: Holder) -> Option<Action> {
        self.state = State::Following;
        Some(Action::Follow(holder))
    }

    fn fails(&mut self, now: Time) {
        self.failures = self.failures.saturating_add(1);
        self.state = State::Seeking { at: now + backoff(self.failures, &mut self.chance), asked: false };
    }

    fn goes_on(&mut self, now: Time) -> Option<Action> {
        match &mut self.state {
            State::Seeking { at, asked } if !*asked && now >= *at => {
                *asked = true;
                Some(Action::Read)
            }
            State::Leading { safe, .. } if now >= *safe => {
                self.state = State::Seeking { at: now, asked: false };
                Some(Action::Resign)
            }
            State::Leading { lease, keep, asked, .. } if asked.is_none() && now >= *keep => {
                *asked = Some(now);
                Some(Action::Keep(*lease))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Time {
        Duration::from_millis(ms)
    }

    fn holder(secret: &str) -> Holder {
        Holder { node: "b".into(), address: "10.0.0.2:4000".into(), secret: secret.into() }
    }

    /// A node that has led since 100 ms, with a lease requested at 10 ms.
    fn leader() -> Election {
        let mut election = Election::new("mine".into(), 1);
        assert_eq!(election.on(at(0), Event::Tick), [Action::Read]);
        assert_eq!(election.on(at(10), Event::Read(Ok(None))), [Action::Grant]);
        assert_eq!(election.on(at(50), Event::Granted(Ok(7))), [Action::Claim(7)]);
        assert_eq!(election.on(at(100), Event::Claimed(Ok(None))), [Action::Lead]);
        election
    }

    #[test]
    fn a_leader_grants_only_while_it_knows_that_its_lease_lives() {
        let mut election = leader();
        assert_eq!(election.next(), at(3_010));
        assert_eq!(election.on(at(3_010), Event::Tick), [Action::Keep(7)]);
        assert_eq!(election.on(at(4_000), Event::Kept(Ok(true))), []);
        // Counted from when the request was sent, not from when the response came.
        assert_eq!(election.next(), at(6_010));
        assert_eq!(election.on(at(6_010), Event::Tick), [Action::Keep(7)]);
        assert_eq!(election.next(), at(12_010), "nobody answers");
        assert_eq!(election.on(at(12_009), Event::Tick), []);
        assert!(election.leads());
        assert_eq!(election.on(at(12_010), Event::Tick), [Action::Resign]);
        assert!(!election.leads());
        // A response that comes now is too late.
        assert_eq!(election.on(at(12_011), Event::Kept(Ok(true))), [Action::Read]);
        assert!(!election.leads());
    }

    #[test]
    fn a_lease_that_ended_ends_the_term_at_once() {
        let mut election = leader();
        election.on(at(3_010), Event::Tick);
        assert_eq!(election.on(at(3_020), Event::Kept(Ok(false))), [Action::Resign]);
        // A single failure does not end the term.
        let mut election = leader();
        election.on(at(3_010), Event::Tick);
        assert_eq!(election.on(at(3_020), Event::Kept(Err("away".into()))), []);
        assert_eq!(election.on(at(3_520), Event::Tick), [Action::Keep(7)]);
        assert_eq!(election.on(at(3_530), Event::Kept(Ok(true))), []);
        assert_eq!(election.next(), at(6_520));
    }

    #[test]
    fn others_follow_whoever_holds_the_key() {
        let mut election = Election::new("mine".into(), 1);
        election.on(at(0), Event::Tick);
        assert_eq!(election.on(at(5), Event::Read(Ok(Some(holder("x"))))), [Action::Follow(holder("x"))]);
        assert_eq!(election.next(), Time::MAX);
        election.on(at(6), Event::Met);
        assert_eq!(election.on(at(7), Event::Lost), []);
        assert!(election.next() <= at(57), "the next one is looked for at once");
        assert_eq!(election.on(at(57), Event::Tick), [Action::Read]);
        // The leader is gone but its key is not yet: reads repeat, with pauses.
        election.on(at(60), Event::Read(Ok(Some(holder("x")))));
        election.on(at(61), Event::Lost);
        assert!(election.next() > at(61 + 100));
    }

    #[test]
    fn who_loses_the_election_gives_its_lease_back() {
        let mut election = Election::new("mine".into(), 1);
        election.on(at(0), Event::Tick);
        election.on(at(10), Event::Read(Ok(None)));
        election.on(at(20), Event::Granted(Ok(7)));
        let lost = election.on(at(30), Event::Claimed(Ok(Some(holder("x")))));
        assert_eq!(lost, [Action::Revoke(7), Action::Follow(holder("x"))]);
        // With an unknown or late result the node does not lead, and gives up the lease.
        for (when, claimed) in [(30, Err("no answer".to_owned())), (9_010, Ok(None))] {
            let mut election = Election::new("mine".into(), 1);
            election.on(at(0), Event::Tick);
            election.on(at(10), Event::Read(Ok(None)));
            election.on(at(20), Event::Granted(Ok(7)));
            assert_eq!(election.on(at(when), Event::Claimed(claimed)), [Action::Revoke(7)]);
            assert!(!election.leads());
            // It must not follow its own key.
            let next = election.next();
            assert_eq!(election.on(next, Event::Tick), [Action::Read]);
            assert_eq!(election.on(next, Event::Read(Ok(Some(holder("mine"))))), []);
        }
    }

    #[test]
    fn holders_are_read_and_written() {
        assert_eq!(Holder::read(&holder("x").write()), Some(holder("x")));
        assert_eq!(Holder::read(b"[]"), None);
        assert_eq!(Holder::read(&vec![b' '; HOLDER_BYTES + 1]), None);
    }
}
