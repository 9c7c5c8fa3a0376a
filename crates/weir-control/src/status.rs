//! The gateway's report on itself: `GET /status` and the page of the admin listener.

use crate::fleet::FleetStatus;
use crate::trial::TrialStatus;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use weir_acme::Status as Kept;
use weir_config::Diagnostics;
use weir_engine::acme::{self, AcmeStatus};
use weir_engine::snapshot::{FilterStatus, Listener, Passing, Serves, Snapshot};
use weir_filter::directory::Source;
use weir_telemetry::{Telemetry, Unwritten, timestamp};
use weir_upstream::upstream::discover::dns::Name;
use weir_upstream::upstream::discover::registry::Registry;
use weir_upstream::upstream::{Endpoint, Upstream, Why};
use weir_wire::tls::{Certificate, Identity, Validity};

/// How many causes a status reports: the most frequent ones.
pub(crate) const TOP_CAUSES: usize = 10;

/// How much of a refused reload's errors a status reports, in bytes.
const ERROR_BYTES: usize = 4096;

/// The gateway's report on itself.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Revision of the running config.
    pub revision: String,
    /// `running` or `draining`.
    pub state: &'static str,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// Data-plane threads.
    pub workers: usize,
    /// Client connections open now.
    pub connections: usize,
    /// Requests answered since the start.
    pub requests: u64,
    /// Requests answered per second, over the last ten seconds.
    pub requests_per_second: f64,
    /// The result of the last reload; `None` before the first.
    pub last_reload: Option<ReloadStatus>,
    /// Why the gateway itself answered since the start: the ten most frequent causes, most frequent first.
    pub causes: Vec<CauseCount>,
    /// Number of routes.
    pub routes: usize,
    /// Number of the running revision, if there is a history.
    pub number: Option<u64>,
    /// Why a revision of the history runs instead of the files, if so.
    pub pinned: Option<String>,
    /// Why the config runs from memory only, if it could not be saved.
    pub unsaved: Option<String>,
    /// The access log's outage, if it cannot be written now.
    pub access_log: Option<UnwrittenLog>,
    /// The change on trial, if any.
    pub trial: Option<TrialStatus>,
    /// Its source, if the config comes from one.
    pub fleet: Option<FleetStatus>,
    /// The sources of consumers, by name.
    #[serde(serialize_with = "by_name")]
    #[schemars(with = "BTreeMap<String, ConsumerSourceStatus>")]
    pub consumer_sources: Vec<(String, ConsumerSourceStatus)>,
    /// The figures of filters' state.
    pub filters: Vec<FilterStatus>,
    /// Listeners by name.
    #[serde(serialize_with = "by_name")]
    #[schemars(with = "BTreeMap<String, ListenerStatus>")]
    pub listeners: Vec<(String, ListenerStatus)>,
    /// The certificates of listeners.
    pub certificates: Vec<CertificateStatus>,
    /// Upstreams by name.
    #[serde(serialize_with = "by_name")]
    #[schemars(with = "BTreeMap<String, UpstreamStatus>")]
    pub upstreams: Vec<(String, UpstreamStatus)>,
}

/// A list of named things as an object, in the order of the config.
fn by_name<T: Serialize, S: Serializer>(things: &[(String, T)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(things.iter().map(|(name, thing)| (name, thing)))
}

/// An access log that cannot be written now.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct UnwrittenLog {
    /// Where it goes: the file, `stderr`, `stdout` or the syslog server.
    pub output: String,
    /// When the first write failed: RFC 3339.
    pub since: String,
    /// Lines lost since then.
    pub lost: u64,
    /// Why the last write failed.
    pub error: String,
}

impl From<Unwritten> for UnwrittenLog {
    fn from(of: Unwritten) -> Self {
        Self { output: of.output, since: timestamp(of.since), lost: of.lost, error: of.error }
    }
}

/// A source of consumers.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct ConsumerSourceStatus {
    /// `current`; `kept`: it is away or says something wrong, and the last good consumers are used; `cached`: they
    /// come from the cache of an earlier process; `absent`: it has none yet, too old ones, or ones that no longer fit
    /// the config.
    pub state: &'static str,
    /// How many consumers it has.
    pub consumers: usize,
    /// When they changed last.
    pub changed: Option<String>,
    /// When the web server last said that they are current.
    pub confirmed: Option<String>,
    /// Why the last attempt to read it failed, if it did.
    pub error: Option<String>,
}

impl ConsumerSourceStatus {
    pub(crate) fn of(source: &Source) -> Self {
        let status = source.status();
        Self {
            state: status.state.name(),
            consumers: status.consumers,
            changed: status.changed.map(timestamp),
            confirmed: status.confirmed.map(timestamp),
            error: status.error,
        }
    }
}

