//! One gateway: its state machines, disk, clock and link. It knows only what a process knows; everything else
//! arrives as messages.

use std::collections::BTreeSet;
use std::time::Duration;
use weir_fleet::coordinator::{self, Coordinator};
use weir_fleet::follower::{self, Follower};
use weir_fleet::pointer::Labels;
use weir_fleet::report::Reason;
use weir_fleet::session::{self, Lease, Session};
use weir_fleet::{Chance, Digest, NodeReport, Pointer, Time};

/// A node, including the state that survives its process.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    /// Number of processes so far.
    pub(crate) boot: u64,
    pub(crate) disk: Option<Digest>,
    pub(crate) process: Option<Process>,
    pub(crate) cut_until: Time,
    pub(crate) slow_until: Time,
    pub(crate) full_until: Time,
    pub(crate) deaf_until: Time,
    /// When the last event of its watch arrives; events never overtake each other.
    pub(crate) watch_at: Time,
    /// The watch's connection broke and no side has noticed.
    pub(crate) deaf: bool,
}

/// A running process.
#[derive(Debug)]
pub(crate) struct Process {
    clock: Clock,
    pub(crate) follower: Follower,
    session: Session,
    coordinator: Coordinator,
    pub(crate) pending: BTreeSet<u64>,
    next_question: u64,
    /// The number of questions in this second.
    asks: (u64, u32),
    /// The time for which it requested a wakeup.
    pub(crate) woken_at: Option<Time>,
    lease: Option<Lease>,
    said: Option<NodeReport>,
    shown: Option<(Pointer, u64)>,
}

/// A clock with an arbitrary start that runs too fast or too slow.
#[derive(Clone, Copy, Debug)]
struct Clock {
    began: Time,
    offset: Time,
    /// Its milliseconds per thousand of the simulation.
    rate: u64,
}

impl Clock {
    fn local(self, now: Time) -> Time {
        let micros = u64::try_from(now.saturating_sub(self.began).as_micros()).unwrap_or(u64::MAX);
        self.offset + Duration::from_micros(micros * self.rate / 1000)
    }

    fn global(self, local: Time) -> Time {
        let micros = u64::try_from(local.saturating_sub(self.offset).as_micros()).unwrap_or(u64::MAX);
        // Never early, or the process would be woken repeatedly for nothing.
        self.began + Duration::from_micros(micros.saturating_mul(1000) / self.rate + 2)
    }
}

/// A request of a process to etcd.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Read(u64),
    Watch(u64, u64),
    Fetch(Digest),
    Grant,
    Keep(Lease),
    Put(Lease, Box<NodeReport>),
    Campaign(Lease),
    Look,
    Move { pointer: Box<Pointer>, revision: u64, key: u64 },
}

/// An answer, or an event inside the process.
#[derive(Clone, Debug)]
pub(crate) enum Tell {
    Follower(follower::Event),
    Session(session::Event),
    Coordinator(coordinator::Event),
    Tick,
}

/// A request of a process to the world.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    Ask(Ask),
    Unwatch,
    Compile(Digest),
    Keep(Digest),
}

impl Process {
    /// Starts a process with the bundle that it found on its disk.
    pub(crate) fn start(
        node: (&str, &Labels),
        found: Option<Digest>,
        now: Time,
        chance: &mut Chance,
    ) -> (Self, Vec<Wish>) {
        let clock = Clock {
            began: now,
            offset: chance.between(Duration::ZERO, Duration::from_secs(1_000_000)),
            rate: 950 + chance.below(101),
        };
        let settings =
            follower::Settings { node: node.0.to_owned(), labels: node.1.clone(), spread: follower::SPREAD };
        let mut process = Self {
            clock,
            follower: Follower::new(settings, chance.number()),
            session: Session::new(chance.number()),
            coordinator: Coordinator::new(chance.number()),
            pending: BTreeSet::new(),
            next_question: 0,
            asks: (0, 0),
            woken_at: None,
            lease: None,
            said: None,
            shown: None,
        };
        let wishes = process.follow(clock.local(now), follower::Event::Begin(found));
        (process, wishes)
    }

    /// Assigns a number to a question, valid until it is answered or abandoned.
    pub(crate) fn question(&mut self) -> u64 {
        self.next_question += 1;
        self.pending.insert(self.next_question);
        self.next_question
    }

