//! `consumer_sources`: consumers that change without a reload. The crates weir-config, weir-filter and weir-identity
//! test the details.

use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use weir_testkit::{Client, Response, Upstream, Weir, eventually, run_weir};

use crate::cause::{ACL_DENIED, CONSUMER_ADDRESS, CONSUMERS_UNAVAILABLE, KEY_UNKNOWN, RATE_LIMITED};
use crate::support::{OK, WEB};

/// A gateway whose consumers, besides `own`, come from `source`.
fn config(upstream: &Upstream, source: &str) -> String {
    format!(
        "{WEB}\nwatch: true\nupstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         consumers: {{ own: {{ key_auth: [ house-1 ] }} }}\nconsumer_sources: {{ crm: {source} }}\n\
         plans: {{ gold: {{ filters: [ {{ headers: {{ request: {{ set: {{ x-plan: gold }} }} }} }} ] }} }}\nroutes:\n  \
         all: {{ match: {{ path: \"/*\" }}, filters: [ {{ key_auth: {{ consumer_header: x-consumer }} }} ], upstream: up }}\n  \
         gold: {{ match: {{ path: /gold }}, filters: [ {{ key_auth: {{}} }}, {{ acl: {{ allow: [ \"plan:gold\" ], deny: [ bob ] }} }} ], upstream: up }}\n  \
         few: {{ match: {{ path: /few }}, filters: [ {{ key_auth: {{}} }}, {{ rate_limit: {{ requests: 2, per: 1h, by: consumer }} }} ], upstream: up }}\n",
        upstream.address()
    )
}

/// Starts one with this file.
fn with_file(upstream: &Upstream, content: &str) -> Weir {
    Weir::start_by(&config(upstream, "{ file: crm.yaml }"), |dir| {
        std::fs::write(dir.join("crm.yaml"), content).unwrap();
        let mut command = weir_testkit::weir_command(dir);
        command.args(["run", "-c", "weir.yaml"]);
        command
    })
}

/// Replaces the file as a whole.
fn replace(weir: &Weir, content: &str) {
    std::fs::write(weir.dir().join("crm.new"), content).unwrap();
    std::fs::rename(weir.dir().join("crm.new"), weir.dir().join("crm.yaml")).unwrap();
}

fn ask(client: &mut Client, target: &str, key: &str) -> Response {
    client.ask(format!("GET {target} HTTP/1.1\r\nHost: weir.test\r\nX-Api-Key: {key}\r\n\r\n"))
}

/// SHA-256 of `ann-new`.
const ANN_NEW: &str = "sha256:43e5e5fee814b454b2ad817b3bb5f9b0b4d579e0cdf6842d078696e55063fa2d";

/// The answer to `GET /status`.
fn status(weir: &Weir) -> String {
    weir.admin_client().ask("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").text()
}

