//! An answer without an end, such as a watch: read piece by piece as it arrives.

use super::{Environment, FetchError, FetchRequest, connect, rendered};
use crate::talk;
use std::future::poll_fn;
use weir_h1::{BodyKind, BodyReader, Limits, Method, Step};
use weir_wire::Stream;

/// An answer whose body is still arriving. Dropping it ends the connection.
pub struct Following {
    /// Its status.
    pub(crate) status: u16,
    stream: Stream,
    kind: BodyKind,
    reader: BodyReader,
    input: Vec<u8>,
    at: usize,
}

impl Following {
    /// Sends an HTTP/1.1 request on this thread and reads the head of its answer. The caller limits the time.
    pub(crate) async fn open(request: &FetchRequest, environment: &Environment) -> Result<Self, FetchError> {
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
    pub(crate) async fn piece(&mut self) -> Result<Option<Vec<u8>>, FetchError> {
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
