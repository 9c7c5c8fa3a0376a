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
use crate::snapshot::{Handling, Snapshot};
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
        let Some((cx, head)) = self.cx.as_mut().and_then(Cx::take_background) else { return };
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
        let plan = cx.consumer().and_then(|consumer| consumer.plan);
        let rest = rest_of(&local.snapshot, &local.routes[route].handling, plan, &self.ran);
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

/// The route's filters that have not run, given those in `ran`. The filters of the consumer's plan follow the filter
/// that named the consumer, which is where `ran` departs from the route's own.
fn rest_of(snapshot: &Snapshot, route: &Handling, plan: Option<usize>, ran: &[u32]) -> Box<[u32]> {
    let of_plan: Vec<u32> = plan.map_or_else(Vec::new, |plan| snapshot.plan_filters(plan, route).collect());
    remaining(&route.chain, &of_plan, ran)
}

fn remaining(chain: &[u32], of_plan: &[u32], ran: &[u32]) -> Box<[u32]> {
    let mut rest = Vec::new();
    let mut ran = ran.iter().peekable();
    for filter in chain {
        if ran.next_if_eq(&filter).is_none() {
            rest.push(*filter);
            continue;
        }
        let began = ran.peek().is_some_and(|next| of_plan.first() == Some(next));
        if began {
            rest.extend(of_plan.iter().filter(|filter| ran.next_if_eq(filter).is_none()));
        }
    }
    rest.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_run() {
        let of = |chain: &[u32], plan: &[u32], ran: &[u32]| remaining(chain, plan, ran).to_vec();
        assert_eq!(of(&[1, 2, 3], &[], &[1]), [2, 3]);
        assert_eq!(of(&[1, 2, 3], &[], &[1, 2, 3]), [0; 0]);
        assert_eq!(of(&[1, 2, 3], &[7, 8], &[1, 7, 8, 2]), [3]);
        assert_eq!(of(&[1, 2, 3], &[7, 8], &[1, 2, 7]), [8, 3]);
        assert_eq!(of(&[1, 2, 3], &[7, 8], &[1, 2, 7, 8]), [3]);
        assert_eq!(of(&[1, 2], &[7], &[1]), [2], "nobody was named yet");
    }
}
