//! Opens a connection to an endpoint: TCP or a Unix socket, TLS, and the first words of HTTP/2.

use super::connection::{ConnectError, Connection, Opened};
use super::endpoint::{LocalEndpoint, complain};
use super::local::LocalUpstream;
use super::shared::Keepalive;
use super::spec::Protocol;
use crate::error::{self, Cause};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::OwnedSemaphorePermit;
use weir_telemetry::Attempt as Outcome;
use weir_wire::dial::{self, DialError, dial};
use weir_wire::h2::{Fault, Link, window_for};

/// A connection that was opened.
pub(super) struct Opening {
    /// Itself, if it carries one exchange at a time; else it is among the shared ones of its pool.
    pub(super) exclusive: Option<Connection>,
    pub(super) connect: Duration,
    pub(super) tls: Duration,
}

/// Opens a connection.
///
/// # Errors
/// Why there is none. It is counted and logged.
pub(super) async fn open(
    upstream: &LocalUpstream,
    at: &LocalEndpoint,
    permit: Option<OwnedSemaphorePermit>,
    left: Option<(Duration, &'static Cause)>,
) -> Result<Opening, ConnectError> {
    let spec = &upstream.spec;
    let (endpoint, pool) = (&at.endpoint, &at.pool);
    let tls = spec.tls.as_ref().map(|tls| (tls, &*endpoint.server_name));
    let own = (spec.timeouts.connect, &error::CONNECT_TIMEOUT);
    let (timeout, too_late) = left.filter(|(left, _)| *left < own.0).unwrap_or(own);
    let started = Instant::now();
    let failed = |cause: &'static Cause, outcome: Outcome, elsewhere: bool, e: &dyn fmt::Display| {
        upstream.cells.connect_failures.inc();
        upstream.cells.attempt(outcome);
        complain(&spec.name, &endpoint.label, cause, e);
        ConnectError { cause, elsewhere }
    };
    let dialled = match dial(&endpoint.address, tls, timeout).await {
        Ok(dialled) => dialled,
        Err(e) => {
            let (cause, outcome, elsewhere) = match &e {
                // No endpoint is to blame, and none would take what we cannot send.
                DialError::Failed(e) if weir_wire::limits::ran_out(e) => {
                    (&error::OUT_OF_DESCRIPTORS, Outcome::ConnectFailed, false)
                }
                DialError::Failed(_) => (&error::CONNECT_FAILED, Outcome::ConnectFailed, true),
                DialError::Refused(_) => (&error::CONNECT_REFUSED, Outcome::ConnectFailed, true),
                DialError::TimedOut => (too_late, Outcome::ConnectTimeout, false),
                DialError::Tls(_) => (&error::UPSTREAM_TLS, Outcome::TlsFailed, false),
            };
            return Err(failed(cause, outcome, elsewhere, &e));
        }
    };
    upstream.cells.connects.inc();
    let dial::Dialled { stream, connect, round_trip, tls } = dialled;
    let expires = spec.max_age.map(|age| Instant::now() + upstream.resources.jittered(age));
    let opened = Opened::new(expires, &upstream.cells, permit);
    let no_http2 = |e: &'static str, elsewhere| {
        Err(failed(&error::UPSTREAM_PROTOCOL, Outcome::ProtocolError, elsewhere, &e))
    };
    match (spec.protocol, stream.chose_h2()) {
        (Protocol::Http2, false) if spec.tls.is_some() => {
            return no_http2("it did not choose h2 in the TLS handshake (ALPN)", false);
        }
        (Protocol::Http2, _) => {}
        (Protocol::Negotiated, true) => pool.shared.choose_http1(false),
        (Protocol::Http1 | Protocol::Negotiated, _) => {
            if spec.protocol == Protocol::Negotiated {
                pool.shared.choose_http1(true);
            }
            return Ok(Opening { exclusive: Some(Connection::exclusive(stream, opened)), connect, tls });
        }
    }
    let keepalive = Keepalive::new(spec.keepalive);
    let freed = pool.shared.freed(keepalive.ended());
    let greeting = Link::begin(stream, window_for(round_trip), spec.head_bytes, freed);
    let rest = timeout.saturating_sub(started.elapsed());
    match tokio::time::timeout(rest, greeting).await {
        // It would be found closed by all who wait, and dialled anew by the first of them, over and over.
        Ok(Ok((link, _))) if !link.is_open() => {
            Err(failed(&error::UPSTREAM_CLOSED, Outcome::Reset, true, &GOODBYE))
        }
        Ok(Ok((link, driver))) => {
            let (name, label) = (Arc::clone(&spec.name), Arc::clone(&endpoint.label));
            let silent = move || complain(&name, &label, &error::UPSTREAM_RESET, &SILENT);
            pool.shared.add(link, driver, opened, keepalive, silent);
            Ok(Opening { exclusive: None, connect, tls })
        }
        // Nothing of the request was sent.
        Ok(Err(Fault::Closed)) => {
            no_http2("it closed the connection before it said anything in HTTP/2", true)
        }
        Ok(Err(_)) => no_http2("what it said is no HTTP/2", false),
        Err(e) => Err(failed(too_late, Outcome::ConnectTimeout, false, &e)),
    }
}

/// What is said of an upstream that takes connections and no requests.
const GOODBYE: &str = "it said goodbye (GOAWAY) before it took a request";

/// What is said of an upstream that was given up.
const SILENT: &str = "no sign of life: it answered no PING on a connection with requests";
