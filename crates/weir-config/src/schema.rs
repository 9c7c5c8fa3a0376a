//! The config as an operator writes it. Each key documents its unit, default and reason; `weir schema`, the reference
//! in docs/reference/config.md and the diagnostics are made from them.
//!
//! Reading these types checks each value alone; `check` compares values.

mod acme;
mod addresses;
mod balance;
mod bytes;
mod consumer_source;
mod discover;
mod exclusion;
mod fastcgi;
mod files;
mod health;
mod http3;
mod listener;
mod log_fields;
mod maps;
mod process;
mod route;
mod sending;
mod source;
mod split;
mod store;
mod supplied;
mod tracing;
mod upstream;
mod values;
mod version;

use schemars::JsonSchema;
use serde::Deserialize;

pub use acme::{Acme, AcmeChallenge, AcmeDns, ExternalAccount};
pub use addresses::{EndpointAddress, EndpointScheme, ListenAddress};
pub use balance::{Balancer, Bound, Hash, HashBy, Sticky};
pub use bytes::{Destination, ListenerIp, ListenerLimits, ServerName, Serves, Sni, Tcp};
pub use consumer_source::{ConsumerSource, HttpConsumers};
pub use discover::{
    ConsulDiscovery, Discover, DockerDiscovery, EtcdDiscovery, EtcdFormat, KubernetesDiscovery, Scheme,
    read_endpoints,
};
pub use exclusion::{Exclusion, Exclusions, Paths};
pub use fastcgi::FastCgi;
pub use files::{Coding, Files, FilesByHeader};
pub use health::{Health, Outlier, Probe, ProbeKind, ProbeTls, StatusRange};
pub use http3::{Advertise, Http3, Http3Retry};
pub use listener::{
    CertificateFiles, ClientAuth, ClientAuthMode, EscapedSlashes, Listener, ListenerTimeouts, ListenerTls,
    Protocol, Slashes, TlsVersion,
};
pub use log_fields::{LogField, LogText};
pub use maps::ValueMap;
pub use process::{
    AccessFormat, AccessLog, Admin, AdminAddress, AdminTls, AdminToken, Dns, DnsServer, Facility, Limits,
    Log, LogFormat, LogLevel, Role, Rotate, Secret, Shutdown, Syslog, Workers,
};
pub use route::{Case, Consumer, Credentials, Match, Mixed, Plan, Respond, Route, RouteTimeouts};
pub use sending::{ClientGone, DeadlineHeader, Hedge, Links, ProxyVersion, SourceAddress};
pub use source::{ConfigSource, EtcdSource, HttpSource};
pub use split::{Arm, Share, Split};
pub use store::{FleetStore, Store};
pub use supplied::{Supplied, Supply};
pub use tracing::{Collector, OtlpProtocol, Parents, Tracing};
pub use upstream::{
    Endpoint, HostPolicy, Retry, RetryMethods, RetryOn, Upstream, UpstreamLimits, UpstreamProtocol,
    UpstreamTimeouts, UpstreamTls,
};
pub use values::{Expression, FilePath, FilterNode, Named, Network, Output, Pairs, TextOrPath, Written};
pub use version::ConfigVersion;

