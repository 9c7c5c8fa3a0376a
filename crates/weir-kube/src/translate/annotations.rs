//! Annotations of ingress-nginx on Ingresses, as far as Weir has what they ask for.
//!
//! weir-import reads them, with the code of `weir import ingress-nginx`. A tenant wrote them, so what it makes of them
//! passes the list of [`extension`](super::extension) that WeirFilters pass too: no URL that Weir would call, no Secret,
//! no store. What is not followed is in an Event; where it may be what keeps somebody out, the paths answer 503.

use super::{Cx, answer, extension};
use crate::objects::{Ingress, Kind, Name, Object, shown};
use crate::status::Problem;
use crate::text;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use weir_import::ingress_annotations::{self, Asked, PREFIX, Share};

/// The settings of upstreams that annotations may have.
const UPSTREAM: &[&str] = &["balancer", "host", "protocol", "retry", "timeouts", "tls"];

/// The annotations of an Ingress.
#[derive(Debug)]
pub(super) struct Annotated {
    asked: Asked,
    /// Filters of each path that are the same for all.
    filters: Vec<Value>,
    /// Settings of its upstreams.
    pub(super) upstream: Map<String, Value>,
}

/// A route for a path: what it matches besides, how much it precedes others, its filters and where it leads.
pub(super) struct Variant {
    pub(super) when: Option<String>,
    /// The greater comes first.
    pub(super) order: usize,
    pub(super) goes_to: Goes,
}

/// Where the requests of a variant go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goes {
    /// To the canary, or so many of so many.
    Canary(u32, u32),
    Main,
}

/// What canaries take, by namespace, host and path.
pub(super) type Canaries<'c> = BTreeMap<(&'c str, &'c str, &'c str), (&'c Object<Ingress>, usize)>;

impl Annotated {
    pub(super) fn read(cx: &mut Cx<'_>, object: &Object<Ingress>) -> Self {
        let meta = &object.meta;
        let mut asked = match meta.annotations.keys().any(|name| name.starts_with(PREFIX)) {
            true => ingress_annotations::asked(&meta.namespace, &meta.name, &meta.annotations),
            false => Asked::default(),
        };
        for finding in asked.findings.iter().filter(|finding| finding.is_refused) {
            let message = format!("{PREFIX}{}: {}", shown(&finding.name), shown(&finding.why));
            note(cx, &meta.key(), message);
        }
        let mut filters = Vec::new();
        for filter in std::mem::take(&mut asked.filters) {
            match extension::allowed_of_annotation(&filter) {
                Ok(()) => filters.push(filter),
                Err(why) => {
                    note(cx, &meta.key(), format!("its annotations: {why}"));
                    filters.push(json!({ "respond": answer(503) }));
                }
            }
        }
        let mut upstream = std::mem::take(&mut asked.upstream);
        upstream.retain(|key, value| {
            let is_host = || value.as_str().and_then(text::host).is_some_and(|host| !host.starts_with('*'));
            UPSTREAM.contains(&key.as_str()) && (key != "host" || is_host())
        });
        Self { asked, filters, upstream }
    }

    /// The share that this Ingress takes of another one's requests.
    pub(super) fn share(&self) -> Option<&Share> {
        self.asked.canary.as_ref()
    }

    /// Whether its paths are regular expressions.
    pub(super) const fn is_regex(&self) -> bool {
        self.asked.is_regex
    }

    /// Hosts besides those of its rules.
    pub(super) fn aliases(&self) -> impl Iterator<Item = String> {
        self.asked.aliases.iter().filter_map(|alias| text::host(alias))
    }

    /// Where `/` is redirected to.
    pub(super) fn root(&self) -> Option<Value> {
        let root = self.asked.app_root.as_ref()?;
        Some(redirect(&text::literal(root), 302, false))
    }

    /// The host that a redirect leads here from, with the redirect.
    pub(super) fn www(&self, host: Option<&str>) -> Option<(String, Value)> {
        let host = host.filter(|host| self.asked.from_to_www && !host.starts_with('*'))?;
        let from = host.strip_prefix("www.").map_or_else(|| format!("www.{host}"), str::to_owned);
        Some((from, redirect(&format!("{{scheme}}://{host}{{path}}"), 308, true)))
    }

    /// The filters of a path.
    ///
    /// # Errors
    /// Why they cannot be had, so that the path has to stay closed.
    pub(super) fn filters(&self, pattern: &str, path: &str, has_tls: bool) -> Result<Vec<Value>, String> {
        let mut all: Vec<Value> = Vec::new();
        if self.asked.forces_tls || self.asked.redirects_tls && has_tls {
            all.push(json!({ "redirect": { "https": true } }));
        }
        all.extend(self.filters.iter().cloned());
        if let Some(target) = self.asked.rewrite.as_deref().filter(|target| *target != path) {
            let to = ingress_annotations::rewrite(target, pattern);
            let to = to.map_err(|why| format!("{PREFIX}rewrite-target: `{}` {why}", shown(target)))?;
            all.push(json!({ "rewrite": { "path": to } }));
        }
        Ok(all)
    }
}

/// A canary's routes for a path: those of its header and cookie, and the one that shares by weight.
pub(super) fn variants(share: Option<&Share>) -> Vec<Variant> {
    let main = || Variant { when: None, order: 0, goes_to: Goes::Main };
    let Some(share) = share else { return vec![main()] };
    let count = share.choices.len();
    let choices = share.choices.iter().enumerate().map(|(at, (when, takes))| Variant {
        when: Some(when.clone()),
        order: count - at,
        goes_to: if *takes { Goes::Canary(1, 1) } else { Goes::Main },
    });
    let rest = match share.weight {
        0 => main(),
        weight => Variant { goes_to: Goes::Canary(weight, share.total), ..main() },
    };
    choices.chain([rest]).collect()
}

/// Whether a filter answers every request that reaches it.
pub(super) fn answers(filter: &Value) -> bool {
    filter.get("respond").is_some()
        || filter.get("redirect").is_some_and(|settings| settings.get("https").is_none())
}

/// Says in an Event what is not done.
pub(super) fn note(cx: &mut Cx<'_>, name: &Name, message: String) {
    cx.notices.push((Kind::Ingress, name.clone(), Problem::new("NotSupported", message)));
}

fn redirect(to: &str, status: u16, keeps_query: bool) -> Value {
    json!({ "redirect": { "to": to, "status": status, "keep_query": keeps_query } })
}
