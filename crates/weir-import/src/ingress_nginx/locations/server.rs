//! What all Ingresses of a host share: nginx has one `server` for them.

use super::super::Cx;
use super::super::objects::Ingress;
use super::annotations::Own;
use crate::config::Filter;
use crate::ledger::Piece;
use std::collections::BTreeMap;

/// What the Ingresses of a host share: nginx has one `server` for all of them.
#[derive(Default)]
pub(super) struct Server {
    pub(super) filters: Vec<Filter>,
    pub(super) has_tls: bool,
    pub(super) aliases: Vec<String>,
}

/// Collects what Ingresses set for their hosts. Where two of them disagree, a request must pass both.
pub(super) fn servers(
    cx: &mut Cx<'_, '_>,
    ingresses: &[Ingress<'_>],
    own: &[Option<Own>],
) -> BTreeMap<String, Server> {
    let mut all: BTreeMap<String, Server> = BTreeMap::new();
    for (ingress, own) in ingresses.iter().zip(own) {
        let mut hosts: Vec<&str> = ingress.rules.iter().map(|rule| rule.host.as_str()).collect();
        if ingress.default.is_some() {
            hosts.push("");
        }
        hosts.sort_unstable();
        hosts.dedup();
        for host in hosts {
            let server = all.entry(host.to_owned()).or_default();
            server.has_tls |= has_tls(ingress, host);
            let Some(own) = own else { continue };
            server.aliases.extend(own.aliases.iter().cloned());
            for filter in &own.server {
                if !server.filters.contains(filter) {
                    server.filters.push(filter.clone());
                }
            }
        }
    }
    for (host, server) in &mut all {
        server.aliases.sort();
        server.aliases.dedup();
        let of_host = |ingress: &&Ingress<'_>| ingress.rules.iter().any(|rule| rule.host == *host);
        let count = ingresses.iter().filter(of_host).count();
        if count > 1 && !server.filters.is_empty() {
            cx.ledger.note(format!(
                "certificates of clients and server-snippet of `{host}`: nginx has one server for its {count} Ingresses, \
                 so what one of them asks for guards the paths of all. Where they disagree, a request must pass all"
            ));
        }
    }
    all
}

/// Whether an Ingress brings a certificate for a host.
fn has_tls(ingress: &Ingress<'_>, host: &str) -> bool {
    ingress.tls.iter().any(|(names, ..)| {
        names.iter().any(|name| {
            let name = name.to_ascii_lowercase();
            name == host || name.strip_prefix('*').is_some_and(|ending| host.ends_with(ending))
        })
    })
}

/// Two Ingresses for one path.
pub(super) fn twice(cx: &mut Cx<'_, '_>, older: &Ingress<'_>, younger: &Ingress<'_>, piece: Piece) {
    let name = format!("{}/{}", older.namespace, older.name);
    match (&older.created, &younger.created) {
        (Some(one), Some(other)) if one != other => {
            cx.ledger.changed(piece, format!("not written: the Ingress {name} for the same path is older, and wins"));
        }
        _ => cx.ledger.refused(
            piece,
            format!("the Ingress {name}, which is written, has the same path; no creationTimestamp says which is older"),
            "remove one of them",
        ),
    }
}
