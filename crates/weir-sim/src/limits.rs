//! Simulates limits that nodes share: their leases, the election of a coordinator and its ledger, over an
//! unreliable etcd and network. Requests never exceed the bound, however often coordinators die, and two
//! coordinators never grant at the same time.

use crate::check::Broken;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_fleet::limits::election::{self, Action, Holder};
use weir_fleet::limits::lease::{self, Answer, Ask, Taken, Terms};
use weir_fleet::limits::ledger::{Asked, Limit};
use weir_fleet::limits::{Election, Lease, Ledger};
use weir_fleet::session;
use weir_fleet::{Chance, Time};

/// Timeout of a request to etcd, and of one to the coordinator.
const TIMEOUT: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_millis(500);

/// Duration of the faults, and of the quiet time after them.
const FAULTS: Duration = Duration::from_secs(120);
const QUIET: Duration = Duration::from_secs(40);

/// Number of keys that clients share.
const KEYS: usize = 2;

/// The totals of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed {
    /// Events processed.
    pub events: u64,
    /// Requests let through.
    pub requests: u64,
    /// Terms of coordinators.
    pub terms: u64,
}

#[derive(Debug)]
enum Event {
    Start(usize),
    Wake(usize, u64),
    /// A request for a key at a node.
    Request(usize, usize),
    /// A request arrives at etcd.
    Etcd(usize, u64, u64, Action),
    /// The answer arrives, or times out.
    Told(usize, u64, u64, election::Event),
    /// A node wants to connect to the coordinator.
    Connect(usize, u64, u64, Holder),
    /// The connection is established.
    Connected(usize, u64, u64, usize, u64),
    /// The connection is lost, or was never established.
    Lost(usize, u64, u64),
    /// A question arrives at the coordinator.
    Ask(usize, u64, u64, Question, usize, u64),
    /// The coordinator's answer arrives.
    Answer(usize, u64, u64, Question, Option<Vec<i64>>),
    Fault,
    Heal,
}

#[derive(Clone, Copy, Debug)]
struct Question {
    key: usize,
    ask: Ask,
}

struct Node {
    boot: u64,
    process: Option<Process>,
    /// The end of being cut off from etcd, and from other nodes.
    no_etcd_until: Time,
    no_peers_until: Time,
}

struct Process {
    began: Time,
    offset: Time,
    rate: u64,
    election: Election,
    leases: [Lease; KEYS],
    waiting: [u32; KEYS],
    books: Option<Ledger>,
    /// The connection with its number: the node at the other end, and which of its processes.
    link: Option<(usize, u64)>,
    connection: u64,
    under_way: Vec<Question>,
    asked: u64,
}

#[derive(Default)]
struct Etcd {
    down_until: Time,
    next: session::Lease,
    leases: BTreeMap<session::Lease, Time>,
    holder: Option<(Holder, session::Lease)>,
}

struct World {
    now: Time,
    order: u64,
    queue: BTreeMap<(Time, u64), Event>,
    chance: Chance,
    etcd: Etcd,
    nodes: Vec<Node>,
    terms: Terms,
    limit: Limit,
    /// How much faster than the simulation's clock a node's clock may run, in thousandths.
    skew: u64,
    /// The remaining budget of each key, in millionths, and the largest possible budget.
    room: [i128; KEYS],
    most: i128,
    looked: Time,
    late: [u64; KEYS],
    passed: Passed,
    broken: Option<String>,
}

const ONE: i128 = 1_000_000;

