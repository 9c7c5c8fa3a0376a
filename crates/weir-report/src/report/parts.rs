//! The parties of a run: threads, connections, targets, the wire, the machine; and the results of checks and
//! thresholds.

use crate::Histogram;
use crate::units::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One generator thread (wrk `Thread Stats` cover all of these).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ThreadStats {
    /// Its connections (clients).
    pub connections: u64,
    /// Requests begun.
    pub requests: u64,
    /// Complete responses.
    pub responses: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Service time of its responses: `service.mean()`, `.stdev()`, `.max()`.
    pub service: Histogram,
    /// Its rate in responses per second, one value per 100 ms (wrk `Req/Sec`: `mean`, `stdev`, `max`, `share_within`
    /// of the sum of these histograms). Unit: responses per second, not nanoseconds.
    pub rates: Histogram,
    /// How long the next two were measured: from the start of measuring to the planned end, or to the thread's own
    /// end if earlier. 0 in reports of versions that measured them for the whole duration.
    pub measured_ns: u64,
    /// Processor time in that period.
    pub cpu_ns: u64,
    /// Time in that period in which it was runnable but had no processor; 0 if the kernel does not report it.
    pub waited_ns: u64,
    /// Time its clients had a request in flight while measuring, summed, connecting and errors included; for Little's
    /// law.
    pub busy_ns: u64,
    /// Think time of its clients while measuring, summed. Reports of older versions have 0, and a smaller
    /// `available_ns`.
    pub think_ns: u64,
    /// Time its clients were active, summed: their number times the duration, less the time before and after their
    /// stages.
    pub available_ns: u64,
}

/// Requests that finished between the start of measuring and the planned end, whenever they began. Rates refer to
/// these. An answer that takes until long after the end thus does not lengthen the divisor. Requests that began in
/// the warm-up make up for those still in flight at the end. A run without a planned end, by `-n`, lasts until its
/// last response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Window {
    /// Its length.
    pub length_ns: u64,
    /// Complete responses (wrk `N requests in`).
    pub responses: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Bytes of the requests that ended; with WebSocket, of the messages sent.
    pub sent: u64,
    /// Bytes received of their responses, complete or not (wrk `read`).
    pub received: u64,
}

impl Window {
    /// Its length in seconds; never 0.
    pub fn seconds(&self) -> f64 {
        self.length_ns.max(1) as f64 / 1e9
    }

    /// Adds the finished requests of another part of the run in the same period.
    pub const fn add(&mut self, other: &Self) {
        self.responses += other.responses;
        self.errors += other.errors;
        self.sent += other.sent;
        self.received += other.received;
    }

    /// The requests that finished after `earlier`.
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            length_ns: self.length_ns,
            responses: self.responses - earlier.responses,
            errors: self.errors - earlier.errors,
            sent: self.sent - earlier.sent,
            received: self.received - earlier.received,
        }
    }
}

/// All connections together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConnectionStats {
    /// Connections opened, warm-up included.
    pub opened: u64,
    /// Of these, opened while measuring.
    pub opened_measured: u64,
    /// Requests over a reused connection.
    pub reused: u64,
    /// Connections opened while measuring whose first packet had to be sent again, so at least a second late.
    /// With HTTP/3 that packet is the first of the QUIC handshake.
    pub syn_again: u64,
    /// TLS connections opened while measuring that resumed an earlier session, which saves the target a signature.
    pub resumed: u64,
    /// With HTTP/2 or HTTP/3, the fewest concurrent streams that a target allowed on a connection; none if it named no
    /// limit below the plan's.
    pub streams_allowed: Option<u64>,
    /// Complete responses of each client, by number; at most 65,536 clients. 0 means starved.
    pub responses_by_client: Vec<u64>,
    /// Times to connect, including TLS, of all connections opened, warm-up included (oha `DNSDialup`).
    pub dial: Histogram,
    /// With HTTP/3, packets sent that counted as lost, so that their content was sent again, warm-up included. TCP's
    /// are known to the kernel only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_packets: Option<u64>,
}

impl ConnectionStats {
    /// Most clients whose responses are listed.
    pub const CLIENTS_MOST: usize = 65_536;
}

