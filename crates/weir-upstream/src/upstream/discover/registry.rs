//! Endpoints from a registry: turns its list into an upstream's endpoints. `discovery` asks; weir-discover decides
//! what an answer means.

use crate::upstream::endpoint::{Endpoint, Place, Published};
use crate::upstream::health::Healths;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};
use weir_config::schema::{self, EndpointAddress};
use weir_discover::{Book, Instance, LeftOut, Listing};
use weir_telemetry::{Telemetry, UpstreamId, log};
use weir_wire::listen::Address;

/// An upstream whose endpoints a registry lists.
#[derive(Debug)]
pub struct Registry {
    /// The name of the upstream.
    pub upstream: Arc<str>,
    /// `consul`, `docker`, `etcd`, `file`, `kubernetes` or `srv`; `program` if the program around the gateway supplies
    /// the endpoints.
    pub kind: &'static str,
    /// Its location and the query, for people.
    pub place: String,
    /// Whether its endpoints are reached over TLS.
    pub tls: bool,
    /// The gateway's zone.
    pub zone: Option<Arc<str>>,
    /// Where the health of its endpoints is kept.
    pub healths: Arc<Healths>,
    /// Its counters.
    pub cells: UpstreamId,
    /// The current knowledge.
    pub state: Mutex<State>,
}

/// The current knowledge.
#[derive(Clone, Debug)]
pub struct State {
    /// What the registry lists, and which of it counts.
    pub book: Book,
    /// The endpoints of a file or of the program around the gateway, which need no interpretation.
    pub(crate) file: Option<Vec<Listed>>,
    /// What the names among the instances resolved to.
    pub(crate) names: Vec<(String, Vec<IpAddr>)>,
    /// When the registry last answered.
    pub answered: Option<Instant>,
    /// When it last gave an answer that counts.
    pub good: Option<SystemTime>,
    /// Since when it has not answered, if so.
    pub away: Option<SystemTime>,
}

/// An endpoint as a registry or a file lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its address.
    pub at: At,
    pub(crate) weight: u32,
    pub(crate) priority: u8,
    pub(crate) zone: Option<String>,
}

/// The address of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// A host: an address or a name.
    Host(String, u16),
    /// A socket on this machine.
    Unix(PathBuf),
}

/// Most addresses used of one name.
const ADDRESSES: usize = 64;

/// Most endpoints of one upstream, however many addresses its names have. A Service of Kubernetes may have as many.
const ENDPOINTS: usize = 10_000;

impl State {
    /// Notes that the registry answered, and whether the answer counts.
    pub(crate) fn has_answered(&mut self, counts: bool) {
        self.answered = Some(Instant::now());
        self.away = None;
        if counts {
            self.good = Some(SystemTime::now());
        }
    }

    /// Notes that it does not answer.
    pub(crate) fn is_away(&mut self) {
        self.away.get_or_insert_with(SystemTime::now);
    }

    /// The initial state: nothing is known.
    pub(crate) fn new(seed: u64) -> Self {
        Self { book: Book::new(seed), file: None, names: Vec::new(), answered: None, good: None, away: None }
    }

    /// The state of an upstream whose endpoints the program around the gateway supplies.
    pub fn supplied(seed: u64, endpoints: &[schema::Endpoint]) -> Self {
        let mut state = Self::new(seed);
        state.read(endpoints.iter().map(Listed::written).collect());
        state
    }

    /// Takes endpoints that need no interpretation. Says whether they differ from those before.
    pub(crate) fn read(&mut self, list: Vec<Listed>) -> bool {
        let _ = self.book.answered(Listing::default(), false); // counts failures only
        self.has_answered(true);
        let changed = self.file.as_ref() != Some(&list);
        self.file = Some(list);
        changed
    }

    /// What is listed.
    pub fn listed(&self) -> Vec<Listed> {
        if let Some(file) = &self.file {
            return file.clone();
        }
        let instances = self.book.good().map_or(&[][..], |good| &good.instances);
        instances.iter().map(Listed::of).collect()
    }

