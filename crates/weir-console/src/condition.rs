//! Judges the condition of an upstream by its endpoints and by the attempts of the last minute. Even with all
//! endpoints in rotation, every request may fail.

use crate::display::{counted, percent};
use crate::view::{Seen, Status, UpstreamStatus};
use std::collections::BTreeMap;

/// The condition, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Condition {
    Failing,
    Degraded,
    Well,
}

/// An upstream with its condition.
pub(crate) struct Judged<'a> {
    pub(crate) name: &'a str,
    pub(crate) upstream: &'a UpstreamStatus,
    pub(crate) seen: Seen,
    pub(crate) condition: Condition,
    /// The reason, in a few words.
    pub(crate) why: String,
}

impl Condition {
    /// All conditions, worst first.
    pub(crate) const ALL: [Self; 3] = [Self::Failing, Self::Degraded, Self::Well];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::Degraded => "degraded",
            Self::Well => "well",
        }
    }

    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Failing => "bad",
            Self::Degraded => "warn",
            Self::Well => "well",
        }
    }
}

/// Every upstream, worst first.
pub(crate) fn judged<'a>(status: &'a Status, seen: &BTreeMap<String, Seen>) -> Vec<Judged<'a>> {
    let judge = |(name, upstream): &'a (String, UpstreamStatus)| {
        let seen = seen.get(name).copied().unwrap_or_default();
        let (condition, why) = judge(upstream, &seen);
        Judged { name, upstream, seen, condition, why }
    };
    let mut all: Vec<Judged<'a>> = status.upstreams.iter().map(judge).collect();
    let out = |one: &Judged<'_>| one.upstream.endpoints.iter().filter(|endpoint| !endpoint.healthy).count();
    // The sort is stable, so equals stay in order of name.
    all.sort_by_cached_key(|one| {
        (one.condition, std::cmp::Reverse(one.seen.bad()), std::cmp::Reverse(out(one)))
    });
    all
}

fn judge(upstream: &UpstreamStatus, seen: &Seen) -> (Condition, String) {
    let (bad, attempts) = (seen.bad(), seen.attempts);
    let all = upstream.endpoints.len();
    let out = upstream.endpoints.iter().filter(|endpoint| !endpoint.healthy).count();
    let fails = || match (seen.failed, seen.errors) {
        (_, 0) => format!("{} of attempts fail", percent(bad, attempts)),
        (0, _) => format!("{} of attempts answered 5xx", percent(bad, attempts)),
        _ => format!("{} of attempts fail or are answered 5xx", percent(bad, attempts)),
    };
    if all == 0 {
        return (Condition::Failing, "no known endpoints".to_owned());
    }
    if out == all {
        return (Condition::Failing, "no endpoint in rotation".to_owned());
    }
    if bad >= 2 && bad * 2 >= attempts {
        return (Condition::Failing, fails());
    }
    if upstream.panic {
        return (Condition::Failing, "too few endpoints in rotation".to_owned());
    }
    if bad >= 2 && bad * 20 >= attempts {
        return (Condition::Degraded, fails());
    }
    if out > 0 {
        return (Condition::Degraded, format!("{out} of {} out of rotation", counted(all, "endpoint")));
    }
    // No attempts in the last minute, and the earlier ones failed.
    let (answered, failed, errors) =
        upstream.endpoints.iter().fold((0_u64, 0_u64, 0_u64), |sum, endpoint| {
            (sum.0 + endpoint.answered, sum.1 + endpoint.failed, sum.2 + endpoint.errors)
        });
    if attempts == 0 && failed + errors > 0 && answered == errors {
        return (Condition::Degraded, "no attempt has succeeded yet".to_owned());
    }
    if upstream.discovery.as_ref().is_some_and(|registry| registry.state == "away") {
        return (Condition::Degraded, "its registry is unreachable".to_owned());
    }
    (Condition::Well, "in rotation".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::EndpointStatus;

    fn upstream(healthy: &[bool]) -> UpstreamStatus {
        let endpoint = |healthy: &bool| EndpointStatus { healthy: *healthy, ..EndpointStatus::default() };
        UpstreamStatus { endpoints: healthy.iter().map(endpoint).collect(), ..UpstreamStatus::default() }
    }

    #[test]
    fn an_upstream_that_fails_is_not_well() {
        let seen = |attempts, failed, errors| Seen { attempts, failed, errors, ..Seen::default() };
        for (healthy, seen, condition, why) in [
            (&[true, true][..], seen(100, 0, 0), Condition::Well, "in rotation"),
            (&[true], seen(100, 1, 0), Condition::Well, "in rotation"),
            (&[true], seen(100, 100, 0), Condition::Failing, "100.0 % of attempts fail"),
            (&[true], seen(100, 0, 60), Condition::Failing, "60.0 % of attempts answered 5xx"),
            (&[true], seen(100, 4, 4), Condition::Degraded, "8.00 % of attempts fail or are answered 5xx"),
            (&[true], seen(1, 1, 0), Condition::Well, "in rotation"),
            (&[true, false], seen(10, 0, 0), Condition::Degraded, "1 of 2 endpoints out of rotation"),
            (&[false], seen(0, 0, 0), Condition::Failing, "no endpoint in rotation"),
            (&[], seen(0, 0, 0), Condition::Failing, "no known endpoints"),
        ] {
            assert_eq!(judge(&upstream(healthy), &seen), (condition, why.to_owned()), "{seen:?}");
        }
        let mut silent = upstream(&[true]);
        (silent.endpoints[0].answered, silent.endpoints[0].errors) = (5, 5);
        assert_eq!(judge(&silent, &Seen::default()).0, Condition::Degraded);
    }

    #[test]
    fn the_worst_stands_first() {
        let mut status = Status::default();
        for (name, healthy) in [("a", true), ("b", false), ("c", true), ("d", true)] {
            status.upstreams.push((name.to_owned(), upstream(&[healthy])));
        }
        let of = |failed| Seen { attempts: 100, failed, ..Seen::default() };
        let seen = [("c".to_owned(), of(90)), ("d".to_owned(), of(10))].into();
        let names: Vec<&str> = judged(&status, &seen).iter().map(|one| one.name).collect();
        assert_eq!(names, ["c", "b", "d", "a"]);
    }
}
