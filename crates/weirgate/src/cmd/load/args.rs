//! Options that describe a request and how to send it, shared by all commands that generate load.

use super::{ExitCodes, Intended, Require};
use clap::Args;
use std::path::PathBuf;
use weir_load::Options;
use weir_report::Mistake;

/// Conditions on a run, and what they do to the exit code.
#[derive(Args)]
pub(super) struct JudgeArgs {
    /// Check on each response: status=200, grpc=OK, body~TEXT, json:$.a=1, size<10KiB; may be repeated
    #[arg(long = "check", value_name = "CHECK", help_heading = "Judgement")]
    checks: Vec<String>,
    /// Condition that the run must meet, or exit with 1: 'p99<20ms', 'errors<0.1%', 'rate>5000'; of a replay also
    /// 'ratio<1.1' and 'statuses-changed<1%'; or k6's 'http_req_duration: p(95)<200'; may be repeated
    #[arg(long = "threshold", value_name = "CONDITION", help_heading = "Judgement")]
    thresholds: Vec<String>,
    /// Abort the run once this is true, such as 'errors>50%', and exit as for a broken threshold; may be repeated
    #[arg(long = "abort-on", value_name = "CONDITION", help_heading = "Judgement")]
    abort_on: Vec<String>,
    /// Exit with 1 if the verdict is lower than this
    #[arg(long, value_enum, value_name = "GRADE", help_heading = "Judgement")]
    pub(super) require: Option<Require>,
    /// Exit codes: 1 for every failure, k6's 99 for a broken threshold, or one for each kind of failure
    #[arg(long, value_enum, default_value_t, value_name = "WHOSE", help_heading = "Judgement")]
    pub(super) exit_codes: ExitCodes,
}

impl JudgeArgs {
    /// Adds these settings to the options.
    pub(super) fn fill(&self, options: &mut Options) {
        options.checks.clone_from(&self.checks);
        options.thresholds.clone_from(&self.thresholds);
        options.abort_on.clone_from(&self.abort_on);
    }
}

/// The request.
#[derive(Args)]
pub(in crate::cmd) struct RequestArgs {
    /// Method [default: GET, or POST with a body]
    #[arg(short = 'X', long, value_name = "METHOD", help_heading = "Request")]
    method: Option<String>,
    /// A header field, `name: value`; may be repeated
    #[arg(short = 'H', long = "header", value_name = "K: V", help_heading = "Request")]
    headers: Vec<String>,
    /// Body, or WebSocket message [default: hello]: text or @FILE, at most 1 GiB
    #[arg(long, value_name = "TEXT|@FILE", help_heading = "Request")]
    data: Option<String>,
    /// Send WebSocket messages as binary
    #[arg(long, help_heading = "Request")]
    binary: bool,
    /// A part of a multipart body, name=value or name=@FILE; may be repeated
    #[arg(short = 'F', long = "form", value_name = "K=V", help_heading = "Request")]
    forms: Vec<String>,
    /// Rows for {{data.NAME}} in path, header fields and body: CSV with a header line, or JSON lines, at most 1 GiB
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    feed: Option<PathBuf>,
    /// Send {{ and }} literally
    #[arg(long, help_heading = "Request")]
    raw: bool,
    /// Number of requests to write ahead of their responses, at most 1,024 [default: 1]
    #[arg(long, value_name = "N", help_heading = "Connection")]
    pipeline: Option<u64>,
    /// Basic authentication
    #[arg(short = 'u', long, value_name = "NAME:PASSWORD", help_heading = "Request")]
    user: Option<String>,
    /// Bearer authentication
    #[arg(long, value_name = "TOKEN", help_heading = "Request")]
    bearer: Option<String>,
    /// A cookie, name=value; may be repeated
    #[arg(long = "cookie", value_name = "K=V", help_heading = "Request")]
    cookies: Vec<String>,
    /// A curl command line, as browsers copy it
    #[arg(long, value_name = "'curl …'", help_heading = "Request")]
    curl: Option<String>,

    /// Metadata, `key: value`, values of `-bin` keys in base64; may be repeated
    #[arg(long, value_name = "K: V", help_heading = "gRPC (--data is JSON)")]
    metadata: Vec<String>,
    /// A .proto file that defines the method [default: ask the target by server reflection, v1, then v1alpha]; may be
    /// repeated
    #[arg(long = "proto", value_name = "FILE", help_heading = "gRPC (--data is JSON)")]
    protos: Vec<PathBuf>,
    /// Folder for imported files [default: that of the .proto file]; may be repeated
    #[arg(long = "import-path", value_name = "DIR", help_heading = "gRPC (--data is JSON)")]
    import_paths: Vec<PathBuf>,
    /// A descriptor set instead, as protoc --include_imports --descriptor_set_out writes it
    #[arg(long, value_name = "FILE", help_heading = "gRPC (--data is JSON)")]
    protoset: Option<PathBuf>,
}

