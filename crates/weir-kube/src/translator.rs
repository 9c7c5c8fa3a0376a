//! The translation as the controller calls it: keeps the objects, and leaves out those whose part of the config Weir
//! refuses.

use crate::api::Key;
use crate::cluster::{Change, Cluster};
use crate::config::Config;
use crate::controller::{Effect, Output, Translator};
use crate::objects::{Kind, Name};
use crate::translate::{Options, translate};
use crate::watch::store;
use crate::watch::writer::Target;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_config::{Mistakes, Severity};
use weir_telemetry::log;

/// Translates the Gateway API and Ingresses.
#[derive(Debug, Default)]
pub struct GatewayApi {
    cluster: Cluster,
    options: Options,
    /// Sections of the config that are the operator's, such as `admin`.
    rest: Map<String, Value>,
    /// The object that each thing of the last config was made for.
    owners: BTreeMap<String, (Kind, Name)>,
    /// The last config, a line for each thing: a mistake of the text itself has a line but no path.
    text: Arc<str>,
    /// The Service in front of this pod, and its addresses.
    service: Option<(Key, Vec<String>)>,
}

/// Longest reason in a status, in characters.
const REASON: usize = 500;

impl GatewayApi {
    /// A translator without any object. `rest` has further sections of the config, such as `admin`.
    #[must_use]
    pub fn new(options: Options, mut rest: Map<String, Value>) -> Self {
        // Files are written before a config names them, and never change.
        rest.insert("watch".to_owned(), Value::Bool(false));
        Self { options, rest, ..Self::default() }
    }

    /// Lets Gateways that ask for no address report those of this Service.
    #[must_use]
    pub fn behind(mut self, service: Key) -> Self {
        self.service = Some((service, Vec::new()));
        self
    }

    /// The config of an empty cluster.
    #[must_use]
    pub fn empty(&self) -> String {
        Config::default().to_text(&self.rest)
    }

    /// Takes the addresses of our Service. True if they differ from those before.
    fn look_at_service(&mut self, key: &Key, object: Option<&Value>) -> bool {
        let Some((ours, known)) = &mut self.service else { return false };
        if ours != key {
            return false;
        }
        let addresses = object.map(addresses_of).unwrap_or_default();
        std::mem::replace(known, addresses.clone()) != addresses
    }

    /// The object whose thing a path of a diagnostic names, such as `routes.NAME.match.path`.
    fn owner(&self, path: &str) -> Option<&(Kind, Name)> {
        let (_, rest) = path.split_once('.')?;
        // Names may have dots, so the longest that fits is meant.
        let ends = rest.match_indices(['.', ':', '[', ' ']).map(|(at, _)| at).chain([rest.len()]);
        ends.rev().find_map(|end| self.owners.get(rest.get(..end)?))
    }

    /// The object whose thing stands on a line of the config.
    fn owner_of(&self, line: &str) -> Option<&(Kind, Name)> {
        let (name, _) = line.trim_start().strip_prefix('"')?.split_once("\":")?;
        self.owners.get(name)
    }

    fn on_line(&self, number: u32) -> Option<&(Kind, Name)> {
        let before = usize::try_from(number).ok()?.checked_sub(1)?;
        self.owner_of(self.text.lines().nth(before)?)
    }

    /// Who has most of a config that is too large: of the namespace with the most text, the longest object.
    fn greatest(&self) -> Option<&(Kind, Name)> {
        let mut of_object: BTreeMap<&(Kind, Name), usize> = BTreeMap::new();
        let mut of_namespace: BTreeMap<&str, usize> = BTreeMap::new();
        for line in self.text.lines() {
            let Some(owner) = self.owner_of(line) else { continue };
            *of_object.entry(owner).or_default() += line.len();
            *of_namespace.entry(&owner.1.namespace).or_default() += line.len();
        }
        let (namespace, _) = of_namespace.into_iter().max_by_key(|(_, size)| *size)?;
        let its = of_object.into_iter().filter(|((_, name), _)| name.namespace == namespace);
        its.max_by_key(|(_, size)| *size).map(|(owner, _)| owner)
    }
}

impl Translator for GatewayApi {
    fn change(&mut self, change: &store::Change) -> Effect {
        let Some(kind) = Kind::named(change.kind) else { return Effect::Nothing };
        let name = Name::new(&change.key.namespace, &change.key.name);
        let value = change.object.as_ref().map(|object| object.value());
        let moved = kind == Kind::Service && self.look_at_service(&change.key, value.as_ref());
        let made = match &value {
            None => self.cluster.delete(kind, &name),
            Some(value) => self.cluster.apply(value).unwrap_or_else(|refused| {
                let fields: log::Fields<'_> = &[("object", &refused.object), ("error", &refused.why)];
                log::error("an object cannot be read: what was seen before stays in service", fields);
                Change::Nothing
            }),
        };
        if made == Change::Config {
            // It may be better now, or what refers to it: filters, authorities, endpoints.
            self.options.refused.retain(|(_, refused), _| refused.namespace != name.namespace);
        }
        if moved || made == Change::Config { Effect::Config } else { Effect::Nothing }
    }

    fn translate(&mut self) -> Output {
        if let Some((_, addresses)) = &self.service {
            self.options.published.clone_from(addresses);
            let all = self.cluster.gateways.iter();
            // A Gateway that asks for addresses gets those.
            let without = all.filter(|(_, gateway)| gateway.spec.addresses.is_empty());
            self.options.addresses = without.map(|(name, _)| (name.clone(), addresses.clone())).collect();
        }
        let translated = translate(&self.cluster, &self.options);
        self.owners = translated.owners;
        let statuses = translated.statuses.into_iter().map(|status| {
            let key = Key::new(&status.name.namespace, &status.name.name);
            (Target { kind: status.kind.as_str(), key }, status.wanted)
        });
        let statuses = statuses.collect();
        self.text = translated.config.to_text(&self.rest).into();
        Output { text: Arc::clone(&self.text), files: translated.config.files, statuses }
    }

