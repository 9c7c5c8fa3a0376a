//! Requests that failed, were slow or were sampled: `weir why` in the browser.

use crate::display::{self, bytes, count, counted, moment};
use crate::frame::{Frame, LIVE, Screen};
use crate::html::{Html, each, part, ticked};
use crate::routes::others;
use crate::view::{Autopsies, Autopsy, Moment, WhyQuery};

/// The list.
pub fn failures(frame: &Frame<'_>, told: &Autopsies, sought: &WhyQuery) -> String {
    let kinds = [("", "All"), ("failed", "Failed"), ("slow", "Slow"), ("sampled", "Samples")];
    let tabs = each(kinds, |(kind, word)| {
        let here = (kind == sought.kind).then(|| html!(" aria-current=\"true\""));
        html!(
            "<a href=\"/failures?kind={}&amp;cause={}&amp;route={}{}\"{}>{}</a>",
            kind,
            part(&sought.cause),
            part(&sought.route),
            if sought.each { "&each=1" } else { "" },
            here,
            word
        )
    });
    let form = html!(
        "<form class=\"filter\" role=\"search\" method=\"get\" action=\"/failures\"><input type=\"hidden\" name=\"kind\" value=\"{}\"><label>Cause <input \
         id=\"filter\" name=\"cause\" value=\"{}\" autocomplete=\"off\" spellcheck=\"false\" placeholder=\"connect_refused\"></label><label>Route <input \
         name=\"route\" value=\"{}\" autocomplete=\"off\" spellcheck=\"false\" placeholder=\"orders\"></label><button>Look</button></form><form class=\"filter\" \
         method=\"get\" action=\"/failures/id\"><label>Request id <input name=\"id\" required autocomplete=\"off\" spellcheck=\"false\" \
         class=\"wide\"></label><button>Find</button></form>",
        sought.kind,
        sought.cause,
        sought.route
    );
    let wrong =
        sought.wrong.as_ref().map(|wrong| html!("<p class=\"notice bad\" role=\"alert\">{}</p>", wrong));
    let list = each(&told.found, |autopsy| item(autopsy, sought));
    let how = if sought.each {
        html!(
            "Every request. <a href=\"/failures?kind={}&amp;cause={}&amp;route={}\">One per group</a>",
            sought.kind,
            part(&sought.cause),
            part(&sought.route)
        )
    } else {
        html!(
            "Grouped by cause and route, most frequent first. <a href=\"/failures?kind={}&amp;cause={}&amp;route={}&amp;each=1\">Every request</a>",
            sought.kind,
            part(&sought.cause),
            part(&sought.route)
        )
    };
    let list = if told.found.is_empty() {
        html!("<p class=\"empty\">{}</p>", nothing(told))
    } else {
        html!("<ol class=\"cases\">{}</ol>", list)
    };
    let body = html!(
        "<nav class=\"tabs\" aria-label=\"Kinds\">{}</nav><div class=\"forms\">{}</div>{}<p class=\"quiet\">{}</p><div id=\"found\" data-live=\"{}\">{}<p class=\"quiet\">{} kept{}. Of \
         those that were well, one in {} is.</p></div>",
        tabs,
        form,
        wrong,
        how,
        LIVE,
        list,
        count(told.held as u64),
        told.since.as_ref().map(|since| html!(", the oldest from {}", moment(since))),
        count(told.sample.into())
    );
    let live = html!("<button type=\"button\" id=\"pause\" aria-pressed=\"false\">Pause</button>");
    frame.page(Screen::Failures, "Failures", &live, &body)
}

fn nothing(told: &Autopsies) -> &'static str {
    if !told.on {
        "Nothing is kept: limits.autopsy is 0B."
    } else if told.held == 0 {
        "No request has failed or been slow since the start."
    } else {
        "No kept request matches."
    }
}

fn item(autopsy: &Autopsy, sought: &WhyQuery) -> Html {
    let cause = autopsy.cause.as_ref().map(|cause| html!("<code>{}</code> ", cause.code));
    let request = &autopsy.request;
    let code = autopsy.cause.as_ref().map_or("", |cause| cause.code);
    let route = autopsy.route.name.as_deref().unwrap_or_default();
    let alike = (autopsy.alike > 0).then(|| {
        html!(
            "<a class=\"alike\" href=\"/failures?kind={}&amp;cause={}&amp;route={}&amp;each=1\">{} like it</a>",
            sought.kind,
            part(code),
            part(route),
            count(autopsy.alike)
        )
    });
    html!(
        "<li><a href=\"/failures/{}\"><span class=\"status {}\">{}</span><span class=\"what\"><b>{} {}{}</b> {}</span><span class=\"when\">{} · {}</span><span \
         class=\"sentence\">{}</span></a>{}",
        part(&autopsy.id),
        class(autopsy),
        status(autopsy),
        request.method,
        request.host,
        request.path,
        cause,
        moment(&autopsy.at),
        display::us(autopsy.total_us),
        ticked(&autopsy.sentence),
        alike
    )
}

fn status(autopsy: &Autopsy) -> String {
    if autopsy.status == 0 { "–".to_owned() } else { autopsy.status.to_string() }
}

fn class(autopsy: &Autopsy) -> &'static str {
    match (autopsy.kind, autopsy.status) {
        // A 4xx is usually the client's fault.
        ("failed", 400..=499) => "warn",
        ("failed", _) => "bad",
        ("slow", _) => "warn",
        _ => "well",
    }
}

