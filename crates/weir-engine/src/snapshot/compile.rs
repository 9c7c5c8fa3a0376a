//! Compiles a checked config into a snapshot. This is the last part of validation: what cannot be built is a mistake.
//!
//! It collects all mistakes, each with its place in the file. If there are any, there is no snapshot.

mod acme;
mod admin;
mod answers;
mod certificates;
mod client_tls;
mod listeners;
mod logins;
mod redirects;
mod stores;
mod upstreams;
mod whens;

pub use client_tls::log_tls;

use super::{Chain, Guards, Handling, Instance, Plan, Route, Snapshot, Target};
use crate::acme::Wire;
use crate::files::Site;
use crate::handover::{Kind, State};
use crate::tracing::{Parents, Tracing};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use weir_acme::Acme;
use weir_config::check::is_for_match;
use weir_config::digest;
use weir_config::expression::refusal;
use weir_config::schema;
use weir_config::spelling::nearest_name;
use weir_config::{Diagnostic, Diagnostics, Loaded, Mistakes, Node, Severity};
use weir_filter::filter::{
    Build, Conceals, Consumer, Consumers, FieldGuards, FilterKind, Hooks, Kept, Mistake, Places, Purgeable,
    Settings, Switch,
};
use weir_filter::store::Stores;
use weir_h1::{FieldName, NameSet};
use weir_route::{Conflict, ConflictKind, EscapedSlashes, Pattern, RouteSpec, Shown, Table};
use weir_telemetry::{Server, Telemetry};
use weir_upstream::fetch::{Fetcher, Trust};
use weir_upstream::upstream::{ClientGone, Healths, Upstream};
use weir_wire::hex;
use weir_wire::tls::{self, Certificate, Identity, Tickets};
use whens::{Whens, bounds};

/// What is carried from one snapshot to the next.
pub struct Carry {
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) kept: Kept,
    /// The health of endpoints, by name.
    pub(crate) healths: Arc<Healths>,
    /// The listeners' certificates, by their files.
    certificates: HashMap<Identity, Certificate>,
    fresh_certificates: HashMap<Identity, Certificate>,
    /// The listeners' automatically renewed certificates.
    pub acme: Acme,
    /// The keys of session tickets, by the policy under which they resume: see [`tickets_key`].
    tickets: HashMap<[u8; 32], Tickets>,
    fresh_tickets: HashMap<[u8; 32], Tickets>,
    /// The last snapshot's upstreams, with the settings they were built from.
    upstreams: HashMap<String, (schema::Upstream, Arc<Upstream>)>,
    fresh: HashMap<String, (schema::Upstream, Arc<Upstream>)>,
}

impl Carry {
    /// An empty carry, for the first snapshot.
    pub fn new(telemetry: Arc<Telemetry>) -> Self {
        Self {
            telemetry,
            kept: Kept::default(),
            healths: Arc::default(),
            certificates: HashMap::new(),
            fresh_certificates: HashMap::new(),
            acme: Acme::new(),
            tickets: HashMap::new(),
            fresh_tickets: HashMap::new(),
            upstreams: HashMap::new(),
            fresh: HashMap::new(),
        }
    }

    /// Takes over the previous process's state, for the first snapshot.
    pub fn inherit(&mut self, state: Vec<State>) {
        for State { kind, key, bytes } in state {
            match kind {
                Kind::Filter => self.kept.inherit(key, bytes),
                Kind::Health => self.healths.inherit(&bytes),
                Kind::Tickets => {
                    if let (Some(policy), Some(tickets)) = (policy_of(&key), Tickets::load(&bytes)) {
                        self.tickets.insert(policy, tickets);
                    }
                }
                Kind::Unknown => {}
            }
        }
    }

    /// Takes over the switches that were set before this process began, for the first snapshot: the latest value, by
    /// name.
    pub fn inherit_switches(&mut self, switches: impl Iterator<Item = (String, Vec<u8>)>) {
        switches.for_each(|(name, saved)| self.kept.inherit_switch(&name, saved));
    }

