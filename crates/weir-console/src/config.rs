//! The running config: its entries and where each is defined, and the editor of the managed file.

use crate::display::counted;
use crate::frame::{Frame, Screen};
use crate::html::{Html, each, part};
use crate::view::{Config, ConfigEntry, ManagedText, Role};
use crate::yaml;
use serde_json::Value;

/// Most entries on one page.
const MOST: usize = 4000;

/// The trial periods of a change.
const TRIALS: &[(&str, &str)] =
    &[("", "no"), ("1m", "1 minute"), ("5m", "5 minutes"), ("15m", "15 minutes"), ("1h", "1 hour")];

/// The list of all named entries.
pub fn list(frame: &Frame<'_>, config: &Config) -> String {
    let edit = match &config.managed {
        Some(_) if frame.may(Role::Write) => {
            html!("<a class=\"button main\" href=\"/config/edit\">Edit the managed file</a>")
        }
        _ => Html::default(),
    };
    let body = html!("{}{}{}", files(config), drift(frame, config), things(config));
    frame.page(Screen::Config, "Config", &edit, &body)
}

fn files(config: &Config) -> Html {
    let files = each(&config.files, |file| {
        html!("<li><code class=\"file\">{}</code> <small>hand-written</small>", file)
    });
    let managed = match &config.managed {
        Some(path) => {
            html!(
                "<li><code class=\"file\">{}</code> <small>written by the API and the console</small>",
                path
            )
        }
        None => {
            html!("<li class=\"quiet\">The API may not write any file: <code>admin.writes</code> is not set.")
        }
    };
    html!("<section><h2>Files</h2><ul class=\"files\">{}{}</ul></section>", files, managed)
}

fn drift(frame: &Frame<'_>, config: &Config) -> Option<Html> {
    let drift = &config.drift;
    drift.drift.then(|| {
        let told = if drift.disk.is_none() {
            html!("<pre class=\"code\" tabindex=\"0\">{}</pre>", drift.text)
        } else {
            yaml::differences(&drift.differences, drift.more.unwrap_or_default())
        };
        let reload = frame.may(Role::Operate).then(|| {
            html!("<form data-call=\"POST\" data-url=\"/reload\" data-done=\"Reloaded.\"><button class=\"main\">Reload: run the files</button></form>")
        });
        html!(
            "<section class=\"notice warn\"><h2>The files differ from the running config</h2>{}{}</section>",
            told,
            reload
        )
    })
}

fn things(config: &Config) -> Html {
    let rows = each(config.things.iter().take(MOST), |thing| {
        html!(
            "<tr><td data-label=\"section\"><small>{}</small><th scope=\"row\"><a href=\"/config/{}/{}\">{}</a><td data-label=\"at\"><code class=\"file\">{}</code><td \
             data-label=\"owner\">{}",
            thing.section,
            thing.section,
            part(&thing.name),
            thing.name,
            thing.at,
            owner(thing)
        )
    });
    let settings = each(&config.settings, |(name, at)| {
        html!(
            "<tr><td data-label=\"section\"><small>setting</small><th scope=\"row\">{}<td data-label=\"at\"><code class=\"file\">{}</code><td data-label=\"owner\">people",
            name,
            at
        )
    });
    let all = config.things.len() + config.settings.len();
    let more = config.things.len().saturating_sub(MOST);
    let more = (more > 0).then(|| html!("<p class=\"quiet\">… and {} more.</p>", counted(more, "thing")));
    html!(
        "<form class=\"filter\" role=\"search\"><label class=\"hide\" for=\"filter\">Filter the config</label><input id=\"filter\" type=\"search\" placeholder=\"Filter by \
         name, section or file\" autocomplete=\"off\" spellcheck=\"false\" data-filter=\"things\"><output id=\"count\" class=\"quiet\" for=\"filter\">{}</output></form><table class=\"stack long\" id=\"things\"><caption class=\"hide\">The config</caption><thead><tr><th scope=\"col\">Section<th scope=\"col\">Name<th scope=\"col\">Stands at<th \
         scope=\"col\">Owner<tbody>{}{}</table><p class=\"empty\" id=\"none\" hidden>Nothing matches the filter.</p>{}",
        counted(all, "thing"),
        rows,
        settings,
        more
    )
}

const fn owner(thing: &ConfigEntry) -> &'static str {
    if thing.managed { "the API" } else { "people" }
}

