//! The static config: entry points, resolvers of certificates, logs, and the rest.

mod entry_point;
mod observed;
mod resolver;

pub(super) use entry_point::tls;

use super::cx::nothing_else;
use super::rule::Syntax;
use crate::config::Config;
use crate::ledger::{Ledger, Piece};
use crate::shared::tree::{Entry, Fields, Node};
use crate::yaml::Map;
use entry_point::entry_point;
use observed::{access_log, log, tracing};
use resolver::resolver;

/// What the static config says that routers need.
#[derive(Default)]
pub(super) struct Fixed<'t> {
    pub(super) points: Vec<EntryPoint>,
    pub(super) resolvers: Vec<Resolver>,
    pub(super) transport: Option<&'t Node>,
    pub(super) is_v2: bool,
    /// Whether containers without `traefik.enable` are served.
    pub(super) hides_containers: bool,
    /// The rule of containers without one.
    pub(super) default_rule: Option<(String, Piece)>,
    /// Files and folders of the provider `file`.
    pub(super) files: Vec<(String, bool, Piece)>,
}

/// An address of Traefik.
#[derive(Default)]
pub(super) struct EntryPoint {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) piece: Option<Piece>,
    /// Whether its routers have TLS unless they say otherwise, with what `http.tls` says.
    pub(super) tls: Option<Tls>,
    pub(super) middlewares: Vec<(String, Piece)>,
    pub(super) redirect: Option<Redirect>,
    pub(super) is_default: bool,
    /// Settings of the listener.
    pub(super) more: Map,
}

/// `tls` of a router, or `http.tls` of an entry point.
#[derive(Clone, Default)]
pub(super) struct Tls {
    pub(super) resolver: Option<(String, Piece)>,
    pub(super) options: Option<(String, Piece)>,
    pub(super) domains: Vec<String>,
    pub(super) passthrough: bool,
}

/// A redirection of all requests of an entry point.
pub(super) struct Redirect {
    pub(super) to: String,
    pub(super) scheme: String,
    pub(super) is_permanent: bool,
    pub(super) priority: Option<i64>,
    pub(super) piece: Piece,
}

/// A certificatesResolver.
pub(super) struct Resolver {
    pub(super) name: String,
    pub(super) acme: Map,
    pub(super) piece: Piece,
    pub(super) is_used: bool,
}

impl Fixed<'_> {
    pub(super) fn syntax(&self) -> Syntax {
        if self.is_v2 { Syntax::V2 } else { Syntax::V3 }
    }
}

