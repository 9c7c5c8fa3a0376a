//! The page of metrics: well-formed in both formats, equal in both, right while cores write, documented.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};

use weir_telemetry::series::Closed;
use weir_telemetry::{
    Attempt, CertificateEnd, Ejection, Exposition, Figure, FilterReading, KeptCertificate, OutReason,
    Protocol, Setup, SourceState, Telemetry,
};

use crate::parser::parse;

/// A process that has done one of everything.
pub(crate) fn sample() -> std::sync::Arc<Telemetry> {
    let telemetry = Telemetry::new(Setup {
        cores: 2,
        causes: &["connect_refused", "no_route"],
        limits: &["connections"],
        version: "1.2.3",
        commit: "abc\"def",
        route_cap: 3,
        ..Setup::default()
    });
    telemetry.started("r1", UNIX_EPOCH + Duration::from_millis(1_700_000_000_500));
    telemetry.reload_refused();
    telemetry.source(SourceState {
        answers: true,
        contact: Some(UNIX_EPOCH + Duration::from_secs(1_700_000_001)),
        refused: false,
        bundle: "ab12".to_owned(),
        node: "gw1".to_owned(),
        zone: "eu".to_owned(),
        labels: "canary=true".to_owned(),
    });
    telemetry.show_kept(vec![KeptCertificate {
        cert: "/etc/weir/kept.pem".to_owned(),
        name: "kept.example.com".to_owned(),
        not_after: None,
        renew_at: Some(1_790_000_000),
        failures: 0,
    }]);
    telemetry.show_certificates(vec![CertificateEnd {
        cert: "/etc/weir/a.pem".to_owned(),
        name: "*.example.com".to_owned(),
        not_after: 1_800_000_000,
    }]);
    for (index, ms) in [(0, 3), (1, 40)] {
        let core = telemetry.core(index);
        core.cause(0).inc();
        core.cause(99).inc();
        core.limit(0).inc();
        core.access_log_dropped.add(2);
        let listener = core.listener(&telemetry.listener("web"));
        listener.open();
        listener.open();
        listener.close(Closed::Idle);
        listener.handshakes_failed.inc();
        listener.sent_bytes.add(10);
        listener.first_requests.inc();
        listener.requests[Protocol::Http1 as usize].add(5);
        listener.requests[Protocol::Http2 as usize].add(2);
        let route = core.route(&telemetry.route("a \\ \"route\"\nof two lines"));
        route.requests.record(200);
        route.requests.record(404);
        route.duration.observe(Duration::from_millis(ms));
        route.exemplify(Duration::from_millis(ms), 0xabc, 0xde, UNIX_EPOCH + Duration::from_millis(1500));
        route.upstream_duration.observe(Duration::from_micros(ms));
        route.response_bytes.add(7);
        route.cause(1);
        route.cause(usize::MAX);
        core.route(&telemetry.route("idle"));
        let consumer = core.consumer(&telemetry.consumer("shop"));
        consumer.requests.record(200);
        consumer.response_bytes.add(3);
        let upstream = core.upstream(&telemetry.upstream("orders"));
        upstream.attempt(Attempt::Answered);
        upstream.connections_open.inc();
        let endpoint = telemetry.endpoint("orders", "127.0.0.1:80");
        core.endpoint(&endpoint).active.inc();
        core.endpoint(&endpoint).answer(Duration::from_millis(250));
        let at = UNIX_EPOCH + Duration::from_secs(1_700_000_000 + ms);
        core.endpoint(&endpoint).fail(core.cause_index("no_route"), at);
        endpoint.set_healthy(index == 0);
        endpoint.begin_out(OutReason::Ejected, at, true);
        endpoint.begin_out(OutReason::Draining, at, false);
        endpoint.begin_out(OutReason::Unreachable, at, true);
        endpoint.end_out(OutReason::Unreachable);
        endpoint.eject(Ejection::ErrorsInARow);
        endpoint.probed(false);
        telemetry.upstream("orders").set_panicking(index == 1);
        telemetry.upstream("orders").follows(true);
    }
    telemetry
}

