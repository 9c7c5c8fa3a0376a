//! What system calls have received and the endpoint has not processed yet.

use quinn_udp::{RecvMeta, UdpSocketState};
use std::io::{self, IoSliceMut};
use std::task::{Context, Poll, ready};
use weir_wire::Datagrams;

/// Datagrams (or batches that the kernel merged, up to 64 KiB each) taken per system call.
const BATCH: usize = 8;

/// Bytes of a merged batch (UDP_GRO).
const MERGED: usize = 64 * 1024;

/// The datagrams of one system call, as far as they are left.
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    metas: [RecvMeta; BATCH],
    /// How many of `metas` are filled.
    count: usize,
    /// The current one of them, and the offset of its next datagram.
    at: usize,
    offset: usize,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        let metas = [RecvMeta::default(); BATCH];
        Self { bytes: vec![0; BATCH * MERGED], metas, count: 0, at: 0, offset: 0 }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.at >= self.count
    }

    /// Receives the next datagrams, once all earlier ones were taken.
    ///
    /// # Errors
    /// The system's, among them ICMP errors of what was sent to others.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &Context<'_>,
        socket: &Datagrams,
        udp: &UdpSocketState,
    ) -> Poll<io::Result<()>> {
        (self.count, self.at, self.offset) = (0, 0, 0);
        let mut slices = self.bytes.chunks_mut(MERGED).map(IoSliceMut::new).collect::<Vec<_>>();
        let received = socket.poll_receive(cx, |fd| udp.recv((&fd).into(), &mut slices, &mut self.metas));
        Poll::Ready(ready!(received).map(|count| self.count = count))
    }

    /// The next datagram.
    pub(crate) fn next(&mut self) -> Option<(&RecvMeta, &[u8])> {
        while self.at < self.count {
            let meta = self.metas.get(self.at)?;
            let all = self.bytes.get(self.at * MERGED..)?.get(..meta.len)?;
            let rest = all.get(self.offset..).unwrap_or_default();
            if !rest.is_empty() {
                let len = rest.len().min(meta.stride.max(1));
                self.offset += len;
                return rest.get(..len).map(|datagram| (meta, datagram));
            }
            (self.at, self.offset) = (self.at + 1, 0);
        }
        None
    }
}