    /// Counts a question in this second, and returns the total.
    pub(crate) fn asks_in(&mut self, second: u64) -> u32 {
        let before = if self.asks.0 == second { self.asks.1 } else { 0 };
        self.asks = (second, before + 1);
        self.asks.1
    }

    /// The next wakeup, on the world's clock.
    pub(crate) fn next(&self) -> Time {
        let next = self.follower.next().min(self.session.next()).min(self.coordinator.next());
        if next == Time::MAX { Time::MAX } else { self.clock.global(next) }
    }

    /// Delivers an event. `report` is the current report of the process.
    pub(crate) fn tell(
        &mut self,
        now: Time,
        tell: Tell,
        report: impl Fn(&Follower) -> NodeReport,
    ) -> Vec<Wish> {
        let local = self.clock.local(now);
        let mut wishes = match tell {
            Tell::Follower(event) => self.follow(local, event),
            Tell::Session(event) => self.say(local, event, &report),
            Tell::Coordinator(event) => self.coordinator.on(local, event).map(asked).into_iter().collect(),
            Tell::Tick => {
                let mut wishes = self.follow(local, follower::Event::Tick);
                wishes.extend(self.say(local, session::Event::Tick, &report));
                wishes.extend(self.coordinator.on(local, coordinator::Event::Tick).map(asked));
                wishes
            }
        };
        // What one state machine learns, the others learn immediately.
        let said = report(&self.follower);
        if self.said.as_ref() != Some(&said) {
            let event = session::Event::Say(said.write());
            self.said = Some(said);
            wishes.extend(self.say(local, event, &report));
        }
        if self.session.lease() != self.lease {
            self.lease = self.session.lease();
            let event = coordinator::Event::Lease(self.lease);
            wishes.extend(self.coordinator.on(local, event).map(asked));
        }
        let seen = self.follower.pointer().map(|pointer| (pointer.clone(), self.follower.modified()));
        if seen != self.shown {
            self.shown.clone_from(&seen);
            wishes.extend(
                self.coordinator.on(local, coordinator::Event::Pointer(seen.map(Box::new))).map(asked),
            );
        }
        wishes
    }

    fn follow(&mut self, local: Time, event: follower::Event) -> Vec<Wish> {
        let actions = self.follower.on(local, event).into_iter();
        actions
            .filter_map(|action| {
                Some(match action {
                    follower::Action::Read(number) => Wish::Ask(Ask::Read(number)),
                    follower::Action::Watch(number, from) => Wish::Ask(Ask::Watch(number, from)),
                    follower::Action::Unwatch => Wish::Unwatch,
                    follower::Action::Fetch(digest) => Wish::Ask(Ask::Fetch(digest)),
                    follower::Action::Run(digest) => Wish::Compile(digest),
                    follower::Action::Keep(digest) => Wish::Keep(digest),
                    follower::Action::Report | follower::Action::Say(_) => return None,
                })
            })
            .collect()
    }

    fn say(
        &mut self,
        local: Time,
        event: session::Event,
        report: impl Fn(&Follower) -> NodeReport,
    ) -> Vec<Wish> {
        let actions = self.session.on(local, event).into_iter();
        actions
            .map(|action| {
                Wish::Ask(match action {
                    session::Action::Grant => Ask::Grant,
                    session::Action::Keep(lease) => Ask::Keep(lease),
                    session::Action::Put(lease, bytes) => {
                        let said = NodeReport::read(&bytes).unwrap_or_else(|| report(&self.follower));
                        Ask::Put(lease, Box::new(said))
                    }
                })
            })
            .collect()
    }
}

fn asked(action: coordinator::Action) -> Wish {
    Wish::Ask(match action {
        coordinator::Action::Campaign(lease) => Ask::Campaign(lease),
        coordinator::Action::Look => Ask::Look,
        coordinator::Action::Move { pointer, revision, key } => Ask::Move { pointer, revision, key },
    })
}

/// The report of a node.
pub(crate) fn report(boot: u64, follower: &Follower, is_sick: impl Fn(Digest) -> bool) -> NodeReport {
    NodeReport {
        boot,
        unwell: follower.running().filter(|digest| is_sick(*digest)).map(|digest| Reason::new(digest, "5xx")),
        ..follower.report()
    }
}
