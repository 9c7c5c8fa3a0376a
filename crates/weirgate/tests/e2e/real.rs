//! A real nginx as upstream with a small site: it answers through the gateway as it answers directly.
//!
//! Without nginx, these tests print a note and pass; `make test` installs it.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use weir_testkit::{Client, Response, Weir, eventually, table, unused_address};

use crate::cause::CONNECT_REFUSED;
use crate::support::config;

/// Longer than any buffer on the way.
const PAGE_BYTES: usize = 300_000;

/// nginx and its folder.
struct Nginx {
    dir: TempDir,
    address: SocketAddr,
    child: Child,
}

impl Nginx {
    /// Starts it; `None` if it is not installed.
    fn start() -> Option<Self> {
        let Some(binary) = binary() else {
            eprintln!("SKIPPED: nginx is not installed (scripts/ensure-tools.sh nginx)");
            return None;
        };
        let dir = TempDir::new().unwrap();
        let page: String = (0..).map(|n| format!("line {n}\n")).take(40_000).collect();
        fs::create_dir(dir.path().join("site")).unwrap();
        fs::write(dir.path().join("site/page.txt"), &page[..PAGE_BYTES]).unwrap();
        fs::write(dir.path().join("site/small.html"), "<p>small\n").unwrap();
        let address = unused_address();
        let child = run(&binary, dir.path(), address);
        Some(Self { dir, address, child })
    }

    fn start_again(&mut self) {
        self.child = run(&binary().unwrap(), self.dir.path(), self.address);
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        eventually("nginx is gone", || !Client::can_connect(self.address));
    }

    /// A gateway in front of it.
    fn weir(&self) -> Weir {
        Weir::start(&config(&format!("endpoints: [{}]", self.address)))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A program that a test started. It ends with the test, also with one that fails.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The installed nginx.
pub(crate) fn binary() -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin", "/sbin"]);
    folders.map(|folder| Path::new(folder).join("nginx")).find(|file| file.exists())
}

fn run(binary: &Path, dir: &Path, address: SocketAddr) -> Child {
    // nginx ignores `user root`, with a warning, unless we are root; if we are, another user could not enter our
    // folder.
    let text = format!(
        "daemon off; master_process off; user root; pid {d}/pid; error_log {d}/error.log;\n\
         events {{ }}\n\
         http {{\n  access_log off; gzip on; gzip_min_length 1; gzip_types text/plain;\n  \
         client_body_temp_path {d}/t1; proxy_temp_path {d}/t2; fastcgi_temp_path {d}/t3; uwsgi_temp_path {d}/t4; scgi_temp_path {d}/t5;\n  \
         types {{ text/plain txt; text/html html; }}\n  \
         server {{ listen {address}; root {d}/site; }}\n}}\n",
        d = dir.display()
    );
    fs::write(dir.join("nginx.conf"), text).unwrap();
    let log = File::create(dir.join("stderr.log")).unwrap();
    let mut command = Command::new(binary);
    command.arg("-p").arg(dir).arg("-c").arg(dir.join("nginx.conf")).arg("-e").arg(dir.join("error.log"));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
    eventually("nginx listens", || Client::can_connect(address));
    child
}

/// Status, body, and the fields that describe the body.
fn told(response: &Response) -> (u16, Vec<u8>, Vec<Option<String>>) {
    let names = [
        "accept-ranges",
        "allow",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "etag",
        "last-modified",
        "server",
        "vary",
    ];
    let fields = names.iter().map(|name| response.header(name).map(str::to_owned)).collect();
    (response.status, response.body.bytes.clone(), fields)
}

#[test]
fn what_it_serves_comes_through_unchanged() {
    let Some(nginx) = Nginx::start() else { return };
    let weir = nginx.weir();
    let etag = Client::connect(nginx.address).get("/page.txt").header("etag").unwrap().to_owned();
    let unchanged = format!("If-None-Match: {etag}\r\n");
    let rows: &[(&str, &str, &str, u16)] = &[
        ("GET", "/page.txt", "", 200),
        ("GET", "/small.html", "", 200),
        ("GET", "/page.txt", "Range: bytes=1000-200999\r\n", 206),
        ("GET", "/page.txt", "Range: bytes=0-9,100-109\r\n", 206),
        ("GET", "/page.txt", "Range: bytes=900000-\r\n", 416),
        ("GET", "/page.txt", &unchanged, 304),
        ("GET", "/page.txt", "Accept-Encoding: gzip\r\n", 200),
        ("HEAD", "/page.txt", "", 200),
        ("GET", "/nowhere", "", 404),
        ("POST", "/page.txt", "Content-Length: 5\r\n", 405),
    ];
    table(
        rows,
        |(method, target, fields, _)| format!("{method} {target} {fields}"),
        |(method, target, fields, status)| {
            let body = if *method == "POST" { "hello" } else { "" };
            let request = format!("{method} {target} HTTP/1.1\r\nHost: site.test\r\n{fields}\r\n{body}");
            // Twice through the gateway: the first round's connections must not affect the second.
            let mut ours = weir.client();
            let mut answers = [&mut Client::connect(nginx.address), &mut ours].map(|client| {
                client.send(&request);
                if *method == "HEAD" { client.read_response_to_head() } else { client.read_response() }
            });
            ours.get("/small.html").expect_status(200).expect_body("<p>small\n");
            let [direct, through] = &mut answers;
            direct.expect_status(*status);
            if *status == 206 && fields.contains(',') {
                // The boundary of the parts differs each time.
                assert_eq!(direct.body.bytes.len(), through.body.bytes.len());
                through.expect_status(206);
            } else {
                assert_eq!(told(through), told(direct));
            }
            through.expect_no_header("x-weir-cause");
        },
    );
}

#[test]
fn compressed_bodies_stay_compressed() {
    let Some(nginx) = Nginx::start() else { return };
    let weir = nginx.weir();
    let mut client = weir.client();
    let asked = "GET /page.txt HTTP/1.1\r\nHost: site.test\r\nAccept-Encoding: gzip\r\n\r\n";
    let answer = client.ask(asked);
    answer.expect_status(200).expect_header("content-encoding", "gzip");
    assert!(answer.body.bytes.starts_with(&[0x1f, 0x8b]) && answer.body.bytes.len() < PAGE_BYTES / 2);
}

#[test]
fn stopped_and_started_again() {
    let Some(mut nginx) = Nginx::start() else { return };
    let weir = nginx.weir();
    let mut client = weir.client();
    client.get("/small.html").expect_status(200);
    nginx.stop();
    client.get("/small.html").expect_cause(CONNECT_REFUSED);
    nginx.start_again();
    // It was dialed a moment ago: the next dial is due within 100 ms.
    eventually("it is found again", || client.get("/small.html").status == 200);
    client.get("/small.html").expect_status(200).expect_body("<p>small\n");
}
