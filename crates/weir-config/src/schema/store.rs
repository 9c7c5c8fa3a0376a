//! `stores`: what several routes, or several gateways, share.

use super::values::FilePath;
use crate::units::{ByteSize, Duration};
use schemars::JsonSchema;
use serde::Deserialize;

/// A store that filters name by `store`: a Redis or Valkey, 6 or later, or the fleet itself, for what gateways share; or memory, for what
/// `cache` keeps.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Store {
    /// URL of the server: `redis://127.0.0.1:6379`, or `rediss://` for TLS; with user, password and database where needed:
    /// `redis://user:${REDIS_PASSWORD}@10.0.0.5:6379/0`. Gateways speak RESP3 to it.
    pub redis: Option<String>,
    /// The nodes of the fleet keep it together, and no server beside them: one of them, elected in the etcd of `source`, counts for all.
    /// For limits of `rate_limit` whose burst comes back within an hour. `fleet: {}`; default none.
    pub fleet: Option<FleetStore>,
    /// Memory for answers that the filter `cache` keeps, 1MiB to 1TiB: `256MiB`. Up to a quarter more is in use while answers
    /// are on their way. It outlives a reload that leaves its size as it is. Default none.
    pub memory: Option<ByteSize>,
    /// A folder in which the same answers are kept beside `memory`, so that they outlive the process. Default none.
    pub disk: Option<DiskStore>,
    /// URLs of more nodes of a cluster, tried where the first one does not answer. Default none.
    pub nodes: Vec<String>,
    /// Whether the server is a cluster, of which `redis` is a node. Default false.
    pub cluster: bool,
    /// Certificates that the server's own is checked against, for `rediss://`. Default: those of the system.
    pub ca: Option<FilePath>,
    /// How long an answer may take; then the store counts as away until it answers again. Default 100ms.
    pub timeout: Duration,
    /// What the names of all keys begin with. Gateways that share limits have the same. Default `weir`.
    pub prefix: String,
}

/// A store that the nodes of a fleet are themselves. Where a node is reached by the others is `source.etcd.address` in its own file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FleetStore {}

/// Where a store keeps answers on a disk.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskStore {
    /// The folder: empty or new, or one that a store had before. One process has it at a time; an upgrade hands it over.
    pub path: FilePath,
    /// How much of the disk its files may take up, 16MiB to 1PiB: `10GiB`. Where there is no room, the oldest that nobody used leaves first.
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
