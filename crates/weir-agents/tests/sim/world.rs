//! The world of one run: it owns time, order and chance, the links and the load of each agent. `invariants` has what
//! must hold at its end.

mod invariants;

use fastrand::Rng;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_agents::coordinator::{self, Expected, OnLoss};
use weir_agents::message::{Hello, PROTOCOL, Stop};
use weir_agents::{Agent, Coordinator, FromAgent, Offer, Second, Share, Time, ToAgent, agent, bounds, sum};
use weir_report::Report;
use weir_report::report::Tick;

/// What goes wrong in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    Loss,
    Crash,
    CrashAndContinue,
    Pause,
    CoordinatorGone,
    Stop,
    Lie,
    /// Its load goes on after its end.
    Endless,
    /// It beats, counts nothing, and does not end.
    Mute,
    /// It says a number that no run can yield.
    Overflow,
    /// It says that more time has passed.
    Ahead,
    /// The agent that is to run `teardown` crashes, and the others go on.
    FirstLost,
    /// Others connect to the agent and order it about.
    Strays,
    /// The network between an agent and the coordinator fails, in one direction or both.
    Partition,
    /// The same, and the others go on.
    PartitionAndContinue,
    /// The operator of an agent ends it.
    Leave,
}

/// A network that fails.
#[derive(Clone, Copy)]
struct Outage {
    from: Time,
    /// What is sent meanwhile arrives then, or never.
    until: Option<Time>,
    /// Which directions.
    to_agent: bool,
    from_agent: bool,
}

/// How long a load lasts.
const LENGTH: Duration = Duration::from_secs(10);

/// Longest delay of a message.
const DELAY: Duration = Duration::from_millis(150);

/// How long a load that is cut may go on.
const CUT: Duration = Duration::from_millis(100);

/// How long a load that is stopped gracefully may go on.
const GRACE: Duration = Duration::from_secs(2);

/// How long users may take for `end`.
const LEAVING: Duration = Duration::from_millis(500);

/// How late an agent notices what it has to: a beat.
const NOTICED: Duration = Duration::from_millis(1_200);

enum Event {
    ToAgent(usize, u64, ToAgent),
    /// A message, or what it may not say.
    FromAgent(usize, u64, Result<FromAgent, String>),
    Open(usize, u64),
    /// Connections end, as each side sees it.
    AgentClosed(usize, u64),
    CoordinatorClosed(usize, u64),
    Local(usize, u32, agent::Event),
    LoadSecond(usize, u32),
    LoadEnd(usize, u32),
    /// `teardown` is over.
    Torn(usize, u32),
    Stray,
    Fault,
    Restart(usize),
    Wake,
}

/// The load of one agent.
#[derive(Default)]
struct Load {
    is_running: bool,
    number: u64,
    digest: String,
    report: Report,
    began: Time,
    ends_at: Time,
    last_request: Time,
    /// It is over, and `teardown` is not allowed yet.
    waits: bool,
}

struct Node {
    agent: Agent,
    /// Counts restarts.
    life: u32,
    /// How far its clock is ahead of the world's.
    ahead: Duration,
    conn: u64,
    is_up: bool,
    paused_until: Time,
    load: Load,
    loads_begun: u32,
    /// The order to stop came, perhaps before the load began.
    is_stopped: bool,
    /// `teardown` is its task.
    is_tearer: bool,
    /// `teardown` may run.
    may_tear: bool,
    /// It has begun `teardown`.
    is_tearing: bool,
    /// When.
    tore_at: Option<Time>,
}

pub(crate) struct World {
    fault: Fault,
    chance: Rng,
    now: Time,
    order: u64,
    queue: BTreeMap<(Time, u64), Event>,
    nodes: Vec<Node>,
    coordinator: Option<Coordinator>,
    /// What the coordinator found, and whether it knows that nobody ran `teardown`.
    over: Option<(bool, Vec<coordinator::Seen>)>,
    tears_down: bool,
    /// Agents that ran `teardown`.
    torn: usize,
    /// The agent that the fault strikes had begun `teardown` before.
    was_tearing: bool,
    outage: Option<Outage>,
    victim: usize,
    fault_at: Time,
    /// From then on nobody may send, but for bounds.
    silent_from: Option<Time>,
    lost_seconds: Vec<bool>,
    contender: bool,
}

fn hello() -> Hello {
    Hello { protocol: PROTOCOL, ..Hello::default() }
}

