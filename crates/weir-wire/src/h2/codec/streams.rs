//! The streams of one connection: their records, in reused slots, found by stream number.

use super::Sink;
use super::numbers::Numbers;
use std::task::{Context, Waker};

/// How many ended streams are remembered, to tell a late frame from a wrong one.
const REMEMBERED: usize = 256;

/// Why a stream is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The connection has ended.
    Closed,
    /// We abandoned it.
    GivenUp,
    /// The peer broke this rule, on the stream or on the connection.
    Malformed(&'static str),
    /// The peer did not process it (RFC 9113 §8.7).
    Refused {
        /// By RST_STREAM; otherwise by the end of its connection.
        by_reset: bool,
    },
    /// The peer reset it with this code.
    Reset(u32),
}

/// How an ended stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Both sides had finished, or the peer reset it: nothing may follow.
    Theirs,
    /// We reset it: frames that were in flight are no error.
    Ours,
}

/// The events a task waits for.
pub(super) const READ: u8 = 1;
pub(super) const WRITE: u8 = 2;
pub(super) const RESET: u8 = 4;

/// One stream. A server's record begins with the request head, a client's before the stream has a number.
#[derive(Debug, Default)]
pub(super) struct Record<K> {
    /// 0 until the stream opens.
    pub(super) id: u32,
    pub(super) sent_end: bool,
    pub(super) got_end: bool,
    pub(super) failed: Option<Failed>,
    // === what came ===
    /// The sink's data.
    pub(super) kept: K,
    /// The stream's charge for head and trailers, whether they are here or with their reader.
    pub(super) held: usize,
    /// The missing part of the announced body length.
    pub(super) owed: Option<u64>,
    /// The final head has arrived.
    pub(super) headed: bool,
    /// It is the response to a HEAD request.
    pub(super) is_head: bool,
    /// What the peer may send now.
    pub(super) room: i64,
    /// What the peer may send once everything is read.
    pub(super) room_most: u32,
    /// Bytes read but not yet returned as credit.
    pub(super) credit: u32,
    // === what is sent ===
    pub(super) window: i64,
    /// The part of the connection's window granted to this stream.
    pub(super) grant: usize,
    /// The rest of its turn, if there was not room for all of it.
    pub(super) turn: usize,
    /// It is in a queue.
    pub(super) queued: bool,
    /// The offset of its last frame that can carry an end flag, counted from the first byte ever sent, and whether it
    /// is DATA.
    pub(super) last_frame: Option<(u64, bool)>,
    // === who waits ===
    waker: Option<Waker>,
    wants: u8,
}

impl<K> Record<K> {
    /// Records what this task waits for.
    pub(super) fn wait(&mut self, what: u8, cx: &Context<'_>) {
        self.wants |= what;
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }

    /// Wakes the task if it waits for this.
    pub(super) fn wake(&mut self, what: u8) {
        if self.wants & what != 0
            && let Some(waker) = &self.waker
        {
            self.wants = 0;
            waker.wake_by_ref();
        }
    }

    /// Resets the record, except the sink's data. In place, because that may be large.
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
    /// The most recently ended streams, in a ring; `oldest` is the next to be dropped.
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

    /// Opens a stream.
    #[inline]
    pub(super) fn begin(&mut self, slot: usize, id: u32) {
        self.slots[slot].id = id;
        self.numbers.insert(id, slot);
    }

    /// The record in a slot that a caller holds.
    #[inline]
    pub(super) fn at(&mut self, slot: usize) -> &mut Record<K> {
        &mut self.slots[slot]
    }

    /// The slot of an open stream.
    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<usize> {
        self.numbers.find(id)
    }

    /// The number of open streams.
    #[inline]
    pub(super) const fn open(&self) -> usize {
        self.numbers.len()
    }

    /// The sum of all grants.
    pub(super) fn grants(&self) -> usize {
        self.slots.iter().map(|record| record.grant).sum()
    }

    /// The sum of all charges for heads.
    pub(super) fn heads(&self) -> usize {
        self.slots.iter().map(|record| record.held).sum()
    }

    /// All records, used or not.
    #[cfg(test)]
    pub(super) fn all(&self) -> &[Record<K>] {
        &self.slots
    }

    /// Bytes of all unread bodies.
    pub(super) fn unread<S: Sink<Kept = K>>(&self) -> usize {
        self.slots.iter().map(|record| S::unread(&record.kept)).sum()
    }

    /// The slots of all streams that have begun and are not removed.
    pub(super) fn places(&self) -> Vec<usize> {
        self.slots.iter().enumerate().filter(|(_, record)| record.id != 0).map(|(slot, _)| slot).collect()
    }

    /// The slots of all open streams, oldest first.
    pub(super) fn slots(&self) -> Vec<usize> {
        let mut all: Vec<(u32, usize)> = self.numbers.iter().collect();
        all.sort_unstable();
        all.into_iter().map(|(_, slot)| slot).collect()
    }

    /// Closes a stream for frames; received data stays readable. Returns whether it was open.
    #[inline]
    pub(super) fn end(&mut self, slot: usize) -> bool {
        let id = self.slots[slot].id;
        self.numbers.remove(id)
    }

    /// How a stream ended, if it is remembered.
    pub(super) fn ending(&self, id: u32) -> Option<Ending> {
        self.ended.iter().find(|(ended, _)| *ended == id).map(|(_, how)| *how)
    }

    /// Remembers how a stream ended.
    pub(super) fn remember(&mut self, id: u32, how: Ending) {
        if self.ended.len() < REMEMBERED {
            self.ended.push((id, how));
        } else {
            self.ended[self.oldest] = (id, how);
            self.oldest = (self.oldest + 1) % REMEMBERED;
        }
    }

    /// Frees a closed record that nobody holds. The sink's data stays for the next stream in this slot.
    #[inline]
    pub(super) fn remove(&mut self, slot: usize) {
        self.slots[slot].reset();
        self.free.push(slot);
    }
}
