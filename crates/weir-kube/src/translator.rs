//! The translation as the controller calls it: keeps the objects, and leaves out those whose part of the config Weir
//! refuses.

mod blame;
mod references;

use crate::api::{Object, watched};
use crate::cluster::{Change, Cluster};
use crate::config::Config;
use crate::controller::{Effect, Output, Translator};
use crate::objects::{CONTROLLER_ANNOTATION, Kind, Name};
use crate::quota::{self, Cost};
use crate::status::Problem;
use crate::translate::{Fed, Front, Memo, Moved, Options, Owners, Translation, addresses_of};
use crate::watch::keeper::Wanted;
use crate::watch::recorder::{Notice, Notices};
use crate::watch::store;
use crate::watch::writer::Target;
use blame::{Blamed, busy_address, is_behind_match, missing_address, sizes};
use references::depends;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use weir_config::{Mistakes, Severity, Supply};
use weir_telemetry::log;

/// Translates the Gateway API and Ingresses.
#[derive(Debug, Default)]
pub struct GatewayApi {
    cluster: Cluster,
    options: Options,
    /// What the last translation kept; `None` before the first one.
    memo: Option<Memo>,
    /// Endpoints that have changed since they were asked for.
    moved: BTreeMap<Arc<str>, Arc<Supply>>,
    /// The upstreams of the last translation, and of the last that ran. They differ while the last one is refused.
    fed: Arc<Fed>,
    running: Arc<Fed>,
    /// What each status says is wrong, by the status.
    said: BTreeMap<Target, (Arc<Value>, Vec<Notice>)>,
    /// Sections of the config that are the operator's, such as `admin`.
    rest: Map<String, Value>,
    /// The object that each thing of the last config was made for.
    owners: Owners,
    /// The objects above the shares of their namespaces, with the bytes of config that they cost.
    cut: BTreeMap<(Kind, Name), usize>,
    /// How long the config was when they were left out last, without what answers with an error in their place.
    cut_at: usize,
    /// Longest config.
    longest: usize,
    /// The last config, a line for each thing: a mistake of the text itself has a line but no path.
    text: Arc<str>,
    /// The Service in front of this pod.
    service: Option<Name>,
}

/// Longest reason in a status, in characters.
const REASON: usize = 500;

impl GatewayApi {
    /// A translator without any object. `rest` has further sections of the config, such as `admin`.
    #[must_use]
    pub fn new(options: Options, mut rest: Map<String, Value>) -> Self {
        // Files are written before a config names them, and never change.
        rest.insert("watch".to_owned(), Value::Bool(false));
        Self { options, rest, longest: quota::LONGEST, ..Self::default() }
    }

    /// Creates a Service of this type for each Gateway, which leads to the pods behind this Service.
    #[must_use]
    pub fn with_services(mut self, pods: &Name, kind: &str) -> Self {
        self.options.front = Front::Services { pods: pods.clone(), kind: kind.to_owned() };
        self
    }

    /// Lets Ingresses, and Gateways that have no Service of their own and ask for no address, report those of this
    /// Service.
    #[must_use]
    pub fn behind(mut self, service: Name) -> Self {
        self.service = Some(service);
        self
    }

    /// The config of an empty cluster.
    #[must_use]
    pub fn empty(&self) -> String {
        Config::default().to_text(&self.rest)
    }

    /// The addresses that a Gateway or an Ingress reports because of a Service; none if the Service is not one of ours.
    fn addresses(&self, name: &Name) -> Vec<String> {
        let Some(service) = self.cluster.services.get(name) else { return Vec::new() };
        let is_ours = self.service.as_ref() == Some(name)
            || service.meta.annotations.get(CONTROLLER_ANNOTATION) == Some(&self.options.controller);
        if is_ours { addresses_of(service) } else { Vec::new() }
    }

    /// The objects of namespaces whose part of a text is greater than their share, with their bytes. `closed` bytes of
    /// the text have room of their own. What no object owns comes first, such as the operator's own sections.
    fn beyond(&self, text: &str, owners: &Owners, closed: usize) -> BTreeMap<(Kind, Name), usize> {
        let created = |(kind, name): &(Kind, Name)| self.cluster.created(*kind, name);
        let mut sizes = sizes(text, owners);
        sizes.retain(|owner, _| !self.options.refused.contains_key(*owner));
        let costs = sizes.iter().map(|(&owner, &bytes)| Cost { owner, created: created(owner), bytes });
        let unowned = text.len().saturating_sub(closed + sizes.values().sum::<usize>());
        let beyond = quota::beyond(costs.collect(), self.longest.saturating_sub(unowned)).into_iter();
        beyond.map(|owner| (owner.clone(), sizes.get(owner).copied().unwrap_or_default())).collect()
    }

