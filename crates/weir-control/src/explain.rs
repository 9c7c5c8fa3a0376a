//! `weir explain`: what would happen to a request, computed by the same code that routes live traffic.

use expressions::expressions_of;
use weir_config::secrecy::without_expression;
use weir_engine::PREFLIGHT;
use weir_engine::early_data::{self, Early};
use weir_filter::explained::WithExpressions;
use weir_filter::filter::{Asked, Hooks};
use weir_filter::template::without_port;
mod arrival;
mod expressions;
mod policies;

pub use expressions::ExpressionShown;
pub use policies::{HealthShown, HedgeShown, OutlierShown, PoliciesShown, ProbeShown, RetryShown};

use serde::Serialize;
use std::borrow::Cow;
use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::time::SystemTime;
use weir_engine::snapshot::{Handling, Listener, Serves, Snapshot, Target};
use weir_h1::{Limits, Method, Progress, RequestHead, TargetForm, parse_request};
use weir_route::variables::Secrets;
use weir_route::{Ambiguity, Decision, EscapedSlashes, NEAR_MISSES, NoTrace, RouteId};
use weir_upstream::upstream::Place;

/// What would happen to a request.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The request as understood: method, host, canonical path, query.
    pub request: Understood,
    /// Which route wins and why the others do not.
    pub decision: Decision,
    /// The winner's filters in the order they run.
    pub filters: Vec<FilterShown>,
    /// Where the winner sends the request.
    pub target: Option<TargetShown>,
    /// The files that the upstream may name, such as `x-accel-redirect: /downloads/ is /srv/private`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files_by_header: Vec<String>,
    /// What gRPC makes of the request, if it is gRPC.
    pub grpc: Option<GrpcShown>,
    /// What happens to the request if it arrives before the handshake is complete, on a listener that accepts it then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_data: Option<&'static str>,
}

/// A gRPC call.
#[derive(Clone, Debug, Serialize)]
pub struct GrpcShown {
    /// The service, such as `helloworld.v1.Greeter`.
    pub service: String,
    /// The method, such as `SayHello`.
    pub method: String,
    /// What would make it fail.
    pub problems: Vec<String>,
}

/// A request as the gateway understands it.
#[derive(Clone, Debug, Serialize)]
pub struct Understood {
    /// The method.
    pub method: String,
    /// The host that routes are matched against.
    pub host: String,
    /// The path in canonical form.
    pub path: String,
    /// The query.
    pub query: Option<String>,
    /// The listener it is assumed to arrive on.
    pub listener: String,
    /// Why that listener, if none was named and there are several.
    pub listener_reason: Option<String>,
    /// How a path with several readings is treated.
    pub note: Option<String>,
}

/// A filter with its settings.
#[derive(Clone, Debug, Serialize)]
pub struct FilterShown {
    /// Its name.
    pub name: &'static str,
    /// Its settings with all defaults filled in.
    pub settings: serde_json::Value,
    /// What it does with this request, if it can tell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tells: Vec<String>,
    /// What the expressions in its settings come to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expressions: Vec<ExpressionShown>,
    /// The lists of filters of which it chooses one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<ListShown>,
}

/// A list of filters in the settings of another.
#[derive(Clone, Debug, Serialize)]
pub struct ListShown {
    /// The setting, or the arm of a split.
    pub key: String,
    /// Whether it is the one that runs for this request; nothing if that depends on the caller, or on chance.
    pub runs: Option<bool>,
    /// Of an arm: its share of the requests in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// Its filters in the order they run.
    pub filters: Vec<FilterShown>,
}

/// Where a route leads.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetShown {
    /// Files of a folder.
    Files {
        /// The folder.
        root: String,
        /// Index files of a folder.
        index: Vec<String>,
        /// Whether folders are listed.
        browse: bool,
        /// The file that answers for missing files.
        fallback: Option<String>,
        /// The upstreams that answer for missing files.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        missing: Vec<UpstreamShown>,
    },
    /// The answer of a filter that admits no request.
    Filter {
        /// Its name.
        name: &'static str,
    },
    /// Our own answer.
    Respond {
        /// Its status.
        status: u16,
        /// What the expressions in its texts come to.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        expressions: Vec<ExpressionShown>,
    },
    /// One upstream, or several with their shares in percent.
    Upstreams(Vec<UpstreamShown>),
}

