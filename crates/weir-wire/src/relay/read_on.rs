//! Reading a body to its end for the watcher: ahead of a slow receiver, and even after the receiver is gone.

use super::{BUFFER_BYTES, Relay, RelayError, Watch};
use crate::Stream;
use std::io;
use std::task::{Context, Poll};

impl Relay {
    /// Reads the body to its end for the watcher, at most `ahead` bytes ahead of a slow receiver. Continues when
    /// writing fails, and reports that error at the end.
    pub const fn read_on(&mut self, ahead: usize) {
        self.read_ahead(ahead);
        self.reads_on = true;
    }

    /// Reads at least this many bytes ahead of a slow receiver, as long as there is one.
    pub const fn read_ahead(&mut self, bytes: usize) {
        if self.ahead < bytes {
            self.ahead = bytes;
            if self.gathers.is_none() {
                self.room = BUFFER_BYTES.saturating_add(bytes);
            }
        }
    }

    /// Reads the body to its end for the watcher and writes nothing, because the receiver already has its whole
    /// answer. The framing must be [`Framing::Close`](super::Framing::Close).
    pub fn discard(&mut self) {
        self.discards = true;
        self.read_on(1);
        self.lost = Some(io::ErrorKind::ConnectionReset.into());
    }

    /// Whether the body is read to its end no matter what happens to its receiver.
    pub const fn reads_on(&self) -> bool {
        self.reads_on
    }

    /// Records that the receiver is gone. Returns whether the watcher still wants the rest of the body.
    #[must_use]
    pub fn lose_receiver(&mut self, why: io::Error) -> bool {
        if self.reads_on && self.lost.is_none() {
            self.lost = Some(why);
        }
        self.reads_on
    }

    /// Whether it may read more while output is pending.
    pub(super) fn reads_ahead(&self) -> bool {
        self.ahead > 0 && !self.finished && self.out.len() - self.written < self.ahead
    }

    /// Reads more input behind the output that the receiver has not taken.
    #[cold]
    pub(super) fn poll_read_ahead(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        watch: Option<&mut dyn Watch>,
    ) -> Poll<Result<(), RelayError>> {
        let (begin, end) = std::mem::take(&mut self.direct);
        if begin < end {
            self.out.extend_from_slice(self.input.get(begin..end).unwrap_or_default());
        }
        if self.written > self.out.len() / 2 {
            self.out.drain(..self.written);
            self.written = 0;
        }
        if self.used < self.input.len() || begin < end {
            return Poll::Ready(Ok(())); // more input to consume
        }
        self.poll_read_in(cx, from, watch)
    }

    /// Reads more for the watcher only. At the end it returns the write error.
    #[cold]
    pub(super) fn poll_read_on(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        watch: Option<&mut dyn Watch>,
    ) -> Poll<Result<(), RelayError>> {
        self.waits_for_writer = false;
        (self.out, self.overflow) = (Vec::new(), None);
        (self.written, self.direct, self.body) = (0, (0, 0), 0);
        if self.finished {
            let why = self.lost.take().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into());
            return Poll::Ready(Err(RelayError::Write(why)));
        }
        if self.used < self.input.len() {
            return Poll::Ready(Ok(())); // more input to consume
        }
        self.poll_read_in(cx, from, watch)
    }
}
