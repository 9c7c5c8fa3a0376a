//! What the annotations of one Ingress mean for its routes.

use super::super::objects::Ingress;
use super::super::traffic::{self, Traffic};
use super::super::upstreams::{self, Settings};
use super::super::{Cx, access, flag, parts};
use crate::config::Filter;
use crate::ledger::Piece;
use crate::shared::filters::closed;

/// The annotations of an Ingress, read.
#[derive(Default)]
pub(in crate::ingress_nginx) struct Own {
    pub(in crate::ingress_nginx) traffic: Traffic,
    pub(in crate::ingress_nginx) access: Vec<Filter>,
    /// Filters for the whole server, that is, for every Ingress of the host.
    pub(in crate::ingress_nginx) server: Vec<Filter>,
    pub(in crate::ingress_nginx) upstream: Settings,
    pub(in crate::ingress_nginx) rewrite: Option<(String, Piece)>,
    pub(in crate::ingress_nginx) uses_regex: bool,
    pub(in crate::ingress_nginx) redirects_tls: bool,
    pub(in crate::ingress_nginx) forces_tls: bool,
    pub(in crate::ingress_nginx) app_root: Option<String>,
    pub(in crate::ingress_nginx) from_to_www: bool,
    pub(in crate::ingress_nginx) aliases: Vec<String>,
    pub(in crate::ingress_nginx) passthrough: Option<Piece>,
}

/// Reads the annotations of an Ingress.
pub(in crate::ingress_nginx) fn read(cx: &mut Cx<'_, '_>, ingress: &mut Ingress<'_>) -> Own {
    let mut own = Own {
        traffic: traffic::read(cx, ingress),
        access: access::read(cx, ingress),
        server: access::certificate(cx, ingress),
        upstream: upstreams::read(cx, ingress),
        ..Own::default()
    };
    own.server.extend(own.traffic.server.take());
    let annotations = &mut ingress.annotations;
    own.redirects_tls = flag(annotations.take("ssl-redirect"), cx.ledger).unwrap_or(cx.defaults.ssl_redirect);
    own.forces_tls =
        flag(annotations.take("force-ssl-redirect"), cx.ledger).unwrap_or(cx.defaults.force_ssl_redirect);
    own.uses_regex = flag(annotations.take("use-regex"), cx.ledger).unwrap_or(false);
    if let Some((target, piece)) = annotations.take("rewrite-target") {
        cx.ledger.same(piece);
        own.rewrite = (!target.is_empty()).then_some((target, piece));
    }
    if let Some((root, piece)) = annotations.take("app-root") {
        match root.starts_with('/') && !root.contains(['$', '{']) {
            true => {
                own.app_root = Some(root);
                cx.ledger.same(piece);
            }
            false => cx.ledger.refused(piece, format!("`{root}` is no path"), "redirect: { to }"),
        }
    }
    own.from_to_www = flag(annotations.take("from-to-www-redirect"), cx.ledger).unwrap_or(false);
    if let Some((names, piece)) = annotations.take("server-alias") {
        cx.ledger.same(piece);
        for name in parts(&names) {
            let is_wildcard = name.starts_with("*.") && !name[1..].contains('*');
            match name.contains(['~', '^', '$', '(', '*']) && !is_wildcard {
                true => cx.ledger.refused(piece, format!("the pattern `{name}`"), "match.hosts: [ \"~…\" ]"),
                false => own.aliases.push(name.to_ascii_lowercase()),
            }
        }
    }
    if let Some((text, piece)) = annotations.take("ssl-passthrough") {
        if super::super::is_on(&text) {
            own.passthrough = Some(piece);
        }
        cx.ledger.same(piece);
    }
    let unknown = annotations.rest().into_iter().filter(|(name, _)| may_guard(name));
    let closing =
        unknown.map(|(name, _)| closed(&format!("weir import does not know the annotation {name}")));
    own.access.splice(0..0, closing.collect::<Vec<_>>());
    own
}

/// Whether an annotation that weir import does not know may restrict access.
fn may_guard(name: &str) -> bool {
    let words = [
        "access", "allow", "auth", "block", "deny", "jwt", "limit", "modsec", "restrict", "secure",
        "snippet", "token", "waf",
    ];
    words.iter().any(|word| name.contains(word))
}
