//! `text`: our own layout, as text. The verdict comes first. `journey` prints the rows of scenarios and steps.

pub(super) mod journey;

use super::format::Format;
use crate::Histogram;
use crate::report::{Pace, Percentiles, ROUTE_HEADS, Report, StageUnit, TargetPlan, ThresholdResult};
use crate::threshold::Threshold;
use crate::units::{counted, grouped, rate_seconds, size, time};
use std::fmt::Write as _;

pub(super) static FORMAT: Format =
    Format { name: "text", about: "for people; the verdict first", differs: "", print };

fn print(r: &Report) -> String {
    let mut out = verdict(r);
    out.push('\n');
    plan(r, &mut out);
    out.push('\n');
    counts(r, &mut out);
    out.push('\n');
    latency(r, &mut out);
    out.push('\n');
    targets(r, &mut out);
    agents(r, &mut out);
    parts(r, &mut out);
    replay(r, &mut out);
    journey::print(r, &mut out);
    phases(r, &mut out);
    if r.source.is_none() {
        wire(r, &mut out);
        generator(r, &mut out);
    }
    cost(r, &mut out);
    results(r, &mut out);
    out + &super::baseline::text(r)
}

/// The verdict with its reasons; also printed to stderr beside another tool's layout.
pub fn verdict(r: &Report) -> String {
    let mut out = String::new();
    if r.verdict.reasons.is_empty() {
        let _ = writeln!(out, "{}", r.verdict.grade);
    }
    for (i, reason) in r.verdict.reasons.iter().enumerate() {
        let grade = if i == 0 { r.verdict.grade.to_string() } else { String::new() };
        let _ = writeln!(out, "{grade:<8} {}: {}", reason.code, reason.text);
    }
    out
}

/// If the requests in flight at the end take at least this long, the report mentions it.
const SAID_NS: u64 = 200_000_000;

fn plan(r: &Report, out: &mut String) {
    let p = &r.plan;
    let total: u64 = p.targets.iter().map(|t| u64::from(t.weight)).sum();
    for t in &p.targets {
        let share = if p.targets.len() > 1 && !r.is_journey() {
            format!("   {:.1} %", f64::from(t.weight) * 100.0 / total as f64)
        } else {
            String::new()
        };
        let _ = writeln!(out, "{} {}{share}", what(t), t.url);
    }
    let pace = match &p.pace {
        Pace::Rate { per_second } if r.is_journey() => format!("{} iterations/s", number(*per_second)),
        Pace::AsFastAsPossible if r.is_journey() => "closed loop".to_owned(),
        Pace::AsFastAsPossible => "as fast as possible".to_owned(),
        Pace::Replay { speed: Some(speed) } => format!("a recording at {speed} times its speed"),
        Pace::Replay { speed: None } => "a recording, as fast as possible".to_owned(),
        Pace::Rate { per_second } => format!("{}/s", number(*per_second)),
        Pace::Stages { of: StageUnit::Users, stages, .. } => format!("{} stages of users", stages.len()),
        Pace::Shape { of: StageUnit::Users, parts, .. } => {
            format!("{} of users", counted(parts.len() as u64, "part"))
        }
        Pace::Shape { of: StageUnit::Rate, parts, spacing, seed } => {
            let seed = if spacing == "poisson" { format!(" with seed {seed}") } else { String::new() };
            format!("{} of a rate, spaced {spacing}{seed}", counted(parts.len() as u64, "part"))
        }
        Pace::Stages { of: StageUnit::Rate, stages, .. } => format!("{} stages of a rate", stages.len()),
    };
    let pace = r.source.as_ref().map_or(pace, |source| format!("as {} ran it", source.tool));
    let mut words = vec![format!("{:.2} s", r.rated().seconds()), pace];
    let streams = if p.streams > 1 { format!(" of {} streams", p.streams) } else { String::new() };
    // Another tool may not say how many.
    if p.connections > 0 || r.source.is_none() {
        words.push(format!("{}{streams}", clients(r)));
    }
    if p.threads > 0 || r.source.is_none() {
        words.push(counted(p.threads, "thread"));
    }
    if p.pipeline > 1 {
        words.push(format!("pipelines of {}", p.pipeline));
    }
    if r.merged > 0 {
        words.push(format!("the sum of {}", counted(r.merged, "run")));
    }
    if !p.keepalive {
        words.push("no keep-alive".to_owned());
    }
    if r.warmup_ns > 0 {
        words.push(format!("after {:.2} s of warm-up", r.warmup_ns as f64 / 1e9));
    }
    let rest = r.duration_ns.saturating_sub(r.rated().length_ns);
    if rest >= SAID_NS {
        words.push(format!("and {:.2} s for what was under way", rest as f64 / 1e9));
    }
    let _ = writeln!(out, "{}", words.join(", "));
}

