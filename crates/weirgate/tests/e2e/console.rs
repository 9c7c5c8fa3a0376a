//! The console: who gets in, what a page may do in a browser, and that foreign text never becomes part of a page.
//! `conformance/console.mjs` tests an operator's work in a browser.

use std::fs;
use std::path::Path;
use std::time::{Instant, SystemTime};
use tempfile::TempDir;
use weir_testkit::{Client, Response, Upstream, Weir, eventually, table};

use crate::support::{OK, WEB};

/// Every screen for a reader.
const SCREENS: &[&str] = &[
    "/",
    "/routes",
    "/routes?q=a&method=GET&url=http://weir.test/a",
    "/upstreams",
    "/failures",
    "/failures?kind=slow",
    "/config",
    "/config/routes/a",
    "/config/edit",
    "/history",
    "/history/running..disk",
    "/certificates",
    "/consumers",
];

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types weir";

const HTML: &str = "Accept: text/html,*/*;q=0.8\r\n";

fn config(folder: &Path, admin: &str, more: &str) -> String {
    let folder = folder.display();
    format!(
        "{WEB}\nroutes: {{ a: {{ match: {{ path: /a }}, respond: {{ status: 200, body: a }} }} }}\n\
         admin: {{ address: 127.0.0.1:0, writes: {folder}/managed.yaml, state: {folder}/state{admin} }}\n{more}"
    )
}

/// Sends a request with these fields, as a browser would.
#[track_caller]
fn ask(weir: &Weir, line: &str, fields: &str, body: &str) -> Response {
    let host = if fields.contains("Host:") { String::new() } else { format!("Host: {}\r\n", weir.admin()) };
    let length = body.len();
    Client::connect(weir.admin())
        .ask(format!("{line} HTTP/1.1\r\n{host}Content-Length: {length}\r\n{fields}\r\n{body}"))
}

/// Signs in; returns the cookie field.
#[track_caller]
fn sign_in(weir: &Weir, token: &str) -> String {
    let fields =
        format!("Origin: http://{}\r\nContent-Type: application/x-www-form-urlencoded\r\n", weir.admin());
    let answer = ask(weir, "POST /sign-in", &fields, &format!("to=%2Froutes%3Fq%3Da&token={token}"));
    answer.expect_status(303).expect_header("location", "/routes?q=a");
    let cookie = answer.header("set-cookie").unwrap();
    let (pair, attributes) = cookie.split_once("; ").unwrap();
    assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Strict; Max-Age=43200");
    assert!(!cookie.contains(token), "{cookie}");
    format!("Cookie: theme=dark; {pair}\r\n")
}

/// The CSRF value that a page's modifying requests carry.
fn csrf(page: &Response) -> String {
    let page = page.text();
    let (_, rest) = page.split_once("<meta name=\"csrf\" content=\"").unwrap();
    format!("X-Weir-Csrf: {}\r\n", rest.split('"').next().unwrap())
}

#[test]
fn every_screen_is_a_page_with_a_strict_policy() {
    let folder = TempDir::new().unwrap();
    let weir = Weir::start(&config(folder.path(), "", ""));
    for screen in SCREENS {
        let page = ask(&weir, &format!("GET {screen}"), HTML, "");
        page.expect_status(200)
            .expect_header("content-type", "text/html; charset=utf-8")
            .expect_header("content-security-policy", POLICY)
            .expect_header("cache-control", "no-store")
            .expect_header("referrer-policy", "same-origin")
            .expect_header("x-frame-options", "DENY")
            .expect_header("x-content-type-options", "nosniff")
            .expect_no_header("set-cookie");
        let text = page.text();
        assert!(
            text.contains("<h1>") && !text.contains(" style=") && !text.contains("<script>"),
            "{screen}: {text}"
        );
        assert!(text.contains("aria-current=\"page\""), "{screen}");
        assert!(!text.contains("name=\"csrf\""), "nobody has signed in");
    }
    // An open page polls for changes, and for nothing else.
    let live = |screen: &str| ask(&weir, &format!("GET {screen}"), "X-Weir-Live: 1\r\n", "").text();
    assert!(live("/").contains("id=\"now\"") && !live("/").contains("<dt>Files"), "no file is read for it");
    assert!(live("/routes").contains("id=\"notices\"") && !live("/routes").contains("<table"));
    assert!(weir.logged("the console cannot read what the gateway says of itself").is_empty());
    for (line, status) in [
        ("GET /routes/x", 404),
        ("GET /config/routes/nothing", 404),
        ("GET /config/nothing/a", 404),
        ("GET /config/a/b/c", 404),
        ("GET /config/%zz/%zz", 404),
        ("GET /failures/unknown", 404),
        ("GET /failures/%zz", 404),
        ("GET /history/x", 404),
        ("GET /history/7..8", 200),
        ("GET /failures?kind=%3Cb%3E", 200),
        ("GET /upstreamsx", 404),
        ("POST /routes", 405),
        ("DELETE /", 405),
        ("GET /sign-out", 405),
        ("HEAD /console.css", 200),
    ] {
        let mut client = weir.admin_client();
        client.send(format!("{line} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n", weir.admin()));
        let answer =
            if line.starts_with("HEAD") { client.read_response_to_head() } else { client.read_response() };
        assert_eq!(answer.status, status, "{line}");
    }
}

