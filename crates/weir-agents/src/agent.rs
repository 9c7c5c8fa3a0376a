//! An agent: it runs its share of one load at a time, for whoever asked first, and stops when that one is gone.
//!
//! ```text
//!   Free ─ opened ─► Greeted ─ offer ─► Loading ─ ready ─► Ready ─ prepare ─► Preparing ─► Armed ─ start ─► Running
//!     ▲                                                                                                       │
//!     └──────── closed, bye, silence of 5 s (the load is cut first), or all told ◄── Ending ◄── stop, ended ──┘
//! ```

use crate::message::{FromAgent, Hello, Offer, PROTOCOL, Second, Stop, ToAgent};
use crate::{BEAT, SILENCE, Time, clean};
use serde_json::Value;
use std::time::Duration;
use weir_report::Report;

/// How long an agent goes on reading after [`SILENCE`] before it runs `teardown`. If the agent itself was suspended, a
/// message that another agent runs `teardown` may still be unread.
const HANDOVER: Duration = Duration::from_secs(2);

/// A connection to this agent, by a number that is never used again.
pub type Conn = u64;

/// What happens to an agent.
#[derive(Clone, Debug)]
pub enum Event {
    /// Someone has connected and wants a run. The text names them.
    Opened(Conn, String),
    /// A message came.
    Message(Conn, ToAgent),
    /// Bytes of a file came, which count as a sign of life.
    Piece(Conn),
    /// A connection has ended.
    Closed(Conn),
    /// All files of the offer are there: the plan is being compiled, and [`Event::Loaded`] will follow.
    Compiling,
    /// The result of [`Action::Load`], or the mistakes.
    Loaded(Result<(), Vec<String>>),
    /// The result of [`Action::Prepare`]: what `setup` kept.
    Prepared(Result<Value, String>),
    /// The load has begun, at this moment of our clock.
    Started(Time),
    /// A second of the load is over.
    Second(Box<Second>),
    /// `teardown` has run.
    TornDown,
    /// The load is over.
    Ended(Result<Box<Report>, String>),
    /// A timer may be due.
    Tick,
}

/// What an agent has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Take this connection.
    Accept(Conn),
    /// Refuse this connection with 409; the second connection owns the current run.
    Busy(Conn, String),
    /// Say this.
    Send(Conn, FromAgent),
    /// End a connection.
    Close(Conn),
    /// Take the files of this offer from the connection, then compile the plan.
    Load(Conn, Box<Offer>),
    /// Run `setup` and dry run, or take over what was kept.
    Prepare(Option<Value>),
    /// Begin the load at this moment of our clock.
    Run(Time),
    /// Stop the load.
    Stop(Stop),
    /// Do not run `teardown`, because another agent does.
    Retire,
    /// Run `teardown` once it may, in place of the agent that was to.
    Succeed,
    /// `teardown` may run.
    Teardown,
    /// Forget the plan and its files. Nothing of the run remains.
    Forget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeted,
    /// Files come.
    Loading,
    Compiling,
    Ready,
    Preparing,
    Armed,
    Running,
}

#[derive(Debug)]
struct Run {
    conn: Conn,
    by: String,
    state: State,
    heard: Time,
    said: Time,
    stopped: Option<Stop>,
    has_started: bool,
    /// The coordinator is gone; only the end of our own work is awaited.
    is_orphaned: bool,
    /// When this agent runs `teardown`, unless it hears before then that another one does. Set after [`SILENCE`].
    abandoned_at: Option<Time>,
}

/// An agent.
#[derive(Debug)]
pub struct Agent {
    hello: Hello,
    run: Option<Run>,
}

impl Agent {
    /// An agent without a run.
    pub const fn new(hello: Hello) -> Self {
        Self { hello, run: None }
    }

    /// Whether it runs nothing.
    pub const fn is_free(&self) -> bool {
        self.run.is_none()
    }

