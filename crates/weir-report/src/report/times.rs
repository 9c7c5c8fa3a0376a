//! Where the time of a run went: latencies, phases, and the run tick by tick.

use crate::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The latencies of complete responses of any status, in nanoseconds. Errors and unfinished requests are not
/// included.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Latency {
    /// Service time: from the first byte of the request written to the last byte of the response (k6
    /// `http_req_duration`, wrk `Latency` without its invented samples, wrk2 `uncorrected`, ab `Processing`, ghz,
    /// hey). Without connecting.
    pub service: Histogram,
    /// Response time: from the intended start to the last byte of the response (wrk2; ab `Total`; oha). With a fixed
    /// rate, the plan sets the intended start; otherwise it is when the client turned to the request, before
    /// connecting. On a reused connection of a closed loop it equals `service`.
    pub response: Histogram,
    /// The part of `service` with a status outside 200 to 399, or with gRPC a code other than OK.
    /// `service.without(&service_unexpected)` is k6's `{ expected_response:true }`.
    pub service_unexpected: Histogram,
    /// From the first byte of the request written to the first byte of the response (oha `firstByte`).
    pub first_byte: Histogram,
}

/// The phases of each complete response as k6 defines them, in nanoseconds. Each histogram has one value per
/// response; phases that a reused connection skips count as 0, as in k6.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Phases {
    /// From needing a connection to having one: dialing and TLS (k6 `http_req_blocked`, ab `Connect`). 0 on reuse.
    pub blocked: Histogram,
    /// Name lookup. 0 for each request, since names are looked up once, before the run (`Ledger::dns_ns`).
    pub dns: Histogram,
    /// TCP connect only (k6 `http_req_connecting`). 0 on reuse.
    pub connecting: Histogram,
    /// TLS handshake only (k6 `http_req_tls_handshaking`). 0 on reuse and without TLS.
    pub tls: Histogram,
    /// From the connection ready to the request fully written (k6 `http_req_sending`).
    pub sending: Histogram,
    /// From the request fully written to the first byte of the response (k6 `http_req_waiting`, ab `Waiting`). 0 if
    /// the response came before the request was fully written.
    pub waiting: Histogram,
    /// From the first byte of the response to the last (k6 `http_req_receiving`). 0 if one read returned all of it.
    pub receiving: Histogram,
}

/// The run over time. Memory is constant: beyond [`Series::TICKS_MOST`] ticks, neighbors are merged and the tick
/// doubles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Series {
    /// Length of one tick; the last may be shorter. 1 s at first.
    pub tick_ns: u64,
    /// The ticks in order, from the start of measuring.
    pub ticks: Vec<Tick>,
}

impl Series {
    /// Most ticks kept: an hour of seconds.
    pub const TICKS_MOST: usize = 3600;
}

/// What happened in one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Tick {
    /// Its end, from the start of measuring.
    pub end_ns: u64,
    /// Its actual length, the divisor for its rates.
    pub length_ns: u64,
    /// Requests begun.
    pub requests: u64,
    /// Complete responses.
    pub responses: u64,
    /// Responses with a status outside 200 to 399; with gRPC, with a code other than OK.
    pub unexpected: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Clients that may send, at its end (k6 `vus`); with a fixed rate, those with a request in flight.
    pub users: u64,
    /// Due but unmade starts, at its end. 0 in a closed loop.
    pub backlog: u64,
    /// Service time of the responses in it. In merged ticks each percentile is the larger of the two.
    pub service: Percentiles,
    /// Response time of the responses in it.
    pub response: Percentiles,
    /// Processor time of all generator threads.
    pub generator_cpu_ns: u64,
    /// Starts whose intended moment was in it; `requests` are those that were made, with scenarios `started`. 0 in a
    /// closed loop.
    pub planned: u64,
    /// Requests, or iterations of scenarios, begun more than 1 ms after their intended start, whoever was late. 0 in a
    /// closed loop.
    pub late: u64,
    /// Iterations of scenarios begun, which `planned` refers to there.
    #[serde(skip_serializing_if = "super::is_zero")]
    pub started: u64,
    /// Each step of a plan with scenarios; not saved.
    #[serde(skip)]
    pub steps: Vec<super::StepTick>,
}

/// A percentile is meaningful only with this many samples beyond it.
pub(crate) const BEYOND: u64 = 10;

/// How many responses this percentile, 0 to 1, needs to be meaningful: [`BEYOND`] on its rarer side.
pub(crate) fn responses_for(quantile: f64) -> u64 {
    // The small term: 1 - 0.999 is a little less than 0.001.
    (BEYOND as f64 / (1.0 - quantile).min(quantile) - 1e-6).ceil() as u64
}

/// A few percentiles in nanoseconds, in place of a whole histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[allow(missing_docs)] // the names are clear
pub struct Percentiles {
    pub min: u64,
    pub mean: f64,
    pub p50: u64,
    pub p75: u64,
    pub p90: u64,
    pub p95: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

impl Percentiles {
    /// Whether this many values are enough for this percentile, 0 to 1. If not, text layouts omit it. The median is
    /// always known.
    pub(crate) fn are_known(quantile: f64, count: u64) -> bool {
        quantile <= 0.5 || count >= responses_for(quantile)
    }

    /// The percentiles of a histogram.
    #[inline]
    pub fn of(h: &Histogram) -> Self {
        Self {
            min: h.min(),
            mean: h.mean(),
            p50: h.quantile(0.5),
            p75: h.quantile(0.75),
            p90: h.quantile(0.9),
            p95: h.quantile(0.95),
            p99: h.quantile(0.99),
            p999: h.quantile(0.999),
            max: h.max(),
        }
    }
}