/// One target's share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TargetStats {
    /// Requests begun.
    pub requests: u64,
    /// Complete responses.
    pub responses: u64,
    /// Of these, with a status outside 200 to 399; with gRPC, with a code other than OK.
    pub unexpected: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Complete responses in the [`Window`].
    pub in_window: u64,
    /// Service time of its responses. Empty with a single target, where it equals `Latency::service`.
    pub service: Histogram,
    /// Body bytes of the first good (2xx) response (ab `Document Length`); none without one.
    pub document_bytes: Option<u64>,
    /// Smallest and largest body of its good responses.
    pub body_bytes: Option<(u64, u64)>,
    /// Complete responses by status. Empty with a single target, like the next three.
    pub statuses: BTreeMap<u16, u64>,
    /// Complete responses by protocol.
    pub protocols: BTreeMap<String, u64>,
    /// Bytes of the heads of complete responses.
    pub received_head: u64,
    /// Bytes of their bodies.
    pub received_body: u64,
    /// Good responses by who made them, as far as their heads tell: at most [`AnswerKind::MOST`] kinds.
    pub kinds: Vec<AnswerKind>,
}

/// Good responses of a target whose heads name the same maker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AnswerKind {
    /// `Server` field; none without one.
    pub server: Option<String>,
    /// `Content-Type` field; none without one.
    pub content_type: Option<String>,
    /// Whether a cache says that it answered: an `Age` field, or a hit in `X-Cache`, `Cache-Status` and the like.
    pub cached: bool,
    /// How many.
    pub responses: u64,
}

impl AnswerKind {
    /// Kinds that each thread tells apart. Responses of further kinds count as the last one.
    pub const MOST: usize = 8;
}

/// What was actually on the wire.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Ledger {
    /// Responses by protocol.
    pub protocols: BTreeMap<String, u64>,
    /// `TLSv1.3`, `TLSv1.2`; none without TLS (ab `SSL/TLS Protocol`).
    pub tls_version: Option<String>,
    /// The cipher suite, such as `TLS13_AES_256_GCM_SHA384`.
    pub tls_cipher: Option<String>,
    /// The key exchange group by its IANA name: `X25519`, `secp256r1` (ab `Server Temp Key`).
    pub tls_group: Option<String>,
    /// Bits of the key in the server's certificate (ab, third in `SSL/TLS Protocol`).
    pub tls_key_bits: Option<u32>,
    /// The protocol chosen by ALPN; none if ALPN was not offered or not answered, and with HTTP/1.1, which leaves no
    /// choice.
    pub alpn: Option<String>,
    /// Connections by protocol, TLS version and cipher, separated by blanks, in case they differ.
    pub sessions: BTreeMap<String, u64>,
    /// Connections opened to a proxy, by its URL; empty without a proxy.
    pub proxies: BTreeMap<String, u64>,
    /// The addresses of the targets, or of the proxy, with the results of connections to them. An address that fails
    /// is skipped while others accept.
    pub addresses: BTreeMap<String, AddressUse>,
    /// Time spent on all name lookups, before the run.
    pub dns_ns: u64,
    /// The first request on the wire, up to 4 KiB; unprintable characters are escaped as in Rust (`\r\n`, `\x1f`),
    /// credentials are `***`.
    pub first_request: String,
    /// Its full length.
    pub first_request_bytes: u64,
    /// The first complete response on the wire, in the same form.
    pub first_response: String,
    /// Its full length.
    pub first_response_bytes: u64,
    /// `Server` field of the first good response, complete (ab prints it up to the first blank).
    pub server: Option<String>,
    /// `Content-Type` of the first good response.
    pub content_type: Option<String>,
}

/// Results of connections to an address, including the warm-up and schema lookups before the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AddressUse {
    /// Accepted.
    pub opened: u64,
    /// Refused, unreachable, or timed out.
    pub failed: u64,
}

/// The sessions of a load over WebSocket. All other figures count a message and its answer as request and response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WebSocketStats {
    /// Sessions opened, warm-up included (k6 `ws_sessions`).
    pub sessions: u64,
    /// For each of them, from the start of connecting to the end of the handshake (k6 `ws_connecting`).
    pub connecting: Histogram,
    /// The handshake alone: from its request to the 101.
    pub handshake: Histogram,
    /// From the start of connecting to the end of the session, for each that ended before the threads did (k6
    /// `ws_session_duration`).
    pub session_duration: Histogram,
    /// Messages sent while measuring (k6 `ws_msgs_sent`).
    pub sent: u64,
    /// Messages received while measuring (k6 `ws_msgs_received`): answers and unsolicited ones.
    pub received: u64,
    /// Of these, how many came while no message awaited an answer.
    pub unsolicited: u64,
    /// The target's pings, warm-up included; each is answered.
    pub pings: u64,
    /// Sessions that the target closed, by the text of its close frame, such as `code 1001`: the first 32 distinct
    /// ones, the rest under `…`.
    pub closed_by_target: BTreeMap<String, u64>,
}

/// One check over all responses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CheckResult {
    /// As written: `status=200`.
    pub check: String,
    /// Responses that passed.
    pub passed: u64,
    /// Responses that did not.
    pub failed: u64,
}

