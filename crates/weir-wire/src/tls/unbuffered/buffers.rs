//! The buffers of TLS connections: those that a thread shares, and what one connection holds.

use std::cell::Cell;

/// Bytes that are taken from the front. Holds no memory when it is empty.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) bytes: Vec<u8>,
    taken: usize,
}

/// The buffers that all connections of a thread share. Nothing in them outlives a call.
///
/// Constants of this module and of the one above limit their lengths: 34 KiB for `incoming`, 16 KiB for `joined` and
/// 65 KiB for `outgoing`. A call for one record uses up to 18, 16 and 17 KiB.
#[derive(Default)]
pub(super) struct Buffers {
    /// Received bytes, at most [`RECORD_BYTES`] that were kept and [`READ_BYTES`] that are new. rustls decrypts in
    /// place.
    pub(super) incoming: Vec<u8>,
    /// The plaintext of a record that holds bytes of both pieces of a write.
    pub(super) joined: Vec<u8>,
    /// Records for a socket.
    pub(super) outgoing: Vec<u8>,
}

/// Most plaintext in a record (RFC 9846 §5.1).
pub(super) const RECORD_BYTES: usize = 16 * 1024;

/// How much one call reads: at least one full record with its header and the most that encryption may add.
pub(super) const READ_BYTES: usize = RECORD_BYTES + 2048 + 5;

thread_local! {
    static BUFFERS: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

impl Queue {
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn take(&mut self, count: usize) {
        self.taken += count;
        if self.taken >= self.bytes.len() {
            *self = Self::default();
        }
    }
}

/// Runs a task with the buffers of this thread.
pub(super) fn with_buffers<T>(task: impl FnOnce(&mut Buffers) -> T) -> T {
    BUFFERS.with(|shared| {
        let mut buffers = shared.take().unwrap_or_default();
        let done = task(&mut buffers);
        shared.set(Some(buffers));
        done
    })
}

/// The first bytes of a buffer. It grows to hold them and never shrinks, so only new bytes are cleared.
pub(super) fn prefix(buffer: &mut Vec<u8>, count: usize) -> &mut [u8] {
    if buffer.len() < count {
        buffer.resize(count, 0);
    }
    buffer.get_mut(..count).unwrap_or_default()
}

/// Selects at most `most` bytes of two consecutive pieces. Returns two slices to encrypt one after the other; the first
/// is copied into `joined` if its record holds bytes of both pieces.
pub(super) fn split<'a>(
    a: &'a [u8],
    b: &'a [u8],
    most: usize,
    joined: &'a mut Vec<u8>,
) -> (&'a [u8], &'a [u8]) {
    let room = RECORD_BYTES.saturating_sub(a.len());
    if a.is_empty() || b.is_empty() || room == 0 {
        let alone = if a.is_empty() { b } else { a };
        return (alone.get(..most).unwrap_or(alone), &[]);
    }
    let (beside, rest) = b.split_at(b.len().min(room));
    joined.clear();
    joined.extend_from_slice(a);
    joined.extend_from_slice(beside);
    (joined, rest.get(..most - RECORD_BYTES).unwrap_or(rest))
}
