//! The plan that the engine runs: everything parsed, resolved and rendered. `options` makes it.

use crate::check::Check;
use crate::clock::NEVER;
use crate::control::Control;
use crate::pace::{Rhythm, Way};
use crate::replay::Replay;
use crate::scenario::{Group, Journey};
use crate::schema::Call;
use crate::template::{Data, Template};
use crate::transport::h2::request::{Rendered, Version};
use crate::transport::origin::Origin;
use crate::transport::websocket::Kind;
use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_agents::Share;
use weir_agents::coordinator::Expected;
use weir_report::Threshold;
use weir_report::report::{PlanAsRun, Protocol};

/// Connections for this much of a fixed rate are opened in advance. Our guess: one or two turns of a scheduler.
const AHEAD: Duration = Duration::from_millis(10);

/// The usual length of a tick.
pub(crate) const TICK: u64 = 1_000_000_000;

/// A run that is ready to begin. It can only fail for reasons that the target alone knows.
#[derive(Debug)]
pub struct Plan {
    /// What the report says about it.
    pub as_run: PlanAsRun,
    pub(crate) origins: Vec<Origin>,
    /// Empty only with a `journey`, like `order`.
    pub(crate) targets: Vec<Target>,
    /// Indices into `targets`, each repeated by its weight and evenly mixed. Clients cycle through it. Never empty.
    pub(crate) order: Vec<u32>,
    pub(crate) rhythm: Rhythm,
    pub(crate) stop_requests: Option<u64>,
    /// Counted from the end of the warm-up.
    pub(crate) stop_ns: Option<u64>,
    pub(crate) warmup_ns: u64,
    pub(crate) threads: usize,
    /// Which part of the load this process makes. Starts, rows and numbers of users are those of the whole load.
    pub(crate) share: Share,
    /// Clients of all threads; at least one per thread.
    pub(crate) clients: usize,
    /// Clients that share a connection: 1 except with HTTP/2 and HTTP/3.
    pub(crate) streams: usize,
    pub(crate) pipeline: usize,
    pub(crate) keepalive: bool,
    pub(crate) timeout: Duration,
    pub(crate) think: Duration,
    pub(crate) grace: Duration,
    pub(crate) checks: Vec<Check>,
    pub(crate) thresholds: Vec<Threshold>,
    /// The run ends when one of these is met.
    pub(crate) abort_on: Vec<Threshold>,
    pub(crate) dns_ns: u64,
    /// Least time between two requests of setup, dry run and teardown, on an agent with a highest rate; 0 otherwise.
    pub(crate) gap_ns: u64,
    /// The root of the watched process tree.
    pub(crate) pid: Option<u32>,
    /// The values for templates.
    pub(crate) data: Option<Arc<Data>>,
    /// With scenarios; then there are no `targets`.
    pub(crate) journey: Option<Arc<Journey>>,
    /// Takes commands during the run.
    pub(crate) control: Option<Control>,
    /// The recording that is replayed. Its first target is every request's, the second that of HEAD.
    pub(crate) replay: Option<Replay>,
    /// The same load as a run of one request, if the plan has only that.
    pub(crate) plain: Option<Arc<Self>>,
}

/// One request, rendered.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) origin: usize,
    /// The `:scheme` of HTTP/2 and HTTP/3: `http` or `https`.
    pub(crate) scheme: &'static str,
    /// The method, for gRPC.
    pub(crate) call: Option<Arc<Call>>,
    /// Whether the method is HEAD: its responses have no body.
    pub(crate) is_head: bool,
    /// Head and body as sent; for WebSocket the handshake without its key, and the message.
    pub(crate) bytes: Arc<[u8]>,
    /// The head for HTTP/2 or HTTP/3, if used.
    pub(crate) frames: Option<Rendered>,
    /// How many of `bytes` are the head.
    pub(crate) head_bytes: usize,
    /// The kind of a WebSocket message.
    pub(crate) message: Kind,
    /// Present if requests differ; then `bytes` is their base.
    pub(crate) template: Option<Template>,
}

