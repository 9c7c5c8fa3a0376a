//! Who took part in a run: threads, connections, targets, the wire, the machine; and what was asked of the result.

use crate::Histogram;
use crate::units::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One thread of the generator (wrk `Thread Stats` are over all of these).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ThreadStats {
    /// Connections (clients) that belong to it.
    pub connections: u64,
    /// Requests begun.
    pub requests: u64,
    /// Complete responses.
    pub responses: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Service time of its responses: mean, deviation and largest are `service.mean()`, `.stdev()`, `.max()`.
    pub service: Histogram,
    /// Its rate in responses a second, one value for each 100 ms (wrk `Req/Sec`: `mean`, `stdev`, `max`, `share_within` of these histograms
    /// added up). Unit: responses a second, not nanoseconds.
    pub rates: Histogram,
    /// How long the two below were measured: from the start of measuring to the planned end, or to its own end where that came first. 0 in
    /// reports of versions that measured them for the whole duration.
    pub measured_ns: u64,
    /// Processor time in it.
    pub cpu_ns: u64,
    /// Time it was ready to run and had no processor, in it; 0 where the kernel does not tell.
    pub waited_ns: u64,
    /// Sum over its clients of the time they had a request under way, connecting and errors included, while measuring: for Little's law.
    pub busy_ns: u64,
    /// Sum over its clients of their think time while measuring. Reports of older versions have 0, and less in the next instead.
    pub think_ns: u64,
    /// Sum over its clients of the time they were there: their number times the duration, less the time before their stage and after it.
    pub available_ns: u64,
}

/// What came to its end between the start of measuring and the planned end, whenever it began: what rates are of. So an answer that takes until
/// long after the end lengthens no time that others are divided by, and what began in the warm-up stands for what is still under way at the end. A
/// run that has no planned end, by `-n`, lasts until its last response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Window {
    /// Its length.
    pub length_ns: u64,
    /// Complete responses (wrk `N requests in`).
    pub responses: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Bytes of the requests that ended; over a WebSocket, of the messages that were sent.
    pub sent: u64,
    /// Bytes received of their responses, whole or not (wrk `read`).
    pub received: u64,
}

impl Window {
    /// Its length in seconds; never 0.
    pub fn seconds(&self) -> f64 {
        self.length_ns.max(1) as f64 / 1e9
    }

    /// Adds what came to its end in another part of the run, at the same time.
    pub const fn add(&mut self, other: &Self) {
        self.responses += other.responses;
        self.errors += other.errors;
        self.sent += other.sent;
        self.received += other.received;
    }

    /// What came to its end after `earlier`.
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

/// The connections as a set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConnectionStats {
    /// Connections opened, warm-up included.
    pub opened: u64,
    /// Of these, while measuring.
    pub opened_measured: u64,
    /// Requests that went over a connection used before.
    pub reused: u64,
    /// Connections opened while measuring whose first packet had to be sent again: a second late at least.
    pub syn_again: u64,
    /// Complete responses of each client, in order of their numbers; at most 65,536 of them. 0 means starved.
    pub responses_by_client: Vec<u64>,
    /// Times to connect, TLS included, of all connections opened, warm-up included (oha `DNSDialup`).
    pub dial: Histogram,
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
    /// Of these, with a status outside of 200 to 399; with gRPC, with a code that is not OK.
    pub unexpected: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Complete responses in the [`Window`].
    pub in_window: u64,
    /// Service time of its responses. Empty with a single target: `Latency::service` is the same.
    pub service: Histogram,
    /// Body bytes of the first good (2xx) response (ab `Document Length`); none when there was no such response.
    pub document_bytes: Option<u64>,
    /// Smallest and largest body of a good response.
    pub body_bytes: Option<(u64, u64)>,
    /// Complete responses by status. Empty with a single target, as the next three.
    pub statuses: BTreeMap<u16, u64>,
    /// Complete responses by protocol.
    pub protocols: BTreeMap<String, u64>,
    /// Bytes of the heads of complete responses.
    pub received_head: u64,
    /// Bytes of their bodies.
    pub received_body: u64,
}

/// What was really on the wire.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Ledger {
    /// Responses by the protocol they came in.
    pub protocols: BTreeMap<String, u64>,
    /// `TLSv1.3`, `TLSv1.2`; none without TLS (ab `SSL/TLS Protocol`).
    pub tls_version: Option<String>,
    /// The cipher suite, such as `TLS13_AES_256_GCM_SHA384`.
    pub tls_cipher: Option<String>,
    /// The group of the key exchange, in the words of IANA: `X25519`, `secp256r1` (ab `Server Temp Key`).
    pub tls_group: Option<String>,
    /// Bits of the key in the server's certificate (ab, third in `SSL/TLS Protocol`).
    pub tls_key_bits: Option<u32>,
    /// What ALPN chose; none where it was not asked or not answered, and with HTTP/1.1, which has nothing to choose.
    pub alpn: Option<String>,
    /// Connections by protocol, TLS version and cipher, joined by blanks, in case they differ.
    pub sessions: BTreeMap<String, u64>,
    /// Connections opened to a proxy, by its URL; empty where none was asked for.
    pub proxies: BTreeMap<String, u64>,
    /// The addresses of the targets, or of the proxy, and what became of connections to them. One that fails is passed over while others accept.
    pub addresses: BTreeMap<String, AddressUse>,
    /// Time that looking up all names took, before the run.
    pub dns_ns: u64,
    /// The first request on the wire, up to 4 KiB, with what is not printable escaped as in Rust (`\r\n`, `\x1f`); credentials are `***`.
    pub first_request: String,
    /// Its whole length.
    pub first_request_bytes: u64,
    /// The first complete response on the wire, likewise.
    pub first_response: String,
    /// Its whole length.
    pub first_response_bytes: u64,
    /// `Server` field of the first good response, whole (ab prints it up to the first blank).
    pub server: Option<String>,
    /// `Content-Type` of the first good response.
    pub content_type: Option<String>,
}