/// An upstream and its endpoints.
#[derive(Clone, Debug, Serialize)]
pub struct UpstreamShown {
    /// Its name.
    pub name: String,
    /// The arm of the split that leads to it, if that has another name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// Share of the requests in percent.
    pub share: f64,
    /// The protocol of its endpoints: `http1`, `h2`, `h2c` or `auto`.
    pub protocol: &'static str,
    /// How an endpoint is chosen.
    pub balancer: &'static str,
    /// What `hash` hashes, and the percentage that bounds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<HashShown>,
    /// The cookie that brings a client back to its endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sticky: Option<StickyShown>,
    /// How many seconds an endpoint entering rotation takes to reach its full share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slow_start_seconds: Option<f64>,
    /// The gateway's zone: endpoints in the same zone are used first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Its addresses; names resolved at run time as written. With weight, zone and priority if they are set.
    pub endpoints: Vec<String>,
    /// How failed requests and unhealthy endpoints are handled.
    #[serde(flatten)]
    pub policies: PoliciesShown,
}

/// The settings of the balancer `hash`.
#[derive(Clone, Debug, Serialize)]
pub struct HashShown {
    /// What it hashes, such as `header:x-user`.
    pub by: String,
    /// The most running attempts of an endpoint relative to the mean, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounded: Option<f64>,
    /// What its expressions come to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expressions: Vec<ExpressionShown>,
}

/// The settings of `sticky`, without the key.
#[derive(Clone, Debug, Serialize)]
pub struct StickyShown {
    /// The name of the cookie.
    pub cookie: String,
    /// How many seconds a client keeps it; without it, until its session ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<f64>,
}

/// How a made-up request arrives.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arriving<'a> {
    /// The name of the listener; by default the one that a client of the URL reaches.
    pub listener: Option<&'a str>,
    /// The client's address; by default 127.0.0.1.
    pub client: Option<IpAddr>,
}

/// Explains a request given as on the wire: method, target and header fields. A target that begins with `grpc://` or
/// `grpcs://` is a gRPC call, for which `content-type: application/grpc` may be omitted.
///
/// # Errors
/// Why the gateway would refuse the request before routing.
pub fn explain(
    snapshot: &Snapshot,
    arriving: Arriving<'_>,
    method: &str,
    target: &str,
    headers: &[(String, String)],
) -> Result<Explanation, String> {
    understand(snapshot, arriving, method, target, headers, |understood| understood.explain(snapshot))
}

/// The name of the route that takes a request, for callers that ask about thousands: [`explain`] compares each request
/// with every route, to say why the others lose.
///
/// # Errors
/// As for [`explain`].
pub fn winner(
    snapshot: &Snapshot,
    arriving: Arriving<'_>,
    method: &str,
    target: &str,
    headers: &[(String, String)],
) -> Result<Option<String>, String> {
    understand(snapshot, arriving, method, target, headers, |understood| {
        let found = snapshot.table.find(&understood.request, &mut NoTrace)?;
        snapshot.table.name(found).map(str::to_owned)
    })
}

/// A request that a route takes, as [`explain`] wants it.
#[derive(Clone, Debug)]
pub struct Suitable {
    /// The name of the listener.
    pub listener: String,
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
    /// Fields.
    pub headers: Vec<(String, String)>,
}

/// A request for the route at `index` of the snapshot. None if none can be made up from its patterns, if another route
/// takes it, or if only some clients may send it.
pub fn request_for(snapshot: &Snapshot, index: usize) -> Option<Suitable> {
    let id = RouteId(u32::try_from(index).ok()?);
    let sample = snapshot.table.sample(id)?;
    let is_own = snapshot.table.find(&sample.request(), &mut NoTrace) == Some(id);
    let listener =
        snapshot.listeners.get(usize::from(sample.listener)).filter(|_| is_own && sample.client.is_none())?;
    let scheme = if listener.tls.is_some() { "https" } else { "http" };
    let query = sample.query.map(|query| format!("?{query}")).unwrap_or_default();
    Some(Suitable {
        listener: listener.name.to_string(),
        method: sample.method,
        url: format!("{scheme}://{}{}{query}", sample.host, sample.path),
        headers: sample.headers,
    })
}

/// A request as routes see it.
struct Asking<'a> {
    listener: &'a Listener,
    listener_reason: Option<String>,
    head: &'a RequestHead,
    request: weir_route::Request<'a, MadeUp<'a>>,
    note: Option<String>,
}

