//! The manifests in `deploy/kubernetes`: what they grant is what the controller uses, and nothing more.

use crate::world::{Replica, SOON, folder, route, wait_programmed};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use weir_config::node::Node;
use weir_config::{Diagnostics, parse};
use weir_kube::api::{EVENT, LEASE, Making, Resource, Status, WATCHED};
use weir_testkit::eventually_within;
use weir_testkit::kube::FakeKube;

/// Group, resource and verb.
pub(crate) type Rule = (String, String, String);

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes")
}

pub(crate) fn documents(file: &str) -> Vec<Node> {
    let text = std::fs::read_to_string(deploy().join(file)).unwrap();
    let parts = text.split("\n---\n").map(|text| {
        // The parser of configs tells Kubernetes' files from Weir's by this key.
        let text = text.replace("apiVersion: ", "version: ");
        let mut wrong = Diagnostics::default();
        let node = parse::parse(&text, Path::new(file), &mut wrong);
        node.unwrap_or_else(|| panic!("{}", wrong.to_text()))
    });
    parts.collect()
}

fn text<'n>(node: &'n Node, path: &[&str]) -> &'n str {
    let end = path.iter().try_fold(node, |node, key| node.get(key));
    end.and_then(Node::as_text).unwrap_or_default()
}

fn texts(node: &Node, key: &str) -> Vec<String> {
    let list = node.get(key).map_or(&[] as &[Node], |list| list.elements());
    list.iter().map(|node| node.as_text().unwrap_or_default().to_owned()).collect()
}

