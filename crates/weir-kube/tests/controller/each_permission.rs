//! Each permission that the manifests grant is missing once. Meanwhile it is named, requests are answered, changes of
//! other objects are served and their statuses are written. Once it is granted, what waited for it is done, without a
//! restart.
//!
//! All of them run at the same time, because they mostly wait: what is forbidden is tried again after 10 to 20 seconds.

use crate::manifests::{Rule, documents, of_kind};
use crate::world::folder;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use weir_config::{Mistakes, Supply};
use weir_gateway::Gateway;
use weir_kube::api::Access;
use weir_kube::controller::live::{self, Live};
use weir_kube::controller::{Controller, Effect, Output, Settings, Translator};
use weir_kube::watch::store::Change;
use weir_kube::{GatewayApi, Name, Options};
use weir_testkit::kube::FakeKube;
use weir_testkit::{Client, eventually_every, table_at_once};

const CONTROLLER: &str = "example.com/gateway";
const GATEWAY: &str = "gateway.networking.k8s.io/v1";

/// How long anything may take: the longest pause is 20 s, and dozens of controllers share the machine.
const LONG: Duration = Duration::from_secs(90);

/// How often a world looks at its state. Sixty of them look.
const LOOK: Duration = Duration::from_millis(100);

/// The translation of the Gateway API, whose listeners have free ports of 127.0.0.1, so that worlds do not meet.
struct OnFreePorts(GatewayApi);

impl Translator for OnFreePorts {
    fn change(&mut self, change: &Change) -> Effect {
        self.0.change(change)
    }

    fn translate(&mut self) -> Output {
        let output = self.0.translate();
        let mut parts = output.text.split(r#""address":"0.0.0.0:"#);
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            text.push_str(r#""address":"127.0.0.1:0"#);
            text.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
        }
        Output { text: text.into(), ..output }
    }

    fn adopted(&mut self) {
        self.0.adopted();
    }

    fn moved(&mut self) -> BTreeMap<Arc<str>, Arc<Supply>> {
        self.0.moved()
    }

    fn leave_out(&mut self, mistakes: &Mistakes) -> bool {
        self.0.leave_out(mistakes)
    }
}

/// An API server with objects of every kind, and a replica.
struct World {
    kube: FakeKube,
    gateway: Gateway,
    _controller: Controller,
    _folder: tempfile::TempDir,
}

impl World {
    fn start(kube: FakeKube) -> Self {
        for object in objects() {
            kube.put(object);
        }
        let (folder, path) = folder();
        let rest = json!({ "admin": { "address": "off" }, "workers": 1 });
        let rest: Map<String, Value> = rest.as_object().cloned().unwrap();
        let options = Options { controller: CONTROLLER.to_owned(), ..Options::default() };
        let service = Name::new("weir", "weir");
        let api = GatewayApi::new(options, rest).with_services(&service, "LoadBalancer").behind(service);
        let run = path.join("run");
        let source = live::source(&run, &api.empty()).unwrap();
        let gateway = weir_gateway::start(source.clone()).unwrap_or_else(|e| panic!("{e}"));
        let live = Live::new(gateway.clone(), source, &run);
        let settings = Settings {
            controller: CONTROLLER.to_owned(),
            identity: "replica".to_owned(),
            lease: "weir-leader".to_owned(),
            saved: path.join("objects.json"),
            retry: Duration::from_millis(50),
        };
        let access = Access::new(&kube.url(), "weir", None, None).unwrap();
        let controller = Controller::start(settings, access, OnFreePorts(api), live).unwrap();
        Self { kube, gateway, _controller: controller, _folder: folder }
    }

    #[track_caller]
    fn wait(&self, what: &str, condition: impl FnMut() -> bool) {
        eventually_every(LOOK, LONG, what, condition);
    }

    /// The missing permissions that metrics and the status show.
    fn missing(&self) -> Vec<String> {
        let all = self.gateway.status().filters;
        all.into_iter().filter(|shown| shown.filter == "weir-kube").map(|shown| shown.of).collect()
    }

    /// Where a path redirects to.
    fn redirect(&self, path: &str) -> Option<String> {
        let response = Client::connect(self.gateway.address("gw_shop_web_80")?).get(path);
        response.header("location").map(str::to_owned)
    }

    #[track_caller]
    fn wait_redirect(&self, path: &str) {
        self.wait(&format!("{path} redirects"), || self.redirect(path).is_some());
    }

