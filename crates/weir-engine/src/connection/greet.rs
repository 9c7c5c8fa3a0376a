//! What precedes the first request, or the first byte that is passed on: a trusted balancer's PROXY header, the name in
//! the ClientHello, a TLS handshake.

use super::Left;
use crate::core::{ConnectionHandle, Core, Local, LocalListener, SentOn};
use crate::per_client::{Place, TooMany};
use crate::snapshot::{Destination, Passing, Serves};
use std::cell::Cell;
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};
use weir_config::units::Frequency;
use weir_telemetry::{Closed, log};
use weir_upstream::error::{self, Cause};
use weir_upstream::upstream::LocalUpstream;
use weir_wire::client_hello::{self, Hello};
use weir_wire::tls::{Handshake, ServerTls};
use weir_wire::{Peer, Socket, Transport, proxy_protocol, time, tls};

/// The result of what precedes HTTP on a connection.
pub(super) enum Greeted {
    /// A certificate authority, which got what it wanted in the handshake.
    Authority,
    /// A client that has sent nothing on a connection that is to close.
    Idle,
    /// A client of HTTP that has too many connections.
    Excess { listener: Rc<LocalListener>, socket: Socket, peer: Peer, cause: &'static Cause },
    /// A client, ready for its first request or byte.
    Client {
        /// The listener that serves it.
        listener: Rc<LocalListener>,
        /// The generation of the snapshot that `listener` is from; 0 if a reload may have happened since.
        generation: u64,
        transport: Transport,
        peer: Peer,
        /// The client speaks plain HTTP on a TLS port.
        plain: bool,
        /// False if a PROXY header names no client.
        named: bool,
        /// Where its bytes go, if they are passed on.
        passing: Option<Box<PassedOn>>,
    },
}

/// A connection whose bytes are passed on.
pub(super) struct PassedOn {
    pub(super) upstream: Rc<LocalUpstream>,
    pub(super) passing: Passing,
    /// The name that the client asked for.
    pub(super) name: Option<String>,
    pub(super) since: Instant,
}

/// Why the connection failed before its first request or byte.
pub(super) struct Ungreeted {
    /// The listener that it failed at.
    pub(super) at: Rc<LocalListener>,
    pub(super) cause: &'static Cause,
    pub(super) peer: Peer,
    pub(super) closed: Closed,
    /// The error text. `None` for a balancer's health check.
    pub(super) said: Option<String>,
}

/// A connection whose listener is known.
struct Known {
    listener: Rc<LocalListener>,
    peer: Peer,
    named: bool,
    /// Where its bytes go, if its name decided that.
    to: Option<(Rc<LocalUpstream>, Passing)>,
    name: Option<String>,
}

/// A cause and its error text.
type Refused = (&'static Cause, Option<String>);

/// Does what the listener requires first. `left` counts the connection at the listener that serves it.
pub(super) async fn greet(
    listener: Rc<LocalListener>,
    socket: Socket,
    peer: Peer,
    handle: &ConnectionHandle,
    left: &mut Left<'_>,
) -> Result<Greeted, Ungreeted> {
    let since = Instant::now();
    let mut known = Known { listener, peer, named: true, to: None, name: None };
    let outer = Rc::clone(&known.listener);
    let end = end_of(since, &outer);
    let is_http = matches!(outer.spec.serves, Serves::Http);
    if outer.spec.proxy_protocol || !is_http {
        let arriving = arrive(&mut known, &socket, left);
        if let Err((cause, said)) = within(end, &outer, peer, arriving).await {
            let is_refused = *cause == error::ADDRESS_REFUSED || *cause == error::SNI_UNKNOWN;
            let closed = match is_refused {
                _ if *cause == error::CLIENT_CONNECTIONS => Closed::Limit,
                true => Closed::Refused,
                false => Closed::Handshake,
            };
            return Err(Ungreeted { at: outer, cause, peer: known.peer, closed, said });
        }
    }
    let Known { listener, peer, named, to, name } = known;
    if is_http {
        match admit(left.core, peer) {
            Ok(place) => left.client = place,
            Err(cause) => return Ok(Greeted::Excess { listener, socket, peer, cause }),
        }
    }
    let is_inner = !Rc::ptr_eq(&listener, &outer);
    let is_bytes = to.is_some() || matches!(listener.spec.serves, Serves::Tcp(_));
    if !is_http {
        left.settle(&listener.cells);
        let inner = is_inner.then(|| (std::sync::Arc::clone(&listener.spec.name), listener.spec.policy));
        let sent = SentOn { client: Cell::new(peer.ip()), inner, bytes: is_bytes };
        let _ = handle.sent.set(Box::new(sent)); // it was empty
    }
    // The handshake with a listener that was chosen by name has that one's time.
    let end = if is_inner { end_of(Instant::now(), &listener) } else { end };
    let secured = match &listener.spec.tls {
        None => Ok(Secured::Client(Transport::Plain(socket), false)),
        Some(tls) => {
            within(end, &listener, peer, secure(left.core, &listener, tls, (socket, peer), handle)).await
        }
    };
    let failed =
        |(cause, said): Refused, closed| Ungreeted { at: Rc::clone(&listener), cause, peer, closed, said };
    let (transport, plain) = match secured {
        Ok(Secured::Authority) => return Ok(Greeted::Authority),
        Ok(Secured::Idle) => return Ok(Greeted::Idle),
        Ok(Secured::Client(transport, plain)) => (transport, plain),
        Err(e) => return Err(failed(e, Closed::Handshake)),
    };
    let passing = if is_bytes {
        let to = to.map_or_else(|| of_listener(left.core, handle), Ok);
        let (upstream, passing) = to.map_err(|e| failed(e, Closed::Drain))?;
        Some(Box::new(PassedOn { upstream, passing, name, since }))
    } else {
        None
    };
    Ok(Greeted::Client { listener, generation: 0, transport, peer, plain, named, passing })
}

/// Where the listener that serves a connection passes bytes on to now: a reload may have come since it was accepted.
fn of_listener(core: &Core, handle: &ConnectionHandle) -> Result<(Rc<LocalUpstream>, Passing), Refused> {
    let local = core.local();
    match local.serving(handle).map(|listener| &listener.spec.serves) {
        Some(Serves::Tcp(passing)) => local.passed_on(*passing),
        _ => Err((&error::SHUTDOWN, Some("its listener is gone".to_owned()))),
    }
}

/// When the time of a listener for a handshake is over.
fn end_of(since: Instant, listener: &LocalListener) -> Option<Instant> {
    let limit = listener.spec.timeouts.handshake;
    if limit.is_zero() { None } else { since.checked_add(limit) }
}

async fn within<T>(
    end: Option<Instant>,
    listener: &LocalListener,
    peer: Peer,
    work: impl Future<Output = Result<T, Refused>>,
) -> Result<T, Refused> {
    let Some(end) = end else { return work.await };
    let limit = end.saturating_duration_since(Instant::now());
    time::timeout(limit, work).await.unwrap_or_else(|_| {
        handshake_failed(listener, peer, &"it took longer than timeouts.handshake");
        Err((&error::HANDSHAKE_TIMEOUT, Some(String::new())))
    })
}

/// Reads the PROXY header, checks the address, and finds the listener or upstream by name.
async fn arrive(known: &mut Known, socket: &Socket, left: &mut Left<'_>) -> Result<(), Refused> {
    let spec = std::sync::Arc::clone(&known.listener.spec);
    if spec.proxy_protocol {
        if !left.core.local().snapshot.trusts(known.peer.ip()) {
            return Err((&error::PROXY_HEADER, Some("its address is not one of trusted_proxies".to_owned())));
        }
        let said = proxy_protocol::read(socket).await;
        match said.map_err(|e| (&error::PROXY_HEADER, Some(e.to_string())))? {
            Some(said) => known.peer = Peer::Address(said),
            None => known.named = false,
        }
    }
    if !spec.admits(known.peer.ip()) {
        return Err((&error::ADDRESS_REFUSED, Some(String::new())));
    }
    // A client of HTTP gets an answer instead: see `greet`. Before the name, so that silent ones count.
    if !matches!(spec.serves, Serves::Http) {
        let refused = |cause| (cause, Some(String::new()));
        left.client = admit(left.core, known.peer).map_err(refused)?;
    }
    if !matches!(spec.serves, Serves::Sni(_)) {
        return Ok(());
    }
    let (name, what) = match asked_for(socket).await {
        Ok(asked) => asked,
        Err((cause, said)) => {
            match &said {
                Some(said) => handshake_failed(&known.listener, known.peer, said),
                None => known.listener.cells.handshakes_failed.inc(), // a port check is not logged
            }
            return Err((cause, said));
        }
    };
    // From here to the end nothing waits: a reload that came in between is obeyed, and indexes fit.
    let local = left.core.local();
    let outer = spec.address.as_ref().and_then(|address| local.listener(address));
    let Some(Serves::Sni(names)) = outer.map(|outer| &outer.spec.serves) else {
        return Err((&error::SHUTDOWN, Some("its listener is gone".to_owned())));
    };
    let named = name.as_deref().and_then(|name| names.named(name));
    match named.or(names.otherwise) {
        Some(Destination::Upstream(passing)) => known.to = Some(local.passed_on(passing)?),
        Some(Destination::Listener(at)) => {
            let inner = local.listeners.get(at).cloned();
            known.listener = inner.ok_or((&error::INTERNAL, None))?; // indexes of a snapshot are its own
        }
        None => {
            let said = name.map_or_else(|| what.to_owned(), |name| format!("it asked for {name}"));
            return Err((&error::SNI_UNKNOWN, Some(said)));
        }
    }
    known.name = name;
    Ok(())
}

/// The name that the ClientHello asks for, or why there is none.
async fn asked_for(socket: &Socket) -> Result<(Option<String>, &'static str), Refused> {
    let decide = |bytes: &[u8]| match client_hello::server_name(bytes) {
        Hello::More(needed) => Err(needed),
        decided => Ok(decided),
    };
    let hello = socket.peek_until(decide).await;
    match hello.map_err(|e| (&error::HANDSHAKE_FAILED, Some(e.to_string())))? {
        // Balancers check this way whether a port is open.
        None => Err((&error::HANDSHAKE_FAILED, None)),
        Some(Hello::Name(name)) => Ok((Some(name), "")),
        Some(Hello::None) => Ok((None, "it asked for no name")),
        Some(Hello::NotTls | Hello::More(_)) => Ok((None, "it speaks no TLS")),
        Some(Hello::TooLong) => {
            let said = format!("its ClientHello is longer than {} bytes", client_hello::HELLO_BYTES);
            Err((&error::HANDSHAKE_FAILED, Some(said)))
        }
    }
}

impl Local {
    /// The upstream that gets bytes.
    fn passed_on(&self, passing: Passing) -> Result<(Rc<LocalUpstream>, Passing), Refused> {
        let upstream = self.upstreams.get(passing.upstream).cloned();
        Ok((upstream.ok_or((&error::INTERNAL, None))?, passing)) // indexes of a snapshot are its own
    }
}

/// Counts a connection of a client, `limits.per_client`; the cause if it has too many. `None` if it is not limited: by
/// the config, or as a trusted proxy.
pub(super) fn admit(core: &Core, peer: Peer) -> Result<Option<Place>, &'static Cause> {
    let local = core.local();
    let most = local.snapshot.per_client.connections.filter(|_| !local.snapshot.trusts(peer.ip()));
    let Some(most) = most else { return Ok(None) };
    core.shared.clients.admit(peer, most).map_err(|TooMany| {
        complain(peer, "limits.per_client.connections reached: a client's new connections are turned away");
        &error::CLIENT_CONNECTIONS
    })
}

/// The same for a TLS handshake that a client begins.
pub(super) fn admit_handshake(core: &Core, peer: Peer) -> Result<(), &'static Cause> {
    let Some(most) = most_handshakes(core, peer) else { return Ok(()) };
    core.shared.clients.admit_handshake(peer, most).map_err(|TooMany| {
        complain(peer, "limits.per_client.handshakes reached: a client's new connections are closed");
        &error::CLIENT_HANDSHAKES
    })
}

