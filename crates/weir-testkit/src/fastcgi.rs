//! A FastCGI server that a test scripts: the records of a request, and those of an answer, true or not.
//!
//! It shares nothing with the codec that it tests.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::{Conn, Upstream};

/// How long the server waits for the next request on a connection.
const IDLE: Duration = Duration::from_secs(60);

/// A request that a FastCGI server received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgiRequest {
    /// Whether the connection is kept (FCGI_KEEP_CONN).
    pub keep: bool,
    /// Its parameters. Two of one name fail the test.
    pub params: BTreeMap<String, String>,
    /// Its body.
    pub body: Vec<u8>,
}

impl CgiRequest {
    /// A parameter; empty if there is none.
    pub fn param(&self, name: &str) -> &str {
        self.params.get(name).map_or("", String::as_str)
    }
}

/// A record.
pub fn record(kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
    let mut out = vec![1, kind];
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(&u16::try_from(content.len()).expect("a record holds 64 KiB").to_be_bytes());
    out.extend_from_slice(&[padding, 0]);
    out.extend_from_slice(content);
    out.resize(out.len() + usize::from(padding), 0x5a);
    out
}

/// A piece of a script's response.
pub fn stdout(content: impl AsRef<[u8]>) -> Vec<u8> {
    content.as_ref().chunks(60_000).flat_map(|piece| record(6, 1, piece, 3)).collect()
}

/// A piece of a script's standard error.
pub fn stderr(content: impl AsRef<[u8]>) -> Vec<u8> {
    content.as_ref().chunks(60_000).flat_map(|piece| record(7, 1, piece, 5)).collect()
}

/// The end of a response. Statuses: 0 complete, 1 cannot multiplex, 2 overloaded, 3 unknown role.
pub fn end(status: u8) -> Vec<u8> {
    [record(6, 1, b"", 0), record(3, 1, &[0, 0, 0, 0, status, 0, 0, 0], 0)].concat()
}

/// A whole response.
pub fn answer(response: impl AsRef<[u8]>) -> Vec<u8> {
    [stdout(response), end(0)].concat()
}

impl Upstream {
    /// A FastCGI server that answers each request with the bytes that the closure returns, records and all. It keeps
    /// the connection if the request says so.
    pub fn fastcgi(respond: impl Fn(&CgiRequest) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::script(move |conn| {
            while let Some(request) = conn.next_cgi_request() {
                if conn.try_send(respond(&request)).is_err() || !request.keep {
                    return;
                }
            }
        })
    }
}

impl Conn {
    /// Reads the next request; `None` if the peer closed instead.
    pub fn next_cgi_request(&mut self) -> Option<CgiRequest> {
        let until = Instant::now() + IDLE;
        let mut request = CgiRequest::default();
        let mut pairs = Vec::new();
        let mut has_begun = false;
        loop {
            let header = self.try_read_n(8, until).ok()?;
            assert_eq!((header[0], &header[2..4]), (1, &[0, 1][..]), "version and id of {header:?}");
            let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
            let content = self.try_read_n(length, until).ok()?;
            self.try_read_n(usize::from(header[6]), until).ok()?;
            match header[1] {
                1 => {
                    assert!(!has_begun, "a second BEGIN_REQUEST within a request");
                    assert_eq!(content[..2], [0, 1], "the role of a responder");
                    (has_begun, request.keep) = (true, content[2] & 1 == 1);
                }
                4 if content.is_empty() => request.params = params(&pairs),
                4 => pairs.extend_from_slice(&content),
                5 if content.is_empty() => {
                    assert!(!request.params.is_empty(), "the body ends before the parameters");
                    return Some(request);
                }
                5 => request.body.extend_from_slice(&content),
                kind => panic!("a web server sends no record of kind {kind}"),
            }
        }
    }
}

fn params(mut pairs: &[u8]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    while !pairs.is_empty() {
        let name = length(&mut pairs);
        let value = length(&mut pairs);
        let (text, rest) = pairs.split_at(name + value);
        let (name, value) = text.split_at(name);
        let name = String::from_utf8(name.to_vec()).expect("a name is text");
        let value = String::from_utf8_lossy(value).into_owned();
        assert!(found.insert(name.clone(), value).is_none(), "{name} is there twice");
        pairs = rest;
    }
    found
}

fn length(pairs: &mut &[u8]) -> usize {
    let bytes = if pairs[0] < 128 { 1 } else { 4 };
    let (length, rest) = pairs.split_at(bytes);
    *pairs = rest;
    length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)) & 0x7fff_ffff
}
