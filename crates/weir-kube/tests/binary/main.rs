//! The binary `weir-kube` against a fake API server: objects of the Gateway API in, answers and statuses out.
//!
//! *Layout:* this file has the binary and what a Gateway on a port of the pod does, `services.rs` is about the Services of
//! Gateways, `scale.rs` about many routes.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

mod scale;
mod services;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;
use std::time::Duration;
use weir_testkit::kube::FakeKube;
use weir_testkit::{Authority, Certificate, Client, Tls, command_for, eventually_within, unused_address};

const SOON: Duration = Duration::from_secs(30);
const GATEWAY: &str = "gateway.networking.k8s.io/v1";

/// A running binary.
struct Running {
    process: Child,
    admin: String,
}

impl Running {
    fn start(kube: &FakeKube, folder: &Path) -> Self {
        Self::start_with(kube, folder, &[])
    }

    fn start_with(kube: &FakeKube, folder: &Path, more: &[&str]) -> Self {
        let admin = unused_address().to_string();
        let settings = folder.join("settings.yaml");
        // As the manifests have it: a Secret holds the token.
        let tokens = "[ { name: read, token: \"${TOKEN}\", role: read } ]";
        let text = format!("admin: {{ address: \"{admin}\", tokens: {tokens} }}\nworkers: 1\n");
        std::fs::write(&settings, text).unwrap();
        let mut command = command_for(Path::new(env!("CARGO_BIN_EXE_weir-kube")), folder);
        command.env("TOKEN", "secret-of-prometheus");
        command.args(["--server", &kube.url(), "--namespace", "weir", "--service", "weir"]);
        command.args(more).arg("--config").arg(settings).arg("--state").arg(folder.join("state"));
        let mut process = command.spawn().unwrap();
        let stderr = process.stderr.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                eprintln!("{}", line.unwrap_or_default());
            }
        });
        Self { process, admin }
    }

    fn readyz(&self) -> Option<String> {
        Client::can_connect(&self.admin).then(|| Client::connect(&self.admin).get("/readyz").text())
    }

    /// What the admin API says to a reader.
    fn status(&self) -> Value {
        let token = "Authorization: Bearer secret-of-prometheus";
        let request = format!("GET /status HTTP/1.1\r\nHost: {}\r\n{token}\r\n\r\n", self.admin);
        serde_json::from_str(&Client::connect(&self.admin).ask(&request).text()).unwrap()
    }

    /// Sends SIGTERM and waits for the end.
    fn stop(mut self) {
        let pid = i32::try_from(self.process.id()).unwrap();
        // SAFETY: a plain system call on a child that has not been waited for.
        #[allow(unsafe_code, reason = "std has no signals")]
        let sent = unsafe { libc::kill(pid, libc::SIGTERM) };
        assert_eq!(sent, 0);
        assert!(self.process.wait().unwrap().success());
    }
}

fn gateway(address: std::net::SocketAddr) -> Value {
    json!({
        "apiVersion": GATEWAY, "kind": "Gateway", "metadata": { "namespace": "shop", "name": "web" },
        "spec": {
            "gatewayClassName": "weir",
            "addresses": [{ "type": "IPAddress", "value": address.ip().to_string() }],
            "listeners": [{ "name": "http", "protocol": "HTTP", "port": address.port() }],
        },
    })
}

/// The same, with a certificate from this Secret.
fn gateway_over_tls(address: std::net::SocketAddr, secret: &Value) -> Value {
    let mut gateway = gateway(address);
    gateway["spec"]["listeners"][0]["protocol"] = json!("HTTPS");
    gateway["spec"]["listeners"][0]["tls"] = json!({ "certificateRefs": [secret] });
    gateway
}

/// The Secret `tls` of a namespace.
fn secret(namespace: &str, leaf: &Certificate) -> Value {
    let text = |file: &Path| STANDARD.encode(std::fs::read(file).unwrap());
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": namespace, "name": "tls" },
        "data": { "tls.crt": text(&leaf.cert_file), "tls.key": text(&leaf.key_file) },
    })
}

/// Whether [`redirect`] from `/old` works over TLS.
fn serves(address: std::net::SocketAddr, authority: &Authority) -> bool {
    let client = Client::try_connect_tls(address, &Tls::new(authority, "localhost"));
    client.is_ok_and(|mut client| client.get("/old").status == 302)
}