/// The same for a QUIC client's first packet. Without a proof, its address may be forged.
pub(crate) fn admit_quic(core: &Core, peer: Peer, is_proved: bool) -> Result<(), &'static Cause> {
    if is_proved {
        return admit_handshake(core, peer);
    }
    let Some(most) = most_handshakes(core, peer) else { return Ok(()) };
    core.shared.clients.admit_unproved(peer, most).map_err(|TooMany| &error::CLIENT_HANDSHAKES)
}

/// How many handshakes this client may begin, if they are limited: by the config, and not for a trusted proxy.
fn most_handshakes(core: &Core, peer: Peer) -> Option<Frequency> {
    let local = core.local();
    local.snapshot.per_client.handshakes.filter(|_| !local.snapshot.trusts(peer.ip()))
}

fn complain(peer: Peer, what: &'static str) {
    static SEEN: log::PerSubject = log::per_subject(1, Duration::from_secs(10));
    SEEN.warn(peer.ip(), what, &[("client", &peer)]);
}

/// The result of a handshake.
enum Secured {
    Authority,
    Idle,
    /// A client, and whether it speaks plain HTTP.
    Client(Transport, bool),
}

async fn secure(
    core: &Core,
    listener: &LocalListener,
    tls: &ServerTls,
    (socket, peer): (Socket, Peer),
    handle: &ConnectionHandle,
) -> Result<Secured, Refused> {
    // A TLS record begins with 22, an HTTP request with a letter.
    let Some(first) = first_byte(&socket, handle).await else { return Ok(Secured::Idle) };
    let is_http = matches!(listener.spec.serves, Serves::Http);
    if is_http && matches!(first, Ok(Some(letter)) if letter.is_ascii_alphabetic()) {
        handshake_failed(listener, peer, &"the client speaks plain HTTP");
        return Ok(Secured::Client(Transport::Plain(socket), true));
    }
    let silent = matches!(first, Ok(None));
    if !silent {
        admit_handshake(core, peer).map_err(|cause| (cause, Some(String::new())))?;
    }
    match tls.accept(socket).await {
        Ok(Handshake::Client(stream)) => {
            listener.cells.handshakes_ok.inc();
            Ok(Secured::Client(stream.into(), false))
        }
        Ok(Handshake::Proof) => {
            listener.cells.handshakes_ok.inc();
            Ok(Secured::Authority)
        }
        // Balancers check this way whether a port is open.
        Err(_) if silent => {
            listener.cells.handshakes_failed.inc();
            Err((&error::HANDSHAKE_FAILED, None))
        }
        Err(e) => {
            let why = tls::why_client_failed(&e).to_string();
            handshake_failed(listener, peer, &why);
            Err((&error::HANDSHAKE_FAILED, Some(why)))
        }
    }
}

/// The first byte that a client sends, which stays unread. `None` if the connection is to close before that.
async fn first_byte(socket: &Socket, handle: &ConnectionHandle) -> Option<io::Result<Option<u8>>> {
    let mut has_looked = false;
    poll_fn(|cx| {
        loop {
            match socket.poll_first(cx) {
                Poll::Ready(first) => return Poll::Ready(Some(first)),
                Poll::Pending if !handle.closes_idle() => return Poll::Pending,
                Poll::Pending if has_looked => return Poll::Ready(None),
                Poll::Pending => {
                    has_looked = true;
                    socket.look_again(); // it may have arrived without having been reported
                }
            }
        }
    })
    .await
}

/// Counts a failed handshake and logs the reason.
fn handshake_failed(listener: &LocalListener, peer: Peer, reason: &dyn Display) {
    /// Rate-limited per listener: a scanner must not fill the log or hide events at another listener.
    static SEEN: log::PerSubject = log::per_subject(20, Duration::from_secs(1));
    listener.cells.handshakes_failed.inc();
    let fields: log::Fields<'_> = &[("listener", &listener.spec.name), ("peer", &peer), ("reason", reason)];
    SEEN.write(log::Level::Info, &listener.spec.name, "TLS handshake failed", fields);
}