/// The whole config.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The version of the language that this config is written in. This Weir reads version 1, which is the default.
    pub version: ConfigVersion,
    /// Threads that carry traffic: `auto` is one per core this process may use; or a number from 1 to 1024.
    /// Default `auto`. A change needs no restart: connections of a worker that goes end with their next answer.
    pub workers: Workers,
    /// Further files, relative to this one; `*` stands for any part of a file's name. Their named things join those
    /// here, and a name twice is an error. Included files include no others.
    pub include: Vec<String>,
    /// Where the config comes from, instead of this file; the gateway is then a node of a fleet. Default none.
    pub source: Option<ConfigSource>,
    /// Labels of this node in a fleet, such as `{ canary: "true" }`; `weir fleet publish --canary` selects nodes by
    /// them. Default none.
    pub labels: Pairs,
    /// The addresses that accept clients, by name. At least one.
    pub listeners: Named<Listener>,
    /// The services behind us, by name.
    pub upstreams: Named<Upstream>,
    /// Known callers, by name.
    pub consumers: Named<Consumer>,
    /// Files and web servers with further callers, by name. They change without a reload.
    pub consumer_sources: Named<ConsumerSource>,
    /// What a consumer may do, by name.
    pub plans: Named<Plan>,
    /// Tables from a value to a value, by name; expressions read them as `maps.NAME`.
    pub maps: Named<ValueMap>,
    /// Stores shared by several gateways, by name; a filter refers to one with `store`.
    pub stores: Named<Store>,
    /// Filters for every route, run before its own.
    pub filters: Vec<FilterNode>,
    /// Which requests go where, by name. Their order never decides which one wins.
    pub routes: Named<Route>,
    /// One line for each exchange. Default off: a line costs about 1 µs, and you should choose where it goes.
    pub access_log: AccessLog,
    /// Sends OpenTelemetry spans to a collector. Default none.
    pub tracing: Option<Tracing>,
    /// The gateway's own log.
    pub log: Log,
    /// The admin listener: API, `/metrics`, `/healthz` and `/readyz`.
    pub admin: Admin,
    /// Limits for the whole gateway.
    pub limits: Limits,
    /// Networks whose X-Forwarded-*, Forwarded and PROXY headers we trust. Default none. The client is the hop
    /// nearest to us outside these networks, by X-Forwarded-For or, without one, by the `for` of Forwarded. If that
    /// hop is not an address (`unknown`), the client is 0.0.0.0.
    pub trusted_proxies: Vec<Network>,
    /// Adds the cause to the gateway's own answers: its name in `x-weir-cause`, its meaning in the body. Default
    /// false, because causes reveal the systems behind us: clients then get the same neutral text for every cause of
    /// a status.
    pub expose_causes: bool,
    /// What happens between SIGTERM and the end.
    pub shutdown: Shutdown,
    /// Reloads when the config, what it includes, a certificate or any other file it names changes; 500 ms after the
    /// last change. Default true.
    pub watch: bool,
    /// How names of endpoints are resolved.
    pub dns: Dns,
    /// The zone of this gateway, named as in the `zone` of endpoints. Endpoints in the same zone are used first.
    /// Default none: zones do not count.
    pub zone: Option<String>,
    /// Whether the order of `routes` decides between those with equally good hosts and paths. No key: only the program
    /// that makes the config can say so, with [`Source::ranked`](crate::Source::ranked).
    #[serde(skip)]
    pub ranked: bool,
    /// Endpoints that the program around the gateway supplies. No key either: see
    /// [`Source::supplied`](crate::Source::supplied).
    #[serde(skip)]
    pub supplied: Option<Supplied>,
}

impl Config {
    /// All filters as written: those of all routes, of the plans, and of each route with its arms. Filters inside the
    /// settings of others are not among them: see [`FilterNode::all`].
    pub fn all_filters(&self) -> impl Iterator<Item = &FilterNode> {
        let plans = self.plans.iter().flat_map(|(_, plan)| &plan.filters);
        let routes = self.routes.iter().flat_map(|(_, route)| route.all_filters());
        self.filters.iter().chain(plans).chain(routes)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            version: ConfigVersion::default(),
            workers: Workers::default(),
            include: Vec::new(),
            source: None,
            labels: Pairs::default(),
            listeners: Named::default(),
            upstreams: Named::default(),
            consumers: Named::default(),
            consumer_sources: Named::default(),
            plans: Named::default(),
            maps: Named::default(),
            stores: Named::default(),
            filters: Vec::new(),
            routes: Named::default(),
            access_log: AccessLog::off(),
            tracing: None,
            log: Log::default(),
            admin: Admin::default(),
            limits: Limits::default(),
            trusted_proxies: Vec::new(),
            expose_causes: false,
            shutdown: Shutdown::default(),
            watch: true,
            dns: Dns::default(),
            zone: None,
            ranked: false,
            supplied: None,
        }
    }
}
