//! The endpoints of each upstream: which are in rotation, which are not, since when and why; and the buttons to
//! take one out for a while.

use crate::condition::{Condition, Judged, judged};
use crate::display::{self, count, counted, moment, percent, rate};
use crate::frame::{Frame, LIVE, Screen};
use crate::html::{Html, each, part};
use crate::view::{DiscoveryStatus, EndpointStatus, Role, Seen, Status, UpstreamStatus, UpstreamsQuery};
use std::collections::BTreeMap;

/// How long an endpoint may be taken out, in the API's syntax and in words. The time is always limited.
const TIMES: &[(&str, &str)] = &[
    ("10m", "10 minutes"),
    ("1h", "1 hour"),
    ("4h", "4 hours"),
    ("12h", "12 hours"),
    ("1d", "1 day"),
    ("7d", "7 days"),
];

/// Above this number of upstreams, the page only lists them, and each shows its endpoints on a separate page.
const FEW: usize = 12;

/// The page: the upstreams that match `asked`, worst first. `seen`: their attempts in the last minute.
pub fn upstreams(
    frame: &Frame<'_>,
    status: &Status,
    seen: &BTreeMap<String, Seen>,
    asked: &UpstreamsQuery,
) -> String {
    let may = frame.may(Role::Operate);
    let all = judged(status, seen);
    let wanted: Vec<&Judged<'_>> =
        all.iter().filter(|one| asked.state.is_empty() || one.condition.name() == asked.state).collect();
    let list = if status.upstreams.is_empty() {
        html!("<p class=\"empty\">The config has no upstream.</p>")
    } else if all.len() <= FEW {
        each(&wanted, |one| section(one, may))
    } else {
        groups(&wanted, asked)
    };
    let filter = (all.len() > FEW).then(|| filter(&all, asked));
    let rights =
        (!may).then(|| html!("<p class=\"quiet\">To take an endpoint out you need the role operate.</p>"));
    let dialog = may.then(dialog);
    let none = html!("<p class=\"empty\" id=\"none\" hidden>No upstream matches the filter.</p>");
    let body = html!(
        "{}<div id=\"upstreams\" data-live=\"{}\">{}</div>{}{}{}",
        filter,
        LIVE,
        list,
        none,
        rights,
        dialog
    );
    frame.page(Screen::Upstreams, "Upstreams", &Html::default(), &body)
}