/// What the coordinator reads if a second has a number that no run can yield.
fn too_much(second: &FromAgent) -> Result<FromAgent, String> {
    let mut value = serde_json::to_value(second).map_err(|e| e.to_string())?;
    value["second"]["counts"]["errors"]["reset"] = u64::MAX.into();
    bounds::read(value.to_string().as_bytes())
}

impl World {
    pub(crate) fn new(seed: u64, fault: Fault) -> Self {
        let mut chance = Rng::with_seed(seed);
        let n = chance.usize(1..6);
        let nodes = (0..n).map(|i| Node {
            agent: Agent::new(hello()),
            life: 0,
            ahead: Duration::from_millis(chance.u64(0..100_000_000)),
            conn: 0,
            is_up: true,
            paused_until: Time::ZERO,
            load: Load::default(),
            loads_begun: 0,
            is_stopped: false,
            is_tearer: i == 0,
            may_tear: false,
            is_tearing: false,
            tore_at: None,
        });
        let nodes: Vec<Node> = nodes.collect();
        let offers = (0..n).map(|index| Offer {
            protocol: PROTOCOL,
            run: format!("run-{seed}"),
            share: Share { index: index as u32, of: n as u32 },
            ..Offer::default()
        });
        let goes_on =
            matches!(fault, Fault::CrashAndContinue | Fault::FirstLost | Fault::PartitionAndContinue);
        // What an operator may do does not depend on it.
        let goes_on = goes_on || fault == Fault::Leave && chance.bool();
        let on_loss = if goes_on { OnLoss::Continue } else { OnLoss::Abort };
        let start = Duration::from_secs(1_000);
        let of_teardown = [Fault::FirstLost, Fault::Partition, Fault::PartitionAndContinue, Fault::Leave];
        let tears_down = of_teardown.contains(&fault) || chance.bool();
        let expected = Expected {
            length: Some(LENGTH),
            grace: GRACE,
            leaving: LEAVING,
            tears_down,
            ..Expected::default()
        };
        let coordinator = Coordinator::new(start, offers.collect(), on_loss, expected);
        let (victim, fault_at) = (chance.usize(0..n), start + Duration::from_millis(chance.u64(0..22_000)));
        let victim = if fault == Fault::FirstLost { 0 } else { victim };
        // Half of them strike the agent that has the task.
        let is_first = matches!(fault, Fault::Partition | Fault::PartitionAndContinue | Fault::Leave);
        let victim = if is_first && chance.bool() { 0 } else { victim };
        Self {
            fault,
            chance,
            now: start,
            order: 0,
            queue: BTreeMap::new(),
            nodes,
            coordinator: Some(coordinator),
            over: None,
            tears_down,
            torn: 0,
            was_tearing: false,
            outage: None,
            victim,
            fault_at,
            silent_from: None,
            lost_seconds: vec![false; n],
            contender: false,
        }
    }

    pub(crate) fn run(mut self) -> Result<(), String> {
        for i in 0..self.nodes.len() {
            let at = self.now + self.delay();
            self.at(at, Event::Open(i, i as u64 + 1));
        }
        if self.fault != Fault::None {
            self.at(self.fault_at, Event::Fault);
        }
        self.at(self.now, Event::Wake);
        if self.fault == Fault::Strays {
            self.at(self.now, Event::Stray);
        }
        let mut events = 0;
        while let Some(((at, _), event)) = self.queue.pop_first() {
            self.now = at;
            events += 1;
            if events > 200_000 {
                return Err("it spins".to_owned());
            }
            self.happens(event)?;
        }
        self.at_the_end()
    }

    fn at(&mut self, at: Time, event: Event) {
        self.order += 1;
        self.queue.insert((at, self.order), event);
    }

    fn delay(&mut self) -> Duration {
        // Mostly fast, sometimes slow: later messages overtake.
        let most = if self.chance.u8(..10) == 0 { DELAY.as_micros() as u64 } else { 2_000 };
        Duration::from_micros(self.chance.u64(100..most))
    }

    /// When a message arrives that is sent now, to agent `i` or from it; none if the network loses it.
    fn arrival(&mut self, i: usize, is_to_agent: bool) -> Option<Time> {
        let at = self.now + self.delay();
        let outage = self.outage.filter(|o| {
            let is_way = if is_to_agent { o.to_agent } else { o.from_agent };
            i == self.victim && is_way && self.now >= o.from && o.until.is_none_or(|until| self.now < until)
        });
        match outage {
            None => Some(at),
            // In the order in which they were sent.
            Some(outage) => outage.until.map(|until| until + (self.now - outage.from) / 100),
        }
    }

