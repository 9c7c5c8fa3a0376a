//! The hosts that HTTPRoutes and GRPCRoutes have at a listener: two kinds cannot share one.
//!
//! A host has either routes of HTTP or calls of gRPC. The older route keeps the host, the other kind's is not accepted
//! (GRPCRoute, *Cross Serving*).

use crate::objects::Kind;
use std::collections::BTreeSet;
use std::ops::Bound;

/// The hosts of a listener, by the kind of their routes.
#[derive(Debug, Default)]
pub(super) struct Claims {
    http: Hosts,
    grpc: Hosts,
}

/// A set of hosts that is asked whether another one overlaps with it.
///
/// Each is stored from its end, so that those below a domain are neighbours: the cost of a question is that of the
/// labels of the host, not of the hosts in the set.
#[derive(Debug, Default)]
struct Hosts(BTreeSet<String>);

impl Claims {
    /// Whether routes of the other kind have one of these hosts.
    pub(super) fn are_taken(&self, kind: Kind, hosts: &[String]) -> bool {
        let others = match kind {
            Kind::GrpcRoute => &self.http,
            Kind::HttpRoute => &self.grpc,
            _ => return false,
        };
        hosts.iter().any(|host| others.overlaps(host))
    }

    /// Claims hosts for a route.
    pub(super) fn take(&mut self, kind: Kind, hosts: &[String]) {
        let own = match kind {
            Kind::GrpcRoute => &mut self.grpc,
            Kind::HttpRoute => &mut self.http,
            _ => return,
        };
        own.0.extend(hosts.iter().map(|host| reversed(host)));
    }
}

impl Hosts {
    /// Whether a request can have a host of the set and this one, of which an empty one is any.
    fn overlaps(&self, host: &str) -> bool {
        if self.0.is_empty() || host.is_empty() {
            return !self.0.is_empty();
        }
        let key = reversed(host);
        if self.0.contains("") || self.0.contains(&key) {
            return true;
        }
        // A wildcard of the set that covers it.
        let mut ends = key.match_indices('.').map(|(at, _)| at + 1);
        if ends.any(|end| self.0.contains(&format!("{}*", key.get(..end).unwrap_or_default()))) {
            return true;
        }
        // A host of the set that it covers.
        let Some(below) = key.strip_suffix('*') else { return false };
        let from = (Bound::Included(below), Bound::Unbounded);
        self.0.range::<str, _>(from).next().is_some_and(|next| next.starts_with(below))
    }
}

/// `*.a.test` becomes `tset.a.*`.
fn reversed(host: &str) -> String {
    host.chars().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_overlap() {
        for (one, other, expected) in [
            ("a.test", "a.test", true),
            ("a.test", "b.test", false),
            ("a.test", "aa.test", false),
            ("", "a.test", true),
            ("*.test", "a.test", true),
            ("*.test", "b.a.test", true),
            ("*.test", "*.a.test", true),
            ("*.test", "test", false),
            ("*.a.test", "*.b.test", false),
            ("*.a.test", "ba.test", false),
            ("*.a.test", "a.test", false),
        ] {
            for (mine, theirs) in [(one, other), (other, one)] {
                let mut claims = Claims::default();
                assert!(!claims.are_taken(Kind::GrpcRoute, &[theirs.to_owned()]));
                claims.take(Kind::HttpRoute, &[mine.to_owned()]);
                assert_eq!(
                    claims.are_taken(Kind::GrpcRoute, &[theirs.to_owned()]),
                    expected,
                    "{mine} {theirs}"
                );
                assert!(!claims.are_taken(Kind::HttpRoute, &[theirs.to_owned()]), "of one kind");
            }
        }
    }
}
