//! The layout of the live view, as a function of the figures. It knows no terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Gauge, Paragraph, Sparkline};
use std::collections::VecDeque;
use std::time::Duration;
use weir_load::Progress;
use weir_report::Histogram;
use weir_report::report::{
    Counts, Grade, Pace, Percentiles, PlanAsRun, StageUnit, TargetCost, Tick, Verdict, Window,
};
use weir_report::units::{grouped, size, time};

/// Seconds kept for the charts over time: the width of a large terminal.
const SECONDS_MOST: usize = 512;

/// The latest figures.
#[derive(Default)]
pub(super) struct View {
    plan: PlanAsRun,
    warmup: Duration,
    /// Since the run began, warm-up included.
    elapsed: Duration,
    tick: Option<Tick>,
    counts: Counts,
    window: Window,
    service: Percentiles,
    response: Percentiles,
    cost: Option<TargetCost>,
    /// The verdict if the run ended now.
    verdict: Option<Verdict>,
    /// Per second, for the last seconds: responses, and the p99 of the response time in microseconds.
    rates: VecDeque<u64>,
    p99s: VecDeque<u64>,
}

impl View {
    pub(super) fn new(plan: PlanAsRun, warmup: Duration) -> Self {
        Self { plan, warmup, ..Self::default() }
    }

    /// Stores the latest figures.
    pub(super) fn look(&mut self, now: &Progress<'_>) {
        self.elapsed = Duration::from_nanos(now.elapsed_ns);
        self.cost.clone_from(&now.so_far.cost);
        let Some(tick) = now.tick else { return };
        self.counts.clone_from(&now.so_far.counts);
        self.window = now.so_far.window;
        self.verdict = Some(now.so_far.verdict(&self.plan));
        let all = |h: &Histogram| Percentiles::of(h);
        (self.service, self.response) = (all(&now.so_far.service), all(&now.so_far.response));
        keep(&mut self.rates, rate(tick).round() as u64);
        keep(&mut self.p99s, tick.response.p99 / 1000);
        self.tick = Some(tick.clone());
    }

    /// Draws the view. If it does not fit, the lower part is cut off.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let lines = [self.title(), self.pace(), self.verdict()];
        let [head, gauge, figures, rates, p99s, foot] = Layout::vertical([
            Constraint::Length(lines.len() as u16),
            Constraint::Length(1),
            Constraint::Length(FIGURES),
            Constraint::Min(2),
            Constraint::Min(2),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(lines.to_vec()), head);
        frame.render_widget(self.gauge(), gauge);
        frame.render_widget(Paragraph::new(self.figures()), figures);
        let highest = self.rates.iter().max().copied().unwrap_or(0);
        over_time(
            frame,
            rates,
            &self.rates,
            &format!("responses a second, up to {}", grouped(highest)),
            Color::Green,
        );
        let slowest = self.p99s.iter().max().copied().unwrap_or(0);
        let title = format!("response time p99, up to {}", time(slowest as f64 * 1000.0));
        over_time(frame, p99s, &self.p99s, &title, Color::Yellow);
        frame.render_widget(Paragraph::new("Ctrl-C ends the run and prints the report").style(DIM), foot);
    }

    fn title(&self) -> Line<'static> {
        let first = self.plan.targets.first().map_or_else(String::new, |t| format!("{} {}", t.method, t.url));
        let more = match self.plan.targets.len() {
            0 | 1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let name = if self.plan.name.is_empty() { "weir load" } else { &self.plan.name };
        Line::from(vec![
            Span::styled(name.to_owned(), Style::new().add_modifier(Modifier::BOLD)),
            Span::raw(format!("  {first}{more}")),
        ])
    }