/// Reads a request as a listener does, and passes it on.
fn understand<T>(
    snapshot: &Snapshot,
    Arriving { listener, client }: Arriving<'_>,
    method: &str,
    target: &str,
    headers: &[(String, String)],
    then: impl FnOnce(Asking<'_>) -> T,
) -> Result<T, String> {
    if listener.is_none()
        && let Some((listener, upstream)) = arrival::passed_on(&snapshot.listeners, target)
    {
        let upstream = snapshot.upstreams.get(upstream).map_or("", |upstream| &upstream.name);
        return Err(format!(
            "listener `{listener}` passes this connection on to upstream `{upstream}`, as bytes: no request is read"
        ));
    }
    let (number, listener_reason) = match listener {
        None => arrival::choose(snapshot.listeners.iter().map(|listener| &**listener), target),
        Some(name) => {
            let found = snapshot.listeners.iter().position(|l| *l.name == *name);
            (found.ok_or_else(|| format!("there is no listener `{name}`"))?, None)
        }
    };
    let shown = snapshot.listeners.get(number).ok_or("the config has no listener")?;
    if !matches!(shown.serves, Serves::Http) {
        return Err(format!("listener `{}` speaks no HTTP", shown.name));
    }
    let head = head_of(method, target, headers, &snapshot.head_limits)?;
    let mut canonical = Vec::new();
    let (path, ambiguity) = if head.form() == TargetForm::Asterisk {
        (b"/".as_slice(), Ambiguity::default())
    } else {
        let (form, ambiguity) = weir_route::examine(head.path(), shown.slashes, &mut canonical)
            .map_err(|e| format!("400 bad_path: the path is refused: {e}"))?;
        (form.choose(head.path(), &canonical), ambiguity)
    };
    let client = client.unwrap_or(Ipv4Addr::LOCALHOST.into()).to_canonical();
    let made_up = MadeUp { head: &head, client, tls: shown.tls.is_some(), now: SystemTime::now() };
    let mut request = weir_route::Request {
        listener: number as u16,
        host: head.authority(),
        method: head.method_name(),
        path,
        query: head.query(),
        headers: made_up,
    };
    let asked = head.headers.get_str(PREFLIGHT).filter(|_| head.method() == Method::Options);
    let without_key = snapshot.without_path_key(&request, asked);
    if let Some((path, _)) = &without_key {
        request.path = path;
    }
    let path = request.path;
    let asked = asked.filter(|asked| snapshot.takes_preflight(&request, asked));
    request.method = asked.unwrap_or(request.method);
    let (note, decoded) = readings_of(snapshot, shown, &request, ambiguity)?;
    let preflight = asked.map(|asked| {
        format!(
            "a preflight: it matches the route of the {} that it announces",
            String::from_utf8_lossy(asked)
        )
    });
    let note = note.into_iter().chain(preflight).reduce(|a, b| format!("{a}; {b}"));
    request.path = decoded.as_deref().unwrap_or(path);
    Ok(then(Asking { listener: shown, listener_reason, head: &head, request, note }))
}

impl Asking<'_> {
    fn explain(self, snapshot: &Snapshot) -> Explanation {
        let Self { listener, listener_reason, head, request, note } = self;
        let path = request.path;
        let none = Secrets::default();
        let secrets = snapshot.vocabulary.as_ref().map_or(&none, |(_, secrets)| secrets);
        let decision = weir_route::explain_without(&snapshot.table, &request, NEAR_MISSES, secrets);
        let winner = decision.winner.as_ref().and_then(|w| snapshot.routes.get(w.index));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let shown_of = winner.map(|route| {
            let parameters = decision.winner.as_ref().and_then(|winner| {
                let id = RouteId(u32::try_from(winner.index).ok()?);
                snapshot.table.parameters(id, path, head.authority())
            });
            let (client, tls) = (request.headers.client, request.headers.tls);
            let asked = Asked { head, path, client, tls, route: &route.name, parameters };
            (
                filters_of(snapshot, &route.handling.chain, &asked),
                target_of(snapshot, &route.handling, &asked),
            )
        });
        let (filters, target) = shown_of.unzip();
        let (path, query) = match &snapshot.conceals {
            Some(conceals) => (conceals.path(path), head.query().map(|query| conceals.query(path, query))),
            None => (Cow::Borrowed(path), head.query().map(Cow::Borrowed)),
        };
        Explanation {
            grpc: weir_filter::grpc::is_grpc(&head.headers)
                .then(|| grpc_of(&text(head.method_name()), &text(&path), target.as_ref())),
            request: Understood {
                method: text(head.method_name()),
                host: text(head.authority()),
                path: text(&path),
                query: query.as_deref().map(text),
                listener: listener.name.to_string(),
                listener_reason,
                note,
            },
            target,
            early_data: winner
                .filter(|_| listener.http3.as_ref().is_some_and(|http3| http3.early_data))
                .map(|route| early_data_of(head, route.handling.early_data)),
            files_by_header: winner.map(|route| named_files(&route.handling)).unwrap_or_default(),
            filters: filters.unwrap_or_default(),
            decision,
        }
    }
}

