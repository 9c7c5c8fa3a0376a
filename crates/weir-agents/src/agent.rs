//! An agent: it runs its share of one load at a time, for whoever asked first, and stops when that one is gone.
//!
//! ```text
//!   Free ─ opened ─► Greeted ─ offer ─► Loading ─ ready ─► Ready ─ prepare ─► Preparing ─► Armed ─ start ─► Running
//!     ▲                                                                                                       │
//!     └──────── closed, bye, silence of 5 s (the load is cut first), or all told ◄── Ending ◄── stop, ended ──┘
//! ```
//!
//! `disconnect` has the ends: what happens to a run, and to `teardown`, when coordinator and agent part.

mod disconnect;

use crate::message::{FromAgent, Hello, Offer, OnLoss, PROTOCOL, Second, Stop, ToAgent};
use crate::{BEAT, SILENCE, Share, Time, clean};
use serde_json::Value;
use std::time::Duration;
use weir_report::Report;

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
    /// The operator of this machine ends the agent.
    Leave,
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
    /// Our operator ends us.
    is_leaving: bool,
    share: Share,
    on_loss: OnLoss,
    /// Whether `teardown` is the task of this agent.
    has_task: bool,
    /// When this agent, cut off, runs `teardown`, unless it hears before then that another one does.
    tears_down_at: Option<Time>,
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
            true => run.tears_down_at.unwrap_or(Time::MAX),
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
                        is_leaving: false,
                        share: Share::WHOLE,
                        on_loss: OnLoss::default(),
                        has_task: false,
                        tears_down_at: None,
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
            Event::Closed(conn) if self.is_current(conn) => self.orphan(now, &mut actions),
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
                let is_leaving = self.run.as_ref().is_some_and(|run| run.is_leaving);
                let last = match outcome {
                    _ if is_leaving => disconnect::left(false),
                    Ok(report) => FromAgent::Ended(report),
                    Err(why) => FromAgent::Failed { why: clean::lines(&why), tears_down: false },
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
            Event::Leave => self.leave(now, &mut actions),
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
                (run.share, run.on_loss) = (offer.share, offer.on_loss);
                run.has_task = offer.tears_down && offer.share.index == 0;
                actions.push(Action::Load(run.conn, offer));
            }
            (ToAgent::Prepare { kept }, State::Ready) => {
                run.state = State::Preparing;
                actions.push(Action::Prepare(kept));
            }
            (ToAgent::Ping { number }, _) => {
                self.say(now, FromAgent::Pong { number, at_ns: nanos(now) }, actions);
            }
            (ToAgent::Start { at_ns }, State::Armed) if run.stopped.is_none() && !run.is_leaving => {
                run.state = State::Running;
                actions.push(Action::Run(Duration::from_nanos(at_ns)));
            }
            (ToAgent::Beat { stop: Some(stop) }, _) if run.stopped.is_none_or(|before| before < stop) => {
                run.stopped = Some(stop);
                if matches!(run.state, State::Running | State::Preparing) {
                    actions.push(Action::Stop(stop));
                }
            }
            (ToAgent::Succeed, State::Running) => {
                run.has_task = true;
                actions.push(Action::Succeed);
                self.say(now, FromAgent::Succeeding, actions);
            }
            (ToAgent::Teardown, State::Running) => actions.push(Action::Teardown),
            (ToAgent::Bye, _) => self.part(now, actions),
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
            _ if run.is_leaving => {
                run.state = State::Greeted;
                self.say(now, disconnect::left(false), actions);
            }
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
            self.leave_prepared(now, outcome.is_ok(), actions);
            return;
        }
        match outcome {
            Ok(kept) => {
                run.state = State::Armed;
                let said = match run.is_leaving {
                    true => disconnect::left(run.has_task),
                    false => FromAgent::Prepared { kept },
                };
                self.say(now, said, actions);
            }
            Err(why) => {
                run.state = State::Ready;
                self.say(now, FromAgent::Failed { why: clean::lines(&why), tears_down: false }, actions);
            }
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
    use crate::teardown::DETACHED;

    const S: fn(u64) -> Time = Duration::from_secs;

    fn offer(share: Share, on_loss: OnLoss) -> ToAgent {
        ToAgent::Offer(Box::new(Offer {
            protocol: PROTOCOL,
            by: "ci".to_owned(),
            share,
            on_loss,
            tears_down: true,
            ..Offer::default()
        }))
    }

    /// An agent that has the plan of connection 1 and waits for the start.
    fn prepared() -> Agent {
        prepared_as(Share::WHOLE, OnLoss::Abort)
    }

    fn prepared_as(share: Share, on_loss: OnLoss) -> Agent {
        let mut agent = Agent::new(Hello::default());
        agent.on(S(0), Event::Opened(1, "a".to_owned()));
        agent.on(S(0), Event::Message(1, offer(share, on_loss)));
        agent.on(S(0), Event::Compiling);
        agent.on(S(0), Event::Loaded(Ok(())));
        agent.on(S(0), Event::Message(1, ToAgent::Prepare { kept: None }));
        agent.on(S(0), Event::Prepared(Ok(Value::Null)));
        agent
    }

    /// An agent whose load runs for connection 1.
    fn running() -> Agent {
        running_one_of(1, OnLoss::Abort)
    }

    /// The first of several agents.
    fn running_one_of(agents: u32, on_loss: OnLoss) -> Agent {
        let mut agent = prepared_as(Share { index: 0, of: agents }, on_loss);
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

    const RUNS_IT: fn(&[Action]) -> bool = |told| told.contains(&Action::Teardown);

    #[test]
    fn teardown_is_left_to_the_agent_that_took_over() {
        // It stood still. The word waits behind others.
        let mut agent = running_one_of(2, OnLoss::Abort);
        let wakes = S(3) + SILENCE * 3;
        let told = agent.on(wakes, Event::Message(1, ToAgent::Beat { stop: None }));
        assert!(told.contains(&Action::Stop(Stop::Now)) && !RUNS_IT(&told), "{told:?}");
        assert_eq!(agent.on(wakes, Event::Message(1, ToAgent::Retire)), [Action::Retire]);
        for event in [Event::Closed(1), Event::Tick] {
            assert_eq!(agent.on(wakes + DETACHED, event), []);
        }
    }

    #[test]
    fn an_agent_that_is_cut_off_waits_for_the_others_or_leaves_teardown_to_them() {
        for (agents, on_loss, wait) in [
            (1, OnLoss::Abort, Some(Duration::ZERO)),
            (1, OnLoss::Continue, Some(Duration::ZERO)),
            (2, OnLoss::Abort, Some(DETACHED)),
            (2, OnLoss::Continue, None),
        ] {
            for (event, at) in [(Event::Closed(1), S(4)), (Event::Tick, S(3) + SILENCE)] {
                let mut agent = running_one_of(agents, on_loss);
                agent.on(S(3), Event::Message(1, ToAgent::Beat { stop: None }));
                let is_silence = matches!(event, Event::Tick);
                let told = agent.on(at, event);
                assert!(told.contains(&Action::Stop(Stop::Now)), "{told:?}");
                // The coordinator may still hear it, and must not take it for one that does nothing more.
                assert_eq!(told.contains(&Action::Send(1, FromAgent::CutOff)), is_silence, "{told:?}");
                assert_eq!(RUNS_IT(&told), wait == Some(Duration::ZERO), "{agents} {on_loss:?} {told:?}");
                assert_eq!(told.contains(&Action::Retire), wait.is_none(), "{agents} {on_loss:?} {told:?}");
                if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
                    assert_eq!(agent.next(), at + wait);
                    assert_eq!(agent.on(at + wait - Duration::from_millis(1), Event::Tick), []);
                    assert!(RUNS_IT(&agent.on(at + wait, Event::Tick)));
                }
                assert_eq!(agent.next(), Time::MAX);
            }
        }
        // An agent without the task has nothing to wait for.
        let mut other = prepared_as(Share { index: 1, of: 2 }, OnLoss::Abort);
        other.on(S(1), Event::Message(1, ToAgent::Start { at_ns: 3_000_000_000 }));
        let told = other.on(S(4), Event::Closed(1));
        assert!(!RUNS_IT(&told) && other.next() == Time::MAX, "{told:?}");
    }

    #[test]
    fn teardown_runs_if_the_load_does_not_begin_after_setup() {
        let mut agent = prepared();
        let told = agent.on(S(1), Event::Message(1, ToAgent::Bye));
        let run = [Action::Run(S(1)), Action::Stop(Stop::Now), Action::Teardown];
        assert_eq!(told, [&[Action::Close(1)], &run[..]].concat());
        assert!(agent.on(S(2), Event::Ended(Ok(Box::default()))).contains(&Action::Forget));
        // Without word, the others may have been told to start.
        let mut agent = prepared_as(Share { index: 0, of: 2 }, OnLoss::Abort);
        assert_eq!(agent.on(S(1), Event::Closed(1)), run[..2]);
        assert!(RUNS_IT(&agent.on(S(1) + DETACHED, Event::Tick)));
    }

    #[test]
    fn teardown_runs_if_the_coordinator_is_gone_before_setup_is_over() {
        for (event, outcome, runs) in [
            (Event::Message(1, ToAgent::Bye), Ok(Value::Null), true),
            (Event::Closed(1), Ok(Value::Null), true),
            // Then it ran what was left of `teardown` by itself.
            (Event::Closed(1), Err("interrupted".to_owned()), false),
        ] {
            let mut agent = prepared_as(Share { index: 0, of: 2 }, OnLoss::Continue);
            agent.run.as_mut().unwrap().state = State::Preparing;
            assert!(agent.on(S(1), event).contains(&Action::Stop(Stop::Now)));
            let told = agent.on(S(2), Event::Prepared(outcome));
            assert_eq!(RUNS_IT(&told), runs, "{told:?}");
            assert_eq!(told.contains(&Action::Forget), !runs, "{told:?}");
        }
    }

    #[test]
    fn an_agent_that_its_operator_ends_hands_teardown_back() {
        for agents in [1, 2] {
            let mut agent = running_one_of(agents, OnLoss::Abort);
            let told = agent.on(S(3), Event::Leave);
            assert_eq!(told, [Action::Stop(Stop::Leaving), Action::Send(1, FromAgent::Leaving)]);
            assert_eq!(agent.on(S(3), Event::Leave), []);
            // The coordinator has a successor, or lets it run.
            assert_eq!(agent.on(S(3), Event::Message(1, ToAgent::Retire)), [Action::Retire]);
            assert!(RUNS_IT(&agent.on(S(3), Event::Message(1, ToAgent::Teardown))));
            let told = agent.on(S(4), Event::Ended(Ok(Box::default())));
            let left = disconnect::left(false);
            assert_eq!(told, [Action::Send(1, left)]);
            agent.on(S(4), Event::Closed(1));
            assert!(agent.is_free());
            // Before the start, it says so at once and does not start.
            let mut agent = prepared_as(Share { index: 0, of: agents }, OnLoss::Abort);
            assert_eq!(agent.on(S(1), Event::Leave), [Action::Send(1, disconnect::left(true))]);
            assert_eq!(agent.on(S(1), Event::Message(1, ToAgent::Start { at_ns: 0 })), []);
            assert!(RUNS_IT(&agent.on(S(1), Event::Message(1, ToAgent::Bye))));
        }
    }

    #[test]
    fn a_coordinator_that_dies_before_the_start_frees_the_agent() {
        for is_compiling in [false, true] {
            let mut agent = Agent::new(Hello::default());
            agent.on(S(0), Event::Opened(1, "a".to_owned()));
            agent.on(S(0), Event::Message(1, offer(Share::WHOLE, OnLoss::Abort)));
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
