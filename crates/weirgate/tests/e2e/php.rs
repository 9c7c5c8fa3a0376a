//! A real php-fpm with a small site: pages, uploads, downloads, errors, and a site in the manner of WordPress.
//!
//! Without php-fpm, these tests print a note and pass; `make test` installs it.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use weir_testkit::{Client, Weir, eventually, table};

use crate::cause::{BODY_TOO_LARGE, CONNECT_REFUSED, FASTCGI_NO_SCRIPT};

/// php-fpm, its folder, and a gateway in front of it.
struct Php {
    dir: TempDir,
    child: Child,
    weir: Weir,
}

/// What the site consists of.
const SITE: &[(&str, &str)] = &[
    (
        "index.php",
        "<?php header('X-Front: 1'); echo 'front ', $_SERVER['REQUEST_URI'], ' ', http_build_query($_GET);",
    ),
    ("seen.php", "<?php header('Content-Type: application/json'); echo json_encode($_SERVER);"),
    ("wp-admin/index.php", "<?php echo 'admin ', $_SERVER['SCRIPT_NAME'];"),
    (
        "post.php",
        "<?php $in = fopen('php://input', 'r'); $hash = hash_init('md5'); $n = 0;\n\
         while (!feof($in)) { $piece = fread($in, 8192); $n += strlen($piece); hash_update($hash, $piece); }\n\
         echo $n, ' ', hash_final($hash), ' ', $_SERVER['CONTENT_LENGTH'];",
    ),
    (
        "form.php",
        "<?php echo $_POST['a'] ?? '-', ' ', isset($_FILES['f']) ? file_get_contents($_FILES['f']['tmp_name']) : '-';",
    ),
    ("status.php", "<?php http_response_code(418); header('X-Tea: y'); echo 'short';"),
    ("redirect.php", "<?php header('Location: /elsewhere');"),
    ("cookies.php", "<?php setcookie('a', '1'); setcookie('b', '2'); echo 'set';"),
    ("fatal.php", "<?php ini_set('display_errors', '0'); missing_function();"),
    ("notice.php", "<?php error_log('something to know'); echo 'fine';"),
    ("stream.php", "<?php foreach ([1, 2, 3] as $n) { echo \"piece $n\\n\"; flush(); }"),
    ("long.php", "<?php for ($n = 0; $n < 4000; $n++) echo str_repeat('0123456789', 100);"),
    ("length.php", "<?php header('Content-Length: 4'); echo 'body';"),
    ("empty.php", "<?php http_response_code(204);"),
    ("die.php", "<?php echo 'some'; flush(); shell_exec('kill -9 ' . getmypid());"),
    ("wp-content/style.css", "body { color: red }"),
    ("wp-content/picture.jpg", "<?php echo 'executed';"),
];

impl Php {
    /// Starts it; `None` if it is not installed. `upstream` stands beside the endpoint.
    #[track_caller]
    fn start(upstream: &str) -> Option<Self> {
        let Some(binary) = binary() else {
            eprintln!("SKIPPED: php-fpm is not installed (scripts/ensure-tools.sh php-fpm)");
            return None;
        };
        let dir = TempDir::new().unwrap();
        for (name, text) in SITE {
            let path = dir.path().join("site").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let child = run(&binary, dir.path());
        let weir = Weir::start(&format!(
            "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\n\
             upstreams: {{ php: {{ protocol: fastcgi, endpoints: [ \"unix:{d}/fpm.sock\" ]{upstream} }} }}\n\
             routes:\n  site:\n    match: {{ path: \"/*\" }}\n    \
             files: {{ root: {d}/site, missing: php }}\n    \
             fastcgi: {{ root: {d}/site, path_info: true, params: {{ APP_ENV: test }} }}\n\
             access_log: {{ output: stdout, format: json }}\n",
            d = dir.path().display()
        ));
        Some(Self { dir, child, weir })
    }

    /// Asks it to stop: killed, it would leave its processes behind.
    fn stop(&mut self) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

impl Drop for Php {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Debian's binary has its version in the name.
fn binary() -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin", "/usr/local/sbin"]);
    let mut found: Vec<PathBuf> = folders
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("php-fpm")))
        .collect();
    found.sort();
    found.pop()
}

fn run(binary: &Path, dir: &Path) -> Child {
    let text = format!(
        "[global]\nerror_log = {d}/fpm.log\ndaemonize = no\n\
         [site]\nuser = root\ngroup = root\nlisten = {d}/fpm.sock\npm = static\npm.max_children = 3\n\
         catch_workers_output = no\nphp_admin_value[error_log] =\nphp_admin_flag[log_errors] = on\n",
        d = dir.display()
    );
    fs::write(dir.join("fpm.conf"), text).unwrap();
    let log = File::create(dir.join("stderr.log")).unwrap();
    let mut command = Command::new(binary);
    command.args(["--nodaemonize", "--allow-to-run-as-root", "--no-php-ini", "--fpm-config"]);
    command.arg(dir.join("fpm.conf"));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    let socket = dir.join("fpm.sock");
    eventually("php-fpm listens", || UnixStream::connect(&socket).is_ok());
    child
}

