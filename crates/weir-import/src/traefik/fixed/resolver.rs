//! Resolvers of certificates as ACME settings.

use super::super::cx::{list, nothing_else};
use super::{Fixed, Resolver};
use crate::config::Config;
use crate::ledger::Ledger;
use crate::shared::tree::{Entry, Fields, Node};
use crate::yaml::Map;

pub(super) fn resolver(entry: &Entry, fixed: &mut Fixed<'_>, config: &mut Config, ledger: &mut Ledger) {
    let mut outer = Fields::in_any_case(&entry.node);
    ledger.same(entry.piece);
    let node = outer.map("acme", ledger);
    if let Some(other) = outer.entry("tailscale") {
        other.each_piece(&mut |piece| {
            ledger.refused(piece, "Weir does not ask Tailscale", "tls.certificates")
        });
    }
    nothing_else(outer, "a certificatesResolver", ledger);
    let Some((node, piece)) = node else { return };
    ledger.same(piece);
    let mut fields = Fields::in_any_case(node);
    let mut acme = Map::new();
    for (key, ours) in [("email", "email"), ("caServer", "directory"), ("profile", "profile")] {
        if let Some((text, piece)) = fields.text(key, ledger) {
            acme.set(ours, text);
            ledger.same(piece);
        }
    }
    if let Some((files, piece)) = list(&mut fields, "caCertificates", ledger) {
        match &*files {
            [one] => {
                acme.set("ca", one.clone());
                ledger.same(piece);
            }
            _ => ledger.refused(piece, "`ca` names one file", "put all authorities into one PEM file"),
        }
    }
    if let Some((_, piece)) = fields.text("storage", ledger) {
        ledger.changed(
            piece,
            "a folder of Weir's own, /var/lib/weir/acme: certificates are ordered anew, so mind the authority's limits",
        );
    }
    if let Some(entry) = fields.entry("keyType") {
        ledger.changed(entry.piece, "keys are P-256");
    }
    if let Some(entry) = fields.entry("tlsChallenge") {
        entry.each_piece(&mut |piece| ledger.same(piece));
    }
    if let Some(entry) = fields.entry("httpChallenge") {
        acme.set("challenge", "http-01");
        entry.each_piece(&mut |piece| {
            ledger.by_itself(piece, "answered on every listener without TLS; port 80 must reach one")
        });
    }
    if let Some(entry) = fields.entry("dnsChallenge") {
        let provider = entry.node.get("provider").and_then(Node::as_text).unwrap_or_default();
        acme.set("challenge", "dns-01");
        let program = format!("/etc/weir/dns-{}", crate::config::name_of(&provider));
        acme.comment("A program of yours that writes the TXT record: docs/guide/tls.md.");
        acme.set("dns", Map::new().with("exec", vec![program.clone()]));
        entry.each_piece(&mut |piece| {
            ledger.refused(
                piece,
                format!("Weir has no client for the DNS of `{provider}`; it runs a program of yours"),
                format!("acme: {{ dns: {{ exec: [{program}] }} }}"),
            );
        });
    }
    if let Some((node, piece)) = fields.map("eab", ledger) {
        ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        let mut map = Map::new();
        if let Some((kid, piece)) = fields.text("kid", ledger) {
            map.set("key_id", kid);
            ledger.same(piece);
        }
        if let Some((secret, piece)) = fields.text("hmacEncoded", ledger) {
            ledger.conceal(piece);
            map.set("secret", config.secret("acme_eab", &secret));
            ledger.same(piece);
        }
        nothing_else(fields, "eab", ledger);
        acme.set("external_account", map);
    }
    for key in [
        "preferredChain",
        "certificatesDuration",
        "clientTimeout",
        "clientResponseHeaderTimeout",
        "disableCommonName",
        "emailAddresses",
        "certificateTimeout",
    ] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| {
                ledger.left_out(piece, "Weir orders by what the authority says itself")
            });
        }
    }
    nothing_else(fields, "acme", ledger);
    let name = entry.key.to_string();
    fixed.resolvers.push(Resolver { name, acme, piece: entry.piece, is_used: false });
}
