//! `weir import`: what it writes passes `weir check` and takes the routes that it must; a real nginx decides as the
//! imported config does.
//!
//! weir-import has the tests of what is written: `tests/golden.rs` and a table of traps for each system.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use weir_testkit::{Client, Weir, eventually, run_weir, unused_address, weir_command};

use crate::real::binary;

/// The samples of weir-import: folders by system.
fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../weir-import/tests")
}

#[test]
fn every_sample_passes_check_and_its_own_tests() {
    let mut count = 0;
    for folder in
        fs::read_dir(samples()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir())
    {
        let system = folder.file_name().unwrap().to_str().unwrap().to_owned();
        for sample in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if sample.extension().is_some_and(|extension| extension == "out") {
                continue;
            }
            let is_main = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == "main");
            let file = match sample.is_dir() {
                true => {
                    fs::read_dir(&sample).unwrap().map(|entry| entry.unwrap().path()).find(is_main).unwrap()
                }
                false => sample,
            };
            let dir = tempfile::tempdir().unwrap();
            let told = run_weir(dir.path(), &["import", &system, file.to_str().unwrap(), "-o", "out"]);
            // Samples with a made-up certificate cannot be compiled.
            if told.stderr.is_empty() && !told.stdout.contains("holds no valid") {
                told.expect_text("weir check: good");
            }
            for fault in ["a mistake of weir import", "is taken by listeners."] {
                assert!(!told.stdout.contains(fault), "{}: {}", file.display(), told.stdout);
            }
            count += 1;
        }
    }
    assert!(count >= 20, "{count} samples");
}

/// `weir check` accepts what the import makes of ports that IPv4 and IPv6, or HTTP and TCP, share in other gateways.
#[test]
fn shared_ports_pass_check() {
    let dir = tempfile::tempdir().unwrap();
    let import = |system: &str, text: &str, listeners: &[&str]| {
        fs::write(dir.path().join("source"), text).unwrap();
        fs::write(dir.path().join("source.yml"), text).unwrap();
        let file = if system == "traefik" { "source.yml" } else { "source" };
        let told = run_weir(dir.path(), &["import", system, file, "-o", "out", "--force"]);
        told.expect_text("weir check: good");
        assert!(!told.stdout.contains("weir check refuses"), "{}", told.stdout);
        let written = fs::read_to_string(dir.path().join("out/listeners.yaml")).unwrap();
        for listener in listeners {
            assert!(written.contains(listener), "{listener}: {written}");
        }
        let count = written.matches("address:").count();
        assert_eq!(count, listeners.len(), "{written}");
    };
    let backends = "backend a\n server s 127.0.0.1:81\nbackend b\n server s 127.0.0.1:82\n";
    for (six, listener) in [("a", "\"[::]:8080\""), ("b", "0.0.0.0:8080")] {
        let text = format!(
            "defaults\n mode http\nfrontend four\n bind :8080\n default_backend a\nfrontend six\n bind :::8080 v6only\n \
             default_backend {six}\n{backends}"
        );
        import("haproxy", &text, &[listener]);
    }
    import("nginx", "server { listen 8080; listen [::]:8080 http2; return 200 x; }", &["0.0.0.0:8080"]);
    // TCP alone at 5432 and 9443; below, TCP beside hosts of HTTPS at 8443.
    import(
        "traefik",
        "entryPoints: { web: { address: \":8080\" }, db: { address: \":5432\" }, mq: { address: \":9443\" } }\n\
         http:\n  routers: { r: { rule: Host(`a.test`), service: s } }\n  \
         services: { s: { loadBalancer: { servers: [ { url: \"http://127.0.0.1:81\" } ] } } }\n\
         tcp:\n  routers:\n    db: { rule: HostSNI(`*`), entryPoints: [db], service: t }\n    \
         mq: { rule: HostSNI(`*`), entryPoints: [mq], service: t, tls: { passthrough: true } }\n  \
         services: { t: { loadBalancer: { servers: [ { address: \"127.0.0.1:83\" } ] } } }\n",
        &["\"[::]:8080\"", "\"[::]:5432\", tcp:", "\"[::]:9443\", tcp:"],
    );
    import(
        "traefik",
        "entryPoints: { secure: { address: \":8443\" } }\n\
         http:\n  routers: { r: { rule: Host(`a.test`), service: s, tls: {} } }\n  \
         services: { s: { loadBalancer: { servers: [ { url: \"http://127.0.0.1:81\" } ] } } }\n\
         tcp:\n  routers: { t: { rule: HostSNI(`*`), service: t, tls: { passthrough: true } } }\n  \
         services: { t: { loadBalancer: { servers: [ { address: \"127.0.0.1:83\" } ] } } }\n",
        &["\"[::]:8443\""],
    );
}

