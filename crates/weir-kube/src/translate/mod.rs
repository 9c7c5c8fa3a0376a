//! Objects become a config and statuses: [`translate`].
//!
//! ```text
//! Gateway, ListenerSet ─listeners─▶ listeners with their problems ┐
//! HTTPRoute, GRPCRoute ─attach─▶ who meets whom ─http, filters, arms─▶ routes ┤
//! TLSRoute, TCPRoute ─attach─▶ ─bytes─▶ listeners of bytes              ├─▶ Config, Vec<Status>
//! Ingress ─ingress─▶ routes                                             │
//! Service, EndpointSlice, BackendTLSPolicy ─backends, endpoints─▶ upstreams ┘
//! ```
//! All modules share a `Cx`. Iteration is over sorted maps, so equal objects give equal texts. `memo` keeps what was
//! made of routes for the next translation.

mod annotations;
mod arms;
mod attach;
mod backends;
mod bytes;
mod claims;
mod endpoints;
mod extension;
mod filters;
mod frontend;
mod http;
mod ingress;
mod layout;
mod listeners;
mod lookups;
mod memo;
mod room;
mod services;
mod sites;
mod statuses;

use crate::cluster::Cluster;
use crate::config::{Config, Thing};
use crate::objects::{GATEWAY_GROUP, Ingress, Kind, Name, Object, ServicePort};
use crate::status::{Problem, Status};
use annotations::Annotated;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use weir_config::Supply;

/// Most listeners of one Gateway, with those of its ListenerSets. The API allows 64 in each object.
pub const MAX_LISTENERS: usize = 1024;
/// Most rules of a route; the API allows 16.
pub const MAX_RULES: usize = 64;
/// Most matches of all rules of a route; the API allows 128.
pub const MAX_MATCHES: usize = 512;
/// Most endpoints of an upstream.
pub const MAX_ENDPOINTS: usize = 10_000;
/// Most hosts of a route; the API allows 16.
pub const MAX_HOSTS: usize = 64;

pub(crate) use endpoints::{Fed, Moved};
pub use memo::Memo;
pub(crate) use services::{COPIED_ANNOTATION, addresses_of};
pub use services::{MAX_PORTS, POD_PORTS, TYPES};

/// What clients of a Gateway connect to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Front {
    /// The pods, at the ports that the Gateway names. Two Gateways on one address cannot share a port.
    #[default]
    Pods,
    /// A Service that each Gateway gets, which leads to ports of the pods that `services.rs` chooses.
    Services {
        /// The Service of this installation: its endpoints are the pods.
        pods: Name,
        /// The type of a Gateway's Service, unless its `infrastructure` asks for another: one of [`TYPES`].
        kind: String,
    },
}

