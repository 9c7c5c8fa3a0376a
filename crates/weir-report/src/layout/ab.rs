//! `ab`: the text of ApacheBench 2.3.
//!
//! Derived from output of ab of Apache 2.4.71 (the files `ab*.txt` in tests/captured), which measures whole
//! microseconds and prints rounded milliseconds. Its rows map to ours: Connect = `phases.blocked`, Total =
//! `latency.response`, Waiting = `phases.waiting`, Processing = `latency.service`.
//!
//! The three copyright lines at the top are left out: this is not ApacheBench. Values without a row in ab count where
//! a reader of ab would look for them: TLS errors under Connect, timeouts and protocol errors under Exceptions.

use super::format::Format;
use crate::Histogram;
use crate::report::{Pace, Percentiles, Report, TargetStats};
use std::fmt::Write;

pub(super) static FORMAT: Format = Format {
    name: "ab",
    about: "the text of ApacheBench",
    differs: "Without its copyright. TLS errors under Connect, timeouts under Exceptions.",
    print,
};

fn print(report: &Report) -> String {
    let mut out = head(report);
    if report.counts.responses > 0 {
        let rows = Rows::of(report);
        out += &rows.table();
        if report.counts.responses > 1 {
            out += &rows.percentiles();
        }
    }
    out
}

// === head ===

/// Everything above the table.
fn head(report: &Report) -> String {
    let mut out = String::new();
    let none = Default::default();
    let target = report.plan.targets.first().unwrap_or(&none);
    let mut line = |label: &str, value: String| {
        let _ = writeln!(out, "{label:<23} {value}");
    };
    let server = report.ledger.server.as_deref().unwrap_or_default();
    line("Server Software:", server.split(' ').next().unwrap_or_default().to_owned());
    line("Server Hostname:", target.host.clone());
    line("Server Port:", target.port.to_string());
    if let Some(version) = &report.ledger.tls_version {
        line("SSL/TLS Protocol:", tls(report, version));
        if let Some(group) = &report.ledger.tls_group {
            line("Server Temp Key:", temp_key(group));
        }
        if target.host.parse::<std::net::IpAddr>().is_err() {
            line("TLS Server Name:", target.host.clone());
        }
    }
    let mut out = format!("Benchmarking {} (be patient).....done\n\n\n{out}\n", target.host);
    let mut line = |label: &str, value: String| {
        let _ = writeln!(out, "{label:<23} {value}");
    };
    line("Document Path:", target.path.clone());
    line("Document Length:", format!("{} bytes\n", document_bytes(report)));
    line("Concurrency Level:", Concurrency::of(report).level.to_string());
    line("Time taken for tests:", format!("{:.3} seconds", report.seconds()));
    line("Complete requests:", report.counts.responses.to_string());
    let failed = Failed::of(report);
    line("Failed requests:", failed.total().to_string());
    if failed.total() > 0 {
        let Failed { connect, receive, length, exceptions } = failed;
        let _ = writeln!(
            out,
            "   (Connect: {connect}, Receive: {receive}, Length: {length}, Exceptions: {exceptions})"
        );
    }
    out + &totals(report, target.body_bytes > 0)
}