/// What happens to a request that arrives before the handshake is complete; `allowed` by its route.
fn early_data_of(head: &RequestHead, allowed: bool) -> &'static str {
    match early_data::judge(head, allowed) {
        Early::Run => "runs before the handshake is complete",
        Early::Wait if allowed => {
            "waits for the handshake: only GET, HEAD and OPTIONS without a body and an upgrade run early"
        }
        Early::Wait => "waits for the handshake: the route has no `early_data: true`",
    }
}

/// The filters of a chain, and those of their lists.
fn filters_of(snapshot: &Snapshot, chain: &[u32], asked: &Asked<'_>) -> Vec<FilterShown> {
    let shown = |&filter: &u32| {
        let instance = &snapshot.filters[filter as usize];
        let chosen = instance.filter.chooses(asked);
        let lists = instance.lists.iter().enumerate().map(|(at, list)| ListShown {
            key: list.key.to_string(),
            runs: chosen.map(|chosen| chosen == at),
            share: instance.share_of(at),
            filters: filters_of(snapshot, &list.chain, asked),
        });
        FilterShown {
            name: instance.name,
            settings: instance.settings.clone(),
            tells: instance.filter.explain(asked),
            expressions: expressions_of(snapshot, &instance.expressions, asked),
            lists: lists.filter(|list| !list.filters.is_empty()).collect(),
        }
    };
    chain.iter().map(shown).collect()
}

/// A made-up request.
#[derive(Clone, Copy)]
struct MadeUp<'a> {
    head: &'a RequestHead,
    client: IpAddr,
    tls: bool,
    now: SystemTime,
}

impl weir_route::Headers for MadeUp<'_> {
    fn get_all<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        weir_filter::fields::values(self.head, name)
    }

    fn client_ip(&self) -> Option<IpAddr> {
        Some(self.client)
    }

    fn server_name(&self) -> Option<&str> {
        let host = without_port(self.head.asked_authority());
        str::from_utf8(host).ok().filter(|_| self.tls)
    }

    fn is_tls(&self) -> bool {
        self.tls
    }

    fn size(&self) -> Option<u64> {
        Some(self.head.content_length().unwrap_or(0))
    }

    fn now(&self) -> SystemTime {
        self.now
    }
}

/// How a path with several readings is treated, and the decoded path if it replaces it.
///
/// # Errors
/// The refusal, if a reading takes another route.
fn readings_of(
    snapshot: &Snapshot,
    listener: &Listener,
    request: &weir_route::Request<'_, MadeUp<'_>>,
    ambiguity: Ambiguity,
) -> Result<(Option<String>, Option<Vec<u8>>), String> {
    if ambiguity == Ambiguity::default() {
        return Ok((None, None));
    }
    let table = &snapshot.table;
    let name = |route: Option<RouteId>| match route.and_then(|route| table.name(route)) {
        Some(name) => format!("route `{name}`"),
        None => "no route".to_owned(),
    };
    let found = table.find(request, &mut NoTrace);
    let mode = snapshot.escaped_slashes(found, listener);
    let settled = weir_route::settle(table, request, found, ambiguity, listener.slashes, |_| mode);
    let settled = settled.map_err(|contested| {
        format!(
            "400 ambiguous_path: a server may read the path as `{}`, which matches {} and not {}",
            String::from_utf8_lossy(&contested.reading),
            name(contested.other),
            name(Some(contested.route))
        )
    })?;
    let note = match (&settled.decoded, settled.route, ambiguity.slash && mode == EscapedSlashes::Keep) {
        (Some(_), ..) => Some("escaped_slashes: decode turned each %2F into a slash"),
        (None, None, _) => None,
        (None, _, true) => Some("escaped_slashes: keep leaves each %2F unchanged, however a server reads it"),
        (None, _, false) => Some(
            "every reading of %2F, `;` and escaped signs matches this route; the path is forwarded unchanged",
        ),
    };
    Ok((note.map(str::to_owned), settled.decoded))
}

