//! Plants secrets in every place of a config that may hold one, and searches for them in every answer to each role.

use super::*;
use std::collections::BTreeSet;

/// The planted secret, followed by the name of its place. Long enough for every place with a minimum length.
const PLANTED: &str = "zq9planted7f3e-0123456789abcdef0123456789abcdef";

const ROLES: [&str; 4] = ["read", "operate", "write", "admin"];

/// Credentials in files: no role of the API may change them.
fn by_hand(folder: &Path) -> String {
    let (folder, p) = (folder.display(), PLANTED);
    let tokens: Vec<String> = ROLES
        .iter()
        .map(|role| format!("{{ name: {role}, role: {role}, token: \"{}\" }}", hash(role)))
        .collect();
    format!(
        r#"listeners: {{ web: {{ address: 127.0.0.1:0 }} }}
upstreams:
  up:
    endpoints: [ 127.0.0.1:9 ]
    sticky: {{ key: {p}-sticky }}
    health: {{ probe: {{ path: "/healthz?token={p}-probe", body: {p}-body, interval: 1h }} }}
  hashed:
    endpoints: [ 127.0.0.1:9 ]
    balancer: {{ hash: {{ by: '= request.headers["x-key"] == "{p}-hash" ? "a" : client.ip' }} }}
  listed:
    discover: {{ consul: {{ servers: [ "http://127.0.0.1:9" ], service: s, token: {p}-consul }} }}
stores: {{ shared: {{ redis: "redis://user:{p}-redis@127.0.0.1:9/0" }} }}
tracing: {{ otlp: "http://127.0.0.1:9/v1?key={p}-otlp", headers: {{ x-key: {p}-tracing }}, share: 1% }}
maps: {{ keys: {{ of: 'request.headers["x-key"]', values: {{ known: {p}-map-value }}, default: none }} }}
consumers: {{ shop: {{ plan: gold, key_auth: [ {p}-key ] }} }}
plans: {{ gold: {{ filters: [ {{ headers: {{ request: {{ set: {{ authorization: {p}-plan }} }} }} }} ] }} }}
filters:
  - headers: {{ response: {{ set: {{ x-edge: {p}-edge }} }} }}
routes:
  hand:
    match: {{ path: "/hand/*", headers: {{ x-env: {p}-header }}, query: {{ v: {p}-query }} }}
    filters:
      - maintenance: {{ switch: works, allow_headers: {{ x-staff: {p}-staff }} }}
      - any: [ {{ jwt: {{ secret: {p}-jwt, issuers: [ i ], audiences: [ a ] }} }}, key_auth ]
      - headers: {{ request: {{ set: {{ authorization: "Bearer {p}-set" }}, add: {{ cookie: {p}-add }} }} }}
      - rewrite: {{ query: {{ set: {{ token: {p}-rewrite }}, add: {{ more: {p}-more }} }} }}
      - sign: {{ key: {p}-sign, key_id: k, algorithm: hmac-sha256 }}
    upstream: up
  near:
    match: {{ path: "/near/*", headers: {{ x-env: "~{p}-regex" }} }}
    respond: {{ status: 200, headers: {{ x-secret: {p}-respond }}, mix: [ {{ share: 10%, status: 500, headers: {{ x: {p}-mix }} }} ] }}
  computed:
    match: {{ path: "/computed/*", when: 'request.headers["x-key"] != "{p}-match-when"' }}
    filters:
      - rate_limit: {{ requests: 1, per: 1s, by: '= request.headers["x-key"] == "{p}-by" ? "a" : client.ip' }}
      - concurrency: {{ requests: 9, by: 'a{{= request.headers["x-key"] == "{p}-concurrency" ? 1 : 2 }}' }}
      - acl: {{ is: 'request.headers["x-key"] != "{p}-is"' }}
      - when:
          is: 'request.headers["x-key"] == "{p}-when" || maps.keys == "{p}-of-map"'
          filters: [ {{ redirect: {{ to: '/{{= request.headers["x-key"] == "{p}-to" ? 1 : 2 }}' }} }} ]
          otherwise: [ {{ rewrite: {{ path: '/{{= request.headers["x-key"] == "{p}-path" ? 1 : 2 }}' }} }} ]
    upstream: hashed
admin:
  address: 127.0.0.1:0
  token: {p}-token
  tokens: [ {tokens} ]
  writes: {folder}/managed.yaml
  state: {folder}/state
watch: false
"#,
        tokens = tokens.join(", ")
    )
}

