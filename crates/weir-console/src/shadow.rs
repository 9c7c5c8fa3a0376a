//! The shadow: a candidate config judged on live requests, and its promotion.

use crate::display::{count, moment, span};
use crate::frame::{Frame, LIVE, Screen};
use crate::html::{Html, each};
use crate::view::{Role, ShadowExample, ShadowReport};

/// For how long a promoted candidate is watched.
const WATCH: &str = "5m";

/// The page. A promotion needs a file that the API writes, and a trial needs a history.
pub fn shadow(frame: &Frame<'_>, report: Option<&ShadowReport>, promotes: bool) -> String {
    let told = match report {
        None => html!(
            "<p class=\"empty\">No shadow runs. <code>weir shadow -c candidate.yaml</code> has this gateway judge another config on live \
             requests, after their answers: which decisions would change, and how many.</p>"
        ),
        Some(report) => html!(
            "{}{}{}{}{}",
            verdict(report),
            counts(report),
            changes(report),
            misfits(report),
            not_shown(report)
        ),
    };
    let actions = report.filter(|_| frame.may(Role::Write)).map(|report| actions(report, promotes));
    let body = html!("<div id=\"shadow\" data-live=\"{}\">{}{}</div>", LIVE, told, actions);
    frame.page(Screen::Shadow, "Shadow", &Html::default(), &body)
}

fn verdict(report: &ShadowReport) -> Html {
    let class = match (report.state, report.verdict) {
        (_, "over" | "unbelievable") => "bad",
        (_, "inconclusive") => "warn",
        _ => "trial",
    };
    let ended = report.ended.as_ref().map(|why| html!(" It ended: {}.", why));
    html!("<p class=\"notice {}\" id=\"verdict\"><b>{}</b>{}</p>", class, report.sentence, ended)
}

fn counts(report: &ShadowReport) -> Html {
    html!(
        "<section><h2>Requests</h2><dl class=\"facts\"><dt>Started by<dd>{} {}<dt>Ran<dd>{} of {}<dt>Sampled<dd>{} of {} seen<dt>Judged<dd>{}\
         <dt>Changed<dd>{}<dt>Dropped<dd>{} <small>over 1 % of a core</small><dt>Not judged<dd>{}<dt>Unexplained<dd>{}</dl></section>",
        report.holder,
        moment(&report.since),
        span(report.ran_seconds as u64),
        span(report.for_seconds as u64),
        count(report.sampled),
        count(report.seen),
        count(report.judged),
        count(report.changed),
        count(report.dropped),
        count(report.not_judged),
        count(report.unexplained)
    )
}

fn changes(report: &ShadowReport) -> Option<Html> {
    let rows = each(&report.changes, |row| {
        let estimate = row.estimate.then(|| {
            html!(" <small>estimate: the filter was not run, only its settings are compared</small>")
        });
        html!(
            "<tr><td data-label=\"requests\">{} <small>{}</small><td data-label=\"now\">{}<td data-label=\"with the candidate\">{}<td \
             data-label=\"setting\"><code>{}</code>{}<td data-label=\"examples\">{}",
            count(row.count),
            share(row.share),
            row.before,
            row.after,
            row.key,
            estimate,
            examples(&row.examples)
        )
    });
    let more = (report.more > 0)
        .then(|| html!("<p class=\"quiet\">… and {} requests in further ways.</p>", count(report.more)));
    (!report.changes.is_empty()).then(|| {
        html!(
            "<section><h2>Changed decisions</h2><table class=\"stack\"><caption class=\"hide\">Changed decisions</caption><thead><tr><th \
             scope=\"col\">Requests<th scope=\"col\">Now<th scope=\"col\">With the candidate<th scope=\"col\">First setting that \
             differs<th scope=\"col\">Examples<tbody>{}</table>{}</section>",
            rows,
            more
        )
    })
}

fn misfits(report: &ShadowReport) -> Option<Html> {
    let rows = each(&report.misfits, |row| {
        html!(
            "<tr><td data-label=\"requests\">{}<td data-label=\"what\">{}<td data-label=\"judged\">{}<td data-label=\"examples\">{}",
            count(row.count),
            row.why,
            row.decision,
            examples(&row.examples)
        )
    });
    (!report.misfits.is_empty()).then(|| {
        html!(
            "<section><h2>Unexplained</h2><p class=\"quiet\">These requests ended differently than the judge computed for the running config. They \
             are not among the judged.</p><table class=\"stack\"><caption class=\"hide\">Unexplained requests</caption><thead><tr><th \
             scope=\"col\">Requests<th scope=\"col\">What differs<th scope=\"col\">Judged<th scope=\"col\">Examples<tbody>{}</table></section>",
            rows
        )
    })
}

fn examples(all: &[ShadowExample]) -> Html {
    let lines = each(all, |one| {
        let query = (!one.query.is_empty()).then(|| html!(" ?{}", one.query.join("&")));
        html!(
            "<li>{} <code>{} {}{}</code>{} <small>{}</small> <small>{}</small>",
            one.status,
            one.method,
            one.host,
            one.path,
            query,
            one.fields.join(", "),
            one.id
        )
    });
    html!("<ul>{}</ul>", lines)
}

fn not_shown(report: &ShadowReport) -> Option<Html> {
    let settings = each(&report.not_shown, |key| html!("<code>{}</code> ", key));
    (!report.not_shown.is_empty()).then(|| {
        html!(
            "<section><h2>Not shown by requests</h2><p>These settings differ too: {}</p></section>",
            settings
        )
    })
}

/// The buttons.
fn actions(report: &ShadowReport, promotes: bool) -> Html {
    let end = (report.state == "running").then(|| {
        html!(
            "<form data-call=\"POST\" data-url=\"/api/v1/shadow/{}:end\" data-done=\"The shadow has ended.\"><button>End the \
             shadow</button></form>",
            report.id
        )
    });
    let promote = match promotes {
        true => html!(
            "<form data-call=\"POST\" data-url=\"/api/v1/shadow/{}:promote?watch={}\" data-done=\"The candidate runs, on trial.\"><button \
             class=\"main\">Promote: run the candidate, watched for {}</button></form>",
            report.id,
            WATCH,
            WATCH
        ),
        false => html!(
            "<p class=\"quiet\">A promotion on trial needs <code>admin.writes</code> and <code>admin.state</code>.</p>"
        ),
    };
    html!("<div class=\"row\">{}{}</div>", end, promote)
}

fn share(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}
