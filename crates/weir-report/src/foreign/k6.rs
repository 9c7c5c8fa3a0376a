//! k6's `--out json=FILE`: a line per metric, and one per value of a request.

use super::samples::{Sample, Samples, quoted};
use super::time::rfc3339;
use crate::Report;
use crate::report::Source;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    metric: String,
    #[serde(default)]
    data: Data,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    time: String,
    value: f64,
    tags: Option<BTreeMap<String, serde_json::Value>>,
}

impl Data {
    fn tag(&self, name: &str) -> &str {
        self.tags.as_ref().and_then(|tags| tags.get(name)).and_then(|tag| tag.as_str()).unwrap_or_default()
    }

    fn count(&self) -> u64 {
        self.value.clamp(0.0, 1e15) as u64
    }
}

/// What k6's points do not say.
const UNKNOWN: [&str; 4] = [
    "when a request should have started (a queue before the target is in no time)",
    "how busy the generator was",
    "how many bytes each request took",
    "what was on the wire",
];

/// Whether a line is k6's.
pub(super) fn is_line(first: &str) -> bool {
    serde_json::from_str::<Line>(first).is_ok_and(|line| ["Metric", "Point"].contains(&line.kind.as_str()))
}

pub(super) fn read(text: &str) -> Result<Report, String> {
    let mut samples = Samples::default();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bad = |hint: &str| format!("line {}: {hint}", i + 1);
        let line: Line = serde_json::from_str(line).map_err(|e| bad(&e.to_string()))?;
        let data = &line.data;
        if line.kind != "Point" {
            continue;
        }
        match line.metric.as_str() {
            "http_req_duration" => {
                let end =
                    rfc3339(&data.time).ok_or_else(|| bad(&format!("time is `{}`", quoted(&data.time))))?;
                if !(0.0..1e9).contains(&data.value) {
                    return Err(bad(&format!("value is {}, expected milliseconds", data.value)));
                }
                let elapsed = (data.value * 1e6).round() as u64;
                let status = data.tag("status").parse::<u16>().ok().filter(|status| *status >= 100);
                let error = [data.tag("error_code"), data.tag("error")].join(" ").trim().to_owned();
                samples
                    .add(&Sample {
                        name: data.tag("name").to_owned(),
                        method: data.tag("method").to_owned(),
                        started: end.saturating_sub(elapsed),
                        elapsed,
                        status: status.filter(|status| *status < 600),
                        error,
                        ..Sample::default()
                    })
                    .map_err(|hint| bad(&hint))?;
            }
            "checks" => samples.check(data.tag("check"), data.value != 0.0),
            "dropped_iterations" => samples.unsent(data.count()),
            "vus" => samples.users(data.count()),
            _ => {}
        }
    }
    samples.end(Source { tool: "k6".to_owned(), unknown: UNKNOWN.map(str::to_owned).to_vec() })
}
