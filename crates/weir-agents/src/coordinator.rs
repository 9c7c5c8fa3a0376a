//! The coordinator: it leads all agents through one run and decides what the loss of one means.
//!
//! ```text
//!   Greeting ─ all said hello ─► Offering ─ all ready ─► Preparing (the first alone, then the others)
//!        │                            │                        │ all prepared
//!        ▼ one missing or refusing    ▼                        ▼
//!      Over: nothing was sent       Over                    Timing ─ 16 exchanges each ─► Starting ─► Running ─► Over
//! ```
//!
//! Before the start, the failure of one agent ends the run. Afterwards, an agent that is silent for [`SILENCE`] is lost
//! for good: the coordinator does not reconnect.

use crate::agent::nanos;
use crate::message::{FromAgent, Hello, Offer, PROTOCOL, Stop, ToAgent};
use crate::skew::{EXCHANGES, Skew};
use crate::sum::{Sum, Total};
use crate::{BEAT, SILENCE, Time};
use serde_json::Value;
use std::time::Duration;
use weir_report::Report;
use weir_report::report::{End, Tick};

/// From the order to start until the start: enough for the order to reach every agent.
pub const LEAD: Duration = Duration::from_secs(2);

/// How long all agents may take to connect and say hello.
pub const GREETING: Duration = Duration::from_secs(10);

/// How long the preparation of a run may take: files, the plan, `setup`, the dry run. Nothing waits for ever.
pub const PREPARATION: Duration = Duration::from_secs(600);

/// How long `teardown` may take after an order to stop.
pub const TEARDOWN: Duration = Duration::from_secs(60);

/// What the loss of an agent means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// The others stop.
    #[default]
    Abort,
    /// The others go on.
    Continue,
}

/// What happens to the coordinator.
#[derive(Clone, Debug)]
pub enum Event {
    /// An agent cannot be reached, or refused the connection.
    Unreachable(usize, String),
    /// A message came from an agent.
    Message(usize, FromAgent),
    /// A connection has ended.
    Closed(usize, String),
    /// A file is under way to an agent: it was not silent, it listened.
    Sending(usize),
    /// End the run, for example on Ctrl-C or by a condition.
    Stop(Stop),
    /// Time has passed.
    Tick,
}

/// What the coordinator has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Say this to an agent.
    Send(usize, ToAgent),
    /// Send the files of the offer to an agent.
    Files(usize),
    /// End a connection.
    Close(usize),
    /// Every agent that is not lost has reported this second.
    Second(Box<Tick>),
    /// The run is over.
    Over,
}

/// An agent as the coordinator sees it.
#[derive(Debug, Default)]
pub struct Seen {
    /// What it said of itself.
    pub hello: Hello,
    /// Its clock.
    pub skew: Skew,
    /// When it began, on our clock.
    pub started: Option<Time>,
    /// What it counted.
    pub sum: Sum,
    /// Its final report.
    pub report: Option<Box<Report>>,
    /// Why and after how many of its seconds it was lost.
    pub lost: Option<(u64, String)>,
    /// Why it did not begin, in lines.
    pub refused: Vec<String>,
    /// What of its counts does not add up.
    pub mismatch: Option<String>,
    step: Step,
    heard: Time,
    said: Time,
    pinged: Option<(u32, Time)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    #[default]
    Connecting,
    Greeted,
    Ready,
    Prepared,
    Timed,
    Running,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Greeting,
    Offering,
    Preparing,
    Timing,
    Running,
    Over,
}

/// The coordinator of a run.
#[derive(Debug)]
pub struct Coordinator {
    offers: Vec<Offer>,
    on_loss: OnLoss,
    agents: Vec<Seen>,
    phase: Phase,
    begun: Time,
    kept: Option<Value>,
    stop: Option<Stop>,
    /// When the load begins, on our clock.
    start_at: Option<Time>,
    seconds: u64,
    total: Total,
    /// Others than the first agent know what `setup` kept.
    has_passed_on: bool,
    has_torn_down: bool,
    /// When every agent must have obeyed the order to stop.
    stopped_by: Option<Time>,
    /// How long requests may go on after a graceful stop.
    grace: Duration,
}

