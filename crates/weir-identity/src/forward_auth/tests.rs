//! Tests the request to the service, and the handling of its answer.

use super::super::testing::Stand;
use super::*;
use serde_json::{Value, json};
use weir_filter::error::CONNECT_REFUSED;

fn stand(settings: Value) -> Stand {
    Stand::new(&KIND, settings).upstream("auth")
}

fn answer(status: u16, headers: &[(&str, &str)]) -> CallAnswer {
    let field = |(n, v): &(&str, &str)| (FieldName::new(n).unwrap(), v.as_bytes().to_vec());
    CallAnswer { status, headers: headers.iter().map(field).collect(), body: "body".into() }
}

#[tokio::test]
async fn a_2xx_lets_pass_and_sets_what_it_says() {
    let settings = json!({ "upstream": "auth", "copy": ["x-user", "x-groups"] });
    let yes = answer(204, &[("X-User", "ann"), ("x-other", "1")]);
    let mut stand = stand(settings).answer(Ok(yes));
    let request = "GET /\nx-user: root\nX-Groups: admin\nx-other: 0";
    stand
        .build()
        .request(request)
        .await
        .expect_continue()
        .expect_header("x-user", "ann")
        .expect_no_header("x-groups")
        .expect_header("x-other", "0");
}

#[tokio::test]
async fn the_service_is_told_of_the_request() {
    let settings = json!({
        "upstream": "auth", "path": "/verify?x=1", "method": "HEAD",
        "copy_request": ["cookie", "x-forwarded-for"]
    });
    let mut stand = stand(settings).client("::ffff:10.0.0.1").tls().answer(Ok(answer(200, &[])));
    let request = "PUT /%61?b=1\nHost: a:81\nCookie: c=1\nAuthorization: no\nX-Forwarded-For: forged";
    let exchange = stand.build().request(request).await;
    let (upstream, call) = exchange.calls().remove(0);
    assert_eq!((upstream.as_str(), call.method.as_str()), ("auth", "HEAD"));
    assert_eq!((call.target.as_str(), call.authority.as_slice()), ("/verify?x=1", &b"a:81"[..]));
    let fields: Vec<_> =
        call.headers.iter().map(|(n, v)| format!("{n}: {}", String::from_utf8_lossy(v))).collect();
    assert_eq!(
        fields,
        [
            "cookie: c=1",
            "x-forwarded-method: PUT",
            "x-forwarded-proto: https",
            "x-forwarded-host: a:81",
            "x-forwarded-uri: /a?b=1",
            "x-forwarded-for: 10.0.0.1",
        ]
    );
}

#[tokio::test]
async fn any_other_status_is_the_answer() {
    for status in [302, 401, 403, 500] {
        let fields =
            [("Location", "/login"), ("set-cookie", "s=1"), ("x-secret", "1"), ("connection", "close")];
        let mut stand = stand(json!({ "upstream": "auth" })).answer(Ok(answer(status, &fields)));
        let mut exchange = stand.build().request("GET /").await;
        exchange.expect_status(status).expect_header("location", "/login").expect_header("set-cookie", "s=1");
        exchange.expect_no_header("x-secret").expect_no_header("connection");
        assert!(
            matches!(&exchange.flow, Flow::Answer(a) if matches!(&a.body, Body::Bytes(b) if b == "body"))
        );
    }
}

