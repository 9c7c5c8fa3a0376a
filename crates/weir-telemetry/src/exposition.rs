//! `/metrics`: all metrics, as Prometheus text or OpenMetrics.
//!
//! The tables of docs/reference/metrics.md are generated from the help texts. Names follow the Prometheus
//! conventions: base units, `_total` on counters, the unit at the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, UNIX_EPOCH};

use crate::cell::{Counter, StatusCounts};
use crate::exported::Lost;
use crate::figure::{Figure, FigureKind};
use crate::log;
use crate::process::Process;
use crate::registry::{CoreCells, KeptCertificate, SeriesTables, SourceState, Telemetry};
use crate::series::{
    Attempt, Closed, ConsumerCells, EndpointCells, ListenerCells, Protocol, RouteCells, Series, UpstreamCells,
};
use crate::text;
use page::{Kind, Page};

mod page;

/// The format of a page of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text format 0.0.4.
    Text,
}

/// One figure of a filter's state.
#[derive(Clone, Debug)]
pub struct FilterReading {
    /// The place of the filter: `routes.NAME`, `plans.NAME` or `filters`.
    pub place: String,
    /// The kind of figure.
    pub figure: &'static Figure,
    /// The measured thing, such as an upstream: the value of [`Figure::of`].
    pub of: String,
    /// The value.
    pub value: u64,
}

impl Exposition {
    /// The value of Content-Type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Chooses the format by the value of an Accept header (RFC 9110 §12.5.1).
///
/// OpenMetrics if the header names it and prefers it at least as much as plain text; plain text in all other cases,
/// even if the header accepts neither. A person with a browser or curl should see something.
pub fn negotiate(accept: &str) -> Exposition {
    let mut open_metrics: f32 = 0.0;
    let mut plain: f32 = 0.0;
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or("").to_ascii_lowercase();
        let mut q: f32 = 1.0;
        let mut known_version = true;
        for parameter in parts {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match key.trim().to_ascii_lowercase().as_str() {
                "q" => q = value.trim().parse().unwrap_or(0.0),
                "version" => {
                    known_version = matches!(value.trim().trim_matches('"'), "0.0.1" | "1.0.0" | "0.0.4")
                }
                _ => {}
            }
        }
        match name.as_str() {
            "application/openmetrics-text" if known_version => open_metrics = q.max(open_metrics),
            "text/plain" if known_version => plain = q.max(plain),
            // A wildcard permits plain text but does not request it.
            _ => {}
        }
    }
    if open_metrics > 0.0 && open_metrics >= plain { Exposition::OpenMetrics } else { Exposition::Text }
}

impl Telemetry {
    /// The page for `/metrics`.
    ///
    /// Runs on the control thread and takes no lock that a core takes. For its cost see docs/reference/metrics.md.
    pub fn expose(&self, format: Exposition) -> String {
        self.expose_with(format, &[])
    }

    /// Like `expose`, with readings of the filters' state.
    pub fn expose_with(&self, format: Exposition, readings: &[FilterReading]) -> String {
        page(self, format, readings)
    }
}

/// Writes the whole page, then drops unused series: the page contained their last counts.
fn page(telemetry: &Telemetry, format: Exposition, readings: &[FilterReading]) -> String {
    let lists = {
        let tables = telemetry.series();
        Lists::of(&tables)
    };
    // A route takes some 2.2 KiB once it has all its histograms.
    let mut page = Page::new(format, 16 * 1024 + lists.routes.len() * 3000 + lists.upstreams.len() * 1500);
    about(&mut page, telemetry);
    totals(&mut page, telemetry);
    listeners(&mut page, &lists);
    routes(&mut page, telemetry, &lists);
    consumers(&mut page, &lists);
    upstreams(&mut page, telemetry, &lists);
    filters(&mut page, readings);
    process(&mut page, &Process::read());
    drop(lists);
    telemetry.retire();
    page.finish()
}