    /// Whether one of the objects above the shares may fit now, because other namespaces ask for less. A try costs two
    /// translations, so there is another only once the config is shorter than at the last one.
    fn has_room_again(&mut self, length: usize) -> bool {
        self.cut.retain(|object, _| self.options.refused.contains_key(object)); // the others have changed
        let fits = |least: &usize| length < self.cut_at && length + least <= self.longest;
        self.cut.values().min().is_some_and(fits)
    }

    /// The objects, left out in part or as a whole, that depend on this one, in any namespace.
    fn depending(&self, kind: Kind, name: &Name) -> BTreeSet<(Kind, Name)> {
        if !matches!(kind, Kind::ConfigMap | Kind::Gateway | Kind::ReferenceGrant | Kind::Secret) {
            return BTreeSet::new();
        }
        let Options { refused, dropped, refused_parts, .. } = &self.options;
        let parts = refused_parts.values().map(|(owner, _)| owner);
        let left_out: BTreeSet<_> = refused.keys().chain(dropped).chain(parts).collect();
        let depending = left_out.into_iter().filter(|of| depends(&self.cluster, of, (kind, name)));
        depending.cloned().collect()
    }

    /// Changes what is left out, and forgets what was made with another list. Returns whether it is another one.
    ///
    /// Invariant: a change only adds or only removes, so the numbers tell.
    fn change_options(&mut self, change: impl FnOnce(&mut Options)) -> bool {
        let before = left_out(&self.options);
        change(&mut self.options);
        self.forget_unless(before)
    }

    /// Forgets what was made with another list, and returns whether it is another one. With the same list, the memo
    /// stays: endpoints must still move in the config that runs.
    fn forget_unless(&mut self, before: [usize; 7]) -> bool {
        let is_changed = left_out(&self.options) != before;
        if is_changed && let Some(memo) = &mut self.memo {
            memo.clear();
        }
        is_changed
    }

    /// EndpointSlices of these Services have changed.
    fn slices_changed(&mut self, services: &[Name]) -> Effect {
        let Some(memo) = &mut self.memo else { return Effect::Config };
        let moved = memo.slices_changed(&self.cluster, &self.options, services.iter().cloned());
        let Moved::Endpoints(mut moved) = moved else { return Effect::Config };
        moved.extend(self.left_behind(services.iter()));
        if moved.is_empty() {
            return Effect::Nothing;
        }
        self.moved.extend(moved);
        Effect::Endpoints
    }

    /// The endpoints of upstreams of these Services that run, although the last translation does not have them. Their
    /// pods come and go as those of the others do.
    ///
    /// If the last translation has panicked, these are all upstreams that run.
    fn left_behind<'a>(&mut self, services: impl Iterator<Item = &'a Name>) -> Vec<(Arc<str>, Arc<Supply>)> {
        let mut all = Vec::new();
        let has_panicked = self.memo.is_none();
        if !has_panicked && Arc::ptr_eq(&self.running, &self.fed) {
            return all;
        }
        let mut without = Memo::default(); // what was kept may be half changed
        let memo = self.memo.as_mut().unwrap_or(&mut without);
        for service in services {
            let fed = self.fed.get(service).filter(|_| !has_panicked);
            for (upstream, port) in self.running.get(service).into_iter().flatten() {
                if !fed.is_some_and(|fed| fed.contains_key(upstream)) {
                    let endpoints = memo.endpoints(&self.cluster, &self.options, service, port);
                    all.push((Arc::clone(upstream), endpoints));
                }
            }
        }
        all
    }

    fn translated(&mut self) -> (Translation, String) {
        // If this panics, what it has half changed is not kept.
        let mut memo = self.memo.take().unwrap_or_default();
        let translated = memo.translate(&self.cluster, &self.options);
        self.memo = Some(memo);
        let text = translated.config.to_text_without_supplies(&self.rest);
        (translated, text)
    }

    /// What statuses say is wrong, and what they have no place for.
    fn notices(
        &mut self,
        statuses: &BTreeMap<Target, Arc<Value>>,
        more: Vec<(Kind, Name, Problem)>,
    ) -> Notices {
        let mut all = Notices::new();
        let mut before = std::mem::take(&mut self.said);
        for (target, status) in statuses {
            let same = before.remove_entry(target).filter(|(_, (known, _))| Arc::ptr_eq(known, status));
            let (target, (status, said)) = same.unwrap_or_else(|| {
                let mut found = BTreeSet::new();
                wrong(status, &mut found);
                (target.clone(), (Arc::clone(status), found.into_iter().collect()))
            });
            if !said.is_empty() {
                all.insert(target.clone(), said.clone());
            }
            self.said.insert(target, (status, said));
        }
        for (kind, name, problem) in more {
            let target = Target { kind: kind.as_str(), key: name };
            let notice = Notice { reason: problem.reason.to_owned(), message: problem.message };
            all.entry(target).or_default().push(notice);
        }
        all
    }
}

