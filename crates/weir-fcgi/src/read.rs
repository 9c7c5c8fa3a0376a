//! The records of a response, taken apart as they arrive.

use crate::{HEADER_BYTES, REQUEST, VERSION, kind};
use std::fmt;

/// Takes apart the records of one response.
///
/// ```text
///   Header ──► Content ──► Padding ──► Header …
///                             └──────► Over, behind END_REQUEST
/// ```
///
/// It keeps no content, only the header or end it is reading: 16 bytes.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// The header, or the content of END_REQUEST, as far as it has arrived.
    part: [u8; 8],
    have: usize,
    state: State,
    /// Bytes of content and of padding to come.
    content: usize,
    padding: usize,
    end: Option<End>,
}

/// What a reader is reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Header,
    Content(Content),
    Padding,
    Over,
}

/// What the content of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    End,
    Output(Output),
    Skipped,
}

/// A stream of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Its standard error: text for the log.
    Error,
    /// Its standard output: the response.
    Standard,
}

/// How a response ended (FCGI_END_REQUEST, FastCGI 1.0 §5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server accepts no second request on a connection (FCGI_CANT_MPX_CONN).
    CannotMultiplex,
    /// The request was processed.
    Complete,
    /// The server has no room for the request, and has not processed it (FCGI_OVERLOADED).
    Overloaded,
    /// The server is no responder (FCGI_UNKNOWN_ROLE).
    UnknownRole,
}

/// What the input holds next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Skip `skip` bytes; `len` bytes of this stream follow.
    Data {
        /// The stream.
        of: Output,
        /// Bytes of framing before the data.
        skip: usize,
        /// Bytes of data; at least one.
        len: usize,
    },
    /// The response is over, after `used` bytes.
    End {
        /// Bytes consumed.
        used: usize,
        /// How it ended.
        end: End,
    },
    /// All input is consumed, and more is needed.
    More,
}

/// The rule that the server broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// END_REQUEST is not 8 bytes long, or has an unknown status.
    End,
    /// A kind of record that a server may not send.
    Kind(u8),
    /// A record of a request that was never sent.
    Request(u16),
    /// Not version 1; probably not FastCGI.
    Version(u8),
}

impl Reader {
    /// Looks at `input`, which continues where the last step ended.
    ///
    /// # Errors
    /// The rule that the server broke. Nothing more can be read from it.
    pub fn step(&mut self, input: &[u8]) -> Result<Step, Violation> {
        let mut at = 0;
        loop {
            let rest = input.get(at..).unwrap_or_default();
            match self.state {
                State::Over => {
                    return Ok(match self.end {
                        Some(end) => Step::End { used: at, end },
                        None => Step::More,
                    });
                }
                State::Padding if self.padding == 0 => {
                    self.have = 0;
                    self.state = if self.end.is_some() { State::Over } else { State::Header };
                }
                State::Content(content) if self.content == 0 => {
                    if content == Content::End {
                        self.end = Some(end_of(self.part)?);
                    }
                    self.state = State::Padding;
                }
                _ if rest.is_empty() => return Ok(Step::More),
                State::Header | State::Content(Content::End) => {
                    let take = rest.len().min(HEADER_BYTES - self.have);
                    for (to, from) in self.part.iter_mut().skip(self.have).zip(rest) {
                        *to = *from;
                    }
                    (at, self.have) = (at + take, self.have + take);
                    if self.have == HEADER_BYTES {
                        match self.state {
                            State::Header => self.begin()?,
                            _ => self.content = 0,
                        }
                    }
                }
                State::Content(Content::Output(of)) => {
                    let len = rest.len().min(self.content);
                    self.content -= len;
                    return Ok(Step::Data { of, skip: at, len });
                }
                State::Content(Content::Skipped) => {
                    let skipped = rest.len().min(self.content);
                    (at, self.content) = (at + skipped, self.content - skipped);
                }
                State::Padding => {
                    let skipped = rest.len().min(self.padding);
                    (at, self.padding) = (at + skipped, self.padding - skipped);
                }
            }
        }
    }

    /// Begins the record whose header has arrived.
    fn begin(&mut self) -> Result<(), Violation> {
        let [version, kind, id_high, id_low, high, low, padding, _] = self.part;
        let id = u16::from_be_bytes([id_high, id_low]);
        if version != VERSION {
            return Err(Violation::Version(version));
        }
        self.content = usize::from(u16::from_be_bytes([high, low]));
        self.padding = usize::from(padding);
        self.have = 0;
        let content = match (id, kind) {
            (0, _) => Content::Skipped, // of management, which we never asked for (§4)
            (REQUEST, kind::STDOUT) => Content::Output(Output::Standard),
            (REQUEST, kind::STDERR) => Content::Output(Output::Error),
            (REQUEST, kind::END_REQUEST) if self.content == HEADER_BYTES => Content::End,
            (REQUEST, kind::END_REQUEST) => return Err(Violation::End),
            (REQUEST, kind) => return Err(Violation::Kind(kind)),
            (id, _) => return Err(Violation::Request(id)),
        };
        self.state = State::Content(content);
        Ok(())
    }

