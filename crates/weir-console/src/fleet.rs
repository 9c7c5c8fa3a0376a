//! The fleet that this gateway belongs to: the rollout, its progress, and the state of each node.

use crate::display::{self, counted, moment};
use crate::frame::{Frame, LIVE, Screen};
use crate::html::{Html, each};
use crate::view::{Fleet, FleetNode, FleetStatus, Rollout};

/// Most nodes on one page.
const MOST: usize = 2000;

/// The page.
pub fn fleet(frame: &Frame<'_>, own: &FleetStatus, fleet: &Fleet) -> String {
    let rollout = match &fleet.rollout {
        Some(rollout) => rolled_out(rollout),
        None => html!(
            "<p class=\"empty\">Nothing was published yet: <code>weir fleet publish</code> does it.</p>"
        ),
    };
    let body = html!(
        "<div id=\"fleet\" data-live=\"{}\">{}{}{}</div>",
        LIVE,
        node(own),
        rollout,
        nodes(fleet, &own.node)
    );
    frame.page(Screen::Fleet, "Fleet", &Html::default(), &body)
}

/// The state of this gateway.
fn node(own: &FleetStatus) -> Html {
    let (class, sentence) = match own.state {
        "following" if own.refused.is_some() => {
            ("bad", "refused the bundle that it should run, and runs the one before")
        }
        "following" => ("well", "follows its source"),
        "waiting" => ("warn", "waits for its first config"),
        _ => ("bad", "cannot reach its source; its config keeps running"),
    };
    let contact = own.contact_seconds_ago.map(|seconds| html!("{} ago", display::span(seconds)));
    let contact = contact.unwrap_or_else(|| html!("never"));
    let labels = each(&own.labels, |(name, value)| html!("<code>{}={}</code> ", name, value));
    let labels = (!labels.is_empty()).then(|| html!("<dt>Labels<dd>{}", labels));
    let since = own.since.as_ref().map(|at| html!(" <small>since {}</small>", moment(at)));
    let kept = if own.cached { "yes" } else { "no: a restart finds the one before it" };
    let coordinates = own.coordinates.then(|| html!("<dt>Role<dd>opens the steps of rollouts"));
    let refused = own.refused.as_ref().map(|bundle| {
        html!(
            "<div class=\"notice bad\"><h2>Bundle <code>{}</code> was refused here</h2><pre class=\"code\" tabindex=\"0\">{}</pre></div>",
            short(bundle),
            own.why
        )
    });
    let trouble = own
        .trouble
        .as_ref()
        .map(|why| html!("<p class=\"notice warn\"><b>It cannot follow:</b> {}</p>", why));
    html!(
        "<section><p class=\"verdict {}\"><i aria-hidden=\"true\"></i><span>This gateway, <b>{}</b>, {}.</span></p>{}{}<dl class=\"facts\"><dt>Source<dd><code>{}</code><dt>Bundle<dd><code>{}</code>{}\
         <dt>On its disk<dd>{}<dt>Last contact<dd>{}{}{}</dl></section>",
        class,
        own.node,
        sentence,
        refused,
        trouble,
        own.source,
        own.bundle.as_deref().map_or("none", short),
        since,
        kept,
        contact,
        labels,
        coordinates
    )
}