/// How to send it.
#[derive(Args)]
pub(in crate::cmd) struct ConnectionArgs {
    /// Speak HTTP/2: chosen by ALPN for https, by prior knowledge for http
    #[arg(long, visible_alias = "http2-prior-knowledge", help_heading = "Connection")]
    http2: bool,
    /// Speak HTTP/3 over QUIC, without falling back to another version; https only
    #[arg(long, visible_alias = "http3-only", help_heading = "Connection")]
    http3: bool,
    /// Concurrent requests on each HTTP/2 or HTTP/3 connection, at most 10,000 [default: 1]
    #[arg(short = 'm', long, value_name = "N", help_heading = "Connection")]
    streams: Option<u64>,
    /// Open a connection for each request
    #[arg(long, help_heading = "Connection")]
    no_keepalive: bool,
    /// Longest wait for a connection, and for a response [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = "Connection")]
    timeout: Option<String>,
    /// Connect to these addresses in turn instead of resolving the host, as in curl; may be repeated, also for one host
    #[arg(long, value_name = "HOST:PORT:ADDR[,ADDR]", help_heading = "Connection")]
    resolve: Vec<String>,
    /// Connect to this Unix socket
    #[arg(long, value_name = "PATH", help_heading = "Connection")]
    unix_socket: Option<PathBuf>,
    /// Send requests through this proxy, `http://[USER:PASSWORD@]HOST:PORT`, not over TLS or SOCKS; or `env` for the
    /// environment's [default: none]
    #[arg(long, value_name = "URL|env", help_heading = "Connection")]
    proxy: Option<String>,
    /// Let new TLS connections resume sessions; otherwise each makes a full handshake
    #[arg(long, help_heading = "Connection")]
    tls_resume: bool,
    /// Accept responses from a cache; otherwise they make the result SUSPECT
    #[arg(long, value_enum, value_name = "ok", help_heading = "Judgement")]
    cached: Option<Intended>,
    /// Accept any certificate
    #[arg(long, help_heading = "Connection")]
    insecure: bool,
    /// Trust these certificates instead of the system's
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    cacert: Option<PathBuf>,
    /// Client certificate
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    cert: Option<PathBuf>,
    /// Key of the client certificate
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    key: Option<PathBuf>,
    /// Server name for TLS (SNI and verification) instead of the URL's host
    #[arg(long, value_name = "NAME", help_heading = "Connection")]
    server_name: Option<String>,
}

impl RequestArgs {
    /// Adds these settings to the options, the curl command line last.
    pub(in crate::cmd) fn fill(&self, options: &mut Options) -> Result<(), Mistake> {
        options.method.clone_from(&self.method);
        options.headers.clone_from(&self.headers);
        options.data.clone_from(&self.data);
        options.binary = self.binary;
        options.forms.clone_from(&self.forms);
        options.feed.clone_from(&self.feed);
        options.raw = self.raw;
        options.pipeline = self.pipeline;
        options.metadata.clone_from(&self.metadata);
        options.protos.clone_from(&self.protos);
        options.import_paths.clone_from(&self.import_paths);
        options.protoset.clone_from(&self.protoset);
        options.user.clone_from(&self.user);
        options.bearer.clone_from(&self.bearer);
        options.cookies.clone_from(&self.cookies);
        self.curl.as_deref().map_or(Ok(()), |curl| options.add_curl(curl))
    }
}

impl ConnectionArgs {
    /// Adds these settings to the options.
    pub(in crate::cmd) fn fill(&self, options: &mut Options) {
        options.no_keepalive = self.no_keepalive;
        options.http2 = self.http2;
        options.http3 = self.http3;
        options.streams = self.streams;
        options.timeout.clone_from(&self.timeout);
        options.resolve.clone_from(&self.resolve);
        options.unix_socket.clone_from(&self.unix_socket);
        options.proxy.clone_from(&self.proxy);
        options.tls_resume = self.tls_resume;
        options.cached = self.cached.is_some();
        options.insecure = self.insecure;
        options.cacert.clone_from(&self.cacert);
        options.cert.clone_from(&self.cert);
        options.key.clone_from(&self.key);
        options.server_name.clone_from(&self.server_name);
    }
}
