//! Clients that try to poison a cache, or to read answers meant for others.

use weir_testkit::{Client, Upstream, Weir};

use super::{ask, config, metrics, weir_with};

/// An upstream that repeats the whole request in its answer, as careless ones do.
fn reflecting(fields: &'static str) -> Upstream {
    Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            let body = format!("{} {}", request.head.line, String::from_utf8_lossy(&request.body.bytes));
            let lines: String =
                request.head.headers.iter().map(|(name, value)| format!("{name}={value};")).collect();
            let body = format!("{body} {lines}");
            let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
            if conn.try_send([head, body].concat()).is_err() {
                return;
            }
        }
    })
}

/// Fields that an upstream may use for its URL, host, method or client, and that are in no key.
#[test]
fn fields_that_stand_in_no_key_poison_nothing() {
    let upstream = reflecting("Cache-Control: max-age=600\r\n");
    let weir = weir_with(&upstream, "");
    let mut client = weir.client();
    for (n, field) in [
        "X-Forwarded-Host: evil.test",
        "X-Forwarded-Proto: evil",
        "X-Forwarded-Scheme: evil",
        "X-Forwarded-Port: 666evil",
        "X-Forwarded-Server: evil.test",
        "X-Forwarded-Prefix: /evil",
        "X-Forwarded-For: 6.6.6.6, evil",
        "X-Real-IP: evil",
        "Forwarded: host=evil.test",
        "X-Original-URL: /evil",
        "X-Original-Host: evil",
        "X-Rewrite-URL: /evil",
        "X-Host: evil.test",
        "X-HTTP-Host-Override: evil.test",
        "X-HTTP-Method-Override: EVIL",
        "X-HTTP-Method: EVIL",
        "X-Method-Override: EVIL",
        "Range: bytes=0-1evil",
    ]
    .into_iter()
    .enumerate()
    {
        let line = format!("GET /{n}");
        ask(&mut client, &line, &format!("{field}\r\n"));
        let victim = ask(&mut client, &line, "").text();
        assert!(!victim.to_ascii_lowercase().contains("evil"), "{field}: {victim}");
    }
}

/// A GET with a body is answered, but nothing is stored.
#[test]
fn a_fat_get_is_nobody_elses() {
    let upstream = reflecting("Cache-Control: max-age=600\r\n");
    let weir = weir_with(&upstream, "");
    let mut client = weir.client();
    for body in ["Content-Length: 4\r\n\r\nevil", "Transfer-Encoding: chunked\r\n\r\n4\r\nevil\r\n0\r\n\r\n"]
    {
        let fat = client.ask(format!("GET /a HTTP/1.1\r\nHost: weir.test\r\n{body}"));
        assert!(fat.text().contains("evil"));
        assert_eq!(fat.header("cache-status"), Some("weir; fwd=bypass; detail=body"));
    }
    assert!(!client.get("/a").text().contains("evil"));
    // Nor does a GET with a body get a stored object.
    let fat = client.ask("GET /a HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 4\r\n\r\nevil");
    assert!(fat.text().contains("evil"));
}

/// One person's answer never goes to another, whether cookies or credentials tell them apart.
#[test]
fn persons_are_not_confused() {
    let silent = reflecting("");
    let weir = weir_with(&silent, "ttl: 10m");
    let mut client = weir.client();
    let mine = ask(&mut client, "GET /me", "Cookie: session=evil\r\n");
    assert_eq!(mine.header("cache-status"), Some("weir; fwd=uri-miss; fwd-status=200; detail=cookie"));
    assert!(!client.get("/me").text().contains("evil"));
    assert!(!ask(&mut client, "GET /me", "Cookie: other=1\r\n").text().contains("evil"));
    for fields in ["Authorization: Bearer evil\r\n", "Authorization: Basic evil\r\n"] {
        let upstream = reflecting("Cache-Control: max-age=600\r\n");
        let weir = weir_with(&upstream, "");
        let mut client = weir.client();
        ask(&mut client, "GET /me", fields);
        assert!(!client.get("/me").text().contains("evil"), "{fields}");
    }
    let setting = reflecting("Cache-Control: max-age=600\r\nSet-Cookie: session=1\r\n");
    let weir = weir_with(&setting, "");
    let mut client = weir.client();
    ask(&mut client, "GET /login", "X-Any: evil\r\n");
    assert!(!client.get("/login").text().contains("evil"));
}

