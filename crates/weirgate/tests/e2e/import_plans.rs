//! `weir import` of plans: every sample's plan passes `weir load --check-file`, and a recording becomes a plan whose
//! iterations pass at the server that was recorded.
//!
//! weir-import has the tests of what is written: `tests/plans.rs`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use weir_origin::{Options, Origin};
use weir_report::Report;
use weir_testkit::{Client, Request, Response, Upstream, run_weir, weir_command};

/// The samples of weir-import: folders by source.
fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../weir-import/plans")
}

#[test]
fn every_sample_passes_check_file() {
    let mut count = 0;
    for folder in fs::read_dir(samples()).unwrap().map(|entry| entry.unwrap().path()) {
        let kind = folder.file_name().unwrap().to_str().unwrap().to_owned();
        for sample in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if sample.is_dir() || sample.extension().is_some_and(|extension| extension == "out") {
                continue;
            }
            count += 1;
            passes_check_file(&kind, &sample);
        }
    }
    assert!(count >= 24, "{count} samples");
}

/// Imports a sample beside copies of the files that it names, and checks the plan with all of its variables set.
#[track_caller]
fn passes_check_file(kind: &str, sample: &Path) {
    let dir = tempfile::tempdir().unwrap();
    for beside in ["data", "."] {
        let folder = sample.parent().unwrap().join(beside);
        for file in fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            let name = Path::new(beside).join(file.file_name().unwrap());
            if file.is_file() {
                fs::create_dir_all(dir.path().join(beside)).unwrap();
                fs::copy(&file, dir.path().join(name)).unwrap();
            }
        }
    }
    for missing in ["body.json", "a.png"] {
        fs::write(dir.path().join(missing), "{}").unwrap();
    }
    let name = sample.file_name().unwrap().to_str().unwrap();
    let imported = run_weir(dir.path(), &["import", kind, name, "-o", "plan.yaml", "--format", "json"]);
    if imported.code == Some(3) {
        return;
    }
    let report: Value =
        serde_json::from_str(&imported.stdout).unwrap_or_else(|e| panic!("{e}: {imported:#?}"));
    // Samples are translated, not repaired.
    assert!(!imported.stdout.contains("`weir load` refuses it"), "{name}: {imported:#?}");
    let mut check = weir_command(dir.path());
    check.args(["load", "--check-file", "-f", "plan.yaml"]);
    for variable in report["variables"].as_array().unwrap() {
        let variable = variable.as_str().unwrap();
        check.env(variable, if variable == "TARGET" { "http://127.0.0.1:1" } else { "stand-in" });
    }
    let checked = check.output().unwrap();
    let told = String::from_utf8_lossy(&checked.stderr);
    // Names are looked up last, once the plan is good; the samples' servers do not exist.
    assert!(checked.status.success() || told.contains("can not be found"), "{name}: {told}");
}

/// A shop with a token against forged requests, which each session gets anew, and a session cookie.
fn shop() -> Upstream {
    let sessions = AtomicUsize::new(0);
    let tokens: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());
    let answer = move |request: &Request| {
        let line = request.head.line.rsplit_once(' ').map_or("", |(line, _)| line).to_owned();
        let body = String::from_utf8_lossy(&request.body.bytes).into_owned();
        let cookie = request.head.header("cookie").unwrap_or_default().to_owned();
        let session = cookie.split("sid=").nth(1).and_then(|rest| rest.split(';').next()).unwrap_or_default();
        let known =
            tokens.lock().unwrap().iter().find(|(sid, _)| sid == session).map(|(_, csrf)| csrf.clone());
        match (&*line, known) {
            ("GET /login", _) => {
                let n = sessions.fetch_add(1, Ordering::Relaxed);
                let (sid, csrf) = (format!("s{n:07x}a9"), format!("c0de{n:08x}f00d"));
                tokens.lock().unwrap().push((sid.clone(), csrf.clone()));
                let page = format!(
                    "<form>\n<input name=\"q\" value=\"\">\n<input type=\"hidden\" name=\"csrf\" value=\"{csrf}\">\n</form>"
                );
                format!(
                    "HTTP/1.1 200 OK\r\nSet-Cookie: sid={sid}; Path=/\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n{page}",
                    page.len()
                )
            }
            ("POST /login", Some(csrf))
                if body.contains(&format!("csrf={csrf}")) && body.contains("password=s3cret%21pass") =>
            {
                let page = format!("{{\"order\":{{\"id\":\"ord_{csrf}\"}}}}");
                format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{page}",
                    page.len()
                )
            }
            (line, Some(csrf)) if line == format!("GET /orders/ord_{csrf}?full=1") => {
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned()
            }
            _ => "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_owned(),
        }
    };
    Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            if conn.try_send(answer(&request)).is_err() {
                return;
            }
        }
    })
}

