//! The endpoints of a Service in Kubernetes, as its EndpointSlices list them.
//!
//! ```text
//!   list: all slices at version V ─► load ──► watch from V ─► apply, line by line ─┐
//!     ▲                                          ▲                                 │
//!     │                                          └── the watch ended as planned ◄──┤
//!     └── V was compacted (410), the watch was refused or silent, the table was full ◄┘
//! ```
//!
//! *Layout:* [`Table`] holds the slices; `attempts.rs` decides what follows when a watch or a request ends.

mod attempts;

pub use attempts::{Attempts, End, Next};

use crate::{Applied, Found, INSTANCES, Instance, Listing, host_of, short};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest list of slices, in bytes: about 0.5 KiB for each endpoint.
pub const ANSWER_BYTES: usize = 8 << 20;

/// Longest line of a watch, in bytes. A slice has at most 1,000 endpoints.
pub const LINE_BYTES: usize = 4 << 20;

/// How long the server keeps a watch open.
pub const WATCH: Duration = Duration::from_secs(300);

/// Most slices of a Service.
const SLICES: usize = 1_000;

/// Most endpoints kept, ready or not; this leaves room to name some unusable ones.
const KEPT: usize = 4 * INSTANCES;

/// Longest version. Versions are numbers today, but clients must not rely on that.
const VERSION_BYTES: usize = 128;

/// Longest name of an object in Kubernetes.
const NAME_BYTES: usize = 253;

/// The status of a version that the server no longer has: compacted, or older than what it remembers since its start.
pub const GONE: u16 = 410;

/// The label of a slice that names its Service.
const SERVICE: &str = "kubernetes.io/service-name";

/// The slices of a Service.
#[derive(Clone, Debug)]
pub struct Table {
    namespace: String,
    service: String,
    /// The name or number of the port; `None` for the only one.
    port: Option<String>,
    slices: BTreeMap<String, Slice>,
    /// The version that the table reflects; `None` if it must be read from the start.
    version: Option<String>,
    /// The newest version that is a number.
    newest: u64,
    /// There is more than we keep. If something goes, we do not know what should replace it.
    full: bool,
}

/// What is kept of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slice {
    family: Family,
    /// The number of the port at its endpoints.
    port: Result<u16, String>,
    endpoints: Vec<Kept>,
}

/// What is kept of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    id: String,
    host: Result<String, String>,
    zone: Option<String>,
    state: State,
}

/// The kind of a slice's addresses. If a Service has several, we use the first here that has endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    V4,
    V6,
    Name,
    /// One that the API did not have when this was written.
    Unknown,
}

/// Whether an endpoint gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It terminates but still serves: used if no other is ready.
    Ending,
    NotReady,
    Ready,
}

#[derive(Deserialize)]
struct WrittenList {
    metadata: WrittenMeta,
    #[serde(default)]
    items: Option<Vec<Written>>,
}

#[derive(Deserialize)]
struct WrittenEvent {
    r#type: String,
    object: Written,
}

/// A slice, or the `Status` of a watch that failed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    #[serde(default)]
    metadata: WrittenMeta,
    #[serde(default)]
    address_type: String,
    #[serde(default)]
    endpoints: Option<Vec<WrittenEndpoint>>,
    #[serde(default)]
    ports: Option<Vec<WrittenPort>>,
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenMeta {
    name: String,
    namespace: String,
    resource_version: String,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenEndpoint {
    #[serde(default)]
    addresses: Option<Vec<String>>,
    #[serde(default)]
    conditions: Option<Conditions>,
    #[serde(default)]
    zone: Option<String>,
    #[serde(default)]
    target_ref: Option<TargetRef>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Deserialize)]
struct TargetRef {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct WrittenPort {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    port: Option<u16>,
    #[serde(default)]
    protocol: Option<String>,
}

impl Table {
    /// The endpoints of a Service at the port with this name or number.
    pub fn new(namespace: &str, service: &str, port: Option<&str>) -> Self {
        Self {
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            port: port.map(str::to_owned),
            slices: BTreeMap::new(),
            version: None,
            newest: 0,
            full: false,
        }
    }

    /// Path and query of the list.
    pub fn list(&self) -> String {
        let selector = crate::consul::escaped(&format!("{SERVICE}={}", self.service));
        let namespace = crate::consul::escaped(&self.namespace);
        format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector={selector}")
    }

