//! Opens a connection to an endpoint: TCP or a Unix socket, TLS, and the HTTP/2 preface.

use super::connection::{ConnectError, Connection, Opened, Owner};
use super::endpoint::{LocalEndpoint, complain};
use super::local::LocalUpstream;
use super::shared::{Keepalive, Signs};
use super::spec::Protocol;
use crate::error::{self, Cause};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::OwnedSemaphorePermit;
use weir_wire::Stream;
use weir_wire::dial::{self, DialError, How, dial_as};
use weir_wire::fastcgi::FastCgi;
use weir_wire::h2::{Fault, Link, window_for};
use weir_wire::limits::ran_out;
use weir_wire::{proxy_protocol, time};

/// A connection just opened.
pub(super) struct Opening {
    /// The connection if it carries one exchange at a time. Otherwise it is among its pool's shared ones.
    pub(super) exclusive: Option<Connection>,
    pub(super) connect: Duration,
    pub(super) tls: Duration,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// Exchanges, in the upstream's protocol.
    Exchanges,
    /// Bytes; connecting may take this long.
    Bytes(Duration),
}

/// Why no connection was opened.
struct Failed {
    cause: &'static Cause,
    whose: Whose,
    detail: String,
}

/// Whose fault it is that no connection was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// The endpoint is unreachable: it is avoided, and another is tried.
    Endpoint,
    /// The settings would fail everywhere. It counts at the endpoint, which stays in rotation.
    Settings,
    /// Our own limits: nothing was tried, and nothing counts at the upstream.
    Ours,
}

/// Opens a connection. `owner` is the client, if the connection must be its own.
///
/// # Errors
/// Why it failed. The failure is counted, logged, and noted in the endpoint's health.
pub(super) async fn open(
    upstream: &LocalUpstream,
    at: &LocalEndpoint,
    permit: Option<OwnedSemaphorePermit>,
    owner: Option<&Rc<Owner>>,
    purpose: Purpose,
) -> Result<Opening, ConnectError> {
    let endpoint = &at.endpoint;
    let Failed { cause, whose, detail } = match try_open(upstream, at, permit, owner, purpose).await {
        Ok(opening) => {
            endpoint.health.connected(Instant::now());
            return Ok(opening);
        }
        Err(failed) => failed,
    };
    complain(&upstream.spec.name, &endpoint.label, cause, &detail);
    at.detail.replace(Some(detail.into()));
    if whose == Whose::Ours {
        return Err(ConnectError::here(cause));
    }
    upstream.cells.connect_failures.inc();
    count_failed(upstream, at, cause);
    if whose == Whose::Endpoint {
        endpoint.health.connect_failed(cause, Instant::now());
    }
    Err(ConnectError { cause, elsewhere: whose == Whose::Endpoint, outcome: Some(cause.outcome) })
}

/// Notes that an endpoint accepts no requests on its open connection for now, which counts as unreachable. This ends
/// when the endpoint says so or another connection brings streams.
pub(super) fn no_streams(upstream: &LocalUpstream, at: &LocalEndpoint) -> ConnectError {
    let cause = &error::UPSTREAM_NO_STREAMS;
    complain(&upstream.spec.name, &at.endpoint.label, cause, &cause.meaning);
    upstream.cells.connect_failures.inc();
    count_failed(upstream, at, cause);
    at.pool.shared.note_pause();
    at.endpoint.health.connect_failed(cause, Instant::now());
    ConnectError { cause, elsewhere: true, outcome: Some(cause.outcome) }
}

/// Counts an attempt that failed at an endpoint before it had a connection.
pub(super) fn count_failed(upstream: &LocalUpstream, at: &LocalEndpoint, cause: &'static Cause) {
    at.cells.fail(upstream.resources.cells.cause_index(cause.code), SystemTime::now());
}

