//! `weir import`: what it writes passes `weir check` and takes the routes that it must; a real nginx decides as the
//! imported config does.
//!
//! weir-import has the tests of what is written: `tests/golden.rs` and a table of traps for each system.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
            assert!(!told.stdout.contains("a mistake of weir import"), "{}: {}", file.display(), told.stdout);
            count += 1;
        }
    }
    assert!(count >= 20, "{count} samples");
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
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("nginx listens", || Client::can_connect(address));

    fs::write(dir.path().join("site.conf"), source).unwrap();
    let told = run_weir(dir.path(), &["import", "nginx", "site.conf", "-o", "out"]);
    told.expect_text("weir check: good");
    let out = dir.path().join("out");
    let listeners =
        fs::read_to_string(out.join("listeners.yaml")).unwrap().replace("0.0.0.0:80", "127.0.0.1:0");
    let main = fs::read_to_string(out.join("weir.yaml")).unwrap();
    let weir = Weir::start_by(&format!("{main}\nwatch: false\n"), |folder| {
        fs::create_dir(folder.join("routes")).unwrap();
        for file in fs::read_dir(out.join("routes")).unwrap().map(|entry| entry.unwrap().path()) {
            fs::copy(&file, folder.join("routes").join(file.file_name().unwrap())).unwrap();
        }
        fs::write(folder.join("listeners.yaml"), &listeners).unwrap();
        let mut command = weir_command(folder);
        command.args(["run", "-c", "weir.yaml"]);
        command
    });
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
    let _ = child.kill();
    let _ = child.wait();
    assert!(wrong.is_empty(), "{wrong:#?}");
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
    told.expect_code(1).expect_text("leads out of");
    assert!(!told.stdout.contains("root:"), "{}", told.stdout);

    write(
        "secret.conf",
        "server { location / { proxy_set_header Authorization 'Basic abc$$'; proxy_pass http://127.0.0.1; } }",
    );
    run(&["nginx", "secret.conf", "-o", "s", "--format", "json"]);
    let secrets = dir.path().join("s/secrets.env");
    assert_eq!(fs::metadata(secrets).unwrap().permissions().mode() & 0o777, 0o600);
}