    fn happens(&mut self, event: Event) -> Result<(), String> {
        // A process that stands still does everything later.
        if let Event::ToAgent(i, ..)
        | Event::AgentClosed(i, _)
        | Event::Local(i, ..)
        | Event::LoadSecond(i, _)
        | Event::LoadEnd(i, _)
        | Event::Torn(i, _) = &event
            && self.nodes[*i].paused_until > self.now
        {
            let at = self.nodes[*i].paused_until;
            self.at(at, event);
            return Ok(());
        }
        match event {
            Event::Open(i, conn) => {
                self.nodes[i].conn = conn;
                self.tell(i, agent::Event::Opened(conn, "sim".to_owned()));
            }
            Event::ToAgent(i, conn, message) if self.nodes[i].is_up && self.nodes[i].conn == conn => {
                self.tell(i, agent::Event::Message(conn, message));
            }
            Event::AgentClosed(i, conn) if self.nodes[i].conn == conn => {
                self.tell(i, agent::Event::Closed(conn));
            }
            Event::FromAgent(i, conn, read) if self.nodes[i].conn == conn => {
                self.ask(match read {
                    Ok(message) => coordinator::Event::Message(i, message),
                    Err(why) => coordinator::Event::Malformed(i, why),
                });
            }
            Event::CoordinatorClosed(i, conn) if self.nodes[i].conn == conn => {
                self.ask(coordinator::Event::Closed(i, "the connection ended".to_owned()));
            }
            Event::Local(i, life, event) if self.nodes[i].life == life && self.nodes[i].is_up => {
                let starts = matches!(event, agent::Event::Started(_));
                if starts && self.nodes[i].is_stopped {
                    self.end(i);
                    return Ok(());
                }
                if starts {
                    self.begin(i)?;
                }
                self.tell(i, event);
            }
            Event::LoadSecond(i, life) if self.nodes[i].life == life => self.second(i),
            Event::LoadEnd(i, life) if self.nodes[i].life == life => self.load_ends(i),
            Event::Torn(i, life) if self.nodes[i].life == life && self.nodes[i].is_up => {
                self.torn += 1;
                self.tell(i, agent::Event::TornDown);
                self.report(i);
            }
            Event::Stray => self.stray()?,
            Event::Fault => self.strike(),
            Event::Restart(i) => {
                let node = &mut self.nodes[i];
                node.is_up = true;
                node.agent = Agent::new(hello());
            }
            Event::Wake => {
                self.wake();
                // Someone else asks while the run is on.
                if let Some(node) = self.nodes.first_mut()
                    && node.load.is_running
                    && !self.contender
                {
                    self.contender = true;
                    let told = node.agent.on(self.now + node.ahead, agent::Event::Opened(99, "b".to_owned()));
                    if !told.iter().any(|a| matches!(a, agent::Action::Busy(99, _))) {
                        return Err(format!("a second run was taken: {told:?}"));
                    }
                }
            }
            _ => {} // of an earlier life
        }
        Ok(())
    }

    /// Both sides look at their clocks, ten times a second.
    fn wake(&mut self) {
        let is_long = matches!(self.fault, Fault::Endless | Fault::Mute);
        let end = Duration::from_secs(if is_long { 1_800 } else { 1_080 });
        if self.now < end {
            self.at(self.now + Duration::from_millis(100), Event::Wake);
        }
        self.ask(coordinator::Event::Tick);
        for i in 0..self.nodes.len() {
            if self.nodes[i].is_up && self.nodes[i].paused_until <= self.now {
                self.tell(i, agent::Event::Tick);
            }
        }
    }

    fn tell(&mut self, i: usize, event: agent::Event) {
        let node = &mut self.nodes[i];
        if !node.is_up {
            return;
        }
        let now = self.now + node.ahead;
        let actions = node.agent.on(now, event);
        for action in actions {
            self.agent_acts(i, action);
        }
    }