#[test]
fn what_pages_ask_for_is_there_and_may_be_kept() {
    let folder = TempDir::new().unwrap();
    let weir = Weir::start(&config(folder.path(), ", token: secret", ""));
    let page = ask(&weir, "GET /sign-in", HTML, "").expect_status(200).text();
    let mut found = 0;
    for (attribute, media) in [
        ("href=\"/console.css?", "text/css; charset=utf-8"),
        ("src=\"/console.js?", "text/javascript; charset=utf-8"),
        ("href=\"/console.svg?", "image/svg+xml"),
    ] {
        let (_, rest) = page.split_once(attribute).unwrap();
        let (_, name) = attribute.split_once('/').unwrap();
        let target = format!("/{name}{}", rest.split('"').next().unwrap());
        ask(&weir, &format!("GET {target}"), "", "")
            .expect_status(200)
            .expect_header("content-type", media)
            .expect_header("cache-control", "public, max-age=31536000, immutable")
            .expect_header(
                "content-security-policy",
                "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            );
        found += 1;
    }
    assert_eq!(found, 3);
}

#[test]
fn a_token_is_exchanged_for_a_session() {
    let folder = TempDir::new().unwrap();
    let weir = Weir::start(&config(folder.path(), ", token: s3cret", ""));
    let admin = weir.admin();
    // A browser gets the sign-in page, a program an error that says what is missing.
    ask(&weir, "GET /routes?q=a", HTML, "")
        .expect_status(303)
        .expect_header("location", "/sign-in?to=%2Froutes%3Fq%3Da");
    ask(&weir, "GET /routes", "", "").expect_status(401);
    ask(&weir, "GET /status", HTML, "").expect_status(401);
    ask(&weir, "GET /nothing", HTML, "").expect_status(401);

    let origin = format!("Origin: http://{admin}\r\n");
    for body in ["token=wrong", "token=", "", "token=s3cre", "tokens=s3cret", "%zz=%zz"] {
        let refused = ask(&weir, "POST /sign-in", &origin, body);
        refused
            .expect_status(401)
            .expect_no_header("set-cookie")
            .expect_body_with("This token is not valid.");
    }
    ask(&weir, "POST /sign-in", &origin, &format!("token={}", "x".repeat(9000))).expect_status(413);

    let cookie = sign_in(&weir, "s3cret");
    let page = ask(&weir, "GET /", &cookie, "");
    page.expect_status(200).expect_body_with("Sign out");
    ask(&weir, "GET /status", &cookie, "").expect_status(200);
    // Redirect targets after signing in: only pages of ours.
    for to in
        ["//evil.example", "https://evil.example", "/\\evil.example", "/nothing", "%0d%0aX: y", "/sign-in"]
    {
        let answer =
            ask(&weir, "POST /sign-in", &origin, &format!("token=s3cret&to={}", to.replace('/', "%2F")));
        answer.expect_status(303).expect_header("location", "/");
    }

    // A modifying request carries the page's value; with a token it needs none.
    let proof = csrf(&page);
    ask(&weir, "POST /reload", &cookie, "").expect_status(403).expect_body_with("x-weir-csrf");
    ask(&weir, "POST /reload", &format!("{cookie}X-Weir-Csrf: 0\r\n"), "").expect_status(403);
    ask(&weir, "POST /reload", &format!("{cookie}{proof}"), "").expect_status(200);
    ask(&weir, "POST /reload", "Authorization: Bearer s3cret\r\n", "").expect_status(200);
    let two = sign_in(&weir, "s3cret");
    ask(&weir, "POST /reload", &format!("{two}{proof}"), "").expect_status(403);

    let out = ask(&weir, "POST /sign-out", &cookie, "");
    out.expect_status(303).expect_header("location", "/sign-in");
    assert!(out.header("set-cookie").unwrap().ends_with("Max-Age=0"));
    ask(&weir, "GET /status", &cookie, "").expect_status(401);
    ask(&weir, "GET /", &format!("{cookie}{HTML}"), "").expect_status(303);

    // A session has its token's current rights.
    ask(&weir, "GET /status", &two, "").expect_status(200);
    weir.reload_with(&config(folder.path(), ", token: another", "")).unwrap();
    eventually("the session is nobody's", || ask(&weir, "GET /status", &two, "").status == 401);
}

#[test]
fn pages_from_elsewhere_get_nothing() {
    let folder = TempDir::new().unwrap();
    let weir = Weir::start(&config(folder.path(), ", token: s3cret", ""));
    let cookie = sign_in(&weir, "s3cret");
    let page = ask(&weir, "GET /", &cookie, "");
    let all = format!("{cookie}{}", csrf(&page));
    table(
        &[
            "Origin: http://evil.example\r\n",
            "Origin: null\r\n",
            "Sec-Fetch-Site: same-site\r\n",
            "Host: evil.example\r\n",
        ],
        |foreign| (*foreign).to_owned(),
        |foreign| {
            for line in ["GET /", "GET /routes", "POST /reload", "GET /sign-in"] {
                ask(&weir, line, &format!("{all}{foreign}{HTML}"), "")
                    .expect_status(403)
                    .expect_no_header("set-cookie");
            }
            ask(&weir, "POST /sign-in", foreign, "token=s3cret")
                .expect_status(403)
                .expect_no_header("set-cookie");
            ask(&weir, "POST /sign-out", &format!("{all}{foreign}"), "").expect_status(403);
        },
    );
    ask(&weir, "GET /status", &cookie, "").expect_status(200);
}

#[test]
fn a_role_sees_and_does_what_it_may() {
    let upstream = Upstream::fixed(OK);
    let folder = TempDir::new().unwrap();
    let entry = |role: &str| {
        let hash = crate::changes::hash(&format!("token-of-{role}"));
        format!("{{ name: {role}, role: {role}, token: \"{hash}\" }}")
    };
    let tokens = ["read", "operate", "write"].map(entry).join(", ");
    let more = format!("upstreams: {{ up: {{ endpoints: [ {} ] }} }}\n", upstream.address());
    let weir = Weir::start(&config(folder.path(), &format!(", tokens: [ {tokens} ]"), &more));
    let drain = format!("POST /api/v1/endpoints/up/{}:drain?for=1m", upstream.address());
    for (role, drains, writes) in [("read", 403, 403), ("operate", 200, 403), ("write", 200, 200)] {
        let cookie = sign_in(&weir, &format!("token-of-{role}"));
        let page = ask(&weir, "GET /upstreams", &cookie, "");
        assert_eq!(page.text().contains("Take out…"), drains == 200, "{role}");
        assert!(page.text().contains(&format!("{role}</span>")), "{role}");
        let all = format!("{cookie}{}", csrf(&page));
        ask(&weir, &drain, &all, "").expect_status(drains);
        let list = ask(&weir, "GET /config", &cookie, "");
        assert_eq!(list.text().contains("/config/edit"), writes == 200, "{role}");
        let fields = format!("{all}Content-Type: application/yaml\r\nIf-Match: *\r\n");
        ask(&weir, "PUT /api/v1/managed?dry_run", &fields, "routes: {}\n").expect_status(writes);
        let end = drain.replace(":drain?for=1m", ":in");
        ask(&weir, &end, &all, "").expect_status(drains);
    }
}

#[test]
fn what_strangers_send_is_text() {
    let folder = TempDir::new().unwrap();
    let weir = Weir::start(&config(folder.path(), "", ""));
    let evil = "%3Cscript%3Ealert(1)%3C/script%3E";
    weir.client().ask("GET /<script>alert(1)</script> HTTP/1.1\r\nHost: <b>.test\r\n\r\n");
    weir.client()
        .ask("GET /nowhere/%3Cscript%3E?%3Cscript%3E=1 HTTP/1.1\r\nHost: weir.test\r\nX-<b>: 1\r\n\r\n");
    weir.client().get("/nowhere/'\"&amp;").expect_status(404);
    let body = "# <script>alert(1)</script> </textarea>\nroutes:\n  evil: { match: { path: /evil, headers: { x-evil: \"<script>alert(1)</script>\" } }, \
                respond: { status: 200, body: \"</textarea><script>alert(1)</script>\" } }\n";
    let fields =
        "Content-Type: application/yaml\r\nIf-Match: *\r\nX-Weir-Message: <script>alert(1)</script>\r\n";
    ask(&weir, "PUT /api/v1/managed", fields, body).expect_status(200);
    let failures = || ask(&weir, "GET /failures", "", "").text();
    eventually("the failures are kept", || failures().contains("no_route"));
    let screens = SCREENS.iter().map(|screen| (*screen).to_owned()).chain([
        format!("/routes?q={evil}&method={evil}&url={evil}&fields={evil}&listener={evil}"),
        format!("/failures?kind={evil}&cause={evil}&route={evil}"),
        format!("/failures/{evil}"),
        format!("/sign-in?to={evil}"),
        format!("/history/{evil}..{evil}"),
        "/config/routes/evil".to_owned(),
        "/history/1..2".to_owned(),
    ]);
    for screen in screens {
        let page =
            ask(&weir, &format!("GET {screen}"), &format!("{HTML}Cookie: weir_theme=\"><script>\r\n"), "")
                .text();
        assert!(page.contains("</html>"), "{screen}: {page}");
        for broken in ["<script>", "</script> <", "<b>.test", "</textarea><script"] {
            assert!(!page.contains(broken), "{screen} holds {broken}: {page}");
        }
    }
    assert!(ask(&weir, "GET /history", "", "").text().contains("&lt;script&gt;alert(1)"));
}

/// However fast an attacker guesses, few tokens are checked, and the right one is not among them.
#[test]
fn guesses_at_the_way_in_are_few() {
    let folder = TempDir::new().unwrap();
    let tokens =
        format!(", tokens: [ {{ name: w, role: write, token: \"{}\" }} ]", crate::changes::hash("w"));
    let weir = Weir::start(&config(folder.path(), &tokens, ""));
    let fields =
        format!("Origin: http://{}\r\nContent-Type: application/x-www-form-urlencoded\r\n", weir.admin());
    let guess = |token: &str| ask(&weir, "POST /sign-in", &fields, &format!("token={token}"));
    let began = Instant::now();
    let statuses: Vec<u16> = (0..50).map(|n| guess(&format!("no{n}")).status).collect();
    let looked_at = statuses.iter().filter(|status| **status == 401).count();
    let due = 11 + began.elapsed().as_secs() as usize / 2;
    assert!((10..=due).contains(&looked_at), "{statuses:?}");
    let refused = guess("w");
    assert!(refused.status == 429 && refused.header("set-cookie").is_none(), "{}", refused.status);
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=2).contains(&seconds), "{seconds}");
    // Programs are not slowed down, nor is a client that waits.
    ask(&weir, "GET /status", "Authorization: Bearer w\r\n", "").expect_status(200);
    eventually("the right token is looked at", || guess("w").status == 303);
}

