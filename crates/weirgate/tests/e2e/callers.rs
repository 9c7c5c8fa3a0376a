//! Which clients may call, as they see it. Each filter's own file tests its details.

use weir_testkit::{Authority, Client, Pty, Tls, Upstream, Weir, eventually, run_weir, weir_command};

use crate::cause::{
    BASIC_BUSY, BASIC_MISSING, BASIC_WRONG, CERTIFICATE_MISSING, IP_DENIED, KEY_MISSING, KEY_TWICE,
    KEY_UNKNOWN, NO_ROUTE,
};
use crate::support::{OK, WEB};

/// The file is watched: a change takes effect without a reload, and an invalid one changes nothing.
#[test]
fn ip_from_a_watched_file() {
    let upstream = Upstream::fixed(OK);
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("blocked.txt");
    std::fs::write(&file, "192.0.2.0/24\n").unwrap();
    let weir = Weir::start(&format!(
        "{WEB}\nwatch: true\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  all: {{ match: {{ path: \"/*\" }}, filters: [ {{ ip: {{ deny_file: \"{}\" }} }} ], upstream: up }}",
        upstream.address(),
        file.display()
    ));
    weir.client().get("/").expect_status(200);
    std::fs::write(&file, "192.0.2.0/24\n127.0.0.0/8 # this machine\n").unwrap();
    eventually("the client is blocked", || weir.client().get("/").status == 403);
    weir.client().get("/").expect_cause(IP_DENIED);
    std::fs::write(&file, "nonsense\n").unwrap();
    weir.wait_log("reload refused");
    weir.client().get("/").expect_cause(IP_DENIED);
}

/// Two users take turns on one connection. A reload revokes the key of one, whose name another key then has, and gives
/// the other a plan.
#[test]
fn users_of_one_connection_are_told_apart_across_a_reload() {
    let upstream = Upstream::fixed(OK);
    let config = |consumers: &str| {
        format!(
            "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\n{consumers}\nroutes:\n  all:\n    match: {{ path: \"/*\" }}\n    \
             filters: [ {{ key_auth: {{ consumer_header: x-who }} }}, {{ rate_limit: {{ requests: 100, per: 1h, by: consumer }} }} ]\n    upstream: up\n",
            upstream.address()
        )
    };
    let weir = Weir::start(&config(
        "consumers: { ann: { key_auth: [ a-key-of-some-length-1 ] }, bob: { key_auth: [ a-key-of-some-length-2 ] } }",
    ));
    let mut client = weir.client();
    let mut turn = |key: &str, who: Option<(&str, u32)>, tier: Option<&str>| {
        let answer = client.ask(format!(
            "GET / HTTP/1.1\r\nHost: weir.test\r\nX-Api-Key: a-key-of-some-length-{key}\r\nA: 1\r\nX-Who: me\r\n\r\n"
        ));
        let Some((name, left)) = who else {
            answer.expect_cause(KEY_UNKNOWN);
            return;
        };
        let limit = answer.expect_status(200).head.header("ratelimit").unwrap_or_default();
        assert!(limit.starts_with(&format!("\"default\";r={left};t=")), "{key}: {limit}");
        let head = upstream.take_request().head;
        assert_eq!(
            (head.all("x-who"), head.header("x-api-key"), head.header("a")),
            (vec![name], None, Some("1"))
        );
        assert_eq!(head.header("x-tier"), tier);
    };
    for left in [99, 98] {
        turn("1", Some(("ann", left)), None);
        turn("2", Some(("bob", left)), None);
        turn("3", None, None);
    }
    weir.reload_with(&config(
        "consumers: { ann: { key_auth: [ a-key-of-some-length-3 ] }, bob: { key_auth: [ a-key-of-some-length-2 ], plan: gold } }\n\
         plans: { gold: { filters: [ { headers: { request: { set: { x-tier: gold } } } } ] } }",
    ))
    .unwrap();
    for left in [97, 96] {
        turn("1", None, None);
        turn("2", Some(("bob", left)), Some("gold"));
        turn("3", Some(("ann", left)), None);
    }
}

