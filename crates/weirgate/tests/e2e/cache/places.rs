//! Two users, a stranger, and every filter that verifies callers, with caches in every position: for the whole
//! config, a plan or a route, in memory and on a disk. Nobody reads another's answer, and a refused caller reads
//! none.
//!
//! `pairs` covers pairs of filters. This file has the filters that need more than a request field, and the cases that
//! `pairs` cannot try: methods, ranges, stale answers, concurrent users, several caches with one store.

use std::fmt::Write as _;

use serde_json::json;
use tempfile::TempDir;
use weir_testkit::{Authority, Client, Response, Tls, Upstream, Weir, eventually};

use super::ask;
use super::callers::{secret, token};
use crate::login::{log_in_as, provider};
use crate::signature::Signing;
use crate::support::OK;

/// Positions of caches and filters. `W` is the filter that verifies callers, `G` one that refuses bob.
struct Layout {
    everywhere: &'static str,
    plan: &'static str,
    route: &'static str,
}

const CACHE: &str = "{ cache: { store: pages } }";
const SHARED: &str = "{ cache: { store: pages, key: [ shared ] } }";
const PUBLIC: &str = "{ cache: { store: pages, key: [] } }";
const STALE: &str = "{ cache: { store: pages, stale_while_revalidate: 1h, stale_if_error: 1h } }";
const NAMED: &str = "{ headers: { request: { set: { x-plan: \"{consumer}\" } } } }";

/// A route's filter replaces the one of that name in a plan.
const LAYOUTS: [Layout; 12] = [
    Layout { everywhere: "", plan: "", route: "W, CACHE" },
    Layout { everywhere: "", plan: "", route: "CACHE, W" },
    Layout { everywhere: "CACHE", plan: "CACHE", route: "W" },
    Layout { everywhere: "CACHE", plan: "", route: "W, CACHE" },
    Layout { everywhere: "STALE", plan: "", route: "{ mirror: { upstream: sink } }, W, STALE" },
    Layout { everywhere: "", plan: "STALE", route: "W, { mirror: { upstream: sink } }" },
    Layout { everywhere: "", plan: "NAMED", route: "W, CACHE, CACHE" },
    Layout { everywhere: "", plan: "CACHE, NAMED", route: "W" },
    Layout { everywhere: "SHARED", plan: "SHARED", route: "W, G" },
    Layout { everywhere: "SHARED", plan: "", route: "SHARED, W, SHARED, G, SHARED" },
    Layout { everywhere: "PUBLIC", plan: "PUBLIC", route: "W, G" },
    Layout { everywhere: "PUBLIC", plan: "", route: "PUBLIC, W, G, PUBLIC" },
];

impl Layout {
    fn filters(text: &str, who: &str) -> String {
        let parts = [
            ("CACHE", CACHE),
            ("SHARED", SHARED),
            ("PUBLIC", PUBLIC),
            ("STALE", STALE),
            ("NAMED", NAMED),
            ("G", "{ acl: { is: 'consumer.name != \"bob\"' } }, { ip: { allow: [ 127.0.0.0/8 ] } }"),
            ("W", who),
        ];
        let filters = text
            .split(", ")
            .map(|part| parts.iter().find(|(name, _)| *name == part).map_or(part, |(_, filter)| *filter));
        filters.collect::<Vec<_>>().join(", ")
    }

    /// Whether callers share answers.
    fn shares(&self) -> bool {
        matches!(self.everywhere, "SHARED" | "PUBLIC")
    }

    fn refuses_bob(&self) -> bool {
        self.route.contains('G')
    }
}

