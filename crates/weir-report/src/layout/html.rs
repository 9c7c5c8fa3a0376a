//! `html`: a report as one page, readable offline: no script, no external resources, plots as inline SVG. The verdict
//! comes first.
//!
//! Sections follow a reader's questions: can it be believed, how fast, over time, spread of latency, responses, where
//! the time went, cost, what was on the wire. `page` draws.

use super::format::Format;
use super::text::journey::{checks, times};
use super::text::{measured, number};
use crate::Histogram;
use crate::page::plot::{self, Axis, Line, Marks};
use crate::page::{by_percentile, document, escaped, section, short_time, table, table_with_words};
use crate::report::{
    AgentStats, Distribution, Figures, Pace, PartStats, Percentiles, ROUTE_HEADS, Report, StageUnit,
    TargetPlan, Tick,
};
use crate::units::{counted, grouped, size, time};
use std::fmt::Write;

pub(super) static FORMAT: Format = Format {
    name: "html",
    about: "one page with plots, readable offline; point at them for values",
    differs: "",
    print,
};

fn print(r: &Report) -> String {
    let figures = Figures::of(r);
    let title = r.plan.targets.first().map_or("no target", |t| &t.url);
    let name = if r.plan.name.is_empty() { String::new() } else { format!("{}: ", r.plan.name) };
    let title = escaped(&format!("{name}{title}"));
    let sections = [
        verdict(r),
        tiles(r, &figures),
        judgements(r),
        super::baseline::html(r),
        over_time(r),
        agents(r),
        parts(r),
        replay(r),
        latencies(r, &figures),
        journey(r),
        answers(r),
        phases(r),
        cost(r, &figures),
        wire(r),
        generator(r, &figures),
    ];
    document(r.verdict.grade, &title, &sections.concat())
}

// === verdict ===

fn verdict(r: &Report) -> String {
    let reasons = r.verdict.reasons.iter();
    let reasons = reasons.map(|reason| {
        let (code, text) = (escaped(&reason.code), escaped(&reason.text));
        format!("<code>{code}</code> ({}): {text}", reason.grade)
    });
    crate::page::verdict(r.verdict.grade, reasons)
}

fn tiles(r: &Report, figures: &Figures) -> String {
    let response = &figures.response.percentiles;
    let mut tiles = vec![
        ("responses a second", number(figures.responses_per_s)),
        ("response time, median", time(response.p50 as f64)),
        ("response time, 99 %", known(0.99, response.p99, r.latency.response.count())),
        ("failed", format!("{:.3} %", figures.failed_share * 100.0)),
    ];
    if let Some(rate) = figures.responses_per_target_core_s {
        tiles.push(("responses per core-second of the target", number(rate)));
    }
    let tiles: String =
        tiles.iter().map(|(name, value)| format!("<div><b>{value}</b>{name}</div>")).collect();
    let p = &r.plan;
    let pace = match &p.pace {
        Pace::AsFastAsPossible => "as fast as possible".to_owned(),
        Pace::Replay { speed: Some(speed) } => format!("a recording at {speed} times its speed"),
        Pace::Replay { speed: None } => "a recording, as fast as possible".to_owned(),
        Pace::Rate { per_second } => format!("{} a second", number(*per_second)),
        Pace::Shape { of: StageUnit::Users, parts, .. } => {
            format!("{} of users", counted(parts.len() as u64, "part"))
        }
        Pace::Shape { of: StageUnit::Rate, parts, spacing, seed } => {
            let seed = if spacing == "poisson" { format!(" with seed {seed}") } else { String::new() };
            format!("{} of a rate, spaced {spacing}{seed}", counted(parts.len() as u64, "part"))
        }
        Pace::Stages { of: StageUnit::Rate, stages, .. } => format!("{} stages of a rate", stages.len()),
        Pace::Stages { of: StageUnit::Users, stages, .. } => format!("{} stages of users", stages.len()),
    };
    let targets: Vec<String> = p.targets.iter().map(|t| escaped(&format!("{} {}", what(t), t.url))).collect();
    format!(
        "<div class=\"tiles\">{tiles}</div>\n<p class=\"dim\">{}<br>{:.2} s from {} UTC, {pace}, {}, {}, {}</p>\n",
        targets.join("<br>"),
        r.rated().seconds(),
        date(r.started_unix_ms),
        super::text::clients(r),
        counted(p.threads, "thread"),
        if p.keepalive { "keep-alive" } else { "no keep-alive" },
    )
}

