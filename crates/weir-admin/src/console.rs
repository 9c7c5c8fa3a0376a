//! The console at `/`: finds the page, checks access, and collects the data. The pages themselves are in
//! `weir-console`.
//!
//! ```text
//!   GET /upstreams ─► find ─► guard (token, session or this machine) ─► page ─► views ─► weir_console ─► HTML
//!   POST /sign-in  ─► find ─► guard (host and origin only) ─► exchanges a token for a session ─► a cookie
//! ```
//!
//! *Layout:* `session` keeps the sessions, `attempts` limits the rate of sign-ins, `record` keeps the last 15
//! minutes, and `views` builds the view models. Pages make changes over the API, as any other client does.

#![allow(
    clippy::result_large_err,
    reason = "a refusal is an answer, made once a request and never in a loop"
)]

mod attempts;
mod fleet;
mod record;
mod session;
mod views;

pub(crate) use session::Sessions;

use attempts::Attempts;

use crate::answer::{self, Answer};
use crate::by_hand::plain;
use crate::config_api;
use crate::guard::{Access, Denied, Identity};
use crate::why;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use record::{Look, Record, Things, ThingsLook};
use std::net::IpAddr;
use std::time::{Duration, Instant};
use weir_console::view::{self, Autopsies, Drift, Explanation, Question, Role, Status, Viewer, WhyQuery};
use weir_console::{Asset, Frame, Screen};
use weir_gateway::Gateway;
use weir_gateway::explain::Arriving;

pub(crate) use record::STEP;

/// Paths for signing in and out.
const SIGN_IN: &str = "/sign-in";
const SIGN_OUT: &str = "/sign-out";

/// The cookie with the theme.
const THEME: &str = "weir_theme";

/// Longest body of a sign-in, in bytes.
pub(crate) const FORM_BYTES: usize = 8 * 1024;

/// Most failures on one page, or groups of similar ones.
const MOST_FAILURES: usize = 50;

/// Most header fields in a question to `explain`.
const FIELDS: usize = 64;

/// The target of a console path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Visit {
    Asset(&'static Asset),
    Screen(Screen),
    SignIn,
    SignOut,
}

/// State that the console keeps between requests.
#[derive(Default)]
pub(crate) struct Console {
    pub(crate) sessions: Sessions,
    attempts: Attempts,
    record: Record,
    things: Things,
}

/// A request for a page.
pub(crate) struct Asked {
    pub(crate) screen: Screen,
    pub(crate) who: Identity,
    pub(crate) csrf: Option<String>,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
}

// === impl Visit ===

/// Finds the page at a path.
pub(crate) fn find(path: &str) -> Option<Visit> {
    match path {
        SIGN_IN => return Some(Visit::SignIn),
        SIGN_OUT => return Some(Visit::SignOut),
        _ => {}
    }
    if let Some(asset) = weir_console::ASSETS.iter().find(|asset| asset.path == path) {
        return Some(Visit::Asset(asset));
    }
    let below = |screen: Screen| {
        let rest = path.strip_prefix(screen.path())?;
        let has_more = matches!(
            screen,
            Screen::Config | Screen::Failures | Screen::History | Screen::Routes | Screen::Upstreams
        );
        (rest.is_empty() || (has_more && rest.starts_with('/') && rest.len() > 1))
            .then_some(Visit::Screen(screen))
    };
    Screen::ALL.iter().find_map(|screen| below(*screen))
}

impl Visit {
    pub(crate) const fn access(self) -> Access {
        match self {
            // It shows what a candidate would do, as the API does: to those who may start one.
            Self::Screen(Screen::Shadow) => Access::Needs(Role::Write),
            Self::Screen(_) => Access::Needs(Role::Read),
            Self::Asset(_) | Self::SignIn | Self::SignOut => Access::Visitors,
        }
    }

    /// The allowed methods, in the syntax of Allow.
    pub(crate) const fn methods(self) -> &'static str {
        match self {
            Self::Asset(_) | Self::Screen(_) => "GET, HEAD",
            Self::SignIn => "GET, HEAD, POST",
            Self::SignOut => "POST",
        }
    }
}