/// From the write errors to the transfer rates.
fn totals(report: &Report, with_body: bool) -> String {
    let mut out = String::new();
    let (counts, bytes) = (&report.counts, &report.bytes);
    let mut line = |label: &str, value: String| {
        let _ = writeln!(out, "{label:<23} {value}");
    };
    if counts.errors.write > 0 {
        line("Write errors:", counts.errors.write.to_string());
    }
    let not_2xx = counts.responses.saturating_sub(report.with_status(200..=299));
    if not_2xx > 0 {
        line("Non-2xx responses:", not_2xx.to_string());
    }
    if report.plan.keepalive {
        line("Keep-Alive requests:", counts.kept_alive.to_string());
    }
    line("Total transferred:", format!("{} bytes", bytes.received()));
    if with_body {
        line("Total body sent:", bytes.sent().to_string());
    }
    line("HTML transferred:", format!("{} bytes", bytes.received_body));
    if counts.responses > 0 {
        let (seconds, done) = (report.seconds(), counts.responses as f64);
        line("Requests per second:", format!("{:.2} [#/sec] (mean)", done / seconds));
        line("Time per request:", format!("{:.3} [ms] (mean)", Concurrency::of(report).each_s * 1000.0));
        line(
            "Time per request:",
            format!("{:.3} [ms] (mean, across all concurrent requests)", seconds * 1000.0 / done),
        );
        let kilo = |bytes: u64| bytes as f64 / 1024.0 / seconds;
        line("Transfer rate:", format!("{:.2} [Kbytes/sec] received", kilo(bytes.received())));
        if with_body {
            line("", format!("{:.2} kb/s sent", kilo(bytes.sent())));
            line("", format!("{:.2} kb/s total", kilo(bytes.received() + bytes.sent())));
        }
    }
    out
}

/// ab keeps a fixed number of requests in flight and derives the time per request from it. So do we, without think
/// time and without a rate. Otherwise the time is the measured mean, and the number follows from it.
struct Concurrency {
    level: u64,
    each_s: f64,
}

impl Concurrency {
    fn of(report: &Report) -> Self {
        let (plan, done) = (&report.plan, report.counts.responses.max(1) as f64);
        if plan.pace == Pace::AsFastAsPossible && plan.think_ns == 0 {
            let level =
                plan.connections.saturating_mul(plan.streams.max(1)).saturating_mul(plan.pipeline.max(1));
            return Self { level, each_s: level as f64 * report.seconds() / done };
        }
        let each_s = report.latency.response.mean() / 1e9;
        Self { level: ((each_s * done / report.seconds()).round() as u64).max(1), each_s }
    }
}

/// Body length of the first response. The report has it for good responses only; otherwise the mean is used.
fn document_bytes(report: &Report) -> u64 {
    let mean = report.bytes.received_body.checked_div(report.counts.responses);
    report.targets.iter().find_map(|t: &TargetStats| t.document_bytes).or(mean).unwrap_or(0)
}

/// `Failed requests` by kind.
struct Failed {
    connect: u64,
    receive: u64,
    length: u64,
    exceptions: u64,
}

impl Failed {
    const fn of(report: &Report) -> Self {
        let errors = &report.counts.errors;
        Self {
            connect: errors.connect + errors.tls,
            receive: errors.reset,
            length: report.counts.other_length,
            exceptions: errors.timeout + errors.protocol,
        }
    }

    const fn total(&self) -> u64 {
        self.connect + self.receive + self.length + self.exceptions
    }
}

// === TLS in OpenSSL's words ===

/// Version, cipher, bits of the server's key, bits of the cipher.
fn tls(report: &Report, version: &str) -> String {
    let cipher = openssl_name(report.ledger.tls_cipher.as_deref().unwrap_or_default());
    let bits = if cipher.contains("128") { 128 } else { 256 };
    format!("{version},{cipher},{},{bits}", report.ledger.tls_key_bits.unwrap_or(0))
}

/// OpenSSL's name of a cipher suite: `TLS_AES_256_GCM_SHA384`, `ECDHE-RSA-AES256-GCM-SHA384`.
fn openssl_name(suite: &str) -> String {
    if let Some(rest) = suite.strip_prefix("TLS13_") {
        return format!("TLS_{rest}");
    }
    match suite.strip_prefix("TLS_").and_then(|s| s.split_once("_WITH_")) {
        Some((exchange, cipher)) => {
            // OpenSSL omits the hash for ChaCha20, and the separator between AES and its bits.
            let cipher = cipher.replace("AES_", "AES").replace("POLY1305_SHA256", "POLY1305");
            format!("{exchange}-{cipher}").replace('_', "-")
        }
        None => suite.to_owned(),
    }
}