/// An entry of a HAR file, from what was sent and answered.
fn entry(
    at: usize,
    server: &str,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &str,
    answer: &Response,
) -> Value {
    let list = |pairs: Vec<(String, String)>| -> Vec<Value> {
        pairs.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect()
    };
    let sent = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let got = ["set-cookie", "content-type"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), answer.head.header(name)?.to_owned())));
    let mut request = json!({ "method": method, "url": format!("{server}{path}"), "headers": list(sent) });
    if !body.is_empty() {
        request["postData"] = json!({ "mimeType": "application/x-www-form-urlencoded", "text": body });
    }
    json!({
        "startedDateTime": format!("2026-03-02T10:00:0{at}.000Z"),
        "time": 900,
        "pageref": format!("page_{at}"),
        "request": request,
        "response": {
            "status": answer.status,
            "headers": list(got.collect()),
            "content": {
                "mimeType": answer.head.header("content-type").unwrap_or_default(),
                "text": String::from_utf8_lossy(&answer.body.bytes),
            },
        },
    })
}

#[test]
fn a_recorded_login_runs_with_new_tokens() {
    let shop = shop();
    let server = format!("http://{}", shop.address());
    let mut client = Client::connect(shop.address());
    let login = client.get("/login");
    login.expect_status(200);
    let sid = login.head.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let csrf = login.text().split("value=\"c0de").nth(1).map(|rest| format!("c0de{}", &rest[..12])).unwrap();
    let body = format!("csrf={csrf}&user=ann&password=s3cret%21pass");
    let type_of = "application/x-www-form-urlencoded";
    let sent = client.ask(format!(
        "POST /login HTTP/1.1\r\nHost: a\r\nCookie: {sid}\r\nContent-Type: {type_of}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    sent.expect_status(200);
    let path = format!("/orders/ord_{csrf}?full=1");
    let order = client.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\nCookie: {sid}\r\n\r\n"));
    order.expect_status(200);
    let har = json!({ "log": { "version": "1.2", "entries": [
        entry(0, &server, "GET", "/login", &[], "", &login),
        entry(1, &server, "POST", "/login", &[("Cookie", &sid), ("Content-Type", type_of)], &body, &sent),
        entry(2, &server, "GET", &path, &[("Cookie", &sid)], "", &order),
    ] } });
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("login.har"), har.to_string()).unwrap();
    let args = ["import", "har", "login.har", "-o", "plan.yaml", "--secrets", "plan.env", "--pauses", "none"];
    run_weir(dir.path(), &args).expect_code(0).expect_text("3 same");
    let plan = fs::read_to_string(dir.path().join("plan.yaml")).unwrap();
    assert!(!plan.contains("s3cret") && !plan.contains(&csrf) && !plan.contains(&sid), "{plan}");
    let secrets = dir.path().join("plan.env");
    assert_eq!(fs::metadata(&secrets).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&secrets).unwrap().contains("PASSWORD=\"s3cret!pass\""));
    let load = |password: &str| {
        let mut load = weir_command(dir.path());
        load.args([
            "load",
            "-f",
            "plan.yaml",
            "--set",
            "scenarios.journey.iterations=40",
            "--format",
            "json",
        ]);
        load.args(["--set", "users=4", "-d", "20s", "--threshold", "checks>=100%"]);
        load.env("PASSWORD", password).output().unwrap()
    };
    let finished = load("s3cret!pass");
    let report: Report = serde_json::from_slice(&finished.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&finished.stderr)));
    assert_eq!((report.scenarios[0].started, report.scenarios[0].done), (40, 40), "{:#?}", report.scenarios);
    assert!(report.steps.iter().all(|step| step.checked().1 == 0), "{:#?}", report.steps);
    // Another password fails the dry run, so the checks of the plan are real ones.
    assert!(!load("wrong").status.success());
}

