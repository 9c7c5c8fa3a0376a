//! Which endpoints of an upstream are out of rotation, as one core knows it.
//!
//! The state belongs to the endpoints ([`Health`](super::health::Health)) and is exact for the process; a core keeps the
//! answer until something changes, so that a request pays one load while all is well.

use super::endpoint::LocalEndpoint;
use super::excluded::Excluded;
use super::health::{changes, clock};
use std::cell::{Cell, Ref, RefCell};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};
use weir_telemetry::log;

/// What one core knows of the endpoints of one upstream.
#[derive(Default)]
pub(super) struct Rotation {
    /// [`changes`] when this was found.
    seen: Cell<u64>,
    /// The list it was found for; weak, because a list that is gone must not keep its pools.
    list: RefCell<Option<Weak<[LocalEndpoint]>>>,
    out: RefCell<Excluded>,
    /// When one of those that are out can be tried again, on [`clock`]; 0 when none is out.
    due: Cell<u64>,
    /// Whose trials this core is to make.
    trials: RefCell<Vec<usize>>,
}

impl Rotation {
    /// Those of the endpoints that are out; `None` when it is known that none is. A trial may take as long as `connect`.
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

    /// Whether none was out when it was last looked at.
    pub(super) fn is_full(&self) -> bool {
        self.due.get() == 0
    }

    /// An endpoint that this core is to try in the background.
    pub(super) fn take_trial(&self) -> Option<usize> {
        if self.is_full() { None } else { self.trials.borrow_mut().pop() }
    }

    fn is_for(&self, endpoints: &Rc<[LocalEndpoint]>) -> bool {
        self.list
            .borrow()
            .as_ref()
            .is_some_and(|list| std::ptr::addr_eq(list.as_ptr(), Rc::as_ptr(endpoints)))
    }

    fn look(&self, endpoints: &Rc<[LocalEndpoint]>, now: Instant, connect: Duration) {
        let health = |i: &usize| &endpoints[*i].endpoint.health;
        for i in (0..endpoints.len()).filter(|i| health(i).is_ejected()) {
            if health(&i).due().is_some_and(|due| due <= clock(now)) {
                health(&i).enter(now); // its time is over
            }
        }
        let out: Vec<usize> = (0..endpoints.len()).filter(|i| health(i).due().is_some()).collect();
        let mut trials = self.trials.borrow_mut();
        trials.clear();
        // Where all are out, requests dial themselves: a trial would only be in their way.
        if out.len() < endpoints.len() {
            let unreachable = out.iter().copied().filter(|i| !health(i).is_ejected());
            trials.extend(unreachable.filter(|i| health(i).claim_trial(now, connect)));
        }
        self.due.set(out.iter().filter_map(|i| health(i).due()).min().unwrap_or(0));
        *self.out.borrow_mut() = avoided(out, endpoints.len(), |i| health(i).is_ejected());
        if !self.is_for(endpoints) {
            *self.list.borrow_mut() = Some(Rc::downgrade(endpoints));
        }
    }
}

/// Those of the endpoints that are out which are avoided: with fewer than half in rotation, the ejected ones are used too.
/// They would be too few for the load, and what all of them answer badly is hardly the fault of each.
fn avoided(out: Vec<usize>, of: usize, is_ejected: impl Fn(&usize) -> bool) -> Excluded {
    if (of - out.len()) * 2 >= of || !out.iter().any(&is_ejected) {
        return out.into_iter().collect();
    }
    static SEEN: log::Every = log::every(Duration::from_secs(10));
    SEEN.warn(
        "too few endpoints in rotation: ejected ones are used too",
        &[("out", &out.len()), ("of", &of)],
    );
    out.into_iter().filter(|i| !is_ejected(i)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ejected_ones_are_used_when_too_few_are_left() {
        let all = |out: &[usize], of, ejected: &[usize]| {
            let found = avoided(out.to_vec(), of, |i| ejected.contains(i));
            (0..of).filter(|i| found.contains(*i)).collect::<Vec<_>>()
        };
        assert_eq!(all(&[0, 1], 4, &[0, 1]), [0, 1]);
        assert_eq!(all(&[0, 1, 2], 4, &[0, 1]), [2], "what cannot be connected to stays out");
        assert_eq!(all(&[0, 1, 2], 4, &[]), [0, 1, 2]);
        assert_eq!(all(&[0], 1, &[]), [0]);
    }
}