/// Keys follow their file; an invalid file changes nothing.
#[test]
fn keys_from_a_watched_file() {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("keys.txt");
    std::fs::write(&file, "shop the-old-key\n").unwrap();
    let weir = Weir::start(&format!(
        "{WEB}\nwatch: true\nconsumers: {{ shop: {{}} }}\nroutes:\n  all: {{ match: {{ path: \"/*\" }}, filters: [ {{ key_auth: {{ file: \"{}\" }} }} ], respond: {{ body: ok }} }}",
        file.display()
    ));
    let ask = |key: &str| {
        weir.client().ask(format!("GET / HTTP/1.1\r\nHost: weir.test\r\nX-Api-Key: {key}\r\n\r\n"))
    };
    ask("the-old-key").expect_status(200);
    ask("the-new-key").expect_cause(KEY_UNKNOWN);
    std::fs::write(&file, "shop the-old-key\nshop the-new-key # rotated\n").unwrap();
    eventually("both count", || ask("the-new-key").status == 200);
    ask("the-old-key").expect_status(200);
    std::fs::write(&file, "shop the-new-key\n").unwrap();
    eventually("the old one is gone", || ask("the-old-key").status == 401);
    std::fs::write(&file, "shop the-new-key\nnobody another-key\n").unwrap();
    weir.wait_log("reload refused");
    ask("the-new-key").expect_status(200);
    ask("another-key").expect_cause(KEY_UNKNOWN);
}

/// Nothing behind the filter, and no log, sees a key in the path; it opens only its own routes.
#[test]
fn a_key_in_the_path_stays_here() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "{WEB}\naccess_log: {{ output: stdout, format: json }}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         consumers: {{ shop: {{ key_auth: [ \"the+key\" ] }} }}\nroutes:\n  \
         spot: {{ match: {{ path: \"/spot/*\" }}, filters: [ {{ key_auth: {{ path: true, query: key }} }} ], upstream: up }}\n  \
         admin: {{ match: {{ path: /spot/admin }}, respond: {{ status: 451 }} }}\n  \
         homes: {{ match: {{ path: \"/~bob/*\" }}, upstream: up }}",
        upstream.address()
    ));
    let mut client = weir.client();
    for target in
        ["/spot/~the+key/price?a=1", "/spot/%7Ethe%2Bkey/price?a=1", "/spot/price?a=1&key=the%2Bkey"]
    {
        client.get(target).expect_status(200);
        assert_eq!(upstream.take_request().head.line, "GET /spot/price?a=1 HTTP/1.1");
    }
    // The route of /spot/admin takes no key from the path, so the route for everything below /spot finds none.
    client.get("/spot/~the+key/admin").expect_cause(KEY_MISSING);
    client.get("/spot/price").expect_cause(KEY_MISSING);
    client.get("/spot/~wrong/price").expect_cause(KEY_UNKNOWN);
    client.get("/typo/~the+key/price").expect_cause(NO_ROUTE);
    for twice in
        ["/spot/~the+key/~the+key/price", "/spot/~the+key/%7ethe%2Bkey", "/spot/~wrong/~the+key/price"]
    {
        weir.client().get(twice).expect_cause(KEY_TWICE); // which ends the connection
    }
    // A browser sends the key in its Referer, also to routes that take none.
    for (target, passes) in [("/spot/~the+key/price", true), ("/~bob/index.html", true), ("/typo/%00", false)]
    {
        let referer = "https://weir.test/spot/~the+key/price?key=the%2Bkey&b=1";
        client.ask(format!("GET {target} HTTP/1.1\r\nHost: weir.test\r\nReferer: {referer}\r\n\r\n"));
        if passes {
            let seen = upstream.take_request().head.header("referer").map(str::to_owned);
            assert_eq!(seen.as_deref(), Some("https://weir.test/spot/~***/price?key=***&b=1"));
        }
    }
    let mut client = weir.client(); // a malformed path ended the connection
    client.get("/~bob/index.html").expect_status(200);
    assert_eq!(upstream.take_request().head.line, "GET /~bob/index.html HTTP/1.1");
    client.get("/end").expect_cause(NO_ROUTE);
    weir.wait_stdout("/end");
    let log = weir.stdout();
    assert!(log.contains("\"uri\":\"/spot/~***/price?a=1\"") && log.contains("key=***"), "{log}");
    assert!(log.contains("\"credential\":\""), "{log}");
    assert!(!log.contains("the+key") && !log.contains("the%2Bkey"), "{log}");
}