fn temp_key(group: &str) -> String {
    match group {
        "X25519" => "X25519 253 bits".to_owned(),
        "secp256r1" => "ECDH prime256v1 256 bits".to_owned(),
        "secp384r1" => "ECDH secp384r1 384 bits".to_owned(),
        other => other.to_owned(),
    }
}

// === the table ===

/// The rows of `Connection Times`, in microseconds.
struct Rows {
    connect: Row,
    processing: Row,
    waiting: Row,
    total: Row,
    /// `Percentage of the requests served within`.
    within: Vec<(u64, u64)>,
}

struct Row {
    min: u64,
    mean: u64,
    stdev: f64,
    median: u64,
    max: u64,
}

impl Row {
    fn of(h: &Histogram) -> Self {
        let half = h.count() / 2;
        // ab counts from 0: for an odd number it averages the middle value and the next.
        let median = if h.count() % 2 == 1 && h.count() > 1 {
            u64::midpoint(h.at_rank(half + 1), h.at_rank(half + 2))
        } else {
            h.at_rank(half + 1)
        };
        Self {
            min: h.min() / 1000,
            mean: h.sum().checked_div(h.count()).unwrap_or(0) / 1000,
            stdev: h.stdev() / 1000.0,
            median: median / 1000,
            max: h.max() / 1000,
        }
    }

    fn text(&self, label: &str) -> String {
        let Self { min, mean, median, max, .. } = self;
        let [min, mean, median, max] = [*min, *mean, *median, *max].map(whole_ms);
        format!("{label:<12}{min:5} {mean:4} {:5.1} {median:6} {max:7}\n", self.stdev / 1000.0)
    }

    /// ab's warning that the printed mean and median are far apart.
    fn warning(&self, what: &str) -> String {
        let apart = whole_ms(self.mean).abs_diff(whole_ms(self.median)) as f64;
        let stdev = self.stdev / 1000.0;
        if apart > 2.0 * stdev {
            format!(
                "ERROR: The median and mean for {what} are more than twice the standard\n       \
                 deviation apart. These results are NOT reliable.\n"
            )
        } else if apart > stdev {
            format!(
                "WARNING: The median and mean for {what} are not within a normal deviation\n        \
                 These results are probably not that reliable.\n"
            )
        } else {
            String::new()
        }
    }
}

impl Rows {
    fn of(report: &Report) -> Self {
        let total = &report.latency.response;
        let done = total.count();
        Self {
            connect: Row::of(&report.phases.blocked),
            processing: Row::of(&report.latency.service),
            waiting: Row::of(&report.phases.waiting),
            total: Row::of(total),
            within: [50, 66, 75, 80, 90, 95, 98, 99, 100]
                .into_iter()
                .filter(|p| *p == 100 || Percentiles::are_known(*p as f64 / 100.0, done))
                .map(|p| (p, total.at_rank(done * p / 100 + 1) / 1000))
                .collect(),
        }
    }

    fn table(&self) -> String {
        let mut out = "\nConnection Times (ms)\n              min  mean[+/-sd] median   max\n".to_owned();
        out += &self.connect.text("Connect:");
        out += &self.processing.text("Processing:");
        out += &self.waiting.text("Waiting:");
        out += &self.total.text("Total:");
        out += &self.connect.warning("the initial connection time");
        out += &self.processing.warning("the processing time");
        out += &self.waiting.warning("the waiting time");
        out + &self.total.warning("the total time")
    }

    fn percentiles(&self) -> String {
        let mut out = "\nPercentage of the requests served within a certain time (ms)\n".to_owned();
        for (percent, us) in &self.within {
            let longest = if *percent == 100 { " (longest request)" } else { "" };
            let _ = writeln!(out, "{percent:4}%  {:5}{longest}", whole_ms(*us));
        }
        out
    }
}

const fn whole_ms(us: u64) -> u64 {
    (us + 500) / 1000
}

#[cfg(test)]
#[path = "ab/tests.rs"]
mod tests;