/// A request by a caller with the role `write`.
fn by_api(version: u32) -> String {
    format!(
        "{{\"match\": {{\"path\": \"/api/*\", \"headers\": {{\"x-env\": \"{PLANTED}-own-match\"}}}}, \"respond\": {{\"status\": 200}}, \
         \"filters\": [{{\"headers\": {{\"request\": {{\"set\": {{\"authorization\": \"Bearer {PLANTED}-own-{version}\"}}}}}}}}]}}"
    )
}

fn ask(api: &Api, role: &str, line: &str, body: &str) -> Response {
    let media = if body.is_empty() { "" } else { "Content-Type: application/yaml\r\n" };
    api.ask_raw(line, &format!("Authorization: Bearer {role}\r\n{media}{ANY}"), body)
}

fn start(folder: &Path) -> Api {
    let api = Api::of(Weir::start(&by_hand(folder)), "admin");
    let put = |line: &str, fields: &str, body: &str| {
        api.ask_raw(line, &format!("Authorization: Bearer write\r\n{fields}"), body)
    };
    put("PUT /api/v1/config/routes/own", NEW, &by_api(1)).expect_status(201);
    put("PUT /api/v1/config/routes/own", ANY, &by_api(2)).expect_status(200);
    let consumer = format!("{{\"key_auth\": [\"{PLANTED}-own-key\"]}}");
    put("PUT /api/v1/config/consumers/own", NEW, &consumer).expect_status(201);
    api
}

fn run_command(dir: &Path) -> std::process::Command {
    let mut command = weir_command(dir);
    command.args(["run", "-c", "weir.yaml"]);
    command
}

/// Every request that callers may make, and those of the console.
fn questions(api: &Api) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut get = |path: &str| all.push((format!("GET {path}"), String::new()));
    for (method, path) in api.described() {
        if method == "GET" && !path.contains('{') {
            get(&path);
        }
    }
    for (section, names) in [
        ("routes", &["computed", "hand", "near", "own"][..]),
        ("consumers", &["shop", "own"]),
        ("plans", &["gold"]),
        ("upstreams", &["up", "hashed", "listed"]),
        ("listeners", &["web"]),
    ] {
        for name in names {
            get(&format!("/api/v1/config/{section}/{name}"));
            get(&format!("/config/{section}/{name}"));
        }
    }
    for path in [
        "/api/v1/config?origin",
        "/api/v1/revisions/1",
        "/api/v1/revisions/2",
        "/api/v1/revisions/3",
        "/api/v1/revisions/1..3",
        "/api/v1/revisions/3..1",
        "/api/v1/revisions/2..running",
        "/api/v1/revisions/disk..1",
        "/bundle",
        "/status",
        "/metrics",
        "/",
        "/routes",
        "/routes?method=GET&url=http%3A%2F%2Fx%2Fapi%2Fa",
        "/routes?method=GET&url=http%3A%2F%2Fx%2Fcomputed%2Fa",
        "/upstreams",
        "/failures",
        "/config",
        "/config/edit",
        "/history",
        "/history/1..3",
        "/certificates",
        "/consumers",
        "/fleet",
    ] {
        get(path);
    }
    for (path, headers) in [
        ("/hand/a?v=1", "{}"),
        ("/near/a", "{\"x-env\": \"another\"}"),
        ("/api/a", "{}"),
        ("/computed/a", "{\"x-key\": \"another\"}"),
        (&format!("/hand/a?v={PLANTED}-query"), &format!("{{\"x-env\": \"{PLANTED}-header\"}}")),
    ] as [(&str, &str); 5]
    {
        let body = format!("{{\"method\": \"GET\", \"url\": \"http://x{path}\", \"headers\": {headers}}}");
        all.push(("POST /api/v1/config:explain".to_owned(), body));
    }
    all.push(("POST /reload".to_owned(), String::new()));
    all.push(("POST /api/v1/config:check".to_owned(), String::new()));
    all
}

/// The secrets in a text, by the name after them, without those in the request itself.
fn told(text: &str, question: &str) -> BTreeSet<String> {
    let names = |text: &str| -> BTreeSet<String> {
        let ends = |c: char| !c.is_ascii_alphanumeric() && c != '-';
        let pieces = text.split(PLANTED).skip(1);
        pieces.map(|rest| rest.split(ends).next().unwrap_or_default().to_owned()).collect()
    };
    names(text).difference(&names(question)).cloned().collect()
}

