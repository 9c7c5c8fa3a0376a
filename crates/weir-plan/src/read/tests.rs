//! Plans and what is told about them. Each mistake stands beside the text that has it.

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
fn mistakes_of_steps_are_told() {
    let mut missing = Vec::new();
    for (step, want) in [
        ("{ name: a, post: /, body: '{{user|raw}}' }", "`raw` has a meaning only in URLs, and only once"),
        ("{ name: a, get: '/{{user|raw|raw}}' }", "`raw` has a meaning only in URLs, and only once"),
        (
            "{ get: / }",
            "4:1 scenarios.s.steps[0]: this step needs a `name`: its row in the report and its label in metrics",
        ),
        (
            "{ name: 'a: b', get: / }",
            "4:9 scenarios.s.steps[0].name: expected a name of at most 64 characters, without `:` and braces",
        ),
        (
            "{ name: a (redirect), get: / }",
            "4:9 scenarios.s.steps[0].name: names that end in `(redirect)` are those of the requests that redirects cause",
        ),
        ("{ name: a, gett: / }", "unknown key `gett`"),
        (
            "{ name: a, get: /, post: / }",
            "4:26 scenarios.s.steps[0].post: a step does one thing, and this one has `get` already",
        ),
        ("{ name: a }", "4:1 scenarios.s.steps[0]: expected a step: get, post or another method"),
        ("{ pause: 2s, keep: { x: status } }", "`keep` has no meaning in a step with `pause`"),
        ("{ pause: 2 }", "4:10 scenarios.s.steps[0].pause: `2` is not a duration"),
        ("{ name: a, get: items }", "expected a path that begins with `/`, or a URL"),
        ("{ name: a, get: //b/items }", "expected a path that begins with `/`, or a URL"),
        ("{ name: a, get: 'ftp://b/' }", "the scheme `ftp` is not known"),
        ("{ name: a, get: 'ws://b/' }", "the scheme `ws` is not spoken by this step; expected `http`"),
        ("{ name: a, get: 'http://me:pw@b/' }", "a URL of a plan has no user and password"),
        (
            "{ name: a, get: '/a b' }",
            "4:20 scenarios.s.steps[0].get: ' ' cannot stand in a URL: write it as %20",
        ),
        ("{ name: a, get: '/a#b' }", "'#' cannot stand in a URL: write it as %23"),
        ("{ name: a, get: '/é' }", "write it as %C3%A9"),
        ("{ name: a, get: 'http://{{user}}/' }", "4:17 scenarios.s.steps[0].get: `` is not a host name"),
        (
            "{ name: a, get: 'http://b{{user}}/' }",
            "a placeholder stands behind the server and its `/`: it may not change who gets load",
        ),
        ("{ name: a, get: '{{user}}/x' }", "a URL begins with `/`, a server, or a name of `values`"),
        ("{ name: a, get: '/{{id}}' }", "4:21 scenarios.s.steps[0].get: no earlier step can have kept `id`"),
        ("{ name: a, get: '/{{usr}}' }", "(did you mean user?)"),
        ("{ name: a, get: '/x?y={{uuidd}}' }", "(did you mean uuid?)"),
        (
            "{ name: a, get: '/{{id' }",
            "4:19 scenarios.s.steps[0].get: `{{` without a closing `}}` (write {{{{ for two braces)",
        ),
        ("{ name: a, get: '/{{}}' }", "expected a name between `{{` and `}}`"),
        ("{ name: a, get: '/{{user|frist}}' }", "4:26 scenarios.s.steps[0].get: `frist` is no filter"),
        ("{ name: a, get: '/{{random:9:1}}' }", "expected two whole numbers, the smaller first"),
        ("{ name: a, get: '/{{sha:x}}' }", "`sha` is no function"),
        (
            "{ name: a, get: '/{{base64:{{base64:{{base64:{{base64:x}}}}}}}}' }",
            "placeholders stand in each other at most 4 deep",
        ),
        (
            "{ name: a, get: '/{{index}}' }",
            "`index` counts the rounds of `repeat` or `while`; there is none around this",
        ),
        ("{ name: a, get: /, headers: { 'x y': a } }", "`x y` is no name of a header field"),
        (
            "{ name: a, get: /, headers: { Content-Length: 3 } }",
            "`Content-Length` frames the message or manages its connection",
        ),
        ("{ name: a, get: /, headers: { x: 1, X: 2 } }", "`X` is written twice in other letters"),
        ("{ name: a, get: /, headers: { x: \"a\\r\\nb: c\" } }", "a header value holds no line break"),
        ("{ name: a, get: /, headers: { x: '${BAD}' } }", "a header value holds no line break"),
        (
            "{ name: a, post: /, body: x, json: {} }",
            "4:30 scenarios.s.steps[0].json: there is already `body`: a request has one body",
        ),
        (
            "{ name: a, post: /, json: { k: [ 'a {{nothing}}' ] } }",
            "4:39 scenarios.s.steps[0].json: no earlier step can have kept `nothing`",
        ),
        ("{ name: a, post: /, body_file: no/such }", "cannot read no/such: No such file"),
        (
            "{ name: a, post: /, multipart: [ { name: x } ] }",
            "multipart[0]: a part needs a `value` or a `file`",
        ),
        ("{ name: a, post: /, message: {} }", "`message` has no meaning in a step with `post`"),
        (
            "{ name: a, get: /, checks: [ statsu=200 ] }",
            "4:30 scenarios.s.steps[0].checks[0]: expected status=200",
        ),
        ("{ name: a, get: /, checks: [ 'grpc=OK' ] }", "the answer to this step has no such thing to check"),
        ("{ name: a, get: /, checks: [ 'body~{{x}}' ] }", "a check compares with a fixed text"),
        (
            "{ name: a, get: /, keep: { user: status } }",
            "`user` has a meaning of its own in placeholders or expressions",
        ),
        (
            "{ name: a, get: /, keep: { 'a-b': status } }",
            "`a-b` is not a name; expected letters, digits and `_`",
        ),
        (
            "{ name: a, get: /, keep: { x: jsn:$.a } }",
            "4:31 scenarios.s.steps[0].keep.x: expected json:$.path, header:NAME",
        ),
        ("{ name: a, get: /, keep: { x: 'json:a' } }", "`a` is no path"),
        ("{ name: a, get: /, keep: { x: 'body~x' } }", "the expression needs a group in brackets"),
        ("{ name: a, get: /, keep: { x: 'body~(x' } }", "this is no regular expression: unclosed group"),
        (
            "{ name: a, get: /, keep: { x: 'body~(\\w{900}){900}' } }",
            "the regular expression is larger than 1048576 bytes",
        ),
        ("{ name: a, get: /, keep: { x: 'grpc:$.a' } }", "`grpc:` is of `grpc` steps"),
        ("{ name: a, get: /, keep: { x: 'json:$.a|rnadom' } }", "`rnadom` is no filter"),
        (
            "{ name: a, get: /, keep: { x: status } }",
            "4:31 scenarios.s.steps[0].keep.x: no later step uses `x`",
        ),
        ("{ name: a, get: /, timeout: 0s }", "a timeout is longer than 0s"),
        ("{ name: a, get: /, timeout: 5 }", "(add a unit: 5s or 5ms)"),
        ("{ name: a, get: /, redirects: 51 }", "a request follows at most 50 redirects"),
        ("{ name: a, get: /, on_failure: stopp }", "(did you mean stop?)"),
        ("{ name: a, url: / }", "`url` needs a `method`"),
        ("{ name: a, method: 'G T', url: / }", "`G T` is no method"),
        ("{ name: a, method: connect, url: / }", "CONNECT opens a tunnel"),
        ("{ name: a, grpc: /List }", "expected a method of a service: /package.Service/Method"),
        ("{ name: a, ws: /x, keep: { m: 'ws:$.m' } }", "this step waits for no message"),
        ("{ name: a, ws: /x, answer: [] }", "expected a check that the answer passes"),
        ("{ name: a, ws: /x, answer: 'p-max<1s' }", "a message is chosen by its text, JSON or size"),
        ("{ name: a, ws: /x, headers: { sec-websocket-key: x } }", "is part of the handshake"),
        (
            "{ name: a, grpc: /a.B/C, headers: { content-type: text/plain } }",
            "the content-type application/grpc",
        ),
        ("{ name: a, ws: /x, message: hi, checks: [ status=200 ] }", "has no such thing to check"),
        ("{ name: a, ws: /x, message: hi, keep: { s: status } }", "expected json:$.path"),
        ("{ if: 'user > 1' }", "`if` needs steps in `then`"),
        (
            "{ if: 'usr > 1', then: [ { pause: 1s } ] }",
            "4:8 scenarios.s.steps[0].if: there is no variable `usr`",
        ),
        (
            "{ if: 'user = 1', then: [ { pause: 1s } ] }",
            "(expressions are those of CEL: write == to compare)",
        ),
        (
            "{ if: 'user > 1 and user < 5', then: [ { pause: 1s } ] }",
            "write && for and, || for or, ! for not",
        ),
        (
            "{ if: '${TENANT} == user', then: [ { pause: 1s } ] }",
            "what a variable brings in is never a part of an expression",
        ),
        ("{ repeat: 0, steps: [ { pause: 1s } ] }", "expected a number of rounds from 1 to 1000000"),
        ("{ repeat: 2 }", "expected `steps` to repeat"),
        ("{ while: 'user > 1', steps: [ { pause: 1s } ] }", "`while` needs `max`"),
        ("{ parallel: 6, steps: [ { pause: 1s } ] }", "only HTTP requests and gRPC calls run in parallel"),
        ("{ parallel: 0, steps: [ { name: a, get: / } ] }", "expected how many at once, from 1 to 100"),
        (
            "{ parallel: 2, steps: [ { name: a, get: /, keep: { x: status } }, { name: b, get: '/{{x}}' } ] }",
            "no earlier step can have kept `x`",
        ),
        (
            "{ parallel: 2, steps: [ { name: a, get: /, keep: { x: status } }, { name: b, get: /, keep: { x: status } } ] }",
            "another of these parallel steps keeps that name too",
        ),
        ("{ exec: [ '' ], name: a }", "expected a program and its arguments"),
        (
            "{ name: a, get: / }, { name: a, get: / }",
            "4:30 scenarios.s.steps[1].name: `a` is the name of scenarios.s.steps[0] already",
        ),
        ("{ name: a, get: '/{{x}}', keep: { x: status } }", "no earlier step can have kept `x`"),
    ] {
        let found = mistakes(&with_steps(step));
        if !found.iter().any(|line| line.contains(want)) {
            missing.push(format!("{step}\n  wants {want}\n  found {found:#?}"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn mistakes_of_plans_are_told() {
    let mut missing = Vec::new();
    let one = "scenarios: { s: { steps: [ { name: a, get: 'http://a/' } ] } }";
    for (text, want) in [
        ("{}", "1:1 scenarios: expected at least one scenario"),
        ("scenarios: { s: {} }", "a scenario needs `steps`"),
        (
            "scenarios: { s: { steps: [ { name: a, get: / } ] } }",
            "this URL has no server: write `target:` at the top of the plan",
        ),
        (&format!("spacing: poisson\nrate: 5/s\n{one}"), "spacing: is of a `rate` with parts"),
        (&format!("seed: 3\nusers: [ {{ hold: 5 for 1s }} ]\n{one}"), "seed: is of a `rate` with parts"),
        (
            &format!("spacing: uneven\nrate: [ {{ hold: 5/s for 1s }} ]\n{one}"),
            "spacing: expected `even`, `poisson` or `burst(N)`",
        ),
        (&format!("seed: 3\nrate: [ {{ hold: 5/s for 1s }} ]\n{one}"), "seed: is for `spacing: poisson`"),
        (
            &format!("spacing: burst(20)\nusers_max: 19\nrate: [ {{ hold: 5/s for 1s }} ]\n{one}"),
            "spacing: a burst of 20 is larger than `users_max`, 19",
        ),
        (
            &format!("rate: [ {{ hold: 5/s for 1s }}, {{ hold: 5 for 1s }} ]\n{one}"),
            "1:31 rate[1]: `5` is no rate",
        ),
        (
            &format!("rate: [ {{ hold: 5/s for 1s, name: a }} ]\n{one}"),
            "rate[0].name: a step or scenario is called `a` already",
        ),
        (
            &format!("rate: [ {{ hold: 5/s for 1s }} ]\nthresholds: [ 'hodl: p99<1s' ]\n{one}"),
            "thresholds[0]: `hodl` is no step, scenario or part of this plan (did you mean hold?)",
        ),
        (
            "thresholds: [ 'hold: p99<1s' ]\nscenarios:\n  s: { rate: [ { hold: 5/s for 1s } ], steps: [ { name: a, \
             get: 'http://a/' } ] }\n  t: { rate: [ { hold: 5/s for 1s } ], steps: [ { name: a, get: 'http://a/' } ] }",
            "thresholds[0]: `hold` is the name of several steps, scenarios or parts",
        ),
        (&format!("target: a\n{one}"), "1:9 target: expected a URL such as"),
        (&format!("target: http://a/b\n{one}"), "expected a server without a path"),
        (
            &format!("{one}\nsetup: [ {{ name: x, get: 'http://a/{{{{user}}}}' }} ]"),
            "`user` is of users; `setup` and `teardown` run without one",
        ),
        (&format!("{one}\nvalues: {{ x: '{{{{uuid}}}}' }}"), "a value is a constant text"),
        (&format!("{one}\nvalues: {{ uuid: 1 }}"), "`uuid` has a meaning of its own"),
        (&format!("{one}\ndata: {{ d: {{}} }}"), "expected a `file`, or the `rows` themselves"),
        (&format!("{one}\ndata: {{ d: {{ file: no.csv }} }}"), "cannot read no.csv: No such file"),
        (&format!("{one}\ndata: {{ d: {{ rows: [] }} }}"), "expected a list of rows"),
        (
            &format!("{one}\ndata: {{ d: {{ rows: [ {{ a: 1 }}, {{ b: 1 }} ] }} }}"),
            "row 2: has `b`, which the first row has not",
        ),
        (
            &format!("{one}\ndata: {{ d: {{ pick: once, rows: [ {{ a: 1 }} ] }} }}"),
            "`pick: once` needs `at_end: stop`",
        ),
        (
            &format!("{one}\ndata: {{ d: {{ pick: once, at_end: wrap, rows: [ {{ a: 1 }} ] }} }}"),
            "`pick: once` uses no row twice",
        ),
        (
            &format!("{one}\ndata: {{ d: {{ pick: random, at_end: stop, rows: [ {{ a: 1 }} ] }} }}"),
            "leave `at_end` out",
        ),
        (&format!("{one}\ndata: {{ d: {{ rows: [ {{ a: 1 }} ] }} }}"), "no step uses the data set `d`"),
        (
            "data: { d: { rows: [ { ab: 1 } ] } }\nscenarios: { s: { steps: [ { name: a, get: 'http://a/{{d.abc}}' } ] } }",
            "the data set `d` has no column `abc`; it has ab (did you mean d.ab?)",
        ),
        (
            "data: { d: { rows: [ { a: 1 } ], pick: per_user } }\nscenarios: { s: { users: 2, steps: [ { name: a, get: 'http://a/{{d.a}}' } ] } }",
            "`d` has 1 rows for 2 users",
        ),
        (
            "users: 2\ndata: { d: { rows: [ { a: 1 } ], pick: per_user } }\nscenarios: { s: { steps: [ { name: a, get: 'http://a/{{d.a}}' } ] } }",
            "`d` has 1 rows for 2 users",
        ),
        (&format!("{one}\ndefaults: {{ cookies: always }}"), "is not true, false or iteration"),
        (&format!("{one}\nthresholds: [ 'lst: p99<1s' ]"), "`lst` is no step, scenario or part of this plan"),
        (&format!("{one}\nthresholds: [ 'aa: p99<1s' ]"), "(did you mean a?)"),
        (&format!("{one}\nthresholds: [ 'a: p99' ]"), "expected METRIC<VALUE"),
        (&format!("{one}\nthresholds: [ 's: iterations>many' ]"), "expected a number, such as 1000 or 50k"),
        (
            "scenarios: { x: { steps: [ { name: a, get: 'http://a/' } ] }, y: { steps: [ { name: a, get: 'http://a/' } ] } }\nthresholds: [ 'a: p99<1s' ]",
            "`a` is the name of several steps, scenarios or parts (write the scenario too, as in browse.a: p99<1s)",
        ),
        (
            "scenarios: { s: { users: 1, rate: 1/s, steps: [ { name: a, get: 'http://a/' } ] } }",
            "exclude each other",
        ),
        (
            "scenarios: { s: { users: 1, weight: 2, steps: [ { name: a, get: 'http://a/' } ] } }",
            "a weight shares out those of the plan",
        ),
        (
            "scenarios: { s: { weight: 0, steps: [ { name: a, get: 'http://a/' } ] } }",
            "a weight is 1 to 1000000",
        ),
        (
            "scenarios: { s: { users: 1, users_max: 2, steps: [ { name: a, get: 'http://a/' } ] } }",
            "`users_max` bounds the users of a `rate`",
        ),
        (
            "scenarios: { s: { rate: 1/s, pace: 1s, steps: [ { name: a, get: 'http://a/' } ] } }",
            "`pace` is for `users`",
        ),
        (
            "scenarios: { s: { iterations: 0, steps: [ { name: a, get: 'http://a/' } ] } }",
            "expected at least 1",
        ),
        (
            "users: 3\nscenarios: { s: { users: 1, steps: [ { name: a, get: 'http://a/' } ] } }",
            "nothing uses this",
        ),
        (&format!("{one}\ndefaults: {{ body_limit: 1GiB }}"), "expected a limit from 1B to 64MiB"),
        (&format!("{one}\ndefaults: {{ checks: [ x ] }}"), "defaults.checks[0]: expected status=200"),
        (
            &format!("{one}\ndefaults: {{ headers: {{ x: '{{{{token}}}}' }} }}"),
            "defaults.headers.x: no earlier step can have kept `token`",
        ),
        (&format!("{one}\nscenrios: {{}}"), "(did you mean scenarios?)"),
        ("scenarios: [", "1:"),
        (
            "scenarios: { s: { steps: [ { name: a, get: '${NOWHERE}' } ] } }",
            "the variable NOWHERE is not set",
        ),
    ] {
        let found = mistakes(text);
        if !found.iter().any(|line| line.contains(want)) {
            missing.push(format!("{text}\n  wants {want}\n  found {found:#?}"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn all_mistakes_are_told_at_once() {
    let text = "target: http://a:80\ndefaults: { timeout: fast }\nscenarios:\n  s:\n    steps:\n      - { name: a, get: '/{{x}}' }\n      \
                - { name: a, pots: / }\n      - { pause: soon }\n";
    let found = mistakes(text);
    for (line, want) in ["defaults.timeout", "steps[0].get", "pots", "steps[2].pause"].iter().enumerate() {
        assert!(found.iter().any(|told| told.contains(want)), "{line} {want}: {found:#?}");
    }
}

#[test]
fn one_mistake_is_told_once() {
    for step in [
        "{ name: a, gett: / }",
        "{ pause: [] }",
        "{ name: a, head: [] }",
        "{ repeat: two, steps: [ { pause: 1s } ] }",
    ] {
        let found = mistakes(&with_steps(step));
        assert_eq!(found.len(), 1, "{step}: {found:#?}");
    }
}

#[test]
fn limits_hold() {
    let many = |count: usize| {
        let steps: Vec<String> = (0..count).map(|n| format!("{{ name: s{n}, get: / }}")).collect();
        with_steps(&steps.join(",\n"))
    };
    assert_eq!(mistakes(&many(1_000)), Vec::<String>::new());
    let found = mistakes(&many(1_002));
    assert_eq!(found, ["1004:1 scenarios.s.steps[1000]: a plan has at most 1000 steps"]);
    let nested = |depth: usize| {
        let inner = "{ name: a, get: / }".to_owned();
        with_steps(&(1..depth).fold(inner, |inner, _| format!("{{ repeat: 2, steps: [ {inner} ] }}")))
    };
    assert_eq!(mistakes(&nested(8)), Vec::<String>::new());
    assert!(mistakes(&nested(9)).iter().any(|told| told.contains("steps are nested at most 8 deep")));
    let scenarios: Vec<String> =
        (0..101).map(|n| format!("s{n}: {{ steps: [ {{ name: a, get: 'http://a/' }} ] }}")).collect();
    let found = mistakes(&format!("scenarios: {{ {} }}", scenarios.join(", ")));
    assert!(found.iter().any(|told| told.contains("a plan has at most 100 scenarios")), "{found:#?}");
}

#[test]
fn a_secret_of_the_environment_is_in_no_mistake() {
    let text = with_steps(
        "  { name: a, get: '/${SECRET}x{{y}}', headers: { x: '${SECRET}{{y}}' }, checks: [ '${SECRET}' ] }",
    );
    let source = Source::text("plan.yaml", text).with_variable("SECRET", "hunter22");
    let told = read(&source, &Disk, &[]).unwrap_err().to_string();
    assert!(told.contains("`y`") && !told.contains("hunter22"), "{told}");
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
