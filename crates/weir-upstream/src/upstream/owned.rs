//! Idle connections that belong to one client each: those that began with a PROXY header naming the client.
//!
//! They serve only that client's connection and end soon after it, when the sweep finds the owner gone.

use super::connection::{Connection, Idle, Owner, note_taken, take_quiet};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

/// Idle connections by owner. An owner's memory address is not reused while one of its connections is here.
#[derive(Default)]
pub(crate) struct Owned(RefCell<HashMap<*const Owner, Vec<Idle>>>);

impl Owned {
    /// This owner's most recently used connection that is still good.
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

    /// Closes connections that were idle too long or have lost their owner.
    pub(super) fn sweep(&self, keepalive: Duration, now: Instant) {
        self.0.borrow_mut().retain(|_, list| {
            list.retain_mut(|idle| {
                let orphan = idle.connection.owner().is_none_or(|owner| owner.strong_count() == 0);
                // An orphan has been idle long enough.
                idle.stays(if orphan { Duration::ZERO } else { keepalive }, now)
            });
            !list.is_empty()
        });
    }

    /// Closes any one of them. Returns whether there was one.
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
