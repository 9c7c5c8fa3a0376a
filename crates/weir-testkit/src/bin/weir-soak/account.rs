//! Compares the clients' results with the origins' ledgers.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::client::{Asked, Outcome, Route};
use crate::faults::{Allowed, Fault, MOST_DONE, Upgrade};

/// The ledger of an origin: how often each id arrived.
pub(crate) struct Ledger(HashMap<String, u32>);

impl Ledger {
    pub(crate) fn read(path: &Path) -> Self {
        let mut ids = HashMap::new();
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            let id = line.split(' ').next().unwrap_or_default();
            *ids.entry(id.to_owned()).or_insert(0) += 1;
        }
        Self(ids)
    }
}

/// The results of all requests during one fault.
#[derive(Default)]
pub(crate) struct Row {
    pub(crate) fault: &'static str,
    pub(crate) requests: usize,
    pub(crate) answered: usize,
    /// Refused requests, by route and cause.
    pub(crate) refused: BTreeMap<String, usize>,
    /// Latency of the steady route.
    pub(crate) steady: Beside,
    /// Latency of that route's origin, asked without the gateway.
    pub(crate) direct: Beside,
    spares_others: bool,
}

impl Row {
    /// How much more the fault slowed the steady route than it slowed the same origin without the gateway.
    pub(crate) fn excess(&self) -> f64 {
        self.steady.ratio() / self.direct.ratio()
    }
}

/// p50 and p99 while a fault was active, and during its pauses.
#[derive(Clone, Copy, Default)]
pub(crate) struct Beside {
    pub(crate) fault: (Duration, Duration),
    pub(crate) rest: (Duration, Duration),
}

impl Beside {
    /// p99 during the fault, divided by p99 during its pauses.
    pub(crate) fn ratio(&self) -> f64 {
        self.fault.1.as_secs_f64() / self.rest.1.as_secs_f64()
    }
}

/// Latencies during the fault, and during its pauses.
type Times = [Vec<Duration>; 2];

fn beside(times: Times) -> Beside {
    let [fault, rest] = times.map(|mut took| {
        took.sort_unstable();
        let at = |share: usize| took.get(took.len() * share / 100).copied().unwrap_or_default();
        (at(50), at(99))
    });
    Beside { fault, rest }
}

#[derive(Default)]
pub(crate) struct Account {
    pub(crate) rows: Vec<Row>,
    allowed: Vec<Allowed>,
    pub(crate) upgrades: Vec<Upgrade>,
    /// KiB at the end of each fault, without the pages of the program's file.
    pub(crate) memory: Vec<u64>,
    /// Whether the run was long enough that every upgrade must have happened.
    pub(crate) is_long: bool,
    pub(crate) panicked: usize,
    pub(crate) left: usize,
    pub(crate) reloads: usize,
    pub(crate) refused_reloads: usize,
    /// POSTs that an origin received more than once.
    pub(crate) doubled: usize,
    /// Requests answered with 200 that no origin received.
    pub(crate) invented: usize,
    /// Ids at an origin that no client sent.
    pub(crate) unknown: usize,
    /// GETs that origins received more than once, which are retries.
    pub(crate) repeated: usize,
    /// Violations, one line each, at most [`MAX_LINES`].
    lines: Vec<String>,
    bad: usize,
}

/// Most lines about single requests in a report.
const MAX_LINES: usize = 20;

/// Memory at the end may exceed that after the quiet time by one third, plus some MiB for uneven measurements.
const MEMORY: (u64, u64) = (4, 3);
const MEMORY_SLACK: u64 = 4 * 1024;

/// Most memory of both processes of an upgrade, divided by the peak of one. Each may be at its peak, and the handover
/// takes some too.
const PAIR: f64 = 2.25;

/// How much p99 of healthy routes must rise to count as a failure. On a busy machine, smaller changes mean
/// nothing.
const GROSS: (u32, Duration) = (10, Duration::from_millis(150));

impl Account {
    pub(crate) fn new(faults: &[Fault]) -> Self {
        let row =
            |fault: &Fault| Row { fault: fault.name, spares_others: fault.spares_others, ..Row::default() };
        let rows = faults.iter().map(row).collect();
        Self { rows, allowed: faults.iter().map(|fault| fault.allowed).collect(), ..Self::default() }
    }

    /// Compares the clients' results with the ledgers.
    pub(crate) fn settle(&mut self, asked: Vec<Vec<Asked>>, ledgers: &[Ledger]) {
        let mut came: HashMap<&str, u32> = HashMap::new();
        for (id, times) in ledgers.iter().flat_map(|ledger| &ledger.0) {
            *came.entry(id).or_insert(0) += times;
        }
        let mut steady: Vec<Times> = self.rows.iter().map(|_| Times::default()).collect();
        let mut direct = steady.clone();
        for (client, asked) in asked.iter().enumerate() {
            for (sequence, one) in asked.iter().enumerate() {
                let id = format!("{client}-{sequence}");
                let times = came.remove(id.as_str()).unwrap_or(0);
                self.one(&id, one, times);
                let times = match one.route {
                    Route::Steady => &mut steady,
                    Route::Direct => &mut direct,
                    _ => continue,
                };
                if one.outcome == Outcome::Answered {
                    times[one.fault][usize::from(one.quiet)].push(one.took);
                }
            }
        }
        self.unknown = came.len();
        for ((row, steady), direct) in self.rows.iter_mut().zip(steady).zip(direct) {
            (row.steady, row.direct) = (beside(steady), beside(direct));
            if !row.spares_others {
                // This fault never pauses; the samples are the few requests between two faults.
                (row.steady.rest, row.direct.rest) = Default::default();
            }
        }
    }

