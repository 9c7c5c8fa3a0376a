//! `stores`: state shared by several routes or gateways.

use super::values::FilePath;
use crate::units::{ByteSize, Duration};
use schemars::JsonSchema;
use serde::Deserialize;

/// A store that filters name by `store`. State shared by gateways is in a Redis or Valkey, 6 or later, or in the
/// fleet itself; answers of `cache` are in memory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// URL of the server: `redis://127.0.0.1:6379`, or `rediss://` for TLS; with user, password and database where
    /// needed: `redis://user:${REDIS_PASSWORD}@10.0.0.5:6379/0`. Gateways speak RESP3 to it.
    pub redis: Option<String>,
    /// The nodes of the fleet keep the state themselves, without a server. One of them, elected in the etcd of
    /// `source`, counts for all. For limits of `rate_limit` whose burst is restored within an hour. `fleet: {}`;
    /// default none.
    pub fleet: Option<FleetStore>,
    /// Memory for answers that the filter `cache` keeps, 1MiB to 1TiB: `256MiB`. Up to a quarter more is used while
    /// answers arrive. A reload that keeps its size keeps its content. Default none.
    pub memory: Option<ByteSize>,
    /// A folder that keeps the same answers in addition to `memory`, so that they outlive the process. Default none.
    pub disk: Option<DiskStore>,
    /// URLs of more nodes of a cluster, tried if the first one does not answer. Default none.
    pub nodes: Vec<String>,
    /// Whether the server is a cluster, of which `redis` is a node. Default false.
    pub cluster: bool,
    /// PEM file of authorities that verify the server's certificate, for `rediss://`. Default: those of the system.
    pub ca: Option<FilePath>,
    /// Timeout of an answer. After a timeout the store counts as unavailable until it answers again. Default 100ms.
    pub timeout: Duration,
    /// Prefix of all keys. Gateways that share limits need the same prefix. Default `weir`.
    pub prefix: String,
}

/// A store kept by the nodes of a fleet. Each node's own file says in `source.etcd.address` where others reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FleetStore {}

/// The disk part of a store of answers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskStore {
    /// The folder: empty, new, or used by a store before. One process uses it at a time; an upgrade hands it over.
    pub path: FilePath,
    /// Disk space for its files, 16MiB to 1PiB: `10GiB`. If it is full, the oldest unused object is evicted first.
    pub size: ByteSize,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            redis: None,
            fleet: None,
            memory: None,
            disk: None,
            nodes: Vec::new(),
            cluster: false,
            ca: None,
            timeout: Duration::from_millis(100),
            prefix: "weir".to_owned(),
        }
    }
}
