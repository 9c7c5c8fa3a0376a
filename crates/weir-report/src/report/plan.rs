//! The plan of a run: targets, pace, end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The plan as run, with the options resolved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PlanAsRun {
    /// A name for the run, if given (ghz `name`).
    pub name: String,
    /// The targets; at least one.
    pub targets: Vec<TargetPlan>,
    /// When requests begin.
    pub pace: Pace,
    /// When the run ends.
    pub stop: Stop,
    /// Connections (closed loop: clients; k6 VUs, ab `Concurrency Level`, ghz workers). With a fixed rate, the most
    /// that may be open.
    pub connections: u64,
    /// Threads of the generator.
    pub threads: u64,
    /// Concurrent streams on one connection: 1 with HTTP/1.1.
    pub streams: u64,
    /// Whether `streams` was given and is not the default.
    pub streams_given: bool,
    /// Requests written ahead of their responses on an HTTP/1.1 connection; 1 means no pipelining. With more, the
    /// requests of a batch start together and each has its own latency.
    pub pipeline: u64,
    /// Whether a connection serves more than one request.
    pub keepalive: bool,
    /// Whether unequal work of several targets was declared intended.
    pub unequal_ok: bool,
    /// Whether responses from a cache were declared intended.
    pub cached_ok: bool,
    /// Whether connections may resume TLS sessions. Reports of older versions have false although they did.
    pub tls_resume: bool,
    /// The protocol asked for.
    pub protocol: Protocol,
    /// Longest wait for a response, and for a connection. Default 30 s.
    pub timeout_ns: u64,
    /// Pause of a client between a response and its next request.
    pub think_ns: u64,
    /// How long requests in flight may take to finish after the run. Default 30 s; 0 cuts them.
    pub graceful_stop_ns: u64,
    /// Blocks into which `--rounds` cuts the measured time; 0 without.
    pub rounds: u64,
    /// SHA-256 of the plan file as written, and of `--set` but the target; empty without a plan file. Runs of files
    /// that differ are not compared.
    pub file_digest: String,
    /// Further protocols that steps of a plan speak, beside `protocol`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Protocol>,
}

/// One request of the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TargetPlan {
    /// The method, such as `GET`.
    pub method: String,
    /// The URL as given, without credentials.
    pub url: String,
    /// `http`, `https`, `ws`, `wss`.
    pub scheme: String,
    /// Host name or address (ab `Server Hostname`), without brackets.
    pub host: String,
    /// Port (ab `Server Port`); 0 for a Unix socket.
    pub port: u16,
    /// Path with query (ab `Document Path`).
    pub path: String,
    /// The proxy, without credentials; none for a direct connection.
    pub proxy: Option<String>,
    /// The addresses that it resolved to, or `unix:PATH`; with a proxy, the proxy's.
    pub addresses: Vec<String>,
    /// Share of requests, relative to the other targets. Default 1.
    pub weight: u32,
    /// Header fields as sent, in order; the values of credentials are `***`.
    pub headers: Vec<(String, String)>,
    /// Bytes of the request body, or of the message; of the first request, if bodies differ.
    pub body_bytes: u64,
    /// Values in the request that are probably mistakes, such as `undefined` or `{id}`; the first four.
    pub odd_values: Vec<String>,
    /// The called method; none without gRPC.
    pub call: Option<CallPlan>,
}

/// A called gRPC method.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CallPlan {
    /// Which sides stream.
    pub kind: CallKind,
    /// Messages sent with each call; with the first, if calls differ.
    pub messages: u64,
    /// The origin of its schema: files, or `reflection v1`.
    pub schema: String,
}

/// The kinds of gRPC calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// Streams both ways. All messages are sent immediately.
    Bidirectional,
    /// The client streams, the server sends one message.
    ClientStreaming,
    /// The client sends one message, the server streams.
    ServerStreaming,
    /// One message each way.
    #[default]
    Unary,
}

impl std::fmt::Display for CallKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bidirectional => "bidirectional",
            Self::ClientStreaming => "client streaming",
            Self::ServerStreaming => "server streaming",
            Self::Unary => "unary",
        })
    }
}

