//! Reads and checks a saved report. Code that computes with the result can rely on its numbers.

use crate::Histogram;
use crate::report::Report;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::{Error, Value};

/// The largest integer in a report: two years in nanoseconds, far enough below overflow that a few can be added.
pub(super) const WHOLE_MOST: u64 = 1 << 56;

/// Reads the output of the `json` layout.
///
/// # Errors
/// The text is not a report, or has a number that no run can yield; the error names the field.
pub fn read(text: &str) -> Result<Report, Error> {
    // This reader comes first because it reports lines and columns.
    let report = serde_json::from_str::<Report>(text);
    let value: Value = serde_json::from_str(text)?;
    bounded("", &value, WHOLE_MOST)?;
    report
}

/// Whether no integer of a report in JSON is larger than `most`, but for sums over samples or clients.
///
/// # Errors
/// The first number beyond it, with its path.
pub fn within(value: &Value, most: u64) -> Result<(), String> {
    bounded("", value, most).map_err(|e| e.to_string())
}

/// The same for parsed JSON.
pub(super) fn of_value(value: &Value) -> Result<Report, Error> {
    bounded("", value, WHOLE_MOST)?;
    Report::deserialize(value)
}

fn bounded(path: &str, value: &Value, most: u64) -> Result<(), Error> {
    match value {
        Value::Object(map) => {
            let is_histogram = map.contains_key("buckets");
            if is_histogram {
                Histogram::deserialize(value).map_err(|e| Error::custom(format!("{path}: {e}")))?;
            }
            // Of a thread by its path: keys of other objects may be texts of a peer.
            let is_thread = path.starts_with("threads[") && !path.contains('.');
            for (key, value) in map {
                // Sums over samples or clients have no limit: they are only added where overflow is impossible.
                let is_sum = is_histogram && key == "sum"
                    || is_thread && ["available_ns", "busy_ns", "think_ns"].contains(&key.as_str());
                if !is_sum {
                    let dot = if path.is_empty() { "" } else { "." };
                    bounded(&format!("{path}{dot}{key}"), value, most)?;
                }
            }
            Ok(())
        }
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(i, item)| bounded(&format!("{path}[{i}]"), item, most))
        }
        Value::Number(number) if number.as_u64().is_some_and(|n| n > most) => {
            Err(Error::custom(format!("{path}: {number} is more than a run can yield")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Format, render};
    use crate::report::{End, Pace, SCHEMA};
    use std::collections::BTreeMap;

    #[test]
    fn a_field_that_can_not_be_is_named() {
        let mut report = Report::default();
        [1000, 2000].iter().for_each(|ns| report.phases.waiting.record(*ns));
        report.counts.requests = 77;
        let text = render(&report, Format::named("json").unwrap());
        assert_eq!(read(&text).unwrap(), report);
        // The sum for 10,000 clients in a day.
        let long = text.replacen(r#""threads":[]"#, r#""threads":[{"available_ns":864000000000000000}]"#, 1);
        assert_eq!(read(&long).unwrap().threads[0].available_ns, 864_000_000_000_000_000);
        for (from, to, want) in [
            (r#""min":1000"#, r#""min":3000"#, "phases.waiting: min is 3000, which is above max, 2000"),
            ("[1000,1]", "[2001,1]", "phases.waiting: buckets: 2000 follows"),
            ("[2000,1]", "[2049,1]", "phases.waiting: buckets: 2049 is where no bucket begins"),
            ("[2000,1]", "[4097,1]", "phases.waiting: buckets: 4097 is where no bucket begins"),
            ("[2000,1]", "[2000,9007199254740993]", "phases.waiting: buckets: they hold more than"),
            (
                r#""requests":77"#,
                r#""requests":18446744073709551615"#,
                "counts.requests: 18446744073709551615 is more",
            ),
            // A text of the target is no name of a field.
            (
                r#""error_texts":{}"#,
                r#""error_texts":{"busy_ns":18446744073709551615}"#,
                "counts.error_texts.busy_ns: 18446744073709551615 is more",
            ),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            let said = read(&changed).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(said.starts_with(want), "{to}: {said}");
        }
    }

    #[test]
    fn a_report_survives_being_saved() {
        let mut report =
            Report { schema: SCHEMA.to_owned(), duration_ns: 2_000_000_000, ..Report::default() };
        report.counts.statuses = BTreeMap::from([(200, 90), (302, 5), (500, 5)]);
        report.counts.responses = 100;
        report.counts.errors.reset = 3;
        report.plan.pace = Pace::Rate { per_second: 50.0 };
        report.end = End::Aborted { condition: "errors>50%".to_owned() };
        (1..=100).for_each(|ms| report.latency.service.record(ms * 1_000_000));
        let text = render(&report, Format::named("json").unwrap());
        let back: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(back, report);
        assert_eq!((back.rate(), back.finished(), back.failed()), (50.0, 103, 8));
        assert_eq!(back.little_residual(), None);
    }
}
