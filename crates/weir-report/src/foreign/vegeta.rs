//! vegeta's results as `vegeta encode` writes them: a JSON object per line and request.

use super::samples::{Sample, Samples, quoted};
use super::time::rfc3339;
use crate::Report;
use crate::report::Source;
use serde::Deserialize;

#[derive(Deserialize)]
struct Line {
    code: u16,
    timestamp: String,
    /// Nanoseconds.
    latency: u64,
    #[serde(default)]
    bytes_out: u64,
    #[serde(default)]
    bytes_in: u64,
    #[serde(default)]
    error: String,
    #[serde(default)]
    method: String,
    #[serde(default)]
    url: String,
}

/// What vegeta's results do not say.
const UNKNOWN: [&str; 4] = [
    "when a request should have started (vegeta counts from the actual start)",
    "how busy the generator was",
    "whether connections were reused",
    "what was on the wire",
];

/// Whether a line is vegeta's.
pub(super) fn is_line(first: &str) -> bool {
    serde_json::from_str::<Line>(first).is_ok()
}

pub(super) fn read(text: &str) -> Result<Report, String> {
    let mut samples = Samples::default();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bad = |hint: &str| format!("line {}: {hint}", i + 1);
        let line: Line = serde_json::from_str(line).map_err(|e| bad(&e.to_string()))?;
        let started = rfc3339(&line.timestamp)
            .ok_or_else(|| bad(&format!("timestamp is `{}`", quoted(&line.timestamp))))?;
        samples
            .add(&Sample {
                name: line.url,
                method: line.method,
                started,
                elapsed: line.latency,
                // vegeta also notes an error for a status of 400 and above.
                status: (100..600).contains(&line.code).then_some(line.code),
                error: line.error,
                sent: line.bytes_out,
                received: line.bytes_in,
                ..Sample::default()
            })
            .map_err(|hint| bad(&hint))?;
    }
    samples.end(Source { tool: "vegeta".to_owned(), unknown: UNKNOWN.map(str::to_owned).to_vec() })
}
