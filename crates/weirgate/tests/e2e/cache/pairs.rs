//! Every ordered pair of filters around a cache, with two users: whatever the filters do to a request, neither user
//! reads the other's answer.
//!
//! The routes are generated: each pair in front of the cache, around it, and behind it. The upstream returns each
//! request and declares everything cacheable. All values of a user contain the user's name or address.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use weir_testkit::{Client, Response, Upstream, Weir, run_weir};

use super::ask;
use super::callers::{secret, token};
use crate::support::WEB;

/// A filter in the routes, and the fields that users send for it.
struct Subject {
    name: &'static str,
    settings: String,
    sends: fn(&User) -> String,
}

struct User {
    name: &'static str,
    address: &'static str,
    /// Base64 of `NAME:password`.
    pair: &'static str,
}

const ALICE: User = User { name: "alice", address: "192.0.2.1", pair: "YWxpY2U6cGFzc3dvcmQ=" };
const BOB: User = User { name: "bob", address: "192.0.2.2", pair: "Ym9iOnBhc3N3b3Jk" };

/// Filters that are in no pair, with the reason.
const LEFT_OUT: [(&str, &str); 12] = [
    ("cache", "it is in all of them"),
    ("connect", "its calls are POST, or GET with all of the message in the query"),
    ("grpc_json", "its calls go to a gRPC service, which no cache keeps"),
    ("grpc_web", "its calls are POST"),
    ("mtls_auth", "needs TLS: see the room callers"),
    ("oidc", "needs a provider: see the room login"),
    ("redirect", "answers everything itself"),
    ("redirects", "says nothing of the client, and changes no request"),
    ("respond", "answers everything itself"),
    ("sign", "says nothing of the client, and runs for each attempt"),
    ("signature_auth", "names a consumer as key_auth does; each request needs a signature of its own"),
    ("validate", "says nothing of the client, and changes no request"),
];

fn subjects() -> Vec<Subject> {
    fn nothing(_: &User) -> String {
        String::new()
    }
    let plain =
        |name: &'static str, settings: &str| Subject { name, settings: settings.to_owned(), sends: nothing };
    let with = |name: &'static str, settings: &str, sends: fn(&User) -> String| Subject {
        name,
        settings: settings.to_owned(),
        sends,
    };
    let key: fn(&User) -> String = |user| format!("X-API-Key: {}-key\r\n", user.name);
    let bearer: fn(&User) -> String = |user| {
        let claims = serde_json::json!({ "sub": user.name, "exp": i64::MAX / 2 });
        format!("X-Token: {}\r\n", token(&claims))
    };
    let jwt = format!("secret: \"{}\", header: x-token, headers: {{ x-user: sub }}", secret());
    vec![
        plain("acl", "{ deny: [ bob ] }"),
        with(
            "any",
            &format!("[ {{ key_auth: {{ header: x-other-key }} }}, {{ jwt: {{ {jwt}, hide: true }} }} ]"),
            bearer,
        ),
        with("basic_auth", "{ consumer_header: x-consumer }", |user| {
            format!("Authorization: Basic {}\r\n", user.pair)
        }),
        plain("body_limit", "{ max: 1KiB }"),
        plain("buffer", "{ request: 1KiB, response: 1MiB }"),
        plain("circuit_breaker", "{ errors: 50%, minimum: 1000000, window: 10s, open: 15s }"),
        plain("compress", "{}"),
        plain("concurrency", "{ requests: 100 }"),
        plain("cookies", "{ \"*\": { secure: true, path: remove } }"),
        with("cors", "{ origins: [ \"https://*.test\" ], credentials: true }", |user| {
            format!("Origin: https://{}.test\r\n", user.name)
        }),
        plain("errors", "{ 404: { body: \"{client} was here\" }, upstream: [ 404 ] }"),
        with("ext_proc", "{ upstream: processor, timeout: 10s }", |user| {
            format!("X-Session: {}\r\n", user.name)
        }),
        plain("fault", "{ share: 0%, status: 503 }"),
        with(
            "forward_auth",
            "{ upstream: auth, copy_request: [ x-session ], copy: [ x-user ], copy_response: [ x-hello ] }",
            |user| format!("X-Session: {}\r\n", user.name),
        ),
        plain(
            "headers",
            "{ request: { set: { x-client: \"{client}\", x-consumer: \"{consumer}\" } }, response: { set: { x-was: \"{client} {consumer}\" } } }",
        ),
        with(
            "headers",
            "{ request: { set: { x-name: \"{= request.cookies.user }\" } }, response: { set: { x-named: \"{= request.cookies.user }\", x-from: '= client.ip' } } }",
            |user| format!("Cookie: user={}\r\n", user.name),
        ),
        plain("ip", "{ allow: [ 192.0.2.1 ] }"),
        with("jwt", &format!("{{ {jwt}, hide: true }}"), bearer),
        with("key_auth", "{ consumer_header: x-consumer }", key),
        plain("log_body", "{}"),
        with("maintenance", "{ allow_headers: { x-preview: alice-of-staff } }", |user| {
            format!("X-Preview: {}-of-staff\r\n", user.name)
        }),
        plain("mirror", "{ upstream: sink }"),
        plain("rate_limit", "{ requests: 100000, per: 1m, by: \"{client} {host}\" }"),
        plain("replace", "{ types: [ \"*/*\" ], text: { zzzz: y } }"),
        plain("request_id", "{}"),
        plain("rewrite", "{ query: { set: { for: \"{client}{consumer}\" } } }"),
        plain("security_headers", "{}"),
        plain("timeout", "{ exchange: 30s }"),
        with(
            "transform",
            "{ request: \"= request.body\", response: { of: \"= request.cookies.user\", at: \"{= client.ip }\", data: \"= response.body\" } }",
            |user| format!("Cookie: user={}\r\n", user.name),
        ),
        plain(
            "when",
            "{ is: 'client.ip in [\"192.0.2.1\"]', filters: [ { headers: { request: { set: { x-way: alice } } } } ], \
             otherwise: [ { headers: { response: { set: { x-way: bob } } } } ] }",
        ),
        with(
            "when",
            "{ is: 'request.cookies.user == \"alice\"', filters: [ { headers: { response: { set: { x-way: alice } } } } ], \
             otherwise: [ { headers: { request: { set: { x-way: bob } } } } ] }",
            |user| format!("Cookie: user={}\r\n", user.name),
        ),
    ]
}

