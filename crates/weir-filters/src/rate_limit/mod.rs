//! `rate_limit`: limits requests per time, for each client, consumer or route.
//!
//! This file decides about requests. `gcra` is the algorithm, `calendar` knows days and months, and `table` counts
//! keys that clients choose. `limit` is one limit of a filter, `shared` counts together with other gateways in a
//! store, and `settings` holds the settings.

mod calendar;
mod gcra;
mod limit;
mod saved;
mod settings;
mod shared;
mod table;
#[cfg(test)]
mod tests;

use self::calendar::Calendar;
use self::gcra::{Cell, Decision, SECOND, Time};
use self::limit::{LIMIT, Limit, LimitFields, POLICY, Spot};
use self::settings::{Cost, Per, RateLimitSettings, Without};
use self::shared::{Leases, Reported, Shared, Taken};
use self::table::Table;
use super::prelude::*;
use super::shared::by::{Counted, Key, Who};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;
use tokio::sync::oneshot;
use weir_filter::store::Away;
use weir_h1::FieldName;
use weir_wire::time;

pub(super) static KIND: FilterKind = FilterKind::made_from::<RateLimitSettings>("rate_limit").with_causes(&[
    &QUOTA_EXCEEDED,
    &RATE_LIMITED,
    &STORE_UNAVAILABLE,
]);

static QUOTA_EXCEEDED: Cause = Cause {
    code: "quota_exceeded",
    status: 429,
    meaning: "The quota for this day or month is used up.",
    change: "the filter rate_limit with `per: day` or `per: month` of the route or the consumer's plan",
    limit: Some(weir_filter::error::Limit::Rate),
    ..Cause::USUAL
};

static RATE_LIMITED: Cause = Cause {
    code: "rate_limited",
    status: 429,
    meaning: "Too many requests.",
    change: "the filter rate_limit of the route or the consumer's plan",
    limit: Some(weir_filter::error::Limit::Rate),
    ..Cause::USUAL
};

static STORE_UNAVAILABLE: Cause = Cause {
    code: "store_unavailable",
    status: 503,
    meaning: "The store of the rate limit did not answer.",
    change: "stores.*, or `without_store` of the filter rate_limit",
    ..Cause::USUAL
};

/// The most that one request can cost.
const COST_MAX: u32 = 1_000_000;

struct RateLimit {
    limits: Vec<Limit>,
    /// Limits kept in a store. While the store is unavailable, they are counted here.
    shared: Option<Box<Shared>>,
    who: Who,
    /// The response field that contains a request's cost.
    cost: Option<FieldName>,
    retry_after: FieldName,
}

/// The state of each limit that survives a reload.
struct State {
    /// Present if the limit is a quota.
    calendar: Option<Calendar>,
    /// What one request takes: the unit of all counts here.
    interval: Time,
    /// The number of keys that the table is made for.
    keys: u32,
    route: Cell,
    table: Table,
    /// Counters of the consumers that some snapshot uses, by name, because positions change with the config. Locked
    /// while a snapshot is built, never by a request.
    consumers: Mutex<HashMap<String, Weak<Cell>>>,
    /// Counters of consumers from the previous process, until the first snapshot has taken them.
    inherited: Mutex<Vec<Arc<Cell>>>,
}

/// The cost in the upstream's response as it arrived. Later filters may replace or remove the field.
#[derive(Default)]
struct ReportedCost(Option<u32>);

/// What an exchange was charged, if a note cannot hold it: for each limit, the spot and how much is used.
#[derive(Default)]
struct Charged(SmallVec<[(Spot, Time); 2]>);

/// The same for limits in a store.
#[derive(Default)]
struct Leased {
    told: Option<Reported>,
    /// The key, in its local and its stored form, if the response contains the request's cost.
    key: Option<(u64, Vec<u8>)>,
    waits: Option<oneshot::Receiver<Result<(), Away>>>,
}

impl IntoFilter for RateLimitSettings {
    type Filter = RateLimit;

