//! The compiled config: checked, and shared by all cores until they adopt the next one.
//!
//! *Parse, don't validate:* its content needs no more checks on the path of a request. `compile` builds it from a
//! config and is the last part of validation.

mod compile;
mod http3;
mod passing;
mod sources;

pub use compile::{Carry, compile, log_tls};
pub(crate) use http3::AltSvc;
pub use http3::{AddressProof, Advertise, Http3, UdpDoor};
pub(crate) use passing::{Admits, ConnectionLimit, HeldPlace};
pub use passing::{Destination, Names, Passing, Serves};

use crate::arms;
pub use crate::arms::Arm;
use crate::fastcgi::Scripts;
use crate::files::{ByHeader, Site};
use crate::per_client::ClientLimits;
use crate::tracing::Tracing;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_acme::Tokens;
use weir_config::delay::Delay;
use weir_filter::concealed::split_path_key;
use weir_filter::directory::{Directory, Source};
use weir_filter::explained::WithExpressions;
use weir_filter::filter::{Conceals, Consumers, Cx, FILTER, Filter, Hooks, Neighbour, Reading};
use weir_filter::template::{Escape, LogTexts, Template};
use weir_h1::{FieldName, NameSet};
use weir_route::variables::{Secrets, Vocabulary};
use weir_route::{EscapedSlashes, Headers, NoTrace, Request, RouteId, Slashes, Table};
use weir_telemetry::{ConsumerId, ListenerId, RouteId as RouteSeries, Telemetry};
use weir_upstream::upstream::{ClientGone, Upstream};
use weir_wire::h2::{FloodLimits, ServerLimits};
use weir_wire::listen::Address;
use weir_wire::tls::ServerTls;

/// A compiled config.
pub struct Snapshot {
    /// Identifies a config: the first 12 digits of a SHA-256 over all its values, with included files and variables
    /// filled in.
    pub revision: String,
    /// The listeners.
    pub listeners: Vec<Arc<Listener>>,
    /// TLS of the admin listener.
    pub admin_tls: Option<ServerTls>,
    /// Decides which route wins.
    pub table: Arc<Table>,
    /// The routes, by their numbers in the table.
    pub routes: Vec<Route>,
    /// All filters, by the numbers used in chains.
    pub filters: Vec<Arc<Instance>>,
    pub(crate) plans: Vec<Plan>,
    /// The upstreams.
    pub upstreams: Vec<Arc<Upstream>>,
    /// What expressions may name, and which values `explain` may not show. `None` before the first config.
    pub vocabulary: Option<(Vocabulary, Secrets)>,
    /// What expressions may read that is not told otherwise.
    pub(crate) reads: Reads,
    /// The texts of the access log, if any has expressions. Cores use those of the snapshot they adopted last, as they
    /// use the log that came with it.
    pub(crate) log_texts: Option<Box<LogTexts>>,
    /// The texts of `balancer.hash.by`, by upstream.
    pub(crate) hashed: Vec<Option<Template>>,
    /// The consumers of the config.
    pub consumers: Consumers,
    /// The consumers of sources.
    pub(crate) listed: Option<Listed>,
    /// The metric series of each consumer.
    pub(crate) consumer_series: Arc<[ConsumerId]>,
    /// The limits of request heads.
    pub head_limits: weir_h1::Limits,
    pub(crate) h2: ServerLimits,
    pub(crate) body_bytes: Option<u64>,
    /// The longest body that expressions read.
    pub(crate) expression_body: usize,
    pub(crate) connections: usize,
    /// The limits of one client address.
    pub(crate) per_client: ClientLimits,
    /// How long connections opened under an old policy may take to end.
    pub(crate) drain: Duration,
    /// How long connections that are to close may still bring a request.
    pub(crate) idle: Duration,
    /// How much memory a core may use for kept exchanges.
    pub autopsy: usize,
    pub(crate) trusted: Vec<ipnet::IpNet>,
    pub(crate) expose_causes: bool,
    /// The header fields that the gateway guarantees on any route. No other spelling of them passes, and no such
    /// trailer.
    pub(crate) trusted_fields: NameSet,
    /// The filters for all routes that also run for requests without a route.
    pub(crate) unrouted: Chain,
    /// Whether some filter answers preflights.
    pub(crate) preflights: bool,
    /// The parts of a request's target that some filter treats as secret.
    pub conceals: Option<Box<Conceals>>,
    /// How exchanges are traced.
    pub(crate) tracing: Option<Arc<Tracing>>,
    /// The tokens that certificate authorities may request over plain HTTP.
    pub(crate) tokens: Option<Tokens>,
}

