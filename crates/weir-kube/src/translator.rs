//! The translation as the controller calls it: keeps the objects, and leaves out those whose part of the config Weir
//! refuses.

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
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use weir_config::{Diagnostic, Mistakes, Severity, Supply};
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

    /// The thing that a path of a diagnostic names, such as `routes.NAME.match.path`, and its object.
    fn thing(&self, path: &str) -> Option<Blamed> {
        let (_, rest) = path.split_once('.')?;
        // Names may have dots, so the longest that fits is meant.
        let ends = rest.match_indices(['.', ':', '[', ' ']).map(|(at, _)| at).chain([rest.len()]);
        ends.rev().find_map(|end| self.named(rest.get(..end)?))
    }

    /// The thing that stands on a line of the config, and its object.
    fn on_line(&self, number: u32) -> Option<Blamed> {
        let before = usize::try_from(number).ok()?.checked_sub(1)?;
        self.named(thing_of(self.text.lines().nth(before)?)?)
    }

    fn named(&self, thing: &str) -> Option<Blamed> {
        let (thing, owner) = self.owners.get_key_value(thing)?;
        Some(Blamed { thing: Some(Arc::clone(thing)), owner: (**owner).clone() })
    }

    /// Who is to blame for a mistake, if anybody is: one tenant's text must not keep the config of all from running.
    fn blamed(&self, mistake: &Diagnostic) -> Option<Blamed> {
        let by_place = || match (mistake.code, &mistake.place) {
            _ if !mistake.path.is_empty() => None,
            ("too-large", _) => Some(Blamed { thing: None, owner: self.greatest()?.clone() }),
            (_, place) => self.on_line(place.as_ref()?.line),
        };
        // What the system refuses has its place in the message.
        let by_message = || self.thing(Some(&mistake.message).filter(|text| text.starts_with("listeners."))?);
        self.thing(&mistake.path).or_else(by_message).or_else(by_place)
    }

    /// The objects of namespaces whose part of a text is greater than their share, with their bytes. `closed` of the text
    /// has room of its own. What no object owns comes first, such as the operator's own sections.
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

    /// Who has most of a config that is too large: of the namespace with the most text, the longest object.
    fn greatest(&self) -> Option<&(Kind, Name)> {
        let mut of_object = sizes(&self.text, &self.owners);
        of_object.retain(|owner, _| !self.options.refused.contains_key(*owner));
        let mut of_namespace: BTreeMap<&str, usize> = BTreeMap::new();
        for (owner, size) in &of_object {
            *of_namespace.entry(&owner.1.namespace).or_default() += *size;
        }
        let (namespace, _) = of_namespace.into_iter().max_by_key(|(_, size)| *size)?;
        let its = of_object.into_iter().filter(|((_, name), _)| name.namespace == namespace);
        its.max_by_key(|(_, size)| *size).map(|(owner, _)| owner)
    }

    /// Changes what is left out, and forgets what was made with another list.
    fn change_options(&mut self, change: impl FnOnce(&mut Options)) {
        let before = left_out(&self.options);
        change(&mut self.options);
        if left_out(&self.options) != before
            && let Some(memo) = &mut self.memo
        {
            memo.clear();
        }
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
    /// If the last translation has panicked, this is the case of all that runs.
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
            let is_elsewhere = |(_, left_out): &(Kind, Name)| left_out.namespace != name.namespace;
            let is_left_out = |options: &Options| {
                !options.refused.keys().all(is_elsewhere)
                    || !options.closed.keys().all(is_elsewhere)
                    || !options.dropped.iter().all(is_elsewhere)
                    || options.dropped_matches.values().any(|route| route.namespace == name.namespace)
                    || !options.refused_parts.values().all(|(owner, _)| is_elsewhere(owner))
            };
            if kind == Kind::EndpointSlice && !is_left_out(&self.options) {
                let services = service.into_iter().chain(self.cluster.service_of(kind, &name));
                return self.slices_changed(&services.collect::<Vec<_>>());
            }
            if let Some(memo) = &mut self.memo {
                memo.changed(&self.options, kind, &name);
            }
            self.change_options(|options| {
                options.refused.retain(|left_out, _| is_elsewhere(left_out));
                options.closed.retain(|left_out, _| is_elsewhere(left_out));
                options.dropped.retain(is_elsewhere);
                options.dropped_matches.retain(|_, route| route.namespace != name.namespace);
                options.refused_parts.retain(|_, (owner, _)| is_elsewhere(owner));
            });
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
        let is_changed = left_out(&self.options) != before;
        // With nothing else left out, the memo stays: endpoints must still move in the config that runs.
        if is_changed && let Some(memo) = &mut self.memo {
            memo.clear();
        }
        is_changed
    }
}