/// The method, or the kind of call.
fn what(target: &TargetPlan) -> String {
    target.call.as_ref().map_or_else(|| target.method.clone(), |c| format!("{} call", c.kind))
}

fn judgements(r: &Report) -> String {
    let word = |good: bool, yes: &'static str, no: &str| {
        if good { yes.to_owned() } else { format!("<span class=\"bad\">{no}</span>") }
    };
    let mut rows: Vec<[String; 3]> = r
        .thresholds
        .iter()
        .map(|t| [escaped(&t.threshold), measured(t), word(t.passed, "held", "broken")])
        .collect();
    rows.extend(r.checks.iter().map(|c| {
        let all = c.passed + c.failed;
        let good = c.failed == 0 && c.passed > 0;
        [
            escaped(&c.check),
            format!("{} of {}", grouped(c.passed), grouped(all)),
            word(good, "passed", "failed"),
        ]
    }));
    if rows.is_empty() {
        return String::new();
    }
    section("Thresholds and checks", &table_with_words(&["", "measured", ""], rows))
}

// === plots ===

fn over_time(r: &Report) -> String {
    // The last tick may last only a few milliseconds, so its rate means nothing.
    let whole = |tick: &&Tick| tick.length_ns * 2 >= r.series.tick_ns;
    let mut ticks: Vec<&Tick> = r.series.ticks.iter().filter(whole).collect();
    if ticks.is_empty() {
        ticks = r.series.ticks.iter().collect();
    }
    let Some(last) = ticks.last().copied() else { return String::new() };
    let x = seconds_axis(last.end_ns as f64 / 1e9);
    let at = |tick: &Tick| (tick.end_ns as f64 - tick.length_ns as f64 / 2.0) / 1e9;
    let line = |name: &str, value: &dyn Fn(&Tick) -> Option<f64>| Line {
        name: name.to_owned(),
        points: ticks.iter().map(|tick| (at(tick), value(tick))).collect(),
    };
    let per_s = |n: u64, tick: &Tick| Some(n as f64 / (tick.length_ns.max(1) as f64 / 1e9));
    let failed = if r.is_grpc() {
        "errors and codes that are not OK"
    } else {
        "errors and statuses outside of 200 to 399"
    };
    let mut rates = vec![
        line("responses a second", &|t| per_s(t.responses, t)),
        line(&format!("{failed} a second"), &|t| per_s(t.errors + t.unexpected, t)),
    ];
    // A report of an older version has no plan by the second.
    if ticks.iter().any(|t| t.planned > 0) {
        rates.push(line("planned starts a second", &|t| per_s(t.planned, t)));
        rates.push(line("late starts a second", &|t| per_s(t.late, t)));
        if r.is_journey() {
            rates.push(line("iterations started a second", &|t| per_s(t.started, t)));
        }
    }
    let times = [
        line("median", &|t| (t.responses > 0).then_some(t.response.p50 as f64)),
        line("90 %", &|t| (t.responses > 0).then_some(t.response.p90 as f64)),
        line("99 %", &|t| (t.responses > 0).then_some(t.response.p99 as f64)),
        line("largest", &|t| (t.responses > 0).then_some(t.response.max as f64)),
    ];
    let marks = Marks { bands: stalls(r, &ticks), places: places(r), ..Marks::default() };
    let (of_rates, of_times) = (linear(&rates, plain), axis(&times, short_time));
    let mut plots = vec![
        ("Throughput", plot::marked_lines("Throughput over time", &x, &of_rates, &rates, &marks)),
        ("Response time", plot::marked_lines("Response time over time", &x, &of_times, &times, &marks)),
    ];
    if ticks.iter().any(|t| t.users != last.users || t.backlog > 0) {
        let users = [
            line("users", &|t| Some(t.users as f64)),
            line("starts due and not made", &|t| Some(t.backlog as f64)),
        ];
        plots.push(("Users", plot::lines("Users over time", &x, &linear(&users, plain), &users)));
    }
    let plots: String = plots.iter().map(|(name, svg)| format!("<div><h3>{name}</h3>{svg}</div>")).collect();
    section("Over time", &format!("<div class=\"plots\">{plots}</div>"))
}

