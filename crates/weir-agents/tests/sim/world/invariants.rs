//! What must hold once a run is over, whatever happened.

use super::{DELAY, Fault, GRACE, LENGTH, NOTICED, World};
use weir_agents::{SILENCE, Time, coordinator};

impl World {
    pub(super) fn at_the_end(mut self) -> Result<(), String> {
        // Nobody sends long after an order to stop, or without a coordinator. A pause ends first.
        let bound = SILENCE + NOTICED + GRACE + DELAY;
        for (i, node) in self.nodes.iter().enumerate() {
            let from = self.silent_from.map(|at| at.max(node.paused_until) + bound);
            if from.is_some_and(|from| node.load.last_request > from) {
                return Err(format!("agent {i} sent {:?} after the bound", node.load.last_request));
            }
            if !node.agent.is_free() {
                return Err(format!("agent {i} is not free"));
            }
        }
        self.teardown_follows_all_loads()?;
        let Some((missed, agents)) = self.over.take() else {
            return match self.fault {
                Fault::CoordinatorGone => self.teardown_needs_no_coordinator(),
                _ => Err("never over".to_owned()),
            };
        };
        self.counts_add_up(&agents)?;
        self.teardown_runs_or_is_missed(missed, &agents)?;
        self.liar_is_named(&agents)?;
        self.outcome_is_told(&agents)
    }

