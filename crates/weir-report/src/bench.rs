//! The cost of each part of a gateway, per route. It compares the upstream alone, the whole gateway, and the gateway
//! without one filter at a time.
//!
//! The caller decides what is compared and starts it. This file has the data model and the arithmetic. Differences
//! are taken within rounds, as in `compare`.

use crate::comparison::text::{columns, signed};
use crate::comparison::{Comparison, Interval, TargetResult, stats};
use crate::report::{Generator, Grade};
use crate::units::counted;
use crate::verdict;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The version of the data model, in [`Bench::schema`].
pub const SCHEMA: &str = "weir.bench/1";

/// The upstream's name in a route's comparison.
pub const DIRECT: &str = "direct";

/// The whole gateway's name in a route's comparison.
pub const GATEWAY: &str = "gateway";

/// The result of a bench.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Bench {
    /// Version of the data model: `weir.bench/1`.
    pub schema: String,
    /// The worst grade of any route.
    pub grade: Grade,
    /// The config that was measured.
    pub config: String,
    /// The routes that were measured, in the order of the config.
    pub routes: Vec<RouteCost>,
    /// Routes and filters that were not measured, each with its reason.
    pub skipped: Vec<Skipped>,
    /// How the measured setup differed from the config.
    pub notes: Vec<String>,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// The machine and version that generated the load.
    pub generator: Generator,
}

/// The cost of a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RouteCost {
    /// Its name.
    pub route: String,
    /// The request, without its header fields: `GET http://localhost/orders/7`.
    pub request: String,
    /// The status of the answer.
    pub status: u16,
    /// The whole gateway: processor time per request, and the latency that it adds to the upstream's.
    pub gateway: Added,
    /// Its filters in execution order.
    pub filters: Vec<FilterCost>,
    /// The comparison that all of it was computed from.
    pub comparison: Comparison,
}

/// The cost of a filter on a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FilterCost {
    /// Its name.
    pub filter: String,
    /// Its place, such as `routes.orders.filters[0]`; also the name of its target in the comparison.
    pub place: String,
    /// The savings without it.
    pub added: Added,
}

/// Processor time and latency in nanoseconds per request; none if one of the two sides was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Added {
    /// Processor time of the gateway.
    pub cost_ns: Option<Interval>,
    /// The median of the response time.
    pub p50_ns: Option<Interval>,
    /// Its 99 %.
    pub p99_ns: Option<Interval>,
}

/// A route or filter that was not measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Skipped {
    /// The route.
    pub route: String,
    /// The place of the filter; none for the whole route.
    pub filter: Option<String>,
    /// Why.
    pub reason: String,
}

impl Bench {
    /// An empty result for this config.
    pub fn new(config: &str) -> Self {
        Self { schema: SCHEMA.to_owned(), config: config.to_owned(), ..Self::default() }
    }

    /// Adds a route with its comparison. Its targets are [`DIRECT`] (except if the gateway itself answers),
    /// [`GATEWAY`], and the place of each filter that was left out. `filters` are names and places.
    pub fn add(
        &mut self,
        route: &str,
        request: &str,
        status: u16,
        filters: &[(String, String)],
        comparison: Comparison,
    ) {
        let seed = comparison.seed;
        let find = |name: &str| comparison.targets.iter().find(|t| t.name == name);
        let Some(gateway) = find(GATEWAY) else { return };
        let mut whole =
            find(DIRECT).map_or_else(Added::default, |direct| Added::between(direct, gateway, seed));
        whole.cost_ns = gateway.figures.get("cost").copied();
        let filters = filters.iter().filter_map(|(name, place)| {
            let without = find(place)?;
            Some(FilterCost {
                filter: name.clone(),
                place: place.clone(),
                added: Added::between(without, gateway, seed),
            })
        });
        let filters = filters.collect();
        self.grade = self.grade.max(comparison.grade);
        self.generator = comparison.generator.clone();
        self.routes.push(RouteCost {
            route: route.to_owned(),
            request: request.to_owned(),
            status,
            gateway: whole,
            filters,
            comparison,
        });
    }

    /// Records something that was not measured.
    pub fn skip(&mut self, route: &str, filter: Option<&str>, reason: impl Into<String>) {
        let filter = filter.map(str::to_owned);
        self.skipped.push(Skipped { route: route.to_owned(), filter, reason: reason.into() });
    }