    /// The first unusable instances, and their total number.
    pub fn left_out(&self) -> (&[LeftOut], usize) {
        self.book.good().map_or((&[][..], 0), |good| (&good.left_out, good.unusable))
    }
}

impl Listed {
    fn of(instance: &Instance) -> Self {
        Self {
            at: At::Host(instance.host.clone(), instance.port),
            weight: instance.weight,
            priority: instance.priority,
            zone: instance.zone.clone(),
        }
    }

    /// An endpoint of a config or a file.
    pub(crate) fn written(endpoint: &schema::Endpoint) -> Self {
        Self {
            at: match &endpoint.address {
                EndpointAddress::Name { host, port } => At::Host(host.clone(), *port),
                EndpointAddress::Tcp(address) => At::Host(address.ip().to_string(), address.port()),
                EndpointAddress::Unix(path) => At::Unix(path.clone()),
            },
            weight: endpoint.weight,
            priority: endpoint.priority,
            zone: endpoint.zone.clone(),
        }
    }

    /// The name that must be resolved first.
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.at {
            At::Host(host, _) if host.parse::<IpAddr>().is_err() => Some(host),
            _ => None,
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Host(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Registry {
    /// Locks the current knowledge.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The endpoints as known. An endpoint that stays keeps its object, so that its counters continue.
    pub fn endpoints(&self, known: &[Arc<Endpoint>], telemetry: &Telemetry) -> Vec<Arc<Endpoint>> {
        let (listed, names) = {
            let state = self.state();
            (state.listed(), state.names.clone())
        };
        let mut list: Vec<Arc<Endpoint>> = Vec::with_capacity(listed.len());
        let known = by_address(known);
        let mut taken = std::collections::HashSet::with_capacity(listed.len());
        for one in &listed {
            for address in addresses(&one.at, &names) {
                if list.len() >= ENDPOINTS || !taken.insert(address.clone()) {
                    continue;
                }
                let fresh = self.described(one, &address);
                let same = known.get(&address).filter(|old| fresh.is_as(old));
                list.push(match same {
                    Some(same) => Arc::clone(same),
                    None => Arc::new(self.endpoint(fresh, address, telemetry)),
                });
            }
        }
        list
    }

    /// Publishes these endpoints, which the program around the gateway supplies, if they differ from those before.
    pub fn supply(&self, endpoints: &[schema::Endpoint], published: &Published, telemetry: &Telemetry) {
        if self.state().read(endpoints.iter().map(Listed::written).collect()) {
            self.publish(published, telemetry);
        }
    }

    /// Publishes the list if it has changed.
    pub(crate) fn publish(&self, published: &Published, telemetry: &Telemetry) {
        let before = published.list();
        let list = self.endpoints(&before, telemetry);
        if before.len() == list.len() && before.iter().zip(&list).all(|(a, b)| Arc::ptr_eq(a, b)) {
            return;
        }
        self.cells.discovered();
        log::info(
            "endpoints changed",
            &[("upstream", &self.upstream), ("endpoints", &list.len()), ("registry", &self.kind)],
        );
        published.publish(list);
    }

    fn described(&self, one: &Listed, address: &Address) -> Described {
        let (authority, server_name) = match (&one.at, address) {
            (At::Host(host, port), _) => {
                let shown = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                let implied = if self.tls { 443 } else { 80 };
                (if *port == implied { shown } else { format!("{shown}:{port}") }, host.clone())
            }
            (At::Unix(_), _) => ("localhost".to_owned(), "localhost".to_owned()),
        };
        let own = self.zone.as_deref();
        let place = Place {
            priority: one.priority,
            zone: one.zone.as_deref().map(Into::into),
            elsewhere: own.is_some() && one.zone.as_deref() != own,
        };
        Described { authority, server_name, weight: one.weight, place }
    }

    fn endpoint(&self, described: Described, address: Address, telemetry: &Telemetry) -> Endpoint {
        let label: Arc<str> = address.to_string().into();
        let cells = telemetry.endpoint(&self.upstream, &label);
        Endpoint {
            health: self.healths.of(&self.upstream, &label, &cells),
            cells,
            address,
            label,
            authority: described.authority.into(),
            server_name: described.server_name.into(),
            weight: described.weight,
            place: described.place,
        }
    }
}

/// An endpoint's attributes besides its address.
struct Described {
    authority: String,
    server_name: String,
    weight: u32,
    place: Place,
}

impl Described {
    fn is_as(&self, endpoint: &Endpoint) -> bool {
        *endpoint.authority == *self.authority
            && *endpoint.server_name == *self.server_name
            && endpoint.weight == self.weight
            && endpoint.place == self.place
    }
}

fn by_address(known: &[Arc<Endpoint>]) -> std::collections::HashMap<&Address, &Arc<Endpoint>> {
    known.iter().map(|endpoint| (&endpoint.address, endpoint)).collect()
}

fn addresses(at: &At, names: &[(String, Vec<IpAddr>)]) -> Vec<Address> {
    match at {
        At::Unix(path) => vec![Address::Unix(path.clone())],
        At::Host(host, port) => {
            let resolved = match host.parse::<IpAddr>() {
                Ok(ip) => vec![ip],
                Err(_) => names
                    .iter()
                    .find(|(name, _)| name == host)
                    .map(|(_, ips)| ips.clone())
                    .unwrap_or_default(),
            };
            resolved.into_iter().take(ADDRESSES).map(|ip| Address::Tcp(SocketAddr::new(ip, *port))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_telemetry::Setup;

    fn registry(telemetry: &Telemetry, zone: Option<&str>) -> Registry {
        Registry {
            upstream: "up".into(),
            kind: "file",
            place: String::new(),
            tls: false,
            zone: zone.map(Into::into),
            healths: Arc::default(),
            cells: telemetry.upstream("up"),
            state: Mutex::new(State::new(1)),
        }
    }

    fn at(host: &str, port: u16, weight: u32) -> Listed {
        Listed { at: At::Host(host.to_owned(), port), weight, priority: 0, zone: None }
    }

    fn shown(list: &[Arc<Endpoint>]) -> Vec<String> {
        list.iter().map(|e| format!("{} {} {}", e.label, e.authority, e.weight)).collect()
    }

    #[test]
    fn what_stays_is_the_same_object() {
        let telemetry = Telemetry::new(Setup::default());
        let registry = registry(&telemetry, None);
        let list = |all: &[Listed], known: &[Arc<Endpoint>]| {
            registry.state().file = Some(all.to_vec());
            registry.endpoints(known, &telemetry)
        };
        let first = list(&[at("10.0.0.1", 80, 1), at("10.0.0.2", 8000, 1)], &[]);
        assert_eq!(shown(&first), ["10.0.0.1:80 10.0.0.1 1", "10.0.0.2:8000 10.0.0.2:8000 1"]);
        let second = list(&[at("10.0.0.2", 8000, 1), at("10.0.0.1", 80, 7), at("::1", 90, 1)], &first);
        assert_eq!(
            shown(&second),
            ["10.0.0.2:8000 10.0.0.2:8000 1", "10.0.0.1:80 10.0.0.1 7", "[::1]:90 [::1]:90 1"]
        );
        assert!(Arc::ptr_eq(&first[1], &second[0]));
        assert!(Arc::ptr_eq(&first[0].health, &second[1].health));
    }

    #[test]
    fn an_endpoint_that_is_spoken_to_otherwise_is_another() {
        let telemetry = Telemetry::new(Setup::default());
        let plain = registry(&telemetry, None);
        let tls = Registry { tls: true, ..registry(&telemetry, None) };
        let one = at("10.0.0.1", 443, 1);
        let list = |registry: &Registry, one: Listed, known: &[Arc<Endpoint>]| {
            registry.state().file = Some(vec![one]);
            registry.endpoints(known, &telemetry)
        };
        let first = list(&plain, one.clone(), &[]);
        let same = list(&plain, one.clone(), &first);
        assert!(Arc::ptr_eq(&first[0], &same[0]));
        let others = [
            list(&tls, one.clone(), &first),
            list(&plain, Listed { weight: 2, ..one.clone() }, &first),
            list(&plain, Listed { priority: 1, ..one }, &first),
        ];
        assert!(others.iter().all(|other| !Arc::ptr_eq(&first[0], &other[0])));
        assert_eq!(
            (shown(&first), shown(&others[0])),
            (vec!["10.0.0.1:443 10.0.0.1:443 1".to_owned()], vec!["10.0.0.1:443 10.0.0.1 1".to_owned()])
        );
    }

    #[test]
    fn only_another_list_is_published() {
        let telemetry = Telemetry::new(Setup::default());
        let (registry, published) = (registry(&telemetry, None), Published::new(Vec::new()));
        let publish = |all: &[Listed]| {
            registry.state().file = Some(all.to_vec());
            registry.publish(&published, &telemetry);
            published.list()
        };
        let (a, b) = (at("10.0.0.1", 80, 1), at("10.0.0.2", 80, 1));
        let first = publish(std::slice::from_ref(&a));
        assert_eq!(shown(&first), ["10.0.0.1:80 10.0.0.1 1"]);
        assert!(Arc::ptr_eq(&first, &publish(std::slice::from_ref(&a))), "it is the same list");
        assert_eq!(shown(&publish(std::slice::from_ref(&b))), ["10.0.0.2:80 10.0.0.2 1"]);
        assert_eq!(publish(&[b, a]).len(), 2);
        assert!(publish(&[]).is_empty());
    }

    #[test]
    fn what_is_known_of_answers() {
        let mut state = State::new(1);
        assert!(state.answered.is_none() && state.left_out() == (&[][..], 0));
        state.is_away();
        let since = state.away;
        state.is_away();
        assert!(since.is_some() && state.away == since, "it is away since the first failure");
        state.has_answered(false);
        assert!(state.away.is_none() && state.answered.is_some() && state.good.is_none());
        state.has_answered(true);
        assert!(state.good.is_some());
        let one = LeftOut { id: "x".to_owned(), why: "it has no port".to_owned() };
        let listing = Listing { left_out: vec![one.clone()], unusable: 7, ..Default::default() };
        state.book.answered(listing, false);
        assert_eq!(state.left_out(), (&[one][..], 7));
    }

    #[test]
    fn hosts_are_shown_and_names_are_resolved() {
        let host = |host: &str| At::Host(host.to_owned(), 80);
        for (at, name, shown) in [
            (host("a.test"), Some("a.test"), "a.test:80"),
            (host("10.0.0.1"), None, "10.0.0.1:80"),
            (host("::1"), None, "[::1]:80"),
            (At::Unix("/run/a".into()), None, "unix:/run/a"),
        ] {
            let one = Listed { at, weight: 1, priority: 0, zone: None };
            assert_eq!((one.name(), &*one.at.to_string()), (name, shown));
        }
    }

    #[test]
    fn a_name_is_its_addresses_and_one_address_is_one_endpoint() {
        let telemetry = Telemetry::new(Setup::default());
        let registry = registry(&telemetry, Some("a"));
        let near = Listed { zone: Some("a".to_owned()), ..at("n.test", 80, 1) };
        registry.state().file = Some(vec![near, at("10.0.0.1", 80, 1), at("unknown.test", 80, 1)]);
        assert_eq!(shown(&registry.endpoints(&[], &telemetry)), ["10.0.0.1:80 10.0.0.1 1"]);
        let ips = vec!["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        registry.state().names = vec![("n.test".to_owned(), ips)];
        let list = registry.endpoints(&[], &telemetry);
        assert_eq!(shown(&list), ["10.0.0.1:80 n.test 1", "10.0.0.2:80 n.test 1"]);
        assert!(!list[0].place.elsewhere && &*list[0].server_name == "n.test");
    }
}
