//! The health of all the process's endpoints by name, and the part that goes to the next process.

use super::Health;
use super::reasons::Why;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_telemetry::{EndpointId, OutReason, log};

/// The health of every endpoint, by upstream and address. An endpoint keeps it as long as any snapshot has the
/// endpoint.
#[derive(Debug, Default)]
pub struct Healths(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// By address, then by upstream: few upstreams share an address, but there may be thousands of both.
    healths: HashMap<Arc<str>, Sharers>,
    /// With so many addresses, those that are gone are forgotten.
    full: usize,
    /// What the previous process knew of endpoints that are still to come.
    inherited: HashMap<Name, (Saved, Instant)>,
    /// The upstreams of the config being built.
    upstreams: HashSet<String>,
}

/// Fewer addresses than this are not searched for those that are gone.
const FEW: usize = 1_000;

/// The upstreams that have an address, each with the health of its endpoint there.
type Sharers = Vec<(Arc<str>, Weak<Health>)>;

/// The names of an upstream and of an endpoint.
type Name = (Arc<str>, Arc<str>);

/// What the next process should know of one endpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Saved {
    upstream: String,
    endpoint: String,
    #[serde(default)]
    failures: u32,
    #[serde(default)]
    ejections: u32,
    #[serde(default)]
    whys: Vec<SavedWhy>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SavedWhy {
    reason: String,
    cause: String,
    #[serde(default)]
    detail: Option<Box<str>>,
    /// In Unix time.
    since_ms: u64,
    /// The rest of its time; `None` if time alone does not end it.
    #[serde(default)]
    for_ms: Option<u64>,
}

impl Healths {
    /// Starts building a config with these upstreams.
    pub fn begin<'n>(&self, upstreams: impl Iterator<Item = &'n str>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.upstreams = upstreams.map(str::to_owned).collect();
    }

    /// The health of an endpoint. What an operator set stays even if its upstream was renamed.
    pub fn of(&self, upstream: &Arc<str>, endpoint: &Arc<str>, cells: &EndpointId) -> Arc<Health> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(health) = known.running(upstream, endpoint) {
            return health;
        }
        known.forget_gone();
        let name = (Arc::clone(upstream), Arc::clone(endpoint));
        let health = Health::new(Arc::clone(upstream), Arc::clone(endpoint), cells.clone());
        if let Some((saved, at)) = known.inherited.remove(&name) {
            health.restore(saved, at);
        } else if let Some((saved, at)) = known.renamed(endpoint) {
            log::info(
                "endpoint keeps the state set by an operator: its upstream was renamed",
                &[("upstream", upstream), ("endpoint", endpoint), ("before", &saved.upstream)],
            );
            health.restore(saved, at);
        }
        let (upstream, endpoint) = name;
        let of_address = known.healths.entry(endpoint).or_default();
        of_address.retain(|(known, health)| health.strong_count() > 0 && *known != upstream);
        of_address.push((upstream, Arc::downgrade(&health)));
        health
    }

    /// The state for the next process; empty if everything is healthy.
    pub fn save(&self) -> Vec<u8> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let all = known.healths.values().flatten().filter_map(|(_, health)| health.upgrade());
        let all: Vec<Saved> = all.filter_map(|health| health.save(now)).collect();
        if all.is_empty() { Vec::new() } else { serde_json::to_vec(&all).unwrap_or_default() }
    }

    /// Reads what the previous process [saved](Self::save). Unreadable state starts fresh.
    pub fn inherit(&self, bytes: &[u8]) {
        let Ok(all) = serde_json::from_slice::<Vec<Saved>>(bytes) else { return };
        let now = Instant::now();
        let name = |saved: &Saved| (saved.upstream.as_str().into(), saved.endpoint.as_str().into());
        let named = all.into_iter().map(|saved| (name(&saved), (saved, now)));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).inherited.extend(named);
    }
}

