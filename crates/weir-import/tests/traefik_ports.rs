//! Entry points that HTTP and TCP routers of Traefik share: which router gets which connection.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use weir_import::ledger::Counts;
use weir_import::{Import, Memory};

const ROUTERS: &str =
    "http:\n  services: { s: { loadBalancer: { servers: [ { url: \"http://s.test\" } ] } } }\n";
const SERVICES: &str = "tcp:\n  services:\n    db: { loadBalancer: { servers: [ { address: \"db.test:5432\" } ] } }\n    \
                        mq: { loadBalancer: { servers: [ { address: \"mq.test:1883\" } ] } }\n";

/// Entry points by name and address, HTTP routers and TCP routers, as maps of YAML.
fn import(points: &str, http: &str, tcp: &str) -> Import {
    let points: String = points
        .split_whitespace()
        .map(|point| {
            let (name, address) = point.split_once('=').unwrap();
            format!("  {name}: {{ address: \"{address}\" }}\n")
        })
        .collect();
    imported(&format!("entryPoints:\n{points}"), http, tcp)
}

fn imported(fixed: &str, http: &str, tcp: &str) -> Import {
    let dynamic = format!("{ROUTERS}  routers: {{ {http} }}\n{SERVICES}  routers: {{ {tcp} }}\n");
    let memory = Memory::of(&[("traefik.yml", fixed), ("dynamic.yml", &dynamic)]);
    let names = ["traefik.yml".to_owned(), "dynamic.yml".to_owned()];
    weir_import::import(weir_import::system("traefik").unwrap(), &memory, &names).unwrap()
}

/// The file of listeners in one line, without comments.
fn listeners(import: &Import) -> String {
    let written = import.written();
    let file = written.iter().find(|file| file.path == "listeners.yaml").unwrap();
    let lines = file.text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.collect::<Vec<_>>().join(" ")
}

/// The report says this of the statement with this text.
#[track_caller]
fn says(import: &Import, statement: &str, verdict: &str, why: &str) {
    let lines = import.ledger.lines();
    let found = lines.iter().any(|line| {
        line.text.contains(statement)
            && line.verdict.key() == verdict
            && line.why.iter().any(|known| known.contains(why))
    });
    assert!(found, "{}", import.to_text());
}

#[track_caller]
fn refuses_nothing(import: &Import) {
    assert_eq!(
        Counts { refused: 0, ..import.ledger.counts() },
        import.ledger.counts(),
        "{}",
        import.to_text()
    );
}

#[test]
fn a_tcp_router_for_all_takes_the_port_from_http() {
    let http = "r: { rule: Host(`a.test`), service: s }";
    let tcp = "db: { rule: HostSNI(`*`), entryPoints: [postgres], service: db }";
    let import = import("web=:80 postgres=:5432", http, tcp);
    refuses_nothing(&import);
    let all = listeners(&import);
    assert!(all.contains("web: { address: ") && !all.contains("-port"), "{all}");
    assert!(all.contains(":5432\", tcp: { upstream: db, idle: 0s } }"), "{all}");
    assert!(
        import
            .config
            .routes
            .iter()
            .all(|(_, route)| !route.matches.listeners.contains(&"postgres".to_owned()))
    );
    says(
        &import,
        "rule: Host",
        "changed",
        "not on `postgres`: Traefik gives its connections without TLS to the TCP",
    );
}

#[test]
fn http_leaves_such_a_port_also_if_it_names_it() {
    let http = "r: { rule: Host(`a.test`), entryPoints: [web, db], service: s }, only: { rule: Host(`b.test`), \
                entryPoints: [db], service: s }";
    let import =
        import("web=:80 db=:5432", http, "t: { rule: HostSNI(`*`), entryPoints: [db], service: db }");
    refuses_nothing(&import);
    assert_eq!((import.config.listeners.len(), import.config.routes.len()), (2, 1));
    says(&import, "entryPoints", "changed", "not on `db`");
    // What redirects the entry point is an HTTP router, too.
    let fixed = "entryPoints:\n  web:\n    address: \":80\"\n    http: { redirections: { entryPoint: { to: secure, \
                 scheme: https } } }\n  secure: { address: \":443\" }\n";
    let import = imported(fixed, "", "t: { rule: HostSNI(`*`), entryPoints: [web], service: db }");
    refuses_nothing(&import);
    assert!(listeners(&import).contains("tcp: { upstream: db") && import.config.routes.is_empty());
    says(&import, "to: secure", "changed", "to the TCP router `t` first");
}