    /// When [`Event::Tick`] is due.
    pub fn next(&self) -> Time {
        self.run.as_ref().map_or(Time::MAX, |run| match run.is_orphaned {
            true => run.abandoned_at.unwrap_or(Time::MAX),
            false => (run.heard + SILENCE).min(run.said + BEAT),
        })
    }

    /// Takes an event; returns what to do.
    pub fn on(&mut self, now: Time, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        // Messages that queued up while this process was stopped are stale, so the silence is judged before them.
        self.expire(now, &mut actions);
        match event {
            Event::Opened(conn, by) => match &self.run {
                Some(run) => actions.push(Action::Busy(conn, run.by.clone())),
                None => {
                    self.run = Some(Run {
                        conn,
                        by,
                        state: State::Greeted,
                        heard: now,
                        said: now,
                        stopped: None,
                        has_started: false,
                        is_orphaned: false,
                        abandoned_at: None,
                    });
                    actions.push(Action::Accept(conn));
                    self.say(now, FromAgent::Hello(Box::new(self.hello.clone())), &mut actions);
                }
            },
            Event::Message(conn, ToAgent::Retire) if self.is_of(conn) => self.retire(&mut actions),
            Event::Message(conn, message) if self.is_current(conn) => {
                self.hear(now);
                self.obey(now, message, &mut actions);
            }
            Event::Piece(conn) if self.is_current(conn) => self.hear(now),
            Event::Closed(conn) if self.is_current(conn) => self.orphan(&mut actions),
            Event::Closed(conn) if self.is_of(conn) => self.abandon(&mut actions),
            Event::Message(..) | Event::Piece(_) | Event::Closed(_) => {} // of a connection that is no more
            Event::Compiling => {
                if let Some(run) = self.run.as_mut().filter(|run| run.state == State::Loading) {
                    run.state = State::Compiling;
                }
            }
            Event::Loaded(outcome) => self.loaded(now, outcome, &mut actions),
            Event::Prepared(outcome) => self.prepared(now, outcome, &mut actions),
            Event::Started(at) => {
                if let Some(run) = self.run.as_mut().filter(|run| run.state == State::Running) {
                    run.has_started = true;
                    self.say(now, FromAgent::Started { at_ns: nanos(at) }, &mut actions);
                }
            }
            Event::Second(second) => self.say(now, FromAgent::Second(second), &mut actions),
            Event::TornDown => self.say(now, FromAgent::TornDown, &mut actions),
            Event::Ended(outcome) => {
                let last = match outcome {
                    Ok(report) => FromAgent::Ended(report),
                    Err(why) => FromAgent::Failed { why: clean::lines(&why) },
                };
                self.say(now, last, &mut actions);
                if self.run.as_ref().is_some_and(|run| run.is_orphaned) {
                    self.forget(&mut actions);
                } else if let Some(run) = &mut self.run {
                    // The connection stays until the coordinator says goodbye; it gets no second run.
                    run.state = State::Greeted;
                    run.has_started = true;
                }
            }
            Event::Tick => {}
        }
        self.watch(now, &mut actions);
        actions
    }

    fn is_current(&self, conn: Conn) -> bool {
        self.is_of(conn) && self.run.as_ref().is_some_and(|run| !run.is_orphaned)
    }

    fn is_of(&self, conn: Conn) -> bool {
        self.run.as_ref().is_some_and(|run| run.conn == conn)
    }

    fn hear(&mut self, now: Time) {
        if let Some(run) = &mut self.run {
            run.heard = now;
        }
    }

    fn say(&mut self, now: Time, message: FromAgent, actions: &mut Vec<Action>) {
        if let Some(run) = self.run.as_mut().filter(|run| !run.is_orphaned) {
            run.said = now;
            actions.push(Action::Send(run.conn, message));
        }
    }

