//! Adds up what agents count, second by second, and finds what does not add up.

use crate::credible;
use crate::message::Second;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use weir_report::report::{CheckResult, Counts, Percentiles, Report, Series, Tick, Window};
use weir_report::{Histogram, layout};

/// Seconds that may arrive before one that is missing.
const EARLY_MOST: usize = 16;

/// The digest before the first second.
pub const NOTHING: &str = "";

/// The digest of a second: it covers its histograms and counts, and by `before` all earlier seconds.
pub fn digest(before: &str, second: &Second) -> String {
    let mut hash = Sha256::new();
    hash.update(before.as_bytes());
    let mut number = |n: u64| hash.update(n.to_le_bytes());
    number(second.number);
    for h in [&second.service, &second.response] {
        number(h.count());
        number(h.sum());
        h.buckets().for_each(|(from, count)| {
            number(from);
            number(count);
        });
    }
    number(second.counts.requests);
    number(second.counts.responses);
    number(second.counts.errors.total());
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The seconds of one agent.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    /// Seconds taken, in order.
    pub seconds: u64,
    /// Service times of all of them.
    pub service: Histogram,
    /// Response times of all of them.
    pub response: Histogram,
    /// As the last one said.
    pub counts: Counts,
    /// As the last one said.
    pub checks: Vec<CheckResult>,
    /// As the last one said.
    pub window: Window,
    /// Each second.
    pub ticks: Vec<Tick>,
    digest: String,
    early: BTreeMap<u64, Second>,
    /// The first thing that did not add up.
    wrong: Option<String>,
}

impl Sum {
    /// Takes a second. Returns those that are now complete, in order: none for one that came early or twice.
    pub fn take(&mut self, second: Second) -> Vec<Second> {
        let mut complete = Vec::new();
        if second.number < self.seconds || self.wrong.is_some() {
            return complete; // twice, or nothing counts any more
        }
        self.early.insert(second.number, second);
        while let Some(next) = self.early.remove(&self.seconds) {
            if let Err(why) = self.add(&next) {
                self.wrong = Some(format!("second {}: {why}", next.number));
                return complete;
            }
            complete.push(next);
        }
        if self.early.len() > EARLY_MOST {
            self.wrong = Some(format!("second {} never came", self.seconds));
        }
        complete
    }

    fn add(&mut self, second: &Second) -> Result<(), String> {
        let digest = digest(&self.digest, second);
        if digest != second.digest {
            return Err("its digest is not that of what was sent before".to_owned());
        }
        credible::second(self, second)?;
        self.digest = digest;
        self.seconds += 1;
        self.service.add(&second.service);
        self.response.add(&second.response);
        self.counts.clone_from(&second.counts);
        self.checks.clone_from(&second.checks);
        self.window = second.window;
        if self.ticks.len() < Series::TICKS_MOST {
            self.ticks.push(second.tick.clone());
        }
        Ok(())
    }

    /// How many requests began, and how many ended.
    pub fn moved(&self) -> (u64, u64) {
        (self.counts.requests, self.counts.responses.saturating_add(self.counts.errors.total()))
    }

    /// The first thing that did not add up: nothing counts from there on.
    pub fn wrong(&self) -> Option<&str> {
        self.wrong.as_deref()
    }

