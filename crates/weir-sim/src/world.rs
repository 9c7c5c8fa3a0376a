//! The world owns time, order and chance. Every event passes through one queue, and every delay derives from the
//! seed.

mod ending;
mod troubles;

use crate::check::{Broken, Checker, assigned};
use crate::faults::{self, Bundles, Fault, Kind, Written};
use crate::node::{Ask, Node, Process, Tell, Wish, report};
use crate::store::Store;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_fleet::follower::{self, Seen, WatchEvent};
use weir_fleet::pointer::Labels;
use weir_fleet::{Chance, Digest, Pointer, Time, coordinator, etcd, session};

/// Timeout of a client.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Most outstanding questions of a node.
const PENDING: usize = 16;

/// Most questions of a node per second.
const ASKS: u32 = 40;

/// Most events per node in a run; more means that something spins.
const EVENTS: u64 = 2_000_000;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of gateways; every tenth is a canary.
    pub nodes: usize,
    /// Duration of the faults.
    pub faults: Duration,
    /// Duration of the quiet time after them.
    pub quiet: Duration,
}

/// The totals of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Events processed.
    pub events: u64,
    /// Pointers written.
    pub pointers: u64,
    /// Bundles started by nodes.
    pub runs: u64,
    /// Time from the last pointer written to the last node that changed its bundle for it.
    pub spread: Duration,
    /// Most reads at etcd within one second since then.
    pub reads_at_once: u64,
}

impl Settings {
    /// A dozen to about fifty nodes.
    pub fn usual(seed: u64) -> Self {
        let nodes = 10 + usize::try_from(Chance::new(seed).below(40)).unwrap_or(0);
        Self { nodes, faults: Duration::from_secs(300), quiet: Duration::from_secs(400) }
    }

    /// A run with this many nodes and no faults.
    pub const fn calm(nodes: usize) -> Self {
        Self { nodes, faults: Duration::ZERO, quiet: Duration::from_secs(240) }
    }
}

#[derive(Debug)]
enum Event {
    /// Wakes a node, unless it has since requested an earlier time.
    Wake(usize, u64, Time),
    /// A request arrives at etcd.
    Ask(usize, u64, u64, Ask),
    /// An answer arrives, or times out.
    Answer(usize, u64, u64, Tell),
    /// An event inside a process.
    Tell(usize, u64, Tell),
    Start(usize),
    Fault(Fault),
    /// A publisher reads, and writes a while later.
    Publish,
    Write(Box<Written>, u64),
    Leases,
    /// A damaged bundle is repaired.
    Ungarble,
    /// All faults end.
    Heal,
    /// A last change, which must reach every node.
    LastChange,
    /// Every node that can run its assigned bundle now runs it.
    Settled,
    /// From now on nothing changes and no bundle may be compiled.
    Idle,
    /// From now on nodes only poll at their regular intervals.
    Quiet,
}

/// A whole run.
pub struct World {
    seed: u64,
    settings: Settings,
    now: Time,
    order: u64,
    queue: BTreeMap<(Time, u64), Event>,
    chance: Chance,
    store: Store,
    nodes: Vec<Node>,
    bundles: Bundles,
    checker: Checker,
    outcome: Outcome,
    wrote_at: Time,
    is_idle: bool,
    reads: (Time, u64),
    /// The last change, once it is published, and the number of reads at etcd when the quiet time began.
    last: Option<Digest>,
    quiet_reads: u64,
    /// The original content of a damaged bundle.
    garbled: Option<(Digest, Vec<u8>)>,
}

impl World {
    /// A world before its first event.
    pub fn new(seed: u64, settings: Settings) -> Self {
        let nodes = (0..settings.nodes).map(|number| Node {
            name: format!("node-{number}"),
            labels: if number % 10 == 3 { faults::canary() } else { Labels::new() },
            boot: 0,
            disk: None,
            process: None,
            cut_until: Time::ZERO,
            slow_until: Time::ZERO,
            full_until: Time::ZERO,
            deaf_until: Time::ZERO,
            watch_at: Time::ZERO,
            deaf: false,
        });
        Self {
            seed,
            settings,
            now: Time::ZERO,
            order: 0,
            queue: BTreeMap::new(),
            chance: Chance::new(seed),
            store: Store::new(),
            nodes: nodes.collect(),
            bundles: Bundles::default(),
            checker: Checker::default(),
            outcome: Outcome::default(),
            wrote_at: Time::ZERO,
            is_idle: false,
            reads: (Time::ZERO, 0),
            last: None,
            quiet_reads: 0,
            garbled: None,
        }
    }

