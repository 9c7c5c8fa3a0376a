//! Translations by tables: `cases/NAME.yaml` has objects, `cases/NAME.out` the config and the statuses made from them.
//!
//! Each case adds objects to those of `base.yaml`. Its document of the kind `Case` has requests, and the outcomes that
//! the Gateway API prescribes, written by hand. The code that routes live traffic answers them from the compiled
//! config, so a golden output cannot bless a wrong translation. Every config passes `weir check`.
//!
//! `WEIR_BLESS=1` writes the golden outputs.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use weir_config::{Diagnostics, Node, Source};
use weir_gateway::explain::{Arriving, Explanation, TargetShown, explain};
use weir_gateway::{Checked, check};
use weir_kube::config::Thing;
use weir_kube::watch::status::merged;
use weir_kube::{Change, Cluster, Front, Memo, Name, Options, Status, Translation, translate};
use weir_testkit::Authority;

/// When statuses are written, in all tests.
const NOW: &str = "2026-11-29T06:00:00Z";
/// Our name, in all tests.
const CONTROLLER: &str = "weir.dev/gateway";
/// The limit of `translate`: most paths of an Ingress that are served.
const MAX_MATCHES: usize = 512;

/// A case: objects, and what is asked of them.
struct Case {
    cluster: Cluster,
    options: Options,
    /// Listener, method, URL, fields, outcome.
    requests: Vec<Asked>,
}

struct Asked {
    listener: String,
    method: String,
    url: String,
    fields: Vec<(String, String)>,
    outcome: String,
}

#[test]
fn cases_are_translated_as_the_api_wants() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "yaml") && !file.ends_with("base.yaml"));
    files.sort();
    assert!(files.len() > 20, "{} cases", files.len());
    let mut wrong = String::new();
    for file in files {
        if let Err(why) = run(&folder, &file) {
            let _ = writeln!(wrong, "{}:\n{why}", file.file_name().unwrap().display());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A status that is written is not written again, and rebuilds nothing.
#[test]
fn a_written_status_is_quiet() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let case = read(&folder, &folder.join("http-matching.yaml"));
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
        let old = objects(&folder, &folder.join("http-matching.yaml")).into_iter().find(|old| {
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

/// A Secret that turns invalid costs nobody the service that was there before, and the status says so.
#[test]
fn a_secret_that_turns_invalid_keeps_the_last_good_certificate() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut case = read(&folder, &folder.join("http-https-listener.yaml"));
    let before = translate(&case.cluster, &case.options);
    assert_eq!(before.config.files.len(), 2);
    let mut secret = objects(&folder, &folder.join("http-https-listener.yaml"))
        .into_iter()
        .find(|object| object["kind"] == "Secret")
        .unwrap();
    secret["data"]["tls.crt"] = json!("bm90IGEgY2VydGlmaWNhdGU=");
    assert_eq!(case.cluster.apply(&secret), Ok(Change::Config));
    let after = translate(&case.cluster, &case.options);
    assert_eq!(after.config, before.config);
    let told = |translated: &Translation| format!("{:?}", translated.statuses);
    assert!(!told(&before).contains("the one before is still served"));
    assert!(told(&after).contains("the one before is still served"), "{}", told(&after));
    // One that is gone is gone.
    case.cluster.delete(weir_kube::Kind::Secret, &Name::new("infra", "tls"));
    assert_eq!(translate(&case.cluster, &case.options).config.files.len(), 0);
}

/// A listener whose Secret is gone leaves those at its port as they are, so that their connections stay open.
#[test]
fn a_listener_without_its_secret_changes_no_other() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let file = folder.join("gateway-https-misdirected.yaml");
    let mut case = read(&folder, &file);
    let before = translate(&case.cluster, &case.options).config.listeners;
    let gateway = objects(&folder, &file).into_iter().find(|object| object["kind"] == "Gateway").unwrap();
    let (outer, inner) = ("gw_infra_edge_443", |name: &str| format!("tls_infra_edge_gw_infra_edge_{name}"));
    let names = ["one", "wild", "any"];
    for broken in [&["wild"][..], &["one", "wild"], &["wild", "any"], &["one", "any"], &["any"]] {
        let mut gateway = gateway.clone();
        for listener in gateway["spec"]["listeners"].as_array_mut().unwrap() {
            if broken.contains(&listener["name"].as_str().unwrap()) {
                listener["tls"] = json!({ "certificateRefs": [ { "name": "nothing" } ] });
            }
        }
        assert_eq!(case.cluster.apply(&gateway), Ok(Change::Config));
        let after = translate(&case.cluster, &case.options).config.listeners;
        assert_eq!(after[outer]["address"], before[outer]["address"], "{broken:?}: {after:?}");
        for name in names.into_iter().filter(|name| !broken.contains(name)) {
            assert_eq!(after[&inner(name)], before[&inner(name)], "{broken:?}: {after:?}");
        }
        assert_eq!(after.len(), before.len() - broken.len(), "{broken:?}: {after:?}");
    }
}

/// The config grows with the HTTPS listeners of a port, not with their pairs: many tenants add theirs to one Gateway.
#[test]
fn hundreds_of_https_listeners_fit_into_a_config() {
    const SETS: usize = 4;
    const LISTENERS: usize = 64;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut case = read(&folder, &folder.join("gateway-https-misdirected.yaml"));
    let mut gateway = objects(&folder, &folder.join("gateway-https-misdirected.yaml"))
        .into_iter()
        .find(|object| object["kind"] == "Gateway")
        .unwrap();
    gateway["spec"]["allowedListeners"] = json!({ "namespaces": { "from": "Same" } });
    case.cluster.apply(&gateway).unwrap();
    for set in 0..SETS {
        let listener = |at: usize| {
            json!({
                "name": format!("l{at}"), "port": 443, "protocol": "HTTPS", "hostname": format!("l{at}.s{set}.test"),
                "tls": { "certificateRefs": [ { "name": "tls" } ] },
            })
        };
        let object = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet",
            "metadata": { "namespace": "infra", "name": format!("s{set}") },
            "spec": {
                "parentRef": { "name": "edge" }, "listeners": (0..LISTENERS).map(listener).collect::<Vec<_>>(),
            },
        });
        case.cluster.apply(&object).unwrap();
    }
    let translated = translate(&case.cluster, &case.options);
    assert_eq!(translated.config.listeners.len(), SETS * LISTENERS + 4);
    let length = translated.config.to_text(&Map::new()).len();
    assert!(length < 1000 * SETS * LISTENERS, "{length} bytes");
    let folder = tempfile::tempdir().unwrap();
    let checked = checked(&translated, folder.path());
    assert_eq!(checked.diagnostics.errors(), 0, "{}", checked.diagnostics.to_text());
    let (_, snapshot) = checked.compiled.as_ref().unwrap();
    for (host, expected) in
        [("l3.s2.test", "404"), ("l4.s2.test", "421"), ("one.example.org", "421"), ("other.test", "421")]
    {
        let arriving = Arriving { listener: Some("tls_infra_edge_set_infra_s2_l3"), client: None };
        let told = explain(snapshot, arriving, "GET", &format!("https://{host}/"), &[]).unwrap();
        assert_eq!(outcome(&told), expected, "{host}");
    }
}

