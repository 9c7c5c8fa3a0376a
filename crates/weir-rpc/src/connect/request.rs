//! The request direction: a Connect call becomes a gRPC call.

use super::{
    Call, Codec, Connect, ErrorAnswer, MALFORMED, NO_METHOD, Stage, State, WRONG_METHOD, WRONG_TYPE, response,
};
use crate::descriptors::for_client;
use crate::prelude::*;
use std::borrow::Cow;
use weir_filter::grpc;
use weir_h1::Method;
use weir_transcode::connect::{self, Query};
use weir_transcode::frames::{self, Boundary, FrameError, Messages};
use weir_transcode::{ParseError, Status};

/// Fields that describe HTTP and the protocol. gRPC has its own, or they mean nothing to the service.
const OF_CONNECT: &[&[u8]] = &[
    b"accept",
    b"accept-encoding",
    b"connect-accept-encoding",
    b"connect-content-encoding",
    b"connect-protocol-version",
    b"connect-timeout-ms",
    b"content-encoding",
    b"content-length",
    b"grpc-accept-encoding",
    b"grpc-encoding",
    b"grpc-timeout",
];

/// Status codes for invalid requests.
const INVALID_ARGUMENT: u32 = 3;
const UNIMPLEMENTED: u32 = 12;
const UNKNOWN: u32 = 2;

/// The kind of a request.
pub(super) enum Look {
    Call(Box<Call>),
    /// Not known until the service has described itself. Whether the call would be a stream.
    Later(bool),
    /// Not a Connect call.
    Pass,
    Refused(Box<ErrorAnswer>),
}

impl Look {
    fn wrong(cause: &'static Cause, code: u32, message: &str) -> Self {
        Self::Refused(Box::new(ErrorAnswer::new(cause, Status::new(code, message))))
    }
}

/// How the content type of a request is read.
enum Media {
    Known {
        codec: Codec,
        streams: bool,
    },
    /// A Connect type that we do not know.
    Strange,
    /// A type of another protocol.
    Other,
}

impl Connect {
    /// Finds out the kind of a request.
    pub(super) fn look(&self, head: &RequestHead, cx: &mut Cx) -> Look {
        let says_so = head.headers.get_str("connect-protocol-version").is_some();
        match head.method() {
            Method::Post => self.look_at_post(head, says_so, cx),
            Method::Get => self.look_at_get(head, cx),
            Method::Options => Look::Pass,
            _ => {
                let media = media(head.headers.get_str("content-type").unwrap_or_default());
                let is_json = matches!(media, Media::Known { codec: Codec::Json, streams: false });
                if !says_so && (is_json || matches!(media, Media::Other)) {
                    return Look::Pass;
                }
                let mut wrong = ErrorAnswer::new(&WRONG_METHOD, Status::new(UNKNOWN, WRONG_METHOD.meaning));
                wrong.headers.push((self.names.allow.clone(), b"POST".to_vec()));
                Look::Refused(Box::new(wrong))
            }
        }
    }

    fn look_at_post(&self, head: &RequestHead, says_so: bool, cx: &mut Cx) -> Look {
        let (codec, streams) = match media(head.headers.get_str("content-type").unwrap_or_default()) {
            Media::Known { codec, streams } => (codec, streams),
            Media::Strange => return self.wrong_type(),
            Media::Other if says_so && !grpc::is_grpc(&head.headers) => return self.wrong_type(),
            Media::Other => return Look::Pass,
        };
        // JSON alone proves nothing: other requests use it too.
        let is_ours = says_so || streams || codec == Codec::Proto;
        let Some(source) = &self.source else {
            return match codec {
                Codec::Proto => self.call(codec, streams, false, None),
                Codec::Json if is_ours => self.wrong_type(),
                Codec::Json => Look::Pass,
            };
        };
        let Some(loaded) = self.loaded(cx.core()) else { return Look::Later(streams) };
        match loaded.api.method_at(head.path()).map(|(at, _)| at) {
            Some(at) => self.call(codec, streams, false, Some((loaded, at))),
            None if is_ours => {
                source.refresh_for_unknown(cx.core());
                Look::wrong(&NO_METHOD, UNIMPLEMENTED, NO_METHOD.meaning)
            }
            None => Look::Pass,
        }
    }

