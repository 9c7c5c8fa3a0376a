//! Results of other load testers, read as one of our reports and judged like one: JMeter's JTL (CSV and XML), k6's
//! JSON lines, vegeta's JSON results, and the text of wrk2 with its spectrum.
//!
//! What a tool did not record stays empty, and `Report::source` lists it; the verdict says so.
//!
//! *Layout.* `samples` turns single requests into a report; each other file reads one format.

mod csv;
mod jtl;
mod k6;
mod samples;
mod time;
mod vegeta;
mod wrk2;

use crate::Report;

/// Longest text that is read: 2 GiB.
pub const BYTES_MOST: u64 = 2 << 30;

/// Characters of a message about a file: it may repeat a value as long as the file.
const MESSAGE_MOST: usize = 300;

/// Reads the results of another tool; `None` if they are of no tool that we know.
///
/// # Errors
/// It is the format of a tool, but a line of it is not as that tool writes it.
pub fn read(bytes: &[u8]) -> Option<Result<Report, String>> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        let hint = "it is binary. Results of `vegeta attack` (gob) are read as JSON: vegeta encode FILE > results.json";
        return Some(Err(hint.to_owned()));
    };
    let text = text.trim_start_matches('\u{feff}');
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let read: fn(&str) -> Result<Report, String> = match () {
        () if jtl::is_csv(first) => jtl::read_csv,
        () if jtl::is_xml(text) => jtl::read_xml,
        () if k6::is_line(first) => k6::read,
        () if vegeta::is_line(first) => vegeta::read,
        () if wrk2::is_text(text) => wrk2::read,
        () => return None,
    };
    Some(read(text).map_err(|why| why.chars().take(MESSAGE_MOST).collect()))
}

#[cfg(test)]
mod tests;