/// What the translation needs to know besides the objects.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Our name: GatewayClasses with this `controllerName`, and IngressClasses with this `controller`, are ours.
    pub controller: String,
    /// What clients of a Gateway connect to.
    pub front: Front,
    /// Where the listeners of each Gateway bind. A Gateway that is not here binds the first IP address in its
    /// `addresses`, or all addresses.
    pub bind: BTreeMap<Name, IpAddr>,
    /// The addresses that the status of a Gateway names, from its Service. Default: those that it binds.
    pub addresses: BTreeMap<Name, Vec<String>>,
    /// Objects that are left out, with the reason for their status: what `weir check` refused in spite of the checks
    /// here, and what is beyond the share of its namespace. So a mistake of ours costs one object, not all of them. Of
    /// HTTPRoutes, GRPCRoutes and Ingresses, matches answer with an error as far as there is room for them, and of
    /// ListenerSets hosts.
    pub refused: BTreeMap<(Kind, Name), String>,
    /// Ingresses and ListenerSets of which even the paths and hosts are left out: Weir refused what answered with an
    /// error there.
    pub dropped: BTreeSet<(Kind, Name)>,
    /// Routes that keep their matches and answer every request with an error, with the reason for their status: of
    /// these `weir check` refused something. If they were left out, the requests would take another route, which may
    /// lack the filters that protect this one.
    pub closed: BTreeMap<(Kind, Name), String>,
    /// Routes of the config that are left out, each with the name of its HTTPRoute or GRPCRoute: `weir check` refused
    /// what they match. The other routes of that object are closed.
    pub dropped_matches: BTreeMap<Arc<str>, Name>,
    /// Listeners and upstreams of the config that are left out, each with its object and the reason for statuses:
    /// `weir check` refused them. A route with such an upstream answers with an error, and what such a listener would
    /// serve is not accepted. Whatever else is made of the object stays.
    pub refused_parts: BTreeMap<Arc<str>, ((Kind, Name), String)>,
    /// Our own namespace and the port of the admin listener in its pods: no backend of another namespace may lead there.
    pub admin: Option<(String, u16)>,
    /// Where the admin API of this process listens, even if that is a loopback address: if the pods are in the network
    /// of their node, a Gateway may ask for its port.
    pub admin_address: Option<SocketAddr>,
    /// Addresses that were asked for and that no machine of ours has: nothing listens there.
    pub unusable: BTreeSet<IpAddr>,
    /// Addresses and ports where the system does not let us listen now, with the reason for statuses.
    pub busy: BTreeMap<SocketAddr, String>,
    /// The addresses that the status of an Ingress names.
    pub published: Vec<String>,
}

/// A translation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Translation {
    /// The config.
    pub config: Config,
    /// The statuses once this config is live.
    pub statuses: Vec<Status>,
    /// The object that each route, upstream and listener of the config was made for.
    pub owners: Owners,
    /// The objects that our Gateways are to have, such as their Services.
    pub objects: Vec<(Kind, Name, Value)>,
    /// What users should know besides the statuses.
    pub notices: Vec<(Kind, Name, Problem)>,
    /// All Gateways of ours with their uids: what they have already stays as long as they do.
    pub gateways: BTreeMap<Name, String>,
    /// The bytes of the config that answer with an error in the place of [`Options::refused`], at most.
    pub closed: usize,
}

/// The objects that things of a config were made for, by the things' names.
pub type Owners = BTreeMap<Arc<str>, Arc<(Kind, Name)>>;

/// The state of a translation.
pub(crate) struct Cx<'c> {
    lookups: lookups::Lookups<'c>,
    options: &'c Options,
    config: Config,
    routes: Vec<Arc<Ranked>>,
    notices: Vec<(Kind, Name, Problem)>,
    owners: Owners,
    pods: endpoints::Pods,
    /// The recorded ports of Gateways.
    records: services::Records<'c>,
    policies: backends::Policies<'c>,
    /// The Gateways that use each BackendTLSPolicy.
    used: BTreeMap<Name, BTreeSet<Name>>,
    /// The certificates that Gateways present to Services.
    identities: BTreeMap<Name, Identity>,
    ingresses: memo::Ingresses,
    room: room::Room,
}

/// Paths of a certificate and its key.
type Identity = (String, String);

/// A route of the config with its place in the order of the Gateway API. Hosts and paths come before, by Weir's table.
#[derive(Clone, Debug)]
struct Ranked {
    rank: Rank,
    name: Arc<str>,
    value: Thing,
}

/// Method, then more header fields, then more parameters, then the older object, its name, rule and match. What comes
/// last of all, such as a listener's 404, has `is_last`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    is_last: bool,
    /// Of Ingresses: `/` and what is as wide follow all other patterns.
    tier: u8,
    /// Of Ingresses: whether the namespace has the host by an alias only, since when, and the namespace. No annotation
    /// comes before it.
    claim: (bool, String, String),
    has_no_method: bool,
    headers: Reverse<usize>,
    query: Reverse<usize>,
    created: String,
    name: Name,
    rule: usize,
    matched: usize,
}

/// Translates all objects.
///
/// Pure: equal arguments give equal results. The cost is linear in objects, and in the routes that attach to a
/// Gateway times its listeners.
#[must_use]
pub fn translate(cluster: &Cluster, options: &Options) -> Translation {
    Memo::default().translate(cluster, options)
}