/// A listener.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct ListenerStatus {
    /// Its address as bound; absent if another listener sends it connections by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The UDP addresses at which it serves HTTP/3, as bound; absent if it does not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub udp: Vec<String>,
    /// Connections open now.
    pub connections: i64,
    /// Where it passes bytes on, or which names lead where; absent if it speaks HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passes: Option<String>,
}

impl ListenerStatus {
    /// The status of a listener, with its address as bound.
    pub(crate) fn of(listener: &Listener, snapshot: &Snapshot, telemetry: &Telemetry) -> Self {
        let upstream = |passing: &Passing| {
            let upstream = snapshot.upstreams.get(passing.upstream);
            format!("tcp to {}", upstream.map_or("", |upstream| &upstream.name))
        };
        let passes = match &listener.serves {
            Serves::Http => None,
            Serves::Sni(names) => Some(format!("sni, {} names", names.len())),
            Serves::Tcp(passing) => Some(upstream(passing)),
        };
        let doors = listener.http3.iter().flat_map(|http3| &http3.doors);
        Self {
            address: listener.address.as_ref().map(ToString::to_string),
            udp: doors.map(|door| door.address.to_string()).collect(),
            connections: telemetry.listener_connections(&listener.name),
            passes,
        }
    }
}

/// The result of a reload.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct ReloadStatus {
    /// When it happened: RFC 3339.
    pub at: String,
    /// `ok` or `refused`.
    pub result: &'static str,
    /// The errors for which it was refused, in the form of `weir check`; at most 4 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How often a cause occurred.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct CauseCount {
    /// Its code.
    pub cause: &'static str,
    /// How often, since the start.
    pub count: u64,
}

/// A certificate presented to clients.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct CertificateStatus {
    /// Its file.
    pub cert: String,
    /// The DNS names it covers.
    pub names: Vec<String>,
    /// Its last second: RFC 3339.
    pub not_after: String,
    /// Whole days until then; negative once it has expired.
    pub days_left: i64,
    /// Its first second, if still in the future: RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// Its renewal status, if ACME renews it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acme: Option<AcmeStatus>,
}

/// An upstream's current state.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct UpstreamStatus {
    /// Whether so few of its endpoints are in rotation that unhealthy ones are used too.
    pub panic: bool,
    /// Its endpoints.
    pub endpoints: Vec<EndpointStatus>,
    /// The names among its endpoints, and what they resolved to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<NameStatus>,
    /// The registry that lists its endpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovery: Option<DiscoveryStatus>,
}

/// A registry that lists the endpoints of an upstream.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct DiscoveryStatus {
    /// `consul`, `docker`, `etcd`, `file`, `kubernetes` or `srv`; `program` if the program around the gateway supplies
    /// the endpoints.
    pub registry: &'static str,
    /// Its location and the query.
    pub place: String,
    /// `following`; `away` if it does not answer; `waiting` if it has not answered yet.
    pub state: &'static str,
    /// The usable instances it lists; for a file, its entries.
    pub instances: Vec<InstanceStatus>,
    /// How many instances are used in total: only the first 100 are shown.
    pub listed: usize,
    /// The first instances that cannot be used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOutStatus>,
    /// How many instances are unusable in total.
    pub unusable: usize,
    /// How long ago it last answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// When it last gave an answer that counts: the endpoints in use are from then or unchanged since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_good: Option<String>,
    /// Since when it has not answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away_since: Option<String>,
    /// Why it is not followed, or why its last answer does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An instance in a registry's list.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct InstanceStatus {
    /// Host and port.
    pub address: String,
    /// Its name in the registry.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Its version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
}

/// An instance that cannot be used.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct LeftOutStatus {
    /// Its name in the registry.
    pub id: String,
    /// Why.
    pub why: String,
}

/// One endpoint of an upstream.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct EndpointStatus {
    /// Its address.
    pub address: String,
    /// Its weight.
    pub weight: u32,
    /// Lower priorities are used first.
    pub priority: u8,
    /// Its zone, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Whether it is in rotation.
    pub healthy: bool,
    /// `healthy`; `to_be_tried` if it was unreachable and its avoidance is over; or the most severe reason why it is
    /// out of rotation.
    pub state: &'static str,
    /// Every reason why it is out of rotation, the most severe first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<OutOfRotation>,
    /// Attempts that it answered.
    pub answered: u64,
    /// Failed attempts: no connection, or no valid response.
    pub failed: u64,
    /// Attempts answered with a status of 5xx.
    pub errors: u64,
    /// Mean milliseconds from sending a request to the first byte of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_ms: Option<f64>,
    /// Its last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
}

