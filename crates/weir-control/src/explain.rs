//! `weir explain`: what would happen to a request, computed by the same code that routes live traffic.

mod arrival;
mod expressions;
mod made_up;
mod policies;
mod shown;
mod target;

pub use expressions::ExpressionShown;
pub use policies::{HealthShown, HedgeShown, OutlierShown, PoliciesShown, ProbeShown, RetryShown};
pub use shown::{
    Explanation, FilterShown, GrpcShown, HashShown, ListShown, StickyShown, TargetShown, Understood,
    UpstreamShown,
};

use made_up::{MadeUp, head_of};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::time::SystemTime;
use target::{filters_of, grpc_of, named_files, target_of};
use weir_engine::PREFLIGHT;
use weir_engine::early_data::{self, Early};
use weir_engine::snapshot::{Listener, Serves, Snapshot};
use weir_filter::filter::Asked;
use weir_h1::{Method, RequestHead, TargetForm};
use weir_route::variables::Secrets;
use weir_route::{Ambiguity, EscapedSlashes, NEAR_MISSES, NoTrace, RouteId};

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
    let target = &*made_up::with_scheme(method, target)?;
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
