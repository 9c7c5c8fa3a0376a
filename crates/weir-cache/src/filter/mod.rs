//! `cache`: stores answers and serves them again (RFC 9111).
//!
//! `caller` decides who may share an answer. `ttl` has the config's lifetimes. `control`, `freshness`, `vary`,
//! `storable` and `conditional` are the rules, without clocks and sockets; `key` identifies an object. `object`,
//! `store` and `account` hold objects in memory, `on_disk` and `head_bytes` handle those on a disk, `fill` those that
//! are arriving. `answer` builds responses from objects; `collapse` is a request that fetches for all that wait. This
//! file has the path of a request:
//!
//! ```text
//!  on_request ─► fresh: answer            ┌─► head, then its body as it comes
//!      │         on the disk ─► read it (wait), and look again
//!      │         stale, or not there ─► follow a fetch (wait)
//!      └─► lead one: conditions of our own in place of the client's ─► upstream
//!                on_response ─► 304: the object is fresh again    500…: a stale object, if it may be
//!                               to be kept: on_response_body fills     not to be kept: followers are let go
//! ```

mod account;
mod answer;
mod caller;
mod collapse;
mod conditional;
mod control;
mod counters;
mod fill;
mod freshness;
mod head_bytes;
mod key;
mod notes;
mod object;
mod on_disk;
mod settings;
mod storable;
mod store;
#[cfg(test)]
mod testing;
mod ttl;
mod vary;

use super::prelude::*;
use crate::disk::Entry;
use answer::{Asked, Names, Whole};
use collapse::Lead;
use conditional::is_for_origin;
use control::Control;
use counters::{Count, Counters};
use fill::{Fill, Head, News, Role};
use freshness::Defaults;
use key::{Extra, Extras, Key, Place};
use object::{Meta, Object};
use settings::CacheSettings;
use std::sync::Arc;
use std::time::{Duration as Time, Instant};
use storable::SetCookie;
use store::Pages;
use weir_filter::coding::quality;
use weir_h1::{BodyKind, Fields, Method};
use weir_wire::time;

/// The filter, for the registry.
pub static KIND: FilterKind = FilterKind::made_from::<CacheSettings>("cache").with_causes(&[&NOT_CACHED]);

static NOT_CACHED: Cause = Cause {
    code: "not_cached",
    status: 504,
    meaning: "The request asked for a cached answer only, and the cache has none.",
    change: "nothing: the client asked for it (cache-control: only-if-cached)",
    ..Cause::USUAL
};

/// How often a request looks again after following a fetch in vain. Then it fetches without the cache.
const MOST_LOOKS: u32 = 4;

/// How long a request follows fetches that produce nothing.
const PATIENCE: Time = Time::from_secs(60);

/// Fields with which some frameworks override the method, the host or the URL. Their answer must not go to other
/// requests for this URL.
const OVERRIDES: [&str; 9] = [
    "x-forwarded-server",
    "x-host",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-host",
    "x-original-url",
    "x-rewrite-url",
];

struct Cache {
    defaults: Defaults,
    extras: Extras,
    place: Place,
    coalesce: bool,
    stale_if_error: Time,
    stale_while_revalidate: Time,
    set_cookie: SetCookie,
    max_object: u64,
    client_control: bool,
    names: Names,
    counters: Counters,
    store: String,
    pages: Arc<Pages>,
}

/// The state of an exchange in the cache.
#[derive(Default)]
struct State {
    what: What,
    /// The upstream has answered, so the response is not our own.
    answered: bool,
}