    fn one(&mut self, id: &str, one: &Asked, times: u32) {
        let row = &mut self.rows[one.fault];
        row.requests += 1;
        let method = if one.post { "POST" } else { "GET" };
        let what = format!("{method} {}", one.route.name());
        let local = one.route == Route::Local;
        match &one.outcome {
            Outcome::Answered => {
                row.answered += 1;
                self.invented += usize::from(times == 0 && !local);
            }
            Outcome::Refused(status, cause) => {
                *row.refused.entry(format!("{what}: {status} {cause}")).or_insert(0) += 1;
            }
            Outcome::Lost(why) | Outcome::Wrong(why) => {
                *row.refused.entry(format!("{what}: no answer")).or_insert(0) += 1;
                let line = format!("during `{}` {what} {id} after {:?}: {why}", row.fault, one.took);
                self.complain(line);
            }
        }
        if let Outcome::Refused(status, cause) = &one.outcome {
            // The effects of a fault may outlast it.
            let near = [one.fault, one.fault.saturating_sub(1)];
            if !near.iter().any(|fault| self.allowed[*fault].covers(one, cause)) {
                let fault = self.rows[one.fault].fault;
                self.complain(format!("during `{fault}` {what} {id}: {status} {cause}"));
            }
        }
        if times > 1 && one.post {
            self.doubled += 1;
            self.complain(format!("POST {id} reached origins {times} times: {:?}", one.outcome));
        }
        self.repeated += usize::from(times > 1 && !one.post);
    }

    fn complain(&mut self, line: String) {
        self.bad += 1;
        if self.lines.len() < MAX_LINES {
            self.lines.push(line);
        }
    }

    /// All violations, in words.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let mut wrong = self.lines.clone();
        let mut must = |holds: bool, what: String| {
            if !holds {
                wrong.push(what);
            }
        };
        must(self.bad <= MAX_LINES, format!("{} requests in all went wrong", self.bad));
        must(self.invented == 0, format!("{} answers to requests that no origin got", self.invented));
        must(self.unknown == 0, format!("{} requests at an origin that no client sent", self.unknown));
        must(self.panicked == 0, format!("{} clients could not connect", self.panicked));
        must(self.left == 0, format!("{} processes of before an upgrade still run", self.left));
        must(
            self.rows.iter().all(|row| row.answered > 0),
            "a fault during which nothing was answered".to_owned(),
        );
        let bad = self.upgrades.iter().filter(|upgrade| **upgrade == Upgrade::Wrong).count();
        must(
            bad == 0 && self.upgrades.len() >= 4,
            format!("{bad} of {} upgrades went wrong", self.upgrades.len()),
        );
        let done = self.upgrades.iter().filter(|upgrade| upgrade.kib().is_some()).count();
        must(
            !self.is_long || done >= MOST_DONE,
            format!("{done} upgrades were done; a long run has {MOST_DONE}"),
        );
        let ran_out =
            self.rows.iter().any(|row| row.refused.keys().any(|why| why.contains("out_of_descriptors")));
        must(ran_out, "no request met the lack of descriptors, so the fault was none".to_owned());
        if let Some(pair) = self.pair() {
            must(pair < PAIR, format!("two processes took {pair:.2} times the memory of one"));
        }
        let (before, after) = self.growth();
        let most = before * MEMORY.0 / MEMORY.1 + MEMORY_SLACK;
        must(after <= most, format!("memory grew from {before} to {after} KiB"));
        for row in self.rows.iter().filter(|row| row.spares_others) {
            let (p99, base) = (row.steady.fault.1, row.steady.rest.1);
            let late = p99 > base * GROSS.0 && p99 > GROSS.1;
            must(
                !late,
                format!("p99 of steady requests during `{}`: {p99:?} instead of {base:?}", row.fault),
            );
        }
        wrong
    }

    /// The peak memory of two processes during an upgrade, divided by the peak of one.
    pub(crate) fn pair(&self) -> Option<f64> {
        let most = |of: fn(&Upgrade) -> Option<u64>| self.upgrades.iter().filter_map(of).max();
        let alone = most(|upgrade| upgrade.kib().map(|(alone, _)| alone)).filter(|kib| *kib > 0)?;
        let together = most(|upgrade| upgrade.kib().map(|(_, together)| together))?;
        Some(together as f64 / alone as f64)
    }

    /// KiB after the quiet time, and after all faults except the upgrades, which start other processes.
    pub(crate) fn growth(&self) -> (u64, u64) {
        let faults = self.memory.len().saturating_sub(1);
        let first = self.memory.first().copied().unwrap_or(0);
        (first, self.memory.get(..faults).and_then(<[u64]>::last).copied().unwrap_or(0))
    }

    /// The fault that slows healthy routes most, after subtracting the noise of the machine.
    pub(crate) fn lateness(&self) -> Option<&Row> {
        let faults = self.rows.iter().skip(1).filter(|row| row.spares_others);
        faults.max_by(|a, b| a.excess().total_cmp(&b.excess()))
    }
}

impl Allowed {
    /// Whether the fault permits this refusal.
    fn covers(self, one: &Asked, cause: &str) -> bool {
        match self {
            Self::Faulty => one.route == Route::Faulty,
            Self::NoDescriptor => cause == "out_of_descriptors",
            Self::Nothing => false,
            Self::Posts => one.route == Route::Faulty && one.post,
        }
    }
}
