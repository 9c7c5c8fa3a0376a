//! Endpoints that the program around the gateway supplies, instead of the config or a registry.
//!
//! The controller of Kubernetes does so: pods come and go far more often than routes change, and a config of thousands
//! of routes should not be loaded again for each. No key of YAML asks for them.

use super::upstream::Endpoint;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// Supplied endpoints, by the name of their upstream. All clones share them.
///
/// An upstream of this name needs neither `endpoints` nor `discover`. A change here takes effect when the program calls
/// `Gateway::resupply`, or at the next reload.
#[derive(Clone, Debug, Default)]
pub struct Supplied(Arc<RwLock<HashMap<Box<str>, Arc<Supply>>>>);

/// The supplied endpoints of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supply {
    /// Where they come from, for display, such as `Service shop/cart`.
    pub place: Box<str>,
    /// The endpoints: addresses, since names are not resolved.
    pub endpoints: Vec<Endpoint>,
}

impl Supplied {
    /// The endpoints of this upstream, if they are supplied.
    pub fn get(&self, upstream: &str) -> Option<Arc<Supply>> {
        self.all().get(upstream).cloned()
    }

    /// Whether the endpoints of this upstream are supplied.
    pub fn contains(&self, upstream: &str) -> bool {
        self.all().contains_key(upstream)
    }

    /// Supplies these endpoints from now on.
    pub fn set(&self, upstream: &str, supply: Arc<Supply>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(upstream.into(), supply);
    }

    /// Forgets the upstreams for which `keep` is false.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).retain(|name, _| keep(name));
    }

    fn all(&self) -> RwLockReadGuard<'_, HashMap<Box<str>, Arc<Supply>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two are equal if they share their endpoints.
impl PartialEq for Supplied {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