    fn agent_acts(&mut self, i: usize, action: agent::Action) {
        let (life, ahead) = (self.nodes[i].life, self.nodes[i].ahead);
        let soon = self.now + Duration::from_millis(self.chance.u64(1..300));
        match action {
            agent::Action::Send(conn, message) => {
                let is_second = matches!(message, FromAgent::Second(_));
                if self.is_lost(&message) {
                    self.lost_seconds[i] |= is_second;
                    return;
                }
                let is_last = matches!(message, FromAgent::Ended(_) | FromAgent::Failed { .. });
                let lies = self.fault == Fault::Overflow && is_second && self.strikes(i);
                let message = if lies { too_much(&message) } else { Ok(message) };
                let Some(at) = self.arrival(i, false) else { return };
                if self.fault == Fault::Loss && is_second && self.chance.u8(..4) == 0 {
                    let later = at + self.delay();
                    self.at(later, Event::FromAgent(i, conn, message.clone()));
                }
                // The last message stays behind all others, as on a connection.
                let at = if is_last { at + DELAY } else { at };
                self.at(at, Event::FromAgent(i, conn, message));
            }
            agent::Action::Close(conn) => {
                if let Some(at) = self.arrival(i, false) {
                    self.at(at, Event::CoordinatorClosed(i, conn));
                }
            }
            agent::Action::Load(..) => {
                self.at(self.now, Event::Local(i, life, agent::Event::Compiling));
                self.at(soon, Event::Local(i, life, agent::Event::Loaded(Ok(()))));
            }
            agent::Action::Prepare(kept) => {
                let kept = kept.unwrap_or(Value::Bool(true));
                self.at(soon, Event::Local(i, life, agent::Event::Prepared(Ok(kept))));
            }
            agent::Action::Run(at) => {
                let world = at.saturating_sub(ahead).max(self.now);
                self.at(world, Event::Local(i, life, agent::Event::Started(at.max(self.now + ahead))));
            }
            agent::Action::Stop(stop) => {
                self.nodes[i].is_stopped = true;
                let most = match stop {
                    Stop::Gracefully => GRACE,
                    Stop::Leaving => LEAVING,
                    Stop::Now => CUT,
                };
                let at = self.now + Duration::from_millis(self.chance.u64(0..most.as_millis() as u64));
                self.nodes[i].load.ends_at = self.nodes[i].load.ends_at.min(at);
                match self.nodes[i].load.waits {
                    true => self.end(i),
                    false => self.at(at, Event::LoadEnd(i, life)),
                }
            }
            agent::Action::Succeed => self.nodes[i].is_tearer = true,
            agent::Action::Retire => {
                self.nodes[i].is_tearer = false;
                if self.nodes[i].load.waits {
                    self.end(i);
                }
            }
            agent::Action::Teardown => {
                self.nodes[i].may_tear = true;
                if self.nodes[i].load.waits {
                    self.end(i);
                }
            }
            agent::Action::Accept(_) | agent::Action::Busy(..) | agent::Action::Forget => {}
        }
    }

    /// Only what is repeated or numbered may get lost; the rest is ordered by its connection.
    fn is_lost(&mut self, message: &FromAgent) -> bool {
        let may = matches!(message, FromAgent::Second(_) | FromAgent::Beat | FromAgent::Pong { .. });
        self.fault == Fault::Loss && may && self.chance.u8(..20) == 0
    }

    fn begin(&mut self, i: usize) -> Result<(), String> {
        let node = &mut self.nodes[i];
        node.loads_begun += 1;
        if node.loads_begun > 1 {
            return Err(format!("agent {i} began twice"));
        }
        if node.life > 0 {
            return Err(format!("agent {i} runs after its restart"));
        }
        node.load = Load { is_running: true, began: self.now, ends_at: self.now + LENGTH, ..Load::default() };
        let life = node.life;
        self.at(self.now + Duration::from_secs(1), Event::LoadSecond(i, life));
        self.at(self.now + LENGTH, Event::LoadEnd(i, life));
        Ok(())
    }

    fn second(&mut self, i: usize) {
        let node = &self.nodes[i];
        if !node.load.is_running || !node.is_up {
            return;
        }
        let life = node.life;
        // The engine begins no request after its lease.
        if node.agent.lease().is_none_or(|until| self.now + node.ahead >= until) {
            return;
        }
        if !(self.fault == Fault::Mute && self.strikes(i)) {
            self.count(i);
        }
        self.at(self.now + Duration::from_secs(1), Event::LoadSecond(i, life));
    }

