//! The pages of a single route and a single upstream: the current state, and requests, times, statuses and
//! failures of the last 15 minutes.

use crate::chart::{Line, chart};
use crate::condition::judged;
use crate::display::{self, count, percent, rate, span};
use crate::frame::{Frame, LIVE, Screen};
use crate::html::{Html, each, part};
use crate::view::{
    Quantiles, Role, Route, RoutePoint, RouteTrend, Seen, Status, UpstreamPoint, UpstreamTrend,
};
use std::collections::BTreeMap;

/// Points of a full chart. A shorter history fills only part of it instead of being stretched.
const SPAN: usize = 61;

/// The page of a route.
pub fn route(frame: &Frame<'_>, route: &Route, trend: &RouteTrend) -> String {
    let all: u64 = trend.classes.iter().sum();
    let failed = trend.classes.last().copied().unwrap_or(0);
    let over = format!("in {}", span(trend.seconds));
    let now = trend.points.last().copied().unwrap_or_default();
    let tiles = tiles([
        ("Requests a second", rate(now.classes.iter().sum()), format!("{} {over}", count(all))),
        ("Failed (5xx)", percent(failed, all), format!("{} {over}", count(failed))),
        ("p99", quantile(trend.duration.p99), lower(&trend.duration)),
        ("First byte, p99", quantile(trend.first_byte.p99), lower(&trend.first_byte)),
    ]);
    let line = |class, name, value: fn(&RoutePoint) -> Option<f64>, say| Line {
        class,
        name,
        values: drawn(&trend.points, value),
        say,
    };
    let class = |class, name, value: fn(&RoutePoint) -> f64| Line {
        class,
        name,
        values: sparse(&trend.points, value),
        say: rate,
    };
    let statuses = [
        class("good", "2xx", |p| p.classes[2]),
        class("requests", "3xx", |p| p.classes[3]),
        class("slow", "4xx", |p| p.classes[4]),
        class("failed", "5xx", |p| p.classes[5]),
    ];
    let times = [
        line("requests", "p50", |p| p.duration.p50, display::ms),
        line("slow", "p95", |p| p.duration.p95, display::ms),
        line("failed", "p99", |p| p.duration.p99, display::ms),
    ];
    let first = [
        line("requests", "p50", |p| p.first_byte.p50, display::ms),
        line("slow", "p95", |p| p.first_byte.p95, display::ms),
        line("failed", "p99", |p| p.first_byte.p99, display::ms),
    ];
    let failures =
        [class("failed", "5xx", |p| p.classes[5]), class("slow", "by the gateway itself", |p| p.own)];
    let body = html!(
        "<p class=\"quiet\">{} <code>{}</code> → {} <a href=\"/failures?route={}\">Failures of this route</a></p><div id=\"trend\" data-live=\"{}\">{}<div \
         class=\"charts\">{}{}{}{}</div><div class=\"columns\">{}{}</div></div>",
        route.hosts.join(" "),
        route.path,
        crate::routes::target(&route.target),
        part(&route.name),
        LIVE,
        tiles,
        chart("chart-statuses", "Responses a second, by status", trend.step, &statuses),
        chart("chart-times", "Response time", trend.step, &times),
        chart("chart-first", "First byte of the upstream", trend.step, &first),
        chart("chart-failures", "Failures a second", trend.step, &failures),
        statuses_table(trend),
        causes_table(route, trend)
    );
    let config = html!("<a class=\"button\" href=\"/config/routes/{}\">Config</a>", part(&route.name));
    frame.page(Screen::Routes, &format!("Route {}", route.name), &config, &body)
}

fn statuses_table(trend: &RouteTrend) -> Html {
    let all: u64 = trend.statuses.iter().map(|(_, n)| n).sum();
    let rows = each(&trend.statuses, |(code, n)| {
        let shown = if *code == 0 { "other".to_owned() } else { code.to_string() };
        html!(
            "<tr><th scope=\"row\">{}<td class=\"num\">{}<td class=\"num\">{}",
            shown,
            count(*n),
            percent(*n, all)
        )
    });
    if trend.statuses.is_empty() {
        return html!("<section><h2>Statuses</h2><p class=\"empty\">No response yet.</p></section>");
    }
    html!(
        "<section><h2>Statuses <small>since the start</small></h2><table class=\"plain\"><caption class=\"hide\">Statuses</caption><thead><tr><th \
         scope=\"col\">Status<th scope=\"col\" class=\"num\">Responses<th scope=\"col\" class=\"num\">Share<tbody>{}</table></section>",
        rows
    )
}

fn causes_table(route: &Route, trend: &RouteTrend) -> Html {
    let rows = each(&trend.causes, |(cause, n)| {
        html!(
            "<tr><th scope=\"row\"><a href=\"/failures?cause={}&amp;route={}\"><code>{}</code></a><td class=\"num\">{}",
            part(cause),
            part(&route.name),
            cause,
            count(*n)
        )
    });
    if trend.causes.is_empty() {
        return html!(
            "<section><h2>Causes</h2><p class=\"empty\">The gateway has answered no request of this route itself.</p></section>"
        );
    }
    html!(
        "<section><h2>Causes <small>since the start</small></h2><table class=\"plain\"><caption class=\"hide\">Answers by the gateway itself</caption><thead><tr><th \
         scope=\"col\">Cause<th scope=\"col\" class=\"num\">Answers<tbody>{}</table></section>",
        rows
    )
}