/// The series to expose, copied out of the tables so that a reload never waits for a scrape.
struct Lists {
    consumers: Vec<Arc<Series<ConsumerCells>>>,
    listeners: Vec<Arc<Series<ListenerCells>>>,
    routes: Vec<Arc<Series<RouteCells>>>,
    upstreams: Vec<Arc<Series<UpstreamCells>>>,
    endpoints: Vec<Arc<Series<EndpointCells>>>,
}

impl Lists {
    fn of(tables: &SeriesTables) -> Self {
        Self {
            consumers: tables.consumers.list(),
            listeners: tables.listeners.list(),
            routes: tables.routes.list(),
            upstreams: tables.upstreams.list(),
            endpoints: tables.endpoints.list(),
        }
    }
}

/// The build, the config and the reloads.
fn about(page: &mut Page, telemetry: &Telemetry) {
    let config = telemetry.config().clone();
    let build =
        format!("{},{}", pair("version", telemetry.setup.version), pair("commit", telemetry.setup.commit));
    page.family(Kind::Info, "weir_build", "1; the version and commit of this program.");
    page.sample(&build, "", 1);
    page.family(Kind::Info, "weir_config", "1; the revision of the running config.");
    page.sample(&pair("revision", &config.revision), "", 1);
    page.family(
        Kind::Gauge(""),
        "weir_config_last_reload_successful",
        "1 if the last config, at the start or at a reload, took effect.",
    );
    page.sample("", "", u8::from(config.last_successful));
    page.family(
        Kind::Gauge("seconds"),
        "weir_config_last_reload_success_timestamp_seconds",
        "When the running config took effect, in Unix time.",
    );
    let at = config.last_success.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    page.seconds("", ns(at));
    page.family(Kind::Counter(""), "weir_reloads", "Reloads of the config, by result: ok or refused.");
    page.sample("", "result=\"ok\"", config.reloads_ok);
    page.sample("", "result=\"refused\"", config.reloads_failed);
    page.family(
        Kind::Gauge(""),
        "weir_config_drift",
        "1 while the files do not run: rolled_back, a revision runs in their place; unsaved, what runs could not be written.",
    );
    page.sample("", "reason=\"rolled_back\"", u8::from(config.rolled_back));
    page.sample("", "reason=\"unsaved\"", u8::from(config.unsaved));
    if let Some(source) = &config.source {
        of_source(page, source);
    }
    let help = "When a certificate of a listener expires, in Unix time, by its file and its first name.";
    page.family(Kind::Gauge("seconds"), "weir_certificate_expiry_timestamp_seconds", help);
    for certificate in &config.certificates {
        let labels = format!("{},{}", pair("cert", &certificate.cert), pair("name", &certificate.name));
        page.sample(&labels, "", certificate.not_after);
    }
    for kept in &config.kept {
        let labels = format!("{},{}", pair("cert", &kept.cert), pair("name", &kept.name));
        if let Some(end) = kept.not_after {
            page.sample(&labels, "", end);
        }
    }
    kept_certificates(page, &config.kept);
    page.family(Kind::Gauge(""), "weir_workers", "Data-plane threads, one per core.");
    page.sample("", "", telemetry.workers.load(Relaxed));
}

/// Certificates renewed automatically by ACME; empty if there are none.
fn kept_certificates(page: &mut Page, kept: &[KeptCertificate]) {
    if kept.is_empty() {
        return;
    }
    let name = |kept: &KeptCertificate| pair("name", &kept.name);
    let help = "1 while clients see a self-signed stand-in, because no certificate was issued yet.";
    page.family(Kind::Gauge(""), "weir_acme_stand_in", help);
    for kept in kept {
        page.sample(&name(kept), "", u8::from(kept.not_after.is_none()));
    }
    let help = "Failed orders of a certificate since the last that succeeded.";
    page.family(Kind::Gauge(""), "weir_acme_failures", help);
    for kept in kept {
        page.sample(&name(kept), "", kept.failures);
    }
    let help = "When a certificate will be renewed, in Unix time.";
    page.family(Kind::Gauge("seconds"), "weir_acme_renewal_timestamp_seconds", help);
    for kept in kept {
        if let Some(at) = kept.renew_at {
            page.sample(&name(kept), "", at);
        }
    }
}