/// Runs one seed.
///
/// # Errors
/// The first violated invariant, and when.
pub fn run_limits(seed: u64) -> Result<Passed, Broken> {
    let mut world = World::new(seed);
    let end = FAULTS + QUIET;
    while let Some(((at, _), event)) = world.queue.pop_first()
        && at <= end
    {
        world.now = at;
        world.passed.events += 1;
        world.happens(event);
        if let Some(what) = world.broken.take() {
            return Err(Broken { seed, at, what });
        }
    }
    world.last_check();
    match world.broken.take() {
        Some(what) => Err(Broken { seed, at: end, what }),
        None => Ok(world.passed),
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x11f7);
        let nodes = 2 + usize::try_from(chance.below(5)).unwrap_or(0);
        let requests = 20 + u32::try_from(chance.below(180)).unwrap_or(0);
        let burst = if chance.happens(50) { requests } else { requests * 3 };
        let limit = Limit { requests, micros: 1_000_000, burst };
        let terms = Terms { cost: 1, most: (burst / 20).max(1), strict: chance.happens(30) };
        let skew = if chance.happens(70) { 1 } else { 50 };
        let most = i128::from(burst + u32::try_from(nodes).unwrap_or(0) * terms.ahead()) * ONE;
        let mut world = Self {
            now: Time::ZERO,
            order: 0,
            queue: BTreeMap::new(),
            etcd: Etcd::default(),
            nodes: (0..nodes)
                .map(|_| Node {
                    boot: 0,
                    process: None,
                    no_etcd_until: Time::ZERO,
                    no_peers_until: Time::ZERO,
                })
                .collect(),
            chance,
            terms,
            limit,
            skew,
            room: [most; KEYS],
            most,
            looked: Time::ZERO,
            late: [0; KEYS],
            passed: Passed::default(),
            broken: None,
        };
        for node in 0..nodes {
            let at = world.chance.between(Duration::ZERO, Duration::from_secs(2));
            world.later(at, Event::Start(node));
            (0..KEYS).for_each(|key| world.later(at, Event::Request(node, key)));
        }
        world.later(Duration::from_secs(5), Event::Fault);
        world.later(FAULTS, Event::Heal);
        world
    }

    fn later(&mut self, at: Time, event: Event) {
        self.order += 1;
        self.queue.insert((at.max(self.now), self.order), event);
    }

    fn after(&mut self, wait: Duration, event: Event) {
        self.later(self.now + wait, event);
    }

    fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    fn process(&mut self, number: usize, boot: u64) -> Option<&mut Process> {
        let node = self.nodes.get_mut(number)?;
        if node.boot == boot { node.process.as_mut() } else { None }
    }

    fn boot(&self, number: usize) -> u64 {
        self.nodes.get(number).map_or(0, |node| node.boot)
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Start(number) => self.starts(number),
            Event::Wake(number, boot) => self.elects(number, boot, election::Event::Tick),
            Event::Request(number, key) => self.requested(number, key),
            Event::Etcd(number, boot, asked, action) => self.etcd(number, boot, asked, action),
            Event::Told(number, boot, asked, event) => {
                if self.process(number, boot).is_some_and(|process| process.asked == asked) {
                    if let Some(process) = self.process(number, boot) {
                        process.asked += 1; // the other answer or the timeout comes too late
                    }
                    self.elects(number, boot, event);
                }
            }
            Event::Connect(number, boot, connection, holder) => {
                self.connects(number, boot, connection, &holder);
            }
            Event::Connected(number, boot, connection, to, to_boot) => {
                let Some(process) = self.process(number, boot) else { return };
                if process.connection == connection {
                    process.link = Some((to, to_boot));
                    self.elects(number, boot, election::Event::Met);
                }
            }
            Event::Lost(number, boot, connection) => self.lost(number, boot, connection),
            Event::Ask(number, boot, connection, question, to, to_boot) => {
                let now = self.now;
                let asked = self.asked(question);
                let answer = self.process(to, to_boot).and_then(|process| {
                    let local = process.local(now);
                    process.books.as_mut().map(|books| books.answer(local, &asked))
                });
                match (answer, self.packet(number, Some(to))) {
                    (Some(numbers), Some(wait)) => {
                        self.after(wait, Event::Answer(number, boot, connection, question, numbers));
                    }
                    _ => self.after(PATIENCE, Event::Lost(number, boot, connection)),
                }
            }
            Event::Answer(number, boot, connection, question, numbers) => {
                if self.process(number, boot).is_some_and(|process| process.connection == connection) {
                    self.answered(number, boot, question, numbers);
                }
            }
            Event::Fault => self.fault(),
            Event::Heal => {
                self.etcd.down_until = self.now;
                for node in &mut self.nodes {
                    (node.no_etcd_until, node.no_peers_until) = (Time::ZERO, Time::ZERO);
                }
            }
        }
    }

    // === processes ===

    fn starts(&mut self, number: usize) {
        let (now, skew) = (self.now, self.skew);
        let offset = self.chance.between(Duration::from_secs(1), Duration::from_secs(1_000_000));
        let rate = 1000 - skew + self.chance.below(2 * skew + 1);
        let (seed, boot) = (self.chance.number(), self.boot(number) + 1);
        let Some(node) = self.nodes.get_mut(number) else { return };
        if node.process.is_some() {
            return;
        }
        node.boot = boot;
        node.process = Some(Process {
            began: now,
            offset,
            rate,
            election: Election::new(format!("{number}-{boot}"), seed),
            leases: std::array::from_fn(|_| Lease::default()),
            waiting: [0; KEYS],
            books: None,
            link: None,
            connection: 0,
            under_way: Vec::new(),
            asked: 0,
        });
        // Its predecessor may not have reported the requests that it let through freely.
        if boot > 1 && !self.terms.strict {
            let free = i128::from(self.terms.cost) * ONE;
            self.most += free;
            self.room.iter_mut().for_each(|room| *room += free);
        }
        self.elects(number, boot, election::Event::Tick);
    }

    fn elects(&mut self, number: usize, boot: u64, event: election::Event) {
        let now = self.now;
        let Some(process) = self.process(number, boot) else { return };
        let local = process.local(now);
        let actions = process.election.on(local, event);
        for action in actions {
            self.acts(number, boot, action);
        }
        let Some(process) = self.process(number, boot) else { return };
        let next = process.election.next();
        if next != Time::MAX {
            let at = process.global(next);
            self.later(at, Event::Wake(number, boot));
        }
    }

    fn acts(&mut self, number: usize, boot: u64, action: Action) {
        let now = self.now;
        match action {
            Action::Lead => {
                let others = self
                    .nodes
                    .iter()
                    .filter(|node| node.process.as_ref().is_some_and(|process| process.books.is_some()));
                if others.count() > 0 {
                    self.breaks(format!("node {number} keeps the books while another does"));
                }
                self.passed.terms += 1;
                let Some(process) = self.process(number, boot) else { return };
                process.books = Some(Ledger::new(process.local(now)));
            }
            Action::Resign => {
                if let Some(process) = self.process(number, boot) {
                    process.books = None;
                }
                self.hang_up(number);
            }
            Action::Follow(holder) => {
                let Some(process) = self.process(number, boot) else { return };
                process.connection += 1;
                let connection = process.connection;
                self.after(PATIENCE * 2, Event::Lost(number, boot, connection + (1 << 32)));
                match self.packet(number, Some(owner(&holder))) {
                    Some(wait) => self.after(wait, Event::Connect(number, boot, connection, holder)),
                    None => self.after(PATIENCE, Event::Lost(number, boot, connection)),
                }
            }
            Action::Revoke(_) => {
                if let Some(wait) = self.packet(number, None) {
                    self.after(wait, Event::Etcd(number, boot, u64::MAX, action));
                }
            }
            Action::Read | Action::Grant | Action::Claim(_) | Action::Keep(_) => {
                let Some(process) = self.process(number, boot) else { return };
                process.asked += 1;
                let asked = process.asked;
                self.after(TIMEOUT, Event::Told(number, boot, asked, failed(&action)));
                if let Some(wait) = self.packet(number, None) {
                    self.after(wait, Event::Etcd(number, boot, asked, action));
                }
            }
        }
    }

    /// Closes the connections of all nodes that follow this one.
    fn hang_up(&mut self, leader: usize) {
        let followers: Vec<(usize, u64, u64)> = (0..self.nodes.len())
            .filter_map(|number| {
                let node = self.nodes.get(number)?;
                let process = node.process.as_ref()?;
                (process.link?.0 == leader).then_some((number, node.boot, process.connection))
            })
            .collect();
        for (number, boot, connection) in followers {
            let wait = self.packet(number, Some(leader)).unwrap_or(PATIENCE);
            self.after(wait, Event::Lost(number, boot, connection));
        }
    }

    fn connects(&mut self, number: usize, boot: u64, connection: u64, holder: &Holder) {
        let to = owner(holder);
        let to_boot = self.boot(to);
        let leads = self.process(to, to_boot).is_some_and(|process| process.books.is_some());
        let right = leads && format!("{to}-{to_boot}") == holder.secret;
        match self.packet(number, Some(to)).filter(|_| right) {
            Some(wait) => self.after(wait, Event::Connected(number, boot, connection, to, to_boot)),
            None => self.after(PATIENCE, Event::Lost(number, boot, connection)),
        }
    }

    fn lost(&mut self, number: usize, boot: u64, connection: u64) {
        let now = self.now;
        let terms = self.terms;
        let Some(process) = self.process(number, boot) else { return };
        // The connect timeout counts only if no connection exists yet.
        let is_end_of_wait = connection >= 1 << 32;
        if process.connection != connection % (1 << 32) || (is_end_of_wait && process.link.is_some()) {
            return;
        }
        process.link = None;
        process.connection += 1;
        let moment = process.moment(now);
        for question in std::mem::take(&mut process.under_way) {
            if let Some(lease) = process.leases.get_mut(question.key) {
                lease.answered(None, question.ask, terms, moment);
            }
        }
        self.elects(number, boot, election::Event::Lost);
    }

    // === requests ===

    fn requested(&mut self, number: usize, key: usize) {
        // Together they request about two and a half times the limit.
        let nodes = u64::try_from(self.nodes.len()).unwrap_or(1);
        let micros = 1_000_000 * nodes / (u64::from(self.limit.requests) * 5 / 2).max(1);
        let wait = Duration::from_micros(self.chance.below(2 * micros) + 1);
        self.after(wait, Event::Request(number, key));
        let boot = self.boot(number);
        self.takes(number, boot, key, true);
    }

    fn takes(&mut self, number: usize, boot: u64, key: usize, may_wait: bool) {
        let (now, terms) = (self.now, self.terms);
        let Some(process) = self.process(number, boot) else { return };
        if process.books.is_none() && process.link.is_none() {
            return; // etcd is unreachable, and nothing passes here without it
        }
        let moment = process.moment(now);
        let Some(lease) = process.leases.get_mut(key) else { return };
        let (taken, ask) = lease.take(terms, moment);
        if taken == Taken::Waits
            && may_wait
            && let Some(waiting) = process.waiting.get_mut(key)
        {
            *waiting = (*waiting + 1).min(20);
        }
        if taken == Taken::Allowed {
            self.passes(key);
        }
        if let Some(ask) = ask {
            self.asks(number, boot, Question { key, ask });
        }
    }

    fn asked(&self, question: Question) -> Asked {
        let limits = [self.limit].into_iter().collect();
        let (owed, want) = (i64::from(question.ask.owed), question.ask.want);
        Asked { key: question.key.to_string().into_bytes(), owed, want, cost: self.terms.cost, limits }
    }

    fn asks(&mut self, number: usize, boot: u64, question: Question) {
        let now = self.now;
        let asked = self.asked(question);
        let Some(process) = self.process(number, boot) else { return };
        let local = process.local(now);
        if let Some(books) = &mut process.books {
            let numbers = books.answer(local, &asked);
            return self.answered(number, boot, question, numbers);
        }
        let Some((to, to_boot)) = process.link else {
            return self.answered(number, boot, question, None);
        };
        process.under_way.push(question);
        let connection = process.connection;
        match self.packet(number, Some(to)) {
            Some(wait) => self.after(wait, Event::Ask(number, boot, connection, question, to, to_boot)),
            None => self.after(PATIENCE, Event::Lost(number, boot, connection)),
        }
    }

    fn answered(&mut self, number: usize, boot: u64, question: Question, numbers: Option<Vec<i64>>) {
        let (now, terms) = (self.now, self.terms);
        let Some(process) = self.process(number, boot) else { return };
        process.under_way.retain(|other| other.key != question.key);
        let moment = process.moment(now);
        let answer = numbers.and_then(|numbers| Answer::read(&numbers));
        if let Some(lease) = process.leases.get_mut(question.key) {
            lease.answered(answer, question.ask, terms, moment);
        }
        let waiting = process.waiting.get_mut(question.key).map(std::mem::take).unwrap_or(0);
        for _ in 0..waiting {
            self.takes(number, boot, question.key, false);
        }
    }

    fn passes(&mut self, key: usize) {
        let passed = i128::try_from((self.now - self.looked).as_micros()).unwrap_or(0);
        self.looked = self.now;
        // The budget refills at the pace of the fastest clock.
        let back = passed * i128::from(self.limit.requests) * i128::from(1000 + self.skew + 1) / 1000;
        let most = self.most;
        self.room.iter_mut().for_each(|room| *room = (*room + back).min(most));
        self.passed.requests += 1;
        if self.now > FAULTS + QUIET / 2
            && let Some(late) = self.late.get_mut(key)
        {
            *late += 1;
        }
        let Some(room) = self.room.get_mut(key) else { return };
        *room -= ONE;
        if *room < 0 {
            let terms = self.terms;
            let text = format!("more of key {key} passes than the bound says: {:?}, {terms:?}", self.limit);
            self.breaks(text);
        }
    }

    // === the network and etcd ===

    /// The latency of a packet between a node and another, or etcd; `None` if it is lost.
    fn packet(&mut self, number: usize, to: Option<usize>) -> Option<Duration> {
        let now = self.now;
        let cut = |number: usize| self.nodes.get(number).is_none_or(|node| node.no_peers_until > now);
        let is_cut = match to {
            Some(to) => cut(number) || cut(to),
            None => self.nodes.get(number).is_none_or(|node| node.no_etcd_until > now),
        };
        let slow = to.is_none();
        let wait = Duration::from_micros(200 + self.chance.below(if slow { 20_000 } else { 3_000 }));
        // Some packets are delayed so much that answers arrive after the term that gave them.
        let wait = if self.chance.happens(1) { wait * 200 } else { wait };
        (!is_cut).then_some(wait)
    }

    fn etcd(&mut self, number: usize, boot: u64, asked: u64, action: Action) {
        let now = self.now;
        if now < self.etcd.down_until {
            return; // the sender times out
        }
        let secret = format!("{number}-{boot}");
        let event = self.etcd.answers(now, &secret, action);
        if let (Some(event), Some(wait)) = (event, self.packet(number, None)) {
            self.after(wait, Event::Told(number, boot, asked, event));
        }
    }

    fn fault(&mut self) {
        let now = self.now;
        if now >= FAULTS {
            return;
        }
        let wait = self.chance.between(Duration::from_millis(500), Duration::from_secs(12));
        self.after(wait, Event::Fault);
        let long = self.chance.between(Duration::from_secs(1), Duration::from_secs(25));
        let any = usize::try_from(self.chance.below(self.nodes.len() as u64)).unwrap_or(0);
        let leader = self.etcd.holder.as_ref().map_or(any, |(holder, _)| owner(holder));
        let whom = if self.chance.happens(60) { leader } else { any };
        match self.chance.below(5) {
            0 | 1 => {
                if let Some(node) = self.nodes.get_mut(whom) {
                    node.process = None;
                }
                self.hang_up(whom);
                let wait = self.chance.between(Duration::from_millis(100), Duration::from_secs(20));
                self.after(wait, Event::Start(whom));
            }
            2 => self.etcd.down_until = now + long,
            3 => self.nodes.get_mut(whom).into_iter().for_each(|node| node.no_etcd_until = now + long),
            _ => self.nodes.get_mut(whom).into_iter().for_each(|node| node.no_peers_until = now + long),
        }
    }

    fn last_check(&mut self) {
        let leaders = |node: &&Node| node.process.as_ref().is_some_and(|process| process.books.is_some());
        let leading = self.nodes.iter().filter(leaders).count();
        if leading != 1 {
            self.breaks(format!("{leading} nodes keep the books at the end"));
        }
        let expected = u64::from(self.limit.requests) * (QUIET / 2).as_secs() * 8 / 10;
        let late = self.late;
        if late.iter().any(|late| *late < expected) {
            self.breaks(format!("only {late:?} passed while nothing broke, of {expected} and more"));
        }
    }
}

