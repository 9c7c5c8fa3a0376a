//! JMeter's result files: CSV with its header, and XML.
//!
//! A sample of a transaction controller sums up other samples and is left out, as are the samples within a sample.

use super::csv::Records;
use super::samples::{Sample, Samples, quoted};
use crate::Report;
use crate::report::Source;
use crate::xml::{self, Element};

/// What a JTL does not say.
const UNKNOWN: [&str; 4] = [
    "when a request should have started (a queue before the target is in no time)",
    "how busy the generator was",
    "whether connections were reused",
    "what was on the wire",
];

fn source() -> Source {
    Source { tool: "JMeter".to_owned(), unknown: UNKNOWN.map(str::to_owned).to_vec() }
}

/// Whether this is the header of a JTL.
pub(super) fn is_csv(first: &str) -> bool {
    delimiter(first).is_some_and(|delimiter| {
        let names: Vec<&str> = first.split(delimiter).map(str::trim).collect();
        names.contains(&"timeStamp") && names.contains(&"elapsed")
    })
}

fn delimiter(first: &str) -> Option<char> {
    [',', '\t', ';', '|'].into_iter().find(|c| first.contains(*c))
}

/// Whether this is a JTL in XML.
pub(super) fn is_xml(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with('<') && text.get(..text.len().min(1024)).unwrap_or(text).contains("<testResults")
}

/// One sample, by the names of the CSV.
struct Row<'a>(&'a dyn Fn(&str) -> Option<&'a str>);

impl Row<'_> {
    fn number(&self, name: &str) -> Result<u64, String> {
        let text = (self.0)(name).unwrap_or_default();
        text.trim().parse().map_err(|_| format!("{name} is `{}`, expected a number", quoted(text)))
    }

    fn milliseconds(&self, name: &str) -> Option<u64> {
        self.number(name).ok()?.checked_mul(1_000_000)
    }

    fn text(&self, name: &str) -> &str {
        (self.0)(name).unwrap_or_default()
    }

    /// Adds the sample, unless it sums up others.
    fn add(&self, samples: &mut Samples) -> Result<(), String> {
        if self.text("responseMessage").starts_with("Number of samples in transaction") {
            return Ok(());
        }
        let ms = |name: &str| self.number(name)?.checked_mul(1_000_000).ok_or("a time too large".to_owned());
        let (code, success) = (self.text("responseCode").trim(), self.text("success"));
        let status = code.parse::<u16>().ok().filter(|status| (100..600).contains(status));
        let connect = self.milliseconds("Connect");
        samples.add(&Sample {
            name: self.text("label").to_owned(),
            started: ms("timeStamp")?,
            elapsed: ms("elapsed")?,
            status,
            error: format!("{code} {}", self.text("responseMessage")).trim().to_owned(),
            sent: self.number("sentBytes").unwrap_or(0),
            received: self.number("bytes").unwrap_or(0),
            users: self.number("allThreads").unwrap_or(0),
            waiting: self.milliseconds("Latency").map(|ns| ns.saturating_sub(connect.unwrap_or(0))),
            connecting: connect,
            ..Sample::default()
        })?;
        // An assertion of the plan: it may fail a response whose status is good.
        if status.is_some() && !success.is_empty() {
            samples.check("success", success.eq_ignore_ascii_case("true"));
        }
        Ok(())
    }
}

pub(super) fn read_csv(text: &str) -> Result<Report, String> {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let mut records = Records::new(text, delimiter(first).unwrap_or(','))
        .filter(|(_, cells)| cells.iter().any(|cell| !cell.trim().is_empty()));
    let (_, names) = records.next().ok_or("it is empty")?;
    let mut samples = Samples::default();
    for (line, cells) in records {
        if cells.len() != names.len() {
            return Err(format!("line {line} has {} columns, the header {}", cells.len(), names.len()));
        }
        let cell = |name: &str| {
            let column = names.iter().position(|known| known.trim() == name)?;
            cells.get(column).map(String::as_str)
        };
        Row(&cell).add(&mut samples).map_err(|hint| format!("line {line}: {hint}"))?;
    }
    samples.end(source())
}

pub(super) fn read_xml(text: &str) -> Result<Report, String> {
    let root = xml::parse(text)?;
    let mut samples = Samples::default();
    let is_sample = |e: &&Element| ["httpSample", "sample"].contains(&e.name.as_str());
    for (i, element) in root.children.iter().filter(is_sample).enumerate() {
        let value = |name: &str| {
            let short = match name {
                "timeStamp" => "ts",
                "elapsed" => "t",
                "label" => "lb",
                "responseCode" => "rc",
                "responseMessage" => "rm",
                "success" => "s",
                "bytes" => "by",
                "sentBytes" => "sby",
                "allThreads" => "na",
                "Latency" => "lt",
                "Connect" => "ct",
                _ => return None,
            };
            element.attribute(short)
        };
        Row(&value).add(&mut samples).map_err(|hint| format!("sample {}: {hint}", i + 1))?;
    }
    samples.end(source())
}
