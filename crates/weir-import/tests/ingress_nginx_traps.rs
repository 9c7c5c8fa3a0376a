//! The traps between ingress-nginx and Weir: for each an Ingress, and what our config or the report must say. None may
//! be silent.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use weir_import::Memory;

/// What the import of a file says and writes.
fn imported(text: &str) -> String {
    let memory = Memory::of(&[("a.yaml", text)]);
    match weir_import::import(weir_import::system("ingress-nginx").unwrap(), &memory, &["a.yaml".to_owned()])
    {
        Ok(import) => {
            let files: String = import.written().iter().map(|file| file.text.clone()).collect();
            format!("{}{files}", import.to_text())
        }
        Err(unreadable) => format!("unreadable: {unreadable}"),
    }
}

/// An Ingress with annotations (`key: value`, without their prefix) and a path.
fn ingress(annotations: &[&str], path: &str, kind: &str, spec: &str) -> String {
    let annotations: String =
        annotations.iter().map(|text| format!("    nginx.ingress.kubernetes.io/{text}\n")).collect();
    let annotations = if annotations.is_empty() { "    other.io/x: y\n".to_owned() } else { annotations };
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: i\n  annotations:\n{annotations}spec:\n  \
         rules:\n  - host: h.test\n    http: {{ paths: [ {{ path: {path}, pathType: {kind}, backend: {{ service: {{ \
         name: s, port: {{ number: 80 }} }} }} }} ] }}\n{spec}"
    )
}

/// One with these annotations.
fn with(annotations: &[&str]) -> String {
    ingress(annotations, "/p", "Prefix", "")
}

/// One with TLS.
fn over_tls(annotations: &[&str]) -> String {
    ingress(annotations, "/p", "Prefix", "  tls: [ { hosts: [h.test], secretName: t } ]\n")
}

fn both(one: &str, other: &str) -> String {
    format!("{one}---\n{other}")
}

/// The controller's ConfigMap with these keys.
fn settings(data: &str) -> String {
    both(
        &format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: ingress-nginx-controller }}\ndata: {{ {data} }}\n"
        ),
        &over_tls(&[]),
    )
}

/// A second Ingress for the same host.
fn second(text: &str, name: &str) -> String {
    text.replace("name: i\n", &format!("name: {name}\n")).replace("name: s,", &format!("name: {name},"))
}

