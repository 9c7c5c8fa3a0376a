//! What is served while objects change and the API server fails.

use crate::world::{Replica, SOON, folder, route};
use serde_json::json;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;
use weir_kube::api::Access;
use weir_testkit::kube::FakeKube;
use weir_testkit::{Authority, Client, ServerTls, Tls, Upstream, eventually_within};

#[test]
fn a_route_serves_when_it_is_created_changed_and_deleted() {
    let kube = FakeKube::start();
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    replica.wait_ready();
    let began = Instant::now();
    kube.put(route("a", "/a", "one"));
    replica.wait_body("/a", "one");
    eprintln!("a new route serves after {:?}", began.elapsed());
    kube.put(route("a", "/a", "two"));
    replica.wait_body("/a", "two");
    kube.delete("HTTPRoute", "shop", "a");
    replica.wait_gone("/a");
}

#[test]
fn a_change_closes_no_connection() {
    let kube = FakeKube::start();
    kube.put(route("a", "/a", "one"));
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    replica.wait_body("/a", "one");
    let mut client = replica.client();
    client.get("/a").expect_status(200);
    for number in 0..5 {
        kube.put(route("b", "/b", &number.to_string()));
        replica.wait_body("/b", &number.to_string());
        client.get("/a").expect_status(200).expect_body("one");
    }
}

#[test]
fn nothing_is_served_before_everything_is_known() {
    let kube = FakeKube::start();
    kube.put(route("a", "/a", "one"));
    kube.forbid("list", "secrets");
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    eventually_within(SOON, "readiness names what is missing", || {
        replica
            .gateway
            .held_by()
            .is_some_and(|held| held.contains(r#"resources: ["secrets"], verbs: ["list"]"#))
    });
    replica.get("/a").expect_status(404);
}

#[test]
fn an_old_version_leads_to_a_new_list() {
    let kube = FakeKube::start();
    kube.put(route("a", "/a", "one"));
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    replica.wait_body("/a", "one");
    // Missed: a deletion and a creation, of which no watch can tell any more.
    kube.go_away();
    kube.delete("HTTPRoute", "shop", "a");
    kube.put(route("b", "/b", "two"));
    kube.compact();
    kube.come_back();
    replica.wait_body("/b", "two");
    replica.wait_gone("/a");
}

#[test]
fn watches_that_end_or_break_lose_nothing() {
    let kube = FakeKube::start();
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    replica.wait_ready();
    for number in 0..6 {
        if number % 2 == 0 {
            kube.end_watches()
        } else {
            kube.break_connections()
        }
        kube.put(route("a", "/a", &number.to_string()));
        replica.wait_body("/a", &number.to_string());
        kube.bookmark();
    }
}

#[test]
fn an_answer_that_breaks_off_anywhere_is_asked_for_again() {
    let kube = FakeKube::start();
    kube.put(route("a", "/a", "one"));
    // The first answers of a start are lists: cut in the head, in its fields, and in the body.
    kube.cut_next(&(0..40).map(|at| at * 9).collect::<Vec<_>>());
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    replica.wait_body("/a", "one");
}

#[test]
fn the_last_good_state_serves_while_the_server_is_away_and_after_a_restart() {
    let kube = FakeKube::start();
    kube.put(route("a", "/a", "one"));
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    replica.wait_body("/a", "one");
    let saved = path.join("objects.json");
    eventually_within(SOON, "the objects are on disk", || saved.exists());
    assert_eq!(std::fs::metadata(&saved).unwrap().permissions().mode() & 0o777, 0o600);
    kube.go_away();
    replica.get("/a").expect_status(200).expect_body("one");
    drop(replica);

    let replica = Replica::start(&kube, &path);
    replica.wait_body("/a", "one");
    replica.wait_ready();
    // And it follows again once the server is back.
    kube.put(route("a", "/a", "two"));
    kube.come_back();
    replica.wait_body("/a", "two");
}

#[test]
fn a_secret_rotates_without_a_closed_connection() {
    let kube = FakeKube::start();
    kube.put(route("a", "/a", "one"));
    let (first, second) = (Authority::new(), Authority::new());
    let secret = |authority: &Authority| {
        let leaf = authority.leaf(&["localhost"]);
        let read = |file: &std::path::Path| std::fs::read_to_string(file).unwrap();
        kube.put(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "shop", "name": "tls" },
            "stringData": { "cert": read(&leaf.cert_file), "key": read(&leaf.key_file) },
        }));
    };
    secret(&first);
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    eventually_within(SOON, "the listener is there", || replica.gateway.address("secure").is_some());
    let address = || replica.gateway.address("secure").unwrap();
    let mut client = Client::connect_tls(address(), &Tls::new(&first, "localhost"));
    client.get("/a").expect_status(200);
    secret(&second);
    eventually_within(SOON, "new connections get the new certificate", || {
        Client::try_connect_tls(address(), &Tls::new(&second, "localhost")).is_ok()
    });
    client.get("/a").expect_status(200).expect_body("one");
    let files = || std::fs::read_dir(path.join("run/files")).unwrap().count();
    eventually_within(SOON, "the old key is no longer on disk", || files() == 2);
}