    /// The state for the next process.
    pub fn save(&self) -> Vec<State> {
        let tickets = self.tickets.iter().map(|(policy, tickets)| State {
            kind: Kind::Tickets,
            key: hex::encode(policy.as_ref()),
            bytes: tickets.save(),
        });
        let filters =
            self.kept.save().map(|(key, bytes)| State { kind: Kind::Filter, key: key.to_owned(), bytes });
        let health = Some(self.healths.save()).filter(|bytes| !bytes.is_empty());
        let health = health.map(|bytes| State { kind: Kind::Health, key: String::new(), bytes });
        tickets.chain(filters).chain(health).collect()
    }

    /// Opens what the next snapshot keeps in stores. Nothing in this process may have run before.
    pub fn open_stores(&self, successor: bool) -> Result<(), String> {
        self.kept.open_stores(successor)
    }

    /// What filters keep in the config's stores, by store name.
    pub fn stored(&self) -> Vec<(String, Arc<dyn Purgeable>)> {
        self.kept.stored()
    }

    /// The switches that filters name.
    pub fn switches(&self) -> Vec<(String, Arc<Switch>)> {
        self.kept.switches()
    }

    /// The ticket keys of a policy. Running keys are reused, so that clients can resume after a reload.
    fn tickets(&mut self, key: [u8; 32]) -> Result<Tickets, tls::TlsError> {
        if let Some(known) = self.fresh_tickets.get(&key).or_else(|| self.tickets.get(&key)) {
            let known = known.clone();
            self.fresh_tickets.insert(key, known.clone());
            return Ok(known);
        }
        let made = Tickets::new()?;
        self.fresh_tickets.insert(key, made.clone());
        Ok(made)
    }

    /// The listeners' certificates in use, by their files.
    pub fn certificates(&self) -> Vec<(&Identity, &Certificate)> {
        let mut all: Vec<_> = self.certificates.iter().collect();
        all.sort_unstable_by_key(|(identity, _)| (&identity.cert, &identity.key));
        all
    }

    /// Called when the compiled snapshot runs: forgets what only its predecessor used. Returns which filter state is
    /// forgotten.
    pub fn adopted(&mut self, control: &Handle, fetcher: &Fetcher) -> Vec<String> {
        let forgotten = self.kept.sweep(control, fetcher);
        self.certificates = std::mem::take(&mut self.fresh_certificates);
        self.acme.adopt(|| Arc::new(Wire(fetcher.clone())));
        self.tickets = std::mem::take(&mut self.fresh_tickets);
        self.upstreams = std::mem::take(&mut self.fresh);
        forgotten
    }
}

/// Parses a key of [`Carry::tickets`] as written by [`Carry::save`].
fn policy_of(hex: &str) -> Option<[u8; 32]> {
    let mut policy = [0; 32];
    if hex.len() != 2 * policy.len() {
        return None;
    }
    for (at, byte) in policy.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(policy)
}

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
    carry.kept.begin(Places::of(&loaded.config));
    carry.healths.begin(loaded.config.upstreams.names());
    carry.fresh_certificates.clear();
    carry.acme.begin();
    carry.fresh_tickets.clear();
    carry.fresh.clear();
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
}

/// Warnings about paths with a better hint than that of a pattern that cannot be parsed.
const MIGRATED: &[&str] = &["literal-parameter", "query-in-path", "whole-path"];

