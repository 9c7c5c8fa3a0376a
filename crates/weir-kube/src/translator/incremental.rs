//! A translator that has seen any number of changes says the same as one that has only seen what is there now.
//!
//! Random changes of a small cluster, in which everything refers to everything else. `WEIR_SEEDS=1000..2000` runs
//! others.

use super::*;
use crate::controller::Output;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use weir_fleet::chance::Chance;
use weir_testkit::Authority;

/// Changes of one run.
const CHANGES: usize = 100;

const NAMESPACES: [&str; 2] = ["a", "b"];
const HOSTS: [&str; 4] = ["a.test", "*.test", "b.a.test", "other.example"];
const SERVICES: u64 = 4;

struct World {
    chance: Chance,
    version: u64,
    objects: BTreeMap<(&'static str, Name), Object>,
    translator: GatewayApi,
    /// Certificates with their keys, as Secrets have them.
    certificates: Vec<Value>,
    /// What the gateway runs.
    known: Output,
    /// How often each effect was seen.
    config: usize,
    endpoints: usize,
    nothing: usize,
}

fn translator() -> GatewayApi {
    let admin = Some(("weir".to_owned(), 9180));
    let options = Options { controller: "us".to_owned(), admin, ..Options::default() };
    GatewayApi::new(options, Map::new()).with_services(&Name::new("weir", "weir"), "ClusterIP")
}

impl World {
    fn new(seed: u64, certificates: &[Value]) -> Self {
        let mut world = Self {
            chance: Chance::new(seed),
            version: 0,
            objects: BTreeMap::new(),
            translator: translator(),
            certificates: certificates.to_vec(),
            known: Output::default(),
            config: 0,
            endpoints: 0,
            nothing: 0,
        };
        let class = json!({ "metadata": { "name": "weir" }, "spec": { "controllerName": "us" } });
        world.put("GatewayClass", class);
        let ingress_class = json!({ "metadata": { "name": "weir" }, "spec": { "controller": "us" } });
        world.put("IngressClass", ingress_class);
        world.known = world.translator.translate();
        world
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.chance.below(of.len() as u64)).unwrap()]
    }

    fn number(&mut self, below: u64) -> u64 {
        self.chance.below(below)
    }

    fn put(&mut self, kind: &'static str, mut object: Value) -> Effect {
        self.version += 1;
        let uid = format!("uid-{}", object["metadata"]["name"].as_str().unwrap());
        object["metadata"]["uid"] = json!(uid);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Object::new(watched(kind).unwrap(), object).unwrap();
        let kind = watched(kind).unwrap().kind;
        self.objects.insert((kind, object.key.clone()), object.clone());
        self.translator.change(&store::Change { kind, key: object.key.clone(), object: Some(object) })
    }

    fn delete_any(&mut self) -> Effect {
        let all: Vec<_> = self.objects.keys().filter(|(kind, _)| !kind.ends_with("Class")).cloned().collect();
        if all.is_empty() {
            return Effect::Nothing;
        }
        let at = usize::try_from(self.number(all.len() as u64)).unwrap();
        let (kind, key) = all[at].clone();
        self.objects.remove(&(kind, key.clone()));
        self.translator.change(&store::Change { kind, key, object: None })
    }

    fn service(&mut self) -> String {
        format!("s{}", self.number(SERVICES))
    }

    fn backend(&mut self) -> Value {
        let mut backend = json!({ "name": self.service(), "port": 80 });
        if self.chance.happens(25) {
            backend["namespace"] = json!(self.pick(&NAMESPACES));
        }
        if self.chance.happens(20) {
            backend["weight"] = json!(self.number(3));
        }
        backend
    }

    fn hosts(&mut self) -> Vec<&'static str> {
        let count = self.number(3);
        (0..count).map(|_| self.pick(&HOSTS)).collect()
    }

    fn parent(&mut self) -> Value {
        json!([{ "name": format!("g{}", self.number(2)), "namespace": "a" }])
    }

    fn filter(&mut self) -> Value {
        match self.number(5) {
            0 => json!({ "type": "RequestMirror", "requestMirror": { "backendRef": self.backend() } }),
            1 => json!({ "type": "RequestRedirect", "requestRedirect": { "scheme": "https" } }),
            2 => json!({ "type": "ExtensionRef", "extensionRef": {
                "group": "gateway.weir.dev", "kind": "WeirFilters", "name": "fair",
            } }),
            _ => json!({ "type": "ResponseHeaderModifier", "responseHeaderModifier": {
                "set": [{ "name": "x-version", "value": self.number(9).to_string() }],
            } }),
        }
    }

    /// Of which kind is decided by how often a cluster changes such objects.
    fn change(&mut self) -> Effect {
        let namespace = self.pick(&NAMESPACES);
        let created = format!("2026-01-0{}T00:00:00Z", 1 + self.number(5));
        let mut meta = json!({ "namespace": namespace, "creationTimestamp": created });
        match self.number(34) {
            0 => self.delete_any(),
            1..=7 => {
                meta["name"] = json!(format!("r{}", self.number(5)));
                let rules: Vec<Value> = (0..1 + self.number(2))
                    .map(|_| {
                        let path = self.pick(&["/", "/a", "/b", "/{x}", "/.."]);
                        let mut rule = json!({ "matches": [{ "path": { "value": path } }] });
                        rule["backendRefs"] = (0..self.number(3)).map(|_| self.backend()).collect();
                        rule["filters"] = (0..self.number(2)).map(|_| self.filter()).collect();
                        rule
                    })
                    .collect();
                let spec = json!({ "parentRefs": self.parent(), "hostnames": self.hosts(), "rules": rules });
                self.put("HTTPRoute", json!({ "metadata": meta, "spec": spec }))
            }
            8..=10 => {
                meta["name"] = json!(format!("c{}", self.number(3)));
                let rules = json!([{ "backendRefs": [self.backend()] }]);
                let spec = json!({ "parentRefs": self.parent(), "hostnames": self.hosts(), "rules": rules });
                self.put("GRPCRoute", json!({ "metadata": meta, "spec": spec }))
            }
            11..=18 => {
                // Some belong to nobody, and some to the pods of the gateway itself.
                let service = self.service();
                let (namespace, service) =
                    if self.chance.happens(5) { ("weir", "weir".to_owned()) } else { (namespace, service) };
                meta["namespace"] = json!(namespace);
                meta["name"] = json!(format!("{service}-{}", self.number(2)));
                let owner = if self.chance.happens(10) { self.service() } else { service };
                meta["labels"] = json!({ "kubernetes.io/service-name": owner });
                let endpoint = |world: &mut Self| {
                    json!({
                        "addresses": [format!("10.0.0.{}", 1 + world.number(4))],
                        "conditions": { "ready": world.chance.happens(95), "terminating": world.chance.happens(10) },
                    })
                };
                let count = if self.chance.happens(10) { 0 } else { 1 + self.number(2) };
                let endpoints: Vec<Value> = (0..count).map(|_| endpoint(self)).collect();
                let port = self.pick(&[3000, 3000, 3000, 3000, 9180]);
                let ports = json!([{ "port": port }, { "name": "web", "port": port + 1 }]);
                self.put(
                    "EndpointSlice",
                    json!({
                        "metadata": meta, "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
                    }),
                )
            }
            19..=20 => {
                meta["name"] = json!(self.service());
                let mut port = json!({ "port": self.pick(&[80, 80, 81]) });
                if self.chance.happens(20) {
                    port["name"] = json!("web");
                }
                if self.chance.happens(30) {
                    port["appProtocol"] = json!("kubernetes.io/h2c");
                }
                self.put("Service", json!({ "metadata": meta, "spec": { "ports": [port] } }))
            }
            21..=22 => {
                meta["name"] = json!(format!("i{}", self.number(3)));
                let annotation = self.pick(&["enable-cors", "use-regex", "force-ssl-redirect", "unknown"]);
                let key = format!("nginx.ingress.kubernetes.io/{annotation}");
                meta["annotations"] = json!({ key: "true" });
                let path = json!({
                    "path": self.pick(&["/", "/a", "/b.*"]), "pathType": "Prefix",
                    "backend": { "service": { "name": self.service(), "port": { "number": 80 } } },
                });
                let rule = json!({ "host": self.pick(&HOSTS), "http": { "paths": [path] } });
                let spec = json!({ "ingressClassName": "weir", "rules": [rule] });
                self.put("Ingress", json!({ "metadata": meta, "spec": spec }))
            }
            23 => {
                meta["name"] = json!(format!("t{}", self.number(2)));
                let rules = json!([{ "backendRefs": [self.backend(), self.backend()] }]);
                let spec = json!({ "parentRefs": self.parent(), "rules": rules });
                self.put("TCPRoute", json!({ "metadata": meta, "spec": spec }))
            }
            24 => {
                meta["name"] = json!("grant");
                let from = json!([{
                    "group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": self.pick(&NAMESPACES),
                }]);
                let to = json!([{ "group": "", "kind": "Service" }]);
                self.put("ReferenceGrant", json!({ "metadata": meta, "spec": { "from": from, "to": to } }))
            }
            25 => {
                meta["name"] = json!("fair");
                let is_sound = self.chance.happens(70);
                let requests = if is_sound { json!(1 + self.number(9)) } else { json!("none") };
                let filters = json!([{ "rate_limit": { "requests": requests, "per": "1s" } }]);
                self.put("WeirFilters", json!({ "metadata": meta, "spec": { "filters": filters } }))
            }
            26 => {
                meta["name"] = json!("policy");
                let target = json!([{ "group": "", "kind": "Service", "name": self.service() }]);
                let mut validation = json!({ "hostname": "a.test", "wellKnownCACertificates": "System" });
                if self.chance.happens(50) {
                    let authority = json!([{ "group": "", "kind": "ConfigMap", "name": "authority" }]);
                    validation = json!({ "hostname": "a.test", "caCertificateRefs": authority });
                }
                let spec = json!({ "targetRefs": target, "validation": validation });
                self.put("BackendTLSPolicy", json!({ "metadata": meta, "spec": spec }))
            }
            27 => {
                let namespace =
                    json!({ "name": namespace, "labels": { "team": self.number(2).to_string() } });
                self.put("Namespace", json!({ "metadata": namespace }))
            }
            28 => {
                meta["namespace"] = json!("a");
                meta["name"] = json!("tls");
                let data = match self.number(4) {
                    0 => json!({ "tls.crt": "bm8=", "tls.key": "bm8=" }),
                    number => {
                        self.certificates[usize::try_from(number).unwrap() % self.certificates.len()].clone()
                    }
                };
                self.put("Secret", json!({ "metadata": meta, "data": data }))
            }
            29 => {
                meta["namespace"] = json!("weir");
                meta["name"] = json!("weir-ports");
                meta["annotations"] = json!({ "gateway.weir.dev/controller": "us" });
                let target = 15_000 + self.number(3);
                self.put(
                    "ConfigMap",
                    json!({ "metadata": meta, "data": { "uid-g0": format!("8080={target}") } }),
                )
            }
            30..=31 => {
                meta["name"] = json!("authority");
                let at = usize::try_from(self.number(2)).unwrap();
                let certificate = self.certificates[at]["tls.crt"].clone();
                let text = STANDARD.decode(certificate.as_str().unwrap()).unwrap();
                let text = if self.chance.happens(30) {
                    "none".to_owned()
                } else {
                    String::from_utf8(text).unwrap()
                };
                self.put("ConfigMap", json!({ "metadata": meta, "data": { "ca.crt": text } }))
            }
            _ => {
                meta["namespace"] = json!("a");
                meta["name"] = json!(format!("g{}", self.number(2)));
                let allowed = match self.number(4) {
                    0 => json!({ "from": "Selector", "selector": { "matchLabels": { "team": "1" } } }),
                    1 => json!({ "from": "Same" }),
                    _ => json!({ "from": "All" }),
                };
                let mut listener = json!({
                    "name": "http", "port": 8080, "protocol": "HTTP", "allowedRoutes": { "namespaces": allowed },
                });
                if self.chance.happens(30) {
                    listener["hostname"] = json!(self.pick(&HOSTS));
                }
                let bytes = json!({ "name": "bytes", "port": 9000, "protocol": "TCP", "allowedRoutes": {
                    "namespaces": { "from": "All" },
                } });
                let mut listeners = vec![listener, bytes];
                if self.chance.happens(60) {
                    listeners.push(json!({
                        "name": "https", "port": 8443, "protocol": "HTTPS", "hostname": self.pick(&HOSTS),
                        "tls": { "certificateRefs": [{ "name": "tls" }] },
                        "allowedRoutes": { "namespaces": { "from": "All" } },
                    }));
                }
                let mut spec = json!({ "gatewayClassName": "weir", "listeners": listeners });
                if self.chance.happens(30) {
                    spec["tls"] = json!({ "backend": { "clientCertificateRef": { "name": "tls" } } });
                }
                self.put("Gateway", json!({ "metadata": meta, "spec": spec }))
            }
        }
    }

    /// Does what the driver does after some changes.
    fn settle(&mut self, effects: &[Effect]) {
        if effects.contains(&Effect::Config) {
            self.config += 1;
            self.known = self.translator.translate();
            self.translator.adopted();
        } else if effects.contains(&Effect::Endpoints) {
            self.endpoints += 1;
            // None of them is of a route that is gone: the supplies would differ.
            self.known.supplies.extend(self.translator.moved());
        } else {
            self.nothing += 1;
        }
    }

    /// What a translator says that starts now, but for Secrets that were valid once.
    fn fresh(&self) -> Output {
        let mut fresh = translator();
        for object in self.translator.last_good() {
            fresh.change(&store::Change { kind: "Secret", key: object.key.clone(), object: Some(object) });
        }
        for ((kind, key), object) in &self.objects {
            fresh.change(&store::Change { kind, key: key.clone(), object: Some(object.clone()) });
        }
        fresh.translate()
    }
}