/// A tenant could fill the volume with them, edit by edit.
#[test]
fn files_of_refused_configs_and_of_an_earlier_run_are_removed() {
    let kube = FakeKube::start();
    kube.put(route("a", "/a", "one"));
    let (_folder, path) = folder();
    let files = path.join("run/files");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::write(files.join("earlier.key"), "secret").unwrap();
    let replica = Replica::start(&kube, &path);
    replica.wait_body("/a", "one");
    assert!(!files.exists(), "no config names a file");
    let secret = |cert: &str, key: &str| {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": "shop", "name": "tls" },
            "stringData": { "cert": cert, "key": key },
        });
        let before = replica.translations();
        kube.put(object);
        eventually_within(SOON, "the Secret is translated", || replica.translations() > before);
    };
    let authority = Authority::new();
    let leaf = authority.leaf(&["localhost"]);
    let read = |file: &std::path::Path| std::fs::read_to_string(file).unwrap();
    let (cert, key) = (read(&leaf.cert_file), read(&leaf.key_file));
    for number in 0..3 {
        secret(&format!("no certificate {number}"), &key);
    }
    secret(&cert, &key);
    eventually_within(SOON, "the listener is there", || replica.gateway.address("secure").is_some());
    secret(&cert, "no key");
    kube.put(route("a", "/a", "two"));
    secret(&cert, &key);
    replica.wait_body("/a", "two");
    let names = || {
        let all = std::fs::read_dir(&files).unwrap().map(|entry| entry.unwrap().file_name());
        all.collect::<std::collections::BTreeSet<_>>().len()
    };
    eventually_within(SOON, "only the files of the running config are there", || names() == 2);
}

/// A replica that leaves serves for as long as its drain takes, and meanwhile the pods behind it come and go.
#[test]
fn endpoints_move_while_a_replica_drains() {
    let (one, two) = (Upstream::named("one"), Upstream::named("two"));
    let kube = FakeKube::start();
    let slice = |origin: &Upstream| {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "namespace": "shop", "name": "cart" }, "address": origin.address().to_string(),
        })
    };
    kube.put(slice(&one));
    let mut through = route("a", "/a", "");
    through["spec"] = json!({ "path": "/a", "upstream": "cart" });
    kube.put(through);
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    replica.wait_body("/a", "one");
    replica.begin_to_leave();
    kube.put(slice(&two));
    replica.wait_body("/a", "two");
    // Nor does a change that the drain no longer takes hold them up.
    kube.put(route("b", "/b", "late"));
    kube.put(slice(&one));
    replica.wait_body("/a", "one");
    replica.get("/b").expect_status(404);
}

#[test]
fn a_config_that_is_refused_costs_the_object_to_blame_alone() {
    let kube = FakeKube::start();
    kube.put(route("a", "/a", "one"));
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    replica.wait_body("/a", "one");
    kube.put(route("b", "/b", "refused"));
    crate::world::wait_programmed(&kube, "b", "False");
    kube.put(route("c", "/c", "three"));
    replica.wait_body("/c", "three");
    replica.get("/a").expect_status(200);
    kube.put(route("b", "/b", "two"));
    replica.wait_body("/b", "two");
    crate::world::wait_programmed(&kube, "b", "True");
}