/// The filters that verify callers, by the paths of their routes.
fn verifiers(provider: &Upstream) -> Vec<(&'static str, String)> {
    let oidc = |more: &str| {
        format!(
            "{{ oidc: {{ issuer: \"http://{}\", client_id: app, client_secret: s, redirect: \"https://weir.test/oidc/cb\", {more} }} }}",
            provider.address()
        )
    };
    let jwt = format!("jwt: {{ secret: \"{}\", cookie: token, hide: true, consumer: sub }}", secret());
    vec![
        ("key", "{ key_auth: { consumer_header: x-consumer } }".to_owned()),
        ("mtls", "{ mtls_auth: {} }".to_owned()),
        ("forwarded", "{ mtls_auth: { forward: true } }".to_owned()),
        ("signed", "{ signature_auth: {} }".to_owned()),
        ("oidc", oidc("consumer: sub")),
        ("claims", oidc("headers: { x-user: sub }")),
        ("jwt", format!("{{ {jwt} }}")),
        (
            "any",
            format!(
                "{{ any: [ {{ key_auth: {{ header: x-other }} }}, {{ {jwt} }}, {{ mtls_auth: {{}} }} ] }}"
            ),
        ),
    ]
}

/// Returns each request, cacheable by everyone. Answers below `/old/` are stale on arrival, and an error when
/// requested again.
fn shows_requests() -> Upstream {
    Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let left_out = ["x-forwarded-for", "forwarded"];
            let shown = request
                .head
                .headers
                .iter()
                .filter(|(name, _)| !left_out.contains(&&*name.to_ascii_lowercase()));
            let mut body = request.head.line.clone();
            shown.for_each(|(name, value)| body.push_str(&format!("\n{name}: {value}")));
            let (status, old) = match request.head.line.contains("/old/") {
                true if request.head.header("if-none-match").is_some() => {
                    ("503 Service Unavailable", "Age: 100\r\n")
                }
                true => ("200 OK", "Age: 100\r\n"),
                false => ("200 OK", ""),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nCache-Control: max-age=60, public\r\nETag: \"e\"\r\n{old}Content-Length: {}\r\n\r\n",
                body.len()
            );
            if conn.try_send([head, body].concat()).is_err() {
                return;
            }
        }
    })
}

struct User {
    name: &'static str,
    key: Signing,
    /// The fields of every request except those of a signature. One that no filter reads names the requesting user.
    fields: String,
}

impl User {
    fn new(name: &'static str, key_id: &'static str, session: &str) -> Self {
        let token = token(&json!({ "sub": name, "exp": i64::MAX / 2 }));
        let fields =
            format!("X-Mark: {name}\r\nX-API-Key: {name}-key\r\nCookie: token={token}; {session}\r\n");
        Self { name, key: Signing::new(key_id), fields }
    }

    /// A request with all of this user's credentials.
    fn request(&self, who: &str, method: &str, target: &str, more: &str) -> String {
        let head = match who {
            "signed" => self.key.head(method, "weir.test", target, b""),
            _ => format!("{method} {target} HTTP/1.1\r\nHost: weir.test\r\n"),
        };
        format!("{head}{}{more}\r\n", self.fields)
    }
}