/// Parses the request with the parser of live traffic, so that it refuses the same requests.
fn head_of(
    method: &str,
    target: &str,
    headers: &[(String, String)],
    limits: &Limits,
) -> Result<RequestHead, String> {
    let (target, host, grpc) = split_url(target);
    let mut text = format!("{method} {target} HTTP/1.1\r\n");
    let named = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
    if !named {
        let _ = write!(text, "Host: {}\r\n", host.as_deref().unwrap_or("localhost"));
    }
    if grpc && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        text.push_str("Content-Type: application/grpc\r\n");
    }
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    text.push_str("\r\n");
    let mut head = RequestHead::default();
    head.buffer_mut().extend_from_slice(text.as_bytes());
    match parse_request(&mut head, limits) {
        Ok(Progress::Complete) => Ok(head),
        Ok(Progress::Partial) => Err("400 bad_head: the request is incomplete".to_owned()),
        Err(e) => {
            let cause = weir_engine::cause_of(e.kind());
            Err(format!("{} {}: {e}", cause.status, cause.code))
        }
    }
}

/// A URL's target and host, and whether it is gRPC; a target without a host has none.
fn split_url(url: &str) -> (String, Option<String>, bool) {
    const SCHEMES: [(&str, bool); 4] =
        [("http://", false), ("https://", false), ("grpc://", true), ("grpcs://", true)];
    let found = SCHEMES.iter().find_map(|(scheme, grpc)| Some((url.strip_prefix(scheme)?, *grpc)));
    let Some((rest, grpc)) = found else { return (url.to_owned(), None, false) };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, target) = rest.split_at(end);
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    (target, Some(host.to_owned()), grpc)
}

/// A gRPC path is `/package.Service/Method`.
fn grpc_of(method: &str, path: &str, target: Option<&TargetShown>) -> GrpcShown {
    let mut problems = Vec::new();
    let (service, call) = path.trim_start_matches('/').split_once('/').unwrap_or((path, ""));
    if service.is_empty() || call.is_empty() || call.contains('/') {
        problems.push(format!("`{path}` is not a gRPC path; expected /package.Service/Method"));
    }
    if method != "POST" {
        problems.push(format!("gRPC calls are POST, not {method}"));
    }
    match target {
        Some(TargetShown::Upstreams(upstreams)) => {
            let plain = upstreams.iter().filter(|u| u.protocol == "http1");
            problems.extend(plain.map(|u| {
                format!("upstream {} speaks http1; gRPC needs `protocol: h2c`, or h2 with tls", u.name)
            }));
        }
        Some(TargetShown::Files { .. } | TargetShown::Filter { .. } | TargetShown::Respond { .. }) => {
            problems
                .push("the route answers without an upstream; a gRPC client expects grpc-status".to_owned());
        }
        None => {}
    }
    GrpcShown { service: service.to_owned(), method: call.to_owned(), problems }
}

fn named_files(handling: &Handling) -> Vec<String> {
    let folders = handling.by_header.iter().flat_map(|by_header| by_header.folders());
    folders.map(|(field, prefix, folder)| format!("{field}: {prefix} is {}", folder.display())).collect()
}