fn redirect(name: &str, path: &str, to: &str) -> Value {
    json!({
        "apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": { "namespace": "shop", "name": name },
        "spec": {
            "parentRefs": [{ "name": "web" }],
            "rules": [{
                "matches": [{ "path": { "type": "PathPrefix", "value": path } }],
                "filters": [{ "type": "RequestRedirect", "requestRedirect": { "hostname": to, "statusCode": 302 } }],
            }],
        },
    })
}

fn class() -> Value {
    json!({
        "apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": { "name": "weir" },
        "spec": { "controllerName": "gateway.weir.dev/controller" },
    })
}

fn condition(object: &Value, path: &str, kind: &str) -> Option<String> {
    let all = object.pointer(path)?.as_array()?;
    let found = all.iter().find(|condition| condition["type"] == kind)?;
    Some(found["status"].as_str()?.to_owned())
}

#[test]
fn a_gateway_serves_and_says_so() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    let address = unused_address();
    let running = Running::start(&kube, folder.path());
    eventually_within(SOON, "it is ready", || running.readyz().as_deref() == Some("ready\n"));
    for (token, status) in [("secret-of-prometheus", 200), ("another", 401)] {
        let host = &running.admin;
        let request =
            format!("GET /status HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n");
        Client::connect(host).ask(request).expect_status(status);
    }
    kube.put(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } }));
    kube.put(class());
    kube.put(gateway(address));
    kube.put(redirect("old", "/old", "new.example"));
    let status = |path: &str, kind: &str| condition(&kube.get("Gateway", "shop", "web").unwrap(), path, kind);
    eventually_within(SOON, "the Gateway is programmed", || {
        status("/status/conditions", "Programmed").as_deref() == Some("True")
    });
    eventually_within(SOON, "the class and the route are accepted", || {
        let class = kube.get("GatewayClass", "", "weir").unwrap();
        let route = kube.get("HTTPRoute", "shop", "old").unwrap();
        condition(&class, "/status/conditions", "Accepted").as_deref() == Some("True")
            && condition(&route, "/status/parents/0/conditions", "Accepted").as_deref() == Some("True")
    });
    let response = Client::connect(address).get("/old/a");
    // A redirect without a port of its own keeps that of the listener.
    let location = |host: &str| format!("http://{host}:{}/old/a", address.port());
    response.expect_status(302).expect_header("location", &location("new.example"));
    kube.put(redirect("old", "/old", "other.example"));
    eventually_within(SOON, "the change serves", || {
        Client::connect(address).get("/old/a").header("location") == Some(location("other.example").as_str())
    });
    running.stop();
    assert_eq!(kube.get("Lease", "weir", "weir-leader").unwrap()["spec"]["holderIdentity"], "");
}

/// Pods that come and go change where requests go, and nothing is loaded again. The first and the last pod of a Service
/// change what its routes answer.
#[test]
fn pods_that_move_cause_no_reload() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    let address = unused_address();
    kube.put(class());
    kube.put(gateway(address));
    kube.put(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "namespace": "shop", "name": "cart" },
        "spec": { "ports": [{ "port": 80 }] },
    }));
    let pods = |addresses: &[&str]| {
        let endpoint = |address: &&str| json!({ "addresses": [address], "zone": "z" });
        kube.put(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "namespace": "shop", "name": "cart-x", "labels": { "kubernetes.io/service-name": "cart" },
            },
            "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(), "ports": [{ "port": 3000 }],
        }));
    };
    let mut route = redirect("cart", "/cart", "x.example");
    route["spec"]["rules"] = json!([{ "backendRefs": [{ "name": "cart", "port": 80 }] }]);
    kube.put(route);
    pods(&["192.0.2.1"]); // TEST-NET-1
    let running = Running::start(&kube, folder.path());
    let has = |address: &str| running.status().to_string().contains(&format!("{address}:3000"));
    eventually_within(SOON, "the pod is an endpoint", || running.readyz().is_some() && has("192.0.2.1"));
    let config = || {
        let status = running.status();
        (status["revision"].clone(), status["last_reload"].clone())
    };
    let before = config();
    for number in 2..6 {
        let (old, new) = (format!("192.0.2.{number}"), format!("192.0.2.{}", number + 1));
        pods(&[&old, &new]);
        eventually_within(SOON, "the new pod is an endpoint", || has(&new) && !has("192.0.2.1"));
    }
    assert_eq!(config(), before, "nothing was loaded again");
    pods(&[]);
    eventually_within(SOON, "without a pod there is another config", || config() != before);
    Client::connect(address).get("/cart").expect_status(503);
    pods(&["192.0.2.9"]);
    eventually_within(SOON, "it has a pod again", || has("192.0.2.9"));
    running.stop();
}