/// What became of connections to an address, warm-up and what asks for a schema before the run included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AddressUse {
    /// Accepted.
    pub opened: u64,
    /// Refused, out of reach, or not in time.
    pub failed: u64,
}

/// The sessions of a load over WebSocket. A message and its answer are a request and its response in all other figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WebSocketStats {
    /// Sessions opened, warm-up included (k6 `ws_sessions`).
    pub sessions: u64,
    /// From the beginning of the connection to the end of the handshake, of each of them (k6 `ws_connecting`).
    pub connecting: Histogram,
    /// The handshake alone: from its request to the 101.
    pub handshake: Histogram,
    /// From the beginning of the connection to its end, of each that ended before the threads did (k6 `ws_session_duration`).
    pub session_duration: Histogram,
    /// Messages sent while measuring (k6 `ws_msgs_sent`).
    pub sent: u64,
    /// Messages received while measuring (k6 `ws_msgs_received`): answers, and what nobody asked for.
    pub received: u64,
    /// Of these, how many came while no message waited for an answer.
    pub unsolicited: u64,
    /// Pings of the target, warm-up included; they are answered.
    pub pings: u64,
    /// Sessions that the target closed, by what its close frame said, such as `code 1001`; the 32 first different ones, the rest under `…`.
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
    /// What was measured, in the unit of the metric: nanoseconds, a share, a rate; none when there was nothing to measure, which fails, or
    /// where `unanswered` is true.
    pub measured: Option<f64>,
    /// Whether it held.
    pub passed: bool,
    /// Whether the figure falls among requests that had no response, which are slower than any that had one.
    pub unanswered: bool,
}

/// What the target's process tree spent in the steady state.
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
    /// Responses in that time: what costs are divided by.
    pub responses: u64,
    /// Processor time.
    pub cpu_ns: u64,
    /// Of this, in the kernel; known to a clock tick (10 ms) only.
    pub system_ns: u64,
    /// Resident memory, largest sample.
    pub rss_bytes_max: u64,
    /// Resident memory, last sample.
    pub rss_bytes_end: u64,
    /// Threads, largest sample.
    pub threads_max: u64,
    /// Context switches that the processes asked for by waiting.
    pub voluntary_switches: u64,
    /// Context switches that took the processor away.
    pub involuntary_switches: u64,
    /// Bytes received by the target's network namespace, all interfaces.
    pub net_received: u64,
    /// Bytes sent by it.
    pub net_sent: u64,
}

/// How well the generator did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Health {
    /// With a fixed rate: from the intended start to the real one, where a connection was free: the generator's own lateness.
    pub start_lag: Histogram,
    /// Largest number of starts due and not made.
    pub backlog_max: u64,
    /// Longest time without any response while requests were under way.
    pub longest_silence_ns: u64,
    /// Times of 30 ms and more, each between two responses to one thread, without a response while requests were under way.
    pub silences: Histogram,
    /// How far the wall clock moved against the monotonic one: a step, if more than a few milliseconds.
    pub clock_step_ns: i64,
    /// Connects that failed because no local port was free.
    pub out_of_ports: u64,
    /// Connects that failed because no descriptor was free.
    pub out_of_descriptors: u64,
    /// Largest resident memory of the generator.
    pub rss_bytes_max: u64,
    /// Who used the processors of its machine, warm-up included; none where that is not told, and for runs that are too short for it.
    pub cores: Option<CoreUse>,
}

/// Who used the processors of the generator's machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CoreUse {
    /// How long was looked.
    pub length_ns: u64,
    /// Cores of the machine.
    pub cores: u64,
    /// Time that all of them together were at work.
    pub busy_ns: u64,
    /// Time that the machine below took away from this one.
    pub stolen_ns: u64,
    /// Of the busy time, that of the generator's threads.
    pub generator_ns: u64,
    /// That of the targets' processes; none where they are on another machine, or not ours to look at.
    pub target_ns: Option<u64>,
    /// The others that used the most, at most three.
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
    /// Time of whoever is neither generator nor target, and what was taken away from the machine.
    pub fn others_ns(&self) -> u64 {
        let known = self.generator_ns + self.target_ns.unwrap_or(0);
        self.busy_ns.saturating_sub(known) + self.stolen_ns
    }
}

/// The machine and version that made the load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Generator {
    /// Version of Weir.
    pub version: String,
    /// Kernel, as `uname -sr` says it.
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