fn target_of(snapshot: &Snapshot, handling: &Handling, asked: &Asked<'_>) -> TargetShown {
    let shown = |index: usize, share: f64| {
        let upstream = &snapshot.upstreams[index];
        let fixed =
            upstream.names.fixed.iter().map(|e| format!("{}{}", e.label, place_of(&e.place, e.weight)));
        let registry =
            upstream.registry.iter().map(|registry| format!("{} {}", registry.kind, registry.place));
        let names = upstream.names.names.iter();
        let names = names.map(|n| format!("{}:{} (DNS){}", n.host, n.port, place_of(&n.place, n.weight)));
        UpstreamShown {
            name: upstream.name.to_string(),
            arm: None,
            share,
            protocol: upstream.protocol.name(upstream.tls.is_some()),
            balancer: upstream.balancer.kind.name,
            sticky: upstream.sticky.as_ref().map(|sticky| StickyShown {
                cookie: sticky.cookie.to_string(),
                ttl_seconds: sticky.ttl.map(|ttl| ttl.as_secs_f64()),
            }),
            slow_start_seconds: upstream.slow_start.map(|lasts| lasts.as_secs_f64()),
            zone: upstream.zone.as_deref().map(str::to_owned),
            hash: upstream.balancer.hash.as_ref().map(|hash| HashShown {
                by: without_expression(&hash.by.to_string()).to_owned(),
                bounded: hash.bounded.map(|ratio| (ratio * 10_000.0).round() / 100.0),
                expressions: {
                    let by = hash.by.to_string();
                    let text = by.contains("{=") || by.starts_with("= ");
                    let text = text.then(|| WithExpressions {
                        key: "hash.by".to_owned(),
                        is_public: without_expression(&by) == by,
                        text: by,
                        is_condition: false,
                    });
                    expressions_of(snapshot, text.as_slice(), asked)
                },
            }),
            endpoints: fixed.chain(names).chain(registry).collect(),
            policies: PoliciesShown::of(upstream, handling.exchange_timeout),
        }
    };
    let shown_of = |target: &Target| match target {
        Target::Upstream(index) => vec![shown(*index, 100.0)],
        Target::Split(shares) => {
            let total = shares.last().map_or(1, |(total, _)| *total);
            let mut before = 0;
            let each = shares.iter().map(|(upto, index)| {
                let share = f64::from(upto - before) * 100.0 / f64::from(total);
                before = *upto;
                shown(*index, share)
            });
            each.collect()
        }
        Target::Arms(arms) => {
            let total = arms.iter().map(|arm| arm.weight).fold(0u32, u32::saturating_add).max(1);
            let leading = arms.iter().filter(|arm| arm.weight > 0);
            let each = leading.filter_map(|arm| {
                let shown = shown(arm.upstream?, f64::from(arm.weight) * 100.0 / f64::from(total));
                Some(UpstreamShown { arm: (*arm.name != *shown.name).then(|| arm.name.to_string()), ..shown })
            });
            each.collect()
        }
        Target::Files(_) | Target::Filters | Target::Respond(_) => Vec::new(),
    };
    match &handling.target {
        Target::Files(site) => TargetShown::Files {
            missing: handling.missing.as_deref().map(shown_of).unwrap_or_default(),
            root: site.root().display().to_string(),
            index: site.index().to_vec(),
            browse: site.browses(),
            fallback: site.fallback(),
        },
        Target::Filters => {
            let filters = handling.chain.iter().filter_map(|&index| snapshot.filters.get(index as usize));
            let answers = Hooks::ANSWERS | Hooks::ANSWERS_PLAIN;
            let mut answering =
                filters.filter(|filter| filter.hooks.has_any(answers)).map(|filter| filter.name);
            TargetShown::Filter { name: answering.next_back().unwrap_or_default() }
        }
        Target::Respond(answer) => TargetShown::Respond {
            status: answer.status,
            expressions: expressions_of(snapshot, &answer.expressions, asked),
        },
        target @ (Target::Arms(_) | Target::Upstream(_) | Target::Split(_)) => {
            TargetShown::Upstreams(shown_of(target))
        }
    }
}

/// A text about an endpoint's priority, zone and weight, if they are not the defaults.
fn place_of(place: &Place, weight: u32) -> String {
    let weight = (weight != 1).then(|| format!("weight {weight}"));
    let zone = place.zone.as_ref().map(|zone| format!("zone {zone}"));
    let priority = (place.priority != 0).then(|| format!("priority {}", place.priority));
    let said: Vec<String> = [weight, zone, priority].into_iter().flatten().collect();
    if said.is_empty() { String::new() } else { format!(" ({})", said.join(", ")) }
}

impl UpstreamShown {
    /// How an endpoint is chosen, as text.
    fn balancing(&self) -> String {
        let mut words = self.balancer.to_owned();
        if let Some(hash) = &self.hash {
            let _ = write!(words, " by {}", hash.by);
            let _ = hash.bounded.map(|bounded| write!(words, ", bounded by {bounded}%"));
        }
        if let Some(sticky) = &self.sticky {
            let _ = write!(words, ", sticky by cookie {}", sticky.cookie);
            let _ = sticky.ttl_seconds.map(|ttl| write!(words, " for {ttl}s"));
        }
        let _ = self.slow_start_seconds.map(|seconds| write!(words, ", slow start over {seconds}s"));
        let _ = self.zone.as_ref().map(|zone| write!(words, ", from zone {zone}"));
        words
    }
}