/// When requests begin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Pace {
    /// Closed loop: each client sends its next request as soon as it has its response (and its think time is over).
    #[default]
    AsFastAsPossible,
    /// Open loop: starts are fixed in advance and evenly spaced, whatever the target does.
    Rate {
        /// Requests per second, over all threads.
        per_second: f64,
    },
    /// Requests start at the times of a recording.
    Replay {
        /// How many times faster than recorded; none for as fast as responses come.
        speed: Option<f64>,
    },
    /// The number of clients, or the rate, changes linearly from stage to stage.
    Stages {
        /// What the stages change.
        of: StageUnit,
        /// The value before the first stage. Default 0.
        start: f64,
        /// The stages in order.
        stages: Vec<Stage>,
    },
    /// The number of clients, or the rate, follows a list of parts.
    Shape {
        /// What the parts determine.
        of: StageUnit,
        /// The parts in order.
        parts: Vec<PartPlan>,
        /// How starts are spaced: `even`, `poisson` or `burst(N)`.
        spacing: String,
        /// Where `poisson` begins: the same shape and seed have the same starts.
        seed: u64,
    },
}

impl Pace {
    /// Whether clients wait for a response before they send again.
    pub const fn is_closed(&self) -> bool {
        match self {
            Self::AsFastAsPossible => true,
            Self::Rate { .. } => false,
            Self::Replay { speed } => speed.is_none(),
            Self::Shape { of, .. } | Self::Stages { of, .. } => matches!(of, StageUnit::Users),
        }
    }
}

/// What stages change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StageUnit {
    /// Requests per second.
    Rate,
    /// Clients of a closed loop (k6 VUs).
    #[default]
    Users,
}

/// One stage: a linear change to a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// How long it takes.
    pub duration_ns: u64,
    /// The value at its end.
    pub target: f64,
}

/// One part of a shape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PartPlan {
    /// Its name: as given, or its word, with a number if several have the same.
    pub name: String,
    /// `hold`, `ramp`, `jump`, `wave`, `steps`, `file` or `pause`.
    pub word: String,
    /// As written, without its name.
    pub written: String,
    /// When it begins, from the start of measuring.
    pub begin_ns: u64,
    /// When it ends.
    pub end_ns: u64,
    /// The value at its beginning: requests or iterations per second, or users.
    pub from: f64,
    /// The value at its end.
    pub to: f64,
    /// Starts in it; 0 for users.
    pub starts: u64,
}

/// When the run ends: whichever comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Stop {
    /// After this many requests, shared by all clients (k6 shared iterations, ab `-n`, ghz `total`).
    pub requests: Option<u64>,
    /// After this time, not counting the warm-up.
    pub duration_ns: Option<u64>,
}

/// A protocol, requested or used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// HTTP/1.0. Some servers use it; it is never requested.
    #[serde(rename = "HTTP/1.0")]
    Http10,
    /// HTTP/1.1.
    #[default]
    #[serde(rename = "HTTP/1.1")]
    Http11,
    /// HTTP/2, with or without TLS.
    #[serde(rename = "HTTP/2")]
    Http2,
    /// HTTP/3, over QUIC.
    #[serde(rename = "HTTP/3")]
    Http3,
    /// WebSocket messages over HTTP/1.1.
    WebSocket,
}

impl Protocol {
    /// All protocols, in the order of their discriminants.
    pub const ALL: [Self; 5] = [Self::Http10, Self::Http11, Self::Http2, Self::Http3, Self::WebSocket];
}

/// Why a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "why")]
pub enum End {
    /// A condition of `--abort-on` was met.
    Aborted {
        /// The condition, as written.
        condition: String,
    },
    /// The time was over (also that of the last stage).
    #[default]
    Duration,
    /// A scenario could not go on: its data set ended, a step failed with `on_failure: stop`, or teardown failed.
    Failed {
        /// What happened.
        reason: String,
    },
    /// Ctrl-C.
    Interrupted,
    /// All requests were made.
    Requests,
    /// `stop` on the control socket.
    Stopped,
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
            Self::WebSocket => "WebSocket",
        })
    }
}
