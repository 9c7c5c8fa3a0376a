//! What one translation keeps for the next, so that a change of one route among thousands does not cost a translation
//! of all.
//!
//! What an HTTPRoute or GRPCRoute becomes depends on the route itself, and on Gateways, Services and whatever else it
//! refers to. [`Memo`] keeps what was made of each until one of these changes:
//!
//! - Services, grants, policies, namespaces, filters and authorities: routes see them through
//!   [`Lookups`](super::lookups::Lookups) only, which records each look, so that a change costs the routes that have
//!   looked, whether or not the object was there. Grants and policies count by namespace.
//! - Gateways, ListenerSets and the Secrets with their certificates, and the record of ports: they are read anew each
//!   time, and [`Seen`] is all that routes learn of the result. What was made of routes is forgotten if that differs.
//! - Of everything else, such as the Services of our own namespace, nothing tracks who depends on it. A change forgets
//!   everything.
//!
//! Routes do depend on each other in one way: of an HTTPRoute and a GRPCRoute for one host of a listener, the older has
//! it. So what was made of a route comes with the questions that it asked of [`Claims`](super::claims::Claims), and is
//! made again if one of them has another answer now.

use super::annotations::Annotated;
use super::attach::{Asked, count};
use super::endpoints::{Fed, Moved, Pods, is_own};
use super::listeners::{Gate, Seen};
use super::lookups::{Look, changed_by};
use super::services::is_record;
use super::{Cx, Options, Owners, Ranked, Translation, translate_with, unsupported};
use crate::cluster::Cluster;
use crate::config::Upstream;
use crate::objects::{Kind, Name};
use crate::status::{Problem, Status};
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;
use weir_config::Supply;

/// What is kept between translations of one cluster.
#[derive(Debug, Default)]
pub struct Memo {
    pub(super) routes: Routes,
    pub(super) pods: Pods,
    pub(super) ingresses: Ingresses,
    /// What routes saw of the Gateways.
    seen: Vec<Seen>,
}

/// The annotations of each Ingress, with what users are told of them.
pub(super) type Ingresses = BTreeMap<Name, (Arc<Annotated>, Vec<(Kind, Name, Problem)>)>;

/// What was made of each route.
#[derive(Debug, Default)]
pub(super) struct Routes {
    http: BTreeMap<Name, Made>,
    grpc: BTreeMap<Name, Made>,
    /// How many were made so far, also in translations before.
    count: usize,
}

/// What was made of a route.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) out: Out,
    /// What answers with an error in its place, if it is left out, as far as there is room for it.
    pub(super) closed: Vec<Arc<Ranked>>,
    pub(super) asked: Vec<Asked>,
    /// The listeners that it attached to: Gateway, listener, hosts. None if it is not accepted.
    pub(super) listeners: Vec<(usize, usize, Vec<String>)>,
    /// Whether a parent is ours, so that its status is.
    pub(super) is_attached: bool,
    pub(super) status: Status,
}

/// What a part of a translation adds to the whole.
#[derive(Debug, Default)]
pub(super) struct Out {
    pub(super) routes: Vec<Arc<Ranked>>,
    pub(super) upstreams: BTreeMap<Arc<str>, Upstream>,
    pub(super) files: BTreeMap<String, Vec<u8>>,
    pub(super) owners: Owners,
    pub(super) used: BTreeMap<Name, BTreeSet<Name>>,
    /// The objects that were looked at.
    pub(super) looks: BTreeSet<Look>,
    pub(super) notices: Vec<(Kind, Name, Problem)>,
}

// === impl Memo ===

impl Memo {
    /// Translates all objects, of which only those that have changed cost much. The result is that of
    /// [`translate`](super::translate), if each change was told to [`Self::changed`] or `slices_changed`.
    pub fn translate(&mut self, cluster: &Cluster, options: &Options) -> Translation {
        translate_with(self, cluster, options)
    }

