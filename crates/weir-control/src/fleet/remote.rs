//! A source: etcd, or a web server.

use super::http::Http;
use std::rc::Rc;
use std::sync::Arc;
use weir_config::schema::ConfigSource;
use weir_fleet::follower::{Seen, WatchEvent};
use weir_fleet::{Bundle, Digest};
use weir_upstream::etcd::fleet::Etcd;
use weir_upstream::fetch::Environment;

/// The source of a config.
#[derive(Clone)]
pub(super) enum Remote {
    Etcd(Rc<Etcd>),
    Http(Rc<Http>),
}

impl Remote {
    pub(super) fn new(written: &ConfigSource) -> Result<Self, String> {
        let environment = Arc::new(Environment::of_system());
        match (&written.etcd, &written.http) {
            (Some(etcd), _) => Ok(Self::Etcd(Rc::new(Etcd::new(etcd, environment)?))),
            (None, Some(http)) => Ok(Self::Http(Rc::new(Http::new(http, environment)?))),
            (None, None) => Err("no source is named".to_owned()),
        }
    }

    /// As text.
    pub(super) fn place(&self) -> String {
        match self {
            Self::Etcd(etcd) => etcd.place(),
            Self::Http(http) => http.place(),
        }
    }

    /// The etcd, where nodes have leases and rollouts have steps.
    pub(super) fn etcd(&self) -> Option<Rc<Etcd>> {
        match self {
            Self::Etcd(etcd) => Some(Rc::clone(etcd)),
            Self::Http(_) => None,
        }
    }

    pub(super) async fn read(&self) -> Result<Seen, String> {
        match self {
            Self::Etcd(etcd) => etcd.read().await,
            Self::Http(http) => http.read().await,
        }
    }

    pub(super) async fn bundle(&self, digest: Digest) -> Result<Bundle, String> {
        match self {
            Self::Etcd(etcd) => etcd.bundle(digest).await,
            Self::Http(http) => http.bundle(digest),
        }
    }

    pub(super) async fn watch(&self, from: u64, tell: impl Fn(WatchEvent)) -> String {
        match self {
            Self::Etcd(etcd) => etcd.watch(from, tell).await,
            Self::Http(http) => http.watch(tell).await,
        }
    }
}