#[test]
fn http_stays_off_the_port_of_a_refused_tcp_router() {
    let http = "r: { rule: Host(`a.test`), service: s }";
    let tcp = "db: { rule: ClientIP(`10.0.0.0/8`), entryPoints: [db], service: db }";
    let import = import("web=:80 db=:5432", http, tcp);
    assert_eq!(import.config.listeners.len(), 1, "{}", import.to_text());
    says(&import, "rule: ClientIP", "refused", "by the name in the handshake only");
    // Traefik ignores this one.
    let tcp = "db: { rule: HostSNI(`db.test`), entryPoints: [db], service: db }";
    let import = self::import("web=:80 db=:5432", http, tcp);
    assert_eq!(import.config.listeners.len(), 2, "{}", import.to_text());
    says(&import, "rule: HostSNI", "refused", "of connections with TLS");
}

#[test]
fn a_tcp_router_with_tls_has_a_port_before_http_by_default() {
    let tcp = "mq: { rule: HostSNI(`*`), entryPoints: [mqtt], service: mq, tls: {} }";
    let by_default = import("web=:80 mqtt=:8883", "r: { rule: Host(`a.test`), service: s }", tcp);
    refuses_nothing(&by_default);
    let all = listeners(&by_default);
    assert!(all.contains("tcp: { upstream: mq, idle: 0s }") && !all.contains("otherwise"), "{all}");
    // Cleartext that names the entry point stays; Weir cannot have both.
    let named = "r: { rule: Host(`a.test`), entryPoints: [mqtt], service: s }";
    let named = import("web=:80 mqtt=:8883", named, tcp);
    assert!(!listeners(&named).contains("tcp:"), "{}", listeners(&named));
    says(&named, "HostSNI", "refused", "another router takes all other connections of this port");
}

#[test]
fn hosts_of_https_come_before_a_tcp_router_for_all() {
    let http = "r: { rule: Host(`a.test`) || Host(`b.test`), entryPoints: [secure], service: s, tls: {} }";
    let tcp = "t: { rule: HostSNI(`*`), entryPoints: [secure], service: db, tls: { passthrough: true } }";
    let passed = import("secure=:443", http, tcp);
    let all = listeners(&passed);
    assert!(all.contains("sni: { a.test: { listener: secure }, b.test: { listener: secure } }"), "{all}");
    assert!(all.contains("otherwise: { upstream: db, idle: 0s }"), "{all}");
    says(&passed, "HostSNI", "changed", "it gets connections without TLS, too");
    let ended = import("secure=:443", http, &tcp.replace("{ passthrough: true }", "{}"));
    refuses_nothing(&ended);
    assert!(listeners(&ended).contains("otherwise: { listener: secure-t }"), "{}", listeners(&ended));
    // A router without a host takes the rest before TCP.
    let http = format!("{http}, any: {{ rule: Path(`/x`), entryPoints: [secure], service: s, tls: {{}} }}");
    let any = import("secure=:443", &http, tcp);
    assert!(!listeners(&any).contains("otherwise"), "{}", listeners(&any));
    says(&any, "HostSNI", "refused", "another router takes all other connections of this port");
}

#[test]
fn hosts_of_https_come_before_names_of_tcp_routers() {
    let http = "r: { rule: Host(`www.a.test`) || Host(`b.test`), entryPoints: [secure], service: s, tls: {} }, any: { \
                rule: Path(`/x`), entryPoints: [secure], service: s, tls: {} }";
    let tcp = "t: { rule: HostSNI(`*.a.test`) || HostSNI(`b.test`), entryPoints: [secure], service: db, tls: { \
               passthrough: true } }";
    let import = import("secure=:443", http, tcp);
    refuses_nothing(&import);
    let all = listeners(&import);
    assert!(all.contains("www.a.test: { listener: secure }"), "{all}");
    assert!(all.contains("\"*.a.test\": { upstream: db, idle: 0s }") && !all.contains(" b.test:"), "{all}");
    says(
        &import,
        "HostSNI",
        "changed",
        "`b.test` belongs to an HTTP router with TLS, which Traefik asks first",
    );
}

