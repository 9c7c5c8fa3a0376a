//! Single requests, collected into a report.

use crate::Histogram;
use crate::report::{
    CheckResult, Percentiles, Protocol, Report, SCHEMA, Series, Source, TargetPlan, TargetStats, Tick,
};
use crate::units::shown;
use crate::verdict;
use std::collections::BTreeMap;

/// Names that are told apart; further ones are counted as one.
const NAMES_MOST: usize = 100;

/// Error texts that are told apart.
const TEXTS_MOST: usize = 32;

/// Characters of a text that are kept.
const TEXT_MOST: usize = 1_000;

/// Characters of a text that a message repeats.
const QUOTED_MOST: usize = 40;

/// The beginning of a text of the file, for a message.
pub(super) fn quoted(text: &str) -> String {
    let mut beginning: String = text.chars().take(QUOTED_MOST).collect();
    if beginning.len() < text.len() {
        beginning.push('…');
    }
    shown(beginning.as_bytes())
}

/// The largest time of a sample: a day. A larger one is a mistake in the file.
const TIME_MOST: u64 = 86_400_000_000_000;

/// One request as another tool recorded it.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// What the tool groups it by: a label, or the URL.
    pub(super) name: String,
    pub(super) method: String,
    /// Its start: nanoseconds since 1970 UTC.
    pub(super) started: u64,
    pub(super) elapsed: u64,
    /// The status; none if there was no response.
    pub(super) status: Option<u16>,
    /// Why there was none.
    pub(super) error: String,
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Users at that moment, where the tool says.
    pub(super) users: u64,
    pub(super) waiting: Option<u64>,
    pub(super) connecting: Option<u64>,
}

/// All samples so far.
#[derive(Debug, Default)]
pub(super) struct Samples {
    report: Report,
    /// End, elapsed, whether it has a response, whether that is unexpected, and users; for the course of the run.
    course: Vec<(u64, u64, bool, bool, u64)>,
    names: BTreeMap<String, usize>,
    checks: BTreeMap<String, (u64, u64)>,
}

impl Samples {
    /// Takes one request.
    ///
    /// # Errors
    /// No request can have such times.
    pub(super) fn add(&mut self, s: &Sample) -> Result<(), String> {
        if s.elapsed > TIME_MOST || s.started > 1 << 62 {
            return Err("a time that no request can have".to_owned());
        }
        let target = self.target(s);
        let r = &mut self.report;
        r.counts.requests += 1;
        r.bytes.sent_body = r.bytes.sent_body.saturating_add(s.sent);
        r.bytes.received_body = r.bytes.received_body.saturating_add(s.received);
        let unexpected = s.status.is_some_and(|status| !crate::report::is_expected(status));
        if let Some(t) = r.targets.get_mut(target) {
            t.requests += 1;
            t.responses += u64::from(s.status.is_some());
            t.errors += u64::from(s.status.is_none());
            t.unexpected += u64::from(unexpected);
            if s.status.is_some() {
                t.service.record(s.elapsed);
            }
        }
        match s.status {
            Some(status) => {
                r.counts.responses += 1;
                r.counts.kept_alive += 1; // unknown; none may count as closed
                *r.counts.statuses.entry(status).or_default() += 1;
                r.latency.service.record(s.elapsed);
                r.latency.response.record(s.elapsed);
                if unexpected {
                    r.latency.service_unexpected.record(s.elapsed);
                }
                if let Some(ns) = s.waiting {
                    r.phases.waiting.record(ns.min(TIME_MOST));
                }
                if let Some(ns) = s.connecting {
                    r.phases.connecting.record(ns.min(TIME_MOST));
                }
            }
            None => self.error(&s.error),
        }
        let end = s.started + s.elapsed;
        self.course.push((end, s.elapsed, s.status.is_some(), unexpected, s.users));
        Ok(())
    }

    /// Counts a check.
    pub(super) fn check(&mut self, name: &str, passed: bool) {
        let name: &str = &name.chars().take(TEXT_MOST).collect::<String>();
        if self.checks.len() < NAMES_MOST || self.checks.contains_key(name) {
            let counts = self.checks.entry(name.to_owned()).or_default();
            counts.0 += u64::from(passed);
            counts.1 += u64::from(!passed);
            self.report.counts.failed_checks += u64::from(!passed);
        }
    }

    /// Starts that the tool left out.
    pub(super) const fn unsent(&mut self, n: u64) {
        self.report.counts.unsent = self.report.counts.unsent.saturating_add(n);
    }

    /// The most users.
    pub(super) fn users(&mut self, n: u64) {
        self.report.plan.connections = self.report.plan.connections.max(n);
    }