enum What {
    /// A request that changes something: if it succeeds, stored objects for these keys are outdated.
    Changes(Key),
    Leads(Box<Lead>),
    /// Its answer is not stored; the text is for `cache-status`.
    Passes(&'static str),
}

impl Default for What {
    fn default() -> Self {
        Self::Passes("")
    }
}

/// Values of the note, for exchanges that need no state.
const SERVED: u64 = 1;
const STATED: u64 = 2;

/// How to continue with a request.
enum Decision {
    Answer(Box<Answer>),
    /// Send it to the upstream.
    Go,
    Refuse,
    Wait(Awaited, Key),
}

/// What a request waits for.
enum Awaited {
    Fetch(Arc<Fill>),
    /// A disk that has an object for it.
    Disk(Arc<Entry>),
}

/// Where a request may look.
#[derive(Clone, Copy)]
struct Looks {
    disk: bool,
    /// Whether it may wait for another request's fetch.
    follow: bool,
}

static BYTES: Figure =
    Figure::gauge("bytes", "weir_cache_store_bytes", "Bytes that the store of the cache holds.")
        .bytes()
        .of("store");
static OBJECTS: Figure =
    Figure::gauge("objects", "weir_cache_store_objects", "Objects that the store of the cache holds.")
        .of("store");
static MEMORY: Figure = Figure::gauge(
    "memory",
    "weir_cache_store_memory_bytes",
    "Memory of the store, with objects being fetched or sent.",
)
.bytes()
.of("store");
static DISK_BROKEN: Figure = Figure::counter(
    "disk_broken",
    "weir_cache_disk_broken",
    "Unreadable objects that were removed from the disk of the store.",
)
.of("store");
static DISK_BYTES: Figure =
    Figure::gauge("disk_bytes", "weir_cache_disk_bytes", "Bytes on the disk of the store.")
        .bytes()
        .of("store");
static DISK_FAILED: Figure = Figure::counter(
    "disk_failed",
    "weir_cache_disk_failed",
    "Objects that could not be written to the disk of the store.",
)
.of("store");
static DISK_OBJECTS: Figure =
    Figure::gauge("disk_objects", "weir_cache_disk_objects", "Objects on the disk of the store.").of("store");
static DISK_WRITTEN: Figure = Figure::counter(
    "disk_written",
    "weir_cache_disk_written",
    "Objects that were written to the disk of the store.",
)
.of("store");

impl Filter for Cache {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::RESPONSE | Hooks::RESPONSE_BODY | Hooks::ATTEMPT
    }

    fn notes_among(&self, before: &[Neighbour<'_>], behind: &[Neighbour<'_>]) -> Vec<String> {
        notes::of(&self.extras.written, before, behind)
    }

    fn guards(&self) -> FieldGuards {
        let headers = self.extras.written.iter().filter_map(|extra| match extra {
            Extra::Header(name) => Some(name.clone()),
            Extra::Caller | Extra::Shared | Extra::Text(_) => None,
        });
        let read = self.extras.texts.iter().flat_map(weir_filter::template::Template::guarded);
        FieldGuards { request: headers.chain(read).collect(), response: Vec::new() }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let method = head.method();
        if head.body() != BodyKind::Empty && matches!(method, Method::Get | Method::Head) {
            return self.pass(cx, "fwd=bypass; detail=body");
        }
        match method {
            Method::Get | Method::Head => {}
            Method::Options | Method::Trace | Method::Connect => return self.pass(cx, "fwd=method"),
            _ => {
                let key = key::of(head, cx, (&self.place, &self.extras));
                self.pass(cx, "fwd=method");
                cx.state::<State>().what = What::Changes(key);
                return Flow::Continue;
            }
        }
        if is_for_origin(&head.headers) {
            return self.pass(cx, "fwd=bypass; detail=condition");
        }
        if is_overridden(&head.headers) {
            return self.pass(cx, "fwd=bypass; detail=override");
        }
        if head.upgrade().is_some() {
            return self.pass(cx, "fwd=bypass; detail=upgrade");
        }
        let key = key::of(head, cx, (&self.place, &self.extras));
        match self.decide(head, cx, key, None, Looks { disk: true, follow: self.coalesce }) {
            Decision::Answer(answer) => {
                *cx.note() = SERVED;
                Flow::Answer(answer)
            }
            Decision::Wait(awaited, key) => {
                *cx.state() = Some((awaited, key));
                Flow::Wait
            }
            Decision::Go => Flow::Continue,
            Decision::Refuse => Flow::refuse(&NOT_CACHED),
        }
    }

