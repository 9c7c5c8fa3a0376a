//! Opens connections and lets targets close them.

use super::{EndReason, Worker};
use crate::clock;
use crate::transport::failure::Failure;
use crate::transport::proxy;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use weir_wire::{Transport, time};

/// A connection that took this long may have needed a second SYN: the kernel repeats it after a second (RFC 6298 §2).
/// Slightly less, for differences between clocks.
const SYN_AGAIN: Duration = Duration::from_millis(900);

/// How long the target gets to close a connection, so that TIME_WAIT stays on its side and not on ours.
const CLOSE: Duration = Duration::from_secs(1);

/// Most connections of a thread that wait for this. Each holds a descriptor; a target that ignores `Connection:
/// close` would cost a second's worth of them. A target that obeys stays far below: with closes of 10 ms, 128 at a
/// time are 12,800 per second and thread.
const CLOSING_MOST: usize = 128;

impl Worker {
    /// Opens a connection for the client of slot `i`; returns it with its times: blocked, connecting, TLS.
    pub(crate) async fn dial_to(
        &self,
        origin: usize,
        i: usize,
        timeout: Duration,
    ) -> Result<(Transport, [u64; 3]), Failure> {
        let Some(to) = self.plan.origins.get(origin) else { return Err(Failure::Cut) };
        let begun = self.clock.now();
        let mut dialling = pin!(proxy::open(to, self.connection(i), timeout));
        let slot = &self.slots[i];
        let dialled = poll_fn(|cx| {
            slot.watch(cx);
            if let Some(EndReason::Cut) = slot.end.get() {
                return Poll::Ready(Err(Failure::Cut));
            }
            dialling.as_mut().poll(cx)
        })
        .await?;
        let blocked = self.clock.now() - begun;
        self.opened.set(self.opened.get() + 1);
        self.dial.borrow_mut().record(blocked);
        if self.counts(self.clock.now()) {
            let mut tally = self.tally.borrow_mut();
            tally.opened += 1;
            tally.resumed += u64::from(dialled.transport.has_resumed());
        }
        self.shared.saw(&dialled.transport, to.proxy.as_ref());
        if dialled.connect >= SYN_AGAIN && dialled.transport.socket().has_retransmitted() {
            self.tally.borrow_mut().syn_again += u64::from(self.counts(self.clock.now()));
        }
        let times = [blocked, clock::nanos(dialled.connect), clock::nanos(dialled.tls)];
        Ok((dialled.transport, times))
    }

    /// Opens a QUIC connection for the client of slot `i`; returns it with its times: blocked, connecting, TLS. The
    /// handshake of QUIC is that of TLS too, so nothing is left for TLS, as in curl.
    #[cfg(feature = "http3")]
    pub(crate) async fn dial_quic(
        &self,
        origin: usize,
        i: usize,
        timeout: Duration,
    ) -> Result<(weir_quic::Connection, [u64; 3]), Failure> {
        let Some(to) = self.plan.origins.get(origin) else { return Err(Failure::Cut) };
        let begun = self.clock.now();
        let mut dialling = pin!(self.endpoints.dial(to, self.connection(i), timeout));
        let slot = &self.slots[i];
        let (quic, handshake) = poll_fn(|cx| {
            slot.watch(cx);
            if let Some(EndReason::Cut) = slot.end.get() {
                return Poll::Ready(Err(Failure::Cut));
            }
            dialling.as_mut().poll(cx)
        })
        .await?;
        let blocked = self.clock.now() - begun;
        self.opened.set(self.opened.get() + 1);
        self.dial.borrow_mut().record(blocked);
        if self.counts(self.clock.now()) {
            let mut tally = self.tally.borrow_mut();
            tally.opened += 1;
            tally.syn_again += u64::from(handshake >= SYN_AGAIN && quic.lost_packets() > 0);
        }
        self.shared.saw_quic(quic.alpn().as_deref());
        Ok((quic, [blocked, clock::nanos(handshake), 0]))
    }

    /// Lets the target close, as it announced. Beyond [`CLOSING_MOST`] we close.
    pub(crate) fn close(self: &Rc<Self>, mut stream: Transport) {
        let closing = self.closing.get();
        if closing >= CLOSING_MOST {
            return;
        }
        self.closing.set(closing + 1);
        let worker = Rc::clone(self);
        let end = async move {
            let mut rest = Vec::new();
            // Then we close.
            let _ = time::timeout(CLOSE, poll_fn(|cx| stream.poll_read(cx, &mut rest))).await;
            drop(stream);
            worker.closing.set(worker.closing.get() - 1);
        };
        drop(tokio::task::spawn_local(end));
    }
}