/// One figure of a filter's state.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FilterStatus {
    /// Where the filter is: `routes.NAME`, `plans.NAME` or `filters`.
    pub place: String,
    /// Its name.
    pub filter: &'static str,
    /// What the figure means.
    pub what: &'static str,
    /// What it refers to, such as an upstream.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub of: String,
    /// The figure.
    pub value: u64,
    /// Its metric family.
    #[serde(skip)]
    pub figure: &'static weir_telemetry::Figure,
}

/// A compiled listener.
#[derive(Debug)]
pub struct Listener {
    /// Its name in the config.
    pub name: Arc<str>,
    /// Where it listens. `None`: another listener sends it connections.
    pub address: Option<Address>,
    /// What it does with its connections.
    pub serves: Serves,
    /// Whose connections it accepts, if not everybody's.
    pub(crate) ip: Option<Box<Admits>>,
    /// How many connections it may have.
    pub(crate) limit: Option<ConnectionLimit>,
    /// Whether something comes before the first request: a PROXY header, a handshake, a ClientHello.
    pub(crate) greets: bool,
    /// Its TLS.
    pub tls: Option<ServerTls>,
    /// Which protocols it speaks.
    pub(crate) http1: bool,
    pub(crate) h2: bool,
    /// HTTP/3, if it speaks that.
    pub http3: Option<Box<Http3>>,
    /// What its responses say in Alt-Svc.
    pub(crate) alt_svc: Option<Box<AltSvc>>,
    pub(crate) proxy_protocol: bool,
    /// What to do with empty path segments.
    pub slashes: Slashes,
    pub(crate) escaped_slashes: EscapedSlashes,
    pub(crate) timeouts: ListenerTimeouts,
    /// What it requires of a client before the first request.
    pub policy: Policy,
    pub(crate) series: ListenerId,
}

impl Listener {
    /// Whether clients connect to it over TCP, or over a Unix socket. Not if it speaks HTTP/3 alone.
    pub fn has_stream_socket(&self) -> bool {
        self.http1 || self.h2 || !matches!(self.serves, Serves::Http)
    }

    /// Called when the sockets are bound, and the doors of `http3` have their real ports.
    pub fn bound(&mut self) {
        if let Some(says) = self.http3.as_deref().and_then(AltSvc::of) {
            self.alt_svc = Some(Box::new(says));
        }
    }

    /// Whether it accepts a client's connections.
    pub(crate) fn admits(&self, client: IpAddr) -> bool {
        self.ip.as_ref().is_none_or(|ip| ip.admits(client))
    }
}

/// A digest of what a listener requires of a connection before its first request: TLS, client certificates, a PROXY
/// header, protocols.
///
/// Connections opened under another policy are no longer served: see `Core::adopt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy(pub(crate) [u8; 16]);

/// The timeouts of a client connection. Zero means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenerTimeouts {
    pub(crate) head: Duration,
    pub(crate) body: Duration,
    pub(crate) keepalive: Duration,
    pub(crate) handshake: Duration,
    /// The minimum rate of a request body in bytes per second, after its first ten seconds.
    pub(crate) rate: u64,
}

/// A compiled route.
pub struct Route {
    /// Its name in the config.
    pub name: Arc<str>,
    /// How its requests are handled.
    pub handling: Arc<Handling>,
    pub(crate) series: RouteSeries,
}