    fn counts_add_up(&self, agents: &[coordinator::Seen]) -> Result<(), String> {
        for (i, (seen, node)) in agents.iter().zip(&self.nodes).enumerate() {
            let lied =
                self.fault == Fault::Lie && i == self.victim && node.load.last_request >= self.fault_at;
            let lost = self.lost_seconds[i];
            match (&seen.report, &seen.mismatch) {
                (Some(_), None) if lied => return Err(format!("the lie of agent {i} was not found")),
                (Some(_), None) if lost => return Err(format!("agent {i} lost seconds, and all adds up")),
                (Some(report), None) => {
                    let all = seen.sum.counts.responses;
                    if report.counts.responses != all || node.load.report.counts.responses != all {
                        return Err(format!("agent {i}: {all} of {}", node.load.report.counts.responses));
                    }
                }
                (Some(_), Some(why)) if !lied && !lost => {
                    return Err(format!("agent {i} is honest, and yet: {why}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn teardown_runs_or_is_missed(&self, missed: bool, agents: &[coordinator::Seen]) -> Result<(), String> {
        let began = self.nodes.iter().any(|node| node.loads_begun > 0);
        if !self.tears_down || !began {
            return Ok(());
        }
        if self.torn == 0 && !missed {
            return Err("nobody ran teardown, and nobody says so".to_owned());
        }
        // Whoever reports after the first agent is lost has heard that teardown is its task.
        let others_end = agents.iter().skip(1).filter(|a| a.report.is_some()).count();
        let is_early = self.nodes[0].load.began + LENGTH > self.fault_at + NOTICED + SILENCE;
        if self.fault == Fault::FirstLost && is_early && others_end > 0 && self.torn == 0 {
            return Err("the first agent was lost, and nobody ran teardown in its place".to_owned());
        }
        let sane = matches!(self.fault, Fault::None | Fault::Strays | Fault::Stop | Fault::Lie);
        if sane && (missed || self.torn != 1) {
            return Err(format!("teardown ran {} times", self.torn));
        }
        let is_alone = self.nodes.len() == 1;
        for (i, (node, seen)) in self.nodes.iter().zip(agents).enumerate() {
            let tore = node.tore_at.is_some();
            if tore && !seen.has_torn_down && !seen.may_tear_down {
                return Err(format!("agent {i} ran teardown, and nobody says that it may have"));
            }
            if seen.may_tear_down && (sane || seen.lost.is_none()) {
                return Err(format!("agent {i} did all it had to, and is said to be uncertain"));
            }
            // Nothing makes an agent whose load ran, and which its operator ended, uncertain.
            if self.fault == Fault::Leave && node.loads_begun > 0 && seen.may_tear_down {
                return Err(format!("agent {i} ended in order, and is said to be uncertain"));
            }
        }
        if self.fault == Fault::Leave && self.torn != 1 {
            return Err(format!("an agent was ended, and teardown ran {} times", self.torn));
        }
        let goes_on = self.fault == Fault::PartitionAndContinue && !is_alone;
        if goes_on && self.torn > 1 && !agents.iter().any(|seen| seen.may_tear_down) {
            return Err("teardown ran twice although the others went on".to_owned());
        }
        if self.fault == Fault::Pause && self.torn > 1 && !self.was_tearing {
            return Err("an agent stood still, and ran teardown after another one had".to_owned());
        }
        Ok(())
    }

    /// The coordinator is gone for good: whoever has the task runs it, and nobody else does.
    fn teardown_needs_no_coordinator(&self) -> Result<(), String> {
        let began = self.nodes[0].loads_begun > 0;
        let wanted = usize::from(self.tears_down && (began || self.torn > 0));
        if self.torn == wanted { Ok(()) } else { Err(format!("teardown ran {} times", self.torn)) }
    }

    /// Nobody sends while another agent runs `teardown`.
    fn teardown_follows_all_loads(&self) -> Result<(), String> {
        for (i, at) in self.nodes.iter().enumerate().filter_map(|(i, node)| Some((i, node.tore_at?))) {
            for (k, other) in self.nodes.iter().enumerate().filter(|(k, _)| *k != i) {
                if other.load.last_request > at {
                    return Err(format!("agent {k} sent after agent {i} had begun teardown"));
                }
            }
        }
        Ok(())
    }

    /// An agent that says what cannot be, or does not end, is given up by name, and the run ends.
    fn liar_is_named(&self, agents: &[coordinator::Seen]) -> Result<(), String> {
        let seen = &agents[self.victim];
        let load = &self.nodes[self.victim].load;
        let struck = load.began > Time::ZERO && load.last_request >= self.fault_at;
        let is_named = match self.fault {
            Fault::Overflow if struck => {
                seen.mismatch.as_deref().is_some_and(|why| why.starts_with("counts.errors.reset"))
                    && seen.lost.is_some()
            }
            Fault::Ahead if struck => {
                seen.mismatch.as_deref().is_some_and(|why| why.contains("and the load began"))
                    && seen.lost.is_some()
            }
            Fault::Endless | Fault::Mute
                if load.began > Time::ZERO && self.fault_at < load.began + LENGTH =>
            {
                seen.lost.is_some()
            }
            _ => true,
        };
        if is_named { Ok(()) } else { Err(format!("{:?}, {:?}", seen.mismatch, seen.lost)) }
    }

    fn outcome_is_told(&self, agents: &[coordinator::Seen]) -> Result<(), String> {
        let is_whole = agents.iter().all(|a| a.report.is_some());
        match self.fault {
            Fault::None | Fault::Lie | Fault::Strays if !is_whole => {
                let told: Vec<_> = agents.iter().map(|a| (&a.lost, &a.refused)).collect();
                return Err(format!("an agent is missing: {told:?}"));
            }
            Fault::None => {
                // The clocks differ by days, and the starts by no more than a message's time.
                let starts: Vec<Time> = agents.iter().filter_map(|a| a.started).collect();
                let apart = starts.iter().max().zip(starts.iter().min()).map(|(a, b)| *a - *b);
                if starts.len() != agents.len() || apart.is_some_and(|apart| apart > DELAY) {
                    return Err(format!("starts are {apart:?} apart"));
                }
            }
            _ => {}
        }
        let crashed = matches!(self.fault, Fault::Crash | Fault::CrashAndContinue | Fault::FirstLost);
        if crashed && self.nodes[self.victim].loads_begun > 0 {
            let victim = &agents[self.victim];
            let had_ended = victim.report.is_some();
            if !had_ended && victim.lost.is_none() {
                return Err("an agent crashed, and nobody noticed".to_owned());
            }
            let others = agents.iter().enumerate().filter(|(i, _)| *i != self.victim);
            for (i, other) in others {
                if self.fault != Fault::Crash && other.report.as_ref().is_none_or(|r| r.counts.responses == 0)
                {
                    return Err(format!("agent {i} did not go on: {:?}", other.lost));
                }
            }
        }
        Ok(())
    }
}