#[test]
fn nobody_is_told_a_secret_that_they_may_not_write() {
    let folder = TempDir::new().unwrap();
    let api = start(folder.path());
    // Failures and warnings at startup are reported too.
    for path in ["/hand/a", "/near/a", "/api/a", "/computed/a", "/none"] {
        api.weir.client().ask(format!("GET {path} HTTP/1.1\r\nHost: weir.test\r\nX-Env: x\r\n\r\n"));
    }
    let own = |name: &String| name.starts_with("-own");
    let mut seen = BTreeSet::new();
    for role in ROLES {
        for (line, body) in questions(&api) {
            let answer = ask(&api, role, &line, &body);
            let mut found = told(&answer.text(), &format!("{line} {body}"));
            if line == "GET /bundle" {
                assert_eq!(answer.status, if role == "admin" { 409 } else { 403 }, "{role}");
            }
            if matches!(role, "write" | "admin") {
                seen.extend(found.iter().filter(|name| own(name)).cloned());
                found.retain(|name| !own(name));
            }
            assert!(found.is_empty(), "{role} is told {found:?} by {line}: {}", answer.text());
        }
    }
    let own: Vec<&str> = seen.iter().map(String::as_str).collect();
    assert_eq!(own, ["-own-1", "-own-2", "-own-key", "-own-match"], "who may write sees what was written");
    let log = format!("{}{}", api.weir.stderr(), api.weir.stdout());
    assert!(told(&log, "").is_empty(), "{log}");
}

/// A mistake is shown to its author, but neither to others nor in the log.
#[test]
fn a_mistake_tells_no_secret() {
    let folder = TempDir::new().unwrap();
    let api = start(folder.path());
    let good = by_hand(folder.path());
    for (from, to) in [
        ("sticky: {", "stikcy: {"),
        ("upstream: up\n", "upstream: nope\n"),
        ("x-env: \"~", "x-env: \"~("),
        ("authorization: \"Bearer ", "authorization: \"Bearer {oops "),
        ("interval: 1h", "interval: 1"),
        ("share: 1%", "share: one"),
        ("    sticky: {", "\tsticky: {"),
        ("token: zq9", "token: [zq9"),
        ("x-edge: zq9", "x-edge: zq9: {zq9"),
        ("near:\n", "near: &a\n    <<: *zq9planted\n"),
        // A secret in place of a name, a key, or a value of another type.
        ("upstream: up\n", &format!("upstream: {PLANTED}-name\n")),
        ("upstream: up\n", &format!("upstream: {{ {PLANTED}-share: 1 }}\n")),
        ("upstream: up\n", &format!("upstream: up\n    {PLANTED}-unknown: x\n")),
        ("plan: gold", &format!("plan: {PLANTED}-plan-name")),
        ("filters:\n  - headers", &format!("filters:\n  - {PLANTED}-filter\n  - headers")),
        ("filters:\n  - headers", &format!("filters:\n  - {PLANTED}-filter: {{ a: b }}\n  - headers")),
        ("filters:\n  - headers", &format!("filters:\n  - acl: {{ allow: [ {PLANTED}-acl ] }}\n  - headers")),
        ("filters:\n  - headers", &format!("filters:\n  - ip: {{ allow: [ {PLANTED}-ip ] }}\n  - headers")),
        ("set: { x-edge: ", &format!("set: {{ x-edge: {{ {PLANTED}-key: x }}, x: ")),
        ("set: { x-edge: ", &format!("set: {{ \"{PLANTED} {{name\": x, x-edge: ")),
        ("/0\" }", &format!("/{PLANTED}-database\" }}")),
        ("127.0.0.1:9/0", &format!("127.0.0.1:{PLANTED}-port/0")),
        ("redis://user:", &format!("redis://{PLANTED}-user:")),
        ("redis: \"redis://user:", &format!("redis: \"{PLANTED}-scheme://user:")),
        ("[ 127.0.0.1:9 ]", &format!("[ \"{PLANTED}-endpoint\" ]")),
        ("[ 127.0.0.1:9 ]", &format!("[ \"${{NONE:-{PLANTED}-default}}\" ]")),
        ("watch: false", &format!("watch: {PLANTED}-boolean")),
        ("watch: false", &format!("watch: false\n{PLANTED}-top: x")),
        ("watch: false", &format!("watch: false\nwatch: {PLANTED}-twice")),
        ("watch: false", &format!("watch: false\n\"{PLANTED}-twice\": 1\n\"{PLANTED}-twice\": 2")),
        ("watch: false", &format!("watch: false # {PLANTED}-comment\n\t- x")),
    ] as [(&str, &str); 31]
    {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        api.weir.write_config(&bad);
        for role in ["read", "operate", "write"] {
            for line in [
                "POST /reload",
                "GET /status",
                "GET /api/v1/drift",
                "GET /",
                "GET /config",
                "GET /history",
                "GET /history/running..disk",
                "GET /api/v1/revisions/running..disk",
                "GET /api/v1/managed",
                "POST /api/v1/config:check",
                "GET /metrics",
            ] {
                let answer = ask(&api, role, line, "");
                let mut found = told(&answer.text(), "");
                found.retain(|name| role != "write" || !name.starts_with("-own"));
                assert!(found.is_empty(), "{to}: {role} by {line}: {}", answer.text());
            }
        }
        let log = api.weir.stderr();
        assert!(log.contains("reload refused") && told(&log, "").is_empty(), "{to}: {log}");
    }
    api.weir.write_config(&good);
    let wrong = by_api(3).replace("Bearer ", "Bearer {oops} ").replace("/api/*", "/api/{");
    let told_back = ask(&api, "write", "PUT /api/v1/config/routes/own", &wrong).expect_status(422).text();
    assert!(told_back.contains("{oops}"), "who wrote it is told what is wrong: {told_back}");
    assert!(told(&api.weir.stderr(), "").is_empty(), "{}", api.weir.stderr());
}