/// The connections or users of a run. With a fixed rate the plan has only their limit, so this adds how many were
/// opened.
pub(super) fn clients(r: &Report) -> String {
    let limit =
        counted(r.plan.connections, if r.is_journey() || r.source.is_some() { "user" } else { "connection" });
    let opened = r.connections.opened;
    match &r.plan.pace {
        _ if r.source.is_some() => limit,
        Pace::Rate { .. }
        | Pace::Replay { speed: Some(_) }
        | Pace::Shape { of: StageUnit::Rate, .. }
        | Pace::Stages { of: StageUnit::Rate, .. } => match r.is_journey() || opened >= r.plan.connections {
            true => format!("at most {limit}"),
            false => format!("{} of at most {limit}", grouped(opened)),
        },
        _ => limit,
    }
}

fn counts(r: &Report, out: &mut String) {
    let c = &r.counts;
    let _ = writeln!(out, "responses    {:>14} {:>14}/s", grouped(c.responses), number(r.rate()));
    let all: Vec<String> = c.statuses.iter().map(|(s, n)| format!("{s}: {}", grouped(*n))).collect();
    let _ =
        writeln!(out, "status       {}", if all.is_empty() { "none".to_owned() } else { all.join("   ") });
    if r.is_grpc() {
        let all: Vec<String> = c.grpc.iter().map(|(code, n)| format!("{code}: {}", grouped(*n))).collect();
        let all = if all.is_empty() { "none".to_owned() } else { all.join("   ") };
        let _ = writeln!(out, "gRPC         {all}   in {} messages", grouped(c.messages));
    }
    let e = &c.errors;
    let mut named: Vec<String> =
        e.kinds().iter().filter(|(_, n)| *n > 0).map(|(kind, n)| format!("{kind} {}", grouped(*n))).collect();
    let refused: u64 = c.grpc.iter().filter(|(code, _)| *code != "OK").map(|(_, n)| n).sum();
    if refused > 0 {
        // They are responses, so they belong to no kind of error, but their texts are listed below.
        named.push(format!("and {} responses with a code that is not OK", grouped(refused)));
    }
    let _ = writeln!(out, "errors       {:>14}   {}", grouped(e.total()), named.join(", "));
    for (text, n) in &c.error_texts {
        let _ = writeln!(out, "             {:>14}   {text}", grouped(*n));
    }
    for (name, n) in [("unfinished", c.unfinished), ("not sent", c.unsent)] {
        if n > 0 {
            let _ = writeln!(out, "{name:<12} {:>14}", grouped(n));
        }
    }
    let rated = r.rated();
    for (name, n, rated_n) in
        [("sent", r.bytes.sent(), rated.sent), ("received", r.bytes.received(), rated.received)]
    {
        let per_second = rated_n as f64 / rated.seconds();
        let _ = write!(out, "{name:<12} {:>14} {:>14}/s", size(n as f64), size(per_second));
        if c.responses > 0 {
            let _ = write!(out, "   {} each", size(n as f64 / c.responses as f64));
        }
        out.push('\n');
    }
}

