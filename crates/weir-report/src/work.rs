//! The work that targets did per response. Comparing two targets is meaningful only if it is the same: an empty
//! redirect is faster than a page.

use crate::Report;
use crate::report::TargetPlan;
use crate::units::{grouped, size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;

/// Share of responses by which the mix of statuses or protocols may differ.
const MIX: f64 = 0.05;

/// Bytes by which mean head sizes may differ: proxies add fields.
const HEAD: f64 = 256.0;

/// Bytes or share by which mean body sizes may differ, whichever is more: a date, a name.
const BODY: (f64, f64) = (16.0, 0.02);

/// One target's responses, as a measure of its work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Work {
    /// Whether requests used TLS.
    pub tls: bool,
    /// Complete responses.
    pub responses: u64,
    /// Responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Responses by protocol.
    pub protocols: BTreeMap<String, u64>,
    /// Bytes of heads.
    pub head_bytes: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
}

impl Work {
    /// The work of a run with one target.
    pub(crate) fn of(report: &Report) -> Self {
        Self {
            tls: report.plan.targets.first().is_some_and(by_tls),
            responses: report.counts.responses,
            statuses: report.counts.statuses.clone(),
            protocols: report.ledger.protocols.clone(),
            head_bytes: report.bytes.received_head,
            body_bytes: report.bytes.received_body,
        }
    }

    /// The work of one target in a run with several.
    pub(crate) fn of_target(report: &Report, index: usize) -> Self {
        let Some(target) = report.targets.get(index) else { return Self::default() };
        Self {
            tls: report.plan.targets.get(index).is_some_and(by_tls),
            responses: target.responses,
            statuses: target.statuses.clone(),
            protocols: target.protocols.clone(),
            head_bytes: target.received_head,
            body_bytes: target.received_body,
        }
    }

    /// Adds the work of another run, or of another target at the same place.
    pub(crate) fn add(&mut self, other: &Self) {
        self.tls |= other.tls;
        self.responses += other.responses;
        other.statuses.iter().for_each(|(status, n)| *self.statuses.entry(*status).or_default() += n);
        other.protocols.iter().for_each(|(name, n)| *self.protocols.entry(name.clone()).or_default() += n);
        self.head_bytes += other.head_bytes;
        self.body_bytes += other.body_bytes;
    }

    /// The differences from the first target, as phrases; empty if either had no response.
    pub(crate) fn differs(&self, first: &Self) -> Vec<String> {
        let mut found = Vec::new();
        if self.responses == 0 || first.responses == 0 {
            return found;
        }
        if self.tls != first.tls {
            let word = |tls: bool| if tls { "TLS" } else { "cleartext" };
            found.push(format!("{}, not {}", word(self.tls), word(first.tls)));
        }
        found.extend(mix("protocol", &self.protocols, &first.protocols));
        found.extend(mix("status", &self.statuses, &first.statuses));
        let each = |bytes: u64, work: &Self| bytes as f64 / work.responses as f64;
        let (head, head_first) = (each(self.head_bytes, self), each(first.head_bytes, first));
        let (body, body_first) = (each(self.body_bytes, self), each(first.body_bytes, first));
        for (name, bytes, other, allowed) in [
            ("heads", head, head_first, HEAD),
            ("bodies", body, body_first, BODY.0.max(BODY.1 * body.max(body_first))),
        ] {
            if (bytes - other).abs() > allowed {
                found.push(format!("{name} of {}, not {}", size(bytes), size(other)));
            }
        }
        found
    }
}

fn by_tls(target: &TargetPlan) -> bool {
    matches!(target.scheme.as_str(), "grpcs" | "https" | "wss")
}

/// The unequal work of a run's places, each with its differences from the first. Several targets at one place are an
/// intended mix.
pub(crate) fn unequal_places(report: &Report) -> Vec<String> {
    let mut places: Vec<(String, Work)> = Vec::new();
    for (i, target) in report.plan.targets.iter().enumerate() {
        let place = format!("{}://{}:{}", target.scheme, target.host, target.port);
        let work = Work::of_target(report, i);
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, all)) => all.add(&work),
            None => places.push((place, work)),
        }
    }
    unequal(places.iter().map(|(place, work)| (place.as_str(), work)))
}