#[test]
fn nobody_reads_what_was_answered_to_another() {
    let (up, sink, provider) = (shows_requests(), Upstream::fixed(OK), provider());
    let (authority, clients) = (Authority::new(), Authority::new());
    let verifiers = verifiers(&provider);
    let mut users = [User::new("alice", "alice-id", ""), User::new("bob", "bob-id", "")];
    let certificates = ["alice", "bob"].map(|name| clients.client_for(name, &[&format!("{name}.internal")]));
    let mut logged_in = false;
    let (mut answers, mut hits, mut wrong) = (0, 0, Vec::new());
    for (at, layout) in LAYOUTS.iter().enumerate() {
        let folder = TempDir::new().unwrap();
        let disk = match at % 2 {
            0 => format!(", disk: {{ path: {}, size: 64MiB }}", folder.path().display()),
            _ => String::new(),
        };
        let hedge = if at % 3 == 0 { ", hedge: { after: 1ms, budget: 100% }" } else { "" };
        let consumers = users.iter().map(|user| {
            let (name, pem) = (user.name, user.key.public_pem().replace('\n', "\\n"));
            format!(
                "{name}: {{ plan: all, key_auth: [ {name}-key ], jwt: [ {name} ], mtls_auth: [ \"dns:{name}.internal\" ], \
                 oidc: [ {name} ], signature_auth: [ {{ key_id: {name}-id, algorithm: ed25519, key: \"{pem}\" }} ] }}"
            )
        });
        let mut config = format!(
            "listeners:\n  web: {{ address: 127.0.0.1:0 }}\n  \
             tls: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {} ], client_auth: {{ ca: {}, mode: optional }} }} }}\n\
             workers: 2\nstores: {{ pages: {{ memory: 16MiB{disk} }} }}\nfilters: [ {} ]\nplans: {{ all: {{ filters: [ {} ] }} }}\n\
             consumers: {{ {} }}\nupstreams:\n  up: {{ endpoints: [{up}, {up}]{hedge} }}\n  \
             sink: {{ endpoints: [{}] }}\nroutes:\n",
            authority.leaf(&["weir.test"]).yaml(),
            clients.file().display(),
            Layout::filters(layout.everywhere, ""),
            Layout::filters(layout.plan, ""),
            consumers.collect::<Vec<_>>().join(", "),
            sink.address(),
            up = up.address(),
        );
        for (who, filter) in &verifiers {
            let filters = Layout::filters(layout.route, filter);
            let _ = writeln!(
                config,
                "  {who}: {{ match: {{ path: \"/{who}/*\" }}, filters: [ {filters} ], upstream: up }}"
            );
        }
        let weir = Weir::start(&config);
        if !logged_in {
            for user in &mut users {
                let (session, _) = log_in_as(&weir, "/oidc/", "/oidc/cb", user.name);
                user.fields = user.fields.replace("; \r\n", &format!("; {session}\r\n"));
            }
            logged_in = true;
        }
        let plain = [(); 3].map(|()| weir.client());
        let [of_alice, of_bob] =
            [0, 1].map(|at| Tls::new(&authority, "weir.test").identity(&certificates[at]));
        let stranger = Tls::new(&authority, "weir.test");
        let shown = [of_alice, of_bob, stranger].map(|tls| Client::connect_tls(weir.address("tls"), &tls));
        let [mut plain, mut shown] = [plain, shown];
        for (who, _) in &verifiers {
            let shows = matches!(*who, "mtls" | "forwarded");
            let clients = if shows { &mut shown } else { &mut plain };
            let mut look = |user: usize, said: &str, response: &Response| {
                let told = text(response);
                let passed = response.status < 300;
                answers += usize::from(passed);
                hits += usize::from(told.contains("weir; hit"));
                let refused = user == 2 || (user == 1 && layout.refuses_bob() && *who != "claims");
                if refused && passed {
                    wrong.push(format!("{at} {who} {said}: user {user} is not refused\n{told}"));
                }
                let other = ["bob", "alice"].get(user);
                if other.is_some_and(|other| told.contains(other)) && !layout.shares() {
                    wrong.push(format!("{at} {who} {said}: user {user} reads\n{told}"));
                }
            };
            for folder in ["new", "old"] {
                for (method, more) in
                    [("GET", ""), ("GET", ""), ("HEAD", ""), ("GET", "Range: bytes=0-9999\r\n")]
                {
                    let target = format!("/{who}/{folder}/a");
                    for (user, client) in clients.iter_mut().enumerate() {
                        match users.get(user) {
                            Some(known) => client.send(known.request(who, method, &target, more)),
                            None => client
                                .send(format!("{method} {target} HTTP/1.1\r\nHost: weir.test\r\n{more}\r\n")),
                        }
                        let response = match method {
                            "HEAD" => client.read_response_to_head(),
                            _ => client.read_response(),
                        };
                        look(user, &format!("{method} {target} {more}"), &response);
                    }
                }
            }
            // Both users and the stranger concurrently.
            let target = format!("/{who}/new/together");
            for (user, client) in clients.iter_mut().enumerate() {
                match users.get(user) {
                    Some(known) => client.send(known.request(who, "GET", &target, "")),
                    None => client.send(format!("GET {target} HTTP/1.1\r\nHost: weir.test\r\n\r\n")),
                }
            }
            for (user, client) in clients.iter_mut().enumerate() {
                look(user, "together", &client.read_response());
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {answers}:\n{}", wrong.len(), wrong[..wrong.len().min(6)].join("\n\n"));
    // The test proves nothing if no request passes, or nothing is stored.
    let all = LAYOUTS.len() * verifiers.len() * 18;
    assert!(answers * 10 > all * 7, "{answers} of {all} were answered");
    assert!(hits * 10 > all * 2, "{hits} of {all} were hits");
}

fn text(response: &Response) -> String {
    let head: Vec<String> =
        response.head.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!("{}\n{}\n{}", response.status, head.join("\n"), response.text())
}

/// Two caches with one store: the one in front of a filter that refuses callers never serves objects of the one
/// behind it.
#[test]
fn a_cache_before_a_guard_serves_nothing_from_behind_it() {
    let upstream = shows_requests();
    let config = |everywhere: &str, route: &str| {
        format!(
            "{}\nworkers: 1\ntrusted_proxies: [ 127.0.0.0/8 ]\nstores: {{ pages: {{ memory: 4MiB }} }}\nfilters: [ {everywhere} ]\n\
             consumers: {{ alice: {{ key_auth: [ alice-key ] }} }}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\n\
             routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {route} ], upstream: up }} }}",
            crate::support::WEB,
            upstream.address()
        )
    };
    let (ip, key) = ("{ ip: { allow: [ 192.0.2.1 ] } }", "{ key_auth: {} }");
    // With coalescing, a cache that shares keys with an earlier one would wait for a fetch by its own request.
    let alone = &*CACHE.replace("pages", "pages, coalesce: false");
    for (cache, guard) in [(CACHE, ip), (alone, ip), (SHARED, ip), (SHARED, key), (PUBLIC, key)] {
        for (everywhere, route) in [
            (cache.to_owned(), format!("{guard}, {cache}")),
            (String::new(), format!("{cache}, {guard}, {cache}")),
        ] {
            let weir = Weir::start(&config(&everywhere, &route));
            let mut client = weir.client();
            let known = "X-Forwarded-For: 192.0.2.1\r\nX-API-Key: alice-key\r\n";
            ask(&mut client, "GET /", known).expect_status(200);
            let again = ask(&mut client, "GET /", known);
            assert!(again.header("cache-status").unwrap_or_default().contains("hit"), "{again:?}");
            let stranger = ask(&mut client, "GET /", "X-Forwarded-For: 192.0.2.2\r\n");
            assert!(matches!(stranger.status, 401 | 403), "{cache} {guard}: {stranger:?}");
        }
        // Nor objects that it stored itself while it was behind the filter.
        let weir = Weir::start(&config("", &format!("{guard}, {cache}")));
        let known = "X-Forwarded-For: 192.0.2.1\r\nX-API-Key: alice-key\r\n";
        ask(&mut weir.client(), "GET /", known).expect_status(200);
        let now = "{ headers: { response: { set: { x-now: before } } } }";
        weir.reload_with(&config("", &format!("{now}, {cache}, {guard}"))).unwrap();
        let stranger = || ask(&mut weir.client(), "GET /", "X-Forwarded-For: 192.0.2.2\r\n");
        eventually("it stands before it", || stranger().header("x-now").is_some());
        assert!(matches!(stranger().status, 401 | 403), "{cache} {guard}");
    }
}

/// A plan's cache may be in front of a filter that another cache is behind, although both requests passed equally
/// many filters.
#[test]
fn a_cache_of_a_plan_serves_nothing_from_behind_a_later_guard() {
    let upstream = shows_requests();
    let weir = Weir::start(&format!(
        "{}\nworkers: 1\nstores: {{ pages: {{ memory: 4MiB }} }}\n\
         filters: [ {{ key_auth: {{}} }}, {{ acl: {{ deny: [ bob ] }} }}, {SHARED} ]\n\
         plans: {{ one: {{ filters: [ {{ ip: {{ allow: [ 127.0.0.0/8 ] }} }}, {SHARED} ] }} }}\n\
         consumers: {{ alice: {{ key_auth: [ alice-key ] }}, bob: {{ key_auth: [ bob-key ], plan: one }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, upstream: up }} }}",
        crate::support::WEB,
        upstream.address()
    ));
    let mut client = weir.client();
    ask(&mut client, "GET /", "X-API-Key: alice-key\r\n").expect_status(200);
    ask(&mut client, "GET /", "X-API-Key: bob-key\r\n").expect_status(403);
}