impl Coordinator {
    /// A coordinator of one run, with an offer to each agent. `grace` is how long requests may go on after a graceful
    /// stop.
    pub fn new(now: Time, offers: Vec<Offer>, on_loss: OnLoss, grace: Duration) -> Self {
        let agents = offers.iter().map(|_| Seen { heard: now, said: now, ..Seen::default() }).collect();
        Self {
            offers,
            on_loss,
            agents,
            phase: Phase::Greeting,
            begun: now,
            kept: None,
            stop: None,
            start_at: None,
            seconds: 0,
            total: Total::default(),
            has_passed_on: false,
            has_torn_down: false,
            stopped_by: None,
            grace,
        }
    }

    /// What all agents have counted: their complete seconds.
    pub const fn total(&self) -> &Total {
        &self.total
    }

    /// The agents, in the order of the offers.
    pub fn agents(&self) -> &[Seen] {
        &self.agents
    }

    /// Takes the agents out, once the run is over.
    pub fn into_agents(self) -> Vec<Seen> {
        self.agents
    }

    /// Whether the load ever began.
    pub const fn has_started(&self) -> bool {
        self.start_at.is_some()
    }

    /// When the load begins, on our clock.
    pub const fn start_at(&self) -> Option<Time> {
        self.start_at
    }

    /// Whether the run is over.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// When [`Event::Tick`] is due.
    pub fn next(&self) -> Time {
        if self.phase == Phase::Over {
            return Time::MAX;
        }
        let of = |a: &Seen| (a.heard + SILENCE).min(a.said + BEAT);
        let live = self.agents.iter().filter(|a| a.step != Step::Connecting && a.step != Step::Over).map(of);
        let greeting = if self.phase == Phase::Greeting { self.begun + GREETING } else { Time::MAX };
        live.min().unwrap_or(Time::MAX).min(greeting)
    }

    /// Takes an event; returns what to do.
    pub fn on(&mut self, now: Time, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.phase == Phase::Over {
            return actions;
        }
        match event {
            Event::Unreachable(i, why) => self.refuse(i, vec![why]),
            Event::Message(i, message) => self.hear(now, i, message, &mut actions),
            Event::Closed(i, why) => self.lose(i, &why),
            Event::Sending(i) => {
                if let Some(agent) = self.agents.get_mut(i) {
                    agent.heard = now;
                }
            }
            Event::Stop(stop) => self.stop(now, stop, &mut actions),
            Event::Tick => {}
        }
        self.watch(now);
        self.go_on(now, &mut actions);
        self.beat(now, &mut actions);
        actions
    }

    fn refuse(&mut self, i: usize, why: Vec<String>) {
        if let Some(agent) = self.agents.get_mut(i).filter(|a| a.step != Step::Over) {
            agent.refused = why;
            agent.step = Step::Over;
        }
    }

    /// Handles the loss of an agent. It does not matter if the agent has already sent its report.
    fn lose(&mut self, i: usize, why: &str) {
        let has_started = self.has_started();
        if let Some(agent) = self.agents.get_mut(i).filter(|a| a.step != Step::Over) {
            agent.step = Step::Over;
            if has_started {
                agent.lost = Some((agent.sum.seconds, why.to_owned()));
            } else {
                agent.refused = vec![why.to_owned()];
            }
        }
    }

    fn hear(&mut self, now: Time, i: usize, message: FromAgent, actions: &mut Vec<Action>) {
        let Some(agent) = self.agents.get_mut(i).filter(|a| a.step != Step::Over) else { return };
        agent.heard = now;
        match (message, agent.step) {
            (FromAgent::Hello(hello), Step::Connecting) => {
                if hello.protocol == PROTOCOL {
                    (agent.hello, agent.step) = (*hello, Step::Greeted);
                } else {
                    let theirs = hello.protocol;
                    let why = format!(
                        "it speaks agent protocol {theirs}, the coordinator {PROTOCOL}: use one version"
                    );
                    self.refuse(i, vec![why]);
                }
            }
            (FromAgent::Refused { why }, _) => self.refuse(i, why),
            (FromAgent::Ready, Step::Greeted) => agent.step = Step::Ready,
            (FromAgent::Prepared { kept }, Step::Ready) => {
                agent.step = Step::Prepared;
                self.kept.get_or_insert(kept);
            }
            (FromAgent::Pong { number, at_ns }, _) => {
                if let Some((asked, sent)) = agent.pinged
                    && asked == number
                {
                    agent.skew.note(sent, Duration::from_nanos(at_ns), now);
                    agent.pinged = None;
                    if agent.skew.made >= EXCHANGES && agent.step == Step::Prepared {
                        agent.step = Step::Timed;
                    }
                }
            }
            (FromAgent::Started { at_ns }, Step::Running) => {
                let at = agent.skew.ours(Duration::from_nanos(at_ns));
                agent.started.get_or_insert(at);
            }
            (FromAgent::Second(second), Step::Running) => {
                for second in agent.sum.take(*second) {
                    self.total.add(&second);
                }
            }
            (FromAgent::Ended(report), Step::Running) => {
                agent.step = Step::Over;
                agent.mismatch = agent.sum.compare(&report).err();
                let has_failed = matches!(report.end, End::Failed { .. });
                agent.report = Some(report);
                actions.push(Action::Send(i, ToAgent::Bye));
                // A step or data set that ends the run ends it for all.
                if has_failed {
                    self.stop(now, Stop::Gracefully, actions);
                }
            }
            (FromAgent::Failed { why }, _) => self.lose(i, &why),
            _ => {} // a beat, a repetition, or too late
        }
    }