    /// The result as JSON.
    pub fn to_json(&self) -> String {
        // All maps have string keys, so serialization cannot fail.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The result as text: a table, then what was not measured, then differences from the config.
    pub fn to_text(&self) -> String {
        let mut out = format!("{}\n", self.grade);
        for (code, (n, routes)) in self.reasons() {
            let _ = writeln!(out, "         {code} in {}, of {routes}", counted(n, "block")); // infallible
        }
        let head = ["", "processor", "p50 added", "p99 added"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for route in &self.routes {
            rows.push(row(&route.route, &route.gateway));
            rows.extend(route.filters.iter().map(|f| row(&format!("  {}", f.filter), &f.added)));
        }
        if !self.routes.is_empty() {
            let _ = write!(out, "\n{}", columns(&rows));
        }
        let section = |out: &mut String, title: &str, lines: Vec<String>| {
            if !lines.is_empty() {
                let _ = writeln!(out, "\n{title}");
                for line in lines {
                    let _ = writeln!(out, "  {line}");
                }
            }
        };
        let measured = self.routes.iter().map(|r| {
            let c = &r.comparison;
            format!("{}: {}, {}, {}", r.route, r.request, r.status, counted(c.rounds, "round"))
        });
        section(&mut out, "measured", measured.collect());
        section(&mut out, "not measured", self.skipped.iter().map(Skipped::to_string).collect());
        section(&mut out, "not as in the config", self.notes.clone());
        if self.interrupted {
            out += "\ninterrupted\n";
        }
        out
    }

    /// Codes of reasons, the most serious first: the number of blocks with each, and the routes.
    fn reasons(&self) -> Vec<(String, (u64, String))> {
        let mut all: BTreeMap<String, (u64, String)> = BTreeMap::new();
        for route in &self.routes {
            for (code, n) in route.comparison.targets.iter().flat_map(|t| &t.reasons) {
                let (sum, routes) = all.entry(code.clone()).or_default();
                *sum += n;
                if !routes.split(' ').any(|known| known == route.route) {
                    *routes = format!("{routes} {}", route.route).trim_start().to_owned();
                }
            }
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by_key(|(code, _)| Reverse(verdict::grade_of(code)));
        all
    }
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let filter = self.filter.as_ref().map(|place| format!(", {place}")).unwrap_or_default();
        write!(f, "{}{filter}: {}", self.route, self.reason)
    }
}

impl Added {
    /// How much more `with` is than `without`, round by round.
    fn between(without: &TargetResult, with: &TargetResult, seed: u64) -> Self {
        let of = |figure: &str| {
            let (a, b) = (without.rounds.get(figure)?, with.rounds.get(figure)?);
            let pairs: Vec<(f64, f64)> = a.iter().copied().zip(b.iter().copied()).collect();
            // If one of them lacks the figure in some round, there are no pairs.
            (a.len() == b.len()).then(|| stats::difference(&pairs, seed))?
        };
        Self { cost_ns: of("cost"), p50_ns: of("p50"), p99_ns: of("p99") }
    }
}

fn row(name: &str, added: &Added) -> Vec<String> {
    let cell = |interval: Option<Interval>| interval.map_or_else(|| "-".to_owned(), signed);
    vec![name.to_owned(), cell(added.cost_ns), cell(added.p50_ns), cell(added.p99_ns)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: &str, cost: &[f64], p50: &[f64]) -> TargetResult {
        let rounds = [("cost".to_owned(), cost.to_vec()), ("p50".to_owned(), p50.to_vec())];
        let figures = [("cost".to_owned(), Interval { value: cost.iter().sum(), range: None })];
        TargetResult {
            name: name.to_owned(),
            rounds: rounds.into(),
            figures: figures.into(),
            reasons: [("stalled".to_owned(), 1)].into(),
            ..TargetResult::default()
        }
    }

    fn bench() -> Bench {
        let mut bench = Bench::new("weir.yaml");
        let comparison = Comparison {
            grade: Grade::Suspect,
            targets: vec![
                target(DIRECT, &[1.0, 1.0], &[100.0, 900.0]),
                target(GATEWAY, &[20.0, 25.0], &[150.0, 950.0]),
                target("routes.a.filters[0]", &[18.0, 23.0], &[149.0, 949.0]),
                target("routes.a.filters[1]", &[18.0], &[149.0, 949.0]),
            ],
            ..Comparison::default()
        };
        let filters = [("key_auth", "routes.a.filters[0]"), ("b", "routes.a.filters[1]"), ("c", "gone")];
        let filters = filters.map(|(name, place)| (name.to_owned(), place.to_owned()));
        bench.add("a", "GET http://localhost/a", 200, &filters, comparison);
        bench.skip("b", Some("filters[0]"), "no key");
        bench.notes.push("upstreams.x: in cleartext".to_owned());
        bench
    }

    #[test]
    fn differences_are_taken_within_rounds() {
        let bench = bench();
        let route = &bench.routes[0];
        assert_eq!(route.gateway.p50_ns, Some(Interval { value: 50.0, range: Some((50.0, 50.0)) }));
        assert_eq!(route.gateway.cost_ns.unwrap().value, 45.0, "the gateway's own, not beside the origin's");
        let [auth, b] = route.filters.as_slice() else { panic!("{:?}", route.filters) };
        assert_eq!(auth.added.cost_ns.unwrap().value, 2.0);
        assert_eq!((b.added.cost_ns, b.added.p50_ns.unwrap().value), (None, 1.0), "a round is missing");
        assert_eq!(auth.added.p99_ns, None);
    }

    #[test]
    fn everything_is_told() {
        let bench = bench();
        let text = bench.to_text();
        for part in [
            "SUSPECT",
            "stalled in 4 blocks, of a",
            "  key_auth  2 ns",
            "b, filters[0]: no key",
            "in cleartext",
            "a: GET http://localhost/a, 200, 0 rounds",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(serde_json::from_str::<Bench>(&bench.to_json()).unwrap(), bench);
    }
}