impl Translator for GatewayApi {
    fn change(&mut self, change: &store::Change) -> Effect {
        let Some(kind) = Kind::named(change.kind) else { return Effect::Nothing };
        let name = change.key.clone();
        let value = change.object.as_ref().map(|object| object.value());
        // Of the statuses of Services, only addresses count.
        let before = (kind == Kind::Service).then(|| self.addresses(&name));
        let service = self.cluster.service_of(kind, &name);
        let made = match &value {
            None => self.cluster.delete(kind, &name),
            Some(value) => self.cluster.apply(value).unwrap_or_else(|refused| {
                let fields: log::Fields<'_> = &[("object", &refused.object), ("error", &refused.why)];
                log::error("an object cannot be read: what was seen before stays in service", fields);
                Change::Nothing
            }),
        };
        if kind == Kind::Gateway && made == Change::Config {
            self.change_options(|options| options.unusable.clear()); // they are tried again
        }
        if made == Change::Config {
            // It may be better now, or what refers to it: filters, authorities, endpoints.
            let depending = self.depending(kind, &name);
            let stays = |left_out: &(Kind, Name)| {
                left_out.1.namespace != name.namespace && !depending.contains(left_out)
            };
            let was_left_out = self.change_options(|options| {
                options.refused.retain(|left_out, _| stays(left_out));
                options.closed.retain(|left_out, _| stays(left_out));
                options.dropped.retain(stays);
                options.dropped_matches.retain(|_, route| route.namespace != name.namespace);
                options.refused_parts.retain(|_, (owner, _)| stays(owner));
            });
            if kind == Kind::EndpointSlice && !was_left_out {
                let services = service.into_iter().chain(self.cluster.service_of(kind, &name));
                return self.slices_changed(&services.collect::<Vec<_>>());
            }
            if let Some(memo) = &mut self.memo {
                memo.changed(&self.options, kind, &name);
            }
        }
        let moved = before.is_some_and(|before| before != self.addresses(&name));
        if moved || made == Change::Config { Effect::Config } else { Effect::Nothing }
    }

    fn translate(&mut self) -> Output {
        if let Some(service) = &self.service {
            let addresses = self.addresses(service);
            self.options.published.clone_from(&addresses);
            let all = self.cluster.gateways.iter();
            // A Gateway that asks for addresses gets those.
            let without = all.filter(|(_, gateway)| gateway.spec.addresses.is_empty());
            self.options.addresses = without.map(|(name, _)| (name.clone(), addresses.clone())).collect();
        }
        let (mut translated, mut text) = self.translated();
        if self.has_room_again(text.len().saturating_sub(translated.closed)) {
            // All of them come back, and the shares are worked out anew.
            let before = std::mem::take(&mut self.cut);
            self.change_options(|options| options.refused.retain(|object, _| !before.contains_key(object)));
            (translated, text) = self.translated();
        }
        // What answers with an error in the place of others has room of its own.
        if text.len() > self.longest + translated.closed {
            let beyond = self.beyond(&text, &translated.owners, translated.closed);
            let size = text.len();
            let fields: log::Fields<'_> = &[("bytes", &size), ("left_out", &beyond.len())];
            log::error(
                "the objects ask for a longer config than Weir reads: the greatest namespaces are cut",
                fields,
            );
            let why = format!(
                "the config is longer than {} bytes, and this namespace has used its share",
                self.longest
            );
            let left_out = beyond.keys().map(|owner| (owner.clone(), why.clone()));
            self.change_options(|options| options.refused.extend(left_out));
            self.cut.extend(beyond);
            (translated, text) = self.translated();
            self.cut_at = text.len().saturating_sub(translated.closed);
        }
        self.owners = translated.owners;
        let statuses = translated
            .statuses
            .into_iter()
            .map(|status| (Target { kind: status.kind.as_str(), key: status.name }, status.wanted));
        let statuses: BTreeMap<Target, Arc<Value>> = statuses.collect();
        let notices = self.notices(&statuses, translated.notices);
        let objects = translated
            .objects
            .into_iter()
            .map(|(kind, name, object)| (Target { kind: kind.as_str(), key: name }, object));
        let gateways = translated.gateways.into_iter().collect();
        let wanted = Wanted { objects: objects.collect(), gateways };
        self.text = text.into();
        self.fed = Arc::new(self.memo.as_ref().map(Memo::fed).unwrap_or_default());
        let running = Arc::clone(&self.running);
        self.moved = self.left_behind(running.keys()).into_iter().collect();
        let upstreams = translated.config.upstreams.into_iter();
        let supplies = upstreams.filter_map(|(name, upstream)| Some((name, upstream.supply?))).collect();
        let files = translated.config.files;
        Output { text: Arc::clone(&self.text), files, supplies, statuses, wanted, notices }
    }

