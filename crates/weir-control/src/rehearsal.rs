//! Prepares a config for measuring: one origin replaces all upstreams, listeners use free ports of this machine, and
//! each route gets a request that it answers. `weir bench` runs it with one filter left out after the other.
//!
//! Nothing is omitted or changed silently: [`Rehearsal::notes`] lists what differs from the config, and a route
//! without a possible request says why. `ask` makes requests, `tree` edits and writes the config.

mod ask;
mod tree;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use weir_config::schema::{Config, Serves, UpstreamProtocol};
use weir_config::{Loaded, Node, Value};
use weir_engine::snapshot::Snapshot;
use weir_filter::password::Algorithm;
use weir_wire::base64;

/// Requests per second to which rate limits are raised: faster than any gateway.
const RATE: &str = "1000000000";

/// Value to which limits of concurrent requests are raised, and attempts below which no circuit opens.
const PLACES: &str = "1000000";
const NEVER: &str = "4294967295";

/// Settings of an upstream that the origin does not support or that would distort the measurement, and the notes
/// about them.
const NOT_FOR_THE_ORIGIN: [(&str, &str); 3] = [
    ("health.probe", "the origin is not probed"),
    ("proxy_protocol", "left out: the origin does not speak it"),
    ("source", "left out: the origin is reached over loopback"),
];

/// A config ready to be measured.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    tree: Node,
    /// The routes, in the order written.
    pub routes: Vec<Rehearsed>,
    /// Differences from the config, as sentences.
    pub notes: Vec<String>,
}

/// The measuring client's certificate.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its file, PEM. It is self-signed, so it also serves as the clients' authority.
    pub certificate: PathBuf,
    /// Its SHA-256 as 64 hexadecimal digits.
    pub fingerprint: String,
}

/// An unreachable certificate authority: port 1 is reserved for a protocol that nobody uses.
const NOBODY: &str = "https://127.0.0.1:1/weir-bench";

/// Credentials made for the rehearsal, because the config has only hashes of clients' credentials, or certificates
/// without keys.
#[derive(Debug, Default)]
struct Credentials {
    /// A consumer, and its `authorization` value.
    basic: Option<(String, String)>,
    /// Whether requests present a certificate if a listener asks for one, and the consumer that it names.
    has_certificate: bool,
    named: Option<String>,
}

/// One route.
#[derive(Clone, Debug)]
pub struct Rehearsed {
    /// Its name.
    pub name: String,
    /// A request that it answers, or why none can be made.
    pub ask: Result<Ask, String>,
    /// The filters that the request passes.
    pub filters: Vec<FilterPlace>,
    /// The filters that it cannot pass, and why: leave them out throughout.
    pub unsatisfied: Vec<(FilterPlace, String)>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Name of the listener.
    pub listener: String,
    /// Whether the listener speaks TLS.
    pub tls: bool,
    /// Whether it speaks only HTTP/2.
    pub http2: bool,
    /// Whether it asks for a client certificate, which is then the [`Identity`].
    pub identity: bool,
    /// The method.
    pub method: String,
    /// The host.
    pub host: String,
    /// Path and query.
    pub target: String,
    /// Header fields, including credentials.
    pub headers: Vec<(String, String)>,
    /// The status if the gateway itself answers; otherwise the upstream does.
    pub answers: Option<u16>,
}

/// The position of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterPlace {
    /// Its name.
    pub name: String,
    /// The list it is in, such as `routes.orders.filters`.
    pub list: String,
    /// Its index there.
    pub index: usize,
}

impl FilterPlace {
    /// The setting's path, such as `routes.orders.filters[0]`.
    pub fn path(&self) -> String {
        format!("{}[{}]", self.list, self.index)
    }
}

impl Rehearsal {
    /// Replaces upstreams by `origin`, listeners by free loopback ports, and the admin listener by the Unix socket
    /// `admin` without a token. The client has this certificate if one is required.
    pub fn new(
        loaded: &Loaded,
        snapshot: &Snapshot,
        origin: SocketAddr,
        admin: &Path,
        identity: Option<&Identity>,
    ) -> Self {
        let mut rehearsal = Self { tree: loaded.tree.clone(), routes: Vec::new(), notes: Vec::new() };
        rehearsal.process(admin);
        rehearsal.listeners(&loaded.config);
        rehearsal.upstreams(&loaded.config, origin);
        rehearsal.limits();
        let credentials = rehearsal.credentials(&loaded.config, identity);
        rehearsal.routes = ask::routes(&loaded.config, snapshot, &credentials);
        rehearsal
    }