    /// Waits until everything is served and written.
    fn wait_settled(&self) {
        self.wait_redirect("/old");
        for (_, (kind, namespace, name)) in WITH_STATUS {
            self.wait_status(kind, namespace, name);
        }
        for (kind, namespace, name) in MADE {
            self.wait(name, || self.kube.get(kind, namespace, name).is_some());
        }
        // Services without an address are the last that the statuses tell.
        for name in ["web", "spare"] {
            let told = || self.kube.get("Gateway", "shop", name).unwrap()["status"].to_string();
            self.wait("its Service is known", || told().contains("has no address yet"));
        }
    }

    fn wait_status(&self, kind: &str, namespace: &str, name: &str) {
        let status = || self.kube.get(kind, namespace, name).unwrap()["status"].clone();
        self.wait(&format!("the status of {kind} {name}"), || {
            status().as_object().is_some_and(|status| !status.is_empty())
        });
    }

    /// Empties a status, which the leader writes again.
    fn empty_status(&self, (kind, namespace, name): (&str, &str, &str)) {
        self.kube.put_status(kind, namespace, name, json!({}));
    }

    /// Changes a part of an object, as a user does who should not.
    fn tamper(&self, (kind, namespace, name): (&str, &str, &str), part: &str, value: Value) {
        let mut object = self.kube.get(kind, namespace, name).unwrap();
        *object.pointer_mut(part).unwrap() = value;
        self.kube.put(object);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.gateway.stop();
    }
}

/// An object by its kind, namespace and name.
type Place = (&'static str, &'static str, &'static str);

/// The resources whose statuses are written, each with an object.
const WITH_STATUS: [(&str, Place); 9] = [
    ("backendtlspolicies", ("BackendTLSPolicy", "shop", "cart")),
    ("gatewayclasses", ("GatewayClass", "", "weir")),
    ("gateways", ("Gateway", "shop", "web")),
    ("grpcroutes", ("GRPCRoute", "shop", "grpc")),
    ("httproutes", ("HTTPRoute", "shop", "old")),
    ("ingresses", ("Ingress", "shop", "shop")),
    ("listenersets", ("ListenerSet", "shop", "more")),
    ("tcproutes", ("TCPRoute", "shop", "tcp")),
    ("tlsroutes", ("TLSRoute", "shop", "tls")),
];

const SERVICE: Place = ("Service", "shop", "weir-web");
const SLICE: Place = ("EndpointSlice", "shop", "weir-web-4");
const RECORD: Place = ("ConfigMap", "weir", "weir-ports");
const SPARE_SERVICE: Place = ("Service", "shop", "weir-spare");
const SPARE_SLICE: Place = ("EndpointSlice", "shop", "weir-spare-4");

/// What the leader makes.
const MADE: [Place; 5] = [SERVICE, SLICE, RECORD, SPARE_SERVICE, SPARE_SLICE];

fn object(version: &str, kind: &str, namespace: &str, name: &str, spec: &Value) -> Value {
    let mut object =
        json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name }, "spec": spec });
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

/// A Service with one pod.
fn service(namespace: &str, name: &str) -> [Value; 2] {
    let spec = json!({ "ports": [{ "port": 80 }], "clusterIPs": ["10.0.0.1"] });
    let labels = json!({ "kubernetes.io/service-name": name });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "namespace": namespace, "name": format!("{name}-x"), "labels": labels },
        "endpoints": [{ "addresses": ["192.0.2.1"] }], "ports": [{ "port": 3000 }], // TEST-NET-1
    });
    [object("v1", "Service", namespace, name, &spec), slice]
}

fn route(kind: &str, name: &str, listener: &str, rule: Value) -> Value {
    let spec = json!({ "parentRefs": [{ "name": "web", "sectionName": listener }], "rules": [rule] });
    object(GATEWAY, kind, "shop", name, &spec)
}

/// An HTTPRoute that redirects the path of its name.
fn redirect(name: &str) -> Value {
    let to = json!({ "hostname": "new.example", "statusCode": 302 });
    let path = json!({ "type": "PathPrefix", "value": format!("/{name}") });
    let filters = json!([{ "type": "RequestRedirect", "requestRedirect": to }]);
    route("HTTPRoute", name, "http", json!({ "matches": [{ "path": path }], "filters": filters }))
}