/// Filters, upstream, two timeouts, escaped slashes, and what happens to requests whose clients leave.
type Alike = (Chain, usize, (Option<Duration>, Option<Duration>), Option<EscapedSlashes>, Option<ClientGone>);

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
        let names: Vec<String> = self.config.upstreams.names().map(str::to_owned).collect();
        let stores = self.stores();
        let hidden = self.config.access_log.hidden_parameters().map(str::to_owned).collect();
        let mut filters = Filters {
            conceals: Conceals { query: hidden, ..Conceals::default() },
            made: Vec::new(),
            consumers: &consumers,
            upstreams: &names,
            targets: Vec::new(),
            stores: &stores,
        };
        let config = self.config;
        let global = self.chain(&config.filters, "filters", None, &mut filters);
        let plans = config.plans.iter().map(|(name, plan)| Plan {
            chain: self.chain(&plan.filters, &format!("plans.{name}"), None, &mut filters).into(),
        });
        let plans: Vec<Plan> = plans.collect();
        let whens = self.whens();
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
            conceals: Some(Box::new(filters.conceals)).filter(|conceals| !conceals.is_empty()),
            filters: filters.made,
            plans,
            upstreams: upstreams?,
            consumers,
            consumer_series: config.consumers.names().map(|name| telemetry.consumer(name)).collect(),
            head_limits,
            h2: listeners::h2_limits(limits),
            body_bytes: limits.body_bytes.map(|b| b.get()),
            connections: limits.connections as usize,
            drain: self.config.shutdown.drain.get(),
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
        let patterns = self.config.routes.iter().map(|(_, route)| route.matches.path.as_str().into());
        Some(Tracing::new(parents, written.share.ratio(), patterns.collect()))
    }

    // === consumers, plans, filters ===

    fn consumers(&self) -> Consumers {
        let plan_index = |name: &str| self.config.plans.names().position(|n| n == name);
        let consumers = self.config.consumers.iter().map(|(name, written)| Consumer {
            name: name.to_owned(),
            plan: written.plan.as_deref().and_then(plan_index),
            labels: labels(written),
            allow_ips: written.allow_ips.iter().map(|n| n.0).collect(),
            credentials: written
                .credentials
                .iter()
                .map(|c| (c.filter.clone(), c.node.elements().iter().filter_map(credential).collect()))
                .collect(),
        });
        consumers.collect()
    }

    fn chain(
        &mut self,
        written: &[schema::FilterNode],
        scope: &str,
        captures: Option<&[String]>,
        filters: &mut Filters<'_>,
    ) -> Vec<u32> {
        written.iter().filter_map(|node| self.filter(node, scope, captures, filters)).collect()
    }

    fn filter(
        &mut self,
        written: &schema::FilterNode,
        scope: &str,
        captures: Option<&[String]>,
        filters: &mut Filters<'_>,
    ) -> Option<u32> {
        let path = &written.path;
        let Some(kind) = self.kinds.iter().find(|k| k.name == written.name) else {
            let nearest = nearest_name(&written.name, self.kinds.iter().map(|k| k.name));
            let all: Vec<&str> = self.kinds.iter().map(|k| k.name).collect();
            let hint = match nearest {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("expected one of: {}", all.join(", ")),
            };
            self.error(
                path,
                "unknown-filter",
                format!("there is no filter `{}`", written.shown),
                Some(hint.into()),
            );
            return None;
        };
        let before = self.found.errors();
        let mut build = Build {
            scope,
            consumers: filters.consumers,
            upstreams: filters.upstreams,
            targets: &filters.targets,
            stores: filters.stores,
            captures,
            kinds: self.kinds,
            kept: &mut self.carry.kept,
            files: self.files,
            kind: kind.name,
            settings: String::new(),
            mistakes: Vec::new(),
            bounds: bounds(&self.config.limits),
            expressions: Vec::new(),
            warnings: Vec::new(),
        };
        let mut settings = Settings { node: &written.node, path, found: self.found };
        let built = (kind.build)(&mut settings, &mut build);
        let (mistakes, warnings, expressions) = (build.mistakes, build.warnings, build.expressions);
        let path_of = |field: &str| match field {
            "" => path.clone(),
            field if field.starts_with('[') => format!("{path}{field}"),
            field => format!("{path}.{field}"),
        };
        let place_of = |mistake: &Mistake| path_of(&mistake.field);
        let mut changed = HashSet::new();
        for (field, is_sound) in expressions {
            let at = path_of(&field);
            let key = field.rsplit('.').next().unwrap_or(&field);
            if let Some(node) = self.tree.find(&at)
                && let Some(mut refused) = refusal(node, key, self.found, |_| is_sound)
            {
                refused.path = at;
                self.found.push(refused);
                changed.insert(field);
            }
        }
        for (code, warning) in warnings {
            let at = place_of(&warning);
            let told = Diagnostic::warning(code, warning.message).on(self.tree, &at);
            self.found.push(match warning.hint {
                Some(hint) => told.hint(hint),
                None => told,
            });
        }
        for mistake in &mistakes {
            if self.is_of_consumers(kind.name, mistake) || changed.contains(&mistake.field) {
                continue;
            }
            let at = place_of(mistake);
            if let Some(offset) = mistake.offset {
                self.expression_mistake(&at, offset, mistake.message.clone(), mistake.hint.clone());
                continue;
            }
            self.error(&at, "filter-setting", mistake.message.clone(), mistake.hint.clone());
        }
        if built.is_none() && mistakes.is_empty() && self.found.errors() == before {
            self.error(path, "filter-setting", "the filter refused its settings", None);
        }
        let mut built = built.filter(|_| mistakes.is_empty() && changed.is_empty())?;
        hide_secrets(&mut built.settings, &written.node);
        let hooks = built.filter.hooks();
        filters.conceals = std::mem::take(&mut filters.conceals).and(built.filter.conceals());
        let reads_path_key = built.filter.conceals().path_key;
        let FieldGuards { request, response } = built.filter.guards();
        let guards = Guards { request: NameSet::new(request), response: NameSet::new(response) };
        filters.made.push(Arc::new(Instance {
            name: kind.name,
            place: scope.into(),
            filter: built.filter,
            hooks,
            reads_path_key,
            guards,
            settings: built.settings,
        }));
        u32::try_from(filters.made.len() - 1).ok()
    }

    /// Whether a credentials filter only repeats an error already reported at the consumers.
    fn is_of_consumers(&self, filter: &str, mistake: &Mistake) -> bool {
        let mut credentials = self.config.consumers.iter().flat_map(|(_, consumer)| &consumer.credentials);
        // Credentials under an unknown key belong to this filter if it has no others.
        let unknown = |d: &Diagnostic| d.code == "unknown-credential";
        let told = |d: &Diagnostic| d.severity == Severity::Error && d.path.starts_with("consumers.");
        // `[1].key_auth`: an error of a filter inside `any` about all its settings.
        let filter = match mistake.field.strip_prefix('[').and_then(|field| field.split_once("].")) {
            Some((_, name)) if !name.contains('.') => name,
            _ if mistake.field.is_empty() => filter,
            _ => return false,
        };
        let known = credentials.any(|c| c.filter == filter);
        (known && self.found.iter().any(told)) || (!known && self.found.iter().any(unknown))
    }

    /// Reports an error unless the same value already has one.
    fn error_once(&mut self, path: &str, code: &'static str, message: impl Into<Cow<'static, str>>) {
        if !self.found.iter().any(|d| d.severity == Severity::Error && d.path == path) {
            self.error(path, code, message, None);
        }
    }

    // === routes ===

    /// The table; `None` if routes are malformed, ambiguous or unreachable.
    fn table(&mut self, mut whens: Whens) -> Option<Table> {
        let listener =
            |name: &String| self.config.listeners.names().position(|n| n == name).map(|i| i as u16);
        let specs = self.config.routes.written(self.tree.get("routes")).map(|written| {
            let route = written.thing;
            let m = &route.matches;
            RouteSpec {
                name: Arc::clone(written.name),
                hosts: m.hosts.iter().map(ToString::to_string).collect(),
                path: m.path.to_string(),
                methods: m.methods.to_vec(),
                headers: m.headers.0.to_vec(),
                query: m.query.0.to_vec(),
                listeners: m.listeners.iter().filter_map(listener).collect(),
                when: whens.remove(written.name),
                priority: route.priority,
                shown: written.node.and_then(|node| shown(node, m)).map(Box::new),
            }
        });
        match Table::build(specs) {
            Ok(table) => {
                self.endless_redirects(&table);
                self.lost_logins(&table);
                Some(table)
            }
            Err(conflicts) => {
                let names: Vec<&str> = self.config.routes.names().collect();
                let told: HashSet<String> = self
                    .found
                    .iter()
                    .filter(|d| d.severity == Severity::Error)
                    .map(|d| d.path.clone())
                    .collect();
                for c in conflicts.into_iter().filter(|c| !is_consequence(c, &names, &told)) {
                    let code = match c.kind {
                        ConflictKind::Ambiguous => "ambiguous-routes",
                        ConflictKind::Unreachable => "unreachable-route",
                        ConflictKind::BadHeader => "bad-header",
                        ConflictKind::BadHost => "bad-host",
                        ConflictKind::BadMethod => "bad-method",
                        ConflictKind::BadPattern => "bad-pattern",
                        ConflictKind::BadQuery => "bad-query",
                    };
                    let name = names.get(c.route).copied().unwrap_or_default();
                    let example = c.example.map(|e| format!("; see `weir explain {e}`")).unwrap_or_default();
                    let path = format!("routes.{name}.{}", c.field);
                    let mut hint = format!("{}{example}", c.hint);
                    // For a path in another gateway's syntax, we know what was meant.
                    let is_meant = |d: &Diagnostic| d.path == path && MIGRATED.contains(&d.code);
                    let better = self.found.iter().find(|d| is_meant(d)).and_then(|d| d.hint.clone());
                    if let Some(better) = better.filter(|_| c.kind == ConflictKind::BadPattern) {
                        hint = better;
                        self.found.retain(|d| !is_meant(d));
                    }
                    let mut diagnostic = Diagnostic::error(code, c.message).on(self.tree, &path).hint(hint);
                    // The example involves both routes, whichever field is wrong.
                    for route in [Some(c.route), c.other].into_iter().flatten() {
                        let name = names.get(route).copied().unwrap_or_default();
                        if let Some(node) = self.tree.find(&format!("routes.{name}.match")) {
                            diagnostic = diagnostic.concealing(node);
                        }
                    }
                    self.found.push(diagnostic);
                }
                None
            }
        }
    }

    fn route(
        &mut self,
        name: &Arc<str>,
        written: &schema::Route,
        global: &[u32],
        filters: &mut Filters<'_>,
    ) -> Option<Route> {
        // Only filters and our own answers need the parameters.
        let asked = !written.filters.is_empty() || written.respond.is_some();
        let pattern = asked.then(|| Pattern::parse(&written.matches.path).ok()).flatten();
        let captures: Vec<String> =
            pattern.map(|p| p.capture_names().into_iter().map(str::to_owned).collect()).unwrap_or_default();
        let shares = written.upstream.iter().flat_map(|split| &split.0);
        filters.targets = shares.map(|share| share.upstream.to_string()).collect();
        let errors = self.found.errors();
        let own = self.chain(&written.filters, &format!("routes.{name}"), Some(&captures), filters);
        filters.targets.clear();
        let chain = [global, &own].concat();
        let target = match (&written.respond, &written.files, &written.upstream) {
            (Some(respond), ..) => Target::Respond(Box::new(self.answer(name, respond, &captures)?)),
            (_, Some(files), _) => self.site(name, files)?,
            (.., Some(split)) => self.target(split)?,
            (None, None, None) if self.found.errors() > errors => return None, // its filter may be broken
            (None, None, None) => self.answered_by_filters(name, written, &chain, &filters.made)?,
        };
        let handling = self.share(Handling {
            chain: chain.into(),
            global: global.len(),
            target,
            escaped_slashes: written.escaped_slashes.map(listeners::escaped_slashes),
            response_timeout: written.timeouts.response.map(|t| t.get()),
            exchange_timeout: written.timeouts.exchange.map(|t| t.get()),
            client_gone: written.client_gone.map(upstreams::client_gone),
        });
        Some(Route { name: Arc::clone(name), handling, series: self.carry.telemetry.route(name) })
    }

    fn site(&mut self, route: &str, written: &schema::Files) -> Option<Target> {
        match Site::new(written) {
            Ok(site) => Some(Target::Files(Arc::new(site))),
            Err((key, message)) => {
                let (code, hint) = match key {
                    "root" => ("missing-root", Some("make the folder, or write the path of another".into())),
                    _ => ("bad-value", None),
                };
                self.error(&format!("routes.{route}.files.{key}"), code, message, hint);
                None
            }
        }
    }

    fn target(&self, split: &schema::Split) -> Option<Target> {
        let index = |name: &str| self.upstream_index.get(name).copied();
        if let [only] = &split.0[..] {
            return index(&only.upstream).map(Target::Upstream);
        }
        let mut total = 0u32;
        let shares = split.0.iter().filter(|s| s.weight > 0).map(|share| {
            total = total.saturating_add(share.weight);
            Some((total, index(&share.upstream)?))
        });
        Some(Target::Split(shares.collect::<Option<_>>()?))
    }

    /// Shares one handling among all routes that need the same: see [`Handling`]. Chains show which filters are
    /// global.
    fn share(&mut self, handling: Handling) -> Arc<Handling> {
        let Target::Upstream(upstream) = handling.target else { return Arc::new(handling) };
        let Handling { chain, response_timeout, exchange_timeout, escaped_slashes, client_gone, .. } =
            &handling;
        let times = (*response_timeout, *exchange_timeout);
        let key = (chain.clone(), upstream, times, *escaped_slashes, *client_gone);
        Arc::clone(self.handlings.entry(key).or_insert_with(|| Arc::new(handling)))
    }
}