#[test]
fn exemplars_stand_behind_buckets_of_open_metrics() {
    let exemplar = format!("1 # {{trace_id=\"{:032x}\",span_id=\"{:016x}\"}} 0.003000000 1.500", 0xabc, 0xde);
    let page = sample().expose(Exposition::OpenMetrics);
    let line =
        page.lines().find(|line| line.contains("weir_request_duration_seconds_bucket") && line.contains('#'));
    assert!(line.is_some_and(|line| line.contains("le=\"0.005\"") && line.ends_with(&exemplar)), "{line:?}");
    assert!(!sample().expose(Exposition::Text).contains("trace_id"));
}

#[test]
fn both_formats_are_well_formed_and_tell_the_same() {
    // Nothing holds an id here: a series shows its last counts once. So the second page comes from a second process.
    let text = parse(&sample().expose(Exposition::Text), false);
    let open = parse(&sample().expose(Exposition::OpenMetrics), true);
    let ours = |name: &&String| !name.starts_with("process_");
    assert!(text.samples.keys().filter(ours).eq(open.samples.keys().filter(ours)));
    for (series, value) in text.samples.iter().filter(|(name, _)| ours(name)) {
        assert_eq!(*value, open.value(series), "{series}");
    }
    let route = "route=\"a \\\\ \\\"route\\\"\\nof two lines\"";
    let endpoint = "upstream=\"orders\",endpoint=\"127.0.0.1:80\"";
    for (series, value) in [
        ("weir_build_info{version=\"1.2.3\",commit=\"abc\\\"def\"}".to_owned(), 1.0),
        ("weir_config_info{revision=\"r1\"}".into(), 1.0),
        ("weir_config_last_reload_successful".into(), 0.0),
        ("weir_config_last_reload_success_timestamp_seconds".into(), 1_700_000_000.5),
        (
            "weir_certificate_expiry_timestamp_seconds{cert=\"/etc/weir/a.pem\",name=\"*.example.com\"}"
                .into(),
            1_800_000_000.0,
        ),
        ("weir_reloads_total{result=\"ok\"}".into(), 0.0),
        ("weir_reloads_total{result=\"refused\"}".into(), 1.0),
        ("weir_causes_total{cause=\"connect_refused\"}".into(), 2.0),
        ("weir_causes_total{cause=\"no_route\"}".into(), 0.0),
        ("weir_causes_total{cause=\"unknown\"}".into(), 2.0),
        ("weir_limits_hit_total{limit=\"connections\"}".into(), 2.0),
        ("weir_access_log_dropped_total{reason=\"slow\"}".into(), 4.0),
        ("weir_connections_accepted_total{listener=\"web\"}".into(), 4.0),
        ("weir_connections_active{listener=\"web\"}".into(), 2.0),
        ("weir_connections_closed_total{listener=\"web\",reason=\"idle\"}".into(), 2.0),
        ("weir_connections_closed_total{listener=\"web\",reason=\"client\"}".into(), 0.0),
        ("weir_connection_sent_bytes_total{listener=\"web\"}".into(), 20.0),
        ("weir_connection_requests_total{listener=\"web\",protocol=\"http1\"}".into(), 10.0),
        ("weir_connection_requests_total{listener=\"web\",protocol=\"h2\"}".into(), 4.0),
        ("weir_keepalive_requests_total{listener=\"web\"}".into(), 12.0),
        ("weir_tls_handshakes_total{listener=\"web\",result=\"failed\"}".into(), 2.0),
        (format!("weir_requests_total{{{route},code=\"200\"}}"), 2.0),
        (format!("weir_requests_total{{{route},code=\"404\"}}"), 2.0),
        (format!("weir_request_duration_seconds_bucket{{{route},le=\"0.0025\"}}"), 0.0),
        (format!("weir_request_duration_seconds_bucket{{{route},le=\"0.005\"}}"), 1.0),
        (format!("weir_request_duration_seconds_bucket{{{route},le=\"0.05\"}}"), 2.0),
        (format!("weir_request_duration_seconds_count{{{route}}}"), 2.0),
        (format!("weir_request_duration_seconds_sum{{{route}}}"), 0.043),
        (format!("weir_response_body_bytes_total{{{route}}}"), 14.0),
        ("weir_requests_active{route=\"idle\"}".into(), 0.0),
        ("weir_consumer_requests_total{consumer=\"shop\",code=\"200\"}".into(), 2.0),
        ("weir_consumer_response_body_bytes_total{consumer=\"shop\"}".into(), 6.0),
        ("weir_upstream_attempts_total{upstream=\"orders\",outcome=\"answered\"}".into(), 2.0),
        ("weir_upstream_connections_open{upstream=\"orders\"}".into(), 2.0),
        ("weir_endpoint_attempts_active{upstream=\"orders\",endpoint=\"127.0.0.1:80\"}".into(), 2.0),
        (format!("weir_route_causes_total{{{route},cause=\"no_route\"}}"), 2.0),
        (format!("weir_route_causes_total{{{route},cause=\"other\"}}"), 2.0),
        (format!("weir_endpoint_attempts_total{{{endpoint},outcome=\"answered\"}}"), 2.0),
        (format!("weir_endpoint_attempts_total{{{endpoint},outcome=\"failed\"}}"), 2.0),
        (format!("weir_endpoint_first_byte_seconds_total{{{endpoint}}}"), 0.5),
        (
            format!("weir_endpoint_last_failure_timestamp_seconds{{{endpoint},cause=\"no_route\"}}"),
            1_700_000_040.0,
        ),
        (format!("weir_endpoint_out_total{{{endpoint},reason=\"ejected\"}}"), 2.0),
        (format!("weir_endpoint_out_total{{{endpoint},reason=\"unreachable\"}}"), 2.0),
        (
            format!("weir_endpoint_out_since_timestamp_seconds{{{endpoint},reason=\"draining\"}}"),
            1_700_000_040.0,
        ),
        (format!("weir_endpoint_ejections_total{{{endpoint},rule=\"errors_in_a_row\"}}"), 2.0),
        (format!("weir_endpoint_probes_total{{{endpoint},outcome=\"failed\"}}"), 2.0),
        ("weir_upstream_panic{upstream=\"orders\"}".into(), 1.0),
        ("weir_endpoint_healthy{upstream=\"orders\",endpoint=\"127.0.0.1:80\"}".into(), 0.0),
    ] {
        assert_eq!(text.value(&series), value, "{series}");
    }
    assert!(!text.samples.contains_key("weir_request_duration_seconds_count{route=\"idle\"}"));
    let over = format!("weir_endpoint_out_since_timestamp_seconds{{{endpoint},reason=\"unreachable\"}}");
    assert!(!text.samples.contains_key(&over));
}

