//! The running containers of a Docker engine that name a service in a label.
//!
//! Labels give an endpoint and nothing else: whoever may start a container must not thereby write routes, filters or
//! hosts. The list is read whole after every event, because an event tells less than the list.

use crate::{Choice, Found, INSTANCES, Instance, Listing, VALUE_BYTES, host_of, short, weight};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Longest list of containers, in bytes: about 4 KiB for each of 2,000.
pub const ANSWER_BYTES: usize = 8 << 20;

/// Most containers read; this leaves room to name some unusable ones.
const READ: usize = 4 * INSTANCES;

/// The label that names the service.
const SERVICE: &str = "weir.service";

/// Every label that Weir reads.
const LABELS: [&str; 7] =
    [SERVICE, "weir.network", "weir.port", "weir.priority", "weir.version", "weir.weight", "weir.zone"];

/// A service in a Docker engine.
#[derive(Clone, Debug)]
pub struct Containers {
    service: String,
    /// The network whose addresses to use, unless a label names one.
    network: Option<String>,
    choice: Choice,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    id: String,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    created: i64,
    #[serde(default)]
    state: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    ports: Option<Vec<Port>>,
    #[serde(default)]
    host_config: HostConfig,
    #[serde(default)]
    network_settings: Option<NetworkSettings>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Port {
    private_port: u16,
    #[serde(default, rename = "Type")]
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct HostConfig {
    network_mode: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NetworkSettings {
    #[serde(default)]
    networks: Option<BTreeMap<String, Network>>,
}

#[derive(Deserialize)]
struct Network {
    #[serde(default, rename = "IPAddress")]
    v4: String,
    #[serde(default, rename = "GlobalIPv6Address")]
    v6: String,
}

impl Containers {
    /// The containers whose label `weir.service` is this name.
    pub fn new(service: &str, network: Option<&str>, choice: Choice) -> Self {
        Self { service: service.to_owned(), network: network.map(str::to_owned), choice }
    }

    /// Path and query of the list. Without a version in the path, the engine answers in its newest one.
    pub fn list(&self) -> String {
        format!(
            "/containers/json?filters={}",
            crate::consul::escaped(&self.filters(&[("status", &["running"])]))
        )
    }

    /// Path and query of the stream of events after which the list may differ.
    pub fn events(&self) -> String {
        // Not `exec_*`: a container with a health check has three of them at each check.
        let events = ["die", "health_status", "pause", "rename", "start", "unpause"];
        let filters = self.filters(&[("event", &events), ("type", &["container"])]);
        format!("/events?filters={}", crate::consul::escaped(&filters))
    }

    fn filters(&self, more: &[(&str, &[&str])]) -> String {
        let label = format!("{SERVICE}={}", self.service);
        let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::from([("label", vec![&*label])]);
        all.extend(more.iter().map(|(name, values)| (*name, values.to_vec())));
        serde_json::to_string(&all).unwrap_or_default() // texts and lists
    }

    /// Reads a list.
    ///
    /// # Errors
    /// When the body is none.
    pub fn listing(&self, body: &[u8]) -> Result<Listing, String> {
        let all: Vec<Listed> =
            serde_json::from_slice(body).map_err(|_| "the answer is not a list of containers".to_owned())?;
        let named: Vec<(String, Result<Found, String>)> =
            all.iter().take(READ).map(|listed| (name_of(listed), self.found(listed))).collect();
        let mut listing = Listing::of(named.iter().map(|(id, found)| (id.as_str(), found)), 1);
        for listed in all.iter().skip(READ) {
            listing.leave_out(&name_of(listed), crate::too_many());
        }
        Ok(listing)
    }

    fn found(&self, listed: &Listed) -> Result<Found, String> {
        let none = BTreeMap::new();
        let labels = listed.labels.as_ref().unwrap_or(&none);
        let label = |name: &str| labels.get(name).map(|text| text.trim()).filter(|text| !text.is_empty());
        // An engine that ignores the filters must not lend other containers to this service.
        if label(SERVICE) != Some(&*self.service) {
            return Err(format!("its label {SERVICE} names another service"));
        }
        if let Some((name, _)) = labels.iter().find(|(name, text)| {
            name.starts_with("weir.") && (!LABELS.contains(&name.as_str()) || text.len() > VALUE_BYTES)
        }) {
            return Err(format!("it has the label `{}`; expected one of {}", short(name), LABELS.join(", ")));
        }
        if !listed.state.is_empty() && listed.state != "running" {
            return Err(format!("it is {}", short(&listed.state)));
        }
        // The list tells health only in the text for people: `Up 2 minutes (health: starting)`.
        if let Some(health) = ["unhealthy", "health: starting"].iter().find(|is| listed.status.contains(**is))
        {
            return Err(format!("its health check says {}", health.trim_start_matches("health: ")));
        }
        if let Some(version) = &self.choice.version
            && label("weir.version") != Some(version)
        {
            return Err(format!("it is version `{}`", short(label("weir.version").unwrap_or_default())));
        }
        let weight = match label("weir.weight") {
            Some(text) => Some(weight(text).ok_or_else(|| format!("its weight is `{}`", short(text)))?),
            None => None,
        };
        let priority = label("weir.priority").map_or(Ok(0), |text| {
            text.parse().map_err(|_| format!("its priority is `{}`; expected 0 to 255", short(text)))
        })?;
        let instance = Instance {
            id: name_of(listed),
            version: short(label("weir.version").unwrap_or_default()),
            host: self.host(listed, label("weir.network"))?,
            port: port(listed, label("weir.port"))?,
            weight: 1,
            zone: label("weir.zone").map(short),
            priority,
        };
        Ok(Found { instance, weight, since: listed.created.try_into().unwrap_or_default() })
    }

    /// The container's address in the network that a label or the config names, else in its only one.
    fn host(&self, listed: &Listed, wanted: Option<&str>) -> Result<String, String> {
        if listed.host_config.network_mode == "host" {
            return Ok("127.0.0.1".to_owned());
        }
        let networks =
            listed.network_settings.iter().filter_map(|settings| settings.networks.as_ref()).flatten();
        let mut with_address =
            networks.filter(|(_, network)| !network.v4.is_empty() || !network.v6.is_empty());
        let (name, network) = match wanted.or(self.network.as_deref()) {
            Some(wanted) => with_address
                .find(|(name, _)| *name == wanted)
                .ok_or_else(|| format!("it has no address in the network `{}`", short(wanted)))?,
            None => {
                let first = with_address.next().ok_or_else(|| "it has no address".to_owned())?;
                if let Some((other, _)) = with_address.next() {
                    let (one, other) = (short(first.0), short(other));
                    return Err(format!("it is in the networks {one} and {other}: name one as `network`"));
                }
                first
            }
        };
        let address = if network.v4.is_empty() { &network.v6 } else { &network.v4 };
        host_of(address).map_err(|what| format!("`{}` in the network {} {what}", short(address), short(name)))
    }
}

/// The port that a label names, else the only one that the container exposes.
fn port(listed: &Listed, label: Option<&str>) -> Result<u16, String> {
    if let Some(text) = label {
        let port = text.parse().ok().filter(|port| *port != 0);
        return port.ok_or_else(|| format!("its port is `{}`; expected 1 to 65535", short(text)));
    }
    let exposed = listed.ports.iter().flatten().filter(|port| port.kind != "udp" && port.kind != "sctp");
    let mut ports: Vec<u16> = exposed.map(|port| port.private_port).filter(|port| *port != 0).collect();
    ports.sort_unstable();
    ports.dedup();
    match ports.as_slice() {
        [port] => Ok(*port),
        [] => Err("it exposes no port: name one in the label weir.port".to_owned()),
        _ => Err("it exposes several ports: name one in the label weir.port".to_owned()),
    }
}

fn name_of(listed: &Listed) -> String {
    let name = listed.names.first().map(|name| name.trim_start_matches('/')).filter(|name| !name.is_empty());
    short(name.unwrap_or_else(|| listed.id.get(..12).unwrap_or(&listed.id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::seen;
    use serde_json::{Value, json};

    fn containers() -> Containers {
        Containers::new("orders", None, Choice::default())
    }

    /// A container as the engine lists it, with these changes.
    fn listed(name: &str, address: &str, changes: Value) -> Value {
        let mut one = json!({
            "Id": "0123456789abcdef", "Names": [format!("/{name}")], "Image": "orders:1", "Created": 1_700_000_000,
            "State": "running", "Status": "Up 2 minutes", "Labels": { "weir.service": "orders", "other": "x" },
            "Ports": [ { "IP": "0.0.0.0", "PrivatePort": 8000, "PublicPort": 80, "Type": "tcp" },
                       { "IP": "::", "PrivatePort": 8000, "PublicPort": 80, "Type": "tcp" } ],
            "HostConfig": { "NetworkMode": "bridge" },
            "NetworkSettings": { "Networks": { "bridge": { "IPAddress": address, "GlobalIPv6Address": "" } } },
        });
        for (key, value) in changes.as_object().into_iter().flatten() {
            match (&mut one[key], value) {
                (Value::Object(known), Value::Object(more)) if key == "Labels" => known.extend(more.clone()),
                (known, value) => *known = value.clone(),
            }
        }
        one
    }

    fn all(containers: &Containers, list: &[Value]) -> Listing {
        containers.listing(json!(list).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn questions() {
        let plain = |target: String| percent(&target).replace("\"", "'");
        let orders = Containers::new("a b", None, Choice::default());
        assert_eq!(
            plain(orders.list()),
            "/containers/json?filters={'label':['weir.service=a b'],'status':['running']}"
        );
        assert_eq!(
            plain(orders.events()),
            "/events?filters={'event':['die','health_status','pause','rename','start','unpause'],\
             'label':['weir.service=a b'],'type':['container']}"
        );
        assert!(orders.list().bytes().all(|b| b > b' ' && b != b'"' && b < 0x7f));
    }

    fn percent(text: &str) -> String {
        let mut out = Vec::new();
        let mut bytes = text.bytes();
        while let Some(b) = bytes.next() {
            if b == b'%' {
                let hex: Vec<u8> = bytes.by_ref().take(2).collect();
                out.push(u8::from_str_radix(std::str::from_utf8(&hex).unwrap(), 16).unwrap());
            } else {
                out.push(b);
            }
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn containers_are_endpoints() {
        let two = json!({ "front": { "IPAddress": "10.1.0.3" }, "back": { "IPAddress": "10.2.0.3" } });
        let list = [
            listed(
                "a",
                "172.17.0.2",
                json!({ "Labels": { "weir.weight": "3", "weir.zone": "a", "weir.version": "v2" } }),
            ),
            listed("b", "172.17.0.3", json!({ "Labels": { "weir.port": "9000", "weir.priority": "1" } })),
            listed(
                "c",
                "",
                json!({ "NetworkSettings": { "Networks": two }, "Labels": { "weir.network": "back" } }),
            ),
            listed(
                "d",
                "",
                json!({ "HostConfig": { "NetworkMode": "host" }, "Status": "Up 1 second (healthy)" }),
            ),
            listed(
                "e",
                "",
                json!({ "NetworkSettings": { "Networks": { "x": { "GlobalIPv6Address": "fd00::5" } } } }),
            ),
        ];
        let listing = all(&containers(), &list);
        assert_eq!((listing.unusable, &listing.left_out), (0, &Vec::new()));
        let expected = [
            ("10.2.0.3:8000", 1),
            ("127.0.0.1:8000", 1),
            ("172.17.0.2:8000", 3),
            ("172.17.0.3:9000", 1),
            ("fd00::5:8000", 1),
        ];
        assert_eq!(seen(&listing), expected.map(|(at, weight)| (at.to_owned(), weight)));
        let a = listing.instances.iter().find(|one| one.id == "a").unwrap();
        assert_eq!((&*a.version, a.zone.as_deref(), a.priority), ("v2", Some("a"), 0));
        assert_eq!(listing.instances.iter().find(|one| one.id == "b").unwrap().priority, 1);
    }

    #[test]
    fn what_is_left_out_is_named() {
        let two = json!({ "NetworkSettings": { "Networks": { "back": { "IPAddress": "10.2.0.3" }, "front": { "IPAddress": "10.1.0.3" } } } });
        for (changes, why) in [
            (json!({ "Labels": { "weir.service": "billing" } }), "names another service"),
            (json!({ "Labels": { "weir.prot": "1" } }), "it has the label `weir.prot`"),
            (json!({ "Labels": { "weir.routes.x.match": "/*" } }), "it has the label `weir.routes.x.match`"),
            (json!({ "Labels": { "weir.port": "0" } }), "its port is `0`"),
            (json!({ "Labels": { "weir.port": "80x" } }), "its port is `80x`"),
            (json!({ "Labels": { "weir.weight": "0" } }), "its weight is `0`"),
            (json!({ "Labels": { "weir.priority": "-1" } }), "its priority is `-1`"),
            (json!({ "Labels": { "weir.network": "back" } }), "no address in the network `back`"),
            (json!({ "State": "paused" }), "it is paused"),
            (json!({ "Status": "Up 2 minutes (unhealthy)" }), "its health check says unhealthy"),
            (json!({ "Status": "Up 1 second (health: starting)" }), "its health check says starting"),
            (json!({ "Ports": [] }), "exposes no port"),
            (json!({ "Ports": [ { "PrivatePort": 53, "Type": "udp" } ] }), "exposes no port"),
            (
                json!({ "Ports": [ { "PrivatePort": 80, "Type": "tcp" }, { "PrivatePort": 81, "Type": "tcp" } ] }),
                "several ports",
            ),
            (json!({ "NetworkSettings": { "Networks": {} } }), "it has no address"),
            (json!({ "NetworkSettings": null }), "it has no address"),
            (
                json!({ "NetworkSettings": { "Networks": { "x": { "IPAddress": "0.0.0.0" } } } }),
                "not a reachable address",
            ),
            (two.clone(), "it is in the networks back and front"),
        ] {
            let listing = all(&containers(), &[listed("x", "172.17.0.2", changes.clone())]);
            let told = listing.left_out.first().map_or("", |one| &*one.why);
            assert!(listing.instances.is_empty() && told.contains(why), "{changes}: {told}");
        }
        let front = Containers::new("orders", Some("front"), Choice::default());
        assert_eq!(seen(&all(&front, &[listed("x", "", two)])), [("10.1.0.3:8000".to_owned(), 1)]);
    }

    #[test]
    fn of_two_with_one_address_the_newer_counts() {
        let old = listed("old", "172.17.0.2", json!({ "Created": 1 }));
        let new = listed("new", "172.17.0.2", json!({}));
        for list in [[old.clone(), new.clone()], [new, old]] {
            assert_eq!(all(&containers(), &list).instances[0].id, "new");
        }
    }

    #[test]
    fn what_is_no_list() {
        for body in ["", "{}", "[1]", "[{}]", "null", "{\"message\":\"no\"}"] {
            assert!(containers().listing(body.as_bytes()).is_err(), "{body}");
        }
        assert_eq!(all(&containers(), &[]), Listing::default());
    }
}
