//! What a config decides about a head: the route, the filters that run, and the verdict of those that the head decides.
//!
//! A filter that counts, calls or draws lots never runs here ([`Instance::judged`]). If the same filter, with the same
//! settings, ran in the live exchange, its verdict there is taken; otherwise the decision says that it would run. Both
//! configs are judged by the same function, so a difference comes from the configs. The decision of the running config
//! is also compared with what really happened, so that a report can say how far to believe it.
//!
//! [`Instance::judged`]: crate::snapshot::Instance::judged

use super::Seen;
use crate::arms;
use crate::matching::{self, Found, Origin};
use crate::snapshot::{Handling, Serves, Snapshot, Target};
use crate::tap::{Live, Sample};
use crate::to_run::ToRun;
use foldhash::fast::RandomState;
use sha2::{Digest as _, Sha256};
use std::any::Any;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use weir_filter::filter::{
    Answer, Begun, CallAnswer, CallRequest, CoreHandle, Cx, FILTER, Flow, Hooks, Job, RouteScope, Services,
    Task, TimeLimits, Waiting,
};
use weir_h1::{Limits, Progress, RequestHead, parse_request};
use weir_route::RouteId;
use weir_upstream::error::{self, Cause};
use weir_wire::Peer;
use weir_wire::tls::PeerCertificate;

/// What a config decides about a request, as far as its head decides it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The route, as its index.
    pub route: Option<usize>,
    /// The filters that the request passes, in order, up to the one that stops it.
    pub filters: Vec<Passed>,
    /// How the request phase ends.
    pub outcome: Outcome,
    /// The consumer, if a filter named it.
    pub consumer: Option<String>,
    /// The consumer's plan.
    pub plan: Option<String>,
    /// The time limits that filters set.
    pub limits: TimeLimits,
}

/// A filter that a request passes, as its index, and how that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Its index.
    pub filter: u32,
    /// How its verdict is known.
    pub how: How,
}

/// How the verdict of a filter is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The head decides, and the filter ran on the copy.
    Ran,
    /// The same filter ran in the live exchange, and its verdict is taken from there.
    Taken,
    /// It would run, and its verdict is not known. The request is assumed to pass.
    Would,
}

/// How the request phase ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A filter answers: its index, the status, and a digest of the fields of the answer.
    Answered {
        /// The filter.
        filter: u32,
        /// The status.
        status: u16,
        /// A digest of where it redirects to; 0 if it does not.
        location: u64,
    },
    /// No listener of this name exists.
    NoListener,
    /// The gateway or a filter refuses.
    Refused {
        /// The filter, if it was one.
        filter: Option<u32>,
        /// Why.
        cause: &'static Cause,
    },
    /// The request reaches the target of its route.
    Target,
}

