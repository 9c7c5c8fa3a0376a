//! `weir import haproxy --prove` and `weir prove`: a real HAProxy and Weir, asked the same in a world of their own.
//!
//! Without HAProxy, or where the kernel gives no namespaces, the tests print a note and pass; `make test` installs it.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;
use weir_testkit::run_weir;

/// A site with everything that decides: rules that refuse, redirects, hosts, paths, methods, a limit, changes to fields.
const HAPROXY: &str = "\
global
  stats socket /run/haproxy/admin.sock level admin
  user haproxy
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  option forwardfor
frontend web
  bind *:80
  stick-table type ip size 100k expire 1m store http_req_rate(30s)
  http-request track-sc0 src
  http-request deny deny_status 429 if { sc_http_req_rate(0) gt 20 }
  acl private path_beg /private
  http-request deny if private
  http-request deny deny_status 405 if { method PUT }
  http-request redirect location /new code 301 if { path /old }
  http-request set-header X-Site shop
  http-request del-header X-Debug
  http-response set-header X-Frame-Options DENY
  use_backend api if { path_beg /api/ }
  use_backend blog if { hdr(host) -i blog.example.com }
  use_backend beta if { req.cook(beta) -m str yes }
  default_backend shop
backend api
  http-request replace-path ^/api/(.*) /\\1
  server a1 10.0.0.1:8080
  server a2 10.0.0.2:8080
backend blog
  http-request set-header Host blog.internal
  server b1 blog1:3000
backend beta
  server n1 10.0.0.4:80
backend shop
  balance roundrobin
  server s1 10.0.0.3:80 check
";

/// What every pair does differently: docs/guide/from-haproxy.md lists the same.
const ACCEPT: &str = "\
accept:
- { difference: '*', asked: with dot segments* }
- { difference: '*', asked: with a dot segment }
- { difference: '*', asked: with a letter escaped }
- { difference: who answered, asked: a host with another port }
- { difference: who answered, asked: a host with its port }
- { difference: '*', asked: 'no host, in HTTP/1.0' }
- { difference: status, asked: one endpoint dead, why: Weir goes over to another without option redispatch }
- { difference: '*', asked: all endpoints dead, why: 'HAProxy answers 503, Weir names the cause' }
- { difference: forwarding-fields }
- { difference: upstream field x-forwarded-* }
- { difference: answer field vary }
";

/// Imports a source into `weir`, with the differences that are accepted. The report; none if this machine cannot prove.
#[track_caller]
fn imported(dir: &Path, source: &str, accept: &str) -> Option<Value> {
    fs::create_dir_all(dir.join("weir")).unwrap();
    // Files in proof.yaml are relative to it.
    let file = if source.starts_with('/') { source.to_owned() } else { format!("../{source}") };
    fs::write(dir.join("weir/proof.yaml"), format!("system: haproxy\nfiles: [ {file:?} ]\n{accept}"))
        .unwrap();
    let told =
        run_weir(dir, &["import", "haproxy", source, "-o", "weir", "--force", "--prove", "--format", "json"]);
    let report: Value =
        serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{error}:\n{told:#?}"));
    proof(report["proof"].clone())
}

fn proof(report: Value) -> Option<Value> {
    let why = report["not_proved"].as_str().unwrap_or_default();
    if why.contains("is not on this machine") || why.contains("this kernel cannot create a sandbox") {
        eprintln!("SKIPPED: {why}");
        return None;
    }
    Some(report)
}

/// The differences that are not accepted: `LINE DIFFERENCE`, with how it was asked and both answers.
fn differences(report: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for row in report["lines"].as_array().into_iter().flatten() {
        for difference in row["differences"].as_array().into_iter().flatten() {
            if difference["accepted"] == false {
                found.push(format!(
                    "{} {} {difference}",
                    row["line"],
                    difference["difference"].as_str().unwrap()
                ));
            }
        }
    }
    found
}

fn site() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("haproxy.cfg"), HAPROXY).unwrap();
    dir
}

#[test]
fn an_import_is_proved() {
    let dir = site();
    let Some(report) = imported(dir.path(), "haproxy.cfg", ACCEPT) else { return };
    assert_eq!(differences(&report), Vec::<String>::new());
    assert!(report["not_proved"].is_null(), "{report:#}");
    assert!(report["asked"].as_u64() > Some(250), "{}", report["asked"]);
}