/// Most beginnings of parts that a plot names; more would cover each other.
const PLACES_MOST: usize = 8;

/// Where the parts of a shape begin, and where someone changed the load.
fn places(r: &Report) -> Vec<(f64, String)> {
    let mut places = Vec::new();
    if r.parts.len() <= PLACES_MOST {
        let begun = |(i, part): (usize, &PartStats)| {
            let begin_ns = r.planned_part(i)[0].map_or(0, |planned| planned.begin_ns);
            (begin_ns > 0).then(|| (begin_ns as f64 / 1e9, escaped(&part.name)))
        };
        places.extend(r.parts.iter().enumerate().filter_map(begun));
    }
    if r.changes.len() <= PLACES_MOST {
        places.extend(r.changes.iter().map(|c| (c.at_ns as f64 / 1e9, escaped(&c.command))));
    }
    places
}

/// Where the run stalled. The longest silence is placed in the ticks of its length with the fewest responses; others
/// appear as ticks without responses.
fn stalls(r: &Report, ticks: &[&Tick]) -> Vec<(f64, f64, String)> {
    if !r.verdict.reasons.iter().any(|reason| reason.code == "stalled") {
        return Vec::new();
    }
    let silence_ns = r.health.longest_silence_ns;
    // A tenth of a tick more adds no tick: that one would be full of responses.
    let tick_ns = r.series.tick_ns.max(1);
    let length = (((silence_ns + tick_ns / 10 * 9) / tick_ns) as usize).clamp(1, ticks.len().max(1));
    let responses = |ticks: &&[&Tick]| ticks.iter().map(|tick| tick.responses).sum::<u64>();
    let longest = ticks.windows(length).min_by_key(responses).unwrap_or_default();
    let from = |tick: &Tick| (tick.end_ns - tick.length_ns.min(tick.end_ns)) as f64 / 1e9;
    let to = |tick: &Tick| tick.end_ns as f64 / 1e9;
    let band = |part: &[&Tick], text: String| Some((from(part.first()?), to(part.last()?), text));
    let mut bands: Vec<_> =
        band(longest, format!("no response for {}", time(silence_ns as f64))).into_iter().collect();
    let is_apart = |part: &&[&Tick]| {
        part.iter().all(|tick| tick.responses == 0 && !longest.iter().any(|l| l.end_ns == tick.end_ns))
    };
    let others = ticks.chunk_by(|a, b| (a.responses == 0) == (b.responses == 0)).filter(is_apart);
    bands.extend(others.filter_map(|part| band(part, "no response".to_owned())));
    bands
}

fn seconds_axis(seconds: f64) -> Axis {
    Axis::within(0.0, seconds, |s| if s.fract() == 0.0 { format!("{s} s") } else { format!("{s:.1} s") })
}

/// A number, without a fraction if it is whole.
fn plain(n: f64) -> String {
    if n.fract() == 0.0 { grouped(n as u64) } else { number(n) }
}

fn values(lines: &[Line]) -> impl Iterator<Item = f64> + Clone {
    lines.iter().flat_map(|line| line.points.iter().filter_map(|(_, value)| *value))
}

fn axis(lines: &[Line], name: fn(f64) -> String) -> Axis {
    Axis::of(values(lines), name)
}

fn linear(lines: &[Line], name: fn(f64) -> String) -> Axis {
    Axis::linear(values(lines).fold(0.0, f64::max), name)
}

fn latencies(r: &Report, figures: &Figures) -> String {
    if r.latency.service.is_empty() {
        return String::new();
    }
    let both = [("service time", &r.latency.service), ("response time", &r.latency.response)];
    let percentiles = by_percentile(&both);
    // One row per figure, so that a narrow window shows all of them.
    let names =
        ["smallest", "mean", "50 %", "75 %", "90 %", "95 %", "99 %", "99.9 %", "largest", "deviation"];
    let service = column(&figures.service, r.latency.service.count());
    let response = column(&figures.response, r.latency.response.count());
    let rows = names.into_iter().zip(service.into_iter().zip(response));
    let rows = rows.map(|(name, (service, response))| [name.to_owned(), service, response]);
    let head = ["", "service time<br>from the send", "response time<br>from the intended start"];
    section(
        "Latency",
        &format!(
            "<div class=\"plots\"><div><h3>Distribution of the response time</h3>{}</div><div><h3>By percentile</h3>{percentiles}</div></div>{}",
            bars(&r.latency.response),
            table(&head, rows)
        ),
    )
}