    fn obey(&mut self, now: Time, message: ToAgent, actions: &mut Vec<Action>) {
        let Some(run) = &mut self.run else { return };
        match (message, run.state) {
            (ToAgent::Offer(offer), State::Greeted) if !run.has_started => {
                let protocol = offer.protocol;
                if protocol != PROTOCOL || !offer.share.is_sound() {
                    let why = format!("it speaks agent protocol {PROTOCOL}, the coordinator {protocol}");
                    self.say(now, FromAgent::Refused { why: vec![why] }, actions);
                    return;
                }
                run.by = clean::line(&offer.by);
                run.state = State::Loading;
                actions.push(Action::Load(run.conn, offer));
            }
            (ToAgent::Prepare { kept }, State::Ready) => {
                run.state = State::Preparing;
                actions.push(Action::Prepare(kept));
            }
            (ToAgent::Ping { number }, _) => {
                self.say(now, FromAgent::Pong { number, at_ns: nanos(now) }, actions);
            }
            (ToAgent::Start { at_ns }, State::Armed) if run.stopped.is_none() => {
                run.state = State::Running;
                actions.push(Action::Run(Duration::from_nanos(at_ns)));
            }
            (ToAgent::Beat { stop: Some(stop) }, _) if run.stopped.is_none_or(|before| before < stop) => {
                run.stopped = Some(stop);
                if matches!(run.state, State::Running | State::Preparing) {
                    actions.push(Action::Stop(stop));
                }
                if (run.state, stop) == (State::Running, Stop::Now) {
                    actions.push(Action::Teardown); // it waits for no other agent
                }
            }
            (ToAgent::Succeed, State::Running) => actions.push(Action::Succeed),
            (ToAgent::Teardown, State::Running) => actions.push(Action::Teardown),
            (ToAgent::Bye, _) => {
                actions.push(Action::Close(run.conn));
                self.orphan(actions);
            }
            // A repetition, or a message that comes too late to matter.
            _ => {}
        }
    }

    fn loaded(&mut self, now: Time, outcome: Result<(), Vec<String>>, actions: &mut Vec<Action>) {
        let Some(run) = self.run.as_mut().filter(|run| run.state == State::Compiling) else { return };
        if run.is_orphaned {
            self.forget(actions);
            return;
        }
        match outcome {
            Ok(()) => {
                run.state = State::Ready;
                self.say(now, FromAgent::Ready, actions);
            }
            Err(why) => {
                run.state = State::Greeted;
                self.say(now, FromAgent::Refused { why }, actions);
            }
        }
    }

    fn prepared(&mut self, now: Time, outcome: Result<Value, String>, actions: &mut Vec<Action>) {
        let Some(run) = self.run.as_mut().filter(|run| run.state == State::Preparing) else { return };
        if run.is_orphaned {
            self.forget(actions);
            return;
        }
        match outcome {
            Ok(kept) => {
                run.state = State::Armed;
                self.say(now, FromAgent::Prepared { kept }, actions);
            }
            Err(why) => {
                run.state = State::Ready;
                self.say(now, FromAgent::Failed { why: clean::lines(&why) }, actions);
            }
        }
    }

    /// The coordinator is gone. What runs is cut; the agent is free once that has ended.
    fn orphan(&mut self, actions: &mut Vec<Action>) {
        let Some(run) = &mut self.run else { return };
        run.is_orphaned = true;
        match run.state {
            State::Running | State::Preparing => {
                run.stopped = Some(Stop::Now);
                actions.push(Action::Stop(Stop::Now));
                if run.state == State::Running && run.abandoned_at.is_none() {
                    actions.push(Action::Teardown);
                }
            }
            // Compiling a plan ends by itself.
            State::Compiling => {}
            State::Armed | State::Greeted | State::Loading | State::Ready => self.forget(actions),
        }
    }

    /// Leaves `teardown` to another agent.
    fn retire(&mut self, actions: &mut Vec<Action>) {
        let Some(run) = self.run.as_mut().filter(|run| run.state == State::Running) else { return };
        run.abandoned_at = None;
        actions.push(Action::Retire);
    }