    /// Whether it stands between two records, or has not begun.
    pub fn is_between_records(&self) -> bool {
        self.state == State::Header && self.have == 0
    }
}

/// The content of END_REQUEST: four bytes that the script chose, and the status.
fn end_of([_, _, _, _, status, ..]: [u8; 8]) -> Result<End, Violation> {
    match status {
        0 => Ok(End::Complete),
        1 => Ok(End::CannotMultiplex),
        2 => Ok(End::Overloaded),
        3 => Ok(End::UnknownRole),
        _ => Err(Violation::End),
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End => f.write_str("malformed END_REQUEST record"),
            Self::Kind(kind) => write!(f, "a record of kind {kind}, which no FastCGI server sends"),
            Self::Request(id) => write!(f, "a record of request {id}, which was never sent"),
            Self::Version(version) => {
                write!(f, "a record of FastCGI version {version}: the port may speak another protocol")
            }
        }
    }
}

impl std::error::Error for Violation {}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, id: u16, content: &[u8], padding: usize) -> Vec<u8> {
        let mut out = vec![1, kind];
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&u16::try_from(content.len()).unwrap().to_be_bytes());
        out.extend_from_slice(&[u8::try_from(padding).unwrap(), 0]);
        out.extend_from_slice(content);
        out.resize(out.len() + padding, 0xaa);
        out
    }

    fn end(status: u8) -> Vec<u8> {
        record(3, 1, &[0, 0, 0, 9, status, 0, 0, 0], 0)
    }

    /// Output, errors, and the end with the bytes behind it, read in pieces of `size`.
    type Read = (Vec<u8>, Vec<u8>, Option<(End, usize)>);

    fn read(input: &[u8], size: usize) -> Result<Read, Violation> {
        let mut reader = Reader::default();
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let mut consumed = 0;
        for piece in input.chunks(size) {
            let mut at = 0;
            loop {
                match reader.step(&piece[at..])? {
                    Step::Data { of, skip, len } => {
                        assert!(len > 0);
                        let to = if of == Output::Standard { &mut output } else { &mut errors };
                        to.extend_from_slice(&piece[at + skip..at + skip + len]);
                        at += skip + len;
                    }
                    Step::End { used, end } => {
                        let rest = input.len() - consumed - at - used;
                        return Ok((output, errors, Some((end, rest))));
                    }
                    Step::More => break,
                }
            }
            consumed += piece.len();
        }
        Ok((output, errors, None))
    }

    #[test]
    fn a_response_however_it_is_split() {
        let whole = [
            record(6, 1, b"Content-Type: a/b\r\n\r\n", 5),
            record(7, 1, b"PHP Notice", 0),
            record(6, 1, b"", 0),
            record(11, 0, b"unknown type", 3),
            record(6, 1, b"body", 255),
            record(6, 1, b"", 8),
            record(3, 1, &[0; 8], 7),
            b"extra".to_vec(),
        ]
        .concat();
        let expected =
            (b"Content-Type: a/b\r\n\r\nbody".to_vec(), b"PHP Notice".to_vec(), Some((End::Complete, 5)));
        for size in [1, 2, 3, 7, 8, 9, 64, whole.len()] {
            assert_eq!(read(&whole, size).as_ref(), Ok(&expected), "in pieces of {size}");
        }
        for cut in 0..whole.len() - 5 {
            assert_eq!(read(&whole[..cut], 4096).unwrap().2, None, "cut at {cut}");
        }
    }

    #[test]
    fn how_it_ends() {
        for (status, expected) in [
            (0, Ok(End::Complete)),
            (1, Ok(End::CannotMultiplex)),
            (2, Ok(End::Overloaded)),
            (3, Ok(End::UnknownRole)),
            (4, Err(Violation::End)),
        ] {
            let found = read(&end(status), 100).map(|(.., end)| end.unwrap().0);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn lies_are_refused() {
        let mut old = end(0);
        old[0] = 2;
        for (bytes, violation) in [
            (old, Violation::Version(2)),
            (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), Violation::Version(b'H')),
            (record(6, 2, b"x", 0), Violation::Request(2)),
            (record(3, 256, &[0; 8], 0), Violation::Request(256)),
            (record(3, 1, &[0; 7], 0), Violation::End),
            (record(3, 1, &[], 0), Violation::End),
            (record(3, 1, &[0; 9], 0), Violation::End),
            (record(5, 1, b"x", 0), Violation::Kind(5)),
            (record(0, 1, b"", 0), Violation::Kind(0)),
            (record(255, 1, b"", 0), Violation::Kind(255)),
        ] {
            for size in [1, 4096] {
                assert_eq!(read(&bytes, size), Err(violation), "{bytes:?}");
            }
        }
    }

    #[test]
    fn long_records() {
        let content = vec![b'x'; 65_535];
        let (output, ..) = read(&record(6, 1, &content, 255), 1000).unwrap();
        assert_eq!(output, content);
    }
}