/// `count`: how many values it is made from.
fn column(d: &Distribution, count: u64) -> [String; 10] {
    let Percentiles { min, mean, p50, p75, p90, p95, p99, p999, max } = d.percentiles;
    let [min, max] = [min, max].map(|ns| time(ns as f64));
    let [p50, p75, p90, p95, p99, p999] =
        [(0.5, p50), (0.75, p75), (0.9, p90), (0.95, p95), (0.99, p99), (0.999, p999)]
            .map(|(quantile, ns)| known(quantile, ns, count));
    [min, time(mean), p50, p75, p90, p95, p99, p999, max, time(d.stdev)]
}

/// A percentile, or a dash if there are too few values for it.
fn known(quantile: f64, ns: u64, count: u64) -> String {
    if Percentiles::are_known(quantile, count) { time(ns as f64) } else { "–".to_owned() }
}

/// Forty bars of equal ratio between the smallest and the largest value.
fn bars(h: &Histogram) -> String {
    const BARS: usize = 40;
    let (min, max) = (h.min().max(1) as f64, h.max().max(2) as f64);
    let ratio = (max / min).max(1.001).ln() / BARS as f64;
    let edge = |i: usize| min * (ratio * i as f64).exp();
    let mut counts = [0u64; BARS];
    for (from, to, count) in h.ranges() {
        let middle = u64::midpoint(from, to).clamp(h.min(), h.max()) as f64;
        let at = ((middle / min).max(1.0).ln() / ratio) as usize;
        counts[at.min(BARS - 1)] += count;
    }
    let all = h.count().max(1) as f64;
    let bars: Vec<_> = counts
        .iter()
        .enumerate()
        .filter(|(_, n)| **n > 0)
        .map(|(i, n)| {
            let text = format!(
                "{} to {}: {} ({:.3} %)",
                time(edge(i)),
                time(edge(i + 1)),
                grouped(*n),
                *n as f64 * 100.0 / all
            );
            (edge(i).ln(), edge(i + 1).ln(), *n as f64 * 100.0 / all, text)
        })
        .collect();
    let marks = (0..=4).map(|i| edge(i * BARS / 4)).map(|ns| (ns.ln(), time(ns))).collect();
    let x = Axis::exact(min.ln(), edge(BARS).ln(), marks, |ln| time(ln.exp()));
    let most = bars.iter().map(|bar| bar.2).fold(0.0, f64::max);
    plot::bars("Distribution of the response time", &x, &Axis::linear(most, |p| format!("{p} %")), &bars)
}

// === tables ===

fn replay(r: &Report) -> String {
    let Some(replay) = &r.replay else { return String::new() };
    let rows = replay.rows().into_iter().map(|(name, text)| [name.to_owned(), escaped(&text)]);
    let routes = replay.route_rows().into_iter().map(|row| row.map(|cell| escaped(&cell)));
    let tables = [table_with_words(&["", ""], rows), table_with_words(&ROUTE_HEADS, routes)];
    section("The recording", &tables.concat())
}