/// How a route's requests are handled.
///
/// Routes with the same handling share one object. With thousands of routes it stays in the cache, where separate
/// ones would not.
pub struct Handling {
    /// The filters in the order they run, global ones first.
    pub chain: Chain,
    /// How many of them are global.
    pub(crate) global: usize,
    /// Where its requests go.
    pub target: Target,
    /// What the route says about `%2F`; otherwise the listener's setting applies.
    pub(crate) escaped_slashes: Option<EscapedSlashes>,
    /// Whether requests may run that arrived before the end of the TLS handshake: see [`early_data`].
    ///
    /// [`early_data`]: crate::early_data
    pub early_data: bool,
    pub(crate) response_timeout: Option<Duration>,
    /// The longest an exchange may take in total.
    pub exchange_timeout: Option<Duration>,
    pub(crate) client_gone: Option<ClientGone>,
    /// Where requests go that name no file: to an upstream or a split.
    pub missing: Option<Box<Target>>,
    /// The scripts that answer, if the upstreams speak FastCGI.
    pub scripts: Option<Arc<Scripts>>,
    /// The folders whose files the upstreams may name.
    pub by_header: Option<Arc<ByHeader>>,
}

/// Filters in the order they run, by their index in [`Snapshot::filters`].
pub(crate) type Chain = Box<[u32]>;

/// Where the requests of a route go.
pub enum Target {
    /// To files of a folder.
    Files(Arc<Site>),
    /// Nowhere: one of its filters answers every request ([`Hooks::ANSWERS`](weir_filter::filter::Hooks::ANSWERS)).
    Filters,
    /// To an answer of our own.
    Respond(Box<Fixed>),
    /// To an upstream, by index.
    Upstream(usize),
    /// To one of several upstreams by weight: running totals and indexes.
    Split(Box<[(u32, usize)]>),
    /// To one of several arms with filters of their own. The last filter of the chain draws it.
    Arms(Box<[Arm]>),
}

/// The fields that a filter guarantees: see [`Filter::guards`].
#[derive(Default)]
pub(crate) struct Guards {
    pub(crate) request: NameSet,
    pub(crate) response: NameSet,
}

/// The answer of a route that has no upstream.
pub struct Fixed {
    /// The status.
    pub status: u16,
    pub(crate) headers: Vec<(FieldName, Vec<u8>)>,
    pub(crate) body: Bytes,
    /// Placeholders, delays or alternative answers, if any. The fields above are then ignored.
    pub mock: Option<Box<Mock>>,
    /// Those of its texts that hold expressions, for `explain`.
    pub expressions: Box<[WithExpressions]>,
}

/// Answers that mock a service.
pub struct Mock {
    /// The usual answer.
    pub(crate) usual: Mocked,
    /// The other answers, each with the running total of the shares: a factor from 0 to 1.
    pub mix: Vec<(f64, Mocked)>,
    /// Whether one of them reads the request's body.
    pub(crate) reads_body: bool,
}

/// One mocked answer.
pub struct Mocked {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(FieldName, Template)>,
    pub(crate) body: Template,
    /// How values are escaped in the body.
    pub(crate) escape: Escape,
    pub(crate) delay: Option<Delay>,
}

impl Mock {
    /// Chooses the answer for one request by a random number.
    pub(crate) fn choose(&self, random: u64) -> &Mocked {
        let at = (random >> 32) as f64 / 4_294_967_296.0;
        self.mix.iter().find(|(upto, _)| at < *upto).map_or(&self.usual, |(_, mocked)| mocked)
    }
}

