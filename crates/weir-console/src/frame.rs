//! The frame of every page: head, navigation, and notices that an operator must see on any page.

use crate::display::{counted, moment};
use crate::html::{Html, each};
use crate::view::{FilterStatus, Role, Status, Viewer};
use crate::{MARK, SCRIPT, STYLE};

/// Refresh interval of live pages, in seconds.
pub(crate) const LIVE: u32 = 2;

/// A page of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screen {
    /// Health and load now.
    Overview,
    /// The routes.
    Routes,
    /// The endpoints.
    Upstreams,
    /// Requests that failed, were slow or were sampled.
    Failures,
    /// The config, and its editor.
    Config,
    /// Earlier revisions, and the way back.
    History,
    /// The server certificates.
    Certificates,
    /// Consumers and their limits.
    Consumers,
    /// The fleet, if this gateway belongs to one.
    Fleet,
    /// A candidate config judged on live requests, for those who may change the config.
    Shadow,
}

impl Screen {
    /// All screens, in the order of the navigation.
    pub const ALL: &[Self] = &[
        Self::Overview,
        Self::Routes,
        Self::Upstreams,
        Self::Failures,
        Self::Config,
        Self::History,
        Self::Certificates,
        Self::Consumers,
        Self::Fleet,
        Self::Shadow,
    ];

    /// Its path.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Overview => "/",
            Self::Routes => "/routes",
            Self::Upstreams => "/upstreams",
            Self::Failures => "/failures",
            Self::Config => "/config",
            Self::History => "/history",
            Self::Certificates => "/certificates",
            Self::Consumers => "/consumers",
            Self::Fleet => "/fleet",
            Self::Shadow => "/shadow",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Routes => "Routes",
            Self::Upstreams => "Upstreams",
            Self::Failures => "Failures",
            Self::Config => "Config",
            Self::History => "History",
            Self::Certificates => "Certificates",
            Self::Consumers => "Consumers",
            Self::Fleet => "Fleet",
            Self::Shadow => "Shadow",
        }
    }

    /// The key that opens the screen, after `g`.
    const fn key(self) -> &'static str {
        match self {
            Self::Overview => "o",
            Self::Routes => "r",
            Self::Upstreams => "u",
            Self::Failures => "f",
            Self::Config => "c",
            Self::History => "h",
            Self::Certificates => "t",
            Self::Consumers => "n",
            Self::Fleet => "l",
            Self::Shadow => "s",
        }
    }
}

/// Everything that a page needs besides its own content.
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    /// The host under which the gateway was addressed, which identifies it to the operator.
    pub place: &'a str,
    /// `light` or `dark`, if the viewer has chosen.
    pub theme: Option<&'a str>,
    /// The viewer; `None` before sign-in.
    pub viewer: Option<&'a Viewer>,
    /// The status, for notices on every page.
    pub status: Option<&'a Status>,
}

