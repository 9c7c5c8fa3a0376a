//! One probe: connects as the upstream's requests do, asks, and judges the answer.

use super::grpc;
use crate::talk::{End, Failed, read_body, receive_head, send};
use crate::upstream::pool::Way;
use crate::upstream::probe::{Probe, ProbeKind};
use crate::upstream::spec::Protocol;
use std::pin::pin;
use std::sync::Arc;
use weir_h1::{Limits, Method, ResponseHead};
use weir_wire::Stream;
use weir_wire::dial::{DialError, Dialled, How, dial_as};
use weir_wire::h2::{Link, window_for};
use weir_wire::limits::ran_out;
use weir_wire::listen::Address;
use weir_wire::proxy_protocol;
use weir_wire::tls::ClientTls;

/// How many bytes of a body are searched for the expected text.
const BODY_BYTES: usize = 64 * 1024;

/// Where a probe goes and what it asks.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) probe: Arc<Probe>,
    pub(super) address: Address,
    /// The endpoint's own host and port.
    pub(super) authority: Arc<str>,
    pub(super) server_name: Arc<str>,
    pub(super) tls: Option<ClientTls>,
    /// Identifies the TLS policy.
    pub(super) tls_key: Arc<str>,
    pub(super) protocol: Protocol,
    /// How connections are made.
    pub(super) way: Way,
    /// Longest response head, in bytes.
    pub(super) head_bytes: u32,
}

/// Why a probe did not pass.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotPassed {
    /// The endpoint is to blame: a code, and detail for people.
    Failed { cause: &'static str, detail: String },
    /// It refused the connection.
    Refused(String),
    /// We could not ask.
    Unasked(String),
}

impl NotPassed {
    fn failed(cause: &'static str, detail: impl Into<String>) -> Self {
        Self::Failed { cause, detail: detail.into() }
    }
}

impl Question {
    /// Whether another question is the same.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.probe == other.probe
            && self.address == other.address
            && self.authority == other.authority
            && self.server_name == other.server_name
            && self.tls_key == other.tls_key
            && self.protocol == other.protocol
            && self.way == other.way
            && self.head_bytes == other.head_bytes
    }

    /// Asks once.
    ///
    /// # Errors
    /// Why the endpoint did not pass.
    pub(super) async fn ask(&self) -> Result<(), NotPassed> {
        let late = || NotPassed::failed("probe_timeout", "it took too long");
        tokio::time::timeout(self.probe.timeout, self.try_ask()).await.unwrap_or_else(|_| Err(late()))
    }

    async fn try_ask(&self) -> Result<(), NotPassed> {
        let tls = self.tls.as_ref().map(|tls| (tls, &*self.server_name));
        // This connection is our own and has no client.
        let told = self.way.proxy_protocol.map(|version| proxy_protocol::header(version, None));
        let how = How { source: self.way.source, preface: told.as_deref().unwrap_or_default() };
        // The connect may use the probe's whole time: the caller ends the probe.
        let dialled = dial_as(how, &self.address, tls, self.probe.timeout * 2).await;
        let Dialled { transport, round_trip, .. } = dialled.map_err(not_dialled)?;
        let Some((out, limit)) = self.request() else { return Ok(()) };
        let by_http2 = match self.protocol {
            Protocol::FastCgi | Protocol::Http1 => false,
            Protocol::Http2 => true,
            Protocol::Negotiated => transport.chose_h2(),
        };
        if !by_http2 {
            let mut stream = transport.into();
            return self.talk(&mut stream, &out, limit).await;
        }
        let greeting = Link::begin(transport, window_for(round_trip), self.head_bytes, Box::new(|| {}));
        let (link, mut driver) =
            greeting.await.map_err(|_| NotPassed::failed("probe_protocol", "it does not speak HTTP/2"))?;
        let mut stream = Stream::H2(link.stream());
        let talked = pin!(self.talk(&mut stream, &out, limit));
        driver.drive(talked).await
    }

    /// The request's bytes, and how much of the answer's body to read; `None` if connecting is all.
    fn request(&self) -> Option<(Vec<u8>, usize)> {
        let host = self.probe.host.as_deref().unwrap_or(&self.authority);
        let (line, fields, body, limit) = match &self.probe.kind {
            ProbeKind::Tcp => return None,
            ProbeKind::Grpc { service } => {
                let fields = "content-type: application/grpc\r\nte: trailers\r\n";
                let body = grpc::question(service);
                (
                    format!("POST {}", grpc::PATH),
                    format!("{fields}content-length: {}\r\n", body.len()),
                    body,
                    grpc::ANSWER_BYTES,
                )
            }
            ProbeKind::Http { path, body, .. } => {
                let limit = if body.is_some() { BODY_BYTES } else { 0 };
                (format!("GET {path}"), "connection: close\r\n".to_owned(), Vec::new(), limit)
            }
        };
        let agent = concat!("weir-probe/", env!("CARGO_PKG_VERSION"));
        let head = format!("{line} HTTP/1.1\r\nhost: {host}\r\nuser-agent: {agent}\r\n{fields}\r\n");
        let mut out = head.into_bytes();
        out.extend_from_slice(&body);
        Some((out, limit))
    }

    async fn talk(&self, stream: &mut Stream, out: &[u8], limit: usize) -> Result<(), NotPassed> {
        send(stream, out, &mut 0).await.map_err(not_talked)?;
        let limits = Limits { head_bytes: self.head_bytes as usize, ..Limits::default() };
        let head = receive_head(stream, &limits).await.map_err(not_talked)?;
        match &self.probe.kind {
            ProbeKind::Grpc { .. } => judge_grpc(stream, &head, limit).await,
            ProbeKind::Http { expect, body, .. } => {
                judge_status(head.status(), expect)?;
                match body {
                    Some(text) => judge_body(stream, &head, limit, text).await,
                    None => Ok(()),
                }
            }
            ProbeKind::Tcp => Ok(()),
        }
    }
}

