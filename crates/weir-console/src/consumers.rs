//! Consumers, their plans, and the current state of the filters that limit them.

use crate::display::{count, counted, percent};
use crate::frame::{Frame, Screen};
use crate::html::{Html, each, part};
use crate::view::{Consumer, FilterStatus, Plan};
use crate::yaml;

/// Most consumers on one page. With more, the gateway does the filtering.
const MOST: usize = 2000;

/// The page.
pub fn consumers(
    frame: &Frame<'_>,
    consumers: &[Consumer],
    plans: &[Plan],
    figures: &[FilterStatus],
) -> String {
    let body = html!("{}{}{}", list(consumers), plans_of(plans), state(figures));
    frame.page(Screen::Consumers, "Consumers", &Html::default(), &body)
}

fn list(consumers: &[Consumer]) -> Html {
    if consumers.is_empty() {
        return html!("<p class=\"empty\">The config has no consumers.</p>");
    }
    let rows = each(consumers.iter().take(MOST), |consumer| {
        let plan = consumer.plan.as_ref().map(|plan| html!("<a href=\"#plan-{}\">{}</a>", part(plan), plan));
        let credentials = each(&consumer.credentials, |(filter, number)| {
            html!("<code>{}</code>{} ", filter, (*number > 1).then(|| html!(" <small>× {}</small>", number)))
        });
        let answers = match consumer.answers {
            None => html!("<td class=\"num\"><td class=\"num\"><td class=\"num\">"),
            Some((all, limited, refused)) => html!(
                "<td class=\"num\" data-label=\"answers\">{}<td class=\"{}\" data-label=\"over a limit\">{}<td class=\"num\" data-label=\"other 4xx\">{}",
                count(all),
                if limited > 0 { "num is-warn" } else { "num" },
                percent(limited, all),
                percent(refused, all)
            ),
        };
        html!(
            "<tr><th scope=\"row\"><a href=\"/config/consumers/{}\">{}</a><td data-label=\"plan\">{}<td data-label=\"known by\">{}<td data-label=\"groups\"><small>{}</small><td \
             data-label=\"from\"><small>{}</small>{}",
            part(&consumer.name),
            consumer.name,
            plan,
            credentials,
            consumer.groups.join(" "),
            if consumer.networks.is_empty() { "anywhere".to_owned() } else { consumer.networks.join(" ") },
            answers
        )
    });
    let more = consumers.len().saturating_sub(MOST);
    let more = (more > 0).then(|| html!("<p class=\"quiet\">… and {} more.</p>", count(more as u64)));
    html!(
        "<form class=\"filter\" role=\"search\"><label class=\"hide\" for=\"filter\">Filter consumers</label><input id=\"filter\" type=\"search\" \
         placeholder=\"Filter by name, plan or group\" autocomplete=\"off\" spellcheck=\"false\" data-filter=\"consumers\"><output id=\"count\" class=\"quiet\" \
         for=\"filter\">{}</output></form><table class=\"stack long\" id=\"consumers\"><caption class=\"hide\">Consumers</caption><thead><tr><th scope=\"col\">Consumer<th \
         scope=\"col\">Plan<th scope=\"col\">Known by<th scope=\"col\">Groups<th scope=\"col\">From<th scope=\"col\" class=\"num\">Answers<th scope=\"col\" \
         class=\"num\">Over a limit<th scope=\"col\" class=\"num\">Other 4xx<tbody>{}</table><p class=\"empty\" id=\"none\" hidden>No consumer matches the filter.</p>{}",
        counted(consumers.len(), "consumer"),
        rows,
        more
    )
}

fn plans_of(plans: &[Plan]) -> Option<Html> {
    let cards = each(plans, |plan| {
        let filters = each(&plan.filters, |(name, settings)| {
            html!("<h4><code>{}</code></h4>{}", name, yaml::shown(settings))
        });
        html!(
            "<section class=\"card\" id=\"plan-{}\"><h3><a href=\"/config/plans/{}\">{}</a> <small>{}</small></h3>{}</section>",
            part(&plan.name),
            part(&plan.name),
            plan.name,
            counted(plan.consumers, "consumer"),
            filters
        )
    });
    (!plans.is_empty()).then(|| html!("<h2>Plans</h2><div class=\"cards\">{}</div>", cards))
}

/// The state that filters report: breakers, concurrency, caches.
fn state(figures: &[FilterStatus]) -> Option<Html> {
    let rows = each(figures, |figure| {
        html!(
            "<tr><th scope=\"row\"><code>{}</code><td data-label=\"filter\"><code>{}</code><td data-label=\"what\">{}{}<td class=\"num\" data-label=\"now\">{}",
            figure.place,
            figure.filter,
            figure.what.replace('_', " "),
            (!figure.of.is_empty()).then(|| html!(" of <code>{}</code>", figure.of)),
            count(figure.value)
        )
    });
    (!figures.is_empty()).then(|| {
        html!(
            "<h2>Filters now</h2><table class=\"stack\"><caption class=\"hide\">State of filters</caption><thead><tr><th scope=\"col\">Where<th scope=\"col\">Filter<th \
             scope=\"col\">What<th scope=\"col\" class=\"num\">Now<tbody>{}</table>",
            rows
        )
    })
}
