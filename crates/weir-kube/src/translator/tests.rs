//! What the translator leaves out, tells and keeps from one translation to the next.

use super::blame::thing_of;
use super::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use weir_config::{Diagnostic, Diagnostics};

fn put(translator: &mut GatewayApi, kind: &'static str, version: &str, mut object: Value) -> Effect {
    object["metadata"]["uid"] = json!("u");
    object["metadata"]["resourceVersion"] = json!(version);
    let resource = watched(kind).unwrap();
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

/// Of a route whose filters are refused, the requests must not take another route.
#[test]
fn a_route_with_refused_filters_answers_with_an_error() {
    let mut translator = translator();
    let name = "http_a_r.x_0_0_gw_a_gw_80";
    assert!(translator.translate().text.contains(name));
    let refuse = |translator: &mut GatewayApi| {
        let mut found = Diagnostics::default();
        for key in ["filters[0].headers", "upstream"] {
            let mut wrong = Diagnostic::error("filter-setting", "no");
            wrong.path = format!("routes.{name}.{key}");
            found.push(wrong);
        }
        translator.leave_out(&Mistakes::from(found))
    };
    assert!(refuse(&mut translator));
    let output = translator.translate();
    let line = output.text.lines().find(|line| line.contains(name)).unwrap();
    assert!(line.contains("\"respond\":{\"status\":500}"), "{line}");
    let target = Target { kind: "HTTPRoute", key: Name::new("a", "r.x") };
    assert_eq!(output.statuses[&target]["parents"][0]["conditions"][0]["reason"], "UnsupportedValue");
    // If that does not help, nothing of it stays.
    assert!(refuse(&mut translator));
    assert!(!translator.translate().text.contains(name));
}

/// A mistake with the path of a setting.
fn mistake(path: &str) -> Mistakes {
    let mut wrong = Diagnostic::error("file", "it holds no authority");
    wrong.path = path.to_owned();
    Mistakes::from(wrong)
}

/// Of a listener with an authority that Weir refuses, neither the Gateway nor its other listeners are left out.
#[test]
fn a_listener_that_is_refused_costs_no_other() {
    let mut translator = translator();
    let listener = |name: &str, port: u16| json!({ "name": name, "port": port, "protocol": "HTTP" });
    let gateway = |label: &str| {
        json!({
            "metadata": { "namespace": "a", "name": "gw" },
            "spec": {
                "gatewayClassName": "weir", "infrastructure": { "labels": { "a": label } },
                "listeners": [listener("good", 80), listener("bad", 81)],
            },
        })
    };
    put(&mut translator, "Gateway", "2", gateway("1"));
    let served = |translator: &mut GatewayApi| {
        let text = translator.translate().text;
        ["\"gw_a_gw_80\"", "\"gw_a_gw_81\""].map(|listener| text.contains(listener))
    };
    assert_eq!(served(&mut translator), [true, true]);
    let refused = mistake("listeners.gw_a_gw_81.tls.client_auth.ca");
    assert!(translator.leave_out(&refused));
    assert_eq!(served(&mut translator), [true, false]);
    let output = translator.translate();
    let status = &output.statuses[&Target { kind: "Gateway", key: Name::new("a", "gw") }];
    assert_eq!(status["conditions"][0]["status"], "True", "{status}");
    let accepted = |at: usize| &status["listeners"][at]["conditions"][0];
    assert_eq!(accepted(0)["status"], "True");
    assert_eq!(
        (&accepted(1)["status"], &accepted(1)["message"]),
        (&json!("False"), &json!("it holds no authority"))
    );
    assert!(!translator.leave_out(&refused), "nothing new");
    put(&mut translator, "Gateway", "3", gateway("2"));
    assert_eq!(served(&mut translator), [true, true]);
    // If a mistake stays although its listener is left out, all of the Gateway is.
    assert!(translator.leave_out(&refused));
    assert!(translator.leave_out(&refused));
    assert_eq!(served(&mut translator), [false, false]);
}

/// A change in another namespace may repair a refused listener: of a Secret, a ConfigMap, a grant, or the Gateway of a
/// ListenerSet.
#[test]
fn a_refused_listener_comes_back_with_what_it_refers_to() {
    let mut translator = translator();
    let authority = weir_testkit::Authority::new();
    let leaves = [authority.leaf(&["a.test"]), authority.leaf(&["b.test"])];
    let pem = |file: &std::path::Path| std::fs::read_to_string(file).unwrap();
    let base64 = |file: &std::path::Path| STANDARD.encode(pem(file));
    let meta = |namespace: &str, name: &str| json!({ "namespace": namespace, "name": name });
    let secret = |name: &str, version: usize| {
        let leaf = &leaves[version];
        let (cert, key) = (base64(&leaf.cert_file), base64(&leaf.key_file));
        json!({ "metadata": meta("b", name), "data": { "tls.crt": cert, "tls.key": key } })
    };
    let map = |name: &str, version: usize| {
        let text = format!("# {version}\n{}", pem(&authority.file()));
        json!({ "metadata": meta("b", name), "data": { "ca.crt": text } })
    };
    let grant = |namespace: &str, name: Option<&str>| {
        let group = "gateway.networking.k8s.io";
        let from =
            |kind: &str, namespace: &str| json!({ "group": group, "kind": kind, "namespace": namespace });
        let to = [("Secret", None), ("ConfigMap", None), ("Service", name)];
        let to = to.map(|(kind, name)| json!({ "group": "", "kind": kind, "name": name }));
        let spec = json!({ "from": [from("Gateway", "a"), from("ListenerSet", "c")], "to": to });
        json!({ "metadata": meta(namespace, "grant"), "spec": spec })
    };
    let listener = |name: &str, port: u16, secret: &str| {
        let secret = json!({ "name": secret, "namespace": "b" });
        json!({ "name": name, "port": port, "protocol": "HTTPS", "tls": { "certificateRefs": [secret] } })
    };
    let gateway = |name: &str, note: &str| {
        let authority = json!({ "group": "", "kind": "ConfigMap", "name": "ca", "namespace": "b" });
        let frontend = json!({ "default": { "validation": { "caCertificateRefs": [authority] } } });
        json!({
            "metadata": meta("a", name),
            "spec": {
                "gatewayClassName": "weir", "infrastructure": { "labels": { "note": note } },
                "listeners": [listener("own", 443, "gateway")], "tls": { "frontend": frontend },
                "allowedListeners": { "namespaces": { "from": "All" } },
            },
        })
    };
    let parent = json!({ "name": "gw", "namespace": "a" });
    let spec = json!({ "parentRef": parent, "listeners": [listener("own", 8443, "set")] });
    let set = json!({ "metadata": meta("c", "set"), "spec": spec });
    for (kind, object) in [
        ("Secret", secret("gateway", 0)),
        ("Secret", secret("set", 0)),
        ("ConfigMap", map("ca", 0)),
        ("ReferenceGrant", grant("b", None)),
        ("Gateway", gateway("gw", "")),
        ("ListenerSet", set),
    ] {
        put(&mut translator, kind, "1", object);
    }
    let listeners = ["gw_a_gw_443", "gw_a_gw_8443"];
    let served = |translator: &mut GatewayApi| {
        let text = translator.translate().text;
        listeners.map(|listener| text.lines().any(|line| thing_of(line) == Some(listener)))
    };
    assert_eq!(served(&mut translator), [true, true]);
    for (kind, object, expected) in [
        ("Secret", secret("gateway", 1), [true, false]),
        ("Secret", secret("set", 1), [false, true]),
        ("Secret", secret("other", 1), [false, false]),
        ("ConfigMap", map("ca", 1), [true, true]),
        ("ConfigMap", map("set", 1), [false, false]),
        ("ReferenceGrant", grant("b", Some("x")), [true, true]),
        ("ReferenceGrant", grant("d", None), [false, false]),
        ("Gateway", gateway("gw", "1"), [true, true]),
        // Of one namespace, everything counts.
        ("Gateway", gateway("other", "1"), [true, false]),
    ] {
        for (listener, is_served) in listeners.iter().zip(served(&mut translator)) {
            let refused = mistake(&format!("listeners.{listener}.tls.client_auth.ca"));
            assert!(!is_served || translator.leave_out(&refused), "{listener}");
        }
        assert_eq!(served(&mut translator), [false, false], "before {kind} {object}");
        assert_eq!(put(&mut translator, kind, "1", object.clone()), Effect::Config);
        assert_eq!(served(&mut translator), expected, "{kind} {object}");
    }
}

/// If Weir refuses even the closed hosts of a ListenerSet that is left out, these are left out too.
#[test]
fn closed_hosts_that_are_refused_are_left_out() {
    let mut translator = translator();
    let listener = |name: &str, host: Option<&str>| json!({ "name": name, "port": 80, "protocol": "HTTP", "hostname": host });
    let meta = |name: &str| json!({ "namespace": "a", "name": name });
    let spec = json!({
        "gatewayClassName": "weir", "listeners": [listener("any", None)],
        "allowedListeners": { "namespaces": { "from": "Same" } },
    });
    put(&mut translator, "Gateway", "2", json!({ "metadata": meta("gw"), "spec": spec }));
    let put_set = |translator: &mut GatewayApi, version: &str, host: &str| {
        let spec = json!({ "parentRef": { "name": "gw" }, "listeners": [listener("own", Some(host))] });
        put(translator, "ListenerSet", version, json!({ "metadata": meta("set"), "spec": spec }));
        translator.translate();
        let set = (Kind::ListenerSet, Name::new("a", "set"));
        translator.change_options(|options| drop(options.refused.insert(set, "it is too much".to_owned())));
    };
    put_set(&mut translator, "1", "own.test");
    let closed = |translator: &mut GatewayApi| {
        let text = translator.translate().text;
        let line = text.lines().find(|line| line.contains("\"host_") && line.contains("500"));
        line.and_then(thing_of).map(str::to_owned)
    };
    let name = closed(&mut translator).unwrap();
    assert!(translator.leave_out(&mistake(&format!("routes.{name}.match.hosts[0]"))));
    assert_eq!(closed(&mut translator), None);
    // It may be better once the set has changed.
    put_set(&mut translator, "2", "other.test");
    assert!(closed(&mut translator).is_some());
}

/// Of a Service with an upstream that Weir refuses, the other upstreams stay, and whoever uses it is told.
#[test]
fn an_upstream_that_is_refused_costs_no_other() {
    let mut translator = translator();
    let meta = |name: &str| json!({ "namespace": "a", "name": name });
    let ports = json!([{ "name": "web", "port": 80 }, { "name": "db", "port": 81 }]);
    put(&mut translator, "Service", "1", json!({ "metadata": meta("s"), "spec": { "ports": ports } }));
    let mut slice = json!({
        "metadata": meta("s-1"), "addressType": "IPv4", "endpoints": [{ "addresses": ["10.0.0.1"] }],
        "ports": [{ "name": "web", "port": 80 }, { "name": "db", "port": 81 }],
    });
    slice["metadata"]["labels"] = json!({ "kubernetes.io/service-name": "s" });
    put(&mut translator, "EndpointSlice", "1", slice.clone());
    let listeners = json!([
        { "name": "http", "port": 80, "protocol": "HTTP" }, { "name": "tcp", "port": 82, "protocol": "TCP" },
    ]);
    let spec = json!({ "gatewayClassName": "weir", "listeners": listeners });
    put(&mut translator, "Gateway", "2", json!({ "metadata": meta("gw"), "spec": spec }));
    let route = |section: &str, port: u16| {
        json!({
            "parentRefs": [{ "name": "gw", "sectionName": section }],
            "rules": [{ "backendRefs": [{ "name": "s", "port": port }] }],
        })
    };
    put(&mut translator, "HTTPRoute", "2", json!({ "metadata": meta("web"), "spec": route("http", 80) }));
    put(&mut translator, "TCPRoute", "1", json!({ "metadata": meta("db"), "spec": route("tcp", 81) }));
    let upstreams = ["svc_a_s_80", "svc_a_s_81_tcp"];
    let there = |output: &Output| upstreams.map(|name| output.supplies.contains_key(name));
    let reason = |output: &Output, kind: &'static str, name: &str| {
        let status = &output.statuses[&Target { kind, key: Name::new("a", name) }];
        status["parents"][0]["conditions"][1]["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(there(&translator.translate()), [true, true]);
    assert!(translator.leave_out(&mistake("upstreams.svc_a_s_81_tcp.tls.ca")));
    let output = translator.translate();
    assert_eq!(there(&output), [true, false]);
    assert_eq!(reason(&output, "HTTPRoute", "web"), "ResolvedRefs");
    assert_eq!(reason(&output, "TCPRoute", "db"), "BackendNotFound");
    // It may be better once an object of its namespace has changed.
    put(&mut translator, "TCPRoute", "2", json!({ "metadata": meta("db"), "spec": route("tcp", 80) }));
    put(&mut translator, "TCPRoute", "3", json!({ "metadata": meta("db"), "spec": route("tcp", 81) }));
    assert_eq!(there(&translator.translate()), [true, true]);
    // So it may if only its endpoints have changed.
    assert!(translator.leave_out(&mistake("upstreams.svc_a_s_81_tcp.tls.ca")));
    assert_eq!(there(&translator.translate()), [true, false]);
    slice["endpoints"][0]["addresses"] = json!(["10.0.0.2"]);
    assert_eq!(put(&mut translator, "EndpointSlice", "2", slice), Effect::Config);
    assert_eq!(there(&translator.translate()), [true, true]);
}

/// Where the system does not let us listen, one listener is left out until the address is free.
#[test]
fn an_address_that_is_taken_is_left_out_until_it_is_free() {
    let mut translator = translator();
    let listener = "\"gw_a_gw_80\"";
    assert!(translator.translate().text.contains(listener));
    let refuse = |translator: &mut GatewayApi, message: &str| {
        translator.leave_out(&Mistakes::from(Diagnostic::error("system", message.to_owned())))
    };
    let taken = "listeners.gw_a_gw_80: 0.0.0.0:80 is taken by process 7";
    assert!(refuse(&mut translator, taken));
    let output = translator.translate();
    assert!(!output.text.contains(listener), "{}", output.text);
    let target = Target { kind: "Gateway", key: Name::new("a", "gw") };
    let told = output.statuses[&target]["listeners"].to_string();
    assert!(told.contains("another process listens on 0.0.0.0:80") && !told.contains("process 7"), "{told}");
    assert!(!refuse(&mut translator, taken), "nothing new");
    let address = SocketAddr::from(([0, 0, 0, 0], 80));
    assert_eq!(translator.unbound(), [address]);
    translator.freed(&[address]);
    assert!(translator.translate().text.contains(listener));
    assert_eq!(translator.unbound(), []);
    let denied = "listeners.gw_a_gw_80: cannot listen on 0.0.0.0:80: Permission denied (os error 13)";
    assert!(refuse(&mut translator, denied));
    assert!(!refuse(&mut translator, "access_log: no space left on device"), "it is nobody's");
}

#[test]
fn endpoints_that_move_translate_nothing() {
    let mut translator = translator();
    let slice = |service: &str, addresses: &[&str]| {
        json!({
            "metadata": {
                "namespace": "a", "name": "x", "labels": { "kubernetes.io/service-name": service },
            },
            "addressType": "IPv4", "endpoints": [{ "addresses": addresses }], "ports": [{ "port": 80 }],
        })
    };
    for name in ["used", "other"] {
        let meta = json!({ "namespace": "a", "name": name });
        put(
            &mut translator,
            "Service",
            "1",
            json!({ "metadata": meta, "spec": { "ports": [{ "port": 80 }] } }),
        );
    }
    let mut routed = route(json!({}));
    routed["spec"]["rules"] = json!([{ "backendRefs": [{ "name": "used", "port": 80 }] }]);
    put(&mut translator, "HTTPRoute", "2", routed.clone());
    let first = put(&mut translator, "EndpointSlice", "1", slice("other", &["10.0.0.1"]));
    assert_eq!(first, Effect::Config, "nothing was translated yet");
    let mut known = translator.translate().supplies;
    // A refused config that is nobody's fault keeps no endpoint from moving.
    assert!(!translator.leave_out(&Mistakes::from(Diagnostic::error("files", "the disk is full"))));
    for (version, service, address, expected) in [
        ("2", "other", "10.0.0.2", Effect::Nothing),
        ("3", "used", "10.0.0.3", Effect::Config),
        ("4", "used", "10.0.0.4", Effect::Endpoints),
        ("5", "other", "10.0.0.5", Effect::Config),
        ("6", "other", "10.0.0.6", Effect::Nothing),
    ] {
        let effect = put(&mut translator, "EndpointSlice", version, slice(service, &[address]));
        assert_eq!(effect, expected, "{address}");
        match effect {
            Effect::Config => known = translator.translate().supplies,
            _ => known.extend(translator.moved()),
        }
        let there = format!("{known:?}").contains(address);
        assert_eq!(there, service == "used", "{address}: {known:?}");
    }
    assert!(translator.moved().is_empty());

    // A config without the upstream is refused: in the one that runs, its endpoints go on moving, down to none.
    let upstream = "svc_a_used_80";
    put(&mut translator, "EndpointSlice", "7", slice("used", &["10.0.0.7"]));
    assert!(translator.translate().supplies.contains_key(upstream));
    translator.adopted();
    put(&mut translator, "HTTPRoute", "3", route(json!({})));
    assert!(!translator.translate().supplies.contains_key(upstream));
    assert!(!translator.leave_out(&Mistakes::from(Diagnostic::error("files", "the disk is full"))));
    for (version, addresses, effect, expected) in [
        ("8", &["10.0.0.8"][..], Effect::Endpoints, "10.0.0.8"),
        ("9", &[], Effect::Config, "endpoints: []"),
        ("10", &["10.0.0.10"], Effect::Endpoints, "10.0.0.10"),
    ] {
        let told = put(&mut translator, "EndpointSlice", version, slice("used", addresses));
        assert_eq!(told, effect, "{addresses:?}");
        if told == Effect::Config {
            translator.translate();
        }
        let moved = format!("{:?}", translator.moved().get(upstream));
        assert!(moved.contains(expected), "{addresses:?}: {moved}");
    }
    // Once it no longer runs, nobody needs them.
    translator.translate();
    translator.adopted();
    let effect = put(&mut translator, "EndpointSlice", "11", slice("used", &["10.0.0.11"]));
    assert_eq!((effect, translator.moved().len()), (Effect::Nothing, 0));

    // If a translation panics, nothing is kept, and the endpoints of what runs go on moving.
    put(&mut translator, "HTTPRoute", "4", routed);
    assert!(translator.translate().supplies.contains_key(upstream));
    translator.adopted();
    translator.memo = None;
    for (version, addresses, expected) in [
        ("12", &["10.0.0.12"][..], "10.0.0.12"),
        ("13", &[], "endpoints: []"),
        ("14", &["10.0.0.14"], "10.0.0.14"),
    ] {
        let told = put(&mut translator, "EndpointSlice", version, slice("used", addresses));
        assert_eq!(told, Effect::Config, "{addresses:?}");
        let moved = format!("{:?}", translator.moved().get(upstream));
        assert!(moved.contains(expected), "{addresses:?}: {moved}");
    }
    // The Service is still known, but no upstream of a route that is gone gets its endpoints.
    translator.translate();
    translator.adopted();
    put(&mut translator, "HTTPRoute", "5", route(json!({})));
    translator.translate();
    translator.adopted();
    let effect = put(&mut translator, "EndpointSlice", "15", slice("used", &["10.0.0.15"]));
    assert_eq!((effect, translator.moved().len()), (Effect::Nothing, 0));
}

/// Objects above the share of their namespace come back when another namespace asks for less.
#[test]
fn shares_are_worked_out_again_when_others_shrink() {
    let mut translator = translator();
    let put_route = |translator: &mut GatewayApi, version: &str, namespace: &str, paths: usize| {
        let value = |at: usize| json!({ "path": { "value": format!("/{namespace}/{at:0>40}") } });
        let mut object = route(json!({}));
        object["metadata"] = json!({ "namespace": namespace, "name": "r" });
        object["spec"]["parentRefs"] = json!([{ "name": "gw", "namespace": "a" }]);
        object["spec"]["rules"] = json!([{ "matches": (0..paths).map(value).collect::<Vec<_>>() }]);
        put(translator, "HTTPRoute", version, object);
    };
    let listener = json!({
        "name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": { "namespaces": { "from": "All" } },
    });
    let gateway = json!({
        "metadata": { "namespace": "a", "name": "gw" },
        "spec": { "gatewayClassName": "weir", "listeners": [ listener ] },
    });
    put(&mut translator, "Gateway", "2", gateway);
    put_route(&mut translator, "1", "b", 40);
    let alone = translator.translate().text.len();
    let has_b = |output: &Output| {
        let status = &output.statuses[&Target { kind: "HTTPRoute", key: Name::new("b", "r") }];
        status["parents"][0]["conditions"][0]["status"] == "True"
    };
    translator.longest = alone + 10;
    put_route(&mut translator, "2", "c", 15);
    let cut = translator.translate();
    assert!(!has_b(&cut) && cut.text.contains("/c/"), "c asks for less");
    put_route(&mut translator, "3", "c", 14);
    assert!(!has_b(&translator.translate()));
    assert!(!translator.cut.is_empty());
    translator.change(&store::Change { kind: "HTTPRoute", key: Name::new("c", "r"), object: None });
    assert!(has_b(&translator.translate()), "there is room again");
    assert!(translator.cut.is_empty());
}

/// What no object owns counts as well: a config that is cut fits at once.
#[test]
fn shares_leave_room_for_the_operators_own_sections() {
    let mut translator = translator();
    translator.rest.insert("log".to_owned(), json!({ "output": "x".repeat(5_000) }));
    for (version, name) in [("1", "one"), ("2", "two"), ("3", "three")] {
        let mut object = route(json!({}));
        object["metadata"] = json!({ "namespace": "a", "name": name });
        object["spec"]["rules"] =
            json!([{ "matches": [{ "path": { "value": format!("/{}", "p".repeat(900)) } }] }]);
        put(&mut translator, "HTTPRoute", version, object);
    }
    let whole = translator.translate().text.len();
    translator.longest = whole - 100;
    translator.translate();
    assert_eq!(translator.cut.len(), 1, "one route is enough");
    let (cut, text) = (translator.cut.clone(), translator.text.len());
    translator.translate();
    assert_eq!((translator.cut, translator.text.len()), (cut, text));
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
    let target = Target { kind: "HTTPRoute", key: Name::new("a", "r.x") };
    assert_eq!(output.statuses[&target]["parents"][0]["conditions"][0]["reason"], "UnsupportedValue");
    // Another route of the same name in another namespace is not touched, and a new version has its chance.
    let mut changed = route(json!({}));
    changed["spec"]["hostnames"] = json!(["a.test"]);
    assert_eq!(put(&mut translator, "HTTPRoute", "3", changed), Effect::Config);
    assert!(translator.translate().text.contains(name));
}
