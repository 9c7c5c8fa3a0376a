//! The order in which a request passes filters: its route's, those of the consumer's plan once a filter has named the
//! consumer, and the lists that filters chose.

use crate::snapshot::{Handling, Snapshot};
use smallvec::SmallVec;
use std::slice;
use weir_filter::filter::Cx;

/// The filters that a request has yet to pass.
pub(crate) struct ToRun<'a> {
    of_route: slice::Iter<'a, u32>,
    /// Those that run before: of the consumer's plan, and of the lists that filters chose. The last one is next.
    first: SmallVec<[Inserted; 8]>,
    /// The consumer named before the last filter ran, which may have named another. `None` behind a plan's filter.
    /// Not updated if the config has no plans.
    caller: Option<Option<usize>>,
}

/// A filter that does not stand in the route's own list.
#[derive(Clone, Copy)]
struct Inserted {
    filter: u32,
    of_plan: bool,
}

impl<'a> ToRun<'a> {
    #[inline]
    pub(crate) fn new(of_route: &'a [u32]) -> Self {
        Self { of_route: of_route.iter(), first: SmallVec::new(), caller: None }
    }

    /// The remaining filters of a request that continues after its answer.
    #[cold]
    pub(crate) fn of_rest(rest: &[u32]) -> Self {
        let mut to_run = Self::new(&[]);
        to_run.insert(rest.iter().copied(), false);
        to_run
    }

    /// The next filter. If the last one named the consumer, those of the consumer's plan come first.
    #[inline(always)] // runs for each filter
    pub(crate) fn next(&mut self, snapshot: &Snapshot, handling: &Handling, cx: Option<&Cx>) -> Option<u32> {
        // Without plans, it makes no difference whom a filter names.
        let has_plans = !snapshot.plans.is_empty();
        if !has_plans && self.first.is_empty() {
            return self.of_route.next().copied();
        }
        let caller = cx.and_then(Cx::consumer_index);
        let is_named = has_plans && self.caller.is_some_and(|before| before != caller);
        if is_named || !self.first.is_empty() {
            return self.next_of_others(snapshot, handling, cx, is_named);
        }
        self.next_of_route(caller)
    }

    #[inline]
    fn next_of_route(&mut self, caller: Option<usize>) -> Option<u32> {
        let &filter = self.of_route.next()?;
        self.caller = Some(caller);
        Some(filter)
    }

    /// The next filter where other lists may come first.
    #[inline(never)]
    fn next_of_others(
        &mut self,
        snapshot: &Snapshot,
        handling: &Handling,
        cx: Option<&Cx>,
        is_named: bool,
    ) -> Option<u32> {
        let caller = cx.and_then(Cx::consumer_index);
        if is_named {
            self.named(snapshot, handling, cx);
        }
        if self.first.is_empty() { self.next_of_route(caller) } else { self.next_inserted(caller) }
    }

    /// The last filter has named the consumer.
    fn named(&mut self, snapshot: &Snapshot, handling: &Handling, cx: Option<&Cx>) {
        if let Some(plan) = cx.and_then(|cx| snapshot.plan_of(cx)) {
            self.insert(snapshot.plan_filters(plan, handling), true);
        }
    }

    fn next_inserted(&mut self, caller: Option<usize>) -> Option<u32> {
        let Inserted { filter, of_plan } = self.first.pop()?;
        self.caller = (!of_plan).then_some(caller);
        Some(filter)
    }

    /// Runs a filter's own list next: `chosen` is the filter and the list. In a plan, the route's own filters replace
    /// those of their name there too.
    pub(crate) fn choose(&mut self, snapshot: &Snapshot, handling: &Handling, chosen: (u32, usize)) {
        let list = snapshot.list_of(chosen.0, chosen.1).iter().copied();
        // Behind a plan's filter nobody asks for the caller.
        let of_plan = self.caller.is_none() && !snapshot.plans.is_empty();
        match of_plan {
            true => self.insert(list.filter(|&filter| !snapshot.is_replaced(filter, handling)), true),
            false => self.insert(list, false),
        }
    }

    fn insert(&mut self, filters: impl Iterator<Item = u32>, of_plan: bool) {
        let from = self.first.len();
        self.first.extend(filters.map(|filter| Inserted { filter, of_plan }));
        self.first[from..].reverse();
    }

    /// All of them, in order.
    pub(crate) fn rest(&self) -> Box<[u32]> {
        let first = self.first.iter().rev().map(|inserted| inserted.filter);
        first.chain(self.of_route.as_slice().iter().copied()).collect()
    }
}
