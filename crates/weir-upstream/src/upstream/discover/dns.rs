//! Endpoints from DNS: every address of a name is an endpoint, looked up again when its time to live is over.
//!
//! The system's `getaddrinfo` reports no time to live, so our own resolver asks (hickory), with the system's servers
//! and hosts file. The last good answer is kept until there is a better one: a DNS outage takes nothing down.

use crate::upstream::endpoint::{Endpoint, Place, Published};
use crate::upstream::health::Healths;
use hickory_resolver::TokioResolver;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_telemetry::{Telemetry, log};
use weir_wire::listen::Address;

/// An upstream's endpoints as written.
#[derive(Debug)]
pub struct Names {
    /// The name of the upstream.
    pub upstream: Arc<str>,
    /// Where the health of their addresses is kept.
    pub healths: Arc<Healths>,
    /// The endpoints given by address.
    pub fixed: Vec<Arc<Endpoint>>,
    /// The names.
    pub names: Vec<Name>,
}

/// One name.
#[derive(Debug)]
pub struct Name {
    /// The name itself.
    pub host: String,
    /// The port of its addresses.
    pub port: u16,
    /// The weight of each of them.
    pub weight: u32,
    /// Their priority and zone.
    pub place: Place,
    /// Host and port as written in the config.
    pub authority: Arc<str>,
    /// What it last resolved to.
    pub resolved: Mutex<Resolved>,
}

/// What a name resolved to, for people.
#[derive(Clone, Debug, Default)]
pub struct Resolved {
    /// The addresses.
    pub addresses: Vec<IpAddr>,
    /// When it was resolved.
    pub at: Option<Instant>,
    /// Why the last attempt brought nothing better.
    pub error: Option<String>,
}

/// How names are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name servers; empty for the system's.
    pub servers: Vec<SocketAddr>,
    /// The shortest time to use an answer.
    pub min_ttl: Duration,
    /// The longest time to use an answer.
    pub max_ttl: Duration,
}

/// The pause after a failed lookup.
const RETRY: Duration = Duration::from_secs(2);

/// Most endpoints of one name. A longer answer is cut, and the log says so.
const MAX_ADDRESSES: usize = 256;

/// A resolver.
///
/// # Errors
/// If the system's settings cannot be read.
pub fn resolver(settings: &Settings) -> Result<TokioResolver, String> {
    use hickory_resolver::config::{NameServerConfig, ResolverConfig, ResolverOpts};
    use hickory_resolver::net::runtime::TokioRuntimeProvider;
    let mut builder = if settings.servers.is_empty() {
        TokioResolver::builder_tokio().map_err(|e| format!("the system's resolver settings: {e}"))?
    } else {
        let servers = settings.servers.iter().map(|address| {
            let mut server = NameServerConfig::udp_and_tcp(address.ip());
            for connection in &mut server.connections {
                connection.port = address.port();
            }
            server
        });
        let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = ResolverOpts::default();
        builder
    };
    let options = builder.options_mut();
    options.timeout = Duration::from_secs(2);
    options.attempts = 2;
    options.cache_size = 0; // we keep the answers, for exactly their time to live
    builder.build().map_err(|e| e.to_string())
}

/// Keeps an upstream's endpoints up to date until dropped. `first` is dropped when every name was asked for once.
pub async fn keep(
    names: Arc<Names>,
    published: Arc<Published>,
    resolver: TokioResolver,
    settings: Settings,
    telemetry: Arc<Telemetry>,
    mut first: Option<std::sync::mpsc::Sender<()>>,
) {
    let before = published.list();
    let mut answers: Vec<Vec<IpAddr>> = names.names.iter().map(|n| sorted(n.known(&before))).collect();
    drop(before);
    if answers.iter().all(|known| !known.is_empty()) {
        drop(first.take()); // known endpoints serve until then
    }
    let mut due: Vec<Instant> = vec![Instant::now(); names.names.len()];
    loop {
        let mut changed = false;
        for (i, name) in names.names.iter().enumerate() {
            if due[i] > Instant::now() {
                continue;
            }
            let (fresh, wait) = look_up(&resolver, name, &names.upstream, &settings).await;
            due[i] = Instant::now() + wait;
            if let Some(fresh) = fresh
                && fresh != answers[i]
            {
                answers[i] = fresh;
                changed = true;
            }
        }
        if changed {
            publish(&names, &published, &answers, &telemetry);
        }
        drop(first.take());
        let next = due.iter().min().copied().unwrap_or_else(Instant::now);
        tokio::time::sleep_until(next.into()).await;
    }
}