/// A tenant's listener on a port that is taken costs nobody else anything, nor the other listeners of its Gateway.
#[test]
fn a_port_that_is_taken_costs_its_listener_alone() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    let (address, free) = (unused_address(), unused_address());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    kube.put(class());
    kube.put(gateway(address));
    kube.put(redirect("old", "/old", "new.example"));
    let mut greedy = gateway(taken.local_addr().unwrap());
    greedy["metadata"] = json!({ "namespace": "tenant", "name": "greedy" });
    let listener = json!({ "name": "free", "protocol": "HTTP", "port": free.port() });
    greedy["spec"]["listeners"].as_array_mut().unwrap().push(listener);
    kube.put(greedy);
    let mut route = redirect("own", "/own", "own.example");
    route["metadata"]["namespace"] = json!("tenant");
    route["spec"]["parentRefs"] = json!([{ "name": "greedy" }]);
    kube.put(route);
    let running = Running::start(&kube, folder.path());
    eventually_within(SOON, "its status says why", || {
        let greedy = kube.get("Gateway", "tenant", "greedy").unwrap();
        let all = greedy.pointer("/status/listeners/0/conditions").map(Value::to_string).unwrap_or_default();
        all.contains("PortUnavailable") && all.contains("another process listens on")
    });
    Client::connect(address).get("/old").expect_status(302);
    Client::connect(free).get("/own").expect_status(302);
    running.stop();
}

/// In the network of the node, the admin API listens on a loopback address, and a Gateway may ask for its port.
#[test]
fn the_port_of_the_admin_api_costs_its_listener_alone() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    let free = unused_address();
    let running = Running::start(&kube, folder.path());
    let admin: u16 = running.admin.rsplit(':').next().unwrap().parse().unwrap();
    kube.put(class());
    let mut web = gateway(free);
    let listener = json!({ "name": "admin", "protocol": "HTTP", "port": admin });
    web["spec"]["listeners"].as_array_mut().unwrap().push(listener);
    web["spec"]["addresses"] = json!([]);
    kube.put(web);
    kube.put(redirect("old", "/old", "new.example"));
    eventually_within(SOON, "its status says why", || {
        let web = kube.get("Gateway", "shop", "web").unwrap();
        let all = web.pointer("/status/listeners/1/conditions").map(Value::to_string).unwrap_or_default();
        all.contains("PortUnavailable") && all.contains("the admin API of Weir")
    });
    eventually_within(SOON, "the other listener serves", || {
        Client::can_connect(free) && Client::connect(free).get("/old").status == 302
    });
    running.stop();
}

/// No wider listener gets the connections and requests for the host of a listener whose Secret is missing, nor of one
/// that passes connections on.
#[test]
fn a_listener_without_its_secret_keeps_its_host() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    let address = unused_address();
    let authority = Authority::new();
    let leaf = authority.leaf(&["localhost", "lost.test", "pass.test"]);
    kube.put(secret("shop", &leaf));
    kube.put(class());
    let listener = |name: &str, host: Option<&str>, secret: &str| {
        json!({
            "name": name, "protocol": "HTTPS", "port": address.port(), "hostname": host,
            "tls": { "certificateRefs": [{ "name": secret }] },
        })
    };
    let mut web = gateway(address);
    let mut pass = listener("pass", Some("pass.test"), "tls");
    (pass["protocol"], pass["tls"]) = (json!("TLS"), json!({ "mode": "Passthrough" }));
    web["spec"]["listeners"] =
        json!([listener("any", None, "tls"), listener("lost", Some("lost.test"), "gone"), pass]);
    kube.put(web);
    kube.put(redirect("old", "/old", "new.example"));
    let running = Running::start(&kube, folder.path());
    let connect = |name: &str| Client::try_connect_tls(address, &Tls::new(&authority, name));
    eventually_within(SOON, "the wider listener serves", || serves(address, &authority));
    for host in ["lost.test", "pass.test"] {
        assert!(connect(host).is_err(), "{host}");
        let request = format!("GET /old HTTP/1.1\r\nHost: {host}\r\n\r\n");
        connect("localhost").unwrap().ask(request).expect_status(421);
    }
    running.stop();
}

