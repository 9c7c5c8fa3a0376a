//! The list of routes, and `explain` for a URL.

use crate::display::{self, count, percent, rate};
use crate::frame::{Frame, Screen};
use crate::html::{Html, each, part, ticked};
use crate::view::{Explanation, FilterShown, Question, Route, Target};
use crate::yaml;
use serde_json::{Value, json};

/// Most routes on one page. With more, the gateway does the filtering.
pub(crate) const MOST: usize = 2000;

/// Most near misses shown.
const NEAR: usize = 5;

/// The methods offered by the `explain` form.
const METHODS: &[&str] = &["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

/// The page: the routes that match `wanted`, and the answer of `explain`.
pub fn routes(
    frame: &Frame<'_>,
    routes: &[Route],
    wanted: &str,
    listeners: &[String],
    asked: &Question,
    told: Option<&Result<Explanation, String>>,
) -> String {
    let total = routes.len();
    let lower = wanted.to_lowercase();
    // The gateway filters only if the page cannot hold all routes. Otherwise the script filters without a
    // request.
    let here: Vec<&Route> = if total <= MOST {
        routes.iter().collect()
    } else {
        routes.iter().filter(|route| lower.is_empty() || found_in(route, &lower)).take(MOST).collect()
    };
    let whole = here.len() == total;
    let how_many = if whole {
        html!(
            "<output id=\"count\" class=\"quiet\" for=\"filter\">{}</output>",
            display::counted(total, "route")
        )
    } else {
        html!("<span class=\"quiet\">{} of {} routes</span>", count(here.len() as u64), count(total as u64))
    };
    let filter = html!(
        "<form class=\"filter\" role=\"search\" method=\"get\" action=\"/routes\"><label class=\"hide\" for=\"filter\">Filter routes</label><input \
         id=\"filter\" name=\"q\" type=\"search\" placeholder=\"Filter by name, host, path, upstream or filter\" value=\"{}\" autocomplete=\"off\" \
         spellcheck=\"false\"{}>{}</form>",
        wanted,
        whole.then(|| html!(" data-filter=\"routes\"")),
        how_many
    );
    let body = html!("{}{}{}", explain(listeners, asked, told), filter, table(&here));
    frame.page(Screen::Routes, "Routes", &Html::default(), &body)
}

/// Whether a word occurs anywhere in the displayed text of a route.
fn found_in(route: &Route, lower: &str) -> bool {
    let is = |text: &str| text.to_lowercase().contains(lower);
    let leads = match &route.target {
        Target::Upstreams(all) => all.iter().any(|(name, _)| is(name)),
        Target::Own(what) => is(what),
    };
    let lists = [&route.hosts, &route.methods, &route.conditions, &route.filters];
    leads || is(&route.name) || is(&route.path) || lists.iter().any(|list| list.iter().any(|text| is(text)))
}

fn table(routes: &[&Route]) -> Html {
    if routes.is_empty() {
        return html!("<p class=\"empty\">No route.</p>");
    }
    let rows = each(routes, |route| row(route));
    html!(
        "<table class=\"stack long\" id=\"routes\"><caption class=\"hide\">Routes</caption><thead><tr><th scope=\"col\">Route<th \
         scope=\"col\">Match<th scope=\"col\">Goes to<th scope=\"col\">Filters<th scope=\"col\" class=\"num\">Req/s<th scope=\"col\" \
         class=\"num\">5xx<th scope=\"col\" class=\"num\">p99<tbody>{}</table><p class=\"empty\" id=\"none\" hidden>No route fits the filter.</p>",
        rows
    )
}

fn row(route: &Route) -> Html {
    let methods =
        (!route.methods.is_empty()).then(|| html!("<b class=\"methods\">{}</b> ", route.methods.join(" ")));
    let hosts =
        (!route.hosts.is_empty()).then(|| html!("<span class=\"host\">{}</span>", route.hosts.join(" ")));
    let conditions = each(&route.conditions, |text| html!(" <small>{}</small>", text));
    let priority = (route.priority != 0).then(|| html!(" <small>priority {}</small>", route.priority));
    let figures = route.figures.map(|figures| {
        let p99 = figures.p99_ms.map(display::ms);
        let class = if figures.failed > 0 { "num is-bad" } else { "num quiet" };
        let rate_class = if figures.rate > 0.0 { "num" } else { "num quiet" };
        html!(
            "<td class=\"{}\" data-label=\"req/s\">{}<td class=\"{}\" data-label=\"5xx\">{}<td class=\"num\" data-label=\"p99\">{}",
            rate_class,
            rate(figures.rate),
            class,
            percent(figures.failed, figures.requests),
            p99
        )
    });
    let figures = figures.unwrap_or_else(|| html!("<td class=\"num\"><td class=\"num\"><td class=\"num\">"));
    html!(
        "<tr><th scope=\"row\"><a class=\"name\" href=\"/routes/{}\" title=\"{}\">{}</a><td data-label=\"match\">{}{}<code \
         class=\"path\">{}</code>{}{}<td data-label=\"to\">{}<td data-label=\"filters\">{}{}",
        part(&route.name),
        route.name,
        route.name,
        methods,
        hosts,
        route.path,
        conditions,
        priority,
        target(&route.target),
        (!route.filters.is_empty()).then(|| html!("<small>{}</small>", route.filters.join(" "))),
        figures
    )
}

pub(crate) fn target(target: &Target) -> Html {
    match target {
        Target::Own(what) => html!("<small>{}</small>", what),
        Target::Upstreams(all) => {
            let alone = all.len() == 1;
            each(all, |(name, share)| {
                let share = (!alone).then(|| html!(" <small>{} %</small>", (share * 10.0).round() / 10.0));
                html!(
                    "<span class=\"share\"><a href=\"/upstreams/{}\">{}</a>{}</span> ",
                    part(name),
                    name,
                    share
                )
            })
        }
    }
}

// === explain ===

fn explain(listeners: &[String], asked: &Question, told: Option<&Result<Explanation, String>>) -> Html {
    let method = if asked.method.is_empty() { "GET" } else { &asked.method };
    let option =
        |value: &str, chosen: bool| html!("<option{}>{}</option>", chosen.then(|| html!(" selected")), value);
    let other = (!METHODS.contains(&method)).then(|| option(method, true));
    let methods = each(METHODS, |name| option(name, *name == method));
    let several = (listeners.len() > 1).then(|| {
        let options = each(listeners, |name| option(name, *name == asked.listener));
        html!(
            "<label>Listener <select name=\"listener\"><option value=\"\">the one that the URL reaches</option>{}</select></label>",
            options
        )
    });
    let answer = told.map(|told| match told {
        Ok(explanation) => explained(explanation),
        Err(why) => html!("<p class=\"notice bad\" role=\"alert\">{}</p>", why),
    });
    html!(
        "<section class=\"explain\"><h2>Which route matches a request?</h2><form method=\"get\" action=\"/routes\"><label class=\"hide\" \
         for=\"method\">Method</label><select id=\"method\" name=\"method\">{}{}</select><label class=\"hide\" for=\"url\">URL or path</label><input \
         id=\"url\" name=\"url\" value=\"{}\" placeholder=\"http://api.example.com/orders/7\" autocomplete=\"off\" spellcheck=\"false\" \
         autocapitalize=\"off\" required><button class=\"main\">Explain</button><details{}><summary>Header fields{}</summary><label class=\"hide\" \
         for=\"fields\">Header fields, one a line</label><textarea id=\"fields\" name=\"fields\" rows=\"3\" spellcheck=\"false\" \
         placeholder=\"x-env: blue\">\n{}</textarea>{}</details></form>{}</section>",
        other,
        methods,
        asked.url,
        (!asked.fields.is_empty() || !asked.listener.is_empty()).then(|| html!(" open")),
        several.as_ref().map(|_| ", listener"),
        asked.fields,
        several,
        answer
    )
}

fn explained(e: &Explanation) -> Html {
    let asked = &e.request;
    let query = asked.query.as_ref().map(|query| html!("?{}", query));
    let note = asked.note.as_ref().map(|note| html!("<p class=\"quiet\">{}</p>", note));
    let chosen = asked.listener_reason.as_ref().map(|why| html!(" ({})", why));
    let request = html!(
        "<p class=\"quiet\">{} <code>{}{}{}</code> on listener <code>{}</code>{}</p>{}",
        asked.method,
        asked.host,
        asked.path,
        query,
        asked.listener,
        chosen,
        note
    );
    let winner = match &e.decision.winner {
        None => html!(
            "<p class=\"verdict bad\"><i aria-hidden=\"true\"></i><span>No route matches it: 404 <code>no_route</code>.</span></p>"
        ),
        Some(winner) => {
            let captures = each(&winner.captures, |captured| {
                html!(" <small><code>{{{}}}</code> is <code>{}</code></small>", captured.name, captured.value)
            });
            html!(
                "<p class=\"verdict well\"><i aria-hidden=\"true\"></i><span><a href=\"/config/routes/{}\">{}</a> takes it, by <code>{}{}</code>{}.{}</span></p>",
                part(&winner.route),
                winner.route,
                if winner.host == "*" { "" } else { &winner.host },
                winner.path,
                if winner.ignores_case { " in any case" } else { "" },
                captures
            )
        }
    };
    let filters =
        (!e.filters.is_empty()).then(|| html!("<h3>Filters, in this order</h3>{}", steps(&e.filters)));
    let leads = e.target.as_ref().map(|target| html!("<h3>Then</h3>{}", yaml::shown(&brief(&json!(target)))));
    let near = e.decision.near_misses.len().min(NEAR);
    let lost = others(e.decision.lost.iter().map(|lost| (&*lost.route, &*lost.why)));
    let lost = (!lost.is_empty()).then(|| html!("<h3>Also matched, but lost</h3>{}", lost));
    let near_misses = e.decision.near_misses.iter().take(near).map(|miss| (&*miss.route, &*miss.why));
    let near_misses = (near > 0).then(|| html!("<h3>Near misses</h3>{}", others(near_misses)));
    let omitted = e.decision.omitted + e.decision.near_misses.len() - near;
    let omitted = (omitted > 0).then(|| {
        html!("<p class=\"quiet\">… and {} that do not match.</p>", display::counted(omitted, "route"))
    });
    html!(
        "<div class=\"answer\" aria-live=\"polite\">{}{}<div class=\"columns\"><div>{}{}</div><div>{}{}{}</div></div></div>",
        winner,
        request,
        filters,
        leads,
        lost,
        near_misses,
        omitted
    )
}

/// Filters in the order they run, each with its settings and the lists it chooses from.
fn steps(filters: &[FilterShown]) -> Html {
    let items = each(filters, |filter| {
        let lists = each(&filter.lists, |list| {
            let runs = match (list.runs, list.share) {
                (_, Some(share)) => format!("{share}% of the requests"),
                (Some(true), None) => "runs".to_owned(),
                (Some(false), None) => "does not run for this request".to_owned(),
                (None, None) => "depends on the caller".to_owned(),
            };
            html!("<p><code>{}</code> <small>{}</small></p>{}", list.key, runs, steps(&list.filters))
        });
        let told = filter.tells.iter().cloned().chain(filter.expressions.iter().map(ToString::to_string));
        let told = each(told, |told| html!("<p><small>{}</small></p>", told));
        html!(
            "<li><details><summary><code>{}</code></summary>{}</details>{}{}",
            filter.name,
            yaml::shown(&filter.settings),
            told,
            lists
        )
    });
    html!("<ol class=\"steps\">{}</ol>", items)
}

/// Routes that a request did not take, each with the reason.
pub(crate) fn others<'a>(routes: impl Iterator<Item = (&'a str, &'a str)>) -> Html {
    let items = each(routes, |(route, why)| {
        html!("<li><a href=\"/config/routes/{}\">{}</a> <span>{}</span>", part(route), route, ticked(why))
    });
    if items.is_empty() { items } else { html!("<ul class=\"others\">{}</ul>", items) }
}

/// The route's target, without empty members.
fn brief(target: &Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    match target {
        Value::Object(map) => {
            let all = map.iter().map(|(key, value)| (key.clone(), brief(value)));
            Value::Object(all.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(list) => Value::Array(list.iter().map(brief).collect()),
        other => other.clone(),
    }
}
