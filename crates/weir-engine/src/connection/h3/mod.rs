//! A client connection that speaks HTTP/3: `session` joins the codec of weir-h3 and a connection of weir-quic, `server`
//! hands out its requests, and `stream` is one of them.

mod server;
mod session;
mod stream;

use super::multiplexed::{self, Fault, Parts};
use super::{Left, complain_of_limit, complain_of_listener};
use crate::core::{ConnectionHandle, Core, LocalListener, SentOn};
use crate::forward::Forwarding;
use crate::snapshot::{Destination, Serves, Snapshot};
use server::{Arrival, Server};
use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;
use weir_h1::RequestHead;
use weir_h3::{Bounds, Flood, FloodLimits, code};
use weir_quic::Connection;
use weir_telemetry::{Closed, Protocol};
use weir_upstream::error::{self, Cause};
use weir_wire::tls::PeerCertificate;
use weir_wire::{Deadline, Peer, Stream};

/// Serves a connection that arrived at the UDP socket of this address, from the end of its handshake to its end.
pub(crate) async fn serve(core: Rc<Core>, address: SocketAddr, connection: Connection) {
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let local = core.local();
    let mark = connection.mark();
    // A reload may have come during the handshake. What the listener requires now, the client has not shown then.
    let is_current =
        |listener: &LocalListener| listener.spec.http3.as_deref().is_some_and(|http3| http3.policy.0 == mark);
    let Some((listener, outer)) = local.behind(address).filter(|(listener, _)| is_current(listener)) else {
        core.shared.arrived();
        return connection.close(code::NO_ERROR);
    };
    let (listener, outer) = (Rc::clone(listener), outer.cloned());
    drop(local);
    let peer = Peer::Address(connection.peer());
    let at = outer.as_ref().unwrap_or(&listener);
    let ends = core.ends();
    let handle = Rc::new(ConnectionHandle::of_quic(&at.spec, &listener.spec, ends, waker));
    let held = core.shared.connections.fetch_add(1, Ordering::Relaxed);
    let number = core.enter(&handle);
    let cells = std::sync::Arc::clone(&listener.cells);
    cells.open();
    cells.handshakes_ok.inc();
    let mut left = Left { core: &core, number, cells, is_accepted: true, client: None, closed: None };
    // The UDP socket leads here whatever name is asked for. TCP is where a client finds the other listeners.
    let name = connection.server_name();
    if outer.as_ref().is_some_and(|outer| !leads_to(&core, outer, name.as_deref(), &listener)) {
        let said =
            name.map_or_else(|| "it asked for no name".to_owned(), |name| format!("it asked for {name}"));
        core.lost(&error::SNI_UNKNOWN, &listener.spec.name, peer, &said);
        left.closed = Some(Closed::Refused);
        connection.close(code::REQUEST_REJECTED);
        return say(&connection).await;
    }
    let is_counted = connection.began_proved();
    let places = match places(&core, &[Some(&listener), outer.as_ref()], peer, held, is_counted, &mut left) {
        Ok(places) => places,
        Err(cause) => {
            core.lost(cause, &listener.spec.name, peer, "");
            left.closed = Some(Closed::Limit);
            connection.close(code::EXCESSIVE_LOAD);
            return say(&connection).await;
        }
    };
    if let Some(outer) = outer {
        let inner = listener
            .spec
            .http3
            .as_ref()
            .map(|http3| (std::sync::Arc::clone(&listener.spec.name), http3.policy));
        let sent = SentOn { client: Cell::new(peer.ip()), inner, bytes: false };
        let _ = handle.sent.set(Box::new(sent)); // it was empty
        drop(outer);
    }
    let forwarding = Rc::new(Forwarding::new(peer.ip(), true, true, name.as_deref()));
    let here = SocketAddr::new(connection.local_ip().unwrap_or(address.ip()), address.port());
    let _ = forwarding.owner(peer, || Some(here));
    let chain = connection.peer_certificates();
    let certificate = chain.as_deref().and_then(<[_]>::first).map(|leaf| Rc::new(PeerCertificate::of(leaf)));
    let bounds = bounds(&core.local().snapshot);
    let parts = Parts {
        core: Rc::clone(&core),
        listener,
        peer,
        tls: true,
        certificate,
        forwarding,
        trusted: false, // until the first request adopts a listener
        handle,
        deadline: Deadline::new(),
        generation: 0,
    };
    let server = Server::new(connection.clone(), bounds);
    left.closed = Some(multiplexed::serve(parts, server, bounds.streams).await);
    drop(places);
    say(&connection).await;
}