/// How to show a route's `match` if part of it came from outside.
fn shown(route: &Node, matches: &schema::Match) -> Option<Shown> {
    let node = route.get("match")?;
    let parts = [node.get("hosts"), node.get("path"), node.get("methods")];
    let came = |part: &Node| part.substituted || part.elements().iter().any(|e| e.substituted);
    if !parts.iter().flatten().any(|part| came(part)) {
        return None;
    }
    let [hosts, path, methods] = parts.map(|part| {
        let each = part.into_iter().flat_map(|part| [std::slice::from_ref(part), part.elements()]).flatten();
        each.filter_map(Node::written).map(str::to_owned).collect::<Vec<_>>()
    });
    Some(Shown { hosts, path: path.into_iter().next().unwrap_or_else(|| matches.path.to_string()), methods })
}

/// A credential in the form its filter gets: text unchanged, a map as JSON.
fn credential(node: &Node) -> Option<String> {
    if let Some(text) = node.as_text() {
        return Some(text.to_owned());
    }
    // Its filter reports errors in it, because the filter knows the expected form.
    let map: Option<serde_json::Value> = weir_config::de::read(node, "", &mut Diagnostics::default());
    map.map(|map| map.to_string())
}

/// Whether a conflict only follows from reported errors: the same value is wrong, or a `match` was not understood and
/// stands for every request.
fn is_consequence(conflict: &Conflict, names: &[&str], told: &HashSet<String>) -> bool {
    let is_told = |route: usize, field: &str| {
        let name = names.get(route).copied().unwrap_or_default();
        told.contains(&format!("routes.{name}{field}"))
    };
    // The condition was written under an unknown key.
    let is_matched_otherwise = |route: usize| {
        let name = names.get(route).copied().unwrap_or_default();
        told.iter().any(|path| {
            let key = path.strip_prefix("routes.").and_then(|path| path.strip_prefix(name));
            key.is_some_and(|key| match key.strip_prefix(".match.") {
                Some(key) => is_for_match(key, true),
                None => key.strip_prefix('.').is_some_and(|key| is_for_match(key, false)),
            })
        })
    };
    match conflict.kind {
        ConflictKind::Ambiguous | ConflictKind::Unreachable => {
            [Some(conflict.route), conflict.other].into_iter().flatten().any(|route| {
                let fields = ["", ".match", ".match.path", ".match.hosts", ".match.when"];
                fields.iter().any(|field| is_told(route, field)) || is_matched_otherwise(route)
            })
        }
        _ => is_told(conflict.route, &format!(".{}", conflict.field)),
    }
}