    /// Path and query of the watch for what changes from now on; `None` if the slices must be listed first.
    pub fn watch(&self) -> Option<String> {
        let version = crate::consul::escaped(self.version.as_ref()?);
        let (list, seconds) = (self.list(), WATCH.as_secs());
        Some(format!(
            "{list}&watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}"
        ))
    }

    /// The slices must be listed before the next watch.
    pub fn forget_version(&mut self) {
        self.version = None;
    }

    /// Reads a list. True if the server lost data: it was restored from a backup.
    ///
    /// # Errors
    /// When the body is no such list. The table stays unchanged.
    pub fn load(&mut self, body: &[u8]) -> Result<bool, String> {
        let no_list = || "the answer is not a list of EndpointSlices".to_owned();
        let list: WrittenList = serde_json::from_slice(body).map_err(|_| no_list())?;
        let version = list.metadata.resource_version;
        if version.is_empty() || version.len() > VERSION_BYTES {
            return Err(no_list());
        }
        self.slices.clear();
        self.full = false;
        for slice in list.items.iter().flatten() {
            self.put(slice);
        }
        let number = version.parse::<u64>().ok();
        let went_back = number.is_some_and(|number| number < self.newest);
        self.newest = number.unwrap_or(self.newest);
        self.version = Some(version);
        Ok(went_back)
    }

    /// Reads a line of the watch.
    pub fn apply(&mut self, line: &[u8]) -> Applied {
        let Ok(event) = serde_json::from_slice::<WrittenEvent>(line) else {
            return self.reread("the watch sent a line that is no event");
        };
        let object = event.object;
        let version = &object.metadata.resource_version;
        let is_event = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"].contains(&&*event.r#type);
        if !is_event {
            self.version = None;
            let why = format!("the watch ended with {}: {}", object.code, short(&object.message));
            return if object.code == GONE { Applied::Expired(why) } else { Applied::Reread(why) };
        }
        if version.is_empty() || version.len() > VERSION_BYTES {
            return self.reread("the watch sent an event without a version");
        }
        self.version = Some(version.clone());
        self.newest = version.parse().unwrap_or(self.newest);
        if event.r#type == "BOOKMARK" || object.metadata.namespace != self.namespace {
            return Applied::Same; // another namespace may have a slice of the same name
        }
        let name = &object.metadata.name;
        let before = self.slices.remove(name);
        if before.is_none() && !self.is_own(&object) {
            return Applied::Same;
        }
        if self.full {
            // Only a list says what should take the place of what has changed.
            return self.reread("there were more endpoints than are kept");
        }
        if event.r#type != "DELETED" {
            self.put(&object);
        }
        let is_same = self.slices.get(name) == before.as_ref() && !self.full;
        if is_same { Applied::Same } else { Applied::Changed }
    }

    /// The endpoints that get requests.
    pub fn listing(&self) -> Listing {
        // A Service of both families has a slice for each, with the same pods: one family is enough.
        let with_endpoints = self.slices.values().filter(|slice| !slice.endpoints.is_empty());
        let family = with_endpoints.map(|slice| slice.family).min();
        let slices = || self.slices.values().filter(|slice| Some(slice.family) == family);
        let is_ready = |slice: &Slice| slice.endpoints.iter().any(|one| one.state == State::Ready);
        let wanted = if slices().any(is_ready) { State::Ready } else { State::Ending };
        let read = |slice: &Slice, kept: &Kept| {
            let (host, port) = (kept.host.clone()?, slice.port.clone()?);
            let (id, version) = (kept.id.clone(), String::new());
            let instance =
                Instance { id, version, host, port, weight: 1, zone: kept.zone.clone(), priority: 0 };
            Ok(Found { instance, weight: None, since: 0 })
        };
        let all: Vec<(&str, Result<Found, String>)> = slices()
            .flat_map(|slice| slice.endpoints.iter().map(move |kept| (slice, kept)))
            .filter(|(_, kept)| kept.state == wanted)
            .map(|(slice, kept)| (kept.id.as_str(), read(slice, kept)))
            .collect();
        let mut listing = Listing::of(all.iter().map(|(id, found)| (*id, found)), 1);
        if self.full {
            listing.leave_out("", crate::too_many());
        }
        listing
    }

    fn reread(&mut self, why: &str) -> Applied {
        self.version = None;
        Applied::Reread(why.to_owned())
    }

    /// Whether a slice is one of the Service. A server that ignores the selector must not lend it endpoints of another.
    fn is_own(&self, slice: &Written) -> bool {
        let meta = &slice.metadata;
        let service = meta.labels.as_ref().and_then(|labels| labels.get(SERVICE));
        meta.namespace == self.namespace && service == Some(&self.service)
    }

    fn put(&mut self, written: &Written) {
        let name = &written.metadata.name;
        if !self.is_own(written) {
            return;
        }
        let known: usize = self.slices.values().map(|slice| slice.endpoints.len()).sum();
        if name.len() > NAME_BYTES || self.slices.len() >= SLICES {
            self.full = true;
            return;
        }
        let all = written.endpoints.as_deref().unwrap_or_default();
        let room = KEPT.saturating_sub(known);
        self.full |= all.len() > room;
        let (family, port) = (family_of(written), self.port_of(written));
        let endpoints = match family {
            Family::Unknown => all.iter().take(room.min(1)).map(|_| unknown(written)).collect(),
            _ => all.iter().take(room).map(kept).collect(),
        };
        self.slices.insert(name.clone(), Slice { family, port, endpoints });
    }

    /// The number of the port at the endpoints of a slice.
    fn port_of(&self, slice: &Written) -> Result<u16, String> {
        let tcp = |port: &&WrittenPort| port.protocol.as_deref().unwrap_or("TCP") == "TCP";
        let all: Vec<&WrittenPort> = slice.ports.iter().flatten().filter(tcp).collect();
        let number = |port: &WrittenPort| port.port.filter(|number| *number != 0);
        match (&self.port, all.as_slice()) {
            (None, [only]) => number(only).ok_or_else(|| "its port has no number".to_owned()),
            (None, []) => Err("it has no TCP port".to_owned()),
            (None, _) => Err("it has several ports: name one as `port`".to_owned()),
            (Some(wanted), all) => {
                let is_named = |port: &&&WrittenPort| port.name.as_deref() == Some(wanted);
                let has_number =
                    |port: &&&WrittenPort| number(port).is_some_and(|number| number.to_string() == *wanted);
                let found = all.iter().find(is_named).or_else(|| all.iter().find(has_number));
                let found = found.and_then(|port| number(port));
                found.ok_or_else(|| format!("it has no TCP port `{}`", short(wanted)))
            }
        }
    }
}

