//! The endpoints of the admin listener: one row each in [`ENDPOINTS`], one arm each in [`Api::run`].

use crate::admin::Upgrade;
use crate::answer::{self, Answer};
use crate::by_hand;
use crate::guard::{self, Access, Caller};
use crate::page;
use crate::purge;
use crate::why;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::header;
use hyper::{Method, Request, StatusCode, Uri};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use weir_gateway::config::Config;
use weir_gateway::config::schema::Secret;
use weir_gateway::{Gateway, Status};
use weir_telemetry::log;
use weir_wire::Peer;

/// Largest body of a request, in bytes. No endpoint reads one; clients send them out of habit.
const BODY_BYTES: usize = 64 * 1024;

/// How long a body may take.
const BODY_WAIT: Duration = Duration::from_secs(10);

/// What the listener can be asked for.
pub(crate) struct Endpoint {
    pub(crate) path: &'static str,
    pub(crate) meaning: &'static str,
    action: Action,
    access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Drain,
    Endpoint,
    Healthz,
    Metrics,
    Page,
    Purge,
    Readyz,
    Reload,
    Status,
    Upgrade,
    Why,
}

/// All of them, as the page lists them.
pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint { path: "/", meaning: "this page", action: Action::Page, access: Access::Guarded },
    Endpoint {
        path: "/status",
        meaning: "the same for machines",
        action: Action::Status,
        access: Access::Guarded,
    },
    Endpoint {
        path: "/metrics",
        meaning: "everything counted, for Prometheus",
        action: Action::Metrics,
        access: Access::Scrapers,
    },
    Endpoint {
        path: "/healthz",
        meaning: "whether the process lives",
        action: Action::Healthz,
        access: Access::Open,
    },
    Endpoint {
        path: "/readyz",
        meaning: "whether new requests are welcome",
        action: Action::Readyz,
        access: Access::Open,
    },
    Endpoint {
        path: "/reload",
        meaning: "loads the config again",
        action: Action::Reload,
        access: Access::Guarded,
    },
    Endpoint {
        path: "/drain",
        meaning: "finishes what is under way, then ends",
        action: Action::Drain,
        access: Access::Guarded,
    },
    Endpoint {
        path: by_hand::PATH,
        meaning: "drains an endpoint, puts it out, or puts it back in; `?for=10m` says for how long",
        action: Action::Endpoint,
        access: Access::Guarded,
    },
    Endpoint {
        path: purge::PATH,
        meaning: "removes answers from a cache: `?url=…`, `?prefix=…`, `?tag=…` or `?all=true`",
        action: Action::Purge,
        access: Access::Guarded,
    },
    Endpoint {
        path: "/upgrade",
        meaning: "starts the program that lies at its path now, and gives way to it",
        action: Action::Upgrade,
        access: Access::Guarded,
    },
    Endpoint {
        path: why::PATH,
        meaning: "what became of requests, and why; `/{id}`, `?cause=`, `?route=`, `?kind=`",
        action: Action::Why,
        access: Access::Guarded,
    },
];

/// What the endpoints work on.
pub(crate) struct Api {
    gateway: Gateway,
    configs: watch::Receiver<Arc<Config>>,
    drain_asked: AtomicBool,
    upgrade: Option<Upgrade>,
}

// === impl Endpoint ===