async fn try_open(
    upstream: &LocalUpstream,
    at: &LocalEndpoint,
    permit: Option<OwnedSemaphorePermit>,
    owner: Option<&Rc<Owner>>,
    purpose: Purpose,
) -> Result<Opening, Failed> {
    let spec = &upstream.spec;
    let (endpoint, pool) = (&at.endpoint, &at.pool);
    let (tls, timeout) = match purpose {
        Purpose::Exchanges => (&spec.tls, spec.timeouts.connect),
        Purpose::Bytes(timeout) => (&spec.tls_for_bytes, timeout),
    };
    let tls = tls.as_ref().map(|tls| (tls, &*endpoint.server_name));
    let started = Instant::now();
    let told = spec.way.proxy_protocol.map(|v| proxy_protocol::header(v, owner.map(|owner| owner.0)));
    let how = How { source: spec.way.source, preface: told.as_deref().unwrap_or_default() };
    let dialled = match dial_as(how, &endpoint.address, tls, timeout).await {
        Ok(dialled) => dialled,
        Err(e) => return Err(Failed::to_dial(&e)),
    };
    upstream.cells.connects.inc();
    let dial::Dialled { transport, connect, round_trip, tls } = dialled;
    let expires = spec.max_age.map(|age| Instant::now() + upstream.resources.jittered(age));
    let mut opened = Opened::new(expires, &upstream.cells, permit);
    opened.owner = owner.map(Rc::downgrade);
    if let Purpose::Bytes(_) = purpose {
        let exclusive = Some(Connection::exclusive(transport.into(), opened));
        return Ok(Opening { exclusive, connect, tls });
    }
    match (spec.protocol, transport.chose_h2()) {
        (Protocol::Http2, false) if spec.tls.is_some() => {
            return Err(Failed::no_http2(
                "it did not choose h2 in the TLS handshake (ALPN)",
                Whose::Settings,
            ));
        }
        (Protocol::Http2, _) => {}
        (Protocol::Negotiated, true) => pool.shared.choose_http1(false),
        (Protocol::FastCgi, _) => {
            let stream = Stream::FastCgi(Box::new(FastCgi::new(transport)));
            return Ok(Opening { exclusive: Some(Connection::exclusive(stream, opened)), connect, tls });
        }
        (Protocol::Http1 | Protocol::Negotiated, _) => {
            if spec.protocol == Protocol::Negotiated {
                pool.shared.choose_http1(true);
            }
            return Ok(Opening {
                exclusive: Some(Connection::exclusive(transport.into(), opened)),
                connect,
                tls,
            });
        }
    }
    let keepalive = Keepalive::new(spec.keepalive);
    let freed = pool.shared.freed(keepalive.ended());
    let greeting = Link::begin(transport, window_for(round_trip), spec.head_bytes, freed);
    let rest = timeout.saturating_sub(started.elapsed());
    match time::timeout(rest, greeting).await {
        // All waiting requests would find it closed, and the first would dial it again, over and over.
        Ok(Ok((link, _))) if !link.is_open() => {
            Err(Failed::new(&error::UPSTREAM_CLOSED, Whose::Endpoint, &GOODBYE))
        }
        Ok(Ok((link, driver))) => {
            let (name, label) = (Arc::clone(&spec.name), Arc::clone(&endpoint.label));
            let silent = move || complain(&name, &label, &error::UPSTREAM_RESET, &SILENT);
            let health = Arc::clone(&endpoint.health);
            let resumed = move || health.connected(Instant::now());
            pool.shared.add(link, driver, opened, keepalive, Signs { silent, resumed });
            Ok(Opening { exclusive: None, connect, tls })
        }
        Ok(Err(Fault::Closed)) => {
            let detail = "it closed the connection before it said anything in HTTP/2";
            Err(Failed::no_http2(detail, Whose::Endpoint))
        }
        Ok(Err(_)) => Err(Failed::no_http2("its data is not HTTP/2", Whose::Settings)),
        Err(e) => Err(Failed::new(&error::CONNECT_TIMEOUT, Whose::Endpoint, &e)),
    }
}

/// The cause if the endpoint is to blame; `None` if our own limits are.
pub(super) fn blamed(e: &DialError) -> Option<&'static Cause> {
    let Failed { cause, whose, .. } = Failed::to_dial(e);
    (whose != Whose::Ours).then_some(cause)
}

impl Failed {
    fn new(cause: &'static Cause, whose: Whose, e: &dyn fmt::Display) -> Self {
        Self { cause, whose, detail: e.to_string() }
    }

    fn no_http2(detail: &str, whose: Whose) -> Self {
        Self::new(&error::UPSTREAM_PROTOCOL, whose, &detail)
    }

    fn to_dial(e: &DialError) -> Self {
        let (cause, whose) = match e {
            // No endpoint is to blame, and none would accept what we cannot send.
            DialError::Failed(e) if ran_out(e) => (&error::OUT_OF_DESCRIPTORS, Whose::Ours),
            DialError::Failed(e) if e.kind() == io::ErrorKind::AddrNotAvailable => {
                (&error::CONNECT_FAILED, Whose::Ours) // our ports are used up
            }
            DialError::Failed(_) => (&error::CONNECT_FAILED, Whose::Endpoint),
            DialError::Refused(_) => (&error::CONNECT_REFUSED, Whose::Endpoint),
            DialError::TimedOut => (&error::CONNECT_TIMEOUT, Whose::Endpoint),
            DialError::Tls(_) => (&error::UPSTREAM_TLS, Whose::Endpoint),
        };
        Self::new(cause, whose, e)
    }
}

/// The detail for an upstream that accepts connections but no requests.
const GOODBYE: &str = "it said goodbye (GOAWAY) before it took a request";

/// The detail for an upstream that was given up.
const SILENT: &str = "the connection is dead: it answered no PING while requests were waiting";