/// The differences from the first of these, each with its name.
pub(crate) fn unequal<'a>(mut all: impl Iterator<Item = (&'a str, &'a Work)>) -> Vec<String> {
    let Some((first, work)) = all.next() else { return Vec::new() };
    all.filter_map(|(name, other)| {
        let told = other.differs(work);
        (!told.is_empty()).then(|| format!("{name} differs from {first}: {}", told.join("; ")))
    })
    .collect()
}

/// The shares of two mixes, if they differ.
fn mix<K: Ord + Display>(name: &str, here: &BTreeMap<K, u64>, first: &BTreeMap<K, u64>) -> Option<String> {
    let all = |mix: &BTreeMap<K, u64>| mix.values().sum::<u64>().max(1) as f64;
    let share = |mix: &BTreeMap<K, u64>, key: &K| mix.get(key).copied().unwrap_or(0) as f64 / all(mix);
    let differ =
        here.keys().chain(first.keys()).any(|key| (share(here, key) - share(first, key)).abs() > MIX);
    let told = |mix: &BTreeMap<K, u64>| match mix.len() {
        1 => mix.keys().map(ToString::to_string).collect::<Vec<_>>(),
        _ => mix.iter().map(|(key, n)| format!("{key} ({})", grouped(*n))).collect(),
    };
    differ.then(|| format!("{name} {}, not {}", told(here).join(", "), told(first).join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(status: u16, head: u64, body: u64) -> Work {
        Work {
            responses: 100,
            statuses: [(status, 100)].into(),
            protocols: [("HTTP/1.1".to_owned(), 100)].into(),
            head_bytes: 100 * head,
            body_bytes: 100 * body,
            ..Work::default()
        }
    }

    #[test]
    fn work_that_is_not_the_same_is_named() {
        let first = work(200, 150, 137);
        let by_h2 = Work { protocols: [("HTTP/2".to_owned(), 100)].into(), ..first.clone() };
        let refusing = Work { statuses: [(200, 90), (503, 10)].into(), ..first.clone() };
        for (other, want) in [
            (work(200, 390, 150), &[][..]),
            (Work::default(), &[]),
            (Work { statuses: [(200, 96), (503, 4)].into(), ..first.clone() }, &[]),
            (work(302, 150, 0), &["status 302, not 200", "bodies of 0 B, not 137 B"]),
            (work(200, 150, 65_536), &["bodies of 64.00 KiB, not 137 B"]),
            (work(200, 500, 137), &["heads of 500 B, not 150 B"]),
            (Work { tls: true, ..first.clone() }, &["TLS, not cleartext"]),
            (by_h2, &["protocol HTTP/2, not HTTP/1.1"]),
            (refusing, &["status 200 (90), 503 (10), not 200"]),
        ] {
            assert_eq!(other.differs(&first), want, "{other:?}");
        }
        assert!(work(200, 150, 10_100).differs(&work(200, 150, 10_000)).is_empty());
    }

    #[test]
    fn several_targets_at_one_place_are_a_mix() {
        let mut r = Report::default();
        for (port, body) in [(1, 100), (1, 9_000), (2, 4_500), (3, 1)] {
            r.plan.targets.push(TargetPlan {
                scheme: "http".to_owned(),
                host: "a".to_owned(),
                port,
                ..TargetPlan::default()
            });
            r.targets.push(crate::report::TargetStats {
                responses: 10,
                statuses: [(200, 10)].into(),
                received_body: 10 * body,
                ..Default::default()
            });
        }
        assert_eq!(unequal_places(&r), ["http://a:3 differs from http://a:1: bodies of 1 B, not 4.44 KiB"]);
        r.plan.targets.truncate(3);
        assert!(unequal_places(&r).is_empty());
    }
}