    fn into_filter(self, build: &mut Build<'_>) -> Option<RateLimit> {
        let before = build.mistakes.len();
        let read = self.0.read(build);
        let keys = self.0.keys;
        if !(8..=1 << 24).contains(&keys) {
            build.refuse("keys", format!("{keys} is not from 8 to 16777216"), Some("write 65536".into()));
        }
        let shared = self.0.shared(&read, build);
        // State is named by `by` and by the periods, so the number of requests may change.
        let by = self.0.by.to_string();
        // Those of the config have a place each; those of sources share the table.
        let listed = build.directory.map_or(0, |directory| directory.consumers());
        if listed > keys as usize && (by == "consumer" || by.contains("{consumer}")) {
            let message =
                format!("{keys} is less than the {listed} consumers of the sources: some begin anew");
            let hint = format!("write {}", listed.next_power_of_two().min(1 << 24));
            build.warn("keys", "keys-below-consumers", message, Some(hint.into()));
        }
        let who = Who::new(self.0.by, self.0.ipv6_prefix, build);
        if build.mistakes.len() > before {
            return None;
        }
        let shared = shared.map(|(store, most)| {
            let periods: Vec<String> = read.iter().map(|read| read.period()).collect();
            let purpose = format!("by {by} per {} in {}", periods.join(", "), store.name);
            let resize = |leases: &Leases| {
                leases.resize(keys);
                true
            };
            let leases = build.keep_for(&purpose, resize, |_| Leases::new(keys));
            let how = (store, self.0.without_store.unwrap_or_default(), self.0.strict);
            let name = (build.scope, by.as_str(), build.asked_for(&purpose));
            Box::new(Shared::new(how, name, &read, most, leases))
        });
        let limits = read.into_iter().map(|read| {
            let unit = match read.per {
                Per::Span(unit) => Some(unit),
                Per::Time(_) => None,
            };
            let interval = read.rate.interval;
            let fits = |state: &State| state.interval == interval && state.keys == keys;
            let load = |saved: &[u8]| saved::load(saved, keys, interval, unit.map(Calendar::new));
            let make = |before: Option<&State>| {
                let begin = || State::new(keys, interval, unit.map(Calendar::new));
                // Used requests stay used, counted in requests, whatever the limit is now.
                before.and_then(|before| load(&saved::save(before))).unwrap_or_else(begin)
            };
            let purpose = format!("by {by} per {}", read.period());
            let state = build.keep_portable_for(&purpose, fits, load, make);
            Limit::new(read, state, build.consumers, self.0.headers)
        });
        Some(RateLimit {
            limits: limits.collect(),
            shared,
            who: who?,
            cost: match self.0.cost {
                Cost::Fixed(_) => None,
                Cost::Header(name) => Some((*name).clone()),
            },
            retry_after: field_name("retry-after"),
        })
    }
}

fn field_name(name: &str) -> FieldName {
    FieldName::new(name).expect("a name in the source is a token")
}

// === impl State ===

impl State {
    fn new(keys: u32, interval: Time, calendar: Option<Calendar>) -> Self {
        Self {
            calendar,
            interval,
            keys,
            route: Cell::default(),
            table: Table::new(keys as usize),
            consumers: Mutex::default(),
            inherited: Mutex::default(),
        }
    }

    /// A counter for each consumer, keeping existing ones.
    fn cells_of(&self, consumers: &Consumers) -> Vec<Arc<Cell>> {
        let mut known = self.consumers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cell_of = |consumer: &Consumer| {
            known.get(&consumer.name).and_then(Weak::upgrade).unwrap_or_else(|| {
                let cell = Arc::default();
                known.insert(consumer.name.clone(), Arc::downgrade(&cell));
                cell
            })
        };
        let cells = consumers.iter().map(&mut cell_of).collect();
        self.inherited.lock().unwrap_or_else(PoisonError::into_inner).clear();
        known.retain(|_, cell| cell.strong_count() > 0);
        cells
    }
}

impl Portable for State {
    fn save(&self) -> Vec<u8> {
        saved::save(self)
    }
}

// === impl RateLimit ===