/// One reason why an endpoint is out of rotation.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct OutOfRotation {
    /// `draining`, `ejected`, `out`, `probe_failed` or `unreachable`.
    pub reason: &'static str,
    /// The latest cause: a cause's code, the rule that ejected it, why its probe failed, or `by_hand`.
    pub cause: String,
    /// Details for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Since when, RFC 3339.
    pub since: String,
    /// When it ends or the endpoint is tried again, RFC 3339. None if probes decide, or if a trial is due, which runs
    /// within a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// The last failure of an endpoint.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct LastError {
    /// The code of its cause.
    pub cause: &'static str,
    /// When: RFC 3339.
    pub at: String,
}

/// A name among the endpoints of an upstream.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct NameStatus {
    /// The name, with its port.
    pub name: String,
    /// The addresses it last resolved to.
    pub addresses: Vec<String>,
    /// How long ago that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Why the last attempt brought nothing better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

// === impl ReloadStatus, CauseCount ===

impl ReloadStatus {
    pub(crate) fn new(result: Result<(), &Diagnostics>, at: SystemTime) -> Self {
        let error = result.err().map(|diagnostics| cut(diagnostics.for_readers().to_text()));
        Self { at: timestamp(at), result: if error.is_none() { "ok" } else { "refused" }, error }
    }
}

/// The start of a text that is too long, in whole lines.
fn cut(mut text: String) -> String {
    if text.len() > ERROR_BYTES {
        let fits = (0..=ERROR_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(fits);
        text.truncate(text.rfind('\n').map_or(fits, |at| at + 1));
        text.push_str("… (`weir check` lists all)\n");
    }
    text
}

impl From<(&'static str, u64)> for CauseCount {
    fn from((cause, count): (&'static str, u64)) -> Self {
        Self { cause, count }
    }
}

// === impl CertificateStatus ===

impl CertificateStatus {
    /// None if its dates cannot be read.
    pub(crate) fn of(identity: &Identity, certificate: &Certificate, now: SystemTime) -> Option<Self> {
        let Validity { not_before, not_after } = certificate.validity()?;
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let moment =
            |at: i64| timestamp(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(at).unwrap_or(0)));
        Some(Self {
            cert: identity.cert.display().to_string(),
            names: certificate.names().to_vec(),
            not_after: moment(not_after),
            days_left: days_left(not_after.saturating_sub(now)),
            not_before: (now < not_before).then(|| moment(not_before)),
            acme: None,
        })
    }

    /// An automatically renewed certificate. A stand-in's end date is useless, so it ends now.
    pub(crate) fn kept(status: &Kept, now: i64) -> Self {
        let not_after = status.not_after.unwrap_or(now);
        Self {
            cert: status.file.display().to_string(),
            names: vec![status.name.clone()],
            not_after: acme::moment(not_after),
            days_left: days_left(not_after.saturating_sub(now)),
            not_before: None,
            acme: Some(AcmeStatus::of(status, now)),
        }
    }
}

/// Whole days of remaining or elapsed time. Both the first and the second day past the end count as -1.
fn days_left(seconds: i64) -> i64 {
    let days = seconds / (24 * 60 * 60);
    if seconds < 0 { days.min(-1) } else { days }
}

// === impl UpstreamStatus ===

impl UpstreamStatus {
    pub(crate) fn of(upstream: &Upstream, telemetry: &Telemetry) -> Self {
        let list = upstream.published.list();
        Self {
            panic: upstream.is_panicking(),
            endpoints: list.iter().map(|endpoint| EndpointStatus::of(endpoint, telemetry)).collect(),
            names: upstream.names.names.iter().map(NameStatus::of).collect(),
            discovery: upstream.registry.as_deref().map(DiscoveryStatus::of),
        }
    }
}

impl EndpointStatus {
    pub(crate) fn of(endpoint: &Endpoint, telemetry: &Telemetry) -> Self {
        let now = Instant::now();
        endpoint.health.tick(now);
        let whys = endpoint.health.whys();
        let state = match whys.first() {
            None => "healthy",
            Some(_) if endpoint.health.is_to_be_tried(now) => "to_be_tried",
            Some(why) => why.reason.name(),
        };
        let reasons: Vec<_> = whys.into_iter().map(|why| OutOfRotation::of(why, now)).collect();
        let totals = endpoint.cells.totals();
        Self {
            address: endpoint.label.to_string(),
            weight: endpoint.weight,
            priority: endpoint.place.priority,
            zone: endpoint.place.zone.as_deref().map(str::to_owned),
            healthy: reasons.is_empty(),
            state,
            reasons,
            answered: totals.answered,
            failed: totals.failed,
            errors: totals.errors,
            first_byte_ms: totals.mean_first_byte().map(|mean| (mean.as_secs_f64() * 1e6).round() / 1e3),
            last_error: totals
                .last_failure
                .map(|(cause, at)| LastError { cause: telemetry.cause_name(cause), at: timestamp(at) }),
        }
    }
}

impl OutOfRotation {
    fn of(why: Why, now: Instant) -> Self {
        Self {
            until: why.left(now).map(|left| timestamp(SystemTime::now() + left)),
            reason: why.reason.name(),
            cause: why.cause.into_owned(),
            detail: why.detail.map(String::from),
            since: timestamp(why.since),
        }
    }
}

impl DiscoveryStatus {
    fn of(registry: &Registry) -> Self {
        /// Most instances to show.
        const SHOWN: usize = 100;
        let state = registry.state();
        let (left_out, unusable) = state.left_out();
        let listed = state.listed();
        let known = state.book.good().map_or(&[][..], |good| &good.instances);
        let instances = listed.iter().take(SHOWN).enumerate().map(|(at, one)| {
            let instance = known.get(at);
            InstanceStatus {
                address: one.at.to_string(),
                id: instance.map_or_else(String::new, |instance| instance.id.clone()),
                version: instance.map_or_else(String::new, |instance| instance.version.clone()),
            }
        });
        let following = match (state.book.follows(), state.answered) {
            (true, _) => "following",
            (false, None) if state.book.trouble().is_none() => "waiting",
            (false, _) => "away",
        };
        Self {
            registry: registry.kind,
            place: registry.place.clone(),
            state: following,
            instances: instances.collect(),
            listed: listed.len(),
            left_out: left_out
                .iter()
                .map(|one| LeftOutStatus { id: one.id.clone(), why: one.why.clone() })
                .collect(),
            unusable,
            age_seconds: state.answered.map(|at| at.elapsed().as_secs()),
            last_good: state.good.map(timestamp),
            away_since: state.away.map(timestamp),
            error: state.book.trouble().map(str::to_owned),
        }
    }
}

impl NameStatus {
    fn of(name: &Name) -> Self {
        let resolved = name.resolved.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self {
            name: name.authority.to_string(),
            addresses: resolved.addresses.iter().map(ToString::to_string).collect(),
            age_seconds: resolved.at.map(|at| at.elapsed().as_secs()),
            error: resolved.error,
        }
    }
}

// === Rate ===

/// Requests answered, sampled once a second.
#[derive(Debug)]
pub(crate) struct Rate {
    samples: Mutex<VecDeque<(Instant, u64)>>,
}

/// The period of a rate in seconds.
const WINDOW: usize = 10;

impl Rate {
    pub(crate) fn new(at: Instant) -> Self {
        Self { samples: Mutex::new([(at, 0)].into()) }
    }

    fn add(&self, at: Instant, total: u64) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == WINDOW {
            samples.pop_front();
        }
        samples.push_back((at, total));
    }

    /// Requests per second since the oldest sample, to one decimal place.
    pub(crate) fn per_second(&self, at: Instant, total: u64) -> f64 {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((since, before)) = samples.front() else { return 0.0 };
        // Routes removed by a reload have taken their counts with them.
        let requests = total.saturating_sub(*before) as f64;
        let seconds = at.saturating_duration_since(*since).as_secs_f64();
        if seconds > 0.0 { (requests / seconds * 10.0).round() / 10.0 } else { 0.0 }
    }
}

