//! What the page of one route or one upstream shows: the last quarter of an hour, in even steps.

/// Times that a share of all took at most, in milliseconds; `None` where there was nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quantiles {
    /// Half took no longer.
    pub p50: Option<f64>,
    /// 95 of 100 took no longer.
    pub p95: Option<f64>,
    /// 99 of 100 took no longer.
    pub p99: Option<f64>,
}

/// One step of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoutePoint {
    /// Responses a second by the first digit of their status; 0 for codes beyond the limit.
    pub classes: [f64; 6],
    /// Those that the gateway made itself, a second.
    pub own: f64,
    /// From the first byte of a request to the last byte of its response.
    pub duration: Quantiles,
    /// From the last byte of a request to the first byte of the upstream's answer.
    pub first_byte: Quantiles,
}

/// A route over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteTrend {
    /// Oldest first, evenly spaced.
    pub points: Vec<RoutePoint>,
    /// Seconds between two points.
    pub step: u64,
    /// How many seconds the figures below are of.
    pub seconds: u64,
    /// Responses by the first digit of their status.
    pub classes: [u64; 6],
    /// Those that the gateway made itself.
    pub own: u64,
    /// As in [`RoutePoint`].
    pub duration: Quantiles,
    /// As in [`RoutePoint`].
    pub first_byte: Quantiles,
    /// Responses by status since the start, the lowest first; 0 for codes beyond the limit.
    pub statuses: Vec<(u16, u64)>,
    /// Answers of the gateway's own since the start, the most frequent first.
    pub causes: Vec<(String, u64)>,
}

/// One step of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UpstreamPoint {
    /// Attempts answered with anything but 5xx, a second.
    pub answered: f64,
    /// Attempts answered with 5xx, a second.
    pub errors: f64,
    /// Attempts that failed, a second.
    pub failed: f64,
    /// The first byte of answers to requests of the routes that lead here.
    pub first_byte: Quantiles,
}

/// An upstream over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamTrend {
    /// Oldest first, evenly spaced.
    pub points: Vec<UpstreamPoint>,
    /// Seconds between two points.
    pub step: u64,
    /// How many seconds the figures below are of.
    pub seconds: u64,
    /// Attempts by outcome.
    pub outcomes: Vec<(&'static str, u64)>,
    /// Those that were answered with 5xx.
    pub errors: u64,
    /// As in [`UpstreamPoint`].
    pub first_byte: Quantiles,
    /// The routes that lead here.
    pub routes: Vec<String>,
}

/// What an upstream did in the last minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Attempts that ended; those whose client left are no part of it.
    pub attempts: u64,
    /// Those that failed: no connection, or no valid response in time.
    pub failed: u64,
    /// Those that were answered with 5xx.
    pub errors: u64,
    /// Attempts a second.
    pub rate: f64,
    /// The mean time to the first byte of an answer, in milliseconds.
    pub first_byte_ms: Option<f64>,
}

/// Which upstreams are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpstreamsQuery {
    /// A word in the name, an endpoint or the state.
    pub wanted: String,
    /// `failing`, `degraded` or `well`; empty for all.
    pub state: String,
}

impl Seen {
    /// Attempts without a good answer.
    pub const fn bad(&self) -> u64 {
        self.failed.saturating_add(self.errors)
    }
}