/// The same, with what was kept of the translation before.
fn translate_with(memo: &mut Memo, cluster: &Cluster, options: &Options) -> Translation {
    let mut cx = Cx {
        lookups: lookups::Lookups::of(cluster),
        options,
        config: Config::default(),
        routes: Vec::new(),
        notices: Vec::new(),
        owners: Owners::new(),
        pods: std::mem::take(&mut memo.pods),
        records: services::Records::read(cluster, options),
        policies: backends::Policies::of(cluster),
        used: BTreeMap::new(),
        identities: BTreeMap::new(),
        ingresses: std::mem::take(&mut memo.ingresses),
        room: room::Room::default(),
    };
    let mut gates = listeners::gather(&mut cx);
    memo.see(&gates, &cx);
    let mut statuses = Vec::new();
    http::routes(&mut cx, &mut gates, &mut memo.routes, &mut statuses);
    bytes::routes(&mut cx, &mut gates, &mut statuses);
    layout::emit(&mut cx, &gates);
    ingress::routes(&mut cx, &gates, &mut statuses);
    statuses::gateways(&cx, &gates, &mut statuses);
    let objects = gates.iter().flat_map(|gate| services::objects(&cx, gate));
    let objects: Vec<_> = objects.chain(services::record(&cx, &gates)).collect();
    // The slices of these Services are copies of those of the pods.
    let of_services = objects.iter().filter(|(kind, ..)| *kind == Kind::Service).map(|(_, name, _)| name);
    of_services.for_each(|name| cx.pods.read_whole(name));
    if let Front::Services { pods, .. } = &options.front {
        cx.pods.read_whole(pods);
    }
    let gateways = gates.iter().map(|gate| (gate.name.clone(), gate.object.meta.uid.clone())).collect();
    statuses::policies(&cx, &mut statuses);
    cx.tell_of_services();
    let Cx { mut config, mut routes, notices, owners, mut pods, ingresses, room, .. } = cx;
    routes.sort_by(|a, b| (&a.rank, &a.name).cmp(&(&b.rank, &b.name)));
    config.routes = routes.iter().map(|route| (Arc::clone(&route.name), route.value.clone())).collect();
    pods.supply(&mut config);
    (memo.pods, memo.ingresses) = (pods, ingresses);
    Translation { config, statuses, owners, objects, notices, gateways, closed: room.used() }
}

// === impl Cx ===

impl<'c> Cx<'c> {
    /// Why an object is left out, if it is.
    fn refused(&self, kind: Kind, name: &Name) -> Option<Problem> {
        let why = self.options.refused.get(&(kind, name.clone()))?;
        Some(unsupported(why))
    }

    /// Why a listener or an upstream of the config is left out, if it is.
    fn refused_part(&self, thing: &str) -> Option<Problem> {
        let (_, why) = self.options.refused_parts.get(thing)?;
        Some(unsupported(why))
    }

    /// Why all requests of a route are answered with an error, if they are.
    fn closed(&self, kind: Kind, name: &Name) -> Option<Problem> {
        let why = self.options.closed.get(&(kind, name.clone()))?;
        Some(unsupported(why))
    }

    /// Whether nothing at all is made of an object.
    fn dropped(&self, kind: Kind, name: &Name) -> bool {
        self.options.dropped.contains(&(kind, name.clone()))
    }

    /// Whether the status of an object has an entry of ours.
    fn has_entry(&self, kind: Kind, name: &Name, list: &str) -> bool {
        let entries = self.lookups.all().status(kind, name).and_then(|status| status.get(list)?.as_array());
        entries.into_iter().flatten().any(|entry| {
            entry.get("controllerName").and_then(Value::as_str) == Some(&*self.options.controller)
        })
    }

