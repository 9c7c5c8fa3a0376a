//! The hosts of Ingresses: who has had them longest, and which of them have patterns as paths.
//!
//! Several namespaces may have rules for one host. Among patterns, those of the namespace that has had the host longest
//! come first, because the age of a claim is the only thing that no later change of an Ingress can improve.

use super::Cx;
use super::annotations::{Annotated, note};
use crate::objects::{Ingress, IngressPath, IngressRule, Meta, Object};
use crate::text;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_import::shared::regex::sure_start;

/// Most aliases of an Ingress.
const MAX_ALIASES: usize = 64;

/// The hosts of all Ingresses.
#[derive(Default)]
pub(super) struct Hosts<'c> {
    /// Since when a namespace has a host, which is empty for any: the age of its oldest Ingress with it.
    claims: BTreeMap<(String, &'c str), Claim>,
    /// The namespaces with a rule for a host.
    ruled: BTreeMap<String, BTreeSet<&'c str>>,
    /// Hosts with a path that is a pattern. Weir asks patterns before prefixes, but nginx asks the longest of both
    /// first, so all paths of these hosts become patterns too, as in nginx without regard to case.
    patterned: BTreeSet<String>,
    /// Who has had the prefix `/` of a host longest.
    roots: BTreeMap<String, (Claim, &'c str)>,
}

/// Since when a namespace has a host. An alias follows all rules, however old its Ingress is: an annotation can be
/// added at any time.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) is_alias: bool,
    pub(super) since: String,
}

/// Hosts that are alike in everything that a route for them depends on.
#[derive(Clone, Debug, Default)]
pub(super) struct Site {
    /// Empty for any host.
    pub(super) hosts: Vec<String>,
    pub(super) claim: Claim,
    /// Whether paths of these hosts are patterns.
    pub(super) is_patterned: bool,
    /// Whether another namespace has had `/` longer than this one has had the hosts.
    pub(super) is_behind_root: bool,
}

