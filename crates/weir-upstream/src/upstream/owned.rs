//! Idle connections that belong to one client each: those that began with a PROXY header, which says whose they are.
//!
//! They serve the requests of that client's connection alone, and end soon after it: the sweep finds its owner gone.

use super::connection::{Connection, Idle, Owner, note_taken, take_quiet};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

/// Idle connections by their owner. An owner's place in memory is not used again while one of its connections is here.
#[derive(Default)]
pub(crate) struct Owned(RefCell<HashMap<*const Owner, Vec<Idle>>>);

impl Owned {
    /// The connection of this owner used last that is still good.
    #[inline]
    pub(super) fn take(&self, owner: &Rc<Owner>, once: bool) -> Option<Connection> {
        let mut owned = self.0.borrow_mut();
        take_quiet(owned.get_mut(&Rc::as_ptr(owner))?, once)
    }

    /// Keeps a connection, which must have an owner.
    #[inline]
    pub(super) fn give(&self, idle: Idle) {
        let Some(owner) = idle.connection.owner().map(Weak::as_ptr) else { return };
        self.0.borrow_mut().entry(owner).or_default().push(idle);
    }

    /// Closes what has been idle for too long or has lost its owner.
    pub(super) fn sweep(&self, keepalive: Duration, now: Instant) {
        self.0.borrow_mut().retain(|_, list| {
            list.retain_mut(|idle| {
                let orphan = idle.connection.owner().is_none_or(|owner| owner.strong_count() == 0);
                // An orphan has been idle for long enough.
                idle.stays(if orphan { Duration::ZERO } else { keepalive }, now)
            });
            !list.is_empty()
        });
    }

    /// Closes any of them; tells whether there was one.
    pub(super) fn close_one(&self) -> bool {
        let mut owned = self.0.borrow_mut();
        let Some(owner) = owned.iter().find(|(_, list)| !list.is_empty()).map(|(owner, _)| *owner) else {
            return false;
        };
        let closed = owned.get_mut(&owner).and_then(Vec::pop);
        if let Some(idle) = &closed {
            note_taken(&idle.connection);
        }
        closed.is_some()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        for idle in self.0.get_mut().values().flatten() {
            note_taken(&idle.connection);
        }
    }
}
