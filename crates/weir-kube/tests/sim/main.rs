//! Replicas and an API server in one thread, with a clock of their own and faults from a seed: lost answers, broken and
//! duplicated watch messages, compaction, slow lists, bursts of changes, a server that is away, restarts.
//!
//! *Layout:* `server.rs` is the API server, `replica.rs` one replica: the machines of `watch/` and a driver that
//! carries their actions out. This file is the world: the clock, the network and the invariants.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

mod replica;
mod server;

use replica::{Replica, Send};
use server::Server;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;
use weir_fleet::chance::Chance;
use weir_kube::api::ApiError;
use weir_kube::watch::{Time, election, reflector, writer};

/// The kinds that the simulation has.
pub(crate) const KINDS: [&str; 2] = ["HTTPRoute", "Service"];

/// How long users and faults are busy, and how long everything is quiet afterwards.
const BUSY: Duration = Duration::from_secs(300);
/// How long the server is away in the middle of that, if it is for long.
const HOUR: Duration = Duration::from_secs(3_600);
const QUIET: Duration = Duration::from_secs(400);

const REPLICAS: usize = 3;

/// A message that arrives at a replica.
pub(crate) enum Message {
    Reflector(usize, reflector::Event),
    Election(election::Event),
    Writer(writer::Event),
}

/// Where a replica's watch is on the server.
struct Stream {
    number: u64,
    at: u64,
    ends: Time,
    /// When its last message arrives: later ones do not overtake it.
    last: Time,
}

struct World {
    now: Time,
    chance: Chance,
    server: Server,
    replicas: Vec<Replica>,
    /// The incarnation of each replica: messages to an earlier one are lost.
    lives: Vec<u64>,
    streams: BTreeMap<(usize, usize), Stream>,
    /// Messages under way: when they arrive, an order, and where they go.
    heap: BinaryHeap<Reverse<(Time, u64)>>,
    mail: BTreeMap<u64, (usize, u64, Message)>,
    order: u64,
    away_until: Time,
    /// How long users and faults are busy.
    busy: Duration,
    status_writes: Vec<Time>,
}

impl World {
    fn new(seed: u64) -> Self {
        let replicas = (0..REPLICAS).map(|at| Replica::new(at, seed)).collect();
        Self {
            now: Time::ZERO,
            chance: Chance::new(seed),
            server: Server::default(),
            replicas,
            lives: vec![0; REPLICAS],
            streams: BTreeMap::new(),
            heap: BinaryHeap::new(),
            mail: BTreeMap::new(),
            order: 0,
            away_until: Time::ZERO,
            busy: BUSY,
            status_writes: Vec::new(),
        }
    }

    fn is_busy(&self) -> bool {
        self.now < self.busy
    }

    fn run(&mut self) {
        let mut next_user = Time::ZERO;
        while self.now < self.busy + QUIET {
            let mail = self.heap.peek().map_or(Time::MAX, |Reverse((at, _))| *at);
            let ticks = self.replicas.iter().map(Replica::next).min().unwrap();
            let ends = self.streams.values().map(|stream| stream.ends).min().unwrap_or(Time::MAX);
            let user = if self.is_busy() { next_user } else { Time::MAX };
            let next = mail.min(ticks).min(user).min(ends).max(self.now);
            assert_ne!(next, Time::MAX, "nothing would ever happen again");
            self.now = next;
            if user <= self.now {
                self.user();
                next_user = self.now + self.chance.between(Duration::ZERO, Duration::from_secs(4));
            }
            self.end_streams();
            if mail <= self.now {
                let Reverse((_, order)) = self.heap.pop().unwrap();
                let (to, life, message) = self.mail.remove(&order).unwrap();
                if self.lives[to] == life {
                    let sends = self.replicas[to].on(self.now, message);
                    self.carry_out(to, sends);
                }
            }
            for at in 0..REPLICAS {
                if self.replicas[at].next() <= self.now {
                    let sends = self.replicas[at].tick(self.now);
                    self.carry_out(at, sends);
                }
            }
            self.push_news();
            let leaders = self.replicas.iter().filter(|replica| replica.election.leads(self.now)).count();
            assert!(leaders <= 1, "{leaders} leaders at {:?}", self.now);
        }
    }

