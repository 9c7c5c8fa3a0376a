//! One gateway: its machines, its disk, its clock and its link. It knows what a process knows; what others do comes as messages.

use std::collections::BTreeSet;
use std::time::Duration;
use weir_fleet::coordinator::{self, Coordinator};
use weir_fleet::follower::{self, Follower};
use weir_fleet::pointer::Labels;
use weir_fleet::report::Reason;
use weir_fleet::session::{self, Lease, Session};
use weir_fleet::{Chance, Digest, NodeReport, Pointer, Time};

/// A node and what survives its process.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    /// How many processes there were.
    pub(crate) boot: u64,
    pub(crate) disk: Option<Digest>,
    pub(crate) process: Option<Process>,
    pub(crate) cut_until: Time,
    pub(crate) slow_until: Time,
    pub(crate) full_until: Time,
    pub(crate) deaf_until: Time,
    /// When the last word of its watch arrives: words do not overtake each other.
    pub(crate) watch_at: Time,
    /// The watch whose connection broke without anybody having been told.
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
    /// How much it has asked in this second.
    asks: (u64, u32),
    /// For which moment it asked to be woken.
    pub(crate) woken_at: Option<Time>,
    lease: Option<Lease>,
    said: Option<NodeReport>,
    shown: Option<(Pointer, u64)>,
}

/// A clock that began anywhere and runs too fast or too slow.
#[derive(Clone, Copy, Debug)]
struct Clock {
    began: Time,
    offset: Time,
    /// Its milliseconds in a thousand of ours.
    rate: u64,
}

impl Clock {
    fn local(self, now: Time) -> Time {
        let micros = u64::try_from(now.saturating_sub(self.began).as_micros()).unwrap_or(u64::MAX);
        self.offset + Duration::from_micros(micros * self.rate / 1000)
    }

    fn global(self, local: Time) -> Time {
        let micros = u64::try_from(local.saturating_sub(self.offset).as_micros()).unwrap_or(u64::MAX);
        // Never too early, or it would be woken for nothing again and again.
        self.began + Duration::from_micros(micros.saturating_mul(1000) / self.rate + 2)
    }
}

/// What a process asks etcd.
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

/// What comes back, or happens in the process.
#[derive(Clone, Debug)]
pub(crate) enum Tell {
    Follower(follower::Event),
    Session(session::Event),
    Coordinator(coordinator::Event),
    Tick,
}

/// What a process wants of the world.
#[derive(Clone, Debug)]
pub(crate) enum Wish {
    Ask(Ask),
    Unwatch,
    Compile(Digest),
    Keep(Digest),
}

impl Process {
    /// A process that starts now, with what it found on its disk.
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

    /// A number for a question, until it is answered or given up.
    pub(crate) fn question(&mut self) -> u64 {
        self.next_question += 1;
        self.pending.insert(self.next_question);
        self.next_question
    }

    /// Counts a question in this second of the world's: how many there are.
    pub(crate) fn asks_in(&mut self, second: u64) -> u32 {
        let before = if self.asks.0 == second { self.asks.1 } else { 0 };
        self.asks = (second, before + 1);
        self.asks.1
    }

    /// When it wants to be woken, in the world's time.
    pub(crate) fn next(&self) -> Time {
        let next = self.follower.next().min(self.session.next()).min(self.coordinator.next());
        if next == Time::MAX { Time::MAX } else { self.clock.global(next) }
    }

    /// Tells it something. `report` is what it would say of itself now.
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
        // What one machine knows the others hear at once.
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

/// What a node says of itself.
pub(crate) fn report(boot: u64, follower: &Follower, is_sick: impl Fn(Digest) -> bool) -> NodeReport {
    NodeReport {
        boot,
        unwell: follower.running().filter(|digest| is_sick(*digest)).map(|digest| Reason::new(digest, "5xx")),
        ..follower.report()
    }
}