    /// Only methods without side effects may be called by GET. The descriptors say which those are.
    fn look_at_get(&self, head: &RequestHead, cx: &mut Cx) -> Look {
        let query = Query::read(head.query().unwrap_or_default());
        if !query.is_call() || self.source.is_none() {
            return Look::Pass;
        }
        let Some(loaded) = self.loaded(cx.core()) else { return Look::Later(false) };
        let Some((at, method)) = loaded.api.method_at(head.path()) else { return Look::Pass };
        if !method.no_side_effects || method.client_streams || method.server_streams {
            let mut wrong = ErrorAnswer::new(&WRONG_METHOD, Status::new(UNKNOWN, WRONG_METHOD.meaning));
            wrong.headers.push((self.names.allow.clone(), b"POST".to_vec()));
            return Look::Refused(Box::new(wrong));
        }
        if query.connect.as_deref().is_some_and(|version| version != b"v1") {
            return Look::wrong(
                &MALFORMED,
                INVALID_ARGUMENT,
                "connect: expected v1, the version of the protocol",
            );
        }
        let codec = match query.encoding.as_deref() {
            Some(b"proto") => Codec::Proto,
            Some(b"json") => Codec::Json,
            Some(_) => return self.wrong_type(),
            None => {
                return Look::wrong(&MALFORMED, INVALID_ARGUMENT, "the query has no parameter `encoding`");
            }
        };
        self.call(codec, false, true, Some((loaded, at)))
    }

    fn call(
        &self,
        codec: Codec,
        streams: bool,
        get: bool,
        method: Option<(std::sync::Arc<crate::descriptors::Loaded>, usize)>,
    ) -> Look {
        let messages = || Messages::new(self.message, false);
        Look::Call(Box::new(Call {
            codec,
            streams,
            get,
            method,
            requests: messages(),
            messages: messages(),
            boundary: Boundary::default(),
            body: false,
            told: None,
        }))
    }

    fn wrong_type(&self) -> Look {
        let mut wrong = ErrorAnswer::new(&WRONG_TYPE, Status::new(UNKNOWN, WRONG_TYPE.meaning));
        let known: &[u8] = match self.source {
            Some(_) => {
                b"application/proto, application/json, application/connect+proto, application/connect+json"
            }
            None => b"application/proto, application/connect+proto",
        };
        wrong.headers.push((self.names.accept_post.clone(), known.to_vec()));
        Look::Refused(Box::new(wrong))
    }

    /// Turns the request into a gRPC call.
    pub(super) fn send(
        &self,
        head: &mut RequestHead,
        call: Box<Call>,
        cx: &mut Cx,
    ) -> Result<(), (Box<ErrorAnswer>, Box<Call>)> {
        let mut call = call;
        match self.translated(head, &mut call, cx) {
            Ok(request) => {
                self.make_grpc(head, request, cx);
                cx.state::<State>().stage = Stage::Called(call);
                Ok(())
            }
            Err(status) => {
                let mut wrong = ErrorAnswer::new(&MALFORMED, status);
                if wrong.status.code == UNIMPLEMENTED {
                    let name = if call.streams { "connect-accept-encoding" } else { "accept-encoding" };
                    if let Ok(name) = weir_h1::FieldName::new(name) {
                        wrong.headers.push((name, b"gzip".to_vec()));
                    }
                }
                Err((Box::new(wrong), call))
            }
        }
    }