fn family_of(slice: &Written) -> Family {
    match slice.address_type.as_str() {
        "FQDN" => Family::Name,
        "IPv4" => Family::V4,
        "IPv6" => Family::V6,
        _ => Family::Unknown,
    }
}

/// What is kept of all endpoints of a slice whose addresses we cannot read. If a Service has no others, the last good
/// list stays and this says why; an empty list would end the service.
fn unknown(slice: &Written) -> Kept {
    let why = format!("its addresses are of the unknown type `{}`", short(&slice.address_type));
    Kept { id: short(&slice.metadata.name), host: Err(why), zone: None, state: State::Ready }
}

fn kept(endpoint: &WrittenEndpoint) -> Kept {
    // The addresses of an endpoint are interchangeable: the API says to use the first.
    let address = endpoint.addresses.iter().flatten().next();
    let host = match address {
        Some(address) => host_of(address).map_err(|what| format!("`{}` {what}", short(address))),
        None => Err("it has no address".to_owned()),
    };
    let pod = endpoint.target_ref.as_ref().map(|target| target.name.as_str()).filter(|name| !name.is_empty());
    let id = short(pod.or(address.map(String::as_str)).unwrap_or_default());
    let zone = endpoint.zone.as_deref().filter(|zone| !zone.is_empty()).map(short);
    Kept { id, host, zone, state: state_of(endpoint.conditions.unwrap_or_default()) }
}