    fn stop(&mut self, now: Time, stop: Stop, actions: &mut Vec<Action>) {
        if self.stop.is_none_or(|before| before < stop) {
            self.stop = Some(stop);
            let grace = if stop == Stop::Now { Duration::ZERO } else { self.grace };
            self.stopped_by = Some(now + grace + SILENCE);
            // At once, not with the next beat.
            for (i, agent) in self.agents.iter_mut().enumerate() {
                if !matches!(agent.step, Step::Over | Step::Connecting) {
                    agent.said = now;
                    actions.push(Action::Send(i, ToAgent::Beat { stop: Some(stop) }));
                }
            }
        }
    }

    fn watch(&mut self, now: Time) {
        if self.phase == Phase::Greeting && now >= self.begun + GREETING {
            for i in 0..self.agents.len() {
                if self.agents.get(i).is_some_and(|a| a.step == Step::Connecting) {
                    self.refuse(i, vec![format!("no greeting within {} s", GREETING.as_secs())]);
                }
            }
        }
        if !self.has_started() && now >= self.begun + PREPARATION {
            for i in 0..self.agents.len() {
                self.lose(i, &format!("not prepared within {} s", PREPARATION.as_secs()));
            }
        }
        if self.has_started() && self.stopped_by.is_some_and(|by| now >= by) {
            for i in 0..self.agents.len() {
                self.lose(i, "it did not stop");
            }
        }
        for i in 0..self.agents.len() {
            let silent = |a: &Seen| a.step != Step::Connecting && now >= a.heard + SILENCE;
            if self.agents.get(i).is_some_and(silent) {
                self.lose(i, &format!("no word for {} s", SILENCE.as_secs()));
            }
        }
    }

    fn all(&self, at: impl Fn(&Seen) -> bool) -> bool {
        self.agents.iter().all(at)
    }

    fn go_on(&mut self, now: Time, actions: &mut Vec<Action>) {
        let failed = self.agents.iter().any(|a| !a.refused.is_empty());
        // Greetings and offers wait for all answers, so that everyone who fails is named.
        let is_settled = match self.phase {
            Phase::Greeting => self.all(|a| a.step != Step::Connecting),
            Phase::Offering => self.all(|a| a.step != Step::Greeted) || self.stop.is_some(),
            _ => true,
        };
        if !self.has_started() && is_settled && (failed || self.stop.is_some()) {
            self.end(actions);
            return;
        }
        match self.phase {
            Phase::Greeting if self.all(|a| a.step == Step::Greeted) => {
                self.phase = Phase::Offering;
                for (i, offer) in self.offers.iter().enumerate() {
                    actions.push(Action::Send(i, ToAgent::Offer(Box::new(offer.clone()))));
                    actions.push(Action::Files(i));
                }
            }
            Phase::Offering if self.all(|a| a.step == Step::Ready) => {
                self.phase = Phase::Preparing;
                actions.push(Action::Send(0, ToAgent::Prepare { kept: None }));
                self.go_on(now, actions);
            }
            Phase::Preparing => {
                if let (Some(kept), false) = (&self.kept, self.has_passed_on) {
                    for i in 1..self.agents.len() {
                        actions.push(Action::Send(i, ToAgent::Prepare { kept: Some(kept.clone()) }));
                    }
                    self.has_passed_on = true;
                }
                if self.all(|a| a.step == Step::Prepared) {
                    self.phase = Phase::Timing;
                    self.go_on(now, actions);
                }
            }
            Phase::Timing => self.time(now, actions),
            Phase::Running => self.run(now, actions),
            Phase::Greeting | Phase::Offering | Phase::Over => {}
        }
    }

