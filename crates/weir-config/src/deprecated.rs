//! The table of deprecated keys. Each works under its old name until the version in which it ends: `rename` reads it,
//! `fix` rewrites it.
//!
//! A rename stays within one map: a setting that moves to another place cannot be deprecated this way.

/// A key with a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deprecated {
    /// The setting that has the key, such as `upstreams.*.tls` or `filter.ip`; empty for the top level.
    pub within: &'static str,
    /// The old name.
    pub key: &'static str,
    /// The new name, in the same map.
    pub successor: &'static str,
    /// The version that introduced the new name.
    pub since: &'static str,
    /// The version in which the old name becomes an unknown key.
    pub ends: &'static str,
}

/// All deprecated keys. docs/reference/versions.md lists them, and says when a key may be added here or removed.
pub const DEPRECATED: &[Deprecated] =
    &[Deprecated { within: "filter.ip", key: "file", successor: "deny_file", since: "1.0", ends: "2.0" }];

impl Deprecated {
    /// Where the key belongs, as people write it: `ip.file`, `upstreams.*.tls.ca`.
    pub fn name(&self) -> String {
        match self.within.strip_prefix("filter.").unwrap_or(self.within) {
            "" => self.key.to_owned(),
            within => format!("{within}.{}", self.key),
        }
    }

    /// For schemas and reference pages.
    pub fn description(&self) -> String {
        let Self { successor, since, ends, .. } = self;
        format!("Deprecated since {since}: write `{successor}`. Ends in {ends}.")
    }
}

/// A table of keys that no version had.
#[cfg(test)]
pub(crate) const INVENTED: &[Deprecated] = &[
    Deprecated { within: "", key: "threads", successor: "workers", since: "1.1", ends: "2.0" },
    Deprecated { within: "upstreams.*", key: "lb", successor: "balancer", since: "1.2", ends: "2.0" },
    Deprecated { within: "upstreams.*.tls", key: "roots", successor: "ca", since: "1.2", ends: "2.0" },
    Deprecated { within: "filter.ip", key: "block", successor: "deny", since: "1.1", ends: "1.3" },
];
