//! A client connection that speaks HTTP/2.

use super::multiplexed::{self, Fault, Parts, count};
use crate::client::Client;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use weir_h1::RequestHead;
use weir_telemetry::{Closed, Protocol};
use weir_upstream::error::{self, Cause};
use weir_wire::h2::{self, Arrival, Flood, Server};
use weir_wire::{Peer, Stream};

/// How long a client may take to begin HTTP/2 once its connection is to close: its first bytes may have arrived without
/// having been reported.
const LAST_CALL: Duration = Duration::from_millis(250);

/// Serves a connection until it ends. `early` holds the bytes already read.
pub(super) async fn serve(client: Client, early: Vec<u8>) -> Closed {
    let _ = client.owner(); // its streams have no socket that knows the local address
    let Client {
        core,
        listener,
        stream,
        peer,
        tls,
        certificate,
        forwarding,
        trusted,
        handle,
        mut deadline,
        generation,
    } = client;
    let Stream::Direct(transport) = stream else { return Closed::Error }; // a stream carries none
    let limits = core.local().snapshot.h2;
    deadline.set(Instant::now(), listener.spec.timeouts.head);
    let begin = Server::begin(transport, early, &limits);
    let mut is_last_call = false;
    let silent = poll_fn(|cx| {
        if handle.overdue.get() && !std::mem::replace(&mut is_last_call, true) {
            deadline.set(Instant::now(), LAST_CALL);
        }
        deadline.poll_passed(cx)
    });
    let begun = tokio::select! {
        begun = begin => begun,
        () = silent => {
            if handle.overdue.get() {
                return Closed::Drain;
            }
            core.lost(&error::HEAD_TIMEOUT, &listener.spec.name, peer, "");
            return Closed::Timeout;
        }
    };
    let server = match begun {
        Ok(server) => server,
        Err(fault) => return count(&core, cause(fault), &listener, peer),
    };
    let parts =
        Parts { core, listener, peer, tls, certificate, forwarding, trusted, handle, deadline, generation };
    multiplexed::serve(parts, server, limits.streams as usize).await
}

impl multiplexed::Server for Server {
    const PROTOCOL: Protocol = Protocol::Http2;
    type Arrival = Arrival;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Arrival>, Fault>> {
        self.poll_accept(cx).map_err(cause)
    }

    fn fault(&self) -> Option<Fault> {
        self.fault().map(cause)
    }

    fn end(&mut self, is_flood: bool) {
        self.end(if is_flood { h2::Fault::Flood(Flood::Resets) } else { h2::Fault::Closed });
    }

    fn count_error(&mut self) {
        self.count_error();
    }

    fn drain(&mut self) {
        self.drain();
    }

    fn silence(&mut self) -> Option<&'static Cause> {
        (!self.is_alive()).then_some(&error::H2_PING_TIMEOUT)
    }

    fn blocked(&self) -> Option<Instant> {
        self.blocked()
    }

    fn head_since(&self) -> Option<Instant> {
        self.head_since()
    }

    fn abandon_heads(&mut self, _: Instant) -> bool {
        false
    }

    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_discard(cx)
    }

    fn rest(&mut self) {
        self.rest();
    }

    fn peer(&self) -> Option<Peer> {
        None
    }
}

impl multiplexed::Arrival for Arrival {
    fn repeats(&self) -> u32 {
        self.repeats()
    }

    fn accept(self, text: &mut Vec<u8>) -> Stream {
        Stream::H2(self.accept(text))
    }

    fn mark(head: &mut RequestHead, is_over: bool) {
        head.came_by_http2(is_over);
    }

    fn refuse(self) {
        self.refuse();
    }
}

const fn cause(fault: h2::Fault) -> Fault {
    Some(match fault {
        h2::Fault::Closed => return None,
        h2::Fault::Protocol => &error::H2_PROTOCOL,
        h2::Fault::Flood(flood) => match flood {
            Flood::Continuation => &error::H2_CONTINUATION_FLOOD,
            Flood::Data => &error::H2_DATA_FLOOD,
            Flood::Errors => &error::H2_ERROR_FLOOD,
            Flood::Ping => &error::H2_PING_FLOOD,
            Flood::Priority => &error::H2_PRIORITY_FLOOD,
            Flood::Resets => &error::H2_RESET_FLOOD,
            Flood::Settings => &error::H2_SETTINGS_FLOOD,
            Flood::WindowUpdate => &error::H2_WINDOW_FLOOD,
        },
    })
}