    /// Runs the simulation to its end.
    ///
    /// # Errors
    /// The first violated invariant.
    pub fn run(mut self) -> Result<Outcome, Broken> {
        self.plan();
        let end = self.settings.faults + self.settings.quiet;
        while let Some(((at, _), event)) = self.queue.pop_first()
            && at <= end
        {
            self.now = at;
            self.outcome.events += 1;
            self.happens(event);
            if self.outcome.events > EVENTS * (self.settings.nodes as u64 + 10) / 10 {
                self.checker.breaks(at, "there are too many events: something spins".to_owned());
            }
            if let Some((at, what)) = self.checker.broken.take() {
                return Err(Broken { seed: self.seed, at, what });
            }
        }
        self.now = end;
        self.last_check();
        match self.checker.broken.take() {
            Some((at, what)) => Err(Broken { seed: self.seed, at, what }),
            None => Ok(self.outcome),
        }
    }

    fn plan(&mut self) {
        for node in 0..self.settings.nodes {
            let at = self.chance.between(Duration::ZERO, Duration::from_secs(3));
            self.later(at, Event::Start(node));
        }
        self.later(Duration::from_secs(1), Event::Leases);
        let is_calm = self.settings.faults.is_zero();
        self.later(Duration::from_secs(5), if is_calm { Event::LastChange } else { Event::Publish });
        let (from, to) = (Duration::from_secs(10), self.settings.faults);
        for (at, fault) in faults::plan(&mut self.chance, self.settings.nodes, from, to) {
            self.later(at, Event::Fault(fault));
        }
        let mut at = Duration::from_secs(6);
        while at < to {
            self.later(at, Event::Publish);
            // Sometimes two publish at almost the same moment.
            let apart =
                if self.chance.happens(20) { Duration::from_millis(200) } else { Duration::from_secs(40) };
            at += self.chance.between(Duration::ZERO, apart);
        }
        self.later(to, Event::Heal);
        if !is_calm {
            // Longer than the interval at which any node polls the pointer.
            self.later(to + Duration::from_secs(95), Event::Settled);
        }
        if is_calm || self.chance.happens(60) {
            self.later(to + Duration::from_secs(100), Event::LastChange);
        }
        let idle = to + self.settings.quiet - Duration::from_secs(100);
        self.later(idle, Event::Idle);
        for (after, fault) in
            [(20, Fault::Compacts), (40, Fault::StoreStops), (42, Fault::StoreStarts), (60, Fault::Compacts)]
        {
            self.later(idle + Duration::from_secs(after), Event::Fault(fault));
        }
        self.later(idle + Duration::from_secs(65), Event::Quiet);
    }

    fn later(&mut self, at: Time, event: Event) {
        self.order += 1;
        self.queue.insert((at.max(self.now), self.order), event);
    }

