//! Compiles a checked config into a snapshot. This is the last part of validation: what cannot be built is a mistake.
//!
//! It collects all mistakes, each with its place in the file. If there are any, there is no snapshot.

mod acme;
mod admin;
mod answers;
mod arms;
mod carry;
mod certificates;
mod client_tls;
mod consumer_sources;
mod filters;
mod listeners;
mod log_texts;
mod logins;
mod maps;
mod redirects;
mod routes;
mod stores;
mod upstreams;
mod whens;

pub use carry::Carry;
pub use client_tls::log_tls;

use super::{Chain, Handling, Instance, Listed, Plan, Route, Snapshot};
use crate::per_client::ClientLimits;
use crate::tracing::{Parents, Tracing};
use filters::Filters;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use weir_config::digest;
use weir_config::schema;
use weir_config::{Diagnostic, Diagnostics, Loaded, Mistakes, Node, Severity};
use weir_filter::explained::WithExpressions;
use weir_filter::filter::{Conceals, FilterKind, Hooks};
use weir_h1::{FieldName, NameSet};
use weir_route::EscapedSlashes;
use weir_route::variables::Secrets;
use weir_telemetry::Server;
use weir_upstream::fetch::Trust;
use weir_upstream::upstream::ClientGone;
use whens::Whens;

/// Compiles a config. Mistakes are added to its diagnostics; with any error there is no snapshot.
///
/// # Errors
/// All diagnostics, which also stay in `loaded`.
pub fn compile(
    loaded: &mut Loaded,
    kinds: &[&'static FilterKind],
    carry: &mut Carry,
) -> Result<Snapshot, Mistakes> {
    let mut diagnostics = std::mem::take(&mut loaded.diagnostics);
    carry.begin(&loaded.config);
    let snapshot = Compiler {
        config: &loaded.config,
        tree: &loaded.tree,
        kinds,
        carry,
        found: &mut diagnostics,
        files: &mut loaded.files,
        upstream_index: loaded.config.upstreams.names().enumerate().map(|(i, name)| (name, i)).collect(),
        handlings: HashMap::new(),
        kept: Vec::new(),
        expressions: Vec::new(),
    }
    .run();
    loaded.files.sort();
    loaded.files.dedup();
    loaded.diagnostics = diagnostics;
    match snapshot {
        Some(snapshot) if loaded.errors() == 0 => Ok(snapshot),
        _ => {
            let mistakes = Mistakes::new(std::mem::take(&mut loaded.diagnostics), Some(&loaded.tree.at));
            loaded.diagnostics.clone_from(&mistakes);
            Err(mistakes)
        }
    }
}

struct Compiler<'a> {
    config: &'a schema::Config,
    tree: &'a Node,
    kinds: &'a [&'static FilterKind],
    carry: &'a mut Carry,
    found: &'a mut Diagnostics,
    /// Files that the config names.
    files: &'a mut Vec<PathBuf>,
    /// The index of each upstream by its name.
    upstream_index: HashMap<&'a str, usize>,
    /// The handling shared by routes whose requests all go to one upstream.
    handlings: HashMap<Alike, Arc<Handling>>,
    /// The listeners' automatically renewed certificates.
    kept: Vec<acme::Kept>,
    /// The texts with expressions that were compiled since somebody took them, with their whole paths as keys.
    expressions: Vec<WithExpressions>,
}

/// Filters, upstream, two timeouts, escaped slashes, what happens to requests whose clients leave, and early data.
type Alike =
    (Chain, usize, (Option<Duration>, Option<Duration>), Option<EscapedSlashes>, Option<ClientGone>, bool);