#[test]
fn the_managed_file_is_edited_as_a_text() {
    let folder = TempDir::new().unwrap();
    let managed = folder.path().join("managed.yaml");
    let text = "# ours\r\nroutes:\r\n  b: { match: { path: /b }, respond: { body: b } }   # the second\r\nconsumers:\r\n  shop: { key_auth: [ hunter2 ] }\r\n";
    fs::write(&managed, text).unwrap();
    let token = |name: &str, role: &str| {
        format!("{{ name: {name}, role: {role}, token: \"{}\" }}", crate::changes::hash(name))
    };
    let reader = format!(", tokens: [ {}, {} ]", token("r", "read"), token("w", "write"));
    let weir = Weir::start(&config(folder.path(), &reader, ""));
    let ask = |weir: &Weir, line: &str, fields: &str, body: &str| {
        let token = if fields.contains("Authorization") { "" } else { "Authorization: Bearer w\r\n" };
        ask(weir, line, &format!("{token}{fields}"), body)
    };
    let put = |query: &str, etag: &str, text: &str| {
        ask(
            &weir,
            &format!("PUT /api/v1/managed{query}"),
            &format!("Content-Type: application/yaml\r\nIf-Match: {etag}\r\n"),
            text,
        )
    };
    let there = ask(&weir, "GET /api/v1/managed", "", "");
    let etag = there.expect_status(200).header("etag").unwrap().to_owned();
    let shown = there.json()["text"].as_str().unwrap().to_owned();
    assert_eq!(shown, text, "who may write it sees it");
    let page = ask(&weir, "GET /config/edit", "", "").expect_status(200).text();
    assert!(page.contains("# ours") && page.contains("hunter2") && !page.contains("is shown as"), "{page}");
    let reads = "Authorization: Bearer r\r\n";
    let there = ask(&weir, "GET /api/v1/managed", reads, "").expect_status(200).json();
    let shown = there["text"].as_str().unwrap().to_owned();
    assert!(shown.contains("path: /b") && shown.contains("\"***1\""), "{shown}");
    assert!(
        !shown.contains("ours") && !shown.contains("second"),
        "old secrets may stand in comments: {shown}"
    );
    let page = ask(&weir, "GET /config/edit", reads, "").expect_status(200).text();
    assert!(
        !page.contains("# ours") && !page.contains("hunter2") && page.contains("one secret is shown"),
        "{page}"
    );

    // Saving without a change modifies nothing, whatever a browser does to line ends; a mask keeps its secret.
    let shown = text.replace("hunter2", "\"***1\"");
    let written = || fs::metadata(&managed).and_then(|file| file.modified()).unwrap();
    let before: SystemTime = written();
    let lines = shown.replace("\r\n", "\n");
    for same in [&shown, &lines, &text.to_owned()] {
        let saved = put("", &etag, same);
        assert_eq!(
            (saved.expect_status(200).json()["number"].clone(), fs::read_to_string(&managed).unwrap()),
            (serde_json::Value::Null, text.to_owned())
        );
    }
    assert_eq!(written(), before);

    // A comment alone makes no revision, but is kept.
    let noted = lines.replace("# ours", "# ours, as agreed");
    assert!(put("", &etag, &noted).expect_status(200).json()["number"].is_null());
    assert_eq!(fs::read_to_string(&managed).unwrap(), text.replace("# ours", "# ours, as agreed"));
    put("", &etag, &noted).expect_status(412);
    let etag = ask(&weir, "GET /api/v1/managed", "", "").header("etag").unwrap().to_owned();

    // Mistakes are shown with their lines, and change nothing.
    let wrong = put("", &etag, &noted.replace("path: /b", "paht: /b"));
    let diagnostic = wrong.expect_status(422).json()["diagnostics"][0].clone();
    assert_eq!(diagnostic["line"], 3, "{diagnostic}");
    let fields = format!("Content-Type: application/yaml\r\nIf-Match: {etag}\r\n");
    let half = ask(&weir, "POST /api/v1/managed:check", &fields, &noted.replace("path: /b", "paht: /b"));
    assert_eq!(half.expect_status(200).json()["diagnostics"][0], diagnostic);
    put("", &etag, "admin: { token: x }\n").expect_status(422).expect_body_with("section-refused");
    put("", &etag, "routes: { c: { files: { root: /etc } } }\n").expect_status(422);
    put("", &etag, &noted.replace("shop:", "other:")).expect_status(422).expect_body_with("masked-secret");
    ask(&weir, "PUT /api/v1/managed", "Content-Type: application/yaml\r\n", "x: 1").expect_status(428);
    assert_eq!(fs::read_to_string(&managed).unwrap(), text.replace("# ours", "# ours, as agreed"));

    // A change is first shown and then applied; the secret and the comment stay.
    let changed = noted.replace("body: b }", "body: more }");
    let dry = put("?dry_run", &etag, &changed).expect_status(200).json();
    assert_eq!(
        (&dry["things"], &dry["number"]),
        (&serde_json::json!(["routes.b"]), &serde_json::Value::Null)
    );
    assert_eq!(put("", &etag, &changed).expect_status(200).json()["number"], 2);
    weir.client().get("/b").expect_body("more");
    let now = fs::read_to_string(&managed).unwrap();
    assert!(
        now.contains("hunter2") && now.contains("# the second\r\n") && now.contains("body: more }"),
        "{now}"
    );
    let differences = ask(&weir, "GET /history/1..2", "", "").text();
    assert!(differences.contains("routes.b.respond.body") && differences.contains("+ more"), "{differences}");
    let back = ask(&weir, "POST /api/v1/revisions/1:rollback", "", "");
    back.expect_status(200);
    assert!(fs::read_to_string(&managed).unwrap().contains("body: b }"));
}

