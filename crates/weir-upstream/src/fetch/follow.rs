//! An answer without an end, such as a watch: read piece by piece as it arrives.

use super::{Environment, FetchError, FetchRequest, connect, rendered};
use crate::talk;
use std::future::poll_fn;
use weir_h1::{BodyKind, BodyReader, Limits, Method, Step};
use weir_wire::Stream;

/// An answer whose body is still arriving. Dropping it ends the connection.
pub struct Following {
    /// Its status.
    pub status: u16,
    stream: Stream,
    kind: BodyKind,
    reader: BodyReader,
    input: Vec<u8>,
    at: usize,
}

/// The lines of an answer without an end.
pub struct Lines {
    following: Following,
    read: Vec<u8>,
    /// Where the next line begins.
    at: usize,
    longest: usize,
}

impl Following {
    /// Sends an HTTP/1.1 request on this thread and reads the head of its answer. The caller limits the time.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn open(request: &FetchRequest, environment: &Environment) -> Result<Self, FetchError> {
        let (_, out) = rendered(request)?;
        let mut stream = connect(request, environment).await?.transport.into();
        let bad = |_| FetchError::BadAnswer;
        talk::send(&mut stream, &out, &mut 0).await.map_err(bad)?;
        let head = talk::receive_head(&mut stream, &Limits::default()).await.map_err(bad)?;
        let kind = head.body(Method::Get);
        let input = head.rest().to_vec();
        Ok(Self { status: head.status(), stream, kind, reader: BodyReader::new(kind), input, at: 0 })
    }

    /// The next piece of the body; `None` at its end. Cancel safe: bytes already read are kept.
    ///
    /// # Errors
    /// If the body is not framed as HTTP says, or the connection ended in the middle.
    pub async fn piece(&mut self) -> Result<Option<Vec<u8>>, FetchError> {
        loop {
            let rest = self.input.get(self.at..).unwrap_or_default();
            match self.reader.step(rest).map_err(|_| FetchError::BadAnswer)? {
                Step::Data { skip, len } => {
                    let piece = rest.get(skip..skip + len).unwrap_or_default().to_vec();
                    self.at += skip + len;
                    if !piece.is_empty() {
                        return Ok(Some(piece));
                    }
                }
                Step::End { .. } => return Ok(None),
                Step::More => {
                    self.input.clear();
                    self.at = 0;
                    let (stream, input) = (&mut self.stream, &mut self.input);
                    match poll_fn(|cx| stream.poll_read(cx, input)).await {
                        Ok(0) if self.kind == BodyKind::UntilClose => return Ok(None),
                        Ok(0) | Err(_) => return Err(FetchError::BadAnswer),
                        Ok(_) => {}
                    }
                }
            }
        }
    }
}

impl Lines {
    /// Reads lines of up to `longest` bytes, and buffers at most one of them and a piece.
    pub const fn new(following: Following, longest: usize) -> Self {
        Self { following, read: Vec::new(), at: 0, longest }
    }

    /// The next line with its end; `None` at the end of the body, even in the middle of a line. Cancel safe: bytes
    /// already read are kept.
    ///
    /// # Errors
    /// If a line is too long, or as [`Following::piece`].
    pub async fn next(&mut self) -> Result<Option<&[u8]>, FetchError> {
        let mut seen = self.at;
        let end = loop {
            let rest = self.read.get(seen..).unwrap_or_default();
            if let Some(at) = memchr::memchr(b'\n', rest) {
                break seen + at + 1;
            }
            // Drop what has been returned.
            self.read.drain(..self.at);
            self.at = 0;
            seen = self.read.len();
            if seen > self.longest {
                return Err(FetchError::TooLong(self.longest));
            }
            match self.following.piece().await? {
                Some(piece) => self.read.extend_from_slice(&piece),
                None => return Ok(None),
            }
        };
        let begin = std::mem::replace(&mut self.at, end);
        Ok(Some(self.read.get(begin..end).unwrap_or_default()))
    }
}