    /// The certificates that these Gateways present, each with its Gateways.
    fn identities_of(&self, gateways: &BTreeSet<Name>) -> BTreeMap<Option<Identity>, BTreeSet<Name>> {
        let mut all: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for gateway in gateways {
            let identity = self.identities.get(gateway).cloned();
            all.entry(identity).or_default().insert(gateway.clone());
        }
        all
    }

    fn own(&mut self, thing: &str, kind: Kind, name: &Name) {
        if !self.owners.contains_key(thing) {
            self.owners.insert(thing.into(), Arc::new((kind, name.clone())));
        }
    }

    /// Adds a notice to each Service that is left out: routes of other namespaces may have lost it too, and we write no
    /// statuses of Services.
    fn tell_of_services(&mut self) {
        let refused = self.options.refused.iter().filter(|((kind, _), _)| *kind == Kind::Service);
        self.notices.extend(refused.map(|((kind, name), why)| (*kind, name.clone(), unsupported(why))));
    }

    /// The endpoints of a port of a Service.
    fn pods(&mut self, service: &Name, port: &ServicePort) -> Arc<Supply> {
        self.pods.of(self.lookups.all(), self.options, service, port)
    }

    /// The annotations of an Ingress, as they were read before unless they have changed.
    fn annotated(&mut self, object: &Object<Ingress>) -> Arc<Annotated> {
        let name = object.meta.key();
        if let Some((annotated, said)) = self.ingresses.get(&name) {
            self.notices.extend(said.iter().cloned());
            return Arc::clone(annotated);
        }
        let before = self.notices.len();
        let annotated = Arc::new(Annotated::read(self, object));
        let said = self.notices.get(before..).unwrap_or_default().to_vec();
        self.ingresses.insert(name, (Arc::clone(&annotated), said));
        annotated
    }

    /// Puts what comes from now on into this, and returns what came before.
    fn swap(&mut self, out: memo::Out) -> memo::Out {
        let memo::Out { routes, upstreams, files, owners, used, looks, notices } = out;
        memo::Out {
            routes: std::mem::replace(&mut self.routes, routes),
            upstreams: std::mem::replace(&mut self.config.upstreams, upstreams),
            files: std::mem::replace(&mut self.config.files, files),
            owners: std::mem::replace(&mut self.owners, owners),
            used: std::mem::replace(&mut self.used, used),
            looks: self.lookups.swap(looks),
            notices: std::mem::replace(&mut self.notices, notices),
        }
    }

    /// Adds what a part has made. Of two things of one name the first counts: they are equal.
    fn add(&mut self, part: &memo::Out) {
        self.routes.extend(part.routes.iter().cloned());
        self.notices.extend(part.notices.iter().cloned());
        for (name, upstream) in &part.upstreams {
            self.config.upstreams.entry(Arc::clone(name)).or_insert_with(|| upstream.clone());
        }
        for (name, content) in &part.files {
            self.config.files.entry(name.clone()).or_insert_with(|| content.clone());
        }
        for (thing, owner) in &part.owners {
            self.owners.entry(Arc::clone(thing)).or_insert_with(|| Arc::clone(owner));
        }
        for (policy, gateways) in &part.used {
            self.used.entry(policy.clone()).or_default().extend(gateways.iter().cloned());
        }
    }

    /// Whether a reference into another namespace is granted there.
    fn granted(&self, from: (Kind, &str), to: (Kind, &Name)) -> bool {
        let (kind, namespace) = from;
        let (to_kind, target) = to;
        if namespace == target.namespace {
            return true;
        }
        self.lookups.grants(&target.namespace).any(|grant| {
            let lets_from = grant.spec.from.iter().any(|from| {
                from.group == kind.group() && from.kind == kind.as_str() && from.namespace == namespace
            });
            let lets_to = grant.spec.to.iter().any(|to| {
                to.group == to_kind.group()
                    && to.kind == to_kind.as_str()
                    && to.name.as_ref().is_none_or(|name| *name == target.name)
            });
            lets_from && lets_to
        })
    }

