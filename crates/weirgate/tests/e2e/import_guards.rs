//! `weir import` fails closed: what guards a route and cannot be translated keeps its requests from the upstream.
//!
//! Each case is a config of another system with one such guard, and requests that the guard concerns. The imported
//! config runs in front of an upstream, and must refuse every one of these requests. If a case names a request that the
//! guard does not concern, that one must arrive: a config that is closed as a whole does not pass.

use std::fs;
use std::path::Path;

use weir_testkit::{Client, Upstream, Weir, run_weir, weir_command};

/// A guard and the requests that it concerns: `METHOD PATH`, with fields behind it.
struct Guard {
    name: &'static str,
    source: String,
    refused: &'static [&'static str],
    /// A request that the guard does not concern.
    passes: Option<&'static str>,
}

fn guard(name: &'static str, source: impl Into<String>, refused: &'static [&'static str]) -> Guard {
    Guard { name, source: source.into(), refused, passes: None }
}

impl Guard {
    fn but(mut self, passes: &'static str) -> Self {
        self.passes = Some(passes);
        self
    }
}

const ADMIN: &[&str] = &["GET /admin"];

/// Imports each config, runs it, and asks it the requests of its guard.
fn all_are_refused(system: &str, file: &str, guards: &[Guard]) {
    let upstream = Upstream::named("UPSTREAM");
    let mut wrong = Vec::new();
    for guard in guards {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(file), &guard.source).unwrap();
        let told = run_weir(dir.path(), &["import", system, file, "-o", "out"]);
        if told.stdout.contains("a mistake of weir import") {
            wrong.push(format!("{}: {}", guard.name, told.stdout));
            continue;
        }
        let weir = started(&dir.path().join("out"), &upstream);
        let listeners = fs::read_to_string(dir.path().join("out/listeners.yaml")).unwrap();
        let listener = first_name(&listeners);
        let ask = |request: &str| {
            let mut lines = request.split('|');
            let (method, path) = lines.next().unwrap().split_once(' ').unwrap();
            let fields: String = lines.map(|field| format!("{field}\r\n")).collect();
            let head =
                format!("{method} {path} HTTP/1.1\r\nHost: h.test\r\nConnection: close\r\n{fields}\r\n");
            let answer = Client::connect(weir.address(&listener)).ask(&head);
            (answer.status, String::from_utf8_lossy(&answer.body.bytes).contains("UPSTREAM"))
        };
        for request in guard.refused {
            let (status, arrived) = ask(request);
            if arrived || ![401, 403, 404, 405, 426, 503].contains(&status) {
                wrong.push(format!("{}: {request} is answered {status}, arrived: {arrived}", guard.name));
            }
        }
        if let Some((request, (status, false))) = guard.passes.map(|request| (request, ask(request))) {
            wrong.push(format!("{}: {request} is answered {status} and must pass", guard.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Runs what an import wrote, at a free address and in front of this upstream.
fn started(out: &Path, upstream: &Upstream) -> Weir {
    let main = fs::read_to_string(out.join("weir.yaml")).unwrap();
    let main = main.replace("127.0.0.1:9180", "127.0.0.1:0");
    let secrets = fs::read_to_string(out.join("secrets.env")).unwrap_or_default();
    Weir::start_by(&format!("{main}\nwatch: false\n"), |folder| {
        for sub in ["", "routes", "users"] {
            fs::create_dir_all(folder.join(sub)).unwrap();
            for file in fs::read_dir(out.join(sub)).into_iter().flatten().map(|entry| entry.unwrap().path()) {
                if !file.is_file() || file.ends_with("weir.yaml") {
                    continue;
                }
                let mut text = fs::read_to_string(&file).unwrap();
                for port in ["80", "8000", "8443", "9080", "9443", "443"] {
                    text = text.replace(&format!("0.0.0.0:{port} "), "127.0.0.1:0 ");
                    text = text.replace(&format!("\"[::]:{port}\""), "127.0.0.1:0");
                }
                // The address of every upstream of the sources.
                text = text.replace("10.1.1.1:80", &upstream.address().to_string());
                text = text.replace("s.d.svc.cluster.local:80", &upstream.address().to_string());
                fs::write(folder.join(sub).join(file.file_name().unwrap()), text).unwrap();
            }
        }
        let mut command = weir_command(folder);
        for line in secrets.lines() {
            if let Some((name, value)) = line.trim_start_matches('#').split_once("=\"") {
                command.env(name, value.trim_end_matches('"').replace("\\$", "$"));
            }
        }
        command.args(["run", "-c", "weir.yaml"]);
        command
    })
}

/// The first listener of a file of them.
fn first_name(listeners: &str) -> String {
    let line =
        listeners.lines().find(|line| line.starts_with("  ") && !line.trim().starts_with('#')).unwrap();
    line.trim().split(':').next().unwrap().to_owned()
}

#[test]
fn guards_of_nginx() {
    let server = |guard: &str| {
        format!(
            "upstream u {{ server 10.1.1.1:80; }}\nserver {{ listen 80; server_name h.test;\n{guard}\n location / {{ \
             proxy_pass http://u; }} }}\n"
        )
    };
    let location = |inside: &str| server(&format!("location /admin {{ {inside} proxy_pass http://u; }}"));
    let with = |before: &str, inside: &str| format!("{before}\n{}", location(inside));
    let deny = "if ($deny) { return 403; }";
    all_are_refused(
        "nginx",
        "site.conf",
        &[
            guard("Lua", location("access_by_lua_block { ngx.exit(403) }"), ADMIN).but("GET /"),
            guard("a module", location("auth_ldap x;"), ADMIN).but("GET /"),
            guard("ModSecurity", location("modsecurity on;"), ADMIN).but("GET /"),
            guard("a password without a file", location("auth_basic x;"), ADMIN).but("GET /"),
            guard("auth_request with a variable", location("auth_request $a;"), ADMIN).but("GET /"),
            guard("an unknown variable", location("if ($geoip_country_code = XX) { return 403; }"), ADMIN),
            guard("a look-ahead in if", location("if ($http_x ~ '(?=a)b') { return 403; }"), ADMIN),
            guard("a look-ahead in a location", server("location ~ ^/(?=admin) { deny all; }"), ADMIN),
            guard("a back-reference", server(r"location ~ ^/(.)\1dmin { deny all; }"), &["GET /aadmin"]),
            guard("a file that is missing", location("include acl.conf;"), ADMIN).but("GET /"),
            guard("a file of the server that is missing", server("include security.conf;"), &["GET /"]),
            guard("a folder that is missing", location("include acl.d/*.conf;"), ADMIN).but("GET /"),
            guard("a file of proxy settings is no guard", location("include proxy_params;"), &[])
                .but("GET /admin"),
            guard("geo with a missing file", with("geo $deny { default 0; include x; }", deny), ADMIN),
            guard("map with a missing file", with("map $uri $deny { default 0; include x; }", deny), ADMIN),
            guard("map of a module's variable", with("map $geoip_x $deny { default 1; a 0; }", deny), ADMIN),
            guard("a limit without its zone", location("limit_req zone=nope;"), ADMIN).but("GET /"),
            guard(
                "a limit by an unknown key",
                with("limit_req_zone $geoip_x zone=z:1m rate=1r/s;", "limit_req zone=z;"),
                ADMIN,
            )
            .but("GET /"),
            guard(
                "the case of a parameter",
                location("if ($arg_debug) { return 403; }"),
                &["GET /admin?Debug=1", "GET /admin?debug=1", "GET /admin?a=b&DEBUG=1"],
            )
            .but("GET /admin?xdebug=1"),
            guard(
                "the first of two parameters",
                location("if ($arg_a = 1) { return 403; }"),
                &["GET /admin?a=1&a=2"],
            )
            .but("GET /admin?a=2&a=1"),
            guard(
                "a look-ahead for a word",
                server(r"location ~ /\.(?!well-known).* { deny all; }"),
                &["GET /.env", "GET /a/.git/config", "GET /.well-known/.env"],
            )
            .but("GET /.well-known/x"),
        ],
    );
}

#[test]
fn guards_of_haproxy() {
    let frontend = |guard: &str| {
        format!(
            "defaults\n  mode http\n  timeout client 5s\n  timeout server 5s\n  timeout connect 5s\nfrontend f\n  bind \
             :80\n  {guard}\n  default_backend b\nbackend b\n  server s 10.1.1.1:80\n"
        )
    };
    let all = &["GET /"];
    all_are_refused(
        "haproxy",
        "haproxy.cfg",
        &[
            guard("an unknown sample", frontend("http-request deny if { frob(x) -m found }"), all),
            guard("an ACL that is not there", frontend("http-request deny unless nope"), all),
            guard(
                "an unknown sample and a path",
                frontend("http-request deny if { path_beg /admin } { frob }"),
                ADMIN,
            )
            .but("GET /"),
            guard(
                "a userlist that is missing",
                frontend("http-request auth unless { http_auth(nope) }"),
                all,
            ),
            guard("Lua", frontend("http-request lua.guard"), all),
            guard("an unknown action", frontend("http-request frob x if { path_beg /admin }"), ADMIN)
                .but("GET /"),
            guard("an unknown line", frontend("frobguard on"), all),
            guard("reqdeny", frontend(r"reqdeny ^GET\ /admin"), ADMIN),
            guard(
                "a condition of the preprocessor",
                frontend(".if defined(X)\n  http-request deny\n  .endif"),
                all,
            ),
            guard("a bind in a condition is no guard", frontend(".if defined(X)\n  bind :81\n  .endif"), &[])
                .but("GET /"),
            guard("Lua for connections", frontend("tcp-request content lua.x"), all),
            guard(
                "set-src",
                frontend("http-request set-src hdr(x-f)\n  http-request deny if !{ src 127.0.0.0/8 }"),
                &["GET /|x-f: 11.1.1.1"],
            ),
            guard(
                "addresses in a field",
                frontend("http-request deny if { req.hdr_ip(x-where) 10.0.0.0/8 }"),
                &["GET /|x-where: 10.1.1.1", "GET /|x-where: 9.9.9.9, 10.1.1.1"],
            )
            .but("GET /|x-where: 11.1.1.1"),
            guard("no backend", frontend("use_backend nope if { path_beg /admin }"), ADMIN).but("GET /"),
        ],
    );
}

#[test]
fn guards_of_caddy() {
    let site = |guard: &str| format!("http://h.test {{\n{guard}\n  reverse_proxy 10.1.1.1:80\n}}\n");
    let named = |matcher: &str| site(&format!("  @a {matcher}\n  respond @a 403"));
    all_are_refused(
        "caddy",
        "Caddyfile",
        &[
            guard("an unknown directive", site("  frobguard /admin*"), ADMIN),
            guard("an unknown matcher", named("frob x"), ADMIN),
            guard("a network that is none", named("not remote_ip frob"), ADMIN),
            guard("a network of the environment", named("not remote_ip {$ALLOWED}"), ADMIN),
            guard("a placeholder in a path", named("path /{http.request.host}/*"), &["GET /h.test/x"]),
            guard("an escaped slash", named("path /a%2Fb"), &["GET /a%2Fb"]),
            guard("a folder that is missing", site("  import acl.d/*.conf"), ADMIN),
            guard(
                "not, with two conditions",
                named("not {\n path /public*\n header X-Ok 1\n }"),
                &["GET /admin", "GET /public", "GET /admin|X-Ok: 1"],
            )
            .but("GET /public|X-Ok: 1"),
            guard("a policy of a plugin", site("  authorize with mypolicy"), ADMIN),
        ],
    );
}

#[test]
fn guards_of_caddy_in_json() {
    let server = |route: &str| {
        format!(
            r#"{{"apps":{{"http":{{"servers":{{"s":{{"listen":[":80"],"automatic_https":{{"disable":true}},"routes":[{route},
            {{"handle":[{{"handler":"reverse_proxy","upstreams":[{{"dial":"10.1.1.1:80"}}]}}]}}]}}}}}}}}}}"#
        )
    };
    let deny = r#""handle":[{"handler":"static_response","status_code":403}]"#;
    all_are_refused(
        "caddy",
        "caddy.json",
        &[
            guard("an unknown matcher", server(&format!(r#"{{"match":[{{"frob":{{}}}}],{deny}}}"#)), ADMIN),
            guard("a text for a list", server(&format!(r#"{{"match":[{{"path":"/admin*"}}],{deny}}}"#)), ADMIN),
            guard("a map for a list", server(&format!(r#"{{"match":{{"path":["/x"]}},{deny}}}"#)), ADMIN),
            guard(
                "a handler for a list",
                server(r#"{"match":[{"path":["/admin*"]}],"handle":{"handler":"static_response","status_code":403}}"#),
                ADMIN,
            )
            .but("GET /"),
            guard(
                "an unknown handler",
                server(r#"{"match":[{"path":["/admin*"]}],"handle":[{"handler":"frob"}]}"#),
                ADMIN,
            )
            .but("GET /"),
        ],
    );
}

#[test]
fn guards_of_traefik() {
    let config = |rule: &str, middleware: &str| {
        format!(
            "http:\n  routers:\n    all: {{ rule: Host(`h.test`), service: s, entryPoints: [web] }}\n    guard: {{ rule: \
             '{rule}', service: s, entryPoints: [web], middlewares: [m], priority: 1000 }}\n  middlewares: {{ m: \
             {middleware} }}\n  services: {{ s: {{ loadBalancer: {{ servers: [ {{ url: \"http://10.1.1.1:80\" }} ] }} }} }}\n"
        )
    };
    let deny = "{ ipAllowList: { sourceRange: [10.9.9.9] } }";
    let rule = |rule: &str| config(rule, deny);
    let middleware = |text: &str| config("Host(`h.test`) && PathPrefix(`/admin`)", text);
    let many: Vec<String> = (0..80).map(|n| format!("(Path(`/a{n}`) && Query(`q{n}`, `1`))")).collect();
    all_are_refused(
        "traefik",
        "dynamic.yml",
        &[
            guard("an unknown matcher", rule("Host(`h.test`) && PathPrefix(`/admin`) && Frob(`x`)"), ADMIN)
                .but("GET /"),
            guard("nothing but an unknown matcher", rule("Frob(`x`)"), ADMIN),
            guard("a rule that is none", rule("Host(`h.test`) && PathPrefix(`/admin`"), ADMIN),
            guard("a look-ahead", rule("Host(`h.test`) && PathRegexp(`^/admin(?=x)`)"), &["GET /adminx"]),
            guard(
                "too many alternatives",
                rule(&format!("Host(`h.test`) && ({} || Path(`/admin`))", many.join(" || "))),
                ADMIN,
            ),
            guard("several hosts in v3", rule("Host(`h.test`, `x.test`) && PathPrefix(`/admin`)"), ADMIN)
                .but("GET /"),
            guard("braces of v2", rule("Host(`h.test`) && PathPrefix(`/{a:admin|root}`)"), ADMIN),
            guard(
                "a repeated field",
                rule("Host(`h.test`) && Header(`X`, `a`)"),
                &["GET /|X: a|X: b", "GET /|X: b|X: a"],
            )
            .but("GET /|X: b"),
            guard(
                "a repeated parameter",
                rule("Host(`h.test`) && Query(`q`, `1`)"),
                &["GET /?q=1&q=2", "GET /?q=2&q=1"],
            )
            .but("GET /?q=2"),
            guard("a plugin", middleware("{ plugin: { x: { a: 1 } } }"), ADMIN).but("GET /"),
            guard(
                "a setting that nobody knows",
                middleware("{ ipAllowList: { sourceRange: [127.0.0.0/8], x: 1 } }"),
                ADMIN,
            )
            .but("GET /"),
            guard("a list of nobody", middleware("{ ipAllowList: {} }"), ADMIN).but("GET /"),
        ],
    );
}

#[test]
fn guards_of_kong() {
    let route = |matches: &str, plugin: &str| {
        format!(
            "_format_version: '3.0'\nservices:\n- name: s\n  url: http://10.1.1.1:80\n  routes:\n  - {{ name: all, paths: [/], \
             strip_path: false }}\n  - {{ name: guard, strip_path: false, {matches}, plugins: [{plugin}] }}\n"
        )
    };
    let deny = "{ name: ip-restriction, config: { allow: [10.9.9.9] } }";
    let matched = |matches: &str| route(matches, deny);
    let plugin = |plugin: &str| route("paths: [/admin]", plugin);
    all_are_refused(
        "kong",
        "kong.yml",
        &[
            guard("an unknown plugin", plugin("{ name: frob }"), ADMIN).but("GET /"),
            guard("Lua", plugin("{ name: pre-function, config: { access: [x] } }"), ADMIN).but("GET /"),
            guard("nobody has a key", plugin("{ name: key-auth }"), ADMIN).but("GET /"),
            guard("a group that nobody has", plugin("{ name: acl, config: { allow: [x] } }"), ADMIN)
                .but("GET /"),
            guard("a list of nobody", plugin("{ name: ip-restriction, config: {} }"), ADMIN).but("GET /"),
            guard("a look-ahead", matched("paths: ['~/admin(?=x)']"), &["GET /adminx"]).but("GET /"),
            guard("a back-reference", matched(r"paths: ['~/(a)dmin\1']"), &["GET /admina"]),
            guard(
                "a field's pattern",
                matched("paths: [/admin], headers: { x: ['~*(?=a)'] }"),
                &["GET /admin|x: a"],
            )
            .but("GET /"),
            guard(
                "a repeated field",
                matched("paths: [/admin], headers: { x: [a, b] }"),
                &["GET /admin|x: b|x: c"],
            )
            .but("GET /admin|x: c"),
            guard("a host with a port", matched("paths: [/admin], hosts: ['h.test:8000']"), ADMIN)
                .but("GET /"),
            guard("a host that is none", matched("paths: [/admin], hosts: ['*h*']"), ADMIN).but("GET /"),
            guard("addresses", matched("paths: [/admin], sources: [{ ip: 127.0.0.1 }]"), ADMIN).but("GET /"),
            guard("an expression", matched("expression: 'http.path ^= \"/admin\"', priority: 100"), ADMIN),
            guard(
                "a service that is not there",
                format!(
                    "{}routes:\n- {{ name: g, service: nope, paths: [/admin] }}\n",
                    route("paths: [/x]", "")
                ),
                ADMIN,
            )
            .but("GET /"),
        ],
    );
}

#[test]
fn guards_of_apisix() {
    let upstream = "upstream: { type: roundrobin, nodes: { '10.1.1.1:80': 1 } }";
    let routes = |guard: &str| {
        format!("routes:\n- {{ id: all, uri: '/*', {upstream} }}\n- {{ id: g, {guard} }}\n#END\n")
    };
    let deny = "plugins: { ip-restriction: { whitelist: [10.9.9.9] } }";
    let matched = |matches: &str| routes(&format!("{matches}, {upstream}, {deny}"));
    let plugin = |plugins: &str| routes(&format!("uri: /admin, {upstream}, plugins: {{ {plugins} }}"));
    all_are_refused(
        "apisix",
        "apisix.yaml",
        &[
            guard("an unknown plugin", plugin("frob: {}"), ADMIN).but("GET /"),
            guard("Lua", plugin("serverless-pre-function: { functions: [x] }"), ADMIN).but("GET /"),
            guard(
                "a consumer that is not there",
                plugin("consumer-restriction: { whitelist: [bob] }"),
                ADMIN,
            )
            .but("GET /"),
            guard("a list of nobody", plugin("ip-restriction: {}"), ADMIN).but("GET /"),
            guard("an unknown variable", matched("uri: /admin, vars: [[frob, '==', '1']]"), ADMIN)
                .but("GET /"),
            guard("an unknown operator", matched("uri: /admin, vars: [[arg_x, 'FROB', '1']]"), ADMIN)
                .but("GET /"),
            guard(
                "a look-ahead",
                matched("uri: /admin, vars: [[arg_x, '~~', '(?=a)']]"),
                &["GET /admin?x=a"],
            )
            .but("GET /"),
            guard(
                "filter_func",
                matched("uri: /admin, filter_func: 'function(vars) return true end'"),
                ADMIN,
            )
            .but("GET /"),
            guard("an address that is none", matched("uri: /admin, remote_addr: frob"), ADMIN).but("GET /"),
            guard("a host that is none", matched("uri: /admin, host: 'h.*'"), ADMIN).but("GET /"),
            guard("a parameter", matched("uri: '/admin/:id'"), &["GET /admin/1"]).but("GET /"),
            guard("a star within", matched("uri: '/a*min'"), ADMIN).but("GET /"),
            guard(
                "the first of two parameters",
                matched("uri: /admin, vars: [[arg_d, '==', '1']]"),
                &["GET /admin?d=1&d=2"],
            )
            .but("GET /admin?d=2"),
            guard(
                "a plugin config that is not there",
                routes(&format!("uri: /admin, {upstream}, plugin_config_id: x")),
                ADMIN,
            )
            .but("GET /"),
            guard("a service that is not there", routes("uri: /admin, service_id: x"), ADMIN).but("GET /"),
            guard("an upstream that is not there", routes("uri: /admin, upstream_id: x"), ADMIN).but("GET /"),
            guard(
                "paths that a rewrite does not find",
                matched("uri: '/admin/*'").replace(
                    "plugins: {",
                    "plugins: { proxy-rewrite: { regex_uri: ['^/admin/x(.*)', '/$1'] },",
                ),
                &["GET /admin/xy", "GET /admin/y"],
            )
            .but("GET /"),
        ],
    );
}

#[test]
fn guards_of_ingress_nginx() {
    let rule = |path: &str| {
        format!(
            "{{ host: h.test, http: {{ paths: [ {{ {path}, backend: {{ service: {{ name: s, port: {{ number: 80 }} }} }} }} ] }} }}"
        )
    };
    let manifest = |name: &str, annotations: &str, rule: &str| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{ name: {name}, namespace: d, annotations: {{ \
             {annotations} }} }}\nspec: {{ ingressClassName: nginx, rules: [ {rule} ] }}\n"
        )
    };
    let all = manifest("all", "", &rule("path: /, pathType: Prefix"));
    let guarded = |annotations: &str, path: &str| {
        let annotations = annotations.replace('%', "nginx.ingress.kubernetes.io/");
        format!("{all}---\n{}", manifest("g", &annotations, &rule(path)))
    };
    let annotated = |annotations: &str| guarded(annotations, "path: /admin, pathType: Prefix");
    let settings = |data: &str| {
        format!(
            "{all}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: ingress-nginx-controller, namespace: d }}\ndata: {{ {data} }}\n"
        )
    };
    let nobody = "%whitelist-source-range: '10.9.9.9'";
    all_are_refused(
        "ingress-nginx",
        "ingress.yaml",
        &[
            guard("a snippet", annotated("%configuration-snippet: 'deny all;'"), ADMIN).but("GET /"),
            guard("a firewall", annotated("%enable-modsecurity: 'true'"), ADMIN).but("GET /"),
            guard("an unknown annotation", annotated("%auth-frob: 'x'"), ADMIN).but("GET /"),
            guard("an auth-url that is none", annotated("%auth-url: 'frob'"), ADMIN).but("GET /"),
            guard("a Secret that is missing", annotated("%auth-type: basic, %auth-secret: x"), ADMIN)
                .but("GET /"),
            guard("refused addresses", annotated("%denylist-source-range: 'frob'"), ADMIN).but("GET /"),
            guard("a limit that is none", annotated("%limit-rps: frob"), ADMIN).but("GET /"),
            guard("an unknown pathType", guarded(nobody, "path: /admin, pathType: Frob"), ADMIN).but("GET /"),
            guard(
                "a pattern",
                guarded(
                    &format!("%use-regex: 'true', {nobody}"),
                    "path: '/admin(?=x)', pathType: ImplementationSpecific",
                ),
                &["GET /adminx", "GET /ADMINx"],
            )
            .but("GET /"),
            guard("snippets for all", settings("location-snippet: 'deny all;'"), &["GET /"]),
            guard("auth for all", settings("global-auth-url: 'http://x/'"), &["GET /"]),
        ],
    );
}
