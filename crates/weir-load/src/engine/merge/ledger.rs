//! The requests that a report shows, without secrets.

use super::super::shared::Shared;
use super::threads::worse;
use crate::plan::Plan;
use crate::transport::h2::request::{Rendered, Version};
use crate::transport::{CAPTURE_BYTES, is_secret};
use std::sync::PoisonError;
use weir_h1::{Limits, Progress, ResponseHead, parse_response};
use weir_report::report::{Ledger, Protocol, Tick};
use weir_report::units::shown;

pub(super) fn ledger(plan: &Plan, shared: &Shared, protocols: [u64; Protocol::ALL.len()]) -> Ledger {
    let mut l = Ledger { dns_ns: plan.dns_ns, ..Ledger::default() };
    let sessions = shared.sessions.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((name, most)) = sessions.iter().max_by_key(|(_, s)| s.connections)
        && name != "plain"
    {
        let (version, cipher) = name.split_once(' ').map_or((&name[..], None), |(v, c)| (v, Some(c)));
        (l.tls_version, l.tls_cipher) = (Some(version.to_owned()), cipher.map(str::to_owned));
        let keys = most.keys.unwrap_or_default();
        (l.tls_group, l.tls_key_bits) = (keys.group.map(str::to_owned), keys.certificate_bits);
    }
    l.proxies.clone_from(&shared.proxies.lock().unwrap_or_else(PoisonError::into_inner));
    for (address, used) in plan.origins.iter().flat_map(|o| o.addresses.used()) {
        let all = l.addresses.entry(address).or_default(); // origins may share an address
        (all.opened, all.failed) = (all.opened + used.opened, all.failed + used.failed);
    }
    l.sessions = sessions.iter().map(|(name, s)| (name.clone(), s.connections)).collect();
    drop(sessions);
    l.alpn = shared.alpn.get().cloned();
    let names = Protocol::ALL.map(|p| p.to_string());
    l.protocols.extend(names.into_iter().zip(protocols));
    l.protocols.retain(|_, n| *n > 0);
    // Recorded requests have secrets and personal data of others; a report is passed on.
    let Some(first) = shared.first.get().filter(|_| plan.replay.is_none()) else { return l };
    if let Some(target) = plan.targets.get(first.target).filter(|_| first.request.is_none()) {
        let is_framed = target.frames.is_some() && first.fields.is_some();
        let framed = is_framed.then(|| (plan.version(), target.scheme));
        (l.first_request, l.first_request_bytes) = shown_request(&target.bytes, target.head_bytes, framed);
    }
    if let Some((request, scheme)) =
        first.request.as_ref().zip(plan.targets.get(first.target).map(|t| t.scheme))
    {
        let end = memchr::memmem::find(request, b"\r\n\r\n").map_or(request.len(), |at| at + 4);
        let framed = first.fields.is_some().then(|| (plan.version(), scheme));
        (l.first_request, l.first_request_bytes) = shown_request(request, end, framed);
    }
    let f = &first.response;
    l.first_response_bytes = f.head_bytes + f.body_bytes + f.framing_bytes;
    l.first_response = first.bytes.escape_ascii().to_string();
    if let Some(fields) = &first.fields {
        (l.server, l.content_type) = fields.clone();
        return l;
    }
    let mut head = ResponseHead::default();
    head.buffer_mut().extend_from_slice(&first.bytes);
    if parse_response(&mut head, &Limits::default()) == Ok(Progress::Complete) {
        let field = |name| head.headers.get_str(name).map(shown);
        (l.server, l.content_type) = (field("server"), field("content-type"));
    }
    l
}

/// A request for display, and its length on the wire. With a version and a scheme it was sent as frames: its text is
/// kept, and the frames are rendered again.
fn shown_request(bytes: &[u8], head_bytes: usize, framed: Option<(Version, &'static str)>) -> (String, u64) {
    let shown = without_secrets(bytes.get(..CAPTURE_BYTES).unwrap_or(bytes));
    let Some((version, scheme)) = framed else {
        return (shown.escape_ascii().to_string(), bytes.len() as u64);
    };
    let (head, body) = bytes.split_at_checked(head_bytes).unwrap_or((bytes, &[]));
    let len = Rendered::new_of(version, head, scheme, body.is_empty()).wire_bytes(body.len()) + body.len();
    let end = memchr::memmem::find(&shown, b"\r\n\r\n").map_or(shown.len(), |at| at + 4);
    let shown_head = shown.get(..end).unwrap_or(&shown);
    let mut frames = Rendered::new_of(version, shown_head, scheme, body.is_empty()).bytes().to_vec();
    frames.extend_from_slice(shown.get(end..).unwrap_or_default());
    frames.truncate(CAPTURE_BYTES);
    (frames.escape_ascii().to_string(), len as u64)
}

/// A request for display, with credentials hidden.
fn without_secrets(bytes: &[u8]) -> Vec<u8> {
    let end = memchr::memmem::find(bytes, b"\r\n\r\n").unwrap_or(bytes.len());
    let (head, rest) = bytes.split_at(end);
    let lines: Vec<Vec<u8>> = head
        .split(|b| *b == b'\n')
        .enumerate()
        .map(|(i, line)| {
            let name = line.split(|b| *b == b':').next().unwrap_or_default();
            // The first line has no name.
            if i > 0 && is_secret(&String::from_utf8_lossy(name)) {
                [name, b": ***\r"].concat()
            } else {
                line.to_vec()
            }
        })
        .collect();
    let mut shown = lines.join(&b'\n');
    shown.extend_from_slice(rest);
    shown
}

pub(super) fn join(into: &mut Tick, t: &Tick) {
    into.service = worse(into.service, into.responses, t.service, t.responses);
    into.response = worse(into.response, into.responses, t.response, t.responses);
    into.end_ns = t.end_ns;
    into.length_ns += t.length_ns;
    into.requests += t.requests;
    into.responses += t.responses;
    into.unexpected += t.unexpected;
    into.errors += t.errors;
    into.sent += t.sent;
    into.received += t.received;
    (into.users, into.backlog) = (t.users, t.backlog);
    into.planned += t.planned;
    into.late += t.late;
    into.started += t.started;
    into.generator_cpu_ns += t.generator_cpu_ns;
}