    fn wait<'a>(&'a self, head: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            let mut waits = cx.state::<Option<(Awaited, Key)>>().take();
            let mut looks = 0;
            let patience = Instant::now() + PATIENCE;
            while let Some((awaited, key)) = waits.take() {
                looks += 1;
                let mut look =
                    Looks { disk: looks < MOST_LOOKS, follow: self.coalesce && looks < MOST_LOOKS };
                let mut found = None;
                match awaited {
                    Awaited::Fetch(fill) => match time::timeout_at(patience, fill.news()).await {
                        Ok(News::Head(found)) if found.meta.variant.answers(&head.headers) => {
                            return self.follow(&fill, &found, head, cx);
                        }
                        Ok(News::Validated) => {
                            if let Some(object) = self.pages.find(&key, &head.headers) {
                                return self.validated_elsewhere(&object, head, cx);
                            }
                        }
                        Ok(News::Again | News::Head(_)) => {}
                        Ok(News::Released) | Err(_) => look.follow = false,
                    },
                    Awaited::Disk(entry) => {
                        found = self.load(&entry, &key, head).await;
                        look.disk = false;
                    }
                }
                match self.decide(head, cx, key, found, look) {
                    Decision::Answer(answer) => {
                        *cx.note() = SERVED;
                        return Flow::Answer(answer);
                    }
                    Decision::Wait(awaited, key) => waits = Some((awaited, key)),
                    Decision::Go => return Flow::Continue,
                    Decision::Refuse => return Flow::refuse(&NOT_CACHED),
                }
            }
            Flow::Continue
        })
    }

    fn on_attempt(&self, head: &mut RequestHead, _: &Attempt<'_>, cx: &mut Cx) -> HookResult {
        if *cx.note() == STATED
            && let What::Leads(lead) = &mut cx.state::<State>().what
        {
            lead.departs(&head.headers);
        }
        Ok(())
    }

    fn on_attempt_end(&self, end: &AttemptEnd<'_>, cx: &mut Cx) {
        if *cx.note() == STATED {
            cx.state::<State>().answered = end.status != 0;
        }
    }

    fn response_body(&self, head: &ResponseHead, cx: &mut Cx) -> BodyUse {
        if *cx.note() != STATED {
            return BodyUse::Pass;
        }
        let (changed, of_route) = (cx.response_body_changes(), cx.is_of_route());
        let caller = cx.caller();
        let State { what: What::Leads(lead), answered } = cx.state::<State>() else { return BodyUse::Pass };
        lead.asked.returns(caller);
        let answered = *answered || of_route;
        if self.wants_body(lead, head, (answered, changed)) { BodyUse::Watch } else { BodyUse::Pass }
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        if *cx.note() != STATED {
            return Flow::Continue;
        }
        let (changed, of_route) = (cx.response_body_changes(), cx.is_of_route());
        let caller = cx.caller();
        let state = cx.state::<State>();
        let answered = state.answered || of_route;
        match std::mem::take(&mut state.what) {
            What::Passes(said) => {
                if answered && !said.is_empty() {
                    self.names.tell(head, said);
                }
                Flow::Continue
            }
            What::Changes(key) => {
                if answered && (200..400).contains(&head.status()) {
                    self.forget(&key, head);
                }
                Flow::Continue
            }
            What::Leads(mut lead) => {
                lead.asked.returns(caller);
                self.conclude(lead, head, cx, (answered, changed))
            }
        }
    }

    fn on_response_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        let state = cx.state::<State>();
        if let What::Leads(lead) = &mut state.what {
            self.take_piece(lead, piece);
        }
        Ok(())
    }

    fn readings(&self) -> Vec<Reading> {
        let (bytes, objects) = self.pages.held();
        let of_store = |figure, value| Reading::of(figure, &self.store, value);
        let mut readings = self.counters.readings();
        readings.push(of_store(&BYTES, bytes));
        readings.push(of_store(&OBJECTS, objects as u64));
        readings.push(of_store(&MEMORY, self.pages.account.used()));
        if let Some(disk) = self.pages.disk().map(|disk| disk.readings()) {
            readings.push(of_store(&DISK_BROKEN, disk.broken));
            readings.push(of_store(&DISK_BYTES, disk.bytes));
            readings.push(of_store(&DISK_FAILED, disk.failed));
            readings.push(of_store(&DISK_OBJECTS, disk.objects));
            readings.push(of_store(&DISK_WRITTEN, disk.written));
        }
        readings
    }
}