/// The source of the config.
fn of_source(page: &mut Page, source: &SourceState) {
    page.family(Kind::Info, "weir_config_source", "1; digest of the running bundle, with a source.");
    page.sample(&pair("bundle", &source.bundle), "", 1);
    if !source.node.is_empty() {
        page.family(Kind::Info, "weir_node", "1; this node of a fleet; the labels as name=value,name=value.");
        let mut labels = String::new();
        for (name, value) in [("node", &source.node), ("zone", &source.zone), ("labels", &source.labels)] {
            if !labels.is_empty() {
                labels.push(',');
            }
            text::label(&mut labels, name, value);
        }
        page.sample(&labels, "", 1);
    }
    page.family(Kind::Gauge(""), "weir_config_source_up", "1 if the source of the config answers.");
    page.sample("", "", u8::from(source.answers));
    let help = "1 if the bundle that should run was refused.";
    page.family(Kind::Gauge(""), "weir_config_source_refused", help);
    page.sample("", "", u8::from(source.refused));
    let help = "When the source of the config answered last, in Unix time; 0 if it never did.";
    page.family(Kind::Gauge("seconds"), "weir_config_source_contact_timestamp_seconds", help);
    let at = source.contact.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    page.seconds("", ns(at));
}

/// Metrics that belong to no listener, route or upstream.
fn totals(page: &mut Page, telemetry: &Telemetry) {
    page.family(Kind::Counter(""), "weir_causes", "Answers that the gateway made itself, by cause code.");
    indexed(page, telemetry, "cause", telemetry.setup.causes, CoreCells::cause);
    page.family(Kind::Counter(""), "weir_limits_hit", "Times that a limit was reached, by its name.");
    indexed(page, telemetry, "limit", telemetry.setup.limits, CoreCells::limit);

    page.family(
        Kind::Counter(""),
        "weir_access_log_dropped",
        "Lines of the access log that were lost: slow, the sink was behind; failed, not written.",
    );
    let slow: u64 = telemetry.cores.read().iter().map(|core| core.access_log_dropped.get()).sum();
    page.sample("", "reason=\"slow\"", slow);
    page.sample("", "reason=\"failed\"", telemetry.access_log_lost());
    page.family(
        Kind::Counter(""),
        "weir_log_dropped",
        "Lines of the log of the process that were lost, for either reason.",
    );
    page.sample("", "", log::dropped());

    let spans = telemetry.spans();
    page.family(Kind::Counter(""), "weir_spans_exported", "Spans that the collector took.");
    page.sample("", "", spans.total());
    page.family(Kind::Counter(""), "weir_spans_dropped", "Spans that were lost: slow, failed or rejected.");
    for why in Lost::ALL {
        page.sample("", &pair("reason", why.name()), spans.lost_by(why));
    }

    page.family(
        Kind::Counter(""),
        "weir_series_folded",
        "Names that share the series overflow because there are too many, by kind: consumer, endpoint, listener, route or upstream. They count again at each reload.",
    );
    let folded = {
        let tables = telemetry.series();
        [
            ("consumer", tables.consumers.folded),
            ("endpoint", tables.endpoints.folded),
            ("listener", tables.listeners.folded),
            ("route", tables.routes.folded),
            ("upstream", tables.upstreams.folded),
        ]
    };
    for (kind, n) in folded {
        page.sample("", &pair("kind", kind), n);
    }
}