impl<'c> Hosts<'c> {
    pub(super) fn read(all: &[&'c Object<Ingress>], own: &[Arc<Annotated>]) -> Self {
        let mut known = Self::default();
        for object in all {
            for host in object.spec.rules.iter().filter_map(host_of) {
                known.ruled.entry(host).or_default().insert(&object.meta.namespace);
            }
        }
        for (object, annotated) in all.iter().zip(own) {
            let namespace = object.meta.namespace.as_str();
            let mut hosts: BTreeSet<String> = object.spec.rules.iter().filter_map(host_of).collect();
            if object.spec.default_backend.is_some() {
                hosts.insert(String::new());
            }
            let aliases = known.split_aliases(&object.meta, annotated).0;
            for host in hosts.iter().chain(&aliases) {
                let is_alias = !hosts.contains(host);
                let claim = Claim { is_alias, since: object.meta.creation_timestamp.clone() };
                let first = known.claims.entry((host.clone(), namespace)).or_insert_with(|| claim.clone());
                *first = claim.min(first.clone());
            }
            if annotated.is_regex() {
                known.patterned.extend(hosts.into_iter().chain(aliases));
            }
        }
        for (object, annotated) in all.iter().zip(own).filter(|(_, own)| own.share().is_none()) {
            let namespace = object.meta.namespace.as_str();
            let aliases = known.split_aliases(&object.meta, annotated).0;
            let is_root = |path: &IngressPath| {
                is_root(annotated.is_regex(), &path.path_type, path.path.as_deref().unwrap_or("/"))
            };
            let with_root = object
                .spec
                .rules
                .iter()
                .filter(|rule| rule.http.iter().flat_map(|http| &http.paths).any(is_root));
            let mut hosts: BTreeSet<String> = with_root.filter_map(host_of).collect();
            if !hosts.is_empty() {
                hosts.extend(aliases); // an alias has the paths of all rules
            }
            for host in hosts {
                let Some(claim) = known.claims.get(&(host.clone(), namespace)) else { continue };
                let claim = (claim.clone(), namespace);
                let first = known.roots.entry(host).or_insert_with(|| claim.clone());
                *first = claim.min(first.clone());
            }
        }
        known
    }

    /// The aliases that an Ingress may have, and the others. As in nginx, none is an alias for which there are rules of
    /// others.
    fn split_aliases(&self, meta: &Meta, annotated: &Annotated) -> (BTreeSet<String>, BTreeSet<String>) {
        let is_free = |alias: &String| {
            let mut namespaces = self.ruled.get(alias).into_iter().flatten();
            namespaces.all(|namespace| *namespace == meta.namespace)
        };
        annotated.aliases().take(MAX_ALIASES).partition(is_free)
    }

    /// The aliases of an Ingress.
    pub(super) fn aliases(&self, cx: &mut Cx<'_>, meta: &Meta, annotated: &Annotated) -> BTreeSet<String> {
        if annotated.aliases().count() > MAX_ALIASES {
            note(cx, &meta.key(), format!("aliases from the {}th on are not served", MAX_ALIASES + 1));
        }
        let (own, taken) = self.split_aliases(meta, annotated);
        for alias in taken {
            let message = format!("the alias {alias} is not served: another namespace has rules for it");
            note(cx, &meta.key(), message);
        }
        own
    }

    /// Whether any Ingress has a rule for a host.
    pub(super) fn has_rule(&self, host: &str) -> bool {
        self.ruled.contains_key(host)
    }

    /// The sites of a rule: its host, and the aliases of its Ingress.
    pub(super) fn sites(&self, meta: &Meta, host: &str, aliases: &BTreeSet<String>) -> Vec<Site> {
        let mut all = vec![self.site(meta, host)];
        for alias in aliases.iter().filter(|alias| !host.is_empty() && *alias != host) {
            let mut site = self.site(meta, alias);
            // Without a rival it does not matter how the namespace has it, and one route shares limits and caches.
            if let (Some(first), true) = (all.first(), self.has_no_rival(alias)) {
                site.claim = first.claim.clone();
            }
            let same = |known: &&mut Site| {
                (&known.claim, known.is_patterned, known.is_behind_root)
                    == (&site.claim, site.is_patterned, site.is_behind_root)
            };
            match all.iter_mut().find(same) {
                Some(known) => known.hosts.push(alias.clone()),
                None => all.push(site),
            }
        }
        all
    }

    /// Whether one namespace alone has a host.
    fn has_no_rival(&self, host: &str) -> bool {
        let all = self.claims.range((host.to_owned(), "")..).take_while(|((known, _), _)| known == host);
        all.count() == 1
    }

    pub(super) fn site(&self, meta: &Meta, host: &str) -> Site {
        let own = || Claim { is_alias: false, since: meta.creation_timestamp.clone() };
        let claim = self.claims.get(&(host.to_owned(), meta.namespace.as_str())).cloned().unwrap_or_else(own);
        let root = self.roots.get(host);
        Site {
            hosts: (!host.is_empty()).then(|| host.to_owned()).into_iter().collect(),
            is_patterned: self.patterned.contains(host),
            is_behind_root: root.is_some_and(|(root, namespace)| {
                *namespace != meta.namespace && (root, *namespace) < (&claim, meta.namespace.as_str())
            }),
            claim,
        }
    }
}

impl Site {
    /// The tier of a path: `/` follows all patterns that begin with more than `/`, and patterns that do not, such as
    /// `/.*`, follow the `/` of a namespace that has had it longer.
    pub(super) fn tier(&self, is_regex: bool, kind: &str, value: &str) -> u8 {
        match is_root(is_regex, kind, value) {
            _ if !self.is_patterned => 0,
            true => 1,
            false if is_regex && self.is_behind_root && sure_start(value) == "/" => 2,
            false => 0,
        }
    }
}

/// Whether a path is all paths of its host, as in nginx: whatever its type is, if it is a pattern.
fn is_root(is_regex: bool, kind: &str, value: &str) -> bool {
    value == "/" && (is_regex || kind != "Exact")
}

/// The host of a rule, which is empty for any; `None` if no request can have it.
pub(super) fn host_of(rule: &IngressRule) -> Option<String> {
    match rule.host.as_deref() {
        None | Some("") => Some(String::new()),
        Some(host) => text::host(host),
    }
}
