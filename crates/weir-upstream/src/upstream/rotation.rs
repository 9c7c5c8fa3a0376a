//! Which endpoints of an upstream are out of rotation, as one core knows it.
//!
//! The state belongs to the endpoints ([`Health`](super::health::Health)) and is exact for the process. A core caches
//! it until something changes, so that a request costs one load while everything is healthy.

use super::endpoint::LocalEndpoint;
use super::excluded::Excluded;
use super::health::{RotationState, changes, clock};
use smallvec::SmallVec;
use std::cell::{Cell, Ref, RefCell};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

/// What one core knows of the endpoints of one upstream.
#[derive(Default)]
pub(super) struct Rotation {
    /// The value of [`changes`] when this was computed.
    seen: Cell<u64>,
    /// The list it was computed for. Weak, because a list that is gone must not keep its pools.
    list: RefCell<Option<Weak<[LocalEndpoint]>>>,
    /// Those that are avoided.
    out: RefCell<Excluded>,
    /// Those that an operator took out. They are not used even if all are avoided.
    by_hand: RefCell<Excluded>,
    /// When time alone may change something, on [`clock`]; 0 when none is out.
    due: Cell<u64>,
    /// The endpoints that this core must try.
    trials: RefCell<Vec<usize>>,
}

impl Rotation {
    /// The avoided endpoints; `None` if certainly none is out. A trial may take as long as `connect`.
    #[inline]
    pub(super) fn out(
        &self,
        endpoints: &Rc<[LocalEndpoint]>,
        connect: Duration,
    ) -> Option<Ref<'_, Excluded>> {
        let changes = changes();
        let is_known = self.seen.get() == changes && self.is_for(endpoints);
        if is_known && self.is_full() {
            return None;
        }
        let now = Instant::now();
        if !is_known || self.due.get() <= clock(now) {
            self.look(endpoints, now, connect);
            self.seen.set(changes);
        }
        if self.is_full() { None } else { Some(self.out.borrow()) }
    }

    /// The endpoints that an operator took out, as of the last check.
    #[inline]
    pub(super) fn by_hand(&self) -> Ref<'_, Excluded> {
        self.by_hand.borrow()
    }

    /// Whether none was out at the last check.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.due.get() == 0
    }

    /// An endpoint that this core should try in the background.
    #[inline]
    pub(super) fn take_trial(&self) -> Option<usize> {
        if self.is_full() { None } else { self.trials.borrow_mut().pop() }
    }

    #[inline]
    fn is_for(&self, endpoints: &Rc<[LocalEndpoint]>) -> bool {
        self.list
            .borrow()
            .as_ref()
            .is_some_and(|list| std::ptr::addr_eq(list.as_ptr(), Rc::as_ptr(endpoints)))
    }

    fn look(&self, endpoints: &Rc<[LocalEndpoint]>, now: Instant, connect: Duration) {
        let health = |i: usize| &endpoints[i].endpoint.health;
        let all = 0..endpoints.len();
        all.clone().for_each(|i| health(i).tick(now));
        let standings: Vec<RotationState> = all.clone().map(|i| health(i).standing()).collect();
        let ranks = endpoints.iter().map(|e| e.endpoint.place.rank());
        let panics = is_panicking(ranks.zip(standings.iter().copied()));
        let avoided = |i: &usize| match standings[*i] {
            RotationState::In => false,
            RotationState::Suspect => !panics,
            RotationState::Draining | RotationState::Out | RotationState::Unreachable => true,
        };
        let mut trials = self.trials.borrow_mut();
        trials.clear();
        // If all are out, requests dial themselves, and a trial would only be in their way.
        if !all.clone().all(|i| avoided(&i)) {
            let unreachable = all.clone().filter(|i| standings[*i] == RotationState::Unreachable);
            trials.extend(unreachable.filter(|i| health(*i).claim_trial(now, connect)));
        }
        self.due.set(all.clone().filter_map(|i| health(i).due()).min().unwrap_or(0));
        *self.out.borrow_mut() = all.clone().filter(avoided).collect();
        *self.by_hand.borrow_mut() = all.filter(|i| standings[*i].is_by_hand()).collect();
        if !self.is_for(endpoints) {
            *self.list.borrow_mut() = Some(Rc::downgrade(endpoints));
        }
    }
}

/// Whether unhealthy endpoints are used too. They are if, in every tier, fewer than half of those not taken out by an
/// operator are in rotation. So few cannot carry the load, and errors that all of them return are hardly each one's
/// fault.
#[inline]
pub(super) fn is_panicking(all: impl Iterator<Item = ((u8, bool), RotationState)>) -> bool {
    let mut suspect = false;
    // How many more are in rotation than are not, per tier.
    let mut surplus: SmallVec<[((u8, bool), isize); 4]> = SmallVec::new();
    for (rank, standing) in all.filter(|(_, standing)| !standing.is_by_hand()) {
        suspect |= standing == RotationState::Suspect;
        let change = if standing == RotationState::In { 1 } else { -1 };
        match surplus.iter_mut().find(|(known, _)| *known == rank) {
            Some((_, surplus)) => *surplus += change,
            None => surplus.push((rank, change)),
        }
    }
    suspect && surplus.iter().all(|(_, surplus)| *surplus < 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwell_ones_are_used_when_too_few_are_left() {
        use RotationState::{Draining, In, Out, Suspect, Unreachable};
        for (standings, expected) in [
            (&[Suspect, Suspect, In, In][..], false),
            (&[Suspect, Suspect, Unreachable, In], true),
            (&[Unreachable, Unreachable, Unreachable, In], false),
            (&[Suspect], true),
            (&[Suspect, Draining, In, Out], false),
            (&[Draining, Out], false),
        ] {
            let all = standings.iter().map(|standing| ((0, false), *standing));
            assert_eq!(is_panicking(all), expected, "{standings:?}");
        }
        // Another healthy priority can carry the load.
        let tiers = |backup| [(0, Suspect), (0, Suspect), (0, In), (0, Suspect), (1, backup)];
        let panics = |backup| is_panicking(tiers(backup).map(|(rank, it)| ((rank, false), it)).into_iter());
        assert!(!panics(In) && panics(Suspect) && panics(Out));
    }
}
