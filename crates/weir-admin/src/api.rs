//! The endpoints of the admin listener: each has a row in [`ENDPOINTS`] and an arm in [`Api::run`].

use crate::answer::{self, Answer};
use crate::bundle;
use crate::calls::{self, Call, Found};
use crate::config_answer::{extend, members_for};
use crate::config_api;
use crate::config_request::ConfigRequest;
use crate::console::{self, Console, Visit};
use crate::documents::{Endpoints, Purged, Turned};
use crate::guard::{self, Access, Caller, Identity, Keys};
use crate::maintenance;
use crate::purge;
use crate::why;
use crate::{audit, by_hand};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap};
use hyper::{Method, Request, StatusCode, Uri};
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use weir_gateway::config::Config;
use weir_gateway::config::schema::{Role, Secret};
use weir_gateway::history::{By, Origin};
use weir_gateway::{Consequences, Gateway};
use weir_telemetry::log;
use weir_wire::Peer;
use weir_wire::tls::{PeerCertificate, ServerTls};

/// Largest unused request body, in bytes; some clients always send one. For calls that read a body, see
/// [`Call::body`].
const BODY_BYTES: usize = 64 * 1024;

/// Timeout of reading a body.
const BODY_WAIT: Duration = Duration::from_secs(10);

/// An endpoint of the listener.
pub(crate) struct Endpoint {
    pub(crate) path: &'static str,
    action: Action,
    access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Bundle,
    /// A call of [`calls::CALLS`].
    Described,
    Drain,
    Endpoint,
    Healthz,
    Maintenance,
    Metrics,
    Purge,
    Readyz,
    Reload,
    Status,
    Upgrade,
    Why,
}

/// All endpoints.
pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint { path: "/status", action: Action::Status, access: Access::Needs(Role::Read) },
    Endpoint { path: "/metrics", action: Action::Metrics, access: Access::Scrapers },
    Endpoint { path: "/healthz", action: Action::Healthz, access: Access::Open },
    Endpoint { path: "/readyz", action: Action::Readyz, access: Access::Open },
    Endpoint { path: "/reload", action: Action::Reload, access: Access::Needs(Role::Operate) },
    // A bundle contains the files as written, including secrets, which other roles must not see.
    Endpoint { path: bundle::PATH, action: Action::Bundle, access: Access::Needs(Role::Admin) },
    Endpoint { path: "/drain", action: Action::Drain, access: Access::Needs(Role::Admin) },
    Endpoint { path: by_hand::PATH, action: Action::Endpoint, access: Access::Needs(Role::Operate) },
    Endpoint { path: "/api/v1/openapi.json", action: Action::Described, access: Access::Needs(Role::Read) },
    Endpoint { path: purge::PATH, action: Action::Purge, access: Access::Needs(Role::Operate) },
    Endpoint { path: maintenance::PATH, action: Action::Maintenance, access: Access::Needs(Role::Operate) },
    Endpoint { path: "/upgrade", action: Action::Upgrade, access: Access::Needs(Role::Admin) },
    Endpoint { path: why::PATH, action: Action::Why, access: Access::Needs(Role::Read) },
];

/// State shared by all endpoints.
pub(crate) struct Api {
    gateway: Gateway,
    configs: watch::Receiver<Arc<Config>>,
    drain_asked: AtomicBool,
    upgrade: Option<Upgrade>,
    /// Permits for large bodies, which bound how many are in memory at the same time.
    large: Semaphore,
    console: Arc<Console>,
}

/// See [`Process::upgrade`](crate::Process::upgrade). May block until the new process is ready.
pub type Upgrade = Arc<dyn Fn() -> Result<(u32, Consequences), String> + Send + Sync>;

/// Most large bodies at the same time. Worst case 2 × 16 MiB plus the parsed trees.
const LARGE: usize = 2;

/// The origin of a request.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) peer: Peer,
    /// The user id of a process that connected over a Unix socket.
    pub(crate) uid: Option<u32>,
    /// The client certificate of the TLS handshake.
    pub(crate) certificate: Option<PeerCertificate>,
    /// Whether the connection uses TLS.
    pub(crate) secure: bool,
}

// === impl Endpoint ===

