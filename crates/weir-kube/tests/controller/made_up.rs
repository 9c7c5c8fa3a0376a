//! A translator that a test can read:
//!
//! - An HTTPRoute is `spec: { path, body }` or `spec: { path, upstream }`. With `listen`, it brings a listener at this
//!   address; if the address is taken, it is left out unless `stubborn` is set.
//! - An EndpointSlice `address` is the endpoint of the upstream of its name.
//! - A Secret `stringData: { cert, key }` makes the listener `secure`.
//! - The body `refused` makes a config that Weir refuses. `panics here` makes this translator panic, and `panics there`
//!   the gateway that loads the config.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_config::schema::{Endpoint, EndpointAddress};
use weir_config::{Mistakes, Supply};
use weir_gateway::prelude::{Deserialize, Filter, FilterKind, Hooks, JsonSchema, Serialize};
use weir_kube::Name;
use weir_kube::api::watched;
use weir_kube::controller::{Effect, Output, Translator};
use weir_kube::watch::store::Change;
use weir_kube::watch::writer::Target;

/// A filter that cannot be built.
pub(crate) static BREAKS: FilterKind = FilterKind::of::<Breaks>("breaks");

#[derive(Deserialize, Serialize, JsonSchema)]
struct Breaks {}

impl Filter for Breaks {
    fn hooks(&self) -> Hooks {
        panic!("a bug of the gateway")
    }
}

pub(crate) const CONTROLLER: &str = "example.com/made-up";

#[derive(Default)]
pub(crate) struct MadeUp {
    pub(crate) routes: BTreeMap<Name, Value>,
    pub(crate) secrets: BTreeMap<Name, Value>,
    pub(crate) left_out: BTreeSet<Name>,
    pub(crate) endpoints: BTreeMap<Arc<str>, SocketAddr>,
    pub(crate) moved: BTreeMap<Arc<str>, Arc<Supply>>,
    /// Addresses that were taken.
    pub(crate) busy: BTreeSet<SocketAddr>,
    /// How often everything was translated.
    pub(crate) translations: Arc<AtomicUsize>,
}

impl MadeUp {
    /// The first endpoint of an upstream makes a config, a later one moves.
    fn slice(&mut self, change: &Change) -> Effect {
        let Some(object) = &change.object else { return Effect::Nothing };
        let name: Arc<str> = change.key.name.as_str().into();
        let address = object.value()["address"].as_str().unwrap().parse().unwrap();
        match self.endpoints.insert(Arc::clone(&name), address) {
            None => Effect::Config,
            Some(known) if known == address => Effect::Nothing,
            Some(_) => {
                self.moved.insert(name, supply(address));
                // After a panic, the real one has kept nothing, and asks for a translation.
                let panics = self.routes.values().any(|route| route["body"] == "panics here");
                if panics { Effect::Config } else { Effect::Endpoints }
            }
        }
    }
}

fn supply(address: SocketAddr) -> Arc<Supply> {
    let address = EndpointAddress::Tcp(address);
    let endpoint = Endpoint { scheme: None, address, weight: 1, zone: None, priority: 0 };
    Arc::new(Supply { place: "made up".into(), endpoints: vec![endpoint] })
}

impl Translator for MadeUp {
    fn change(&mut self, change: &Change) -> Effect {
        if change.kind == "EndpointSlice" {
            return self.slice(change);
        }
        let all = match change.kind {
            "HTTPRoute" => &mut self.routes,
            "Secret" => &mut self.secrets,
            _ => return Effect::Nothing,
        };
        let part = if change.kind == "Secret" { "stringData" } else { "spec" };
        let new = change.object.as_ref().map(|object| object.value()[part].clone());
        if all.get(&change.key) == new.as_ref() {
            return Effect::Nothing;
        }
        self.left_out.remove(&change.key);
        match new {
            Some(new) => drop(all.insert(change.key.clone(), new)),
            None => drop(all.remove(&change.key)),
        }
        Effect::Config
    }