    /// Compares the sum of the seconds with the final report. If they differ, neither can be trusted.
    ///
    /// # Errors
    /// The first difference, in words.
    pub fn compare(&self, end: &Report) -> Result<(), String> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        if !self.early.is_empty() {
            return Err(format!("second {} never came", self.seconds));
        }
        let (c, e) = (&self.counts, &end.counts);
        for (what, seconds, report) in [
            ("requests", c.requests, e.requests),
            ("responses", c.responses, e.responses),
            ("errors", c.errors.total(), e.errors.total()),
            ("service times", self.service.count(), end.latency.service.count()),
            ("response times", self.response.count(), end.latency.response.count()),
            ("response times of the report", end.latency.response.count(), e.responses),
        ] {
            if seconds != report {
                return Err(format!("{what}: {seconds} in its seconds, {report} in its report"));
            }
        }
        for (what, is_same) in [
            ("statuses", c.statuses == e.statuses),
            ("gRPC codes", c.grpc == e.grpc),
            ("kinds of errors", c.errors == e.errors),
        ] {
            if !is_same {
                return Err(format!("{what}: its seconds and its report differ"));
            }
        }
        for check in &self.checks {
            let same = end.checks.iter().find(|other| other.check == check.check);
            if same != Some(check) {
                return Err(format!("check `{}`: its seconds and its report differ", check.check));
            }
        }
        for (what, seconds, report) in [
            ("service", &self.service, &end.latency.service),
            ("response", &self.response, &end.latency.response),
        ] {
            if seconds.sum() != report.sum() || !seconds.buckets().eq(report.buckets()) {
                return Err(format!("{what} times: the sum of its seconds is not its final histogram"));
            }
        }
        match layout::contradictions(end).first() {
            Some(found) => Err(found.to_string()),
            None => Ok(()),
        }
    }

    /// A report of what is known of an agent that did not send one.
    pub fn so_far(&self, like: Option<&Report>) -> Report {
        let mut report = Report {
            counts: self.counts.clone(),
            checks: self.checks.clone(),
            window: Some(self.window),
            ..Report::default()
        };
        if let Some(like) = like {
            report.schema.clone_from(&like.schema);
            report.plan = like.plan.clone();
            report.started_unix_ms = like.started_unix_ms;
            report.warmup_ns = like.warmup_ns;
            report.series.tick_ns = like.series.tick_ns;
        }
        // Known only at the end; a lost agent must not look like one whose connections were closed.
        report.counts.kept_alive = report.counts.responses;
        report.latency.service.clone_from(&self.service);
        report.latency.response.clone_from(&self.response);
        report.duration_ns = self.ticks.last().map_or(0, |tick| tick.end_ns);
        report.series.ticks.clone_from(&self.ticks);
        report
    }
}

/// Seconds of all agents, added up.
#[derive(Clone, Debug, Default)]
pub struct Total {
    /// Service times of all complete seconds.
    pub service: Histogram,
    /// Response times of all complete seconds.
    pub response: Histogram,
    /// Counts of all agents.
    pub counts: Counts,
    /// The end of the last complete second.
    pub measured_ns: u64,
    /// Processor time of all agents.
    pub cpu_ns: u64,
    open: BTreeMap<u64, Open>,
}

/// A second that not all agents have told.
#[derive(Clone, Debug, Default)]
struct Open {
    tick: Tick,
    service: Histogram,
    response: Histogram,
}

/// Seconds that may be open: a fast agent waits for a slow one, which is lost after five.
const OPEN_MOST: usize = 128;

impl Total {
    /// Adds a second of one agent.
    pub fn add(&mut self, second: &Second) {
        if self.open.len() >= OPEN_MOST && !self.open.contains_key(&second.number) {
            return; // the sum of the agent has it
        }
        let open = self.open.entry(second.number).or_default();
        weir_report::merge::join_tick(&mut open.tick, &second.tick);
        open.service.add(&second.service);
        open.response.add(&second.response);
    }

    /// A second is complete: no agent has more to tell of it. `counts` are those of each agent so far.
    pub fn complete(&mut self, number: u64, counts: impl Iterator<Item = Counts>) -> Tick {
        let Open { mut tick, service, response } = self.open.remove(&number).unwrap_or_default();
        (tick.service, tick.response) = (Percentiles::of(&service), Percentiles::of(&response));
        self.service.add(&service);
        self.response.add(&response);
        self.counts = Counts::default();
        counts.for_each(|of| weir_report::merge::add_counts(&mut self.counts, &of));
        self.measured_ns = self.measured_ns.max(tick.end_ns);
        self.cpu_ns += tick.generator_cpu_ns;
        tick
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_report::report::TargetStats;

    use crate::credible::honest;

    /// Seconds of an honest agent, with as many responses as their numbers say.
    fn seconds(n: u64) -> (Vec<Second>, Report) {
        let (mut all, mut end, mut before) = (Vec::new(), Report::default(), NOTHING.to_owned());
        for number in 0..n {
            let times: Vec<u64> = (0..=number).map(|i| 1_000 + i).collect();
            let mut second = honest::second(&mut end, number, &times);
            second.digest = digest(&before, &second);
            before.clone_from(&second.digest);
            all.push(second);
        }
        (all, end)
    }

    #[test]
    fn seconds_add_up_in_any_order_and_twice() {
        let (all, end) = seconds(5);
        for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [1, 0, 0, 4, 2]] {
            let mut sum = Sum::default();
            order.iter().for_each(|i| drop(sum.take(all[*i].clone())));
            (0..5).for_each(|i| drop(sum.take(all[i].clone())));
            assert_eq!((sum.seconds, sum.compare(&end)), (5, Ok(())), "{order:?}");
        }
        let mut late = Sum::default();
        assert!(late.take(all[1].clone()).is_empty());
        assert_eq!(late.take(all[0].clone()).len(), 2);
    }

