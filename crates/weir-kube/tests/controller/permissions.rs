//! One permission missing at a time, and whether the manifests grant what is used.

use crate::world::{Replica, SOON, folder, route, wait_programmed};
use weir_kube::api::WATCHED;
use weir_testkit::eventually_within;
use weir_testkit::kube::FakeKube;

/// Without permission to list, it waits and says for what; with it, it serves.
#[test]
fn each_list_is_needed_and_named() {
    let kube = FakeKube::start();
    kube.put(route("a", "/a", "one"));
    let (_folder, path) = folder();
    for resource in WATCHED {
        kube.forbid("list", resource.plural);
    }
    let replica = Replica::start(&kube, &path);
    let first = WATCHED.first().unwrap();
    eventually_within(SOON, "it names the missing permission", || {
        replica.gateway.held_by().is_some_and(|held| held.contains(first.plural) && held.contains("list"))
    });
    assert!(!replica.gateway.has_ended());
}

/// Without permission to watch, lists follow each other, so that changes arrive all the same.
#[test]
fn without_watches_changes_arrive_by_lists() {
    let kube = FakeKube::start();
    kube.put(route("a", "/a", "one"));
    for resource in WATCHED {
        kube.forbid("watch", resource.plural);
    }
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    replica.wait_body("/a", "one");
    kube.put(route("a", "/a", "two"));
    replica.wait_body("/a", "two");
}

#[test]
fn without_the_status_it_serves() {
    let kube = FakeKube::start();
    kube.forbid("patch", "httproutes/status");
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    kube.put(route("a", "/a", "one"));
    replica.wait_body("/a", "one");
    let refused = || kube.requests().iter().filter(|r| r.resource == "httproutes/status").count();
    eventually_within(SOON, "it tries", || refused() > 0);
    kube.permit("patch", "httproutes/status");
    wait_programmed(&kube, "a", "True");
}

#[test]
fn without_the_lease_it_serves() {
    for verb in ["get", "create", "update"] {
        let kube = FakeKube::start();
        kube.forbid(verb, "leases");
        let (_folder, path) = folder();
        let replica = Replica::start(&kube, &path);
        kube.put(route("a", "/a", "one"));
        replica.wait_body("/a", "one");
        assert!(!replica.gateway.has_ended());
    }
}

#[test]
fn what_is_not_installed_is_absent() {
    let kube = FakeKube::start();
    for resource in ["tcproutes", "listenersets", "weirfilters"] {
        kube.uninstall(resource);
    }
    kube.put(route("a", "/a", "one"));
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    replica.wait_body("/a", "one");
    replica.wait_ready();
}