    /// An object has changed. Of an EndpointSlice, `slices_changed` keeps more.
    pub fn changed(&mut self, options: &Options, kind: Kind, name: &Name) {
        match kind {
            Kind::HttpRoute => drop(self.routes.http.remove(name)),
            Kind::GrpcRoute => drop(self.routes.grpc.remove(name)),
            Kind::Ingress => drop(self.ingresses.remove(name)),
            // No route of HTTP depends on these, and nothing is kept of them.
            Kind::IngressClass | Kind::TcpRoute | Kind::TlsRoute => {}
            // Routes depend on these by what they see of the Gateways.
            Kind::Gateway | Kind::GatewayClass | Kind::ListenerSet | Kind::Secret => {}
            Kind::ConfigMap if is_record(options, name) => {}
            // Which addresses lead to an admin listener depends on all Services of its namespace.
            Kind::Service if is_own(options, name) => self.clear(),
            _ => match changed_by(kind, name) {
                Some(look) => {
                    self.routes.forget(&look);
                    if kind == Kind::Service {
                        self.pods.forget(name);
                    }
                }
                None => self.clear(),
            },
        }
    }

    /// Forgets what was made of routes if they see something else of the Gateways now.
    pub(super) fn see(&mut self, gates: &[Gate<'_>], cx: &Cx<'_>) {
        let now: Vec<Seen> = gates.iter().map(|gate| gate.seen(cx)).collect();
        if self.seen != now {
            self.routes.forget_all();
            self.seen = now;
        }
    }

    /// How many routes were made so far by translations. Those that were kept do not count.
    #[must_use]
    pub const fn routes_made(&self) -> usize {
        self.routes.count
    }

    /// EndpointSlices of these Services have changed. The result says what that means for the last translation.
    pub(crate) fn slices_changed(
        &mut self,
        cluster: &Cluster,
        options: &Options,
        services: impl Iterator<Item = Name>,
    ) -> Moved {
        let moved = self.pods.read_again(cluster, options, services);
        if moved == Moved::Everything {
            self.clear();
        }
        moved
    }

    /// The upstreams of the last translation that have the endpoints of one port.
    pub(crate) fn fed(&self) -> Fed {
        self.pods.fed()
    }

    /// The endpoints of a port of a Service, for an upstream that the last translation may not have.
    pub(crate) fn endpoints(
        &mut self,
        cluster: &Cluster,
        options: &Options,
        service: &Name,
        port: &str,
    ) -> Arc<Supply> {
        self.pods.read(cluster, options, service, port)
    }

    /// Forgets everything: the options have changed, or an object on which routes depend.
    pub fn clear(&mut self) {
        let count = self.routes.count;
        *self = Self::default();
        self.routes.count = count;
    }
}

// === impl Routes ===

impl Routes {
    /// What was made of a route, if that is still what would be made of it.
    pub(super) fn get(&self, kind: Kind, name: &Name, gates: &[Gate<'_>]) -> Option<&Made> {
        let all = if kind == Kind::GrpcRoute { &self.grpc } else { &self.http };
        all.get(name).filter(|made| made.asked.iter().all(|asked| asked.has_same_answer(kind, gates)))
    }

    /// Forgets what depends on an object.
    fn forget(&mut self, look: &Look) {
        for all in [&mut self.http, &mut self.grpc] {
            all.retain(|_, made| !made.out.looks.contains(look));
        }
    }

    fn forget_all(&mut self) {
        self.http.clear();
        self.grpc.clear();
    }

    pub(super) fn put(&mut self, kind: Kind, name: Name, made: Made) -> &Made {
        self.count += 1;
        let all = if kind == Kind::GrpcRoute { &mut self.grpc } else { &mut self.http };
        match all.entry(name) {
            Entry::Occupied(mut known) => {
                known.insert(made);
                known.into_mut()
            }
            Entry::Vacant(place) => place.insert(made),
        }
    }
}

// === impl Made ===

impl Made {
    /// Adds it to the whole.
    pub(super) fn join(&self, cx: &mut Cx<'_>, gates: &mut [Gate<'_>], statuses: &mut Vec<Status>) {
        cx.add(&self.out);
        let Status { kind, name, .. } = &self.status;
        for route in &self.closed {
            if !cx.room.take(&name.namespace, route.bytes()) {
                let message = "it is left out, and its namespace has more such matches than can answer with an error: \
                               wider routes take some of their requests";
                cx.notices.push((*kind, name.clone(), unsupported(message)));
                break;
            }
            cx.routes.push(Arc::clone(route));
        }
        count(gates, *kind, &self.listeners);
        // A route of others gets no status, but an entry of ours that is left from earlier goes.
        if self.is_attached || cx.has_entry(*kind, name, "parents") {
            statuses.push(self.status.clone());
        }
    }
}