#[test]
fn an_empty_process_is_well_formed() {
    for (format, open_metrics) in [(Exposition::Text, false), (Exposition::OpenMetrics, true)] {
        parse(&Telemetry::new(Setup::default()).expose(format), open_metrics);
    }
}

#[test]
fn the_documentation_names_only_what_exists() {
    let docs = include_str!("../../../../docs/reference/metrics.md");
    // Figures of filters are no part of this crate.
    let (before, rest) = docs.split_once("<!-- generated: filters -->").unwrap();
    let (filters, after) = rest.split_once("<!-- end of filters -->").unwrap();
    let page = parse(&sample().expose(Exposition::Text), false);
    let words = before.split('`').chain(after.split('`'));
    for word in words.filter(|word| word.starts_with("weir_") && !word.contains(['{', '*', ' ', '['])) {
        assert!(
            page.kinds.contains_key(word) || filters.contains(&format!("`{word}`")),
            "docs/reference/metrics.md tells of {word}, which does not exist"
        );
    }
}

#[test]
fn figures_of_filters_have_types_and_units() {
    static HITS: Figure = Figure::counter("hits", "weir_cache_hits", "Requests answered.");
    static HELD: Figure = Figure::gauge("bytes", "weir_cache_store_bytes", "Bytes held.").bytes().of("store");
    let reading = |place: &str, figure, of: &str, value| FilterReading {
        place: place.to_owned(),
        figure,
        of: of.to_owned(),
        value,
    };
    let readings = [
        reading("routes.a", &HITS, "", 3),
        reading("routes.a", &HELD, "pages \"x\"", 10),
        reading("routes.b", &HITS, "", 4),
        // A route may have a filter twice; a page may have a series once.
        reading("routes.b", &HITS, "", 5),
        reading("routes.b", &HELD, "pages", 9),
        reading("routes.b", &HELD, "pages", 7),
    ];
    for (format, open_metrics) in [(Exposition::Text, false), (Exposition::OpenMetrics, true)] {
        let text = Telemetry::new(Setup::default()).expose_with(format, &readings);
        let page = parse(&text, open_metrics);
        for (series, value) in [
            ("weir_cache_hits_total{place=\"routes.a\"}", 3.0),
            ("weir_cache_hits_total{place=\"routes.b\"}", 9.0),
            ("weir_cache_store_bytes{place=\"routes.a\",store=\"pages \\\"x\\\"\"}", 10.0),
            ("weir_cache_store_bytes{place=\"routes.b\",store=\"pages\"}", 9.0),
        ] {
            assert_eq!(page.value(series), value, "{series}");
        }
        assert_eq!(text.contains("# UNIT weir_cache_store_bytes bytes\n"), open_metrics);
        let counter = if open_metrics { "weir_cache_hits" } else { "weir_cache_hits_total" };
        assert_eq!(page.kinds[counter], "counter");
        assert_eq!(page.kinds["weir_cache_store_bytes"], "gauge");
    }
}

