//! What telemetry costs: `cargo run --release -p weir-telemetry --example measure`.
//!
//! Each figure is the best of several rounds, in nanoseconds per operation on one core; compare only within one run.

use std::hint::black_box;
use std::time::{Duration, Instant, UNIX_EPOCH};

use weir_telemetry::cell::BOUNDS_NS;
use weir_telemetry::{
    AccessLogWriter, Attempt, Counter, Entry, Exposition, Histogram, LineFormat, Output, Setup, StatusCounts,
    Telemetry, Timing,
};

fn main() {
    cells();
    lines();
    scrape();
}

fn cells() {
    let histogram = Histogram::default();
    // Values as they come: spread over four decades, so that the branch predictor learns nothing.
    let mut seed = 1u64;
    let values: Vec<Duration> = (0..65_536)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Duration::from_nanos((100_000 << (seed >> 60)) + (seed >> 45))
        })
        .collect();
    best("histogram, observe", values.len(), || {
        values.iter().for_each(|v| black_box(&histogram).observe(*v))
    });
    let (buckets, sum): ([Counter; 16], Counter) = Default::default();
    best("  the same by a scan of the bounds", values.len(), || {
        for value in &values {
            let ns = value.as_secs() * 1_000_000_000 + u64::from(value.subsec_nanos());
            black_box(&buckets)[BOUNDS_NS.iter().take_while(|bound| ns > **bound).count()].add(1);
            sum.add(ns);
        }
    });
    let counts = StatusCounts::default();
    best("status counts, record", 4096, || {
        (0..4096).for_each(|i| black_box(&counts).record([200, 304, 404, 502][i % 4]))
    });

    let telemetry = Telemetry::new(Setup::default());
    let core = telemetry.core(0);
    let route = core.route(&telemetry.route("orders"));
    let upstream = core.upstream(&telemetry.upstream("orders"));
    let listener = core.listener(&telemetry.listener("web"));
    best("all cells of one request", values.len(), || {
        for value in &values {
            route.active.inc();
            listener.requests[0].inc();
            upstream.reused.inc();
            upstream.attempt(Attempt::Answered);
            route.upstream_duration.observe(*value);
            route.requests.record(200);
            route.duration.observe(*value);
            route.request_bytes.add(100);
            route.response_bytes.add(1024);
            listener.received_bytes.add(200);
            listener.sent_bytes.add(1200);
            route.active.dec();
        }
    });
}

fn lines() {
    let telemetry = Telemetry::new(Setup::default());
    let mut entry = Entry {
        request_id: b"01JAZ4T9W8Q6R2Y3K5M7N9P1S3",
        client: Some([203, 0, 113, 77].into()),
        peer: Some(([10, 0, 0, 9], 51_234).into()),
        listener: "web",
        method: b"GET",
        host: b"api.example.com",
        path: b"/spot/orders/1234567",
        query: b"page=2&limit=100",
        protocol: "HTTP/1.1",
        route: "orders",
        upstream: "orders",
        endpoint: "127.0.0.1:8000",
        attempts: 1,
        status: 200,
        bytes_in: 312,
        bytes_out: 1311,
        consumer: "shop",
        user_agent: b"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
        timing: Timing {
            head: Duration::from_micros(12),
            filters: Duration::from_micros(3),
            first_byte: Duration::from_micros(740),
            total: Duration::from_micros(801),
            ..Timing::default()
        },
        ..Entry::default()
    };
    let template =
        "{time} {client} \"{method} {uri} {protocol}\" {status} {bytes_out} {total_us} {route} {upstream}";
    for (name, format) in [
        ("access log, JSON line", LineFormat::json()),
        ("access log, template line", LineFormat::parse(template).expect("the template is valid")),
    ] {
        let output = Output::parse("/dev/null");
        let writer = AccessLogWriter::open(&telemetry, output, format).expect("/dev/null opens");
        let mut log = writer.core(0);
        let mut now = UNIX_EPOCH + Duration::from_secs(1_780_000_000);
        best(name, 2000, || {
            for _ in 0..2000 {
                now += Duration::from_micros(50);
                entry.time = now;
                log.record(black_box(&entry));
            }
            // The other core would do this meanwhile; here it would fill the channel.
            log.flush_tick();
            assert!(writer.flush(Duration::from_secs(5)));
        });
        println!("    dropped: {}", telemetry.access_log_dropped());
    }
}

fn scrape() {
    let telemetry = Telemetry::new(Setup { cores: 2, ..Setup::default() });
    let mut ids = Vec::new();
    for i in 0..1000 {
        let id = telemetry.route(&format!("route-{i}"));
        for core in [telemetry.core(0), telemetry.core(1)] {
            let cells = core.route(&id);
            for code in [200, 201, 304, 404, 502] {
                cells.requests.record(code);
                cells.duration.observe(Duration::from_micros(u64::from(code) * 97));
                cells.upstream_duration.observe(Duration::from_micros(u64::from(code) * 53));
            }
        }
        ids.push(id);
    }
    for i in 0..100 {
        let id = telemetry.upstream(&format!("upstream-{i}"));
        telemetry.core(0).upstream(&id);
    }
    let bytes = telemetry.expose(Exposition::Text).len();
    println!("page of 1000 routes on 2 cores: {} KiB", bytes / 1024);
    best("scrape", 1, || {
        black_box(telemetry.expose(Exposition::Text));
    });
}

fn best(name: &str, operations: usize, mut work: impl FnMut()) {
    let mut best = Duration::MAX;
    for _ in 0..50 {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed());
    }
    println!("{name:40} {:10.1} ns", best.as_nanos() as f64 / operations as f64);
}