impl Endpoint {
    /// The methods it takes, as in Allow.
    pub(crate) const fn methods(&self) -> &'static str {
        match self.action {
            Action::Drain | Action::Endpoint | Action::Purge | Action::Reload | Action::Upgrade => "POST",
            Action::Healthz
            | Action::Metrics
            | Action::Page
            | Action::Readyz
            | Action::Status
            | Action::Why => "GET, HEAD",
        }
    }

    fn is_at(&self, path: &str) -> bool {
        match self.action {
            Action::Endpoint => by_hand::is_at(path),
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
        Self { configs: gateway.configs(), gateway, drain_asked: AtomicBool::new(false), upgrade }
    }

    /// Answers one request. HEAD is answered like GET; the server leaves the body out.
    pub(crate) async fn answer(&self, peer: Peer, request: Request<Incoming>) -> Answer {
        let endpoint = ENDPOINTS.iter().find(|endpoint| endpoint.is_at(request.uri().path()));
        // An unknown path is guarded too: what exists here is nobody's business who may not know.
        let access = endpoint.map_or(Access::Guarded, |endpoint| endpoint.access);
        let caller =
            Caller { peer, version: request.version(), uri: request.uri(), headers: request.headers() };
        // Of the config as it runs now, whichever address this connection came in by.
        let token = self.configs.borrow().admin.token.clone();
        if let Err(why) = guard::check(access, caller, token.as_ref().map(Secret::reveal)) {
            log::debug("admin request refused", &[("peer", &peer), ("reason", &format_args!("{why:?}"))]);
            return answer::denied(why);
        }
        let Some(endpoint) = endpoint else {
            return answer::problem(
                StatusCode::NOT_FOUND,
                "there is no such path; GET / lists those there are",
            );
        };
        if !endpoint.takes(request.method()) {
            return answer::wrong_method(endpoint.methods());
        }
        let (accept, uri) = (accept(&request), request.uri().clone());
        // Of GET a body means nothing (RFC 9110 §9.3.1), and no stranger shall keep us waiting for one: what POST does is
        // guarded.
        if request.method() == Method::POST
            && let Err(refused) = read_body(request.into_body()).await
        {
            return refused;
        }
        self.run(endpoint.action, peer, &accept, &uri).await
    }

    async fn run(&self, action: Action, peer: Peer, accept: &str, uri: &Uri) -> Answer {
        match action {
            Action::Drain => self.drain(peer),
            Action::Endpoint => self.endpoint(peer, uri).await,
            Action::Healthz => answer::of(StatusCode::OK, answer::TEXT, "ok\n"),
            Action::Metrics => {
                let (media, text) = self.gateway.metrics(accept);
                answer::of(StatusCode::OK, media, text)
            }
            Action::Page => {
                self.with_status(|status| answer::of(StatusCode::OK, answer::HTML, page::render(status)))
                    .await
            }
            Action::Purge => self.purge(peer, uri).await,
            Action::Readyz => self.readyz(),
            Action::Reload => self.reload(peer).await,
            Action::Status => {
                self.with_status(|status| answer::json(StatusCode::OK, &document(status))).await
            }
            Action::Upgrade => self.upgrade(peer).await,
            Action::Why => self.why(uri).await,
        }
    }

    fn readyz(&self) -> Answer {
        if !self.gateway.is_ready() {
            return answer::of(StatusCode::SERVICE_UNAVAILABLE, answer::TEXT, "draining\n");
        }
        match self.gateway.awaited_probes() {
            awaited if awaited.is_empty() => answer::of(StatusCode::OK, answer::TEXT, "ready\n"),
            // Whose these are is nobody's business who may not know: anyone may ask this.
            awaited => {
                let said = format!("waiting for the probes of {} upstreams\n", awaited.len());
                answer::of(StatusCode::SERVICE_UNAVAILABLE, answer::TEXT, said)
            }
        }
    }

    async fn with_status(&self, answer: impl FnOnce(&Status) -> Answer + Send + 'static) -> Answer {
        let gateway = self.gateway.clone();
        // Elsewhere, because it waits for a reload under way, and probes must not.
        elsewhere(move || answer(&gateway.status())).await
    }

    async fn reload(&self, peer: Peer) -> Answer {
        log::info("reload asked for", &[("peer", &peer)]);
        if !self.gateway.is_ready() {
            return answer::problem(
                StatusCode::CONFLICT,
                "the gateway drains: it takes no other config any more",
            );
        }
        let gateway = self.gateway.clone();
        elsewhere(move || match gateway.reload() {
            Ok(reloaded) => {
                let mut document = json!({ "revision": reloaded.revision });
                add(&mut document, reloaded.diagnostics.to_json());
                document["text"] = reloaded.diagnostics.to_text().into();
                answer::json(StatusCode::OK, &document)
            }
            Err(refused) => {
                let mut members = refused.diagnostics.to_json();
                members["text"] = refused.diagnostics.to_text().into();
                let detail = "the config has errors; the one before runs on";
                answer::problem_with(StatusCode::UNPROCESSABLE_ENTITY, detail, members)
            }
        })
        .await
    }

    /// Answers when the new process serves, or when it is known why it does not.
    async fn upgrade(&self, peer: Peer) -> Answer {
        log::info("upgrade asked for", &[("peer", &peer)]);
        let Some(upgrade) = self.upgrade.clone() else {
            return answer::problem(StatusCode::NOT_IMPLEMENTED, "this program cannot replace itself");
        };
        elsewhere(move || match upgrade() {
            Ok(pid) => answer::json(StatusCode::OK, &json!({ "pid": pid, "was": std::process::id() })),
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
            "endpoint change asked for",
            &[
                ("peer", &peer),
                ("upstream", &asked.upstream),
                ("endpoint", &asked.endpoint),
                ("what", &asked.verb),
            ],
        );
        let gateway = self.gateway.clone();
        // Elsewhere, because it waits for a reload under way.
        elsewhere(move || match gateway.put_endpoint(&asked.upstream, &asked.endpoint, asked.by_hand) {
            Ok(endpoints) => {
                let document = json!({ "upstream": asked.upstream, "endpoints": endpoints });
                answer::json(StatusCode::OK, &document)
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
        log::info("purge asked for", &[("peer", &peer), ("store", &asked.store), ("named", &named)]);
        let gateway = self.gateway.clone();
        // Elsewhere, because it walks through the whole store.
        elsewhere(move || match gateway.purge(&asked.store, &asked.what) {
            Ok(purged) => answer::json(StatusCode::OK, &json!({ "store": asked.store, "purged": purged })),
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
        // Elsewhere, because it waits for every core and reads the config.
        elsewhere(move || why::run(&gateway, question)).await
    }

    /// Starts the drain on a thread of its own: it takes as long as the last exchange.
    fn drain(&self, peer: Peer) -> Answer {
        log::info("drain asked for", &[("peer", &peer)]);
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

/// Runs what blocks off the one thread that answers.
async fn elsewhere(work: impl FnOnce() -> Answer + Send + 'static) -> Answer {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
        answer::problem(StatusCode::INTERNAL_SERVER_ERROR, "this is a bug in Weir: see its log")
    })
}

/// What a gateway says about itself, as JSON: named things as objects, so that a script can address them.
fn document(status: &Status) -> Value {
    let listeners: serde_json::Map<_, _> = status
        .listeners
        .iter()
        .map(|(name, address)| (name.clone(), json!({ "address": address })))
        .collect();
    let upstreams: serde_json::Map<_, _> =
        status.upstreams.iter().map(|(name, upstream)| (name.clone(), json!(upstream))).collect();
    json!({
        "version": status.version,
        "revision": status.revision,
        "state": status.state,
        "uptime_seconds": status.uptime_seconds,
        "workers": status.workers,
        "connections": status.connections,
        "requests": status.requests,
        "requests_per_second": status.requests_per_second,
        "last_reload": status.last_reload,
        "causes": status.causes,
        "routes": status.routes,
        "filters": status.filters,
        "listeners": listeners,
        "certificates": status.certificates,
        "upstreams": upstreams,
    })
}

fn add(document: &mut Value, members: Value) {
    if let (Value::Object(document), Value::Object(members)) = (document, members) {
        document.extend(members);
    }
}

/// All of Accept in one, as RFC 9110 §5.3 joins it.
fn accept(request: &Request<Incoming>) -> String {
    let values = request.headers().get_all(header::ACCEPT).iter();
    values.filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(", ")
}

/// Reads what nobody needs, so that the connection can be used again; within limits.
async fn read_body(body: Incoming) -> Result<(), Answer> {
    if body.is_end_stream() {
        return Ok(());
    }
    let too_large = || {
        let detail = format!("a body here may have {BODY_BYTES} bytes, and needs none");
        answer::problem(StatusCode::PAYLOAD_TOO_LARGE, &detail)
    };
    if body.size_hint().lower() > BODY_BYTES as u64 {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_WAIT, Limited::new(body, BODY_BYTES).collect()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(e)) if e.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(answer::problem(StatusCode::BAD_REQUEST, "the body did not arrive whole")),
        Err(_) => Err(answer::problem(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
    }
}