/// Who is to blame for a mistake.
struct Blamed {
    /// The thing of the config, unless all that was made of the object is meant.
    thing: Option<Arc<str>>,
    owner: (Kind, Name),
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

/// Whether a path of a diagnostic is of this route of the config, but not of what it matches.
fn is_behind_match(path: &str, route: &str) -> bool {
    let rest = path.strip_prefix("routes.").and_then(|path| path.strip_prefix(route));
    let keys = [".filters", ".upstream", ".respond", ".timeouts"];
    rest.is_some_and(|rest| keys.iter().any(|key| rest.starts_with(key)))
}

/// The address that no interface of this machine has, if that is why it cannot be listened on.
fn missing_address(message: &str) -> Option<IpAddr> {
    let message = message.strip_prefix("listeners.")?;
    let (address, why) = message.split_once("cannot listen on ")?.1.split_once(": ")?;
    let is_missing = why.contains("(os error 99)"); // EADDRNOTAVAIL on Linux
    address.parse::<SocketAddr>().ok().filter(|_| is_missing).map(|address| address.ip())
}

/// The address where the system does not let us listen, and why, if that is what a message says. Whose socket it is
/// concerns no tenant.
fn busy_address(message: &str) -> Option<(SocketAddr, String)> {
    let (_, said) = message.strip_prefix("listeners.")?.split_once(": ")?;
    let address = |text: &str| text.parse::<SocketAddr>().ok();
    if let Some((taken, _)) = said.split_once(" is taken by ") {
        let taken = address(taken)?;
        return Some((taken, format!("another process listens on {taken}")));
    }
    let (refused, why) = said.strip_prefix("cannot listen on ")?.split_once(": ")?;
    let refused = address(refused)?;
    Some((refused, format!("cannot listen on {refused}: {why}").chars().take(REASON).collect()))
}

/// How many bytes of a config each object has.
fn sizes<'a>(text: &str, owners: &'a Owners) -> BTreeMap<&'a (Kind, Name), usize> {
    let mut all: BTreeMap<_, usize> = BTreeMap::new();
    for line in text.lines() {
        if let Some(owner) = thing_of(line).and_then(|name| owners.get(name)) {
            *all.entry(&**owner).or_default() += line.len();
        }
    }
    all
}