/// Reads a static config.
pub(super) fn read<'t>(root: &'t Node, fixed: &mut Fixed<'t>, config: &mut Config, ledger: &mut Ledger) {
    let mut fields = Fields::in_any_case(root);
    if let Some((node, piece)) = fields.map("entryPoints", ledger) {
        ledger.same(piece);
        for entry in node.as_map().unwrap_or_default() {
            let point = entry_point(entry, config, ledger);
            fixed.points.extend(point);
        }
    }
    if let Some((node, piece)) = fields.map("certificatesResolvers", ledger) {
        ledger.same(piece);
        for entry in node.as_map().unwrap_or_default() {
            resolver(entry, fixed, config, ledger);
        }
    }
    if let Some((node, piece)) = fields.map("serversTransport", ledger) {
        ledger.same(piece);
        fixed.transport = Some(node);
    }
    if let Some(entry) = fields.entry("providers") {
        ledger.same(entry.piece);
        providers(entry, fixed, ledger);
    }
    if let Some((node, piece)) = fields.map("core", ledger) {
        ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        if let Some((syntax, piece)) = fields.text("defaultRuleSyntax", ledger) {
            fixed.is_v2 = syntax == "v2";
            ledger.same(piece);
        }
        nothing_else(fields, "core", ledger);
    }
    if let Some(entry) = fields.entry("accessLog") {
        access_log(entry, config, ledger);
    }
    if let Some(entry) = fields.entry("log") {
        log(entry, config, ledger);
    }
    if let Some(entry) = fields.entry("tracing") {
        tracing(entry, config, ledger);
    }
    for (key, why) in [
        ("api", "Weir has its console and API on the admin listener, 127.0.0.1:9180"),
        ("ping", "/healthz and /readyz of the admin listener"),
        ("global", "Weir looks for no updates and sends nothing home"),
    ] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| ledger.by_itself(piece, why));
        }
    }
    if let Some(entry) = fields.entry("metrics") {
        let is_scraped = entry.node.as_map().unwrap_or_default().iter();
        let others: Vec<&Entry> =
            is_scraped.filter(|entry| !entry.key.eq_ignore_ascii_case("prometheus")).collect();
        entry.each_piece(&mut |piece| {
            ledger.by_itself(piece, "/metrics of the admin listener, with Weir's names and buckets")
        });
        for other in others {
            other.each_piece(&mut |piece| {
                ledger.refused(
                    piece,
                    "Weir is scraped and pushes no metrics",
                    "/metrics of the admin listener",
                )
            });
        }
    }
    for (key, why, nearest) in [
        ("experimental", "plugins are programs for Traefik", "expressions, or the filter ext_proc"),
        ("pilot", "a service that ended", ""),
        ("hostResolver", "Weir does not follow aliases (CNAME) of hosts", "match.hosts"),
        ("spiffe", "Weir takes certificates from files", "upstreams.NAME.tls"),
        ("tcpServersTransport", "Weir has one timeout for connects", "listeners.NAME.tcp.connect"),
        ("ocsp", "Weir staples nothing", ""),
    ] {
        if let Some(entry) = fields.entry(key) {
            entry.each_piece(&mut |piece| ledger.refused(piece, why, nearest));
        }
    }
    nothing_else(fields, "a static config", ledger);
}

fn providers(entry: &Entry, fixed: &mut Fixed<'_>, ledger: &mut Ledger) {
    let mut fields = Fields::in_any_case(&entry.node);
    if let Some((node, piece)) = fields.map("file", ledger) {
        ledger.same(piece);
        let mut fields = Fields::in_any_case(node);
        for (key, is_folder) in [("filename", false), ("directory", true)] {
            if let Some((path, piece)) = fields.text(key, ledger) {
                fixed.files.push((path, is_folder, piece));
            }
        }
        for key in ["watch", "debugLogGeneratedTemplate"] {
            if let Some(entry) = fields.entry(key) {
                ledger.by_itself(entry.piece, "Weir watches its files (`watch`)");
            }
        }
        nothing_else(fields, "the provider file", ledger);
    }
    for key in ["docker", "swarm"] {
        let Some(entry) = fields.entry(key) else { continue };
        ledger.same(entry.piece);
        let mut fields = Fields::in_any_case(&entry.node);
        if let Some((flag, piece)) = fields.flag("exposedByDefault", ledger) {
            fixed.hides_containers = !flag;
            ledger.same(piece);
        }
        fixed.default_rule = fields.text("defaultRule", ledger);
        if let Some((_, piece)) = &fixed.default_rule {
            ledger.same(*piece);
        }
        for entry in fields.rest() {
            entry.each_piece(&mut |piece| {
                ledger.left_out(
                    piece,
                    "Weir does not follow containers by itself, but by upstreams.NAME.discover.docker or DNS",
                );
            });
        }
    }
    if let Some(entry) = fields.entry("providersThrottleDuration") {
        ledger.left_out(entry.piece, "Weir reloads half a second after the last change");
    }
    for entry in fields.rest() {
        let why = format!("what the provider {} says is in no file here", entry.key);
        entry.each_piece(&mut |piece| {
            ledger.refused(piece, why.clone(), "Ingress of Kubernetes: `weir import ingress-nginx`");
        });
    }
}
