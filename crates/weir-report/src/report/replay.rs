//! What came of a replayed recording: what of it was sent, how exactly, and its responses against the recorded ones.

use crate::Histogram;
use crate::interval::{Interval, student};
use crate::units::{counted, grouped, time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The reason in [`ReplayStats::left_out`] for all records behind the place where the recording could not be read on.
pub const BROKEN: &str = "the rest of the file";

/// A replayed recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReplayStats {
    /// The file, or `-` for stdin.
    pub log: String,
    /// Its form: `weir`, `jsonl`, `combined`, `common`, `alb`, `elb`, `har`, `gor` or `log_format`.
    pub form: String,
    /// Records read, over all passes through the file.
    pub records: u64,
    /// Requests among them that were planned. [`super::Counts`] has those that were sent.
    pub planned: u64,
    /// Records left out, by reason: `method POST`, `sample`, `time`, `host`, `masked`, `no body`, `no request`,
    /// `not sendable`, `unreadable`, `too long`, `wrong time`.
    pub left_out: BTreeMap<String, u64>,
    /// The first records that could not be read or sent.
    pub first_unread: Vec<UnreadLine>,
    /// Requests that came later in the file than `--reorder` can sort. They were sent at once.
    pub out_of_order: u64,
    /// How often the recording's clock jumped back. The times behind a jump were moved, so that the replay goes on.
    pub clock_jumps: u64,
    /// Gaps between two requests that were longer than `--gap-max`, and were cut to that.
    pub gaps_cut: u64,
    /// What was cut of them in total, in nanoseconds of the recording.
    pub gaps_cut_ns: u64,
    /// Header fields that the recording has as `***` and that were left out, by name.
    pub masked_fields: BTreeMap<String, u64>,
    /// Mean time between two planned requests, in nanoseconds; 0 with `--speed max`.
    pub gap_ns: u64,
    /// How long after its planned moment each request was sent, whatever the cause. Empty with `--speed max`.
    pub drift: Histogram,
    /// Requests by recorded and new status.
    pub statuses: Vec<StatusPair>,
    /// Responses whose recorded length is known and whose status is the recorded one.
    pub lengths_compared: u64,
    /// Those of them with another length.
    pub lengths_changed: u64,
    /// The first of them.
    pub first_lengths: Vec<LengthPair>,
    /// Recorded times of requests that have a response now.
    pub then: Histogram,
    /// Service times of the same requests now.
    pub now: Histogram,
    /// Each route: the name that the log gives, or the method and the path with numbers and ids as `{}`. The last may
    /// be `(other)`.
    pub routes: Vec<ReplayedRoute>,
}

/// A record that could not be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UnreadLine {
    /// The line at which it begins, from 1.
    pub line: u64,
    /// Why, as in [`ReplayStats::left_out`].
    pub why: String,
}

/// Requests with the same outcome then and now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StatusPair {
    /// The recorded status; none if it is unknown.
    pub then: Option<u16>,
    /// The status now; none without a response.
    pub now: Option<u16>,
    /// How many.
    pub requests: u64,
}

/// A response whose length changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LengthPair {
    /// Its route.
    pub route: String,
    /// The recorded length of the body, in bytes.
    pub then: u64,
    /// The length now.
    pub now: u64,
}

/// The requests of one route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReplayedRoute {
    /// Its name.
    pub route: String,
    /// Requests sent.
    pub requests: u64,
    /// Those whose status is known then and now, and differs.
    pub statuses_changed: u64,
    /// Those whose length changed although the status did not.
    pub lengths_changed: u64,
    /// Those whose time is known then and now.
    pub timed: u64,
    /// The sum of the logarithms of their ratios, now to then.
    pub ln_sum: f64,
    /// The sum of the squares of these logarithms.
    pub ln_squares: f64,
}