/// What runs stays, and so do the changes that come later.
#[test]
fn a_panic_costs_neither_the_gateway_nor_later_changes() {
    for wrong in ["panics here", "panics there"] {
        let kube = FakeKube::start();
        kube.put(route("a", "/a", "one"));
        let (_folder, path) = folder();
        let replica = Replica::start(&kube, &path);
        replica.wait_body("/a", "one");
        let before = replica.translations();
        kube.put(route("b", "/b", wrong));
        eventually_within(SOON, "it is translated", || replica.translations() > before);
        kube.put(route("a", "/a", "two"));
        eventually_within(SOON, "it is translated again", || replica.translations() > before + 1);
        replica.get("/a").expect_status(200).expect_body("one");
        kube.put(route("b", "/b", "mended"));
        replica.wait_body("/b", "mended");
        replica.wait_body("/a", "two");
        replica.wait_ready();
    }
}

/// An object that makes the translator panic may stay for long, and meanwhile the pods behind the routes come and go.
#[test]
fn endpoints_move_while_the_translator_panics() {
    let (one, two) = (Upstream::named("one"), Upstream::named("two"));
    let kube = FakeKube::start();
    let slice = |origin: &Upstream| {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "namespace": "shop", "name": "cart" }, "address": origin.address().to_string(),
        })
    };
    kube.put(slice(&one));
    let mut through = route("a", "/a", "");
    through["spec"] = json!({ "path": "/a", "upstream": "cart" });
    kube.put(through);
    let (_folder, path) = folder();
    let replica = Replica::start(&kube, &path);
    replica.wait_body("/a", "one");
    let before = replica.translations();
    kube.put(route("b", "/b", "panics here"));
    eventually_within(SOON, "it is translated", || replica.translations() > before);
    for (origin, body) in [(&two, "two"), (&one, "one")] {
        kube.put(slice(origin));
        replica.wait_body("/a", body);
    }
    replica.get("/b").expect_status(404);
}

/// A port that something else has costs nobody a change, and once it is free it is listened on.
#[test]
fn a_port_that_is_taken_is_tried_again() {
    for stubborn in [false, true] {
        let kube = FakeKube::start();
        let (_folder, path) = folder();
        let replica = Replica::start(&kube, &path);
        replica.wait_ready();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let mut greedy = route("greedy", "/greedy", "one");
        greedy["spec"]["listen"] = json!(address.to_string());
        greedy["spec"]["stubborn"] = json!(stubborn);
        kube.put(greedy);
        kube.put(route("a", "/a", "one"));
        // Nobody changes an object after this.
        match stubborn {
            true => {
                let tries = replica.translations();
                eventually_within(SOON, "it is tried again", || replica.translations() > tries + 2);
            }
            false => replica.wait_body("/a", "one"),
        }
        drop(taken);
        eventually_within(SOON, "the port is served", || {
            Client::can_connect(address) && Client::connect(address).get("/greedy").status == 200
        });
        replica.wait_body("/a", "one");
    }
}

#[test]
fn tls_and_a_token_that_rotates() {
    let authority = Authority::new();
    let kube = FakeKube::start_tls(ServerTls::new(&authority.leaf(&["127.0.0.1"])));
    kube.put(route("a", "/a", "one"));
    kube.demand_token("first");
    let (_folder, path) = folder();
    let token = path.join("token");
    std::fs::write(&token, "first\n").unwrap();
    let url = format!("https://{}", kube.address());
    let access = Access::new(&url, "weir", Some(token.clone()), Some(authority.file())).unwrap();
    let replica = Replica::start_at(access, &path);
    replica.wait_body("/a", "one");
    kube.demand_token("second");
    std::fs::write(&token, "second\n").unwrap();
    kube.break_connections();
    kube.put(route("a", "/a", "two"));
    replica.wait_body("/a", "two");
}

/// Prints what a large cluster costs; `WEIR_ROUTES` says how many routes.
#[test]
fn thousands_of_routes_start() {
    let count: usize =
        std::env::var("WEIR_ROUTES").ok().and_then(|count| count.parse().ok()).unwrap_or(1_200);
    let kube = FakeKube::start();
    for number in 0..count {
        kube.put(route(&format!("r{number}"), &format!("/r{number}"), "many"));
    }
    let (_folder, path) = folder();
    let began = Instant::now();
    let replica = Replica::start(&kube, &path);
    replica.wait_body(&format!("/r{}", count - 1), "many");
    eprintln!("{count} routes serve after {:?}", began.elapsed());
    let lists = kube.requests().iter().filter(|r| r.verb == "list" && r.resource == "httproutes").count();
    assert_eq!(lists, count.div_ceil(500), "in pages");
}