static STORE_UP: Figure =
    Figure::gauge("store_up", "weir_rate_limit_store_up", "1 if the store of the shared limits answers.")
        .of("store");
static GATEWAYS: Figure =
    Figure::gauge("gateways", "weir_rate_limit_store_gateways", "Gateways that use the limits of the store.")
        .of("store");
static ASKED: Figure =
    Figure::counter("asked", "weir_rate_limit_store_asked", "Questions to the store.").of("store");
static WAITED: Figure =
    Figure::counter("waited", "weir_rate_limit_store_waited", "Requests that waited for the store.")
        .of("store");
static WITHOUT_STORE: Figure = Figure::counter(
    "without_store",
    "weir_rate_limit_without_store",
    "Requests that were decided without the store, because it did not answer.",
)
.of("store");

impl Filter for RateLimit {
    fn hooks(&self) -> Hooks {
        let told = self.limits.iter().any(|limit| limit.fields.is_some());
        match &self.cost {
            Some(_) => Hooks::REQUEST | Hooks::ATTEMPT | Hooks::RESPONSE,
            None if told => Hooks::REQUEST | Hooks::RESPONSE,
            None => Hooks::REQUEST,
        }
    }

    fn guards(&self) -> FieldGuards {
        let told = self.limits.iter().any(|limit| limit.fields.is_some());
        let mut response = if told { vec![field_name(POLICY), field_name(LIMIT)] } else { Vec::new() };
        response.extend(self.cost.clone());
        FieldGuards { request: self.who.guards(), response }
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let now = gcra::at(cx.now());
        if let Some(shared) = &self.shared {
            let taken = shared.take(&self.key(head, cx), now);
            return self.on_shared(shared, taken, head, cx);
        }
        let ([limit], None) = (self.limits.as_slice(), &self.cost) else {
            return self.charge_all(1, head, cx);
        };
        let decision = match self.who.consumer(cx).filter(|index| limit.has_consumer(*index)) {
            Some(index) => limit.charge(Spot::Consumer(index), 1, now), // without the general form of a key
            None => self.charge_one(limit, head, cx, now),
        };
        match decision {
            Decision::Allowed { used } => {
                if limit.fields.is_some() {
                    *cx.note() = used; // for the response; never 0, because a request was charged
                }
                Flow::Continue
            }
            Decision::Denied { used, wait } => self.refuse(limit, limit.fields_used(used, || now), wait),
        }
    }

    fn wait<'a>(&'a self, head: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            let Some(shared) = &self.shared else { return Flow::Continue };
            let ends = Instant::now() + shared.store.place().timeout;
            while let Some(waits) = cx.state::<Leased>().waits.take() {
                let Ok(Ok(Ok(()))) = time::timeout_at(ends, waits).await else {
                    return self.without_store(shared, head, cx);
                };
                let taken = shared.take(&self.key(head, cx), gcra::now());
                match self.on_shared(shared, taken, head, cx) {
                    Flow::Wait => {}
                    decided => return decided,
                }
            }
            Flow::Continue
        })
    }

    fn on_attempt_end(&self, end: &AttemptEnd<'_>, cx: &mut Cx) {
        if let (Some(name), Some(head)) = (&self.cost, end.head) {
            // Of several attempts, the last one that was answered counts.
            cx.state::<ReportedCost>().0 = reported_cost(head, name);
        }
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        if let ([limit], None, None) = (self.limits.as_slice(), &self.cost, &self.shared) {
            if let used @ 1.. = *cx.note() {
                tell(limit.fields_used(used, gcra::now), head);
            }
        } else {
            self.settle(head, cx);
        }
        Flow::Continue
    }

    fn retire(&self, done: &std::sync::mpsc::Sender<()>) {
        if let Some(shared) = &self.shared {
            shared.retire(gcra::now(), done);
        }
    }

    fn readings(&self) -> Vec<Reading> {
        let Some(shared) = &self.shared else { return Vec::new() };
        let (store, counts) = (&shared.store, shared.counts());
        [
            (&STORE_UP, u64::from(store.is_up())),
            (&GATEWAYS, store.gateways().into()),
            (&ASKED, counts.asked.load(Relaxed)),
            (&WAITED, counts.waited.load(Relaxed)),
            (&WITHOUT_STORE, counts.without.load(Relaxed)),
        ]
        .map(|(figure, value)| Reading::of(figure, &store.name, value))
        .into()
    }

    fn notes(&self) -> Vec<String> {
        let Some(shared) = &self.shared else { return Vec::new() };
        let ahead = shared.ahead();
        let (by, always) = if shared.store.is_of_fleet() {
            ("by the fleet, as", ", also when the node that counts is another")
        } else {
            ("in", "")
        };
        let note = |limit: &Limit| {
            let bound = match &self.cost {
                None => format!("N gateways let pass at most {} + N × {ahead} of it{always}", limit.burst()),
                Some(name) => format!(
                    "it has no bound, because the cost of a request is only known from `{name}` of its response"
                ),
            };
            let (kept, away) = (&shared.store.name, shared.without.effect());
            format!(
                "the limit {} is kept {by} the store {kept}: {bound}; while the store is away, {away}",
                limit.described
            )
        };
        self.limits.iter().map(note).collect()
    }
}

