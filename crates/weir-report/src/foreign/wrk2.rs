//! The text of wrk2 with `--latency`: the spectrum of HdrHistogram, as it also writes it alone.
//!
//! A line of the spectrum has a value and how many responses took at most that long, so the distribution is known as
//! finely as the lines stand.

use crate::Histogram;
use crate::report::{End, Pace, Protocol, Report, SCHEMA, Source, Stop, TargetPlan, TargetStats};
use crate::units::{duration, shown};
use crate::verdict;

const SPECTRUM: &str = "Detailed Percentile spectrum:";

/// Largest count of a line: 2^53, as in a saved report.
const COUNT_MOST: u64 = 1 << 53;

/// What the text does not say.
const UNKNOWN: [&str; 5] = [
    "when the run began, and its course",
    "how busy the generator was",
    "which statuses the responses had (those that wrk2 counts as bad are shown as 500)",
    "times between two lines of the spectrum",
    "what was on the wire",
];

pub(super) fn is_text(text: &str) -> bool {
    let has_head = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        matches!(words.as_slice(), ["Value", "Percentile", "TotalCount", ..])
    };
    text.contains(SPECTRUM) || text.lines().take(50).any(has_head)
}

pub(super) fn read(text: &str) -> Result<Report, String> {
    let mut r = Report { schema: SCHEMA.to_owned(), end: End::Duration, ..Report::default() };
    let (mut spectra, mut url) = (Vec::new(), String::new());
    let mut current: Option<(Histogram, u64)> = None;
    for (i, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let number = |word: &&str| word.trim_end_matches([',', ']']).parse::<u64>().unwrap_or(0);
        match words.as_slice() {
            ["Value", "Percentile", "TotalCount", ..] => {
                spectra.extend(current.take().map(|(times, _)| times));
                current = Some((Histogram::new(), 0));
            }
            [value, share, total, ..] if current.is_some() && share.parse::<f64>().is_ok() => {
                let Some((times, before)) = &mut current else { continue };
                let bad = || format!("line {}: expected a value in ms, a share and a growing count", i + 1);
                let ms: f64 = value.parse().map_err(|_| bad())?;
                let total: u64 = total.parse().ok().filter(|n| *n <= COUNT_MOST).ok_or_else(bad)?;
                if !(0.0..86_400_000.0).contains(&ms) || total < *before {
                    return Err(bad());
                }
                times.record_n((ms * 1e6).round() as u64, total - *before);
                *before = total;
            }
            ["Running", time, "test", "@", rest @ ..] => {
                url = rest.join(" ");
                r.plan.stop = Stop { requests: None, duration_ns: duration(time).map(nanos) };
            }
            [threads, "threads", "and", connections, "connections"] => {
                (r.plan.threads, r.plan.connections) = (number(threads), number(connections));
            }
            [requests, "requests", "in", time, ..] => {
                r.counts.responses = number(requests);
                r.duration_ns = duration(time.trim_end_matches(',')).map_or(0, nanos);
            }
            ["Socket", "errors:", "connect", connect, "read", read, "write", write, "timeout", timeout] => {
                let e = &mut r.counts.errors;
                (e.connect, e.reset) = (number(connect), number(read));
                (e.write, e.timeout) = (number(write), number(timeout));
            }
            ["Non-2xx", "or", "3xx", "responses:", bad] => {
                r.counts.statuses.insert(500, number(bad));
            }
            _ => {}
        }
    }
    spectra.extend(current.map(|(times, _)| times));
    let mut spectra = spectra.into_iter();
    r.latency.response = spectra.next().filter(|times| !times.is_empty()).ok_or("its spectrum is empty")?;
    r.latency.service = spectra.next().unwrap_or_else(|| r.latency.response.clone());
    let counted = r.latency.response.count();
    // wrk2 leaves its calibration out of the spectrum, and a spectrum alone has no other number.
    r.counts.responses = r.counts.responses.max(counted);
    let bad = r.counts.statuses.get(&500).copied().unwrap_or(0);
    r.counts.statuses.insert(200, r.counts.responses.saturating_sub(bad));
    r.counts.kept_alive = r.counts.responses;
    r.counts.requests = r.counts.responses + r.counts.errors.total();
    r.plan.keepalive = true;
    r.plan.protocol = Protocol::Http11;
    r.plan.pace = Pace::Rate { per_second: r.rate() };
    r.plan.targets = vec![TargetPlan { url: shown(url.as_bytes()), weight: 1, ..TargetPlan::default() }];
    r.targets = vec![TargetStats { responses: r.counts.responses, ..TargetStats::default() }];
    r.source = Some(Source { tool: "wrk2".to_owned(), unknown: UNKNOWN.map(str::to_owned).to_vec() });
    r.verdict = verdict::judge(&r);
    Ok(r)
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