// === The request ===

impl Cache {
    /// Passes a request to the upstream without involving the cache.
    fn pass(&self, cx: &mut Cx, why: &'static str) -> Flow {
        self.counters.add(Count::Passed);
        go_uncached(cx, why);
        Flow::Continue
    }

    /// Looks a request up and decides how to continue. `found`: the object read from the disk.
    fn decide(
        &self,
        head: &mut RequestHead,
        cx: &mut Cx,
        key: Key,
        found: Option<Arc<Object>>,
        looks: Looks,
    ) -> Decision {
        let now = Instant::now();
        let said = Control::of(&head.headers);
        let found = found.or_else(|| self.pages.find(&key, &head.headers));
        if found.is_none()
            && looks.disk
            && let Some(disk) = self.pages.disk()
            && let Some(entry) = on_disk::find(disk, &key, &head.headers)
        {
            return Decision::Wait(Awaited::Disk(entry), key);
        }
        if let Some(object) = &found {
            let meta = object.meta();
            if meta.is_fresh(now) && self.suits(&said, &meta, now) {
                self.counters.add(Count::Hits);
                let whole = Whole::Object(&object.body);
                return Decision::Answer(self.answer(&meta, &whole, Asked::of(head), "hit", Some(cx)));
            }
            if object.is_spared(now) && self.covers_error(&meta, now) {
                return self.stale(object, &meta, head, "hit; detail=stale-if-error", cx);
            }
            if self.waits_for_none(&said, &meta, now) {
                if !object.is_spared(now) {
                    self.refresh(object, &key, head, cx);
                }
                return self.stale(object, &meta, head, "hit; detail=stale-while-revalidate", cx);
            }
        }
        if said.only_if_cached {
            return Decision::Refuse;
        }
        if let Some(why) = alone(head, &said) {
            self.counters.add(Count::Misses);
            go_uncached(cx, why);
            return Decision::Go;
        }
        let follow = looks.follow && !self.pages.is_unshared(&key, now);
        match self.pages.fills.join(&key, &head.headers, follow) {
            Role::Follow(fill) => Decision::Wait(Awaited::Fetch(fill), key),
            Role::Lead(fill) => {
                self.counters.add(Count::Misses);
                let what = self.lead(fill, key, found, head, cx);
                *cx.note() = STATED;
                cx.state::<State>().what = what;
                Decision::Go
            }
            Role::TooMany => {
                self.counters.add(Count::Misses);
                go_uncached(cx, "fwd=uri-miss; detail=too-many");
                Decision::Go
            }
        }
    }

    /// Reads an object from the disk, unless another request read it while this one waited its turn.
    async fn load(&self, entry: &Arc<Entry>, key: &Key, head: &RequestHead) -> Option<Arc<Object>> {
        let disk = self.pages.disk()?;
        let _turn = self.pages.turn(key).lock().await;
        if let Some(object) = self.pages.find(key, &head.headers) {
            return Some(object);
        }
        let object = Arc::new(on_disk::load(disk, entry, key, &self.pages.account).await?);
        self.pages.take_up(&object).then_some(object)
    }

    /// Answers from another request's fetch as it arrives.
    fn follow(&self, fill: &Arc<Fill>, found: &Head, head: &RequestHead, cx: &mut Cx) -> Flow {
        self.counters.add(Count::Followed);
        *cx.note() = SERVED;
        let whole = Whole::Fill(fill, found.length);
        Flow::Answer(self.answer(&found.meta, &whole, Asked::of(head), "fwd=uri-miss; collapsed", Some(cx)))
    }

    /// Answers with an object that another request has just revalidated.
    fn validated_elsewhere(&self, object: &Object, head: &RequestHead, cx: &mut Cx) -> Flow {
        self.counters.add(Count::Followed);
        *cx.note() = SERVED;
        let whole = Whole::Object(&object.body);
        Flow::Answer(self.answer(&object.meta(), &whole, Asked::of(head), "fwd=stale; collapsed", Some(cx)))
    }

    fn stale(&self, object: &Object, meta: &Meta, head: &RequestHead, said: &str, cx: &mut Cx) -> Decision {
        self.counters.add(Count::Stale);
        let whole = Whole::Object(&object.body);
        Decision::Answer(self.answer(meta, &whole, Asked::of(head), said, Some(cx)))
    }

