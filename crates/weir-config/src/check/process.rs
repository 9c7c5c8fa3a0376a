//! Checks of the sections about the process itself.

use super::Checker;
use crate::schema::{
    AccessFormat, AccessLog, AdminAddress, AdminToken, ClientAuth, ClientAuthMode, ListenAddress, Output,
    Syslog,
};
use crate::units::Duration;
use std::collections::HashSet;
use std::path::Path;
use weir_telemetry::{LineFormat, Redaction, Server, When};

impl Checker<'_> {
    pub(super) fn process(&mut self) {
        self.admin();
        self.logs();
        self.trusted_proxies();
        let config = self.config;
        let limits = &config.limits;
        self.must_be_within("limits.headers", limits.headers.into(), 1, 1000);
        self.must_be_within("limits.connections", limits.connections.into(), 1, u32::MAX.into());
        if let Some(connections) = limits.per_client.connections {
            self.must_be_within("limits.per_client.connections", connections.into(), 1, 1_000_000);
        }
        let h2 = &limits.h2;
        for (key, value) in [
            ("streams", h2.streams),
            ("continuations", h2.continuations),
            ("empty_data", h2.empty_data),
            ("errors", h2.errors),
            ("pings", h2.pings),
            ("priorities", h2.priorities),
            ("resets", h2.resets),
            ("settings", h2.settings),
            ("window_updates", h2.window_updates),
        ] {
            self.must_be_within(&format!("limits.h2.{key}"), value.into(), 1, u32::MAX.into());
        }
        if !(4 << 10..=1 << 30).contains(&h2.heads.get()) {
            let message = format!("`{}` is out of range; expected 4KiB to 1GiB", h2.heads);
            self.error("limits.h2.heads", "out-of-range", message);
        }
        self.must_be_within("limits.metric_routes", limits.metric_routes.into(), 1, u32::MAX.into());
        self.must_be_within("limits.metric_consumers", limits.metric_consumers.into(), 1, u32::MAX.into());
        let bytes = limits.header_bytes;
        if !(1 << 10..=1 << 20).contains(&bytes.get()) {
            let message = format!("`{bytes}` is out of range; expected 1KiB to 1MiB");
            self.error("limits.header_bytes", "out-of-range", message);
        }
        let read = limits.expression_body_bytes;
        if !(1 << 10..=16 << 20).contains(&read.get()) {
            let message = format!("`{read}` is out of range; expected 1KiB to 16MiB");
            self.error("limits.expression_body_bytes", "out-of-range", message);
        }
        let autopsy = limits.autopsy;
        if autopsy.get() != 0 && !(64 << 10..=64 << 20).contains(&autopsy.get()) {
            let message = format!("`{autopsy}` is out of range; expected 64KiB to 64MiB, or 0B for none");
            self.error("limits.autopsy", "out-of-range", message);
        }
        if config.dns.min_ttl > config.dns.max_ttl {
            let path = if self.is_written("dns.min_ttl") { "dns.min_ttl" } else { "dns.max_ttl" };
            let message =
                format!("min_ttl ({}) is longer than max_ttl ({})", config.dns.min_ttl, config.dns.max_ttl);
            self.error(path, "out-of-range", message);
        }
    }

    fn trusted_proxies(&mut self) {
        let networks = &self.config.trusted_proxies;
        let whole = self.is_whole("trusted_proxies", networks.len());
        for (index, network) in networks.iter().enumerate().filter(|_| whole) {
            if network.0.prefix_len() == 0 {
                let message = format!("`{}` is everyone: any client can forge its address", network.0);
                let hint = "name the networks of your own load balancers, such as 10.0.0.0/8";
                self.warn(&format!("trusted_proxies[{index}]"), "trusts-everyone", message, hint);
            } else if is_vast(&network.0) {
                let message = format!(
                    "`{}` is a large part of the Internet: any client there can forge its address",
                    network.0
                );
                let hint = "name the networks of your own load balancers, such as 10.0.0.0/8";
                self.warn(&format!("trusted_proxies[{index}]"), "trusts-everyone", message, hint);
            }
        }
    }

    /// The destination and format of log lines: everything that would make opening the logs fail.
    fn logs(&mut self) {
        let config = self.config;
        let format =
            config.access_log.line_format(&mut |path, e| self.error(path, "bad-format", e.to_string()));
        self.log_rules(format);
        for (path, output) in
            [("access_log.output", &config.access_log.output), ("log.output", &config.log.output)]
        {
            let Output::File(file) = output else { continue };
            let folder = file.parent().filter(|p| !p.as_os_str().is_empty());
            if file.is_dir() {
                self.error(path, "bad-output", format!("{} is a folder; expected a file", file.display()));
            } else if let Some(folder) = folder.filter(|f| !f.is_dir()) {
                let message = format!("there is no folder {} for {}", folder.display(), file.display());
                self.error(path, "file-missing", message);
            }
        }
    }

    /// Which exchanges are logged, which parts are left out, and when the file is rotated.
    fn log_rules(&mut self, mut format: LineFormat) {
        let log = &self.config.access_log;
        if let Some(when) = &log.when
            && let Err(e) = When::parse(when)
        {
            let hint = "an example is status >= 400 or total > 1s or share 1%";
            self.error_hint("access_log.when", "bad-expression", e.to_string(), hint);
        }
        for (field, how) in &log.redact.0 {
            let path = format!("access_log.redact.{field}");
            let Some(how) = AccessLog::redaction(how) else {
                let message = format!("`{how}` is not a redaction; expected hide, drop or truncate");
                self.error(&path, "bad-value", message);
                continue;
            };
            match field.strip_prefix("query:") {
                Some("") => self.error(&path, "bad-value", "the parameter has no name"),
                Some(_) if how != Redaction::Hide => {
                    self.error_hint(
                        &path,
                        "bad-value",
                        "a parameter of the query can only be hidden",
                        "write hide",
                    );
                }
                Some(_) => {}
                None => {
                    if let Err(e) = format.redact(field, how) {
                        self.error(&path, "bad-value", e.to_string());
                    }
                }
            }
        }
        self.log_server();
        let Some(rotate) = &log.rotate else { return };
        if !matches!(log.output, Output::File(_)) {
            let hint = "write a path under access_log.output";
            self.error_hint("access_log.rotate", "bad-output", "only a file can be rotated", hint);
        }
        if rotate.size.is_none() && rotate.age.is_none() {
            let hint = "write size: 100MiB, age: 1d, or both";
            self.error_hint(
                "access_log.rotate",
                "missing-key",
                "it does not say when: `size` or `age` is missing",
                hint,
            );
        }
        if rotate.size.is_some_and(|size| size.get() < 64 << 10) {
            self.error("access_log.rotate.size", "out-of-range", "expected at least 64KiB");
        }
        if rotate.age.is_some_and(|age| age < Duration::from_secs(60)) {
            self.error("access_log.rotate.age", "out-of-range", "expected at least 1m");
        }
        self.must_be_within("access_log.rotate.keep", rotate.keep.into(), 1, 10_000);
    }

    /// The destination of lines sent to a log server.
    fn log_server(&mut self) {
        let log = &self.config.access_log;
        if let Some(syslog) = &log.syslog {
            if Server::parse(&syslog.server).is_none() {
                let message = format!(
                    "`{}` is not a syslog server; expected udp://HOST, tcp://HOST, tls://HOST or unix:/dev/log",
                    syslog.server
                );
                let path = "access_log.syslog.server";
                self.error(
                    if self.is_written(path) { path } else { "access_log.syslog" },
                    "bad-value",
                    message,
                );
            }
            self.syslog_tls(syslog);
            let fits =
                (1..=48).contains(&syslog.name.len()) && syslog.name.bytes().all(|b| b.is_ascii_graphic());
            if !fits {
                let message = "expected 1 to 48 visible characters of ASCII";
                self.error("access_log.syslog.name", "bad-value", message);
            }
        }
        if let Some(collector) = &log.otlp {
            self.collector("access_log.otlp", "url", collector);
            if log.format != AccessFormat::Json {
                let message = "OTLP log records have fields, so `format` does not apply";
                self.error_hint("access_log.format", "bad-format", message, "leave the format out");
            }
        }
        let places = [
            ("output", self.is_written("access_log.output")),
            ("syslog", log.syslog.is_some()),
            ("otlp", log.otlp.is_some()),
        ];
        let mut written = places.iter().filter(|(_, written)| *written);
        if let (Some((first, _)), Some((second, _))) = (written.next(), written.next()) {
            let message = format!("lines go to `{first}` already; there is one place for them");
            self.error(&format!("access_log.{second}"), "two-places", message);
        }
    }

    fn syslog_tls(&mut self, syslog: &Syslog) {
        let secure = matches!(Server::parse(&syslog.server), Some(Server::Tls(_)));
        let files =
            [("ca", &syslog.ca), ("client_cert", &syslog.client_cert), ("client_key", &syslog.client_key)];
        for (key, file) in files {
            let path = format!("access_log.syslog.{key}");
            let Some(file) = file else { continue };
            if key == "client_key" {
                self.must_be_key(&path, &file.0);
            } else {
                self.must_be_file(&path, &file.0);
            }
        }
        if syslog.client_cert.is_some() != syslog.client_key.is_some() {
            let message = "`client_cert` and `client_key` belong together";
            self.error("access_log.syslog", "missing-key", message);
        }
        for key in ["ca", "client_cert", "client_key", "server_name"] {
            let path = format!("access_log.syslog.{key}");
            if !secure && self.is_written(&path) {
                let message = format!("`{key}` is for a server by TLS");
                self.error_hint(&path, "needs-tls", message, "write `server: tls://HOST`");
            }
        }
    }

    fn admin(&mut self) {
        let admin = &self.config.admin;
        let by_name = |entry: &AdminToken| entry.token.is_some() || entry.certificate.is_some();
        let guarded = self.is_written("admin.token") || admin.tokens.iter().any(by_name);
        self.admin_tokens();
        self.admin_tls();
        self.admin_files();
        if let Some(token) = &admin.token {
            if token.reveal().is_empty() {
                self.error("admin.token", "bad-value", "the token is empty, which would guard nothing");
            } else if let Some(hash) = token.reveal().strip_prefix("sha256:") {
                if !is_hash(hash) {
                    let message = "this is not a hash of a token; expected sha256: and 64 hex digits";
                    let hint = "create it with: printf %s TOKEN | sha256sum";
                    self.error_hint("admin.token", "bad-value", message, hint);
                }
            } else if self.find("admin.token").is_some_and(|node| !node.substituted) {
                let hint = "write \"${ADMIN_TOKEN}\" or \"${file:PATH}\"";
                self.warn(
                    "admin.token",
                    "literal-credential",
                    "the token is written in plain text in this file",
                    hint,
                );
            }
        }
        match &admin.address {
            AdminAddress::At(ListenAddress::Unix(file)) => self.check_unix_path("admin.address", file),
            AdminAddress::At(ListenAddress::Tcp(address)) if !address.ip().is_loopback() => {
                if !guarded {
                    let message =
                        format!("`{address}` can be reached from other machines, and there is no token");
                    let hint = "add `token: \"${ADMIN_TOKEN}\"`, or listen on 127.0.0.1";
                    self.error_hint("admin.address", "admin-open", message, hint);
                } else if address.ip().is_unspecified() {
                    let message = format!("`{address}` listens on every network of this machine");
                    let hint = "name the address of your management network";
                    self.warn("admin.address", "admin-everywhere", message, hint);
                }
            }
            AdminAddress::At(_) | AdminAddress::Off => {}
        }
    }

    fn admin_tokens(&mut self) {
        let admin = &self.config.admin;
        if !self.is_whole("admin.tokens", admin.tokens.len()) {
            return;
        }
        let mut names = HashSet::new();
        for (index, entry) in admin.tokens.iter().enumerate() {
            let path = format!("admin.tokens[{index}]");
            if entry.name.is_empty() || !names.insert(&entry.name) {
                let message = "each entry needs its own name, because the history records changes by it";
                self.error(&format!("{path}.name"), "bad-value", message);
            }
            if let (Some(certificate), None, None) = (&entry.certificate, &entry.token, entry.uid) {
                self.admin_certificate(&format!("{path}.certificate"), certificate);
                continue;
            }
            match (&entry.token, entry.uid) {
                _ if entry.certificate.is_some() => {
                    self.error(&path, "bad-value", "expected one of `token`, `certificate` and `uid`");
                }
                (Some(_), None) if entry.hash().is_some_and(is_hash) => {}
                (Some(_), None) => {
                    let message = "the token must be given as its hash; expected sha256: and 64 hex digits";
                    let hint = "create it with: printf %s TOKEN | sha256sum";
                    self.error_hint(&format!("{path}.token"), "bad-value", message, hint);
                }
                (None, Some(_)) if !matches!(admin.address, AdminAddress::At(ListenAddress::Unix(_))) => {
                    let message = "`uid` identifies users of a Unix socket, but `admin.address` is not one";
                    self.error(&format!("{path}.uid"), "bad-value", message);
                }
                (None, Some(_)) => {}
                _ => self.error(&path, "bad-value", "expected one of `token`, `certificate` and `uid`"),
            }
        }
        for (index, host) in admin.hosts.iter().enumerate() {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            if host.is_empty() || !host.chars().all(plain) {
                let message =
                    format!("`{host}` is not a host name; expected e.g. gw1.internal, without a port");
                self.error(&format!("admin.hosts[{index}]"), "bad-value", message);
            }
        }
    }

    fn admin_certificate(&mut self, path: &str, told: &str) {
        let asks = |auth: &ClientAuth| auth.mode != ClientAuthMode::Off;
        let tls = self.config.admin.tls.as_ref();
        if !tls.is_some_and(|tls| tls.client_auth.as_ref().is_some_and(asks)) {
            let message = "clients are not asked for a certificate, so none sends one";
            let hint = "write `tls: { client_auth: { ca: clients.pem } }` under `admin`";
            self.error_hint(path, "no-client-auth", message, hint);
        }
        let (kind, value) = told.split_once(':').unwrap_or((told, ""));
        let known = match kind {
            "dns" => !value.is_empty() && !value.contains('*'),
            "email" | "uri" | "ip" => !value.is_empty(),
            "subject" => value.contains('='),
            "sha256" => is_hash(value),
            _ => false,
        };
        if !known {
            let message = format!("`{told}` does not identify a certificate");
            let hint = "expected dns:, email:, uri:, ip:, subject: or sha256: and what the certificate says";
            self.error_hint(path, "bad-value", message, hint);
        }
    }

    fn admin_tls(&mut self) {
        let admin = &self.config.admin;
        let Some(tls) = &admin.tls else { return };
        if let AdminAddress::At(ListenAddress::Unix(_)) = admin.address {
            let message = "`admin.address` is a Unix socket, which needs no encryption";
            self.error_hint("admin.tls", "no-use", message, "remove `tls`, or listen on an address");
        }
        self.certificate_files("admin.tls");
        if let Some(auth) = &tls.client_auth {
            self.must_be_file("admin.tls.client_auth.ca", &auth.ca.0);
        }
    }

    /// The file and folders that the API writes, and the folders that it may name.
    fn admin_files(&mut self) {
        let admin = &self.config.admin;
        if let Some(file) = &admin.writes {
            let folder = file.0.parent().filter(|folder| !folder.as_os_str().is_empty());
            if file.0.is_dir() {
                let message = format!("{} is a folder; expected a file", file.0.display());
                self.error("admin.writes", "bad-value", message);
            } else if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
                let message =
                    format!("there is no folder {} for the file that the API writes", folder.display());
                self.error("admin.writes", "file-missing", message);
            } else if let Err((folder, why)) = may_write(folder.unwrap_or(Path::new("."))) {
                let message = format!(
                    "this user may not write to {folder} ({why}): every change over the API gets 507"
                );
                let hint = "name a file where the service may write, such as `/var/lib/weir/managed.yaml` under the packaged systemd unit";
                self.warn("admin.writes", "not-writable", message, hint);
            }
            // `admin.token: ${NAME}` was refused if the variable is not set here. Where the service runs, it may be.
            let has_token = self.is_written("admin.token") || !admin.tokens.is_empty();
            if !has_token && admin.address != AdminAddress::Off {
                let message =
                    "there is no token, so every user of this machine may change the config, and no one else";
                let hint = "name those who may under `admin.tokens`";
                self.warn("admin.writes", "admin-writes-open", message, hint);
            }
            if admin.state.is_none() {
                let message =
                    "there is no folder for a history, so changes made by the API cannot be rolled back";
                self.warn("admin.writes", "no-history", message, "add `state: /var/lib/weir` to `admin`");
            }
        }
        if let Some(state) = admin.state.as_ref().filter(|state| state.0.exists() && !state.0.is_dir()) {
            let message = format!("{} is not a folder", state.0.display());
            self.error("admin.state", "bad-value", message);
        }
        for (index, path) in admin.paths.iter().enumerate() {
            let key = format!("admin.paths[{index}]");
            if !path.0.is_dir() {
                self.error(&key, "file-missing", format!("there is no folder {}", path.0.display()));
            } else if path.0.canonicalize().is_ok_and(|real| real.parent().is_none()) {
                let message =
                    "`/` lets anyone who may write routes read every file that the gateway can read";
                self.warn(&key, "reads-everything", message, "name the folder that holds the files to serve");
            }
        }
    }
}

/// Whether this process may create and replace files in a folder; otherwise its full name and the error.
fn may_write(folder: &Path) -> Result<(), (String, std::io::Error)> {
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    let full = || folder.canonicalize().unwrap_or_else(|_| folder.to_owned()).display().to_string();
    rustix::fs::access(folder, access).map_err(|e| (full(), e.into()))
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a network is too large to be private. IPv6 has its private networks at fc00::/7.
fn is_vast(network: &ipnet::IpNet) -> bool {
    match network {
        ipnet::IpNet::V4(v4) => v4.prefix_len() < 8,
        ipnet::IpNet::V6(v6) => v6.prefix_len() < 7,
    }
}