#[test]
fn scraping_while_cores_write_loses_nothing() {
    let telemetry = Telemetry::new(Setup { cores: 2, ..Setup::default() });
    let id = telemetry.route("orders");
    let done = AtomicBool::new(false);
    let count = |page: &str| {
        let metrics = parse(page, false);
        let by_code: f64 = metrics
            .samples
            .iter()
            .filter(|(name, _)| name.starts_with("weir_requests_total"))
            .map(|(_, v)| v)
            .sum();
        let count = metrics.samples.get("weir_request_duration_seconds_count{route=\"orders\"}");
        (by_code as u64, count.copied().unwrap_or(0.0) as u64)
    };
    let written: u64 = std::thread::scope(|scope| {
        let writers = [0, 1].map(|index| {
            let cells = telemetry.core(index).route(&id);
            let done = &done;
            scope.spawn(move || {
                let mut requests = 0;
                while !done.load(Relaxed) {
                    cells.requests.record(200 + (requests % 7) as u16);
                    cells.duration.observe(Duration::from_nanos(requests * 977));
                    requests += 1;
                }
                requests
            })
        });
        let mut last = (0, 0);
        for _ in 0..50 {
            let now = count(&telemetry.expose(Exposition::Text));
            assert!(now.0 >= last.0 && now.1 >= last.1, "a counter went back: {last:?} {now:?}");
            last = now;
        }
        done.store(true, Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    assert_eq!(count(&telemetry.expose(Exposition::Text)), (written, written));
}

#[test]
fn promtool_finds_nothing() {
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        eprintln!(
            "SKIPPED: promtool is not installed (Debian: apt-get install prometheus; `make test` does so)"
        );
        return;
    };
    promtool.stdin.take().unwrap().write_all(sample().expose(Exposition::Text).as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.is_empty(), "promtool: {said}");
}
