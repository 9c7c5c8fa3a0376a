//! The first screen: health, load, failures and their causes, and the latest change.

use crate::chart::{Line, chart};
use crate::condition::{Condition, judged};
use crate::display::{self, count, counted, moment, percent, rate, span};
use crate::frame::{Frame, LIVE, Screen};
use crate::html::{Html, each, part};
use crate::view::{Drift, Point, Pulse, RevisionStatus, Role, Status, UpstreamStatus};

/// Points of a full chart. A shorter history fills only part of it instead of being stretched.
const SPAN: usize = 180;

/// The page. `latest` is the running revision; `drift` is omitted when a live page refreshes.
pub fn overview(
    frame: &Frame<'_>,
    status: &Status,
    pulse: &Pulse,
    latest: Option<&RevisionStatus>,
    drift: Option<&Drift>,
) -> String {
    let reload = frame.may(Role::Operate).then(|| {
        html!("<form data-call=\"POST\" data-url=\"/reload\" data-done=\"Reloaded.\"><button>Reload the config</button></form>")
    });
    let body = html!(
        "{}<div class=\"charts\" id=\"charts\" data-live=\"5\">{}</div><div class=\"columns\">{}<div>{}{}</div></div>{}",
        now(status, pulse),
        charts(pulse),
        causes(status, pulse),
        config(status, latest, drift),
        listeners(status),
        machines()
    );
    frame.page(Screen::Overview, "Overview", &html!("{}", reload), &body)
}

/// The verdict and the current figures.
fn now(status: &Status, pulse: &Pulse) -> Html {
    let (class, verdict) = verdict(status, pulse);
    let recent = &pulse.recent;
    let p99 = recent.p99_ms.map_or_else(|| "–".to_owned(), display::ms);
    let tiles = [
        (
            "Requests a second",
            rate(status.requests_per_second),
            format!("{} since the start", count(status.requests)),
        ),
        (
            "Failed, last minute",
            percent(recent.failed, recent.requests),
            format!("{} answers of 5xx", count(recent.failed)),
        ),
        ("p99", p99, quantiles_of(recent.p50_ms, recent.p95_ms)),
        ("Under way", count(recent.active), counted(status.connections, "connection")),
    ];
    let tiles = each(tiles, |(name, value, more)| {
        html!("<div class=\"tile\"><dt>{}<dd><b>{}</b><small>{}</small></div>", name, value, more)
    });
    html!(
        "<div id=\"now\" data-live=\"{}\"><p class=\"verdict {}\"><i aria-hidden=\"true\"></i><span>{}</span></p><dl class=\"tiles\">{}</dl></div>",
        LIVE,
        class,
        verdict,
        tiles
    )
}

/// The lower quantiles, next to the highest.
fn quantiles_of(p50: Option<f64>, p95: Option<f64>) -> String {
    match (p50, p95) {
        (Some(p50), Some(p95)) => format!("p50 {}, p95 {}", display::ms(p50), display::ms(p95)),
        _ => String::new(),
    }
}