/// One exchange, judged.
#[derive(Debug)]
pub enum Judged {
    /// What both configs decide, and the request as reports show it.
    Both(Box<(Decision, Decision, Seen)>),
    /// Nothing was decided by a config: the head was refused, or the exchange ended before its route was found.
    Neither,
    /// The decision of the running config is not what happened.
    Unexplained(Box<(Decision, Seen, &'static str)>),
}

/// Judges heads by two configs. Belongs to one thread.
pub struct Judge {
    sides: [Side; 2],
    limits: Limits,
}

/// One config.
struct Side {
    snapshot: Arc<Snapshot>,
    scopes: Vec<OnceCell<Rc<RouteScope>>>,
    core: CoreHandle,
    /// The kind, settings and credentials of each filter, as a number that both sides share.
    classes: Vec<u32>,
    consumers: HashMap<String, usize, RandomState>,
    listeners: HashMap<Arc<str>, u16, RandomState>,
}

/// The numbers of [`Side::classes`].
type Classes = HashMap<(&'static str, String, u64, [u8; 32]), u32>;

// === impl Judge ===

impl Judge {
    /// A judge that compares what the running config and a candidate decide.
    pub fn new(running: Arc<Snapshot>, candidate: Arc<Snapshot>) -> Self {
        let mut classes = Classes::new();
        let limits = running.head_limits;
        Self { sides: [running, candidate].map(|config| Side::new(config, &mut classes)), limits }
    }

    /// Whether a filter of the running config and one of the candidate have the same kind, settings and credentials.
    pub fn is_same(&self, running: u32, candidate: u32) -> bool {
        let [ours, theirs] = &self.sides;
        ours.classes.get(running as usize) == theirs.classes.get(candidate as usize)
    }

    /// Judges one exchange.
    pub fn judge(&self, sample: &Sample) -> Judged {
        let [running, candidate] = &self.sides;
        let Some(head) = sample.parsed(&self.limits) else { return Judged::Neither };
        let ended_early = sample.live.route.is_none()
            && sample.live.cause.is_none_or(|cause| {
                *cause == error::MISDIRECTED
                    || *cause == error::SHUTDOWN
                    || *cause == error::CLIENT_CLOSED
                    || *cause == error::CLIENT_TOO_SLOW
            });
        if ended_early {
            return Judged::Neither;
        }
        let seen = Seen::of(sample, &head, [&running.snapshot, &candidate.snapshot]);
        let caught = |side: &Side| {
            catch_unwind(AssertUnwindSafe(|| {
                let head = sample.parsed(&self.limits)?;
                Some(side.decide(sample, head, &running.classes))
            }))
        };
        let Ok(Some(before)) = caught(running) else { return Judged::Neither };
        if let Some(why) = running.misfit(&before, &sample.live) {
            return Judged::Unexplained(Box::new((before, seen, why)));
        }
        match caught(candidate) {
            Ok(Some(after)) => Judged::Both(Box::new((before, after, seen))),
            // A filter of the candidate panics: the live path would answer 500.
            _ => Judged::Both(Box::new((before, Decision::refused(None, &error::INTERNAL), seen))),
        }
    }
}

// === impl Decision ===

impl Decision {
    fn ended(route: Option<usize>, outcome: Outcome) -> Self {
        let limits = TimeLimits::default();
        Self { route, filters: Vec::new(), outcome, consumer: None, plan: None, limits }
    }

    fn refused(route: Option<usize>, cause: &'static Cause) -> Self {
        Self::ended(route, Outcome::Refused { filter: None, cause })
    }
}

// === impl Side ===

impl Side {
    fn new(snapshot: Arc<Snapshot>, classes: &mut Classes) -> Self {
        let mut stores: HashMap<&str, [u8; 32]> = HashMap::new();
        let class = |instance: &Arc<crate::snapshot::Instance>| {
            let store = match instance.names_caller {
                true => *stores.entry(instance.name).or_insert_with(|| credentials(&snapshot, instance.name)),
                false => [0; 32],
            };
            let next = classes.len() as u32; // filters are numbered in 32 bits
            *classes
                .entry((instance.name, instance.settings.to_string(), instance.hidden, store))
                .or_insert(next)
        };
        Self {
            classes: snapshot.filters.iter().map(class).collect(),
            scopes: snapshot.routes.iter().map(|_| OnceCell::new()).collect(),
            core: CoreHandle::new(Rc::<Nowhere>::default()),
            consumers: (snapshot.consumers.iter().enumerate())
                .map(|(at, consumer)| (consumer.name.clone(), at))
                .collect(),
            listeners: (snapshot.listeners.iter().enumerate())
                .filter(|(_, listener)| matches!(listener.serves, Serves::Http))
                .map(|(at, listener)| (Arc::clone(&listener.name), at as u16))
                .collect(),
            snapshot,
        }
    }

    /// What this config decides.
    fn decide(&self, sample: &Sample, mut head: RequestHead, running: &[u32]) -> Decision {
        let snapshot = &*self.snapshot;
        let Some(&number) = self.listeners.get(&sample.listener) else {
            return Decision::ended(None, Outcome::NoListener);
        };
        let spec = &snapshot.listeners[usize::from(number)];
        let trusted = !sample.unnamed && snapshot.trusts(sample.peer.ip());
        let from = From { sample, trusted };
        let found = matching::refuse_method(&head)
            .and_then(|()| matching::admit(snapshot, &from, &mut head))
            .and_then(|told| {
                let found = matching::find_route(snapshot, (spec, number), (&from, told), &mut head)?;
                Ok((found, told))
            });
        let (Found { route, preflight, path_key }, told) = match found {
            Ok(found) => found,
            Err(refusal) => return Decision::refused(None, refusal.cause),
        };
        let handling = &snapshot.routes[route].handling;
        let mut decision = Decision::ended(Some(route), Outcome::Target);
        if !handling.chain.is_empty() {
            let mut cx = Cx::new(Begun {
                scope: Rc::clone(self.scope(route)),
                client: told.unwrap_or_else(|| sample.peer.ip().to_canonical()),
                tls: matching::is_tls(&from, &head),
                certificate: sample.certificate.as_deref().cloned().map(Rc::new),
                path_key,
                random: u64::from(sample.live.status) + 1, // ids made here are seen by nobody
                at: None,
            });
            if let (true, Some(name)) = (snapshot.reads.server_name, &sample.server_name) {
                cx.tell_server_name(Rc::from(&**name));
            }
            self.filter(handling, (&mut head, &mut cx), (&sample.live, running), &mut decision);
            decision.limits = cx.limits();
            decision.consumer = cx.consumer().map(|consumer| consumer.name.clone());
            decision.plan = cx.consumer().and_then(|consumer| consumer.plan_name().map(str::to_owned));
        }
        // Without an answer of a filter, a preflight may have found a route that does not allow OPTIONS.
        if decision.outcome == Outcome::Target && (preflight || matches!(handling.target, Target::Filters)) {
            decision.outcome = Outcome::Refused { filter: None, cause: &error::NO_ROUTE };
        }
        decision
    }

    /// Takes the head through the filters of its route.
    fn filter(
        &self,
        handling: &Handling,
        (head, cx): (&mut RequestHead, &mut Cx),
        (live, running): (&Live, &[u32]),
        decision: &mut Decision,
    ) {
        let snapshot = &*self.snapshot;
        let mut to_run = ToRun::new(&handling.chain);
        while let Some(filter) = to_run.next(snapshot, handling, Some(cx)) {
            let instance = &snapshot.filters[filter as usize];
            head.headers.remove_twins(&instance.guards.request);
            let reads_body = instance.hooks.has(Hooks::READS_BODY) && cx.expects_json(head);
            let runs = instance.judged && !reads_body;
            let flow = match (runs, instance.hooks.has(Hooks::REQUEST)) {
                (true, false) => Flow::Continue,
                (true, true) => {
                    cx.filter = filter;
                    instance.filter.on_request(head, cx)
                }
                (false, _) => Flow::Wait,
            };
            let how = match flow {
                Flow::Continue => How::Ran,
                Flow::Run(list) => {
                    to_run.choose(snapshot, handling, (filter, list));
                    How::Ran
                }
                Flow::Refuse(refusal) => {
                    decision.outcome = Outcome::Refused { filter: Some(filter), cause: refusal.cause };
                    How::Ran
                }
                Flow::Answer(answer) => {
                    decision.outcome = answered(filter, &answer);
                    How::Ran
                }
                Flow::Gather(_) | Flow::Wait => {
                    let class = self.classes.get(filter as usize);
                    let is_it = |&&ran: &&u32| running.get((ran & FILTER) as usize) == class;
                    match live.ran.iter().find(is_it) {
                        None => How::Would,
                        Some(&ran) => {
                            self.take(live, (filter, ran), cx, decision);
                            if let Some(list) = self.chosen(filter, live, running) {
                                to_run.choose(snapshot, handling, (filter, list));
                            }
                            How::Taken
                        }
                    }
                }
            };
            decision.filters.push(Passed { filter, how });
            if decision.outcome != Outcome::Target {
                return;
            }
        }
    }

    /// Takes the verdict of a filter from the live exchange, where it has the index `ran`.
    fn take(&self, live: &Live, (filter, ran): (u32, u32), cx: &mut Cx, decision: &mut Decision) {
        if live.stopped_on_request(ran) {
            decision.outcome = match live.cause {
                Some(cause) => Outcome::Refused { filter: Some(filter), cause },
                None => Outcome::Answered { filter, status: live.status, location: 0 },
            };
            return;
        }
        if !self.snapshot.filters[filter as usize].names_caller {
            return;
        }
        let known = live.consumer.as_ref().and_then(|name| self.consumers.get(&**name));
        match (&live.listed, known) {
            (Some(listed), _) => cx.set_listed(Arc::clone(listed)),
            (None, Some(&known)) => cx.set_consumer(known),
            (None, None) => {}
        }
    }

    /// The list of a filter's own that ran in the live exchange.
    fn chosen(&self, filter: u32, live: &Live, running: &[u32]) -> Option<usize> {
        let ran = |filter: &u32| {
            let class = self.classes.get(*filter as usize);
            live.ran.iter().any(|&ran| running.get((ran & FILTER) as usize) == class)
        };
        let instance = &self.snapshot.filters[filter as usize];
        let lists = &instance.lists;
        if instance.name == arms::NAME {
            // Another draw could have come to another arm: the request is judged as if it took the same again.
            let arm = live.arm.as_ref()?;
            return lists.iter().position(|list| list.key == *arm);
        }
        lists.iter().position(|list| list.chain.first().is_some_and(ran))
    }

    /// What the filters of a route share.
    fn scope(&self, route: usize) -> &Rc<RouteScope> {
        let snapshot = &self.snapshot;
        self.scopes[route].get_or_init(|| {
            Rc::new(RouteScope {
                name: Arc::clone(&snapshot.routes[route].name),
                matched: Some((Arc::clone(&snapshot.table), RouteId(route as u32))),
                consumers: Arc::clone(&snapshot.consumers),
                core: self.core.clone(),
                exposes_causes: snapshot.expose_causes,
            })
        })
    }

    /// Why a decision of the running config is not what happened; `None` if it may be.
    fn misfit(&self, decision: &Decision, live: &Live) -> Option<&'static str> {
        if decision.route != live.route {
            return Some("another route was taken");
        }
        let stopped_by = live.stopped_by.map(|filter| filter & FILTER);
        let Some(route) = decision.route else {
            let same =
                matches!(decision.outcome, Outcome::Refused { cause, .. } if Some(cause) == live.cause);
            // Filters for all routes may answer in place of a refusal.
            return (!same && self.snapshot.unrouted.is_empty()).then_some("it ended for another cause");
        };
        let ran = live.ran.iter().map(|ran| ran & FILTER);
        let same = ran.zip(&decision.filters).all(|(ran, passed)| ran == passed.filter);
        if !same || (live.upstream.is_some() && live.ran.len() != decision.filters.len()) {
            return Some("other filters ran");
        }
        match &decision.outcome {
            Outcome::NoListener => Some("its listener is not known"),
            Outcome::Refused { filter: None, cause } => {
                (live.cause != Some(*cause)).then_some("it ended for another cause")
            }
            Outcome::Refused { filter: Some(filter), cause } => {
                let same = stopped_by == Some(*filter) && live.cause == Some(*cause);
                (!same).then_some("another filter, or none, refused it")
            }
            Outcome::Answered { filter, .. } => {
                (stopped_by != Some(*filter)).then_some("another filter, or none, answered it")
            }
            Outcome::Target => {
                let by_more_than_the_head = |filter: u32| {
                    self.snapshot.filters.get(filter as usize).is_none_or(|instance| {
                        let later =
                            Hooks::REQUEST_BODY | Hooks::RESPONSE | Hooks::RESPONSE_BODY | Hooks::ATTEMPT;
                        !instance.judged || instance.hooks.has_any(later | Hooks::READS_BODY)
                    })
                };
                if stopped_by.is_some_and(|filter| !by_more_than_the_head(filter)) {
                    return Some("a filter stopped it");
                }
                let handling = &self.snapshot.routes[route].handling;
                let leads = |target: &Target| match target {
                    Target::Upstream(upstream) => live.upstream == Some(*upstream),
                    Target::Split(shares) => shares.iter().any(|(_, to)| live.upstream == Some(*to)),
                    Target::Arms(arms) => arms.iter().any(|arm| live.upstream == arm.upstream),
                    _ => false,
                };
                let led = live.upstream.is_none()
                    || leads(&handling.target)
                    || handling.missing.as_deref().is_some_and(leads);
                if !led {
                    return Some("it went to another upstream");
                }
                let ran_through = live.upstream.is_some() && stopped_by.is_none();
                let same = decision.consumer.as_deref() == live.consumer.as_deref();
                (ran_through && !same).then_some("another consumer was named")
            }
        }
    }
}

/// A digest of what decides which callers a filter of this kind knows.
fn credentials(snapshot: &Snapshot, kind: &str) -> [u8; 32] {
    let mut digest = Sha256::new();
    let mut add = |text: &str| {
        digest.update((text.len() as u64).to_be_bytes()); // the lengths make the encoding unambiguous
        digest.update(text);
    };
    for consumer in snapshot.consumers.iter() {
        let own = consumer.credentials.iter().filter(|(reader, _)| kind == "any" || *reader == kind);
        let own: Vec<_> = own.flat_map(|(_, all)| all).collect();
        if own.is_empty() {
            continue;
        }
        add(&consumer.name);
        add(&format!("{:?}", consumer.allow_ips));
        own.into_iter().for_each(|text| add(text));
        add("");
    }
    digest.finalize().into()
}

fn answered(filter: u32, answer: &Answer) -> Outcome {
    let location = answer.headers.iter().find(|(name, _)| name.as_str().eq_ignore_ascii_case("location"));
    let digest = |text: &Vec<u8>| {
        let hash = Sha256::digest(text);
        hash.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)).max(1)
    };
    Outcome::Answered { filter, status: answer.status, location: location.map_or(0, |(_, to)| digest(to)) }
}