impl Process {
    fn local(&self, now: Time) -> Time {
        let micros = u64::try_from(now.saturating_sub(self.began).as_micros()).unwrap_or(u64::MAX);
        self.offset + Duration::from_micros(micros * self.rate / 1000)
    }

    fn global(&self, local: Time) -> Time {
        let micros = u64::try_from(local.saturating_sub(self.offset).as_micros()).unwrap_or(u64::MAX);
        self.began + Duration::from_micros(micros.saturating_mul(1000) / self.rate + 2)
    }

    fn moment(&self, now: Time) -> lease::Moment {
        let micros = u64::try_from(self.local(now).as_micros()).unwrap_or(u64::MAX);
        micros.saturating_mul(lease::SECOND / 1_000_000)
    }
}

impl Etcd {
    fn expire(&mut self, now: Time) {
        self.leases.retain(|_, end| *end > now);
        if self.holder.as_ref().is_some_and(|(_, lease)| !self.leases.contains_key(lease)) {
            self.holder = None;
        }
    }

    fn answers(&mut self, now: Time, secret: &str, action: Action) -> Option<election::Event> {
        self.expire(now);
        let holder = self.holder.as_ref().map(|(holder, _)| holder.clone());
        Some(match action {
            Action::Read => election::Event::Read(Ok(holder)),
            Action::Grant => {
                self.next += 1;
                self.leases.insert(self.next, now + session::TTL);
                election::Event::Granted(Ok(self.next))
            }
            Action::Claim(lease) => election::Event::Claimed(match holder {
                Some(holder) => Ok(Some(holder)),
                None if !self.leases.contains_key(&lease) => Err("requested lease not found".to_owned()),
                None => {
                    let node = secret.split('-').next().unwrap_or_default().to_owned();
                    let holder = Holder { address: node.clone(), node, secret: secret.to_owned() };
                    self.holder = Some((holder, lease));
                    Ok(None)
                }
            }),
            Action::Keep(lease) => {
                let lives = self.leases.get_mut(&lease).map(|end| *end = now + session::TTL).is_some();
                election::Event::Kept(Ok(lives))
            }
            Action::Revoke(lease) => {
                self.leases.remove(&lease);
                self.expire(now);
                return None;
            }
            Action::Follow(_) | Action::Lead | Action::Resign => return None,
        })
    }
}

/// The node of a holder.
fn owner(holder: &Holder) -> usize {
    holder.node.parse().unwrap_or(0)
}

/// The event for a question that is not answered.
fn failed(action: &Action) -> election::Event {
    let why = "no answer in time".to_owned();
    match action {
        Action::Grant => election::Event::Granted(Err(why)),
        Action::Claim(_) => election::Event::Claimed(Err(why)),
        Action::Keep(_) => election::Event::Kept(Err(why)),
        _ => election::Event::Read(Err(why)),
    }
}
