//! The blocks of `--rounds`: ticks of all threads, added up.

use super::shared::{ThreadEnd, TickPart};
use crate::plan::Plan;
use weir_report::Histogram;
use weir_report::report::{Block, Tick};

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
        let (Some(part), Some(last)) = (parts.first(), self.most.checked_sub(1)) else { return };
        let number = part.index.checked_div(self.ticks).unwrap_or(0);
        let is_after = number > last;
        let number = usize::try_from(number.min(last)).unwrap_or(usize::MAX);
        while self.blocks.len() <= number {
            self.blocks.push(Block::default());
        }
        let Some(block) = self.blocks.get_mut(number) else { return };
        block.response.add(response);
        block.in_window += parts.iter().map(|part| part.window.responses).sum::<u64>();
        block.unanswered += tick.errors;
        if !is_after {
            block.end_ns = tick.end_ns;
            block.length_ns += tick.length_ns;
        }
    }

    /// All blocks, once the threads have ended. Requests without a response by then count in the last one.
    pub(super) fn end(mut self, threads: &[(usize, ThreadEnd)]) -> Vec<Block> {
        if let Some(last) = self.blocks.last_mut() {
            last.unanswered += threads.iter().map(|(_, end)| end.tally.unfinished).sum::<u64>();
        }
        self.blocks
    }
}
