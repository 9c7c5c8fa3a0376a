//! The streams of one connection: their records in a row of slots that are used again, found by number.

use super::Sink;
use super::numbers::Numbers;
use std::task::{Context, Waker};

/// How many streams that have ended are remembered, to tell a late frame from a wrong one.
const REMEMBERED: usize = 256;

/// Why a stream is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The connection has ended.
    Closed,
    /// We gave it up.
    GivenUp,
    /// The peer broke this rule on it, or one of the connection.
    Malformed(&'static str),
    /// The peer has not looked at it (RFC 9113 §8.7).
    Refused {
        /// By RST_STREAM; otherwise its connection ends.
        by_reset: bool,
    },
    /// The peer reset it, with this code.
    Reset(u32),
}

/// How a stream ended that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Both sides had said all, or the peer reset it: nothing may follow.
    Theirs,
    /// We reset it: what was on its way is no error.
    Ours,
}

/// What a task waits for.
pub(super) const READ: u8 = 1;
pub(super) const WRITE: u8 = 2;
pub(super) const RESET: u8 = 4;

/// One stream. In the server's role it begins with its head, in the client's before it has a number.
#[derive(Debug, Default)]
pub(super) struct Record<K> {
    /// 0 until it begins.
    pub(super) id: u32,
    pub(super) sent_end: bool,
    pub(super) got_end: bool,
    pub(super) failed: Option<Failed>,
    // === what came ===
    /// What the sink keeps.
    pub(super) kept: K,
    /// What its head and trailers count of what a connection may hold, here and with whoever took them.
    pub(super) held: usize,
    /// What is missing of the body, by the message's own word.
    pub(super) owed: Option<u64>,
    /// The final head came.
    pub(super) headed: bool,
    /// A response to HEAD.
    pub(super) is_head: bool,
    /// What the peer may send now.
    pub(super) room: i64,
    /// What it may send when all was read.
    pub(super) room_most: u32,
    /// What was read and not yet told.
    pub(super) credit: u32,
    // === what is sent ===
    pub(super) window: i64,
    /// Part of the connection's window that waits for this stream.
    pub(super) grant: usize,
    /// What is left of its turn, where there was not room for all of it.
    pub(super) turn: usize,
    /// It stands in a queue.
    pub(super) queued: bool,
    /// Where its last frame with an end to mark begins, counted from the first byte ever sent, and whether that is DATA.
    pub(super) last_frame: Option<(u64, bool)>,
    // === who waits ===
    waker: Option<Waker>,
    wants: u8,
}

impl<K> Record<K> {
    /// Notes that this task waits for something.
    pub(super) fn wait(&mut self, what: u8, cx: &Context<'_>) {
        self.wants |= what;
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }

    /// Wakes the task, if it waits for this.
    pub(super) fn wake(&mut self, what: u8) {
        if self.wants & what != 0
            && let Some(waker) = &self.waker
        {
            self.wants = 0;
            waker.wake_by_ref();
        }
    }

    /// As it was before its stream, but for what the sink keeps. In place, because that may be large.
    #[rustfmt::skip]
    fn reset(&mut self) {
        let Self {
            id, sent_end, got_end, failed, kept: _, held, owed, headed, is_head, room, room_most, credit, window, grant, turn,
            queued, last_frame, waker, wants,
        } = self;
        (*id, *sent_end, *got_end, *failed) = (0, false, false, None);
        (*held, *owed, *headed, *is_head) = (0, None, false, false);
        (*room, *room_most, *credit, *window, *grant, *turn) = (0, 0, 0, 0, 0, 0);
        (*queued, *last_frame, *waker, *wants) = (false, None, None, 0);
    }

    /// Whether frames still pass on it.
    pub(super) const fn is_open(&self) -> bool {
        self.id != 0 && self.failed.is_none() && !(self.sent_end && self.got_end)
    }
}

/// All streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Streams<K> {
    slots: Vec<Record<K>>,
    free: Vec<usize>,
    numbers: Numbers,
    /// The last that have ended, in a ring of which `oldest` is the next to be forgotten.
    ended: Vec<(u32, Ending)>,
    oldest: usize,
}

impl<K: Default> Streams<K> {
    /// A record for a new stream.
    #[inline]
    pub(super) fn add(&mut self) -> usize {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        self.slots.push(Record::default());
        self.slots.len() - 1
    }

    /// A stream begins.
    #[inline]
    pub(super) fn begin(&mut self, slot: usize, id: u32) {
        self.slots[slot].id = id;
        self.numbers.insert(id, slot);
    }

    /// The record in a slot, which somebody was given.
    #[inline]
    pub(super) fn at(&mut self, slot: usize) -> &mut Record<K> {
        &mut self.slots[slot]
    }

    /// The slot of an open stream.
    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<usize> {
        self.numbers.find(id)
    }

    /// How many are open.
    #[inline]
    pub(super) const fn open(&self) -> usize {
        self.numbers.len()
    }

    /// All that is granted.
    pub(super) fn grants(&self) -> usize {
        self.slots.iter().map(|record| record.grant).sum()
    }

    /// All that heads are charged with.
    pub(super) fn heads(&self) -> usize {
        self.slots.iter().map(|record| record.held).sum()
    }

    /// The records, used or not.
    #[cfg(test)]
    pub(super) fn all(&self) -> &[Record<K>] {
        &self.slots
    }

    /// All of the bodies that nobody has read yet.
    pub(super) fn unread<S: Sink<Kept = K>>(&self) -> usize {
        self.slots.iter().map(|record| S::unread(&record.kept)).sum()
    }

    /// The slots of all that have begun and are not removed.
    pub(super) fn places(&self) -> Vec<usize> {
        self.slots.iter().enumerate().filter(|(_, record)| record.id != 0).map(|(slot, _)| slot).collect()
    }

    /// The slots of those that are open, the oldest stream first.
    pub(super) fn slots(&self) -> Vec<usize> {
        let mut all: Vec<(u32, usize)> = self.numbers.iter().collect();
        all.sort_unstable();
        all.into_iter().map(|(_, slot)| slot).collect()
    }

    /// No more frames pass on it; what came can still be read. Returns whether it was open.
    #[inline]
    pub(super) fn end(&mut self, slot: usize) -> bool {
        let id = self.slots[slot].id;
        self.numbers.remove(id)
    }

    /// How a stream ended, if it is remembered.
    pub(super) fn ending(&self, id: u32) -> Option<Ending> {
        self.ended.iter().find(|(ended, _)| *ended == id).map(|(_, how)| *how)
    }

    /// Notes how a stream ended.
    pub(super) fn remember(&mut self, id: u32, how: Ending) {
        if self.ended.len() < REMEMBERED {
            self.ended.push((id, how));
        } else {
            self.ended[self.oldest] = (id, how);
            self.oldest = (self.oldest + 1) % REMEMBERED;
        }
    }

    /// Nobody holds the record any more, and it is not open. What its sink keeps stays for the next on this slot.
    #[inline]
    pub(super) fn remove(&mut self, slot: usize) {
        self.slots[slot].reset();
        self.free.push(slot);
    }
}