/// Position of the cache: before both, between them, behind both.
const PLACES: [usize; 3] = [0, 1, 2];

fn config(subjects: &[Subject], upstreams: [&Upstream; 4]) -> String {
    let [up, auth, sink, processor] = upstreams.map(Upstream::address);
    let consumer = |user: &User| {
        let hash = "$2b$04$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm";
        format!("{0}: {{ key_auth: [ {0}-key ], basic_auth: [ \"{0}:{hash}\" ] }}", user.name)
    };
    let mut config = format!(
        "{WEB}\nworkers: 2\ntrusted_proxies: [ 127.0.0.0/8 ]\nstores: {{ pages: {{ memory: 64MiB }} }}\n\
         consumers: {{ {}, {} }}\n\
         upstreams: {{ up: {{ endpoints: [{up}] }}, auth: {{ endpoints: [{auth}] }}, sink: {{ endpoints: [{sink}] }}, \
         processor: {{ endpoints: [{processor}], protocol: h2c }} }}\nroutes:\n",
        consumer(&ALICE),
        consumer(&BOB)
    );
    for (a, first) in subjects.iter().enumerate() {
        for (b, second) in
            subjects.iter().enumerate().filter(|(b, second)| a != *b && may_stand(first.name, second.name))
        {
            for place in PLACES {
                let mut filters = vec![first, second]
                    .into_iter()
                    .map(|subject| format!("{{ {}: {} }}", subject.name, subject.settings))
                    .collect::<Vec<_>>();
                filters.insert(place, "{ cache: { store: pages } }".to_owned());
                let _ = writeln!(
                    config,
                    "  r{a}-{b}-{place}: {{ match: {{ path: /{a}/{b}/{place} }}, filters: [ {} ], upstream: up }}",
                    filters.join(", ")
                );
            }
        }
    }
    config
}

/// Returns the request without the client's address, which every upstream gets, and without `Origin`, which no filter
/// verifies: a service that depends on it sends `Vary`.
fn mirror_of_requests() -> Upstream {
    Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let left_out = ["x-forwarded-for", "x-real-ip", "forwarded", "origin"];
            let shown = request
                .head
                .headers
                .iter()
                .filter(|(name, _)| !left_out.contains(&&*name.to_ascii_lowercase()));
            let mut body = request.head.line.clone();
            shown.for_each(|(name, value)| body.push_str(&format!("\n{name}: {value}")));
            let body = serde_json::json!(body).to_string();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: max-age=600\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            if conn.try_send([head, body].concat()).is_err() {
                return;
            }
        }
    })
}