/// Locations in every relation, each answering with its name: nginx and the imported config answer alike.
#[test]
fn nginx_takes_the_same_locations() {
    let Some(nginx) = binary() else {
        eprintln!("SKIPPED: nginx is not installed (scripts/ensure-tools.sh nginx)");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let sample = fs::read_to_string(samples().join("nginx/traps.conf")).unwrap();
    let more = "server { listen 80; server_name *.wild.test x.test; location / { return 200 wild; } \
                location ~ ^/r/(?<a>[a-z]+)/(.*)$ { return 301 /to/$a/$2?x=1; } location /go { return 302 https://h.test$request_uri; } \
                rewrite ^/old/(.*)$ /new/$1 permanent; if ($arg_no = 1) { return 403; } } \
                server { listen 80; server_name pre.* ~^(www\\.)?re\\.test$; location / { return 200 pre; } }";
    let source = format!("{sample}\n{more}");
    let address = unused_address();
    let d = dir.path().display();
    let running = format!(
        "daemon off; master_process off; user root; pid {d}/pid; error_log {d}/error.log;\nevents {{ }}\nhttp {{\n\
         access_log off; client_body_temp_path {d}/t1; proxy_temp_path {d}/t2; fastcgi_temp_path {d}/t3; \
         uwsgi_temp_path {d}/t4; scgi_temp_path {d}/t5;\n{}\n}}\n",
        source.replace("listen 80", &format!("listen {address}"))
    );
    fs::write(dir.path().join("running.conf"), running).unwrap();
    let mut command = Command::new(nginx);
    command.arg("-p").arg(dir.path()).arg("-c").arg(dir.path().join("running.conf"));
    command.arg("-e").arg(dir.path().join("error.log"));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _running = crate::real::Running(child);
    eventually("nginx listens", || Client::can_connect(address));

    fs::write(dir.path().join("site.conf"), source).unwrap();
    let told = run_weir(dir.path(), &["import", "nginx", "site.conf", "-o", "out"]);
    told.expect_text("weir check: good");
    let out = dir.path().join("out");
    let weir = started(&out);
    let (theirs, ours) = (address.to_string(), weir.address("web"));
    let hosts = [
        "order.test",
        "unknown.test",
        "a.wild.test",
        "a.b.wild.test",
        "wild.test",
        "x.test",
        "X.TEST:80",
        "pre.test",
        "pre.a.b",
        "re.test",
        "www.re.test",
        "xre.test",
    ];
    let mut wrong = Vec::new();
    for host in hosts {
        for path in paths() {
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let told = [&theirs, &ours].map(|client| {
                let answer = Client::connect(client).ask(&request);
                // nginx names scheme, host and port of its own redirects.
                let location = answer.header("location").map(|location| {
                    let name = host.to_ascii_lowercase();
                    let own = format!("http://{}", name.split(':').next().unwrap_or(&name));
                    location
                        .strip_prefix(&format!("{own}:{}", address.port()))
                        .or(location.strip_prefix(&own))
                        .unwrap_or(location)
                        .to_owned()
                });
                let body = if answer.status == 200 { answer.body.bytes.clone() } else { Vec::new() };
                (answer.status, location, body)
            });
            let [theirs, ours] = told;
            // In a redirect nginx repeats the path as it came, Weir in canonical form.
            let is_canonical = !path.contains("//") && !path.contains('%');
            if theirs != ours && (is_canonical || theirs.1.is_none() || theirs.0 != ours.0) {
                wrong.push(format!("{host}{path}: nginx {theirs:?}, weir {ours:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Runs what an import wrote, with its listener `web` at a free address.
fn started(out: &Path) -> Weir {
    let main = fs::read_to_string(out.join("weir.yaml")).unwrap();
    Weir::start_by(&format!("{main}\nwatch: false\n"), |folder| {
        fs::create_dir(folder.join("routes")).unwrap();
        for sub in ["", "routes"] {
            for file in fs::read_dir(out.join(sub)).unwrap().map(|entry| entry.unwrap().path()) {
                if file.extension().is_some_and(|end| end == "yaml") && !file.ends_with("weir.yaml") {
                    let text = fs::read_to_string(&file).unwrap().replace("0.0.0.0:80", "127.0.0.1:0");
                    fs::write(folder.join(sub).join(file.file_name().unwrap()), text).unwrap();
                }
            }
        }
        let mut command = weir_command(folder);
        command.args(["run", "-c", "weir.yaml"]);
        command
    })
}

/// Redirects share a route and a table, and lead where they led on their own.
#[test]
fn a_table_of_redirects_leads_where_its_routes_did() {
    let dir = tempfile::tempdir().unwrap();
    let redirects = [("/old", "/new"), ("/a/b", "/d.html"), ("/x-1", "/"), ("/y", "/z_~")];
    let line = |(from, to): &(&str, &str)| format!("location = {from} {{ return 301 {to}; }} ");
    let body: String = redirects.iter().map(line).collect();
    let source = format!("server {{ listen 80; {body} location / {{ return 200 root; }} }}");
    fs::write(dir.path().join("site.conf"), source).unwrap();
    let import = |more: &[&str]| {
        let arguments = [&["import", "nginx", "site.conf", "-o", "out", "--force"], more].concat();
        run_weir(dir.path(), &arguments).expect_text("weir check: good").stdout.clone()
    };
    let out = dir.path().join("out");
    let answers = || {
        let weir = started(&out);
        let ask = |path: &str| {
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            let answer = Client::connect(weir.address("web")).ask(&request);
            (answer.status, answer.header("location").map(str::to_owned))
        };
        let around = ["/old?q=1", "/old/", "/oldx", "/a/b%2F", "/a", "/"];
        redirects.iter().map(|(from, _)| *from).chain(around).map(ask).collect::<Vec<_>>()
    };
    import(&[]);
    let routes = || fs::read_to_string(out.join("routes/default.yaml")).unwrap();
    assert!(out.join("maps.yaml").exists() && routes().matches("redirect:").count() == 1, "{}", routes());
    let readable = answers();
    let expected: Vec<_> = redirects.iter().map(|(_, to)| (301, Some((*to).to_owned()))).collect();
    assert_eq!(readable[..redirects.len()], expected);
    // The exact form on top of it: the table is gone, the user's own file stays.
    fs::write(out.join("routes/own.yaml"), "routes: {}\n").unwrap();
    let told = import(&["--exact"]);
    assert!(told.contains("removed out/maps.yaml"), "{told}");
    assert!(!out.join("maps.yaml").exists() && out.join("routes/own.yaml").exists());
    assert_eq!(routes().matches("redirect:").count(), redirects.len(), "{}", routes());
    fs::remove_file(out.join("routes/own.yaml")).unwrap();
    assert_eq!(answers(), readable);
}

/// Paths in every relation to the locations of traps.conf.
fn paths() -> Vec<String> {
    let known = [
        "/",
        "/p",
        "/p/",
        "/static",
        "/static/",
        "/static/deep",
        "/p/q",
        "/p/exact.php",
        "/nest",
        "/nest/",
        "/nest/in",
        "/nest/out",
        "/nest/out/",
        "/r/abc/d",
        "/go",
        "/old/x",
        "/other",
    ];
    let mut paths = Vec::new();
    for path in known {
        paths.push(path.to_owned());
        for end in [
            "x", "/", "/x", "x.php", "/x.php", "/y.PNG", ".png", "?a=1", "?no=1", "/../z", "//x", "%20x",
            "/%78.php",
        ] {
            let joined = format!("{path}{end}");
            // Weir answers a `//` at the front, as any other, as one slash; so does nginx.
            paths.push(joined);
        }
        paths.push(path.to_ascii_uppercase());
    }
    paths
}

/// What nginx rewrites, refuses and answers with pages, and what its import does: proved against a real nginx.
const REWRITTEN: &str = r#"events {}
http {
  server {
    listen 80;
    server_name shop.test;
    rewrite ^/early/(.*)$ /late/$1 last;
    rewrite ^/early2/([0-9]+)/(.*)$ /late/n$1/$2;
    location / { proxy_set_header Host $http_host; proxy_pass http://front:3000; }
    location /late/ { proxy_set_header Host $http_host; proxy_set_header X-Late 1; proxy_pass http://late:3000; }
    location = /early/exact { return 200 never; }
    location /a/ {
      rewrite ^/a/old/(.*)$ /a/new/$1 last;
      rewrite ^/a/out/(.*)$ /late/$1 last;
      rewrite ^/a/moved/(.*)$ /a/there/$1 permanent;
      proxy_set_header Host $http_host;
      proxy_set_header X-Sent $request_uri;
      proxy_pass http://a:3000;
    }
    location /b/ {
      rewrite /b([0-9])x /b/found/$1 break;
      proxy_set_header Host $http_host;
      proxy_set_header X-Sent $request_uri;
      proxy_pass http://b:3000;
    }
    location /a/out/deep { return 200 deep; }
    location ~ ^/a/out/regex { return 200 regex; }
    location ~ \.php$ { rewrite ^/p/(.*)\.php$ /q/$1 redirect; return 200 php; }
    location ~ ^/q { return 200 q; }
    location /wiki/ { rewrite ^/wiki/([A-Za-z]*)$ /index/page?title=$1&x=1 last; return 404; }
    location /index/ { internal; proxy_set_header Host $http_host; proxy_pass http://index:3000/in/; }
    location /beta/ {
      if ($http_x_beta = 1) { rewrite ^/beta/(.*)$ /late/beta/$1 last; }
      if ($arg_no) { return 403; }
      proxy_set_header Host $http_host;
      proxy_pass http://front:3000;
    }
    location = /fixed/7 { rewrite ^/fixed/([0-9]+)$ /late/f$1 last; }
    location /local/ { satisfy any; allow 127.0.0.1; deny all; auth_basic x; auth_basic_user_file users; proxy_set_header Host $http_host; proxy_pass http://front:3000; }
    location /closed/ { satisfy any; deny 127.0.0.1; auth_basic x; auth_basic_user_file users; proxy_set_header Host $http_host; proxy_pass http://front:3000; }
    location /remote/ { satisfy any; deny 127.0.0.1; allow all; auth_basic x; auth_basic_user_file users; proxy_pass http://front:3000; }
    location /login/ {
      auth_basic x; auth_basic_user_file users;
      error_page 401 = @login;
      proxy_pass http://front:3000;
    }
    location @login { return 302 https://id.test/?rd=$host; }
    location /pages/ {
      error_page 502 /sorry.html;
      error_page 404 https://help.test/none;
      proxy_intercept_errors on;
      proxy_set_header Host $http_host;
      proxy_pass http://front:3000;
    }
    location /none/ { error_page 404 /sorry.html; return 404; }
    location = /sorry.html { internal; proxy_set_header Host $http_host; proxy_pass http://sorry:3000; }
  }
  server { listen 80; server_name ~^(?<who>[a-z]+)\.people\.test$; location / { return 200 people; } }
  server { listen 80; server_name ~^admin\..+\.test$ exact.people.test; location / { return 200 admin; } }
}
"#;

#[test]
fn what_nginx_rewrites_is_proved() {
    let dir = tempfile::tempdir().unwrap();
    let users = dir.path().join("users");
    let source = REWRITTEN.replace("user_file users", &format!("user_file {}", users.display()));
    fs::write(dir.path().join("nginx.conf"), source).unwrap();
    fs::write(&users, "ann:$2y$05$abcdefghijklmnopqrstuuVXkQ1XGcWDYWvnTZOHgmkQlD1vc4Suu\n").unwrap();
    // What differs by design, none of it who answers, where a redirect leads, or who may pass.
    let accept = "\
- { difference: forwarding-fields, why: Weir tells upstreams who asks }
- { difference: upstream target, why: Weir sends the canonical path }
- { difference: upstream field x-sent, why: the canonical path }
- { difference: upstream field host, asked: 'no host, in HTTP/1.0', why: Weir always sends one }
- { difference: ambiguous-path, why: a path that servers read in two ways is refused }
- { difference: status, line: internal, asked: a body over the limit, why: the limit comes first }
- { difference: answer field www-authenticate, why: Weir names the charset }
- { difference: answer field cache-control, why: a page for an error is not stored }
- { difference: answer field x-powered-by, why: not of the page }
- { difference: upstream field user-agent, why: Weir itself asks for the page }
- { difference: upstream field authorization, line: location /none/, why: Weir itself asks for the page }
- { difference: upstream field authorization, line: location /local/, why: a password that nobody checked stays here }
- { difference: upstream field content-type, why: Weir itself asks for the page }
- { difference: upstream method, line: proxy_pass http://sorry:3000, why: Weir itself asks for the page }
- { difference: upstream body, line: proxy_pass http://sorry:3000, why: Weir itself asks for the page }
";
    fs::create_dir(dir.path().join("out")).unwrap();
    let record = format!("system: nginx\nfiles: [ ../nginx.conf ]\naccept:\n{accept}");
    fs::write(dir.path().join("out/proof.yaml"), record).unwrap();
    let told = run_weir(
        dir.path(),
        &["import", "nginx", "nginx.conf", "-o", "out", "--force", "--prove", "--format", "json"],
    );
    let report: Value =
        serde_json::from_str(&told.stdout).unwrap_or_else(|error| panic!("{error}: {told:#?}"));
    assert_eq!(report["mistakes_of_weir_import"], json!([]), "{report:#}");
    let refused: Vec<&Value> =
        report["lines"].as_array().unwrap().iter().filter(|line| line["verdict"] == "refused").collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let proof = &report["proof"];
    if crate::prove::cannot(&proof["not_proved"]) {
        return;
    }
    assert!(proof["asked"].as_u64() > Some(400), "{proof:#}");
    let found = crate::prove::differences(proof);
    assert!(found.is_empty(), "{found:#?} {proof:#}");
}

/// What a person edited is neither overwritten nor lost, and nothing is written for a source that cannot be used.
#[test]
fn edited_files_stay() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let read = |name: &str| fs::read_to_string(at(name)).unwrap();
    let site = "events {} http { server { listen 80; location / { return 200 x; } } }";
    fs::write(at("site.conf"), site).unwrap();
    let import = |more: &[&str]| {
        run_weir(dir.path(), &[&["import", "nginx", "site.conf", "-o", "out", "--force"], more].concat())
    };
    import(&[]).expect_code(0);
    let routes = "out/routes/default.yaml";
    fs::write(at(routes), "routes: {} # by hand\n").unwrap();
    let (main, record) = (read("out/weir.yaml"), read("out/proof.yaml"));

    // A source that cannot be read, that nginx refuses, or an option that makes no sense.
    for (source, more, code) in [
        ("server { listen 80; ", &[][..], 3),
        ("server { listen 80; ", &["--prove"], 3),
        ("events {} http { server { listen 81; return 204; frobnicate on; } }", &["--prove"], 3),
        (site, &["--prove", "--against", "nowhere"], 2),
        (site, &["--prove", "--corpus", "none.log"], 2),
    ] {
        fs::write(at("site.conf"), source).unwrap();
        let told = import(more);
        let cannot = binary().is_none() || told.stdout.contains("cannot create a sandbox");
        if source.contains("frobnicate") && cannot {
            continue;
        }
        // A missing corpus is an error of ours, not of the command line.
        assert!(told.code == Some(code) || more.contains(&"none.log"), "{source}: {told:#?}");
        assert_eq!((read(routes), read("out/weir.yaml")), ("routes: {} # by hand\n".into(), main.clone()));
        assert!(read("out/proof.yaml") == record && !at("out/routes/default.yaml.new").exists(), "{source}");
    }

    fs::write(at("site.conf"), site.replace("listen 80", "listen 81").replace("200 x", "200 new")).unwrap();
    import(&[]).expect_code(1).expect_text("kept out/routes/default.yaml").expect_text("default.yaml.new");
    assert_eq!(read(routes), "routes: {} # by hand\n");
    assert!(read("out/routes/default.yaml.new").contains("body: new"), "the new text is beside it");
    assert!(read("out/listeners.yaml").contains(":81"), "what nobody edited is written");
    let told = import(&["--format", "json"]);
    let report: Value = serde_json::from_str(&told.expect_code(1).stdout).unwrap();
    assert_eq!(report["kept"], json!(["routes/default.yaml"]));
    import(&["--overwrite-edited"]).expect_code(0);
    assert!(read(routes).contains("body: new") && !at("out/routes/default.yaml.new").exists());
}

#[test]
fn exit_codes_and_files() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    let run = |arguments: &[&str]| run_weir(dir.path(), &[&["import"], arguments].concat());
    write("good.conf", "server { listen 8080; location / { return 200 x; } }");
    run(&["nginx", "good.conf", "-o", "good"]).expect_code(0);
    run(&["nginx", "good.conf", "-o", "good"]).expect_code(2);
    run(&["nginx", "good.conf", "-o", "good", "--force"]).expect_code(0);
    run(&["apache", "good.conf", "-o", "x"]).expect_code(2);
    run(&["nginx", "-o", "x"]).expect_code(2);

    write("changed.conf", "server { listen 8080; return 301 /x; }");
    run(&["nginx", "changed.conf", "-o", "c1"]).expect_code(0);
    run(&["nginx", "changed.conf", "-o", "c2", "--strict"]).expect_code(1);
    write("refused.conf", "server { listen 8080; frobnicate on; return 200 x; }");
    run(&["nginx", "refused.conf", "-o", "r"]).expect_code(1).expect_text("frobnicate on");

    write("broken.conf", "server { listen 80; ");
    run(&["nginx", "broken.conf", "-o", "b"]).expect_code(3);
    assert!(!dir.path().join("b").exists());
    run(&["nginx", "none.conf", "-o", "b"]).expect_code(3);
    fs::create_dir(dir.path().join("folder")).unwrap();
    run(&["nginx", "folder", "-o", "b"]).expect_code(3);
    write("device.conf", "include /dev/zero;");
    run(&["nginx", "device.conf", "-o", "d"]).expect_code(1).expect_text("leads out of");
    fs::create_dir(dir.path().join("tree")).unwrap();
    symlink("/etc/passwd", dir.path().join("tree/x.conf")).unwrap();
    write("tree/nginx.conf", "include *.conf;");
    run(&["nginx", "tree/nginx.conf", "-o", "t"]).expect_code(3);
    write("tree/nginx.conf", "include x.conf;");
    let told = run(&["nginx", "tree/nginx.conf", "-o", "t"]);
    told.expect_code(1).expect_text("is a link to /etc/passwd, which is not below");
    assert!(!told.stdout.contains("root:"), "{}", told.stdout);

    write(
        "secret.conf",
        "server { location / { proxy_set_header Authorization 'Basic abc$$'; proxy_pass http://127.0.0.1; } }",
    );
    run(&["nginx", "secret.conf", "-o", "s", "--format", "json"]);
    let secrets = dir.path().join("s/secrets.env");
    assert_eq!(fs::metadata(secrets).unwrap().permissions().mode() & 0o777, 0o600);
}

/// A config whose files lie in several folders, and that writes where nobody may.
fn scattered(dir: &Path) {
    let d = dir.display();
    fs::create_dir_all(dir.join("etc/conf.d")).unwrap();
    fs::create_dir(dir.join("elsewhere")).unwrap();
    let main = format!(
        "user www-data;\npid /run/weir-test-x/nginx.pid;\nerror_log /var/log/weir-test-x/error.log;\nevents {{}}\nhttp {{\n  \
         access_log /var/log/weir-test-x/access.log;\n  proxy_cache_path /var/cache/weir-test-x/c keys_zone=z:1m;\n  \
         include {d}/elsewhere/limits.conf;\n  include conf.d/*.conf;\n  upstream pool {{ server app.internal:8080; }}\n}}\n"
    );
    fs::write(dir.join("etc/nginx.conf"), main).unwrap();
    fs::write(dir.join("elsewhere/limits.conf"), "client_max_body_size 7m;\n").unwrap();
    let site = "server {\n  listen 80;\n  server_name a.test;\n  location / { proxy_pass http://pool; }\n}\n";
    fs::write(dir.join("etc/conf.d/a.conf"), site).unwrap();
}

/// Whether the program could not be started here.
fn unread(report: &Value) -> bool {
    let read = &report["read_by_program"];
    if read["done"] == false {
        eprintln!("SKIPPED: {}", read["why_not"]);
    }
    read["done"] == false
}

#[test]
fn nginx_reads_its_own_config() {
    let dir = tempfile::tempdir().unwrap();
    scattered(dir.path());
    let run = |arguments: &[&str]| {
        let both = [&["import", "nginx", "etc/nginx.conf", "--format", "json"], arguments].concat();
        let told = run_weir(dir.path(), &both);
        let report: Value = serde_json::from_str(&told.stdout).unwrap_or_else(|e| panic!("{e}: {told:#?}"));
        (told.code, report)
    };
    let (code, alone) = run(&["-o", "alone"]);
    assert_eq!(
        (code, &alone["read_by_program"]),
        (Some(1), &Value::Null),
        "the include leads out: {alone:#}"
    );
    let (_, report) = run(&["-o", "out", "--use-program"]);
    if unread(&report) {
        return;
    }
    let refused = report["lines"].as_array().unwrap().iter().filter(|line| line["verdict"] == "refused");
    assert_eq!(refused.count(), 0, "{report:#}");
    let main = fs::read_to_string(dir.path().join("out/weir.yaml")).unwrap();
    assert!(main.contains("body_bytes: 7MiB"), "{main}");
    let place = format!("{}", dir.path().canonicalize().unwrap().join("etc/conf.d/a.conf").display());
    assert!(report.to_string().contains(&place), "lines keep their places: {report:#}");
    // Nothing was written outside.
    for path in ["/var/log/weir-test-x", "/var/cache/weir-test-x", "/run/weir-test-x", "/run/weir-proof"] {
        assert!(!Path::new(path).exists(), "{path}");
    }
    // The proof reads the same files.
    let (_, proved) = run(&["-o", "proved", "--use-program", "--prove"]);
    assert!(proved["proof"]["asked"].as_u64() > Some(20), "{proved:#}");
    // A comment that looks like the head of a file in nginx's output.
    let site = dir.path().join("etc/conf.d/a.conf");
    let text = fs::read_to_string(&site).unwrap();
    fs::write(&site, text.replace("listen", "\n# configuration file /x:\n  listen")).unwrap();
    let (code, spoiled) = run(&["-o", "spoiled", "--use-program"]);
    assert_eq!(code, Some(3), "{spoiled:#}");
    assert!(!dir.path().join("spoiled").exists());
    // What nginx itself refuses, with its line.
    fs::write(&site, "server {\n  frobnicate on;\n}\n").unwrap();
    let (code, broken) = run(&["-o", "broken", "--use-program"]);
    assert_eq!(code, Some(3), "{broken:#}");
    let why = broken["unreadable"].as_str().unwrap();
    assert!(why.contains("nginx itself refuses it") && why.contains("a.conf:2"), "{why}");
    run_weir(
        dir.path(),
        &["import", "nginx", "etc/nginx.conf", "etc/conf.d/a.conf", "-o", "x", "--use-program"],
    )
    .expect_code(2);
    fs::write(dir.path().join("kong.yaml"), "_format_version: '3.0'\n").unwrap();
    run_weir(dir.path(), &["import", "kong", "kong.yaml", "-o", "x", "--use-program"])
        .expect_code(2)
        .expect_text("does not know how to run Kong");
}

#[test]
fn other_programs_read_their_own_configs() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("Caddyfile"),
        "http://a.test {\n\trespond /x 204\n\treverse_proxy app:8080\n}\n",
    )
    .unwrap();
    fs::write(
        dir.path().join("haproxy.cfg"),
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 5s\n  timeout server 5s\n\
         frontend f\n  bind :80\n  default_backend b\nbackend b\n  server s 127.0.0.1:8080\n",
    )
    .unwrap();
    for (system, file, broken) in
        [("caddy", "Caddyfile", "http://a.test {\n"), ("haproxy", "haproxy.cfg", "frobnicate\n")]
    {
        let run = |output: &str| {
            let arguments = ["import", system, file, "-o", output, "--use-program", "--format", "json"];
            let told = run_weir(dir.path(), &arguments);
            (
                told.code,
                serde_json::from_str::<Value>(&told.stdout).unwrap_or_else(|e| panic!("{e}: {told:#?}")),
            )
        };
        let (_, report) = run(&format!("{system}-out"));
        if unread(&report) {
            continue;
        }
        let routes = report["check"]["errors"].as_u64().unwrap_or(0);
        assert_eq!(routes, 0, "{report:#}");
        assert_eq!(report["mistakes_of_weir_import"], json!([]), "{report:#}");
        fs::write(dir.path().join(file), broken).unwrap();
        let (code, report) = run(&format!("{system}-broken"));
        assert_eq!(code, Some(3), "{report:#}");
        assert!(report["unreadable"].as_str().unwrap().contains("itself refuses it"), "{report:#}");
    }
}

/// Where the kernel gives no namespaces, that is told, and Weir's own reader does it.
#[test]
fn a_refused_sandbox_is_told() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("nginx.conf"), "events {}\nhttp { server { location / { return 200 x; } } }\n")
        .unwrap();
    let weir = weir_command(dir.path()).get_program().to_owned();
    let mut command = Command::new("unshare");
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"";
    command.args(["--user", "--map-root-user", "sh", "-c", script]).arg(weir).current_dir(dir.path());
    let Ok(told) = command.args(["import", "nginx", "nginx.conf", "-o", "out", "--use-program"]).output()
    else {
        eprintln!("SKIPPED: unshare is not installed");
        return;
    };
    let (out, err) = (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    if err.contains("unshare") || err.contains("max_user_namespaces") {
        eprintln!("SKIPPED: {err}");
        return;
    }
    assert_eq!(told.status.code(), Some(1), "{out}{err}");
    assert!(out.contains("did not read its config") && out.contains("Weir's own reader did"), "{out}{err}");
    assert!(dir.path().join("out/weir.yaml").exists());
}
