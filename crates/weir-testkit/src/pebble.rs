//! Pebble, the test certificate authority for ACME clients, and its DNS server. It rejects one valid nonce in
//! twenty, which is its default.
//!
//! If it is not installed, tests say so and pass; `make test` builds it (`scripts/ensure-tools.sh pebble`).

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;

use crate::{Authority, Client, Tls, eventually_within, unused_address};

/// The version to build, which `scripts/ensure-tools.sh` states too.
const VERSION: &str = "2.10.1";

/// How long it may take to listen.
const STARTING: Duration = Duration::from_secs(30);

/// A private certificate authority, stopped until [`Self::start`] is called.
#[derive(Debug)]
pub struct Pebble {
    folder: PathBuf,
    dir: TempDir,
    authority: Authority,
    acme: SocketAddr,
    management: SocketAddr,
    dns: SocketAddr,
    records: SocketAddr,
    running: Vec<Child>,
}

impl Pebble {
    /// An authority that validates challenges at these ports of this machine, for every name. If Pebble is not
    /// installed, prints that and returns `None`.
    pub fn new(http: u16, tls: u16) -> Option<Self> {
        let tools = std::env::var_os("CONF_TOOLS").map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/weir-conformance"));
        let folder = tools.or_else(home)?.join(format!("pebble-{VERSION}"));
        if !folder.join("pebble").exists() {
            eprintln!("SKIPPED: Pebble is not installed (scripts/ensure-tools.sh pebble)");
            return None;
        }
        let authority = Authority::new();
        let leaf = authority.leaf(&["127.0.0.1"]);
        let (acme, management) = (unused_address(), unused_address());
        let dir = TempDir::new().unwrap();
        let config = serde_json::json!({ "pebble": {
            "listenAddress": acme.to_string(), "managementListenAddress": management.to_string(),
            "certificate": leaf.cert_file, "privateKey": leaf.key_file, "httpPort": http, "tlsPort": tls,
            "ocspResponderURL": "", "externalAccountBindingRequired": false,
            "retryAfter": { "authz": 1, "order": 1 }, "keyAlgorithm": "ecdsa",
            "profiles": {
                "default": { "description": "ninety days", "validityPeriod": 7_776_000 },
                "shortlived": { "description": "six days", "validityPeriod": 518_400 },
            },
        } });
        fs::write(dir.path().join("pebble.json"), config.to_string()).unwrap();
        let (dns, records) = (unused_address(), unused_address());
        Some(Self { folder, dir, authority, acme, management, dns, records, running: Vec::new() })
    }

    /// The URL of its directory, and the file that verifies its own certificate, as settings of `acme`.
    pub fn yaml(&self) -> String {
        format!("directory: \"https://{}/dir\", ca: {}", self.acme, self.authority.file().display())
    }

    /// The address for setting TXT records: `POST /set-txt` with `host` and `value`, `POST /clear-txt` with
    /// `host`.
    pub fn records(&self) -> SocketAddr {
        self.records
    }

    /// Starts it without its earlier state, and with a new key.
    pub fn start(&mut self) {
        self.stop();
        let (dns, records) = (self.dns.to_string(), self.records.to_string());
        let off = ["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "", "-defaultIPv6", ""];
        let mut server = self.command("pebble-challtestsrv");
        server.args(off).args(["-dnsserver", &dns, "-management", &records]);
        let mut pebble = self.command("pebble");
        pebble.args(["-config", "pebble.json", "-strict", "-dnsserver", &dns]).env("PEBBLE_VA_NOSLEEP", "1");
        self.running = vec![server.spawn().unwrap(), pebble.spawn().unwrap()];
        for address in [self.records, self.acme, self.management] {
            eventually_within(STARTING, "Pebble listens", || Client::can_connect(address));
        }
    }

    /// Stops it, so that nothing listens at its address.
    pub fn stop(&mut self) {
        for mut child in self.running.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The root certificate that clients must trust.
    pub fn root(&self) -> CertificateDer<'static> {
        let answer = self.manage("GET", "/roots/0", "");
        CertificateDer::from_pem_slice(answer.as_bytes()).unwrap()
    }

    /// Sends a request to its management interface, and returns the body.
    pub fn manage(&self, method: &str, path: &str, body: &str) -> String {
        let mut client = Client::connect_tls(self.management, &Tls::new(&self.authority, "127.0.0.1"));
        let head =
            format!("Host: {}\r\nContent-Length: {}\r\nConnection: close", self.management, body.len());
        let answer = client.ask(format!("{method} {path} HTTP/1.1\r\n{head}\r\n\r\n{body}"));
        answer.expect_status(200).text()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = crate::command_for(&self.folder.join(program), self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.stop();
    }
}