/// The name of the thing that stands on a line of a config.
fn thing_of(line: &str) -> Option<&str> {
    Some(line.trim_start().strip_prefix('"')?.split_once("\":")?.0)
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
mod tests {
    use super::*;
    use serde_json::json;
    use weir_config::Diagnostics;

    fn put(translator: &mut GatewayApi, kind: &'static str, version: &str, mut object: Value) -> Effect {
        object["metadata"]["uid"] = json!("u");
        object["metadata"]["resourceVersion"] = json!(version);
        let resource = watched(kind).unwrap();
        let object = Object::new(resource, object).unwrap();
        translator.change(&store::Change { kind, key: object.key.clone(), object: Some(object) })
    }

    fn route(status: Value) -> Value {
        json!({
            "metadata": { "namespace": "a", "name": "r.x" }, "status": status,
            "spec": { "parentRefs": [ { "name": "gw" } ], "rules": [ {} ] },
        })
    }

    fn translator() -> GatewayApi {
        let options = Options { controller: "us".to_owned(), ..Options::default() };
        let mut translator = GatewayApi::new(options, Map::new());
        let class = json!({ "metadata": { "name": "weir" }, "spec": { "controllerName": "us" } });
        put(&mut translator, "GatewayClass", "1", class);
        let gateway = json!({
            "metadata": { "namespace": "a", "name": "gw" },
            "spec": { "gatewayClassName": "weir", "listeners": [ { "name": "http", "port": 80, "protocol": "HTTP" } ] },
        });
        put(&mut translator, "Gateway", "1", gateway);
        assert_eq!(put(&mut translator, "HTTPRoute", "1", route(json!({}))), Effect::Config);
        translator
    }

    #[test]
    fn a_status_alone_changes_nothing() {
        let mut translator = translator();
        assert_eq!(put(&mut translator, "HTTPRoute", "2", route(json!({ "parents": [] }))), Effect::Nothing);
    }

    /// Of a route whose filters are refused, the requests must not take another route.
    #[test]
    fn a_route_with_refused_filters_answers_with_an_error() {
        let mut translator = translator();
        let name = "http_a_r.x_0_0_gw_a_gw_80";
        assert!(translator.translate().text.contains(name));
        let refuse = |translator: &mut GatewayApi| {
            let mut found = Diagnostics::default();
            for key in ["filters[0].headers", "upstream"] {
                let mut wrong = Diagnostic::error("filter-setting", "no");
                wrong.path = format!("routes.{name}.{key}");
                found.push(wrong);
            }
            translator.leave_out(&Mistakes::from(found))
        };
        assert!(refuse(&mut translator));
        let output = translator.translate();
        let line = output.text.lines().find(|line| line.contains(name)).unwrap();
        assert!(line.contains("\"respond\":{\"status\":500}"), "{line}");
        let target = Target { kind: "HTTPRoute", key: Name::new("a", "r.x") };
        assert_eq!(output.statuses[&target]["parents"][0]["conditions"][0]["reason"], "UnsupportedValue");
        // If that does not help, nothing of it stays.
        assert!(refuse(&mut translator));
        assert!(!translator.translate().text.contains(name));
    }

    /// A mistake with the path of a setting.
    fn mistake(path: &str) -> Mistakes {
        let mut wrong = Diagnostic::error("file", "it holds no authority");
        wrong.path = path.to_owned();
        Mistakes::from(wrong)
    }

    /// Of a listener with an authority that Weir refuses, neither the Gateway nor its other listeners are left out.
    #[test]
    fn a_listener_that_is_refused_costs_no_other() {
        let mut translator = translator();
        let listener = |name: &str, port: u16| json!({ "name": name, "port": port, "protocol": "HTTP" });
        let gateway = |label: &str| {
            json!({
                "metadata": { "namespace": "a", "name": "gw" },
                "spec": {
                    "gatewayClassName": "weir", "infrastructure": { "labels": { "a": label } },
                    "listeners": [listener("good", 80), listener("bad", 81)],
                },
            })
        };
        put(&mut translator, "Gateway", "2", gateway("1"));
        let served = |translator: &mut GatewayApi| {
            let text = translator.translate().text;
            ["\"gw_a_gw_80\"", "\"gw_a_gw_81\""].map(|listener| text.contains(listener))
        };
        assert_eq!(served(&mut translator), [true, true]);
        let refused = mistake("listeners.gw_a_gw_81.tls.client_auth.ca");
        assert!(translator.leave_out(&refused));
        assert_eq!(served(&mut translator), [true, false]);
        let output = translator.translate();
        let status = &output.statuses[&Target { kind: "Gateway", key: Name::new("a", "gw") }];
        assert_eq!(status["conditions"][0]["status"], "True", "{status}");
        let accepted = |at: usize| &status["listeners"][at]["conditions"][0];
        assert_eq!(accepted(0)["status"], "True");
        assert_eq!(
            (&accepted(1)["status"], &accepted(1)["message"]),
            (&json!("False"), &json!("it holds no authority"))
        );
        assert!(!translator.leave_out(&refused), "nothing new");
        put(&mut translator, "Gateway", "3", gateway("2"));
        assert_eq!(served(&mut translator), [true, true]);
    }

    /// If Weir refuses even the closed hosts of a ListenerSet that is left out, these are left out too.
    #[test]
    fn closed_hosts_that_are_refused_are_left_out() {
        let mut translator = translator();
        let listener = |name: &str, host: Option<&str>| json!({ "name": name, "port": 80, "protocol": "HTTP", "hostname": host });
        let meta = |name: &str| json!({ "namespace": "a", "name": name });
        let spec = json!({
            "gatewayClassName": "weir", "listeners": [listener("any", None)],
            "allowedListeners": { "namespaces": { "from": "Same" } },
        });
        put(&mut translator, "Gateway", "2", json!({ "metadata": meta("gw"), "spec": spec }));
        let spec = json!({ "parentRef": { "name": "gw" }, "listeners": [listener("own", Some("own.test"))] });
        put(&mut translator, "ListenerSet", "1", json!({ "metadata": meta("set"), "spec": spec }));
        translator.translate();
        let set = (Kind::ListenerSet, Name::new("a", "set"));
        translator.change_options(|options| drop(options.refused.insert(set, "it is too much".to_owned())));
        let closed = |translator: &mut GatewayApi| {
            let text = translator.translate().text;
            let line = text.lines().find(|line| line.contains("\"host_") && line.contains("500"));
            line.and_then(thing_of).map(str::to_owned)
        };
        let name = closed(&mut translator).unwrap();
        assert!(translator.leave_out(&mistake(&format!("routes.{name}.match.hosts[0]"))));
        assert_eq!(closed(&mut translator), None);
    }

    /// Of a Service with an upstream that Weir refuses, the other upstreams stay, and whoever uses it is told.
    #[test]
    fn an_upstream_that_is_refused_costs_no_other() {
        let mut translator = translator();
        let meta = |name: &str| json!({ "namespace": "a", "name": name });
        let ports = json!([{ "name": "web", "port": 80 }, { "name": "db", "port": 81 }]);
        put(&mut translator, "Service", "1", json!({ "metadata": meta("s"), "spec": { "ports": ports } }));
        let mut slice = json!({
            "metadata": meta("s-1"), "addressType": "IPv4", "endpoints": [{ "addresses": ["10.0.0.1"] }],
            "ports": [{ "name": "web", "port": 80 }, { "name": "db", "port": 81 }],
        });
        slice["metadata"]["labels"] = json!({ "kubernetes.io/service-name": "s" });
        put(&mut translator, "EndpointSlice", "1", slice);
        let listeners = json!([
            { "name": "http", "port": 80, "protocol": "HTTP" }, { "name": "tcp", "port": 82, "protocol": "TCP" },
        ]);
        let spec = json!({ "gatewayClassName": "weir", "listeners": listeners });
        put(&mut translator, "Gateway", "2", json!({ "metadata": meta("gw"), "spec": spec }));
        let route = |section: &str, port: u16| {
            json!({
                "parentRefs": [{ "name": "gw", "sectionName": section }],
                "rules": [{ "backendRefs": [{ "name": "s", "port": port }] }],
            })
        };
        put(&mut translator, "HTTPRoute", "2", json!({ "metadata": meta("web"), "spec": route("http", 80) }));
        put(&mut translator, "TCPRoute", "1", json!({ "metadata": meta("db"), "spec": route("tcp", 81) }));
        let upstreams = ["svc_a_s_80", "svc_a_s_81_tcp"];
        let there = |output: &Output| upstreams.map(|name| output.supplies.contains_key(name));
        let reason = |output: &Output, kind: &'static str, name: &str| {
            let status = &output.statuses[&Target { kind, key: Name::new("a", name) }];
            status["parents"][0]["conditions"][1]["reason"].as_str().unwrap().to_owned()
        };
        assert_eq!(there(&translator.translate()), [true, true]);
        assert!(translator.leave_out(&mistake("upstreams.svc_a_s_81_tcp.tls.ca")));
        let output = translator.translate();
        assert_eq!(there(&output), [true, false]);
        assert_eq!(reason(&output, "HTTPRoute", "web"), "ResolvedRefs");
        assert_eq!(reason(&output, "TCPRoute", "db"), "BackendNotFound");
        // It may be better once an object of its namespace has changed.
        put(&mut translator, "TCPRoute", "2", json!({ "metadata": meta("db"), "spec": route("tcp", 80) }));
        put(&mut translator, "TCPRoute", "3", json!({ "metadata": meta("db"), "spec": route("tcp", 81) }));
        assert_eq!(there(&translator.translate()), [true, true]);
    }

    /// Where the system does not let us listen, one listener is left out until the address is free.
    #[test]
    fn an_address_that_is_taken_is_left_out_until_it_is_free() {
        let mut translator = translator();
        let listener = "\"gw_a_gw_80\"";
        assert!(translator.translate().text.contains(listener));
        let refuse = |translator: &mut GatewayApi, message: &str| {
            translator.leave_out(&Mistakes::from(Diagnostic::error("system", message.to_owned())))
        };
        let taken = "listeners.gw_a_gw_80: 0.0.0.0:80 is taken by process 7";
        assert!(refuse(&mut translator, taken));
        let output = translator.translate();
        assert!(!output.text.contains(listener), "{}", output.text);
        let target = Target { kind: "Gateway", key: Name::new("a", "gw") };
        let told = output.statuses[&target]["listeners"].to_string();
        assert!(
            told.contains("another process listens on 0.0.0.0:80") && !told.contains("process 7"),
            "{told}"
        );
        assert!(!refuse(&mut translator, taken), "nothing new");
        let address = SocketAddr::from(([0, 0, 0, 0], 80));
        assert_eq!(translator.unbound(), [address]);
        translator.freed(&[address]);
        assert!(translator.translate().text.contains(listener));
        assert_eq!(translator.unbound(), []);
        let denied = "listeners.gw_a_gw_80: cannot listen on 0.0.0.0:80: Permission denied (os error 13)";
        assert!(refuse(&mut translator, denied));
        assert!(!refuse(&mut translator, "access_log: no space left on device"), "it is nobody's");
    }

    #[test]
    fn endpoints_that_move_translate_nothing() {
        let mut translator = translator();
        let slice = |service: &str, addresses: &[&str]| {
            json!({
                "metadata": {
                    "namespace": "a", "name": "x", "labels": { "kubernetes.io/service-name": service },
                },
                "addressType": "IPv4", "endpoints": [{ "addresses": addresses }], "ports": [{ "port": 80 }],
            })
        };
        for name in ["used", "other"] {
            let meta = json!({ "namespace": "a", "name": name });
            put(
                &mut translator,
                "Service",
                "1",
                json!({ "metadata": meta, "spec": { "ports": [{ "port": 80 }] } }),
            );
        }
        let mut routed = route(json!({}));
        routed["spec"]["rules"] = json!([{ "backendRefs": [{ "name": "used", "port": 80 }] }]);
        put(&mut translator, "HTTPRoute", "2", routed.clone());
        let first = put(&mut translator, "EndpointSlice", "1", slice("other", &["10.0.0.1"]));
        assert_eq!(first, Effect::Config, "nothing was translated yet");
        let mut known = translator.translate().supplies;
        // A refused config that is nobody's fault keeps no endpoint from moving.
        assert!(!translator.leave_out(&Mistakes::from(Diagnostic::error("files", "the disk is full"))));
        for (version, service, address, expected) in [
            ("2", "other", "10.0.0.2", Effect::Nothing),
            ("3", "used", "10.0.0.3", Effect::Config),
            ("4", "used", "10.0.0.4", Effect::Endpoints),
            ("5", "other", "10.0.0.5", Effect::Config),
            ("6", "other", "10.0.0.6", Effect::Nothing),
        ] {
            let effect = put(&mut translator, "EndpointSlice", version, slice(service, &[address]));
            assert_eq!(effect, expected, "{address}");
            match effect {
                Effect::Config => known = translator.translate().supplies,
                _ => known.extend(translator.moved()),
            }
            let there = format!("{known:?}").contains(address);
            assert_eq!(there, service == "used", "{address}: {known:?}");
        }
        assert!(translator.moved().is_empty());

        // A config without the upstream is refused: in the one that runs, its endpoints go on moving, down to none.
        let upstream = "svc_a_used_80";
        put(&mut translator, "EndpointSlice", "7", slice("used", &["10.0.0.7"]));
        assert!(translator.translate().supplies.contains_key(upstream));
        translator.adopted();
        put(&mut translator, "HTTPRoute", "3", route(json!({})));
        assert!(!translator.translate().supplies.contains_key(upstream));
        assert!(!translator.leave_out(&Mistakes::from(Diagnostic::error("files", "the disk is full"))));
        for (version, addresses, effect, expected) in [
            ("8", &["10.0.0.8"][..], Effect::Endpoints, "10.0.0.8"),
            ("9", &[], Effect::Config, "endpoints: []"),
            ("10", &["10.0.0.10"], Effect::Endpoints, "10.0.0.10"),
        ] {
            let told = put(&mut translator, "EndpointSlice", version, slice("used", addresses));
            assert_eq!(told, effect, "{addresses:?}");
            if told == Effect::Config {
                translator.translate();
            }
            let moved = format!("{:?}", translator.moved().get(upstream));
            assert!(moved.contains(expected), "{addresses:?}: {moved}");
        }
        // Once it no longer runs, nobody needs them.
        translator.translate();
        translator.adopted();
        let effect = put(&mut translator, "EndpointSlice", "11", slice("used", &["10.0.0.11"]));
        assert_eq!((effect, translator.moved().len()), (Effect::Nothing, 0));

        // If a translation panics, nothing is kept, and the endpoints of what runs go on moving.
        put(&mut translator, "HTTPRoute", "4", routed);
        assert!(translator.translate().supplies.contains_key(upstream));
        translator.adopted();
        translator.memo = None;
        for (version, addresses, expected) in [
            ("12", &["10.0.0.12"][..], "10.0.0.12"),
            ("13", &[], "endpoints: []"),
            ("14", &["10.0.0.14"], "10.0.0.14"),
        ] {
            let told = put(&mut translator, "EndpointSlice", version, slice("used", addresses));
            assert_eq!(told, Effect::Config, "{addresses:?}");
            let moved = format!("{:?}", translator.moved().get(upstream));
            assert!(moved.contains(expected), "{addresses:?}: {moved}");
        }
        // The Service is still known, but no upstream of a route that is gone gets its endpoints.
        translator.translate();
        translator.adopted();
        put(&mut translator, "HTTPRoute", "5", route(json!({})));
        translator.translate();
        translator.adopted();
        let effect = put(&mut translator, "EndpointSlice", "15", slice("used", &["10.0.0.15"]));
        assert_eq!((effect, translator.moved().len()), (Effect::Nothing, 0));
    }

    /// Objects above the share of their namespace come back when another namespace asks for less.
    #[test]
    fn shares_are_worked_out_again_when_others_shrink() {
        let mut translator = translator();
        let put_route = |translator: &mut GatewayApi, version: &str, namespace: &str, paths: usize| {
            let value = |at: usize| json!({ "path": { "value": format!("/{namespace}/{at:0>40}") } });
            let mut object = route(json!({}));
            object["metadata"] = json!({ "namespace": namespace, "name": "r" });
            object["spec"]["parentRefs"] = json!([{ "name": "gw", "namespace": "a" }]);
            object["spec"]["rules"] = json!([{ "matches": (0..paths).map(value).collect::<Vec<_>>() }]);
            put(translator, "HTTPRoute", version, object);
        };
        let listener = json!({
            "name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": { "namespaces": { "from": "All" } },
        });
        let gateway = json!({
            "metadata": { "namespace": "a", "name": "gw" },
            "spec": { "gatewayClassName": "weir", "listeners": [ listener ] },
        });
        put(&mut translator, "Gateway", "2", gateway);
        put_route(&mut translator, "1", "b", 40);
        let alone = translator.translate().text.len();
        let has_b = |output: &Output| {
            let status = &output.statuses[&Target { kind: "HTTPRoute", key: Name::new("b", "r") }];
            status["parents"][0]["conditions"][0]["status"] == "True"
        };
        translator.longest = alone + 10;
        put_route(&mut translator, "2", "c", 15);
        let cut = translator.translate();
        assert!(!has_b(&cut) && cut.text.contains("/c/"), "c asks for less");
        put_route(&mut translator, "3", "c", 14);
        assert!(!has_b(&translator.translate()));
        assert!(!translator.cut.is_empty());
        translator.change(&store::Change { kind: "HTTPRoute", key: Name::new("c", "r"), object: None });
        assert!(has_b(&translator.translate()), "there is room again");
        assert!(translator.cut.is_empty());
    }

    /// What no object owns counts as well: a config that is cut fits at once.
    #[test]
    fn shares_leave_room_for_the_operators_own_sections() {
        let mut translator = translator();
        translator.rest.insert("log".to_owned(), json!({ "output": "x".repeat(5_000) }));
        for (version, name) in [("1", "one"), ("2", "two"), ("3", "three")] {
            let mut object = route(json!({}));
            object["metadata"] = json!({ "namespace": "a", "name": name });
            object["spec"]["rules"] =
                json!([{ "matches": [{ "path": { "value": format!("/{}", "p".repeat(900)) } }] }]);
            put(&mut translator, "HTTPRoute", version, object);
        }
        let whole = translator.translate().text.len();
        translator.longest = whole - 100;
        translator.translate();
        assert_eq!(translator.cut.len(), 1, "one route is enough");
        let (cut, text) = (translator.cut.clone(), translator.text.len());
        translator.translate();
        assert_eq!((translator.cut, translator.text.len()), (cut, text));
    }

    #[test]
    fn who_is_to_blame_is_left_out_until_it_changes() {
        let mut translator = translator();
        let name = "http_a_r.x_0_0_gw_a_gw_80";
        assert!(translator.translate().text.contains(name));
        let mut wrong = Diagnostic::error("bad-pattern", "no");
        wrong.path = format!("routes.{name}.match.path");
        let mut found = Diagnostics::default();
        found.push(wrong);
        let mistakes = Mistakes::from(found);
        assert!(translator.leave_out(&mistakes));
        assert!(!translator.leave_out(&mistakes), "nothing new");
        let output = translator.translate();
        assert!(!output.text.contains(name));
        let target = Target { kind: "HTTPRoute", key: Name::new("a", "r.x") };
        assert_eq!(output.statuses[&target]["parents"][0]["conditions"][0]["reason"], "UnsupportedValue");
        // Another route of the same name in another namespace is not touched, and a new version has its chance.
        let mut changed = route(json!({}));
        changed["spec"]["hostnames"] = json!(["a.test"]);
        assert_eq!(put(&mut translator, "HTTPRoute", "3", changed), Effect::Config);
        assert!(translator.translate().text.contains(name));
    }
}
