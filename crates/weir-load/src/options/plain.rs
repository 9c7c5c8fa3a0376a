//! Turns a plan of one scenario with one plain request into an ordinary run, which is faster than the scenario engine.

use super::Options;
use crate::check::Check;
use crate::scenario::masks::Masks;
use weir_plan::{Kind, Load, OnFailure, Step, Target};
use weir_report::report::Pace;

/// The options of an ordinary run that sends the same as this plan; none if its users do more than a connection
/// does. Ignores cookies, because only answers tell whether there are any.
pub(super) fn options(plan: &weir_plan::Plan, from: &Options) -> Option<Options> {
    let [scenario] = &plan.scenarios[..] else { return None };
    let [Step::Request(request)] = &scenario.steps[..] else { return None };
    let has_more =
        [&plan.setup, &plan.teardown, &scenario.start, &scenario.end].iter().any(|s| !s.is_empty());
    let is_plain = request.kind == Kind::Http
        && request.keeps.is_empty()
        && request.redirects == 0
        && request.on_failure == OnFailure::GoOn
        && scenario.data.is_empty()
        && scenario.start_at.is_zero()
        && request.checks.iter().all(|check| Check::parse(&check.text).is_ok());
    let Target::At { origin, path } = &request.target else { return None };
    // The report of an ordinary run shows URL, fields and first request, where values from outside may be secrets.
    if has_more || !is_plain || !Masks::of(plan).is_empty() {
        return None;
    }
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let path = text(path.fixed()?)?;
    let field =
        |(name, value): &(String, weir_plan::Template)| Some(format!("{name}: {}", text(value.fixed()?)?));
    let headers = request.headers.iter().map(field).collect::<Option<Vec<_>>>()?;
    let body = match &request.body {
        Some(body) => Some(body.fixed()?.to_vec()),
        None => None,
    };
    let load = scenario.load.as_ref().or(plan.load.as_ref())?;
    let (connections, rate) = match (load, super::journey::as_pace(load, 0)) {
        (Load::Users { shape, pace: None }, Pace::AsFastAsPossible) => (shape.most() as u64, None),
        (Load::Rate { users_max, .. }, Pace::Rate { per_second }) => {
            (u64::from(*users_max), Some(format!("{per_second}/s")))
        }
        _ => return None,
    };
    let time = |written: Option<std::time::Duration>| written.map(|d| format!("{}us", d.as_micros()));
    Some(Options {
        urls: vec![format!("{}{path}", plan.origins.get(*origin)?)],
        method: Some(request.method.clone()),
        headers,
        body,
        raw: true,
        connections: Some(connections),
        rate,
        requests: scenario.iterations.map(|n| n.to_string()),
        duration: from.duration.clone().or_else(|| time(plan.duration)),
        warmup: from.warmup.clone().or_else(|| time(plan.warmup)),
        graceful_stop: from.graceful_stop.clone().or_else(|| time(plan.graceful_stop)),
        timeout: time(Some(request.timeout)),
        checks: request.checks.iter().map(|check| check.text.clone()).collect(),
        thresholds: Vec::new(),
        ..from.clone()
    })
}