/// A source of each kind for `weir origin`, whose `/echo` answers with what it was sent. `ORIGIN` is its URL, `HOST`
/// and `PORT` the parts of it.
const FOR_ORIGIN: &[(&str, &str)] = &[
    (
        "har",
        r#"{ "log": { "entries": [
            { "request": { "method": "GET", "url": "ORIGIN/echo?a=b%2Fc", "headers": [] },
              "response": { "status": 200, "headers": [], "content": { "mimeType": "application/json", "text": "{}" } } },
            { "request": { "method": "POST", "url": "ORIGIN/upload", "headers": [ { "name": "Content-Type", "value": "text/xml" } ],
                           "postData": { "mimeType": "text/xml", "text": "<a>b</a>" } },
              "response": { "status": 200, "headers": [], "content": {} } } ] } }"#,
    ),
    (
        "openapi",
        r#"{ "openapi": "3.1.0", "servers": [ { "url": "ORIGIN" } ], "paths": {
            "/body/{size}": { "get": { "parameters": [ { "name": "size", "in": "path", "example": "1KiB" } ],
                                       "responses": { "200": {} } } },
            "/echo": { "get": { "parameters": [ { "name": "tags", "in": "query", "example": [ "a b", "c" ] } ],
                                "responses": { "200": {} } } } } }"#,
    ),
    (
        "postman",
        r#"{ "info": { "name": "origin" }, "variable": [ { "key": "path", "value": "a/b" } ], "item": [
            { "name": "echo", "request": { "method": "GET", "url": "ORIGIN/echo?next=/{{path}}" },
              "event": [ { "listen": "test", "script": { "exec": [
                "pm.response.to.have.status(200);",
                "pm.expect(pm.response.json().target).to.eql('/echo?next=/a/b');",
                "pm.environment.set('target', pm.response.json().target);" ] } } ] },
            { "name": "again", "request": { "method": "GET", "url": "ORIGIN{{target}}" } } ] }"#,
    ),
    (
        "k6",
        r#"import http from 'k6/http';
import { check } from 'k6';
export const options = { vus: 2, iterations: 4 };
export default function () {
  const target = http.get('ORIGIN/echo?x=1').json('target');
  const again = http.get(`ORIGIN/echo?n=${encodeURIComponent(target)}&r=${target}`);
  check(again, { 'escaped once': (r) => r.json('target') === '/echo?n=%2Fecho%3Fx%3D1&r=/echo?x=1' });
  const posted = http.post('ORIGIN/echo', JSON.stringify({ target: target }), { headers: { 'Content-Type': 'application/json' } });
  check(posted, { 'as sent': (r) => r.status === 200 && r.body.includes('/echo?x=1') });
}
"#,
    ),
    (
        "jmx",
        r#"<?xml version="1.0"?><jmeterTestPlan><hashTree><TestPlan testname="t"/><hashTree>
<ThreadGroup testname="g"><stringProp name="ThreadGroup.num_threads">1</stringProp><elementProp name="ThreadGroup.main_controller"><stringProp name="LoopController.loops">1</stringProp></elementProp></ThreadGroup><hashTree>
<HTTPSamplerProxy testname="echo"><elementProp name="HTTPsampler.Arguments"><collectionProp name="Arguments.arguments"><elementProp name="a"><boolProp name="HTTPArgument.always_encode">true</boolProp><stringProp name="Argument.value">x/y</stringProp><stringProp name="Argument.name">a</stringProp></elementProp></collectionProp></elementProp>
<stringProp name="HTTPSampler.domain">HOST</stringProp><stringProp name="HTTPSampler.port">PORT</stringProp><stringProp name="HTTPSampler.path">/echo</stringProp><stringProp name="HTTPSampler.method">GET</stringProp></HTTPSamplerProxy><hashTree>
<JSONPathAssertion testname="as sent"><stringProp name="JSON_PATH">$.target</stringProp><stringProp name="EXPECTED_VALUE">/echo?a=x%2Fy</stringProp><boolProp name="JSONVALIDATION">true</boolProp></JSONPathAssertion><hashTree/></hashTree>
</hashTree></hashTree></hashTree></jmeterTestPlan>"#,
    ),
    ("curl", "curl 'ORIGIN/echo?a=b' -H 'x-a: b' --data-raw 'hello'\ncurl -I ORIGIN/body/1KiB\n"),
    (
        "locust-csv",
        "Type,Name,Request Count,Requests/s\nGET,ORIGIN/body/1KiB,10,5\nGET,ORIGIN/echo,5,2\n,Aggregated,15,50\n",
    ),
];