impl Frame<'_> {
    pub(crate) fn may(&self, role: Role) -> bool {
        self.viewer.is_some_and(|viewer| viewer.role >= role)
    }

    /// A page of one of the screens, with `actions` next to its title.
    pub(crate) fn page(&self, screen: Screen, title: &str, actions: &Html, body: &Html) -> String {
        let main = html!(
            "<main id=\"main\" tabindex=\"-1\">{}<div class=\"title\"><h1>{}</h1><div class=\"actions\">{}</div></div>{}</main>",
            self.notices(),
            title,
            actions,
            body
        );
        let body = html!("{}{}{}", self.side(screen), main, self.help());
        self.document(title, &body)
    }

    /// A page without navigation.
    pub(crate) fn alone(&self, title: &str, body: &Html) -> String {
        self.document(title, &html!("<main id=\"main\" class=\"alone\" tabindex=\"-1\">{}</main>", body))
    }

    fn document(&self, title: &str, body: &Html) -> String {
        let theme = self.theme.filter(|theme| matches!(*theme, "dark" | "light"));
        let theme = theme.map(|theme| html!(" data-theme=\"{}\"", theme));
        let csrf = self.viewer.and_then(|viewer| viewer.csrf.as_ref());
        let csrf = csrf.map(|value| html!("<meta name=\"csrf\" content=\"{}\">\n", value));
        html!(
            "<!doctype html>\n<html lang=\"en\"{}>\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n{}\
             <title>{} · {} · Weir</title>\n<link rel=\"icon\" href=\"{}\">\n<link rel=\"stylesheet\" href=\"{}\">\n\
             <script type=\"module\" src=\"{}\"></script>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to content</a>\n{}\n\
             <div id=\"said\" class=\"said\" role=\"status\" aria-live=\"polite\"></div>\n</body>\n</html>\n",
            theme,
            csrf,
            title,
            self.place,
            at(&MARK),
            at(&STYLE),
            at(&SCRIPT),
            body
        )
        .into_string()
    }

    fn side(&self, screen: Screen) -> Html {
        let links = each(self.screens(), |each| {
            let here = (each == screen).then(|| html!(" aria-current=\"page\""));
            html!(
                "<li><a href=\"{}\" data-key=\"{}\"{}>{}{}</a>",
                each.path(),
                each.key(),
                here,
                each.title(),
                self.badge(each)
            )
        });
        html!(
            "<header class=\"side\"><a class=\"brand\" href=\"/\"><img src=\"{}\" alt=\"\" width=\"28\" height=\"28\"><span>Weir\
             <small>{}</small></span></a><nav aria-label=\"Screens\"><ul>{}</ul></nav>{}</header>",
            at(&MARK),
            self.place,
            links,
            self.foot()
        )
    }

    /// The screens that exist on this gateway.
    fn screens(&self) -> impl Iterator<Item = Screen> {
        let fleet = self.status.is_some_and(|status| status.fleet.is_some());
        let shadow = self.may(Role::Write);
        Screen::ALL.iter().copied().filter(move |screen| match screen {
            Screen::Fleet => fleet,
            Screen::Shadow => shadow,
            _ => true,
        })
    }

    /// How many items on a screen need attention.
    fn badge(&self, screen: Screen) -> Option<Html> {
        let status = self.status?;
        let (number, class, what) = match screen {
            Screen::Upstreams => {
                let all = status.upstreams.iter().flat_map(|(_, upstream)| &upstream.endpoints);
                (all.filter(|endpoint| !endpoint.healthy).count(), "badge", "out of rotation")
            }
            Screen::Certificates => {
                let soon =
                    status.certificates.iter().filter(|c| c.days_left < crate::certificates::SOON_DAYS);
                (soon.count(), "badge soon", "expire soon")
            }
            Screen::Fleet => {
                let fleet = status.fleet.as_ref()?;
                let unwell = fleet.refused.is_some() || fleet.state != "following";
                (usize::from(unwell), "badge", "does not follow")
            }
            _ => return None,
        };
        (number > 0)
            .then(|| html!(" <b class=\"{}\">{}<span class=\"hide\"> {}</span></b>", class, number, what))
    }

    fn foot(&self) -> Html {
        let who = self.viewer.map(|viewer| {
            let out = viewer.csrf.is_some().then(|| {
                html!("<form method=\"post\" action=\"/sign-out\"><button class=\"link\">Sign out</button></form>")
            });
            html!(
                "<div class=\"who\"><span title=\"who you are to the history and the log\">{}</span> <small>{}</small>{}</div>",
                viewer.name,
                viewer.role.name(),
                out
            )
        });
        let version =
            self.status.map(|status| html!("<small class=\"version\">Weir {}</small>", status.version));
        html!(
            "<div class=\"foot\">{}<div class=\"tools\"><button class=\"link\" id=\"theme\" type=\"button\">Theme</button>\
             <button class=\"link\" type=\"button\" data-open=\"help\">Keys</button></div>{}</div>",
            who,
            version
        )
    }

    /// The dialog that lists keyboard shortcuts.
    fn help(&self) -> Html {
        let screens = each(self.screens(), |screen| {
            html!("<dt><kbd>g</kbd> <kbd>{}</kbd><dd>{}", screen.key(), screen.title())
        });
        html!(
            "<dialog id=\"help\" aria-labelledby=\"help-title\"><h2 id=\"help-title\">Keys</h2><dl class=\"keys\">{}<dt><kbd>/</kbd><dd>the filter, \
             or the URL to explain<dt><kbd>Esc</kbd><dd>close, or leave a field<dt><kbd>?</kbd><dd>this list</dl><label class=\"check\"><input \
             type=\"checkbox\" id=\"keys-on\" checked> Single keys do something</label><form method=\"dialog\"><button class=\"main\">Close</button>\
             </form></dialog>",
            screens
        )
    }

    /// Notices that appear on every page.
    fn notices(&self) -> Html {
        let Some(status) = self.status else { return Html::default() };
        let mut all = Vec::new();
        if status.state == "draining" {
            all.push(html!("<p class=\"notice warn\"><b>Draining.</b> New connections are refused; Weir ends when the last exchange is done."));
        }
        if let Some(trial) = &status.trial {
            all.push(self.trial(trial));
        }
        if let Some(why) = &status.pinned {
            all.push(html!(
                "<p class=\"notice warn\"><b>The files do not run.</b> A revision of the history does, since {}. \
                 <a href=\"/history/running..disk\">What differs</a>",
                why
            ));
        }
        if let Some(why) = &status.unsaved {
            all.push(html!(
                "<p class=\"notice bad\"><b>The config runs from memory only.</b> It could not be written down: {}</p>",
                why
            ));
        }
        if let Some(log) = &status.access_log {
            all.push(html!(
                "<p class=\"notice bad\"><b>The access log is not written.</b> <code>{}</code>: {}; {} lost since {}. Correct \
                 that, or set another <code>access_log.output</code>: Weir tries again with the next lines.",
                log.output,
                log.error,
                counted(usize::try_from(log.lost).unwrap_or(usize::MAX), "line"),
                moment(&log.since)
            ));
        }
        if status.fleet.as_ref().is_some_and(|fleet| fleet.refused.is_some()) {
            all.push(html!(
                "<p class=\"notice bad\"><b>A bundle of the fleet was refused here.</b> What ran before runs on. <a href=\"/fleet\">Why</a>"
            ));
        }
        let mut down: Vec<&str> =
            status.filters.iter().filter(|filter| is_maintenance(filter)).map(|f| &*f.of).collect();
        down.sort_unstable();
        down.dedup();
        for switch in down {
            all.push(html!(
                "<p class=\"notice warn\"><b>Maintenance of <code>{}</code> is on:</b> requests are refused. <code>weir maintenance off</code> ends it.",
                switch
            ));
        }
        let refused = status.last_reload.as_ref().filter(|reload| reload.result != "ok");
        if let Some(reload) = refused {
            all.push(html!(
                "<p class=\"notice bad\"><b>The last reload was refused</b> ({}). What ran before runs on. <a href=\"/#reload\">Why</a>",
                moment(&reload.at)
            ));
        }
        html!("<div id=\"notices\" data-live=\"{}\">{}</div>", LIVE, all.into_iter().collect::<Html>())
    }

    fn trial(&self, trial: &crate::view::TrialStatus) -> Html {
        let until = |at: &String| html!("<b>{}</b>", moment(at));
        let what = match (&trial.confirm_by, &trial.watched_until) {
            (Some(by), _) if !trial.revokes.is_empty() => html!(
                "It must be confirmed {}, but stays anyway, because a rollback would restore <code>{}</code>.",
                until(by),
                trial.revokes.join(", ")
            ),
            (Some(by), _) => html!(
                "It reverts to revision {} automatically {}, unless it is confirmed earlier.",
                trial.back_to,
                until(by)
            ),
            (None, Some(by)) if !trial.restricts.is_empty() => html!(
                "It is watched and stays, because it restricts access (<code>{}</code>). The watch ends {}.",
                trial.restricts.join(", "),
                until(by)
            ),
            (None, Some(by)) => html!(
                "It reverts to revision {} automatically if errors or slow requests increase. The watch ends {}.",
                trial.back_to,
                until(by)
            ),
            (None, None) => Html::default(),
        };
        let warnings: Html = trial.warnings.iter().map(|warning| html!("<p>{}</p>", warning)).collect();
        let confirm = self.may(Role::Operate).then(|| {
            html!(
                "<form data-call=\"POST\" data-url=\"/api/v1/revisions/{}:confirm\" data-done=\"Revision {} stays.\"><button class=\"main\">\
                 Confirm: it stays</button></form>",
                trial.number,
                trial.number
            )
        });
        let back = self.may(Role::Write).then(|| {
            html!("<a class=\"button\" href=\"/history/running..{}\">Go back now…</a>", trial.back_to)
        });
        html!(
            "<div class=\"notice trial\"><p><b>Revision {} is on trial.</b> {}</p>{}<div class=\"row\">{}{}</div></div>",
            trial.number,
            what,
            warnings,
            confirm,
            back
        )
    }
}

/// Whether it reports that a `maintenance` switch is on.
fn is_maintenance(filter: &FilterStatus) -> bool {
    filter.filter == "maintenance" && filter.what == "on" && filter.value > 0
}

/// The URL of an asset, with the digest of its content.
fn at(asset: &crate::Asset) -> String {
    format!("{}?{:x}", asset.path, asset.digest)
}

/// The frame alone, from which a static page refreshes its notices.
pub fn around(frame: &Frame<'_>, screen: Screen) -> String {
    frame.page(screen, "", &Html::default(), &Html::default())
}

/// A page with a single message, such as "not found".
pub fn message(frame: &Frame<'_>, screen: Screen, title: &str, text: &str) -> String {
    frame.page(screen, title, &Html::default(), &html!("<p class=\"empty\">{}</p>", text))
}
