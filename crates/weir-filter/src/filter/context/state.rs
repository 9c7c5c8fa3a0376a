//! What each filter keeps for the length of an exchange.

use super::{Cx, NOBODY, RouteScope};
use std::rc::Rc;

/// The bits of [`Cx::filter`] that are an index; the higher bits distinguish members of a filter.
pub const FILTER: u32 = 0x00ff_ffff;

impl Cx {
    /// Runs a filter that is part of this one, with its own state.
    pub fn member<T>(&mut self, at: usize, run: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.enter(at);
        let done = run(self);
        self.leave(outer);
        done
    }

    /// The same for one that waits, until [`Cx::leave`] with the returned value.
    #[inline]
    pub const fn enter(&mut self, at: usize) -> u32 {
        let outer = self.filter;
        self.filter = outer & FILTER | (at as u32 + 1) << FILTER.count_ones();
        outer
    }

    /// Ends what [`Cx::enter`] began.
    #[inline]
    pub const fn leave(&mut self, outer: u32) {
        self.filter = outer;
    }

    /// This filter's state in this exchange, created at first use.
    pub fn state<T: Default + 'static>(&mut self) -> &mut T {
        let filter = self.filter;
        let at = match self.states.iter().position(|(f, s)| *f == filter && s.is::<T>()) {
            Some(at) => at,
            None => {
                self.states.push((filter, Box::<T>::default()));
                self.states.len() - 1
            }
        };
        self.states[at].1.downcast_mut().expect("the position was found by this very type")
    }

    /// This filter's number in this exchange, initially 0: state without an allocation.
    #[inline]
    pub fn note(&mut self) -> &mut u64 {
        if self.note.0 == NOBODY {
            self.note.0 = self.filter;
        }
        if self.note.0 == self.filter { &mut self.note.1 } else { self.other_note() }
    }

    fn other_note(&mut self) -> &mut u64 {
        let filter = self.filter;
        let at = self.notes.iter().position(|(f, _)| *f == filter).unwrap_or_else(|| {
            self.notes.push((filter, 0));
            self.notes.len() - 1
        });
        &mut self.notes[at].1
    }

    /// The filters have new indexes: their position in `old`.
    pub fn renumber(&mut self, scope: Rc<RouteScope>, old: &[u32]) {
        let new = |index: &mut u32| {
            let at = old.iter().position(|&o| o == *index & FILTER).unwrap_or(old.len()) as u32;
            *index = *index & !FILTER | at;
        };
        if self.note.0 != NOBODY {
            new(&mut self.note.0);
        }
        self.states.iter_mut().for_each(|(index, _)| new(index));
        self.notes.iter_mut().for_each(|(index, _)| new(index));
        self.request_bodies.clear(); // a tunnel has no bodies
        self.response_bodies.clear();
        self.scope = scope;
    }
}