/// Samples the number of requests once a second.
pub(crate) async fn sample(telemetry: Arc<Telemetry>, rate: Arc<Rate>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        rate.add(Instant::now(), telemetry.requests_total());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_looks_ten_seconds_back() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let rate = Rate::new(start);
        assert_eq!(rate.per_second(start, 0), 0.0);
        assert_eq!(rate.per_second(at(2), 5), 2.5);
        for second in 1..=30 {
            rate.add(at(second), second * 100);
        }
        assert_eq!(rate.per_second(at(31), 3100), 100.0);
        assert_eq!(rate.per_second(at(41), 3100), 50.0);
        assert_eq!(rate.per_second(at(41), 7), 0.0);
    }

    #[test]
    fn days_are_counted_from_both_sides_of_the_end() {
        const DAY: i64 = 24 * 60 * 60;
        for (seconds, days) in [(2 * DAY, 2), (DAY - 1, 0), (0, 0), (-1, -1), (-DAY - 1, -1), (-2 * DAY, -2)]
        {
            assert_eq!(days_left(seconds), days, "{seconds}");
        }
    }

    #[test]
    fn long_errors_are_cut_between_lines() {
        assert_eq!(cut("short\n".to_owned()), "short\n");
        let long = "ä line\n".repeat(1000);
        let kept = cut(long);
        assert!(
            kept.len() < ERROR_BYTES + 40 && kept.ends_with("line\n… (`weir check` lists all)\n"),
            "{kept}"
        );
    }
}