    /// A second of the load is counted and told.
    fn count(&mut self, i: usize) {
        let n = self.chance.u64(1..50);
        let lies = self.fault == Fault::Lie && self.strikes(i);
        let is_ahead = self.fault == Fault::Ahead && self.strikes(i);
        let load = &mut self.nodes[i].load;
        let mut second = Second { number: load.number, ..Second::default() };
        for _ in 0..n {
            let time = self.chance.u64(1_000..1_000_000);
            second.service.record(time);
            second.response.record(time + 10);
        }
        load.last_request = self.now;
        load.report.counts.requests += n;
        load.report.counts.responses += n;
        load.report.counts.statuses.insert(200, load.report.counts.responses);
        load.report.latency.service.add(&second.service);
        load.report.latency.response.add(&second.response);
        let (l, p) = (&mut load.report.latency, &mut load.report.phases);
        let each = [&mut l.first_byte, &mut p.blocked, &mut p.dns, &mut p.connecting, &mut p.tls];
        each.into_iter()
            .chain([&mut p.sending, &mut p.waiting, &mut p.receiving])
            .for_each(|h| h.record_n(1, n));
        let since = (self.now - load.began).as_nanos() as u64 + if is_ahead { 5_000_000_000 } else { 0 };
        second.tick = Tick { end_ns: since, requests: n, responses: n, ..Tick::default() };
        second.counts = load.report.counts.clone();
        if lies {
            // It hides its slowest response from the coordinator, and seals the lie.
            second.response = second.service.clone();
        }
        second.digest = sum::digest(&load.digest, &second);
        load.digest.clone_from(&second.digest);
        load.number += 1;
        self.tell(i, agent::Event::Second(Box::new(second)));
    }

    fn load_ends(&mut self, i: usize) {
        let node = &self.nodes[i];
        if !node.load.is_running || self.now < node.load.ends_at || !node.is_up {
            return;
        }
        // Cut off from its coordinator, even such a load ends.
        let never_ends = matches!(self.fault, Fault::Endless | Fault::Mute);
        if never_ends && self.strikes(i) && !node.is_stopped {
            return;
        }
        // What woke up after its lease begins no request.
        let has_slept = node.paused_until > Time::ZERO && node.agent.lease().is_none();
        let is_mute = self.fault == Fault::Mute && self.strikes(i);
        if !is_mute && !has_slept {
            self.count(i);
        }
        self.nodes[i].load.is_running = false;
        self.end(i);
    }

    /// A load is over: if `teardown` is its task, that comes before the report.
    fn end(&mut self, i: usize) {
        let node = &mut self.nodes[i];
        let tears_down = self.tears_down && node.is_tearer;
        node.load.waits = tears_down && !node.may_tear;
        let life = node.life;
        match (tears_down, node.load.waits) {
            (_, true) => {}
            (true, false) => {
                (self.nodes[i].is_tearing, self.nodes[i].tore_at) = (true, Some(self.now));
                let at = self.now + Duration::from_millis(self.chance.u64(1..500));
                self.at(at, Event::Torn(i, life));
            }
            (false, false) => self.report(i),
        }
    }

    fn report(&mut self, i: usize) {
        let report = Box::new(self.nodes[i].load.report.clone());
        self.tell(i, agent::Event::Ended(Ok(report)));
    }

    /// Whether the fault has come over this agent.
    fn strikes(&self, i: usize) -> bool {
        i == self.victim && self.now >= self.fault_at
    }

    /// Someone else connects to an agent, twice by one number too, and orders it about.
    fn stray(&mut self) -> Result<(), String> {
        let i = self.chance.usize(0..self.nodes.len());
        let conn = 100 + self.chance.u64(0..3);
        let node = &mut self.nodes[i];
        let (now, is_free) = (self.now + node.ahead, node.agent.is_free());
        let orders = [
            ToAgent::Beat { stop: Some(Stop::Now) },
            ToAgent::Prepare { kept: None },
            ToAgent::Start { at_ns: 1 },
            ToAgent::Succeed,
            ToAgent::Teardown,
            ToAgent::Bye,
        ];
        if !is_free {
            let told = node.agent.on(now, agent::Event::Opened(conn, "stray".to_owned()));
            let is_refused = |a: &agent::Action| matches!(a, agent::Action::Busy(c, _) if *c == conn);
            if !told.iter().any(is_refused) {
                return Err(format!("a second run was taken: {told:?}"));
            }
            for order in orders {
                for event in [agent::Event::Message(conn, order), agent::Event::Closed(conn)] {
                    let told = node.agent.on(now, event);
                    let is_beat = |a: &agent::Action| matches!(a, agent::Action::Send(_, FromAgent::Beat));
                    if !told.iter().all(is_beat) {
                        return Err(format!("a stray was obeyed: {told:?}"));
                    }
                }
            }
        }
        if self.now < Duration::from_secs(1_025) {
            let at = self.now + Duration::from_millis(self.chance.u64(1..900));
            self.at(at, Event::Stray);
        }
        Ok(())
    }