fn listeners(page: &mut Page, lists: &Lists) {
    let all = &lists.listeners;
    page.counters(("weir_connections_accepted", "", "Connections accepted from clients."), all, |c| {
        &c.accepted
    });
    page.gauges("weir_connections_active", "Connections of clients open now.", all, |c| &c.active);
    let reasons = Closed::ALL.map(|reason| pair("reason", reason.name()));
    let closed = ("weir_connections_closed", "", "Connections of clients that ended, by reason.");
    page.counters_by(closed, all, &reasons, |c, i| &c.closed[i]);
    let received = ("weir_connection_received_bytes", "bytes", "Bytes received from clients, without TLS.");
    page.counters(received, all, |c| &c.received_bytes);
    let sent = ("weir_connection_sent_bytes", "bytes", "Bytes sent to clients, without TLS.");
    page.counters(sent, all, |c| &c.sent_bytes);
    let protocols = Protocol::ALL.map(|protocol| pair("protocol", protocol.name()));
    let requests = (
        "weir_connection_requests",
        "",
        "Requests by protocol of the connection, http1, h2 or h3; not those refused by their head alone.",
    );
    page.counters_by(requests, all, &protocols, |c, i| &c.requests[i]);
    let help = "Requests on a connection that had carried one before.";
    page.family(Kind::Counter(""), "weir_keepalive_requests", help);
    for series in all {
        page.sample(&series.labels, "", series.cores.read().iter().map(|cells| cells.reused()).sum::<u64>());
    }
    let results = ["ok", "failed"].map(|result| pair("result", result));
    let handshakes = ("weir_tls_handshakes", "", "TLS handshakes with clients, by result: ok or failed.");
    page.counters_by(handshakes, all, &results, |c, i| [&c.handshakes_ok, &c.handshakes_failed][i]);
}

fn routes(page: &mut Page, telemetry: &Telemetry, lists: &Lists) {
    let all = &lists.routes;
    page.family(Kind::Counter(""), "weir_requests", "Responses sent to clients, by status code.");
    let mut codes = Vec::new();
    for series in all {
        status_counts(page, series, |cells| &cells.requests, &mut codes);
    }
    page.gauges("weir_requests_active", "Exchanges under way, tunnels included.", all, |c| &c.active);
    let duration = "From the first byte of a request to the last byte of its response. Without tunnels.";
    page.histograms_with("weir_request_duration_seconds", duration, all, |c| (&c.duration, c.exemplars()));
    let first_byte = "From the last byte of a request to an upstream to the first byte of its answer, so without the upload.";
    page.histograms("weir_upstream_first_byte_seconds", first_byte, all, |c| &c.upstream_duration);
    let request = ("weir_request_body_bytes", "bytes", "Bytes of request bodies.");
    page.counters(request, all, |c| &c.request_bytes);
    let response = ("weir_response_body_bytes", "bytes", "Bytes of response bodies.");
    page.counters(response, all, |c| &c.response_bytes);
    let help = "Answers of a route that the gateway made itself, by cause code.";
    page.family(Kind::Counter(""), "weir_route_causes", help);
    for series in all {
        route_causes(page, telemetry, series, &mut codes);
    }
}

fn consumers(page: &mut Page, lists: &Lists) {
    let all = &lists.consumers;
    page.family(Kind::Counter(""), "weir_consumer_requests", "Responses sent to a consumer, by status code.");
    let mut codes = Vec::new();
    for series in all {
        status_counts(page, series, |cells| &cells.requests, &mut codes);
    }
    let request = ("weir_consumer_request_body_bytes", "bytes", "Bytes of request bodies of a consumer.");
    page.counters(request, all, |c| &c.request_bytes);
    let response = ("weir_consumer_response_body_bytes", "bytes", "Bytes of response bodies for a consumer.");
    page.counters(response, all, |c| &c.response_bytes);
}

/// Represents all codes beyond the limit; sorts after all others.
const OTHER: u16 = u16::MAX;

/// The counts of one series by code, lowest first, [`OTHER`] last.
fn add_up<C>(series: &Series<C>, pick: impl Fn(&C) -> &StatusCounts, codes: &mut Vec<(u16, u64)>) {
    codes.clear();
    for cells in series.cores.read().iter() {
        pick(cells).each(|code, n| {
            let code = code.unwrap_or(OTHER);
            match codes.iter_mut().find(|(known, _)| *known == code) {
                Some((_, sum)) => *sum += n,
                None => codes.push((code, n)),
            }
        });
    }
    codes.sort_unstable();
}