    /// The config as JSON, which is YAML, without these filters.
    pub fn text(&self, without: &[&FilterPlace]) -> String {
        let mut tree = self.tree.clone();
        let mut places = without.to_vec();
        // From the end, so that earlier indexes stay valid.
        places.sort_by_key(|place| std::cmp::Reverse(place.index));
        for place in places {
            if let Some(Value::Seq(filters)) = tree::find(&mut tree, &place.list).map(|list| &mut list.value)
                && place.index < filters.len()
            {
                filters.remove(place.index);
            }
            // A plan's filter with the same name would replace the route's.
            for list in tree::lists(&mut tree, "plans") {
                if place.list.starts_with("routes.") {
                    list.retain(|filter| name_of(filter) != Some(&place.name));
                }
            }
        }
        tree::write(&tree)
    }

    fn process(&mut self, admin: &Path) {
        let root = &mut self.tree;
        tree::remove(root, "include");
        tree::set(root, "watch", "false");
        tree::set(root, "expose_causes", "true");
        if root.find("tracing").is_some_and(|tracing| !tracing.is_blank()) {
            tree::remove(root, "tracing");
            self.notes.push("tracing is off: no spans are sent to a collector".to_owned());
        }
        for section in ["admin", "log", "shutdown"] {
            tree::remove(root, section);
        }
        tree::set_text(root, "admin.address", &format!("unix:{}", admin.display()));
        tree::set_text(root, "log.level", "warn");
        tree::set_text(root, "shutdown.drain", "1s");
        if let Some(log) = root
            .find("access_log")
            .filter(|log| log.find("output").is_none_or(|o| o.as_text() != Some("off")))
            && !log.is_blank()
        {
            for other in ["access_log.otlp", "access_log.rotate", "access_log.syslog"] {
                tree::remove(root, other);
            }
            tree::set_text(root, "access_log.output", "/dev/null");
            self.notes.push("access_log is written to /dev/null".to_owned());
        }
    }

    fn listeners(&mut self, config: &Config) {
        for (name, listener) in config.listeners.iter() {
            let path = format!("listeners.{name}");
            if listener.serves() != Serves::Http {
                tree::remove(&mut self.tree, &path);
                self.notes.push(format!("{path}: no bytes are passed on; each listener of HTTP gets a port"));
                continue;
            }
            tree::set_text(&mut self.tree, &format!("{path}.address"), "127.0.0.1:0");
            if listener.proxy_protocol {
                tree::set(&mut self.tree, &format!("{path}.proxy_protocol"), "false");
                self.notes.push(format!("{path}: no PROXY header is sent, so none is asked for"));
            }
            let Some(tls) = &listener.tls else { continue };
            if let Some(acme) = &tls.acme {
                // A stand-in costs as much as a certificate. Nothing is ordered, because nobody listens there.
                let acme_path = format!("{path}.tls.acme");
                tree::set_text(&mut self.tree, &format!("{acme_path}.directory"), NOBODY);
                tree::set_text(&mut self.tree, &format!("{acme_path}.storage"), "acme");
                if let Some(ca) = &acme.ca {
                    tree::set_text(&mut self.tree, &format!("{acme_path}.ca"), &ca.0.to_string_lossy());
                }
                let what = "a self-signed certificate replaces those of ACME";
                self.notes.push(format!("{path}.tls: {what}"));
            }
            // Make relative paths absolute, because the new config is in another folder.
            for (index, pair) in tls.certificates.iter().enumerate() {
                let pair_path = format!("{path}.tls.certificates[{index}]");
                tree::set_text(&mut self.tree, &format!("{pair_path}.cert"), &pair.cert.0.to_string_lossy());
                tree::set_text(&mut self.tree, &format!("{pair_path}.key"), &pair.key.0.to_string_lossy());
            }
            if let Some(auth) = &tls.client_auth {
                tree::set_text(
                    &mut self.tree,
                    &format!("{path}.tls.client_auth.ca"),
                    &auth.ca.0.to_string_lossy(),
                );
            }
        }
    }

