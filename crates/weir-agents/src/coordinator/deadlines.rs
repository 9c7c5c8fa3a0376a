//! Deadlines after which the coordinator gives an agent up, even one that still sends heartbeats.

use super::loss::Parting;
use super::{
    Action, Coordinator, ENDING, GREETING, IDLE, PREPARATION, Phase, QUIET, SILENCE, Seen, Step, TEARDOWN,
    TEARDOWN_WHOLE, Time,
};

impl Coordinator {
    /// Gives up every agent whose deadline has passed.
    pub(super) fn watch(&mut self, now: Time, actions: &mut Vec<Action>) {
        if self.phase == Phase::Greeting && now >= self.begun + GREETING {
            for i in 0..self.agents.len() {
                if self.agents.get(i).is_some_and(|a| a.step == Step::Connecting) {
                    self.refuse(i, vec![format!("no greeting within {} s", GREETING.as_secs())]);
                }
            }
        }
        if !self.has_started() && now >= self.begun + PREPARATION {
            for i in 0..self.agents.len() {
                let why = vec![format!("not prepared within {} s", PREPARATION.as_secs())];
                self.lose(now, i, (why, Parting::Unknown), actions);
            }
        }
        for i in 0..self.agents.len() {
            let silent = |a: &Seen| a.step != Step::Connecting && now >= a.heard + SILENCE;
            if self.agents.get(i).is_some_and(silent) {
                let why = vec![format!("no word for {} s", SILENCE.as_secs())];
                self.lose(now, i, (why, Parting::Unknown), actions);
            }
        }
        let due: Vec<(usize, String)> = (0..self.agents.len())
            .filter_map(|i| {
                let (by, why) = self.ends_by(i)?;
                (now >= by).then_some((i, why))
            })
            .collect();
        for (i, why) in due {
            self.lose(now, i, (vec![why], Parting::Unknown), actions);
        }
    }

    /// A running agent's deadline to report, and the error if it misses it; none while it waits for the others.
    fn ends_by(&self, i: usize) -> Option<(Time, String)> {
        let agent = self.agents.get(i).filter(|a| a.step == Step::Running)?;
        let end = self.load_ends_by(agent)?;
        if i != self.tearer || !self.expected.tears_down {
            return Some(end);
        }
        // The others come first, and all of them have such a time.
        let allowed = self.torn_down_at?;
        let most = if self.stop.is_some() { TEARDOWN } else { TEARDOWN_WHOLE };
        Some((
            end.0.max(allowed).saturating_add(most),
            format!("no end of `teardown` within {} s", most.as_secs()),
        ))
    }

    /// The earliest of the times at which the load of an agent must be over.
    fn load_ends_by(&self, agent: &Seen) -> Option<(Time, String)> {
        let start = self.start_at?;
        let e = &self.expected;
        let planned = e.length.map(|length| {
            let by = start.saturating_add(length).saturating_add(e.grace).saturating_add(ENDING);
            let (end, late) = (length.as_secs_f64(), (e.grace.saturating_add(ENDING)).as_secs_f64());
            (by, format!("its load was to end after {end} s, and {late} s later it still ran"))
        });
        let stopped = self.stopped_by.map(|by| (by, "it did not stop".to_owned()));
        let counted = agent.counted.max(start.saturating_add(e.warmup)).saturating_add(QUIET);
        let quiet = (counted, format!("it beat and counted nothing for {} s", QUIET.as_secs()));
        // Without a planned end, only progress shows that there will be one.
        let moved = agent.moved.max(start.saturating_add(e.warmup)).saturating_add(IDLE);
        let idle = e
            .length
            .is_none()
            .then(|| (moved, format!("none of its requests began or ended for {} s", IDLE.as_secs())));
        [planned, stopped, Some(quiet), idle].into_iter().flatten().min_by_key(|(by, _)| *by)
    }
}
