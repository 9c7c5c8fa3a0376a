//! The streams of one connection: their records in a row of slots that are used again, found by number.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::task::{Context, Waker};

/// How many streams that have ended are remembered, to tell a late frame from a wrong one.
const REMEMBERED: usize = 256;

/// Longest buffer of text that is kept for the next head on this slot.
pub(super) const KEPT_TEXT: usize = 4 * 1024;

/// Why a stream is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::h2) enum Failed {
    /// The connection has ended.
    Closed,
    /// We gave it up.
    GivenUp,
    /// The peer broke this rule on it, or one of the connection.
    Malformed(&'static str),
    /// The peer has not looked at it (RFC 9113 §8.7): by RST_STREAM, or for its connection ends.
    Refused { by_reset: bool },
    /// The peer reset it.
    Reset,
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
pub(in crate::h2) struct Record {
    /// 0 until it begins.
    pub(super) id: u32,
    pub(super) sent_end: bool,
    pub(super) got_end: bool,
    pub(super) failed: Option<Failed>,
    // === what came ===
    /// Heads as text, until they are read.
    pub(super) text: Vec<u8>,
    /// The body from `read` on.
    pub(super) body: Vec<u8>,
    pub(super) read: usize,
    /// How much of the body's end is kept back: a piece that makes a request complete, until its stream ends. With one byte
    /// more it is malformed (RFC 9113 §8.1.1), and an upstream that was given all that was announced would have taken it
    /// for whole.
    pub(super) kept_back: usize,
    pub(super) trailers: Vec<u8>,
    /// What its head and trailers count of what a connection may hold, here and with whoever took them.
    pub(super) held: usize,
    /// What is missing of the body, by the message's own word.
    pub(super) owed: Option<u64>,
    /// The final head came.
    pub(super) headed: bool,
    /// A response to HEAD.
    pub(super) is_head: bool,
    /// A request for a WebSocket.
    pub(super) tunnel: bool,
    /// What a WebSocket is to be agreed to with.
    pub(super) accept: Option<String>,
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

impl Record {
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

    /// Whether frames still pass on it.
    pub(super) const fn is_open(&self) -> bool {
        self.id != 0 && self.failed.is_none() && !(self.sent_end && self.got_end)
    }

    /// Bytes of the body that can be read.
    pub(super) const fn readable(&self) -> usize {
        let kept_back = if self.got_end { 0 } else { self.kept_back };
        self.body.len() - self.read - kept_back
    }
}

/// All streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    slots: Vec<Record>,
    free: Vec<usize>,
    numbers: HashMap<u32, usize, BuildHasherDefault<ByNumber>>,
    ended: VecDeque<(u32, Ending)>,
}

impl Streams {
    /// A record for a new stream.
    pub(super) fn add(&mut self) -> usize {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        self.slots.push(Record::default());
        self.slots.len() - 1
    }

    /// A stream begins.
    pub(super) fn begin(&mut self, slot: usize, id: u32) {
        self.slots[slot].id = id;
        self.numbers.insert(id, slot);
    }

    /// The record in a slot, which somebody was given.
    pub(super) fn at(&mut self, slot: usize) -> &mut Record {
        &mut self.slots[slot]
    }

    /// The slot of an open stream.
    pub(super) fn find(&self, id: u32) -> Option<usize> {
        self.numbers.get(&id).copied()
    }

    /// How many are open.
    pub(super) fn open(&self) -> usize {
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

    /// The largest text that is kept for a head to come.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.slots.iter().map(|record| record.text.capacity()).max().unwrap_or(0)
    }

    /// All of the bodies that nobody has read yet.
    pub(super) fn unread(&self) -> usize {
        self.slots.iter().map(|record| record.body.len() - record.read).sum()
    }

    /// The slots of those that are open.
    pub(super) fn slots(&self) -> Vec<usize> {
        self.numbers.values().copied().collect()
    }

    /// No more frames pass on it; what came can still be read.
    pub(super) fn end(&mut self, slot: usize, how: Ending) {
        let id = self.slots[slot].id;
        if self.numbers.remove(&id).is_none() {
            return;
        }
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back((id, how));
    }

    /// How a stream ended, if it is remembered.
    pub(super) fn ending(&self, id: u32) -> Option<Ending> {
        self.ended.iter().rev().find(|(ended, _)| *ended == id).map(|(_, how)| *how)
    }

    /// Notes a stream that ended before it had a record.
    pub(super) fn remember(&mut self, id: u32, how: Ending) {
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back((id, how));
    }

    /// Nobody holds the record any more, and it is not open.
    pub(super) fn remove(&mut self, slot: usize) {
        let record = &mut self.slots[slot];
        let mut text = std::mem::take(&mut record.text);
        text.clear();
        if text.capacity() > KEPT_TEXT {
            text = Vec::new();
        }
        *record = Record { text, ..Record::default() };
        self.free.push(slot);
    }
}

/// Numbers of streams are in sequence: spreading them is enough.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ByNumber(u64);

impl Hasher for ByNumber {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u32(u32::from(*b)));
    }

    fn write_u32(&mut self, n: u32) {
        self.0 = (self.0 ^ u64::from(n)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