impl Compiler<'_> {
    /// Reports an error. A message or hint that is a literal of ours is used as it is.
    fn error(
        &mut self,
        path: &str,
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
        hint: Option<Cow<'static, str>>,
    ) {
        let mut diagnostic = Diagnostic::error(code, message).on(self.tree, path);
        if let Some(hint) = hint {
            diagnostic = diagnostic.hint(hint);
        }
        self.found.push(diagnostic);
    }

    /// Reports an error unless the same value already has one.
    fn error_once(&mut self, path: &str, code: &'static str, message: impl Into<Cow<'static, str>>) {
        if !self.found.iter().any(|d| d.severity == Severity::Error && d.path == path) {
            self.error(path, code, message, None);
        }
    }

    /// Whether a file in the settings at `path` was already missing when the config was loaded, which was reported. A
    /// file that vanished since is an ordinary error: without it there is no TLS, and cleartext must not replace it.
    fn misses_file(&self, path: &str) -> bool {
        let within = |d: &Diagnostic| d.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        self.found.iter().any(|d| matches!(d.code, "file-missing" | "file-unreadable") && within(d))
    }

    fn run(mut self) -> Option<Snapshot> {
        let listeners = self.listeners();
        let admin_tls = self.admin_tls();
        let upstreams = self.upstreams();
        let consumers = self.consumers();
        let directory = self.directory(&consumers);
        let names: Vec<String> = self.config.upstreams.names().map(str::to_owned).collect();
        let stores = self.stores();
        let hidden = self.config.access_log.hidden_parameters().map(str::to_owned).collect();
        let vocabulary = self.vocabulary();
        let hashed = self.hashed(&vocabulary);
        let log_texts = self.log_texts(&vocabulary);
        self.unlogged_bodies();
        let mut filters = Filters {
            conceals: Conceals { query: hidden, ..Conceals::default() },
            made: Vec::new(),
            consumers: &consumers,
            directory: directory.as_ref(),
            open_consumers: directory.is_some() || filters::has_user_files(self.config),
            upstreams: &names,
            targets: Vec::new(),
            stores: &stores,
            vocabulary: &vocabulary,
            reads_claims: may_name(self.tree, "jwt"),
        };
        let config = self.config;
        let global = self.chain(&config.filters, "filters", None, &mut filters);
        let plans = config.plans.iter().map(|(name, plan)| Plan {
            chain: self.chain(&plan.filters, &format!("plans.{name}"), None, &mut filters).into(),
        });
        let plans: Vec<Plan> = plans.collect();
        let whens = self.whens(&vocabulary);
        let trusted_fields = trusted_fields(config, &plans, &filters.made, &whens);
        let written = config.routes.written(self.tree.get("routes"));
        let routes: Vec<Option<Route>> =
            written.map(|route| self.route(route.name, route.thing, &global, &mut filters)).collect();
        let table = self.table(whens); // after the routes, so that a refused route causes no extra conflict
        self.collectors();
        let tracing = self.tracing().map(Arc::new);
        let telemetry = Arc::clone(&self.carry.telemetry);
        let limits = &config.limits;
        let head_limits = weir_h1::Limits {
            head_bytes: limits.header_bytes.as_usize(),
            fields: limits.headers as usize,
            ..weir_h1::Limits::default()
        };
        Some(Snapshot {
            revision: digest::of(self.tree),
            listeners,
            admin_tls,
            table: Arc::new(table?),
            routes: routes.into_iter().collect::<Option<_>>()?,
            unrouted: {
                let runs = |&&filter: &&u32| {
                    filters.made.get(filter as usize).is_some_and(|f| f.hooks.has(Hooks::UNROUTED))
                };
                global.iter().filter(runs).copied().collect()
            },
            preflights: filters.made.iter().any(|filter| filter.hooks.has(Hooks::PREFLIGHT)),
            vocabulary: Some((vocabulary.clone(), secrets(&filters))),
            conceals: Some(Box::new(filters.conceals)).filter(|conceals| !conceals.is_empty()),
            filters: filters.made,
            plans,
            upstreams: upstreams?,
            hashed,
            log_texts,
            reads: crate::snapshot::Reads {
                server_name: may_name(self.tree, "client") && may_name(self.tree, "sni"),
                upstream: may_name(self.tree, "upstream"),
            },
            consumers,
            listed: directory.map(|directory| Listed {
                directory,
                plans: config.plans.names().map(str::to_owned).zip(0..).collect(),
                telemetry: Arc::clone(&telemetry),
                series: limits.metric_consumers as usize,
            }),
            consumer_series: config.consumers.names().map(|name| telemetry.consumer(name)).collect(),
            head_limits,
            h2: listeners::h2_limits(limits),
            body_bytes: limits.body_bytes.map(|b| b.get()),
            expression_body: limits.expression_body_bytes.as_usize(),
            connections: limits.connections as usize,
            per_client: ClientLimits {
                connections: limits.per_client.connections,
                handshakes: limits.per_client.handshakes,
            },
            drain: self.config.shutdown.drain.get(),
            idle: self.config.shutdown.idle.get(),
            autopsy: limits.autopsy.as_usize(),
            trusted: config.trusted_proxies.iter().map(|n| n.0).collect(),
            expose_causes: config.expose_causes,
            trusted_fields,
            tracing,
            tokens: self.asks_for_tokens().then(|| self.carry.acme.tokens().clone()),
        })
    }

    /// The trusted certificates for collectors and a syslog server.
    fn collectors(&mut self) {
        let tracing = self.config.tracing.as_ref().and_then(|tracing| tracing.ca.as_ref());
        let log = self.config.access_log.otlp.as_ref().and_then(|collector| collector.ca.as_ref());
        for (path, ca) in [("tracing.ca", tracing), ("access_log.otlp.ca", log)] {
            let Some(ca) = ca else { continue };
            self.files.push(ca.0.clone());
            if let Err(why) = Trust::file(&ca.0) {
                self.error_once(path, "bad-certificate", why);
            }
        }
        let syslog = self.config.access_log.syslog.as_ref();
        let by_tls = |syslog: &&schema::Syslog| matches!(Server::parse(&syslog.server), Some(Server::Tls(_)));
        let Some(syslog) = syslog.filter(by_tls) else { return };
        let files = [&syslog.ca, &syslog.client_cert, &syslog.client_key];
        self.files.extend(files.into_iter().flatten().map(|file| file.0.clone()));
        if !self.misses_file("access_log.syslog")
            && let Err((key, why)) = log_tls(syslog)
        {
            self.error_once(&format!("access_log.syslog{key}"), "tls-unusable", why);
        }
    }

    /// How exchanges are traced, and the name of each route's path.
    fn tracing(&self) -> Option<Tracing> {
        let written = self.config.tracing.as_ref()?;
        let parents = match written.parents {
            schema::Parents::Always => Parents::Always,
            schema::Parents::Never => Parents::Never,
            schema::Parents::Trusted => Parents::Trusted,
        };
        let patterns = self.config.routes.iter().map(|(_, route)| route.matches.path.to_string().into());
        Some(Tracing::new(parents, written.share.ratio(), patterns.collect()))
    }
}