    fn leave_out(&mut self, mistakes: &Mistakes) -> bool {
        let shown = mistakes.for_readers();
        let before = self.options.refused.len();
        for mistake in shown.iter().filter(|mistake| mistake.severity == Severity::Error) {
            // What the system refuses, such as a port in use, has its place in the message.
            let message = mistake.message.strip_prefix("listeners.").map(|_| mistake.message.as_str());
            // One tenant's text must not keep the config of all from running.
            let by_place = || match (mistake.code, &mistake.place) {
                _ if !mistake.path.is_empty() => None,
                ("too-large", _) => self.greatest(),
                (_, place) => self.on_line(place.as_ref()?.line),
            };
            let blamed =
                self.owner(&mistake.path).or_else(|| self.owner(message?)).or_else(by_place).cloned();
            if let Some(blamed) = blamed {
                let why = mistake.message.chars().take(REASON).collect();
                self.options.refused.entry(blamed).or_insert(why);
            }
        }
        self.options.refused.len() > before
    }
}

/// The addresses of a Service for clients: those of its load balancer, or else its own.
fn addresses_of(service: &Value) -> Vec<String> {
    let ingress = service.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    let entry = |entry: &Value| {
        let text = |name: &str| entry.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        text("ip").or_else(|| text("hostname")).map(str::to_owned)
    };
    let outside: Vec<String> = ingress.into_iter().flatten().filter_map(entry).collect();
    let is_balanced = service.pointer("/spec/type").and_then(Value::as_str) == Some("LoadBalancer");
    if is_balanced || !outside.is_empty() {
        return outside;
    }
    let own = service.pointer("/spec/clusterIPs").and_then(Value::as_array);
    let own = own.into_iter().flatten().filter_map(Value::as_str).filter(|ip| *ip != "None");
    own.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Object;
    use serde_json::json;
    use weir_config::{Diagnostic, Diagnostics};

    fn put(translator: &mut GatewayApi, kind: &'static str, version: &str, mut object: Value) -> Effect {
        object["metadata"]["uid"] = json!("u");
        object["metadata"]["resourceVersion"] = json!(version);
        let resource = crate::api::watched(kind).unwrap();
        let object = Object::new(resource, object).unwrap();
        translator.change(&store::Change { kind, key: object.key.clone(), object: Some(object) })
    }

    fn route(status: Value) -> Value {
        json!({
            "metadata": { "namespace": "a", "name": "r.x" }, "status": status,
            "spec": { "parentRefs": [ { "name": "gw" } ], "rules": [ {} ] },
        })
    }

    fn translator() -> GatewayApi {
        let options = Options { controller: "us".to_owned(), ..Options::default() };
        let mut translator = GatewayApi::new(options, Map::new());
        let class = json!({ "metadata": { "name": "weir" }, "spec": { "controllerName": "us" } });
        put(&mut translator, "GatewayClass", "1", class);
        let gateway = json!({
            "metadata": { "namespace": "a", "name": "gw" },
            "spec": { "gatewayClassName": "weir", "listeners": [ { "name": "http", "port": 80, "protocol": "HTTP" } ] },
        });
        put(&mut translator, "Gateway", "1", gateway);
        assert_eq!(put(&mut translator, "HTTPRoute", "1", route(json!({}))), Effect::Config);
        translator
    }

    #[test]
    fn a_gateway_reports_the_addresses_of_the_service() {
        let ingress =
            json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }, { "hostname": "a.example" }] } });
        for (service, expected) in [
            (json!({ "spec": { "type": "LoadBalancer", "clusterIPs": ["10.0.0.1"] } }), vec![]),
            (
                json!({ "spec": { "type": "LoadBalancer" }, "status": ingress }),
                vec!["192.0.2.1", "a.example"],
            ),
            (json!({ "spec": { "clusterIPs": ["10.0.0.1", "fd00::1"] } }), vec!["10.0.0.1", "fd00::1"]),
            (json!({ "spec": { "clusterIPs": ["None"] } }), vec![]),
        ] {
            assert_eq!(addresses_of(&service), expected, "{service}");
        }
    }

    #[test]
    fn a_status_alone_changes_nothing() {
        let mut translator = translator();
        assert_eq!(put(&mut translator, "HTTPRoute", "2", route(json!({ "parents": [] }))), Effect::Nothing);
    }

    #[test]
    fn who_is_to_blame_is_left_out_until_it_changes() {
        let mut translator = translator();
        let name = "http_a_r.x_0_0_gw_a_gw_80";
        assert!(translator.translate().text.contains(name));
        let mut wrong = Diagnostic::error("bad-pattern", "no");
        wrong.path = format!("routes.{name}.match.path");
        let mut found = Diagnostics::default();
        found.push(wrong);
        let mistakes = Mistakes::from(found);
        assert!(translator.leave_out(&mistakes));
        assert!(!translator.leave_out(&mistakes), "nothing new");
        let output = translator.translate();
        assert!(!output.text.contains(name));
        let target = Target { kind: "HTTPRoute", key: Key::new("a", "r.x") };
        assert_eq!(output.statuses[&target]["parents"][0]["conditions"][0]["reason"], "UnsupportedValue");
        // Another route of the same name in another namespace is not touched, and a new version has its chance.
        let mut changed = route(json!({}));
        changed["spec"]["hostnames"] = json!(["a.test"]);
        assert_eq!(put(&mut translator, "HTTPRoute", "3", changed), Effect::Config);
        assert!(translator.translate().text.contains(name));
    }
}
