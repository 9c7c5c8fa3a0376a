//! The endpoints of each upstream: which are in rotation, since when they are not, and why; and the way to take one out for a while.

use crate::frame::{Frame, LIVE, Screen};
use crate::html::{Html, each, part};
use crate::view::{Discovery, Endpoint, Role, Status, Upstream};
use crate::words::{self, count, counted, moment, percent};

/// For how long an endpoint may be taken out: as the API has it, and in words. It always ends.
const TIMES: &[(&str, &str)] = &[
    ("10m", "10 minutes"),
    ("1h", "1 hour"),
    ("4h", "4 hours"),
    ("12h", "12 hours"),
    ("1d", "1 day"),
    ("7d", "7 days"),
];

/// The page.
pub fn upstreams(frame: &Frame<'_>, status: &Status) -> String {
    let may = frame.may(Role::Operate);
    let list = each(&status.upstreams, |(name, upstream)| section(name, upstream, may));
    let list = if status.upstreams.is_empty() {
        html!("<p class=\"empty\">The config has no upstream.</p>")
    } else {
        list
    };
    let rights =
        (!may).then(|| html!("<p class=\"quiet\">To take an endpoint out you need the role operate.</p>"));
    let dialog = may.then(dialog);
    let body = html!("<div id=\"upstreams\" data-live=\"{}\">{}</div>{}{}", LIVE, list, rights, dialog);
    frame.page(Screen::Upstreams, "Upstreams", &Html::default(), &body)
}

fn section(name: &str, upstream: &Upstream, may: bool) -> Html {
    let well = upstream.endpoints.iter().filter(|endpoint| endpoint.healthy).count();
    let all = upstream.endpoints.len();
    let class = match well {
        0 => "is-bad",
        _ if well < all => "is-warn",
        _ => "quiet",
    };
    let panic = upstream.panic.then(|| {
        html!("<p class=\"notice bad\"><b>Too few endpoints are in rotation</b>, so those that are unwell get requests too.</p>")
    });
    let rows = each(&upstream.endpoints, |endpoint| row(name, endpoint, may));
    let table = if upstream.endpoints.is_empty() {
        html!("<p class=\"empty\">No endpoint is known.</p>")
    } else {
        html!(
            "<table class=\"stack endpoints\"><caption class=\"hide\">Endpoints of {}</caption><thead><tr><th scope=\"col\">Endpoint<th scope=\"col\">State<th \
             scope=\"col\" class=\"num\">Answered<th scope=\"col\" class=\"num\">Failed<th scope=\"col\" class=\"num\">First byte<th \
             scope=\"col\">Last error<th scope=\"col\" class=\"num\">Weight<th scope=\"col\"><span class=\"hide\">Actions</span><tbody>{}</table>",
            name,
            rows
        )
    };
    html!(
        "<section id=\"{}\"><h2><a href=\"/config/upstreams/{}\">{}</a> <small class=\"{}\">{} of {} in rotation</small></h2>{}{}{}{}</section>",
        part(name),
        part(name),
        name,
        class,
        well,
        counted(all, "endpoint"),
        panic,
        upstream.discovery.as_ref().map(registry),
        table,
        names(upstream)
    )
}

/// What lists the endpoints, and since when it does not.
fn registry(discovery: &Discovery) -> Html {
    let place = html!("{} <code>{}</code>", discovery.registry, discovery.place);
    let listed = counted(usize::try_from(discovery.listed).unwrap_or(usize::MAX), "instance");
    let error = discovery.error.as_ref().map(|error| html!(" <small>{}</small>", error));
    let said = match discovery.state.as_str() {
        "following" => {
            let age = discovery.age_seconds.map(|age| format!(", asked last {} ago", words::span(age)));
            let class = if discovery.error.is_some() { "notice warn" } else { "quiet" };
            html!("<p class=\"{}\">Listed by {}: {}{}.{}</p>", class, place, listed, age, error)
        }
        "away" => {
            let since = discovery.away_since.as_ref().map(|since| html!(" since {}", moment(since)));
            let good = match &discovery.last_good {
                Some(good) => html!("The last good list serves: {}, heard {}.", listed, moment(good)),
                None => html!("It has told of nobody yet."),
            };
            html!("<p class=\"notice warn\"><b>{} is away</b>{}. {}{}</p>", place, since, good, error)
        }
        _ => html!("<p class=\"notice warn\">{} has not answered yet.{}</p>", place, error),
    };
    let left_out = each(&discovery.left_out, |one| html!("<li><code>{}</code> {}", one.id, one.why));
    let left_out = (discovery.unusable > 0).then(|| {
        html!(
            "<p class=\"quiet\">{} left out:</p><ul class=\"names\">{}</ul>",
            counted(usize::try_from(discovery.unusable).unwrap_or(usize::MAX), "instance"),
            left_out
        )
    });
    html!("{}{}", said, left_out)
}

