//! What all kinds of registries share: takes in answers and publishes endpoints.

use super::AskContext;
use crate::upstream::Upstream;
use crate::upstream::discover::dns;
use crate::upstream::discover::registry::{Listed, Registry};
use hickory_resolver::TokioResolver;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use weir_discover::{Listing, Verdict};
use weir_telemetry::{Telemetry, log};

/// The shortest time between two published lists.
const PACE: Duration = Duration::from_millis(100);

/// How long to wait before asking again for a name that did not resolve.
const RETRY: Duration = Duration::from_secs(2);

/// How long to wait for a list's names before publishing those that have resolved.
const NAMES: Duration = Duration::from_secs(5);

/// Most names of one upstream.
const MOST_NAMES: usize = 256;

/// One upstream with a registry.
pub(super) struct Desk {
    upstream: Arc<Upstream>,
    registry: Arc<Registry>,
    telemetry: Arc<Telemetry>,
    changed: Notify,
    /// Dropped once the registry was asked.
    first: RefCell<Option<std_mpsc::Sender<()>>>,
}

/// A name's addresses and when to ask for it again.
#[derive(Default)]
struct Resolved {
    addresses: Vec<IpAddr>,
    due: Option<Instant>,
}

impl Desk {
    /// `None` for an upstream without a registry.
    pub(super) fn new(
        upstream: Arc<Upstream>,
        telemetry: Arc<Telemetry>,
        first: std_mpsc::Sender<()>,
    ) -> Option<Self> {
        let registry = Arc::clone(upstream.registry.as_ref()?);
        // Known endpoints serve until there is an answer.
        let known = registry.state().book.good().is_some();
        let first = RefCell::new(Some(first).filter(|_| !known));
        registry.cells.follows(false);
        let changed = Notify::new();
        changed.notify_one(); // asks again for names known from before
        Some(Self { upstream, registry, telemetry, changed, first })
    }

