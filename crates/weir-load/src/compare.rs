//! Compares targets under the same load, so that differences come from the targets and not from the machine.
//!
//! Targets take turns in blocks, A B B A, and this round repeats, so drift affects both equally. The warm-up of each
//! block is dropped. With a direct upstream, one run alternates requests between the upstream and the gateway
//! instead. weir-report's `comparison` computes the statistics of the rounds.
//!
//! If something outside of the test spoilt a block, the comparison measures the block again immediately, up to a limit.
//! It does not repeat the whole round, because few rounds of many blocks are free of disturbances. One rule
//! (`verdict::spoilt_from_outside`), which ignores the figures of the targets, judges every block.
//!
//! *Layout.* `options` reads the options.

mod options;

pub use options::{CompareOptions, REPEAT_BLOCKS_MOST};

use crate::{Interrupt, Options, Plan, clock, cores};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};
use weir_report::comparison::{
    CompareEnd, Comparison, Condition, ConditionResult, Interval, Measured, RepeatedBlock, SCHEMA,
    TargetResult, Way,
};
use weir_report::report::Grade;
use weir_report::verdict::{Placement, spoilt_from_outside};
use weir_report::{Mistake, Report};

/// Minimum rounds before narrow intervals are trusted.
const ROUNDS_LEAST: usize = 5;

/// A comparison that is ready to run.
#[derive(Clone, Debug)]
pub struct Compare {
    contenders: Vec<Contender>,
    way: Way,
    before: Option<Before>,
    block: Duration,
    warmup: Duration,
    /// Time for all rounds together.
    time: Duration,
    /// The comparison ends once the intervals' half-width is below this.
    until: Option<f64>,
    conditions: Vec<Condition>,
    unequal_ok: bool,
    seed: u64,
    /// Most blocks that are measured again.
    repeat_blocks: u64,
    /// Processes that the targets need.
    needed: Vec<u32>,
}

/// The earlier result in the place of the first target.
#[derive(Clone, Debug)]
struct Before {
    result: TargetResult,
    /// How many of its blocks could be measured again.
    repeat_blocks: u64,
}

/// One of the compared targets.
#[derive(Clone, Debug, Default)]
pub struct Contender {
    /// Its name.
    pub name: String,
    /// Its load. The comparison sets the times.
    pub options: Options,
}

/// Why a comparison could not continue.
#[derive(Debug)]
pub enum Error {
    /// A target is no longer reachable: its name or process is gone.
    Mistakes(Vec<Mistake>),
    /// A thread could not be created.
    Io(std::io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mistakes(all) => all.iter().try_for_each(|mistake| write!(f, "{mistake} ")),
            Self::Io(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Self::Io(e)
    }
}

impl Compare {
    /// Runs the comparison. Calls `on_block` before each block with the round's number and the target's name.
    ///
    /// # Errors
    /// A block could not be run. Failures of targets are no errors; they are in the result.
    pub fn run(self, interrupt: &Interrupt, on_block: impl FnMut(u64, &str)) -> Result<Comparison, Error> {
        let (contenders, needed) = (&self.contenders, &self.needed);
        let mut live = Live { begun: Instant::now(), interrupt, contenders, needed };
        self.run_in(&mut live, on_block)
    }

    fn run_in(
        &self,
        world: &mut impl World,
        mut on_block: impl FnMut(u64, &str),
    ) -> Result<Comparison, Error> {
        let mut result = self.empty();
        let live = result.targets.len() - self.names().len();
        let order = self.order();
        let block = self.block + self.warmup;
        let length = block * u32::try_from(order.len()).unwrap_or(u32::MAX);
        result.end = 'rounds: loop {
            let mut round = vec![Measured::default(); self.names().len()];
            for &index in &order {
                let Some(report) = self.measure(index, &mut result, world, &mut on_block)? else {
                    break 'rounds CompareEnd::Interrupted; // half a round would favor one target
                };
                match self.way {
                    Way::Blocks => round[index].add(&report),
                    Way::Requests => round.iter_mut().enumerate().for_each(|(i, m)| m.add_target(&report, i)),
                }
                result.note(&report, live + index, self.way);
            }
            result.targets[live..].iter_mut().zip(&round).for_each(|(target, measured)| target.add(measured));
            result.rounds += 1;
            result.compute(self.before.is_some(), self.way);
            if round.iter().any(|m| m.responses == 0) {
                break CompareEnd::NoResponse;
            }
            if result.rounds as usize >= ROUNDS_LEAST && self.is_narrow(&result) {
                break CompareEnd::Narrow;
            }
            // Repeated blocks cost no rounds.
            let repeated = block * u32::try_from(result.repeated.len()).unwrap_or(u32::MAX);
            if world.elapsed() + length > self.time + repeated {
                break CompareEnd::Time;
            }
        };
        result.weigh();
        result.measure_blocks(live, self.way);
        result.conditions = self.judge(&result);
        Ok(result)
    }

