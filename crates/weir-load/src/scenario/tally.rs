//! The counts of one thread by step and scenario. Everything else is in `engine::tally`.

use super::Journey;
use crate::grpc::CODES;
use crate::transport::failure::Failure;
use crate::transport::reader::Response;
use std::collections::{BTreeMap, HashSet};
use weir_report::Histogram;
use weir_report::report::{Errors, PartIterations, Percentiles, StepTick};

/// Steps whose times are also kept by the second, for outputs during the run: each costs a histogram.
pub(crate) const STEPS_BY_SECOND: usize = 64;

/// Most credentials that are told apart.
const IDENTITIES_MOST: usize = 1_000;

/// The counts of one thread.
#[derive(Debug, Default)]
pub(crate) struct JourneyTally {
    /// By row.
    pub(crate) steps: Vec<StepTally>,
    pub(crate) scenarios: Vec<ScenarioTally>,
    /// By part of a load, those of all groups. Its requests are in `engine::tally`.
    pub(crate) parts: Vec<PartIterations>,
}

#[derive(Debug, Default)]
pub(crate) struct StepTally {
    pub(crate) requests: u64,
    pub(crate) responses: u64,
    pub(crate) unexpected: u64,
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Calls by code.
    pub(crate) grpc: [u64; CODES.len()],
    pub(crate) errors: Errors,
    pub(crate) unfinished: u64,
    pub(crate) in_window: u64,
    pub(crate) response: Histogram,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Passed and failed.
    pub(crate) checks: Vec<(u64, u64)>,
    pub(crate) keeps: Vec<KeepTally>,
    /// Since the last tick.
    tick: Tick,
}

#[derive(Debug, Default)]
struct Tick {
    responses: u64,
    unexpected: u64,
    errors: u64,
    response: Histogram,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct KeepTally {
    pub(crate) taken: u64,
    pub(crate) failed: u64,
    pub(crate) sample: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct ScenarioTally {
    pub(crate) started: u64,
    pub(crate) done: u64,
    /// By row.
    pub(crate) broken_off: BTreeMap<usize, u64>,
    pub(crate) unfinished: u64,
    pub(crate) iteration: Histogram,
    /// Digests of credentials.
    pub(crate) identities: HashSet<u64>,
    pub(crate) users_seen: u64,
    pub(crate) cookies_dropped: u64,
    pub(crate) not_started: u64,
    pub(crate) data_ended: Option<String>,
}

/// One thread's part of a step in a tick.
#[derive(Debug, Default)]
pub(crate) struct StepPart {
    row: usize,
    responses: u64,
    unexpected: u64,
    pub(crate) errors: u64,
    pub(crate) response: Histogram,
}

impl JourneyTally {
    pub(crate) fn new(journey: &Journey) -> Self {
        let steps = journey.rows.iter().map(|row| StepTally {
            checks: vec![(0, 0); row.checks.len()],
            keeps: vec![KeepTally::default(); row.keeps.len()],
            ..StepTally::default()
        });
        Self {
            steps: steps.collect(),
            scenarios: journey.scenarios.iter().map(|_| ScenarioTally::default()).collect(),
            parts: vec![PartIterations::default(); journey.parts.len()],
        }
    }

    pub(crate) fn begun(&mut self, row: usize) {
        if let Some(step) = self.steps.get_mut(row) {
            step.requests += 1;
        }
    }

    /// Counts a complete response; `time` is its response time.
    pub(crate) fn answered(
        &mut self,
        row: usize,
        response: &Response,
        time: u64,
        sent: u64,
        in_window: bool,
    ) {
        let Some(step) = self.steps.get_mut(row) else { return };
        let unexpected = u64::from(!response.is_expected());
        step.responses += 1;
        step.unexpected += unexpected;
        *step.statuses.entry(response.status).or_default() += 1;
        if let Some(n) = response.grpc.and_then(|code| step.grpc.get_mut(code.index())) {
            *n += 1;
        }
        step.in_window += u64::from(in_window);
        step.response.record(time);
        step.sent += sent;
        step.received += response.wire_bytes();
        step.tick.responses += 1;
        step.tick.unexpected += unexpected;
        if row < STEPS_BY_SECOND {
            step.tick.response.record(time);
        }
    }

    /// Counts the answer of a program.
    pub(crate) fn told(&mut self, row: usize, time: u64, (sent, received): (u64, u64), in_window: bool) {
        let Some(step) = self.steps.get_mut(row) else { return };
        step.responses += 1;
        step.in_window += u64::from(in_window);
        step.response.record(time);
        step.sent += sent;
        step.received += received;
        step.tick.responses += 1;
        if row < STEPS_BY_SECOND {
            step.tick.response.record(time);
        }
    }

    /// Counts a request without a response.
    pub(crate) fn lost(&mut self, row: usize, failure: &Failure, sent: u64, received: u64) {
        let Some(step) = self.steps.get_mut(row) else { return };
        step.sent += sent;
        step.received += received;
        let e = &mut step.errors;
        let kind = match failure {
            Failure::Connect(_) | Failure::Descriptors(_) | Failure::Ports(_) => &mut e.connect,
            Failure::Protocol(_) => &mut e.protocol,
            Failure::Reset(_) => &mut e.reset,
            Failure::Timeout(_) => &mut e.timeout,
            Failure::Tls(_) => &mut e.tls,
            Failure::Write(_) => &mut e.write,
            Failure::Cut => {
                step.unfinished += 1;
                return;
            }
        };
        *kind += 1;
        step.tick.errors += 1;
    }

    /// The credentials of a request, as a digest.
    pub(crate) fn identity(&mut self, scenario: usize, digest: u64) {
        if let Some(s) = self.scenarios.get_mut(scenario)
            && s.identities.len() < IDENTITIES_MOST
        {
            s.identities.insert(digest);
        }
    }

    /// The steps since the last tick.
    pub(crate) fn take_tick(&mut self) -> Vec<StepPart> {
        let mut parts = Vec::new();
        for (row, step) in self.steps.iter_mut().enumerate() {
            let Tick { responses, unexpected, errors, response } = &mut step.tick;
            if *responses + *errors > 0 {
                let (responses, unexpected, errors) =
                    (std::mem::take(responses), std::mem::take(unexpected), std::mem::take(errors));
                parts.push(StepPart { row, responses, unexpected, errors, response: response.clone() });
                response.clear();
            }
        }
        parts
    }
}

/// Adds up the threads' parts of a tick, by row.
pub(crate) fn merged<'a>(parts: impl Iterator<Item = &'a StepPart>) -> BTreeMap<usize, StepPart> {
    let mut rows: BTreeMap<usize, StepPart> = BTreeMap::new();
    for part in parts {
        let all = rows.entry(part.row).or_default();
        all.responses += part.responses;
        all.unexpected += part.unexpected;
        all.errors += part.errors;
        all.response.add(&part.response);
    }
    rows
}

/// The rows of a tick.
pub(crate) fn ticks(journey: &Journey, rows: &BTreeMap<usize, StepPart>) -> Vec<StepTick> {
    let tick = |(row, part): (&usize, &StepPart)| {
        let row = journey.rows.get(*row)?;
        Some(StepTick {
            scenario: journey.scenario_name(row.scenario),
            step: row.name.clone(),
            responses: part.responses,
            unexpected: part.unexpected,
            errors: part.errors,
            response: Percentiles::of(&part.response),
        })
    };
    rows.iter().filter_map(tick).collect()
}