/// A compiled filter.
pub struct Instance {
    /// The name of its kind.
    pub name: &'static str,
    /// Where it is: `routes.NAME`, `plans.NAME` or `filters`.
    pub place: Box<str>,
    /// The filter.
    pub filter: Box<dyn Filter>,
    /// Its hooks.
    pub hooks: Hooks,
    /// Whether it takes a key from the path.
    pub(crate) reads_path_key: bool,
    pub(crate) guards: Guards,
    /// The lists of filters of which it chooses one: see [`FilterKind::lists`].
    ///
    /// [`FilterKind::lists`]: weir_filter::filter::FilterKind::lists
    pub lists: Box<[List]>,
    /// Its settings with all defaults filled in, for `explain`.
    pub settings: serde_json::Value,
    /// Those of its settings that hold expressions, for the same.
    pub expressions: Box<[WithExpressions]>,
    /// A digest of the values that `settings` hides: 0 if there are none.
    pub hidden: u64,
    /// Whether the head decides alone, so that its `on_request` may run again: see [`Judged`].
    ///
    /// [`Judged`]: weir_filter::filter::Judged
    pub judged: bool,
    /// Whether it may name the caller.
    pub names_caller: bool,
}

impl Instance {
    /// The share in percent that an arm has, by its position, if the filter draws one.
    pub fn share_of(&self, arm: usize) -> Option<f64> {
        let weights = self.settings.as_object().filter(|_| self.name == arms::NAME)?;
        let weight = |name: &str| weights.get(name).and_then(serde_json::Value::as_f64);
        let total: f64 = weights.keys().filter_map(|name| weight(name)).sum();
        Some(weight(&self.lists.get(arm)?.key)? * 100.0 / total.max(1.0))
    }
}

/// A list of filters in the settings of another, or of an arm of a split.
pub struct List {
    /// The setting, or the name of the arm.
    pub key: Arc<str>,
    /// Its filters.
    pub chain: Chain,
}

/// What exchanges of consumers of sources need.
#[derive(Clone)]
pub(crate) struct Listed {
    pub(crate) directory: Arc<Directory>,
    /// The positions of plans, by name.
    pub(crate) plans: HashMap<String, usize>,
    pub(crate) telemetry: Arc<Telemetry>,
    /// How many of them a core counts one by one.
    pub(crate) series: usize,
}

/// What a plan adds to the routes of its consumers.
pub(crate) struct Plan {
    pub(crate) chain: Chain,
}

/// Variables of which exchanges are told only if the config may name them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reads {
    /// `client.sni`
    pub(crate) server_name: bool,
    /// `upstream.name`
    pub(crate) upstream: bool,
}

impl Snapshot {
    /// The snapshot before the first config: empty.
    pub fn empty() -> Self {
        Self {
            revision: String::new(),
            listeners: Vec::new(),
            admin_tls: None,
            table: Arc::new(
                Table::build(Vec::new()).unwrap_or_else(|_| unreachable!("no routes do not conflict")),
            ),
            routes: Vec::new(),
            filters: Vec::new(),
            plans: Vec::new(),
            upstreams: Vec::new(),
            consumers: Consumers::from([]),
            listed: None,
            consumer_series: Arc::from([]),
            head_limits: weir_h1::Limits::default(),
            h2: ServerLimits { streams: 0, header_bytes: 0, heads: 0, floods: FloodLimits::NONE },
            body_bytes: None,
            expression_body: 0,
            connections: 0,
            per_client: ClientLimits::default(),
            drain: Duration::ZERO,
            idle: Duration::ZERO,
            autopsy: 0,
            trusted: Vec::new(),
            expose_causes: false,
            trusted_fields: NameSet::default(),
            unrouted: Chain::default(),
            preflights: false,
            log_texts: None,
            hashed: Vec::new(),
            vocabulary: None,
            reads: Reads::default(),
            conceals: None,
            tracing: None,
            tokens: None,
        }
    }