/// The conditions with the number of upstreams in each, and a search field.
fn filter(all: &[Judged<'_>], asked: &UpstreamsQuery) -> Html {
    let of = |state: &str| all.iter().filter(|one| state.is_empty() || one.condition.name() == state).count();
    let states = [("", "All"), ("failing", "Failing"), ("degraded", "Degraded"), ("well", "Well")];
    let tabs = each(states, |(state, word)| {
        let here = (state == asked.state).then(|| html!(" aria-current=\"true\""));
        html!(
            "<a href=\"/upstreams?state={}&amp;q={}\"{}>{} <small>{}</small></a>",
            state,
            part(&asked.wanted),
            here,
            word,
            count(of(state) as u64)
        )
    });
    html!(
        "<nav class=\"tabs\" aria-label=\"Conditions\">{}</nav><form class=\"filter\" role=\"search\" method=\"get\" action=\"/upstreams\"><label \
         class=\"hide\" for=\"filter\">Filter upstreams</label><input type=\"hidden\" name=\"state\" value=\"{}\"><input id=\"filter\" name=\"q\" type=\"search\" \
         placeholder=\"Filter by name, endpoint or cause\" value=\"{}\" autocomplete=\"off\" spellcheck=\"false\" data-filter=\"upstreams\"><output \
         id=\"count\" class=\"quiet\" for=\"filter\">{}</output></form>",
        tabs,
        asked.state,
        asked.wanted,
        counted(of(&asked.state), "upstream")
    )
}

/// A table for each condition, worst first. Healthy upstreams are collapsed unless asked for.
fn groups(wanted: &[&Judged<'_>], asked: &UpstreamsQuery) -> Html {
    each(Condition::ALL, |condition| {
        let of: Vec<&&Judged<'_>> = wanted.iter().filter(|one| one.condition == condition).collect();
        if of.is_empty() {
            return Html::default();
        }
        let open = condition != Condition::Well || !asked.state.is_empty() || of.len() == wanted.len();
        let rows = each(&of, |one| summary_row(one));
        html!(
            "<details class=\"group\" id=\"is-{}\"{}><summary><h2 class=\"state {}\"><i aria-hidden=\"true\"></i>{} <small>{}</small></h2></summary><table \
             class=\"stack long listed\"><caption class=\"hide\">Upstreams that are {}</caption><thead><tr><th scope=\"col\">Upstream<th \
             scope=\"col\">State<th scope=\"col\" class=\"num\">Endpoints<th scope=\"col\" class=\"num\">Req/s<th scope=\"col\" class=\"num\">Failed<th \
             scope=\"col\" class=\"num\">First byte<th scope=\"col\">Last error<tbody>{}</table></details>",
            condition.name(),
            open.then(|| html!(" open")),
            condition.class(),
            condition.name(),
            count(of.len() as u64),
            condition.name(),
            rows
        )
    })
}

fn summary_row(one: &Judged<'_>) -> Html {
    let endpoints = &one.upstream.endpoints;
    let well = endpoints.iter().filter(|endpoint| endpoint.healthy).count();
    let latest = endpoints.iter().filter_map(|endpoint| endpoint.last_error.as_ref());
    let error = latest.max_by(|a, b| a.at.cmp(&b.at));
    let error = error.map(|error| html!("<code>{}</code> {}", error.cause, moment(&error.at)));
    let bad = if one.seen.bad() > 0 { "num is-bad" } else { "num quiet" };
    // The search covers addresses too.
    let addresses = each(endpoints, |endpoint| html!("{} ", endpoint.address));
    html!(
        "<tr><th scope=\"row\"><a class=\"name\" href=\"/upstreams/{}\" title=\"{}\">{}</a><span hidden>{}</span><td \
         data-label=\"state\"><span class=\"state {}\"><i aria-hidden=\"true\"></i>{}</span><td class=\"num\" data-label=\"endpoints\">{} of {}<td class=\"num\" \
         data-label=\"req/s\">{}<td class=\"{}\" data-label=\"failed\">{}<td class=\"num\" data-label=\"first byte\">{}<td data-label=\"last error\">{}",
        part(one.name),
        one.name,
        one.name,
        addresses,
        one.condition.class(),
        one.why,
        well,
        endpoints.len(),
        rate(one.seen.rate),
        bad,
        percent(one.seen.bad(), one.seen.attempts),
        one.seen.first_byte_ms.map(display::ms),
        error
    )
}

fn section(one: &Judged<'_>, may: bool) -> Html {
    let name = one.name;
    html!(
        "<section id=\"{}\"><h2><a href=\"/upstreams/{}\">{}</a> <small class=\"state {}\"><i aria-hidden=\"true\"></i>{}</small></h2>{}</section>",
        part(name),
        part(name),
        name,
        one.condition.class(),
        one.why,
        endpoints(name, one.upstream, may)
    )
}

/// The endpoints of an upstream, and their registry.
pub(crate) fn endpoints(name: &str, upstream: &UpstreamStatus, may: bool) -> Html {
    let panic = upstream.panic.then(|| {
        html!("<p class=\"notice bad\"><b>Too few endpoints are in rotation</b>, so failing endpoints get requests too.</p>")
    });
    // First those out of rotation, then those that fail most.
    let mut sorted: Vec<&EndpointStatus> = upstream.endpoints.iter().collect();
    sorted.sort_by_key(|endpoint| (endpoint.healthy, std::cmp::Reverse(endpoint.failed + endpoint.errors)));
    let rows = each(sorted, |endpoint| row(name, endpoint, may));
    let table = if upstream.endpoints.is_empty() {
        html!("<p class=\"empty\">No endpoint is known.</p>")
    } else {
        html!(
            "<table class=\"stack endpoints\"><caption class=\"hide\">Endpoints of {}</caption><thead><tr><th scope=\"col\">Endpoint<th scope=\"col\">State<th \
             scope=\"col\" class=\"num\">Answered<th scope=\"col\" class=\"num\">5xx<th scope=\"col\" class=\"num\">Failed<th scope=\"col\" class=\"num\">First byte<th \
             scope=\"col\">Last error<th scope=\"col\" class=\"num\">Weight<th scope=\"col\"><span class=\"hide\">Actions</span><tbody>{}</table>",
            name,
            rows
        )
    };
    html!("{}{}{}{}", panic, upstream.discovery.as_ref().map(registry), table, names(upstream))
}

/// The registry that lists the endpoints, and since when it is unreachable.
fn registry(discovery: &DiscoveryStatus) -> Html {
    let place = html!("{} <code>{}</code>", discovery.registry, discovery.place);
    let listed = counted(discovery.listed, "instance");
    let error = discovery.error.as_ref().map(|error| html!(" <small>{}</small>", error));
    let said = match discovery.state {
        "following" => {
            let age = discovery.age_seconds.map(|age| format!(", asked last {} ago", display::span(age)));
            let class = if discovery.error.is_some() { "notice warn" } else { "quiet" };
            html!("<p class=\"{}\">Listed by {}: {}{}.{}</p>", class, place, listed, age, error)
        }
        "away" => {
            let since = discovery.away_since.as_ref().map(|since| html!(" since {}", moment(since)));
            let good = match &discovery.last_good {
                Some(good) => html!("The last good list serves: {}, heard {}.", listed, moment(good)),
                None => html!("It has not listed any endpoints yet."),
            };
            html!("<p class=\"notice warn\"><b>{} is away</b>{}. {}{}</p>", place, since, good, error)
        }
        _ => html!("<p class=\"notice warn\">{} has not answered yet.{}</p>", place, error),
    };
    let left_out = each(&discovery.left_out, |one| html!("<li><code>{}</code> {}", one.id, one.why));
    let left_out = (discovery.unusable > 0).then(|| {
        html!(
            "<p class=\"quiet\">{} left out:</p><ul class=\"names\">{}</ul>",
            counted(discovery.unusable, "instance"),
            left_out
        )
    });
    html!("{}{}", said, left_out)
}

fn row(upstream: &str, endpoint: &EndpointStatus, may: bool) -> Html {
    let by_hand = endpoint.reasons.iter().any(|reason| matches!(reason.reason, "draining" | "out"));
    let first_byte = endpoint.first_byte_ms.map(display::ms);
    let error =
        endpoint.last_error.as_ref().map(|error| html!("<code>{}</code> {}", error.cause, moment(&error.at)));
    let place = each(endpoint.zone.iter(), |zone| html!(" <small>zone {}</small>", zone));
    let spare = (endpoint.priority > 0).then(|| html!(" <small>priority {}</small>", endpoint.priority));
    let all = endpoint.answered.saturating_add(endpoint.failed);
    let failed = (endpoint.failed > 0).then(|| html!(" <small>{}</small>", percent(endpoint.failed, all)));
    let class = if endpoint.failed > 0 { "num is-bad" } else { "num quiet" };
    let errors_class = if endpoint.errors > 0 { "num is-bad" } else { "num quiet" };
    let actions = may.then(|| actions(upstream, endpoint, by_hand));
    html!(
        "<tr><th scope=\"row\"><code>{}</code>{}{}<td data-label=\"state\">{}<td class=\"num\" data-label=\"answered\">{}<td class=\"{}\" \
         data-label=\"5xx\">{}<td class=\"{}\" data-label=\"failed\">{}{}<td class=\"num\" data-label=\"first byte\">{}<td data-label=\"last error\">{}<td class=\"num\" data-label=\"weight\">{}<td \
         class=\"end\">{}",
        endpoint.address,
        place,
        spare,
        state(endpoint),
        count(endpoint.answered),
        errors_class,
        count(endpoint.errors),
        class,
        count(endpoint.failed),
        failed,
        first_byte,
        error,
        endpoint.weight,
        actions
    )
}

fn state(endpoint: &EndpointStatus) -> Html {
    if endpoint.healthy {
        let bad = endpoint.failed.saturating_add(endpoint.errors);
        let all = endpoint.failed.saturating_add(endpoint.answered);
        // In rotation but failing: nothing takes it out unless `health.outlier` is set.
        if bad >= 2 && bad * 2 >= all {
            return html!(
                "<span class=\"state bad\"><i aria-hidden=\"true\"></i>in rotation, fails</span><small>{} of {} since the start</small>",
                percent(bad, all),
                counted(usize::try_from(all).unwrap_or(usize::MAX), "attempt")
            );
        }
        return html!("<span class=\"state well\"><i aria-hidden=\"true\"></i>in rotation</span>");
    }
    let class = if matches!(endpoint.state, "draining" | "out" | "to_be_tried") { "warn" } else { "bad" };
    let why = each(&endpoint.reasons, |reason| {
        let by_hand = reason.cause == "by_hand";
        let until = reason.until.as_ref().map(|until| match by_hand {
            true => html!(", ends {}", moment(until)),
            false => html!(", {}", tried_again(until)),
        });
        let detail = reason.detail.as_ref().map(|detail| html!(": {}", detail));
        let what = (reason.reason != endpoint.state).then(|| words_of(reason.reason));
        let cause = (!by_hand).then(|| html!(" <code>{}</code>", reason.cause));
        html!("<small>{}{}{} since {}{}</small>", what, cause, detail, moment(&reason.since), until)
    });
    html!(
        "<span class=\"state {}\"><i aria-hidden=\"true\"></i>{}</span>{}",
        class,
        words_of(endpoint.state),
        why
    )
}

/// When an endpoint is tried again. The script rewrites the text once that time has passed.
fn tried_again(at: &str) -> Html {
    html!("<time data-due datetime=\"{}\">tried again at {}</time>", at, display::clock(at))
}

/// A reason, in words for people.
fn words_of(reason: &str) -> String {
    match reason {
        "probe_failed" => "probe failed".to_owned(),
        "out" => "taken out".to_owned(),
        other => other.replace('_', " "),
    }
}

fn actions(upstream: &str, endpoint: &EndpointStatus, by_hand: bool) -> Html {
    let url = format!("/api/v1/endpoints/{}/{}:", part(upstream), part(&endpoint.address));
    if by_hand {
        return html!(
            "<form data-call=\"POST\" data-url=\"{}in\" data-done=\"{} is back in.\"><button>Put back in</button></form>",
            url,
            endpoint.address
        );
    }
    html!(
        "<button type=\"button\" data-open=\"take-out\" data-fill-what=\"{} of {}\" data-fill-url=\"{}{{verb}}?for={{for}}\">Take out…</button>",
        endpoint.address,
        upstream,
        url
    )
}

pub(crate) fn dialog() -> Html {
    let times = each(TIMES, |(value, words)| {
        html!(
            "<option value=\"{}\"{}>{}</option>",
            value,
            (*value == "1h").then(|| html!(" selected")),
            words
        )
    });
    html!(
        "<dialog id=\"take-out\" aria-labelledby=\"take-out-title\"><h2 id=\"take-out-title\">Take out <span data-filled=\"what\"></span></h2><form \
         data-call=\"POST\" data-url=\"\" data-filled-url=\"url\" data-done=\"Done. It ends automatically.\"><fieldset><legend>How</legend><label class=\"check\"><input \
         type=\"radio\" name=\"verb\" value=\"drain\" checked> <span><b>Drain.</b> No new requests; sticky sessions stay.</span></label><label \
         class=\"check\"><input type=\"radio\" name=\"verb\" value=\"out\"> <span><b>Out.</b> No requests at all.</span></label></fieldset><label>For \
         <select name=\"for\">{}</select></label><p class=\"quiet\">It survives reloads, ends automatically, and is lost in a restart.</p><div \
         class=\"row\"><button class=\"main\">Take out</button><button type=\"button\" data-close>Cancel</button></div></form></dialog>",
        times
    )
}

/// The addresses that the DNS names among the endpoints resolved to.
fn names(upstream: &UpstreamStatus) -> Option<Html> {
    let rows = each(&upstream.names, |name| {
        let age = name.age_seconds.map_or_else(
            || "never resolved".to_owned(),
            |age| format!("resolved {} ago", display::span(age)),
        );
        let error = name.error.as_ref().map(|error| html!(" <span class=\"is-bad\">{}</span>", error));
        html!(
            "<li><code>{}</code> → <code>{}</code> <small>{}</small>{}",
            name.name,
            name.addresses.join(" "),
            age,
            error
        )
    });
    (!rows.is_empty()).then(|| html!("<ul class=\"names\">{}</ul>", rows))
}