#[test]
fn sources_of_all_kinds_run_against_the_origin() {
    let address = "127.0.0.1:0".parse().unwrap();
    let origin = Origin::start(Options { address, ..Options::default() }).unwrap();
    let (address, port) = (origin.address(), origin.address().port().to_string());
    for (kind, source) in FOR_ORIGIN {
        let dir = tempfile::tempdir().unwrap();
        let source = source.replace("ORIGIN", &format!("http://{address}")).replace("HOST", "127.0.0.1");
        fs::write(dir.path().join("source"), source.replace("PORT", &port)).unwrap();
        let imported = run_weir(dir.path(), &["import", kind, "source", "-o", "plan.yaml"]);
        assert_eq!(imported.code, Some(i32::from(*kind == "postman")), "{kind}: {imported:#?}");
        let plan = fs::read_to_string(dir.path().join("plan.yaml")).unwrap();
        let mut load = weir_command(dir.path());
        // The dry run sends each step once and fails if a check does.
        load.args([
            "load",
            "-f",
            "plan.yaml",
            "-d",
            "300ms",
            "--format",
            "json",
            "--threshold",
            "checks>=100%",
        ]);
        let target = format!("http://{address}");
        let finished = load.env("TARGET", target).output().unwrap();
        let told = String::from_utf8_lossy(&finished.stderr);
        let report: Report = serde_json::from_slice(&finished.stdout)
            .unwrap_or_else(|e| panic!("{kind}: {e}: {told}\n{plan}"));
        assert!(report.steps.iter().all(|step| step.checked().1 == 0), "{kind}: {told}\n{plan}");
        assert!(report.steps.iter().any(|step| step.checked().0 > 0), "{kind}: {told}\n{plan}");
    }
}

#[test]
fn what_weir_load_would_refuse_is_no_step_of_the_plan() {
    let dir = tempfile::tempdir().unwrap();
    let script = "import http from 'k6/http';
export default function () {
  const id = http.get('http://127.0.0.1:1/a').json('id');
  http.get('http://127.0.0.1:1/b', { timeout: 'soon' });
  http.get(`http://127.0.0.1:1/c/${id}`);
}
";
    fs::write(dir.path().join("odd.js"), script).unwrap();
    let imported = run_weir(dir.path(), &["import", "k6", "odd.js", "-o", "plan.yaml"]);
    imported.expect_code(1).expect_text("odd.js:4: step b").expect_text("`weir load` refuses it");
    let plan = fs::read_to_string(dir.path().join("plan.yaml")).unwrap();
    assert!(plan.contains("# - {") && plan.contains("/c/{{id"), "{plan}");
    run_weir(dir.path(), &["load", "--check-file", "-f", "plan.yaml"]).expect_code(0);
    // Nothing is left: nothing is written.
    let script = script
        .replace("  http.get(`http://127.0.0.1:1/c/${id}`);\n", "")
        .replace("/a')", "/a', { timeout: 'x' })");
    fs::write(dir.path().join("none.js"), script).unwrap();
    run_weir(dir.path(), &["import", "k6", "none.js", "-o", "none.yaml"]).expect_code(3);
    assert!(!dir.path().join("none.yaml").exists());
}

#[test]
fn a_command_line_of_curl_becomes_a_plan() {
    let dir = tempfile::tempdir().unwrap();
    let line = [
        "import",
        "curl",
        "--",
        "curl",
        "http://127.0.0.1:1/a?b=c",
        "-H",
        "X-Api-Key: k3y-k3y-k3y",
        "-d",
        "{}",
    ];
    let imported = run_weir(dir.path(), &line);
    imported.expect_code(0).expect_text("x-api-key: \"{{x_api_key}}\"").expect_text("X_API_KEY");
    assert!(!imported.stdout.contains("k3y-k3y") && !imported.stderr.contains("k3y-k3y"), "{imported:#?}");
}

#[test]
fn mistakes_of_the_command_line_are_told() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.har"), "{").unwrap();
    fs::write(dir.path().join("there.yaml"), "").unwrap();
    for (args, code, text) in [
        (&["import", "har", "a.har"][..], 3, "a.har:1"),
        (&["import", "har", "none.har"], 3, "no such file"),
        (&["import", "har", "a.har", "b.har"], 2, "takes one file"),
        (&["import", "har", "a.har", "--tag", "x"], 2, "--tag is an option of `weir import openapi`"),
        (&["import", "har", "a.har", "--prove"], 2, "--prove applies to gateway configs"),
        (&["import", "har", "a.har", "-o", "there.yaml"], 2, "--force"),
        (&["import", "har", "a.har", "--target", "x"], 2, "expected a server"),
        (&["import", "nginx", "a.har"], 2, "-o DIR"),
        (&["import", "nginx", "a.har", "-o", "out", "--static"], 2, "applies to load plans"),
    ] {
        run_weir(dir.path(), args).expect_code(code).expect_text(text);
    }
}
