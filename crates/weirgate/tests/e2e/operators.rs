//! The dashboard and alert rules of `dist/`. promtool checks that each rule fires exactly when it should. A real
//! Prometheus scrapes a running gateway and answers every query of both.
//!
//! Without Prometheus, these tests print a note and pass; `make test` installs it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use weir_testkit::{Client, Upstream, Weir, eventually, eventually_within, unused_address};

use crate::support::OK_BODY;

const DASHBOARD: &str = include_str!("../../../../dist/grafana-gateway.json");
const METRICS_PAGE: &str = include_str!("../../../../docs/reference/metrics.md");

/// Families that a single gateway cannot show: they need a registry, a fleet, an authority, certificates, a store or
/// a second process.
const ELSEWHERE: &[&str] = &[
    "weir_acme_failures",
    "weir_acme_stand_in",
    "weir_cache_disk_failed_total",
    "weir_certificate_expiry_timestamp_seconds",
    "weir_config_source_refused",
    "weir_config_source_up",
    "weir_discovery_up",
    "weir_rate_limit_store_up",
    "weir_series_folded_total",
];

/// Labels that Prometheus or queries add.
const ADDED: &[&str] = &["class", "instance", "job"];

fn dist(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(file)
}

/// Runs promtool; does nothing if it is not installed.
fn promtool(args: &[&str]) {
    match Command::new("promtool").args(args).stdin(Stdio::null()).output() {
        Err(_) => eprintln!("SKIPPED: promtool is not installed (scripts/ensure-tools.sh promtool)"),
        Ok(ran) => {
            let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
            assert!(ran.status.success(), "promtool {args:?}:\n{out}{err}");
        }
    }
}

#[test]
fn each_alert_fires_for_what_it_is_for() {
    let rules = dist("prometheus-alerts.yaml");
    promtool(&["check", "rules", &rules.display().to_string()]);
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/prometheus-alerts.test.yaml");
    promtool(&["test", "rules", &tests.display().to_string()]);
    let (rules, tests) = (fs::read_to_string(rules).unwrap(), fs::read_to_string(tests).unwrap());
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        for case in ["fires", "stays quiet"] {
            assert!(tests.contains(&format!("- name: {alert} {case}\n")), "no test says when {alert} {case}");
        }
    }
}

/// A gateway with at least one event of everything that dashboards show.
fn busy() -> (Weir, Vec<Upstream>) {
    let well = Upstream::fixed("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok");
    let failing = Upstream::fixed("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    let plain = Upstream::fixed(OK_BODY);
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nstores: {{ pages: {{ memory: 8MiB }} }}\n\
         access_log: {{ output: stdout }}\nadmin: {{ address: 127.0.0.1:0 }}\nupstreams:\n  well: {{ endpoints: [{}] }}\n  \
         failing: {{ endpoints: [{}], retry: {{ attempts: 2 }} }}\n  plain: {{ endpoints: [{}] }}\n  gone: {{ endpoints: [{}] }}\n\
         routes:\n  cached: {{ match: {{ path: /cached }}, filters: [ {{ cache: {{ store: pages }} }} ], upstream: well }}\n  \
         broken: {{ match: {{ path: /broken }}, filters: [ {{ circuit_breaker: {{ minimum: 100 }} }} ], upstream: failing }}\n  \
         adaptive: {{ match: {{ path: /adaptive }}, filters: [ {{ concurrency: {{ adaptive: true }} }} ], upstream: plain }}\n  \
         gone: {{ match: {{ path: /gone }}, upstream: gone }}\n",
        well.address(),
        failing.address(),
        plain.address(),
        unused_address()
    ));
    traffic(&weir);
    (weir, vec![well, failing, plain])
}

fn traffic(weir: &Weir) {
    let mut client = weir.client();
    for path in ["/cached", "/cached", "/broken", "/adaptive", "/gone", "/nothing"] {
        client.get(path);
    }
}