/// A listener serves once the Secret, the ConfigMap and the grant that it needs in another namespace are there.
#[test]
fn a_listener_waits_for_objects_of_another_namespace() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    let address = unused_address();
    let authority = Authority::new();
    let leaf = authority.leaf(&["localhost"]);
    let meta = |name: &str| json!({ "namespace": "certs", "name": name });
    let reference =
        |kind: &str, name: &str| json!({ "kind": kind, "name": name, "namespace": "certs", "group": "" });
    kube.put(class());
    let mut web = gateway_over_tls(address, &reference("Secret", "tls"));
    let authorities = [reference("ConfigMap", "ca")];
    let validation = json!({ "caCertificateRefs": authorities, "mode": "AllowInsecureFallback" });
    web["spec"]["tls"] = json!({ "frontend": { "default": { "validation": validation } } });
    kube.put(web);
    kube.put(redirect("old", "/old", "new.example"));
    let running = Running::start(&kube, folder.path());
    let is = |kind: &str, reason: &str| {
        let web = kube.get("Gateway", "shop", "web").unwrap();
        let all = web.pointer("/status/listeners/0/conditions").and_then(Value::as_array).cloned();
        all.unwrap_or_default().iter().any(|one| one["type"] == kind && one["reason"] == reason)
    };
    let serves = || serves(address, &authority);
    let grant = || {
        let to = ["Secret", "ConfigMap"].map(|kind| json!({ "group": "", "kind": kind }));
        let from = json!([{ "group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "shop" }]);
        kube.put(json!({
            "apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant", "metadata": meta("shop"),
            "spec": { "from": from, "to": to },
        }));
    };
    let map = || {
        let pem = std::fs::read_to_string(authority.file()).unwrap();
        kube.put(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("ca"), "data": { "ca.crt": pem } }));
    };
    eventually_within(SOON, "the grant is missing", || is("ResolvedRefs", "RefNotPermitted"));
    grant();
    eventually_within(SOON, "the Secret is missing", || is("ResolvedRefs", "InvalidCertificateRef"));
    kube.put(secret("certs", &leaf));
    eventually_within(SOON, "the ConfigMap is missing", || is("ResolvedRefs", "InvalidCACertificateRef"));
    map();
    eventually_within(SOON, "it serves", || is("Programmed", "Programmed") && serves());
    kube.delete("ConfigMap", "certs", "ca");
    eventually_within(SOON, "nobody could prove who they are", || is("Accepted", "NoValidCACertificate"));
    map();
    eventually_within(SOON, "it serves again", || is("Programmed", "Programmed") && serves());
    kube.delete("ReferenceGrant", "certs", "shop");
    eventually_within(SOON, "the grant is gone", || is("ResolvedRefs", "RefNotPermitted") && !serves());
    grant();
    eventually_within(SOON, "it serves once more", || is("Programmed", "Programmed") && serves());
    running.stop();
}

/// Of a route that Weir refuses, no wider route of another tenant gets the requests.
#[test]
fn a_route_that_is_refused_keeps_its_requests() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    let address = unused_address();
    kube.put(class());
    let mut shared = gateway(address);
    shared["spec"]["listeners"][0]["allowedRoutes"] = json!({ "namespaces": { "from": "All" } });
    kube.put(shared);
    kube.put(redirect("wide", "/", "wide.example"));
    let admin = |method: &str| {
        let mut route = redirect("admin", "/admin", "login.example");
        route["metadata"]["namespace"] = json!("tenant");
        route["spec"]["parentRefs"] = json!([{ "name": "web", "namespace": "shop" }]);
        let mut one = route["spec"]["rules"][0].clone();
        one["matches"] = json!([{ "path": { "value": "/admin/one" }, "method": method }]);
        route["spec"]["rules"].as_array_mut().unwrap().push(one);
        route
    };
    // No method of Weir's, so the whole config is refused because of it.
    kube.put(admin("get"));
    let running = Running::start(&kube, folder.path());
    let accepted =
        || condition(&kube.get("HTTPRoute", "tenant", "admin")?, "/status/parents/0/conditions", "Accepted");
    eventually_within(SOON, "the status says so", || accepted().as_deref() == Some("False"));
    let get = |path: &str| Client::connect(address).get(path);
    get("/admin/users").expect_status(500);
    get("/admin/one").expect_status(500);
    get("/other").expect_status(302);
    kube.put(admin("GET"));
    eventually_within(SOON, "it is accepted once it is mended", || accepted().as_deref() == Some("True"));
    let location = get("/admin/one").header("location").map(str::to_owned);
    assert!(location.is_some_and(|to| to.starts_with("http://login.example")));
    running.stop();
}