    /// The part that a tunnel needs: one route, its upstream, and the filters that ran, renumbered from 0. A
    /// WebSocket may outlive thousands of snapshots and must not keep the one it began with.
    pub(crate) fn only(&self, route: usize, upstream: usize, filters: &[u32]) -> Self {
        let of = &self.routes[route];
        let handling = Handling {
            chain: Chain::default(),
            global: 0,
            target: Target::Upstream(0),
            escaped_slashes: None,
            early_data: false,
            response_timeout: None,
            exchange_timeout: None,
            client_gone: None,
            missing: None,
            scripts: None,
            by_header: None,
        };
        let name = Arc::clone(&of.name);
        let route = Route { name, handling: Arc::new(handling), series: of.series.clone() };
        Self {
            revision: self.revision.clone(),
            routes: vec![route],
            upstreams: vec![Arc::clone(&self.upstreams[upstream])],
            filters: filters.iter().map(|&f| Arc::clone(&self.filters[f as usize])).collect(),
            consumers: Arc::clone(&self.consumers),
            consumer_series: Arc::clone(&self.consumer_series),
            listed: self.listed.clone(),
            conceals: self.conceals.clone(),
            tracing: self.tracing.clone(),
            ..Self::empty()
        }
    }

    /// What happens to `%2F` in a path on this route, or on none, at this listener.
    pub fn escaped_slashes(&self, route: Option<RouteId>, listener: &Listener) -> EscapedSlashes {
        let route = route.and_then(|route| self.routes.get(route.index()));
        route.and_then(|route| route.handling.escaped_slashes).unwrap_or(listener.escaped_slashes)
    }

    /// Whether this preflight (Fetch §4.9) gets the same route as the request it asks about, whose method is `asked`.
    pub fn takes_preflight<H: Headers + Copy>(&self, preflight: &Request<'_, H>, asked: &[u8]) -> bool {
        let request = Request { method: asked, ..*preflight };
        self.route_has(&request, |filter| filter.hooks.has(Hooks::PREFLIGHT))
    }

    /// The path without a key in one of its segments, and the key, if the route of that path has a filter that takes
    /// one. Routing uses this path. `asked` is the method a preflight asks about.
    pub fn without_path_key<H: Headers + Copy>(
        &self,
        request: &Request<'_, H>,
        asked: Option<&[u8]>,
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        if !self.conceals.as_ref()?.path_key {
            return None;
        }
        let (path, key) = split_path_key(request.path)?;
        let mut methods = std::iter::once(request.method).chain(asked);
        let reads = |method| {
            self.route_has(&Request { method, path: &path, ..*request }, |filter| filter.reads_path_key)
        };
        methods.any(reads).then_some((path, key))
    }

    /// Whether the route of a request has a filter for which `is` holds.
    fn route_has<H: Headers>(&self, request: &Request<'_, H>, is: impl Fn(&Instance) -> bool) -> bool {
        let found = self.table.find(request, &mut NoTrace);
        let chain = found.and_then(|route| self.routes.get(route.index())).map(|route| &route.handling.chain);
        chain.is_some_and(|chain| self.has(chain, &is))
    }

    /// Whether a chain has a filter for which `is` holds, at whatever depth.
    fn has(&self, chain: &[u32], is: &dyn Fn(&Instance) -> bool) -> bool {
        chain
            .iter()
            .map(|&filter| &self.filters[filter as usize])
            .any(|instance| is(instance) || instance.lists.iter().any(|list| self.has(&list.chain, is)))
    }

    /// The filters of a chain in order, each followed by those of its lists.
    fn all_of(&self, chain: &[u32], all: &mut Vec<u32>) {
        for &filter in chain {
            all.push(filter);
            self.filters[filter as usize].lists.iter().for_each(|list| self.all_of(&list.chain, all));
        }
    }

    /// The name of the arm that a request took of its route's split, if the arms have filters: `arm` of the filter of
    /// the split among those that `ran`.
    pub(crate) fn arm_name(&self, ran: &[u32], arm: usize) -> Option<&Arc<str>> {
        let mut ran = ran.iter().filter_map(|filter| self.filters.get((filter & FILTER) as usize));
        let split = ran.find(|filter| filter.name == arms::NAME)?;
        split.lists.get(arm).map(|list| &list.key)
    }

    /// A list of filters of a filter's own.
    pub(crate) fn list_of(&self, filter: u32, list: usize) -> &[u32] {
        self.filters[filter as usize].lists.get(list).map_or(&[], |list| &list.chain)
    }

