//! How an agent and its coordinator part: at the end of a run, when one of them is gone, or when the operator of the
//! agent ends it. The rule of `teardown` is in `crate::teardown`.

use super::{Action, Agent, State};
use crate::message::{FromAgent, Stop};
use crate::teardown::{CutOff, DETACHED};
use crate::{SILENCE, Time};

/// What an agent says that its operator ends.
pub(super) fn left(tears_down: bool) -> FromAgent {
    FromAgent::Failed { why: vec!["the agent was ended on its machine".to_owned()], tears_down }
}

impl Agent {
    /// The coordinator ends the run. Where no load has begun, none of another agent has: the agent that ran `setup` runs
    /// `teardown` at once.
    pub(super) fn part(&mut self, now: Time, actions: &mut Vec<Action>) {
        let Some(run) = &mut self.run else { return };
        actions.push(Action::Close(run.conn));
        if run.state == State::Armed && run.has_task {
            (run.state, run.is_orphaned, run.stopped) = (State::Running, true, Some(Stop::Now));
            actions.extend([Action::Run(now), Action::Stop(Stop::Now), Action::Teardown]);
        } else {
            self.orphan(now, actions);
        }
    }

    /// A preparation has ended, and the coordinator is gone. It ordered no start, so the agent whose `setup` ran to its
    /// end runs `teardown` at once; one whose `setup` or dry run failed has done what it could.
    pub(super) fn leave_prepared(&mut self, now: Time, is_whole: bool, actions: &mut Vec<Action>) {
        match &mut self.run {
            Some(run) if is_whole && run.has_task => {
                run.state = State::Running;
                actions.extend([Action::Run(now), Action::Stop(Stop::Now), Action::Teardown]);
            }
            _ => self.forget(actions),
        }
    }

    /// The coordinator is gone. What runs is cut; the agent is free once that has ended.
    pub(super) fn orphan(&mut self, now: Time, actions: &mut Vec<Action>) {
        let Some(run) = &mut self.run else { return };
        run.is_orphaned = true;
        // Others may have been told to start, so `teardown` waits as in a run.
        if run.state == State::Armed && run.has_task {
            run.state = State::Running;
            actions.push(Action::Run(now));
        }
        match run.state {
            State::Running => {
                run.stopped = Some(Stop::Now);
                actions.push(Action::Stop(Stop::Now));
                match CutOff::of(run.share.of, run.on_loss) {
                    CutOff::Now => actions.push(Action::Teardown),
                    CutOff::Leaves => actions.push(Action::Retire),
                    CutOff::Later if run.has_task => run.tears_down_at = Some(now + DETACHED),
                    CutOff::Later => {}
                }
            }
            State::Preparing => {
                run.stopped = Some(Stop::Now);
                actions.push(Action::Stop(Stop::Now));
            }
            // Compiling a plan ends by itself.
            State::Compiling => {}
            State::Armed | State::Greeted | State::Loading | State::Ready => self.forget(actions),
        }
    }

    /// Leaves `teardown` to another agent.
    pub(super) fn retire(&mut self, actions: &mut Vec<Action>) {
        let Some(run) = &mut self.run else { return };
        (run.has_task, run.tears_down_at) = (false, None);
        if run.state == State::Running {
            actions.push(Action::Retire);
        }
    }

    /// Ends the run if the coordinator is silent, and begins `teardown` if that is due.
    pub(super) fn expire(&mut self, now: Time, actions: &mut Vec<Action>) {
        let Some(run) = &mut self.run else { return };
        if run.tears_down_at.is_some_and(|at| now >= at) {
            run.tears_down_at = None;
            actions.extend([Action::Close(run.conn), Action::Teardown]);
        } else if !run.is_orphaned && now >= run.heard + SILENCE {
            // The connection stays open: it may bring the word that another agent runs `teardown`.
            if run.state == State::Running || run.state == State::Armed && run.has_task {
                self.say(now, FromAgent::CutOff, actions);
            } else {
                actions.push(Action::Close(run.conn));
            }
            self.orphan(now, actions);
        }
    }

    /// Ends what runs, offers `teardown` to the others, and says so once nothing runs.
    pub(super) fn leave(&mut self, now: Time, actions: &mut Vec<Action>) {
        let Some(run) = self.run.as_mut().filter(|run| !run.is_leaving) else { return };
        run.is_leaving = true;
        match run.state {
            State::Running => {
                actions.push(Action::Stop(Stop::Leaving));
                self.say(now, FromAgent::Leaving, actions);
            }
            State::Preparing => actions.push(Action::Stop(Stop::Now)),
            State::Compiling => {}
            State::Armed | State::Greeted | State::Loading | State::Ready => {
                let tears_down = run.state == State::Armed && run.has_task;
                self.say(now, left(tears_down), actions);
            }
        }
    }
}