    fn upstreams(&mut self, config: &Config, origin: SocketAddr) {
        for (name, upstream) in config.upstreams.iter() {
            let path = format!("upstreams.{name}");
            tree::set_list(&mut self.tree, &format!("{path}.endpoints"), &[&origin.to_string()]);
            tree::remove(&mut self.tree, &format!("{path}.discover")); // the origin replaces its instances
            if self.tree.find(&format!("{path}.timeouts.tunnel")).is_some() {
                let what = "no tunnel is opened; plain requests stand for those that ask for a WebSocket";
                self.notes.push(format!("{path}: {what}"));
            }
            for (key, what) in NOT_FOR_THE_ORIGIN {
                let key = format!("{path}.{key}");
                if self.tree.find(&key).is_some() {
                    tree::remove(&mut self.tree, &key);
                    self.notes.push(format!("{key}: {what}"));
                }
            }
            if upstream.protocol == UpstreamProtocol::Fastcgi {
                tree::set_text(&mut self.tree, &format!("{path}.protocol"), "http1");
                self.notes.push(format!("{path}: the origin is asked by HTTP: it runs no scripts"));
                for (route, _) in config.routes.iter().filter(|(_, route)| route.fastcgi.is_some()) {
                    tree::remove(&mut self.tree, &format!("routes.{route}.fastcgi"));
                }
            }
            if upstream.tls.is_none() {
                continue;
            }
            tree::remove(&mut self.tree, &format!("{path}.tls"));
            let protocol = match upstream.protocol {
                UpstreamProtocol::H2 | UpstreamProtocol::H2c => "h2c",
                UpstreamProtocol::Auto | UpstreamProtocol::Fastcgi | UpstreamProtocol::Http1 => "http1",
            };
            tree::set_text(&mut self.tree, &format!("{path}.protocol"), protocol);
            self.notes.push(format!("{path}: the origin is asked in cleartext, by {protocol}"));
        }
    }

    /// Gives a consumer credentials that we know, if the config has none that a client could send.
    fn credentials(&mut self, config: &Config, identity: Option<&Identity>) -> Credentials {
        let mut credentials = Credentials::default();
        if let Some((name, _)) = ask::caller(config, "basic_auth")
            && let Some((pair, hash)) = basic_pair()
        {
            tree::add_text(&mut self.tree, &format!("consumers.{name}.basic_auth"), &hash);
            self.notes.push(format!(
                "consumers.{name}: has one more user for basic_auth, with a password that is known here"
            ));
            credentials.basic = Some((name.to_owned(), pair));
        }
        let Some(identity) = identity else { return credentials };
        credentials.has_certificate = true;
        for (name, listener) in config.listeners.iter() {
            if listener.tls.as_ref().is_some_and(|tls| tls.client_auth.is_some()) {
                let file = identity.certificate.to_string_lossy();
                tree::set_text(&mut self.tree, &format!("listeners.{name}.tls.client_auth.ca"), &file);
                self.notes.push(format!("listeners.{name}: clients come with a certificate made for this"));
            }
        }
        if let Some((name, _)) = ask::caller(config, "mtls_auth") {
            let told = format!("sha256:{}", identity.fingerprint);
            tree::add_text(&mut self.tree, &format!("consumers.{name}.mtls_auth"), &told);
            credentials.named = Some(name.to_owned());
        }
        credentials
    }

    /// Raises limits that would refuse most of a load; this costs the same.
    fn limits(&mut self) {
        let mut raised = Vec::new();
        for (path, filter) in tree::filters(&mut self.tree) {
            let Some(name) = name_of(filter).map(str::to_owned) else { continue };
            match name.as_str() {
                "circuit_breaker" => tree::set(filter, "circuit_breaker.minimum", NEVER),
                "concurrency" => {
                    tree::set(filter, "concurrency.requests", PLACES);
                    if filter
                        .find("concurrency.adaptive")
                        .is_some_and(|it| matches!(it.value, Value::Bool(true)))
                    {
                        tree::set(filter, "concurrency.minimum", PLACES);
                    }
                }
                "rate_limit" => {
                    tree::set(filter, "rate_limit.requests", RATE);
                    tree::set_text(filter, "rate_limit.per", "1s");
                    for key in ["burst", "limits", "store", "without_store", "strict", "lease"] {
                        tree::remove(filter, &format!("rate_limit.{key}"));
                    }
                }
                _ => continue,
            }
            raised.push(format!("{path}: {name} lets everything pass, at the same cost"));
        }
        self.notes.extend(raised);
    }
}

/// A new user: the `authorization` value, and the entry for the config.
fn basic_pair() -> Option<(String, String)> {
    let mut secret = [0; 18];
    aws_lc_rs::rand::fill(&mut secret).ok()?;
    let (user, password) = ("weir-bench", base64::encode_url(&secret));
    let hash = weir_filter::password::hash(password.as_bytes(), Algorithm::Argon2id).ok()?;
    let pair = base64::encode(format!("{user}:{password}").as_bytes());
    Some((format!("Basic {pair}"), format!("{user}:{hash}")))
}

/// The name of a filter as written.
fn name_of(filter: &Node) -> Option<&str> {
    match filter.entries() {
        [(key, _)] => Some(&key.text),
        _ => filter.as_text(),
    }
}
