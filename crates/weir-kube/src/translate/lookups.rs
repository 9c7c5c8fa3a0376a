//! The objects of the cluster as routes see them: each look at one is recorded, so that a change of it costs the routes
//! that have looked at it, whether or not it was there.
//!
//! What every translation makes anew, such as Gateways, statuses and Ingresses, reads [`Lookups::all`] and records
//! nothing. Whatever makes HTTPRoutes and GRPCRoutes must not: `memo.rs` would keep what has changed.

use crate::cluster::{Cluster, Store};
use crate::objects::{
    BackendTlsPolicy, ConfigMap, Kind, Name, Namespace, Object, ReferenceGrant, Service, WeirFilters,
};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// An object that was looked at. For kinds that are read by namespace, the name is empty.
pub(super) type Look = (Kind, Name);

/// The objects of a cluster, and those that were looked at.
pub(super) struct Lookups<'c> {
    cluster: &'c Cluster,
    /// In a cell, because a look is no change for whoever looks.
    looks: RefCell<BTreeSet<Look>>,
}

impl<'c> Lookups<'c> {
    pub(super) const fn of(cluster: &'c Cluster) -> Self {
        Self { cluster, looks: RefCell::new(BTreeSet::new()) }
    }

    /// All objects, for what every translation makes anew.
    pub(super) const fn all(&self) -> &'c Cluster {
        self.cluster
    }

    pub(super) fn config_map(&self, name: &Name) -> Option<&'c Object<ConfigMap>> {
        self.one(Kind::ConfigMap, &self.cluster.config_maps, name)
    }

    pub(super) fn filters(&self, name: &Name) -> Option<&'c Object<WeirFilters>> {
        self.one(Kind::WeirFilters, &self.cluster.weir_filters, name)
    }

    /// The grants of a namespace.
    pub(super) fn grants(
        &self,
        namespace: &str,
    ) -> impl Iterator<Item = &'c Object<ReferenceGrant>> + use<'c> {
        let all = self.of_namespace(Kind::ReferenceGrant, &self.cluster.reference_grants, namespace);
        all.map(|(_, grant)| grant)
    }

    pub(super) fn namespace(&self, name: &str) -> Option<&'c Object<Namespace>> {
        self.one(Kind::Namespace, &self.cluster.namespaces, &Name::new("", name))
    }

    /// The BackendTLSPolicies of a namespace.
    pub(super) fn policies(
        &self,
        namespace: &str,
    ) -> impl Iterator<Item = (&'c Name, &'c Object<BackendTlsPolicy>)> + use<'c> {
        self.of_namespace(Kind::BackendTlsPolicy, &self.cluster.backend_tls_policies, namespace)
    }

    pub(super) fn service(&self, name: &Name) -> Option<&'c Object<Service>> {
        self.one(Kind::Service, &self.cluster.services, name)
    }

    /// Records what comes from now on in these, and returns those of before.
    pub(super) fn swap(&mut self, looks: BTreeSet<Look>) -> BTreeSet<Look> {
        std::mem::replace(self.looks.get_mut(), looks)
    }

    fn one<S>(&self, kind: Kind, store: &'c Store<S>, name: &Name) -> Option<&'c Object<S>> {
        self.looks.borrow_mut().insert((kind, name.clone()));
        store.get(name)
    }

    fn of_namespace<S>(
        &self,
        kind: Kind,
        store: &'c Store<S>,
        namespace: &str,
    ) -> impl Iterator<Item = (&'c Name, &'c Object<S>)> + use<'c, S> {
        let first = Name::new(namespace, "");
        self.looks.borrow_mut().insert((kind, first.clone()));
        let namespace = namespace.to_owned();
        store.range(first..).take_while(move |(name, _)| name.namespace == namespace)
    }
}

/// The look that a change of this object concerns. `None` if looks at objects of this kind are not recorded, so nobody
/// knows who depends on it.
pub(super) fn changed_by(kind: Kind, name: &Name) -> Option<Look> {
    match kind {
        Kind::ConfigMap | Kind::Namespace | Kind::Service | Kind::WeirFilters => Some((kind, name.clone())),
        Kind::BackendTlsPolicy | Kind::ReferenceGrant => Some((kind, Name::new(&name.namespace, ""))),
        _ => None,
    }
}