fn state_of(conditions: Conditions) -> State {
    let Conditions { ready, serving, terminating } = conditions;
    // Unknown counts as ready, as the API says.
    let is_ready = ready.unwrap_or(true);
    match terminating.unwrap_or_default() {
        true if serving.unwrap_or(is_ready) => State::Ending,
        false if is_ready => State::Ready,
        _ => State::NotReady,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::seen;
    use serde_json::{Value, json};

    fn slice(name: &str, family: &str, endpoints: Value, ports: Value) -> Value {
        json!({
            "metadata": {
                "namespace": "shop", "name": name, "resourceVersion": "7", "labels": { SERVICE: "orders" },
            },
            "addressType": family, "endpoints": endpoints, "ports": ports,
        })
    }

    /// A slice with an endpoint for each address, at port 80.
    fn simple(name: &str, addresses: &[String]) -> Value {
        let endpoints: Vec<Value> =
            addresses.iter().map(|address| json!({ "addresses": [address] })).collect();
        slice(name, "IPv4", json!(endpoints), json!([{ "port": 80 }]))
    }

    fn list(version: &str, items: Value) -> String {
        json!({ "metadata": { "resourceVersion": version }, "items": items }).to_string()
    }

    fn event(kind: &str, version: u64, mut object: Value) -> String {
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        json!({ "type": kind, "object": object }).to_string()
    }

    fn loaded(port: Option<&str>, items: Value) -> Table {
        let mut table = Table::new("shop", "orders", port);
        assert_eq!(table.load(list("7", items).as_bytes()), Ok(false));
        table
    }

    fn read(port: Option<&str>, items: Value) -> Listing {
        loaded(port, items).listing()
    }

    fn addresses(listing: &Listing) -> Vec<String> {
        seen(listing).into_iter().map(|(address, _)| address).collect()
    }

    fn address(number: usize) -> String {
        format!("10.1.{}.{}", number / 250, number % 250 + 1)
    }

    #[test]
    fn ready_endpoints_are_used() {
        let endpoints = json!([
            { "addresses": ["10.0.0.1"], "conditions": { "ready": true }, "zone": "a", "targetRef": { "name": "p1" } },
            { "addresses": ["10.0.0.2"], "conditions": { "ready": false } },
            { "addresses": ["10.0.0.3"] },
            { "addresses": ["10.0.0.4"], "conditions": { "ready": false, "serving": true, "terminating": true } },
            { "addresses": ["10.0.0.5"], "conditions": { "ready": true, "terminating": true } },
        ]);
        let listing = read(None, json!([slice("s", "IPv4", endpoints, json!([{ "port": 80 }]))]));
        assert_eq!(addresses(&listing), ["10.0.0.1:80", "10.0.0.3:80"]);
        let first = &listing.instances[0];
        assert_eq!((first.id.as_str(), first.zone.as_deref()), ("p1", Some("a")));
        assert_eq!(listing.unusable, 0, "an endpoint that is not ready is no mistake");
    }

    #[test]
    fn terminating_endpoints_serve_while_none_is_ready() {
        let endpoints = json!([
            { "addresses": ["10.0.0.2"], "conditions": { "ready": false } },
            { "addresses": ["10.0.0.4"], "conditions": { "ready": false, "serving": true, "terminating": true } },
            { "addresses": ["10.0.0.5"], "conditions": { "serving": false, "terminating": true } },
        ]);
        let listing = read(None, json!([slice("s", "IPv4", endpoints, json!([{ "port": 80 }]))]));
        assert_eq!(addresses(&listing), ["10.0.0.4:80"]);
    }

    #[test]
    fn a_port_is_chosen_by_name_or_number() {
        let one = json!([{ "addresses": ["10.0.0.1"] }]);
        let ports = json!([
            { "name": "dns", "port": 53, "protocol": "UDP" }, { "name": "http", "port": 80 },
            { "name": "grpc", "port": 9000 },
        ]);
        let items = json!([slice("s", "IPv4", one, ports)]);
        for (port, expected) in
            [("http", "10.0.0.1:80"), ("grpc", "10.0.0.1:9000"), ("9000", "10.0.0.1:9000")]
        {
            assert_eq!(addresses(&read(Some(port), items.clone())), [expected], "{port}");
        }
        for (port, why) in [
            (None, "it has several ports: name one as `port`"),
            (Some("x"), "it has no TCP port `x`"),
            (Some("dns"), "it has no TCP port `dns`"),
        ] {
            let listing = read(port, items.clone());
            assert_eq!((listing.instances.len(), listing.left_out[0].why.as_str()), (0, why));
        }
    }

    #[test]
    fn slices_of_one_family_are_enough() {
        let ports = json!([{ "port": 80 }]);
        let v4 = slice("a", "IPv4", json!([{ "addresses": ["10.0.0.1"] }]), ports.clone());
        let v6 = slice("b", "IPv6", json!([{ "addresses": ["fd00::1"] }]), ports.clone());
        assert_eq!(addresses(&read(None, json!([v6.clone(), v4]))), ["10.0.0.1:80"]);
        let empty = slice("a", "IPv4", json!([]), ports);
        assert_eq!(read(None, json!([v6, empty])).instances[0].host, "fd00::1");
    }

    #[test]
    fn slices_of_others_are_ignored() {
        let mut service = simple("a", &[address(1)]);
        service["metadata"]["labels"][SERVICE] = json!("users");
        let mut namespace = simple("b", &[address(2)]);
        namespace["metadata"]["namespace"] = json!("other");
        let bare = json!({ "metadata": {}, "addressType": "IPv4", "endpoints": null, "ports": null });
        let mut table = loaded(None, json!([service, namespace.clone(), bare]));
        assert_eq!(table.listing(), Listing::default());
        assert_eq!(table.apply(event("ADDED", 8, namespace).as_bytes()), Applied::Same);
    }

    /// A server that ignores the path or the selector sends events of others too, even with the name of one of ours.
    #[test]
    fn events_of_others_are_ignored() {
        let mut table = loaded(None, json!([simple("a", &[address(1)])]));
        let mut namespace = simple("a", &[address(2)]);
        namespace["metadata"]["namespace"] = json!("other");
        let mut service = simple("b", &[address(3)]);
        service["metadata"]["labels"][SERVICE] = json!("users");
        let mut version = 7;
        for full in [false, true] {
            table.full = full;
            for kind in ["ADDED", "MODIFIED", "DELETED"] {
                for object in [&namespace, &service] {
                    version += 1;
                    let applied = table.apply(event(kind, version, object.clone()).as_bytes());
                    assert_eq!(applied, Applied::Same, "{kind} {object}");
                    assert_eq!(addresses(&table.listing()), ["10.1.0.2:80"], "{kind} {object}");
                    let watch = table.watch().unwrap();
                    assert!(watch.ends_with(&format!("={version}")), "the watch goes on behind it: {watch}");
                }
            }
        }
    }

    #[test]
    fn addresses_of_an_unknown_type_are_ignored_beside_others() {
        let two = json!([{ "addresses": ["x"] }, { "addresses": ["y"] }]);
        let unknown = slice("b", "IPX", two, json!([{ "port": 80 }]));
        let known = simple("a", &[address(1)]);
        let table = loaded(None, json!([unknown.clone(), known.clone()]));
        assert_eq!(
            (addresses(&table.listing()), table.listing().unusable),
            (vec!["10.1.0.2:80".to_owned()], 0)
        );
        let mut table = Table::new("shop", "orders", None);
        assert_eq!(table.load(list("7", json!([known])).as_bytes()), Ok(false));
        table.apply(event("ADDED", 8, unknown).as_bytes());
        assert_eq!(addresses(&table.listing()), ["10.1.0.2:80"]);
        // Without others they are named, so that the last good list stays.
        table.apply(event("DELETED", 9, simple("a", &[])).as_bytes());
        let listing = table.listing();
        assert_eq!((listing.instances.len(), listing.unusable), (0, 1));
        assert_eq!(
            (listing.left_out[0].id.as_str(), listing.left_out[0].why.as_str()),
            ("b", "its addresses are of the unknown type `IPX`")
        );
    }

    #[test]
    fn events_change_the_list() {
        let mut table = loaded(None, json!([simple("a", &[address(1)])]));
        assert!(table.watch().unwrap().ends_with("&resourceVersion=7"));
        let mut tell = |kind: &str, version: u64, object: Value| {
            let applied = table.apply(event(kind, version, object).as_bytes());
            (applied, addresses(&table.listing()).len(), table.watch().unwrap())
        };
        let (applied, count, watch) = tell("ADDED", 8, simple("b", &[address(2)]));
        assert_eq!((applied, count), (Applied::Changed, 2));
        assert!(watch.ends_with("&resourceVersion=8"), "{watch}");
        assert_eq!(tell("MODIFIED", 9, simple("b", &[address(2)])).0, Applied::Same);
        let (applied, count, _) = tell("MODIFIED", 10, simple("b", &[address(2), address(3)]));
        assert_eq!((applied, count), (Applied::Changed, 3));
        let (applied, _, watch) = tell("BOOKMARK", 20, json!({}));
        assert_eq!(applied, Applied::Same);
        assert!(watch.ends_with("&resourceVersion=20"), "{watch}");
        let (applied, count, _) = tell("DELETED", 21, simple("a", &[address(1)]));
        assert_eq!((applied, count), (Applied::Changed, 2));
        // One whose label names another Service now is no longer one of this.
        let mut relabelled = simple("b", &[address(2)]);
        relabelled["metadata"]["labels"][SERVICE] = json!("users");
        assert_eq!(tell("MODIFIED", 22, relabelled).1, 0);
    }

    #[test]
    fn a_version_that_is_gone_is_told_from_other_errors() {
        let error = |code: u16| {
            let object = json!({ "kind": "Status", "code": code, "message": "too old" });
            json!({ "type": "ERROR", "object": object }).to_string()
        };
        let mut table = loaded(None, json!([simple("a", &[address(1)])]));
        let expired = table.apply(error(410).as_bytes());
        assert_eq!(expired, Applied::Expired("the watch ended with 410: too old".to_owned()));
        assert_eq!(table.watch(), None);
        let mut table = loaded(None, json!([]));
        let other = table.apply(error(500).as_bytes());
        assert_eq!(other, Applied::Reread("the watch ended with 500: too old".to_owned()));
        assert_eq!(table.watch(), None);
    }

    #[test]
    fn what_is_no_event_is_read_again() {
        for line in [
            "{".to_owned(),
            r#"{"type":"ADDED","object":{}}"#.to_owned(),
            event("RENAMED", 8, simple("b", &[])),
        ] {
            let mut table = loaded(None, json!([simple("a", &[address(1)])]));
            assert!(matches!(table.apply(line.as_bytes()), Applied::Reread(_)), "{line}");
            assert_eq!(table.watch(), None);
            assert_eq!(addresses(&table.listing()).len(), 1, "what is known stays");
        }
    }

    #[test]
    fn a_server_that_was_restored_is_noticed() {
        let mut table = loaded(None, json!([simple("a", &[address(1)])]));
        assert_eq!(table.load(list("7", json!([])).as_bytes()), Ok(false));
        assert_eq!(table.load(list("3", json!([])).as_bytes()), Ok(true));
        assert_eq!(table.load(list("a7", json!(null)).as_bytes()), Ok(false), "it need not be a number");
    }

    #[test]
    fn more_than_fit() {
        let addresses: Vec<String> = (0..INSTANCES + 2).map(address).collect();
        let listing = read(None, json!([simple("a", &addresses)]));
        assert_eq!((listing.instances.len(), listing.unusable), (INSTANCES, 2));
        let pieces: Vec<Value> = (0..5)
            .map(|piece| {
                simple(
                    &format!("s{piece}"),
                    &(piece * 999..(piece + 1) * 999).map(address).collect::<Vec<_>>(),
                )
            })
            .collect();
        let mut table = loaded(None, json!(pieces));
        assert_eq!(table.slices.values().map(|slice| slice.endpoints.len()).sum::<usize>(), KEPT);
        assert_eq!(table.listing().left_out.last().unwrap().why, crate::too_many());
        let gone = event("DELETED", 8, pieces[0].clone());
        assert!(matches!(table.apply(gone.as_bytes()), Applied::Reread(_)), "another may take the place");
        let many: Vec<Value> = (0..=SLICES).map(|at| simple(&format!("s{at}"), &[])).collect();
        let table = loaded(None, json!(many));
        assert_eq!((table.slices.len(), table.full), (SLICES, true));
    }

    #[test]
    fn what_is_no_list_changes_nothing() {
        let mut table = loaded(None, json!([simple("a", &[address(1)])]));
        let long = list(&"9".repeat(VERSION_BYTES + 1), json!([]));
        for body in ["", "[]", "{}", r#"{"metadata":{}}"#, &long] {
            assert!(table.load(body.as_bytes()).is_err(), "{body}");
        }
        assert_eq!(addresses(&table.listing()).len(), 1);
        assert!(table.watch().unwrap().ends_with("=7"));
    }

    #[test]
    fn names_cannot_leave_their_path() {
        let list = Table::new("a/../b", "c&d=e", None).list();
        assert_eq!(
            list,
            "/apis/discovery.k8s.io/v1/namespaces/a%2F..%2Fb/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dc%26d%3De"
        );
    }
}