    #[test]
    fn every_lie_is_found() {
        type Lie<'a> = (&'a str, &'a dyn Fn(&mut Vec<Second>, &mut Report));
        let resealed = |all: &mut Vec<Second>| {
            let mut before = NOTHING.to_owned();
            for second in all {
                second.digest = digest(&before, second);
                before.clone_from(&second.digest);
            }
        };
        let lies: [Lie<'_>; 17] = [
            ("a value left out", &|all, _| all[2].response = Histogram::new()),
            ("left out and sealed", &|all, _| {
                all[2].response = Histogram::new();
                resealed(all);
            }),
            ("faster in the end", &|_, end| {
                end.latency.response.clear();
                end.latency.response.record_n(1, 15);
            }),
            ("more in the end", &|_, end| end.counts.responses += 1),
            ("errors hidden in the end", &|all, _| {
                all[4].counts.errors.reset = 3;
                resealed(all);
            }),
            ("another status in the end", &|_, end| {
                end.counts.statuses = [(500, 15)].into();
            }),
            ("a second left out", &|all, _| drop(all.remove(3))),
            ("counts that fall", &|all, _| {
                all[3].counts.requests = 0;
                resealed(all);
            }),
            ("more responses than requests", &|all, _| {
                all[2].counts.responses += 100;
                all[2].tick.responses += 100;
                resealed(all);
            }),
            ("statuses of fewer responses", &|all, _| {
                all[2].counts.statuses = [(200, 1)].into();
                resealed(all);
            }),
            ("more in the second than in the sum", &|all, _| {
                all[2].tick.requests += 1;
                resealed(all);
            }),
            ("a second that ends before the last one", &|all, _| {
                all[3].tick.end_ns = 1;
                resealed(all);
            }),
            ("a histogram that contradicts itself", &|all, _| {
                let mut saved = serde_json::to_value(&all[2].service).unwrap();
                saved["sum"] = 1.into();
                all[2].service = serde_json::from_value(saved).unwrap();
                resealed(all);
            }),
            ("more checks than responses", &|all, _| {
                all[4].checks = vec![CheckResult { check: "x".to_owned(), passed: 999, failed: 0 }];
                resealed(all);
            }),
            ("checks that failed and passed in the end", &|all, end| {
                all[4].checks = vec![CheckResult { check: "x".to_owned(), passed: 0, failed: 15 }];
                end.checks = vec![CheckResult { check: "x".to_owned(), passed: 15, failed: 0 }];
                resealed(all);
            }),
            ("a target with more than all", &|_, end| {
                end.targets = vec![TargetStats { requests: 99, responses: 15, ..TargetStats::default() }];
            }),
            ("phases of fewer responses", &|_, end| end.phases.waiting = Histogram::new()),
        ];
        for (name, lie) in lies {
            let (mut all, mut end) = seconds(5);
            lie(&mut all, &mut end);
            let mut sum = Sum::default();
            all.into_iter().for_each(|second| drop(sum.take(second)));
            assert!(sum.compare(&end).is_err(), "{name}");
        }
    }

    #[test]
    fn too_many_early_seconds_are_not_kept() {
        let (all, end) = seconds(60);
        let mut sum = Sum::default();
        all.into_iter().skip(1).for_each(|second| drop(sum.take(second)));
        assert!(sum.early.len() <= EARLY_MOST + 1);
        assert_eq!(sum.compare(&end), Err("second 0 never came".to_owned()));
    }
}