/// A path beyond the most answers 503, because a wider one may lack what guards it.
#[test]
fn paths_beyond_the_most_are_closed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut case = read(&folder, &folder.join("ingress.yaml"));
    let backend = json!({ "service": { "name": "v1", "port": { "number": 8080 } } });
    let path = |at: usize| json!({ "path": format!("/p{at}"), "pathType": "Prefix", "backend": backend });
    let paths: Vec<Value> = (0..MAX_MATCHES + 1).map(path).collect();
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": { "namespace": "infra", "name": "many", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": {
            "ingressClassName": "weir", "defaultBackend": backend,
            "rules": [ { "host": "many.test", "http": { "paths": paths } } ],
        },
    });
    case.cluster.apply(&ingress).unwrap();
    let translated = translate(&case.cluster, &case.options);
    let route = |at: usize| {
        let hit = |(_, value): &&(Arc<str>, Thing)| value["match"]["path"] == format!("/p{at}/*");
        translated.config.routes.iter().find(hit).map(|(_, value)| value).unwrap()
    };
    assert_eq!(route(MAX_MATCHES - 1)["upstream"], "svc_infra_v1_8080");
    assert_eq!(route(MAX_MATCHES)["respond"]["status"], 503);
    let told = translated.notices.iter().any(|(_, name, _)| name.name == "many");
    assert!(told, "{:?}", translated.notices);
    let default = |(name, value): &(Arc<str>, Thing)| {
        name.starts_with("ing_infra_many_") && value["match"]["path"] == "/*"
    };
    assert!(translated.config.routes.iter().any(default), "the default backend is there");
}

