//! Where an API comes from: files, read once, or the service itself, asked periodically.

use super::offer::REFUSED_SHOWN;
use arc_swap::ArcSwapOption;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use weir_filter::filter::{CallRequest, CoreHandle};
use weir_h1::FieldName;
use weir_telemetry::log;
use weir_transcode::reflection::{ANSWER_BYTES, Asking, Next};
use weir_transcode::{Api, Choice, JsonOptions, Limits, RuleError, sources};
use weir_wire::time;

/// Longest total time for a service to describe itself.
const ASKING: Duration = Duration::from_secs(15);

/// The pause before asking a service that did not answer again. Also the shortest time between an answer and another
/// question caused by an unknown path.
const PAUSE: Duration = Duration::from_secs(1);
const UNKNOWN_PAUSE: Duration = Duration::from_secs(5);

/// Whether an API gets an OpenAPI description, and its title.
#[derive(Debug)]
pub(crate) struct Described {
    pub(crate) title: Option<String>,
}

/// An API, and its description if one is served.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) api: Api,
    /// OpenAPI 3.1.
    pub(crate) description: bytes::Bytes,
}

impl Loaded {
    /// Takes a while if there is a description, so do not call it on a core.
    pub(crate) fn new(api: Api, described: Option<&Described>) -> Self {
        let description = described.map(|described| api.openapi(described.title.as_deref()));
        Self { description: description.unwrap_or_default().into(), api }
    }
}

/// The source of a filter's API.
pub(crate) enum Source {
    Fixed(Arc<Loaded>),
    Reflected(Arc<Reflected>),
}

impl Source {
    /// The API, if it is known.
    pub(crate) fn loaded(&self) -> Option<Arc<Loaded>> {
        match self {
            Self::Fixed(loaded) => Some(Arc::clone(loaded)),
            Self::Reflected(reflected) => reflected.loaded.load_full(),
        }
    }

    /// Asks the service again if the last answer is old enough.
    pub(crate) fn refresh(&self, core: &CoreHandle) {
        if let Self::Reflected(reflected) = self {
            reflected.refresh(core, false);
        }
    }

    /// The same for an unknown path, which may be new.
    pub(crate) fn refresh_for_unknown(&self, core: &CoreHandle) {
        if let Self::Reflected(reflected) = self {
            reflected.refresh(core, true);
        }
    }
}

/// The self-description of a service, shared by all cores.
pub(crate) struct Reflected {
    upstream: String,
    refresh: Duration,
    choice: Choice,
    options: JsonOptions,
    limits: Limits,
    described: Option<Described>,
    loaded: ArcSwapOption<Loaded>,
    /// The descriptors of the current API. If the next answer is the same, nothing changes.
    files: Mutex<Vec<Vec<u8>>>,
    asking: AtomicBool,
    /// When the service was last asked, and when it is asked next, in milliseconds since `began`.
    asked: AtomicU64,
    due: AtomicU64,
    began: Instant,
    changed: Notify,
}

impl fmt::Debug for Reflected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reflected").field(&self.upstream).finish()
    }
}

/// Marks the question as ended when dropped, however it ended.
struct Asks(Arc<Reflected>);

impl Drop for Asks {
    fn drop(&mut self) {
        self.0.asking.store(false, Ordering::Release);
        self.0.changed.notify_waiters();
    }
}

