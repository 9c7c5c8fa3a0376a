//! What an agent permits, and the checks of a job against it: where it sends, how much, and for how long.

use crate::url::Url;
use crate::{Options, Plan};
use std::net::IpAddr;
use std::time::Duration;
use weir_agents::allow::Place;
use weir_agents::{Allow, Share};
use weir_plan::shape::{Shape, Spacing};
use weir_plan::{Repeat, Step};

/// What an agent permits.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Where requests may go.
    pub allow: Allow,
    /// Requests per second of this agent; no closed loops then.
    pub max_rate: Option<f64>,
    /// Connections of this agent.
    pub max_connections: Option<u64>,
    /// Length of a run, warm-up included.
    pub max_duration: Option<Duration>,
    /// Whether plans may run programs.
    pub allow_exec: bool,
}

/// Refuses places that the agent may not send to: of URLs, of the addresses that `--resolve` puts in their place, and
/// of the proxy.
pub(super) fn permitted(
    allow: &Allow,
    targets: Vec<(bool, String, u16)>,
    options: &Options,
) -> Result<(), Vec<String>> {
    let mut places: Vec<Place> = Vec::new();
    for (is_tls, host, port) in targets {
        for rule in &options.resolve {
            let mut parts = rule.splitn(3, ':');
            let (_, at, list) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
            if at.and_then(|at| at.parse().ok()) == Some(port) {
                for address in list.split(',') {
                    let host = address.trim_matches(['[', ']']);
                    let host = host.parse::<IpAddr>().map_or_else(|_| host.to_owned(), |ip| ip.to_string());
                    places.push(Place { is_tls, host, port });
                }
            }
        }
        places.push(Place { is_tls, host, port });
    }
    if let Some(proxy) = &options.proxy {
        let text = if proxy.contains("://") { proxy.clone() } else { format!("http://{proxy}") };
        match Url::parse(&text) {
            Ok(url) => places.push(Place { is_tls: false, host: url.host, port: url.port }),
            Err(why) => return Err(vec![format!("--proxy: {why}")]),
        }
    }
    places.sort();
    places.dedup();
    let refused = places.iter().filter(|place| !allow.allows(place));
    let why: Vec<String> =
        refused.map(|place| format!("{place} is not on the allow list of this agent (--allow)")).collect();
    if why.is_empty() { Ok(()) } else { Err(why) }
}

/// Refuses a load that may make more requests in a second than the agent permits. `rate` is the most that this agent
/// would make; none for a closed loop.
pub(super) fn within_rate(limits: &Limits, rate: Option<f64>) -> Result<(), Vec<String>> {
    let Some(most) = limits.max_rate else { return Ok(()) };
    let why = match rate {
        Some(rate) if rate <= most => return Ok(()),
        Some(rate) => format!("{rate} requests a second, but this agent allows {most} (--max-rate)"),
        None => {
            format!(
                "this agent allows {most} requests a second (--max-rate), which a closed loop could exceed: use a rate"
            )
        }
    };
    Err(vec![why])
}

/// The most starts of one agent in a second: all bursts that may fall into one; of Poisson, the mean.
fn in_a_second(rate: f64, spacing: Spacing, share: Share) -> f64 {
    let of = share.of.max(1);
    match spacing {
        Spacing::Burst(n) => {
            let bursts = (rate / f64::from(n.get())).ceil();
            bursts * f64::from(n.get().div_ceil(of))
        }
        Spacing::Even | Spacing::Poisson => rate / f64::from(of),
    }
}

/// The most requests a second that this agent makes of a plan without scenarios; none for a closed loop.
pub(super) fn rate(plan: &Plan) -> Option<f64> {
    let spacing = plan.rhythm.shape().map_or(Spacing::Even, |course| course.spacing());
    Some(in_a_second(plan.highest_rate()?, spacing, plan.share))
}

/// The most requests a second that this agent makes of a plan with scenarios: its iterations times the most requests of
/// one. None with a closed loop.
pub(super) fn plan_rate(plan: &weir_plan::Plan, share: Share) -> Option<f64> {
    let most = |scenario: &weir_plan::Scenario| {
        requests(&scenario.steps).saturating_add(requests(&scenario.start)) as f64
    };
    let rate = |load: &weir_plan::Load| match load {
        weir_plan::Load::Rate { shape: Shape::Constant(rate), .. } => {
            Some(in_a_second(*rate, Spacing::Even, share))
        }
        weir_plan::Load::Rate { shape: Shape::Parts(course), .. } => {
            Some(in_a_second(course.highest(), course.spacing(), share))
        }
        weir_plan::Load::Users { .. } => None,
    };
    let mut all = 0.0;
    let shared: Vec<_> = plan.scenarios.iter().filter(|s| s.load.is_none()).collect();
    if let Some(each) = shared.iter().map(|s| most(s)).max_by(f64::total_cmp) {
        all += rate(plan.load.as_ref()?)? * each;
    }
    for scenario in &plan.scenarios {
        if let Some(load) = &scenario.load {
            all += rate(load)? * most(scenario);
        }
    }
    Some(all)
}

/// The most requests of these steps.
fn requests(steps: &[Step]) -> u64 {
    let each = |step: &Step| match step {
        Step::Request(request) => 1 + u64::from(request.redirects),
        Step::Parallel { steps, .. } => steps.iter().map(|r| 1 + u64::from(r.redirects)).sum(),
        Step::If { then, otherwise, .. } => requests(then).max(requests(otherwise)),
        Step::Repeat { count, steps } => {
            let times = match count {
                Repeat::Times(n) => *n,
                Repeat::While { max, .. } => *max,
            };
            u64::from(times).saturating_mul(requests(steps))
        }
        _ => 0,
    };
    steps.iter().map(each).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    #[test]
    fn bursts_count_as_a_whole() {
        let burst = |n| Spacing::Burst(NonZeroU32::new(n).unwrap());
        let share = |of| Share { index: 0, of };
        for (rate, spacing, of, want) in [
            (100.0, Spacing::Even, 4, 25.0),
            (100.0, Spacing::Poisson, 1, 100.0),
            // One of 500 every 50 s.
            (10.0, burst(500), 1, 500.0),
            (10.0, burst(500), 4, 125.0),
            // Three in one second, two in the next.
            (50.0, burst(20), 1, 60.0),
            (50.0, burst(20), 8, 9.0),
        ] {
            assert_eq!(in_a_second(rate, spacing, share(of)), want, "{rate} {spacing} {of}");
        }
    }
}