/// One threshold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ThresholdResult {
    /// As written: `p99<20ms`.
    pub threshold: String,
    /// The measured value, in the unit of the metric: nanoseconds, a share, a rate. None if nothing could be
    /// measured, which fails, or if `unanswered` is true.
    pub measured: Option<f64>,
    /// Whether it was met.
    pub passed: bool,
    /// Whether the figure falls among requests without a response, which count as slower than any response.
    pub unanswered: bool,
}

/// The cost of the target's process tree in the steady state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TargetCost {
    /// The root of the tree.
    pub pid: u32,
    /// Its command.
    pub command: String,
    /// Processes in the tree at the end.
    pub processes: u64,
    /// Time between first and last sample.
    pub sampled_ns: u64,
    /// Responses in that time, the divisor for costs.
    pub responses: u64,
    /// Processor time.
    pub cpu_ns: u64,
    /// Of this, in the kernel; accurate only to a clock tick (10 ms).
    pub system_ns: u64,
    /// Resident memory, largest sample.
    pub rss_bytes_max: u64,
    /// Resident memory, last sample.
    pub rss_bytes_end: u64,
    /// Threads, largest sample.
    pub threads_max: u64,
    /// Context switches because the processes waited.
    pub voluntary_switches: u64,
    /// Context switches because the kernel took the processor away.
    pub involuntary_switches: u64,
    /// Bytes received on all interfaces of the target's network namespace.
    pub net_received: u64,
    /// Bytes sent on them.
    pub net_sent: u64,
}

/// How well the generator performed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Health {
    /// With a fixed rate: from the intended to the actual start, if a connection was free; the generator's own
    /// lateness.
    pub start_lag: Histogram,
    /// Largest number of due but unmade starts.
    pub backlog_max: u64,
    /// Longest time without any response while requests were in flight.
    pub longest_silence_ns: u64,
    /// Times of at least 30 ms between two responses to one thread while requests were in flight.
    pub silences: Histogram,
    /// How often the whole generator stood still for 100 ms and more: stopped, frozen, or its machine suspended.
    pub pauses: u64,
    /// The sum of these pauses.
    pub paused_ns: u64,
    /// Periods in which the generator's cgroup had used up its processor time (`nr_throttled`).
    pub throttled: u64,
    /// For how long its threads were throttled, summed over threads.
    pub throttled_ns: u64,
    /// Processor time of the generator's process while its threads were measured, apart from theirs: of the threads
    /// that watch the target and collect figures.
    pub own_ns: u64,
    /// How far the wall clock moved relative to the monotonic one: a step, if more than a few milliseconds.
    pub clock_step_ns: i64,
    /// Failed connects for lack of a local port.
    pub out_of_ports: u64,
    /// Failed connects for lack of a descriptor.
    pub out_of_descriptors: u64,
    /// Largest resident memory of the generator.
    pub rss_bytes_max: u64,
    /// Who used the machine's processors, from the moment at which a generator thread had waited for one; none if
    /// none waited, if the kernel does not report it, and for very short runs.
    pub cores: Option<CoreUse>,
}

/// Who used the processors of the generator's machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CoreUse {
    /// Length of the observation.
    pub length_ns: u64,
    /// Cores of the machine.
    pub cores: u64,
    /// Time that all cores together were busy.
    pub busy_ns: u64,
    /// Time that the hypervisor took from this machine.
    pub stolen_ns: u64,
    /// Of the busy time, the share of the generator's threads.
    pub generator_ns: u64,
    /// The share of the targets' processes; none if they run on another machine, or we may not inspect them.
    pub target_ns: Option<u64>,
    /// The other processes that used the most, at most three.
    pub others: Vec<CoreUser>,
}

/// A process and the processor time it used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CoreUser {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub command: String,
    /// Processor time.
    pub cpu_ns: u64,
}

impl CoreUse {
    /// Time of processes other than generator and target, and time stolen from the machine.
    pub fn others_ns(&self) -> u64 {
        let known = self.generator_ns + self.target_ns.unwrap_or(0);
        self.busy_ns.saturating_sub(known) + self.stolen_ns
    }
}

/// The machine and version that generated the load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Generator {
    /// Version of Weir.
    pub version: String,
    /// Kernel, as in `uname -sr`.
    pub kernel: String,
    /// Model of the processor.
    pub cpu: String,
    /// Cores that it may run on.
    pub cores: u64,
}

impl Generator {
    /// The machine in words.
    pub(crate) fn machine(&self) -> String {
        format!("{}, {} to run on, {}", self.cpu, counted(self.cores, "core"), self.kernel)
    }
}