/// The causes of one route. `codes` is scratch space.
fn route_causes(
    page: &mut Page,
    telemetry: &Telemetry,
    series: &Series<RouteCells>,
    codes: &mut Vec<(u16, u64)>,
) {
    add_up(series, |cells| &cells.causes, codes);
    for (code, n) in codes {
        let name = if *code == OTHER { "other" } else { telemetry.cause_name(usize::from(*code) - 1) };
        page.sample(&series.labels, &pair("cause", name), *n);
    }
}

/// The status codes of one series. `codes` is scratch space.
fn status_counts<C>(
    page: &mut Page,
    series: &Series<C>,
    pick: impl Fn(&C) -> &StatusCounts,
    codes: &mut Vec<(u16, u64)>,
) {
    add_up(series, pick, codes);
    let mut label = String::new();
    for (code, n) in codes {
        label.clear();
        let mut digits = itoa::Buffer::new();
        let shown = if *code == OTHER { "other" } else { digits.format(*code) };
        label.extend(["code=\"", shown, "\""]);
        page.sample(&series.labels, &label, *n);
    }
}

fn upstreams(page: &mut Page, telemetry: &Telemetry, lists: &Lists) {
    let all = &lists.upstreams;
    let outcomes = Attempt::ALL.map(|outcome| pair("outcome", outcome.name()));
    let attempts = ("weir_upstream_attempts", "", "Attempts at an endpoint, by outcome.");
    page.counters_by(attempts, all, &outcomes, |c, i| &c.attempts[i]);
    let retries = (
        "weir_upstream_retries",
        "",
        "Attempts after the first of an exchange or of a request of a filter. A failed connect counts, an avoided endpoint does not.",
    );
    page.counters(retries, all, |c| &c.retries);
    let refused =
        ("weir_upstream_retries_refused", "", "Attempts that retry wanted when its budget was spent.");
    page.counters(refused, all, |c| &c.retries_refused);
    page.counters(("weir_upstream_hedges", "", "Attempts beside one that took long, by hedge."), all, |c| {
        &c.hedges
    });
    let won = ("weir_upstream_hedges_won", "", "Hedges whose answer won.");
    page.counters(won, all, |c| &c.hedges_won);
    let refused =
        ("weir_upstream_hedges_refused", "", "Attempts that hedge wanted when its budget was spent.");
    page.counters(refused, all, |c| &c.hedges_refused);
    let open = "Connections to the upstream open now, idle ones included.";
    page.gauges("weir_upstream_connections_open", open, all, |c| &c.connections_open);
    let idle = "Connections to the upstream that wait in the pool.";
    page.gauges("weir_upstream_connections_idle", idle, all, |c| &c.connections_idle);
    page.counters(("weir_upstream_connects", "", "Connections made to the upstream."), all, |c| &c.connects);
    let failures = (
        "weir_upstream_connect_failures",
        "",
        "Connections that failed, except for lack of our own descriptors or ports.",
    );
    page.counters(failures, all, |c| &c.connect_failures);
    let reused =
        ("weir_upstream_connections_reused", "", "Attempts on a connection that had carried one before.");
    page.counters(reused, all, |c| &c.reused);
    let pending = "Requests that wait for a connection to the upstream.";
    page.gauges("weir_upstream_requests_pending", pending, all, |c| &c.pending);
    let panic = "1 while fewer than half of the endpoints are in rotation, so that unwell ones are used too.";
    page.family(Kind::Gauge(""), "weir_upstream_panic", panic);
    for series in all.iter().filter(|series| !series.overflow) {
        page.sample(&series.labels, "", u8::from(series.panicking()));
    }
    discovery(page, all);

    let all = &lists.endpoints;
    page.gauges("weir_endpoint_attempts_active", "Attempts under way at the endpoint.", all, |c| &c.active);
    let healthy = "1 if the endpoint is in rotation; 0 also while a connect is due.";
    page.family(Kind::Gauge(""), "weir_endpoint_healthy", healthy);
    for series in all.iter().filter(|series| !series.overflow) {
        page.sample(&series.labels, "", u8::from(series.healthy()));
    }
    endpoint_attempts(page, telemetry, all);
    endpoint_health(page, all);
}