#[test]
fn lies_are_caught_at_their_lines() {
    let dir = site();
    let Some(report) = imported(dir.path(), "haproxy.cfg", ACCEPT) else { return };
    assert_eq!(differences(&report), Vec::<String>::new());
    let read = |file: &str| fs::read_to_string(dir.path().join("weir").join(file)).unwrap();
    // A file of the import, what is done to it by hand, and the line and difference that must show it.
    let lies = [
        (
            "weir.yaml",
            "a deny rule is dropped",
            "startsWith(\"/private\")",
            "startsWith(\"/nowhere\")",
            "status",
        ),
        (
            "weir.yaml",
            "a refused method passes",
            "request.method == \"PUT\"",
            "request.method == \"PUTT\"",
            "17 status",
        ),
        ("weir.yaml", "a redirect leads elsewhere", "to: /new", "to: /newer", "18 redirect"),
        ("weir.yaml", "a redirect has another status", "status: 301", "status: 302", "18 status"),
        ("weir.yaml", "a field is dropped", "x-site: shop", "x-other: shop", "19 upstream field x-site"),
        ("weir.yaml", "a field passes", "remove: [x-debug]", "remove: [x-other]", ""),
        (
            "weir.yaml",
            "a field of answers is dropped",
            "x-frame-options: DENY",
            "x-other: DENY",
            "21 answer field x-frame-options",
        ),
        ("weir.yaml", "a limit is raised", "requests: 20", "requests: 30", "14 status"),
        (
            "routes/web.yaml",
            "two backends are swapped",
            "upstream: blog",
            "upstream: beta",
            "23 who answered",
        ),
        (
            "routes/web.yaml",
            "a prefix is widened",
            "path: \"/api/*\", when: 'request.path != \"/api\"'",
            "path: \"/api*\"",
            "who answered",
        ),
        ("routes/web.yaml", "a condition is turned around", "== \"yes\"", "!= \"yes\"", "who answered"),
        (
            "routes/web.yaml",
            "a path is not changed",
            "strip_prefix: /api",
            "strip_prefix: /apis",
            "upstream target",
        ),
        (
            "routes/web.yaml",
            "a host is not changed",
            "host: blog.internal",
            "host: blog.external",
            "upstream field host",
        ),
        ("upstreams.yaml", "an endpoint is lost", "10.0.0.1:8080, ", "", "who answered"),
    ];
    for (file, lie, from, to, expected) in lies {
        let before = read(file);
        assert!(before.contains(from), "{lie}: no `{from}` in\n{before}");
        let path = dir.path().join("weir").join(file);
        fs::write(&path, before.replacen(from, to, 1)).unwrap();
        let told = run_weir(dir.path(), &["prove", "weir", "--format", "json"]);
        fs::write(&path, &before).unwrap();
        let report: Value =
            serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{lie}: {error}: {told:#?}"));
        let found = differences(&report);
        // What no request can show, the proof does not claim: that no request has the field is such a thing.
        if expected.is_empty() {
            continue;
        }
        assert_eq!(told.code, Some(1), "{lie}");
        assert!(found.iter().any(|found| found.contains(expected)), "{lie}: {found:#?}");
    }
}

/// HAProxy beside Weir over all samples of weir-import: whatever differs is on the list of what may.
#[test]
fn every_sample_is_proved() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../weir-import/tests/haproxy");
    let (mut asked, mut wrong) = (0, Vec::new());
    for sample in fs::read_dir(samples).unwrap().map(|entry| entry.unwrap().path()) {
        if sample.extension().is_some_and(|extension| extension == "out") {
            continue;
        }
        let name = sample.file_stem().unwrap().to_string_lossy().into_owned();
        let source = if sample.is_dir() { sample.join("main.cfg") } else { sample };
        let dir = TempDir::new().unwrap();
        let accept = format!("{ACCEPT}{}", of_sample(&name));
        let Some(report) = imported(dir.path(), source.to_str().unwrap(), &accept) else { return };
        let not_proved = report["not_proved"].as_str().unwrap_or_default();
        if name == "sni_passthrough" {
            assert!(not_proved.contains("speaks HTTP"), "{not_proved}");
            continue;
        }
        assert!(not_proved.is_empty(), "{name}: {not_proved}");
        asked += report["asked"].as_u64().unwrap();
        wrong.extend(differences(&report).into_iter().map(|found| format!("{name}:{found}")));
    }
    eprintln!("{asked} requests");
    assert!(wrong.is_empty(), "{} differences: {wrong:#?}", wrong.len());
    assert!(asked > 1500, "{asked} requests");
}

/// Differences of single samples, which their ledgers name.
fn of_sample(name: &str) -> &'static str {
    match name {
        "api_gateway" => {
            "- { difference: answer field www-authenticate, why: Weir names the charset }\n\
             - { difference: upstream field x-tenant-id, why: Weir sends no empty field }\n\
             - { difference: '*', asked: as the user bob, why: Weir refuses the kind of his hash }\n"
        }
        "canary" => {
            "- { difference: upstream field x-real-ip, why: Weir drops it unless trusted_proxies names the client }\n"
        }
        "vhosts" => {
            "- { difference: status, asked: a host with another port }\n\
             - { difference: status, asked: a host with its port }\n"
        }
        // An upgrade that Connection does not name is none in Weir.
        "websocket" => {
            "- { difference: '*', line: 'acl is_websocket hdr(Upgrade) -i WebSocket' }\n\
             - { difference: upstream field upgrade, why: Connection does not name it }\n"
        }
        _ => "",
    }
}

#[test]
fn what_haproxy_itself_refuses_is_told_with_its_line() {
    let dir = site();
    fs::write(
        dir.path().join("haproxy.cfg"),
        "defaults\n  mode http\nfrontend f\n  bind :80\n  frobnicate on\n",
    )
    .unwrap();
    fs::create_dir_all(dir.path().join("weir")).unwrap();
    let told = run_weir(dir.path(), &["import", "haproxy", "haproxy.cfg", "-o", "weir", "--prove"]);
    if told.stdout.contains("is not on this machine") || told.stdout.contains("cannot create a sandbox") {
        eprintln!("SKIPPED: no HAProxy, or no namespaces");
        return;
    }
    told.expect_code(3).expect_text("haproxy.cfg:5: HAProxy itself refuses it").expect_text("frobnicate");
}

#[test]
fn what_cannot_be_run_is_not_proved() {
    for lines in [
        "  http-request lua.x\n",
        "  http-request set-header X-A \"$SECRET\"\n",
        "  acl a path -f nowhere.lst\n",
    ] {
        let dir = site();
        let source = HAPROXY.replace("  acl private", &format!("{lines}  acl private"));
        fs::write(dir.path().join("haproxy.cfg"), source).unwrap();
        let told = run_weir(dir.path(), &["import", "haproxy", "haproxy.cfg", "-o", "weir", "--prove"]);
        told.expect_code(1).expect_text("NOT PROVED");
    }
}
