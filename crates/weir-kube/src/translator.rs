//! The translation as the controller calls it: keeps the objects, and leaves out those whose part of the config Weir
//! refuses.

use crate::api::Key;
use crate::cluster::{Change, Cluster};
use crate::controller::{Effect, Output, Translator};
use crate::objects::{Kind, Name};
use crate::translate::{Options, translate};
use crate::watch::store;
use crate::watch::writer::Target;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use weir_config::{Mistakes, Severity};

/// Translates the Gateway API and Ingresses.
#[derive(Debug, Default)]
pub struct GatewayApi {
    cluster: Cluster,
    options: Options,
    /// Sections of the config that are the operator's, such as `admin`.
    rest: Map<String, Value>,
    /// The object that each thing of the last config was made for.
    owners: BTreeMap<String, (Kind, Name)>,
}

impl GatewayApi {
    /// A translator without any object. `rest` has further sections of the config, such as `admin`.
    #[must_use]
    pub fn new(options: Options, rest: Map<String, Value>) -> Self {
        Self { options, rest, ..Self::default() }
    }

    /// The object whose thing a path of a diagnostic names, such as `routes.NAME.match.path`.
    fn owner(&self, path: &str) -> Option<&(Kind, Name)> {
        let (_, rest) = path.split_once('.')?;
        // Names may have dots, so the longest that fits is meant.
        let ends = rest.match_indices(['.', '[']).map(|(at, _)| at).chain([rest.len()]);
        ends.filter_map(|end| self.owners.get(rest.get(..end)?)).last()
    }
}

impl Translator for GatewayApi {
    fn change(&mut self, change: &store::Change) -> Effect {
        let Some(kind) = Kind::named(change.kind) else { return Effect::Nothing };
        let name = Name::new(&change.key.namespace, &change.key.name);
        let made = match &change.object {
            None => self.cluster.delete(kind, &name),
            // What no API server would send changes nothing.
            Some(object) => self.cluster.apply(&object.value()).unwrap_or(Change::Nothing),
        };
        if made != Change::Config {
            return Effect::Nothing;
        }
        self.options.refused.remove(&(kind, name));
        Effect::Config
    }

    fn translate(&mut self) -> Output {
        let translated = translate(&self.cluster, &self.options);
        self.owners = translated.owners;
        let statuses = translated.statuses.into_iter().map(|status| {
            let key = Key::new(&status.name.namespace, &status.name.name);
            (Target { kind: status.kind.as_str(), key }, status.wanted)
        });
        let statuses = statuses.collect();
        Output { text: translated.config.to_text(&self.rest), files: translated.config.files, statuses }
    }

    fn leave_out(&mut self, mistakes: &Mistakes) -> bool {
        let errors = mistakes.iter().filter(|mistake| mistake.severity == Severity::Error);
        let to_blame: Vec<_> = errors
            .filter_map(|mistake| Some((self.owner(&mistake.path)?.clone(), mistake.message.to_string())))
            .collect();
        let before = self.options.refused.len();
        self.options.refused.extend(to_blame);
        self.options.refused.len() > before
    }
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
