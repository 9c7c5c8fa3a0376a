//! Turns what a core kept into a report for people.

use super::kept::{Kept, Kind, Outcome, Step, Text};
use super::{Autopsy, CauseShown, ClientShown, Moment, Neighbour, RequestShown, RouteShown, keys, sentence};
use crate::snapshot::Snapshot;
use std::time::{Duration, SystemTime};
use weir_config::digest;
use weir_config::{Node, Source, load};
use weir_route::NearMiss;
use weir_telemetry::timestamp;
use weir_upstream::upstream::Upstream;

/// The config as its files are now.
pub struct Files {
    tree: Node,
    revision: String,
}

/// What a report needs besides the kept exchange.
pub struct ReportContext<'a> {
    /// The config that runs.
    pub snapshot: &'a Snapshot,
    /// `None` if the files cannot be read any more.
    pub files: Option<&'a Files>,
}

impl Files {
    /// The config of this source; `None` if it cannot be read.
    pub fn read(source: &Source) -> Option<Self> {
        let tree = load(source).ok()?.tree;
        Some(Self { revision: digest::of(&tree), tree })
    }
}

impl ReportContext<'_> {
    /// The report on one exchange.
    pub fn render(&self, kept: &Kept) -> Autopsy {
        let text = |which| kept.text(which).into_owned();
        let some = |which| Some(text(which)).filter(|text| !text.is_empty());
        let list = |which| text(which).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let revision = text(Text::Revision);
        let config_changed = revision != self.snapshot.revision;
        let route = if config_changed {
            RouteShown { name: some(Text::Route), ..RouteShown::default() }
        } else {
            self.route(kept)
        };
        let (address, peer) = (kept.client.map(|ip| ip.to_canonical()), kept.peer);
        Autopsy {
            alike: 0,
            id: text(Text::Id),
            kind: kept.kind.name(),
            at: timestamp(kept.began),
            sentence: sentence::of(
                kept,
                route.near.first(),
                &self.out_of_rotation(kept),
                self.is_out_by_hand(kept),
            ),
            key: self.key(kept),
            cause: kept.cause.map(|c| CauseShown { code: c.code, meaning: c.meaning, change: c.change }),
            status: kept.status,
            timeline: timeline(kept, &route),
            total_us: kept.timing.total.as_micros() as u64,
            client: ClientShown {
                address: address.map(|ip| ip.to_string()),
                peer: peer
                    .filter(|peer| Some(peer.ip().to_canonical()) != address)
                    .map(|peer| peer.to_string()),
                protocol: kept.protocol,
                tls: kept.tls.map(|(version, cipher)| format!("{version} {cipher}")),
                listener: text(Text::Listener),
            },
            request: RequestShown {
                method: text(Text::Method),
                host: text(Text::Host),
                path: text(Text::Path),
                query: list(Text::Query),
                fields: list(Text::Fields),
                cut: [Text::Path, Text::Query, Text::Fields].into_iter().any(|which| kept.is_cut(which)),
            },
            route,
            filters: list(Text::Filters),
            consumer: some(Text::Consumer),
            arm: some(Text::Arm),
            upstream: some(Text::Upstream),
            endpoint: some(Text::Endpoint),
            attempts: kept.attempts,
            bytes_in: kept.bytes_in,
            bytes_out: kept.bytes_out,
            revision,
            config_changed,
        }
    }

    /// The exchange's upstream, if the config still has one of that name.
    fn upstream(&self, kept: &Kept) -> Option<&Upstream> {
        let name = kept.text(Text::Upstream);
        let all = self.snapshot.upstreams.iter();
        all.map(|upstream| &**upstream).find(|upstream| *upstream.name == *name)
    }

    /// Why endpoints are out of rotation now, in the order they left. If an exchange found none left, the first to
    /// leave is where it began.
    fn out_of_rotation(&self, kept: &Kept) -> Vec<String> {
        /// Most endpoints reported.
        const REPORTED_MAX: usize = 3;
        if kept.cause.is_none_or(|cause| cause.code != "no_healthy_endpoint") {
            return Vec::new();
        }
        let Some(upstream) = self.upstream(kept) else { return Vec::new() };
        let list = upstream.published.list();
        let mut out: Vec<_> = list
            .iter()
            .filter_map(|endpoint| {
                let why = endpoint.health.whys().into_iter().min_by_key(|why| why.since)?;
                let detail = why.detail.as_deref().map_or_else(String::new, |detail| format!(", {detail}"));
                let since = timestamp(why.since);
                Some((
                    why.since,
                    format!("{} is out since {since} (`{}`{detail})", endpoint.label, why.cause),
                ))
            })
            .collect();
        out.sort_by_key(|(since, _)| *since);
        let more = out.len().saturating_sub(REPORTED_MAX);
        let told = out.into_iter().take(REPORTED_MAX).map(|(_, text)| text);
        told.chain((more > 0).then(|| format!("and {more} more"))).collect()
    }

    /// Whether every endpoint of the exchange's upstream had been taken out of rotation by hand before it began. Others
    /// may have failed then and be back by now.
    fn is_out_by_hand(&self, kept: &Kept) -> bool {
        self.upstream(kept).is_some_and(|upstream| {
            let list = upstream.published.list();
            let mut whys = list.iter().map(|endpoint| endpoint.health.whys());
            !list.is_empty()
                && whys.all(|whys| whys.iter().any(|why| why.cause == "by_hand" && why.since <= kept.began))
        })
    }

    fn key(&self, kept: &Kept) -> Option<super::KeyShown> {
        let change = match (kept.cause, kept.kind) {
            (Some(cause), _) => cause.change,
            (None, Kind::Failed) => "upstreams.*.retry",
            (None, Kind::Sampled | Kind::Slow) => return None,
        };
        let mut key = keys::of(kept, change, self.files.map(|files| &files.tree))?;
        let note = match self.files {
            None => Some("the config cannot be read now, so its line is unknown"),
            Some(files) if files.revision != *kept.text(Text::Revision) => {
                Some("the config has changed since: this is the line as it is now")
            }
            Some(_) => None,
        };
        if let Some(note) = note {
            key.note = Some(key.note.map_or_else(|| note.to_owned(), |own| format!("{own}; {note}")));
        }
        Some(key)
    }

    /// The route taken and its neighbors. The table is asked again with what was kept of the request. Values of
    /// header fields and query parameters are not kept, so conditions on them and expressions decide nothing here.
    fn route(&self, kept: &Kept) -> RouteShown {
        let name = Some(kept.text(Text::Route).into_owned()).filter(|name| !name.is_empty());
        let shown = RouteShown { name, ..RouteShown::default() };
        let code = kept.cause.map_or("", |cause| cause.code);
        if kept.is_cut(Text::Path) || kept.is_cut(Text::Host) || (shown.name.is_none() && code != "no_route")
        {
            return shown;
        }
        let of_listener = kept.text(Text::Listener);
        let Some(listener) = self.snapshot.listeners.iter().position(|l| *l.name == *of_listener) else {
            return shown;
        };
        let (received, host, method) =
            (kept.text(Text::Path), kept.text(Text::Host), kept.text(Text::Method));
        let mut canonical = Vec::new();
        let slashes = self.snapshot.listeners[listener].slashes;
        let Ok((form, _)) = weir_route::examine(received.as_bytes(), slashes, &mut canonical) else {
            return shown;
        };
        let none: &[(&[u8], &[u8])] = &[];
        let request = weir_route::Request {
            listener: u16::try_from(listener).unwrap_or(u16::MAX),
            host: host.as_bytes(),
            method: method.as_bytes(),
            path: form.choose(received.as_bytes(), &canonical),
            query: None,
            headers: none,
        };
        let decision = weir_route::explain(&self.snapshot.table, &request, weir_route::NEAR_MISSES);
        if shown.name.is_none() {
            let near = decision.near_misses.into_iter().take(3).map(neighbour);
            return RouteShown { near: near.collect(), ..shown };
        }
        let winner = decision.winner.map(|winner| winner.route);
        if winner != shown.name {
            return shown; // a value decided that was not kept
        }
        let next =
            decision.lost.into_iter().next().map(|lost| Neighbour { route: lost.route, why: lost.why });
        RouteShown { runner_up: next, ..shown }
    }
}

