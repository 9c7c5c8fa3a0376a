//! A line of the log for each change that somebody made or tried to make: who, from where, what, and what became of it.

use crate::answer::Answer;
use crate::config_api::Trail;
use crate::guard::Denied;
use hyper::{Method, Uri};
use weir_telemetry::log;
use weir_wire::Peer;

/// Longest target that a line tells, in characters.
const TARGET: usize = 200;

/// Somebody was not let in.
pub(crate) fn refused(peer: Peer, (method, uri): &(Method, Uri), why: Denied) {
    let (call, why) = (shown(method, uri), why.name());
    if changes(method) {
        log::warn("audit", &[("peer", &peer), ("call", &call), ("refused", &why)]);
    } else {
        log::debug("admin request refused", &[("peer", &peer), ("call", &call), ("reason", &why)]);
    }
}

/// Somebody was answered.
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

/// Whether a method asks for something to be changed. `POST` of a question is told too: it is seldom, and says who prepares what.
fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn shown(method: &Method, uri: &Uri) -> String {
    let target = uri.path_and_query().map_or("*", |target| target.as_str());
    let method: String = method.as_str().chars().take(TARGET).collect();
    format!("{method} {}", target.chars().take(TARGET).collect::<String>())
}