/// The metrics of registries. Upstreams without one do not appear.
fn discovery(page: &mut Page, all: &[Arc<Series<UpstreamCells>>]) {
    let known = || all.iter().filter_map(|series| Some((&series.labels, series.discovery()?)));
    page.family(
        Kind::Gauge(""),
        "weir_discovery_up",
        "1 if the registry of the upstream answers. Absent without a registry.",
    );
    known().for_each(|(labels, cells)| page.sample(labels, "", u8::from(cells.follows.load(Relaxed))));
    let help =
        "Lists of endpoints from the registry that differed from the one before. Absent without a registry.";
    page.family(Kind::Counter(""), "weir_discovery_changes", help);
    known().for_each(|(labels, cells)| page.sample(labels, "", cells.changes.load(Relaxed)));
    let help = "Questions that the registry did not answer with a list. Absent without a registry.";
    page.family(Kind::Counter(""), "weir_discovery_failures", help);
    known().for_each(|(labels, cells)| page.sample(labels, "", cells.failures.load(Relaxed)));
}

/// Why endpoints are out of rotation. Shows only what has occurred: most endpoints are healthy.
fn endpoint_health(page: &mut Page, all: &[Arc<Series<EndpointCells>>]) {
    let known = || all.iter().filter_map(|series| Some((&series.labels, series.health()?)));
    let help = "Since when the endpoint is out of rotation, in Unix time, by each reason that holds. Absent otherwise.";
    page.family(Kind::Gauge("seconds"), "weir_endpoint_out_since_timestamp_seconds", help);
    for (labels, health) in known() {
        health.holding().for_each(|(reason, since)| page.sample(labels, &pair("reason", reason), since));
    }
    let help = "Times that the endpoint left rotation, by reason. Absent until the first.";
    page.family(Kind::Counter(""), "weir_endpoint_out", help);
    for (labels, health) in known() {
        health.left().for_each(|(reason, n)| page.sample(labels, &pair("reason", reason), n));
    }
    let help = "Times that the endpoint was ejected, by rule: errors_in_a_row or error_rate. Absent until the first.";
    page.family(Kind::Counter(""), "weir_endpoint_ejections", help);
    for (labels, health) in known() {
        health.ejections().for_each(|(rule, n)| page.sample(labels, &pair("rule", rule), n));
    }
    let help = "Probes of the endpoint, by outcome: passed or failed. Absent until the first.";
    page.family(Kind::Counter(""), "weir_endpoint_probes", help);
    for (labels, health) in known() {
        health.probes().for_each(|(outcome, n)| page.sample(labels, &pair("outcome", outcome), n));
    }
}

fn endpoint_attempts(page: &mut Page, telemetry: &Telemetry, all: &[Arc<Series<EndpointCells>>]) {
    let outcomes = ["answered", "failed"].map(|outcome| pair("outcome", outcome));
    let attempts = (
        "weir_endpoint_attempts",
        "",
        "Attempts at the endpoint that ended: answered, or failed without a connection or a valid response.",
    );
    page.counters_by(attempts, all, &outcomes, |c, i| [&c.answered, &c.failed][i]);
    let errors = ("weir_endpoint_errors", "", "Attempts at the endpoint that were answered with 5xx.");
    page.counters(errors, all, |c| &c.errors);
    let help = "From the last byte of a request to the first byte of its answer, added up; divided by the answered attempts it is the mean.";
    page.family(Kind::Counter("seconds"), "weir_endpoint_first_byte_seconds", help);
    for series in all {
        page.seconds(&series.labels, ns(series.totals().first_byte));
    }
    let help =
        "When an attempt at the endpoint failed last, in Unix time, by its cause. Absent until the first.";
    page.family(Kind::Gauge("seconds"), "weir_endpoint_last_failure_timestamp_seconds", help);
    for series in all {
        if let Some((cause, at)) = series.totals().last_failure {
            let labels = format!("{},{}", series.labels, pair("cause", telemetry.cause_name(cause)));
            page.seconds(&labels, ns(at.duration_since(UNIX_EPOCH).unwrap_or_default()));
        }
    }
}

