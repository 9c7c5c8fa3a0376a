//! Reads what an agent says, with limits: on how much memory one message takes, and on every number, so that the sums
//! of all agents cannot overflow.

use crate::clean;
use crate::message::{FromAgent, Second};
use serde_json::json;
use weir_report::layout;
use weir_report::report::{CheckResult, Counts};

/// The largest count or time of an agent, 2^53: JSON represents it exactly, it is 104 days in nanoseconds, and the six
/// kinds of errors of a hundred agents add up below 2^64.
pub const NUMBER_MOST: u64 = 1 << 53;

/// The latest time of a clock: 146 years in nanoseconds since the agent began.
pub const CLOCK_MOST: u64 = 1 << 62;

/// Most objects in a message. Each may take a kilobyte, however short its text. A report with an hour of seconds and a
/// thousand steps has 30,000.
pub const OBJECTS_MOST: usize = 200_000;

/// Most histograms with values in a message: each takes up to 264 KiB, however short its text. A report has two for
/// each thread, one for each step and target, three for each part of a shape.
pub const HISTOGRAMS_MOST: usize = 8_192;

/// Most different error texts of an agent, which counts 32 and its notes.
pub const TEXTS_MOST: usize = 256;

/// Most different checks of a run.
pub const CHECKS_MOST: usize = 5_000;

/// Reads a message of an agent.
///
/// # Errors
/// The message is invalid or exceeds a limit; the text names which.
pub fn read(bytes: &[u8]) -> Result<FromAgent, String> {
    weigh(bytes)?;
    let text = std::str::from_utf8(bytes).map_err(|_| "not a message: it is not UTF-8".to_owned())?;
    let read = serde_json::from_str(&clean::json(text));
    let message = read.map_err(|e| clean::line(&format!("not a message: {e}")))?;
    bounded(&message)?;
    Ok(message)
}

/// Whether a message is short enough to be read: what it takes in memory may be ten thousand times its text.
fn weigh(bytes: &[u8]) -> Result<(), String> {
    let (mut objects, mut histograms, mut before, mut at) = (0, 0, 0, 0);
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => {
                while let Some(byte) = bytes.get(at) {
                    at += if *byte == b'\\' { 2 } else { 1 };
                    if *byte == b'"' {
                        break;
                    }
                }
            }
            b' ' | b'\n' | b'\r' | b'\t' => continue,
            b'{' => objects += 1,
            // A list of pairs: the buckets of a histogram.
            b'[' if before == b'[' => histograms += 1,
            _ => {}
        }
        before = *byte;
    }
    for (what, n, most) in [("objects", objects, OBJECTS_MOST), ("histograms", histograms, HISTOGRAMS_MOST)] {
        if n > most {
            return Err(format!("a message with {n} {what}, where at most {most} are allowed"));
        }
    }
    Ok(())
}

/// Whether every number of a message, and every list that is added up each second, is within its limit.
///
/// # Errors
/// Names the first number or list beyond its limit.
fn bounded(message: &FromAgent) -> Result<(), String> {
    match message {
        FromAgent::Pong { at_ns, .. } | FromAgent::Started { at_ns } if *at_ns > CLOCK_MOST => {
            Err(format!("at_ns: {at_ns} is more than a clock can show"))
        }
        FromAgent::Second(second) => of_second(second),
        FromAgent::Ended(report) => {
            let value = serde_json::to_value(report).map_err(|e| e.to_string())?;
            layout::within(&value, NUMBER_MOST)?;
            lists(&report.counts, &report.checks)
        }
        // What `setup` kept is the target's: it is passed on, and not computed with.
        _ => Ok(()),
    }
}

fn of_second(s: &Second) -> Result<(), String> {
    let Second { number, tick, counts, checks, window, .. } = s;
    let value = json!({
        "number": number, "tick": tick, "counts": counts, "checks": checks, "window": window,
    });
    layout::within(&value, NUMBER_MOST)?;
    for (name, h) in [("service", &s.service), ("response", &s.response)] {
        if h.max() > NUMBER_MOST {
            return Err(format!("{name}.max: {} is more than a run can yield", h.max()));
        }
    }
    lists(&s.counts, &s.checks)
}