fn judge_status(status: u16, expect: &[(u16, u16)]) -> Result<(), NotPassed> {
    if expect.iter().any(|(from, to)| (*from..=*to).contains(&status)) {
        return Ok(());
    }
    let each =
        expect.iter().map(|(from, to)| if from == to { from.to_string() } else { format!("{from}-{to}") });
    let expected = each.collect::<Vec<_>>().join(", ");
    Err(NotPassed::failed("probe_status", format!("it answered {status}; expected {expected}")))
}

async fn judge_body(
    stream: &mut Stream,
    head: &ResponseHead,
    limit: usize,
    text: &str,
) -> Result<(), NotPassed> {
    let (body, end) = read_body(stream, head, Method::Get, limit).await.map_err(not_talked)?;
    if body.windows(text.len().max(1)).any(|window| window == text.as_bytes()) {
        return Ok(());
    }
    let beginning = if end == End::Cut { format!(" in its first {limit} bytes") } else { String::new() };
    Err(NotPassed::failed("probe_body", format!("its body does not contain the expected text{beginning}")))
}

async fn judge_grpc(stream: &mut Stream, head: &ResponseHead, limit: usize) -> Result<(), NotPassed> {
    judge_status(head.status(), &[(200, 200)])?;
    let (body, end) = read_body(stream, head, Method::Post, limit).await.map_err(not_talked)?;
    let trailers = stream.take_trailers();
    let in_head = head.headers.get_str("grpc-status").map(<[u8]>::to_vec);
    let status = in_head.or_else(|| field(&trailers, "grpc-status"));
    match status.as_deref() {
        Some(b"0") if end != End::Cut => {
            grpc::judge(&body).map_err(|why| NotPassed::failed("probe_not_serving", why))
        }
        Some(b"0") => Err(NotPassed::failed("probe_protocol", "its answer is too long")),
        Some(b"5") => Err(NotPassed::failed("probe_not_serving", "it does not know the service (NOT_FOUND)")),
        Some(b"12") => {
            Err(NotPassed::failed("probe_not_serving", "it does not offer grpc.health.v1 (UNIMPLEMENTED)"))
        }
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            Err(NotPassed::failed("probe_not_serving", format!("it answered grpc-status {other}")))
        }
        None => Err(NotPassed::failed("probe_protocol", "its answer has no grpc-status")),
    }
}

/// The value of a field in field lines.
fn field(lines: &[u8], name: &str) -> Option<Vec<u8>> {
    lines.split(|byte| *byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (found, value) = line.split_at_checked(colon)?;
        let is_it = found.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
        is_it.then(|| value.get(1..).unwrap_or_default().trim_ascii().to_vec())
    })
}

fn not_dialled(e: DialError) -> NotPassed {
    match &e {
        DialError::Failed(io) if ran_out(io) => NotPassed::Unasked(e.to_string()),
        DialError::Failed(_) => NotPassed::failed("connect_failed", e.to_string()),
        DialError::Refused(_) => NotPassed::Refused(e.to_string()),
        DialError::TimedOut => NotPassed::failed("probe_timeout", e.to_string()),
        DialError::Tls(_) => NotPassed::failed("upstream_tls", e.to_string()),
    }
}

fn not_talked(failed: Failed) -> NotPassed {
    let said = match failed {
        Failed::Closed => "it closed the connection before it answered",
        Failed::Malformed => "its answer is malformed, or ended in the middle",
        Failed::TooLong => "its answer is too long",
    };
    NotPassed::failed("probe_protocol", said)
}

#[cfg(test)]
mod tests;
