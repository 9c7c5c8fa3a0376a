//! The request that is explained: a head made of a method, a URL and header fields.

use std::borrow::Cow;
use std::fmt::Write;
use std::net::IpAddr;
use std::time::SystemTime;
use weir_filter::template::without_port;
use weir_h1::{Limits, Progress, RequestHead, parse_request};

/// A made-up request.
#[derive(Clone, Copy)]
pub(super) struct MadeUp<'a> {
    pub(super) head: &'a RequestHead,
    pub(super) client: IpAddr,
    pub(super) tls: bool,
    pub(super) now: SystemTime,
}

impl weir_route::Headers for MadeUp<'_> {
    fn get_all<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        weir_filter::fields::values(self.head, name)
    }

    fn client_ip(&self) -> Option<IpAddr> {
        Some(self.client)
    }

    fn server_name(&self) -> Option<&str> {
        let host = without_port(self.head.asked_authority());
        str::from_utf8(host).ok().filter(|_| self.tls)
    }

    fn is_tls(&self) -> bool {
        self.tls
    }

    fn size(&self) -> Option<u64> {
        Some(self.head.content_length().unwrap_or(0))
    }

    fn now(&self) -> SystemTime {
        self.now
    }
}

/// Parses the request with the parser of live traffic, so that it refuses the same requests.
pub(super) fn head_of(
    method: &str,
    target: &str,
    headers: &[(String, String)],
    limits: &Limits,
) -> Result<RequestHead, String> {
    let (target, host, grpc) = split_url(target);
    let mut text = format!("{method} {target} HTTP/1.1\r\n");
    let named = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
    if !named {
        let _ = write!(text, "Host: {}\r\n", host.as_deref().unwrap_or("localhost"));
    }
    if grpc && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        text.push_str("Content-Type: application/grpc\r\n");
    }
    for (name, value) in headers {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    text.push_str("\r\n");
    let mut head = RequestHead::default();
    head.buffer_mut().extend_from_slice(text.as_bytes());
    match parse_request(&mut head, limits) {
        Ok(Progress::Complete) => Ok(head),
        Ok(Progress::Partial) => Err("400 bad_head: the request is incomplete".to_owned()),
        Err(e) => {
            let cause = weir_engine::cause_of(e.kind());
            Err(format!("{} {}: {e}", cause.status, cause.code))
        }
    }
}

/// Adds `http://` to a URL that lacks a scheme, such as `localhost:8080/x`, as curl does.
///
/// # Errors
/// If the target could be either a URL or a path, such as `users/7`.
pub(super) fn with_scheme<'a>(method: &str, target: &'a str) -> Result<Cow<'a, str>, String> {
    // Behind the host, `://` is part of the path or the query.
    let is_scheme = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let has_scheme = target.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme));
    let is_whole = target.starts_with('/') || has_scheme;
    if is_whole || matches!(target, "" | "*") || method.eq_ignore_ascii_case("connect") {
        return Ok(target.into());
    }
    let host = target.split(['/', '?']).next().unwrap_or_default();
    if host.contains(['.', ':']) || host.eq_ignore_ascii_case("localhost") {
        return Ok(format!("http://{target}").into());
    }
    Err(format!("`{target}` names no scheme and no host: expected http://{target} or /{target}"))
}

/// A URL's target and host, and whether it is gRPC; a target without a host has none.
fn split_url(url: &str) -> (String, Option<String>, bool) {
    const SCHEMES: [(&str, bool); 4] =
        [("http://", false), ("https://", false), ("grpc://", true), ("grpcs://", true)];
    let found = SCHEMES.iter().find_map(|(scheme, grpc)| Some((url.strip_prefix(scheme)?, *grpc)));
    let Some((rest, grpc)) = found else { return (url.to_owned(), None, false) };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, target) = rest.split_at(end);
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    (target, Some(host.to_owned()), grpc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_lack_its_scheme() {
        let of = |target| with_scheme("GET", target).map(Cow::into_owned);
        for (target, url) in [
            ("localhost:8080/x", "http://localhost:8080/x"),
            ("localhost?q=/", "http://localhost?q=/"),
            ("localhost/x?to=http://b", "http://localhost/x?to=http://b"),
            ("api.example.com", "http://api.example.com"),
            ("[::1]:80/x", "http://[::1]:80/x"),
            ("https://a/x", "https://a/x"),
            ("/x.y", "/x.y"),
            ("*", "*"),
        ] {
            assert_eq!(of(target).as_deref(), Ok(url), "{target}");
        }
        assert_eq!(with_scheme("CONNECT", "a.test:443").as_deref(), Ok("a.test:443"));
        let refused = of("users/7?of=a.b").unwrap_err();
        assert!(refused.ends_with("expected http://users/7?of=a.b or /users/7?of=a.b"), "{refused}");
    }
}
