//! The callers that a config names.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// A caller, as written under `consumers`.
#[derive(Clone, Debug, Default)]
pub struct Consumer {
    /// The key under `consumers`.
    pub name: String,
    /// Index of its plan among the plans of the snapshot. `None` for one of a source, whose label names its plan.
    pub plan: Option<usize>,
    /// Its labels for `acl` besides its name: `plan:NAME`, and `group:NAME` for each of its groups.
    pub labels: Arc<[String]>,
    /// Networks it may call from; empty for any.
    pub allow_ips: Arc<[ipnet::IpNet]>,
    /// Its credentials, by the name of the filter that reads them. Those of a source's consumers are in its indexes.
    pub credentials: BTreeMap<String, Vec<String>>,
    /// For one of a source: its number in this process, above all positions in a config.
    pub number: usize,
}

impl Consumer {
    /// Whether it may call from this address.
    #[inline]
    pub fn may_call_from(&self, client: &IpAddr) -> bool {
        self.allow_ips.is_empty() || self.allows(client)
    }

    fn allows(&self, client: &IpAddr) -> bool {
        let client = client.to_canonical();
        self.allow_ips.iter().any(|network| network.contains(&client))
    }

    /// The name of its plan.
    pub fn plan_name(&self) -> Option<&str> {
        self.labels.iter().find_map(|label| label.strip_prefix("plan:"))
    }
}

/// All consumers of a snapshot, in the order written.
pub type Consumers = Arc<[Consumer]>;