/// One of several is enough; wrong credentials are reported as wrong, missing ones as missing.
#[test]
fn any_of_several() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nconsumers: {{ shop: {{ key_auth: [ the-key ] }} }}\nroutes:\n  all:\n    \
         match: {{ path: \"/*\" }}\n    filters:\n      - any:\n          - key_auth: {{ header: apikey }}\n          \
         - key_auth: {{ header: authorization, scheme: Bearer, optional: true, consumer_header: x-who }}\n      \
         - acl: {{ allow: [ shop ] }}\n    upstream: up",
        upstream.address()
    ));
    let ask = |fields: &str| {
        weir.client().ask(format!("GET / HTTP/1.1\r\nHost: weir.test\r\nX-Who: root\r\n{fields}\r\n"))
    };
    ask("apikey: the-key\r\n").expect_status(200);
    assert_eq!(upstream.take_request().head.header("x-who"), None);
    ask("Authorization: Bearer the-key\r\n").expect_status(200);
    assert_eq!(upstream.take_request().head.all("x-who"), ["shop"]);
    ask("apikey: wrong\r\n").expect_cause(KEY_UNKNOWN);
    ask("").expect_cause(crate::cause::ACL_DENIED);
}

/// The gateway accepts the output of `weir hash`.
#[test]
fn basic_auth_with_a_hash_of_ours() {
    use std::io::Write as _;
    use std::process::Stdio;
    let dir = tempfile::TempDir::new().unwrap();
    let mut users = Vec::new();
    for (user, more) in [("ann", &[][..]), ("bob", &["--bcrypt"][..])] {
        let mut command = weir_command(dir.path());
        let command = command.args(["hash", "--user", user]).args(more);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"a secret\n").unwrap();
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success());
        users.push(format!("\"{}\"", String::from_utf8(out.stdout).unwrap().trim_end()));
    }
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nconsumers: {{ shop: {{ basic_auth: [ {} ] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ basic_auth: {{ realm: orders }} }} ], upstream: up }} }}",
        upstream.address(),
        users.join(", ")
    ));
    let mut client = weir.client();
    let mut ask = |pair: &str| {
        client.ask(format!("GET / HTTP/1.1\r\nHost: weir.test\r\nAuthorization: Basic {pair}\r\n\r\n"))
    };
    // ann:a secret, bob:a secret, ann:another, eve:a secret
    for _ in 0..3 {
        ask("YW5uOmEgc2VjcmV0").expect_status(200);
        assert_eq!(upstream.take_request().head.header("authorization"), None);
    }
    ask("Ym9iOmEgc2VjcmV0").expect_status(200);
    ask("YW5uOmFub3RoZXI=").expect_cause(BASIC_WRONG);
    ask("ZXZlOmEgc2VjcmV0")
        .expect_cause(BASIC_WRONG)
        .expect_header("www-authenticate", "Basic realm=\"orders\", charset=\"UTF-8\"");
    weir.client().get("/").expect_cause(BASIC_MISSING);
}

/// The hash of `password`, of the reference implementation: cheap to verify.
const HASH: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

