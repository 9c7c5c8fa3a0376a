//! Reads a case, checks what is made of it, and asks where requests go.

use crate::CONTROLLER;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use weir_config::{Diagnostics, Node, Source};
use weir_gateway::explain::{Arriving, Explanation, TargetShown, explain};
use weir_gateway::{Checked, check};
use weir_kube::watch::status::merged;
use weir_kube::{Cluster, Front, Name, Options, Status, Translation};

/// A case: objects, and what is asked of them.
pub(super) struct Case {
    pub(super) cluster: Cluster,
    pub(super) options: Options,
    /// Listener, method, URL, fields, outcome.
    pub(super) requests: Vec<Asked>,
}

pub(super) struct Asked {
    pub(super) listener: String,
    pub(super) method: String,
    pub(super) url: String,
    pub(super) fields: Vec<(String, String)>,
    pub(super) outcome: String,
}

pub(super) fn read(file: &str) -> Case {
    let mut cluster = Cluster::default();
    let mut bind = BTreeMap::new();
    let mut options = Options { controller: CONTROLLER.to_owned(), ..Options::default() };
    let mut requests = Vec::new();
    for object in objects(file) {
        if object["kind"] != "Case" {
            cluster.apply(&object).unwrap_or_else(|refused| panic!("{file}: {refused:?}"));
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if let Some(admin) = object["admin"].as_str() {
            let (namespace, port) = admin.split_once(':').unwrap();
            options.admin = Some((namespace.to_owned(), port.parse().unwrap()));
        }
        for (name, address) in object["bind"].as_object().into_iter().flatten() {
            let (namespace, name) = name.split_once('/').unwrap();
            bind.insert(Name::new(namespace, name), text(address).parse().unwrap());
        }
        if let Some(pods) = object["services"]["pods"].as_str() {
            let (namespace, name) = pods.split_once('/').unwrap();
            let kind = text(&object["services"]["type"]);
            options.front = Front::Services { pods: Name::new(namespace, name), kind };
        }
        for (listener, all) in object["requests"].as_object().into_iter().flatten() {
            for asked in all.as_array().into_iter().flatten() {
                let fields = asked[3].as_object().into_iter().flatten();
                requests.push(Asked {
                    listener: listener.clone(),
                    method: text(&asked[0]),
                    url: text(&asked[1]),
                    outcome: text(&asked[2]),
                    fields: fields.map(|(name, value)| (name.clone(), text(value))).collect(),
                });
            }
        }
    }
    options.bind = bind;
    Case { cluster, options, requests }
}

/// Where the cases are.
pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

/// The objects of a case, with those of `base.yaml`.
pub(super) fn objects(file: &str) -> Vec<Value> {
    ["base.yaml", file].iter().flat_map(|file| documents(&folder().join(file))).collect()
}

/// The first object of a kind.
pub(super) fn object_of(file: &str, kind: &str) -> Value {
    objects(file).into_iter().find(|object| object["kind"] == kind).unwrap()
}

fn documents(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    let mut found = Diagnostics::default();
    let mut all = Vec::new();
    for document in text.split("\n---\n") {
        // Below a key, or the reader of our configs says that this is Kubernetes' and not ours.
        let below: Vec<String> = document.lines().map(|line| format!("  {line}")).collect();
        let tree = weir_config::parse::parse(&format!("doc:\n{}\n", below.join("\n")), file, &mut found);
        all.extend(tree.and_then(|tree| tree.get("doc").map(to_json)).filter(|value| !value.is_null()));
    }
    assert_eq!(found.errors(), 0, "{}", found.to_text());
    all
}

fn to_json(node: &Node) -> Value {
    use weir_config::Value as Read;
    match &node.value {
        Read::Null => Value::Null,
        Read::Bool(value) => json!(value),
        Read::Int(value) => json!(value),
        Read::Float(value) => json!(value),
        Read::Str(value) => json!(value.as_str()),
        Read::Seq(all) => all.iter().map(to_json).collect(),
        Read::Map(all) => {
            Value::Object(all.iter().map(|(key, value)| (key.text.to_string(), to_json(value))).collect())
        }
    }
}

/// The statuses that have to be written.
pub(super) fn changes(cluster: &Cluster, wanted: &[Status], now: &str) -> Vec<Status> {
    let change = |status: &Status| {
        let old = cluster.status(status.kind, &status.name)?;
        let wanted = merged(old, &status.wanted, CONTROLLER, now)?;
        Some(Status { wanted: wanted.into(), ..status.clone() })
    };
    wanted.iter().filter_map(change).collect()
}

/// What `weir check` says of a config with its files.
pub(super) fn checked(translated: &Translation) -> Checked {
    let folder = tempfile::tempdir().unwrap();
    let mut rest = Map::new();
    rest.insert("watch".to_owned(), json!(false));
    for (path, content) in &translated.config.files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let text = translated.config.to_text(&rest);
    check(&Source::sealed(folder.path().join("weir.yaml"), text, Vec::new()).ranked(), &[])
}

/// The outcome of a GET request that reaches a listener of a config without mistakes.
pub(super) fn answer(translated: &Translation, listener: &str, url: &str) -> String {
    let checked = checked(translated);
    assert_eq!(checked.diagnostics.errors(), 0, "{}", checked.diagnostics.to_text());
    let (_, snapshot) = checked.compiled.as_ref().unwrap();
    let arriving = Arriving { listener: Some(listener), client: None };
    outcome(&explain(snapshot, arriving, "GET", url, &[]).unwrap())
}

/// The route's target in short: upstreams with shares, a status, or where a redirect leads.
pub(super) fn outcome(explanation: &Explanation) -> String {
    let Some(_) = &explanation.decision.winner else { return "404".to_owned() };
    let mut told = match &explanation.target {
        Some(TargetShown::Respond { status, .. }) => status.to_string(),
        Some(TargetShown::Upstreams(all)) if all.len() == 1 && all[0].share >= 100.0 => all[0].name.clone(),
        Some(TargetShown::Upstreams(all)) => {
            let each: Vec<String> = all.iter().map(|one| format!("{} {:.0}%", one.name, one.share)).collect();
            each.join(" ")
        }
        _ => String::new(),
    };
    for filter in &explanation.filters {
        let settings = serde_json::to_value(filter).unwrap();
        match filter.name {
            "split" => {
                for arm in &filter.lists {
                    let own = arm.filters.iter().map(|own| match own.name {
                        "respond" => own.settings["status"].to_string(),
                        name => name.to_owned(),
                    });
                    let own: Vec<String> = own.collect();
                    let _ =
                        write!(told, " {} {:.0}%: {}", arm.key, arm.share.unwrap_or_default(), own.join(","));
                }
            }
            // What one says, nobody behind it hears.
            "respond" => return settings["settings"]["status"].to_string(),
            "redirect" => {
                let (to, status) = (&settings["settings"]["to"], &settings["settings"]["status"]);
                told = format!("{status} {}", to.as_str().unwrap_or_default());
            }
            _ => {}
        }
    }
    told
}
