//! Continues a request in the background after a filter has answered its client: through the remaining filters, to
//! the route's target, and back to the filter that asked for it.
//!
//! It is an ordinary exchange on its own task. In place of the client's connection it has one end of a socket pair,
//! whose other end is read and discarded. It appears in no request counter, log line or span. Only the filter's
//! counters and the upstream's attempt counters show it.

use super::Exchange;
use super::record::Recorded;
use crate::client::Client;
use crate::core::{ConnectionHandle, Local};
use smallvec::smallvec;
use std::future::{pending, poll_fn};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;
use weir_filter::filter::Cx;
use weir_h1::RequestHead;
use weir_wire::{Class, Deadline, Peer, Transport};

/// How many bytes of the answer are read at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// Where a request continues.
pub(super) struct Resumed {
    pub(super) route: usize,
    /// The filters that have not run yet.
    pub(super) rest: Box<[u32]>,
}

impl Exchange<'_> {
    /// Starts what a filter requested beside its answer. If that is impossible, the filter notices by the dropped
    /// value.
    #[cold]
    pub(super) fn run_in_background(&mut self) {
        let Some((cx, head, rest)) = self.cx.as_mut().and_then(Cx::take_background) else { return };
        let (Some(route), Ok(ends)) = (self.route, UnixStream::pair()) else { return };
        if ends.0.set_nonblocking(true).and(ends.1.set_nonblocking(true)).is_err() {
            return;
        }
        let client = &*self.client;
        let [ours, other] = [ends.0, ends.1]
            .map(|end| Transport::Plain(client.core.sockets.add(end, Peer::Local, Class::Upstream)));
        let _ = client.owner(); // what both have of it is told by the client's own socket
        // Nothing asks this connection to end.
        let handle = ConnectionHandle::new(&client.listener.spec, false, Waker::noop().clone());
        let client = Client {
            core: Rc::clone(&client.core),
            listener: Rc::clone(&client.listener),
            stream: ours.into(),
            peer: client.peer,
            tls: client.tls,
            certificate: client.certificate.clone(),
            forwarding: Rc::clone(&client.forwarding),
            trusted: client.trusted,
            handle: Rc::new(handle),
            deadline: Deadline::new(),
            generation: client.generation,
        };
        let local = Rc::clone(&self.local);
        let resumed = Resumed { route, rest };
        let core = client.core.handle.clone();
        let _ = core.spawn(run(client, other, (local, cx, head, resumed)));
    }
}

/// Runs the exchange to its end.
async fn run(mut client: Client, other: Transport, what: (Rc<Local>, Cx, Box<RequestHead>, Resumed)) {
    let (local, cx, head, resumed) = what;
    let work = async {
        let mut exchange = Exchange::new(&mut client, head, Instant::now());
        exchange.hooks = local.snapshot.filters[cx.filter as usize].hooks;
        exchange.ran = smallvec![cx.filter];
        exchange.local = local; // the filters that gave the answer, even after a reload
        exchange.route = Some(resumed.route);
        exchange.cx = Some(cx);
        exchange.resumed = Some(Box::new(resumed));
        let mut recorded = Recorded::new(&mut exchange);
        recorded.exchange.serve().await;
        recorded.ended = true;
    };
    let (mut work, mut reading) = (pin!(work), pin!(read_off(other)));
    poll_fn(|task| {
        let _ = reading.as_mut().poll(task);
        work.as_mut().poll(task)
    })
    .await;
}

/// Reads and discards the answer. Never ends.
async fn read_off(mut other: Transport) {
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    while poll_fn(|cx| other.poll_read(cx, &mut piece)).await.is_ok_and(|read| read > 0) {
        piece.clear();
    }
    pending().await
}