/// A file of users is followed on its own: no reload, no closed connection, and other settings of the consumer apply.
#[test]
fn basic_auth_from_a_file() {
    let upstream = Upstream::fixed(OK);
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join(".htpasswd");
    std::fs::write(&file, format!("ann:{HASH}\nbob:{HASH}:left\n")).unwrap();
    let config = format!(
        "{WEB}\nwatch: true\nadmin: {{ address: 127.0.0.1:0 }}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         consumers: {{ ann: {{ groups: [ staff ] }} }}\nroutes:\n  \
         all: {{ match: {{ path: \"/*\" }}, filters: [ {{ basic_auth: {{ file: \"{}\", consumer_header: x-who }} }} ], upstream: up }}\n  \
         staff: {{ match: {{ path: /staff }}, filters: [ {{ basic_auth: {{ file: \"{}\" }} }}, {{ acl: {{ allow: [ \"group:staff\", kim ] }} }} ], upstream: up }}\n",
        upstream.address(),
        file.display(),
        file.display()
    );
    let weir = Weir::start(&config);
    let mut client = weir.client();
    let mut ask = |target: &str, user: &str| {
        let pair = weir_wire::base64::encode(format!("{user}:password").as_bytes());
        client.ask(format!("GET {target} HTTP/1.1\r\nHost: weir.test\r\nAuthorization: Basic {pair}\r\n\r\n"))
    };
    for user in ["ann", "bob"] {
        ask("/", user).expect_status(200);
        let head = upstream.take_request().head;
        assert_eq!((head.header("x-who"), head.header("authorization")), (Some(user), None));
    }
    ask("/", "kim").expect_cause(BASIC_WRONG);
    ask("/staff", "ann").expect_status(200);
    ask("/staff", "bob").expect_cause(crate::cause::ACL_DENIED);
    // Bob leaves and Kim comes, on the same connection.
    std::fs::write(&file, format!("ann:{HASH}\nkim:{HASH}\n")).unwrap();
    eventually("kim is known", || ask("/staff", "kim").status == 200);
    ask("/", "bob").expect_cause(BASIC_WRONG);
    // A mistake changes nothing and is told, without what it may reveal; nor does it block a reload.
    std::fs::write(&file, "ann:hunter2\n").unwrap();
    weir.wait_log("users not read");
    assert!(!weir.stderr().contains("hunter2") && weir.logged("reloaded").is_empty(), "{}", weir.stderr());
    weir.write_config(&config.replace("x-who", "x-user"));
    eventually("the config is reloaded", || !weir.logged("reloaded").is_empty());
    ask("/", "kim").expect_status(200);
    std::fs::remove_file(&file).unwrap();
    eventually("it is missed", || weir.stderr().contains("cannot be read"));
    ask("/", "kim").expect_status(200);
}