/// The credentials that filters expect in requests.
fn secrets(filters: &Filters<'_>) -> Secrets {
    let fields = filters.made.iter().flat_map(|filter| filter.filter.credentials());
    Secrets {
        fields: fields.map(|name| name.as_str().to_ascii_lowercase()).collect(),
        args: filters.conceals.query.clone(),
        path_key: filters.conceals.path_key,
    }
}

/// Whether a text of the config may be an expression that names this. Only then are exchanges told of it.
fn may_name(node: &Node, part: &str) -> bool {
    node.as_text().is_some_and(|text| text.contains(part))
        || node.entries().iter().any(|(_, node)| may_name(node, part))
        || node.elements().iter().any(|node| may_name(node, part))
}

/// The header fields that the gateway guarantees on any route: those that select routes, carry an upstream's
/// deadline, or belong to filters that only a plan's consumers meet.
fn trusted_fields(
    config: &schema::Config,
    plans: &[Plan],
    filters: &[Arc<Instance>],
    whens: &Whens,
) -> NameSet {
    let matches = || config.routes.iter().map(|(_, route)| &route.matches);
    let excluded = || matches().flat_map(|matches| &matches.not.all);
    let headers = matches().flat_map(|matches| &matches.headers.0);
    let headers = headers.chain(excluded().flat_map(|not| &not.headers.0));
    let cookies = matches().flat_map(|matches| &matches.cookies.0);
    let has_cookies = cookies.chain(excluded().flat_map(|not| &not.cookies.0)).next().is_some();
    let named = whens.values().flat_map(|when| when.header_fields());
    let named = named.chain(has_cookies.then(|| "cookie".to_owned()));
    let matched: BTreeSet<String> = headers.map(|(name, _)| name.to_ascii_lowercase()).chain(named).collect();
    let matched = matched.iter().filter_map(|name| FieldName::new(name).ok());
    let deadlines = config.upstreams.iter().filter_map(|(_, upstream)| upstream.deadline_header.as_ref());
    let deadlines = deadlines.map(|header| header.0.clone());
    let of_plans = plans.iter().flat_map(|plan| plan.chain.iter());
    let mut of_plans: Vec<u32> = of_plans.copied().collect();
    let mut guarded = Vec::new();
    while let Some(filter) = of_plans.pop().and_then(|filter| filters.get(filter as usize)) {
        guarded.extend(filter.guards.request.iter().cloned());
        of_plans.extend(filter.lists.iter().flat_map(|list| list.chain.iter()));
    }
    NameSet::new(matched.chain(deadlines).chain(guarded))
}