impl Endpoint {
    /// The allowed methods, in the syntax of Allow.
    pub(crate) const fn methods(&self) -> &'static str {
        match self.action {
            Action::Drain
            | Action::Endpoint
            | Action::Maintenance
            | Action::Purge
            | Action::Reload
            | Action::Upgrade => "POST",
            Action::Bundle
            | Action::Described
            | Action::Healthz
            | Action::Metrics
            | Action::Readyz
            | Action::Status
            | Action::Why => "GET, HEAD",
        }
    }

    fn is_at(&self, path: &str) -> bool {
        match self.action {
            Action::Endpoint => by_hand::is_at(path),
            Action::Maintenance => maintenance::is_at(path),
            Action::Purge => purge::is_at(path),
            Action::Why => why::is_at(path),
            _ => self.path == path,
        }
    }

    fn takes(&self, method: &Method) -> bool {
        self.methods().split(", ").any(|allowed| allowed == method.as_str())
    }
}

// === impl Api ===

impl Api {
    pub(crate) fn new(gateway: Gateway, upgrade: Option<Upgrade>) -> Self {
        Self {
            configs: gateway.configs(),
            gateway,
            drain_asked: AtomicBool::new(false),
            upgrade,
            large: Semaphore::new(LARGE),
            console: Arc::default(),
        }
    }

    /// TLS of the listener, from the current config.
    pub(crate) fn tls(&self) -> Option<Arc<ServerTls>> {
        self.gateway.admin_tls()
    }

    /// Whether callers can be identified by user id.
    pub(crate) fn knows_users(&self) -> bool {
        self.configs.borrow().admin.tokens.iter().any(|entry| entry.uid.is_some())
    }

    /// Answers one request. HEAD is handled like GET; the server omits the body.
    pub(crate) async fn answer(&self, from: &Remote, request: Request<Incoming>) -> Answer {
        let path = request.uri().path();
        let endpoint = ENDPOINTS.iter().find(|endpoint| endpoint.is_at(path));
        let found = calls::find(request.method(), path);
        let visit = console::find(path);
        // Unknown paths are guarded too, so that strangers cannot find out which paths exist.
        let access = match (&found, endpoint, visit) {
            (Found::Call(call, _), ..) => Access::Needs(call.role),
            (_, Some(endpoint), _) => endpoint.access,
            (_, _, Some(visit)) => visit.access(),
            _ => Access::Needs(Role::Read),
        };
        let address = from.peer.ip().to_canonical();
        let session =
            self.console.sessions.find(request.method(), request.headers(), address, Instant::now());
        let caller = Caller {
            peer: from.peer,
            uid: from.uid,
            certificate: from.certificate.as_ref(),
            version: request.version(),
            uri: request.uri(),
            headers: request.headers(),
            session: session.as_ref(),
        };
        // From the running config, no matter on which address this connection arrived.
        let admin = self.configs.borrow().admin.clone();
        let token = admin.token.as_ref().map(Secret::reveal);
        let keys = Keys { token, tokens: &admin.tokens, hosts: &admin.hosts };
        let line = (request.method().clone(), request.uri().clone());
        let who = match guard::check(access, caller, keys) {
            Ok(who) => who,
            Err(why) => {
                audit::refused(from.peer, &line, why);
                let way_in = console::way_in(visit, &line.0, &line.1, &accept(&request), why);
                return way_in.unwrap_or_else(|| answer::denied(why));
            }
        };
        let name = who.as_ref().map_or_else(String::new, |who| who.name.clone());
        let answer = match (found, endpoint, who) {
            (Found::Call(call, parts), _, Some(who)) => self.call(call, parts, who, request).await,
            (Found::Otherwise(allowed), _, _) => answer::wrong_method(&allowed),
            (_, Some(endpoint), who) => self.at(endpoint, from.peer, who, request).await,
            (_, _, who) if visit.is_some() => {
                let csrf = session.map(|session| session.csrf);
                self.visit(visit, who, csrf, keys, (address, from.secure), request).await
            }
            _ => answer::problem(
                StatusCode::NOT_FOUND,
                "there is no such path; /api/v1/openapi.json and docs/reference/admin-api.md list the paths",
            ),
        };
        audit::done(from.peer, &name, &line, &answer);
        answer
    }