    fn ask(&mut self, event: coordinator::Event) {
        let Some(coordinator) = &mut self.coordinator else { return };
        for action in coordinator.on(self.now, event) {
            match action {
                coordinator::Action::Send(i, message) => {
                    if let ToAgent::Beat { stop: Some(_) } = &message {
                        self.silent_from.get_or_insert(self.now);
                    }
                    let may = matches!(message, ToAgent::Beat { .. } | ToAgent::Ping { .. });
                    if self.fault == Fault::Loss && may && self.chance.u8(..20) == 0 {
                        continue;
                    }
                    if let Some(at) = self.arrival(i, true) {
                        self.at(at, Event::ToAgent(i, i as u64 + 1, message));
                    }
                }
                coordinator::Action::Close(i) => {
                    if let Some(at) = self.arrival(i, true) {
                        self.at(at + DELAY, Event::AgentClosed(i, i as u64 + 1));
                    }
                }
                coordinator::Action::Over => {}
                coordinator::Action::Files(_) | coordinator::Action::Second(_) => {}
            }
        }
        if self.coordinator.as_ref().is_some_and(Coordinator::is_over) {
            let missed = self.coordinator.as_ref().is_some_and(Coordinator::has_missed_teardown);
            let agents = self.coordinator.take().map(Coordinator::into_agents).unwrap_or_default();
            self.silent_from.get_or_insert(self.now);
            self.over = Some((missed, agents));
        }
    }

    fn strike(&mut self) {
        let i = self.victim;
        match self.fault {
            Fault::Crash | Fault::CrashAndContinue | Fault::FirstLost => {
                let node = &mut self.nodes[i];
                let conn = node.conn;
                node.is_up = false;
                node.load.is_running = false;
                node.life += 1;
                // A machine that dies may take its word with it.
                if self.chance.bool() {
                    let at = self.now + self.delay();
                    self.at(at, Event::CoordinatorClosed(i, conn));
                }
                let back = self.now + Duration::from_millis(self.chance.u64(10..4_000));
                self.at(back, Event::Restart(i));
            }
            Fault::Pause => {
                let time = Duration::from_millis(self.chance.u64(500..12_000));
                self.nodes[i].paused_until = self.now + time;
                self.was_tearing = self.nodes[i].is_tearing;
            }
            Fault::CoordinatorGone => {
                if self.coordinator.take().is_some() {
                    self.silent_from = Some(self.now);
                    for i in 0..self.nodes.len() {
                        if self.chance.bool() {
                            let at = self.now + self.delay();
                            self.at(at, Event::AgentClosed(i, i as u64 + 1));
                        }
                    }
                }
            }
            Fault::Partition | Fault::PartitionAndContinue => {
                let ways = self.chance.u8(1..4);
                let until = self.chance.bool().then(|| Duration::from_millis(self.chance.u64(1_000..25_000)));
                self.outage = Some(Outage {
                    from: self.now,
                    until: until.map(|time| self.now + time),
                    to_agent: ways & 1 != 0,
                    from_agent: ways & 2 != 0,
                });
                self.was_tearing = self.nodes[i].is_tearing;
                // Whatever stands between them may end the connection instead, for one of them or both.
                if self.chance.u8(..3) == 0 {
                    let conn = self.nodes[i].conn;
                    for event in [Event::AgentClosed(i, conn), Event::CoordinatorClosed(i, conn)] {
                        if self.chance.bool() {
                            let at = self.now + self.delay();
                            self.at(at, event);
                        }
                    }
                }
            }
            Fault::Leave => {
                self.was_tearing = self.nodes[i].is_tearing;
                self.tell(i, agent::Event::Leave);
            }
            Fault::Stop => {
                let stop = [Stop::Now, Stop::Leaving, Stop::Gracefully][self.chance.usize(..3)];
                self.ask(coordinator::Event::Stop(stop));
            }
            Fault::Ahead
            | Fault::Endless
            | Fault::Lie
            | Fault::Loss
            | Fault::Mute
            | Fault::None
            | Fault::Overflow
            | Fault::Strays => {}
        }
    }
}