impl Reflected {
    pub(crate) fn new(
        upstream: String,
        refresh: Duration,
        choice: Choice,
        options: JsonOptions,
        limits: Limits,
        described: Option<Described>,
    ) -> Self {
        Self {
            upstream,
            refresh,
            choice,
            options,
            limits,
            described,
            loaded: ArcSwapOption::empty(),
            files: Mutex::default(),
            asking: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            due: AtomicU64::new(0),
            began: Instant::now(),
            changed: Notify::new(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Starts to ask on this core, unless it is too early or another core is asking. Returns whether a question is
    /// under way.
    fn refresh(self: &Arc<Self>, core: &CoreHandle, unknown: bool) -> bool {
        let (now, due) = (self.now(), self.due.load(Ordering::Relaxed));
        let unknown_due = self.asked.load(Ordering::Relaxed).saturating_add(millis(UNKNOWN_PAUSE));
        if now < due && !(unknown && now >= unknown_due) {
            return self.asking.load(Ordering::Acquire);
        }
        if self.asking.swap(true, Ordering::AcqRel) {
            return true;
        }
        let asks = Asks(Arc::clone(self));
        let of = core.clone();
        core.spawn(async move {
            let told = tokio::time::timeout(ASKING, asks.0.ask(&of)).await;
            let told = told.unwrap_or_else(|_| Err("it did not answer in time".to_owned()));
            asks.0.settle(told);
            drop(asks);
        })
    }

    /// Waits until the service has answered or failed.
    pub(crate) async fn wait(self: &Arc<Self>, core: &CoreHandle) {
        let changed = self.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable(); // before the question begins, because it may end immediately
        if self.loaded.load().is_none() && self.refresh(core, false) {
            let _ = time::timeout(ASKING, changed).await; // after a timeout, the caller uses what is there
        }
    }

    fn settle(&self, told: Result<usize, String>) {
        let now = self.now();
        self.asked.store(now, Ordering::Relaxed);
        let pause = match told {
            Ok(0) => self.refresh,
            Ok(methods) => {
                log::info(
                    "a service described its methods",
                    &[("upstream", &self.upstream), ("methods", &methods)],
                );
                self.refresh
            }
            Err(why) => {
                static SEEN: log::PerSubject = log::per_subject(1, Duration::from_secs(10));
                let kept = if self.loaded.load().is_some() {
                    "what was known stays"
                } else {
                    "nothing is known of it"
                };
                SEEN.warn(
                    &self.upstream,
                    "a service did not describe its methods",
                    &[("upstream", &self.upstream), ("why", &why), ("then", &kept)],
                );
                PAUSE
            }
        };
        self.due.store(now.saturating_add(millis(pause)), Ordering::Relaxed);
    }

    /// Asks the service and adopts a new description. Returns its number of methods.
    async fn ask(self: &Arc<Self>, core: &CoreHandle) -> Result<usize, String> {
        let mut asking = Asking::new(&self.choice.services);
        loop {
            match asking.advance() {
                Next::Done(files) => return self.adopt(files, core).await,
                Next::Ask { path, body } => {
                    let answer = core.call(&self.upstream, call(path, body)).await;
                    let answer = answer.map_err(|cause| format!("{}: {}", cause.code, cause.meaning))?;
                    let status = answer
                        .headers
                        .iter()
                        .find(|(name, _)| name.as_str().eq_ignore_ascii_case("grpc-status"));
                    let refused = status.is_some_and(|(_, value)| value != b"0");
                    if answer.status != 200 || refused || answer.body.is_empty() {
                        if asking.unknown() {
                            continue;
                        }
                        let grpc = status.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
                        let grpc = grpc.unwrap_or_else(|| "none".to_owned());
                        return Err(format!(
                            "it has no server reflection (status {}, grpc-status {grpc})",
                            answer.status
                        ));
                    }
                    asking.answer(&answer.body)?;
                }
            }
        }
    }

    async fn adopt(self: &Arc<Self>, files: Vec<Vec<u8>>, core: &CoreHandle) -> Result<usize, String> {
        {
            let known = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            if *known == files && self.loaded.load().is_some() {
                return Ok(0);
            }
        }
        let this = Arc::clone(self);
        let made = core.blocking(move || {
            let pool = sources::from_descriptors(&files)?;
            let api = Api::new(&pool, &this.choice, this.options, this.limits)
                .map_err(|wrong| rule_errors(&wrong))?;
            let methods = api.methods().len();
            warn_of_refused(&this.upstream, api.refused());
            Ok::<_, String>((Loaded::new(api, this.described.as_ref()), methods, files))
        });
        let (loaded, methods, files) = made.await.map_err(|cause| cause.meaning.to_owned())??;
        self.loaded.store(Some(Arc::new(loaded)));
        *self.files.lock().unwrap_or_else(PoisonError::into_inner) = files;
        Ok(methods)
    }
}

fn rule_errors(wrong: &[RuleError]) -> String {
    let first = wrong.first().map(|e| format!("{} {}", e.place, e.message)).unwrap_or_default();
    match wrong.len() {
        0 | 1 => first,
        more => format!("{first} (and {} more)", more - 1),
    }
}

/// Logs which rules are not served. Descriptors are read once, so this is logged once.
fn warn_of_refused(upstream: &str, refused: &[RuleError]) {
    for why in refused.iter().take(REFUSED_SHOWN) {
        log::warn("a google.api.http rule is not served", &[("upstream", &upstream), ("why", why)]);
    }
    if let Some(more) = refused.len().checked_sub(REFUSED_SHOWN).filter(|more| *more > 0) {
        let fields: [(&str, &dyn fmt::Display); 2] = [("upstream", &upstream), ("rules", &more)];
        log::warn("more google.api.http rules are not served", &fields);
    }
}

/// A gRPC call.
fn call(path: &str, body: Vec<u8>) -> CallRequest {
    let field = |name: &str, value: &[u8]| FieldName::new(name).ok().map(|name| (name, value.to_vec()));
    let headers = [field("content-type", b"application/grpc"), field("te", b"trailers")];
    CallRequest {
        method: "POST".to_owned(),
        target: path.to_owned(),
        authority: b"localhost".to_vec(),
        headers: headers.into_iter().flatten().collect(),
        body: body.into(),
        limit: ANSWER_BYTES,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
