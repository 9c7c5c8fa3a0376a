//! The blocks of `--rounds`: ticks of all threads, added up.

use super::shared::{ThreadEnd, TickPart};
use crate::plan::Plan;
use crate::scenario::Journey;
use crate::scenario::tally::{STEPS_BY_SECOND, StepPart};
use std::collections::BTreeMap;
use weir_report::Histogram;
use weir_report::report::{Block, BlockStep, Tick};

/// Most histograms of steps in all blocks; each takes tens of KiB. With more, steps have no blocks.
const HISTOGRAMS_MOST: usize = 2_000;

/// The blocks so far; none without `--rounds`.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    /// Ticks of each block.
    ticks: u64,
    /// Number of blocks.
    most: u64,
}

impl Blocks {
    pub(super) fn new(plan: &Plan) -> Self {
        let ticks = plan.block_ns().map_or(0, |block| block / plan.tick_ns().max(1));
        Self { blocks: Vec::new(), ticks, most: plan.as_run.rounds }
    }

    /// Adds a complete tick. What arrives after the planned end belongs to the last block.
    pub(super) fn add(&mut self, parts: &[TickPart], tick: &Tick, response: &Histogram) {
        let Some(part) = parts.first() else { return };
        let Some((block, is_after)) = self.of_tick(part.index) else { return };
        block.response.add(response);
        block.in_window += parts.iter().map(|part| part.window.responses).sum::<u64>();
        block.unanswered += tick.errors;
        if !is_after {
            block.end_ns = tick.end_ns;
            block.length_ns += tick.length_ns;
        }
    }

    /// The block of a tick, and whether the tick is after the planned end.
    fn of_tick(&mut self, index: u64) -> Option<(&mut Block, bool)> {
        let last = self.most.checked_sub(1)?;
        let number = index.checked_div(self.ticks).unwrap_or(0);
        let is_after = number > last;
        let number = usize::try_from(number.min(last)).unwrap_or(usize::MAX);
        while self.blocks.len() <= number {
            self.blocks.push(Block::default());
        }
        Some((self.blocks.get_mut(number)?, is_after))
    }

    /// Adds the steps of a complete tick. Where not all have their times by the second, no block has any.
    pub(super) fn add_steps(&mut self, index: u64, journey: &Journey, rows: &BTreeMap<usize, StepPart>) {
        let rows_most = usize::try_from(self.most).map_or(0, |most| HISTOGRAMS_MOST / most.max(1));
        if journey.rows.len() > STEPS_BY_SECOND.min(rows_most) {
            return;
        }
        let Some((block, _)) = self.of_tick(index) else { return };
        if block.steps.is_empty() {
            let steps = journey.rows.iter().map(|row| BlockStep {
                scenario: journey.scenario_name(row.scenario),
                step: row.name.clone(),
                ..BlockStep::default()
            });
            block.steps = steps.collect();
        }
        for (row, part) in rows {
            if let Some(step) = block.steps.get_mut(*row) {
                step.unanswered += part.errors;
                step.response.add(&part.response);
            }
        }
    }

    /// All blocks, once the threads have ended. Requests without a response by then count in the last one.
    pub(super) fn end(mut self, threads: &[(usize, ThreadEnd)]) -> Vec<Block> {
        if let Some(last) = self.blocks.last_mut() {
            last.unanswered += threads.iter().map(|(_, end)| end.tally.unfinished).sum::<u64>();
            for (row, step) in last.steps.iter_mut().enumerate() {
                let open = threads.iter().filter_map(|(_, end)| end.journey.as_ref()?.steps.get(row));
                step.unanswered += open.map(|tally| tally.unfinished).sum::<u64>();
            }
        }
        self.blocks
    }
}