// === the exchange ===

impl Sample {
    /// The head, by the parser of live traffic. `None` for one that it refuses.
    fn parsed(&self, limits: &Limits) -> Option<RequestHead> {
        let mut head = RequestHead::default();
        head.buffer_mut().extend_from_slice(&self.head);
        if !matches!(parse_request(&mut head, limits), Ok(Progress::Complete)) {
            return None;
        }
        if let Some(over) = self.streamed {
            head.came_by_http2(over);
        }
        Some(head)
    }
}

impl Live {
    /// Whether this filter stopped the exchange before an upstream was chosen.
    fn stopped_on_request(&self, ran: u32) -> bool {
        let last = self.ran.last().is_some_and(|last| last & FILTER == ran & FILTER);
        last && self.upstream.is_none() && self.stopped_by.is_some_and(|by| by & FILTER == ran & FILTER)
    }
}

/// A request's origin, as the judge knows it.
struct From<'a> {
    sample: &'a Sample,
    trusted: bool,
}

impl Origin for From<'_> {
    fn peer(&self) -> Peer {
        self.sample.peer
    }

    fn certificate(&self) -> Option<&PeerCertificate> {
        self.sample.certificate.as_deref()
    }

    fn server_name(&self) -> Option<&str> {
        self.sample.server_name.as_deref()
    }

    fn is_secure(&self) -> bool {
        self.sample.tls
    }

    fn is_trusted(&self) -> bool {
        self.trusted
    }
}

/// The state of a filter, with what keeps its key from being used again.
type Owned = (Arc<()>, Rc<dyn Any>);

/// What filters get in place of a core: no upstream, no task, no thread. State of a core is the judge's own.
#[derive(Default)]
struct Nowhere {
    states: RefCell<HashMap<usize, Owned>>,
}

impl Services for Nowhere {
    fn call<'a>(&'a self, _: &'a str, _: CallRequest) -> Waiting<'a, Result<CallAnswer, &'static Cause>> {
        Box::pin(std::future::ready(Err(&error::NO_ENDPOINT)))
    }

    fn spawn(&self, _: Task) -> bool {
        false
    }

    fn block(&self, _: Job) -> bool {
        false
    }

    fn local(&self, key: &Arc<()>, make: &mut dyn FnMut() -> Rc<dyn Any>) -> Rc<dyn Any> {
        let at = Arc::as_ptr(key).addr();
        if let Some((_, state)) = self.states.borrow().get(&at) {
            return Rc::clone(state);
        }
        let state = make(); // not while the map is borrowed: this calls a filter's code
        self.states.borrow_mut().insert(at, (Arc::clone(key), Rc::clone(&state)));
        state
    }
}