/// A name's addresses, sorted, and when to ask again. `None` for no answer or a bad one.
async fn look_up(
    resolver: &TokioResolver,
    name: &Name,
    upstream: &str,
    settings: &Settings,
) -> (Option<Vec<IpAddr>>, Duration) {
    match resolver.lookup_ip(name.host.as_str()).await {
        Ok(found) => {
            let ttl = found.valid_until().saturating_duration_since(Instant::now());
            let mut addresses = sorted(found.iter());
            if addresses.len() > MAX_ADDRESSES {
                let fields: &[(&str, &dyn std::fmt::Display)] =
                    &[("upstream", &upstream), ("name", &name.host), ("kept", &MAX_ADDRESSES)];
                log::warn("name has too many addresses", fields);
                addresses.truncate(MAX_ADDRESSES);
            }
            let usable = !addresses.is_empty();
            name.note(if usable { Ok(&addresses) } else { Err("the answer has no address".to_owned()) });
            (usable.then_some(addresses), ttl.clamp(settings.min_ttl, settings.max_ttl))
        }
        Err(e) => {
            static SEEN: log::PerSubject = log::per_subject(1, Duration::from_secs(10));
            let e = words(&e);
            SEEN.warn(
                (upstream, &name.host),
                "name did not resolve",
                &[("upstream", &upstream), ("name", &name.host), ("error", &e)],
            );
            name.note(Err(e));
            (None, RETRY)
        }
    }
}

/// Why a name did not resolve, for people: the resolver's own text shows its types.
pub(crate) fn words(e: &NetError) -> String {
    let answered = |code: ResponseCode| match code {
        ResponseCode::NXDomain => "there is no such name (NXDOMAIN)".to_owned(),
        ResponseCode::NoError => "the name has no record of this kind".to_owned(),
        ResponseCode::Refused => "the name server refuses to answer (REFUSED)".to_owned(),
        ResponseCode::ServFail => "the name server failed (SERVFAIL)".to_owned(),
        other => format!("the name server answered: {other}"),
    };
    match e {
        NetError::Dns(DnsError::NoRecordsFound(none)) => answered(none.response_code),
        NetError::Dns(DnsError::ResponseCode(code)) => answered(*code),
        NetError::Io(e) => format!("no name server could be asked: {e}"),
        NetError::NoConnections => "no name server could be reached".to_owned(),
        NetError::Timeout => "no name server answered in time".to_owned(),
        other => other.to_string(),
    }
}