#[test]
fn every_trap_is_told() {
    let canary = |annotations: &[&str]| {
        let mut all = vec!["canary: \"true\""];
        all.extend(annotations);
        both(&with(&[]), &second(&with(&all), "next"))
    };
    let dated = |text: String, date: &str| {
        text.replace("metadata:\n", &format!("metadata:\n  creationTimestamp: \"{date}\"\n"))
    };
    let cases: Vec<(&str, String, &[&str])> = vec![
        ("1 Prefix is by segments", with(&[]), &["path: \"/p/*\""]),
        (
            "1 ImplementationSpecific is raw",
            ingress(&[], "/p", "ImplementationSpecific", ""),
            &["path: \"/p*\""],
        ),
        ("1 Exact", ingress(&[], "/p", "Exact", ""), &["path: /p }"]),
        (
            "2 one Ingress with use-regex makes all paths of the host regexes",
            both(&with(&["use-regex: \"true\""]), &second(&ingress(&[], "/q", "Prefix", ""), "j")),
            &["~(?i)/q.*", "a pattern without case, whatever its pathType says"],
        ),
        (
            "3 the longest first",
            both(
                &ingress(&["use-regex: \"true\""], "/a.*", "ImplementationSpecific", ""),
                &second(&ingress(&[], "/a/long", "Prefix", ""), "j"),
            ),
            &["~(?i)/a/long.*\" } priority: 1"],
        ),
        (
            "4 rewrite-target with groups",
            ingress(&["rewrite-target: /x/$2"], "\"/p(/|$)(.*)\"", "ImplementationSpecific", ""),
            &["~(?i)/p(/|$$)(.*)", "path: \"/x/{2}\""],
        ),
        ("4 without groups every path becomes one", with(&["rewrite-target: /"]), &["rewrite: { path: / }"]),
        ("5 x-forwarded-prefix", with(&["x-forwarded-prefix: /p"]), &["x-forwarded-prefix: /p"]),
        ("6 ssl-redirect where there is TLS", over_tls(&[]), &["redirect: { https: true }"]),
        (
            "6 not without",
            with(&[]),
            &["match: { hosts: [h.test], path: \"/p/*\" }\n    filters: [ { body_limit"],
        ),
        ("6 force-ssl-redirect", with(&["force-ssl-redirect: \"true\""]), &["redirect: { https: true }"]),
        ("6 HSTS", over_tls(&[]), &["max-age=31536000; includeSubDomains"]),
        ("7 bodies", with(&[]), &["body_limit: { max: 1MiB }"]),
        ("7 bodies without limit", with(&["proxy-body-size: \"0\""]), &["path: \"/p/*\" }, upstream"]),
        ("8 timeouts", with(&["proxy-read-timeout: \"7\""]), &["connect: 5s, response: 7s, body: 7s"]),
        ("9 retries", with(&[]), &["retry: { attempts: 3, \"on\": [connect, reset, timeout] }"]),
        (
            "9 retries by status",
            with(&["proxy-next-upstream: error http_503 non_idempotent"]),
            &["[connect, reset, 503], \
            methods: all"],
        ),
        ("9 no retries", with(&["proxy-next-upstream: \"off\""]), &["retry: { attempts: 1 }"]),
        ("10 upstream-vhost", with(&["upstream-vhost: v.test"]), &["host: v.test"]),
        (
            "11 fields that are always sent",
            with(&[]),
            &[
                "x-real-ip: \"{client}\"",
                "x-scheme: \"{scheme}\"",
                "request_id: { \
            response: false }",
                "no X-Original-Forwarded-For",
            ],
        ),
        (
            "11 use-forwarded-headers",
            settings("use-forwarded-headers: \"true\""),
            &["any client could forge"],
        ),
        (
            "12 auth-url and auth-signin",
            with(&[
                "auth-url: http://auth.test/verify",
                "auth-signin: https://login.test/start?rd=$escaped_request_uri",
            ]),
            &[
                "path: /verify",
                "copy_request: all",
                "answers: nginx",
                "x-original-url: \"{= request.url }\"",
                "redirect: 'https://login.test/start?rd={= request.query == \"\" ? request.path : request.path + \"?\" + \
                 request.query }'",
            ],
        ),
        (
            "12 auth-signin of the same host, whole URLs and other parameters",
            with(&[
                "auth-url: http://auth.test/verify",
                "auth-signin: https://$host/oauth2/start?next=$scheme://$host$escaped_request_uri",
                "auth-signin-redirect-param: next",
                "auth-method: POST",
            ]),
            &["redirect: \"/oauth2/start?next={= request.url }\"", "method: POST"],
        ),
        (
            "12 auth-signin without a parameter",
            with(&["auth-url: http://auth.test/verify", "auth-signin: https://login.test/?a=b"]),
            &["redirect: \"https://login.test/?a=b&rd={= request.url }\""],
        ),
        (
            "12 auth-signin with other variables",
            with(&["auth-url: http://auth.test/verify", "auth-signin: https://$cookie_x/"]),
            &["has variables that Weir does not"],
        ),
        (
            "cookies of the Service",
            with(&["proxy-cookie-domain: internal.test h.test", "proxy-cookie-path: /app/ /"]),
            &["cookies: { \"*\": { domain: { internal.test: h.test }, path: { /app/: / } } }"],
        ),
        ("cookies by a pattern", with(&["proxy-cookie-path: '~^/(.*)$ /x/$1'"]), &["is a pattern"]),
        (
            "TLS of the ConfigMap",
            settings(
                "ssl-ciphers: \"ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA\", ssl-session-tickets: \"false\", ssl-ecdh-curve: \"X25519\"",
            ),
            &[
                "ciphers: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]",
                "curves: [X25519]",
                "tickets: false",
                "does not have AES128-SHA",
            ],
        ),
        (
            "12 auth-url with variables",
            with(&["auth-url: http://auth.test/$uri"]),
            &["CLOSED by weir import"],
        ),
        (
            "13 auth-response-headers",
            with(&["auth-url: http://a.test", "auth-response-headers: X-User"]),
            &["copy: [x-user]"],
        ),
        (
            "13 auth-snippet",
            with(&["auth-url: http://a.test", "auth-snippet: x"]),
            &["directives of nginx", "CLOSED by weir import"],
        ),
        (
            "13 auth-cache-key",
            with(&["auth-url: http://a.test", "auth-cache-key: $x"]),
            &["forward_auth.cache"],
        ),
        (
            "14 auth-type without its Secret",
            with(&["auth-type: basic", "auth-secret: u"]),
            &[
                "nobody may pass",
                "CLOSED by weir \
            import",
            ],
        ),
        (
            "14 old hashes",
            both(
                "apiVersion: v1\nkind: Secret\nmetadata: { name: u }\nstringData: { auth: \"bob:$apr1$x$y\" }\n",
                &with(&["auth-type: basic", "auth-secret: u"]),
            ),
            &["user bob has a hash of MD5", "basic_auth:", "auth ***"],
        ),
        (
            "14 digest",
            with(&["auth-type: digest", "auth-secret: u"]),
            &["digest authentication", "CLOSED by weir import"],
        ),
        (
            "15 whitelist-source-range",
            with(&["whitelist-source-range: 10.0.0.0/8"]),
            &["ip: { allow: [10.0.0.0/8] }"],
        ),
        (
            "15 denylist-source-range",
            with(&["denylist-source-range: 10.0.0.0/8"]),
            &["ip: { deny: [10.0.0.0/8] }"],
        ),
        (
            "16 limit-rps",
            with(&["limit-rps: \"3\""]),
            &["requests: 3, per: 1s, burst: 15, by: address", "429, not 503"],
        ),
        (
            "16 limit-burst-multiplier",
            with(&["limit-rpm: \"3\"", "limit-burst-multiplier: \"2\""]),
            &["per: 1m, burst: 6"],
        ),
        (
            "17 limit-connections",
            with(&["limit-connections: \"3\""]),
            &["concurrency: { requests: 3, by: address }"],
        ),
        ("17 limit-rate", with(&["limit-rate: \"3\""]), &["does not slow answers down"]),
        (
            "18 canary by weight",
            canary(&["canary-weight: \"20\""]),
            &["default-s-80: 80, default-next-80: 20"],
        ),
        (
            "18 canary by header",
            canary(&["canary-by-header: X-C", "canary-weight: \"20\""]),
            &[
                "request.headers[\"x-c\"] == \
            \"always\"",
                "request.headers[\"x-c\"] == \"never\"",
            ],
        ),
        (
            "18 canary by value",
            canary(&["canary-by-header: X-C", "canary-by-header-value: v"]),
            &["== \"v\""],
        ),
        (
            "18 canary by pattern",
            canary(&["canary-by-header: X-C", "canary-by-header-pattern: ^a"]),
            &["matches(\"^a\")"],
        ),
        ("18 canary by cookie", canary(&["canary-by-cookie: c"]), &["request.cookies[\"c\"] == \"always\""]),
        (
            "19 affinity",
            with(&["affinity: cookie"]),
            &["cookie: INGRESSCOOKIE", "an HMAC by a key of your own"],
        ),
        ("20 load-balance", with(&["load-balance: ewma"]), &["balancer: ewma"]),
        ("20 round_robin is the default", with(&[]), &["balancer: round_robin"]),
        (
            "21 enable-cors",
            with(&["enable-cors: \"true\""]),
            &["origins: [\"*\"]", "browsers send no credentials"],
        ),
        (
            "21 credentials",
            with(&["enable-cors: \"true\"", "cors-allow-origin: https://a.test"]),
            &["credentials: true"],
        ),
        ("22 app-root", ingress(&["app-root: /app"], "/", "Prefix", ""), &["to: /app, status: 302"]),
        (
            "22 permanent-redirect",
            with(&["permanent-redirect: https://n.test"]),
            &["to: https://n.test, status: 301, \
            keep_query: false"],
        ),
        (
            "22 temporal-redirect",
            with(&["temporal-redirect: https://n.test$request_uri"]),
            &["to: \"https://n.test{path}\", \
            status: 302"],
        ),
        (
            "22 from-to-www-redirect",
            with(&["from-to-www-redirect: \"true\""]),
            &["www.h.test", "{scheme}://h.test{path}"],
        ),
        (
            "23 HTTPS is not verified",
            with(&["backend-protocol: HTTPS"]),
            &["verify: false", "does not verify"],
        ),
        ("23 GRPC", with(&["backend-protocol: GRPC"]), &["protocol: h2c"]),
        (
            "23 FCGI",
            with(&["backend-protocol: FCGI"]),
            &["needs the folder of the scripts", "CLOSED by weir import"],
        ),
        (
            "24 proxy-ssl",
            with(&["backend-protocol: HTTPS", "proxy-ssl-verify: \"on\"", "proxy-ssl-secret: ns/ca"]),
            &["ca: \
            /etc/weir/certs/ns-ca.ca.pem"],
        ),
        (
            "25 custom-http-errors",
            with(&["custom-http-errors: \"404\""]),
            &["pages of a Service are not translated"],
        ),
        ("25 default-backend", with(&["default-backend: d"]), &["the Service of a Service without Pods"]),
        ("26 server-alias", with(&["server-alias: a.test,b.test"]), &["hosts: [h.test, a.test, b.test]"]),
        ("26 patterns", with(&["server-alias: '~^x.*$'"]), &["the pattern `~^x.*$`"]),
        (
            "27 snippets",
            with(&["configuration-snippet: 'more_set_headers \"A: b\";'"]),
            &["directives of nginx"],
        ),
        (
            "27 snippets that may guard",
            with(&["configuration-snippet: 'deny all;'"]),
            &["CLOSED by weir import"],
        ),
        (
            "28 mirror-target",
            with(&["mirror-target: https://m.test$request_uri"]),
            &["mirror: { upstream: mirror-m.test }"],
        ),
        (
            "29 buffering",
            with(&["proxy-buffering: \"on\"", "proxy-buffer-size: 8k"]),
            &[
                "Weir streams; the filter buffer holds",
                "buffers and \
            logs of nginx",
            ],
        ),
        (
            "30 two Ingresses with one path: the older wins",
            both(
                &dated(with(&[]), "2026-01-02T00:00:00Z"),
                &dated(second(&with(&[]), "j"), "2025-01-02T00:00:00Z"),
            ),
            &["the Ingress default/j for the same path is older, and wins", "upstream: default-j-80"],
        ),
        (
            "30 without a time nobody knows",
            both(&with(&[]), &second(&with(&[]), "j")),
            &["no creationTimestamp says which is \
            older"],
        ),
        (
            "a host chooses before its paths",
            both(&with(&[]), &second(&ingress(&[], "/", "Prefix", "").replace("h.test", "\"*.test\""), "j")),
            &["nginx chooses by host first"],
        ),
        (
            "a named port",
            with(&[]).replace("number: 80", "name: web"),
            &["give the Service too", "CLOSED by weir import"],
        ),
        (
            "another class",
            with(&[]).replace("spec:\n", "spec:\n  ingressClassName: alb\n"),
            &["another controller's"],
        ),
        (
            "an old version",
            with(&[]).replace("networking.k8s.io/v1", "extensions/v1beta1"),
            &["`kubectl convert`"],
        ),
        ("unknown annotations", with(&["frobnicate: \"1\""]), &["does not know the annotation frobnicate"]),
        ("unknown settings", settings("frobnicate: \"1\""), &["does not know `frobnicate`"]),
        (
            "unknown keys",
            with(&[]).replace("spec:\n", "spec:\n  frobnicate: 1\n"),
            &["does not know this key of the spec"],
        ),
        (
            "the ConfigMap's defaults",
            settings("proxy-body-size: 9m, ssl-redirect: \"false\""),
            &["body_limit: { max: 9MiB }"],
        ),
        (
            "certificates of clients",
            over_tls(&["auth-tls-secret: ns/ca"]),
            &[
                "client_auth: { ca: /etc/weir/certs/ns-ca-ca.pem, mode: \
            optional }",
                "client.cert.subject == \"\"",
                "ssl-client-subject-dn: \"{tls_client_subject}\"",
                "ssl-client-verify: '{= client.cert.subject == \"\" ? \"NONE\" : \"SUCCESS\" }'",
                "remove: [ssl-client-cert, ssl-client-issuer-dn]",
            ],
        ),
        (
            "a closed route keeps its Service",
            with(&["configuration-snippet: 'deny all;'"]),
            &["upstream: default-s-80"],
        ),
        (
            "certificates in a field",
            over_tls(&["auth-tls-secret: ns/ca", "auth-tls-pass-certificate-to-upstream: \"true\""]),
            &["Weir sends no ssl-client-cert"],
        ),
        (
            "ssl-passthrough",
            with(&["ssl-passthrough: \"true\""]),
            &["sni: { h.test: { upstream: default-s-80"],
        ),
        (
            "satisfy any of an address alone",
            with(&["satisfy: any", "whitelist-source-range: 10.0.0.0/8"]),
            &["ip: { allow: [10.0.0.0/8] }"],
        ),
        (
            "satisfy any",
            both(
                "apiVersion: v1\nkind: Secret\nmetadata: { name: u }\nstringData: { auth: \"ann:$2y$05$SmqQvPoTJdz5nYWEdzGlreZ1lK6wJ2oVYtQMcaBmdBRD.3CLvjKc2\" }\n",
                &with(&[
                    "satisfy: any",
                    "whitelist-source-range: 10.0.0.0/8",
                    "auth-type: basic",
                    "auth-secret: u",
                ]),
            ),
            &["any: [ { basic_auth: { hide: false } }, { ip: { allow: [10.0.0.0/8] } } ]"],
        ),
        (
            "satisfy any with a service",
            with(&["satisfy: any", "whitelist-source-range: 10.0.0.0/8", "auth-url: http://a.test"]),
            &["so both are required"],
        ),
    ];
    let mut silent = Vec::new();
    for (name, text, said) in &cases {
        let all = imported(text);
        let flat = all.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in *said {
            let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
            if !flat.contains(&words) {
                silent.push(format!("{name}: no `{words}` in\n{all}"));
            }
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n\n"));
}

#[test]
fn wrong_types_everywhere_are_refused_not_guessed() {
    let values = [
        "1",
        "text",
        "[1, 2]",
        "{ a: 1 }",
        "[[x]]",
        "true",
        "null",
        "{ rules: 1 }",
        "{ rules: [ { http: [] } ] }",
        "{ rules: [ { http: { paths: [ { path: [], backend: 1 } ] } } ] }",
        "{ tls: [1], rules: [1] }",
    ];
    for kind in ["Ingress", "Service", "Secret", "ConfigMap", "Endpoints", "EndpointSlice", "List", "X"] {
        for key in ["metadata", "spec", "data", "items", "subsets", "endpoints", "ports"] {
            for value in values {
                let text =
                    imported(&format!("apiVersion: networking.k8s.io/v1\nkind: {kind}\n{key}: {value}\n"));
                assert!(!text.is_empty());
            }
        }
    }
    assert!(imported("a: 1\n").contains("no manifest"));
}

#[test]
fn what_may_protect_a_route_closes_it() {
    for (annotation, why) in [
        ("configuration-snippet: 'return  403;'", "configuration-snippet has `return 4`"),
        ("configuration-snippet: 'internal;'", "configuration-snippet has `internal`"),
        ("configuration-snippet: 'secure_link $arg_md5;'", "configuration-snippet has `secure_link`"),
        ("limit-connections: ten", "limit-connections cannot be read"),
    ] {
        let text = imported(&with(&[annotation]));
        assert!(text.contains(why) && text.contains("CLOSED"), "{annotation}\n{text}");
    }
}

#[test]
fn requests_go_to_pods_unless_the_service_is_asked_for() {
    const POD: &str = "10.4.0.7:8080";
    const SERVICE: &str = "s.default.svc.cluster.local:80";
    let objects = "apiVersion: v1\nkind: Service\nmetadata: { name: s }\nspec: { ports: [ { name: web, port: 80 } ] }\n\
         ---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: { name: s-1, labels: { kubernetes.io/service-name: s } }\n\
         ports: [ { name: web, port: 8080 } ]\nendpoints: [ { addresses: [10.4.0.7] } ]\n";
    let for_all = settings("service-upstream: \"true\"");
    let but_one = "nginx.ingress.kubernetes.io/service-upstream: \"false\"";
    for (text, is_service) in [
        (with(&[]), false),
        (with(&["service-upstream: \"false\""]), false),
        (with(&["service-upstream: \"true\""]), true),
        (with(&["ssl-passthrough: \"true\""]), false),
        (with(&["ssl-passthrough: \"true\"", "service-upstream: \"true\""]), true),
        (for_all.clone(), true),
        (for_all.replace("other.io/x: y", but_one), false),
    ] {
        let all = imported(&both(objects, &text));
        assert_eq!((all.contains(SERVICE), all.contains(POD)), (is_service, !is_service), "{text}\n{all}");
    }
}

/// nginx has one `server` for all Ingresses of a host, so what one sets for it holds for the others.
#[test]
fn settings_of_a_host_hold_for_all_its_ingresses() {
    for (annotation, tls, guard) in [
        ("auth-tls-secret: ns/ca", true, "client.cert.subject == \"\""),
        ("server-snippet: 'deny all;'", false, "server-snippet has `deny`"),
        ("proxy-body-size: 9m", true, "redirect: { https: true }"),
    ] {
        let first = if tls { over_tls(&[annotation]) } else { with(&[annotation]) };
        let other = second(&ingress(&[], "/open", "Prefix", ""), "other");
        for all in [imported(&both(&first, &other)), imported(&both(&other, &first))] {
            let count = all.matches(guard).count();
            assert!(count >= 2, "{annotation}: `{guard}` is there {count} times in\n{all}");
        }
    }
}