#[test]
fn any_changes_lead_to_what_a_new_translator_says() {
    let range = std::env::var("WEIR_SEEDS").unwrap_or_else(|_| "0..3".to_owned());
    let (from, to) = range.split_once("..").unwrap();
    let (mut config, mut endpoints, mut nothing, mut routes) = (0, 0, 0, 0);
    let authority = Authority::new();
    let certificate = |name: &str| {
        let leaf = authority.leaf(&[name]);
        let text = |file: &std::path::Path| STANDARD.encode(std::fs::read(file).unwrap());
        json!({ "tls.crt": text(&leaf.cert_file), "tls.key": text(&leaf.key_file) })
    };
    let certificates = [certificate("a.test"), certificate("b.a.test")];
    for seed in from.parse().unwrap()..to.parse().unwrap() {
        let mut world = World::new(seed, &certificates);
        let mut change = 0;
        while change < CHANGES {
            let together = usize::try_from(1 + world.number(3)).unwrap();
            let effects: Vec<Effect> = (0..together).map(|_| world.change()).collect();
            change += together;
            world.settle(&effects);
            let fresh = world.fresh();
            let known = &world.known;
            assert_eq!(known.text, fresh.text, "seed {seed}, change {change}: {effects:?}");
            assert_eq!(known.supplies, fresh.supplies, "seed {seed}, change {change}: {effects:?}");
            assert_eq!(*known, fresh, "seed {seed}, change {change}: {effects:?}");
            routes += known.text.matches("\"http_").count();
        }
        config += world.config;
        endpoints += world.endpoints;
        nothing += world.nothing;
    }
    let seen = format!("{config} translations, {endpoints} times endpoints alone, {nothing} times nothing");
    assert!(config > 50 && endpoints + nothing > 2 && routes > 100, "{seen}, {routes} routes");
}