/// The most serious problem, in a sentence.
fn verdict(status: &Status, pulse: &Pulse) -> (&'static str, Html) {
    let endpoints = || status.upstreams.iter().flat_map(|(_, upstream)| &upstream.endpoints);
    let out = endpoints().filter(|endpoint| !endpoint.healthy).count();
    let upstreams = judged(status, &pulse.upstreams);
    let failing: Vec<_> = upstreams.iter().filter(|one| one.condition == Condition::Failing).collect();
    let expired = status.certificates.iter().filter(|certificate| certificate.days_left < 0).count();
    let recent = &pulse.recent;
    match failing.as_slice() {
        [] => {}
        [one] => {
            let at = part(one.name);
            return (
                "bad",
                html!("Upstream <a href=\"/upstreams/{}\">{}</a> is failing: {}.", at, one.name, one.why),
            );
        }
        [first, others @ ..] => {
            let list = html!("<a href=\"/upstreams?state=failing\">{} upstreams</a>", others.len() + 1);
            return ("bad", html!("{} are failing, the worst is {}: {}.", list, first.name, first.why));
        }
    }
    if expired > 0 {
        let have = if expired == 1 { "has" } else { "have" };
        return (
            "bad",
            html!("<a href=\"/certificates\">{}</a> {} expired.", counted(expired, "certificate"), have),
        );
    }
    // One in twenty over a minute, and too many for chance.
    if recent.failed >= 10 && recent.failed * 20 >= recent.requests {
        let share = percent(recent.failed, recent.requests);
        return (
            "bad",
            html!("{} of the last minute’s requests failed. <a href=\"/failures\">Why</a>", share),
        );
    }
    if status.state == "draining" {
        return ("warn", html!("Draining."));
    }
    if out > 0 {
        let all = endpoints().count();
        let list = html!("<a href=\"/upstreams\">{} of {}</a>", out, counted(all, "endpoint"));
        return ("warn", html!("{} {} out of rotation.", list, if out == 1 { "is" } else { "are" }));
    }
    if let Some(one) = upstreams.iter().find(|one| one.condition == Condition::Degraded && one.seen.bad() > 0)
    {
        let at = part(one.name);
        return ("warn", html!("Upstream <a href=\"/upstreams/{}\">{}</a>: {}.", at, one.name, one.why));
    }
    let away = |upstream: &UpstreamStatus| upstream.discovery.as_ref().is_some_and(|it| it.state == "away");
    if let Some((name, _)) = status.upstreams.iter().find(|(_, upstream)| away(upstream)) {
        return (
            "warn",
            html!("The registry of <a href=\"/upstreams\">{}</a> is away: the last good list serves.", name),
        );
    }
    if status.last_reload.as_ref().is_some_and(|reload| reload.result != "ok") {
        return ("warn", html!("It runs well, on the config before the last reload."));
    }
    let soon = status.certificates.iter().filter(|c| c.days_left < crate::certificates::SOON_DAYS).count();
    if soon > 0 {
        let expire = if soon == 1 { "expires" } else { "expire" };
        return (
            "warn",
            html!("<a href=\"/certificates\">{}</a> {} soon.", counted(soon, "certificate"), expire),
        );
    }
    if recent.failed > 0 {
        let some = counted(usize::try_from(recent.failed).unwrap_or(usize::MAX), "request");
        return ("well", html!("Well. {} of {} failed in the last minute.", some, count(recent.requests)));
    }
    ("well", html!("All is well: every endpoint is in rotation and nothing failed in the last minute."))
}

fn charts(pulse: &Pulse) -> Html {
    let missing = SPAN.saturating_sub(pulse.points.len());
    let of = |value: fn(&Point) -> Option<f64>| -> Vec<Option<f64>> {
        std::iter::repeat_n(None, missing).chain(pulse.points.iter().map(value)).collect()
    };
    let requests = [
        Line { class: "requests", name: "answered", values: of(|p| Some(p.requests)), say: rate },
        Line {
            class: "failed",
            name: "of 5xx",
            values: of(|p| (p.failed > 0.0).then_some(p.failed)),
            say: rate,
        },
    ];
    let slow = [
        Line { class: "requests", name: "p50", values: of(|p| p.p50_ms), say: display::ms },
        Line { class: "slow", name: "p95", values: of(|p| p.p95_ms), say: display::ms },
        Line { class: "failed", name: "p99", values: of(|p| p.p99_ms), say: display::ms },
    ];
    html!(
        "{}{}",
        chart("chart-rate", "Requests a second", pulse.step, &requests),
        chart("chart-p99", "Response time", pulse.step, &slow)
    )
}