#[test]
fn a_route_is_explained_by_its_url() {
    let folder = TempDir::new().unwrap();
    let weir = Weir::start(&config(folder.path(), "", ""));
    let ask = |query: &str| ask(&weir, &format!("GET /routes?{query}"), "", "").expect_status(200).text();
    let page = ask("method=GET&url=http%3A%2F%2Fweir.test%2Fa");
    assert!(page.contains("<a href=\"/config/routes/a\">a</a> takes it"), "{page}");
    assert!(ask("method=GET&url=%2Fb").contains("No route matches it"));
    assert!(ask("method=GET&url=%2F..%2F..%2Fa").contains("bad_path"));
    assert!(ask("method=GET&url=%2Fa&fields=x").contains("is not a header field"));
    assert!(ask("method=GET&url=%2Fa&listener=none").contains("there is no listener"));
}

#[test]
fn explain_takes_the_listener_that_the_request_reaches() {
    const ROUTES: &str = "  inside: { match: { path: \"/*\", listeners: [a] }, respond: { status: 200, body: inside } }\n  \
                          outside: { match: { path: \"/*\", listeners: [b] }, respond: { status: 200, body: outside } }\n";
    let folder = TempDir::new().unwrap();
    // The first by name is not the first of the config, so that assuming either order fails.
    let weir = Weir::start(&format!(
        "listeners: {{ b: {{ address: 127.0.0.1:0 }}, a: {{ address: 127.0.0.1:0 }} }}\nroutes:\n{ROUTES}\
         admin: {{ address: 127.0.0.1:0, writes: {}/managed.yaml }}\n",
        folder.path().display()
    ));
    for (listener, route) in [("a", "inside"), ("b", "outside")] {
        let address = weir.address(listener);
        let (_, port) = address.rsplit_once(':').unwrap();
        let answer = Client::connect(&address).ask(format!("GET /x HTTP/1.1\r\nHost: {address}\r\n\r\n"));
        assert_eq!(answer.text(), route, "the real request");
        // As sent by the form, whose listener list has its first entry selected.
        let url = format!("http://{address}/x");
        let asked = format!("GET /routes?method=GET&url={}&fields=&listener=", url.replace(':', "%3A"));
        let page = ask(&weir, &asked, "", "").expect_status(200).text();
        assert!(page.contains(&format!(">{route}</a> takes it")), "{listener}: {page}");
        assert!(page.contains(&format!("its port is the URL&#39;s, {port}")), "{page}");
        let body = format!("{{\"method\":\"GET\",\"url\":\"{url}\"}}");
        let told = ask(&weir, "POST /api/v1/config:explain", "Content-Type: application/json\r\n", &body)
            .expect_status(200)
            .text();
        assert!(told.contains(&format!("\"route\": \"{route}\"")), "{told}");
        let named =
            ask(&weir, &format!("GET /routes?method=GET&url=%2Fx&listener={listener}"), "", "").text();
        assert!(named.contains(&format!(">{route}</a> takes it")), "{named}");
    }
    let page = ask(&weir, "GET /routes", HTML, "").text();
    assert!(
        page.contains("<select name=\"listener\"><option value=\"\">the one that the URL reaches"),
        "{page}"
    );
}