    fn pace(&self) -> Line<'static> {
        let p = &self.plan;
        let users = self.tick.as_ref().map_or(0, |t| t.users);
        let mut words = vec![match &p.pace {
            Pace::AsFastAsPossible => format!("{} connections", grouped(p.connections)),
            Pace::Replay { .. } => format!("a recording, {} requests under way", grouped(users)),
            Pace::Rate { per_second } => {
                format!("{}/s, {} requests under way", grouped(per_second.round() as u64), grouped(users))
            }
            Pace::Shape { of: StageUnit::Users, .. } | Pace::Stages { of: StageUnit::Users, .. } => {
                format!("{} users", grouped(users))
            }
            Pace::Shape { of: StageUnit::Rate, .. } => {
                format!("a rate in parts, {} requests under way", grouped(users))
            }
            Pace::Stages { of: StageUnit::Rate, .. } => {
                format!("a rate in stages, {} requests under way", grouped(users))
            }
        }];
        if p.streams > 1 {
            words.push(format!("{} streams each", grouped(p.streams)));
        }
        if let Some(behind) = self.tick.as_ref().map(|t| t.backlog).filter(|n| *n > 0) {
            words.push(format!("{} starts behind the plan", grouped(behind)));
        }
        Line::styled(words.join(", "), DIM)
    }

    /// The verdict so far: the most serious reason, and the number of others.
    fn verdict(&self) -> Line<'static> {
        let Some(verdict) = &self.verdict else { return Line::styled("no verdict yet", DIM) };
        let colour = match verdict.grade {
            Grade::Invalid => Color::Red,
            Grade::Suspect => Color::Yellow,
            Grade::Valid => Color::Green,
        };
        let grade = Span::styled(format!("{} so far", verdict.grade), Style::new().fg(colour));
        let Some(first) = verdict.reasons.first() else { return Line::from(grade) };
        let more = match verdict.reasons.len() {
            1 => String::new(),
            n => format!(" (and {} more)", n - 1),
        };
        Line::from(vec![grade, Span::raw(format!("{more}  {}: {}", first.code, first.text))])
    }

    /// Progress by time or by requests, whichever is further.
    fn gauge(&self) -> Gauge<'static> {
        let seconds = |d: Duration| format!("{:.0} s", d.as_secs_f64());
        let warming = self.elapsed < self.warmup;
        let (at, whole) = if warming {
            (self.elapsed, Some(self.warmup))
        } else {
            (self.elapsed - self.warmup, self.plan.stop.duration_ns.map(Duration::from_nanos))
        };
        let by_time = whole.map_or(0.0, |whole| at.as_secs_f64() / whole.as_secs_f64().max(1e-9));
        let by_count = self.plan.stop.requests.filter(|_| !warming);
        let by_count = by_count.map_or(0.0, |n| self.counts.requests as f64 / n.max(1) as f64);
        let mut label = if warming { "warm-up, ".to_owned() } else { String::new() };
        label += &seconds(at);
        if let Some(whole) = whole {
            label += &format!(" of {}", seconds(whole));
        }
        if let Some(n) = self.plan.stop.requests.filter(|_| !warming) {
            label += &format!(", {} of {} requests", grouped(self.counts.requests.min(n)), grouped(n));
        }
        if !warming && by_time >= 1.0 {
            label += ", waiting for the last responses";
        }
        Gauge::default().ratio(by_time.max(by_count).clamp(0.0, 1.0)).label(label).gauge_style(BAR)
    }

    fn figures(&self) -> Vec<Line<'static>> {
        let none = Tick::default();
        let tick = self.tick.as_ref().unwrap_or(&none);
        let failed = self.counts.errors.total();
        let finished = (self.counts.responses + failed).max(1);
        let mean = self.window.responses as f64 / self.window.seconds();
        let mut lines = vec![
            Line::raw(""),
            Line::raw(format!(
                "rate       {:>12}/s now{:>12}/s on the whole{:>14} responses",
                grouped(rate(tick).round() as u64),
                grouped(mean.round() as u64),
                grouped(self.counts.responses)
            )),
            Line::raw(""),
            Line::styled(
                format!("{:<22}{:>11}{:>11}{:>11}{:>11}{:>11}", "", "p50", "p90", "p99", "p99.9", "max"),
                DIM,
            ),
            times("service time, now", &tick.service),
            times("on the whole", &self.service),
            times("response time, now", &tick.response),
            times("on the whole", &self.response),
            Line::raw(""),
            self.statuses(),
        ];
        let text = format!(
            "errors     {:>14}  {:.2} %{}",
            grouped(failed),
            failed as f64 * 100.0 / finished as f64,
            self.kinds()
        );
        let style = if failed > 0 { Style::new().fg(Color::Red) } else { Style::new() };
        lines.push(Line::styled(text, style));
        lines.push(self.cost.as_ref().map_or_else(|| Line::raw(""), |c| self.cost(c)));
        lines
    }

    fn statuses(&self) -> Line<'static> {
        let mut spans = vec![Span::raw("status     ")];
        for (status, n) in &self.counts.statuses {
            let colour = match status {
                200..=299 => Color::Green,
                300..=399 => Color::Cyan,
                400..=499 => Color::Yellow,
                _ => Color::Red,
            };
            spans.push(Span::styled(format!("{status}: "), Style::new().fg(colour)));
            spans.push(Span::raw(format!("{}   ", grouped(*n))));
        }
        for (code, n) in &self.counts.grpc {
            let colour = if code == "OK" { Color::Green } else { Color::Red };
            spans.push(Span::styled(format!("{code}: "), Style::new().fg(colour)));
            spans.push(Span::raw(format!("{}   ", grouped(*n))));
        }
        Line::from(spans)
    }

    fn kinds(&self) -> String {
        let kinds = self.counts.errors.kinds();
        let seen = kinds.iter().filter(|(_, n)| *n > 0);
        seen.map(|(kind, n)| format!("   {kind}: {}", grouped(*n))).collect()
    }

    fn cost(&self, c: &TargetCost) -> Line<'static> {
        let cores = c.cpu_ns as f64 / c.sampled_ns.max(1) as f64;
        let rate = self.window.responses as f64 / self.window.seconds();
        let each = if self.window.responses == 0 {
            String::new()
        } else {
            format!(", {} per response", time(cores / rate * 1e9))
        };
        Line::raw(format!(
            "target     {} ({}): {cores:.2} cores{each}, {} of memory",
            c.command,
            c.pid,
            size(c.rss_bytes_end as f64)
        ))
    }
}

/// Number of lines that [`View::figures`] returns.
const FIGURES: u16 = 12;

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BAR: Style = Style::new().fg(Color::Blue);

fn rate(tick: &Tick) -> f64 {
    tick.responses as f64 * 1e9 / tick.length_ns.max(1) as f64
}

fn keep(values: &mut VecDeque<u64>, value: u64) {
    if values.len() == SECONDS_MOST {
        values.pop_front();
    }
    values.push_back(value);
}

fn times(name: &str, p: &Percentiles) -> Line<'static> {
    let row = [p.p50, p.p90, p.p99, p.p999, p.max].map(|ns| time(ns as f64));
    let cells: String = row.iter().map(|cell| format!("{cell:>11}")).collect();
    Line::raw(format!("{name:<22}{cells}"))
}

/// A chart over time, with the last second at its right end.
fn over_time(frame: &mut Frame<'_>, area: Rect, values: &VecDeque<u64>, title: &str, colour: Color) {
    let [head, line] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    frame.render_widget(Paragraph::new(title.to_owned()).style(DIM), head);
    let first = values.len().saturating_sub(usize::from(line.width));
    let shown: Vec<u64> = values.iter().skip(first).copied().collect();
    frame.render_widget(Sparkline::default().data(shown).style(Style::new().fg(colour)), line);
}

#[cfg(test)]
mod tests;
