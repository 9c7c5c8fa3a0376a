//! The coordinator: it leads all agents through one run and decides what the loss of one means.
//!
//! ```text
//!   Greeting ─ all said hello ─► Offering ─ all ready ─► Preparing (the first alone, then the others)
//!        │                            │                        │ all prepared
//!        ▼ one missing or refusing    ▼                        ▼
//!      Over: nothing was sent       Over                    Timing ─ 16 exchanges each ─► Starting ─► Running ─► Over
//! ```
//!
//! Before the start, the failure of one agent ends the run. Afterwards, an agent is lost for good if it is silent for
//! [`SILENCE`], says what cannot be true, or does not end (`deadlines`): the coordinator does not reconnect. If the
//! agent that was to run `teardown` is lost, the next one does (`loss`; the rule is in `crate::teardown`).

mod deadlines;
mod loss;

use crate::agent::nanos;
use crate::message::{FromAgent, Hello, Offer, PROTOCOL, Stop, ToAgent};
use crate::skew::{EXCHANGES, Skew};
use crate::sum::{Sum, Total};
use crate::{BEAT, SILENCE, Time, clean, credible};
use loss::Parting;
use serde_json::Value;
use std::time::Duration;
use weir_report::Report;
use weir_report::report::{End, Tick};

pub use crate::message::OnLoss;

/// From the order to start until the start: enough for the order to reach every agent.
pub const LEAD: Duration = Duration::from_secs(2);

/// How long all agents may take to connect and say hello.
pub const GREETING: Duration = Duration::from_secs(10);

/// How long the preparation of a run may take: files, the plan, `setup`, the dry run. Nothing waits for ever.
pub const PREPARATION: Duration = Duration::from_secs(600);

/// How long `teardown` may take after an order to stop.
pub const TEARDOWN: Duration = Duration::from_secs(60);

/// How long `teardown` may take after a load that came to its end: as long as a preparation.
pub const TEARDOWN_WHOLE: Duration = PREPARATION;

/// From the planned end of a load and its graceful stop until an agent must have reported. Our guess: a busy machine
/// needs a few seconds to add up the histograms of a thousand steps and to send them.
pub const ENDING: Duration = Duration::from_secs(30);

/// How long an agent may send heartbeats without a second of its load, or without its report after the last one.
pub const QUIET: Duration = Duration::from_secs(30);

/// How long a load without a planned end may neither begin nor end a request. A user may pause for minutes.
pub const IDLE: Duration = Duration::from_secs(600);

/// What is known of a load before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// How long it runs, with its warm-up; none if only a count ends it.
    pub length: Option<Duration>,
    /// How long it runs before it is measured.
    pub warmup: Duration,
    /// How long requests may go on after a graceful stop.
    pub grace: Duration,
    /// How long users may take for `end` after [`Stop::Leaving`].
    pub leaving: Duration,
    /// Whether there is a `teardown`.
    pub tears_down: bool,
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
    /// An agent sent an invalid message, or numbers and lists beyond their limits.
    Malformed(usize, String),
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
    /// Whether it ran `teardown`.
    pub has_torn_down: bool,
    /// Whether it was lost and may have run, or may yet run, `teardown`.
    pub may_tear_down: bool,
    /// When its load is over for certain, once it is lost.
    over_at: Time,
    /// Its operator ends it, and it waits for a successor if `teardown` is its task.
    is_leaving: bool,
    /// Whether it was ever told to run `teardown`.
    had_task: bool,
    step: Step,
    heard: Time,
    said: Time,
    /// When its last second came.
    counted: Time,
    /// When a second last contained a request that began or ended.
    moved: Time,
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
    /// The agent that runs `teardown`.
    tearer: usize,
    /// When it was allowed to.
    torn_down_at: Option<Time>,
    /// When every agent must have obeyed the order to stop.
    stopped_by: Option<Time>,
    expected: Expected,
}

