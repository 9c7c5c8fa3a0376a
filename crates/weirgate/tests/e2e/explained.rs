//! `weir explain` shows what expressions come to for the request asked, and no credential.

use serde_json::Value;
use weir_testkit::{Finished, run_weir};

const YAML: &str = r#"
listeners: { web: { address: 127.0.0.1:1, tls: {} } }
maps:
  tenants: { of: 'request.headers["x-tenant"]', values: { acme: gold }, default: free }
  outcome: { of: response.status, values: { "200": good } }
consumers: { shop: { key_auth: [ "${KEY:-SECRET0}" ] } }
upstreams: { up: { endpoints: [ 127.0.0.1:1 ], balancer: { hash: { by: "= request.args.user ?? maps.tenants" } } } }
routes:
  all:
    match: { path: "/a/{id}", when: 'request.cookies.sid != "x" && request.headers["x-pass"] != "y"' }
    filters:
      - when: { is: 'request.headers["x-tenant"] == "acme"', filters: [ { request_id: {} } ] }
      - headers:
          request:
            set:
              x-tenant-plan: "{= maps.tenants }"
              x-two: "<{= request.params.id }|{= request.method }>"
              x-user: "{= jwt.sub }"
              x-literal: "{= request.method == 'GET' ? 'SECRET1' : 'SECRET2' }"
              x-copied: '{= request.headers["authorization"].lowerAscii() }'
              x-is: '{= request.headers["authorization"] == "a" }'
              x-sku: "{= request.body.sku }"
              x-url: "{= request.url }"
          response: { set: { x-outcome: "{= maps.outcome }" } }
      - key_auth: { header: x-pass, query: pw }
      - acl: { is: 'consumer.name == "shop"' }
      - rewrite: { path: "/b/{= request.params.id }" }
      - rate_limit: { requests: 1, per: 1s, by: "= request.cookies.sid ?? client.ip" }
    upstream: up
  own:
    match: { path: /own }
    respond: { status: 200, body: "hello {= request.args.name ?? 'you' } {= request.method == 'GET' }" }
"#;

fn explain(more: &[&str]) -> Finished {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("weir.yaml"), YAML.replace(", tls: {}", "")).unwrap();
    let mut arguments = vec!["explain"];
    arguments.extend(more);
    run_weir(dir.path(), &arguments)
}

const ASKED: [&str; 10] = [
    "GET",
    "/a/7?user=u&pw=SECRET3",
    "-H",
    "x-tenant: acme",
    "-H",
    "authorization: Bearer SECRET4",
    "-H",
    "cookie: sid=SECRET5-of-a-session",
    "-H",
    "x-pass: SECRET6",
];

#[test]
fn each_expression_has_its_value_or_says_on_what_it_depends() {
    let told = explain(&ASKED);
    told.expect_code(0)
        .expect_text("is: the expression is true; request.headers[\"x-tenant\"] is \"acme\"\n")
        .expect_text(
            "request.set.x-tenant-plan: the expression is \"gold\"; maps.tenants is \"gold\"; request.headers[\"x-tenant\"] is \
             \"acme\"\n",
        )
        .expect_text("request.set.x-two: the expression is \"7\"; request.params[\"id\"] is \"7\"\n")
        .expect_text("request.set.x-two: the expression is \"GET\"; request.method is \"GET\"\n")
        .expect_text("request.set.x-user: the expression depends on the caller\n")
        .expect_text("request.set.x-literal: the expression is ***; request.method is \"GET\"\n")
        .expect_text("request.set.x-copied: the expression is ***; request.headers[\"authorization\"] is ***\n")
        .expect_text("request.set.x-is: the expression is false; request.headers[\"authorization\"] is ***\n")
        .expect_text("request.set.x-sku: the expression depends on the request's body\n")
        .expect_text("request.set.x-url: the expression is ***; request.url is ***\n")
        .expect_text("response.set.x-outcome: the expression is not known before the response\n")
        .expect_text("is: the expression depends on the caller\n")
        .expect_text("path: {= request.params.id } is \"7\"; request.params[\"id\"] is \"7\"\n")
        .expect_text("hash.by: {= request.args.user ?? maps.tenants } is \"u\"; request.args[\"user\"] is \"u\"");
    assert!(told.stdout.contains("by: "), "{}", told.stdout);
    assert!(!told.stdout.contains("SECRET"), "{}", told.stdout);
    explain(&["GET", "/own?name=me"])
        .expect_code(0)
        .expect_text("respond.body: the expression is \"me\"; request.args[\"name\"] is \"me\"\n")
        .expect_text("respond.body: the expression is true; request.method is \"GET\"");
}

#[test]
fn machines_get_the_same() {
    let told = explain(&[&["--format", "json"], &ASKED[..]].concat());
    told.expect_code(0);
    assert!(!told.stdout.contains("SECRET"), "{}", told.stdout);
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    let filter = |name: &str| {
        told["filters"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap()["expressions"]
            .as_array()
            .unwrap()
            .clone()
    };
    let headers = filter("headers");
    let of = |key: &str| headers.iter().find(|one| one["key"] == key).unwrap();
    let plan = of("request.set.x-tenant-plan");
    assert_eq!((&plan["value"], plan.get("unknown")), (&"\"gold\"".into(), None));
    assert_eq!(plan["reads"][0], serde_json::json!({ "name": "maps.tenants", "value": "\"gold\"" }));
    let outcome = of("response.set.x-outcome");
    assert_eq!(
        (outcome.get("value"), &outcome["unknown"]),
        (None, &"is not known before the response".into())
    );
    assert_eq!(filter("when")[0]["value"], "true");
    assert_eq!(filter("rewrite")[0]["expression"], "request.params.id");
}