/// What the config refuses when it begins: each line, and nothing of it.
#[test]
fn old_hashes_are_refused_line_by_line() {
    let dir = tempfile::TempDir::new().unwrap();
    std::fs::write(
        dir.path().join(".htpasswd"),
        format!("ann:{HASH}\nbob:$apr1$QlVYbzNL$7hCuBgbUJW4jIfaTjmKGi0\ncid:{{SHA}}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\nhunter2\n"),
    )
    .unwrap();
    let config = format!(
        "{WEB}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ basic_auth: {{ file: .htpasswd }} }} ], respond: {{}} }} }}\n"
    );
    std::fs::write(dir.path().join("weir.yaml"), config).unwrap();
    let checked = run_weir(dir.path(), &["check"]);
    let told = format!("{}{}", checked.stdout, checked.stderr);
    assert_eq!(checked.code, Some(1), "{told}");
    for expected in [
        ".htpasswd:2: the password of `bob` is hashed with apr1 (MD5)",
        ".htpasswd:3: the password of `cid` is hashed with SHA-1",
        ".htpasswd:4: is not USER:HASH",
        "weir hash --user USER",
        "3 errors",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    assert!(!told.contains("hunter2") && !told.contains("QlVYbzNL"), "{told}");
}

/// 401 and 403 of the service are errors of ours, so `errors` can send browsers to the login; the rest is a 500.
#[test]
fn forward_auth_decides_as_in_nginx() {
    let upstream = Upstream::fixed(OK);
    let auth = Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let status = request.head.header("x-want").unwrap_or("204 No Content").to_owned();
            let head = format!("HTTP/1.1 {status}\r\nWWW-Authenticate: Bearer\r\nX-User: ann\r\n");
            let length = if status.starts_with("204") { "" } else { "Content-Length: 0\r\n" };
            if conn.try_send(format!("{head}{length}\r\n")).is_err() {
                return;
            }
        }
    });
    let weir = Weir::start(&format!(
        "{WEB}\nexpose_causes: true\nupstreams: {{ up: {{ endpoints: [{}] }}, auth: {{ endpoints: [{}] }} }}\nroutes:\n  all:\n    match: {{ path: \"/*\" }}\n    \
         filters:\n    - errors: {{ auth_required: {{ body: \"log in\\n\" }} }}\n    \
         - forward_auth: {{ upstream: auth, copy_request: all, copy: [ x-user ], answers: nginx, set: {{ x-original-uri: \"{{path}}\" }} }}\n    upstream: up",
        upstream.address(),
        auth.address()
    ));
    let ask = |method: &str, want: &str| {
        let body = if method == "POST" { "Content-Length: 2\r\n\r\nhi" } else { "\r\n" };
        let mut client = weir.client();
        client.send(format!(
            "{method} /a/%62 HTTP/1.1\r\nHost: weir.test\r\nX-User: root\r\nX_User: root\r\n{want}Accept: text/plain\r\nConnection: x-hop\r\nX-Hop: 1\r\n{body}"
        ));
        if method == "HEAD" { client.read_response_to_head() } else { client.read_response() }
    };
    for method in ["GET", "POST", "HEAD"] {
        ask(method, "").expect_status(200);
        let asked = auth.take_request().head;
        assert_eq!(asked.line, "GET / HTTP/1.1");
        assert_eq!(asked.header("x-original-uri"), Some("/a/b"));
        assert_eq!(asked.header("x-forwarded-method"), Some(method));
        assert_eq!(asked.header("accept"), Some("text/plain"));
        for gone in ["x-user", "x_user", "x-hop", "content-length", "connection", "transfer-encoding"] {
            let own = asked.header(gone);
            assert!(own.is_none() || gone == "connection" && own != Some("x-hop"), "{gone}: {asked:?}");
        }
        assert_eq!(upstream.take_request().head.all("x-user"), ["ann"]);
    }
    ask("GET", "X-Want: 401 Unauthorized\r\n")
        .expect_status(401)
        .expect_body("log in\n")
        .expect_header("www-authenticate", "Bearer");
    ask("GET", "X-Want: 403 Forbidden\r\n").expect_cause((403, "auth_forbidden"));
    ask("GET", "X-Want: 302 Found\r\n").expect_cause((500, "auth_unexpected"));
    ask("GET", "X-Want: 503 Service Unavailable\r\n").expect_cause((500, "auth_unexpected"));
    assert!(upstream.requests().is_empty());
}

/// Passwords wait for the hashing threads in a bounded queue. A request that finds it full is refused, and no other
/// route waits.
#[test]
fn more_passwords_than_can_be_hashed() {
    // The maximum number of rounds: the queue fills long before it is processed.
    let slow =
        "$argon2id$v=19$m=19456,t=64,p=1$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let weir = Weir::start(&format!(
        "{WEB}\naccess_log: {{ output: stdout, format: json }}\n\
         consumers: {{ shop: {{ basic_auth: [ \"ann:{slow}\" ] }} }}\nroutes:\n  \
         all: {{ match: {{ path: \"/*\" }}, filters: [ {{ basic_auth: {{}} }} ], respond: {{ body: ok }} }}\n  \
         open: {{ match: {{ path: /open }}, respond: {{ body: ok }} }}"
    ));
    let (mut open, mut waiting) = (weir.client(), Vec::new());
    let (status, code) = BASIC_BUSY;
    eventually("the queue is full", || {
        let mut client = weir.client();
        client.send("GET / HTTP/1.1\r\nHost: weir.test\r\nAuthorization: Basic YW5uOmEgc2VjcmV0\r\n\r\n");
        waiting.push(client);
        open.get("/open").expect_status(200);
        weir.stdout().contains(code)
    });
    let log = weir.stdout();
    let told = log.lines().find(|line| line.contains(code)).unwrap_or_default();
    assert!(told.contains(&format!("\"status\":{status}")), "{told}");
}