/// The cost in a response; `None` if the field is missing or unreadable.
fn reported_cost(head: &ResponseHead, name: &FieldName) -> Option<u32> {
    let text = str::from_utf8(head.headers.get(name)?).ok()?.trim();
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(COST_MAX).min(COST_MAX))
}

/// The cost in the upstream's response as it arrived. If no upstream was asked, the cost in the response as it is.
fn cost_of(head: &ResponseHead, name: &FieldName, cx: &mut Cx) -> Option<u32> {
    cx.state::<ReportedCost>().0.take().or_else(|| reported_cost(head, name))
}

/// Adds the fields of a limit to a response.
#[inline(always)] // as a call, they are copied
fn tell(told: Option<LimitFields<'_>>, head: &mut ResponseHead) {
    if let Some(told) = told {
        told.add_to(&mut head.headers);
    }
}

impl RateLimit {
    /// Charges the filter's only limit.
    #[inline(never)]
    fn charge_one(&self, limit: &Limit, head: &RequestHead, cx: &Cx, now: Time) -> Decision {
        limit.charge(limit.spot(&self.counted(head, cx)), 1, now)
    }

    /// Charges the cost that a response states, and describes the limits in it.
    #[inline(never)]
    fn settle(&self, head: &mut ResponseHead, cx: &mut Cx) {
        if let Some(shared) = &self.shared {
            self.on_shared_response(shared, head, cx);
        }
        // Empty if the request was refused: that response describes the limit itself.
        let Charged(mut charged) = std::mem::take(cx.state());
        if let Some(name) = &self.cost {
            let cost = cost_of(head, name, cx).filter(|_| !cx.is_kept());
            head.headers.remove(name);
            let now = gcra::now();
            for (limit, (spot, used)) in self.limits.iter().zip(&mut charged) {
                match cost {
                    Some(0) => {
                        limit.refund(*spot, 1);
                        *used = used.saturating_sub(limit.rate.amount);
                    }
                    Some(cost @ 2..) => *used = limit.force(*spot, cost - 1, now),
                    Some(1) | None => {}
                }
            }
        }
        for (limit, (_, used)) in self.limits.iter().zip(charged) {
            tell(limit.fields_used(used, gcra::now), head);
        }
    }