    /// Takes an answer. `went_back` says that the registry knows less than before.
    pub(super) fn answered(&self, listing: Listing, went_back: bool) {
        let (verdict, trouble, news) = {
            let mut state = self.registry.state();
            let before = state.left_out().1;
            let verdict = state.book.answered(listing, went_back);
            state.has_answered(verdict != Verdict::Kept);
            let (named, unusable) = state.left_out();
            let news = named.first().filter(|_| unusable != before).map(|one| (one.clone(), unusable));
            (verdict, state.book.trouble().map(str::to_owned), news)
        };
        self.registry.cells.follows(true);
        if let Some((one, unusable)) = news {
            let fields: log::Fields<'_> = &[
                ("upstream", &self.registry.upstream),
                ("instances", &unusable),
                ("first", &one.id),
                ("why", &one.why),
            ];
            log::warn("listed instances cannot be used", fields);
        }
        match (verdict, trouble) {
            (Verdict::Publish, _) => self.changed.notify_one(),
            (Verdict::Kept, Some(why)) => self.complain(&why),
            (Verdict::Kept | Verdict::Same, _) => {}
        }
        // The first list may be empty, which is no change.
        if self.first.borrow().is_some() {
            self.changed.notify_one();
        }
    }

    /// Takes a file's endpoints.
    pub(super) fn read(&self, list: Vec<Listed>) {
        let changed = self.registry.state().read(list);
        self.registry.cells.follows(true);
        if changed || self.first.borrow().is_some() {
            self.changed.notify_one();
        }
    }

    /// Notes a missing or useless answer. Returns how long to wait before the next attempt.
    pub(super) fn failed(&self, why: String) -> Duration {
        self.complain(&why);
        self.registry.cells.follows(false);
        self.registry.cells.discovery_failed();
        let wait = {
            let mut state = self.registry.state();
            state.is_away();
            state.book.failed(why)
        };
        drop(self.first.take()); // the start no longer waits for it
        wait
    }

    fn complain(&self, why: &str) {
        static SEEN: log::PerSubject = log::per_subject(1, Duration::from_secs(5));
        let fields: log::Fields<'_> =
            &[("upstream", &self.registry.upstream), ("registry", &self.registry.kind), ("error", &why)];
        let message = "the registry does not say who serves; the last endpoints stay";
        SEEN.warn(&self.registry.upstream, message, fields);
    }

    /// Publishes the known list whenever it changes, with its names resolved.
    pub(super) async fn serve(&self, around: &AskContext) {
        let mut names: HashMap<String, Resolved> = HashMap::new();
        loop {
            let due = names.values().filter_map(|name| name.due).min();
            tokio::select! {
                () = self.changed.notified() => {}
                () = until(due) => {}
            }
            if self.registry.state().answered.is_none() {
                continue; // not even an empty list is known
            }
            self.publish(&names); // addresses do not wait for names
            let wanted = self.wanted();
            names.retain(|name, _| wanted.contains(name));
            if !wanted.is_empty() {
                self.resolve(around, wanted, &mut names).await;
                self.publish(&names);
            }
            drop(self.first.take());
            tokio::time::sleep(PACE).await;
        }
    }

    fn publish(&self, names: &HashMap<String, Resolved>) {
        {
            let mut state = self.registry.state();
            let known = names.iter().filter(|(_, resolved)| !resolved.addresses.is_empty());
            let fresh: Vec<_> =
                known.map(|(name, resolved)| (name.clone(), resolved.addresses.clone())).collect();
            // What was known of names before a reload serves until they have been asked for.
            state.names.retain(|(name, _)| !fresh.iter().any(|(other, _)| other == name));
            state.names.extend(fresh);
            let listed = state.listed();
            state.names.retain(|(name, _)| listed.iter().any(|one| one.name() == Some(name)));
        }
        self.registry.publish(&self.upstream.published, &self.telemetry);
    }

    /// The names in the list.
    fn wanted(&self) -> Vec<String> {
        let listed = self.registry.state().listed();
        let mut all: Vec<String> = listed.iter().filter_map(|one| one.name().map(str::to_owned)).collect();
        all.sort_unstable();
        all.dedup();
        all.truncate(MOST_NAMES);
        all
    }

    /// Asks for all due names concurrently.
    async fn resolve(&self, around: &AskContext, wanted: Vec<String>, names: &mut HashMap<String, Resolved>) {
        let resolver = match &around.resolver {
            Ok(resolver) => resolver,
            Err(why) => return self.complain(why),
        };
        let now = Instant::now();
        let mut asked = JoinSet::new();
        for name in wanted {
            let known = names.entry(name.clone()).or_default();
            if known.due.is_none_or(|due| due <= now) {
                known.due = Some(now + RETRY);
                asked.spawn_local(look_up(resolver.clone(), name));
            }
        }
        let end = tokio::time::Instant::now() + NAMES;
        while let Ok(Some(Ok((name, found)))) = tokio::time::timeout_at(end, asked.join_next()).await {
            match found {
                Ok((addresses, ttl)) => {
                    let wait = ttl.clamp(around.settings.min_ttl, around.settings.max_ttl);
                    names.insert(name, Resolved { addresses, due: Some(Instant::now() + wait) });
                }
                Err(why) => {
                    static SEEN: log::PerSubject = log::per_subject(1, Duration::from_secs(10));
                    let fields: log::Fields<'_> =
                        &[("upstream", &self.registry.upstream), ("name", &name), ("error", &why)];
                    SEEN.warn((&self.registry.upstream, &name), "name did not resolve", fields);
                }
            }
        }
    }
}

async fn look_up(resolver: TokioResolver, name: String) -> (String, Result<(Vec<IpAddr>, Duration), String>) {
    let found = match resolver.lookup_ip(name.as_str()).await {
        Ok(found) => {
            let ttl = found.valid_until().saturating_duration_since(Instant::now());
            let mut addresses: Vec<IpAddr> = found.iter().collect();
            addresses.sort_unstable();
            addresses.dedup();
            if addresses.is_empty() {
                Err("the answer has no address".to_owned())
            } else {
                Ok((addresses, ttl))
            }
        }
        Err(e) => Err(dns::words(&e)),
    };
    (name, found)
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}
