//! The request streams of one connection: their records, in reused slots, found by QUIC's stream id.

use crate::frame::Header;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::task::{Context, Waker};
use std::time::Instant;
use weir_fields::Priority;

/// Why a stream is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The connection has ended.
    Closed,
    /// We abandoned it.
    GivenUp,
    /// The peer broke this rule, on the stream or on the connection.
    Malformed(&'static str),
    /// The peer did not process it (RFC 9114 §4.1.1).
    Refused {
        /// By resetting the stream; otherwise by the end of its connection.
        by_reset: bool,
    },
    /// The peer reset it with this code.
    Reset(u64),
}

/// The events a task waits for.
pub(super) const READ: u8 = 1;
pub(super) const WRITE: u8 = 2;
pub(super) const RESET: u8 = 4;

/// Where the reader of a stream stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum At {
    /// In the header of the next frame, or before it.
    #[default]
    Header,
    /// In DATA, with this many bytes left.
    Data(u64),
    /// In HEADERS of this length; what has arrived of it is in `block`.
    Head(usize),
    /// In a frame of an unknown type, with this many bytes left.
    Unknown(u64),
}

/// One request stream. The record exists from the first byte until its holder has released it and all output is sent.
#[derive(Debug, Default)]
pub(super) struct Record<K> {
    pub(super) id: u64,
    pub(super) failed: Option<Failed>,
    /// A holder was told about it, and will release it.
    pub(super) is_held: bool,
    // === what came ===
    /// The sink's data.
    pub(super) kept: K,
    /// The stream's charge for head and trailers, as text or still encoded.
    pub(super) held: usize,
    pub(super) at: At,
    pub(super) header: Header,
    /// An incomplete head, or one that waits for insertions.
    pub(super) block: Vec<u8>,
    /// The number of insertions that `block` waits for; 0 if it does not.
    pub(super) blocked: u64,
    /// The transport could not get rid of all bytes and will pass the rest again.
    pub(super) is_stalled: bool,
    /// The end has arrived, perhaps behind a blocked head.
    pub(super) got_fin: bool,
    /// The end has been processed.
    pub(super) got_end: bool,
    /// Nothing more is read: the peer reset the stream, or we stopped it.
    pub(super) is_deaf: bool,
    /// The missing part of the announced body length.
    pub(super) owed: Option<u64>,
    /// The final head has arrived.
    pub(super) headed: bool,
    pub(super) trailed: bool,
    /// It is the response to a HEAD request.
    pub(super) is_head: bool,
    /// Only DATA may follow (RFC 9114 §4.4).
    pub(super) is_tunnel: bool,
    /// Since when its head is incomplete.
    pub(super) since: Option<Instant>,
    pub(super) priority: Priority,
    // === what is sent ===
    /// Output; `out[written..]` is unsent.
    pub(super) out: Vec<u8>,
    pub(super) written: usize,
    /// The unsent bytes that the connection counts.
    pub(super) counted: usize,
    /// The end follows `out`.
    pub(super) sent_end: bool,
    /// The transport has the end.
    pub(super) is_finished: bool,
    /// We reset it, or the peer stopped it.
    pub(super) is_mute: bool,
    /// The transport knows of the output.
    pub(super) is_announced: bool,
    // === who waits ===
    waker: Option<Waker>,
    wants: u8,
}

impl<K: Default> Record<K> {
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

    /// Unsent bytes.
    pub(super) const fn unsent(&self) -> usize {
        self.out.len() - self.written
    }

    /// Whether the peer may still send on it, and we read it.
    pub(super) const fn reads(&self) -> bool {
        !self.got_end && !self.is_deaf
    }

    /// Whether we may still send on it.
    pub(super) const fn writes(&self) -> bool {
        !self.sent_end && !self.is_mute
    }

    /// Resets the record for the next stream. Buffers of an ordinary size stay.
    fn reset(&mut self, kept: K) {
        let (mut block, mut out) = (std::mem::take(&mut self.block), std::mem::take(&mut self.out));
        for buffer in [&mut block, &mut out] {
            buffer.clear();
            if buffer.capacity() > KEPT {
                *buffer = Vec::new();
            }
        }
        *self = Self { kept, block, out, ..Self::default() };
    }
}

/// Largest buffer kept for the next stream in a slot.
const KEPT: usize = 4096;

/// All request streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Streams<K> {
    slots: Vec<Record<K>>,
    free: Vec<usize>,
    ids: HashMap<u64, usize, BuildHasherDefault<Ids>>,
}

impl<K: Default> Streams<K> {
    /// A record for a new stream.
    pub(super) fn add(&mut self, id: u64) -> usize {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Record::default());
            self.slots.len() - 1
        });
        self.slots[slot].id = id;
        self.ids.insert(id, slot);
        slot
    }

    /// The record in a slot that a caller holds.
    #[inline]
    pub(super) fn at(&mut self, slot: usize) -> &mut Record<K> {
        &mut self.slots[slot]
    }

    /// The record in a slot, to look at.
    pub(super) fn see(&self, slot: usize) -> Option<&Record<K>> {
        self.slots.get(slot)
    }

    /// The slot of a stream.
    #[inline]
    pub(super) fn find(&self, id: u64) -> Option<usize> {
        self.ids.get(&id).copied()
    }

    /// The number of streams.
    pub(super) fn open(&self) -> usize {
        self.ids.len()
    }

    /// The slots of all streams, oldest first.
    pub(super) fn slots(&self) -> Vec<usize> {
        let mut all: Vec<(u64, usize)> = self.ids.iter().map(|(id, slot)| (*id, *slot)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, slot)| slot).collect()
    }

    /// The records of all streams, in no particular order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Record<K>> {
        self.ids.values().filter_map(|slot| self.slots.get(*slot))
    }

    /// Frees a record that nobody holds. `kept` stays for the next stream in this slot.
    pub(super) fn remove(&mut self, slot: usize, clear: impl FnOnce(&mut K)) {
        let record = &mut self.slots[slot];
        self.ids.remove(&record.id);
        let mut kept = std::mem::take(&mut record.kept);
        clear(&mut kept);
        record.reset(kept);
        self.free.push(slot);
    }
}

/// Hashes stream ids. The peer chooses them, but can have only as many as there are streams at a time.
#[derive(Debug, Default)]
pub(super) struct Ids(u64);

impl Hasher for Ids {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
