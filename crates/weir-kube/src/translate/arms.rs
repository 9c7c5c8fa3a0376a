//! The backends of a rule become the target of a route: an upstream, a split, or arms with filters of their own.
//!
//! A backend that leads nowhere is an arm that answers, so it fails exactly its share of the requests. The others' are
//! neither fewer nor more for it.

use super::attach::Findings;
use super::backends::{Backend, Manner, resolve};
use super::filters::{self, Around};
use super::{Cx, answer};
use crate::objects::{BackendRef, Filter, Kind, Meta, Name};
use crate::status::Problem;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The largest weight of a backend, in the API and of an arm.
const MAX_WEIGHT: u32 = 1_000_000;

/// A backend of a rule that gets requests.
pub(super) struct Leg<'c> {
    /// Its position among the backends.
    at: usize,
    weight: u32,
    leads: Leads,
    filters: &'c [Filter],
}

/// What becomes of the requests of a backend.
enum Leads {
    /// They fail with this status.
    Fail(u16),
    /// They go to the upstream of this name.
    To(String),
}

/// A route's filters and its target, which is none if the filters answer.
pub(super) type Handled = (Vec<Value>, Option<(&'static str, Value)>);

/// The backends of a rule. Those without weight are judged as well, but get no requests.
pub(super) fn legs<'c>(
    cx: &mut Cx<'_>,
    of: (Kind, &Meta),
    (backends, manner): (&'c [BackendRef], &Manner),
    gateways: &BTreeSet<Name>,
    findings: &mut Findings,
) -> Vec<Leg<'c>> {
    let mut legs = Vec::new();
    for (at, backend) in backends.iter().enumerate() {
        let leads = match resolve(cx, of, backend, manner, gateways) {
            Ok(Backend::Upstream(name)) => Leads::To(name),
            // It may come back by itself.
            Ok(Backend::Empty) => Leads::Fail(503),
            Err(problem) => {
                findings.unresolved(problem);
                Leads::Fail(500)
            }
        };
        let weight = backend.weight.unwrap_or(1).min(MAX_WEIGHT);
        if weight > 0 {
            legs.push(Leg { at, weight, leads, filters: &backend.filters });
        }
    }
    legs
}

/// The filters of a rule, and where its requests go.
///
/// # Errors
/// Why the rule cannot be served as written.
pub(super) fn handled(
    cx: &mut Cx<'_>,
    around: &Around<'_>,
    of_rule: &[Filter],
    legs: &[Leg<'_>],
    findings: &mut Findings,
) -> Result<Handled, Problem> {
    let translated = filters::translate(cx, around, of_rule, findings)?;
    let mut chain = translated.filters;
    if translated.answers {
        return Ok((chain, None));
    }
    let fail = |status| Some(("respond", failure(around.kind, status)));
    let Some(first) = legs.first() else { return Ok((chain, fail(500))) };
    let status = |leg: &Leg<'_>| match leg.leads {
        Leads::Fail(status) => Some(status),
        Leads::To(_) => None,
    };
    if let Some(shared) = status(first).filter(|shared| legs.iter().all(|leg| status(leg) == Some(*shared))) {
        return Ok((chain, fail(shared)));
    }
    let split = plain(legs).filter(|_| legs.iter().all(|leg| leg.filters == first.filters));
    if let Some(split) = split {
        // The filters of all of them are filters of the route, which costs less than arms.
        let own = filters::translate(cx, around, first.filters, findings)?;
        chain.extend(own.filters);
        return Ok((chain, (!own.answers).then_some(("upstream", split))));
    }
    let mut arms = Map::new();
    for leg in legs {
        let own = match &leg.leads {
            Leads::Fail(status) => json!({
                "weight": leg.weight,
                "filters": [ { "respond": failure(around.kind, *status) } ],
            }),
            Leads::To(upstream) => {
                let own = filters::translate(cx, around, leg.filters, findings)?;
                let mut arm = json!({ "weight": leg.weight });
                if !own.answers {
                    arm["upstream"] = json!(upstream);
                }
                if !own.filters.is_empty() {
                    arm["filters"] = json!(own.filters);
                }
                arm
            }
        };
        arms.insert(format!("backend_{}", leg.at), own);
    }
    Ok((chain, Some(("upstream", Value::Object(arms)))))
}

/// The names of upstreams with their weights, or the only name. `None` if a backend fails, or if two backends are the
/// same upstream and have more weight together than it may have.
fn plain(legs: &[Leg<'_>]) -> Option<Value> {
    let mut shares: Map<String, Value> = Map::new();
    for leg in legs {
        let Leads::To(name) = &leg.leads else { return None };
        let before = shares.get(name).and_then(Value::as_u64).unwrap_or_default();
        let sum = before + u64::from(leg.weight);
        if sum > u64::from(MAX_WEIGHT) {
            return None;
        }
        shares.insert(name.clone(), json!(sum));
    }
    let mut names = shares.keys();
    match (names.next(), names.next()) {
        (Some(only), None) => Some(json!(only)),
        _ => Some(Value::Object(shares)),
    }
}

/// An error of our own. A gRPC client reads its status in the fields of an answer without a body.
pub(super) fn failure(kind: Kind, status: u16) -> Value {
    match kind {
        // UNAVAILABLE, as the API wants it.
        Kind::GrpcRoute => json!({
            "status": 200,
            "headers": { "content-type": "application/grpc", "grpc-status": "14" },
        }),
        _ => answer(status),
    }
}