/// A history written by an earlier version has the unmasked text: it is masked when shown.
#[test]
fn revisions_on_the_disk_are_masked_when_they_are_shown() {
    let folder = TempDir::new().unwrap();
    let config = by_hand(folder.path());
    drop(start(folder.path()));
    let kept = fs::read_to_string(folder.path().join("state/revisions/00000002")).unwrap();
    assert!(kept.contains(&format!("{PLANTED}-set")) && kept.contains(&format!("{PLANTED}-own-1")));
    let api = Api::of(Weir::start(&config), "admin");
    for path in
        ["/api/v1/revisions/2", "/api/v1/revisions/1..2", "/api/v1/revisions/2..running", "/history/2..3"]
    {
        let answer = ask(&api, "read", &format!("GET {path}"), "");
        assert!(answer.status == 200 && told(&answer.text(), "").is_empty(), "{path}: {}", answer.text());
    }
}

/// Only `admin` may read a bundle, and even then its holder cannot call the gateways that run it.
#[test]
fn a_bundle_holds_no_admin_token() {
    for token in ["hunter2", "\"${file:token}\""] {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("token"), "hunter2\n").unwrap();
        let tokens: Vec<String> = ROLES
            .iter()
            .map(|role| format!("{{ name: {role}, role: {role}, token: \"{}\" }}", hash(role)))
            .collect();
        let main = format!(
            "{WEB}\nroutes: {{ a: {{ match: {{ path: /a }}, respond: {{ body: a }} }} }}\n\
             admin:\n  address: 127.0.0.1:0\n  token: {token} # ours\n  tokens: [ {} ]\n",
            tokens.join(", ")
        );
        let first = Weir::start_by(&main, |dir| {
            fs::copy(folder.path().join("token"), dir.join("token")).unwrap();
            run_command(dir)
        });
        let bundle = |role: &str| {
            let host = first.admin();
            Client::connect(&host).ask(request(
                &host,
                "GET /bundle",
                &format!("Authorization: Bearer {role}\r\n"),
                "",
            ))
        };
        for role in ["read", "operate", "write"] {
            bundle(role).expect_status(403);
        }
        let packed = bundle("admin").expect_status(200).body.bytes.clone();
        let text = String::from_utf8_lossy(&weir_testkit::decoded("gzip", &packed)).into_owned();
        assert!(text.contains(&hash("hunter2")) && !text.contains("hunter2"), "{text}");
        // The token itself is accepted by a gateway that runs the bundle.
        let second = Weir::start(&main.replace(token, &hash("hunter2")));
        let status = |token: &str| {
            let fields = format!("Authorization: Bearer {token}\r\n");
            Client::connect(second.admin()).ask(request(&second.admin(), "GET /status", &fields, "")).status
        };
        assert_eq!(status("hunter2"), 200);
        assert_eq!(status(&hash("hunter2")), 401, "the hash is not a token");
    }
}