/// Whether the `sni` of an address leads clients that ask for this name to a listener.
fn leads_to(core: &Core, outer: &LocalListener, name: Option<&str>, listener: &LocalListener) -> bool {
    let Serves::Sni(names) = &outer.spec.serves else { return false };
    let local = core.local();
    match name.and_then(|name| names.named(name)).or(names.otherwise) {
        Some(Destination::Listener(at)) => {
            local.listeners.get(at).is_some_and(|there| there.spec.name == listener.spec.name)
        }
        Some(Destination::Upstream(_)) | None => false,
    }
}

/// Lets the endpoint send the end of a connection, before its core counts it as gone and may end.
async fn say(connection: &Connection) {
    weir_wire::yield_now().await;
    let _ = poll_fn(|cx| connection.poll_lost(cx)).await;
}

/// The slots that a connection holds in the limits of its listeners.
type Places = Vec<crate::snapshot::HeldPlace>;

/// Acquires a connection's slot in every limit. `is_counted`: its handshake was counted when it began.
fn places(
    core: &Core,
    listeners: &[Option<&Rc<LocalListener>>],
    peer: Peer,
    held: usize,
    is_counted: bool,
    left: &mut Left<'_>,
) -> Result<Places, &'static Cause> {
    if held >= core.local().snapshot.connections {
        complain_of_limit();
        return Err(&error::CONNECTION_LIMIT);
    }
    let mut places = Vec::new();
    for listener in listeners.iter().flatten() {
        if let Some(limit) = &listener.spec.limit {
            let Some(place) = limit.take() else {
                complain_of_listener(&listener.spec.name);
                return Err(&error::CONNECTION_LIMIT);
            };
            places.push(place);
        }
    }
    if !is_counted {
        super::greet::admit_handshake(core, peer)?;
    }
    left.client = super::greet::admit(core, peer)?;
    Ok(places)
}

/// The limits for HTTP/3: those of `limits.h2` wherever HTTP/3 has an equivalent.
fn bounds(snapshot: &Snapshot) -> Bounds {
    let h2 = &snapshot.h2;
    let usual = Bounds::default();
    Bounds {
        streams: h2.streams as usize,
        text: h2.header_bytes.saturating_mul(2) as usize,
        heads: h2.heads as usize,
        floods: FloodLimits {
            empty_data: h2.floods.empty_data,
            errors: h2.floods.errors,
            priorities: h2.floods.priorities,
            pushes: h2.floods.settings,
            resets: h2.floods.resets,
            ..usual.floods
        },
        ..usual
    }
}

impl multiplexed::Server for Server {
    const PROTOCOL: Protocol = Protocol::Http3;
    type Arrival = Arrival;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Arrival>, Fault>> {
        self.poll_accept(cx).map_err(cause)
    }

    fn fault(&self) -> Option<Fault> {
        self.fault().map(cause)
    }

    fn end(&mut self, is_flood: bool) {
        if is_flood {
            self.end_flood(Flood::Resets);
        } else {
            self.end();
        }
    }

    fn count_error(&mut self) {
        self.count_error();
    }

    fn drain(&mut self) {
        self.drain();
    }

    fn silence(&mut self) -> Option<&'static Cause> {
        self.ping(); // a client that does not answer is lost by QUIC's idle timeout
        None
    }

    fn blocked(&self) -> Option<Instant> {
        None // each stream has flow control of its own, and the exchange a timeout
    }

    fn head_since(&self) -> Option<Instant> {
        self.head_since()
    }

    fn abandon_heads(&mut self, since: Instant) -> bool {
        self.abandon_heads(since);
        true
    }

    fn poll_discard(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(()) // the endpoint answers late packets with the reason
    }

    fn rest(&mut self) {
        self.rest();
    }

    fn peer(&self) -> Option<Peer> {
        Some(Peer::Address(self.peer()))
    }
}

impl multiplexed::Arrival for Arrival {
    fn accept(self, text: &mut Vec<u8>) -> Stream {
        Stream::Carried(Box::new(self.accept(text)))
    }

    fn mark(head: &mut RequestHead, is_over: bool) {
        head.came_by_http3(is_over);
    }

    fn refuse(self) {
        self.refuse();
    }
}

const fn cause(fault: server::Fault) -> Fault {
    Some(match fault {
        server::Fault::Closed => return None,
        server::Fault::Packets => &error::H3_PACKET_FLOOD,
        server::Fault::Protocol(_) => &error::H3_PROTOCOL,
        server::Fault::Flood(flood) => match flood {
            Flood::Data => &error::H3_DATA_FLOOD,
            Flood::Errors => &error::H3_ERROR_FLOOD,
            Flood::Insertions => &error::H3_INSERT_FLOOD,
            Flood::Priority => &error::H3_PRIORITY_FLOOD,
            Flood::Push => &error::H3_PUSH_FLOOD,
            Flood::Resets => &error::H3_RESET_FLOOD,
            Flood::Streams => &error::H3_STREAM_FLOOD,
        },
    })
}