fn sorted(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = addresses.collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn publish(names: &Names, published: &Published, answers: &[Vec<IpAddr>], telemetry: &Telemetry) {
    let mut answers = answers.iter();
    let known = published.list();
    let answer = |_: &Name| answers.next().cloned().unwrap_or_default();
    let list = names.endpoints(answer, &known, telemetry);
    log::info("endpoints changed", &[("upstream", &names.upstream), ("endpoints", &list.len())]);
    published.publish(list);
}

// === impl Names ===

impl Names {
    /// The fixed endpoints and those that the names resolve to, each once. Calls `answers` for every name in turn.
    pub fn endpoints(
        &self,
        mut answers: impl FnMut(&Name) -> Vec<IpAddr>,
        known: &[Arc<Endpoint>],
        telemetry: &Telemetry,
    ) -> Vec<Arc<Endpoint>> {
        let mut list = self.fixed.clone();
        for name in &self.names {
            for ip in answers(name) {
                let address = Address::Tcp(SocketAddr::new(ip, name.port));
                // The same address written twice, or two names with one address and the same authority.
                let is_same = |e: &Arc<Endpoint>| e.address == address && e.authority == name.authority;
                if list.iter().any(is_same) {
                    continue;
                }
                // An endpoint that stays keeps its object, so that its counters continue.
                let same =
                    known.iter().find(|e| is_same(e) && e.weight == name.weight && e.place == name.place);
                list.push(same.cloned().unwrap_or_else(|| {
                    let label: Arc<str> = address.to_string().into();
                    let cells = telemetry.endpoint(&self.upstream, &label);
                    Arc::new(Endpoint {
                        health: self.healths.of(&self.upstream, &label, &cells),
                        cells,
                        address,
                        label,
                        authority: Arc::clone(&name.authority),
                        server_name: name.host.as_str().into(),
                        weight: name.weight,
                        place: name.place.clone(),
                    })
                }));
            }
        }
        list
    }
}

impl Name {
    fn note(&self, answer: Result<&[IpAddr], String>) {
        let mut resolved = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Ok(addresses) => {
                *resolved = Resolved { addresses: addresses.to_vec(), at: Some(Instant::now()), error: None };
            }
            Err(error) => resolved.error = Some(error),
        }
    }

    /// Its addresses among these endpoints.
    pub fn known<'a>(&'a self, endpoints: &'a [Arc<Endpoint>]) -> impl Iterator<Item = IpAddr> + 'a {
        endpoints.iter().filter(|e| *e.server_name == *self.host).filter_map(|e| match e.address {
            Address::Tcp(at) if at.port() == self.port => Some(at.ip()),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_telemetry::Setup;

    fn name(host: &str, weight: u32) -> Name {
        let (place, resolved) = Default::default();
        Name { host: host.to_owned(), port: 80, weight, place, authority: host.into(), resolved }
    }

    #[test]
    fn another_weight_keeps_the_addresses() {
        let telemetry = Telemetry::new(Setup::default());
        let ips: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        let of = |names| Names { upstream: "u".into(), healths: Arc::default(), fixed: Vec::new(), names };
        let old = of(vec![name("a.test", 1)]);
        let old = old.endpoints(|_| ips.to_vec(), &[], &telemetry);
        let new = of(vec![name("new.test", 1), name("a.test", 5)]);
        let new = new.endpoints(|n| n.known(&old).collect(), &old, &telemetry);
        let seen: Vec<_> = new.iter().map(|e| (e.label.to_string(), e.weight)).collect();
        assert_eq!(seen, [("10.0.0.1:80".to_owned(), 5), ("10.0.0.2:80".to_owned(), 5)]);
    }

    #[test]
    fn two_names_at_one_address_are_two() {
        let telemetry = Telemetry::new(Setup::default());
        let names = Names {
            upstream: "u".into(),
            healths: Arc::default(),
            fixed: Vec::new(),
            names: vec![name("a.test", 1), name("b.test", 1)],
        };
        let ip: IpAddr = "10.0.0.1".parse().unwrap();
        let list = names.endpoints(|_| vec![ip], &[], &telemetry);
        let authorities: Vec<&str> = list.iter().map(|e| &*e.authority).collect();
        assert_eq!(authorities, ["a.test", "b.test"]);
        let known = |name: Name| name.known(&list).collect::<Vec<_>>();
        assert_eq!(known(name("a.test", 1)), [ip]);
        assert!(known(Name { port: 81, ..name("a.test", 1) }).is_empty());
    }

    #[test]
    fn answers_are_published_once_each_and_in_order() {
        let telemetry = Telemetry::new(Setup::default());
        let ip = |last: u8| IpAddr::from([10, 0, 0, last]);
        assert_eq!(sorted([ip(2), ip(1), ip(2)].into_iter()), [ip(1), ip(2)]);
        let names = Names {
            upstream: "u".into(),
            healths: Arc::default(),
            fixed: Vec::new(),
            names: vec![name("a.test", 1)],
        };
        let published = Published::new(Vec::new());
        publish(&names, &published, &[vec![ip(1), ip(2)]], &telemetry);
        let labels: Vec<String> = published.list().iter().map(|e| e.label.to_string()).collect();
        assert_eq!(labels, ["10.0.0.1:80", "10.0.0.2:80"]);
    }

    #[test]
    fn errors_are_told_in_words() {
        use hickory_resolver::net::NoRecords;
        use hickory_resolver::proto::op::Query;
        let none = |code| NetError::Dns(DnsError::NoRecordsFound(NoRecords::new(Query::default(), code)));
        for (e, said) in [
            (none(ResponseCode::NXDomain), "there is no such name (NXDOMAIN)"),
            (none(ResponseCode::NoError), "the name has no record of this kind"),
            (none(ResponseCode::ServFail), "the name server failed (SERVFAIL)"),
            (
                NetError::Dns(DnsError::ResponseCode(ResponseCode::Refused)),
                "the name server refuses to answer (REFUSED)",
            ),
            (NetError::Timeout, "no name server answered in time"),
            (NetError::NoConnections, "no name server could be reached"),
        ] {
            assert_eq!(words(&e), said);
        }
    }

    #[test]
    fn an_error_leaves_the_last_answer() {
        let (name, ip) = (name("a.test", 1), "10.0.0.1".parse().unwrap());
        let resolved = || name.resolved.lock().unwrap().clone();
        name.note(Err("it is away".to_owned()));
        assert!(resolved().addresses.is_empty() && resolved().at.is_none());
        name.note(Ok(&[ip]));
        assert_eq!((resolved().addresses, resolved().error), (vec![ip], None));
        name.note(Err("it is away".to_owned()));
        assert_eq!((resolved().addresses, resolved().error.as_deref()), (vec![ip], Some("it is away")));
        assert!(resolved().at.is_some());
    }

    #[test]
    fn a_name_written_twice_is_one() {
        let telemetry = Telemetry::new(Setup::default());
        let names = Names {
            upstream: "u".into(),
            healths: Arc::default(),
            fixed: Vec::new(),
            names: vec![name("a.test", 1), name("a.test", 1)],
        };
        let list = names.endpoints(|_| vec!["10.0.0.1".parse().unwrap()], &[], &telemetry);
        assert_eq!(list.len(), 1);
        let again = names.endpoints(|n| n.known(&list).collect(), &list, &telemetry);
        assert!(Arc::ptr_eq(&list[0], &again[0]));
    }
}
