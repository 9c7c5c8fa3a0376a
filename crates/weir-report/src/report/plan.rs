//! What was asked of a run: targets, pace, end.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The plan as run: what the command line meant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PlanAsRun {
    /// A name for the run, where one was given (ghz `name`).
    pub name: String,
    /// What was asked; at least one.
    pub targets: Vec<TargetPlan>,
    /// When requests begin.
    pub pace: Pace,
    /// When the run ends.
    pub stop: Stop,
    /// Connections (closed loop: clients; k6 VUs, ab `Concurrency Level`, ghz workers). With a fixed rate, the most that may be open.
    pub connections: u64,
    /// Threads of the generator.
    pub threads: u64,
    /// Streams at a time on one connection: 1 with HTTP/1.1.
    pub streams: u64,
    /// Whether that was written, and is no default.
    pub streams_given: bool,
    /// Requests written ahead of their responses on an HTTP/1.1 connection; 1 is no pipelining. With more, the requests of a batch start
    /// together and each has a latency of its own.
    pub pipeline: u64,
    /// Whether a connection serves more than one request.
    pub keepalive: bool,
    /// Whether unequal work of several targets was said to be wanted.
    pub unequal_ok: bool,
    /// The protocol asked for.
    pub protocol: Protocol,
    /// Longest wait for a response, and for a connection. Default 30 s.
    pub timeout_ns: u64,
    /// Pause of a client between a response and its next request.
    pub think_ns: u64,
    /// How long requests under way may take to finish once the run is over. Default 30 s; 0 cuts them.
    pub graceful_stop_ns: u64,
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
    /// The proxy it is reached by, without credentials; none for straight.
    pub proxy: Option<String>,
    /// The addresses it resolved to, or `unix:PATH`; with a proxy those of the proxy.
    pub addresses: Vec<String>,
    /// Share of requests, relative to the other targets. Default 1.
    pub weight: u32,
    /// Header fields as sent, in order; the values of credentials are `***`.
    pub headers: Vec<(String, String)>,
    /// Bytes of the request body, or of the message; of the first request, where bodies differ.
    pub body_bytes: u64,
    /// Values in what is sent that nobody means to send, such as `undefined` or `{id}`; the first four.
    pub odd_values: Vec<String>,
    /// The method that is called; none without gRPC.
    pub call: Option<CallPlan>,
}

/// A method of gRPC that is called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CallPlan {
    /// How many messages go each way.
    pub kind: CallKind,
    /// Messages sent with each call; with the first, where calls differ.
    pub messages: u64,
    /// Where its schema comes from: files, or `reflection v1`.
    pub schema: String,
}

/// The kinds of calls of gRPC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// Streams both ways. All messages are sent at once.
    Bidirectional,
    /// A stream there, one message back.
    ClientStreaming,
    /// One message there, a stream back.
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
    /// Open loop: starts are fixed in advance, evenly spaced, whatever the target does.
    Rate {
        /// Requests a second, over all threads.
        per_second: f64,
    },
    /// The number of clients, or the rate, goes from stage to stage in a straight line.
    Stages {
        /// What the stages change.
        of: StageUnit,
        /// What it is before the first stage. Default 0.
        start: f64,
        /// The stages in order.
        stages: Vec<Stage>,
    },
}

impl Pace {
    /// Whether clients wait for their responses before they send again.
    pub const fn is_closed(&self) -> bool {
        match self {
            Self::AsFastAsPossible => true,
            Self::Rate { .. } => false,
            Self::Stages { of, .. } => matches!(of, StageUnit::Users),
        }
    }
}

/// What stages change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StageUnit {
    /// Requests a second.
    Rate,
    /// Clients of a closed loop (k6 VUs).
    #[default]
    Users,
}

/// One stage: a straight line to a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// How long it takes.
    pub duration_ns: u64,
    /// The value at its end.
    pub target: f64,
}

/// When the run ends: by whatever comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Stop {
    /// After so many requests, shared by all clients (k6 shared iterations, ab `-n`, ghz `total`).
    pub requests: Option<u64>,
    /// After so long, warm-up not counted.
    pub duration_ns: Option<u64>,
}

/// A protocol, asked for or spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Protocol {
    /// HTTP/1.0. Spoken by some servers, never asked for.
    #[serde(rename = "HTTP/1.0")]
    Http10,
    /// HTTP/1.1.
    #[default]
    #[serde(rename = "HTTP/1.1")]
    Http11,
    /// HTTP/2, with or without TLS.
    #[serde(rename = "HTTP/2")]
    Http2,
    /// Messages of a WebSocket over HTTP/1.1.
    WebSocket,
}

impl Protocol {
    /// All of them, each at its own number.
    pub const ALL: [Self; 4] = [Self::Http10, Self::Http11, Self::Http2, Self::WebSocket];
}

/// Why a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "why")]
pub enum End {
    /// `--abort-on` came true.
    Aborted {
        /// The condition, as written.
        condition: String,
    },
    /// The time was up (also that of the last stage).
    #[default]
    Duration,
    /// Ctrl-C.
    Interrupted,
    /// All requests were made.
    Requests,
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::WebSocket => "WebSocket",
        })
    }
}
