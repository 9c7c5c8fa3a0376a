//! Earlier revisions of the config, the differences between two of them, and the way back.

use crate::display::moment;
use crate::frame::{Frame, Screen};
use crate::html::{Html, each, part};
use crate::view::{Differences, HistoryStatus, RevisionStatus, Role};
use crate::yaml;

/// Most names of changed entries per line of the list.
const NAMED: usize = 6;

/// The list.
pub fn list(frame: &Frame<'_>, revisions: Option<&HistoryStatus>) -> String {
    let body = match revisions {
        None => html!(
            "<p class=\"empty\">There is no history: set <code>admin.state</code> to keep every config that runs, with rollback.</p>"
        ),
        Some(revisions) => {
            let rows = each(&revisions.revisions, |revision| row(frame, revision, revisions.running));
            html!("<ol class=\"history\">{}</ol>", rows)
        }
    };
    frame.page(Screen::History, "History", &Html::default(), &body)
}

fn row(frame: &Frame<'_>, revision: &RevisionStatus, running: Option<u64>) -> Html {
    let runs = Some(revision.number) == running;
    let badge = runs.then(|| html!(" <b class=\"pill\">runs</b>"));
    let message = (!revision.message.is_empty()).then(|| html!("<q>{}</q>", revision.message));
    let verdict = (!matches!(revision.verdict.as_str(), "" | "accepted"))
        .then(|| html!("<p class=\"was\">{}</p>", revision.verdict));
    let things = each(revision.changed.iter().take(NAMED), |thing| html!("<code>{}</code> ", thing));
    let more = revision.changed.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| html!("<small>and {} more</small>", more));
    let changes = revision.parent.map(|parent| {
        html!("<a class=\"button\" href=\"/history/{}..{}\">Changes</a>", parent, revision.number)
    });
    let back = (!runs && frame.may(Role::Write))
        .then(|| html!("<a class=\"button\" href=\"/history/running..{}\">Go back…</a>", revision.number));
    html!(
        "<li{}><div class=\"number\">{}{}</div><div class=\"about\"><p><b>{}</b> <small>{}</small> {} {}</p><p>{}{}</p>{}</div><div class=\"row\">{}{}</div>",
        runs.then(|| html!(" class=\"runs\"")),
        revision.number,
        badge,
        revision.author,
        revision.source.name(),
        moment(&revision.time),
        message,
        things,
        more,
        verdict,
        changes,
        back
    )
}

/// The differences between two revisions. If the first is running and the second is a revision, the page offers
/// the rollback.
pub fn compare(frame: &Frame<'_>, from: &str, to: &str, told: &Result<Differences, String>) -> String {
    let said = |which: &str| match which {
        "running" => "what runs".to_owned(),
        "disk" => "the files".to_owned(),
        number => format!("revision {number}"),
    };
    let goes_back = from == "running" && to.parse::<u64>().is_ok();
    let title = if goes_back {
        format!("Go back to revision {to}")
    } else {
        format!("From {} to {}", said(from), said(to))
    };
    let found = match told {
        Err(why) => html!("<p class=\"notice bad\">{}</p>", why),
        Ok(told) if told.differences.is_empty() => html!("<p class=\"empty\">They say the same.</p>"),
        Ok(told) => yaml::differences(&told.differences, told.more),
    };
    let ready = told.as_ref().is_ok_and(|told| !told.differences.is_empty());
    let form = (goes_back && ready && frame.may(Role::Write)).then(|| {
        html!(
            "<form class=\"card go-back\" data-call=\"POST\" data-url=\"/api/v1/revisions/{}:rollback\" data-then=\"/history\" data-done=\"Revision {} runs again.\"><p>This \
             becomes a new revision. Files that people write stay as they are; where they say something else, the revision runs in their place until they \
             change.</p><label for=\"why\">Why</label><input id=\"why\" name=\"message\" maxlength=\"500\" autocomplete=\"off\" placeholder=\"for the history\"><div \
             class=\"row\"><button class=\"main\">Go back to revision {}</button><a class=\"button\" href=\"/history\">Cancel</a></div></form>",
            part(to),
            to,
            to
        )
    });
    let lead = goes_back.then(|| html!("<p class=\"quiet\">What would change:</p>"));
    let other = (!goes_back).then(|| html!("<a class=\"button\" href=\"/history\">All revisions</a>"));
    frame.page(Screen::History, &title, &html!("{}", other), &html!("{}{}{}", lead, found, form))
}