#[test]
fn a_tcp_router_without_entry_points_is_on_the_default_ones() {
    let fixed = "entryPoints:\n  a: { address: \":1000\", asDefault: true }\n  b: { address: \":2000\" }\n";
    let import = imported(fixed, "", "t: { rule: HostSNI(`*`), service: db }");
    let all = listeners(&import);
    assert!(all.contains(":1000\"") && !all.contains(":2000"), "{all}");
}

#[test]
fn a_tcp_router_that_asks_for_certificates_is_refused() {
    const OPTIONS: &str = "tls:\n  options:\n    NAME: { clientAuth: { caFiles: [ca.pem], clientAuthType: \
                           RequireAndVerifyClientCert } }\n";
    let with = |options: &str, http: &str, tcp: &str| {
        let dynamic =
            format!("{ROUTERS}  routers: {{ {http} }}\n{SERVICES}  routers: {{ {tcp} }}\n{options}");
        let fixed = "entryPoints:\n  secure: { address: \":443\" }\n";
        let memory = Memory::of(&[("traefik.yml", fixed), ("dynamic.yml", &dynamic)]);
        let names = ["traefik.yml".to_owned(), "dynamic.yml".to_owned()];
        weir_import::import(weir_import::system("traefik").unwrap(), &memory, &names).unwrap()
    };
    let router = |tls: &str| {
        format!("t: {{ rule: HostSNI(`t.test`), entryPoints: [secure], service: db, tls: {{ {tls} }} }}")
    };
    let https = "r: { rule: Host(`a.test`), entryPoints: [secure], service: s, tls: { options: strict } }";
    let (default, strict) = (OPTIONS.replace("NAME", "default"), OPTIONS.replace("NAME", "strict"));
    for (options, tls) in [(&default, ""), (&strict, "options: strict"), (&strict, "options: strict@file")] {
        let import = with(options, "", &router(tls));
        says(&import, "", "refused", "its clients need a certificate");
        assert!(!import.to_text().contains("upstream: db"), "{}", import.to_text());
    }
    says(&with("", "", &router("options: lost")), "options", "refused", "`lost` is not in the files");
    // Traefik does not end the TLS of what it passes through.
    refuses_nothing(&with(&default, "", &router("passthrough: true")));
    // The HTTP routers of the port may ask for one.
    let beside = with(&strict, https, &router(""));
    refuses_nothing(&beside);
    let all = listeners(&beside);
    assert_eq!(all.matches("client_auth").count(), 1, "{all}");
}

#[test]
fn of_tcp_routers_for_one_name_the_priority_decides() {
    let router = |name: &str, service: &str, more: &str| {
        format!(
            "{name}: {{ rule: HostSNI(`a.test`), entryPoints: [secure], service: {service}, {more} tls: {{ passthrough: true }} }}"
        )
    };
    let (first, last) = (router("t", "db", "priority: 1000,"), router("u", "mq", "priority: 2,"));
    for tcp in [format!("{first}, {last}"), format!("{last}, {first}")] {
        let import = import("secure=:443", "", &tcp);
        let all = listeners(&import);
        assert!(all.contains("a.test: { upstream: db") && !all.contains("mq"), "{all}");
        says(
            &import,
            "HostSNI",
            "changed",
            "`a.test` belongs to a TCP router that Traefik asks before this one",
        );
    }
    // A guarded router that cannot be written does not leave its name to an open one.
    let guarded = router("t", "db", "priority: 1000, middlewares: [inner],");
    let allow = "middlewares: { inner: { ipAllowList: { sourceRange: [10.0.0.0/8] } } }";
    let import =
        import("secure=:443", "", &format!("{guarded}, {last} }}\n  {allow}\n  serversTransports: {{"));
    says(&import, "", "refused", "middlewares of a name among others at one port");
    assert!(import.written().iter().all(|file| !file.text.contains("upstream: mq")), "{}", import.to_text());
}

#[test]
fn an_address_of_ipv6_leaves_ipv4_to_the_others() {
    let http = "r: { rule: Host(`a.test`), service: s }";
    let import = import("web=:80 inner=[2001:db8::5]:80", http, "");
    let all = listeners(&import);
    assert!(all.contains("0.0.0.0:80") && all.contains("[2001:db8::5]:80"), "{all}");
    says(&import, "web", "changed", "IPv4 only: another entry point has one address of IPv6 at this port");
}