impl ReplayedRoute {
    /// The geometric mean of the ratios of the times, now to then, with its 95 % interval; none without times.
    ///
    /// The interval takes requests as independent. A slow minute affects many, so it is a lower bound of the doubt.
    pub fn ratio(&self) -> Option<Interval> {
        let n = self.timed as f64;
        if self.timed == 0 {
            return None;
        }
        let mean = self.ln_sum / n;
        let range = (self.timed > 1).then(|| {
            let variance = ((self.ln_squares - n * mean * mean) / (n - 1.0)).max(0.0);
            let freedom = usize::try_from(self.timed - 1).unwrap_or(usize::MAX);
            let half = student(freedom) * (variance / n).sqrt();
            (mean - half, mean + half)
        });
        Some(Interval { value: mean, range }.map(f64::exp))
    }
}

/// Most pairs of statuses, and most routes, that the text layout shows.
const SHOWN: usize = 12;

impl ReplayStats {
    /// Requests whose status is known then and now, and differs.
    pub fn statuses_changed(&self) -> u64 {
        let differs = |p: &&StatusPair| p.then.is_some() && p.now.is_some() && p.then != p.now;
        self.statuses.iter().filter(differs).map(|p| p.requests).sum()
    }

    /// Records that should have been requests and could not be read or sent.
    pub fn unusable(&self) -> u64 {
        let bad = [
            BROKEN,
            "body changed by a filter",
            "body cut by the log",
            "masked",
            "no body",
            "not sendable",
            "target cut by the log",
            "too long",
            "unreadable",
            "wrong time",
        ];
        self.left_out.iter().filter(|(why, _)| bad.contains(&why.as_str())).map(|(_, n)| n).sum()
    }

    /// The rows of the text and HTML layouts: a name and what it says.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        let mut first = format!(
            "{} ({}), {}, {} planned",
            self.log,
            self.form,
            counted(self.records, "record"),
            counted(self.planned, "request")
        );
        if self.out_of_order > 0 {
            let _ = write!(first, ", {} too far out of order", grouped(self.out_of_order));
        }
        if self.clock_jumps > 0 {
            let _ = write!(first, ", its clock jumped back {}", counted(self.clock_jumps, "time"));
        }
        let mut rows = vec![("replay", first)];
        let listed = |all: &BTreeMap<String, u64>| {
            let all: Vec<String> = all.iter().map(|(name, n)| format!("{name} {}", grouped(*n))).collect();
            all.join(", ")
        };
        if !self.left_out.is_empty() {
            rows.push(("left out", listed(&self.left_out)));
        }
        if !self.first_unread.is_empty() {
            let lines = self.first_unread.iter().map(|u| format!("line {}: {}", u.line, u.why));
            rows.push(("unusable", lines.collect::<Vec<_>>().join("; ")));
        }
        if self.gaps_cut > 0 {
            let (n, cut) = (counted(self.gaps_cut, "gap"), time(self.gaps_cut_ns as f64));
            rows.push(("gaps", format!("{n} longer than --gap-max shortened, by {cut} in total")));
        }
        if !self.masked_fields.is_empty() {
            rows.push(("masked", format!("fields left out: {}", listed(&self.masked_fields))));
        }
        if !self.drift.is_empty() {
            let at = |q: f64| time(self.drift.quantile(q) as f64);
            let text = format!(
                "sent p50 {}, p99 {}, max {} after the planned moment; {} between requests",
                at(0.5),
                at(0.99),
                time(self.drift.max() as f64),
                time(self.gap_ns as f64)
            );
            rows.push(("drift", text));
        }
        let mut pairs = self.statuses.clone();
        pairs.sort_by_key(|pair| std::cmp::Reverse(pair.requests));
        let (other, same): (Vec<_>, Vec<_>) =
            pairs.into_iter().partition(|p| p.then.is_some() && p.then != p.now);
        for (name, pairs) in [("statuses", same), ("changed", other)] {
            if !pairs.is_empty() {
                rows.push((name, told(&pairs)));
            }
        }
        if self.lengths_compared > 0 {
            let mut text = format!(
                "{} of {} bodies have another length",
                grouped(self.lengths_changed),
                grouped(self.lengths_compared)
            );
            let pairs = self
                .first_lengths
                .iter()
                .map(|l| format!("{} {} to {}", l.route, grouped(l.then), grouped(l.now)));
            let pairs: Vec<String> = pairs.collect();
            if !pairs.is_empty() {
                let _ = write!(text, ": {}", pairs.join("; "));
            }
            rows.push(("lengths", text));
        }
        if !self.then.is_empty() {
            let both = |q: f64| {
                let (then, now) = (self.then.quantile(q), self.now.quantile(q));
                let ratio = now as f64 / then.max(1) as f64;
                format!("{} to {} (×{ratio:.2})", time(then as f64), time(now as f64))
            };
            rows.push(("then to now", format!("p50 {}, p99 {}", both(0.5), both(0.99))));
        }
        rows
    }

    /// The routes with the most requests: name, requests, changed statuses, changed lengths, ratio of the times.
    pub(crate) fn route_rows(&self) -> Vec<[String; 5]> {
        let mut routes: Vec<&ReplayedRoute> = self.routes.iter().filter(|r| r.requests > 0).collect();
        routes.sort_by_key(|r| std::cmp::Reverse(r.requests));
        let row = |r: &&ReplayedRoute| {
            let ratio = match r.ratio() {
                None => "-".to_owned(),
                Some(Interval { value, range: None }) => format!("×{value:.2}"),
                Some(Interval { value, range: Some((low, high)) }) => {
                    format!("×{value:.2} ({low:.2} to {high:.2})")
                }
            };
            [
                grouped(r.requests),
                grouped(r.statuses_changed),
                grouped(r.lengths_changed),
                ratio,
                r.route.clone(),
            ]
        };
        routes.iter().take(SHOWN).map(row).collect()
    }
}

