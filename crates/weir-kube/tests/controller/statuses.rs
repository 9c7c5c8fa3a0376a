//! Who writes which status, and when.

use crate::world::{Replica, SOON, folder, programmed, route, wait_programmed};
use serde_json::json;
use weir_testkit::eventually_within;
use weir_testkit::kube::FakeKube;

#[test]
fn a_status_is_written_once_it_is_true_and_then_left_alone() {
    let kube = FakeKube::start();
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    replica.wait_ready();
    kube.put(route("a", "/a", "one"));
    wait_programmed(&kube, "a", "True");
    replica.get("/a").expect_status(200);
    let writes = kube.writes();
    // Our own write comes back as a change; a change of another route concerns this one's status not at all.
    kube.put(route("b", "/b", "two"));
    wait_programmed(&kube, "b", "True");
    kube.end_watches();
    kube.put(route("c", "/c", "three"));
    wait_programmed(&kube, "c", "True");
    assert_eq!(kube.writes() - writes, 2, "{:?}", kube.requests());
}

#[test]
fn one_of_two_replicas_writes_and_the_other_takes_over() {
    let kube = FakeKube::start();
    let ((_a, a), (_b, b)) = (folder(), folder());
    let first = Replica::start(&kube, &a);
    eventually_within(SOON, "somebody leads", || kube.get("Lease", "weir", "leader").is_some());
    let holder = || kube.get("Lease", "weir", "leader").unwrap()["spec"]["holderIdentity"].clone();
    let leader = holder();
    let second = Replica::start(&kube, &b);
    second.wait_ready();
    kube.put(route("a", "/a", "one"));
    wait_programmed(&kube, "a", "True");
    second.wait_body("/a", "one");
    assert_eq!((holder(), kube.writes()), (leader.clone(), 1));
    first.leave();
    kube.put(route("b", "/b", "two"));
    wait_programmed(&kube, "b", "True");
    assert_ne!(holder(), leader);
    assert_eq!(kube.get("Lease", "weir", "leader").unwrap()["spec"]["leaseTransitions"], 1);
}

#[test]
fn conflicts_and_other_controllers_are_borne() {
    let kube = FakeKube::start();
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    replica.wait_ready();
    kube.conflict_next(3);
    kube.put(route("a", "/a", "one"));
    wait_programmed(&kube, "a", "True");
    let ours = kube.get("HTTPRoute", "shop", "a").unwrap()["status"]["parents"][0].clone();
    let theirs =
        json!({ "controllerName": "example.com/other", "parentRef": { "name": "x" }, "conditions": [] });
    kube.put_status("HTTPRoute", "shop", "a", json!({ "parents": [theirs.clone()] }));
    eventually_within(SOON, "ours is back beside theirs", || {
        kube.get("HTTPRoute", "shop", "a").unwrap()["status"]["parents"] == json!([theirs, ours])
    });
}

#[test]
fn a_server_that_comes_back_gets_the_statuses() {
    let kube = FakeKube::start();
    kube.put(route("a", "/a", "one"));
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    wait_programmed(&kube, "a", "True");
    kube.go_away();
    kube.put_status("HTTPRoute", "shop", "a", json!({}));
    kube.put(route("b", "/b", "two"));
    assert_eq!(programmed(&kube, "b"), None);
    kube.come_back();
    wait_programmed(&kube, "a", "True");
    wait_programmed(&kube, "b", "True");
    replica.wait_body("/b", "two");
}

/// Statuses that others write, and labels that nobody reads, come to every controller in the cluster all the time.
#[test]
fn a_status_alone_is_not_translated() {
    let kube = FakeKube::start();
    kube.put(route("a", "/a", "one"));
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    wait_programmed(&kube, "a", "True");
    let before = replica.translations();
    for number in 0..20 {
        let theirs = json!({ "controllerName": "example.com/other", "parentRef": { "name": number } });
        let ours = kube.get("HTTPRoute", "shop", "a").unwrap()["status"]["parents"][0].clone();
        kube.put_status("HTTPRoute", "shop", "a", json!({ "parents": [ours, theirs] }));
        let mut labelled = kube.get("HTTPRoute", "shop", "a").unwrap();
        labelled["metadata"]["labels"] = json!({ "number": number.to_string() });
        kube.put(labelled);
    }
    // A watch reports changes in their order, so this one comes last.
    kube.put(route("b", "/b", "two"));
    replica.wait_body("/b", "two");
    assert_eq!(replica.translations() - before, 1);
}

/// Somebody else has the Lease now: this replica serves on and writes nothing.
#[test]
fn a_replica_that_lost_its_lease_serves_and_writes_nothing() {
    let kube = FakeKube::start();
    kube.put(route("a", "/a", "one"));
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    wait_programmed(&kube, "a", "True");
    let mut lease = kube.get("Lease", "weir", "leader").unwrap();
    lease["spec"]["holderIdentity"] = json!("another");
    lease["spec"]["leaseDurationSeconds"] = json!(3_600);
    kube.put(lease);
    // It notices with its next renewal, which fails, and from then on looks who has it.
    let reads = || kube.requests().iter().filter(|r| r.resource == "leases" && r.verb == "get").count();
    let before = reads();
    eventually_within(SOON, "it looks who has the Lease", || reads() > before + 1);
    kube.put(route("b", "/b", "two"));
    replica.wait_body("/b", "two");
    assert_eq!(programmed(&kube, "b"), None);
    assert_eq!(kube.get("Lease", "weir", "leader").unwrap()["spec"]["holderIdentity"], "another");
}