    fn counted<'a>(&'a self, head: &'a RequestHead, cx: &'a Cx) -> Counted<'a> {
        match self.who.of(head, cx) {
            Counted::Consumer(index) if !self.limits.iter().all(|limit| limit.has_consumer(index)) => {
                self.who.address(cx.client)
            }
            counted => counted,
        }
    }

    /// Charges all limits or none, with `of` gateways sharing them. If one refuses, the charges before it are
    /// refunded. In that moment another request that would have fitted may be refused, but none passes that does not
    /// fit.
    fn charge_all(&self, of: u32, head: &RequestHead, cx: &mut Cx) -> Flow {
        let now = gcra::at(cx.now());
        let mut charged: SmallVec<[(Spot, Time); 2]> = SmallVec::new();
        let counted = self.counted(head, cx);
        for limit in &self.limits {
            let spot = limit.spot(&counted);
            match limit.charge(spot, of, now) {
                Decision::Allowed { used } => charged.push((spot, used)),
                Decision::Denied { used, wait } => {
                    for (limit, (spot, _)) in self.limits.iter().zip(charged) {
                        limit.refund(spot, of);
                    }
                    return self.refuse(limit, limit.fields_used(used, || now), wait);
                }
            }
        }
        drop(counted);
        *cx.state() = Charged(charged);
        Flow::Continue
    }

    /// This response describes the limit itself. `on_response` adds nothing, because nothing was charged.
    fn refuse(&self, limit: &Limit, told: Option<LimitFields<'_>>, wait: Time) -> Flow {
        let mut headers = told.map_or_else(Vec::new, |told| told.list());
        let seconds = itoa::Buffer::new().format(wait.div_ceil(SECOND)).as_bytes().to_vec();
        headers.push((self.retry_after.clone(), seconds));
        let cause = if limit.calendar().is_some() { &QUOTA_EXCEEDED } else { &RATE_LIMITED };
        // Names the limit for `weir why`, because a route may have several.
        let detail = Some(format!("{} The limit is {}.", cause.meaning, limit.described));
        Flow::Refuse(Box::new(Refusal { cause, detail, headers }))
    }

    // === With a store ===

    fn key<'a>(&'a self, head: &'a RequestHead, cx: &'a Cx) -> Key<'a> {
        match self.who.of(head, cx) {
            Counted::Key(key) => key,
            Counted::All => Key::Route(cx.route()),
            Counted::Consumer(_) => Key::Consumer(cx.consumer().map_or("", |consumer| &consumer.name)),
        }
    }

    fn on_shared(&self, shared: &Shared, taken: Taken, head: &RequestHead, cx: &mut Cx) -> Flow {
        match taken {
            Taken::Allowed(told) => {
                let key = self.cost.as_ref().map(|_| {
                    let key = self.key(head, cx);
                    (shared.number(&key), shared.name(&key))
                });
                *cx.state() = Leased { told: Some(told), key, waits: None };
                Flow::Continue
            }
            Taken::Away => self.without_store(shared, head, cx),
            Taken::Denied { told, wait } => match self.limits.get(told.short).or(self.limits.first()) {
                Some(limit) => {
                    let (left, reset) = told.limits.get(told.short).copied().unwrap_or((0, wait));
                    self.refuse(limit, limit.fields_left(left, reset), wait)
                }
                None => Flow::refuse(&RATE_LIMITED),
            },
            Taken::Waits(waits) => {
                cx.state::<Leased>().waits = Some(waits);
                Flow::Wait
            }
        }
    }

    fn without_store(&self, shared: &Shared, head: &RequestHead, cx: &mut Cx) -> Flow {
        shared.counts().without.fetch_add(1, Relaxed);
        match shared.without {
            Without::Closed => {
                Flow::refuse_with(&STORE_UNAVAILABLE, vec![(self.retry_after.clone(), b"1".to_vec())])
            }
            Without::Local => self.charge_all(shared.store.gateways(), head, cx),
            Without::Open => Flow::Continue,
        }
    }

    fn on_shared_response(&self, shared: &Shared, head: &mut ResponseHead, cx: &mut Cx) {
        let Leased { told: Some(told), key, .. } = std::mem::take(cx.state()) else { return };
        if let (Some(field), Some((number, name))) = (&self.cost, key)
            && let Some(cost) = cost_of(head, field, cx).filter(|_| !cx.is_kept())
        {
            shared.settle(number, cost, &name);
        }
        for (limit, (left, reset)) in self.limits.iter().zip(told.limits) {
            tell(limit.fields_left(left, reset), head);
        }
    }
}