fn lists(counts: &Counts, checks: &[CheckResult]) -> Result<(), String> {
    for (what, n, most) in [
        ("statuses", counts.statuses.len(), 1_000),
        ("gRPC codes", counts.grpc.len(), TEXTS_MOST),
        ("error texts", counts.error_texts.len(), TEXTS_MOST),
        ("checks", checks.len(), CHECKS_MOST),
    ] {
        if n > most {
            return Err(format!("{n} different {what}, where at most {most} are allowed"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_report::Report;

    /// The error for a message after a change of its JSON.
    fn said(message: &FromAgent, change: impl FnOnce(&mut serde_json::Value)) -> String {
        let mut value = serde_json::to_value(message).unwrap();
        change(&mut value);
        read(value.to_string().as_bytes()).err().unwrap_or_default()
    }

    fn second() -> FromAgent {
        let mut second = Second::default();
        second.counts.statuses.insert(200, 1);
        second.checks.push(CheckResult::default());
        for h in [&mut second.service, &mut second.response] {
            h.record(1_000);
        }
        FromAgent::Second(Box::new(second))
    }

    #[test]
    fn every_number_has_a_limit() {
        let report =
            FromAgent::Ended(Box::new(Report { threads: vec![Default::default()], ..Report::default() }));
        let mut seen = 0;
        for message in [&second(), &report] {
            assert_eq!(said(message, |_| {}), "");
            let value = serde_json::to_value(message).unwrap();
            let mut paths = Vec::new();
            numbers(&value, "", &mut paths);
            for path in paths {
                let told = said(message, |value| *value.pointer_mut(&path).unwrap() = u64::MAX.into());
                // Sums over clients or values, which are added without overflow, and a total that is not read.
                let is_sum =
                    ["/sum", "/count", "busy_ns", "think_ns", "available_ns", "sum_of_squares", "mean"];
                if !is_sum.iter().any(|end| path.ends_with(end)) {
                    assert!(!told.is_empty(), "{path} may be anything");
                    seen += 1;
                }
            }
        }
        assert!(seen > 100, "{seen}");
        for message in
            [FromAgent::Started { at_ns: u64::MAX }, FromAgent::Pong { number: 1, at_ns: u64::MAX }]
        {
            assert!(said(&message, |_| {}).contains("more than a clock"));
        }
    }

    fn numbers(value: &serde_json::Value, path: &str, out: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                map.iter().for_each(|(key, value)| numbers(value, &format!("{path}/{key}"), out));
            }
            serde_json::Value::Array(all) => {
                all.iter().enumerate().for_each(|(i, value)| numbers(value, &format!("{path}/{i}"), out));
            }
            serde_json::Value::Number(n) if n.is_u64() => out.push(path.to_owned()),
            _ => {}
        }
    }

    #[test]
    fn a_short_text_does_not_take_much_memory() {
        let many = |what: &str, n: usize| format!("[{}]", vec![what; n].join(","));
        for (text, want) in [
            (format!(r#"{{"ended":{{"steps":{}}}}}"#, many("{}", OBJECTS_MOST)), "objects"),
            (format!(r#"{{"ended":{{"steps":{}}}}}"#, many("[\n[0,1]]", HISTOGRAMS_MOST + 1)), "histograms"),
            // Braces in a text are none.
            (format!(r#"{{"refused":{{"why":["{}\"{{"]}}}}"#, "{".repeat(OBJECTS_MOST)), ""),
            (r#"{"refused":{"why":["#.to_owned(), "not a message"),
            ("\"\\".to_owned(), "not a message"),
        ] {
            let told = read(text.as_bytes()).err().unwrap_or_default();
            assert!(told.contains(want) && told.is_empty() == want.is_empty(), "{want}: {told}");
        }
        let texts = said(&second(), |value| {
            let texts: std::collections::BTreeMap<String, u64> =
                (0..300).map(|i| (i.to_string(), 1)).collect();
            value["second"]["counts"]["error_texts"] = serde_json::to_value(texts).unwrap();
        });
        assert!(texts.contains("300 different error texts"), "{texts}");
    }
}
