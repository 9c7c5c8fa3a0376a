//! Asks the registries of upstreams (`discover:`) and publishes their lists. Runs on the control thread.
//!
//! ```text
//!   Order (a snapshot that runs) ─► follow ─► one task for each upstream:
//!        etcd │ consul │ docker │ kubernetes │ srv │ file ──listing──► Desk ──► Book: publish, or keep the last good
//!                                                               └──► resolve names, publish endpoints, at most 10/s
//! ```
//!
//! *Layout:* `desk` is what all kinds of registries share. Each kind has a file that only asks. weir-discover decides
//! what an answer means; `upstream/discover/registry.rs` turns it into endpoints.

mod consul;
mod desk;
mod docker;
mod etcd;
mod file;
mod kubernetes;
mod srv;

use crate::fetch::Environment;
use crate::upstream::Upstream;
use crate::upstream::discover::dns;
use crate::upstream::discover::registry::State;
use desk::Desk;
use hickory_resolver::TokioResolver;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use weir_config::schema::{self, Discover, Scheme, UpstreamProtocol};
use weir_discover::Choice;
use weir_telemetry::Telemetry;

/// The running snapshot's upstreams that have a registry.
pub struct Order {
    /// The upstreams.
    pub upstreams: Vec<Ordered>,
    /// How names are resolved.
    pub settings: dns::Settings,
    /// Counts how the registries do.
    pub telemetry: Arc<Telemetry>,
    /// Dropped once each registry was asked.
    pub first: std_mpsc::Sender<()>,
}

/// An upstream and what to ask for it.
pub struct Ordered {
    /// The upstream.
    pub upstream: Arc<Upstream>,
    /// The registry as written.
    pub discover: Discover,
    /// Which of its instances to use.
    pub choice: Choice,
}

/// What every request needs.
struct AskContext {
    environment: Arc<Environment>,
    resolver: Result<TokioResolver, String>,
    settings: dns::Settings,
}

/// Follows the registries of the latest order until orders end. Runs on a `LocalSet`, because connections do not
/// change threads.
pub async fn follow(mut orders: mpsc::UnboundedReceiver<Order>, environment: Arc<Environment>) {
    let mut tasks: HashMap<Arc<str>, (Arc<Upstream>, AbortHandle)> = HashMap::new();
    let mut before: Option<dns::Settings> = None;
    while let Some(order) = orders.recv().await {
        let as_before = before.as_ref() == Some(&order.settings);
        tasks.retain(|_, (upstream, task)| {
            let stays = as_before && order.upstreams.iter().any(|now| Arc::ptr_eq(&now.upstream, upstream));
            if !stays {
                task.abort();
            }
            stays
        });
        before = Some(order.settings.clone());
        let around = Rc::new(AskContext {
            environment: Arc::clone(&environment),
            resolver: dns::resolver(&order.settings),
            settings: order.settings,
        });
        for ordered in order.upstreams {
            let upstream = Arc::clone(&ordered.upstream);
            if tasks.contains_key(&upstream.name) {
                continue;
            }
            let first = order.first.clone();
            let work = ask(ordered, Rc::clone(&around), Arc::clone(&order.telemetry), first);
            let task = tokio::task::spawn_local(work).abort_handle();
            tasks.insert(Arc::clone(&upstream.name), (upstream, task));
        }
    }
}

/// Asks one upstream's registry until told to stop.
async fn ask(
    ordered: Ordered,
    around: Rc<AskContext>,
    telemetry: Arc<Telemetry>,
    first: std_mpsc::Sender<()>,
) {
    let Ordered { upstream, discover, choice } = ordered;
    let name = Arc::clone(&upstream.name);
    let Some(desk) = Desk::new(upstream, telemetry, first) else { return };
    let asked = async {
        let Discover { consul, docker, etcd, file, kubernetes, srv } = &discover;
        let broken = match (etcd, consul, docker, kubernetes, srv, file) {
            (Some(etcd), ..) => etcd::follow(etcd, choice, &around, &desk).await,
            (_, Some(consul), ..) => consul::follow(consul, choice, &around, &desk).await,
            (_, _, Some(docker), ..) => docker::follow(docker, &name, choice, &around, &desk).await,
            (_, _, _, Some(kubernetes), ..) => kubernetes::follow(kubernetes, &around, &desk).await,
            (.., Some(name), _) => srv::follow(name, &around, &desk).await,
            (.., Some(file)) => file::follow(&file.0, &desk).await,
            _ => Ok(std::future::pending().await),
        };
        // If asking is impossible, the config has a mistake that only shows here, such as an invalid certificate.
        let Err(why) = broken;
        desk.failed(why);
        std::future::pending::<()>().await;
    };
    tokio::join!(asked, desk.serve(&around));
}

/// Which of the listed instances an upstream uses.
pub fn choice(written: &schema::Upstream) -> Choice {
    let discover = written.discover.as_ref();
    let etcd = discover.and_then(|discover| discover.etcd.as_ref());
    let consul = discover.and_then(|discover| discover.consul.as_ref());
    let scheme =
        etcd.and_then(|etcd| etcd.scheme).or_else(|| consul?.scheme).unwrap_or(match written.protocol {
            UpstreamProtocol::H2 | UpstreamProtocol::H2c => Scheme::Grpc,
            UpstreamProtocol::Auto | UpstreamProtocol::Fastcgi | UpstreamProtocol::Http1 => Scheme::Http,
        });
    let scheme = match scheme {
        Scheme::Grpc => "grpc",
        Scheme::Http => "http",
    };
    let docker = discover.and_then(|discover| discover.docker.as_ref());
    let version = etcd.and_then(|etcd| etcd.version.clone()).or_else(|| consul?.version.clone());
    let version = version.or_else(|| docker?.version.clone());
    Choice { scheme: scheme.to_owned(), tls: written.tls.is_some(), version }
}

