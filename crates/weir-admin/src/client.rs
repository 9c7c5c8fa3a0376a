//! The client of the admin listener, behind `weir status`, `weir reload` and `weir drain`.
//!
//! It blocks on plain sockets, with a deadline for the whole call, because an async runtime would outweigh the
//! rest of the command.

mod connection;

use crate::by_hand;
use crate::why;
use crate::{maintenance as switches, purge};
use connection::{connect, read_answer};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};
use weir_wire::tls::ClientTls;

/// Timeout of a status request, and of starting a drain.
const QUICK: Duration = Duration::from_secs(10);

/// Timeout of a reload, which may resolve names and read large files.
const RELOAD: Duration = Duration::from_secs(60);

/// Timeout of an upgrade: slightly longer than the old process waits for the new one.
const UPGRADE: Duration = Duration::from_secs(75);

/// Timeout of connecting.
const CONNECT: Duration = Duration::from_secs(3);

/// Largest response, in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// Where to reach a running Weir: an address, optionally with TLS.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The address of its admin listener.
    pub address: &'a str,
    /// How to verify the server; `None` for cleartext.
    pub tls: Option<&'a ClientTls>,
}

impl<'a> From<&'a str> for At<'a> {
    fn from(address: &'a str) -> Self {
        Self { address, tls: None }
    }
}

impl<'a> From<&'a String> for At<'a> {
    fn from(address: &'a String) -> Self {
        Self { address, tls: None }
    }
}

/// The answer of a running Weir.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code: 2xx if the call succeeded.
    pub status: u16,
    /// The body, as JSON.
    pub body: String,
}

/// Why no answer arrived. [`ClientError::explanation`] is for people: with the source, and what to do.
#[derive(Debug)]
pub enum ClientError {
    /// The address cannot be parsed.
    Address(String),
    /// Something else answered, which is not an admin listener.
    NotWeir {
        /// Its address.
        address: String,
        /// Its answer.
        said: String,
    },
    /// Nothing answers at the address.
    Unreachable {
        /// The address.
        address: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The TLS handshake failed: wrong certificate, no TLS, or a client certificate is required.
    Untrusted {
        /// The address.
        address: String,
        /// The error.
        error: io::Error,
    },
    /// The server accepted the connection and did not answer.
    Unanswered {
        /// The address.
        address: String,
        /// The error of the operating system.
        error: io::Error,
    },
}

/// Asks a running Weir for its status: `GET /status`.
///
/// `at` is the address of an admin listener: `127.0.0.1:9180`, `[::1]:9180`, `localhost:9180`, or
/// `unix:/run/weir-admin.sock`. The port is optional.
///
/// # Errors
/// See [`ClientError`]. A refusal is an answer, not an error.
pub fn status<'a>(at: impl Into<At<'a>>, token: Option<&str>) -> Result<Answer, ClientError> {
    call(at.into(), "GET /status", token, QUICK)
}

/// Makes a running Weir reload its config: `POST /reload`. An answer with status 422 holds the diagnostics.
///
/// # Errors
/// As with [`status`].
pub fn reload<'a>(at: impl Into<At<'a>>, token: Option<&str>) -> Result<Answer, ClientError> {
    call(at.into(), "POST /reload", token, RELOAD)
}

/// Replaces the running process with the binary at its path: `POST /upgrade`. Returns once the new process
/// serves. An answer with status 409 says why it failed.
///
/// # Errors
/// As with [`status`].
pub fn upgrade<'a>(at: impl Into<At<'a>>, token: Option<&str>) -> Result<Answer, ClientError> {
    call(at.into(), "POST /upgrade", token, UPGRADE)
}

/// Drains a running Weir, which then exits: `POST /drain`. Returns once the drain has started.
///
/// # Errors
/// As with [`status`].
pub fn drain<'a>(at: impl Into<At<'a>>, token: Option<&str>) -> Result<Answer, ClientError> {
    call(at.into(), "POST /drain", token, QUICK)
}