/// The heads of [`ReplayStats::route_rows`].
pub(crate) const ROUTE_HEADS: [&str; 5] =
    ["requests", "statuses changed", "lengths changed", "time now to then", "route"];

fn told(pairs: &[StatusPair]) -> String {
    let name = |status: Option<u16>, none: &str| status.map_or_else(|| none.to_owned(), |s| s.to_string());
    let pair = |p: &StatusPair| {
        let now = name(p.now, "no response");
        match p.then == p.now {
            true => format!("{now}: {}", grouped(p.requests)),
            false => format!("{} to {now}: {}", name(p.then, "unknown"), grouped(p.requests)),
        }
    };
    let mut all: Vec<String> = pairs.iter().take(SHOWN).map(pair).collect();
    if pairs.len() > SHOWN {
        all.push(format!("{} more pairs", pairs.len() - SHOWN));
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_of_a_route_has_its_interval() {
        let route = |ratios: &[f64]| ReplayedRoute {
            timed: ratios.len() as u64,
            ln_sum: ratios.iter().map(|r| r.ln()).sum(),
            ln_squares: ratios.iter().map(|r| r.ln().powi(2)).sum(),
            ..ReplayedRoute::default()
        };
        assert_eq!(route(&[]).ratio(), None);
        let one = route(&[2.0]).ratio().unwrap();
        assert!((one.value - 2.0).abs() < 1e-9 && one.range.is_none());
        let many = route(&[2.0, 0.5, 2.0, 0.5]).ratio().unwrap();
        let (low, high) = many.range.unwrap();
        assert!((many.value - 1.0).abs() < 1e-9 && low < 0.5 && high > 2.0, "{many:?}");
        let (low, high) = route(&[1.1; 50]).ratio().unwrap().range.unwrap();
        assert!((low - 1.1).abs() < 1e-6 && (high - 1.1).abs() < 1e-6);
    }
}
