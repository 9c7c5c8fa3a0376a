//! gRPC over HTTP/2: the parts of a call that do not depend on its method.
//!
//! *Layout.* This file handles message frames, statuses and deadlines. `grpc/wire.rs` encodes Protocol Buffers by
//! hand, since there are only a few fixed messages. `grpc/greeter.rs`, `grpc/health.rs`, `grpc/processor.rs` and
//! `grpc/reflection.rs` are one service each; `grpc/descriptor.rs` describes them.

mod descriptor;
mod greeter;
mod health;
mod processor;
mod reflection;
mod wire;

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// Largest message that we read: the default of the gRPC libraries.
const MESSAGE_MOST: usize = 4 * 1024 * 1024;

/// The method of Envoy's external processing, which reflection does not describe.
const PROCESS: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

/// The methods: their path, and their handler.
const METHODS: &[(&str, Method)] = &[
    ("/grpc.health.v1.Health/Check", Method::HealthCheck),
    ("/grpc.health.v1.Health/Watch", Method::HealthWatch),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Method::Reflection),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Method::Reflection),
    ("/helloworld.v1.Greeter/BidiHello", Method::BidiHello),
    ("/helloworld.v1.Greeter/LotsOfGreetings", Method::LotsOfGreetings),
    ("/helloworld.v1.Greeter/LotsOfReplies", Method::LotsOfReplies),
    ("/helloworld.v1.Greeter/SayHello", Method::SayHello),
];

#[derive(Clone, Copy)]
enum Method {
    BidiHello,
    HealthCheck,
    HealthWatch,
    LotsOfGreetings,
    LotsOfReplies,
    Process,
    Reflection,
    SayHello,
}

/// A gRPC code that we return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Code(u32);

impl Code {
    const OK: Self = Self(0);
    const INVALID_ARGUMENT: Self = Self(3);
    const DEADLINE_EXCEEDED: Self = Self(4);
    const NOT_FOUND: Self = Self(5);
    const RESOURCE_EXHAUSTED: Self = Self(8);
    const UNIMPLEMENTED: Self = Self(12);
    const INTERNAL: Self = Self(13);
}

/// The end of a call.
#[derive(Debug)]
struct Status {
    code: Code,
    message: String,
}

impl Status {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Why a call cannot continue.
#[derive(Debug)]
enum Stop {
    /// The stream is gone.
    Gone(h2::Error),
    /// Return this status.
    Status(Status),
}

impl From<h2::Error> for Stop {
    fn from(e: h2::Error) -> Self {
        Self::Gone(e)
    }
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// Whether a request is a gRPC call.
pub(crate) fn is_call(request: &Request<RecvStream>) -> bool {
    let kind = request.headers().get("content-type").map(HeaderValue::as_bytes);
    request.method() == http::Method::POST && kind.is_some_and(weir_wire::h2::is_grpc)
}

/// Whether a request asks for a processor of `ext_proc`, which cannot be replaced by a fixed answer.
pub(crate) fn is_processing(request: &Request<RecvStream>) -> bool {
    request.uri().path() == PROCESS && is_call(request)
}

/// Handles a call to its end.
pub(crate) async fn answer(
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let (head, body) = request.into_parts();
    let mut call = Call {
        metadata: head.headers,
        body,
        received: BytesMut::new(),
        respond,
        stream: None,
        buffer: BytesMut::new(),
    };
    let described = METHODS.iter().find(|(path, _)| *path == head.uri.path());
    let method = described.or((head.uri.path() == PROCESS).then_some(&(PROCESS, Method::Process)));
    let outcome = match (method, deadline(&call.metadata)) {
        (None, _) => {
            let text = format!("the origin has no method {}", head.uri.path());
            Err(Status::new(Code::UNIMPLEMENTED, text).into())
        }
        (_, Err(())) => Err(Status::new(Code::INTERNAL, "grpc-timeout is not a timeout").into()),
        (Some((_, method)), Ok(None)) => call.run(*method).await,
        (Some((_, method)), Ok(Some(after))) => tokio::time::timeout(after, call.run(*method))
            .await
            .unwrap_or_else(|_| Err(Status::new(Code::DEADLINE_EXCEEDED, "deadline exceeded").into())),
    };
    match outcome {
        Ok(()) => call.end(&Status::new(Code::OK, "")),
        Err(Stop::Status(status)) => call.end(&status),
        Err(Stop::Gone(e)) => Err(e),
    }
}

/// A call in progress.
struct Call {
    metadata: HeaderMap,
    body: RecvStream,
    received: BytesMut,
    respond: SendResponse<Bytes>,
    /// Set once the head of the response is sent.
    stream: Option<SendStream<Bytes>>,
    buffer: BytesMut,
}

impl Call {
    async fn run(&mut self, method: Method) -> Result<(), Stop> {
        match method {
            Method::BidiHello => greeter::bidi_hello(self).await,
            Method::HealthCheck => health::check(self).await,
            Method::HealthWatch => health::watch(self).await,
            Method::LotsOfGreetings => greeter::lots_of_greetings(self).await,
            Method::LotsOfReplies => greeter::lots_of_replies(self).await,
            Method::Process => processor::process(self).await,
            Method::Reflection => reflection::info(self).await,
            Method::SayHello => greeter::say_hello(self).await,
        }
    }

