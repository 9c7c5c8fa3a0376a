//! A body that is read to its end for the watcher's sake: ahead of a receiver that is slow, and also when the receiver is gone.

use super::{Relay, RelayError, Watch};
use crate::Stream;
use std::io;
use std::task::{Context, Poll};

impl Relay {
    /// Reads the body to its end for the watcher's sake: at most so many bytes ahead of a receiver that is slow, and also when
    /// writing fails, which is told at the end.
    pub const fn read_on(&mut self, ahead: usize) {
        self.ahead = ahead;
    }

    /// Reads the body to its end for the watcher's sake, and writes nothing: its receiver has had all that it is to get. The framing must be
    /// [`Framing::Close`](super::Framing::Close).
    pub fn discard(&mut self) {
        self.discards = true;
        self.ahead = 1;
        self.lost = Some(io::ErrorKind::ConnectionReset.into());
    }

    /// Whether the body is read to its end whatever becomes of its receiver.
    pub const fn reads_on(&self) -> bool {
        self.ahead > 0
    }

    /// Whether the rest of the body is wanted though its receiver is gone; takes note that it is.
    #[must_use]
    pub fn lose_receiver(&mut self, why: io::Error) -> bool {
        if self.ahead > 0 && self.lost.is_none() {
            self.lost = Some(why);
        }
        self.ahead > 0
    }

    /// Whether more may be read while something waits to be written.
    pub(super) fn reads_ahead(&self) -> bool {
        self.ahead > 0 && !self.finished && self.out.len() - self.written < self.ahead
    }

    /// Reads more, behind what the receiver has not taken.
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
            return Poll::Ready(Ok(())); // there is more to take
        }
        self.poll_read_in(cx, from, watch)
    }

    /// Reads more for the watcher alone; fails at the end, as writing did.
    #[cold]
    pub(super) fn poll_read_on(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Stream,
        watch: Option<&mut dyn Watch>,
    ) -> Poll<Result<(), RelayError>> {
        self.waits_for_writer = false;
        self.out = Vec::new();
        (self.written, self.direct, self.body) = (0, (0, 0), 0);
        if self.finished {
            let why = self.lost.take().unwrap_or_else(|| io::ErrorKind::ConnectionReset.into());
            return Poll::Ready(Err(RelayError::Write(why)));
        }
        if self.used < self.input.len() {
            return Poll::Ready(Ok(())); // there is more to take
        }
        self.poll_read_in(cx, from, watch)
    }
}