    /// Whether a client accepts an object that the upstream's rules call fresh (RFC 9111 §5.2.1).
    fn suits(&self, said: &Control, meta: &Meta, now: Instant) -> bool {
        if !self.client_control {
            return true;
        }
        let age = meta.age(now);
        let seconds = |s: u32| Time::from_secs(s.into());
        !said.no_cache
            && said.max_age.is_none_or(|max| age <= seconds(max))
            && said.min_fresh.is_none_or(|min| age + seconds(min) <= meta.lifetime)
    }

    /// Whether a stale object may be served in place of a failed upstream's answer.
    fn covers_error(&self, meta: &Meta, now: Instant) -> bool {
        self.covers(meta, now, meta.freshness.control.stale_if_error, self.stale_if_error)
    }

    /// Whether to serve a stale object while a new one is fetched (RFC 5861 §3). A client that requests a fresher
    /// answer, and may, waits for it.
    fn waits_for_none(&self, said: &Control, meta: &Meta, now: Instant) -> bool {
        let fresher = said.no_cache || said.max_age.is_some() || said.min_fresh.is_some();
        let refused = said.no_store || (self.client_control && fresher);
        !refused
            && !meta.is_fresh(now)
            && self.covers(
                meta,
                now,
                meta.freshness.control.stale_while_revalidate,
                self.stale_while_revalidate,
            )
    }

    /// Lets exactly one request fetch a new object in the background: this one, after its answer.
    fn refresh(&self, object: &Arc<Object>, key: &Key, head: &RequestHead, cx: &mut Cx) {
        if head.method() != Method::Get {
            return; // the next GET does it
        }
        let Role::Lead(fill) = self.pages.fills.join(key, &head.headers, true) else { return };
        self.counters.add(Count::Refreshed);
        let mut head = head.copied();
        head.headers.remove(&self.names.range);
        head.headers.remove(&self.names.if_range);
        let what = self.lead(fill, key.clone(), Some(Arc::clone(object)), &mut head, cx);
        cx.continue_in_background(head, State { what, answered: false }, STATED);
    }

    /// An answer's own directive takes precedence over the config. Without one, `s-maxage` forbids stale use (RFC
    /// 9111 §5.2.2.10).
    fn covers(&self, meta: &Meta, now: Instant, said: Option<u32>, set: Time) -> bool {
        if meta.freshness.must_be_fresh() {
            return false;
        }
        let set = if meta.freshness.control.s_maxage.is_some() { Time::ZERO } else { set };
        let most = said.map_or(set, |seconds| Time::from_secs(seconds.into()));
        !most.is_zero() && meta.stale_for(now) < most
    }
}

// === The response ===

impl Cache {
    /// Removes objects that a request has changed, and those that its answer names (RFC 9111 §4.4).
    fn forget(&self, key: &Key, head: &ResponseHead) {
        self.pages.forget(key.stem());
        for name in ["location", "content-location"] {
            let reference = head.headers.get_str(name);
            if let Some(stem) = reference.and_then(|text| key::stem_of_reference(key.stem(), text)) {
                self.pages.forget(&stem);
            }
        }
    }
}

/// Passes the upstream's answer through without storing it.
fn go_uncached(cx: &mut Cx, why: &'static str) {
    *cx.note() = STATED;
    cx.state::<State>().what = What::Passes(why);
}

/// Whether some framework may take the request for another one. Walks the fields once: most names differ in their
/// first letters.
fn is_overridden(fields: &Fields) -> bool {
    let is_one = |name: &[u8]| OVERRIDES.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name));
    fields.iter().any(|(name, _)| matches!(name, [b'x' | b'X', b'-', ..]) && is_one(name))
}

/// Why the answer to a request cannot be shared.
fn alone(head: &RequestHead, said: &Control) -> Option<&'static str> {
    if head.method() == Method::Head {
        return Some("fwd=method");
    }
    if head.headers.get_str("range").is_some() {
        return Some("fwd=partial");
    }
    said.no_store.then_some("fwd=request; detail=no-store")
}
