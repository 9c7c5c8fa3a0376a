//! The content of k6's `--summary-export` file: unrounded figures by metric name.
//!
//! A condition is listed under its metric, with `true` if it was *violated*, as in k6. Checks have no `id`, which in
//! k6 is a hash of their path.

use super::text::{Metric, Sheet};
use serde_json::{Map, Value, json};

/// The id of k6's only group, which has no name.
const ROOT_ID: &str = "d41d8cd98f00b204e9800998ecf8427e";

impl Sheet {
    pub(super) fn export(&self) -> Value {
        let mut metrics: Map<String, Value> = self
            .sections
            .iter()
            .flat_map(|section| &section.metrics)
            .map(|(name, metric)| ((*name).to_owned(), self.figures(metric)))
            .collect();
        if !self.checks.is_empty() {
            let passes = self.checks.iter().map(|c| c.passes).sum();
            let total = self.checks.iter().map(|c| c.passes + c.fails).sum();
            metrics.insert("checks".to_owned(), self.figures(&Metric::Rate { passes, total }));
        }
        for t in &self.thresholds {
            // A figure without a k6 metric, such as the cost of the target, has its conditions but no values.
            let metric = metrics.entry(t.metric.clone()).or_insert_with(|| json!({}));
            metric["thresholds"][&t.source] = json!(!t.ok);
        }
        let checks: Map<String, Value> = self
            .checks
            .iter()
            .map(|c| {
                let path = format!("::{}", c.name);
                (
                    c.name.clone(),
                    json!({ "name": c.name, "path": path, "passes": c.passes, "fails": c.fails }),
                )
            })
            .collect();
        json!({
            "root_group": { "name": "", "path": "", "id": ROOT_ID, "groups": {}, "checks": checks },
            "metrics": metrics,
        })
    }

    fn figures(&self, metric: &Metric) -> Value {
        match metric {
            Metric::Counter { count, rate } | Metric::Data { count, rate } => {
                json!({ "count": count, "rate": number(*rate) })
            }
            Metric::Gauge { value, min, max } => json!({ "value": value, "min": min, "max": max }),
            Metric::Rate { passes, total } => {
                let value = if *total == 0 { 0.0 } else { *passes as f64 / *total as f64 };
                json!({ "passes": passes, "fails": total.saturating_sub(*passes), "value": number(value) })
            }
            Metric::Trend(values) => {
                self.stats.iter().zip(values).map(|(s, ms)| ((*s).to_owned(), number(*ms))).collect()
            }
        }
    }
}

/// A number as JavaScript writes it: without a fraction if it is whole.
fn number(n: f64) -> Value {
    // Up to here, a double represents every integer.
    const WHOLE_MOST: f64 = 9_007_199_254_740_992.0;
    if n.fract() == 0.0 && (0.0..WHOLE_MOST).contains(&n) { json!(n as u64) } else { json!(n) }
}