/// The queries of the dashboard, its variables and its annotations, with variables set to all.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            found.push(target["expr"].as_str().unwrap().to_owned());
        }
    }
    found.extend(
        dashboard["annotations"]["list"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["expr"].as_str().unwrap().to_owned()),
    );
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["query"]["query"].as_str() {
            let (selector, label) = query.strip_prefix("label_values(").unwrap().rsplit_once(", ").unwrap();
            found.push(format!("count by ({}) ({selector})", label.trim_end_matches(')')));
        }
    }
    let all = |query: String| {
        let query = query.replace("$__rate_interval", "1m").replace("$__interval", "1m");
        ["$instance", "$route", "$upstream"]
            .iter()
            .fold(query, |query, variable| query.replace(variable, ".*"))
    };
    let found: Vec<String> = found.into_iter().map(all).collect();
    assert!(
        found.len() > 40 && found.iter().all(|query| !query.replace("${1}", "").contains("$")),
        "{found:#?}"
    );
    found
}

/// The alert rules' expressions.
fn alerts() -> Vec<String> {
    let text = fs::read_to_string(dist("prometheus-alerts.yaml")).unwrap();
    let mut found = Vec::new();
    for part in text.split("expr: ").skip(1) {
        let end = part.find("\n        for:").or_else(|| part.find("\n        labels:")).unwrap();
        found.push(part[..end].trim_start_matches("|\n").split_whitespace().collect::<Vec<_>>().join(" "));
    }
    assert!(found.len() > 20, "{found:#?}");
    found
}

/// The metrics in a query, each with its selector labels; and the grouping labels.
fn named(query: &str) -> (Vec<(String, BTreeSet<String>)>, BTreeSet<String>) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = |list: &str| -> BTreeSet<String> {
        list.split(',').map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
    };
    let (mut metrics, mut groups) = (Vec::new(), BTreeSet::new());
    let mut rest = query;
    while let Some(at) = rest.find(is_word) {
        let from = &rest[at..];
        let end = from.find(|c: char| !is_word(c)).unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        rest = after;
        if word.starts_with("weir_") || word.starts_with("process_") {
            let selected =
                after.strip_prefix('{').map_or("", |inner| inner.split('}').next().unwrap_or_default());
            let labels = selected.split("\",").filter_map(|pair| pair.split(['=', '!']).next());
            metrics.push((word.to_owned(), labels.flat_map(&words).collect()));
            rest = &after[selected.len()..];
        } else if matches!(word, "by" | "on" | "ignoring" | "group_left") {
            let list = after
                .trim_start()
                .strip_prefix('(')
                .map_or("", |list| list.split(')').next().unwrap_or_default());
            groups.extend(words(list));
            rest = &after[after.find(')').map_or(0, |at| at + 1)..];
        } else if rest.starts_with('"') {
            rest = rest[1..].split_once('"').map_or("", |(_, after)| after);
        }
    }
    (metrics, groups)
}

/// The labels of each metric in a scrape.
fn scraped(page: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let end = line.find(['{', ' ']).unwrap();
        let labels = line[end..].strip_prefix('{').map_or("", |rest| rest.rsplit_once('}').unwrap().0);
        let names =
            labels.split("\",").filter_map(|pair| pair.split_once('=')).map(|(name, _)| name.to_owned());
        found.entry(line[..end].to_owned()).or_default().extend(names);
    }
    found
}

/// A metric's labels by docs/reference/metrics.md.
fn documented(metric: &str) -> Option<BTreeSet<String>> {
    let row = METRICS_PAGE.lines().find(|line| line.starts_with(&format!("| `{metric}` |")))?;
    let labels = row.split('|').nth(3)?.split('`').skip(1).step_by(2).map(str::to_owned);
    Some(labels.chain(["place".to_owned()]).collect())
}