    /// Users and faults: one random thing.
    fn user(&mut self) {
        match self.chance.below(20) {
            0 => self.server.compact(),
            1 => {
                let until = self.now + self.chance.between(Duration::ZERO, Duration::from_secs(60));
                self.away_until = self.away_until.max(until);
            }
            2 => {
                let at = usize::try_from(self.chance.below(REPLICAS as u64)).unwrap();
                self.restart(at);
            }
            3 => self.streams.clear(), // broken without a word: the replica hears only silence
            4 => {
                for _ in 0..self.chance.below(300) {
                    self.server.random_change(&mut self.chance);
                }
            }
            5 => self.server.spoil_a_status(&mut self.chance),
            6 => self.bookmark(),
            _ => self.server.random_change(&mut self.chance),
        }
    }

    fn restart(&mut self, at: usize) {
        self.lives[at] += 1;
        self.streams.retain(|(replica, _), _| *replica != at);
        let saved = self.replicas[at].store.save(&[]);
        let life = self.lives[at];
        self.replicas[at] = Replica::restarted(at, life, self.now, &saved);
    }

    fn is_away(&self) -> bool {
        self.now < self.away_until
    }

    fn latency(&mut self) -> Duration {
        let slow = self.is_busy() && self.chance.happens(3);
        let most = if slow { Duration::from_secs(20) } else { Duration::from_millis(40) };
        self.chance.between(Duration::from_millis(1), most)
    }

    fn post(&mut self, to: usize, at: Time, message: Message) {
        self.order += 1;
        self.heap.push(Reverse((at, self.order)));
        self.mail.insert(self.order, (to, self.lives[to], message));
    }

    /// Answers requests. The server does what they ask now; answers arrive later, or never.
    fn carry_out(&mut self, from: usize, sends: Vec<Send>) {
        for send in sends {
            let arrives = self.now + self.latency();
            let is_lost = self.is_busy() && self.chance.happens(3);
            if self.is_away() {
                let down = ApiError::Away("connection refused".to_owned(), None);
                self.post(from, arrives, send.failed(down));
                continue;
            }
            let answer = match send {
                Send::List { kind, number, limit, next } => {
                    let page = self.server.list(kind, limit, next.as_deref());
                    Some(Message::Reflector(kind, reflector::Event::Listed(number, page)))
                }
                Send::Watch { kind, number, from: version, time } => {
                    let at = version.parse().unwrap();
                    let (ends, last) = (self.now + time, arrives);
                    self.streams.insert((from, kind), Stream { number, at, ends, last });
                    let opened = reflector::WatchEvent::Opened;
                    Some(Message::Reflector(kind, reflector::Event::Watch(number, opened)))
                }
                Send::Unwatch { kind } => {
                    self.streams.remove(&(from, kind));
                    None
                }
                Send::ReadLease { number } => {
                    Some(Message::Election(election::Event::Read(number, Ok(self.server.lease.clone()))))
                }
                Send::WriteLease { number, version, holder, transitions } => {
                    let wrote = self.server.write_lease(version.as_deref(), &holder, transitions);
                    Some(Message::Election(election::Event::Wrote(number, wrote)))
                }
                Send::Read { number, target } => {
                    Some(Message::Writer(writer::Event::Read(number, self.server.get(&target))))
                }
                Send::Write { number, target, version, patch } => {
                    assert!(self.replicas[from].election.leads(self.now), "a write by one who does not lead");
                    let wrote = self.server.write_status(&target, &version, &patch);
                    if wrote.is_ok() {
                        self.status_writes.push(self.now);
                    }
                    Some(Message::Writer(writer::Event::Wrote(number, wrote)))
                }
            };
            if let Some(answer) = answer.filter(|_| !is_lost) {
                self.post(from, arrives, answer);
            }
        }
    }

