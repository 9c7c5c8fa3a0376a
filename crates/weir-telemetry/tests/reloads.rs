//! Memory after 10,000 reloads is memory after 10. A separate binary, because it measures the memory of the process.

#![allow(clippy::unwrap_used, reason = "a test may, and so may what it calls")]

use weir_telemetry::{Exposition, Setup, Telemetry};

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_ascii_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn memory_stays_through_ten_thousand_reloads() {
    let telemetry = Telemetry::new(Setup { cores: 2, route_cap: 50, endpoint_cap: 50, ..Setup::default() });
    let mut snapshot = Vec::new();
    let mut reload = |prefix: &str| {
        let next: Vec<_> = (0..20)
            .map(|i| {
                let route = telemetry.route(&format!("{prefix}route{i}"));
                let endpoint = telemetry.endpoint("orders", &format!("{prefix}{i}"));
                let cells = [0, 1].map(|index| {
                    let core = telemetry.core(index);
                    (core.route(&route), core.endpoint(&endpoint))
                });
                cells[0].0.requests.record(200);
                (route, endpoint, cells)
            })
            .collect();
        // The old one drains when the new one is there.
        snapshot = next;
        telemetry.reloaded(prefix, std::time::UNIX_EPOCH);
    };
    let grown = |reload: &mut dyn FnMut(usize)| {
        (0..200).for_each(&mut *reload);
        let before = resident_kib();
        (200..10_000).for_each(&mut *reload);
        resident_kib().saturating_sub(before)
    };
    let same = grown(&mut |_| reload("same-"));
    assert!(same < 512, "{same} KiB more after 10,000 reloads of the same config");
    let changing = grown(&mut |i| reload(&format!("generation-{i}-")));
    assert!(changing < 512, "{changing} KiB more after 10,000 reloads with other names each time");
    let overflow = telemetry.route("overflow");
    assert!(snapshot.iter().all(|(route, ..)| *route != overflow));
    let page = telemetry.expose(Exposition::Text);
    assert!(page.lines().filter(|line| line.starts_with("weir_requests_total")).count() <= 51);
}
