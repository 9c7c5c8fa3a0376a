//! The parameters of a script: RFC 3875 §4.1, and those that PHP expects beyond it.

use super::{Script, Scripts};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use weir_fcgi::{KeepConnection, write_begin, write_pair, write_params};
use weir_h1::{BodyKind, Method, RequestHead, Version};

/// What scripts learn beside the request itself.
pub(crate) struct Facts<'a> {
    /// The client's address, and its port if that is known.
    pub(crate) client: IpAddr,
    pub(crate) client_port: Option<u16>,
    /// Whether the client uses TLS.
    pub(crate) tls: bool,
    /// Our own address.
    pub(crate) local: Option<SocketAddr>,
    /// The port that the client used.
    pub(crate) port: u16,
    /// The Host, if it is not the request's own.
    pub(crate) host: Option<&'a str>,
    /// Whether the connection is kept.
    pub(crate) keep: KeepConnection,
}

/// Fields that are not passed on as `HTTP_…`. Two have names of their own, and `Host` is written apart. Programs would
/// read `Proxy` as the proxy for outgoing requests (httpoxy, CVE-2016-5385). The others are about the connection (RFC
/// 3875 §4.1.18).
const NOT_PASSED: &[&str] = &[
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl Scripts {
    /// Writes all records before the body.
    pub(crate) fn write_request(
        &self,
        script: &Script,
        head: &RequestHead,
        facts: &Facts<'_>,
        out: &mut Vec<u8>,
    ) {
        let mut pairs = Pairs { scripts: self, bytes: Vec::with_capacity(2048) };
        self.write_script(script, head, &mut pairs);
        write_request(head, facts, &mut pairs);
        write_fields(head, facts.host, &mut pairs);
        for (name, value) in &self.params {
            write_pair(name, value, &mut pairs.bytes);
        }
        write_begin(facts.keep, out);
        write_params(&pairs.bytes, out);
    }

    fn write_script(&self, script: &Script, head: &RequestHead, pairs: &mut Pairs<'_>) {
        let name = [b"/", &script.name[..]].concat();
        let info = script.info.as_deref();
        pairs.push("SCRIPT_FILENAME", &self.file(&script.name));
        pairs.push("SCRIPT_NAME", &name);
        pairs.push("DOCUMENT_ROOT", self.file(b"").strip_suffix(b"/").unwrap_or(b"/"));
        pairs.push("DOCUMENT_URI", &[&name, info.unwrap_or_default()].concat());
        if let Some(info) = info {
            pairs.push("PATH_INFO", info);
            pairs.push("PATH_TRANSLATED", &self.file(info.strip_prefix(b"/").unwrap_or(info)));
        }
        let query = head.query();
        pairs.push("QUERY_STRING", query.unwrap_or_default());
        // As an upstream of HTTP would get it: what access rules saw, without what filters took out.
        let uri = match query {
            Some(query) => [head.path(), b"?", query].concat(),
            None => head.path().to_vec(),
        };
        pairs.push("REQUEST_URI", &uri);
    }
}

fn write_request(head: &RequestHead, facts: &Facts<'_>, pairs: &mut Pairs<'_>) {
    let Facts { client, client_port, tls, local, port, .. } = *facts;
    pairs.push("GATEWAY_INTERFACE", b"CGI/1.1");
    pairs.push("SERVER_SOFTWARE", b"weir");
    pairs.push("REQUEST_METHOD", head.method_name());
    let protocol: &[u8] = match head.version() {
        Version::Http10 => b"HTTP/1.0",
        Version::Http11 => b"HTTP/1.1",
        Version::Http2 => b"HTTP/2.0",
        Version::Http3 => b"HTTP/3.0",
    };
    pairs.push("SERVER_PROTOCOL", protocol);
    pairs.push("REQUEST_SCHEME", if tls { b"https" } else { b"http" });
    if tls {
        pairs.push("HTTPS", b"on");
    }
    let host = head.asked_authority();
    let name = host.rsplit(|&b| b == b':').next().map_or(host, |port| {
        let digits = port.len() < host.len() && port.iter().all(u8::is_ascii_digit);
        if digits { host.get(..host.len() - port.len() - 1).unwrap_or(host) } else { host }
    });
    pairs.push("SERVER_NAME", name);
    pairs.display("SERVER_PORT", &port);
    if let Some(local) = local {
        pairs.display("SERVER_ADDR", &local.ip().to_canonical());
    }
    pairs.display("REMOTE_ADDR", &client);
    if let Some(port) = client_port {
        pairs.display("REMOTE_PORT", &port);
    }
    // PHP that was built with --enable-force-cgi-redirect, and old frameworks, refuse requests without it.
    pairs.push("REDIRECT_STATUS", b"200");
    if let Some(media) = head.headers.get_str("content-type") {
        pairs.push("CONTENT_TYPE", media);
    }
    let length = if head.body() == BodyKind::Empty { None } else { head.content_length() };
    if length.is_some() || !matches!(head.method(), Method::Get | Method::Head) {
        pairs.display("CONTENT_LENGTH", &length.unwrap_or(0));
    }
}

/// The fields of the request, each once (RFC 3875 §4.1.18).
fn write_fields(head: &RequestHead, host: Option<&str>, pairs: &mut Pairs<'_>) {
    match host {
        Some(host) => pairs.push("HTTP_HOST", host.as_bytes()),
        None => pairs.push("HTTP_HOST", head.authority()),
    }
    let mut fields: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(head.headers.len());
    for (name, value) in head.headers.iter() {
        let Some(name) = parameter_of(name) else { continue };
        match fields.iter_mut().find(|(known, _)| *known == name) {
            None => fields.push((name, value.to_vec())),
            Some((name, values)) => {
                // RFC 9110 §5.3; for cookies RFC 9113 §8.2.3.
                values.extend_from_slice(if name == b"HTTP_COOKIE" { b"; " } else { b", " });
                values.extend_from_slice(value);
            }
        }
    }
    for (name, value) in fields {
        if let Ok(name) = str::from_utf8(&name) {
            pairs.push(name, &value);
        }
    }
}

/// The name of the parameter for a field. None if it is not passed on: scripts read `X_Y` as `X-Y`, and so could a
/// client forge what a proxy or a filter wrote. The same goes for any other character that is neither a letter, a
/// digit nor `-`.
fn parameter_of(name: &[u8]) -> Option<Vec<u8>> {
    let plain = name.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'-');
    if !plain || NOT_PASSED.iter().any(|not| name.eq_ignore_ascii_case(not.as_bytes())) {
        return None;
    }
    let letters = name.iter().map(|&b| if b == b'-' { b'_' } else { b.to_ascii_uppercase() });
    Some(b"HTTP_".iter().copied().chain(letters).collect())
}

/// Parameters, without those that the config replaces.
struct Pairs<'a> {
    scripts: &'a Scripts,
    bytes: Vec<u8>,
}

impl Pairs<'_> {
    fn push(&mut self, name: &str, value: &[u8]) {
        if !self.scripts.params.iter().any(|(own, _)| own == name.as_bytes()) {
            write_pair(name.as_bytes(), value, &mut self.bytes);
        }
    }

    fn display(&mut self, name: &str, value: &dyn std::fmt::Display) {
        let mut text = Vec::new();
        let _ = write!(text, "{value}"); // into a Vec
        self.push(name, &text);
    }
}