    /// Sends each watch what has happened since.
    fn push_news(&mut self) {
        if self.is_away() {
            self.streams.clear();
            return;
        }
        let keys: Vec<(usize, usize)> = self.streams.keys().copied().collect();
        for (replica, kind) in keys {
            let stream = &self.streams[&(replica, kind)];
            let (number, last) = (stream.number, stream.last);
            let Some(news) = self.server.news(kind, stream.at) else {
                let told = weir_kube::api::Told::Failed(ApiError::Expired);
                self.streams.remove(&(replica, kind));
                let event = reflector::Event::Watch(number, reflector::WatchEvent::Told(told));
                self.post(replica, last.max(self.now), Message::Reflector(kind, event));
                continue;
            };
            let mut arrives = last.max(self.now);
            for told in news {
                if self.is_busy() && self.chance.happens(1) {
                    self.streams.remove(&(replica, kind)); // broken in the middle
                    break;
                }
                let copies = if self.is_busy() && self.chance.happens(5) { 2 } else { 1 };
                for _ in 0..copies {
                    arrives += self.chance.between(Duration::ZERO, Duration::from_millis(5));
                    let event = reflector::Event::Watch(number, reflector::WatchEvent::Told(told.clone()));
                    self.post(replica, arrives, Message::Reflector(kind, event));
                }
            }
            if let Some(stream) = self.streams.get_mut(&(replica, kind)) {
                (stream.at, stream.last) = (self.server.version, arrives);
            }
        }
    }

    /// Says on each watch how far it has come.
    fn bookmark(&mut self) {
        let keys: Vec<(usize, usize)> = self.streams.keys().copied().collect();
        for (replica, kind) in keys {
            let Stream { number, at, last, .. } = self.streams[&(replica, kind)];
            let told = weir_kube::api::Told::Bookmark(at.to_string());
            let event = reflector::Event::Watch(number, reflector::WatchEvent::Told(told));
            self.post(replica, last.max(self.now), Message::Reflector(kind, event));
        }
    }

    fn end_streams(&mut self) {
        let over: Vec<(usize, usize)> =
            self.streams.iter().filter(|(_, stream)| stream.ends <= self.now).map(|(key, _)| *key).collect();
        for (replica, kind) in over {
            let Some(stream) = self.streams.remove(&(replica, kind)) else { continue };
            let event = reflector::Event::Watch(stream.number, reflector::WatchEvent::Ended);
            self.post(replica, stream.last.max(self.now), Message::Reflector(kind, event));
        }
    }
}

/// Runs a seed and checks what must hold once it is quiet.
fn run(seed: u64) -> (usize, usize) {
    check(World::new(seed), seed)
}

fn check(mut world: World, seed: u64) -> (usize, usize) {
    world.run();
    for (at, replica) in world.replicas.iter().enumerate() {
        assert_eq!(replica.store, world.server.store(), "seed {seed}: the copy of replica {at}");
    }
    assert_eq!(
        world.replicas.iter().filter(|r| r.election.leads(world.now)).count(),
        1,
        "seed {seed}: a leader"
    );
    for (target, status) in world.server.statuses() {
        let wanted = replica::wanted(&world.server.store(), &target);
        let reason = status.pointer("/parents/0/conditions/0/reason").cloned().unwrap_or_default();
        assert_eq!(reason, wanted["parents"][0]["conditions"][0]["reason"], "seed {seed}: {target:?}");
    }
    let settled = world.busy + QUIET / 2;
    let late = world.status_writes.iter().filter(|at| **at > settled).count();
    assert_eq!(late, 0, "seed {seed}: writes although nothing has changed");
    (world.status_writes.len(), world.server.len())
}

/// The server is away for an hour in which every replica restarts several times, and then everything is as it should.
#[test]
fn an_hour_without_the_server_is_survived() {
    for seed in 0..2 {
        let mut world = World::new(seed);
        for _ in 0..200 {
            world.server.random_change(&mut world.chance);
        }
        (world.busy, world.away_until) = (BUSY + HOUR, HOUR);
        check(world, seed);
    }
}

/// `WEIR_SEEDS=1000..2000` runs others.
#[test]
fn copies_and_statuses_are_right_after_any_faults() {
    let range = std::env::var("WEIR_SEEDS").unwrap_or_else(|_| "0..6".to_owned());
    let (from, to) = range.split_once("..").unwrap();
    let (mut writes, mut objects) = (0, 0);
    for seed in from.parse().unwrap()..to.parse().unwrap() {
        let (wrote, left) = run(seed);
        (writes, objects) = (writes + wrote, objects + left);
    }
    assert!(writes > 200 && objects > 50, "the simulation did something: {writes} writes, {objects} objects");
}