/// The page of an upstream; `None` if no upstream has this name.
pub fn upstream(
    frame: &Frame<'_>,
    status: &Status,
    seen: &BTreeMap<String, Seen>,
    name: &str,
    trend: &UpstreamTrend,
) -> Option<String> {
    let all = judged(status, seen);
    let one = all.iter().find(|one| one.name == name)?;
    let may = frame.may(Role::Operate);
    let over = format!("in {}", span(trend.seconds));
    let (attempts, bad) = (one.seen.attempts, one.seen.bad());
    let total: u64 = trend.outcomes.iter().map(|(_, n)| n).sum();
    let first_byte = one.seen.first_byte_ms.map_or_else(|| "–".to_owned(), display::ms);
    let tiles = tiles([
        ("Attempts a second", rate(one.seen.rate), format!("{} {over}", count(total))),
        ("Failed, last minute", percent(bad, attempts), format!("{} of {}", count(bad), count(attempts))),
        ("First byte, mean", first_byte, "of all answers in the last minute".to_owned()),
        ("First byte, p99", quantile(trend.first_byte.p99), lower(&trend.first_byte)),
    ]);
    let line = |class, name, value: fn(&UpstreamPoint) -> Option<f64>, say| Line {
        class,
        name,
        values: drawn(&trend.points, value),
        say,
    };
    let kind = |class, name, value: fn(&UpstreamPoint) -> f64| Line {
        class,
        name,
        values: sparse(&trend.points, value),
        say: rate,
    };
    let attempts = [
        kind("good", "answered", |p| p.answered),
        kind("slow", "answered 5xx", |p| p.errors),
        kind("failed", "failed", |p| p.failed),
    ];
    let first = [
        line("requests", "p50", |p| p.first_byte.p50, display::ms),
        line("slow", "p95", |p| p.first_byte.p95, display::ms),
        line("failed", "p99", |p| p.first_byte.p99, display::ms),
    ];
    let outcomes = outcomes(trend, total);
    let routes = each(&trend.routes, |route| {
        html!(
            "<li><a href=\"/routes/{}\">{}</a> <a class=\"quiet\" href=\"/failures?route={}\">failures</a>",
            part(route),
            route,
            part(route)
        )
    });
    let routes = if trend.routes.is_empty() {
        html!("<p class=\"empty\">No route leads here.</p>")
    } else {
        html!("<ul class=\"names\">{}</ul>", routes)
    };
    let body = html!(
        "<div id=\"trend\" data-live=\"{}\"><p class=\"verdict {}\"><i aria-hidden=\"true\"></i><span>{}</span></p>{}{}<div class=\"charts\">{}{}</div><div \
         class=\"columns\">{}<section><h2>Routes that lead here</h2>{}<p class=\"quiet\">Quantiles of the first byte are of these routes together.</p></section></div></div>{}",
        LIVE,
        one.condition.class(),
        one.why,
        tiles,
        crate::upstreams::endpoints(name, one.upstream, may),
        chart("chart-attempts", "Attempts a second", trend.step, &attempts),
        chart("chart-first", "First byte", trend.step, &first),
        outcomes,
        routes,
        may.then(crate::upstreams::dialog)
    );
    let actions = html!(
        "<a class=\"button\" href=\"/config/upstreams/{}\">Config</a><a class=\"button\" href=\"/upstreams\">All upstreams</a>",
        part(name)
    );
    Some(frame.page(Screen::Upstreams, &format!("Upstream {name}"), &actions, &body))
}

fn outcomes(trend: &UpstreamTrend, total: u64) -> Html {
    let rows = each(&trend.outcomes, |(outcome, n)| {
        let errors = (*outcome == "answered" && trend.errors > 0)
            .then(|| html!(" <small class=\"is-bad\">{} of them 5xx</small>", count(trend.errors)));
        html!(
            "<tr><th scope=\"row\">{}{}<td class=\"num\">{}<td class=\"num\">{}",
            outcome.replace('_', " "),
            errors,
            count(*n),
            percent(*n, total)
        )
    });
    if trend.outcomes.is_empty() {
        let quiet = format!("No attempt in the last {}.", span(trend.seconds));
        return html!("<section><h2>Attempts</h2><p class=\"empty\">{}</p></section>", quiet);
    }
    html!(
        "<section><h2>Attempts <small>in {}</small></h2><table class=\"plain\"><caption class=\"hide\">Attempts by outcome</caption><thead><tr><th \
         scope=\"col\">Outcome<th scope=\"col\" class=\"num\">Attempts<th scope=\"col\" class=\"num\">Share<tbody>{}</table></section>",
        span(trend.seconds),
        rows
    )
}

fn tiles<'a>(tiles: impl IntoIterator<Item = (&'a str, String, String)>) -> Html {
    let tiles = each(tiles, |(name, value, more)| {
        html!("<div class=\"tile\"><dt>{}<dd><b>{}</b><small>{}</small></div>", name, value, more)
    });
    html!("<dl class=\"tiles\">{}</dl>", tiles)
}

fn quantile(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), display::ms)
}

fn lower(quantiles: &Quantiles) -> String {
    match (quantiles.p50, quantiles.p95) {
        (Some(p50), Some(p95)) => format!("p50 {}, p95 {}", display::ms(p50), display::ms(p95)),
        _ => String::new(),
    }
}

/// The values of a line, with a gap before the first known point.
fn drawn<P>(points: &[P], value: impl Fn(&P) -> Option<f64>) -> Vec<Option<f64>> {
    let missing = SPAN.saturating_sub(points.len());
    std::iter::repeat_n(None, missing).chain(points.iter().map(value)).collect()
}

/// The values of a line, omitted if nothing happened at all.
fn sparse<P>(points: &[P], value: impl Fn(&P) -> f64) -> Vec<Option<f64>> {
    if points.iter().all(|point| value(point) <= 0.0) {
        return drawn(points, |_| None);
    }
    drawn(points, |point| Some(value(point)))
}