/// What is left out of an Ingress answers 503: a wider path of another Ingress may lack what guards it.
#[test]
fn what_is_left_out_is_closed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut case = read(&folder, &folder.join("ingress.yaml"));
    let backend = json!({ "service": { "name": "v1", "port": { "number": 8080 } } });
    let long = format!("/secret/{}", "x".repeat(2_000));
    let mut put = |name: &str, paths: &[(&str, &str)], annotations: Value| {
        let path =
            |(path, kind): &(&str, &str)| json!({ "path": path, "pathType": kind, "backend": backend });
        let paths: Vec<Value> = paths.iter().map(path).collect();
        case.cluster
            .apply(&json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
                "metadata": {
                    "namespace": "infra", "name": name, "annotations": annotations,
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                },
                "spec": {
                    "ingressClassName": "weir", "rules": [ { "host": "left.test", "http": { "paths": paths } } ],
                },
            }))
            .unwrap();
    };
    put("wide", &[("/", "Prefix"), ("/admin/public", "Prefix")], json!({}));
    put("long", &[(&long, "Prefix")], json!({}));
    put("admin", &[("/admin", "Prefix"), ("/one", "Exact")], json!({}));
    put("many", &[("/many", "Prefix")], json!({}));
    let alias = json!({ "nginx.ingress.kubernetes.io/server-alias": "other.test" });
    put("alias", &[("/alias", "Prefix")], alias);
    let ask = |case: &Case, options: &Options, host: &str, path: &str| {
        let translated = translate(&case.cluster, options);
        let folder = tempfile::tempdir().unwrap();
        let checked = checked(&translated, folder.path());
        assert_eq!(checked.diagnostics.errors(), 0, "{}", checked.diagnostics.to_text());
        let (_, snapshot) = checked.compiled.as_ref().unwrap();
        let arriving = Arriving { listener: Some("ingress-80"), client: None };
        let told = explain(snapshot, arriving, "GET", &format!("http://{host}{path}"), &[]).unwrap();
        let own = ["long", "admin", "alias"];
        let notices = translated.notices.iter().filter(|(_, name, _)| own.contains(&name.name.as_str()));
        (outcome(&told), notices.count())
    };
    let mut options = case.options.clone();
    let served = "svc_infra_v1_8080".to_owned();
    let closed = "503".to_owned();
    assert_eq!(ask(&case, &options, "left.test", &long), (closed.clone(), 1), "an Event says so");
    assert_eq!(ask(&case, &options, "left.test", "/secret/x").0, served);
    assert_eq!(ask(&case, &options, "left.test", "/admin/x").0, served);
    for name in ["admin", "alias"] {
        let key = (weir_kube::Kind::Ingress, Name::new("infra", name));
        options.refused.insert(key, "it is too much".to_owned());
    }
    for (host, path, expected) in [
        ("left.test", "/admin", &closed),
        ("left.test", "/admin/x", &closed),
        ("left.test", "/one", &closed),
        ("left.test", "/alias", &closed),
        ("other.test", "/alias/x", &closed),
        // What others have stays theirs.
        ("left.test", "/administration", &served),
        ("left.test", "/admin/public", &served),
        ("left.test", "/one/x", &served),
    ] {
        assert_eq!(ask(&case, &options, host, path), (expected.clone(), 3), "{host}{path}");
    }
    // So does its default backend.
    let by_default = |case: &mut Case, name: &str, created: &str| {
        let ingress = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": { "namespace": "infra", "name": name, "creationTimestamp": created },
            "spec": { "ingressClassName": "weir", "defaultBackend": backend },
        });
        case.cluster.apply(&ingress).unwrap();
    };
    by_default(&mut case, "guarded", "2026-01-01T00:00:00Z");
    by_default(&mut case, "open", "2026-01-02T00:00:00Z");
    assert_eq!(ask(&case, &options, "none.test", "/").0, served);
    options
        .refused
        .insert((weir_kube::Kind::Ingress, Name::new("infra", "guarded")), "it is too much".to_owned());
    assert_eq!(ask(&case, &options, "none.test", "/").0, closed);
    // If even that is refused, it is left out, because one Ingress must not keep the config of all from running.
    options.dropped.insert((weir_kube::Kind::Ingress, Name::new("infra", "admin")));
    assert_eq!(ask(&case, &options, "left.test", "/admin").0, served);
}