/// Drains an endpoint, takes it out of rotation, or puts it back `in`: `POST /api/v1/endpoints/…`. An answer with
/// status 404 lists the known upstreams or endpoints.
///
/// # Errors
/// As with [`status`].
pub fn endpoint<'a>(
    at: impl Into<At<'a>>,
    token: Option<&str>,
    (upstream, endpoint): (&str, &str),
    verb: &str,
    time: Option<&str>,
) -> Result<Answer, ClientError> {
    let time = time.map_or_else(String::new, |time| format!("?for={}", escaped(time)));
    let line = format!("POST {}{}/{}:{verb}{time}", by_hand::PREFIX, escaped(upstream), escaped(endpoint));
    call(at.into(), &line, token, QUICK)
}

/// Turns a switch of `maintenance` filters `on`, for a limited time, or `off`: `POST /api/v1/maintenance/…`. An
/// answer with status 404 lists the known switches.
///
/// # Errors
/// As with [`status`].
pub fn maintenance<'a>(
    at: impl Into<At<'a>>,
    token: Option<&str>,
    switch: &str,
    verb: &str,
    time: Option<&str>,
) -> Result<Answer, ClientError> {
    let time = time.map_or_else(String::new, |time| format!("?for={}", escaped(time)));
    let line = format!("POST {}{}:{verb}{time}", switches::PREFIX, escaped(switch));
    call(at.into(), &line, token, QUICK)
}

/// Removes answers from a cache store: `POST /api/v1/caches/…:purge`, with pairs of name (`url`, `prefix`, `tag`,
/// `all`) and value. An answer with status 404 lists the stores in use.
///
/// # Errors
/// As with [`status`].
pub fn purge<'a>(
    at: impl Into<At<'a>>,
    token: Option<&str>,
    store: &str,
    what: &[(&str, String)],
) -> Result<Answer, ClientError> {
    let pairs: Vec<String> = what.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
    let line = format!("POST {}{}:purge?{}", purge::PREFIX, escaped(store), pairs.join("&"));
    call(at.into(), &line, token, RELOAD)
}

/// Selects exchanges for [`why`]. An empty text matches any.
#[derive(Clone, Debug, Default)]
pub struct WhyQuery<'a> {
    /// The id of an exchange.
    pub id: &'a str,
    /// The cause.
    pub cause: &'a str,
    /// The route.
    pub route: &'a str,
    /// `failed`, `slow` or `sampled`.
    pub kind: &'a str,
    /// The cursor of the previous answer, to get only later exchanges.
    pub after: &'a str,
    /// Most exchanges in the answer.
    pub limit: usize,
}

/// Asks a running Weir to explain exchanges: `GET /api/v1/why`. An answer with status 404 says why nothing is
/// known.
///
/// # Errors
/// As with [`status`].
pub fn why<'a>(
    at: impl Into<At<'a>>,
    token: Option<&str>,
    which: &WhyQuery<'_>,
) -> Result<Answer, ClientError> {
    let mut target = why::PATH.to_owned();
    if !which.id.is_empty() {
        target = format!("{target}/{}", escaped(which.id));
    }
    target.push_str(&format!("?limit={}", which.limit));
    for (name, value) in
        [("cause", which.cause), ("route", which.route), ("kind", which.kind), ("after", which.after)]
    {
        if !value.is_empty() {
            target.push_str(&format!("&{name}={}", escaped(value)));
        }
    }
    call(at.into(), &format!("GET {target}"), token, QUICK)
}

/// A call of the API, with its body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call<'a> {
    /// Method and target, such as `GET /api/v1/revisions`.
    pub line: &'a str,
    /// Reason for the change, for the history; empty for none.
    pub message: &'a str,
    /// Media type of the body; empty for no body.
    pub media: &'a str,
    /// The body.
    pub body: &'a [u8],
}

/// Makes any call of the API.
///
/// # Errors
/// As with [`status`].
pub fn ask<'a>(at: impl Into<At<'a>>, token: Option<&str>, what: Call<'_>) -> Result<Answer, ClientError> {
    call_with(at.into(), what, token, RELOAD)
}