fn parts(r: &Report) -> String {
    if r.parts.is_empty() {
        return String::new();
    }
    let rows = r.parts.iter().enumerate().map(|(i, part)| {
        let h = &part.response;
        let [p50, p99] = [0.5, 0.99].map(|q| known(q, h.quantile(q), h.count()));
        let codes: Vec<String> = part
            .verdict
            .reasons
            .iter()
            .map(|reason| format!("<code>{}</code>", escaped(&reason.code)))
            .collect();
        let planned = if r.is_part_planned(i) { grouped(part.planned) } else { "–".to_owned() };
        let started = part.iterations.as_ref().map_or_else(String::new, |all| grouped(all.started));
        let [responses, unexpected, errors] =
            [part.counts.responses, part.unexpected(), part.counts.errors.total()].map(grouped);
        let recovery = part.recovery.map_or_else(String::new, |recovery| recovery.told());
        let verdict = format!("{} {}", part.verdict.grade, codes.join(", "));
        let mut row =
            vec![escaped(&part.name), planned, responses, unexpected, errors, p50, p99, verdict, recovery];
        if r.is_journey() {
            row.insert(2, started);
        }
        row
    });
    let unexpected = if r.is_grpc() { "not OK" } else { "4xx, 5xx" };
    let mut head =
        vec!["part", "planned", "responses", unexpected, "errors", "50 %", "99 %", "verdict", "recovery"];
    if r.is_journey() {
        head.insert(2, "iterations");
    }
    let mut body = table_with_words(&head, rows);
    if !r.changes.is_empty() {
        let rows = r.changes.iter().map(|c| [time(c.at_ns as f64), escaped(&c.command)]);
        body += &table_with_words(&["after", "changed by hand"], rows);
    }
    section("Parts", &body)
}

/// A column for each agent, and a row for each figure.
fn agents(r: &Report) -> String {
    if r.agents.is_empty() {
        return String::new();
    }
    let row = |name: &str, of: &dyn Fn(&AgentStats) -> String| -> Vec<String> {
        std::iter::once(name.to_owned()).chain(r.agents.iter().map(of)).collect()
    };
    let at = |ns: u64| short_time(ns as f64);
    let rows = [
        row("verdict", &|a| escaped(&a.state())),
        row("requests", &|a| grouped(a.requests)),
        row("responses", &|a| grouped(a.responses)),
        row("responses/s", &|a| format!("{:.0}", a.rate)),
        row("errors", &|a| grouped(a.errors.total())),
        row("50 %", &|a| at(a.response.p50)),
        row("99 %", &|a| at(a.response.p99)),
        row("max", &|a| at(a.response.max)),
        row("connections", &|a| grouped(a.connections)),
        row("began after the first", &|a| a.started_ns.map_or_else(|| "–".to_owned(), at)),
        row("clocks compared within", &|a| at(a.clock_ns / 2)),
        row("busiest thread", &|a| format!("{:.0} %", a.busiest * 100.0)),
        row("machine", &|a| escaped(&a.generator.machine())),
        row("version", &|a| escaped(&a.generator.version)),
    ];
    let names: Vec<String> = r.agents.iter().map(|a| escaped(&a.name)).collect();
    let head: Vec<&str> = std::iter::once("agent").chain(names.iter().map(String::as_str)).collect();
    section("Agents", &table_with_words(&head, rows))
}

fn answers(r: &Report) -> String {
    let c = &r.counts;
    let mut parts: Vec<(String, u64)> = if c.grpc.is_empty() {
        c.statuses.iter().map(|(status, n)| (status.to_string(), *n)).collect()
    } else {
        c.grpc.iter().map(|(code, n)| (code.clone(), *n)).collect()
    };
    parts.extend(c.errors.kinds().map(|(kind, n)| (format!("{kind} error"), n)));
    parts.push(("unfinished".to_owned(), c.unfinished));
    let parts: Vec<_> = parts.iter().map(|(name, n)| (escaped(name), *n as f64, grouped(*n))).collect();
    let mut body = plot::shares("What became of the requests", &parts);
    if c.unsent > 0 {
        let _ = write!(body, "<p>{} starts were due and never made.</p>", grouped(c.unsent));
    }
    let texts = c.error_texts.iter().map(|(text, n)| [grouped(*n), escaped(text)]);
    if !c.error_texts.is_empty() {
        body += &table_with_words(&["times", "error"], texts);
    }
    if r.targets.len() > 1 {
        let unexpected = if r.is_grpc() { "not OK" } else { "4xx, 5xx" };
        let rows = r.plan.targets.iter().zip(&r.targets).map(|(plan, t)| {
            let [p50, p99] = [0.5, 0.99].map(|q| known(q, t.service.quantile(q), t.service.count()));
            let counts = [t.responses, t.unexpected, t.errors].map(grouped);
            let [responses, unexpected, errors] = counts;
            let target = escaped(&format!("{} {}", what(plan), plan.url));
            [responses, unexpected, errors, p50, p99, target]
        });
        let head = ["responses", unexpected, "errors", "50 %", "99 %", "target"];
        body += &table_with_words(&head, rows);
    }
    section("Answers", &body)
}

