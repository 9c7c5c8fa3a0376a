//! The result of a bench file: a comparison for each workload, beside published figures.

use super::Comparison;
use super::figures::FIGURES;
use super::text::{columns, plain};
use crate::report::Grade;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The version of the data model.
const SCHEMA: &str = "weir.compare-set/1";

/// The result of a bench file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ComparisonSet {
    /// Version of the data model: `weir.compare-set/1`.
    pub schema: String,
    /// The name that the file gives itself.
    pub name: String,
    /// The file's description of itself.
    pub about: String,
    /// The version that each target and process reports.
    pub versions: BTreeMap<String, String>,
    /// The workloads that ran, in the order of the file.
    pub workloads: Vec<Workload>,
    /// Targets that could not be run, each with its error.
    pub left_out: Vec<LeftOut>,
}

/// One workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// The measurement.
    pub comparison: Comparison,
    /// Figures that others published.
    pub published: Vec<Published>,
}

/// Published figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Published {
    /// Who published them.
    pub who: String,
    /// The target to compare them with.
    pub target: Option<String>,
    /// The figures by name: rates per second, times in nanoseconds.
    pub figures: BTreeMap<String, f64>,
    /// The machine, and other facts needed to interpret them.
    pub machine: String,
}

/// A target that could not be run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LeftOut {
    /// Its name.
    pub target: String,
    /// The error.
    pub reason: String,
}

impl ComparisonSet {
    /// An empty result for a file with this name.
    pub fn new(name: &str, about: &str) -> Self {
        Self { schema: SCHEMA.to_owned(), name: name.to_owned(), about: about.to_owned(), ..Self::default() }
    }

    /// The worst grade of any workload.
    pub fn grade(&self) -> Grade {
        self.workloads.iter().map(|w| w.comparison.grade).max().unwrap_or_default()
    }

    /// The result as JSON.
    pub fn to_json(&self) -> String {
        // All maps have string keys, so serialization cannot fail.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The result as text: each comparison, with the figures published for it.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for part in &self.workloads {
            let _ = write!(out, "== {}: {}\n\n{}", self.name, part.name, part.comparison.to_text()); // infallible
            let rows = part.table();
            if rows.len() > 1 {
                let _ = write!(out, "\n{}", columns(&rows));
            }
            out.push('\n');
        }
        for left in &self.left_out {
            let _ = writeln!(out, "left out: {}: {}", left.target, left.reason);
        }
        for (name, version) in &self.versions {
            let _ = writeln!(out, "{name}: {version}");
        }
        if let Some(g) = self.workloads.first().map(|w| &w.comparison.generator) {
            let _ = writeln!(out, "machine: {}", g.machine());
        }
        out
    }
}

impl Workload {
    /// Published figures, each beside the measured one if a target is named; the top row has the names.
    pub(crate) fn table(&self) -> Vec<Vec<String>> {
        let named = |name: &str| self.published.iter().any(|p| p.figures.contains_key(name));
        let figures: Vec<_> = FIGURES.iter().filter(|f| named(f.name)).collect();
        let mut head = vec!["published".to_owned()];
        head.extend(figures.iter().flat_map(|f| [f.name.to_owned(), "here".to_owned()]));
        head.push("on".to_owned());
        let mut rows = vec![head];
        for published in &self.published {
            let measured =
                self.comparison.targets.iter().find(|t| Some(&t.name) == published.target.as_ref());
            let mut row = vec![match measured {
                Some(target) if target.name != published.who => {
                    format!("{} ({} here)", published.who, target.name)
                }
                _ => published.who.clone(),
            }];
            for figure in &figures {
                let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| plain(figure, v));
                row.push(cell(published.figures.get(figure.name).copied()));
                row.push(cell(measured.and_then(|t| t.figures.get(figure.name)).map(|i| i.value)));
            }
            row.push(published.machine.clone());
            rows.push(row);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::{Interval, TargetResult};

    #[test]
    fn published_stands_beside_measured() {
        let figures = [("rate".to_owned(), Interval { value: 30_000.4, range: None })];
        let target =
            TargetResult { name: "nginx".to_owned(), figures: figures.into(), ..TargetResult::default() };
        let published = |who: &str, target: Option<&str>| Published {
            who: who.to_owned(),
            target: target.map(str::to_owned),
            figures: [("rate".to_owned(), 24_614.65), ("p99".to_owned(), 70_550_000.0)].into(),
            machine: "a laptop".to_owned(),
        };
        let mut set = ComparisonSet::new("W1", "about");
        set.workloads.push(Workload {
            name: "post".to_owned(),
            comparison: Comparison { targets: vec![target], ..Comparison::default() },
            published: vec![published("OpenResty", Some("nginx")), published("Bifrost", None)],
        });
        set.left_out.push(LeftOut { target: "other".to_owned(), reason: "no such program".to_owned() });
        let text = set.to_text();
        let lines: Vec<&str> = text.lines().filter(|l| l.contains("a laptop")).map(str::trim_end).collect();
        assert_eq!(
            lines.iter().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>(),
            [
                "OpenResty (nginx here) 24,615/s 30,000/s 70.55 ms - a laptop",
                "Bifrost 24,615/s - 70.55 ms - a laptop"
            ],
            "{text}"
        );
        let page = set.to_html();
        crate::page::testing::expect_sound(&page);
        for part in ["OpenResty (nginx here)", "<td>30,000/s</td>", "no such program"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(text.contains("left out: other: no such program"), "{text}");
        assert_eq!(serde_json::from_str::<ComparisonSet>(&set.to_json()).unwrap(), set);
    }
}
