//! The clients: each is a thread that requests one route over and over, and records every outcome.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use weir_testkit::{Client, Tls};

/// The requested route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// No route: the origin of the steady route, asked without the gateway. A delay that shows here comes from
    /// the machine.
    Direct,
    /// Three endpoints, one of which is faulty.
    Faulty,
    /// A healthy endpoint, with a new connection for each request.
    Fresh,
    /// Answered by the gateway itself.
    Local,
    /// An endpoint given by name.
    Named,
    /// A healthy endpoint, over TLS.
    Secure,
    /// A healthy endpoint, which faults of the others must not affect.
    Steady,
}

impl Route {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Faulty => "faulty",
            Self::Fresh => "fresh",
            Self::Local => "local",
            Self::Named => "named",
            Self::Secure => "secure",
            Self::Steady => "steady",
        }
    }
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answered,
    /// The connection ended, or the time was up, without a complete answer.
    Lost(String),
    /// A status other than 200, with the gateway's cause if it set one.
    Refused(u16, String),
    /// An answer that belongs to another request.
    Wrong(String),
}

/// A single request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) route: Route,
    pub(crate) post: bool,
    /// The number of the fault that was active when it was sent.
    pub(crate) fault: usize,
    /// Whether that fault paused.
    pub(crate) quiet: bool,
    pub(crate) took: Duration,
    pub(crate) outcome: Outcome,
}

/// How the plan controls the clients.
pub(crate) struct Control {
    pub(crate) over: AtomicBool,
    /// The number of the active fault.
    pub(crate) fault: AtomicUsize,
    /// Whether the fault pauses, so that the latencies serve as the baseline.
    pub(crate) quiet: AtomicBool,
    /// The pause between two requests of a client, in microseconds.
    pub(crate) pause: AtomicU32,
    pub(crate) answered: AtomicUsize,
}

/// State shared by all clients.
pub(crate) struct Shared {
    pub(crate) control: Control,
    pub(crate) web: String,
    /// The origin behind the steady route.
    pub(crate) direct: String,
    pub(crate) secure: String,
    pub(crate) tls: Tls,
    /// All requests, by client. The index of a request here is the number in its id.
    pub(crate) asked: Vec<Mutex<Vec<Asked>>>,
}

/// Requests on one connection.
const PER_CONNECTION: usize = 100;

/// Sends requests until the plan is over.
pub(crate) fn run(shared: &Shared, number: usize, route: Route) {
    let control = &shared.control;
    while !control.over.load(Relaxed) {
        let mut client = match route {
            Route::Secure => match Client::try_connect_tls(&shared.secure, &shared.tls) {
                Ok(client) => client,
                Err(why) => {
                    note(shared, number, route, false, Instant::now(), Outcome::Lost(why));
                    continue;
                }
            },
            Route::Direct => Client::connect(&shared.direct),
            _ => Client::connect(&shared.web),
        };
        for _ in 0..PER_CONNECTION {
            if control.over.load(Relaxed) || !ask(shared, number, route, &mut client) {
                break;
            }
            std::thread::sleep(Duration::from_micros(control.pause.load(Relaxed).into()));
        }
    }
}

/// Sends a request; `true` if the connection can carry another.
fn ask(shared: &Shared, number: usize, route: Route, client: &mut Client) -> bool {
    let sequence = shared.asked[number].lock().unwrap().len();
    let post = sequence % 3 == 1;
    let id = format!("{number}-{sequence}");
    let (method, body) = if post { ("POST", "four") } else { ("GET", "") };
    let length = if post { "Content-Length: 4\r\n" } else { "" };
    let path = route.name();
    let began = Instant::now();
    let sent = client.try_send(format!(
        "{method} /{path} HTTP/1.1\r\nHost: soak.test\r\nX-Soak-Id: {id}\r\n{length}\r\n{body}"
    ));
    let (outcome, goes_on) = match sent.map(|()| client.try_read_response()) {
        Err(e) => (Outcome::Lost(e.to_string()), false),
        Ok(Err(broken)) => (Outcome::Lost(broken.why), false),
        Ok(Ok(response)) => {
            let goes_on = response.header("connection") != Some("close");
            let cause = response.header("x-weir-cause").unwrap_or_default();
            let outcome = match response.status {
                200 if route == Route::Local || response.body.bytes == id.as_bytes() => Outcome::Answered,
                200 => Outcome::Wrong(response.text()),
                status => Outcome::Refused(status, cause.to_owned()),
            };
            (outcome, goes_on)
        }
    };
    note(shared, number, route, post, began, outcome);
    goes_on
}

fn note(shared: &Shared, number: usize, route: Route, post: bool, began: Instant, outcome: Outcome) {
    let (fault, quiet) = (shared.control.fault.load(Relaxed), shared.control.quiet.load(Relaxed));
    if outcome == Outcome::Answered {
        shared.control.answered.fetch_add(1, Relaxed);
    }
    let asked = Asked { route, post, fault, quiet, took: began.elapsed(), outcome };
    shared.asked[number].lock().unwrap().push(asked);
}