fn row(upstream: &str, endpoint: &Endpoint, may: bool) -> Html {
    let by_hand = endpoint.reasons.iter().any(|reason| matches!(reason.reason.as_str(), "draining" | "out"));
    let first_byte = endpoint.first_byte_ms.map(words::ms);
    let error =
        endpoint.last_error.as_ref().map(|error| html!("<code>{}</code> {}", error.cause, moment(&error.at)));
    let place = each(endpoint.zone.iter(), |zone| html!(" <small>zone {}</small>", zone));
    let spare = (endpoint.priority > 0).then(|| html!(" <small>priority {}</small>", endpoint.priority));
    let all = endpoint.answered.saturating_add(endpoint.failed);
    let failed = (endpoint.failed > 0).then(|| html!(" <small>{}</small>", percent(endpoint.failed, all)));
    let class = if endpoint.failed > 0 { "num is-bad" } else { "num quiet" };
    let actions = may.then(|| actions(upstream, endpoint, by_hand));
    html!(
        "<tr><th scope=\"row\"><code>{}</code>{}{}<td data-label=\"state\">{}<td class=\"num\" data-label=\"answered\">{}<td class=\"{}\" \
         data-label=\"failed\">{}{}<td class=\"num\" data-label=\"first byte\">{}<td data-label=\"last error\">{}<td class=\"num\" data-label=\"weight\">{}<td \
         class=\"end\">{}",
        endpoint.address,
        place,
        spare,
        state(endpoint),
        count(endpoint.answered),
        class,
        count(endpoint.failed),
        failed,
        first_byte,
        error,
        endpoint.weight,
        actions
    )
}

fn state(endpoint: &Endpoint) -> Html {
    if endpoint.healthy {
        return html!("<span class=\"state well\"><i aria-hidden=\"true\"></i>in rotation</span>");
    }
    let class =
        if matches!(endpoint.state.as_str(), "draining" | "out" | "to_be_tried") { "warn" } else { "bad" };
    let why = each(&endpoint.reasons, |reason| {
        let by_hand = reason.cause == "by_hand";
        let ends = if by_hand { "ends" } else { "tried again" };
        let until = reason.until.as_ref().map(|until| html!(", {} {}", ends, moment(until)));
        let detail = reason.detail.as_ref().map(|detail| html!(": {}", detail));
        let what = (reason.reason != endpoint.state).then(|| words_of(&reason.reason));
        let cause = (!by_hand).then(|| html!(" <code>{}</code>", reason.cause));
        html!("<small>{}{}{} since {}{}</small>", what, cause, detail, moment(&reason.since), until)
    });
    html!(
        "<span class=\"state {}\"><i aria-hidden=\"true\"></i>{}</span>{}",
        class,
        words_of(&endpoint.state),
        why
    )
}

/// A reason as people say it.
fn words_of(reason: &str) -> String {
    match reason {
        "probe_failed" => "probe failed".to_owned(),
        "out" => "taken out".to_owned(),
        other => other.replace('_', " "),
    }
}

fn actions(upstream: &str, endpoint: &Endpoint, by_hand: bool) -> Html {
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

fn dialog() -> Html {
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
         data-call=\"POST\" data-url=\"\" data-filled-url=\"url\" data-done=\"Done. It ends by itself.\"><fieldset><legend>How</legend><label class=\"check\"><input \
         type=\"radio\" name=\"verb\" value=\"drain\" checked> <span><b>Drain.</b> No new requests; sticky sessions stay.</span></label><label \
         class=\"check\"><input type=\"radio\" name=\"verb\" value=\"out\"> <span><b>Out.</b> No requests at all.</span></label></fieldset><label>For \
         <select name=\"for\">{}</select></label><p class=\"quiet\">It lasts through reloads, ends by itself, and is gone after a restart.</p><div \
         class=\"row\"><button class=\"main\">Take out</button><button type=\"button\" data-close>Cancel</button></div></form></dialog>",
        times
    )
}

/// What the DNS names among the endpoints resolved to.
fn names(upstream: &Upstream) -> Option<Html> {
    let rows = each(&upstream.names, |name| {
        let age = name
            .age_seconds
            .map_or_else(|| "never resolved".to_owned(), |age| format!("resolved {} ago", words::span(age)));
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
