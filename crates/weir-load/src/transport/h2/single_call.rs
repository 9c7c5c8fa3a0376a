//! Calls before the run, such as schema lookups: same protocol, own connection, one call after another.

use super::connection::Connection;
use super::counter::{Counter, Lost};
use super::request::Rendered;
use crate::grpc::Code;
use crate::transport::failure::Failure;
use crate::transport::origin::Origin;
use crate::transport::proxy;
use crate::transport::wire::poll_write_h2;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use weir_wire::Transport;

/// A connection.
pub(crate) struct Once {
    stream: Transport,
    connection: Connection,
    /// Longest response body.
    most: usize,
}

/// The response to a call.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: Code,
    pub(crate) text: String,
    /// Framed messages.
    pub(crate) body: Vec<u8>,
}

impl Once {
    /// Connects like a client of the run, through the proxy if there is one. The error is readable text.
    pub(crate) async fn open(origin: &Origin, timeout: Duration, most: usize) -> Result<Self, String> {
        let dialled = proxy::open(origin, 0, timeout).await.map_err(|failure| match failure {
            Failure::Connect(text)
            | Failure::Descriptors(text)
            | Failure::Ports(text)
            | Failure::Protocol(text)
            | Failure::Reset(text)
            | Failure::Write(text) => format!("no connection: {text}"),
            Failure::Cut | Failure::Timeout(_) => "no connection in time".to_owned(),
            Failure::Tls(text) => format!("TLS: {text}"),
        })?;
        if dialled.transport.tls().is_some() && !dialled.transport.chose_h2() {
            return Err(weir_report::verdict::CHOSE_OLD.to_owned());
        }
        let mut counter = Counter::new(true);
        (counter.kept_most, counter.is_grpc) = (most, true);
        Ok(Self { stream: dialled.transport, connection: Connection::new(counter), most })
    }

    /// Makes a call and waits for its end. The error is readable text.
    pub(crate) async fn ask(&mut self, head: &Rendered, body: Vec<u8>) -> Result<Reply, String> {
        let body: Arc<[u8]> = body.into();
        self.connection.request(0, head, Some((&body, 0)), false);
        let (mut input, mut answers) = (Vec::with_capacity(16 * 1024), Vec::new());
        loop {
            let write = poll_fn(|cx| poll_write_h2(&mut self.stream, &mut self.connection, cx));
            write.await.map_err(|e| e.to_string())?;
            input.clear();
            let read =
                poll_fn(|cx| self.stream.poll_read(cx, &mut input)).await.map_err(|e| e.to_string())?;
            if read == 0 {
                return Err("the target closed the connection".to_owned());
            }
            let fed = self.connection.feed(&input, 1, &mut answers);
            let Some(answer) = answers.pop() else {
                fed?;
                continue;
            };
            let response = answer.result.map_err(|lost| match lost {
                Lost::Again => "the target did not process the request".to_owned(),
                Lost::Protocol(text) | Lost::Reset(text) => text,
            })?;
            if response.body_bytes > self.most as u64 {
                return Err(format!("the answer is longer than {} bytes", self.most));
            }
            let code = response.grpc.unwrap_or(Code::UNKNOWN);
            let text = answer.text.map(|t| t.to_string()).unwrap_or_default();
            return Ok(Reply { code, text, body: answer.body });
        }
    }
}