fn neighbour(miss: NearMiss) -> Neighbour {
    let why = match miss.failed.split_once(' ') {
        Some((kind @ ("cookie" | "header" | "query"), name)) => {
            format!("it asks for the {kind} `{name}`, of which no value was kept")
        }
        _ if miss.failed == "clients" => {
            "it asks for clients of some networks, and no address was kept".to_owned()
        }
        _ if miss.failed == "when" => "it asks by an expression, of whose values none were kept".to_owned(),
        _ => miss.why,
    };
    Neighbour { route: miss.route, why }
}

/// Everything that took time, in order.
fn timeline(kept: &Kept, route: &RouteShown) -> Vec<Moment> {
    let mut moments = Vec::new();
    let mut add = |at: Duration, took: Option<Duration>, what: String| {
        let us = |time: Duration| time.as_micros() as u64;
        moments.push(Moment { at_us: us(at), took_us: took.filter(|took| !took.is_zero()).map(us), what });
    };
    let timing = &kept.timing;
    if !kept.text(Text::Method).is_empty() || !kept.protocol.is_empty() {
        add(Duration::ZERO, Some(timing.head), request_line(kept));
    }
    if let Some(name) = &route.name {
        let next = route.runner_up.as_ref();
        let next = next.map_or_else(String::new, |next| {
            format!("; next would have been `{}`: {}", next.route, next.why)
        });
        add(timing.head, None, format!("route `{name}`{next}"));
    }
    let filters = kept.text(Text::Filters);
    if !filters.is_empty() {
        let took = Some(timing.filters);
        let arm = kept.text(Text::Arm);
        let arm = if arm.is_empty() { String::new() } else { format!("; the arm `{arm}` of the split") };
        add(timing.head, took, format!("filters: {}{arm}", filters.replace(' ', ", ")));
    }
    for step in &kept.steps {
        let (at, took, what) = step_line(step);
        add(at, Some(took), what);
    }
    let answered = !timing.first_byte.is_zero();
    if let (Some(at), true) = (kept.attempt, answered) {
        add(at, Some(timing.connect + timing.tls + timing.first_byte), answered_attempt(kept));
    }
    let stopped = kept.stopped_by.map_or_else(String::new, |filter| format!(", from the filter `{filter}`"));
    add(timing.total, None, format!("{}{stopped}", ending(kept)));
    moments.sort_by_key(|moment| moment.at_us); // stable
    moments
}