/// Escapes a path segment: every character that RFC 3986 §3.3 does not allow there literally.
pub fn escaped(text: &str) -> String {
    const SPECIAL: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');
    utf8_percent_encode(text, SPECIAL).to_string()
}

// === impl Answer ===

impl Answer {
    /// Whether the call succeeded.
    pub const fn is_success(&self) -> bool {
        self.status / 100 == 2
    }

    /// The body, parsed.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// The text for people: the diagnostics of a reload, or the reason for a refusal. Empty if there is nothing
    /// to report.
    pub fn explanation(&self) -> String {
        let document = self.json();
        let text =
            |name: &str| document.get(name).and_then(Value::as_str).map(|text| text.trim_end().to_owned());
        match text("text").or_else(|| text("detail")) {
            Some(text) => text,
            None if self.is_success() => String::new(),
            None => format!("HTTP {}", self.status),
        }
    }
}

// === impl ClientError ===

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "`{address}` is not an address of an admin listener"),
            Self::NotWeir { address, said } => {
                write!(f, "the server at {address} is not the admin listener of a Weir: {said}")
            }
            Self::Unreachable { address, .. } => write!(f, "no Weir answers at {address}"),
            Self::Untrusted { address, .. } => write!(f, "no TLS with what answers at {address}"),
            Self::Unanswered { address, .. } => write!(f, "the Weir at {address} did not answer"),
        }
    }
}

impl ClientError {
    /// All of it on one line: the message, the system's error in words, and what to do.
    pub fn explanation(&self) -> String {
        let (source, hint) = match self {
            Self::Address(_) => {
                (None, "; expected e.g. 127.0.0.1:9180, [::1]:9180, unix:/run/weir-admin.sock")
            }
            Self::NotWeir { .. } => (None, "; set the address with --admin ADDR"),
            Self::Unreachable { error, .. } => {
                (Some(plain(error)), "; is it running? If it runs elsewhere, use --admin ADDR")
            }
            Self::Untrusted { error, .. } => (
                Some(error.to_string()),
                ". Name who vouches for it with --cacert FILE, and show a certificate with --cert and --key where it asks \
                 for one",
            ),
            Self::Unanswered { error, .. } => (Some(plain(error)), ""),
        };
        let source = source.map(|source| format!(": {source}")).unwrap_or_default();
        format!("{self}{source}{hint}")
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable { error, .. }
            | Self::Untrusted { error, .. }
            | Self::Unanswered { error, .. } => Some(error),
            Self::Address(_) | Self::NotWeir { .. } => None,
        }
    }
}

/// An operating system error, in words.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::NotFound => "there is no such socket".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "it took too long".to_owned(),
        _ => error.to_string(),
    }
}

// === one call ===

fn call(at: At<'_>, line: &str, token: Option<&str>, wait: Duration) -> Result<Answer, ClientError> {
    call_with(at, Call { line, ..Call::default() }, token, wait)
}

fn call_with(at: At<'_>, what: Call<'_>, token: Option<&str>, wait: Duration) -> Result<Answer, ClientError> {
    let deadline = Instant::now() + wait;
    let address = at.address;
    let connection = connect(at, deadline)?;
    let (head, body) = connection
        .exchange(what, token, deadline)
        .map_err(|error| ClientError::Unanswered { address: address.to_owned(), error })?;
    read_answer(&head, body).map_err(|said| ClientError::NotWeir { address: address.to_owned(), said })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanations() {
        let answer = |status, body: &str| Answer { status, body: body.to_owned() };
        assert_eq!(answer(422, r#"{"detail":"d","text":"t\n"}"#).explanation(), "t");
        assert_eq!(answer(401, r#"{"detail":"d"}"#).explanation(), "d");
        assert_eq!(answer(500, "").explanation(), "HTTP 500");
        assert_eq!(answer(200, "{}").explanation(), "");
    }
}