fn latency(r: &Report, out: &mut String) {
    let _ = writeln!(
        out,
        "{:<14}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "", "min", "mean", "p50", "p90", "p99", "p99.9", "max", "stdev"
    );
    for (name, h) in [("service time", &r.latency.service), ("response time", &r.latency.response)] {
        let p = Percentiles::of(h);
        let known = |quantile, ns: u64| (ns as f64, Percentiles::are_known(quantile, h.count()));
        let row = [
            (p.min as f64, true),
            (p.mean, true),
            known(0.5, p.p50),
            known(0.9, p.p90),
            known(0.99, p.p99),
            known(0.999, p.p999),
            (p.max as f64, true),
            (h.stdev(), true),
        ];
        let _ = write!(out, "{name:<14}");
        row.iter().for_each(|(ns, is_known)| {
            // Not 0 ns if nothing was measured, and no percentile without enough values.
            let shown = if h.is_empty() || !is_known { "-".to_owned() } else { time(*ns) };
            let _ = write!(out, "{shown:>10}");
        });
        out.push('\n');
    }
}

/// Each target separately, if there are several. The URL comes last because it may be long.
fn targets(r: &Report, out: &mut String) {
    if r.targets.len() < 2 {
        return;
    }
    let unexpected = if r.is_grpc() { "not OK" } else { "4xx, 5xx" };
    let _ = writeln!(
        out,
        "{:<14}{:>13}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "by target", "responses", "p50", "p99", "max", unexpected, "errors"
    );
    for (plan, t) in r.plan.targets.iter().zip(&r.targets) {
        let at = |ns: u64| if t.service.is_empty() { "-".to_owned() } else { time(ns as f64) };
        let [p50, p99] = [0.5, 0.99].map(|q| at(t.service.quantile(q)));
        let _ = writeln!(
            out,
            "{:>27}{p50:>10}{p99:>10}{:>10}{:>10}{:>10}   {} {}",
            grouped(t.responses),
            at(t.service.max()),
            grouped(t.unexpected),
            grouped(t.errors),
            what(plan),
            plan.url
        );
    }
    out.push('\n');
}

/// Each agent. The name comes last because it may be long.
fn agents(r: &Report, out: &mut String) {
    if r.agents.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "{:<14}{:>13}{:>11}{:>10}{:>10}{:>10}{:>10}{:>10}   verdict",
        "by agent", "responses", "rate", "p50", "p99", "max", "errors", "start"
    );
    for a in &r.agents {
        let at = |ns: u64| if a.responses == 0 { "-".to_owned() } else { time(ns as f64) };
        let start = a.started_ns.map_or_else(|| "-".to_owned(), |ns| format!("+{}", time(ns as f64)));
        let _ = writeln!(
            out,
            "{:>27}{:>11}{:>10}{:>10}{:>10}{:>10}{start:>10}   {} {}",
            grouped(a.responses),
            format!("{}/s", number(a.rate)),
            at(a.response.p50),
            at(a.response.p99),
            at(a.response.max),
            grouped(a.errors.total()),
            a.state(),
            a.name
        );
    }
    out.push('\n');
}

/// The replayed recording.
fn replay(r: &Report, out: &mut String) {
    let Some(replay) = &r.replay else { return };
    for (name, text) in replay.rows() {
        let _ = writeln!(out, "{name:<12} {text}");
    }
    let rows = replay.route_rows();
    if !rows.is_empty() {
        out.push('\n');
        for [requests, statuses, lengths, ratio, route] in
            std::iter::once(ROUTE_HEADS.map(str::to_owned)).chain(rows)
        {
            let _ = writeln!(out, "{requests:>10}{statuses:>18}{lengths:>17}{ratio:>26}   {route}");
        }
    }
    out.push('\n');
}

