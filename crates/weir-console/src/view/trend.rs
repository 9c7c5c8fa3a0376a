//! View models for the page of a single route or upstream: the last 15 minutes, in even steps.

/// Quantiles of a time, in milliseconds; `None` if there are no samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Quantiles {
    /// Median.
    pub p50: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
}

/// One time step of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoutePoint {
    /// Responses per second by the first digit of their status; 0 for codes beyond the limit.
    pub classes: [f64; 6],
    /// Responses that the gateway generated itself, per second.
    pub own: f64,
    /// From the first byte of a request to the last byte of its response.
    pub duration: Quantiles,
    /// From the last byte of a request to the first byte of the upstream's answer.
    pub first_byte: Quantiles,
}

/// The history of a route.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteTrend {
    /// Oldest first, evenly spaced.
    pub points: Vec<RoutePoint>,
    /// Seconds between two points.
    pub step: u64,
    /// Number of seconds that the totals below cover.
    pub seconds: u64,
    /// Responses by the first digit of their status.
    pub classes: [u64; 6],
    /// Responses that the gateway generated itself.
    pub own: u64,
    /// As in [`RoutePoint`].
    pub duration: Quantiles,
    /// As in [`RoutePoint`].
    pub first_byte: Quantiles,
    /// Responses by status since the start, in ascending order; 0 for codes beyond the limit.
    pub statuses: Vec<(u16, u64)>,
    /// The gateway's own answers since the start, most frequent first.
    pub causes: Vec<(String, u64)>,
}

/// One time step of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UpstreamPoint {
    /// Attempts answered with anything but 5xx, per second.
    pub answered: f64,
    /// Attempts answered with 5xx, per second.
    pub errors: f64,
    /// Failed attempts per second.
    pub failed: f64,
    /// Time to first byte for requests of the routes that lead here.
    pub first_byte: Quantiles,
}

/// The history of an upstream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamTrend {
    /// Oldest first, evenly spaced.
    pub points: Vec<UpstreamPoint>,
    /// Seconds between two points.
    pub step: u64,
    /// Number of seconds that the totals below cover.
    pub seconds: u64,
    /// Attempts by outcome.
    pub outcomes: Vec<(&'static str, u64)>,
    /// Attempts answered with 5xx.
    pub errors: u64,
    /// As in [`UpstreamPoint`].
    pub first_byte: Quantiles,
    /// The routes that lead here.
    pub routes: Vec<String>,
}

/// The attempts at an upstream in the last minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Completed attempts, without those whose client left.
    pub attempts: u64,
    /// Failed attempts: no connection, or no valid response in time.
    pub failed: u64,
    /// Attempts answered with 5xx.
    pub errors: u64,
    /// Attempts per second.
    pub rate: f64,
    /// The mean time to the first byte of an answer, in milliseconds.
    pub first_byte_ms: Option<f64>,
}

/// Which upstreams to list.
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
