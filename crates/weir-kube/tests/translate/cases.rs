//! All cases against their golden outputs, rules that no case covers, and statuses that are written already.

use crate::case::{Case, changes, checked, folder, object_of, objects, outcome, read};
use crate::{CONTROLLER, NOW};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use weir_gateway::explain::{Arriving, explain};
use weir_kube::{Change, Cluster, Kind, Name, Translation, translate};

#[test]
fn cases_are_translated_as_the_api_wants() {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "yaml") && !file.ends_with("base.yaml"));
    files.sort();
    assert!(files.len() > 20, "{} cases", files.len());
    let mut wrong = String::new();
    for file in files {
        if let Err(why) = run(&file) {
            let _ = writeln!(wrong, "{}:\n{why}", file.file_name().unwrap().display());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A Gateway that says nothing about ListenerSets takes none, not even those of its own namespace.
#[test]
fn a_gateway_takes_only_the_listener_sets_that_it_allows() {
    let file = "listener-sets.yaml";
    let mut case = read(file);
    let mut set = object_of(file, "ListenerSet");
    set["metadata"]["namespace"] = json!("infra");
    case.cluster.apply(&set).unwrap();
    let from = |from: &str| json!({ "namespaces": { "from": from } });
    for (allowed, is_allowed) in [
        (from("All"), true),
        (from("Same"), true),
        (from("None"), false),
        // A word of a later version.
        (from("Neighbors"), false),
        (Value::Null, false),
    ] {
        let mut gateway = object_of(file, "Gateway");
        gateway["spec"]["allowedListeners"] = allowed;
        case.cluster.apply(&gateway).unwrap();
        let translated = translate(&case.cluster, &case.options);
        let of_set = (Kind::ListenerSet, Name::new("infra", "older"));
        let status = translated.statuses.iter().find(|status| (status.kind, status.name.clone()) == of_set);
        let reason = &status.unwrap().wanted["conditions"][0]["reason"];
        assert_eq!(reason != "NotAllowed", is_allowed, "{gateway}: {reason}");
    }
}

/// A Gateway is not ours if its class is another controller's, or has parameters, none of which we read.
#[test]
fn gateways_of_other_classes_are_not_served() {
    let file = "http-simple-same-namespace.yaml";
    let parameters = json!({ "group": "", "kind": "ConfigMap", "name": "x" });
    for spec in [
        json!({ "controllerName": "others" }),
        json!({ "controllerName": CONTROLLER, "parametersRef": parameters }),
    ] {
        let mut case = read(file);
        assert!(!translate(&case.cluster, &case.options).config.listeners.is_empty());
        let mut class = object_of(file, "GatewayClass");
        class["spec"] = spec;
        case.cluster.apply(&class).unwrap();
        let translated = translate(&case.cluster, &case.options);
        assert!(translated.config.listeners.is_empty() && translated.gateways.is_empty(), "{class}");
        assert!(translated.statuses.iter().all(|status| status.kind == Kind::GatewayClass), "{class}");
    }
}

/// A BackendTLSPolicy for one port of a Service takes precedence over one for all its ports.
#[test]
fn a_policy_for_one_port_takes_precedence() {
    let file = "backend-tls.yaml";
    for (section, expected) in [("http", "port.example"), ("other", "backend.example")] {
        let mut case = read(file);
        let mut policy = object_of(file, "BackendTLSPolicy");
        policy["metadata"]["name"] = json!("port");
        policy["spec"]["targetRefs"][0]["sectionName"] = json!(section);
        policy["spec"]["validation"]["hostname"] = json!("port.example");
        case.cluster.apply(&policy).unwrap();
        let upstreams = translate(&case.cluster, &case.options).config.upstreams;
        assert_eq!(upstreams["svc_infra_v1_8080"].settings["tls"]["server_name"], expected, "{section}");
    }
}

/// A backend without weight gets no connection.
#[test]
fn a_backend_of_a_tcp_route_may_have_no_weight() {
    let file = "tls-and-tcp.yaml";
    let mut case = read(file);
    let mut route = object_of(file, "TCPRoute");
    let addresses = |case: &Case| {
        let upstreams = translate(&case.cluster, &case.options).config.upstreams;
        let endpoints = upstreams["route_tcp_infra_tcp"].settings["endpoints"].as_array().cloned().unwrap();
        endpoints.iter().map(|one| one["address"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(addresses(&case), ["10.244.1.1:3000", "10.244.2.1:3000"]);
    route["spec"]["rules"][0]["backendRefs"][1]["weight"] = json!(0);
    case.cluster.apply(&route).unwrap();
    assert_eq!(addresses(&case), ["10.244.1.1:3000"]);
}

/// A route that has left our Gateways loses our entry in its status. One that never named them has no status of ours.
#[test]
fn a_route_that_leaves_loses_our_entry() {
    let file = "tls-and-tcp.yaml";
    for (name, kind) in
        [("HTTPRoute", Kind::HttpRoute), ("TCPRoute", Kind::TcpRoute), ("TLSRoute", Kind::TlsRoute)]
    {
        let mut case = read(file);
        let mut route = object_of(file, name);
        route["spec"]["parentRefs"] = json!([{ "name": "of-others" }]);
        let of_route = Name::new("infra", route["metadata"]["name"].as_str().unwrap());
        for (parents, expected) in [
            (json!([]), None),
            (json!([{ "controllerName": "others", "parentRef": { "name": "edge" } }]), None),
            (json!([{ "controllerName": CONTROLLER, "parentRef": { "name": "edge" } }]), Some(json!([]))),
        ] {
            route["status"] = json!({ "parents": parents });
            case.cluster.apply(&route).unwrap();
            let statuses = translate(&case.cluster, &case.options).statuses;
            let status = statuses.iter().find(|status| status.kind == kind && status.name == of_route);
            assert_eq!(status.map(|status| status.wanted["parents"].clone()), expected, "{name} {parents}");
        }
    }
}

/// A status that is written is not written again, and rebuilds nothing.
#[test]
fn a_written_status_is_quiet() {
    let case = read("http-matching.yaml");
    let mut cluster = case.cluster;
    let first = translate(&cluster, &case.options);
    let patches = changes(&cluster, &first.statuses, NOW);
    assert!(!patches.is_empty());
    for patch in patches {
        let (group, version) =
            if patch.kind.group().is_empty() { ("", "v1") } else { (patch.kind.group(), "/v1") };
        let mut object = json!({
            "apiVersion": format!("{group}{version}"), "kind": patch.kind.as_str(), "status": *patch.wanted,
            "metadata": { "namespace": patch.name.namespace, "name": patch.name.name },
        });
        // What the API server would send: the same object with the new status.
        let old = objects("http-matching.yaml").into_iter().find(|old| {
            old["kind"] == object["kind"] && old["metadata"]["name"] == object["metadata"]["name"]
        });
        let old = old.unwrap();
        object["metadata"] = old["metadata"].clone();
        object["spec"] = old["spec"].clone();
        assert_eq!(cluster.apply(&object).unwrap(), Change::Status, "{object}");
    }
    let second = translate(&cluster, &case.options);
    assert_eq!(first, second);
    assert_eq!(changes(&cluster, &second.statuses, "2027-01-01T00:00:00Z"), []);
}

fn run(file: &Path) -> Result<(), String> {
    let case = read(file.file_name().unwrap().to_str().unwrap());
    let translated = translate(&case.cluster, &case.options);
    let checked = checked(&translated);
    let mut wrong = String::new();
    if checked.diagnostics.errors() > 0 {
        let _ = writeln!(wrong, "weir check refuses it: {}", checked.diagnostics.to_text());
    }
    if let Some((_, snapshot)) = &checked.compiled {
        for asked in &case.requests {
            let arriving = Arriving { listener: Some(&asked.listener), client: None };
            let told = explain(snapshot, arriving, &asked.method, &asked.url, &asked.fields);
            let told = told.map_or_else(|why| why, |explanation| outcome(&explanation));
            if told != asked.outcome {
                let _ = writeln!(
                    wrong,
                    "{} {} at {}: {told}, not {}",
                    asked.method, asked.url, asked.listener, asked.outcome
                );
            }
        }
    }
    let text = shown(&translated, &case.cluster);
    let golden = file.with_extension("out");
    if std::env::var_os("WEIR_BLESS").is_some() {
        fs::write(&golden, &text).unwrap();
    } else if fs::read_to_string(&golden).unwrap_or_default() != text {
        let _ =
            writeln!(wrong, "differs from {}; WEIR_BLESS=1 writes it. Now it is:\n{text}", golden.display());
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

fn shown(translated: &Translation, cluster: &Cluster) -> String {
    let mut out = translated.config.to_text(&Map::new());
    for patch in changes(cluster, &translated.statuses, NOW) {
        // The base has Gateways that a case does not use.
        let _ = write!(out, "\n{} {}:", patch.kind.as_str(), patch.name);
        lines(&mut out, &patch.wanted, "  ");
    }
    for (kind, name, problem) in &translated.notices {
        let _ = writeln!(out, "\nEvent of {} {name}: {} {}", kind.as_str(), problem.reason, problem.message);
    }
    for (kind, name, object) in &translated.objects {
        let _ = write!(out, "\n{} {name} is to be:\n  {}\n  ", kind.as_str(), object["metadata"]);
        let mut rest = object.as_object().cloned().unwrap_or_default();
        rest.retain(|key, _| !["apiVersion", "kind", "metadata"].contains(&key.as_str()));
        let _ = writeln!(out, "{}", Value::Object(rest));
    }
    out
}

/// A status in few lines: conditions as `Accepted=True Accepted (generation)`.
fn lines(out: &mut String, value: &Value, indent: &str) {
    for (key, value) in value.as_object().into_iter().flatten() {
        match (key.as_str(), value.as_array()) {
            ("conditions", Some(all)) => {
                for condition in all {
                    let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
                    let _ = write!(
                        out,
                        "\n{indent}{}={} {} ({})",
                        text("type"),
                        text("status"),
                        text("reason"),
                        condition["observedGeneration"]
                    );
                    if !text("message").is_empty() {
                        let _ = write!(out, " {}", text("message"));
                    }
                }
            }
            ("listeners" | "parents" | "ancestors", Some(all)) => {
                for entry in all {
                    let _ = write!(out, "\n{indent}- {key}:");
                    lines(out, entry, &format!("{indent}    "));
                }
            }
            // The same in every case.
            ("controllerName" | "supportedFeatures", _) => {}
            ("attachedListenerSets", _) if *value == json!(0) => {}
            _ => {
                let _ = write!(out, "\n{indent}{key}: {value}");
            }
        }
    }
    if indent == "  " {
        out.push('\n');
    }
}