    /// Clocks are compared with one agent after the other, so that no exchange waits behind another one.
    fn time(&mut self, now: Time, actions: &mut Vec<Action>) {
        for (i, agent) in self.agents.iter_mut().enumerate() {
            if agent.step != Step::Prepared {
                continue;
            }
            // A ping that got lost is asked again.
            let is_asked = agent.pinged.is_some_and(|(_, sent)| now < sent + BEAT);
            if !is_asked {
                let number = agent.pinged.map_or(agent.skew.made, |(n, _)| n) + 1;
                agent.pinged = Some((number, now));
                agent.said = now;
                actions.push(Action::Send(i, ToAgent::Ping { number }));
            }
            return;
        }
        let at = now + LEAD;
        self.start_at = Some(at);
        self.phase = Phase::Running;
        for (i, agent) in self.agents.iter_mut().enumerate() {
            agent.step = Step::Running;
            let at_ns = nanos(agent.skew.theirs(at));
            actions.push(Action::Send(i, ToAgent::Start { at_ns }));
        }
    }

    fn run(&mut self, now: Time, actions: &mut Vec<Action>) {
        for i in 0..self.agents.len() {
            // An order to start that got lost is found out soon, not at the end.
            let at = self.start_at.unwrap_or(now);
            let is_late = |a: &Seen| a.step == Step::Running && a.started.is_none() && now >= at + SILENCE;
            if self.agents.get(i).is_some_and(is_late) {
                self.lose(i, "it did not start the load");
            }
        }
        let lost = self.agents.iter().any(|a| a.lost.is_some());
        if lost && self.on_loss == OnLoss::Abort {
            self.stop(now, Stop::Now, actions);
        }
        // Seconds that cannot be believed hold up no condition on the others; `merge_mismatch` tells of them.
        let told =
            |a: &Seen| if a.step == Step::Over || a.sum.wrong().is_some() { u64::MAX } else { a.sum.seconds };
        let most = self.agents.iter().map(|a| a.sum.seconds).max().unwrap_or(0);
        let complete = self.agents.iter().map(told).min().unwrap_or(0).min(most);
        while self.seconds < complete {
            let of = |a: &Seen| a.sum.counts.clone();
            let tick = self.total.complete(self.seconds, self.agents.iter().map(of));
            actions.push(Action::Second(Box::new(tick)));
            self.seconds += 1;
        }
        if self.all(|a| a.step == Step::Over) {
            self.end(actions);
        } else if !self.has_torn_down
            && self.agents.iter().skip(1).all(|a| a.step == Step::Over)
            && self.agents.first().is_some_and(|a| a.step == Step::Running)
        {
            self.has_torn_down = true;
            if self.stopped_by.is_some() {
                self.stopped_by = Some(now + TEARDOWN);
            }
            actions.push(Action::Send(0, ToAgent::Teardown));
        }
    }

    fn end(&mut self, actions: &mut Vec<Action>) {
        self.phase = Phase::Over;
        for i in 0..self.agents.len() {
            actions.push(Action::Send(i, ToAgent::Bye));
            actions.push(Action::Close(i));
        }
        actions.push(Action::Over);
    }