    /// Translates the parts of the request that gRPC expresses differently.
    fn translated(&self, head: &RequestHead, call: &mut Call, cx: &Cx) -> Result<GrpcRequest, Status> {
        let invalid = |message: &str| Status::new(INVALID_ARGUMENT, message);
        let version = head.headers.get_str("connect-protocol-version");
        if version.is_some_and(|version| version != b"1") {
            return Err(invalid("connect-protocol-version: expected 1"));
        }
        let timeout =
            match head.headers.get_str("connect-timeout-ms") {
                Some(text) => Some(connect::timeout(text).ok_or_else(|| {
                    invalid("connect-timeout-ms: expected milliseconds, ten digits at most")
                })?),
                None => None,
            };
        let query = Query::read(if call.get { head.query().unwrap_or_default() } else { b"" });
        let coding = if call.get {
            query.compression.as_deref()
        } else {
            let name = if call.streams { "connect-content-encoding" } else { "content-encoding" };
            head.headers.get_str(name)
        };
        let coding = coding.filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"));
        let accepts = match call.codec {
            Codec::Json => b"gzip".to_vec(),
            Codec::Proto => {
                let name = if call.streams { "connect-accept-encoding" } else { "accept-encoding" };
                codings(head.headers.get_str(name).unwrap_or_default())
            }
        };
        let is_gzip = coding.is_some_and(|coding| coding.eq_ignore_ascii_case(b"gzip"));
        if call.codec == Codec::Json && coding.is_some() && !is_gzip {
            return Err(Status::new(UNIMPLEMENTED, "the compression is not known; gzip is"));
        }
        call.requests = Messages::new(self.message, is_gzip);
        let coding = coding.filter(|_| call.codec == Codec::Proto).map(<[u8]>::to_vec);
        let body = if call.streams {
            None
        } else {
            let message = match call.get {
                true => query.message().map_err(invalid)?,
                false => Cow::Borrowed(cx.whole()),
            };
            Some(self.framed(call, &message, coding.is_some(), is_gzip)?)
        };
        Ok(GrpcRequest { timeout, coding, accepts, body })
    }

    /// The message of a unary call, in a gRPC frame.
    fn framed(&self, call: &Call, message: &[u8], coded: bool, gzip: bool) -> Result<Vec<u8>, Status> {
        if message.len() > self.message {
            return Err(Status::new(8, "the message is longer than the limit"));
        }
        let mut out = Vec::with_capacity(message.len() + 5);
        let begun = frames::begin(&mut out);
        match call.codec {
            Codec::Proto => {
                out.extend_from_slice(message);
                if coded && !message.is_empty() {
                    frames::flag(begun, frames::COMPRESSED, &mut out);
                }
            }
            Codec::Json => {
                let plain = match gzip && !message.is_empty() {
                    true => Cow::Owned(frames::gunzip(message, self.message).map_err(of_frames)?),
                    false => Cow::Borrowed(message),
                };
                read(call, &plain, &mut out)?;
            }
        }
        frames::end(begun, &mut out);
        Ok(out)
    }

    fn make_grpc(&self, head: &mut RequestHead, request: GrpcRequest, cx: &mut Cx) {
        let GrpcRequest { timeout, coding, accepts, body } = request;
        head.headers.remove_where(|name, _| OF_CONNECT.iter().any(|gone| name.eq_ignore_ascii_case(gone)));
        // All values are plain words or parts of received values.
        let _ = head.headers.insert(&self.names.content_type, b"application/grpc");
        if let Some(timeout) = timeout {
            let _ = head.headers.insert(&self.names.grpc_timeout, timeout.as_bytes());
        }
        if let Some(coding) = coding {
            let _ = head.headers.insert(&self.names.grpc_encoding, &coding);
        }
        if !accepts.is_empty() {
            let _ = head.headers.insert(&self.names.grpc_accept_encoding, &accepts);
        }
        let _ = head.set_query(None);
        if let Some(body) = body {
            cx.give_whole(body);
        }
        cx.call_grpc(head);
    }