/// What is left out of an HTTPRoute answers with an error: a wider route, also one of another tenant, may lack what
/// guards it.
#[test]
fn what_is_left_out_of_a_route_is_closed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut case = read(&folder, &folder.join("attacks.yaml"));
    let mut put = |(namespace, name, day): (&str, &str, u8), host: &str, rules: Value| {
        case.cluster
            .apply(&json!({
                "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
                "metadata": {
                    "namespace": namespace, "name": name,
                    "creationTimestamp": format!("2026-02-0{day}T00:00:00Z"),
                },
                "spec": {
                    "parentRefs": [ { "name": "edge", "namespace": "infra" } ], "hostnames": [ host ],
                    "rules": rules,
                },
            }))
            .unwrap();
    };
    let rule = |path: &str, backend: &str| {
        json!({
            "matches": [ { "path": { "value": path } } ], "backendRefs": [ { "name": backend, "port": 8080 } ],
        })
    };
    put(("web", "wide", 1), "left.test", json!([rule("/", "web1")]));
    let guarded = json!([rule("/admin", "app1"), rule("/admin/open", "app2")]);
    put(("app", "admin", 2), "left.test", guarded);
    put(("web", "late", 3), "left.test", json!([rule("/admin", "web1")]));
    // More than the room of a namespace: each match takes some hundred bytes.
    let many = |at: usize| json!({ "path": { "value": format!("/many/{at}/{}", "x".repeat(200)) } });
    let matches: Vec<Value> = (0..MAX_MATCHES).map(many).collect();
    let greedy = json!([ { "matches": matches, "backendRefs": [ { "name": "v1", "port": 8080 } ] } ]);
    put(("infra", "greedy", 1), "left.test", greedy);
    let ask = |options: &Options, host: &str, path: &str| {
        let translated = translate(&case.cluster, options);
        let folder = tempfile::tempdir().unwrap();
        let checked = checked(&translated, folder.path());
        assert_eq!(checked.diagnostics.errors(), 0, "{}", checked.diagnostics.to_text());
        let (_, snapshot) = checked.compiled.as_ref().unwrap();
        let arriving = Arriving { listener: Some("gw_infra_edge_80"), client: None };
        let told = explain(snapshot, arriving, "GET", &format!("http://{host}{path}"), &[]).unwrap();
        let own = [("app", "admin"), ("infra", "greedy")];
        let is_own = |name: &Name| own.contains(&(name.namespace.as_str(), name.name.as_str()));
        (outcome(&told), translated.notices.iter().filter(|(_, name, _)| is_own(name)).count())
    };
    let route = |kind, namespace: &str, name: &str| (kind, Name::new(namespace, name));
    let http = weir_kube::Kind::HttpRoute;
    let mut options = case.options.clone();
    let long = |at: usize| format!("/many/{at}/{}", "x".repeat(200));
    let (web, none) = ("svc_web_web1_8080", 0);
    assert_eq!(ask(&options, "left.test", "/admin/x"), ("svc_app_app1_8080".to_owned(), none));
    for left_out in [route(http, "app", "admin"), route(http, "infra", "greedy")] {
        options.refused.insert(left_out, "it is too much".to_owned());
    }
    for (host, path, expected) in [
        ("left.test", "/admin", "500"),
        ("left.test", "/admin/x", "500"),
        ("left.test", "/admin/open", "500"),
        // What others have stays theirs.
        ("left.test", "/administration", web),
        ("left.test", "/", web),
        ("left.test", &*long(0), "500"),
        ("left.test", &*long(MAX_MATCHES - 1), web),
    ] {
        assert_eq!(ask(&options, host, path), (expected.to_owned(), 1), "{host}{path}");
    }
    // Nothing else of a route that is left out takes room.
    let upstreams = |options: &Options| translate(&case.cluster, options).config.upstreams;
    assert!(upstreams(&case.options).contains_key("svc_app_app2_8080"));
    assert!(!upstreams(&options).contains_key("svc_app_app2_8080"));
    // A match that Weir refuses is left out, and the others of its route stay closed.
    options.refused.clear();
    options.closed.insert(route(http, "app", "admin"), "its match is refused".to_owned());
    let name = "http_app_admin_0_0_gw_infra_edge_80";
    assert!(translate(&case.cluster, &options).config.routes.iter().any(|(known, _)| &**known == name));
    options.dropped_matches.insert(name.into(), Name::new("app", "admin"));
    assert_eq!(ask(&options, "left.test", "/admin/open"), ("500".to_owned(), none));
    assert_eq!(ask(&options, "left.test", "/admin/x"), (web.to_owned(), none));
}

/// A TLSRoute that is left out keeps its host: the connections are closed, and no wider host's route gets them.
#[test]
fn the_host_of_a_connection_route_that_is_left_out_stays_closed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let case = read(&folder, &folder.join("tls-and-tcp.yaml"));
    let mut options = case.options.clone();
    let to = |options: &Options| {
        let listeners = translate(&case.cluster, options).config.listeners;
        listeners["gw_infra_edge_443"]["sni"]["a.pass.example.org"].clone()
    };
    assert_ne!(to(&options), json!({ "upstream": "nowhere" }));
    options.refused.insert((weir_kube::Kind::TlsRoute, Name::new("infra", "pass")), "no".to_owned());
    assert_eq!(to(&options), json!({ "upstream": "nowhere" }));
}