/// What is made again when one object of many changes.
#[test]
fn a_change_costs_what_depends_on_it() {
    const ROUTES: u64 = 40;
    let authority = Authority::new();
    let secret = |name: &str| {
        let leaf = authority.leaf(&[name]);
        let text = |file: &std::path::Path| STANDARD.encode(std::fs::read(file).unwrap());
        json!({ "tls.crt": text(&leaf.cert_file), "tls.key": text(&leaf.key_file) })
    };
    let mut world = World::new(0, &[]);
    let meta = |name: &str| json!({ "namespace": "a", "name": name });
    let gateway = |label: &str, port: u64| {
        json!({
            "metadata": meta("g0"),
            "spec": {
                "gatewayClassName": "weir", "infrastructure": { "labels": { "team": label } },
                "listeners": [
                    { "name": "http", "port": port, "protocol": "HTTP" },
                    { "name": "https", "port": 8443, "protocol": "HTTPS",
                      "tls": { "certificateRefs": [{ "name": "tls" }] },
                      "allowedRoutes": { "namespaces": {
                          "from": "Selector", "selector": { "matchLabels": { "team": "1" } },
                      } } },
                ],
            },
        })
    };
    let service = |number: u64, port: u64| {
        let spec = json!({ "ports": [{ "port": port }] });
        json!({ "metadata": meta(&format!("s{number}")), "spec": spec })
    };
    let elsewhere = |name: &str| json!({ "namespace": "b", "name": name });
    let named = |kind: &str, name: &str| json!([{ "group": "", "kind": kind, "name": name }]);
    // Of the routes, the first refers to another namespace and the second to filters.
    let backend = |number: u64| match number {
        0 => json!({ "name": "s", "namespace": "b", "port": 80 }),
        _ => json!({ "name": format!("s{number}"), "port": 80 }),
    };
    let filters = |number: u64| match number {
        1 => json!([{ "type": "ExtensionRef", "extensionRef": {
            "group": "gateway.weir.dev", "kind": "WeirFilters", "name": "fair",
        } }]),
        _ => json!([]),
    };
    world.put("Gateway", gateway("x", 8080));
    world.put("Secret", json!({ "metadata": meta("tls"), "data": secret("a.test") }));
    for number in 0..ROUTES {
        world.put("Service", service(number, 80));
        let rules = json!([{ "backendRefs": [backend(number)], "filters": filters(number) }]);
        let spec = json!({ "parentRefs": [{ "name": "g0" }], "rules": rules });
        world.put("HTTPRoute", json!({ "metadata": meta(&format!("r{number}")), "spec": spec }));
    }
    let mut slice = json!({
        "metadata": meta("s5"), "addressType": "IPv4", "endpoints": [{ "addresses": ["10.0.0.1"] }],
        "ports": [{ "port": 3000 }, { "name": "web", "port": 3001 }],
    });
    slice["metadata"]["labels"] = json!({ "kubernetes.io/service-name": "s5" });
    world.put("EndpointSlice", slice);
    let made = |world: &mut World| {
        let before = world.translator.memo.as_ref().map_or(0, Memo::routes_made);
        world.known = world.translator.translate();
        assert_eq!(world.known, world.fresh());
        world.translator.memo.as_ref().map_or(0, Memo::routes_made) - before
    };
    let all = usize::try_from(ROUTES).unwrap();
    assert_eq!(made(&mut world), all, "the first time");
    let policy = |metadata: Value, service: &str| {
        let authority = named("ConfigMap", "authority");
        json!({
            "metadata": metadata,
            "spec": {
                "targetRefs": named("Service", service),
                "validation": { "hostname": "a.test", "caCertificateRefs": authority },
            },
        })
    };
    let grant = json!({
        "metadata": elsewhere("grant"),
        "spec": {
            "from": [{ "group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "a" }],
            "to": [{ "group": "", "kind": "Service" }],
        },
    });
    let mut renamed = service(5, 80);
    renamed["spec"]["ports"][0]["name"] = json!("web");
    let changes: [(&str, Value, usize); 18] = [
        ("Service", service(7, 81), 1),
        ("Service", service(ROUTES, 80), 0),
        ("Secret", json!({ "metadata": meta("tls"), "data": secret("b.test") }), 0),
        ("Secret", json!({ "metadata": meta("other"), "data": {} }), 0),
        ("Gateway", gateway("y", 8080), 0),
        ("Gateway", gateway("y", 8081), all),
        (
            "ConfigMap",
            json!({
                "metadata": {
                    "namespace": "weir", "name": "weir-ports", "annotations": { "gateway.weir.dev/controller": "us" },
                },
                "data": { "uid-g0": "8081=15001" },
            }),
            0,
        ),
        ("ConfigMap", json!({ "metadata": meta("authority"), "data": { "ca.crt": "x" } }), 0),
        ("Namespace", json!({ "metadata": { "name": "b", "labels": { "team": "1" } } }), 0),
        ("Namespace", json!({ "metadata": { "name": "a", "labels": { "team": "1" } } }), all),
        // A port that gets another name has other endpoints.
        ("Service", renamed, 1),
        ("Service", service(5, 80), 1),
        ("ReferenceGrant", grant, 1),
        ("Service", json!({ "metadata": elsewhere("s"), "spec": { "ports": [{ "port": 80 }] } }), 1),
        ("BackendTLSPolicy", policy(elsewhere("p"), "s"), 1),
        ("ConfigMap", json!({ "metadata": elsewhere("authority"), "data": { "ca.crt": "x" } }), 1),
        // Those to Services of its namespace: not the first, nor one to a port that is gone.
        ("BackendTLSPolicy", policy(meta("p"), "s1"), all - 2),
        ("WeirFilters", json!({ "metadata": meta("fair"), "spec": { "filters": [] } }), 1),
    ];
    for (kind, object, expected) in changes {
        world.put(kind, object.clone());
        assert_eq!(made(&mut world), expected, "{kind} {object}");
    }
    world.objects.remove(&("Service", Name::new("a", "s3")));
    let gone = store::Change { kind: "Service", key: Name::new("a", "s3"), object: None };
    world.translator.change(&gone);
    assert_eq!(made(&mut world), 1, "a Service that is gone");
}