/// The filters built so far, and what building them needs.
struct Filters<'a> {
    made: Vec<Arc<Instance>>,
    /// The parts of targets that they treat as secret.
    conceals: Conceals,
    consumers: &'a Consumers,
    upstreams: &'a [String],
    /// The targets of the route being compiled.
    targets: Vec<String>,
    stores: &'a Stores,
}

/// A consumer's labels besides its name.
fn labels(consumer: &schema::Consumer) -> Vec<String> {
    let plan = consumer.plan.iter().map(|plan| format!("plan:{plan}"));
    plan.chain(consumer.groups.iter().map(|group| format!("group:{group}"))).collect()
}

/// The header fields that the gateway guarantees on any route: those that select routes, carry an upstream's
/// deadline, or belong to filters that only a plan's consumers meet.
fn trusted_fields(
    config: &schema::Config,
    plans: &[Plan],
    filters: &[Arc<Instance>],
    whens: &Whens,
) -> NameSet {
    let headers = config.routes.iter().flat_map(|(_, route)| &route.matches.headers.0);
    let named = whens.values().flat_map(|when| when.header_fields()).map(str::to_owned);
    let matched: BTreeSet<String> = headers.map(|(name, _)| name.to_ascii_lowercase()).chain(named).collect();
    let matched = matched.iter().filter_map(|name| FieldName::new(name).ok());
    let deadlines = config.upstreams.iter().filter_map(|(_, upstream)| upstream.deadline_header.as_ref());
    let deadlines = deadlines.map(|header| header.0.clone());
    let of_plans = plans.iter().flat_map(|plan| plan.chain.iter());
    let of_plans = of_plans.filter_map(|&filter| filters.get(filter as usize));
    let of_plans = of_plans.flat_map(|filter| filter.guards.request.iter().cloned());
    NameSet::new(matched.chain(deadlines).chain(of_plans))
}