    fn translate(&mut self) -> Output {
        self.translations.fetch_add(1, Ordering::Relaxed);
        let mut output = Output::default();
        let mut listeners = json!({ "web": { "address": "127.0.0.1:0" } });
        for (key, secret) in &self.secrets {
            let mut file = |part: &str| {
                let content = secret[part].as_str().unwrap().as_bytes();
                let digest: u64 = content.iter().fold(7, |sum, byte| sum * 31 % 1_000_003 + u64::from(*byte));
                let name = format!("files/{}-{digest}.{part}", key.name);
                output.files.insert(name.clone(), content.to_vec());
                name
            };
            let tls = json!({ "certificates": [{ "cert": file("cert"), "key": file("key") }] });
            listeners["secure"] = json!({ "address": "127.0.0.1:0", "tls": tls });
        }
        let mut routes = json!({});
        for (key, route) in &self.routes {
            if let Some(address) = listen(route).filter(|address| !self.busy.contains(address)) {
                listeners[&key.name] = json!({ "address": address });
            }
            let is_left_out = self.left_out.contains(key);
            assert_ne!(route["body"], "panics here", "a bug of the translator");
            let wrong = route["body"] == "refused";
            let name = format!("{}.{}", key.namespace, key.name);
            if !is_left_out {
                let code = if wrong { json!(70_000) } else { json!(200) };
                routes[&name] = json!({ "match": { "path": route["path"] } });
                if route["body"] == "panics there" {
                    routes[&name]["filters"] = json!([{ "breaks": {} }]);
                }
                match route.get("upstream") {
                    Some(upstream) => routes[&name]["upstream"] = upstream.clone(),
                    None => routes[&name]["respond"] = json!({ "status": code, "body": route["body"] }),
                }
            }
            let status = if is_left_out { "False" } else { "True" };
            let condition = json!({ "type": "Programmed", "status": status, "reason": "R", "message": "" });
            let parent = json!({ "controllerName": CONTROLLER, "parentRef": { "name": "gw" }, "conditions": [condition] });
            let target = Target { kind: watched("HTTPRoute").unwrap().kind, key: key.clone() };
            output.statuses.insert(target, json!({ "parents": [parent] }).into());
        }
        let mut upstreams = json!({});
        for (name, address) in &self.endpoints {
            upstreams[&**name] = json!({});
            output.supplies.insert(Arc::clone(name), supply(*address));
        }
        let config = json!({
            "admin": { "address": "off" }, "watch": false, "workers": 1, "listeners": listeners, "routes": routes,
            "upstreams": upstreams, "shutdown": { "delay": "60s" },
        });
        output.text = config.to_string().into();
        output
    }

    fn moved(&mut self) -> BTreeMap<Arc<str>, Arc<Supply>> {
        std::mem::take(&mut self.moved)
    }

    fn unbound(&self) -> Vec<SocketAddr> {
        self.busy.iter().copied().collect()
    }

    fn freed(&mut self, addresses: &[SocketAddr]) {
        self.busy.retain(|address| !addresses.contains(address));
    }

    fn leave_out(&mut self, mistakes: &Mistakes) -> bool {
        let wrong = self.routes.iter().filter(|(_, route)| route["body"] == "refused");
        let wrong: Vec<Name> = wrong.map(|(key, _)| key.clone()).collect();
        let before = self.left_out.len() + self.busy.len();
        self.left_out.extend(wrong);
        let said = mistakes.for_readers().to_text();
        let taken = self.routes.values().filter(|route| route["stubborn"] != true).filter_map(listen);
        self.busy.extend(taken.filter(|address| said.contains(&address.to_string())));
        self.left_out.len() + self.busy.len() > before
    }
}

fn listen(route: &Value) -> Option<SocketAddr> {
    route["listen"].as_str()?.parse().ok()
}