/// Each part of a shape. The name comes last because it may be long.
fn parts(r: &Report, out: &mut String) {
    if r.parts.is_empty() {
        return;
    }
    let unexpected = if r.is_grpc() { "not OK" } else { "4xx, 5xx" };
    // With scenarios, iterations are planned; those that were started stand beside them.
    let iterations = if r.is_journey() { format!("{:>11}", "started") } else { String::new() };
    let _ = writeln!(
        out,
        "{:<14}{:>13}{iterations}{:>11}{:>10}{:>10}{:>10}{:>10}{:>10}   verdict",
        "by part", "planned", "responses", "p50", "p99", "max", unexpected, "errors"
    );
    for (i, part) in r.parts.iter().enumerate() {
        let h = &part.response;
        let known = |quantile: f64| match Percentiles::are_known(quantile, h.count()) && !h.is_empty() {
            true => time(h.quantile(quantile) as f64),
            false => "-".to_owned(),
        };
        let max = if h.is_empty() { "-".to_owned() } else { time(h.max() as f64) };
        let planned = if r.is_part_planned(i) { grouped(part.planned) } else { "-".to_owned() };
        let started = part.iterations.as_ref().map(|all| format!("{:>11}", grouped(all.started)));
        let started = started.unwrap_or_default();
        let codes: Vec<&str> = part.verdict.reasons.iter().map(|reason| reason.code.as_str()).collect();
        let why = if codes.is_empty() { String::new() } else { format!(" ({})", codes.join(", ")) };
        let _ = writeln!(
            out,
            "{planned:>27}{started}{:>11}{:>10}{:>10}{max:>10}{:>10}{:>10}   {}{why} {}",
            grouped(part.counts.responses),
            known(0.5),
            known(0.99),
            grouped(part.unexpected()),
            grouped(part.counts.errors.total()),
            part.verdict.grade,
            part.name
        );
    }
    for (name, recovery) in r.parts.iter().filter_map(|part| Some((&part.name, part.recovery?))) {
        let _ = writeln!(out, "recovery     {name}: {}", recovery.told());
    }
    for change in &r.changes {
        let _ = writeln!(out, "changed      after {}: {}", time(change.at_ns as f64), change.command);
    }
    out.push('\n');
}

/// The method, or the kind of call.
fn what(target: &TargetPlan) -> String {
    target.call.as_ref().map_or_else(|| target.method.clone(), |c| c.kind.to_string())
}

fn phases(r: &Report, out: &mut String) {
    let p = &r.phases;
    if r.counts.responses == 0 {
        return;
    }
    let _ = writeln!(out, "{:<14}{:>10}{:>10}{:>10}{:>10}", "", "mean", "p50", "p99", "max");
    let all: [(&str, &Histogram); 6] = [
        ("blocked", &p.blocked),
        ("connecting", &p.connecting),
        ("tls", &p.tls),
        ("sending", &p.sending),
        ("waiting", &p.waiting),
        ("receiving", &p.receiving),
    ];
    for (name, h) in all.iter().filter(|(_, h)| h.max() > 0) {
        let mut row = [h.mean(), h.quantile(0.5) as f64, h.quantile(0.99) as f64, h.max() as f64].map(time);
        if !Percentiles::are_known(0.99, h.count()) {
            row[2] = "-".to_owned();
        }
        let _ = writeln!(out, "{name:<14}{:>10}{:>10}{:>10}{:>10}", row[0], row[1], row[2], row[3]);
    }
    out.push('\n');
}

fn wire(r: &Report, out: &mut String) {
    let l = &r.ledger;
    let mut words: Vec<String> = l.protocols.keys().cloned().collect();
    words.extend(l.tls_version.clone());
    words.extend(l.tls_cipher.clone());
    words.extend(l.tls_group.clone());
    words.extend(l.tls_key_bits.map(|bits| format!("key of {bits} bits")));
    words.push(format!("{} opened", counted(r.connections.opened, "connection")));
    words.push(format!("{} on a used one", counted(r.connections.reused, "request")));
    words.extend(
        r.connections.lost_packets.filter(|n| *n > 0).map(|n| format!("{} sent again", counted(n, "packet"))),
    );
    let _ = writeln!(out, "wire         {}", words.join(", "));
    for (proxy, n) in &l.proxies {
        let _ = writeln!(out, "proxy        {proxy}, {}", counted(*n, "connection"));
    }
    for (address, used) in l.addresses.iter().filter(|_| l.addresses.len() > 1) {
        let failed = match used.failed {
            0 => String::new(),
            n => format!(", {} failed", grouped(n)),
        };
        let _ =
            writeln!(out, "address      {address}, {} opened{failed}", counted(used.opened, "connection"));
    }
    if let Some(ws) = &r.websocket {
        let _ = writeln!(
            out,
            "websocket    {} sessions, handshake {} at p50, {} at p99, {} messages sent, {} received, {} pings",
            grouped(ws.sessions),
            time(ws.handshake.quantile(0.5) as f64),
            time(ws.handshake.quantile(0.99) as f64),
            grouped(ws.sent),
            grouped(ws.received),
            grouped(ws.pings)
        );
        for (told, n) in &ws.closed_by_target {
            let _ = writeln!(out, "             {} closed by the target: {told}", grouped(*n));
        }
    }
    if l.first_request_bytes > 0 {
        let _ = writeln!(
            out,
            "first        request of {} bytes, response of {}",
            grouped(l.first_request_bytes),
            grouped(l.first_response_bytes)
        );
    }
}