/// Two spellings are one object exactly if the upstream gets the same request.
#[test]
fn paths_are_not_confused() {
    const PATHS: [&str; 20] = [
        "/account",
        "/account/",
        "/account/x.css",
        "/account%2Fx.css",
        "/account;x.css",
        "/account%3Bx.css",
        "/account%3Fx.css",
        "/account?x.css",
        "/account%23x.css",
        "/%61ccount",
        "/Account",
        "//account",
        "/./account",
        "/x/../account",
        "/account%0A",
        "/account%20",
        "/account?",
        "/account?a=1&b=2",
        "/account?b=2&a=1",
        "/account?a=1%26b=2",
    ];
    let upstream = reflecting("Cache-Control: max-age=600\r\n");
    let cached = weir_with(&upstream, "");
    let plain = Weir::start(
        &config(&upstream.address().to_string(), "")
            .replace("filters: [ { cache: { store: pages,  } } ], ", ""),
    );
    let target = |client: &mut Client, path: &str| {
        let response = client.get(path);
        let line = response.text();
        (
            response.status,
            if response.status == 200 {
                line.split(' ').take(2).collect::<Vec<_>>().join(" ")
            } else {
                String::new()
            },
        )
    };
    let expected: Vec<_> = PATHS.iter().map(|path| target(&mut plain.client(), path)).collect();
    for _ in 0..2 {
        for (path, expected) in PATHS.iter().zip(&expected) {
            assert_eq!(target(&mut cached.client(), path), *expected, "{path}");
        }
    }
    // Hosts and schemes too.
    let mut client = cached.client();
    for host in ["a.test", "b.test", "a.test:8080", "a.test.", "A.test"] {
        let response = client.ask(format!("GET /host HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let told = response.text().to_ascii_lowercase();
        assert!(told.contains(&format!("host={};", host.to_ascii_lowercase())), "{host}: {told}");
    }
}

/// An upstream that varies by everything, and clients that exploit it: memory stays bounded, and nobody gets
/// another's answer.
#[test]
fn vary_is_no_way_to_fill_the_store() {
    let upstream = reflecting("Cache-Control: max-age=600\r\nVary: X-Any, X-Other\r\n");
    let weir = weir_with(&upstream, "");
    let mut client = weir.client();
    for n in 0..300 {
        let told = ask(&mut client, "GET /a", &format!("X-Any: {n}\r\nX-Other: {}\r\n", n % 7)).text();
        assert!(told.to_ascii_lowercase().contains(&format!("x-any={n};")), "{told}");
    }
    // A value in two lines, and one that looks like two.
    for fields in [
        "X-Any: 1\r\nX-Any: 2\r\n",
        "X-Any: 1,2\r\n",
        "X-Any: 1, 2\r\n",
        "X-Any: \"1,2\"\r\n",
        "X-Any:\r\n",
        "",
    ] {
        let once = ask(&mut client, "GET /b", fields).text();
        let again = ask(&mut client, "GET /b", fields).text();
        assert_eq!(once, again, "{fields}");
    }
    let page = metrics(&weir);
    let objects = page.lines().find(|line| line.starts_with("weir_cache_store_objects{")).unwrap();
    let objects: u64 = objects.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(objects <= 64 + 6, "{objects}");
    for vary in ["Vary: *\r\n", "Vary: X-Forwarded-For\r\n", "Vary: a b\r\n"] {
        let upstream =
            reflecting(Box::leak(format!("Cache-Control: max-age=600\r\n{vary}").into_boxed_str()));
        let weir = weir_with(&upstream, "");
        weir.client().get("/a");
        weir.client().get("/a");
        assert_eq!(upstream.requests().len(), 2, "{vary}");
    }
}