/// A ListenerSet that is left out keeps its hosts: neither the routes of a wider listener nor a younger ListenerSet with
/// the same host get their requests.
#[test]
fn the_hosts_of_a_listener_set_that_is_left_out_stay_closed() {
    const SETS: usize = 5;
    const LISTENERS: usize = 64;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let file = folder.join("listener-sets.yaml");
    let mut case = read(&folder, &file);
    let mut gateway = objects(&folder, &file).into_iter().find(|object| object["kind"] == "Gateway").unwrap();
    let tls = json!({ "certificateRefs": [ { "name": "tls" } ] });
    let listeners = gateway["spec"]["listeners"].as_array_mut().unwrap();
    listeners.push(json!({ "name": "any", "port": 80, "protocol": "HTTP" }));
    listeners.push(json!({ "name": "secure", "port": 443, "protocol": "HTTPS", "tls": tls }));
    let spec = json!({
        "parentRefs": [ { "name": "edge", "sectionName": "any" }, { "name": "edge", "sectionName": "secure" } ],
        "rules": [ { "backendRefs": [ { "name": "v1", "port": 8080 } ] } ],
    });
    let wide = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": { "namespace": "infra", "name": "wide" }, "spec": spec,
    });
    let mut put_set = |name: &str, listeners: Vec<Value>| {
        let metadata =
            json!({ "namespace": "app", "name": name, "creationTimestamp": "2026-02-01T00:00:00Z" });
        let parent = json!({ "name": "edge", "namespace": "infra" });
        let object = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet", "metadata": metadata,
            "spec": { "parentRef": parent, "listeners": listeners },
        });
        case.cluster.apply(&object).unwrap();
    };
    put_set(
        "tls",
        vec![json!({
            "name": "https", "port": 443, "protocol": "HTTPS", "hostname": "tls.test",
            "tls": { "certificateRefs": [ { "name": "tls", "namespace": "infra" } ] },
        })],
    );
    // More than the room of a namespace.
    for set in 0..SETS {
        let listener = |at: usize| {
            json!({
                "name": format!("l{at}"), "port": 80, "protocol": "HTTP", "hostname": format!("z{at:02}.s{set}.test"),
            })
        };
        put_set(&format!("s{set}"), (0..LISTENERS).map(listener).collect());
    }
    for object in [gateway, wide] {
        case.cluster.apply(&object).unwrap();
    }
    let ask = |options: &Options, listener: &str, host: &str| {
        let translated = translate(&case.cluster, options);
        let folder = tempfile::tempdir().unwrap();
        let checked = checked(&translated, folder.path());
        assert_eq!(checked.diagnostics.errors(), 0, "{}", checked.diagnostics.to_text());
        let (_, snapshot) = checked.compiled.as_ref().unwrap();
        let arriving = Arriving { listener: Some(listener), client: None };
        outcome(&explain(snapshot, arriving, "GET", &format!("http://{host}/"), &[]).unwrap())
    };
    let (plain, wide) = ("gw_infra_edge_80", "svc_infra_v1_8080");
    let set = |name: &str| (weir_kube::Kind::ListenerSet, Name::new("app", name));
    let mut options = case.options.clone();
    assert_eq!(ask(&options, plain, "older.test"), "svc_app_app1_8080");
    for left_out in ["older", "tls"] {
        options.refused.insert(set(left_out), "it is too much".to_owned());
    }
    for (host, expected) in [
        ("older.test", "500"),
        ("new.test", "svc_app_app2_8080"),
        ("other.test", wide),
        ("z63.s4.test", "404"),
    ] {
        assert_eq!(ask(&options, plain, host), expected, "{host}");
    }
    let translated = translate(&case.cluster, &options);
    assert!(translated.notices.is_empty(), "{:?}", translated.notices);
    let nowhere = json!({ "upstream": "nowhere" });
    assert_eq!(translated.config.listeners["gw_infra_edge_443"]["sni"]["tls.test"], nowhere);
    assert_eq!(ask(&options, "tls_infra_edge_gw_infra_edge_secure", "tls.test"), "421");
    // What does not fit is not closed, and an Event of each set says so.
    for left_out in ["s0", "s1", "s2", "s3", "s4"] {
        options.refused.insert(set(left_out), "it is too much".to_owned());
    }
    for (host, expected) in [("older.test", "500"), ("z00.s0.test", "500"), ("z63.s4.test", wide)] {
        assert_eq!(ask(&options, plain, host), expected, "{host}");
    }
    let translated = translate(&case.cluster, &options);
    let mut told: Vec<&str> = translated.notices.iter().map(|(_, name, _)| name.name.as_str()).collect();
    told.sort_unstable();
    assert_eq!(told, ["s0", "s1", "s2", "s3", "s4", "tls"], "{:?}", translated.notices);
    assert!(translated.closed <= 64 << 10);
    // If Weir refuses even that, nothing is made of it.
    options.dropped.insert(set("older"));
    assert_eq!(ask(&options, plain, "older.test"), "404", "the younger one has the host now");
}

/// A listener of Weir that is left out costs what it would serve, and nothing else.
#[test]
fn a_listener_of_the_config_that_is_left_out_costs_no_other() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let left = |file: &str, part: &str| {
        let case = read(&folder, &folder.join(file));
        let mut options = case.options.clone();
        let owner = (weir_kube::Kind::Gateway, Name::new("infra", "edge"));
        let before: Vec<String> = translate(&case.cluster, &options).config.listeners.into_keys().collect();
        assert!(before.iter().any(|name| name == part), "{part}: {before:?}");
        options.refused_parts.insert(part.into(), (owner, "no".to_owned()));
        let translated = translate(&case.cluster, &options);
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(checked(&translated, folder.path()).diagnostics.errors(), 0);
        let now = translated.config.listeners;
        let gone = before.into_iter().filter(|name| !now.contains_key(name)).collect::<Vec<_>>();
        (gone, now)
    };
    // One that reads names has all those behind it.
    let (gone, _) = left("gateway-https-misdirected.yaml", "gw_infra_edge_443");
    assert_eq!(gone.len(), 4, "{gone:?}");
    let (gone, now) = left("gateway-https-misdirected.yaml", "tls_infra_edge_gw_infra_edge_one");
    assert_eq!(gone, ["tls_infra_edge_gw_infra_edge_one"]);
    assert_eq!(now["gw_infra_edge_443"]["sni"]["one.example.org"], json!({ "upstream": "nowhere" }));
    // A host of a TLSRoute has a listener of its own.
    let part = "tls_infra_edge_gw_infra_edge_term_617a0121e915";
    let (gone, now) = left("tls-and-tcp.yaml", part);
    assert_eq!(gone, [part]);
    assert_eq!(now["gw_infra_edge_443"]["sni"]["db.example.org"], json!({ "upstream": "nowhere" }));
}