/// The rows of scenarios and steps.
fn journey(r: &Report) -> String {
    if !r.is_journey() {
        return String::new();
    }
    let scenarios = r.scenarios.iter().map(|s| {
        let [p50, p90, p99, max] = times(&s.iteration);
        let broken: Vec<String> =
            s.broken_off.iter().map(|(step, n)| format!("{} at {}", grouped(*n), escaped(step))).collect();
        let counts = [s.started, s.done, s.unfinished, s.not_started].map(grouped);
        let [started, done, unfinished, missed] = counts;
        [escaped(&s.name), started, done, unfinished, missed, p50, p90, p99, max, broken.join(", ")]
    });
    let head = [
        "scenario",
        "started",
        "done",
        "unfinished",
        "not started",
        "50 %",
        "90 %",
        "99 %",
        "largest",
        "broken off",
    ];
    let mut body = table_with_words(&head, scenarios);
    let steps = r.steps.iter().map(|s| {
        let [p50, p90, p99, max] = times(&s.response);
        let rate = format!("{}/s", number(s.in_window as f64 / r.rated().seconds()));
        let missing: Vec<String> = s
            .keeps
            .iter()
            .filter(|k| k.failed > 0)
            .map(|k| {
                let why = k.sample.as_deref().map(|s| format!(": {}", escaped(s))).unwrap_or_default();
                format!("{} without <code>{}</code>{why}", grouped(k.failed), escaped(&k.name))
            })
            .collect();
        let [responses, errors] = [s.responses, s.errors.total()].map(grouped);
        let received = size(s.received as f64);
        let name = escaped(&s.full_name());
        [name, responses, errors, rate, p50, p90, p99, max, received, checks(s), missing.join("<br>")]
    });
    let head =
        ["step", "responses", "errors", "rate", "50 %", "90 %", "99 %", "largest", "received", "checks", ""];
    body += &table_with_words(&head, steps);
    section("Scenarios and steps", &body)
}

fn phases(r: &Report) -> String {
    let p = &r.phases;
    let all: [(&str, &Histogram); 6] = [
        ("blocked", &p.blocked),
        ("connecting", &p.connecting),
        ("TLS", &p.tls),
        ("sending", &p.sending),
        ("waiting", &p.waiting),
        ("receiving", &p.receiving),
    ];
    if all.iter().all(|(_, h)| h.max() == 0) {
        return String::new();
    }
    // Connecting and TLS are part of blocked: in the table, but not in the bar.
    let parts: Vec<_> = all
        .iter()
        .filter(|(name, _)| !matches!(*name, "connecting" | "TLS"))
        .map(|(name, h)| ((*name).to_owned(), h.mean(), time(h.mean())))
        .collect();
    let rows = all.map(|(name, h)| {
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|q| known(q, h.quantile(q), h.count()));
        [name.to_owned(), time(h.mean()), p50, p90, p99, time(h.max() as f64)]
    });
    let bar = plot::shares("Mean length of the phases", &parts);
    section(
        "Where the time went",
        &(bar + &table(&["phase", "mean", "50 %", "90 %", "99 %", "largest"], rows)),
    )
}

fn cost(r: &Report, figures: &Figures) -> String {
    let Some(c) = &r.target_cost else { return String::new() };
    let each = |n: u64| format!("{:.2}", n as f64 / c.responses.max(1) as f64);
    let rows = [
        ["process".to_owned(), escaped(&format!("{} ({}), {} in all", c.command, c.pid, c.processes))],
        [
            "responses per core-second".to_owned(),
            figures.responses_per_target_core_s.map_or_else(|| "none".to_owned(), number),
        ],
        ["processor time per response".to_owned(), time(c.cpu_ns as f64 / c.responses.max(1) as f64)],
        ["cores busy".to_owned(), format!("{:.2}", c.cpu_ns as f64 / c.sampled_ns.max(1) as f64)],
        [
            "of this in the kernel".to_owned(),
            format!("{:.0} %", c.system_ns as f64 * 100.0 / c.cpu_ns.max(1) as f64),
        ],
        [
            "memory, largest and last".to_owned(),
            format!("{}, {}", size(c.rss_bytes_max as f64), size(c.rss_bytes_end as f64)),
        ],
        ["threads".to_owned(), c.threads_max.to_string()],
        ["context switches per response".to_owned(), each(c.voluntary_switches + c.involuntary_switches)],
    ];
    section("What it cost the target", &table_with_words(&[], rows))
}