/// Objects of every kind whose status is written, and what they refer to.
fn objects() -> Vec<Value> {
    let class = json!({ "controllerName": CONTROLLER });
    let listener =
        |name: &str, protocol: &str, port: u16| json!({ "name": name, "protocol": protocol, "port": port });
    let mut tls = listener("tls", "TLS", 82);
    tls["tls"] = json!({ "mode": "Passthrough" });
    let web = json!({
        "gatewayClassName": "weir", "allowedListeners": { "namespaces": { "from": "Same" } },
        "listeners": [
            listener("http", "HTTP", 80), listener("grpc", "HTTP", 81), tls, listener("tcp", "TCP", 83),
        ],
    });
    let spare = json!({ "gatewayClassName": "weir", "listeners": [listener("http", "HTTP", 80)] });
    let more = json!({ "parentRef": { "name": "web" }, "listeners": [listener("more", "HTTP", 84)] });
    let to = |service: &str| json!({ "backendRefs": [{ "name": service, "port": 80 }] });
    let mut cart = to("cart");
    cart["matches"] = json!([{ "path": { "type": "PathPrefix", "value": "/cart" } }]);
    let mut lost = to("nowhere");
    lost["matches"] = json!([{ "path": { "type": "PathPrefix", "value": "/lost" } }]);
    let mut names = route("TLSRoute", "tls", "tls", to("db"));
    names["spec"]["hostnames"] = json!(["db.example"]);
    let policy = json!({
        "targetRefs": [{ "group": "", "kind": "Service", "name": "cart" }],
        "validation": { "hostname": "cart.example", "wellKnownCACertificates": "System" },
    });
    let backend = json!({ "service": { "name": "db", "port": { "number": 80 } } });
    let ingress = json!({ "ingressClassName": "weir", "defaultBackend": backend });
    let ingresses = json!({ "controller": CONTROLLER });
    let mut all = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } }),
        object(GATEWAY, "GatewayClass", "", "weir", &class),
        object("networking.k8s.io/v1", "IngressClass", "", "weir", &ingresses),
        object(GATEWAY, "Gateway", "shop", "web", &web),
        object(GATEWAY, "Gateway", "shop", "spare", &spare),
        object(GATEWAY, "ListenerSet", "shop", "more", &more),
        object(GATEWAY, "BackendTLSPolicy", "shop", "cart", &policy),
        object("networking.k8s.io/v1", "Ingress", "shop", "shop", &ingress),
        redirect("old"),
        route("HTTPRoute", "lost", "http", lost), // for an Event
        route("HTTPRoute", "cart", "http", cart),
        route("GRPCRoute", "grpc", "grpc", to("db")),
        route("TCPRoute", "tcp", "tcp", to("db")),
        names,
    ];
    all.extend(
        [("weir", "weir"), ("shop", "cart"), ("shop", "db")].map(|(of, name)| service(of, name)).concat(),
    );
    all
}

/// Does what needs a permission, which is missing from here on. Some are missing before the replica starts.
fn provoke(world: &World, (_, resource, verb): &Rule) {
    let kube = &world.kube;
    if verb == "list" {
        kube.expire_next(resource, 1); // with the next watch
    }
    kube.forbid(verb, resource);
    match (verb.as_str(), resource.as_str()) {
        ("list" | "watch", _) | ("update", "leases") => {} // it is used all the time
        ("delete", "services" | "endpointslices") => kube.delete("Gateway", "shop", "spare"),
        ("patch", "configmaps") => world.tamper(RECORD, "/data", json!({})),
        ("patch", "endpointslices") => world.tamper(SLICE, "/endpoints", json!([])),
        ("patch", "services") => world.tamper(SERVICE, "/spec/ports/0/targetPort", json!(9180)),
        ("get", _) => {} // see `provoke_read`
        ("patch", sub) => {
            let plural = sub.strip_suffix("/status").expect("statuses are patched");
            world.empty_status(of_status(plural));
        }
        _ => panic!("{verb} {resource} is new: say here what needs it"),
    }
}

fn of_status(plural: &str) -> Place {
    let found = WITH_STATUS.iter().find(|(known, _)| *known == plural);
    found.map(|(_, place)| *place).expect("an object of the resource")
}

/// An object is read again after a conflict, which may meet another write first: does it again once the status is back.
fn provoke_read(world: &World, plural: &str) {
    let (kind, namespace, name) = of_status(plural);
    let status = world.kube.get(kind, namespace, name).unwrap()["status"].clone();
    if status.as_object().is_some_and(|status| !status.is_empty()) {
        world.kube.conflict_next(1);
        world.empty_status((kind, namespace, name));
    }
}