    /// Ends the wait for word that another agent runs `teardown`: this one runs it.
    fn abandon(&mut self, actions: &mut Vec<Action>) {
        if let Some(run) = &mut self.run
            && run.abandoned_at.take().is_some()
        {
            actions.extend([Action::Close(run.conn), Action::Teardown]);
        }
    }

    fn forget(&mut self, actions: &mut Vec<Action>) {
        self.run = None;
        actions.push(Action::Forget);
    }

    /// The deadline of the load unless another message arrives; none if nothing may run.
    pub fn lease(&self) -> Option<Time> {
        self.run.as_ref().filter(|run| !run.is_orphaned).map(|run| run.heard + SILENCE)
    }

    fn expire(&mut self, now: Time, actions: &mut Vec<Action>) {
        let Some(run) = &mut self.run else { return };
        if run.abandoned_at.is_some_and(|at| now >= at) {
            self.abandon(actions);
        } else if !run.is_orphaned && now >= run.heard + SILENCE {
            match run.state {
                State::Running => run.abandoned_at = Some(now + HANDOVER),
                _ => actions.push(Action::Close(run.conn)),
            }
            self.orphan(actions);
        }
    }

    fn watch(&mut self, now: Time, actions: &mut Vec<Action>) {
        let Some(run) = self.run.as_ref().filter(|run| !run.is_orphaned) else { return };
        if now >= run.said + BEAT {
            self.say(now, FromAgent::Beat, actions);
        }
    }
}