#[test]
fn consumers_come_change_and_go_by_themselves() {
    let upstream = Upstream::fixed(OK);
    let weir = with_file(
        &upstream,
        "consumers:\n  ann: { key_auth: [ ann-key ], plan: gold }\n  bob: { key_auth: [ bob-key ], plan: gold }\n  \
         far: { key_auth: [ far-key ], allow_ips: [ 192.0.2.0/24 ] }\n",
    );
    // One connection for all, which stays open.
    let mut client = weir.client();
    ask(&mut client, "/", "ann-key").expect_status(200);
    let seen = upstream.take_request();
    assert_eq!((seen.head.header("x-consumer"), seen.head.header("x-plan")), (Some("ann"), Some("gold")));
    assert_eq!(seen.head.header("x-api-key"), None);
    ask(&mut client, "/", "house-1").expect_status(200);
    let seen = upstream.take_request();
    assert_eq!((seen.head.header("x-consumer"), seen.head.header("x-plan")), (Some("own"), None));
    ask(&mut client, "/", "far-key").expect_cause(CONSUMER_ADDRESS);
    ask(&mut client, "/", "nobody").expect_cause(KEY_UNKNOWN);
    ask(&mut client, "/gold", "ann-key").expect_status(200);
    ask(&mut client, "/gold", "bob-key").expect_cause(ACL_DENIED);
    ask(&mut client, "/gold", "house-1").expect_cause(ACL_DENIED);
    for _ in 0..2 {
        ask(&mut client, "/few", "ann-key").expect_status(200);
    }
    ask(&mut client, "/few", "ann-key").expect_cause(RATE_LIMITED);
    ask(&mut client, "/few", "bob-key").expect_status(200);
    // Ann's key is replaced, Bob leaves and Cid comes: on the same connection, without a reload.
    replace(
        &weir,
        "consumers: { ann: { key_auth: [ ann-new ] }, cid: { key_auth: [ cid-key ], plan: gold } }",
    );
    eventually("cid is known", || ask(&mut client, "/", "cid-key").status == 200);
    ask(&mut client, "/", "bob-key").expect_cause(KEY_UNKNOWN);
    ask(&mut client, "/", "ann-key").expect_cause(KEY_UNKNOWN);
    ask(&mut client, "/few", "ann-new").expect_cause(RATE_LIMITED);
    ask(&mut client, "/gold", "ann-new").expect_cause(ACL_DENIED);
    assert!(weir.logged("reloaded").is_empty(), "{}", weir.stderr());
    // Mistakes change nothing, and everybody may know them but for the keys.
    for (content, told) in [
        ("", "`consumers` is missing"),
        ("consumers: { ann: { key_auth: [ secret-a ] }, own: {} }", "the config has a consumer `own` too"),
        ("consumers: { ann: { key_auth: [ house-1 ] } }", "`own` has the same credential"),
        ("consumers: { ann: { key_auth: [ secret-a ], plan: lead } }", "there is no plan"),
        ("consumers: { a: { key_auth: [ secret-a ] }, b: { key_auth: [ secret-a ] } }", "has the same key"),
        ("consumers: { ann: { key_auth: [ secret-a ]", "crm.yaml"),
    ] {
        replace(&weir, content);
        eventually(told, || status(&weir).contains(told));
        let status = status(&weir);
        assert!(status.contains("\"state\": \"kept\""), "{status}");
        assert!(!status.contains("secret-a") && !weir.stderr().contains("secret-a"), "{status}");
    }
    ask(&mut client, "/", "cid-key").expect_status(200);
    ask(&mut client, "/", "house-1").expect_status(200);
    weir.admin_client()
        .ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect_body_with("weir_consumer_source_consumers{");
    // A removed file neither.
    std::fs::remove_file(weir.dir().join("crm.yaml")).unwrap();
    eventually("it is missed", || status(&weir).contains("cannot be read"));
    ask(&mut client, "/", "cid-key").expect_status(200);
    replace(&weir, &format!("consumers: {{ ann: {{ key_auth: [ \"{ANN_NEW}\" ] }} }}"));
    eventually("it is back", || ask(&mut client, "/", "cid-key").status == 401);
}

/// A web server whose next answer tests set: a status line and fields, and a body.
#[derive(Clone, Default)]
struct Accounts(Arc<Mutex<(String, String)>>);

impl Accounts {
    fn says(&self, head: &str, body: &str) {
        *self.0.lock().unwrap() = (head.to_owned(), body.to_owned());
    }