fn rules(list: &Node) -> BTreeSet<Rule> {
    let mut all = BTreeSet::new();
    for rule in list.elements() {
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                for verb in texts(rule, "verbs") {
                    all.insert((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    assert!(!all.is_empty());
    all
}

/// What the controller's tables say that it does in the whole cluster.
fn needed() -> BTreeSet<Rule> {
    let rule = |resource: &Resource, sub: &str, verb: &str| {
        (resource.group.to_owned(), format!("{}{sub}", resource.plural), verb.to_owned())
    };
    let mut all = BTreeSet::new();
    for resource in WATCHED {
        all.extend(["list", "watch"].map(|verb| rule(resource, "", verb)));
        if resource.status == Status::Written {
            all.insert(rule(resource, "", "get"));
            all.insert(rule(resource, "/status", "patch"));
        }
        if resource.making == Making::ForGateways {
            all.extend(["create", "delete", "patch"].map(|verb| rule(resource, "", verb)));
        }
    }
    all.insert(rule(&EVENT, "", "create"));
    all
}

pub(crate) fn of_kind(documents: &[Node], kind: &str) -> BTreeSet<Rule> {
    let role = documents.iter().find(|node| text(node, &["kind"]) == kind).unwrap();
    rules(role.get("rules").unwrap())
}

#[test]
fn roles_grant_what_is_needed_and_nothing_else() {
    let plain = documents("weir.yaml");
    assert_eq!(of_kind(&plain, "ClusterRole"), needed());
    let file = |name: &str| rules(&documents(&format!("chart/files/{name}.yaml"))[0]);
    let (always, services) = (file("cluster-rules"), file("service-rules"));
    assert!(always.is_disjoint(&services));
    assert_eq!(&always | &services, needed());
    assert!(
        services.iter().all(|(_, resource, _)| ["services", "endpointslices"].contains(&resource.as_str()))
    );
    let lease = |verb: &str| (LEASE.group.to_owned(), LEASE.plural.to_owned(), verb.to_owned());
    let mut own: BTreeSet<Rule> = ["create", "get", "update"].map(lease).into();
    for resource in WATCHED.iter().filter(|resource| resource.making == Making::Record) {
        let rule = |verb: &str| (resource.group.to_owned(), resource.plural.to_owned(), verb.to_owned());
        own.extend(["create", "patch"].map(rule));
    }
    assert_eq!(of_kind(&plain, "Role"), own);
}

/// The requests of a whole life: start, routes, a conflict, a replica that takes over.
#[test]
fn what_is_used_is_granted() {
    let kube = FakeKube::start();
    let ((_a, a), (_b, b)) = (folder(), folder());
    let first = Replica::start(&kube, &a);
    first.wait_ready();
    kube.conflict_next(1);
    kube.put(route("a", "/a", "one"));
    wait_programmed(&kube, "a", "True");
    let second = Replica::start(&kube, &b);
    second.wait_ready();
    let reads = || kube.requests().iter().filter(|r| r.resource == "leases" && r.verb == "get").count();
    eventually_within(SOON, "the second one looks at the Lease", || reads() > 1);
    first.leave();
    kube.put(route("b", "/b", "two"));
    wait_programmed(&kube, "b", "True");

    let plain = documents("weir.yaml");
    let granted: BTreeSet<Rule> =
        of_kind(&plain, "ClusterRole").into_iter().chain(of_kind(&plain, "Role")).collect();
    let used: BTreeSet<Rule> =
        kube.requests().into_iter().map(|r| (r.group, r.resource, r.verb.to_owned())).collect();
    let missing: Vec<&Rule> = used.difference(&granted).collect();
    assert!(missing.is_empty(), "used but not granted: {missing:?}");
    for verb in ["create", "get", "update"] {
        assert!(
            used.iter().any(|(_, resource, used)| resource == "leases" && used == verb),
            "{verb} of leases"
        );
    }
    assert!(used.iter().any(|(_, resource, verb)| resource == "httproutes/status" && verb == "patch"));
}

#[test]
fn the_pod_is_locked_down() {
    let plain = documents("weir.yaml");
    let deployment = plain.iter().find(|node| text(node, &["kind"]) == "Deployment").unwrap();
    let pod = ["spec", "template", "spec"].iter().fold(deployment, |node, key| node.get(key).unwrap());
    let container = &pod.get("containers").unwrap().elements()[0];
    for (node, path, expected) in [
        (pod, &["securityContext", "runAsNonRoot"][..], "true"),
        (pod, &["securityContext", "seccompProfile", "type"], "RuntimeDefault"),
        (container, &["securityContext", "allowPrivilegeEscalation"], "false"),
        (container, &["securityContext", "readOnlyRootFilesystem"], "true"),
        (container, &["readinessProbe", "httpGet", "path"], "/readyz"),
        (container, &["livenessProbe", "httpGet", "path"], "/healthz"),
    ] {
        let found =
            path.iter().try_fold(node, |node, key| node.get(key)).map(|node| format!("{:?}", node.value));
        assert!(found.as_ref().is_some_and(|found| found.contains(expected)), "{path:?}: {found:?}");
    }
    let kinds: BTreeSet<&str> = plain.iter().map(|node| text(node, &["kind"])).collect();
    for kind in ["PodDisruptionBudget", "HorizontalPodAutoscaler", "GatewayClass", "Service", "ConfigMap"] {
        assert!(kinds.contains(kind), "{kind}");
    }
}

/// Helm's templates are no YAML; these are the mistakes that a template makes silently.
#[test]
fn templates_are_whole() {
    let templates = std::fs::read_dir(deploy().join("chart/templates")).unwrap();
    let mut all = String::new();
    for file in templates {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let count = |word: &str| text.matches(word).count();
        assert_eq!(count("{{"), count("}}"));
        assert_eq!(count("{{- if ") + count("{{- define "), count("{{- end }}"), "{text}");
        all.push_str(&text);
    }
    let values = &documents("chart/values.yaml")[0];
    for used in all.split(".Values.").skip(1) {
        let name: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '.').collect();
        let found = name.trim_end_matches('.').split('.').try_fold(values, |node, key| node.get(key));
        assert!(found.is_some(), "values.yaml lacks {name}");
    }
    assert!(!documents("crd.yaml").is_empty() && !documents("service-monitor.yaml").is_empty());
    let same = |file: &str| std::fs::read_to_string(deploy().join(file)).unwrap();
    assert_eq!(same("crd.yaml"), same("chart/crds/weirfilters.yaml"));
}
