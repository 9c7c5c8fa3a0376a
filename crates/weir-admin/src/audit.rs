//! Logs every change, and every attempt at one: who, from where, what, and the result.

use crate::answer::Answer;
use crate::config_answer::Trail;
use crate::guard::Denied;
use hyper::{Method, Uri};
use weir_telemetry::log;
use weir_wire::Peer;

/// Longest target in a log line, in characters.
const TARGET: usize = 200;

/// Logs a refused call.
pub(crate) fn refused(peer: Peer, (method, uri): &(Method, Uri), why: Denied) {
    let (call, why) = (shown(method, uri), why.name());
    if changes(method) {
        log::warn("audit", &[("peer", &peer), ("call", &call), ("refused", &why)]);
    } else {
        log::debug("admin request refused", &[("peer", &peer), ("call", &call), ("reason", &why)]);
    }
}

/// Logs an answered call.
pub(crate) fn done(peer: Peer, who: &str, (method, uri): &(Method, Uri), answer: &Answer) {
    if !changes(method) {
        return;
    }
    let trail = answer.extensions().get::<Trail>().cloned().unwrap_or_default();
    log::info(
        "audit",
        &[
            ("who", &who),
            ("peer", &peer),
            ("call", &shown(method, uri)),
            ("status", &answer.status().as_u16()),
            ("before", &trail.before),
            ("after", &trail.after),
            ("revision", &trail.number.unwrap_or_default()),
        ],
    );
}

/// Whether a method requests a change. A read-only call by `POST` is logged too: it is rare, and shows who
/// prepares a change.
fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn shown(method: &Method, uri: &Uri) -> String {
    let target = uri.path_and_query().map_or("*", |target| target.as_str());
    let method: String = method.as_str().chars().take(TARGET).collect();
    format!("{method} {}", target.chars().take(TARGET).collect::<String>())
}