impl Plan {
    /// How long the load runs before measuring starts.
    pub const fn warmup(&self) -> Duration {
        Duration::from_nanos(self.warmup_ns)
    }

    /// gRPC steps whose method and message are checked only when the run begins, because the plan names no files that
    /// describe them.
    pub fn unchecked_calls(&self) -> u64 {
        self.journey.as_ref().map_or(0, |journey| journey.unknown_calls())
    }

    /// What a coordinator of several agents knows of the load before it runs.
    pub(crate) fn expected(&self) -> Expected {
        let last = match (&self.rhythm, self.stop_requests) {
            (Rhythm::Open(starts), Some(n)) if self.journey.is_none() => {
                let last = starts.at(n.saturating_sub(1), &mut Way::default());
                Some(last).filter(|at| *at != NEVER)
            }
            _ => None,
        };
        let end = [self.stop_ns, last].into_iter().flatten().min();
        Expected {
            length: end.map(|ns| Duration::from_nanos(ns.saturating_add(self.warmup_ns))),
            warmup: self.warmup(),
            grace: self.grace,
            leaving: self.leaving(),
            tears_down: self.journey.as_ref().is_some_and(|journey| !journey.teardown.is_empty()),
        }
    }

    /// How long users may take for the steps of `end` once the run is interrupted.
    pub(crate) fn leaving(&self) -> Duration {
        Duration::from_nanos(self.journey.as_ref().map_or(0, |journey| journey.end_reserve))
    }

    /// Whether the target's process is watched, so that its cost is known.
    pub const fn watches_target(&self) -> bool {
        self.pid.is_some()
    }

    /// Whether `--rounds` cannot cut a run into blocks: its load, or that of one of its scenarios, is a list of parts,
    /// or it replays a recording, whose length is not known.
    pub fn has_no_blocks(&self) -> bool {
        let has_parts =
            self.rhythm.shape().is_some() || self.journey.as_ref().is_some_and(|j| !j.parts.is_empty());
        has_parts || self.replay.is_some()
    }

    /// The length of a tick: a second, or a whole part of a block of `--rounds` that is no longer.
    pub(crate) fn tick_ns(&self) -> u64 {
        self.block_ns().map_or(TICK, |block| block / block.div_ceil(TICK))
    }

    /// The length of a block of `--rounds`.
    pub(crate) fn block_ns(&self) -> Option<u64> {
        self.stop_ns?.checked_div(self.as_run.rounds)
    }

    /// Whether clients wait for a response before they send again.
    pub(crate) const fn is_closed(&self) -> bool {
        match &self.replay {
            Some(replay) => replay.is_max(),
            None => matches!(self.rhythm, Rhythm::Closed(_)),
        }
    }

    /// Whether that holds for everything in the plan, scenarios included.
    pub(crate) fn is_closed_throughout(&self) -> bool {
        self.journey.as_ref().map_or_else(|| self.is_closed(), |j| j.groups.iter().all(Group::is_closed))
    }

    /// How many connections are opened before the first start: with a fixed rate, as many as come due in [`AHEAD`].
    /// Otherwise, opening connections would lengthen a pause of the target or the generator.
    pub(crate) fn ahead(&self) -> usize {
        match &self.rhythm {
            // Not with HTTP/2 or HTTP/3: a target may close a connection that stays silent.
            Rhythm::Open(starts) if self.keepalive && !self.is_multiplexed() => {
                let due = starts.highest() * AHEAD.as_secs_f64() / f64::from(self.share.of);
                let due = due.ceil() as usize;
                due.max(1).min(self.clients)
            }
            _ => 0,
        }
    }