/// Hides secrets in settings that `weir explain` shows. Values from the environment or a file are usually secret. A
/// filter may show a value elsewhere or in another form, so it is searched for everywhere.
fn hide_secrets(shown: &mut serde_json::Value, written: &Node) {
    /// A shorter value is hidden only at its own place: elsewhere it would match too much.
    const LEAST: usize = 3;
    let mut outside = Vec::new();
    written.add_concealed(&mut outside);
    written.add_quotable(&mut outside);
    if outside.is_empty() {
        return;
    }
    hide_at(shown, written);
    let long = outside.iter().filter(|value| value.len() >= LEAST);
    let values: Vec<String> = long.map(|value| value.to_lowercase()).collect();
    hide_texts(shown, &|text| {
        let text = text.to_lowercase();
        values.iter().any(|value| text.contains(value))
    });
}

/// Hides values at the places where they were written.
fn hide_at(shown: &mut serde_json::Value, written: &Node) {
    if (written.substituted || written.secret) && written.as_text().is_some() {
        hide_texts(shown, &|_| true);
    }
    for (key, node) in written.entries() {
        if let Some(value) = shown.get_mut(&*key.text) {
            hide_at(value, node);
        }
    }
    for (i, node) in written.elements().iter().enumerate() {
        if let Some(value) = shown.get_mut(i) {
            hide_at(value, node);
        }
    }
}

fn hide_texts(shown: &mut serde_json::Value, hides: &dyn Fn(&str) -> bool) {
    match shown {
        serde_json::Value::String(text) if hides(text) => "***".clone_into(text),
        serde_json::Value::Array(values) => values.iter_mut().for_each(|value| hide_texts(value, hides)),
        serde_json::Value::Object(values) => values.values_mut().for_each(|value| hide_texts(value, hides)),
        _ => {}
    }
}