/// Whoever loses something because an object of another namespace is left out is told.
#[test]
fn whoever_loses_a_gateway_or_a_service_is_told() {
    use weir_kube::Kind;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let case = read(&folder, &folder.join("http-cross-namespace.yaml"));
    let told = |left_out: Option<(Kind, Name)>| {
        let mut options = case.options.clone();
        options.refused.extend(left_out.map(|object| (object, "it is too much".to_owned())));
        let notices = translate(&case.cluster, &options).notices;
        notices.into_iter().map(|(kind, name, _)| format!("{} {name}", kind.as_str())).collect::<Vec<_>>()
    };
    assert_eq!(told(None), Vec::<String>::new());
    assert_eq!(told(Some((Kind::Gateway, Name::new("infra", "edge")))), ["HTTPRoute web/cross"]);
    assert_eq!(told(Some((Kind::Service, Name::new("web", "web1")))), ["Service web/web1"]);
}

/// Where the system does not let us listen, only the listeners of this address are left out.
#[test]
fn an_address_that_is_taken_costs_its_listeners_alone() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let why = "another process listens there";
    for (file, address, gone) in [
        ("ingress.yaml", "0.0.0.0:80", "ingress-80"),
        ("ingress.yaml", "0.0.0.0:443", "ingress-443"),
        ("tls-and-tcp.yaml", "0.0.0.0:5432", "gw_infra_edge_5432"),
    ] {
        let case = read(&folder, &folder.join(file));
        let mut options = case.options.clone();
        let mut listeners = translate(&case.cluster, &options).config.listeners;
        assert!(listeners.remove(gone).is_some(), "{gone}");
        options.busy.insert(address.parse().unwrap(), why.to_owned());
        let translated = translate(&case.cluster, &options);
        assert_eq!(
            translated.config.listeners.keys().collect::<Vec<_>>(),
            listeners.keys().collect::<Vec<_>>(),
            "{address}"
        );
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(checked(&translated, folder.path()).diagnostics.errors(), 0);
        let told = format!("{:?} {:?}", translated.statuses, translated.notices);
        assert!(told.contains(why) && told.contains("PortUnavailable"), "{told}");
        // The admin API may be what listens there.
        options.busy.clear();
        options.admin_address = Some(address.replace("0.0.0.0", "127.0.0.1").parse().unwrap());
        let translated = translate(&case.cluster, &options);
        assert_eq!(
            translated.config.listeners.keys().collect::<Vec<_>>(),
            listeners.keys().collect::<Vec<_>>()
        );
    }
}

/// All Ingresses share one listener, and TLS prefers an exact name to a wildcard: a certificate for a host of another
/// namespace is not served, and the name that nobody's rule has keeps nobody from it.
#[test]
fn certificates_of_ingresses_take_no_host_of_another_namespace() {
    let authority = Authority::new();
    let class = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": { "name": "weir" },
        "spec": { "controller": CONTROLLER },
    });
    // Each with its namespace, the host of its rule and the names of its certificate, the oldest first.
    let served = |all: &[(&str, &str, &[&str])]| {
        let mut cluster = Cluster::default();
        cluster.apply(&class).unwrap();
        let mut made = Vec::new();
        for (at, (namespace, host, names)) in all.iter().enumerate() {
            let certificate = authority.leaf(names);
            let text = |file: &Path| STANDARD.encode(fs::read(file).unwrap());
            let created = format!("202{at}-01-01T00:00:00Z");
            let meta =
                |name: &str| json!({ "namespace": namespace, "name": name, "creationTimestamp": created });
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": meta("tls"), "type": "kubernetes.io/tls",
                "data": { "tls.crt": text(&certificate.cert_file), "tls.key": text(&certificate.key_file) },
            });
            let ingress = json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta("web"),
                "spec": {
                    "ingressClassName": "weir", "tls": [ { "secretName": "tls" } ],
                    "rules": [ { "host": host, "http": { "paths": [] } } ],
                },
            });
            cluster.apply(&secret).unwrap();
            cluster.apply(&ingress).unwrap();
            made.push(fs::read(&certificate.cert_file).unwrap());
        }
        let options = Options { controller: CONTROLLER.to_owned(), ..Options::default() };
        let translated = translate(&cluster, &options);
        let listener = translated.config.listeners.get("ingress-443").unwrap();
        let shown: Vec<&Vec<u8>> = listener["tls"]["certificates"]
            .as_array()
            .unwrap()
            .iter()
            .map(|pair| &translated.config.files[pair["cert"].as_str().unwrap()])
            .collect();
        made.iter().map(|own| shown.contains(&own)).collect::<Vec<bool>>()
    };
    type Case<'a> = (&'a [(&'a str, &'a str, &'a [&'a str])], [bool; 2]);
    let cases: [Case<'_>; 5] = [
        // No rule of the other has this name of the wildcard.
        (&[("a", "*.shop.test", &["*.shop.test"]), ("b", "x.evil.test", &["www.shop.test"])], [true, false]),
        (&[("a", "*.shop.test", &["*.shop.test"]), ("b", "www.shop.test", &["www.shop.test"])], [true, true]),
        // Whoever has a rule has the name, though another brought it before.
        (&[("a", "x.evil.test", &["shop.test"]), ("b", "shop.test", &["shop.test"])], [false, true]),
        (&[("a", "shop.test", &["shop.test"]), ("b", "shop.test", &["shop.test"])], [true, false]),
        // Two that share names: the older is served.
        (&[("a", "a.test", &["a.test", "b.test"]), ("b", "b.test", &["a.test", "b.test"])], [true, false]),
    ];
    for (all, expected) in cases {
        assert_eq!(served(all), expected, "{all:?}");
    }
}