/// A Secret that turned invalid costs no service after a restart either.
#[test]
fn the_last_good_certificate_survives_a_restart() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    let address = unused_address();
    let authority = Authority::new();
    let leaf = authority.leaf(&["localhost"]);
    kube.put(class());
    kube.put(gateway_over_tls(address, &json!({ "name": "tls" })));
    kube.put(redirect("old", "/old", "new.example"));
    kube.put(secret("shop", &leaf));
    let serves = || serves(address, &authority);
    let resolved = || {
        let web = kube.get("Gateway", "shop", "web")?;
        condition(&web, "/status/listeners/0/conditions", "ResolvedRefs")
    };
    let running = Running::start(&kube, folder.path());
    eventually_within(SOON, "it serves", || running.readyz().is_some() && serves());
    let mut invalid = secret("shop", &leaf);
    invalid["data"]["tls.crt"] = json!("bm8=");
    kube.put(invalid);
    eventually_within(SOON, "its status says so", || resolved().as_deref() == Some("False"));
    assert!(serves());
    let saved = || std::fs::read_to_string(folder.path().join("state/objects.json")).unwrap_or_default();
    eventually_within(SOON, "the objects are on disk", || saved().contains("bm8="));
    running.stop();

    let running = Running::start(&kube, folder.path());
    eventually_within(SOON, "it is ready", || running.readyz().as_deref() == Some("ready\n"));
    assert!(serves());
    running.stop();
    // A Secret that is gone leaves nothing behind.
    kube.delete("Secret", "shop", "tls");
    let running = Running::start(&kube, folder.path());
    eventually_within(SOON, "it is no longer served", || running.readyz().is_some() && !serves());
    running.stop();
}

/// An address that no machine of ours has is in the status, and the others serve.
#[test]
fn an_address_that_is_missing_is_in_the_status() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    let address = unused_address();
    kube.put(class());
    let mut web = gateway(address);
    let missing = json!({ "type": "IPAddress", "value": "192.0.2.1" }); // TEST-NET-1
    web["spec"]["addresses"].as_array_mut().unwrap().insert(0, missing.clone());
    kube.put(web);
    kube.put(redirect("old", "/old", "new.example"));
    let mut other = gateway(address);
    other["metadata"]["name"] = json!("other");
    other["spec"]["addresses"] = json!([missing]);
    kube.put(other);
    let running = Running::start(&kube, folder.path());
    for name in ["web", "other"] {
        eventually_within(SOON, "the status says so", || {
            let object = kube.get("Gateway", "shop", name).unwrap();
            let all =
                object.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
            let is =
                |kind: &str, reason: &str| all.iter().any(|c| c["type"] == kind && c["reason"] == reason);
            is("Accepted", "Accepted") && is("Programmed", "AddressNotUsable")
        });
    }
    Client::connect(address).get("/old").expect_status(302);
    running.stop();
}

#[test]
fn a_missing_permission_is_in_readiness() {
    let kube = FakeKube::start();
    kube.forbid("list", "gateways");
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&kube, folder.path());
    let rule = r#"apiGroups: ["gateway.networking.k8s.io"], resources: ["gateways"], verbs: ["list"]"#;
    eventually_within(SOON, "it says what is missing", || {
        running.readyz().is_some_and(|text| text.contains(rule))
    });
    running.stop();
}

/// What is refused is in an Event too, once.
#[test]
fn what_is_refused_is_in_an_event() {
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    kube.put(class());
    kube.put(gateway(unused_address()));
    let mut lost = redirect("lost", "/", "x.example");
    lost["spec"]["rules"] = json!([{ "backendRefs": [{ "name": "nowhere", "port": 80 }] }]);
    kube.put(lost);
    let running = Running::start(&kube, folder.path());
    let told = || -> Vec<Value> {
        let all = kube.all("Event").into_iter();
        all.filter(|event| event["regarding"]["name"] == "lost").collect()
    };
    eventually_within(SOON, "an Event says why", || !told().is_empty());
    running.stop();
    let event = told().remove(0);
    assert_eq!((&event["reason"], &event["type"]), (&json!("BackendNotFound"), &json!("Warning")), "{event}");
    assert_eq!(event["regarding"]["uid"], kube.get("HTTPRoute", "shop", "lost").unwrap()["metadata"]["uid"]);
    // Neither another leader nor the status that was written since tells it again.
    let running = Running::start(&kube, folder.path());
    kube.put(redirect("new", "/new", "y.example"));
    eventually_within(SOON, "the new leader writes", || {
        let new = kube.get("HTTPRoute", "shop", "new").unwrap();
        condition(&new, "/status/parents/0/conditions", "Accepted").as_deref() == Some("True")
    });
    running.stop();
    assert_eq!(told().len(), 1);
}