/// Waits until what needed the permission is done.
fn wait_done(world: &World, (_, resource, verb): &Rule) {
    let kube = &world.kube;
    let exists = |(kind, namespace, name): Place| kube.get(kind, namespace, name).is_some();
    let part = |(kind, namespace, name): Place, part: &str| {
        kube.get(kind, namespace, name).and_then(|object| object.pointer(part).cloned()).unwrap_or_default()
    };
    let plural = resource.strip_suffix("/status").unwrap_or(resource);
    world.wait(&format!("{verb} {resource} is done"), || match (verb.as_str(), plural) {
        ("create", "configmaps") => exists(RECORD),
        ("create", "endpointslices") => exists(SLICE) && exists(SPARE_SLICE),
        ("create", "events") => !kube.all("Event").is_empty(),
        ("create", "services") => exists(SERVICE) && exists(SPARE_SERVICE),
        ("delete", "endpointslices") => !exists(SPARE_SLICE),
        ("delete", "services") => !exists(SPARE_SERVICE),
        ("list" | "watch", _) => true,
        ("patch", "configmaps") => part(RECORD, "/data").as_object().is_some_and(|data| data.len() == 2),
        ("patch", "endpointslices") => part(SLICE, "/endpoints/0/addresses/0") == "192.0.2.1",
        ("patch", "services") => part(SERVICE, "/spec/ports/0/targetPort") != 9180,
        (_, "leases") => exists(("Lease", "weir", "weir-leader")),
        _ => true, // a status, which is waited for below
    });
    for (_, (kind, namespace, name)) in WITH_STATUS {
        world.wait_status(kind, namespace, name);
    }
}

/// One permission is missing.
fn check(rule: &Rule) {
    let (group, resource, verb) = rule;
    let (plural, slash, sub) = match resource.split_once('/') {
        Some((plural, sub)) => (plural, "/", sub),
        None => (resource.as_str(), "", ""),
    };
    let dot = if group.is_empty() { "" } else { "." };
    let permission = format!("{verb} {plural}{dot}{group}{slash}{sub}");
    let is_missing_from_the_start = verb == "create" || (verb.as_str(), plural) == ("get", "leases");
    let kube = FakeKube::start();
    kube.keep_orphans();
    if is_missing_from_the_start {
        kube.forbid(verb, resource);
    }
    let world = World::start(kube);
    if is_missing_from_the_start {
        world.wait_redirect("/old");
    } else {
        world.wait_settled();
        provoke(&world, rule);
    }
    world.wait(&format!("{permission} is named"), || {
        let is_named = world.missing() == [permission.as_str()];
        if !is_named && verb == "get" && plural != "leases" {
            provoke_read(&world, plural);
        }
        is_named
    });

    world.kube.put(redirect("new"));
    let is_of_routes = plural == "httproutes" && ["list", "watch"].contains(&verb.as_str());
    if !is_of_routes {
        world.wait_redirect("/new");
    }
    if plural != "leases" {
        let (kind, namespace, name) =
            if plural == "grpcroutes" { ("HTTPRoute", "shop", "old") } else { ("GRPCRoute", "shop", "grpc") };
        world.empty_status((kind, namespace, name));
        world.wait_status(kind, namespace, name);
    }
    assert!(world.redirect("/old").is_some_and(|to| to.starts_with("http://new.example")));
    assert_eq!((world.gateway.held_by(), world.missing()), (None, vec![permission]));

    world.kube.permit(verb, resource);
    world.wait("nothing is missing", || world.missing().is_empty());
    wait_done(&world, rule);
    world.wait_redirect("/new");
    world.empty_status(("HTTPRoute", "shop", "old"));
    world.wait_status("HTTPRoute", "shop", "old");
}

#[test]
fn each_permission_may_be_missing_for_a_while() {
    let _ = weir_wire::limits::raise_descriptors(); // each world has some forty connections
    let manifest = documents("weir.yaml");
    let rules: Vec<Rule> = ["ClusterRole", "Role"].iter().flat_map(|kind| of_kind(&manifest, kind)).collect();
    assert!(rules.len() > 60, "{}", rules.len());
    table_at_once(&rules, |(_, resource, verb)| format!("{verb} {resource}"), check);
}