fn wire(r: &Report) -> String {
    let l = &r.ledger;
    let protocols: Vec<String> = l.protocols.iter().map(|(p, n)| format!("{p}: {}", grouped(*n))).collect();
    let tls: Vec<String> =
        [&l.tls_version, &l.tls_cipher, &l.tls_group].into_iter().flatten().cloned().collect();
    let each = |n: u64| format!("{}, {} each", size(n as f64), size(n as f64 / r.finished().max(1) as f64));
    let rows = [
        ["protocols".to_owned(), escaped(&protocols.join(", "))],
        ["TLS".to_owned(), if tls.is_empty() { "none".to_owned() } else { escaped(&tls.join(", ")) }],
        ["connections opened".to_owned(), grouped(r.connections.opened)],
        ["requests on a used connection".to_owned(), grouped(r.connections.reused)],
        ["sent".to_owned(), each(r.bytes.sent())],
        ["received".to_owned(), each(r.bytes.received())],
    ];
    let sessions = r.websocket.iter().flat_map(|ws| {
        [
            ["sessions of WebSocket".to_owned(), grouped(ws.sessions)],
            ["handshake, median".to_owned(), time(ws.handshake.quantile(0.5) as f64)],
            ["handshake, 99 %".to_owned(), time(ws.handshake.quantile(0.99) as f64)],
            ["messages sent".to_owned(), grouped(ws.sent)],
            ["messages received".to_owned(), grouped(ws.received)],
            ["closed by the target".to_owned(), grouped(ws.closed_by_target.values().sum())],
        ]
    });
    let proxies =
        l.proxies.iter().map(|(p, n)| ["by way of".to_owned(), format!("{}, {}", escaped(p), grouped(*n))]);
    let addresses = l.addresses.iter().filter(|_| l.addresses.len() > 1).map(|(address, used)| {
        let told = format!("{} opened, {} failed", grouped(used.opened), grouped(used.failed));
        [format!("connections to {}", escaped(address)), told]
    });
    let mut body = table_with_words(&[], rows.into_iter().chain(proxies).chain(addresses).chain(sessions));
    for (name, text, bytes) in [
        ("request", &l.first_request, l.first_request_bytes),
        ("response", &l.first_response, l.first_response_bytes),
    ] {
        if bytes > 0 {
            let lines = escaped(text).replace("\\r\\n", "\\r\\n\n");
            let _ = write!(body, "<h3>First {name}, {} bytes</h3><pre>{lines}</pre>", grouped(bytes));
        }
    }
    section("On the wire", &body)
}

fn generator(r: &Report, figures: &Figures) -> String {
    let g = &r.generator;
    let rows = [
        ["machine".to_owned(), escaped(&g.machine())],
        ["Weir".to_owned(), escaped(&g.version)],
        ["busiest thread".to_owned(), format!("{:.0} % of a core", figures.busiest_thread * 100.0)],
        ["responses per core-second".to_owned(), number(figures.responses_per_generator_core_s)],
        ["starts late, 99 %".to_owned(), time(r.health.start_lag.quantile(0.99) as f64)],
        ["memory, largest".to_owned(), size(r.health.rss_bytes_max as f64)],
    ];
    section("The generator", &table_with_words(&[], rows))
}

/// Milliseconds since 1970 as `2026-11-21 18:03:54`.
pub(super) fn date(unix_ms: u64) -> String {
    let (days, second) = (unix_ms / 86_400_000, unix_ms / 1000 % 86_400);
    // Years start in March, so that the leap day comes last: 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!("{}-{month:02}-{date:02} {h:02}:{m:02}:{s:02}", era * 400 + year + next)
}

#[cfg(test)]
#[path = "html/tests.rs"]
mod tests;