    /// Measures a contender's block, and repeats it while it is spoilt from outside and the limit allows. `None` if
    /// the user ended the comparison.
    fn measure(
        &self,
        index: usize,
        result: &mut Comparison,
        world: &mut impl World,
        on_block: &mut impl FnMut(u64, &str),
    ) -> Result<Option<Report>, Error> {
        let contender = &self.contenders[index];
        let round = result.rounds + 1;
        loop {
            on_block(round, &contender.name);
            let Some(report) = world.measure(contender)? else { return Ok(None) };
            let may_repeat = (result.repeated.len() as u64) < self.repeat_blocks;
            // Only then: finding the processes of the targets takes milliseconds.
            let spoilt = match may_repeat && report.verdict.grade > Grade::Valid {
                true => spoilt_from_outside(&report, world.placement()?),
                false => None,
            };
            let Some(cause) = spoilt else { return Ok(Some(report)) };
            let of = match self.way {
                Way::Blocks => contender.name.clone(),
                Way::Requests => self.names().join(" and "),
            };
            result.repeated.push(RepeatedBlock::new(round, of, &report, cause));
        }
    }

    fn names(&self) -> Vec<&str> {
        match self.way {
            Way::Blocks => self.contenders.iter().map(|c| c.name.as_str()).collect(),
            Way::Requests => vec!["direct", "gateway"],
        }
    }

    /// The order of blocks: forward, then backward.
    fn order(&self) -> Vec<usize> {
        let there = 0..self.contenders.len();
        match self.contenders.len() {
            1 => vec![0],
            _ => there.clone().chain(there.rev()).collect(),
        }
    }

    fn empty(&self) -> Comparison {
        // For several URLs of one target, the first; when requests alternate, both.
        let most = if self.way == Way::Requests { 2 } else { 1 };
        let urls = self.contenders.iter().flat_map(|c| c.options.urls.iter().take(most));
        let live = self.names().into_iter().zip(urls).map(|(name, url)| TargetResult {
            name: name.to_owned(),
            url: url.clone(),
            ..TargetResult::default()
        });
        Comparison {
            schema: SCHEMA.to_owned(),
            order: self.order().into_iter().map(|i| self.contenders[i].name.clone()).collect(),
            block_ns: clock::nanos(self.block),
            warmup_ns: clock::nanos(self.warmup),
            seed: self.seed,
            unequal_ok: self.unequal_ok,
            repeat_blocks: self.repeat_blocks,
            before_repeat_blocks: self.before.as_ref().map(|before| before.repeat_blocks),
            targets: self.before.iter().map(|before| before.result.clone()).chain(live).collect(),
            ..Comparison::default()
        }
    }

    /// Whether the figures of the conditions are known exactly enough, and the rate or, with a fixed rate, the
    /// median.
    fn is_narrow(&self, result: &Comparison) -> bool {
        let Some(until) = self.until else { return false };
        let usual = if self.way == Way::Requests || self.contenders[0].options.rate.is_some() {
            "p50"
        } else {
            "rate"
        };
        let asked: Vec<&str> =
            std::iter::once(usual).chain(self.conditions.iter().map(|c| c.figure.name)).collect();
        let narrow = |intervals: &BTreeMap<String, Interval>| {
            asked.iter().all(|name| intervals.get(*name).and_then(|i| i.spread()).is_some_and(|s| s <= until))
        };
        match result.targets.as_slice() {
            [only] => narrow(&only.figures),
            all => all.iter().skip(1).all(|target| narrow(&target.ratios)),
        }
    }

    fn judge(&self, result: &Comparison) -> Vec<ConditionResult> {
        let others = result.targets.iter().skip(1);
        others.flat_map(|target| self.conditions.iter().map(|c| c.judge(target))).collect()
    }
}

/// Where blocks are measured.
trait World {
    /// Since the comparison began.
    fn elapsed(&self) -> Duration;

    /// Measures a block; `None` if the user ended it.
    fn measure(&mut self, contender: &Contender) -> Result<Option<Report>, Error>;

    /// Where the targets run. `Apart` only if all of them are. Otherwise only the targets that are apart would get rid of
    /// spoilt blocks, and would look better than the others.
    fn placement(&self) -> Result<Placement, Error>;
}

/// This machine.
struct Live<'a> {
    begun: Instant,
    interrupt: &'a Interrupt,
    contenders: &'a [Contender],
    needed: &'a [u32],
}

impl World for Live<'_> {
    fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn measure(&mut self, contender: &Contender) -> Result<Option<Report>, Error> {
        let plan = Plan::new(&contender.options).map_err(Error::Mistakes)?;
        let report = plan.run(self.interrupt, |_| ())?;
        Ok((!self.interrupt.is_ended()).then_some(report))
    }

    fn placement(&self) -> Result<Placement, Error> {
        for contender in self.contenders {
            let plan = Plan::new(&contender.options).map_err(Error::Mistakes)?;
            let targets = plan.tcp_addresses_by_target();
            if cores::placement(plan.pid, &targets, self.needed) == Placement::Shared {
                return Ok(Placement::Shared);
            }
        }
        Ok(Placement::Apart)
    }
}

#[cfg(test)]
mod tests;