    /// Answers every request; nothing while nothing is set.
    fn server(&self) -> Upstream {
        let said = Arc::clone(&self.0);
        Upstream::script(move |conn| {
            while let Some(request) = conn.next_request() {
                let (head, body) = said.lock().unwrap().clone();
                if head.is_empty() {
                    continue; // hangs
                }
                if request.head.header("if-none-match").is_some_and(|tag| head.contains(tag)) {
                    conn.send("HTTP/1.1 304 Not Modified\r\n\r\n");
                    continue;
                }
                let length = body.len();
                conn.send(format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\n\r\n{body}"));
            }
        })
    }
}

#[test]
fn a_web_server_is_followed() {
    let (upstream, accounts) = (Upstream::fixed(OK), Accounts::default());
    let server = accounts.server();
    let source = format!(
        "{{ http: {{ url: \"http://{}/consumers\", every: 100ms, timeout: 200ms, token: s3cret, cache: crm.cache }} }}",
        server.address()
    );
    let config = config(&upstream, &source);
    let weir = Weir::start(&config);
    let mut client = weir.client();
    // Until it has answered, who it may know is not told from who nobody knows.
    ask(&mut client, "/", "ann-key").expect_cause(CONSUMERS_UNAVAILABLE);
    ask(&mut client, "/", "house-1").expect_status(200);
    assert!(status(&weir).contains("\"state\": \"absent\""), "{}", status(&weir));
    accounts.says("200 OK\r\nETag: \"1\"", "{\"consumers\": {\"ann\": {\"key_auth\": [\"ann-key\"]}}}");
    eventually("ann is known", || ask(&mut client, "/", "ann-key").status == 200);
    ask(&mut client, "/", "nobody").expect_cause(KEY_UNKNOWN);
    accounts.says("304 Not Modified", "");
    server.forget();
    let asked = server.wait_requests(2).pop().unwrap();
    assert_eq!(asked.head.header("if-none-match"), Some("\"1\""));
    assert_eq!(asked.head.header("authorization"), Some("Bearer s3cret"));
    eventually("it is current", || status(&weir).contains("\"state\": \"current\""));
    for (head, body, told) in [
        ("500 Oh", "", "the answer has the status 500"),
        ("302 Found\r\nLocation: http://evil.test/", "", "redirects are not followed"),
        ("200 OK", "<html><body>log in</body></html>", "`consumers` is missing"),
        ("200 OK", "consumers: { bob: { key_auth: [ \"${HOME}\" ] } }", "holds a variable"),
        ("", "", "no answer in time"),
    ] {
        accounts.says(head, body);
        eventually(told, || status(&weir).contains(told));
        assert!(status(&weir).contains("\"state\": \"kept\"") && !status(&weir).contains("s3cret"));
        ask(&mut client, "/", "ann-key").expect_status(200);
    }
    weir.wait_log("consumers not read");
    assert!(!weir.stderr().contains("s3cret"), "{}", weir.stderr());
    // The next process begins with the cache, which only its user may read.
    let cache = weir.dir().join("crm.cache");
    assert_eq!(std::fs::metadata(&cache).unwrap().permissions().mode() & 0o777, 0o600);
    let other = Weir::start_by(&config, |dir| {
        std::fs::copy(&cache, dir.join("crm.cache")).unwrap();
        let mut command = weir_testkit::weir_command(dir);
        command.args(["run", "-c", "weir.yaml"]);
        command
    });
    ask(&mut other.client(), "/", "ann-key").expect_status(200);
    // Who is gone is refused, on the connection that is open.
    accounts.says("200 OK", "consumers: {}");
    eventually("ann is gone", || ask(&mut client, "/", "ann-key").status == 401);
    eventually("everywhere", || ask(&mut other.client(), "/", "ann-key").status == 401);
}

/// A source is known by its name and URL: another setting keeps its consumers, another URL does not, nor does the cache.
#[test]
fn the_old_servers_consumers_do_not_pass_at_the_new_one() {
    let (upstream, accounts) = (Upstream::fixed(OK), Accounts::default());
    let server = accounts.server();
    accounts.says("200 OK", "{\"consumers\": {\"ann\": {\"key_auth\": [\"ann-key\"]}}}");
    let with = |address: &str, more: &str| {
        config(&upstream, &format!("{{ http: {{ url: \"http://{address}/\", cache: crm.cache, {more} }} }}"))
    };
    let old = server.address().to_string();
    let weir = Weir::start(&with(&old, "every: 100ms, timeout: 200ms"));
    let mut client = weir.client();
    eventually("ann is known", || ask(&mut client, "/", "ann-key").status == 200);
    let cache = weir.dir().join("crm.cache");
    eventually("the cache is there", || cache.exists());
    // Another interval while the server is away.
    accounts.says("503 Away", "");
    weir.reload_with(&with(&old, "every: 150ms, timeout: 300ms, stale: 1h")).unwrap();
    ask(&mut client, "/", "ann-key").expect_status(200);
    eventually("it was asked", || status(&weir).contains("the answer has the status 503"));
    ask(&mut client, "/", "ann-key").expect_status(200);
    // Another URL, whose server is away: in the running process, and in the next one with the same cache.
    let nobody = Upstream::script(|conn| while conn.next_request().is_some() {});
    let new = with(&nobody.address().to_string(), "every: 100ms, timeout: 200ms");
    weir.reload_with(&new).unwrap();
    eventually("the old consumers are gone", || ask(&mut client, "/", "ann-key").status == 503);
    ask(&mut client, "/", "ann-key").expect_cause(CONSUMERS_UNAVAILABLE);
    let other = Weir::start_by(&new, |dir| {
        std::fs::copy(&cache, dir.join("crm.cache")).unwrap();
        let mut command = weir_testkit::weir_command(dir);
        command.args(["run", "-c", "weir.yaml"]);
        command
    });
    ask(&mut other.client(), "/", "ann-key").expect_cause(CONSUMERS_UNAVAILABLE);
    let told = other.wait_log("the cache of a source of consumers is not used");
    assert!(told.field("why").unwrap().contains("another URL"), "{told:?}");
    // Back at the old one, the cache is right again.
    weir.reload_with(&with(&old, "every: 100ms, timeout: 200ms")).unwrap();
    ask(&mut client, "/", "ann-key").expect_status(200);
}

/// The time of a confirmation reaches the cache, too, although the answer does not change.
#[test]
fn a_cache_is_as_fresh_as_the_last_confirmation() {
    let (upstream, accounts) = (Upstream::fixed(OK), Accounts::default());
    let server = accounts.server();
    accounts.says("200 OK\r\nETag: \"1\"", "consumers: { ann: { key_auth: [ ann-key ] } }");
    let source = format!(
        "{{ http: {{ url: \"http://{}/\", every: 50ms, timeout: 1s, stale: 500ms, cache: crm.cache }} }}",
        server.address()
    );
    let config = config(&upstream, &source);
    let weir = Weir::start(&config);
    let mut client = weir.client();
    eventually("ann is known", || ask(&mut client, "/", "ann-key").status == 200);
    let cache = weir.dir().join("crm.cache");
    let header = || std::fs::read_to_string(&cache).unwrap_or_default();
    eventually("the cache is there", || header().starts_with("weir-consumers 1\norigin "));
    let first = header();
    eventually("its time is written", || header() != first && header().ends_with("[ ann-key ] } }"));
    // Without the file, the server is asked for the whole answer again.
    std::fs::remove_file(&cache).unwrap();
    eventually("the cache is there again", || cache.exists());
    // A process that starts later than `stale` allows does not use it, and says why.
    accounts.says("503 Away", "");
    eventually("they are too old", || ask(&mut client, "/", "ann-key").status == 503);
    let other = Weir::start_by(&config, |dir| {
        std::fs::copy(&cache, dir.join("crm.cache")).unwrap();
        let mut command = weir_testkit::weir_command(dir);
        command.args(["run", "-c", "weir.yaml"]);
        command
    });
    ask(&mut other.client(), "/", "ann-key").expect_cause(CONSUMERS_UNAVAILABLE);
    let told = other.wait_log("the cache of a source of consumers is not used");
    assert!(told.field("why").unwrap().contains("older than"), "{told:?}");
}

#[test]
fn consumers_too_old_are_refused() {
    let (upstream, accounts) = (Upstream::fixed(OK), Accounts::default());
    let server = accounts.server();
    accounts.says("200 OK", "consumers: { ann: { key_auth: [ ann-key ] } }");
    let source = format!(
        "{{ http: {{ url: \"http://{}/\", every: 50ms, timeout: 1s, stale: 100ms }} }}",
        server.address()
    );
    let weir = Weir::start(&config(&upstream, &source));
    let mut client = weir.client();
    eventually("ann is known", || ask(&mut client, "/", "ann-key").status == 200);
    accounts.says("503 Away", "");
    eventually("they are too old", || ask(&mut client, "/", "ann-key").status == 503);
    ask(&mut client, "/", "house-1").expect_status(200);
    accounts.says("200 OK", "consumers: { ann: { key_auth: [ ann-key ] } }");
    eventually("ann is back", || ask(&mut client, "/", "ann-key").status == 200);
}

/// What a source refused because another had the consumer is read again when that one has changed.
#[test]
fn a_consumer_moves_from_one_source_to_another() {
    let upstream = Upstream::fixed(OK);
    let yaml = config(&upstream, "{ file: crm.yaml }, other: { file: other.yaml }");
    let weir = Weir::start_by(&yaml, |dir| {
        std::fs::write(dir.join("crm.yaml"), "consumers: { ann: { key_auth: [ ann-key ] } }\n").unwrap();
        std::fs::write(dir.join("other.yaml"), "consumers: { bob: { key_auth: [ bob-key ] } }\n").unwrap();
        let mut command = weir_testkit::weir_command(dir);
        command.args(["run", "-c", "weir.yaml"]);
        command
    });
    let mut client = weir.client();
    ask(&mut client, "/", "bob-key").expect_status(200);
    std::fs::write(weir.dir().join("other.new"), "consumers: { ann: { key_auth: [ ann-key ] } }\n").unwrap();
    std::fs::rename(weir.dir().join("other.new"), weir.dir().join("other.yaml")).unwrap();
    weir.wait_log("consumers not read"); // ann is still the other's
    replace(&weir, "consumers: {}\n");
    eventually("bob is gone", || ask(&mut client, "/", "bob-key").status == 401);
    eventually("ann is there again", || ask(&mut client, "/", "ann-key").status == 200);
}

#[test]
fn check_names_line_and_column() {
    let (dir, upstream) = (tempfile::tempdir().unwrap(), Upstream::fixed(OK));
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("weir.yaml", &config(&upstream, "{ file: crm.yaml }"));
    write(
        "crm.yaml",
        "consumers:\r\n  ann: { key_auth: [ house-1 ], plan: gold }\r\n  bob:\r\n    key_auth: [ \"\" ]\r\n    plan: lead\r\n  \
         cid: { basic_auth: [ \"cid:$apr1$x$y\" ], mtls_auth: [ \"dns:*\" ], jwt: [ x ] }\r\n  own: { oidc: [ y ] }\r\n",
    );
    let checked = run_weir(dir.path(), &["check"]);
    checked.expect_code(1);
    for text in [
        "crm.yaml:2:10: consumers.ann.key_auth: `own` has the same credential",
        "crm.yaml:4:17",
        "crm.yaml:5:11",
        "crm.yaml:6:24",
        "is a fast hash",
        "crm.yaml:6:56",
        "crm.yaml:7:3",
        "the config has a consumer `own` too",
    ] {
        checked.expect_text(text);
    }
    write("weir.yaml", &config(&upstream, "{ file: crm.yaml, http: { every: 0s } }"));
    run_weir(dir.path(), &["check"]).expect_code(1).expect_text("expected one of file and http");
    write("weir.yaml", &config(&upstream, "{ file: gone.yaml }"));
    run_weir(dir.path(), &["check"]).expect_code(1).expect_text("gone.yaml does not exist");
}

/// A table that is too small for the consumers of the sources forgets some of them, who begin anew.
#[test]
fn check_compares_the_keys_of_limits() {
    let (dir, upstream) = (tempfile::tempdir().unwrap(), Upstream::fixed(OK));
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let listed: String = (0..9).map(|n| format!("  c{n}: {{ key_auth: [ key-{n} ] }}\n")).collect();
    write("crm.yaml", &format!("consumers:\n{listed}"));
    let yaml = config(&upstream, "{ file: crm.yaml }");
    let limit = |more: &str| yaml.replace("per: 1h, by: consumer", more);
    for by in ["consumer", "\"{consumer} {host}\""] {
        write("weir.yaml", &limit(&format!("per: 1h, by: {by}, keys: 8")));
        let checked = run_weir(dir.path(), &["check"]);
        checked.expect_code(0).expect_text("[keys-below-consumers]").expect_text("write 16");
        checked.expect_text("8 is less than the 9 consumers of the sources");
    }
    for more in ["per: 1h, by: consumer, keys: 9", "per: 1h, by: address, keys: 8", "per: 1h"] {
        write("weir.yaml", &limit(more));
        let checked = run_weir(dir.path(), &["check"]);
        assert!(!format!("{checked:?}").contains("keys-below-consumers"), "{more}");
    }
}
