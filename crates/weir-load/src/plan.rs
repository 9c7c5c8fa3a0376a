//! The plan as the engine runs it: everything parsed, resolved and rendered. `options` makes it.

use crate::check::Check;
use crate::pace::Rhythm;
use crate::schema::Call;
use crate::template::{Data, Template};
use crate::transport::h2::request::Rendered;
use crate::transport::origin::Origin;
use crate::transport::websocket::Kind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_report::Threshold;
use weir_report::report::{PlanAsRun, Protocol};
use weir_wire::listen::Address;

/// How long the pause is that connections are opened ahead for. Our guess: a scheduler's turn or two.
const AHEAD: Duration = Duration::from_millis(10);

/// A run that can begin: nothing in it can be wrong any more, but for what only the target knows.
#[derive(Debug)]
pub struct Plan {
    /// What is reported of it.
    pub as_run: PlanAsRun,
    pub(crate) origins: Vec<Origin>,
    /// Never empty.
    pub(crate) targets: Vec<Target>,
    /// Indices of `targets`, each as often as its weight says, evenly mixed. Clients walk round it. Never empty.
    pub(crate) order: Vec<u32>,
    pub(crate) rhythm: Rhythm,
    pub(crate) stop_requests: Option<u64>,
    /// After the warm-up.
    pub(crate) stop_ns: Option<u64>,
    pub(crate) warmup_ns: u64,
    pub(crate) threads: usize,
    /// Clients over all threads; at least as many as threads.
    pub(crate) clients: usize,
    /// Clients that share a connection: 1 but with HTTP/2.
    pub(crate) streams: usize,
    pub(crate) pipeline: usize,
    pub(crate) keepalive: bool,
    pub(crate) timeout: Duration,
    pub(crate) think: Duration,
    pub(crate) grace: Duration,
    pub(crate) checks: Vec<Check>,
    pub(crate) thresholds: Vec<Threshold>,
    /// Any of these ends the run when it holds.
    pub(crate) abort_on: Vec<Threshold>,
    pub(crate) dns_ns: u64,
    /// The root of the process tree whose cost is watched.
    pub(crate) pid: Option<u32>,
    /// What templates take their values from.
    pub(crate) data: Option<Arc<Data>>,
}

/// One request, rendered.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) origin: usize,
    /// What HTTP/2 says of TLS: `http` or `https`.
    pub(crate) scheme: &'static str,
    /// The method, where gRPC is spoken.
    pub(crate) call: Option<Arc<Call>>,
    /// Whether it is a HEAD: its responses have no body.
    pub(crate) is_head: bool,
    /// Head and body as they are sent; of WebSocket the handshake without its key, and the message.
    pub(crate) bytes: Arc<[u8]>,
    /// The head for HTTP/2, where that is asked for.
    pub(crate) h2: Option<Rendered>,
    /// How many of them are head.
    pub(crate) head_bytes: usize,
    /// What a message over WebSocket is.
    pub(crate) message: Kind,
    /// Where requests differ: then `bytes` is what they are made from.
    pub(crate) template: Option<Template>,
}

impl Plan {
    /// How long the load lasts before anything counts.
    pub const fn warmup(&self) -> Duration {
        Duration::from_nanos(self.warmup_ns)
    }

    /// Whether clients wait for their responses before they send again.
    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.rhythm, Rhythm::Closed(_))
    }

    /// How many connections are opened before the first start: with a fixed rate as many as come due in [`AHEAD`], so that a pause of target or
    /// generator is not made longer by opening connections in it.
    pub(crate) fn ahead(&self) -> usize {
        match &self.rhythm {
            // Not with HTTP/2: a target may give up a connection on which nothing was said.
            Rhythm::Open(starts) if self.keepalive && !self.is_h2() => {
                let due = (starts.highest() * AHEAD.as_secs_f64()).ceil() as usize;
                due.max(1).min(self.clients)
            }
            _ => 0,
        }
    }

    /// Whether HTTP/2 is asked for.
    pub(crate) fn is_h2(&self) -> bool {
        self.as_run.protocol == Protocol::Http2
    }

    /// Whether calls of gRPC are made: all targets are, or none.
    pub(crate) fn is_grpc(&self) -> bool {
        self.targets.iter().any(|t| t.call.is_some())
    }

    /// The addresses of all targets, or of their proxies.
    pub(crate) fn tcp_addresses(&self) -> Vec<SocketAddr> {
        let all = self.origins.iter().flat_map(|o| o.addresses.iter());
        all.filter_map(|a| if let Address::Tcp(address) = a { Some(*address) } else { None }).collect()
    }

    /// Whether messages are sent over WebSocket.
    pub(crate) fn is_websocket(&self) -> bool {
        self.as_run.protocol == Protocol::WebSocket
    }

    /// Whether the bytes of response bodies must be kept for checks.
    pub(crate) fn keeps_bodies(&self) -> bool {
        self.checks.iter().any(Check::needs_body)
    }
}

/// Spreads targets over one round so that each stands as often as its weight and as evenly as can be (smooth weighted round robin).
pub(crate) fn mix(weights: &[u32]) -> Vec<u32> {
    let divisor = weights.iter().fold(0, |a, b| gcd(a, *b)).max(1);
    let weights: Vec<i64> = weights.iter().map(|w| i64::from(w / divisor)).collect();
    let total: i64 = weights.iter().sum();
    let mut credit = vec![0i64; weights.len()];
    let mut order = Vec::new();
    for _ in 0..total.min(ROUND_MOST) {
        credit.iter_mut().zip(&weights).for_each(|(c, w)| *c += w);
        // The first of the largest.
        let most = credit.iter().enumerate().rev().max_by_key(|(_, c)| **c).map_or(0, |(i, _)| i);
        credit[most] -= total;
        order.push(most as u32);
    }
    order
}

/// Longest round that is spread out. Weights that need more are met as nearly as that many places allow.
const ROUND_MOST: i64 = 65_536;

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::mix;

    #[test]
    fn weights_are_mixed_evenly() {
        for (weights, want) in [
            (&[1][..], &[0][..]),
            (&[1, 1], &[0, 1]),
            (&[10, 20], &[1, 0, 1]),
            (&[3, 1], &[0, 0, 1, 0]),
            (&[5, 1, 1], &[0, 0, 1, 0, 2, 0, 0]),
        ] {
            assert_eq!(mix(weights), want, "{weights:?}");
        }
    }
}