    /// The number of the target of a sample.
    fn target(&mut self, s: &Sample) -> usize {
        let name: String = s.name.chars().take(TEXT_MOST).collect();
        let method: String = s.method.chars().take(TEXT_MOST).collect();
        let whole = if method.is_empty() { name.clone() } else { format!("{method} {name}") };
        if let Some(known) = self.names.get(&whole) {
            return *known;
        }
        let r = &mut self.report;
        let is_rest = r.targets.len() >= NAMES_MOST;
        if is_rest && r.targets.len() > NAMES_MOST {
            return NAMES_MOST;
        }
        let (method, url) = if is_rest { ("", "…") } else { (method.as_str(), name.as_str()) };
        r.plan.targets.push(TargetPlan {
            method: shown(method.as_bytes()),
            url: shown(url.as_bytes()),
            weight: 1,
            ..TargetPlan::default()
        });
        r.targets.push(TargetStats::default());
        let number = r.targets.len() - 1;
        if !is_rest {
            self.names.insert(whole, number);
        }
        number
    }

    /// Counts an error by its kind, as far as its text tells.
    fn error(&mut self, text: &str) {
        // Its beginning tells the kind; a line may be as long as the file.
        let text: String = text.chars().take(TEXT_MOST).collect();
        let lower = text.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        let errors = &mut self.report.counts.errors;
        *match () {
            () if has(&["timeout", "timed out", "deadline"]) => &mut errors.timeout,
            () if has(&[
                "refused",
                "unreachable",
                "no such host",
                "unknownhost",
                "connectexception",
                "dial",
            ]) =>
            {
                &mut errors.connect
            }
            () if has(&["tls", "ssl", "certificate", "x509"]) => &mut errors.tls,
            () if has(&["reset", "eof", "closed", "nohttpresponse", "broken pipe"]) => &mut errors.reset,
            () => &mut errors.protocol,
        } += 1;
        let text = shown(text.as_bytes());
        let texts = &mut self.report.counts.error_texts;
        let known = texts.len() < TEXTS_MOST || texts.contains_key(&text);
        *texts.entry(if known && !text.is_empty() { text } else { "…".to_owned() }).or_default() += 1;
    }

    /// The report, judged.
    ///
    /// # Errors
    /// There was not one request.
    pub(super) fn end(mut self, source: Source) -> Result<Report, String> {
        let begun = self.course.iter().map(|(end, elapsed, ..)| end - elapsed).min();
        let begun = begun.ok_or("it has no request")?;
        let end = self.course.iter().map(|(end, ..)| *end).max().unwrap_or(begun);
        let mut r = std::mem::take(&mut self.report);
        r.schema = SCHEMA.to_owned();
        r.started_unix_ms = begun / 1_000_000;
        r.duration_ns = end - begun;
        r.plan.keepalive = true; // unknown; the verdict says so
        r.plan.protocol = Protocol::Http11;
        let checks = std::mem::take(&mut self.checks);
        r.checks = checks
            .into_iter()
            .map(|(check, (passed, failed))| CheckResult { check, passed, failed })
            .collect();
        // Each target's own times are those of the run if there is one.
        if let [only] = r.targets.as_mut_slice() {
            only.service = Histogram::new();
        }
        self.course.sort_unstable();
        r.health.longest_silence_ns = longest_silence(&self.course);
        r.series = series(&self.course, begun, end);
        r.plan.connections =
            self.course.iter().map(|(.., users)| *users).max().unwrap_or(0).max(r.plan.connections);
        r.source = Some(source);
        r.verdict = verdict::judge(&r);
        Ok(r)
    }
}

/// The longest time between two ends of requests in which the later one was under way.
fn longest_silence(course: &[(u64, u64, bool, bool, u64)]) -> u64 {
    let gap = |pair: &[(u64, u64, bool, bool, u64)]| match pair {
        [(before, ..), (end, elapsed, ..)] if end - elapsed <= *before => end - before,
        _ => 0,
    };
    course.windows(2).map(gap).max().unwrap_or(0)
}

/// The run second by second, or in longer ticks if it is longer than those that a report keeps.
fn series(course: &[(u64, u64, bool, bool, u64)], begun: u64, end: u64) -> Series {
    const SECOND: u64 = 1_000_000_000;
    let tick_ns = (end - begun).div_ceil(SECOND).div_ceil(Series::TICKS_MOST as u64).max(1) * SECOND;
    let number = |at: u64| (at - begun).saturating_sub(1) / tick_ns;
    let mut ticks = Vec::new();
    let mut times = Histogram::new();
    let mut rest = course;
    for index in 0..=number(end) {
        let here = rest.partition_point(|(at, ..)| number(*at) <= index);
        let (these, later) = rest.split_at(here);
        rest = later;
        times.clear();
        let mut tick = Tick { length_ns: tick_ns, ..Tick::default() };
        tick.end_ns = ((index + 1) * tick_ns).min(end - begun);
        tick.length_ns = tick.end_ns - index * tick_ns;
        for (_, elapsed, has_response, unexpected, users) in these {
            tick.requests += 1;
            tick.users = tick.users.max(*users);
            tick.unexpected += u64::from(*unexpected);
            if *has_response {
                tick.responses += 1;
                times.record(*elapsed);
            } else {
                tick.errors += 1;
            }
        }
        (tick.service, tick.response) = (Percentiles::of(&times), Percentiles::of(&times));
        ticks.push(tick);
    }
    Series { tick_ns, ticks }
}