#[tokio::test]
async fn no_answer_lets_nothing_pass() {
    for none in [Err(&CONNECT_REFUSED), Ok(answer(101, &[])), Ok(answer(0, &[])), Ok(answer(999, &[]))] {
        let mut stand = stand(json!({ "upstream": "auth" })).answer(none);
        stand.build().request("GET /").await.expect_status(503).expect_cause(&AUTH_UNAVAILABLE);
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_copied_lets_nothing_pass() {
    let split = answer(200, &[("x-user", "a\r\nb: c")]);
    let mut stand = stand(json!({ "upstream": "auth", "copy": ["x-user"] })).answer(Ok(split));
    stand.build().request("GET /").await.expect_cause(&AUTH_UNAVAILABLE);
}

#[test]
fn mistakes() {
    assert!(Stand::new(&KIND, json!({})).mistakes()[0].contains("upstream"));
    let all = json!({
        "upstream": "atuh", "path": "verify", "method": "GET /", "copy": ["host"], "copy_request": ["te"]
    });
    let mistakes = stand(all).mistakes();
    assert_eq!(mistakes.len(), 5, "{mistakes:#?}");
    assert!(mistakes[0].contains("write auth"));
}

fn cached(time: &str) -> Value {
    json!({
        "upstream": "auth", "copy": ["x-user"], "copy_request": ["authorization"],
        "cache": { "headers": ["authorization"], "time": time }
    })
}

#[tokio::test]
async fn a_decision_is_remembered_for_equal_questions() {
    let users = ["ann", "bob", "eve", "joe", "max"].map(|user| Ok(answer(204, &[("x-user", user)])));
    let mut stand = users.into_iter().fold(stand(cached("1h")), Stand::answer);
    let running = stand.build();
    for (request, user) in [
        ("GET /a?b=1\nAuthorization: a", "ann"),
        ("GET /a?b=1\nAuthorization: a\nX-Other: 1\nX-User: root", "ann"),
        ("GET /a?b=1\nAuthorization: b", "bob"),
        ("HEAD /a?b=1\nAuthorization: a", "eve"),
        ("GET /a?b=2\nAuthorization: a", "joe"),
        ("GET /a?b=1\nHost: other\nAuthorization: a", "max"),
        ("GET /a?b=1\nAuthorization: a", "ann"),
    ] {
        running.request(request).await.expect_continue().expect_header("x-user", user);
    }
}

/// The service gets the address, so it may decide by it.
#[tokio::test]
async fn a_decision_is_for_one_address() {
    let inside = || Ok(answer(204, &[("x-user", "inside")]));
    let mut stand = stand(cached("1h")).answer(inside()).answer(Ok(answer(403, &[])));
    let running = stand.build();
    running.from("10.0.0.1").request("GET /").await.expect_continue();
    running.from("::ffff:10.0.0.1").request("GET /").await.expect_continue();
    running.from("203.0.113.9").request("GET /").await.expect_status(403);
}

#[tokio::test]
async fn what_is_not_remembered() {
    let yes = || answer(204, &[]);
    for (first, remembered) in [
        (Ok(yes()), true),
        (Ok(answer(403, &[])), true),
        (Ok(answer(204, &[("Cache-Control", "private, no-store")])), false),
        (Ok(answer(401, &[("set-cookie", "s=1")])), false),
        (Ok(answer(500, &[])), false),
        (Err(&CONNECT_REFUSED), false),
    ] {
        let mut stand = stand(cached("1h")).answer(first).answer(Ok(yes()));
        let running = stand.build();
        running.request("GET /").await;
        let asked = running.request("GET /").await.calls().len();
        assert_eq!(asked, if remembered { 1 } else { 2 });
    }
    let mut stand = stand(cached("0s")).answer(Ok(yes())).answer(Ok(yes()));
    let running = stand.build();
    running.request("GET /").await;
    assert_eq!(running.request("GET /").await.calls().len(), 2);
}

#[tokio::test]
async fn the_client_gets_what_it_is_meant_to() {
    let settings = json!({ "upstream": "auth", "copy_response": ["set-cookie", "x-session"] });
    let fields = [("Set-Cookie", "s=1"), ("set-cookie", "t=2"), ("x-session", "new"), ("x-other", "1")];
    let mut stand = stand(settings).answer(Ok(answer(200, &fields)));
    let mut exchange = stand.build().request("GET /").await;
    let response = exchange.expect_continue().response("200\nSet-Cookie: own=1\nX-Session: old");
    response.expect_header("x-session", "new").expect_no_header("x-other");
    let cookies: Vec<_> = response.head.headers.get_all("set-cookie").collect();
    assert_eq!(cookies, [&b"own=1"[..], b"s=1", b"t=2"]);
}

#[test]
fn mistakes_of_bodies_and_caches() {
    let all = json!({
        "upstream": "auth", "body": "1GiB", "copy_response": ["content-length"],
        "cache": { "headers": ["authorization"], "time": "48h" }
    });
    let mistakes = stand(all).mistakes();
    assert_eq!(mistakes.len(), 4, "{mistakes:#?}");
    assert!(mistakes[1].contains("cache.headers: the service sees `cookie`"), "{mistakes:#?}");
}

fn field_lines(call: &CallRequest) -> Vec<String> {
    call.headers.iter().map(|(n, v)| format!("{n}: {}", String::from_utf8_lossy(v))).collect()
}

#[tokio::test]
async fn all_fields_but_those_that_are_not_for_the_service() {
    let settings = json!({ "upstream": "auth", "copy_request": "all", "copy": ["x-user"] });
    let mut stand = stand(settings).client("10.0.0.1").answer(Ok(answer(200, &[])));
    let request = "PUT /a\nHost: a\nCookie: c=1\nX-Api: 1\nX-Api: 2\nIf-None-Match: \"e\"\nRange: bytes=0-1\n\
                   Accept-Encoding: gzip\nContent-Type: text/plain\nExpect: 100-continue\nX-User: root\nX_User: root\n\
                   X_Forwarded_For: 1.2.3.4\nX-Forwarded-Proto: https\nForwarded: for=1.2.3.4";
    let exchange = stand.build().request(request).await;
    let (_, call) = exchange.calls().remove(0);
    let expected = [
        "cookie: c=1",
        "x-api: 1",
        "x-api: 2",
        "content-type: text/plain",
        "x-forwarded-method: put",
        "x-forwarded-proto: http",
        "x-forwarded-host: a",
        "x-forwarded-uri: /a",
        "x-forwarded-for: 10.0.0.1",
    ];
    let told: Vec<String> = field_lines(&call).iter().map(|line| line.to_lowercase()).collect();
    assert_eq!(told, expected);
}

#[tokio::test]
async fn no_spelling_of_a_set_field_is_copied() {
    let settings = json!({
        "upstream": "auth", "copy_request": "all",
        "set": { "x-original-uri": "{path}", "x-cert": "{tls_client_subject}" }
    });
    let mut stand = stand(settings).answer(Ok(answer(200, &[])));
    let request = "GET /secret\nHost: a\nX_Original_URI: /public\nX_Cert: CN=admin\nX-Cert: CN=admin";
    let (_, call) = stand.build().request(request).await.calls().remove(0);
    let told: Vec<String> = field_lines(&call).iter().map(|line| line.to_lowercase()).collect();
    assert!(told.contains(&"x-original-uri: /secret".to_owned()), "{told:?}");
    assert!(!told.iter().any(|line| line.contains("public") || line.contains("admin")), "{told:?}");
}

#[tokio::test]
async fn fields_are_set_for_the_service() {
    let settings = json!({
        "upstream": "auth", "copy_request": ["x-original-uri", "cookie"],
        "set": { "x-original-uri": "{path}", "X-Forwarded-Host": "fixed", "x-empty": "" }
    });
    let mut stand = stand(settings).answer(Ok(answer(200, &[])));
    let request = "GET /a?b=1\nHost: a\nX-Original-Uri: forged";
    let (_, call) = stand.build().request(request).await.calls().remove(0);
    let told: Vec<String> = field_lines(&call).iter().map(|line| line.to_lowercase()).collect();
    assert!(told.contains(&"x-original-uri: /a".to_owned()), "{told:?}");
    assert_eq!(told.iter().filter(|line| line.starts_with("x-original-uri")).count(), 1, "{told:?}");
    assert_eq!(told.iter().filter(|line| line.starts_with("x-forwarded-host")).count(), 1, "{told:?}");
    assert!(told.contains(&"x-forwarded-host: fixed".to_owned()), "{told:?}");
    assert!(!told.iter().any(|line| line.starts_with("x-empty")), "{told:?}");
}

#[tokio::test]
async fn answers_as_in_nginx() {
    let fields = [("WWW-Authenticate", "Basic realm=\"a\""), ("Location", "/login"), ("Set-Cookie", "s=1")];
    for (status, expected, cause) in [
        (401, 401, &AUTH_REQUIRED),
        (403, 403, &AUTH_FORBIDDEN),
        (302, 500, &AUTH_UNEXPECTED),
        (404, 500, &AUTH_UNEXPECTED),
        (503, 500, &AUTH_UNEXPECTED),
        (100, 500, &AUTH_UNEXPECTED),
    ] {
        let settings = json!({ "upstream": "auth", "answers": "nginx" });
        let mut stand = stand(settings).answer(Ok(answer(status, &fields)));
        let mut exchange = stand.build().request("GET /").await;
        exchange.expect_status(expected).expect_cause(cause);
        exchange.expect_no_header("location").expect_no_header("set-cookie");
        if expected == 401 {
            exchange.expect_header("www-authenticate", "Basic realm=\"a\"");
        } else {
            exchange.expect_no_header("www-authenticate");
        }
    }
    let nginx = || stand(json!({ "upstream": "auth", "answers": "nginx", "copy": ["x-user"] }));
    let mut passes = nginx().answer(Ok(answer(201, &[("x-user", "ann")])));
    passes.build().request("GET /").await.expect_continue().expect_header("x-user", "ann");
    nginx().answer(Err(&CONNECT_REFUSED)).build().request("GET /").await.expect_cause(&AUTH_UNEXPECTED);
}

#[tokio::test]
async fn a_decision_depends_on_the_fields_that_are_set() {
    let settings = json!({
        "upstream": "auth", "copy_request": [], "set": { "x-key": "{= request.headers['x-key'] }" },
        "cache": { "headers": [], "time": "1h" }
    });
    let mut stand = stand(settings).answer(Ok(answer(204, &[]))).answer(Ok(answer(403, &[])));
    let running = stand.build();
    running.request("GET /\nX-Key: a").await.expect_continue();
    running.request("GET /\nX-Key: a").await.expect_continue();
    running.request("GET /\nX-Key: b").await.expect_status(403);
    let all = json!({ "upstream": "auth", "copy_request": "all", "cache": { "headers": [], "time": "1s" } });
    assert!(Stand::new(&KIND, all).upstream("auth").mistakes()[0].contains("no two questions are alike"));
}
