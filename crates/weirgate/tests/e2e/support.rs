//! Configs and answers for several modules.

use weir_testkit::{Upstream, Weir, table};

use crate::cause::Cause;

/// An answer without a body.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// An answer with the body `ok`.
pub(crate) const OK_BODY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A plain request.
pub(crate) const GET: &str = "GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n";

/// A listener `web` on a free port.
pub(crate) const WEB: &str = "listeners: { web: { address: 127.0.0.1:0 } }";

/// A route for everything, to the upstream `up`.
pub(crate) const ALL_TO_UP: &str = "routes: { all: { match: { path: \"/*\" }, upstream: up } }";

/// A config with one listener, one route for everything, and the upstream `up` with these settings, such as
/// `endpoints: […]`.
pub(crate) fn config(upstream: &str) -> String {
    format!("{WEB}\nupstreams: {{ up: {{ {upstream} }} }}\n{ALL_TO_UP}\n")
}

/// Like [`config`], with this single upstream and these settings beside its endpoint.
pub(crate) fn config_for(upstream: &Upstream, settings: &str) -> String {
    config(&format!("endpoints: [{}], {settings}", upstream.address()))
}

/// A gateway in front of one upstream with these settings beside its endpoint.
#[track_caller]
pub(crate) fn weir_with(upstream: &Upstream, settings: &str) -> Weir {
    Weir::start(&config_for(upstream, settings))
}

/// Asserts that the upstream received a request with exactly these lines, in any order, apart from lines that a
/// gateway adds (`x-forwarded-*`, `forwarded`, `via`, `x-request-id`, `connection: keep-alive`).
#[track_caller]
pub(crate) fn expect_lines(raw: &[u8], expected: &[&str]) {
    let text = String::from_utf8_lossy(raw);
    let head = text.split("\r\n\r\n").next().unwrap_or_default();
    let mut lines = head.split("\r\n");
    assert_eq!(lines.next(), expected.first().copied(), "the first line of:\n{text}");
    let mut lines: Vec<String> = lines.map(plain).filter(|line| !added(line)).collect();
    let mut expected: Vec<String> = expected[1..].iter().map(|line| plain(line)).collect();
    lines.sort();
    expected.sort();
    assert_eq!(lines, expected, "the fields of:\n{text}");
}

/// A field line in normal form: the name's case and the space before a value do not matter.
fn plain(line: &str) -> String {
    match line.split_once(':') {
        Some((name, value)) => format!("{}: {}", name.to_ascii_lowercase(), value.trim_start_matches(' ')),
        None => line.to_owned(),
    }
}

fn added(line: &str) -> bool {
    ["x-forwarded-", "forwarded: ", "via: ", "x-request-id: ", "connection: keep-alive"]
        .iter()
        .any(|name| line.starts_with(name))
}

/// The target that the upstream gets for a path, or why it gets nothing.
pub(crate) type PathRow = (&'static str, Result<&'static str, Cause>);

#[track_caller]
pub(crate) fn expect_targets(weir: &Weir, upstream: &Upstream, rows: &[PathRow]) {
    table(
        rows,
        |(path, _)| *path,
        |(path, expected)| {
            upstream.forget();
            let answer = weir.client().ask(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
            match expected {
                Ok(target) => {
                    answer.expect_status(200);
                    assert_eq!(upstream.take_request().head.line, format!("GET {target} HTTP/1.1"));
                }
                Err(cause) => {
                    answer.expect_cause(*cause);
                    assert!(upstream.requests().is_empty());
                }
            }
        },
    );
}