/// A single named entry, as written.
pub fn thing(frame: &Frame<'_>, thing: &ConfigEntry, value: &Value) -> String {
    let edit = (thing.managed && frame.may(Role::Write))
        .then(|| html!("<a class=\"button main\" href=\"/config/edit\">Edit the managed file</a>"));
    let owner = match (thing.managed, thing.both) {
        (true, _) => html!("The API owns it."),
        (false, true) => {
            html!(
                "It is defined in a hand-written file, which takes precedence; the managed file has it too."
            )
        }
        (false, false) => html!("It is defined in a hand-written file: change it there."),
    };
    let title = format!("{} {}", thing.section.trim_end_matches('s'), thing.name);
    let body = html!(
        "<p class=\"quiet\"><code class=\"file\">{}</code> · {} Values that may be secret are shown as <code>***</code>.</p>{}{}",
        thing.at,
        owner,
        yaml::shown(value),
        moves(frame, thing)
    );
    let all = html!("<a class=\"button\" href=\"/config\">Whole config</a>{}", edit);
    frame.page(Screen::Config, &title, &all, &body)
}

/// The buttons that move the entry to another owner.
fn moves(frame: &Frame<'_>, thing: &ConfigEntry) -> Option<Html> {
    let one = |verb: &str, button: &str, words: &str| {
        html!(
            "<form class=\"row\" data-call=\"POST\" data-url=\"/api/v1/config/{}/{}:{}\" data-told=\"moved\"><button>{}</button><span class=\"quiet\">{}</span></form>",
            part(&thing.section),
            part(&thing.name),
            verb,
            button,
            words
        )
    };
    let adopt = (!thing.managed && !thing.both).then(|| {
        let words = "The managed file gets a copy, and owns it once you delete it from the other file.";
        one("adopt", "Adopt: move it to the API", words)
    });
    let release = if thing.managed {
        let words = "Shows the YAML for your own file, including its secrets. Nothing changes until that file has it.";
        Some(one("release", "Release: move it to a file", words))
    } else {
        let words = "Removes it from the managed file; your own file keeps it.";
        thing.both.then(|| one("release", "Release: leave it to the file", words))
    };
    (thing.movable && frame.may(Role::Admin)).then(|| {
        html!(
            "<section class=\"moves\"><h2>Owner</h2>{}{}<div id=\"moved\" class=\"notice\" role=\"status\" tabindex=\"-1\" hidden><p></p><pre class=\"code\" \
             tabindex=\"0\"></pre></div></section>",
            adopt,
            release
        )
    })
}

/// The editor page. Trials require a history.
pub fn edit(frame: &Frame<'_>, managed: &ManagedText, has_history: bool) -> String {
    let path = managed.path.display().to_string();
    let hidden = match managed.hidden {
        0 => None,
        1 => Some(html!(
            " Its one secret is shown as <code>***1</code>, and stays unchanged if you leave the mask."
        )),
        n => Some(html!(
            " Its {} secrets are shown as <code>***1</code> to <code>***{}</code>; each stays unchanged if you leave its mask.",
            n,
            n
        )),
    };
    let trial = |name: &str, label: &str, after: &str| {
        let options = each(TRIALS, |(value, words)| html!("<option value=\"{}\">{}</option>", value, words));
        html!("<label title=\"{}\">{} <select name=\"{}\">{}</select></label>", after, label, name, options)
    };
    let trials = has_history.then(|| {
        html!(
            "{}{}",
            trial("watch", "Watch it for", "reverts automatically if errors or slow requests increase"),
            trial("confirm", "Must be confirmed within", "reverts automatically unless someone confirms it")
        )
    });
    // HTML drops the first line break of a textarea.
    let body = html!(
        "<p class=\"quiet\"><code class=\"file\">{}</code>{} Tab leaves the field; Ctrl+S saves.</p><form id=\"editor\" data-etag=\"{}\" data-file=\"{}\"><div class=\"paper\"><div \
         class=\"gutter\" aria-hidden=\"true\"></div><div class=\"sheet\"><pre class=\"ink\" aria-hidden=\"true\"></pre><label class=\"hide\" for=\"text\">The managed file, \
         YAML</label><textarea id=\"text\" name=\"text\" wrap=\"off\" spellcheck=\"false\" autocomplete=\"off\" autocapitalize=\"off\">\n{}</textarea></div></div><div class=\"desk\"><p id=\"verdict\" \
         class=\"verdict\" role=\"status\"><i aria-hidden=\"true\"></i><span>Nothing has changed.</span></p><div id=\"told\"></div><div class=\"card \
         save\"><label for=\"message\">Why</label><input id=\"message\" name=\"message\" maxlength=\"500\" autocomplete=\"off\" placeholder=\"for the history\"><div \
         class=\"row\">{}</div><div class=\"row\"><button class=\"main\" id=\"save\" disabled>Save and run</button><a class=\"button\" \
         href=\"/config\">Cancel</a></div></div></div></form>",
        path,
        hidden,
        managed.tag,
        path,
        managed.text,
        trials
    );
    frame.page(Screen::Config, "Edit the managed file", &Html::default(), &body)
}