fn generator(r: &Report, out: &mut String) {
    let mut words = vec![
        format!("busiest thread {:.0} % of a core", r.busiest_thread() * 100.0),
        format!("{} responses per core-second", number(r.per_generator_core_second())),
    ];
    if !r.health.start_lag.is_empty() {
        words.push(format!("starts late by {} at p99", time(r.health.start_lag.quantile(0.99) as f64)));
    }
    words.push(format!("{} of memory", size(r.health.rss_bytes_max as f64)));
    let _ = writeln!(out, "generator    {}", words.join(", "));
}

fn cost(r: &Report, out: &mut String) {
    let Some(c) = &r.target_cost else { return };
    let each = |n: u64| n as f64 / c.responses.max(1) as f64;
    let per_core = if c.cpu_ns > 0 { c.responses as f64 / (c.cpu_ns as f64 / 1e9) } else { 0.0 };
    let _ = writeln!(
        out,
        "target       {} ({}): {} of processor per response, {} responses per core-second, {:.2} cores",
        c.command,
        c.pid,
        time(each(c.cpu_ns)),
        number(per_core),
        c.cpu_ns as f64 / c.sampled_ns.max(1) as f64
    );
    let _ = writeln!(
        out,
        "             {} of memory at most, {}, {:.2} context switches per response",
        size(c.rss_bytes_max as f64),
        counted(c.threads_max, "thread"),
        each(c.voluntary_switches + c.involuntary_switches)
    );
}

fn results(r: &Report, out: &mut String) {
    for c in &r.checks {
        let word = if c.failed == 0 && c.passed > 0 { "passed" } else { "FAILED" };
        let _ = writeln!(
            out,
            "check        {word} {}: {} of {}",
            c.check,
            grouped(c.passed),
            grouped(c.passed + c.failed)
        );
    }
    for t in &r.thresholds {
        let word = if t.passed { "held  " } else { "BROKEN" };
        let _ = writeln!(out, "threshold    {word} {}: {}", t.threshold, measured(t));
    }
}

/// A threshold's measured value, in the unit of its limit.
pub(crate) fn measured(t: &ThresholdResult) -> String {
    let Some(m) = t.measured else {
        let why = if t.unanswered { "that request had no response" } else { "nothing to measure" };
        return why.to_owned();
    };
    if t.threshold.contains('%') {
        return format!("{:.3} %", m * 100.0);
    }
    let unit = t.threshold.rsplit_once('/').map(|(_, unit)| unit.trim());
    match unit.and_then(|unit| Some((unit, rate_seconds(unit)?))) {
        Some((unit, seconds)) => format!("{}/{unit}", number(m * seconds)),
        None => match Threshold::parse("", &t.threshold) {
            Ok(t) if t.is_of_time() => time(m),
            Ok(t) if t.is_of_ratio() => format!("×{m:.3}"),
            _ => number(m),
        },
    }
}