    fn after(&mut self, wait: Duration, event: Event) {
        self.later(self.now + wait, event);
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Wake(node, boot, at) => {
                if let Some(process) = self.process(node, boot)
                    && process.woken_at == Some(at)
                {
                    process.woken_at = None;
                    self.tell(node, Tell::Tick);
                }
            }
            Event::Tell(node, boot, tell) => {
                if self.process(node, boot).is_some() {
                    self.tell(node, tell);
                }
            }
            Event::Ask(node, boot, question, ask) => self.asked(node, boot, question, ask),
            Event::Answer(node, boot, question, tell) => {
                if self.process(node, boot).is_some_and(|process| process.pending.remove(&question)) {
                    self.tell(node, tell);
                }
            }
            Event::Start(node) => self.start(node),
            Event::Fault(fault) => self.breaks(fault),
            Event::Publish => self.publishes(),
            Event::Write(written, revision) => self.writes(*written, revision),
            Event::Leases => {
                if self.store.is_up {
                    self.store.expire(self.now);
                }
                self.after(Duration::from_secs(1), Event::Leases);
            }
            Event::Heal => self.heals(),
            Event::LastChange => self.last_change(),
            Event::Settled => self.all_settled(),
            Event::Idle => self.is_idle = true,
            Event::Quiet => self.quiet_reads = self.store.reads,
            Event::Ungarble => self.ungarbles(),
        }
    }

    // === processes ===

    fn process(&mut self, node: usize, boot: u64) -> Option<&mut Process> {
        let node = self.nodes.get_mut(node)?;
        if node.boot == boot { node.process.as_mut() } else { None }
    }

    fn start(&mut self, number: usize) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(number) else { return };
        if node.process.is_some() {
            return;
        }
        node.boot += 1;
        let (process, wishes) = Process::start((&node.name, &node.labels), node.disk, now, &mut self.chance);
        self.checker.begins(now, number, node.boot, (node.disk, process.follower.running()));
        node.process = Some(process);
        self.grant(number, wishes);
        self.tell(number, Tell::Tick);
    }

    fn tell(&mut self, number: usize, tell: Tell) {
        let (now, bundles) = (self.now, &self.bundles);
        let Some(node) = self.nodes.get_mut(number) else { return };
        let (name, labels, boot, life) = (&node.name, &node.labels, node.boot, self.store.life);
        let Some(process) = &mut node.process else { return };
        let was = process.follower.running();
        let is_sick = |digest| bundles.kind(digest) == Kind::Sick;
        let wishes = process.tell(now, tell, |follower| report(boot, follower, is_sick));
        let runs = process.follower.running();
        if let (Some(_), None) = (was, runs) {
            self.checker.breaks(now, format!("node {number} gave up what it ran"));
        }
        if let Some(digest) = runs.filter(|_| runs != was) {
            self.checker.runs(now, (number, name, labels), (digest, was), bundles);
            self.outcome.runs += 1;
            self.outcome.spread = now.saturating_sub(self.wrote_at);
        }
        self.checker.knows(now, number, boot, (life, process.follower.modified()));
        if process.pending.len() > PENDING {
            self.checker.breaks(now, format!("node {number} waits for {} answers", process.pending.len()));
        }
        self.grant(number, wishes);
        self.wake(number);
    }

    /// Schedules the next wakeup of a node.
    fn wake(&mut self, number: usize) {
        let Some(node) = self.nodes.get_mut(number) else { return };
        let boot = node.boot;
        let Some(process) = &mut node.process else { return };
        let next = process.next();
        if next == Time::MAX || process.woken_at.is_some_and(|at| at <= next) {
            return;
        }
        process.woken_at = Some(next);
        self.later(next, Event::Wake(number, boot, next));
    }

    fn grant(&mut self, number: usize, wishes: Vec<Wish>) {
        for wish in wishes {
            let now = self.now;
            let Some(node) = self.nodes.get_mut(number) else { return };
            let (boot, is_full) = (node.boot, node.full_until > now);
            match wish {
                Wish::Ask(ask) => self.ask(number, ask),
                Wish::Unwatch => self.store.unwatch(number),
                Wish::Compile(digest) => self.compiles(number, boot, digest, is_full),
                Wish::Keep(digest) => {
                    if !is_full {
                        node.disk = Some(digest);
                    }
                    let wait = self.chance.between(Duration::from_millis(1), Duration::from_millis(50));
                    let kept = Tell::Follower(follower::Event::Kept(digest, !is_full));
                    self.after(wait, Event::Tell(number, boot, kept));
                }
            }
        }
    }

    fn compiles(&mut self, number: usize, boot: u64, digest: Digest, is_full: bool) {
        self.checker.compiles(self.now, number, boot, digest);
        let known = self.nodes.get(number).and_then(|node| {
            let pointer = node.process.as_ref()?.follower.pointer()?;
            assigned(pointer, &node.name, &node.labels)
        });
        if known != Some(digest) {
            self.checker.breaks(self.now, format!("node {number} builds {digest:?} and is to run {known:?}"));
        }
        if self.is_idle && self.bundles.kind(digest) != Kind::Deadly {
            self.checker.breaks(self.now, format!("node {number} builds {digest:?} though nothing changed"));
        }
        if self.bundles.kind(digest) == Kind::Deadly {
            return self.crash(number);
        }
        let outcome = if is_full && self.chance.happens(50) {
            follower::Outcome::Failed("no space left".to_owned())
        } else if self.bundles.compiles(digest, number) {
            follower::Outcome::Running
        } else {
            self.checker.refuses(number, boot, digest);
            follower::Outcome::Refused("it does not compile".to_owned())
        };
        let wait = self.chance.between(Duration::from_millis(5), Duration::from_millis(200));
        self.after(wait, Event::Tell(number, boot, Tell::Follower(follower::Event::Ran(digest, outcome))));
    }

    // === the network ===

    /// The latency of a packet; `None` if it is lost.
    fn packet(&mut self, number: usize, is_answer: bool) -> Option<Duration> {
        let now = self.now;
        let node = self.nodes.get(number)?;
        let (is_cut, is_slow) = (node.cut_until > now, node.slow_until > now);
        let is_deaf = is_answer && node.deaf_until > now;
        if is_cut || is_deaf || (is_slow && self.chance.happens(30)) {
            return None;
        }
        let (from, to) = if is_slow { (50_000, 3_000_000) } else { (200, 5_000) };
        Some(Duration::from_micros(from + self.chance.below(to - from)))
    }

    fn ask(&mut self, number: usize, ask: Ask) {
        let Some(node) = self.nodes.get_mut(number) else { return };
        let boot = node.boot;
        let Some(process) = &mut node.process else { return };
        let question = process.question();
        if process.asks_in(self.now.as_secs()) > ASKS {
            self.checker.breaks(self.now, format!("node {number} asks more than {ASKS} times in a second"));
        }
        self.after(TIMEOUT, Event::Answer(number, boot, question, failed(&ask, "no answer in time")));
        if let Some(wait) = self.packet(number, false) {
            self.after(wait, Event::Ask(number, boot, question, ask));
        }
    }

    fn answer(&mut self, number: usize, boot: u64, question: u64, tell: Tell) {
        if let Some(wait) = self.packet(number, true) {
            self.after(wait, Event::Answer(number, boot, question, tell));
        }
    }

    fn watch_says(&mut self, number: usize, boot: u64, watch: u64, told: WatchEvent) {
        let wait = self.packet(number, true);
        let Some(node) = self.nodes.get_mut(number) else { return };
        let Some(wait) = wait.filter(|_| !node.deaf) else {
            // The connection is gone. Whether and when the node notices is open.
            node.deaf = true;
            self.store.unwatch(number);
            if self.chance.happens(50) {
                let wait = self.chance.between(Duration::from_secs(1), Duration::from_secs(20));
                let ended = WatchEvent::Ended("reset".to_owned());
                let tell = Tell::Follower(follower::Event::Watch(watch, ended));
                self.after(wait, Event::Tell(number, boot, tell));
            }
            return;
        };
        node.watch_at = node.watch_at.max(self.now + wait);
        let (at, tell) = (node.watch_at, Tell::Follower(follower::Event::Watch(watch, told)));
        self.later(at, Event::Tell(number, boot, tell));
    }

    fn tell_watchers(&mut self, told: Vec<(usize, u64, Seen)>) {
        for (number, watch, seen) in told {
            let boot = self.nodes.get(number).map_or(0, |node| node.boot);
            self.watch_says(number, boot, watch, WatchEvent::Changed(seen));
        }
    }

    // === etcd ===

    fn asked(&mut self, number: usize, boot: u64, question: u64, ask: Ask) {
        if !self.store.is_up {
            return self.answer(number, boot, question, failed(&ask, "connection refused"));
        }
        let now = self.now;
        self.store.expire(now);
        if matches!(ask, Ask::Read(_) | Ask::Fetch(_) | Ask::Look) {
            let (second, count) = &mut self.reads;
            if now.as_secs() == second.as_secs() {
                *count += 1
            } else {
                (*second, *count) = (now, 1)
            }
            self.outcome.reads_at_once = self.outcome.reads_at_once.max(self.reads.1);
        }
        let node_lost = || "etcdserver: requested lease not found".to_owned();
        let tell = match ask {
            Ask::Read(read) => Tell::Follower(follower::Event::Read(read, Ok(self.store.read()))),
            Ask::Watch(watch, from) => return self.opens_watch(number, boot, question, watch, from),
            Ask::Fetch(digest) => {
                let fetched = etcd::bundle(&self.store.bundle(digest), digest).map(|bundle| bundle.digest());
                if fetched.as_ref().is_ok_and(|fetched| *fetched != digest) {
                    self.checker.breaks(now, format!("node {number} takes {fetched:?} for {digest:?}"));
                }
                Tell::Follower(follower::Event::Fetched(digest, fetched.map(drop)))
            }
            Ask::Grant => Tell::Session(session::Event::Granted(Ok(self.store.grant(now)))),
            Ask::Keep(lease) => Tell::Session(session::Event::Kept(Ok(self.store.keep_alive(lease, now)))),
            Ask::Put(lease, report) => {
                let done = self.store.put_report(number, lease, *report, now);
                Tell::Session(session::Event::Done(if done { Ok(()) } else { Err(node_lost()) }))
            }
            Ask::Campaign(lease) => {
                let campaigned = self.store.campaign(number, lease).ok_or_else(node_lost);
                Tell::Coordinator(coordinator::Event::Campaigned(campaigned))
            }
            Ask::Look => Tell::Coordinator(coordinator::Event::Nodes(Ok(self.store.look()))),
            Ask::Move { pointer, revision, key } => {
                let made = self.store.is_leader(key) && self.puts(&pointer, revision, None, &[], true);
                // Sometimes the coordinator dies right after this write.
                if made && now < self.settings.faults && self.chance.happens(10) {
                    return self.crash(number);
                }
                Tell::Coordinator(coordinator::Event::Moved(Ok(made)))
            }
        };
        self.answer(number, boot, question, tell);
    }

    fn opens_watch(&mut self, number: usize, boot: u64, question: u64, watch: u64, from: u64) {
        // The watch itself answers its question.
        if !self.process(number, boot).is_some_and(|process| process.pending.remove(&question)) {
            return;
        }
        if let Some(node) = self.nodes.get_mut(number) {
            node.deaf = false;
        }
        match self.store.watch(number, watch, from) {
            Ok(missed) => {
                self.watch_says(number, boot, watch, WatchEvent::Nothing);
                for seen in missed {
                    self.watch_says(number, boot, watch, WatchEvent::Changed(seen));
                }
            }
            Err(compacted) => {
                let ended = WatchEvent::Ended(format!("compacted up to {compacted}"));
                self.watch_says(number, boot, watch, ended);
            }
        }
    }

    fn puts(
        &mut self,
        pointer: &Pointer,
        revision: u64,
        bundle: Option<Digest>,
        unused: &[Digest],
        by_coordinator: bool,
    ) -> bool {
        let before = self.store.pointer().map(|(pointer, _)| pointer.clone());
        let packed = bundle.map(|bundle| self.bundles.packed(bundle));
        let checked = |world: &mut Self| {
            let known = (&world.bundles, &world.store);
            world.checker.wrote(world.now, pointer, (before.as_ref(), revision), by_coordinator, known);
        };
        let Some(told) = self.store.put_pointer(pointer, revision, packed, unused) else { return false };
        checked(self);
        self.outcome.pointers += 1;
        self.wrote_at = self.now;
        (self.reads, self.outcome.reads_at_once) = ((self.now, 0), 0);
        self.tell_watchers(told);
        true
    }
}

/// The event for a question that is not answered.
fn failed(ask: &Ask, why: &str) -> Tell {
    let why = why.to_owned();
    match ask {
        Ask::Read(read) => Tell::Follower(follower::Event::Read(*read, Err(why))),
        Ask::Watch(watch, _) => Tell::Follower(follower::Event::Watch(*watch, WatchEvent::Ended(why))),
        Ask::Fetch(digest) => Tell::Follower(follower::Event::Fetched(*digest, Err(why))),
        Ask::Grant => Tell::Session(session::Event::Granted(Err(why))),
        Ask::Keep(_) => Tell::Session(session::Event::Kept(Err(why))),
        Ask::Put(..) => Tell::Session(session::Event::Done(Err(why))),
        Ask::Campaign(_) => Tell::Coordinator(coordinator::Event::Campaigned(Err(why))),
        Ask::Look => Tell::Coordinator(coordinator::Event::Nodes(Err(why))),
        Ask::Move { .. } => Tell::Coordinator(coordinator::Event::Moved(Err(why))),
    }
}