    /// Answers a request for the console.
    async fn visit(
        &self,
        visit: Option<Visit>,
        who: Option<Identity>,
        csrf: Option<String>,
        keys: Keys<'_>,
        from: (IpAddr, bool),
        request: Request<Incoming>,
    ) -> Answer {
        let nothing = || answer::problem(StatusCode::NOT_FOUND, "there is no such path");
        let Some(visit) = visit else { return nothing() };
        if !visit.methods().split(", ").any(|allowed| allowed == request.method().as_str()) {
            return answer::wrong_method(visit.methods());
        }
        let (head, body) = request.into_parts();
        match (visit, who) {
            (Visit::Asset(asset), _) => console::asset(asset),
            (Visit::SignIn, _) if head.method == Method::POST => {
                match read_body(body, console::FORM_BYTES).await {
                    Err(refused) => refused,
                    Ok(form) => {
                        let form = String::from_utf8_lossy(&form);
                        let known = |token: &[u8]| guard::knows(token, keys);
                        console::sign_in(&self.console, &head.headers, &form, from, known)
                    }
                }
            }
            (Visit::SignIn, _) => console::sign_in_page(&head.uri, &head.headers, None),
            (Visit::SignOut, _) => console::sign_out(&self.console, &head.headers),
            (Visit::Screen(screen), Some(who)) => {
                let asked = console::Asked { screen, who, csrf, uri: head.uri, headers: head.headers };
                let (console, gateway) = (Arc::clone(&self.console), self.gateway.clone());
                elsewhere(move || console::page(&console, &gateway, &asked)).await
            }
            (Visit::Screen(_), None) => nothing(),
        }
    }

    /// Takes a sample every few seconds, for the charts of viewers who open the console later.
    pub(crate) async fn keep_record(&self) {
        loop {
            let (console, gateway) = (Arc::clone(&self.console), self.gateway.clone());
            let _ = tokio::task::spawn_blocking(move || console::look(&console, &gateway)).await;
            tokio::time::sleep(console::STEP).await;
        }
    }