/// A time in nanoseconds, as messages carry it.
pub(crate) fn nanos(time: Time) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Share;

    const S: fn(u64) -> Time = Duration::from_secs;

    fn offer() -> ToAgent {
        ToAgent::Offer(Box::new(Offer {
            protocol: PROTOCOL,
            by: "ci".to_owned(),
            share: Share::WHOLE,
            ..Offer::default()
        }))
    }

    /// An agent that has the plan of connection 1 and waits for the start.
    fn prepared() -> Agent {
        let mut agent = Agent::new(Hello::default());
        agent.on(S(0), Event::Opened(1, "a".to_owned()));
        agent.on(S(0), Event::Message(1, offer()));
        agent.on(S(0), Event::Compiling);
        agent.on(S(0), Event::Loaded(Ok(())));
        agent.on(S(0), Event::Message(1, ToAgent::Prepare { kept: None }));
        agent.on(S(0), Event::Prepared(Ok(Value::Null)));
        agent
    }

    /// An agent whose load runs for connection 1.
    fn running() -> Agent {
        let mut agent = prepared();
        let begun = agent.on(S(1), Event::Message(1, ToAgent::Start { at_ns: 3_000_000_000 }));
        assert!(begun.contains(&Action::Run(S(3))), "{begun:?}");
        agent.on(S(3), Event::Started(S(3)));
        agent
    }

    #[test]
    fn one_run_at_a_time() {
        let mut agent = running();
        let told = agent.on(S(3), Event::Opened(2, "b".to_owned()));
        assert_eq!(told, [Action::Busy(2, "ci".to_owned())]);
        // What the refused one says has no effect.
        let none = agent.on(S(3), Event::Message(2, ToAgent::Beat { stop: Some(Stop::Now) }));
        assert_eq!(none, []);
        agent.on(S(4), Event::Ended(Ok(Box::default())));
        assert_eq!(agent.on(S(4), Event::Message(1, ToAgent::Bye)), [Action::Close(1), Action::Forget]);
        assert!(agent.is_free());
        assert!(agent.on(S(5), Event::Opened(3, "b".to_owned())).contains(&Action::Accept(3)));
    }

    #[test]
    fn a_coordinator_that_is_gone_stops_the_load() {
        for (event, at) in [(Event::Closed(1), S(4)), (Event::Tick, S(3) + SILENCE)] {
            let mut agent = running();
            agent.on(S(3), Event::Message(1, ToAgent::Beat { stop: None }));
            let told = agent.on(at, event);
            assert!(told.contains(&Action::Stop(Stop::Now)), "{told:?}");
            // Not free before its load has ended, and it says nothing more.
            assert!(!agent.is_free());
            assert_eq!(agent.on(at, Event::Ended(Ok(Box::default()))), [Action::Forget]);
            assert!(agent.is_free());
        }
    }

    #[test]
    fn teardown_is_left_to_the_agent_that_took_over() {
        let runs_it = |told: &[Action]| told.contains(&Action::Teardown);
        // It stood still. The word waits behind others.
        let mut agent = running();
        let wakes = S(3) + SILENCE * 3;
        let told = agent.on(wakes, Event::Message(1, ToAgent::Beat { stop: None }));
        assert!(told.contains(&Action::Stop(Stop::Now)) && !runs_it(&told), "{told:?}");
        assert_eq!(agent.on(wakes, Event::Message(1, ToAgent::Retire)), [Action::Retire]);
        let told = agent.on(wakes, Event::Closed(1));
        assert!(!runs_it(&told), "{told:?}");
        assert!(agent.on(wakes + HANDOVER, Event::Tick).is_empty());
        // Nobody took over: it is cut off, or its coordinator is dead.
        for (event, at) in [(Event::Closed(1), wakes), (Event::Tick, wakes + HANDOVER)] {
            let mut agent = running();
            assert!(!runs_it(&agent.on(wakes, Event::Tick)) && agent.next() == wakes + HANDOVER);
            let told = agent.on(at, event);
            assert_eq!(told, [Action::Close(1), Action::Teardown]);
            assert_eq!(agent.next(), Time::MAX);
        }
        let mut agent = running();
        assert!(runs_it(&agent.on(S(4), Event::Closed(1))));
    }

    #[test]
    fn a_coordinator_that_dies_before_the_start_frees_the_agent() {
        for is_compiling in [false, true] {
            let mut agent = Agent::new(Hello::default());
            agent.on(S(0), Event::Opened(1, "a".to_owned()));
            agent.on(S(0), Event::Message(1, offer()));
            if is_compiling {
                agent.on(S(0), Event::Compiling);
            }
            agent.on(S(1), Event::Closed(1));
            // Nobody will say that files are compiled which have not come.
            assert_eq!(agent.is_free(), !is_compiling);
            if is_compiling {
                agent.on(S(2), Event::Loaded(Ok(())));
            }
            assert!(agent.is_free());
        }
    }

    #[test]
    fn words_that_waited_during_a_pause_do_not_revive_a_run() {
        let mut agent = running();
        let told = agent.on(S(3) + SILENCE, Event::Message(1, ToAgent::Beat { stop: None }));
        assert!(told.contains(&Action::Stop(Stop::Now)), "{told:?}");
        assert_eq!(agent.lease(), None);
    }

    #[test]
    fn an_order_to_stop_is_obeyed_once_and_may_get_stricter() {
        let mut agent = running();
        let mut stop = |stop| agent.on(S(4), Event::Message(1, ToAgent::Beat { stop: Some(stop) }));
        assert!(stop(Stop::Gracefully).contains(&Action::Stop(Stop::Gracefully)));
        assert!(!stop(Stop::Gracefully).iter().any(|a| matches!(a, Action::Stop(_))));
        assert!(stop(Stop::Now).contains(&Action::Stop(Stop::Now)));
        assert!(!stop(Stop::Gracefully).iter().any(|a| matches!(a, Action::Stop(_))));
    }

    #[test]
    fn a_stop_before_the_start_is_not_overtaken_by_it() {
        let mut agent = prepared();
        agent.on(S(0), Event::Message(1, ToAgent::Beat { stop: Some(Stop::Now) }));
        let told = agent.on(S(1), Event::Message(1, ToAgent::Start { at_ns: 0 }));
        assert!(!told.iter().any(|a| matches!(a, Action::Run(_))), "{told:?}");
    }
}