/// Typed passwords are not echoed, whether the command exits or is killed.
#[test]
fn a_password_is_not_shown_as_it_is_typed() {
    let dir = tempfile::TempDir::new().unwrap();
    let start = |pty: &Pty| {
        let before = pty.shown().len();
        let mut command = weir_command(dir.path());
        let child = pty.spawn(command.args(["hash"]).stdin(pty.stdin()), false, true).unwrap();
        pty.wait_for(before, "password: ");
        assert!(!pty.echoes());
        child
    };
    let pty = Pty::open();
    let child = start(&pty);
    pty.type_in("a secret\n");
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    assert!(String::from_utf8(out.stdout).unwrap().starts_with("$argon2id$"));
    assert!(pty.echoes() && !pty.shown().contains("secret"), "{}", pty.shown());
    let mut child = start(&pty);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(pty.echoes());
}

/// The service gets the whole body with its length, and so does the upstream.
#[test]
fn forward_auth_with_the_body() {
    let upstream = Upstream::fixed(OK);
    let auth = Upstream::fixed("HTTP/1.1 204 No Content\r\nSet-Cookie: s=1\r\n\r\n");
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }}, auth: {{ endpoints: [{}] }} }}\nroutes:\n  all:\n    match: {{ path: \"/*\" }}\n    \
         filters: [ {{ forward_auth: {{ upstream: auth, body: 64B, copy_response: [ set-cookie ] }} }} ]\n    upstream: up",
        upstream.address(),
        auth.address()
    ));
    let post = "POST /a HTTP/1.1\r\nHost: weir.test\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    weir.client().ask(post).expect_status(200).expect_header("set-cookie", "s=1");
    for asked in [auth.take_request(), upstream.take_request()] {
        assert_eq!(
            (asked.body.bytes.as_slice(), asked.head.header("content-type")),
            (&b"hello"[..], Some("text/plain"))
        );
    }
    let long = format!("POST /a HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 65\r\n\r\n{}", "a".repeat(65));
    weir.client().ask(long).expect_status(413);
}

/// A remembered decision is not requested again.
#[test]
fn forward_auth_remembers() {
    let (upstream, auth) = (Upstream::fixed(OK), Upstream::fixed("HTTP/1.1 204 No Content\r\n\r\n"));
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }}, auth: {{ endpoints: [{}] }} }}\nroutes:\n  all:\n    match: {{ path: \"/*\" }}\n    \
         filters: [ {{ forward_auth: {{ upstream: auth, copy_request: [ authorization ], cache: {{ headers: [ authorization ], time: 1h }} }} }} ]\n    \
         upstream: up",
        upstream.address(),
        auth.address()
    ));
    let mut client = weir.client();
    let mut ask =
        |who: &str| client.ask(format!("GET /a HTTP/1.1\r\nHost: weir.test\r\nAuthorization: {who}\r\n\r\n"));
    for who in ["ann", "ann", "bob", "ann", "bob"] {
        ask(who).expect_status(200);
    }
    assert_eq!(auth.requests().len(), 2);
}

/// A certificate from a real handshake names its consumer, and is forwarded as in RFC 9440; a client's own field is
/// not.
#[test]
fn mtls_auth_by_the_certificate_shown() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {} ], client_auth: {{ ca: {}, mode: optional }} }} }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\nconsumers: {{ shop: {{ mtls_auth: [ \"dns:shop.internal\" ] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ mtls_auth: {{ forward: true, consumer_header: x-who }} }} ], upstream: up }} }}",
        authority.leaf(&["weir.test"]).yaml(),
        clients.file().display(),
        upstream.address()
    ));
    let forged = "GET / HTTP/1.1\r\nHost: weir.test\r\nClient-Cert: :Zm9yZ2Vk:\r\nX-Who: root\r\n\r\n";
    let tls = Tls::new(&authority, "weir.test").identity(&clients.client_for("shop", &["shop.internal"]));
    Client::connect_tls(weir.address("web"), &tls).ask(forged).expect_status(200);
    let head = upstream.take_request().head;
    assert_eq!(head.all("x-who"), ["shop"]);
    let [certificate] = head.all("client-cert")[..] else { panic!("{head:?}") };
    assert!(certificate.starts_with(":MII") && certificate.ends_with(':'), "{certificate}");
    let stranger = Tls::new(&authority, "weir.test");
    Client::connect_tls(weir.address("web"), &stranger).ask(forged).expect_cause(CERTIFICATE_MISSING);
}
