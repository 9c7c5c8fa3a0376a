//! A large cluster: what a start and a change of one route cost. `WEIR_ROUTES=5000 cargo test … scale -- --nocapture`
//! prints figures; without it a small cluster shows that the test works.

use crate::{GATEWAY, Running, SOON, class, gateway};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use weir_testkit::kube::FakeKube;
use weir_testkit::{Client, eventually_within, unused_address};

/// Routes without `WEIR_ROUTES`.
const FEW: usize = 300;

/// Changes of one route that are timed.
const CHANGES: usize = 20;

fn route(number: usize, path: &str) -> Value {
    json!({
        "apiVersion": GATEWAY, "kind": "HTTPRoute",
        "metadata": { "namespace": "shop", "name": format!("r{number}") },
        "spec": {
            "parentRefs": [{ "name": "web" }], "hostnames": [format!("h{number}.test")],
            "rules": [
                {
                    "matches": [{ "path": { "type": "PathPrefix", "value": path } }],
                    "filters": [{ "type": "RequestRedirect", "requestRedirect": { "hostname": "x.test" } }],
                },
                { "backendRefs": [{ "name": format!("s{number}"), "port": 80 }] },
            ],
        },
    })
}

fn service(kube: &FakeKube, number: usize) {
    let name = format!("s{number}");
    kube.put(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "namespace": "shop", "name": name },
        "spec": { "ports": [{ "port": 80 }] },
    }));
    let address = format!("10.{}.{}.{}", 1 + number / 65_536, number / 256 % 256, number % 256);
    kube.put(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "namespace": "shop", "name": format!("{name}-x"), "labels": { "kubernetes.io/service-name": name },
        },
        "endpoints": [{ "addresses": [address], "conditions": { "ready": true } }],
        "ports": [{ "port": 3000 }],
    }));
}

/// A figure of `/proc/PID/status`, in MiB.
fn memory(running: &Running, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
fn thousands_of_routes_start_and_change() {
    let count = std::env::var("WEIR_ROUTES").ok().and_then(|count| count.parse().ok()).unwrap_or(FEW);
    let long = SOON * 4;
    let kube = FakeKube::start();
    let folder = tempfile::tempdir().unwrap();
    let address = unused_address();
    kube.put(class());
    kube.put(gateway(address));
    for number in 0..count {
        service(&kube, number);
        kube.put(route(number, "/first"));
    }
    let began = Instant::now();
    let running = Running::start(&kube, folder.path());
    eventually_within(long, "it is ready", || running.readyz().as_deref() == Some("ready\n"));
    let ready = began.elapsed();
    let answers = |number: usize, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: h{number}.test\r\nConnection: close\r\n\r\n");
        Client::connect(address).ask(request).status
    };
    assert_eq!(answers(count - 1, "/first"), 302);
    let settled = || {
        let status = kube.get("HTTPRoute", "shop", &format!("r{}", count - 1)).unwrap();
        status.pointer("/status/parents/0/conditions/0/status") == Some(&json!("True"))
    };
    eventually_within(long, "the last status is written", settled);
    let written = began.elapsed();
    let (rss, most) = (memory(&running, "VmRSS"), memory(&running, "VmHWM"));
    let mut times: Vec<Duration> = Vec::new();
    for change in 0..CHANGES {
        let path = format!("/c{change}");
        let number = change * 7 % count;
        let (changed, began) = (route(number, &path), Instant::now());
        kube.put(changed);
        eventually_within(long, "the change serves", || answers(number, &path) == 302);
        times.push(began.elapsed());
    }
    times.sort();
    println!(
        "{count} routes: ready after {ready:?}, statuses written after {written:?}, {rss} MiB ({most} MiB at most); \
         a change of one serves after {:?} at the median, {:?} at most",
        times[times.len() / 2],
        times[times.len() - 1]
    );
    running.stop();
}
