//! Loss of an agent, and what it means for `teardown`; the rule is in `crate::teardown`.

use super::{Action, Coordinator, Seen, Step, Time};
use crate::clean;
use crate::message::ToAgent;
use crate::teardown::{CutOff, OVER_AFTER, TRANSIT};

/// What a lost agent still does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parting {
    /// It has cut its load, and may run `teardown`.
    CutOff,
    /// Nothing: it said so.
    Done,
    /// It may run its load, and then `teardown`.
    Unknown,
}

impl Coordinator {
    /// Handles the loss of an agent. It does not matter if the agent has already sent its report.
    pub(super) fn lose(
        &mut self,
        now: Time,
        i: usize,
        (why, parting): (Vec<String>, Parting),
        actions: &mut Vec<Action>,
    ) {
        let has_started = self.has_started();
        let may_tear_down = parting != Parting::Done && self.may_tear_down(i);
        let Some(agent) = self.agents.get_mut(i).filter(|a| a.step != Step::Over) else { return };
        agent.step = Step::Over;
        agent.over_at = match parting {
            Parting::Done => now,
            Parting::CutOff => now + TRANSIT,
            Parting::Unknown => now + OVER_AFTER,
        };
        if has_started {
            agent.lost = Some((agent.sum.seconds, why.join(clean::BREAK)));
            let wrong = agent.sum.wrong().map(str::to_owned);
            agent.mismatch = agent.mismatch.take().or(wrong);
            agent.may_tear_down = may_tear_down;
        } else {
            agent.refused = why;
        }
        if self.succeed(i, actions) {
            actions.push(Action::Send(i, ToAgent::Retire)); // it may only have stood still
        }
        actions.push(Action::Close(i));
    }

    /// Ends the connection to an agent that reported something impossible, and ignores all its later messages.
    pub(super) fn cut(&mut self, now: Time, i: usize, why: &str, actions: &mut Vec<Action>) {
        let why = clean::line(why);
        let has_started = self.has_started();
        if let Some(agent) = self.agents.get_mut(i).filter(|a| a.step != Step::Over && has_started) {
            agent.mismatch = Some(why.clone());
        }
        self.lose(now, i, (vec![format!("it was cut: {why}")], Parting::Unknown), actions);
    }

    /// Whether agent `i` may run `teardown` without a connection, or has begun it.
    fn may_tear_down(&self, i: usize) -> bool {
        let agents = u32::try_from(self.agents.len()).unwrap_or(u32::MAX);
        let has_task = self.agents.get(i).is_some_and(|a| a.had_task && !a.has_torn_down);
        self.expected.tears_down
            && has_task
            && (i == self.tearer && self.torn_down_at.is_some()
                || CutOff::of(agents, self.on_loss) != CutOff::Leaves)
    }

    /// If agent `i` was to run `teardown` and will not, the next one does. Returns whether there is one.
    pub(super) fn succeed(&mut self, i: usize, actions: &mut Vec<Action>) -> bool {
        if i != self.tearer || !self.expected.tears_down || !self.has_started() {
            return false;
        }
        if self.agents.iter().any(|a| a.has_torn_down) {
            return false;
        }
        let other = |(k, a): (usize, &Seen)| k != i && a.step == Step::Running;
        let Some(next) = self.agents.iter().enumerate().position(other) else { return false };
        self.tearer = next;
        self.torn_down_at = None;
        self.agents.get_mut(next).into_iter().for_each(|a| a.had_task = true);
        actions.push(Action::Send(next, ToAgent::Succeed));
        true
    }

    /// Agent `i` has taken `teardown` over: those that wait for that need not run it.
    pub(super) fn release(&self, i: usize, actions: &mut Vec<Action>) {
        let waits = |(k, a): &(usize, &Seen)| *k != i && a.is_leaving && a.step == Step::Running;
        let all = self.agents.iter().enumerate().filter(waits);
        actions.extend(all.map(|(k, _)| Action::Send(k, ToAgent::Retire)));
    }
}