    fn push(&mut self, rank: Rank, name: String, value: Value, owner: (Kind, &Name)) {
        self.own(&name, owner.0, owner.1);
        self.routes.push(Arc::new(Ranked { rank, name: name.into(), value: value.into() }));
    }
}

// === impl Ranked ===

impl Ranked {
    /// The bytes that it takes in a config.
    fn bytes(&self) -> usize {
        /// Quotes, a colon, and what stands between lines.
        const AROUND: usize = 12;
        self.name.len() + self.value.text().len() + AROUND
    }
}

// === impl Rank ===

impl Rank {
    fn last() -> Self {
        Self { is_last: true, ..Self::default() }
    }
}

fn unsupported(message: impl Into<String>) -> Problem {
    Problem::new("UnsupportedValue", message)
}

/// An answer of our own. Clients learn nothing of the cluster.
fn answer(status: u16) -> Value {
    json!({ "status": status })
}

/// Whether a group and a kind of a reference are this kind, where an absent one is `default`.
fn is_kind(group: Option<&str>, kind: Option<&str>, default: Kind, wanted: Kind) -> bool {
    group.unwrap_or(default.group()) == wanted.group() && kind.unwrap_or(default.as_str()) == wanted.as_str()
}

/// The kinds of routes, and whether a group and a kind are one of them.
fn route_kind(group: Option<&str>, kind: &str) -> Option<Kind> {
    let kinds = [Kind::GrpcRoute, Kind::HttpRoute, Kind::TcpRoute, Kind::TlsRoute];
    kinds.into_iter().find(|known| group.unwrap_or(GATEWAY_GROUP) == known.group() && kind == known.as_str())
}

/// The namespaces that a selector takes: by their labels.
fn selects(selector: &crate::objects::Selector, labels: &BTreeMap<String, String>) -> bool {
    selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().all(|expression| {
            let value = labels.get(&expression.key);
            let is_in = || value.is_some_and(|value| expression.values.contains(value));
            match expression.operator.as_str() {
                "DoesNotExist" => value.is_none(),
                "Exists" => value.is_some(),
                "In" => is_in(),
                "NotIn" => !is_in(),
                _ => false,
            }
        })
}

/// The hosts of each route of Weir that a place needs: one route for all named hosts, and one for any host, which the
/// set has as an empty text. A route of Weir serves any host only if it names none.
fn groups(hosts: &BTreeSet<String>) -> Vec<Vec<&str>> {
    let named: Vec<&str> = hosts.iter().map(String::as_str).filter(|host| !host.is_empty()).collect();
    let any = hosts.contains("").then(Vec::new);
    (!named.is_empty()).then_some(named).into_iter().chain(any).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_those_of_kubernetes() {
        let labels: BTreeMap<String, String> = [("team".to_owned(), "a".to_owned())].into();
        let is_selected = |selector: Value| selects(&serde_json::from_value(selector).unwrap(), &labels);
        for (key, operator, values, expected) in [
            ("team", "In", &["a", "b"][..], true),
            ("team", "In", &["b"], false),
            ("other", "In", &["a"], false),
            ("team", "NotIn", &["b"], true),
            ("team", "NotIn", &["a", "b"], false),
            ("other", "NotIn", &["a"], true),
            ("team", "Exists", &[], true),
            ("other", "Exists", &[], false),
            ("team", "DoesNotExist", &[], false),
            ("other", "DoesNotExist", &[], true),
            // Of a later version.
            ("team", "StartsWith", &["a"], false),
        ] {
            let expression = json!({ "key": key, "operator": operator, "values": values });
            let selector = json!({ "matchLabels": { "team": "a" }, "matchExpressions": [expression] });
            assert_eq!(is_selected(selector), expected, "{expression}");
        }
        assert!(is_selected(json!({})));
        assert!(!is_selected(json!({ "matchLabels": { "team": "b" } })));
        let twice = ["In", "NotIn"].map(|is| json!({ "key": "team", "operator": is, "values": ["a"] }));
        assert!(!is_selected(json!({ "matchExpressions": twice })), "all have to hold");
    }
}