fn request_line(kept: &Kept) -> String {
    let from = match (kept.client, kept.peer) {
        (Some(client), _) => client.to_canonical().to_string(),
        (None, Some(peer)) => peer.to_string(),
        (None, None) => "a Unix socket".to_owned(),
    };
    let tls = kept.tls.map_or_else(String::new, |(version, _)| format!(", {version}"));
    format!("{} from {from} on listener `{}`{tls}", kept.protocol, kept.text(Text::Listener))
}

fn step_line(step: &Step) -> (Duration, Duration, String) {
    let us = |us: u32| Duration::from_micros(us.into());
    match step {
        Step::Waited { filter, at, took } => (us(*at), us(*took), format!("the filter `{filter}` waited")),
        Step::Attempt { endpoint, outcome, at, took, connect, tls, reused, detail } => {
            let detail = detail.as_ref().map_or_else(String::new, |detail| format!(" ({detail})"));
            let what = match outcome {
                Outcome::Canceled => "canceled, the other attempt won".to_owned(),
                Outcome::Cause(cause) => format!("{}{detail}", cause.code),
                Outcome::Status(status) => format!("answered {status}, which is tried again"),
            };
            let way = way(us(*connect), us(*tls), *reused);
            (us(*at), us(*took), format!("attempt at {endpoint}: {what}{way}"))
        }
    }
}

fn answered_attempt(kept: &Kept) -> String {
    let timing = &kept.timing;
    let way = way(timing.connect, timing.tls, kept.reused);
    let first = sentence::time(timing.first_byte);
    format!("attempt at {}: first byte after {first}{way}", kept.text(Text::Endpoint))
}

/// How the connection came about.
fn way(connect: Duration, tls: Duration, reused: bool) -> String {
    match (reused, connect.is_zero(), tls.is_zero()) {
        (true, ..) => ", on a connection that was open".to_owned(),
        (false, true, _) => String::new(),
        (false, false, true) => format!(", connected in {}", sentence::time(connect)),
        (false, false, false) => {
            format!(", connected in {}, TLS in {}", sentence::time(connect), sentence::time(tls))
        }
    }
}

fn ending(kept: &Kept) -> String {
    let cause = kept.cause.map_or_else(String::new, |cause| format!(", {}", cause.code));
    match (kept.status, kept.cause) {
        (0, Some(cause)) if kept.text(Text::Method).is_empty() => format!("connection ended: {}", cause.code),
        (0, _) => format!("ended without an answer{cause}"),
        (status, Some(_)) if kept.begun && kept.cause.is_some_and(|cause| cause.status == 0) => {
            format!("cut after {} bytes of the answer {status}{cause}", kept.bytes_out)
        }
        (status, _) if kept.tunnel => format!("the tunnel ended ({status}){cause}"),
        (status, _) => format!("{status}{cause}, {} bytes sent to the client", kept.bytes_out),
    }
}

/// A connection that ended before its first request.
pub fn connection(
    kept: &mut Kept,
    cause: &'static weir_upstream::error::Cause,
    listener: &str,
    peer: Option<std::net::SocketAddr>,
    revision: &str,
    detail: &str,
) {
    let entry = weir_telemetry::Entry {
        time: SystemTime::now(),
        client: peer.map(|peer| peer.ip()),
        peer,
        listener,
        ..weir_telemetry::Entry::default()
    };
    let beside = super::kept::Details {
        kind: Kind::Failed,
        cause: Some(cause),
        revision,
        steps: &[],
        attempt: None,
        reused: false,
        exceeded: None,
        filters: &mut std::iter::empty(),
        fields: &mut std::iter::empty(),
        stopped_by: None,
        detail: Some(detail),
        begun: false,
    };
    kept.fill(&entry, "", beside);
}