    /// An error response of ours. A stream gets it as its last message if the call is valid enough to be a stream.
    pub(super) fn answer(&self, wrong: ErrorAnswer, call: Option<&Call>, cx: &mut Cx) -> Flow {
        cx.state::<State>().stage = Stage::Done;
        cx.answer_because(wrong.cause);
        let ErrorAnswer { cause, status, mut headers } = wrong;
        let status = for_client(cause, status, cx);
        if let Some(call) = call.filter(|call| call.streams) {
            return response::ended(&self.names, call, &status, headers, Vec::new());
        }
        headers.push((self.names.content_type.clone(), b"application/json".to_vec()));
        // An invalid message has its own code. Otherwise the status of the cause decides.
        let http = match cause.status {
            400 => weir_transcode::http_status(status.code, weir_transcode::ErrorStyle::Google),
            told => told,
        };
        Flow::Answer(Box::new(Answer { status: http, headers, body: connect::error(&status).into() }))
    }
}

/// The translated request.
struct GrpcRequest {
    timeout: Option<String>,
    /// The compression of messages that pass unchanged.
    coding: Option<Vec<u8>>,
    accepts: Vec<u8>,
    /// The message of a unary call.
    body: Option<Vec<u8>>,
}

/// The message format of a content type.
fn media(text: &[u8]) -> Media {
    let end = text.iter().position(|&b| b == b';').unwrap_or(text.len());
    let text = text.get(..end).unwrap_or_default().trim_ascii().to_ascii_lowercase();
    match &text[..] {
        b"application/proto" => Media::Known { codec: Codec::Proto, streams: false },
        b"application/json" => Media::Known { codec: Codec::Json, streams: false },
        b"application/connect+proto" => Media::Known { codec: Codec::Proto, streams: true },
        b"application/connect+json" => Media::Known { codec: Codec::Json, streams: true },
        other if other.starts_with(b"application/connect+") => Media::Strange,
        _ => Media::Other,
    }
}

/// The codings that a client accepts, in gRPC's form: without weights, and without those of weight zero.
fn codings(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for one in text.split(|&b| b == b',') {
        let mut parts = one.split(|&b| b == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let is_none = parts.any(|part| matches!(part, b"q=0" | b"q=0." | b"q=0.0" | b"q=0.00" | b"q=0.000"));
        if is_none || name.is_empty() || name == b"*" {
            continue;
        }
        if !out.is_empty() {
            out.push(b',');
        }
        out.extend_from_slice(name);
    }
    out
}

/// Appends the message for a JSON text.
fn read(call: &Call, json: &[u8], out: &mut Vec<u8>) -> Result<(), Status> {
    let method = call.method.as_ref().and_then(|(loaded, at)| Some((loaded, loaded.api.methods().get(*at)?)));
    let Some((loaded, method)) = method else {
        return Err(Status::new(13, "nothing is known of the method"));
    };
    let read = loaded.api.read(method, json, out);
    read.map_err(|ParseError { path, message }| Status::invalid(&path, &message))
}

fn of_frames(e: FrameError) -> Status {
    let code = if e == FrameError::TooLong { 8 } else { INVALID_ARGUMENT };
    Status::new(code, e.to_string())
}

/// Why a request stream cannot go on.
struct Fault(Status);

impl From<FrameError> for Fault {
    fn from(e: FrameError) -> Self {
        Self(of_frames(e))
    }
}

/// Translates a piece of a request stream in JSON.
pub(super) fn piece(piece: &mut Piece<'_>, state: &mut State) -> HookResult {
    let Stage::Called(call) = &mut state.stage else { return Ok(()) };
    if !call.streams || call.codec != Codec::Json {
        return Ok(());
    }
    let mut out = Vec::new();
    let mut messages = std::mem::replace(&mut call.requests, Messages::new(0, false));
    let fed = messages.feed(piece.data(), |message| {
        let begun = frames::begin(&mut out);
        read(call, message, &mut out).map_err(Fault)?;
        frames::end(begun, &mut out);
        Ok::<(), Fault>(())
    });
    let fed = match piece.is_last() {
        true => fed.and_then(|()| messages.finish().map_err(Fault::from)),
        false => fed,
    };
    call.requests = messages;
    let Err(Fault(status)) = fed else {
        piece.replace(out);
        return Ok(());
    };
    let mut refusal = Refusal::new(&MALFORMED);
    refusal.detail = Some(status.message.clone());
    state.wrong = Some(status);
    Err(refusal)
}