/// Admits requests with a session, and names its user.
fn service() -> Upstream {
    Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let user = request.head.header("x-session").unwrap_or("nobody").to_owned();
            let answer = format!("HTTP/1.1 204 No Content\r\nX-User: {user}\r\nX-Hello: {user}\r\n\r\n");
            if conn.try_send(answer).is_err() {
                return;
            }
        }
    })
}

fn text(response: &Response) -> String {
    let head: Vec<String> =
        response.head.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!("{}\n{}", head.join("\n"), response.text())
}

#[test]
fn no_pair_of_filters_serves_one_user_to_another() {
    let subjects = subjects();
    let (up, auth, sink) = (mirror_of_requests(), service(), Upstream::fixed(crate::support::OK));
    let processor = crate::ext_proc::names_the_user();
    let weir = Weir::start(&config(&subjects, [&up, &auth, &sink, &processor]));
    let mut clients: [Client; 2] = [weir.client(), weir.client()];
    let (mut answers, mut hits, mut mixed) = (0, 0, Vec::new());
    for (a, first) in subjects.iter().enumerate() {
        for (b, second) in
            subjects.iter().enumerate().filter(|(b, second)| a != *b && may_stand(first.name, second.name))
        {
            for place in PLACES {
                for round in 0..2 {
                    for ((user, other), client) in
                        [(&ALICE, &BOB), (&BOB, &ALICE)].into_iter().zip(&mut clients)
                    {
                        let mut fields = format!("X-Forwarded-For: {}\r\n", user.address);
                        let (of_first, of_second) = ((first.sends)(user), (second.sends)(user));
                        fields.push_str(&of_first);
                        if of_second != of_first {
                            fields.push_str(&of_second);
                        }
                        let response = ask(client, &format!("GET /{a}/{b}/{place}"), &fields);
                        let told = text(&response);
                        answers += usize::from(response.status == 200);
                        hits += usize::from(round == 1 && told.contains("weir; hit"));
                        let refused = user.name == BOB.name && refuses_bob(first.name, second.name);
                        if refused && response.status == 200 {
                            mixed.push(format!(
                                "{} {} {place}: bob is not refused\n{told}",
                                first.name, second.name
                            ));
                        }
                        if told.contains(other.name) || told.contains(other.address) {
                            mixed.push(format!(
                                "{} {} {place}: {} reads\n{told}",
                                first.name, second.name, user.name
                            ));
                        }
                    }
                }
            }
        }
    }
    assert!(mixed.is_empty(), "{} of {answers}:\n{}", mixed.len(), mixed[..mixed.len().min(5)].join("\n\n"));
    // The test proves nothing if no request passes, or nothing is stored.
    let all = subjects.len() * (subjects.len() - 1) * PLACES.len() * 4;
    assert!(answers * 100 > all * 85, "{answers} of {all} were answered");
    assert!(hits * 100 > all / 2 * 40, "{hits} of {} second requests were hits", all / 2);
}

/// Whether a config may have them in this order: no preflight would reach a `cors` behind a filter that requires
/// credentials.
fn may_stand(first: &str, second: &str) -> bool {
    let asks = first.ends_with("_auth") || matches!(first, "acl" | "any" | "jwt");
    second != "cors" || !asks
}

/// Whether one of two filters refuses bob.
fn refuses_bob(first: &str, second: &str) -> bool {
    let names = matches!(first, "basic_auth" | "key_auth");
    [first, second].iter().any(|name| matches!(*name, "ip" | "maintenance")) || (names && second == "acl")
}

/// A new filter must be listed here: with the fields that users send for it, or with the reason why it cannot mix up
/// users.
#[test]
fn every_filter_is_in_a_pair_or_left_out_for_a_reason() {
    let dir = tempfile::TempDir::new().unwrap();
    let listed = run_weir(dir.path(), &["filters"]);
    let there: BTreeSet<String> =
        listed.stdout.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    let known = subjects().into_iter().map(|subject| subject.name).chain(LEFT_OUT.map(|(name, _)| name));
    let known: BTreeSet<String> = known.map(str::to_owned).collect();
    assert_eq!(there, known);
}