#[test]
fn queries_name_only_what_a_gateway_tells() {
    let (weir, _upstreams) = busy();
    let page = || weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    eventually("all is counted", || page().contains("weir_requests_total{route=\"gone\""));
    let known = scraped(&page());
    for query in queries().into_iter().chain(alerts()) {
        let (metrics, groups) = named(&query);
        let mut labels: BTreeSet<String> = ADDED.iter().map(|label| (*label).to_owned()).collect();
        for (metric, selected) in &metrics {
            let elsewhere = ELSEWHERE.contains(&metric.as_str());
            let own = if elsewhere { documented(metric) } else { known.get(metric).cloned() };
            let own =
                own.unwrap_or_else(|| panic!("{metric} is in no scrape:\n{query}\n{:#?}", known.keys()));
            labels.extend(own);
            let unknown: Vec<_> = selected.iter().filter(|label| !labels.contains(*label)).collect();
            assert!(unknown.is_empty(), "{metric} has no {unknown:?}: {query}");
        }
        let unknown: Vec<_> = groups.iter().filter(|label| !labels.contains(*label)).collect();
        assert!(unknown.is_empty(), "nothing has {unknown:?}: {query}");
    }
}

/// A Prometheus that scrapes the gateway and evaluates the rules.
struct Prometheus {
    address: std::net::SocketAddr,
    child: Child,
    _dir: TempDir,
}

impl Prometheus {
    /// Starts it; `None` if it is not installed.
    fn start(weir: &Weir) -> Option<Self> {
        let dir = TempDir::new().unwrap();
        let address = unused_address();
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [{}]\nscrape_configs:\n  - job_name: weir\n    \
             static_configs: [ {{ targets: [\"{}\"] }} ]\n",
            fs::canonicalize(dist("prometheus-alerts.yaml")).unwrap().display(),
            weir.admin()
        );
        fs::write(dir.path().join("prometheus.yml"), config).unwrap();
        let child = Command::new("prometheus")
            .arg("--config.file=prometheus.yml")
            .arg(format!("--web.listen-address={address}"))
            .arg("--storage.tsdb.path=data")
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            eprintln!("SKIPPED: prometheus is not installed (scripts/ensure-tools.sh prometheus)");
            return None;
        };
        let it = Self { address, child, _dir: dir };
        let ready = || Client::can_connect(it.address) && it.ask("/-/ready").0 == 200;
        eventually_within(std::time::Duration::from_secs(30), "prometheus is ready", ready);
        Some(it)
    }

    fn ask(&self, target: &str) -> (u16, String) {
        let request = format!("GET {target} HTTP/1.1\r\nHost: prometheus\r\nConnection: close\r\n\r\n");
        let answer = Client::connect(self.address).ask(request);
        (answer.status, answer.text())
    }

    /// The number of series in the answer to a query.
    fn query(&self, query: &str) -> usize {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (status, text) = self.ask(&format!("/api/v1/query?query={escaped}"));
        assert_eq!(status, 200, "{query}: {text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        answer["data"]["result"].as_array().map_or(0, Vec::len)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_prometheus_answers_every_query() {
    let (weir, _upstreams) = busy();
    let Some(prometheus) = Prometheus::start(&weir) else { return };
    let long = std::time::Duration::from_secs(30);
    // Two scrapes with traffic in between, so that rates are above zero.
    eventually_within(long, "a rate", || {
        traffic(&weir);
        prometheus.query("sum(rate(weir_requests_total[1m])) > 0") == 1
    });
    for query in queries().iter().chain(&alerts()) {
        prometheus.query(query);
    }
    for shown in [
        "sum by (route) (rate(weir_requests_total[1m])) > 0",
        "histogram_quantile(0.99, sum by (le) (rate(weir_request_duration_seconds_bucket[1m])))",
        "weir_build_info * on (instance) group_left (revision) weir_config_info",
        "rate(process_cpu_seconds_total{job=\"weir\"}[1m]) / on (instance) weir_workers",
        "weir_circuit_breaker_state",
        "weir_connection_requests_total{protocol=\"http1\"} > 0",
    ] {
        assert!(prometheus.query(shown) > 0, "{shown} shows nothing");
    }
    let (_, rules) = prometheus.ask("/api/v1/rules");
    let rules: Value = serde_json::from_str(&rules).unwrap();
    let groups = rules["data"]["groups"].as_array().unwrap();
    assert!(groups.len() > 4, "{rules:#}");
    for rule in groups.iter().flat_map(|group| group["rules"].as_array().unwrap()) {
        assert_ne!(rule["health"], "err", "{rule:#}");
    }
}