/// The ports of Gateways are those of the pods, where the admin API listens too. What a Gateway gets there would be the
/// token of whoever asks.
#[test]
fn no_gateway_gets_the_port_of_the_admin_api_or_of_another() {
    let mut cluster = Cluster::default();
    let mut put = |kind: &str, name: &str, created: &str, spec: Value| {
        let namespace = if kind == "GatewayClass" { "" } else { "a" };
        let meta = json!({ "namespace": namespace, "name": name, "creationTimestamp": created });
        let version = "gateway.networking.k8s.io/v1";
        let object = json!({ "apiVersion": version, "kind": kind, "metadata": meta, "spec": spec });
        cluster.apply(&object).unwrap();
    };
    let gateway = |address: &str, ports: &[u16]| {
        let listener = |port: &u16| json!({ "name": format!("p{port}"), "port": port, "protocol": "HTTP" });
        json!({
            "gatewayClassName": "weir", "addresses": [{ "value": address }],
            "listeners": ports.iter().map(listener).collect::<Vec<_>>(),
        })
    };
    put("GatewayClass", "weir", "2026-01-01T00:00:00Z", json!({ "controllerName": CONTROLLER }));
    put("Gateway", "first", "2026-01-01T00:00:00Z", gateway("10.0.0.1", &[80, 9180]));
    put("Gateway", "second", "2026-01-02T00:00:00Z", gateway("::ffff:10.0.0.1", &[80, 81]));
    let admin = Some(("weir".to_owned(), 9180));
    let mut options = Options { controller: CONTROLLER.to_owned(), admin, ..Options::default() };
    let translated = translate(&cluster, &options);
    let served: Vec<&str> = translated.config.listeners.keys().map(String::as_str).collect();
    assert_eq!(served, ["gw_a_first_80", "gw_a_second_81"]);
    for (name, told) in [
        ("first", "the admin API of Weir listens on port 9180"),
        ("second", "another Gateway listens on [::ffff:10.0.0.1]:80"),
    ] {
        let status = translated.statuses.iter().find(|status| status.name.name == name).unwrap();
        let status = status.wanted.to_string();
        assert!(status.contains("PortUnavailable") && status.contains(told), "{status}");
    }
    // In the network of the node, the admin API listens on 127.0.0.1, where all addresses would collide with it.
    options.admin = None;
    options.admin_address = Some("127.0.0.1:9180".parse().unwrap());
    let any = json!({ "gatewayClassName": "weir", "listeners": [
        { "name": "web", "port": 8080, "protocol": "HTTP" }, { "name": "admin", "port": 9180, "protocol": "HTTP" },
    ] });
    let version = "gateway.networking.k8s.io/v1";
    let meta = json!({ "namespace": "a", "name": "third", "creationTimestamp": "2026-01-03T00:00:00Z" });
    let third = json!({ "apiVersion": version, "kind": "Gateway", "metadata": meta, "spec": any });
    cluster.apply(&third).unwrap();
    let served = translate(&cluster, &options).config.listeners;
    let served: Vec<&str> = served.keys().map(String::as_str).collect();
    assert_eq!(served, ["gw_a_first_80", "gw_a_first_9180", "gw_a_second_81", "gw_a_third_8080"]);
    cluster.delete(weir_kube::Kind::Gateway, &Name::new("a", "first"));
    let served = translate(&cluster, &options).config.listeners;
    assert!(!served.contains_key("gw_a_third_9180"), "{served:?}");
    options.admin_address = None;
    assert!(translate(&cluster, &options).config.listeners.contains_key("gw_a_third_9180"));
}