fn filters(page: &mut Page, readings: &[FilterReading]) {
    let mut families: BTreeMap<&str, Vec<&FilterReading>> = BTreeMap::new();
    for reading in readings {
        families.entry(reading.figure.family).or_default().push(reading);
    }
    for (name, readings) in families {
        let Some(Figure { kind, unit, help, .. }) = readings.first().map(|reading| reading.figure) else {
            continue;
        };
        page.family(
            match kind {
                FigureKind::Counter => Kind::Counter(unit),
                FigureKind::Gauge => Kind::Gauge(unit),
            },
            name,
            help,
        );
        // A place may contain a filter twice, but each series must appear on the page once.
        let mut samples: BTreeMap<String, u64> = BTreeMap::new();
        for FilterReading { place, figure, of, value } in readings {
            let mut labels = pair("place", place);
            if !figure.of.is_empty() {
                labels.push(',');
                text::label(&mut labels, figure.of, of);
            }
            let sample = samples.entry(labels).or_default();
            *sample = match kind {
                FigureKind::Counter => sample.saturating_add(*value),
                FigureKind::Gauge => *value.max(sample),
            };
        }
        for (labels, value) in samples {
            page.sample(&labels, "", value);
        }
    }
}

fn process(page: &mut Page, process: &Process) {
    if let Some(time) = process.cpu {
        page.family(
            Kind::Counter("seconds"),
            "process_cpu_seconds",
            "Processor time of this process, user and system.",
        );
        page.seconds("", ns(time));
    }
    if let Some(at) = process.started {
        let help = "When this process started, in Unix time.";
        page.family(Kind::Gauge("seconds"), "process_start_time_seconds", help);
        page.seconds("", ns(at));
    }
    let gauges = [
        (
            "process_resident_memory_bytes",
            "bytes",
            "Memory of this process that is resident.",
            process.resident_bytes,
        ),
        ("process_virtual_memory_bytes", "bytes", "Address space of this process.", process.virtual_bytes),
        ("process_open_fds", "", "Open file descriptors.", process.open_fds),
        (
            "process_max_fds",
            "",
            "File descriptors that this process may open. Absent without a limit.",
            process.max_fds,
        ),
        ("process_threads", "", "Threads of this process.", process.threads),
    ];
    for (name, unit, help, value) in gauges {
        if let Some(value) = value {
            page.family(Kind::Gauge(unit), name, help);
            page.sample("", "", value);
        }
    }
}

/// The samples of counters by index, plus `unknown` once something had an index outside the list.
fn indexed(
    page: &mut Page,
    telemetry: &Telemetry,
    label: &str,
    names: &[&str],
    pick: impl Fn(&CoreCells, usize) -> &Counter,
) {
    for (index, name) in names.iter().chain([&"unknown"]).enumerate() {
        let sum: u64 = telemetry.cores.read().iter().map(|core| pick(core, index).get()).sum();
        if sum > 0 || index < names.len() {
            page.sample("", &pair(label, name), sum);
        }
    }
}

fn pair(key: &str, value: &str) -> String {
    let mut out = String::new();
    text::label(&mut out, key, value);
    out
}

fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_follows_accept() {
        use Exposition::{OpenMetrics, Text};
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
             text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";
        for (accept, format) in [
            ("", Text),
            ("*/*", Text),
            (browser, Text),
            (prometheus, OpenMetrics),
            ("text/plain", Text),
            ("application/openmetrics-text", OpenMetrics),
            ("Application/OpenMetrics-Text; Version=\"1.0.0\"; Q=0.9", OpenMetrics),
            ("application/openmetrics-text; version=2.0.0", Text),
            ("application/openmetrics-text;q=0", Text),
            ("application/openmetrics-text;q=nonsense", Text),
            ("application/openmetrics-text;q=0.3, text/plain;q=0.5", Text),
            ("application/openmetrics-text;q=0.5, text/plain;q=0.5", OpenMetrics),
            ("application/openmetrics-text;q=0.1, */*", OpenMetrics),
            (";;;,,=;q", Text),
        ] {
            assert_eq!(negotiate(accept), format, "{accept}");
        }
    }
}