    /// Answers a call about the config.
    async fn call(
        &self,
        call: &'static Call,
        parts: Vec<String>,
        who: Identity,
        request: Request<Incoming>,
    ) -> Answer {
        let (head, body) = request.into_parts();
        let is_small = body.size_hint().exact().is_some_and(|bytes| bytes <= BODY_BYTES as u64);
        let _turn = if call.body > BODY_BYTES && !is_small {
            match self.large.acquire().await {
                Ok(turn) => Some(turn),
                Err(_) => return answer::problem(StatusCode::INTERNAL_SERVER_ERROR, "this is a bug in Weir"),
            }
        } else {
            None
        };
        let body = match call.method {
            "GET" => Bytes::new(),
            _ => match read_body(body, if call.body == 0 { BODY_BYTES } else { call.body }).await {
                Ok(body) => body,
                Err(refused) => return refused,
            },
        };
        let Ok(body) = String::from_utf8(body.into()) else {
            return answer::problem(StatusCode::BAD_REQUEST, "the body is not UTF-8 text");
        };
        if call.body > 0 && !body.is_empty() && !is_text_of_ours(&head.headers) {
            let detail = "send it as application/json or application/yaml";
            return answer::problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail);
        }
        let asked = ConfigRequest { call, parts, uri: head.uri, headers: head.headers, body, who };
        let gateway = self.gateway.clone();
        elsewhere(move || config_api::run(&gateway, &asked)).await
    }

    /// Answers a request to one of [`ENDPOINTS`].
    async fn at(
        &self,
        endpoint: &Endpoint,
        peer: Peer,
        who: Option<Identity>,
        request: Request<Incoming>,
    ) -> Answer {
        if !endpoint.takes(request.method()) {
            return answer::wrong_method(endpoint.methods());
        }
        let (accept, uri) = (accept(&request), request.uri().clone());
        if endpoint.action == Action::Bundle {
            return bundle::answer(&self.gateway, &uri, request.headers()).await;
        }
        // The body of a GET has no meaning (RFC 9110 §9.3.1), and reading it would let a stranger keep us
        // waiting. POST is guarded.
        if request.method() == Method::POST
            && let Err(refused) = read_body(request.into_body(), BODY_BYTES).await
        {
            return refused;
        }
        self.run(endpoint.action, peer, who, &accept, &uri).await
    }

    async fn run(
        &self,
        action: Action,
        peer: Peer,
        who: Option<Identity>,
        accept: &str,
        uri: &Uri,
    ) -> Answer {
        match action {
            // Both are answered earlier.
            Action::Bundle | Action::Described => {
                answer::problem(StatusCode::NOT_FOUND, "there is no such path")
            }
            Action::Drain => self.drain(peer),
            Action::Endpoint => self.endpoint(peer, uri).await,
            Action::Healthz => answer::of(StatusCode::OK, answer::TEXT, "ok\n"),
            Action::Metrics => {
                let (media, text) = self.gateway.metrics(accept);
                answer::of(StatusCode::OK, media, text)
            }
            Action::Maintenance => self.maintenance(peer, uri).await,
            Action::Purge => self.purge(peer, uri).await,
            Action::Readyz => self.readyz(),
            Action::Reload => self.reload(peer, who).await,
            Action::Status => self.status().await,
            Action::Upgrade => self.upgrade(peer).await,
            Action::Why => self.why(uri).await,
        }
    }

    fn readyz(&self) -> Answer {
        if !self.gateway.is_ready() {
            return answer::of(StatusCode::SERVICE_UNAVAILABLE, answer::TEXT, "draining\n");
        }
        if self.gateway.awaits_config() {
            return answer::of(StatusCode::SERVICE_UNAVAILABLE, answer::TEXT, "waiting for a config\n");
        }
        if let Some(awaited) = self.gateway.held_by() {
            return answer::of(
                StatusCode::SERVICE_UNAVAILABLE,
                answer::TEXT,
                format!("waiting for {awaited}\n"),
            );
        }
        match self.gateway.awaited_certificates() {
            0 => {}
            awaited => {
                let said = format!("waiting for {awaited} certificates\n");
                return answer::of(StatusCode::SERVICE_UNAVAILABLE, answer::TEXT, said);
            }
        }
        match self.gateway.awaited_probes() {
            awaited if awaited.is_empty() => answer::of(StatusCode::OK, answer::TEXT, "ready\n"),
            // Only the number of upstreams, without names, because anyone may ask this.
            awaited => {
                let said = format!("waiting for the probes of {} upstreams\n", awaited.len());
                answer::of(StatusCode::SERVICE_UNAVAILABLE, answer::TEXT, said)
            }
        }
    }

    async fn status(&self) -> Answer {
        let gateway = self.gateway.clone();
        // On another thread, because this waits for a running reload, and probes must not wait.
        elsewhere(move || answer::json(StatusCode::OK, &json!(gateway.status()))).await
    }

    async fn reload(&self, peer: Peer, who: Option<Identity>) -> Answer {
        log::info("reload requested", &[("peer", &peer)]);
        if !self.gateway.is_ready() {
            return answer::problem(
                StatusCode::CONFLICT,
                "the gateway is draining and accepts no other config",
            );
        }
        let gateway = self.gateway.clone();
        let Some(who) = who else { return answer::denied(guard::Denied::TokenMissing) };
        let by = By { author: who.name.clone(), origin: Origin::Reload, message: String::new() };
        elsewhere(move || match gateway.reload_by(&by) {
            Ok(reloaded) => {
                let mut document = json!({ "revision": reloaded.revision });
                extend(&mut document, json!(reloaded.consequences));
                extend(&mut document, members_for(&reloaded.diagnostics, &who, &gateway));
                let text = document["text"].as_str().unwrap_or_default();
                document["text"] = format!("{text}{}", reloaded.consequences.to_text()).into();
                answer::json(StatusCode::OK, &document)
            }
            Err(refused) => {
                let members = members_for(&refused.diagnostics, &who, &gateway);
                let detail = "the config has errors; the previous one keeps running";
                answer::problem_with(StatusCode::UNPROCESSABLE_ENTITY, detail, members)
            }
        })
        .await
    }

    /// Answers once the new process serves, or once it has failed.
    async fn upgrade(&self, peer: Peer) -> Answer {
        log::info("upgrade requested", &[("peer", &peer)]);
        let Some(upgrade) = self.upgrade.clone() else {
            return answer::problem(StatusCode::NOT_IMPLEMENTED, "this program cannot replace itself");
        };
        elsewhere(move || match upgrade() {
            Ok((pid, consequences)) => {
                let text = consequences.to_text();
                let mut document = json!({ "pid": pid, "was": std::process::id(), "text": text });
                extend(&mut document, json!(consequences));
                answer::json(StatusCode::OK, &document)
            }
            Err(why) => answer::problem(StatusCode::CONFLICT, &why),
        })
        .await
    }

    async fn endpoint(&self, peer: Peer, uri: &Uri) -> Answer {
        let asked = match by_hand::read(uri) {
            Ok(asked) => asked,
            Err(why) => return answer::problem(StatusCode::BAD_REQUEST, &why),
        };
        log::info(
            "endpoint change requested",
            &[
                ("peer", &peer),
                ("upstream", &asked.upstream),
                ("endpoint", &asked.endpoint),
                ("what", &asked.verb),
            ],
        );
        let gateway = self.gateway.clone();
        // On another thread, because this waits for a running reload.
        elsewhere(move || match gateway.put_endpoint(&asked.upstream, &asked.endpoint, asked.by_hand) {
            Ok(endpoints) => {
                let document = Endpoints { upstream: asked.upstream, endpoints };
                answer::json(StatusCode::OK, &json!(document))
            }
            Err(why) => answer::problem(StatusCode::NOT_FOUND, &why),
        })
        .await
    }

    async fn maintenance(&self, peer: Peer, uri: &Uri) -> Answer {
        let asked = match maintenance::read(uri) {
            Ok(asked) => asked,
            Err(why) => return answer::problem(StatusCode::BAD_REQUEST, &why),
        };
        let what = if asked.time.is_some() { "on" } else { "off" };
        log::info("maintenance requested", &[("peer", &peer), ("switch", &asked.switch), ("what", &what)]);
        let gateway = self.gateway.clone();
        // On another thread, because this waits for a running reload.
        elsewhere(move || match gateway.turn(&asked.switch, asked.time) {
            Ok(until) => {
                let (on, until) = (until.is_some(), until.map(weir_telemetry::timestamp));
                answer::json(StatusCode::OK, &json!(Turned { switch: asked.switch, on, until }))
            }
            Err(why) => answer::problem(StatusCode::NOT_FOUND, &why),
        })
        .await
    }

    async fn purge(&self, peer: Peer, uri: &Uri) -> Answer {
        let asked = match purge::read(uri) {
            Ok(asked) => asked,
            Err(why) => return answer::problem(StatusCode::BAD_REQUEST, &why),
        };
        let named = asked.what.len();
        log::info("purge requested", &[("peer", &peer), ("store", &asked.store), ("named", &named)]);
        let gateway = self.gateway.clone();
        // On another thread, because this scans the whole store.
        elsewhere(move || match gateway.purge(&asked.store, &asked.what) {
            Ok(purged) => answer::json(StatusCode::OK, &json!(Purged { store: asked.store, purged })),
            Err(why) => answer::problem(StatusCode::NOT_FOUND, &why),
        })
        .await
    }

    async fn why(&self, uri: &Uri) -> Answer {
        let question = match why::read(uri) {
            Ok(question) => question,
            Err(wrong) => return answer::problem(StatusCode::BAD_REQUEST, &wrong),
        };
        let gateway = self.gateway.clone();
        // On another thread, because this waits for every core and reads the config.
        elsewhere(move || why::run(&gateway, question)).await
    }

    /// Starts the drain on its own thread, since it takes as long as the last exchange.
    fn drain(&self, peer: Peer) -> Answer {
        log::info("drain requested", &[("peer", &peer)]);
        if !self.drain_asked.swap(true, Ordering::Relaxed) && self.gateway.is_ready() {
            let gateway = self.gateway.clone();
            let thread = std::thread::Builder::new().name("weir-drain".to_owned());
            if let Err(e) = thread.spawn(move || gateway.drain()) {
                self.drain_asked.store(false, Ordering::Relaxed);
                let detail = format!("the drain could not be started: {e}");
                return answer::problem(StatusCode::INTERNAL_SERVER_ERROR, &detail);
            }
        }
        let config = self.configs.borrow();
        let shutdown = &config.shutdown;
        let document = json!({
            "state": "draining",
            "delay": shutdown.delay.to_string(),
            "deadline": shutdown.drain.to_string(),
        });
        answer::json(StatusCode::ACCEPTED, &document)
    }
}

/// Runs blocking work off the single thread that answers.
async fn elsewhere(work: impl FnOnce() -> Answer + Send + 'static) -> Answer {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        answer::problem(StatusCode::INTERNAL_SERVER_ERROR, "this is a bug in Weir: see its log")
    })
}

/// All Accept fields joined, as in RFC 9110 §5.3.
fn accept(request: &Request<Incoming>) -> String {
    let values = request.headers().get_all(header::ACCEPT).iter();
    values.filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(", ")
}

/// Whether the body is declared as JSON or YAML. A page of another origin cannot send these types without a CORS
/// preflight.
fn is_text_of_ours(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    ["application/json", "application/yaml", "application/merge-patch+json"]
        .iter()
        .any(|ours| media.eq_ignore_ascii_case(ours))
}

/// Reads a body within the size limit.
async fn read_body(body: Incoming, limit: usize) -> Result<Bytes, Answer> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let too_large =
        || answer::problem(StatusCode::PAYLOAD_TOO_LARGE, &format!("a body here may have {limit} bytes"));
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_WAIT, Limited::new(body, limit).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(e)) if e.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(answer::problem(StatusCode::BAD_REQUEST, "the body did not arrive whole")),
        Err(_) => Err(answer::problem(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
    }
}