/// The sign-in page for a browser without a session; `None` if the request is not a browser's request for a page.
pub(crate) fn way_in(
    visit: Option<Visit>,
    method: &Method,
    uri: &Uri,
    accept: &str,
    why: Denied,
) -> Option<Answer> {
    let page = matches!(visit, Some(Visit::Screen(_))) && matches!(*method, Method::GET | Method::HEAD);
    let unknown = matches!(why, Denied::TokenMissing | Denied::TokenWrong);
    (page && unknown && accept.contains("text/html")).then(|| {
        let to = uri.path_and_query().map_or("/", |to| to.as_str());
        redirect(&format!("{SIGN_IN}?to={}", escaped(to)))
    })
}

// === signing in and out ===

/// The sign-in page.
pub(crate) fn sign_in_page(uri: &Uri, headers: &HeaderMap, wrong: Option<&str>) -> Answer {
    let to = pairs(uri.query().unwrap_or_default()).into_iter().find(|(name, _)| name == "to");
    let to = destination(&to.map(|(_, to)| to).unwrap_or_default());
    let frame =
        Frame { place: place(headers), theme: session::cookie(headers, THEME), viewer: None, status: None };
    let status = if wrong.is_some() { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
    answer::page(status, weir_console::sign_in(&frame, &to, wrong))
}

/// Exchanges a token for a session. `from` is the browser's address and whether it uses TLS; `known` says whether
/// the token is valid.
pub(crate) fn sign_in(
    console: &Console,
    headers: &HeaderMap,
    form: &str,
    (from, secure): (IpAddr, bool),
    known: impl FnOnce(&[u8]) -> bool,
) -> Answer {
    let fields = pairs(form);
    let value = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map_or("", |(_, value)| value);
    let (token, to) = (value("token").trim(), destination(value("to")));
    let again = || format!("{SIGN_IN}?to={}", escaped(&to)).parse().unwrap_or_default();
    let now = Instant::now();
    if let Err(wait) = console.attempts.begin(from, now) {
        return too_often(
            sign_in_page(&again(), headers, Some("Too many attempts. Try again in a moment.")),
            wait,
        );
    }
    if !known(token.as_bytes()) {
        return sign_in_page(&again(), headers, Some("This token is not valid."));
    }
    console.attempts.succeeded(from, now);
    let Some(id) = console.sessions.begin(token.as_bytes(), from, now) else {
        return answer::problem(StatusCode::INTERNAL_SERVER_ERROR, "the system provides no random numbers");
    };
    let age = session::AGE.as_secs();
    let secure = if secure { "; Secure" } else { "" };
    with_cookie(
        redirect(&to),
        &format!("{}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age}{secure}", session::COOKIE),
    )
}

/// The same page for a browser with too many attempts (RFC 6585 §4).
fn too_often(mut answer: Answer, wait: Duration) -> Answer {
    let seconds = wait.as_millis().div_ceil(1000).max(1).to_string();
    *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    if let Ok(seconds) = HeaderValue::from_str(&seconds) {
        answer.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    answer
}

/// Ends a session.
pub(crate) fn sign_out(console: &Console, headers: &HeaderMap) -> Answer {
    console.sessions.end(headers);
    with_cookie(
        redirect(SIGN_IN),
        &format!("{}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0", session::COOKIE),
    )
}

fn with_cookie(mut answer: Answer, cookie: &str) -> Answer {
    if let Ok(value) = HeaderValue::from_str(cookie) {
        answer.headers_mut().append(header::SET_COOKIE, value);
    }
    answer
}

/// Redirects to another console page (RFC 9110 §15.4.4).
fn redirect(to: &str) -> Answer {
    let mut answer = answer::of(StatusCode::SEE_OTHER, answer::TEXT, "");
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/"));
    answer.headers_mut().insert(header::LOCATION, to);
    answer
}

/// The page to open after signing in. It is always one of ours, whatever the parameter says.
fn destination(to: &str) -> String {
    let plain = to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') && !to.starts_with("//");
    let path = to.split(['?', '#']).next().unwrap_or_default();
    if plain && matches!(find(path), Some(Visit::Screen(_))) { to.to_owned() } else { "/".to_owned() }
}

// === pages ===

/// A static file of the console.
pub(crate) fn asset(asset: &'static Asset) -> Answer {
    let mut answer = answer::of(StatusCode::OK, asset.media, asset.content);
    // Its URL contains a digest of its content.
    answer
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    answer
}

/// Renders a page. Blocking.
pub(crate) fn page(console: &Console, gateway: &Gateway, asked: &Asked) -> Answer {
    let mut status = gateway.status();
    // People look for names; the API keeps the order of the config.
    status.listeners.sort_by(|(a, _), (b, _)| a.cmp(b));
    status.upstreams.sort_by(|(a, _), (b, _)| a.cmp(b));
    let viewer = Viewer { name: asked.who.name.clone(), role: asked.who.role, csrf: asked.csrf.clone() };
    let theme = session::cookie(&asked.headers, THEME);
    let frame = Frame { place: place(&asked.headers), theme, viewer: Some(&viewer), status: Some(&status) };
    let here = Page { console, gateway, asked, frame: &frame, status: &status };
    // A page with static content refreshes only its frame.
    let still = match asked.screen {
        Screen::Overview | Screen::Upstreams | Screen::Failures | Screen::Fleet | Screen::Shadow => false,
        Screen::Routes => here.rest().is_empty(),
        _ => true,
    };
    if still && here.is_live() {
        return answer::page(StatusCode::OK, weir_console::around(&frame, asked.screen));
    }
    let made = match asked.screen {
        Screen::Overview => Ok(here.overview()),
        Screen::Routes if here.rest().is_empty() => Ok(here.routes()),
        Screen::Routes => here.route(),
        Screen::Upstreams => here.upstreams(),
        Screen::Failures => here.failures(),
        Screen::Config => here.config(),
        Screen::History => here.history(),
        Screen::Certificates => Ok(weir_console::certificates(&frame, &status)),
        Screen::Consumers => Ok(here.consumers()),
        Screen::Fleet => here.fleet(),
        Screen::Shadow => Ok(here.shadow()),
    };
    made.map_or_else(|other| other, |html| answer::page(StatusCode::OK, html))
}

/// A page during rendering.
struct Page<'a> {
    console: &'a Console,
    gateway: &'a Gateway,
    asked: &'a Asked,
    frame: &'a Frame<'a>,
    status: &'a Status,
}

/// The HTML of a page, or another answer.
type PageResult = Result<String, Answer>;

impl Page<'_> {
    /// The part of the path after the screen's path and a slash.
    fn rest(&self) -> &str {
        let rest = self.asked.uri.path().strip_prefix(self.asked.screen.path());
        rest.and_then(|rest| rest.strip_prefix('/')).unwrap_or_default()
    }

    /// Whether an open page asks for a live refresh.
    fn is_live(&self) -> bool {
        self.asked.headers.contains_key("x-weir-live")
    }

    fn query(&self) -> Vec<(String, String)> {
        pairs(self.asked.uri.query().unwrap_or_default())
    }

    fn nothing(&self, text: &str) -> Answer {
        answer::page(
            StatusCode::NOT_FOUND,
            weir_console::message(self.frame, self.asked.screen, "There is nothing here", text),
        )
    }

    fn overview(&self) -> String {
        let mut pulse = views::pulse(self.gateway, &self.console.record);
        pulse.upstreams = self.console.things.seen(&views::look(self.gateway));
        let revisions = self.gateway.revisions().unwrap_or_default();
        // Reads the config files, so not every two seconds.
        let drift = (!self.is_live()).then(|| self.drift());
        weir_console::overview(self.frame, self.status, &pulse, revisions.last(), drift.as_ref())
    }

    fn drift(&self) -> Drift {
        config_api::drift_of(self.gateway, &self.asked.who).unwrap_or_default()
    }

    fn routes(&self) -> String {
        let running = self.gateway.configs().borrow().clone();
        let routes = views::routes(self.gateway, &running, &self.console.record);
        let query = self.query();
        let value = |wanted: &str| find_in(&query, wanted);
        let asked = Question {
            method: value("method"),
            url: value("url"),
            fields: value("fields"),
            listener: value("listener"),
        };
        let told = (!asked.url.is_empty()).then(|| self.explain(&asked));
        let listeners: Vec<String> = self.status.listeners.iter().map(|(name, _)| name.clone()).collect();
        weir_console::routes(self.frame, &routes, &value("q"), &listeners, &asked, told.as_ref())
    }

    /// A single route, with its history.
    fn route(&self) -> PageResult {
        let name = plain(self.rest()).unwrap_or_default();
        let running = self.gateway.configs().borrow().clone();
        let (route, trend) = views::route(self.gateway, &running, &self.console.things, &name)
            .ok_or_else(|| self.nothing("There is no such route."))?;
        Ok(weir_console::route(self.frame, &route, &trend))
    }

    /// All upstreams, or a single one with its history.
    fn upstreams(&self) -> PageResult {
        let look = views::look(self.gateway);
        let seen = self.console.things.seen(&look);
        let name = plain(self.rest()).unwrap_or_default();
        if name.is_empty() {
            let query = self.query();
            let asked =
                view::UpstreamsQuery { wanted: find_in(&query, "q"), state: find_in(&query, "state") };
            return Ok(weir_console::upstreams(self.frame, self.status, &seen, &asked));
        }
        let running = self.gateway.configs().borrow().clone();
        let trend = views::upstream(&running, &self.console.things, &look, &name);
        weir_console::upstream(self.frame, self.status, &seen, &name, &trend)
            .ok_or_else(|| self.nothing("There is no such upstream."))
    }

    fn explain(&self, asked: &Question) -> Result<Explanation, String> {
        let lines = asked.fields.lines().map(str::trim).filter(|line| !line.is_empty()).take(FIELDS);
        let fields: Vec<(String, String)> = lines
            .map(|line| match line.split_once(':') {
                Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
                None => Err(format!("`{line}` is not a header field; expected NAME: VALUE")),
            })
            .collect::<Result<_, _>>()?;
        let method = if asked.method.is_empty() { "GET" } else { &asked.method };
        let listener = Some(asked.listener.as_str()).filter(|listener| !listener.is_empty());
        let arriving = Arriving { listener, client: None };
        self.gateway.explain(arriving, method, &asked.url, &fields)
    }

    fn failures(&self) -> PageResult {
        let query = self.query();
        let value = |wanted: &str| find_in(&query, wanted);
        let id = self.rest();
        if id == "id" && !value("id").is_empty() {
            return Err(redirect(&format!("/failures/{}", escaped(value("id").trim()))));
        }
        if !id.is_empty() {
            let told = self.gateway.why(question(&format!("/{id}")).map_err(|wrong| self.nothing(&wrong))?);
            let known = plain(id).unwrap_or_default();
            let found = told.found.first().ok_or_else(|| self.nothing(&why::not_found(&known, &told)))?;
            return Ok(weir_console::failure(self.frame, found));
        }
        let each = value("each") == "1";
        let mut sought =
            WhyQuery { kind: value("kind"), cause: value("cause"), route: value("route"), each, wrong: None };
        let given = [("kind", &sought.kind), ("cause", &sought.cause), ("route", &sought.route)];
        let given = given.iter().filter(|(_, value)| !value.is_empty());
        let given: Vec<String> = given.map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let told = match question(&format!("?{}", given.join("&"))) {
            Ok(question) => {
                let question =
                    weir_gateway::autopsy::Question { most: MOST_FAILURES, grouped: !each, ..question };
                self.gateway.why(question)
            }
            Err(wrong) => {
                sought.wrong = Some(wrong);
                Autopsies { on: true, held: 1, ..Autopsies::default() }
            }
        };
        Ok(weir_console::failures(self.frame, &told, &sought))
    }

    fn config(&self) -> PageResult {
        let texts = self.gateway.texts();
        let tree = config_api::seen(&texts, &self.asked.who)
            .ok_or_else(|| self.nothing("The config cannot be read again."))?;
        let parts: Vec<&str> = self.rest().split('/').collect();
        match parts.as_slice() {
            [""] => Ok(weir_console::config::list(self.frame, &views::config(&texts, &tree, self.drift()))),
            ["edit"] => self.edit(),
            [section, name] => {
                let (section, name) = (plain(section).unwrap_or_default(), plain(name).unwrap_or_default());
                let found = views::one(&texts, &tree, &section, &name);
                let (thing, value) = found.ok_or_else(|| self.nothing("The config has no such thing."))?;
                Ok(weir_console::config::thing(self.frame, &thing, &value))
            }
            _ => Err(self.nothing("The config has no such thing.")),
        }
    }

    fn edit(&self) -> PageResult {
        let managed = self
            .gateway
            .managed_text(self.asked.who.writes())
            .map_err(|not| self.nothing(&weir_wire::Chain(&not).to_string()))?;
        Ok(weir_console::config::edit(self.frame, &managed, self.gateway.revisions().is_some()))
    }

    fn history(&self) -> PageResult {
        let Some((from, to)) = self.rest().split_once("..") else {
            if !self.rest().is_empty() {
                return Err(self.nothing("There is no such page."));
            }
            return Ok(weir_console::history::list(self.frame, self.gateway.history().as_ref()));
        };
        let told = match config_api::between(self.gateway, &self.asked.who, from, to) {
            Ok(differences) => Ok(differences),
            Err(refused) if refused.status() == StatusCode::NOT_FOUND => {
                Err("That revision no longer exists.".to_owned())
            }
            Err(_) => Err("The files cannot be read: the page Config says why.".to_owned()),
        };
        Ok(weir_console::history::compare(self.frame, from, to, &told))
    }

    fn fleet(&self) -> PageResult {
        let own = self.status.fleet.as_ref();
        let own =
            own.ok_or_else(|| self.nothing("This gateway is of no fleet: its config has no `source`."))?;
        Ok(weir_console::fleet(self.frame, own, &fleet::of(self.gateway.fleet())))
    }

    fn shadow(&self) -> String {
        let promotes = self.gateway.texts().managed_path.is_some() && self.gateway.revisions().is_some();
        weir_console::shadow(self.frame, self.gateway.shadow(None).as_ref(), promotes)
    }

    fn consumers(&self) -> String {
        let running = self.gateway.configs().borrow().clone();
        let consumers = views::consumers(self.gateway, &running);
        let tree = config_api::seen(&self.gateway.texts(), &self.asked.who);
        let plans = tree.map(|tree| views::plans(&tree, &running)).unwrap_or_default();
        weir_console::consumers(self.frame, &consumers, &plans, &self.status.filters)
    }
}