/// The kind of registry, its location and the query, for people.
pub fn place(name: &str, written: &schema::Upstream) -> Option<(&'static str, String)> {
    let discover = written.discover.as_ref()?;
    let origin =
        |servers: &[crate::fetch::Url]| servers.first().map_or_else(String::new, crate::fetch::Url::origin);
    let choice = choice(written);
    let version = choice.version.map_or_else(String::new, |version| format!(" version {version}"));
    if let Some(etcd) = &discover.etcd {
        let (at, key) = (origin(&etcd.servers), etcd.key.trim_end_matches('/'));
        let how = match etcd.format {
            Some(schema::EtcdFormat::GoZero) => "go_zero".to_owned(),
            _ => format!("kratos, {}{version}", choice.scheme),
        };
        return Some(("etcd", format!("{at} {key} ({how})")));
    }
    if let Some(consul) = &discover.consul {
        let tag = consul.tag.as_ref().map_or_else(String::new, |tag| format!(" tag {tag}"));
        let (at, service) = (origin(&consul.servers), &consul.service);
        return Some(("consul", format!("{at} {service}{tag} ({}{version})", choice.scheme)));
    }
    if let Some(docker) = &discover.docker {
        let service = docker.service.as_deref().unwrap_or(name);
        let network = docker.network.as_ref().map_or_else(String::new, |name| format!(" network {name}"));
        return Some(("docker", format!("{} {service}{network}{version}", docker.address)));
    }
    if let Some(kubernetes) = &discover.kubernetes {
        let (at, service) = (origin(&kubernetes.servers), &kubernetes.service);
        let port = kubernetes.port.as_ref().map_or_else(String::new, |port| format!(" port {port}"));
        return Some(("kubernetes", format!("{at} {}/{service}{port}", kubernetes.namespace)));
    }
    if let Some(name) = &discover.srv {
        return Some(("srv", name.clone()));
    }
    discover.file.as_ref().map(|file| ("file", file.0.display().to_string()))
}

/// An upstream's initial state: what its predecessor knew, if it asked the same.
pub fn begin(written: &schema::Upstream, before: Option<(&schema::Upstream, &Upstream)>, seed: u64) -> State {
    let same = before.filter(|(old, _)| old.discover == written.discover && choice(old) == choice(written));
    let known = same.and_then(|(_, old)| Some(old.registry.as_ref()?.state().clone()));
    known.unwrap_or_else(|| State::new(seed))
}

/// The pause after an answer, so that a registry that changes constantly costs little.
const PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::{Source, load};

    fn upstream(settings: &str) -> schema::Upstream {
        let text = format!("upstreams: {{ u: {{ {settings} }} }}\n");
        load(&Source::text("/t.yaml", text)).unwrap().config.upstreams.get("u").unwrap().clone()
    }

    #[test]
    fn a_registry_is_shown_with_what_is_asked() {
        for (settings, kind, shown) in [
            (
                "discover: { etcd: { servers: [ \"http://127.0.0.1:2379\" ], key: /microservices/orders/ } }",
                "etcd",
                "http://127.0.0.1:2379 /microservices/orders (kratos, http)",
            ),
            (
                "protocol: h2c, discover: { etcd: { servers: [ \"http://127.0.0.1:2379\" ], key: /o, version: v2 } }",
                "etcd",
                "http://127.0.0.1:2379 /o (kratos, grpc version v2)",
            ),
            (
                "discover: { etcd: { servers: [ \"http://127.0.0.1:2379\" ], key: o.rpc, format: go_zero } }",
                "etcd",
                "http://127.0.0.1:2379 o.rpc (go_zero)",
            ),
            (
                "discover: { consul: { servers: [ \"http://127.0.0.1:8500\" ], service: o, tag: blue, scheme: grpc } }",
                "consul",
                "http://127.0.0.1:8500 o tag blue (grpc)",
            ),
            ("discover: { docker: {} }", "docker", "unix:/var/run/docker.sock u"),
            (
                "discover: { docker: { address: 127.0.0.1:2375, service: o, network: back, version: v2 } }",
                "docker",
                "127.0.0.1:2375 o network back version v2",
            ),
            (
                "discover: { kubernetes: { namespace: shop, service: o } }",
                "kubernetes",
                "https://kubernetes.default.svc shop/o",
            ),
            (
                "discover: { kubernetes: { namespace: shop, service: o, port: 8080 } }",
                "kubernetes",
                "https://kubernetes.default.svc shop/o port 8080",
            ),
            ("discover: { srv: _http._tcp.o.test }", "srv", "_http._tcp.o.test"),
            ("discover: { file: o.yaml }", "file", "/o.yaml"),
        ] {
            assert_eq!(place("u", &upstream(settings)), Some((kind, shown.to_owned())), "{settings}");
        }
        assert_eq!(place("u", &upstream("endpoints: [ 127.0.0.1:1 ]")), None);
    }

    #[test]
    fn instances_are_chosen_by_what_the_upstream_speaks() {
        let consul = "discover: { consul: { servers: [ \"http://127.0.0.1:8500\" ], service: o } }";
        for (protocol, scheme) in [("http1", "http"), ("auto", "http"), ("h2c", "grpc")] {
            let choice = choice(&upstream(&format!("protocol: {protocol}, {consul}")));
            assert_eq!((&*choice.scheme, choice.tls), (scheme, false));
        }
        let choice = choice(&upstream(&format!("protocol: h2, tls: {{}}, {consul}")));
        assert_eq!((&*choice.scheme, choice.tls), ("grpc", true));
    }
}