impl Known {
    fn running(&self, upstream: &str, endpoint: &str) -> Option<Arc<Health>> {
        let of_address = self.healths.get(endpoint)?;
        of_address.iter().find(|(known, _)| **known == *upstream)?.1.upgrade()
    }

    /// Forgets addresses that are gone, once they may be half of all: a start with thousands searches few times.
    fn forget_gone(&mut self) {
        if self.healths.len() < self.full.max(FEW) {
            return;
        }
        self.healths.retain(|_, of_address| {
            of_address.retain(|(_, health)| health.strong_count() > 0);
            !of_address.is_empty()
        });
        self.full = 2 * self.healths.len();
    }

    /// What an operator set for this address, in the only upstream that has it and is no longer in the config.
    fn renamed(&self, endpoint: &Arc<str>) -> Option<(Saved, Instant)> {
        let now = Instant::now();
        let is_gone = |upstream: &Arc<str>| !self.upstreams.contains(&**upstream);
        let running = self.healths.get(endpoint).into_iter().flatten();
        let running = running.filter(|(upstream, _)| is_gone(upstream));
        let running = running.filter_map(|(_, health)| Some((health.upgrade()?.save(now)?, now)));
        let inherited = self.inherited.iter();
        let inherited = inherited.filter(|((upstream, label), _)| label == endpoint && is_gone(upstream));
        let inherited = inherited.map(|(_, (saved, at))| (saved.clone(), *at));
        let mut found = running.chain(inherited).filter_map(|(saved, at)| Some((saved.by_hand()?, at)));
        let only = found.next()?;
        found.next().is_none().then_some(only)
    }
}

impl Saved {
    /// The part that an operator set.
    fn by_hand(mut self) -> Option<Self> {
        self.whys.retain(|why| {
            [OutReason::Draining, OutReason::Out].iter().any(|reason| why.reason == reason.name())
        });
        (self.failures, self.ejections) = (0, 0);
        (!self.whys.is_empty()).then_some(self)
    }
}

impl Health {
    fn save(&self, now: Instant) -> Option<Saved> {
        let state = self.state();
        let whys: Vec<SavedWhy> = state.whys().map(|why| SavedWhy::of(why, now)).collect();
        let (failures, ejections) = (state.failures, state.ejections);
        let (upstream, endpoint) = (self.upstream.to_string(), self.label.to_string());
        let is_new = whys.is_empty() && failures == 0 && ejections == 0;
        (!is_new).then_some(Saved { upstream, endpoint, failures, ejections, whys })
    }

    /// `at` is when it was handed over.
    fn restore(&self, saved: Saved, at: Instant) {
        let mut state = self.state();
        (state.failures, state.ejections) = (saved.failures, saved.ejections);
        for why in saved.whys {
            let Some(why) = why.read(at) else { continue };
            self.cells.begin_out(why.reason, why.since, false);
            self.cells.set_healthy(false);
            if why.reason == OutReason::ProbeFailed {
                self.verdict.store(super::FAILED, Ordering::Relaxed);
            }
            state.insert(why);
        }
        self.publish(&state);
    }
}

impl SavedWhy {
    fn of(why: &Why, now: Instant) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            reason: why.reason.name().to_owned(),
            cause: why.cause.clone().into_owned(),
            detail: why.detail.clone(),
            since_ms: ms(why.since.duration_since(UNIX_EPOCH).unwrap_or_default()),
            for_ms: why.due.map(|due| ms(due.saturating_duration_since(now))),
        }
    }

    /// `None` for a reason of another version.
    fn read(self, at: Instant) -> Option<Why> {
        let since = UNIX_EPOCH.checked_add(Duration::from_millis(self.since_ms))?;
        let ago = SystemTime::now().duration_since(since).unwrap_or_default();
        let left = self.for_ms.map(Duration::from_millis);
        Some(Why {
            reason: OutReason::named(&self.reason)?,
            cause: self.cause.into(),
            detail: self.detail,
            since,
            began: Instant::now().checked_sub(ago).unwrap_or(at),
            due: left.and_then(|left| at.checked_add(left)),
        })
    }
}
