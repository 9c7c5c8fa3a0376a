//! What is left out: nobody else gets its requests, and it costs nobody else.

use crate::case::{Case, answer, checked, object_of, read};
use serde_json::{Value, json};
use std::sync::Arc;
use weir_kube::config::Thing;
use weir_kube::{Name, Options, translate};

/// The limit of `translate`: most paths of an Ingress that are served.
const MAX_MATCHES: usize = 512;

/// A path beyond the most answers 503, because a wider one may lack what guards it.
#[test]
fn paths_beyond_the_most_are_closed() {
    let mut case = read("ingress.yaml");
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
    let mut case = read("ingress.yaml");
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
        let told = answer(&translated, "ingress-80", &format!("http://{host}{path}"));
        let own = ["long", "admin", "alias"];
        let notices = translated.notices.iter().filter(|(_, name, _)| own.contains(&name.name.as_str()));
        (told, notices.count())
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
    let mut case = read("attacks.yaml");
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
        let told = answer(&translated, "gw_infra_edge_80", &format!("http://{host}{path}"));
        let own = [("app", "admin"), ("infra", "greedy")];
        let is_own = |name: &Name| own.contains(&(name.namespace.as_str(), name.name.as_str()));
        (told, translated.notices.iter().filter(|(_, name, _)| is_own(name)).count())
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
    let case = read("tls-and-tcp.yaml");
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
    let file = "listener-sets.yaml";
    let mut case = read(file);
    let mut gateway = object_of(file, "Gateway");
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
        answer(&translated, listener, &format!("http://{host}/"))
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

/// The closed hosts of TLS are a part of the Gateway's listener: no tenant makes it so long that the Gateway is cut.
#[test]
fn closed_hosts_of_many_listener_sets_cost_the_gateway_little() {
    const SETS: usize = 40;
    const LISTENERS: usize = 64;
    let file = "gateway-https-misdirected.yaml";
    let mut case = read(file);
    let mut gateway = object_of(file, "Gateway");
    gateway["spec"]["allowedListeners"] = json!({ "namespaces": { "from": "All" } });
    case.cluster.apply(&gateway).unwrap();
    for set in 0..SETS {
        let listener = |at: usize| {
            json!({
                "name": format!("l{at}"), "port": 443, "protocol": "HTTPS", "hostname": format!("l{at}.s{set}.test"),
                "tls": { "certificateRefs": [ { "name": "nothing" } ] },
            })
        };
        let listeners: Vec<Value> = (0..LISTENERS).map(listener).collect();
        let object = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet",
            "metadata": { "namespace": "app", "name": format!("s{set}") },
            "spec": { "parentRef": { "name": "edge", "namespace": "infra" }, "listeners": listeners },
        });
        case.cluster.apply(&object).unwrap();
    }
    let translated = translate(&case.cluster, &case.options);
    let sni = translated.config.listeners["gw_infra_edge_443"]["sni"].as_object().unwrap();
    assert_eq!(sni["l0.s0.test"], json!({ "upstream": "nowhere" }));
    assert!((1024..1300).contains(&sni.len()), "{} names", sni.len());
    assert!(translated.closed <= 64 << 10);
    let told = |(kind, name, _): &(weir_kube::Kind, Name, _)| {
        (*kind, name.namespace.as_str()) == (weir_kube::Kind::ListenerSet, "app")
    };
    assert!(translated.notices.iter().any(told), "{:?}", translated.notices);
}

/// A listener of Weir that is left out costs what it would serve, and nothing else.
#[test]
fn a_listener_of_the_config_that_is_left_out_costs_no_other() {
    let left = |file: &str, part: &str| {
        let case = read(file);
        let mut options = case.options.clone();
        let owner = (weir_kube::Kind::Gateway, Name::new("infra", "edge"));
        let before: Vec<String> = translate(&case.cluster, &options).config.listeners.into_keys().collect();
        assert!(before.iter().any(|name| name == part), "{part}: {before:?}");
        options.refused_parts.insert(part.into(), (owner, "no".to_owned()));
        let translated = translate(&case.cluster, &options);
        assert_eq!(checked(&translated).diagnostics.errors(), 0);
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
    let told = |file: &str, left_out: Option<(Kind, Name)>| {
        let case = read(file);
        let mut options = case.options.clone();
        options.refused.extend(left_out.map(|object| (object, "it is too much".to_owned())));
        let notices = translate(&case.cluster, &options).notices;
        notices.into_iter().map(|(kind, name, _)| format!("{} {name}", kind.as_str())).collect::<Vec<_>>()
    };
    let http = "http-cross-namespace.yaml";
    let edge = Some((Kind::Gateway, Name::new("infra", "edge")));
    assert_eq!(told(http, None), Vec::<String>::new());
    assert_eq!(told(http, edge.clone()), ["HTTPRoute web/cross"]);
    assert_eq!(told(http, Some((Kind::Service, Name::new("web", "web1")))), ["Service web/web1"]);
    let all = told("tls-and-tcp.yaml", edge);
    for route in ["HTTPRoute infra/web", "TLSRoute infra/pass", "TCPRoute infra/tcp"] {
        assert!(all.iter().any(|one| one == route), "{route}: {all:?}");
    }
}