impl FilterShown {
    /// Writes its lines, of which the first has its indent already.
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let indent = 9 + 4 * depth;
        writeln!(f, "{} {}", self.name, self.settings)?;
        self.tells.iter().try_for_each(|told| writeln!(f, "{:indent$}  {told}", ""))?;
        self.expressions.iter().try_for_each(|one| writeln!(f, "{:indent$}  {one}", ""))?;
        for list in &self.lists {
            let runs = match (list.runs, list.share) {
                (_, Some(share)) => format!(" ({share}%)"),
                (Some(true), None) => String::new(),
                (Some(false), None) => " (not for this request)".to_owned(),
                (None, None) => " (depends on the caller)".to_owned(),
            };
            writeln!(f, "{:indent$}  {}{runs}", "", list.key)?;
            for filter in &list.filters {
                write!(f, "{:indent$}    ", "")?;
                filter.write(f, depth + 1)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let r = &self.request;
        let query = r.query.as_ref().map(|q| format!("?{q}")).unwrap_or_default();
        writeln!(f, "request  {} {}{query} on host {}, listener {}", r.method, r.path, r.host, r.listener)?;
        if let Some(why) = &r.listener_reason {
            writeln!(f, "         listener {}: {why}", r.listener)?;
        }
        r.note.iter().try_for_each(|note| writeln!(f, "         {note}"))?;
        if let Some(grpc) = &self.grpc {
            writeln!(f, "gRPC     service {}, method {}", grpc.service, grpc.method)?;
            grpc.problems.iter().try_for_each(|problem| writeln!(f, "         {problem}"))?;
        }
        write!(f, "{}", self.decision)?;
        if self.decision.winner.is_none() {
            return writeln!(f, "answer   404 no_route");
        }
        for (i, filter) in self.filters.iter().enumerate() {
            write!(f, "{:8} ", if i == 0 { "filters" } else { "" })?;
            filter.write(f, 0)?;
        }
        match &self.target {
            Some(TargetShown::Files { root, index, browse, fallback, missing }) => {
                write!(f, "files    {root}")?;
                let _ = (!index.is_empty()).then(|| write!(f, ", index {}", index.join(", ")));
                let _ = fallback.as_ref().map(|fallback| write!(f, ", fallback {fallback}"));
                writeln!(f, "{}", if *browse { ", folders listed" } else { "" })?;
                write_upstreams(f, "missing", missing)
            }
            Some(TargetShown::Filter { name }) => writeln!(f, "answer   by the filter {name}"),
            Some(TargetShown::Respond { status, expressions }) => {
                writeln!(f, "respond  {status}")?;
                expressions.iter().try_for_each(|one| writeln!(f, "{:9}{one}", ""))
            }
            Some(TargetShown::Upstreams(upstreams)) => write_upstreams(f, "upstream", upstreams),
            None => Ok(()),
        }?;
        self.files_by_header.iter().try_for_each(|named| writeln!(f, "file     {named}"))?;
        self.early_data.iter().try_for_each(|early| writeln!(f, "0-RTT    {early}"))
    }
}

fn write_upstreams(f: &mut fmt::Formatter<'_>, label: &str, upstreams: &[UpstreamShown]) -> fmt::Result {
    upstreams.iter().try_for_each(|u| {
        let share = if u.share < 100.0 { format!(" ({}%)", u.share) } else { String::new() };
        let protocol = if u.protocol == "http1" { String::new() } else { format!(", {}", u.protocol) };
        let endpoints = u.endpoints.join(", ");
        let arm = u.arm.as_ref().map(|arm| format!(" as {arm}")).unwrap_or_default();
        writeln!(f, "{label:8} {}{arm}{share}, {}{protocol}: {endpoints}", u.name, u.balancing())?;
        let hashed = u.hash.iter().flat_map(|hash| &hash.expressions);
        hashed.into_iter().try_for_each(|one| writeln!(f, "{:9}{one}", ""))?;
        write!(f, "{}", u.policies)
    })
}