/// The page of a single request.
pub fn failure(frame: &Frame<'_>, autopsy: &Autopsy) -> String {
    let request = &autopsy.request;
    let cause = autopsy.cause.as_ref().map(|cause| html!(" <code>{}</code>", cause.code));
    let body = html!(
        "<p class=\"case-head\"><span class=\"status {}\">{}</span><span>{} {}{}</span>{}</p><p class=\"quiet\">{} · took {} · id <code \
         class=\"id\">{}</code></p><p class=\"lead\">{}</p>{}{}<div class=\"columns\">{}{}</div>",
        class(autopsy),
        status(autopsy),
        request.method,
        request.host,
        request.path,
        cause,
        moment(&autopsy.at),
        display::us(autopsy.total_us),
        autopsy.id,
        ticked(&autopsy.sentence),
        key(autopsy),
        timeline(autopsy),
        facts(autopsy),
        neighbours(autopsy)
    );
    let back = html!("<a class=\"button\" href=\"/failures\">All failures</a>");
    let title = match autopsy.kind {
        "failed" => "Why it failed",
        "slow" => "Why it was slow",
        _ => "One that was well",
    };
    frame.page(Screen::Failures, title, &back, &body)
}

fn key(autopsy: &Autopsy) -> Option<Html> {
    let general = autopsy.cause.as_ref().map(|cause| {
        html!(
            "<p class=\"quiet\">In general: {} {}</p>",
            ticked(cause.meaning),
            (autopsy.key.is_none() && !cause.change.is_empty())
                .then(|| html!("To change: <code>{}</code>", cause.change))
        )
    });
    let key = autopsy.key.as_ref().map(|key| {
        let value = key.value.as_ref().map(|value| html!(" = <code>{}</code>", value));
        let at = key.at.as_ref().map(|at| html!(" <small>at {}</small>", at));
        let note = key.note.as_ref().map(|note| html!("<br><small>{}</small>", note));
        html!("<p class=\"notice\"><b>To change:</b> <code>{}</code>{}{}{}</p>", key.key, value, at, note)
    });
    (key.is_some() || general.is_some()).then(|| html!("{}{}", key, general))
}

/// The timeline; each bar spans the time of its event.
fn timeline(autopsy: &Autopsy) -> Html {
    let end = autopsy.timeline.iter().map(|m| m.at_us.saturating_add(m.took_us.unwrap_or(0)));
    let total = end.chain([autopsy.total_us, 1]).max().unwrap_or(1) as f64;
    let rows = each(&autopsy.timeline, |m| {
        let took = m.took_us.map(display::us);
        html!(
            "<tr><td class=\"num\">{}<td>{}<td class=\"num\">{}<td class=\"bar\">{}",
            display::us(m.at_us),
            ticked(&m.what),
            took,
            bar(m, total)
        )
    });
    html!(
        "<h2>Timeline</h2><table class=\"plain timeline\"><caption class=\"hide\">Timeline</caption><thead><tr><th scope=\"col\" class=\"num\">At<th \
         scope=\"col\">What<th scope=\"col\" class=\"num\">Took<th scope=\"col\"><span class=\"hide\">Share of the time</span><tbody>{}</table>",
        rows
    )
}

fn bar(moment: &Moment, total: f64) -> Html {
    let at = (moment.at_us as f64 / total * 200.0).min(198.5);
    let width = (moment.took_us.unwrap_or(0) as f64 / total * 200.0).clamp(1.5, 200.0 - at);
    let (at, width) = ((at * 10.0).round() / 10.0, (width * 10.0).round() / 10.0);
    html!(
        "<svg viewBox=\"0 0 200 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"rail\" width=\"200\" height=\"2\" y=\"4\"/><rect \
         class=\"took\" x=\"{}\" width=\"{}\" height=\"10\"/></svg>",
        at,
        width
    )
}

fn facts(autopsy: &Autopsy) -> Html {
    let (client, request) = (&autopsy.client, &autopsy.request);
    let fact = |name: &str, value: Option<&String>| {
        value.map(|value| html!("<dt>{}<dd><code>{}</code>", name, value))
    };
    let list = |name: &str, list: &[String]| {
        (!list.is_empty())
            .then(|| html!("<dt>{}<dd>{}", name, each(list, |text| html!("<code>{}</code> ", text))))
    };
    let cut = request.cut.then(|| html!("<dt>Note<dd>It was too long to be kept whole."));
    let changed = autopsy.config_changed.then(|| html!(" <small>another one runs by now</small>"));
    html!(
        "<section><h2>Facts</h2><dl class=\"facts\">{}{}{}<dt>Listener<dd><code>{}</code>{}{}{}{}{}{}{}<dt>Attempts<dd>{}<dt>Bytes<dd>{} in, {} \
         out{}<dt>Config<dd><code>{}</code>{}</dl></section>",
        fact("Client", client.address.as_ref()),
        fact("Came from", client.peer.as_ref()),
        (!client.protocol.is_empty()).then(|| html!("<dt>Protocol<dd>{} {}", client.protocol, client.tls)),
        client.listener,
        fact("Route", autopsy.route.name.as_ref()),
        fact("Consumer", autopsy.consumer.as_ref()),
        list("Filters", &autopsy.filters),
        fact("Upstream", autopsy.upstream.as_ref()),
        fact("Endpoint", autopsy.endpoint.as_ref()),
        list("Query, in bytes", &request.query),
        list("Fields, in bytes", &request.fields),
        autopsy.attempts,
        bytes(autopsy.bytes_in),
        bytes(autopsy.bytes_out),
        cut,
        autopsy.revision,
        changed
    )
}

fn neighbours(autopsy: &Autopsy) -> Option<Html> {
    let all: Vec<_> = autopsy.route.runner_up.iter().chain(&autopsy.route.near).collect();
    (!all.is_empty()).then(|| {
        let routes = others(all.iter().map(|other| (&*other.route, &*other.why)));
        html!("<section><h2>{} near</h2>{}</section>", counted(all.len(), "route"), routes)
    })
}