/// Every page twice on one connection of the client, with new connections to php-fpm and with kept ones.
#[test]
fn pages() {
    for upstream in ["", ", keepalive: 60s, limits: { connections: 2 }"] {
        let Some(php) = Php::start(upstream) else { return };
        let mut client = php.weir.client();
        for _ in 0..2 {
            client.get("/").expect_status(200).expect_body("front / ").expect_header("x-front", "1");
            client.get("/2026/11/hello/?a=1").expect_body("front /2026/11/hello/?a=1 a=1");
            client.get("/wp-admin/").expect_status(200).expect_body("admin /wp-admin/index.php");
            client.get("/wp-admin").expect_status(308).expect_header("location", "./wp-admin/");
            client
                .get("/wp-content/style.css")
                .expect_body("body { color: red }")
                .expect_header("content-type", "text/css; charset=utf-8");
            client.get("/status.php").expect_status(418).expect_header("x-tea", "y").expect_body("short");
            client.get("/redirect.php").expect_status(302).expect_header("location", "/elsewhere");
            assert_eq!(client.get("/cookies.php").head.all("set-cookie"), ["a=1", "b=2"]);
            client.get("/stream.php").expect_body("piece 1\npiece 2\npiece 3\n");
            client.get("/length.php").expect_header("content-length", "4").expect_body("body");
            assert_eq!(client.get("/long.php").body.bytes.len(), 4_000_000);
            client.send("HEAD /seen.php HTTP/1.1\r\nHost: h\r\n\r\n");
            client
                .read_response_to_head()
                .expect_status(200)
                .expect_header("content-type", "application/json");
            client.get("/empty.php").expect_status(204);
            client.get("/fatal.php").expect_status(500);
            client.get("/none.php").expect_cause(FASTCGI_NO_SCRIPT);
            client.get("/wp-content/picture.jpg/x.php").expect_cause(FASTCGI_NO_SCRIPT);
        }
        let mut h2 = php.weir.h2();
        let stream = h2.get("/blog");
        assert_eq!(h2.message(stream).body, b"front /blog ");
    }
}

#[test]
fn what_php_sees() {
    let Some(php) = Php::start("") else { return };
    let mut client = php.weir.client();
    let seen = client
        .ask("GET /seen.php/more/info?a=b&c=d%20e HTTP/1.1\r\nHost: shop.test:81\r\nX-A: 1\r\nX_A: 2\r\nProxy: evil\r\nAuthorization: Basic dTpw\r\n\r\n")
        .expect_status(200)
        .json();
    let site = php.dir.path().join("site").display().to_string();
    for (name, value) in [
        ("SCRIPT_FILENAME", &*format!("{site}/seen.php")),
        ("SCRIPT_NAME", "/seen.php"),
        ("PATH_INFO", "/more/info"),
        ("PHP_SELF", "/seen.php/more/info"),
        ("DOCUMENT_ROOT", &site),
        ("REQUEST_URI", "/seen.php/more/info?a=b&c=d%20e"),
        ("QUERY_STRING", "a=b&c=d%20e"),
        ("HTTP_HOST", "shop.test:81"),
        ("SERVER_NAME", "shop.test"),
        ("HTTP_X_A", "1"),
        ("PHP_AUTH_USER", "u"),
        ("PHP_AUTH_PW", "p"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("APP_ENV", "test"),
    ] {
        assert_eq!(seen[name], value, "{name} in {seen}");
    }
    assert!(seen["HTTP_PROXY"].is_null() && seen["HTTPS"].is_null(), "{seen}");
}

#[test]
fn uploads() {
    let Some(php) = Php::start(", keepalive: 60s, limits: { connections: 2 }") else { return };
    let long = vec![b'x'; 6_000_000];
    let fields = "a=hello+world";
    let form = "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nfield\r\n--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f.txt\"\r\n\r\nin a file\r\n--B--\r\n";
    let plain = |path: &str, media: &str, body: &[u8]| {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: {media}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    };
    let chunked = |body: &str| {
        format!("POST /post.php HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).into_bytes()
    };
    let rows = [
        ("short", plain("/post.php", "a/b", b"hello"), "5 5d41402abc4b2a76b9719d911017c592 5"),
        ("long", plain("/post.php", "a/b", &long), "6000000 8fb5bee5ad03d35d9c2e5ff4dd6a8caa 6000000"),
        ("chunked", chunked("hello"), "5 5d41402abc4b2a76b9719d911017c592 5"),
        (
            "urlencoded",
            plain("/form.php", "application/x-www-form-urlencoded", fields.as_bytes()),
            "hello world -",
        ),
        (
            "multipart",
            plain("/form.php", "multipart/form-data; boundary=B", form.as_bytes()),
            "field in a file",
        ),
    ];
    table(
        &rows,
        |row| row.0,
        |(_, request, body)| {
            let mut client = php.weir.client();
            for _ in 0..2 {
                let seen = client.ask(request);
                seen.expect_status(200);
                if !body.contains("8fb5") {
                    seen.expect_body(body);
                } else {
                    assert!(seen.text().starts_with("6000000 "), "{}", seen.text());
                }
            }
        },
    );
    php.weir.client().ask(chunked(&"x".repeat(2_000_000))).expect_cause(BODY_TOO_LARGE);
    // A script that reads nothing of a long body.
    let mut client = php.weir.client();
    client.send(plain("/status.php", "a/b", &long));
    client.read_response().expect_status(418).expect_body("short");
}

#[test]
fn failures() {
    let Some(mut php) = Php::start("") else { return };
    let mut client = php.weir.client();
    client.get("/notice.php").expect_status(200).expect_body("fine");
    let told = php.weir.wait_log("a script wrote to its standard error");
    assert_eq!(told.field("route"), Some("site"));
    assert!(told.field("text").unwrap().contains("something to know"), "{told:?}");
    client.get("/fatal.php").expect_status(500);
    eventually("the fatal error is logged", || php.weir.stderr().contains("missing_function"));
    client.send("GET /die.php HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(client.try_read_response().is_err(), "the process died within its response");
    php.weir.client().get("/").expect_status(200);
    php.stop();
    let _ = fs::remove_file(php.dir.path().join("fpm.sock"));
    php.weir.client().get("/").expect_cause(CONNECT_REFUSED);
    let mut client = Client::connect(php.weir.address("web"));
    client.get("/wp-content/style.css").expect_status(200);
}