/// Not a measurement: a quadratic algorithm would take minutes here.
#[test]
fn thousands_of_routes_are_translated() {
    const COUNT: usize = 5_000;
    let mut cluster = Cluster::default();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    for object in objects(&folder, &folder.join("http-weight.yaml")) {
        if object["kind"] != "Case" {
            cluster.apply(&object).unwrap();
        }
    }
    let route = |at: usize, status: Value| {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": { "namespace": "infra", "name": format!("r{at}"), "generation": 1 },
            "spec": {
                "parentRefs": [ { "name": "edge" } ], "hostnames": [ format!("h{at}.test") ],
                "rules": [ { "backendRefs": [ { "name": format!("s{at}"), "port": 80 } ] } ],
            },
            "status": status,
        })
    };
    for at in 0..COUNT {
        let name = format!("s{at}");
        let meta =
            json!({ "namespace": "infra", "name": name, "labels": { "kubernetes.io/service-name": name } });
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": { "ports": [ { "port": 80 } ] },
        });
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": meta, "addressType": "IPv4",
            "ports": [ { "port": 3000 } ],
            "endpoints": [ { "addresses": [ format!("10.{}.{}.1", at / 256, at % 256) ] } ],
        });
        for object in [route(at, json!({})), service, slice] {
            assert_eq!(cluster.apply(&object).unwrap(), Change::Config);
        }
    }
    let options = Options { controller: CONTROLLER.to_owned(), ..Options::default() };
    let began = Instant::now();
    let translated = translate(&cluster, &options);
    let took = began.elapsed();
    assert_eq!(translated.config.routes.len(), COUNT + 1);
    assert!(translated.config.upstreams.len() >= COUNT);
    let began = Instant::now();
    let patches = changes(&cluster, &translated.statuses, NOW);
    println!(
        "{COUNT} routes: translated in {took:?}, {} statuses compared in {:?}",
        patches.len(),
        began.elapsed()
    );
    let name = Name::new("infra", "r7");
    let patch = patches.iter().find(|patch| patch.name == name).unwrap();
    let began = Instant::now();
    assert_eq!(cluster.apply(&route(7, Value::clone(&patch.wanted))).unwrap(), Change::Status);
    println!("a status alone: {:?}", began.elapsed());
    let mut memo = Memo::default();
    assert_eq!(memo.translate(&cluster, &options).config, translated.config);
    for (what, kind, made) in [
        ("a Service changes", weir_kube::Kind::Service, 1),
        ("a Secret changes", weir_kube::Kind::Secret, 0),
        ("a Namespace changes", weir_kube::Kind::Namespace, 0),
    ] {
        let before = memo.routes_made();
        memo.changed(&options, kind, &Name::new("infra", "s7"));
        let began = Instant::now();
        let again = memo.translate(&cluster, &options);
        println!("{what}: {} routes translated in {:?}", memo.routes_made() - before, began.elapsed());
        assert_eq!((memo.routes_made() - before, &again.config), (made, &translated.config), "{what}");
    }
}

/// The statuses that have to be written.
fn changes(cluster: &Cluster, wanted: &[Status], now: &str) -> Vec<Status> {
    let change = |status: &Status| {
        let old = cluster.status(status.kind, &status.name)?;
        let wanted = merged(old, &status.wanted, CONTROLLER, now)?;
        Some(Status { wanted: wanted.into(), ..status.clone() })
    };
    wanted.iter().filter_map(change).collect()
}

fn run(folder: &Path, file: &Path) -> Result<(), String> {
    let case = read(folder, file);
    let translated = translate(&case.cluster, &case.options);
    let folder = tempfile::tempdir().unwrap();
    let checked = checked(&translated, folder.path());
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

fn checked(translated: &Translation, folder: &Path) -> Checked {
    let mut rest = Map::new();
    rest.insert("watch".to_owned(), json!(false));
    for (path, content) in &translated.config.files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let text = translated.config.to_text(&rest);
    check(&Source::sealed(folder.join("weir.yaml"), text, Vec::new()).ranked(), &[])
}

/// The route's target in short: upstreams with shares, a status, or where a redirect leads.
fn outcome(explanation: &Explanation) -> String {
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

fn objects(folder: &Path, file: &Path) -> Vec<Value> {
    [folder.join("base.yaml"), file.to_owned()].iter().flat_map(|file| documents(file)).collect()
}

fn read(folder: &Path, file: &Path) -> Case {
    let mut cluster = Cluster::default();
    let mut bind = BTreeMap::new();
    let mut options = Options { controller: CONTROLLER.to_owned(), ..Options::default() };
    let mut requests = Vec::new();
    for object in objects(folder, file) {
        if object["kind"] != "Case" {
            cluster.apply(&object).unwrap_or_else(|refused| panic!("{}: {refused:?}", file.display()));
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
