//! What is staged, and which requests its patterns give.

use super::*;
use crate::proof::patterns::PathKind;
use crate::proof::{OurRoute, witness};
use crate::source::Memory;

fn staged(text: &str) -> Stage {
    let memory = Memory::of(&[("nginx.conf", text)]);
    let mut tree = SourceTree::open(&memory, &["nginx.conf".to_owned()]).unwrap();
    stage(&mut tree, "/src").unwrap()
}

#[test]
fn nothing_is_written_outside_of_the_workspace() {
    let stage = staged(
        r#"user www-data; pid /run/evil.pid; error_log /etc/evil.log;
http { access_log /etc/passwd; proxy_cache_path /etc/cache keys_zone=a:1m; resolver 8.8.8.8;
  server { listen 0.0.0.0:8080; listen [::]:8080; listen unix:/x; ssl_certificate /etc/x.pem;
    auth_basic_user_file .htpasswd; access_log syslog:server=unix:/dev/log;
    location ~ "\.(a|b){2}$" { proxy_pass http://unix:/run/app.sock:/x; if ($a = "b\"c") { return 403 "x y"; } } } }"#,
    );
    let text = &stage.text;
    for gone in [
        "evil",
        "passwd\"",
        "access_log /",
        "syslog",
        "8.8.8.8",
        "/run/app.sock",
        "/etc/x.pem",
        "[::]",
        "/etc/",
    ] {
        assert!(!text.contains(gone), "{gone}: {text}");
    }
    for there in [
        "listen 127.0.0.1:8080;",
        "auth_basic_user_file /src/.htpasswd;",
        "proxy_cache_path /run/weir-proof/cache1 keys_zone=a:1m;",
        "resolver 127.0.0.1 ipv6=off;",
        r#"location ~ "\\.(a|b){2}$" {"#,
        r#"if ($a = "b\"c" ) {"#,
        "http://unix:/run/weir-proof/s_run_app_sock:/x;",
    ] {
        assert!(text.contains(there), "{there}: {text}");
    }
    assert_eq!(text.lines().count(), stage.places.len());
    assert_eq!(stage.patterns.origins[0].address, "unix:/run/app.sock");
    assert_eq!(stage.patterns.obstacles, []);
}

#[test]
fn what_a_socket_or_lua_may_do_is_an_obstacle() {
    for text in
        ["server { foo unix:/run/docker.sock; }", "server { location / { content_by_lua_block { x } } }"]
    {
        assert_eq!(staged(text).patterns.obstacles.len(), 1, "{text}");
    }
}

#[test]
fn patterns_know_their_lines() {
    let stage = staged(
        "upstream b { server app1:8080; server app2:8080; }
server { server_name a.example *.b.example;
  set $t app3; add_header X-A 1;
  location = /e { return 301 /f; }
  location /api/ { client_max_body_size 10; proxy_set_header X-B $http_x_in; proxy_pass http://b; }
  location ^~ /s { proxy_pass http://$t:9000; }
  location ~* \\.php$ { deny all; } }",
    );
    let site = &stage.patterns.sites[0];
    let paths: Vec<_> =
        site.paths.iter().map(|path| (path.line.place.line, path.kind, &*path.text)).collect();
    assert_eq!(
        paths,
        [
            (4, PathKind::Exact, "/e"),
            (5, PathKind::Prefix, "/api/"),
            (6, PathKind::Prefix, "/s"),
            (7, PathKind::Regex { ignores_case: true }, r"\.php$"),
            (2, PathKind::Prefix, "/"),
        ]
    );
    assert_eq!(site.paths[1].endpoints, ["app1:8080", "app2:8080"]);
    assert_eq!(site.paths[2].endpoints, ["app3:9000"]);
    assert_eq!(site.paths[1].body_limit.as_ref().map(|(n, line)| (*n, line.place.line)), Some((10, 5)));
    let found = witness::witnesses(
        &stage.patterns,
        &[OurRoute { paths: vec!["/x/*".into()], ..OurRoute::default() }],
        false,
    );
    let shown: Vec<String> = found.list.iter().map(|witness| witness.ask.shown()).collect();
    for there in [
        "GET http://a.example/api",
        "GET http://a.example/api/",
        "GET http://a.example/API/",
        "GET http://a.example/api/w.php",
        "GET http://a.example/x/",
        "GET http://w.b.example/api/",
        "GET http://a.example:4711/api/",
        "GET http://weir-witness.invalid/",
        "GET http://a.example/api/ (x-in: weir-witness)",
        "POST http://a.example/api/ (10 bytes)",
        "POST http://a.example/api/ (11 bytes)",
        "GET http://a.example/api/ (app1:8080 refuses connections; 4 times)",
    ] {
        assert!(shown.iter().any(|shown| shown == there), "{there}: {shown:#?}");
    }
    let again = witness::witnesses(
        &stage.patterns,
        &[OurRoute { paths: vec!["/x/*".into()], ..OurRoute::default() }],
        false,
    );
    assert_eq!(again.list.len(), found.list.len());
}

/// What no request shows has a line with the reason, and what clients show has requests.
#[test]
fn every_line_is_asked_or_told() {
    let source = "limit_req_zone $binary_remote_addr zone=z:1m rate=5r/s; geo $inside { default 0; 10.0.0.0/8 1; }\n\
        server { listen 80; limit_req zone=z burst=3 nodelay;\n\
        location /a { proxy_read_timeout 7s;\n send_timeout 3s;\n allow 192.0.2.0/24;\n allow 2001:db8::/32;\n deny all;\n\
        if ($inside) { return 204; }\n proxy_pass http://a:1; }\n\
        location /m { mirror /c; proxy_pass http://a:1; } }\n";
    let files = Memory::of(&[("a.conf", source)]);
    let mut tree = SourceTree::open(&files, &["a.conf".to_owned()]).unwrap();
    let stage = stage(&mut tree, "").unwrap();
    let told: Vec<(u32, &str)> =
        stage.patterns.unprovable.iter().map(|(line, _)| (line.place.line, &*line.text)).collect();
    for line in [
        (1, "limit_req_zone $binary_remote_addr zone=z:1m rate=5r/s"),
        (3, "proxy_read_timeout 7s"),
        (4, "send_timeout 3s"),
        (6, "allow 2001:db8::/32"),
    ] {
        assert!(told.contains(&line), "{line:?}: {told:?}");
    }
    let found = witness::witnesses(&stage.patterns, &[], false).list;
    let of = |line: u32, client: &str| {
        found.iter().any(|one| one.line.place.line == line && one.ask.client.as_deref() == Some(client))
    };
    for (line, client) in [(5, "192.0.2.255"), (5, "192.0.3.0"), (1, "10.0.0.0"), (1, "11.0.0.0")] {
        assert!(of(line, client), "{line} {client}");
    }
    assert!(found.iter().all(|one| one.ask.copies_ms > 0), "the site has a mirror");
    let limits = witness::witnesses(&stage.patterns, &[], true).list;
    assert_eq!(limits.first().map(|one| (one.ask.calls, one.ask.then.len())), Some((7, 1)), "{limits:#?}");
}