impl Coordinator {
    /// A coordinator of one run, with an offer to each agent.
    pub fn new(now: Time, mut offers: Vec<Offer>, on_loss: OnLoss, expected: Expected) -> Self {
        for offer in &mut offers {
            (offer.on_loss, offer.tears_down) = (on_loss, expected.tears_down);
        }
        let agent = |i| Seen { heard: now, said: now, had_task: i == 0, ..Seen::default() };
        let agents = (0..offers.len()).map(agent).collect();
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
            tearer: 0,
            torn_down_at: None,
            stopped_by: None,
            expected,
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

    /// Whether `setup` ran.
    pub const fn has_set_up(&self) -> bool {
        self.kept.is_some()
    }

    /// Whether the load began and no agent said that it ran the `teardown` that there is. An agent that
    /// [`Seen::may_tear_down`] may have.
    pub fn has_missed_teardown(&self) -> bool {
        self.expected.tears_down && self.has_started() && !self.agents.iter().any(|a| a.has_torn_down)
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
            Event::Closed(i, why) => self.lose(now, i, (vec![why], Parting::Unknown), &mut actions),
            Event::Malformed(i, why) => self.cut(now, i, &why, &mut actions),
            Event::Sending(i) => {
                if let Some(agent) = self.agents.get_mut(i) {
                    agent.heard = now;
                }
            }
            Event::Stop(stop) => self.stop(now, stop, &mut actions),
            Event::Tick => {}
        }
        self.watch(now, &mut actions);
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

    fn hear(&mut self, now: Time, i: usize, message: FromAgent, actions: &mut Vec<Action>) {
        let Some(agent) = self.agents.get_mut(i).filter(|a| a.step != Step::Over) else { return };
        agent.heard = now;
        let passed = now.saturating_sub(self.start_at.unwrap_or(now));
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
            (FromAgent::Refused { why }, _) => self.refuse(i, clean::lines_of(why)),
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
                let from = self.start_at.unwrap_or(now).saturating_sub(credible::SLACK);
                if (from..=now + credible::SLACK).contains(&at) {
                    agent.started.get_or_insert(at);
                } else {
                    self.cut(now, i, "it began at a moment that was not then", actions);
                }
            }
            (FromAgent::Second(second), Step::Running) => {
                agent.counted = now;
                if let Err(why) = credible::in_time(&second, self.expected.warmup, passed) {
                    self.cut(now, i, &why, actions);
                    return;
                }
                let before = agent.sum.moved();
                for second in agent.sum.take(*second) {
                    self.total.add(&second);
                }
                if agent.sum.moved() != before {
                    agent.moved = now;
                }
            }
            (FromAgent::Leaving, Step::Running) => {
                agent.is_leaving = true;
                self.succeed(i, actions);
            }
            (FromAgent::Succeeding, Step::Running) if i == self.tearer => self.release(i, actions),
            (FromAgent::TornDown, Step::Running) => agent.has_torn_down |= i == self.tearer,
            (FromAgent::Ended(report), Step::Running) => {
                if let Err(why) = credible::report_in_time(&report, passed) {
                    self.cut(now, i, &why, actions);
                    return;
                }
                agent.step = Step::Over;
                agent.mismatch = agent.sum.compare(&report).err();
                let has_failed = matches!(report.end, End::Failed { .. });
                agent.report = Some(report);
                actions.push(Action::Send(i, ToAgent::Bye));
                // It may have ended before it heard that `teardown` was its task.
                self.succeed(i, actions);
                // A step or data set that ends the run ends it for all.
                if has_failed {
                    self.stop(now, Stop::Gracefully, actions);
                }
            }
            // It must hear the goodbye, which tells the agent that ran `setup` to run `teardown`.
            (FromAgent::Failed { why, .. }, _) if self.start_at.is_none() => {
                self.refuse(i, clean::lines_of(why))
            }
            (FromAgent::Failed { why, tears_down }, _) => {
                let parting = if tears_down { Parting::CutOff } else { Parting::Done };
                self.lose(now, i, (clean::lines_of(why), parting), actions);
            }
            (FromAgent::CutOff, _) => {
                let why = format!("it read nothing from the coordinator for {} s", SILENCE.as_secs());
                self.lose(now, i, (vec![why], Parting::CutOff), actions);
            }
            _ => {} // a beat, a repetition, or too late
        }
    }

    fn stop(&mut self, now: Time, stop: Stop, actions: &mut Vec<Action>) {
        if self.stop.is_none_or(|before| before < stop) {
            self.stop = Some(stop);
            let grace = match stop {
                Stop::Gracefully => self.expected.grace,
                Stop::Leaving => self.expected.leaving,
                Stop::Now => Duration::ZERO,
            };
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
            (agent.counted, agent.moved) = (at, at);
            let at_ns = nanos(agent.skew.theirs(at));
            actions.push(Action::Send(i, ToAgent::Start { at_ns }));
        }
    }

    fn run(&mut self, now: Time, actions: &mut Vec<Action>) {
        for i in 0..self.agents.len() {
            // An order to start that got lost is found out soon, not at the end.
            let at = self.start_at.unwrap_or(now);
            // One that was stopped before the start never begins.
            let is_due = self.stop.is_none() && now >= at + SILENCE;
            let is_late = |a: &Seen| a.step == Step::Running && a.started.is_none() && is_due;
            if self.agents.get(i).is_some_and(is_late) {
                let why = vec!["it did not start the load".to_owned()];
                self.lose(now, i, (why, Parting::Unknown), actions);
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
        let others = |(i, a): (usize, &Seen)| i == self.tearer || a.step == Step::Over && now >= a.over_at;
        if self.all(|a| a.step == Step::Over) {
            self.end(actions);
        } else if self.torn_down_at.is_none() && self.agents.iter().enumerate().all(others) {
            self.torn_down_at = Some(now);
            actions.push(Action::Send(self.tearer, ToAgent::Teardown));
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
        let (stop, tearer, may) = (self.stop, self.tearer, self.torn_down_at.is_some());
        for (i, agent) in self.agents.iter_mut().enumerate() {
            if !matches!(agent.step, Step::Over | Step::Connecting) && now >= agent.said + BEAT {
                agent.said = now;
                actions.push(Action::Send(i, ToAgent::Beat { stop }));
                // What matters is said again with each beat.
                if i == tearer && i > 0 {
                    actions.push(Action::Send(i, ToAgent::Succeed));
                }
                if i == tearer && may {
                    actions.push(Action::Send(i, ToAgent::Teardown));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