    /// How long connections may take to end when their listener's policy, or their core, is gone.
    pub const fn drain(&self) -> Duration {
        self.drain
    }

    /// Whether a peer's forwarding headers are trusted.
    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        // A dual-stack socket shows IPv4 clients as IPv6.
        let address = address.to_canonical();
        self.trusted.iter().any(|network| network.contains(&address))
    }

    /// The notes of `weir check` on filters: place, filter, and a sentence.
    pub fn notes(&self) -> impl Iterator<Item = (&str, &str, String)> + '_ {
        let own = self.filters.iter().flat_map(|instance| {
            let notes = instance.filter.notes().into_iter();
            notes.map(|note| (&*instance.place, instance.name, note))
        });
        own.chain(self.notes_of_order())
    }

    /// Notes that filters have on their neighbors: once for each place, even if many routes share it.
    fn notes_of_order(&self) -> BTreeSet<(&str, &str, String)> {
        let neighbours = |chain: &[u32]| -> Vec<Neighbour<'_>> {
            let instances = chain.iter().map(|&filter| &self.filters[filter as usize]);
            instances.map(|it| Neighbour { name: it.name, settings: &it.settings }).collect()
        };
        let mut notes = BTreeSet::new();
        for route in &self.routes {
            let mut chain = Vec::new();
            self.all_of(&route.handling.chain, &mut chain);
            for (at, &filter) in chain.iter().enumerate() {
                let instance = &self.filters[filter as usize];
                let (before, behind) = (neighbours(&chain[..at]), neighbours(&chain[at + 1..]));
                let among = instance.filter.notes_among(&before, &behind);
                notes.extend(among.into_iter().map(|note| (&*instance.place, instance.name, note)));
            }
        }
        notes
    }

    /// The figures of the filters' state.
    pub fn readings(&self) -> impl Iterator<Item = FilterStatus> + '_ {
        let sources = self.consumer_sources().iter().flat_map(|source| sources::readings(source));
        let filters = self.filters.iter().flat_map(|instance| {
            instance.filter.readings().into_iter().map(|Reading { figure, of, value }| {
                let place = instance.place.to_string();
                FilterStatus { place, filter: instance.name, what: figure.what, of, value, figure }
            })
        });
        filters.chain(sources)
    }

    /// The sources of consumers.
    pub fn consumer_sources(&self) -> &[Arc<Source>] {
        self.listed.as_ref().map_or(&[], |listed| listed.directory.sources())
    }

    /// This snapshot runs now: its sources of consumers must fit it.
    pub fn adopt_sources(&self) {
        if let Some(listed) = &self.listed {
            listed.directory.adopt();
        }
    }

    /// The plan of the caller.
    pub(crate) fn plan_of(&self, cx: &Cx) -> Option<usize> {
        let consumer = cx.consumer()?;
        let by_name = || self.listed.as_ref()?.plans.get(consumer.plan_name()?).copied();
        consumer.plan.or_else(|| cx.listed().and_then(|_| by_name()))
    }

    /// The filters of a plan that run on a route: those whose name the route's own filters do not use. Filters in
    /// lists of others, which run for some requests only, replace none.
    pub(crate) fn plan_filters<'a>(
        &'a self,
        plan: usize,
        route: &'a Handling,
    ) -> impl Iterator<Item = u32> + 'a {
        let chain = self.plans.get(plan).map(|p| &p.chain[..]).unwrap_or_default();
        chain.iter().copied().filter(|&filter| !self.is_replaced(filter, route))
    }

    /// Whether a route has a filter of its own in place of this one of a plan.
    pub(crate) fn is_replaced(&self, filter: u32, route: &Handling) -> bool {
        let filter = &self.filters[filter as usize];
        let mut own = route.chain.iter().skip(route.global);
        filter.lists.is_empty() && own.any(|&f| self.filters[f as usize].name == filter.name)
    }
}