    fn beat(&mut self, now: Time, actions: &mut Vec<Action>) {
        if self.phase == Phase::Over {
            return;
        }
        let (stop, again) = (self.stop, self.has_torn_down);
        for (i, agent) in self.agents.iter_mut().enumerate() {
            if !matches!(agent.step, Step::Over | Step::Connecting) && now >= agent.said + BEAT {
                agent.said = now;
                actions.push(Action::Send(i, ToAgent::Beat { stop }));
                if i == 0 && again {
                    actions.push(Action::Send(i, ToAgent::Teardown));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Duration::from_millis;

    fn hello(protocol: u32) -> FromAgent {
        FromAgent::Hello(Box::new(Hello { protocol, ..Hello::default() }))
    }

    fn coordinator(agents: usize, on_loss: OnLoss) -> Coordinator {
        Coordinator::new(MS(0), vec![Offer::default(); agents], on_loss, MS(1_000))
    }

    /// Two agents whose load runs; their clocks are an hour and two ahead.
    fn running(on_loss: OnLoss) -> (Coordinator, Vec<Action>) {
        let mut c = coordinator(2, on_loss);
        for message in [hello(PROTOCOL), FromAgent::Ready, FromAgent::Prepared { kept: Value::Null }] {
            for i in 0..2 {
                c.on(MS(10), Event::Message(i, message.clone()));
            }
        }
        let (mut last, mut ms) = (Vec::new(), 10);
        for (i, hours) in [(0, 1), (1, 2)] {
            for number in 1..=EXCHANGES {
                // Each exchange takes a millisecond; the agent looks at its clock in the middle.
                let middle = MS(ms) + Duration::from_micros(500);
                ms += 1;
                let pong = FromAgent::Pong { number, at_ns: nanos(middle + MS(hours * 3_600_000)) };
                last = c.on(MS(ms), Event::Message(i, pong));
            }
        }
        (c, last)
    }

    #[test]
    fn who_fails_before_the_start_is_named_and_nothing_begins() {
        let mut c = coordinator(3, OnLoss::Abort);
        assert_eq!(c.on(MS(5), Event::Unreachable(0, "refused".to_owned())), []);
        // One of another version.
        assert_eq!(c.on(MS(6), Event::Message(1, hello(PROTOCOL + 1))), []);
        let told = c.on(MS(7), Event::Message(2, hello(PROTOCOL)));
        assert!(c.is_over() && told.contains(&Action::Send(2, ToAgent::Bye)), "{told:?}");
        assert!(!told.iter().any(|a| matches!(a, Action::Send(_, ToAgent::Offer(_)))), "{told:?}");
        let named: Vec<bool> = c.agents().iter().map(|agent| !agent.refused.is_empty()).collect();
        assert_eq!((named, c.has_started()), (vec![true, true, false], false));
        // Every refusal of an offer is heard too.
        let mut c = coordinator(2, OnLoss::Abort);
        (0..2).for_each(|i| drop(c.on(MS(1), Event::Message(i, hello(PROTOCOL)))));
        for i in 0..2 {
            assert!(!c.is_over());
            c.on(MS(2), Event::Message(i, FromAgent::Refused { why: vec!["no".to_owned()] }));
        }
        assert!(c.is_over() && c.agents().iter().all(|agent| !agent.refused.is_empty()));
        // One that never says hello.
        let mut c = coordinator(1, OnLoss::Abort);
        assert_eq!(c.next(), GREETING);
        c.on(GREETING, Event::Tick);
        assert!(c.is_over());
    }

    #[test]
    fn all_begin_at_one_moment_of_their_clocks() {
        let (c, last) = running(OnLoss::Abort);
        let start = c.start_at().unwrap();
        let at = |hours: u64| nanos(start + MS(hours * 3_600_000));
        for (i, hours) in [(0, 1), (1, 2)] {
            let order = Action::Send(i, ToAgent::Start { at_ns: at(hours) });
            assert!(last.contains(&order), "{order:?} in {last:?}");
        }
    }

    #[test]
    fn a_lost_agent_stops_the_others_or_not() {
        for (on_loss, stops) in [(OnLoss::Abort, true), (OnLoss::Continue, false)] {
            let (mut c, _) = running(on_loss);
            let told = c.on(MS(3_000), Event::Closed(1, "reset".to_owned()));
            let order = Action::Send(0, ToAgent::Beat { stop: Some(Stop::Now) });
            assert_eq!(told.contains(&order), stops, "{told:?}");
            assert_eq!(c.agents()[1].lost, Some((0, "reset".to_owned())));
            // What it says later does not count.
            c.on(MS(3_001), Event::Message(1, FromAgent::Ended(Box::default())));
            assert!(c.agents()[1].report.is_none());
        }
    }

    #[test]
    fn nothing_waits_for_ever() {
        // An agent that lives and is never ready.
        let mut c = coordinator(1, OnLoss::Abort);
        c.on(MS(1), Event::Message(0, hello(PROTOCOL)));
        let mut now = MS(1);
        while !c.is_over() && now < PREPARATION * 2 {
            now += BEAT;
            c.on(now, Event::Message(0, FromAgent::Beat));
        }
        assert!(now <= PREPARATION + BEAT, "{now:?}");
        // One that lives and does not stop.
        let (mut c, _) = running(OnLoss::Abort);
        (0..2).for_each(|i| drop(c.on(MS(2_100), Event::Message(i, FromAgent::Started { at_ns: 0 }))));
        c.on(MS(3_000), Event::Stop(Stop::Gracefully));
        let mut now = MS(3_000);
        while !c.is_over() && now < MS(60_000) {
            now += BEAT;
            (0..2).for_each(|i| drop(c.on(now, Event::Message(i, FromAgent::Beat))));
        }
        assert!(now <= MS(3_000) + MS(1_000) + SILENCE + BEAT, "{now:?}");
    }
}