fn rolled_out(rollout: &Rollout) -> Html {
    let (class, sentence) = match rollout.state.as_str() {
        "done" => ("well", "covers every node".to_owned()),
        "halted" if rollout.open == 0 => {
            ("bad", "was halted, and every node returns to the previous bundle".to_owned())
        }
        "halted" => ("bad", format!("is halted at step {} of {}", rollout.open, rollout.steps.len())),
        _ => ("warn", format!("is under way: step {} of {} is open", rollout.open, rollout.steps.len())),
    };
    let why = (!rollout.why.is_empty()).then(|| {
        let (first, rest) = rollout.why.split_once('\n').unwrap_or((&rollout.why, ""));
        let rest = (!rest.is_empty()).then(|| html!("<pre class=\"code\" tabindex=\"0\">{}</pre>", rest));
        html!("<div class=\"notice bad\"><p>{}</p>{}</div>", first, rest)
    });
    let message = (!rollout.message.is_empty()).then(|| html!(" <q>{}</q>", rollout.message));
    let author = (!rollout.author.is_empty()).then(|| html!(" by <b>{}</b>", rollout.author));
    let time = (!rollout.time.is_empty()).then(|| html!(" {}", moment(&rollout.time)));
    let before = rollout.from.as_ref().map(|from| html!(" The one before it: <code>{}</code>.", from));
    let steps = each(rollout.steps.iter().enumerate(), |(at, step)| {
        let (class, word) = if at < rollout.open { ("well", "open") } else { ("quiet", "closed") };
        html!(
            "<tr><th scope=\"row\">{}<td data-label=\"who\">{}<td data-label=\"state\"><span class=\"state {}\"><i aria-hidden=\"true\"></i>{}</span><td class=\"num\" \
             data-label=\"run it\">{} of {}",
            at + 1,
            step.who,
            class,
            word,
            step.there,
            step.all
        )
    });
    html!(
        "<section><h2>Rollout <small>generation {}</small></h2><p class=\"verdict {}\"><i aria-hidden=\"true\"></i><span>Bundle <code>{}</code> {}.</span></p>{}<p \
         class=\"quiet\">Published{}{}{}.{}</p><table class=\"stack\"><caption class=\"hide\">Steps of the rollout</caption><thead><tr><th scope=\"col\">Step<th scope=\"col\">Who<th \
         scope=\"col\">State<th scope=\"col\" class=\"num\">Nodes that run it<tbody>{}</table></section>",
        rollout.generation,
        class,
        rollout.to,
        sentence,
        why,
        author,
        time,
        message,
        before,
        steps
    )
}

fn nodes(fleet: &Fleet, own: &str) -> Html {
    if let Some(why) = &fleet.unknown {
        return html!("<h2>Nodes</h2><p class=\"empty\">The nodes are not known now: {}</p>", why);
    }
    let Some(nodes) = &fleet.nodes else {
        return html!("<p class=\"quiet\">A source of this kind knows no nodes: look at each gateway.</p>");
    };
    let rows = each(nodes.iter().take(MOST), |node| row(node, node.name == own));
    let more = nodes.len().saturating_sub(MOST);
    let more = (more > 0).then(|| html!("<p class=\"quiet\">… and {} more.</p>", counted(more, "node")));
    html!(
        "<section><h2>Nodes <small>{}</small></h2><table class=\"stack\"><caption class=\"hide\">Nodes that live</caption><thead><tr><th scope=\"col\">Node<th scope=\"col\">State<th \
         scope=\"col\">Runs<th scope=\"col\">Zone and labels<th scope=\"col\">Version<tbody>{}</table>{}{}</section>",
        counted(nodes.len(), "live node"),
        rows,
        more,
        silent(&fleet.silent)
    )
}

/// The nodes that have gone silent.
fn silent(names: &[String]) -> Option<Html> {
    let first = names.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if names.len() > MOST { " …" } else { "" };
    let count = counted(names.len(), "node");
    (!names.is_empty()).then(|| {
        html!(
            "<p><strong>{} went silent in the last day without leaving:</strong> {}{}</p>",
            count,
            first,
            more
        )
    })
}

fn row(node: &FleetNode, own: bool) -> Html {
    let (class, word) = match () {
        () if node.refused.is_some() => ("bad", "refused"),
        () if node.unwell.is_some() => ("bad", "does badly"),
        () if node.is_late => ("warn", "not there yet"),
        () if !node.trouble.is_empty() => ("warn", "has trouble"),
        () if !node.cached => ("warn", "not on its disk"),
        () => ("well", "well"),
    };
    let told = [node.refused.as_deref(), node.unwell.as_deref(), Some(node.trouble.as_str())];
    let told = each(told.into_iter().flatten().filter(|text| !text.is_empty()), |text| {
        html!("<small>{}</small>", text)
    });
    let labels = each(&node.labels, |(name, value)| html!("<code>{}={}</code> ", name, value));
    let zone = (!node.zone.is_empty()).then(|| html!("<small>zone {}</small> ", node.zone));
    let since = (!node.since.is_empty()).then(|| html!(" <small>since {}</small>", moment(&node.since)));
    html!(
        "<tr><th scope=\"row\">{}{}<td data-label=\"state\"><span class=\"state {}\"><i aria-hidden=\"true\"></i>{}</span>{}<td data-label=\"runs\"><code>{}</code>{}<td \
         data-label=\"labels\">{}{}<td data-label=\"version\">{}",
        node.name,
        own.then(|| html!(" <b class=\"pill\">this one</b>")),
        class,
        word,
        told,
        node.runs.as_deref().unwrap_or("nothing"),
        since,
        zone,
        labels,
        node.version
    )
}

/// The first digits of a digest, enough for people to compare.
fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}