    fn adopted(&mut self) {
        self.running = Arc::clone(&self.fed);
        let running = &self.running;
        self.moved.retain(|upstream, _| running.values().any(|all| all.contains_key(upstream)));
    }

    fn moved(&mut self) -> BTreeMap<Arc<str>, Arc<Supply>> {
        if self.memo.is_none() {
            let running = Arc::clone(&self.running);
            self.moved = self.left_behind(running.keys()).into_iter().collect();
        }
        std::mem::take(&mut self.moved)
    }

    fn last_good(&self) -> Vec<Object> {
        let Some(secret) = watched(Kind::Secret.as_str()) else { return Vec::new() };
        self.cluster.last_good().filter_map(|value| Object::new(secret, value).ok()).collect()
    }

    fn unbound(&self) -> Vec<SocketAddr> {
        self.options.busy.keys().copied().collect()
    }

    fn freed(&mut self, addresses: &[SocketAddr]) {
        self.change_options(|options| options.busy.retain(|address, _| !addresses.contains(address)));
    }

    fn leave_out(&mut self, mistakes: &Mistakes) -> bool {
        let shown = mistakes.for_readers();
        let before = left_out(&self.options);
        let closed: BTreeSet<(Kind, Name)> = self.options.closed.keys().cloned().collect();
        let refused: BTreeSet<(Kind, Name)> = self.options.refused.keys().cloned().collect();
        let parts: BTreeSet<Arc<str>> = self.options.refused_parts.keys().cloned().collect();
        for mistake in shown.iter().filter(|mistake| mistake.severity == Severity::Error) {
            if let Some(address) = missing_address(&mistake.message) {
                self.options.unusable.insert(address);
                continue;
            }
            if let Some((address, why)) = busy_address(&mistake.message) {
                self.options.busy.insert(address, why);
                continue;
            }
            let Some(Blamed { thing, owner }) = self.blamed(mistake) else { continue };
            let why: String = mistake.message.chars().take(REASON).collect();
            // Its matches may stay if they are not what is wrong.
            let can_answer = thing.as_ref().is_some_and(|thing| is_behind_match(&mistake.path, thing))
                && !closed.contains(&owner);
            match (owner.0, thing) {
                // The other matches stay in any case.
                (Kind::GrpcRoute | Kind::HttpRoute, Some(thing)) => {
                    if !can_answer {
                        self.options.dropped_matches.insert(thing, owner.1.clone());
                    }
                    self.options.closed.entry(owner).or_insert(why);
                }
                // Others share the object, and use other parts of it.
                (Kind::Gateway | Kind::ListenerSet | Kind::Service, Some(thing))
                    if !mistake.path.starts_with("routes.") && !parts.contains(&thing) =>
                {
                    self.options.refused_parts.insert(thing, (owner, why));
                }
                _ if can_answer => {
                    self.options.closed.entry(owner).or_insert(why);
                }
                _ => {
                    if matches!(owner.0, Kind::Ingress | Kind::ListenerSet) && refused.contains(&owner) {
                        self.options.dropped.insert(owner.clone());
                    }
                    self.options.refused.entry(owner).or_insert(why);
                }
            }
        }
        self.forget_unless(before)
    }
}

/// How much is left out, of each sort.
fn left_out(options: &Options) -> [usize; 7] {
    let Options { refused, closed, unusable, busy, dropped, dropped_matches, refused_parts, .. } = options;
    [
        refused.len(),
        closed.len(),
        unusable.len(),
        busy.len(),
        dropped.len(),
        dropped_matches.len(),
        refused_parts.len(),
    ]
}

/// Collects the conditions of a status that say what a user has to mend. What mends itself, such as an address that has
/// yet to be assigned, is none.
fn wrong(status: &Value, found: &mut BTreeSet<Notice>) {
    match status {
        Value::Array(all) => all.iter().for_each(|value| wrong(value, found)),
        Value::Object(all) => {
            let text = |name: &str| all.get(name).and_then(Value::as_str).unwrap_or_default();
            let is_wrong = match text("type") {
                "Accepted" | "ResolvedRefs" => text("status") == "False",
                "Conflicted" | "PartiallyInvalid" => text("status") == "True",
                "Programmed" => text("reason") == "AddressNotUsable",
                _ => false,
            };
            if is_wrong {
                let (reason, message) = (text("reason").to_owned(), text("message").to_owned());
                found.insert(Notice { reason, message });
            }
            all.values().for_each(|value| wrong(value, found));
        }
        _ => {}
    }
}

#[cfg(test)]
mod incremental;

#[cfg(test)]
mod tests;
