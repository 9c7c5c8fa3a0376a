//! Plans and what is told about them. Each mistake stands beside the text that has it.

mod mistakes;

use super::*;
use crate::files::Disk;
use crate::plan::{Repeat, Request, Step, Target, ThresholdOf};
use fastrand::Rng;
use weir_h1::{FieldName, Fields};

fn read_text(text: &str) -> Result<Plan, Mistakes> {
    let source = Source::text("plan.yaml", text).with_variable("TENANT", "7").with_variable("BAD", "x\r\ny");
    read(&source, &Disk, &[])
}

#[track_caller]
fn plan(text: &str) -> Plan {
    read_text(text).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// Place, path, message and hint of each mistake.
fn mistakes(text: &str) -> Vec<String> {
    let Err(found) = read_text(text) else { return Vec::new() };
    let line = |found: &&Diagnostic| {
        let place = found.place.as_ref().map_or((0, 0), |place| (place.line, place.column));
        let hint = found.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
        format!("{}:{} {}: {}{hint}", place.0, place.1, found.path, found.message)
    };
    found.sorted().iter().map(line).collect()
}

/// A plan with these steps in its one scenario, each on a line of its own from line 4 on.
fn with_steps(steps: &str) -> String {
    format!("target: http://a:80\nscenarios:\n  s: {{ steps: [\n{steps}\n] }}\n")
}

fn requests(steps: &[Step]) -> Vec<&Request> {
    let mut all = Vec::new();
    for step in steps {
        match step {
            Step::Request(request) => all.push(&**request),
            Step::If { then, otherwise, .. } => {
                all.extend(requests(then));
                all.extend(requests(otherwise));
            }
            Step::Repeat { steps, .. } => all.extend(requests(steps)),
            Step::Parallel { steps, .. } => all.extend(steps),
            Step::Exec(_) | Step::Pause(_) => {}
        }
    }
    all
}

/// The example of the specification, without its shapes.
const JOURNEY: &str = r#"
target: "${TARGET:-http://127.0.0.1:8080}"
defaults: { headers: { accept: application/json }, timeout: 5s, redirects: 2, checks: [ status=2xx, size<1MiB ] }
data:
  users: { rows: [ { name: "ann b", password: 'p"w' }, { name: bob, password: x } ], pick: once, at_end: stop }
  items: { rows: [ { sku: a }, { sku: b } ], pick: random }
values: { tenant: "${TENANT:-0}" }
setup:
  - { name: token, post: /oauth/token, form: { grant_type: "client & co" }, keep: { token: "json:$.access_token" } }
users: 5
scenarios:
  browse:
    weight: 7
    start:
      - name: login
        post: /login
        json: { user: "{{users.name}}", password: "{{users.password}}", n: "{{user|int}}", "t {{tenant}}": [ true, null, 1.5 ] }
        keep: { csrf: "body~csrf value=\"([^\"]+)\"" }
    steps:
      - name: list
        get: /items?tenant={{tenant}}&sku={{items.sku}}
        headers: { authorization: "Bearer {{token}}", x-csrf: "{{csrf}}", Accept: "*/*" }
        checks: [ "json:$.items", "header:content-type~json" ]
        keep: { id: "json:$.items[*].id|first", etag: "header:etag|optional", next: "json:$.next", all: "json:$.items" }
      - pause: exp(2s)
      - if: "etag"
        then: [ { name: item, get: "/items/{{id}}", headers: { if-none-match: "{{etag}}" }, checks: [ "status=200,304" ] } ]
        else: [ { name: fresh, get: "{{next}}" } ]
      - repeat: 3
        steps: [ { name: more, get: "/items?page={{index}}", body: "{{all|count}} {{all|json}}" } ]
      - while: 'id != "" && iteration < 5'
        max: 2
        steps: [ { name: again, get: /again } ]
      - parallel: 6
        steps: [ { name: css, get: "https://cdn:8443/a.css" }, { name: js, get: /a.js } ]
    end: [ { name: logout, post: /logout } ]
  buy: { weight: 3, steps: [ { name: list, get: /buy } ] }
teardown: [ { name: revoke, delete: "/oauth/{{token}}" } ]
thresholds: [ "p99<1s", "browse.list: p99<200ms", "item: errors<1%", "browse: iterations>100", "http_req_duration: p(95)<200" ]
"#;

fn rendered(request: &Request, scope: &crate::Scope) -> (String, Vec<String>, String) {
    let mut random = Rng::with_seed(1);
    let mut write = |template: &crate::Template| {
        let mut out = Vec::new();
        template.write(scope, &mut out, &mut random).map_err(|failure| failure.to_string()).map(|()| out)
    };
    let text = |written: Result<Vec<u8>, String>| match written {
        Ok(bytes) => String::from_utf8(bytes).unwrap(),
        Err(why) => format!("!{why}"),
    };
    let url = match &request.target {
        Target::Any(url) => text(write(url)),
        Target::At { origin, path } => format!("{origin} {}", text(write(path))),
    };
    let fields =
        request.headers.iter().map(|(name, value)| format!("{name}: {}", text(write(value)))).collect();
    let body = request.body.as_ref().map(|body| text(write(body))).unwrap_or_default();
    (format!("{} {url}", request.method), fields, body)
}

fn answer_to(request: &Request, scope: &mut crate::Scope, body: &str, fields: &[(&str, &str)]) {
    let mut all = Fields::default();
    for (name, value) in fields {
        all.append(&FieldName::new(name).unwrap(), value.as_bytes()).unwrap();
    }
    let answer = crate::Answer::new(200, &all, body.as_bytes());
    for keep in &request.keeps {
        keep.take(&answer, scope, &mut Rng::with_seed(1)).unwrap();
    }
}

#[test]
fn a_journey_is_read_and_walked() {
    let plan = plan(JOURNEY);
    let origins: Vec<String> = plan.origins.iter().map(ToString::to_string).collect();
    assert_eq!(origins, ["http://127.0.0.1:8080", "https://cdn:8443"]);
    let mut scope = plan.scope_of_setup();
    let token = requests(&plan.setup)[0];
    let form =
        ["accept: application/json", "content-type: application/x-www-form-urlencoded"].map(str::to_owned);
    let want = ("POST 0 /oauth/token".to_owned(), form.to_vec(), "grant_type=client+%26+co".to_owned());
    assert_eq!(rendered(token, &scope), want);
    answer_to(token, &mut scope, r#"{"access_token":"t/1"}"#, &[]);
    let setup = scope.into_setup();

    let browse = &plan.scenarios[0];
    let draws: Vec<_> = browse.data.iter().map(|used| (used.set, used.draw)).collect();
    assert_eq!(draws, [(0, Draw::User), (1, Draw::Iteration)]);
    let mut scope = plan.scope(browse, Arc::clone(&setup), 3);
    scope.set_row(0, 0);
    scope.set_row(1, 1);
    let login = requests(&browse.start)[0];
    let (line, fields, body) = rendered(login, &scope);
    assert_eq!((&*line, &*fields[1]), ("POST 0 /login", "content-type: application/json"));
    assert_eq!(body, r#"{"user":"ann b","password":"p\"w","n":3,"t 7":[true,null,1.5]}"#);
    answer_to(login, &mut scope, r#"<input csrf value="c&1">"#, &[]);

    scope.begin_iteration(0);
    let steps = requests(&browse.steps);
    let fields = ["authorization: Bearer t/1", "x-csrf: c&1", "accept: */*"].map(str::to_owned).to_vec();
    assert_eq!(rendered(steps[0], &scope), ("GET 0 /items?tenant=7&sku=b".to_owned(), fields, String::new()));
    let checks: Vec<&str> = steps[0].checks.iter().map(|check| &*check.text).collect();
    assert_eq!(checks, ["json:$.items", "header:content-type~json", "status=2xx", "size<1MiB"]);
    assert_eq!(
        steps[1].checks.iter().map(|check| &*check.text).collect::<Vec<_>>(),
        ["status=200,304", "size<1MiB"]
    );
    assert_eq!(rendered(steps[1], &scope).0, "GET 0 !`{{id}}` has no value: no step that ran has kept one");
    let Step::If { condition, .. } = &browse.steps[2] else { panic!() };
    assert!(!condition.holds(&scope));
    let body = r#"{"items":[{"id":"x y"},{"id":2}],"next":"/p?a=b"}"#;
    answer_to(steps[0], &mut scope, body, &[("etag", "v1")]);
    assert!(condition.holds(&scope));
    assert_eq!(rendered(steps[1], &scope).0, "GET 0 /items/x%20y");
    assert_eq!(rendered(steps[2], &scope).0, "GET /p?a=b");
    scope.enter_repeat();
    scope.next_round();
    let (line, _, body) = rendered(steps[3], &scope);
    assert_eq!((&*line, &*body), ("GET 0 /items?page=1", r#"2 [{"id":"x y"},{"id":2}]"#));
    scope.leave_repeat();
    let Step::Repeat { count: Repeat::While { condition, max: 2 }, .. } = &browse.steps[4] else { panic!() };
    assert!(condition.holds(&scope));
    assert_eq!(rendered(steps[5], &scope).0, "GET 1 /a.css");

    // What an iteration kept is forgotten; the user and `setup` keep theirs.
    scope.begin_iteration(5);
    assert!(!condition.holds(&scope));
    assert!(rendered(steps[1], &scope).0.contains("no value"));
    assert_eq!(rendered(steps[0], &scope).1[1], "x-csrf: c&1");
    let scope = plan.scope_of_teardown(setup);
    assert_eq!(rendered(requests(&plan.teardown)[0], &scope).0, "DELETE 0 /oauth/t%2F1");
    let of: Vec<_> = plan.thresholds.iter().map(|threshold| (threshold.of, &*threshold.condition)).collect();
    assert_eq!(of[0], (ThresholdOf::Run, "p99<1s"));
    assert!(
        matches!(of[1], (ThresholdOf::Step(id), "p99<200ms") if plan.step(id).unwrap().path == "scenarios.browse.steps[0]")
    );
    assert_eq!(of[3], (ThresholdOf::Scenario(0), "iterations>100"));
    assert_eq!(of[4], (ThresholdOf::Run, "http_req_duration: p(95)<200"));
    let (least, most) = plan.bytes_per_user(browse);
    assert!(least < 1024 && most > 5 * 64 * 1024 && most < 1024 * 1024, "{least} {most}");
}

#[test]
fn placeholders_write_what_they_say() {
    let text = with_steps(
        r#"  { name: a, post: /, headers: { x: "{{now}} {{now:ms}} {{now:rfc3339}}" },
    body: "{{hmac_sha256:key:The quick brown fox jumps over the lazy dog}} {{base64:{{user}}:p|w}} {{random:5:5}} {{counter}} {{{{x}}" }"#,
    );
    let found = mistakes(&text);
    assert_eq!(
        found,
        [
            "5:96 scenarios.s.steps[0].body: `w` is no filter; there are first, last, random, count, optional, default:X, int and json"
        ]
    );
    let plan = plan(&text.replace("p|w", "pw"));
    let mut scope = plan.scope(&plan.scenarios[0], Arc::new([]), 9);
    scope.set_now(Duration::from_millis(1_709_164_799_250));
    scope.set_counter(12);
    let (_, fields, body) = rendered(requests(&plan.scenarios[0].steps)[0], &scope);
    assert_eq!(fields, ["x: 1709164799 1709164799250 2024-02-28T23:59:59Z"]);
    let hmac = "f7bc83f430538424b13298e6aa6fb143ef4d59a14946175997479dbc2d1a3cd8";
    assert_eq!(body, format!("{hmac} OTpwdw== 5 12 {{{{x}}}}"));
}

#[test]
fn a_value_cannot_change_what_is_around_it() {
    let text = with_steps(
        r#"  { name: a, get: /, keep: { v: "body~(?s)(.*)" } },
  { name: url, get: "/x/{{v}}?y={{v}}" },
  { name: json, post: /, json: { k: "{{v}}" } },
  { name: form, post: /, form: { k: "{{v}}" } },
  { name: field, get: /, headers: { x: "{{v}}" } },
  { name: whole, get: "{{v}}" },
  { name: raw, get: "/x{{v|raw}}" },
  { name: parts, post: /, multipart: [ { name: 'a"b', value: "{{v}}" }, { name: c, value: d, filename: f.txt, type: text/plain } ] }"#,
    );
    let plan = plan(&text);
    let mut scope = plan.scope(&plan.scenarios[0], Arc::new([]), 0);
    let steps = requests(&plan.scenarios[0].steps);
    answer_to(steps[0], &mut scope, "a b&\"\r\n/?#é", &[]);
    assert_eq!(
        rendered(steps[1], &scope).0,
        "GET 0 /x/a%20b%26%22%0D%0A%2F%3F%23%C3%A9?y=a%20b%26%22%0D%0A%2F%3F%23%C3%A9"
    );
    assert_eq!(rendered(steps[2], &scope).2, r#"{"k":"a b&\"\r\n/?#é"}"#);
    assert_eq!(rendered(steps[3], &scope).2, "k=a+b%26%22%0D%0A%2F%3F%23%C3%A9");
    assert_eq!(rendered(steps[4], &scope).1, ["x: !a header value would hold a line break or NUL"]);
    assert!(rendered(steps[5], &scope).0.contains("!the URL would hold"));
    // As it is, but it cannot end the URL or begin a fragment.
    assert_eq!(rendered(steps[6], &scope).0, "GET 0 /xa%20b&%22%0D%0A/?%23%C3%A9");
    let (_, fields, body) = rendered(steps[7], &scope);
    assert_eq!(fields, ["content-type: multipart/form-data; boundary=weir-plan-boundary-00000000"]);
    let want = "--B\r\nContent-Disposition: form-data; name=\"a%22b\"\r\n\r\na b&\"\r\n/?#é\r\n\
                --B\r\nContent-Disposition: form-data; name=\"c\"; filename=\"f.txt\"\r\nContent-Type: text/plain\r\n\r\nd\r\n--B--\r\n";
    assert_eq!(body, want.replace('B', "weir-plan-boundary-00000000"));
    answer_to(steps[0], &mut scope, "x\r\n--weir-plan-boundary-00000000\r\n", &[]);
    assert!(rendered(steps[7], &scope).2.contains("holds the boundary"));
}

#[test]
fn names_are_found_from_the_inside_out() {
    let plan = plan(
        r#"
target: http://a:80
setup: [ { name: s, get: /, keep: { v: "body~(.*)", only: "body~(.*)" } } ]
scenarios:
  s:
    start: [ { name: u, get: "/{{v}}", keep: { v: "body~(.*)" } } ]
    steps:
      - { name: before, get: "/{{v}}{{only}}" }
      - { name: own, get: /, keep: { v: "body~(.*)" } }
      - { name: after, get: "/{{v}}" }
    end: [ { name: end, get: "/{{v}}" } ]
"#,
    );
    let mut setup = plan.scope_of_setup();
    answer_to(requests(&plan.setup)[0], &mut setup, "setup", &[]);
    let scenario = &plan.scenarios[0];
    let mut scope = plan.scope(scenario, setup.into_setup(), 0);
    let line = |request: &Request, scope: &crate::Scope| rendered(request, scope).0.replace("GET 0 ", "");
    let steps = requests(&scenario.steps);
    assert_eq!(line(requests(&scenario.start)[0], &scope), "/setup");
    answer_to(requests(&scenario.start)[0], &mut scope, "user", &[]);
    assert_eq!(line(steps[0], &scope), "/usersetup");
    answer_to(steps[1], &mut scope, "iteration", &[]);
    assert_eq!(line(steps[2], &scope), "/iteration");
    scope.begin_iteration(1);
    assert_eq!(line(steps[2], &scope), "/user");
    assert_eq!(line(requests(&scenario.end)[0], &scope), "/user");
}

#[test]
fn a_loop_knows_what_its_last_round_kept() {
    let plan = plan(&with_steps(
        r#"  { while: 'cursor != "end"', max: 9, steps: [ { name: p, get: "/?c={{cursor|default:}}", keep: { cursor: "json:$.next" } } ] }"#,
    ));
    let mut scope = plan.scope(&plan.scenarios[0], Arc::new([]), 0);
    let Step::Repeat { count: Repeat::While { condition, .. }, steps } = &plan.scenarios[0].steps[0] else {
        panic!()
    };
    let page = requests(steps)[0];
    assert!(condition.holds(&scope));
    assert_eq!(rendered(page, &scope).0, "GET 0 /?c=");
    answer_to(page, &mut scope, r#"{"next":"2"}"#, &[]);
    assert!(condition.holds(&scope));
    assert_eq!(rendered(page, &scope).0, "GET 0 /?c=2");
    answer_to(page, &mut scope, r#"{"next":"end"}"#, &[]);
    assert!(!condition.holds(&scope));
}

#[test]
fn every_protocol_has_its_server() {
    let plan = plan(&with_steps(
        r#"  { name: g, grpc: /shop.Items/List, message: { page: "{{iteration|int}}" }, checks: [ grpc=OK ], keep: { n: "grpc:$.n|int" } },
  { name: w, ws: /chat, message: "hello {{n}}", keep: { m: "ws:$.m" } },
  { name: h, get: "https://b/{{m}}" },
  { name: e, exec: [ ./sign ], message: { m: "{{m}}" }, keep: { sig: "json:$.sig" } },
  { name: q, method: QUERY, url: "/?{{sig}}" }"#,
    ));
    let origins: Vec<String> = plan.origins.iter().map(ToString::to_string).collect();
    assert_eq!(origins, ["http://a", "grpc://a", "ws://a", "https://b"]);
    assert_eq!(plan.position_of(&Origin::parse("http://a:80").unwrap().0), Some(0));
    assert_eq!(plan.position_of(&Origin::parse("http://evil").unwrap().0), None);
    let scope = plan.scope(&plan.scenarios[0], Arc::new([]), 0);
    let steps = requests(&plan.scenarios[0].steps);
    assert_eq!(rendered(steps[0], &scope).2, r#"{"page":0}"#);
    assert_eq!(steps[3].method, "QUERY");
    assert_eq!(plan.steps.len(), 5);
}

#[test]
fn keys_can_be_set_from_outside() {
    let text = with_steps("  { name: a, get: / }");
    let source = Source::text("plan.yaml", text);
    let set = [("scenarios.s.rate", "50/s"), ("target", "http://b:81"), ("duration", "3s")];
    let set: Vec<_> = set.iter().map(|(path, value)| ((*path).to_owned(), (*value).to_owned())).collect();
    let plan = read(&source, &Disk, &set).unwrap();
    assert!(
        matches!(&plan.scenarios[0].load, Some(Load::Rate { shape, users_max: 1000 }) if shape.most() == 50.0)
    );
    assert_eq!(
        (plan.origins[0].authority(), plan.duration),
        ("b:81".to_owned(), Some(Duration::from_secs(3)))
    );
    assert_eq!(plan.scenarios[0].connections, Connections::Shared);
    let wrong = [("scenarios.s.rat".to_owned(), "50/s".to_owned()), ("target.x".to_owned(), "1".to_owned())];
    let told = read(&source, &Disk, &wrong).unwrap_err().to_string();
    assert!(told.contains("--set scenarios.s.rat:1:1") && told.contains("did you mean rate?"), "{told}");
    assert!(told.contains("`target` holds no keys"), "{told}");
}

#[test]
fn names_are_written_out() {
    let text = "rate: [ { hold: 5/s for 1s, name: 'p-${SECRET}' } ]\nscenarios:\n  a:\n    steps:\n      - { name: '${SECRET}', get: 'http://a/' }\n      - { name: b, get: 'http://a/', json: { name: '${SECRET}' } }\n";
    let source = Source::text("plan.yaml", text).with_variable("SECRET", "hunter22");
    let told = read(&source, &Disk, &[]).unwrap_err().to_string();
    assert!(!told.contains("hunter22"), "{told}");
    for place in ["scenarios.a.steps[0].name: a name is shown", "rate[0].name: a name is shown", "2 errors"] {
        assert!(told.contains(place), "{place}: {told}");
    }
}

#[test]
fn the_keys_of_steps_are_those_of_the_schema() {
    let schema = crate::schema();
    let step = schema.pointer("/$defs/Step/properties").and_then(serde_json::Value::as_object).unwrap();
    let mut known: Vec<&str> = step.keys().map(String::as_str).collect();
    let mut listed = written::STEP_KEYS.to_vec();
    known.sort_unstable();
    listed.sort_unstable();
    assert_eq!(known, listed);
}

#[test]
fn parts_of_loads_have_names_and_conditions() {
    let scenario = |name: &str, load: &str| {
        format!("  {name}: {{ {load} steps: [ {{ name: get_{name}, get: 'http://a/' }} ] }}\n")
    };
    let own = scenario("buy", "start_at: 3s, users: [ { ramp: 5 over 1s }, { hold: 5 for 1s } ],");
    let shared = "rate: [ { hold: 5/s for 1s }, { name: spike, jump: 50/s for 1s } ]\n";
    let text = format!(
        "{shared}thresholds: [ 'spike: p99<1s', 'buy.hold: p99<1s', 'ramp: p99<1s' ]\nscenarios:\n{}{own}",
        scenario("browse", "")
    );
    let plan = read_text(&text).unwrap();
    let names = |plan: &Plan| plan.parts().into_iter().map(|part| part.full).collect::<Vec<_>>();
    assert_eq!(names(&plan), ["hold", "spike", "buy.ramp", "buy.hold"]);
    let of: Vec<ThresholdOf> = plan.thresholds.iter().map(|t| t.of).collect();
    assert_eq!(of, [ThresholdOf::Part(1), ThresholdOf::Part(3), ThresholdOf::Part(2)]);
    assert_eq!(plan.loads()[1].start_at.as_secs(), 3);
    let alone = read_text(&format!("scenarios:\n{own}")).unwrap();
    assert_eq!(names(&alone), ["ramp", "hold"]);
}

#[test]
fn a_file_of_counts_is_beside_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rates.csv"), "at,count\n0,13\n1,7\n").unwrap();
    let path = folder.path().join("plan.yaml");
    let text = "rate: [ { file: { csv: rates.csv, every: 1s } } ]\n\
                scenarios: { s: { steps: [ { name: a, get: 'http://a/' } ] } }";
    std::fs::write(&path, text).unwrap();
    let plan = read(&Source::file(&path), &Disk, &[]).unwrap();
    let course = Arc::clone(plan.load.as_ref().and_then(Load::course).unwrap());
    assert_eq!((course.starts(), course.due_by(999_999_999)), (20, 13));
}