    /// The number of thread `index` among the threads of all agents: with [`Plan::stride`], no two count alike, even
    /// if agents have different numbers of threads.
    pub(crate) fn place(&self, index: usize) -> u64 {
        self.share.number(index as u64)
    }

    /// The step from one number of a thread to its next.
    pub(crate) fn stride(&self) -> u64 {
        self.threads as u64 * u64::from(self.share.of)
    }

    /// The highest rate of the whole load; none for a closed loop.
    pub(crate) fn highest_rate(&self) -> Option<f64> {
        match &self.rhythm {
            Rhythm::Closed(_) => None,
            Rhythm::Open(starts) => Some(starts.highest()),
        }
    }

    /// The most connections that this process may hold.
    pub(crate) fn connections_most(&self) -> u64 {
        let users = |journey: &Arc<Journey>| journey.groups.iter().map(|g| (g.users * g.slots) as u64).sum();
        self.journey.as_ref().map_or(self.as_run.connections, users)
    }

    /// Whether HTTP/2 is used.
    pub(crate) fn is_h2(&self) -> bool {
        self.as_run.protocol == Protocol::Http2
    }

    /// Whether HTTP/3 is used.
    pub(crate) fn is_h3(&self) -> bool {
        self.as_run.protocol == Protocol::Http3 || self.as_run.also.contains(&Protocol::Http3)
    }

    /// Whether a connection may carry several requests at a time.
    pub(crate) fn is_multiplexed(&self) -> bool {
        self.is_h2() || self.is_h3()
    }

    /// The protocol of frames, where requests are sent as such.
    pub(crate) fn version(&self) -> Version {
        match self.is_h3() {
            #[cfg(feature = "http3")]
            true => Version::H3,
            _ => Version::H2,
        }
    }

    /// Whether the plan makes gRPC calls: all targets do, or none.
    pub(crate) fn is_grpc(&self) -> bool {
        self.targets.iter().any(|t| t.call.is_some())
    }

    /// Whether commands during the run may change its starts.
    pub(crate) const fn is_controlled(&self) -> bool {
        self.control.is_some()
    }

    /// The addresses of all targets, or of their proxies.
    pub(crate) fn tcp_addresses(&self) -> Vec<SocketAddr> {
        self.origins.iter().flat_map(Origin::tcp_addresses).collect()
    }

    /// The addresses of each target, or of its proxy; empty for a Unix socket.
    pub(crate) fn tcp_addresses_by_target(&self) -> Vec<Vec<SocketAddr>> {
        self.origins.iter().map(Origin::tcp_addresses).collect()
    }

    /// Whether the plan sends messages over WebSocket.
    pub(crate) fn is_websocket(&self) -> bool {
        self.as_run.protocol == Protocol::WebSocket
    }

    /// Whether each client sends the same request over HTTP/1.1 as soon as the last one is answered, and looks at
    /// nothing in a response that its head and its length do not say.
    pub(crate) fn is_repetitive(&self) -> bool {
        let is_same = |target: &Target| target.template.is_none() && !target.is_head && target.call.is_none();
        self.replay.is_none()
            && matches!(self.targets.as_slice(), [only] if is_same(only))
            && matches!(&self.rhythm, Rhythm::Closed(users) if users.all())
            && self.rhythm.shape().is_none()
            && self.checks.is_empty()
            && self.think.is_zero()
            && self.pipeline == 1
            && self.keepalive
            && !self.is_multiplexed()
            && !self.is_websocket()
    }

    /// A text about requests and answers without the values that a plan with scenarios takes from outside.
    pub(crate) fn masked<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.journey.as_ref().map(|journey| &journey.masks).filter(|masks| !masks.is_empty()) {
            Some(masks) => Cow::Owned(masks.apply(text)),
            None => Cow::Borrowed(text),
        }
    }

    /// Whether response bodies must be kept for checks.
    pub(crate) fn keeps_bodies(&self) -> bool {
        self.checks.iter().any(Check::needs_body)
    }
}