pub(super) fn number(n: f64) -> String {
    if n >= 1000.0 {
        grouped(n.round() as u64)
    } else if n >= 1.0 || n == 0.0 {
        format!("{n:.1}")
    } else {
        format!("{n:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Grade, Reason, TargetStats};

    #[test]
    fn the_verdict_comes_first_with_all_its_reasons() {
        let reason = |code: &str, grade| Reason { code: code.to_owned(), grade, text: "why".to_owned() };
        let mut r = Report::default();
        assert!(print(&r).starts_with("VALID\n"));
        r.verdict.grade = Grade::Invalid;
        r.verdict.reasons = vec![reason("no_responses", Grade::Invalid), reason("too_short", Grade::Suspect)];
        assert!(
            print(&r).starts_with("INVALID  no_responses: why\n         too_short: why\n\n"),
            "{}",
            print(&r)
        );
    }

    #[test]
    fn a_fixed_rate_does_not_claim_connections_that_it_did_not_open() {
        let mut r = Report::default();
        (r.plan.connections, r.connections.opened) = (1000, 44);
        let mut told = |pace| {
            r.plan.pace = pace;
            clients(&r)
        };
        assert_eq!(told(Pace::AsFastAsPossible), "1,000 connections");
        assert_eq!(told(Pace::Rate { per_second: 9.0 }), "44 of at most 1,000 connections");
        assert_eq!(told(Pace::Replay { speed: Some(1.0) }), "44 of at most 1,000 connections");
        assert_eq!(told(Pace::Replay { speed: None }), "1,000 connections");
        // Connections that broke were opened again.
        r.connections.opened = 1001;
        r.plan.pace = Pace::Rate { per_second: 9.0 };
        assert_eq!(clients(&r), "at most 1,000 connections");
    }

    #[test]
    fn what_was_measured_is_told_in_the_unit_of_its_bound() {
        for (threshold, measured, want) in [
            ("p99<20ms", 2e6, "2.000 ms"),
            ("errors<0.1%", 0.0004, "0.040 %"),
            ("errors<0.001", 0.0004, "0.0004"),
            ("rate>300/m", 5.0, "300.0/m"),
            ("rate>5000/s", 5000.0, "5,000/s"),
            ("rate>5000", 5000.0, "5,000"),
            ("rate > 7200/h", 2.5, "9,000/h"),
            ("http_req_duration: p(95)<200", 2e6, "2.000 ms"),
            ("http_req_failed: rate<0.01", 0.004, "0.0040"),
            ("http_reqs: count>100", 2000.0, "2,000"),
        ] {
            let result = ThresholdResult {
                threshold: threshold.to_owned(),
                measured: Some(measured),
                passed: true,
                unanswered: false,
            };
            assert_eq!(super::measured(&result), want, "{threshold}");
        }
    }

    #[test]
    fn several_targets_have_a_row_each() {
        let mut r = Report::default();
        let plan = |url: &str| TargetPlan {
            method: "GET".to_owned(),
            url: url.to_owned(),
            weight: 1,
            ..TargetPlan::default()
        };
        let mut good = TargetStats { responses: 2000, unexpected: 3, ..TargetStats::default() };
        good.service.record_n(1_000_000, 2000);
        r.plan.targets = vec![plan("http://a/")];
        r.targets = vec![good.clone()];
        assert!(!print(&r).contains("by target"));
        r.plan.targets.push(plan("http://b/"));
        r.targets.push(TargetStats { errors: 5, ..TargetStats::default() });
        let text = print(&r);
        for line in [
            "by target         responses       p50       p99       max  4xx, 5xx    errors",
            "                      2,000  1.000 ms  1.000 ms  1.000 ms         3         0   GET http://a/",
            "                          0         -         -         -         0         5   GET http://b/",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }

    #[test]
    fn both_latencies_have_a_row() {
        let mut r = Report { duration_ns: 2_000_000_000, ..Report::default() };
        r.plan.targets = vec![TargetPlan {
            method: "GET".to_owned(),
            url: "http://a/".to_owned(),
            weight: 1,
            ..TargetPlan::default()
        }];
        r.counts.responses = 3000;
        r.latency.service.record_n(1_000_000, 3000);
        r.latency.response.record_n(2_000_000, 3000);
        r.thresholds = vec![ThresholdResult {
            threshold: "p99<20ms".to_owned(),
            measured: Some(2e6),
            passed: true,
            ..Default::default()
        }];
        let text = print(&r);
        for line in [
            "GET http://a/",
            "responses             3,000          1,500/s",
            "service time    1.000 ms  1.000 ms  1.000 ms  1.000 ms  1.000 ms         -  1.000 ms      0 ns",
            "response time   2.000 ms  2.000 ms  2.000 ms  2.000 ms  2.000 ms         -  2.000 ms      0 ns",
            "threshold    held   p99<20ms: 2.000 ms",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