fn causes(status: &Status, pulse: &Pulse) -> Html {
    let recent =
        |cause: &str| pulse.recent.causes.iter().find(|(name, _)| name == cause).map_or(0, |(_, n)| *n);
    let rows = each(&status.causes, |cause| {
        let last = recent(cause.cause);
        html!(
            "<tr{}><th scope=\"row\"><a href=\"/failures?cause={}\"><code>{}</code></a><td class=\"num\">{}<td class=\"num\">{}",
            (last == 0).then(|| html!(" class=\"quiet\"")),
            part(cause.cause),
            cause.cause,
            count(last),
            count(cause.count)
        )
    });
    let table = if status.causes.is_empty() {
        html!("<p class=\"empty\">The gateway has answered no request itself since the start.</p>")
    } else {
        html!(
            "<table class=\"plain\"><caption class=\"hide\">Answers by the gateway itself</caption><thead><tr><th scope=\"col\">Cause<th \
             scope=\"col\" class=\"num\">Last minute<th scope=\"col\" class=\"num\">Since the start<tbody>{}</table>",
            rows
        )
    };
    html!("<section id=\"causes\" data-live=\"5\"><h2>Errors by cause</h2>{}</section>", table)
}

fn config(status: &Status, latest: Option<&RevisionStatus>, drift: Option<&Drift>) -> Html {
    let number = status.number.map(|number| html!("<a href=\"/history\">Revision {}</a> · ", number));
    let by = latest.map(|revision| {
        let message = (!revision.message.is_empty()).then(|| html!("<q>{}</q>", revision.message));
        html!(
            "<dt>Changed by<dd>{} ({}) {} {}",
            revision.author,
            revision.source.name(),
            moment(&revision.time),
            message
        )
    });
    let reload = match &status.last_reload {
        None => html!("none since the start"),
        Some(reload) if reload.result == "ok" => html!("well, {}", moment(&reload.at)),
        Some(reload) => html!("<b class=\"is-bad\">refused</b> {}", moment(&reload.at)),
    };
    let error = status.last_reload.as_ref().and_then(|reload| reload.error.as_ref());
    let error = error.map(|error| html!("<pre class=\"code\" tabindex=\"0\">{}</pre>", error));
    let drift = drift.map(|drift| {
        let told = if drift.drift {
            html!("<b class=\"is-warn\">they say something else</b>: <a href=\"/config\">what differs</a>")
        } else {
            html!("say what runs")
        };
        html!("<dt>Files<dd>{}", told)
    });
    html!(
        "<section id=\"reload\"><h2>Config</h2><dl class=\"facts\"><dt>Runs<dd>{}<code>{}</code>, {}{}<dt>Last reload<dd>{}{}</dl>{}</section>",
        number,
        status.revision,
        counted(status.routes, "route"),
        by,
        reload,
        drift,
        error
    )
}

fn listeners(status: &Status) -> Html {
    let rows = each(&status.listeners, |(name, listener)| {
        let (address, passes) = (listener.address.as_deref(), listener.passes.as_deref());
        html!(
            "<tr><th scope=\"row\">{}<td><code>{}</code>{}",
            name,
            address.unwrap_or("by name"),
            passes.map(|passes| html!(" {}", passes)).unwrap_or_default()
        )
    });
    html!(
        "<section><h2>Listeners</h2><table class=\"plain\"><caption class=\"hide\">Listeners</caption><thead><tr><th scope=\"col\">Name<th \
         scope=\"col\">Address<tbody>{}</table><p class=\"quiet\">{} · up for {}</p></section>",
        rows,
        counted(status.workers, "worker"),
        span(status.uptime_seconds)
    )
}

/// Links to the endpoints for machines.
fn machines() -> Html {
    let paths = ["/status", "/metrics", "/healthz", "/readyz", "/api/v1/openapi.json"];
    let links = each(paths, |path| html!(" <a href=\"{}\"><code>{}</code></a>", path, path));
    html!("<p class=\"machines\">For machines:{}</p>", links)
}