/// The question to the failure store, parsed as the API does.
fn question(target: &str) -> Result<weir_gateway::autopsy::Question, String> {
    let target = format!("{}{target}", why::PATH).parse::<Uri>();
    why::read(&target.map_err(|_| "this is not a request id".to_owned())?)
}

/// Takes a sample of the counters. Blocking.
pub(crate) fn look(console: &Console, gateway: &Gateway) {
    let (now, figures) = (Instant::now(), gateway.figures());
    console.record.add(Look::of(&figures, now));
    console.things.add(now, || ThingsLook::of(&figures, &gateway.upstream_figures(), now));
}

/// The host of the request, which the guard has checked.
fn place(headers: &HeaderMap) -> &str {
    headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("weir")
}

// === forms ===

/// Names and values of a query or form (`application/x-www-form-urlencoded`). Malformed parts are ignored.
fn pairs(text: &str) -> Vec<(String, String)> {
    let one = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((plain(&name.replace('+', " ")).ok()?, plain(&value.replace('+', " ")).ok()?))
    };
    text.split('&').filter(|pair| !pair.is_empty()).filter_map(one).collect()
}

fn find_in(pairs: &[(String, String)], wanted: &str) -> String {
    pairs.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone()).unwrap_or_default()
}

fn escaped(text: &str) -> String {
    weir_console::part(text)
}