    /// The message of a call with exactly one.
    async fn only(&mut self) -> Result<Bytes, Stop> {
        let message = self.next().await?;
        let message = message.ok_or_else(|| Status::new(Code::INTERNAL, "a call without its message"))?;
        match self.next().await? {
            None => Ok(message),
            Some(_) => Err(Status::new(Code::INTERNAL, "more messages than one").into()),
        }
    }

    /// The next message; `None` after the client's last one.
    async fn next(&mut self) -> Result<Option<Bytes>, Stop> {
        loop {
            if let Some(message) = self.whole()? {
                return Ok(Some(message));
            }
            match self.body.data().await {
                Some(piece) => {
                    let piece = piece?;
                    self.body.flow_control().release_capacity(piece.len())?;
                    self.received.extend_from_slice(&piece);
                }
                None if self.received.is_empty() => return Ok(None),
                None => return Err(Status::new(Code::INTERNAL, "the last message is cut").into()),
            }
        }
    }

    /// A completely received message: one byte of flags, four of length, then its data.
    fn whole(&mut self) -> Result<Option<Bytes>, Status> {
        let Some(&[coding, a, b, c, d]) = self.received.first_chunk::<5>() else { return Ok(None) };
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        if coding != 0 {
            return Err(Status::new(Code::UNIMPLEMENTED, "the origin reads no compressed messages"));
        }
        if len > MESSAGE_MOST {
            return Err(Status::new(Code::RESOURCE_EXHAUSTED, "a message is larger than 4 MiB"));
        }
        if self.received.len() < 5 + len {
            return Ok(None);
        }
        self.received.advance(5);
        Ok(Some(self.received.split_to(len).freeze()))
    }

    /// Sends a message, preceded by the head if it is the first.
    async fn send(&mut self, message: &[u8]) -> Result<(), Stop> {
        // The message stays here while we wait for the client's window, so the call's deadline can end the wait.
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(self.respond.send_response(head(), false)?),
        };
        let len = u32::try_from(message.len())
            .map_err(|_| Status::new(Code::RESOURCE_EXHAUSTED, "the answer is larger than 4 GiB"))?;
        self.buffer.put_u8(0);
        self.buffer.put_u32(len);
        self.buffer.extend_from_slice(message);
        let frame = self.buffer.split().freeze();
        Ok(crate::window::send(stream, frame).await?)
    }

    /// Ends the call with trailers, or with only a head if nothing was sent.
    fn end(mut self, status: &Status) -> Result<(), h2::Error> {
        match self.stream.take() {
            Some(mut stream) => stream.send_trailers(trailers(status)),
            None => {
                let mut response = head();
                response.headers_mut().extend(trailers(status));
                self.respond.send_response(response, true).map(drop)
            }
        }
    }
}

fn head() -> Response<()> {
    let mut response = Response::new(());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

fn trailers(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.code.0.into());
    if !status.message.is_empty()
        && let Ok(message) = HeaderValue::from_str(&escaped(&status.message))
    {
        trailers.insert("grpc-message", message);
    }
    trailers
}

/// Escapes the percent sign and everything but printable ASCII for grpc-message.
fn escaped(text: &str) -> String {
    const SPECIAL: &AsciiSet = &CONTROLS.add(b'%');
    utf8_percent_encode(text, SPECIAL).to_string()
}

/// The client's deadline: up to eight digits and a unit.
fn deadline(metadata: &HeaderMap) -> Result<Option<Duration>, ()> {
    let Some(value) = metadata.get("grpc-timeout") else { return Ok(None) };
    let text = value.to_str().map_err(drop)?;
    let at = text.len().checked_sub(1).ok_or(())?;
    let (digits, unit) = text.split_at_checked(at).ok_or(())?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(());
    }
    let n: u64 = digits.parse().map_err(drop)?;
    Ok(Some(match unit {
        "H" => Duration::from_secs(n * 3600),
        "M" => Duration::from_secs(n * 60),
        "S" => Duration::from_secs(n),
        "m" => Duration::from_millis(n),
        "u" => Duration::from_micros(n),
        "n" => Duration::from_nanos(n),
        _ => return Err(()),
    }))
}

#[cfg(test)]
mod tests;
